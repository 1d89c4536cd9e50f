# SPDX-License-Identifier: GPL-2.0-or-later
"""Which compiler built a kernel, and where that is a part of a difference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from kdelta.analysis.evidence import ArmEvidence, M


def warnings(arms: Sequence[ArmEvidence[M]]) -> list[str]:
    """Say it when neighbours were built by different compilers: a step may be theirs."""
    known = [(arm.arm.label, name) for arm in arms if not arm.arm.control and (name := _of(arm))]
    return [
        f"{old} was built by {was}, {new} by {now}: part of the difference may be theirs"
        for (old, was), (new, now) in pairwise(known)
        if was != now
    ]


def _of(arm: ArmEvidence[M]) -> str:
    kernels = (trial.result.kernel for trial in arm.used if trial.result and trial.result.kernel)
    return next((short(kernel.compiler) for kernel in kernels if kernel.compiler), "")


def short(banner: str) -> str:
    """The "gcc 14.2.0" of "x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"."""
    match = re.match(
        r"(?:\S*-)?(gcc|clang)\b(?:-[\d.]+)?(?: \([^)]*\))?(?: version)? (\d[\w.]*)", banner
    )
    return f"{match[1]} {match[2]}" if match else banner[:30]
