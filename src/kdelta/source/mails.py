# SPDX-License-Identifier: GPL-2.0-or-later
"""Mails that others wrote: an mbox, or a git mirror of a list as public-inbox makes them."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from kdelta.errors import SpecError
from kdelta.printable import printable
from kdelta.source import git

_MOST = 200  # mails that are told
_MAIL = 1 << 20  # bytes of one that are looked at
_LINE = 1 << 16
_DATE = 31
_SUBJECT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One mail, as far as it is told."""

    date: str
    subject: str


def naming(place: Path, words: Sequence[str]) -> tuple[Mail, ...]:
    """Mails that name one of the words, the newest last: whole words, in the subject or the text.

    Of a git mirror the subjects alone are looked at.  Raises SpecError for what is neither.
    """
    wanted = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words))
    if place.is_file():
        return tuple(_of_mbox(place, wanted))[-_MOST:]
    done = git.ask(place, "log", "--reverse", "--format=%as%x00%s", f"--max-count={_MOST * 1000}")
    if done.returncode:
        raise SpecError(
            "neither an mbox nor a git mirror of a list",
            place=str(place),
            action="give a file of mails, or an epoch of a public-inbox mirror (ARCHIVE/git/0.git)",
        )
    pairs = (line.partition("\0") for line in done.stdout.splitlines())
    found = [
        Mail(date=date, subject=_subject(text)) for date, _, text in pairs if wanted.search(text)
    ]
    return tuple(found[-_MOST:])


def _of_mbox(path: Path, wanted: re.Pattern[str]) -> Iterator[Mail]:
    for content in _mails(path):
        message = email.message_from_bytes(content, policy=email.policy.compat32)
        subject = str(message.get("Subject", ""))
        if wanted.search(subject) or wanted.search(_text(message)):
            date = printable(str(message.get("Date", "")), _DATE)
            yield Mail(date=date, subject=_subject(subject))


def _mails(path: Path) -> Iterator[bytes]:
    """The mails of an mbox, each as far as it is looked at; lines of any length are bounded."""
    kept: list[bytes] = []
    size, fresh, blank = 0, True, True
    with path.open("rb") as stream:
        while line := stream.readline(_LINE):
            if fresh and blank and line.startswith(b"From "):
                if kept:
                    yield b"".join(kept)
                kept, size = [], 0
            elif size < _MAIL:
                kept.append(line)
                size += len(line)
            blank = fresh and line in (b"\n", b"\r\n")
            fresh = line.endswith(b"\n")
    if kept:
        yield b"".join(kept)


def _text(message: Message) -> str:
    for part in message.walk():
        if part.get_content_type() == "text/plain":
            content = part.get_payload(decode=True)
            return content.decode(errors="replace") if isinstance(content, bytes) else ""
    return ""


def _subject(text: str) -> str:
    return printable(" ".join(text.split()), _SUBJECT)
