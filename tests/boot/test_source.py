# SPDX-License-Identifier: GPL-2.0-or-later
"""A real kernel from source: built, changed, booted, and counted."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from boot.command import Command, outputs, until
from kdelta import cache
from kdelta.journal.run import RunJournal
from kdelta.kernels.reference import built
from kdelta.source.build import Build

pytestmark = pytest.mark.boot

RELEASE = "tree:deb:6.17.8+config=min"
MINCORE = "mincore:no_thp_pte_scan_4m"
MPROTECT = "mprotect:shared_dirty_full_toggle_16m"


@pytest.fixture(scope="module")
def original() -> Build:
    """Minutes when nothing of it is in the cache."""
    return built(RELEASE)


def per_page(command: Command, scenario: str, *references: str) -> list[dict[str, float]]:
    """Kernel instructions per page by function, all phases together, for each reference."""
    command.run("run", scenario, "--kernels", ",".join(references))
    record = RunJournal.open(command.folder()).record()
    found = []
    for arm in record.arms:
        # The run has the reverse gates of the workload too.
        (trial,) = [
            trial
            for trial in record.trials
            if trial.arm == arm.index and f"{trial.workload}:{trial.scenario}" == scenario
        ]
        assert trial.result is not None
        assert trial.result.outcome == "ok", trial.result.reason
        pages = {phase.phase: phase.operations for phase in trial.result.exact.phases}
        counts: dict[str, float] = {}
        for row in trial.result.exact.functions:
            counts[row.function] = counts.get(row.function, 0) + row.insns / pages[row.phase]
        found.append(counts)
    return found


def edited(original: Build, tmp_path: Path, old: str, new: str) -> str:
    """A reference to the release with one file edited in a way that no build has seen."""
    text = (original.tree.read("mm/mincore.c") or b"").decode()
    assert old in text
    path = tmp_path / f"edited-{time.time_ns()}.c"
    path.write_text(text.replace(old, new))
    return f"{RELEASE}+mm/mincore.c={path}"


def test_the_guest_has_all_that_was_asked_for(original: Build) -> None:
    assert original.record.lost == ()
    assert original.record.release == "6.17.8-kdelta"


def test_a_variant_of_one_file_compiles_one_file(original: Build, tmp_path: Path) -> None:
    # The first of them also compiles back what the build before it, of another test, had changed.
    for _ in range(2):
        number = time.time_ns() % 1_000_000 + 10
        made = built(edited(original, tmp_path, "return -ENOMEM;", f"return -{number};"))
        assert not made.cached
        assert made.image_sha256 != original.image_sha256
    assert re.findall(
        r"^  CC +(mm/\S+)", (made.folder / "build.log").read_text(), re.MULTILINE
    ) == ["mm/mincore.o"]


def test_equal_code_is_the_same_image(original: Build, tmp_path: Path) -> None:
    reference = edited(original, tmp_path, "int step, i;", f"int step, i; /* {time.time_ns()} */")
    made = built(reference)
    assert not made.cached
    assert made.image_sha256 == original.image_sha256


@pytest.mark.usefixtures("original")
def test_without_batches_mincore_is_the_same_image(command: Command) -> None:
    text = command.run("kernels", "fetch", RELEASE, f"{RELEASE}+mincore-no-batch")
    assert f"null variant: same image as {RELEASE}" in text


@pytest.mark.usefixtures("original")
def test_present_first_saves_two_instructions_per_page(command: Command) -> None:
    old, new = per_page(command, MINCORE, RELEASE, f"{RELEASE}+mincore-present-first")
    assert old["mincore_pte_range"] - new["mincore_pte_range"] == pytest.approx(2, abs=0.05)


@pytest.mark.usefixtures("original")
def test_the_single_pte_path_spares_the_commit_of_batches(command: Command) -> None:
    old, new = per_page(command, MPROTECT, RELEASE, f"{RELEASE}+mprotect-single-pte-fast-path")
    assert old["prot_commit_flush_ptes"] > 100
    assert "prot_commit_flush_ptes" not in new
    assert sum(new.values()) < 0.75 * sum(old.values())


def test_a_source_that_does_not_compile_says_where(
    command: Command, original: Build, tmp_path: Path
) -> None:
    bad = edited(original, tmp_path, "int step, i;", "int step, i")
    text = command.run("kernels", "fetch", bad, status=2)
    assert re.search(r"does not build: \.\./mm/mincore\.c:\d+: expected", text)


def test_kill_in_middle_spoils_nothing(command: Command, original: Build, tmp_path: Path) -> None:
    number = time.time_ns() % 1_000_000 + 10
    reference = edited(original, tmp_path, "return -ENOMEM;", f"return -{number};")
    begun = time.time()
    child = command.start("kernels", "fetch", reference)

    def at_work() -> bool:
        assert child.poll() is None, outputs(child)
        # Of any line: whether a file of one's own is a stranger's is not what is tested here.
        made = (cache.root() / "trees").glob("*/src/kdelta-*/.kdelta-building")
        return any(path.stat().st_mtime >= begun for path in made)

    until(at_work)
    time.sleep(2)
    child.kill()
    child.wait()
    assert built(reference).image_sha256 != original.image_sha256
    (original.image.parent / "build.json").unlink()
    assert built(RELEASE).image_sha256 == original.image_sha256
