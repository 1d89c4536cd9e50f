# SPDX-License-Identifier: GPL-2.0-or-later
"""The published evidence: its figures, its tables by their mappings, and its traps."""

from __future__ import annotations

import csv
import hashlib
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

from imports_evidence import (
    BUNDLES,
    EVIDENCE,
    MAPPINGS,
    TABLES,
    evidence,
    finding,
    imported,
    judged,
    mapped,
    traps,
)
from kdelta.analysis.judgement import Judgement, JudgementChoice
from kdelta.errors import SpecError
from kdelta.imports import files
from kdelta.imports.record import cases
from kdelta.stats import detectors
from kdelta.verdict.comparison import Verdict

CYCLE = "cycle_ns_per_page"
ITERATION = "iteration_ns_per_page"
FORMAL = "mprotect-qemu/formal-20260513/perf_1cpu"
SELECTING = ("exact_version", "point", "kernel")
STATISTIC = {"n": "n", "mean": "mean", "median": "median", "cv_sample": "cv"}
Rows = list[dict[str, str]]


@lru_cache
def of(name: str) -> Judgement:
    """What `kdelta judge` says of a published bundle or table."""
    return judged(evidence(name))


def headlines() -> Rows:
    with (EVIDENCE / "headlines.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_there_are_184_figures() -> None:
    assert len(headlines()) == 184


@pytest.mark.parametrize(
    "row", headlines(), ids=lambda row: f"{row['file']}:{row['where']}:{row['stat']}"
)
def test_published_figure_is_reproduced(row: dict[str, str]) -> None:
    where = dict(part.split("=", 1) for part in row["where"].split(";"))
    arm = next(where[name] for name in SELECTING if name in where)
    metric = where.get("metric", row["column"])
    (case,) = [case for case in cases(evidence(row["file"]).contents) if case.metric.name == metric]
    series = case.arm(arm)
    assert series is not None
    found = getattr(detectors.summarise(series), STATISTIC[row["stat"]])
    assert found == pytest.approx(float(row["expected"]), rel=0, abs=float(row["abs_tolerance"]))


def test_copies_are_the_published_files() -> None:
    with (EVIDENCE / "SOURCES.tsv").open(newline="") as stream:
        listed = list(csv.DictReader(stream, delimiter="\t"))
    assert listed
    for row in listed:
        data = (EVIDENCE / row["file"]).read_bytes()
        assert len(data) == int(row["bytes"]), row["file"]
        assert hashlib.sha256(data).hexdigest().startswith(row["sha256_16"]), row["file"]


# Mappings.


def test_every_mapping_is_short_and_used() -> None:
    assert {f"{name}.toml" for name in TABLES.values()} == {p.name for p in MAPPINGS.iterdir()}
    for path in MAPPINGS.iterdir():
        assert len(path.read_text().splitlines()) <= 15, path.name


def test_every_set_is_imported() -> None:
    sets = {path.relative_to(EVIDENCE).parts[0] for path in EVIDENCE.iterdir() if path.is_dir()}
    assert sets == {name.partition("/")[0] for name in (*BUNDLES, *TABLES)}
    assert len(BUNDLES) == 14


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_is_read_whole_by_its_mapping_and_by_nothing_else(name: str) -> None:
    found = evidence(name)
    (source,) = found.sources
    separator = "\t" if name.endswith(".tsv") else ","
    with (EVIDENCE / name).open(newline="") as stream:
        rows = list(csv.reader(stream, delimiter=separator))
    assert [list(source.columns), *(list(line.cells) for line in source.lines)] == rows
    lines = {item.line for item in found.contents.readings}
    lines |= {one.line for one in found.contents.published}
    assert lines or found.contents.audited
    assert lines <= {line.number for line in source.lines}
    judged(found)
    with pytest.raises(SpecError, match=r"no mapping says what .* give it so"):
        imported(EVIDENCE / name)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("mincore-qemu/v6.16-fastpath-ab.summary.csv", 17117.667),
        ("mprotect-baremetal/exact-cac1/points.tsv", 53.533333),
        ("mprotect-qemu/reproducer-smp-20260526/summary.csv", 548.6),
        ("migrate-pages-qemu/deferredsplit-ab.move-ns-per-page.csv", 11067.666667),
        ("fsnotify-baremetal/exact-ab-summary.tsv", 4920.865),
    ],
)
def test_published_means_are_kept(name: str, level: float) -> None:
    assert any(one.mean == level for one in evidence(name).contents.published)


@pytest.mark.parametrize(
    "name",
    ["trace-topology.tsv", "trace-per-pid.tsv", "watchers.tsv", "focused-mechanism-summary.tsv"],
)
def test_a_table_without_arms_cannot_be_imported(name: str) -> None:
    with pytest.raises(SpecError):
        imported(EVIDENCE / "fsnotify-baremetal" / name)


# Traps of the published data.


def test_exact_cac1_is_of_one_boot_an_arm() -> None:
    one = finding(of("mprotect-baremetal/exact-cac1/measurements.tsv"), ITERATION)
    (pair,) = one.pairs
    assert (pair.old, pair.new, pair.control) == ("parent-a", "child", "parent-b")
    found = pair.comparison
    assert found.verdict is Verdict.UNDECIDED
    assert found.in_these_boots
    assert found.sandwich
    assert found.sandwich.midpoint - 1 == pytest.approx(0.39773716, abs=1e-8)
    assert found.sandwich.drift == pytest.approx(0.00874126, abs=1e-8)
    assert (found.sandwich.drop_first_midpoint or 0) - 1 == pytest.approx(0.39534884, abs=1e-8)
    assert {"truncated", "order", "replicate"} <= traps(one)  # process rounds, and said so
    assert found.low is not None
    assert found.low > 1.3
    assert "+39.77 %" in found.reasons[0]


@pytest.mark.parametrize("mode", ["default", "hugepage"])
def test_madvise_states_that_differ_are_invalid(mode: str) -> None:
    (pair,) = finding(of("madvise-qemu/state-1cpu.csv"), CYCLE, thp_mode=mode).pairs
    assert pair.comparison.verdict is Verdict.INVALID
    assert "anon_huge_kb_before_advise 0 (6.12.77) against 16384" in pair.comparison.reasons[0]


def test_madvise_states_that_agree_are_undecided_for_want_of_runs() -> None:
    (pair,) = finding(of("madvise-qemu/state-1cpu.csv"), CYCLE, thp_mode="nohugepage").pairs
    assert pair.comparison.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("folder", ["mprotect-qemu", "madvise-qemu"])
def test_one_run_is_undecided_though_the_framework_calls_it_reliable(folder: str) -> None:
    one = finding(of(f"{folder}/release-narrowing/local_1cpu"), CYCLE)
    found = {(pair.comparison.verdict, pair.comparison.more) for pair in one.pairs}
    assert found == {(Verdict.UNDECIDED, 4)}
    assert "few" in traps(one)
    assert {row.label for row in one.compat.framework} == {"reliable"}


def test_cpus_that_nobody_read_back_are_no_dimension() -> None:
    (dimension,) = of("mprotect-qemu/reproducer-nonsmp-20260525/summary.csv").dimensions
    assert (dimension.settings, dimension.sound) == (("1", "2", "4"), False)
    assert "nothing says what the guests saw" in dimension.sentence


def test_cpus_that_were_read_back_are_a_dimension() -> None:
    (dimension,) = of("mprotect-qemu/reproducer-smp-20260526/summary.csv").dimensions
    assert (dimension.settings, dimension.sound) == (("1", "2", "4", "8", "16"), True)


@pytest.mark.parametrize("cpu", ["1", "2", "4", "8"])
def test_two_lines_of_a_run_counted_as_runs(cpu: str) -> None:
    one = finding(of("mprotect-qemu/reproducer-smp-20260526/summary.csv"), ITERATION, cpu=cpu)
    claims = [c.sentence for c in one.cautions if c.trap == "double-count"]
    assert any("6.19.9: 10 results of 5 runs" in text for text in claims)
    assert any("shrinks the CV (to 0.943" in text for text in claims)  # sqrt(8/9)


def test_wild_run_behind_a_published_cv() -> None:
    found = of("mincore-qemu/matched-16cpu-preempt-bridge.summary.csv")
    one = finding(found, "mincore_ns_per_1k_pages")
    assert "wild" in traps(one, "v7.0.9-preempt")
    assert "wild" not in traps(one, "v6.19.9-preempt-advice:")


def test_lost_run_is_eight_of_nine() -> None:
    one = finding(of("mprotect-qemu/mm-unstable-20260520/16cpu"), CYCLE)
    assert [arm.of_planned for arm in one.arms] == ["8/9", "9/9", "9/9"]
    (text,) = [c.sentence for c in one.cautions if c.trap == "failed"]
    assert text == "6.12.77: 8/9 boots have values: qemu_failure: guest runner exit status 139"
    row = next(row for row in one.compat.framework if row.arm == "6.12.77")
    assert (row.label, row.comparison_reliable) == ("partial", False)


def test_cv_just_over_the_limit() -> None:
    one = finding(of("mprotect-qemu/mm-unstable-20260520/8cpu"), CYCLE)
    texts = [c.sentence for c in one.cautions if c.trap == "near-limit"]
    assert any("the CV of 10.02 % is just over the limit of 10 %" in text for text in texts)


@pytest.mark.parametrize(("cpu", "percent"), [("1cpu", 17.9), ("2cpu", 36.9), ("8cpu", 23.1)])
def test_gap_closed(cpu: str, percent: float) -> None:
    (gap,) = finding(of(f"mprotect-qemu/mm-unstable-20260520/{cpu}"), CYCLE).gaps
    assert 100 * (gap.share.value or 0) == pytest.approx(percent, abs=0.05)
    assert (gap.share.low or 1) < (gap.share.value or 0) < (gap.share.high or 0)


def test_a_slowdown_lies_on_the_lattice_of_its_clock() -> None:
    one = finding(of(FORMAL), CYCLE)
    (pair,) = one.pairs
    assert pair.comparison.verdict is Verdict.REGRESSION
    assert pair.comparison.mean_ratio == pytest.approx(1.667, abs=5e-4)
    assert any("4,000,250 ns (HZ=250)" in caution.sentence for caution in one.cautions)


@pytest.mark.parametrize(("name", "expected"), [("perf_1cpu", True), ("coverage_1cpu", False)])
def test_the_order_of_the_boots_is_seen(name: str, expected: bool) -> None:  # noqa: FBT001
    found = cases(evidence(f"mprotect-qemu/formal-20260513/{name}").contents)
    (case,) = [case for case in found if case.metric.name == CYCLE]
    assert detectors.interleaved(list(case.series)) is expected


@pytest.mark.parametrize(
    "name",
    [
        "mprotect-qemu/formal-20260513/coverage_1cpu",
        "madvise-qemu/formal-20260513/coverage_1cpu",
        "madvise-qemu/ftrace-1cpu.profile.csv",
    ],
)
def test_instrumented_runs_are_no_time(name: str) -> None:
    verdicts = {pair.comparison.verdict for one in of(name).findings for pair in one.pairs}
    assert verdicts == {Verdict.INVALID}


def test_population_form_of_a_cv() -> None:
    one = finding(of("mprotect-baremetal/release-window/aggregate.csv"), ITERATION)
    assert any("1.286 % is published, the population form" in c.sentence for c in one.cautions)


def test_state_audit_is_equal_and_counts_its_crash() -> None:
    (audit,) = of("mprotect-qemu/state-audit-20260520/16cpu").audits
    assert (len(audit.fields), audit.differing) == (16, ())
    assert dict(audit.runs)["6.19.9"] == "4/5"


def test_published_sandwich_without_values_is_undecided_with_its_figures() -> None:
    (pair,) = finding(
        of("fsnotify-baremetal/exact-ab-summary.tsv"), "p8_distinct_ns_per_watch"
    ).pairs
    assert pair.comparison.verdict is Verdict.UNDECIDED
    assert all(t in pair.comparison.reasons[0] for t in ("+17.65 %", "+15.11 %", "drift +2.18 %"))


# Bundles with other numbers.


def altered(folder: Path, change: Callable[[Rows], Rows]) -> Judgement:
    """The judgement of a copy of a published bundle whose raw.csv has other rows."""
    copy = folder / "copy"
    shutil.copytree(EVIDENCE / FORMAL, copy)
    with (copy / "raw.csv").open(newline="") as stream:
        rows = change(list(csv.DictReader(stream)))
    with (copy / "raw.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return judged(imported(copy))


def test_another_run_counted_twice(tmp_path: Path) -> None:
    found = altered(tmp_path, lambda rows: rows + [r for r in rows if "_r04-" in r["run_id"]])
    one = finding(found, CYCLE)
    assert "double-count" in traps(one)
    assert one.pairs[0].comparison.verdict is Verdict.INVALID


def test_another_crash(tmp_path: Path) -> None:
    def crash(rows: Rows) -> Rows:
        for row in rows:
            if row["exact_version"] == "6.19.9" and "_r02-" in row["run_id"]:
                row.update(value="", status="unsupported", failure_reason="guest hung")
        return rows

    one = finding(altered(tmp_path, crash), CYCLE)
    assert [arm.of_planned for arm in one.arms] == ["9/9", "8/9"]
    assert any("8/9 boots have values: guest hung" in c.sentence for c in one.cautions)


def test_another_refilled_run(tmp_path: Path) -> None:
    def late(rows: Rows) -> Rows:
        for row in rows:
            if row["exact_version"] == "6.12.77" and "_r03-" in row["run_id"]:
                row["run_id"] = row["run_id"].partition("-bench-")[0] + "-bench-20260514T080000Z"
        return rows

    assert "refilled" in traps(finding(altered(tmp_path, late), CYCLE), "6.12.77 r03")
    assert "refilled" not in traps(finding(of(FORMAL), CYCLE))


def test_metric_that_is_no_time_is_audited_and_wrong_result_fails_run(tmp_path: Path) -> None:
    def wrong(rows: Rows) -> Rows:
        return [*rows, rows[0] | {"metric": "unexpected_results", "value": "3.000000"}]

    found = altered(tmp_path, wrong)
    counts = {arm.arm: arm.of_planned for arm in finding(found, CYCLE).arms}
    assert counts == {"6.12.77": "9/9", "6.19.9": "8/9"}
    assert any("unexpected_results 3" in c.sentence for c in finding(found, CYCLE).cautions)


def test_bundle_keeps_the_real_order() -> None:
    readings = evidence(FORMAL).contents.readings
    places = {r.replicate: r.position for r in readings if r.metric == CYCLE}
    assert sorted(place for place in places.values() if place is not None) == list(range(18))
    assert (places["6.19.9 r01"], places["6.12.77 r01"]) == (0, 1)


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("execution_order.json", '{"steps": [{"suite_name": "a"}]}', "a step needs"),
        ("execution_order.json", '{"steps": 5}', "not what the framework writes"),
        ("pipeline_run_env.json", '{"profiles": [{"name": "a"}]}', "a profile needs"),
        ("pipeline_run_env.json", '{"a": NaN}', "NaN is not a number"),
        ("pipeline_run_env.json", '{"a": 1, "a": 2}', "twice"),
        ("pipeline_run_env.json", "[1]", "no JSON object"),
        ("pipeline_run_env.json", '{"a": }', "not JSON"),
        ("pipeline_run_env.json", "[" * 100_000, "nested too deep"),
    ],
)
def test_wrong_bundle_file_is_named(tmp_path: Path, name: str, text: str, cause: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(EVIDENCE / FORMAL, copy)
    (copy / name).write_text(text)
    with pytest.raises(SpecError, match=cause) as caught:
        imported(copy)
    assert name in caught.value.place


def test_several_bundles_are_never_compared_with_each_other() -> None:
    folder = EVIDENCE / "mprotect-qemu" / "mm-unstable-20260520"
    found = judged(imported(folder / "1cpu", folder / "2cpu"))
    assert {dict(one.group)["set"] for one in found.findings} == {"1cpu", "2cpu"}
    assert {dict(one.group)["cpu"] for one in found.findings} == {"1", "2"}


def test_pairs_follow_the_declared_order_and_named_arms_do_not() -> None:
    name = "mprotect-baremetal/kernel-queue/steps.csv"
    pairs = finding(of(name), ITERATION).pairs
    assert [pair.old.split("-")[0] for pair in pairs] == ["6.12.77", "6.19.9", "6.19.9", "7.0.9"]
    chosen = judged(evidence(name), JudgementChoice(old="7.0.9", new="6.12"))
    (pair,) = finding(chosen, ITERATION).pairs
    assert (pair.old, pair.new) == ("7.0.9-bm-7.0.9", "6.12.77-bm-6.12.77")


def test_mappings_beside_a_table_are_no_data(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    name = "mprotect-baremetal/release-window/steps.csv"
    shutil.copy(EVIDENCE / name, folder / "steps.csv")
    (folder / f"steps{files.MAPPING}").write_text("replicate = 3")
    found = imported(folder, mappings=(mapped(TABLES[name]),))
    assert [source.name for source in found.sources] == ["set/steps.csv"]
