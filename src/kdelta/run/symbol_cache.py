# SPDX-License-Identifier: GPL-2.0-or-later
"""What the cache keeps of a kernel's symbols: the functions, and the plugin's file of events."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import overload

from kdelta import cache
from kdelta.arch import Arch
from kdelta.attribution.insns import events
from kdelta.attribution.symbols import Symbols, parse
from kdelta.errors import InfraError

_STARTS, _ENDS, _NAMES = "starts", "ends", "names"
_FORMAT = 4  # of what is kept: it changes when the same text gives other functions


def events_file(
    image: str, load: Callable[[], Symbols], architecture: Arch, *, every_task: bool = False
) -> Path:
    """The plugin's file events= for a kernel image, by SHA-256, from the cache or its symbols.

    every_task: count what other tasks than the workload's execute, too.
    """
    told = replace(architecture, new_tasks=()) if every_task else architecture
    key = cache.digest(image, repr(told))

    def make(folder: Path) -> None:
        (folder / "events").write_text(events(load(), told))

    return cache.entry("events", key, make) / "events"


def load(image: str, fetch: Callable[[], str]) -> Symbols:
    """Symbols of the kernel image with this SHA-256, from the cache or else from `fetch`.

    fetch returns the text of /proc/kallsyms; it is asked at most once per image.  The key is what
    the image is, not what its guest says of itself.  Raises GuestError when the text is unusable.
    """

    def make(folder: Path) -> None:
        _write(parse(fetch()), folder)

    return _read(cache.entry("symbols", f"{image}-{_FORMAT}", make))


def _write(symbols: Symbols, folder: Path) -> None:
    """Files that are read at once: 160,000 lines take a quarter of a second to parse."""
    names = [name.encode() for name in symbols.names]
    (folder / _STARTS).write_bytes(_little(array("Q", symbols.starts)))
    (folder / _ENDS).write_bytes(_little(array("Q", accumulate(map(len, names)))))
    (folder / _NAMES).write_bytes(b"".join(names))


def _read(folder: Path) -> Symbols:
    """Addresses as little-endian words, where each name ends, and names.  Raises InfraError."""
    starts = _words((folder / _STARTS).read_bytes())
    names = _Names((folder / _NAMES).read_bytes(), _words((folder / _ENDS).read_bytes()))
    if len(names) != len(starts):
        raise InfraError(
            "the cached symbols are damaged", place=str(folder), action="kdelta cache clear symbols"
        )
    return Symbols(starts, names)


class _Names(Sequence[str]):
    """Names in a row, each made a text when it is asked for: a trial asks for some hundred."""

    def __init__(self, text: bytes, ends: array[int]) -> None:
        """ends: of each name, in the text."""
        self._text = text
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(self._text)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        return self._text[self._ends[at - 1] if at else 0 : self._ends[at]].decode()


def _little(words: array[int]) -> bytes:
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def _words(data: bytes) -> array[int]:
    words: array[int] = array("Q")
    words.frombytes(data)
    if sys.byteorder == "big":
        words.byteswap()
    return words
