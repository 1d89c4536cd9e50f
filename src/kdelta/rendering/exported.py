# SPDX-License-Identifier: GPL-2.0-or-later
"""A workload's whole program as one C file that builds alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

from kdelta import data
from kdelta.errors import InfraError
from kdelta.workload import Workload, text_of

SPDX = "// SPDX-License-Identifier: GPL-2.0-or-later\n"
_INCLUDE = '#include "kdelta.h"\n'
_PREFACE = """\
{name}.c - {title}

{description}

Path:   {path}
Source: {mail}

Build:  gcc -O2 -static {name}.c -o {name}
Run:    ./{name} {first}
        as root, or part of the page state stays unknown; --list lists all

Prints the page state before and after, and the time of each phase.
The workload itself is at the end; what comes before is kdelta.h.
Written by: kdelta workload export {name}
"""


def exported_source(workload: Workload) -> str:
    """The program with kdelta.h in place of its #include: one C file that builds alone."""
    header = source(data.directory("guest") / "kdelta.h")
    if workload.declared:
        return text_of(workload.program).replace(_INCLUDE, header)
    program = source(workload.program).removeprefix(SPDX)
    if program.count(_INCLUDE) != 1:
        raise InfraError(f"lacks its line {_INCLUDE.strip()}", place=workload.program.name)
    shared = header.partition("\n")[2]  # its own licence line is at the top already
    return f"{SPDX}{_preface(workload)}\n{shared}\n{program.replace(_INCLUDE, '')}"


def source(path: Path) -> str:
    """The text of a C file of kdelta's.  Raises InfraError when the installation is damaged."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InfraError(
            f"cannot be read: {error}", place=str(path), action="reinstall kdelta"
        ) from error


def _preface(workload: Workload) -> str:
    text = _PREFACE.format(
        name=workload.name,
        title=workload.title,
        description=textwrap.fill(workload.description, 74),
        path=workload.path,
        mail=textwrap.fill(workload.mail, 66).replace("\n", "\n        "),
        first=workload.scenarios[0].name,
    )
    return "\n".join(["/*", *(f" * {line}".rstrip() for line in text.splitlines()), " */"])
