# SPDX-License-Identifier: GPL-2.0-or-later
"""Ranges of kernels and patterns of scenarios: one reference that stands for several."""

from __future__ import annotations

import pytest

from kdelta import workload
from kdelta.cli import run as studies
from kdelta.errors import SpecError
from kdelta.kernels import reference
from kdelta.study import spec
from test_kernels_together import OFFERED

HEAD = 'name = "one"\ntitle = "one"\n'


@pytest.fixture(autouse=True)
def archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "listing", lambda *_, **__: OFFERED)


def test_a_study_file_may_name_ranges_and_patterns() -> None:
    text = HEAD + 'scenarios = ["mprotect:*"]\nkernels = ["6.12..7.2"]\ngap = ["6.12", "6.17"]'
    study = studies.expanded(spec.from_text(text, "study.toml"))
    assert study.scenarios == tuple(one.reference for one in workload.load("mprotect").scenarios)
    assert study.kernels == ("6.12", "6.17", "7.2")
    assert not study.plan.single_kernel


def test_the_gap_is_checked_when_the_kernels_are_known() -> None:
    text = HEAD + 'scenarios = ["mprotect:*"]\nkernels = ["6.12..7.2"]\ngap = ["6.1", "6.17"]'
    with pytest.raises(SpecError, match="a gap is two of the kernels"):
        studies.expanded(spec.from_text(text, "study.toml"))


def test_the_command_line_may_too() -> None:
    study = studies.expanded(spec.from_arguments(["m*:*y_full_toggle_16m"], ["6.12..6.17", "7.2"]))
    assert study.scenarios == ("mprotect:shared_dirty_full_toggle_16m",)
    assert study.kernels == ("6.12", "6.17", "7.2")


def test_what_is_plain_stays_and_asks_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(reference, "listing")
    study = spec.from_arguments(["mprotect:a"], ["6.12", "tree:../linux", "file:../image"])
    assert studies.expanded(study) == study


def test_a_pattern_that_nothing_fits() -> None:
    with pytest.raises(SpecError, match=r"no scenario fits mprotect:nothing\*"):
        studies.every_scenario(["mprotect:nothing*"])


def test_scenarios_that_several_patterns_name_stand_once() -> None:
    found = studies.every_scenario(["mprotect:shared_dirty_full_toggle_16m", "mprotect:*"])
    assert found[0] == "mprotect:shared_dirty_full_toggle_16m"
    assert len(found) == len(set(found)) == len(workload.load("mprotect").scenarios)


def test_each_tree_is_built_by_each_compiler() -> None:
    study = spec.from_arguments(["mprotect:a"], ["tree:deb:6.17.8", "tree:/linux+mincore-fix"])
    assert studies.built_by(study, ["gcc-14", "clang-19"]).kernels == (
        *("tree:deb:6.17.8+cc=gcc-14", "tree:deb:6.17.8+cc=clang-19"),
        *("tree:/linux+mincore-fix+cc=gcc-14", "tree:/linux+mincore-fix+cc=clang-19"),
    )


@pytest.mark.parametrize(
    ("kernel", "compiler", "why"),
    [
        *((kernel, "gcc-16", "is not a source that --compilers could build")
          for kernel in ("6.17", "file:bzImage", "tree:deb:6.17.8+cc=gcc-14")),
        ("tree:deb:6.17.8", "icc-12", "icc-12"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused(kernel: str, compiler: str, why: str) -> None:
    study = spec.from_arguments(["mprotect:a"], [kernel])
    with pytest.raises(SpecError, match=why):
        studies.built_by(study, ["gcc-14", compiler])
