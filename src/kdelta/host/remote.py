# SPDX-License-Identifier: GPL-2.0-or-later
"""Another machine by OpenSSH: its client, its agent, its known_hosts, and nothing of ours there."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kdelta import process
from kdelta.errors import GuestError, InfraError, SpecError
from kdelta.host import native
from kdelta.printable import printable

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """ssh://[USER@]HOST[:PORT]; HOST may be an alias of ssh_config(5)."""

    host: str
    user: str = ""
    port: int = 0

    def words(self) -> list[str]:
        """As the client takes it."""
        return [
            *(["-p", str(self.port)] if self.port else []),
            *(["-l", self.user] if self.user else []),
            "--",
            self.host,
        ]


def parse(text: str) -> Address:
    """An address.  Raises SpecError."""
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"] or 0) if found else 0
    if found is None or port > 65535:
        raise SpecError(
            f"{printable(text, 100)!a} is no address of a host", action="write ssh://USER@HOST:PORT"
        )
    return Address(host=found["host"].strip("[]"), user=found["user"] or "", port=port)


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
        if "sudo:" in self.last_words:
            return NO_SUDO
        if "No space left on device" in f"{self.text}\n{self.errors}":
            return "make room there, see: df -h"
        return "see: kdelta host doctor"


class Remote:
    """A connection that is made when it is needed, shared by all that is asked."""

    def __init__(
        self,
        name: str,
        address: Address,
        sockets: Path,
        cancelled: threading.Event,
        ssh_config: str = "",
    ) -> None:
        """name: what messages call the machine; sockets: a private folder with a short path."""
        self.name = name
        self.cancelled = cancelled
        self._config = ["-F", str(Path(ssh_config).expanduser())] if ssh_config else []
        control = {**_OPTIONS, "ControlPath": f"{sockets}/%C"}
        options = [word for key, value in control.items() for word in ("-o", f"{key}={value}")]
        self._client = ["ssh", *self._config, *options]
        self._where = address.words()

    def ask(
        self, script: str, *, timeout: float = _SHORT_S, stdin: IO[bytes] | None = None
    ) -> Done:
        """Run a script of sh(1); $S in it is sudo where that is needed.

        Raises InfraError when the machine cannot be reached or does not end it in time.
        """
        command = f"exec sh -c {shlex.quote(_SUDO + script)}"
        argv = [*self._client, *self._where, command]
        child = process.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=stdin)
        reader = native.Reader(child, "ssh")
        try:
            reader.read_all(timeout, self.cancelled)
        except GuestError as error:
            raise InfraError(
                f"{self.name} did not answer within {timeout:.0f} s: {error.cause}",
                action="see by hand whether it answers, then: kdelta resume",
            ) from error
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
            raise InfraError(
                f"{self.name}: {done.last_words} (exit status {done.status})",
                action=done.mend,
            )
        return done.text

    def hang_up(self) -> None:
        """Close the shared connection, so that the next question makes a new one."""
        argv = [*self._client, "-O", "exit", *self._where]
        process.run(argv, timeout=_SHORT_S, check=False)

    def by_hand(self) -> str:
        """The command that a user gives to see what ssh says."""
        return process.quote(["ssh", *self._config, *(w for w in self._where if w != "--")])

    def _unreached(self, errors: str) -> InfraError:
        last = Done(status=_FAILED, text="", errors=errors).last_words
        if any(word in errors for word in _UNKNOWN_KEY):
            return RefusedError(
                f"the host key of {self.name} is not known, or another one than it was",
                action=f"compare it with the machine's own, and take it: {self.by_hand()}",
            )
        if any(word in errors for word in _REFUSED_KEY):
            return RefusedError(
                f"{self.name} takes no key of yours ({last})",
                action=f"give it one: ssh-copy-id, ssh-add; then try: {self.by_hand()}",
            )
        return InfraError(f"{self.name} is not reached: {last}", action=f"try: {self.by_hand()}")


@contextmanager
def connection(
    name: str, address: str, cancelled: threading.Event, ssh_config: str = ""
) -> Iterator[Remote]:
    """A machine by its address, until the end of the block.  Raises SpecError, InfraError."""
    parsed = parse(address)
    if process.which("ssh") is None:
        raise InfraError("there is no ssh", action="install it: apt-get install openssh-client")
    # A socket's path has at most 107 characters, ssh's own random suffix among them.
    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as sockets:
        remote = Remote(name, parsed, Path(sockets), cancelled, ssh_config)
        try:
            yield remote
        finally:
            remote.hang_up()
