# SPDX-License-Identifier: GPL-2.0-or-later
"""riscv64: an address made of two instructions is named, and only where objdump says it."""

from __future__ import annotations

from kdelta import arch
from kdelta.disassembly.code import Function, named
from kdelta.disassembly.objdump import Row

START = 0xFFFFFFFF80010000


def texts(*rows: tuple[str, int | None]) -> list[str]:
    """What instructions of 4 bytes look like; rows: as objdump says them, and its comment."""
    built = [
        Row(offset=4 * at, size=4, text=text, address=address)
        for at, (text, address) in enumerate(rows)
    ]
    function = Function(
        name="f",
        code=bytes(4 * len(built)),
        start=START,
        names=lambda place: {0x1010: "jiffies", 0x2020: "callee"}.get(place, ""),
    )
    return [each.text for each in named(function, built, arch.of("riscv64")).instructions]


def test_both_halves_of_an_address_are_one_name() -> None:
    load = [("auipc a5,0x10", None), ("ld a4,16(a5)", 0x1010)]
    assert texts(*load) == ["auipc a5", "ld a4,jiffies(a5)"]
    made = [("auipc a1,0x30", None), ("add a1,a1,4", 0x1010)]
    assert texts(*made) == ["auipc a1", "add a1,a1,jiffies"]
    call = [("auipc ra,0x1", None), ("jalr 8(ra)", 0x2020)]
    assert texts(*call) == ["auipc ra", "jalr callee(ra)"]
    tail = [("auipc t1,0x1", None), ("jr 8(t1)", 0x2020)]
    assert texts(*tail) == ["auipc t1", "jr callee(t1)"]


def test_an_upper_half_that_nothing_completes_keeps_its_number() -> None:
    """Else two functions that mean places 4 KiB apart would look the same."""
    assert texts(("auipc a5,0x10", None), ("ld a4,16(a5)", None)) == [
        "auipc a5,0x10",
        "ld a4,16(a5)",
    ]
    unknown = [("auipc a5,0x10", None), ("ld a4,16(a5)", 0x3030)]
    assert texts(*unknown) == ["auipc a5,0x10", "ld a4,16(a5)"]


def test_of_two_upper_halves_the_one_of_the_register_is_completed() -> None:
    rows = [
        ("auipc a3,0x20", None),
        ("auipc a5,0x10", None),
        ("auipc a3,0x21", None),
        ("sd a3,16(a5)", 0x1010),
        ("ld a2,32(a3)", 0x2020),
    ]
    assert texts(*rows) == [
        "auipc a3,0x20",
        "auipc a5",
        "auipc a3",
        "sd a3,jiffies(a5)",
        "ld a2,callee(a3)",
    ]
