# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads: the TOML beside each C program, what the program printed, and the lone C file.

A workload is the pair `workloads/NAME.c` and `workloads/NAME.toml`.  Both say which phases there
are and which page state has to hold; a disagreement of the two is an error here.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from kdelta import data
from kdelta.errors import GuestError, InfraError, SpecError
from kdelta.sample import StateField

PROTOCOL_VERSION = "1"
MAX_LINE = 4096
MAX_LINES = 100_000
ITERATIONS, WARMUP = 16, 4  # what the programs do when not told
EXIT_OK, EXIT_STATE, EXIT_USAGE, EXIT_SKIP = 0, 1, 2, 77

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_VALUE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_INCLUDE = '#include "kdelta.h"\n'
_SPDX = "// SPDX-License-Identifier: GPL-2.0-or-later\n"

_Name = Annotated[str, Meta(pattern=rf"\A{_NAME.pattern}\Z")]
_Line = Annotated[str, Meta(pattern=r"\A[\x20-\x7e]{1,200}\Z")]
_Text = Annotated[str, Meta(pattern=r"\A[\x20-\x7e\n]{1,4000}\Z")]
_Count = Annotated[int, Meta(ge=1, le=2**40)]
_Word = Annotated[str, Meta(pattern=rf"\A{_VALUE.pattern}\Z")]
_Want = Annotated[int, Meta(ge=0, le=2**40)] | _Word


class Feature(StrEnum):
    """What a scenario needs of the kernel it runs on."""

    THP = "thp"


class Phase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A marked part of an iteration.  id: the number in its marks; operation: "page", "call"."""

    id: Annotated[int, Meta(ge=0, le=254)]
    name: _Name
    operation: _Name
    what: _Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one window of a phase does: `operations` times `operation`."""

    id: int
    name: str
    operation: str
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that has to hold of the pages before the first and after the last window."""

    name: str
    want: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A workload with parameters.

    pages: base pages of 4 KiB that it keeps resident; args: added to the command line.
    """

    workload: str
    name: str
    summary: str
    pages: int
    windows: tuple[Window, ...]
    args: tuple[str, ...]
    features: tuple[Feature, ...]
    contract: tuple[Fact, ...]

    @property
    def reference(self) -> str:
        """How a study names it: "mprotect:single_protect"."""
        return f"{self.workload}:{self.name}"

    def arguments(self, *, iterations: int = ITERATIONS, warmup: int = WARMUP) -> list[str]:
        """The program's arguments for a run that kdelta reads."""
        counts = ["--iterations", str(iterations), "--warmup", str(warmup)]
        return ["--protocol", *counts, *self.args, self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One C program and what it can do.

    path: the kernel's functions it exercises; mail: title of the report it comes from;
    program: its C file.
    """

    name: str
    title: str
    description: str
    path: str
    mail: str
    phases: tuple[Phase, ...]
    scenarios: tuple[Scenario, ...]
    program: Path

    def scenario(self, name: str) -> Scenario:
        """The scenario of that name.  Raises SpecError that lists the known ones."""
        for scenario in self.scenarios:
            if scenario.name == name:
                return scenario
        known = ", ".join(scenario.name for scenario in self.scenarios)
        raise SpecError(f"{self.name} has no scenario {quoted(name)}", action=f"known: {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWindow:
    """One window as the guest's own clock saw it."""

    phase: str
    iteration: int
    nanoseconds: int
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that one run of a program printed.

    Complete when exit_code is 0, or 1 with samples; else the notes give the reason.
    """

    phases: tuple[Window, ...]
    state: tuple[StateField, ...]
    samples: tuple[TimedWindow, ...]
    notes: tuple[str, ...]
    exit_code: int


def contract_failures(reading: Reading) -> tuple[StateField, ...]:
    """The facts that do not hold, unknown ones included."""
    return tuple(field for field in reading.state if not field.holds)


def quoted(text: str, limit: int = 80) -> str:
    """Untrusted text for an error sentence: escaped, quoted, cut."""
    return ascii(text if len(text) <= limit else text[:limit] + "...")


# ---- TOML ----------------------------------------------------------------------------------


class _ScenarioToml(Struct, forbid_unknown_fields=True):
    summary: _Line
    pages: _Count
    operations: Annotated[dict[_Name, _Count], Meta(min_length=1)]
    contract: dict[_Name, _Want]
    args: tuple[_Line, ...] = ()
    features: tuple[Feature, ...] = ()


class _WorkloadToml(Struct, forbid_unknown_fields=True):
    name: _Name
    title: _Line
    description: _Text
    path: _Line
    mail: _Line
    phases: Annotated[tuple[Phase, ...], Meta(min_length=1, max_length=8)]
    scenarios: Annotated[dict[_Name, dict[str, object]], Meta(min_length=1, max_length=64)]
    contract: dict[_Name, _Want] = {}


def names(directory: Path | None = None) -> tuple[str, ...]:
    """Names of all workloads, sorted.  directory: where they lie (the shipped ones)."""
    folder = directory or data.directory("workloads")
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def load(name: str, directory: Path | None = None) -> Workload:
    """Read one workload's TOML, strictly.

    directory: where workloads lie (the shipped ones).  Raises SpecError that names the file and
    the key, or lists the known workloads.
    """
    folder = directory or data.directory("workloads")
    if not _NAME.fullmatch(name) or not (folder / f"{name}.toml").is_file():
        known = ", ".join(names(folder)) or "none"
        raise SpecError(f"unknown workload {quoted(name)}", action=f"known: {known}")
    file = folder / f"{name}.toml"
    toml = _convert(_parse_toml(file), _WorkloadToml, file)
    if toml.name != name:
        raise SpecError(f"{quoted(toml.name)} is not the file's name", place=_at(file, "name"))
    if not (folder / f"{name}.c").is_file():
        raise SpecError(f"its program {name}.c is missing", place=file.name)
    return _workload(toml, file)


def parse_reference(text: str, directory: Path | None = None) -> tuple[Workload, Scenario]:
    """Resolve "mprotect:single_protect".  Raises SpecError that lists what is known."""
    workload, colon, scenario = text.partition(":")
    if not colon:
        raise SpecError(
            f"{quoted(text)} names no scenario",
            action="write WORKLOAD:SCENARIO; list them with: kdelta workloads",
        )
    loaded = load(workload, directory)
    return loaded, loaded.scenario(scenario)


def _parse_toml(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_bytes().decode())
    except OSError as error:
        raise InfraError(f"cannot be read: {error.strerror}", place=str(file)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"not valid TOML: {error}", place=file.name) from error


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


def _workload(toml: _WorkloadToml, file: Path) -> Workload:
    if len({key for phase in toml.phases for key in (phase.id, phase.name)}) != 2 * len(
        toml.phases
    ):
        raise SpecError("two phases have the same id or name", place=_at(file, "phases"))
    return Workload(
        name=toml.name,
        title=toml.title,
        description=toml.description.strip(),
        path=toml.path,
        mail=toml.mail,
        phases=toml.phases,
        scenarios=tuple(_scenario(toml, name, file) for name in toml.scenarios),
        program=file.with_suffix(".c"),
    )


def _scenario(toml: _WorkloadToml, name: str, file: Path) -> Scenario:
    key = f"scenarios.{name}"
    scenario = _convert(toml.scenarios[name], _ScenarioToml, file, key)
    for phase in scenario.operations.keys() - {phase.name for phase in toml.phases}:
        raise SpecError("not one of the phases", place=_at(file, f"{key}.operations.{phase}"))
    for fact in scenario.contract.keys() & toml.contract.keys():
        cause = "is wanted by every scenario already"
        raise SpecError(cause, place=_at(file, f"{key}.contract.{fact}"))
    contract = {**toml.contract, **scenario.contract}
    return Scenario(
        workload=toml.name,
        name=name,
        summary=scenario.summary,
        pages=scenario.pages,
        windows=tuple(
            Window(id=phase.id, name=phase.name, operation=phase.operation, operations=count)
            for phase in toml.phases
            if (count := scenario.operations.get(phase.name))
        ),
        args=scenario.args,
        features=scenario.features,
        contract=tuple(Fact(name=fact, want=str(want)) for fact, want in contract.items()),
    )


# ---- what the program printed --------------------------------------------------------------


def parse_output(text: str, workload: Workload, scenario: Scenario) -> Reading:
    """Read the standard output of a program that ran with --protocol.  Nothing is forgiven.

    Raises GuestError that quotes the line, or says what is missing.
    """
    place = f"output of {scenario.reference}"
    if text.count("\n") > MAX_LINES:
        raise GuestError(f"more than {MAX_LINES} lines", place=place)
    parser = _Parser(workload, scenario)
    # A guest's console may end its lines with CR LF.
    for number, raw in enumerate(text.removesuffix("\n").split("\n"), start=1):
        line = raw.removesuffix("\r")
        try:
            parser.take(line)
        except _BadLineError as error:
            cause = f"{error}: {quoted(line)}"
            raise GuestError(cause, place=f"{place}, line {number}") from error
    return parser.reading()


class _BadLineError(Exception):
    """Why one line of the output is refused."""


class _Parser:
    """Takes the records one by one; `reading` then demands that none is missing."""

    def __init__(self, workload: Workload, scenario: Scenario) -> None:
        self._place = f"output of {scenario.reference}"
        self._header = f"kdelta-workload {PROTOCOL_VERSION} {workload.name} {scenario.name}"
        self._windows = {window.name: window for window in scenario.windows}
        self._wanted = {fact.name: fact.want for fact in scenario.contract}
        self._begun = False
        self._exit_code: int | None = None
        self._phases: dict[str, Window] = {}
        self._state: dict[tuple[str, str], StateField] = {}
        self._samples: dict[tuple[str, int], TimedWindow] = {}
        self._notes: list[str] = []

    def take(self, line: str) -> None:
        if len(line) > MAX_LINE:
            raise _BadLineError(f"longer than {MAX_LINE} characters")
        if not (line.isascii() and line.isprintable()):
            raise _BadLineError("not printable ASCII")
        if self._exit_code is not None:
            raise _BadLineError("line after the end record")
        if not self._begun:
            if line != self._header:
                raise _BadLineError(f"not the header {self._header!r}")
            self._begun = True
        elif line.startswith("note "):
            self._notes.append(line.removeprefix("note "))
        else:
            self._record(line.split(" "))

    def _record(self, words: list[str]) -> None:
        match words:
            case ["phase", number, name, operation, operations]:
                self._phase(number, name, operation, operations)
            case ["state", when, name, value, want]:
                self._fact(when, name, value, want)
            case ["sample", phase, iteration, nanoseconds, operations]:
                self._sample(phase, iteration, nanoseconds, operations)
            case ["end", code]:
                self._end(code)
            case _:
                raise _BadLineError("not a record")

    def _phase(self, number: str, name: str, operation: str, operations: str) -> None:
        phase = Window(
            id=_number(number), name=name, operation=operation, operations=_number(operations)
        )
        if name in self._phases:
            raise _BadLineError("phase declared twice")
        if self._windows.get(name) != phase:
            raise _BadLineError("not a phase of the scenario's TOML")
        self._phases[name] = phase

    def _fact(self, when: str, name: str, value: str, want: str) -> None:
        if when not in ("before", "after") or not _VALUE.fullmatch(value):
            raise _BadLineError("not a fact")
        if (when, name) in self._state:
            raise _BadLineError("fact stated twice")
        if self._wanted.get(name) != want:
            raise _BadLineError("not as the scenario's TOML wants it")
        self._state[when, name] = StateField(when=when, name=name, value=value, want=want)

    def _sample(self, phase: str, iteration: str, nanoseconds: str, operations: str) -> None:
        sample = TimedWindow(
            phase=phase,
            iteration=_number(iteration),
            nanoseconds=_number(nanoseconds),
            operations=_number(operations),
        )
        if phase not in self._phases or self._phases[phase].operations != sample.operations:
            raise _BadLineError("not a sample of a declared phase")
        if (phase, sample.iteration) in self._samples:
            raise _BadLineError("sample printed twice")
        self._samples[phase, sample.iteration] = sample

    def _end(self, code: str) -> None:
        number = _number(code)
        if number not in (EXIT_OK, EXIT_STATE, EXIT_USAGE, EXIT_SKIP):
            raise _BadLineError("not an exit code of a workload")
        if number != EXIT_OK and not self._notes:
            raise _BadLineError("a failure without a note of its reason")
        self._exit_code = number

    def reading(self) -> Reading:
        """What was read.  Raises GuestError for what is missing or contradicts itself."""
        if self._exit_code is None:
            raise self._incomplete("no end record: the program died or its output was cut")
        # A program that gives up says why and prints no samples.
        if self._exit_code == EXIT_OK or self._samples:
            self._demand_all()
        reading = Reading(
            phases=tuple(self._phases.values()),
            state=tuple(self._state.values()),
            samples=tuple(self._samples.values()),
            notes=tuple(self._notes),
            exit_code=self._exit_code,
        )
        known = [field for field in contract_failures(reading) if field.value != "unknown"]
        if known and self._exit_code == EXIT_OK:
            raise self._incomplete(f"exit 0 although {known[0].name} does not hold")
        return reading

    def _demand_all(self) -> None:
        for name in self._windows.keys() - self._phases.keys():
            raise self._incomplete(f"no phase {name}")
        for when in ("before", "after"):
            for name in self._wanted:
                if (when, name) not in self._state:
                    raise self._incomplete(f"no fact {name} {when} the windows")
        iterations = len(self._samples) // len(self._windows)
        expected = {(name, i) for name in self._windows for i in range(iterations)}
        if not expected or self._samples.keys() != expected:
            raise self._incomplete("not one sample of each phase in each iteration")

    def _incomplete(self, cause: str) -> GuestError:
        return GuestError(cause, place=self._place)


def _number(word: str) -> int:
    if not _NUMBER.fullmatch(word):
        raise _BadLineError(f"{quoted(word)} is not a number")
    return int(word)


# ---- the lone C file -----------------------------------------------------------------------


def exported_source(workload: Workload) -> str:
    """The program with kdelta.h in place of its #include: one C file that builds alone."""
    header = _source(data.directory("guest") / "kdelta.h")
    program = _source(workload.program).removeprefix(_SPDX)
    if program.count(_INCLUDE) != 1:
        raise InfraError(f"lacks its line {_INCLUDE.strip()}", place=workload.program.name)
    shared = header.partition("\n")[2]  # its own licence line is at the top already
    return f"{_SPDX}{_preface(workload)}\n{shared}\n{program.replace(_INCLUDE, '')}"


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InfraError(
            f"cannot be read: {error}", place=str(path), action="reinstall kdelta"
        ) from error


_PREFACE = """\
{name}.c - {title}

{description}

Path:   {path}
Source: {mail}

Build:  gcc -O2 -static {name}.c -o {name}
Run:    ./{name} {first}
        as root, or part of the page state stays unknown; --list lists all

Prints the page state before and after, and the time of each phase.
The workload itself is at the end; what comes before is kdelta.h.
Written by: kdelta export {name}
"""


def _preface(workload: Workload) -> str:
    text = _PREFACE.format(
        name=workload.name,
        title=workload.title,
        description=textwrap.fill(workload.description, 74),
        path=workload.path,
        mail=textwrap.fill(workload.mail, 66).replace("\n", "\n        "),
        first=workload.scenarios[0].name,
    )
    return "\n".join(["/*", *(f" * {line}".rstrip() for line in text.splitlines()), " */"])
