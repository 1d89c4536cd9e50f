# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs under unlike settings are kept apart by the line that says so; numbers of runs are not."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_shapes as shapes
import foreign_under as under
from kdelta.errors import SpecError
from kdelta.foreign import context, reader


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", under.READ, ids=lambda maker: maker.__name__)
def test_runs_of_unlike_settings_are_kept_apart(
    maker: shapes.Maker, seed: int, tmp_path: Path
) -> None:
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    assert how == "read"
    assert rounded(shapes.cells(found)) == rounded(shapes.everything(shape))


def rounded(cells: set[tuple[str, shapes.Values]]) -> set[tuple[str, shapes.Values]]:
    return {(arm, tuple(float(f"{value:.6g}") for value in values)) for arm, values in cells}


@pytest.mark.parametrize(
    "texts",
    [
        ["starting run 1", "starting run 2", "starting run 3"],
        ["took 1003 of 10000", "took 1007 of 10000", "took 1011 of 10000"],
        ["begun at 10:00:01", "begun at 10:30:01"],
        ["bench[4096] begins", "bench[8192] begins"],
        ["4 threads", "4 threads"],
    ],
)
def test_what_nobody_chose_is_no_setting(texts: list[str]) -> None:
    assert context.settings(list(enumerate(texts))) == {}


def test_a_line_behind_the_figures_is_none_of_those_above() -> None:
    lines = list(enumerate(("5 us", "with 4 threads", "6 us", "with 8 threads"), start=1))
    assert context.before(lines, {1, 3}) == {1: {}, 3: {}}


def test_a_time_that_was_set_is_asked_about_where_no_rate_is(tmp_path: Path) -> None:
    rows = "".join(
        f"{arm},{boot},{1000 + 37 * boot + 11 * (arm == '6.17')},10.00{boot % 3}\n"
        for arm in ("6.16", "6.17")
        for boot in range(6)
    )
    (tmp_path / "a.csv").write_text(f"kernel,boot,ops,seconds\n{rows}")
    with pytest.raises(reader.UndescribedError, match="was seconds set, and is ops"):
        reader.read([tmp_path / "a.csv"])


def test_a_time_that_was_set_is_left_where_a_rate_is(tmp_path: Path) -> None:
    rows = "".join(
        f"{arm},{boot},{1000 + 37 * boot + 11 * (arm == '6.17')},10.00{boot % 3},"
        f"{100 + 3.7 * boot}\n"
        for arm in ("6.16", "6.17")
        for boot in range(6)
    )
    (tmp_path / "a.csv").write_text(f"kernel,boot,ops,seconds,ops_per_s\n{rows}")
    found = reader.read([tmp_path / "a.csv"])[1]
    assert [metric.name for metric in found.metrics] == ["ops_per_s"]


def test_names_in_other_letters_are_read(tmp_path: Path) -> None:
    rows = "".join(f"{arm},{boot},10{boot}.5\n" for arm in ("6.16", "6.17") for boot in range(5))
    (tmp_path / "a.csv").write_text(f"\u5185\u6838,boot,\u5ef6\u8fdf(us)\n{rows}")
    with pytest.raises(reader.UndescribedError, match="what is compared"):
        reader.read([tmp_path / "a.csv"])


def test_a_date_that_may_be_of_two_months_is_asked_about(tmp_path: Path) -> None:
    rows = "".join(
        f"5/{boot}/2026,{arm},9{boot}.5\n" for arm in ("6.16", "6.17") for boot in (1, 2)
    )
    (tmp_path / "a.csv").write_text(f"date,kernel,us\n{rows}")
    with pytest.raises(reader.UndescribedError, match="is the month of date"):
        reader.read([tmp_path / "a.csv"])


def test_what_no_mapping_reads_is_not_proposed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("us\nmean and more\n6.16 5 6\n6.17 7 8\n")
    with pytest.raises(SpecError, match='"mean and more" is not a number') as caught:
        reader.read([tmp_path / "a.txt"])
    assert not isinstance(caught.value, reader.UndescribedError)
    assert "put what was measured into one: kernel,boot,ns" in caught.value.action


def written(folder: Path, text: str, name: str = "a.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_columns_of_arms_beside_one_kernel_are_the_arms(tmp_path: Path) -> None:
    rows = "".join(f"6.16,{test},9{at}.5,11{at}.5\n" for test in ("fork", "mmap") for at in "123")
    path = written(tmp_path, f"kernel,test,base_us,patched_us\n{rows}")
    assert {one.arm for one in reader.read([path])[1].readings} == {"base", "patched"}


@pytest.mark.parametrize("column", ["ktime_ns", "ts_us"])
def test_a_clock_that_runs_on_is_no_time_that_passed(column: str, tmp_path: Path) -> None:
    rows = "".join(f"{a},{b},{9 * b + i}000,9{b}.5\n" for b in range(5) for i, a in KERNELS)
    path = written(tmp_path, f"kernel,boot,{column},lat_ns\n{rows}")
    assert [metric.name for metric in reader.read([path])[1].metrics] == ["lat_ns"]


KERNELS = tuple(enumerate(("6.16", "6.17")))


def test_a_logarithm_of_a_time_is_no_time(tmp_path: Path) -> None:
    rows = "".join(f"{a},{b},1.9{b},9{b}.5\n" for b in range(5) for _, a in KERNELS)
    path = written(tmp_path, f"kernel,boot,log10_ns,lat_ns\n{rows}")
    assert [metric.name for metric in reader.read([path])[1].metrics] == ["lat_ns"]


def test_lists_of_several_tests_are_kept_apart(tmp_path: Path) -> None:
    text = "".join(f"{test}:\n6.16: 1 2 3\n6.17: 4 5 6\n" for test in ("fork", "mmap"))
    found = reader.read([written(tmp_path, text, "a.txt")])[1]
    assert {one.group for one in found.readings} == {(("test", "fork"),), (("test", "mmap"),)}


def test_a_table_without_figures_is_there_for_the_page(tmp_path: Path) -> None:
    rows = "".join(f"<tr><td>{a}<td>{b}<td>9{b}.5</tr>" for b in range(5) for _, a in KERNELS)
    menu = "<table><tr><td>Home<td>About</tr></table>"
    page = f"<html>{menu}<table><tr><th>kernel<th>boot<th>us</tr>{rows}</table></html>"
    assert len(reader.read([written(tmp_path, page, "p.html")])[1].readings) == 10


def test_tables_of_unlike_head_lines_are_asked_for_one_by_one(tmp_path: Path) -> None:
    one = "| kernel | boot | us |\n|---|---|---|\n| 6.16 | 1 | 9.5 |\n| 6.17 | 1 | 9.7 |\n"
    other = "| item | value |\n|---|---|\n| cpus | 8 |\n"
    with pytest.raises(SpecError, match="2 tables of unlike head lines"):
        reader.read([written(tmp_path, f"## times\n\n{one}\n## machine\n\n{other}", "r.md")])


def test_a_setting_is_told_by_what_differs() -> None:
    lines = [f"Running with {n} groups of 40 (== {40 * n} tasks)" for n in (1, 4, 1, 4)]
    said = context.settings(list(enumerate(lines)))
    assert said[0] == ("said", "1 groups, 40 tasks")
    assert said[1] == ("said", "4 groups, 160 tasks")
    commands = context.settings(list(enumerate(("$ bench --pipe -l 9", "$ bench --sock -l 9"))))
    assert [text for _, text in commands.values()] == ["--pipe", "--sock"]
