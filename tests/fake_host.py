# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine that `ssh` reaches, played by files in a folder: its scripts really run, on this one.

Stands at the border to OpenSSH: a program `ssh` on PATH that runs what it is given by sh(1), with
the paths of the machine's own files turned into those below the folder.  A reboot is a line in
`boots` that says which kernel comes up.
"""

from __future__ import annotations

import sys
import textwrap
import uuid
from pathlib import Path

import pytest

from kernel_tree import written

DEFAULT = "6.1.0-1-test"
OTHER = "6.12.3-test"
BROKEN = "6.13.0-test"

STUDY = """
name = "hosted"
title = "a machine by ssh, and a kernel that panics"
instrument = "time"
scenarios = ["{scenario}"]
kernels = ["host:{old}", "host:{new}", "host:{broken}"]
[plan]
rounds = {rounds}
[time]
machine = "host"
replicate = "boot"
sandwich = false
iterations = {iterations}
warmup = {warmup}
"""

_SSH = """\
#!/bin/sh
machine='{machine}'
while [ "$1" != -- ]; do [ "$1" = -O ] && exit 0; shift; done
[ -e "$machine/down" ] && cat "$machine/down" >&2 && exit 255
script=$(printf %s "$3" | sed \\
    -e "s#cd / ||#cd $machine/files ||#" \\
    -e "s#/var/tmp/kdelta-host#$machine/home#g" \\
    -e "s#/var/tmp/kdelta-kernels#$machine/kernels#g" \\
    -e "s#/boot/#$machine/files/boot/#g" \\
    -e "s#/lib/modules/#$machine/files/lib/modules/#g" \\
    -e "s#/etc/kernel/#$machine/files/etc/kernel/#g" \\
    -e "s#/sys/kernel/kexec_loaded#$machine/kexec_loaded#g" \\
    -e "s#/sys/firmware/#$machine/files/sys/firmware/#g" \\
    -e "s#/proc/sys/#$machine/files/proc/sys/#g")
printf '%s\n' "$(printf %s "$script" | tr '\n' ' ')" >> "$machine/asked"
PATH=$machine/bin:$PATH exec sh -c "$script"
"""

_KEXEC = """\
#!{python}
import os, sys
if "-u" in sys.argv:
    os.remove({machine!r} + "/loaded")
    os.remove({machine!r} + "/kexec_loaded")
    sys.exit(0)
image = next(word for word in sys.argv if "vmlinuz-" in word)
open({machine!r} + "/loaded", "w").write(image.rpartition("vmlinuz-")[2])
open({machine!r} + "/kexec_loaded", "w").write("1\\n")
"""

_BOOT = """\
#!{python}
import os, subprocess, sys, uuid
machine = {machine!r}
loaded = os.path.join(machine, "loaded")
wanted = {default!r}
if "--failed" not in sys.argv and os.path.exists(loaded):
    if "kexec" in sys.argv:
        wanted = open(loaded).read()
    os.remove(loaded)
    os.remove(os.path.join(machine, "kexec_loaded"))
once = os.path.join(machine, "once")
if "kexec" not in sys.argv and "--failed" not in sys.argv and os.path.exists(once):
    wanted = open(once).read().strip().removesuffix(".conf").rpartition("gnulinux-")[2]
    os.remove(once)
if "--failed" in sys.argv:
    sys.exit(0)
panics = wanted == {broken!r}
if panics:
    wanted = {default!r}
if os.path.exists(os.path.join(machine, "long")):
    down, console = os.path.join(machine, "down"), os.path.join(machine, "console")
    open(down, "w").write("ssh: no route to host\\n")
    says = f"echo Kernel panic - not syncing >> {{console}}" if panics else ":"
    line = f"sleep 0.5; {{says}}; sleep 0.5; rm -f {{down}}"
    nothing = subprocess.DEVNULL
    subprocess.Popen(["sh", "-c", line], stdout=nothing, stderr=nothing, start_new_session=True)
kernel = os.path.join(machine, "files/proc/sys/kernel")
open(os.path.join(kernel, "osrelease"), "w").write(wanted + "\\n")
open(os.path.join(kernel, "random/boot_id"), "w").write(str(uuid.uuid4()) + "\\n")
open(os.path.join(machine, "boots"), "a").write(wanted + "\\n")
"""


class FakeHost:
    """The machine.  folder/bin has its programs; put `folder/ssh` first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        words = {
            "python": sys.executable, "machine": str(folder), "default": DEFAULT, "broken": BROKEN,
        }  # fmt: skip
        self.program("ssh/ssh", _SSH.format(**words))
        self.program("bin/kexec", _KEXEC.format(**words))
        for name in ("reboot", "systemctl"):
            self.program(f"bin/{name}", _BOOT.format(**words))
        self.program("bin/sudo", '#!/bin/sh\nshift\nexec "$@"\n')
        self.program("bin/systemd-detect-virt", "#!/bin/sh\necho none\nexit 1\n")
        for release in (DEFAULT, OTHER, BROKEN):
            self.file(f"files/boot/vmlinuz-{release}", "kernel")
        self.file("files/proc/cmdline", "root=/dev/vda quiet")
        self.file("files/proc/stat", Path("/proc/stat").read_text())
        self.file("files/proc/cpuinfo", "model name\t: A Real CPU\nflags\t\t: fpu\n")
        self.file("files/sys/devices/system/cpu/online", "0-1")
        self.file("files/proc/sys/kernel/osrelease", f"{DEFAULT}\n")
        self.file("files/proc/sys/kernel/random/boot_id", f"{uuid.uuid4()}\n")
        (folder / "files/sys/devices/system/cpu/cpu0").mkdir(parents=True)

    def program(self, name: str, text: str) -> None:
        """Write a program."""
        self.file(name, textwrap.dedent(text))
        (self.folder / name).chmod(0o755)

    def file(self, name: str, text: str) -> None:
        """Write a file of the machine."""
        written(self.folder, {name: text})

    def takes_long(self) -> None:
        """A boot from then on takes a second, and a panic is on the console in the middle of it."""
        self.file("long", "")

    @property
    def console(self) -> Path:
        """What the machine prints."""
        return self.folder / "console"

    def goes_down(self) -> None:
        """A boot from then on leaves it down."""
        gone = f"echo gone > {self.folder}/down"
        self.program("bin/systemctl", f'#!/bin/sh\n[ "$1" = --failed ] || {gone}\n')

    @property
    def boots(self) -> list[str]:
        """The kernels that came up since it was made."""
        path = self.folder / "boots"
        return path.read_text().split() if path.exists() else []

    @property
    def home(self) -> Path:
        """What a run has there."""
        return self.folder / "home"


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """A machine whose ssh is the one that is found, and which is asked often."""
    made = FakeHost(folder / "machine")
    monkeypatch.setenv("PATH", f"{made.folder}/ssh:/usr/bin:/bin")
    monkeypatch.setattr("kdelta.host.ssh_host._POLL_S", 0.01)
    return made
