# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything that can go wrong, as types that say whose fault it is.

Each error carries a cause, a place and the next action; `cli` prints them as one sentence and
exits with `exit_code`.  Nothing below `cli` prints an error or exits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


class KdeltaError(Exception):
    """Base of all expected errors.

    cause:  what happened, lower case, no full stop ("unknown kernel 6.99")
    place:  where: a file and key, a trial, a console log ("study.toml: kernels[2]")
    action: what to do next ("list what exists with: kdelta kernels list")
    lines:  what can be pasted, below the sentence
    """

    exit_code = 3

    def __init__(
        self, cause: str, *, place: str = "", action: str = "", lines: Sequence[str] = ()
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.place = place
        self.action = action
        self.lines = lines

    def sentence(self) -> str:
        """The whole error as one sentence: place, cause, next action."""
        place = os.path.normpath(self.place) if "/../" in self.place else self.place
        place = place if len(place) <= 200 else f"...{place[-200:]}"
        text = f"{place}: {self.cause}" if place else self.cause
        return f"{text}; {self.action}" if self.action else text

    def __str__(self) -> str:
        return self.sentence()


class SpecError(KdeltaError):
    """The user's input is wrong: a study, a workload, a reference, an argument."""

    exit_code = 2


class InfraError(KdeltaError):
    """This machine's fault: a tool, the mirror, the disk, QEMU itself.  Never data."""

    exit_code = 3


class BuildError(InfraError):
    """Something of ours did not compile here (plugin, guest, workload)."""


class StoreError(InfraError):
    """What a journal keeps on the disk cannot be read or written."""


class FullError(InfraError):
    """A disk is full: nothing more can be measured now, and no trial is to blame."""


class PoolError(InfraError):
    """The workers of a run are gone: nothing more can be measured now, and no trial is to blame."""


class GuestFault(KdeltaError):  # noqa: N818  a fault, not an error of ours
    """Base of the two errors that blame the kernel under test or what ran on it.

    console: what the guest's console showed until then.
    """

    exit_code = 1

    def __init__(self, cause: str, *, place: str = "", action: str = "", console: str = "") -> None:
        super().__init__(cause, place=place, action=action)
        self.console = console


class BootError(GuestFault):
    """The kernel did not reach our PID 1: it panicked, hung or reset during boot."""


class GuestError(GuestFault):
    """The guest booted and then failed: panic, hang, garbage, early exit, wrong machine."""


class ProgramError(GuestError):
    """The program ended with a status of its own, which it would end with again."""


class TimeOutError(GuestError):
    """The guest did not end within a time that the user gave."""


class Cancelled(Exception):  # noqa: N818  no error: the user ended the work
    """The event given as `cancelled` was set while something was waited for."""


def as_root(command: str) -> str:
    """A command that an error or a remedy names, through sudo unless this user is root already."""
    return command if os.geteuid() == 0 else f"sudo {command}"
