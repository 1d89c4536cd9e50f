# SPDX-License-Identifier: GPL-2.0-or-later
"""From what tracefs counted in each run of a traced program to rows of hits; pure."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kdelta.sample import TraceRow
from kdelta.study.probes import TracePer, Watch
from kdelta.tracing import tracefs
from kdelta.tracing.tracefs import Probe

SUM = "[sum of the values]"
_NUMBER = re.compile(r"-?\d{1,20}")
_LARGEST = 1 << 53  # larger sums are of addresses or flags, and mean nothing
MOST_KEYS = 256  # of one watched thing that a result keeps, most hits first
Key = tuple[str, str, int | None]
"""What is watched, the value or function, and its number where it has a name."""


def schedule(per: TracePer, turns: int) -> tuple[int, ...]:
    """Iterations of each watched run: the difference of two is free of set-up and audit."""
    return (turns, 2 * turns, 3 * turns) if per is TracePer.ITERATION else (turns, turns)


def counted(
    probes: Sequence[Probe], texts: Mapping[str, str], shapes: Mapping[str, str]
) -> tuple[Counter[Key], list[str]]:
    """Hits by the files `hist` (texts) and `format` (shapes) of probes, and what they lost."""
    hits = Counter[Key]()
    doubts = []
    for probe in probes:
        found, dropped = tracefs.histogram(texts[probe.name], probe.key)
        name = probe.watch.text
        hits[name, "", None] += 0
        for (key, number), count in tracefs.values(probe, found, shapes[probe.name]).items():
            hits[name, key, number] += count
        if dropped:
            most = tracefs.ENTRIES
            doubts.append(f"{name}: {dropped} hits of further values than {most} are left out")
    return hits, doubts


def between(later: Mapping[Key, int], earlier: Mapping[Key, int]) -> dict[Key, int]:
    """What histograms that are never cleared counted meanwhile."""
    keys = dict.fromkeys((*earlier, *later))
    return {key: later.get(key, 0) - earlier.get(key, 0) for key in keys}


def rows(
    per: TracePer, iterations: Sequence[int], runs: Sequence[Mapping[Key, int]]
) -> tuple[tuple[int, ...], list[TraceRow]]:
    """Iterations of each sample, and hits of each key.  iterations, runs: those of each run."""
    if per is TracePer.RUN:
        turns, samples = (1,) * len(runs), list(runs)
    else:
        turns = tuple(more - less for less, more in itertools.pairwise(iterations))
        samples = [between(more, less) for less, more in itertools.pairwise(runs)]
    found = []
    for one in dict.fromkeys(key for sample in samples for key in sample):
        watch, key, number = one
        hits = tuple(sample.get(one, 0) for sample in samples)
        found.append(TraceRow(watch=watch, key=key, number=number, hits=hits))
    own = _by_watch(found)
    whole = [TraceRow(watch=watch, hits=_total(each)) for watch, each in own.items()]
    kept = [*whole, *(row for row in found if row.key and any(row.hits))]
    return turns, [*_bounded(kept), *_sums(own)]


def graph_rows(
    watched: Sequence[Watch], calls: Mapping[str, int], lost: int
) -> tuple[list[TraceRow], list[str]]:
    """The functions that were called below those that are watched, and what was lost."""
    name = ", ".join(watch.text for watch in watched)
    found = [TraceRow(watch=name, key=key, hits=(n,), whole=True) for key, n in calls.items()]
    return _bounded(found), [f"{name}: {lost} entries did not fit into the buffer"] if lost else []


def _by_watch(found: Iterable[TraceRow]) -> dict[str, list[TraceRow]]:
    own: dict[str, list[TraceRow]] = {}
    for row in found:
        own.setdefault(row.watch, []).append(row)
    return own


def _total(found: Iterable[TraceRow]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(row.hits for row in found), strict=True)))


def _sums(own: Mapping[str, Sequence[TraceRow]]) -> Iterator[TraceRow]:
    for watch, every in own.items():
        keyed = [row for row in every if row.key and any(row.hits)]
        if keyed and all(row.number is None and _NUMBER.fullmatch(row.key) for row in keyed):
            weighed = ([int(row.key) * hits for hits in row.hits] for row in keyed)
            sums = tuple(map(sum, zip(*weighed, strict=True)))
            if max(map(abs, sums)) < _LARGEST:
                yield TraceRow(watch=watch, key=SUM, hits=sums)


def _bounded(found: Sequence[TraceRow]) -> list[TraceRow]:
    kept: list[TraceRow] = []
    for watch, own in _by_watch(found).items():
        ranked = sorted(own, key=lambda row: (bool(row.key), -max(row.hits), row.key))
        kept += ranked[:MOST_KEYS]
        if rest := ranked[MOST_KEYS:]:
            key = f"[{len(rest)} others]"
            kept.append(TraceRow(watch=watch, key=key, hits=_total(rest), whole=rest[0].whole))
    return kept
