# SPDX-License-Identifier: GPL-2.0-or-later
"""A check of a series: the page that goes below a mail, and the same as HTML.

At most WIDTH columns and MOST_LINES lines; what does not fit is counted, and is in the JSON.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from kdelta.check.page import LEAST_PERCENT, CheckPage, Effect, PatchRow, PathRow, Saying
from kdelta.printable import printable
from kdelta.rendering import columns
from kdelta.rendering.templates import asset, template

WIDTH = 72
MOST_LINES = 60
_PATCHES, _PATHS, _PROMISES, _SINCE = 10, 6, 4, 4
_LAST, _MOST_LAST = 4, 24  # parts at the end that are kept, and their lines
_NAMES = 240  # characters of a list of functions


def headline(page: CheckPage) -> str:
    """What the series does to the paths that execute it, in one sentence."""
    more, less = page.of(Effect.MORE), page.of(Effect.LESS)
    alike = len(page.of(Effect.EQUAL))
    if not page.paths:
        return f"No path of {len(page.identical)} executes changed code."
    parts = []
    if more:
        worst = max(more, key=lambda row: row.percent)
        parts.append(
            f"{len(more)} of {len(page.paths)} paths that execute changed code got longer,"
            f" the worst {worst.percent:+.1f} % ({_cell(worst)})"
        )
    else:
        parts.append(f"None of {len(page.paths)} paths that execute changed code got longer")
    if less:
        best = min(less, key=lambda row: row.percent)
        parts.append(f"{len(less)} shorter, the best {best.percent:+.1f} % ({_cell(best)})")
    parts.append(f"{alike} identical to the instruction")
    if spread := len(page.of(Effect.SPREAD)):
        parts.append(f"{spread} within their own spread")
    if slight := len(page.of(Effect.SLIGHT)):
        parts.append(f"{slight} changed by less than {LEAST_PERCENT:g} %")
    if left := len(page.of(Effect.OPEN)):
        parts.append(f"{left} not compared")
    return "; ".join(parts) + "."


def text(page: CheckPage) -> str:
    """The page."""
    parts = list(_parts(page))
    lines = [line for part in parts for line in part]
    if len(lines) > MOST_LINES:  # claims and the command are never what is cut
        end = [line for part in parts[-_LAST:] for line in part][-_MOST_LAST:]
        kept = MOST_LINES - len(end) - 1
        lines = [*lines[:kept], "(cut here; all of it: --json, --html)", *end]
    return "\n".join(lines) + "\n"


def html(page: CheckPage) -> str:
    """The page as one HTML file, with every path and function."""
    rows = page.of(*Effect)
    return template("check.html").render(
        style=asset("check.css"),
        page=page,
        headline=headline(page),
        rows=rows,
        lines=text(page).split("\n"),
    )


def _parts(page: CheckPage) -> Iterator[Sequence[str]]:
    yield _wrapped(f"{page.decision}: {page.why}")
    yield ["", *_wrapped(headline(page))]
    yield ["", *_compared(page)]
    yield list(_patches(page))
    yield list(_paths(page))
    if page.unseen:
        names = _names(page.unseen)
        said = f"Changed, and executed by no scenario (silence is not SAME): {names}"
        yield ["", *_wrapped(said)]
    yield ["", *(line for each in page.state for line in _wrapped(each, "State: "))]
    yield [line for each in page.limits for line in _wrapped(each, "- ")]
    yield list(_promises(page))
    yield list(_since(page))
    yield ["", "Again:", *_wrapped(page.command, "  ")]
    if page.program:
        yield _wrapped(page.program, "  ")


def _compared(page: CheckPage) -> Iterator[str]:
    said = (
        f"{page.title}: {len(page.patches)} {_plural('patch', len(page.patches))} on {page.base},"
        f" {page.config}, {page.compiler.partition(' (')[0]}; instructions retired, {page.qemu};"
        " a path length, never a time."
    )
    yield from _wrapped(said)
    yield from _wrapped(page.null)


def _patches(page: CheckPage) -> Iterator[str]:
    told = [row for row in page.patches if row.wrong or row.longer or row.shorter]
    quiet = len(page.patches) - len(told)
    if told:
        yield ""
    for row in told[:_PATCHES]:
        yield from _wrapped(_patch(row), "", "     ")
    if len(told) > _PATCHES:
        yield f"     and {len(told) - _PATCHES} more patches that change a path"
    if quiet:
        yield f"     {quiet} {_plural('patch', quiet)} without a path that changed"


def _patch(row: PatchRow) -> str:
    start = f"{row.number:>3}  {row.title}"
    if row.wrong:
        return f"{start}: {row.wrong}"
    counts = [f"{row.longer} longer"] if row.longer else []
    counts += [f"{row.shorter} shorter"] if row.shorter else []
    worst = f", {row.worst} {row.worst_percent:+.1f} %" if row.worst else ""
    return f"{start}: {', '.join(counts)}{worst}"


def _paths(page: CheckPage) -> Iterator[str]:
    rows = page.of(Effect.MORE, Effect.LESS)
    worst = [row for row in rows if row.change is Effect.MORE]
    best = [row for row in rows if row.change is Effect.LESS]
    shown = [*worst[: max(_PATHS - 2, _PATHS - len(best))]]
    shown += best[: _PATHS - len(shown)]
    if shown:
        yield ""
    for row in shown:
        yield from _path(row)
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown)} more paths (--json)"
    for row in page.of(Effect.OPEN)[:3]:
        yield from _wrapped(f"{_cell(row)}: not compared: {row.reason}", "", "    ")


def _path(row: PathRow) -> Iterator[str]:
    by = f", patch {row.patch}" if row.patch else ""
    yield from _wrapped(f"{row.scenario} ({row.pages} pages): {row.change}{by}")
    if row.before is not None and row.after is not None:
        yield (
            f"    {_number(row.before)} -> {_number(row.after)} a {row.operation}"
            f" ({row.percent:+.2f} %)"
        )
    if row.functions:
        parts = [f"{each.function} {each.delta:+.1f}" for each in row.functions]
        yield from _wrapped(", ".join(parts), "    ", "    ")


def _promises(page: CheckPage) -> Iterator[str]:
    if not page.promises:
        return
    yield ""
    yield "Claims:"
    for each in page.promises[:_PROMISES]:
        why = f" ({each.why})" if each.why else ""
        yield from _wrapped(f'"{columns.headline(each.text, 90)}": {each.saying}{why}', "- ")
    if any(each.saying is not Saying.UNSEEN for each in page.promises):
        yield "  counts know signs, never by how much time"


def _since(page: CheckPage) -> Iterator[str]:
    if not page.against:
        return
    yield ""
    if not page.since:
        yield from _wrapped(f"Since {page.against}: every path has the same answer.")
    for each in page.since[:_SINCE]:
        yield from _wrapped(
            f"Since {page.against}: {each.scenario} {each.was:+.1f} % -> {each.now:+.1f} %"
        )


def _cell(row: PathRow) -> str:
    return f"{row.scenario}, {row.pages} pages"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100_000 else f"{value:.2f}"


def _names(names: Sequence[str]) -> str:
    shown = ""
    for at, name in enumerate(names):
        if len(shown) + len(name) > _NAMES:
            return f"{shown} and {len(names) - at} more"
        shown += f", {name}" if shown else name
    return shown


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}es" if word.endswith("ch") else f"{word}s"


def _wrapped(said: str, first: str = "", rest: str | None = None) -> list[str]:
    indent = " " * len(first) if rest is None else rest
    safe = first + printable(said, 1000)
    found = textwrap.wrap(safe, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return found or [""]
