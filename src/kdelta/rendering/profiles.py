# SPDX-License-Identifier: GPL-2.0-or-later
"""Call paths as flame graphs, and for other tools: folded stacks, callgrind.out, pprof, speedscope.

The paths are as they were counted, code that moved included; values are instructions per window.
A page of flame graphs loads nothing and needs no script.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kdelta.analysis.calls import DEEPER, DEEPEST, Branch, CallExplanation
from kdelta.analysis.explanation import Explanation, base_name
from kdelta.disassembly.addr2line import SourceLine
from kdelta.printable import printable
from kdelta.probes.calls import PathNode
from kdelta.rendering.calls import Scale, sentence, telling
from kdelta.rendering.source_places import Places, text
from kdelta.rendering.templates import asset, template

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_OLD, _NEW = "old", "new"
_NOWHERE = SourceLine("kernel", 0, "")
Stack = tuple[str, ...]
ROW = 18  # height of a frame in CSS pixels
_NARROWEST = 0.0004  # share of a picture's width below which a frame is left out
_SHADES = (0.02, 0.1, 0.4)  # share of the largest change of own code from which a frame is darker
_ALL = "all"


@dataclass(frozen=True)
class Profiles:
    """What is exported: an explanation and the call trees of both its kernels, phase by phase.

    places: where functions begin, old and new, as far as it is known; only Callgrind's form has it.
    """

    explanation: Explanation
    old: Sequence[Sequence[PathNode]]
    new: Sequence[Sequence[PathNode]]
    places: Mapping[str, Places] = field(default_factory=dict)

    def begins(self, function: str) -> SourceLine:
        """Where a function begins in the new kernel, or else in the old; "kernel" where unknown."""
        known = self.places.get(base_name(function), (None, None))
        return known[1] or known[0] or _NOWHERE

    @cached_property
    def stacks(self) -> dict[str, Counter[Stack]]:
        """By kernel: own instructions of each path, callers first."""
        return {_OLD: _stacks(self.old), _NEW: _stacks(self.new)}

    @property
    def title(self) -> str:
        """What was counted, in one line."""
        found = self.explanation
        return printable(f"{found.workload}:{found.scenario} {found.old} -> {found.new}")

    def label(self, side: str) -> str:
        """The kernel of a side."""
        return printable(self.explanation.old if side == _OLD else self.explanation.new)


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


def folded(found: Profiles) -> str:
    """A line for each path: functions with semicolons, then old and new; for flamegraph.pl."""
    old, new = found.stacks[_OLD], found.stacks[_NEW]
    lines = [
        f"{';'.join(re.sub('[; ]', '_', name) for name in path)} {old[path]} {new[path]}\n"
        for path in sorted({*old, *new})
    ]
    return "".join(lines)


def callgrind(found: Profiles) -> str:
    """Callgrind's format 1 with two events, Old and New; KCachegrind shows either."""
    sides = [_Edges.of(trees) for trees in (found.old, found.new)]
    names = sorted({name for side in sides for name in side.own})
    numbers = {name: at for at, name in enumerate(names, 1)}
    begins = {name: found.begins(name) for name in names}
    files = {file: at for at, file in enumerate(sorted({one.file for one in begins.values()}), 1)}
    at = {name: (files[one.file], one.line) for name, one in begins.items()}
    lines = [
        "# callgrind format",
        "version: 1",
        "creator: kdelta",
        f"cmd: {found.title}",
        "positions: line",
        f"event: Old : instructions per window, {found.label(_OLD)}",
        f"event: New : instructions per window, {found.label(_NEW)}",
        "events: Old New",
        *(f"fl=({number}) {file}" for file, number in files.items()),
        *(_function(name, numbers, at, sides) for name in names),
        f"totals: {' '.join(str(sum(side.own.values())) for side in sides)}",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Edges:
    """One kernel's functions: own instructions; of caller and callee, calls and all below."""

    own: Counter[str]
    calls: Counter[tuple[str, str]]
    below: Counter[tuple[str, str]]

    @classmethod
    def of(cls, trees: Iterable[Sequence[PathNode]]) -> _Edges:
        """Add trees up; of a recursion only the outermost call has what is below it."""
        found = cls(Counter(), Counter(), Counter())
        for tree in trees:
            whole = [node.insns for node in tree]
            for at in range(len(tree) - 1, -1, -1):
                if tree[at].parent >= 0:
                    whole[tree[at].parent] += whole[at]
            seen: list[frozenset[tuple[str, str]]] = []
            for node, insns in zip(tree, whole, strict=True):
                name = printable(node.function)
                found.own[name] += node.insns
                if node.parent < 0:
                    seen.append(frozenset())
                    continue
                edge = (printable(tree[node.parent].function), name)
                above = seen[node.parent]
                seen.append(above if edge in above else above | {edge})
                found.calls[edge] += node.calls
                if edge not in above:
                    found.below[edge] += insns
        return found


def _function(
    name: str,
    numbers: Mapping[str, int],
    places: Mapping[str, tuple[int, int]],
    sides: Sequence[_Edges],
) -> str:
    """A function's costs; places: file by its number and line, where functions begin."""
    file, line = places[name]
    lines = [f"\nfl=({file})", f"fn=({numbers[name]}) {name}"]
    lines.append(_costs(line, (side.own[name] for side in sides)))
    edges = sorted({edge for side in sides for edge in side.calls if edge[0] == name})
    for edge in edges:
        calls = max(1, *(side.calls[edge] for side in sides))
        there, begins = places[edge[1]]
        lines += [
            f"cfi=({there})",
            f"cfn=({numbers[edge[1]]}) {edge[1]}",
            f"calls={calls} {begins}",
            _costs(line, (side.below[edge] for side in sides)),
        ]
    return "\n".join(lines)


def _costs(line: int, values: Iterable[int]) -> str:
    return f"{line} {' '.join(map(str, values))}"


def speedscope(found: Profiles) -> str:
    """Speedscope's JSON with a profile for each kernel."""
    stacks = found.stacks
    names = sorted({name for side in stacks.values() for path in side for name in path})
    numbers = {name: at for at, name in enumerate(names)}
    profiles = [
        {
            "type": "sampled",
            "name": f"{found.label(side)} ({side})",
            "unit": "none",
            "startValue": 0,
            "endValue": paths.total(),
            "samples": [[numbers[name] for name in path] for path in sorted(paths)],
            "weights": [paths[path] for path in sorted(paths)],
        }
        for side, paths in stacks.items()
    ]
    return json.dumps(
        {
            "$schema": _SCHEMA,
            "exporter": "kdelta",
            "name": found.title,
            "activeProfileIndex": 1,
            "shared": {"frames": [{"name": name} for name in names]},
            "profiles": profiles,
        }
    )


def pprof(found: Profiles, side: str) -> bytes:
    """The profile.proto of pprof of one kernel, packed; "old" or "new"."""
    paths = found.stacks[side]
    names = sorted({name for path in paths for name in path})
    texts = ["", "instructions", "count", found.title, found.label(side), *names]
    numbers = {name: at for at, name in enumerate(names, 1)}
    shift = len(texts) - len(names) - 1
    parts = [
        _field(1, _varint_field(1, 1) + _varint_field(2, 2)),
        *(
            # The path ends in its callers there.
            _field(
                2,
                _packed(1, [numbers[name] for name in reversed(path)]) + _packed(2, [paths[path]]),
            )
            for path in sorted(paths)
        ),
        *(
            _field(4, _varint_field(1, number) + _field(4, _varint_field(1, number)))
            for number in numbers.values()
        ),
        *(
            _field(5, _varint_field(1, number) + _varint_field(2, number + shift))
            for number in numbers.values()
        ),
        *(_field(6, text.encode()) for text in texts),
        _packed(13, [3, 4]),
    ]
    return gzip.compress(b"".join(parts), mtime=0)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes: a message, a text, packed numbers."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _packed(number: int, values: Iterable[int]) -> bytes:
    return _field(number, b"".join(_chunks(values)))


def _chunks(values: Iterable[int]) -> Iterator[bytes]:
    return map(_varint, values)


WRITERS: dict[str, Callable[[Profiles, str], str | bytes]] = {
    "folded": lambda found, _: folded(found),
    "callgrind": lambda found, _: callgrind(found),
    "speedscope": lambda found, _: speedscope(found),
    "pprof": pprof,
}
"""By name, what writes it; pprof's wants a side."""


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
