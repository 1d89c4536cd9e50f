# SPDX-License-Identifier: GPL-2.0-or-later
"""arm64: addresses that two instructions make are named, and only where that is certain."""

from __future__ import annotations

import pytest

from kdelta.disassembly.code import completed_pages, with_page_name

PAGE = 0xFFFF800081234000


def test_a_page_and_its_offset_are_one_address() -> None:
    texts = [f"adrp x0, {PAGE:#x}", "nop", "add x0, x0, #0x230", "ldr x1, [x0, #8]"]
    assert completed_pages(texts, set()) == {0: PAGE + 0x230, 2: PAGE + 0x230}


def test_loads_and_stores_complete_a_page_too() -> None:
    texts = [f"adrp x21, {PAGE:#x}", "ldr w0, [x21, #64]", "str w0, [x21, #72]", "ldrb w2, [x21]"]
    assert completed_pages(texts, set()) == {0: PAGE + 64, 1: PAGE + 64, 2: PAGE + 72, 3: PAGE}


@pytest.mark.parametrize(
    "between",
    ["mov x0, x5", "ldr x0, [x9]", "ldp x1, x0, [sp]", "bl 0xffff800080000000", "blr x3"],
)
def test_a_register_that_was_written_again_is_not_used(between: str) -> None:
    texts = [f"adrp x0, {PAGE:#x}", between, "add x0, x0, #0x230"]
    assert completed_pages(texts, set()) == {}


@pytest.mark.parametrize(
    "between", ["str x0, [x9]", "cmp x0, x1", "mov x1, x0", "stp x1, x0, [sp]"]
)
def test_a_register_that_was_only_read_is_still_known(between: str) -> None:
    texts = [f"adrp x0, {PAGE:#x}", between, "add x2, x0, #0x230"]
    assert completed_pages(texts, set()) == {0: PAGE + 0x230, 2: PAGE + 0x230}


def test_behind_a_branch_target_nothing_is_certain() -> None:
    texts = [f"adrp x0, {PAGE:#x}", "nop", "add x0, x0, #0x230"]
    assert completed_pages(texts, {1}) == {}
    assert completed_pages(texts, {0})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"adrp x0, {PAGE:#x}", "adrp x0, jiffies"),
        ("add x0, x0, #0x230", "add x0, x0, jiffies"),
        ("ldr w1, [x0, #8]", "ldr w1, [x0, jiffies]"),
        ("ldr w1, [x0]", "ldr w1, [x0, jiffies]"),
    ],
)
def test_the_numbers_become_the_name(text: str, named: str) -> None:
    assert with_page_name(text, "jiffies") == named
