# SPDX-License-Identifier: GPL-2.0-or-later
"""TOML values to frozen structs, every error with its key and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from kdelta.errors import SpecError
from kdelta.printable import printable, quoted

_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
_S = TypeVar("_S", bound=Struct)


def struct(data: object, shape: type[_S], place: str, key: str, homes: Mapping[str, str]) -> _S:
    """`data` as `shape`, every value checked under its own key.

    homes: keys that belong to other tables, and their dotted names, for advice.  Raises SpecError.
    """
    where = f"{place}: {key}" if key else place
    if not isinstance(data, Mapping):
        raise SpecError(f"expected a table, got {shown(data)}", place=where)
    fields = {field.name: field for field in msgspec.structs.fields(shape)}
    for name in data:
        if name not in fields:
            raise SpecError(
                f"unknown key {shown(name)}",
                place=where,
                action=_nearest(name, list(fields), homes),
            )
    for name, field in fields.items():
        if field.required and name not in data:
            raise SpecError(f"the key {name} is missing", place=where, action="add it")
    prefix = f"{key}." if key else ""
    return shape(
        **{
            name: _value(data[name], fields[name].type, place, prefix + name, homes)
            for name in data
        }
    )


def _value(value: object, kind: Any, place: str, key: str, homes: Mapping[str, str]) -> Any:
    """`value` as `kind`; a table and a list are entered, so that the error names the exact key."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return struct(value, kind, place, key, homes)
    plain, meta = _unwrapped(kind)
    if get_origin(plain) is tuple:
        return _array(value, get_args(plain)[0], meta, place, key, homes)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise SpecError(
            f"expected {_wanted(kind)}, got {shown(value)}",
            place=f"{place}: {key}",
            action=(meta.extra or {}).get("action", "") if meta is not None else "",
        ) from None


def _array(
    value: object, item: Any, meta: Meta | None, place: str, key: str, homes: Mapping[str, str]
) -> tuple[Any, ...]:
    low, high = (meta.min_length or 0, meta.max_length or 0) if meta else (0, 64)
    table = isinstance(item, type) and issubclass(item, Struct)
    what = "tables" if table else "integers" if _unwrapped(item)[0] is int else "strings"
    if not isinstance(value, list | tuple) or not low <= len(value) <= high:
        got = f"{len(value)} of them" if isinstance(value, list | tuple) else shown(value)
        raise SpecError(
            f"expected an array of {low} to {high} {what}, got {got}", place=f"{place}: {key}"
        )
    return tuple(_value(one, item, place, f"{key}[{at}]", homes) for at, one in enumerate(value))


def _unwrapped(kind: Any) -> tuple[Any, Any]:
    """The bare type of an annotation (optional or not) and its Meta, or None."""
    if get_origin(kind) is Annotated:
        return get_args(kind)[0], next((m for m in kind.__metadata__ if isinstance(m, Meta)), None)
    options = [one for one in get_args(kind) if one is not type(None)]
    if len(options) == 1 and get_origin(kind) is not tuple:
        return _unwrapped(options[0])
    return kind, None


def _wanted(kind: Any) -> str:
    """What a key takes, in words."""
    plain, meta = _unwrapped(kind)
    if get_origin(plain) is Literal:
        return " or ".join(f'"{one}"' for one in get_args(plain))
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        return " or ".join(f'"{one}"' for one in plain)
    if meta is not None and meta.description:
        return str(meta.description)
    limits = "" if meta is None else f" from {meta.ge} to {meta.le}"
    return _NAMES[plain] + limits


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
    """Advice for an unknown key: the nearest one of its table, else of another table."""
    if close := difflib.get_close_matches(name, here, n=1):
        return f"did you mean {close[0]}?"
    if close := difflib.get_close_matches(name, homes, n=1, cutoff=0.8):
        return f"did you mean {homes[close[0]]}?"
    return f"known keys: {', '.join(here)}"
