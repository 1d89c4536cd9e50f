# SPDX-License-Identifier: GPL-2.0-or-later
"""What a counting trial records beside its counts: prepared for the plugin, and kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdelta.arch import Arch
from kdelta.attribution.insns import CountedWindow
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.errors import SpecError
from kdelta.journal import artifacts
from kdelta.probes import calls, memory, values
from kdelta.probes.work import work
from kdelta.study import probes

_KERNEL_HALF = 1 << 63
FUNCTIONS, ARGUMENTS = "functions.bin", "arguments.bin"


@dataclass(frozen=True, slots=True)
class Probing:
    """The probes of one trial.  wanted: as the study words them.  memory: where it is, if asked."""

    wanted: Sequence[str]
    functions: calls.Functions | None
    asked: tuple[probes.Value, ...]
    places: values.Reads | None
    memory: memory.Map | None = None

    def files(self, folder: Path) -> dict[str, Any]:
        """Write what the plugin reads; fields of its CountingFiles."""
        given: dict[str, Any] = {"calls": probes.CALLS in self.wanted}
        if self.functions:
            given["functions"] = folder / FUNCTIONS
            self.functions.write(given["functions"])
        if self.memory:
            given["memory"] = self.memory.option
        if self.places and self.places.of:
            given["arguments"] = folder / ARGUMENTS
            self.places.write(given["arguments"])
        return given

    def keep(
        self,
        folder: Path,
        standing: Mapping[str, CountedWindow],
        table: Symbols,
        architecture: Arch,
        release: str,
    ) -> None:
        """Put what was recorded in the windows that stand for phases into the trial's folder."""
        names = self.functions.names if self.functions else ()
        if probes.CALLS in self.wanted:
            trees = {phase: calls.tree(window, names) for phase, window in standing.items()}
            artifacts.keep_calls(folder, trees)
        told = None
        if self.memory:
            told = {
                phase: memory.memory(window.touched, names, table, release, self.memory)
                for phase, window in standing.items()
            }
        kinds = {phase: work(window, table, architecture) for phase, window in standing.items()}
        histograms = {phase: self._histograms(window) for phase, window in standing.items()}
        found = artifacts.TrialDetails(
            functions=_places(standing.values(), table),
            work=kinds,
            memory=told,
            values=histograms if self.asked else {},
        )
        artifacts.keep_details(folder, found)

    def _histograms(self, window: CountedWindow) -> dict[str, artifacts.Histogram]:
        if self.places is None:
            return {}
        read = values.counted(window, self.places.of)
        found: dict[str, artifacts.Histogram] = {}
        for number, value in enumerate(self.asked):
            if number in self.places.missing:
                found[value.text] = artifacts.Histogram(
                    missing=f"this kernel has no function {value.function} of its own"
                )
                continue
            counts: dict[int, int] = {}
            for register, count in read[number].items():
                counts[value.read(register)] = counts.get(value.read(register), 0) + count
            ranked = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
            rest = ranked[artifacts.MOST_VALUES :]
            found[value.text] = artifacts.Histogram(
                values={str(key): count for key, count in ranked[: artifacts.MOST_VALUES]},
                others=len(rest),
                others_count=sum(count for _, count in rest),
            )
        return found


def _places(
    windows: Iterable[CountedWindow], table: Symbols
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Where the functions of the kernel lie that ran."""
    starts: dict[int, str] = {}
    for window in windows:
        for addresses, _ in window.groups():
            for address in addresses if addresses[0] >= _KERNEL_HALF else ():
                name, offset = table.find(address)
                starts[address - offset] = name
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for start, name in sorted(starts.items()):
        if name != UNKNOWN:
            found[name] = (*found.get(name, ()), (start, table.end(start)))
    return found


def prepared(
    wanted: Sequence[str], table: Symbols, program: Path, architecture: Arch, release: str
) -> Probing:
    """The probes of a trial of a static program on the kernel of a release.

    Raises SpecError for one that this architecture or release has not.
    """
    check(wanted, architecture, release)
    asked = tuple(filter(None, map(probes.value, wanted)))
    followed = {probes.CALLS, probes.MEMORY} & {*wanted}
    places = [values.ReadAt(function=one.function, argument=one.argument) for one in asked]
    return Probing(
        wanted=wanted,
        functions=calls.functions(table, program.read_bytes()) if followed else None,
        asked=asked,
        places=values.places(places, table) if asked else None,
        memory=memory.of(architecture.debian, release) if probes.MEMORY in wanted else None,
    )


def check(wanted: Sequence[str], architecture: Arch, release: str = "") -> None:
    """Raises SpecError for a probe that kernels of this architecture, or that release, have not."""
    if probes.MEMORY in wanted and memory.of(architecture.debian, release) is None:
        raise SpecError(
            f"where {release or 'kernels'} of {architecture.debian} has its memory is not known",
            place="probes",
            action="leave --probe memory out",
        )
