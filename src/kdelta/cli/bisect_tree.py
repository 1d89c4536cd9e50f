# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta bisect --tree`: the commit in which a count changed."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdelta.cli import bisecting
from kdelta.cli.bisecting import BisectChoice
from kdelta.errors import SpecError

if TYPE_CHECKING:
    from kdelta.bisect.commits import CommitResult
    from kdelta.bisect.history import History
    from kdelta.bisect.journal import Journal
    from kdelta.bisect.measuring import TrialMeasure
    from kdelta.bisect.outcome import BisectionResult
    from kdelta.study.spec import Study
    from kdelta.table.columns import Line

_CHOSEN = ("pick", "paths", "configs", "fragments")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSource:
    """Which commits are searched, and how they are built."""

    tree: Path | None
    pick: tuple[str, ...]
    paths: tuple[str, ...]
    configs: tuple[str, ...]
    fragments: tuple[Path, ...]
    compiler: str

    def refuse_without_tree(self) -> None:
        """Raise SpecError when something is asked for that only a tree has."""
        given = {
            "--pick": self.pick,
            "--path": self.paths,
            "--config": self.configs,
            "--fragment": self.fragments,
            "--cc": self.compiler,
        }
        if wrong := [name for name, value in given.items() if value]:
            raise SpecError(f"{', '.join(wrong)} is for commits", action="add --tree PATH")


def commits(study: Study, phase: str, choice: BisectChoice, source: CommitSource) -> None:
    """Find the commit, print it, exit 1 when there is none."""
    from kdelta.bisect.building import TreeBuilder
    from kdelta.bisect.commits import Commits
    from kdelta.bisect.history import History
    from kdelta.bisect.measuring import measure_of
    from kdelta.cli.download import reporting

    if source.tree is None:
        raise ValueError("commits are of a tree")
    if study.machine.arch != "amd64":
        raise SpecError(
            f"kernels are built for amd64 only, not for {study.machine.arch}", place="--arch"
        )
    history = History(source.tree, *study.kernels)
    with reporting() as progress:
        measure = measure_of(
            study, choice.wanted_qemu, threading.Event(), progress, again=choice.again
        )
    journal, originals = _opened(study, phase, measure, choice, source, history)
    verdicts: list[CommitResult] = []
    with reporting() as progress:
        builder = TreeBuilder(
            history,
            source.tree,
            configs=source.configs,
            fragments=source.fragments,
            compiler=source.compiler,
            progress=progress,
        )
        count = len(history.commits())
        instrument = bisecting.instrument_of(
            journal, study, measure, lambda point: builder(point.key).kernel, count
        )
        search = Commits(
            journal,
            history,
            builder,
            instrument,
            bisecting.tell,
            paths=source.paths,
            originals=originals,
        )

        def run() -> BisectionResult:
            verdicts.append(search.run())
            return verdicts[-1].outcome

        bisecting.carried_out(
            journal,
            instrument,
            run,
            choice,
            points=f"{count} commits",
            more=lambda _found: _culprit(verdicts[-1]),
        )


def _opened(
    study: Study,
    phase: str,
    measure: TrialMeasure,
    choice: BisectChoice,
    source: CommitSource,
    history: History,
) -> tuple[Journal, dict[str, str]]:
    """The journal, with its repository opened; of a picked history, what its commits stand for."""
    from kdelta.bisect.commits import described

    options = {
        "tree": str((source.tree or Path()).resolve()),
        "good": history.good,
        "bad": history.bad,
        **{name: "\n".join(map(str, getattr(source, name))) for name in _CHOSEN},
        "compiler": source.compiler,
    }
    asked = bisecting.question("tree", study, phase, measure, options)
    journal = bisecting.opened(asked, choice, study, tuple)
    try:
        history.open(journal.folder / "git")
        originals = history.pick(source.pick) if source.pick else {}
    except SpecError:
        if not journal.state.points:
            shutil.rmtree(journal.folder)
        raise
    if not journal.state.points:
        ends = (history.good, history.bad)
        journal.arrange(
            tuple(described(history.commit(originals.get(one, one)), one) for one in ends)
        )
    return journal, originals


def _culprit(verdict: CommitResult) -> tuple[list[Line], dict[str, Any]]:
    """The commit, as lines and as data."""
    from kdelta.rendering import bisection

    candidates = [bisection.commit_data(commit) for commit in verdict.candidates]
    if verdict.culprit is not None:
        lines = [(), *bisection.culprit(verdict.culprit)]
        return lines, {"culprit": bisection.commit_data(verdict.culprit), "candidates": []}
    lines = [(), *bisection.candidates(verdict.candidates)] if verdict.candidates else []
    return lines, {"culprit": None, "candidates": candidates}
