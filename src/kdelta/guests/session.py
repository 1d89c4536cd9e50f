# SPDX-License-Identifier: GPL-2.0-or-later
"""A running guest: its process, its console, and the order port to our PID 1 in it."""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from kdelta import process
from kdelta.errors import BootError, Cancelled, GuestError, InfraError, KdeltaError
from kdelta.guests import qemu
from kdelta.guests.emulator import Qemu
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import GuestIdentity, parse_identity
from kdelta.machine.readback import Lacking, lacking

if TYPE_CHECKING:
    from qemu.qmp import QMPClient

_PROTOCOL = 1
_CHUNK = 1 << 16
_MAX_CONSOLE = 1 << 20
_MAX_ANSWER = 64 << 20
_MAX_STDERR = 1 << 16
_DRAIN_S = 1.0
_CONNECT_S = 60.0  # reserving huge pages comes first
_MAX_REASON = 300
_DONE = re.compile(rb"(?:^|\n)kdelta-done (-?\d{1,10})\n")
_READY = re.compile(rb"(?:^|\n)kdelta-ready (\d{1,4}) settled=([01])\n")
# What a console line holds that says why a guest ended; of the last ones the whole line counts.
_OWN_REASON = "kdelta-init: "
_REASONS = (_OWN_REASON, "Kernel panic - not syncing: ", "BUG: ", "Oops: ")
_REASON_LINES = ("Decoding failed", "Invalid magic", "corrupted")
# What KVM could not execute is this machine's fault; QEMU then stays, stopped.
_KVM_FAULT = re.compile(rb"(KVM internal error|KVM: entry failed|error: kvm run failed)[^\n]*")


class RestoreError(InfraError):
    """QEMU does not take a checkpoint: another one has to be made."""


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
        """Start QEMU.  with_qmp: open `qmp`, a control channel.  Raises InfraError."""
        self._ready = self._restoring = launch.restore is not None
        self._cancelled = cancelled or threading.Event()
        self._answer = bytearray()
        self._console = bytearray()
        self._dropped = 0
        self._stderr = bytearray()
        self._selector = selectors.DefaultSelector()
        with ExitStack() as theirs:
            self._port, port = _pair(theirs)
            self._serial, serial = _pair(theirs)
            self._console_end, console = _pair(theirs)
            self.qmp: socket.socket | None = None
            control: socket.socket | None = None
            if with_qmp:
                self.qmp, control = _pair(theirs)
            self._speaker = self._serial if launch.serial else self._port
            by_fd = launch.restore if qemu.needs_open_checkpoint(emulator) else None
            state = theirs.enter_context(by_fd.open("rb")) if by_fd else None
            channels = qemu.Channels(
                port=port.fileno(),
                serial=serial.fileno(),
                console=console.fileno(),
                qmp=control.fileno() if control else -1,
                incoming=state.fileno() if state else -1,
            )
            self.argv = qemu.command(emulator, settings, launch, channels)
            self._child = process.start(
                self.argv,
                stderr=subprocess.PIPE,
                env=emulator.environment,
                pass_fds=channels.inherited,
                die_with_caller=True,
            )
        self._watch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End QEMU and drop the channels; what was read stays readable."""
        self._drain()
        process.end(self._child)
        self._selector.close()
        for channel in (self._port, self._serial, self._console_end, self.qmp):
            if channel:
                channel.close()

    @property
    def console_text(self) -> str:
        """What the kernel and PID 1 wrote to the console, control characters replaced."""
        raw = bytes(self._console)
        if self._dropped:
            half = _MAX_CONSOLE // 2
            note = f"\n[kdelta: {self._dropped} bytes left out here]\n".encode()
            raw = raw[:half] + note + raw[half:]
        text = raw.decode(errors="replace").replace("\r\n", "\n")
        return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)

    @asynccontextmanager
    async def control(self) -> AsyncIterator[QMPClient]:
        """The control channel of a guest that was started with_qmp.  Raises InfraError."""
        from qemu.qmp import QMPClient

        if self.qmp is None:
            raise InfraError("the guest was started without a control channel")
        client = QMPClient("kdelta")
        client.logger.disabled = True
        self.qmp.settimeout(0)
        await asyncio.wait_for(client.connect(self.qmp), _CONNECT_S)
        try:
            yield client
        finally:
            await client.disconnect()

    @property
    def pid(self) -> int:
        """Process number of QEMU."""
        return self._child.pid

    @property
    def stderr_text(self) -> str:
        """What QEMU itself said."""
        return self._stderr.decode(errors="replace").strip()

    def wait_ready(self, timeout: float) -> bool:
        """Wait for PID 1's greeting; True when the guest had settled.  Raises BootError."""
        match = self._await(_READY, timeout, "PID 1 did not greet")
        if int(match[1]) != _PROTOCOL:
            raise GuestError("PID 1 speaks another protocol", action="clear it: kdelta cache clear")
        self._ready = True
        return match[2] == b"1"

    def ask(self, order: str, timeout: float) -> tuple[str, int]:
        """Give PID 1 an order; its answer's text and the status that ends it."""
        self._order(order, timeout)
        return self._answer_to(order, timeout)

    def _answer_to(self, order: str, timeout: float) -> tuple[str, int]:
        match = self._await(_DONE, timeout, f"no answer to '{order.partition(' ')[0]}'")
        text = bytes(match.string[: match.start()]).decode(errors="replace")
        return text, int(match[1])

    @property
    def speaks_serial(self) -> bool:
        """True when PID 1 uses the serial line: its kernel has no virtio console built in."""
        return self._speaker is self._serial

    def identity(self, timeout: float) -> GuestIdentity:
        """What the guest sees of itself.  Raises GuestError for garbage."""
        text, _ = self.ask("identity", timeout)
        return parse_identity(text.splitlines())

    def kallsyms(self, timeout: float) -> str:
        """Text of the guest's /proc/kallsyms.  Raises GuestError when it has none."""
        text, status = self.ask("kallsyms", timeout)
        if status:
            raise GuestError("the kernel has no /proc/kallsyms (CONFIG_KALLSYMS=y is needed)")
        return text

    def prepared(self, settings: MachineSettings, timeout: float) -> GuestIdentity:
        """Set in the guest what is set at run time; what it then is.  Raises Lacking."""
        read: dict[str, str] = {}
        for path, value in settings.files:
            if status := self.write(path, value, timeout):
                why = os.strerror(status) if status > 0 else "no answer"
                raise Lacking(f"the kernel does not take {value!r} in {path}: {why}")
            read[path] = self.read(path, timeout)
        identity = replace(self.identity(timeout), files=read)
        if lack := lacking(settings, identity):
            raise Lacking(lack)
        return identity

    def write(self, path: str, value: str, timeout: float) -> int:
        """Set a file of the guest's /sys or /proc; 0, or the errno of the failure."""
        _, status = self.ask(f"write {path} {value}", timeout)
        return status

    def read(self, path: str, timeout: float) -> str:
        """The first line of a file of the guest's /sys or /proc; "" when it has none."""
        return self.ask(f"read {path}", timeout)[0].strip()

    def load_module(self, module: Path, timeout: float) -> int:
        """Load a kernel module; 0, or the errno of the failure.

        A guest on the serial line takes it from QEMU's fw_cfg device: see Launch.modules.
        """
        content = module.read_bytes()
        order = f"module {module.stem} {len(content)}"
        self._order(order, timeout)
        if not self.speaks_serial:
            self._send(content, timeout)
        return self._answer_to(order, timeout)[1]

    def module_symbols(self, timeout: float) -> str:
        """The lines of /proc/kallsyms that belong to modules."""
        return self.ask("modules", timeout)[0]

    def swap_on(self, device: str, timeout: float) -> int:
        """Make a block device of the guest swap and use it; 0, or the errno of the failure."""
        return self.ask(f"swapon {device}", timeout)[1]

    def run(self, program: Path, arguments: Sequence[str], timeout: float) -> tuple[str, int]:
        """Run a static program in the guest; what it printed and its exit status.

        A guest on the serial line takes it from QEMU's fw_cfg device: give it to the constructor.
        """
        payload = program.read_bytes()
        order = " ".join(["run", str(len(payload)), *arguments])
        self._order(order, timeout)
        if not self.speaks_serial:
            self._send(payload, timeout)
        return self._answer_to(order, timeout)

    def _watch(self) -> None:
        for channel in (self._port, self._serial, self._console_end):
            channel.settimeout(0)
        self._selector.register(self._port, selectors.EVENT_READ, self._answer)
        self._selector.register(self._serial, selectors.EVENT_READ, self._answer)
        self._selector.register(self._console_end, selectors.EVENT_READ, self._console)
        if self._child.stderr:
            self._selector.register(self._child.stderr, selectors.EVENT_READ, self._stderr)

    def _order(self, order: str, timeout: float) -> None:
        # A serial port of a guest that is still being restored takes one byte and then forgets
        # it: the empty line before an order is that byte, or is ignored by PID 1.
        self._send(b"\n" + order.encode() + b"\n", timeout)

    def _send(self, data: bytes, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        view = memoryview(data)
        while view:
            if time.monotonic() > deadline:
                raise self._failure("the guest does not read its orders")
            try:
                view = view[self._speaker.send(view[:_CHUNK]) :]
            except BlockingIOError:
                self._pump(0.01)
            except OSError as error:
                self._drain()
                raise self._failure("QEMU ended while an order was sent") from error
            self._check_alive()

    def _await(self, pattern: re.Pattern[bytes], timeout: float, what: str) -> re.Match[bytes]:
        deadline = time.monotonic() + timeout
        searched = 0
        while True:
            if pattern.search(self._answer, max(0, searched - 64)):
                match = pattern.search(bytes(self._answer))
                if match:
                    del self._answer[: match.end()]
                    self._restoring = False
                    return match
            searched = len(self._answer)
            if searched > _MAX_ANSWER:
                raise self._failure(f"the guest sent more than {_MAX_ANSWER >> 20} MiB")
            if time.monotonic() > deadline:
                raise self._failure(f"{what} within {timeout:.0f} s")
            self._pump(min(0.2, max(0.0, deadline - time.monotonic())))
            self._check_alive()

    def _check_alive(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled
        if _KVM_FAULT.search(self._stderr):
            raise self._failure("KVM stopped")
        if self._child.poll() is None:
            return
        self._drain()
        if not any(pattern.search(self._answer) for pattern in (_DONE, _READY)):
            raise self._failure(f"QEMU ended with exit status {self._child.returncode}")

    def _drain(self) -> None:
        """Take what is there; a guest that never stops talking is cut off."""
        deadline = time.monotonic() + _DRAIN_S
        while self._pump(0.0) and time.monotonic() < deadline:
            pass

    def _pump(self, wait: float) -> bool:
        """Move what the channels have into the buffers; False when they had nothing."""
        moved = False
        for key, _ in self._selector.select(wait):
            data = _read(key.fileobj)  # type: ignore[arg-type]
            if data:
                moved = True
                self._keep(key.data, data)
                if key.fileobj is self._serial:
                    self._speaker = self._serial
            elif data is not None:
                self._selector.unregister(key.fileobj)
        return moved

    def _keep(self, buffer: bytearray, data: bytes) -> None:
        buffer += data
        if buffer is self._console and len(buffer) > _MAX_CONSOLE:
            excess = len(buffer) - _MAX_CONSOLE
            half = _MAX_CONSOLE // 2
            del buffer[half : half + excess]
            self._dropped += excess
        elif buffer is self._stderr and len(buffer) > _MAX_STDERR:
            del buffer[_MAX_STDERR:]
        elif buffer is self._answer and len(buffer) > _MAX_ANSWER + 1:
            del buffer[_MAX_ANSWER + 1 :]

    def _failure(self, what: str) -> KdeltaError:
        """The error for what happened: whose fault it is shows in what was said where."""
        self._drain()
        console = self.console_text
        said = self.stderr_text.splitlines()
        ended = self._child.poll()
        fault = _KVM_FAULT.search(self._stderr)
        if fault:
            words = fault[0].decode(errors="replace").strip()
            return InfraError(f"KVM cannot run this guest: {words}", action="see: kdelta doctor")
        if ended not in (None, 0) and said and not _reason(console):
            kind = RestoreError if self._restoring else InfraError
            return kind(f"QEMU: {said[-1][:300]}", action="see: kdelta doctor")
        if ended is not None and ended < 0:  # no guest can do that
            return InfraError(f"QEMU was ended by signal {-ended}", action="is memory short?")
        reason = _reason(console)
        if not reason:
            last = [line.strip() for line in console.splitlines() if line.strip()]
            reason = f"last console line: {last[-1][:200]}" if last else "the console is empty"
        blamed = GuestError if self._ready else BootError
        return blamed(f"{what}: {reason}", console=console)


def _pair(theirs: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Our end and QEMU's end of a channel; QEMU's is closed here once QEMU has it."""
    ours, end = socket.socketpair()
    return ours, theirs.enter_context(end)


def _read(channel: socket.socket | IO[bytes]) -> bytes | None:
    """Bytes; b"" at the end of the stream; None when there is nothing now."""
    try:
        if isinstance(channel, socket.socket):
            return channel.recv(_CHUNK)
        return channel.read1(_CHUNK)  # type: ignore[attr-defined,no-any-return]
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _reason(console: str) -> str:
    """The line of a console that says why a guest ended; "" when none does."""
    for word in (*_REASONS, *_REASON_LINES):
        at = console.find(word)
        if at >= 0:
            begin = at if word in _REASONS else max(console.rfind("\n", 0, at) + 1, at - 100)
            line = console[begin : begin + _MAX_REASON].partition("\n")[0]
            return line.removeprefix(_OWN_REASON).strip()
    return ""
