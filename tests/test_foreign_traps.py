# SPDX-License-Identifier: GPL-2.0-or-later
"""The traps of the published data, and the same traps in data of our own making."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from foreign_records import (
    Rows,
    altered,
    evidence,
    finding,
    imported,
    judged,
    noise,
    traps,
    write_table,
)
from kdelta.analysis.judgement import JudgementChoice, judge
from kdelta.foreign import loading, mapping, reader, summaries
from kdelta.foreign.record import Published
from kdelta.metric import Better
from kdelta.verdict.comparison import Verdict

CYCLE = "cycle_ns_per_page"
ITERATION = "iteration_ns_per_page"
REFINED_TICK = 4_000_250


# The published sets.


def test_exact_cac1_is_of_one_boot_an_arm() -> None:
    one = finding(judged(*evidence("mprotect-baremetal/exact-cac1")), ITERATION)
    (pair,) = one.pairs
    assert (pair.old, pair.new, pair.control) == ("parent-a", "child", "parent-b")
    found = pair.comparison
    assert found.verdict is Verdict.UNDECIDED
    assert found.in_these_boots
    assert found.sandwich
    assert found.sandwich.midpoint - 1 == pytest.approx(0.39773716, abs=1e-8)
    assert found.sandwich.drift == pytest.approx(0.00874126, abs=1e-8)
    assert (found.sandwich.drop_first_midpoint or 0) - 1 == pytest.approx(0.39534884, abs=1e-8)
    (reason,) = found.reasons
    assert all(text in reason for text in ("+39.77 %", "drift +0.87 %", "+39.53 %"))
    assert "replicate" in traps(one)  # process rounds, and said so


@pytest.mark.parametrize("mode", ["default", "hugepage"])
def test_madvise_states_that_differ_are_invalid(mode: str) -> None:
    one = finding(judged(*evidence("madvise-qemu/state-1cpu.csv")), CYCLE, thp_mode=mode)
    (pair,) = one.pairs
    assert pair.comparison.verdict is Verdict.INVALID
    assert "anon_huge_kb_before_advise 0 (6.12.77) against 16384" in pair.comparison.reasons[0]


def test_madvise_states_that_agree_are_undecided_for_want_of_runs() -> None:
    one = finding(judged(*evidence("madvise-qemu/state-1cpu.csv")), CYCLE, thp_mode="nohugepage")
    assert one.pairs[0].comparison.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("folder", ["mprotect-qemu", "madvise-qemu"])
def test_one_run_is_undecided_though_the_framework_calls_it_reliable(folder: str) -> None:
    one = finding(judged(*evidence(f"{folder}/release-narrowing/local_1cpu")), CYCLE)
    assert {pair.comparison.verdict for pair in one.pairs} == {Verdict.UNDECIDED}
    assert all("1 boot of 1 planned" in pair.comparison.reasons[0] for pair in one.pairs)
    assert "few" in traps(one)
    assert {row.label for row in one.compat.framework} == {"reliable"}


def test_cpus_that_nobody_read_back_are_no_dimension() -> None:
    found = judged(*evidence("mprotect-qemu/reproducer-nonsmp-20260525"))
    (dimension,) = found.dimensions
    assert (dimension.name, dimension.settings, dimension.sound) == ("cpu", ("1", "2", "4"), False)
    assert "nothing in the data says what the guests saw" in dimension.sentence
    assert "no arm's median changes with them by more than" in dimension.sentence


def test_cpus_that_were_read_back_are_a_dimension() -> None:
    found = judged(*evidence("mprotect-qemu/reproducer-smp-20260526"))
    (dimension,) = found.dimensions
    assert (dimension.settings, dimension.sound) == (("1", "2", "4", "8", "16"), True)


@pytest.mark.parametrize("cpu", ["1", "2", "4", "8", "16"])
def test_two_lines_of_a_run_counted_as_runs(cpu: str) -> None:
    found = judged(*evidence("mprotect-qemu/reproducer-smp-20260526"))
    name = "reproducer-smp-20260526"
    one = finding(found, ITERATION, cpu=cpu, set=name)
    claims = [c.sentence for c in one.cautions if c.trap == "double-count"]
    assert any("6.19.9: 10 results of 5 runs" in text for text in claims)
    assert any("shrinks the CV (to 0.943" in text for text in claims)  # sqrt(8/9)


def test_double_count_shows_in_the_sums_alone() -> None:
    found = judged(*evidence("mprotect-qemu/reproducer-smp-20260526/rerun-16cpu.summary.csv"))
    assert "double-count" in traps(finding(found, ITERATION))


@pytest.mark.parametrize(
    "name",
    [
        "migrate-pages-qemu/primary-1-2-4.move-ns-per-page.csv",
        "mprotect-qemu/mm-unstable-20260520/16cpu",
    ],
)
def test_other_summaries_are_not_counted_twice(name: str) -> None:
    for one in judged(*evidence(name)).findings:
        assert "double-count" not in traps(one)


def test_wild_run_behind_a_published_cv() -> None:
    found = judged(*evidence("mincore-qemu/matched-16cpu-preempt-bridge.summary.csv"))
    one = finding(found, "mincore_ns_per_1k_pages")
    assert "wild" in traps(one, "v7.0.9-preempt")
    assert "wild" not in traps(one, "v6.19.9-preempt-advice:")


@pytest.mark.parametrize("metric", [CYCLE, "protect_ns_per_page", "restore_ns_per_page"])
@pytest.mark.parametrize(
    "name",
    [
        "formal-20260513/perf_1cpu",
        "mm-unstable-20260520/1cpu",
        "mm-unstable-20260520/2cpu",
        "mm-unstable-20260520/8cpu",
        "mm-unstable-20260520/16cpu",
    ],
)
def test_lattice_of_jiffies(name: str, metric: str) -> None:
    one = finding(judged(*evidence(f"mprotect-qemu/{name}")), metric)
    (text,) = [c.sentence for c in one.cautions if c.sentence.startswith(f"{metric}: in every")]
    assert "a tick of 4,000,250 ns (HZ=250)" in text


def test_lost_run_is_eight_of_nine() -> None:
    one = finding(judged(*evidence("mprotect-qemu/mm-unstable-20260520/16cpu")), CYCLE)
    assert [arm.of_planned for arm in one.arms] == ["8/9", "9/9", "9/9"]
    (text,) = [c.sentence for c in one.cautions if c.trap == "failed"]
    assert text == "6.12.77: 8/9 boots have values: qemu_failure: guest runner exit status 139"
    row = next(row for row in one.compat.framework if row.arm == "6.12.77")
    assert (row.label, row.comparison_reliable) == ("partial", False)


def test_cv_just_over_the_limit() -> None:
    one = finding(judged(*evidence("mprotect-qemu/mm-unstable-20260520/8cpu")), CYCLE)
    texts = [c.sentence for c in one.cautions if c.trap == "near-limit"]
    assert any("the CV of 10.02 % is just over the limit of 10 %" in text for text in texts)


@pytest.mark.parametrize(("cpu", "percent"), [("1cpu", 17.9), ("2cpu", 36.9), ("8cpu", 23.1)])
def test_gap_closed(cpu: str, percent: float) -> None:
    one = finding(judged(*evidence(f"mprotect-qemu/mm-unstable-20260520/{cpu}")), CYCLE)
    (gap,) = one.gaps
    assert 100 * (gap.share.value or 0) == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize("name", ["mprotect-qemu", "madvise-qemu"])
def test_coverage_runs_are_no_time(name: str) -> None:
    found = judged(*evidence(f"{name}/formal-20260513/coverage_1cpu"))
    verdicts = {pair.comparison.verdict for one in found.findings for pair in one.pairs}
    assert verdicts == {Verdict.INVALID}


def test_traced_run_is_no_time() -> None:
    paths = evidence(
        "migrate-pages-qemu/ftrace-v619-v70.workload-rows.csv",
        "migrate-pages-qemu/ftrace-v619-v70.run-checks.csv",
    )
    (pair,) = finding(judged(*paths), "move_ns").pairs
    assert pair.comparison.verdict is Verdict.INVALID
    assert "coverage on" in pair.comparison.reasons[0]


def test_supplement_run_breaks_the_interleaving() -> None:
    stem = "mincore-qemu/matched-8cpu-preempt-bridge"
    paths = evidence(f"{stem}.summary.csv", f"{stem}.failures.csv", f"{stem}.matrix-complete.json")
    one = finding(judged(*paths), "mincore_ns_per_1k_pages")
    assert "refilled" in traps(one, "v6.12.77-preempt-advice")


def test_population_form_of_a_cv() -> None:
    one = finding(judged(*evidence("mprotect-baremetal/release-window")), ITERATION)
    assert any("1.286 % is published, the population form" in c.sentence for c in one.cautions)


def test_state_audit_is_equal_and_counts_its_crash() -> None:
    found = judged(*evidence("mprotect-qemu/state-audit-20260520/16cpu"))
    (audit,) = found.audits
    assert (len(audit.fields), audit.differing) == (16, ())
    assert dict(audit.runs)["6.19.9"] == "4/5"


def test_published_sandwich_without_values_is_undecided_with_its_figures() -> None:
    paths = evidence("fsnotify-baremetal/exact-ab-summary.tsv")
    (pair,) = finding(judged(*paths), "p8_distinct_ns_per_watch").pairs
    assert pair.comparison.verdict is Verdict.UNDECIDED
    assert all(t in pair.comparison.reasons[0] for t in ("+17.65 %", "+15.11 %", "drift +2.18 %"))


def test_summaries_have_an_interval_that_names_what_it_assumes(tmp_path: Path) -> None:
    """Welch's interval by hand: 105 against 100, sd 2, nine runs each: +-2.92 x 0.94 / 100."""
    rows: Rows = [
        {"kernel": arm, "metric": "fault_ns", "mean": mean, "sd": "2.0", "n": "9"}
        for arm, mean in (("6.1", "100.0"), ("6.2", "105.0"))
    ]
    write_table(tmp_path / "summary.tsv", rows)
    (pair,) = judged(tmp_path / "summary.tsv").findings[0].pairs
    found = pair.comparison
    assert found.verdict is Verdict.UNDECIDED
    assert found.in_these_boots
    assert found.ratio == pytest.approx(1.05)
    assert found.low == pytest.approx(1.022, abs=2e-3)
    assert found.high == pytest.approx(1.079, abs=2e-3)
    assert "from summaries, normal scatter assumed: +5.00 %" in found.reasons[0]


# Other numbers, other names: the same answers.


def sandwich(folder: Path, new: float, again: float = 80.0, **state: str) -> Path:
    """An A/B/A session with other names: 12 boots an arm, a base of 80."""
    jitter = noise(4)
    rows: Rows = []
    for order, (arm, role, level) in enumerate(
        [("b1", "base", 80.0), ("patched", "patch", new), ("b2", "base", again)], start=3
    ):
        rows += [
            {
                "order": str(order),
                "kernel": arm,
                "role": role,
                "boot": f"{arm}-{turn}",
                "fault_ns_per_call": f"{jitter.gauss(level, level / 100):.3f}",
                "anon_huge_kb": state.get(arm, "0"),
            }
            for turn in range(12)
        ]
    write_table(folder / "session.tsv", rows)
    return folder / "session.tsv"


@pytest.mark.parametrize(
    ("new", "again", "verdict"),
    [
        (96.0, 80.0, Verdict.REGRESSION),
        (64.0, 80.0, Verdict.IMPROVEMENT),
        (80.0, 80.0, Verdict.SAME),
        (96.0, 88.0, Verdict.UNDECIDED),  # the base drifts by 10 %
    ],
)
def test_another_sandwich(tmp_path: Path, new: float, again: float, verdict: Verdict) -> None:
    (pair,) = finding(judged(sandwich(tmp_path, new, again)), "fault_ns_per_call").pairs
    assert (pair.old, pair.new, pair.control) == ("b1", "patched", "b2")
    assert pair.comparison.verdict is verdict


def test_another_state_that_differs(tmp_path: Path) -> None:
    path = sandwich(tmp_path, 96.0, patched="2048")
    (pair,) = finding(judged(path), "fault_ns_per_call").pairs
    assert pair.comparison.verdict is Verdict.INVALID


def test_another_run_counted_twice(tmp_path: Path) -> None:
    def twice(rows: Rows) -> Rows:
        return rows + [row for row in rows if "_r04-" in row["run_id"]]

    copy = altered("mprotect-qemu/formal-20260513/perf_1cpu", tmp_path, twice)
    one = finding(judged(copy), CYCLE)
    assert "double-count" in traps(one)
    assert one.pairs[0].comparison.verdict is Verdict.INVALID
    assert "is counted more than once" in one.pairs[0].comparison.reasons[0]


def test_another_crash(tmp_path: Path) -> None:
    def crash(rows: Rows) -> Rows:
        for row in rows:
            if row["exact_version"] == "6.19.9" and "_r02-" in row["run_id"]:
                row.update(value="", status="unsupported", failure_reason="guest hung")
        return rows

    copy = altered("mprotect-qemu/formal-20260513/perf_1cpu", tmp_path, crash)
    one = finding(judged(copy), CYCLE)
    assert [arm.of_planned for arm in one.arms] == ["9/9", "8/9"]
    assert any("8/9 boots have values: guest hung" in c.sentence for c in one.cautions)


def test_another_refilled_run(tmp_path: Path) -> None:
    def late(rows: Rows) -> Rows:
        for row in rows:
            if row["exact_version"] == "6.12.77" and "_r03-" in row["run_id"]:
                row["run_id"] = row["run_id"].partition("-bench-")[0] + "-bench-20260514T080000Z"
        return rows

    copy = altered("mprotect-qemu/formal-20260513/perf_1cpu", tmp_path, late)
    assert "refilled" in traps(finding(judged(copy), CYCLE), "6.12.77 r03")
    untouched = judged(*evidence("mprotect-qemu/formal-20260513/perf_1cpu"))
    assert "refilled" not in traps(finding(untouched, CYCLE))


def ticking(hz_tick: float, pages: int, seed: int) -> dict[str, dict[str, int]]:
    """run -> metric -> value, as a clock of that tick prints them."""
    jitter = noise(seed)
    found = {}
    for run in range(8):
        rounds = jitter.choice([12, 16, 20])
        ticks = [jitter.randrange(8, 60) * rounds // 8 for _ in range(3)]
        means = [math.floor(count * hz_tick / (rounds * pages)) for count in ticks]
        names = ("a_ns_per_page", "b_ns_per_page", "c_ns_per_page")
        found[f"run{run}"] = dict(zip(names, means, strict=True))
    return found


def bundle(folder: Path, runs: dict[str, dict[str, int]]) -> Path:
    write_table(
        folder / "raw.csv",
        [
            {
                "exact_version": "6.1.1",
                "metric": metric,
                "value": f"{value}.000000",
                "status": "ok",
                "run_id": run,
                "failure_reason": "",
            }
            for run, values in runs.items()
            for metric, value in values.items()
        ],
    )
    return folder


@pytest.mark.parametrize(("tick", "hz"), [(10_000_000.0, 100), (REFINED_TICK, 250)])
def test_another_tick(tmp_path: Path, tick: float, hz: int) -> None:
    found = judged(bundle(tmp_path, ticking(tick, 4096, seed=7)))
    for one in found.findings:
        assert any(f"(HZ={hz})" in c.sentence and "every boot" in c.sentence for c in one.cautions)


@pytest.mark.parametrize("seed", range(5))
def test_clock_without_ticks_has_no_lattice(tmp_path: Path, seed: int) -> None:
    jitter = noise(seed)
    runs = {
        f"run{run}": {f"{name}_ns_per_page": jitter.randrange(100, 900) for name in "abc"}
        for run in range(9)
    }
    for one in judged(bundle(tmp_path, runs)).findings:
        assert "lattice" not in traps(one)


def summary(values: list[int]) -> Published:
    n, mean = len(values), sum(values) / len(values)
    sd = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return Published(
        source=0, line=2, arm="a", metric="x_ns", mean=mean, cv=sd / mean, cv_digits=16, ok=n
    )


def test_sums_tell_a_double_count_from_honest_runs() -> None:
    jitter = noise(11)
    honest = [[jitter.randrange(100, 400) for _ in range(10)] for _ in range(40)]
    assert not summaries.counted_in_pairs(summary(values) for values in honest)
    assert summaries.counted_in_pairs(summary(values[:5] * 2) for values in honest)
    assert not summaries.counted_in_pairs([summary(honest[0][:5] * 2)])  # one row proves nothing


def matrix(folder: Path, **columns: str) -> Path:
    rows = [
        {"cpu": cpu, "kernel": kernel, "step": str(step), "x_ns_per_op": str(level), **columns}
        for step, (cpu, kernel, level) in enumerate(
            (cpu, kernel, level + at % 3)
            for at in range(6)
            for cpu in ("2", "64")
            for kernel, level in (("6.1", 500), ("6.2", 700))
        )
    ]
    write_table(folder / "steps.csv", rows)
    return folder / "steps.csv"


def test_another_matrix_that_was_not_read_back(tmp_path: Path) -> None:
    (dimension,) = judged(matrix(tmp_path)).dimensions
    assert (dimension.settings, dimension.sound) == (("2", "64"), False)


def test_matrix_of_guests_that_saw_one_cpu(tmp_path: Path) -> None:
    found = judged(matrix(tmp_path, seen_cpu="1"))
    (dimension,) = found.dimensions
    assert not dimension.sound
    assert "the guests saw 1" in dimension.sentence
    verdicts = {pair.comparison.verdict for one in found.findings for pair in one.pairs}
    assert verdicts == {Verdict.INVALID}


def test_default_pairs_follow_versions_and_named_arms_do_not() -> None:
    path = evidence("mprotect-baremetal/kernel-queue")
    pairs = finding(judged(*path), ITERATION).pairs
    assert [pair.old.split("-")[0] for pair in pairs] == ["6.12.77", "6.19.9", "6.19.9", "7.0.9"]
    chosen = judged(*path, choice=JudgementChoice(old="7.0.9", new="6.12"))
    (pair,) = finding(chosen, ITERATION).pairs
    assert (pair.old, pair.new) == ("7.0.9-bm-7.0.9", "6.12.77-bm-6.12.77")


def test_bundle_keeps_the_real_order() -> None:
    foreign = imported(*evidence("mprotect-qemu/formal-20260513/perf_1cpu"))
    places = {r.replicate: r.position for r in foreign.contents.readings if r.metric == CYCLE}
    assert sorted(place for place in places.values() if place is not None) == list(range(18))
    assert places["6.19.9 r01"] == 0
    assert places["6.12.77 r01"] == 1


# Units.


@pytest.mark.parametrize(("factor", "asked"), [(1000, True), (0.1, True), (1.5, False)])
def test_an_arm_in_another_unit_is_undecided_and_asked_about(
    factor: float, *, asked: bool, tmp_path: Path
) -> None:
    rng = noise(11)
    rows = [
        f"{name},{boot},{seq},{scale * rng.gauss(1000, 5):.4f}"
        for seq, boot in enumerate(range(12))
        for name, scale in (("6.12", 1.0), ("6.18", factor))
    ]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["kernel,boot,seq,lat_us", *rows]) + "\n")
    (pair,) = finding(judged(path), "lat_us").pairs
    if not asked:
        assert pair.comparison.verdict is Verdict.REGRESSION
        return
    assert pair.comparison.verdict is Verdict.UNDECIDED
    assert "are the units the same?" in pair.comparison.reasons[0]
    known = mapping.Mapping(
        columns=mapping.ColumnKeys(arm="kernel", boot="boot", position="seq"),
        metrics={"lat": mapping.MetricKeys(value="lat_us", unit="us", better=Better.LOWER)},
        facts={mapping.UNITS: "same"},
    )
    contents = reader.read([path], loading.Wish(mappings=(known,)))[1]
    stated = replace(imported(path), contents=contents)
    (pair,) = finding(judge("test", stated, JudgementChoice()), "lat").pairs
    assert pair.comparison.verdict.is_step
