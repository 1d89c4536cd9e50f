# SPDX-License-Identifier: GPL-2.0-or-later
"""The `kdelta` command: finds the subcommand, prints errors, owns the exit codes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import io
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.kinds import KINDS
from kdelta.printable import meant, printable, quoted

log = logging.getLogger("kdelta")

EXIT_INTERRUPTED = 130
EXIT_BUG = 70
_EXIT_USAGE, _EXIT_MACHINE = 2, 3
_EXIT_PIPE = 141  # what a shell shows for a program that SIGPIPE ended


# name -> (where it is in kdelta.cli, its line in `kdelta --help`): the help imports none of them.
COMMANDS = {
    "run": ("run:run", "Measure a study, or one scenario over kernels."),
    "why": ("why:why", "Say since which release a path is longer, and by what."),
    "survey": ("run:survey", "Count every scenario on every release."),
    "resume": ("check:resume", "Finish an interrupted run."),
    "runs": ("show:runs", "List runs, and show how far one is."),
    "show": ("show:show", "Show a run: the ladder, the verdicts, the step."),
    "explain": ("explain:explain", "Show which functions make two kernels differ."),
    "audit": ("show:audit", "Show the machine and page state of each trial."),
    "coverage": ("explain:coverage", "Show which functions scenarios executed."),
    "codegen": ("explain:codegen", "Compare what compilers made of a function."),
    "commit": ("check:commit", "Say what one commit does to the paths that execute it."),
    "check": ("check:check", "Say what a patch series does to the paths it changes."),
    "bisect": ("bisect:bisect", "Find the release or the commit of a change."),
    "gate": ("show:gate", "Tell CI whether a kernel does more work than another."),
    "report": ("report:report", "Write what a run proves as a mail."),
    "bundle": (
        "bundle:bundle",
        "Pack a run for a stranger; check, reproduce and merge such files.",
    ),
    "site": ("report:site", "Write all runs as static pages."),
    "import": ("imports:import_command", "Store results that others published."),
    "judge": ("imports:judge", "Judge imported results by kdelta's rules."),
    "ask": ("imports:ask", "Say how much of a test robot's report is path length."),
    "host": ("machines:host", "Look at the machines that time by ssh."),
    "kernels": ("kernels:kernels", "List, fetch, identify, edit and build kernels."),
    "workload": ("workload:workload", "List, show, export and start workloads."),
    "tools": ("kernels:tools", "List compilers and QEMU versions; fetch QEMU."),
    "cache": ("kernels:cache", "Show and bound what kdelta keeps on disk."),
    "doctor": ("machines:doctor", "Show what this machine can do, and what is missing."),
}
# The help of a command ends in its own, that of a group in those of its subcommands.
EXAMPLES = """\
kdelta run mprotect:shared_dirty_full_toggle_64m --kernels 6.16,6.17
kdelta why munmap 6.16 7.2
kdelta survey --kernels 6.12..7.2 --only 'fault:*'
kdelta resume latest
kdelta runs list
kdelta runs status latest
kdelta show latest --json
kdelta explain latest 6.16 6.17 --top 5
kdelta audit latest
kdelta coverage latest
kdelta codegen mincore_pte_range --kernels 6.16,6.17
kdelta codegen mm/mincore.o:mincore_pte_range --source deb:6.17.8
kdelta commit f822a9a81a31 --tree ~/linux
kdelta check series.mbox --base ~/linux@v6.17
kdelta bisect releases mincore:no_thp_pte_scan_64m --good 6.16 --bad 7.2
kdelta bisect commits unmap:munmap --tree ~/linux --good v6.18 --bad v6.19
kdelta gate latest --against 6.16 --kernel 6.17 --junit
kdelta report latest -o report.txt
kdelta bundle make latest -o run.tar
kdelta bundle verify run.tar
kdelta bundle reproduce run.tar
kdelta bundle merge run.tar other.tar
kdelta site public/
kdelta import times.csv --replicate boot --old 6.16 --new 6.17
kdelta judge latest
kdelta ask report.mbox --kernels 6.16,6.17
kdelta host add bench1 ssh://root@bench1
kdelta host doctor bench1
kdelta host install bench1 6.17
kdelta host release bench1
kdelta kernels list --flavour generic
kdelta kernels fetch 6.16 6.17
kdelta kernels show 6.17
kdelta kernels fetch tree:deb:6.17.8+config=min
kdelta kernels source 6.17
kdelta workload list
kdelta workload show mprotect:shared_dirty_full_toggle_64m
kdelta workload export mprotect:shared_dirty_full_toggle_64m -o toggle.c
kdelta workload new mine
kdelta tools compiler list
kdelta tools qemu list
kdelta tools qemu fetch bookworm
kdelta cache show
kdelta cache clear checkpoints
kdelta doctor
"""

EPILOG = """\
\b
Exit codes:
  0    success
  1    the run finished, but a trial failed; the comparison asked for is
       INVALID; a bundle or a reproduction is not what it should be
  2    wrong usage, or an input file that is wrong
  3    this machine: a missing tool, no mirror, no disk space, a damaged run;
       every trial of a run failed
  4    `kdelta gate`, `check`: nothing to fail on, but something could not be
       judged; `kdelta ask`, `commit`: the counts decide nothing
  70   a bug in kdelta
  130  interrupted
"""


class LazyGroup(click.Group):
    """A group whose subcommands are imported when they are called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one subcommand; raises InfraError when this installation lacks it."""
        return _load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click; a mistyped name is said what it is near to."""
        name = args[0]
        known = name.startswith("-") or name in COMMANDS
        if not known and not ctx.resilient_parsing:
            words = map(str.split, EXAMPLES.splitlines())
            below = {each[1]: " ".join(each[1:3]) for each in words if each[2:3] == [name]}
            near = meant(name, COMMANDS).strip() or f"known: {', '.join(COMMANDS)}."
            near = f"did you mean {' or '.join(below.values())}?" if below else near
            ctx.fail(f"No such command '{printable(name, 80)}'; {near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _load(name: str) -> click.Command:
    module_name, _, attribute = COMMANDS[name][0].partition(":")
    try:
        module = importlib.import_module(f"kdelta.cli.{module_name}")
        command: click.Command = getattr(module, attribute)
    except (ImportError, AttributeError) as error:
        log.debug("", exc_info=True)
        cause = f"this installation cannot load the command {name} ({error})"
        raise InfraError(cause, action="reinstall kdelta") from error
    _add_examples(command, f"kdelta {name}")
    return command


def _add_examples(command: click.Command, path: str) -> None:
    own = [f"  {line}" for line in EXAMPLES.splitlines() if f"{line} ".startswith(f"{path} ")]
    if own:
        command.epilog = "\n".join(("\b", "Example:" if len(own) == 1 else "Examples:", *own))
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            _add_examples(inner, f"{path} {name}")


def _version(ctx: click.Context, _option: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        from kdelta.cli.run import identities

        click.echo("\n".join(identities()))
        ctx.exit()


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version, and the digests of what decides a count, and exit.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log each command that is run to stderr.")
def cli(*, verbose: bool) -> None:
    """Find, prove and explain performance changes between Linux kernels."""
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)
    for kind in KINDS.values():
        _ = kind.limit_bytes  # a bad setting ends a command before it measures anything


class _Notes(logging.Handler):
    """Warnings, in lines as wide as a page; one that comes again at once is said once."""

    _last = ""

    def emit(self, record: logging.LogRecord) -> None:
        from kdelta.cli.printing import say

        text = record.getMessage()
        if text != self._last:
            say(text, err=True)
        self._last = text


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with a documented code; whatever fails is one sentence."""
    # Read by numpy when it is imported.  Of matrices as small as ours more threads spin, beside
    # what is timed, and are no quicker.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.unraisablehook = _interrupted_again
    logging.lastResort = _Notes(logging.WARNING)
    for name in ("COLUMNS", "LINES"):
        if len(os.environ.get(name, "")) > 9:  # int() refuses thousands of digits, in rich, too
            del os.environ[name]
    try:
        _fill_streams()
        code = _invoke(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except KdeltaError as error:
        code = _fail(error.sentence(), error.exit_code, error.lines)
    except MemoryError:
        code = _fail(f"memory ran out; {_MACHINE_ACTIONS[errno.ENOMEM]}", _EXIT_MACHINE)
    except (KeyboardInterrupt, click.Abort) as error:
        next_ = f"{error}" or "the same command goes on with what is downloaded, built and counted"
        code = _fail(f"interrupted; {next_}", EXIT_INTERRUPTED)
    except OSError as error:
        code = _operating_system(error)
    except Exception as error:  # noqa: BLE001 - the last door: a bug, told as one sentence
        code = _bug(error)
    _drain(sys.stdout, sys.stderr)
    sys.exit(code)


def _drain(*streams: TextIO) -> None:
    """Write what streams still have; one that takes no more loses it, or would fail at exit."""
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _interrupted_again(lost: Any) -> None:
    """An interrupt that came in a callback, as imports have them, which Python only prints."""
    if lost.exc_type is KeyboardInterrupt:
        us = threading.main_thread().ident
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # here it would be lost, too
                threading.Timer(1, signal.pthread_kill, (us, signal.SIGINT)).start()
                return
    else:
        sys.__unraisablehook__(lost)


def _fill_streams() -> None:
    """Open closed streams, or what is opened next would be one.  Raises InfraError without a place
    for what is printed.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for number in {1, 2} - {("stdin", "stdout", "stderr").index(name) for name in closed}:
        os.set_blocking(number, True)  # or what a pipe does not take at once would be lost
    for name in closed:
        number = ("stdin", "stdout", "stderr").index(name)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, number)
        if nowhere != number:
            os.close(nowhere)
        setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    if "stdout" in closed or fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        action = "leave it open, or give it a file: > FILE"
        raise InfraError("standard output is closed for writing", action=action)


def _invoke(arguments: list[str]) -> int:
    instruction = os.environ.get("_KDELTA_COMPLETE")
    if instruction:
        from click.shell_completion import shell_complete

        try:
            return shell_complete(cli, {}, "kdelta", "_KDELTA_COMPLETE", instruction)
        except (LookupError, ValueError):  # of variables that no shell sets
            return 0
    _check_words(arguments[: [*arguments, "--"].index("--")])
    try:
        with cli.make_context("kdelta", arguments) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        told = io.StringIO()
        error.show(told)
        _tell(told.getvalue())
        return error.exit_code
    return 0


def _check_words(words: Sequence[str]) -> None:
    """Raise SpecError for an empty word, and InfraError without a folder to be in."""
    if empty := next((at for at, word in enumerate(words) if not word.rpartition("=")[2]), None):
        word, action = words[empty], "leave it out, or say what is meant"
        what = (
            f"what {quoted(word)} sets" if word else f"the word behind {quoted(words[empty - 1])}"
        )
        raise SpecError(f"{what} is empty", action=action)
    try:
        Path.cwd()
    except OSError as error:
        action = "go to another with: cd"
        raise InfraError("the folder in which this began is gone", action=action) from error


def _operating_system(error: OSError) -> int:
    _drain(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return _EXIT_PIPE
    action = _MACHINE_ACTIONS.get(error.errno or 0)
    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    if error.filename is None and last.f_globals["__name__"] in (__name__, "click.utils"):
        sentence = f"standard output takes no more: {(error.strerror or str(error)).lower()}"
        return _fail(f"{sentence}; free some, or give it another file: > FILE", _EXIT_MACHINE)
    if error.errno == errno.ENOENT and error.filename is None:  # of tempfile
        action = "give one that can be written with TMPDIR"
    if action is None:
        return _bug(error)
    words = (error.strerror or str(error)).lower()
    sentence = f"{str(error.filename)[:100]}: {words}" if error.filename else words
    code = _EXIT_USAGE if error.errno == errno.ENAMETOOLONG else _EXIT_MACHINE
    return _fail(f"{sentence}; {action}", code)


_NO_SPACE = "free some space, or move the cache with XDG_CACHE_HOME"
_NO_WRITE = "use a directory that you may write, or change its permissions"
_MACHINE_ACTIONS = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: "allow larger files: ulimit -f unlimited",
    errno.ENAMETOOLONG: "name a shorter path",
    errno.EROFS: "use a directory that can be written",
    errno.EACCES: _NO_WRITE,
    errno.EPERM: _NO_WRITE,
    errno.EMFILE: "allow more open files: ulimit -n 1024",
    errno.ENFILE: "end some programs, or allow more open files",
    errno.ENOMEM: "free some, or allow this process more of it: ulimit -v",
}


def _bug(error: Exception) -> int:
    if log.isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    advice = "run it again as `kdelta --verbose ...` and report what that prints"
    return _fail(f"this is a bug: {type(error).__name__}: {error}; {advice}", EXIT_BUG)


def _fail(sentence: str, code: int, lines: Sequence[str] = ()) -> int:
    """One line, but on a terminal; then what can be pasted."""
    told = f"kdelta: {' '.join(printable(sentence).split()).rstrip('.')}."
    _tell(f"{told}\n")
    with contextlib.suppress(OSError):  # whole, however long, so that a shell takes them
        click.echo("".join(f"{printable(line)}\n" for line in lines), nl=False, err=True)
    return code


def _tell(text: str) -> None:
    """Print to stderr; a terminal would break lines within words.  The exit code is said anyway."""
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            from kdelta.cli.printing import say

            say(text.removesuffix("\n"), err=True)
        else:
            click.echo(text, nl=False, err=True)
