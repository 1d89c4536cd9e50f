# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta killed (SIGKILL) in each stage of what it does with a machine, by its own words."""

from __future__ import annotations

import contextlib
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kdelta.host.ssh_host import Stage
from kdelta.journal import results
from kdelta.journal.run import RUNS, RunJournal

PANICKED = "has just panicked"  # what the machine's console says; kdelta waits until it is up
OF_INSTALL: set[str] = {Stage.OFFERING, Stage.INSTALLING}
OF_RELEASE: set[str] = {Stage.REMOVING}
OF_STUDY = {*Stage, PANICKED} - OF_INSTALL - OF_RELEASE
# kdelta as it is, but that it stands at the begin of each stage until it is told to go on: what
# lasts a millisecond is met by no watcher else.
START = """
import sys
from kdelta.host.ssh_host import SshHost
tell = SshHost.at
def at(ssh_host, stage):
    tell(ssh_host, stage)
    sys.stdin.readline()
SshHost.at = at
from kdelta.cli.main import main
main()
"""
# Stages that may be over in no time, and that a study may have once: killed as they begin.
_BRIEF = {Stage.KEEPING, Stage.RETURNING, Stage.LETTING_GO}
_INTO_S = 0.05


class NotGoneOnError(Exception):
    """kdelta does not come to its end, or lost something."""


@dataclass
class Killer:
    """Starts kdelta, and kills it in stages in which it was not killed before.

    console: of the machine.  into: seconds into a stage at which it is killed, where it is still in
    it then; the next time it is killed as the stage begins, as in the brief ones.  most: how often
    it may end with a sentence and be given again.
    """

    folder: Path
    console: Path
    start: str = START
    say: Callable[[str], object] = print
    into: Mapping[str, float] = field(default_factory=dict)
    most: int = 0
    pause_s: float = 0.0
    left: set[str] = field(default_factory=lambda: {*Stage, PANICKED})
    started: int = 0
    _missed: set[str] = field(default_factory=set)

    def run(self, words: list[str], where: set[str]) -> int | str:
        """The exit status of a command, or the one of these stages in which it was killed."""
        self.started += 1
        child = subprocess.Popen(
            [sys.executable, "-c", self.start, "-v", *words], cwd=self.folder,
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        lines: queue.Queue[str | None] = queue.Queue()
        reading = threading.Thread(target=self._read, args=(child.stderr, lines))
        reading.start()
        try:
            killed = self._watched(lines, child.stdin, self.left & where)
        finally:
            if child.poll() is None:
                child.kill()
            status = child.wait()
            reading.join()
        if killed is None:
            return status
        self.left.discard(killed)
        self.say(f"{time.strftime('%T')} killed when it {killed}")
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

    def _watched(
        self, lines: queue.Queue[str | None], onward: IO[str] | None, wanted: set[str]
    ) -> str | None:
        """The stage in which kdelta is now, that was waited for; None: it has ended.

        onward: where it is told to go on from the begin of a stage.
        """
        assert onward
        panics = self.panics()
        while (stage := lines.get()) is not None:
            if PANICKED in wanted and self.panics() > panics:
                return PANICKED
            if stage in wanted and (stage in _BRIEF or stage in self._missed):
                return stage
            until = time.monotonic() + self.into.get(stage, _INTO_S)
            with contextlib.suppress(BrokenPipeError):
                print(file=onward, flush=True)
            while lines.empty():
                if stage in wanted and time.monotonic() >= until:
                    return stage
                if PANICKED in wanted and stage == Stage.BOOTING and self.panics() > panics:
                    return PANICKED
                time.sleep(_INTO_S / 5)
            self._missed |= {stage} & wanted
        return None

    def panics(self) -> int:
        """Panics that the machine's console has."""
        said = self.console.read_bytes() if self.console.exists() else b""
        return len(re.findall(b"Kernel panic - not syncing", said))

    def completed(self, words: list[str], where: set[str], mend: list[str]) -> None:
        """A command that is killed in each of these stages; mend: given before it is again."""
        wrong = 0
        while (status := self.run(words, where)) != 0:
            if status not in where:
                wrong = self._paused(wrong, words, status)
            if mend:
                self.completed(mend, set(), [])

    def executed(self) -> frozenset[str]:
        """Run study.toml on lab.toml to its end; the boots in which a program was cut short."""
        runs = self.folder / "runs"
        words = ["run", "study.toml"]
        wrong, cut = 0, set[str]()
        kept: dict[str, bytes] = {}
        while True:
            whole = [*words, "--on", "lab.toml", "--runs", str(runs)]
            status = self.run(whole, OF_STUDY)
            if status in (0, 1):
                return frozenset(cut)
            if status not in OF_STUDY:
                wrong = self._paused(wrong, whole, status)
            now = {str(path): path.read_bytes() for path in runs.glob("*/trials/*/result.json")}
            if not kept.items() <= now.items():
                raise NotGoneOnError("a result is gone, or another one")
            kept = now
            self.say(f"         with {len(kept)} results")
            if any(runs.glob("*/run.json")):
                words = ["resume", "latest"]
            if status == Stage.RUNNING:
                run = RUNS.find(runs, "latest")
                cut |= results.boots(run) - {*boots(run)}

    def _paused(self, wrong: int, words: list[str], status: int | str) -> int:
        """How often kdelta has ended with a sentence, after a pause."""
        if wrong == self.most:
            raise NotGoneOnError(f"{' '.join(words)} ends with {status} each time")
        time.sleep(self.pause_s)
        return wrong + 1


def boots(run: Path) -> list[str]:
    """The boots of a run's results."""
    results = [trial.result for trial in RunJournal.open(run).record().trials if trial.result]
    return [one.facts.boot_id for one in results if one.facts and one.facts.boot_id]
