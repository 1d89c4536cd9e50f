# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a trial's count is the code of options in which the kernels of its run differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kdelta import cache, files, options
from kdelta.disassembly.identity import functions_of
from kdelta.disassembly.image import opened
from kdelta.disassembly.option_code import CodeOfOption, known, of_functions
from kdelta.errors import KdeltaError
from kdelta.files import digest_of
from kdelta.journal import raw_counts
from kdelta.kernels.kernel import Kernel
from kdelta.options import Pattern
from kdelta.sample import OptionCode, OptionCount, OptionPlaces, TrialRecord, TrialResult

_FORMAT, _NAME = "2", "functions"
_MOST_BYTES = 64 << 20


def in_question(kernels: Sequence[Kernel | KdeltaError]) -> frozenset[str]:
    """Patterns of the code of options that any two kernels differ in, and that decide."""
    own = {kernel.identity().options for kernel in kernels if isinstance(kernel, Kernel)}
    apart = (one for pair in combinations(sorted(own), 2) for one in options.differences(*pair))
    return frozenset(one.code for one in apart if one.decides and one.code)


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
        known_code = _functions(kernel, names, patterns)
        certain = tuple(_certain(trial, result, known_code.found, folder))
    except KdeltaError:
        return result
    places = (
        OptionPlaces(function=name, code=code, places=own.places)
        for name, codes_of in sorted(known_code.found.items())
        for code, own in codes_of.items()
    )
    told = OptionCode(
        looked_for=tuple(pattern.name for pattern in patterns),
        unread=tuple(sorted(known_code.unread)),
        places=tuple(places),
        counts=(*certain, *_whole(result, patterns)),
    )
    return replace(result, options=told)


class _Known(Struct):
    found: dict[str, dict[str, CodeOfOption]]
    unread: set[str]


def _functions(kernel: Kernel, names: frozenset[str], patterns: tuple[Pattern, ...]) -> _Known:
    """Each function is read in the image once, which takes as long as a short trial for a hundred
    of them: trials of a kernel share most.
    """
    asked = digest_of(kernel.image), msgspec.json.encode(patterns)
    with cache.workplace("options", cache.digest(_FORMAT, *asked)) as folder:
        place = folder / _NAME
        every = files.kept(place, _MOST_BYTES, _Known) or _Known({}, set())
        if new := names - every.found.keys() - every.unread:
            found, unread = of_functions(opened(kernel.image, kernel.release), new, patterns)
            every.found.update(found)
            every.unread.update(unread)
            files.keep(place, msgspec.json.encode(every))
            cache.make_room("options", keep=folder)
    found = {name: own for name, own in every.found.items() if name in names}
    return _Known(found, every.unread & names)


def _certain(
    trial: TrialRecord, result: TrialResult, found: dict[str, dict[str, CodeOfOption]], folder: Path
) -> Iterator[OptionCount]:
    """How often the instructions ran that are surely an option's.

    One that the kernel changed when it booted is not counted, but at the begin of a function.
    """
    places = {
        at: (name, code, content)
        for name, codes in found.items()
        for code, own in codes.items()
        for at, content in own.certain.items()
    }
    windows = raw_counts.typical_windows(folder, trial.index, result)
    for phase, window in windows.items():
        counts: Counter[tuple[str, str]] = Counter()
        for address, content, count in window.instructions(places):
            name, code, own = places[address]
            if own in (b"", content):
                counts[name, code] += count
        for (name, code), count in sorted(counts.items()):
            yield OptionCount(phase=phase, function=name, code=code, insns=count)


def _whole(result: TrialResult, patterns: Sequence[Pattern]) -> Iterator[OptionCount]:
    for pattern in patterns:
        theirs = options.matching(pattern.functions)
        for row in result.exact.functions:
            if theirs.match(row.function):
                yield OptionCount(
                    phase=row.phase, function=row.function, code=pattern.name, insns=row.insns
                )
