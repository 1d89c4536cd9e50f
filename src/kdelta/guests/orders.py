# SPDX-License-Identifier: GPL-2.0-or-later
"""Orders to PID 1 of a guest, and its answers: the protocol of guest/init.c.

Orders lie in a file that the guest finds at its start and obeys up to the first that fails; all
answers come in one piece when it has done so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kdelta.errors import GuestError
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import GuestIdentity, parse_identity
from kdelta.machine.readback import Lacking, lacking

_PROTOCOL = 2
_HEAD = re.compile(rb"kdelta-answer (-?\d{1,10}) (\d{1,10})\n")
_STATUS = re.compile(r"-?\d{1,10}")
_READY = re.compile(rb"(?:^|\n)kdelta-ready (\d{1,4}) ([01]) (\d{1,6})\n")


@dataclass(frozen=True, slots=True)
class Order:
    """A line for PID 1.

    lacks: what a kernel lacks that fails it with this errno; None for an order that no kernel
    fails.
    """

    line: str
    lacks: Callable[[int], str] | None = None

    @property
    def word(self) -> str:
        """What it orders."""
        return self.line.partition(" ")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a booted guest says by itself.  settled: its background work had died down."""

    settled: bool
    identity: GuestIdentity


@dataclass(frozen=True, slots=True)
class Answers:
    """Texts and statuses of the orders that were obeyed, in their order."""

    orders: tuple[Order, ...]
    answered: tuple[tuple[str, int], ...]

    def text(self, line: str) -> str:
        """The answer to an order.  Raises GuestError when there is none."""
        return self._of(line)[0]

    def ran(self) -> tuple[str, int]:
        """What the program printed, and its exit status."""
        return next(self._of(order.line) for order in self.orders if order.word == "run")

    def identity(self, settings: MachineSettings) -> GuestIdentity:
        """What the guest is, with the files that were set in it.

        Raises Lacking when it is not what was asked for.
        """
        known = parse_identity(self.text("identity").splitlines())
        read = {path: self.text(f"read {path}").strip() for path, _ in settings.files}
        identity = replace(known, files=read)
        if lack := lacking(settings, identity):
            raise Lacking(lack)
        return identity

    def _of(self, line: str) -> tuple[str, int]:
        for order, answer in zip(self.orders, self.answered, strict=False):
            if order.line == line:
                return answer
        raise GuestError(f"the guest did not answer {line.partition(' ')[0]!r}")


def of_settings(settings: MachineSettings) -> tuple[Order, ...]:
    """The orders that set what is set in a running guest, and read it back."""
    found = []
    for path, value in settings.files:
        found += [Order(f"write {path} {value}", _refused(path, value)), Order(f"read {path}")]
    return (*found, Order("identity"))


def _refused(path: str, value: str) -> Callable[[int], str]:
    return lambda status: f"the kernel does not take {value!r} in {path}: {why(status)}"


def why(status: int) -> str:
    """The words for an errno."""
    return os.strerror(status) if status > 0 else "no answer"


def run(arguments: Sequence[str]) -> Order:
    """The order that runs the program."""
    return Order(" ".join(["run", *arguments]))


def attempt(line: str) -> Order:
    """An order whose failure ends nothing else: `attempted` says whether it failed."""
    return Order(f"try {line}")


def attempted(text: str) -> tuple[str, int]:
    """The answer and status of an order that was tried.  Raises GuestError for garbage."""
    found, _, status = text.removesuffix("\n").rpartition("\n")
    if not _STATUS.fullmatch(status):
        raise GuestError("the guest did not say what came of an order")
    return found, int(status)


def told(orders: Sequence[Order]) -> bytes:
    """The file of orders."""
    return b"".join(order.line.encode() + b"\n" for order in orders)


def greeting(said: bytes) -> Greeting | None:
    """The greeting at the beginning of what a guest wrote; None while it is not there.

    Raises GuestError for garbage and for a PID 1 of another kdelta.
    """
    match = _READY.search(said)
    if not match:
        return None
    if int(match[1]) != _PROTOCOL:
        raise GuestError("PID 1 speaks another protocol", action="clear it: kdelta cache clear")
    text = said[match.end() : match.end() + int(match[3])]
    if len(text) < int(match[3]):
        return None
    identity = parse_identity(text.decode(errors="replace").splitlines())
    return Greeting(settled=match[2] == b"1", identity=identity)


def answers(orders: Sequence[Order], said: bytes) -> Answers:
    """The answers in what a guest wrote, as far as they are whole.

    Raises Lacking when the last says that the kernel cannot do what was ordered.
    """
    found: list[tuple[str, int]] = []
    booted = _READY.search(said)
    at = booted.end() + int(booted[3]) if booted else 0
    while len(found) < len(orders) and (head := _HEAD.match(said, at)):
        at = head.end() + int(head[2])
        if at > len(said):
            break
        text = said[head.end() : at].decode(errors="replace")
        found.append((text, int(head[1])))
    if found and found[-1][1]:
        _judge(orders[len(found) - 1], found[-1][1])
    return Answers(tuple(orders), tuple(found))


def _judge(order: Order, status: int) -> None:
    """What it means that an order failed; the program's own failures are the caller's."""
    if order.word == "run":
        return
    if order.lacks is None:
        raise GuestError(f"the guest cannot do {order.word!r}: {why(status)}")
    raise Lacking(order.lacks(status))
