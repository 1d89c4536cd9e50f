# SPDX-License-Identifier: GPL-2.0-or-later
"""Does KVM run guests here?  Only a probe boot tells.

/dev/kvm can open and answer, run a boot sector, and still never boot a stock kernel: seen on a
nested host whose instruction emulator lacks the BMI2 instruction SHLX that the kernel's
decompressor uses.  So the probe has two stages, reported apart.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kdelta import cache, process
from kdelta.errors import as_root
from kdelta.guests.emulator import Qemu
from kdelta.kernels import image

DEVICE = Path("/dev/kvm")

_SECTOR_S = 15.0
_KERNEL_S = 20.0
_POLL_S = 0.05
_CONSOLE_BYTES = 1 << 20

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


def probe(qemu: Qemu) -> KvmProbe:
    """Boot a sector of ours, then the start of a stock kernel of the cache or of /boot, under KVM.

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
        kernel = kernel_at_hand()
        if kernel is None:
            return KvmProbe(
                reach=Reach.BOOT_SECTOR, detail="boot sector runs; no kernel at hand to try next"
            )
        return _judge_kernel(qemu, *kernel, Path(scratch))


def _access() -> KvmProbe | None:
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return KvmProbe(reach=Reach.NO_DEVICE, detail=f"no {DEVICE}")
    except OSError as error:
        return KvmProbe(reach=Reach.NO_ACCESS, detail=f"{DEVICE}: {error.strerror}")
    return None


def run_boot_sector(qemu: Qemu, accelerator: str, scratch: Path) -> str:
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


def kernel_at_hand(boot: Path = Path("/boot")) -> tuple[Path, str] | None:
    """The newest bzImage among the kernels of the cache, else in /boot, and its release."""
    cached = [folder / "vmlinuz" for folder in cache.entries("images")]
    for places in (cached, list(boot.glob("vmlinuz*"))):
        for path in sorted(places, key=lambda path: path.stat().st_mtime, reverse=True):
            with contextlib.suppress(image.BadImage, OSError):
                facts = image.inspect(path)
                if facts.format == "bzImage":
                    return path, facts.release
    return None


def _judge_kernel(qemu: Qemu, kernel: Path, release: str, scratch: Path) -> KvmProbe:
    argv = [
        *(*_bare(qemu, "kvm"), "-m", "1024", "-kernel", str(kernel)),
        *("-append", "console=ttyS0 earlyprintk=serial panic=-1", "-serial", "stdio"),
    ]
    done = re.compile(_KERNEL_SPOKE.pattern + rb"|" + _GAVE_UP.pattern)
    ended, log = _watch(qemu, argv, scratch / "kernel.log", _KERNEL_S, done)
    spoke = _KERNEL_SPOKE.search(log)
    if spoke:
        return KvmProbe(
            reach=Reach.KERNEL,
            detail=f"stock kernel {spoke[1].decode(errors='replace')} starts",
            kernel_tried=True,
        )
    return KvmProbe(
        reach=Reach.BOOT_SECTOR,
        detail=f"boot sector runs, stock kernel {release} does not: {_why(ended, log)}",
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


def _bare(qemu: Qemu, accelerator: str) -> tuple[str, ...]:
    """QEMU with no devices but those named after it, on the CPU that a timed guest would get."""
    cpu = "host" if accelerator == "kvm" else "max"
    return (
        *(
            str(qemu.program),
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
    qemu: Qemu, argv: list[str], log: Path, seconds: float, enough: re.Pattern[bytes]
) -> tuple[int | None, bytes]:
    """Run argv until it ends, prints enough, or its time is up: exit status or None, output.

    QEMU stays paused after a KVM internal error, so waiting for its end is not enough.
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
