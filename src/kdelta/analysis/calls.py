# SPDX-License-Identifier: GPL-2.0-or-later
"""The difference of two kernels as a tree of call paths, moved code netted first; pure.

Code moves between functions without a change of work: a loop that was inlined becomes a function of
its own, one is split, one gets another name.  A table by function tells that as three rows for one
cause.  Here such functions are first put where their code was, and only then are the trees
compared.  Every instruction of the difference belongs to exactly one cause: they sum to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kdelta.analysis.explanation import Explanation, base_name, find_counted, find_point
from kdelta.analysis.netting import Node, Notes, net
from kdelta.analysis.resemblance import akin, near
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import CountEvidence
from kdelta.probes.calls import PathNode
from kdelta.sample import TOTAL, Copied

# What only passes a call or a return on is no function of the path.  Before Linux 6.13 the end of
# the soft interrupts' code is where the thunks begin, and runs were counted that name it so.
_THUNK = re.compile(
    r"__x86_(?:indirect|return)_thunk|__softirqentry_text_end\b|(?:srso|its|retbleed)_\w*(?:thunk|ret)|__x86_\w*_jmp"
)
DEEPER = "[deeper]"  # all that is below so many levels; no kernel's stack is so deep
DEEPEST = 200
_NEW, _GONE = "new", "gone"
_MOST_OF_IT = 0.8  # share of the difference from which one cause explains it
_NEAR = 3  # levels below such a function in which what changed has to be
_OWN_PART = 0.1  # share that a function's own code has at least where it is told with what it calls


class CauseKind(StrEnum):
    """What happened to a function's own code, or to all that runs below it."""

    CHANGED = "changed"
    SPLIT = "split"  # part of its code is a function of its own now
    INLINED = "inlined"  # what was a function of its own is part of it now
    NEW = "new"
    VANISHED = "vanished"
    RENAMED = "renamed"
    MOVED = "moved"  # it is called from elsewhere
    TOGETHER = "together"  # a function whose own code changed, with all that changed below it


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that is different.  delta, old, new: instructions per window; new - old.

    function: of which own code changed, or the top of what is new or vanished.  caller: who calls
    it, "" for several.  into: the functions that its code
    moved into or came from, its old name, those that are called through it now, or who called it.
    calls: per window, of the function, on the paths that changed.  parts: of a function together
    with what it calls, what that consists of; they sum to it.
    """

    kind: CauseKind
    function: str
    caller: str
    into: tuple[str, ...]
    old: int
    new: int
    calls_old: int
    calls_new: int
    parts: tuple[Cause, ...] = ()

    @property
    def delta(self) -> int:
        """Instructions per window that it adds."""
        return self.new - self.old


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A function on a path of both kernels, in instructions and calls per window.

    all: with everything below.  children sum with own to all, on either side.
    """

    function: str
    note: str
    own_old: int
    own_new: int
    all_old: int
    all_new: int
    calls_old: int
    calls_new: int
    children: tuple[Branch, ...]

    @property
    def delta(self) -> int:
        """Instructions per window, with everything below."""
        return self.all_new - self.all_old

    @property
    def one_sided(self) -> bool:
        """True where one of the kernels alone has it on this path."""
        return self.note in (_NEW, _GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDifference:
    """causes: largest first; their deltas sum to that of root.  root: the merged tree."""

    causes: tuple[Cause, ...]
    root: Branch


@dataclass(frozen=True, slots=True, kw_only=True)
class CallExplanation:
    """The call paths behind an explanation; None: it is refused, and nothing is claimed."""

    explanation: Explanation
    difference: CallDifference | None


def sources(
    record: RunRecord, found: Explanation, point: str | None
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """(trial, phase) of each window behind an explanation, of the old kernel and of the new.

    An arm that was not booted, because its code is another's, has the windows of that one's trial.
    Raises SpecError where the run does not say of which.
    """
    if found.refused:
        return [], []
    scenario = found.workload, found.scenario
    arms = find_counted(find_point(record, point), scenario, found.old, found.new)
    old, new = (windows(record, arm, found.phase) for arm in arms)
    return old, new


def windows(record: RunRecord, arm: CountEvidence, phase: str = TOTAL) -> list[tuple[int, str]]:
    """(trial, phase) of each window that stands for one of an arm's phases.

    Raises SpecError as `sources`.
    """
    copied = {
        trial.index: trial.result.copied
        for trial in record.trials
        if trial.result and trial.result.copied
    }
    return [
        (_measured(arm.arm.label, measure.trial, copied), measure.phase)
        for measure in arm.phases
        if phase in (TOTAL, measure.phase) and measure.trial is not None
    ]


def _measured(label: str, trial: int, copied: Mapping[int, Copied]) -> int:
    """The trial that was counted, of one that may be another's copy."""
    if trial not in copied:
        return trial
    why = copied[trial]
    if why.trial is None:
        raise SpecError(
            f"{label} was not booted: {why.sentence}; so it has no windows of its own",
            action="explain the kernel that it is the same as, or count again: kdelta run ...",
        )
    return why.trial


def explained(
    found: Explanation, old: Sequence[Sequence[PathNode]], new: Sequence[Sequence[PathNode]]
) -> CallExplanation:
    """Compare the call trees of an explanation's windows.

    Raises SpecError when they are not what was counted.
    """
    if found.refused:
        return CallExplanation(explanation=found, difference=None)
    for side, trees, value in (("old", old, found.old_value), ("new", new, found.new_value)):
        total = sum(node.insns for tree in trees for node in tree)
        if total != value:
            raise SpecError(
                f"the call paths of the {side} kernel sum to {total} instructions, and {value} were"
                " counted",
                action="count both again with: kdelta run ... --probe calls",
            )
    return CallExplanation(explanation=found, difference=difference(old, new))


def difference(
    old: Iterable[Sequence[PathNode]], new: Iterable[Sequence[PathNode]]
) -> CallDifference:
    """Compare the call paths of two kernels; of each the trees that are to be added up."""
    was, now = _added(old), _added(new)
    notes = net(was, now)
    causes: list[Cause] = []
    root = _merged(was, now, "", notes, causes)
    ranked = _ranked(_rehung([*_joined(causes)], root))
    if top := _together(root, ranked):
        inside: list[Cause] = []
        outside: list[Cause] = []
        _merged(was, now, "", notes, outside, (top.function, inside))
        parts = _ranked(_joined(inside))
        whole = Cause(
            kind=CauseKind.TOGETHER, function=top.function, caller="",
            into=tuple(one.function for one in parts if one.function != top.function),
            old=sum(one.old for one in parts), new=sum(one.new for one in parts),
            calls_old=top.calls_old, calls_new=top.calls_new, parts=tuple(parts),
        )  # fmt: skip
        ranked = _ranked([whole, *_rehung([*_joined(outside)], root)])
    return CallDifference(causes=tuple(ranked), root=root)


def _ranked(causes: Iterable[Cause]) -> list[Cause]:
    return sorted(causes, key=lambda cause: (-abs(cause.delta), cause.function))


@dataclass(slots=True)
class _Top:
    """A function wherever it is on a path of both kernels, the topmost of it."""

    function: str
    own: int = 0
    delta: int = 0
    near: int = 0
    size: int = 0
    calls_old: int = 0
    calls_new: int = 0


def _together(root: Branch, ranked: Sequence[Cause]) -> _Top | None:
    """The smallest function that explains a difference with what it calls, where no cause does.

    Its own code has to have a part in it, and what changed has to be near: in itself, in what it
    calls, or in what these call.  Who only calls what changed explains nothing.
    """

    def explains(delta: int) -> bool:
        return _MOST_OF_IT <= delta / root.delta <= 2 - _MOST_OF_IT

    if not root.delta or not ranked or explains(ranked[0].delta):
        return None
    found: dict[str, _Top] = {}
    waiting: list[tuple[Branch, frozenset[str]]] = [(root, frozenset())]
    while waiting:
        branch, above = waiting.pop()
        if branch.one_sided:
            continue
        if branch.function and branch.function not in above:
            top = found.setdefault(branch.function, _Top(branch.function))
            top.own += branch.own_new - branch.own_old
            top.delta += branch.delta
            top.near += _near(branch, _NEAR)
            top.size += branch.all_old + branch.all_new
            top.calls_old += branch.calls_old
            top.calls_new += branch.calls_new
        below = above | {branch.function}
        waiting += [(child, below) for child in branch.children]
    fitting = [
        top
        for top in found.values()
        if explains(top.delta)
        and explains(top.near)
        and abs(top.own) >= _OWN_PART * abs(root.delta)
    ]
    return min(fitting, key=lambda top: (top.size, top.function), default=None)


def _near(branch: Branch, levels: int) -> int:
    """What changed in a function and so many levels below it; what is new or gone, as a whole."""
    found = branch.own_new - branch.own_old
    if not levels:
        return found
    return found + sum(
        child.delta if child.one_sided else _near(child, levels - 1) for child in branch.children
    )


def is_thunk(function: str) -> bool:
    """True for what only passes a call or a return on."""
    return _THUNK.match(function) is not None


def _added(trees: Iterable[Sequence[PathNode]]) -> Node:
    """Trees as one, the compiler's clones under their function's name, thunks out of the way."""
    root = Node("")
    for tree in trees:
        places: list[tuple[Node, int]] = []
        for node in tree:
            above, depth = places[node.parent] if node.parent >= 0 else (root, 0)
            name = base_name(node.function) if depth < DEEPEST else DEEPER
            own = above if above.function == DEEPER else above.children.setdefault(name, Node(name))
            own.calls += node.calls
            own.own += node.insns
            places.append((above, depth) if is_thunk(name) else (own, depth + 1))
    return root


def _merged(
    was: Node,
    now: Node,
    caller: str,
    notes: Notes,
    causes: list[Cause],
    apart: tuple[str, list[Cause]] | None = None,
) -> Branch:
    """One tree of both; what differs is added to causes.

    apart: a function, and where what differs in it and below it is added instead.
    """
    if apart and now.function == apart[0]:
        causes = apart[1]
    if was.own != now.own:
        causes.append(_own_cause(was, now, caller, notes))
    children = []
    for name in dict.fromkeys([*now.children, *was.children]):
        before, after = was.children.get(name), now.children.get(name)
        if before and after:
            children.append(_merged(before, after, now.function, notes, causes, apart))
            continue
        if one := before or after:
            children.append(_one_sided(one, is_new=before is None))
            above = now.function if after else notes.renamed.get(now.function, now.function)
            caller = one.caller or above
            causes.append(_whole_cause(one, caller, is_new=before is None))
    children.sort(key=lambda branch: (-abs(branch.delta), branch.function))
    return Branch(
        function=now.function,
        note=_note(now.function, notes),
        own_old=was.own,
        own_new=now.own,
        all_old=was.own + sum(child.all_old for child in children),
        all_new=now.own + sum(child.all_new for child in children),
        calls_old=was.calls,
        calls_new=now.calls,
        children=tuple(children),
    )


def _note(function: str, notes: Notes) -> str:
    told = []
    if old := notes.renamed.get(function):
        told.append(f"was {old}" if akin(function, old) else f"in place of {old}")
    told += [f"with {', '.join(names)}" for names in _pieces(function, notes)]
    return ", ".join(told)


def _pieces(function: str, notes: Notes) -> list[tuple[str, ...]]:
    return [own[function] for own in (notes.split, notes.inlined) if function in own]


def _own_cause(was: Node, now: Node, caller: str, notes: Notes) -> Cause:
    kind: CauseKind = CauseKind.CHANGED
    into: tuple[str, ...] = ()
    if now.function in notes.split:
        kind, into = CauseKind.SPLIT, notes.split[now.function]
    elif now.function in notes.inlined:
        kind, into = CauseKind.INLINED, notes.inlined[now.function]
    elif now.function in notes.renamed:
        kind, into = CauseKind.RENAMED, (notes.renamed[now.function],)
    return Cause(
        kind=kind, function=now.function, caller=caller, into=into,
        old=was.own, new=now.own, calls_old=was.calls, calls_new=now.calls,
    )  # fmt: skip


def _whole_cause(node: Node, caller: str, *, is_new: bool) -> Cause:
    size = node.all
    return Cause(
        kind=CauseKind.NEW if is_new else CauseKind.VANISHED,
        function=node.function,
        caller=caller,
        into=(),
        old=0 if is_new else size,
        new=size if is_new else 0,
        calls_old=0 if is_new else node.calls,
        calls_new=node.calls if is_new else 0,
    )


def _one_sided(node: Node, *, is_new: bool) -> Branch:
    children = [_one_sided(child, is_new=is_new) for child in node.children.values()]
    children.sort(key=lambda branch: (-abs(branch.delta), branch.function))
    sizes = node.own, node.all, node.calls
    own, whole, calls = sizes
    return Branch(
        function=node.function,
        note=_NEW if is_new else _GONE,
        own_old=0 if is_new else own,
        own_new=own if is_new else 0,
        all_old=0 if is_new else whole,
        all_new=whole if is_new else 0,
        calls_old=0 if is_new else calls,
        calls_new=calls if is_new else 0,
        children=tuple(children),
    )


def _joined(causes: Iterable[Cause]) -> Iterator[Cause]:
    """Facts of one kind about one function are one, wherever it is called from."""
    found: dict[tuple[CauseKind, str], list[Cause]] = {}
    for cause in causes:
        found.setdefault((cause.kind, cause.function), []).append(cause)
    for (kind, function), same in found.items():
        callers = {cause.caller for cause in same}
        yield Cause(
            kind=kind,
            function=function,
            caller=callers.pop() if len(callers) == 1 else "",
            into=same[0].into,
            old=sum(cause.old for cause in same),
            new=sum(cause.new for cause in same),
            calls_old=sum(cause.calls_old for cause in same),
            calls_new=sum(cause.calls_new for cause in same),
        )


def _rehung(causes: Sequence[Cause], root: Branch) -> Iterator[Cause]:
    """A function that went from one caller to another that is new (or gone) is part of that.

    So it is where it is called about as often there as it was.
    """
    below = {note: _under(root, note) for note in (_NEW, _GONE)}
    left = {(cause.kind, cause.function): cause for cause in causes}
    for kind, other, note in (
        (CauseKind.NEW, CauseKind.VANISHED, _NEW),
        (CauseKind.VANISHED, CauseKind.NEW, _GONE),
    ):
        for cause in causes:
            moved = [
                left.pop((other, name))
                for name, calls in sorted(below[note].get(cause.function, {}).items())
                if cause.kind is kind
                and (kind, cause.function) in left
                and (one := left.get((other, name)))
                and near(calls, one.calls_old + one.calls_new)
            ]
            if moved:
                left[kind, cause.function] = replace(
                    cause,
                    into=tuple(one.function for one in moved),
                    old=cause.old + sum(one.old for one in moved),
                    new=cause.new + sum(one.new for one in moved),
                )
    yield from _elsewhere(left)


def _elsewhere(left: dict[tuple[CauseKind, str], Cause]) -> Iterator[Cause]:
    """What is new below one function and gone from another is called from elsewhere."""
    for (kind, name), cause in left.items():
        gone = left.get((CauseKind.VANISHED, name))
        new = left.get((CauseKind.NEW, name))
        if new is None or gone is None or kind not in (CauseKind.NEW, CauseKind.VANISHED):
            yield cause
        elif kind is CauseKind.NEW:
            yield replace(
                new, kind=CauseKind.MOVED, into=(gone.caller,) if gone.caller else (),
                old=new.old + gone.old, new=new.new + gone.new, calls_old=gone.calls_old,
            )  # fmt: skip


def _under(root: Branch, note: str) -> dict[str, Counter[str]]:
    """Of each function with that note those below it, where it is the topmost such one.

    And how often they are called there.
    """
    found: dict[str, Counter[str]] = {}
    waiting: list[tuple[Branch, str]] = [(root, "")]
    while waiting:
        branch, top = waiting.pop()
        if top:
            own = found.setdefault(top, Counter())
            own[branch.function] += branch.calls_old + branch.calls_new
        elif branch.note == note:
            top = branch.function
        waiting += [(child, top) for child in branch.children]
    return found
