# SPDX-License-Identifier: GPL-2.0-or-later
"""The Go benchmark format: https://github.com/golang/proposal, 14313-benchmark-format.

A configuration line `arm: NAME` names the arm of what follows, else the file's name does; after
`boot: LABEL` or the comment `# boot: LABEL`, lines of one label are samples of one boot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kdelta.errors import SpecError
from kdelta.imports.declared import Collected, Labels, Sources
from kdelta.imports.mapping import Mapping as Declared
from kdelta.imports.record import ArmFacts, Contents, ImportReading, Pairs, SourceFile
from kdelta.imports.table import TableCell
from kdelta.metric import Assume, Better
from kdelta.printable import quoted
from kdelta.verdict.series import ReplicateUnit

_PREFIX = "Benchmark"
# Verbose runs print a name alone before its result; other words begin with a small letter.
_RESULT = re.compile(rf"{_PREFIX}(?![a-z])\S*[ \t]+\S")
_KEY = re.compile(r"(?P<key>[^\sA-Z:][^\sA-Z:]*):(?:[ \t]+(?P<value>.*))?\Z")
# What the units of the testing package mean without a Unit line (golang.org/x/perf/benchfmt).
_KNOWN = {
    **dict.fromkeys(("ns/op", "sec/op", "B/op", "allocs/op"), Better.LOWER),
    **dict.fromkeys(("MB/s", "B/s"), Better.HIGHER),
}
_Units = Mapping[str, Mapping[str, str]]


def is_benchfmt(text: str) -> bool:
    """True when a line begins as a result of this format does."""
    return bool(re.search(rf"^{_PREFIX}\S*[ \t]+\d+[ \t]+\S+[ \t]+\S", text, re.MULTILINE))


def read(sources: Sources, labels: Labels, mapping: Declared | None) -> Contents:
    """The results of files; unit metadata holds for all of them.  Raises SpecError."""
    units: dict[str, dict[str, str]] = {}
    for _, source in sources:
        _metadata(source.name, source.text, units)
    found = Collected(mapping)
    for number, source in sources:
        _results(found, number, source, labels[number], units)
    return replace(found.contents(None), arms=tuple(_arms(found.readings)))


def _metadata(name: str, text: str, units: dict[str, dict[str, str]]) -> None:
    allowed: dict[str, list[str]] = {"better": [Better.LOWER, Better.HIGHER], "assume": [*Assume]}
    for number, line in enumerate(text.splitlines(), start=1):
        word, *fields = line.split() or [""]
        if word != "Unit":
            continue
        place = f"{name}: line {number}"
        if not fields:
            raise SpecError("a Unit line without a unit", place=place)
        for field in fields[1:]:
            key, sign, value = field.partition("=")
            if not (key and sign):
                raise SpecError(f"{quoted(field)} is not key=value", place=place)
            if key in allowed and value not in allowed[key]:
                wanted = " or ".join(allowed[key])
                raise SpecError(f"{key} is {quoted(value)}, not {wanted}", place=place)
            have = units.setdefault(fields[0], {}).setdefault(key, value)
            if have != value:
                raise SpecError(f"{key} of {fields[0]} was {have} before", place=place)


def _results(found: Collected, number: int, source: SourceFile, label: str, units: _Units) -> None:
    config: dict[str, str] = {}
    for at, line in enumerate(source.text.splitlines(), start=1):
        if _RESULT.match(line):
            arm, boot = config.get("arm", label), config.get("boot", "")
            for unit, value, group in _measurements(source.name, at, line):
                known = units.get(unit, {})
                better = Better(known["better"]) if "better" in known else _KNOWN.get(unit)
                assume = Assume(known.get("assume", Assume.NOTHING))
                if found.judged(unit, unit, better, f"{source.name}: line {at}", assume):
                    found.value(number, at, arm, unit, value, boot, group=group, boot_id=boot)
        elif key := _KEY.match(line.removeprefix("# ")):
            config[key["key"]] = (key["value"] or "").strip()


def _measurements(name: str, at: int, line: str) -> Iterator[tuple[str, float, Pairs]]:
    cells = line.split()
    title = cells[0].removeprefix(_PREFIX)
    if len(cells) < 4 or len(cells) % 2:
        cause = "a result needs a name, a count, and pairs of value and unit"
        raise SpecError(cause, place=f"{name}: line {at}")
    TableCell(cells[1], name, at, "iterations").integer()
    group = (("benchmark", title),) if title else ()
    for value, unit in zip(cells[2::2], cells[3::2], strict=True):
        yield unit, TableCell(value, name, at, unit).number(), group


def _arms(readings: Sequence[ImportReading]) -> Iterator[ArmFacts]:
    boots: dict[tuple[str, Pairs], bool] = {}
    for item in readings:
        key = (item.arm, item.group)
        boots[key] = boots.get(key, True) and bool(item.boot_id)
    for (arm, group), named in boots.items():
        yield ArmFacts(arm=arm, group=group, replicate=ReplicateUnit.BOOT if named else None)
