# SPDX-License-Identifier: GPL-2.0-or-later
"""Call paths as a page of flame graphs, and as folded stacks.

Folded paths are as they were counted, code that moved included, in instructions per window.  The
page loads nothing and needs no script.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kdelta.analysis.calls import DEEPER, DEEPEST, Branch, CallExplanation
from kdelta.printable import printable
from kdelta.probes.calls import PathNode
from kdelta.rendering.calls import Scale, sentence, telling
from kdelta.rendering.source_places import Places, text
from kdelta.rendering.templates import asset, template

Stack = tuple[str, ...]
ROW = 18  # height of a frame in CSS pixels
_NARROWEST = 0.0004  # share of a picture's width below which a frame is left out
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


def flame_page(found: CallExplanation, places: Mapping[str, Places] | None = None) -> str:
    """The whole file; its template, style and script lie beside this module.

    places: where functions begin, old and new, as far as it is known.
    """
    scale = Scale.of(found.explanation)
    difference = found.difference
    causes = telling(difference) if difference else ()
    return template("flame.html").render(
        style=asset("flame.css"),
        script=asset("flame.js"),
        explanation=found.explanation,
        pictures=pictures(difference.root, scale, places=places) if difference else (),
        causes=[(scale.signed(cause.delta), sentence(cause, scale)) for cause in causes],
        others=len(difference.causes) - len(causes) if difference else 0,
        delta=scale.signed(difference.root.delta) if difference else "",
        row=ROW,
    )


def pictures(
    root: Branch,
    scale: Scale,
    *,
    narrowest: float = _NARROWEST,
    places: Mapping[str, Places] | None = None,
) -> tuple[Picture, ...]:
    """As wide as the new kernel's paths; and as the old one's, where those that vanished are.

    narrowest: share of the width below which a frame is left out.  places: see written.
    """

    def told(branch: Branch) -> str:
        return _frame_told(branch, scale) + _at((places or {}).get(branch.function, (None, None)))

    return (
        _picture("new", "the new kernel", root, told, lambda one: one.all_new, narrowest),
        _picture("old", "the old kernel", root, told, lambda one: one.all_old, narrowest),
    )


def _at(place: Places) -> str:
    """Where a function begins, in both kernels where that differs."""
    old, new = map(text, place)
    both = f"{old} -> {new}" if old and new and old != new else old or new
    return f", {both}" if both else ""


def _picture(
    key: str,
    kernel: str,
    root: Branch,
    told: Callable[[Branch], str],
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
                told=told(branch),
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
    calls = f"called {scale.calls(branch.calls_old)} -> {scale.calls(branch.calls_new)} times, "
    return (
        f"{branch.function or _ALL}{note}: {calls if branch.function else ''}"
        f"own {scale.plain(branch.own_old)} -> {scale.plain(branch.own_new)}"
        f" ({scale.signed(branch.own_new - branch.own_old)}),"
        f" with all below {scale.plain(branch.all_old)} -> {scale.plain(branch.all_new)}"
        f" ({scale.signed(branch.delta)})"
    )
