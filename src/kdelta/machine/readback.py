# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a guest got the machine that was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from kdelta.machine.axes import AXES, MachineSettings
from kdelta.machine.identity import GuestIdentity
from kdelta.procfs import chosen


class Lacking(Exception):  # noqa: N818  no error: the trial is skipped
    """The kernel does not have what was asked for; the text says what."""


def lacking(machine: MachineSettings, identity: GuestIdentity) -> str:
    """What was asked for and this kernel does not have, one phrase; "" when nothing.

    Such a trial is skipped, not failed.
    """
    for name, axis in AXES.items():
        asked = getattr(machine, name)
        if asked and axis.lacks and (phrase := axis.lacks(asked, identity)):
            return phrase
        for path, text in axis.files(asked) if asked and axis.files else ():
            got = identity.files.get(path, "")
            if text.isdecimal() and got.isdecimal() and int(got) < int(text):
                return f"{name}: the kernel gave {got} of {text}"
    return ""


def mismatches(machine: MachineSettings, release: str, identity: GuestIdentity) -> tuple[str, ...]:
    """What the guest did not get as asked, one phrase each; empty when all was read back."""
    found = []
    if release and identity.release != release:
        found.append(f"kernel release is {identity.release}, the image says {release}")
    if identity.machine != machine.target.uname:
        found.append(f"machine is {identity.machine}, asked for {machine.target.uname}")
    if identity.seen.cmdline != machine.full_cmdline:
        found.append(
            f"command line is {identity.seen.cmdline!r}, asked for {machine.full_cmdline!r}"
        )
    return (*found, *_axes(machine, identity))


def _axes(machine: MachineSettings, identity: GuestIdentity) -> Iterator[str]:
    for name, axis in AXES.items():
        asked = getattr(machine, name)
        if axis.seen:
            if not axis.fits(asked, seen := axis.seen(identity.seen)):
                yield f"{name} is {seen or 'unknown'}, asked for {asked or axis.own}"
        elif asked and axis.files:
            for path, text in axis.files(asked):
                if (got := chosen(identity.files.get(path, ""))) != text:
                    yield f"{name}: {path} is {got or 'unknown'}, asked for {text}"
