# SPDX-License-Identifier: GPL-2.0-or-later
"""The manual page: every command and option is in it, and groff has nothing to say about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kdelta import process
from kdelta.cli.main import COMMANDS, cli
from kdelta.cli.manual import page

ZSH = 'eval "$(_KDELTA_COMPLETE=zsh_source kdelta)"'


def every_option(command: click.Command, name: str) -> set[str]:
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        inner = [command.get_command(context, each) for each in command.list_commands(context)]
        return {flag for one in inner if one for flag in every_option(one, name)}
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    return {flag for option in options for flag in option.opts}


def test_every_command_and_option_is_told() -> None:
    text = page(cli).replace(r"\-", "-")
    for name in COMMANDS:
        assert re.search(rf'^\.SS "kdelta {name} ', text, re.MULTILINE), name
    for flag in every_option(cli, "kdelta"):
        assert flag in text


@pytest.mark.skipif(process.which("groff") is None, reason="groff is not installed")
def test_groff_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kdelta.1"
    file.write_text(page(cli))
    done = process.run(["groff", "-man", "-Tutf8", "-ww", "-rCHECKSTYLE=3", str(file)], timeout=60)
    assert done.stderr == ""
    assert "bash_source kdelta" in done.stdout
    assert 'eval "$(_KDELTA' in done.stdout


@pytest.mark.parametrize(
    ("shell", "script"),
    [
        ("bash", 'eval "$(_KDELTA_COMPLETE=bash_source kdelta)"; complete -p kdelta'),
        (
            "zsh",
            f"autoload -U compinit; compinit -D; {ZSH}; print -r -- $_comps[kdelta]",
        ),
        ("fish", '_KDELTA_COMPLETE=fish_source kdelta | source; complete -C "kdelta surv"'),
    ],
)
def test_completion_works_as_the_manual_says(shell: str, script: str, tmp_path: Path) -> None:
    if process.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    printed = page(cli).replace(r"\(dq", '"').replace(r"\-", "-")
    assert f"_KDELTA_COMPLETE={shell}_source kdelta" in printed
    kdelta = tmp_path / "kdelta"
    start = "from kdelta.cli.main import main; main()"
    kdelta.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n')
    kdelta.chmod(0o755)
    done = subprocess.run(
        [shell, "-c", script],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"bash": "_kdelta_completion", "zsh": "_kdelta_completion", "fish": "survey"}[
        shell
    ] in done.stdout
