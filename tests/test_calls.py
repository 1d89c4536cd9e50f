# SPDX-License-Identifier: GPL-2.0-or-later
"""Call paths: the functions that the plugin follows, the trees it counted, and their difference."""

from __future__ import annotations

import dataclasses
import gzip
import os
from array import array
from itertools import pairwise
from operator import add
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kdelta.analysis import calls
from kdelta.attribution.insns import CountedContext, CountedWindow
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.cli.explain import explain
from kdelta.errors import InfraError, SpecError, StoreError
from kdelta.journal import artifacts
from kdelta.journal.results import trial_folder
from kdelta.journal.run import RunRecord
from kdelta.probes.calls import Functions, PathNode, functions, tree
from kdelta.rendering.explain import Scale, cause_sentence
from kdelta.sample import Copied
from kernel_tree import written
from ladder_records import Trial, result, run
from run_records import kept

KERNEL = 0xFFFFFFFF81000000
TABLE = Symbols(
    tuple(KERNEL + at for at in (0, 0x40, 0x80, 0x90)), ("first", "second", "first.cold", UNKNOWN)
)


Told = list[tuple[str, str, tuple[str, ...], int]]  # kind, function, into, delta


def nodes(*rows: tuple[int, str, int, int]) -> list[PathNode]:
    return [PathNode(*row) for row in rows]


def window(contexts: list[tuple[int, int, int, int, int]]) -> CountedWindow:
    return CountedWindow(
        vcpu=0, phase=0, user=0, kernel=sum(row[4] for row in contexts), interrupts=0,
        switched=False, rows=array("Q"), code={},
        contexts=tuple(
            CountedContext(number=n, parent=p, function=f, calls=c, insns=i)
            for n, p, f, c, i in contexts
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def program() -> bytes:
    """Any ELF program with a symbol table would do; this one's has none."""
    return Path(os.path.realpath("/bin/true")).read_bytes()


def test_a_cold_part_is_its_function_and_no_entry_of_it(program: bytes) -> None:
    found = functions(TABLE, program)
    rows = [tuple(found.rows[i : i + 3]) for i in range(0, len(found.rows), 3)]
    kernel = [(start, end, found.names[f >> 1], f & 1) for start, end, f in rows if start >> 63]
    assert kernel == [
        (KERNEL, KERNEL + 0x40, "first", 1),
        (KERNEL + 0x40, KERNEL + 0x80, "second", 1),
        (KERNEL + 0x80, KERNEL + 0x90, "first", 0),
    ]
    starts = [row[0] for row in rows]
    assert starts == sorted(starts)
    assert all(end <= start for (_, end, _), (start, _, _) in pairwise(rows))
    assert found.names[0] == UNKNOWN


def test_a_program_that_is_none_is_told() -> None:
    with pytest.raises(InfraError, match="cannot be read"):
        functions(TABLE, b"#!/bin/sh\n")


def test_paths_of_one_name_are_one_and_sum_to_the_window() -> None:
    counted = window(
        [(0, 0, 0, 0, 0), (1, 0, 1, 0, 5), (2, 1, 2, 3, 30), (3, 1, 3, 1, 10), (4, 3, 1, 1, 7)]
    )
    found = tree(counted, ("[unknown]", "main", "work", "work"))
    assert found == (
        PathNode(-1, "main", 0, 5), PathNode(0, "work", 4, 40), PathNode(1, "main", 1, 7),
    )  # fmt: skip
    assert sum(node.insns for node in found) == counted.total


def test_a_function_that_is_new_and_one_that_grew() -> None:
    old = nodes((-1, "main", 0, 10), (0, "walk", 4, 400))
    new = nodes((-1, "main", 0, 10), (0, "walk", 4, 500), (1, "check", 8, 80), (2, "deep", 8, 20))
    found = calls.difference([old], [new])
    (walk,) = found.causes
    assert (walk.kind, walk.function, walk.into) == (calls.CauseKind.TOGETHER, "walk", ("check",))
    assert [(c.kind, c.function, c.delta) for c in walk.parts] == [
        (calls.CauseKind.NEW, "check", 100),
        (calls.CauseKind.CHANGED, "walk", 100),
    ]
    assert found.root.delta == walk.delta == 200


def test_a_function_is_told_with_what_it_calls_where_that_explains_it() -> None:
    """futex(), 6.16 -> 6.17: futex_hash() looks for a private hash."""
    old = nodes(
        (-1, "main", 1, 90), (0, "wake", 1, 50), (1, "hash", 1, 20), (2, "slot", 1, 9),
        (0, "other", 1, 30), (4, "rcu", 2, 8),
    )  # fmt: skip
    new = nodes(
        (-1, "main", 1, 87), (0, "wake", 1, 56), (1, "hash", 1, 38), (2, "slot", 1, 19),
        (2, "rcu", 1, 16), (0, "other", 1, 30), (5, "rcu", 2, 10),
    )  # fmt: skip
    found = calls.difference([old], [new])
    assert [(c.kind, c.function, c.delta) for c in found.causes] == [
        (calls.CauseKind.TOGETHER, "hash", 44),
        (calls.CauseKind.CHANGED, "wake", 6),
        (calls.CauseKind.CHANGED, "main", -3),
        (calls.CauseKind.CHANGED, "rcu", 2),  # what another calls is not told with it
    ]
    assert [(c.function, c.delta) for c in found.causes[0].parts] == [
        ("hash", 18), ("rcu", 16), ("slot", 10),
    ]  # fmt: skip
    assert found.root.delta == 49
    text = " ".join(cause_sentence(found.causes[0], Scale(1, 0)).split())
    assert text == (
        "hash and what it calls, called once: its own code +18, rcu +16 (new), slot +10"
    )


def test_who_only_calls_what_changed_explains_nothing() -> None:
    old = nodes((-1, "main", 1, 9), (0, "loop", 1, 100), (1, "one", 1, 50), (1, "two", 1, 50))
    new = nodes((-1, "main", 1, 9), (0, "loop", 1, 101), (1, "one", 1, 80), (1, "two", 1, 90))
    found = calls.difference([old], [new])
    assert [c.function for c in found.causes] == ["two", "one", "loop"]
    assert not any(c.parts for c in found.causes)


CHAIN = [
    (at - 1, name, 1, 100) for at, name in enumerate(("syscall", "enter", "ksys", "vfs", "pipe"))
]
MOVES: dict[str, tuple[list[tuple[int, str, int, int]], list[tuple[int, str, int, int]], Told]] = {
    "mprotect(), 6.16 -> 6.17: the loop became change_pte_range, each page is committed alone": (
        [(-1, "change_protection", 1, 1107), (0, "commit", 4096, 18), (0, "flush", 1, 50)],
        [(-1, "change_protection", 1, 7), (0, "change_pte_range", 1, 1063),
         (1, "prot_commit", 4096, 1344), (2, "commit", 4096, 18), (0, "flush", 1, 50)],
        [("new", "prot_commit", ("commit",), 1344),
         ("split", "change_protection", ("change_pte_range",), -37)],
    ),
    "what was inlined is netted the other way": (
        [(-1, "walk", 1, 100), (0, "helper", 10, 900), (1, "leaf", 10, 50)],
        [(-1, "walk", 1, 980), (0, "leaf", 10, 50)],
        [("inlined", "walk", ("helper",), -20)],
    ),
    "another name": (
        [(-1, "main", 0, 5), (0, "zap_old", 2, 60), (1, "free", 2, 10), (1, "flush", 2, 10)],
        [(-1, "main", 0, 5), (0, "zap_new", 2, 66), (1, "free", 2, 10), (1, "flush", 2, 10)],
        [("renamed", "zap_new", ("zap_old",), 6)],
    ),
    "clones and thunks are no functions of the path": (
        [(-1, "call", 1, 5), (0, "work.isra.0", 1, 9)],
        [(-1, "call", 1, 5), (0, "__x86_indirect_thunk_rax", 1, 3), (1, "work", 1, 9)],
        [("new", "__x86_indirect_thunk_rax", (), 3)],
    ),
    "a thunk that shares its place with a marker": (
        [(-1, "read", 1, 5), (0, "__softirqentry_text_end", 1, 3), (1, "pipe", 1, 9)],
        [(-1, "read", 1, 5), (0, "pipe", 1, 9)],
        [("vanished", "__softirqentry_text_end", (), -3)],
    ),
    "equal trees": ([(-1, "main", 0, 5)], [(-1, "main", 0, 5)], []),
    "recursion, as deep as no stack": (
        [(at - 1, f"f{at % 3}", 1, 1) for at in range(300)],
        [(at - 1, f"f{at % 3}", 1, 1) for at in range(299)],
        [("changed", "[deeper]", (), -1)],
    ),
    "process:thread, 7.0 -> 7.1: zap_page_range_single_batched and what it called": (
        [(-1, "main", 1, 9), (0, "zap_page", 2, 100), (1, "unmap_single", 2, 1000)],
        [(-1, "main", 1, 9), (0, "zap_vma", 2, 98), (1, "zap_one", 2, 900)],
        [("renamed", "zap_one", ("unmap_single",), -100),
         ("renamed", "zap_vma", ("zap_page",), -2)],
    ),
    "mremap(), 6.16 -> 6.17: mremap_to() came between": (
        [(-1, "mremap", 1, 20), (0, "move_vma", 1, 1000)],
        [(-1, "mremap", 1, 8), (0, "mremap_to", 1, 15), (1, "move_vma", 1, 1400)],
        [("changed", "move_vma", (), 400), ("split", "mremap", ("mremap_to",), 3)],
    ),
    "getpgid(), 6.12 -> 6.16: the way back to user space became part of do_syscall_64()": (
        [(-1, "syscall", 1, 100), (0, "exit", 1, 24), (0, "prepare", 1, 20), (2, "assert", 1, 14),
         (0, "check", 1, 14), (0, "work", 1, 500), (5, "exit_work", 1, 9)],
        [(-1, "syscall", 1, 124), (0, "assert", 1, 16), (0, "work", 1, 500),
         (2, "exit_work", 1, 9)],
        [("inlined", "syscall", ("exit", "check", "prepare"), -34), ("changed", "assert", (), 2)],
    ),
    "process_madvise(), 6.12 -> 6.16: eight do_madvise() became one vector_madvise()": (
        [(-1, "call", 1, 50), (0, "do", 8, 160), (1, "walk", 8, 900), (2, "page", 9, 800)],
        [(-1, "call", 1, 50), (0, "vector", 1, 90), (1, "walk", 8, 900), (2, "page", 9, 800)],
        [("renamed", "vector", ("do",), -70)],
    ),
    "mseal(), 7.0 -> 7.1: the loop over areas became mseal_apply(), and runs once less": (
        [(-1, "do_mseal", 1, 120), (0, "walk", 2, 300), (0, "find", 4, 240), (0, "prev", 1, 110)],
        [(-1, "do_mseal", 1, 85), (0, "mseal_apply", 1, 63), (1, "walk", 1, 150),
         (1, "find", 2, 120), (1, "prev", 1, 110), (0, "find", 2, 120), (0, "walk", 1, 150)],
        [("split", "do_mseal", ("mseal_apply",), 28)],
    ),
    "pipe_read(), 6.12 -> 6.16: touch_atime() is not do_syscall_64()'s": (
        [*CHAIN, (4, "atime", 1, 146), (4, "time", 1, 107)],
        [(-1, "syscall", 1, 40), *CHAIN[1:]],
        [("vanished", "atime", (), -146), ("vanished", "time", (), -107),
         ("changed", "syscall", (), -60)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MOVES)
def test_code_that_moved_is_netted(what: str) -> None:
    old, new, causes = MOVES[what]
    found = calls.difference([nodes(*old)], [nodes(*new)])
    assert [(str(c.kind), c.function, c.into, c.delta) for c in found.causes] == causes
    assert sum(cause.delta for cause in found.causes) == found.root.delta


def test_the_function_of_a_system_call_is_known_by_its_counts() -> None:
    old, new = (
        nodes(
            (-1, "do_syscall_64", 3, 99), (0, "__x64_sys_read", 2, 10), (1, "copy", 2, n),
            (0, "__x64_sys_newuname", 1, 5), (3, "copy", 1, 9 * n), (0, "__x64_sys_reada", 1, 700),
        )
        for n in (20, 60)
    )  # fmt: skip
    found = calls.within("read", [(old, 2, 40), (new, 2, 83)])
    assert found
    assert found[0]
    assert (found[0].function, found[0].delta, *found[1:]) == ("copy", 40, 3, ("copy", 60))
    assert calls.within("uname", [(old, 1, 185)]) == (None, 0, ("copy", 180))
    for call, made, spent in (("read", 3, 40), ("read", 2, 29), ("write", 0, 9)):
        assert calls.within(call, [(old, made, spent)]) is None


# Hostile names too: empty, escapes, a thunk's, a mark of our own.
NAMES = (
    *"abcdefgh", "", "\x1b[2J", "a;b c", "__x86_return_thunk", "[deeper]", ".isra.0", "a.isra.0",
)  # fmt: skip
TREES = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(NAMES), st.integers(0, 9), st.integers(0, 99)),
    max_size=40,
).map(
    lambda rows: [
        PathNode(min(parent, at) - 1, name, count, insns)
        for at, (parent, name, count, insns) in enumerate(rows)
    ]
)


@given(TREES, TREES)
def test_causes_sum_to_difference_and_tree_closes(old: list[PathNode], new: list[PathNode]) -> None:
    found = calls.difference([old], [new])
    was, now = (sum(node.insns for node in side) for side in (old, new))
    assert (found.root.all_old, found.root.all_new) == (was, now)
    assert sum(cause.delta for cause in found.causes) == now - was
    closes(found.root)


def closes(branch: calls.Branch) -> None:
    assert branch.all_old == branch.own_old + sum(child.all_old for child in branch.children)
    assert branch.all_new == branch.own_new + sum(child.all_new for child in branch.children)
    for child in branch.children:
        closes(child)


def test_a_run_without_call_paths_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--probe calls"):
        artifacts.kept_calls(tmp_path, 0, "scan")


@pytest.mark.parametrize(
    "content",
    [
        b"garbage", gzip.compress(b"[1]"),
        gzip.compress(msgspec.json.encode({"scan": [[1, "main", 0, 5]]})),
        gzip.compress(msgspec.json.encode({"scan": [[-1, "main", 0, -5]]})),
        gzip.compress(msgspec.json.encode({"scan": [[-1, "main", 0, 5]]}))[:-9],
        gzip.compress(b'{"scan": [[-1, "ma\xff", 0, 5]]}'), gzip.compress(b"[" * 100_000),
        gzip.compress(b"{}"),
    ],
    ids=["no-gzip", "no-trees", "its-own-caller", "negative", "cut-off", "no-text", "deep", "none"],
)  # fmt: skip
def test_damaged_call_paths_are_told(tmp_path: Path, content: bytes) -> None:
    written(trial_folder(tmp_path, 0), {artifacts.CALLS: content})
    with pytest.raises(StoreError, match="call paths"):
        artifacts.kept_calls(tmp_path, 0, "scan")


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "_MAX_BYTES", 1 << 16)
    written(trial_folder(tmp_path, 0), {artifacts.CALLS: gzip.compress(b" " * (1 << 20))})
    with pytest.raises(StoreError, match="unpacks to more than"):
        artifacts.kept_calls(tmp_path, 0, "scan")


def test_thunks_are_known_by_their_names() -> None:
    for name in ("__x86_indirect_thunk_rax", "__x86_return_thunk", "srso_return_thunk"):
        assert calls._THUNK.match(name)
    assert not calls._THUNK.match("__x86_sys_mprotect")


def test_the_plugin_s_file_is_little_endian_words(tmp_path: Path) -> None:
    Functions(array("Q", (1, 2, 3)), ("a",)).write(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"".join(n.to_bytes(8, "little") for n in (1, 2, 3))


SAME = "same image as 6.12, to the byte"


def explained_by_calls(record: RunRecord, place: Path, old: str, new: str) -> Result:
    """What `kdelta explain --calls` says of a run whose first two kernels kept their call paths."""
    kept(record, place / record.run_id)
    for trial in record.trials:
        assert trial.result
        if trial.result.copied:
            continue
        counts = trial.result.exact
        chosen = {phase.phase: min(map(add, phase.user, phase.kernel)) for phase in counts.phases}
        folder = trial_folder(place / record.run_id, trial.index)
        folder.mkdir(parents=True, exist_ok=True)
        artifacts.keep(
            folder,
            artifacts.CALLS,
            {name: (PathNode(-1, "main", 1, n),) for name, n in chosen.items()},
        )
    return CliRunner().invoke(explain, [record.run_id, old, new, "--calls", "--runs", str(place)])


def test_a_kernel_that_was_not_booted_has_the_paths_of_whose_code_it_is(tmp_path: Path) -> None:
    old, new = (result(Trial(per_page=value)) for value in (300.0, 400.0))
    null = replace(old, copied=Copied(sentence=SAME, trial=0), artifacts={})
    record = run({"6.12": [old], "6.16": [new], "null": [null]})
    done = explained_by_calls(record, tmp_path, "null", "6.16")
    assert done.exit_code == 0, done.output + str(done.exception)
    assert f"null was not booted: {SAME}" in " ".join(done.output.split())
    assert "Per page +100.0, and it is this:" in done.output


def test_a_longer_function_of_nearly_the_same_name_is_that_function() -> None:
    """munmap(), 6.12 -> 6.16."""
    old = nodes(
        (-1, "zap", 1, 9), (0, "__mod_memcg_state", 8, 368), (1, "__cgroup_rstat_updated", 8, 99)
    )
    new = nodes((-1, "zap", 1, 9), (0, "mod_memcg_state", 8, 584), (1, "css_rstat_updated", 8, 256))
    (found,) = calls.difference([old], [new]).causes
    assert found.kind is calls.CauseKind.TOGETHER
    assert [(c.kind, c.function, c.into, c.delta) for c in found.parts] == [
        (calls.CauseKind.RENAMED, "mod_memcg_state", ("__mod_memcg_state",), 216),
        (calls.CauseKind.RENAMED, "css_rstat_updated", ("__cgroup_rstat_updated",), 157),
    ]


def test_a_call_from_elsewhere_is_one_cause() -> None:
    old = nodes((-1, "main", 1, 9), (0, "zap", 1, 50), (1, "drain", 3, 90), (0, "fault", 1, 70))
    new = nodes((-1, "main", 1, 9), (0, "zap", 1, 50), (0, "fault", 1, 70), (2, "drain", 4, 95))
    (cause,) = calls.difference([old], [new]).causes
    assert (cause.kind, cause.delta) == (calls.CauseKind.MOVED, 5)
    assert (cause.caller, cause.into) == ("fault", ("zap",))
    assert (cause.calls_old, cause.calls_new) == (3, 4)
    scale = Scale(1, 0)
    for own, told in (
        ({}, "drain is called in fault, no longer in zap, with all below"),
        ({"into": ()}, "in fault, no longer where it was, with"),
        ({"into": ("fault",)}, "in fault, on other paths than before, with"),
        ({"caller": ""}, "from elsewhere, no longer in zap"),
    ):
        assert told in cause_sentence(dataclasses.replace(cause, **own), scale)
