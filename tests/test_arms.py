# SPDX-License-Identifier: GPL-2.0-or-later
"""A study's arms: their labels, and that a resumed run has the kernels it began with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

import kernel_tree
import run_records
from kdelta.errors import InfraError, SpecError
from kdelta.kernels.kernel import Kernel
from kdelta.run import arms
from kdelta.study import spec


def kernel(reference: str, *, release: str = "", version: str = "", sha: str = "ab") -> Kernel:
    return Kernel(
        reference=reference,
        release=release,
        version=version,
        arch="amd64",
        flavour="cloud",
        image=Path("vmlinuz"),
        image_sha256=sha * 32,
    )


def study(*references: str) -> spec.Study:
    return spec.from_arguments(["mincore:no_thp_pte_scan_4m"], list(references))


@pytest.mark.parametrize(
    ("made", "label"),
    [
        (kernel("6.17", version="6.17.13-1~bpo13+1", release="6.17.13+deb13-cloud"), "6.17.13"),
        (kernel("7.3-rc", version="7.3~rc7-1~exp1"), "7.3-rc7"),
        (kernel("file:bzImage", release="6.18.0-mine"), "6.18.0-mine"),
        (kernel("file:vmlinux"), "file:vmlinux"),
        (kernel("file:" + "x" * 100), "file:" + "x" * 100),
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
    record = run_records.new_run(arms=2)
    same = [kernel("6.0"), kernel("6.1")]
    arms.check_same(record, same)
    with pytest.raises(SpecError, match=r"6\.1 is another image now") as caught:
        arms.check_same(record, [same[0], kernel("6.1", sha="cd")])
    assert "--new" in caught.value.action


def test_what_cannot_be_had_now_is_not_another_image() -> None:
    record = run_records.new_run(arms=2)
    arms.check_same(record, [InfraError("no mirror"), kernel("6.1")])
