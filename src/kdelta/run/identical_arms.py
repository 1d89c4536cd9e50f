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
        """The result of a trial that need not be measured.  finished: those of its scenario."""
        own = self._kernels[trial.arm]
        leader = self._leaders.get(trial.arm)
        if leader is None or not isinstance(own, Kernel):
            return None
        other = self._kernels[leader]
        good = [
            ((each.round, each.varies) != (trial.round, trial.varies), each.index, each.result)
            for each in finished
            if each.arm == leader and each.result and each.result.outcome is Outcome.OK
        ]
        if not good or not isinstance(other, Kernel):
            return None
        _, index, known = min(good, key=lambda row: row[:2])  # of the same round, if any is
        why = _same(own, other, known)
        if why is None:
            return None
        why = replace(why, trial=index)
        kernel = own.identity()
        if own.image_sha256 == other.image_sha256 and known.kernel:
            # What the guest read back of itself lies in the image.
            read = known.kernel
            kernel = replace(kernel, build_id=read.build_id, compiler=read.compiler)
        return replace(known, kernel=kernel, copied=why, wall_s=0.0, artifacts={})


def _leader(
    kernels: Sequence[Kernel | KdeltaError], machines: Sequence[MachineSettings], arm: int
) -> int | None:
    own = kernels[arm]
    for at, other in enumerate(kernels[:arm]):
        if not isinstance(own, Kernel) or not isinstance(other, Kernel):
            continue
        alike = own.image_sha256 == other.image_sha256 or (own.source and other.source)
        if alike and (not machines or machines[at] == machines[arm]):
            return at
    return None


def _same(own: Kernel, other: Kernel, known: TrialResult) -> Copied | None:
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
