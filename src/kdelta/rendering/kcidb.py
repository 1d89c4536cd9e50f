# SPDX-License-Identifier: GPL-2.0-or-later
"""A gate for KernelCI's database: KCIDB's I/O schema, version 5.3 (the package kcidb-io).

A checkout and a build stand for the new kernel, a test for each scenario.  Ids are of what was
judged, so the same gate gives the same ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from kdelta.printable import printable
from kdelta.rendering.formats import JudgedCase, indented

VERSION = {"major": 5, "minor": 3}
_ORIGIN = "kdelta"
_PATH = re.compile(r"[^a-zA-Z0-9_-]")
_MOST = 1000


def report(title: str, conclusion: str, cases: Sequence[JudgedCase]) -> str:
    """Checkout, build and tests as JSON."""
    whole = "\0".join((title, *(f"{case.name} {case.values}" for case in cases)))
    name = f"{_ORIGIN}:{hashlib.sha256(whole.encode('utf-8', 'replace')).hexdigest()[:32]}"
    return indented(
        {
            "version": VERSION,
            "checkouts": [{"id": name, "origin": _ORIGIN, "comment": _line(title), "valid": True}],
            "builds": [{"id": name, "checkout_id": name, "origin": _ORIGIN, "status": "PASS"}],
            "tests": [_test(name, number, case, conclusion) for number, case in enumerate(cases)],
        }
    )


def _test(build: str, number: int, case: JudgedCase, conclusion: str) -> dict[str, Any]:
    status = "FAIL" if case.failed else "SKIP" if case.skipped else "PASS"
    return {
        "id": f"{build}.{number}",
        "build_id": build,
        "origin": _ORIGIN,
        "path": _path(case.name),
        "comment": _line(f"{' -> '.join(case.values)}: {case.change}"),
        "status": status,
        "misc": {"why": _line(case.why), "skipped": _line(case.skipped), "gate": _line(conclusion)},
    }


def _path(name: str) -> str:
    """Dots part the levels of a path."""
    words = (_PATH.sub("_", word) or "_" for word in printable(name).split(":"))
    return ".".join((_ORIGIN, *words))[:_MOST]


def _line(text: str) -> str:
    return printable(text, _MOST)
