# SPDX-License-Identifier: GPL-2.0-or-later
"""Bytes by string instructions, beside the functions of a difference."""

from __future__ import annotations

import json

from msgspec.structs import replace

from kdelta.analysis.explanation import explain
from kdelta.rendering import explain as explain_view
from kdelta.rendering.columns import plain
from kdelta.rendering.formats import written
from kdelta.sample import FunctionCount, TrialResult
from ladder_records import PAGES, Trial, result, run

OLD = result(Trial(per_page=300))
NEW = result(Trial(per_page=600))


def handling(trial: TrialResult, *handled: int) -> TrialResult:
    """The same, whose first phase has string instructions that handled so many bytes."""
    phase = trial.exact.phases[0].phase
    rows = [
        FunctionCount(phase=phase, function=f"rep stosb in f{at}", insns=0, calls=PAGES, bytes=size)
        for at, size in enumerate(handled)
    ]
    return replace(trial, data=replace(trial.exact, functions=(*trial.exact.functions, *rows)))


def test_bytes_by_string_instructions_are_told_beside_the_sum() -> None:
    record = run({"6.16.1": [handling(OLD, 4096 * PAGES)], "6.17.1": [handling(NEW, PAGES, PAGES)]})
    found = explain(record, "6.16", "6.17")
    assert found.strings is not None
    assert (found.strings.old, found.strings.new) == (4096 * PAGES, 2 * PAGES)
    assert found.strings.delta == -4094 * PAGES
    assert found.delta == sum(row.delta for row in found.functions) == 300 * PAGES
    lines = plain(explain_view.show(found)).splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("sum "))
    assert lines[at + 1].split() == [
        *("bytes", "by", "string", "instructions"),
        *("4096.0", "2.0", "-4094.0", "-", "-", "-"),
    ]
    _, rows = explain_view.table(found)
    assert [row[8] for row in rows[-2:]] == ["[sum]", "[bytes by string instructions]"]
    assert rows[-1][12:18] == (4096 * PAGES, 2 * PAGES, -4094 * PAGES, 4096.0, 2.0, -4094.0)
    told = json.loads(written("json", explain_view, found))
    assert told["strings"] == {"old": 4096 * PAGES, "new": 2 * PAGES, "delta": -4094 * PAGES}
    # The other phase has none.
    assert explain(record, "6.16", "6.17", phase="touch").strings is None
