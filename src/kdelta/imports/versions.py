# SPDX-License-Identifier: GPL-2.0-or-later
"""The order of arms that are called by exact kernel versions: 6.9 is older than 6.12."""

from __future__ import annotations

import re
from collections.abc import Iterable

_VERSION = re.compile(r"v?(\d)\.(\d{1,3})(?:\.(\d{1,3}))?(?:-rc(\d{1,2}))?", re.ASCII)


def version_key(name: str) -> tuple[int, ...] | None:
    """What sorts 6.9 before 6.12, and 7.1-rc3 before 7.1; None: no version and nothing else."""
    found = _VERSION.fullmatch(name)
    if not found:
        return None
    major, minor, stable, candidate = found.groups()
    return (int(major), int(minor), int(stable or 0), int(candidate or 1000))


def release_key(name: str) -> tuple[int, ...] | None:
    """The same for what `uname -r` says: a version, and after a dash what its builder added."""
    found = _VERSION.match(name)
    if not found or name[found.end() : found.end() + 1] not in ("", "-"):
        return None
    return version_key(found[0])


def in_order(arms: Iterable[str]) -> list[str] | None:
    """The arms, oldest first; None unless each is called by a version of its own."""
    keys = {arm: version_key(arm) for arm in arms}
    known = [(key, arm) for arm, key in keys.items() if key is not None]
    if len(known) < len(keys) or len({key for key, _ in known}) < len(known):
        return None
    return [arm for _, arm in sorted(known)]
