# SPDX-License-Identifier: GPL-2.0-or-later
"""How long `kdelta check` takes from a series to its page, beside `make vmlinux` of the change.

    .venv/bin/python bench/series.py [--case CASE] [--base deb:6.17.8] [--counted]

file: three patches of mm/mincore.c; arm64: the same with --arch arm64; header: a patch of
include/linux/mm.h, which everything of mm, fs and net includes.  What is timed is warm: the base is
built and counted before, by make and by kdelta, and each time another change is made that no
compiler has seen.  --counted: a check counted the base before.  make runs in kdelta's own build
directory, with as many jobs as there are cores, up to vmlinux; check goes on to the image, boots,
counts, and builds the base again for its page.
Close other work.  Exits 1 when a check takes longer than its limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path

from kdelta.source import build, kconfig, patches, tree_reference
from kdelta.source.tree import SourceTree

_MAIL = (
    "From {zero} Mon Sep 17 00:00:00 2001\nFrom: kdelta <k@localhost>\nSubject: [PATCH] {title}\n"
)
_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A change: a file, the places behind which an instruction is put, and the minutes it may take.

    Each place is a patch of its own.
    """

    name: str
    file: str
    places: tuple[str, ...]
    minutes: float
    options: tuple[str, ...] = ()


_FILE = Case(
    name="file",
    file="mm/mincore.c",
    places=(
        "	ptl = pmd_trans_huge_lock(pmd, vma);\n",
        "		step = 1;\n",
        "	walk->private += nr;\n",
    ),
    minutes=3,
)
_CASES = (
    _FILE,
    replace(_FILE, name="arm64", minutes=8, options=("--arch", "arm64")),
    Case(
        name="header",
        file="include/linux/mm.h",
        places=("static inline bool vma_is_anonymous(struct vm_area_struct *vma)\n{\n",),
        minutes=12,
    ),
)


def main() -> None:
    """Make each case once, and print a row for each."""
    parser = argparse.ArgumentParser(description="Time kdelta check beside make of the change.")
    names = [case.name for case in _CASES]
    parser.add_argument("--case", action="append", choices=names)
    parser.add_argument("--base", default="deb:6.17.8")
    parser.add_argument("--counted", action="store_true")
    chosen = parser.parse_args()
    base = tree_reference.source(tree_reference.parse(f"tree:{chosen.base}"))
    late = False
    counted: set[tuple[str, ...]] = {case.options for case in _CASES if chosen.counted}
    for case in _CASES:
        if chosen.case and case.name not in chosen.case:
            continue
        with tempfile.TemporaryDirectory(prefix="kdelta-bench-") as name:
            folder = Path(name)
            made = _make_s(base, _patches(case, base, folder))
            if case.options not in counted:
                _check_s(chosen.base, case, _patches(case, base, folder))
                counted.add(case.options)
            took = _check_s(chosen.base, case, _patches(case, base, folder))
        late |= took > case.minutes * _MINUTE
        print(
            f"{case.name:<8} make {made:7.1f} s  check {took:7.1f} s"
            f"  check / make {took / made:6.2f}"
            f"  <= {case.minutes:g} min {'MISSED' if took > case.minutes * _MINUTE else 'met'}",
            flush=True,
        )
    sys.exit(late)


def _make_s(base: SourceTree, files: list[Path]) -> float:
    """Wall time of `make vmlinux` of all patches, where the base was made before."""
    with build.prepared(base, kconfig.named(), targets=("vmlinux",)):
        pass
    changed = patches.applied(base.tree, files, borrowed=base.objects)
    with build.prepared(
        replace(base, tree=changed, commit=""), kconfig.named(), targets=()
    ) as there:
        begun = time.monotonic()
        there.run(["vmlinux"])
        return time.monotonic() - begun


def _check_s(base: str, case: Case, files: list[Path]) -> float:
    kdelta = str(Path(sys.executable).with_name("kdelta"))
    words = [kdelta, "check", *map(str, files), "--base", base, "--trust", "--json", *case.options]
    begun = time.monotonic()
    done = subprocess.run(words, capture_output=True, check=False)
    if not done.stdout:
        sys.exit(f"kdelta check ended with status {done.returncode}: {done.stderr.decode()[-300:]}")
    return time.monotonic() - begun


def _patches(case: Case, base: SourceTree, folder: Path) -> list[Path]:
    """Mails, each on top of those before it, of a change that nobody has made before."""
    return list(_written(case, (base.read(case.file) or b"").decode(), folder))


def _written(case: Case, text: str, folder: Path) -> Iterator[Path]:
    now = time.time_ns()
    for number, place in enumerate(case.places, start=1):
        if text.count(place) != 1:
            sys.exit(f"{case.file} has not exactly one {place.strip()!r}")
        after = text.replace(
            place, f'{place}	asm volatile(".if {now + number}; nop; .endif");\n'
        )
        lines = unified_diff(text.splitlines(keepends=True), after.splitlines(keepends=True),
                             f"a/{case.file}", f"b/{case.file}")  # fmt: skip
        path = folder / f"{now}-{number}.patch"
        title = f"{case.name}: an instruction, {number}"
        head = f"diff --git a/{case.file} b/{case.file}\n"
        path.write_text(
            f"{_MAIL.format(zero='0' * 40, title=title)}\n---\n{head}{''.join(lines)}-- \n"
        )
        yield path
        text = after


if __name__ == "__main__":
    main()
