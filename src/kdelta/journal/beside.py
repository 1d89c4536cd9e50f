# SPDX-License-Identifier: GPL-2.0-or-later
"""What a trial told beside its counts, by phase: FOLDER/trials/0007/beside.json.gz."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kdelta.journal import packed
from kdelta.probes.memory import MemoryRow
from kdelta.probes.work import WorkRow

NAME = "beside.json.gz"
MOST = 256  # values of a histogram


class Histogram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values that a probe read, and how often, most first; missing: why it read none.

    Beyond MOST values: others of them, which were read others_count times.
    """

    values: dict[str, int] = {}
    others: int = 0
    others_count: int = 0
    missing: str = ""


class Beside(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of each phase, of the window that stands for it.

    work: kinds of instructions, by function.  memory: touched, where --probe memory asked for it,
    else None.  values: by probe as the study words it.  functions: of all phases, where each
    function of the kernel that ran lies: first address, first behind.
    """

    work: dict[str, tuple[WorkRow, ...]] = {}
    memory: dict[str, tuple[MemoryRow, ...]] | None = None
    values: dict[str, dict[str, Histogram]] = {}
    functions: dict[str, tuple[tuple[int, int], ...]] = {}


def keep(place: Path, beside: Beside) -> None:
    """Write it into a trial's folder."""
    packed.keep(place, NAME, beside)


def kept(folder: Path, index: int) -> Beside:
    """That of a trial of the run in a folder.  Raises SpecError, StoreError."""
    return packed.kept(
        folder,
        index,
        NAME,
        Beside,
        what="kinds of work",
        action="count again: kdelta run ... --new",
    )[1]
