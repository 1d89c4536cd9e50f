# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta why`, `commit` and `ask` say of published changes, in one table.

    .venv/bin/python bench/published.py [CASES]... [--only ID] [--tree FOLDER] [--results FILE]

CASES are as those of bench/calibrate.py, by default its second and third set.  A git repository is
made at FOLDER: the releases that have a patch of bench/variants, each change a commit of its own on
top of the release without them.  `why` is asked about the interval of a case, with that tree where
the tree has it, `commit` about its commit there, and `ask` about a mail in the robot's form that
has the published figure.  What was answered stands in FILE and is not asked again.  Exits 1 for a
wrong answer.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import calibrate
import calibration
import commands
from calibration import CountsSay, PublishedCase, Series
from kdelta.source import patches, tree_reference
from kernel_history import Repository

_HERE = Path(__file__).resolve().parent
_SETS = [_HERE / "calibration-second.toml", _HERE / "calibration-third.toml"]
_SAID = {
    "REGRESSION": CountsSay.MORE, "IMPROVEMENT": CountsSay.LESS, "SAME": CountsSay.SAME,
    "UNDECIDED": CountsSay.UNDECIDED,
}  # fmt: skip
_EXPLAINS = re.compile(r"Path length explains ([\d.]+) of ([\d.]+) %")
_SHARE = re.compile(r"^([0-9a-f]{12}) +[-+][\d.]+ \((-?\d+) %\)", re.MULTILINE)
_ALIKE = re.compile(
    r"both alike \([^)]*\): `kdelta run \S+ --kernels (tree:[^,`\s]+),(tree:[^,`\s]+)`"
)
_METRIC = "will-it-scale.per_process_ops"
_MAIL = """\
From: kernel test robot <robot@example.org>
Subject: [master] {short}: {metric} {rate:+.1f}% {word}

Hello,

kernel test robot noticed a {rate:.1f}% {word} of {metric} on:


commit: {commit} ("{title}")

testcase: will-it-scale
parameters:

\tnr_task: 1
\tmode: process
\ttest: {name}


commit:
  {parent} ("before it")
  {short} ("{title}")

---------------- ---------------------------
         %stddev     %change         %stddev
             \\          |                \\
   1000000           {rate:+.1f}%    {new:7.0f}        {metric}
"""
_OLDEST = 3  # digits of a commit's name that none has

Answer = dict[str, Any]


def main() -> None:
    """Ask what was not asked yet, and print what is known of all."""
    parser = argparse.ArgumentParser(description="why, commit and ask on published changes.")
    parser.add_argument("cases", type=Path, nargs="*", default=_SETS)
    parser.add_argument("--only", action="append", metavar="ID", help="only this case")
    parser.add_argument("--tree", type=Path, default=Path("kdelta-runs/published-linux"))
    parser.add_argument("--results", type=Path, default=Path("kdelta-runs/published.jsonl"))
    chosen = parser.parse_args()
    cases = [case for path in chosen.cases for case in calibration.read(path)]
    known = _known(chosen.results)
    named = [case for case in cases if not chosen.only or case.id in chosen.only]
    if left := [case for case in named if case.id not in known]:
        history = History(chosen.tree, cases)
        offered = calibrate.offered_series()
        chosen.results.parent.mkdir(parents=True, exist_ok=True)
        for case in left:
            found = {"id": case.id, **_asked(case, history, offered)}
            known[case.id] = found
            with chosen.results.open("a") as file:
                file.write(json.dumps(found) + "\n")
    rows = [(case, known[case.id]) for case in named]
    print("\n".join(_table(rows)))
    sys.exit(any(answer[name]["right"] is False for _, answer in rows for name in _ASKED))


def _known(path: Path) -> dict[str, Answer]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["id"]: row for row in map(json.loads, lines)}


class History:
    """A repository of releases with the cases' changes as commits.

    commits: by the patch that takes the change back.  tags: what it has, "6.17".
    """

    def __init__(self, folder: Path, cases: Sequence[PublishedCase]) -> None:
        self.folder = folder.absolute()
        self.commits: dict[str, str] = {}
        self.tags: set[str] = set()
        self._repository = Repository(self.folder)
        tip = ""
        for base in sorted({case.base for case in cases if case.undone_by}, key=_number):
            tip = self._release(base, tip, [case for case in cases if case.base == base])
        self._repository.finish(tip)

    def _release(self, base: str, tip: str, cases: Sequence[PublishedCase]) -> str:
        """The commits of one release, on top of it without them."""
        tree = tree_reference.of_release(base).tree
        own: dict[str, PublishedCase] = {}
        for case in sorted(cases, key=_came):
            if case.undone_by:
                own.setdefault(case.undone_by, case)
        files = [_HERE / "variants" / f"{name}.patch" for name in own]
        bare = patches.applied(tree, files)
        tip = self._repository.take(bare, tip, f"Linux {base}, without what follows")
        for at, (name, case) in enumerate(own.items(), start=1):
            whole = patches.applied(tree, files[at:]) if files[at:] else tree
            tip = self._repository.take(whole, tip, case.title)
            self.commits[name] = tip
            self._tag(".".join(map(str, _came(case))), tip)
        self._tag(base.rpartition(".")[0], tip)
        return tip

    def _tag(self, series: str, commit: str) -> None:
        self.tags.add(series)
        self._repository.tag(f"v{series}", commit)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _came(case: PublishedCase) -> Series:
    major, minor = _number(case.release)[:2]
    return major, minor


def _asked(case: PublishedCase, history: History, offered: Sequence[Series]) -> Answer:
    if case.lacks:
        return {name: {"right": None, "said": "not counted"} for name in _ASKED}
    commit = history.commits.get(case.undone_by, "")
    pair = calibration.interval(case, offered)
    ends = [f"{major}.{minor}" for major, minor in pair] if pair else []
    with tempfile.TemporaryDirectory(prefix="kdelta-published-") as scratch:
        why = _of_why(case, ends, history, commit, Path(scratch))
        return {
            "why": why,
            "commit": _of_commit(case, history, commit),
            "ask": _of_ask(case, ends, history, commit, Path(scratch) / "mail.txt"),
        }


_ASKED = ("why", "commit", "ask")


def _of_why(
    case: PublishedCase, ends: Sequence[str], history: History, commit: str, runs: Path
) -> Answer:
    if not ends:
        return {"right": None, "said": "no interval"}
    has_it = commit and history.tags.issuperset(ends)
    tree = ("--tree", str(history.folder)) if has_it else ()
    ask = ("why", case.scenario, "--runs", str(runs))
    text = commands.said(*ask, *ends, *tree)
    alike = _ALIKE.search(" ".join(text.replace("\\\n", " ").split()))
    # As its own mend says, where the archive has both sources.
    second = commands.said(*ask, *alike.groups(), may=(2, 3)) if alike else ""
    text = second or text
    found = calibration.of_why(case, text)
    shares = {name: int(share) for name, share in _SHARE.findall(text)}
    first = found.found[0] if found.found else ""
    return {
        "right": found.right, "said": found.said, "percent": found.total, "function": first,
        "own": first in found.leading, "text": text, "alike": bool(second),
        "share": shares.get(commit[:12], 0) if tree else None,
    }  # fmt: skip


def _of_commit(case: PublishedCase, history: History, commit: str) -> Answer:
    if not commit:
        return {"right": None, "said": "no patch"}
    words = ("--tree", str(history.folder), "--base", case.base, "--only", case.scenario,
             "--also", case.scenario)  # fmt: skip
    try:
        text = commands.said("commit", commit[:12], *words, "--json", may=(4,))
    except commands.BenchError as error:
        return {"right": None, "said": "refused", "text": str(error)}
    found = json.loads(text)
    said = _SAID[found["verdict"]]
    rows = found["paths"]
    first = rows[0] if rows else {}
    known = first.get("before") and first.get("after") is not None
    total = 100 * (first["after"] / first["before"] - 1) if known else 0.0
    parts = [one["function"] for one in first.get("functions", ())]
    changed = {*found["functions"]}
    return {
        "right": calibration.is_right(case, said, total, built=True), "said": said,
        "percent": total, "function": parts[0] if parts else "",
        "own": bool(parts) and calibration.is_own(parts[0], case, changed), "changed": len(changed),
    }  # fmt: skip


def _of_ask(
    case: PublishedCase, ends: Sequence[str], history: History, commit: str, mail: Path
) -> Answer:
    if case.rate is None:
        return {"right": None, "said": "no rate"}
    name = commit or "0" * 37 + f"{sum(map(ord, case.id)) % 1000:0{_OLDEST}}"
    words = {"commit": name, "short": name[:10], "parent": "f" * 10, "metric": _METRIC}
    words["word"] = "improvement" if case.rate > 0 else "regression"
    new = 1e4 * (100 + case.rate)
    mail.write_text(_MAIL.format(title=case.title, name=case.id, rate=case.rate, new=new, **words))
    kernels = list(ends)
    if commit:
        kernels = [f"{case.base}+undo={history.folder}@{commit[:12]}", case.base]
    asked = ("--kernels", ",".join(kernels), "--scenario", case.scenario)
    text = commands.said("ask", str(mail), *asked, may=(4,))
    found = _EXPLAINS.search(text)
    part = float(found[1]) if found else 0.0
    other = "went the other way" in text
    said = CountsSay.UNDECIDED
    if found or other:
        worse = (case.rate < 0) is not other
        said = CountsSay.MORE if worse else CountsSay.LESS
    elif "Not a path length" in text:
        said = CountsSay.SAME
    return {
        "right": calibration.is_right(case, said, part, built=bool(commit)), "said": said,
        "explained": part, "proven": bool(commit), "text": text,
    }  # fmt: skip


def _table(rows: Sequence[tuple[PublishedCase, Answer]]) -> Iterator[str]:
    yield _sum(rows)
    yield ""
    yield "| case | expected | `why` | `commit` | `ask` |"
    yield "|---|---|---|---|---|"
    for case, answer in rows:
        cells = (_of(answer["why"]), _of(answer["commit"]), _explained(case, answer["ask"]))
        yield f"| {' | '.join((case.id, case.expect, *cells))} |"


def _sum(rows: Sequence[tuple[PublishedCase, Answer]]) -> str:
    told = []
    for name in _ASKED:
        judged = [answer[name]["right"] for _, answer in rows]
        right = sum(bool(each) for each in judged)
        told.append(f"`{name}` {right} of {sum(each is not None for each in judged)}")
    return f"Right signs: {', '.join(told)}."


def _of(found: Mapping[str, Any]) -> str:
    """A sign, a change, the first function (* own; = built alike), and what --tree found of it."""
    wrong = " (wrong)" * (found["right"] is False)
    if not found.get("percent"):
        return f"{found['said']}{wrong}"
    name = found["function"].partition(" ")[0]
    own = f" `{name}`{'*' * found['own']}" * bool(name)
    share = "=" * bool(found.get("alike"))
    share += "" if found.get("share") is None else f" ({found['share']} %)"
    return f"{found['said']} {found['percent']:+.2f}{wrong}{own}{share}"


def _explained(case: PublishedCase, found: Mapping[str, Any]) -> str:
    if "explained" not in found:
        return str(found["said"])
    if not found["explained"]:
        words = {"same": "no path", "undecided": "undecided"}.get(found["said"], "the other way")
    else:
        words = f"{found['explained']:.1f} of {abs(case.rate or 0):g}"
    return words + " (wrong)" * (found["right"] is False)


if __name__ == "__main__":
    main()
