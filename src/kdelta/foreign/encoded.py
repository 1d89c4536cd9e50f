# SPDX-License-Identifier: GPL-2.0-or-later
"""From the bytes of a file to its text; what is no text is called what it is, with the mend."""

from __future__ import annotations

import re

from kdelta.errors import SpecError
from kdelta.foreign.unread import Unread
from kdelta.printable import quoted

_CONTROLS = re.compile(rb"[\x80-\x9f]")  # in Latin-1; letters and signs in Windows-1252
_LOOKED_AT = 65536  # bytes that tell what is no text
_CSV = "save it as CSV in the program that wrote it, and import that"
_UNPACK = "unpack it, and import what it holds"
_PRINTED = "import what was measured as text: kernel,boot,ns"
# What files begin with that are no text -> what they are, and the mend.
_NO_TEXT = (
    (rb"PK\x03\x04.*?(?:xl/|mimetypeapplication/vnd\.oasis\.opendocument\.spread)", "sheet", _CSV),
    (rb"PK\x03\x04.*?(?:word/|mimetypeapplication/vnd\.oasis\.opendocument\.text)", "text", _CSV),
    (rb"PK\x03\x04", "a zip archive", _UNPACK),
    (rb"\x1f\x8b", "packed by gzip", _UNPACK),
    (rb"\xfd7zXZ", "packed by xz", _UNPACK),
    (rb"\x28\xb5\x2f\xfd", "packed by zstd", _UNPACK),
    (rb"BZh[1-9]1AY&SY", "packed by bzip2", _UNPACK),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (rb".{257}ustar(?:\0|  \0)", "a tar archive", _UNPACK),
    (rb"\xd0\xcf\x11\xe0", "an old spreadsheet or text of an office program", _CSV),
    (rb"\{\\rtf", "a text of an office program (RTF)", "save it as plain text, and import that"),
    (rb"%PDF-", "a PDF", "copy its table into a file of its own, and import that: kernel,boot,ns"),
    (
        rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP",
        "a picture",
        "import the figures that it was drawn from: kernel,boot,ns",
    ),
    (
        rb"PERFILE2",
        "perf's own data",
        "unpack it with perf script or perf report; what can be judged is times: kernel,boot,ns",
    ),
    (rb"SQLite format 3\0", "a database of SQLite", "export the table as CSV, and import that"),
    (rb"PAR1[\x00-\x1f]", "a table of Parquet", "write it as CSV, and import that"),
    (rb"\x93NUMPY", "an array of NumPy", "write it as CSV, and import that"),
    (rb"\x7fELF", "a program", f"run it, and {_PRINTED}"),
)
# What lies beside results and holds none that could be read.
_BESIDE = ("a PDF", "a picture", "perf's own data", "a program")
_SHEETS = {
    "sheet": "a spreadsheet (a zip archive of XML)",
    "text": "a text of an office program",
}


def decoded(data: bytes, name: str, encoding: str = "utf-8", *, given: str = "") -> str:
    """The text of a file, with an optional mark, no NUL.

    given: how the user says which encoding a file has; "": by --encoding.
    Raises SpecError with what the file is instead, or which encoding would read it.
    """
    _check_text(data, name)
    try:
        text = data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except LookupError as error:
        raise SpecError(
            f"no encoding of text is called {quoted(encoding)}",
            place="--encoding",
            action="there are utf-8, latin-1, cp1252, utf-16 and others that Python knows",
        ) from error
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        byte = start - data.rfind(b"\n", 0, start)
        place = f"{name}: line {1 + data.count(bytes([10]), 0, start)}, byte {byte}"
        reading = _encoding_that_reads(data, given or "give --encoding {}")
        if getattr(error, "reason", "") == "unexpected end of data":
            cause = "it ends within a character"
            action = f"copy the file again, whole; if it is, {reading}"
        else:
            cause, action = f"not {encoding.upper()}", reading
        raise SpecError(cause, place=place, action=action) from error
    if "\0" in text:
        at = text.index("\0")
        number = text.count("\n", 0, at) + 1
        raise SpecError(
            "it holds a NUL character",
            place=f"{name}: line {number}, character {at - text.rfind(chr(10), 0, at)}",
            action=_encoding_that_reads(data, given or "give --encoding {}", wide=True),
        )
    return text


def beside(data: bytes) -> Unread | None:
    """What a file is that holds no text and no results; None for all others."""
    found = _no_text(data)
    if found is None or not found[2]:
        return None
    return Unread(cause=f"it is {found[0]}", action=found[1], kept="left out")


def _check_text(data: bytes, name: str) -> None:
    found = _no_text(data)
    if found:
        raise SpecError(f"it is {found[0]}, no text", place=name, action=found[1])


def _no_text(data: bytes) -> tuple[str, str, bool] | None:
    """(what it is, the mend, whether it may lie beside results) of a file that is no text."""
    head = data[:_LOOKED_AT]
    for mark, what, mend in _NO_TEXT:
        if re.match(mark, head, re.DOTALL):
            return _SHEETS.get(what, what), mend, what in _BESIDE
    return None


def _encoding_that_reads(data: bytes, given: str, *, wide: bool = False) -> str:
    """What to do, where an encoding reads all of it.

    wide: it is UTF-8 with NUL in it, as text in UTF-16 without a mark is.
    """
    head = data[:_LOOKED_AT]
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        names = ["utf-16"]
    elif _halves(head[::2], head[1::2]):
        names = ["utf-16-le"]
    elif _halves(head[1::2], head[::2]):
        names = ["utf-16-be"]
    else:
        names = []
    if not wide and b"\0" not in data:
        names.append("cp1252" if _CONTROLS.search(data) else "latin-1")
    for encoding in names:
        try:
            text = data.decode(encoding)
        except UnicodeError:
            continue
        if "\0" not in text:
            return f"{encoding} would read it: {given.format(encoding)}"
    return "convert it to UTF-8 text" if wide else "convert it to UTF-8"


def _halves(letters: bytes, nothing: bytes) -> bool:
    """True where one byte of two is nothing, as in Western text of two bytes a character."""
    return 8 * nothing.count(0) > 7 * len(nothing) > 0 and 0 not in letters
