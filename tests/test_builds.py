# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of different compilers or configurations: what may be claimed, and what is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from kdelta.analysis.claims import claim
from kdelta.analysis.explanation import explain
from kdelta.analysis.findings import report
from kdelta.analysis.lab import surveyed
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.ladder.evidence import differences
from kdelta.procfs import compiler_family, compiler_short
from kdelta.rendering import explain as explain_view
from kdelta.rendering import mail, show
from kdelta.rendering.formats import written
from kdelta.sample import KernelIdentity
from kdelta.table.columns import plain
from kdelta.verdict.comparison import Verdict
from ladder_records import SCENARIO, WORKLOAD, Trial, named_functions, result, run, with_kernels

GCC_14 = "x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"
GCC_14_3 = "x86_64-linux-gnu-gcc-14 (Debian 14.3.0-5) 14.3.0"
GCC_16 = "x86_64-linux-gnu-gcc-16 (Debian 16.2.0-4) 16.2.0"
CLANG = "Debian clang version 19.1.7 (3+b1)"


def built_by(banners: Mapping[str, str], *, now: float = 669.8, **identity: object) -> RunRecord:
    """Kernels of which all but the first take more, each built by the compiler of that banner."""
    values = {label: now if at else 301.7 for at, label in enumerate(banners)}
    trials = {
        label: [result(Trial(per_page=value, functions=named_functions(label)))]
        for label, value in values.items()
    }
    return with_kernels(run(trials), lambda arm: {"compiler": banners[arm.label], **identity})


@pytest.mark.parametrize(
    ("banner", "short", "family"),
    [
        (GCC_14, "gcc 14.2.0", "gcc 14"), (GCC_16, "gcc 16.2.0", "gcc 16"),
        (CLANG.removeprefix("Debian "), "clang 19.1.7", "clang 19"),
        ("gcc (GCC) 13.1.0", "gcc 13.1.0", "gcc 13"), ("", "", ""),
        ("icc of long ago", "icc of long ago", ""),
    ],
)  # fmt: skip
def test_a_compiler_is_its_family_and_major_version(banner: str, short: str, family: str) -> None:
    assert compiler_short(banner) == short
    assert compiler_family(banner) == family


def test_a_step_between_compilers_is_undecided_and_says_what_to_run() -> None:
    (ladder,) = report(built_by({"6.16.12": GCC_14, "6.17.13": GCC_16})).ladders
    comparison = ladder.rungs[1].comparison
    assert comparison is not None
    assert comparison.verdict is Verdict.UNDECIDED
    assert comparison.crossing == "gcc 14 -> gcc 16"
    assert comparison.ratio is not None
    (reason,) = comparison.reasons
    assert "gcc 14 -> gcc 16" in reason
    assert f"kdelta run {WORKLOAD}:{SCENARIO} --kernels 6.16,6.17" in reason
    assert "--kernels tree:deb:6.16+cc=gcc-16,tree:deb:6.17+cc=gcc-16" in reason
    assert ladder.steps == ()


@pytest.mark.parametrize(
    ("old", "new", "now", "source", "verdict", "crosses"),
    [
        (GCC_14, GCC_16, 301.7, "", Verdict.SAME, True),  # whoever built it
        (GCC_14, GCC_14_3, 669.8, "", Verdict.REGRESSION, False),
        (GCC_14, "", 669.8, "", Verdict.REGRESSION, False),
        ("", GCC_16, 669.8, "", Verdict.REGRESSION, False),
        (GCC_14, GCC_16, 669.8, "tree 1, configuration deb", Verdict.REGRESSION, True),
    ],
)
def test_two_major_versions_leave_open_what_differs_between_two_sources_alone(
    old: str, new: str, now: float, source: str, verdict: Verdict, *, crosses: bool
) -> None:
    identity = {"source": source} if source else {}
    record = built_by({"6.16.12": old, "6.17.13": new}, now=now, **identity)
    comparison = report(record).ladders[0].rungs[1].comparison
    assert comparison is not None
    assert comparison.verdict is verdict
    assert bool(comparison.crossing) is crosses


def test_show_explain_survey_and_json_say_the_same() -> None:
    record = built_by({"6.16.12": GCC_14, "6.17.13": GCC_16})
    page = plain(show.show(report(record)))
    flowed = " ".join(page.split())
    assert "x2.220*" in page
    assert "UNDECIDED" in page
    assert "REGRESSION" not in page
    assert "*: the two were built by different compilers" in flowed
    explained = explain(record, "6.16.12", "6.17.13")
    assert explained.comparison.verdict is Verdict.UNDECIDED
    assert "UNDECIDED" in plain(explain_view.show(explained, ()))
    told = json.loads(written("json", show, report(record)))["ladders"][0]["rungs"][1]["comparison"]
    assert told["verdict"] == "UNDECIDED"
    assert told["crossing"] == "gcc 14 -> gcc 16"
    assert (
        json.loads(written("json", explain_view, explained))["comparison"]["verdict"] == "UNDECIDED"
    )
    table = surveyed(record)
    assert table.changes == ()
    text = " ".join(plain(show.show_survey(table)).split())
    assert text.startswith("No step above 1 % in 1 scenario over 2 kernels is decided: 1 undecid")
    assert f"that is undecided: {WORKLOAD}:{SCENARIO}, 6.16.12 -> 6.17.13: up by 122 %" in text
    assert "To decide, take packages of one compiler, where the archive has them: `kdelta" in text
    assert "6.17.13*" in text
    assert "6.17.13 (gcc 14 -> gcc 16)" in text


def test_a_kernel_is_compared_with_the_nearest_of_its_compiler() -> None:
    record = built_by({"6.16.12": GCC_14, "6.17.13": GCC_16, "6.18.15": GCC_14})
    ladder = report(record).ladders[0]
    assert [rung.previous for rung in ladder.rungs] == [None, "6.16.12", "6.16.12"]
    verdicts = [rung.comparison.verdict for rung in ladder.rungs if rung.comparison]
    assert verdicts == [Verdict.UNDECIDED, Verdict.REGRESSION]
    why = (
        "6.18.15 is compared with 6.16.12: gcc 16 built 6.17.13, and these two are of one compiler"
    )
    assert why in ladder.warnings
    text = " ".join(plain(show.show_survey(surveyed(record))).split())
    assert "but 6.18.15 from 6.16.12: they are of one compiler" in text
    assert "6.18.15*" not in text


def test_without_another_of_its_compiler_it_is_the_one_above() -> None:
    record = built_by({"6.16.12": GCC_14, "6.17.13": GCC_16, "6.18.15": CLANG})
    ladder = report(record).ladders[0]
    assert [rung.previous for rung in ladder.rungs] == [None, "6.16.12", "6.17.13"]
    assert not [text for text in ladder.warnings if "is compared with" in text]


def test_what_else_differs_in_the_builds_is_listed_beside_the_comparison() -> None:
    record = built_by({"6.16.12": GCC_14, "6.17.13": GCC_14})
    options = (("PREEMPT_VOLUNTARY=y", "HZ=250"), ("PREEMPT_LAZY=y", "HZ=1000"))
    record = with_kernels(record, lambda arm: {"options": options[arm.index]})
    line = "builds differ, 6.16.12 -> 6.17.13: -PREEMPT_VOLUNTARY, HZ 250 -> 1000, +PREEMPT_LAZY"
    assert line in plain(show.show(report(record)))
    assert line in plain(explain_view.show(explain(record, "6.16.12", "6.17.13"), ()))
    assert line in plain(show.show_survey(surveyed(record)))
    undecided = with_kernels(record, lambda arm: {"options": ("SMP=y", *["ZSWAP=y"] * arm.index)})
    text = " ".join(mail.written(claim(undecided), mail.Letter(workloads={})).split())
    assert "What is no commit: builds differ, 6.16.12 -> 6.17.13: +ZSWAP." in text


def test_a_packages_configuration_that_is_not_known_is_said_to_be() -> None:
    known = KernelIdentity(
        reference="6.17", release="", version="", arch="amd64", flavour="", image_sha256=""
    )
    other = replace(known, options=("PREEMPT_LAZY=y",))
    assert differences(known, other) == ()  # of an image nobody asks for its package's
    package = replace(known, version="7.1.13-1~bpo13+1")
    told = ("the configuration of 7.1.13-1~bpo13+1 is not known",)
    assert differences(package, other) == differences(other, package) == told


def test_the_options_that_change_code_come_from_the_packages_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "CONFIG_PAHOLE_VERSION=130\nCONFIG_PREEMPT_LAZY=y\n# CONFIG_PREEMPT is not set\n"
        "CONFIG_PARAVIRT_XXL=y\nCONFIG_LTO_NONE=y\nCONFIG_CC_OPTIMIZE_FOR_PERFORMANCE=y\n"
        "CONFIG_DEBUG_INFO_BTF=y\nCONFIG_DEBUG_INFO_DWARF5=y\nCONFIG_DEBUG_LIST=y\nCONFIG_HZ=250\n"
        "CONFIG_HZ_250=y\nCONFIG_KFENCE=y\nCONFIG_KFENCE_NUM_OBJECTS=255\nCONFIG_EXT4_FS=m\n"
    )
    kernel = Kernel(
        reference="6.17", release="", arch="amd64", flavour="cloud", image=config,
        image_sha256="", config=config, )  # fmt: skip
    assert kernel.identity().options == (
        *("CC_OPTIMIZE_FOR_PERFORMANCE=y", "DEBUG_INFO_BTF=y", "DEBUG_LIST=y", "HZ=250"),
        *("KFENCE=y", "LTO_NONE=y", "PAHOLE_VERSION=130", "PARAVIRT_XXL=y", "PREEMPT_LAZY=y"),
    )
