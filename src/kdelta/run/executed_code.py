# SPDX-License-Identifier: GPL-2.0-or-later
"""What the code is of the functions that ran in a trial: of options in which the kernels of its run
differ and, of C files of the user's own, any code, with who called whom (ladder.same_code).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from kdelta import arch, cache, files, options
from kdelta.disassembly.identity import functions_of
from kdelta.disassembly.image import Image, opened
from kdelta.disassembly.option_code import CodeOfOption, known, of_functions
from kdelta.errors import KdeltaError
from kdelta.journal import artifacts
from kdelta.kernels.kernel import Kernel
from kdelta.probes.work import Kind, target, work
from kdelta.run.guest_trial import load_symbols
from kdelta.sample import CodeRan, OptionCode, OptionCount, OptionPlaces, TrialRecord, TrialResult

_FORMAT, _NAME = "3", "functions"
_MOST_BYTES = 64 << 20
_OptionCodes = dict[str, dict[str, CodeOfOption] | None]
_Digests = dict[str, str | None]
T = TypeVar("T")
_NO_OP = re.compile(r"(?:cs |data16 )*nop|endbr|xchg %ax,%ax")
# Where a field lies in a structure: "0x10(%rax)", "[x0, #16]".  And where data without a name does,
# as texts and what UBSAN tells: "$jiffies+0x7a8".
_FIELD = re.compile(
    r"-?0x[0-9a-f]+(?=\((?!%rip))|(?<=, )#-?(?:0x)?[0-9a-f]+(?=\])"
    r"|\$[A-Za-z_][\w.]*\+0x[0-9a-f]+"
)


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
        key = _FORMAT, msgspec.json.encode(patterns)
        read = partial(of_functions, wanted=patterns)
        every = _learned(kernel, names, _OptionCodes, read, *key)
        found = {name: own for name, own in sorted(every.items()) if own is not None}
        certain = tuple(_certain(trial, result, found, folder))
    except KdeltaError:
        return result
    places = (
        OptionPlaces(function=name, code=code, places=own.places)
        for name, codes_of in found.items()
        for code, own in codes_of.items()
    )
    told = OptionCode(
        looked_for=tuple(pattern.name for pattern in patterns),
        unread=tuple(sorted(every.keys() - found)),
        places=tuple(places),
        counts=(*certain, *_whole(result, patterns)),
    )
    return replace(result, options=told)


def _learned(
    kernel: Kernel,
    names: frozenset[str],
    kind: type[dict[str, T]],
    read: Callable[[Image, frozenset[str]], dict[str, T]],
    *key: bytes | str,
) -> dict[str, T]:
    """What was read of each function in the image, None where its code could not be.

    That is done once, which takes as long as a short trial for a hundred functions: trials of a
    kernel share most.  key: of what is read.  Raises KdeltaError for an image that cannot be.
    """
    with cache.workplace("options", cache.digest(files.digest_of(kernel.image), *key)) as folder:
        place = folder / _NAME
        every = files.kept(place, _MOST_BYTES, kind) or {}
        if new := names - every.keys():
            every |= read(opened(kernel.image, kernel.release), new)
            files.keep(place, msgspec.json.encode(every))
            cache.make_room("options", keep=folder)
    return {name: every[name] for name in names}


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
    windows = artifacts.typical_windows(folder, trial.index, result)
    for phase, window in windows.items():
        counts: Counter[tuple[str, str]] = Counter()
        for address, content, count in window.instructions(places):
            name, code, own = places[address]
            if own in (b"", content):
                counts[name, code] += count
        for (name, code), count in sorted(counts.items()):
            yield OptionCount(phase=phase, function=name, code=code, insns=count)


def _whole(result: TrialResult, patterns: Sequence[options.Pattern]) -> Iterator[OptionCount]:
    for pattern in patterns:
        theirs = options.matching(pattern.functions)
        for row in result.exact.functions:
            if theirs.match(row.function):
                yield OptionCount(
                    phase=row.phase, function=row.function, code=pattern.name, insns=row.insns
                )


# ---- C files of the user's own -------------------------------------------------------------------


def with_code(trial: TrialRecord, result: TrialResult, kernel: Kernel, folder: Path) -> TrialResult:
    """A counted result with the code that ran, and who called whom.  folder: the run's.

    Nothing is added where image, symbols or raw counts cannot be read.
    """
    names = frozenset(functions_of(row.function for row in result.exact.functions))
    architecture = arch.of(kernel.arch)
    if not trial.outside or kernel.arch == "riscv64":  # see probes.work.target
        return result
    try:
        codes = _learned(kernel, names, _Digests, _digests, "code 4")
        table = load_symbols(files.digest_of(kernel.image), str)
        windows = artifacts.typical_windows(folder, trial.index, result)
    except KdeltaError:
        return result
    calls: defaultdict[str, Counter[str]] = defaultdict(Counter)
    times: Counter[int] = Counter()
    for window in windows.values():
        for row in work(window, table, architecture):
            calls[row.function][""] += row.count * (row.kind is Kind.INDIRECT)
        for address, content, count in window.instructions():
            times[address] += count
            callee, offset = table.find(target(content, address, architecture) or 0)
            if not offset and callee in names:
                calls[table.find(address)[0]][callee] += count
    rounds = {table.find(at)[0]: times[at] for at in sorted(times, key=times.__getitem__)}
    code = (
        CodeRan(function=name, code=own, calls=+calls[name], rounds=rounds.get(name, 0))
        for name, own in sorted(codes.items())
        if own
    )
    return replace(result, code=tuple(code))


def _digests(image: Image, names: frozenset[str]) -> _Digests:
    """Of the instructions of all functions of a name, but for no-ops (an entry has another one
    where nothing calls by pointer), and for where fields lie in structures.
    """
    found: _Digests = dict.fromkeys(names)
    for name, own in image.codes(sorted(names)).items():
        if not isinstance(own, str):
            lines = (_FIELD.sub("", line) for code in own for line in ("", *code.normal))
            lines = (line for line in lines if not _NO_OP.match(line))
            found[name] = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return found
