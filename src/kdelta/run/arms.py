# SPDX-License-Identifier: GPL-2.0-or-later
"""A study's arms: which kernel each one is, and what tables call it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from kdelta.errors import KdeltaError, SpecError
from kdelta.kernels import debian
from kdelta.kernels.kernel import Kernel
from kdelta.sample import ArmRecord, KernelIdentity, RunRecord
from kdelta.study.spec import Study

_MAX_LABEL = 40


def records(study: Study, kernels: Sequence[Kernel | KdeltaError]) -> tuple[ArmRecord, ...]:
    """One record per kernel of the study; labels are unique."""
    identities = [
        kernel.identity() if isinstance(kernel, Kernel) else _unknown(study, reference)
        for reference, kernel in zip(study.kernels, kernels, strict=True)
    ]
    labels = [label(identity) for identity in identities]
    seen = Counter(labels)
    return tuple(
        ArmRecord(
            index=index,
            label=name if seen[name] == 1 else identity.reference[:_MAX_LABEL],
            kernel=identity,
        )
        for index, (name, identity) in enumerate(zip(labels, identities, strict=True))
    )


def label(kernel: KernelIdentity) -> str:
    """What tables call a kernel: its upstream version ("6.17.13", "7.3-rc7"), else its release."""
    if kernel.version:
        return debian.upstream_of(kernel.version).replace("~", "-")[:_MAX_LABEL]
    if kernel.release:
        return kernel.release[:_MAX_LABEL]
    return kernel.reference[:_MAX_LABEL]


def references(record: RunRecord) -> list[str]:
    """References that name exactly the kernels that a run began with."""
    return [
        f"deb:{arm.kernel.version}" if arm.kernel.version else arm.kernel.reference
        for arm in record.arms
    ]


def check_same(record: RunRecord, kernels: Sequence[Kernel | KdeltaError]) -> None:
    """Raise SpecError when an arm's image is no longer the one that the run began with."""
    for arm, kernel in zip(record.arms, kernels, strict=True):
        known = arm.kernel.image_sha256
        if isinstance(kernel, Kernel) and known and kernel.image_sha256 != known:
            raise SpecError(
                f"{arm.kernel.reference} is another image now than when the run began",
                place=record.run_id,
                action="start a new run with: kdelta run --new",
            )


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
