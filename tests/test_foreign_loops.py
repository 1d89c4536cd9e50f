# SPDX-License-Identifier: GPL-2.0-or-later
"""Loops of programs, pages and prints are read as they were made, or refused with what to give."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_loops as loops
import foreign_shapes as shapes
from kdelta.errors import SpecError
from kdelta.foreign import reader


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", loops.READ, ids=lambda maker: maker.__name__)
def test_a_file_is_read_as_it_was_made(maker: shapes.Maker, seed: int, tmp_path: Path) -> None:
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    assert how == "read"
    assert shapes.cells(found) == shapes.everything(shape)


@pytest.mark.parametrize("maker", loops.ASKED, ids=lambda maker: maker.__name__)
def test_what_only_its_author_knows_is_asked(maker: shapes.Maker, tmp_path: Path) -> None:
    assert shapes.read(shapes.drawn(maker, 0), tmp_path)[0] == "asked"


@pytest.mark.parametrize("name", loops.REFUSED)
def test_what_cannot_be_judged_is_named_with_what_to_give(name: str, tmp_path: Path) -> None:
    text, wanted = loops.REFUSED[name]
    (tmp_path / "out.txt").write_text(text)
    with pytest.raises(SpecError) as caught:
        reader.read([tmp_path / "out.txt"])
    assert not isinstance(caught.value, reader.UndescribedError)
    assert wanted in caught.value.action


def test_a_log_of_fio_is_one_run_over_time(tmp_path: Path) -> None:
    (tmp_path / "6.16_bw.1.log").write_text("500, 81234, 0, 4096\n1000, 81235, 0, 4096\n")
    with pytest.raises(SpecError, match="fio's log of bw is one run") as caught:
        reader.read([tmp_path / "6.16_bw.1.log"])
    assert "--output-format=json" in caught.value.action


def test_beside_what_is_read_it_is_kept_and_named(tmp_path: Path) -> None:
    rows = "".join(f"{arm},{boot},10{boot}.5\n" for arm in ("6.16", "6.17") for boot in range(5))
    (tmp_path / "a.csv").write_text(f"kernel,boot,us\n{rows}")
    (tmp_path / "vmstat.txt").write_text(loops.REFUSED["vmstat"][0])
    found = reader.read([tmp_path])[1]
    assert len(found.readings) == 10
    assert any("what vmstat prints is the state" in note for note in found.notes)


def test_another_table_in_one_file_is_named_by_its_line(tmp_path: Path) -> None:
    rows = "".join(f"{arm},{boot},10{boot}.5\n" for arm in ("6.16", "6.17") for boot in range(3))
    (tmp_path / "a.csv").write_text(f"kernel,boot,us\n{rows}\nkernel,boot,iops\n{rows}")
    with pytest.raises(SpecError, match="another table begins") as caught:
        reader.read([tmp_path / "a.csv"])
    assert caught.value.place.endswith("line 9")


def test_figures_that_are_called_after_an_arm_are_not_those_of_all(tmp_path: Path) -> None:
    rows = "".join(f"{arm},{boot},3{boot}.5\n" for arm in ("6.16", "6.17") for boot in range(5))
    (tmp_path / "a.csv").write_text(f"kernel,boot,lat_6.16_us\n{rows}")
    with pytest.raises(reader.UndescribedError, match=r"a figure of 6\.16 alone"):
        reader.read([tmp_path / "a.csv"])


def test_a_file_without_a_suffix_keeps_its_version(tmp_path: Path) -> None:
    for arm in ("6.1", "6.16"):
        (tmp_path / f"ebizzy-{arm}").write_text("81234 records/s\nreal 10.00 s\n" * 3)
    found = reader.read([tmp_path])[1]
    assert {one.arm for one in found.readings} == {"6.1", "6.16"}


@pytest.mark.parametrize(
    "part", ["<a ", "<!--", "<![CDATA[", "<table><tr><td>", "<tr><td colspan=500 rowspan=999>x"]
)
def test_a_page_that_is_made_to_be_slow_is_refused_at_once(part: str, tmp_path: Path) -> None:
    (tmp_path / "p.html").write_text("<html><table>" + part * 20_000)
    with pytest.raises(SpecError):
        reader.read([tmp_path / "p.html"])


def test_a_page_without_a_table_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "p.html").write_text("<html><body><p>6.16 took 3 us</p></body></html>")
    with pytest.raises(SpecError, match="a page that holds no table"):
        reader.read([tmp_path / "p.html"])
