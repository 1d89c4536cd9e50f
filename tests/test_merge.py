# SPDX-License-Identifier: GPL-2.0-or-later
"""One finding of several machines' bundles: equal counts or the reason, times by machine."""

from __future__ import annotations

import functools
import json
import random
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

import ladder_records
import timed_records
from bundle_records import call, contents, stored, written
from kdelta.analysis.merging import Merged, merged
from kdelta.cli.bundle import make as bundle
from kdelta.cli.bundle import merge
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.rendering import comparisons
from kdelta.rendering.formats import written as as_format
from kdelta.sample import Environment, TimeData
from kdelta.table.columns import WIDTH, plain

HERE = ladder_records.run(
    {
        label: [ladder_records.result(ladder_records.trial_of(label))]
        for label in ("6.16.12", "6.17.13", "6.18.15")
    }
)


def other(record: RunRecord, **changed: object) -> RunRecord:
    return replace(record, run_id=f"{record.run_id}-b", **changed)


def recounted(record: RunRecord, arm: int, per_page: float, **changed: object) -> RunRecord:
    """The same with another count of one arm."""
    again = ladder_records.result(ladder_records.Trial(per_page=per_page))
    trials = tuple(
        replace(one, result=replace(again, **changed)) if one.arm == arm else one
        for one in record.trials
    )
    return other(record, trials=trials)


def told(found: Merged) -> str:
    text = plain(comparisons.show_merged(found))
    assert max(map(len, text.splitlines())) <= WIDTH
    return " ".join(text.split())


# ---- counts --------------------------------------------------------------------------------


def test_equal_counts_are_one_finding() -> None:
    found = merged({"a.tar": HERE, "b.tar": other(HERE)})
    assert found.equal
    assert len(found.counts) == 3 * 2
    assert [pair.merged.verdict for pair in found.pairs] == ["REGRESSION", "REGRESSION"]
    assert "6 of 6 counts are equal to the instruction on all 2 machines." in told(found)
    assert not found.reasons


def test_one_instruction_more_is_not_equal() -> None:
    shown = HERE.trials[1].result
    assert shown
    phases = shown.exact.phases
    more = replace(phases[0], kernel=tuple(each + 1 for each in phases[0].kernel))
    trials = (
        HERE.trials[0],
        replace(
            HERE.trials[1],
            result=replace(shown, data=replace(shown.exact, phases=(more, *phases[1:]))),
        ),
        *HERE.trials[2:],
    )
    found = merged({"a.tar": HERE, "b.tar": other(HERE, trials=trials)})
    assert not found.equal
    assert [(one.arm, one.phase) for one in found.counts if not one.equal] == [
        ("6.17.13", "protect")
    ]
    assert "nothing that was recorded explains it" in told(found)
    assert [pair.merged.verdict for pair in found.pairs] == ["REGRESSION", "REGRESSION"]


def test_the_reason_why_counts_differ_is_named() -> None:
    environment: Environment = replace(ladder_records.ENVIRONMENT, qemu_version="10.1.0")
    found = merged({"a.tar": HERE, "b.tar": recounted(HERE, 1, 500.0, environment=environment)})
    assert not found.equal
    assert found.reasons == ("b.tar: qemu_version was 10.0.2 and is 10.0.2 and 10.1.0",)
    assert "nothing that was recorded" not in told(found)


def test_machines_that_disagree_decide_nothing() -> None:
    found = merged({"a.tar": HERE, "b.tar": recounted(HERE, 1, 401.7)})
    pair = found.pairs[0]
    assert (pair.merged.verdict, pair.merged.ratio) == ("UNDECIDED", None)
    assert pair.merged.reasons == ("the machines disagree: a.tar REGRESSION, b.tar SAME",)


def test_a_kernel_without_a_count_on_one_machine_is_not_equal() -> None:
    trials = (replace(HERE.trials[0], result=None), *HERE.trials[1:])
    found = merged({"a.tar": HERE, "b.tar": other(HERE, trials=trials)})
    assert not found.equal
    assert found.pairs[0].merged.verdict == "UNDECIDED"
    assert found.counts[0].values[1] is None


# ---- what is no one study ------------------------------------------------------------------


def test_a_repeated_study_is_the_same_one() -> None:
    """`reproduce` names the very versions, and the seed that was drawn."""
    study = replace(
        HERE.study,
        kernels=("deb:6.16.12-1", "deb:6.17.13-1"),
        plan=replace(HERE.study.plan, seed=HERE.seed),
        title="the same, measured again",
    )
    assert merged({"a.tar": HERE, "b.tar": other(HERE, study=study)}).equal


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"scenarios": ("mincore:no_thp_pte_scan_4m",)}, "different studies: scenarios differs"),
        ({"name": "x"}, "different studies: name differs"),
    ],
)
def test_different_studies_are_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(SpecError, match=why) as caught:
        merged({"a.tar": HERE, "b.tar": other(HERE, study=replace(HERE.study, **change))})
    assert "a.tar and b.tar" in caught.value.sentence()


def test_different_kernels_are_refused() -> None:
    arm = replace(HERE.arms[1], kernel=replace(HERE.arms[1].kernel, image_sha256="ef" * 32))
    arms = (HERE.arms[0], arm, HERE.arms[2])
    with pytest.raises(
        SpecError, match=r"different kernels: 6\.17\.13 is not the other's 6\.17\.13"
    ):
        merged({"a.tar": HERE, "b.tar": other(HERE, arms=arms)})
    with pytest.raises(SpecError, match="3 of them and 2"):
        merged({"a.tar": HERE, "b.tar": other(HERE, arms=HERE.arms[:2])})


def test_one_run_counts_once() -> None:
    with pytest.raises(SpecError, match=r"a.tar and b.tar are one run"):
        merged({"a.tar": HERE, "b.tar": HERE})
    with pytest.raises(SpecError, match="no several machines"):
        merged({"a.tar": HERE})


def test_other_trials_are_another_plan() -> None:
    trials = (replace(HERE.trials[0], scenario="another"), *HERE.trials[1:])
    with pytest.raises(SpecError, match="different plans"):
        merged({"a.tar": HERE, "b.tar": other(HERE, trials=trials)})


# ---- times ---------------------------------------------------------------------------------


@functools.cache
def timed(change: float, machine: float = 1.0, seed: int = 0) -> RunRecord:
    """Boots of one machine: how much slower the new kernel is, and the whole machine.

    change 0: there is none, the machine is timed against itself.
    """
    levels = [20.0, 20.0 * change, 20.0] if change else [20.0, 20.0]
    record = timed_records.run(levels, rounds=5)
    noise = random.Random(seed)  # noqa: S311  seeded noise
    trials = []
    for trial in record.trials:
        assert trial.result
        (phase,) = trial.result.timed.phases
        factor = machine * noise.gauss(1, 0.004)
        samples = tuple(round(one * factor) for one in phase.nanoseconds)
        data = TimeData(phases=(replace(phase, nanoseconds=samples),))
        trials.append(replace(trial, result=replace(trial.result, data=data)))
    return replace(record, run_id=f"t-{seed}", trials=tuple(trials))


@functools.cache
def two(change: float, other_change: float) -> Merged:
    return merged({"a.tar": timed(change), "b.tar": timed(other_change, 3.0, seed=1)})


def test_a_slower_kernel_is_one_on_machines_of_any_speed() -> None:
    found = two(1.15, 1.15)
    (pair,) = found.pairs
    assert pair.merged.verdict == "REGRESSION"
    assert pair.merged.low
    assert pair.merged.high
    assert pair.merged.low < 1.15 < pair.merged.high
    assert "over 2 machines (99 % interval" in told(found)
    widths = [one.high / one.low for one in pair.each if one and one.high and one.low]
    assert pair.merged.high / pair.merged.low < min(widths)


def test_machines_against_themselves_have_a_row() -> None:
    found = two(0, 0)
    (pair,) = found.pairs
    assert (pair.old, pair.new) == ("host:6.0", "host:6.0 again")
    assert not pair.merged.verdict.is_step
    assert len(pair.each) == 2
    assert all(one and one.ratio for one in pair.each)
    assert "host:6.0 again" in told(found)


def test_machines_whose_intervals_share_nothing_disagree() -> None:
    (pair,) = two(1.6, 0.7).pairs
    assert pair.merged.verdict == "UNDECIDED"
    assert pair.merged.reasons[0].startswith("the machines disagree: a.tar +")


def test_a_machine_that_cannot_be_judged_is_named() -> None:
    few = timed(1.15, 3.0, seed=1)
    lost = tuple(t if t.round < 2 else replace(t, result=None) for t in few.trials)
    (pair,) = merged({"a.tar": timed(1.15), "b.tar": replace(few, trials=lost)}).pairs
    assert pair.merged.verdict == "UNDECIDED"
    assert pair.merged.reasons[0].startswith("b.tar: ")
    assert pair.merged.ratio is None


# ---- the command, and what a stranger may send ----------------------------------------------


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("merge")
    for name, record in (("a", HERE), ("b", other(HERE))):
        stored(record, place / name)
        done = call(bundle, place / name, "-o", place / f"{name}.tar")
        assert done.exit_code == 0, done.output
    return place / "a.tar", place / "b.tar"


def refused(*files: Path) -> SpecError:
    error = call(merge, *files).exception
    assert isinstance(error, SpecError)
    assert error.sentence().isprintable()
    return error


def test_bundles_are_merged(bundles: Sequence[Path]) -> None:
    done = call(merge, *bundles)
    assert done.exit_code == 0, done.output
    assert "6 of 6 counts are equal" in " ".join(done.output.split())
    content = json.loads(call(merge, *bundles, "--json").output)
    assert (content["kind"], content["equal"]) == ("merge", True)
    rows = call(merge, *bundles, "--csv").output.splitlines()
    assert len(rows) == 1 + 2 * 3
    assert (
        as_format("tsv", comparisons.MERGED_VIEW, merged({"a": HERE, "b": other(HERE)})).count("\n")
        == 7
    )


def test_a_changed_bundle_is_not_merged(bundles: Sequence[Path], tmp_path: Path) -> None:
    files = contents(bundles[1])
    files["run/run.json"] = files["run/run.json"].replace(b"6.17", b"6.18", 1)
    error = refused(bundles[0], written(files, tmp_path / "x.tar"))
    assert error.cause == "the bundle is not what its manifest says"
    assert error.place.endswith("x.tar")


@pytest.mark.parametrize(
    ("name", "kind", "size"),
    [
        ("../../out", tarfile.REGTYPE, 0),
        ("/etc/cron.d/x", tarfile.REGTYPE, 0),
        ("run/run.json", tarfile.SYMTYPE, 0),
        ("run/run.json", tarfile.LNKTYPE, 0),
        ("run/run.json", tarfile.REGTYPE, 1 << 40),
    ],
)
def test_what_leads_out_or_swells_is_not_merged(
    bundles: Sequence[Path], tmp_path: Path, name: str, kind: bytes, size: int
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, size, "/etc/passwd"
    evil = tmp_path / "evil.tar"
    evil.write_bytes(member.tobuf() + b"\0" * 2048)
    assert "not a bundle" in refused(bundles[0], evil).cause
    assert {path.name for path in tmp_path.iterdir()} == {"evil.tar"}


def test_one_bundle_named_twice_is_told(bundles: Sequence[Path]) -> None:
    assert "named twice" in refused(bundles[0], bundles[0]).cause
