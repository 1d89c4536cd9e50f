# SPDX-License-Identifier: GPL-2.0-or-later
"""A header that thousands of objects include: those are compiled that have what scenarios execute.

Which object has a function of the image is known when both have the same bytes there.  Candidates
are the C files that define it by the looks of their lines and, for what macros and headers define,
those of the functions around it, since the linker puts the functions of an object side by side.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock

from kdelta.archive.apt import Progress
from kdelta.disassembly import relocatable
from kdelta.disassembly.image import Image
from kdelta.source import build
from kdelta.source.make import Make
from kdelta.transplant import objects
from kdelta.transplant.proof import Listing, prove

log = logging.getLogger(__name__)

_FAR, _NEAR = 300, 2  # functions on each side of one that are asked for, and that tell objects
_ASSEMBLER = ("arch/x86/entry", "arch/x86/lib", "arch/x86/kernel", "lib/crypto/x86")
_LABELS, _LABEL_BYTES, _JUMP_BYTES = "__jump_table", 16, 5
_MARK = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[][(){};=]')
_TYPE = re.compile(r"\s*(?:(?:typedef|const|static|extern)\s+)*(?:struct|union|enum)\b[^()]*$")
_MACRO = re.compile(r"#(?:define|undef) (\w+)(.*)")
_NUMBERED = re.compile(r"(__UNIQUE_ID_\w*?)\d+\b")
_OF_ITS_OBJECT = re.compile(r"static\b|(?:extern )?inline\b|_Static_assert\b|;")


@dataclass(frozen=True, slots=True)
class FoundObject:
    """The functions of an object: their names, and where the image has which: start -> end."""

    names: frozenset[str]
    at: Mapping[int, int]

    def has(self, starts: Sequence[int]) -> bool:
        """True when one of these addresses, ascending, is in it."""
        nexts = ((bisect_left(starts, at), end) for at, end in self.at.items())
        return any(at < len(starts) and starts[at] < end for at, end in nexts)


@dataclass(eq=False, slots=True)
class ExecutedObjects:
    """What scenarios execute on a release, and the objects that have it; found when first needed.

    functions: gives their names; None: a header that too many objects include is refused.
    """

    functions: Callable[[], frozenset[str]] | None = None
    names: frozenset[str] = frozenset()
    objects: Mapping[str, FoundObject] = field(default_factory=dict)
    _touched: dict[tuple[str, ...], tuple[dict[str, bool], bool]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def touched(
        self, files: tuple[str, ...], maker: Make, image: Image, progress: Progress | None
    ) -> tuple[dict[str, bool], bool]:
        """As objects.touched; of more than objects.MOST those that have what ran, and True."""
        with self._lock:
            if files in self._touched:
                return self._touched[files]
            every = objects.touched(files, maker.source, some=self.functions is not None)
            if self.functions is None or len(every) <= objects.MOST:
                return self._touched.setdefault(files, (every, False))
            if not self.objects:
                self.names = self.functions()
                self.objects = having(maker, self.names, image, progress)
            headers = {name for name in files if name.endswith(".h")}
            read = [name for name in self.objects if headers & build.sources(maker, name)]
            found = dict.fromkeys(read, False) | {name: True for name in every if every[name]}
            said = "note: of %d objects that include what it changes %d have what scenarios execute"
            log.warning(said, len(every), len(found))
            return self._touched.setdefault(files, (found, True))

    def reached(self, executed: Collection[str], image: Image) -> ExecutedObjects | None:
        """The same with functions that ran later in objects that stayed; None where none did."""
        more = lost(set(executed) - self.names, self.objects, image) if self.objects else ()
        return ExecutedObjects(lambda: self.names.union(more)) if more else None


def having(
    maker: Make, executed: Collection[str], image: Image, progress: Progress | None
) -> dict[str, FoundObject]:
    """The objects of an image that have functions that ran, made.  Raises InfraError."""
    source = maker.source
    files = (path for folder in _ASSEMBLER for path in (source / folder).glob("*.S"))
    wanted = {f"{path.relative_to(source).with_suffix('.o')}" for path in files}
    wanted |= objects.whole(objects.defining(executed, source), source)
    found = dict[str, FoundObject]()
    while wanted:
        objects.made(maker, dict.fromkeys(sorted(wanted), False), progress)
        is_first = not found
        found |= {name: _placed(maker, name, executed, image) for name in wanted}
        known = frozenset[str]().union(*(one.names for one in found.values()))
        several = {name for name in executed if len(image.starts(name)) > 1}
        left = lost(executed, found, image) - (known - several)
        near = _beside(left, image, source) if left and is_first else set[str]()
        wanted = objects.whole(near, source) - found.keys()
    starts = sorted({start for name in executed for start in image.starts(name)})
    return {name: one for name, one in sorted(found.items()) if one.has(starts)}


def _placed(maker: Make, name: str, executed: Collection[str], image: Image) -> FoundObject:
    path = maker.output / name
    is_assembler = (maker.source / name).with_suffix(".S").exists()
    if not path.exists():  # it does not compile in this configuration
        return FoundObject(frozenset(), {})
    own = relocatable.read(path.read_bytes())
    labels = [
        (own.symbols[each.symbol].section, own.symbols[each.symbol].value + each.addend)
        for section, fields in own.relocations.items()
        if own.parts[section].name == _LABELS
        for each in fields
        if each.offset % _LABEL_BYTES == 0
    ]
    names, found, unsure = set[str](), dict[int, int](), False
    for index, symbol in enumerate(own.symbols):
        is_code = symbol.is_defined and own.parts[symbol.section].flags & relocatable.EXECUTABLE
        if is_assembler and is_code:  # no code of a header, and labels of no size
            found |= {start: start + (symbol.size or 1) for start in image.starts(symbol.name)}
        if is_assembler or not (is_code and symbol.size):
            continue
        names.add(symbol.name)
        blank = [(each.offset, relocatable.SIZES.get(each.kind, 0)) for each in own.fields(index)]
        blank += [(at - symbol.value, _JUMP_BYTES) for part, at in labels if part == symbol.section]
        code = _without(own.content(index), blank)
        for start in image.starts(symbol.name):
            if _without(image.bytes_at(start, symbol.size), blank) == code:
                found[start] = start + symbol.size
            else:
                unsure |= symbol.name in executed
    if unsure:  # its branches may be shorter ones
        proven = prove(Listing(own), image)
        sure = (at for index, at in proven.functions.items() if index not in proven.overridden)
        found |= {start: start + image.size(start) for start in sure}
    return FoundObject(frozenset(names), found)


def _without(code: bytes, blank: Iterable[tuple[int, int]]) -> bytes:
    """Code without what the linker fills."""
    left = bytearray(code)
    for at, size in blank:
        if 0 <= at < len(code):
            left[at : at + size] = bytes(len(code[at : at + size]))
    return bytes(left)


def lost(executed: Iterable[str], found: Mapping[str, FoundObject], image: Image) -> set[str]:
    """The functions of an image of which not every one by that name is in these objects."""
    ranges = {at: end for one in found.values() for at, end in one.at.items()}
    left = set()
    for name in executed:
        starts = image.starts(name)
        within = all(
            start in ranges or any(at < start < end for at, end in ranges.items())
            for start in starts
        )
        # Copies of an inline function are alike: each is in an object of its own.
        many = len(starts) > 1 and sum(one.has(starts) for one in found.values()) < len(starts)
        if many or not within:
            left.add(name)
    return left


def _beside(names: Collection[str], image: Image, source: Path) -> set[str]:
    """The objects of C files that define the functions around others."""
    rows = sorted((at, name) for name, own in image.extents().items() for at, _ in own)
    sides = [
        [name for _, name in side]
        for number, (_, name) in enumerate(rows)
        if name in names
        for side in (rows[max(0, number - _FAR) : number][::-1], rows[number + 1 :][:_FAR])
    ]
    defined = objects.definers({name for side in sides for name in side}, source)
    found = set[str]()
    for side in sides:
        sure = (defined.get(objects.plain(name), set()) for name in side)
        found.update(*islice((each for each in sure if len(each) in (1, 2)), _NEAR))
    return found


# ---- what a header says to all ----------------------------------------------------------------


def shared(old: str, new: str) -> set[str]:
    """The constants, and functions of other objects, that headers declare otherwise now.

    old, new: an object with the old and the new headers, from `cpp -dD`.  Raises
    NotTransplantedError where a type or a variable is another one.
    """
    (mine, before), (theirs, after) = map(_said, (old, new))
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    called = {_called(each) for each in theirs - mine}
    for each in sorted(mine - theirs):
        if _OF_ITS_OBJECT.match(each):
            continue
        if not (name := _called(each)):
            what = re.split(r" ?[{;=]", each)[0][:60]
            raise objects.cannot(f"{what} is another one, and objects that stay have the old one")
        names |= {name} & called
    return names


def _called(declaration: str) -> str:
    """The function of another object that is declared; "" for what is something else."""
    if _OF_ITS_OBJECT.match(declaration) or re.match(r"typedef\b|asm\b", declaration):
        return ""
    found = re.search(r"\b(?!__\w+__\b)(\w+) ?\(", declaration)
    return found[1] if found and not re.search("[={]", declaration) else ""


def _said(text: str) -> tuple[set[str], dict[str, str]]:
    """What the headers of a preprocessed file declare, and the constants that are macros."""
    is_header, rest, macros = False, list[str](), dict[str, str]()
    for line in text.splitlines():
        if marker := re.match(r'# \d+ "([^"]*)"', line):
            is_header = marker[1].endswith(".h")
        elif is_header and (macro := _MACRO.match(line)):
            macros[macro[1]] = macro[2]
        elif is_header:
            rest.append(line)
    plain = {name: value for name, value in macros.items() if not value.startswith("(")}
    return set(_declarations("\n".join(rest))), plain


def _declarations(text: str) -> Iterator[str]:
    """Each in one line, with one space where there are any."""
    depth = start = 0
    assigned = is_function = False
    for found in _MARK.finditer(text):
        mark = found[0]
        if mark == "{" and not depth:
            head = text[start : found.start()]
            is_function = "(" in head and not assigned and not _TYPE.match(head)
        assigned |= mark == "=" and not depth
        depth += (mark in "([{") - (mark in ")]}")
        if not depth and (mark == ";" or (mark == "}" and is_function)):
            yield _NUMBERED.sub(r"\1", " ".join(text[start : found.end()].split()))
            start, assigned, is_function = found.end(), False, False
