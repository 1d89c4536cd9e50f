# SPDX-License-Identifier: GPL-2.0-or-later
"""What a stranger's run claims, made again of what it kept: plan, results and programs of a bundle.

Of each trial the raw counts and what its program printed are read once more, by the rules that made
its result, with the functions that the kernel's own image names.  Nothing of it is executed.
"""

from __future__ import annotations

import json
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from kdelta import files, options, workload
from kdelta.archive.apt import Progress
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.disassembly import kallsyms
from kdelta.errors import BuildError, GuestFault, KdeltaError, SpecError
from kdelta.export import exported, file_name, is_export
from kdelta.guests import orders, qemu
from kdelta.journal import artifacts
from kdelta.journal.bundle import RUN, Difference, differing
from kdelta.journal.files import MOST_BYTES, read
from kdelta.journal.results import trial_folder
from kdelta.journal.run import RunRecord
from kdelta.kernels.image import unpacked_kernel
from kdelta.kernels.kernel import Kernel
from kdelta.kernels.reference import resolve
from kdelta.machine.axes import AXES, MachineSettings, unlike, with_needs
from kdelta.output import Reading
from kdelta.printable import printable, quoted
from kdelta.probes import sharing
from kdelta.procfs import compiler_in
from kdelta.run import arms, dependencies, timed
from kdelta.run.counting import WARMUP, WINDOWS, counted
from kdelta.run.exact import seed_of
from kdelta.run.executed_code import in_question, with_code, with_option_code
from kdelta.run.guest_trial import load_symbols
from kdelta.run.trial import ARTIFACTS, Ran, blame, bounded, judged
from kdelta.sample import (
    Copied,
    ExactData,
    FunctionCount,
    KernelIdentity,
    MachineFacts,
    MetricValue,
    Outcome,
    SkipKind,
    TraceData,
    TrialRecord,
    TrialResult,
)
from kdelta.source.tree_reference import PREFIX as TREE
from kdelta.study import probes
from kdelta.study.plan import make_plan
from kdelta.study.spec import points
from kdelta.workload import Scenario, Workload

_MOST_TEXT = 64 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MADE_BY = re.compile(r"^ \* Made by:.*\n", re.MULTILINE)
_TOLD = ("outcome", "skip", "reasons", "data", "state", "metrics", "options", "code")
_PACKED = (".txt", ".log", "counts.bin.gz")  # artifacts that a bundle has
_OF_A_COPY: dict[str, Any] = {"kernel": None, "copied": None, "wall_s": 0.0, "artifacts": {}}
_BANNER = re.compile(rb"Linux version \d[ -~]+")
_BUILD_ID = re.compile(rb"\x04\0{3}\x14\0{3}\x03\0{3}GNU\0([\x00-\xff]{20})")  # elf(5), a note
# What of QEMU's command line decides no count: rights, places; the plugin's options, with paths.
_FREE = {"-sandbox", "-run-with", "-runas", "-plugin", "-L"}
_PLACES = re.compile(r"(?:^|(?<==))(?:\$(?:CACHE|TRIAL)/|\$IMAGE|/proc/self/fd/)[^,]*|(?<=fd=)\d+")
# Reasons of which the guest's answers were not kept.
_OF_GUEST = re.compile(rf"(?:kernel release|machine|command line) is |(?:{'|'.join(AXES)}): /")
_NOT_OURS = (KdeltaError, OSError, EOFError, zlib.error, ValueError, LookupError, ArithmeticError)
_NOT_MADE = (Outcome.BOOT_ERROR, Outcome.GUEST_ERROR, Outcome.TIME_OUT, Outcome.INFRA_ERROR)


class Recount:
    """An unpacked bundle.  unknown: what cannot be made again here, a sentence each."""

    def __init__(
        self, folder: Path, record: RunRecord, version: str, progress: Progress | None = None
    ) -> None:
        self.unknown: dict[str, None] = {}
        self._folder, self._record, self._progress = folder, record, progress
        self._ours = record.kdelta_version == version  # of the kdelta that runs
        if not self._ours:
            self.unknown["sources and command.txt: they are of another kdelta"] = None
        self._symbols: dict[str, Symbols | None] = {}
        self.without_source = dependencies.without_source(record, folder)  # no result is made again

    # -- the plan ---------------------------------------------------------------------------------

    def plan(self) -> Iterator[Difference]:
        """What of run.json is not as the study, the seed, the archive and a calendar have it."""
        for path in (self._folder / "bundle.json", *sorted((self._folder / RUN).glob("*.json"))):
            for what in _doubled(path):
                yield Difference(file=path.relative_to(self._folder).as_posix(), what=what)
        for what in (*self._faults_of_plan(), *self._faults_of_images()):
            yield Difference(file=f"{RUN}/run.json", what=what)

    def _faults_of_plan(self) -> Iterator[str]:
        record, study = self._record, self._record.study
        created = _time(record.created)
        if created is None:
            yield f"it was made at {quoted(record.created, 60)}, which is no time that has been"
        elif f"-{created:%Y%m%d-%H%M%S}" not in record.run_id:
            yield f"run {quoted(record.run_id, 80)} was not made at {record.created}"
        if record.bisection:
            self.unknown["that a bisection has all of its trials: it chose them on its way"] = None
            return
        named = arms.of_identities(study, [arm.kernel for arm in record.arms])
        if named != record.arms:
            yield "its arms are not called as their kernels are, or are not those of its study"
        trials = (t for t in record.trials if not t.varies)
        seen = [replace(t, attempts=0, result=None) for t in trials]
        if seen != [*make_plan(study, record.seed)]:
            yield "its trials are not in the order of its seed"
        built = {arm.label for arm in record.arms if arm.kernel.reference.startswith(TREE)}
        if not record.subjects.keys() <= built:
            yield "subjects: are of no commit of its arms"
        begun = read(self._folder / RUN / "attempts.json", dict[int, int])
        if begun and begun != {t.index: t.attempts for t in record.trials}:
            yield "attempts.json is not how often the results say that trials were begun"

    def _faults_of_images(self) -> Iterator[str]:
        for arm, kernel in zip(self._record.arms, self._kernels, strict=True):
            own = arm.kernel
            if own.image_sha256 and not _DIGEST.fullmatch(own.image_sha256):
                yield f"the image of {arm.label} has no SHA-256"
            elif isinstance(kernel, Kernel):
                if _unlike(own, kernel.identity()):
                    yield f"the image of {arm.label} is not that of its package {own.version}"
                yield from self._faults_of_names(own, kernel, arm.label)
            elif kernel and own.image_sha256:
                told = f"that the image of {arm.label} is that of {quoted(own.reference, 80)}"
                self.unknown[f"{told}: {kernel.cause}"] = None

    @cached_property
    def _kernels(self) -> list[Kernel | KdeltaError | None]:
        """Per arm the kernel of its package, or why there is none; None of this machine's own."""
        found: dict[KernelIdentity, Kernel | KdeltaError | None] = {}
        for own in (arm.kernel for arm in self._record.arms if arm.kernel.image_sha256):
            found[own] = SpecError("it was built, or is a file, where it was measured")
            if own.version and not own.name:
                try:
                    name = f"deb:{own.version}"
                    found[own] = resolve(name, own.arch, own.flavour, progress=self._progress)
                except KdeltaError as error:
                    found[own] = error
        return [found.get(arm.kernel) for arm in self._record.arms]

    def _functions(self, trial: TrialRecord) -> Symbols | None:
        """The functions of a trial's kernel, None where they cannot be had here."""
        arm = self._record.arms[trial.arm]
        digest, kernel = arm.kernel.image_sha256, self._kernels[trial.arm]

        def text() -> str:
            if not isinstance(kernel, Kernel) or kernel.image_sha256 != digest:
                raise SpecError("no image")
            table = kallsyms.read(unpacked_kernel(kernel.image))
            if table is None:
                raise SpecError("no symbols in the image")
            rows = zip(table.starts, table.kinds, table.names, strict=True)
            return "\n".join(f"{at:016x} {kind} {name}" for at, kind, name in rows if at >= 0)

        if digest not in self._symbols:
            self._symbols[digest] = None
            try:
                if _DIGEST.fullmatch(digest):
                    self._symbols[digest] = load_symbols(digest, text)
            except KdeltaError:
                what = f"which functions the counts of {arm.label} are of, only their sums"
                self.unknown[f"{what}: its image is not here"] = None
        return self._symbols[digest]

    # -- the trials -------------------------------------------------------------------------------

    def results(self) -> Iterator[Difference]:
        """What of the results is not as raw counts and printed text have it."""
        every = self._record.trials
        for at, trial in enumerate(every, start=1):
            if self._progress:
                self._progress("making its results again", 100 * at / len(every))
            path = trial_folder(self._folder / RUN, trial.index) / "result.json"
            faults = [*_doubled(path)]
            if result := trial.result:
                faults += self._faults_of_frame(trial, result)
                if result.copied:
                    faults += self._faults_of_copy(trial, result, result.copied)
                elif result.outcome not in _NOT_MADE or result.data is not None:
                    faults += self._faults_of_data(trial, result)
            for what in faults:
                yield Difference(file=path.relative_to(self._folder).as_posix(), what=what)

    def _faults_of_frame(self, trial: TrialRecord, result: TrialResult) -> Iterator[str]:
        """Of what stands around the data: files, dates, the kernel."""
        place = f"trials/{trial.index:04d}/"
        known = {name.partition(".")[0]: f"{place}{name}" for name in ARTIFACTS}
        consoles = [one.console for one in result.tries if one.console]
        strange = [path for name, path in result.artifacts.items() if known.get(name) != path]
        strange += [p for p in consoles if not re.fullmatch(rf"{place}console-\d+\.log", p)]
        for path in (*result.artifacts.values(), *consoles):
            if path in strange:
                yield f"artifacts: {quoted(path, 80)} is no file of this trial"
            elif path.endswith(_PACKED) and not (self._folder / RUN / path).is_file():
                yield f"artifacts: {path} is missing"
        if result.stored and _time(result.stored) is None:
            yield f"stored: {quoted(result.stored, 60)} is no time that has been"
        if result.wall_s < 0 or (result.wall_s and result.stored):
            yield "wall_s: less than nothing, or of a result that was stored before"
        if trial.attempts < 1 + len(() if result.copied else result.tries):
            yield "attempts: fewer than its tries"
        own, planned = result.kernel, self._record.arms[trial.arm].kernel
        if own and planned.image_sha256:
            yield from self._faults_of_kernel(trial, own)
        elif own and result.facts and result.facts.host:
            made = timed.host_kernel(planned.reference, result.facts.host)
            told = to_builtins(own), to_builtins(made)
            yield from islice(differing(*told, "kernel", "by its host and run.json"), 1)

    def _faults_of_kernel(self, trial: TrialRecord, own: KernelIdentity) -> Iterator[str]:
        """What a trial says of its kernel against run.json and the image."""
        arm = self._record.arms[trial.arm]
        for name in _unlike(own, arm.kernel):
            yield f"kernel.{name}: another than {arm.label} has in run.json"
        yield from self._faults_of_names(own, self._kernels[trial.arm], arm.label)

    def _faults_of_names(self, own: KernelIdentity, kernel: object, label: str) -> Iterator[str]:
        """What is told of a kernel that its image and this kdelta know better."""
        if own.options_format > options.FORMAT:
            yield "kernel.options_format: no kdelta has it that this one knows of"
        if not isinstance(kernel, Kernel):
            return
        if own.reference not in (*self._record.study.kernels, f"deb:{own.version}"):
            yield f"kernel.reference: the study names no {quoted(own.reference, 80)}"
        try:
            if not {own.compiler, own.build_id} <= _read_back(kernel.image):
                yield f"kernel: the image of {label} has another compiler or build id"
        except KdeltaError as error:
            self.unknown[f"compiler and build id of {label}: {error.cause}"] = None

    def _faults_of_machine(
        self, trial: TrialRecord, result: TrialResult, scenario: Scenario, program: Path
    ) -> Iterator[str]:
        """What a counted trial says of its guest against study, facts and command line."""
        facts, own = result.facts or MachineFacts(), result.environment
        if not (facts.asked and facts.guest and (own or result.traced)):
            yield "environment, facts: do not say in which guest it was counted"
            return
        asked, seen, axes = facts.asked, facts.guest, self._record.arms[trial.arm].axes
        study, died = self._record.study, any(one.outcome.blames for one in result.tries)
        fitting = (point.machine for point in points(study) if point.axes == axes)
        planned = next(fitting, study.machine)
        told: dict[str, Any] = {
            "facts.asked": asked,
            "environment": own,
            "facts.guest.cmdline": seen.cmdline,
            "fresh_boot": result.fresh_boot,
        }
        made: dict[str, Any] = {
            "facts.asked": with_needs(planned, scenario.needs),
            "environment": own and replace(
                own, accelerator="tcg", machine=asked.target.machine, cpu_model=asked.cpu_model,
                cpus=seen.cpus or 0, memory_mib=asked.memory_mib, cmdline=seen.cmdline or "",
                mitigations="; ".join(seen.mitigations),
            ),
            "facts.guest.cmdline": seen.cmdline if result.reasons else asked.full_cmdline,
            "fresh_boot": study.plan.fresh_boot or asked.swap == "disk" or died,
        }  # fmt: skip
        if asked.swap:
            self.unknown["command.txt of guests that swap"] = None
        elif self._ours and own:
            path = trial_folder(self._folder / RUN, trial.index) / "command.txt"
            line, *lines = files.content(path, MOST_BYTES).decode().splitlines() or [""]
            words = shlex.split(line)
            seed = seed_of(trial, outside=scenario.outside and not is_export(program))
            told["command.txt"] = [*_plain(words), *lines]
            run = orders.run(scenario.arguments(iterations=WINDOWS, warmup=WARMUP))
            told_to = (*orders.of_settings(asked), seed.order, run)
            made["command.txt"] = [
                *_commanded(asked, turns="-icount" in words),
                *(f"# {order.line}" for order in told_to),
            ]
            kept = re.match(r"\$CACHE/emulators/(\d[^_/]*)_", words[0])
            if kept and not qemu.means(own.qemu_version.partition("+")[0], kept[1]):
                yield f"environment.qemu_version: it is {kept[1]} by command.txt"
        both = to_builtins(told), to_builtins(made)
        yield from islice(differing(*both, "", "by its study and facts"), 1)
        for name, axis in AXES.items():
            is_read = axis.seen and not result.reasons  # else it is one of them
            if is_read and not axis.fits(getattr(asked, name), getattr(seen, axis.seen)):
                yield f"facts.guest.{axis.seen} is not what was asked for"

    def _faults_of_copy(
        self, trial: TrialRecord, result: TrialResult, copied: Copied
    ) -> Iterator[str]:
        """A copy has the data of an arm of the same image."""
        one = next((each for each in self._record.trials if each.index == copied.trial), trial)
        mine, theirs = (
            of and (at.workload, at.scenario, replace(of, **_OF_A_COPY))
            for at, of in ((trial, result), (one, one.result))
        )
        if one.result is None or one.result.copied or mine != theirs:
            yield "copied: no other trial has this result"
        elif len({self._record.arms[each.arm].kernel.image_sha256 for each in (trial, one)}) > 1:
            yield "copied: the images are two"

    def _faults_of_data(self, trial: TrialRecord, result: TrialResult) -> Iterator[str]:
        place = trial_folder(self._folder / RUN, trial.index)
        if not (place / "workload.txt").is_file():
            if result.data is not None:
                yield "there is no workload.txt, of which it was made"
            return
        if seen := result.traced:
            self.unknown["what the kernel's tracing told: the text of it is kept elsewhere"] = None
            settings = self._record.study.trace
            watched = {seen.per, *(row.watch for row in seen.rows)}
            if odd := watched - {settings.hits_per, *settings.watch}:
                yield f"data: {quoted(min(odd), 80)} is not what its study watches"
        if trial.workload in self.without_source:
            return
        try:
            load = _of_bundle(trial.workload, self._folder)
            scenario = load.scenario(trial.scenario)
            if isinstance(result.data, ExactData | TraceData):
                yield from self._faults_of_machine(trial, result, scenario, load.program)
            made = self._made(trial, result, load, scenario)
        except BuildError:  # this machine lacks a compiler, and the bundle is not to blame
            raise
        except _NOT_OURS as error:
            cause = error.cause if isinstance(error, KdeltaError) else files.words_of(error)
            yield f"cannot be made again: {printable(cause, 200)}"
            return
        told, again = ({n: to_builtins(getattr(one, n)) for n in _TOLD} for one in made)
        yield from islice(differing(told, again, "", "by its raw counts and workload.txt"), 1)

    def _made(
        self, trial: TrialRecord, result: TrialResult, load: Workload, scenario: Scenario
    ) -> tuple[TrialResult, TrialResult]:
        """A result as it may be compared, and as it is made of what lies beside it."""
        place = trial_folder(self._folder / RUN, trial.index)
        facts = result.facts or MachineFacts()
        printed = files.content(place / "workload.txt", _MOST_TEXT).decode(errors="replace")

        def counts(reading: Reading) -> tuple[ExactData, Sequence[str]]:
            target = facts.asked.target if facts.asked else self._record.study.machine.target
            raw = artifacts.read_counts(place / "counts.bin.gz", whole=True)
            own = table or Symbols((), ())
            standing, data = counted(raw, own, reading, target, scenario.by_design)
            if probes.SHARING in self._record.study.plan.probes:
                moved.extend(sharing.told(standing, data))
            return data, ()

        moved: list[MetricValue] = []
        repeats = self._record.instrument.traits.repeats
        table = self._functions(trial) if repeats else None

        def hits(_reading: Reading) -> tuple[TraceData, Sequence[str]]:
            return result.traced or TraceData(), ()  # its text alone can be made again

        times = counts if repeats else timed.measured(load, facts)
        measured = hits if result.traced else times
        lacked = result.skip is not None and result.skip.kind is SkipKind.NOT_PERMITTED
        status, asked = facts.workload_exit or 0, facts.asked
        seen = {*unlike(asked, facts.guest)} if asked and facts.guest else set[str]()
        wrong = tuple(one for one in result.reasons if one in seen or _OF_GUEST.match(one))
        ran = Ran(printed=printed, status=status, wrong=wrong, permitted=not lacked)
        try:
            made = judged(ran, load, scenario, measured)
        except GuestFault as fault:
            made = TrialResult(outcome=blame(fault), reasons=(bounded(fault.sentence()),))
        reasons = tuple(dict.fromkeys(made.reasons))
        made = replace(made, reasons=reasons, metrics=(*made.metrics, *moved))
        swapped = bool(facts.asked and facts.asked.swap)  # functions of its modules
        if isinstance(result.data, ExactData) and (table is None or swapped):
            known = {"[user]", *(table.names if table else ())}
            result = replace(result, data=_folded(result.data, known))
            made = replace(made, data=_folded(made.exact, known))
            if table:
                self.unknown["the names of functions of modules, which swap brings"] = None
        return result, self._with_options(trial, result, made)

    def _with_options(
        self, trial: TrialRecord, result: TrialResult, made: TrialResult
    ) -> TrialResult:
        """With the code of options, which needs the images of all arms."""
        kernels = [one for one in self._kernels if isinstance(one, Kernel)]
        forms = {arm.kernel.options_format for arm in self._record.arms}
        forms |= {kernel.identity().options_format for kernel in kernels}
        known = len(kernels) == len(self._kernels) and len(forms) == 1
        if known and made.exact.phases and len(kernels) > 1:
            run, kernel = self._folder / RUN, kernels[trial.arm]
            made = with_option_code(trial, made, kernel, in_question(kernels), run)
            return with_code(trial, made, kernel, run)
        if result.options or result.code or len(forms) > 1:
            self.unknown["which counts are of the code of options: not all images are here"] = None
        return replace(made, options=result.options, code=result.code)

    # -- what lies beside -------------------------------------------------------------------------

    def programs(self) -> Iterator[Difference]:
        """What is not as the bundle's own sources, the run and this kdelta have it."""
        for name in sorted({(trial.workload, trial.scenario) for trial in self._record.trials}):
            try:
                load = _of_bundle(name[0], self._folder)
                own = self._folder / "sources/guest"
                text = exported(load, load.scenario(name[1]), own)
            except SpecError as error:
                self.unknown[f"the program of {quoted(name[0], 80)}: {error.cause}"] = None
                continue
            if workload.is_file(name[0]) and not load.declared:
                self.unknown[f"the TOML of {quoted(name[0], 80)} but for what results show"] = None
            path = self._folder / "reproducers" / load.name / file_name(*name)
            there = path.read_text(errors="replace") if path.is_file() else ""
            if _MADE_BY.sub("", there) != _MADE_BY.sub("", text):
                what = "is not what the sources make"
                yield Difference(file=path.relative_to(self._folder).as_posix(), what=what)
        yield from dependencies.unlike_run(self._record, self._folder)
        if self._ours:
            yield from dependencies.unlike_sources(self._record, self._folder)


def _of_bundle(name: str, folder: Path) -> Workload:
    """A workload by the sources of an unpacked bundle.  Raises SpecError."""
    place = folder / "sources/workloads"
    return workload.load(str(place / Path(name).name) if workload.is_file(name) else name, place)


def _commanded(asked: MachineSettings, *, turns: bool) -> list[str]:
    """As `_plain`, what a counted guest is started with."""
    path, emulator = Path("$CACHE/any"), qemu.Qemu(program=Path(asked.target.qemu), turns=turns)
    launch = qemu.Launch(image=path, initramfs=path, program=path, restore=path)
    channels = qemu.Channels(port=0, serial=0, console=0, orders=0, qmp=0, state=0)
    return _plain(qemu.command(emulator, asked, launch, channels))


def _plain(words: Sequence[str]) -> list[str]:
    """A command line without what decides no count."""
    pairs = pairwise(words)
    kept = [_PLACES.sub("", word) for before, word in pairs if not {before, word} & _FREE]
    return [Path(words[0]).name, *kept]


def _unlike(own: KernelIdentity, other: KernelIdentity) -> list[str]:
    """In which fields two kernels differ that are to be one."""
    # A run resumes by a package's version, and what is recorded of options may be newer.
    free = {"reference", "options_format", "build_id", "compiler"}
    free |= {"options"} if own.options_format != other.options_format else set()
    names = [name for name in own.__struct_fields__ if name not in free]
    return [name for name in names if getattr(own, name) != getattr(other, name)]


@lru_cache(maxsize=64)
def _read_back(image: Path) -> frozenset[str]:
    """The compiler and the build ids that an image names, and "" for none.  Raises KdeltaError."""
    content = b"".join(one.content for one in unpacked_kernel(image).segments)
    banner = _BANNER.search(content)
    ids = (found.hex() for found in _BUILD_ID.findall(content))
    return frozenset(("", compiler_in(banner[0].decode() if banner else ""), *ids))


def _time(text: str) -> datetime | None:
    """A moment that has been; None for anything else.  A clock may be a day ahead."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return found if found < datetime.now(UTC) + timedelta(days=1) else None


def _doubled(path: Path) -> Iterator[str]:
    """The keys that an object of a JSON file has twice: each reader may take another one."""

    def taken(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len({*names}) < len(names):
            name = Counter(names).most_common(1)[0][0]
            raise ValueError(f"the key {quoted(name, 60)} is there twice")

    try:
        json.loads(files.content(path, MOST_BYTES), object_pairs_hook=taken)
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:
        yield f"is no JSON that can be read: {error}"


def _folded(data: ExactData, known: Collection[str]) -> ExactData:
    """With all other functions as one."""
    sums: dict[tuple[str, str], list[int]] = {}
    for row in data.functions:
        how, _, name = row.function.rpartition(" in ")
        name = name if name in known else UNKNOWN
        own = sums.setdefault((row.phase, f"{how} in {name}" if how else name), [0, 0, 0])
        own[0] += row.insns
        own[1] += 0 if name == UNKNOWN and not how else row.calls
        own[2] += row.bytes
    return replace(
        data,
        functions=tuple(
            FunctionCount(phase=phase, function=name, insns=n, calls=calls, bytes=size)
            for (phase, name), (n, calls, size) in sorted(sums.items())
        ),
    )
