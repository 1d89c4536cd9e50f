# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run does with another machine, by ssh: looks, boots, runs a program, gives it back.

`kdelta runs status` shows the stages, `kdelta --verbose` prints them, and bench/hosts.py kills
kdelta in each.  The connection is OpenSSH's: its client, agent and known_hosts, and nothing of ours
there.  What the machine shows of itself comes as a small tree of files, which the rules for /proc
and /sys here read just the same.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import logging
import math
import re
import shlex
import subprocess
import tarfile
import tempfile
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec
from msgspec.structs import replace

from kdelta import process
from kdelta.errors import BootError, Cancelled, GuestError, InfraError, PoolError
from kdelta.files import decoded, given, path_of, sha256_of
from kdelta.host import facts, leases, native, reboot
from kdelta.host.facts import idle_ticks
from kdelta.printable import printable
from kdelta.procfs import cpu_list
from kdelta.sample import HostFacts
from kdelta.study.pools import HostPool, ssh_words

_OPTIONS = {
    "BatchMode": "yes",  # a question would wait for ever
    "ConnectTimeout": "15",
    "ServerAliveInterval": "10",
    "ServerAliveCountMax": "3",
    "ControlMaster": "auto",
    "ControlPersist": "30",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
}
_FAILED = 255  # ssh's own exit status; scripts of ours never end with it
_SHORT_S, _HANG_UP_S = 60.0, 5.0
_MOST_CONFIG = 1 << 20
_UNKNOWN_KEY = ("Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED")
_REFUSED_KEY = ("Permission denied", "Too many authentication failures")
NO_SUDO = "there: visudo -f /etc/sudoers.d/kdelta, a line: USER ALL=(ALL) NOPASSWD: ALL"
"""What lets kdelta be root on a machine."""

_SUDO = 'if [ "$(id -u)" = 0 ]; then S=; else S="sudo -n"; fi; '


class RefusedError(InfraError):
    """The machine answers, and it or its key is not accepted: to wait would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A script that ended.  Its output is a stranger's."""

    status: int
    text: str
    errors: str

    @property
    def last_words(self) -> str:
        """The last line that it printed, errors first."""
        lines = f"no output\n{self.text}\n{self.errors}".strip().splitlines()
        return printable(lines[-1].strip(), 200)

    @property
    def mend(self) -> str:
        """What helps when it failed."""
        full = "No space left on device" in f"{self.text}\n{self.errors}"
        other = "make room there, see: df -h" if full else "see: kdelta host doctor"
        return NO_SUDO if "sudo:" in self.last_words else other


class Remote:
    """A connection that is made when it is needed, shared by all that is asked."""

    def __init__(
        self,
        name: str,
        address: str,
        sockets: Path,
        cancelled: threading.Event,
        ssh_config: str = "",
    ) -> None:
        """name: what messages call the machine; sockets: a private folder with a short path."""
        self.name, self.cancelled = name, cancelled
        self._config = ["-F", str(path_of(ssh_config))] if ssh_config else []
        for path in self._config[1:]:
            given(Path(path), _MOST_CONFIG, "name a plain file as ssh_config")
        control = {**_OPTIONS, "ControlPath": f"{sockets}/%C"}
        options = [word for key, value in control.items() for word in ("-o", f"{key}={value}")]
        self._client = ["ssh", *self._config, *options]
        self._where = ssh_words(address)

    def ask(
        self, script: str, *, timeout: float = _SHORT_S, stdin: IO[bytes] | None = None
    ) -> Done:
        """Run a script of sh(1); $S is sudo where needed.  Raises InfraError: too late, not
        reached.
        """
        argv = [*self._client, *self._where, f"exec sh -c {shlex.quote(_SUDO + script)}"]
        child = process.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=stdin)
        try:
            quick, name = timeout <= _SHORT_S, f"ssh of {self.name}"
            text, errors = native.read(child, name, timeout, self.cancelled, quick=quick)
        except GuestError as error:
            cause = f"{self.name} does not answer: {error.cause}"
            action = f"see what this says, then give the command again: {self.by_hand()}"
            raise InfraError(cause, action=action) from error
        finally:
            process.end(child)
        if child.returncode == _FAILED:
            raise self._unreached(errors)
        return Done(status=child.returncode, text=text, errors=errors)

    def get(self, script: str, *, timeout: float = _SHORT_S, stdin: IO[bytes] | None = None) -> str:
        """What a script prints that has to succeed.  Raises InfraError."""
        done = self.ask(script, timeout=timeout, stdin=stdin)
        if done.status:
            cause = f"{self.name}: {done.last_words} (exit status {done.status})"
            raise InfraError(cause, action=done.mend)
        return done.text

    def hang_up(self) -> None:
        """Close the shared connection, so that the next question makes a new one."""
        words = [*self._client, "-O", "exit", *self._where]
        with contextlib.suppress(InfraError):  # it ends by itself soon
            process.run(words, timeout=_HANG_UP_S, check=False)

    def by_hand(self) -> str:
        """The command that a user gives to see what ssh says."""
        return process.quote(["ssh", *self._config, *(w for w in self._where if w != "--")])

    def _unreached(self, errors: str) -> InfraError:
        last = Done(status=_FAILED, text="", errors=errors).last_words
        if any(word in errors for word in _UNKNOWN_KEY):
            cause = f"the host key of {self.name} is not known, or another one than it was"
            action = f"compare it with the machine's own, and take it: {self.by_hand()}"
            return RefusedError(cause, action=action)
        if any(word in errors for word in _REFUSED_KEY):
            action = f"give it one: ssh-copy-id, ssh-add; then try: {self.by_hand()}"
            return RefusedError(f"{self.name} takes no key of yours ({last})", action=action)
        return InfraError(f"{self.name} is not reached: {last}", action=f"try: {self.by_hand()}")


@contextlib.contextmanager
def connection(
    name: str, address: str, cancelled: threading.Event, ssh_config: str = ""
) -> Iterator[Remote]:
    """A machine by its address, until the end of the block.  Raises SpecError, InfraError."""
    ssh_words(address)
    if process.which("ssh") is None:
        raise InfraError("there is no ssh", action="install it: apt-get install openssh-client")
    # A socket's path has at most 107 characters, ssh's own random suffix among them.
    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as sockets:
        remote = Remote(name, address, Path(sockets), cancelled, ssh_config)
        try:
            yield remote
        finally:
            remote.hang_up()


_MOST_FILES = 20_000
_MOST_BYTES = 16 << 20
_SAID = "kdelta"  # folder of what programs said
_CPU = "sys/devices/system/cpu"
_FILES = (
    "proc/cmdline proc/config.gz proc/cpuinfo proc/loadavg proc/meminfo proc/stat proc/version",
    "proc/sys/kernel/numa_balancing proc/sys/kernel/osrelease proc/sys/kernel/panic",
    "proc/sys/kernel/random/boot_id proc/sys/kernel/version",
    f"{_CPU}/isolated {_CPU}/online {_CPU}/smt/control {_CPU}/vulnerabilities/*",
    f"{_CPU}/cpufreq/boost {_CPU}/intel_pstate/no_turbo",
    f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor {_CPU}/cpu[0-9]*/topology/core_cpus_list",
    f"{_CPU}/cpu[0-9]*/topology/thread_siblings_list",
    f"{_CPU}/cpu[0-9]*/cpufreq/energy_performance_preference",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/node/node[0-9]*/cpulist sys/firmware/dmi/entries/17-*/raw",
    "sys/hypervisor/type sys/kernel/debug/sched/preempt sys/kernel/mm/ksm/run sys/kernel/notes",
    "sys/kernel/mm/transparent_hugepage/enabled boot/config-* boot/grub/grub.cfg boot/grub/grubenv",
    *(f"{reboot.EFI_VARIABLES}/Loader{name}-{reboot.VENDOR}" for name in ("Info", "EntryDefault")),
)
# Below folders that only root may look into.
_LOADERS = " ".join(f"{each}/entries/*.conf {each}/loader.conf" for each in reboot.LOADER_ENTRIES)
# Of kernels and initial RAM disks only that they are there.
_EMPTY = "boot/vmlinuz-* boot/initrd.img-* boot/initramfs-*.img boot/initrd-* lib/modules/*/vmlinuz"
_SCRIPT = """
set -u; cd / || exit 1; t=$(mktemp -d) || exit 1; trap 'rm -rf "$t"' EXIT
place() {{ [ -d "$t/${{1%/*}}" ] || mkdir -p "$t/${{1%/*}}"; }}
for f in {files}; do [ -f "$f" ] && place "$f" && cat "$f" > "$t/$f" 2> /dev/null; done
for f in {empty}; do [ -f "$f" ] && place "$f" && : > "$t/$f"; done
mkdir -p "$t/{own}"
findmnt -no FSTYPE,SOURCE -T /boot/grub > "$t/{grub}" 2> /dev/null
uname -m > "$t/{own}/machine"
systemd-detect-virt --vm > "$t/{own}/virtual" 2> /dev/null
systemctl --failed --plain --no-legend --no-pager > "$t/{own}/failed" 2> /dev/null ||
    rm -f "$t/{own}/failed"
head -c 8192 /proc/timer_list > "$t/{own}/timers" 2> /dev/null
tar -C "$t" -czf - . | base64 -w 0
"""
# Once: sudo takes longer than all that is read.  Who may not be root sees less.
_AS_ROOT = '[ -z "$S" ] || $S true 2> /dev/null || S=; $S sh -c {script}'
_RESOLUTION = re.compile(r"\.resolution:\s+([0-9]{1,12}) nsecs")


def show(remote: Remote, root: Path) -> None:
    """Fill an empty folder with what a machine shows.  Raises InfraError."""
    files = " ".join((*_FILES, _LOADERS))
    script = _SCRIPT.format(files=files, empty=_EMPTY, own=_SAID, grub=reboot.GRUB_PLACE)
    printed = remote.get(_AS_ROOT.format(script=shlex.quote(script)))
    try:
        packed = base64.b64decode(printed, validate=True)
        _unpack(packed, root)
    except (binascii.Error, tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        cause = f"{remote.name} does not say what it is: {printable(str(error), 100)}"
        raise InfraError(cause, action="see: kdelta host doctor") from error


def _unpack(packed: bytes, root: Path) -> None:
    left = _MOST_BYTES
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        for number, member in enumerate(archive):
            name = PurePosixPath(member.name)
            left -= member.size
            if number > _MOST_FILES or left < 0:
                raise ValueError("it is too much")
            if member.isdir():
                continue
            content = archive.extractfile(member) if member.isfile() else None
            if content is None or name.is_absolute() or ".." in name.parts:
                raise ValueError(f"{member.name!a} is no plain file below it")
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content.read())


def facts_of(root: Path, cpus: Collection[int] = ()) -> HostFacts:
    """The facts of the machine that a folder was filled from."""
    own, failed = root / _SAID, root / _SAID / "failed"
    # The coarsest clock base of /proc/timer_list: 1 with high-resolution timers.
    clocks = map(int, _RESOLUTION.findall(facts.text_of(own / "timers")))
    return replace(
        facts.read(root, cpus=cpus),
        machine=_said(root, "machine"),
        clock_resolution_ns=max(clocks, default=None),
        clock_step_ns=None,
        virtualisation=_said(root, "virtual"),
        failed_units=facts.units_of(facts.text_of(failed)) if failed.is_file() else None,
    )


def _said(root: Path, name: str) -> str | None:
    word = facts.text_of(root / _SAID / name)
    return word if re.fullmatch(r"[A-Za-z0-9_-]{1,32}", word) else None


# ---- the machine of a run ---------------------------------------------------------------------


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

    def __init__(self, remote: Remote, pool: HostPool) -> None:
        """pool: what it says of boots."""
        self.remote, self._boot_s = remote, pool.boot_s
        self._boots_left, self._reset, self._told = pool.most_boots, pool.reset, 0.0
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
        action = "wait for it; if it is given up: kdelta host release"
        raise InfraError(f"{name} is held by the run {who} since {when}", action=action)

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
        was_reset, begun = False, time.monotonic()
        deadline = begun + self._boot_s
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
                self._pause(begun, error.cause)

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
            begun = time.monotonic()
            while time.monotonic() < begun + self._boot_s:
                self._pause(begun, f"it was sent into {where}")
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
        cause = f"did not come back within {self._boot_s:.0f} s, sent into {where}"
        action = "reset it by hand, then: kdelta resume"
        raise PoolError(f"{self.remote.name} {cause}", action=action)

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

    def _pause(self, begun: float, why: str) -> None:
        """Wait a little; who waits longer hears of it."""
        if (now := time.monotonic()) >= max(self._told, begun) + process.TOLD_S:
            self._told = now
            log.warning("waiting for %s, %.0f s so far: %s", self.remote.name, now - begun, why)
        if self.remote.cancelled.wait(_POLL_S):
            raise Cancelled

    # ---- what it is, and what it runs -----------------------------------------------------

    def facts(self, cpus: Sequence[int] = ()) -> HostFacts:
        """What the machine is."""
        with self.shown() as root:
            return facts_of(root, cpus)

    def chosen(self, wanted: int) -> tuple[list[int], HostFacts]:
        """So many of its cores, the best of them, or all; and what it is with these."""
        with self.shown() as root:
            online = cpu_list((root / "sys/devices/system/cpu/online").read_text().strip())
            cores = leases.cores(root, allowed=online)
            count = min(wanted, len(cores))
            leased = [core.cpu for core in leases.eligible(cores, count)[:count]]
            return leased, facts_of(root, leased)

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
        """What the machine shows of itself, as files below a folder (show)."""
        with tempfile.TemporaryDirectory(prefix="kdelta-host-") as folder:
            show(self.remote, Path(folder))
            yield Path(folder)


def _held(text: str) -> Held | None:
    with contextlib.suppress(msgspec.MsgspecError, ValueError):
        return decoded(text, Held)
    return None
