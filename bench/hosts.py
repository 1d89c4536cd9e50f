# SPDX-License-Identifier: GPL-2.0-or-later
"""A study over real reboots of a machine that ssh reaches: an emulated one, with Debian on it.

    PYTHONPATH=tests .venv/bin/python bench/hosts.py [--loader grub] [--rounds N] [--kills N]

As root; bench/host_disk.py says what it needs.  The machine is QEMU's, and reboots as any other
does: its boot loader is told what to boot once.  kdelta installs a second kernel there, of Debian's
archive, times it beside the machine's own and one that panics, and is killed (SIGKILL) at random
moments and resumed until it ends; then it takes the kernel off again, and the machine is asked what
it went through.  The times are the emulator's, and kdelta says so of each.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import fake_host
from host_disk import OLD, PANIC, machine, made, on_it, settled_by_grub, with_systemd_boot
from kdelta.journal.run import RUNS, RunJournal

_MOST_WRONG = 2  # ends by itself with a sentence, after which it is resumed
_START = "from kdelta.cli.main import main; main()"
NEW, NEW_PACKAGE = "6.12.117+deb12-cloud-amd64", "deb:6.12.117-1~deb12u1"
_RESET = """
import socket
monitor = socket.socket(socket.AF_UNIX)
monitor.connect({monitor!r})
monitor.sendall(b"system_reset\\n")
monitor.recv(4096)
"""


def executed(folder: Path, kills: int) -> int:
    """Run the study to its end, killed so many times on the way; how often it was started."""
    runs = folder / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    words = ["run", "study.toml", "--on", "lab.toml", "--runs", str(runs)]
    started = wrong = 0
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
        if child.poll() is not None and (wrong := wrong + 1) > _MOST_WRONG:
            sys.exit(f"kdelta ends with {child.returncode} each time")
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


def kdelta(folder: Path, *words: str) -> None:
    """A command that has to succeed."""
    subprocess.run([sys.executable, "-c", _START, *words], cwd=folder, check=True)


def written(folder: Path, rounds: int) -> None:
    """The study, and the file of pools."""
    study = fake_host.STUDY.format(
        scenario="control:getppid",
        old=OLD,
        new=NEW,
        broken=PANIC,
        rounds=rounds,
        iterations=4,
        warmup=1,
    )
    (folder / "study.toml").write_text(study)
    (folder / "reset.py").write_text(_RESET.format(monitor=str(folder / "monitor")))
    (folder / "lab.toml").write_text(
        f'[pool.box]\nkind = "host"\naddress = "ssh://box"\nboot_s = 900\n'
        f'ssh_config = "{folder}/ssh_config"\nreset = ["{sys.executable}", "{folder}/reset.py"]\n'
    )


def told(folder: Path, started: int) -> None:
    """Print what came of it."""
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
    console = (folder / "console").read_text(errors="replace")
    panics = len(re.findall("Kernel panic - not syncing", console))
    print(f"kernel panics on the console: {panics}")


def main() -> None:
    """Install, run, release; print what came of it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--loader", choices=("grub", "systemd-boot"), default="grub")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--kills", type=int, default=5)
    asked.add_argument("--folder", type=Path, default=Path("bench-hosts"))
    given = asked.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    made(folder)
    if given.loader == "systemd-boot":
        with_systemd_boot(folder)
    written(folder, given.rounds)
    with machine(folder, given.loader):
        if given.loader == "grub":
            print(settled_by_grub(folder), flush=True)
        with contextlib.suppress(subprocess.CalledProcessError):  # it is emulated, and it says so
            kdelta(folder, "host", "doctor", "box")
        kdelta(folder, "host", "install", "box", NEW_PACKAGE, "--flavour", "cloud")
        started = executed(folder, given.kills)
        kdelta(folder, "host", "release", "box")
        told(folder, started)
        left = on_it(
            folder,
            "uname -r; ls -d /var/tmp/kdelta* 2>&1; ls /boot/vmlinuz-*; wc -l < /var/log/boots",
        )
    print("the machine afterwards:", " | ".join(left.split("\n")).strip(" |"))


if __name__ == "__main__":
    main()
