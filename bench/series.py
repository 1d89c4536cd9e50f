# SPDX-License-Identifier: GPL-2.0-or-later
"""How long `kdelta check` takes from patches to their page, beside `make -j2 vmlinux`.

    .venv/bin/python bench/series.py [--case CASE]... [--base 6.17.8] [--no-make]

In a cache of its own, empty at the beginning: `empty`, a patch of mm/mincore.c, downloads
included; `warm`, another one; `three`, three patches of that file; `header`, one of mm/internal.h.
Each time another change is made that no compiler has seen.  Then make, in kdelta's own build
directory and with its small configuration: `vmlinux` from nothing, and of the changes.  Two are
made only when they are named, and twice, as the first makes what they stand on: `arm64`, the three
patches built for arm64, too, and `wide`, one of include/linux/gfp.h, by the objects that run.
CPU is that of all processes.  Close other work.  Exits 1 when a check takes longer than its goal.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
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


_ROW = re.compile(r"\[\d+/\d+\] ")  # of a scenario, as it is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A change: a file, the places behind which an instruction is put, and the seconds it may take.

    Each place is a patch of its own.
    """

    name: str
    file: str
    places: tuple[str, ...]
    goal_s: float
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Seconds; first_s: until the first row stood in the terminal."""

    wall_s: float
    cpu_s: float
    first_s: float = 0.0


_PLACES = (
    "		step = 1;\n",
    "	ptl = pmd_trans_huge_lock(pmd, vma);\n",
    "	walk->private += nr;\n",
)
_EMPTY = Case(name="empty", file="mm/mincore.c", places=_PLACES[:1], goal_s=240)
_THREE = replace(_EMPTY, name="three", places=_PLACES, goal_s=40)
_CASES = (
    _EMPTY,
    replace(_EMPTY, name="warm", goal_s=20),
    _THREE,
    Case(
        name="header",
        file="mm/internal.h",
        places=("static inline vm_fault_t vmf_anon_prepare(struct vm_fault *vmf)\n{\n",),
        goal_s=240,
    ),
)
_MORE = (
    replace(_THREE, name="arm64", goal_s=480, options=("--arch", "arm64")),
    Case(
        name="wide",
        file="include/linux/gfp.h",
        places=("static inline struct zonelist *node_zonelist(int nid, gfp_t flags)\n{\n",),
        goal_s=600,
    ),
)


def main() -> None:
    """Make each case once, and print a row for each."""
    parser = argparse.ArgumentParser(description="Time kdelta check beside make of the change.")
    parser.add_argument("--case", action="append", choices=[each.name for each in _CASES + _MORE])
    parser.add_argument("--base", default="6.17.8")
    parser.add_argument("--no-make", action="store_true")
    chosen = parser.parse_args()
    wanted = chosen.case or [case.name for case in _CASES]
    print(f"{'what':<22}{'goal':>8}{'wall':>9}{'CPU':>9}{'first row':>11}   seconds", flush=True)
    missed = False
    with tempfile.TemporaryDirectory(prefix="kdelta-bench-", dir="/var/tmp") as scratch:
        folder = Path(scratch)
        base = tree_reference.source(tree_reference.parse(f"tree:deb:{chosen.base}"))
        texts = {each.file: (base.read(each.file) or b"").decode() for each in _CASES + _MORE}
        os.environ["XDG_CACHE_HOME"] = scratch
        for case in (each for each in _CASES + _MORE if each.name in wanted):
            if case in _MORE:  # what they stand on is made first
                _checked(chosen.base, case, texts[case.file], folder)
            took = _checked(chosen.base, case, texts[case.file], folder)
            missed |= took.wall_s > case.goal_s
            verdict = "MISSED" if took.wall_s > case.goal_s else "met"
            _print(f"check, {case.name}", took, f"{case.goal_s:.0f}", verdict)
        if not chosen.no_make:
            base = tree_reference.source(tree_reference.parse(f"tree:deb:{chosen.base}"))
            _print("make, from nothing", _made(base, base))
            for case in (_THREE, _CASES[-1]):
                own = patches.applied(base.tree, [*_written(case, texts[case.file], folder)])
                _print(f"make, {case.name}", _made(base, replace(base, tree=own)))
    sys.exit(missed)


def _print(what: str, took: Took, goal: str = "", verdict: str = "") -> None:
    first = f"{took.first_s:.1f}" if took.first_s else ""
    print(f"{what:<22}{goal:>8}{took.wall_s:>9.1f}{took.cpu_s:>9.1f}{first:>11}   {verdict}",
          flush=True)  # fmt: skip


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _made(base: SourceTree, tree: SourceTree) -> Took:
    """`make vmlinux`: of the base from nothing, or of a change where the base was made before."""
    with build.prepared(base, kconfig.named(), targets=() if tree is base else ("vmlinux",)) as own:
        begun, cpu = time.monotonic(), _cpu_s()
        if tree is base:
            own.run(["vmlinux"])
    if tree is not base:
        with build.prepared(tree, kconfig.named(), targets=()) as own:
            begun, cpu = time.monotonic(), _cpu_s()
            own.run(["vmlinux"])
    return Took(wall_s=time.monotonic() - begun, cpu_s=_cpu_s() - cpu)


def _checked(base: str, case: Case, text: str, folder: Path) -> Took:
    files = map(str, _written(case, text, folder))
    kdelta = str(Path(sys.executable).with_name("kdelta"))
    words = [kdelta, "check", *files, "--base", base, "--trust", *case.options]
    begun, cpu, first, said = time.monotonic(), _cpu_s(), 0.0, list[str]()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          cwd=folder) as child:  # fmt: skip
        for line in child.stdout or ():
            said.append(line)
            if not first and _ROW.match(line):
                first = time.monotonic() - begun
    if child.returncode not in (0, 1, 4):  # the page stands, whatever it decides
        sys.exit(f"kdelta check ended with status {child.returncode}: {''.join(said)[-600:]}")
    return Took(wall_s=time.monotonic() - begun, cpu_s=_cpu_s() - cpu, first_s=first)


def _written(case: Case, text: str, folder: Path) -> Iterator[Path]:
    """Mails, each on top of those before it, of a change that nobody has made before."""
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
