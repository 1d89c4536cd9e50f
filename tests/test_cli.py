# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line as a user meets it: help, speed, sentences, exit codes."""

from __future__ import annotations

import errno
import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from kdelta import cache, data
from kdelta.cli import main as cli_main
from kdelta.errors import BootError, InfraError, KdeltaError, SpecError

START = "import sys; from kdelta.cli.main import main; main(sys.argv[1:])"


def kdelta(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", START, *arguments], capture_output=True, text=True, check=False,
        timeout=60, env={**os.environ, **environment},
    )  # fmt: skip


INTERRUPTED = "interrupted; the same command goes on with what is downloaded, built and counted."


def test_an_interrupt_that_comes_in_a_callback_is_not_lost() -> None:
    script = """if True:
        import signal, time
        from kdelta.cli import main
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job behind has none
        class Dies:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)
        main._invoke = lambda words: (Dies(), 0)[1] or time.sleep(600)
        main.main([])
    """
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, f"kdelta: {INTERRUPTED}\n")


def exit_code(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        cli_main.main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `kdelta doctor` raise: what main() does with it is what a test looks at."""

    def plant(error: BaseException) -> None:
        @click.command()
        def broken() -> None:
            raise error

        monkeypatch.setattr(cli_main, "_load", lambda _name: broken)

    return plant


@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("4", "4")])
def test_numpy_gets_one_thread_unless_the_user_says(
    monkeypatch: pytest.MonkeyPatch, given: str | None, found: str
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    assert exit_code(["--help"]) == 0
    assert os.environ["OPENBLAS_NUM_THREADS"] == found


def test_help_lists_every_command_and_exit_code() -> None:
    done = kdelta("--help")
    assert done.returncode == 0
    for name, (_, text) in cli_main.COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert text in done.stdout
    for code in ("0", "1", "2", "3", "70", "130"):
        assert f"\n    {code} " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def of_code(*lines: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", "\n".join(("import os, signal, sys", *lines))]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_help_imports_nothing_heavy() -> None:
    done = of_code(
        "from kdelta.cli.main import main",
        "try: main(['--help'])\nexcept SystemExit: pass",
        "heavy = {'rich', 'qemu', 'elftools', 'asyncio', 'msgspec', 'jinja2'}",
        "print('HEAVY', sorted(heavy & set(sys.modules)))",
        "try: main(['workload', '--help'])",
        "except SystemExit: print('kdelta.cli.run' in sys.modules)",
    )
    assert "\nHEAVY []\n" in done.stdout
    assert done.stdout.endswith("\nFalse\n")


def test_ctrl_c_while_modules_are_read_is_silent() -> None:
    done = of_code(
        "from kdelta.cli import start\nclass Reader:",
        "    def find_spec(self, name, *_): os.kill(os.getpid(), signal.SIGINT)",
        "sys.meta_path.insert(0, Reader())\nstart.main()",
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_there_are_at_most_26_commands() -> None:
    assert len(cli_main.COMMANDS) <= 26


def test_each_example_is_of_a_command() -> None:
    assert {line.split()[1] for line in cli_main.EXAMPLES.splitlines()} <= set(cli_main.COMMANDS)


def leaves(command: click.Command, path: str) -> Iterator[str]:
    """The paths of a command's subcommands, or its own when it has none."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, f"{path} {name}")
    else:
        yield path


@pytest.mark.parametrize("name", list(cli_main.COMMANDS))
def test_each_command_shows_example_that_parses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # An example may name a file that is not here; anything else of it has to be right.
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, *_: Path(value))
    command = cli_main._load(name)
    for path in leaves(command, f"kdelta {name}"):
        assert f"\n{path}" in f"\n{cli_main.EXAMPLES}", f"{path} has no example"
    for line in cli_main.EXAMPLES.splitlines():
        if line.split()[1] != name:
            continue
        words = shlex.split(line)
        context = cli_main.cli.make_context("kdelta", words[1:2])
        inner, rest = command, words[2:]
        while isinstance(inner, click.Group):
            context = inner.make_context(rest[0], [rest[0]], parent=context)
            inner, rest = inner.commands[rest[0]], rest[1:]
        assert inner.make_context(inner.name, rest, parent=context).params is not None
        assert f"  {line}\n" in f"{inner.get_help(context)}\n"


@pytest.mark.parametrize(
    "arguments", [["no-such-command"], ["--no-such-option"], ["doctor", "surplus"]]
)
def test_wrong_usage_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert exit_code(arguments) == 2
    shown = capsys.readouterr()
    assert "Usage: kdelta" in shown.err
    assert max(map(len, shown.err.splitlines())) <= 40
    assert not shown.out


def test_broken_command_does_not_break_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli_main.COMMANDS, "gone", ("gone:gone", "Not in this installation."))
    assert exit_code(["doctor", "--help"]) == 0
    assert exit_code(["--help"]) == 0
    capsys.readouterr()
    assert exit_code(["gone"]) == 3
    assert capsys.readouterr().err == (
        "kdelta: this installation cannot load the command gone "
        "(No module named 'kdelta.cli.gone'); reinstall kdelta.\n"
    )


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (SpecError("unknown key x", place="a.toml: arms"), 2, "a.toml: arms: unknown key x."),
        (InfraError("no mirror", action="check the network"), 3, "no mirror; check the network."),
        (BootError("panicked\nat boot"), 1, "panicked at boot."),
        (KeyboardInterrupt(), 130, INTERRUPTED),
        (KeyboardInterrupt("go on with: x"), 130, "interrupted; go on with: x."),
        (OSError(errno.ENOSPC, "No space left on device", "/cache/x"), 3,
         f"/cache/x: no space left on device; {cli_main._MACHINE_ACTIONS[errno.ENOSPC]}."),
        (OSError(errno.EROFS, "Read-only file system", "/cache"), 3,
         "/cache: read-only file system; use a directory that can be written."),
        (PermissionError(errno.EACCES, "Permission denied", "/cache"), 3,
         f"/cache: permission denied; {cli_main._MACHINE_ACTIONS[errno.EACCES]}."),
        (MemoryError(), 3, f"memory ran out; {cli_main._MACHINE_ACTIONS[errno.ENOMEM]}."),
        (OSError(errno.EMFILE, "Too many open files", "/x"), 3,
         "/x: too many open files; allow more open files: ulimit -n 1024."),
    ],
)  # fmt: skip
def test_errors_become_one_sentence_and_a_code(
    error: BaseException,
    code: int,
    sentence: str,
    fails: Callable[[BaseException], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fails(error)
    assert exit_code(["doctor"]) == code
    shown = capsys.readouterr()
    assert shown.err.lstrip("\n") == f"kdelta: {sentence}\n"
    assert not shown.out
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert exit_code(["doctor"]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert max(map(len, lines)) <= 50
    assert " ".join(map(str.strip, lines)) == f"kdelta: {sentence}"


def test_bug_is_one_sentence_and_a_traceback_only_on_request(
    fails: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    fails(ZeroDivisionError("division by zero"))
    assert exit_code(["doctor"]) == cli_main.EXIT_BUG
    quiet = capsys.readouterr().err
    assert quiet.startswith("kdelta: this is a bug: ZeroDivisionError: division by zero;")
    assert quiet.count("\n") == 1
    assert exit_code(["--verbose", "doctor"]) == cli_main.EXIT_BUG
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.fixture(autouse=True)
def _quiet_again() -> object:
    """--verbose changes the package's logger, which outlives a test."""
    handlers, level = list(cli_main.log.handlers), cli_main.log.level
    yield None
    cli_main.log.handlers[:] = handlers
    cli_main.log.setLevel(level)


def test_verbose_logs_the_commands_that_are_run(tmp_path: Path) -> None:
    (tmp_path / "ccache").symlink_to("/bin/true")
    assert "\n$ ccache --version\n" in kdelta("--verbose", "doctor", PATH=str(tmp_path)).stderr
    assert "$ ccache" not in kdelta("doctor", PATH=str(tmp_path)).stderr


def test_a_warning_is_wrapped_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    notes = cli_main._Notes()
    for text in ("7.2 " * 30, "7.2 " * 30, "7.1"):
        notes.emit(logging.LogRecord("kdelta", logging.WARNING, "", 0, text, (), None))
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), max(map(len, lines)) <= 80) == (3, True)


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("pipe", 141, b""),
        ("/dev/full", 3, b"kdelta: standard output takes no more: no space left on device;"),
    ],
)
def test_output_that_nobody_takes_is_at_most_one_sentence(
    place: str, code: int, said: bytes
) -> None:
    if place == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(place, os.O_WRONLY)
    with os.fdopen(writer, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-c", START, "--help"], stdout=nobody, stderr=subprocess.PIPE,
            check=False, timeout=60,
        )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert done.stderr.count(b"\n") == bool(said)


@pytest.mark.parametrize(
    ("shell", "words", "code", "said"),
    [
        (">&-", "--help", 3, "kdelta: standard output is closed for writing; "),
        ("<&- >&- 2>&-", "--help", 3, ""),
        ("<&-", "show nothing", 2, "no run"),
        ("2>&-", "show nothing", 2, ""),
        ("2>/dev/full", "show nothing", 2, ""),
        ("2>/dev/full", "--nothing", 2, ""),
        ("2>&-", "--help", 0, "Usage"),
        (">/dev/full 2>&1", "--help", 3, ""),
        ("1</etc/passwd", "--help", 3, "kdelta: standard output is closed for writing; "),
        ("; ulimit -n 16", "show nothing", 2, "no run"),
    ],
)
def test_streams_and_limits_are_one_sentence(
    shell: str, words: str, code: int, said: str, tmp_path: Path
) -> None:
    script = f'exec {shell}; exec "$@"' if ";" not in shell else f'{shell[2:]}; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-c", START, *words.split()],
        capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
        env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert said in (done.stdout if code == 0 else done.stderr)
    assert "bug" not in done.stderr


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        ("check x.patch --base 6.17 --tolerance nan", {}, "'nan' is no number"),
        ("judge x --alpha-percent nan", {}, "'nan' is no number"),
        ("bisect releases x --good 1 --bad 2 --step-percent inf", {}, "not in the range"),
        *(("show x", {"KDELTA_RESULTS_MIB": text}, "KDELTA_RESULTS_MIB: not a number of MiB")
          for text in ("", "-1", "nan", "9" * 4400, "\u0663")),
        ("show x", {"COLUMNS": "9" * 5000}, "no runs yet"),
        ("kernels show file:~nosuchuser/x", {}, "nobody here has this home"),
        ("workload export kdelta.h -o /dev/null", {}, "is there, and is no plain file"),
        ("host add x ssh://root@h --on no/lab.toml", {}, "No such file or directory"),
        ("site -", {}, "standard output takes only text"),
    ],
)  # fmt: skip
def test_a_bad_value_is_one_sentence(words: str, environment: dict[str, str], said: str) -> None:
    done = kdelta(*words.split(), **environment)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_exit_codes_of_errors_are_the_documented_ones() -> None:
    def family(kind: type[KdeltaError]) -> set[int]:
        return {kind.exit_code}.union(*(family(child) for child in kind.__subclasses__()))

    documented = {line.split()[0] for line in cli_main.EPILOG.splitlines() if line.startswith("  ")}
    assert {str(code) for code in family(KdeltaError)} <= documented


def test_the_version_names_what_decides_a_count() -> None:
    from kdelta.guests import qemu

    first, digests, used = kdelta("--version").stdout.splitlines()
    assert first.startswith("kdelta ")
    assert qemu.plugin_digest()[:16] in digests
    code = cache.digest(*(path.read_bytes() for path in data.code()))[:16]
    assert used.startswith(f"code {code}, QEMU {qemu.PINNED}, Python {sys.version.split()[0]}, ")
