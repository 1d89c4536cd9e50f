# SPDX-License-Identifier: GPL-2.0-or-later
"""A study over real reboots of a machine that ssh reaches, with kdelta killed in each stage of it.

    PYTHONPATH=tests .venv/bin/python bench/hosts.py [--loader grub] [--rounds N] [--folder DIR]

As root; bench/host_disk.py says what it needs.  The machine is QEMU's, and reboots as any other
does: its boot loader is told what to boot once.  kdelta installs a second kernel there, of Debian's
archive, times it beside the machine's own and one that panics, and takes it off again.  In each
stage that there is (kdelta.host.ssh_host), and once when a kernel has just panicked, it is killed
(SIGKILL) and then goes on.  At the end every stage must have been met, every trial must be there
once, each of another boot, and the machine must be what it was.  The times are the emulator's, and
kdelta says so of each.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from pathlib import Path

import fake_host
from host_disk import OLD, PANIC, machine, made, on_it, settled_by_grub, with_systemd_boot
from kdelta.host.ssh_host import Stage
from kdelta.journal.run import RUNS, RunJournal
from killing import OF_INSTALL, OF_RELEASE, Killer, boots

NEW, NEW_PACKAGE = "6.12.117+deb12-cloud-amd64", "deb:6.12.117-1~deb12u1"
# Seconds into a stage at which kdelta is killed, where it is still in it then; else at its begin.
_INTO: dict[str, float] = {
    Stage.INSTALLING: 30.0,
    Stage.BOOTING: 15.0,
    Stage.SETTLING: 1.0,
    Stage.RUNNING: 0.5,
}
# kdelta ends with a sentence, after which it goes on: an emulated machine may be too busy for ssh.
_MOST, _PAUSE_S = 12, 10.0
_LEAST_BOOTS = 10
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
dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' 'linux-image-*' | grep -v '^.n'
sudo grub-editenv - list | grep -v '^next_entry=$'
sudo ls /boot/efi/loader/entries 2> /dev/null
sudo sh -c 'readlink /proc/[0-9]*/exe' | grep -e kdelta-host -e /dpkg$
true
"""


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
    run = RUNS.find(killer.folder / "runs", "latest")
    record = RunJournal.open(run).record()
    results = [(record.arms[t.arm].kernel.reference, t.result) for t in record.trials if t.result]
    outcomes = Counter((kernel, str(result.outcome)) for kernel, result in results)
    for (kernel, outcome), count in sorted(outcomes.items()):
        print(f"{kernel}: {outcome} {count}")
    timed = boots(run)
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
    shutil.rmtree(folder / "runs", ignore_errors=True)
    killer = Killer(folder, folder / "console", into=_INTO, most=_MOST, pause_s=_PAUSE_S)
    with machine(folder, given.loader):
        if given.loader == "grub":
            settled_by_grub(folder)
        before = on_it(folder, _OWN)
        ups = int(on_it(folder, "wc -l < /var/log/boots"))
        panics = killer.panics()
        install = ["host", "install", "box", NEW_PACKAGE, "--flavour", "cloud"]
        release = ["host", "release", "box"]
        killer.completed(install, OF_INSTALL, release)
        cut = killer.executed()
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
