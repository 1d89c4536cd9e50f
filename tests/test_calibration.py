# SPDX-License-Identifier: GPL-2.0-or-later
"""Published changes: the kernels around one, what may be said of it, and reports of robots."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import tomli_w
from click.testing import CliRunner

from kdelta import data, workload
from kdelta.check import calibration, matching, robot
from kdelta.check.calibration import CaseAnswer, CountsSay, PublishedCase
from kdelta.check.comparing import Both
from kdelta.check.page import FunctionPart
from kdelta.cli.main import cli
from kdelta.errors import SpecError
from kdelta.rendering import calibration as view

OFFERED = [(6, 1), (6, 12), (6, 16), (6, 17), (6, 18), (6, 19), (7, 0)]
MAIL = """\
From: kernel test robot <oliver.sang@intel.com>
Subject: [linus:master] [mm] c0bff412e6: stress-ng.clone.ops_per_sec -2.9% regression
Content-Type: text/plain; charset="us-ascii"

Hello,

kernel test robot noticed a -2.9% regression of stress-ng.clone.ops_per_sec on:


commit: c0bff412e67b781d761e330ff9578aa9ed2be79e ("mm: allow anon exclusive check")
https://git.kernel.org/cgit/linux/kernel/git/torvalds/linux.git master

testcase: stress-ng
test machine: 64 threads
parameters:

\tnr_threads: 100%
\ttesttime: 60s
\ttest: clone
\tcpufreq_governor: performance

commit:
  9cb28da546 ("mm/gup: handle hugetlb in the generic follow_page_mask code")
  c0bff412e6 ("mm: allow anon exclusive check")

9cb28da54643ad46 c0bff412e67b781d761e330ff95
---------------- ---------------------------
         %stddev     %change         %stddev
      1.51            +0.2        1.70        perf-profile.self.cycles-pp.copy_present_pte
"""


def case(**other: object) -> PublishedCase:
    found = PublishedCase(
        id="x", title="mm: x", release="6.17", workload="w", reported="-40 %", kind="path",
        expect="more", source="s", scenario="mprotect:anon_toggle_4m", functions=("change_*",),
    )  # fmt: skip
    return msgspec.structs.replace(found, **other)


def answer(
    monkeypatch: pytest.MonkeyPatch, found: PublishedCase, after: float, own: float, *, wide: bool
) -> CaseAnswer:
    seen = Both(
        before=100.0, after=after, sure=True, reason="",
        functions=(
            FunctionPart(function="change_protection", delta=own),
            FunctionPart(function="other", delta=after - 100 - own),
        ),
        first=("change_protection",),
    )  # fmt: skip
    monkeypatch.setattr(calibration, "both", lambda _old, _new: seen)
    return calibration.answered(found, None, None, ("6.16.1", "6.17.1"), wide=wide)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("6.17", ((6, 16), (6, 17))),
        ("6.10, repaired in 6.12", ((6, 1), (6, 12))),
        ("6.15", ((6, 12), (6, 16))),
        ("7.0", ((6, 19), (7, 0))),
        ("7.4", None),
        ("5.10", None),
        ("some day", None),
        ("6.17 or later", None),
        # Two releases are an interval, not the first of them.
        ("6.16 -> 6.17", ((6, 16), (6, 17))),
        ("v6.12..v6.16", ((6, 12), (6, 16))),
        ("6.10 to 6.15", ((6, 1), (6, 16))),
        ("between 6.17 and 6.18", ((6, 17), (6, 18))),
        ("6.16.3-6.17.8", ((6, 16), (6, 17))),
        ("6.17 -> 6.16", None),
        ("7.0 -> 7.4", None),
        ("6.99", None),  # 7.0 came after 6.19
        ("6.19", ((6, 18), (6, 19))),
    ],
)
def test_the_interval_is_that_of_two_neighbours(release: str, expected: object) -> None:
    assert calibration.interval(case(release=release), OFFERED) == expected


def test_the_functions_of_a_change_decide_and_not_what_came_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = answer(monkeypatch, case(), 90.0, 5.0, wide=False)
    assert (found.said, found.right) == (CountsSay.MORE, True)
    assert "other sign" in found.why
    assert answer(monkeypatch, case(), 90.0, -5.0, wide=True).right is False
    assert answer(monkeypatch, case(), 110.0, 5.0, wide=True).right is True


@pytest.mark.parametrize(
    ("after", "said", "why"),
    [
        (100.0, CountsSay.SAME, "equal to the instruction"),
        (100.04, CountsSay.SAME, "less than 0.05 %"),
        (100.5, CountsSay.MORE, "differ in it alone"),
        (99.5, CountsSay.LESS, "differ in it alone"),
    ],
)
def test_builds_that_differ_in_the_change_decide_to_the_instruction(
    monkeypatch: pytest.MonkeyPatch, after: float, said: CountsSay, why: str
) -> None:
    """Whatever the functions are that somebody named."""
    answer(monkeypatch, case(), after, 3.0, wide=False)
    found = calibration.answered(case(), None, None, ("a", "b"), built=True)  # type: ignore[arg-type]
    assert found.said is said
    assert why in found.why


def test_of_two_builds_a_function_is_the_changes_own_where_its_code_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the change adds may be inlined: then its caller is what got longer."""
    added = case(functions=("can_modify_vma*",))
    answer(monkeypatch, added, 100.5, 0.6, wide=False)
    theirs = frozenset(("change_protection.isra.0", "never_executed"))
    told = calibration.answered(added, None, None, ("a", "b"), built=True, changed=theirs)  # type: ignore[arg-type]
    assert (told.found, told.first) == (("change_protection",), ("change_protection",))
    assert told.own == pytest.approx(0.6)
    alone = calibration.answered(added, None, None, ("a", "b"), built=True)  # type: ignore[arg-type]
    assert (alone.found, alone.first) == ((), ())
    assert "explains 0.5 of 4.4 %" in view.explained(told, -4.4)  # the whole path


def test_builds_that_copy_more_by_fewer_instructions_are_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Both(before=100.0, after=95.0, sure=True, reason="", functions=(), signless="4 bytes")
    monkeypatch.setattr(calibration, "both", lambda _old, _new: seen)
    told = calibration.answered(case(), None, None, ("a", "b"), built=True)  # type: ignore[arg-type]
    assert (told.said, told.right, told.why) == (CountsSay.UNDECIDED, None, "4 bytes")
    assert view.explained(told, -10.2).startswith("Cannot be said: 4 bytes")


def test_every_variant_of_a_case_is_one_that_there_is() -> None:
    cases = calibration.read(data.directory("calibration") / "cases.toml")
    built = [each for each in cases if each.is_built]
    assert built == [each for each in cases if each.undone_by or each.done_by]
    for each in built:
        for name in filter(None, (each.undone_by, each.done_by)):
            assert (data.directory("variants") / f"{name}.patch").is_file()


def test_two_signs_over_several_releases_are_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answer(monkeypatch, case(), 90.0, 5.0, wide=True)
    assert (found.said, found.right, found.found) == (
        CountsSay.UNDECIDED,
        None,
        ("change_protection",),
    )


@pytest.mark.parametrize(("own", "said"), [(0.9, CountsSay.UNDECIDED), (1.1, CountsSay.MORE)])
def test_little_over_several_releases_is_what_others_can_do(
    monkeypatch: pytest.MonkeyPatch, own: float, said: CountsSay
) -> None:
    """Of 42 changes nobody had seen, one with the lock functions of fork() was said so, wrongly."""
    assert answer(monkeypatch, case(), 108.0, own, wide=True).said is said
    assert answer(monkeypatch, case(), 108.0, own, wide=False).said is CountsSay.MORE


def test_several_releases_without_a_function_are_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rather no answer than that of another change."""
    unknown = case(functions=())
    assert answer(monkeypatch, unknown, 150.0, 0.0, wide=True).said is CountsSay.UNDECIDED
    assert answer(monkeypatch, unknown, 150.0, 0.0, wide=False).said is CountsSay.MORE
    assert answer(monkeypatch, case(), 150.0, 0.0, wide=True).said is CountsSay.UNDECIDED


@pytest.mark.parametrize(("after", "right"), [(100.5, True), (109.0, True), (120.0, None)])
def test_little_is_a_quarter_of_what_was_published(
    monkeypatch: pytest.MonkeyPatch, after: float, right: object
) -> None:
    found = case(functions=(), expect="same-or-little", kind="contention")
    assert answer(monkeypatch, found, after, 0.0, wide=False).right is right


@pytest.mark.parametrize(("expect", "kind"), [("same", "layout"), ("same-or-little", "contention")])
def test_an_interval_that_holds_others_says_nothing_of_a_path_that_should_stay(
    monkeypatch: pytest.MonkeyPatch, expect: str, kind: str
) -> None:
    """Two builds that differ in it alone do."""
    stays = case(expect=expect, kind=kind)
    found = answer(monkeypatch, stays, 120.0, 20.0, wide=False)
    assert (found.said, found.right) == (CountsSay.UNDECIDED, None)
    assert "holds other changes" in found.why
    built = calibration.answered(stays, None, None, ("a", "b"), built=True)  # type: ignore[arg-type]
    assert (built.said, built.right) == (CountsSay.MORE, False)


@pytest.mark.parametrize(("after", "right"), [(100.0, True), (100.01, False)])
def test_a_layout_is_the_same_to_the_instruction(
    monkeypatch: pytest.MonkeyPatch, after: float, *, right: bool
) -> None:
    stays = case(expect="same", kind="layout")
    answer(monkeypatch, stays, after, 0.0, wide=False)
    built = calibration.answered(stays, None, None, ("a", "b"), built=True)  # type: ignore[arg-type]
    assert built.right is right


def test_the_set_that_is_brought_along_is_whole() -> None:
    """Each case has a scenario that there is, or the sentence that says why it cannot be had."""
    cases = calibration.read(data.directory("calibration") / "cases.toml")
    assert len(cases) == len({each.id for each in cases}) == 32
    for each in cases:
        assert calibration.placed(each).scenario or each.lacks, each.id
        assert each.source
        assert each.reported


def test_the_set_that_was_not_seen_before_is_whole_and_another_one() -> None:
    """All of it can be counted on packages, and none of it is in the first set."""
    folder = data.directory("calibration")
    first, cases = (calibration.read(folder / name) for name in ("cases.toml", "second.toml"))
    assert len(cases) == len({each.id for each in cases}) == 16
    for each in cases:
        assert calibration.placed(each, first) == each
        assert calibration.interval(each, [*OFFERED, (7, 1), (7, 2)]), each.id
        assert each.functions, each.id
        assert each.source, each.id
        assert each.expect in calibration.EXPECTED
    assert not {each.title for each in first} & {each.title for each in cases}


def test_the_document_of_another_file_has_its_name_and_speaks_of_builds_where_some_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = answer(monkeypatch, case(), 110.0, 5.0, wide=False)
    told = view.markdown([one], of="mine.toml")
    assert told.startswith("# Calibration by mine.toml\n")
    assert "variants" not in told
    assert "cannot be had\n" not in told
    built = msgspec.structs.replace(one, built=True)
    assert "variants/calibrate-" in view.markdown([built])


@pytest.mark.parametrize(
    ("words", "scenario"),
    [
        ("brk() up and down by one page (aim9 brk_test)", "unmap:brk_page"),
        ("will-it-scale page_fault2", "loops_mm:page_fault2"),
        ("page_fault1 will-it-scale thread", "loops_mm:page_fault1_threads"),
        ("aim9 disk_rr", "loops_files:read_random"),
        ("process_madvise() on vectors of ranges", "loops_mm:process_madvise"),
        ("getppid(), lseek()", "control:getppid"),
        ("futex wake on a hash of many futexes (perf bench futex hash)", "loops_ipc:futex_hash"),
        ("perf-bench-futex ops/s hash", "loops_ipc:futex_hash"),
        ("open1 will-it-scale per_thread_ops", "loops_names:open"),
        ("thread open1 will-it-scale per_thread_ops", "loops_names:open_threads"),
        ("rename stress-ng rename ops_per_sec fs: another title", "loops_names:rename"),
        ("mmap stress-ng mmap ops_per_sec mm/mremap: a title", "unmap:mmap_page"),
        ("sem-sysv stress-ng", "loops_ipc:sysv_sem"),
        # A bare "fork" is less than what the other words say, hyphens and plurals apart.
        ("fork() and exec() of a program (osbench)", "process:fork_exec"),
        # What a summary denies is no word of it, and a word stands for its forms.
        (
            "swap out and in of anonymous memory on zram (MADV_PAGEOUT)",
            "madvise_pageout:pageout_anon_4m_nohugepage_zram",
        ),
        ("open() of a file that does not exist", "loops_names:open_absent"),
        ("UFFDIO_MOVE of a range of present pages", "userfault:move_range"),
        # The more words of a name a text has, the better it fits, in whatever order.
        (
            "page faults of many threads (will-it-scale page_fault1 threads)",
            "loops_mm:page_fault1_threads",
        ),
        ("will-it-scale tlb_flush2 threads", "loops_mm:tlb_flush_threads"),
        # One call is meant by its name, several are not; what only ends another is none.
        ("getrusage()", "loops_calls:getrusage"),
        ("read of /proc/self/smaps of resident memory", "loops_mm:smaps"),
        ("open() and close() by threads (pts/blogbench)", "loops_names:open_threads"),
        ("munmap() of resident pages", "unmap:munmap"),
        # Pages in folios are another path than base pages.
        ("munmap() of PTE-mapped 2 MiB folios", "unmap:munmap.2M-ptes"),
        ("reclaim of MADV_FREE memory in folios of 64 KiB", "advise:pageout_free.64K"),
        ("mincore() of base pages; of 64 KiB folios on arm64", "mincore:no_thp_pte_scan_4m"),
        ("perf bench mem mmap -f demand, huge pages", "demand_fault:thp_16m"),
        ("read faults on a file mapping, fault-around", "fault:file_read"),
        ("page-cache fault in nested cgroups; depth is the axis", "memcg:fault_depth_4"),
        ("pthread_create() and join", "process:thread"),
        ("message queue ping-pong; fork and exit", "process:fork_exit"),
    ],
)
def test_the_words_of_a_case_find_its_scenario(words: str, scenario: str) -> None:
    found = matching.meant(words)
    assert found is not None
    assert found.scenario == scenario


@pytest.mark.parametrize(
    "words",
    [
        "database at 96 CPUs", "we open a link to the key", "sem dup",
        "read faults of a mapped file in large folios",  # there is none of base pages alone
        "write() of a large folio, and another() call",
    ],
)  # fmt: skip
def test_a_word_that_is_a_tests_name_elsewhere_means_nothing(words: str) -> None:
    assert matching.meant(words) is None


def test_the_words_of_a_title_say_what_the_code_is_and_not_what_a_test_does() -> None:
    """Only a name or a call of it finds a scenario."""
    of_nodes = case(scenario="", workload="vm-scalability on nodes", title="mm: numa balancing")
    assert calibration.placed(of_nodes).scenario == ""
    called = case(scenario="", workload="", title="mm: getrusage() takes another lock")
    assert calibration.placed(called).scenario == "loops_calls:getrusage"


def test_no_name_of_a_suite_stands_for_two_scenarios() -> None:
    given = [
        name
        for each in workload.names()
        for scenario in workload.load(each).scenarios
        for name in scenario.robots
    ]
    assert len(given) == len(set(given)) > 150


def test_the_document_has_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        answer(monkeypatch, case(id="one"), 110.0, 5.0, wide=False),
        calibration.refused(case(id="two", kind="device"), "a rotating disk"),
    ]
    told = view.markdown(answers)
    assert "1 of 1 published changes" in told
    assert "| more | 1 |  |  |  |  |" in told or "| more | 1 |" in told
    assert "two (device" in told
    assert "one: right" in view.text(answers)


@pytest.mark.parametrize(
    "text",
    ["nothing = [", "case = 3\n", "\xff", "[[case]]\nid =\n", "", "case = []", "[[cases]]\nid = 1"],
)
def test_what_is_no_list_of_cases_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cases.toml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(SpecError):
        calibration.read(file)


def test_each_case_of_a_strangers_set_has_an_answer_whatever_it_lacks(tmp_path: Path) -> None:
    file = tmp_path / "cases.toml"
    full: dict[str, object] = {
        "id": "x", "title": "mm: x", "release": "6.17", "kind": "path", "expect": "more",
        "workload": "mprotect() of base pages, 4 MiB", "reported": "-4 %", "source": "s",
    }  # fmt: skip
    rows: list[dict[str, object]] = [
        full, {}, *({k: v for k, v in full.items() if k != name} for name in full),
        full | {"kind": "quantum", "expect": "banana"}, full | {"release": 6.17},
        full | {"workload": ["a", "b"]}, full | {"functions": "change_pte_range"},
        full | {"scenario": "nothing:here"}, full | {"id": "\x1b[2J"}, full | {"extra": "y"},
        full | {"release": "v6.17-rc1"}, full | {"kind": "device"}, full | {"title": "y" * 9000},
        full | {"title": "mm: mincore: use pte_batch_hint() to batch process large folios"},
        full | {"commit": "c0bff412e67b781d761e330ff9578aa9ed2be79e", "title": "another"},
    ]  # fmt: skip
    file.write_bytes(tomli_w.dumps({"case": rows}).encode())
    brought = calibration.read(data.directory("calibration") / "cases.toml")
    cases = [calibration.placed(each, brought) for each in calibration.read(file)]
    assert len(cases) == len(rows) == len({each.id for each in cases})
    why = {
        number: calibration.lacking(each, calibration.interval(each, OFFERED))
        for number, each in enumerate(cases)
    }
    held = [number for number, text in why.items() if text]
    told = " ".join(why.values())
    assert [each.scenario for each in cases[-2:]] == [
        "mincore:no_thp_pte_scan_4m", "fault_fork:fork_untouched"
    ]  # fmt: skip
    assert all(len(text) < 200 for text in why.values())
    for sentence in ("names no release", "workload cannot be read", "unknown workload",
                     "knows no device", "no scenario is known"):  # fmt: skip
        assert sentence in told
    assert len(held) == 7
    answers = view.text([calibration.refused(cases[at], why[at]) for at in held])
    assert "\x1b" not in answers
    assert len(answers.strip().split("\n\n")[-1].splitlines()) == len(held)


def test_a_report_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mail"
    file.write_text(MAIL)
    found = robot.read(file)
    assert found.commit == "c0bff412e67b781d761e330ff9578aa9ed2be79e"
    assert (found.percent, found.worse, found.metric) == (-2.9, True, "stress-ng.clone.ops_per_sec")
    assert ("test", "clone") in found.parameters
    assert found.functions == ("copy_present_pte",)
    loop = matching.meant(found.words)
    assert loop is not None
    assert loop.scenario == "process:fork_exit"


HEADLINE = "a -2.9% regression of stress-ng.clone.ops_per_sec"
TEST = "testcase: stress-ng"


@pytest.mark.parametrize(
    ("headline", "test", "parameter", "percent", "is_time", "scenario"),
    [
        ("a -8.8% regression of vm-scalability.throughput", "vm-scalability",
         "test: anon-cow-seq", -8.8, False, "fault_fork:fork_touch"),
        ("a -8.8% regression of vm-scalability.throughput", "vm-scalability",
         "test: anon-w-seq-hugetlb", -8.8, False, ""),
        ("a -19.2% regression of unixbench.throughput", "unixbench",
         "test: spawn", -19.2, False, "process:fork_exit"),
        ("a 12.3% regression of lmbench3.PIPE.latency.us", "lmbench3",
         "test: PIPE", 12.3, True, "control:pipe_switch"),
        ("a -8.2% improvement of phoronix-test-suite.osbench.CreateProcesses.us_per_event",
         "phoronix-test-suite", "option_a: Create", -8.2, True, "process:fork_exit"),
        ("a 20.0% improvement of hackbench.throughput", "hackbench",
         "ipc: pipe", 20.0, False, "control:pipe_switch"),
        ("a 5.0% regression of will-it-scale.per_process_ops", "will-it-scale",
         "test: brk1", -5.0, False, "unmap:brk_page"),
        ("a -15.1% regression of netperf.Throughput_tps", "netperf",
         "test: SCTP_STREAM_MANY", -15.1, False, ""),
    ],
)  # fmt: skip
def test_reports_of_many_suites(
    headline: str, test: str, parameter: str, percent: float, is_time: object, scenario: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    file = tmp_path / "mail"
    mail = MAIL.replace(HEADLINE, headline).replace(TEST, f"in testcase: {test}")
    file.write_text(mail.replace("test: clone", parameter))
    found = robot.read(file)
    assert (found.percent, found.is_time, found.test) == (percent, is_time, test)
    assert found.parent == "9cb28da546"
    loop = matching.meant(found.words)
    assert (loop.scenario if loop else "") == scenario


def test_what_else_a_report_names_is_told(tmp_path: Path) -> None:
    row = "| testcase: change | will-it-scale: will-it-scale.per_thread_ops  2.5% improvement  |\n"
    file = tmp_path / "mail"
    file.write_text(MAIL.replace("commit:\n", f"{row * 20}commit:\n"))
    found = robot.read(file)
    assert set(found.beside) == {"will-it-scale.per_thread_ops: 2.5 % (improvement)"}
    assert len(found.beside) == 8
    assert found.test == "stress-ng"


@pytest.mark.parametrize("cut", [0, 100, 180])
def test_a_report_that_is_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "mail"
    file.write_text(MAIL[:cut])
    ended = CliRunner().invoke(cli, ["ask", str(file)])
    assert isinstance(ended.exception, SpecError)
    assert "no report of the kernel test robot" in ended.exception.sentence()


def test_control_characters_of_a_report_reach_nobody(tmp_path: Path) -> None:
    file = tmp_path / "mail"
    file.write_text(MAIL.replace("mm: allow", "\x1b[31mmm: allow"))
    assert "\x1b" not in robot.read(file).title


def test_what_cannot_be_said_names_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answer(monkeypatch, case(functions=()), 125.0, 0.0, wide=True)
    told = view.explained(found, -37.3)
    assert told.startswith("Cannot be said: several releases lie between")
    assert "mprotect:anon_toggle_4m, 6.16.1 -> 6.17.1: path +25.00 %" in told
    assert view.explained(calibration.refused(case(), "a disk"), 1.0) == "Cannot be said: a disk."
