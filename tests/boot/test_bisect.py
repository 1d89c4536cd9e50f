# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta bisect releases` and `probe` over real kernels: killed, gone on with, and right."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from boot.command import Command, ended, outputs, until

pytestmark = pytest.mark.boot

SCENARIO = "mprotect:shared_dirty_full_toggle_16m"


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    from kdelta import data

    one = Command(tmp_path / "runs", data.directory("workloads"))
    yield one
    one.no_guests()


def steps(command: Command) -> int:
    """Points that the only bisection has measured so far."""
    for path in command.runs.glob("*/bisect.json"):
        return len(json.loads(path.read_bytes())["steps"])
    return 0


def test_a_killed_bisection_goes_on_and_finds_the_release(command: Command) -> None:
    arguments = ("bisect", "releases", SCENARIO, "--good", "6.16", "--bad", "6.18", "--json")
    first = command.start(*arguments)
    until(lambda: steps(command) >= 2)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    measured = command.results()
    process = command.start(*arguments)
    out, _ = outputs(process)
    assert process.returncode == 0
    found = json.loads(out)
    assert (found["good"]["label"], found["bad"]["label"]) == ("6.16.12", "6.17.8")
    assert found["ending"] == "step"
    assert found["boots"] <= 5
    assert found["ratio"] == pytest.approx(2.22, abs=0.1)
    top = {row["function"] for row in found["functions"]["functions"][:4]}
    assert {"prot_commit_flush_ptes", "change_protection", "change_pte_range"} <= top
    assert {name: command.results()[name] for name in measured} == measured, "measured again"

    again = command.run(*arguments[:-1])
    assert "going on with" in again
    assert "The change is between 6.16.12 and 6.17.8" in again
    assert len(command.results()) == found["boots"]
    (name,) = (path.name for path in command.runs.iterdir())
    assert "6.17.8" in command.run("show", name)
    probe = ("bisect", "probe", SCENARIO, "--like-run", name, "--kernel")
    assert ": good: " in command.run(*probe, "6.16.12", status=0)
    assert ": bad: " in command.run(*probe, "6.17.13", status=1)


def test_kernel_that_does_not_boot_is_skipped_by_probe(command: Command, tmp_path: Path) -> None:
    from boot import lab

    image = bytearray(lab.kernel("6.17").image.read_bytes())
    middle = len(image) // 2
    image[middle : middle + 4096] = bytes(4096)  # in the compressed part
    broken = tmp_path / "bzImage"
    broken.write_bytes(image)
    process = command.start(
        *("bisect", "probe", SCENARIO, "--below", "400"),
        *("--kernel", f"file:{broken}", "--timeout", "3"),
    )
    assert ": skip: boot-error" in ended(process, 125)
