# SPDX-License-Identifier: GPL-2.0-or-later
"""Patches put into a released kernel that is not built, and counted there.

Each kind of patch in tests/data/transplant is loaded into a guest; one that the scenario executes
changes the counts of what it touches, and of nothing else.  Minutes when nothing is in the cache.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from boot.command import Command
from git_history import Repository
from kdelta import data
from kdelta.analysis.explanation import explain
from kdelta.check.compare import Counter
from kdelta.check.page import Ruling, read
from kdelta.disassembly.identity import functions_of
from kdelta.errors import SpecError
from kdelta.journal.run import RunJournal
from kdelta.kernels.image import transplanted
from kdelta.run import exact
from kdelta.source import build, git, tree_reference
from kdelta.study import spec
from kdelta.transplant import releases, without
from kdelta.transplant.engine import Ground, Transplant

pytestmark = pytest.mark.boot

RELEASE = "deb:6.17.8-1~bpo13+1"
PATCHES = Path(__file__).parent.parent / "data" / "transplant"
MINCORE = "mincore:no_thp_pte_scan_4m"
MPROTECT = "mprotect:shared_dirty_full_toggle_16m"
Counts = dict[tuple[str, str], tuple[int, int]]


@pytest.fixture(scope="module")
def ground() -> Ground:
    return releases.ground_of(RELEASE)


def patched(*names: str) -> str:
    return "+".join((RELEASE, *(str(PATCHES / f"{name}.patch") for name in names)))


def counted(tmp_path: Path, scenario: str, *kernels: str) -> list[Counts]:
    """Instructions and calls of each function, by phase, for each kernel."""
    command = Command(tmp_path / "runs", data.directory("workloads"))
    command.run("run", scenario, "--kernels", ",".join(kernels))
    found = []
    for trial in RunJournal.open(command.folder()).record().trials:
        if f"{trial.workload}:{trial.scenario}" == scenario:
            assert trial.result is not None
            assert trial.result.outcome == "ok", trial.result.reason
            rows = trial.result.exact.functions
            counts = {(row.phase, row.function): (row.insns, row.calls) for row in rows}
            found.append((trial.arm, counts))
    return [counts for _, counts in sorted(found, key=lambda row: row[0])]


def differing(one: Counts, other: Counts) -> set[str]:
    return {key[1] for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


@pytest.mark.parametrize(
    ("kind", "scenario", "changed"),
    [
        ("branch", MINCORE, {"mincore_pte_range"}),
        ("call", MINCORE, {"do_mincore", "vma_kernel_pagesize"}),
        ("removal", MINCORE, {"mincore_pte_range"}),
        ("files", MINCORE, {"do_mincore", "mprotect_flags"}),
        ("pointer", MINCORE, {"do_mincore", "mincore_pte_range"}),  # the image's address, in tables
        ("key", MPROTECT, {"mprotect_fixup"}),
        ("percpu", MPROTECT, {"mprotect_fixup"}),
        ("tracepoint", MPROTECT, {"mprotect_fixup"}),
        ("event", MPROTECT, {"mprotect_fixup"}),
    ],
)
def test_a_patch_counts_in_what_it_changes_and_nowhere_else(
    kind: str, scenario: str, changed: set[str], tmp_path: Path
) -> None:
    base, own = counted(tmp_path, scenario, RELEASE, patched(kind))
    assert differing(base, own) == changed


@pytest.mark.parametrize(
    ("kind", "replaced", "added"),
    [
        ("inlined", {"do_mincore"}, set()),
        ("function", {"mincore_unmapped_range"}, {"mincore_count_hole", "mincore_count_hole.cold"}),
    ],
)
def test_a_patch_that_is_not_executed_is_the_release(
    kind: str, replaced: set[str], added: set[str], tmp_path: Path
) -> None:
    found = transplanted(releases.resolve(patched(kind)).image)
    assert found is not None
    assert (set(found.replaced), set(found.added)) == (replaced, added)
    base, own = counted(tmp_path, MINCORE, RELEASE, patched(kind))
    assert base == own


def test_of_a_header_of_thousands_of_objects_those_that_run_are_compiled(tmp_path: Path) -> None:
    """The same by check, by run and by commit, which make one kernel."""
    command = Command(tmp_path / "runs", data.directory("workloads"))
    patch = str(PATCHES / "wide.patch")
    said = command.run("check", patch, "--base", "6.17.8", "--only", MINCORE)
    assert "objects that include what it changes" in said
    assert "are built" not in said
    page = read(command.folder() / "page.json")
    assert (page.decision, page.config) == (Ruling.ACCEPT, "config that of 6.17.8-1~bpo13+1")
    ((row,), (path,)) = page.patches, page.paths
    base, own = counted(tmp_path / "run", MINCORE, RELEASE, patched("wide"))
    changed = differing(base, own)
    assert "__alloc_frozen_pages_noprof" in changed
    assert changed <= {*row.functions}
    assert {part.function for part in path.functions} == changed
    answered = command.run("commit", patch, "--base", RELEASE, "--only", MINCORE)
    assert all(f"  {name}" in answered for name in changed)


def test_the_null_of_a_patch_is_the_release(ground: Ground, tmp_path: Path) -> None:
    """The same functions put there as they are: all that changes is where they lie."""
    variants = [tree_reference.of_word(str(PATCHES / f"{name}.patch")) for name in ("files", "key")]
    source = tree_reference.applied(ground.tree, variants)
    null = Transplant(ground=ground, patched=source).kernel(null=True)
    found = transplanted(null.image)
    assert found is not None
    assert {"do_mincore", "mprotect_fixup"} <= {*found.replaced}
    for scenario in (MINCORE, MPROTECT):
        base, own = counted(tmp_path / scenario[:7], scenario, RELEASE, f"file:{null.image}")
        assert base == own


def test_one_saved_guest_executes_the_functions_as_they_were_and_as_patched(
    ground: Ground, tmp_path: Path
) -> None:
    """Not even what the memory of the code moves elsewhere is another one."""
    patch = tree_reference.of_word(str(PATCHES / "key.patch"))
    made = Transplant(ground=ground, patched=tree_reference.applied(ground.tree, [patch]))
    study = spec.from_arguments([MPROTECT], ["base"], single_kernel=True)
    counter = Counter(study, exact.bench_of(study, "", threading.Event()), tmp_path, print)
    for null, changed in ((True, set[str]()), (False, {"mprotect_fixup"})):
        pair = [counter.one(made.kernel(null=null), MPROTECT, used=one) for one in (False, True)]
        old, new = (one.result.exact.functions for one in pair)
        assert old
        assert {row.function for row in {*old} ^ {*new}} == changed


def test_an_option_costs_at_least_its_checks(ground: Ground, tmp_path: Path) -> None:
    """Its own code in their place, the functions count what the release does."""
    command, scenario = Command(tmp_path / "runs", data.directory("workloads")), "unmap:munmap"
    command.run("run", scenario, "--kernels", f"6.12,{RELEASE},{RELEASE}+without=UBSAN")
    record = RunJournal.open(command.folder()).record()
    old, now, without_it = (arm.label for arm in record.arms)
    found = explain(record, now, without_it, scenario=scenario)
    (checks,) = explain(record, old, now, scenario=scenario).options
    assert found.delta is not None
    assert 0 < checks.delta < -found.delta
    base = next(trial.result for trial in record.trials if trial.arm == 1)
    assert base is not None
    ran = functions_of(row.function for row in base.exact.functions)
    null = without.without(ground, ["UBSAN"], ran, null=True)
    told = transplanted(null.image)
    assert told is not None
    assert not told.kept
    assert {"free_frozen_page_commit", "mas_walk"} <= {*told.replaced}
    one, other = counted(tmp_path / "null", scenario, RELEASE, f"file:{null.image}")
    assert one == other


@pytest.mark.parametrize("option", ["STACKPROTECTOR", "FORTIFY_SOURCE"])
def test_an_option_that_headers_read_is_left_out_by_a_flag(ground: Ground, option: str) -> None:
    told = transplanted(without.without(ground, [option], {"mincore_pte_range"}).image)
    assert told is not None
    assert "mincore_pte_range" in told.replaced
    assert told.objects == ("mm/mincore.o",)


def test_an_option_that_may_change_structures_is_refused(ground: Ground) -> None:
    with pytest.raises(
        SpecError, match=r"cannot be had without HARDENED_USERCOPY: \S+\.o reads HARDENED_USERCOPY"
    ):
        without.without(ground, ["HARDENED_USERCOPY"], {"do_mincore"})


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("data", r"the data mincore_walk_ops is another one from the begin"),
        ("initcall", r"what the kernel calls while it boots"),
        ("fields", r"the data trace_event_fields_exit_mmap is another one"),
        ("boot", r"page_alloc_init_cpuhp\(\) runs while the kernel boots"),
        ("wide", r"\d+ objects include what it changes, more than 120; name scenarios"),
    ],
)
def test_what_cannot_be_put_there_is_refused_by_name(kind: str, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        releases.resolve(patched(kind))


def test_a_release_of_another_compiler_is_refused(ground: Ground) -> None:
    """The object differs from the image, and the first function that does is named."""
    patch = tree_reference.of_word(str(PATCHES / "branch.patch"))
    source = tree_reference.applied(ground.tree, [patch])
    other = replace(ground, compiler=build.compiler("gcc-12"))
    with pytest.raises(SpecError, match=r"\w+\(\) of mm/mincore\.o is not the image's: "):
        Transplant(ground=other, patched=source).kernel()


def test_an_oops_of_a_patch_is_said(tmp_path: Path) -> None:
    command = Command(tmp_path / "runs", data.directory("workloads"))
    command.run("run", MINCORE, "--kernels", f"{RELEASE},{patched('oops')}", status=1)
    trials = RunJournal.open(command.folder()).record().trials
    assert any("kernel BUG" in trial.result.reason for trial in trials if trial.result)


def test_a_commit_is_undone_in_the_release_that_has_it(ground: Ground, tmp_path: Path) -> None:
    """Of a history that ends in a patch which cannot be put into the release."""
    history = Repository(tmp_path / "linux")
    lent = history.folder / ".git/objects/info/alternates"
    lent.parent.mkdir(exist_ok=True)
    lent.write_text(f"{git.repository() / 'objects'}\n")
    ids: list[str] = []
    for changes in (["mremap-folio-lookup"], [], [str(PATCHES / "boot.patch")]):
        tree = tree_reference.applied(ground.tree, [*map(tree_reference.of_word, changes)]).tree
        parent = ["-p", ids[-1]] if ids else []
        ids.append(history.git("commit-tree", tree, "-m", "mm: one", *parent).strip())
    history.git("tag", "v6.17", ids[1])
    command = Command(tmp_path / "runs", data.directory("workloads"))
    asked = ("--tree", str(history.folder), "--base", RELEASE, "--only", "unmap:mremap_ptes")
    command.environment["KDELTA_RESULTS_MIB"] = "256"
    said = " ".join(command.run("commit", ids[1], *asked, "--again").split())
    answer = rf"6\.17\.8\S* with {ids[1][:12]} executes (\S+) fewer instructions per page in"
    less = re.search(rf"{answer} unmap:mremap_ptes than without it, .*: IMPROVEMENT\.", said)
    assert less, said
    assert "It changes 1 function: move_page_tables." in said
    looked = command.run("commit", ids[1], *asked, "--no-count")
    assert "is executed by 1 of 1 scenario; nothing was counted." in " ".join(looked.split())
    without, own = counted(
        tmp_path, "unmap:mremap_ptes", f"{RELEASE}+undo={history.folder}@{ids[1]}", RELEASE
    )
    assert {"move_page_tables", "vm_normal_page"} <= differing(without, own)
    refused = command.run("commit", ids[2], *asked, status=2)
    assert "page_alloc_init_cpuhp() runs while the kernel boots; name a release" in refused
