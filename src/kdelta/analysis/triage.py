# SPDX-License-Identifier: GPL-2.0-or-later
"""What people say of steps: a text file that they edit and git merges, a line for each step.

mprotect:shared_dirty_full_toggle_64m 6.16.12 6.17.13 accepted: the price of the fix in ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kdelta.errors import SpecError
from kdelta.printable import quoted

OPEN = "open"
STATES = (OPEN, "accepted", "repaired", "compiler")
_LINE = re.compile(r"(\S+) (\S+) (\S+) (\w+)(?:: ?(.{0,500}))?")
_MOST_LINES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """States by scenario, old and new kernel; the first word of a scenario is its name."""

    states: Mapping[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)

    def of(self, scenario: str, old: str, new: str) -> tuple[str, str]:
        """State of a step and what was said of it; open where nobody said anything."""
        return self.states.get((scenario.partition(" ")[0], old, new), (OPEN, ""))


def read(text: str, place: str) -> Triage:
    """Parse the file.  Raises SpecError with the number of the line."""
    found: dict[tuple[str, str, str], tuple[str, str]] = {}
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        raise SpecError(f"more than {_MOST_LINES} lines", place=place)
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fitting = _LINE.fullmatch(line.strip())
        if not fitting or fitting[4] not in STATES:
            raise SpecError(
                f"{quoted(line, 80)} is not SCENARIO OLD NEW STATE: WORDS",
                place=f"{place}, line {number}",
                action=f"states: {', '.join(STATES)}",
            )
        found[fitting[1], fitting[2], fitting[3]] = fitting[4], fitting[5] or ""
    return Triage(states=found)
