# SPDX-License-Identifier: GPL-2.0-or-later
"""The Go benchmark format: https://github.com/golang/proposal, 14313-benchmark-format.

A configuration line `arm: NAME` names the arm of what follows, else the file's name does; after
`boot: LABEL` or the comment `# boot: LABEL`, lines of one label are samples of one boot.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kdelta.errors import SpecError
from kdelta.foreign import words
from kdelta.foreign.record import ArmFacts, Contents, ForeignReading, Pairs, SourceFile
from kdelta.foreign.tables import TableCell
from kdelta.metric import Assume, Better, Metric
from kdelta.printable import quoted
from kdelta.verdict.series import ReplicateUnit

PREFIX = "Benchmark"
_KEY = re.compile(r"(?P<key>[^\sA-Z:][^\sA-Z:]*):(?:[ \t]+(?P<value>.*))?\Z")
# What the units of the testing package mean without a Unit line (golang.org/x/perf/benchfmt).
_KNOWN = {
    "ns/op": Better.LOWER,
    "sec/op": Better.LOWER,
    "B/op": Better.LOWER,
    "allocs/op": Better.LOWER,
    "MB/s": Better.HIGHER,
    "B/s": Better.HIGHER,
}
Units = Mapping[str, Mapping[str, str]]


def looks_like(text: str) -> bool:
    """True when a line begins as a result of this format does."""
    return bool(re.search(rf"^{PREFIX}\S*[ \t]+\d+[ \t]+\S+[ \t]+\S", text, re.MULTILINE))


def read(
    sources: Sequence[tuple[int, SourceFile]], texts: Sequence[str], labels: Mapping[int, str]
) -> Contents:
    """The results of files; unit metadata holds for all of them.  Raises SpecError.

    labels: of each source, what names its arm where no line does.
    """
    units: dict[str, dict[str, str]] = {}
    for (_, source), text in zip(sources, texts, strict=True):
        _metadata(source.name, text, units)
    counts: Counter[tuple[str, Pairs, str]] = Counter()
    readings = [
        reading
        for (number, source), text in zip(sources, texts, strict=True)
        for reading in _results(number, source.name, text, labels[number], counts)
    ]
    names = sorted({reading.metric for reading in readings})
    metrics = {name: _metric(name, units) for name in names}
    notes = tuple(
        f"{name} is kept and not judged: a line `Unit {name} better=lower` would say which"
        " direction is better"
        for name, metric in metrics.items()
        if metric is None
    )
    judged = [reading for reading in readings if metrics[reading.metric]]
    return Contents(
        metrics=tuple(metric for metric in metrics.values() if metric),
        readings=tuple(judged),
        arms=tuple(_arms(judged)),
        notes=notes,
    )


def _metric(name: str, units: Units) -> Metric | None:
    known = units.get(name, {})
    better = known.get("better") or _KNOWN.get(name)
    if not better:
        return None
    assume = Assume(known.get("assume", Assume.NOTHING))
    return Metric(name=name, unit=name, better=Better(better), assume=assume)


def _metadata(name: str, text: str, units: dict[str, dict[str, str]]) -> None:
    allowed: dict[str, list[str]] = {"better": [*Better], "assume": [*Assume]}
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


def _results(
    number: int, name: str, text: str, arm: str, counts: Counter[tuple[str, Pairs, str]]
) -> Iterator[ForeignReading]:
    config: dict[str, str] = {}
    named = _arm_key(text)
    for at, line in enumerate(text.splitlines(), start=1):
        if line.startswith(PREFIX):
            for unit, value, group in _measurements(name, at, line):
                key = (config.get(named, arm), group, unit)
                counts[key] += 1
                boot = config.get("boot", "")
                yield ForeignReading(
                    source=number,
                    line=at,
                    arm=key[0],
                    metric=unit,
                    value=value,
                    replicate=f"{key[0]} {boot or f'r{counts[key]}'}",
                    group=group,
                    round=counts[key],
                    boot_id=boot,
                )
        elif found := _KEY.match(line.removeprefix("# ")):
            config[found["key"]] = (found["value"] or "").strip()


def _arm_key(text: str) -> str:
    """The key of the file's lines that names the arm: arm, else kernel, commit ... if it varies."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if cut := _KEY.match(line.removeprefix("# ")):
            found.setdefault(cut["key"], set()).add((cut["value"] or "").strip())
    varied = [key for key, values in found.items() if key in words.ARM and len(values) > 1]
    return min(varied, key=words.arm_rank) if varied and "arm" not in found else "arm"


def _measurements(name: str, at: int, line: str) -> Iterator[tuple[str, float, Pairs]]:
    cells = line.split()
    place = f"{name}: line {at}"
    title = cells[0].removeprefix(PREFIX)
    if len(cells) < 4 or len(cells) % 2:
        raise SpecError(
            "a result needs a name, a count, and pairs of value and unit",
            place=f"{place}, column {len(line)}",
        )
    TableCell(cells[1], name, at, "iterations").integer()
    group = (("benchmark", title),) if title else ()
    for value, unit in zip(cells[2::2], cells[3::2], strict=True):
        yield unit, TableCell(value, name, at, unit).number(), group


def _arms(readings: Sequence[ForeignReading]) -> Iterator[ArmFacts]:
    boots: dict[tuple[str, Pairs], bool] = {}
    for item in readings:
        key = (item.arm, item.group)
        boots[key] = boots.get(key, True) and bool(item.boot_id)
    for (arm, group), named in boots.items():
        yield ArmFacts(
            arm=arm, group=group, facts=(), replicate=ReplicateUnit.BOOT if named else None
        )
