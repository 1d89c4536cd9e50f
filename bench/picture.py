# SPDX-License-Identifier: GPL-2.0-or-later
"""Draw the picture of README.md: a ladder of kernels, and the call paths on both sides of its step.

    python bench/picture.py [-o FILE]        count mprotect() over seven kernels, and draw it
    python bench/picture.py --run RUN        of a run with --probe calls, which has been counted

Both trees have one scale: a frame is as wide as what it executes with all below.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from commands import BenchError, said

_PICTURE = Path(__file__).resolve().parent.parent / "docs" / "ladder.svg"
_RUN = ("mprotect:shared_dirty_full_toggle_16m", "--kernels", "6.16..7.2", "--probe", "calls")
_WIDTH, _BARS, _LEFT, _ROW, _TOP = 880, 430, 80, 22, 46
_TREE = 110  # how high a tree is, with its title
_LETTER = 7  # how wide a letter is, about
_COLOURS = {"same": "#c8ced6", "more": "#e07a6a", "bar": "#8fa3bf"}
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"
 viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="#1c2430">
<rect width="{width}" height="{height}" fill="#ffffff"/>
"""


@dataclass(slots=True)
class _Frame:
    """A function on a call path, with the instructions of both kernels in it and below."""

    name: str
    own: list[float] = field(default_factory=lambda: [0.0, 0.0])
    below: dict[str, _Frame] = field(default_factory=dict)

    def whole(self, side: int) -> float:
        return self.own[side] + sum(each.whole(side) for each in self.below.values())


def main() -> None:
    """Count or read the run, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", metavar="RUN")
    parser.add_argument("-o", "--output", type=Path, default=_PICTURE)
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="kdelta-bench-") as scratch:
            if not given.run:
                said("run", *_RUN, "--runs", scratch)
            run = given.run or next(str(path.parent) for path in Path(scratch).glob("*/run.json"))
            given.output.write_text(_drawn(run, Path(scratch) / "folded"))
    except BenchError as error:
        sys.exit(str(error))


def _drawn(run: str, folded: Path) -> str:
    (ladder,) = json.loads(said("show", run, "--json"))["ladders"]
    step, rungs = ladder["steps"][0], ladder["rungs"]
    said("explain", run, step["old"], step["new"], "--as", "folded", "-o", str(folded))
    root = _tree(folded.read_text(), rungs[0]["total"]["operations"])
    while len(root.below) == 1 or _only(root) is not None:
        root = _only(root) or next(iter(root.below.values()))
    scale = (_BARS - _LEFT - 60) / max(rung["total"]["per_operation"] for rung in rungs)
    parts = [
        _text(8, 20, f"{ladder['workload']}:{ladder['scenario']}, instructions per page", bold=True)
    ]
    for number, rung in enumerate(rungs):
        value, y = rung["total"]["per_operation"], _TOP + number * _ROW
        colour = _COLOURS["more" if rung["arm"] == step["new"] else "bar"]
        parts.append(_box(_LEFT, y, value * scale, colour))
        parts.append(_text(8, y + 15, rung["arm"]))
        parts.append(_text(_LEFT + value * scale + 6, y + 15, f"{value:.1f}"))
    for side, arm in enumerate((step["old"], step["new"])):
        y = _TOP + side * _TREE
        words = f"{arm}: {root.name}() and what it calls, {root.whole(side):.1f}"
        parts += [_text(_BARS, y - 6, words), *_frames(root, side, _BARS, y, scale * 1.5)]
    height = _TOP + max(len(rungs) * _ROW, 2 * _TREE) + 8
    parts.append(
        _text(_BARS, height - 8, f"red: more in the function itself than on {step['old']}")
    )
    return _HEAD.format(width=_WIDTH, height=height) + "\n".join(parts) + "\n</svg>\n"


def _tree(folded: str, pages: int) -> _Frame:
    """The paths of both kernels as one tree, in instructions per page."""
    root = _Frame("all")
    for line in folded.splitlines():
        path, *counts = line.rsplit(" ", 2)
        frame = root
        for name in path.split(";"):
            frame = frame.below.setdefault(name, _Frame(name))
        frame.own = [frame.own[side] + int(counts[side]) / pages for side in (0, 1)]
    return root


def _only(frame: _Frame) -> _Frame | None:
    """The one function below that has nearly all of both kernels, if there is one."""
    found = [
        each
        for each in frame.below.values()
        if all(each.whole(side) >= 0.9 * frame.whole(side) for side in (0, 1))
    ]
    return found[0] if found else None


def _frames(frame: _Frame, side: int, x: float, y: float, scale: float) -> Iterator[str]:
    """A frame with all below it, downwards: red where it executes more itself than in the old."""
    width = frame.whole(side) * scale
    if width < 2:
        return
    more = side == 1 and frame.own[1] > frame.own[0] + 1
    yield _box(x, y, width, _COLOURS["more" if more else "same"])
    if width > 8 + _LETTER * len(frame.name):
        yield _text(x + 4, y + 15, frame.name)
    x += frame.own[side] * scale
    for each in sorted(frame.below.values(), key=lambda below: below.name):
        yield from _frames(each, side, x, y + _ROW - 2, scale)
        x += each.whole(side) * scale


def _box(x: float, y: float, width: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_ROW - 3}" fill="{colour}"'
        ' stroke="#ffffff"/>'
    )


def _text(x: float, y: float, words: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{weight}>{escape(words)}</text>'


if __name__ == "__main__":
    main()
