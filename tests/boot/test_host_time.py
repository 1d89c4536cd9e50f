# SPDX-License-Identifier: GPL-2.0-or-later
"""The time instrument on this very machine: quiet about nothing, loud about a planted slowdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdelta import workload
from kdelta.host import leases
from kdelta.metric import Assume, Better, Grade, Metric, ReplicateUnit
from kdelta.run.timed import Timing, time_here
from kdelta.stats.series import Boot, Series
from kdelta.stats.timing import compare
from kdelta.study import spec
from kdelta.verdict.comparison import Comparison, Verdict

pytestmark = pytest.mark.boot

PROGRAMS = Path(__file__).parents[1] / "data" / "programs"
METRIC = Metric(name="loop", unit="ns/turn", better=Better.LOWER, assume=Assume.NOTHING)
ROUNDS = 12
SESSIONS = 3
# A false alarm of this test is not worth a hundredth of all CI runs.
ALPHA = 0.0005


def session(folder: Path, names: list[str]) -> list[Series]:
    """Arms in turn, round by round, as a plan would run them."""
    head = 'name = "t"\ntitle = "t"\ninstrument = "time"\nscenarios = ["mprotect:single_protect"]'
    wanted = f'{head}\nkernels = ["host"]\n[time]\niterations = 16\nwarmup = 4'
    timing = Timing(study=spec.from_text(wanted, "t.toml"))
    load = workload.load("planted", PROGRAMS)
    boots: list[list[Boot]] = [[] for _ in names]
    with leases.lease_cpus(1, timing.cancelled) as leased:
        for position in range(ROUNDS * len(names)):
            arm = position % len(names)
            scenario = load.scenario(names[arm])
            result = time_here(timing, load, scenario, leased, folder / f"{position:04d}")
            assert result.timed.phases, result.reason
            values = tuple(ns / 1000 for ns in result.timed.phases[0].nanoseconds)
            round_ = position // len(names)
            boots[arm].append(Boot(label=f"{arm}.{round_}", position=position, values=values))
    return [
        Series(
            arm=f"arm {arm}", metric=METRIC, boots=tuple(own), planned=ROUNDS,
            replicate=ReplicateUnit.PROCESS_ROUND,
        )
        for arm, own in enumerate(boots)
    ]  # fmt: skip


def compared(folder: Path, names: list[str]) -> Comparison:
    first, *others = session(folder, names)
    control = others[1] if len(others) > 1 else None
    return compare(first, others[0], control=control, grade=Grade.HOST_TIME, alpha=ALPHA)


def test_this_machine_against_itself_is_no_regression(tmp_path: Path) -> None:
    found = compared(tmp_path, ["plain", "plain"])
    assert found.verdict is Verdict.UNDECIDED, found.reasons
    assert found.in_these_boots


def test_a_planted_tenth_is_never_called_the_contrary(tmp_path: Path) -> None:
    """How often a tenth is found depends on what else the machine does: bench/power.py tells."""
    found = compared(tmp_path, ["plain", "slower", "plain"])
    assert found.verdict is not Verdict.IMPROVEMENT, found.reasons
    assert within(found, 1.1), found.reasons


def test_a_planted_double_is_found(tmp_path: Path) -> None:
    """A machine that others use may be too noisy for one session, not for all of them."""
    seen = []
    for number in range(SESSIONS):
        found = compared(tmp_path / str(number), ["plain", "double", "plain"])
        seen.append((found.verdict, found.ratio, found.reasons))
        # Rounds of one boot decide nothing of kernels; in this boot the interval does.
        assert found.verdict is Verdict.UNDECIDED, found.reasons
        assert found.in_these_boots
        if found.low and found.low > 1:
            assert within(found, 2.0), found.reasons
            return
    pytest.fail(f"not found in {SESSIONS} sessions: {seen}")


def within(found: Comparison, ratio: float) -> bool:
    """The set-up of a window takes a little of its time too, which does not grow with the loop."""
    assert found.low is not None
    assert found.high is not None
    return found.low < ratio < found.high * 1.03
