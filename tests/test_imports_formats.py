# SPDX-License-Identifier: GPL-2.0-or-later
"""Declared formats: what is taken of each, and the place that is named when one is refused."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from imports_evidence import imported, judged
from kdelta.errors import SpecError
from kdelta.imports import mapping, reader
from kdelta.imports.record import Case, Import, Roles, cases, in_order, version_key
from kdelta.metric import Assume, Better, ReplicateUnit


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
    assert found.kind == reader.ImportFormat.BENCHFMT
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
    table = write(tmp_path / "t.csv", TABLE.replace("6.16", "old").replace("6.17", "new"))
    for stored in (imported(path), with_mapping(table, PLAIN)):
        with pytest.raises(SpecError, match="nothing says which arm is the old one: old, new"):
            judged(stored)
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
            name = f"log/{arm}/iter-{iteration}/kernbench/logs/kernbench-2-{iteration}.time"
            write(tmp_path / name, text)
    found = imported(tmp_path / "log")
    assert found.kind == reader.ImportFormat.KERNBENCH
    metrics = by_metric(found)
    assert set(metrics) == {"user", "syst", "elsp"}
    assert metrics["elsp"].group == (("jobs", "2"),)
    assert values(metrics["elsp"])["6.12"] == pytest.approx((242.17, 243.17, 244.17))
    assert metrics["elsp"].series[0].replicate is ReplicateUnit.PROCESS_ROUND
    assert not any(boot.boot_id for boot in metrics["elsp"].series[0].boots), "passes of one boot"
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
    assert found.kind == reader.ImportFormat.COMPARISON
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
    assert found.kind == reader.ImportFormat.MATRIX
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
    assert found.kind == reader.ImportFormat.ROBOT
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
    assert found.kind == reader.ImportFormat.PERF_STAT
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
    assert found.kind == reader.ImportFormat.PERF_STAT
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
    assert found.kind == reader.ImportFormat.HYPERFINE
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
    assert found.kind == reader.ImportFormat.GOOGLE_BENCHMARK
    metrics = by_metric(found)
    assert {name: one.metric.better for name, one in metrics.items()} == {
        "real_time": Better.LOWER, "cpu_time": Better.LOWER, "items_per_second": Better.HIGHER,
    }  # fmt: skip
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
    assert found.kind == reader.ImportFormat.FIO
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


@pytest.mark.parametrize(
    ("name", "text", "metric", "kept", "failure"),
    [
        ("h.json", hyperfine({"command": "x", "times": [1, 9], "exit_codes": [0, None]}),
         "wall time", (1.0,), "a signal ended it"),
        ("a.time", GNU_TIME + "Command exited with non-zero status 2\n" + GNU_TIME, "elsp", (3.0,),
         "Command exited with non-zero status 2"),
        ("a.txt", "Benchmarking is on\nBenchmarkX\nBenchmarkX-8 1 5 ns/op\n", "ns/op", (5.0,), ""),
        ("a.csv", PERF.replace("812.45,", "S0-D0-C0,2,812.45,"), "task-clock", (812.45,), ""),
        # fio 2, whose latencies are in us
        ("a.json", fio(0.1).replace("clat_ns", "clat"), "clat p99", (200.0,), ""),
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
        ("h.json", hyperfine({"command": "x", "times": 5}), "", "no lists of one length"),
        ("a.json", google({"name": "x", "real_time": 1, "time_unit": "min"}), "", 'is "min"'),
        ("f.json", '{"fio version": "x", "jobs": [5]}', "", "JSON of no declared format"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_a_sentence(
    name: str, text: str, toml: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        with_mapping(write(tmp_path / name, text), toml)
    assert said in caught.value.sentence()


# Tables: each is read by a mapping that says what every column is, and by nothing else


def only(found: Import) -> Case:
    (case,) = cases(found.contents)
    return case


def refused(folder: Path, table: str, toml: str) -> str:
    """The sentence of an import of that table by that mapping."""
    with pytest.raises(SpecError) as caught:
        with_mapping(write(folder / "a.csv", table), toml)
    return caught.value.sentence()


# Twenty tables that are drawn: names, order, units and directions.

ARM_NAMES = ("Kernel", "version string", "build", "tree", "sut", "config name", "rev", "who")
BOOT_NAMES = ("boot no", "session", "reboot", "machine start", "pass", "rep")
SETTING_NAMES = ("threads used", "thp", "filesystem", "payload", "mode", "cgroup v")
# Names that mislead: what grows may be good or bad, and only the mapping says so.
METRIC_NAMES = (
    *("leaked_bytes_per_s", "time_to_oom_s", "score", "idle %", "latency", "p99 gain", "wait"),
    *("throughput_ns", "time_saved_ms", "errors/s", "Faktor", "reclaimed", "x", "cost (lower)"),
)
UNITS = ("ns", "us", "MiB/s", "ops/s", "pages", "J", "cycles/op", "GHz", "faults")
ARMS = (("6.16", "6.17"), ("clean cache", "after sync"), ("before", "after"), ("b", "a"))


@dataclass(frozen=True)
class Drawn:
    """A table, its mapping, and the truth; values: by metric, setting and arm."""

    text: str
    toml: str
    name: str
    values: dict[tuple[str, str, str], list[float]]
    metrics: dict[str, tuple[str, Better]]
    arms: tuple[str, ...]


def drawn(seed: int) -> Drawn:
    rng = random.Random(seed)  # noqa: S311  tables, not secrets
    arm, boot, setting = map(rng.choice, (ARM_NAMES, BOOT_NAMES, SETTING_NAMES))
    arms = rng.choice(ARMS)
    metrics = {
        name: (rng.choice(UNITS), rng.choice((Better.LOWER, Better.HIGHER)))
        for name in rng.sample(METRIC_NAMES, rng.randint(1, 3))
    }
    columns = [arm, boot, setting, "comment", *metrics]
    rng.shuffle(columns)
    values: dict[tuple[str, str, str], list[float]] = {}
    rows = []
    for turn in range(6):
        for kernel in rng.sample(arms, 2):
            for mode in ("small", "large"):
                row = {arm: kernel, boot: f"#{turn}", setting: mode, "comment": "ok"}
                for name in metrics:
                    value = round(rng.lognormvariate(3, 0.3), 3)
                    values.setdefault((name, mode, kernel), []).append(value)
                    row[name] = str(value)
                rows.append(row)
    directions = {Better.LOWER: "less", Better.HIGHER: "more"}
    lines = [
        'replicate = "boot"', 'ignore = ["comment"]', f"order = {json.dumps(arms)}", "[columns]",
        f'arm = "{arm}"', f'boot = "{boot}"', f'dimensions = ["{setting}"]', "[metrics]",
    ]  # fmt: skip
    lines += [
        f'"{name}" = {{ value = "{name}", unit = "{unit}", better = "{directions[better]}" }}'
        for name, (unit, better) in metrics.items()
    ]
    form = rng.choice(("csv", "tsv", "jsonl"))
    if form == "jsonl":
        text = "".join(json.dumps({name: row[name] for name in columns}) + "\n" for row in rows)
    else:
        separator = "," if form == "csv" else "\t"
        cells = [columns, *([row[name] for name in columns] for row in rows)]
        text = "".join(separator.join(line) + "\n" for line in cells)
    return Drawn(text, "\n".join(lines), f"table.{form}", values, metrics, arms)


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_table_is_read_right_by_its_mapping(seed: int, tmp_path: Path) -> None:
    table = drawn(seed)
    found = with_mapping(write(tmp_path / table.name, table.text), table.toml)
    read = {}
    for case in cases(found.contents):
        assert (case.metric.unit, case.metric.better) == table.metrics[case.metric.name]
        assert [series.arm for series in case.series] == list(table.arms)
        ((_, setting),) = case.group
        for series in case.series:
            assert series.replicate is ReplicateUnit.BOOT
            read[case.metric.name, setting, series.arm] = list(series.values)
    assert read == table.values


@pytest.mark.parametrize("seed", range(20))
def test_no_drawn_table_is_read_without_a_mapping(seed: int, tmp_path: Path) -> None:
    table = drawn(seed)
    path = write(tmp_path / table.name, table.text)
    with pytest.raises(SpecError, match=r"no mapping says what .* give it so"):
        imported(path)


def test_the_direction_is_part_of_the_verdict(tmp_path: Path) -> None:
    rows = "".join(
        f"{arm},{boot},{level + boot / 10}\n"
        for boot in range(8)
        for arm, level in (("6.16", 100), ("6.17", 150))
    )
    path = write(tmp_path / "a.csv", f"Kernel,start,time_to_oom_s\n{rows}")
    verdicts = {}
    for better in ("less", "more"):
        toml = (
            f'replicate = "boot"\nunit = "s"\nbetter = "{better}"\n[columns]\narm = "Kernel"\n'
            'boot = "start"\n[metrics]\noom.value = "time_to_oom_s"\n'
        )
        (finding,) = judged(with_mapping(path, toml)).findings
        verdicts[better] = str(finding.pairs[0].comparison.verdict)
    assert verdicts == {"less": "REGRESSION", "more": "IMPROVEMENT"}


# The fixed table of names.

KNOWN = "kernel,boot,ns\n6.17,1,110\n6.16,1,100\n6.17,2,112\n6.16,2,101\n"


def test_a_table_of_known_names_is_read_at_once_and_says_how(tmp_path: Path) -> None:
    found = imported(write(tmp_path / "a.csv", KNOWN))
    case = only(found)
    assert (case.metric.name, case.metric.unit, case.metric.better) == ("ns", "ns", Better.LOWER)
    assert [series.arm for series in case.series] == ["6.16", "6.17"]
    assert case.series[0].values == (100.0, 101.0)
    assert case.series[0].replicate is ReplicateUnit.BOOT
    (how,) = found.contents.how
    assert 'arm = "kernel"' in how
    assert 'better = "less"' in how


def test_there_are_at_most_40_names() -> None:
    assert len(mapping.NAMES) <= 40


@pytest.mark.parametrize(
    ("head", "row", "asked"),
    [
        ("kernel,boot,status,ns", "{arm},1,ok,1", 'success of "status" is blank'),
        ("kernel,boot,metric,value,unit", "{arm},1,x,1,ns", "less or more is better"),
        (
            "kernel,boot,value",
            "{arm},1,1",
            "less or more of value is better; nothing says the unit",
        ),
        ("kernel,boot,metric,value", "{arm},1,x,1", "nothing says the unit"),
        ("boot,ns", "1,1", "no column is the arm"),
        ("kernel,arm,boot,ns", "{arm},x,1,1", "no column is the arm"),
        ("kernel,boot,n,runs,mean", "{arm},1,1,1,1", "columns.n is blank"),
    ],
)
def test_what_known_names_leave_open_is_asked_for(
    head: str, row: str, asked: str, tmp_path: Path
) -> None:
    rows = "".join(row.format(arm=arm) + "\n" for arm in ("6.16", "6.17"))
    path = write(tmp_path / "a.csv", f"{head}\n{rows}")
    with pytest.raises(SpecError) as caught:
        imported(path)
    assert asked in caught.value.sentence()
    assert 'correct this mapping (docs/imports.md), fill in each ""' in caught.value.sentence()


def test_what_was_repeated_may_be_said_beside_the_table(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", "kernel,ns\nbase,1\nbase,2\nfix,3\n"
    )  # judge asks for the order
    with pytest.raises(SpecError, match="nothing says what was repeated; add --replicate boot"):
        imported(path)
    _, contents, _ = reader.read([path], repeated="boot")
    assert {one.replicate for one in contents.arms} == {ReplicateUnit.BOOT}


# A mapping.


def documented() -> list[str]:
    """The mappings that docs/imports.md shows."""
    lines = (Path(__file__).parent.parent / "docs" / "imports.md").read_text().split("\n\n")
    blocks = [block for block in lines if block.startswith("    replicate")]
    return ["\n".join(line[4:] for line in block.splitlines()) for block in blocks]


def test_the_documented_mappings_are_five_and_whole() -> None:
    assert len(documented()) == 5
    for text in documented():
        assert mapping.parse(text, "docs/imports.md").of_table
        assert len(text.splitlines()) <= 15


LONG = """
replicate = "boot"
planned = 3
[columns]
arm = "who"
metric = "what"
value = "figure"
boot = "boot"
position = "seq"
reason = "why"
unit = "unit"
dimensions = ["cpus"]
state = ["thp"]
[metrics.bw]
better = "more"
[success]
end = "ok"
[facts]
clocksource = "tsc"
[roles]
old = "old"
new = "new"
"""
LONG_CSV = """\
who,what,figure,boot,seq,end,why,unit,cpus,thp
old,bw,10.5,b1,0,ok,,MB/s,4,0
old,bw,10.7,b1,0,ok,,MB/s,4,0
new,bw,12,b2,1,ok,,MB/s,4,2048
old,bw,,b3,2,crash,oops,MB/s,4,0
"""


def test_mapping_of_a_long_table(tmp_path: Path) -> None:
    case = only(with_mapping(write(tmp_path / "a.csv", LONG_CSV), LONG))
    assert case.group == (("cpus", "4"),)
    assert (case.metric.unit, case.metric.better) == ("MB/s", Better.HIGHER)
    old = case.arm("old")
    assert old is not None
    assert [boot.values for boot in old.boots] == [(10.5, 10.7), ()]  # two samples of one boot
    assert (old.planned, old.replicate, old.boots[1].failure) == (3, ReplicateUnit.BOOT, "oops")
    assert old.fact("clocksource") == "tsc"
    assert old.state == (("thp", "0"),)


@pytest.mark.parametrize(
    ("good", "kept"), [('"0"', 1), ("0", 1), ('"1"', 1), ('["0", 1]', 2), ('"0.0"', 1)]
)
def test_run_counts_by_cell_that_mapping_names_alone(good: str, kept: int, tmp_path: Path) -> None:
    toml = (
        'replicate = "boot"\n[columns]\narm = "kernel"\n[metrics]\n'
        'ns = {{ value = "ns", unit = "ns", better = "less" }}\n[success]\nrc = {}\n'
    )
    path = write(tmp_path / "a.csv", "kernel,rc,ns\n6.16,0,100\n6.16,1,3\n6.16,139,7\n")
    (series,) = only(with_mapping(path, toml.format(good))).series
    assert (len(series.values), series.planned) == (kept, 3)
    assert series.boots[2].failure == "rc is 139"


def test_process_rounds_know_their_boot(tmp_path: Path) -> None:
    toml = f'replicate = "round"\n[columns]\narm = "kernel"\nboot = "b"\nround = "r"\n{NS}'
    path = write(tmp_path / "a.csv", "kernel,b,r,ns\n6.16,x,1,5\n6.16,x,2,6\n6.16,y,1,7\n")
    (series,) = only(with_mapping(path, toml)).series
    assert series.replicate is ReplicateUnit.PROCESS_ROUND
    assert [boot.boot_id for boot in series.boots] == ["x", "x", "y"]
    assert series.values == (5.0, 6.0, 7.0)


def test_roles_by_a_column_make_a_sandwich_of_one_name(tmp_path: Path) -> None:
    rows = "".join(
        f"{at},6.16,{role},{at},{100 + at}\n"
        if role != "new"
        else f"{at},6.17,new,{at},{150 + at}\n"
        for at, role in enumerate(["old"] * 5 + ["new"] * 5 + ["control"] * 5)
    )
    toml = (
        'replicate = "boot"\n[columns]\narm = "kernel"\nrole = "part"\nboot = "boot"\n'
        'position = "seq"\n[metrics]\nns = { value = "ns", unit = "ns", better = "less" }\n'
    )
    path = write(tmp_path / "a.csv", f"seq,kernel,part,boot,ns\n{rows}")
    (pair,) = judged(with_mapping(path, toml)).findings[0].pairs
    assert (pair.old, pair.new, pair.control) == ("6.16", "6.17", "6.16 again")
    said = refused(tmp_path, f"seq,kernel,part,boot,ns\n{rows}".replace("control", "again"), toml)
    assert '"again" is not a role: "old", "new" or "control"' in said


def test_a_column_for_each_arm_and_a_list_in_a_cell(tmp_path: Path) -> None:
    toml = """
replicate = "none"
unit = "us"
better = "less"
roles = { old = "base", new = ["a", "b"] }
[columns]
metric = "test"
[arms]
base = "vanilla"
a = { values = "runs a" }
b = { mean = "b", sd = "sd", n = "n" }
"""
    path = write(tmp_path / "a.csv", 'test,vanilla,runs a,b,sd,n\nfork,5,"5 6;7",9,0.5,4\n')
    case = only(with_mapping(path, toml))
    assert [(s.arm, s.values) for s in case.series] == [
        ("base", (5.0,)), ("a", (5.0, 6.0, 7.0)), ("b", ()),
    ]  # fmt: skip
    (said,) = case.published
    assert (said.mean, said.sd, said.ok) == (9.0, 0.5, 4)
    pairs = judged(with_mapping(path, toml)).findings[0].pairs
    assert [(pair.old, pair.new) for pair in pairs] == [("base", "a"), ("base", "b")]


def test_several_columns_are_the_runs_of_a_metric(tmp_path: Path) -> None:
    toml = (
        'replicate = "boot"\n[columns]\narm = "kernel"\n[metrics]\n'
        'ns = { values = ["r1", "r2"], unit = "ns", better = "less", assume = "exact" }\n'
    )
    case = only(with_mapping(write(tmp_path / "a.csv", "kernel,r1,r2\n6.16,5,\n6.17,6,7\n"), toml))
    assert case.metric.assume is Assume.EXACT
    assert [series.values for series in case.series] == [(5.0,), (6.0, 7.0)]
    assert case.series[0].boots[1].failure == "no value was written"


def test_moments_give_the_order(tmp_path: Path) -> None:
    rows = "6.16,2026-01-02T10:00:00+01:00,1\n6.16,2026-01-02T09:30:00Z,2\n"
    rows += "6.16,20260102T091500Z,1.5\n"
    (series,) = only(with_mapping(write(tmp_path / "a.csv", f"kernel,at,ns\n{rows}"), TIMES)).series
    assert series.values == (1.0, 1.5, 2.0)


def test_large_states_are_kept_to_the_last_digit(tmp_path: Path) -> None:
    toml = f'states = ["kb"]\n{LONG}'.replace('value = "figure"', 'values = ["figure"]')
    table = LONG_CSV.replace(",2048", ",1099511627777").replace("4,0", "4,1099511627776.0")
    table += "old,kb,1234567,b4,9,ok,,KB,4,\nnew,kb,1234568,b5,10,ok,,KB,4,\n"
    found = with_mapping(write(tmp_path / "a.csv", table), toml).contents.audited
    assert {(one.arm, one.field): one.values for one in found} == {
        ("old", "thp"): ("1099511627776",), ("new", "thp"): ("1099511627777",),
        ("old", "kb"): ("1234567",), ("new", "kb"): ("1234568",),
    }  # fmt: skip


def test_a_value_of_json_may_hold_any_separator_of_lines(tmp_path: Path) -> None:
    lines = [
        {"kernel": "6.16", "boot": "a\u2028b", "ns": 5},
        {"kernel": "6.17", "boot": "c", "ns": 6},
    ]
    text = "\r\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    assert len(only(with_mapping(write(tmp_path / "a.jsonl", text), PLAIN)).series) == 2


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("MAX_REPLICATES", "2 replicates of ns for 6.1"),
        ("MAX_SERIES", "2 series (an arm, a metric, a setting), more than 1"),
    ],
)
def test_what_is_judged_is_bounded(
    bound: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, bound, 1)
    assert said in refused(tmp_path, KNOWN, PLAIN)


def test_tables_of_one_import_are_never_compared_with_each_other(tmp_path: Path) -> None:
    paths = [write(tmp_path / "d" / f"{name}.csv", KNOWN) for name in ("may", "june")]
    found = judged(imported(*paths))
    assert {one.group for one in found.findings} == {(("set", "may.csv"),), (("set", "june.csv"),)}
    assert all(arm.n == 2 for one in found.findings for arm in one.arms)


def test_tables_of_one_metric_in_two_units_are_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.csv", KNOWN) for name in ("a", "b")]
    toml = 'files = ["b.csv"]\n' + PLAIN.replace('unit = "ns"', 'unit = "us"')
    with pytest.raises(SpecError, match="ns has one unit or direction here and another there"):
        imported(*paths, mappings=(mapping.parse(toml, "m.toml"),))


NS = '[metrics]\nns = { value = "ns", unit = "ns", better = "less" }\n'
PLAIN = f'replicate = "boot"\n[columns]\narm = "kernel"\nboot = "boot"\n{NS}'


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("columns = 3\n", "m.toml: line 1: columns: Expected object, got int"),
        ("[columns\n", "not TOML"),
        ('[columns]\nvalue = "a"\n', "m.toml: no column is the arm; nothing says whether less or"),
        ('[colums]\narm = "a"\n', 'line 1: a mapping has no key "colums"; did you mean columns?'),
        ('[columns]\nvale = "a"\n', 'line 2: [columns] has no key "vale"; did you mean value?'),
        (PLAIN.replace('"less"', '"low"'), 'write better = "less" or better = "more"'),
        (PLAIN.replace('"less"', '""'), "line 6: nothing says whether less or more"),
        (PLAIN.replace(', better = "less"', ""), "under [metrics.ns]"),
        (PLAIN.replace('unit = "ns"', 'unit = ""'), "nothing says the unit of ns"),
        (PLAIN.replace('replicate = "boot"\n', ""), "nothing says what was repeated"),
        (PLAIN.replace('"boot"\n[', '"day"\n['), 'write replicate = "boot", "round" or "none"'),
        (PLAIN.replace('arm = "kernel"\n', ""), "no column is the arm"),
        (PLAIN.replace('arm = "kernel"', 'arm = ""'), "no column is the arm"),
        ('order = [""]\n' + PLAIN, "m.toml: line 1: the order of the arms is blank"),
        ('order = ["6.1", "6.2", "6.1"]\n' + PLAIN, "the order has \"6.1\" twice"),
        ("planned = -3\n" + PLAIN, "planned: Expected int >= 1"),
        (PLAIN + '[success]\nrc = ""\n', 'success of "rc" is blank'),
        (f"a = {'[' * 5000}", "not TOML"),
        (PLAIN + "[success]\nok = true\n", 'write the cell in quotes, as "true" or "True"'),
        (PLAIN.replace('"boot"\n[m', '"ns"\n[m'), 'column "ns" is boot and a column of figures'),
        ('ignore = ["boot"]\n' + PLAIN, 'column "boot" is boot and ignore'),
        ('[columns]\narm = "a"\n', "it names no column with figures"),
        (PLAIN.replace("boot = ", 'value = "x"\nboot = '), "the figures stand in one place"),
        ('replicate = "boot"\nunit = "s"\nbetter = "less"\n[columns]\narm = "a"\nvalue = "v"\n',
         "nothing says what the values are"),
    ],
)  # fmt: skip
def test_a_wrong_mapping_is_a_sentence_with_the_mend(toml: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        mapping.parse(toml, "m.toml")
    assert said in caught.value.sentence()


LISTS = f'replicate = "boot"\n[columns]\narm = "kernel"\n{NS.replace("value", "values")}'
TIMES = f'replicate = "boot"\n[columns]\narm = "kernel"\nposition = "at"\n{NS}'
SUMS = (
    'replicate = "none"\nunit = "ns"\nbetter = "less"\n[columns]\narm = "kernel"\n[metrics]\n'
    'ns = { mean = "m", sd = "sd" }\n'
)
TABLE = "kernel,boot,ns\n6.16,1,100\n6.17,1,110\n"


@pytest.mark.parametrize(
    ("table", "toml", "said"),
    [
        (TABLE, PLAIN.replace('"ns", unit', '"us", unit'), 'there is no column "us"'),
        ("kernel,boot,ns,x,y\n6.16,1,2,3,4\n", PLAIN, 'write ignore = ["x", "y"]'),
        (TABLE, 'order = ["6.17"]\n' + PLAIN, "the order of the mapping does not name 6.16"),
        (TABLE, PLAIN + '[roles]\nold = "6.16"\nnew = "6.18"\n', '[roles] names "6.18"'),
        (TABLE.replace("6.17,1", "6.17,"), PLAIN, '"" is not the name of a boot'),
        (TABLE.replace("6.17,1", ",1"), PLAIN, '"" is not the name of an arm'),
        (LONG_CSV.replace("12,b2,1,ok,,MB/s", "12,b2,1,ok,,GB/s"), LONG, "the unit of bw above"),
        (LONG_CSV.replace("12,b2,1,ok,,MB/s", "12,b2,1,ok,,"), LONG, "is not the unit of bw"),
        (LONG_CSV.replace("new,bw", "new,lat"), LONG, '[metrics."lat"] with unit and better'),
        (TABLE, 'files = ["b.csv"]\n' + PLAIN, 'a mapping is for "b.csv", and no file is left'),
        (TABLE, PLAIN.replace('"kernel"', '"kernl"'), "did you mean kernel?"),
        (TABLE, 'replicate = "boot"\n' + NS, 'write arm = "COLUMN" under [columns]'),
        (TABLE.replace("boot", "rc"), PLAIN.replace('boot = "boot"', "") + '[success]\nrc = "I"\n',
         'no cell of "rc" is "I", as [success] says; the cells are "1"'),
        (LONG_CSV.replace("ok", "OK"), LONG, 'did you mean "OK"?'),
        (LONG_CSV, LONG.replace("[metrics.bw]", "[metrics.bw2]\nbetter = \"less\"\n[metrics.bw]"),
         '[metrics] names "bw2", and no row has it as its metric; did you mean bw?'),
        (LONG_CSV, 'skip = ["bww"]\n' + LONG, 'skip names "bww"'),
        (LONG_CSV, 'states = ["bww"]\n' + LONG, 'states names "bww"'),
        ('kernel,ns\n6.16,"1,5 2,5"\n', LISTS, "a list of numbers with one separator"),
        ('kernel,ns\n6.16,"1,234;1,250"\n', LISTS, "a list of numbers with one separator"),
        ("kernel,at,ns\n6.16,2026-01-02T10:00Z,1\n6.17,2026-01-02T10:00,2\n", TIMES,
         "is not a time with a zone, as all or none must be"),
        ("kernel,m,sd\n6.16,5,-1\n6.17,6,1\n", SUMS, '"-1" is not a spread: zero or more'),
        ("kernel,m,sd\n6.16,5,1\n6.16,6,1\n", SUMS, "a second summary of ns for 6.16"),
        ("kernel,boot,ns,cpus\n6.16,1,100,4\n6.16,2,110,8\n",
         PLAIN + '[read_back]\nseen_cpus = "cpus"\n', "the seen_cpus of 6.16 in the rows above"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_its_mapping(
    table: str, toml: str, said: str, tmp_path: Path
) -> None:
    assert said in refused(tmp_path, table, toml)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("6.16", (6, 16, 0, 1000)), ("v6.12.77", (6, 12, 77, 1000)), ("7.1-rc3", (7, 1, 0, 3)),
        ("2.4 GHz", None), ("6.16-patched", None), ("97.7 %", None), ("linux-6.16", None),
        ("base", None),
    ],
)  # fmt: skip
def test_a_version_is_a_version_and_nothing_else(name: str, key: tuple[int, ...] | None) -> None:
    assert version_key(name) == key


def test_versions_sort_as_versions() -> None:
    assert in_order(["7.1", "6.9.1", "v6.12.3", "7.1-rc3"]) == [
        "6.9.1", "v6.12.3", "7.1-rc3", "7.1",
    ]  # fmt: skip
    assert in_order(["6.16", "v6.16"]) is None
    assert in_order(["6.16", "base"]) is None
