# SPDX-License-Identifier: GPL-2.0-or-later
"""One trial: one guest runs one scenario under the exact instrument."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from kdelta import guest, output, process, workload
from kdelta.attribution import insns, symbols
from kdelta.errors import GuestError, GuestFault
from kdelta.guests import checkpoint, qemu, swap
from kdelta.guests.emulator import Qemu
from kdelta.guests.session import Guest, RestoreError
from kdelta.kernels.kernel import Kernel
from kdelta.machine import readback
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import GuestIdentity
from kdelta.machine.readback import Lacking
from kdelta.printable import quoted
from kdelta.run import facts
from kdelta.sample import (
    Environment,
    ExactData,
    FunctionCount,
    Instrument,
    KernelIdentity,
    Outcome,
    PhaseCounts,
    Skip,
    SkipKind,
    TrialResult,
)

_ANSWER_S = 60.0
# Exact counts repeat: enough windows to see a mode beside some that a task switch disturbed.
WINDOWS = 8
WARMUP = 2
_SKIPPED = 77
_CONTRACT = 1
_STATUSES = (output.EXIT_OK, _CONTRACT, output.EXIT_USAGE, _SKIPPED)
_MAX_REASON = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all trials of a run share.  timeout_s bounds the boot and the workload, each."""

    emulator: Qemu
    settings: MachineSettings
    fresh_boot: bool
    timeout_s: float
    cancelled: threading.Event


def run_trial(
    bench: Bench, kernel: Kernel, scenario: workload.Scenario, program: Path, folder: Path
) -> TrialResult:
    """Run a scenario's program (C source) on a kernel; artifacts go into folder.

    A fault of the kernel under test becomes a result that says so.  Raises InfraError when this
    machine is at fault (the caller may try again), Cancelled when the run was ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    try:
        result = _Trial(bench, kernel, scenario, program, folder).result()
    except Lacking as lack:
        result = skipped(SkipKind.UNSUPPORTED, str(lack), kernel=kernel.identity())
    except GuestFault as fault:
        if fault.console:
            (folder / "console.log").write_text(fault.console)
        result = TrialResult(
            outcome=blame(fault), reasons=(told(fault.sentence()),), kernel=kernel.identity()
        )
    finally:
        (folder / "counts.bin").unlink(missing_ok=True)
    return replace(
        result,
        fresh_boot=bench.fresh_boot,
        wall_s=round(time.monotonic() - begun, 3),
        artifacts={
            path.stem.partition(".")[0]: f"{folder.parent.name}/{folder.name}/{path.name}"
            for path in sorted(folder.iterdir())
            if path.name in ("console.log", "workload.txt", "counts.bin.gz", "command.txt")
        },
    )


class _DamagedError(Exception):
    """The checkpoint that was restored is not what was saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """A guest that ran the workload to its end."""

    identity: GuestIdentity
    printed: str
    status: int
    symbols: symbols.Symbols


class _Trial:
    def __init__(
        self,
        bench: Bench,
        kernel: Kernel,
        scenario: workload.Scenario,
        program: Path,
        folder: Path,
    ) -> None:
        self._bench = bench
        self._kernel = kernel
        self._scenario = scenario
        self._workload = workload.load(scenario.workload)
        self._binary = guest.program(program, bench.settings.target)
        self._folder = folder

    def result(self) -> TrialResult:
        """Measure; once more when the checkpoint is damaged or QEMU does not take it."""
        point = self._checkpoint()
        try:
            ran = self._run(point)
        except (_DamagedError, RestoreError):
            checkpoint.discard(point)
            point = self._checkpoint()
            ran = self._run(point)
        (self._folder / "workload.txt").write_text(ran.printed)
        counts = self._counts()
        if ran.identity.build_id != point.build_id:
            raise GuestError(
                f"the guest's build id is {ran.identity.build_id}, not {point.build_id}"
            )
        return self._judged(ran, counts)

    def _checkpoint(self) -> checkpoint.Checkpoint:
        return checkpoint.take_or_find(
            self._bench.emulator,
            self._bench.settings,
            self._kernel.image,
            timeout=self._bench.timeout_s,
            cancelled=self._bench.cancelled,
        )

    def _run(self, point: checkpoint.Checkpoint) -> _Ran:
        """Boot or restore the guest and run the workload.  Raises _DamagedError, GuestFault."""
        with swap.backing(self._bench.settings, self._kernel, self._folder) as given:
            return self._run_with(point, given)

    def _run_with(self, point: checkpoint.Checkpoint, given: swap.Backing) -> _Ran:
        bench = self._bench
        restored = not bench.fresh_boot
        launch = qemu.Launch(
            image=self._kernel.image,
            initramfs=guest.initramfs(bench.settings.target),
            modules=given.modules,
            disk=given.disk,
            counting=qemu.CountingFiles(
                output=self._folder / "counts.bin",
                events=insns.events_file(
                    point.build_id, lambda: self._symbols(point), bench.settings.target
                ),
            ),
            program=self._binary,
            restore=point.state if restored else None,
            serial=restored and point.serial,
        )
        with Guest(bench.emulator, bench.settings, launch, cancelled=bench.cancelled) as machine:
            # QEMU restores the guest meanwhile.
            (self._folder / "command.txt").write_text(process.quote(machine.argv) + "\n")
            table = self._symbols(point)
            if restored and not checkpoint.intact(point):
                raise _DamagedError
            if bench.fresh_boot:
                machine.wait_ready(bench.timeout_s)
            swap.turn_on(machine, bench.settings, given, _ANSWER_S)
            if given.modules:
                table = table.with_modules(machine.module_symbols(_ANSWER_S))
            identity = machine.prepared(bench.settings, _ANSWER_S)
            arguments = self._scenario.arguments(iterations=WINDOWS, warmup=WARMUP)
            printed, status = machine.run(self._binary, arguments, bench.timeout_s)
        (self._folder / "console.log").write_text(machine.console_text)
        return _Ran(identity=identity, printed=printed, status=status, symbols=table)

    def _symbols(self, point: checkpoint.Checkpoint) -> symbols.Symbols:
        return symbols.load(point.build_id, lambda: self._kallsyms(point))

    def _kallsyms(self, point: checkpoint.Checkpoint) -> str:
        """The symbols, when the cache lost what the making of the checkpoint left there."""
        bench = self._bench
        launch = qemu.Launch(
            image=self._kernel.image,
            initramfs=guest.initramfs(bench.settings.target),
            restore=point.state,
            serial=point.serial,
        )
        with Guest(bench.emulator, bench.settings, launch, cancelled=bench.cancelled) as machine:
            return machine.kallsyms(bench.timeout_s)

    def _counts(self) -> insns.Counts:
        """What the plugin wrote; kept compressed."""
        raw = self._folder / "counts.bin"
        counts = insns.read(raw)
        kept = gzip.compress(raw.read_bytes(), compresslevel=1, mtime=0)
        (self._folder / "counts.bin.gz").write_bytes(kept)
        raw.unlink()
        return counts

    def _judged(self, ran: _Ran, counts: insns.Counts) -> TrialResult:
        identity, printed, status = ran.identity, ran.printed, ran.status
        if status not in _STATUSES:
            last = printed.strip().splitlines()[-1:] or ["it printed nothing"]
            said = quoted(last[0], 200)
            raise GuestError(f"the workload ended with status {status}: {said}")
        reading = output.parse_output(printed, self._workload, self._scenario)
        if reading.exit_code != status:
            raise GuestError(f"the workload says end {reading.exit_code} and ended with {status}")
        known = replace(
            self._kernel.identity(), build_id=identity.build_id, compiler=identity.compiler
        )
        empty = TrialResult(
            outcome=Outcome.OK,
            kernel=known,
            environment=self._environment(identity),
            facts=facts.of_guest(self._bench.settings, identity, status=status),
        )
        if reading.exit_code == _SKIPPED:
            skip = Skip(kind=SkipKind.UNSUPPORTED, sentence=_last(reading.notes))
            return replace(empty, outcome=Outcome.SKIP, skip=skip)
        if reading.exit_code and not reading.samples:
            raise GuestError(f"the workload failed: {_last(reading.notes)}")
        phases, functions = _counted(reading, counts, ran.symbols)
        wrong = readback.mismatches(self._bench.settings, self._kernel.release, identity)
        failed = output.contract_failures(reading)
        reasons = [*wrong, *(f"{f.name} {f.when} is {f.value}, not {f.want}" for f in failed)]
        if reading.exit_code == _CONTRACT and not reasons:
            reasons = [_last(reading.notes)]
        return replace(
            empty,
            outcome=Outcome.INVALID if reasons else Outcome.OK,
            reasons=tuple(map(told, reasons)),
            data=ExactData(phases=phases, functions=functions),
            state=reading.state,
            metrics=reading.metrics,
        )

    def _environment(self, identity: GuestIdentity) -> Environment:
        settings = self._bench.settings
        return Environment(
            accelerator="tcg",
            qemu_version=self._bench.emulator.version,
            plugin_sha256=qemu.plugin_digest(),
            machine=settings.target.machine,
            cpu_model=settings.cpu_model,
            cpus=identity.cpus,
            memory_mib=settings.memory_mib,
            cmdline=identity.cmdline,
            mitigations="; ".join(identity.mitigations),
        )


def _counted(
    reading: output.Reading, counts: insns.Counts, table: symbols.Symbols
) -> tuple[tuple[PhaseCounts, ...], tuple[FunctionCount, ...]]:
    """Counts per phase, and the functions of the window that stands for each phase."""
    if not counts.armed:
        raise GuestError("the plugin never saw PID 1's mark")
    if counts.errors:
        raise GuestError(f"the marks do not fit: {counts.errors[0]}")
    phases: list[PhaseCounts] = []
    functions: list[FunctionCount] = []
    for phase in reading.phases:
        windows = [window for window in counts.windows if window.phase == phase.id]
        timed = sum(sample.phase == phase.name for sample in reading.samples)
        if not windows or len(windows) != timed:
            raise GuestError(f"phase {phase.name}: {len(windows)} windows, {timed} iterations")
        phases.append(
            PhaseCounts(
                phase=phase.name,
                operations=phase.operations,
                operation=phase.operation,
                user=tuple(window.user for window in windows),
                kernel=tuple(window.kernel for window in windows),
                switched=tuple(window.switched for window in windows),
            )
        )
        chosen = insns.typical(windows)
        functions += insns.by_function(chosen, table, phase.name)
    return tuple(phases), tuple(functions)


def told(sentence: str) -> str:
    """A sentence as long as a result keeps it."""
    return sentence[:_MAX_REASON]


def skipped(kind: SkipKind, sentence: str, *, kernel: KernelIdentity | None = None) -> TrialResult:
    """The result of a trial that was not measured."""
    skip = Skip(kind=kind, sentence=told(sentence))
    return TrialResult(outcome=Outcome.SKIP, skip=skip, kernel=kernel)


def not_for(instrument: Instrument, scenario: workload.Scenario) -> TrialResult | None:
    """The result of a trial whose scenario the instrument does not measure, else None."""
    if instrument in scenario.instruments:
        return None
    how = "timed" if instrument is Instrument.EXACT else "counted"
    return skipped(SkipKind.NOT_FOR_INSTRUMENT, f"{scenario.reference} is only {how}")


def blame(fault: GuestFault) -> Outcome:
    """The outcome that says whose fault it is."""
    return Outcome.GUEST_ERROR if isinstance(fault, GuestError) else Outcome.BOOT_ERROR


def _last(notes: Sequence[str]) -> str:
    return notes[-1] if notes else "it gave no reason"
