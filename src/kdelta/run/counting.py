# SPDX-License-Identifier: GPL-2.0-or-later
"""One trial of the exact instrument: one guest runs one scenario, and is counted."""

from __future__ import annotations

import gzip
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kdelta import guest, output, workload
from kdelta.attribution import insns, symbols
from kdelta.errors import GuestError
from kdelta.files import digest_of
from kdelta.guests import checkpoint, qemu, swap
from kdelta.kernels.kernel import Kernel
from kdelta.machine.identity import GuestIdentity
from kdelta.run import probing, selftest, symbol_cache
from kdelta.run.guest_trial import Bench, GuestTrial
from kdelta.run.trial import Ran, framed, orders_for, run_in
from kdelta.sample import (
    Environment,
    ExactData,
    TrialResult,
)

# Exact counts repeat: enough windows to see a mode beside some that a task switch disturbed.
WINDOWS = 8
WARMUP = 2


def depends_on(
    bench: Bench, kernel: Kernel, scenario: workload.Scenario, program: Path
) -> tuple[bytes | str, ...]:
    """All that decides the result of a trial, but for kdelta's own code (run.store).

    Plugin and self-test stand by their sources, too, as an environment names them: one program of
    two sources, which differ in a comment, is of two environments, which are not compared.
    """
    target = bench.settings.target
    return (
        checkpoint.key(bench.emulator, bench.settings, kernel.image),
        digest_of(qemu.plugin()),
        qemu.plugin_digest(),
        selftest.name(bench.settings.arch),
        digest_of(guest.program(program, target, theirs=scenario.outside)),
        b"" if scenario.declared else program.with_suffix(".toml").read_bytes(),
        *scenario.arguments(iterations=WINDOWS, warmup=WARMUP),
        msgspec.json.encode(bench.settings),
        kernel.package,  # modules come from it
        swap.reads(bench.settings, kernel),
        kernel.version,
        kernel.release,  # probes go by it
        str(bench.seed),
        str(bench.fresh_boot),
        *bench.probes,
    )


def run_trial(
    bench: Bench, kernel: Kernel, scenario: workload.Scenario, program: Path, folder: Path
) -> TrialResult:
    """Run a scenario's program (C source) on a kernel; artifacts go into folder.

    A fault of the kernel under test becomes a result that says so.  Raises InfraError when this
    machine is at fault (the caller may try again), Cancelled when the run was ended.
    """
    trial = _CountedTrial(bench, kernel, scenario, program, folder)
    try:
        return framed(folder, trial.result, kernel=kernel.identity(), fresh_boot=bench.fresh_boot)
    finally:
        (folder / "counts.bin").unlink(missing_ok=True)
        for name in (probing.FUNCTIONS, probing.ARGUMENTS):
            (folder / name).unlink(missing_ok=True)


_GuestRan = tuple[GuestIdentity, Ran, symbols.Symbols]


class _CountedTrial(GuestTrial):
    _probing: probing.Probing | None = None
    _tested = ""

    def result(self) -> TrialResult:
        """Count, and read what was counted."""
        point, (identity, ran, table) = self._used(self._run)
        (self._folder / "workload.txt").write_text(ran.printed)
        counts = self._counts()
        if identity.build_id != point.build_id:
            raise GuestError(f"the guest's build id is {identity.build_id}, not {point.build_id}")
        result = self._judged(ran, identity, partial(self._counted, counts, table))
        return replace(result, environment=self._environment(identity))

    def _run(self, point: checkpoint.Checkpoint, given: swap.Backing) -> _GuestRan:
        """Boot or restore the guest and run the workload.  Raises GuestFault."""
        bench = self._bench
        table = self._guest.symbols(point)
        whole = partial(self._guest.is_whole, point)
        self._tested = selftest.passed(self._subject(point, table), whole)
        ask = partial(
            run_in,
            settings=bench.settings,
            release=self._kernel.release,
            timeout_s=bench.timeout_s,
        )
        identity, ran, answers = self._asked(point, self._launch(point, given, table), ask)
        if given.modules:
            table = table.with_modules(answers.text("modules"))
        return identity, ran, table

    def _subject(self, point: checkpoint.Checkpoint, table: symbols.Symbols) -> selftest.Subject:
        return selftest.Subject(
            emulator=self._bench.emulator,
            settings=self._bench.settings,
            point=point,
            image=self._kernel.image,
            table=table,
            cancelled=self._bench.cancelled,
        )

    def _launch(
        self, point: checkpoint.Checkpoint, given: swap.Backing, table: symbols.Symbols
    ) -> qemu.Launch:
        """How the guest that is counted is started."""
        bench = self._bench
        target = bench.settings.target
        events = symbol_cache.events_file(
            digest_of(self._kernel.image),
            lambda: table,
            target,
            every_task=self._workload.every_task,
        )
        arguments = self._scenario.arguments(iterations=WINDOWS, warmup=WARMUP)
        orders = orders_for(bench.settings, given, arguments, bench.seed)
        counting = qemu.CountingFiles(
            output=self._folder / "counts.bin",
            events=events,
            windows=_windows(self._scenario),
            **self._prepared(table).files(self._folder),
        )
        return self._launched(point, given, orders, counting)

    def _prepared(self, table: symbols.Symbols) -> probing.Probing:
        """What is recorded beside counts."""
        target = self._bench.settings.target
        self._probing = probing.prepared(
            self._bench.probes, table, self._binary, target, self._kernel.release
        )
        return self._probing

    def _counted(
        self, counts: insns.Counts, table: symbols.Symbols, reading: output.Reading
    ) -> tuple[ExactData, tuple[str, ...]]:
        """The counts; what is recorded beside them goes into the trial's folder."""
        standing, data = insns.counted(counts, table, _marked(reading), reading.layouts)
        if self._probing:
            target = self._bench.settings.target
            self._probing.keep(self._folder, standing, table, target, self._kernel.release)
        return data, ()

    def _counts(self) -> insns.Counts:
        """What the plugin wrote; kept compressed."""
        raw = self._folder / "counts.bin"
        counts = insns.read(raw)
        kept = gzip.compress(raw.read_bytes(), compresslevel=1, mtime=0)
        (self._folder / "counts.bin.gz").write_bytes(kept)
        raw.unlink()
        return counts

    def _environment(self, identity: GuestIdentity) -> Environment:
        settings = self._bench.settings
        return Environment(
            accelerator="tcg",
            qemu_version=self._bench.emulator.version,
            plugin_sha256=qemu.plugin_digest(),
            machine=settings.target.machine,
            cpu_model=settings.cpu_model,
            cpus=identity.seen.cpus or 0,
            memory_mib=settings.memory_mib,
            cmdline=identity.seen.cmdline or "",
            mitigations="; ".join(identity.seen.mitigations),
            self_test=self._tested,
            program_sha256=digest_of(self._binary),
            initramfs_sha256=digest_of(guest.initramfs(settings.target)),
        )


def _windows(scenario: workload.Scenario) -> int:
    """How many its program has, of all phases; 0 where that decides for itself."""
    rounds = -(-WINDOWS // scenario.layouts) * scenario.layouts
    return 0 if scenario.declared else rounds * len(scenario.windows)


def _marked(reading: output.Reading) -> list[insns.Marked]:
    """The phases that the program announced, with as many windows as it printed samples of."""
    seen = Counter(sample.phase for sample in reading.samples)
    return [
        insns.Marked(
            id=phase.id,
            name=phase.name,
            operation=phase.operation,
            operations=phase.operations,
            windows=seen[phase.name],
        )
        for phase in reading.phases
    ]
