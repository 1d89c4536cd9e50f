# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs on this machine: where they run, with what, for how long."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from kdelta import arch, guest, output, workload
from kdelta.arch import ARCHES
from kdelta.errors import Cancelled, GuestError, InfraError
from kdelta.host import leases, native

NEVER = threading.Event()
HOST = next((a for a in ARCHES.values() if a.uname == os.uname().machine), None)


def script(folder: Path, text: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(program: Path, *arguments: str, timeout: float = 20.0) -> native.NativeRun:
    cpu = max(os.sched_getaffinity(0))
    return native.run(program, arguments, (cpu,), timeout=timeout, cancelled=NEVER)


def test_program_runs_on_the_leased_cpu_only(tmp_path: Path) -> None:
    program = script(tmp_path, "grep Cpus_allowed_list /proc/self/status")
    with leases.lease_cpus(1, NEVER) as leased:
        done = native.run(program, [], leased, timeout=20, cancelled=NEVER)
    assert done.text.split() == ["Cpus_allowed_list:", str(leased[0])]
    assert done.status == 0


def test_environment_is_the_same_for_everyone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDELTA_LONG", "x" * 5000)
    done = run(script(tmp_path, "env | sort; pwd"))
    seen = [line for line in done.text.splitlines() if not line.startswith(("PWD", "_=", "SHLVL"))]
    assert seen == ["LC_ALL=C", "PATH=/usr/bin:/bin", "/"]


def test_a_workload_is_told_the_tree_to_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDELTA_WORKLOAD_TREE", "/a tree")
    monkeypatch.setenv("KDELTA_WORKLOAD_OTHER", "x")
    program = script(tmp_path, 'echo "<$KDELTA_WORKLOAD_TREE> <$KDELTA_WORKLOAD_OTHER>"')
    assert run(program).text == "</a tree> <>\n"


def test_arguments_status_and_errors_come_back(tmp_path: Path) -> None:
    done = run(script(tmp_path, 'echo "$1|$2"; echo bad >&2; exit 77'), "a b", "$HOME")
    assert (done.text, done.errors, done.status) == ("a b|$HOME\n", "bad", 77)
    assert done.argv[-3:] == (str(tmp_path / "program"), "a b", "$HOME")


def test_signal_is_a_status_above_128(tmp_path: Path) -> None:
    assert run(script(tmp_path, "kill -SEGV $$")).status == 139


def test_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    program = script(tmp_path, "sleep 60 & echo $$; exec >&- 2>&-; wait")
    begun = time.monotonic()
    with pytest.raises(GuestError, match="program did not end within 0 s"):
        run(program, timeout=0.3)
    assert time.monotonic() - begun < 10
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(program) in _text(p)]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_program_that_prints_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_MAX_OUTPUT", 1 << 20)
    with pytest.raises(GuestError, match="program printed more than 1 MiB"):
        run(script(tmp_path, "exec yes"))


def test_errors_without_end_are_cut(tmp_path: Path) -> None:
    done = run(script(tmp_path, "yes | head -c 1000000 >&2; echo done"))
    assert done.text == "done\n"
    assert len(done.errors) < 200_000


def test_cancelling_ends_the_program(tmp_path: Path) -> None:
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    begun = time.monotonic()
    with pytest.raises(Cancelled):
        native.run(
            script(tmp_path, "exec sleep 60"),
            [],
            (max(os.sched_getaffinity(0)),),
            timeout=60,
            cancelled=cancelled,
        )
    assert time.monotonic() - begun < 10


def test_program_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    done = run(path)
    assert done.status == 127
    assert "nothing" in done.errors


def test_machine_without_coreutils(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path, "true")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError, match="env is not installed"):
        run(program)


@pytest.mark.skipif(HOST is None, reason="no guest architecture is this machine's")
def test_real_workload_speaks_the_protocol_here() -> None:
    assert HOST is not None
    mincore, scenario = workload.parse_reference("mincore:no_thp_pte_scan_4m")
    program = guest.program(mincore.program, arch.of(HOST.debian))
    done = run(program, *scenario.arguments(iterations=3, warmup=1))
    reading = output.parse_output(done.text, mincore, scenario)
    assert reading.exit_code == done.status
    assert done.status in (0, 1)  # 1: an ordinary user cannot audit the pages
    if done.status == 0:
        assert len(reading.samples) == 3
        assert all(sample.nanoseconds > 0 for sample in reading.samples)
