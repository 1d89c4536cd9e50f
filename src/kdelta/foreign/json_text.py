# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON that strangers wrote: no NaN, no name twice, and errors with file, line and column."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from kdelta.errors import SpecError

_MESSAGE = re.compile(r"\b(?:warn(?:ing)?|note|info|hint)\b", re.IGNORECASE)


def below_messages(text: str) -> str:
    """JSON without what a program said before it, of which each line warns, notes or informs."""
    lines = text.splitlines(keepends=True)
    start = next((at for at, line in enumerate(lines) if line[:1] in ("{", "[")), 0)
    told = all(_MESSAGE.search(line) for line in lines[:start] if line.strip())
    return "\n" * start + "".join(lines[start:]) if start and told else text


def loaded(text: str, name: str, line: int = 1, *, exact: bool = False) -> Any:
    """What a JSON text holds, which begins in that line; no NaN, no name twice.

    exact: decimals are Decimal, with every digit that was written: 6.10 is no 6.1.
    Raises SpecError.
    """
    # Not msgspec: of a name that stands twice it takes the last without a word.
    try:
        return json.loads(
            text,
            parse_float=Decimal if exact else float,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_names,
        )
    except json.JSONDecodeError as error:
        place = f"{name}: line {error.lineno + line - 1}, column {error.colno}"
        raise SpecError(f"not JSON: {error.msg}", place=place, action="correct it") from error
    except RecursionError as error:
        cause, action = f"not JSON that can be used: {error}", "write less deep: a list of objects"
        raise SpecError(cause, place=name, action=action) from error
    except ValueError as error:
        action = "write null for what is missing, and each name once"
        raise SpecError(f"not JSON that can be used: {error}", place=name, action=action) from error


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return found


def json_object(text: str, name: str) -> dict[str, Any]:
    """The object that a JSON file holds.  Raises SpecError."""
    found = loaded(text, name)
    if not isinstance(found, dict):
        raise SpecError("it holds no JSON object", place=f"{name}: line 1, column 1")
    return found
