# SPDX-License-Identifier: GPL-2.0-or-later
"""Scenarios in folios: what a cell wants, what has none and why, what is exported of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdelta import arch, guest, process
from kdelta.check import compare
from kdelta.cli.check import _scenarios
from kdelta.errors import SpecError
from kdelta.export import exported
from kdelta.machine.axes import words
from kdelta.output import EXIT_SKIP, contract_failures, parse_output
from kdelta.workload import CELLS, Scenario, load, names, parse_reference

EVERY = [
    load(name).scenario(f"{scenario.name}.{cell}")
    for name in names()
    for scenario in load(name).scenarios
    for cell in scenario.folios
]
needs_gcc = pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")
FEW = [each for each in EVERY if each.reference.startswith(("mprotect", "fault_fork", "unmap:mun"))]


def facts(reference: str) -> dict[str, str]:
    return {fact.name: fact.want for fact in parse_reference(reference)[1].contract}


def test_a_cell_is_the_scenario_in_whole_folios() -> None:
    base = parse_reference("unmap:munmap")[1]
    cell = parse_reference("unmap:munmap.64K")[1]
    assert (base.pages, cell.pages, cell.windows[0].operations) == (465, 480, 480)
    wants = facts("unmap:munmap.64K")
    assert (wants["compound_heads"], wants["compound_tails"]) == ("30", "450")
    assert (wants["present_pages"], wants["anon_pages"]) == ("480", "480")
    assert "thp_pages" not in wants
    assert set(words(cell.needs)) == {"thp never", "mthp 64kB=always"}
    assert not cell.survey
    assert cell.arguments()[-1] == "munmap.64K"
    assert {fact.name: fact.want for fact in parse_reference("lock:mlock.2M")[1].during}[
        "window_kb_locked"
    ] == "2048"


def test_folios_by_ptes_are_not_mapped_as_a_whole() -> None:
    whole, by_ptes = facts("mprotect:anon_toggle_4m.2M"), facts("mprotect:anon_toggle_4m.2M-ptes")
    assert (whole.pop("anon_huge_kb"), by_ptes.pop("anon_huge_kb")) == ("4096", "0")
    assert whole == by_ptes
    assert whole["compound_heads"] == "2"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("unmap:munmap.3M", '"3M" names no folios; name one of 64K, 2M, 2M-ptes'),
        ("unmap:munmap_shmem.2M", "is not private anonymous"),
        ("fault:anon.64K", "MADV_NOHUGEPAGE"),
        ("fault:thp.64K", "size of its pages is a part"),
        ("demand_fault:hugetlb_2m_16m.64K", "size of its pages is a part"),
        ("unmap:mremap_ptes.2M", "MADV_NOHUGEPAGE"),
    ],
)
def test_what_has_no_cell_says_why(reference: str, why: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_reference(reference)
    assert why in error.value.sentence()


def test_check_asks_for_the_cells_that_there_are() -> None:
    wanted = compare.page_sizes("4K, 64K,2M-ptes")
    found, why = compare.in_sizes(["unmap:munmap", "unmap:munmap_shmem", "fault:thp"], wanted)
    assert found == ["unmap:munmap", "unmap:munmap.64K", "unmap:munmap.2M-ptes",
                     "unmap:munmap_shmem", "fault:thp"]  # fmt: skip
    assert len(why) == 2
    assert compare.in_sizes(["unmap:munmap", "fault:thp"], compare.page_sizes("2M"))[0] == [
        "unmap:munmap.2M"
    ]
    for wrong in ("8K", "", "64k"):
        with pytest.raises(SpecError):
            compare.page_sizes(wrong)


def test_a_page_names_the_cell() -> None:
    said = {compare.pages_of(each) for each in EVERY}
    assert said == {cell.pages for cell in CELLS.values()}


def test_an_export_of_a_cell_names_it() -> None:
    base, cell = "unmap:munmap", "unmap:munmap.64K"
    plain, own = (exported(*parse_reference(each)) for each in (base, cell))
    assert '#define KD_SCENARIO "munmap.64K"' in own
    assert "Needs:    thp never, mthp 64kB=always" in own
    assert plain.partition("*/\n#define")[2].partition("\n")[2] in own


@pytest.mark.program
@needs_gcc
@pytest.mark.parametrize("scenario", FEW, ids=lambda one: one.reference)
def test_the_program_wants_what_its_cell_wants(scenario: Scenario, tmp_path: Path) -> None:
    """parse_output() refuses a fact that is wanted otherwise here and there."""
    program = load(scenario.workload)
    binary = guest.program(program.program, arch.of("amd64"))
    argv = [str(binary), *scenario.arguments(iterations=2, warmup=1)]
    done = process.run(argv, timeout=120, check=False, cwd=tmp_path)
    reading = parse_output(done.stdout, program, scenario)
    if reading.exit_code == EXIT_SKIP or contract_failures(reading):
        pytest.skip(f"this machine does not give it: {reading.notes}")
    assert reading.samples


def test_a_check_tells_of_cells_of_the_chosen_scenarios_alone() -> None:
    found, why = _scenarios(("mincore:*",), (), "4K,64K", field=False)
    assert "mincore:no_thp_pte_scan_4m.64K" in found
    assert all(name.startswith("mincore:") for name in found)
    assert why == [
        "1 scenario counted in one size of page alone: the size of its pages is a part of it"
    ]
    with pytest.raises(SpecError, match=r"no scenario fits .*it asks for base pages"):
        _scenarios(("mprotect:split_pages.64K",), (), "4K,64K", field=False)
