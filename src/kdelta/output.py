# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what a workload's program printed, strictly: any fault is an error."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from kdelta.errors import GuestError
from kdelta.printable import quoted
from kdelta.sample import UNKNOWN, MetricValue, StateField
from kdelta.workload import FREE, Scenario, Window, Workload

PROTOCOL_VERSION = "1"
MAX_LINE = 4096
MAX_LINES = 100_000
EXIT_OK, EXIT_STATE, EXIT_USAGE, EXIT_SKIP = 0, 1, 2, 77

_WHENS = ("before", "after", "during")
_MAX_FACTS = 600
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_REAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,20})?(?:e[+-][0-9]{1,3})?")
_FACT = re.compile(r"[A-Za-z0-9_]{1,64}")
_VALUE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HEADER = re.compile(r"kdelta-workload 1 [!-~]{1,64} [!-~]{1,64}")
_METRIC = re.compile(r"[a-z][a-z0-9_]{0,63}(?:\.[A-Za-z0-9_]{1,64})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWindow:
    """One window as the guest's own clock saw it."""

    phase: str
    iteration: int
    nanoseconds: int
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that one run of a program printed; complete when exit_code is 0, or 1 with samples, else
    the notes say why.  layouts: that a phase's samples go through in turn.  vdso, loader: where
    they lay, as told.
    """

    phases: tuple[Window, ...]
    state: tuple[StateField, ...]
    samples: tuple[TimedWindow, ...]
    metrics: tuple[MetricValue, ...]
    notes: tuple[str, ...]
    exit_code: int
    layouts: int = 1
    vdso: range = range(0)
    loader: range = range(0)


def contract_failures(reading: Reading) -> tuple[StateField, ...]:
    """The facts that do not hold, unknown ones included."""
    return tuple(field for field in reading.state if not field.holds)


def parse_output(text: str, workload: Workload, scenario: Scenario) -> Reading:
    """Read what a program printed with --protocol.  Raises GuestError that quotes the line."""
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
    """Takes the records one by one; `reading` then checks that none is missing."""

    def __init__(self, workload: Workload, scenario: Scenario) -> None:
        self._place = f"output of {scenario.reference}"
        self._header = f"kdelta-workload {PROTOCOL_VERSION} {workload.name} {scenario.name}"
        self._windows = {window.name: window for window in scenario.windows}
        self._contract = {fact.name: fact.want for fact in scenario.contract}
        self._during = {fact.name: fact.want for fact in scenario.during}
        self._declared = {metric.name: metric for metric in scenario.metrics}
        self._layouts, self._told_layouts = scenario.layouts, 1
        self._told_alone, self._begun = scenario.declared, False
        self._exit_code: int | None = None
        self._phases: dict[str, Window] = {}
        self._state: dict[tuple[str, str], StateField] = {}
        self._samples: dict[tuple[str, int], TimedWindow] = {}
        self._metrics: dict[str, MetricValue] = {}
        self._notes: list[str] = []
        self._vdso = self._loader = range(0)

    def take(self, line: str) -> None:
        if len(line) > MAX_LINE:
            raise _BadLineError(f"longer than {MAX_LINE} characters")
        if not (line.isascii() and line.isprintable()):
            raise _BadLineError("not printable ASCII")
        if self._exit_code is not None:
            raise _BadLineError("line after the end record")
        if not self._begun:
            if line != self._header and not (self._told_alone and _HEADER.fullmatch(line)):
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
            case ["metric", name, unit, "absent", *why]:
                self._metric(name, unit, None, " ".join(why))
            case ["metric", name, unit, value]:
                self._metric(name, unit, _real(value), "")
            case ["layouts", number] if _number(number):
                self._told_layouts = _number(number)
            case ["vdso", start, end]:
                self._vdso = range(_number(start), _number(end))
            case ["loader", start, end]:
                self._loader = range(_number(start), _number(end))
            case ["end", code]:
                self._end(code)
            case _:
                raise _BadLineError("not a record")

    def _phase(self, number: str, name: str, operation: str, operations: str) -> None:
        own, often = _number(number), _number(operations)
        phase = Window(id=own, name=name, operation=operation, operations=often)
        if name in self._phases:
            raise _BadLineError("phase declared twice")
        if self._told_alone and _METRIC.fullmatch(name) and _FACT.fullmatch(operation):
            self._windows[name] = phase
        if self._windows.get(name) != phase or not phase.operations:
            raise _BadLineError("not a phase of the scenario's TOML")
        self._phases[name] = phase

    def _fact(self, when: str, name: str, value: str, want: str) -> None:
        if when not in _WHENS or not (_FACT.fullmatch(name) and _VALUE.fullmatch(value)):
            raise _BadLineError("not a fact")
        if (when, name) in self._state:
            raise _BadLineError("fact stated twice")
        if len(self._state) >= _MAX_FACTS:
            raise _BadLineError(f"more than {_MAX_FACTS} facts")
        if self._wanted(when).get(name, FREE) != want and not (
            self._told_alone and _VALUE.fullmatch(want)
        ):
            raise _BadLineError("not as the scenario's TOML wants it")
        self._state[when, name] = StateField(when=when, name=name, value=value, want=want)

    def _sample(self, phase: str, iteration: str, nanoseconds: str, operations: str) -> None:
        at, ns, often = _number(iteration), _number(nanoseconds), _number(operations)
        if phase not in self._phases or self._phases[phase].operations != often:
            raise _BadLineError("not a sample of a declared phase")
        if (phase, at) in self._samples:
            raise _BadLineError("sample printed twice")
        sample = TimedWindow(phase=phase, iteration=at, nanoseconds=ns, operations=often)
        self._samples[phase, at] = sample

    def _wanted(self, when: str) -> dict[str, str]:
        return self._during if when == "during" else self._contract

    def _metric(self, name: str, unit: str, value: float | None, absent: str) -> None:
        declared = self._declared.get(name.partition(".")[0])
        if declared is None or unit != declared.unit or not _METRIC.fullmatch(name):
            raise _BadLineError("not a metric of the scenario's TOML")
        if declared.family != ("." in name):
            raise _BadLineError("one of a family is called NAME.suffix, and nothing else is")
        if name in self._metrics:
            raise _BadLineError("metric told twice")
        if value is None and not absent:
            raise _BadLineError("an absent metric without a reason")
        self._metrics[name] = MetricValue(
            name=name, unit=unit, better=declared.better, value=value, absent=absent
        )

    def _end(self, code: str) -> None:
        number = _number(code)
        if number not in (EXIT_OK, EXIT_STATE, EXIT_USAGE, EXIT_SKIP):
            raise _BadLineError("not an exit code of a workload")
        if number != EXIT_OK and not self._notes:
            raise _BadLineError("a failure without a note of its reason")
        self._exit_code = number

    def reading(self) -> Reading:
        if self._exit_code is None:
            raise self._incomplete("no end record: the program died or its output was cut")
        # A program that gives up says why and prints no samples.
        if self._exit_code == EXIT_OK or self._samples:
            self._demand_all()
        reading = Reading(
            phases=tuple(self._phases.values()),
            state=tuple(self._state.values()),
            samples=tuple(self._samples.values()),
            metrics=tuple(self._metrics.values()),
            notes=tuple(self._notes),
            exit_code=self._exit_code,
            layouts=self._told_layouts,
            vdso=self._vdso,
            loader=self._loader,
        )
        known = [field for field in contract_failures(reading) if field.value != UNKNOWN]
        if known and self._exit_code == EXIT_OK:
            raise self._incomplete(f"exit 0 although {known[0].name} does not hold")
        return reading

    def _demand_all(self) -> None:
        if self._told_layouts != self._layouts and not self._told_alone:
            raise self._incomplete(f"{self._told_layouts} layouts, not {self._layouts}")
        for name in self._windows.keys() - self._phases.keys():
            raise self._incomplete(f"no phase {name}")
        for when in _WHENS:
            for name in self._wanted(when):
                if (when, name) not in self._state:
                    raise self._incomplete(f"no fact {name} {when} the windows")
        figures = {name.partition(".")[0] for name in self._metrics}
        for name, metric in self._declared.items():
            if name not in figures and not metric.family:
                raise self._incomplete(f"no metric {name}")
        told = Counter(phase for phase, _ in self._samples)
        iterations = max(told.values(), default=0)
        # An ordinary main() may enter one phase more often than another.
        often = {name: told[name] if self._told_alone else iterations for name in self._windows}
        expected = {(name, i) for name, count in often.items() for i in range(count)}
        if not expected or self._samples.keys() != expected:
            raise self._incomplete("not one sample of each phase in each iteration")
        if any(count % self._told_layouts for count in often.values()):
            raise self._incomplete("not as many iterations in each layout")

    def _incomplete(self, cause: str) -> GuestError:
        return GuestError(cause, place=self._place)


def _number(word: str) -> int:
    if not _NUMBER.fullmatch(word):
        raise _BadLineError(f"{quoted(word)} is not a number")
    return int(word)


def _real(word: str) -> float:
    if not _REAL.fullmatch(word):
        raise _BadLineError(f"{quoted(word)} is not a number")
    if not math.isfinite(float(word)):
        raise _BadLineError(f"{quoted(word)} is larger than any number")
    return float(word)
