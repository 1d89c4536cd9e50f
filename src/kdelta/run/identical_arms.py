# SPDX-License-Identifier: GPL-2.0-or-later
"""Arms that need no boot: their image, or all code that the scenario executes, is another arm's.

Kernels built from one source differ in little.  Equal bytes are equal counts.  Where the bytes
differ, the functions that the scenario executed in the first arm, and those that these call, are
compared in both images (disassembly.identity, which says what that cannot see).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from kdelta.disassembly import image
from kdelta.disassembly.identity import Sameness, compare
from kdelta.errors import KdeltaError
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.sample import Copied, CopyKind, Outcome, TrialRecord, TrialResult


class IdenticalArms:
    """Which arms of a run may turn out to be the same code as an earlier one."""

    def __init__(
        self, kernels: Sequence[Kernel | KdeltaError], machines: Sequence[MachineSettings]
    ) -> None:
        """kernels, machines: per arm."""
        self._kernels = kernels
        self._leaders = {
            at: leader
            for at in range(len(kernels))
            if (leader := _leader(kernels, machines, at)) is not None
        }

    def waits(self, arm: int) -> bool:
        """True for an arm that is looked at after the others, since it may be one of them."""
        return arm in self._leaders

    def result(self, trial: TrialRecord, finished: Sequence[TrialRecord]) -> TrialResult | None:
        """The result of a trial that need not be measured, or None.

        finished: trials of the same scenario with their results.
        """
        own = self._kernels[trial.arm]
        leader = self._leaders.get(trial.arm)
        if leader is None or not isinstance(own, Kernel):
            return None
        other = self._kernels[leader]
        measured = _of_round(trial, [each for each in finished if each.arm == leader])
        if measured is None or measured.result is None or not isinstance(other, Kernel):
            return None
        known = measured.result
        why = _same(own, other, known)
        if why is None:
            return None
        why = replace(why, trial=measured.index)
        kernel = own.identity()
        if own.image_sha256 == other.image_sha256 and known.kernel:
            # What the guest read back of itself lies in the image.
            read = known.kernel
            kernel = replace(kernel, build_id=read.build_id, compiler=read.compiler)
        return replace(known, kernel=kernel, copied=why, wall_s=0.0, artifacts={})


def _leader(
    kernels: Sequence[Kernel | KdeltaError], machines: Sequence[MachineSettings], arm: int
) -> int | None:
    """The first arm on the same machine that has the same image, or is built from source too."""
    own = kernels[arm]
    if not isinstance(own, Kernel):
        return None
    for at in range(arm):
        other = kernels[at]
        if not isinstance(other, Kernel) or (machines and machines[at] != machines[arm]):
            continue
        if own.image_sha256 == other.image_sha256 or (own.source and other.source):
            return at
    return None


def _of_round(trial: TrialRecord, finished: Sequence[TrialRecord]) -> TrialRecord | None:
    """The leader's good trial, of the same round when there is one."""
    good = [each for each in finished if each.result and each.result.outcome is Outcome.OK]
    good.sort(
        key=lambda each: ((each.round, each.varies) != (trial.round, trial.varies), each.index)
    )
    return good[0] if good else None


def _same(own: Kernel, other: Kernel, known: TrialResult) -> Copied | None:
    """Why the two need not both be measured; None when they must."""
    name = other.name or other.release or other.reference
    if own.image_sha256 == other.image_sha256:
        return Copied(kind=CopyKind.SAME_IMAGE, sentence=f"same image as {name}, to the byte")
    executed = frozenset(row.function for row in known.exact.functions)
    try:
        found = compare(_opened(own.image, own.release), _opened(other.image, name), executed)
    except KdeltaError:
        return None  # code that cannot be read is measured
    if found.sameness is not Sameness.IDENTICAL:
        return None
    count = len(found.identical)
    said = f"same code as {name} in all {count} functions that are executed or called"
    return Copied(kind=CopyKind.SAME_CODE, sentence=said)


@lru_cache(maxsize=8)
def _opened(path: Path, label: str) -> image.Image:
    return image.opened(path, label)
