# SPDX-License-Identifier: GPL-2.0-or-later
"""Twenty clean-ups and twenty planted changes through `kdelta check`: alarms, and what was found.

    .venv/bin/python bench/changes.py [--results FILE] [--at-once N] [--kind KIND] [--title GLOB]
        [-- OPTIONS]

The changes are those of bench/changes.toml, edits of one source of the archive.  N of a kind are
the patches of one series: each is built and held against the one before, so a row of the page tells
of each by itself.  What was answered stands in FILE and is not asked again.  OPTIONS go to check.

A clean-up gives an alarm when a path got longer or shorter by its patch, or when there is no kernel
of it.  A planted change is found when a path got longer by its patch and its function is among
those that the patch changed.  Exits 1 for an alarm, and for a change that was not found.
"""

from __future__ import annotations

import argparse
import difflib
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kdelta.source import tree_reference
from kdelta.source.tree import SourceTree

_HERE = Path(__file__).resolve().parent
_KINDS = ("clean-up", "planted")
_BASE = "deb:6.17.8"
_MAIL = """\
From {commit} Mon Sep 17 00:00:00 2001
From: kdelta <kdelta@localhost>
Date: Thu, 1 Jan 2026 00:00:00 +0000
Subject: [PATCH] {title}

---
{diff}--\x20
"""

Change = dict[str, Any]


def main() -> None:
    """Ask what was not asked yet, and print what is known of all."""
    parser = argparse.ArgumentParser(description="Clean-ups and planted changes through check.")
    parser.add_argument("--results", type=Path, default=Path("kdelta-runs/changes.jsonl"))
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--kind", choices=_KINDS, action="append")
    parser.add_argument("--title", action="append", help="only changes of such a title")
    parser.add_argument("options", nargs="*", help="of kdelta check, after --")
    chosen = parser.parse_args()
    changes = tomllib.loads((_HERE / "changes.toml").read_text())["change"]
    changes = [one for one in changes if not chosen.kind or one["kind"] in chosen.kind]
    titles = chosen.title or ["*"]
    changes = [one for one in changes if any(fnmatchcase(one["title"], glob) for glob in titles)]
    known = _known(chosen.results)
    base = tree_reference.source(tree_reference.parse(f"tree:{_BASE}"))
    for kind in _KINDS:
        left = [one for one in changes if one["kind"] == kind and one["title"] not in known]
        for at in range(0, len(left), chosen.at_once):
            rows = _asked(left[at : at + chosen.at_once], base, chosen.options)
            chosen.results.parent.mkdir(parents=True, exist_ok=True)
            with chosen.results.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            known |= {row["title"]: row for row in rows}
    sys.exit(not _told(changes, known))


def _known(path: Path) -> dict[str, Change]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["title"]: row for row in map(json.loads, lines)}


def _asked(changes: Sequence[Change], base: SourceTree, options: Sequence[str]) -> list[Change]:
    """One series of all of them, and what the page says of each."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kdelta-bench-") as scratch:
        files = list(_patches(changes, base, Path(scratch)))
        kdelta = str(Path(sys.executable).with_name("kdelta"))
        command = [kdelta, "check", *files, "--base", _BASE, "--trust", "--json", *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        sys.exit(f"kdelta check ended with status {done.returncode} and without a page")
    page = json.loads(done.stdout)
    each = (time.monotonic() - begun) / len(changes)
    return [
        {"title": change["title"], "seconds": round(each, 1), **row}
        for change, row in zip(changes, (_plain(row) for row in page["patches"]), strict=True)
    ]


def _plain(row: Change) -> Change:
    return {key: value for key, value in row.items() if key not in ("title", "number")}


def _patches(changes: Sequence[Change], base: SourceTree, folder: Path) -> Iterator[str]:
    """Mails, each on top of those before it."""
    texts: dict[str, str] = {}
    for number, change in enumerate(changes, start=1):
        name = change["file"]
        if name not in texts:
            texts[name] = (base.read(name) or b"").decode()
        after = texts[name]
        for old, new in change["edits"]:
            if after.count(old) != 1:
                sys.exit(f"{change['title']}: {name} has not exactly one {old.splitlines()[0]!r}")
            after = after.replace(old, new)
        lines = difflib.unified_diff(
            texts[name].splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"a/{name}",
            f"b/{name}",
        )
        texts[name] = after
        path = folder / f"{number:04}.patch"
        diff = f"diff --git a/{name} b/{name}\n" + "".join(lines)
        path.write_text(_MAIL.format(commit="0" * 40, title=change["title"], diff=diff))
        yield str(path)


def _told(changes: Sequence[Change], known: dict[str, Change]) -> bool:
    """Print a line for each and the sum; True when all is as it should be."""
    alarms = found = 0
    for change in changes:
        row = known[change["title"]]
        names = set(row["functions"])
        if change["kind"] == "planted":
            good = bool(row["longer"]) and bool(names & set(change["functions"]))
            found += good
        else:
            good = not (row["wrong"] or row["longer"] or row["shorter"])
            alarms += not good
        worst = f"{row['worst']} {row['worst_percent']:+.2f} %" if row["worst"] else "no path"
        said = row["wrong"] or f"{len(names)} functions, {row['longer']} longer, {worst}"
        mark = "as it should be" if good else "WRONG"
        print(f"{mark:<15}  {change['kind']}  {change['title']}: {said}")
    planted = sum(change["kind"] == "planted" for change in changes)
    clean = len(changes) - planted
    print(f"{alarms} alarms in {clean} clean-ups; {found} of {planted} planted changes found")
    return not alarms and found == planted


if __name__ == "__main__":
    main()
