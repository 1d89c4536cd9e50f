# SPDX-License-Identifier: GPL-2.0-or-later
"""The difference of two kernels as a tree of call paths, moved code netted first; pure.

A compiler splits a function or inlines one, a commit renames another: the path is as long as
before, and a list of functions shows six changes.  net() undoes such moves by the rules below, and
only then are the trees compared.  Every instruction of the difference belongs to exactly one cause:
they sum to it.  The rules (_rename, _replace, _unwrap, _inline, _dropped) look only at functions
that one of the two kernels alone executes.

Nothing is lost: the instructions of a tree add up to what they did.  Where two functions fit one
place, neither is taken.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations
from typing import Any

from msgspec import structs

from kdelta.analysis.explanation import (
    ALIKE,
    AlikeSets,
    Explanation,
    akin,
    alike_work,
    base_name,
    find_counted,
    find_point,
    name_words,
    near,
    the_one,
)
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import CountEvidence, Measure
from kdelta.probes.calls import PathNode
from kdelta.sample import TOTAL

# ---- code that moved -----------------------------------------------------------------------------


_MOST_MOVED = 10  # functions that code of one function may have moved into, tried in all sets
_WRAPPER = 0.1  # own part of a function that does little but call others
_LEAST_MOVED = 0.25  # part of the smaller of two changes that has to cancel to be a move


@dataclass(slots=True)
class Node:
    """A function on a path of one kernel.

    own: instructions of its own.  caller: who calls it there, where its caller's code was put
    elsewhere.
    """

    function: str
    calls: int = 0
    own: int = 0
    caller: str = ""
    children: dict[str, Node] = field(default_factory=dict)

    @property
    def all(self) -> int:
        """Its own instructions and those of all below it."""
        return sum(node.own for node in walk(self))


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it; no deeper than memory."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.children.values()


@dataclass(slots=True)
class Notes:
    """What was put elsewhere: by function, the kind and the functions that it was."""

    split: dict[str, tuple[str, ...]] = field(default_factory=dict)
    inlined: dict[str, tuple[str, ...]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)  # new name: old name


def net(was: Node, now: Node) -> Notes:
    """Give functions of one kernel alone their place in the other's tree; changes both trees."""
    notes = Notes()
    names_old, names_new = ({node.function for node in walk(side)} for side in (was, now))
    alone = (names_old - names_new), (names_new - names_old)
    while _rename(was, now, alone, notes):  # what is called by a renamed one may be so, too
        alone = alone[0] - set(notes.renamed.values()), alone[1] - set(notes.renamed)
    pairs = [(was, now)]
    while pairs:
        before, after = pairs.pop()
        _unwrap(before, after, alone, notes)
        _inline(before, after, alone, notes)
        _unwrap(before, after, alone, notes)  # what came up with a function that was inlined
        _replace(was, before, after, alone, notes)
        pairs += [
            (before.children[name], after.children[name])
            for name in sorted(before.children.keys() & after.children.keys())
        ]
    return notes


def _rename(was: Node, now: Node, alone: tuple[set[str], set[str]], notes: Notes) -> bool:
    """Take functions of one kernel alone for one where both have one place; were there any?"""
    if not (alone[0] and alone[1]):
        return False
    old, new = (_uses(side, names) for side, names in zip((was, now), alone, strict=True))
    found: dict[str, str] = {}
    below: dict[str, set[str]] = {}  # what each function calls that is in the old kernel alone
    for name in alone[0]:
        for caller in old[name].callers:
            below.setdefault(caller, set()).add(name)
    words = AlikeSets({name: name_words(name) for name in alone[0]})
    called = AlikeSets({name: calls for name in alone[0] if (calls := old[name].callees)})
    for name in sorted(alone[1]):
        one = new[name]
        places = (below.get(caller, ()) for caller in one.callers)
        beside = set().union(*places) - set(found.values())
        leaves = (n for n in beside if not old[n].callees and old[n].own)
        ways = (
            words.of(name_words(name)),
            called.of(one.callees)
            if one.callees
            else (n for n in leaves if one.own and near(one.own, old[n].own)),
            (n for n in beside if one.calls == old[n].calls > 0 and near(one.all, old[n].all)),
        )
        if other := the_one(ways, beside):
            found[name] = other
    _name(was, found, notes)
    return bool(found)


def _name(was: Node, found: Mapping[str, str], notes: Notes) -> None:
    """Give functions of the old kernel the names that they have in the new one; found: by these."""
    notes.renamed |= found
    names = {old: new for new, old in found.items()}
    for node in [*walk(was)] if names else ():
        for old in names.keys() & node.children.keys():
            child = node.children.pop(old)
            child.function = names[old]
            node.children[child.function] = child


def _replace(
    was: Node, before: Node, after: Node, alone: tuple[set[str], set[str]], notes: Notes
) -> None:
    """Take what one function calls in the old kernel alone for what it calls in the new one alone.

    It is that where the names are akin, most of what runs below is the same, or both are called as
    often and are as long; where more than one fits, none does.
    """
    gone = {name: before.children[name] for name in before.children.keys() & alone[0]}
    new = sorted(after.children.keys() & alone[1])
    if not (gone and new):
        return
    found: dict[str, str] = {}
    words = AlikeSets({name: name_words(name) for name in gone})
    work = {name: _own_below(node) for name, node in gone.items()}
    sizes = {name: (node.calls, node.all) for name, node in gone.items()}
    for name in new:
        one = after.children[name]
        calls, size = one.calls, one.all
        ways = (
            words.of(name_words(name)),
            alike_work(_own_below(one), work),
            (n for n in gone if calls == sizes[n][0] > 0 and near(size, sizes[n][1])),
        )
        if other := the_one(ways, gone.keys()):
            found[name] = other
            del gone[other]
    _name(was, found, notes)
    alone[0].difference_update(found.values())
    alone[1].difference_update(found)


def _own_below(node: Node) -> Counter[str]:
    found: Counter[str] = Counter()
    for below in walk(node):
        if below is not node:
            found[below.function] += below.own
    return found


@dataclass(slots=True)
class _Uses:
    """A function wherever it is in a tree.  all: with all below, of functions that are asked of."""

    calls: int = 0
    own: int = 0
    all: int = 0
    callers: set[str] = field(default_factory=set)
    callees: set[str] = field(default_factory=set)


def _uses(side: Node, names: set[str]) -> dict[str, _Uses]:
    found: defaultdict[str, _Uses] = defaultdict(_Uses)
    for node in walk(side):
        here = found[node.function]
        here.calls += node.calls
        here.own += node.own
        here.all += node.all if node.function in names else 0
        here.callees.update(node.children)
        for name in node.children:
            found[name].callers.add(node.function)
    return found


def _unwrap(was: Node, now: Node, alone: tuple[set[str], set[str]], notes: Notes) -> None:
    """Take a function of one kernel alone away that does little but call what the other calls.

    So is one that mostly runs what its caller in the other kernel calls itself, more often there.
    """
    for side, other, names, told in (
        (now, was, alone[1], notes.split),
        (was, now, alone[0], notes.inlined),
    ):
        waiting = list(side.children.values())
        while waiting:
            child = waiting.pop()
            if child.function not in names or side.children.get(child.function) is not child:
                continue
            below = child.all - child.own
            shared = sum(
                node.all for name, node in child.children.items() if name in other.children
            )
            little = child.own <= _WRAPPER * below and shared >= ALIKE * below
            if little or _moved_into(child, side, other) >= ALIKE * child.all:
                waiting += child.children.values()
                _take(side, now.function, (child,), told)


def _moved_into(child: Node, caller: Node, other: Node) -> float:
    """Instructions below a function in calls of which its caller makes fewer than the other."""
    found = 0.0
    for name, node in child.children.items():
        here, there = (side.children.get(name) for side in (caller, other))
        fewer = there.calls - (here.calls if here else 0) if there else 0
        if fewer > 0 and node.calls:
            found += node.all * min(1.0, fewer / node.calls)
    return found


def _inline(was: Node, now: Node, alone: tuple[set[str], set[str]], notes: Notes) -> None:
    """Undo a split or an inlining: the function's code goes to its caller, and so do its calls."""
    grown, absorbed = now.own - was.own, 0
    for _ in range(_MOST_MOVED):
        side, names = (now, alone[1]) if now.own < was.own else (was, alone[0])
        candidates = [child for name, child in side.children.items() if name in names and child.own]
        candidates = sorted(candidates, key=lambda node: (-node.own, node.function))[:_MOST_MOVED]
        chosen = _making_up(abs(now.own - was.own), candidates)
        if not chosen:
            break
        absorbed += sum(child.own for child in chosen) if side is was else 0
        moved = notes.split if side is now else notes.inlined
        _take(side, now.function, chosen, moved)
    if absorbed and grown > 0:
        _take(was, now.function, _dropped(was, alone[0], grown, absorbed), notes.inlined)


def _making_up(change: int, candidates: Sequence[Node]) -> Sequence[Node]:
    """Those whose own code together best makes up for a change, the fewest of them, or none."""
    best: Sequence[Node] = ()
    left = change
    for count in range(1, len(candidates) + 1):
        for chosen in combinations(candidates, count):
            moved = sum(node.own for node in chosen)
            rest = abs(change - moved)
            if rest < left and change - rest >= _LEAST_MOVED * max(change, moved):
                best, left = chosen, rest
    return best


def _take(
    above: Node, name: str, chosen: Sequence[Node], moved: dict[str, tuple[str, ...]]
) -> None:
    for child in chosen:
        # Its code and calls become its caller's.
        del above.children[child.function]
        above.own += child.own
        for node in child.children.values():
            node.caller = node.caller or child.function
        waiting = [(above, node) for node in reversed(child.children.values())]
        while waiting:
            place, one = waiting.pop()
            same = place.children.setdefault(one.function, one)
            if same is not one:
                same.calls += one.calls
                same.own += one.own
                waiting += [(same, below) for below in one.children.values()]
    if chosen:
        names = (child.function for child in chosen)
        moved[name] = tuple(dict.fromkeys((*moved.get(name, ()), *names)))


def _dropped(was: Node, names: set[str], grown: int, absorbed: int) -> list[Node]:
    """What became part of a function beside others and is shorter there.

    A compiler that inlines leaves out what the caller makes superfluous, so code that came in may
    be longer than what the caller grew by.  Only functions that are mostly code of their own.
    """
    found = []
    for child in sorted(was.children.values(), key=lambda node: (node.own, node.function)):
        fits = grown >= _LEAST_MOVED * (absorbed + child.own)
        if child.function in names and child.own and fits and child.own >= ALIKE * child.all:
            found.append(child)
            absorbed += child.own
    return found


# ---- the difference as a tree --------------------------------------------------------------------


# What only passes a call or a return on is no function of the path.  Before Linux 6.13 the end of
# the soft interrupts' code is where the thunks begin, and runs were counted that name it so.
_THUNK = re.compile(
    r"__x86_(?:indirect|return)_thunk|__softirqentry_text_end\b|(?:srso|its|retbleed)_\w*(?:thunk|ret)|__x86_\w*_jmp"
)
_WAYS = ("x64", "arm64", "riscv")  # of SYSCALL_DEFINE to call what serves a system call
DEEPER = "[deeper]"  # all that is below so many levels; no kernel's stack is so deep
DEEPEST = 200
_NEW, _GONE = "new", "gone"
_MOST_OF_IT = 0.8  # share of the difference from which one cause explains it
_NEAR = 3  # levels below such a function in which what changed has to be
_OWN_PART = 0.1  # share that a function's own code has at least where it is said with what it calls


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


def walked(root: Branch) -> Iterator[tuple[tuple[Branch, ...], Branch]]:
    """A tree's branches, each with those above it, callers first."""
    waiting: list[tuple[tuple[Branch, ...], Branch]] = [((), root)]
    while waiting:
        above, branch = waiting.pop()
        yield above, branch
        waiting += [((*above, branch), child) for child in reversed(branch.children)]


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
    old, new = (_windows(record, arm, found.phase) for arm in arms)
    return old, new


def _windows(record: RunRecord, arm: CountEvidence, phase: str) -> list[tuple[int, str]]:
    """(trial, phase) of each window that stands for an arm's phases.  Raises as `sources`."""
    wanted = (measure for measure in arm.phases if phase in (TOTAL, measure.phase))
    return [window for measure in wanted if (window := window_of(record, measure))]


def window_of(record: RunRecord, measure: Measure) -> tuple[int, str] | None:
    """(trial, phase) of the window that stands for a phase."""
    results = {trial.index: trial.result for trial in record.trials}
    result = None if measure.trial is None else results[measure.trial]
    trial = result.copied.trial if result and result.copied else measure.trial
    return None if trial is None else (trial, measure.phase)


def within(
    call: str, sides: Sequence[tuple[Sequence[PathNode], int, int]]
) -> tuple[Cause | None, int, tuple[str, int]] | None:
    """The largest cause of a system call's change, how it changed outside the function that serves
    it, and what there takes most on the last kernel.

    sides: of one kernel, or two, the call paths of a window, how often it made the call, and what
    the kernel executed for that.  None where the paths do not tell: they have to enter it as often,
    and to have that many instructions or fewer.
    """
    served = {f"__{way}_sys_{new}{call}" for way in _WAYS for new in ("", "new")}
    below = [_below(tree, served) for tree, _, _ in sides]
    for own, (_, made, spent) in zip(below, sides, strict=True):
        calls = sum(node.calls for node in own if node.parent < 0)
        if not own or calls != made or sum(node.insns for node in own) > spent:
            return None
    found = difference(below[:1], below[-1:])
    took: Counter[str] = Counter()
    for node in below[-1]:
        took[base_name(node.function)] += node.insns
    cause = found.causes[0] if found.causes and found.causes[0].delta else None
    outside = sides[-1][2] - sides[0][2] - found.root.delta
    return cause, outside, min(took.items(), key=lambda row: (-row[1], row[0]))


def _below(tree: Sequence[PathNode], functions: Collection[str]) -> list[PathNode]:
    """These functions wherever they are on a path, with all below the topmost."""
    places: dict[int, int] = {}
    found: list[PathNode] = []
    for at, node in enumerate(tree):
        if node.parent in places or node.function in functions:
            places[at] = len(found)
            found.append(structs.replace(node, parent=places.get(node.parent, -1)))
    return found


def explained(
    found: Explanation, old: Sequence[Sequence[PathNode]], new: Sequence[Sequence[PathNode]]
) -> CallExplanation:
    """Compare call trees of an explanation's windows.  SpecError: they are not what was counted."""
    if found.refused:
        return CallExplanation(explanation=found, difference=None)
    for side, trees, value in (("old", old, found.old_value), ("new", new, found.new_value)):
        total = sum(node.insns for tree in trees for node in tree)
        if total != value:
            cause = f"the call paths of the {side} kernel sum to {total} instructions, and {value}"
            action = "count both again with: kdelta run ... --probe calls"
            raise SpecError(f"{cause} were counted", action=action)
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
        name = top[0].function
        _merged(was, now, "", notes, outside, (name, inside))
        parts = _ranked(_joined(inside))
        whole = Cause(
            kind=CauseKind.TOGETHER,
            function=name,
            caller="",
            into=tuple(one.function for one in parts if one.function != name),
            **_summed(parts, ("old", "new")),
            **_summed(top, ("calls_old", "calls_new")),
            parts=tuple(parts),
        )
        ranked = _ranked([whole, *_rehung([*_joined(outside)], root)])
    return CallDifference(causes=tuple(ranked), root=root)


def _ranked(causes: Iterable[Cause]) -> list[Cause]:
    return sorted(causes, key=lambda cause: (-abs(cause.delta), cause.function))


def _together(root: Branch, ranked: Sequence[Cause]) -> list[Branch]:
    """The smallest function that explains a difference with what it calls, where no cause does.

    It is wherever it is on a path of both kernels, the topmost of it; none where none explains.
    Its own code has to have a part in it, and what changed has to be near: in itself, in what it
    calls, or in what these call.  Who only calls what changed explains nothing.
    """

    def explains(delta: int) -> bool:
        return _MOST_OF_IT <= delta / root.delta <= 2 - _MOST_OF_IT

    if not root.delta or not ranked or explains(ranked[0].delta):
        return []
    found: dict[str, list[Branch]] = {}
    for above, branch in walked(root):
        is_topmost = all(one.function != branch.function for one in above)
        if branch.function and is_topmost and not branch.one_sided:
            found.setdefault(branch.function, []).append(branch)
    fitting = [
        top
        for top in found.values()
        if explains(sum(one.delta for one in top))
        and explains(sum(_near(one, _NEAR) for one in top))
        and abs(sum(one.own_new - one.own_old for one in top)) >= _OWN_PART * abs(root.delta)
    ]
    return min(
        fitting,
        key=lambda top: (sum(one.all_old + one.all_new for one in top), top[0].function),
        default=[],
    )


def _near(branch: Branch, levels: int) -> int:
    """What changed in a function and so many levels below it; what is new or gone, as a whole."""
    found = branch.own_new - branch.own_old
    if not levels:
        return found
    return found + sum(
        child.delta if child.one_sided else _near(child, levels - 1) for child in branch.children
    )


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
            places.append((above, depth) if _THUNK.match(name) else (own, depth + 1))
    return root


def _merged(
    was: Node,
    now: Node,
    caller: str,
    notes: Notes,
    causes: list[Cause],
    apart: tuple[str, list[Cause]] | None = None,
) -> Branch:
    """One tree of both; what differs is added to causes, but in and below `apart` to its own."""
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
            note = _NEW if after else _GONE
            children.append(_one_sided(one, note))
            above = now.function if after else notes.renamed.get(now.function, now.function)
            causes.append(
                Cause(
                    kind=CauseKind.NEW if after else CauseKind.VANISHED,
                    function=name,
                    caller=one.caller or above,
                    into=(),
                    old=before.all if before else 0,
                    new=after.all if after else 0,
                    calls_old=before.calls if before else 0,
                    calls_new=after.calls if after else 0,
                )
            )
    told = []
    if old := notes.renamed.get(now.function):
        told.append(f"was {old}" if akin(now.function, old) else f"in place of {old}")
    told += [
        f"with {', '.join(own[now.function])}"
        for own in (notes.split, notes.inlined)
        if now.function in own
    ]
    return _branch(was, now, ", ".join(told), children)


def _one_sided(node: Node, note: str) -> Branch:
    children = [_one_sided(child, note) for child in node.children.values()]
    sides = (Node(""), node) if note == _NEW else (node, Node(""))
    return replace(_branch(*sides, note, children), function=node.function)


def _branch(was: Node, now: Node, note: str, children: Sequence[Branch]) -> Branch:
    return Branch(
        function=now.function,
        note=note,
        own_old=was.own,
        own_new=now.own,
        all_old=was.own + sum(child.all_old for child in children),
        all_new=now.own + sum(child.all_new for child in children),
        calls_old=was.calls,
        calls_new=now.calls,
        children=tuple(sorted(children, key=lambda one: (-abs(one.delta), one.function))),
    )


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


def _summed(parts: Sequence[Cause | Branch], names: Sequence[str]) -> dict[str, Any]:
    return {name: sum(getattr(one, name) for one in parts) for name in names}


def _joined(causes: Iterable[Cause]) -> Iterator[Cause]:
    """Facts of one kind about one function are one, wherever it is called from."""
    found: dict[tuple[CauseKind, str], list[Cause]] = {}
    for cause in causes:
        found.setdefault((cause.kind, cause.function), []).append(cause)
    for same in found.values():
        callers = {cause.caller for cause in same}
        caller = callers.pop() if len(callers) == 1 else ""
        numbers = _summed(same, ("old", "new", "calls_old", "calls_new"))
        yield replace(same[0], caller=caller, **numbers)


def _rehung(causes: Sequence[Cause], root: Branch) -> Iterator[Cause]:
    """Make what went to, or came from, a new or gone caller a part of that, if as often."""
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
                into = tuple(one.function for one in moved)
                numbers = _summed((cause, *moved), ("old", "new"))
                left[kind, cause.function] = replace(cause, into=into, **numbers)
    yield from _elsewhere(left)


def _elsewhere(left: dict[tuple[CauseKind, str], Cause]) -> Iterator[Cause]:
    """What is new below one function and gone from another is called from elsewhere."""
    for (kind, name), cause in left.items():
        gone = left.get((CauseKind.VANISHED, name))
        new = left.get((CauseKind.NEW, name))
        if new is None or gone is None or kind not in (CauseKind.NEW, CauseKind.VANISHED):
            yield cause
        elif kind is CauseKind.NEW:
            into = (gone.caller,) if gone.caller else ()
            numbers = _summed((new, gone), ("old", "new", "calls_old"))
            yield replace(new, kind=CauseKind.MOVED, into=into, **numbers)


def _under(root: Branch, note: str) -> dict[str, Counter[str]]:
    """What is below each function that is topmost with that note, and how often called."""
    found: dict[str, Counter[str]] = {}
    for above, branch in walked(root):
        if top := next((one for one in above if one.note == note), None):
            own = found.setdefault(top.function, Counter())
            own[branch.function] += branch.calls_old + branch.calls_new
    return found
