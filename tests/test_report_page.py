# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a page: the verdict first, nothing loaded, nothing that runs, whatever the names."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import sys
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

import ladder_records
import timed_records
from kdelta.analysis.calls import CallExplanation, difference
from kdelta.analysis.claims import claim
from kdelta.analysis.explanation import Explanation
from kdelta.analysis.work import KindDelta, WorkExplanation
from kdelta.errors import InfraError
from kdelta.journal.run import RunRecord
from kdelta.probes.calls import PathNode
from kdelta.rendering.page import MANY, readings, written
from kdelta.rendering.steps import StepDetail
from kdelta.sample import Outcome
from kdelta.workload import load

WORKLOADS = {"mprotect": load("mprotect")}
HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=y>\x1b[31m\u202e$x_1$"


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


def hostile(record: RunRecord) -> RunRecord:
    arms = tuple(
        replace(arm, label=f"{arm.label}{HOSTILE}", kernel=replace(arm.kernel, version=HOSTILE))
        for arm in record.arms
    )
    return replace(record, arms=arms, title=HOSTILE, run_id=HOSTILE, created=HOSTILE)


@functools.cache
def ladder_page() -> str:
    """Drawn once: a page takes a second."""
    return written(claim(ladder_records.ladder()), WORKLOADS)


@functools.cache
def timed_page() -> str:
    return written(claim(timed_run()), WORKLOADS)


def timed_run() -> RunRecord:
    return timed_records.run([100.0, 160.0, 100.0])


def detail(explained: Explanation, name: str) -> StepDetail:
    """What a run kept of its calls and its work, of functions with hostile names."""
    old = [PathNode(-1, "main", 0, 10), PathNode(0, name, 1, 1000)]
    new = [*old, PathNode(1, f"new {name}", 4096, 4096)]
    kinds = (KindDelta(group="work", kind="loads", old=0, new=4096, where=((name, 4096),)),)
    return StepDetail(
        work=WorkExplanation(explanation=explained, work=kinds),
        calls=CallExplanation(explanation=explained, difference=difference([old], [new])),
    )


def pictures(page: str) -> list[str]:
    found = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", page)
    return [base64.b64decode(each).decode() for each in found]


@pytest.mark.parametrize("record", [ladder_records.ladder(), timed_records.run([100, 160, 100])])
def test_nothing_runs_and_nothing_is_loaded(record: RunRecord) -> None:
    found = claim(hostile(record))
    kept = detail(found.explanation, HOSTILE) if found.explanation else None
    page = written(found, WORKLOADS, kept)
    elements = Elements(page)
    assert not elements.faults
    names = {tag for tag, _ in elements.found}
    assert not names & {"script", "iframe", "object", "embed", "form", "link", "base"}
    for tag, attributes in elements.found:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "srcset", "href"):
            target = attributes.get(name) or "#"
            assert target.startswith(("#", "data:image/svg+xml;base64,")), tag
    assert all(char == "\n" or char.isprintable() for char in page)
    for picture in pictures(page):
        inside = Elements(picture)
        assert not {tag for tag, _ in inside.found} & {"script", "img", "foreignobject"}
        assert "\x1b" not in picture


def test_the_style_is_the_one_that_the_policy_names() -> None:
    page = ladder_page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert policy
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]


def test_the_verdict_comes_first_and_all_else_is_there() -> None:
    page = ladder_page()
    text = " ".join(re.sub(r"<[^>]+>", " ", page.partition("<main")[2]).split())
    order = [
        "REGRESSION mprotect() of resident memory (all of 64 MiB, shared anonymous) went from",
        "769.8 on 6.17.13: 92 % more instructions, which is more work (counted exactly",
        "Most of it is in prot_commit_flush_ptes, which 6.16.12 does not execute",
        "Is it expected?",
        "--tree ~/linux --good v6.16 --bad v6.17",
        "Kernel by kernel",
        "x1.916, more work",
        "State of the pages",
        "3 wanted facts: each holds",
        "Functions: 6.16.12 to 6.17.13",
        "prot_commit_flush_ptes",
        "Limits",
        "Provenance",
    ]
    assert re.search(".*".join(map(re.escape, order)), text)


def test_the_functions_add_up() -> None:
    page = ladder_page()
    rows = page.partition('aria-label="Table of functions"')[2].partition("</table>")[0]
    cells = [
        re.findall(r'<td class="n (?:up|down)">([\d.,]+) (more|fewer)', row)
        for row in rows.split("<tr>")
    ]
    signed = [
        float(number.replace(",", "")) * (1 if word == "more" else -1)
        for row in cells
        for number, word in row
    ]
    assert sum(signed[:-1]) == pytest.approx(signed[-1], abs=0.1 * len(signed))


def test_call_paths_flame_graphs_and_kinds_of_work_follow_the_functions() -> None:
    found = claim(ladder_records.ladder())
    assert found.explanation
    page = written(found, WORKLOADS, detail(found.explanation, "walk"))
    text = " ".join(re.sub(r"<[^>]+>", " ", page.partition("<main")[2]).split())
    order = [
        *("Functions: 6.16.12 to 6.17.13", "Causes", "new walk", "Call paths", "Flame graphs"),
        *("As wide as in 6.17.13", "As wide as in 6.16.12", "Kinds of work", "loads", "walk"),
    ]
    assert re.search(".*".join(map(re.escape, order)), text)
    frames = Elements(page.partition('class="flame"')[2].partition("</figure>")[0])
    assert sum(attributes.get("class") == "u3" for _, attributes in frames.found) == 1
    told = "Call paths and flame graphs are of a run that recorded calls"
    assert told not in page
    assert told in ladder_page()


def test_paper_has_what_a_screen_folds_away() -> None:
    paper = ladder_page().partition("details::details-content")[0].rpartition("@media")[2]
    assert paper.startswith(" print")
    assert "content-visibility: visible" in ladder_page()


def test_what_takes_back_has_a_share_below_nought() -> None:
    page = ladder_page().partition('aria-label="Table of functions"')[2].partition("</table>")[0]
    for row in page.split("<tr>")[2:]:
        fewer = " fewer</td>" in row
        assert fewer == bool(re.search(r'<td class="n">-[\d.]+ %</td>', row)) or ">0.0 %<" in row


def test_every_sample_is_drawn_in_its_order() -> None:
    record = timed_run()
    taken = readings(record, claim(record).report.ladders[0])
    assert [each.trial for each in taken] == sorted(each.trial for each in taken)
    assert sum(len(each.values) for each in taken) == 27 * 16
    page = timed_page()
    assert f"{27 * 16} samples of 3 kernels, a point each" in page
    assert f"{27 * 16} samples by the order of measuring" in page
    drawn = pictures(page)[0:12]
    samples = next(each for each in drawn if each.count("<use") > 27 * 16)
    assert samples.count("<use") >= 27 * 16 + 27


def test_many_samples_are_one_picture() -> None:
    record = timed_run()
    first = record.trials[0]
    assert first.result
    phase = first.result.timed.phases[0]
    many = replace(phase, nanoseconds=phase.nanoseconds * (MANY // 16))
    data = replace(first.result.timed, phases=(many,))
    trials = (replace(first, result=replace(first.result, data=data)), *record.trials[1:])
    page = written(claim(replace(record, trials=trials)), WORKLOADS)
    assert max(each.count("<use") for each in pictures(page)) < 200
    assert "data:image/png" in "".join(pictures(page))


def test_the_same_run_gives_the_same_page() -> None:
    assert written(claim(timed_run()), WORKLOADS) == timed_page()


def test_failures_and_undecided_runs_have_a_page() -> None:
    good = ladder_records.result(ladder_records.Trial(per_page=300.0))
    bad = ladder_records.failed(Outcome.BOOT_ERROR, "it <b>hung</b>")
    page = written(claim(ladder_records.run({"6.1.1": [good], "6.2.1": [bad]})), WORKLOADS)
    assert "No comparison of this run is decided." in page
    assert "it &lt;b&gt;hung&lt;/b&gt;" in page


def test_without_matplotlib_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InfraError, match=r"kdelta\[page\]"):
        written(claim(ladder_records.ladder()), WORKLOADS)
