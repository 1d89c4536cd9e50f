# SPDX-License-Identifier: GPL-2.0-or-later
"""The reports of docs/examples, made anew from runs of one's own.

    python bench/examples.py [NAME...]       count, and write a mail and a bundle of each
    python bench/examples.py --to DIR ...    the mails go there

Each is one of the reports on kernel lists that kdelta is built from.  The bundle is checked by
`kdelta bundle verify` where it is written, and stays beside the runs: mails are in the
repository, bundles of megabytes are not.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from commands import BenchError, said

EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "examples"
_SERIES = ("--kernels", "6.12..7.2")
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
    """Make the named examples, or all; ends with what kdelta refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--runs", type=Path, default=Path("kdelta-runs"))
    parser.add_argument("--to", type=Path, default=EXAMPLES, metavar="DIR")
    wanted = parser.parse_args()
    known = {example.name: example for example in _EXAMPLES}
    for name in wanted.names or known:
        if name not in known:
            sys.exit(f"no example {name}; there are: {', '.join(known)}")
        try:
            _make(known[name], wanted.runs / f"examples-{name}", wanted.to)
        except BenchError as error:
            sys.exit(str(error))


def _make(example: Example, runs: Path, to: Path) -> None:
    said("run", *example.run, "--new", "--again", "--runs", str(runs), may=_HELD)
    of_run = ("latest", "--runs", str(runs))
    said("report", *of_run, "-o", str(to / f"{example.name}.mail.txt"))
    bundle = runs / f"{example.name}.tar"
    bundle.unlink(missing_ok=True)
    said("bundle", "make", *of_run, "-o", str(bundle))
    said("bundle", "verify", str(bundle))


if __name__ == "__main__":
    main()
