# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta probe`: an exit status for `git bisect run`."""

from __future__ import annotations

import logging
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli.options import again_option, machine_options, qemu_option, runs_directory
from kdelta.errors import KdeltaError, SpecError

if TYPE_CHECKING:
    from kdelta.bisect.probe import Probed, Rule
    from kdelta.kernels.kernel import Kernel
    from kdelta.study.spec import Study

# git takes 1 to 124, 126 and 127 for "bad"; from 128 on it stops, as it should for our errors.
EXIT_STOP = 128
log = logging.getLogger(__name__)
_BUILT = Path("arch/x86/boot/bzImage")


class _StopError(KdeltaError):
    """Any failure, with the exit status at which `git bisect run` stops."""

    exit_code = EXIT_STOP


class _UsageStopError(click.UsageError):
    """A wrong usage, with that exit status."""

    exit_code = EXIT_STOP


class _Probe(click.Command):
    """A command whose every failure, a bug of ours included, ends with EXIT_STOP."""

    def make_context(self, *arguments: Any, **keywords: Any) -> click.Context:
        """As click does it, but for the status of a wrong usage."""
        try:
            return super().make_context(*arguments, **keywords)
        except click.UsageError as error:
            raise _UsageStopError(error.message, error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """As click does it, but for the status of a failure."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        except click.ClickException as error:
            raise _StopError(error.message) from error
        except KdeltaError as error:
            raise _StopError(error.cause, place=error.place, action=error.action) from error
        except Exception as error:
            log.debug("", exc_info=True)
            raise _StopError(f"{type(error).__name__}: {error}") from error


@click.command(cls=_Probe)
@click.argument("what", metavar="STUDY|WORKLOAD:SCENARIO")
@click.option("--kernel", metavar="REF", help=f"Which kernel.  [default: {_BUILT} here]")
@click.option("--good-value", type=float, metavar="X", help="What a good kernel counts.")
@click.option("--bad-value", type=float, metavar="Y", help="What a bad kernel counts.")
@click.option("--below", type=float, metavar="X", help="Good is what counts less than X.")
@click.option("--above", type=float, metavar="X", help="Good is what counts more than X.")
@click.option("--like-run", metavar="RUN", help="The values of two kernels of a stored run.")
@click.option("--good", default="", metavar="NAME", help="With --like-run.  [default: its first]")
@click.option("--bad", default="", metavar="NAME", help="With --like-run.  [default: its last]")
@click.option("--scenario", metavar="NAME", help="Which scenario, when the study has several.")
@click.option("--phase", metavar="NAME", default="total", help="Of one phase, instead of all.")
@machine_options
@click.option("--timeout", "timeout_s", type=int, help="Seconds for a boot, and for a workload.")
@qemu_option
@again_option
@runs_directory
def probe(
    what: str,
    kernel: str | None,
    scenario: str | None,
    phase: str,
    wanted_qemu: str,
    runs: Path,
    *,
    again: bool,
    like_run: str | None,
    good: str,
    bad: str,
    good_value: float | None,
    bad_value: float | None,
    below: float | None,
    above: float | None,
    **settings: Any,
) -> None:
    """Measure one kernel and say by the exit status whether it is good.

    \b
    Exit status, as `git bisect run` takes it:
      0    good
      1    bad
      125  skip: it does not build or boot, cannot be compared, or is like neither
      128  or more: the question or this machine is wrong; the bisection stops

    \b
    git bisect run sh -c 'make -j4 bzImage || exit 125; kdelta probe
        mprotect:shared_dirty_full_toggle_64m --good-value 264 --bad-value 405'

    \b
    With --kernel tree:. it is built first, in kdelta's cache and not here.
    """
    from kdelta.bisect import probe as probing
    from kdelta.cli.bisect import one_scenario

    reference = kernel or _built_here()
    study = one_scenario(what, scenario, (reference,), settings)
    if like_run is not None:
        if any(value is not None for value in (good_value, bad_value, below, above)):
            raise SpecError("--like-run gives the values", action="give it alone")
        rule = _rule_of_run(runs, like_run, study, phase, (good, bad))
    else:
        rule = probing.rule_of(good=good_value, bad=bad_value, below=below, above=above)
    found = _probed(study, reference, phase, rule, wanted_qemu, again=again)
    click.echo(found.sentence)
    raise click.exceptions.Exit(int(found.answer))


def _built_here() -> str:
    if not _BUILT.is_file():
        raise SpecError(
            f"there is no {_BUILT} here",
            action="build it first (make bzImage || exit 125), or name one with --kernel",
        )
    return f"file:{_BUILT}"


def _rule_of_run(runs: Path, run: str, study: Study, phase: str, ends: tuple[str, str]) -> Rule:
    from kdelta.bisect import probe as probing
    from kdelta.journal.run import RUNS, RunJournal

    record = RunJournal.open(RUNS.find(runs, run)).record()
    if not record.instrument.traits.repeats:
        raise SpecError("a probe counts, and this run was timed", place=record.run_id)
    return probing.rule_of_run(record, study.scenarios[0], phase, *ends)


def _probed(
    study: Study, reference: str, phase: str, rule: Rule, wanted_qemu: str, *, again: bool
) -> Probed:
    from kdelta.bisect import probe as probing
    from kdelta.bisect.measuring import measure_of
    from kdelta.cli.download import reporting
    from kdelta.source.make import SourceError

    scenario = study.scenarios[0]
    try:
        kernel = _kernel(study, reference)
    except SourceError as error:
        return probing.unbuildable(reference, error)
    with reporting() as progress:
        measure = measure_of(study, wanted_qemu, threading.Event(), progress, again=again)
    with tempfile.TemporaryDirectory(prefix="kdelta-probe-") as folder:
        result = measure(kernel, 0, Path(folder))
    return probing.answer(result, kernel.identity(), scenario, phase, rule)


def _kernel(study: Study, reference: str) -> Kernel:
    from kdelta.cli.download import reporting
    from kdelta.kernels import reference as references

    with reporting() as progress:
        return references.resolve(
            reference, study.machine.arch, study.machine.flavour, progress=progress
        )
