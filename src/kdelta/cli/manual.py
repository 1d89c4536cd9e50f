# SPDX-License-Identifier: GPL-2.0-or-later
"""The manual page, which `kdelta --man` prints: written from the options themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version

import click

_NAMED = re.compile(r"\s+")
_COMPLETION = {
    "bash": 'eval "$(_KDELTA_COMPLETE=bash_source kdelta)"     in ~/.bashrc',
    "zsh": 'eval "$(_KDELTA_COMPLETE=zsh_source kdelta)"      in ~/.zshrc',
    "fish": "_KDELTA_COMPLETE=fish_source kdelta | source      in ~/.config/fish/config.fish",
}


def page(group: click.Command) -> str:
    """The page of all commands as roff, in macros of man(7)."""
    if not isinstance(group, click.Group):
        raise TypeError("the manual is that of a group of commands")
    lines = [f'.TH KDELTA 1 "" "kdelta {version("kdelta")}" "User Commands"']
    lines += [".SH NAME", f"kdelta \\- {_text(group.help or '').rstrip('.')}"]
    lines += [".SH SYNOPSIS", ".B kdelta", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]"]
    lines += [".SH OPTIONS", *_options(group, click.Context(group, info_name="kdelta"))]
    lines += [".SH COMMANDS", *_commands(group, "kdelta")]
    lines += [".SH EXIT STATUS", ".nf", *_lines((group.epilog or "").partition(":")[2]), ".fi"]
    lines += [".SH SHELL COMPLETION", ".nf", *_lines("\n".join(_COMPLETION.values())), ".fi"]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, parent: str) -> Iterator[str]:
    context = click.Context(group, info_name=parent)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        own = click.Context(command, info_name=name)
        whole = f"{parent} {name}"
        if isinstance(command, click.Group):
            yield from _heading(whole, ["COMMAND"], command)
            yield from _commands(command, whole)
            continue
        pieces = [piece for piece in command.collect_usage_pieces(own) if piece]
        yield from _heading(whole, pieces, command)
        yield from _options(command, own)


def _heading(name: str, pieces: list[str], command: click.Command) -> Iterator[str]:
    yield f'.SS "{_text(name)} {_text(" ".join(pieces))}"'
    for number, paragraph in enumerate(_paragraphs(command.help or "")):
        if number:
            yield ".PP"
        yield _text(paragraph)
    if command.epilog:
        yield from (".PP", ".nf", *_lines(command.epilog), ".fi")


def _paragraphs(text: str) -> list[str]:
    return [part for part in text.replace("\b", "").split("\n\n") if part.strip()]


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if record is not None:
            yield from (".TP", rf"\fB{_text(record[0])}\fR", _text(record[1]) or r"\&")


def _lines(text: str) -> list[str]:
    lines = [_escaped(line.replace("\b", "")) for line in text.strip("\n").split("\n")]
    return [line or r"\&" for line in lines]


def _text(text: str) -> str:
    """Words of one paragraph on one line."""
    return _escaped(_NAMED.sub(" ", text.replace("\b", "").replace("\f", "")).strip())


def _escaped(text: str) -> str:
    """Text that roff takes as it is: no line begins with a control character."""
    plain = (
        text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("'", r"\(aq")
    )
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain
