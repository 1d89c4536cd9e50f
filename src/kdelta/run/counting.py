# SPDX-License-Identifier: GPL-2.0-or-later
"""One trial of the exact instrument: one guest runs one scenario, and is counted.

What is recorded beside the counts is prepared for the plugin here, and kept.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from kdelta import elf, guest, output, workload
from kdelta.arch import Arch
from kdelta.attribution import insns
from kdelta.attribution.insns import CountedWindow
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.disassembly import btf, kallsyms
from kdelta.errors import GuestError, SpecError
from kdelta.files import digest_of
from kdelta.guests import checkpoint, orders, qemu
from kdelta.guests.orders import Order, SwapBacking, swap_digest
from kdelta.journal import artifacts
from kdelta.kernels.image import replaced_in, unpacked_kernel
from kdelta.kernels.kernel import Kernel
from kdelta.machine.identity import GuestIdentity
from kdelta.probes import calls, memory, sharing, values
from kdelta.probes.system_calls import Calls, pointed
from kdelta.probes.work import work
from kdelta.run import selftest
from kdelta.run.guest_trial import Bench, GuestTrial, events_file
from kdelta.run.trial import Ran, framed, run_in, set_up
from kdelta.sample import Environment, ExactData, MetricValue, TrialResult
from kdelta.study import probes

# Exact counts repeat: enough windows to see a mode beside some that a task switch disturbed.
WINDOWS = 8
WARMUP = 2


def depends_on(
    bench: Bench, kernel: Kernel, scenario: workload.Scenario, program: Path
) -> tuple[bytes | str, ...]:
    """All that decides a trial's result, but for kdelta's own code (run.store).  Sources of plugin
    and self-test are part of it: environments that differ in a comment are not compared.
    """
    target = bench.settings.target
    return (
        checkpoint.key(bench.emulator, bench.settings, kernel.image, bench.seed.boot),
        digest_of(qemu.plugin()),
        qemu.plugin_digest(),
        selftest.name(bench.settings.arch),
        digest_of(guest.program(program, target, theirs=scenario.outside)),
        digest_of(guest.syscalls(target)),
        b"" if scenario.declared else program.with_suffix(".toml").read_bytes(),
        *scenario.arguments(iterations=WINDOWS, warmup=WARMUP),
        msgspec.json.encode(bench.settings),
        kernel.package,  # modules come from it
        swap_digest(bench.settings, kernel),
        kernel.version,
        kernel.release,  # probes go by it
        bench.seed.order.line,
        str(bench.fresh_boot),
        *bench.probes,
        *bench.first,
    )


def run_trial(
    bench: Bench, kernel: Kernel, scenario: workload.Scenario, program: Path, folder: Path
) -> TrialResult:
    """Run a scenario's C source on a kernel; artifacts go into folder.  A fault of the kernel is a
    result.  Raises InfraError when this machine is at fault, Cancelled.
    """
    trial = _CountedTrial(bench, kernel, scenario, program, folder)
    try:
        return framed(folder, trial.result, kernel=kernel.identity(), fresh_boot=bench.fresh_boot)
    finally:
        for name in ("counts.bin", FUNCTIONS, ARGUMENTS):
            (folder / name).unlink(missing_ok=True)


_GuestRan = tuple[GuestIdentity, Ran, Symbols]


class _CountedTrial(GuestTrial):
    _probing: Probing | None = None
    _tested = ""
    _moved: tuple[MetricValue, ...] = ()

    def result(self) -> TrialResult:
        point, (identity, ran, table) = self._used(self._run)
        (self._folder / "workload.txt").write_text(ran.printed)
        raw = self._folder / "counts.bin"
        counts = insns.read(raw)
        kept = gzip.compress(raw.read_bytes(), compresslevel=1, mtime=0)
        (self._folder / "counts.bin.gz").write_bytes(kept)
        if identity.build_id != point.build_id:
            raise GuestError(f"the guest's build id is {identity.build_id}, not {point.build_id}")
        result = self._judged(ran, identity, partial(self._counted, counts, table))
        metrics = (*result.metrics, *self._moved)
        return replace(result, environment=self._environment(identity), metrics=metrics)

    def _run(self, point: checkpoint.Checkpoint, given: SwapBacking) -> _GuestRan:
        bench, release = self._bench, self._kernel.release
        table = self._guest.symbols(point)
        whole = partial(self._guest.is_whole, point)
        self._tested = selftest.passed(bench, point, self._kernel.image, table, whole)
        ask = partial(run_in, settings=bench.settings, release=release, timeout_s=bench.timeout_s)
        identity, ran, answers = self._asked(point, self._launch(point, given, table), ask)
        if given.modules:
            table = table.with_modules(answers.text("modules"))
        return identity, ran, table

    def _launch(
        self, point: checkpoint.Checkpoint, given: SwapBacking, table: Symbols
    ) -> qemu.Launch:
        bench, target = self._bench, self._bench.settings.target
        image, every_task = digest_of(self._kernel.image), self._workload.every_task
        arguments = self._scenario.arguments(iterations=WINDOWS, warmup=WARMUP)
        replaced = replaced_in(self._kernel.image)
        self._probing = prepared(
            bench.probes, table, self._binary, target, self._kernel.release, replaced,
            self._kernel.image,
        )  # fmt: skip
        counting = qemu.CountingFiles(
            output=self._folder / "counts.bin",
            events=events_file(image, lambda: table, target, every_task=every_task),
            windows=_windows(self._scenario),
            pointed=pointed(guest.syscall_names(target)) if self._scenario.outside else "",
            image=elf.end(self._binary.read_bytes()) if self._scenario.outside else 0,
            **self._probing.files(self._folder),
        )
        first = map(Order, bench.first)
        told = (*first, *set_up(bench.settings, given, bench.seed), orders.run(arguments))
        return self._launched(point, given, told, counting)

    def _counted(
        self, counts: insns.Counts, table: Symbols, reading: output.Reading
    ) -> tuple[ExactData, tuple[str, ...]]:
        target = self._bench.settings.target
        standing, data = counted(counts, table, reading, target, self._scenario.by_design)
        if self._probing:
            self._probing.keep(self._folder, standing, table, target, self._kernel.release)
        if probes.SHARING in self._bench.probes:
            self._moved = sharing.told(standing, data)
        return data, ()

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


@lru_cache(maxsize=4)
def _data(image: Path) -> sharing.Naming:
    kernel = unpacked_kernel(image)
    types, symbols = btf.read(kernel), kallsyms.read(kernel)
    named = dict(zip(symbols.names, symbols.starts, strict=True)) if symbols else {}
    cache = [("kmem_cache", name) for name in ("name", "size", "refcount")]
    every = [types and types.offsets(of).get(name) for of, name in (("slab", "slab_cache"), *cache)]
    every.append(named.get("__per_cpu_offset"))
    return sharing.Naming(
        named=symbols.within if symbols else lambda _start, _end: "",
        member=lru_cache(maxsize=None)(types.member) if types else lambda _of, _offset: "",
        own=(named.get("__per_cpu_start", 0), named.get("__per_cpu_end", 0)),
        slabs="" if None in every else ":".join(map(str, every)),
        members=types.offsets if types else lambda _of: {},
    )


def _windows(scenario: workload.Scenario) -> int:
    """How many its program has, of all phases; 0 where that decides for itself."""
    rounds = -(-WINDOWS // scenario.layouts) * scenario.layouts
    return 0 if scenario.declared else rounds * len(scenario.windows)


def counted(
    counts: insns.Counts,
    table: Symbols,
    reading: output.Reading,
    target: Arch,
    by_design: tuple[str, ...],
) -> tuple[dict[str, CountedWindow], ExactData]:
    """As insns.counted, of the phases that a program announced.  by_design: of its scenario."""
    names = guest.syscall_names(target)
    calls = Calls(target.debian, names, by_design, reading.vdso, reading.loader)
    return insns.counted(counts, table, _marked(reading), calls.asked, reading.layouts)


def _marked(reading: output.Reading) -> list[insns.Marked]:
    seen = Counter(sample.phase for sample in reading.samples)
    return [insns.Marked(**asdict(one), windows=seen[one.name]) for one in reading.phases]


_KERNEL_HALF = 1 << 63
FUNCTIONS, ARGUMENTS = "functions.bin", "arguments.bin"


@dataclass(frozen=True, slots=True)
class Probing:
    """The probes of one trial.  wanted: as the study words them.  memory: where it is, if asked.
    data: of the kernel, where lines that CPUs share are asked for.
    """

    wanted: Sequence[str]
    functions: calls.Functions | None
    asked: tuple[probes.Value, ...]
    places: values.Reads | None
    memory: memory.Map | None = None
    data: sharing.Naming | None = None

    def files(self, folder: Path) -> dict[str, Any]:
        """Write what the plugin reads; fields of its CountingFiles."""
        given: dict[str, Any] = {"calls": probes.CALLS in self.wanted}
        if self.functions:
            given["functions"] = folder / FUNCTIONS
            self.functions.write(given["functions"])
        if self.memory:
            given["memory"] = self.memory.option
        if self.data:
            given |= {"sharing": True, "slabs": self.data.slabs}
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
            artifacts.keep(folder, artifacts.CALLS, trees)
        told: dict[str, Any] = {"work": {}, "memory": {}, "sharing": {}, "values": {}}
        told |= {"fields": {}, "members": {}}
        for phase, window in standing.items():
            told["work"][phase] = work(window, table, architecture)
            if self.memory:
                given = window.touched, names, table, release, self.memory
                told["memory"][phase] = memory.memory(*given)
                if self.data:
                    told["sharing"][phase] = sharing.sharing(*given, self.data)
                    where = window.touched, names, release, self.memory
                    told["fields"][phase] = sharing.fields(*where, self.data)
                    told["members"] |= sharing.members(window.touched, self.data)
            if self.asked:
                told["values"][phase] = self._histograms(window)
        told["memory"] = told["memory"] if self.memory else None
        told["sharing"] = told["sharing"] if self.data else None
        details = artifacts.TrialDetails(functions=_places(standing.values(), table), **told)
        artifacts.keep(folder, artifacts.DETAILS, details)

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
            counts = Counter[int]()
            for register, count in read[number].items():
                counts[value.read(register)] += count
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
    starts: dict[int, str] = {}
    for window in windows:
        for addresses, _ in window.groups():
            begin = past = 0  # of the last one's function
            for address in addresses if addresses[0] >= _KERNEL_HALF else ():
                if not begin <= address < past:
                    name, offset = table.find(address)
                    begin, past = address - offset, table.end(address)
                    starts[begin] = name
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for start, name in sorted(starts.items()):
        if name != UNKNOWN:
            found[name] = (*found.get(name, ()), (start, table.end(start)))
    return found


def prepared(
    wanted: Sequence[str],
    table: Symbols,
    program: Path,
    architecture: Arch,
    release: str,
    replaced: Collection[str] = (),
    image: Path | None = None,
) -> Probing:
    """The probes of a trial of a static program.  Raises SpecError for one that it cannot have.

    replaced: functions of the kernel that another one of their name stands for.  image: of the
    kernel, whose data is named where lines that CPUs share are asked for.
    """
    check_probes(wanted, architecture, release)
    asked = tuple(filter(None, map(probes.value, wanted)))
    followed = {probes.CALLS, probes.MEMORY, probes.SHARING} & {*wanted}
    places = [values.ReadAt(function=one.function, argument=one.argument) for one in asked]
    return Probing(
        wanted=wanted,
        functions=calls.functions(table, program.read_bytes(), replaced) if followed else None,
        asked=asked,
        places=values.places(places, table) if asked else None,
        memory=memory.of(architecture.debian, release) if _of_memory(wanted) else None,
        data=_data(image) if image and probes.SHARING in wanted else None,
    )


def check_probes(wanted: Sequence[str], architecture: Arch, release: str = "") -> None:
    """Raises SpecError for a probe that kernels of this architecture, or that release, have not."""
    if _of_memory(wanted) and memory.of(architecture.debian, release) is None:
        cause = f"where {release or 'kernels'} of {architecture.debian} has its memory is not known"
        raise SpecError(cause, place="probes", action=f"leave --probe {_of_memory(wanted)[0]} out")


def _of_memory(wanted: Sequence[str]) -> list[str]:
    return [one for one in (probes.MEMORY, probes.SHARING) if one in wanted]
