# SPDX-License-Identifier: GPL-2.0-or-later
"""Code that only moved between functions is put where it was in the other kernel's tree; pure.

A compiler splits a function or inlines one, a commit renames another: the path is as long as
before, and a list of functions shows six changes.  net() undoes such moves by the rules below.
They look only at functions that one of the two kernels alone executes.  An example, with each
function's own instructions; all are called once:

    old                      new                       after net(): old  new
    mprotect_fixup    300    mprotect_fixup     345    mprotect_fixup   345  347
      change_range    500      change_range     180      change_range   500  490
        flush_tlb      40        change_pte     310        flush_tlb     40   40
      vma_merge_old    90          flush_tlb     40      vma_merge_new   90   95
        find_vma       30      vma_merge_new     95        find_vma      30   30
      vma_check        45        find_vma        30      down_read       20   20
      down_read        20      lock_vma           2
                                 down_read       20

1. Renamed (_rename, for the whole tree; _replace, for what one function calls): vma_merge_old and
   vma_merge_new have one caller, and most words of their names are the same.  The old one gets the
   new name.  Names that differ more are asked what they call, and how long they are.
2. A wrapper (_unwrap): lock_vma hardly does anything but call down_read, which the old kernel's
   mprotect_fixup calls itself.  Its 2 instructions and its call become its caller's.
3. Split (_inline): change_range is 320 shorter, and change_pte below it has 310.  Together they
   make up for most of the change, so change_pte becomes its caller's code again.
4. Inlined (_inline, in the other tree): mprotect_fixup is 45 longer, and vma_check had 45.
5. Inlined beside others (_dropped): a compiler that inlines leaves out what is superfluous, so code
   that came in may be longer than what its caller grew by.  Not in this example.

Nothing is lost: the instructions of a tree add up to what they did.  Where two functions fit one
place, neither is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kdelta.analysis.resemblance import (
    ALIKE,
    AlikeSets,
    AlikeWork,
    NearLengths,
    making_up,
    name_words,
    only,
)

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
            for name in before.children.keys() & after.children.keys()
        ]
    return notes


def _rename(was: Node, now: Node, alone: tuple[set[str], set[str]], notes: Notes) -> bool:
    """Take a function of the old kernel alone for one of the new where both have one place.

    True when there was one.
    """
    if not (alone[0] and alone[1]):
        return False
    sizes = [_sizes(side, names) for side, names in zip((was, now), alone, strict=True)]
    found: dict[str, str] = {}
    used: set[str] = set()
    callers = [_callers(side, names) for side, names in zip((was, now), alone, strict=True)]
    callees = [_callees(side) for side in (was, now)]
    calling = {name: callees[0][name].keys() - {""} for name in alone[0]}
    below: dict[str, set[str]] = {}  # what each function calls that is in the old kernel alone
    for name, above in callers[0].items():
        for caller in above:
            below.setdefault(caller, set()).add(name)
    words = AlikeSets({name: name_words(name) for name in alone[0]})
    called = AlikeSets({name: held for name, held in calling.items() if held})
    leaves = NearLengths(
        (name, 0, own)
        for name, held in calling.items()
        if not held and (own := callees[0][name][""])
    )
    large = NearLengths((name, *size) for name, size in sizes[0].items())
    for name in sorted(alone[1]):
        mine = callees[1][name].keys() - {""}
        beside = set().union(*(below.get(caller, ()) for caller in callers[1][name])) - used
        if not beside:
            continue
        own, (calls, insns) = callees[1][name][""], sizes[1][name]
        for fits in (
            words.of(name_words(name)),
            called.of(mine) if mine else leaves.of(0, own, beside) if own else (),
            large.of(calls, insns, beside) if calls > 0 else (),
        ):
            count, other = only(fits, beside.__contains__)
            if count == 1:
                found[name] = other
                used.add(other)
            if count:
                break
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
    work = AlikeWork({name: _own_below(node) for name, node in gone.items()})
    large = NearLengths((name, node.calls, node.all) for name, node in gone.items())
    for name in new:
        one = after.children[name]
        for fits in (
            words.of(name_words(name)),
            work.of(_own_below(one)),
            large.of(one.calls, one.all, gone.keys()) if one.calls > 0 else (),
        ):
            count, other = only(fits, gone.__contains__)
            if count == 1:
                found[name] = other
                del gone[other]
            if count:
                break
    _name(was, found, notes)
    alone[0].difference_update(found.values())
    alone[1].difference_update(found)


def _own_below(node: Node) -> Counter[str]:
    found: Counter[str] = Counter()
    for below in walk(node):
        if below is not node:
            found[below.function] += below.own
    return found


def _sizes(side: Node, names: set[str]) -> dict[str, tuple[int, int]]:
    """Calls of functions, and instructions with all below."""
    found = dict.fromkeys(names, (0, 0))
    for node in walk(side):
        if node.function in names:
            calls, insns = found[node.function]
            found[node.function] = calls + node.calls, insns + node.all
    return found


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
                _absorb(side, child)
                pieces = (*told.get(now.function, ()), child.function)
                told[now.function] = tuple(dict.fromkeys(pieces))


def _moved_into(child: Node, caller: Node, other: Node) -> float:
    """Instructions below a function that its caller in the other kernel runs without it.

    Counted are calls that this caller makes fewer of.
    """
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
        change = now.own - was.own
        side, names = (now, alone[1]) if change < 0 else (was, alone[0])
        candidates = [child for name, child in side.children.items() if name in names and child.own]
        candidates = sorted(candidates, key=lambda node: (-node.own, node.function))[:_MOST_MOVED]
        chosen = _cancelling(abs(change), candidates)
        if not chosen:
            break
        absorbed += sum(child.own for child in chosen) if side is was else 0
        moved = notes.split if side is now else notes.inlined
        _take(side, now.function, chosen, moved)
    if absorbed and grown > 0:
        _take(was, now.function, _dropped(was, alone[0], grown, absorbed), notes.inlined)


def _take(
    above: Node, name: str, chosen: Sequence[Node], moved: dict[str, tuple[str, ...]]
) -> None:
    for child in chosen:
        _absorb(above, child)
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


def _cancelling(change: int, candidates: Sequence[Node]) -> tuple[Node, ...]:
    """The functions whose own code best makes up for a change of so many instructions."""

    def is_move(_: tuple[int, ...], moved: int) -> bool:
        return change - abs(change - moved) >= _LEAST_MOVED * max(change, moved)

    chosen = making_up(change, [node.own for node in candidates], len(candidates), is_move)
    return tuple(candidates[at] for at in chosen)


def _absorb(above: Node, child: Node) -> None:
    """A child's code and calls become its caller's."""
    del above.children[child.function]
    above.own += child.own
    for node in child.children.values():
        node.caller = node.caller or child.function
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
