# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of an import: which there are, what names them, their bytes and their JSON, bounded."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from kdelta.errors import SpecError
from kdelta.files import given
from kdelta.imports.record import SourceFile
from kdelta.printable import quoted

MAX_BYTES = 32 * 2**20  # a file
MAX_JSON = 16 * 2**20  # a value
MAX_TOTAL = 256 * 2**20  # an import
MAX_FILES = 1000
_MAX_DEPTH = 8
_RUNS = "kdelta-runs"
MAPPING = ".mapping.toml"  # how the file name of a mapping ends
_ENCODING = "give the encoding with --encoding, or leave the file out"


def found_in(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """(file, name) of all files, sorted within each path.

    Files that were given one by one and have one name are called with the folders that differ.
    Raises SpecError for too many files.
    """
    if len(paths) > MAX_FILES:
        raise SpecError(f"more than {MAX_FILES} files", action="import a part of them")
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise SpecError("it is named twice", place=str(twice), action="name it once")
    found: list[tuple[Path, str]] = []
    # os.path's does not raise for a path that this user may not look at: loading it says why.
    alone = [path for path in paths if not os.path.isdir(path)]  # noqa: PTH112
    for path in paths:
        label = path.name or path.resolve().name
        if path in alone:
            found.append((path, _told_apart(path, alone)))
        else:
            inside = sorted(islice(_walk(path, 0), MAX_FILES + 1))
            found += [(file, f"{label}/{file.relative_to(path).as_posix()}") for file in inside]
        if len(found) > MAX_FILES:
            cause = f"more than {MAX_FILES} files"
            raise SpecError(cause, place=str(path), action="import a part of them")
    return found


def _told_apart(path: Path, others: Sequence[Path]) -> str:
    parts = path.absolute().parts
    alike = [other.absolute().parts for other in others if other.name == path.name]
    alike = [other for other in alike if other != parts]
    for count in range(1, len(parts)):
        if all(other[-count:] != parts[-count:] for other in alike):
            return "/".join(parts[-count:])
    return path.name


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Plain files below a folder, without mappings and kdelta's runs; links are not followed."""
    if depth > _MAX_DEPTH:
        cause = f"more than {_MAX_DEPTH} folders deep"
        raise SpecError(cause, place=str(folder), action="import a part of it")
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        cause = f"it cannot be read: {error.strerror}"
        raise SpecError(cause, place=str(folder), action="check the path") from error
    for entry in entries[: MAX_FILES + 1]:
        if entry.is_dir(follow_symlinks=False):
            if entry.name != _RUNS:
                yield from _walk(Path(entry.path), depth + 1)
        elif entry.name.startswith(".") or entry.name.endswith(MAPPING):
            continue
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def labels_of(names: Sequence[str]) -> list[str]:
    """The arm of each file, where nothing in the file names one.

    Files of one folder: their names without the ending (.json, not the .16 of 6.16).  Files of
    several folders: the first folder in which their paths differ; its files are runs of one arm.
    """
    folders = [name.split("/")[:-1] for name in names]
    if len({*map(tuple, folders)}) > 1:
        for depth in range(max(map(len, folders))):
            parts = [folder[depth] if depth < len(folder) else "" for folder in folders]
            if len({*parts}) > 1 and all(parts):
                return parts
    bases = [name.rpartition("/")[2] for name in names]
    cut = [base.rpartition(".") for base in bases]
    stems = [
        stem if stem and ending.isalpha() else base
        for base, (stem, _, ending) in zip(bases, cut, strict=True)
    ]
    return stems if len({*stems}) == len(stems) else bases


def load(path: Path, name: str, encoding: str = "utf-8") -> SourceFile:
    """A file with its text.  Raises SpecError."""
    data = given(path, MAX_BYTES, "check the path, or import a part of it")
    if not name.encode(errors="replace").decode() == name:
        raise SpecError("its name is no UTF-8", place=name, action="rename it")
    digest, text = hashlib.sha256(data).hexdigest(), decoded(data, name, encoding)
    return SourceFile(name=name, sha256=digest, size=len(data), text=text)


def decoded(data: bytes, name: str, encoding: str = "utf-8") -> str:
    """The text of a file, with an optional byte order mark and no NUL.  Raises SpecError."""
    try:
        text = data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except LookupError as error:
        cause = f"no encoding of text is called {quoted(encoding)}"
        action = "there are utf-8, latin-1, cp1252, utf-16 and others that Python knows"
        raise SpecError(cause, place="--encoding", action=action) from error
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        line, byte = 1 + data.count(b"\n", 0, start), start - data.rfind(b"\n", 0, start)
        place = f"{name}: line {line}, byte {byte}"
        raise SpecError(f"not text in {encoding.upper()}", place=place, action=_ENCODING) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        cause = "it holds a NUL character"
        raise SpecError(cause, place=f"{name}: line {line}", action=_ENCODING)
    return text


def parsed_json(text: str, name: str, line: int = 1, *, as_written: bool = False) -> Any:
    """What a JSON text says; as_written: numbers are text, 6.10 is not 6.1.  Raises SpecError."""
    # Not msgspec: of a name that stands twice it takes the last without a word.
    number: dict[str, Any] = {"parse_float": str, "parse_int": str} if as_written else {}
    if len(text) > MAX_JSON:
        cause = f"its JSON is larger than {MAX_JSON // 2**20} MiB"
        raise SpecError(cause, place=name, action="import a part of it")
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_unique_names, **number
        )
    except json.JSONDecodeError as error:
        place = f"{name}: line {error.lineno + line - 1}, column {error.colno}"
        raise SpecError(f"not JSON: {error.msg}", place=place, action="correct it") from error
    except RecursionError as error:
        raise SpecError("the JSON is nested too deep", place=name, action="flatten it") from error
    except ValueError as error:
        action = "write null for what is missing, and each name once"
        raise SpecError(f"not JSON that can be used: {error}", place=name, action=action) from error


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return found


def json_object(text: str, name: str) -> dict[str, Any]:
    """The object that a JSON file holds.  Raises SpecError."""
    found = parsed_json(text, name)
    if not isinstance(found, dict):
        raise SpecError("it holds no JSON object", place=f"{name}: line 1, column 1")
    return found


def below(found: Any, *keys: str) -> dict[str, Any]:
    """The object below these keys; empty where there is none."""
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
