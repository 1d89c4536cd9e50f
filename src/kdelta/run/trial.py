# SPDX-License-Identifier: GPL-2.0-or-later
"""What a trial amounts to, whatever measures it: whose fault it is, and what a program printed."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from kdelta import cache, output
from kdelta.errors import (
    GuestError,
    GuestFault,
    InfraError,
    KdeltaError,
    ProgramError,
    TimeOutError,
)
from kdelta.guests import orders
from kdelta.guests.orders import Answers, Order, Seed, SwapBacking, swap_orders
from kdelta.guests.session import Guest
from kdelta.journal import artifacts
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import Lacking, MachineSettings, mismatches
from kdelta.machine.identity import GuestIdentity
from kdelta.printable import quoted
from kdelta.sample import (
    UNKNOWN,
    ExactData,
    Instrument,
    KernelIdentity,
    MachineFacts,
    Outcome,
    Skip,
    SkipKind,
    TimeData,
    TraceData,
    TrialRecord,
    TrialResult,
)
from kdelta.workload import Scenario, Workload

TRACEFS = "tracefs.txt.gz"  # all that tracefs said in a traced trial
ARTIFACTS = (
    *("command.txt", "console.log", "counts.bin.gz", artifacts.CALLS),
    *(artifacts.DETAILS, "workload.txt", TRACEFS),
)
_STATUSES = (output.EXIT_OK, output.EXIT_STATE, output.EXIT_USAGE, output.EXIT_SKIP)
_BY_SIGNAL = 128  # what is added to the number of a signal that ended a program
_LONGEST = 400  # characters of a sentence that a result keeps


def keep_command(folder: Path, command: str, image: Path | None = None) -> None:
    """Write a trial's command, which others get, without the paths that only this machine has."""
    for path, name in ((folder, "$TRIAL"), (image or folder, "$IMAGE"), (cache.root(), "$CACHE")):
        command = command.replace(str(path), name)
    (folder / "command.txt").write_text(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A program that ended.  wrong: of its machine; permitted: to read all of the page state."""

    printed: str
    status: int
    wrong: tuple[str, ...] = ()
    permitted: bool = True


Measured = Callable[[output.Reading], tuple[ExactData | TimeData | TraceData, Sequence[str]]]


def kernel_of(kernels: Sequence[Kernel | KdeltaError], trial: TrialRecord) -> Kernel:
    """A trial's kernel.  Raises InfraError when it could not be had."""
    kernel = kernels[trial.arm]
    if not isinstance(kernel, Kernel):
        raise InfraError(kernel.cause, place=kernel.place, action=kernel.action)
    return kernel


def not_for(instrument: Instrument, scenario: Scenario) -> TrialResult | None:
    """The result of a trial whose scenario the instrument does not measure, else None."""
    if instrument in scenario.instruments:
        return None
    how = " or ".join(each.traits.does for each in scenario.instruments)
    return _skipped(SkipKind.NOT_FOR_INSTRUMENT, f"{scenario.reference} is only {how}")


def framed(
    folder: Path,
    measure: Callable[[], TrialResult],
    *,
    kernel: KernelIdentity,
    facts: MachineFacts | None = None,
    fresh_boot: bool = False,
) -> TrialResult:
    """Measure a trial into folder; a guest's fault is its result.  kernel, facts: by default."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ARTIFACTS:  # of an attempt before
        (folder / name).unlink(missing_ok=True)
    begun = time.monotonic()
    try:
        result = measure()
    except Lacking as lack:
        result = _skipped(SkipKind.UNSUPPORTED, str(lack))
    except GuestFault as fault:
        if fault.console:
            (folder / "console.log").write_text(fault.console)
        result = TrialResult(outcome=blame(fault), reasons=(bounded(fault.sentence()),))
    return replace(
        result,
        kernel=result.kernel or kernel,
        facts=result.facts or facts,
        fresh_boot=fresh_boot,
        wall_s=round(time.monotonic() - begun, 3),
        artifacts={
            name.partition(".")[0]: f"{folder.parent.name}/{folder.name}/{name}"
            for name in ARTIFACTS
            if (folder / name).is_file()
        },
    )


def set_up(settings: MachineSettings, given: SwapBacking, seed: Seed) -> tuple[Order, ...]:
    """What a guest does before its program: swap, be set, say what it is."""
    swap = swap_orders(settings, given)
    return (*swap, *orders.of_settings(settings), seed.order)


def run_in(
    machine: Guest, settings: MachineSettings, release: str, timeout_s: float
) -> tuple[GuestIdentity, Ran, Answers]:
    """What a guest is, what its program did, all it answered.  Raises Lacking, GuestFault."""
    answers = machine.finish(timeout_s)
    identity = answers.identity(settings)
    printed, status = answers.ran()
    return identity, ran_as(identity, settings, release, printed, status), answers


def ran_as(
    identity: GuestIdentity, settings: MachineSettings, release: str, printed: str, status: int
) -> Ran:
    """A program that came to its end in a guest of that identity."""
    wrong = tuple(mismatches(settings, release, identity))
    return Ran(printed=printed, status=status, wrong=wrong)


def read_back(kernel: Kernel, identity: GuestIdentity) -> KernelIdentity:
    """A kernel with what its booted guest says of it."""
    known = kernel.identity()
    return replace(known, build_id=identity.build_id, compiler=identity.compiler)


def judged(ran: Ran, load: Workload, scenario: Scenario, measured: Measured) -> TrialResult:
    """What a program's output amounts to.  Raises GuestError.  measured: data, what is invalid."""
    if ran.status not in _STATUSES:
        lines = ran.printed.strip().splitlines()
        said = quoted(lines[-1], 200) if lines else "it printed nothing"
        how = f"the workload ended with status {ran.status}"
        with contextlib.suppress(ValueError):
            by = signal.Signals(ran.status - _BY_SIGNAL).name
            raise GuestError(f"{how} (as by {by}): {said}")
        raise ProgramError(f"{how}: {said}")
    if not ran.printed.strip():
        raise ProgramError(
            "the workload printed nothing: it closed its standard output, went to the background,"
            " ended by _exit(), or executed another program"
        )
    reading = output.parse_output(ran.printed, load, scenario)
    if reading.exit_code != ran.status:
        raise GuestError(f"the workload says end {reading.exit_code} and ended with {ran.status}")
    last = reading.notes[-1] if reading.notes else "it gave no reason"
    if reading.exit_code == output.EXIT_SKIP:
        return _skipped(SkipKind.UNSUPPORTED, last)
    if reading.exit_code and not reading.samples:
        raise ProgramError(f"the workload failed: {last}")
    # A fact that this user may not read is unknown, and an unknown state is no state.
    failed = output.contract_failures(reading)
    if not ran.permitted and failed and all(field.value == UNKNOWN for field in failed):
        names = ", ".join(dict.fromkeys(field.name for field in failed))
        why = f"only root may read the page state that this scenario needs: {names}"
        return _skipped(SkipKind.NOT_PERMITTED, why)
    data, invalid = measured(reading)
    reasons = [
        *ran.wrong,
        *(f"{f.name} {f.when} is {f.value}{f', not {f.want}' * f.binding}" for f in failed),
    ]
    reasons += invalid
    if reading.exit_code == output.EXIT_STATE and not reasons:
        reasons = [last]
    return TrialResult(
        outcome=Outcome.INVALID if reasons else Outcome.OK,
        reasons=tuple(map(bounded, reasons)),
        data=data,
        state=reading.state,
        metrics=reading.metrics,
    )


def bounded(sentence: str) -> str:
    """A sentence as long as a result keeps it."""
    return sentence[:_LONGEST]


def blame(fault: GuestFault) -> Outcome:
    """The outcome that says whose fault it is."""
    if isinstance(fault, ProgramError):
        return Outcome.PROGRAM_ERROR
    if isinstance(fault, TimeOutError):
        return Outcome.TIME_OUT
    return Outcome.GUEST_ERROR if isinstance(fault, GuestError) else Outcome.BOOT_ERROR


def _skipped(kind: SkipKind, sentence: str) -> TrialResult:
    return TrialResult(outcome=Outcome.SKIP, skip=Skip(kind=kind, sentence=bounded(sentence)))
