# SPDX-License-Identifier: GPL-2.0-or-later
"""What a machine that is reached by ssh can do for timed studies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kdelta.doctor.this_host import Capability, Tried, Usability
from kdelta.host import reboot
from kdelta.host.facts import emulated, objections
from kdelta.host.remote import NO_SUDO
from kdelta.host.ssh_host import HOME, SshHost
from kdelta.printable import printable
from kdelta.sample import HostFacts

_LEAST_MIB = 64
_OK, _MISSING, _UNUSABLE = Usability.OK, Usability.MISSING, Usability.UNUSABLE


def rows(ssh_host: SshHost) -> Iterator[Capability]:
    """One row for each thing that a timed study needs of it.  Raises InfraError: not reached."""
    running = ssh_host.running()
    facts = ssh_host.facts()
    said = objections(facts)
    quiet = Tried(_OK, "nothing speaks against its times")
    if said:
        quiet = Tried(_UNUSABLE, f"{len(said)} objections", "; ".join(said))
    for name, purpose, tried in (
        ("reached", "all", Tried(_OK, f"runs {running.release}")),
        ("root", "other kernels", _root(ssh_host)),
        ("kernels", "arms", Tried(_OK, ", ".join(ssh_host.releases())[:400] or "none")),
        ("next boot", "other kernels", _next_boot(ssh_host)),
        ("by itself", "unattended", _by_itself(ssh_host, running.release)),
        ("panics", "unattended", _panics(ssh_host)),
        ("room", "programs", _room(ssh_host)),
        ("held", "one run at a time", _held(ssh_host)),
        ("machine", "times", _machine(facts)),
        ("quiet", "times", quiet),
    ):
        yield Capability(name=name, purpose=purpose, **tried._asdict())


def _root(ssh_host: SshHost) -> Tried:
    done = ssh_host.remote.ask("$S id -u")
    if done.status == 0 and done.text.strip() == "0":
        return Tried(_OK, "yes")
    return Tried(_MISSING, f"no: {done.last_words}", NO_SUDO)


def _next_boot(ssh_host: SshHost) -> Tried:
    programs = ("grub-reboot", "grub2-reboot", "kexec")
    asked = "; ".join(f"$S sh -c 'command -v {each}'" for each in programs)
    said = ssh_host.remote.ask(f"{asked}; true").text
    found = [each for each in programs if re.search(rf"/{each}$", said, re.M)]
    if found:
        return Tried(_OK, ", ".join(found))
    return Tried(_MISSING, "neither GRUB nor kexec", "there: apt-get install kexec-tools")


def _by_itself(ssh_host: SshHost, running: str) -> Tried:
    with ssh_host.shown() as root:
        own = reboot.by_itself(root)
    if own in ("", running):
        return Tried(_OK, f"it boots {own}" if own else "its boot loader names no one kernel")
    detail = f"it boots {printable(own, 80)}, and runs another one: that may not come up"
    return Tried(_UNUSABLE, detail, f"there: reboot, and see it come up with {printable(own, 80)}")


def _panics(ssh_host: SshHost) -> Tried:
    seconds = ssh_host.remote.ask("cat /proc/sys/kernel/panic").text.strip()
    if seconds not in ("", "0"):
        return Tried(_OK, f"a kernel that panics reboots after {printable(seconds, 10)} s")
    detail = "by GRUB, a kernel that panics stays down until somebody resets the machine"
    mend = "there: panic=10 into GRUB_CMDLINE_LINUX of /etc/default/grub, then update-grub"
    return Tried(_MISSING, detail, mend)


def _room(ssh_host: SshHost) -> Tried:
    parent = HOME.rpartition("/")[0]
    said = ssh_host.remote.ask(f"df -Pm {parent} | tail -n 1").text.split()
    free = int(said[3]) if len(said) > 3 and said[3].isdecimal() else 0
    found, mend = f"{free} MiB in {parent}", f"there: make {_LEAST_MIB} MiB free"
    return Tried(_OK, found) if free >= _LEAST_MIB else Tried(_UNUSABLE, found, mend)


def _held(ssh_host: SshHost) -> Tried:
    held = ssh_host.holder()
    if held is None:
        return Tried(_OK, "by nobody")
    who = f"by {printable(held.run, 80)} since {printable(held.since, 40)}"
    return Tried(_UNUSABLE, who, "if that run is given up: kdelta host release")


def _machine(facts: HostFacts) -> Tried:
    detail = f"{printable(facts.cpu_model or 'CPU unknown', 60)}, {facts.seen.cpus or '?'} CPUs"
    if emulated(facts):
        return Tried(_UNUSABLE, f"{detail}: emulated, every time is INVALID", "use a real machine")
    return Tried(_OK, detail)
