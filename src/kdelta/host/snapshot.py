# SPDX-License-Identifier: GPL-2.0-or-later
"""What another machine shows of itself, as a small tree of files that the rules for /proc and /sys
here read just the same.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
import shlex
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from kdelta.errors import InfraError
from kdelta.host import facts
from kdelta.host.loaders import EFI_VARIABLES, GRUB_PLACE, LOADER_ENTRIES, VENDOR
from kdelta.host.remote import Remote
from kdelta.printable import printable
from kdelta.sample import HostFacts

_MOST_FILES = 20_000
_MOST_BYTES = 16 << 20
_OWN = "kdelta"  # folder of what programs said
_CPU = "sys/devices/system/cpu"
_FILES = (
    "proc/cmdline proc/config.gz proc/cpuinfo proc/loadavg proc/meminfo proc/stat proc/version",
    "proc/sys/kernel/numa_balancing proc/sys/kernel/osrelease proc/sys/kernel/panic",
    "proc/sys/kernel/random/boot_id proc/sys/kernel/version",
    f"{_CPU}/isolated {_CPU}/nohz_full {_CPU}/online {_CPU}/smt/control {_CPU}/vulnerabilities/*",
    f"{_CPU}/cpufreq/boost {_CPU}/intel_pstate/no_turbo",
    f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor {_CPU}/cpu[0-9]*/topology/core_cpus_list",
    f"{_CPU}/cpu[0-9]*/topology/thread_siblings_list",
    f"{_CPU}/cpu[0-9]*/cpufreq/energy_performance_preference",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/node/node[0-9]*/cpulist sys/firmware/dmi/entries/17-*/raw",
    "sys/hypervisor/type sys/kernel/debug/sched/preempt sys/kernel/mm/ksm/run sys/kernel/notes",
    "sys/kernel/mm/transparent_hugepage/enabled sys/kernel/mm/transparent_hugepage/defrag",
    "sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "boot/config-* boot/grub/grub.cfg boot/grub2/grub.cfg boot/grub/grubenv boot/grub2/grubenv",
    *(f"{EFI_VARIABLES}/Loader{name}-{VENDOR}" for name in ("Info", "EntryDefault")),
)
# Below folders that only root may look into.
_LOADERS = " ".join(f"{each}/entries/*.conf {each}/loader.conf" for each in LOADER_ENTRIES)
# Of kernels and initial RAM disks only that they are there.
_EMPTY = "boot/vmlinuz-* boot/initrd.img-* boot/initramfs-*.img boot/initrd-* lib/modules/*/vmlinuz"
_SCRIPT = """
set -u; cd / || exit 1; t=$(mktemp -d) || exit 1; trap 'rm -rf "$t"' EXIT
place() {{ [ -d "$t/${{1%/*}}" ] || mkdir -p "$t/${{1%/*}}"; }}
for f in {files}; do [ -f "$f" ] && place "$f" && cat "$f" > "$t/$f" 2> /dev/null; done
for f in {empty}; do [ -f "$f" ] && place "$f" && : > "$t/$f"; done
mkdir -p "$t/{own}"
findmnt -no FSTYPE,SOURCE -T /boot/grub > "$t/{grub}" 2> /dev/null
uname -m > "$t/{own}/machine"
systemd-detect-virt --vm > "$t/{own}/virtual" 2> /dev/null
systemctl --failed --plain --no-legend --no-pager > "$t/{own}/failed" 2> /dev/null ||
    rm -f "$t/{own}/failed"
head -c 8192 /proc/timer_list > "$t/{own}/timers" 2> /dev/null
tar -C "$t" -czf - . | base64 -w 0
"""
# Once: sudo takes longer than all that is read.  Who may not be root sees less.
_AS_ROOT = '[ -z "$S" ] || $S true 2> /dev/null || S=; $S sh -c {script}'
_RESOLUTION = re.compile(r"\.resolution:\s+([0-9]{1,12}) nsecs")


def take(remote: Remote, root: Path) -> None:
    """Fill an empty folder with what a machine shows.  Raises InfraError."""
    files = " ".join((*_FILES, _LOADERS))
    script = _SCRIPT.format(files=files, empty=_EMPTY, own=_OWN, grub=GRUB_PLACE)
    printed = remote.get(_AS_ROOT.format(script=shlex.quote(script)))
    try:
        packed = base64.b64decode(printed, validate=True)
        _unpack(packed, root)
    except (binascii.Error, tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        raise InfraError(
            f"{remote.name} does not say what it is: {printable(str(error), 100)}",
            action="see: kdelta host doctor",
        ) from error


def _unpack(packed: bytes, root: Path) -> None:
    """Plain files of a tar only, below root, and no more than they may be."""
    left = _MOST_BYTES
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        for number, member in enumerate(archive):
            name = PurePosixPath(member.name)
            left -= member.size
            if number > _MOST_FILES or left < 0:
                raise ValueError("it is too much")
            if member.isdir():
                continue
            if not member.isfile() or name.is_absolute() or ".." in name.parts:
                raise ValueError(f"{member.name!a} is no plain file below it")
            content = archive.extractfile(member)
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content.read() if content else b"")


def read(root: Path, cpus: Collection[int] = ()) -> HostFacts:
    """The facts of the machine that a folder was filled from."""
    return replace(
        facts.read(root, cpus=cpus),
        machine=_said(root, "machine") or None,
        clock_resolution_ns=_resolution(root),
        clock_step_ns=None,
        virtualisation=_said(root, "virtual") or None,
        failed_units=_failed(root),
    )


def _said(root: Path, name: str) -> str:
    """The one word of a program, or ""."""
    try:
        word = (root / _OWN / name).read_text(errors="replace").strip()
    except OSError:
        return ""
    return word if re.fullmatch(r"[A-Za-z0-9_-]{1,32}", word) else ""


def _resolution(root: Path) -> int | None:
    """The coarsest clock base of /proc/timer_list in ns: 1 with high-resolution timers."""
    try:
        text = (root / _OWN / "timers").read_text(errors="replace")
    except OSError:
        return None
    return max(map(int, _RESOLUTION.findall(text)), default=None)


def _failed(root: Path) -> str | None:
    try:
        text = (root / _OWN / "failed").read_text(errors="replace")
    except OSError:
        return None
    names = [line.split()[0] for line in text.splitlines() if line.split()]
    return printable(",".join(names), 500) or facts.NONE
