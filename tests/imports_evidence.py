# SPDX-License-Identifier: GPL-2.0-or-later
"""The published evidence with the mapping of each of its tables (tests/data/mappings)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from kdelta.analysis import judgement
from kdelta.imports import mapping, reader
from kdelta.imports.record import Import

DATA = Path(__file__).resolve().parent / "data"
EVIDENCE = DATA / "evidence"
MAPPINGS = DATA / "mappings"

# Table -> the mapping that describes it; a bundle (a folder with raw.csv) needs none.
TABLES = {
    "fsnotify-baremetal/exact-ab-summary.tsv": "fsnotify",
    "madvise-qemu/ftrace-1cpu.profile.csv": "madvise-profile",
    "madvise-qemu/state-1cpu.csv": "madvise-state",
    "migrate-pages-qemu/deferredsplit-ab.move-ns-per-page.csv": "migrate-deferredsplit",
    "migrate-pages-qemu/ftrace-v619-v70.profile.csv": "migrate-profile",
    "migrate-pages-qemu/ftrace-v619-v70.workload-rows.csv": "migrate-rows",
    "migrate-pages-qemu/primary-1-2-4.move-ns-per-page.csv": "migrate-primary",
    "migrate-pages-qemu/primary-1-2-4.state-shape.csv": "migrate-state-shape",
    "mincore-qemu/matched-1-2-4-preempt-bridge.interpreted.csv": "mincore-interpreted",
    "mincore-qemu/matched-1-2-4-preempt-bridge.summary.csv": "mincore-matched",
    "mincore-qemu/matched-16cpu-preempt-bridge.summary.csv": "mincore-matched",
    "mincore-qemu/matched-16cpu-v70-supplement.summary.csv": "mincore-matched",
    "mincore-qemu/matched-8cpu-preempt-bridge.summary.csv": "mincore-matched",
    "mincore-qemu/v6.16-fastpath-ab.summary.csv": "mincore-fastpath",
    "mincore-qemu/v6.16-intro-ftrace.profile.csv": "mincore-profile",
    "mincore-qemu/v6.18-presentfirst-confirm.summary.csv": "mincore-presentfirst-6.18",
    "mincore-qemu/v7.0-presentfirst-ab.summary.csv": "mincore-presentfirst-7.0",
    "mprotect-baremetal/exact-cac1/comparison.tsv": "exact-cac1-comparison",
    "mprotect-baremetal/exact-cac1/components.tsv": "exact-cac1-components",
    "mprotect-baremetal/exact-cac1/measurements.tsv": "exact-cac1",
    "mprotect-baremetal/exact-cac1/points.tsv": "exact-cac1-points",
    "mprotect-baremetal/folio-order/summary.csv": "folio-order",
    "mprotect-baremetal/kernel-queue/aggregate.csv": "kernel-queue-aggregate",
    "mprotect-baremetal/kernel-queue/steps.csv": "kernel-queue",
    "mprotect-baremetal/probes/basepage-6.19.aggregate.csv": "kernel-queue-aggregate",
    "mprotect-baremetal/probes/basepage-6.19.steps.csv": "basepage",
    "mprotect-baremetal/probes/minus-cac1-6.17.aggregate.csv": "minus-cac1-aggregate",
    "mprotect-baremetal/probes/minus-cac1-6.17.steps.csv": "minus-cac1",
    "mprotect-baremetal/probes/singlepte-6.17.comparison.csv": "singlepte",
    "mprotect-baremetal/release-window/aggregate.csv": "release-window-aggregate",
    "mprotect-baremetal/release-window/steps.csv": "release-window",
    "mprotect-baremetal/single-protect/aggregate.csv": "single-protect-aggregate",
    "mprotect-baremetal/single-protect/steps.csv": "single-protect",
    "mprotect-qemu/mm-unstable-20260520/headline.csv": "headline",
    "mprotect-qemu/reproducer-nonsmp-20260525/comparison.csv": "nonsmp-comparison",
    "mprotect-qemu/reproducer-nonsmp-20260525/summary.csv": "nonsmp",
    "mprotect-qemu/reproducer-smp-20260526/comparison.csv": "smp-comparison",
    "mprotect-qemu/reproducer-smp-20260526/rerun-16cpu.comparison.csv": "smp-comparison",
    "mprotect-qemu/reproducer-smp-20260526/rerun-16cpu.summary.csv": "smp-rerun",
    "mprotect-qemu/reproducer-smp-20260526/summary.csv": "smp",
    "mprotect-qemu/state-audit-20260520/state-shape.csv": "state-shape",
}
BUNDLES = sorted(str(raw.parent.relative_to(EVIDENCE)) for raw in EVIDENCE.rglob("raw.csv"))


def mapped(name: str) -> mapping.Mapping:
    """A mapping of tests/data/mappings."""
    return mapping.parse((MAPPINGS / f"{name}.toml").read_text(), f"{name}.toml")


def imported(*paths: Path, mappings: tuple[mapping.Mapping, ...] = ()) -> Import:
    """What `kdelta import` would store of these paths."""
    sources, contents, kind = reader.read(paths, mappings)
    return Import(
        name="test", created="2026-11-20T12:00:00Z", kind=kind, sources=sources, contents=contents
    )


@lru_cache
def evidence(name: str) -> Import:
    """A published bundle, or a published table by its mapping."""
    if name.endswith("/raw.csv"):
        name = name.removesuffix("/raw.csv")
    return imported(EVIDENCE / name, mappings=(mapped(TABLES[name]),) if name in TABLES else ())


def judged(found: Import, choice: judgement.JudgementChoice | None = None) -> judgement.Judgement:
    """What `kdelta judge` would say of it."""
    return judgement.judge("test", found, choice or judgement.JudgementChoice())


def finding(found: judgement.Judgement, metric: str, **group: str) -> judgement.Finding:
    """The one finding of that metric in a group that has these parts."""
    (one,) = [
        each
        for each in found.findings
        if each.metric.name == metric and set(group.items()) <= set(each.group)
    ]
    return one


def traps(one: judgement.Finding, arm: str = "") -> set[str]:
    """The traps that were seen, of one arm or of all."""
    return {str(caution.trap) for caution in one.cautions if arm in caution.sentence}
