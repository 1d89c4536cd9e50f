# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks whether a QEMU has the CPU that a study asks for; presets (machine.cpu) always work."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence

from kdelta import process
from kdelta.errors import SpecError
from kdelta.guests.emulator import Qemu
from kdelta.machine import cpu
from kdelta.machine.axes import MachineSettings

_TIMEOUT_S = 30.0
_LACKED = re.compile(r"support requested feature: \S+?\.([\w.-]+) \[bit")
_SAID = re.compile(r"[^\n]*?: (?!warning: )([^\n]+)\s*\Z")


def check(emulator: Qemu, settings: MachineSettings) -> None:
    """Let QEMU make the CPU of a guest, in an empty machine that ends at once.

    Raises SpecError for a model that QEMU does not know, or lacks a feature of: the guest would run
    on another CPU than the one asked for.  Raises InfraError when QEMU does not end.
    """
    name, arch = settings.cpu_model, settings.arch
    if cpu.preset(name, arch):
        return
    with tempfile.TemporaryFile() as commands:
        commands.write(b"quit\n")
        commands.seek(0)
        done = process.run(
            [
                *(str(emulator.program), *emulator.arguments, "-no-user-config", "-nodefaults"),
                *("-M", settings.target.machine, "-accel", "tcg", "-cpu", cpu.strict(name, arch)),
                *("-display", "none", "-S", "-monitor", "stdio"),
            ],
            timeout=_TIMEOUT_S,
            env=emulator.environment,
            stdin=commands,
            check=False,
        )
    if done.returncode:
        raise _refused(emulator, settings, done.stderr)


def _refused(emulator: Qemu, settings: MachineSettings, said: str) -> SpecError:
    """The error for a CPU that QEMU does not make, by its own words."""
    name = settings.cpu_model
    if lacked := tuple(dict.fromkeys(_LACKED.findall(said))):
        return SpecError(
            f"QEMU {emulator.version} cannot give all of the CPU {name}",
            place="cpu_model",
            action=f"write what it gives: {_without(name, lacked)}; or take a preset",
        )
    words = _SAID.search(said)
    return SpecError(
        f"QEMU {emulator.version} has no CPU {name}" + (f": {words[1]}" if words else ""),
        place="cpu_model",
        action=f"take a preset: {', '.join(cpu.names(settings.arch))}; or max",
    )


def _without(name: str, lacked: Sequence[str]) -> str:
    """A model without features: named features are left out, its own are switched off."""
    model, *switches = name.split(",")
    named = {switch: switch.lstrip("+").partition("=")[0] for switch in switches}
    kept = [switch for switch in switches if named[switch] not in lacked]
    off = [f"{feature}=off" for feature in lacked if feature not in named.values()]
    return ",".join([model, *kept, *off])
