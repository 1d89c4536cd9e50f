# SPDX-License-Identifier: GPL-2.0-or-later
"""How a matrix looks as text, JSON and HTML; and what it says of equal and different code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kdelta.codegen.table import Cell, CodeTable, Hot
from kdelta.disassembly import objects
from kdelta.disassembly.code import Code
from kdelta.rendering import codegen
from kdelta.rendering import codegen as page
from kdelta.rendering.formats import written
from kdelta.table.columns import plain

DATA = Path(__file__).resolve().parent / "data" / "codegen"
GOLDEN = Path(__file__).resolve().parent / "golden" / "codegen"
FUNCTION = "mincore_pte_range"
# What the loop of a present entry is in the listing of gcc-12, instruction by instruction.
LOOP = (*range(36, 41), *range(41, 46), *range(69, 74))
PAGES = 16384


def code(name: str) -> Code:
    return objects.read(DATA / f"{name}.elf", FUNCTION).code


def cell(row: str, column: str) -> Cell:
    return Cell(
        row=row,
        column=column,
        code=code(f"{row}.{column}"),
    )


def matrix() -> CodeTable:
    """Real code; the counts are of the loop once per page, of the rest not at all."""
    original = cell("original", "gcc-12")
    assert original.code is not None
    counts = [0] * len(original.code.instructions)
    for index in LOOP:
        counts[index] = PAGES
    hot = Hot(
        source="a-run, 6.17.8, phase scan", operation="page", operations=PAGES,
        counts=tuple(counts), elsewhere=0,
    )  # fmt: skip
    broken = Cell(row="no-batch", column="gcc-12", problem="mm/mincore.c:1:1: error: <b>&")
    return CodeTable(
        function=FUNCTION,
        place="mm/mincore.o",
        title="6.17.8, configuration deb",
        rows=("original", "present-first", "no-batch"),
        columns=("gcc-12", "gcc-14"),
        banners={"gcc-12": "gcc-12 (Debian) 12.2.0", "gcc-14": "gcc-14 (Debian) 14.2.0"},
        cells=(
            replace(original, hot=hot),
            cell("original", "gcc-14"),
            cell("present-first", "gcc-12"),
            Cell(row="present-first", column="gcc-14", problem="not made for this test"),
            broken,
            cell("no-batch", "gcc-14"),
        ),
        notes=("a note",),
    )


Check = Callable[[str, str], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Check:
    """Compare a text with a golden file; --update-golden rewrites the file instead."""

    def check(name: str, content: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(content)
        assert content == path.read_text()

    return check


def test_the_tables(golden: Check) -> None:
    golden("matrix.txt", plain(codegen.show(matrix())))


def test_side_by_side(golden: Check) -> None:
    made = matrix()
    first = made.cell("original", "gcc-12")
    shown = plain(codegen.differences(first, made.cell("present-first", "gcc-12")))
    golden("side-by-side.txt", shown)
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_a_listing_marks_what_ran(golden: Check) -> None:
    shown = plain(codegen.listing(matrix().cell("original", "gcc-12")))
    golden("listing.txt", shown)
    marked = [line for line in shown.splitlines() if " # " in line[:12]]
    assert len(marked) == len(LOOP) == 15


def test_json_has_it_all_and_null_where_nothing_is_known() -> None:
    content = written("json", codegen, matrix())
    assert json.loads(content)["format"] == 1
    cells = {(row["row"], row["column"]): row for row in json.loads(content)["cells"]}
    assert cells["original", "gcc-12"]["hot"]["per_operation"] == 15
    listing = cells["original", "gcc-12"]["code"]["listing"]
    assert [row["text"] for row in listing] == list(code("original.gcc-12").normal)
    assert [n for n, row in enumerate(listing) if row["executed"]] == list(LOOP)
    assert cells["original", "gcc-14"]["hot"] is None
    assert cells["original", "gcc-14"]["code"]["listing"][0]["executed"] is None
    assert cells["present-first", "gcc-14"]["code"] is None
    assert cells["no-batch", "gcc-14"]["same_code"] == "B"


def test_equal_code_has_the_same_letter() -> None:
    made = matrix()
    assert made.groups("gcc-14") == {"original": "A", "no-batch": "B"}
    same = replace(made.cell("original", "gcc-14"), row="no-batch")
    cells = tuple(same if (c.row, c.column) == ("no-batch", "gcc-14") else c for c in made.cells)
    assert replace(made, cells=cells).groups("gcc-14") == {"original": "A", "no-batch": "A"}


def test_more_compilers_than_fit_take_another_table() -> None:
    made = matrix()
    names = tuple(f"gcc-{number}" for number in range(10, 25))
    first = made.cells[0]
    wide = replace(
        made, rows=("original",), columns=names,
        cells=tuple(replace(first, column=name) for name in names),
    )  # fmt: skip
    shown = plain(codegen.show(wide)).splitlines()
    assert max(map(len, shown)) <= 100
    assert sum(line.count("591/148 A") for line in shown) == len(names)


def test_counts_beside_the_listing_are_told() -> None:
    made = matrix()
    first = made.cells[0]
    assert first.hot is not None
    patched = replace(first, hot=replace(first.hot, elsewhere=2 * PAGES))
    shown = plain(codegen.show(replace(made, cells=(patched, *made.cells[1:]))))
    assert "17.00 (15)" in shown
    assert "original gcc-12: of these 2.00 per page ran where the listing has no" in shown


class Checker(HTMLParser):
    """Every tag is closed, and nothing is loaded or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "img", "link", "object", "embed")
        assert not [name for name, _ in attrs if name.startswith("on") or name == "src"]
        assert all((value or "").startswith("#") for name, value in attrs if name == "href")
        if tag not in ("meta", "col"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_is_whole_and_loads_nothing() -> None:
    content = page.show_html(matrix())
    checker = Checker()
    checker.feed(content)
    checker.close()
    assert checker.open == []
    assert "http:" not in content
    assert "https:" not in content
    assert "default-src 'none'" in content
    words = " ".join(checker.words)
    for instruction in code("present-first.gcc-12").normal:
        assert instruction in words


def test_a_listing_has_a_jump_to_its_hot_part_and_one_that_ran_nowhere_has_none() -> None:
    content = page.show_html(matrix())
    assert content.count('href="#hot-1"') == 1
    (row,) = re.findall(r'<tr class="\w+" id="hot-1">(.*?)</tr>', content, re.DOTALL)
    assert f">{LOOP[0]}<" in row
    assert 'id="hot-2"' not in content


def test_everything_in_the_page_is_escaped() -> None:
    evil = '"><script>alert(1)</script>\x1b[31m'
    made = matrix()
    first = made.cells[0]
    assert first.code is not None
    instruction = replace(first.code.instructions[0], text=evil, references=(evil,))
    changed = replace(first.code, instructions=(instruction, *first.code.instructions[1:]))
    spoiled = replace(
        made,
        function=evil,
        title=evil,
        place=evil,
        banners={"gcc-12": evil},
        notes=(evil,),
        cells=(replace(first, code=changed, problem=evil), *made.cells[1:]),
    )
    content = page.show_html(spoiled)
    checker = Checker()
    checker.feed(content)
    assert "<script" not in content
    assert "\x1b" not in content
    assert sum(word.startswith('"><script>alert(1)</script>?[31m') for word in checker.words) >= 5
    shown = plain(codegen.show(spoiled)) + plain(codegen.listing(spoiled.cells[0]))
    assert "\x1b" not in shown
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", shown)
