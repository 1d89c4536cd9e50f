# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of a checked series, as text for a mail and as HTML; the answer to a robot's report."""

from __future__ import annotations

import collections
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kdelta.analysis.gate import GateCase
from kdelta.check.page import (
    HOME,
    LEAST_PERCENT,
    CheckPage,
    Direction,
    Effect,
    FunctionPart,
    JudgedClaim,
    PatchPart,
    PatchRow,
    PathRow,
    Ruling,
    Words,
    sized,
)
from kdelta.check.robot import RateSplit, RobotReport, RobotRow
from kdelta.metric import plural
from kdelta.printable import few, printable
from kdelta.rendering.formats import asset, template
from kdelta.table import columns

WIDTH = 72
MOST_LINES = 60
_ACROSS = 3  # patches that have a column
_PATCHES, _PATHS, _CLAIMS, _SENTENCES, _SINCE = 10, 6, 6, 3, 4
_PATHS_BESIDE, _COLUMN = 4, 11  # paths on several architectures; characters of each column
_LAST, _MOST_LAST = 4, 24  # parts at the end that are never cut, and their lines at most
_SLIGHT = 2  # paths that changed by less than LEAST_PERCENT
_COMMENT, _FUNCTIONS = 15, 3  # lines of a comment; functions in it
_MANY = 100_000
_NAMES = 12  # functions in a list


def headline(page: CheckPage) -> str:
    """What the series does on amd64 to the paths that execute it, in one sentence."""
    return _sentence(page.words, page.paths, len(page.identical))


def _sentence(words: Words, paths: Sequence[PathRow], untouched: int) -> str:
    found = {effect: [row for row in paths if row.change is effect] for effect in Effect}
    more, less, equal = found[Effect.MORE], found[Effect.LESS], found[Effect.EQUAL]
    left = len(found[Effect.OPEN])
    if not paths:
        said = f"of {untouched} executes changed code" if untouched else "was compared"
        return f"No path {said}."
    if left == len(paths):
        return f"None of {left} paths that execute changed code could be compared."
    could = " and could be compared" if left else ""
    said = f"None of {len(paths) - left} paths that execute changed code{could} {words.worse}"
    if more:
        worst = max(more, key=lambda row: row.percent)
        said = (
            f"{len(more)} of {len(paths)} paths that execute changed code {words.worse},"
            f" the worst {sized(worst.percent)} ({_cell(worst)})"
        )
    if less:
        best = min(less, key=lambda row: row.percent)
        said += f"; {len(less)} {words.less}, the best {sized(best.percent)} ({_cell(best)})"
    fewer = sum(bool(row.reason) for row in equal)
    said += f"; {len(equal)} identical {words.alike}"
    said += f" ({fewer} with fewer bytes to copy or clear)" if fewer else ""
    for count, what in (
        (len(found[Effect.SPREAD]), "within their own spread"),
        (len(found[Effect.SLIGHT]), f"changed by less than {LEAST_PERCENT:g} %"),
        (left, "not compared"),
    ):
        said += f"; {count} {what}" if count else ""
    return f"{said}."


def _elsewhere(page: CheckPage) -> Iterator[str]:
    for each in page.elsewhere:
        said = _sentence(page.words, each.paths, len(each.identical))
        yield from _wrapped(said, f"{each.arch}: ", "  ")


def text(page: CheckPage) -> str:
    """The page."""
    most = _PATHS if len(page.arches) == 1 else _PATHS_BESIDE
    for paths in range(most, 1, -1):  # fewer paths are shown before anything is cut
        parts = list(_parts(page, paths))
        lines = [line for part in parts for line in part]
        if len(lines) <= MOST_LINES:
            break
    else:  # claims and the command are never cut
        end = [line for part in parts[-_LAST:] for line in part][-_MOST_LAST:]
        kept = MOST_LINES - len(end) - 1
        lines = [*lines[:kept], "(cut here; all of it: --json, --html)", *end]
    return "\n".join(lines) + "\n"


def json(page: CheckPage) -> str:
    """All of the page, as `check.page.read` takes it."""
    return msgspec.json.format(msgspec.json.encode(page)).decode() + "\n"


def comment(page: CheckPage) -> str:
    """The page for a bot: decision, worst and best path, functions, command; at most 15 lines."""
    head = f"{page.title}: {plural(len(page.patches), 'patch')} on {page.base}"
    lines = [*_wrapped(f"kdelta {page.decision} (advisory): {_because(page)}")[:3]]
    lines += _wrapped(f"{head}. Counted: {page.words.counted}; {page.words.means}.")[:3]
    moved = sorted((row for row in page.every if row.change.moved), key=lambda row: row.percent)
    ends = [("worst", max(moved, key=lambda row: row.percent))] if moved else []
    ends = [each for each in ends if each[1].percent > 0]
    ends += [("best", row) for row in moved[:1] if row.percent < 0]
    left = _FUNCTIONS
    for word, row in ends:
        said = f"{_cell(row)}: {sized(row.percent)}, {_amounts(row, page)}"
        lines += _wrapped(said, f"{word}: ", "  ")[:2]
        named = row.named[: min(left, 2)]
        left -= len(named)
        lines += _wrapped(", ".join(named), "  ", "  ")[:2] if named else []
    told = [row for row in page.patches if row.wrong or row.longer or row.shorter]
    several = len(page.patches) > 1
    more = [f"patch {row.number}: {_done(row, page)}" for row in told if several or row.wrong]
    more += [f"{_cell(row)}: {row.reason}" for row in page.every if row.change is Effect.OPEN]
    if page.unseen:
        more.append(f"changed, and executed by no scenario: {few(page.unseen, 2)}")
    again = _again(page.command)
    for said in more:
        lines += _wrapped(said, "", "  ")[: max(_COMMENT - len(again) - len(lines), 0)]
    return "\n".join([*lines[: max(_COMMENT - len(again), 2)], *again]) + "\n"


def _because(page: CheckPage) -> str:
    """What the decision rests on, without the names of paths, which have lines of their own."""
    count, words = collections.Counter(row.change for row in page.every), page.words
    said = page.why.removesuffix(", see below")
    if page.decision is not Ruling.UNDECIDED:
        is_longer = page.decision is Ruling.REJECT or count[Effect.MORE]
        by = f" by more than {page.tolerance:g} %" if is_longer else ""
        said = f"{'a' if page.decision is Ruling.REJECT else 'no'} path {words.worse}{by}"
    same = count[Effect.EQUAL] + count[Effect.SLIGHT]
    unclear = count[Effect.OPEN] + count[Effect.SPREAD]
    if not (page.every or page.identical):
        return f"{said}. No path was compared"
    return (
        f"{said}. {count[Effect.MORE]} {words.more}, {count[Effect.LESS]} {words.less},"
        f" {same} unchanged,"
        f" {f'{unclear} unclear, ' if unclear else ''}{len(page.identical)} without changed code"
    )


def _again(command: str) -> list[str]:
    """The command without what says how it prints and where, in lines as a shell takes them."""
    words, kept = iter(shlex.split(command)), list[str]()
    for word in words:
        if word in ("--format", "--runs"):
            next(words, "")
        elif word not in ("--json", "--html"):
            kept.append(shlex.quote(word))
    return columns.shell_lines(WIDTH, *kept, first="again:")


def html(page: CheckPage, so_far: str = "") -> str:
    """The page as one HTML file, with every path and function.  so_far: what is counted of a check
    that goes on: the page then loads itself again.
    """
    return template("check.html").render(
        style=asset("check.css"),
        page=page,
        so_far=so_far,
        headline=headline(page),
        elsewhere=list(_elsewhere(page)),
        rows=_rows_by_path(page, *Effect),
        names={arch: _shown(arch) for arch in page.arches},
        tables=[(_shown(HOME), page.patches), *((s.arch, s.patches) for s in page.elsewhere)],
        trades=[
            (_shown(arch), *_trade([row for row in page.every if row.arch == arch]))
            for arch in page.arches
        ],
        change=_change,
        lines=text(page).split("\n"),
    )


def _parts(page: CheckPage, paths: int) -> Iterator[Sequence[str]]:
    yield _wrapped(f"{page.decision}: {page.why}")
    home = f"{_shown(HOME)}: " if page.elsewhere else ""
    yield ["", *_wrapped(headline(page), home, "  " if home else ""), *_elsewhere(page)]
    yield ["", *_compared(page)]
    yield list(_patches(page))
    yield list(_paths(page, paths))
    yield list(_traded(page, paths))
    also = [  # changed functions that no scenario executes elsewhere, beyond those of amd64
        line
        for side in page.elsewhere
        if (unseen := sorted(set(side.unseen) - set(page.unseen)))
        for line in _wrapped(f"also {few(unseen, _NAMES)}", f"{side.arch}: ", "  ")
    ]
    if page.unseen or also:
        names = few(page.unseen, _NAMES) or "none"
        said = f"Changed, and executed by no scenario (silence is not SAME): {names}"
        yield ["", *_wrapped(said), *also]
    states = [(each, "State: ") for each in page.state]
    states += [(each, f"State, {side.arch}: ") for side in page.elsewhere for each in side.state]
    yield ["", *(line for each, name in states for line in _wrapped(each, name))]
    yield [line for each in page.limits for line in _wrapped(each, "- ")]
    said = "Sentences with figures in the mails, as they stand there and not judged:"
    quotes = [f'"{columns.headline(each, 90)}"' for each in page.sentences]
    yield _listed(said, quotes, _SENTENCES, "- ")
    claims = [f"{_claim(each)}: {each.verdict}, {each.why}" for each in page.claims]
    yield _listed("Declared claims, judged by counts:", claims, _CLAIMS, "- ")
    yield _changed_since(page) if page.against else []
    yield ["", "Again:", *columns.shell_lines(WIDTH, *map(shlex.quote, shlex.split(page.command)))]
    parts = page.program.split(" && ") if page.program else []  # a command each
    yield [line for part in parts for line in _wrapped(part, "  ")]


def _listed(head: str, each: Sequence[str], most: int, mark: str) -> list[str]:
    lines = ["", head] if each else []
    lines += [line for text in each[:most] for line in _wrapped(text, mark)]
    return [*lines, *([f"  and {len(each) - most} more (--json)"] if len(each) > most else [])]


def _compared(page: CheckPage) -> Iterator[str]:
    said = (
        f"{page.title}: {plural(len(page.patches), 'patch')} on {page.base},"
        f" {page.config}, {page.compiler.partition(' (')[0]}; {page.words.counted}, {page.qemu};"
        f" {page.words.means}."
    )
    yield from _wrapped(said)
    yield from _wrapped(page.null) if page.null else []
    for each in page.elsewhere:
        compiler = each.compiler.partition(" (")[0]
        yield from _wrapped(f"{compiler}. {each.null}", f"{each.arch}: ", "  ")


def _patches(page: CheckPage) -> Iterator[str]:
    beside = [(side.arch, one) for side in page.elsewhere for one in side.patches]
    every = [
        (row, {arch: one for arch, one in beside if one.number == row.number})
        for row in page.patches
    ]
    told = [
        (row, others)
        for row, others in every
        if any(each.wrong or each.longer or each.shorter for each in (row, *others.values()))
    ]
    quiet = len(every) - len(told)
    if told:
        yield ""
    for row, others in told[:_PATCHES]:
        yield from _wrapped(_patch(row, others, page), "", "     ")
    if len(told) > _PATCHES:
        yield f"     and {len(told) - _PATCHES} more patches that change a path"
    if quiet:
        known = any(row.change is Effect.OPEN for row in page.every)
        what = "is known to have changed" if known else "changed"
        yield f"     {plural(quiet, 'patch')} without a path that {what}"


def _patch(row: PatchRow, others: Mapping[str, PatchRow], page: CheckPage) -> str:
    if row.wrong and all(each.wrong == row.wrong for each in others.values()):
        said = row.wrong
    else:
        done = [f"{arch} {_done(each, page)}" for arch, each in others.items()]
        said = "; ".join([_done(row, page), *done])
    return f"{row.number:>3}  {row.title}: {said}"


def _done(row: PatchRow, page: CheckPage) -> str:
    if row.wrong:
        return row.wrong
    counts = [f"{row.longer} {page.words.more}"] if row.longer else []
    counts += [f"{row.shorter} {page.words.less}"] if row.shorter else []
    worst = f", {row.worst} {sized(row.worst_percent)}" if row.worst else ""
    return f"{', '.join(counts) or 'no path changed'}{worst}"


def _rows_by_path(page: CheckPage, *changes: Effect) -> list[list[PathRow]]:
    """The rows of each path with one of the effects on any architecture, the largest change first.

    The rows of one path are in the order of the architectures, amd64 first.
    """
    found: dict[str, list[PathRow]] = {}
    for row in page.every:
        found.setdefault(row.scenario, []).append(row)
    meant = [rows for rows in found.values() if any(row.change in changes for row in rows)]
    return sorted(meant, key=lambda rows: (-max(abs(r.percent) for r in rows), rows[0].scenario))


def _paths(page: CheckPage, most: int) -> Iterator[str]:
    rows = _rows_by_path(page, Effect.MORE, Effect.LESS)
    worst = [row for row in rows if any(each.change is Effect.MORE for each in row)]
    best = [row for row in rows if row not in worst]
    shown = [*worst[: max(most - 2, most - len(best))]]
    shown += best[: most - len(shown)]
    slight = [each for each in _rows_by_path(page, Effect.SLIGHT) if each not in rows]
    shown += slight[: min(most - len(shown), _SLIGHT)]
    if shown:
        yield ""
        if len(page.arches) > 1:
            yield from _in_columns("", [_shown(arch) for arch in page.arches])
    for row in shown:
        yield from _path(row, page)
    if len(rows) + len(slight) > len(shown):
        yield f"and {len(rows) + len(slight) - len(shown)} more paths (--json)"
    for each in [row for row in page.every if row.change is Effect.OPEN][:3]:
        yield from _wrapped(f"{_cell(each)}: not compared: {each.reason}", "", "    ")


def _trade(rows: Sequence[PathRow]) -> tuple[list[int], list[tuple[PathRow, dict[int, str]]]]:
    """The patches that moved a path, and the cells of each path that one moved, who pays first.

    Nothing where there is no more than one such patch.
    """
    parts = {row.scenario: [part for part in row.parts if part.change.moved] for row in rows}
    moved = sorted({part.patch for each in parts.values() for part in each})
    if len(moved) < 2:
        return [], []
    most = {name: max(part.percent for part in each) for name, each in parts.items() if each}
    found = sorted((row for row in rows if row.scenario in most), key=lambda r: -most[r.scenario])
    return moved, [(row, {part.patch: _change(part) for part in row.parts}) for row in found]


def _traded(page: CheckPage, most: int) -> Iterator[str]:
    """Who gains and who pays, on amd64: the patches with the largest parts, both ends of paths."""
    moved, rows = _trade(page.paths)
    parts = sorted((-abs(part.percent), part.patch) for row, _ in rows for part in row.parts)
    shown = sorted([*dict.fromkeys(number for _, number in parts if number in moved)][:_ACROSS])
    if not shown:
        return
    ends = rows if len(rows) <= most else [*rows[: most - most // 2], *rows[-(most // 2) :]]
    yield ""
    yield from _in_columns("Who pays, who gains", [*(f"patch {n}" for n in shown), "all"])
    for row, cells in ends:
        cell = [cells.get(number, "same") for number in shown]
        yield from _in_columns(f"{row.scenario} ({row.pages} pages)", [*cell, _change(row)])
    if len(rows) > len(ends) or len(moved) > len(shown):
        yield f"of {len(rows)} paths and {len(moved)} patches; all of them: --html"


def _in_columns(name: str, cells: Sequence[str]) -> Iterator[str]:
    """A name and cells at the right, in a line of their own where the name leaves no room."""
    right = "".join(f"{cell:>{_COLUMN}}" for cell in cells)
    lines = _wrapped(name)
    if len(lines[-1]) >= WIDTH - len(right):
        lines.append("")
    yield from lines[:-1]
    yield f"{lines[-1]:<{WIDTH - len(right)}}{right}"


def _path(rows: Sequence[PathRow], page: CheckPage) -> Iterator[str]:
    """A path: its row on one architecture, or a column for each and the figures that changed."""
    first = rows[0]
    name = f"{first.scenario} ({first.pages} pages)"
    by = {row.arch: f", patch {row.patch}" if row.patch else "" for row in rows}
    if len(page.arches) == 1:
        yield from _wrapped(f"{name}: {first.change}{by[first.arch]}")
        yield from _figures(first, page, "")
        return
    found = {row.arch: row for row in rows}
    blind = {side.arch for side in page.elsewhere if any(row.wrong for row in side.patches)}
    cells = [
        "?" if arch in blind and arch not in found else _change(found.get(arch))
        for arch in page.arches
    ]
    yield from _in_columns(name, cells)
    for row in rows:
        if row.change.moved:
            yield from _figures(row, page, f"{_shown(row.arch)}: {row.change}{by[row.arch]}, ")


def _change(row: PathRow | PatchPart | None) -> str:
    """A cell of a column.  "same": no changed code is executed there, or the length is equal."""
    if row is None or row.change is Effect.EQUAL:
        return "same"
    if row.change.moved:
        return sized(row.percent)
    return "?" if row.change is Effect.OPEN else "~0"


def _figures(row: PathRow, page: CheckPage, name: str) -> Iterator[str]:
    if row.before is not None and row.after is not None:
        percent = "" if name else f" ({sized(row.percent)})"
        yield from _wrapped(f"{_amounts(row, page)}{percent}", f"    {name}", "    ")
    if row.functions:
        parts = [f"{each.function} {each.size}" for each in row.functions]
        yield from _wrapped(", ".join(parts), "    ", "    ")


def _amounts(row: PathRow, page: CheckPage) -> str:
    both = row.before or 0, row.after or 0
    old, new = (f"{n:.{0 if n >= _MANY else 2}f}" for n in both)
    if old == new and both[0] != both[1]:
        old, new = (f"{n:.4f}" for n in both)
    return f"{old} -> {new} {page.words.each}a {row.operation}"


def _claim(each: JudgedClaim) -> str:
    percent = "" if each.percent is None else f" {each.percent:g}"
    return f"{each.scenario} {each.direction}{percent} ({each.place}{_where(each.arch)})"


def _changed_since(page: CheckPage) -> list[str]:
    apart = f"; {page.apart} paths are on one of the two pages only" if page.apart else ""
    head = f"Since {page.against}"
    if not page.since:
        return ["", *_wrapped(f"{head}: every path has the same answer{apart}.")]
    rows = [
        f"{each.scenario}{_where(each.arch)} {each.was:+.1f} % -> {each.now:+.1f} %"
        for each in sorted(page.since, key=lambda each: -abs(each.now - each.was))
    ]
    _, _, *lines = _listed(head, rows, _SINCE, "  ")
    return ["", *_wrapped(f"{head}{apart}:"), *lines]


def _cell(row: PathRow) -> str:
    return f"{row.scenario}, {row.pages} pages{_where(row.arch)}"


def _where(arch: str) -> str:
    return f", {arch}" if arch != HOME else ""


def _shown(arch: str) -> str:
    return "x86-64" if arch == HOME else arch


def _wrapped(said: str, first: str = "", rest: str | None = None) -> list[str]:
    indent = " " * len(first) if rest is None else rest
    return columns.filled(first + printable(said, 1000), WIDTH, "", indent) or [""]


_ABOUT = "A path length is never a time; contention, caches and devices are not in it."


def robot_heading(report: RobotReport, row: RobotRow) -> Iterator[str]:
    """What is asked: the commit and the change; before it what is within the spread."""
    if row.within:
        spreads = " and ".join(f"{each:g} %" for each in row.spreads)
        yield f"The mail's own figures decide nothing: both values deviate by {spreads}."
    yield f'{report.commit[:12]} ("{report.title}"): {row.percent:+g} % of {row.metric}'


_POINTS = "percentage points of all cycles"
_PARTS = {
    "path": "instructions per operation",
    "cycles": "cycles per instruction",
    "rest": "cycles per second",
    "speed": "instructions per second",
}
_MEANS = {
    "path": "path length, which a count can explain, is most of",
    "cycles": "cycles per instruction (caches, contention), which no count has, are most of",
    "rest": "time that was not on a CPU (waiting), or another clock rate, is most of",
    "speed": "instructions per second (caches, waiting), which no count has, are most of",
    "": "no part is most of",
}


def robot_split(found: RateSplit, row: RobotRow, *, concluded: bool = True) -> str:
    """What the mail's own figures say that its change is made of, and if concluded mostly."""
    told = ", ".join(
        f"{_PARTS[part]} {percent:+.1f} % ({round(100 * found.shares[part])} % of it)"
        for part, ratio in found.ratios.items()
        if (percent := round(100 * ratio - 100, 1))
    )
    change = f"the {row.percent:+g} % of {row.metric}"
    share = round(100 * found.shares["path"])
    said = f"Path length: {share} % of {change}, by the mail's own figures: {told}."
    said += f" So {_MEANS[found.most]} it." * concluded
    if found.deviates:
        part = _PARTS[found.most]
        said = f"The mail's own figures do not say what {change} is: {told}, and {part}"
        return f"{said} deviates by {found.deviates:g} % on both sides together."
    names, points = found.lock
    own = "The mail has no profile" if not found.profiled else "Its profile names no lock"
    if found.own[0]:
        function, grew = found.own[0][0], found.own[1]
        own += f"; by itself {function} changed most, by {grew:+g} {_POINTS}"
    if not names:
        return f"{said} {own}." if found.most not in ("path", "") else said
    callers = f", mostly by {' <- '.join(names[1:])}" * (len(names) > 1)
    lock = f" {names[0]}, where tasks wait for a lock, takes {points:+g} {_POINTS}{callers}"
    return f"{said}{lock}{': spinning is path, too, and in no count' * (found.most == 'path')}."


def robot_lines(case: GateCase, why: str, objects: Sequence[FunctionPart]) -> Iterator[str]:
    """What the tasks of a test take from each other, per operation, and by which objects.

    why: it decides nothing.
    """
    if case.old is None or case.new is None:
        yield f"Lines that tasks take from each other ({case.name}): {why}."
        return
    said = f"{case.old:.2f} -> {case.new:.2f} per {case.operation}"
    moved = "; ".join(f"{part.function} ({part.delta:+.3g})" for part in objects)
    yield (
        f"Lines that tasks take from each other ({case.name}): {said}, {case.comparison.verdict}"
        f"{why and f' ({why})'}{moved and ': '}{moved}."
    )


def robot_answer(
    row: RobotRow,
    better: Direction,
    case: GateCase,
    why: str,
    where: str,
    *,
    own: RateSplit | None = None,
    apart: str = "",
) -> Iterator[str]:
    """How much of the published change a path length explains.

    A path of p percent more instructions, at the same time an instruction, is p percent more time
    and a rate of 100 / (100 + p).  why: it cannot be said.  where: scenario and kernels, in words.
    own: what the mail's figures say of it.  apart: why the count is of more than the commit.
    """
    yield from filter(None, [apart])
    if why:
        yield f"Cannot be said: {why}."
        return
    longer = 100 * ((case.new or 0.0) / (case.old or 1.0) - 1)
    moved = longer if better is Direction.LESS else 100 * (100 / (100 + longer) - 1)
    where = f"{where}: path {longer:+.2f} %"
    if own and not own.deviates and own.shares["path"] > 0 and moved * row.percent <= 0:
        share = f"By the robot's figures path length is {round(100 * own.shares['path'])} % of it"
        yield f"{share}; our count of these kernels does not show it ({where})."
    elif not longer:
        yield f"Not a path length: it is the same to the instruction ({where})."
    elif moved * row.percent <= 0:
        yield f"Not explained by path length, which went the other way ({where})."
    else:
        part = min(abs(moved), abs(row.percent))
        yield f"Path length explains {part:.1f} of {abs(row.percent):g} % ({where})."
    yield _ABOUT
