# SPDX-License-Identifier: GPL-2.0-or-later
"""What a step's page has: words, functions, kinds of work, paths, flame graphs; and as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.calls import CallExplanation
from kdelta.analysis.explanation import Explanation, FunctionDelta, Rest
from kdelta.analysis.lab import LabStep
from kdelta.analysis.work import KindDelta, WorkExplanation
from kdelta.bisect.journal import Journal
from kdelta.rendering import calls, paragraph, profiles, work
from kdelta.rendering.calls import Scale
from kdelta.rendering.formats import picked

# Of an explanation, what its JSON tells besides functions; differences and shares, these tell.
_TOLD = (
    "phase", "old", "new", "old_release", "new_release", "old_compiler", "new_compiler",
    "operation", "operations", "step_percent", "old_value", "new_value", "audited", "copies",
)  # fmt: skip
_JUDGED = ("verdict", "reasons", "crossing", "differences", "signless", "ratio", "spread")
_RELEASE = re.compile(r"v?(\d+\.\d+)(?![\d])")
_BRANCHES = 24  # lines of the tree
_SMALL = 0.05  # percent of a difference, below which a function is one of the others
_NARROWEST = 0.004  # share of a flame graph's width: a page is one of many


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectedCommit:
    """The commit that a bisection of a step's scenario came down to; step: that it measured."""

    label: str
    title: str
    step: LabStep


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDetail:
    """What the run of a step kept beside its counts, and who bisected it; None: nobody did."""

    work: WorkExplanation | None = None
    calls: CallExplanation | None = None
    culprit: BisectedCommit | None = None


def culprit(
    step: LabStep, steps: Sequence[LabStep], journals: Sequence[Journal]
) -> BisectedCommit | None:
    """The commit of a step between releases, by the newest bisection of commits that ended.

    It is of the same scenario and phase, between the same two series, and its run shows a step
    between two neighbouring commits, the largest of which is meant.
    """
    wanted = [_series(name) for name in (step.explanation.old, step.explanation.new)]
    if None in wanted or wanted[0] == wanted[1]:
        return None
    for state in (journal.state for journal in journals):
        asked = state.question
        ends = [_series(asked.good), _series(asked.bad)]
        same = (asked.scenario, asked.phase) == (step.name, step.explanation.phase)
        if not (same and state.ended and asked.kind == "tree" and ends == wanted):
            continue
        places = {point.label: at for at, point in enumerate(state.points)}
        for one in (one for one in steps if one.run_id == state.run_id):
            old, new = (places.get(name) for name in (one.explanation.old, one.explanation.new))
            if old is not None and new == old + 1:
                point = state.points[new]
                return BisectedCommit(label=point.label, title=point.title, step=one)
    return None


def _series(name: str) -> str | None:
    """ "6.17" of "v6.17", "6.17.13" and "6.17-rc2"."""
    found = _RELEASE.match(name)
    return found[1] if found else None


def context(found: Explanation, detail: StepDetail) -> dict[str, Any]:
    """What the template takes."""
    scale = Scale.of(found)
    difference = detail.calls.difference if detail.calls else None
    causes = calls.telling(difference) if difference else ()
    tree = calls.branches(difference.root, difference.causes) if difference else []
    pictures = profiles.pictures(difference.root, scale, narrowest=_NARROWEST) if difference else ()
    return {
        "sentences": sentences(found, detail),
        "kinds": [
            {
                "kind": work.named(row) + (f", {row.group}" if row.group != work.WORK else ""),
                "old": scale.plain(row.old),
                "new": scale.plain(row.new),
                "change": scale.signed(row.delta),
                "delta": row.delta,
                "where": work.mostly_in(row, scale),
            }
            for row in kinds(detail)
            if scale.signed(row.delta).strip("+-0.,")
        ],
        "causes": [(scale.signed(one.delta), calls.sentence(one, scale)) for one in causes],
        "branches_left_out": max(len(tree) - _BRANCHES, 0),
        "tree": [
            {
                "delta": scale.signed(branch.delta),
                "own": scale.signed(branch.own_new - branch.own_old),
                "calls": calls.called(branch, scale),
                "path": calls.path_to(depth, branch, above),
            }
            for depth, branch, above in tree[:_BRANCHES]
        ],
        "pictures": pictures,
        "row": profiles.ROW,
    }


def shown(found: Explanation) -> list[FunctionDelta]:
    """The functions that a page lists."""
    return [row for row in found.functions if abs(row.share or 0) >= _SMALL]


def others(found: Explanation) -> Rest | None:
    """Those that it does not, as one; None where there are none."""
    small = [row for row in found.functions if abs(row.share or 0) < _SMALL]
    if not small:
        return None
    old, new = (sum(getattr(row, side) or 0 for row in small) for side in ("old", "new"))
    share = sum(row.share or 0 for row in small)
    return Rest(count=len(small), old=old, new=new, delta=new - old, share=share)


def document(step: LabStep, detail: StepDetail, causes: object) -> dict[str, Any]:
    """As JSON.  Of functions, old and new are instructions per window; null: it did not run."""
    own = step.explanation
    rows = shown(own)
    names = {row.function for row in rows}
    rest = others(own)
    return {
        **picked(step, ("name", "run_id", "kernels", "point", "created", "phases")),
        "alone": step.alone or None,
        **picked(own, _TOLD, audited=own.audited or None),
        "comparison": picked(own.comparison, _JUDGED),
        "strings": own.strings and picked(own.strings, ("old", "new")),
        "functions": [
            picked(row, ("function", "old", "new", "calls_old", "calls_new")) for row in rows
        ],
        "others": rest and picked(rest, ("count", "old", "new")),
        "renamed": [[row.was, row.function] for row in own.renamed],
        "folded": [one for one in own.folded if one[0] in names],
        "sentences": sentences(own, detail),
        "kinds": kinds(detail),
        "causes": causes,
        "culprit": detail.culprit and [detail.culprit.label, detail.culprit.title],
    }


def sentences(found: Explanation, detail: StepDetail) -> list[str]:
    """The step in words, of what there is."""
    difference = detail.calls.difference if detail.calls else None
    return paragraph.sentences(found, difference, detail.work)


def kinds(detail: StepDetail) -> list[KindDelta]:
    """The kinds of work, and of memory where it was recorded, that differ."""
    if detail.work is None:
        return []
    rows = (*detail.work.work, *(detail.work.memory or ()))
    return [row for row in rows if row.delta]
