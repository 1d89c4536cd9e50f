# SPDX-License-Identifier: GPL-2.0-or-later
"""virtme-ng running the workload's program on the same image, as its users would under TCG.

virtme-ng comes from PyPI into an environment of its own.  It boots this machine's root over 9p,
which Debian's generic kernels have as a module, so the modules of the image's package are unpacked
beside the image, where it finds them.  What it needs of a host (depmod, a static busybox) is taken
out of Debian's packages when this machine lacks it: nothing is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
import venv
from dataclasses import dataclass
from pathlib import Path

from commands import BenchError
from kdelta.archive import deb
from kdelta.archive.apt import Archive
from kdelta.errors import KdeltaError
from kdelta.guests.qemu import Qemu
from kdelta.kernels.kernel import Kernel

_TIMEOUT_S = 300.0
# What virtme-ng needs on the host: program -> Debian package, file in it.
_TOOLS = {
    "depmod": ("kmod", "kmod"),
    "modprobe": ("kmod", "kmod"),
    "busybox": ("busybox-static", "busybox"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Virtme:
    """A virtme-ng that is ready to run, and the image in its unpacked package."""

    version: str
    program: Path
    path: str  # its PATH
    image: Path


def prepared(scratch: Path, kernel: Kernel, emulator: Qemu) -> Virtme:
    """virtme-ng, for which PATH has that QEMU, and the unpacked kernel package below scratch.

    Raises BenchError: why not.
    """
    try:
        image = _unpacked(scratch / "kernel", kernel)
        tools = _tools(scratch / "tools", kernel.arch)
        _started_by_name(emulator, tools)
    except KdeltaError as error:
        raise BenchError(error.sentence()) from error
    program = _installed(scratch / "venv")
    asking = "import importlib.metadata as m; print(m.version('virtme-ng'))"
    banner = _output([str(program.parent / "python"), "-c", asking])
    path = os.pathsep.join([str(tools), str(program.parent), os.environ.get("PATH", os.defpath)])
    ready = Virtme(version=banner.strip(), program=program, path=path, image=image)
    depmod = shutil.which("depmod", path=f"{path}:/sbin:/usr/sbin") or "depmod"
    _output([depmod, "-a", "-b", str(image.parents[1]), kernel.release])
    return ready


def command(ready: Virtme, program: Path, arguments: list[str], memory_mib: int) -> list[str]:
    """The whole command.  Under TCG virtme-ng itself chooses `-machine q35 -cpu max`."""
    return [
        str(ready.program),
        *("--kimg", str(ready.image), "--mods", "auto"),
        *("--disable-kvm", "--force-9p", "--show-boot-console"),
        *("--memory", str(memory_mib), "--cpus", "1"),
        *("--script-sh", " ".join([str(program), *arguments])),
    ]


def wall_s(ready: Virtme, argv: list[str]) -> float:
    """Seconds of the whole command.  Raises BenchError when the program did not end well.

    Its exit status is not looked at: virtme-ng learns it over a port whose driver is a module
    that only a machine with udev loads, and says 255 otherwise.  The program's last line tells.
    """
    begun = time.monotonic()
    printed = _output(argv, ready.path, check=False)
    taken = time.monotonic() - begun
    if "end 0" not in [line.strip() for line in printed.splitlines()]:
        raise BenchError("the program did not end well in virtme-ng's guest: " + printed[-500:])
    return taken


def _unpacked(folder: Path, kernel: Kernel) -> Path:
    """Unpack the image's whole package; the image in it."""
    archive = Archive(kernel.arch)
    archive.refresh()
    named = archive.packages("bench", re.escape(kernel.package))
    found = [package for package in named if package.version == kernel.version]
    if not found:
        raise BenchError(f"the archive no longer has {kernel.package} {kernel.version}")
    with archive.fetched(found[0]) as package:
        deb.unpack(package, folder)
    if not (folder / "lib").exists():
        (folder / "lib").symlink_to("usr/lib")
    image = folder / "boot" / f"vmlinuz-{kernel.release}"
    if not image.exists():
        raise BenchError(f"the package of {kernel.release} has no /boot/{image.name}")
    return image


def _tools(folder: Path, architecture: str) -> Path:
    """A folder for PATH that has those of _TOOLS that this machine lacks."""
    folder.mkdir(parents=True)
    places = f"{os.environ.get('PATH', os.defpath)}:/sbin:/usr/sbin"
    for tool, (package, file) in _TOOLS.items():
        if not shutil.which(tool, path=places):
            (folder / tool).symlink_to(_taken(folder, architecture, package, file))
    return folder


def _started_by_name(emulator: Qemu, folder: Path) -> None:
    """Have a fetched QEMU start by its name alone, with the libraries and files that it needs."""
    needs = [f"{name}={value}" for name, value in emulator.environment.items()]
    words = shlex.join(["env", *needs, str(emulator.program), *emulator.arguments])
    program = folder / emulator.program.name
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)


def _taken(folder: Path, architecture: str, name: str, file: str) -> Path:
    """One program out of the first version of its package that runs on this machine."""
    archive = Archive(architecture)
    for package in archive.packages(f"bench-{name}", re.escape(name)):
        place = folder / name / package.version
        if not place.exists():
            place.mkdir(parents=True)
            with archive.fetched(package) as found:
                deb.unpack(found, place)
        for program in place.glob(f"**/bin/{file}"):
            if not program.is_symlink() and _runs([str(program), "--help"]):
                return program
    raise BenchError(f"no {name} of the archive runs here; install it: apt-get install {name}")


def _installed(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check"]
    _output([*pip, "install", "virtme-ng"])
    return folder / "bin" / "virtme-run"


def _runs(argv: list[str]) -> bool:
    try:
        return bool(_output(argv))
    except BenchError:
        return False


def _output(argv: list[str], path: str = "", *, check: bool = True) -> str:
    environment = {**os.environ, "PATH": path} if path else None
    try:
        done = subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{argv[0]}: {error}") from error
    if check and done.returncode:
        raise BenchError(f"{Path(argv[0]).name} failed: {done.stdout.strip()[-300:]}")
    return done.stdout
