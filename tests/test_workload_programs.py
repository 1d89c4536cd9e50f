# SPDX-License-Identifier: GPL-2.0-or-later
"""The C programs on this machine: they build everywhere, and do and say what their TOML says.

An ordinary user is shown no page frames, so facts may then be unknown; never wrong.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import filelock
import pytest

from kdelta import data, process
from kdelta.export import exported
from kdelta.output import contract_failures, parse_output
from kdelta.sample import StateField
from kdelta.workload import Scenario, load, names

STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
# ./check compiles everything with this machine's own compilers.
COMPILERS = ("aarch64-linux-gnu-gcc", "riscv64-linux-gnu-gcc")
SCENARIOS = [scenario for name in names() for scenario in load(name).scenarios]
# Those of the time instrument alone take seconds for an iteration.
QUICK = [scenario for scenario in SCENARIOS if "exact" in scenario.instruments]
FIRST = list({scenario.workload: scenario for scenario in reversed(QUICK)}.values())
SMALL = {"mincore": "no_thp_pte_scan_4m", "mprotect": "shared_dirty_full_toggle_16m"}
NOBODY = 65534

pytestmark = [
    pytest.mark.program,
    pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory, open to everybody, with every workload built as the guest gets it.

    All processes of one test run share it.
    """
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "programs"
    folder.mkdir(exist_ok=True)
    for name in names():
        with filelock.FileLock(folder / f".{name}.lock"):
            if not (folder / name).exists():
                options = ["-O2", "-static", *STRICT]
                compile_c("gcc", options, load(name).program, folder / f".{name}")
                (folder / f".{name}").replace(folder / name)
    return folder


def compile_c(compiler: str, options: list[str], source: Path, target: Path) -> None:
    include = f"-I{data.directory('guest')}"
    process.run([compiler, *options, include, str(source), "-o", str(target)], timeout=120)


def run(program: Path, arguments: list[str]) -> process.Completed:
    return process.run([str(program), *arguments], timeout=60, check=False)


def skipped(done: process.Completed) -> bool:
    return done.returncode == 77


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", names())
def test_builds_without_a_warning(name: str, compiler: str, tmp_path: Path) -> None:
    if process.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    compile_c(compiler, ["-O2", "-c", *STRICT], load(name).program, tmp_path / name)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.reference)
def test_program_and_toml_agree(scenario: Scenario, built: Path) -> None:
    workload = load(scenario.workload)
    iterations, warmup = (2, 1) if scenario in QUICK else (1, 0)
    done = run(built / workload.name, scenario.arguments(iterations=iterations, warmup=warmup))
    # The parser compares phases, facts and wants with the TOML, and refuses any difference.
    reading = parse_output(done.stdout, workload, scenario)
    assert reading.exit_code == done.returncode
    if skipped(done):
        pytest.skip(f"{scenario.reference}: {reading.notes[-1]}")
    assert [field for field in contract_failures(reading) if not excused(field)] == []
    assert reading.phases == scenario.windows
    assert len(reading.samples) == in_rounds(iterations, scenario) * len(scenario.windows)
    assert all(sample.nanoseconds > 0 for sample in reading.samples)
    if scenario.features:
        facts = {field.name: field.value for field in reading.state}
        assert facts["anon_huge_kb"] == facts["rss_kb"]


def in_rounds(iterations: int, scenario: Scenario) -> int:
    """How many a program makes of so many: as many in each layout."""
    return -(-iterations // scenario.layouts) * scenario.layouts


def excused(field: StateField) -> bool:
    """Root has to know everything; others may not know.

    What THP gives is up to this machine's free memory, and may be another thing in each window.
    """
    if field.value == "mixed":
        return field.want == "same"
    return field.value == "unknown" and os.geteuid() != 0


@pytest.mark.parametrize("name", names())
def test_program_lists_the_scenarios_of_the_toml(name: str, built: Path) -> None:
    listed = [
        re.split(" +", line, maxsplit=1)
        for line in run(built / name, ["--list"]).stdout.splitlines()
    ]
    assert listed == [[scenario.name, scenario.summary] for scenario in load(name).scenarios]


@pytest.mark.parametrize("scenario", FIRST, ids=lambda scenario: scenario.reference)
def test_toml_iterations_are_the_programs_own(scenario: Scenario, built: Path) -> None:
    done = run(built / scenario.workload, ["--protocol", scenario.name])
    told = run(built / scenario.workload, scenario.arguments())
    assert done.stdout.count("\nsample ") == told.stdout.count("\nsample ")
    assert skipped(done) or done.stdout.count("\nsample ") == in_rounds(16, scenario) * len(
        scenario.windows
    )


def test_an_ordinary_user_gets_unknown_and_no_failure(built: Path) -> None:
    if os.geteuid() != 0 or process.which("setpriv") is None:
        pytest.skip("only root can become an ordinary user, with setpriv")
    for parent in (built, *built.parents[:2]):
        parent.chmod(0o755)
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    scenario = load("mprotect").scenario("shared_dirty_full_toggle_16m")
    program = str(built / "mprotect")

    done = process.run([*become, program, *scenario.arguments()], timeout=60, check=False)
    reading = parse_output(done.stdout, load("mprotect"), scenario)
    assert reading.exit_code == 0
    failures = contract_failures(reading)
    assert {field.value for field in failures} == {"unknown"}
    assert "anon_pages" in {field.name for field in failures}
    assert "present_pages" not in {field.name for field in failures}

    human = process.run([*become, program, scenario.name], timeout=60)
    assert re.search(r"^anon_pages +unknown +unknown +0$", human.stdout, re.MULTILINE)
    assert "facts of the page state are unknown: root may know" in human.stdout


def test_without_proc_nothing_is_invented(built: Path) -> None:
    hide = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    script = 'mount -t tmpfs none /proc && exec "$@"'
    if (
        os.geteuid() != 0
        or process.run([*hide, script, "sh", "true"], timeout=10, check=False).returncode
    ):
        pytest.skip("this user cannot hide /proc in a mount namespace")
    scenario = load("mprotect").scenario("single_protect")
    command = [*hide, script, "sh", str(built / "mprotect"), *scenario.arguments(iterations=1)]
    reading = parse_output(process.run(command, timeout=60).stdout, load("mprotect"), scenario)
    assert {field.value for field in reading.state if field.binding} == {"unknown"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "needs one of its scenarios"),
        (["no_such"], "needs one of its scenarios"),
        (["--iterations", "0", "single_protect"], "--iterations needs a number from 1 to 10000"),
        (["--iterations", "10001", "single_protect"], "--iterations needs a number from 1"),
        (["--warmup", "-1", "single_protect"], "--warmup needs a number from 0 to 10000"),
        (["--warmup", "1x", "single_protect"], "--warmup needs a number from 0 to 10000"),
        (["single_protect", "--iterations"], "--iterations needs a number from 1 to 10000"),
        (["--frobnicate"], "usage: mprotect [--protocol]"),
        (["single_protect", "single_protect"], "usage: mprotect [--protocol]"),
    ],
)
def test_wrong_usage_is_status_2_and_one_line(
    built: Path, arguments: list[str], words: str
) -> None:
    done = run(built / "mprotect", arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    protocol = run(built / "mprotect", ["--protocol", *arguments])
    assert protocol.stdout.startswith("note ")
    assert protocol.stdout.endswith("\nend 2\n")


def test_the_marks_are_in_the_program(built: Path) -> None:
    """The plugin looks for exactly these bytes."""
    code = (built / "mprotect").read_bytes()
    if process.run(["uname", "-m"], timeout=10).stdout.strip() != "x86_64":
        pytest.skip("the expected bytes are those of x86-64")
    for op in (1, 2):
        for phase in load("mprotect").phases:
            operand = 0x6B640000 | op << 8 | phase.id
            assert code.count(b"\x0f\x1f\x80" + operand.to_bytes(4, "little")) == 1


@pytest.mark.parametrize("machine", ["aarch64", "riscv64"])
def test_the_marks_of_other_machines(machine: str, tmp_path: Path) -> None:
    compiler = f"{machine}-linux-gnu-gcc"
    if process.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    program = tmp_path / "mprotect.o"
    compile_c(compiler, ["-O2", "-c", *STRICT], load("mprotect").program, program)
    code = program.read_bytes()
    for op in (1, 2):
        for phase in load("mprotect").phases:
            mark = op << 8 | phase.id
            arm64 = 0xD2800000 | (0xD000 | mark) << 5 | 31
            word = arm64 if machine == "aarch64" else (0x37 | (0x6B000 | mark) << 12)
            assert code.count(word.to_bytes(4, "little")) == 1


@pytest.mark.parametrize("name", names())
def test_the_exported_file_builds_and_runs_alone(name: str, tmp_path: Path) -> None:
    source = tmp_path / f"{name}.c"
    source.write_text(exported(load(name)))
    program = tmp_path / name
    process.run(
        ["gcc", "-O2", "-static", "-Wall", "-Wextra", "-Werror", source.name, "-o", name],
        timeout=120,
        cwd=tmp_path,
    )
    small = SMALL.get(name, load(name).scenarios[0].name)
    done = run(program, ["--iterations", "9", small])
    if skipped(done):
        pytest.skip(f"{name}:{small}: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(rf"^{name} {small}: ", done.stdout, re.MULTILINE)
    scenario = load(name).scenario(small)
    made = in_rounds(9, scenario)
    assert f"{made} iterations after 4 to warm up, clock step" in done.stdout
    for fact in scenario.contract:
        assert re.search(rf"^{fact.name} +\w+ +\w+ +{fact.want}$", done.stdout, re.MULTILINE)
    for window in scenario.windows:
        numbers = rf"^{window.name} +([\d.]+) +([\d.]+) +([\d.]+)"
        line = rf"{numbers}  ns/{window.operation}, {window.operations} in a window$"
        found = re.search(line, done.stdout, re.MULTILINE)
        assert found is not None
        low, middle, high = map(float, found.groups())
        assert 0 < low <= middle <= high


def broken_mincore(folder: Path, honest: str, broken: str) -> Path:
    source = exported(load("mincore"))
    assert source.count(honest) == 1
    (folder / "broken.c").write_text(source.replace(honest, broken))
    compile_c("gcc", ["-O2", "-static", *STRICT], folder / "broken.c", folder / "broken")
    return folder / "broken"


def test_a_wrong_page_state_is_status_1(tmp_path: Path) -> None:
    """One page is never faulted in: the audit and the vector have to say so."""
    program = broken_mincore(
        tmp_path,
        "kd_fault_in(start, s->bytes, s->flags & THP);",
        "kd_fault_in(start, s->bytes - KD_PAGE, s->flags & THP);",
    )
    scenario = load("mincore").scenario("no_thp_pte_scan_4m")
    human = run(program, [scenario.name])
    assert human.returncode == 1
    assert re.search(r"^present_pages +1023 +1023 +1024$", human.stdout, re.MULTILINE)
    assert "facts of the page state are not as wanted" in human.stderr

    done = run(program, scenario.arguments(iterations=2, warmup=0))
    reading = parse_output(done.stdout, load("mincore"), scenario)
    assert (done.returncode, reading.exit_code, len(reading.samples)) == (1, 1, 2)
    values = {(field.when, field.name): field.value for field in contract_failures(reading)}
    assert values["before", "vector_not_0x1"] == "1"
    assert values["after", "vector_not_0x1"] == "2"
    assert values["after", "rss_kb"] == "4092"


def test_a_fact_that_differs_between_windows_is_not_the_same(tmp_path: Path) -> None:
    fault_in = "kd_fault_in(start, s->bytes, s->flags & THP);"
    for value, status in (("KD_MIXED", 1), ("4", 0)):
        stated = f'{fault_in}\n\tkd_state(KD_DURING, "told", {value}, KD_SAME);'
        program = broken_mincore(tmp_path, fault_in, stated)
        assert run(program, ["no_thp_pte_scan_4m"]).returncode == status


def test_a_failing_system_call_is_status_1_and_named(tmp_path: Path) -> None:
    program = broken_mincore(
        tmp_path,
        "\t\tmemset(vector, 0xee, pages);\n",
        "\t\tmemset(vector, 0xee, pages);\n\t\tmunmap(start, KD_PAGE);\n",
    )
    scenario = load("mincore").scenario("no_thp_pte_scan_4m")
    done = run(program, scenario.arguments())
    reading = parse_output(done.stdout, load("mincore"), scenario)
    assert (done.returncode, reading.exit_code, reading.samples) == (1, 1, ())
    assert reading.notes[-1] == "mincore: Cannot allocate memory (errno 12)"


def test_a_clock_too_coarse_for_the_sample_is_noted(tmp_path: Path) -> None:
    """A clock that moves by 4 ms, as jiffies do, cannot time 4 MiB."""
    program = broken_mincore(
        tmp_path,
        "\treturn (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;\n",
        "\treturn (ts.tv_sec * 1000000000ULL + ts.tv_nsec) / 4000250 * 4000250;\n",
    )
    scenario = load("mincore").scenario("no_thp_pte_scan_4m")
    done = run(program, scenario.arguments(iterations=2))
    reading = parse_output(done.stdout, load("mincore"), scenario)
    assert "scan: 2 of 2 samples span fewer than 100 clock steps of 4000250 ns" in reading.notes
    assert {sample.nanoseconds % 4000250 for sample in reading.samples} == {0}


@pytest.mark.parametrize(
    ("status", "mode"),
    [
        ("Name:\tx\nThreads:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n", "2"),
        ("Name:\tx\nThreads:\t1\n", "0"),  # CONFIG_SECCOMP=n, as of tree:'s own configuration
        ("", "unknown"),
    ],
)
def test_a_kernel_without_seccomp_has_no_task_in_it(tmp_path: Path, status: str, mode: str) -> None:
    (tmp_path / "status").write_text(status)
    workload = load("control")
    scenario = workload.scenario("user_loop")
    source = exported(workload)
    assert '"/proc/self/status"' in source
    source = source.replace('"/proc/self/status"', f'"{tmp_path}/status"')
    (tmp_path / "control.c").write_text(source)
    compile_c("gcc", ["-O2", *STRICT], tmp_path / "control.c", tmp_path / "control")
    done = run(tmp_path / "control", scenario.arguments(iterations=1))
    state = parse_output(done.stdout, workload, scenario).state
    assert {field.value for field in state if field.name == "seccomp"} == {mode}
