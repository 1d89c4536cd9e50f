# SPDX-License-Identifier: GPL-2.0-or-later
"""The site of a lab: every view is there, links lead to pages, and nobody's name does harm."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from operator import add
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import ladder_records
from kdelta.analysis.lab import lab as lab_of
from kdelta.analysis.lab import version_key, without_folders
from kdelta.bisect.journal import BisectState, Journal, Point, Question
from kdelta.cli.report import site as command
from kdelta.errors import SpecError
from kdelta.journal import artifacts, results
from kdelta.journal.run import RunRecord
from kdelta.probes.calls import PathNode
from kdelta.probes.work import Kind, WorkRow
from kdelta.rendering import formats, site
from kdelta.workload import loadable
from run_records import kept

HOSTILE = "<script>alert(1)</script>\"'\x1b[31m../../etc/passwd\u202e{{ 7*7 }}"
SCENARIO = f"{ladder_records.WORKLOAD}:{ladder_records.SCENARIO}"
ATOM = "{http://www.w3.org/2005/Atom}"


def files(*records: RunRecord, most_pairs: int = 130) -> dict[str, bytes]:
    lab = lab_of(records, most_pairs=most_pairs)
    return site.written(
        lab, address="https://lab.example/", workloads=loadable([ladder_records.WORKLOAD])
    )


def named(label: str) -> RunRecord:
    return ladder_records.counting({"6.16.12": 300.0, label: 400.0})


class Page(HTMLParser):
    """Links, text and scripts of a page."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.links: list[str] = []
        self.scripts = 0
        self.policy = self.text = self.block = self.begin = ""
        self._data = False
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.scripts += tag == "script"
        self._data = tag == "script" and own.get("type") == "application/json"
        self.begin = own.get("data-begin") or self.begin
        assert not [name for name in own if name.startswith("on") or name == "style"]
        if own.get("src"):
            assert tag == "script"
            assert (own["src"] or "").removeprefix("../") == "site.js"
        if own.get("http-equiv") == "Content-Security-Policy":
            self.policy = own["content"] or ""
        if tag in ("a", "link") and own.get("href"):
            self.links.append(own["href"] or "")

    def handle_data(self, data: str) -> None:
        if self._data:
            self.block += data
        else:
            self.text += data

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._data = False


@pytest.fixture(scope="module")
def ladder() -> dict[str, bytes]:
    return files(ladder_records.ladder(1))


def test_each_view_is_there(ladder: dict[str, bytes]) -> None:
    folders = {name.partition("/")[0] for name in ladder if name.endswith(".html")}
    assert folders == {
        *("index.html", "steps.html", "compare.html", "functions.html", "runs.html"),
        *("scenario", "step", "function"),
    }
    for name in ladder:
        if name.endswith(".html"):
            assert json.loads(ladder[name.removesuffix(".html") + ".json"])["format"] == 3
    grid = Page(ladder["index.html"]).text
    assert "1 scenario over 9 kernels: " in grid
    functions = "prot_commit_flush_ptes +328.0 (new), change_protection -270.0 (vanished)"
    assert (
        "The largest change: mprotect:shared_dirty_full_toggle_64m, 92 % more instructions from"
        f" 6.16.12 to 6.17.13, which is more work, by function {functions}, change_pte_range +238.1"
    ) in grid
    assert functions in Page(ladder["steps.html"]).text.replace("\xa0", " "), "as explain says"
    assert any(b"<tr><th>other 2 functions<td>50.0<td>50.0<td>0<td>" in ladder[n] for n in ladder)


def test_a_step_of_a_phase_is_told_on_every_page_and_changes_are_counted_and_named() -> None:
    values = {"6.1.1": 110.0, "6.2.1": 110.5, "6.3.1": 220.0, "6.4.1": 230.0, "6.5.1": 240.0}
    record = ladder_records.with_kernels(
        ladder_records.counting(values),
        lambda arm: {"options": ("UBSAN_BOUNDS=y",) if arm.index > 1 else ("SMP=y",)},
    )
    pages = files(record)
    (step,) = [
        n for n in pages if n.startswith("step/") and "-protect-" in n and n.endswith("html")
    ]
    (scenario,) = [n for n in pages if n.startswith("scenario/") and n.endswith("html")]
    index, steps, own, pairs = (
        pages[name].decode() for name in ("index.html", "steps.html", scenario, "compare.html")
    )
    assert f'<td class="REGRESSION" data-on="6.2.1"><a href="{step}">protect 5 % mo' in index
    assert f'<a href="{step}">' in steps
    assert f'<td class="REGRESSION"><a href="../{step}">protect 5 % more instr' in own
    assert (
        f"The largest change: {SCENARIO}, 99 % more instructions from 6.2.1 to 6.3.1, undecided,"
        " since the two were built with different options (-SMP, +UBSAN_BOUNDS), by function"
        " entry_SYSCALL_64 +109.5 per page. The largest that is decided:"
        f" {SCENARIO}, phase protect, 5 % more"
    ) in (said := Page(own.encode()).text)
    assert "5 kernels: 3 steps to more work, 0 to less, 1 undecided." in said
    assert re.findall(r"<td>(10\.\d+)<td>100\.0", own) == ["10.00", "10.50"]
    assert '<a href="#6.1.1..6.2.1">1 of 1</a>' in pairs
    assert '"protect x"' in pairs


def test_a_narrow_page_leaves_out_what_did_not_change_or_was_not_run() -> None:
    every = named("6.17.13")
    trials = (replace(one, scenario="other") for one in every.trials if one.arm == 0)
    index = files(every, replace(every, run_id="two", trials=tuple(trials)))["index.html"].decode()
    _, other, both = index.split("<tr><th>")
    assert other.endswith('<td data-on="6.16.12">300.0<td>-')
    assert '<td data-on="6.16.12">300.0<td class="REGRESSION" data-on="6.17.13">' in both
    assert "shared_<wbr>dirty_<wbr>full_<wbr>toggle_<wbr>64m</a>" in index
    assert ".grid tr > td[data-on] { display: block;" in formats.asset("site.css")


def test_a_change_that_chance_may_have_made_is_told_with_its_reason() -> None:
    wide = [at * 400_000 for at in range(8)]
    trials = (ladder_records.Trial(per_page=value, windows=wide) for value in (300.0, 320.0))
    old, new = map(ladder_records.result, trials)
    pages = files(ladder_records.run({"6.16.12": [old], "6.17.13": [new]}))
    told = (
        "5.4 % more instructions from 6.16.12 to 6.17.13, undecided, by function entry_SYSCALL_64"
    )
    assert f"{told} +20.0 per page: the spread over" in Page(pages["index.html"]).text
    new = ladder_records.result(ladder_records.Trial(per_page=301.0, windows=wide))
    index = files(ladder_records.run({"6.16.12": [old], "6.17.13": [new]}))["index.html"].decode()
    assert re.search(r'UNDECIDED".* 1 undecided\.(?s:.*)<a href="scenario/[^"]*">undecided', index)
    assert any(b'"big">Undecided:' in text for name, text in pages.items() if "step/" in name)


@pytest.fixture(scope="module")
def told_step(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A lab whose run kept call paths and kinds of work; a function is called something hostile."""
    place = tmp_path_factory.mktemp("lab")
    record = named("6.17.13")
    kept(record, place / record.run_id)
    for trial in record.trials:
        assert trial.result
        folder = results.trial_folder(place / record.run_id, trial.index)
        phases = trial.result.exact.phases
        sizes = {one.phase: min(map(add, one.user, one.kernel)) for one in phases}
        extra = 7 * trial.index
        artifacts.keep(
            folder,
            artifacts.CALLS,
            {
                name: (PathNode(-1, "main", 1, n - extra), PathNode(0, HOSTILE, 1, extra))
                for name, n in sizes.items()
            },
        )
        rows = (WorkRow(HOSTILE, Kind.ATOMIC, ladder_records.PAGES * trial.index),)
        artifacts.keep(
            folder, artifacts.DETAILS, artifacts.TrialDetails(work=dict.fromkeys(sizes, rows))
        )
    out = place / "site"
    done = CliRunner().invoke(command, [str(out), "--runs", str(place)])
    assert done.exit_code == 0, done.output + str(done.exception)
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.*")}


def test_a_step_tells_in_words_by_paths_and_by_kinds(told_step: dict[str, bytes]) -> None:
    (name,) = [n for n in told_step if n.startswith("step/") and n.endswith(".html")]
    text = " ".join(Page(told_step[name]).text.split())
    assert "per page on 6.16.12 to 400.0 on 6.17.13: 33 % more instructions, which is more" in text
    assert text.count("33 %") == 1
    assert not re.search(r"x1\.333|threshold", text)
    assert "its own code" in text
    assert "atomic instructions" in text
    assert "by function main +100.0" in Page(told_step["index.html"]).text, "by call paths"
    markup = told_step[name].decode()
    assert markup.count('<svg class="flame"') == 2
    assert re.search(r'<rect class="u[123]" width="100%"', markup)
    assert "<script>alert" not in markup
    assert '<td class="up">+100.0<td>x1.000\n' in markup, "x without, as kdelta explain has it"
    data = json.loads(told_step[name.removesuffix(".html") + ".json"])["page"]
    assert " ".join(data["sentences"]) in text
    assert [row["kind"] for row in data["kinds"]] == ["atomic"]
    assert data["name"] == SCENARIO


def bisection(run_id: str, *titles: str, ended: bool = True, bad: str = "v6.17") -> Journal:
    study = replace(ladder_records.ladder(1).study, scenarios=(SCENARIO,), kernels=("v6.16", bad))
    question = Question(kind="tree", phase="total", study=study)
    state = BisectState(
        format=3, run_id=run_id, digest="", question=question, created="2026",
        points=tuple(Point(key=f"k{at}", label=f"c{at}", title=t) for at, t in enumerate(titles)),
        ended=ended,
    )  # fmt: skip
    return Journal(Path("nowhere"), state)


def test_a_step_names_the_commit_that_was_bisected() -> None:
    commits = ladder_records.counting({"c0": 300.0, "c1": 300.0, "c2": 400.0})
    commits = replace(commits, run_id="bisect-1")
    lab = lab_of([ladder_records.ladder(1), commits], most_pairs=130, aside=["bisect-1"])
    assert "c1" not in lab.kernels
    assert "c1" not in {old for old, _ in lab.pairs}
    release = next(step for step in lab.steps if step.explanation.old == "6.16.12")
    found = bisection("bisect-1", "one", "two", "mm: <b>slower</b>")
    assert (told := site.culprit(release, lab.steps, [found]))
    assert (told.label, told.title) == ("c2", "mm: <b>slower</b>")
    others = [
        bisection("bisect-1", "one", "two", "three", ended=False),
        bisection("bisect-1", "one", "two", "three", bad="v6.18"),
        bisection("bisect-1", "one", "two"),  # the step is beyond its points
        bisection("another", "one", "two", "three"),
    ]
    assert site.culprit(release, lab.steps, others) is None
    later = next(step for step in lab.steps if step.explanation.old == "6.17.13")
    assert site.culprit(later, lab.steps, [found]) is None
    pages = site.written(
        lab,
        address="",
        details=lambda step: site.StepDetail(culprit=site.culprit(step, lab.steps, [found])),
    )
    (name,) = [n for n in pages if "6.16.12-6.17.13" in n and n.startswith("step/") and "html" in n]
    page = Page(pages[name])
    assert "Bisected: c2 mm: <b>slower</b>" in page.text
    (link,) = [link for link in page.links if "c1-c2" in link]
    assert f"step/{link.rpartition('/')[2]}" in pages


def test_links_lead_to_pages(ladder: dict[str, bytes]) -> None:
    for name, content in ladder.items():
        if not name.endswith(".html"):
            continue
        for link in Page(content).links:
            if link == "data:," or link.startswith("#"):
                continue
            parts: list[str] = []
            for part in (*PurePosixPath(name).parent.parts, *link.split("/")):
                if part == "..":
                    parts.pop()
                else:
                    parts.append(part)
            assert "/".join(parts) in ladder, f"{name}: {link}"


def test_a_function_tells_kernels_at_which_it_changed(ladder: dict[str, bytes]) -> None:
    (name,) = [n for n in ladder if n.startswith("function/vm-normal-page") and n.endswith("html")]
    page = ladder[name].decode()
    heads = re.findall(r'<th scope="col">([^<]*)</th>', page)
    assert heads == ["scenario", "6.1.176", "6.17.13"]
    assert re.findall(r"<td>([^<\n]*)", page) == ["", "66.00"]
    data = json.loads(ladder[name.removesuffix("html") + "json"])
    assert data["page"]["kernels"] == ["6.1.176", "6.17.13"]
    assert data["page"]["rows"] == [[[SCENARIO], [None, 66.0]]]


def test_only_our_own_script_runs(ladder: dict[str, bytes]) -> None:
    for name, content in ladder.items():
        if not name.endswith(".html"):
            continue
        page = Page(content)
        sorts = name in ("index.html", "steps.html", "compare.html", "functions.html")
        assert page.policy == (
            f"default-src 'none'; style-src 'self';{' script-src self;' * sorts} img-src data:;"
            " base-uri 'none'; form-action 'none'"
        ).replace("src self", "src 'self'")
        assert b"<style" not in content
        assert page.scripts == sorts + (name == "compare.html")
    assert (Path(site.__file__).parent / "site.js").read_bytes() == ladder["site.js"]


def test_the_feed_is_atom_and_names_steps_for_ever(ladder: dict[str, bytes]) -> None:
    root = ElementTree.fromstring(ladder["feed.xml"])  # noqa: S314 - our own
    entries = root.findall(f"{ATOM}entry")
    assert entries
    for entry in entries:
        link = entry.find(f"{ATOM}link")
        assert link is not None
        assert link.get("href", "").removeprefix("https://lab.example/") in ladder
    ids = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(set(ids)) == len(ids)
    again = files(replace(ladder_records.ladder(1), run_id="another"))
    assert ids == [
        e.findtext(f"{ATOM}id")
        for e in ElementTree.fromstring(again["feed.xml"]).iter(f"{ATOM}entry")  # noqa: S314
    ]


@pytest.mark.parametrize("label", [HOSTILE, "x" * 100_000, "..", "/etc/passwd", "\x00\n"])
def test_a_hostile_name_is_text(label: str) -> None:
    for name, content in files(named(label)).items():
        assert re.fullmatch(r"(?:[a-z]+/)?[A-Za-z0-9][A-Za-z0-9.-]{0,90}", name)
        assert ".." not in name
        assert b"\x1b" not in content
        if name.endswith(".html"):
            page = Page(content)
            assert page.scripts <= 2  # ours, and data that no browser runs
            assert b"<script>alert" not in content
            assert "49" not in page.text or "{{ 7*7 }}" in page.text


def test_other_machines_are_left_out_and_said_to_be() -> None:
    other = replace(ladder_records.ENVIRONMENT, qemu_version="7.2.0")
    trial = ladder_records.Trial(per_page=300.0, environment=other)
    stranger = ladder_records.run({"6.16.12": [ladder_records.result(trial)]})
    stranger = replace(stranger, run_id="stranger")
    usual = ladder_records.ladder(1)
    without = replace(usual.study, machine=replace(usual.study.machine, thp="never"))
    huge = replace(usual, run_id="other-thp", study=without)
    rt = replace(usual.study, machine=replace(usual.study.machine, flavour="rt"))
    again = replace(usual, run_id="again", study=rt)  # another kernel, and no other machine
    lab = lab_of([usual, stranger, huge, again], most_pairs=10)
    assert {run[0] for run in lab.runs} == {usual.run_id, "again"}
    assert any("stranger: counted on another machine" in text for text in lab.left_out)
    assert any(text.startswith("other-thp: ") and "thp never" in text for text in lab.left_out)


def test_a_file_that_was_another_program_is_left_out() -> None:
    newest = ladder_records.ladder(1)
    at, program = (
        "2027-01-01T00:00:00+00:00",
        replace(ladder_records.ENVIRONMENT, program_sha256="1"),
    )
    trials = [replace(each, workload="./own.c") for each in newest.trials]
    own = replace(newest, trials=tuple(trials))
    results = [each.result and replace(each.result, environment=program) for each in trials]
    edited = [replace(each, result=own) for each, own in zip(trials, results, strict=True)]
    edited_run = replace(own, run_id="edited", created=at, trials=tuple(edited))
    lab = lab_of([own, edited_run], most_pairs=10)
    assert [run[0] for run in lab.runs] == ["edited"]
    assert lab.left_out == (f"{own.run_id}: ./own.c was another program",)
    for run, name in ((own, "./own.c"), (edited_run, "./srv/own.c")):
        there = (replace(one, workload="/srv/own.c") for one in run.trials)
        told = {"./own.c": "./own.c", "/srv/own.c": name}
        both, names = without_folders([own, replace(run, trials=tuple(there))])
        assert names == told
    assert lab.scenarios[0].name == f"own.c:{ladder_records.SCENARIO}"
    assert lab_of(both, most_pairs=1).scenarios[1].name == f"srv/{lab.scenarios[0].name}"


def test_kernels_are_in_the_order_of_their_numbers() -> None:
    names = ["7.0.9", "6.9.1", "6.12.107", "7.0-rc3", "6.12.9"]
    assert sorted(names, key=version_key) == ["6.9.1", "6.12.9", "6.12.107", "7.0-rc3", "7.0.9"]


def test_the_command_replaces_its_own_folder_only(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    kept(ladder_records.ladder(1), runs / "one")
    arguments = [str(out), "--runs", str(runs)]
    assert CliRunner().invoke(command, arguments, catch_exceptions=False).exit_code == 0
    (out / "old.html").write_text("of an earlier site")
    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert not (out / "old.html").exists()
    assert (out / "index.html").is_file()
    assert not (out / "feed.xml").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("x")
    below_a_file = mine / "thesis.txt" / "site"
    for place, why in ((mine, "holds something else"), (below_a_file, "cannot be written")):
        refused = CliRunner().invoke(command, [str(place), "--runs", str(runs)])
        assert isinstance(refused.exception, SpecError)
        assert refused.exception.sentence().startswith(f"{place}: {why}")
    assert (mine / "thesis.txt").read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out", "runs"]
