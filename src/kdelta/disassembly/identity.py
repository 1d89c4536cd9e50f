# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether two kernels have the same code for the functions that a workload executes.

Two functions are the same when their instructions are, one by one, after this: branches inside
count by instruction, and addresses of functions, data and string constants become names (with the
offset into them), or the string itself; numbers that compilers count up in names of static data
(`descriptor.12`) are left out.  Constants stay, and with them offsets into structures.

What this cannot see, so that "identical" means equal code and not equal behaviour: contents of
data; what the kernel patches into its code at boot (alternatives, static keys, static calls);
functions reached through pointers that are not among those named.  It errs to the other side too:
a rename or another order of merged data makes equal code look different.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kdelta import cache
from kdelta.disassembly.code import Code
from kdelta.disassembly.image import Image

_FORMAT = "2"
DISPATCHED = 100
_USER = "[user]"
_STRING_INSTRUCTION = re.compile(r"^rep\w* \S+ in ")  # counted apart from the rest of a function


class Sameness(StrEnum):
    """What is known of the code of all watched functions."""

    IDENTICAL = "identical"
    DIFFERENT = "different"
    UNKNOWN = "unknown"  # no difference is known, but not all code could be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Code of the watched functions of one kernel: name -> digest; unknown: name -> why."""

    arch: str
    digests: dict[str, str]
    unknown: dict[str, str]

    @property
    def digest(self) -> str | None:
        """One digest for all of it, or None when something is unknown."""
        if self.unknown or not self.digests:
            return None
        return cache.digest(
            _FORMAT, self.arch, *(f"{n} {d}" for n, d in sorted(self.digests.items()))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeIdentity:
    """The verdict on two kernels and the names behind it; `only` are functions of one of them."""

    sameness: Sameness
    identical: tuple[str, ...]
    different: tuple[str, ...]
    only: tuple[str, ...]
    unknown: dict[str, str]


def digest_of(code: Code) -> str:
    """Digest of a function's code in normal form; equal for equal code wherever it lies."""
    return cache.digest(_FORMAT, code.arch, *code.normal)


def watched(image: Image, executed: Iterable[str]) -> tuple[str, ...]:
    """The executed functions of an image and those that they call directly, sorted.

    executed: names as counts have them, also "[user]" and "rep movsb in NAME".  Names that the
    image does not have are passed on, so that `fingerprint` says of them that they are unknown.
    Of a function that calls more than DISPATCHED others (the table of system calls) only those
    count that were executed themselves.
    """
    names = functions_of(executed)
    called: set[str] = set()
    for codes in image.codes(sorted(names)).values():
        for code in codes if not isinstance(codes, str) else ():
            calls = {call.partition("+")[0] for call in code.calls}
            called |= calls if len(calls) <= DISPATCHED else set()
    return tuple(sorted(names | {name for name in called if name in image}))


def functions_of(names: Iterable[str]) -> set[str]:
    """Functions of the kernel among the names that counts have ("rep movsb in NAME", "[user]")."""
    return {_STRING_INSTRUCTION.sub("", name) for name in names} - {_USER}


def fingerprint(image: Image, names: Iterable[str]) -> Fingerprint:
    """The code of functions of an image.  What cannot be read is unknown, with the reason."""
    digests: dict[str, str] = {}
    unknown: dict[str, str] = {}
    wanted = sorted(functions_of(names))
    for name, codes in image.codes(wanted).items():
        if isinstance(codes, str):
            unknown[name] = codes
        else:
            digests[name] = cache.digest(*sorted(digest_of(code) for code in codes))
    return Fingerprint(arch=image.arch.debian, digests=digests, unknown=unknown)


def compare(one: Image, other: Image, executed: Iterable[str]) -> CodeIdentity:
    """Compare the code of executed functions and of what they call, in two images."""
    names = set(executed)
    both = set(watched(one, names)) | set(watched(other, names))
    return judge(fingerprint(one, both), fingerprint(other, both))


def judge(one: Fingerprint, other: Fingerprint) -> CodeIdentity:
    """The verdict on two fingerprints.

    A function that only one of them has makes them different: it was executed or is called there.
    """
    names = sorted({*one.digests, *other.digests, *one.unknown, *other.unknown})
    identical: list[str] = []
    different: list[str] = []
    only: list[str] = []
    unknown: dict[str, str] = {}
    for name in names:
        mine, theirs = one.digests.get(name), other.digests.get(name)
        if mine is not None and theirs is not None:
            (identical if mine == theirs else different).append(name)
        elif mine is not None or theirs is not None:
            only.append(name)
        else:
            unknown[name] = one.unknown.get(name) or other.unknown.get(name, "not looked at")
    if one.arch != other.arch or different or only:
        sameness = Sameness.DIFFERENT
    else:
        sameness = Sameness.UNKNOWN if unknown or not identical else Sameness.IDENTICAL
    return CodeIdentity(
        sameness=sameness,
        identical=tuple(identical),
        different=tuple(different),
        only=tuple(only),
        unknown=unknown,
    )
