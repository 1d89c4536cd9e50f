# SPDX-License-Identifier: GPL-2.0-or-later
"""Call paths as flame graphs and folded stacks: sums as counted, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kdelta.analysis.calls import CallExplanation, difference
from kdelta.analysis.explanation import explain
from kdelta.probes.calls import PathNode
from kdelta.rendering.explain import flame_page, folded
from ladder_records import ladder

HOSTILE = "</script><svg onload=x>;a (1)\n\x1b[2J\u202e"
OLD = [
    PathNode(-1, "main", 0, 10), PathNode(0, "walk", 1, 1000), PathNode(1, "walk", 4, 300),
    PathNode(1, HOSTILE, 8, 80),
]  # fmt: skip
NEW = [
    PathNode(-1, "main", 0, 10), PathNode(0, "walk", 1, 1000), PathNode(1, "walk", 4, 310),
    PathNode(1, "commit", 4096, 4096),
]  # fmt: skip
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
def found() -> CallExplanation:
    explained = replace(explain(ladder(), "6.16", "6.17"), old=HOSTILE, run_id=HOSTILE)
    return CallExplanation(explanation=explained, difference=difference([OLD], [NEW]))


@pytest.fixture
def page(found: CallExplanation) -> str:
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


def test_folded_stacks_sum_and_no_name_makes_a_path() -> None:
    rows = [line.rsplit(" ", 2) for line in folded([OLD], [NEW]).splitlines()]
    assert [sum(int(row[side]) for row in rows) for side in (1, 2)] == [*TOTALS]
    assert all(" " not in row[0] for row in rows)
    assert {row[0].count(";") for row in rows} == {0, 1, 2}


def test_a_stack_of_ten_thousand_frames_is_cut() -> None:
    deep = [PathNode(at - 1, "recur", 1, 1) for at in range(10_000)]
    (row,) = [line for line in folded([deep], [NEW]).splitlines() if "[deeper]" in line]
    assert row.endswith(f" {10_000 - 200} 0")
