# SPDX-License-Identifier: GPL-2.0-or-later
"""Which objects of a kernel a patch touches: by the names of C files, by who includes a header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from posixpath import dirname, normpath

from kdelta import process
from kdelta.errors import SpecError

MOST = 120
_GREP_S = 300.0
_TOLD = re.compile(r'(?:\./)?([^:]+):\s*#\s*include\s*([<"])([^>"]+)[>"]')
_SEARCHED = ("include", "arch/x86/include", "include/uapi", "arch/x86/include/uapi")
_CODE = (
    "arch/x86", "block", "crypto", "fs", "init", "io_uring", "ipc", "kernel", "lib", "mm", "net",
    "security", "virt",
)  # fmt: skip
_SYSTEM_CALL = re.compile(r"__(?:x64|do|se)_sys_")
# A line at the left edge that ends no statement; in it words before "(", or a macro's first.
_DEFINES = re.compile(r"(?!EXPORT)[A-Za-z_].*[^;]$")
_WORD = re.compile(r"\b\w+(?=\s*\()|(?<=[A-Z\d]\()\w+")
# Programs that the build runs, which must not be a stranger's.
_PROGRAMS = ("scripts/", "tools/", "usr/", "certs/", "samples/")
_NO_CODE = re.compile(r"Documentation/.*|MAINTAINERS|CREDITS|.*\.(?:rst|txt)|\.\w+")


class NotTransplantedError(SpecError):
    """The patch has to be built as a whole kernel; the text says which part of it and why."""


def cannot(why: str) -> NotTransplantedError:
    """The error for a patch of which a part cannot be transplanted."""
    return NotTransplantedError(
        f"the patch cannot be put into a released kernel: {why}",
        action="build the whole kernel: tree:deb:RELEASE+PATCH",
    )


def check(files: Sequence[str]) -> None:
    """Raise NotTransplantedError when a patch changes files of other kinds than C and text."""
    code = [name for name in files if not _NO_CODE.fullmatch(name)]
    for name in code:
        if name.startswith(_PROGRAMS):
            raise cannot(f"{name} is a part of programs that the build runs")
        if name.startswith("arch/") and not name.startswith("arch/x86/"):
            raise cannot(f"{name} is of another architecture")
        if not name.endswith((".c", ".h")):
            raise cannot(f"{name} is no C file")
    if not code:
        raise cannot("it changes no C file")


def touched(files: Sequence[str], source: Path) -> dict[str, bool]:
    """The objects that are made of files: name -> True where one of its own C files is changed.

    source: the tree before the patch.  Raises NotTransplantedError for more than MOST.
    """
    for name in files:
        if name.endswith(".c") and not (source / name).exists():
            raise cannot(f"{name} is a new file")
    found = {f"{name[:-2]}.o": True for name in files if name.endswith(".c")}
    headers = [name for name in files if name.endswith(".h") and (source / name).exists()]
    if headers:
        users = including(headers, _includes(source))
        if of_assembly := [name for name in users if name.endswith(".S")]:
            raise cannot(f"{headers[0]} is included by {of_assembly[0]}, which is no C file")
        for name in users:
            found.setdefault(f"{name[:-2]}.o", False)
    if len(found) > MOST:
        raise cannot(f"{len(found)} objects include what it changes, more than {MOST}")
    return found


def defining(functions: Iterable[str], source: Path) -> list[str]:
    """The objects of C files that may define functions, by the looks of their lines; sorted.

    What a macro or a header defines is not found, and some of the files are of other machines.
    """
    names = {_SYSTEM_CALL.sub("", name.partition(".")[0]) for name in functions}
    found: dict[str, set[str]] = {}
    for folders in (_CODE, ("drivers",)):
        if not (wanted := names - found.keys()):
            break
        argv = ["grep", "-rwF", "--include=*.c", *(f"-e{name}" for name in wanted), *folders]
        done = process.run(argv, timeout=_GREP_S, cwd=source, env={"LC_ALL": "C"}, check=False)
        for line in done.stdout.splitlines():
            file, _, text = line.partition(":")
            if _DEFINES.match(text):
                for name in wanted.intersection(_WORD.findall(text)):
                    found.setdefault(name, set()).add(f"{file[:-2]}.o")
    return sorted(set[str]().union(*found.values()))


def including(headers: Iterable[str], includes: Mapping[str, Sequence[str]]) -> list[str]:
    """The C and assembler files that include headers, also by others, sorted."""
    users: dict[str, set[str]] = {}
    for name, included in includes.items():
        for each in included:
            users.setdefault(each, set()).add(name)
    left, seen = list(headers), set[str]()
    while left:
        more = users.get(left.pop(), set()) - seen
        seen |= more
        left += [name for name in more if name.endswith(".h")]
    return sorted(name for name in seen if not name.endswith(".h"))


def _includes(source: Path) -> dict[str, list[str]]:
    """File -> the files of the tree that it may include."""
    argv = [
        "grep", "-rE", r"^\s*#\s*include\s*[<\"]", "--include=*.[chS]", "--exclude-dir=kdelta-*",
        "--exclude-dir=Documentation", "--exclude-dir=tools", "--exclude-dir=samples", ".",
    ]  # fmt: skip
    text = process.run(argv, timeout=_GREP_S, cwd=source, env={"LC_ALL": "C"}).stdout
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = _TOLD.match(line)
        if match and not re.match(r"arch/(?!x86/)|scripts/", match[1]):
            found.setdefault(match[1], []).extend(_places(match[1], match[2], match[3]))
    return found


def _places(name: str, quote: str, included: str) -> Iterator[str]:
    """Where an included file may lie; not all of them are there."""
    if quote == '"':
        yield normpath(f"{dirname(name)}/{included}")
    for folder in (*_SEARCHED, ".", dirname(name)):
        yield normpath(f"{folder}/{included}")
