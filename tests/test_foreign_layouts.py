# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables that nobody described: read right, or refused with a proposal that is nearly right."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_twins
from kdelta.errors import SpecError
from kdelta.foreign import loading, mapping, reader
from kdelta.foreign.record import Contents
from kdelta.foreign.series import Case, cases
from kdelta.metric import Better
from kdelta.verdict.series import ReplicateUnit

SEEDS = range(100, 148)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_layout_is_read_right_or_nearly_proposed(seed: int, tmp_path: Path) -> None:
    layout = foreign_twins.layout(seed)
    how, said = foreign_twins.read(layout, tmp_path)
    assert how in ("read", "proposed")
    assert foreign_twins.alike(said, layout.truth), layout.way


def test_most_drawn_layouts_need_no_help_and_some_do(tmp_path: Path) -> None:
    how = [foreign_twins.read(foreign_twins.layout(seed), tmp_path)[0] for seed in SEEDS]
    assert 30 <= how.count("read") < len(how)


def table(path: Path, head: str, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def contents(*paths: Path, **wish: object) -> Contents:
    return reader.read(paths, loading.Wish(**wish))[1]  # type: ignore[arg-type]


def only(*paths: Path) -> Case:
    (case,) = cases(contents(*paths))
    return case


def refused(path: Path) -> reader.UndescribedError:
    with pytest.raises(reader.UndescribedError) as caught:
        reader.read([path])
    assert mapping.parse(caught.value.proposal, "proposal")
    return caught.value


def values(case: Case) -> dict[str, tuple[float, ...]]:
    return {series.arm: series.values for series in case.series}


# What a newcomer has.


def test_kernel_and_ns(tmp_path: Path) -> None:
    rows = ("6.16,25", "6.17,37", "6.16,26", "6.17,38")
    case = only(table(tmp_path / "a.csv", "kernel,ns", *rows))
    assert values(case) == {"6.16": (25.0, 26.0), "6.17": (37.0, 38.0)}
    assert (case.metric.unit, case.metric.better) == ("ns", Better.LOWER)
    assert case.detail("6.16", "replicate") == "not said"  # and so judged with a warning


def test_kernel_boot_and_ns(tmp_path: Path) -> None:
    rows = ("6.16,1,25", "6.16,1,27", "6.16,2,26", "6.17,1,37")
    case = only(table(tmp_path / "a.csv", "kernel,boot,ns", *rows))
    assert [boot.values for boot in case.series[0].boots] == [(25.0, 27.0), (26.0,)]
    assert case.series[0].replicate is ReplicateUnit.BOOT


def test_a_column_for_each_arm_without_a_unit_is_told_and_not_judged(tmp_path: Path) -> None:
    case = only(table(tmp_path / "a.csv", "6.16,6.17", "25,37", "26,38"))
    assert values(case) == {"6.16": (25.0, 26.0), "6.17": (37.0, 38.0)}
    assert case.metric.better is Better.NONE


def test_the_name_of_the_file_may_give_the_unit(tmp_path: Path) -> None:
    case = only(table(tmp_path / "fault_ns.csv", "6.16,6.17", "25,37", "26,38"))
    assert (case.metric.name, case.metric.unit, case.metric.better) == ("fault_ns", "ns", "lower")


def test_two_files_of_one_name_are_two_arms_in_the_order_given(tmp_path: Path) -> None:
    files = [table(tmp_path / name / "r.csv", "ns", "5", "6") for name in ("zzz", "aaa")]
    case = only(*files)
    assert ([series.arm for series in case.series], case.ordered) == (["zzz", "aaa"], "given")


def test_two_files_of_one_kernel_each_are_compared(tmp_path: Path) -> None:
    files = [table(tmp_path / k / "r.csv", "kernel,ns", f"{k},5") for k in ("6.17", "6.16")]
    assert [series.arm for series in only(*files).series] == ["6.16", "6.17"]


def test_two_files_of_the_same_kernels_are_two_sets(tmp_path: Path) -> None:
    for name in ("cycle", "restore"):
        table(tmp_path / "d" / f"{name}.csv", "kernel,ns", "6.16,5", "6.17,6")
    groups = [case.group for case in cases(contents(tmp_path / "d"))]
    assert groups == [(("set", "d/cycle"),), (("set", "d/restore"),)]


# What must not be taken for something else.


def test_statistics_beside_a_time_are_no_times(tmp_path: Path) -> None:
    head = "kernel,round,lat_ns,stdev_ns,min_ns,p99_ns,lat_ns_cv,delta_pct"
    rows = [f"6.{k},{r},{4 + k + 2 * r},9,9,9,9,9" for k in (1, 2) for r in (0, 1)]
    case = only(table(tmp_path / "a.csv", head, *rows))
    assert (case.metric.name, values(case)) == ("lat_ns", {"6.1": (5.0, 7.0), "6.2": (6.0, 8.0)})


@pytest.mark.parametrize("column", ["path", "Verfahren", "syscall_kind"])
def test_a_column_of_text_that_separates_rows_is_a_dimension(tmp_path: Path, column: str) -> None:
    rows = [f"{k},{p},{t}" for k in ("6.1", "6.2") for p in ("fast", "slow") for t in (5, 6)]
    found = cases(contents(table(tmp_path / "a.csv", f"kernel,{column},ns", *rows)))
    assert [case.group for case in found] == [((column, "fast"),), ((column, "slow"),)]


def test_summaries_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    rows = ("6.1,5,0.1,9", "6.2,6,0.1,9", "6.1,7,0.1,9")
    error = refused(table(tmp_path / "a.csv", "kernel,mean_ns,sd,n", *rows))
    assert "rows 2 and 4 both sum up runs of one arm" in error.sentence()


def test_a_number_that_may_be_a_round_or_a_setting_is_asked(tmp_path: Path) -> None:
    rows = [f"{k},{x},5" for k in ("6.1", "6.2") for x in (1, 2, 3)]
    assert (
        "is level the number of a round"
        in refused(table(tmp_path / "a.csv", "kernel,level,ns", *rows)).sentence()
    )


def test_two_columns_that_could_be_the_arm_are_asked(tmp_path: Path) -> None:
    rows = [f"{k},{v},5" for k in ("6.1", "6.2") for v in ("orig", "opt")]
    error = refused(table(tmp_path / "a.csv", "kernel,variant,ns", *rows))
    assert "both kernel and variant could be the arm" in error.sentence()


def test_a_comma_that_may_separate_thousands_is_asked(tmp_path: Path) -> None:
    error = refused(table(tmp_path / "a.csv", "kernel;ns", "6.1;1,234", "6.2;2,345"))
    assert "1,234 may be 1234 or 1.234" in error.sentence()


def test_a_status_that_nobody_knows_is_asked(tmp_path: Path) -> None:
    rows = ("6.1,5,ok", "6.2,6,ok", "6.2,9,wobbly")
    error = refused(table(tmp_path / "a.csv", "kernel,ns,status", *rows))
    assert "does status wobbly mean a good run?" in error.sentence()


def test_gates_fail_the_run_in_every_arm(tmp_path: Path) -> None:
    head = "kernel,round,ns,failed_pages,semantic_ok"
    rows = ("6.1,1,5,0,true", "6.1,2,5,3,true", "6.2,1,6,0,true", "6.2,2,6,0,false")
    case = only(table(tmp_path / "a.csv", head, *rows))
    failed = {s.arm: [b.failure for b in s.boots if b.failure] for s in case.series}
    assert failed == {"6.1": ["failed_pages 3"], "6.2": ["semantic_ok false"]}


def test_arms_are_never_ordered_by_spelling(tmp_path: Path) -> None:
    rows = ("zeta,5", "alpha,6")
    case = only(table(tmp_path / "a.csv", "kernel,ns", *rows))
    assert ([series.arm for series in case.series], case.ordered) == (["zeta", "alpha"], "")
    variants = ("6.16-nobatch,5", "6.16,6", "6.9-b,7")
    case = only(table(tmp_path / "b.csv", "kernel,ns", *variants))
    assert [series.arm for series in case.series] == ["6.9-b", "6.16", "6.16-nobatch"]


def test_arms_and_their_statistics_in_columns(tmp_path: Path) -> None:
    head = "CPU/mem,v6.12.77_mean,v6.12.77_sd,v6.19.9_mean,v6.19.9_sd,v6.19_vs_v6.12_pct"
    path = table(tmp_path / "fault_us.csv", head, "1,5,0.1,6,0.2,20", "8CPU/16GiB,7,0.1,N/A,N/A,-")
    first, second = cases(contents(path))
    assert first.group == (("cpu", "1"),)
    assert second.group == (("cpu", "8"), ("memory", "16GiB"))
    assert [(one.arm, one.mean, one.sd) for one in first.published] == [
        ("v6.12.77", 5.0, 0.1),
        ("v6.19.9", 6.0, 0.2),
    ]
    assert [one.arm for one in second.published] == ["v6.12.77"]


def test_a_mapping_may_not_leave_out_what_separates_rows(tmp_path: Path) -> None:
    rows = [f"{k},{p},5" for k in ("6.1", "6.2") for p in ("fast", "slow")]
    path = table(tmp_path / "a.csv", "kernel,path,ns", *rows)
    toml = '[columns]\narm = "kernel"\n[metrics.t]\nvalue = "ns"\nunit = "ns"\nbetter = "lower"\n'
    with pytest.raises(SpecError, match='column "path" tells rows of one arm apart'):
        contents(path, mappings=(mapping.parse(toml, "m"),))
    dimension = toml.replace("[metrics", 'dimensions = ["path"]\n[metrics')
    assert len(cases(contents(path, mappings=(mapping.parse(dimension, "m"),)))) == 2


def test_perf_stat_and_hyperfine(tmp_path: Path) -> None:
    for kernel, ms in (("6.16", 12.5), ("6.17", 13.5)):
        for run in (1, 2):
            table(
                tmp_path / "perf" / kernel / f"r{run}.csv",
                "# started on Mon May  4",
                f"{ms + run},msec,task-clock,123,100.00,0.98,CPUs utilized",
                "<not counted>,,cache-misses,0,0.00,,",
            )
    found = {case.metric.name: case for case in cases(contents(tmp_path / "perf"))}
    assert values(found["task-clock"]) == {"6.16": (13.5, 14.5), "6.17": (14.5, 15.5)}
    assert found["cache-misses"].series[0].boots[0].failure == "not counted"
    result = '{"command": "x", "mean": 1, "times": [1, 2], "exit_codes": [0, 1]%s}'
    both = ", ".join(
        result % f', "parameters": {{"kernel": "{kernel}"}}' for kernel in ("6.17", "6.16")
    )
    path = table(tmp_path / "h.json", f'{{"results": [{both}]}}')
    case = only(path)
    assert [series.arm for series in case.series] == ["6.17", "6.16"]
    assert [boot.failure for boot in case.series[0].boots] == ["", "exit code 1"]


@pytest.mark.parametrize(
    ("head", "rows", "arms", "unit"),
    [
        ("sep=;\nkernel;ns", ("6.1;5,5", "6.2;6,5"), {"6.1": (5.5,), "6.2": (6.5,)}, "ns"),
        ("#kernel ns", ("6.1 5", "6.2 6"), {"6.1": (5.0,), "6.2": (6.0,)}, "ns"),
        ("kernel  walk_range avg_us", ("6.1  5", "6.2  6"), {"6.1": (5.0,), "6.2": (6.0,)}, "us"),
        ("| kernel | ns/page |\n|---|---|", ("| a1 | 5 |", "| b | 6 |"), None, "ns/page"),
    ],
)
def test_tables_of_spreadsheets_plots_mails_and_pages(
    tmp_path: Path,
    head: str,
    rows: tuple[str, ...],
    arms: dict[str, tuple[float, ...]] | None,
    unit: str,
) -> None:
    case = only(table(tmp_path / "a.txt", head, *rows))
    assert values(case) == (arms or {"a1": (5.0,), "b": (6.0,)})
    assert case.metric.unit == unit


def test_metrics_in_rows_and_arms_in_columns(tmp_path: Path) -> None:
    rows = ("total time (sec),3.14,2.93,-6.69%", "Throughput (M/sec),104.38,111.89,+7.19%")
    path = table(tmp_path / "a.csv", "task,without patch,with patch,delta", *rows)
    found = {case.metric.name: case for case in cases(contents(path))}
    assert [one.metric.better for one in found.values()] == [Better.LOWER, Better.HIGHER]
    assert [(one.arm, one.mean) for one in found["total time (sec)"].published] == [
        ("without patch", 3.14),
        ("with patch", 2.93),
    ]


def test_two_settings_in_a_column_of_any_name(tmp_path: Path) -> None:
    rows = [f"{k},{c},5" for k in ("6.1", "6.2") for c in ("8CPU/16GiB", "16 CPU/32 GiB")]
    found = cases(contents(table(tmp_path / "a.csv", "kernel,shape,ns", *rows)))
    assert [dict(case.group) for case in found] == [
        {"cpu": "8", "memory": "16GiB"},
        {"cpu": "16", "memory": "32GiB"},
    ]


def test_functions_of_the_kernel_are_not_taken_for_statistics(tmp_path: Path) -> None:
    head = "kernel,round,change_pte_range_us,first_touch_ns,change_pct"
    rows = ("6.1,1,5,7,9", "6.2,1,6,8,9")
    found = cases(contents(table(tmp_path / "a.csv", head, *rows)))
    assert {case.metric.name for case in found} == {"change_pte_range_us", "first_touch_ns"}


@pytest.mark.parametrize("column", ["seen_cpu", "guest_cpus", "coverage", "kernel_page_kb"])
def test_what_was_read_back_or_audited_may_be_a_setting(tmp_path: Path, column: str) -> None:
    rows = [f"{k},{x},{5 * x}" for k in ("6.1", "6.2") for x in (1, 4) for _ in "ab"]
    found = cases(contents(table(tmp_path / "a.csv", f"kernel,{column},ns", *rows)))
    assert [len(case.series[0].values) for case in found] == [2, 2]


def test_cpus_do_not_confirm_themselves(tmp_path: Path) -> None:
    rows = [f"{k},{c},5" for k in ("6.1", "6.2") for c in (1, 4)]
    (first, _) = cases(contents(table(tmp_path / "a.csv", "kernel,guest_cpus,ns", *rows)))
    assert first.series[0].facts == (("requested_cpus", "1"),)


def test_the_legs_of_a_sandwich_are_its_arms(tmp_path: Path) -> None:
    rows = ("A1,parent,1,5", "A1,parent,2,5", "B,child,1,6", "B,child,2,6", "A2,parent,1,5")
    case = only(table(tmp_path / "a.csv", "leg,who,turn,ns", *rows))
    assert [series.arm for series in case.series] == ["A1", "B", "A2"]
    assert dict(case.roles) == {"A1": "parent", "B": "child", "A2": "parent"}


def test_numbers_without_a_name_that_says_what_they_are_are_asked(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "kernel,mmap,munmap", "6.1,5,9", "6.1,6,9.5", "6.2,7,8")
    error = refused(path)
    assert "what are mmap, munmap: which unit, and is lower better?" in error.sentence()


def test_a_column_for_each_arm_and_run(tmp_path: Path) -> None:
    head = "op,6.16_run1_ns,6.16_run2_ns,6.17_run1_ns,6.17_run2_ns"
    case = only(table(tmp_path / "a.csv", head, "mmap,10,11,12,13"))
    assert values(case) == {"6.16": (10.0, 11.0), "6.17": (12.0, 13.0)}


def test_scatter_beside_a_mean_is_no_time(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "kernel,Mean (ns),\u00b1 (ns),Runs", "6.1,5,1,9", "6.2,6,1,9")
    case = only(path)
    assert [(one.mean, one.ok) for one in case.published] == [(5.0, 9), (6.0, 9)]


def test_a_clock_on_the_wall_is_no_time(tmp_path: Path) -> None:
    rows = [f"{1000.5 + at},6.{1 + at % 2},{5 + at % 2}" for at in range(6)]
    case = only(table(tmp_path / "a.csv", "time,kernel,ns", *rows))
    assert case.metric.name == "ns"
    assert [boot.position for boot in case.series[0].boots] == [0, 2, 4]


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        ("ok", "1", "0"),
        ("success", "true", "false"),
        ("passed", "yes", "crashed"),
        ("valid", "True", "False"),
        ("status", "0", "timeout"),
        ("returncode", "0", "139"),
        ("failed", "no", "yes"),
        ("errors", "0", "2"),
    ],
)
def test_a_run_that_failed_is_no_value(tmp_path: Path, column: str, good: str, bad: str) -> None:
    rows = [f"6.{1 + at % 2},{at},5,{bad if at == 3 else good}" for at in range(6)]
    case = only(table(tmp_path / "a.csv", f"kernel,round,ns,{column}", *rows))
    assert [len(series.values) for series in case.series] == [3, 2]


def test_a_status_of_zeros_and_ones_is_asked(tmp_path: Path) -> None:
    rows = ("6.1,5,0", "6.2,6,1", "6.1,5,1", "6.2,6,0")
    error = refused(table(tmp_path / "a.csv", "kernel,ns,status", *rows))
    assert "does status 1 mean a good run?" in error.sentence()


def test_two_counted_rows_an_arm_are_asked_too(tmp_path: Path) -> None:
    rows = [f"{k};{x};5,{x}" for k in ("6.1", "6.2") for x in (1, 2)]
    error = refused(table(tmp_path / "a.csv", "Kernel;Reihe;Zeit [ns]", *rows))
    assert "is Reihe the number of a round" in error.sentence()


def test_moments_under_any_name_are_the_order(tmp_path: Path) -> None:
    rows = ("6.1,2026-05-01 10:20,5", "6.2,2026-05-01 10:10,6")
    case = only(table(tmp_path / "a.csv", "kernel,begun,ns", *rows))
    assert [series.boots[0].position for series in case.series] == [1, 0]


def test_a_column_called_set_is_not_the_set_of_a_file(tmp_path: Path) -> None:
    rows = [f"{k},{s},5" for k in ("6.1", "6.2") for s in "xy"]
    for name in ("one", "two"):
        table(tmp_path / "d" / name / "r.csv", "kernel,set,ns", *rows)
    groups = [case.group for case in cases(contents(tmp_path / "d"))]
    assert groups[0] == (("set", "d/one"), ("set of rows", "x"))
    assert len(set(groups)) == 4
