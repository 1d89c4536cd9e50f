# SPDX-License-Identifier: GPL-2.0-or-later
"""From the words of a report to a scenario: what robots call the loops that kdelta has."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kdelta import workload

# What tests of the kernel test robot are called -> the scenario of the same path.
NAMES = {
    "brk1": "unmap:brk_page",
    "brk2": "unmap:brk_page",
    "brk_test": "unmap:brk_page",
    "mmap1": "unmap:mmap_page",
    "mmap2": "unmap:mmap_page",
    "page_fault1": "fault:anon",
    "page_fault2": "fault:anon",
    "page_fault3": "fault:file_read",
    "page_test": "unmap:mmap_touch_page",
    "lat_pagefault": "fault:file_read",
    "bigheap": "unmap:mremap_ptes",
    "mremap": "unmap:mremap_ptes",
    "pagemove": "unmap:mremap_ptes",
    "clone": "process:fork_exit",
    "spawn": "process:fork_exit",
    "fork": "process:fork_exit",
    "sysexec": "process:vfork_exec",
    "execl": "process:vfork_exec",
    "exec_test": "process:vfork_exec",
    "pthread": "process:thread",
    "futex1": "control:futex_wake",
    "futex4": "control:futex_wait",
    "context_switch1": "control:pipe_switch",
    "pipe": "control:pipe",
    "pipeherd": "control:pipe_switch",
    "getppid1": "control:getppid",
    "getppid": "control:getppid",
    "lseek1": "loops:lseek_threads",
    "lseek2": "loops:lseek_threads",
    "write1": "loops:write_1_byte",
    "fsbuffer": "loops:write_1_byte",
    "creat-clo": "loops:creat_unlink_tmpfs",
    "disk_src": "loops:creat_unlink_tmpfs",
    "vm-splice": "loops:vmsplice",
    "vmsplice": "loops:vmsplice",
    "mincore": "mincore:no_thp_pte_scan_4m",
    "mprotect": "mprotect:anon_toggle_4m",
    "mseal": "mseal:already_sealed_noop",
}
_WORD = re.compile(r"[a-z0-9][a-z0-9_-]*[a-z0-9]")
_FUNCTION = re.compile(r"\b([a-z_][a-z0-9_]{3,63})\(\)")
_LEAST = 4.0  # of the weight of shared words, below which nothing is meant
_AHEAD = 1.2  # times what the next scenario has: else it could as well be that one
_SHORT = 3  # letters of words that say nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """A scenario that a text means.  why: the words that say so."""

    scenario: str
    why: str


def meant(text: str) -> Meant | None:
    """The scenario of a text: by the name of a known test in it, else by words in common.

    None when nothing is meant with some certainty: a wrong scenario is worse than none.
    """
    lower = text.lower()
    for name in sorted(NAMES, key=len, reverse=True):
        if re.search(rf"(?<![a-z0-9_-]){re.escape(name)}(?![a-z0-9_-])", lower):
            return Meant(scenario=NAMES[name], why=name)
    words = set(_WORD.findall(lower.replace("()", " ")))
    return _by_words(words)


def functions(text: str) -> tuple[str, ...]:
    """Kernel functions that a text names: "pcpu_alloc()"."""
    return tuple(dict.fromkeys(_FUNCTION.findall(text)))


def is_one_of(function: str, patterns: tuple[str, ...]) -> bool:
    """True for a function that fits one of the patterns."""
    return any(fnmatchcase(function, pattern) for pattern in patterns)


def _by_words(words: set[str]) -> Meant | None:
    words = {word for word in words if len(word) > _SHORT and not word.isdecimal()}
    every = {
        scenario.reference: set(
            _WORD.findall(f"{scenario.reference} {scenario.summary}".lower().replace("()", " "))
        )
        for name in workload.names()
        for scenario in workload.load(name).scenarios
        if scenario.survey
    }
    seen = Counter(word for own in every.values() for word in own)
    weight = {word: math.log(len(every) / count) for word, count in seen.items()}
    scores = sorted(
        ((sum(weight[word] for word in own & words), name) for name, own in every.items()),
        reverse=True,
    )
    (best, name), (second, _) = scores[0], scores[1]
    shared = sorted(every[name] & words, key=lambda word: -weight[word])
    if best < max(_LEAST, _AHEAD * second) or len(shared) == 1:
        return None
    return Meant(scenario=name, why=", ".join(shared[:3]))
