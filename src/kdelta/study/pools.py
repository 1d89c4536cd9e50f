# SPDX-License-Identifier: GPL-2.0-or-later
"""lab.toml: the machines that measure for a run (docs/lab.md)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kdelta.errors import SpecError
from kdelta.files import given, toml_of
from kdelta.printable import printable, quoted

MOST_BYTES = 1 << 20
_Word = Annotated[str, Meta(pattern="^[^\0]+$", max_length=4000)]
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}")
_ADDRESS = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z_][A-Za-z0-9._-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9a-fA-F:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?/?"
)


class DaskPool(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="dask"):
    """The workers of a scheduler."""

    scheduler: Annotated[str, Meta(min_length=1, max_length=300)]


class HostPool(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="host"):
    """A machine that times.  address: ssh://USER@HOST:PORT; ssh_config: a file instead of yours;
    boot_s: seconds of a boot; most_boots: of one process of kdelta; reset: a command here that
    resets it when a boot takes longer.
    """

    address: Annotated[str, Meta(min_length=1, max_length=400)]
    ssh_config: Annotated[str, Meta(max_length=400)] = ""
    boot_s: Annotated[float, Meta(ge=10, le=86400)] = 900.0
    most_boots: Annotated[int, Meta(ge=1, le=10_000)] = 200
    reset: Annotated[tuple[_Word, ...], Meta(min_length=1, max_length=64)] = ()


class Checks(Struct, frozen=True, forbid_unknown_fields=True):
    """twice: two workers count each trial whose number it divides, 0: none."""

    twice: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


# kdelta.cli.pools says what measures in each kind.
Pool = DaskPool | HostPool


class LabPools(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a lab.toml."""

    pool: dict[str, Pool]
    check: Checks = Checks()


def ssh_words(text: str, place: str = "") -> list[str]:
    """ssh://[USER@]HOST[:PORT] (HOST: or an alias) as the client takes it.  Raises SpecError."""
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"] or 22) if found else 0
    if found is None or port not in range(1, 65536):
        cause = f"{quoted(text)} is no address of a host"
        raise SpecError(cause, place=place, action="write ssh://USER@HOST:PORT")
    user = ["-l", found["user"]] if found["user"] else []
    return [*(["-p", str(port)] if found["port"] else []), *user, "--", found["host"].strip("[]")]


def check_name(name: str, place: str = "") -> None:
    """Raise SpecError for a name that no pool can have."""
    if not _NAME.fullmatch(name):
        cause = f"no pool can be called {quoted(name, 60)}"
        raise SpecError(cause, place=place, action="take lower-case letters, digits, _ and -")


def load(path: Path) -> LabPools:
    """The pools of a file.  Raises SpecError that names the key."""
    text = given(path, MOST_BYTES, "see docs/lab.md").decode(errors="replace")
    return parse(text, str(path))


def parse(text: str, path: str) -> LabPools:
    """The pools of a file's text.  Raises SpecError that names the key."""
    try:
        found = msgspec.convert(toml_of(text), LabPools)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        cause = f"is no list of pools: {printable(str(error), 200)}"
        raise SpecError(cause, place=path, action="see docs/lab.md") from error
    for pool in found.pool.values():
        if isinstance(pool, HostPool):
            ssh_words(pool.address, path)
    if sum(isinstance(pool, DaskPool) for pool in found.pool.values()) > 1:
        action = "leave one: a scheduler has any number of workers"
        raise SpecError("two pools count", place=path, action=action)
    for name in found.pool:
        check_name(name, path)
    if not found.pool:
        action = 'give at least one, such as [pool.rack] with kind = "dask"'
        raise SpecError("has no pool", place=path, action=action)
    return found
