# SPDX-License-Identifier: GPL-2.0-or-later
"""Two listings side by side: every instruction once, and branches by where they go."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kdelta.codegen.table import Change, changed_names, compare
from kdelta.disassembly import objects
from kdelta.disassembly.code import Code, Flow, Instruction

DATA = Path(__file__).resolve().parent / "data" / "codegen"


def code(*lines: str) -> Code:
    """Instructions of one byte; "je @3" is a branch to the third."""
    made = []
    for at, line in enumerate(lines):
        text, at_sign, to = line.partition("@")
        made.append(
            Instruction(
                offset=at,
                size=1,
                text=text + at_sign,
                raw=line,
                kind=Flow.JUMP if at_sign else Flow.PLAIN,
                to=int(to) if at_sign else None,
            )
        )
    return Code(name="f", arch="amd64", size=len(made), instructions=tuple(made))


def test_an_insertion_moves_targets_and_changes_nothing_else() -> None:
    left = code("a", "je @3", "b", "c")
    right = code("a", "je @4", "b", "new", "c")
    found = compare(left, right)
    assert not found.equal
    assert found.counts == {Change.EQUAL: 4, Change.RIGHT: 1}


def test_the_same_branch_to_another_place_is_seen() -> None:
    found = compare(code("a", "je @2", "b", "c"), code("a", "je @3", "b", "c"))
    assert [row.change for row in found.rows] == [
        Change.EQUAL, Change.TARGET, Change.EQUAL, Change.EQUAL,
    ]  # fmt: skip
    assert not found.equal


def test_hunks_have_context_and_leave_out_the_rest() -> None:
    lines = [str(number) for number in range(30)]
    other = [*lines[:10], "x", *lines[11:]]
    (hunk,) = compare(code(*lines), code(*other)).hunks(2)
    assert [row.left for row in hunk] == [8, 9, 10, 11, 12]


def test_the_real_difference_is_one_row() -> None:
    left, right = (
        objects.read(DATA / f"{name}.gcc-14.elf", "mincore_pte_range").code
        for name in ("original", "no-batch")
    )
    found = compare(left, right)
    assert found.counts == {Change.EQUAL: 146, Change.CHANGED: 1}
    assert compare(left, left).equal


listings = st.lists(
    st.sampled_from(["a", "b", "c", "je @0", "je @1", "jmp @2"]), min_size=3, max_size=25
)


@given(listings, listings)
def test_every_instruction_is_in_one_row_and_in_order(left: list[str], right: list[str]) -> None:
    one, other = code(*left), code(*right)
    found = compare(one, other)
    assert [row.left for row in found.rows if row.left is not None] == list(range(len(left)))
    assert [row.right for row in found.rows if row.right is not None] == list(range(len(right)))
    assert found.equal == (one.normal == other.normal)


def test_repetitions_of_names_count() -> None:
    change = changed_names(["lock", "put"], ["lock", "lock", "get"])
    assert change.added == (("get", 1), ("lock", 1))
    assert change.removed == (("put", 1),)
    assert changed_names(["a", "b"], ["b", "a"]).nothing
