# SPDX-License-Identifier: GPL-2.0-or-later
"""Declared formats: what is taken of each, and the place that is named when one is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from imports_evidence import imported, judged
from kdelta.errors import SpecError
from kdelta.imports import mapping, reader
from kdelta.imports.reader import ImportFormat
from kdelta.imports.record import Import, Roles
from kdelta.imports.series import Case, cases
from kdelta.metric import Assume, Better
from kdelta.verdict.series import ReplicateUnit


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def with_mapping(path: Path, toml: str) -> Import:
    return imported(path, mappings=(mapping.parse(toml, "m.toml"),))


def by_metric(found: Import) -> dict[str, Case]:
    return {case.metric.name: case for case in cases(found.contents)}


def values(case: Case) -> dict[str, tuple[float, ...]]:
    return {series.arm: series.values for series in case.series}


# The Go benchmark format.

BENCHMARKS = """\
goos: linux
Unit req/s better=higher assume=nothing
Unit insns/op assume=exact better=lower
arm: old
BenchmarkScan/pages=16384-8   	 100	 512.5 ns/op	 80 req/s	 19 insns/op
BenchmarkScan/pages=16384-8   	 100	 514.0 ns/op	 81 req/s	 19 insns/op
arm: new
BenchmarkScan/pages=16384-8   	 120	 498.0 ns/op	 82 req/s	 18 insns/op	 7 odd/op
PASS
ok  	example.com/x	1.2s
"""


def test_benchmark_format_with_several_units_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "bench.txt", BENCHMARKS)
    found = imported(path)
    assert found.kind == ImportFormat.BENCHFMT
    metrics = by_metric(found)
    assert set(metrics) == {"ns/op", "req/s", "insns/op"}
    assert metrics["ns/op"].group == (("benchmark", "Scan/pages=16384-8"),)
    assert values(metrics["ns/op"]) == {"old": (512.5, 514.0), "new": (498.0,)}
    assert metrics["req/s"].metric.better is Better.HIGHER
    assert metrics["insns/op"].metric.assume is Assume.EXACT
    (note,) = found.contents.notes  # no direction: not judged, and the line that gives one
    assert '[metrics."odd/op"] better = "less"' in note
    assert "odd/op" in by_metric(with_mapping(path, '[metrics."odd/op"]\nbetter = "less"\n'))


@pytest.mark.parametrize(
    ("given", "order"), [(("z", "a"), ["z", "a"]), (("6.10", "6.9"), ["6.9", "6.10"])]
)
def test_files_name_the_arms_in_the_order_given_or_of_versions(
    given: tuple[str, ...], order: list[str], tmp_path: Path
) -> None:
    paths = [write(tmp_path / f"{k}.txt", "BenchmarkX 1 5 ns/op\n") for k in given]
    (case,) = cases(imported(*paths).contents)
    assert [series.arm for series in case.series] == order
    assert case.ordered


def test_arms_of_one_file_are_asked_for_their_order(tmp_path: Path) -> None:
    path = write(tmp_path / "bench.txt", BENCHMARKS)
    with pytest.raises(SpecError, match="nothing says which arm is the old one: old, new"):
        judged(imported(path))
    assert judged(with_mapping(path, 'order = ["old", "new"]\n')).findings[0].pairs


# mmtests.


def kernbench(user: str, system: str, elapsed: str) -> str:
    """What GNU time leaves behind a build."""
    return (
        f"{user}user {system}system {elapsed}elapsed 186%CPU"
        " (0avgtext+0avgdata 221844maxresident)k\n"
        "0inputs+1538240outputs (12major+16500123minor)pagefaults 0swaps\n"
    )


def test_kernbench_logs(tmp_path: Path) -> None:
    for arm, base in (("6.12", 241.17), ("6.13", 250.5)):
        for iteration in (1, 2, 3):
            minutes, seconds = divmod(base + iteration, 60)
            text = kernbench("412.33", "38.21", f"{minutes:.0f}:{seconds:05.2f}")
            name = f"log/{arm}/iter-0/kernbench/logs/kernbench-2-{iteration}.time"
            write(tmp_path / name, text)
    found = imported(tmp_path / "log")
    assert found.kind == ImportFormat.KERNBENCH
    metrics = by_metric(found)
    assert set(metrics) == {"user", "syst", "elsp"}
    assert metrics["elsp"].group == (("jobs", "2"),)
    assert values(metrics["elsp"])["6.12"] == pytest.approx((242.17, 243.17, 244.17))
    assert metrics["elsp"].series[0].replicate is ReplicateUnit.PROCESS_ROUND
    assert values(metrics["syst"])["6.13"] == (38.21,) * 3


def test_kernbench_hours_and_several_lines_a_file(tmp_path: Path) -> None:
    text = kernbench("9000.01", "1.5", "1:02:03") + kernbench("1", "2", "0:04.5")
    found = by_metric(imported(write(tmp_path / "time", text)))
    assert values(found["elsp"])["time"] == (3723.0, 4.5)


COMPARED = """\
kernbench
                        6.16.12               6.17.3
                        vanilla              patched
Min       elsp-2   240.10 (   0.00%)   251.20 (  -4.62%)
Amean     elsp-2   244.00 (   0.00%)   250.00 *  -2.46%*
Stddev    elsp-2     3.54 (   0.00%)     1.58 (  55.28%)
Hmean     send-64  230.00 (   0.00%)   231.00 (   0.43%)
"""


def test_comparison_of_mmtests(tmp_path: Path) -> None:
    found = imported(write(tmp_path / "compare.txt", COMPARED))
    assert found.kind == ImportFormat.COMPARISON
    assert found.contents.order == ("6.16.12-vanilla", "6.17.3-patched")
    said = {(one.metric, one.arm): (one.mean, one.sd) for one in found.contents.published}
    assert said["elsp-2", "6.16.12-vanilla"] == (244.0, 3.54)
    assert said["send-64", "6.17.3-patched"] == (231.0, None)
    metrics = {metric.name: metric.better for metric in found.contents.metrics}
    assert metrics == {"elsp-2": Better.LOWER, "send-64": Better.HIGHER}
    assert len(judged(found).findings) == 2


# lkp.

OPS = "will-it-scale.per_process_ops"
DIRECTION = f'[metrics."{OPS}"]\nbetter = "more"\n'


def matrix(folder: Path, arm: str, **stats: object) -> Path:
    runs = {"stats_source": [f"/result/x/{arm}/{n}/stats.json" for n in range(4)]}
    write(folder / "lkp" / arm / "matrix.json", json.dumps(runs | stats))
    return folder / "lkp"


def test_lkp_matrices(tmp_path: Path) -> None:
    matrix(tmp_path, "aaaa", **{OPS: [100, 101, 99, 100.5], "proc-vmstat.x": [1, 1, 1, 1]})
    incomplete = {"last_state.is_incomplete_run": [0, 0, 1, 0]}
    found = with_mapping(matrix(tmp_path, "bbbb", **{OPS: [120, 121, 0]}, **incomplete), DIRECTION)
    assert found.kind == ImportFormat.MATRIX
    (case,) = cases(found.contents)
    assert (case.metric.name, case.metric.better) == (OPS, Better.HIGHER)
    first, second = case.series
    assert first.values == (100.0, 101.0, 99.0, 100.5)
    failures = [boot.failure for boot in second.boots]
    assert failures == ["", "", "lkp marked the run incomplete", "no value"]
    assert (second.planned, second.replicate) == (4, ReplicateUnit.BOOT)


ROBOT = """\
kernel test robot noticed a -7.4% regression of will-it-scale.per_process_ops on:

================================================================================
compiler/mode/test/testcase:
  gcc-12/process/page_fault1/will-it-scale

commit:
  4a1b6c7d8e ("mm: a")
  9f3b1c4ea0 ("mm: b")

4a1b6c7d8e9f0a1b 9f3b1c4ea0ab3bd6b4a1d4c2f5e
---------------- ---------------------------
         %stddev     %change         %stddev
             \\          |                \\
   2165186 \u00b1  4%      -7.4%    2004962        will-it-scale.per_process_ops
      3302 \u00b1  5%     +12.1%       3702 \u00b1  4%  vmstat.system.cs
     55.21            -1.3       53.91        perf-profile.self.clear_page
"""


def test_table_of_the_robot(tmp_path: Path) -> None:
    found = with_mapping(write(tmp_path / "mail.txt", ROBOT), DIRECTION)
    assert found.kind == ImportFormat.ROBOT
    assert found.contents.roles == Roles(old="4a1b6c7d8e9f", new=("9f3b1c4ea0ab",))
    old, new = found.contents.published
    assert old.mean == 2165186.0
    assert old.sd == pytest.approx(0.04 * 2165186)
    assert (new.mean, new.sd) == (2004962.0, None)
    assert old.group == (("setting", "gcc-12/process/page_fault1/will-it-scale"),)
    assert "vmstat.system.cs" in found.contents.notes[0]
    (pair,) = judged(found).findings[0].pairs
    assert "published means differ by -7.40 %" in pair.comparison.reasons[0]


# perf stat.

SEPARATED = """\
# started on Mon Jan  5 10:00:00 2026

812.45,msec,task-clock,812450000,100.00,0.998,CPUs utilized
<not counted>,,cache-misses,0,0.00,,
1203456,,instructions,812450000,100.00,1.20,insn per cycle
"""


def test_perf_stat_with_a_separator(tmp_path: Path) -> None:
    for arm, text in (("6.16", SEPARATED), ("6.17", SEPARATED.replace("812.45,", "901.5,"))):
        for run in (1, 2):
            write(tmp_path / "p" / arm / f"run{run}.csv", text)
    found = imported(tmp_path / "p")
    assert found.kind == ImportFormat.PERF_STAT
    (case,) = cases(found.contents)
    assert values(case) == {"6.16": (812.45,) * 2, "6.17": (901.5,) * 2}
    (note,) = found.contents.notes
    assert "cache-misses, instructions" in note
    toml = '[metrics.instructions]\nbetter = "less"\n'
    assert "instructions" in by_metric(with_mapping(tmp_path / "p", toml))


def test_perf_stat_in_json_and_means_of_several_runs(tmp_path: Path) -> None:
    lines = [
        {"counter-value": "812.450000", "unit": "msec", "event": "task-clock"},
        {"counter-value": "901.5", "unit": "msec", "event": "task-clock", "variance": 1.2},
        {"counter-value": "<not counted>", "unit": "", "event": "duration_time"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    found = imported(write(tmp_path / "6.16.json", text))
    assert found.kind == ImportFormat.PERF_STAT
    assert values(by_metric(found)["task-clock"]) == {"6.16": (812.45,)}
    assert [one.mean for one in found.contents.published] == [901.5]
    assert by_metric(found)["duration_time"].series[0].boots[0].failure == "not counted"


# hyperfine, Google Benchmark, fio.


def hyperfine(*results: dict[str, Any]) -> str:
    return json.dumps({"results": [{"mean": 1.0} | one for one in results]}, indent=2)


def test_hyperfine(tmp_path: Path) -> None:
    one = {"command": "make", "times": [1.0, 1.1, 1.2], "exit_codes": [0, 0, 2]}
    paths = [write(tmp_path / f"{arm}.json", hyperfine(one)) for arm in ("6.16", "6.17")]
    found = imported(*paths)
    assert found.kind == ImportFormat.HYPERFINE
    (case,) = cases(found.contents)
    assert values(case) == {"6.16": (1.0, 1.1), "6.17": (1.0, 1.1)}
    assert case.group == (("command", "make"),)
    assert case.series[0].boots[2].failure == "exit code 2"


def test_hyperfine_of_one_file_has_commands_as_arms(tmp_path: Path) -> None:
    text = hyperfine({"command": "a", "stddev": 0.1}, {"command": "b", "times": [2.0]})
    (case,) = cases(imported(write(tmp_path / "h.json", text)).contents)
    assert values(case) == {"a": (), "b": (2.0,)}
    assert [(one.arm, one.mean, one.sd) for one in case.published] == [("a", 1.0, 0.1)]


def google(*runs: dict[str, Any]) -> str:
    return json.dumps({"context": {"host_name": "h"}, "benchmarks": list(runs)}, indent=1)


def test_google_benchmark(tmp_path: Path) -> None:
    runs = [
        {"name": "BM_x", "run_name": "BM_x", "run_type": "iteration", "threads": 1}
        | {"real_time": time, "cpu_time": time / 2, "time_unit": "us", "items_per_second": 5.0}
        for time in (10.0, 11.0)
    ]
    runs[1] |= {"error_occurred": True, "error_message": "skipped"}
    found = imported(write(tmp_path / "6.16.json", google(*runs)))
    assert found.kind == ImportFormat.GOOGLE_BENCHMARK
    metrics = by_metric(found)
    assert {name: one.metric.better for name, one in metrics.items()} == {
        "real_time": Better.LOWER,
        "cpu_time": Better.LOWER,
        "items_per_second": Better.HIGHER,
    }
    assert metrics["real_time"].metric.unit == "ns"
    assert values(metrics["real_time"]) == {"6.16": (10_000.0,)}
    assert metrics["real_time"].series[0].boots[1].failure == "skipped"


def test_google_benchmark_of_sums_alone(tmp_path: Path) -> None:
    runs = [
        {"name": f"BM_x_{kind}", "run_name": "BM_x", "run_type": "aggregate", "repetitions": 9}
        | {"aggregate_name": kind, "real_time": time, "time_unit": "ns"}
        for kind, time in (("mean", 10.0), ("stddev", 0.5))
    ]
    (said,) = imported(write(tmp_path / "a.json", google(*runs))).contents.published
    assert (said.mean, said.sd, said.ok) == (10.0, 0.5, 9)


def fio(level: float, *, error: int = 0) -> str:
    read = {"total_ios": 9, "iops": 5e4, "bw": 2e5, "clat_ns": {"mean": level, "percentile": {}}}
    read["clat_ns"] = {"mean": level, "percentile": {"99.000000": 2 * level, "10.000000": 1}}
    job = {"jobname": "j", "error": error, "read": read, "write": {"total_ios": 0, "iops": 0}}
    job["job options"] = {"rw": "randread", "bs": "4k"}
    return json.dumps({"fio version": "fio-3.36", "jobs": [job]}, indent=1)


def test_fio(tmp_path: Path) -> None:
    for arm, level in (("6.16", 100.0), ("6.17", 150.0)):
        for run in range(3):
            write(tmp_path / "f" / arm / f"{run}.json", fio(level + run, error=int(run == 2)))
    found = imported(tmp_path / "f")
    assert found.kind == ImportFormat.FIO
    metrics = by_metric(found)
    assert set(metrics) == {"iops", "bw", "clat", "clat p99"}
    assert metrics["bw"].metric.better is Better.HIGHER
    assert values(metrics["clat p99"]) == {"6.16": (200.0, 202.0), "6.17": (300.0, 302.0)}
    assert dict(metrics["clat"].group)["direction"] == "read"
    assert metrics["clat"].series[0].boots[2].failure == "error 1"


# What is what.


def test_formats_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "mix" / "a.txt", "BenchmarkX 1 5 ns/op\n")
    write(tmp_path / "mix" / "b.time", kernbench("1", "2", "0:03"))
    with pytest.raises(SpecError, match="several formats: Go benchmark format, mmtests' kernb"):
        imported(tmp_path / "mix")


def test_a_declared_format_needs_no_proposal(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="it is of a declared format, hyperfine"):
        reader.propose(write(tmp_path / "h.json", hyperfine({"command": "a"})))


@pytest.mark.parametrize(
    "text",
    [
        "dbench 4.0\nThroughput 812.3 MB/sec  8 clients  8 procs  max_latency=12.3 ms\n",
        "[OVERALL], Throughput(ops/sec), 1200.5\n[READ], Operations, 12\n",
        "SET: 120000.00 requests per second, p50=0.2 msec\n",
        '{"system_info": "Linux h 6.16.0", "latency": {"p50": 3}}\n',
    ],
)
def test_outputs_of_other_programs_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        imported(write(tmp_path / "out.txt", text))


# What is odd and legal.

PERF = "812.45,msec,task-clock,812450000,100.00,,\n"
GNU_TIME = kernbench("1", "2", "0:03")


def old_fio(level: float) -> str:
    """The report of fio 2, with latencies in us."""
    return fio(level / 1000).replace("clat_ns", "clat")


@pytest.mark.parametrize(
    ("name", "text", "metric", "kept", "failure"),
    [
        ("h.json", hyperfine({"command": "x", "times": [1, 9], "exit_codes": [0, None]}),
         "wall time", (1.0,), "a signal ended it"),
        ("a.time", GNU_TIME + "Command exited with non-zero status 2\n" + GNU_TIME, "elsp", (3.0,),
         "Command exited with non-zero status 2"),
        ("a.txt", "Benchmarking is on\nBenchmarkX\nBenchmarkX-8 1 5 ns/op\n", "ns/op", (5.0,), ""),
        ("a.csv", PERF.replace("812.45,", "S0-D0-C0,2,812.45,"), "task-clock", (812.45,), ""),
        ("a.json", old_fio(100.0), "clat p99", (200.0,), ""),
        ("a.json", google({"name": "x", "real_time": 0.5, "time_unit": "ms"}), "real_time",
         (500_000.0,), ""),
    ],
)  # fmt: skip
def test_odd_and_legal_content_is_read(
    name: str, text: str, metric: str, kept: tuple[float, ...], failure: str, tmp_path: Path
) -> None:
    (series,) = by_metric(imported(write(tmp_path / name, text)))[metric].series
    assert series.values == pytest.approx(kept)
    assert [boot.failure for boot in series.boots if boot.failure] == [failure] * bool(failure)


def test_events_with_terms_are_told_apart(tmp_path: Path) -> None:
    names = [f"cpu/event=0x3c,umask=0x{mask}/" for mask in (1, 2)]
    path = write(tmp_path / "a.csv", "".join(f"5,,{name},1,100.00,,\n" for name in names))
    toml = "".join(f'[metrics."{name}"]\nbetter = "less"\n' for name in names)
    assert set(by_metric(with_mapping(path, toml))) == set(names)


def test_rows_of_extreme_changes_are_read(tmp_path: Path) -> None:
    robot = ROBOT.replace("-7.4% ", "+6.9e+03% ").replace("   2165186", "  -2165186")
    (said, _) = with_mapping(write(tmp_path / "m.txt", robot), DIRECTION).contents.published
    assert said.mean == -2165186.0
    assert said.sd == pytest.approx(0.04 * 2165186)
    compared = COMPARED.replace("244.00 (   0.00%)   250.00 *  -2.46%*", "0.00 ( NaN%) 5 ( -Inf%)")
    found = imported(write(tmp_path / "c.txt", compared)).contents.published
    assert [one.mean for one in found if one.metric == "elsp-2"] == [0.0, 5.0]


def test_jobs_of_one_run_are_settings_of_their_own(tmp_path: Path) -> None:
    report = json.loads(fio(100.0))
    report["jobs"] *= 3
    found = imported(write(tmp_path / "a.json", json.dumps(report, indent=1)))
    settings = [case for case in cases(found.contents) if case.metric.name == "iops"]
    assert [len(values(case)["a"]) for case in settings] == [1, 1, 1]


def test_results_of_one_command_are_runs_of_one_arm(tmp_path: Path) -> None:
    text = hyperfine(*({"command": "x", "times": [1.0, 1.1]} for _ in range(2)))
    (case,) = cases(imported(write(tmp_path / "h.json", text)).contents)
    assert [boot.values for boot in case.series[0].boots] == [(1.0,), (1.1,)] * 2


def test_lines_and_not_paths_name_the_arms(tmp_path: Path) -> None:
    text = "arm: new\nBenchmarkX 1 5 ns/op\narm: old\nBenchmarkX 1 6 ns/op\n"
    paths = [write(tmp_path / name, text) for name in ("a.txt", "b.txt")]
    with pytest.raises(SpecError, match="nothing says which arm is the old one: new, old"):
        judged(imported(*paths))


def test_files_that_differ_in_their_ending_are_two_arms(tmp_path: Path) -> None:
    for ending in ("csv", "txt"):
        write(tmp_path / "d" / f"run.{ending}", PERF)
    assert set(values(*cases(imported(tmp_path / "d").contents))) == {"run.csv", "run.txt"}


def of_runs(**stats: object) -> str:
    return json.dumps({"stats_source": [f"/x/{n}/stats.json" for n in range(4)]} | stats)


INTERVAL = {"interval": 1.0, "counter-value": "5", "unit": "msec", "event": "task-clock"}
HEAD = "6.16.12               6.17.3\n                        vanilla              patched"
GO = "b.txt: line 11: "


@pytest.mark.parametrize(
    ("name", "text", "toml", "said"),
    [
        ("b.txt", BENCHMARKS + "BenchmarkX 1 5\n", "", f"{GO}a result needs"),
        ("b.txt", BENCHMARKS + "BenchmarkX one 5 ns/op\n", "", "line 11, column iterations: "),
        ("b.txt", BENCHMARKS + "BenchmarkX 1 five ns/op\n", "", '"five" is not a number'),
        ("b.txt", BENCHMARKS + "Unit\n", "", f"{GO}a Unit line without a unit"),
        ("b.txt", BENCHMARKS + "Unit ns/op better\n", "", f'{GO}"better" is not key=value'),
        ("b.txt", BENCHMARKS + "Unit ns/op better=less\n", "", f'{GO}better is "less"'),
        ("b.txt", BENCHMARKS + "Unit req/s better=lower\n", "", "was higher before"),
        ("a.time", GNU_TIME * 2 + GNU_TIME.replace("0:03", "soon"), "",
         "a.time: line 5: an elapsed time that cannot be read"),
        ("c.txt", COMPARED.replace("6.17.3", "6.17.3 6.18.1"), "", "does not name the arms"),
        ("c.txt", COMPARED.replace("   251.20 (  -4.62%)", ""), "", "1 figures for 2 arms"),
        ("c.txt", COMPARED.replace(HEAD, ""), "", "does not name the arms"),
        ("c.txt", COMPARED + COMPARED.splitlines()[4] + "\n", "", "a second mean of elsp-2"),
        ("matrix.json", of_runs(**{OPS: [1, 2, "x", 4]}), DIRECTION, '"x" is not a number'),
        ("matrix.json", of_runs(**{OPS: [1, 2, True, 4]}), DIRECTION, "is not a number"),
        ("matrix.json", of_runs(**{OPS: [1e308, 1]}), DIRECTION, "not a number up to 1e+30"),
        ("matrix.json", of_runs(**{OPS: [10**400, 1]}), DIRECTION, "is not a number"),
        ("matrix.json", of_runs(**{OPS: 5}), DIRECTION, "no list"),
        ("matrix.json", of_runs(**{OPS: [1] * 5}), DIRECTION, "at most 4"),
        ("matrix.json", of_runs(stats_source="x", **{OPS: [1]}), DIRECTION, "no list of runs"),
        ("matrix.json", of_runs(**{OPS: [1, 2]}), "", 'as in [metrics."will-it-scale.'),
        ("a.csv", SEPARATED + "     1.000123,5,msec,task-clock,1,100.00,,\n", "",
         "a.csv: line 6: an interval of perf stat -I"),
        ("a.csv", SEPARATED + "hello\n", "", "a.csv: line 6: not what perf stat -x writes"),
        ("a.json", json.dumps(INTERVAL) + "\n", "", "an interval"),
        ("a.csv", PERF + PERF.replace("msec", "sec"), "", '"sec" here and in "msec" above'),
        ("a.csv", PERF, "[metrics.task-clok]\n", "did you mean task-clock?"),
        ("a.csv", PERF, 'replicate = "boot"\n', "the mapping gives replicate, and a.csv is of"),
        ("h.json", hyperfine({"command": "a", "times": [1.0, "x"]}), "", '"x" is not a number'),
        ("h.json", hyperfine({"command": "a", "times": [1.0], "exit_codes": [0, 0]}), "",
         "no lists of one length"),
        ("h.json", hyperfine({"command": "a", "times": [1e300]}), "", "is not a number up to"),
        ("h.json", hyperfine({"command": "x", "times": 5}), "", "no lists of one length"),
        ("a.json", google({"name": "x", "real_time": 1, "time_unit": "min"}), "", 'is "min"'),
        ("f.json", '{"fio version": "x", "jobs": [5]}', "", "JSON of no declared format"),
        ("f.json", fio(100.0).replace("200000.0", '"fast"'), "", '"fast" is not a number'),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_a_sentence(
    name: str, text: str, toml: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        with_mapping(write(tmp_path / name, text), toml)
    assert said in caught.value.sentence()
