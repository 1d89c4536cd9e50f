# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks the messages of all commits up to HEAD; run by ./check as the gate `commits`.

A subject reads `room: what changed`, at most 72 characters, lower case after the colon (names
such as QEMU keep theirs), no full stop.  The body says why and is never empty.  A revert quotes
the subject that it takes back, as git and the kernel write it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAX_SUBJECT = 72
_SUBJECT = re.compile(r"(?P<room>[a-z0-9_.][a-z0-9_./-]*(?:, [a-z0-9_./-]+)*): (?P<what>\S.*)")
_CAPITALISED = re.compile(r"[A-Z][a-z]+\b")
_TRAILER = re.compile(r"[A-Z][A-Za-z-]+: \S")


def problems(message: str) -> list[str]:
    """What is wrong with one commit message; empty when nothing is."""
    subject, _, body = message.partition("\n")
    found = []
    match = _SUBJECT.fullmatch(re.sub(r'^Revert "(.*)"$', r"\1", subject))
    if not match:
        found.append("the subject is not of the form `room: what changed`")
    elif _CAPITALISED.match(match["what"]):
        found.append("the subject starts with a capital after the colon")
    if len(subject) > MAX_SUBJECT:
        found.append(f"the subject has {len(subject)} characters, more than {MAX_SUBJECT}")
    if subject.endswith("."):
        found.append("the subject ends with a full stop")
    if body and not body.startswith("\n"):
        found.append("no empty line after the subject")
    if not any(line.strip() and not _TRAILER.match(line) for line in body.splitlines()):
        found.append("the body does not say why")
    return found


def history(repository: Path) -> list[tuple[str, str]]:
    """(abbreviated hash, message) of every commit up to HEAD but merges; empty without commits."""
    argv = ["git", "-C", str(repository), "log", "-z", "--no-merges", "--format=%h%n%B"]
    log = subprocess.run(argv, capture_output=True, text=True, check=False)
    commits = (entry.partition("\n") for entry in log.stdout.split("\0") if entry)
    return [(name, message) for name, _, message in commits]


def main() -> int:
    """Print what is wrong, commit by commit; 1 if anything is."""
    commits = history(Path(__file__).resolve().parent.parent)
    wrong = 0
    for name, message in commits:
        for problem in problems(message):
            wrong += 1
            sys.stdout.write(f"{name} {message.splitlines()[0] if message else ''}: {problem}\n")
    sys.stdout.write(f"{len(commits)} commit messages, {wrong} problems\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
