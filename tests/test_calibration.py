# SPDX-License-Identifier: GPL-2.0-or-later
"""Published changes in bench/: the sets are whole; what an interval and two builds decide."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from kdelta import workload
from kdelta.check.compare import Counted
from kdelta.check.page import FunctionPart
from kdelta.disassembly import image
from kdelta.kernels.kernel import Kernel
from kdelta.sample import ExactData, FunctionCount, Outcome, TrialResult

BENCH = Path(__file__).parents[1] / "bench"
sys.path.insert(0, str(BENCH))

import calibration  # noqa: E402
from calibration import CaseAnswer, CountsSay, Expected, PublishedCase  # noqa: E402

OFFERED = [(6, 1), (6, 12), (6, 16), (6, 17), (6, 18), (6, 19), (7, 0), (7, 1), (7, 2)]
# What calls what, in either build.
CALLS = {
    "mm_init": {"percpu_init", "memset"}, "percpu_init": {"pcpu_alloc", "lock"},
    "pcpu_alloc": {"find_zero"}, "copy_page_range": {"lock"},
}  # fmt: skip


def case(**other: object) -> PublishedCase:
    found = PublishedCase(
        id="x", title="mm: x", release="6.17", workload="w", reported="-40 %", kind="path",
        expect=Expected.MORE, source="s", scenario="mprotect:anon_toggle_4m",
        functions=("change_*",),
    )  # fmt: skip
    return msgspec.structs.replace(found, **other)


def answer(
    monkeypatch: pytest.MonkeyPatch, found: PublishedCase, after: float, own: float, **how: object
) -> CaseAnswer:
    signless = str(how.pop("signless", ""))
    seen = calibration.CountDifference(
        before=100.0, after=after, sure=True, reason="", signless=signless,
        functions=(
            FunctionPart(function="change_protection", delta=own),
            FunctionPart(function="other", delta=after - 100 - own),
        ),
        leading=("change_protection",),
    )  # fmt: skip
    monkeypatch.setattr(calibration, "count_difference", lambda _old, _new: seen)
    return calibration.answered(found, None, None, ("6.16.1", "6.17.1"), **how)  # type: ignore[arg-type]


def test_the_sets_are_whole() -> None:
    """Each case has a scenario that exists, an interval or patches that exist, or what it lacks."""
    files = ("calibration", "calibration-second", "calibration-third")
    sets = [calibration.read(BENCH / f"{name}.toml") for name in files]
    assert [*map(len, sets)] == [32, 16, 4]
    cases = [each for one in sets for each in one]
    assert len({each.title for each in cases}) == len(cases)
    used = {name for each in cases for name in (each.undone_by, each.done_by) if name}
    assert used == {file.stem for file in (BENCH / "variants").glob("*.patch")}
    for each in cases:
        if each.is_built or not each.lacks:
            workload.parse_reference(each.scenario)
            assert each.is_built or calibration.interval(each, OFFERED), each.id


@pytest.mark.parametrize(
    "text",
    ["[[case]]\nid = 'x'", "[[case]]\nnothing = 1", "case = 3", "[[case", "[[case]]\nid = 7"],
)
def test_what_is_no_list_of_cases_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cases.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"."):
        calibration.read(file)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("6.17", ((6, 16), (6, 17))), ("6.10, repaired in 6.12", ((6, 1), (6, 12))),
        ("7.0", ((6, 19), (7, 0))), ("7.4", None), ("5.10", None), ("some day", None),
    ],
)  # fmt: skip
def test_the_interval_is_that_of_two_neighbours(release: str, expected: object) -> None:
    assert calibration.interval(case(release=release), OFFERED) == expected
    assert not calibration.is_wide(((6, 19), (7, 0)))
    assert calibration.is_wide(((6, 12), (6, 16)))


def test_of_an_interval_the_functions_of_a_change_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answer(monkeypatch, case(), 90.0, 5.0)
    assert (found.said, found.right, found.why) == (CountsSay.MORE, True, "its own functions")
    assert answer(monkeypatch, case(), 90.0, -5.0, wide=True).right is False
    assert answer(monkeypatch, case(), 90.0, 5.0, wide=True).said is CountsSay.UNDECIDED
    assert answer(monkeypatch, case(), 108.0, 0.9, wide=True).said is CountsSay.UNDECIDED
    assert answer(monkeypatch, case(), 108.0, 1.1, wide=True).said is CountsSay.MORE
    unknown = case(functions=())
    assert answer(monkeypatch, unknown, 150.0, 0.0, wide=True).said is CountsSay.UNDECIDED
    assert answer(monkeypatch, unknown, 150.0, 0.0).said is CountsSay.MORE
    assert answer(monkeypatch, unknown, 100.5, 0.0).said is CountsSay.SAME


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (100.0, CountsSay.SAME), (100.04, CountsSay.SAME), (100.5, CountsSay.MORE),
        (99.5, CountsSay.LESS),
    ],
)  # fmt: skip
def test_two_builds_decide_to_the_instruction(
    monkeypatch: pytest.MonkeyPatch, after: float, said: CountsSay
) -> None:
    """Whatever functions the case names."""
    assert answer(monkeypatch, case(), after, 3.0, built=True).said is said


def test_functions_of_changed_code_are_own_and_bytes_leave_a_sign_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inlined = case(functions=("can_modify_vma*",))
    theirs = frozenset(("change_protection.isra.0", "never_executed"))
    found = answer(monkeypatch, inlined, 100.5, 0.6, built=True, changed=theirs)
    assert (found.found, found.leading) == (("change_protection",), ("change_protection",))
    assert found.own == pytest.approx(0.6)
    assert answer(monkeypatch, inlined, 100.5, 0.6, built=True).found == ()
    open_ = answer(monkeypatch, case(), 95.0, 0.0, built=True, signless="4 bytes")
    assert (open_.said, open_.right, open_.why) == (CountsSay.UNDECIDED, None, "4 bytes")


def test_a_renamed_function_is_own_by_either_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("change_protection (before: f)", "f (before: change_protection)"):
        parts = (FunctionPart(function=name, delta=7.0),)
        seen = calibration.CountDifference(
            before=100.0, after=90.0, sure=True, reason="", functions=parts,
            leading=(name.partition(" ")[0],),
        )  # fmt: skip
        monkeypatch.setattr(calibration, "count_difference", lambda _old, _new, seen=seen: seen)
        found = calibration.answered(case(), None, None, ("1", "2"))  # type: ignore[arg-type]
        assert (found.own, found.leading) == (7.0, (name,))


def test_a_path_that_should_stay_is_judged_by_two_builds_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    little = case(functions=(), expect=Expected.SAME_OR_LITTLE, kind="contention")
    for after, right in ((100.5, True), (109.0, True), (120.0, None)):
        assert answer(monkeypatch, little, after, 0.0).right is right
    stays = case(expect=Expected.SAME, kind="layout")
    found = answer(monkeypatch, stays, 120.0, 20.0)
    assert (found.said, found.right) == (CountsSay.UNDECIDED, None)
    assert answer(monkeypatch, stays, 100.0, 0.0, built=True).right is True
    assert answer(monkeypatch, stays, 100.01, 0.0, built=True).right is False


def test_the_summary_and_the_rows_have_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = answer(monkeypatch, case(id="wrong", note="a note"), 90.0, -5.0)
    answers = [
        answer(monkeypatch, case(id="one"), 110.0, 5.0),
        answer(monkeypatch, case(id="two"), 100.5, 0.5, built=True),
        wrong,
        calibration.not_counted(case(id="disk", kind="device"), "a rotating disk"),
    ]
    said = calibration.summary(answers)
    assert said.startswith(
        "2 of 3 judged cases have the published sign; 0 undecided, 1 not counted"
    )
    assert "not found: wrong." in said
    rows = list(calibration.table(answers))[2:]
    assert rows[0] == ("| one | 6.16.1, 6.17.1 | `mprotect:anon_toggle_4m` | +10.0 | +5.0 | more |")
    assert rows[1].split("|")[4] == " +0.50 "
    assert "less (wrong)" in rows[2]
    assert "a rotating disk" in rows[3]
    assert ["a note" in line for line in calibration.details(answers)] == [
        False, False, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said", "right", "total", "found", "leading"),
    [
        (("Yes: a()\n takes 110.0 instructions per\n page on 6.17.13, 100.0 on 6.16.12: x1.100."
          " By function it is other +7.0, change_x (before: change_y) +3.0. 6.17"),
         CountsSay.MORE, True, 10.0, ("other", "change_x (before: change_y)"),
         ("change_x (before: change_y)",)),
        (("Undecided, since x: a() takes 4 instructions per page on 2, ~8 on 1: x0.5. The"
         " largest change is 1 -> 2, x0.5, undecided. Largest cause: -1.0, change_z: its own."),
         CountsSay.UNDECIDED, None, -50.0, ("change_z",), ("change_z",)),
        ("No: a() takes 8 instructions per page on 2, 8 on 1: x1, within 1 %.", CountsSay.SAME,
         False, 0.0, (), ()),
    ],
)  # fmt: skip
def test_the_words_of_why_are_read(
    text: str, said: object, right: object, total: float, found: object, leading: object
) -> None:
    read = calibration.of_why(case(), text)
    assert (read.said, read.right, read.found, read.leading) == (said, right, found, leading)
    assert read.total == pytest.approx(total)
    assert ("(wrong)" in list(calibration.why_table([read]))[2]) is (right is False)
    with pytest.raises(ValueError, match="x: Perhaps"):
        calibration.of_why(case(), "Perhaps.")


# ---- a change's own functions -----------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """An image in name only."""

    name: str


@pytest.fixture
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def watched(_image: Image, names: Iterable[str]) -> tuple[str, ...]:
        return tuple({*names, *(below for name in names for below in CALLS.get(name, ()))})

    monkeypatch.setattr(image, "opened", lambda _path, name: Image(name))
    monkeypatch.setattr(calibration, "watched", watched)


def counted(**calls: int) -> Counted:
    rows = tuple(
        FunctionCount(phase="fork", function=name, insns=10 * each, calls=each)
        for name, each in calls.items()
    )
    kernel = Kernel(
        reference="x", release="6.17.8", arch="amd64", flavour="deb",
        image=Path("/none"), image_sha256="0", )  # fmt: skip
    result = TrialResult(outcome=Outcome.OK, data=ExactData(functions=rows))
    return Counted(scenario="process:fork_exit", kernel=kernel, result=result)


@pytest.mark.usefixtures("no_images")
def test_what_changed_code_calls_more_or_less_often_is_its_own_and_what_that_calls() -> None:
    old = counted(mm_init=1, percpu_init=4, pcpu_alloc=4, find_zero=9, lock=8, memset=1, fork=1)
    new = counted(mm_init=1, percpu_init=1, pcpu_alloc=1, find_zero=3, lock=8, memset=1, fork=2)
    found = calibration.own_functions(old, new, frozenset(("mm_init", "not_executed")))
    # Neither what is called as often nor what others call more often.
    assert found == {"mm_init", "percpu_init", "pcpu_alloc", "find_zero", "not_executed"}
    old, new = counted(copy_page_range=1, lock=1), counted(copy_page_range=1, lock=2)
    assert calibration.own_functions(old, new, frozenset(("mm_init",))) == {"mm_init"}


@pytest.mark.usefixtures("no_images")
def test_functions_that_call_each_other_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALLS, "find_zero", {"pcpu_alloc", "mm_init"})
    old, new = counted(mm_init=1, percpu_init=2, pcpu_alloc=2), counted(mm_init=1)
    found = calibration.own_functions(old, new, frozenset(("mm_init",)))
    assert found == {"mm_init", "percpu_init", "pcpu_alloc"}
