# SPDX-License-Identifier: GPL-2.0-or-later
"""A study over real reboots of a machine that ssh reaches: an emulated one, with Debian on it.

.venv/bin/python bench/hosts.py [--rounds N] [--kills N] [--folder DIR]

As root, with mmdebstrap, openssh-client and e2fsprogs (apt-get install).  A disk with Debian 12,
sshd, kexec and two kernels is made once into the folder, from the mirror that apt has; a third
kernel is one of them without its initial RAM disk, so it panics.  The machine is QEMU's, and
reboots as any other does: kexec, or its firmware, which boots the first kernel.  kdelta is then run
against it, killed (SIGKILL) at random moments, resumed until it ends, and the machine asked what
it went through.  The times are the emulator's, and kdelta says so of each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kdelta.guests import qemu
from kdelta.journal.run import RUNS, RunJournal
from kdelta.machine.axes import MachineSettings

_START = "from kdelta.cli.main import main; main()"
OLD, NEW, PANIC = "6.1.0-50-cloud-amd64", "6.12.117+deb12-cloud-amd64", "6.99.0-panic"
PORT = 22022
PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "openssh-server", "sudo", "kexec-tools", "kmod", "zstd"),
    *("initramfs-tools", "iproute2", f"linux-image-{OLD}", f"linux-image-{NEW}"),
)
SET_UP = f"""
set -e; WHO=user
echo box > "$1/etc/hostname"; echo "127.0.0.1 localhost box" > "$1/etc/hosts"
chroot "$1" useradd -m -s /bin/bash user
echo "user ALL=(ALL) NOPASSWD:ALL" > "$1/etc/sudoers.d/user"
mkdir -m 700 "$1/home/$WHO/.ssh"; cp "$KEY.pub" "$1/home/$WHO/.ssh/authorized_keys"
chroot "$1" chown -R "$WHO:$WHO" "/home/$WHO"
printf '[Match]\\nName=en* eth*\\n[Network]\\nDHCP=yes\\n' > "$1/etc/systemd/network/all.network"
chroot "$1" systemctl enable systemd-networkd ssh
chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer
echo LOAD_KEXEC=false > "$1/etc/default/kexec"
echo "/dev/vda / ext4 defaults 0 1" > "$1/etc/fstab"
cp "$1/boot/vmlinuz-{NEW}" "$1/boot/vmlinuz-{PANIC}"
"""
STUDY = """
name = "hosts"
title = "two kernels and one that panics"
instrument = "time"
scenarios = ["control:getppid"]
kernels = ["host:{old}", "host:{new}", "host:{panic}"]
[plan]
rounds = {rounds}
[time]
machine = "host"
replicate = "boot"
sandwich = false
iterations = 4
warmup = 1
"""
SSH = """
Host box
  HostName 127.0.0.1
  Port {port}
  User user
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
"""


def disk(folder: Path) -> None:
    """Make the machine's disk, its first kernel, and a key for it."""
    if (folder / "made").exists():
        return
    for name in ("key", "key.pub"):
        (folder / name).unlink(missing_ok=True)
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    (folder / "setup").write_text(SET_UP)
    shutil.rmtree(folder / "root", ignore_errors=True)
    call(
        *("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
        *(f'--customize-hook=sh {folder}/setup "$1"', "bookworm", "root", *sources()),
        cwd=folder,
        KEY=str(folder / "key"),
    )
    with (folder / "disk").open("wb") as empty:
        empty.truncate(3 << 30)
    call("mke2fs", "-q", "-F", "-t", "ext4", "-d", "root", "disk", cwd=folder)
    for kind in ("vmlinuz", "initrd.img"):
        shutil.copy(folder / "root/boot" / f"{kind}-{OLD}", folder / kind)
    (folder / "made").touch()


def sources() -> list[str]:
    """apt's own lists of Debian 12."""
    every = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources")]
    return [str(path) for path in every if path.exists() and "bookworm main" in _flat(path)]


def _flat(path: Path) -> str:
    """A list's suites before its components, whatever its form."""
    text = path.read_text()
    suites = re.search(r"^Suites: (\S+)", text, re.M)
    parts = re.search(r"^Components: (\S+)", text, re.M)
    return f"{suites[1]} {parts[1]}" if suites and parts else text


def call(*words: str, cwd: Path | None = None, **environment: str) -> str:
    """A program's output."""
    return subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


@contextlib.contextmanager
def machine(folder: Path) -> Iterator[None]:
    """The machine, on; its ssh on a port of this one, and no way out of it."""
    emulator = qemu.for_counting(MachineSettings().target)
    command = [
        str(emulator.program),
        *emulator.arguments,
        *("-nodefaults", "-display", "none", "-accel", "tcg", "-M", "q35", "-cpu", "max"),
        *("-smp", "2", "-m", "1024", "-kernel", str(folder / "vmlinuz")),
        *("-initrd", str(folder / "initrd.img")),
        *("-append", "root=/dev/vda rw console=ttyS0 quiet panic=5"),
        *("-drive", f"file={folder / 'disk'},if=virtio,format=raw"),
        *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{PORT}-:22"),
        *("-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"),
        *("-serial", f"file:{folder / 'console'}"),
    ]
    started = subprocess.Popen(command, env={**os.environ, **emulator.environment})
    try:
        known = ""
        while not known:
            if started.poll() is not None:
                sys.exit("the machine did not start")
            time.sleep(2)
            scan = ["ssh-keyscan", "-T", "5", "-p", str(PORT), "127.0.0.1"]
            known = subprocess.run(scan, capture_output=True, text=True, check=False).stdout
        (folder / "known").write_text(known)
        (folder / "ssh_config").write_text(SSH.format(port=PORT, folder=folder))
        yield
    finally:
        started.kill()
        started.wait()


def on_it(folder: Path, script: str) -> str:
    """What the machine says."""
    return call("ssh", "-F", str(folder / "ssh_config"), "box", script)


def executed(folder: Path, kills: int) -> int:
    """Run the study to its end, killed so many times on the way; how often it was started."""
    runs = folder / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    words = ["run", "study.toml", "--on", "lab.toml", "--runs", str(runs)]
    started = 0
    kept: dict[str, bytes] = {}
    while True:
        started += 1
        child = subprocess.Popen([sys.executable, "-c", _START, *words], cwd=folder)
        if kills > 0:
            kills -= 1
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(random.uniform(5, 150))  # noqa: S311
        else:
            child.wait()
        if child.poll() is not None and child.returncode in (0, 1):
            break
        child.send_signal(signal.SIGKILL)
        child.wait()
        now = {str(path): path.read_bytes() for path in runs.glob("*/trials/*/result.json")}
        if not kept.items() <= now.items():
            sys.exit("a result is gone, or another one")
        kept = now
        if any(runs.glob("*/run.json")):
            words = ["resume", "latest", "--on", "lab.toml", "--runs", str(runs)]
        print(f"killed with {len(kept)} results", flush=True)
    return started


def main() -> None:
    """Print what came of it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--kills", type=int, default=5)
    asked.add_argument("--folder", type=Path, default=Path("bench-hosts"))
    given = asked.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    disk(folder)
    study = STUDY.format(old=OLD, new=NEW, panic=PANIC, rounds=given.rounds)
    (folder / "study.toml").write_text(study)
    pool = f'kind = "host"\naddress = "ssh://box"\nssh_config = "{folder}/ssh_config"\n'
    (folder / "lab.toml").write_text(f"[pool.box]\n{pool}boot_s = 900\n")
    with machine(folder):
        started = executed(folder, given.kills)
        left = on_it(
            folder, "uname -r; ls -d /var/tmp/kdelta-host 2>&1; journalctl --list-boots -q | wc -l"
        )
    record = RunJournal.open(RUNS.find(folder / "runs", "latest")).record()
    results = [trial.result for trial in record.trials if trial.result]
    outcomes = Counter(
        (record.arms[trial.arm].label, str(trial.result.outcome))
        for trial in record.trials
        if trial.result
    )
    timed = [each.facts.boot_id for each in results if each.facts and each.facts.boot_id]
    for (kernel, outcome), count in sorted(outcomes.items()):
        print(f"{kernel}: {outcome} {count}")
    print(f"{len(results)} of {len(record.trials)} trials; {len(timed)} of {len(set(timed))} boots")
    print(f"kdelta was started {started} times")
    panics = len(
        re.findall("Kernel panic - not syncing", (folder / "console").read_text(errors="replace"))
    )
    print(f"kernel panics on the console: {panics}")
    print("the machine afterwards:", " | ".join(left.split("\n")).strip(" |"))


if __name__ == "__main__":
    main()
