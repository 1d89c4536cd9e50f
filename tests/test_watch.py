# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta site watch`: what is new in an archive, counted once, whatever interrupts it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner, Result
from msgspec import structs

import ladder_records
from git_history import Repository
from kdelta.analysis import lab as lab_of
from kdelta.analysis.lab import lab
from kdelta.cli import execution
from kdelta.cli.report import watch
from kdelta.errors import InfraError, SpecError
from kdelta.journal.files import new_folder
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.kernels import debian
from kdelta.kernels.debian import KernelOffer
from kdelta.kernels.reference import listing
from kdelta.run import arms
from kdelta.sample import KernelIdentity, Outcome, TrialResult
from kdelta.study import plan
from kdelta.study.spec import Study

if TYPE_CHECKING:
    from archive_mirror import Mirror

pytest_plugins = ("archive_mirror",)

EVERY = ("6.17.8", "6.18.5", "6.19.6", "7.2.6")  # of the mirror
COUNTED = ladder_records.result(ladder_records.trial_of("6.16.12"))
NO_DISK = ladder_records.failed(Outcome.INFRA_ERROR, "the disk is full")


@dataclass
class Guests:
    """What stands for guests: each trial is counted at once.

    studies: what was begun.  most: trials after which somebody presses Ctrl-C.  yields: what a
    trial gives.
    """

    runs: Path
    studies: list[Study] = field(default_factory=list)
    counted: list[tuple[str, str]] = field(default_factory=list)
    most: int = 1000
    yields: TrialResult = COUNTED

    def start(self, study: Study, runs: Path, *_: object, **__: object) -> None:
        self.studies.append(study)
        named = {f"deb:{offer.version}": offer for offer in self._offered(study)}
        identities = tuple(self._identity(name, named.get(name)) for name in study.kernels)
        planned = plan.make_plan(study, 1)
        folder = new_folder(runs, study.name, datetime(2026, 1, len(self.studies), tzinfo=UTC))
        record = RunRecord(
            run_id=folder.name,
            name=study.name,
            title=study.title,
            seed=1,
            rounds=1,
            created=f"2026-01-{len(self.studies):02d}",
            kdelta_version="0",
            study=study,
            arms=tuple(
                structs.replace(arm, label=arms.label(own), kernel=own)
                for arm, own in zip(arms.records(study, None), identities, strict=True)
            ),
            trials=planned.trials,
        )
        self.execute(RunJournal.create(folder, record))

    def _offered(self, study: Study) -> Sequence[KernelOffer]:
        """Nothing for what is built from source, which must not need an archive."""
        return listing() if any(name.startswith("deb:") for name in study.kernels) else ()

    def execute(self, journal: RunJournal, *_: object, **__: object) -> None:
        with journal.executing():
            record = journal.record()
            for trial in journal.pending():
                if len(self.counted) >= self.most:
                    raise KeyboardInterrupt
                journal.claim(trial.index)
                journal.finish(trial.index, self.yields)
                self.counted.append((record.arms[trial.arm].label, trial.scenario))
        if self.yields is NO_DISK:
            raise click.exceptions.Exit(1)

    def _identity(self, reference: str, offer: KernelOffer | None) -> KernelIdentity:
        return KernelIdentity(
            reference=reference,
            release=offer.release if offer else "7.3.0",
            version=offer.version if offer else "",
            arch="amd64",
            flavour="cloud",
            image_sha256=reference.encode().hex()[:64],
        )

    def kernels(self, at: int = -1) -> list[str]:
        return [name.removeprefix("deb:").partition("-")[0] for name in self.studies[at].kernels]


@pytest.fixture
def guests(tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guests]:
    assert mirror
    found = Guests(runs=tmp_path / "runs")
    monkeypatch.setattr(execution, "start", found.start)
    monkeypatch.setattr(execution, "execute", found.execute)
    yield found
    logging.getLogger("kdelta").setLevel(logging.NOTSET)


@pytest.fixture
def linux(guests: Guests, tmp_path: Path) -> Repository:
    """A tree of one commit, when every kernel of the archive has been counted."""
    once(guests)
    repository = Repository(tmp_path / "linux")
    repository.commit("one", {"a": "1"})
    return repository


def tip_of(repository: Repository) -> str:
    return repository.git("rev-parse", "HEAD").strip()


def once(guests: Guests, *words: str) -> Result:
    own = ["--only", "mincore:*", "--runs", str(guests.runs), *words]
    return CliRunner().invoke(watch, [str(guests.runs.parent / "site"), *own])


def forget(guests: Guests, *upstream: str) -> None:
    """Leave kernels out of the only run, as if the archive had not had them then."""
    (folder,) = RUNS.folders(guests.runs)
    record = RunJournal.open(folder).record()
    kept = [arm for arm in record.arms if not arm.kernel.version.startswith(upstream)]
    index = {arm.index: at for at, arm in enumerate(kept)}
    trials = [structs.replace(t, arm=index[t.arm]) for t in record.trials if t.arm in index]
    short = structs.replace(
        record,
        arms=tuple(structs.replace(arm, index=at) for at, arm in enumerate(kept)),
        trials=tuple(trials),
    )
    RunJournal.create(folder, short, anew=True)


def test_what_was_never_counted_is_new_and_then_it_is_not(guests: Guests) -> None:
    done = once(guests)
    assert done.exit_code == 0, done.output
    assert guests.kernels() == list(EVERY)
    assert len(guests.counted) == len(set(guests.counted)) == 4 * len(guests.studies[0].scenarios)
    assert (guests.runs.parent / "site/index.html").is_file()
    again = once(guests)
    assert again.exit_code == 0
    assert len(guests.studies) == 1
    assert "nothing new; " in again.output
    assert once(guests, "--quiet").output == ""


def test_a_new_kernel_is_counted_beside_the_one_before(guests: Guests) -> None:
    once(guests)
    forget(guests, "6.19.6")
    done = once(guests)
    assert guests.kernels() == ["6.18.5", "6.19.6"]
    assert "new: 6.19.6-2~bpo13+1" in done.output
    assert "nothing new" in once(guests).output


def test_a_scenario_that_is_new_is_counted_on_every_kernel(guests: Guests) -> None:
    once(guests)
    done = CliRunner().invoke(
        watch,
        [str(guests.runs.parent / "site"), "--only", "m[ip][nr]*", "--runs", str(guests.runs)],
    )
    assert done.exit_code == 0, done.output
    assert guests.kernels() == list(EVERY)


def test_more_kernels_than_a_study_may_have_are_several(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdelta.cli.report._AT_ONCE", 3)
    done = once(guests)
    assert done.exit_code == 0, done.output
    assert [guests.kernels(at) for at in (0, 1)] == [list(EVERY[:3]), list(EVERY[2:])]
    assert "nothing new; " in once(guests).output


def test_an_interrupted_pass_is_finished_first_and_nothing_counted_twice(guests: Guests) -> None:
    guests.most = 3
    assert once(guests).exit_code != 0
    guests.most = 1000
    done = once(guests)
    assert done.exit_code == 0, done.output
    assert "going on with watch-2026" in done.output
    assert len(guests.studies) == 1
    assert len(guests.counted) == len(set(guests.counted)) == 4 * len(guests.studies[0].scenarios)


def test_what_this_machine_failed_is_tried_again_in_its_run(guests: Guests) -> None:
    guests.yields = NO_DISK
    assert once(guests).exit_code == 1
    assert once(guests).exit_code == 1
    assert len(guests.studies) == 1
    guests.yields = COUNTED
    assert once(guests).exit_code == 0
    assert len(guests.studies) == 1
    assert "nothing new" in once(guests).output


def test_two_passes_exclude_each_other(guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    inner: list[Result] = []
    start = guests.start

    def twice(*given: object, **named: object) -> None:
        inner.append(once(guests))
        start(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(execution, "start", twice)
    assert once(guests).exit_code == 0
    (refused,) = inner
    assert isinstance(refused.exception, InfraError)
    assert "another kdelta site watch is at work on these runs" in refused.exception.sentence()
    assert len(guests.studies) == 1


def test_without_an_archive_it_is_one_sentence(guests: Guests, mirror: Mirror) -> None:
    mirror.stop()
    done = once(guests)
    assert isinstance(done.exception, InfraError)
    assert done.exception.sentence().isprintable()
    assert not guests.studies


def test_it_lists_what_would_be_counted(guests: Guests) -> None:
    done = once(guests, "--list")
    assert done.stdout.startswith("new: 6.17.8-1")
    assert not guests.studies
    assert not (guests.runs.parent / "site").exists()


def test_the_tip_of_a_tree_is_counted_beside_the_last_one(
    guests: Guests, linux: Repository
) -> None:
    first = tip_of(linux)
    tree = f"{linux.folder}@main"
    done = once(guests, "--tree", tree)
    assert "its first count" in done.output
    assert guests.studies[-1].kernels == (f"tree:{linux.folder}@{first}",)
    assert "nothing new" in once(guests, "--tree", tree).output
    tip = merged(linux, "topic")
    done = once(guests, "--tree", tree)
    assert "1 new merge" in done.output
    assert guests.studies[-1].kernels == tuple(
        f"tree:{linux.folder}@{commit}" for commit in (first, tip)
    )


def merged(repository: Repository, name: str) -> str:
    """A topic of one commit, merged into main; the merge."""
    repository.git("checkout", "-q", "-b", name)
    repository.commit(name, {name: "1"})
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "-m", f"merge {name}", name)
    return tip_of(repository)


def test_merges_between_are_counted_as_many_as_are_asked_for(
    guests: Guests, linux: Repository
) -> None:
    first = tip_of(linux)
    tree = f"{linux.folder}@main+config=min"
    once(guests, "--tree", tree)
    merges = [merged(linux, name) for name in "bcdef"]
    done = once(guests, "--tree", tree, "--merges", "3")
    assert "5 new merges" in done.output
    assert guests.studies[-1].kernels == tuple(
        f"tree:{linux.folder}@{commit}+config=min"
        for commit in (first, merges[0], merges[2], merges[4])
    )
    assert "nothing new" in once(guests, "--tree", tree, "--merges", "5").output


def test_two_branches_of_a_tree_are_not_counted_in_turns(guests: Guests, linux: Repository) -> None:
    linux.git("branch", "other")
    tip = merged(linux, "topic")
    linux.git("checkout", "-q", "other")
    other = linux.commit("on other", {"other": "1"})
    words = [word for name in ("main", "other") for word in ("--tree", f"{linux.folder}@{name}")]
    assert once(guests, *words).exit_code == 0
    assert [study.kernels[-1].partition("@")[2] for study in guests.studies[1:]] == [tip, other]
    assert "nothing new" in once(guests, *words).output


def test_a_rewritten_tree_stands_beside_what_it_was(guests: Guests, linux: Repository) -> None:
    first = merged(linux, "topic")
    tree = str(linux.folder)
    once(guests, "--tree", tree)
    linux.git("reset", "-q", "--hard", "HEAD~1")
    tip = merged(linux, "next")
    done = once(guests, "--tree", tree)
    assert "its history was rewritten" in done.output
    assert [name.partition("@")[2] for name in guests.studies[-1].kernels] == [first, tip]


def test_a_tip_that_does_not_build_is_nobodys_neighbour(guests: Guests, linux: Repository) -> None:
    first = tip_of(linux)
    tree = str(linux.folder)
    once(guests, "--tree", tree)
    merged(linux, "broken")
    guests.yields = ladder_records.failed(Outcome.BOOT_ERROR, "mm/a.c: error: no")
    assert once(guests, "--tree", tree).exit_code == 0
    assert "nothing new" in once(guests, "--tree", tree).output
    guests.yields = COUNTED
    tip = merged(linux, "mended")
    once(guests, "--tree", tree)
    assert [name.partition("@")[2] for name in guests.studies[-1].kernels] == [first, tip]


def test_without_an_archive_trees_are_counted_and_it_is_said(
    guests: Guests, mirror: Mirror, tmp_path: Path
) -> None:
    mirror.stop()
    repository = Repository(tmp_path / "linux")
    tip = repository.commit("one", {"a": "1"})
    done = once(guests, "--tree", str(repository.folder))
    assert isinstance(done.exception, InfraError)
    assert [study.kernels for study in guests.studies] == [(f"tree:{repository.folder}@{tip}",)]
    assert (guests.runs.parent / "site/index.html").is_file()


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ("deb:6.17.8", ""),
        ("linux+config=", ""),
        ("linux+nosuch", ""),
        ("{linux}@nowhere", "it has no commit nowhere"),
        ("{linux}@--help", "it has no commit --help"),
        ("{linux}@-n1", "it has no commit -n1"),
    ],
)
def test_what_is_no_tree_is_one_sentence(
    guests: Guests, tmp_path: Path, tree: str, said: str
) -> None:
    linux = Repository(tmp_path / "linux")
    linux.commit("one", {"a": "1"})
    done = once(guests, "--tree", tree.format(linux=linux.folder))
    assert isinstance(done.exception, SpecError)
    assert done.exception.sentence().isprintable()
    assert said in done.exception.cause
    if not said:
        assert not guests.studies  # before anything is counted


# ---- which kernels ---------------------------------------------------------------------------


@pytest.mark.usefixtures("mirror")
def test_the_kernel_before_is_of_the_same_compiler() -> None:
    old, other, near, new = (
        replace(offer, compiler=name)
        for offer, name in zip(listing(), ("gcc 14", "gcc 16", "gcc 16", "gcc 14"), strict=True)
    )
    offered = (old, other, near, new)
    known = {one.version for one in (old, other, near)}
    assert debian.with_predecessors(offered, (new,), known) == (old, new)
    assert debian.with_predecessors(offered, (new,), known - {old.version}) == (near, new)
    assert debian.with_predecessors(offered, (old,), known) == (old,)


def test_a_run_on_another_machine_counts_nothing() -> None:
    record = ladder_records.ladder(rounds=1)
    names = record.study.scenarios
    machine = record.study.machine
    assert "6.17.13-1~bpo13+1" in lab_of.counted_kernels([record], names, machine)
    other = structs.replace(machine, cpus=2)
    assert not lab_of.counted_kernels([record], names, other)
    assert not lab_of.counted_kernels([record], (*names, "mincore:no_thp_pte_scan_4m"), machine)
    lost = tuple(structs.replace(trial, result=NO_DISK) for trial in record.trials)
    assert not lab_of.counted_kernels([structs.replace(record, trials=lost)], names, machine)


def test_any_two_kernels_are_compared_over_runs() -> None:
    record = ladder_records.ladder(rounds=1)

    def of(at: int, name: str) -> RunRecord:
        arms = (structs.replace(record.arms[at], index=0),)
        trials = tuple(structs.replace(t, arm=0) for t in record.trials if t.arm == at)
        return structs.replace(record, run_id=name, arms=arms, trials=trials)

    (pair,) = lab([of(2, "a"), of(3, "b")], most_pairs=130).pairs
    assert (pair.old, pair.new) == (record.arms[2].label, record.arms[3].label)
    assert pair.rows[0].comparison.verdict == "REGRESSION"
