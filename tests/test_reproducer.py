# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta workload export` writes: one short scenario that builds alone and works."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta import data, process
from kdelta.cli.workload import export_command
from kdelta.errors import SpecError
from kdelta.rendering import c_items
from kdelta.rendering.c_folding import specialised
from kdelta.rendering.c_tree import Given
from kdelta.rendering.reproducer import MOST_LINES, SHORTER, reproducer
from kdelta.workload import ITERATIONS, WARMUP, Scenario, load, names

# A program of several tasks that act on each other: it does not fit.
LONGER = {"khugepaged": 622}
# Tables of functions that differ in a few lines: some of each are compiled, all are counted.
TABLES = [name for name in names() if name.startswith(("loops_", "memcg"))]
COMPILED = [
    scenario
    for name in names()
    for scenario in load(name).scenarios[:: 12 if name in TABLES else 1]
]
FIRST = [load(name).scenarios[0] for name in names() if name not in ("kernbench", "demand_fault")]
BUILD = ["gcc", "-O2", "-static", "-Wall", "-Wextra", "-Werror", "-x", "c"]
# Its short form has the windows, too: what is called in them is counted below.
RENEWED = "inotify_churn"
# Notes the calls of all its processes, and where a window begins and ends, in order.
SPY = """\
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

static void spy(char what)
{
	int fd = open(SPIED, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, &what, 1) != 1 || close(fd))
		_exit(9);
}

#define inotify_add_watch(...) (spy('a'), inotify_add_watch(__VA_ARGS__))
#define inotify_rm_watch(...) (spy('d'), inotify_rm_watch(__VA_ARGS__))
#define clock_gettime(...) (spy('t'), clock_gettime(__VA_ARGS__))
"""

needs_gcc = pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")


def text_of(scenario: Scenario) -> str:
    return reproducer(load(scenario.workload), scenario)


def test_the_bound_is_that_of_a_mail() -> None:
    """No program joins those that do not fit without this test being told."""
    assert MOST_LINES == 199
    assert sorted(LONGER) == ["khugepaged"]


def short_text(scenario: Scenario) -> str:
    """The file, held against its bound, with nothing left of the other scenarios."""
    text = text_of(scenario)
    lines = text.count("\n")
    if scenario.workload in LONGER:
        assert 200 <= lines <= LONGER[scenario.workload], scenario.reference
    else:
        assert lines < 200, scenario.reference
    assert scenario.reference in text
    assert not re.search(r"\bkd_scenario\b|\bs->", text)
    return text


@pytest.mark.program
@needs_gcc
@pytest.mark.parametrize("scenario", COMPILED, ids=lambda one: one.reference)
def test_every_scenario_is_a_short_file_that_compiles(scenario: Scenario, tmp_path: Path) -> None:
    text = short_text(scenario)
    (tmp_path / "it.c").write_text(text)
    process.run([*BUILD, "it.c", "-o", "it"], timeout=120, cwd=tmp_path)


@pytest.mark.program
@pytest.mark.parametrize("name", TABLES)
def test_every_loop_of_a_table_is_a_short_file(name: str) -> None:
    for scenario in load(name).scenarios:
        short_text(scenario)


@pytest.mark.program
@needs_gcc
@pytest.mark.parametrize("scenario", FIRST, ids=lambda one: one.reference)
def test_it_runs_and_tells_each_phase(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "it.c").write_text(text_of(scenario))
    process.run([*BUILD, "it.c", "-o", "it"], timeout=120, cwd=tmp_path)
    done = process.run([str(tmp_path / "it")], timeout=120, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stderr) == (0, "")
    for window in scenario.windows:
        found = re.search(
            rf"^{window.name}: median ([\d.]+), min ([\d.]+) ns/{window.operation}$",
            done.stdout,
            re.MULTILINE,
        )
        assert found is not None
        assert float(found[1]) >= float(found[2]) >= 0


@pytest.mark.parametrize("name", ["page_fault1", "mmap_128m"])
def test_a_scenario_of_a_set_lists_no_paths_of_others(name: str) -> None:
    scenario = load("loops_mm").scenario(name)
    preface = text_of(scenario).partition("*/")[0]
    assert "Path:" not in preface
    assert all(robot in preface for robot in scenario.robots)
    alone = text_of(load("mprotect").scenario("single_protect")).partition("*/")[0]
    assert " * Path:   mprotect() -> mprotect_fixup() -> change_protection()" in alone


@pytest.mark.program
def test_a_child_is_waited_for_before_its_end_is_measured() -> None:
    text = text_of(load("fault_fork").scenario("exit_teardown_thp"))
    assert text.index("\t\tchild_present();") < text.index("\t\tKD_WINDOW(EXIT, ")
    assert re.search(r"fill\(start\);\n\t_exit\(write\(", text)


FORMS = [form for form in sorted(SHORTER.glob("*.h")) if form.stem != RENEWED]


@pytest.mark.parametrize("form", FORMS, ids=lambda one: one.stem)
def test_short_forms_prepare_and_are_not_what_is_measured(form: Path) -> None:
    """Nothing that a window calls, directly or not, has a short form."""
    program = (data.directory("workloads") / f"{form.stem}.c").read_bytes()
    found = list(c_items.items(program))
    names = {name for item in c_items.items(form.read_bytes()) for name in item.names}
    needs = {name: item.needs for item in found for name in item.names}
    windows = re.findall(r"KD_WINDOW\(\w+, (\w+)", program.decode())
    reached: set[str] = set()
    ahead = set(windows)
    while ahead:
        reached |= ahead
        ahead = {word for name in ahead for word in needs.get(name, ())} - reached
    assert names & needs.keys()
    # A child goes on by itself: fork() is what the window is about.
    assert names & reached <= {"live"}


def windows_of(program: Path, arguments: list[str], folder: Path) -> list[str]:
    """The calls in each window of a program, of all its workers."""
    spied = folder / f"{program.stem}.spied"
    (folder / "spy.h").write_text(SPY)
    include = ["-I", str(data.directory("guest")), "-include", "spy.h", f'-DSPIED="{spied}"']
    process.run(["gcc", "-O2", *include, str(program), "-o", "it"], timeout=120, cwd=folder)
    done = process.run([str(folder / "it"), *arguments], timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return re.findall(r"(?<=t)(?=([ad]+)t)", spied.read_text())


@pytest.mark.program
@needs_gcc
@pytest.mark.parametrize("name", ["distinct_1", "shared_1", "shared_2"])
def test_windows_of_a_renewed_program_have_the_calls_of_the_whole(
    name: str, tmp_path: Path
) -> None:
    scenario = load(RENEWED).scenario(name)
    (tmp_path / "short.c").write_text(text_of(scenario))
    whole = data.directory("workloads") / f"{RENEWED}.c"
    windows = windows_of(tmp_path / "short.c", [], tmp_path)
    theirs = windows_of(whole, [name], tmp_path)[-len(windows) :]  # it reads the clock once before
    operations = scenario.windows[0].operations
    assert len(windows) == len(theirs) == WARMUP + ITERATIONS
    for window in (*windows, *theirs):
        assert (window.count("a"), window.count("d")) == (operations, operations)
    if name.endswith("_1"):
        assert {*windows} == {*theirs} == {4 * ("a" * 4 + "d" * 4)}


@pytest.mark.program
@needs_gcc
def test_a_page_that_is_not_there_is_status_1(tmp_path: Path) -> None:
    text = text_of(load("advise").scenario("cold"))
    honest = "kd_touch(start, KD_PAGES(BYTES), KD_PAGE);"
    assert honest in text
    (tmp_path / "it.c").write_text(text.replace(honest, honest.replace("(BYTES)", "(BYTES) - 1")))
    process.run([*BUILD, "it.c", "-o", "it"], timeout=120, cwd=tmp_path)
    done = process.run([str(tmp_path / "it")], timeout=120, check=False)
    assert done.returncode == 1
    assert "present pages is 464 and not 465" in done.stdout


def test_export_writes_the_file_or_says_why_not(tmp_path: Path) -> None:
    reference = "mprotect:single_protect"
    scenario = load("mprotect").scenario("single_protect")
    target = tmp_path / "out.c"
    written = CliRunner().invoke(export_command, [reference, "-o", str(target)])
    assert (written.exit_code, target.read_text()) == (0, text_of(scenario))
    assert CliRunner().invoke(export_command, [reference]).output == text_of(scenario)
    failed = CliRunner().invoke(export_command, [reference, "-o", str(tmp_path / "no" / "out.c")])
    assert isinstance(failed.exception, SpecError)
    assert "No such file or directory; choose another file with -o" in failed.exception.sentence()
    unknown = CliRunner().invoke(export_command, ["mprotect:double"])
    assert isinstance(unknown.exception, SpecError)


KNOWN = Given(
    numbers={"A": 1, "B": 2},
    fields={"flags": "1", "bytes": "BYTES"},
    aside=frozenset({"looks", "kd_all"}),
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if (s->flags & A)\n\t\tone();\n\telse\n\t\ttwo();", "one();"),
        ("if (s->flags & B)\n\t\tone();\n\telse\n\t\ttwo();", "two();"),
        ("if (s->flags & B)\n\t\tone();", ""),
        ("if (x)\n\t\tone();\n\telse if (s->flags & B)\n\t\ttwo();", "if (x)\n\t\tone();"),
        ("use(s->flags & A ? p : q, s->bytes);", "use(p, BYTES);"),
        ("bool b = s->flags & A;\n\n\tuse(b || f());", "use(1);"),
        ("long n = f();\n\n\tuse(s->flags & B && n);", "long n = f();\n\n\tuse(0);"),
        ("one();\n\treturn;\n\ttwo();\n\tthree();", "one();\n\treturn;"),
        ("if (1 & B)\n\t\tone();\n\ttwo();", "two();"),
        ("long n = 0;\n\n\tn += 5 - looks(1);\n\ttwo();", "two();"),
        ("bool n = a && !strcmp(a, b);\n\n\ttwo();", "two();"),
        ("kd_all(&n, looks(1));\n\ttwo();", "two();"),
        ("kd_all(&n, acts(1));\n\ttwo();", "acts(1);\n\ttwo();"),
    ],
)
def test_what_is_known_is_put_in(before: str, after: str) -> None:
    text = f"void f(void)\n{{\n\t{before}\n}}\n"
    found = specialised(text.encode(), KNOWN).decode()
    assert found.split() == f"void f(void) {{ {after} }}".split()


def test_a_call_that_does_something_is_kept() -> None:
    text = b"void f(void)\n{\n\tlong n = g();\n\n\tuse(g() && (s->flags & B));\n}\n"
    assert specialised(text, KNOWN).count(b"g()") == 2


@pytest.mark.parametrize(
    ("given", "body", "after"),
    [
        ("0", "if (n)\n\t\tone();\n\ttwo();", "two();"),
        ("false", "use(n, x);", "use(false, x);"),
        ("true", "if (n)\n\t\tone();", "one();"),
        ("3", "use(x < n);", "use(x < 3);"),
    ],
)
def test_what_every_caller_gives_stands_for_the_parameter(
    given: str, body: str, after: str
) -> None:
    text = f"static void f(int n)\n{{\n\t{body}\n}}\n\nint main(void)\n{{\n\tf({given});\n}}\n"
    found = specialised(text.encode(), KNOWN).decode()
    assert found.split() == f"static void f(void) {{ {after} }} int main(void) {{ f(); }}".split()


@pytest.mark.parametrize("body", ["use(x < n);", "use(x / n);"])
def test_a_nought_that_compilers_warn_of_stays_a_parameter(body: str) -> None:
    text = f"static void f(int n)\n{{\n\t{body}\n}}\n\nint main(void)\n{{\n\tf(0);\n}}\n"
    assert body in specialised(text.encode(), KNOWN).decode()


def test_what_is_set_and_never_read_goes() -> None:
    text = b"static int n;\n\nvoid f(void)\n{\n\tn = 3;\n\tn += looks(2);\n\ttwo();\n}\n"
    assert b"n =" not in specialised(text, KNOWN)
    kept = b"static int n;\n\nvoid f(void)\n{\n\tn = acts(2);\n\ttwo();\n}\n"
    assert specialised(kept, KNOWN) == kept


def test_what_nobody_takes_is_not_returned() -> None:
    text = "static long *f(int a)\n{\n\tacts(a);\n\treturn &at;\n}\n\nint main(void)\n{\n\t%s\n}\n"
    found = specialised((text % "f(x);").encode(), KNOWN)
    assert b"static void f(int a)\n{\n\tacts(a);\n}" in found
    taken = (text % "use(f(x));").encode()
    assert specialised(taken, KNOWN) == taken
    local = (text % "f(x);").replace("acts(a)", "long n = acts(a)").replace("&at", "n").encode()
    assert specialised(local, KNOWN) == local, "what nobody reads is a warning"
    elsewhere = (text % "f(x);").encode()
    assert specialised(elsewhere, replace(KNOWN, part=True)) == elsewhere
