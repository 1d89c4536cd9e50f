# SPDX-License-Identifier: GPL-2.0-or-later
"""The functions of a difference: ranked, closed to the integer, one where a name changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kdelta.analysis.audit import audited
from kdelta.analysis.explanation import USER, Presence, base_name, explain, shortened
from kdelta.analysis.findings import report
from kdelta.analysis.gate import gate
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import Measure, Replicates
from kdelta.ladder.evidence import State
from kdelta.ladder.ladders import Ladder
from kdelta.sample import TOTAL, FunctionCount, Outcome, PhaseCounts, StateField, TrialResult, Try
from kdelta.study import spec
from kdelta.verdict.comparison import Verdict
from kdelta.verdict.windows import LocationKind
from ladder_records import ENVIRONMENT, PAGES, STATE, Trial, failed, ladder, recounted, result, run

OLD = result(Trial(per_page=300))
NEW = result(Trial(per_page=600))
HUGE = (*STATE[:1], StateField(when="before", name="anon_huge_kb", value="16384", want="0"))


def test_the_explanation_ranks_and_closes_exactly() -> None:
    found = explain(ladder(), "6.16", "6.17")
    assert [row.function for row in found.functions[:4]] == [
        "prot_commit_flush_ptes", "change_protection", "change_pte_range", "vm_normal_page",
    ]  # fmt: skip
    assert found.functions[0].status is Presence.NEW
    assert found.functions[0].old is None
    assert found.functions[0].calls_new == PAGES
    assert found.functions[1].status is Presence.VANISHED
    assert found.delta == sum(row.delta for row in found.functions)
    assert sum(row.share or 0 for row in found.functions) == pytest.approx(100)
    assert [row.function for row in found.rising] == [
        "prot_commit_flush_ptes", "change_pte_range", "vm_normal_page",
    ]  # fmt: skip
    assert [row.function for row in found.falling] == ["change_protection"]


def test_a_step_without_a_function_and_a_table_without_what_is_nearly_zero() -> None:
    found = explain(ladder(), "6.16", "6.17")
    assert found.without(found.functions[0]) == pytest.approx((769.8 - 328) / 401.7)
    shown = shortened(found, 15, least=20 * PAGES)
    assert min(abs(row.delta) for row in shown.functions) >= 20 * PAGES
    assert shown.rest
    assert sum(row.delta for row in shown.functions) + shown.rest.delta == found.delta


def test_functions_of_one_name_are_one_in_the_sentence_and_two_rows_in_the_table() -> None:
    sides = [
        {"__pte_offset_map": 60.0, "zap_gone": 30.0},
        {"___pte_offset_map": 62.0, "new_in_town": 31.0},
    ]
    arms = [
        result(Trial(per_page=400 + 50 * at, functions=names)) for at, names in enumerate(sides)
    ]
    found = explain(run({"6.12.1": [arms[0]], "6.16.1": [arms[1]]}), "6.12", "6.16")
    rows = {row.function: row for row in found.functions}
    assert "__pte_offset_map" not in rows
    one = rows["___pte_offset_map"]
    assert (one.was, one.delta, one.status) == ("__pte_offset_map", 2 * PAGES, Presence.BOTH)
    assert (one.old, one.new, one.calls_old) == (60 * PAGES, 62 * PAGES, PAGES)
    named = {row.function for row in (*found.rising, *found.falling)}
    assert "new_in_town" in named
    assert not named & {"__pte_offset_map", "___pte_offset_map"}  # 2 of 50 do not stand out


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("change_pte_range.isra.0", "change_pte_range"), ("f.constprop.0.isra.0", "f"),
        ("f.part.0.cold", "f"), ("f.cold", "f"), ("f.cold.12", "f"), ("f.llvm.1234567", "f"),
        ("f", "f"), ("f.particular", "f.particular"), ("f.0", "f.0"), (".cold", ".cold"),
        (USER, USER),
    ],
)  # fmt: skip
def test_base_name(name: str, base: str) -> None:
    assert base_name(name) == base


def test_calls_of_split_off_pieces_are_not_calls_of_the_function() -> None:
    pieces = {"f": 10.0, "f.cold": 1.0, "f.part.0": 2.0, "f.constprop.0": 3.0}
    record = run({"6.16.1": [OLD], "6.17.1": [result(Trial(per_page=600, functions=pieces))]})
    row = next(row for row in explain(record, "6.16", "6.17").functions if row.function == "f")
    assert row.new == 16 * PAGES
    assert row.calls_new == 2 * PAGES  # f and its clone


def test_functions_come_from_the_trial_whose_count_is_shown() -> None:
    odd = result(Trial(per_page=601, functions={"odd": 1.0}))
    even = result(Trial(per_page=600, functions={"even": 1.0}))
    found = explain(run({"6.16.1": [OLD] * 3, "6.17.1": [odd, even, even]}), "6.16", "6.17")
    names = {row.function for row in found.functions}
    assert "even" in names
    assert "odd" not in names


def test_a_trial_without_functions_is_invalid() -> None:
    none = run({"6.16.1": [OLD], "6.17.1": [recounted(NEW, functions=())]})
    found = explain(none, "6.16", "6.17")
    assert found.comparison.verdict is Verdict.INVALID
    assert "no functions are stored for protect" in found.comparison.reasons[0]
    assert found.refused
    assert found.functions == ()


def test_force_cannot_rank_what_was_not_measured() -> None:
    record = run({"6.16.1": [OLD], "6.17.1": [failed(Outcome.BOOT_ERROR, "panic")]})
    found = explain(record, "6.16", "6.17", force=True)
    assert found.refused
    assert found.comparison.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("6.17.13", "6.17.13"), ("6.17", "6.17.13"), ("6.17.13+deb13-cloud-amd64", "6.17.13"),
        ("6.17.13-1~bpo13+1", "6.17.13"), ("6.17.13+deb13", "6.17.13"), ("6.1", "6.1.176"),
        ("6.12", "6.12.107"),
    ],
)  # fmt: skip
def test_arms_are_found_by_every_name_and_unique_beginning(text: str, label: str) -> None:
    assert explain(ladder(1), text, "7.2.1").old == label


@pytest.mark.parametrize(("text", "cause"), [("6", "matches several"), ("5.10", "no kernel")])
def test_names_that_fit_no_or_several_arms_list_them(text: str, cause: str) -> None:
    with pytest.raises(SpecError, match=rf"{cause}.*6\.1\.176, 6\.12\.107") as error:
        explain(ladder(1), text, "7.2.1")
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "\x1b[2J"])
def test_hostile_names_of_arms_are_refused_in_print(text: str) -> None:
    with pytest.raises(SpecError) as error:
        explain(ladder(1), text, "7.2.1")
    assert str(error.value).isprintable()


def test_unknown_phases_and_scenarios_list_what_there_is() -> None:
    with pytest.raises(SpecError, match="protect, touch"):
        explain(ladder(1), "6.16", "6.17", phase="scan")
    with pytest.raises(SpecError, match="known: shared_dirty_full_toggle_64m"):
        explain(ladder(1), "6.16", "6.17", scenario="scan")


def test_several_scenarios_need_a_name() -> None:
    record = run({"6.16.1": [OLD], "6.17.1": [NEW]})
    more = tuple(replace(t, index=t.index + 9, scenario="other") for t in record.trials)
    record = replace(record, trials=(*record.trials, *more))
    with pytest.raises(SpecError, match=r"2 scenarios; name one.*6\.17 --scenario mprotect:\w+`"):
        explain(record, "6.16", "6.17")
    assert explain(record, "6.16", "6.17", scenario="other").scenario == "other"
    assert explain(record, "6.16", "6.17", scenario="mprotect:other").scenario == "other"


COUNTS = st.dictionaries(
    st.sampled_from(["[user]", "a", "b", "c.isra.0", "c", "c.cold", "d.part.0", "e"]),
    st.integers(min_value=0, max_value=10**12),
    min_size=1,
)


def trial_from(counts: dict[str, int]) -> TrialResult:
    phase = PhaseCounts(
        phase="p", operations=7, operation="call", user=(0,), kernel=(sum(counts.values()),)
    )
    functions = tuple(
        FunctionCount(phase="p", function=name, insns=insns, calls=1)
        for name, insns in counts.items()
    )
    return recounted(OLD, phases=(phase,), functions=functions)


@given(COUNTS, COUNTS, st.none() | st.integers(min_value=1, max_value=9))
def test_every_explanation_closes_to_the_integer(
    old: dict[str, int], new: dict[str, int], top: int | None
) -> None:
    record = run({"6.16.1": [trial_from(old)], "6.17.1": [trial_from(new)]})
    found = explain(record, "6.16", "6.17", top=top, step_percent=1)
    assert not found.refused
    assert found.rest is not None
    assert found.delta == sum(new.values()) - sum(old.values())
    assert found.delta == sum(row.delta for row in found.functions) + found.rest.delta
    assert found.new_value == sum(row.new or 0 for row in found.functions) + found.rest.new
    assert found.old_value == sum(row.old or 0 for row in found.functions) + found.rest.old


def only(record: RunRecord, step_percent: float | None = None) -> Ladder[Measure]:
    found = report(record, step_percent=step_percent).ladders
    assert len(found) == 1
    return found[0]


def verdicts(found: Ladder[Measure]) -> list[Verdict | None]:
    return [rung.comparison.verdict if rung.comparison else None for rung in found.rungs]


def test_the_ladder_names_every_step_and_the_largest_first() -> None:
    found = only(ladder())
    assert [(step.old, step.new) for step in found.steps] == [
        ("6.16.12", "6.17.13"), ("6.1.176", "6.12.107"), ("6.17.13", "6.18.15"),
    ]  # fmt: skip
    assert found.steps[0].new_value == pytest.approx(769.8, abs=0.001)
    assert found.phases == ("protect", "touch")
    assert found.operation == "page"


def test_phases_of_unequal_operations_add_up_per_iteration() -> None:
    phases = (OLD.exact.phases[0], replace(OLD.exact.phases[1], operations=1, operation="call"))
    total = only(run({"6.16.1": [recounted(OLD, phases=phases)]})).rungs[0].total
    assert total is not None
    assert (total.operation, total.operations) == ("iteration", 1)
    assert total.value == 300 * PAGES


def test_an_arm_without_ok_trials_is_undecided_and_the_next_is_compared_with_the_last_valid() -> (
    None
):
    panic = failed(Outcome.BOOT_ERROR, "Kernel panic: no init")
    found = only(run({"6.16.1": [OLD], "6.17.1": [panic], "6.18.1": [NEW]}))
    assert verdicts(found) == [None, Verdict.UNDECIDED, Verdict.REGRESSION]
    assert found.rungs[1].total is None
    assert found.rungs[1].state is State.ABSENT
    assert found.rungs[1].ratio(TOTAL).previous is None
    assert found.rungs[2].previous == "6.16.1"
    assert [(step.old, step.new) for step in found.steps] == [("6.16.1", "6.18.1")]
    assert any("6.18.1 is compared with 6.16.1" in warning for warning in found.warnings)


@pytest.mark.parametrize("state", [(), (replace(STATE[0], value="unknown"),)])
def test_an_unknown_state_is_invalid(state: tuple[StateField, ...]) -> None:
    found = only(run({"6.16.1": [OLD], "6.17.1": [replace(NEW, state=state)]}))
    assert found.rungs[1].state is State.UNKNOWN
    assert verdicts(found) == [None, Verdict.INVALID]


def test_states_that_hold_but_differ_are_invalid() -> None:
    other = (replace(STATE[0], value="8192", want="8192"), *STATE[1:])
    found = only(run({"6.16.1": [OLD], "6.17.1": [replace(NEW, state=other)]}))
    comparison = found.rungs[1].comparison
    assert comparison is not None
    assert comparison.verdict is Verdict.INVALID
    assert comparison.reasons == ("page states differ: present_pages before (16384 against 8192)",)


def test_trials_of_one_kernel_whose_page_states_differ_are_invalid() -> None:
    same = replace(STATE[0], want="same")
    other = replace(same, value="8192")
    trials = [replace(NEW, state=(fact, *STATE[1:])) for fact in (same, same, other)]
    record = run({"6.16.1": [replace(OLD, state=(same, *STATE[1:]))] * 3, "6.17.1": trials})
    rung = only(record).rungs[1]
    assert rung.state is State.FAILED
    assert rung.comparison is not None
    assert rung.comparison.verdict is Verdict.INVALID
    assert rung.comparison.reasons == (
        "6.17.1: page states differ: present_pages before (16384 against 8192)",
    )
    assert not audited(record).passed, "the audit says the same"


def test_the_first_kernel_can_be_invalid_too() -> None:
    found = only(run({"6.16.1": [replace(OLD, state=HUGE)], "6.17.1": [NEW]}))
    assert verdicts(found) == [Verdict.INVALID, None]
    assert found.rungs[1].first is None


def in_other(**environment: str) -> TrialResult:
    return replace(NEW, environment=replace(ENVIRONMENT, **environment))


HALVED = recounted(NEW, phases=tuple(replace(p, operations=PAGES // 2) for p in NEW.exact.phases))


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        # A state that does not hold, in a trial that says ok.
        ([OLD], [replace(NEW, state=HUGE)], Verdict.INVALID),
        # A copy of 4 KiB takes 40 instructions more where another C library moves the buffer.
        ([OLD], [in_other(program_sha256="cd" * 32)], Verdict.INVALID),
        ([OLD], [in_other(mitigations="meltdown: Not affected")], Verdict.REGRESSION),
        ([OLD] * 2, [NEW, in_other(qemu_version="7.2.22")], Verdict.INVALID),
        ([OLD], [replace(NEW, environment=None)], Verdict.INVALID),
        ([OLD], [HALVED], Verdict.INVALID),
        ([OLD] * 2, [NEW, HALVED], Verdict.INVALID),
        # Trials that disagree by more than a third of the difference.
        ([OLD] * 2, [result(Trial(per_page=420)), NEW], Verdict.UNDECIDED),
    ],
)
def test_what_may_differ_between_trials(
    old: list[TrialResult | None], new: list[TrialResult | None], verdict: Verdict
) -> None:
    assert verdicts(only(run({"6.16.1": old, "6.17.1": new}))) == [None, verdict]


def test_counts_of_two_pid_1_are_not_compared() -> None:
    """What memory it takes before a program decides a little; each machine's compiler builds it."""
    other = replace(ENVIRONMENT, initramfs_sha256="cd" * 32)
    case = gate(run({"6.16.1": [OLD], "6.17.1": [replace(NEW, environment=other)]})).cases[0]
    told = "initramfs_sha256 (not recorded against cdcdcdcdcdcd...)"
    assert case.comparison.verdict is Verdict.INVALID
    assert case.comparison.reasons == (f"environments differ: {told}",)


@pytest.mark.parametrize(
    ("function", "calls", "of_one_seed"),
    [
        ("get_page_from_freelist", PAGES, Verdict.UNDECIDED),
        ("__free_frozen_pages", 1, Verdict.UNDECIDED),
        ("__pcs_replace_empty_main", 1, Verdict.UNDECIDED),
        ("get_partial_node.part.0", 1, Verdict.UNDECIDED),
        ("chacha_permute", PAGES - 1, Verdict.UNDECIDED),
        ("chacha_permute", PAGES, Verdict.REGRESSION),  # each getrandom() makes its own
        ("free_pgtables", PAGES, Verdict.REGRESSION),
    ],
)
def test_a_small_step_that_may_be_of_the_memory_that_was_free(
    function: str, calls: int, of_one_seed: Verdict
) -> None:
    row = FunctionCount(phase="protect", function=function, insns=0, calls=calls)

    def trial(per_page: float) -> TrialResult:
        plain = result(Trial(per_page=per_page))
        return recounted(plain, functions=(*plain.exact.functions, row))

    def judged(rounds: int, new: float = 304.5) -> Verdict | None:
        arms = {"6.16.1": [trial(300)] * rounds, "6.17.1": [trial(new)] * rounds}
        return verdicts(only(run(arms)))[1]

    assert judged(1) is judged(2) is of_one_seed
    assert judged(3) is judged(1, 310) is Verdict.REGRESSION
    alike = gate(run({"6.16.1": [trial(300)], "6.17.1": [trial(304.5)]}), alike=True)
    assert alike.cases[0].comparison.verdict is Verdict.REGRESSION


def test_layouts_that_are_hit_count_in_the_sum_of_the_phases() -> None:
    """The other phase has one layout, and stands in what is usual as it is."""

    def trial(hit: int) -> TrialResult:
        protect, touch = OLD.exact.phases
        kernel = tuple(2_000_000 if at % 4 < hit else 1_000_000 for at in range(8))
        own = replace(protect, user=(0,) * 8, kernel=kernel, layouts=4)
        return recounted(OLD, phases=(own, touch), functions=())

    none, one = (only(run({"6.16.1": [trial(hit)]})).rungs[0].total for hit in (0, 1))
    assert none is not None
    assert one is not None
    assert (none.usual, one.usual) == (None, none.value)
    assert one.value == none.value + 1_000_000


def test_the_most_frequent_trial_wins_and_disagreement_is_told() -> None:
    odd = result(Trial(per_page=600.02))
    found = only(run({"6.16.1": [OLD] * 4, "6.17.1": [odd, NEW, NEW, NEW]}))
    total = found.rungs[1].total
    assert total is not None
    assert (total.per_operation, total.agree, total.trials) == (600, 3, 4)
    assert total.trials_range == round(0.02 * PAGES)
    assert found.rungs[1].phases[0].trial == 3  # the first trial with that value
    assert any("trials disagree" in w and "6.17.1 3 of 4" in w for w in found.warnings)
    assert verdicts(found) == [None, Verdict.REGRESSION]


def test_a_low_share_at_the_mode_is_warned_about() -> None:
    ticks = result(Trial(per_page=600, windows=(0, 0, 0, 11, 12, 13, 14, 15)))
    found = only(run({"6.16.1": [OLD], "6.17.1": [ticks]}))
    assert found.rungs[1].phases[0].kind is LocationKind.MODE
    assert "protect: fewer than half of the windows have the shown count: 6.17.1 38%" in (
        found.warnings
    )


def test_one_trial_shows_no_agreement_and_says_so() -> None:
    assert only(ladder(rounds=1)).warnings[0].startswith("one trial per kernel")


def test_what_the_trials_repeat_is_told() -> None:
    restored = replace(OLD, fresh_boot=False)
    assert only(run({"6.16.1": [OLD]})).replicates is Replicates.FRESH_BOOTS
    assert only(run({"6.16.1": [restored]})).replicates is Replicates.CHECKPOINT
    assert only(run({"6.16.1": [restored, OLD]})).replicates is Replicates.MIXED
    assert only(run({"6.16.1": [None]})).replicates is None


def test_an_unfinished_arm_has_no_verdict() -> None:
    found = only(run({"6.16.1": [OLD, None], "6.17.1": [None, None]}))
    assert verdicts(found) == [None, None]
    assert (found.done, found.planned) == (1, 4)


@pytest.mark.parametrize(
    "phases",
    [
        (),
        (PhaseCounts(phase="scan", operations=4, operation="page", user=(), kernel=()),),
        (PhaseCounts(phase="scan", operations=4, operation="page", user=(1,), kernel=(1, 2)),),
        (PhaseCounts(phase="scan", operations=0, operation="page", user=(1,), kernel=(1,)),),
    ],
)
def test_stored_counts_that_cannot_be_counts_are_a_failure(phases: tuple[PhaseCounts, ...]) -> None:
    found = only(run({"6.16.1": [OLD], "6.17.1": [recounted(NEW, phases=phases)]}))
    assert found.rungs[1].total is None
    assert found.failures[0].outcome is Outcome.INFRA_ERROR
    assert verdicts(found) == [None, Verdict.UNDECIDED]


def test_the_study_names_the_threshold_and_the_caller_overrides_it() -> None:
    record = run({"6.16.1": [OLD], "6.17.1": [result(Trial(per_page=306))]})
    assert verdicts(only(record)) == [None, Verdict.REGRESSION]
    assert verdicts(only(record, step_percent=2)) == [None, Verdict.SAME]
    lenient = replace(record, study=spec.with_settings(record.study, step_percent=3))
    assert verdicts(only(lenient)) == [None, Verdict.SAME]


def test_a_guest_that_died_once_is_told_and_blames_nobody() -> None:
    died = Try(outcome=Outcome.GUEST_ERROR, reason="Kernel panic: double fault")
    lived = Try(outcome=Outcome.OK, fresh_boot=True, other_seed=True)
    found = only(run({"6.16.1": [OLD], "6.17.1": [replace(NEW, tries=(died, lived))]}))
    assert found.failures == ()
    assert verdicts(found) == [None, Verdict.REGRESSION]
    assert found.warnings[-1] == (
        "6.17.1: the guest of trial 1 died once and not again, so no kernel is blamed:"
        " Kernel panic: double fault"
    )
    busy = Try(outcome=Outcome.INFRA_ERROR, reason="QEMU was ended by signal 9")
    found = only(run({"6.16.1": [OLD], "6.17.1": [replace(NEW, tries=(busy,))]}))
    assert not any("died" in warning for warning in found.warnings)
