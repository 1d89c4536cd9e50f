# SPDX-License-Identifier: GPL-2.0-or-later
"""Options of kernel configurations by what they do to code: the table `options.toml`.

A configuration is recorded as NAME=VALUE of the options that the table names.  Records of format 1
hold fewer (`_FIRST`); what was not recorded of both of two kernels is no difference between them.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import msgspec

FORMAT = 2
_FIRST = re.compile(
    r"(?:PARAVIRT|LTO_|CC_OPTIMIZE_|PREEMPT|DEBUG_(?!INFO_|KERNEL)|KASAN|KCSAN|KMSAN|UBSAN|CFI"
    r"|INIT_ON_|PAGE_TABLE_CHECK|SLUB_DEBUG|RANDSTRUCT_)\w*"
    r"|DEBUG_INFO_BTF|PAHOLE_VERSION|KFENCE|HZ"
)
_LINE = re.compile(r"^CONFIG_(\w+)=(.*)$|^# CONFIG_(\w+) is not set$", re.MULTILINE)
_OFF = ("n", "m")  # of a module's code none is the kernel's own


class OptionKind(StrEnum):
    """What an option does to code that runs; options.toml says more."""

    INSTRUMENT = "instrument"
    MODEL = "model"
    FEATURE = "feature"
    NONE = "none"

    @property
    def decides(self) -> bool:
        """True when a step between kernels that differ in it may be the option's."""
        return self in (OptionKind.INSTRUMENT, OptionKind.MODEL)


class Option(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the table."""

    names: tuple[str, ...]
    kind: OptionKind
    adds: str
    source: str
    code: str = ""
    flag: str = ""
    absent: Literal["n", "source"] = "n"
    heavy: bool = False


class Pattern(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the code of options is known."""

    name: str
    called: str
    handlers: tuple[str, ...] = ()
    returns: bool = True
    calls: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    entry: str = ""
    arch: tuple[str, ...] = ()


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    option: tuple[Option, ...]
    renamed: dict[str, str]
    code: tuple[Pattern, ...]


@cache
def _table() -> _Table:
    content = Path(__file__).with_suffix(".toml").read_bytes()
    return msgspec.toml.decode(content, type=_Table)


@cache
def patterns() -> dict[str, Pattern]:
    """All patterns of code by name."""
    return {pattern.name: pattern for pattern in _table().code}


@cache
def _rows() -> tuple[tuple[re.Pattern[str], Option], ...]:
    return tuple((matching(row.names), row) for row in _table().option)


@cache
def _beginnings() -> tuple[str, ...]:
    """Of all names, up to a wildcard: of four thousand options of a configuration few fit."""
    return tuple(re.split(r"[*?[]", name)[0] for row in _table().option for name in row.names)


@cache
def matching(globs: tuple[str, ...]) -> re.Pattern[str]:
    """What matches a name that one of these fits."""
    return re.compile("|".join(map(fnmatch.translate, globs)) or r"(?!)")


@cache
def option(name: str) -> Option | None:
    """The row of an option, by its name of now or before; None: the table has none."""
    name = _table().renamed.get(name, name)
    if not name.startswith(_beginnings()):
        return None
    return next((row for names, row in _rows() if names.match(name)), None)


def flag(name: str) -> str:
    """The compiler's flag that leaves an option out of an object; "" for none."""
    row = option(name)
    return row.flag if row else ""


def recorded(configuration: str) -> tuple[str, ...]:
    """What is recorded of a configuration's text: NAME=VALUE of what is set, sorted.

    Options whose absence says something are recorded as "n", too.
    """
    found = []
    for name, value, unset in _LINE.findall(configuration):
        row = option(name or unset)
        if row is None or row.kind is OptionKind.NONE:
            continue
        if name and value not in _OFF:
            found.append(f"{name}={value}")
        elif row.absent == "source":
            found.append(f"{name or unset}=n")
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class OptionDifference:
    """An option in which two configurations differ."""

    name: str
    old: str
    new: str

    @property
    def said(self) -> str:
        """ "+UBSAN_BOUNDS", "-PREEMPT_VOLUNTARY", "HZ 250 -> 1000"."""
        words = {("n", "y"): f"+{self.name}", ("y", "n"): f"-{self.name}"}
        return words.get((self.old, self.new), f"{self.name} {self.old} -> {self.new}")

    @property
    def decides(self) -> bool:
        """True when a step may be the option's."""
        row = option(self.name)
        return row is not None and row.kind.decides

    @property
    def code(self) -> str:
        """The pattern that its code is known by; "" for none."""
        row = option(self.name)
        return row.code if row else ""


@lru_cache(maxsize=1 << 12)
def differences(
    old: tuple[str, ...], new: tuple[str, ...], formats: tuple[int, int] = (FORMAT, FORMAT)
) -> tuple[OptionDifference, ...]:
    """In what two recorded configurations differ; nothing when one is not known.

    formats: of the two records.
    """
    if not old or not new:
        return ()
    before, after = _values(old), _values(new)
    found = []
    for name in {**before, **after}:
        row = option(name)
        by_source = row is not None and row.absent == "source"
        if by_source and not (name in before and name in after):
            continue
        one = OptionDifference(name, before.get(name, "n"), after.get(name, "n"))
        if one.old != one.new and (formats[0] == formats[1] or _FIRST.fullmatch(name)):
            found.append(one)
    return tuple(found)


def _values(options: tuple[str, ...]) -> dict[str, str]:
    pairs = (one.split("=", 1) for one in options)
    return {_table().renamed.get(name, name): value for name, value in pairs}


def heavy(options: tuple[str, ...]) -> tuple[str, ...]:
    """Names of those that make a kernel one for debugging."""
    found = ((name, option(name)) for name, value in _values(options).items() if value != "n")
    return tuple(name for name, row in found if row and row.heavy)
