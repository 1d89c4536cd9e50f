# SPDX-License-Identifier: GPL-2.0-or-later
"""A study over real reboots of a machine that ssh reaches, with kdelta killed in each stage of it.

    PYTHONPATH=tests .venv/bin/python bench/hosts.py [--loader grub] [--rounds N] [--folder DIR]

As root; bench/host_disk.py says what it needs.  The machine is QEMU's, and reboots as any other
does: its boot loader is told what to boot once.  kdelta installs a second kernel there, of Debian's
archive, times it beside the machine's own and one that panics, and takes it off again.  In each
stage that there is (kdelta.host.stages), and once when a kernel has just panicked, it is killed
(SIGKILL) and then goes on.  At the end every stage must have been met, every trial must be there
once, each of another boot, and the machine must be what it was.  The times are the emulator's, and
kdelta says so of each.
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import fake_host
from host_disk import OLD, PANIC, machine, made, on_it, settled_by_grub, with_systemd_boot
from kdelta.host.stages import Stage
from kdelta.journal import begun
from kdelta.journal.run import RUNS, RunJournal

PANICKED = "has just panicked"  # what the machine's console says; kdelta waits until it is up
OF_INSTALL: set[str] = {Stage.OFFERING, Stage.INSTALLING}
OF_RELEASE: set[str] = {Stage.REMOVING}
OF_STUDY = {*Stage, PANICKED} - OF_INSTALL - OF_RELEASE
NEW, NEW_PACKAGE = "6.12.117+deb12-cloud-amd64", "deb:6.12.117-1~deb12u1"
# Seconds into a stage at which kdelta is killed, where it is still in it then; else at its begin.
_INTO = {Stage.INSTALLING: 30.0, Stage.BOOTING: 15.0, Stage.SETTLING: 1.0, Stage.RUNNING: 0.5}
# Ends with a sentence, after which it goes on: an emulated machine may be too busy to answer ssh.
_MOST_WRONG, _PAUSE_S = 12, 10
_LEAST_BOOTS = 10
_START = "from kdelta.cli.main import main; main()"
_RESET = """
import socket
monitor = socket.socket(socket.AF_UNIX)
monitor.connect({monitor!r})
monitor.sendall(b"system_reset\\n")
monitor.recv(4096)
"""
# What of the machine is its owner's.
_OWN = """
uname -r; ls -d /var/tmp/kdelta* 2> /dev/null; ls /boot /lib/modules
dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 'linux-image-*' | grep -v '^.n'
sudo grub-editenv - list | grep -v '^next_entry=$'
sudo ls /boot/efi/loader/entries 2> /dev/null
sudo sh -c 'readlink /proc/[0-9]*/exe' | grep -e kdelta-host -e /dpkg$
true
"""


@dataclass
class Killer:
    """Starts kdelta, and kills it in stages in which it was not killed before."""

    folder: Path
    left: set[str] = field(default_factory=lambda: {*Stage, PANICKED})
    started: int = 0
    missed: Counter[str] = field(default_factory=Counter)

    def run(self, words: list[str], where: set[str]) -> int | str:
        """The exit status of a command, or the one of these stages in which it was killed."""
        self.started += 1
        child = subprocess.Popen(
            [sys.executable, "-c", _START, "-v", *words],
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        lines: queue.Queue[str | None] = queue.Queue()
        reading = threading.Thread(target=self._read, args=(child.stderr, lines))
        reading.start()
        try:
            killed = self._watched(lines, self.left & where)
        finally:
            if child.poll() is None:
                child.kill()
            status = child.wait()
            reading.join()
        if killed is None:
            return status
        self.left.discard(killed)
        print(f"{time.strftime('%T')} killed when it {killed}", flush=True)
        return killed

    def _read(self, said: Iterable[str], lines: queue.Queue[str | None]) -> None:
        """Pass the stages on; all of it is kept."""
        known = {f"box: {stage}": stage for stage in Stage}
        with (self.folder / "log").open("a") as log:
            for line in said:
                log.write(f"{time.strftime('%T')} {line}")
                if stage := known.get(line.strip()):
                    lines.put(stage)
            lines.put(None)

    def _watched(self, lines: queue.Queue[str | None], wanted: set[str]) -> str | None:
        """The stage in which kdelta is now, that was waited for; None: it has ended."""
        stage = lines.get()
        while stage is not None:
            until = time.monotonic() + _INTO.get(Stage(stage), 0.0) / 4 ** self.missed[stage]
            panics = self.panics()
            following: str | None = ""
            while following == "":
                with contextlib.suppress(queue.Empty):
                    following = lines.get(timeout=0.05 if stage in wanted else 0.2)
                    break
                if stage in wanted and time.monotonic() >= until:
                    return stage
                if PANICKED in wanted and stage == Stage.BOOTING and self.panics() > panics:
                    return PANICKED
            if stage in wanted:
                self.missed[stage] += 1
            stage = following
        return None

    def panics(self) -> int:
        """Panics that the machine's console has."""
        console = self.folder / "console"
        return len(re.findall(b"Kernel panic - not syncing", console.read_bytes()))

    def completed(self, words: list[str], where: set[str], mend: list[str]) -> None:
        """A command that is killed in each of these stages; mend: given before it is again."""
        wrong = 0
        while (status := self.run(words, where)) != 0:
            if status not in where:
                wrong = _paused(wrong, status)
            if mend:
                self.completed(mend, set(), [])


def executed(killer: Killer) -> frozenset[str]:
    """Run the study to its end; the boots in which a program was cut short."""
    runs = killer.folder / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    words = ["run", "study.toml"]
    wrong, cut = 0, set[str]()
    kept: dict[str, bytes] = {}
    while True:
        status = killer.run([*words, "--on", "lab.toml", "--runs", str(runs)], OF_STUDY)
        if status in (0, 1):
            return frozenset(cut)
        if status not in OF_STUDY:
            wrong = _paused(wrong, status)
        now = {str(path): path.read_bytes() for path in runs.glob("*/trials/*/result.json")}
        if not kept.items() <= now.items():
            sys.exit("a result is gone, or another one")
        kept = now
        print(f"         with {len(kept)} results", flush=True)
        if any(runs.glob("*/run.json")):
            words = ["resume", "latest"]
        if status == Stage.RUNNING:
            run = RUNS.find(runs, "latest")
            cut |= begun.boots(run) - _timed(run)


def _paused(wrong: int, status: int | str) -> int:
    """How often kdelta has ended with a sentence, after a pause."""
    if wrong == _MOST_WRONG:
        sys.exit(f"kdelta ends with {status} each time")
    time.sleep(_PAUSE_S)
    return wrong + 1


def _timed(run: Path) -> set[str]:
    """The boots of results."""
    results = [trial.result for trial in RunJournal.open(run).record().trials if trial.result]
    return {one.facts.boot_id for one in results if one.facts and one.facts.boot_id}


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


def told(killer: Killer, cut: frozenset[str]) -> list[str]:
    """Print what came of the study; what is wrong with it."""
    record = RunJournal.open(RUNS.find(killer.folder / "runs", "latest")).record()
    results = [(record.arms[t.arm].kernel.reference, t.result) for t in record.trials if t.result]
    outcomes = Counter((kernel, str(result.outcome)) for kernel, result in results)
    for (kernel, outcome), count in sorted(outcomes.items()):
        print(f"{kernel}: {outcome} {count}")
    boots = [one.facts.host.boot_id for _, one in results if one.facts and one.facts.host]
    timed = [boot for boot in boots if boot]
    print(f"{len(results)} of {len(record.trials)} trials; {len(timed)} of {len(set(timed))} boots")
    print(f"kdelta was started {killer.started} times; cut short: {len(cut)} programs")
    wanted = {f"host:{PANIC}": "boot-error", f"host:{OLD}": "invalid", f"host:{NEW}": "invalid"}
    return [
        *(f"a trial of {at} is {how}" for at, how in outcomes if wanted[at] != how),
        *(["trials are missing"] if len(results) != len(record.trials) else []),
        *(["two trials have one boot"] if len(timed) != len(set(timed)) else []),
        *(["a boot in which a program was cut short has a trial"] if cut & set(timed) else []),
        *([] if cut else ["no program was cut short"]),
    ]


def main() -> None:
    """Install, run, release; print what came of it.  Exits with 1 when something is wrong."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--loader", choices=("grub", "systemd-boot"), default="grub")
    asked.add_argument("--rounds", type=int, default=4)
    asked.add_argument("--folder", type=Path, default=Path("bench-hosts"))
    given = asked.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    made(folder)
    if given.loader == "systemd-boot":
        with_systemd_boot(folder)
    written(folder, given.rounds)
    killer = Killer(folder)
    with machine(folder, given.loader):
        if given.loader == "grub":
            settled_by_grub(folder)
        before = on_it(folder, _OWN)
        ups = int(on_it(folder, "wc -l < /var/log/boots"))
        panics = killer.panics()
        install = ["host", "install", "box", NEW_PACKAGE, "--flavour", "cloud"]
        release = ["host", "release", "box"]
        killer.completed(install, OF_INSTALL, release)
        cut = executed(killer)
        killer.completed(release, OF_RELEASE, [])
        wrong = told(killer, cut)
        ups = int(on_it(folder, "wc -l < /var/log/boots")) - ups
        panics = killer.panics() - panics
        print(f"boots that came up: {ups}; kernel panics on the console: {panics}")
        after = on_it(folder, _OWN)
    print(f"the machine afterwards:\n{after}")
    wrong += [f"kdelta was never killed when it {stage}" for stage in sorted(killer.left)]
    wrong += ["the machine is not what it was:\n" + before] if after != before else []
    wrong += [f"{ups + panics} boots"] if ups + panics < _LEAST_BOOTS else []
    sys.exit("\n".join(f"WRONG: {each}" for each in wrong) if wrong else 0)


if __name__ == "__main__":
    main()
