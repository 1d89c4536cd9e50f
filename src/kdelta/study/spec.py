# SPDX-License-Identifier: GPL-2.0-or-later
"""A study as its author writes it: strict TOML to frozen values, and back to TOML.

Every error has its key and what was expected.  Only the shape is checked here.  Whether a workload,
a scenario or a kernel exists is for the run to say, since a study may be written on another
machine.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import tomli_w
from msgspec import Meta, Struct

from kdelta import files
from kdelta.errors import SpecError
from kdelta.machine.axes import MachineSettings, Matrix
from kdelta.printable import printable, quoted
from kdelta.sample import USUAL_TIMEOUT_S, Instrument
from kdelta.study import probes
from kdelta.study.probes import wrong
from kdelta.workload import LIST_SCENARIOS

_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
# What msgspec says is wrong, and where.
_REFUSED = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.S)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_KEY = re.compile(r"Object contains unknown field `(.*)`", re.S)
_MISSING_KEY = re.compile(r"Object missing required field `(.*)`")


def _explained(
    error: msgspec.ValidationError, data: object, shape: Any, place: str, homes: Mapping[str, str]
) -> SpecError:
    """What of a document is wrong, under its own key.  homes: dotted names of keys, for advice."""
    found = _REFUSED.fullmatch(str(error))
    what, path = (found[1], found[2] or "") if found else (str(error), "")
    unknown = _UNKNOWN_KEY.fullmatch(what)
    try:
        for name, number in _STEP.findall(path):
            kind = _unwrapped(shape)[0]
            shape = _fields(kind)[name] if name else get_args(kind)[0]
            data = data[name or int(number)]  # type: ignore[index]
        kind, meta = _unwrapped(shape)
        known = [*_fields(kind)] if unknown else []
    except (LookupError, TypeError):  # a key whose name reads like msgspec's own words
        return SpecError(f"not a study: {quoted(str(error))}", place=place)
    where = f"{place}: {path.removeprefix('.')}" if path else place
    if unknown:
        action = _nearest(unknown[1], known, homes)
        return SpecError(f"unknown key {shown(unknown[1])}", place=where, action=action)
    if missing := _MISSING_KEY.fullmatch(what):
        return SpecError(f"the key {missing[1]} is missing", place=where, action="add it")
    action = (meta.extra or {}).get("action", "") if meta is not None else ""
    got = shown(data)
    if get_origin(kind) is tuple and isinstance(data, list | tuple):
        got = f"{len(data)} of them"
    return SpecError(f"expected {_wanted(shape)}, got {got}", place=where, action=action)


def _fields(kind: Any) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _unwrapped(kind: Any) -> tuple[Any, Any]:
    if get_origin(kind) is Annotated:
        return get_args(kind)[0], next((m for m in kind.__metadata__ if isinstance(m, Meta)), None)
    options = [one for one in get_args(kind) if one is not type(None)]
    if len(options) == 1 and get_origin(kind) is not tuple:
        return _unwrapped(options[0])
    return kind, None


def _wanted(kind: Any) -> str:
    plain, meta = _unwrapped(kind)
    if isinstance(plain, type) and issubclass(plain, Struct):
        return "a table"
    if get_origin(plain) is tuple:
        low, high = (meta.min_length or 0, meta.max_length or 0) if meta else (0, 64)
        item = _unwrapped(get_args(plain)[0])[0]
        table = isinstance(item, type) and issubclass(item, Struct)
        what = "tables" if table else "integers" if item is int else "strings"
        return f"an array of {low} to {high} {what}"
    if get_origin(plain) is Literal:
        return " or ".join(f'"{one}"' for one in get_args(plain))
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        return " or ".join(f'"{one}"' for one in plain)
    if meta is not None and meta.description:
        return str(meta.description)
    bounds = [("from", "ge"), ("above", "gt"), ("to", "le"), ("below", "lt")]
    limits = [(word, getattr(meta, name, None)) for word, name in bounds]
    return _NAMES[plain] + "".join(f" {word} {at}" for word, at in limits if at is not None)


def shown(value: object) -> str:
    """A user's value, bounded and safe for a terminal."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "an array"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else printable(str(value), 80)


def _nearest(name: str, here: Sequence[str], homes: Mapping[str, str]) -> str:
    if close := difflib.get_close_matches(name, here, n=1):
        return f"did you mean {close[0]}?"
    if close := difflib.get_close_matches(name, homes, n=1, cutoff=0.8):
        home = homes[close[0]]
        return f"did you mean {home}{'' if '.' in home else ', above all tables'}?"
    return f"known keys: {', '.join(here)}"


MAX_BYTES = 65536
MAX_TRIALS = 10000

# Control characters and direction overrides could make a terminal show another text than the file.
_HIDDEN = r"\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff"

_NAME = r"\A[a-z0-9][a-z0-9-]{0,63}\Z"
Name = Annotated[
    str,
    Meta(pattern=_NAME, description="a name of lower-case letters, digits and dashes, at most 64"),
]
_LINE, _TEXT = rf"\A(?=.*\S)[^{_HIDDEN}]{{1,200}}\Z", rf"\A(?:\n|[^{_HIDDEN}]){{0,4000}}\Z"
Line = Annotated[str, Meta(pattern=_LINE, description="one line of 1 to 200 printable characters")]
Text = Annotated[str, Meta(pattern=_TEXT, description="printable text of at most 4000 characters")]
ProbeName = Annotated[str, Meta(pattern=probes.PATTERN, description=probes.DESCRIPTION)]
ScenarioName = Annotated[
    str,
    Meta(
        pattern=rf"\A(?:[A-Za-z0-9*?][A-Za-z0-9_.*?-]{{0,63}}|[^{_HIDDEN}:*?]{{1,400}}\.c)"
        r":[A-Za-z0-9*?][A-Za-z0-9_.*?-]{0,63}\Z",
        description='"workload:scenario" or "./FILE.c:scenario"',
        extra={"action": LIST_SCENARIOS},
    ),
]
_KERNEL = rf"\A(?! )[^{_HIDDEN}]{{1,500}}(?<! )\Z"
KernelReference = Annotated[
    str, Meta(pattern=_KERNEL, description='a kernel reference in quotes, such as "6.17"')
]
_FUNCTIONS = r"\A[A-Za-z0-9_.*?\[\] ]{1,200}\Z"
Pattern = Annotated[
    str,
    Meta(pattern=_FUNCTIONS, description="a function's name, in which * and ? stand for others"),
]


class TimeMachine(StrEnum):
    """Where time is measured.  TCG is here only to be refused with the reason."""

    HOST = "host"
    KVM = "kvm"
    TCG = "tcg"


class Replicate(StrEnum):
    """What one trial of the time instrument repeats."""

    PROCESS = "process"  # the workload's process, within one boot of the machine
    BOOT = "boot"  # the boot


class FigureCount(StrEnum):
    """What a figure counts of functions."""

    CALLS = "calls"
    INSNS = "insns"


class FigurePer(StrEnum):
    """What a figure's count is divided by."""

    WINDOW = "window"
    OPERATION = "operation"


class Figure(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something to tell of each kernel out of the functions that it executed (docs/study.md)."""

    name: Line
    functions: Annotated[tuple[Pattern, ...], Meta(min_length=1, max_length=64)]
    what: Text = ""
    count: FigureCount = FigureCount.CALLS
    per: FigurePer = FigurePer.WINDOW
    phase: Annotated[str, Meta(pattern=r"\A[a-z0-9_]{0,64}\Z", description="a phase")] = ""
    divide: Annotated[int, Meta(ge=0, le=2**50)] = 0
    of: Annotated[str, Meta(pattern=r"\A[a-z0-9_]{0,64}\Z", description="a metric")] = ""


class PlanSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often and how patiently (docs/study.md)."""

    rounds: Annotated[int, Meta(ge=1, le=100)] = 1
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    fresh_boot: bool = False
    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 2
    timeout_s: Annotated[int, Meta(ge=1, le=86400)] = USUAL_TIMEOUT_S
    single_kernel: bool = False
    reuse: bool = True
    gates: bool = True
    probes: Annotated[tuple[ProbeName, ...], Meta(max_length=32)] = ()


class TimeSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the time instrument measures (docs/study.md)."""

    machine: TimeMachine = TimeMachine.HOST
    replicate: Replicate = Replicate.PROCESS
    sandwich: bool = True
    iterations: Annotated[int, Meta(ge=1, le=10000)] = 32
    warmup: Annotated[int, Meta(ge=0, le=10000)] = 8
    tolerance_percent: Annotated[float, Meta(ge=1e-6, le=100)] = 2.0
    alpha: Annotated[float, Meta(ge=1e-9, lt=0.5)] = 0.01
    want_valid: Annotated[int, Meta(ge=0, le=100)] = 0
    hugepages: bool = False


class Thresholds(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """step_percent: a change of fewer percent than this is SAME."""

    step_percent: Annotated[float, Meta(ge=0, le=100)] = 1.0


class Study(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is compared.  kernels: in table order, the first is the baseline.  gap: a good and a
    regressed one; of the others it is said how much of the difference they close.
    """

    name: Name
    title: Line
    question: Text = ""
    instrument: Instrument = Instrument.EXACT
    scenarios: Annotated[tuple[ScenarioName, ...], Meta(min_length=1, max_length=512)]
    kernels: Annotated[tuple[KernelReference, ...], Meta(min_length=1, max_length=64)]
    machine: MachineSettings = MachineSettings()
    plan: PlanSettings = PlanSettings()
    time: TimeSettings = TimeSettings()
    trace: probes.TraceSettings = probes.TraceSettings()
    thresholds: Thresholds = Thresholds()
    matrix: Matrix = Matrix()
    gap: Annotated[tuple[KernelReference, ...], Meta(max_length=2)] = ()
    figures: Annotated[tuple[Figure, ...], Meta(max_length=64)] = ()


_TABLES: dict[str, type[Struct]] = {
    field.name: field.type
    for field in msgspec.structs.fields(Study)
    if isinstance(field.type, type) and issubclass(field.type, Struct)
}
_ARRAYS = ("figures",)
_NOT_THEIRS = re.compile(r"""(?:^|[\s"])(lockdown=(?!none)|(?:init|rdinit|console|panic)=)""")


def load(path: Path) -> Study:
    """The study in a TOML file.  Raises SpecError naming the file and the key."""
    place = str(path)
    data = files.given(path, MAX_BYTES, "give the path of a study's TOML file", "the study")
    try:
        return from_text(data.decode(), place)
    except UnicodeDecodeError as error:
        cause = f"not UTF-8 at byte {error.start}"
        raise SpecError(cause, place=place, action="save it as UTF-8 text") from error


def from_text(text: str, place: str) -> Study:
    """The study in a TOML text.  Raises SpecError; `place` names the text in its sentence."""
    try:
        data = files.toml_of(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not valid TOML: {error}", place=place) from error
    return _study(data, place)


def from_arguments(scenarios: Sequence[str], kernels: Sequence[str], **settings: object) -> Study:
    """The study of a command line.  settings: keys of any of its tables; None means not given."""
    first = scenarios[0].rpartition("/")[2] if scenarios else ""
    named = [name.rpartition("/")[2] for name in scenarios]
    slug = "".join(char if char.isalnum() and char.isascii() else "-" for char in first.lower())
    title = f"{', '.join(named)} over {', '.join(kernels)}"
    base: dict[str, Any] = {
        "name": slug.strip("-")[:64] or "study",
        "title": "".join(filter(str.isprintable, title))[:200].strip(),
        "scenarios": list(scenarios),
        "kernels": list(kernels),
        "plan": {"single_kernel": _single(kernels)},
    }
    return _study(_merged(base, settings), "command line")


def with_settings(study: Study, **settings: object) -> Study:
    """The study with some keys replaced, checked again; None means not given."""
    base = _values(study)
    kernels = settings.get("kernels")
    if isinstance(kernels, list | tuple) and _single(kernels):
        base["plan"]["single_kernel"] = True
    return _study(_merged(base, settings), "command line")


def to_toml(study: Study) -> str:
    """The study as TOML text; `from_text` of it is equal to the study."""
    return tomli_w.dumps(_values(study))


def _values(study: Study) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(study)
    if study.plan.seed is None:
        del found["plan"]["seed"]
    return found


def digest(study: Study) -> str:
    """SHA-256 (hexadecimal) of the study's canonical JSON without what has its default."""
    return hashlib.sha256(msgspec.json.encode(_told(study), order="sorted")).hexdigest()


_own_fields = functools.cache(msgspec.structs.fields)


def _told(struct: Struct) -> dict[str, Any]:
    """The values that are not their defaults, tables by their own."""
    found: dict[str, Any] = {}
    for field in _own_fields(type(struct)):
        value, made = getattr(struct, field.name), field.default_factory
        if isinstance(value, Struct):
            found |= {field.name: told} if (told := _told(value)) else {}
        elif value != (field.default if made is msgspec.NODEFAULT else made()):
            found[field.name] = msgspec.to_builtins(value)
    return found


def _study(data: Mapping[str, object], place: str) -> Study:
    try:
        study = msgspec.convert(data, Study)
    except msgspec.ValidationError as error:
        raise _explained(error, data, Study, place, dict(_dotted())) from None
    _no_duplicates(study.scenarios, place, "scenarios")
    _no_duplicates(study.kernels, place, "kernels")
    known = set(study.gap) <= set(study.kernels) or any(map(is_range, study.kernels))
    if study.gap and not (len(study.gap) == len({*study.gap}) == 2 and known):
        cause = "a gap is two of the kernels, the good and the regressed one"
        raise wrong(place, "gap", cause, 'write, for example, gap = ["6.16", "6.17"]')
    traced = not study.instrument.traits.judged
    probed = bool(study.plan.probes)
    probes.check_trace(study.trace, study.kernels, place, tracing=traced, probed=probed)
    _no_duplicates(study.trace.watch, place, "trace.watch")
    if study.instrument.traits.interleaved:
        _check_time(study, place)
    elif _single(study.kernels) and not study.plan.single_kernel:
        action = "add another, or set plan.single_kernel = true to measure just this one"
        raise wrong(place, "kernels", "one kernel compares nothing", action)
    _check_cmdlines(study, place)
    for name in Matrix.__struct_fields__:
        values = [str(value) for value in getattr(study.matrix, name)]
        _no_duplicates(values, place, f"matrix.{name}")
    for point in points(study):
        sizes = [pair.partition("=")[0] for pair in point.machine.mthp.split(",")]
        _no_duplicates(sizes, place, "mthp")
    arms = (len(study.kernels) + has_control(study)) * len(points(study))
    trials = arms * len(study.scenarios) * study.plan.rounds
    if trials > MAX_TRIALS:
        cause = f"arms x scenarios x rounds are {trials} trials, more than {MAX_TRIALS}"
        raise SpecError(cause, place=place, action="split the study or lower plan.rounds")
    return study


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPoint:
    """One machine of a study's matrix.  axes: the keys that vary, and their values here."""

    machine: MachineSettings
    axes: dict[str, str]


def points(study: Study) -> tuple[MatrixPoint, ...]:
    """The machines of a study, one at least; the last axis varies fastest."""
    names = [name for name in Matrix.__struct_fields__ if getattr(study.matrix, name)]
    return tuple(
        MatrixPoint(
            machine=msgspec.structs.replace(study.machine, **dict(zip(names, values, strict=True))),
            axes={name: str(value) for name, value in zip(names, values, strict=True)},
        )
        for values in itertools.product(*(getattr(study.matrix, name) for name in names))
    )


def is_range(reference: str) -> bool:
    """True for 6.12..7.2, which stands for every series between the two."""
    return ".." in reference and not set(":/") & set(reference)


def _single(kernels: Sequence[str]) -> bool:
    return len(kernels) == 1 and not is_range(kernels[0])


def has_control(study: Study) -> bool:
    """True when each point repeats its first kernel at the end of a round."""
    return study.instrument.traits.interleaved and study.time.sandwich


def _check_time(study: Study, place: str) -> None:
    if len(study.kernels) == 1 and not study.time.sandwich and not study.plan.single_kernel:
        action = "add another, or set time.sandwich = true to compare it with itself"
        raise wrong(place, "kernels", "one kernel compares nothing", action)
    if study.time.machine is TimeMachine.TCG:
        cause = "wall-clock time under emulation is evidence of nothing"
        action = 'use "host" or "kvm", or count instructions with instrument = "exact"'
        raise wrong(place, "time.machine", cause, action)
    if study.time.machine is not TimeMachine.HOST:
        return
    if len(points(study)) > 1 or points(study)[0].axes:
        cause = "this host is one machine, its CPUs and settings are not kdelta's to change"
        action = 'leave the matrix out, or use time.machine = "kvm" or instrument = "exact"'
        raise wrong(place, "matrix", cause, action)
    for reference in study.kernels:
        if reference != "host" and not reference.startswith("host:"):
            cause = f"{reference!r} is not a kernel that this host can run"
            action = 'with time.machine = "host" use "host" (what runs now) or "host:RELEASE"'
            raise wrong(place, "kernels", cause, action)
    if len(study.kernels) > 1 and study.time.replicate is not Replicate.BOOT:
        action = 'set it to "boot", and time it on a pool of kind "host": --on lab.toml'
        cause = "kernels of one host need a boot for each trial"
        raise wrong(place, "time.replicate", cause, action)


def _check_cmdlines(study: Study, place: str) -> None:
    """By these a guest begins, is heard, ends and asks for orders: a kernel would be blamed."""
    for point in points(study):
        if found := _NOT_THEIRS.search(point.machine.cmdline):
            key = "matrix.cmdline" if "cmdline" in point.axes else "machine.cmdline"
            cause = f"a guest of kdelta's needs its own {found[1]}"
            action = f"leave {found[1]} out; such a machine of yours is measured as a host"
            raise wrong(place, key, cause, action)


def _no_duplicates(values: Sequence[str], place: str, key: str) -> None:
    for at, value in enumerate(values):
        if (first := values.index(value)) != at:
            cause = f"{shown(value)} stands twice, first as {key}[{first}]"
            raise wrong(place, f"{key}[{at}]", cause, "remove one")


def _merged(base: dict[str, Any], settings: Mapping[str, object]) -> dict[str, Any]:
    homes = dict(_dotted())
    for name, value in settings.items():
        if name not in homes or name in (*_TABLES, *_ARRAYS):
            raise TypeError(f"a study has no key {name}")
        if value is None:
            continue
        table, _, key = homes[name].rpartition(".")
        target = base.setdefault(table, {}) if table else base
        target[key] = value
    return base


def _dotted() -> Iterator[tuple[str, str]]:
    for name in Study.__struct_fields__:
        yield name, name
    tables = [pair for pair in _TABLES.items() if pair[0] != "matrix"]  # its keys are machine's
    for table, shape in tables:
        for name in shape.__struct_fields__:
            yield name, f"{table}.{name}"
