# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernels of many runs: one name for each, their order, and which stand in one line.

A run calls a kernel by its upstream version, which is enough in it.  Of several runs two packages
may be called the same, or one kernel differently.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kdelta.journal.run import RunRecord
from kdelta.sample import ArmRecord, KernelIdentity

_NUMBERS = re.compile(r"\d+|rc")
_COMMIT = re.compile(r"-g[0-9a-f]{7,40}")
_OF_TREE = re.compile(r"tree:(?P<place>.+)@(?P<commit>[^@+]+)(?P<more>(?:\+.*)?)")
_SHORT = 8
_Key = tuple[str, ...]


def version_key(kernel: str) -> tuple[tuple[int, int], ...]:
    """Orders kernels by the numbers in their names; a candidate is before its release.

    Of a name that has a commit in it, the numbers before that: a digest has no order.
    """
    words = _NUMBERS.findall(_COMMIT.split(kernel, maxsplit=1)[0])
    return tuple((0, 0) if word == "rc" else (1, min(int(word), 1 << 62)) for word in words[:12])


def line(kernel: KernelIdentity) -> _Key:
    """What a kernel is one of: a flavour of the archive, or the commits of a tree.

    Only kernels of a line are each other's neighbours whichever run counted them: others differ in
    their configuration, and stand beside what their run put them beside.
    """
    if kernel.version:
        return "archive", kernel.arch, kernel.flavour
    if found := _OF_TREE.fullmatch(kernel.reference):
        return "tree", found["place"], found["more"], kernel.arch
    return "alone", kernel.reference, kernel.image_sha256


def named(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs, with one name for each kernel in all of them, and no two kernels of one name.

    It is the shortest that any of the runs has for it, where another has that name, too, the
    package's version, and where that is not enough the flavour or the image.
    """
    every = list(records)
    shortest: dict[_Key, str] = {}
    kernels: dict[_Key, KernelIdentity] = {}
    for arm in (arm for record in every for arm in record.arms if not arm.control):
        key = _key(arm)
        kernels[key] = arm.kernel
        shortest[key] = min(
            shortest.get(key, arm.label), arm.label, key=lambda name: (len(name), name)
        )
    own = _apart(shortest, kernels)
    return [replace(record, arms=tuple(_renamed(record.arms, own))) for record in every]


def reference(name: str, kernel: KernelIdentity) -> str:
    """What means a kernel in a command, of one that is called so."""
    if kernel.version:
        return f"deb:{kernel.version}" if name == kernel.version or " " in name else name
    return kernel.reference


def ordered(records: Iterable[RunRecord], names: Iterable[str]) -> tuple[str, ...]:
    """Names of kernels, oldest first; commits of one release as they were first counted."""
    seen: dict[str, tuple[str, int]] = {}
    for record in records:
        for arm in record.arms:
            at = (record.created, arm.index)
            seen[arm.label] = min(seen.get(arm.label, at), at)
    return tuple(sorted(names, key=lambda name: (version_key(name), seen.get(name, ("", 0)), name)))


def _key(arm: ArmRecord) -> _Key:
    kernel = arm.kernel
    if kernel.version:
        return kernel.version, kernel.arch, kernel.flavour
    return kernel.name, kernel.reference, kernel.image_sha256


def _apart(shortest: dict[_Key, str], kernels: dict[_Key, KernelIdentity]) -> dict[_Key, str]:
    """Names by kernel: of equal ones, longer ones until they are not."""
    same: dict[str, list[_Key]] = defaultdict(list)
    for key, name in shortest.items():
        same[name].append(key)
    found: dict[_Key, str] = {}
    for name, keys in same.items():
        forms = [_forms(name, kernels[key]) for key in keys]
        wide = [own for own in zip(*forms, strict=True) if len(set(own)) == len(keys)]
        counted = [f"{name} ({at})" for at in range(1, len(keys) + 1)]
        chosen: Sequence[str] = wide[0] if wide else counted
        found.update(zip(keys, chosen, strict=True))
    return found


def _forms(name: str, kernel: KernelIdentity) -> tuple[str, ...]:
    """What a kernel may be called, the shortest first."""
    package = kernel.version or name
    flavour = f"{package} {kernel.flavour} {kernel.arch}".strip()
    return name, package, flavour, f"{flavour} image {kernel.image_sha256[:_SHORT]}"


def _renamed(arms: Sequence[ArmRecord], own: dict[_Key, str]) -> Iterable[ArmRecord]:
    """A control keeps what it adds to its kernel's name; a name is unique in its run and point."""
    used: set[tuple[str, str]] = set()
    for arm in arms:
        name = own.get(_key(arm), arm.label)
        name = f"{name} again" if arm.control else name
        if (arm.point, name) in used:
            name = arm.label
        used.add((arm.point, name))
        yield replace(arm, label=name)
