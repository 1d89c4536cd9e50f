# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta run`, `survey` and `resume`: from a study to a run folder with its answers."""

from __future__ import annotations

import os
import platform
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec import structs

from kdelta import arch, cache, data, guest, programs, workload
from kdelta.cli import options
from kdelta.cli.printing import reporting, say, showing
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.files import called
from kdelta.guests import qemu
from kdelta.host import leases
from kdelta.journal.files import new_folder
from kdelta.journal.run import RunJournal, RunRecord, unfinished
from kdelta.journal.status import Assignments
from kdelta.kernels import debian, reference
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.metric import plural
from kdelta.printable import few, known, meant, printable
from kdelta.run import arms, exact
from kdelta.run.runner import Runner, Trials
from kdelta.sample import Outcome, TrialRecord
from kdelta.source import tree_reference
from kdelta.study import plan, pools, spec
from kdelta.study.probes import CALLS
from kdelta.study.spec import Study, TimeMachine, points
from kdelta.transplant import releases
from kdelta.verdict.comparison import LEAST_SEEDS

if TYPE_CHECKING:
    from kdelta.run import timed


class _WithProgram(click.Command):
    """A command that sees "--" among its words: what follows is a program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put another one in front, which click takes away."""
        at = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*args[:at], *args[at:][:1], *args[at:]])


@click.command(cls=_WithProgram)
@click.argument(
    "what",
    nargs=-1,
    required=True,
    metavar="STUDY|WORKLOAD:SCENARIO...|-- PROGRAM...",
    type=options.SCENARIO,
)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    help="A file or folder that the program behind -- finds in the guest.  May be given again.",
)
@click.option(
    "--kernels",
    type=options.KERNEL,
    help="Kernels in table order, commas between: 6.12..7.2,file:bzImage.",
)
@click.option(
    "--compilers", metavar="A,B", help="Build each tree: kernel by each: gcc-12,gcc-14,clang-19."
)
@click.option(
    "--without",
    metavar="A,B",
    help="Each release beside itself without these options: UBSAN.  What they cost, measured.",
)
@click.option(
    "--same-config",
    is_flag=True,
    help="Build each release from its source, all with one configuration (config=deb).",
)
@click.option(
    "--rounds",
    type=int,
    help="Trials of each arm and scenario, each of another seed.  [default: 1; 3 of your C file]",
)
@click.option("--seed", type=int, help="Seed of the order of trials.  [default: chosen, recorded]")
@options.machine_options
@click.option("--timeout", "timeout_s", type=int, help="Seconds for a boot, and for a workload.")
@click.option(
    "--fresh-boot", is_flag=True, default=None, help="Boot every trial instead of restoring."
)
@click.option(
    "--probe",
    "probes",
    multiple=True,
    callback=lambda _context, _option, given: given or None,
    metavar="PROBE",
    help="Record beside the counts: calls (call paths; a program's by default), memory (what is"
    " touched), or a value: 'FUNCTION(NAME=arg4)', 'FUNCTION(NAME=ret:i32)'.",
)
@click.option(
    "--trace",
    "watch",
    multiple=True,
    callback=lambda _context, _option, given: given or None,
    metavar="WATCH",
    help="Trace instead of counting: how often a FUNCTION is entered, 'FUNCTION(NAME=arg4)',"
    " 'SYSTEM:EVENT(FIELD)', 'graph(FUNCTION)'.  Hits, never times or verdicts.",
)
@click.option("--new", "fresh_run", is_flag=True, help="Do not resume an unfinished run of it.")
@options.means_options
@options.runs_directory
def run(
    what: tuple[str, ...],
    files: tuple[str, ...],
    kernels: str | None,
    compilers: str | None,
    without: str | None,
    runs: Path,
    means: options.Means,
    *,
    same_config: bool,
    fresh_run: bool,
    **settings: Any,
) -> None:
    """Measure a study, or scenarios over kernels.

    The study is a TOML file or the name of one that kdelta ships; or give one or more
    WORKLOAD:SCENARIO ('mprotect:*' is all that fit) together with --kernels; ./loop.c:name is a C
    file of yours, with its TOML or without (kdelta workload new writes both); -- ./program and its
    arguments is counted from execve() to its end.  A series means its
    newest package of the compiler that the other kernels have, 6.12..7.2 all series between the
    two.  An unfinished run of the same study is resumed.
    """
    if settings["watch"]:
        settings["instrument"] = "trace"
    if "--" in what and not (settings["probes"] or settings["watch"]):
        settings["probes"] = (CALLS,)
    what = _with_program(what, files, settings["arch"])
    study = _gated(expanded(_study(what, kernels, settings)))
    if without is not None:
        off = "".join(f"+without={name}" for name in options.words(without))
        study = spec.with_settings(
            study, kernels=[each for kernel in study.kernels for each in (kernel, kernel + off)]
        )
    if same_config:
        study = spec.with_settings(study, kernels=_all_built(study.kernels))
    if compilers is not None:
        study = built_by(study, options.words(compilers))
    check_scenarios(study)
    answer(started(study, runs, means, "another run of it", fresh=fresh_run))


def started(
    study: Study, runs: Path, means: options.Means, what: str = "", *, fresh: bool = False
) -> RunJournal:
    """A run of the study that has ended; unless fresh an unfinished one in `runs` is resumed."""
    known = None if fresh else unfinished(runs, study)
    if not known:
        return start(study, runs, means)
    say(f"resuming {known.name}{f' ({what}: --new)' if what else ''}", err=True)
    return execute(RunJournal.open(known), means)


def go_on(folder: Path, means: options.Means) -> None:
    """Finish an interrupted run."""
    opened = RunJournal.open(folder)
    if opened.plan.bisection:
        action = "give the command of the bisection again"
        raise SpecError("a bisection is not resumed as a run", place=str(folder), action=action)
    with opened.executing():
        again = opened.replan_failures()
    if again:
        say(f"{again} trials that failed for this machine's fault are tried again", err=True)
    check_scenarios(opened.study)
    answer(execute(opened, means))


def _gated(study: Study) -> Study:
    variants = [name for name in study.kernels if name.startswith("tree:") and "+" in name]
    if not variants or not study.plan.gates or not study.instrument.traits.repeats:
        return study
    loaded = [workload.parse_reference(name)[0] for name in study.scenarios]
    gates = [f"{load.name}:{gate}" for load in loaded for gate in load.gates]
    added = [name for name in dict.fromkeys(gates) if name not in study.scenarios]
    if not added:
        return study
    say(f"reverse gates, measured too: {', '.join(added)}", err=True)
    return spec.with_settings(study, scenarios=[*study.scenarios, *added])


def _with_program(what: tuple[str, ...], files: Sequence[str], name: str | None) -> tuple[str, ...]:
    """The words with a program in place of "--" and what follows."""
    if "--" not in what:
        if files:
            raise SpecError("only a program finds files", place="--file", action="add: -- PROGRAM")
        return what
    at = what.index("--")
    own = arch.of(name or MachineSettings().arch)
    return (*what[:at], programs.taken(what[at + 1 :], files, own))


def _study(what: Sequence[str], kernels: str | None, settings: dict[str, Any]) -> Study:
    refs = options.words(kernels) if kernels is not None else None
    named = [word for word in what if workload.is_reference(word)]
    if not named and len(what) == 1:
        study = loaded(what[0])
        return spec.with_settings(study, kernels=refs, **settings)
    if len(named) != len(what):
        raise SpecError("give one study file, or scenarios only", action="see: kdelta run --help")
    if not refs:
        raise SpecError("a scenario needs kernels", action="add, for example, --kernels 6.12,6.17")
    here = [workload.full_reference(word) for word in named]
    if settings["rounds"] is None and any(workload.is_file(one.rpartition(":")[0]) for one in here):
        settings = {**settings, "rounds": LEAST_SEEDS}
    return spec.from_arguments(here, refs, **settings)


_QUESTION = """
Which paths of memory management and its callers became longer or shorter in which release, and by
which functions?  Each scenario is short; a step is a reason for a study of its own.
"""


@click.command()
@click.option(
    "--kernels",
    type=options.KERNEL,
    help="Kernels, 6.12..7.2 a range.  [default: all series]",
)
@options.only_option
@options.field_option
@options.sharing_option
@click.option("--arch", default="amd64", show_default=True, help="Debian's architecture name.")
@click.option("--rounds", type=int, help="Trials of each arm.  [default: 1; 3 with --probe]")
@click.option("--list", "list_only", is_flag=True, help="Only list scenarios and kernels.")
@click.option("--new", "fresh_run", is_flag=True, help="Do not resume an unfinished survey.")
@options.means_options
@options.runs_directory
def survey(
    kernels: str | None,
    only: tuple[str, ...],
    arch: str,
    rounds: int | None,
    probe: str | None,
    runs: Path,
    means: options.Means,
    *,
    field: bool,
    list_only: bool,
    fresh_run: bool,
) -> None:
    """Count every scenario of the survey on every release, and tell which path changed where.

    An interrupted survey is resumed by the same command.  `kdelta show RUN --summary` prints its
    table again.
    """
    from kdelta.analysis.lab import STEP_PERCENT

    names = plan.surveyed(only, field=field, probe=probe)
    if not names:
        action = "see: kdelta survey --field --list"
        raise SpecError(f"no scenario of the survey fits {', '.join(only)}", action=action)
    own = arch, MachineSettings().flavour
    series = debian.every_series(_offers(*own)) if not kernels else ()
    references = every_kernel(options.words(kernels), *own) if kernels else [*series]
    if left := [one for one in every_scenario(only) if one not in names]:
        say(f"not in the survey, and counted by kdelta run: {few(left, 12)}", err=True)
    if list_only:
        click.echo("".join(f"{name}\n" for name in names), nl=False)
        click.echo(f"over {', '.join(references)}")
        return
    study = spec.from_arguments(
        names,
        references,
        name="survey",
        title=f"survey of {len(names)} scenarios over {len(references)} kernels",
        question=_QUESTION.strip(),
        arch=arch,
        rounds=rounds or (LEAST_SEEDS if probe else 1),
        probes=probe and [probe],
        step_percent=STEP_PERCENT,
    )
    answer(started(study, runs, means, "another one", fresh=fresh_run), summary=True)


def study_file(name: str) -> Path:
    """The file itself, else the study of that name that kdelta ships.  Raises SpecError."""
    path = Path(name)
    if os.path.lexists(path) or "/" in name:
        return path
    shipped = data.directory("studies") / f"{name.removesuffix('.toml')}.toml"
    if shipped.is_file():
        return shipped
    studies = sorted(file.stem for file in shipped.parent.glob("*.toml"))
    near = meant(name, (*workload.names(), *studies))
    if not any(study in near for study in studies):
        near = workload.meant_by(name) or near
    action = f"{near}give WORKLOAD:SCENARIO, a TOML file, or a study: docs/studies.md"
    raise SpecError("no such study or scenario", place=name, action=action)


def loaded(name: str) -> Study:
    """The study of a file or name; a C file that it names lies beside it.  Raises SpecError."""
    path = study_file(name)
    study = spec.load(path)
    there = [workload.full_reference(word, path.absolute().parent) for word in study.scenarios]
    return study if there == list(study.scenarios) else spec.with_settings(study, scenarios=there)


def expanded(study: Study) -> Study:
    """The study with every range of kernels and every pattern of scenarios written out.

    Raises SpecError for one that stands for nothing.
    """
    names = every_kernel(study.kernels, study.machine.arch, study.machine.flavour)
    return spec.with_settings(study, kernels=names, scenarios=every_scenario(study.scenarios))


def every_kernel(references: Sequence[str], arch: str, flavour: str) -> list[str]:
    """The references with 6.12..7.2 as every series of the archive between the two.

    The path of a file or tree is one that others may read (files.called).
    """

    def read_by_others(found: re.Match[str]) -> str:
        path = Path(found[0])
        return called(path) if path.exists() else found[0]  # a folder's name may have a "+"

    named = [re.sub(r"(?<![^:=+])/[^+@]+", read_by_others, word) for word in references]
    if not any(map(spec.is_range, named)):
        return named
    return list(debian.expanded(named, _offers(arch, flavour)))


def _offers(arch: str, flavour: str) -> Sequence[debian.KernelOffer]:
    with reporting() as progress:
        return reference.listing(arch, flavour, progress=progress)


def every_scenario(named: Sequence[str]) -> list[str]:
    """The scenarios with mprotect:* as every one that fits."""
    found: dict[str, None] = {}
    for name in named:
        fitting = [name]
        if set("*?") & set(name):
            place, _, _ = name.rpartition(":")
            loads = [place] if workload.is_file(place) else workload.names()
            every = (one for load in loads for one in workload.load(load).scenarios)
            fitting = [one.reference for one in every if fnmatchcase(one.reference, name)]
        if not fitting:
            raise SpecError(f"no scenario fits {name}", action=workload.LIST_SCENARIOS)
        found.update(dict.fromkeys(fitting))
    return list(found)


def _all_built(kernels: Sequence[str]) -> list[str]:
    """Releases as sources that are built.  Raises SpecError, which names all without a source."""
    found, lacking = [_built(kernel) for kernel in kernels], list[str]()
    for kernel, built in zip(kernels, found, strict=True):
        try:
            tree_reference.located(tree_reference.parse(built))
        except SpecError:
            lacking.append(kernel)
    if lacking:
        cause = f"the archive has no source of {', '.join(lacking)}"
        action = "leave these out, or name sources of your own: tree:PATH+config=deb"
        raise SpecError(cause, place="--same-config", action=action)
    return found


def _built(kernel: str) -> str:
    """A release as a source that is built.  Raises SpecError for another kernel."""
    if kernel.startswith((tree_reference.PREFIX, "file:")) or "+" in kernel:
        cause, action = f"{kernel} is no release", "name releases: --kernels 6.12,6.17"
        raise SpecError(cause, place="--same-config", action=action)
    return f"{tree_reference.PREFIX}deb:{kernel.removeprefix('deb:')}+config=deb"


def built_by(study: Study, compilers: Sequence[str]) -> Study:
    """The study with each of its trees built by each of the compilers.

    Of one source the difference is what the compiler alone does.  Raises SpecError for a kernel
    that is not built here, or that names its compiler itself.
    """
    from kdelta import toolchains

    for name in compilers:
        toolchains.parse(name)
    for kernel in study.kernels:
        if not kernel.startswith(tree_reference.PREFIX) or "+cc=" in kernel:
            cause = f"{kernel} is not a source that --compilers could build"
            action = "name kernels as tree:PATH or tree:deb:6.17.8, without +cc="
            raise SpecError(cause, place="--compilers", action=action)
    named = [f"{kernel}+cc={name}" for kernel in study.kernels for name in compilers]
    return spec.with_settings(study, kernels=named)


AT_ONCE = 256  # trials of a run that wait for a place, or have one
_QEMU_VERSION = re.compile(r"[0-9]+(\.[0-9]+){1,3}(\+[a-z]+)*")


def check_scenarios(study: Study) -> None:
    """Raise SpecError for a scenario that does not exist.

    Tell what a user's C file lacks, and of which scenarios the pages stay small whatever is asked.
    """
    larger = any("=always" in p.machine.mthp or "=madvise" in p.machine.mthp for p in points(study))
    told: set[str] = set()
    loads = [workload.parse_reference(name) for name in study.scenarios]
    phases = {phase.name for load, _ in loads for phase in load.phases}
    for figure in study.figures:
        if (
            figure.phase
            and figure.phase not in phases
            and not any(load.declared for load, _ in loads)
        ):
            action = known(figure.phase, phases)
            raise SpecError(f"the figure {figure.name} is of no phase", action=action)
    for name, (load, scenario) in zip(study.scenarios, loads, strict=True):
        for point in points(study):
            machine = with_needs(point.machine, scenario.needs)
            if 2 * machine.hugepages_2m + 1024 * machine.hugepages_1g >= machine.memory_mib:
                cause = f"the huge pages asked for do not fit {machine.memory_mib} MiB of memory"
                raise SpecError(cause, place=name, action="ask for fewer, or more memory_mib")
        if larger and workload.Fact(name="compound_heads", want="0") in scenario.contract:
            cells = ", ".join(f"{name}.{folio}" for folio in scenario.folios)
            instead = f"; in folios it is {cells}" if cells else ""
            say(f"note: {name} keeps to base pages whatever mthp is{instead}", err=True)
        place = str(load.program)
        if not workload.is_file(name.rpartition(":")[0]) or place in told:
            continue
        told.add(place)
        click.echo(guest.warnings(load.program, study.machine.target), err=True, nl=False)
        guest.check_marks(load, study.machine.target)
        if load.declared and not programs.asked(load.program):
            state = "its page state is compared, and not checked"
            say(f"{load.program.name} has no TOML: {state}", err=True)


def start(study: Study, runs: Path, means: options.Means) -> RunJournal:
    """Begin a run of a study in a new folder under `runs`, and measure it."""
    kernels = None if on_host(study) else _resolved(study, arms.planned(study), means)
    now = datetime.now(UTC)
    seed = study.plan.seed if study.plan.seed is not None else secrets.randbits(32)
    own = arms.records(study, kernels)
    record = RunRecord(
        run_id="",
        name=study.name,
        title=study.title,
        seed=seed,
        rounds=study.plan.rounds,
        created=now.isoformat(timespec="seconds"),
        kdelta_version=options.VERSION,
        study=study,
        arms=own,
        subjects=arms.subjects(own),
        trials=plan.make_plan(study, seed),
    )
    # Before there is a folder: what cannot be measured here leaves none behind.
    trials, at_once = _trials(record, kernels, means)
    folder = new_folder(runs, study.name, now)
    journal = RunJournal.create(folder, structs.replace(record, run_id=folder.name))
    return _measured(journal, trials, at_once, means)


def execute(journal: RunJournal, means: options.Means) -> RunJournal:
    """Go on with a run: on the very kernels that it began with."""
    record = journal.record()
    study = record.study
    if study.instrument.traits.interleaved and means.pools:
        from kdelta.run import timed

        means = replace(means, pool=means.pool or timed.pool_of(journal.folder))
    if all(trial.result for trial in record.trials):
        if study.instrument.traits.interleaved and (own := host_pool(study, means)):
            own.give_back(journal)
        return journal
    means = replace(means, wanted_qemu=means.wanted_qemu or qemu_of(record))
    kernels = None
    if not on_host(study):
        kernels = _resolved(study, arms.references(record), means)
        arms.check_same(record, kernels)
    trials, at_once = _trials(record, kernels, means)
    return _measured(journal, trials, at_once, means)


def qemu_of(record: RunRecord) -> str:
    """The version of QEMU that a run began with: counts of another one could not be compared.

    "" for several, and for what is no version: a stranger's run names no program of this machine.
    """
    results = [trial.result for trial in record.trials if trial.result]
    found = {each.environment.qemu_version for each in results if each.environment}
    version = found.pop() if len(found) == 1 else ""
    return version if _QEMU_VERSION.fullmatch(version) else ""


_VARIED = (
    "seeds disagree, and leave a verdict open: each is tried again with other ticks, free memory,"
    " random numbers, addresses or boot alone, and the verdict says which of them moves the count"
)


def on_host(study: Study) -> bool:
    """True when the arms are kernels of this very machine."""
    return study.instrument.traits.interleaved and study.time.machine is TimeMachine.HOST


def _resolved(
    study: Study, references: Sequence[str], means: options.Means
) -> Sequence[Kernel | KdeltaError]:
    """Per arm its kernel, fetched when needed, or why it cannot be had.  Raises SpecError."""
    own: dict[str, Any] = {"arch": study.machine.arch, "flavour": study.machine.flavour}
    with reporting() as progress:

        def executed(kernel: Kernel) -> frozenset[str]:
            from kdelta.check.compare import Counter

            bench = exact.bench_of(study, means.wanted_qemu, threading.Event(), progress)
            ran, report = set[str](), partial(click.echo, err=True)
            for point in points(study):
                own = replace(bench, settings=point.machine)
                with TemporaryDirectory(prefix="kdelta-executed-") as folder:
                    counter = Counter(study, own, Path(folder), report, means.jobs)
                    ran |= counter.executed(kernel, study.scenarios, seeds=study.plan.rounds)
            return frozenset(ran)

        ways: dict[str, Any] = {"trust": means.trust, "executed": executed}
        found = releases.resolve_all(references, **own, **ways, progress=progress)
    broken = [item for item in found if isinstance(item, KdeltaError)]
    if len(broken) == len(found):
        raise broken[0]
    for reason in broken:
        say(f"kdelta: {reason.sentence()}", err=True)
    return found


def _measured(
    journal: RunJournal, trials: Trials | timed.HostPoolTrials, at_once: int, means: options.Means
) -> RunJournal:
    try:
        with (
            journal.executing(),
            _placed(journal, trials, means) as placed,
            showing(journal.record()) as report,
        ):
            runner = Runner(journal, placed, report)
            if journal.study.instrument.traits.interleaved:
                from kdelta.analysis.findings import enough_valid

                runner.run_rounds(lambda: enough_valid(journal.record()))
            else:
                runner.run(at_once, lambda: import_module("kdelta.cli.show"))  # for the answer
                step_percent = journal.study.thresholds.step_percent
                if more := plan.sources(journal.record(), step_percent):
                    say(_VARIED, err=True)
                    journal.extend(more)
                    Runner(journal, placed, report).run(at_once)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"go on with: kdelta resume {journal.folder.name}") from error
    return journal


def _trials(
    record: RunRecord, kernels: Sequence[Kernel | KdeltaError] | None, means: options.Means
) -> tuple[Trials | timed.HostPoolTrials, int]:
    study, traits = record.study, record.instrument.traits
    check_pools(study, means)
    options.need(record.instrument)
    if traits.interleaved:
        return host_pool(study, means) or _timed(record, kernels, means), 1
    again = means.again and traits.repeats
    with reporting() as progress:
        bench = exact.bench_of(study, means.wanted_qemu, threading.Event(), progress, again=again)
    jobs, machines = means.jobs, arms.machines(study)
    at_once = (AT_ONCE if means.pools else jobs) or leases.at_once(exact.guests_of(study))
    if not traits.repeats:
        from kdelta.run import traced

        return traced.TracedTrials(study.trace, bench, kernels or (), machines, jobs=jobs), at_once
    reuse = study.plan.reuse
    return exact.ExactTrials(bench, kernels or (), machines, reuse=reuse, jobs=jobs), at_once


def _timed(
    record: RunRecord, kernels: Sequence[Kernel | KdeltaError] | None, means: options.Means
) -> Trials:
    from kdelta.run import timed

    study = record.study
    timing = timed.Timing(study=study)
    if kernels is not None:
        exact.guests_of(study, cores=len(os.sched_getaffinity(0)))
        machines = arms.machines(study)
        return timed.KvmTrials(timing, means.wanted_qemu, kernels, machines)
    references = [arm.kernel.reference for arm in record.arms]
    timed.check_here(study, references)
    return timed.HostTrials(timing, references)


def answer(journal: RunJournal, *, summary: bool | None = None) -> None:
    """Write a run's answers into its folder, print them, and exit 1 when a trial failed."""
    from kdelta.cli.show import print_report

    record = answered(journal)
    print_report(record, journal.folder, summary=summary)
    say(f"\nEverything of this run: {journal.folder}")
    if any(map(_failed, record.trials)):
        raise click.exceptions.Exit(1)


def answered(journal: RunJournal) -> RunRecord:
    """A run with its answers in its folder.  Raises InfraError where no trial has a count."""
    from kdelta.rendering import bundle

    record = journal.record()
    bundle.write_run_files(record, journal.folder)
    failed = [trial for trial in record.trials if _failed(trial)]
    counted = any(each.result and each.result.outcome is Outcome.INVALID for each in failed)
    if counted or not failed or len(failed) < len(record.trials):
        return record
    cause, *others = dict.fromkeys(trial.result.reason for trial in failed if trial.result)
    more = f" (and {len(others)} other causes)" * bool(others)
    said = f"all {plural(len(failed), 'trial')} failed: {cause}{more}"
    raise InfraError(said, action=f"see {journal.folder}/trials")


def _failed(trial: TrialRecord) -> bool:
    return trial.result is not None and trial.result.outcome not in (Outcome.OK, Outcome.SKIP)


def identities() -> list[str]:
    """The version of kdelta, the digests of its own files, and what it counts with unasked."""

    def digest(files: Iterable[Path]) -> str:
        return cache.digest(*(path.read_bytes() for path in files))[:16]

    folders = (data.directory(name) for name in ("guest", "workloads"))
    own, loads = (digest(sorted(folder.glob("*.[ch]"))) for folder in folders)
    plugin, code = qemu.plugin_digest()[:16], digest(data.code())
    counting = os.environ.get("KDELTA_QEMU") or qemu.PINNED
    python = f"Python {platform.python_version()}"
    return [
        f"kdelta {options.VERSION}",
        f"sources: plugin {plugin}, guest {own}, workloads {loads} (SHA-256)",
        f"code {code}, QEMU {counting}, {python}, {platform.system()} {platform.machine()}",
    ]


def check_pools(study: Study, means: options.Means) -> None:
    """Raise SpecError for what no pool can measure."""
    if not means.pools:
        return
    traits = study.instrument.traits
    if not (traits.repeats or traits.interleaved):
        raise SpecError("a trace is of this machine, and no pool takes it", action="leave out --on")
    if traits.repeats:
        from kdelta.workers.dask import checked

        checked(_dask_pool(means.pools)[2].scheduler)


def _dask_pool(file: Path) -> tuple[pools.LabPools, str, pools.DaskPool]:
    """The pools, and the name and the one that counts.  Raises SpecError without one."""
    asked = pools.load(file)
    for name, pool in asked.pool.items():
        if isinstance(pool, pools.DaskPool):
            return asked, name, pool
    action = 'add one, such as [pool.rack] with kind = "dask" (docs/lab.md)'
    raise SpecError("no pool of the file counts", place=str(file), action=action)


def host_pool(study: Study, means: options.Means) -> timed.HostPoolTrials | None:
    """What times the study's trials on another machine; None: on this one.

    Raises SpecError when no pool could, and where nothing says which of several.
    """
    if not means.pools:
        return None
    asked = pools.load(means.pools)
    named = {name: one for name, one in asked.pool.items() if means.pool in ("", name)}
    fitting = {name: one for name, one in named.items() if isinstance(one, pools.HostPool)}
    if not fitting:
        what = f"no pool for times is called {printable(means.pool, 60)}"
        cause = what if means.pool else "no pool of the file measures times"
        action = 'add one, such as [pool.NAME] with kind = "host" (docs/lab.md)'
        raise SpecError(cause, place=str(means.pools), action=action)
    if len(fitting) > 1:
        cause = f"several pools measure times: {', '.join(fitting)}"
        raise SpecError(cause, place=str(means.pools), action="name one with --pool NAME")
    from kdelta.run import timed

    ((name, pool),) = fitting.items()
    return timed.HostPoolTrials(name, pool, study)


@contextmanager
def _placed(
    journal: RunJournal, trials: Trials | timed.HostPoolTrials, means: options.Means
) -> Iterator[Trials]:
    assigned = Assignments(journal.folder).tell
    if journal.study.instrument.traits.interleaved:
        from kdelta.run import timed

        if isinstance(trials, timed.HostPoolTrials):
            with trials.placed(journal, assigned) as there:
                yield there
            return
        timed.note(journal.folder, "")
    if not (means.pools and isinstance(trials, exact.ExactTrials)):
        yield cast("Trials", trials)
        return
    from kdelta.workers.dask import DaskWorkers, is_open
    from kdelta.workers.dispatch import DispatchedTrials
    from kdelta.workers.worker import SharedCheckpoints

    asked, name, pool = _dask_pool(means.pools)
    if is_open(pool.scheduler):
        risk = "whoever reaches it can run programs as you on every worker; use tls://"
        say(f"{name}: {printable(pool.scheduler, 200)} is open: {risk}", err=True)
    with (
        TemporaryDirectory(prefix="kdelta-workers-") as scratch,
        closing(DaskWorkers(pool.scheduler)) as workers,
    ):
        shared, twice = SharedCheckpoints(Path(scratch), trials.cancelled), asked.check.twice
        yield DispatchedTrials(trials, workers, checkpoints=shared, twice=twice, assigned=assigned)
