# SPDX-License-Identifier: GPL-2.0-or-later
"""A difference by kinds of work, memory and values, and the sentences that explain begins with."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from kdelta.analysis.calls import CauseKind, difference
from kdelta.analysis.explanation import Explanation, Presence, StringBytes, explain, rest
from kdelta.analysis.work import Called, KindDelta, WorkExplanation, compared
from kdelta.cli import explain as explain_cli
from kdelta.errors import SpecError
from kdelta.journal import artifacts, results
from kdelta.journal.run import RunRecord
from kdelta.ladder.ladders import LadderStep
from kdelta.metric import Grade
from kdelta.probes.calls import PathNode
from kdelta.probes.memory import EVERYWHERE, MemoryRow, What
from kdelta.probes.sharing import FieldRow, SharingRow
from kdelta.probes.work import Kind, WorkRow
from kdelta.rendering import explain as page
from kdelta.rendering.explain import Scale
from kdelta.rendering.explain import cause_sentence as cause_told
from kdelta.rendering.formats import written
from kdelta.rendering.sentences import by_function, difference_sentences, may_have_moved
from kdelta.table.columns import plain
from ladder_records import PAGES, ladder
from run_records import kept

IDLE = (WorkRow("walk", Kind.FENCE, 0),)
OLD = artifacts.TrialDetails(
    work={"protect": (WorkRow("walk", Kind.LOAD, 5 * PAGES), WorkRow("walk", Kind.FENCE, PAGES)),
          "restore": (WorkRow("walk", Kind.LOAD, 5 * PAGES),), "touch": IDLE},
    memory={
        "protect": (MemoryRow(EVERYWHERE, What.PAGE_TABLE, 10, 10, 5, 1),
                    MemoryRow("walk", What.PAGE_TABLE, 10, 10, 5, 1)),
    },
    values={"protect": {"f(n=arg1)": artifacts.Histogram(values={"8": 16})}},
)  # fmt: skip
NEW = artifacts.TrialDetails(
    work={"protect": (WorkRow("walk.isra.0", Kind.LOAD, 4 * PAGES),
                      WorkRow("commit", Kind.LOAD, 200 * PAGES),
                      WorkRow("commit", Kind.FENCE, PAGES), WorkRow("commit", Kind.ATOMIC, PAGES)),
          "restore": (WorkRow("walk", Kind.LOAD, 5 * PAGES),), "touch": IDLE},
    memory={
        "protect": (MemoryRow(EVERYWHERE, What.PAGE_TABLE, 10, 10, 5, 1),
                    MemoryRow(EVERYWHERE, What.STRUCT_PAGE, PAGES, PAGES, 0, PAGES // 64),
                    MemoryRow("walk", What.PAGE_TABLE, 10, 10, 5, 1),
                    MemoryRow("commit", What.STRUCT_PAGE, PAGES, PAGES, 0, PAGES // 64)),
    },
    values={"protect": {"f(n=arg1)": artifacts.Histogram(values={"1": 128})}},
)  # fmt: skip


@pytest.fixture
def found() -> Explanation:
    return explain(ladder(), "6.16", "6.17")


@pytest.fixture
def work(found: Explanation) -> WorkExplanation:
    return compared(found, side(OLD), side(NEW))


def side(told: artifacts.TrialDetails) -> list[tuple[artifacts.TrialDetails, str]]:
    return [(told, phase) for phase in ("protect", "restore")]


def kind(rows: tuple[KindDelta, ...] | None, group: str, name: str) -> KindDelta:
    return next(row for row in rows or () if (row.group, row.kind) == (group, name))


def test_kinds_are_summed_over_phases_and_clones_are_their_function(work: WorkExplanation) -> None:
    loads = kind(work.work, "work", Kind.LOAD)
    assert (loads.old, loads.new) == (10 * PAGES, 209 * PAGES)
    assert loads.where == (("commit", 200 * PAGES), ("walk", -PAGES))
    fences = kind(work.work, "work", Kind.FENCE)
    assert (fences.delta, dict(fences.where)) == (0, {"commit": PAGES, "walk": -PAGES})


def test_a_renamed_function_is_one_in_all_parts(found: Explanation) -> None:
    """__mod_memcg_lruvec_state() of 6.12 is mod_memcg_lruvec_state() of 6.16."""
    row = replace(found.functions[0], function="commit", was="__commit")
    renamed = replace(found, functions=(row, *found.functions[1:]))
    old = artifacts.TrialDetails(work={"protect": (WorkRow("__commit", Kind.LOAD, PAGES),)})
    told = compared(renamed, side(old), side(NEW))
    assert kind(told.work, "work", Kind.LOAD).where[0] == ("commit", 199 * PAGES)
    assert renamed.names("commit") == renamed.names("__commit") == ("__commit", "commit")
    assert renamed.names("walk") == ("walk", "walk")


def test_lines_begin_with_the_verdict_and_the_objects_that_moved_most(found: Explanation) -> None:
    lock, gone = "mm_struct.mmap_lock", "file.f_ref"
    old = SharingRow(EVERYWHERE, What.SLAB, gone, PAGES, 0, 0, 0)
    new = (
        SharingRow(EVERYWHERE, What.SLAB, lock, 2 * PAGES, 2 * PAGES, PAGES, 0),
        SharingRow("down_read", What.SLAB, lock, PAGES, 2 * PAGES, PAGES, 0),
        SharingRow("peek", What.SLAB, lock, PAGES, 0, 0, 0),
    )
    told = [artifacts.TrialDetails(sharing={"protect": rows}) for rows in ((old,), new)]
    step = LadderStep(
        old="6.16.12", new="6.17.13", old_value=1, new_value=2, operation="page",
        comparison=replace(found.comparison, ratio=2.0, grade=Grade.EXACT_LINES),
    )  # fmt: skip
    shared = replace(compared(found, *map(side, told)), lines=step)
    text = " ".join(plain(page.WORK_VIEW.show((shared, "sharing"))).split())
    assert "x2.000 from 6.16.12 to 6.17.13: 1.00 -> 2.00 lines per page (exact-lines): up" in text
    assert f"; new: {lock}, written in down_read(), read in peek() (+2); gone: {gone} (-1)" in text
    held = json.loads(written("json", page.WORK_VIEW, (shared, "sharing")))
    assert held["lines"]["new_value"] == 2


def test_members_that_come_into_one_line_are_named(found: Explanation) -> None:
    """What is in one line on both, and what the other kernel has not, says nothing of a move."""
    fields = tuple(
        FieldRow("mm", at, name, function, written)
        for at, name, function, written in (
            (0, "lock", "down_read", True), (4, "owner", "peek", False), (8, "count", "get", False),
            (12, "new", "look", False),
        )
    )  # fmt: skip
    apart = artifacts.TrialDetails(members={"mm": {"lock": 64, "owner": 68, "count": 0}})
    here = {"lock": 0, "owner": 4, "count": 8, "new": 12}
    told = artifacts.TrialDetails(sharing={}, fields={"protect": fields}, members={"mm": here})
    both = compared(found, side(apart), side(told)), compared(found, side(told), side(apart))
    for old, new, work in (("6.16.12", "6.17.13", both[0]), ("6.17.13", "6.16.12", both[1])):
        shown = plain(page.WORK_VIEW.show((replace(work, sharing=()), "sharing")))
        said = "struct mm: lock (written in down_read()) and count (read in get()) share line 0 on"
        assert f"{said} {new}, not on {old}." in " ".join(shown.split())
        assert len(work.layout) == 1


def test_memory_is_of_all_functions_once(work: WorkExplanation) -> None:
    lines = kind(work.memory, "lines", What.STRUCT_PAGE)
    assert (lines.old, lines.new, lines.where) == (0, PAGES, (("commit", PAGES),))
    assert kind(work.memory, "lines written", What.PAGE_TABLE).old == 5
    assert kind(work.memory, "pages", What.STRUCT_PAGE).new == PAGES // 64


def test_memory_that_was_not_recorded_is_none_and_not_zero(found: Explanation) -> None:
    bare = artifacts.TrialDetails(work=OLD.work)
    assert compared(found, side(bare), side(NEW)).memory is None


def test_calls_of_locks_are_found_by_name(found: Explanation) -> None:
    rows = tuple(
        replace(found.functions[0], function=name, calls_old=calls, calls_new=2 * calls)
        for name, calls in (("_raw_spin_lock", 3), ("up_read", 4), ("__rcu_read_lock", 5))
    )
    told = compared(replace(found, functions=rows), side(OLD), side(NEW))
    assert kind(told.work, "calls", Called.LOCK).old == 7
    assert kind(told.work, "calls", Called.RCU).new == 10


def test_each_sentence_has_its_figures(found: Explanation, work: WorkExplanation) -> None:
    old = found.old_value or 0
    new = found.new_value or 0
    calls = difference(
        [[PathNode(-1, "walk", 1, old)]],
        [[PathNode(-1, "walk", 1, old), PathNode(0, "commit", PAGES, new - old)]],
    )
    told = difference_sentences(found, calls, work)
    assert 3 <= len(told) <= 6
    text = " ".join(told)
    assert f"({(new - old) / PAGES:+.1f}, x{new / old:.3f})" in text
    assert "commit is newly called in walk, once" in text
    assert (
        "It takes 199 more loads and 1 more atomic instruction per page. Lines of 64 bytes" in text
    )
    assert "+1.0 of struct page (0 -> 1.0, in commit)" in text
    assert all(re.search(r"\d", sentence) for sentence in told[:-1])


def test_without_call_paths_or_work_what_is_left_is_told(found: Explanation) -> None:
    told = difference_sentences(found, None, None)
    assert told[1].startswith("By function it is ")
    assert not any("Lines of" in sentence or "loads" in sentence for sentence in told)
    assert difference_sentences(replace(found, refused=True), None, None) == []


def test_what_went_as_a_whole_is_led_by_its_top(found: Explanation) -> None:
    """process_madvise(), 6.16 -> 6.17: find_vma() is gone, most of which was mt_find()."""
    entry = [(-1, "main", 1, 9), (0, "entry_SYSCALL_64", 1, 5), (1, "do_syscall_64", 1, 10)]
    chain = [*entry, (2, "walk", 1, 50)]
    old = [PathNode(*row) for row in [*chain, (3, "find_vma", 1, 10), (4, "mt_find", 1, 500)]]
    calls = difference([old], [[PathNode(*row) for row in chain]])
    text = " ".join(difference_sentences(found, calls, None))
    assert "At least 80 % of it lies in find_vma and below." in text
    rare = Scale(operations=64, places=2)
    (cause,) = calls.causes
    assert cause_told(cause, rare) == (
        "find_vma is no longer called in walk (before: once in 64), with all below"
    )
    assert cause_told(replace(cause, kind=CauseKind.CHANGED, calls_new=128), rare) == (
        "find_vma: its own code, called 2 times (before: once in 64)"
    )


@pytest.mark.parametrize("deepest", ["main", "do_syscall_64", "asm_exc_page_fault", "el0_svc"])
def test_what_all_goes_through_is_no_place(found: Explanation, deepest: str) -> None:
    """munmap() is below main() and do_syscall_64(), and nobody learns from that."""
    names = ("main", "entry_SYSCALL_64", deepest)[: 1 if deepest == "main" else 3]
    chain = [PathNode(at - 1, name, 1, 10) for at, name in enumerate(names)]
    both = [PathNode(len(chain) - 1, name, 1, PAGES) for name in ("a", "b")]
    calls = difference([chain], [[*chain, *both]])
    assert "lies in" not in " ".join(difference_sentences(found, calls, None))
    walk = [*chain, PathNode(len(chain) - 1, "walk", 1, 5)]
    below = [structs.replace(one, parent=len(chain)) for one in both]
    told = " ".join(difference_sentences(found, difference([walk], [[*walk, *below]]), None))
    assert ("lies in walk and below" in told) == (deepest != "main")


def test_a_thread_is_no_place_though_the_kernel_began_it(found: Explanation) -> None:
    names = ("main", "entry_SYSCALL_64", "ret_from_fork_asm", "start_thread", "do_syscall_64")
    chain = [PathNode(at - 1, name, 1, 10) for at, name in enumerate(names)]
    both = [PathNode(at, name, 1, PAGES) for at, name in ((4, "zap"), (4, "walk"), (3, "exit"))]
    told = " ".join(difference_sentences(found, difference([chain], [[*chain, *both]]), None))
    assert "lies in" not in told


def test_next_to_nothing_has_no_causes(found: Explanation) -> None:
    old = found.old_value or 0
    close = replace(found, new_value=old + 300, delta=300)
    assert difference_sentences(close, None, None)[0] == (
        f"Per page, {old / PAGES:.1f} instructions are executed, 0.0183 more than before."
    )
    assert "By function" not in " ".join(difference_sentences(close, None, None))


def test_two_functions_that_nearly_cancel_are_added_up(found: Explanation) -> None:
    odd = replace(found.functions[0], share=1500.0)
    assert not page.has_shares(replace(found, functions=(odd,)))
    """unmap_page_range() became part of __zap_vma_range(), 7.0 to 7.1."""
    rows = [
        replace(found.functions[0], function=name, delta=delta * PAGES, status=status)
        for name, delta, status in (
            ("unmap_page_range", -5244, Presence.VANISHED),
            ("__zap_vma_range", 4756, Presence.BOTH),
        )
    ]
    told = difference_sentences(replace(found, rising=(rows[1],), falling=(rows[0],)), None, None)[
        1
    ]
    assert (
        "unmap_page_range -5244.0 (vanished), __zap_vma_range +4756.0, all others +856.1." in told
    )
    assert (
        "unmap_page_range and __zap_vma_range sum to -488.0, which may be code that moved" in told
    )
    both = replace(rows[0], status=Presence.BOTH)  # two changes, as far as anybody knows
    told = difference_sentences(replace(found, rising=(rows[1],), falling=(both,)), None, None)[1]
    assert "sum to" not in told
    # Of three, those that cancel best, and not the largest: 6.16 to 6.17 of mprotect().
    three = [
        replace(rows[0], function=name, delta=delta * PAGES)
        for name, delta in (("commit", 328), ("protection", -270), ("range", 238))
    ]
    moved = replace(found, rising=(three[0], three[2]), falling=(three[1],))
    assert "protection and range sum to -32.0," in difference_sentences(moved, None, None)[1]


def test_what_one_kernel_alone_runs_may_have_moved(found: Explanation) -> None:
    """prep_new_page() and access_error() are inlined in the new kernel, 6.12 to 6.17."""
    rows = [
        replace(found.functions[0], function=name, delta=delta * PAGES, status=status)
        for name, delta, status in (
            ("post_alloc_hook", 56, Presence.NEW),
            ("css_rstat_updated", 48, Presence.BOTH),
            ("access_error", -21, Presence.VANISHED),
            ("prep_new_page", -20, Presence.VANISHED),
        )
    ]
    moved = replace(
        found, functions=tuple(rows), rising=tuple(rows[:2]), falling=(), rest=rest((), 0)
    )
    assert "What one kernel alone runs is +56.0 and -41.0 of it, which may" in by_function(moved)
    assert may_have_moved(moved)
    cut = replace(moved, rest=rest(rows[:1], PAGES))  # of others, whose sums nobody has
    none = replace(moved, functions=tuple(rows[:2]))
    for other in (cut, none):
        assert not may_have_moved(other)


def test_fewer_string_instructions_may_handle_as_much(
    found: Explanation, work: WorkExplanation
) -> None:
    fewer = KindDelta(group="work", kind=Kind.STRING, old=PAGES, new=0, where=())
    bytes_of = StringBytes(old=4096 * PAGES, new=4096 * PAGES, delta=0)
    told = difference_sentences(
        replace(found, strings=bytes_of), None, replace(work, work=(*work.work, fewer))
    )
    assert "1 fewer string instruction (4096.0 -> 4096.0 bytes)" in " ".join(told)


def test_another_build_is_a_doubt(found: Explanation) -> None:
    crossed = replace(found, old_compiler="gcc 12", new_compiler="gcc 14")
    assert "so part may be the compiler's" in difference_sentences(crossed, None, None)[-1]
    apart = replace(found, comparison=replace(found.comparison, differences=("+UBSAN_BOUNDS",)))
    assert "They were configured differently" in difference_sentences(apart, None, None)[-1]


def test_causes_are_named_until_they_are_most_of_it_and_rest_is_summed(found: Explanation) -> None:
    old = found.old_value or 0
    sizes = {"a": 40, "b": 30, "c": 20, "d": 9, "e": 1}
    calls = difference(
        [[PathNode(-1, "walk", 1, old)]],
        [
            [PathNode(-1, "walk", 1, old),
             *(PathNode(0, name, 1, PAGES * size) for name, size in sizes.items())],
        ],
    )  # fmt: skip
    why = difference_sentences(found, calls, None)[1]
    assert "Largest cause: +40.0, a is newly called in walk" in why
    assert f"Then +20.0, c is newly called in walk, once in {PAGES}" in why
    assert "d is newly" not in why
    assert why.endswith("All else, 2 causes, sums to +10.0.")


def stored(place: Path) -> RunRecord:
    """A run on disk."""
    record = ladder()
    kept(record, place / record.run_id)
    return record


def asked(place: Path, *options: str) -> Result:
    record = stored(place)
    for trial in record.trials:
        label = record.arms[trial.arm].label
        at = results.trial_folder(place / record.run_id, trial.index)
        at.mkdir(parents=True, exist_ok=True)
        artifacts.keep(at, artifacts.DETAILS, NEW if label.startswith("6.17") else OLD)
    return CliRunner().invoke(
        explain_cli.explain, [record.run_id, "6.16", "6.17", "--runs", str(place), *options]
    )


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--work", r"loads 5\.0 204\.0 \+199\.0 commit \+200\.0, walk -1\.0"),
        ("--memory", r"struct page +0 +1\.0 +\+1\.0 +commit \+1\.0"),
        ("--values", r"1 +0 +128"),
        ("--top=3", r"It takes 199 more loads"),
        ("--details", r"x without: new/old of all"),
    ],
)
def test_the_command_prints_it(tmp_path: Path, option: str, text: str) -> None:
    done = asked(tmp_path, option)
    assert done.exit_code == 0, done.output + str(done.exception)
    assert re.search(text, " ".join(done.output.split())), done.output


def test_a_run_without_it_says_how_to_get_it(tmp_path: Path) -> None:
    record = stored(tmp_path)
    done = CliRunner().invoke(
        explain_cli.explain, [record.run_id, "6.16", "6.17", "--work", "--runs", str(tmp_path)]
    )
    assert isinstance(done.exception, SpecError)
    assert "kept no kinds of work" in done.exception.cause
