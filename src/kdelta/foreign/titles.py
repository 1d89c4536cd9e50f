# SPDX-License-Identifier: GPL-2.0-or-later
"""Titles in a log, such as "=== 6.16.1 run 3 ===": the kernel and the run of what stands below."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from kdelta.foreign import arms

_TITLE = re.compile(
    r"(?:={2,}|-{2,}|#{2,}|\*{2,}|>{2,})\s*(?P<text>[^\s=].*?)\s*[=#*<-]*"
    r"|\[(?P<inner>[^\]]+)\](?P<behind>\s+[A-Za-z]{3,9}[ #_:-]*\d{1,6})?"
)
_RUN = re.compile(
    r"(?:\b(?P<word>boot|run|round|rep|iteration|iter|trial|pass)[ #_:-]*|#)(?P<number>\d{1,6})\b",
    re.I,
)
_NAME = re.compile(r"[A-Za-z][\w.+-]{0,63}", re.ASCII)
# What a kernel prints first: a boot of it begins.
_BANNER = re.compile(r"(?:\[\s*\d+\.\d+\]\s*)?Linux version (?P<kernel>\S+) \(.*")
_SAYS_NOTHING = ("kernel", "linux", "on", "with", "of", "for")
_TITLE_OF = "title"  # a word that says nothing known: an arm, or a setting


def titled(text: str) -> dict[str, str]:
    """What one title says: kernel, run, and the one word beside a run that is neither."""
    cut = _TITLE.fullmatch(text)
    said: dict[str, str] = {}
    if cut is None:
        return said
    text = cut["text"] or cut["inner"]
    numbered = _RUN.search(text) or _RUN.fullmatch((cut["behind"] or "").strip())
    if cut["behind"] and not _RUN.fullmatch(cut["behind"].strip()):
        return said
    words_ = text.replace(",", " ").replace(":", " ").split()
    named = [word for word in words_ if arms.is_version(word) or arms.side(word)]
    if len(named) == 1:
        said["kernel"] = named[0]
    if numbered:
        said[(numbered["word"] or "run").lower()] = numbered["number"]
        beside = _RUN.sub(" ", text).replace(",", " ").replace(":", " ").split()
        rest = [word for word in beside if word not in named and word.lower() not in _SAYS_NOTHING]
        if len(named) < 2 and len(rest) == 1 and _NAME.fullmatch(rest[0]):
            said[_TITLE_OF] = rest[0]
    return said


def titles(lines: Iterable[tuple[int, str]]) -> dict[int, dict[str, str]]:
    """What each title says, by number of its line.

    In the log of a console these are the first lines of each boot.
    Where some names are words of old and new arms and others are not, all are but titles.
    """
    listed = [(number, line.strip()) for number, line in lines]
    boots = [(number, cut["kernel"]) for number, line in listed if (cut := _BANNER.match(line))]
    if len(boots) > 1:
        seen = Counter[str]()
        begun: dict[int, dict[str, str]] = {}
        for number, kernel in boots:
            seen[kernel] += 1
            begun[number] = {"kernel": kernel, "boot": str(seen[kernel])}
        return begun
    found = {number: said for number, line in listed if (said := titled(line))}
    if any(_TITLE_OF in said and "kernel" not in said for said in found.values()) and not any(
        _TITLE_OF in said and "kernel" in said for said in found.values()
    ):
        return {
            number: {_TITLE_OF if key == "kernel" else key: text for key, text in said.items()}
            for number, said in found.items()
        }
    return found
