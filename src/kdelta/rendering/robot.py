# SPDX-License-Identifier: GPL-2.0-or-later
"""The answer to a report of the kernel test robot, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from kdelta.check.compare import CountDifference
from kdelta.check.page import Direction
from kdelta.check.robot import RobotReport, RobotRow

_ABOUT = (
    "A path length is never a time; contention, caches and devices are not in it. The figure covers"
    " everything that differs between the two kernels, not this commit alone."
)


def heading(report: RobotReport, row: RobotRow) -> Iterator[str]:
    """What is asked: the commit, the change, and a device that the test had."""
    yield f'{report.commit[:12]} ("{report.title}"): {row.percent:+g} % of {row.metric}'
    if report.devices:
        yield f"The test had {report.devices}; a scenario has memory alone."


def undecided(found: CountDifference) -> str:
    """Why the counts give no answer, or ""."""
    if not found.before or found.after is None:
        return f"it was not counted: {found.reason}"
    if found.signless:
        return found.signless
    return "" if found.sure else found.reason or "the count scatters more than it differs"


def answer_lines(
    row: RobotRow, better: Direction, found: CountDifference, where: str
) -> Iterator[str]:
    """How much of the published change a path length explains.

    A path of p percent more instructions, at the same time an instruction, is p percent more time
    and a rate of 100 / (100 + p).  where: the scenario and the kernels, in words.
    """
    if why := undecided(found):
        yield f"Cannot be said: {why}."
        return
    longer = 100 * ((found.after or 0.0) / (found.before or 1.0) - 1)
    moved = longer if better is Direction.LESS else 100 * (100 / (100 + longer) - 1)
    where = f"{where}: path {longer:+.2f} %"
    if not longer:
        yield f"Not a path length: it is the same to the instruction ({where})."
    elif moved * row.percent <= 0:
        yield f"Not explained by path length, which went the other way ({where})."
    else:
        part = min(abs(moved), abs(row.percent))
        yield f"Path length explains {part:.1f} of {abs(row.percent):g} % ({where})."
    yield _ABOUT
