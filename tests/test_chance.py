# SPDX-License-Identifier: GPL-2.0-or-later
"""What a seed decides: too few of them, what of them moves a count, windows of a rare length."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from kdelta.analysis.findings import report
from kdelta.analysis.lab import lab
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.ladder.counts import CountMethod, counted
from kdelta.ladder.evidence import compare_arms
from kdelta.rendering.show import show
from kdelta.run.exact import seed_of
from kdelta.sample import (
    ExactData,
    Outcome,
    PhaseCounts,
    Source,
    StateField,
    TrialRecord,
    TrialResult,
    Try,
)
from kdelta.study.plan import make_plan, sources
from kdelta.table.columns import plain
from kdelta.verdict.comparison import Comparison, CountReading, Verdict, compare
from kdelta.verdict.windows import Rare, bulk, calm, rare
from ladder_records import ENVIRONMENT, STATE, with_results
from run_records import new_run

COMMON = [1000] * 10


def placed(windows: list[int]) -> dict[int, int]:
    return dict(enumerate(windows))


def reading(
    value: int, *, far: tuple[int, int] | None = None, unvaried: bool = False
) -> CountReading:
    """far: a length, and how many of 60 windows have it."""
    others = (
        rare("work", [placed([value] * (60 - far[1]) + [far[0]] * far[1])], value) if far else None
    )
    return CountReading(
        value=value, operations=10, operation="call", spread=0,
        rare=(others,) if others else (), unvaried=unvaried,
    )  # fmt: skip


def judged(old: CountReading, new: CountReading) -> Comparison:
    return compare(old, new)


@pytest.mark.parametrize(
    ("windows", "found"),
    [
        ([*COMMON, 2200, 2200], (2200, True, 2)),
        ([*COMMON, 2200], (2200, False, 1)),  # one of 11: no tick comes as often
        ([*COMMON * 3, 2200], None),  # a tick
        ([*COMMON, 1005, 1005], None),  # too near to be another length
        ([*COMMON, 2300, 2200, 2400], (2300, False, 3)),
        ([*COMMON * 9, 2200, 2200], (2200, True, 2)),
    ],
)
def test_rare_windows(windows: list[int], found: tuple[int, bool, int] | None) -> None:
    one = rare("work", [placed(windows[:5]), placed(windows[5:])], 1000)
    assert (one and (one.length, one.repeats, one.times)) == found


def test_disturbed_windows_are_not_rare_ones() -> None:
    assert calm([1, 1, 1, 9], [False, False, False, True]) == placed([1, 1, 1])
    assert calm([1, 9, 9], [False, True, True]) == placed([1, 9, 9])  # too few are left


def test_one_window_of_forty_is_rare_when_every_seed_has_it() -> None:
    seeds = [placed([1000] * 20 + [2200 + seed] + [1000] * 19) for seed in range(3)]
    found = rare("work", seeds, 1000)
    assert found is not None
    assert (found.length, found.times, found.n) == (2201, 3, 120)
    apart = [placed([1000] * seed + [2200 + seed] + [1000] * (39 - seed)) for seed in range(3)]
    other = rare("work", apart, 1000)  # each seed has one, and it weighs 3 % of the mean
    assert other == dataclasses.replace(found, windows=other.windows if other else ())
    assert rare("work", [*apart, placed([1000] * 40)], 1000) is None
    light = [placed([1000] * seed + [1300 + seed] + [1000] * (39 - seed)) for seed in range(3)]
    assert rare("work", light, 1000) is None


def test_a_rare_length_that_the_other_kernel_has_commonly_may_be_chance() -> None:
    was, now = reading(1000, far=(1203, 2)), reading(1200)
    assert judged(was, now).verdict is Verdict.REGRESSION
    was, now = (dataclasses.replace(one, program=(5, 5)) for one in (was, now))
    for pair in ((was, now), (now, was)):
        assert judged(*pair).verdict is Verdict.UNDECIDED
        assert "one as those few: chance or time may" in " ".join(judged(*pair).reasons)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [(100, 100, Verdict.SAME), (100, 101, Verdict.SAME), (100, 102, Verdict.UNDECIDED)],
)
def test_a_program_that_did_other_work_itself(old: int, new: int, verdict: Verdict) -> None:
    was, now = (dataclasses.replace(reading(1000), program=(user, user)) for user in (old, new))
    found = CountMethod().judged(was, now, ())
    assert found.verdict is verdict
    assert ("the program itself executed" in found.reasons[0]) is (verdict is Verdict.UNDECIDED)


def test_a_timer_may_end_a_window() -> None:
    record = own_run({}, 3)
    told = (StateField(when="before", name="process_timers", value="1", want="free"),)
    timed = with_results(record, lambda _: {"state": told})
    found = compare_arms(CountMethod(), *counted(timed, "/x/loop.c", "main"))
    assert found.verdict is Verdict.UNDECIDED
    assert "a timer is set" in found.reasons[0]


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (reading(1000), reading(1000, far=(2200, 10)), Verdict.UNDECIDED),  # each sixth
        (reading(1000, far=(2200, 10)), reading(1000), Verdict.UNDECIDED),
        (reading(1000, far=(2200, 10)), reading(1000, far=(2200, 10)), Verdict.SAME),
        (reading(1000, far=(2200, 10)), reading(1000, far=(2200, 20)), Verdict.UNDECIDED),
        (reading(1000, far=(2200, 10)), reading(1000, far=(2600, 8)), Verdict.UNDECIDED),
        (reading(1000, far=(2200, 10)), reading(1200, far=(2200, 10)), Verdict.UNDECIDED),
        (reading(1000, far=(2200, 10)), reading(1200, far=(2300, 10)), Verdict.REGRESSION),
        (reading(1000, far=(2200, 10)), reading(900, far=(1980, 10)), Verdict.IMPROVEMENT),
        (reading(1000, far=(1100, 10)), reading(1015, far=(1116, 9)), Verdict.REGRESSION),  # alike
        (reading(1000, far=(900, 10)), reading(1500, far=(1400, 10)), Verdict.REGRESSION),  # both
        (reading(1000), reading(1200, far=(2200, 10)), Verdict.REGRESSION),  # adds to it
        (reading(1200), reading(1000, far=(2200, 10)), Verdict.UNDECIDED),  # eats it up
        (reading(1000), reading(1200), Verdict.REGRESSION),
    ],
)
def test_both_lengths_are_judged(old: CountReading, new: CountReading, verdict: Verdict) -> None:
    found = judged(old, new)
    assert found.verdict is verdict
    if verdict is Verdict.UNDECIDED:
        assert "windows of work do not count alike" in found.reasons[0]
        assert "a phase of its own" in found.reasons[0]


@pytest.mark.parametrize(
    ("new", "calls", "verdict", "words"),
    [
        ((1000, 2000), (900, 1000), Verdict.SAME, ""),
        ((1100, 2050), (900, 1000), Verdict.REGRESSION, ""),  # nearer to each other, both longer
        ((900, 1950), (900, 1000), Verdict.IMPROVEMENT, ""),
        ((1100, 1950), (900, 1000), Verdict.UNDECIDED, "let one window hold one of each"),
        ((1000, 2000), (930, 970), Verdict.UNDECIDED,
         "go two ways (read() of p's windows like number 2 +30, write() of p's windows"),
        ((1000, 2000), (905, 995), Verdict.SAME, ""),
    ],
)  # fmt: skip
def test_a_loop_of_two_lengths_is_judged_window_by_window(
    new: tuple[int, ...], calls: tuple[int, ...], verdict: Verdict, words: str
) -> None:
    """A window that another task disturbs makes either length the more frequent one."""

    def told(trial: TrialRecord) -> dict[str, object]:
        kernel, spent = (new, calls) if trial.arm else ((1000, 2000), (900, 1000))
        phase = replace(
            trial.exact.phases[0], user=(0,) * 12, kernel=kernel * 6,
            switched=tuple(at == 2 * trial.round + trial.arm for at in range(12)),
            rarer={1: {"read": spent[:1], "write": spent[1:]}},
        )  # fmt: skip
        return {"data": replace(trial.exact, phases=(phase,))}

    arms = counted(with_results(own_run({}, 3), told), "/x/loop.c", "main")
    found = compare_arms(CountMethod(), *arms)
    assert (found.verdict, words in found.reasons[0]) == (verdict, True)


def test_a_weight_is_what_the_mean_has_more() -> None:
    told = rare("work", [placed([1000] * 57 + [2200, 2200, 1015])], 1000)
    assert told is not None
    assert told.weight == pytest.approx(2415 / 60)  # not three of 2200
    one = Rare(phase="p", common=1000, length=2200, repeats=True, times=10, n=60, extra=12000)
    assert one.weight == pytest.approx(200)


def test_too_few_seeds_of_a_file_of_ones_own_decide_nothing_but_same() -> None:
    assert judged(reading(1000, unvaried=True), reading(1001)).verdict is Verdict.SAME
    found = judged(reading(1000), reading(2000, unvaried=True))
    assert found.verdict is Verdict.UNDECIDED
    assert "count with 3 seeds (--rounds 3)" in found.reasons[0]


def seeded(*values: int, first: int = 0, bulks: tuple[int, ...] = ()) -> CountReading:
    seeds = tuple(zip(range(first, first + len(values)), values, bulks or values, strict=True))
    spread = max(values) - min(values)
    return dataclasses.replace(reading(values[0]), spread=spread, seeds=seeds)


SPREAD = (1000, 1300, 1100)


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        (seeded(1050, 1352, 1149), Verdict.REGRESSION),
        (seeded(950, 1248, 1051), Verdict.IMPROVEMENT),
        (seeded(1003, 1303, 1102), Verdict.SAME),
        (seeded(1300, 1000, 1100), Verdict.UNDECIDED),  # the pairs are as far apart
        (seeded(1050, 1320, 1149), Verdict.UNDECIDED),
        (seeded(1009, 1311, 1110), Verdict.UNDECIDED),  # too near to the threshold
        (seeded(1050, 1352, 1149, first=1), Verdict.UNDECIDED),  # of other seeds
        # Of a path with two lengths the median window is of one: the mean decides, too.
        (seeded(1003, 1303, 1102, bulks=(1200, 1500, 1300)), Verdict.UNDECIDED),
        (seeded(1003, 1303, 1102, bulks=(1003, 1500, 1102)), Verdict.UNDECIDED),
    ],
)
def test_pairs_of_a_seed_decide_where_seeds_disagree(new: CountReading, verdict: Verdict) -> None:
    found = judged(seeded(*SPREAD), new)
    assert found.verdict is verdict
    assert ("in each of 3 seeds by" in found.reasons[0]) is (verdict is not Verdict.UNDECIDED)


def test_what_pairs_decide_is_the_median_pair() -> None:
    found = judged(seeded(*SPREAD), seeded(1050, 1352, 1149))
    assert (found.ratio, found.difference, found.spread) == (1050 / 1000, 5, 0.3)
    assert found.reasons[0].endswith("1 %, in each of 3 seeds by +4.9 to +5.2 an operation")
    assert judged(seeded(1000, 1300), seeded(1050, 1352)).verdict is Verdict.UNDECIDED


def test_a_trial_that_was_tried_again_is_in_no_pair() -> None:
    values = {(arm, at): n + 50 * arm for arm in range(2) for at, n in enumerate(SPREAD)}
    record = own_run(values, 3)
    assert compare_arms(CountMethod(), *counted(record, "/x/loop.c", "main")).verdict.is_step
    died = (Try(outcome=Outcome.GUEST_ERROR, other_seed=True),)
    again = with_results(record, lambda trial: {} if trial.index else {"tries": died})
    found = compare_arms(CountMethod(), *counted(again, "/x/loop.c", "main"))
    assert found.verdict is Verdict.UNDECIDED


def test_the_bulk_of_windows_is_without_the_dearest_and_the_disturbed() -> None:
    assert bulk([1000, 2000, 2000, 2000, 90000]) == 1750
    assert bulk([1000, 2000, 2000, 90000], [False, False, False, True]) == 1667
    assert bulk([10, 1000] * 3, layouts=2) == 1010


def own_run(values: dict[tuple[int, int], int], rounds: int) -> RunRecord:
    """A run of one C file on two kernels; values: (arm, round) -> instructions in a window."""
    record = new_run(arms=2, rounds=rounds)
    study = replace(record.study, scenarios=("/x/loop.c:main",))
    trials = [
        replace(trial, result=result(values.get((trial.arm, trial.round), 1000)))
        for trial in make_plan(study, 5)
    ]
    return replace(record, study=study, trials=tuple(trials))


def result(value: int, n: int = 4) -> TrialResult:
    phase = PhaseCounts(
        phase="p", operations=1, operation="window", user=(0,) * n, kernel=(value,) * n
    )
    return TrialResult(
        outcome=Outcome.OK, environment=ENVIRONMENT, state=STATE,
        data=ExactData(phases=(phase,), functions=()),
    )  # fmt: skip


@pytest.mark.parametrize(("rounds", "common", "far"), [(3, 1000, 2400), (1, 1100, 2100)])
def test_the_first_line_blames_windows_where_they_are_why(
    rounds: int, common: int, far: int
) -> None:
    record = own_run({}, rounds)
    arms = [result(1000, 8), result(1000, 8)]
    for at, kernel in enumerate(((*[1000] * 7, 2000), (*[common] * 7, far))):
        phase = replace(arms[at].exact.phases[0], kernel=kernel)
        arms[at] = replace(arms[at], data=ExactData(phases=(phase,), functions=()))
    trials = tuple(replace(trial, result=arms[trial.arm]) for trial in record.trials)
    first = plain(show(report(replace(record, trials=trials)))).partition("\n\n")[0].split()
    told = "windows count about 2,000 and not 1,000; on 6.1" in " ".join(first)
    assert told is (common == 1000), "of one seed chance has a part, whatever windows count"
    assert lab([replace(record, trials=trials)], most_pairs=9)  # a file of one's own is in it


@pytest.mark.parametrize("n", [1, 4])
def test_a_window_that_is_alone_holds_what_is_done_the_first_time(n: int) -> None:
    record = own_run({}, 3)
    trials = tuple(replace(trial, result=result(1000, n)) for trial in record.trials)
    told = CountMethod().warnings(counted(replace(record, trials=trials), "/x/loop.c", "main"), ())
    assert any("p: its one window holds" in text for text in told) is (n == 1)


def test_what_moves_a_count_is_tried_alone_where_seeds_disagree() -> None:
    assert sources(own_run({}, 3)) == ()
    decided = {(1, 0): 5000, (1, 1): 5000, (1, 2): 5300}
    assert sources(own_run(decided, 3)) == ()  # whatever moves it, it is a step
    record = own_run({(1, 2): 1300}, 3)
    planned = sources(record)
    assert {one.arm for one in planned} == {1}  # the other agrees with itself
    assert [(one.round, one.varies) for one in planned] == [
        (number, source) for number in (1, 2) for source in Source
    ]
    assert {one.index for one in planned}.isdisjoint(one.index for one in record.trials)
    measured = [
        replace(one, result=result(1300 if one.varies is Source.RANDOM else 1000))
        for one in planned
    ]
    whole = replace(record, trials=(*record.trials, *measured))
    assert sources(whole) == ()  # once is enough
    old, new = counted(whole, "/x/loop.c", "main")
    assert (len(new.trials), new.total and new.total.value) == (3, 1000)
    (reason,) = compare_arms(CountMethod(), old, new).reasons
    assert "moved by random numbers (up to 30 %)" in reason


def state(
    arm: int, round_: int, huge: dict[tuple[int, int], str], fact: str = "process_anon_huge_kb"
) -> tuple[StateField, ...]:
    told = ((fact, huge.get((arm, round_), "0")), ("process_rss_kb", str(arm)))
    return tuple(
        StateField(when="during", name=name, value=value, want="free") for name, value in told
    )


@pytest.mark.parametrize(
    ("huge", "reason"),
    [
        ({}, ""),
        (dict.fromkeys([(0, 1), (1, 1)], "8192"), ""),  # another seed may lay it out otherwise
        ({(1, 0): "8192"}, "process_anon_huge_kb during (0 against 8192)"),
        ({(1, 2): "8192"}, "process_anon_huge_kb during (0 against 8192)"),
        ({(1, 0): "unknown"}, "process_anon_huge_kb during (0 against unknown)"),
        ({(1, 0): "4"}, "children_own_mappings during (0 against 4)"),
        ({(1, 0): "4"}, "memory_shmem_huge_kb during (0 against 4)"),
    ],
)
def test_page_state_that_nobody_wants_binds(huge: dict[tuple[int, int], str], reason: str) -> None:
    record, fact = own_run({}, 3), reason.partition(" ")[0] or "process_anon_huge_kb"
    told = with_results(record, lambda one: {"state": state(one.arm, one.round, huge, fact)})
    arms = counted(told, "/x/loop.c", "main")
    found = compare_arms(CountMethod(), *arms)
    if "unknown" in reason:
        assert found.verdict is Verdict.SAME  # a kernel need not be able to say it
    elif reason:
        assert (found.verdict, found.reasons) == (
            Verdict.INVALID, (f"page states differ: {reason}",),
        )  # fmt: skip
    else:
        assert found.verdict is Verdict.SAME


def test_memory_of_a_program_that_cannot_be_read_is_no_equal_one() -> None:
    values = dict.fromkeys(((arm, seed) for arm in (0, 1) for seed in (0, 1, 2)), "unknown")
    told = with_results(
        own_run({}, 3),
        lambda one: {"state": state(one.arm, one.round, values, "process_own_mappings")},
    )
    found = compare_arms(CountMethod(), *counted(told, "/x/loop.c", "main"))
    assert found.verdict is Verdict.INVALID
    assert "/proc of the program cannot be read" in found.reasons[0]


@pytest.mark.parametrize(
    ("options", "buffers", "verdict"),
    [
        ((2, 8), "0", Verdict.UNDECIDED),  # the socket is gone
        ((2, 8), "425984", Verdict.SAME),  # what it has is known, and no difference
        ((9, 15), "0", Verdict.SAME),  # no size is set
    ],
)
def test_a_limit_may_have_cut_what_a_program_sets(
    options: tuple[int, int], buffers: str, verdict: Verdict
) -> None:
    asked = {"setsockopt argument 3": (*options, 0, 0)}

    def told(one: TrialRecord) -> dict[str, object]:
        facts = {"process_receive_buffers": buffers, "limit_of_receive_buffers": f"{one.arm + 2}12"}
        told = (StateField(when="before", name=n, value=facts[n], want="free") for n in facts)
        phase = replace(one.exact.phases[0], outside=asked)
        return {"state": tuple(told), "data": replace(one.exact, phases=(phase,))}

    arms = counted(with_results(own_run({}, 3), told), "/x/loop.c", "main")
    found = compare_arms(CountMethod(), *arms)
    assert found.verdict is verdict
    assert ("(212 against 312)" in found.reasons[0]) is (verdict is Verdict.UNDECIDED)


def test_memory_that_is_not_base_pages_is_said() -> None:
    record = own_run({}, 3)
    huge = {(arm, 0): "8192" for arm in (0, 1)}
    told = with_results(record, lambda one: {"state": state(one.arm, one.round, huge)})
    arms = counted(told, "/x/loop.c", "main")
    said = "the memory of the program: 8,192 kB are mapped by huge pages"
    assert said in CountMethod().warnings(arms, [])


@pytest.mark.parametrize("new", ["8", "0"])
def test_huge_pages_that_come_and_go_in_windows_are_said(new: str) -> None:
    def told(one: TrialRecord) -> dict[str, object]:
        value = new if one.arm else "8"
        facts = (("undone_thp_fault_alloc", value), ("program_other_folders", "1"))
        state = [StateField(when="during", name=name, value=n, want="free") for name, n in facts]
        return {"state": tuple(state)}

    arms = counted(with_results(own_run({}, 3), told), "/x/loop.c", "main")
    total = arms[0].total
    assert total
    assert total.huge == 2
    record = with_results(own_run({}, 3), told)
    answer = " ".join(plain(show(report(record))).partition("\n\n")[0].split())
    assert "not yours: --file takes small ones. Its memory came in huge pages (2 a" in answer
    found = compare_arms(CountMethod(), *arms)
    apart = "counters of the kernel differ: thp_fault_alloc (8 against 0)"
    assert (found.verdict is Verdict.INVALID) is (new == "0")
    assert (apart in found.reasons) is (new == "0")


def test_shipped_scenarios_are_not_tried_in_parts() -> None:
    record = own_run({(1, 2): 1300}, 3)
    shipped = [replace(one, workload="mprotect", scenario="a") for one in record.trials]
    study = replace(record.study, scenarios=("mprotect:a",))
    assert sources(replace(record, study=study, trials=tuple(shipped))) == ()


def test_a_seed_varies_all_five_or_one() -> None:
    trial = TrialRecord(index=0, round=2, arm=0, workload="/x/loop.c", scenario="main")
    one, boot = (replace(trial, varies=source) for source in (Source.ADDRESSES, Source.BOOT))
    made = [seed_of(each, outside=True, other=0) for each in (trial, one, boot)]
    told = ["seed 3 3 3 3", "seed 1 1 1 3", "seed 1 1 1 1"]
    assert [each.order.line for each in made] == told
    assert [each.boot for each in made] == [3, 1, 3]
    shipped = seed_of(trial, outside=False, other=1000)
    assert (shipped.order.line, shipped.boot) == ("seed 1003 1003 1003 0", 1)


def test_trials_are_added_to_a_run(tmp_path: Path) -> None:
    record = new_run(arms=1, rounds=1)
    journal = RunJournal.create(tmp_path, record)
    more = replace(record.trials[0], index=7, varies=Source.TICKS)
    with pytest.raises(RuntimeError):
        journal.extend([more])
    with journal.executing():
        journal.extend([more])
        assert [one.index for one in journal.pending()] == [0, 1, 7]
    assert RunJournal.open(tmp_path).plan.trials == (*record.trials, more)
