# SPDX-License-Identifier: GPL-2.0-or-later
"""One object of a kernel, compiled again as kbuild did it: for a variant, no boot.

kbuild saves the command line of every object (.NAME.o.cmd).  It is repeated here with another
output; files that a variant changes come from a folder that is searched before the source.  What
kbuild does to the object afterwards (objtool) is left out.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kdelta import process
from kdelta.errors import BuildError, InfraError, SpecError
from kdelta.source.build import saved_command
from kdelta.source.make import isolated
from kdelta.toolchains import Toolchain

_COMPILE_S = 300.0
_OBJECT = re.compile(r"(?:[A-Za-z0-9_.-]+/)+[A-Za-z0-9_.-]+\.o")
_ERROR = re.compile(r"^(\S+?:\d+:(?:\d+:)? (?:fatal )?error: .+)$", re.MULTILINE)
_MAX_DEPENDENCIES = 20_000
_MOST_LISTED = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFolder:
    """A build directory of kbuild (O=) in which an object was already made, and its source."""

    source: Path
    out: Path
    toolchain: Toolchain


def check_object(name: str) -> str:
    """An object's path in a tree ("mm/mincore.o").  Raises SpecError for anything else."""
    if not _OBJECT.fullmatch(name) or ".." in PurePosixPath(name).parts:
        cause = f"{name[:80]!r} is not an object of a kernel"
        raise SpecError(cause, action="name one: mm/mincore.o")
    return name


def compile_object(
    folder: BuildFolder, name: str, target: Path, changed: Mapping[str, bytes]
) -> Path:
    """Compile an object into `target`, changed: path in the source -> content.  BuildError."""
    shadow = target / "shadow"
    for path, content in changed.items():
        file = shadow / _within(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    # The other files of a folder shall include the variant's by #include "...".
    for place in {_within(path).parent for path in changed}:
        beside = folder.source / place
        for file in beside.iterdir() if beside.is_dir() else ():
            if file.is_file() and not (shadow / place / file.name).exists():
                (shadow / place / file.name).symlink_to(file)
    made = target / PurePosixPath(name).name
    argv = command(folder, name, shadow if changed else None)
    listed = target / "depends"
    argv = isolated([*argv, f"-Wp,-MMD,{listed}", "-o", str(made)])
    done = process.run(argv, timeout=_COMPILE_S, cwd=folder.out, check=False)
    if done.returncode or not made.exists():
        error = _ERROR.search(done.stderr)
        why = error[1][:300] if error else done.last_words
        cause = f"{name} does not compile with {folder.toolchain.name}: {why}"
        raise BuildError(cause, action="see all of it with --verbose")
    _check_shadowed(listed, folder, changed)
    return made


def command(folder: BuildFolder, name: str, shadow: Path | None) -> list[str]:
    """kbuild's saved command line for an object without its output; raises InfraError."""
    # What follows ";" handles the finished object.
    words = shlex.split(saved_command(folder.out, name).split(" ; ")[0])
    if words[:1] == ["ccache"]:
        words = words[1:]
    if len(words) < 4 or words[-2] != name or words[-3] != "-o" or "-c" not in words:
        raise InfraError(f"kbuild's saved command for {name} is not understood")
    unit = words[-1]
    words = [word for word in words[:-3] if not word.startswith("-Wp,-M")]
    if shadow is None:
        return [*words, unit]
    return _shadowed(words, unit, folder, shadow)


def _shadowed(words: Sequence[str], unit: str, folder: BuildFolder, shadow: Path) -> list[str]:
    """The command with the variant's files before the source's.  Paths may be relative to out."""
    result = []
    for word in words:
        inside = _below(word.removeprefix("-I"), folder) if word.startswith("-I") else None
        if inside is not None:
            result.append(f"-I{shadow / inside}")
        result.append(word)
    place = _below(unit, folder)
    if place is None:
        raise InfraError(f"{unit} is not in the source", place=str(folder.source))
    # A file's own folder is searched first for #include "...": now that is the shadow's.
    for top in (shadow, folder.source):
        result += ["-iquote", str(top / place.parent)]
    result.append(f"-fmacro-prefix-map={shadow}/=")
    return [*result, str(shadow / place) if (shadow / place).exists() else unit]


def _below(path: str, folder: BuildFolder) -> Path | None:
    """A path as seen from the source; None when it is elsewhere, or made in the build folder."""
    whole = Path(os.path.normpath(folder.out / path))
    if whole.is_relative_to(folder.out) or not whole.is_relative_to(folder.source):
        return None
    return whole.relative_to(folder.source)


def _within(path: str) -> Path:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise SpecError(f"a variant changes {path!r}, which is not in the source")
    return Path(pure)


def _check_shadowed(listed: Path, folder: BuildFolder, changed: Mapping[str, bytes]) -> None:
    """Raise when the compiler read a file of the source that the variant changes."""
    with listed.open(errors="replace") as stream:
        text = stream.read(_MOST_LISTED)
    words = text.replace("\\\n", " ").split()[:_MAX_DEPENDENCIES]
    read = {str(found) for word in words if (found := _below(word, folder)) is not None}
    for path in sorted(read & set(changed)):
        cause = f"{path} is included by its place beside another file, so that a change of it needs"
        action = "build both trees and compare their images: kdelta codegen FUNCTION --kernels"
        raise SpecError(f"{cause} a full build", action=action)
