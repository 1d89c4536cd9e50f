# SPDX-License-Identifier: GPL-2.0-or-later
"""The manual page, which `kdelta --man` prints: written from the options themselves."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

import click

_COMPLETION = r"""
eval "$(_KDELTA_COMPLETE=bash_source kdelta)"     in ~/.bashrc
eval "$(_KDELTA_COMPLETE=zsh_source kdelta)"      in ~/.zshrc
_KDELTA_COMPLETE=fish_source kdelta | source      in ~/.config/fish/config.fish
"""
_ESCAPES = str.maketrans({"\\": r"\e", "-": r"\-", '"': r"\(dq", "'": r"\(aq", "\b": "", "\f": ""})


def page(group: click.Group) -> str:
    """The page of all commands as roff, in macros of man(7)."""
    lines = [
        f'.TH KDELTA 1 "" "kdelta {version("kdelta")}" "User Commands"',
        *(".SH NAME", f"kdelta \\- {_text(group.help or '').rstrip('.')}"),
        *(".SH SYNOPSIS", ".B kdelta", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]"),
        *(".SH OPTIONS", *_options(group, click.Context(group, info_name="kdelta"))),
        *(".SH COMMANDS", *_commands(group, "kdelta")),
        *(".SH EXIT STATUS", *_verbatim((group.epilog or "").partition(":")[2])),
        *(".SH SHELL COMPLETION", *_verbatim(_COMPLETION)),
    ]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, parent: str) -> Iterator[str]:
    context = click.Context(group, info_name=parent)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        own, whole = click.Context(command, info_name=name), f"{parent} {name}"
        inner = command if isinstance(command, click.Group) else None
        usage = "COMMAND" if inner else " ".join(filter(None, command.collect_usage_pieces(own)))
        yield f'.SS "{_text(whole)} {_text(usage)}"'
        for number, paragraph in enumerate((command.help or "").replace("\b", "").split("\n\n")):
            yield from (".PP", _text(paragraph)) if number else (_text(paragraph),)
        if command.epilog:
            yield from (".PP", *_verbatim(command.epilog))
        yield from _commands(inner, whole) if inner else _options(command, own)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.get_params(context):
        if record := option.get_help_record(context):
            yield from (".TP", rf"\fB{_text(record[0])}\fR", _text(record[1]) or r"\&")


def _verbatim(text: str) -> Iterator[str]:
    yield ".nf"
    yield from (_escaped(line) or r"\&" for line in text.strip("\n").split("\n"))
    yield ".fi"


def _text(text: str) -> str:
    """Words of one paragraph on one line."""
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    """Text that roff takes as it is: no line begins with a control character."""
    plain = text.translate(_ESCAPES)
    return rf"\&{plain}" if plain.startswith(".") else plain
