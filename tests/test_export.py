# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta workload export` writes: the program that is counted, in one file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta import arch, data, guest, process
from kdelta.cli.workload import export_command
from kdelta.errors import SpecError
from kdelta.export import exported, is_export
from kdelta.output import parse_output
from kdelta.workload import Scenario, Workload, full_reference, load, names, parse_reference

BUILD = ["gcc", "-O2", "-static", "-Wall", "-Wextra", "-Werror"]
BARE = ["-s", "-Wl,--build-id=none"]  # what is loaded, without a note of what it was made from
# Those of the time instrument alone take seconds for an iteration.
QUICK = [
    next(each for each in load(name).scenarios if "exact" in each.instruments)
    for name in names()
    if any("exact" in each.instruments for each in load(name).scenarios)
]
MARKED = """\
#include "kdelta.h"
int main(void)
{
	KD_BEGIN(0);
	getppid();
	KD_END(0);
	return 0;
}
"""

needs_gcc = pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")


def header() -> str:
    return (data.directory("guest") / "kdelta.h").read_text()


def text_of(scenario: Scenario) -> str:
    return exported(load(scenario.workload), scenario)


def program_of(text: str) -> str:
    """An exported file without what was added to the program."""
    return re.sub(r"/\*.*?\*/\n(#define KD_SCENARIO [^\n]*\n)?", "", text, count=1, flags=re.DOTALL)


@pytest.mark.parametrize("name", names())
def test_nothing_of_the_program_is_rewritten(name: str) -> None:
    workload = load(name)
    whole = workload.program.read_text().replace('#include "kdelta.h"\n', header())
    for scenario in workload.scenarios:
        text = exported(workload, scenario)
        assert program_of(text) == whole
        assert text.count(f'\n#define KD_SCENARIO "{scenario.name}"\n') == 1
    assert program_of(exported(workload)) == whole


@pytest.mark.parametrize("scenario", QUICK, ids=lambda one: one.reference)
def test_its_head_says_what_it_is(scenario: Scenario) -> None:
    workload, text = load(scenario.workload), text_of(scenario)
    assert text.startswith("// SPDX-License-Identifier: GPL-2.0-or-later\n/*\n")
    head = text.partition("*/")[0]
    flat = " ".join(head.replace("\n *", " ").split())
    assert f"{scenario.name}.c - {scenario.summary}" in flat
    for said in (workload.description, workload.path, workload.mail):
        assert " ".join(said.split()) in flat
    assert f" * Build:    gcc -O2 -static {scenario.name}.c -o {scenario.name}\n" in head
    assert " * Licence:  GPL-2.0-or-later\n" in head
    assert f" * Made by:  kdelta workload export {scenario.reference}\n" in head


@pytest.mark.program
@needs_gcc
@pytest.mark.parametrize("name", names())
def test_it_is_the_program_that_is_counted(name: str, tmp_path: Path) -> None:
    """All that is loaded is the same but for the scenario's name, so one build stands for all."""
    workload = load(name)
    scenario = workload.scenarios[-1]
    include = f"-I{data.directory('guest')}"
    counted = ["gcc", *guest.CFLAGS, *BARE, include, str(workload.program), "-o", "counted"]
    (tmp_path / "it.c").write_text(exported(workload, scenario))
    process.run(counted, timeout=120, cwd=tmp_path)
    process.run([*BUILD, *BARE, "it.c", "-o", "it"], timeout=120, cwd=tmp_path)
    own, whole = ((tmp_path / each).read_bytes() for each in ("it", "counted"))
    size = len(scenario.name)
    places = [at for at, (a, b) in enumerate(zip(own, whole, strict=True)) if a != b]
    assert places == list(range(places[0], places[0] + size))
    assert own[places[0] : places[0] + size] == scenario.name.encode()
    assert whole[places[0] : places[0] + size] == bytes(size)


@pytest.mark.program
@needs_gcc
@pytest.mark.parametrize("scenario", QUICK, ids=lambda one: one.reference)
def test_it_runs_its_scenario_without_an_argument(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "it.c").write_text(text_of(scenario))
    process.run([*BUILD, "it.c", "-o", "it"], timeout=120, cwd=tmp_path)
    argv = [str(tmp_path / "it"), *scenario.arguments(iterations=2, warmup=1)[:-1]]
    done = process.run(argv, timeout=120, check=False)
    reading = parse_output(done.stdout, load(scenario.workload), scenario)
    if done.returncode == 77:
        pytest.skip(str(reading.notes))
    assert {sample.phase for sample in reading.samples} == {each.name for each in scenario.windows}


@pytest.mark.program
@needs_gcc
def test_an_argument_is_stronger_and_a_wrong_one_an_error(tmp_path: Path) -> None:
    (tmp_path / "it.c").write_text(text_of(load("control").scenario("getppid")))
    process.run([*BUILD, "it.c", "-o", "it"], timeout=120, cwd=tmp_path)

    def head(*arguments: str) -> tuple[int, str]:
        done = process.run([str(tmp_path / "it"), *arguments], timeout=60, check=False)
        return done.returncode, done.stdout.partition(":")[0] + done.stderr

    assert head() == (0, "control getppid")
    assert head("user_loop") == (0, "control user_loop")
    assert head("none") == (2, "control needs one of its scenarios: see --list\n")


def test_headers_beside_a_file_come_along_once(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\nint a = B;\n')
    (tmp_path / "b.h").write_text("#define B 1\n")
    text = '#include "b.h"\n#include "a.h"\n# include "b.h" /* again */\n#include "none.h"\n'
    (tmp_path / "it.c").write_text(f"{text}int main(void) {{ return a; }}\n")
    found = program_of(exported(load(str(tmp_path / "it.c"))))
    whole = '#define B 1\nint a = B;\n#include "none.h"\nint main(void) { return a; }\n'
    assert found == whole


def declared(folder: Path, name: str, text: str) -> Workload:
    (folder / name).write_text(text)
    return load(str(folder / name))


def test_an_exported_file_is_a_workload_again(tmp_path: Path) -> None:
    """It runs the scenario that it defines, and is its own export but for the head comment."""
    workload, scenario = parse_reference("mprotect:single_protect")
    again = declared(tmp_path, "it.c", exported(workload, scenario))
    named = full_reference(str(tmp_path / "it.c"))
    assert named.endswith("/it.c:single_protect")
    found = again.scenario("single_protect")
    assert (found.speaks, found.arguments()) == (True, scenario.arguments())
    assert program_of(exported(again, found)) in exported(workload, scenario)
    assert str(tmp_path) not in exported(again, found)


@pytest.mark.program
@needs_gcc
def test_a_file_with_marks_is_exported_with_the_header(tmp_path: Path) -> None:
    text = exported(declared(tmp_path, "loop.c", MARKED), load(f"{tmp_path}/loop.c").scenario("x"))
    assert program_of(text) == MARKED.replace('#include "kdelta.h"\n', header())
    assert " * Run:      ./loop-x x\n" in text
    assert "It prints" not in text.partition("*/")[0]
    again = declared(tmp_path, "it.c", text)
    assert not again.scenario("x").speaks
    process.run([*BUILD, "it.c", "-o", "it"], timeout=120, cwd=tmp_path)
    program = guest.program(again.program, arch.native(), theirs=True)
    done = process.run([str(program), "x"], timeout=60, check=False)
    assert [each.phase for each in parse_output(done.stdout, again, again.scenario("x")).samples]


def test_export_writes_the_file_or_says_why_not(tmp_path: Path) -> None:
    target = tmp_path / "out.c"
    for reference, source in (
        ("mprotect:single_protect", text_of(load("mprotect").scenario("single_protect"))),
        ("mprotect", exported(load("mprotect"))),
        ("kdelta.h", header()),
        ("control", exported(load("control"))),
    ):
        written = CliRunner().invoke(export_command, [reference, "-o", str(target)])
        assert (written.exit_code, target.read_text()) == (0, source)
        assert CliRunner().invoke(export_command, [reference]).output == source
    own = tmp_path / "own.c"
    own.write_text(MARKED)
    for reference, path in ((f"{own}:main", own), ("kdelta.h", own), (f"{target}:x", target)):
        kept = path.read_text()
        refused = CliRunner().invoke(export_command, [reference, "-o", str(path)])
        assert isinstance(refused.exception, SpecError)
        assert path.read_text() == kept
    failed = CliRunner().invoke(export_command, ["mprotect", "-o", str(tmp_path / "no" / "out.c")])
    assert isinstance(failed.exception, SpecError)
    assert "No such file or directory; choose another file" in failed.exception.sentence()
    unknown = CliRunner().invoke(export_command, ["mprotect:double"])
    assert isinstance(unknown.exception, SpecError)


def test_only_what_is_exported_here_to_the_byte_is_laid_out_as_shipped(tmp_path: Path) -> None:
    """A user's own file that says the same scenario, or an edited export, varies by its seeds."""
    file, text = tmp_path / "it.c", exported(*parse_reference("control:getppid"))
    changed = text.replace("kd_phase(", "kd_phase (", 1)
    for content, proven in ((text, True), (changed, False), (f"{text}\n", False)):
        file.write_text(content)
        assert is_export(file) is proven
    file.write_text('#define KD_SCENARIO "getppid"\n#include "kdelta.h"\n')
    assert not is_export(file)
