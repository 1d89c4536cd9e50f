# SPDX-License-Identifier: GPL-2.0-or-later
"""A study as its author writes it: strict TOML to frozen values, and back to TOML.

Only the shape is checked here.  Whether a workload, a scenario or a kernel exists is for the run
to say, since a study may be written on another machine.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from kdelta.errors import SpecError

MAX_BYTES = 65536
MAX_TRIALS = 10000
LIST_SCENARIOS = "list the scenarios with: kdelta workloads"

_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
# Control characters and direction overrides could make a terminal show another text than the file.
_HIDDEN = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"

Name = Annotated[
    str,
    Meta(
        pattern=r"\A[a-z0-9][a-z0-9-]{0,63}\Z",
        description="a name of lower-case letters, digits and dashes, at most 64",
    ),
]
Line = Annotated[
    str,
    Meta(
        pattern=rf"\A[^{_HIDDEN}]{{1,200}}\Z",
        description="one line of 1 to 200 printable characters",
    ),
]
Text = Annotated[
    str,
    Meta(
        pattern=rf"\A(?:\n|[^{_HIDDEN}]){{0,4000}}\Z",
        description="printable text of at most 4000 characters",
    ),
]
ScenarioName = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}:[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z",
        description='"workload:scenario"',
    ),
]
KernelReference = Annotated[
    str,
    Meta(
        pattern=rf"\A(?! )[^{_HIDDEN}]{{1,500}}(?<! )\Z",
        description='a kernel reference in quotes, such as "6.17"',
    ),
]
Word = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.,+=-]{0,199}\Z",
        description="one word of letters, digits and _ . , + = -",
    ),
]
CommandLine = Annotated[
    str,
    Meta(
        pattern=r"\A[\x20-\x7e]{0,1000}\Z",
        description="printable ASCII of at most 1000 characters",
    ),
]


class Instrument(StrEnum):
    """What measures.  Counts of one instrument are never mixed with another's."""

    EXACT = "exact"
    TIME = "time"


class TimeMachine(StrEnum):
    """Where time is measured.  TCG is here only to be refused with the reason."""

    HOST = "host"
    KVM = "kvm"
    TCG = "tcg"


class Replicate(StrEnum):
    """What one trial of the time instrument repeats."""

    PROCESS = "process"  # the workload's process, within one boot of the machine
    BOOT = "boot"  # the boot


class MachineSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The machine that every arm of a study gets.

    arch and flavour are Debian's words; cpu_model is QEMU's; cmdline is added to the kernel's own.
    """

    arch: Word = "amd64"
    flavour: Word = "cloud"
    cpus: Annotated[int, Meta(ge=1, le=64)] = 1
    memory_mib: Annotated[int, Meta(ge=256, le=65536)] = 1024
    cpu_model: Word = "max"
    cmdline: CommandLine = ""


class PlanSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often and how patiently.

    rounds: trials of each arm and scenario; seed: None lets the run choose and record one;
    max_attempts: of one trial, when this machine (never the guest) fails; timeout_s: of one
    attempt, in seconds; single_kernel: allow a study of one kernel, which compares nothing.
    """

    rounds: Annotated[int, Meta(ge=1, le=100)] = 1
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    fresh_boot: bool = False
    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 2
    timeout_s: Annotated[int, Meta(ge=1, le=86400)] = 120
    single_kernel: bool = False


class TimeSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the time instrument measures.

    replicate: for the host only; KVM guests boot for each trial.  sandwich: repeat the first
    kernel at the end of each round as the control.  iterations, warmup: of the workload in a
    trial.  tolerance_percent: a change whose whole interval lies within it is SAME.  alpha: the
    share of false alarms that is allowed.  sequential: stop when every comparison is decided.
    want_valid: stop when every arm has so many valid trials, plan.rounds being the attempts; 0: run
    all rounds.  hugepages: a KVM guest's memory is reserved huge pages of the host.
    """

    machine: TimeMachine = TimeMachine.HOST
    replicate: Replicate = Replicate.PROCESS
    sandwich: bool = True
    iterations: Annotated[int, Meta(ge=1, le=10000)] = 32
    warmup: Annotated[int, Meta(ge=0, le=10000)] = 8
    tolerance_percent: Annotated[float, Meta(gt=0, le=100)] = 2.0
    alpha: Annotated[float, Meta(gt=0, lt=0.5)] = 0.01
    sequential: bool = False
    want_valid: Annotated[int, Meta(ge=0, le=100)] = 0
    hugepages: bool = False


class Thresholds(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """step_percent: a change of fewer percent than this is SAME."""

    step_percent: Annotated[float, Meta(ge=0, le=100)] = 1.0


class Study(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is compared.  Kernels are in table order; the first is the baseline."""

    name: Name
    title: Line
    question: Text = ""
    instrument: Instrument = Instrument.EXACT
    scenarios: Annotated[tuple[ScenarioName, ...], Meta(min_length=1, max_length=64)]
    kernels: Annotated[tuple[KernelReference, ...], Meta(min_length=1, max_length=64)]
    machine: MachineSettings = MachineSettings()
    plan: PlanSettings = PlanSettings()
    time: TimeSettings = TimeSettings()
    thresholds: Thresholds = Thresholds()


_TABLES: dict[str, type[Struct]] = {
    "machine": MachineSettings,
    "plan": PlanSettings,
    "time": TimeSettings,
    "thresholds": Thresholds,
}
_S = TypeVar("_S", bound=Struct)


def load(path: Path) -> Study:
    """The study in a TOML file.  Raises SpecError naming the file and the key."""
    place = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(
            f"the study cannot be read: {error.strerror or error}",
            place=place,
            action="give the path of a study's TOML file",
        ) from error
    if len(data) > MAX_BYTES:
        raise SpecError(
            f"the file is larger than {MAX_BYTES} bytes", place=place, action="is it a study?"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SpecError(
            f"not UTF-8 at byte {error.start}", place=place, action="save it as UTF-8 text"
        ) from error
    return from_text(text, place)


def from_text(text: str, place: str) -> Study:
    """The study in a TOML text.  Raises SpecError; `place` names the text in its sentence."""
    try:
        data = tomllib.loads(text)
    except RecursionError as error:
        raise SpecError("not a study: nested too deeply", place=place) from error
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not valid TOML: {error}", place=place) from error
    except ValueError as error:  # int() refuses thousands of digits
        raise SpecError("not a study: a number has too many digits", place=place) from error
    return _study(data, place)


def from_arguments(scenarios: Sequence[str], kernels: Sequence[str], **settings: object) -> Study:
    """The study that a command line describes, without any file.

    settings: keys of any table of a study (rounds=3, cpus=2, title="..."); None means not given.
    """
    first = scenarios[0] if scenarios else ""
    slug = "".join(char if char.isalnum() and char.isascii() else "-" for char in first.lower())
    title = f"{', '.join(scenarios)} over {', '.join(kernels)}"
    base: dict[str, Any] = {
        "name": slug.strip("-")[:64] or "study",
        "title": "".join(filter(str.isprintable, title))[:200].strip(),
        "scenarios": list(scenarios),
        "kernels": list(kernels),
        "plan": {"single_kernel": len(kernels) == 1},
    }
    return _study(_merged(base, settings), "command line")


def with_settings(study: Study, **settings: object) -> Study:
    """The study with some keys replaced, checked again; None means not given.

    kernels=["6.17"] asks for a single kernel explicitly.
    """
    base: dict[str, Any] = msgspec.to_builtins(study)
    if study.plan.seed is None:
        del base["plan"]["seed"]
    kernels = settings.get("kernels")
    if isinstance(kernels, list | tuple) and len(kernels) == 1:
        base["plan"]["single_kernel"] = True
    return _study(_merged(base, settings), "command line")


def to_toml(study: Study) -> str:
    """The study as TOML text; `from_text` of it is equal to the study."""
    tables = [(name, getattr(study, name)) for name in _TABLES]
    lines = [*_assignments(study, skip=_TABLES)]
    for name, table in tables:
        lines += ["", f"[{name}]", *_assignments(table, skip=())]
    return "\n".join(lines) + "\n"


def digest(study: Study) -> str:
    """SHA-256 (hexadecimal) of the study's canonical JSON: equal studies, equal digests."""
    text = json.dumps(msgspec.to_builtins(study), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _study(data: Mapping[str, object], place: str) -> Study:
    study = _struct(data, Study, place, "")
    _no_duplicates(study.scenarios, place, "scenarios")
    _no_duplicates(study.kernels, place, "kernels")
    if study.instrument is Instrument.TIME:
        _check_time(study, place)
    elif len(study.kernels) == 1 and not study.plan.single_kernel:
        raise SpecError(
            "one kernel compares nothing",
            place=f"{place}: kernels",
            action="add another, or set plan.single_kernel = true to measure just this one",
        )
    trials = arm_count(study) * len(study.scenarios) * study.plan.rounds
    if trials > MAX_TRIALS:
        raise SpecError(
            f"kernels x scenarios x rounds are {trials} trials, more than {MAX_TRIALS}",
            place=place,
            action="split the study or lower plan.rounds",
        )
    return study


def arm_count(study: Study) -> int:
    """Arms of a study: its kernels and, in a sandwich, the control."""
    sandwich = study.instrument is Instrument.TIME and study.time.sandwich
    return len(study.kernels) + sandwich


def _check_time(study: Study, place: str) -> None:
    """The rules of the time instrument that no single key can state."""
    if len(study.kernels) == 1 and not study.time.sandwich and not study.plan.single_kernel:
        raise SpecError(
            "one kernel compares nothing",
            place=f"{place}: kernels",
            action="add another, or set time.sandwich = true to compare it with itself",
        )
    if study.time.machine is TimeMachine.TCG:
        raise SpecError(
            "wall-clock time under emulation is evidence of nothing",
            place=f"{place}: time.machine",
            action='use "host" or "kvm", or count instructions with instrument = "exact"',
        )
    if study.time.machine is not TimeMachine.HOST:
        return
    for reference in study.kernels:
        if reference != "host" and not reference.startswith("host:"):
            raise SpecError(
                f"{reference!r} is not a kernel that this host can run",
                place=f"{place}: kernels",
                action='with time.machine = "host" use "host" (what runs now) or "host:RELEASE"',
            )
    if len(study.kernels) > 1 and study.time.replicate is not Replicate.BOOT:
        raise SpecError(
            "kernels of one host need a boot for each trial",
            place=f"{place}: time.replicate",
            action='set it to "boot"',
        )


def _struct(data: object, shape: type[_S], place: str, key: str) -> _S:
    """`data` as `shape`, every value checked under its own key."""
    where = f"{place}: {key}" if key else place
    if not isinstance(data, Mapping):
        raise SpecError(f"expected a table, got {_shown(data)}", place=where)
    fields = {field.name: field for field in msgspec.structs.fields(shape)}
    for name in data:
        if name not in fields:
            raise SpecError(
                f"unknown key {_shown(name)}", place=where, action=_nearest(name, list(fields))
            )
    for name, field in fields.items():
        if field.required and name not in data:
            raise SpecError(f"the key {name} is missing", place=where, action="add it")
    prefix = f"{key}." if key else ""
    return shape(
        **{name: _value(data[name], fields[name].type, place, prefix + name) for name in data}
    )


def _value(value: object, kind: Any, place: str, key: str) -> Any:
    """`value` as `kind`; a table and a list are entered, so that the error names the exact key."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _struct(value, kind, place, key)
    plain, meta = _unwrapped(kind)
    if get_origin(plain) is tuple:
        return _array(value, get_args(plain)[0], meta, place, key)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise SpecError(
            f"expected {_wanted(kind)}, got {_shown(value)}",
            place=f"{place}: {key}",
            action=LIST_SCENARIOS if kind is ScenarioName else "",
        ) from None


def _array(value: object, item: Any, meta: Meta, place: str, key: str) -> tuple[Any, ...]:
    low, high = meta.min_length or 0, meta.max_length or 0
    if not isinstance(value, list | tuple) or not low <= len(value) <= high:
        got = f"{len(value)} of them" if isinstance(value, list | tuple) else _shown(value)
        raise SpecError(
            f"expected an array of {low} to {high} strings, got {got}", place=f"{place}: {key}"
        )
    return tuple(_value(one, item, place, f"{key}[{at}]") for at, one in enumerate(value))


def _unwrapped(kind: Any) -> tuple[Any, Any]:
    """The bare type of an annotation (optional or not) and its Meta, or None."""
    if get_origin(kind) is Annotated:
        return get_args(kind)[0], kind.__metadata__[0]
    options = [one for one in get_args(kind) if one is not type(None)]
    if len(options) == 1 and get_origin(kind) is not tuple:
        return _unwrapped(options[0])
    return kind, None


def _wanted(kind: Any) -> str:
    """What a key takes, in words."""
    plain, meta = _unwrapped(kind)
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        words = " or ".join(f'"{one}"' for one in plain)
        return words if len(plain) > 1 else f"{words} (the only one available in this version)"
    if meta is not None and meta.description:
        return str(meta.description)
    limits = "" if meta is None else f" from {meta.ge} to {meta.le}"
    return _NAMES[plain] + limits


def _shown(value: object) -> str:
    """A user's value, bounded and safe for a terminal."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "an array"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    text = json.dumps(value) if isinstance(value, str | bool) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _nearest(name: str, here: Sequence[str]) -> str:
    """Advice for an unknown key: the nearest one of its table, else of another table."""
    if close := difflib.get_close_matches(name, here, n=1):
        return f"did you mean {close[0]}?"
    homes = dict(_dotted())
    if close := difflib.get_close_matches(name, homes, n=1, cutoff=0.8):
        return f"did you mean {homes[close[0]]}?"
    return f"known keys: {', '.join(here)}"


def _dotted() -> Iterator[tuple[str, str]]:
    """Every key of a study with its table before it: cpus, machine.cpus."""
    for name in Study.__struct_fields__:
        yield name, name
    for table, shape in _TABLES.items():
        for name in shape.__struct_fields__:
            yield name, f"{table}.{name}"


def _no_duplicates(values: Sequence[str], place: str, key: str) -> None:
    for at, value in enumerate(values):
        if (first := values.index(value)) != at:
            raise SpecError(
                f"{_shown(value)} stands twice, first as {key}[{first}]",
                place=f"{place}: {key}[{at}]",
                action="remove one",
            )


def _merged(base: dict[str, Any], settings: Mapping[str, object]) -> dict[str, Any]:
    """`base` with settings put where they belong; raises TypeError for a key no study has."""
    homes = dict(_dotted())
    for name, value in settings.items():
        if name not in homes or name in _TABLES:
            raise TypeError(f"a study has no key {name}")
        if value is None:
            continue
        table, _, key = homes[name].rpartition(".")
        target = base.setdefault(table, {}) if table else base
        target[key] = value
    return base


def _assignments(table: Struct, skip: Mapping[str, object] | tuple[()]) -> Iterator[str]:
    for name in table.__struct_fields__:
        value = getattr(table, name)
        if name not in skip and value is not None:
            yield f"{name} = {_literal(value)}"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(_literal(one) for one in value)}]"
    if isinstance(value, str):
        # Checked text holds no character that JSON and a TOML basic string write differently.
        return json.dumps(str(value), ensure_ascii=False)
    return repr(value)
