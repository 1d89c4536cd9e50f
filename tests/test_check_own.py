# SPDX-License-Identifier: GPL-2.0-or-later
"""Functions of two builds that are a change's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kdelta.check import own
from kdelta.check.counter import Counted
from kdelta.disassembly import image
from kdelta.kernels.kernel import Kernel
from kdelta.sample import ExactData, FunctionCount, Outcome, TrialResult

# What calls what, in either build.
CALLS = {
    "mm_init": {"percpu_init", "memset"},
    "percpu_init": {"pcpu_alloc", "lock"},
    "pcpu_alloc": {"find_zero"},
    "copy_page_range": {"lock"},
}


@dataclass(frozen=True)
class Image:
    """An image in name only."""

    name: str


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def watched(_image: Image, names: Iterable[str]) -> tuple[str, ...]:
        return tuple({*names, *(below for name in names for below in CALLS.get(name, ()))})

    monkeypatch.setattr(image, "opened", lambda _path, name: Image(name))
    monkeypatch.setattr(own, "watched", watched)


def counted(**calls: int) -> Counted:
    rows = tuple(
        FunctionCount(phase="fork", function=name, insns=10 * each, calls=each)
        for name, each in calls.items()
    )
    kernel = Kernel(
        reference="x", release="6.17.8", version="", arch="amd64", flavour="deb",
        image=Path("/none"), image_sha256="0", config=None, config_sha256="", build_id="",
        suite="", package="",
    )  # fmt: skip
    result = TrialResult(outcome=Outcome.OK, data=ExactData(functions=rows))
    return Counted(scenario="process:fork_exit", kernel=kernel, result=result)


def test_what_changed_code_calls_more_or_less_often_is_its_own_and_what_that_calls() -> None:
    old = counted(mm_init=1, percpu_init=4, pcpu_alloc=4, find_zero=9, lock=8, memset=1, fork=1)
    new = counted(mm_init=1, percpu_init=1, pcpu_alloc=1, find_zero=3, lock=8, memset=1, fork=2)
    found = own.own_functions(old, new, frozenset(("mm_init", "not_executed")))
    # Neither what is called as often nor what others call more often.
    assert found == {"mm_init", "percpu_init", "pcpu_alloc", "find_zero", "not_executed"}


def test_where_no_changed_code_was_executed_nothing_is_found_below_it() -> None:
    old, new = counted(copy_page_range=1, lock=1), counted(copy_page_range=1, lock=2)
    assert own.own_functions(old, new, frozenset(("mm_init",))) == {"mm_init"}


def test_functions_that_call_each_other_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALLS, "find_zero", {"pcpu_alloc", "mm_init"})
    old, new = counted(mm_init=1, percpu_init=2, pcpu_alloc=2), counted(mm_init=1)
    found = own.own_functions(old, new, frozenset(("mm_init",)))
    assert found == {"mm_init", "percpu_init", "pcpu_alloc"}
