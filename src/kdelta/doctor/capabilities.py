# SPDX-License-Identifier: GPL-2.0-or-later
"""What one row of `kdelta doctor` says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kdelta.errors import as_root

EXACT_NEEDS = frozenset({"Python", "QEMU (amd64)", "C compiler (amd64)", "memory", "cache"})
"""Rows without which no exact run works; of several with one name, one usable is enough."""


class Usability(StrEnum):
    """Whether a capability can be used on this machine."""

    OK = "ok"
    FETCHED = "when needed"  # not here, and kdelta fetches it by itself when it first needs it
    MISSING = "missing"  # not installed or not set up: the remedy adds it
    UNUSABLE = "unusable"  # there, and does not do its work
    ABSENT = "absent"  # this machine or its kernel does not have it


@dataclass(frozen=True, slots=True)
class Tried:
    """What trying something showed.

    detail: one clause; remedy: command or step that adds it, "" when there is none.
    """

    state: Usability
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One thing this machine can or cannot do.  purpose: what it is for; the others: of Tried."""

    name: str
    state: Usability
    detail: str
    purpose: str
    remedy: str = ""


def lacking(rows: Iterable[Capability]) -> frozenset[str]:
    """What exact runs need, and what is neither here nor fetched when it is needed."""
    usable = (Usability.OK, Usability.FETCHED)
    return EXACT_NEEDS - {row.name for row in rows if row.state in usable}


def install(*packages: str) -> str:
    """Command that adds Debian packages, for the user who runs this."""
    return as_root(f"apt-get install {' '.join(packages)}")
