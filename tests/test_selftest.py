# SPDX-License-Identifier: GPL-2.0-or-later
"""Which environments may be compared, when QEMUs were tested; see tests/boot/test_selftest.py."""

from __future__ import annotations

import shutil
from dataclasses import replace as with_fields
from pathlib import Path

import pytest
from msgspec.structs import replace

from kdelta import arch, cache, data, guest, process
from kdelta.analysis.findings import report
from kdelta.guests import qemu
from kdelta.run import selftest
from kdelta.sample import TrialResult
from kdelta.verdict.comparison import Verdict
from ladder_records import ENVIRONMENT, Trial, result, run

AMD64 = arch.of("amd64")


def verdict(old: TrialResult, new: TrialResult) -> tuple[Verdict, str]:
    (ladder,) = report(run({"6.16.1": [old], "6.17.1": [new]})).ladders
    comparison = ladder.rungs[1].comparison
    assert comparison is not None
    return comparison.verdict, "; ".join(comparison.reasons)


def of(version: str, self_test: str) -> TrialResult:
    environment = replace(ENVIRONMENT, qemu_version=version, self_test=self_test)
    return replace(result(Trial(per_page=300)), environment=environment)


def test_versions_of_qemu_are_compared_when_both_passed_the_same_test() -> None:
    assert verdict(of("10.0.2", "a"), of("10.0.8", "a"))[0] is Verdict.SAME
    for old, new in (
        (of("10.0.2", ""), of("10.0.8", "")),
        (of("10.0.2", "a"), of("10.0.8", "")),
        (of("10.0.2", "a"), of("10.0.2", "b")),
    ):
        found, reason = verdict(old, new)
        assert found is Verdict.INVALID
        assert "environments differ" in reason


def checkout(folder: Path) -> Path:
    """A copy of what kdelta compiles, as a checkout has it; what stands for its package."""
    for name in ("guest", "plugin"):
        shutil.copytree(data.directory(name), folder / name)
    return folder / "src" / "kdelta"


@pytest.mark.program
@pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")
def test_two_checkouts_have_one_test_and_the_same_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What two machines counted is compared by these: where a checkout lies is no part of them."""
    found = set()
    for name in ("here", "a folder elsewhere"):
        monkeypatch.setattr(data, "_PACKAGE", checkout(tmp_path / name))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"the cache of {name}"))
        made = (guest.program(data.directory("guest") / "selftest.c", AMD64), qemu.plugin())
        keys = tuple(path.relative_to(cache.root()) for path in made)
        found.add((selftest.name("amd64"), keys, tuple(path.read_bytes() for path in made)))
    assert len(found) == 1


def test_test_is_named_by_all_that_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [selftest.name("amd64")]
    monkeypatch.setattr(data, "_PACKAGE", checkout(tmp_path))
    assert selftest.name("amd64") == names[0]
    for path in ("guest/selftest.c", "guest/kdelta.h", "plugin/tasks.h"):
        changed = tmp_path / path
        changed.write_text(changed.read_text() + "/* another */\n")
        names.append(selftest.name("amd64"))
    first, *rest = selftest.KNOWN["amd64"]
    monkeypatch.setattr(selftest, "KNOWN", {"amd64": (with_fields(first, user=1), *rest)})
    names.append(selftest.name("amd64"))
    assert len(set(names)) == len(names)
