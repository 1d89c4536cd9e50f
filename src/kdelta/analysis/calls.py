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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations

from kdelta.analysis.counts import counted
from kdelta.analysis.explanation import Explanation, base_name, find_arm, find_point
from kdelta.attribution.calls import PathNode
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.sample import TOTAL, Copied

# What only passes a call or a return on is no function of the path.
_THUNK = re.compile(
    r"__x86_(?:indirect|return)_thunk|(?:srso|its|retbleed)_\w*(?:thunk|ret)|__x86_\w*_jmp"
)
DEEPER = "[deeper]"  # all that is below so many levels; no kernel's stack is so deep
DEEPEST = 200
_MOST_MOVED = 10  # functions that code of one function may have moved into, tried in all sets
_ALIKE = 0.5  # share of callees in common from which a function is taken for another's new name
_NEW, _GONE = "new", "gone"
_LEAST_MOVED = 0.25  # part of the smaller of two changes that has to cancel to be a move


class CauseKind(StrEnum):
    """What happened to a function's own code, or to all that runs below it."""

    CHANGED = "changed"
    SPLIT = "split"  # part of its code is a function of its own now
    INLINED = "inlined"  # what was a function of its own is part of it now
    NEW = "new"
    VANISHED = "vanished"
    RENAMED = "renamed"


@dataclass(slots=True)
class Node:
    """A function on a path of one kernel.  own: instructions of its own."""

    function: str
    calls: int = 0
    own: int = 0
    children: dict[str, Node] = field(default_factory=dict)

    @property
    def all(self) -> int:
        """Its own instructions and those of all below it."""
        return sum(node.own for node in walk(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that is different.  delta, old, new: instructions per window; new - old.

    function: of which own code changed, or the top of what is new or vanished.  caller: who calls
    it, "" for several.  into: the functions that its code
    moved into or came from, its old name, or those that are called through it now.
    calls: per window, of the function, on the paths that changed.
    """

    kind: CauseKind
    function: str
    caller: str
    into: tuple[str, ...]
    old: int
    new: int
    calls_old: int
    calls_new: int

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
    arms = counted(find_point(record, point), found.workload, found.scenario)
    copied = {
        trial.index: trial.result.copied
        for trial in record.trials
        if trial.result and trial.result.copied
    }
    old, new = (
        [
            (_measured(label, measure.trial, copied), measure.phase)
            for measure in find_arm(arms, label).phases
            if found.phase in (TOTAL, measure.phase) and measure.trial is not None
        ]
        for label in (found.old, found.new)
    )
    return old, new


def _measured(label: str, trial: int, copied: Mapping[int, Copied]) -> int:
    """The trial that was counted, of one that may be another's copy."""
    if trial not in copied:
        return trial
    why = copied[trial]
    if why.trial is None:
        raise SpecError(
            f"{label} was not booted: {why.sentence}; so it has no call paths of its own",
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
    notes = _net(was, now)
    causes: list[Cause] = []
    root = _merged(was, now, "", notes, causes)
    ranked = sorted(
        _rehung([*_joined(causes)], root), key=lambda cause: (-abs(cause.delta), cause.function)
    )
    return CallDifference(causes=tuple(ranked), root=root)


def is_thunk(function: str) -> bool:
    """True for what only passes a call or a return on."""
    return _THUNK.match(function) is not None


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it; no deeper than memory."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.children.values()


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


@dataclass(slots=True)
class _Notes:
    """What was put elsewhere: by function, the kind and the functions that it was."""

    split: dict[str, tuple[str, ...]] = field(default_factory=dict)
    inlined: dict[str, tuple[str, ...]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)  # new name: old name


def _net(was: Node, now: Node) -> _Notes:
    """Give functions of one kernel alone their place in the other's tree; changes both trees."""
    notes = _Notes()
    names_old, names_new = ({node.function for node in walk(side)} for side in (was, now))
    alone = (names_old - names_new), (names_new - names_old)
    _rename(was, now, alone, notes)
    alone = alone[0] - set(notes.renamed.values()), alone[1] - set(notes.renamed)
    pairs = [(was, now)]
    while pairs:
        before, after = pairs.pop()
        _inline(before, after, alone, notes)
        pairs += [
            (before.children[name], after.children[name])
            for name in before.children.keys() & after.children.keys()
        ]
    return notes


def _rename(was: Node, now: Node, alone: tuple[set[str], set[str]], notes: _Notes) -> None:
    """Take a function of the old kernel alone for one of the new where both have one place."""
    callers = [_callers(side, names) for side, names in zip((was, now), alone, strict=True)]
    callees = [_callees(side) for side in (was, now)]
    for name in sorted(alone[1]):
        fitting = [
            other
            for other in sorted(alone[0] - set(notes.renamed.values()))
            if callers[0][other] & callers[1][name] and _alike(callees[0][other], callees[1][name])
        ]
        if len(fitting) == 1:
            notes.renamed[name] = fitting[0]
    names = {old: new for new, old in notes.renamed.items()}
    for node in [*walk(was)]:
        for old in names.keys() & node.children.keys():
            child = node.children.pop(old)
            child.function = names[old]
            node.children[child.function] = child


def _callers(side: Node, names: set[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {name: set() for name in names}
    for node in walk(side):
        for name in names & node.children.keys():
            found[name].add(node.function)
    return found


def _callees(side: Node) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for node in walk(side):
        own = found.setdefault(node.function, Counter())
        own.update({child.function: child.calls for child in node.children.values()})
        own[""] += node.own
    return found


def _alike(one: Counter[str], other: Counter[str]) -> bool:
    """Mostly the same callees, or neither has any and their own code is of about one length."""
    mine, theirs = one.keys() - {""}, other.keys() - {""}
    if mine or theirs:
        return len(mine & theirs) >= _ALIKE * len(mine | theirs)
    shorter, longer = sorted((one[""], other[""]))
    return bool(longer) and shorter >= (1 - _LEAST_MOVED) * longer


def _inline(was: Node, now: Node, alone: tuple[set[str], set[str]], notes: _Notes) -> None:
    """Undo a split or an inlining: the function's code goes to its caller, and so do its calls."""
    for _ in range(_MOST_MOVED):
        change = now.own - was.own
        side, names = (now, alone[1]) if change < 0 else (was, alone[0])
        candidates = [child for name, child in side.children.items() if name in names and child.own]
        candidates = sorted(candidates, key=lambda node: (-node.own, node.function))[:_MOST_MOVED]
        chosen = _cancelling(abs(change), candidates)
        if not chosen:
            return
        for child in chosen:
            _absorb(side, child)
        moved = notes.split if side is now else notes.inlined
        names_moved = (child.function for child in chosen)
        moved[now.function] = tuple(dict.fromkeys((*moved.get(now.function, ()), *names_moved)))


def _cancelling(change: int, candidates: Sequence[Node]) -> tuple[Node, ...]:
    """The functions whose own code best makes up for a change of so many instructions."""
    best: tuple[Node, ...] = ()
    left = change
    for count in range(1, len(candidates) + 1):
        for chosen in combinations(candidates, count):
            moved = sum(node.own for node in chosen)
            rest = abs(change - moved)
            if rest < left and change - rest >= _LEAST_MOVED * max(change, moved):
                best, left = chosen, rest
    return best


def _absorb(above: Node, child: Node) -> None:
    """A child's code and calls become its caller's."""
    del above.children[child.function]
    above.own += child.own
    for node in child.children.values():
        _join(above, node)


def _join(above: Node, node: Node) -> None:
    waiting = [(above, node)]
    while waiting:
        place, one = waiting.pop()
        same = place.children.get(one.function)
        if same is None:
            place.children[one.function] = one
            continue
        same.calls += one.calls
        same.own += one.own
        waiting += [(same, child) for child in one.children.values()]


def _merged(was: Node, now: Node, caller: str, notes: _Notes, causes: list[Cause]) -> Branch:
    """One tree of both; what differs is added to causes."""
    if was.own != now.own:
        causes.append(_own_cause(was, now, caller, notes))
    children = []
    for name in dict.fromkeys([*now.children, *was.children]):
        before, after = was.children.get(name), now.children.get(name)
        if before and after:
            children.append(_merged(before, after, now.function, notes, causes))
            continue
        if one := before or after:
            children.append(_one_sided(one, is_new=before is None))
            causes.append(_whole_cause(one, now.function, is_new=before is None))
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


def _note(function: str, notes: _Notes) -> str:
    told = [f"was {notes.renamed[function]}"] if function in notes.renamed else []
    told += [f"with {', '.join(names)}" for names in _pieces(function, notes)]
    return ", ".join(told)


def _pieces(function: str, notes: _Notes) -> list[tuple[str, ...]]:
    return [own[function] for own in (notes.split, notes.inlined) if function in own]


def _own_cause(was: Node, now: Node, caller: str, notes: _Notes) -> Cause:
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
    """A function that went from one caller to another that is new (or gone) is part of that."""
    below = {note: _under(root, note) for note in (_NEW, _GONE)}
    left = {(cause.kind, cause.function): cause for cause in causes}
    for kind, other, note in (
        (CauseKind.NEW, CauseKind.VANISHED, _NEW),
        (CauseKind.VANISHED, CauseKind.NEW, _GONE),
    ):
        for cause in causes:
            moved = [
                left.pop((other, name))
                for name in sorted(below[note].get(cause.function, ()))
                if cause.kind is kind and (kind, cause.function) in left and (other, name) in left
            ]
            if moved:
                left[kind, cause.function] = replace(
                    cause,
                    into=tuple(one.function for one in moved),
                    old=cause.old + sum(one.old for one in moved),
                    new=cause.new + sum(one.new for one in moved),
                )
    yield from left.values()


def _under(root: Branch, note: str) -> dict[str, set[str]]:
    """Of each function with that note the functions below it, where it is the topmost such one."""
    found: dict[str, set[str]] = {}
    waiting: list[tuple[Branch, str]] = [(root, "")]
    while waiting:
        branch, top = waiting.pop()
        if top:
            found.setdefault(top, set()).add(branch.function)
        elif branch.note == note:
            top = branch.function
        waiting += [(child, top) for child in branch.children]
    return found
