# SPDX-License-Identifier: GPL-2.0-or-later
"""Whom a cause names: the caller in its own kernel, and a function of the other by its name."""

from __future__ import annotations

from kdelta.analysis.calls import CauseKind, difference
from kdelta.rendering.explain import Scale, cause_sentence
from test_calls import nodes


def test_what_code_that_moved_calls_is_called_there() -> None:
    """mprotect(), 6.16 -> 6.17: change_pte_range() was part of change_protection()."""
    old = nodes((-1, "change_protection", 1, 1000), (0, "pte_lock", 1, 20))
    new = nodes(
        (-1, "change_protection", 1, 100), (0, "change_pte_range", 1, 880), (1, "pte_lock", 1, 20),
        (1, "vm_normal_page", 9, 300),
    )  # fmt: skip
    causes = difference([old], [new]).causes
    assert (causes[0].kind, causes[0].function, causes[0].caller) == (
        CauseKind.NEW, "vm_normal_page", "change_pte_range",
    )  # fmt: skip
    assert sum(cause.delta for cause in causes) == 280


def test_only_a_name_that_is_akin_is_the_same_function() -> None:
    """UDP, 6.17 -> 6.18: skb_attempt_defer_free() is called where __consume_stateless_skb() was."""
    old = nodes((-1, "skb_consume", 1, 10), (0, "__consume_stateless_skb", 1, 90))
    told = {}
    for name in ("skb_attempt_defer_free", "consume_stateless_skb"):
        found = difference([old], [nodes((-1, "skb_consume", 1, 10), (0, name, 1, 99))])
        (cause,) = found.causes
        told[name] = cause_sentence(cause, Scale(1, 0)), found.root.children[0].children[0].note
    words, note = told["skb_attempt_defer_free"]
    assert words.startswith("skb_attempt_defer_free, in the place of __consume_stateless_skb: its")
    assert note == "in place of __consume_stateless_skb"
    words, note = told["consume_stateless_skb"]
    assert "which was __consume_stateless_skb" in words
    assert note == "was __consume_stateless_skb"


def test_what_is_gone_was_called_by_its_caller_s_old_name() -> None:
    """mincore(), 7.2 -> 7.3: walk_page_range_vma() does not look for the mapping."""
    old = nodes((-1, "sys", 1, 10), (0, "walk_range_mm_unsafe", 1, 90), (1, "find_vma", 1, 50))
    new = nodes((-1, "sys", 1, 10), (0, "walk_range_vma_unsafe", 1, 80))
    assert [(c.kind, c.function, c.caller) for c in difference([old], [new]).causes] == [
        (CauseKind.VANISHED, "find_vma", "walk_range_mm_unsafe"),
        (CauseKind.RENAMED, "walk_range_vma_unsafe", "sys"),
    ]
    assert Scale(1000, 1).times(1001) == "once"


def test_what_is_called_more_seldom_is_no_part_of_its_new_caller() -> None:
    """A fault of shared memory, 6.12 -> 6.16: a time stamp a page, and now one for 155 pages."""
    old = nodes((-1, "update", 155, 100), (0, "truncate", 155, 1550))
    new = nodes((-1, "update", 155, 100), (0, "set_ctime", 1, 30), (1, "truncate", 1, 10))
    assert {(c.kind, c.function, c.delta) for c in difference([old], [new]).causes} == {
        (CauseKind.VANISHED, "truncate", -1550),
        (CauseKind.NEW, "set_ctime", 40),
    }
    often = nodes((-1, "update", 155, 100), (0, "set_ctime", 155, 3000), (1, "truncate", 150, 1500))
    (cause,) = difference([old], [often]).causes
    assert (cause.kind, cause.into, cause.delta) == (CauseKind.NEW, ("truncate",), 2950)
