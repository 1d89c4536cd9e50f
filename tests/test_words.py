# SPDX-License-Identifier: GPL-2.0-or-later
"""Code of arm64 that moved is the same, and what is another thing is not."""

from __future__ import annotations

import struct

import pytest

from kdelta.disassembly import arm64

NOP, RET = 0xD503201F, 0xD65F03C0
OLD, NEW = 0x10000, 0x14000
# What lies where: the same in both kernels, 0x4000 higher in the new one.
PLACES = {0x20000: "callee", 0x30010: "data", 0x30020: "other"}


def bl(target: int, at: int) -> int:
    return 0x94000000 | ((target - at) >> 2 & 0x3FFFFFF)


def adrp(register: int, target: int, at: int) -> int:
    pages = (target >> 12) - (at >> 12)
    return 0x90000000 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5 | register


def add(register: int, offset: int) -> int:
    return 0x91000000 | (offset & 0xFFF) << 10 | register << 5 | register


def load(register: int, base: int, offset: int) -> int:
    return 0xF9400000 | (offset >> 3) << 10 | base << 5 | register


def alike(one: list[int], other: list[int], shift: int = 0x4000) -> bool:
    def same(x: int, y: int) -> bool:
        return x in PLACES and PLACES[x] == PLACES.get(y - shift)

    mine, theirs = (struct.pack(f"<{len(code)}I", *code) for code in (one, other))
    return arm64.same_words(mine, theirs, OLD, NEW, same)


def test_a_call_of_the_same_function_is_the_same() -> None:
    one, other = [NOP, bl(0x20000, OLD + 4), RET], [NOP, bl(0x24000, NEW + 4), RET]
    assert alike(one, other)
    assert not alike(one, [NOP, bl(0x24004, NEW + 4), RET])
    jump = bl(0x24000, NEW + 4) & ~0x80000000
    assert not alike(one, [NOP, jump, RET])


@pytest.mark.parametrize("use", [lambda low: [add(0, low)], lambda low: [load(1, 0, low)],
                                 lambda low: [NOP, load(0, 0, low)]])  # fmt: skip
def test_an_address_of_two_instructions_is_taken_together(use) -> None:  # type: ignore[no-untyped-def]
    one = [adrp(0, 0x30010, OLD), *use(0x10)]
    assert alike(one, [adrp(0, 0x34010, NEW), *use(0x10)])
    assert not alike(one, [adrp(0, 0x34020, NEW), *use(0x20)])
    assert not alike(one, [adrp(0, 0x35010, NEW), *use(0x10)])


def test_a_page_that_nothing_completes_is_not_known_to_be_the_same() -> None:
    assert not alike([adrp(0, 0x30010, OLD), RET], [adrp(0, 0x34010, NEW), RET])
    # Read for the page of another register, which says nothing of this one.
    assert not alike(
        [adrp(0, 0x30010, OLD), load(1, 2, 0x10)], [adrp(0, 0x34010, NEW), load(1, 2, 0x10)]
    )


def test_any_other_difference_is_one() -> None:
    assert alike([NOP, RET], [NOP, RET])
    assert not alike([NOP, RET], [RET, NOP])
    assert not alike([load(1, 2, 8)], [load(1, 2, 16)])
    assert not alike([NOP], [NOP, NOP])
