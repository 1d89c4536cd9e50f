# SPDX-License-Identifier: GPL-2.0-or-later
"""What a page of a step has: sentences, functions, kinds of work, paths, flame graphs; its JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.calls import DEEPER, DEEPEST, Branch, CallExplanation
from kdelta.analysis.explanation import Explanation, FunctionDelta, Rest
from kdelta.analysis.lab import LabStep
from kdelta.analysis.work import KindDelta, WorkExplanation
from kdelta.bisect.journal import Journal
from kdelta.printable import printable
from kdelta.probes.calls import PathNode
from kdelta.rendering import explain, sentences
from kdelta.rendering.explain import Scale, cause_sentence, telling
from kdelta.rendering.formats import asset, picked, template

# Of an explanation, what its JSON tells besides functions; differences and shares, these tell.
_TOLD = (
    "phase", "old", "new", "old_release", "new_release", "old_compiler", "new_compiler",
    "operation", "operations", "step_percent", "old_value", "new_value", "audited", "copies",
)  # fmt: skip
_JUDGED = (
    "verdict",
    "reasons",
    "crossing",
    "options",
    "proven",
    "differences",
    "signless",
    "ratio",
    "spread",
)
_RELEASE = re.compile(r"v?(\d+\.\d+)(?![\d])")
_BRANCHES = 24  # lines of the tree
_SMALL = 0.05  # percent of a difference, below which a function is one of the others
_NARROWEST = 0.004  # share of a flame graph's width: a page is one of many


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectedCommit:
    """The commit that a bisection of a step's scenario came down to; step: that it measured."""

    label: str
    title: str
    step: LabStep


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDetail:
    """What the run of a step kept beside its counts, and who bisected it; None: nobody did."""

    work: WorkExplanation | None = None
    calls: CallExplanation | None = None
    culprit: BisectedCommit | None = None


def culprit(
    step: LabStep, steps: Sequence[LabStep], journals: Sequence[Journal]
) -> BisectedCommit | None:
    """The commit of a step between releases, by the newest bisection of commits that ended.

    It is of the same scenario and phase, between the same two series, and its run shows a step
    between two neighbouring commits, the largest of which is meant.
    """
    wanted = [_series(name) for name in (step.explanation.old, step.explanation.new)]
    if None in wanted or wanted[0] == wanted[1]:
        return None
    for state in (journal.state for journal in journals):
        asked = state.question
        ends = [_series(asked.good), _series(asked.bad)]
        same = (asked.scenario, asked.phase) == (step.name, step.explanation.phase)
        if not (same and state.ended and asked.kind == "tree" and ends == wanted):
            continue
        places = {point.label: at for at, point in enumerate(state.points)}
        for one in (one for one in steps if one.run_id == state.run_id):
            old, new = (places.get(name) for name in (one.explanation.old, one.explanation.new))
            if old is not None and new == old + 1:
                point = state.points[new]
                return BisectedCommit(label=point.label, title=point.title, step=one)
    return None


def _series(name: str) -> str | None:
    """ "6.17" of "v6.17", "6.17.13" and "6.17-rc2"."""
    found = _RELEASE.match(name)
    return found[1] if found else None


def context(found: Explanation, detail: StepDetail) -> dict[str, Any]:
    """What the template takes."""
    scale = Scale.of(found)
    difference = detail.calls.difference if detail.calls else None
    causes = explain.telling(difference) if difference else ()
    tree = explain.branches(difference.root, difference.causes) if difference else []
    pictures = flame_graphs(difference.root, scale, narrowest=_NARROWEST) if difference else ()
    return {
        "sentences": step_sentences(found, detail),
        "kinds": [
            {
                "kind": explain.kind_named(row)
                + (f", {row.group}" if row.group != explain.WORK else ""),
                "old": scale.plain(row.old),
                "new": scale.plain(row.new),
                "change": scale.signed(row.delta),
                "delta": row.delta,
                "where": explain.mostly_in(row, scale),
            }
            for row in kinds(detail)
            if scale.signed(row.delta).strip("+-0.,")
        ],
        "causes": [(scale.signed(one.delta), explain.cause_sentence(one, scale)) for one in causes],
        "branches_left_out": max(len(tree) - _BRANCHES, 0),
        "tree": [
            {
                "delta": scale.signed(branch.delta),
                "own": scale.signed(branch.own_new - branch.own_old),
                "calls": explain.calls_of(branch, scale),
                "path": explain.path_to(depth, branch, above),
            }
            for depth, branch, above in tree[:_BRANCHES]
        ],
        "pictures": pictures,
        "row": ROW,
    }


def shown_functions(found: Explanation) -> list[FunctionDelta]:
    """The functions that a page lists."""
    return [row for row in found.functions if abs(row.share or 0) >= _SMALL]


def other_functions(found: Explanation) -> Rest | None:
    """Those that it does not, as one; None where there are none."""
    small = [row for row in found.functions if abs(row.share or 0) < _SMALL]
    if not small:
        return None
    old, new = (sum(getattr(row, side) or 0 for row in small) for side in ("old", "new"))
    share = sum(row.share or 0 for row in small)
    return Rest(count=len(small), old=old, new=new, delta=new - old, share=share)


def document(step: LabStep, detail: StepDetail, causes: object) -> dict[str, Any]:
    """As JSON.  Of functions, old and new are instructions per window; null: it did not run."""
    own = step.explanation
    rows = shown_functions(own)
    names = {row.function for row in rows}
    rest = other_functions(own)
    return {
        **picked(step, ("name", "run_id", "kernels", "point", "created", "phases")),
        "alone": step.alone or None,
        **picked(own, _TOLD, audited=own.audited or None),
        "comparison": picked(own.comparison, _JUDGED),
        "strings": own.strings and picked(own.strings, ("old", "new")),
        "functions": [
            picked(row, ("function", "old", "new", "calls_old", "calls_new")) for row in rows
        ],
        "others": rest and picked(rest, ("count", "old", "new")),
        "renamed": [[row.was, row.function] for row in own.renamed],
        "folded": [one for one in own.folded if one[0] in names],
        "sentences": step_sentences(own, detail),
        "kinds": kinds(detail),
        "causes": causes,
        "culprit": detail.culprit and [detail.culprit.label, detail.culprit.title],
    }


def step_sentences(found: Explanation, detail: StepDetail) -> list[str]:
    """The step in words, of what there is."""
    difference = detail.calls.difference if detail.calls else None
    return sentences.difference_sentences(found, difference, detail.work)


def kinds(detail: StepDetail) -> list[KindDelta]:
    """The kinds of work, and of memory where it was recorded, that differ."""
    if detail.work is None:
        return []
    rows = (*detail.work.work, *(detail.work.memory or ()))
    return [row for row in rows if row.delta]


Stack = tuple[str, ...]
ROW = 18  # height of a frame in CSS pixels
_NARROWEST_FRAME = 0.0004  # share of a picture's width below which a frame is left out
_SHADES = (0.02, 0.1, 0.4)  # share of the largest change of own code from which a frame is darker
_ALL = "all"


def _stacks(trees: Iterable[Sequence[PathNode]]) -> Counter[Stack]:
    found: Counter[Stack] = Counter()
    for tree in trees:
        paths: list[Stack] = []
        for node in tree:
            above = paths[node.parent] if node.parent >= 0 else ()
            name = printable(node.function) if len(above) < DEEPEST else DEEPER
            paths.append(above if len(above) > DEEPEST else (*above, name))
            if node.insns:
                found[paths[-1]] += node.insns
    return found


def folded(old: Sequence[Sequence[PathNode]], new: Sequence[Sequence[PathNode]]) -> str:
    """A line for each path: functions with semicolons, then old and new; for flamegraph.pl.

    old, new: call trees, phase by phase.
    """
    was, now = _stacks(old), _stacks(new)
    lines = [
        f"{';'.join(re.sub('[; ]', '_', name) for name in path)} {was[path]} {now[path]}\n"
        for path in sorted({*was, *now})
    ]
    return "".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A function on a path as a box.  x, width: share of the picture's; row: 0 is the root's.

    shade: -3 (much less of its own code) to 3 (much more).
    """

    function: str
    told: str
    note: str
    row: int
    x: float
    width: float
    shade: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One flame graph.  left_out: paths too narrow to be drawn."""

    key: str
    title: str
    frames: tuple[Frame, ...]
    left_out: int

    @property
    def height(self) -> int:
        """In CSS pixels."""
        return ROW * (1 + max((frame.row for frame in self.frames), default=0))


def flame_page(found: CallExplanation) -> str:
    """The whole file; its template, style and script lie beside this module."""
    scale = Scale.of(found.explanation)
    difference = found.difference
    causes = telling(difference) if difference else ()
    return template("flame.html").render(
        style=asset("flame.css"),
        script=asset("flame.js"),
        explanation=found.explanation,
        pictures=flame_graphs(difference.root, scale) if difference else (),
        causes=[(scale.signed(cause.delta), cause_sentence(cause, scale)) for cause in causes],
        others=len(difference.causes) - len(causes) if difference else 0,
        delta=scale.signed(difference.root.delta) if difference else "",
        row=ROW,
    )


def flame_graphs(
    root: Branch, scale: Scale, *, narrowest: float = _NARROWEST_FRAME
) -> tuple[Picture, ...]:
    """As wide as the new kernel's paths; and as the old one's, where those that vanished are.

    narrowest: share of the width below which a frame is left out.
    """
    return (
        _picture("new", "the new kernel", root, scale, lambda one: one.all_new, narrowest),
        _picture("old", "the old kernel", root, scale, lambda one: one.all_old, narrowest),
    )


def _picture(
    key: str,
    kernel: str,
    root: Branch,
    scale: Scale,
    size: Callable[[Branch], int],
    narrowest: float,
) -> Picture:
    most = max((abs(branch.own_new - branch.own_old) for branch in _walk(root)), default=0)
    whole = size(root) or 1
    frames: list[Frame] = []
    left_out = 0
    waiting = [(root, 0, 0)]
    while waiting:
        branch, row, start = waiting.pop()
        if size(branch) < narrowest * whole:
            left_out += size(branch) > 0
            continue
        frames.append(
            Frame(
                function=branch.function or _ALL,
                told=_frame_told(branch, scale),
                note=branch.note,
                row=row,
                x=start / whole,
                width=size(branch) / whole,
                shade=_shade(branch.own_new - branch.own_old, most),
            )
        )
        at = start
        for child in sorted(branch.children, key=lambda one: one.function):
            waiting.append((child, row + 1, at))
            at += size(child)
    frames.sort(key=lambda frame: (frame.row, frame.x))
    return Picture(key=key, title=kernel, frames=tuple(frames), left_out=left_out)


def _walk(root: Branch) -> Iterator[Branch]:
    waiting = [root]
    while waiting:
        branch = waiting.pop()
        yield branch
        waiting += branch.children


def _shade(change: int, most: int) -> int:
    steps = sum(abs(change) > share * most for share in _SHADES)
    return steps if change > 0 else -steps


def _frame_told(branch: Branch, scale: Scale) -> str:
    """What a frame is, in words: a picture says it to nobody who cannot see it."""
    note = f" ({branch.note})" if branch.note else ""
    calls = f"called {scale.each(branch.calls_old)} -> {scale.each(branch.calls_new)} times, "
    return (
        f"{branch.function or _ALL}{note}: {calls if branch.function else ''}"
        f"own {scale.plain(branch.own_old)} -> {scale.plain(branch.own_new)}"
        f" ({scale.signed(branch.own_new - branch.own_old)}),"
        f" with all below {scale.plain(branch.all_old)} -> {scale.plain(branch.all_new)}"
        f" ({scale.signed(branch.delta)})"
    )
