# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs of others write is read as they meant it: every figure, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foreign_outputs
import foreign_reports
import foreign_shapes as shapes
from kdelta.errors import SpecError
from kdelta.foreign import json_programs, json_text, programs, reader
from kdelta.metric import Better

OUTPUTS = (*foreign_outputs.OUTPUTS, *foreign_reports.OUTPUTS)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("maker", OUTPUTS, ids=lambda maker: maker.__name__)
def test_an_output_is_read_whole(maker: shapes.Maker, seed: int, tmp_path: Path) -> None:
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    assert how == "read"
    assert shapes.cells(found) == shapes.everything(shape)
    assert all(metric.better is not Better.NONE for metric in found.metrics)


def records(found: object) -> list[dict[str, str]]:
    return json_programs.records_of(json_text.loaded(json.dumps(found), "a.json", exact=True))


def test_a_job_of_fio_that_failed_is_a_failed_run() -> None:
    read = {"io_bytes": 1, "total_ios": 1, "bw": 10, "iops": 2.5}
    jobs = [{"jobname": "a", "error": error, "read": read} for error in (0, 5)]
    found = records({"fio version": "fio-3.1", "jobs": jobs})
    assert [row["status"] for row in found] == ["ok", "ok", "failed", "failed"]
    assert {row["metric"]: row["better"] for row in found} == {"iops": "higher", "bw": "higher"}


def test_microseconds_of_an_old_fio_are_microseconds() -> None:
    read = {"io_bytes": 1, "clat": {"mean": 12.5}}
    (row,) = records({"fio version": "fio-2.1", "jobs": [{"jobname": "a", "read": read}]})
    assert (row["metric"], row["unit"], row["value"]) == ("clat", "us", "12.5")


def test_intervals_of_perf_stat_are_no_runs() -> None:
    line = {"interval": 1.0, "counter-value": "5.0", "unit": "", "event": "cycles"}
    assert records(line) == []


def test_of_several_runs_perf_stat_prints_the_mean() -> None:
    line = {"counter-value": "5.0", "unit": "msec", "event": "task-clock", "variance": 0.5}
    (row,) = records(line)
    assert (row["mean"], row["unit"], "value" in row) == ("5.0", "msec", False)


def test_benchmarks_that_only_tell_their_sums_are_summaries() -> None:
    each = {"run_name": "a", "run_type": "aggregate", "repetitions": 5, "time_unit": "us"}
    runs = [
        {**each, "aggregate_name": "mean", "real_time": 10.5, "cpu_time": 9.5},
        {**each, "aggregate_name": "stddev", "real_time": 0.5, "cpu_time": 0.25},
    ]
    found = records({"context": {}, "benchmarks": runs})
    assert [(row["mean"], row["sd"], row["n"]) for row in found] == [
        ("10.5", "0.5", "5"),
        ("9.5", "0.25", "5"),
    ]


@pytest.mark.parametrize(
    "found", [{"jobs": []}, {"thread": {"0": {}}}, {"end": {}}, {"mean": 1}, [], 5, None]
)
def test_what_only_looks_like_a_program_is_read_as_plain_records(found: object) -> None:
    assert records(found) == []


def test_requests_that_failed_are_failed_runs() -> None:
    text = (
        "Time taken for tests:   1.0 seconds\nFailed requests:        3\n"
        "Requests per second:    10.5 [#/sec] (mean)\n"
    )
    ((_, row),) = programs.records_of(text)
    assert (row["status"], row["value"]) == ("failed", "10.5")


def test_two_threads_are_not_one(tmp_path: Path) -> None:
    shape = shapes.drawn(foreign_outputs.cyclictest, 1)
    _, found = shapes.read(shape, tmp_path)
    assert {dict(item.group)["thread"] for item in found.readings} == {"0", "1"}


def test_a_text_of_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("T: 0 is cold\nRequests per second are many\n")
    with pytest.raises(SpecError):
        reader.read([tmp_path / "a.txt"])


def test_timeouts_of_wrk_are_failed_requests() -> None:
    text = (
        "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n"
        "  Socket errors: connect 0, read 0, write 0, timeout {}\nRequests/sec:  52000.10\n"
    )
    found = [programs.records_of(text.format(count))[0][1]["status"] for count in (0, 3)]
    assert found == ["ok", "failed"]


def test_tests_of_unixbench_in_different_units_are_different_metrics() -> None:
    text = "Pipe Throughput   1411233.1 lps   (10.0 s, 7 samples)\n"
    text += "Whetstone   6011.2 MWIPS (9.9 s, 7 samples)\n"
    rows = [row for _, row in programs.records_of(text)]
    assert [(row["metric"], row["unit"]) for row in rows] == [
        ("Pipe Throughput", "lps"),
        ("Whetstone", "MWIPS"),
    ]


def test_hits_in_buckets_are_told_and_never_better(tmp_path: Path) -> None:
    for arm, hits in (("6.16", 1022), ("6.17", 511)):
        (tmp_path / f"{arm}.txt").write_text(
            f"Attaching 3 probes...\n\n@usecs[mprotect]: \n[1]                2 |        |\n"
            f"[2, 4)             {hits} |@@@@@@@@|\n[1K, 2K)           3 |        |\n\n@count: 9\n"
        )
    found = reader.read([tmp_path])[1]
    assert {metric.better for metric in found.metrics} == {Better.NONE}
    assert {item.value for item in found.readings} == {2.0, 3.0, 1022.0, 511.0}


def test_keys_of_a_trigger_have_hits() -> None:
    text = "# event histogram\n# trigger info: hist:keys=nr_ptes:vals=hitcount [active]\n"
    text += "{ nr_ptes:         16 } hitcount:          100\n\nTotals:\n    Hits: 100\n"
    ((_, row),) = programs.records_of(text)
    assert (row["bucket"], row["value"], row["better"]) == ("nr_ptes: 16", "100", "none")


def test_entities_of_xml_are_not_expanded() -> None:
    text = '<?xml version="1.0"?>\n<!DOCTYPE a [<!ENTITY b "c">]>\n<PhoronixTestSuite>'
    text += "<Result><Title>&b;</Title><Scale>s</Scale></Result></PhoronixTestSuite>"
    assert programs.records_of(text) == []


def test_a_column_called_name_does_not_hide_the_name_of_its_file(tmp_path: Path) -> None:
    for arm, level in (("base", 1.0), ("patched", 2.0)):
        rows = [{"name": test, "lat_us": level * at} for at, test in enumerate(("a", "b"), start=1)]
        text = json.dumps({"version": "4.0.0", "results": rows})
        (tmp_path / f"0_{arm}.json").write_text(text)
    found = reader.read([tmp_path])[1]
    assert {item.arm for item in found.readings} == {"0_base", "0_patched"}


def test_names_that_differ_only_in_a_version_are_arms(tmp_path: Path) -> None:
    for arm in ("6.16.0", "6.17.0"):
        for run in range(3):
            path = tmp_path / f"pipe-{arm}-run{run}.log"
            path.write_text(f"latency_us: {run + 5}.5\nthreads: 4\n")
    found = reader.read([tmp_path])[1]
    assert {item.arm for item in found.readings} == {"6.16.0", "6.17.0"}
