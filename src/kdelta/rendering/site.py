# SPDX-License-Identifier: GPL-2.0-or-later
"""A lab as static files: a page, and JSON beside it, for each view; a feed of steps.

All pages share one style and one script, which lie at the top.  Names of files are made of digests
and harmless letters, so nothing that a run names leads anywhere.

A function's history has a column for each kernel at which it changed, a scenario's a row for each
stretch of kernels of which it tells the same.  Any two kernels are one table, out of which the
script shows the two that are asked for.  Most kernels are alike in most scenarios, and so are their
rows against all newer ones: such a row stands once, an answer once in a scenario, a reason once.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kdelta.analysis.explanation import FunctionDelta, Rest
from kdelta.analysis.lab import (
    FunctionHistory,
    HistoryPoint,
    Lab,
    LabStep,
    Pair,
    PairRow,
    ScenarioHistory,
)
from kdelta.metric import number, plural
from kdelta.printable import printable
from kdelta.rendering import sentences
from kdelta.rendering.explain import more, renamed
from kdelta.rendering.formats import asset, columnar, json_fields, packed, template
from kdelta.rendering.sentences import change, effort
from kdelta.rendering.steps import StepDetail, other_functions, shown_functions
from kdelta.rendering.steps import context as step_context
from kdelta.rendering.steps import document as step_document
from kdelta.verdict.comparison import Verdict
from kdelta.workload import Workload

if TYPE_CHECKING:
    from jinja2 import Template

Stretch = Sequence[HistoryPoint]
_DIGITS = 9  # of a value: ratios of what is told have three decimals
_ABSENT = "-"
_SAME_CODE = "="
_LETTERS = {
    Verdict.REGRESSION: "R",
    Verdict.IMPROVEMENT: "I",
    Verdict.SAME: "S",
    Verdict.UNDECIDED: "U",
    Verdict.INVALID: "X",
}
_PAIR_WORDS = {
    "R": "more work",
    "I": "less work",
    "S": "the same work",
    _SAME_CODE: "identical by code",
    "U": "undecided",
    "X": "cannot be compared",
}
_NUMBER = re.compile(r"(\d(?:[\d,.]*\d)?)")
_ODD = re.compile(r"[^A-Za-z0-9.]+")
_MOST_NAME = 60
_BAR = 120.0
_SAID = 3  # steps in a sentence, the newest
_FORMAT = 2  # of the JSON beside the pages
_STYLE, _SCRIPT = "site.css", "site.js"
_SCRIPTED = ("grid", "pairs", "steps", "functions")  # pages that are sorted or filtered
_ATOM = "http://www.w3.org/2005/Atom"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTable:
    """kernels: the first, and those at which a figure is another than at the kernel before.

    rows: scenarios that have the same figures, and these; "" where it did not run.
    fewer: a figure stands for the kernels up to the next column, too.
    """

    name: str
    kernels: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    fewer: bool

    @property
    def scenarios(self) -> int:
        """That execute it."""
        return sum(len(names) for names, _ in self.rows)


def function_table(function: FunctionHistory, kernels: Sequence[str]) -> FunctionTable:
    """Of all kernels, oldest first."""
    figures = [[_figure(cell) for cell in cells] for _, cells in function.rows]
    columns = list(zip(*figures, strict=True))
    told = [at for at, own in enumerate(columns) if at == 0 or own != columns[at - 1]]
    alike: dict[tuple[str, ...], list[str]] = {}
    for (name, _), cells in zip(function.rows, figures, strict=True):
        alike.setdefault(tuple(cells[at] for at in told), []).append(name)
    return FunctionTable(
        name=function.name,
        kernels=tuple(kernels[at] for at in told),
        rows=tuple((tuple(names), cells) for cells, names in alike.items()),
        fewer=len(told) < len(kernels),
    )


def functions_document(found: FunctionTable) -> dict[str, Any]:
    """As JSON: the figures as numbers, null where it did not run."""
    return {
        "name": found.name,
        "kernels": found.kernels,
        "rows": [
            [names, [float(cell) if cell else None for cell in cells]]
            for names, cells in found.rows
        ],
    }


def stretches(history: ScenarioHistory) -> list[Stretch]:
    """The kernels, oldest first; each of a stretch was compared with the one before it there."""
    found: list[list[HistoryPoint]] = []
    last: dict[str, list[HistoryPoint]] = {}
    for point in history.points:
        own = last.get(point.previous)
        if own and own[-1].kernel == point.previous and _point_told(own[-1]) == _point_told(point):
            own.append(point)
        else:
            own = [point]
            found.append(own)
        last[point.kernel] = own
    return list(found)


def _point_told(point: HistoryPoint) -> tuple[object, ...]:
    """What a row says besides the kernel; why it is the same work, the values tell."""
    own = point.comparison
    verdict = own.verdict if own else None
    return (
        None if point.value is None else number(point.value),
        verdict,
        own.reasons if own and verdict is not Verdict.SAME else (),
        own.differences if own else (),
        (point.note, point.same_code, point.run_id),
    )


def history_document(history: ScenarioHistory) -> dict[str, Any]:
    """As JSON: `values` and `spread` are one for all kernels of a row, or one for each.

    Ratio and difference are those of the values; a reason of SAME is the first kernel's.
    """
    return {
        "name": history.name,
        "operation": history.operation,
        "points": [_history_row(one) for one in stretches(history)],
    }


def _history_row(own: Stretch) -> dict[str, Any]:
    first = own[0]
    judged = first.comparison
    told: dict[str, Any] = {
        "kernels": [point.kernel for point in own],
        "values": _each([_rounded(point.value) for point in own]),
        "note": first.note,
        "previous": first.previous,
        "same_code": first.same_code,
        "run_id": first.run_id,
    }
    if judged is None:
        return told
    spreads = [_rounded(point.comparison.spread) if point.comparison else None for point in own]
    return told | {
        "verdict": judged.verdict,
        "reasons": judged.reasons,
        "differences": judged.differences,
        "spread": _each(spreads),
    }


def _each(values: Sequence[float | None]) -> object:
    return values[0] if len(set(values)) == 1 else values


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def stretch_names(own: Stretch) -> str:
    """ "6.1.170", "6.1.172 to 6.1.190"."""
    first, last = own[0].kernel, own[-1].kernel
    return first if len(own) == 1 else f"{first} to {last}"


def why_absent(own: Stretch) -> str:
    """Why the first of them has its verdict, or its run; and which others it stands for."""
    first = own[0]
    reasons = "; ".join(first.comparison.reasons) if first.comparison else ""
    text = first.same_code or first.note or reasons or first.run_id
    if len(own) == 1:
        return text
    others = ", ".join(point.kernel for point in own[1:])
    return f"{text}; then as much on {others}"


def pair_table(
    kernels: Sequence[str], pairs: Sequence[Pair], page: Callable[[str], str]
) -> dict[str, Any]:
    """All pairs.  page: of a scenario, by its name.

    words: what a letter means ("-": not compared, or not counted on both).  reasons: of "U" and
    "X", the pieces of text around their numbers.  scenarios: name, page, operation, and in

    * values: what is told and the number; of: which of them each kernel has, null for none
    * answers: a letter, and for "U" and "X" the number of the reason with its own numbers
    * runs: answers to a kernel and each newer one, as how many of which, ending at the newest
    * rows: which of `runs` is each older kernel's, to be read from its end
    * apart: of two kernels another run's values were compared: old, new, and these.
    """
    places = {kernel: at for at, kernel in enumerate(kernels)}
    own: dict[str, dict[tuple[int, int], PairRow]] = defaultdict(dict)
    for pair in pairs:
        for row in pair.rows:
            own[row.name][places[pair.old], places[pair.new]] = row
    reasons: dict[tuple[str, ...], int] = {}
    told = [
        _pair_scenario(name, page(name), own[name], len(kernels), reasons) for name in sorted(own)
    ]
    return {
        "words": _PAIR_WORDS,
        "kernels": [printable(kernel) for kernel in kernels],
        "reasons": list(reasons),
        "scenarios": told,
    }


def _pair_scenario(
    name: str,
    page: str,
    rows: dict[tuple[int, int], PairRow],
    kernels: int,
    reasons: dict[tuple[str, ...], int],
) -> dict[str, Any]:
    usual = _usual(rows)
    values: dict[float, int] = {}
    answers: dict[tuple[object, ...], int] = {}
    pair_cells = [
        [
            answers.setdefault(_answer(rows.get((old, new)), reasons), len(answers))
            for new in range(old + 1, kernels)
        ]
        for old in range(kernels - 1)
    ]
    shared, chosen = _shared(pair_cells)
    return {
        "name": printable(name),
        "page": page,
        "operation": printable(next(iter(rows.values())).operation),
        "of": [
            values.setdefault(usual[at], len(values)) if at in usual else None
            for at in range(kernels)
        ],
        "values": [_pair_told(value) for value in values],
        "answers": list(answers),
        "runs": [_counted(one) for one in shared],
        "rows": chosen,
        "apart": [
            [old, new, _pair_told(row.old), _pair_told(row.new)]
            for (old, new), row in rows.items()
            if (usual[old], usual[new]) != (row.old, row.new)
        ],
    }


def _usual(rows: dict[tuple[int, int], PairRow]) -> dict[int, float]:
    """The value of each kernel that most of its pairs have."""
    seen: dict[int, Counter[float]] = defaultdict(Counter)
    for (old, new), row in rows.items():
        seen[old][row.old] += 1
        seen[new][row.new] += 1
    return {kernel: values.most_common(1)[0][0] for kernel, values in seen.items()}


def _shared(pair_cells: Sequence[list[int]]) -> tuple[list[list[int]], list[int]]:
    """The rows that are not the end of one before; and which of them each row is the end of."""
    found: list[list[int]] = []
    chosen = []
    for row in pair_cells:
        at = next((n for n, one in enumerate(found) if one[-len(row) :] == row), len(found))
        if at == len(found):
            found.append(row)
        chosen.append(at)
    return found, chosen


def _counted(row: Sequence[int]) -> list[int]:
    """How many of which, after each other."""
    return [number for one, own in groupby(row) for number in (len(list(own)), one)]


def _answer(row: PairRow | None, reasons: dict[tuple[str, ...], int]) -> tuple[object, ...]:
    """A letter; of one that is no answer also the reason's number, and the numbers in it."""
    letter = _pair_letter(row) if row else _ABSENT
    if row is None or letter not in "UX":
        return (letter,)
    pieces = _NUMBER.split(printable("; ".join(row.comparison.reasons)))
    return letter, reasons.setdefault(tuple(pieces[::2]), len(reasons)), *pieces[1::2]


def pairs_begin(kernels: Sequence[str], pairs: Sequence[Pair]) -> Pair | None:
    """The two that a page begins with: the newest that were built alike, else the newest.

    Of others most of a page is undecided, next to two kernels of which it can be said.
    """
    places = {kernel: at for at, kernel in enumerate(kernels)}
    newest = sorted(pairs, key=lambda pair: (places[pair.old], places[pair.new]), reverse=True)
    return next(
        (pair for pair in newest if _judged(pair) and not pair_crossing(pair)), None
    ) or next(iter(newest), None)


def pairs_left_out(kernels: Sequence[str], pairs: Sequence[Pair]) -> list[tuple[str, str]]:
    """Kernels newer than those, for their compiler; with the two that stand between."""
    chosen = pairs_begin(kernels, pairs)
    if chosen is None or pair_crossing(chosen):
        return []
    between = {pair.new: pair_crossing(pair) for pair in pairs if pair.old == chosen.new}
    newer = kernels[kernels.index(chosen.new) + 1 :]
    return [(new, between[new]) for new in newer if between.get(new)]


def _judged(pair: Pair) -> bool:
    return any(row.comparison.verdict is not Verdict.INVALID for row in pair.rows)


def pair_crossing(pair: Pair) -> str:
    """How the kernels were built differently, as "gcc 14 -> gcc 16"; "": they were not."""
    return next((row.comparison.crossing for row in pair.rows if row.comparison.crossing), "")


def pair_anchor(old: str, new: str) -> str:
    """The part of an address that chooses two kernels, as the page's script reads it."""
    return "#" + "..".join(quote(printable(name), safe="") for name in (old, new))


def pairs_changed(pair: Pair) -> int:
    """How many scenarios the newer kernel changed."""
    return sum(row.comparison.verdict.is_step for row in pair.rows)


def _pair_letter(row: PairRow) -> str:
    return _SAME_CODE if row.same_code else _LETTERS[row.comparison.verdict]


def _pair_told(value: float) -> list[object]:
    return [number(value), _rounded(value)]


def pair_cells(kernels: Sequence[str], pairs: Sequence[Pair]) -> Iterator[tuple[str, list[str]]]:
    """Rows of the overview: the old kernel, and by the new ones "3 of 94", "" where none."""
    known = {(pair.old, pair.new): f"{pairs_changed(pair)} of {len(pair.rows)}" for pair in pairs}
    for old in kernels:
        yield old, [known.get((old, new), "") for new in kernels]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """One page.  up: the way back to the top."""

    path: str
    kind: str
    title: str
    verdict: str
    sentence: str
    data: object
    context: Mapping[str, Any]

    @property
    def up(self) -> str:
        return "../" * self.path.count("/")


def written(
    lab: Lab,
    *,
    address: str,
    details: Callable[[LabStep], StepDetail] = lambda _: StepDetail(),
    workloads: Mapping[str, Workload] = {},
) -> dict[str, bytes]:
    """Every file by its name below the site.  address: where it will be, "" for no feed.

    details: what the run of a step kept beside its counts.  workloads: those known here, by name.
    """
    site = _Site(lab, details, workloads)
    template, fixed = _template()
    found = {name: asset(name).encode() for name in (_STYLE, _SCRIPT)}
    for page in site.pages():
        json = page.path.removesuffix(".html") + ".json"
        text = template.render(
            **fixed,
            **page.context,
            lab=lab,
            kind=page.kind,
            title=page.title,
            verdict=page.verdict,
            sentence=page.sentence,
            up=page.up,
            own_json=json.rpartition("/")[2],
            feed=bool(address),
            scripted=page.kind in _SCRIPTED,
            policy=_policy(scripted=page.kind in _SCRIPTED),
        )
        found[page.path] = text.encode()
        found[json] = packed(
            columnar(json_fields(f"site-{page.kind}", {"page": page.data}, form=_FORMAT))
        ).encode()
    if address:
        found["feed.xml"] = site.feed(address.rstrip("/")).encode()
    return found


def _template() -> tuple[Template, dict[str, Any]]:
    own = {
        "effort": lambda found: effort(found, timed=False),
        "change": lambda ratio: f"{change(ratio, 'instructions')}",
    }
    return template("site.html"), own


def _policy(*, scripted: bool) -> str:
    """Content-Security-Policy: the style and, where one is needed, the script beside the page."""
    script = " script-src 'self';" if scripted else ""
    return (
        f"default-src 'none'; style-src 'self';{script} img-src data:; base-uri 'none';"
        " form-action 'none'"
    )


def slug(*names: str) -> str:
    """A name of a file: letters that lead nowhere, and a digest that keeps names apart."""
    whole = "\0".join(names)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    words = _ODD.sub("-", "-".join(names)).strip("-.").replace("..", ".")[:_MOST_NAME]
    return f"{words or 'x'}-{digest}"


class _Site:
    """The pages of a lab, and where each of them is."""

    def __init__(
        self,
        lab: Lab,
        details: Callable[[LabStep], StepDetail],
        workloads: Mapping[str, Workload],
    ) -> None:
        self._lab, self._details = lab, details
        self._workloads = workloads
        self._steps = {
            (one.name, one.explanation.old, one.explanation.new, one.explanation.phase): one
            for one in lab.steps
        }
        self._functions = {one.name for one in lab.functions}

    def pages(self) -> Iterator[_Page]:
        """Every page."""
        yield self._grid()
        yield self._all_steps()
        yield self._all_pairs()
        yield self._all_functions()
        yield self._page("runs.html", "runs", "Runs", self._lab.runs)
        for history in self._lab.scenarios:
            yield self._history(history)
        for step in self._lab.steps:
            yield self._step(step)
        for function in self._lab.functions:
            yield self._function_page(function)

    def _page(self, path: str, kind: str, title: str, data: object) -> _Page:
        count, left_out = len(self._lab.runs), plural(len(self._lab.left_out), "other")
        return _Page(
            path=path,
            kind=kind,
            title=title,
            verdict="",
            sentence=f"{plural(count, 'run')} of one machine, {left_out} left out.",
            data=data,
            context={},
        )

    def _grid(self) -> _Page:
        rows = [
            {
                "name": history.name,
                "href": _scenario(history.name),
                "cells": list(self._cells(history)),
            }
            for history in self._lab.scenarios
        ]
        data = {"kernels": self._lab.kernels, "scenarios": rows}
        page = self._page("index.html", "grid", "Which path changed in which kernel", data)
        return _with(page, self._headline(), self._verdict(), grid=rows)

    def _headline(self) -> str:
        if not self._lab.kernels:
            return "No run of this lab has a count yet."
        worse = sum(_verdict(one) is Verdict.REGRESSION for one in self._lab.steps)
        better = sum(_verdict(one) is Verdict.IMPROVEMENT for one in self._lab.steps)
        return (
            f"{plural(len(self._lab.scenarios), 'scenario')} over"
            f" {plural(len(self._lab.kernels), 'kernel')}:"
            f" {plural(worse, 'step')} to more work, {better} to less.{self._largest()}"
        )

    def _largest(self) -> str:
        if not self._lab.steps:
            return ""
        first = self._lab.steps[0]
        own = first.explanation
        size = change(own.comparison.ratio, "instructions")
        return f" The largest: {first.name}, {size} from {own.old} to {own.new}."

    def _verdict(self) -> str:
        return "REGRESSION" if any(map(_is_worse, self._lab.steps)) else "SAME"

    def _cells(self, history: ScenarioHistory) -> Iterator[dict[str, str]]:
        points = {one.kernel: one for one in history.points}
        first = True
        for kernel in self._lab.kernels:
            point = points.get(kernel)
            href = text = verdict = ""
            if point is None:
                text = "not run"
            elif point.value is None:
                text = point.note
            elif first:
                first, text = False, number(point.value)
            elif point.comparison:
                verdict = point.comparison.verdict
                text = _short(point.comparison.ratio, verdict)
                step = self._steps.get((history.name, point.previous, kernel, "total"))
                href = _step(step) if step else ""
            yield {"text": text, "href": href, "verdict": verdict}

    def _history(self, history: ScenarioHistory) -> _Page:
        longest = max((one.value or 0 for one in history.points), default=0) or 1
        rows = []
        steps = []
        for own in stretches(history):
            point = own[0]
            step = self._steps.get((history.name, point.previous, point.kernel, "total"))
            if step:
                size = change(step.explanation.comparison.ratio, "instructions")
                steps.append(f"{size} from {point.previous} to {point.kernel}")
            rows.append(
                {
                    "point": point,
                    "names": stretch_names(own),
                    "value": _figure(point.value),
                    "bar": round(_BAR * (point.value or 0) / longest),
                    "href": f"../{_step(step)}" if step else "",
                    "why": why_absent(own),
                }
            )
        over = f"{plural(len(steps), 'step')} over {plural(len(history.points), 'kernel')}"
        told_steps = f"{over}: {'; '.join(steps[-_SAID:])}." if steps else f"{over}."
        data = history_document(history)
        page = self._page(_scenario(history.name), "history", history.name, data)
        return _with(page, told_steps, history=history, rows=rows)

    def _all_pairs(self) -> _Page:
        kernels = self._lab.kernels
        data = pair_table(kernels, self._lab.pairs, _scenario)
        begin = pairs_begin(kernels, self._lab.pairs)
        page = self._page("compare.html", "pairs", "Two kernels", data)
        return _with(
            page,
            "How many scenarios changed from one kernel to another.",
            data=packed(data).replace("<", "\\u003c"),
            overview=list(pair_cells(kernels, self._lab.pairs)),
            anchor=pair_anchor,
            begin=f"{kernels.index(begin.old)} {kernels.index(begin.new)}" if begin else "",
            left=pairs_left_out(kernels, self._lab.pairs),
        )

    def _all_steps(self) -> _Page:
        rows = [
            {
                "step": step,
                "href": _step(step),
                "functions": ", ".join(
                    row.function for row in step.explanation.rising or step.explanation.falling
                ),
            }
            for step in self._lab.steps
        ]
        listed = [self._listed(step) for step in self._lab.steps]
        page = self._page("steps.html", "steps", "Steps", listed)
        return _with(page, f"{plural(len(rows), 'step')}.", rows=rows)

    def _listed(self, step: LabStep) -> dict[str, object]:
        """A step in the list of all: what it is, and its page, which has the rest."""
        own = step.explanation
        return {
            "scenario": step.name,
            "old": own.old,
            "new": own.new,
            "phase": own.phase,
            "ratio": own.comparison.ratio,
            "page": _step(step),
        }

    def _step(self, step: LabStep) -> _Page:
        own = step.explanation
        shown, others = shown_functions(own), other_functions(own)
        rows = [
            {
                "name": row.function,
                "href": f"../{_function(row.function)}" if row.function in self._functions else "",
                **_sides(row, own.operations),
            }
            for row in shown
        ]
        if others:
            name = plural(others.count, "other function")
            rows.append({"name": name, "href": "", **_sides(others, own.operations)})
        text = sentences.first_of_counts(own, step.point, self._workloads)
        title = f"{step.name}: {own.old} to {own.new}"
        detail = self._details(step)
        beside = step_context(own, detail)
        data = step_document(step, detail, beside["causes"])
        if detail.culprit:
            beside["culprit"] = detail.culprit
            beside["bisected"] = f"../{_step(detail.culprit.step)}"
        page = self._page(_step(step), "step", title, data)
        verdict = own.comparison.verdict
        return _with(
            page,
            text,
            verdict,
            step=step,
            rows=rows,
            renamed=renamed(own, (row.function for row in shown)),
            asked=shlex.join(name.removeprefix("deb:") for name in step.kernels),
            measured=shlex.join([step.name.split(" ")[0], "--kernels", ",".join(step.kernels)]),
            **beside,
        )

    def _all_functions(self) -> _Page:
        links = [(one.name, _function(one.name)) for one in self._lab.functions]
        page = self._page(
            "functions.html", "functions", "Functions that steps name", [n for n, _ in links]
        )
        return _with(page, f"{plural(len(links), 'function')}.", links=links)

    def _function_page(self, function: FunctionHistory) -> _Page:
        table = function_table(function, self._lab.kernels)
        data = functions_document(table)
        page = self._page(_function(function.name), "function", function.name, data)
        return _with(
            page,
            f"{plural(table.scenarios, 'scenario')} execute{'s' * (table.scenarios == 1)} it.",
            table=table,
            rows=[
                ([(name, f"../{_scenario(name)}") for name in names], cells)
                for names, cells in table.rows
            ],
        )

    def feed(self, address: str) -> str:
        """Atom (RFC 4287): the steps, newest run first."""
        root = Element("feed", xmlns=_ATOM)
        SubElement(root, "title").text = "New steps of kernel paths"
        SubElement(root, "id").text = printable(f"{address}/feed.xml")
        SubElement(root, "link", rel="self", href=printable(f"{address}/feed.xml"))
        SubElement(root, "updated").text = printable(
            self._lab.newest or "1970-01-01T00:00:00+00:00"
        )
        SubElement(SubElement(root, "author"), "name").text = "kdelta"
        for step in sorted(self._lab.steps, key=lambda one: one.created, reverse=True):
            own = step.explanation
            entry = SubElement(root, "entry")
            size = change(own.comparison.ratio, "instructions")
            what = f"{step.name}: {size} from {own.old} to {own.new}"
            SubElement(entry, "title").text = printable(what)
            SubElement(entry, "id").text = f"urn:kdelta:step:{slug(*_key(step), own.phase)}"
            SubElement(entry, "updated").text = printable(step.created)
            SubElement(entry, "link", href=printable(f"{address}/{_step(step)}"))
            SubElement(entry, "summary").text = printable(effort(own.comparison, timed=False))
        indent(root)
        return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'


def _with(page: _Page, sentence: str, verdict: str = "", **context: Any) -> _Page:
    return replace(page, sentence=sentence, verdict=verdict, context=context)


def _scenario(name: str) -> str:
    return f"scenario/{slug(name)}.html"


def _function(name: str) -> str:
    return f"function/{slug(name)}.html"


def _key(step: LabStep) -> tuple[str, str, str]:
    return step.name, step.explanation.old, step.explanation.new


def _step(step: LabStep) -> str:
    return f"step/{slug(*_key(step), step.explanation.phase)}.html"


def _verdict(step: LabStep) -> Verdict:
    return step.explanation.comparison.verdict


def _is_worse(step: LabStep) -> bool:
    return _verdict(step) is Verdict.REGRESSION


def _sides(row: FunctionDelta | Rest, operations: int) -> dict[str, Any]:
    old, new = (None if each is None else each / operations for each in (row.old, row.new))
    return {
        "old": _figure(old),
        "new": _figure(new),
        "delta": row.delta,
        "change": more(row.delta / operations),
    }


def _figure(value: float | None) -> str:
    return "" if value is None else number(value)


def _short(ratio: float | None, verdict: str) -> str:
    """A cell: "23 % more", "2.22 times", nothing where nothing changed."""
    if verdict == Verdict.SAME:
        return ""
    if verdict not in (Verdict.REGRESSION, Verdict.IMPROVEMENT) or ratio is None:
        return verdict.lower()
    return change(ratio, "").strip().replace("fewer", "less").replace(" the", "")
