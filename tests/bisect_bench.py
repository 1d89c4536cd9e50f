# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels that are nothing but a number of instructions, to bisect without booting any."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

import ladder_records as records
from kdelta.bisect import journal as journals
from kdelta.bisect.bisection import News, ReleaseBisection
from kdelta.bisect.evidence import PointCounting
from kdelta.bisect.journal import Journal, Point, Question
from kdelta.errors import InfraError
from kdelta.kernels.kernel import Kernel
from kdelta.sample import Outcome, TrialResult
from kdelta.study import spec

BOOT_FAILURE = TrialResult(outcome=Outcome.BOOT_ERROR, reasons=("it panicked",))


def kernel(key: str, content: str = "") -> Kernel:
    """A kernel whose image is a digest of its content."""
    return Kernel(
        reference=key, release=key, arch="amd64", flavour="cloud", image=Path("/nowhere"),
        image_sha256=hashlib.sha256((content or key).encode()).hexdigest(),
    )  # fmt: skip


def counted(value: float, functions: Mapping[str, float] | None = None) -> TrialResult:
    """A trial of `value` instructions per page."""
    return records.result(records.Trial(per_page=value, functions=functions or {}))


class MachineFaultError(InfraError):
    """Met while measuring, not while fetching."""


@dataclass
class Bench:
    """Measures and resolves by what is written in `values`: per page, or a result, or an error."""

    values: Mapping[str, float | TrialResult | Exception]
    asked: list[str] = field(default_factory=list)
    told: list[News] = field(default_factory=list)

    def resolve(self, point: Point) -> Kernel:
        value = self.values[point.key]
        if isinstance(value, InfraError) and not isinstance(value, MachineFaultError):
            raise value
        return kernel(point.key)

    def measure(self, kernel: Kernel, trial: int, folder: Path) -> TrialResult:
        del trial, folder
        self.asked.append(kernel.reference)
        value = self.values[kernel.reference]
        if isinstance(value, Exception):
            raise value
        return value if isinstance(value, TrialResult) else counted(value)

    def tell(self, news: News) -> None:
        self.told.append(news)


def question(kind: str = "releases", phase: str = "total") -> Question:
    """What is asked; the records' scenario."""
    return Question(
        kind=kind, phase=phase,
        study=replace(
            spec.from_text(records.STUDY, "study.toml"), kernels=("old", "new"),
            scenarios=(f"{records.WORKLOAD}:{records.SCENARIO}",),
        ),
    )  # fmt: skip


def journal(root: Path, keys: Sequence[str], asked: Question | None = None) -> Journal:
    """A new bisection over points of these names."""
    points = tuple(Point(key=key, label=key) for key in keys)
    return journals.create(root, "bisect-test", asked or question(), points)


def of_releases(own: Journal, bench: Bench) -> ReleaseBisection:
    """The bisection over a journal's points, each as likely as the others."""
    counting, likely = PointCounting(own, bench.measure), [1.0] * (len(own.state.points) - 1)
    return ReleaseBisection(own, counting, bench.tell, bench.resolve, likely)
