# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads: the TOML beside each C program, and the lone C file.

A workload is the pair `workloads/NAME.c` and `workloads/NAME.toml`.  Both say which phases there
are and which page state has to hold; `output` refuses what disagrees.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from kdelta import cache, data
from kdelta.errors import InfraError, SpecError
from kdelta.files import called, content, given, toml_of
from kdelta.machine.axes import NO_NEEDS, Needs, words
from kdelta.metric import Better
from kdelta.printable import known, meant, quoted
from kdelta.sample import Instrument

INSTRUMENTS = (Instrument.EXACT, Instrument.TIME)  # what is counted can be traced, too
ITERATIONS, WARMUP = 16, 4  # what the programs do when not told
SAME, FREE = "same", "free"  # what may be wanted of a fact, beside a value
BATCHES = 15 * 31  # pages: whole batches of reclaim's lists in all kernels, see guest/kdelta.h

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VALUE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CHOSEN = re.compile(rf'^#define KD_SCENARIO "({_VALUE.pattern})"$', re.MULTILINE)
# kdelta.h, where its text is in place of its #include: it defines kd_start() and does not call it.
_HEADER = re.compile(r"^#ifndef KDELTA_H\n.*?^#endif /\* KDELTA_H \*/$", re.MULTILINE | re.DOTALL)
_WORDS = re.compile("[a-z]+")
_MOST_BYTES = 16 << 20  # of a C file or its TOML
LIST_SCENARIOS = "list the scenarios with: kdelta workload list"
_LISTED = 12  # scenarios that a mistyped name is answered with

_Name = Annotated[str, Meta(pattern=rf"\A{_NAME.pattern}\Z")]
_Design = Annotated[
    str, Meta(pattern=r"\A[a-z0-9_]+( (E[A-Z0-9]+|result|data|(argument|string) [1-6]))?\Z")
]
_Line = Annotated[str, Meta(pattern=r"\A[\x20-\x7e]{1,200}\Z")]
_Text = Annotated[str, Meta(pattern=r"\A[\x20-\x7e\n]{1,4000}\Z")]
_Count = Annotated[int, Meta(ge=1, le=2**40)]
_Word = Annotated[str, Meta(pattern=rf"\A{_VALUE.pattern}\Z")]
_Instruments = Annotated[tuple[Instrument, ...], Meta(min_length=1, max_length=2)]
_Want = Annotated[int, Meta(ge=0, le=2**40)] | _Word


# ---- folios: what private anonymous memory can be in, other than base pages ----------------------

# A cell is a scenario in such folios.  Its name stands behind the scenario's, after a dot, and the
# program knows it by that name (struct kd_cell of guest/kdelta.h): what is wanted of the pages is
# written here and there, and the two must agree.

FolioName = Literal["64K", "2M", "2M-ptes"]
_PAGE_KIB = 4  # of a base page
_PMD_KIB = 2048
_TOLD_APART = ("thp_pages", "thp_eligible", "dirty_kb")  # kernels differ in what they say there


@dataclass(frozen=True, slots=True)
class FolioCell:
    """kib: of a folio; by_ptes: mapped so; said, pages: for readers; needs: of the machine."""

    name: FolioName
    kib: int
    by_ptes: bool = False
    said: str = field(kw_only=True)
    pages: str = field(kw_only=True)
    needs: Mapping[str, str] = field(kw_only=True)

    @property
    def huge(self) -> bool:
        """True for what could be mapped as a whole."""
        return self.kib == _PMD_KIB

    def whole(self, pages: int) -> int:
        """So many base pages, rounded up to whole folios."""
        each = self.kib // _PAGE_KIB
        return -(-pages // each) * each

    def wanted(self, wants: Mapping[str, str], pages: int) -> dict[str, str]:
        """A contract of base pages, changed for as many pages in folios."""
        folios = pages * _PAGE_KIB // self.kib
        mapped = pages * _PAGE_KIB if self.huge and not self.by_ptes else 0
        found = {name: want for name, want in wants.items() if name not in _TOLD_APART}
        return found | {
            "compound_heads": str(folios),
            "compound_tails": str(pages - folios),
            "anon_huge_kb": str(mapped),
        }


_SMALL, _HUGE = {"thp": "never", "mthp": "64kB=always"}, {"thp": "madvise"}
_PTES = "in huge pages that are mapped by PTEs"
_CELLS = (
    FolioCell("64K", 64, said="in folios of 64 KiB", pages="64K", needs=_SMALL),
    FolioCell("2M", _PMD_KIB, said="in huge pages", pages="2M", needs=_HUGE),
    FolioCell("2M-ptes", _PMD_KIB, by_ptes=True, said=_PTES, pages="PTE-mapped 2M", needs=_HUGE),
)
CELLS: dict[str, FolioCell] = {cell.name: cell for cell in _CELLS}


class Feature(StrEnum):
    """What a scenario needs of the kernel it runs on."""

    THP = "thp"


class WorkloadMetric(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A figure beside the phases.  unit: a word, or "1"; family: NAME.suffix each."""

    name: _Name
    unit: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9%/]{1,32}\Z")]
    better: Better
    what: _Line
    family: bool = False


class Phase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A marked part of an iteration.  id: in its marks; operation: "page", "call"; adds: to a timed
    run's total, false where another phase's time holds it.
    """

    id: Annotated[int, Meta(ge=0, le=254)]
    name: _Name
    operation: _Name
    what: _Line
    adds: bool = True


class Window(Struct, frozen=True, kw_only=True):
    """What one window of a phase does: `operations` times `operation`."""

    id: int
    name: str
    operation: str
    operations: int


class Fact(Struct, frozen=True, kw_only=True):
    """What has to hold before the first and after the last window.  want: a value, or SAME."""

    name: str
    want: str


class _ScenarioKeys(Struct, frozen=True, kw_only=True):
    summary: _Line
    pages: _Count
    args: tuple[_Line, ...] = ()
    features: tuple[Feature, ...] = ()
    needs: Needs = NO_NEEDS
    survey: bool = False
    robots: tuple[Annotated[str, Meta(pattern=r"\A[a-z0-9_ -]{1,64}\Z")], ...] = ()
    layouts: Annotated[int, Meta(ge=1, le=1000)] = 1
    folios: tuple[FolioName, ...] = ()
    by_design: tuple[_Design, ...] = ()


class Scenario(_ScenarioKeys, frozen=True, kw_only=True):
    """A workload with parameters.

    pages: base pages of 4 KiB that it keeps resident; args: added to the command line; during:
    what has to hold of the kernel's counters over all windows; instruments: that can run it;
    survey: a part of `kdelta survey`; robots: what suites call it; layouts: of the kernel's trees
    and lists, that the windows of a phase go through in turn.  declared: there is no TOML, so
    windows and facts are what the program says of itself.  speaks: it calls kd_start(), which takes
    options.  folios: that its memory may be in instead, each a scenario of its own: NAME.64K.
    by_design: errors of its system calls, "mincore ENOMEM", clocks that it reads, "rdtsc", numbers
    that may differ, "read result", calls whose completions it checks, "io_submit".
    """

    workload: str
    name: str
    windows: tuple[Window, ...]
    contract: tuple[Fact, ...]
    during: tuple[Fact, ...] = ()
    metrics: tuple[WorkloadMetric, ...] = ()
    instruments: tuple[Instrument, ...] = INSTRUMENTS
    declared: bool = False
    speaks: bool = True

    @property
    def outside(self) -> bool:
        """True when its program is a user's file."""
        return is_file(self.workload)

    @property
    def reference(self) -> str:
        """How a study names it: "mprotect:single_protect"."""
        return f"{self.workload}:{self.name}"

    def arguments(self, *, iterations: int = ITERATIONS, warmup: int = WARMUP) -> list[str]:
        """The program's arguments for kdelta; every layout has equally many iterations."""
        if not self.speaks:
            return [*self.args, self.name]  # of an ordinary main()
        counts = ["--iterations", str(iterations), "--warmup", str(warmup)]
        return ["--protocol", *counts, *self.args, self.name]


class _WorkloadKeys(Struct, frozen=True, kw_only=True):
    name: _Name
    title: _Line
    description: _Text
    path: _Line
    mail: _Line
    subsystem: str = ""
    phases: Annotated[tuple[Phase, ...], Meta(min_length=1, max_length=8)]
    gates: tuple[_Name, ...] = ()
    every_task: bool = False


class Workload(_WorkloadKeys, frozen=True, kw_only=True):
    """One C program and what it can do.

    path: the kernel's functions it exercises; mail: title of the report it comes from;
    subsystem: the kernel's folder that all of it exercises, "" for several;
    program: its C file; gates: scenarios that a change of this path must not make worse.
    every_task: what is measured is done by a task of the kernel, so every task counts.
    declared: a C file without a TOML, which has each scenario that it is asked for.
    """

    scenarios: tuple[Scenario, ...]
    program: Path
    declared: bool = False

    def scenario(self, name: str) -> Scenario:
        """The scenario of that name.  Raises SpecError that lists the known ones."""
        if self.declared:
            if not _VALUE.fullmatch(name):
                raise SpecError(f"{quoted(name)} cannot name a scenario", place=self.program.name)
            return Scenario(
                workload=called(self.program),
                name=name,
                summary=f"{name} of {self.program.name}",
                pages=1,
                windows=(),
                contract=(),
                instruments=(Instrument.EXACT,),
                declared=True,
                speaks=speaks(self.program),
            )
        base, _, cell = name.partition(".")
        for scenario in self.scenarios:
            if scenario.name == base:
                return _in_folios(scenario, cell) if cell else scenario
        others = known(name, (scenario.name for scenario in self.scenarios))
        raise SpecError(f"{self.name} has no scenario {quoted(name)}", action=others)


# ---- TOML ----------------------------------------------------------------------------------


class _ScenarioToml(_ScenarioKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operations: Annotated[dict[_Name, _Count], Meta(min_length=1)]
    contract: dict[_Name, _Want]
    during: dict[_Name, _Want] = {}
    metrics: tuple[_Name, ...] | None = None
    instruments: _Instruments | None = None


class _WorkloadToml(_WorkloadKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scenarios: Annotated[dict[_Name, dict[str, object]], Meta(min_length=1, max_length=64)]
    contract: dict[_Name, _Want] = {}
    during: dict[_Name, _Want] = {}
    metrics: tuple[WorkloadMetric, ...] = ()
    instruments: _Instruments = INSTRUMENTS


def _keys(toml: Struct, kind: type[Struct]) -> dict[str, Any]:
    return {key: getattr(toml, key) for key in kind.__struct_fields__}


def names(directory: Path | None = None) -> tuple[str, ...]:
    """Names of all workloads, sorted.  directory: where they lie (the shipped ones)."""
    folder = directory or data.directory("workloads")
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def load(name: str, directory: Path | None = None) -> Workload:
    """One workload's TOML, read strictly, or a C file outside this tree (name: its path).
    directory: of the workloads (the shipped ones).  Raises SpecError that names file and key.
    """
    if is_file(name):
        return _of_file(file_of(name))
    file = (directory or data.directory("workloads")) / f"{name}.toml"
    if not _NAME.fullmatch(name) or not file.is_file():
        near = meant_by(name)
        action = f"{near}{LIST_SCENARIOS}" if near else known(name, names(directory))
        raise SpecError(f"unknown workload {quoted(name)}", action=action)
    try:
        found = _read(file, content(file, _MOST_BYTES))
    except OSError as error:
        raise InfraError(f"cannot be read: {error.strerror}", place=str(file)) from error
    if found.program.is_file():
        return found
    raise SpecError(f"its program {name}.c is missing", place=file.name)


def loadable(wanted: Iterable[str]) -> dict[str, Workload]:
    """Of these workloads those that can be loaded here, by name; a run may name others."""
    found = {}
    for name in sorted(set(wanted)):
        with contextlib.suppress(SpecError):
            found[name] = load(name)
    return found


def fitting(word: str) -> list[str]:
    """The shipped scenarios of a robot's test, else the one of this name, this workload, those of
    this name or with this word in it, else with each of these words there or in what is said.

    "mmap1", "will-it-scale.mmap1" and "will-it-scale.mmap1.processes" are will-it-scale's;
    "munmap", "unmap.munmap" and "munmap:munmap" mean unmap:munmap.
    """
    every = [one for name in names() for one in load(name).scenarios]
    said = {one.reference: f"{one.reference} {one.summary}" for one in every}
    plain = word.removesuffix(".processes").removesuffix(".threads")
    last, test = plain.replace(".", ":").rpartition(":")[2], plain.replace(".", " ")
    suite = {test if " " in test else f"will-it-scale {test}"}
    threads = {each.replace(" ", " thread ", 1) for each in suite if plain + ".threads" == word}
    words = [each.removesuffix("s") for each in _WORDS.findall(word.lower()) if len(each) > 2]

    def has(text: str) -> bool:
        own = _WORDS.findall(text.lower())
        return bool(words) and all(any(o.startswith(each) for o in own) for each in words)

    named = [one for one in said if one.endswith(f":{last}")]
    ways = (
        [one.reference for one in every if threads & {*one.robots}],
        [one.reference for one in every if suite & {*one.robots}],
        named if len(named) == 1 else [],
        [one for one in said if one.startswith(f"{last}:")],
        [*dict.fromkeys([*named, *(one for one in said if len(words) == 1 and has(one))])],
        [one for one, text in said.items() if has(text)],
    )
    return next(filter(None, ways), [])


def meant_by(word: str) -> str:
    """How an action begins for a name that is none: the scenarios that fit the word, or ""."""
    found = fitting(word)
    more = ", ..." if len(found) > _LISTED else ""
    return f"did you mean {' or '.join(found[:_LISTED])}{more}? " if found else ""


def chosen(word: str) -> str:
    """The one scenario that a word means.  Raises SpecError where several fit, or none."""
    if is_reference(word):
        parse_reference(word)
        return word
    found = fitting(word)
    if len(found) > 1:
        cause = f"{quoted(word)} names {len(found)} scenarios"
        raise SpecError(cause, action=f"name one, such as {found[0]}")
    if not found:
        own = (one.name for name in names() for one in load(name).scenarios)
        near = meant(word, (*names(), *own))
        raise SpecError(f"{quoted(word)} names no scenario", action=f"{near}{LIST_SCENARIOS}")
    return found[0]


def parse_reference(text: str, directory: Path | None = None) -> tuple[Workload, Scenario]:
    """Resolve "mprotect:single_protect".  Raises SpecError that lists what is known."""
    workload, colon, scenario = text.rpartition(":")
    if not colon:
        action = f"{meant_by(text)}write WORKLOAD:SCENARIO; {LIST_SCENARIOS}"
        raise SpecError(f"{quoted(text)} names no scenario", action=action)
    loaded = load(workload, directory)
    return loaded, loaded.scenario(scenario)


# ---- C files outside this tree --------------------------------------------------------------


def is_file(name: str) -> bool:
    """True for a C file's path where the name of a shipped workload could be."""
    return name.endswith(".c")


def is_reference(word: str) -> bool:
    """True for "mprotect:name", "./loop.c:name" and "./loop.c"; not for a study's name or file."""
    return (":" in word and not word.endswith(".toml")) or is_file(word)


def full_reference(word: str, beside: Path = Path()) -> str:
    """A scenario with its C file's path as runs have it (files.called); others stay.  A file alone:
    all in its TOML, or else its KD_SCENARIO, or `main`.  beside: a folder, whose files are named.
    """
    path, _, scenario = word.rpartition(":") if not is_file(word) else (word, "", "")
    if not is_file(path):
        return word
    file = beside / file_of(path)
    file = file.resolve() if file.exists() else file.absolute()  # not of a link to itself
    if ":" in str(file):
        raise SpecError("a path with a colon cannot be named", place=str(file))
    if not scenario and file.with_suffix(".toml").exists():
        return f"{called(file)}:*"
    defined = _CHOSEN.search(text_of(file)) if not scenario and file.is_file() else None
    return f"{called(file)}:{scenario or (defined[1] if defined else 'main')}"


def file_of(name: str) -> Path:
    """The C file of a workload that is one."""
    return Path(os.environ.get("HOME", "/"), name[2:]) if name.startswith("~/") else Path(name)


def speaks(program: Path) -> bool:
    """True for a C file that calls kd_start(), and so prints what it measured by itself."""
    head, end, rest = text_of(program).rpartition("#endif /* KDELTA_H */")  # each begin has an end
    text = _HEADER.sub("", head + end) + rest
    bare = re.sub(r"/\*.*?(?:\*/|\Z)|//[^\n]*", " ", text, flags=re.DOTALL)
    return re.search(r"\bkd_start\s*\(", bare) is not None


def _of_file(file: Path) -> Workload:
    toml = file.with_suffix(".toml")
    if not file.exists():
        gone = file.is_relative_to(cache.root() / "programs")
        action = "the cache was cleared: give the run's command again, and it goes on"
        from_here = "" if file.is_absolute() else "a path begins where the command is given"
        raise SpecError("no such C file", place=str(file), action=action if gone else from_here)
    if not re.fullmatch(r"[A-Za-z0-9_+-]{1,64}", file.stem):
        cause = "a program's name is letters, digits, _, + and -"
        raise SpecError(cause, place=str(file), action="rename it")
    text_of(file)
    if toml.exists():
        text_of(toml)
        found = load(file.stem, file.parent)
        own = tuple(replace(each, workload=called(file)) for each in found.scenarios)
        return replace(found, scenarios=own)
    return Workload(
        name=file.stem,
        title=file.name,
        description="A C file without a contract: its page state is said, and none is wanted.",
        path="what its windows execute",
        mail=called(file),
        phases=(),
        scenarios=(),
        program=file,
        declared=True,
    )


def text_of(path: Path) -> str:
    """The text of a C file.  Raises SpecError when it cannot be read."""
    return given(path, _MOST_BYTES).decode(errors="replace")


@functools.lru_cache(maxsize=256)  # commands ask for all of them, several times
def _read(file: Path, held: bytes) -> Workload:
    try:
        table = toml_of(held.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"not valid TOML: {error}", place=file.name) from error
    toml = _convert(table, _WorkloadToml, file)
    if toml.name != file.stem:
        raise SpecError(f"{quoted(toml.name)} is not the file's name", place=_at(file, "name"))
    keys = {key for phase in toml.phases for key in (phase.id, phase.name)}
    if len(keys) != 2 * len(toml.phases):
        raise SpecError("two phases have the same id or name", place=_at(file, "phases"))
    for gate in set(toml.gates) - set(toml.scenarios):
        raise SpecError("not one of the scenarios", place=_at(file, f"gates: {gate}"))
    scenarios = tuple(_scenario(toml, name, file) for name in toml.scenarios)
    told = _keys(toml, _WorkloadKeys) | {"description": toml.description.strip()}
    return Workload(scenarios=scenarios, program=file.with_suffix(".c"), **told)


def _at(file: Path, key: str) -> str:
    return f"{file.name}: {key}" if key else file.name


_Toml = TypeVar("_Toml", bound=Struct)


def _convert(table: Mapping[str, object], shape: type[_Toml], file: Path, key: str = "") -> _Toml:
    try:
        return msgspec.convert(table, shape)
    except msgspec.ValidationError as error:
        cause, _, where = str(error).partition(" - at ")
        inner = where.replace("`", "").replace("$.", "").removeprefix("$")
        cause = cause.replace("Object contains unknown field", "unknown key")
        cause = cause.replace("Object missing required field", "missing key").replace("`", "")
        place = ".".join(part for part in (key, inner) if part)
        raise SpecError(cause[0].lower() + cause[1:], place=_at(file, place)) from error


def _scenario(toml: _WorkloadToml, name: str, file: Path) -> Scenario:
    key = f"scenarios.{name}"
    scenario = _convert(toml.scenarios[name], _ScenarioToml, file, key)
    for phase in scenario.operations.keys() - {phase.name for phase in toml.phases}:
        raise SpecError("not one of the phases", place=_at(file, f"{key}.operations.{phase}"))
    if not any(phase.adds for phase in toml.phases if phase.name in scenario.operations):
        raise SpecError("no phase adds to the total", place=_at(file, f"{key}.operations"))
    named = {metric.name: metric for metric in toml.metrics}
    for metric in set(scenario.metrics or ()) - named.keys():
        raise SpecError("not one of the metrics", place=_at(file, f"{key}.metrics: {metric}"))
    chosen = named if scenario.metrics is None else scenario.metrics
    return Scenario(
        workload=toml.name,
        name=name,
        windows=tuple(
            Window(id=phase.id, name=phase.name, operation=phase.operation, operations=count)
            for phase in toml.phases
            if (count := scenario.operations.get(phase.name))
        ),
        contract=_facts(toml.contract, scenario.contract, _at(file, f"{key}.contract")),
        during=_facts(toml.during, scenario.during, _at(file, f"{key}.during")),
        metrics=tuple(named[metric] for metric in chosen),
        instruments=scenario.instruments or toml.instruments,
        **_keys(scenario, _ScenarioKeys),
    )


def _resized(want: str, old: int, new: int) -> str:
    """What is wanted of a fact when `old` base pages became `new`: these and KiB scale."""
    return {str(old * each): str(new * each) for each in (1, _PAGE_KIB)}.get(want, want)


def _in_folios(scenario: Scenario, name: str) -> Scenario:
    cell = CELLS.get(name)
    if cell is None:
        cause = f"{quoted(name)} names no folios"
        raise SpecError(cause, action=f"name one of {', '.join(CELLS)}")
    if why := without_folios(scenario, cell.name):
        raise SpecError(f"{scenario.reference} has no cell {name}: {why}")
    old, new = scenario.pages, cell.whole(scenario.pages)
    wants = {fact.name: _resized(fact.want, old, new) for fact in scenario.contract}
    during = {fact.name: _resized(fact.want, old, new) for fact in scenario.during}
    return replace(
        scenario,
        name=f"{scenario.name}.{name}",
        summary=f"{scenario.summary}, {cell.said}",
        pages=new,
        windows=tuple(  # a multiple of the pages scales with them
            each
            if each.operations % old
            else replace(each, operations=each.operations // old * new)
            for each in scenario.windows
        ),
        features=(Feature.THP,) if cell.huge else (),
        contract=tuple(Fact(name=n, want=w) for n, w in cell.wanted(wants, new).items()),
        during=tuple(Fact(name=n, want=w) for n, w in during.items()),
        needs=replace(scenario.needs, **cell.needs),
        survey=False,
    )


def without_folios(scenario: Scenario, name: str) -> str:
    """Why the memory of a scenario cannot be in folios of that name; "" when it can."""
    if name in scenario.folios:
        return ""
    wants = {fact.name: fact.want for fact in scenario.contract}
    own = any(word.startswith(("mthp", "hugepages")) for word in words(scenario.needs))
    if scenario.features or own or wants.get("compound_heads", "0") != "0":
        return "the size of its pages is a part of it"
    if wants.get("anon_pages", "0") in ("0", FREE):
        return "its memory is not private anonymous memory that stays"
    return "it asks for base pages (MADV_NOHUGEPAGE)"


def _facts(
    every: Mapping[str, int | str], own: Mapping[str, int | str], place: str
) -> tuple[Fact, ...]:
    for fact in own.keys() & every.keys():
        raise SpecError("is wanted by every scenario already", place=f"{place}.{fact}")
    return tuple(Fact(name=fact, want=str(want)) for fact, want in {**every, **own}.items())
