# SPDX-License-Identifier: GPL-2.0-or-later
"""The trace instrument on a machine whose kernel has all of it: an emulated one, with Debian on it.

    .venv/bin/python bench/host_tracing.py [--folder DIRECTORY]

As root; bench/host_disk.py says what it needs.  kdelta is copied there and traces that kernel,
first without tracefs, then with it: kprobes with histograms, a trace event, a graph, perf,
bpftrace, and what cannot be watched.  The same functions of the same package's kernel are counted
here with --probe calls: calls of an iteration are its hits.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from host_disk import OLD, machine, made, on_it
from kdelta import data
from kdelta.journal import calls
from kdelta.journal.run import RUNS

_MORE = ("python3", "bpftrace", "linux-perf", "gcc", "libc6-dev")
_SCENARIO = "mprotect:shared_dirty_full_toggle_16m"
_FUNCTIONS = ("change_protection", "do_mprotect_pkey")
_STUDY = f"""
name = "host-tracing"
title = "what a machine traces"
question = "Do hits on a host agree with calls that are counted?"
instrument = "trace"
scenarios = ["{_SCENARIO}"]
kernels = ["host"]

[plan]
timeout_s = 900
single_kernel = true

[trace]
watch = [
    "change_protection", "do_mprotect_pkey", "do_mprotect_pkey(len=arg2:u64)",
    "exceptions:page_fault_user", "graph(do_mprotect_pkey)", "profile(do_mprotect_pkey)",
    "exc_page_fault", "nothing_of_this_name", "huge_memory:no_such_event", "perf(page-faults)",
    "perf(cycles)", "bpftrace(entered)", "bpftrace(broken)",
]

[trace.programs]
entered = "kprobe:change_protection /pid == $1/ {{ @ = count(); }}"
broken = "kprobe:nothing_of_this_name {{ @ = count(); }}"
"""
_THERE = "/opt/study.toml"
_KDELTA = """#!/bin/sh
export PYTHONPATH=/opt/kdelta/src:/opt/kdelta/site HOME=/opt KDELTA_RUNS=/opt/runs
cd /opt/kdelta; exec python3 -c 'from kdelta.cli.main import main; main()' "$@"
"""
_START = "from kdelta.cli.main import main; main()"


def _needed(name: str) -> set[str]:
    """A distribution and all that it needs, without extras."""
    found, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # of another system
            lines = importlib.metadata.requires(one) or []
            found.add(one)
            names = [re.match(r"[\w.-]+", line) for line in lines if "extra ==" not in line]
            waiting += [each[0] for each in names if each and each[0] not in found]
    return found


def _copied(folder: Path) -> None:
    """kdelta and what it imports, on the machine."""
    root = data.directory("workloads").parent
    tops = {
        path.parts[0]
        for name in _needed("kdelta")
        for path in importlib.metadata.files(name) or ()
        if path.parts[0] != ".."
    }
    site = Path(next(path for path in sys.path if path.endswith("site-packages")))
    for words, place in (
        (["-C", str(root), "src", "workloads", "guest", "plugin", "studies"], "/opt/kdelta"),
        (["-C", str(site), *(top for top in sorted(tops) if (site / top).exists())],
         "/opt/kdelta/site"),
    ):  # fmt: skip
        with tempfile.TemporaryFile() as packed:
            subprocess.run(["tar", "cz", *words], stdout=packed, check=True)
            packed.seek(0)
            unpack = f"sudo mkdir -p {place} && sudo tar xzf - -C {place}"
            subprocess.run(
                ["ssh", "-F", str(folder / "ssh_config"), "box", unpack], stdin=packed, check=True
            )
    _put(folder, "/usr/local/bin/kdelta", _KDELTA)
    on_it(folder, "sudo chmod 755 /usr/local/bin/kdelta")


def _put(folder: Path, path: str, text: str) -> None:
    words = ["ssh", "-F", str(folder / "ssh_config"), "box", f"sudo tee {path} > /dev/null"]
    subprocess.run(words, input=text, text=True, check=True)


def _counted(folder: Path, version: str) -> str:
    """Calls of the functions in an iteration's windows, counted on the same package's kernel."""
    runs = folder / "runs"
    command = ["run", _SCENARIO, "--kernels", f"deb:{version}", "--probe", "calls"]
    subprocess.run(
        [sys.executable, "-c", _START, *command, "--runs", str(runs)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    trees = calls.kept(RUNS.find(runs, "latest"), 0)
    told = {
        name: sum(node.calls for tree in trees.values() for node in tree if node.function == name)
        for name in _FUNCTIONS
    }
    return ", ".join(f"{name} {count}" for name, count in told.items())


def main() -> None:
    """Make the machine, trace on it, count here."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--folder", type=Path, default=Path("bench-host-tracing"))
    folder = asked.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    made(folder, *_MORE)
    with machine(folder, "grub"):
        _copied(folder)
        version = on_it(folder, f"dpkg-query -Wf '${{Version}}' linux-image-{OLD}").strip()
        _put(folder, _THERE, _STUDY)
        for mount in ("umount -q", "mount -t tracefs tracefs"):
            there = f"sudo {mount} /sys/kernel/tracing; sudo kdelta doctor | grep -A 2 ^tracefs"
            print(on_it(folder, there), flush=True)
            print(on_it(folder, f"sudo kdelta run {_THERE} 2>&1"), flush=True)
        left = "cd /sys/kernel/tracing; cat current_tracer set_ftrace_pid tracing_on; ls instances"
        print("left behind:", on_it(folder, f"sudo sh -c '{left}'"))
    print(f"counted on {version}: {_counted(folder, version)}")


if __name__ == "__main__":
    main()
