# SPDX-License-Identifier: GPL-2.0-or-later
"""Files put in place whole or not at all, read within bounds, what they hold, and their digests."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import stat
import sys
import tempfile
import threading
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kdelta.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

_BLOCK = 1 << 20
_LIST = ".files.json"
_MOST_LIST = 64 << 20  # bytes of it; a QEMU's has 0.3 MB
_MOST_TOML = 1 << 20
_MOST_PARTS, _MOST_LINES, _MOST_HEADER = 50, 100_000, 20_000  # of a mail
_MAKING = threading.Lock()
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_T = TypeVar("_T")
_DEEP_KEY = re.compile(r"""(?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')(?:[ \t]*+\.[ \t]*+"""
                       r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')){32}""")  # fmt: skip
_LINK = -1  # stands for the size of a symbolic link, whose target stands for its digest


def decoded(content: bytes | memoryview | str, kind: type[_T]) -> _T:
    """The value of a type that JSON holds.  Raises MsgspecError, ValueError.
    msgspec 0.22 crashes where two threads meet a type at once: one at a time makes its decoder.
    """
    with _MAKING:
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.json.Decoder(kind)
        decoder = _DECODERS[kind]
    try:
        found: _T = decoder.decode(content)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error
    return found


def toml_of(text: str) -> dict[str, Any]:
    """What a TOML text holds, maybe a stranger's.  Raises TOMLDecodeError.

    tomllib keeps each beginning of a dotted key, so that one of thousands of parts takes the
    memory of the machine.
    """
    if len(text) > _MOST_TOML:
        raise tomllib.TOMLDecodeError(f"it has more than {_MOST_TOML >> 20} MiB")
    if _DEEP_KEY.search(text):
        raise tomllib.TOMLDecodeError("a key has too many parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from error
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # int() refuses thousands of digits
        raise tomllib.TOMLDecodeError("a number has too many digits") from error


def mail_of(content: bytes) -> Message:
    """The mail that a text is, maybe a stranger's.  Raises ValueError.

    Python's parser compares each line with the boundaries of all parts that it is in, and takes
    the square of a header's length to find its parameters.
    """
    from email import message_from_bytes
    from email.message import Message
    from email.policy import compat32

    left = iter(range(_MOST_PARTS))

    class Part(Message):
        def __init__(self, policy: Any = compat32) -> None:
            if next(left, None) is None:
                raise ValueError("the mail has too many parts")
            super().__init__(policy)

        def set_raw(self, name: str, value: Any) -> None:
            if len(value) > _MOST_HEADER:
                raise ValueError("a header of the mail is too long")
            super().set_raw(name, value)

    if content.count(b"\n") > _MOST_LINES:
        raise ValueError("the mail has too many lines")
    return message_from_bytes(content, Part)


def is_full(error: OSError) -> bool:
    """True when the disk, or what this user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class NotPlainError(OSError):
    """A file that is not to be read: a pipe, a device, a folder, or one that is too large."""


class _Present(io.FileIO):
    """A file that says what it has now, and is not waited for: some of the kernel's never end."""

    def readinto(self, buffer: Any) -> int:
        got = super().readinto(buffer)
        if got is None:
            raise NotPlainError(errno.EAGAIN, "it gives nothing to read now", str(self.name))
        return got


@contextlib.contextmanager
def opened(path: Path, most: int = sys.maxsize) -> Iterator[io.BufferedReader[_Present]]:
    """A file of at most so many bytes, maybe a stranger's, to be read.  Raises NotPlainError, also
    while it is read, and OSErrors.
    """
    _check_plain(path.stat(), path, most)  # opening a device may already do something
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    with io.BufferedReader(_Present(path, opener=lambda name, _: os.open(name, flags))) as stream:
        _check_plain(os.fstat(stream.fileno()), path, most)
        yield stream


def content(path: Path, most: int) -> bytes:
    """What such a file holds.  Raises NotPlainError and OSErrors."""
    with opened(path, most) as stream:
        facts = os.fstat(stream.fileno())
        found = stream.read(most + 1)
        later = os.fstat(stream.fileno())
    _check_plain(facts, path, most, size=len(found))
    if (later.st_size, later.st_mtime_ns) != (facts.st_size, facts.st_mtime_ns):
        raise NotPlainError(errno.EBUSY, "it changes while it is read", str(path))
    return found


def given(path: Path, most: int, action: str = "check the path", what: str = "it") -> bytes:
    """The same of a file that a user named; what: it is.  Raises SpecError."""
    try:
        return content(path, most)
    except (OSError, ValueError) as error:  # of a NUL in the path, too
        why = f"{what} cannot be read: {words_of(error)}"
        raise SpecError(why, place=str(path), action=action) from error


def words_of(error: Exception) -> str:
    """What an error says, without a number and without the path that it was met at."""
    return getattr(error, "strerror", None) or str(error)


def _check_plain(facts: os.stat_result, path: Path, most: int, size: int = 0) -> None:
    if stat.S_ISDIR(facts.st_mode):
        raise NotPlainError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(facts.st_mode):
        raise NotPlainError(errno.EINVAL, "it is no plain file", str(path))
    if max(facts.st_size, size) > most:
        raise NotPlainError(errno.EFBIG, f"it has more than {most} bytes", str(path))


def write_aside(path: Path, content: bytes, *, lasting: bool = True) -> None:
    """Replace a file on the disk; a reader sees the old or the new, no part.  lasting: also after a
    failure of power.  Raises OSError.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            if lasting:
                os.fsync(out.fileno())
        aside.chmod(0o644)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def keep(path: Path, content: bytes) -> None:
    """Replace a file for `kept`: its SHA-256 stands before it.  Raises OSError."""
    write_aside(path, hashlib.sha256(content).digest() + content, lasting=False)


def kept(path: Path, most: int, kind: type[_T]) -> _T | None:
    """The value in such a file of at most so many bytes, None where none is whole."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        whole = memoryview(content(path, most))
        digest, packed = whole[:32], whole[32:]
        if hashlib.sha256(packed).digest() == digest:
            return decoded(packed, kind)
    return None


def sync(path: Path) -> None:
    """Bring a file to the disk, or the names in a folder (a rename is one).  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Bring a folder to the disk with all below it.  Raises OSError."""
    for path in (*(path for path in folder.rglob("*") if not path.is_symlink()), folder):
        sync(path)


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with opened(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_digests: dict[tuple[int, ...], str] = {}
_contents: dict[tuple[int, ...], bytes] = {}


def _version(seen: os.stat_result) -> tuple[int, ...]:
    # Of the times only this one cannot be set back; renaming the folder around a file leaves it.
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_ctime_ns


def digest_of(path: Path, facts: os.stat_result | None = None, *, filled: bool = False) -> str:
    """The same, read once while the file is not written to.  filled: that of `filled_sha256`."""
    key = *_version(facts or path.stat()), filled
    if key not in _digests:
        _digests[key] = filled_sha256(path) if filled else sha256_of(path)
    return _digests[key]


def read_once(path: Path) -> bytes:
    """The bytes of a small file, read once in this process for as long as it is not written to."""
    key = _version(path.stat())
    if key not in _contents:
        _contents[key] = path.read_bytes()
    return _contents[key]


def filled_sha256(path: Path) -> str:
    """SHA-256 (hexadecimal) of the MiB of a file that are not all zeros, with their numbers: holes,
    most of a guest's memory, are not read, and it does not matter where they are.
    """
    total = hashlib.sha256()
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        at = 0
        while at < size:
            try:
                at = os.lseek(stream.fileno(), at, os.SEEK_DATA) // _BLOCK * _BLOCK
            except OSError as error:
                if error.errno != errno.ENXIO:  # only a hole is left
                    raise
                break
            block = os.pread(stream.fileno(), _BLOCK, at)
            if block.strip(b"\0"):
                total.update((at // _BLOCK).to_bytes(8, "little") + block)
            at += _BLOCK
        total.update(size.to_bytes(8, "little"))
    return total.hexdigest()


# -- folders with a list of their files -----------------------------------------------------------


class Listed(msgspec.Struct, frozen=True):
    """A file below a folder: path, bytes, SHA-256; stored: bytes on the disk of one with holes,
    whose SHA-256 is `filled_sha256`.
    """

    path: str
    size: int
    sha256: str
    stored: int | None = None


def make_list(folder: Path) -> None:
    """Write the list of a folder's files into it, on the disk."""
    rows = [_row(path, folder) for path in sorted(folder.rglob("*")) if not is_folder(path)]
    write_aside(folder / _LIST, msgspec.json.encode(rows))


def listed(place: Path) -> tuple[Listed, ...]:
    """The files that were listed in a folder; none when it has no list that can be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return decoded(content(place / _LIST, _MOST_LIST), tuple[Listed, ...])
    return ()


def is_whole(place: Path, read: tuple[str, ...]) -> bool:
    """True when all listed files are as they were.  read: patterns of those compared by SHA-256."""
    rows = listed(place)
    try:
        return bool(rows) and all(
            _is_same(f"{place}/{row.path}", row, any(fnmatchcase(row.path, n) for n in read))
            for row in rows
        )
    except OSError:
        return False


def looked_at(place: Path) -> bytes:
    """A folder's list, and what a write to its files changes.  Raises OSError, MsgspecError."""
    told = content(place / _LIST, _MOST_LIST)
    rows = decoded(told, tuple[Listed, ...])
    facts = [os.lstat(f"{place}/{row.path}") for row in rows]
    seen = [(one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in facts]
    return msgspec.json.encode((hashlib.sha256(told).hexdigest(), seen))


def path_of(text: str | Path) -> Path:
    """A path that a user wrote, with the home that its ~ or ~NAME means.  Raises SpecError."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        action = "write the path without ~"
        raise SpecError("nobody here has this home", place=str(text), action=action) from error


def called(path: Path) -> str:
    """A path as runs and pages have it, which others read: from this user's home, else from the
    folder where the command is given.
    """
    home = os.environ.get("HOME") or "/"
    if home != "/" and path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    near = os.path.relpath(path)
    return near if near.startswith("../") else f"./{near}"


def is_folder(path: Path) -> bool:
    """True for a folder itself, and not for a link to one."""
    return path.is_dir() and not path.is_symlink()


def _row(path: Path, top: Path) -> Listed:
    name = str(path.relative_to(top))
    if path.is_symlink():
        return Listed(name, _LINK, str(path.readlink()))
    facts = path.stat()
    stored = facts.st_blocks * 512
    holes = stored < facts.st_size
    digest = digest_of(path, facts, filled=holes)
    return Listed(name, facts.st_size, digest, stored if holes else None)


def _is_same(path: str, row: Listed, read: bool) -> bool:  # noqa: FBT001
    if row.size == _LINK:
        return str(Path(path).readlink()) == row.sha256
    facts = os.lstat(path)  # a Path for each of a thousand files would take longest
    if facts.st_size != row.size or not stat.S_ISREG(facts.st_mode):
        return False
    return not read or digest_of(Path(path), facts, filled=row.stored is not None) == row.sha256
