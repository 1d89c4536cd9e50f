# SPDX-License-Identifier: GPL-2.0-or-later
"""The reports of docs/examples, made anew from runs of one's own.

    python bench/examples.py [NAME...]       count, and write a mail, a page and a bundle of each

Each is one of the reports on kernel lists that kdelta is built from.  The bundle is checked by
`kdelta verify` where it is written, and stays beside the runs: mails and pages are in the
repository, bundles of megabytes are not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "examples"
_SERIES = ("--kernels", "6.12..7.2")
_MAIN = "from kdelta.cli.main import main; main()"
_HELD = (1, 4)  # a run some of whose arms cannot be compared is an answer, too


@dataclass(frozen=True, slots=True)
class Example:
    """A report: what is run, in the words of `kdelta run`."""

    name: str
    run: tuple[str, ...]


_EXAMPLES = (
    Example("mprotect", ("mprotect-shared-dirty",)),
    Example("mincore", ("mincore-present-pte",)),
    Example(
        "madvise-pageout",
        (
            "madvise_pageout:pageout_anon_16m_default",
            "madvise_pageout:pageout_anon_16m_nohugepage",
            *_SERIES,
        ),
    ),
    Example("khugepaged", ("khugepaged-hot-cold-hot",)),
    Example("page-clearing", ("fault:thp", "demand_fault:thp_16m", *_SERIES)),
)


def main() -> None:
    """Make the named examples, or all; ends with kdelta's status where one cannot be made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--runs", type=Path, default=Path("kdelta-runs"))
    wanted = parser.parse_args()
    known = {example.name: example for example in _EXAMPLES}
    for name in wanted.names or known:
        if name not in known:
            sys.exit(f"no example {name}; there are: {', '.join(known)}")
        _make(known[name], wanted.runs / f"examples-{name}")


def _make(example: Example, runs: Path) -> None:
    _kdelta("run", *example.run, "--new", "--runs", str(runs), may=_HELD)
    of_run = ("latest", "--runs", str(runs))
    _kdelta("report", *of_run, "--mail", "-o", str(EXAMPLES / f"{example.name}.mail.txt"))
    _kdelta("report", *of_run, "--html", "-o", str(EXAMPLES / f"{example.name}.html"))
    bundle = runs / f"{example.name}.tar"
    bundle.unlink(missing_ok=True)
    _kdelta("bundle", *of_run, "-o", str(bundle))
    _kdelta("verify", str(bundle))


def _kdelta(*words: str, may: tuple[int, ...] = ()) -> None:
    print("$ kdelta", *words, flush=True)
    done = subprocess.run([sys.executable, "-c", _MAIN, *words], check=False)
    if done.returncode not in (0, *may):
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
