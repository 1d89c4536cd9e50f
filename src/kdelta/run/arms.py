# SPDX-License-Identifier: GPL-2.0-or-later
"""A study's arms: which kernel each one is, what tables call it, and which need no boot.

Equal bytes are equal counts.  Equal code of what ran is not: data, and what the kernel did before
the windows, decide as well, so every other image is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from kdelta.archive.index import upstream_of
from kdelta.errors import KdeltaError, SpecError
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.printable import printable
from kdelta.sample import ArmRecord, Copied, KernelIdentity, Outcome, TrialRecord, TrialResult
from kdelta.source import tree_reference
from kdelta.study.spec import Study, has_control, points

_MAX_LABEL = 200


def planned(study: Study) -> tuple[str, ...]:
    """The reference of each arm: at each point the kernels and, in a sandwich, the first again."""
    control = study.kernels[:1] if has_control(study) else ()
    return (*study.kernels, *control) * len(points(study))


def machines(study: Study) -> tuple[MachineSettings, ...]:
    """The machine of each arm."""
    each = len(study.kernels) + has_control(study)
    return tuple(point.machine for point in points(study) for _ in range(each))


def records(study: Study, kernels: Sequence[Kernel | KdeltaError] | None) -> tuple[ArmRecord, ...]:
    """One record per arm.  kernels: of each planned reference; None: this host's."""
    names = planned(study)
    found: Sequence[Kernel | KdeltaError | None] = kernels or [None] * len(names)
    identities = [
        kernel.identity() if isinstance(kernel, Kernel) else _unknown(study, reference)
        for reference, kernel in zip(names, found, strict=True)
    ]
    return of_identities(study, identities)


def of_identities(study: Study, identities: Sequence[KernelIdentity]) -> tuple[ArmRecord, ...]:
    """The arms of a study, as the kernels are that they turned out to be; labels are unique."""
    own = identities[: len(study.kernels)]
    seen = Counter(label(identity) for identity in own)
    named = [
        label(identity) if seen[label(identity)] == 1 else identity.reference[:_MAX_LABEL]
        for identity in own
    ]
    labels = [  # those that are equal have their number behind them
        text if named.count(text) == 1 else f"{text} ({named[: at + 1].count(text)})"
        for at, text in enumerate(named)
    ]
    labels += [f"{labels[0]} again"] if has_control(study) else []
    each = len(labels)
    return tuple(
        ArmRecord(
            index=index,
            label=labels[index % each],
            kernel=identity,
            control=index % each >= len(own),
            axes=points(study)[index // each].axes,
        )
        for index, identity in enumerate(identities)
    )


def label(kernel: KernelIdentity) -> str:
    """What tables call a kernel: what was built from source, a version ("7.3-rc7"), a release."""
    version = upstream_of(kernel.version).replace("~", "-") if kernel.version else ""
    return (kernel.name or version or kernel.release or kernel.reference)[:_MAX_LABEL]


def subjects(records: Sequence[ArmRecord]) -> dict[str, str]:
    """What the commits of arms that were built from a repository are called, by label."""
    return {
        arm.label: printable(subject, _MAX_LABEL)
        for arm in records
        if arm.kernel.reference.startswith(tree_reference.PREFIX) and not arm.control
        if (subject := tree_reference.subject(arm.kernel.reference))
    }


def references(record: RunRecord) -> list[str]:
    """References that name exactly the kernels that a run began with."""
    return [
        f"deb:{arm.kernel.version}"
        if arm.kernel.version and not arm.kernel.name
        else arm.kernel.reference
        for arm in record.arms
    ]


def check_same(record: RunRecord, kernels: Sequence[Kernel | KdeltaError]) -> None:
    """Raise SpecError when an arm's image is no longer the one that the run began with."""
    for arm, kernel in zip(record.arms, kernels, strict=True):
        known = arm.kernel.image_sha256
        if isinstance(kernel, Kernel) and known and kernel.image_sha256 != known:
            cause = f"{arm.kernel.reference} is another image now than when the run began"
            action = "start a new run with: kdelta run --new"
            raise SpecError(cause, place=record.run_id, action=action)


def _unknown(study: Study, reference: str) -> KernelIdentity:
    match = re.match(r"deb:(\S+)", reference)
    return KernelIdentity(
        reference=reference,
        release="",
        version=match[1] if match else "",
        arch=study.machine.arch,
        flavour=study.machine.flavour,
        image_sha256="",
    )


class IdenticalArms:
    """Which arms of a run may turn out to be the same code as an earlier one."""

    def __init__(
        self, kernels: Sequence[Kernel | KdeltaError], machines: Sequence[MachineSettings]
    ) -> None:
        """kernels, machines: per arm."""
        self._kernels = kernels
        self._leaders: dict[int, int] = {}
        for arm, own in enumerate(kernels):
            for at, other in enumerate(kernels[:arm]):
                if not isinstance(own, Kernel) or not isinstance(other, Kernel):
                    continue
                alike = own.image_sha256 == other.image_sha256
                if alike and (not machines or machines[at] == machines[arm]):
                    self._leaders.setdefault(arm, at)

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
        name = other.name or other.release or other.reference
        said = f"same image as {name}, to the byte"
        why = Copied(sentence=said, trial=index)
        kernel = own.identity()
        if read := known.kernel:  # what the guest read back of itself lies in the image
            kernel = replace(kernel, build_id=read.build_id, compiler=read.compiler)
        return replace(known, kernel=kernel, copied=why, wall_s=0.0, artifacts={})
