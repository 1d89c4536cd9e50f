# SPDX-License-Identifier: GPL-2.0-or-later
"""Another machine by OpenSSH: its client, its agent, its known_hosts, and nothing of ours there.

What the machine shows of itself comes as a small tree of files, which the rules for /proc and /sys
here read just the same.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
import shlex
import subprocess
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from msgspec.structs import replace

from kdelta import process
from kdelta.errors import GuestError, InfraError, SpecError
from kdelta.host import facts, native
from kdelta.host.reboot import EFI_VARIABLES, GRUB_PLACE, LOADER_ENTRIES, VENDOR
from kdelta.printable import printable
from kdelta.sample import HostFacts

_ADDRESS = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z_][A-Za-z0-9._-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9a-fA-F:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?/?"
)
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
_SHORT_S = 60.0
_UNKNOWN_KEY = ("Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED")
_REFUSED_KEY = ("Permission denied", "Too many authentication failures")
NO_SUDO = "there: visudo -f /etc/sudoers.d/kdelta, a line: USER ALL=(ALL) NOPASSWD: ALL"
"""What lets kdelta be root on a machine."""

_SUDO = 'if [ "$(id -u)" = 0 ]; then S=; else S="sudo -n"; fi; '


class RefusedError(InfraError):
    """The machine answers, and it or its key is not accepted: to wait would not help."""


def parse(text: str) -> list[str]:
    """ssh://[USER@]HOST[:PORT] (HOST: or an alias) as the client takes it.  Raises SpecError."""
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"] or 0) if found else 0
    if found is None or port > 65535:
        cause = f"{printable(text, 100)!a} is no address of a host"
        raise SpecError(cause, action="write ssh://USER@HOST:PORT")
    user = ["-l", found["user"]] if found["user"] else []
    return [*(["-p", str(port)] if port else []), *user, "--", found["host"].strip("[]")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A script that ended.  Its output is a stranger's."""

    status: int
    text: str
    errors: str

    @property
    def last_words(self) -> str:
        """The last line that it printed, errors first."""
        lines = [line for line in f"{self.text}\n{self.errors}".splitlines() if line.strip()]
        return printable(lines[-1].strip(), 200) if lines else "no output"

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
        self._config = ["-F", str(Path(ssh_config).expanduser())] if ssh_config else []
        control = {**_OPTIONS, "ControlPath": f"{sockets}/%C"}
        options = [word for key, value in control.items() for word in ("-o", f"{key}={value}")]
        self._client = ["ssh", *self._config, *options]
        self._where = parse(address)

    def ask(
        self, script: str, *, timeout: float = _SHORT_S, stdin: IO[bytes] | None = None
    ) -> Done:
        """Run a script of sh(1); $S is sudo where needed.  Raises InfraError: too late, not
        reached.
        """
        argv = [*self._client, *self._where, f"exec sh -c {shlex.quote(_SUDO + script)}"]
        child = process.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=stdin)
        reader = native.Reader(child, "ssh")
        try:
            reader.read_all(timeout, self.cancelled)
        except GuestError as error:
            cause = f"{self.name} did not answer within {timeout:.0f} s: {error.cause}"
            action = "see by hand whether it answers, then: kdelta resume"
            raise InfraError(cause, action=action) from error
        finally:
            process.end(child)
        errors = reader.stderr.decode(errors="replace")
        if child.returncode == _FAILED:
            raise self._unreached(errors)
        return Done(
            status=child.returncode, text=reader.stdout.decode(errors="replace"), errors=errors
        )

    def get(self, script: str, *, timeout: float = _SHORT_S, stdin: IO[bytes] | None = None) -> str:
        """What a script prints that has to succeed.  Raises InfraError."""
        done = self.ask(script, timeout=timeout, stdin=stdin)
        if done.status:
            cause = f"{self.name}: {done.last_words} (exit status {done.status})"
            raise InfraError(cause, action=done.mend)
        return done.text

    def hang_up(self) -> None:
        """Close the shared connection, so that the next question makes a new one."""
        process.run([*self._client, "-O", "exit", *self._where], timeout=_SHORT_S, check=False)

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


@contextmanager
def connection(
    name: str, address: str, cancelled: threading.Event, ssh_config: str = ""
) -> Iterator[Remote]:
    """A machine by its address, until the end of the block.  Raises SpecError, InfraError."""
    parse(address)
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
_OWN = "kdelta"  # folder of what programs said
_CPU = "sys/devices/system/cpu"
_FILES = (
    "proc/cmdline proc/config.gz proc/cpuinfo proc/loadavg proc/meminfo proc/stat proc/version",
    "proc/sys/kernel/numa_balancing proc/sys/kernel/osrelease proc/sys/kernel/panic",
    "proc/sys/kernel/random/boot_id proc/sys/kernel/version",
    f"{_CPU}/isolated {_CPU}/nohz_full {_CPU}/online {_CPU}/smt/control {_CPU}/vulnerabilities/*",
    f"{_CPU}/cpufreq/boost {_CPU}/intel_pstate/no_turbo",
    f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor {_CPU}/cpu[0-9]*/topology/core_cpus_list",
    f"{_CPU}/cpu[0-9]*/topology/thread_siblings_list",
    f"{_CPU}/cpu[0-9]*/cpufreq/energy_performance_preference",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/node/node[0-9]*/cpulist sys/firmware/dmi/entries/17-*/raw",
    "sys/hypervisor/type sys/kernel/debug/sched/preempt sys/kernel/mm/ksm/run sys/kernel/notes",
    "sys/kernel/mm/transparent_hugepage/enabled sys/kernel/mm/transparent_hugepage/defrag",
    "sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "boot/config-* boot/grub/grub.cfg boot/grub2/grub.cfg boot/grub/grubenv boot/grub2/grubenv",
    *(f"{EFI_VARIABLES}/Loader{name}-{VENDOR}" for name in ("Info", "EntryDefault")),
)
# Below folders that only root may look into.
_LOADERS = " ".join(f"{each}/entries/*.conf {each}/loader.conf" for each in LOADER_ENTRIES)
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
    script = _SCRIPT.format(files=files, empty=_EMPTY, own=_OWN, grub=GRUB_PLACE)
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
    own, failed = root / _OWN, root / _OWN / "failed"
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
    word = facts.text_of(root / _OWN / name)
    return word if re.fullmatch(r"[A-Za-z0-9_-]{1,32}", word) else None
