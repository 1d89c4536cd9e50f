# SPDX-License-Identifier: GPL-2.0-or-later
"""Call paths as pictures and for other tools: sums as counted, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import subprocess
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kdelta.analysis.calls import CallExplanation, difference
from kdelta.analysis.explanation import explain
from kdelta.disassembly.addr2line import SourceLine
from kdelta.probes.calls import PathNode
from kdelta.rendering.profiles import Profiles, callgrind, flame_page, folded, pprof, speedscope
from ladder_records import ladder

HOSTILE = "</script><svg onload=x>;a (1)\n\x1b[2J\u202e"
OLD = [
    PathNode(-1, "main", 0, 10),
    PathNode(0, "walk", 1, 1000),
    PathNode(1, "walk", 4, 300),
    PathNode(1, HOSTILE, 8, 80),
]
NEW = [
    PathNode(-1, "main", 0, 10),
    PathNode(0, "walk", 1, 1000),
    PathNode(1, "walk", 4, 310),
    PathNode(1, "commit", 4096, 4096),
]
TOTALS = 1390, 5416


class Elements(HTMLParser):
    """Every element of a page with its attributes, and whether each end tag is one's own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.faults: list[str] = []
        self.feed(text)
        self.faults += self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "source", "line", "rect", "br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}>")


@pytest.fixture
def profiles() -> Profiles:
    found = replace(explain(ladder(), "6.16", "6.17"), old=HOSTILE, run_id=HOSTILE)
    return Profiles(found, [OLD], [NEW])


@pytest.fixture
def page(profiles: Profiles) -> str:
    found = CallExplanation(
        explanation=profiles.explanation, difference=difference(profiles.old, profiles.new)
    )
    return flame_page(found)


def test_nothing_but_its_own_script_runs_and_nothing_is_loaded(page: str) -> None:
    elements = Elements(page)
    assert not elements.faults
    for _, attributes in elements.found:
        assert not any(name.startswith("on") or name in ("style", "src") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert [tag for tag, _ in elements.found].count("script") == 1
    assert all(char == "\n" or char.isprintable() for char in page)
    policy = next(
        told["content"] for tag, told in elements.found if tag == "meta" and len(told) > 1
    )
    for tag in ("script", "style"):
        own = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert own
        digest = base64.b64encode(hashlib.sha256(own[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in (policy or "")
    assert (policy or "").startswith("default-src 'none'")


def test_a_picture_is_as_wide_as_what_ran(page: str) -> None:
    for key, total, at in (("new", TOTALS[1], NEW), ("old", TOTALS[0], OLD)):
        part = page.partition(f'id="h-{key}"')[2].partition("</section>")[0]
        widths = {
            (int(row), name): float(width)
            for width, row, name in re.findall(
                r'data-w="(.*?)" data-r="(\d+)" data-n="(.*?)"', part
            )
        }
        assert widths[0, "all"] == widths[1, "main"] == 1
        assert widths[3, "walk"] == pytest.approx(at[2].insns / total, abs=1e-7)
        assert ((3, "commit") in widths) == (key == "new")
        rows: defaultdict[int, float] = defaultdict(float)
        for (row, _), width in widths.items():
            rows[row] += width
        assert all(share <= 1 + 1e-6 for share in rows.values())


def test_without_a_script_all_is_told(page: str) -> None:
    assert "commit is newly called in walk" in page
    assert "<title>commit (new): called 0 -&gt; 0.25 times, own 0 -&gt; 0.2" in page


def test_folded_stacks_sum_and_no_name_makes_a_path(profiles: Profiles) -> None:
    rows = [line.rsplit(" ", 2) for line in folded(profiles).splitlines()]
    assert [sum(int(row[side]) for row in rows) for side in (1, 2)] == [*TOTALS]
    assert all(" " not in row[0] for row in rows)
    assert {row[0].count(";") for row in rows} == {0, 1, 2}


def test_a_stack_of_ten_thousand_frames_is_cut(profiles: Profiles) -> None:
    deep = [PathNode(at - 1, "recur", 1, 1) for at in range(10_000)]
    found = replace(profiles, old=[deep])
    (row,) = [line for line in folded(found).splitlines() if "[deeper]" in line]
    assert row.endswith(f" {10_000 - 200} 0")
    assert f"totals: 10000 {TOTALS[1]}\n" in callgrind(found)


def test_callgrind_has_the_totals_and_no_recursion_twice(profiles: Profiles) -> None:
    text = callgrind(profiles)
    assert f"totals: {TOTALS[0]} {TOTALS[1]}\n" in text
    number = re.search(r"^fn=\((\d+)\) main$", text, re.M)
    assert number
    main = text.partition(f"fn=({number[1]}) main\n")[2].partition("\nfn=")[0]
    assert main.splitlines()[0] == "0 10 10"
    assert f"0 {TOTALS[0] - 10} {TOTALS[1] - 10}" in main


@pytest.mark.program
def test_callgrind_annotate_prints_our_totals(profiles: Profiles, tmp_path: Path) -> None:
    written = tmp_path / "callgrind.out.1"
    written.write_text(callgrind(profiles))
    done = subprocess.run(
        ["callgrind_annotate", written], stdout=subprocess.PIPE, text=True, check=True
    )
    (totals,) = re.findall(r"^(.*)PROGRAM TOTALS$", done.stdout, re.M)
    found = [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) \(", totals)]
    assert found == [*TOTALS]


def test_speedscope_has_both_kernels(profiles: Profiles) -> None:
    told = json.loads(speedscope(profiles))
    frames = [frame["name"] for frame in told["shared"]["frames"]]
    for profile, total in zip(told["profiles"], TOTALS, strict=True):
        assert sum(profile["weights"]) == profile["endValue"] == total
        assert all(frames[path[0]] == "main" for path in profile["samples"])


def fields(content: bytes) -> list[tuple[int, int | bytes]]:
    """Fields of a protobuf message by number, as its encoding is defined."""
    found: list[tuple[int, int | bytes]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(content):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        else:
            assert key & 7 == 2
            size = varint()
            found.append((key >> 3, content[at : at + size]))
            at += size
    return found


def many(content: bytes, number: int) -> list[bytes]:
    return [told for key, told in fields(content) if key == number and isinstance(told, bytes)]


def numbers(content: bytes) -> list[int]:
    """Packed numbers, as varints."""
    found, value, shift = [], 0, 0
    for byte in content:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found


@pytest.mark.parametrize(("side", "nodes"), [("old", OLD), ("new", NEW)])
def test_pprof_says_each_path_by_its_functions(
    profiles: Profiles, side: str, nodes: list[PathNode]
) -> None:
    content = gzip.decompress(pprof(profiles, side))
    texts = [text.decode() for text in many(content, 6)]
    assert texts[0] == ""
    kind = dict(fields(many(content, 1)[0]))
    assert [texts[int(kind[at])] for at in (1, 2)] == ["instructions", "count"]
    names = {}
    for function in many(content, 5):
        told = dict(fields(function))
        names[told[1]] = texts[int(told[2])]
    for location in many(content, 4):
        line = many(location, 4)[0]
        assert dict(fields(line))[1] == dict(fields(location))[1]
    found = {}
    for sample in many(content, 2):
        path = tuple(names[number] for number in reversed(numbers(many(sample, 1)[0])))
        found[path] = numbers(many(sample, 2)[0])
    assert found["main",] == [10]
    assert found["main", "walk", "walk"] == [nodes[2].insns]
    assert sum(value for (value,) in found.values()) == sum(node.insns for node in nodes)


PLACES = {
    "walk": (SourceLine("mm/walk.c", 40, "walk"), SourceLine("mm/walk.c", 44, "walk")),
    "commit": (None, SourceLine("mm/<b>.c", 7, "commit")),
}


def test_a_frame_says_where_its_function_begins(profiles: Profiles) -> None:
    found = CallExplanation(
        explanation=profiles.explanation, difference=difference(profiles.old, profiles.new)
    )
    page = flame_page(found, PLACES)
    assert "walk: called" in page
    assert "mm/walk.c:40 -&gt; mm/walk.c:44" in page
    assert "mm/&lt;b&gt;.c:7" in page
    assert "mm/<b>" not in page


def test_callgrind_has_the_files_and_lines_that_are_known(profiles: Profiles) -> None:
    text = callgrind(replace(profiles, places=PLACES))
    assert "fl=(1) kernel\nfl=(2) mm/<b>.c\nfl=(3) mm/walk.c\n" in text
    assert re.search(r"^fl=\(3\)\nfn=\(\d+\) walk\n44 1300 1310\n", text, re.MULTILINE)
    assert re.search(
        r"^cfi=\(2\)\ncfn=\(\d+\) commit\ncalls=4096 7\n44 0 4096$", text, re.MULTILINE
    )
    assert f"totals: {TOTALS[0]} {TOTALS[1]}\n" in text
