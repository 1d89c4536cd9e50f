# SPDX-License-Identifier: GPL-2.0-or-later
"""A study's arms: their labels, and that a resumed run has the kernels it began with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

import kernel_tree
import ladder_records as records
import run_records
from kdelta import workload
from kdelta.analysis import findings
from kdelta.cli import run as command
from kdelta.errors import InfraError, SpecError
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.rendering import show
from kdelta.run import arms
from kdelta.study import spec
from kdelta.table import columns as page
from kdelta.verdict.comparison import closed


def kernel(reference: str, *, release: str = "", version: str = "", sha: str = "ab") -> Kernel:
    return Kernel(
        reference=reference, release=release, version=version, arch="amd64", flavour="cloud",
        image=Path("vmlinuz"), image_sha256=sha * 32,
    )  # fmt: skip


def study(*references: str) -> spec.Study:
    return spec.from_arguments(["mincore:no_thp_pte_scan_4m"], list(references))


@pytest.mark.parametrize(
    ("made", "label"),
    [
        (kernel("6.17", version="6.17.13-1~bpo13+1", release="6.17.13+deb13-cloud"), "6.17.13"),
        (kernel("7.3-rc", version="7.3~rc7-1~exp1"), "7.3-rc7"),
        (kernel("file:bzImage", release="6.18.0-mine"), "6.18.0-mine"),
        (kernel("file:vmlinux"), "file:vmlinux"),
        (kernel("file:" + "x" * 900), "file:" + "x" * 195),
    ],
)
def test_labels(made: Kernel, label: str) -> None:
    assert arms.label(made.identity()) == label


def test_a_commit_is_called_by_its_subject_and_nothing_else_is(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    kernel_tree.commit(root, "int x;\n", "mm: one \x1b[2J step " + "x" * 300)
    head = f"tree:{root}@HEAD"
    names = [head, f"tree:{root}+mincore-present-first", f"tree:{root}@HEAD~1", "tree:deb:6.17.8"]
    names += ["6.17", f"tree:{tmp_path}"]
    kernels = [kernel(name, release=f"6.{at}") for at, name in enumerate(names)]
    found = arms.subjects(arms.records(study(*names), kernels))
    assert list(found) == ["6.0", "6.1", "6.2"]
    assert found["6.1"] == found["6.0"]
    assert found["6.2"] == "first"
    assert found["6.0"].startswith("mm: one ?[2J step xxx")
    assert len(found["6.0"]) <= 200


def test_labels_of_one_study_are_unique() -> None:
    references = ("file:a", "file:b", "6.17")
    kernels = [
        kernel("file:a", release="6.18.0"),
        kernel("file:b", release="6.18.0"),
        kernel("6.17", version="6.17.13-1"),
    ]
    records = arms.records(study(*references), kernels)
    assert [arm.label for arm in records] == ["file:a", "file:b", "6.17.13"]
    assert [arm.index for arm in records] == [0, 1, 2]


def test_labels_that_are_cut_alike_are_numbered() -> None:
    long = "file:" + 300 * "x"
    references = (f"{long}a", f"{long}b", "6.17")
    kernels = [kernel(reference, release="6.18.0") for reference in references]
    labels = [arm.label for arm in arms.records(study(*references), kernels)]
    assert [label[-5:] for label in labels] == ["x (1)", "x (2)", "6.17"[-5:]]


def test_variants_by_two_compilers_are_told_apart() -> None:
    names = [f"6.17.8+mprotect-single-pte-fast-path,xenpv,gcc-{n}" for n in (12, 14)]
    made = [dataclasses.replace(kernel(f"tree:{name}"), name=name) for name in names]
    found = arms.records(study(*(f"tree:{name}" for name in names)), made)
    assert [arm.label for arm in found] == names


def test_a_kernel_that_cannot_be_had_keeps_its_arm() -> None:
    missing = InfraError("no mirror")
    made = kernel("6.17", version="6.17.13-1")
    records = arms.records(study("deb:6.16.12-1", "6.17"), [missing, made])
    assert [arm.label for arm in records] == ["6.16.12", "6.17.13"]
    assert records[0].kernel.image_sha256 == ""
    assert records[0].kernel.version == "6.16.12-1"


def test_a_resumed_run_asks_for_the_very_packages() -> None:
    record = run_records.new_run(arms=2)
    assert arms.references(record) == ["deb:6.0.1-1", "deb:6.1.1-1"]
    local = replace(record.arms[1], kernel=replace(record.arms[1].kernel, version=""))
    assert arms.references(replace(record, arms=(record.arms[0], local))) == ["deb:6.0.1-1", "6.1"]


def test_another_image_under_the_same_name_is_refused() -> None:
    record, same = run_records.new_run(arms=2), [kernel("6.0"), kernel("6.1")]
    own = (replace(a, kernel=b.identity()) for a, b in zip(record.arms, same, strict=True))
    record = replace(record, arms=tuple(own))
    arms.check_same(record, same)
    with pytest.raises(SpecError, match=r"6\.1 is another image now") as caught:
        arms.check_same(record, [same[0], kernel("6.1", sha="cd")])
    assert "--new" in caught.value.action
    arms.check_same(record, [InfraError("no mirror"), same[1]])  # what cannot be had is no other


# Variants: compared with their original, told by how much of a gap they close, gated


def built(*names: str, gap: tuple[str, ...] = ()) -> RunRecord:
    """A run of kernels from one source; the published ladder's counts in their order."""
    made = records.part_of(*("6.16.12", "6.17.13", "6.18.15", "6.1.176")[: len(names)])
    arms = tuple(
        replace(
            arm,
            label=name,
            kernel=replace(arm.kernel, reference=f"tree:{name}", name=name, source="tree 12ab"),
        )
        for arm, name in zip(made.arms, names, strict=True)
    )
    return replace(made, arms=arms, study=replace(made.study, gap=gap))


def test_every_variant_is_compared_with_the_original() -> None:
    (ladder,) = findings.report(built("6.17.8", "6.17.8+fast", "6.17.8+slow")).ladders
    assert ladder.baseline == "6.17.8"
    assert [rung.previous for rung in ladder.rungs] == [None, "6.17.8", "6.17.8"]
    assert {step.old for step in ladder.steps} == {"6.17.8"}


def test_kernels_of_several_sources_are_a_ladder() -> None:
    (ladder,) = findings.report(built("6.16", "6.17.8+fast", "6.17.8")).ladders
    assert ladder.baseline == ""
    assert ladder.rungs[2].previous == "6.17.8+fast"


def test_the_gap_is_told_against_the_regressed_kernel() -> None:
    report = findings.report(built("a", "b", "c", "d", gap=("tree:a", "tree:b")))
    (ladder,) = report.ladders
    assert ladder.baseline == "b"
    good, bad, worse, fixed = ladder.rungs
    assert (good.gap_closed, bad.gap_closed) == (None, None)
    assert worse.gap_closed is not None
    assert worse.gap_closed < 0
    assert fixed.gap_closed is not None
    assert fixed.gap_closed > 1, "it executes less than before the regression"
    shown = page.plain(show.show(report))
    assert "gap closed" in shown
    assert f"{fixed.gap_closed:.0%}" in shown
    assert "The gap to close is from a to b, " in shown
    assert "a" not in {step.new for step in ladder.steps}, "the good kernel is no variant"


def test_a_scenario_without_a_regression_has_no_gap() -> None:
    report = findings.report(built("a", "b", "c", "d", gap=("tree:b", "tree:a")))
    (ladder,) = report.ladders
    assert [rung.gap_closed for rung in ladder.rungs] == [None] * 4
    shown = page.plain(show.show(report))
    assert "gap closed" not in shown
    assert "There is no gap to close from b to a, " in shown


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ((100.0, 200.0, 150.0), 0.5), ((100.0, 200.0, 200.0), 0.0), ((100.0, 200.0, 100.0), 1.0),
        ((100.0, 100.0, 90.0), None), ((None, 200.0, 150.0), None),
    ],
)  # fmt: skip
def test_the_share_of_a_gap(
    values: tuple[float | None, float | None, float | None], share: float | None
) -> None:
    assert closed(*values) == share


def test_a_fix_that_makes_a_gate_longer_does_not_pass() -> None:
    one = built("6.17.8", "6.17.8+fast")
    faster = records.result(records.trial_of("6.16.12"))
    slower = records.result(records.trial_of("6.17.13"))
    first = tuple(
        replace(trial, result=result)
        for trial, result in zip(one.trials, (slower, faster), strict=True)
    )
    gate = tuple(
        replace(trial, index=trial.index + 2, scenario="huge", result=result)
        for trial, result in zip(one.trials, (faster, slower), strict=True)
    )
    shown = page.plain(show.show(findings.report(replace(one, trials=(*first, *gate)))))
    shown = " ".join(shown.split())
    assert "6.17.8+fast does not pass: shorter in mprotect:" in shown
    assert "but longer in mprotect:huge" in shown


def test_a_variant_without_a_sign_closes_no_gap_and_is_told_of_in_the_conclusion() -> None:
    bad, good, less = (
        records.result(records.Trial(per_page=per_page)) for per_page in (600, 300, 550)
    )
    copies = records.handling(less, 4096 * records.PAGES)
    one = built("a", "b", "c", gap=("tree:a", "tree:b"))
    trials = tuple(
        replace(trial, result=result)
        for trial, result in zip(one.trials, (good, bad, copies), strict=True)
    )
    (ladder,) = findings.report(replace(one, trials=trials)).ladders
    share = ladder.rungs[2].share
    assert share is not None
    assert (share.value, ladder.rungs[2].gap_closed) == (None, None)
    assert "+4,096 bytes" in share.reason

    one = built("6.17.8", "6.17.8+fast")
    first = zip(one.trials, (bad, good), strict=True)
    gate = zip(one.trials, (bad, copies), strict=True)
    trials = (
        *(replace(trial, result=result) for trial, result in first),
        *(replace(t, index=t.index + 2, scenario="huge", result=r) for t, r in gate),
    )
    shown = " ".join(page.plain(show.show(findings.report(replace(one, trials=trials)))).split())
    assert "longer in none of 2 scenarios; 1 not decided" in shown


def test_gates_are_added_for_variants_only(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = "mprotect:shared_dirty_full_toggle_16m"
    variant = spec.from_arguments([scenario], ["tree:a", "tree:a+fix.patch"])
    gated = command._gated(variant)
    assert gated.scenarios == (
        scenario,
        *(f"mprotect:{name}" for name in workload.load("mprotect").gates),
    )
    assert "reverse gates, measured too: mprotect:pte_mapped_thp" in capsys.readouterr().err
    released = spec.from_arguments([scenario], ["6.16", "6.17"])
    assert command._gated(released) is released
    alone = spec.with_settings(variant, gates=False)
    assert command._gated(alone) is alone


def test_a_gap_names_two_kernels_of_the_study() -> None:
    head = 'name = "m"\ntitle = "m"\nscenarios = ["a:b"]\nkernels = ["6.16", "6.17"]\n'
    assert spec.from_text(head + 'gap = ["6.16", "6.17"]\n', "m").gap == ("6.16", "6.17")
    for wrong in ('["6.16"]', '["6.16", "6.18"]'):
        with pytest.raises(SpecError, match="gap"):
            spec.from_text(f"{head}gap = {wrong}\n", "m")
