# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU is tested once before it counts, and one that counts wrong counts nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from boot import lab
from kdelta import cache
from kdelta.errors import InfraError
from kdelta.guests import qemu
from kdelta.run import selftest
from kdelta.sample import Outcome

pytestmark = pytest.mark.boot

GOOD = "mincore:no_thp_pte_scan_4m"


@pytest.fixture(autouse=True)
def _untested(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test of another name, whatever else runs with this user's cache."""
    before = cache.entries("selftests")
    monkeypatch.setattr(selftest, "_FORMAT", uuid.uuid4().hex)
    yield
    for entry in set(cache.entries("selftests")) - set(before):
        cache.discard(entry)


def test_it_is_passed_once_and_stands_in_the_results(
    machine: lab.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lab.run_scenario(machine, GOOD, tmp_path / "1")
    monkeypatch.setattr(selftest, "_counted", None)  # it is not asked again
    second = lab.run_scenario(machine, GOOD, tmp_path / "2")
    assert first.outcome is second.outcome is Outcome.OK
    assert first.environment is not None
    assert second.environment == first.environment
    assert first.environment.self_test
    assert "qemu_version" not in first.environment.identity


@pytest.mark.parametrize(
    ("at", "known", "fault"),
    [
        (0, {"user": 20_002}, "a loop took 20001 instructions, not 20002"),
        (1, {"strings": ()}, "string instructions: 100 rep movsb of 500000 bytes, 100 rep stosb"),
        (2, {"calls": ("asm_exc_page_fault", 63)}, "faults entered asm_exc_page_fault 64 times"),
        (4, {"calls": ("entry_SYSCALL_64", 999)}, "entry_SYSCALL_64 1000 times, not 999"),
    ],
)
def test_what_is_counted_otherwise_is_named(
    machine: lab.Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    known: dict[str, object],
    fault: str,
) -> None:
    wrong = [*selftest.KNOWN["amd64"]]
    wrong[at] = replace(wrong[at], **known)  # type: ignore[arg-type]
    monkeypatch.setitem(selftest.KNOWN, "amd64", tuple(wrong))
    for time in ("first", "again"):  # a failure is not kept as a pass
        with pytest.raises(InfraError, match="fails its self-test: ") as caught:
            lab.run_scenario(machine, GOOD, tmp_path / time)
        assert fault in caught.value.cause
        assert caught.value.action == "get another with: kdelta tools qemu fetch 10.0.2"


@pytest.mark.parametrize(
    ("at", "known", "fault"),
    [
        (2, {"user": 3 + 4 * 64 + 64}, "faults at the end of a block took 259 instructions, not"),
        (3, {"calls": ("handle_exception", 999)}, "handle_exception 1000 times, not 999"),
    ],
)
def test_that_of_riscv64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, known: dict[str, object], fault: str
) -> None:
    machine = lab.of_arch("7.2", "riscv64")
    passed = lab.run_scenario(machine, GOOD, tmp_path / "right")
    assert passed.outcome is Outcome.OK
    assert passed.environment is not None
    assert passed.environment.self_test
    wrong = [*selftest.KNOWN["riscv64"]]
    wrong[at] = replace(wrong[at], **known)  # type: ignore[arg-type]
    monkeypatch.setitem(selftest.KNOWN, "riscv64", tuple(wrong))
    with pytest.raises(InfraError, match="fails its self-test: ") as caught:
        lab.run_scenario(machine, GOOD, tmp_path / "wrong")
    assert fault in caught.value.cause


def test_that_of_cpus_that_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    two = lab.machine("6.17", cpus=2)
    machine = replace(two, emulator=qemu.in_turns(two.emulator))
    asked = machine.bench(), machine.checkpoint(), machine.kernel.image, machine.functions()
    right = selftest._TURNS
    for wrong, fault in (
        (replace(right[1], cpu=0), "turn 1 was counted on CPU 1, not 0"),
        (replace(right[1], lines=0), "turn 1 moved 1 lines, not 0"),
    ):
        monkeypatch.setattr(selftest, "_TURNS", (right[0], wrong, *right[2:]))
        with pytest.raises(InfraError, match=fault):
            selftest.passed(*asked, lambda: True)
    monkeypatch.setattr(selftest, "_TURNS", right)
    assert selftest.passed(*asked, lambda: True)
