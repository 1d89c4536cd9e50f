# SPDX-License-Identifier: GPL-2.0-or-later
"""The rooms of kdelta and what each knows: what holds the ladder and what the documents show.

.venv/bin/python tests/rooms.py     writes them into the documents
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A room imports lower rungs and itself, never its own rung.
RUNGS: tuple[dict[str, str], ...] = (
    {
        "errors": (
            "whose fault a failure is: `SpecError` (exit 2), `InfraError` (3), `BootError` and "
            "`GuestError` (the kernel's)"
        ),
        "printable": "text that others wrote, made safe for a terminal",
        "procfs": "how a kernel words what it says in /proc and /sys",
    },
    {
        "files": "files written whole or not at all, read within bounds; digests and lists of them",
        "kinds": "what the cache holds, in one table",
        "locks": "locks and holds between processes, free again however one ends",
    },
    {
        "arch": "everything that differs by architecture, in one table",
        "cache": "the cache directory: whole entries, and eviction of what nobody uses",
        "data": "where the C sources and studies lie, in a checkout or a wheel",
        "options": "options of kernel configurations by what they do to code",
        "elf": "ELF files and notes; the only user of pyelftools' reader",
        "metric": "unit, direction and assumption of a metric; a count with its word",
        "process": "how another program is started and ended; the only user of `subprocess`",
    },
    {
        "archive": "the Debian archive: private apt roots, packages, programs unpacked to run here",
        "build": "compiling C on this machine when first needed",
        "machine": "what a study may ask of a machine; what a guest says that it got",
        "verdict": (
            "which window stands for a trial, when two counts differ, the shape of a comparison; no"
            " files, no clock"
        ),
    },
    {
        "sample": "the rows that flow: trial, counts, run",
        "stats": "when two sets of times differ, and what spoils them; no files, no clock",
        "toolchains": "compilers by name: this system's, or unpacked privately from the archive",
    },
    {
        "attribution": "the plugin's output: windows to functions, windows to rows of counts",
        "ladder": (
            "the trials of a run to arms, arms to pairs, pairs to verdicts; which two may be"
            " compared"
        ),
        "source": "a kernel's source as a git tree: variants, configuration, build, maintainers",
    },
    {
        "kernels": "from a reference (`6.17`, `file:PATH`, `tree:...`) to one verified image",
        "probes": (
            "what the plugin records beside counts: call paths, memory, arguments, kinds of work"
        ),
        "table": "tables that fit a page, the page of a run's ladders",
        "workload": "what a workload's TOML says",
    },
    {
        "export": "a workload's program as one C file",
        "guest": "what enters a guest: static programs, the initramfs",
        "output": "what a workload's program printed, read strictly",
        "study": "study files (`spec`), the order of trials (`plan`; pure)",
    },
    {
        "disassembly": "the code of a function in normal form; whether two are the same",
        "host": (
            "this machine, who has which of its CPUs and memory, programs timed on it; another one"
            " by ssh, and its next boot"
        ),
        "programs": "programs of this machine, taken with their libraries",
        "journal": "what runs, bisections and imports keep on disk; a run as one file",
        "tracing": "what is written into tracefs to watch something, and what its files say",
    },
    {
        "transplant": (
            "a released kernel with a patch's functions, or without an option, and no build:"
            " objects proven to be the image's, compared, grafted, linked"
        ),
        "imports": "results that others published: declared formats, and tables by a mapping",
        "guests": (
            "QEMU and its command line, a running guest, its swap, checkpoints; whether KVM works"
            " here"
        ),
    },
    {
        "analysis": "a run in, findings out: explanations, audit, survey, others' results; pure",
        "doctor": "what `kdelta doctor` looks at, found out by trying",
        "run": (
            "one trial of each instrument; the loop over trials; what was counted before (`store`);"
            " arms that are another one's code (`arms`)"
        ),
    },
    {
        "bisect": "the release or the commit of a change",
        "check": (
            "a patch series: what it changes, the paths that execute it, its claims, the decision,"
            " the page; a test robot's table"
        ),
        "codegen": "one function over variants and compilers",
        "workers": "exact trials on the workers of a Dask scheduler: sent, counted, checked",
    },
    {"rendering": "one module for each view: text, JSON, CSV, HTML, a mail"},
    {"cli": "options, progress, error sentences, exit codes; the only room that prints or exits"},
)
# The core: mark, count, pair, verdict, table.  It imports nothing of the rest, and is read in one
# sitting, in this order (docs/architecture.md).
CORE = (
    *("errors", "printable", "procfs", "arch", "machine", "metric", "options", "sample"),
    *("attribution", "verdict", "ladder", "table"),
)
CORE_LINES = 6_632
RUNG_OF = {room: rung for rung, rooms in enumerate(RUNGS) for room in rooms}

_BEGIN, _END = "<!-- written by tests/rooms.py -->\n", "<!-- end -->\n"


def written() -> dict[Path, str]:
    """The documents, with the rooms as they are: file -> text."""
    rows = ["| rung | room | knows |\n|---|---|---|\n"]
    for number, rooms in enumerate(RUNGS):
        for at, (room, knows) in enumerate(rooms.items()):
            folder = "/" if (ROOT / "src/kdelta" / room).is_dir() else ""
            rows.append(f"| {'' if at else f'{number} '}| `{room}{folder}` | {knows} |\n")
    parts = {ROOT / "docs/architecture.md": "".join(rows), ROOT / "CONTRIBUTING.md": _ladder()}
    return {path: _replaced(path.read_text(), part) for path, part in parts.items()}


def _replaced(text: str, part: str) -> str:
    return re.sub(
        f"{_BEGIN}.*?{_END}", lambda _: f"{_BEGIN}\n{part}\n{_END}", text, flags=re.DOTALL
    )


def _ladder() -> str:
    return "".join(
        f"    {'< ' if number else ''}{', '.join(rooms)}\n" for number, rooms in enumerate(RUNGS)
    )


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text)
