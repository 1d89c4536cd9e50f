# SPDX-License-Identifier: GPL-2.0-or-later
"""How a kernel words what it says in /proc and /sys, and of the compiler that built it."""

from __future__ import annotations

import re
from pathlib import Path

_KB = re.compile(r"^(\w+(?:\(\w+\))?): +(\d+)", re.MULTILINE)
_CHOSEN = re.compile(r"[\[(](\w+)[\])]")


def compiler_in(version: str) -> str:
    """The compiler that a text of /proc/version names, such as "gcc-14 (Debian 14.2.0-19)"."""
    match = re.search(r"\(((?:[\w.-]*gcc|clang)\b[^()]*(?:\([^()]*\)[^(),]*)?)", version)
    return match[1].strip() if match else ""


def compiler_short(banner: str) -> str:
    """The "gcc 14.2.0" of "x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"."""
    match = re.match(
        r"(?:\S*-)?(gcc|clang)\b(?:-[\d.]+)?(?: \([^)]*\))?(?: version)? (\d[\w.]*)", banner
    )
    return f"{match[1]} {match[2]}" if match else banner[:30]


def compiler_family(banner: str) -> str:
    """The "gcc 14" of such a banner, by which two compilers are the same; "": not known."""
    match = re.match(r"(gcc|clang) (\d+)\b", compiler_short(banner))
    return match[0] if match else ""


def meminfo(root: Path) -> dict[str, int]:
    """The numbers of /proc/meminfo below a root: kB, or how many; none that cannot be read."""
    try:
        text = (root / "proc/meminfo").read_text(errors="replace")
    except OSError:
        return {}
    return {name: int(number) for name, number in _KB.findall(text)}


def cpu_list(text: str) -> tuple[int, ...]:
    """The numbers in the kernel's CPU list format "0-3,8"; none for anything else."""
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", text):
        return ()
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def chosen(text: str) -> str:
    """The bracketed word of "always [madvise] never"; the whole text when none is."""
    match = _CHOSEN.search(text)
    return match[1] if match else text


def series_number(text: str) -> tuple[int, int]:
    """(6, 17) of v6.17-rc1 and of 6.17.8; (0, 0) of what is no release."""
    match = re.match(r"v?(\d{1,6})\.(\d{1,6})", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)
