# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as one file for strangers: a tar archive, the same bytes from the same run, and a manifest.

The archive is not compressed, so that its bytes do not depend on a library's version, and nothing
in it can be larger than it is.  What reads one trusts nothing in it: names, kinds, sizes.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from kdelta.errors import SpecError, StoreError
from kdelta.files import NotPlainError, content, opened, sha256_of, words_of
from kdelta.journal.files import MOST_BYTES, disk_errors
from kdelta.journal.run import RUNS
from kdelta.printable import printable, quoted

MANIFEST = "MANIFEST.sha256"
README = "README.txt"
RUN = "run"  # the folder of the run in it
_MOST_FILES = 50_000
_MOST_NAME = 240
_MOST_BYTES = 2 << 30
_MOST_END = tarfile.RECORDSIZE + 2 * tarfile.BLOCKSIZE  # zeros that tar itself writes
_PART = r"[A-Za-z0-9_+~=@,-][A-Za-z0-9._+~=@,-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
# Of a run's folder; what else lies there is nobody else's business.
_OF_RUN = (
    r"(run\.json|study\.toml|attempts\.json|boots\.json|(show|explain-[^/]+)\.(txt|json|csv)"
    r"|trials/\d{4,}/(result\.json|counts\.bin\.gz|workload\.txt|command\.txt|console(-\d+)?\.log))"
)
_KEPT = re.compile(_OF_RUN)
_KNOWN = re.compile(
    rf"{RUN}/{_OF_RUN}|bundle\.json|{re.escape(README)}|kernels/(?:patches|configs)/[^/]+"
    r"|(?:sources/(?:guest|plugin|workloads)|reproducers/[^/]+)/[^/]+\.(?:[ch]|toml)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One file of a bundle that is not as it should be, and how."""

    file: str
    what: str


def packed(folder: Path, pinned: Mapping[str, bytes]) -> bytes:
    """The bundle of a run with what it depended on (pinned), by name."""
    with disk_errors(folder):
        own = {f"{RUN}/{name}": content(folder / name, MOST_BYTES) for name in _of_run(folder)}
    files = {**own, **pinned}
    files[MANIFEST] = manifest(files)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(files[name]), 0o644, 0
            tar.addfile(member, io.BytesIO(files[name]))
    return archive.getvalue()


def manifest(files: Mapping[str, bytes]) -> bytes:
    """As `sha256sum --check` reads it."""
    lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)]
    return "".join(lines).encode()


def _of_run(folder: Path) -> Iterator[str]:
    if not (folder / RUNS.file).is_file():
        raise StoreError(f"not a run: it has no {RUNS.file}", place=str(folder))
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not _KEPT.fullmatch(name):
            continue
        if not stat.S_ISREG(path.lstat().st_mode):
            raise StoreError("not a file of its own, so it is no part of the run", place=str(path))
        yield name


def unpack(archive: Path, target: Path) -> None:
    """Put the files of a bundle into an empty folder, and nothing anywhere else.

    Raises SpecError for what is no bundle: links, devices, names that lead out of the folder, more
    than the archive can hold, twice the same; StoreError when the disk fails.
    """
    try:
        with opened(archive, _MOST_BYTES) as stream:
            seen = _unpacked(stream, target)
    except NotPlainError as error:
        raise _no_bundle(archive, words_of(error)) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise _no_bundle(archive, "a file in it is there twice, or is a folder, too") from error
    except (tarfile.TarError, EOFError, ValueError, ArithmeticError, RecursionError) as error:
        raise _no_bundle(archive, printable(str(error), 300)) from error
    except OSError as error:
        cause, action = f"it cannot be unpacked: {words_of(error)}", "point TMPDIR elsewhere"
        raise StoreError(cause, place=str(error.filename or target), action=action) from error
    if not {MANIFEST, f"{RUN}/{RUNS.file}"} <= seen:
        raise _no_bundle(archive, f"it lacks {MANIFEST} or {RUN}/{RUNS.file}")


def _unpacked(stream: IO[bytes], target: Path) -> set[str]:
    """The names of the files that are put there.  Raises ValueError for what no bundle has."""
    seen: set[str] = set()
    with tarfile.open(fileobj=stream, mode="r:", tarinfo=_Member) as tar:
        for member in tar:
            _check_member(member, seen)
            seen.add(member.name)
            path = target / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as out:
                shutil.copyfileobj(cast("IO[bytes]", tar.extractfile(member)), out)
        stream.seek(tar.offset)
    rest = stream.read(_MOST_END + 1)
    if len(rest) > _MOST_END or rest.strip(b"\0"):
        raise ValueError("there are bytes behind its last file")
    return seen


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """Also of what stands before a file, which tarfile reads whole."""
        found = super().frombuf(buf, encoding, errors)
        if not 0 <= found.size <= MOST_BYTES:
            raise ValueError(
                f"{quoted(found.name, _MOST_NAME)} has more than {MOST_BYTES >> 20} MiB"
            )
        return found


def _check_member(member: tarfile.TarInfo, seen: set[str]) -> None:
    """Raise ValueError for a member that no bundle has."""
    name, wrong = quoted(member.name, _MOST_NAME), ""
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        wrong = f"{name} is no plain file"
    elif len(member.name) > _MOST_NAME or not _NAME.fullmatch(member.name):
        wrong = f"{name} is no name of a file in a bundle"
    elif member.size > MOST_BYTES:
        wrong = f"{name} has more than {MOST_BYTES >> 20} MiB"
    elif len(seen) >= _MOST_FILES:
        wrong = f"it has more than {_MOST_FILES} files"
    if wrong:
        raise ValueError(wrong)


def _no_bundle(archive: Path, why: str) -> SpecError:
    cause = f"not a bundle: {why}"
    return SpecError(cause, place=str(archive), action="ask whoever sent it for it once more")


def checked(folder: Path) -> tuple[Difference, ...]:
    """What of an unpacked bundle is not as its manifest says."""
    listed, found = _listed(folder / MANIFEST)
    with disk_errors(folder):
        paths = (path for path in folder.rglob("*") if path.is_file())
        there = {path.relative_to(folder).as_posix() for path in paths}
        for name in sorted(there - {MANIFEST}):
            if name not in listed:
                found.append(Difference(file=name, what="is not in the manifest"))
            elif not _KNOWN.fullmatch(name):
                found.append(Difference(file=name, what="is no file that a bundle has"))
            elif sha256_of(folder / name) != listed[name]:
                found.append(Difference(file=name, what="has not the SHA-256 of the manifest"))
    found += [Difference(file=name, what="is missing") for name in sorted(listed.keys() - there)]
    return tuple(found)


def differing(old: Any, new: Any, place: str, by: str) -> Iterator[str]:
    """Where two values of JSON differ; by: what gives the new one."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differing(old.get(key), new.get(key), f"{place}.{key}".lstrip("."), by)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for at, pair in enumerate(zip(old, new, strict=True)):
            yield from differing(*pair, f"{place}[{at}]", by)
    elif old != new:
        yield f"{place} is {json.dumps(old)[:80]}, and is {json.dumps(new)[:80]} {by}"


def _listed(path: Path) -> tuple[dict[str, str], list[Difference]]:
    with disk_errors(path), path.open(errors="replace") as stream:
        lines = [line.rstrip("\n") for line in islice(stream, _MOST_FILES)]
    listed, faults = dict[str, str](), list[Difference]()
    for at, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in (MANIFEST, *listed):
            faults.append(Difference(file=MANIFEST, what=f"line {at} is none of a manifest"))
        else:
            listed[match[2]] = match[1]
    return listed, faults
