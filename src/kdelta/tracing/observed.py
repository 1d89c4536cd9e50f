# SPDX-License-Identifier: GPL-2.0-or-later
"""What perf and bpftrace print of a process that they watched, read strictly; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kdelta.errors import GuestError
from kdelta.printable import printable, quoted

_MOST_LINES = 2_000_000
_LONGEST = 200  # characters of a key
_COUNT = re.compile(r"\d{1,18}")
_SAMPLE = re.compile(r"\s*[0-9a-f]{1,16} (?P<symbol>[!-~][ -~]*)")
_UNREAD = {"<not supported>": "not supported here", "<not counted>": "not counted here"}
_NOT_SET = re.compile(r"(?i)\b(?:can ?not|can't|could not|unable to|failed to) attach")
_MAP = re.compile(r"@(?:[A-Za-z_]\w{0,126})?")
_MISSED = frozenset(("lost_events", "missed_probes"))
Hits = dict[tuple[str, str], int]
"""Hits by the map of a program that holds them and the value that they are of; "" for the only map,
which has no name, and for all values."""
NO_MAP = ("", "")


class Unseen(Exception):  # noqa: N818 - a reason, no fault
    """Why a program saw nothing, in a clause."""


def stat(text: str, event: str) -> Hits:
    """The count of an event by `perf stat -x,` (man perf-stat, "CSV FORMAT").

    Raises Unseen where the machine has no such event, GuestError for garbage.
    """
    rows = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
    if len(rows) != 1 or len(rows[0]) < 3 or not rows[0][2].startswith(event):
        raise GuestError(f"perf stat says what is not understood: {quoted(text[:80])}")
    value = rows[0][0]
    if value in _UNREAD:
        raise Unseen(f"perf: {event} is {_UNREAD[value]}")
    if not _COUNT.fullmatch(value):
        raise GuestError(f"perf stat counts no whole number: {quoted(value[:80])}")
    return {NO_MAP: int(value)}


def samples(text: str) -> Hits:
    """Samples by function, of `perf script -F ip,sym`.  Raises GuestError for garbage."""
    found: Counter[tuple[str, str]] = Counter({NO_MAP: 0})
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        raise GuestError(f"perf script prints more than {_MOST_LINES} samples")
    for line in lines:
        if not line.strip():
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            raise GuestError(f"perf script says what is not understood: {quoted(line[:80])}")
        found["", printable(sample["symbol"].strip(), _LONGEST)] += 1
    return dict(found)


def maps(text: str) -> tuple[Hits, int]:
    """Values of the maps that `bpftrace -f json` prints at its end, and events that it lost.

    A map is told by its name, and one that has none, "@", by its values alone.  Raises GuestError
    for what is no count.
    """
    told: dict[str, Any] = {}
    lost = 0
    for line in text.splitlines():
        message = _message(line)
        kind, data = message.get("type"), message.get("data")
        if kind in _MISSED and isinstance(data, dict):
            lost += sum(value for value in data.values() if isinstance(value, int))
        elif kind in ("map", "hist") and isinstance(data, dict):
            told |= data
    hits: Counter[tuple[str, str]] = Counter()
    for name, value in told.items():
        if not _MAP.fullmatch(name):
            raise GuestError(f"bpftrace tells of a map {quoted(name[:80])}")
        for key, count in _counts(value):
            hits["" if name == "@" else name, printable(key, _LONGEST)] += count
    return dict(hits) or {NO_MAP: 0}, lost


def _message(line: str) -> Mapping[str, Any]:
    if not line.strip():
        return {}
    try:
        message = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError) as error:
        raise GuestError(f"bpftrace says what is no JSON: {quoted(line[:80])}") from error
    return message if isinstance(message, dict) else {}


def not_attached(errors: str) -> str:
    """The first line in which bpftrace says that it could not set a probe, "" without one."""
    lines = (line.strip() for line in errors.splitlines() if _NOT_SET.search(line))
    return printable(next(lines, ""), _LONGEST)


def _counts(value: Any) -> Iterator[tuple[str, int]]:
    """A scalar; a map by key; or a histogram, whose buckets are named by their bounds."""
    if isinstance(value, bool) or not isinstance(value, int | dict | list):
        raise GuestError("a map of the bpftrace program holds what is no count")
    if isinstance(value, int):
        yield "", value
    elif isinstance(value, dict):
        for key, one in value.items():
            for below, count in _counts(one):
                yield f"{key} {below}".strip(), count
    else:
        for bucket in value:
            if not isinstance(bucket, dict) or not isinstance(bucket.get("count"), int):
                raise GuestError("a histogram of the bpftrace program has no counts")
            bounds = [str(bucket[word]) for word in ("min", "max") if word in bucket]
            yield "..".join(dict.fromkeys(bounds)), bucket["count"]
