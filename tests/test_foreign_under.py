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
