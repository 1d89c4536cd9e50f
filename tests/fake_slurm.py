# SPDX-License-Identifier: GPL-2.0-or-later
"""Slurm's commands at the process border: each job comes to the end that a test has planned.

FOLDER/plan      a line for each sbatch: "run NODE", "end STATE", "wait REASON", "refuse WORDS"
FOLDER/jobs      what squeue lists
FOLDER/calls     what was called, one JSON list a line
FOLDER/silent    when it is there, squeue fails
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PROGRAM = """\
#!{python}
import json, os, pathlib, subprocess, sys
here = pathlib.Path({folder!r})
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
with (here / "calls").open("a") as stream:
    stream.write(json.dumps([name, *words]) + "\\n")
def fail(text):
    sys.stderr.write(text + "\\n")
    raise SystemExit(1)
jobs = here / "jobs"
if name == "squeue":
    if (here / "silent").exists():
        fail("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    names = next(w for w in words if w.startswith("--name=")).partition("=")[2].split(",")
    lines = jobs.read_text().splitlines() if jobs.exists() else []
    print("\\n".join(line for line in lines if line.split("|")[1] in names or "!" in line))
elif name == "sacct":
    fail("Slurm accounting storage is disabled")
elif name == "sinfo":
    print("bench\\nurgent")
elif name == "sbatch" and "--test-only" in words:
    bad = here / "refused"
    if bad.exists():
        fail(bad.read_text())
elif name == "sbatch":
    plan = (here / "plan").read_text().splitlines()
    (here / "plan").write_text("\\n".join(plan[1:]))
    what, _, rest = plan[0].partition(" ")
    if what == "refuse":
        fail(rest)
    options = dict(w[2:].split("=", 1) for w in words if w.startswith("--") and "=" in w)
    text = jobs.read_text() if jobs.exists() else ""
    number = 1 + text.count("\\n")
    own = options["job-name"]
    state, node, reason = "COMPLETED", "", "None"
    if what == "run":
        node = options.get("nodelist", rest)
        subprocess.run(["sh", words[-1]], check=True, env={{**os.environ, "SLURMD_NODENAME": rest}})
    elif what == "end":
        state, node = rest, "n1"
    else:
        state, reason = "PENDING", rest
    jobs.write_text(text + f"{{number}}|{{own}}|{{state}}|{{node}}|{{reason}}\\n")
    print(f"{{number}};loop")
elif name == "scancel":
    lines = [line.split("|") for line in jobs.read_text().splitlines()]
    rows = [[n, j, "CANCELLED" if n in words else s, *rest] for n, j, s, *rest in lines]
    jobs.write_text("".join("|".join(row) + "\\n" for row in rows))
"""
_COMPLETE = """\
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import fake_slurm
fake_slurm.complete(Path(sys.argv[-1]), os.environ["SLURMD_NODENAME"])
"""


def install(folder: Path) -> Path:
    """The commands in a folder of their own; returns that of PATH."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("sbatch", "squeue", "sacct", "sinfo", "scancel"):
        path = programs / name
        path.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        path.chmod(0o755)
    script = folder / "complete.py"
    script.write_text(_COMPLETE.format(tests=str(Path(__file__).parent)))
    (folder / "plan").write_text("")
    return programs


def command(folder: Path) -> str:
    """What the pool has for kdelta: it measures nothing, and leaves a whole block."""
    return f"{sys.executable} {folder / 'complete.py'}"


def complete(folder: Path, node: str, *, infra: bool | None = None) -> None:
    """Make a block whole, as `kdelta block` does, with results that only its trials can have."""
    from kdelta.journal import blocks
    from kdelta.sample import Outcome, PhaseTimes, TimeData, TrialResult

    broken = (folder.parent / "infra").exists() if infra is None else infra
    own = blocks.attempt(folder, f"1-{os.getpid()}")
    with own.executing():
        for trial in own.pending():
            own.claim(trial.index)
            text = own.folder / "trials" / f"{trial.index:04d}" / "workload.txt"
            text.parent.mkdir(parents=True)
            text.write_text(f"trial {trial.index}\n")
            times = PhaseTimes(
                phase="call", operations=1, operation="call", nanoseconds=(1000 + trial.index,) * 3
            )
            result = TrialResult(
                outcome=Outcome.OK,
                data=TimeData(phases=(times,)),
                artifacts={"workload": f"trials/{trial.index:04d}/workload.txt"},
            )
            failed = TrialResult(outcome=Outcome.INFRA_ERROR, reasons=("the disk is full",))
            own.finish(trial.index, failed if broken else result)
    blocks.finish(folder, own, blocks.BlockMachine(job="1", restart="0", node=node))
