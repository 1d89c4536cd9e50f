# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run does with another machine, by ssh: looks, boots, runs a program, gives it back.

`kdelta runs status` shows the stages, `kdelta --verbose` prints them, and bench/hosts.py kills
kdelta in each.
"""

from __future__ import annotations

import contextlib
import logging
import math
import shlex
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from kdelta import process
from kdelta.errors import BootError, Cancelled, InfraError, PoolError
from kdelta.files import decoded, sha256_of
from kdelta.host import leases, reboot, remote
from kdelta.host.facts import idle_ticks
from kdelta.host.remote import Done, RefusedError, Remote
from kdelta.printable import printable
from kdelta.procfs import cpu_list
from kdelta.sample import HostFacts


class Stage(StrEnum):
    """A stage, as it is shown.  After LEAVING the machine goes down: FALLING until it is gone,
    BOOTING until a boot answers; what it does meanwhile cannot be seen.
    """

    OFFERING = "sends a kernel's files"
    INSTALLING = "installs a kernel"
    REACHING = "waits until it answers"
    TAKING = "takes hold of it"
    CHOOSING = "chooses its next boot"
    LEAVING = "tells it to boot"
    FALLING = "waits until it is down"
    BOOTING = "waits until it is up"
    LOOKING = "looks at what it is"
    SENDING = "sends the program"
    SETTLING = "waits until it is quiet"
    RUNNING = "runs the program"
    READING = "looks at what it was"
    KEEPING = "keeps the result"
    RETURNING = "gives it back"
    LETTING_GO = "lets it go"
    REMOVING = "takes a kernel off it"


log = logging.getLogger(__name__)
HOME = "/var/tmp/kdelta-host"  # noqa: S108  its owner is looked at before it is used
"""Folder on the machine: who holds it, what it was, and the programs; it survives a reboot."""

_HELD = f"{HOME}/held.json"
_MOST_OUTPUT = 32 << 20
_POLL_S = 2.0
_GONE_S = 20.0  # of one question to a machine that may be down
_PANIC_S = 10  # after which a kernel that panics reboots
_NOT_STARTED = (125, 126, 127)  # statuses of timeout(1), env(1) and sh(1)
_RESET_S = 120.0
_SEND_S, _SLOWEST = 60.0, 250_000  # bytes a second
_TERMINATED = 128 + 15  # of a shell whose machine goes down
# A folder that somebody else made there could hold programs of theirs.
_OWN = f"[ -O {HOME} ] && [ ! -L {HOME} ]"
# Of an installation that was killed some of it may be root's.
_LET_GO = f"{_OWN} && {{ rm -rf {HOME} 2> /dev/null || $S rm -rf {HOME}; }}; [ ! -e {HOME} ]"
_CHOSEN = f"{HOME}/chosen"
"""There while the loader may hold a choice of kdelta's that no boot has used up yet."""
# A program that an earlier connection left behind would take time from this one.
_RUN = """
cd {home} || exit 1
for each in /proc/[0-9]*; do
    case $(readlink "$each/exe") in {home}/*) kill -9 "${{each#/proc/}}";; esac
done
{command} < /dev/null > out 2> errors
echo "$? $(wc -c < out)"; head -c {most} out; tail -c 2000 errors >&2
exit 0
"""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a machine.  release: the kernel that it ran when it was taken."""

    run: str
    since: str
    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The boot that a machine is in."""

    release: str
    boot_id: str


class SshHost:
    """A run's machine.  Raises InfraError for its faults and the line's, PoolError when it gives no
    more.
    """

    def __init__(
        self, remote: Remote, *, boot_s: float, most_boots: int, reset: Sequence[str] = ()
    ) -> None:
        """boot_s: seconds of a boot; most_boots: to ask for; reset: a command here for one that
        takes longer.
        """
        self.remote, self._boot_s = remote, boot_s
        self._boots_left, self._reset = most_boots, tuple(reset)
        self.told: Callable[[Stage], None] = lambda _stage: None

    def at(self, stage: Stage) -> None:
        """Tell what is done now."""
        log.debug("%s: %s", self.remote.name, stage)
        self.told(stage)

    # ---- holding it ---------------------------------------------------------------------

    def take(self, run: str, since: str) -> Held:
        """Hold the machine for a run; one that this run holds already is as it was left."""
        mine = Held(run=run, since=since, release=self.reached().release)
        self.at(Stage.TAKING)
        told = shlex.quote(msgspec.json.encode(mine).decode())
        done = self.remote.ask(
            f"mkdir -m 700 {HOME} 2> /dev/null && printf %s {told} > {HOME}/new &&"
            f" mv {HOME}/new {_HELD}; {_OWN} || exit 3; head -c 4096 {_HELD}"
        )
        name = self.remote.name
        if done.status == 3:
            cause = f"{HOME} of {name} is not yours, or cannot be made"
            raise InfraError(cause, action="look at it there, and remove it")
        held = _held(done.text)
        if held is None:  # whoever made the folder died before saying who it is
            self.remote.get(f"printf %s {told} > {_HELD}")
            return mine
        if held.run == run:
            return held
        who, when = printable(held.run, 80), printable(held.since, 40)
        raise InfraError(
            f"{name} is held by the run {who} since {when}",
            action="wait for it; if it is given up: kdelta host release",
        )

    @contextlib.contextmanager
    def holding(self, what: str, since: str) -> Iterator[None]:
        """Hold it for something short that boots nothing; it is let go however that ends."""
        self.take(f"{what} {uuid.uuid4().hex[:8]}", since)
        try:
            yield
        finally:
            with contextlib.suppress(InfraError):
                self.remote.get(_LET_GO)

    def holder(self) -> Held | None:
        """Who holds the machine."""
        return _held(self.remote.ask(f"{_OWN} && head -c 4096 {_HELD}").text)

    def give_back(self, held: Held) -> None:
        """Boot what ran before, by the machine's own default where that is it; leave nothing."""
        now = self.reached()
        self.at(Stage.RETURNING)
        self._unchosen()
        if now.release != held.release:
            self._go("$S reboot")
            if self._returned(now, "its own kernel").release != held.release:
                self.boot(held.release)
                self._unchosen()
        self.at(Stage.LETTING_GO)
        self.remote.get(_LET_GO)

    def _unchosen(self) -> None:
        if self.remote.ask(f"[ -e {_CHOSEN} ]").status:
            return
        with self.shown() as root:
            forget = reboot.forget(root)
        done = self.remote.ask("; ".join(f"$S {shlex.join(words)} || exit" for words in forget))
        if done.status:
            cause = f"{self.remote.name} does not forget its next boot: {done.last_words}"
            raise PoolError(cause, action=f"{done.mend}; then: kdelta host release")

    # ---- its kernels --------------------------------------------------------------------

    def reached(self) -> Running:
        """The boot it is in, waited for as long as a boot may take: it may be on its way."""
        self.at(Stage.REACHING)
        was_reset, deadline = False, time.monotonic() + self._boot_s
        while True:
            try:
                return self.running()
            except RefusedError:
                raise
            except InfraError as error:
                if time.monotonic() > deadline:
                    if was_reset or not self._was_reset():
                        raise PoolError(error.cause, action=error.action) from error
                    was_reset, deadline = True, time.monotonic() + self._boot_s
            self._pause()

    def running(self) -> Running:
        """The boot it is in now."""
        asked = "cat /proc/sys/kernel/osrelease /proc/sys/kernel/random/boot_id"
        lines = self.remote.get(asked, timeout=_GONE_S).split("\n")
        if len(lines) < 2 or not all(lines[:2]):
            raise InfraError(f"{self.remote.name} does not say which kernel it runs")
        return Running(release=printable(lines[0], 128), boot_id=printable(lines[1], 64))

    def boot(self, release: str) -> Running:
        """Boot a kernel once.  Raises BootError when the machine comes back with another one."""
        if self._boots_left <= 0:
            cause = f"{self.remote.name} was booted as often as its pool allows (most_boots)"
            raise PoolError(cause, action="see that it is well, then: kdelta resume")
        self._boots_left -= 1
        before = self.running()
        self.at(Stage.CHOOSING)
        with self.shown() as root:
            line = (root / "proc/cmdline").read_text(errors="replace").strip()
            # One that panics comes back by itself.
            line += "" if " panic=" in f" {line}" else f" panic={_PANIC_S}"
            way = reboot.ways(release, root, f"--command-line={line}")[0]
        noted = f"$S true && {{ [ ! -d {HOME} ] || : > {_CHOSEN}; }}"
        self._obeyed(self.remote.ask(f"{noted} && {way.choice('$S ')}"))
        self.at(Stage.LEAVING)
        self._go(f"$S {shlex.join(way.go)}")
        after = self._returned(before, release)
        if after.release == release:
            return after
        name = self.remote.name
        raise BootError(f"{name} was sent into {release} and came back with {after.release}")

    def releases(self) -> tuple[str, ...]:
        """The kernels that it can boot."""
        with self.shown() as root:
            return reboot.installed(root)

    def _go(self, script: str) -> None:
        """Give an order that ends the connection; an earlier failure is reported."""
        done = None
        with contextlib.suppress(InfraError):  # it went down before it could say that it does
            done = self.remote.ask(script)
        if done:
            self._obeyed(done)
        self.remote.hang_up()

    def _obeyed(self, done: Done) -> None:
        if done.status not in (0, _TERMINATED):
            cause = f"{self.remote.name} cannot be told to boot: {done.last_words}"
            raise PoolError(cause, action=f"{done.mend}; then: kdelta resume")

    def _returned(self, before: Running, where: str) -> Running:
        """The boot after the one it was in; where: it was sent, for a message."""
        self.at(stage := Stage.FALLING)
        for resets in (0, 1):
            deadline = time.monotonic() + self._boot_s
            while time.monotonic() < deadline:
                self._pause()
                try:
                    now = self.running()
                except InfraError:
                    if stage is Stage.FALLING:
                        self.at(stage := Stage.BOOTING)
                    continue
                if now.boot_id != before.boot_id:
                    return now
            if resets or not self._was_reset():
                break
        raise PoolError(
            f"{self.remote.name} did not come back within {self._boot_s:.0f} s, sent into {where}",
            action="reset it by hand, then: kdelta resume",
        )

    def _was_reset(self) -> bool:
        if not self._reset:
            return False
        log.warning("%s is reset: it is not back within %.0f s", self.remote.name, self._boot_s)
        try:
            process.run(self._reset, timeout=_RESET_S)
        except InfraError as error:
            cause = f"{self.remote.name} is down and is not reset: {error.cause}"
            action = "correct reset of its pool, or reset it by hand, then: kdelta resume"
            raise PoolError(cause, action=action) from error
        self.remote.hang_up()
        return True

    def _pause(self) -> None:
        if self.remote.cancelled.wait(_POLL_S):
            raise Cancelled

    # ---- what it is, and what it runs -----------------------------------------------------

    def facts(self, cpus: Sequence[int] = ()) -> HostFacts:
        """What the machine is."""
        with self.shown() as root:
            return remote.facts_of(root, cpus)

    def chosen(self, wanted: int) -> tuple[list[int], HostFacts]:
        """So many of its cores, the best of them, or all; and what it is with these."""
        with self.shown() as root:
            online = cpu_list((root / "sys/devices/system/cpu/online").read_text().strip())
            cores = leases.cores(root, allowed=online)
            count = min(wanted, len(cores))
            leased = [core.cpu for core in leases.eligible(cores, count)[:count]]
            return leased, remote.facts_of(root, leased)

    def ticks(self, root: Path) -> tuple[int, int]:
        """Idle ticks of its CPUs, and all; root: a folder to write in."""
        (root / "proc").mkdir(exist_ok=True)
        (root / "proc/stat").write_text(self.remote.get("head -c 65536 /proc/stat"))
        return idle_ticks(root)

    def send(self, program: Path) -> str:
        """Where a program lies on the machine; it is sent when it is not there."""
        digest = sha256_of(program)
        path = f"{HOME}/{digest[:32]}"
        check = f"echo {digest} {path} | sha256sum -c --status"
        if self.remote.ask(f"{check} 2> /dev/null").status:
            with program.open("rb") as content:
                put = f"{_OWN} && cat > {path}.new && chmod 700 {path}.new && mv {path}.new {path}"
                limit = _SEND_S + program.stat().st_size / _SLOWEST
                self.remote.get(f"{put} && {check}", timeout=limit, stdin=content)
        return path

    def ran(self, command: Sequence[str], timeout: float) -> tuple[str, int]:
        """What a command of the machine printed, and its exit status; it is bounded there, too."""
        bounded = ["timeout", "-k", "5", f"{math.ceil(timeout)}", *command]
        script = _RUN.format(home=HOME, command=shlex.join(bounded), most=_MOST_OUTPUT)
        done = self.remote.ask(script, timeout=timeout + 60)
        head, _, text = done.text.partition("\n")
        status, _, size = head.partition(" ")
        if not (status.isdecimal() and size.isdecimal()):
            raise InfraError(f"{self.remote.name} did not say how the program ended")
        if int(status) in _NOT_STARTED:
            cause = f"{self.remote.name} does not start the program: {done.last_words}"
            action = f"see that {HOME} may hold programs there, and that taskset is installed"
            raise InfraError(cause, action=action)
        if int(size) != len(text.encode()):
            raise InfraError(f"{self.remote.name} sent another number of bytes than it said")
        return text, int(status)

    @contextlib.contextmanager
    def shown(self) -> Iterator[Path]:
        """What the machine shows of itself, as files below a folder (snapshot.take)."""
        with tempfile.TemporaryDirectory(prefix="kdelta-host-") as folder:
            remote.show(self.remote, Path(folder))
            yield Path(folder)


def _held(text: str) -> Held | None:
    with contextlib.suppress(msgspec.MsgspecError, ValueError):
        return decoded(text, Held)
    return None
