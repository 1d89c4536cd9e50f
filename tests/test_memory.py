# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that a window touched, and values that functions had, from what the plugin wrote."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

import counts_stream as stream
from kdelta.attribution import insns
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.errors import SpecError
from kdelta.probes import memory, values
from kdelta.probes.memory import EVERYWHERE, Map, MemoryRow, What
from kdelta.study import probes

DIRECT, PAGES, VMALLOC = 0xFF11000000000000, 0xFFD4000000000000, 0xFFA0000000000000
FLAT = 0xFFFF888000000000
TEXT = 0xFFFFFFFF81000000
TABLE = Symbols((TEXT, TEXT + 0x1000), ("walk", UNKNOWN))
PLAIN = 0xFFFFFFFF
NAMES = ("[unknown]", "walk", "zap")


def touched(pages: list[tuple[int, ...]], lines: list[tuple[int, int]]) -> insns.Touched:
    flat = (array("Q", [word for row in rows for word in row]) for rows in (pages, lines))
    return insns.Touched(pages=next(flat), lines=next(flat))


def places(architecture: str, release: str) -> Map:
    found = memory.of(architecture, release)
    assert found
    return found


def kinds(release: str, *page: int, architecture: str) -> What:
    """What a page is told to be that is read once."""
    one = touched([page], [(1, page[0] & ~0xFFF | 1)])
    found = memory.memory([one], NAMES, TABLE, release, places(architecture, release))
    assert {row.what for row in found} == {found[0].what}
    return found[0].what


PAGES_OF = {
    "amd64": [("6.17.13", (DIRECT, 0, 0, 0x1F2000000), What.PAGE_TABLE),
              ("6.17.13", (DIRECT, 0, 0, 0xF5000000), What.SLAB),
              ("6.17.13", (DIRECT, 0, 0xFFFF888000000001, 3), What.ANON),
              ("6.17.13", (DIRECT, 0, 0xFFFF888000000000, PLAIN), What.FILE),
              ("6.17.13", (DIRECT, 1 << 13, 0, PLAIN), What.RESERVED),
              ("6.17.13", (FLAT, 0, 0, PLAIN), What.PAGES),
              ("6.1.192-1", (FLAT, 1 << 9, 5, PLAIN), What.SLAB),
              ("6.1.192-1", (FLAT, 0, 0, PLAIN & ~0x200), What.PAGE_TABLE),
              ("6.1.192-1", (FLAT, 1 << 12, 0, PLAIN), What.RESERVED),
              ("6.10.3", (FLAT, 0, 0, 0xF2000000), What.PAGES),
              ("6.17.13", (DIRECT | 2, 0, 0, PLAIN), What.PER_CPU),
              ("6.17.13", (VMALLOC | 1, 0, 0, PLAIN), What.STACK),
              ("6.17.13", (VMALLOC, 0, 0, PLAIN), What.VMALLOC),
              ("6.17.13", (PAGES, 0, 0, PLAIN), What.STRUCT_PAGE),
              ("6.17.13", (TEXT, 0, 0, PLAIN), What.TEXT),
              ("6.17.13", (TEXT + 0x1000, 0, 0, PLAIN), What.DATA),
              ("6.17.13", (0xFFFFFFFFC0001000, 0, 0, PLAIN), What.MODULE),
              ("6.17.13", (0xFFFFFE0000002000, 0, 0, PLAIN), What.OTHER)],
    "arm64": [("6.17.13", (0xFFFF000000000000, 0, 0, 0x1F2000000), What.PAGE_TABLE),
              ("6.17.13", (0xFFFF00005FFFF000, 0, 0, 0xF5000000), What.SLAB),
              ("6.17.13", (0xFFFFFDFFC0000000, 0, 0, PLAIN), What.STRUCT_PAGE),
              ("6.17.13", (0xFFFF800080010000, 0, 0, PLAIN), What.DATA),
              ("6.17.13", (0xFFFF80007B000000, 0, 0, PLAIN), What.MODULE),
              ("6.17.13", (0xFFFF8000A0000000, 0, 0, PLAIN), What.VMALLOC),
              ("6.17.13", (0xFFFF800089000000 | 1, 0, 0, PLAIN), What.STACK),
              ("6.17.13", (0xFFFFFFFFFFFF0000, 0, 0, PLAIN), What.OTHER),
              ("6.1.192", (0xFFFFFC0000000000, 0, 0, PLAIN), What.STRUCT_PAGE),
              ("6.1.192", (0xFFFF800008010000, 0, 0, PLAIN), What.DATA),
              ("6.1.192", (0xFFFF000000000000, 0, 0, PLAIN & ~0x200), What.PAGE_TABLE)],
    "riscv64": [
        ("7.2.13", (0xFFFFFFD600000000, 0, 0, 0x1F2000000), What.PAGE_TABLE),
        ("7.2.13", (0xFFFFFFD63FFFF000, 0, 0, 0xF5000000), What.SLAB),
        ("7.2.13", (0xFFFFFFC502000000, 0, 0, PLAIN), What.STRUCT_PAGE),
        ("7.2.13", (0xFFFFFFC600010000, 0, 0, PLAIN), What.VMALLOC),
        ("7.2.13", (0xFFFFFFFF80200000, 0, 0, PLAIN), What.DATA),
        ("7.2.13", (0xFFFFFFFF01000000, 0, 0, PLAIN), What.MODULE),
        ("7.2.13", (0xFF60000000001000, 0, 0, 0x1F2000000), What.PAGE_TABLE),  # Sv57
        ("7.2.13", (0xFFFFAF8000001000, 0, 0, 0x1F2000000), What.PAGE_TABLE),  # Sv48
        ("7.2.13", (0xFFFFFFC4FEA00000, 0, 0, PLAIN), What.OTHER),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "release", "page", "what"),
    [(name, *row) for name, rows in PAGES_OF.items() for row in rows],
)
def test_what_a_page_is(architecture: str, release: str, page: tuple[int, ...], what: What) -> None:
    assert kinds(release, *page, architecture=architecture) is what


def test_where_memory_is_told_to_the_plugin() -> None:
    assert places("arm64", "6.17").option == "ffff000000000000:ffff800000000000:fffffdffc0000000"
    assert places("amd64", "6.17").option.count("+") == 1
    assert places("riscv64", "6.17.8").option.startswith("ffffffd600000000:fffffff600000000:")
    # Its first struct page is that of the machine's first page of memory, later that of page 0.
    assert "c500000000+" in places("riscv64", "6.17.8").option
    assert "c502000000+" in places("riscv64", "7.2.13+deb14-riscv64").option
    assert memory.of("riscv64", "6.12") is None  # nobody looked
    assert memory.of("riscv64", "") is not None


def test_lines_are_distinct_by_function_and_in_all() -> None:
    page = (PAGES, 0, 0, PLAIN)
    one = touched([page], [(1, PAGES | 1), (1, PAGES + 64 | 3), (2, PAGES | 2), (2, 0x4000 | 1)])
    found = memory.memory([one, one], NAMES, TABLE, "6.17", places("amd64", "6.17"))
    assert found == (
        MemoryRow(EVERYWHERE, What.STRUCT_PAGE, 4, 4, 4, 2),
        MemoryRow("walk", What.STRUCT_PAGE, 4, 4, 2, 2),
        MemoryRow(EVERYWHERE, What.USER, 2, 2, 0, 2),
        MemoryRow("zap", What.STRUCT_PAGE, 2, 0, 2, 2),
        MemoryRow("zap", What.USER, 2, 2, 0, 2),
    )


def test_the_plugin_s_words_are_those_of_their_window(tmp_path: Path) -> None:
    records = [
        stream.HEADER, stream.ARMED, [11, 4, PAGES, 0, 0, PLAIN], [12, 2, 1, PAGES | 1],
        [13, 3, 0, 7, 2], stream.window({stream.KERNEL: 3}), stream.window({stream.KERNEL: 3}),
    ]  # fmt: skip
    first, second = insns.read(stream.write(tmp_path / "counts", *records)).windows
    assert [part.lines.tolist() for part in first.touched] == [[1, PAGES | 1]]
    assert first.values.tolist() == [0, 7, 2]
    assert (second.touched, second.values.tolist()) == ((), [])


def test_a_value_is_read_in_functions_of_its_name_alone() -> None:
    at = TEXT
    table = Symbols((at, at + 16, at + 32, at + 48), ("f", "f.isra.0", "f", UNKNOWN))
    wanted = [values.ReadAt(function="f", argument=4), values.ReadAt(function="g", argument=0)]
    found = values.places(wanted, table)
    assert found.rows.tolist() == [at, at + 16, 3 << 1, at + 32, at + 48, 3 << 1]
    assert (found.of, found.missing) == ((0, 0), (1,))
    assert values.places([values.ReadAt(function="f", argument=0)], table).rows[2] == 8 << 1 | 1


def test_registers_become_values_of_their_form() -> None:
    value = probes.value("f(n=ret:i32)")
    assert value
    assert (value.function, value.name, value.argument) == ("f", "n", 0)
    assert [value.read(n) for n in (5, 0xFFFFFFFF, 0x12345678FFFFFFFE)] == [5, -1, -2]
    whole = probes.value("f(n=arg2)")
    assert whole
    assert whole.argument == 2
    assert whole.read((1 << 64) - 1) == (1 << 64) - 1
    assert probes.value(probes.CALLS) is None


@pytest.mark.parametrize("text", ["f(n=arg7)", "f(n=arg4:u65)", "f", "f(n)", "f(n=ret)x"])
def test_a_probe_that_is_none_is_refused(text: str) -> None:
    from kdelta.study import spec

    with pytest.raises(SpecError, match="probes"):
        spec.from_arguments(["a:b"], ["6.1", "6.2"], probes=[text])
