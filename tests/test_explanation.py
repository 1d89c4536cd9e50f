# SPDX-License-Identifier: GPL-2.0-or-later
"""The functions of a difference: ranked, closed to the integer, one where a name changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kdelta.analysis.explanation import USER, Presence, base_name, explain
from kdelta.errors import SpecError
from kdelta.sample import FunctionCount, Outcome, PhaseCounts, StateField, TrialResult
from kdelta.verdict.comparison import Verdict
from ladder_records import PAGES, STATE, Trial, failed, ladder, recounted, result, run

OLD = result(Trial(per_page=300))
NEW = result(Trial(per_page=600))
HUGE = (*STATE[:1], StateField(when="before", name="anon_huge_kb", value="16384", want="0"))


def test_the_explanation_ranks_and_closes_exactly() -> None:
    found = explain(ladder(), "6.16", "6.17")
    assert [row.function for row in found.functions[:4]] == [
        "prot_commit_flush_ptes",
        "change_protection",
        "change_pte_range",
        "vm_normal_page",
    ]
    assert found.functions[0].status is Presence.NEW
    assert found.functions[0].old is None
    assert found.functions[0].calls_new == PAGES
    assert found.functions[1].status is Presence.VANISHED
    assert found.delta == sum(row.delta for row in found.functions)
    assert sum(row.share or 0 for row in found.functions) == pytest.approx(100)
    assert [row.function for row in found.rising] == [
        "prot_commit_flush_ptes",
        "change_pte_range",
        "vm_normal_page",
    ]
    assert [row.function for row in found.falling] == ["change_protection"]


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
    assert rows["__pte_offset_map"].status is Presence.VANISHED
    assert rows["___pte_offset_map"].status is Presence.NEW
    [one] = found.renamed
    assert (one.function, one.was, one.delta) == (
        "___pte_offset_map",
        "__pte_offset_map",
        2 * PAGES,
    )
    assert (one.old, one.new, one.calls_old) == (60 * PAGES, 62 * PAGES, PAGES)
    named = {row.function for row in (*found.rising, *found.falling)}
    assert "new_in_town" in named
    assert not named & {"__pte_offset_map", "___pte_offset_map"}  # 2 of 50 do not stand out


def test_compiler_suffixes_are_folded_and_told() -> None:
    found = explain(ladder(), "6.16", "6.17")
    row = next(row for row in found.functions if row.function == "change_pte_range")
    assert row.status is Presence.BOTH
    assert found.folded == (("change_pte_range", ("change_pte_range.isra.0",)),)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("change_pte_range.isra.0", "change_pte_range"),
        ("f.constprop.0.isra.0", "f"),
        ("f.part.0.cold", "f"),
        ("f.cold", "f"),
        ("f.cold.12", "f"),
        ("f.llvm.1234567", "f"),
        ("f", "f"),
        ("f.particular", "f.particular"),
        ("f.0", "f.0"),
        (".cold", ".cold"),
        (USER, USER),
    ],
)
def test_base_name(name: str, base: str) -> None:
    assert base_name(name) == base


def test_calls_of_split_off_pieces_are_not_calls_of_the_function() -> None:
    pieces = {"f": 10.0, "f.cold": 1.0, "f.part.0": 2.0, "f.constprop.0": 3.0}
    record = run({"6.16.1": [OLD], "6.17.1": [result(Trial(per_page=600, functions=pieces))]})
    row = next(row for row in explain(record, "6.16", "6.17").functions if row.function == "f")
    assert row.new == 16 * PAGES
    assert row.calls_new == 2 * PAGES  # f and its clone


def test_user_space_has_no_calls() -> None:
    row = next(r for r in explain(ladder(), "6.16", "6.17").functions if r.function == USER)
    assert (row.delta, row.calls_old, row.calls_new) == (0, None, None)


def test_functions_come_from_the_trial_whose_count_is_shown() -> None:
    odd = result(Trial(per_page=601, functions={"odd": 1.0}))
    even = result(Trial(per_page=600, functions={"even": 1.0}))
    found = explain(run({"6.16.1": [OLD] * 3, "6.17.1": [odd, even, even]}), "6.16", "6.17")
    names = {row.function for row in found.functions}
    assert "even" in names
    assert "odd" not in names


def test_functions_that_do_not_sum_to_the_count_are_invalid() -> None:
    lossy = recounted(NEW, functions=NEW.exact.functions[:-1])
    record = run({"6.16.1": [OLD], "6.17.1": [lossy]})
    found = explain(record, "6.16", "6.17")
    assert found.comparison.verdict is Verdict.INVALID
    assert found.refused
    assert found.functions == ()
    assert "6.17.1: the functions stored for touch sum to" in found.comparison.reasons[0]
    assert explain(record, "6.16", "6.17", phase="protect").comparison.verdict is Verdict.REGRESSION


def test_missing_functions_are_invalid() -> None:
    found = explain(
        run({"6.16.1": [OLD], "6.17.1": [recounted(NEW, functions=())]}), "6.16", "6.17"
    )
    assert "no functions are stored for protect" in found.comparison.reasons[0]
    assert found.refused


def test_an_invalid_comparison_is_refused_unless_forced() -> None:
    record = run({"6.16.1": [OLD], "6.17.1": [replace(NEW, state=HUGE)]})
    found = explain(record, "6.16", "6.17")
    assert found.refused
    assert (found.functions, found.delta, found.rest) == ((), None, None)
    forced = explain(record, "6.16", "6.17", force=True)
    assert forced.comparison.verdict is Verdict.INVALID
    assert not forced.refused
    assert forced.delta == 300 * PAGES


def test_force_cannot_rank_what_was_not_measured() -> None:
    record = run({"6.16.1": [OLD], "6.17.1": [failed(Outcome.BOOT_ERROR, "panic")]})
    found = explain(record, "6.16", "6.17", force=True)
    assert found.refused
    assert found.comparison.verdict is Verdict.UNDECIDED


def test_one_phase_can_be_explained_alone() -> None:
    found = explain(ladder(), "6.16", "6.17", phase="touch")
    assert (found.phase, found.delta) == ("touch", 0)
    assert found.comparison.verdict is Verdict.SAME
    assert all(row.share is None for row in found.functions)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("6.17.13", "6.17.13"),
        ("6.17", "6.17.13"),
        ("6.17.13+deb13-cloud-amd64", "6.17.13"),
        ("6.17.13-1~bpo13+1", "6.17.13"),
        ("6.17.13+deb13", "6.17.13"),
        ("6.1", "6.1.176"),
        ("6.12", "6.12.107"),
    ],
)
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
    with pytest.raises(SpecError, match="mprotect:shared_dirty_full_toggle_64m"):
        explain(ladder(1), "6.16", "6.17", scenario="scan")


def test_several_scenarios_need_a_name() -> None:
    record = run({"6.16.1": [OLD], "6.17.1": [NEW]})
    more = tuple(replace(t, index=t.index + 9, scenario="other") for t in record.trials)
    record = replace(record, trials=(*record.trials, *more))
    with pytest.raises(SpecError, match=r"2 scenarios.*mprotect:other"):
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
