# SPDX-License-Identifier: GPL-2.0-or-later
"""Does KVM run guests here?  Only a probe boot tells.

/dev/kvm can open and answer, run a boot sector, and still never boot a stock kernel: seen on a
nested host whose instruction emulator lacks the BMI2 instruction SHLX that the kernel's
decompressor uses.  So the probe has two stages, reported apart.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path

from kdelta import process
from kdelta.errors import as_root
from kdelta.guests.emulators import Program

DEVICE = Path("/dev/kvm")

_SECTOR_S = 15.0
_KERNEL_S = 20.0
_POLL_S = 0.05
_CONSOLE_BYTES = 1 << 20
_SCANNED_FILES = 20_000

_WORD = b"K"
_EXIT_STATUS = 67  # isa-debug-exit: (0x21 << 1) | 1
# Real mode, run at 0:7c00 by the BIOS: say one letter on the debug console, end QEMU, else halt.
_CODE = bytes.fromhex(
    "fa"  # cli
    "bae900 b04b ee"  # mov dx,0xe9; mov al,'K'; out dx,al
    "ba0105 b021 ee"  # mov dx,0x501; mov al,0x21; out dx,al
    "f4 ebfd"  # hlt; jmp back to it
)
BOOT_SECTOR = _CODE.ljust(510, b"\0") + b"\x55\xaa"

_BZIMAGE = b"HdrS"  # at 0x202: Documentation/arch/x86/boot.rst
_KERNEL_SPOKE = re.compile(rb"Linux version (\S+)")
_GAVE_UP = re.compile(rb"KVM internal error[^\n]*|KVM: entry failed[^\n]*|error: [^\n]*")

_EMULATION = "Suberror: 1"  # KVM_INTERNAL_ERROR_EMULATION, linux/kvm.h


class Reach(StrEnum):
    """How far a guest got under KVM."""

    NO_DEVICE = "no device"
    NO_ACCESS = "no access"
    NOTHING = "nothing runs"
    BOOT_SECTOR = "boot sector"
    KERNEL = "stock kernel"


REMEDIES = {
    Reach.NO_DEVICE: "load kvm_intel or kvm_amd; in a guest, enable nesting first",
    Reach.NO_ACCESS: as_root("adduser $USER kvm") + ", then log in again",
    Reach.NOTHING: "",
    Reach.BOOT_SECTOR: "",
    Reach.KERNEL: "",
}
"""What to do about each answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvmProbe:
    """Result of probe(): how far it got, and one clause on what was seen."""

    reach: Reach
    detail: str
    kernel_tried: bool = False


def probe(qemu: Program, cache: Path) -> KvmProbe:
    """Boot a sector of ours, then the start of a stock kernel found in cache or /boot, under KVM.

    qemu is a qemu-system-x86_64.  Takes at most about 40 s; raises InfraError only when QEMU
    cannot be started at all.
    """
    denied = _access()
    if denied:
        return denied
    with tempfile.TemporaryDirectory(prefix="kdelta-doctor-") as scratch:
        failure = run_boot_sector(qemu, "kvm", Path(scratch))
        if failure:
            fault = "QEMU itself fails: " if run_boot_sector(qemu, "tcg", Path(scratch)) else ""
            return KvmProbe(reach=Reach.NOTHING, detail=f"{fault}{failure}")
        kernel = find_kernel((cache, Path("/boot")))
        if kernel is None:
            return KvmProbe(
                reach=Reach.BOOT_SECTOR, detail="boot sector runs; no kernel at hand to try next"
            )
        return _judge_kernel(qemu, kernel, Path(scratch))


def _access() -> KvmProbe | None:
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return KvmProbe(reach=Reach.NO_DEVICE, detail=f"no {DEVICE}")
    except OSError as error:
        return KvmProbe(reach=Reach.NO_ACCESS, detail=f"{DEVICE}: {error.strerror}")
    return None


def run_boot_sector(qemu: Program, accelerator: str, scratch: Path) -> str:
    """Boot BOOT_SECTOR under an accelerator ("kvm", "tcg"); why it failed, empty when it ran."""
    disk, console = scratch / "sector.img", scratch / "sector.out"
    disk.write_bytes(BOOT_SECTOR)
    argv = [
        *_bare(qemu, accelerator),
        *("-drive", f"file={disk},format=raw,if=ide", "-device", "isa-debug-exit"),
        *("-chardev", f"file,id=said,path={console}", "-device", "isa-debugcon,chardev=said"),
    ]
    ended, log = _watch(
        qemu, argv, scratch / "sector.log", _SECTOR_S, re.compile(rb"KVM internal error")
    )
    said = console.read_bytes()[:16] if console.exists() else b""
    if ended == _EXIT_STATUS and said == _WORD:
        return ""
    return f"boot sector does not run: {_last_line(log) or f'nothing in {_SECTOR_S:.0f} s'}"


def find_kernel(places: tuple[Path, ...]) -> Path | None:
    """The most recent readable bzImage below the places, first place first; None if none."""
    for place in places:
        found = [(path.stat().st_mtime, path) for path in _candidates(place) if _is_bzimage(path)]
        if found:
            return max(found)[1]
    return None


def _candidates(place: Path) -> Iterator[Path]:
    walked = (Path(top) / name for top, _, names in os.walk(place) for name in names)
    for path in islice(walked, _SCANNED_FILES):
        if any(word in path.name.lower() for word in ("vmlinuz", "bzimage", "image")):
            yield path


def _is_bzimage(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(0x206)[0x202:] == _BZIMAGE
    except OSError:
        return False


def release_of(kernel: Path) -> str:
    """The release that a bzImage says it is ("6.17.8+deb13-cloud-amd64"); else its file name."""
    with kernel.open("rb") as stream:
        head = stream.read(0x10000)
    at = int.from_bytes(head[0x20E:0x210], "little") + 0x200  # kernel_version of the same header
    words = head[at : at + 128].partition(b"\0")[0].decode("ascii", "replace").split()
    return words[0] if at > 0x200 and words else kernel.name


def _judge_kernel(qemu: Program, kernel: Path, scratch: Path) -> KvmProbe:
    argv = [
        *(*_bare(qemu, "kvm"), "-m", "1024", "-kernel", str(kernel)),
        *("-append", "console=ttyS0 earlyprintk=serial panic=-1", "-serial", "stdio"),
    ]
    done = re.compile(_KERNEL_SPOKE.pattern + rb"|" + _GAVE_UP.pattern)
    ended, log = _watch(qemu, argv, scratch / "kernel.log", _KERNEL_S, done)
    spoke = _KERNEL_SPOKE.search(log)
    if spoke:
        release = spoke[1].decode(errors="replace")
        return KvmProbe(
            reach=Reach.KERNEL, detail=f"stock kernel {release} starts", kernel_tried=True
        )
    return KvmProbe(
        reach=Reach.BOOT_SECTOR,
        detail=f"boot sector runs, stock kernel {release_of(kernel)} does not: {_why(ended, log)}",
        kernel_tried=True,
    )


def _why(ended: int | None, log: bytes) -> str:
    gave_up = _GAVE_UP.search(log)
    if gave_up:
        words = gave_up[0].decode(errors="replace").strip()
        return words + (", an instruction it cannot emulate" if words.endswith(_EMULATION) else "")
    if ended is not None:
        return f"QEMU ended with status {ended}: {_last_line(log)}"
    said = f', last words "{_last_line(log)}"' if _last_line(log) else ""
    return f"no kernel message in {_KERNEL_S:.0f} s{said}"


def _bare(qemu: Program, accelerator: str) -> tuple[str, ...]:
    """QEMU with no devices but those named after it, on the CPU that a timed guest would get."""
    cpu = "host" if accelerator == "kvm" else "max"
    return (
        *(
            str(qemu.path),
            *qemu.arguments,
            "-accel",
            accelerator,
            "-cpu",
            cpu,
            "-machine",
            "pc",
            "-nodefaults",
        ),
        *("-no-user-config", "-display", "none", "-no-reboot"),
    )


def _watch(
    qemu: Program, argv: list[str], log: Path, seconds: float, enough: re.Pattern[bytes]
) -> tuple[int | None, bytes]:
    """Run argv until it ends, prints what is enough, or time is up: exit status or None, output.

    QEMU stays paused after a KVM internal error, so its end alone is no sign to wait for.
    """
    deadline = time.monotonic() + seconds
    with log.open("wb") as sink:
        child = process.start(argv, stdout=sink, stderr=sink, env=qemu.environment)
        try:
            while child.poll() is None and time.monotonic() < deadline:
                if enough.search(_head(log)):
                    break
                time.sleep(_POLL_S)
            status = child.poll()
        finally:
            process.end(child)
    return status, _head(log)


def _head(log: Path) -> bytes:
    with log.open("rb") as stream:
        return stream.read(_CONSOLE_BYTES)


def _last_line(log: bytes) -> str:
    lines = log.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""
