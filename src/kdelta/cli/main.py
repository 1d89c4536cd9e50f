# SPDX-License-Identifier: GPL-2.0-or-later
"""The `kdelta` command: finds the subcommand, prints errors, owns the exit codes."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from kdelta.errors import InfraError, KdeltaError
from kdelta.printable import meant, printable

log = logging.getLogger("kdelta")

EXIT_INTERRUPTED = 130
EXIT_BUG = 70
_EXIT_MACHINE = 3
_EXIT_PIPE = 141  # what a shell shows for a program that SIGPIPE ended

# name -> (where it is, what `kdelta --help` says): the help needs to import none of them.
COMMANDS = {
    "run": ("kdelta.cli.run:run", "Measure a study, or one scenario over kernels."),
    "survey": ("kdelta.cli.survey:survey", "Count every scenario on every release."),
    "resume": ("kdelta.cli.run:resume", "Finish an interrupted run."),
    "runs": ("kdelta.cli.runs:runs", "List runs."),
    "status": ("kdelta.cli.status:status", "Show how far a run is, and who does what."),
    "show": ("kdelta.cli.show:show", "Show a run: the ladder, the verdicts, the step."),
    "report": ("kdelta.cli.report:report", "Write what a run proves as a mail or a page."),
    "site": ("kdelta.cli.site:site", "Write all runs of a lab as static pages."),
    "watch": ("kdelta.cli.watch:watch", "Count new kernels and update a site, for a crontab."),
    "gate": ("kdelta.cli.gate:gate", "Tell CI whether a kernel does more work than another."),
    "host": ("kdelta.cli.host:host", "Look at the machines that time by ssh."),
    "bundle": ("kdelta.cli.bundle:bundle", "Pack a run into one file that a stranger can check."),
    "verify": ("kdelta.cli.bundle:verify", "Check a bundle: hashes, raw counts, figures."),
    "reproduce": ("kdelta.cli.bundle:reproduce", "Measure a bundle's study here, and compare."),
    "merge": ("kdelta.cli.merge:merge", "Make one finding of several machines' bundles."),
    "coverage": (
        "kdelta.cli.coverage:coverage",
        "Show which functions the scenarios of a run executed.",
    ),
    "relevant": (
        "kdelta.cli.coverage:relevant",
        "Show which scenarios execute what a patch changes.",
    ),
    "audit": ("kdelta.cli.audit:audit", "Show the machine and page state of each trial."),
    "explain": ("kdelta.cli.show:explain", "Show which functions make two kernels differ."),
    "check": ("kdelta.cli.check:check", "Say what a patch series does to the paths it changes."),
    "ask": ("kdelta.cli.ask:ask", "Say how much of a test robot's report is path length."),
    "bisect": ("kdelta.cli.bisect:bisect", "Find the release or the commit of a change."),
    "probe": ("kdelta.cli.probe:probe", "Tell git bisect run whether a kernel is good."),
    "import": ("kdelta.cli.imports:import_command", "Store results that others published."),
    "judge": ("kdelta.cli.imports:judge", "Judge imported results by kdelta's rules."),
    "kernels": ("kdelta.cli.kernels:kernels", "List, fetch and identify kernels."),
    "build": ("kdelta.cli.build:build", "Build kernels from source, and variants of them."),
    "workloads": ("kdelta.cli.workloads:workloads", "List workloads and their scenarios."),
    "export": ("kdelta.cli.workloads:export_command", "Write a scenario's program as one C file."),
    "codegen": ("kdelta.cli.codegen:codegen", "Compare what compilers made of a function."),
    "toolchain": ("kdelta.cli.toolchain:toolchain", "List and fetch compilers."),
    "new": ("kdelta.cli.new:new", "Write a workload of your own to start from."),
    "qemu": ("kdelta.cli.qemu:qemu", "List and fetch QEMU versions."),
    "cache": ("kdelta.cli.cache:cache", "Show and bound what kdelta keeps on disk."),
    "man": ("kdelta.cli.manual:man", "Print the manual page."),
    "doctor": ("kdelta.cli.doctor:doctor", "Show what this machine can do, and what is missing."),
}

EPILOG = """\
\b
Exit codes:
  0    success
  1    the run finished, but a trial failed; the comparison asked for is INVALID;
       a bundle or a reproduction is not what it should be
  2    wrong usage, or an input file that is wrong
  3    this machine: a missing tool, no mirror, no disk space, a damaged store
  4    `kdelta gate`, `check`: nothing to fail on, but something could not be judged
  70   a bug in kdelta
  125  `kdelta probe`: this kernel cannot be judged, skip it
  128  `kdelta probe`: the question or this machine is wrong, stop
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
        """See click; a mistyped name is told what it is near to."""
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS:
            near = meant(name, COMMANDS).strip() or f"known: {', '.join(COMMANDS)}."
            ctx.fail(f"No such command '{printable(name, 80)}'; {near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _load(name: str) -> click.Command:
    module_name, _, attribute = COMMANDS[name][0].partition(":")
    try:
        command = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        log.debug("", exc_info=True)
        raise InfraError(
            f"this installation cannot load the command {name} ({error})", action="reinstall kdelta"
        ) from error
    if not isinstance(command, click.Command):
        raise TypeError(f"{COMMANDS[name][0]} is not a command")
    return command


def _print_version(ctx: click.Context, _option: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        from kdelta.cli.execution import identities

        click.echo("\n".join(identities()))
        ctx.exit()


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
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


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with a documented code; whatever fails is one sentence."""
    # Read by numpy when it is imported.  Of matrices as small as ours more threads spin, beside
    # what is timed, and are no quicker.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(_run(list(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except KdeltaError as error:
        return _fail(error.sentence(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        return _operating_system(error)
    except Exception as error:  # noqa: BLE001 - the last door: a bug, told as one sentence
        return _bug(error)
    return code


def _invoke(arguments: list[str]) -> int:
    instruction = os.environ.get("_KDELTA_COMPLETE")
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "kdelta", "_KDELTA_COMPLETE", instruction)
    try:
        with cli.make_context("kdelta", arguments) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


def _operating_system(error: OSError) -> int:
    _discard_output()
    if isinstance(error, BrokenPipeError):
        return _EXIT_PIPE
    if error.errno not in _MACHINE_ACTIONS:
        return _bug(error)
    words = (error.strerror or str(error)).lower()
    sentence = f"{error.filename}: {words}" if error.filename else words
    return _fail(f"{sentence}; {_MACHINE_ACTIONS[error.errno]}", _EXIT_MACHINE)


_MACHINE_ACTIONS = {
    errno.ENOSPC: "free some space, or move the cache with XDG_CACHE_HOME",
    errno.EDQUOT: "free some space, or move the cache with XDG_CACHE_HOME",
    errno.EROFS: "use a directory that can be written",
    errno.EACCES: "use a directory that you may write, or change its permissions",
    errno.EPERM: "use a directory that you may write, or change its permissions",
}


def _discard_output() -> None:
    """When stdout takes no more, send what is left nowhere: it would fail aloud at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _bug(error: Exception) -> int:
    if log.isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    advice = "run it again as `kdelta --verbose ...` and report what that prints"
    return _fail(f"this is a bug: {type(error).__name__}: {error}; {advice}", EXIT_BUG)


def _fail(sentence: str, code: int) -> int:
    """Print one sentence on stderr; the code, to be returned."""
    one_line = " ".join(sentence.split()).rstrip(".")
    click.echo(f"kdelta: {one_line}.", err=True)
    return code
