# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of one run each, put below each other: what their paths say becomes columns.

6.16.12/run-1.log, 6.16.12/run-2.log, 6.17.3/run-1.log ... are one table with the columns `folder`
and `run`; kernel-6.16-boot1.csv has `name` and `boot`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import msgspec

from kdelta.errors import SpecError
from kdelta.foreign.arms import is_version, side
from kdelta.foreign.plain_tables import Plain
from kdelta.foreign.record import Contents, Line, SourceFile

_TURN = re.compile(
    r"(?P<name>.*?)"
    r"(?:[-_. #]*(?<![A-Za-z])"
    r"(?P<word>reboot|boot|run|rep|round|iteration|iter|trial|sample|pass|r|b)[-_ #]*"
    r"|(?P<cut>[-_ #]))?"
    r"(?P<number>\d{1,6})\Z",
    re.IGNORECASE | re.DOTALL,
)
_TURN_FIRST = re.compile(  # run0_stats
    r"(?P<word>reboot|boot|run|rep|round|iteration|iter|trial|sample|pass)[-_ #]?"
    r"(?P<number>\d{1,6})[-_ .](?P<name>[A-Za-z][A-Za-z_-]*)\Z",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r"(?P<name>.*[A-Za-z]|(?:[A-Za-z][\w-]*\.)*[^.]*[A-Za-z]\w*\.)(?P<number>\d{1,4})\Z", re.DOTALL
)
# The columns of what the paths say where they differ.
FOLDER, NAME, ROUND, KERNEL = "folder", "name", "round", "kernel"
# What they are called where the files have columns of these names.
_OWN = {FOLDER: "file folder", NAME: "file name"}
STACKED = (FOLDER, NAME, *_OWN.values())
_VERSION = re.compile(r"(?<![A-Za-z0-9.])v?[2-9]\.\d{1,2}(?:\.\d+)*(?:-rc\d+)?(?![A-Za-z0-9.])")
_ENDS_IN_KERNEL = re.compile(
    r"(?:[2-9]\.\d{1,2}(?:\.\d+)*-rc\d+|(?:\A|[^A-Za-z0-9.]|linux|kernel|v|k)[2-9]\.\d{1,2}(?:\.\d+)*)\Z",
    re.IGNORECASE,
)
_BOOTS = ("boot", "reboot", "b")


@dataclass(frozen=True, slots=True)
class StackedFile:
    """One file of a stack: its number among the sources, its name and its table."""

    number: int
    name: str
    shown: Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Several files as one table.  origins: (number, name, line) of each of its lines, from 1."""

    source: SourceFile
    origins: tuple[tuple[int, str, int], ...]
    doubts: tuple[str, ...] = ()

    def placed(self, contents: Contents) -> Contents:
        """Contents whose readings say which file they come from, and which line in it."""
        readings = tuple(
            msgspec.structs.replace(
                item, source=self.origins[item.line - 1][0], line=self.origins[item.line - 1][2]
            )
            for item in contents.readings
        )
        published = tuple(
            replace(one, source=self.origins[one.line - 1][0], line=self.origins[one.line - 1][2])
            for one in contents.published
        )
        return replace(contents, readings=readings, published=published)

    def blamed(self, error: SpecError) -> NoReturn:
        """Raise an error on a line of the stack as one on the line of its file."""
        found = re.match(re.escape(self.source.name) + r": line (\d+)", error.place)
        if found and 0 < int(found[1]) <= len(self.origins):
            _, name, line = self.origins[int(found[1]) - 1]
            place = f"{name}: line {line}{error.place[found.end() :]}"
            raise SpecError(error.cause, place=place, action=error.action) from error
        raise error


def stacked(parts: Sequence[StackedFile]) -> Stack:
    """The files below each other; a column that one lacks is empty there."""
    told = _told([part.name for part in parts])
    columns = tuple(dict.fromkeys(name for part in parts for name in part.shown.columns))
    told = {_OWN.get(key, key) if key in columns else key: cells for key, cells in told.items()}
    extra = [name for name in told if name not in columns]
    lines: list[Line] = []
    origins: list[tuple[int, str, int]] = []
    for at, part in enumerate(parts):
        index = {name: place for place, name in enumerate(part.shown.columns)}
        for line in part.shown.lines:
            cells = [line.cells[index[name]] if name in index else "" for name in columns]
            lines.append(
                Line(number=len(lines) + 1, cells=(*(told[name][at] for name in extra), *cells))
            )
            origins.append((part.number, part.name, line.number))
    first = parts[0].name
    common = first.partition("/")[0] if "/" in first else ""
    suffix = first.rpartition("/")[2].rpartition(".")[2]
    return Stack(
        source=SourceFile(
            name=f"{common}/*.{suffix}" if common else f"*.{suffix}",
            sha256="",
            size=0,
            columns=(*extra, *columns),
            lines=tuple(lines),
        ),
        origins=tuple(origins),
        doubts=tuple(dict.fromkeys(text for part in parts for text in part.shown.doubts)),
    )


def repeats(names: Sequence[str]) -> bool:
    """True when at least two files differ in nothing but the number of a run."""
    told = _told(names)
    apart = [key for key in told if key not in ("boot", "round")]
    return len(apart) < len(told) and len(
        set(zip(*(told[key] for key in apart), strict=True))
    ) < len(names)


def of_boots(names: Sequence[str]) -> bool:
    """True when files differ in nothing but the number of a boot, and say so: boot1, boot2."""
    return list(_told(names)) == ["boot"]


def of_paths(names: Sequence[str]) -> bool:
    """True when paths differ in several parts, none of which tells each file: base/node0/a.txt."""
    told = _told(names)
    parts = [each for key, each in told.items() if key not in ("boot", ROUND)]
    return len(parts) > 1 and all(len(set(each)) < len(names) for each in parts)


def of_grid(names: Sequence[str]) -> bool:
    """True when names of files are arms times settings: mmap_old, fork_old, mmap_new, fork_new."""
    return _grid([_stem(name) for name in names]) is not None


def _grid(stems: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """(arms, the rest of each name), where every arm is there with every rest, several of both."""
    cut = [_arm_within(stem) for stem in stems]
    if None in cut:
        return None
    pairs = [one for one in cut if one]
    several = [len(set(part)) > 1 for part in zip(*pairs, strict=True)]
    whole = len({arm for arm, _ in pairs}) * len({rest for _, rest in pairs})
    if not (several and all(several)) or len(set(pairs)) < whole:
        return None
    return [arm for arm, _ in pairs], [rest for _, rest in pairs]


def _by_version(stems: Sequence[str]) -> list[str]:
    """The versions of names that differ in nothing else and do not begin with one: redis-6.16."""
    if all(is_version(stem) for stem in stems):
        return []
    cut = [
        (found[0], stem.replace(found[0], "")) if found else ("", stem)
        for stem in stems
        for found in [_VERSION.search(stem)]
    ]
    alone = len({rest for _, rest in cut}) == 1 and len({version for version, _ in cut}) > 1
    return [version for version, _ in cut] if alone and all(version for version, _ in cut) else []


def _arm_within(stem: str) -> tuple[str, str] | None:
    """The version, or the word of an old or new arm, in the name of a file, and the rest."""
    found = _VERSION.search(stem)
    if found is None:
        words = [one for one in re.finditer(r"[^-_ ]+", stem) if side(one[0])]
        found = words[0] if len(words) == 1 else None
    if found is None:
        return None
    rest = f"{stem[: found.start()]} {stem[found.end() :]}".strip("-_ ")
    return found[0], rest


def crossed(names: Sequence[str]) -> bool:
    """True when files of the same names, several, lie in each of several folders."""
    inside: dict[str, set[str]] = {}
    for name in names:
        folder, _, base = name.rpartition("/")
        inside.setdefault(folder, set()).add(base)
    every = list(inside.values())
    return len(every) > 1 and len(every[0]) > 1 and all(each == every[0] for each in every)


def _told(names: Sequence[str]) -> dict[str, list[str]]:
    """What the paths say where they differ: folders, the name of the file, and a number."""
    folders = [name.split("/")[:-1] for name in names]
    found: dict[str, list[str]] = {}
    for depth in range(max(map(len, folders))):
        level = [folder[depth] if depth < len(folder) else "" for folder in folders]
        turns = [_TURN.fullmatch(part) for part in level]
        words = {(one["word"] or "").lower() for one in turns if one and not one["name"]}
        if len(set(level)) > 1 and all(turns) and len(words) == 1 and words != {""}:
            key = "boot" if words <= {*_BOOTS} else ROUND
            if key not in found:  # boot-0, boot-1 within each folder
                found[key] = [one["number"] for one in turns if one]
                continue
        if len(set(level)) > 1:
            found[_free(FOLDER, found)] = level
    stems = [_stem(name) for name in names]
    cuts = [_cut(stem) for stem in stems]
    if not all(number for _, number, _ in cuts):
        cuts = _counted(["/".join(folder) for folder in folders], stems)
    bare = [name for name, _, _ in cuts]
    if grid := _grid(bare):
        found[_free(KERNEL, found)], found[_free(NAME, found)] = grid
    elif kernels := _by_version(bare):
        found[_free(KERNEL, found)] = kernels
    elif len(set(bare)) > 1:
        found[_free(NAME, found)] = bare
    numbers = [number for _, number, _ in cuts]
    if len(set(numbers)) > 1:
        boots = all(word.lower() in _BOOTS for _, _, word in cuts)
        found[_free("boot" if boots else ROUND, found)] = numbers
    return found


def _counted(folders: Sequence[str], stems: Sequence[str]) -> list[tuple[str, str, str]]:
    """pipe1, pipe2, pipe3 in each folder are runs of pipe; else stems are whole, as 6.16-rc1 is."""
    found = [_COUNTED.match(stem) for stem in stems]
    numbers: dict[tuple[str, str], list[int]] = {}
    for folder, cut in zip(folders, found, strict=True):
        if cut:
            numbers.setdefault((folder, cut["name"]), []).append(int(cut["number"]))
    rising = [sorted(each) for each in numbers.values()]
    whole = all(
        len(each) > 1 and each[0] in (0, 1) and each == list(range(each[0], each[-1] + 1))
        for each in rising
    )
    if not all(found) or not whole or all(map(_is_candidate, stems)):
        return [(stem, "", "") for stem in stems]
    return [(cut["name"].rstrip("."), cut["number"], "") for cut in found if cut]


def _is_candidate(stem: str) -> bool:
    """True for a name that ends in a kernel's version, with rc1 or without."""
    return bool(_ENDS_IN_KERNEL.search(stem))


def _free(name: str, taken: dict[str, list[str]]) -> str:
    return name if name not in taken else f"{name} {len(taken) + 1}"


def _stem(name: str) -> str:
    return without_suffix(name.rpartition("/")[2])


def without_suffix(base: str) -> str:
    """The name of a file without .csv or .log; ebizzy-6.16 and run.3 have none."""
    stem, _, suffix = base.rpartition(".")
    return stem if stem and not suffix[:1].isdecimal() else base


def _cut(stem: str) -> tuple[str, str, str]:
    """(name, number, word) of kernel-6.16-boot1; the last number of a version is no run."""
    if first := _TURN_FIRST.fullmatch(stem):
        return first["name"], first["number"], first["word"]
    found = _TURN.fullmatch(stem)
    if found is None or not (found["word"] or found["cut"] or not found["name"]):
        return stem, "", ""
    return found["name"], found["number"], found["word"] or ""
