# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of the shipped scenarios a survey counts."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from kdelta import workload


def surveyed(only: Sequence[str] = (), *, field: bool = False) -> list[str]:
    """Scenarios of the survey that fit one of the patterns `only`, by reference.

    field: those too that robots have a name for; where patterns choose they are among them anyway.
    """
    return [
        one.reference
        for name in workload.names()
        for one in workload.load(name).scenarios
        if (one.survey or (one.robots and (field or only)))
        and (not only or any(fnmatchcase(one.reference, pattern) for pattern in only))
    ]
