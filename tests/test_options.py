# SPDX-License-Identifier: GPL-2.0-or-later
"""Options by what they do to code: the table, the rule, the proof, and the lower bound."""

from __future__ import annotations

import dataclasses
import gzip
import json
import struct
from pathlib import Path

import pytest
from msgspec.structs import replace

import counts_stream
import kernel_image
from kdelta import options
from kdelta.analysis.claims import claim
from kdelta.analysis.explanation import explain
from kdelta.analysis.findings import report
from kdelta.analysis.gate import gate
from kdelta.analysis.lab import lab
from kdelta.disassembly import image
from kdelta.disassembly.option_code import known, of_functions
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.rendering import explain as explain_view
from kdelta.rendering import mail, show, site
from kdelta.rendering.explain import option_sentences
from kdelta.rendering.formats import written
from kdelta.run.executed_code import in_question, with_option_code
from kdelta.sample import (
    ExactData,
    FunctionCount,
    OptionCode,
    OptionCount,
    OptionPlaces,
    Outcome,
    PhaseCounts,
    TrialResult,
)
from kdelta.table.columns import plain
from kdelta.verdict.comparison import Comparison, Verdict
from ladder_records import Trial, named_functions, result, run, with_kernels

OFF = ("HZ=250", "PREEMPT_LAZY=y")
ON = (*OFF, "UBSAN_BOUNDS=y")
NONE = OptionCode(looked_for=("ubsan",))
SOME = OptionCode(
    looked_for=("ubsan",),
    places=(OptionPlaces(function="change_pte_range", code="ubsan", places=3),),
    counts=(
        OptionCount(phase="protect", function="change_pte_range", code="ubsan", insns=16384 * 6),
    ),
)


def configured(
    *kernels: tuple[tuple[str, ...], OptionCode | None], source: str = "", compiler: str = ""
) -> RunRecord:
    """Kernels 6.1, 6.2, ... with these options, of which all but the first take more."""
    trials = {}
    for at, (_, code) in enumerate(kernels):
        label = f"6.{at + 1}.1"
        trial = Trial(per_page=669.8 if at else 301.7, functions=named_functions("6.17.13"))
        trials[label] = [replace(result(trial), options=code)]
    return with_kernels(run(trials), lambda arm: {
        "options": kernels[arm.index][0], "options_format": 2, "compiler": compiler,
        "source": source and f"{source}, configuration {arm.index}",
    })  # fmt: skip


def judged(record: RunRecord) -> Comparison:
    comparison = report(record).ladders[0].rungs[-1].comparison
    assert comparison is not None
    return comparison


def test_every_row_of_the_table_is_sound() -> None:
    rows = options._table().option
    assert {row.code for row in rows} - {""} <= options.patterns().keys()
    assert all(row.adds and row.source for row in rows)
    assert set(options._table().renamed) & {name for row in rows for name in row.names} == set()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("UBSAN_SHIFT", "instrument"), ("KASAN_GENERIC", "instrument"), ("CFI_CLANG", "instrument"),
        ("INIT_ON_ALLOC_DEFAULT_ON", "instrument"), ("DEBUG_VM_PGFLAGS", "instrument"),
        ("CC_OPTIMIZE_FOR_SIZE", "instrument"), ("FUNCTION_TRACER", "instrument"),
        ("PREEMPT_LAZY", "model"), ("NR_CPUS", "model"), ("RETHUNK", "model"),
        ("MITIGATION_ITS", "model"), ("LRU_GEN_ENABLED", "feature"), ("MEMCG", "feature"),
        ("DEBUG_INFO_DWARF5", "none"), ("UBSAN", "none"), ("EXT4_FS", None), ("DRM", None),
    ],
)  # fmt: skip
def test_an_option_has_its_kind(name: str, kind: str | None) -> None:
    row = options.option(name)
    assert (row.kind if row else None) == kind


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("CONFIG_RETPOLINE=y\n", "CONFIG_MITIGATION_RETPOLINE=y\n", []),
        ("CONFIG_RETPOLINE=y\n", "# CONFIG_MITIGATION_RETPOLINE is not set\n",
         ["-MITIGATION_RETPOLINE"]),
        ("CONFIG_X86_5LEVEL=y\n", "", []),
        ("", "CONFIG_MITIGATION_ITS=y\n", []),
        ("", "CONFIG_UBSAN_SHIFT=y\n", ["+UBSAN_SHIFT"]),
        ("CONFIG_NR_CPUS=64\n", "CONFIG_NR_CPUS=8192\n", ["NR_CPUS 64 -> 8192"]),
        ("CONFIG_KASAN=m\n", "# CONFIG_KASAN is not set\n", []),
    ],
)  # fmt: skip
def test_what_was_renamed_or_came_with_a_source_is_no_difference(
    old: str, new: str, told: list[str]
) -> None:
    was, now = (options.recorded(f"CONFIG_HZ=250\n{text}") for text in (old, new))
    assert [one.said for one in options.differences(was, now)] == told


def test_what_an_old_run_did_not_record_is_no_difference() -> None:
    before, after = ("UBSAN_SHIFT=y",), ("UBSAN_BOUNDS=y", "UBSAN_SHIFT=y", "NUMA=y", "SMP=y")
    assert [one.said for one in options.differences(before, after, (1, 2))] == ["+UBSAN_BOUNDS"]
    assert options.differences((), after) == ()


@pytest.mark.parametrize("code", [(None, None), (NONE, SOME), (NONE, replace(NONE, unread=("f",)))])
def test_a_step_between_options_is_undecided_everywhere(code: tuple[OptionCode, ...]) -> None:
    record = configured((OFF, code[0]), (ON, code[1]))
    found = judged(record)
    assert (found.verdict, found.options) == (Verdict.UNDECIDED, ("+UBSAN_BOUNDS",))
    assert "the configurations differ (+UBSAN_BOUNDS)" in found.reasons[0]
    assert "tree:deb:6.1+config=deb,tree:deb:6.2+config=deb" in found.reasons[0]
    page = " ".join(plain(show.show(report(record))).split())
    assert "x2.220*" in page
    assert "*: the two were built with different options" in page
    assert gate(record).undecided
    told = json.loads(written("json", explain_view, explain(record, "6.1.1", "6.2.1")))
    assert told["comparison"]["options"] == ["+UBSAN_BOUNDS"]
    with pytest.raises(SpecError, match=r"they differ in \+UBSAN_BOUNDS"):
        mail.written(claim(record), mail.Letter(workloads={}))
    pages = site.written(lab([record], most_pairs=9), address="", workloads={})
    (page,) = (pages[one].decode() for one in pages if one.startswith("step/") and "html" in one)
    first = page.partition('<p class="big">')[2].partition("</p>")[0]
    assert "which is undecided; the two differ in +UBSAN_BOUNDS" in first.replace("<wbr>", "")
    why = "undecided, since the two were built with different options (+UBSAN_BOUNDS)"
    assert why in pages["index.html"].decode()


def test_options_of_which_no_code_ran_decide_nothing() -> None:
    found = judged(configured((OFF, NONE), (ON, NONE)))
    assert (found.verdict, found.proven, found.crossing) == ("REGRESSION", ("+UBSAN_BOUNDS",), "")
    assert "no function that ran has code of +UBSAN_BOUNDS" in found.reasons[0]


def test_of_one_source_the_difference_is_the_options_and_stands() -> None:
    record = configured((OFF, NONE), (ON, SOME), source="tree 1")
    found = judged(record)
    assert found.verdict is Verdict.REGRESSION
    assert "so it is of +UBSAN_BOUNDS alone" in found.reasons[0]
    sent = " ".join(mail.written(claim(record), mail.Letter(workloads={})).split())
    assert "one source with other options (+UBSAN_BOUNDS)" in sent
    assert "At least 6.0 of +368.1 are UBSAN checks (+UBSAN_BOUNDS): change_pte_range 6.0." in sent
    explained = claim(record).explanation
    assert explained
    parts = tuple(dataclasses.replace(own, delta=-own.delta) for own in explained.options)
    (told,) = option_sentences(dataclasses.replace(explained, options=parts))
    assert told.startswith("In the +368.1 are, the other way, at least -6.0 of UBSAN checks (")


def test_the_nearest_kernel_is_the_nearest_with_the_same_options() -> None:
    (ladder,) = report(configured((OFF, None), (ON, None), (OFF, None))).ladders
    assert [rung.previous for rung in ladder.rungs] == [None, "6.1.1", "6.1.1"]
    assert "6.2.1 was built with other options" in " ".join(ladder.warnings)


def test_the_lower_bound_is_of_what_one_side_has_alone() -> None:
    (share,) = explain(configured((OFF, NONE), (ON, SOME)), "6.1.1", "6.2.1").options
    assert (share.delta, share.functions) == (16384 * 6, (("change_pte_range", 16384 * 6),))
    assert not explain(configured((OFF, SOME), (ON, SOME)), "6.1.1", "6.2.1").options
    assert not explain(configured((OFF, None), (ON, SOME)), "6.1.1", "6.2.1").options


def test_a_kernel_for_debugging_is_named_before_any_figure(tmp_path: Path) -> None:
    packed = b"IKCFG_ST" + gzip.compress(b"CONFIG_PROVE_LOCKING=y\nCONFIG_HZ=250\n") + b"IKCFG_ED"
    path = tmp_path / "vmlinux"
    path.write_bytes(kernel_image.kernel([("r", "kernel_config_data", packed)]))
    own = Kernel(reference=f"file:{path}", release="", arch="amd64", image=path, image_sha256="1")
    assert own.identity().options == ("HZ=250", "PROVE_LOCKING=y")
    record = configured((own.identity().options, None), (own.identity().options, None))
    told = "6.1.1, 6.2.1: built for debugging (PROVE_LOCKING)"
    assert told in plain(show.show(report(record))).partition("x first")[0]
    assert told in plain(explain_view.show(explain(record, "6.1.1", "6.2.1"), ()))


# cmp $7,%edi; ja 0x10; 5: lea; c3; ...; 10: call HANDLER; jmp 5
CHECK = "83ff07 770b 8d043f c3 90909090909090 e8{} ebee"
HANDLER, FAIL = "__ubsan_handle_out_of_bounds", "__stack_chk_fail"


@pytest.mark.parametrize(
    ("code", "handler", "pattern", "places", "certain"),
    [
        (CHECK, HANDLER, "ubsan", 1, {0, 3}),
        (CHECK.replace("ebee", "ebf1"), HANDLER, "ubsan", 1, set()),  # it comes back elsewhere
        (CHECK.replace("8d043f", "0f94c0"), HANDLER, "ubsan", 1, {3}),  # sete uses the comparison
        (CHECK.replace("83ff07", "8d47ff"), HANDLER, "ubsan", 1, {3}),  # lea compares nothing
        (CHECK, "printk", "ubsan", 0, set()),
        (CHECK.replace("ebee", "0f0b"), FAIL, "stackprotector", 1, {0, 3}),
        (CHECK.replace("ebee", "0f0b"), HANDLER, "ubsan", 1, set()),
        (CHECK, "__asan_load8", "kasan", 1, {16}),
    ],
)
def test_a_check_is_found_by_where_its_branch_leads(
    tmp_path: Path, code: str, handler: str, pattern: str, places: int, certain: set[int]
) -> None:
    to_handler = struct.pack("<i", 0x20 - 0x15).hex()
    parts = [("T", "scan", bytes.fromhex(code.format(to_handler))), ("T", handler, b"\xc3")]
    path = tmp_path / "vmlinux"
    path.write_bytes(kernel_image.kernel(parts))
    opened = image.opened(path, "vmlinux")
    found = of_functions(opened, ["scan", "gone"], known([pattern], "amd64"))
    assert found["gone"] is None
    own = (found["scan"] or {}).get(pattern)
    assert (own.places if own else 0) == places
    assert {at - kernel_image.BASE for at in (own.certain if own else ())} == certain
    assert known(["fentry"], "arm64") == ()


def test_what_ran_of_checks_is_counted_in_the_standing_window(tmp_path: Path) -> None:
    code = bytes.fromhex(CHECK.format(struct.pack("<i", 0x20 - 0x15).hex()))
    path, base = tmp_path / "vmlinux", kernel_image.BASE
    path.write_bytes(kernel_image.kernel([("T", "scan", code), ("T", HANDLER, b"\xc3")]))
    raw = counts_stream.write(
        tmp_path / "counts.bin", counts_stream.HEADER, counts_stream.ARMED,
        counts_stream.code(1, base, base + 3), counts_stream.code(2, base),
        counts_stream.encodings(1, code[:3], code[3:5]),
        counts_stream.encodings(2, b"\x90\x90\x90"),  # patched: it is not the option's
        counts_stream.bare([(1, 9), (2, 5)], 0, 23, phase=1), counts_stream.END,
    )  # fmt: skip
    folder = tmp_path / "trials" / "0000"
    folder.mkdir(parents=True)
    (folder / "counts.bin.gz").write_bytes(gzip.compress(raw.read_bytes()))
    phase = PhaseCounts(phase="scan", operations=1, operation="page", user=(0,), kernel=(23,))
    row = FunctionCount(phase="scan", function="scan", insns=23, calls=9)
    data = ExactData(phases=(phase,), functions=(row,))
    trial = run({"6.1.1": [None]}).trials[0]
    kernel = Kernel(reference="6.1", release="6.1", arch="amd64", image=path, image_sha256="")
    found = with_option_code(
        trial, TrialResult(outcome=Outcome.OK, data=data), kernel, frozenset({"ubsan"}), tmp_path
    ).options
    assert found is not None
    assert found.counts == (OptionCount(phase="scan", function="scan", code="ubsan", insns=2 * 9),)
    assert not found.absent


def test_code_is_looked_at_where_kernels_of_a_run_differ(tmp_path: Path) -> None:
    kernels = []
    for number, text in enumerate(("", "CONFIG_UBSAN_SHIFT=y\n", "CONFIG_MEMCG=y\n")):
        config = tmp_path / str(number)
        config.write_text(f"CONFIG_HZ=250\n{text}")
        kernels.append(
            Kernel(reference="6.1", release="6.1", arch="amd64", image=config, image_sha256="",
                   config=config)
        )  # fmt: skip
    assert in_question(kernels) == {"ubsan"}
    assert in_question([kernels[0], kernels[2], SpecError("none")]) == frozenset()
