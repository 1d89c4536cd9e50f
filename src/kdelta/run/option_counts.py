# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a trial's count is the code of options in which the kernels of its run differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path

from msgspec.structs import replace

from kdelta import options
from kdelta.disassembly.identity import functions_of
from kdelta.disassembly.image import Image, opened
from kdelta.disassembly.option_code import CodeOfOption, known, of_functions
from kdelta.errors import KdeltaError
from kdelta.journal import raw_counts
from kdelta.kernels.kernel import Kernel
from kdelta.options import Pattern
from kdelta.sample import OptionCode, OptionCount, OptionPlaces, TrialRecord, TrialResult


def in_question(kernels: Sequence[Kernel | KdeltaError]) -> frozenset[str]:
    """Patterns of the code of options that any two kernels differ in, and that decide."""
    own = {_recorded(kernel) for kernel in kernels if isinstance(kernel, Kernel)}
    apart = (one for pair in combinations(sorted(own), 2) for one in options.differences(*pair))
    return frozenset(one.code for one in apart if one.decides and one.code)


def _recorded(kernel: Kernel) -> tuple[str, ...]:
    return kernel.identity().options


def with_option_code(
    trial: TrialRecord, result: TrialResult, kernel: Kernel, codes: frozenset[str], folder: Path
) -> TrialResult:
    """A counted result with what the functions that ran have of such code.

    folder: the run's.  An image that cannot be read leaves the result as it is: then nothing is
    proven, and nothing bounded.
    """
    patterns = known(codes, kernel.arch)
    names = frozenset(functions_of(row.function for row in result.exact.functions))
    if not patterns or not names:
        return result
    try:
        image = opened(kernel.image, kernel.release)
        found, unread = _functions(kernel.image, kernel.release, names, patterns)
        counts = (*_certain(trial, result, image, found, folder), *_whole(result, patterns))
    except KdeltaError:
        return result
    places = (
        OptionPlaces(function=name, code=code, places=own.places)
        for name, codes_of in sorted(found.items())
        for code, own in codes_of.items()
    )
    told = OptionCode(
        looked_for=tuple(pattern.name for pattern in patterns),
        unread=unread,
        places=tuple(places),
        counts=counts,
    )
    return replace(result, options=told)


@lru_cache(maxsize=64)
def _functions(
    path: Path, label: str, names: frozenset[str], patterns: tuple[Pattern, ...]
) -> tuple[dict[str, dict[str, CodeOfOption]], tuple[str, ...]]:
    return of_functions(opened(path, label), names, patterns)


def _certain(
    trial: TrialRecord,
    result: TrialResult,
    image: Image,
    found: dict[str, dict[str, CodeOfOption]],
    folder: Path,
) -> Iterator[OptionCount]:
    """How often the instructions ran that are surely an option's.

    One that the kernel changed when it booted counts only at the begin of a function.
    """
    places = {
        at: (name, code)
        for name, codes in found.items()
        for code, own in codes.items()
        for at in own.certain
    }
    entries = {pattern.name for pattern in options.patterns().values() if pattern.entry}
    windows = raw_counts.typical_windows(folder, trial.index, result)
    for phase, window in windows.items():
        counts: Counter[tuple[str, str]] = Counter()
        for address, content, count in window.instructions():
            place = places.get(address)
            if place and (place[1] in entries or image.bytes_at(address, len(content)) == content):
                counts[place] += count
        for (name, code), count in sorted(counts.items()):
            yield OptionCount(phase=phase, function=name, code=code, insns=count)


def _whole(result: TrialResult, patterns: Sequence[Pattern]) -> Iterator[OptionCount]:
    """Functions that are nothing else."""
    for pattern in patterns:
        theirs = options.matching(pattern.functions)
        for row in result.exact.functions:
            if theirs.match(row.function):
                yield OptionCount(
                    phase=row.phase, function=row.function, code=pattern.name, insns=row.insns
                )
