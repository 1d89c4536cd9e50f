# SPDX-License-Identifier: GPL-2.0-or-later
"""The same code on other data: what of a step it is, and how the code that ran is known."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

import counts_stream
import kernel_image
from kdelta.attribution.symbols import Symbols
from kdelta.kernels.kernel import Kernel
from kdelta.ladder.counts import CountMethod
from kdelta.ladder.evidence import compare_arms, gather
from kdelta.ladder.same_code import other_data
from kdelta.run.executed_code import with_code
from kdelta.sample import (
    CodeRan,
    ExactData,
    FunctionCount,
    Outcome,
    PhaseCounts,
    StateField,
    TrialRecord,
    TrialResult,
)
from kdelta.verdict.comparison import Verdict
from ladder_records import SCENARIO, recounted, result, run, trial_of

Ran = Mapping[str, tuple[int, int, Mapping[str, int]]]  # instructions, entries, calls
# A table is searched through a pointer to a function that compares, and others call that, too.
SEARCH: Ran = {"do": (50, 1, {"search": 4}), "search": (100, 4, {"": 8}), "compare": (80, 8, {})}
LONGER: Ran = {"do": (50, 1, {"search": 4}), "search": (140, 4, {"": 12}), "compare": (120, 12, {})}


def ran(
    functions: Ran, other: Mapping[str, str] | None = None, base: TrialResult | None = None
) -> TrialResult:
    """other: code of functions that is not "a"."""
    base = base or TrialResult(outcome=Outcome.OK, data=ExactData())
    phase = next((one.phase for one in base.exact.phases), "work")
    rows = (
        FunctionCount(phase=phase, function=name, insns=insns, calls=calls)
        for name, (insns, calls, _) in functions.items()
    )
    code = tuple(
        CodeRan(
            function=name,
            code=(other or {}).get(name, "a"),
            calls=dict(calls),
            rounds=sum(calls.values()),  # one loop makes all its calls
        )
        for name, (_, _, calls) in functions.items()
    )
    return replace(recounted(base, functions=(*base.exact.functions, *rows)), code=code)


@pytest.mark.parametrize(
    ("old", "new", "other", "found"),
    [
        (SEARCH, LONGER, {}, {"search": 40, "compare": 40}),
        (SEARCH, LONGER, {"do": "b"}, {"search": 40, "compare": 40}),
        (SEARCH, LONGER, {"search": "b"}, {}),
        # What it calls is other code, so it may be asked otherwise.
        ({"a": (10, 1, {"b": 1}), "b": (9, 1, {})}, {"a": (30, 1, {"b": 5}), "b": (45, 5, {})},
         {"b": "b"}, {}),
        # What it calls as often is other code: no reason for more rounds.
        ({"a": (50, 1, {"b": 1, "c": 4}), "b": (9, 1, {}), "c": (40, 4, {})},
         {"a": (90, 1, {"b": 1, "c": 8}), "b": (12, 1, {}), "c": (80, 8, {})},
         {"b": "b"}, {"a": 40, "c": 40}),
        # Half of the calls come from other code.
        ({"a": (10, 1, {"b": 1}), "c": (10, 1, {"b": 1}), "b": (20, 2, {})},
         {"a": (12, 1, {"b": 2}), "c": (12, 1, {"b": 2}), "b": (40, 4, {})},
         {"c": "b"}, {"a": 2, "b": 10}),
        # It is not called at all where nothing is to do.
        ({"a": (10, 2, {"b": 2}), "b": (90, 2, {})}, {"a": (8, 2, {})}, {},
         {"a": -2, "b": -90}),
        # A long loop goes over a table, whatever it calls; other code costs the least of both.
        ({"a": (9000, 1, {"b": 100}), "b": (900, 100, {"c": 200}), "c": (400, 200, {})},
         {"a": (9900, 1, {"b": 110}), "b": (1100, 110, {"c": 330}), "c": (660, 330, {})},
         {"b": "b"}, {"a": 900, "b": 90, "c": 40}),
        # The loop's function changed, too: a round of each kernel is as long as the shorter one's.
        ({"a": (2000, 1, {"b": 100}), "b": (900, 100, {})},
         {"a": (2640, 1, {"b": 110}), "b": (990, 110, {})}, {"a": "b"}, {"a": 200, "b": 90}),
        ({"a": (2000, 1, {"b": 50}), "b": (450, 50, {})},
         {"a": (2640, 1, {"b": 55}), "b": (495, 55, {})}, {"a": "b"}, {}),
        # It is no table that makes it go round half as often again, or call something once more.
        ({"a": (9000, 1, {"b": 100}), "b": (900, 100, {})},
         {"a": (13500, 1, {"b": 150}), "b": (1350, 150, {})}, {"b": "b"}, {}),
        ({"a": (9000, 1, {"b": 4}), "b": (900, 4, {})},
         {"a": (9000, 1, {"b": 5}), "b": (1100, 5, {})}, {"b": "b"}, {}),
        # Entered more often: whoever enters it decides.
        ({"a": (10, 1, {})}, {"a": (30, 2, {})}, {}, {}),
    ],
)  # fmt: skip
def test_what_the_same_code_does_on_other_data(
    old: Ran, new: Ran, other: Mapping[str, str], found: Mapping[str, float]
) -> None:
    assert other_data(ran(old), ran(new, other)) == found
    assert other_data(ran(new, other), ran(old)) == {name: -more for name, more in found.items()}
    assert other_data(replace(ran(old), code=()), ran(new)) == {}


@pytest.mark.parametrize(
    ("ratio", "more", "verdict", "words"),
    [
        (1.5, 0.5, Verdict.UNDECIDED, "the same code on other data makes "),
        (1.5, 0.3, Verdict.UNDECIDED, "the same code on other data makes "),  # most of it
        (1.5, 0.2, Verdict.REGRESSION, "the same code on other data makes "),
        (1.5, 0.0005, Verdict.REGRESSION, ""),
        (1.5, -0.2, Verdict.REGRESSION, "the same code on other data makes "),
        (1.5, 0.9, Verdict.UNDECIDED, "search() +"),  # the rest goes the other way
        (1.001, 0.5, Verdict.UNDECIDED, "fuller chunk"),
        (1, 0, Verdict.SAME, ""),
    ],
)
def test_a_step_stands_without_other_data_or_not_at_all(
    ratio: float, more: float, verdict: Verdict, words: str
) -> None:
    whole = result(trial_of("6.16.12"))
    size = sum(one.user[0] + one.kernel[0] for one in whole.exact.phases)
    arms = []
    for factor, data in ((1.0, 0.0), (ratio, more)):
        phases = tuple(
            replace(one, kernel=tuple(int(n * factor) for n in one.kernel))
            for one in whole.exact.phases
        )
        functions: Ran = {"search": (1000 + int(data * size), 4, {})}
        arms.append([ran(functions, base=recounted(whole, phases=phases))] * 3)
    method, record = CountMethod(), run({"6.16.12": arms[0], "6.17.13": arms[1]})
    own = tuple(replace(one, workload="/own.c") for one in record.trials)
    found = compare_arms(method, *gather(replace(record, trials=own), "/own.c", SCENARIO, method))
    assert (found.verdict, words in found.reasons[0]) == (verdict, True)
    assert bool(found.within) == (verdict.is_step and abs(more) > 0.01)
    unread = tuple(replace(one, result=replace(one.result, code=())) for one in own if one.result)
    arms_unread = gather(replace(record, trials=unread), "/own.c", SCENARIO, method)
    assert "other data" not in compare_arms(method, *arms_unread).reasons[0]


def test_code_that_ran_is_known_but_for_where_data_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, base = tmp_path / "vmlinux", kernel_image.BASE
    table = Symbols([base, base + 32], ["scan", "leaf"])
    monkeypatch.setattr("kdelta.run.executed_code.load_symbols", lambda *_: table)
    found = {}
    for field in (b"\x10", b"\x18"):
        # nopl FIELD(%rax); cs call leaf; call *%rax; mov FIELD(%rdi),%rax; mov $TEXT,%rdi; ret
        text = (base + 32 + field[0] & 0xFFFFFFFF).to_bytes(4, "little")
        code = b"\x0f\x1f\x40" + field + b"\x2e\xe8\x16\0\0\0" + b"\xff\xd0"
        code += b"\x48\x8b\x47" + field + b"\x48\xc7\xc7" + text + b"\xc3"
        leaf = b"\xc3" + bytes(31)
        path.write_bytes(kernel_image.kernel([("T", "scan", code), ("T", "leaf", leaf)]))
        kernel = Kernel(reference="6.1", release="6.1", arch="amd64", image=path, image_sha256="")
        raw = counts_stream.write(
            tmp_path / "counts.bin", counts_stream.HEADER, counts_stream.ARMED,
            counts_stream.code(1, base + 4, base + 10, base + 12),
            counts_stream.encodings(1, code[4:10], code[10:12], code[12:16]),
            counts_stream.bare([(1, 3)], 0, 9, phase=1), counts_stream.END,
        )  # fmt: skip
        folder = tmp_path / "trials" / "0000"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "counts.bin.gz").write_bytes(gzip.compress(raw.read_bytes()))
        phase = PhaseCounts(phase="scan", operations=1, operation="page", user=(0,), kernel=(9,))
        rows = (
            FunctionCount(phase="scan", function="scan", insns=9, calls=3),
            FunctionCount(phase="scan", function="leaf", insns=0, calls=3),
        )
        trial = TrialRecord(index=0, round=0, arm=0, workload="/own.c", scenario="main")
        own = TrialResult(outcome=Outcome.OK, data=ExactData(phases=(phase,), functions=rows))
        found[field] = with_code(trial, own, kernel, tmp_path).code
        assert with_code(replace(trial, workload="mprotect"), own, kernel, tmp_path).code == ()
    one, other = found.values()
    assert one == other
    told = {row.function: (row.calls, row.rounds) for row in one}
    assert told == {"leaf": ({}, 0), "scan": ({"": 3, "leaf": 3}, 3)}


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ((0, 0, 0), (9, 9, 9), "differ: Udp_RcvbufErrors (0 against 9)"),
        ((9, 9, 10), (1, 0, 0), "differ: Udp_RcvbufErrors (9 against 1)"),
        ((0, 0, 0), (0, 9, 9), ""),  # a seed moves it
        ((3, 5, 4), (6, 7, 8), ""),
        ((7, 7, 7), (7, 7, 7), ""),
        ((), (7, 7, 7), ""),  # the old kernel does not count it
    ],
)
def test_what_one_kernel_alone_drops_is_no_pair(
    was: tuple[int, ...], now: tuple[int, ...], words: str
) -> None:
    arms = []
    for values in (was, now):
        own = result(trial_of("6.16.12"))
        facts = [
            StateField(when="during", name="undone_Udp_RcvbufErrors", value=str(n), want="free")
            for n in values
        ]
        arms.append([replace(own, state=(*own.state, one)) for one in facts] or [own] * 3)
    record = run({"6.16.12": arms[0], "6.17.13": arms[1]})
    found = compare_arms(CountMethod(), *gather(record, "mprotect", SCENARIO, CountMethod()))
    assert (found.verdict is Verdict.INVALID) == bool(words)
    assert words in found.reasons[0]
