# SPDX-License-Identifier: GPL-2.0-or-later
"""What blind rounds found read wrongly without a word, or refused for nothing, by seed."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_shapes as shapes
from kdelta.foreign import reader, series


def _runs(shape: shapes.Shape) -> list[tuple[int, str]]:
    return [(run, arm) for run in range(1, shape.runs + 1) for arm in shape.arms]


def rows_called_after_runs(shape: shapes.Shape) -> None:
    """Arms in columns, and run 1, run 2 ... where another table has its cases."""
    shape.arms = ("base", "patched")
    word = shape.rng.choice(("run", "rep", "iteration"))
    rows = [(f"{word} {run}", *map(shape.value, shape.arms)) for run in range(1, shape.runs + 1)]
    shape.table("case,base_us,patched_us", rows)


def jobs_of_every_arm(shape: shapes.Shape) -> None:
    """A job is no run where every arm has it several times."""
    shape.table("kernel,job,time_ms", [(a, j, v) for a, j, _, v in shape.each("boot", "suspend")])


def titles_of_cases_and_runs(shape: shapes.Shape) -> None:
    """=== mmap run 1 ===: what stands beside the number of the run tells figures apart."""
    for arm in shape.arms:
        shape.files[f"{arm}.log"] = "".join(
            f"=== {case} run {run} ===\ntime: {shape.value(arm, case, level)} s\n"
            for run in range(shape.runs)
            for case, level in (("mmap", 1.0), ("fork", 5.0))
        )


def titles_of_kernels_and_cases(shape: shapes.Shape) -> None:
    shape.files["a.log"] = "".join(
        f"=== {arm} {case} run {run} ===\ntime: {shape.value(arm, case, level)} s\n"
        for run, arm in _runs(shape)
        for case, level in (("mmap", 1.0), ("fork", 5.0))
    )


def dashes_of_failed_runs(shape: shapes.Shape) -> None:
    rows = [(arm, run, shape.value(arm)) for run, arm in _runs(shape)]
    shape.table("kernel,trial,elapsed_s", [*rows, (shape.arms[1], shape.runs + 1, "---")])


READ = (
    dashes_of_failed_runs,
    rows_called_after_runs,
    jobs_of_every_arm,
    titles_of_cases_and_runs,
    titles_of_kernels_and_cases,
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", READ, ids=lambda maker: maker.__name__)
def test_they_are_read(maker: shapes.Maker, seed: int, tmp_path: Path) -> None:
    shapes.check(maker, seed, tmp_path, "read")


def a_reference_in_every_row(shape: shapes.Shape) -> None:
    """The baseline that each configuration is held against is no arm."""
    shape.arms = ("nohz_full", "defconfig")
    rows = [(arm, shape.value(arm), 200.0) for _, arm in _runs(shape)]
    shape.table("config,test_ms,baseline_ms", rows)


def titles_of_unknown_words(shape: shapes.Shape) -> None:
    shape.arms = ("eevdf-base", "eevdf-lag")
    shape.files["a.log"] = "".join(
        f"### {arm} iteration {run}\ntime: {shape.value(arm)} s\n" for run, arm in _runs(shape)
    )


def titles_in_brackets_before_a_run(shape: shapes.Shape) -> None:
    shape.arms = ("mainline", "sched-rfc")
    shape.files["a.log"] = "".join(
        f"[{arm}] pass {run}\ntime: {shape.value(arm)} s\n" for run, arm in _runs(shape)
    )


def runs_behind_points(shape: shapes.Shape) -> None:
    """bench.slack.3.txt: what is behind the last point numbers the runs."""
    shape.arms = ("bench.base", "bench.slack")
    for run, arm in _runs(shape):
        shape.files[f"{arm}.{run}.txt"] = f"time: {shape.value(arm)} s\n"


PROPOSED = (
    a_reference_in_every_row,
    titles_of_unknown_words,
    titles_in_brackets_before_a_run,
    runs_behind_points,
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", PROPOSED, ids=lambda maker: maker.__name__)
def test_they_are_asked_about_and_the_proposal_is_right(
    maker: shapes.Maker, seed: int, tmp_path: Path
) -> None:
    shapes.check(maker, seed, tmp_path, "asked")


def test_bounds_that_rise_are_no_order(tmp_path: Path) -> None:
    rows = "6.1,web,100.0,98.0,10\n6.2,web,120.0,118.0,10\n6.1,db,250.0,245.0,10\n"
    rows += "6.2,db,300.0,294.0,10\n"
    path = tmp_path / "ci.csv"
    path.write_text("kernel,workload,mean_ms,ci95_low,N\n" + rows, encoding="utf-8")
    (how,) = reader.read([path])[1].how
    assert "not read: ci95_low" in how


def test_arms_that_nothing_orders_stand_alike_in_every_group(tmp_path: Path) -> None:
    rows = "".join(
        f"{arm},{size},{run + 40.5}\n"
        for size, arms in ((64, ("rhel9", "rhel10")), (4096, ("rhel10", "rhel9")))
        for run in range(5)
        for arm in arms
    )
    path = tmp_path / "a.csv"
    path.write_text("kernel,size,lat_ns\n" + rows, encoding="utf-8")
    found = series.cases(reader.read([path])[1])
    assert {tuple(one.arm for one in case.series) for case in found} == {("rhel9", "rhel10")}
    assert len(found) == 2
