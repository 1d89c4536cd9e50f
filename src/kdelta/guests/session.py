# SPDX-License-Identifier: GPL-2.0-or-later
"""A running guest: its process, and what it writes to its files; nothing enters it."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Self

from kdelta import cache, process
from kdelta.errors import (
    BootError,
    Cancelled,
    FullError,
    GuestError,
    InfraError,
    KdeltaError,
    TimeOutError,
)
from kdelta.guests import orders, qemu
from kdelta.guests.orders import Answers
from kdelta.guests.qemu import Qemu
from kdelta.locks import stopped
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import GuestIdentity
from kdelta.sample import USUAL_TIMEOUT_S

if TYPE_CHECKING:
    from qemu.qmp import QMPClient

_MAX_CONSOLE = 1 << 20  # bytes of it that are kept
_MAX_STDERR = 1 << 16
_MAX_FILE = 80 << 20  # bytes in one file, above what PID 1 sends of a program that prints a lot
_POLL_S = 0.005
_POLLS = 10  # from one look at all that may be wrong to the next
_END_S = 2.0
_OOPS_S = 5.0  # for what the guest still does after one
_CONNECT_S = 60.0  # QEMU reserves huge pages first
_MAX_REASON = 300
# Words of a console line that say why a guest ended; the last patterns take the whole line.
_OWN_REASON = "kdelta-init: "
# The cause of a panic stands before it and says more.
_OOPS = ("kernel BUG at ", "Oops: ")  # which end a task
_CAUSES = (*_OOPS, "BUG: ")
_REASONS = (_OWN_REASON, *_CAUSES, "Kernel panic - not syncing: ")
_REASON_LINES = ("Decoding failed", "Invalid magic", "corrupted")
# An instruction that KVM cannot execute is this machine's fault; QEMU stays, stopped.
_KVM_FAULT = re.compile(rb"(KVM internal error|KVM: entry failed|error: kvm run failed)[^\n]*")

_PLUGIN_WRITES = "kdelta plugin: cannot write "

# What QEMU says when it refuses a saved guest.  Any other failure at its start (a plugin, an
# option, no memory) is not the guest's fault, and booting again would not help.
_NOT_TAKEN = re.compile(r"load of migration failed|backing store size")

# QEMU ends with status 0 when someone ends it.
_ASKED_TO_END = re.compile(r"terminating on signal (\d+)")


class RestoreError(InfraError):
    """QEMU does not take a checkpoint: another one has to be made."""


class _Kept:
    """A file in memory that QEMU and its guest write, and whose size is watched."""

    def __init__(self, name: str, open_files: ExitStack) -> None:
        self.fd = os.memfd_create(f"kdelta-{name}")
        open_files.callback(os.close, self.fd)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, most: int = _MAX_FILE) -> bytes:
        return os.pread(self.fd, most, 0)

    def ends(self, most: int) -> bytes:
        """All of it, or its first and last parts and how much was left out between."""
        left_out = self.size - most
        if left_out <= 0:
            return self.read(most)
        half = most // 2
        note = f"\n[kdelta: {left_out} bytes left out here]\n".encode()
        return os.pread(self.fd, half, 0) + note + os.pread(self.fd, half, half + left_out)


class Guest:
    """One QEMU process.  Use as a context manager: leaving it ends the process group.

    The console is kept (its first and last half MiB) for `console_text`, also after a failure.
    """

    def __init__(
        self,
        emulator: Qemu,
        settings: MachineSettings,
        launch: qemu.Launch,
        *,
        with_qmp: bool = False,
        cancelled: threading.Event | None = None,
    ) -> None:
        """Start QEMU.  with_qmp: for `control`.  Raises InfraError."""
        self._orders = launch.orders
        self._restored = launch.restore is not None
        self._saved = launch.save
        self._cancelled = cancelled or threading.Event()
        self._greeting: GuestIdentity | None = None
        self._console_text = ""
        self._heard = 0  # bytes of answers that were looked at
        with ExitStack() as ours, ExitStack() as theirs:
            names = ("port", "serial", "console", "stderr")
            self._files = tuple(_Kept(name, ours) for name in names)
            self._port, self._serial, self._console, self._stderr = self._files
            told = _Kept("orders", theirs)
            os.write(told.fd, "".join(f"{order.line}\n" for order in launch.orders).encode())
            self._qmp = control = None
            if with_qmp or launch.restore:
                self._qmp, control = (ours.enter_context(end) for end in socket.socketpair())
            if self._qmp and launch.restore:
                self._qmp.sendall(qemu.restoring())
            channels = qemu.Channels(
                port=self._port.fd,
                serial=self._serial.fd,
                console=self._console.fd,
                orders=told.fd,
                qmp=control.fileno() if control else -1,
                state=_state(launch, theirs),
            )
            self.argv = qemu.command(emulator, settings, launch, channels)
            self._child = process.start(
                self.argv,
                stderr=self._stderr.fd,
                env=emulator.environment,
                pass_fds=channels.inherited,
                die_with_caller=True,
            )
            self._watch = process.Standstill(self._child.pid, "a guest's QEMU")
            ours.callback(process.end, self._child)
            if control:
                control.close()
            self._ended = os.pidfd_open(self._child.pid)
            ours.callback(os.close, self._ended)
            self._open = ours.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End QEMU; its console stays readable."""
        process.end(self._child)
        self._console_text = self.console_text
        self._files = ()
        self._open.close()

    @property
    def console_text(self) -> str:
        """What the kernel and PID 1 wrote to the console, control characters replaced."""
        if not self._files:
            return self._console_text
        text = self._console.ends(_MAX_CONSOLE).decode(errors="replace").replace("\r\n", "\n")
        return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)

    @asynccontextmanager
    async def control(self) -> AsyncIterator[QMPClient]:
        """The control channel of a guest that was started with_qmp.  Raises InfraError."""
        import asyncio  # only a guest that is saved or pinned needs it

        from qemu.qmp import QMPClient

        if self._qmp is None:
            raise InfraError("the guest was started without a control channel")
        client = QMPClient("kdelta")
        client.logger.disabled = True
        self._qmp.settimeout(0)
        await asyncio.wait_for(client.connect(self._qmp), _CONNECT_S)
        try:
            yield client
        finally:
            await client.disconnect()

    @property
    def command_text(self) -> str:
        """QEMU's command line as a shell would take it, and what PID 1 was told."""
        told = "".join(f"# {order.line}\n" for order in self._orders)
        return f"{process.quote(self.argv)}\n{told}"

    @property
    def stderr_text(self) -> str:
        """What QEMU itself said."""
        return self._stderr.read(_MAX_STDERR).decode(errors="replace").strip()

    def greeting(self) -> GuestIdentity:
        """What a booted guest says of itself.  Raises GuestFault when there is none."""
        if not self._greeted() or self._greeting is None:
            raise self._failure("PID 1 did not greet")
        return self._greeting

    def finish(self, timeout: float) -> Answers:
        """Wait until the guest has answered its orders, or has ended; returns its answers.

        The caller closes the guest: switching itself off would take longer than many a trial.
        timeout: seconds, once for its boot and once for its orders.  Raises BootError, GuestError,
        InfraError, Cancelled, and Lacking for what its kernel does not have.
        """
        if not self._restored:
            self._wait(self._greeted, timeout, "PID 1 did not greet")
        self._wait(self._answered, timeout, "the guest did not do its orders")
        found = orders.answers(self._orders, self._said())
        if len(found.answered) < len(self._orders):
            raise self._failure(self._end())
        return found

    def look(self) -> None:
        """Raise when the wait for the guest is over: cancelled, flooded, or stopped by KVM; tell
        that QEMU is stopped.
        """
        self._watch.look()
        if self._cancelled.is_set():
            raise Cancelled
        if _KVM_FAULT.search(self._stderr.read(_MAX_STDERR)):
            raise self._failure("KVM stopped")
        if any(file.size > _MAX_FILE for file in self._files):
            raise self._failure(f"the guest wrote more than {_MAX_FILE >> 20} MiB")

    @property
    def has_ended(self) -> bool:
        """True when QEMU is gone."""
        return self._child.poll() is not None

    def patience(self, timeout: float) -> process.Patience:
        """A time limit that counts only time in which the guest could run."""
        return process.Patience(self._child.pid, timeout)

    def overdue(self, what: str, patience: process.Patience) -> KdeltaError:
        """The error for a guest that did not finish in time."""
        if patience.starved and not self.has_ended:
            cause = f"{what}: QEMU had to wait {patience.denied:.0f} s for a CPU"
            return InfraError(cause, action="this machine is too busy: run again when it does less")
        if stopped(self._child.pid):
            return InfraError(f"{what}: QEMU was stopped", action="run it again")
        found = self.failed(f"timed out after {patience.seconds:.0f} s (--timeout)")
        if isinstance(found, GuestError) and patience.seconds != USUAL_TIMEOUT_S:
            return TimeOutError(found.cause, console=found.console)
        return found

    def failed(self, what: str) -> KdeltaError:
        """The error for a failed guest; its type says whose fault it is."""
        return self._failure(self._end() if self.has_ended else what)

    def without_control(self, error: Exception) -> KdeltaError:
        """Why the control channel failed: mostly QEMU ended, and its last output says why."""
        select.select([self._ended], [], [], _END_S)
        if self.has_ended:
            return self._failure("QEMU ended at once")
        why = "it was stopped" if stopped(self._child.pid) else str(error) or type(error).__name__
        return InfraError(f"QEMU's control channel failed: {why}")

    def _wait(self, done: Callable[[], bool], timeout: float, what: str) -> None:
        patience, console, after = self.patience(timeout), 0, None
        for number in count():
            if done() or self.has_ended:
                return
            if number % _POLLS == 0:
                self.look()
                if after is None and self._console.size != console:
                    console = self._console.size
                    after = self.patience(_OOPS_S) if _reason(self.console_text, _OOPS) else None
                if after and not after.left:  # who holds the locks of a dead task waits for ever
                    raise self.failed("the kernel ended a task, and nothing more came")
            left = patience.left
            if not left:
                raise self.overdue(what, patience)
            select.select([self._ended], [], [], min(left, _POLL_S))

    def _end(self) -> str:
        return f"QEMU ended with exit status {self._child.returncode}"

    def _said(self) -> bytes:
        return self._port.read() or self._serial.read()

    def _greeted(self) -> bool:
        if self._greeting is None:
            self._greeting = orders.greeting(self._said())
        return self._greeting is not None

    def _answered(self) -> bool:
        """True when all answers are there.  Raises as `orders.answers` does."""
        heard = self._port.size + self._serial.size
        if heard == self._heard:
            return False
        self._heard = heard
        return len(orders.answers(self._orders, self._said()).answered) == len(self._orders)

    def _failure(self, what: str) -> KdeltaError:
        console = self.console_text
        said = self.stderr_text.splitlines()
        ended = self._child.poll()
        if fault := _KVM_FAULT.search(self._stderr.read(_MAX_STDERR)):
            words = fault[0].decode(errors="replace").strip()
            return InfraError(f"KVM cannot run this guest: {words}", action="see: kdelta doctor")
        if ended not in (None, 0) and said and not _reason(console):
            if said[-1].startswith(_PLUGIN_WRITES):
                return FullError(said[-1][:300], action="free some space, then resume the run")
            refused = self._restored and _NOT_TAKEN.search(self.stderr_text)
            kind = RestoreError if refused else InfraError
            return kind(f"QEMU: {said[-1][:300]}", action="see: kdelta doctor")
        asked = _ASKED_TO_END.search(self.stderr_text)
        if asked or (ended is not None and ended < 0):  # no guest can do that
            number = int(asked[1]) if asked else -(ended or 0)
            if number == signal.SIGBUS and self._saved:  # its memory does not fit
                return cache.disk_full(self._saved)
            why = "is memory short?" if number == signal.SIGKILL else "somebody did: run it again"
            return InfraError(f"QEMU was ended by signal {number}", action=why)
        reason = _reason(console)
        if not reason:
            last = [line.strip() for line in console.splitlines() if line.strip()]
            reason = f"last console line: {last[-1][:200]}" if last else "the console is empty"
        blamed = GuestError if self._restored or self._greeted() else BootError
        return blamed(f"{what}: {reason}", console=console)


def _state(launch: qemu.Launch, open_files: ExitStack) -> int:
    """The file of a guest's state, opened for QEMU, which may no longer be root then."""
    if launch.restore:
        flags, folder = os.O_RDONLY, launch.restore
    elif launch.save:
        flags, folder = os.O_WRONLY | os.O_CREAT | os.O_TRUNC, launch.save
    else:
        return -1
    try:
        found = os.open(folder / qemu.STATE, flags, 0o644)
    except FileNotFoundError as error:
        raise RestoreError("the saved guest has no state", place=str(folder)) from error
    open_files.callback(os.close, found)
    return found


def _reason(console: str, words: Sequence[str] = (*_REASONS, *_REASON_LINES)) -> str:
    """The line of a console that says why a guest ended; "" when none does."""
    for word in words:
        if (at := console.find(word)) >= 0:
            begin = at if word in _REASONS else max(console.rfind("\n", 0, at) + 1, at - 100)
            line = console[begin : begin + _MAX_REASON].partition("\n")[0]
            return line.removeprefix(_OWN_REASON).strip()
    return ""
