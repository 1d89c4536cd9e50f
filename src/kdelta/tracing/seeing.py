# SPDX-License-Identifier: GPL-2.0-or-later
"""From what was seen in each run of a traced program to the hits of what is watched; pure."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kdelta.sample import TraceRow, TraceSkip
from kdelta.study.tracing import TracePer, Watch, WatchKind
from kdelta.tracing import formats
from kdelta.tracing.setting import Probe, Refused, values

SUM = "[sum of the values]"
_NUMBER = re.compile(r"-?\d{1,20}")
_LARGEST = 1 << 53  # more than that is of addresses or flags, and no sum
MOST_KEYS = 256  # of one watched thing that a result keeps, most hits first
Key = tuple[str, str, int | None]
"""What is watched, the value or function, and its number where it has a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRun:
    """One run of the program.  iterations: that it made.  hits: in it, by key; all that is watched
    has a row, if of nothing.
    """

    iterations: int
    hits: Mapping[Key, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGraph:
    """What function_graph recorded of one run, and what did not fit into its buffers."""

    watched: tuple[Watch, ...]
    calls: Mapping[str, int]
    lost: int


def schedule(per: TracePer, turns: int) -> tuple[int, ...]:
    """Iterations of each run that is watched; one goes before them, which nobody looks at.

    Two are needed to see whether hits repeat; the difference of two is free of set-up and audit.
    """
    return (turns, 2 * turns, 3 * turns) if per is TracePer.ITERATION else (turns, turns)


def counted(
    probes: Sequence[Probe], texts: Mapping[str, str], shapes: Mapping[str, str]
) -> tuple[Counter[Key], list[str]]:
    """Hits of each watched thing from the histograms of its events, and what they lost.

    texts: files `hist`, shapes: files `format`, by the name of a probe.  Raises GuestError.
    """
    hits = Counter[Key]()
    doubts = []
    for probe in probes:
        found = formats.histogram(texts[probe.name], probe.key)
        name = probe.watch.text
        hits[name, "", None] += 0
        for (key, number), count in values(probe, found, shapes[probe.name]).items():
            hits[name, key, number] += count
        if found.dropped:
            doubts.append(
                f"{name}: {found.dropped} hits of further values than {formats.ENTRIES} are left"
                " out"
            )
    return hits, doubts


def between(later: Mapping[Key, int], earlier: Mapping[Key, int]) -> dict[Key, int]:
    """What histograms that are never cleared counted meanwhile."""
    keys = dict.fromkeys((*earlier, *later))
    return {key: later.get(key, 0) - earlier.get(key, 0) for key in keys}


def lost_hits(probes: Sequence[Probe], missed: Mapping[str, int]) -> Iterator[str]:
    """Say of which watched functions kprobes missed hits."""
    for probe in probes:
        if probe.definition and (count := missed.get(probe.event, 0)):
            yield f"{probe.watch.text}: {count} hits were missed"


def rows(per: TracePer, runs: Sequence[SeenRun]) -> tuple[tuple[int, ...], list[TraceRow]]:
    """Iterations that the hits are of, each time, and a row of them for each key."""
    if per is TracePer.RUN:
        turns = (1,) * len(runs)
        samples: list[Mapping[Key, int]] = [run.hits for run in runs]
    else:
        pairs = list(itertools.pairwise(runs))
        turns = tuple(more.iterations - less.iterations for less, more in pairs)
        samples = [between(more.hits, less.hits) for less, more in pairs]
    found = [
        TraceRow(
            watch=watch,
            key=key,
            number=number,
            hits=tuple(sample.get((watch, key, number), 0) for sample in samples),
        )
        for watch, key, number in dict.fromkeys(key for sample in samples for key in sample)
    ]
    return turns, [*_bounded(_told(found)), *_sums(found)]


def _told(found: Sequence[TraceRow]) -> list[TraceRow]:
    """Without values that did not occur; of what has values, the row of all is their sum."""
    sums: dict[str, list[int]] = {}
    for row in found:
        old = sums.setdefault(row.watch, [0] * len(row.hits))
        sums[row.watch] = [a + b for a, b in zip(old, row.hits, strict=True)]
    whole = [TraceRow(watch=watch, hits=tuple(hits)) for watch, hits in sums.items()]
    return [*whole, *(row for row in found if row.key and any(row.hits))]


def _sums(found: Sequence[TraceRow]) -> Iterator[TraceRow]:
    """Of what has numbers for values, such as pages, the values times their hits."""
    by_watch: dict[str, list[TraceRow]] = {}
    for row in found:
        if any(row.hits) and row.key:
            by_watch.setdefault(row.watch, []).append(row)
    for watch, own in by_watch.items():
        if all(row.number is None and _NUMBER.fullmatch(row.key) for row in own):
            weighed = ([int(row.key) * hits for hits in row.hits] for row in own)
            sums = tuple(map(sum, zip(*weighed, strict=True)))
            if max(map(abs, sums)) < _LARGEST:
                yield TraceRow(watch=watch, key=SUM, hits=sums)


def graphed(seen: SeenGraph) -> tuple[list[TraceRow], list[str]]:
    """The functions that were called below those that are watched, and what was lost."""
    name = ", ".join(watch.text for watch in seen.watched)
    found = [
        TraceRow(watch=name, key=function, hits=(count,), whole=True)
        for function, count in seen.calls.items()
    ]
    lost = [f"{name}: {seen.lost} entries did not fit into the buffer"] if seen.lost else []
    return _bounded(found), lost


def _bounded(found: Sequence[TraceRow]) -> list[TraceRow]:
    """Of each watched thing the keys with most hits; the others as one row."""
    kept: list[TraceRow] = []
    by_watch: dict[str, list[TraceRow]] = {}
    for row in found:
        by_watch.setdefault(row.watch, []).append(row)
    for watch, own in by_watch.items():
        ranked = sorted(own, key=lambda row: (bool(row.key), -max(row.hits), row.key))
        kept += ranked[:MOST_KEYS]
        if rest := ranked[MOST_KEYS:]:
            hits = tuple(map(sum, zip(*(row.hits for row in rest), strict=True)))
            key = f"[{len(rest)} others]"
            kept.append(TraceRow(watch=watch, key=key, hits=hits, whole=rest[0].whole))
    return kept


def skips(refused: Sequence[Refused]) -> tuple[TraceSkip, ...]:
    """What could not be watched, as a result keeps it; each once."""
    found = {one.watch.text: one.reason for one in reversed(refused)}
    return tuple(TraceSkip(watch=text, reason=reason) for text, reason in reversed(found.items()))


def of_kind(watched: Sequence[Watch], kind: WatchKind) -> tuple[Watch, ...]:
    """The watched things of one kind."""
    return tuple(one for one in watched if one.kind is kind)
