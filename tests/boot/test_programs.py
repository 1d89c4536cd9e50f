# SPDX-License-Identifier: GPL-2.0-or-later
"""A program as it is, with a library of its own, on real kernels: from execve() to its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta import process
from kdelta.cli.main import cli
from kdelta.journal.run import RUNS, RunJournal

PROGRAM = """\
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int times(void);
int main(int argc, char **argv)
{
	char line[8] = "", *page = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *file = fopen(argv[argc - 1], "r");

	memset(page, 1, 65536);
	for (int i = 0; i < times(); i++) {
		mprotect(page, 65536, PROT_READ);
		mprotect(page, 65536, PROT_READ | PROT_WRITE);
	}
	if (getuid() && file && fgets(line, sizeof(line), file) && !strcmp(line, "given\\n"))
		return 0;
	fprintf(stderr, "not as given\\n");
	return 3;
}
"""


def made(folder: Path) -> Path:
    """The program, whose library lies beside it, and the file that it reads."""
    (folder / "times.c").write_text("int times(void) { return 50; }\n")
    (folder / "p.c").write_text(PROGRAM)
    (folder / "input").write_text("given\n")
    for words in (
        ["-shared", "-fPIC", "times.c", "-o", "libtimes.so"],
        ["p.c", "-o", "p", "-L.", "-ltimes", "-Wl,-rpath,$ORIGIN"],
    ):
        process.run(["gcc", "-O2", *words], timeout=60, cwd=folder)
    return folder / "p"


@pytest.mark.boot
def test_a_program_is_counted_with_its_libraries_by_system_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step of mprotect() from 6.16 to 6.17 is in its calls of mprotect(), and nowhere else."""
    made(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["run", "--kernels", "6.16,6.17", "--file", "input", "--", "./p", "input"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    run = RunJournal.open(RUNS.find(Path("kdelta-runs"), "latest")).record()
    assert run.rounds == 3
    for trial in run.trials:
        phase = trial.exact.phases[0]
        assert phase.syscalls is not None
        assert (phase.syscalls["execve"], phase.syscalls["exit_group"]) == (1, 1)
        assert 100 < phase.syscalls["mprotect"] < 110
        assert len({*phase.user}) == 1
        assert set(phase.clock or {}) <= {"rdtsc of the loader"}
        # Each instruction of the kernel is one of a call, or of a page fault.
        assert min(abs(sum(phase.spent.values()) - n) for n in phase.kernel) < 100
        assert phase.spent[""] > 50_000
    ladder = json.loads(CliRunner().invoke(cli, ["show", "latest", "--json"]).output)["ladders"][0]
    assert [step["comparison"]["verdict"] for step in ladder["steps"]] == ["REGRESSION"]
    table = CliRunner().invoke(cli, ["show", "latest"]).output.partition("by system call,")[2]
    first, call, *_ = table.splitlines()[1:]
    assert first.split() == ["call", "calls", "each", "old", "each", "new", "old", "new", "delta"]
    name, often, *figures = call.replace(",", "").split()
    each, total = (figures[at : at + 2] for at in (0, 2))
    assert name == "mprotect"
    assert [round(int(n) / int(often)) for n in total] == [*map(int, each)]
    assert float(call.split()[-1].replace(",", "")) > 100_000
    rows = [line.rsplit(maxsplit=6) for line in table.partition("\n\n")[0].splitlines()[2:]]
    *deltas, whole = (int(row[-1].replace(",", "").lstrip("~")) for row in rows)
    assert (rows[-1][0], whole) == ("[in all]", sum(deltas))
    name, step, *cause = table.partition("takes most:")[2].splitlines()[2].split()
    assert (name, cause[:4]) == ("mprotect", ["prot_commit_flush_ptes", "is", "newly", "called"])
    assert float(step.replace(",", "")) > 100_000
    packed = CliRunner().invoke(cli, ["bundle", "make", "latest", "-o", "b.tar"])
    assert packed.exit_code == 0, packed.output
    checked = CliRunner().invoke(cli, ["bundle", "verify", "b.tar"])
    assert checked.exit_code == 0, checked.output
    assert "have licences of their own" in " ".join(checked.output.split())
