# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs of others write is read as they meant it: every figure, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foreign_outputs
import foreign_shapes as shapes
from kdelta.errors import SpecError
from kdelta.foreign import json_programs, json_text, programs, reader
from kdelta.metric import Better


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("maker", foreign_outputs.OUTPUTS, ids=lambda maker: maker.__name__)
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
