# SPDX-License-Identifier: GPL-2.0-or-later
"""Files as strangers have them are read as they were made, or asked about; never wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_shapes as shapes
import foreign_strangers as strangers
from kdelta.errors import SpecError
from kdelta.foreign import paths, reader
from kdelta.foreign.record import Contents
from kdelta.metric import Better


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", strangers.READ, ids=lambda maker: maker.__name__)
def test_a_file_is_read_as_it_was_made(maker: shapes.Maker, seed: int, tmp_path: Path) -> None:
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    assert how == "read"
    assert rounded(shapes.cells(found)) == rounded(shapes.everything(shape))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", strangers.ASKED, ids=lambda maker: maker.__name__)
def test_what_only_its_author_knows_is_asked(
    maker: shapes.Maker, seed: int, tmp_path: Path
) -> None:
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    assert how == "asked"
    assert rounded(shapes.cells(found)) == rounded(shapes.everything(shape))


def rounded(cells: set[tuple[str, shapes.Values]]) -> set[tuple[str, shapes.Values]]:
    """Figures as far as a file that divides or scales them keeps their digits."""
    return {(arm, tuple(float(f"{value:.6g}") for value in values)) for arm, values in cells}


def read(folder: Path, files: dict[str, str]) -> Contents:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return reader.read([folder / next(iter(files))] if len(files) == 1 else [folder])[1]


def test_the_unit_beside_a_score_says_which_direction_is_better(tmp_path: Path) -> None:
    head = "Benchmark,Mode,Score,Unit,Param: kernel\n"
    for unit, better in (("us/op", Better.LOWER), ("ops/ms", Better.HIGHER)):
        rows = "".join(
            f"B.read,x,{9 + at},{unit},{arm}\n" for at, arm in enumerate(("6.16", "6.17"))
        )
        (metric,) = read(tmp_path / better, {"jmh.csv": head + rows}).metrics
        assert (metric.unit, metric.better) == (unit, better)


def test_a_name_and_a_unit_that_contradict_each_other_are_asked_about(tmp_path: Path) -> None:
    rows = "".join(f"{arm},{boot},12.{boot},ms\n" for arm in ("6.16", "6.17") for boot in range(5))
    with pytest.raises(reader.UndescribedError, match="its unit ms that lower is"):
        read(tmp_path, {"a.csv": f"kernel,boot,throughput,unit\n{rows}"})


def test_a_rate_beside_a_unit_of_time_keeps_its_own(tmp_path: Path) -> None:
    rows = "".join(f"{arm},{b},1{b}.5,ns,9{b}e6\n" for arm in ("6.16", "6.17") for b in range(5))
    head = "kernel,boot,real_time,time_unit,items_per_second\n"
    found = read(tmp_path, {"a.csv": head + rows}).metrics
    assert {(one.name, one.unit, one.better.value) for one in found} == {
        ("real_time", "ns", "lower"),
        ("items_per_second", "items/s", "higher"),
    }


def test_a_bound_is_no_value(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match='">10" is a bound and no value') as caught:
        read(tmp_path, {"a.csv": "kernel,boot,seconds\n6.16,0,8.1\n6.17,0,>10\n6.17,1,9.2\n"})
    assert "leave the cell empty" in caught.value.action


def test_hits_of_a_map_that_is_keyed_by_kernels_are_theirs(tmp_path: Path) -> None:
    text = "".join(
        f"@usecs[{arm}]:\n[0]   {n} |@@|\n[1]   7 |@|\n" for arm, n in (("6.16", 12), ("6.17", 10))
    )
    found = read(tmp_path, {"lat.txt": text})
    assert {one.arm for one in found.readings} == {"6.16", "6.17"}
    assert [metric.better for metric in found.metrics] == [Better.NONE]


def test_hits_in_buckets_without_kernels_compare_nothing(tmp_path: Path) -> None:
    with pytest.raises(reader.UndescribedError, match="no column says what is compared"):
        read(tmp_path, {"lat.txt": "@usecs:\n[0]   12 |@@|\n[1]   7 |@|\n"})


def test_files_are_called_by_what_tells_them_apart() -> None:
    names = ["a/bench-5.15.0-91-generic.csv", "a/bench-6.5.0-14-generic.csv"]
    assert paths.labels_of(names) == ["5.15.0-91-generic", "6.5.0-14-generic"]
    assert paths.labels_of(["bench-base.csv", "bench-fix.csv"]) == ["bench-base", "bench-fix"]


def test_kernels_that_end_in_a_number_are_no_runs(tmp_path: Path) -> None:
    files = {f"x/linux6.{n}.csv": f"ns\n{90 + n}.5\n{91 + n}.5\n" for n in (1, 2, 3)}
    assert len({one.arm for one in read(tmp_path, files).readings}) == 3


def test_rows_that_average_an_arm_are_no_arms(tmp_path: Path) -> None:
    rows = [f"{arm},{boot},10{boot}.5" for arm in ("6.16", "6.17") for boot in range(5)]
    text = "\n".join(("kernel,boot,us", *rows, "avg 6.16,,102.5", "avg 6.17,,102.5")) + "\n"
    assert {one.arm for one in read(tmp_path, {"a.csv": text}).readings} == {"6.16", "6.17"}


def test_of_one_kernel_a_setting_may_be_what_is_compared(tmp_path: Path) -> None:
    rows = "".join(f"6.16,{p},{b},10{b}.5\n" for p in ("none", "v2") for b in range(5))
    with pytest.raises(reader.UndescribedError, match=r"is patch \(none, v2\) what is compared"):
        read(tmp_path, {"a.csv": f"version,patch,boot,us\n{rows}"})


def test_a_key_of_benchfmt_that_names_kernels_is_the_arm(tmp_path: Path) -> None:
    text = "".join(
        f"kernel: {arm}\nBenchmarkX 10 5.{n} ns/op\n" for n in (1, 2) for arm in ("6.16", "6.17")
    )
    found = read(tmp_path, {"a.txt": text}).readings
    assert [(one.arm, one.value) for one in found] == [
        *(("6.16", 5.1), ("6.17", 5.1), ("6.16", 5.2), ("6.17", 5.2))
    ]
