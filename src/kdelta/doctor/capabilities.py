# SPDX-License-Identifier: GPL-2.0-or-later
"""What this machine, and one by ssh, can do for kdelta: rows of `kdelta doctor`, by trying."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache as remember
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kdelta import arch, process
from kdelta.archive import apt
from kdelta.errors import InfraError, KdeltaError, as_root
from kdelta.guests import kvm, qemu
from kdelta.host import reboot
from kdelta.host.facts import emulated, objections
from kdelta.host.ssh_host import HOME, NO_SUDO, SshHost
from kdelta.printable import printable
from kdelta.procfs import meminfo
from kdelta.sample import HostFacts
from kdelta.source import make

EXACT_NEEDS = frozenset({"Python", "QEMU (amd64)", "C compiler (amd64)", "memory", "cache"})
"""Rows without which no exact run works; of several with one name, one usable is enough."""


class Usability(StrEnum):
    """Whether a capability can be used on this machine."""

    OK = "ok"
    FETCHED = "when needed"  # not here, and kdelta fetches it by itself when it first needs it
    MISSING = "missing"  # not installed or not set up: the remedy adds it
    UNUSABLE = "unusable"  # there, and does not do its work
    ABSENT = "absent"  # this machine or its kernel does not have it


class Tried(NamedTuple):
    """What trying something showed.  detail: one clause; remedy: what adds it, "" for nothing."""

    state: Usability
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One thing this machine can or cannot do.  purpose: what it is for; the others: of Tried."""

    name: str
    state: Usability
    detail: str
    purpose: str
    remedy: str = ""


def lacking(rows: Iterable[Capability]) -> frozenset[str]:
    """What exact runs need, and what is neither here nor fetched when it is needed."""
    usable = (Usability.OK, Usability.FETCHED)
    return EXACT_NEEDS - {row.name for row in rows if row.state in usable}


def install(*packages: str) -> str:
    """Command that adds Debian packages, for the user who runs this."""
    return as_root(f"apt-get install {' '.join(packages)}")


GIB = 1 << 30
NEEDED_MEMORY = 3 * GIB // 2  # one guest of 1 GiB, QEMU's own memory, kdelta
NEEDED_DISK = 2 * GIB  # nine kernels (~15 MB each), their checkpoints (~100 MB each), packages


def memory() -> Tried:
    """Memory that a new guest could take now."""
    free = meminfo(Path("/"))["MemAvailable"] * 1024
    detail = f"{free / GIB:.1f} GiB available, {len(os.sched_getaffinity(0))} CPUs"
    if free >= NEEDED_MEMORY:
        return Tried(Usability.OK, detail)
    return Tried(Usability.UNUSABLE, detail, "free some memory: exact runs need 1.5 GiB")


def disk(cache: Path) -> Tried:
    """Room for, and permission to write, the cache."""
    place = next(path for path in (cache, *cache.parents) if path.exists())
    remedy = "set XDG_CACHE_HOME to a directory that you can write"
    if not place.is_dir():
        return Tried(Usability.UNUSABLE, f"{place} is no directory", remedy)
    free = shutil.disk_usage(place).free
    detail = f"{free / GIB:.1f} GiB free for {cache}"
    try:
        tempfile.TemporaryFile(dir=place).close()  # leaves no trace
    except OSError as error:
        detail += f", not writable: {(error.strerror or str(error)).lower()}"
        return Tried(Usability.UNUSABLE, detail, remedy)
    if free < NEEDED_DISK:
        remedy = "free 2 GiB, or set XDG_CACHE_HOME to a directory on a larger disk"
        return Tried(Usability.UNUSABLE, detail, remedy)
    return Tried(Usability.OK, detail)


_TIMEOUT_S = 20.0
_VERSION = re.compile(r"\d+(?:\.\d+)+")


def python() -> Tried:
    """The Python that runs this: an older one could not have come this far."""
    return Tried(Usability.OK, f"{platform.python_version()} at {sys.executable}")


def guest_compiler(target: arch.Arch) -> Tried:
    """Whether static programs for a guest can be made, by making one."""
    name, remedy = arch.compiler(target), install(arch.compiler_package(target))
    if process.which(name) is None:
        return Tried(Usability.MISSING, f"no {name}", remedy)
    with tempfile.TemporaryDirectory(prefix="kdelta-doctor-") as scratch:
        source = Path(scratch, "one.c")
        source.write_text("int main(void) { return 0; }\n")
        argv = [name, "-static", "-o", str(Path(scratch, "one")), str(source)]
        try:
            done = process.run(argv, timeout=_TIMEOUT_S, check=False)
        except InfraError as error:
            return Tried(Usability.UNUSABLE, error.cause, remedy)
    if done.returncode:
        detail = f"{name} makes no static program: {done.last_words}"
        return Tried(Usability.UNUSABLE, detail, remedy)
    version = _version_of(name, "-dumpfullversion")
    return Tried(Usability.OK, f"{name} {version} makes static ELF")


def tool(name: str, package: str, flag: str = "--version") -> Tried:
    """A program on PATH and its version, which it says when given that flag."""
    if process.which(name) is None:
        return Tried(Usability.MISSING, f"no {name}", install(package))
    version = _version_of(name, flag)
    return Tried(Usability.OK if version else Usability.UNUSABLE, version or "does not start")


def _version_of(name: str, flag: str) -> str:
    try:
        done = process.run([name, flag], timeout=_TIMEOUT_S)
    except InfraError:
        return ""
    match = _VERSION.search(done.stdout + done.stderr)
    return match[0] if match else ""


def debian_sources() -> Tried:
    """Whether apt is configured for a Debian mirror."""
    if process.which("apt-get") is None:
        return Tried(Usability.ABSENT, "no apt here: only file:PATH and tree:PATH kernels")
    try:
        mirrors = apt.configured_mirrors(apt.configured())
    except InfraError as error:
        return Tried(Usability.MISSING, error.cause, error.action)
    named = ", ".join((*mirrors.archive, *mirrors.security))
    return Tried(Usability.OK, f"configured: {named} (not contacted)")


Probe = Callable[[], Tried | Sequence[Tried]]


def inventory(
    cache: Path, *, tries: Callable[[str], None] = lambda _: None
) -> tuple[Capability, ...]:
    """Try everything, without the network; a probe that goes wrong is a row.  cache: need not
    exist.  tries: gets the name of each row before.  Takes seconds, or a minute where a guest hangs
    under KVM.
    """
    rows = []
    for name, purpose, probe in _probes(cache):
        tries(name)
        try:
            found = probe()
        except (KdeltaError, OSError, ValueError, LookupError) as error:
            cause = error.cause if isinstance(error, KdeltaError) else str(error)
            found = Tried(Usability.UNUSABLE, f"cannot be found out: {cause}")
        each = [found] if isinstance(found, Tried) else found
        rows += [Capability(name=name, purpose=purpose, **one._asdict()) for one in each]
    return tuple(rows)


def _probes(cache: Path) -> Iterator[tuple[str, str, Probe]]:
    sources = remember(debian_sources)
    yield "Python", "kdelta itself", python
    for one in arch.ARCHES.values():
        yield f"QEMU ({one.debian})", f"exact runs, {one.debian}", partial(_qemus, one, sources)
    for one in arch.ARCHES.values():
        plugin = "; QEMU plugin" if one.uname == platform.machine() else ""
        purpose = f"guests and kernels, {one.debian}{plugin}"
        yield f"C compiler ({one.debian})", purpose, partial(guest_compiler, one)
    yield "memory", "1.5 GiB a guest", memory
    yield "cache", "kernels, checkpoints", partial(disk, cache)
    yield "Debian sources", "kernels by release", sources
    yield "KVM", "timed runs in a guest", _kvm
    yield "kernel builds", "kernels from source, bisection over commits", _builds
    yield "clang", "a second compiler", partial(tool, "clang", "clang")
    yield "bubblewrap", "strangers' builds", _bubblewrap
    yield "ccache", "faster rebuilds", partial(tool, "ccache", "ccache")
    yield "ssh", "other machines that time", partial(tool, "ssh", "openssh-client", "-V")


def _bubblewrap() -> Tried:
    found = tool("bwrap", "bubblewrap")
    if found.state is not Usability.OK:
        return found
    argv = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    done = process.run(argv, timeout=_TIMEOUT_S, check=False)
    return Tried(Usability.UNUSABLE, done.last_words) if done.returncode else found


def _builds() -> Tried:
    if packages := make.missing():
        return Tried(Usability.MISSING, f"no {', '.join(packages)}", install(*packages))
    if more := make.missing(make.OF_PACKAGES):
        detail = f"config=package also needs {', '.join(more)}"
        return Tried(Usability.OK, detail, install(*more))
    return Tried(Usability.OK, "all tools are there")


def _qemus(target: arch.Arch, sources: Callable[[], Tried]) -> Sequence[Tried]:
    """Those that are here; where none counts, also whether the first run can fetch one."""
    if os.environ.get("KDELTA_QEMU"):
        try:
            return [_qemu(qemu.choose(target))]
        except KdeltaError as error:
            return [Tried(Usability.MISSING, f"KDELTA_QEMU: {error}", error.action)]
    found = [_qemu(one) for one in qemu.find(target)]
    if any(one.state is Usability.OK for one in found):
        return found
    archive = sources()
    if archive.state is Usability.OK:
        detail = f"{qemu.PINNED} is fetched by the first run that needs it; Debian sources"
        return [*found, Tried(Usability.FETCHED, f"{detail} {archive.detail}")]
    detail = f"no {target.qemu} that counts, and none can be fetched: {archive.detail}"
    other = f"bring a QEMU {qemu.PINNED} here and name it: KDELTA_QEMU=PATH"
    return [*found, Tried(Usability.MISSING, detail, archive.remedy or other)]


def _qemu(found: qemu.Qemu) -> Tried:
    if qemu.counts(found):
        turns = "; several CPUs in turns" if qemu.can_turn(found) else ""
        return Tried(Usability.OK, f"counts: {found.version}, {found.program}{turns}")
    what = f"does not count: {found.version}" if found.version else f"{found.fault}: does not start"
    return Tried(Usability.UNUSABLE, f"{what}, {found.program}")


def _kvm() -> Tried:
    host = arch.ARCHES["amd64"]
    if platform.machine() != host.uname:
        return Tried(Usability.UNUSABLE, f"not tried: the probe is for {host.uname}")
    found = next(qemu.find(host), None)
    if found is None:
        detail = f"not tried: no {host.qemu} to try it with"
        return Tried(Usability.UNUSABLE, detail, install(host.qemu_package))
    seen = kvm.probe(found)
    bad = Usability.UNUSABLE if kvm.DEVICE.exists() else Usability.ABSENT
    return Tried(Usability.OK if seen.boots else bad, seen.detail, seen.remedy)


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
    programs = ("grub-reboot", "kexec")
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
