# SPDX-License-Identifier: GPL-2.0-or-later
"""Which objects of a kernel a patch touches: by the names of C files, by who includes a header."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache as remember
from pathlib import Path
from posixpath import dirname, normpath

from kdelta import process
from kdelta.archive.apt import Progress
from kdelta.errors import SpecError
from kdelta.source import build, git
from kdelta.source.make import Make, SourceError
from kdelta.source.tree import SourceTree, changes

MOST = 120
_GREP_S = 300.0
_GREP = ("grep", "-E", "--no-color", "--no-line-number", "--no-column", "--full-name")
_TOLD = re.compile(r'(?:\./)?([^:]+):\s*#\s*include\s*([<"])([^>"]+)[>"]')
_SEARCHED = ("include", "arch/x86/include", "include/uapi", "arch/x86/include/uapi")
_CODE = (
    "arch/x86", "block", "crypto", "fs", "init", "io_uring", "ipc", "kernel", "lib", "mm", "net",
    "security", "virt",
)  # fmt: skip
_SYSTEM_CALL = re.compile(r"__(?:x64|ia32|do|se)_sys_")
# A line at the left edge that ends no statement; in it words before "(", or a macro's first.
_MAY_DEFINE = r"^[A-Za-z_].*\(.*[^;]$"
_DEFINES = re.compile(r"(?!EXPORT)[A-Za-z_].*[^;]$")
_WORD = re.compile(r"\b\w+(?=\s*\()|(?<=[A-Z\d]\()\w+")
# Programs that the build runs, which must not be a stranger's.
_PROGRAMS = ("scripts/", "tools/", "usr/", "certs/", "samples/")
_HUNK = re.compile(r"@@ -(\d+)")
_CHANGED = re.compile(r"[+-](?!\+\+|--)\s*(?!/[*/]|\*|\s)\S")  # a line that is more than a comment
_NO_CODE = re.compile(r"Documentation/.*|MAINTAINERS|CREDITS|.*\.(?:rst|txt)|\.\w+")


class NotTransplantedError(SpecError):
    """The patch has to be built as a whole kernel; the text says which part of it and why."""


def cannot(why: str, otherwise: str = "") -> NotTransplantedError:
    """The error for a patch of which a part cannot be transplanted.  otherwise: what else to do."""
    return NotTransplantedError(
        f"the patch cannot be put into the kernel: {why}",
        action=f"{otherwise}build the whole kernel: tree:deb:RELEASE+PATCH",
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


@remember
def check_source(base: SourceTree, patched: SourceTree) -> tuple[str, ...]:
    """The files that a patch changes.  Raises NotTransplantedError for what its text shows alone,
    before anything is compiled: other kinds of files, new ones, functions of boot.
    """
    found = changes(base, patched)
    check(tuple(found))
    for name, status in found.items():
        if name.endswith(".c") and status != "M":
            raise cannot(f"{name} is {'a new file' if status == 'A' else 'removed'}")
    lines, old = list[str](), 0
    words = ("diff-tree", "-p", "-U0", "--no-renames", base.tree, patched.tree, "--", "*.c")
    for row in git.run(*words, borrowed=patched.objects or base.objects).stdout.splitlines():
        if row.startswith("--- a/"):
            lines = (base.read(row.removeprefix("--- a/")) or b"").decode().splitlines()
        elif match := _HUNK.match(row):
            old = int(match[1])
        elif _CHANGED.match(row) and (function := _of_boot(lines[:old])):
            raise cannot(f"{function}() runs while the kernel boots")
    return tuple(found)


def _of_boot(lines: Sequence[str]) -> str:
    """The function of boot that the last of these lines of a C file is in, or ""."""
    begin = next((at for at in reversed(range(len(lines))) if lines[at][:1] in ("{", "}")), -1)
    if begin < 0 or not lines[begin].startswith("{"):
        return ""
    first = begin
    while first and re.match(r"[\s\w].*[\w,)*]$", lines[first - 1]):
        first -= 1
    head = " ".join(lines[first:begin])
    named = re.search(r"(\w+)\s*\(", head)
    return named[1] if named and re.search(r"\b__(?:init|exit|meminit)\b", head) else ""


def touched(files: Sequence[str], source: Path, *, some: bool = False) -> dict[str, bool]:
    """The objects that are made of files: name -> True where the image has to have it.

    source: the tree before the patch.  some: of more than MOST not all will be made.
    Raises NotTransplantedError for more, else.
    """
    code = [name for name in files if name.endswith(".c")]
    headers = [name for name in files if name.endswith(".h") and (source / name).exists()]
    includes = _includes(source, all_kinds=bool(headers))
    included = {name for names in includes.values() for name in names}
    users = including([*code, *headers], includes)
    of_assembly = [name for name in users if name.endswith(".S")]
    every = (name for name in (*code, *users) if name not in of_assembly)
    own = [name for name in every if name not in included or _is_made(source / name)]
    found = {f"{name[:-2]}.o": name in code for name in own}
    for name in set(code) - set(own):
        if len(users := including([name], includes)) == 1:
            found[f"{users[0][:-2]}.o"] = True
    if len(found) > MOST:
        if some:
            return found
        why = f"{len(found)} objects include what it changes, more than {MOST}"
        raise cannot(why, "name scenarios, which say what runs: kdelta run or check; or ")
    if of_assembly:
        raise cannot(f"what it changes is included by {of_assembly[0]}, which is no C file")
    return found


def _is_made(path: Path) -> bool:
    """True for a C file of which kbuild makes an object, and not only what includes it."""
    named = re.compile(rf"(?<![\w-]){re.escape(path.stem)}\.o\b")
    places = (folder / name for folder in path.parents[:2] for name in ("Makefile", "Kbuild"))
    return any(named.search(place.read_text()) for place in places if place.exists())


def defining(functions: Iterable[str], source: Path, commit: str = "") -> list[str]:
    """The objects of C files that may define functions, by the looks of their lines; sorted.

    commit: of the repository at source, whose work tree is then not looked at.  What a macro or a
    header defines is not found, and some of the files are of other machines.
    """
    return sorted(set[str]().union(*definers(functions, source, commit).values()))


def plain(name: str) -> str:
    """The name of a function as its source has it."""
    return _SYSTEM_CALL.sub("", name.partition(".")[0])


def definers(functions: Iterable[str], source: Path, commit: str = "") -> dict[str, set[str]]:
    """`defining` for each function, by its plain name."""
    names = set(map(plain, functions))
    found: dict[str, set[str]] = {}
    for folders in (_CODE, ("drivers",)):
        if not (wanted := names - found.keys()):
            break
        if commit:
            files = [f":(top,glob){folder}/**/*.c" for folder in folders]
            done = git.ask(source, *_GREP, _MAY_DEFINE, commit, "--", *files)
        else:
            argv = ["grep", "-rE", "--include=*.c", _MAY_DEFINE, *folders]
            done = process.run(argv, timeout=_GREP_S, cwd=source, env={"LC_ALL": "C"}, check=False)
        for line in done.stdout.splitlines():
            file, _, text = line.removeprefix(f"{commit}:").partition(":")
            if _DEFINES.match(text):
                for name in wanted.intersection(_WORD.findall(text)):
                    found.setdefault(name, set()).add(f"{file[:-2]}.o")
    return found


def whole(names: Iterable[str], source: Path) -> set[str]:
    """Objects, and those of the C files that include the source of one, for that or beside it."""
    includes = _includes(source, all_kinds=False)
    included = {name for names in includes.values() for name in names}
    found = set[str]()
    for name in names:
        file = f"{name[:-2]}.c"
        if file not in included or _is_made(source / file):
            found.add(name)
        found.update(f"{user[:-2]}.o" for user in including([file], includes))
    return found


def check_named(words: Collection[str], known: Collection[str], source: Path) -> None:
    """Raise NotTransplantedError where files of code, but for known ones, have one of these."""
    if not words:
        return
    argv = ["grep", "-rlwF", "--include=*.[chS]", *(f"-e{word}" for word in sorted(words))]
    argv += [*_CODE, "drivers", "include"]
    found = process.run(argv, timeout=_GREP_S, cwd=source, env={"LC_ALL": "C"}, check=False)
    if files := sorted({*found.stdout.split()} - {*known}):
        few = ", ".join(sorted(words)[:3])
        raise cannot(f"{files[0]}, of which nothing ran, names what is another: {few}")


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
        left += more
    return sorted(name for name in seen if not name.endswith(".h"))


def _includes(source: Path, *, all_kinds: bool) -> dict[str, list[str]]:
    """File -> the files of the tree that it may include, or the C files alone."""
    name = "" if all_kinds else r"[^>\"]*\.c[>\"]"
    argv = [
        "grep", "-rE", rf"^\s*#\s*include\s*[<\"]{name}", "--include=*.[chS]",
        "--exclude-dir=kdelta-*", "--exclude-dir=Documentation", "--exclude-dir=tools",
        "--exclude-dir=samples", ".",
    ]  # fmt: skip
    text = process.run(
        argv, timeout=_GREP_S, cwd=source, env={"LC_ALL": "C"}, check=False
    ).stdout  # grep ends with 1 where it finds nothing
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


def made(maker: Make, wanted: Mapping[str, bool], progress: Progress | None) -> None:
    """Make objects that are not there yet.  False: one that need not compile.

    A user's build has what its image has.
    """
    if maker.over or all(build.is_noted(maker.output, name) for name in wanted):
        return
    with build.making(maker) as own:
        missing = [name for name in wanted if not build.is_noted(own.output, name)]
        if named := [name for name in missing if wanted[name]]:
            own.run(named, progress=progress)
        if others := [name for name in missing if not wanted[name]]:
            # Some are of other configurations, and do not compile in this one.
            with contextlib.suppress(SourceError):
                own.run(["--keep-going", *others], steps=len(others), progress=progress)
            for name in others:
                build.note_tried(own.output, name)
