# SPDX-License-Identifier: GPL-2.0-or-later
"""A lab as static files: a page, and JSON beside it, for each view; a feed of steps.

All pages share one style and one script, which lie at the top.  Names of files are made of digests
and harmless letters, so nothing that a run names leads anywhere.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, starmap
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kdelta.analysis.calls import CallExplanation
from kdelta.analysis.explanation import TOP, Explanation, shortened
from kdelta.analysis.lab import (
    FunctionRows,
    HistoryPoint,
    Lab,
    LabStep,
    PairRow,
    Pairs,
    ScenarioHistory,
)
from kdelta.analysis.work import KindDelta, WorkExplanation
from kdelta.bisect.journal import Journal
from kdelta.metric import number, plural
from kdelta.printable import printable
from kdelta.procfs import series_number
from kdelta.rendering import explain, sentences
from kdelta.rendering.formats import asset, columnar, json_fields, packed, picked, template
from kdelta.rendering.sentences import change, effort
from kdelta.sample import TOTAL
from kdelta.table.columns import crossed_by
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.workload import Workload, is_file

Stretch = Sequence[HistoryPoint]
_DIGITS = 9  # of a value: ratios of what is said have three decimals
_ABSENT = "-"
_PART = "P"  # the letter of what is the same in sum, and in a part is not
_LETTERS = {
    Verdict.REGRESSION: "R",
    Verdict.IMPROVEMENT: "I",
    Verdict.SAME: "S",
    Verdict.UNDECIDED: "U",
    Verdict.INVALID: "X",
}
_NUMBER = re.compile(r"(\d(?:[\d,.]*\d)?)")
_ODD = re.compile(r"[^A-Za-z0-9.]+")
_MOST_NAME = 60
_SAID = 3  # functions of a change that are named, the largest
_FORMAT = 3  # of the JSON beside the pages
_STYLE, _SCRIPT = "site.css", "site.js"
_SCRIPTED = ("grid", "pairs", "steps", "functions")  # pages that are sorted or filtered
_ATOM = "http://www.w3.org/2005/Atom"


def _function_table(function: FunctionRows, kernels: Sequence[str]) -> dict[str, Any]:
    """Of all kernels, oldest first.

    kernels: the first, and those at which a figure is another than at the kernel before.
    rows: scenarios that have the same figures, and these; "" where it did not run.
    """
    figures = [[_figure(cell) for cell in cells] for _, cells in function]
    columns = list(zip(*figures, strict=True))
    told = [at for at, own in enumerate(columns) if at == 0 or own != columns[at - 1]]
    alike: dict[tuple[str, ...], list[str]] = {}
    for (name, _), cells in zip(function, figures, strict=True):
        alike.setdefault(tuple(cells[at] for at in told), []).append(name)
    return {
        "kernels": tuple(kernels[at] for at in told),
        "rows": tuple((tuple(names), cells) for cells, names in alike.items()),
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
    return [*found]


def _point_told(point: HistoryPoint) -> tuple[object, ...]:
    """What a row says besides the kernel; why it is the same work, the values tell."""
    own = point.comparison
    judged = own and (
        own.verdict,
        own.differences,
        own.within,
        own.reasons if own.verdict is not Verdict.SAME else (),
    )
    value = None if point.value is None else number(point.value)
    phases = tuple((phase, number(own)) for phase, own in point.phases)
    return value, phases, judged, point.note, point.run_id


def _history_row(own: Stretch) -> dict[str, Any]:
    """Values and why are the first kernel's: on the others the same is said."""
    first, judged = own[0], own[0].comparison
    told = {
        "kernels": [point.kernel for point in own],
        "values": None if first.value is None else _rounded(first.value),
        "phases": {phase: _rounded(value) for phase, value in first.phases},
        **picked(first, ("note", "previous", "run_id")),
    }
    if judged is None:
        return told
    return told | picked(judged, ("verdict", "reasons", "differences", "spread"))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _why(own: Stretch) -> str:
    """Why the first of them has its verdict, or its run; and which others it stands for."""
    first = own[0]
    reasons = "; ".join(first.comparison.reasons) if first.comparison else ""
    text = first.note or reasons or first.run_id
    others = ", ".join(point.kernel for point in own[1:])
    return f"{text}; then as much on {others}" if others else text


def pair_table(kernels: Sequence[str], pairs: Pairs, page: Callable[[str], str]) -> dict[str, Any]:
    """All pairs.  page: of a scenario, by its name.

    words: what a letter means ("-": not compared, or not counted on both).  reasons: of "U" and
    "X", the pieces of text around their numbers.  scenarios: name, page, operation, and in

    * values: what is said and the number; of: which of them each kernel has, null for none
    * answers: a letter; for "U" and "X", and where parts go another way, also the number of the
      reason with its own numbers
    * runs: answers to a kernel and each newer one, as how many of which, ending at the newest
    * rows: which of `runs` is each older kernel's, to be read from its end
    * apart: of two kernels another run's values were compared: old, new, and these.
    """
    places = {kernel: at for at, kernel in enumerate(kernels)}
    own: dict[str, dict[tuple[int, int], PairRow]] = defaultdict(dict)
    for (old, new), rows in pairs.items():
        for row in rows:
            own[row.name][places[old], places[new]] = row
    reasons: dict[tuple[str, ...], int] = {}
    told = [
        _pair_scenario(name, page(name), own[name], len(kernels), reasons) for name in sorted(own)
    ]
    return {
        "words": {own: effort(verdict) for verdict, own in _LETTERS.items()}
        | {_PART: "a part alone"},
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
    seen: dict[int, Counter[float]] = defaultdict(Counter)
    for (old, new), row in rows.items():
        seen[old][row.old] += 1
        seen[new][row.new] += 1
    # The value of each kernel that most of its pairs have.
    usual = {kernel: values.most_common(1)[0][0] for kernel, values in seen.items()}
    values: dict[float, int] = {}
    answers: dict[tuple[object, ...], int] = {}
    shared: list[list[int]] = []  # the rows that are not the end of one before
    chosen = []  # and which of them each row is the end of
    for old in range(kernels - 1):
        told = [_answer(rows.get((old, new)), reasons) for new in range(old + 1, kernels)]
        own = [answers.setdefault(one, len(answers)) for one in told]
        at = next((n for n, one in enumerate(shared) if one[-len(own) :] == own), len(shared))
        shared += [own] if at == len(shared) else []
        chosen.append(at)
    runs = [[(len([*same]), one) for one, same in groupby(row)] for row in shared]
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
        "runs": [[*chain.from_iterable(row)] for row in runs],
        "rows": chosen,
        "apart": [
            [old, new, _pair_told(row.old), _pair_told(row.new)]
            for (old, new), row in rows.items()
            if (usual[old], usual[new]) != (row.old, row.new)
        ],
    }


def _answer(row: PairRow | None, reasons: dict[tuple[str, ...], int]) -> tuple[object, ...]:
    """A letter; of no answer, and of parts, also the reason's number, and the numbers in it."""
    if row is None:
        return (_ABSENT,)
    judged = row.comparison
    letter = _letter(judged)
    why = "; ".join(judged.reasons) if letter in "UX" else judged.within
    if not why:
        return (letter,)
    pieces = _NUMBER.split(printable(why))
    return letter, reasons.setdefault(tuple(pieces[::2]), len(reasons)), *pieces[1::2]


def _letter(found: Comparison) -> str:
    return _PART if found.verdict is Verdict.SAME and found.within else _LETTERS[found.verdict]


def _pair_told(value: float) -> list[object]:
    return [number(value), _rounded(value)]


# What the pages of a lab are made of: a path, data for its JSON, and what the template takes.
_Page = tuple[str, object, dict[str, Any]]


def _page(path: str, kind: str, title: str, data: object, said: str, /, **context: Any) -> _Page:
    own = {"kind": kind, "title": title, "sentence": said, "verdict": ""}
    return path, data, own | context


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
    found = {name: asset(name).encode() for name in (_STYLE, _SCRIPT)}
    for path, data, context in site.pages():
        kind, json = context["kind"], path.removesuffix(".html") + ".json"
        # Content-Security-Policy: the style and, where one is needed, the script beside the page.
        script = " script-src 'self';" if kind in _SCRIPTED else ""
        text = template("site.html").render(
            **context,
            effort=effort,
            change=lambda ratio: change(ratio, "instructions"),
            lab=lab,
            up="../" * path.count("/"),
            own_json=json.rpartition("/")[2],
            feed=bool(address),
            scripted=bool(script),
            policy=(
                f"default-src 'none'; style-src 'self';{script} img-src data:; base-uri 'none';"
                " form-action 'none'"
            ),
        )
        found[path] = text.encode()
        fields = json_fields(f"site-{kind}", {"page": data}, form=_FORMAT)
        found[json] = packed(columnar(fields)).encode()
    if address:
        found["feed.xml"] = site.feed(address.rstrip("/")).encode()
    return found


def slug(*names: str) -> str:
    """A name of a file: letters that lead nowhere, and a digest that keeps names apart."""
    whole = "\0".join(names)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    words = _ODD.sub("-", "-".join(names)).strip("-.").replace("..", ".")[:_MOST_NAME]
    return f"{words or 'x'}-{digest}"


class _Site:
    def __init__(
        self, lab: Lab, details: Callable[[LabStep], StepDetail], workloads: Mapping[str, Workload]
    ) -> None:
        self._lab, self._details, self._workloads = lab, details, workloads
        self._steps: dict[tuple[str, str, str], dict[str, LabStep]] = defaultdict(dict)
        for one in (*lab.steps, *lab.left_open):
            own = one.explanation
            self._steps[one.called, own.old, own.new].setdefault(own.phase, one)
        self._named: dict[str, str] = {}  # functions of a step, by its page

    def pages(self) -> Iterator[_Page]:
        lab = self._lab
        yield from map(self._step, (*lab.steps, *lab.left_open))  # which name functions for others
        yield (grid := self._grid())
        yield self._all_steps(grid[2]["sentence"], grid[2]["verdict"])
        yield self._all_pairs()
        links = [(name, _function(name)) for name in lab.functions]
        names, said = [*lab.functions], f"{plural(len(links), 'function')}."
        title = "Functions that steps name"
        yield _page("functions.html", "functions", title, names, said, links=links)
        left_out = plural(len(lab.left_out), "other")
        said = f"{plural(len(lab.runs), 'run')} of one machine, {left_out} left out."
        yield _page("runs.html", "runs", "Runs", lab.runs, said)
        yield from map(self._history, lab.scenarios)
        yield from starmap(self._function_page, lab.functions.items())

    def _summary(
        self, changes: Iterable[LabStep], over: str, cells: Iterable[dict[str, str]]
    ) -> tuple[str, str]:
        """The largest change; where that is undecided, also the largest that is not; how many.

        With the verdict on the largest.
        """
        ordered = sorted(changes, key=lambda one: -one.explanation.comparison.factor)
        decided = [one for one in ordered if one.explanation.comparison.verdict.is_step]
        verdicts = [one.explanation.comparison.verdict for one in ordered]
        worse, better = map(verdicts.count, (Verdict.REGRESSION, Verdict.IMPROVEMENT))
        left = [cell["verdict"] for cell in cells].count(Verdict.UNDECIDED)
        told = [f"The largest change: {self._headline(one)}." for one in ordered[:1]]
        if decided and decided[0] is not ordered[0]:
            told.append(f"The largest that is decided: {self._headline(decided[0])}.")
        told.append(f"{over}: {plural(worse, 'step')} to more work, {better} to less")
        said = " ".join(told) + f", {left} undecided" * bool(left) + "."
        return said, next(iter(verdicts), Verdict.UNDECIDED if left else "")

    def _headline(self, step: LabStep) -> str:
        """Which scenario and kernels, how much, what is decided, and by which functions."""
        own, judged = step.explanation, step.explanation.comparison
        told, why = f"which is {effort(judged.verdict)}", ""
        if not judged.verdict.is_step:
            apart = f", since the two were built {crossed_by([judged])} ({judged.crossing})"
            told = effort(judged.verdict) + apart * bool(judged.crossing)
            why = "" if judged.crossing else f": {'; '.join(judged.reasons)}"
        named = self._named[_step(step)]
        functions = f", by function {named} per {own.operation}" * bool(named)
        return f"{_said(step)}, {told}{functions}{why}"

    def _grid(self) -> _Page:
        lab = self._lab
        rows: list[dict[str, Any]] = [
            {"name": one.name, "href": _scenario(one.name), "cells": [*self._cells(one)]}
            for one in lab.scenarios
        ]
        over = f"{plural(len(rows), 'scenario')} over {plural(len(lab.kernels), 'kernel')}"
        cells = [cell for row in rows for cell in row["cells"]]
        said, verdict = self._summary((*lab.steps, *lab.left_open), over, cells)
        data = {"kernels": lab.kernels, "scenarios": rows}
        title = "Which path changed in which kernel"
        return _page("index.html", "grid", title, data, said, verdict=verdict, grid=rows)

    def _cells(self, history: ScenarioHistory) -> Iterator[dict[str, str]]:
        points = {one.kernel: one for one in history.points}
        first = True
        for kernel in self._lab.kernels:
            point = points.get(kernel)
            href = text = verdict = ""
            if point is None:
                text = _ABSENT
            elif point.value is None:
                text = point.note
            elif first:
                first, text = False, number(point.value)
            elif told := self._told(history.name, point):
                text = ", ".join(phase + _short(one.ratio, one.verdict) for phase, one, _ in told)
                _, judged, href = told[0]
                # Without a page of its own the reason stands on the scenario's.
                verdict, href = judged.verdict, href or _scenario(history.name) * bool(text)
            yield {"text": text, "href": href, "verdict": verdict}

    def _told(self, name: str, point: HistoryPoint) -> list[tuple[str, Comparison, str]]:
        """What is told of a kernel against the one before: of all phases together or, where that is
        no step, of each that has one, the largest first; with its name, and the step's page.
        """
        if not point.comparison:
            return []
        steps = dict(self._steps.get((name, point.previous, point.kernel), {}))
        whole = steps.pop(TOTAL, None)
        if steps and not point.comparison.verdict.is_step:
            return [(f"{of} ", one.explanation.comparison, _step(one)) for of, one in steps.items()]
        return [("", point.comparison, _step(whole) if whole else "")]

    def _history(self, history: ScenarioHistory) -> _Page:
        rows = []
        changes: list[LabStep] = []
        for own in stretches(history):
            point = own[0]
            told = self._told(history.name, point)
            changes += self._steps.get((history.name, point.previous, point.kernel), {}).values()
            rows.append({"own": own, "point": point, "told": told, "why": _why(own)})
        data = {
            "name": history.name,
            "operation": history.operation,
            "points": [_history_row(one) for one in stretches(history)],
        }
        path = _scenario(history.name)
        phases = [name for name, _ in max((one.phases for one in history.points), key=len)]
        over = plural(len(history.points), "kernel")
        said, verdict = self._summary(changes, over, self._cells(history))
        more = {"history": history, "rows": rows, "phases": phases, "figure": _figure}
        return _page(path, "history", history.name, data, said, verdict=verdict, **more)

    def _all_pairs(self) -> _Page:
        kernels, pairs = self._lab.kernels, self._lab.pairs
        data = pair_table(kernels, pairs, _scenario)
        known = {}
        for pair, rows in pairs.items():
            letters = Counter(_letter(row.comparison) for row in rows)
            told = [f"{sum(letters[one] for one in 'RIP')} of {len(rows)}"]
            told += [f"{letters[one]} {data['words'][one]}" for one in "UX" if letters[one]]
            known[pair] = ", ".join(told)
        changed = ((one.explanation.old, one.explanation.new) for one in self._lab.steps)
        begin = next((two for two in changed if two in known), next(reversed(known), ()))
        return _page(
            "compare.html",
            "pairs",
            "Two kernels",
            data,
            "How many scenarios changed from one kernel to another.",
            data=packed(data).replace("<", "\\u003c"),
            overview=[(old, [known.get((old, new), "") for new in kernels]) for old in kernels],
            # The part of an address that chooses two kernels, as the page's script reads it.
            anchor=lambda *two: "#" + "..".join(quote(printable(name), safe="") for name in two),
            begin=" ".join(str(kernels.index(name)) for name in begin),
        )

    def _all_steps(self, said: str, verdict: str) -> _Page:
        rows = []
        data = []
        for step in self._lab.steps:
            own, page = step.explanation, _step(step)
            rows.append({"step": step, "href": page, "functions": self._named[page]})
            told = picked(own, ("old", "new", "phase", "ratio"), ratio=own.comparison.ratio)
            data.append({"scenario": step.called, **told, "page": page})
        return _page("steps.html", "steps", "Steps", data, said, verdict=verdict, rows=rows)

    def _step(self, step: LabStep) -> _Page:
        least, every = explain.Scale.of(step.explanation).least, step.explanation.functions
        told = sum(abs(row.delta) >= least for row in every[:TOP])  # the largest are first
        own = shortened(step.explanation, told)
        rows = [
            (name, f"../{_function(name)}" * (name in self._lab.functions), delta, cells[:4])
            for name, _, delta, cells in explain.function_cells(own)
        ]
        detail = self._details(step)
        self._named[_step(step)] = _functions(own, detail.calls)
        beside = _step_context(own, detail)
        data = _step_document(step, detail, beside)
        said = sentences.first_of_counts(own, step.point, self._workloads)
        judged = own.comparison
        if not (judged.verdict.is_step or judged.crossing):
            said = f"{effort(judged.verdict).capitalize()}: {said}"
        both = zip(step.kernels, (own.old, own.new), strict=True)
        if found := detail.culprit:
            beside |= {"culprit": found, "bisected": f"../{_step(found.step)}"}
        return _page(
            _step(step),
            "step",
            f"{step.called}: {own.old} to {own.new}",
            data,
            said,
            verdict=judged.verdict,
            step=step,
            rows=rows,
            renamed=explain.renamed(own.functions),
            asked=shlex.join(ref.removeprefix("deb:") or name for ref, name in both),
            measured=shlex.join([step.name.split(" ")[0], "--kernels", ",".join(step.kernels)])
            # Nobody else has a file of the user's own; of a program not even he.
            if all(step.kernels) and not is_file(own.workload)
            else "",
            **beside,
        )

    def _function_page(self, name: str, function: FunctionRows) -> _Page:
        table = _function_table(function, self._lab.kernels)
        told, rows, count = [], [], 0
        for names, cells in table["rows"]:
            told.append([names, [float(cell) if cell else None for cell in cells]])
            rows.append(([(one, f"../{_scenario(one)}") for one in names], cells))
            count += len(names)
        data = {"name": name, "kernels": table["kernels"], "rows": told}
        said = f"{plural(count, 'scenario')} execute{'s' * (count == 1)} it."
        return _page(_function(name), "function", name, data, said, table=table, rows=rows)

    def feed(self, address: str) -> str:
        """Atom (RFC 4287): the steps, newest run first."""
        root = Element("feed", xmlns=_ATOM)
        SubElement(root, "title").text = "New steps of kernel paths"
        SubElement(root, "id").text = printable(f"{address}/feed.xml")
        SubElement(root, "link", rel="self", href=printable(f"{address}/feed.xml"))
        newest = self._lab.newest or "1970-01-01T00:00:00+00:00"
        SubElement(root, "updated").text = printable(newest)
        SubElement(SubElement(root, "author"), "name").text = "kdelta"
        for step in sorted(self._lab.steps, key=lambda one: one.created, reverse=True):
            own = step.explanation
            entry = SubElement(root, "entry")
            SubElement(entry, "title").text = printable(_said(step, ":"))
            key = slug(step.called, own.old, own.new, own.phase)
            SubElement(entry, "id").text = f"urn:kdelta:step:{key}"
            SubElement(entry, "updated").text = printable(step.created)
            SubElement(entry, "link", href=printable(f"{address}/{_step(step)}"))
            SubElement(entry, "summary").text = printable(effort(own.comparison.verdict))
        indent(root)
        return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'


def _said(step: LabStep, mark: str = ",") -> str:
    own = step.explanation
    size = change(own.comparison.ratio, "instructions")
    phase = f", phase {own.phase}" * (own.phase != TOTAL)
    return f"{step.called}{phase}{mark} {size} from {own.old} to {own.new}"


def _functions(own: Explanation, calls: CallExplanation | None) -> str:
    """Those that a change is made of, as explain names them first: by call paths, where known."""
    if calls and calls.difference:
        rows = [(one.function, one.delta, "") for one in calls.difference.causes]
    else:
        rows = [(explain.called(one), one.delta, str(one.status)) for one in own.leading]
    parts = sentences.parts_of(rows[:_SAID], own.delta or 0, explain.Scale.of(own))
    return ", ".join(parts)


def _scenario(name: str) -> str:
    return f"scenario/{slug(name)}.html"


def _function(name: str) -> str:
    return f"function/{slug(name)}.html"


def _step(step: LabStep) -> str:
    own = step.explanation
    return f"step/{slug(step.called, own.old, own.new, own.phase)}.html"


def _figure(value: float | None) -> str:
    return "" if value is None else number(value)


def _short(ratio: float | None, verdict: Verdict) -> str:
    """A cell: "23 % more", "2.22 times", nothing where nothing changed."""
    if ratio is None or not verdict.is_step:
        return verdict.lower() * (verdict is not Verdict.SAME)
    return change(ratio, "").strip().replace(" the", "")


# Of an explanation, what its JSON tells besides functions; differences and shares, these tell.
_TOLD = (
    "phase", "old", "new", "old_release", "new_release", "old_compiler", "new_compiler",
    "operation", "operations", "step_percent", "old_value", "new_value", "audited", "copies",
)  # fmt: skip
_JUDGED = (
    "verdict", "reasons", "crossing", "options", "proven", "differences", "signless", "ratio",
    "spread",
)  # fmt: skip
_OF_STEP = ("name", "run_id", "kernels", "point", "created", "phases")
_BRANCHES = 24  # lines of the tree
_OF_BRANCH = ("delta", "own", "calls", "path")
_NARROWEST = 0.004  # share of a flame graph's width: a page is one of many


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectedCommit:
    """The commit that a bisection of a step's scenario came down to; step: that it measured."""

    label: str
    title: str
    step: LabStep


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDetail:
    """What the run of a step kept beside its counts, and who bisected it; None: nobody did."""

    work: WorkExplanation | None = None
    calls: CallExplanation | None = None
    culprit: BisectedCommit | None = None


def culprit(
    step: LabStep, steps: Sequence[LabStep], journals: Sequence[Journal]
) -> BisectedCommit | None:
    """The commit of a step between releases, by the newest bisection of commits that ended.

    It is of the same scenario and phase, between the same two series, and its run shows a step
    between two neighbouring commits, the largest of which is meant.
    """
    wanted = [series_number(name) for name in (step.explanation.old, step.explanation.new)]
    if not all(map(any, wanted)) or wanted[0] == wanted[1]:
        return None
    for state in (journal.state for journal in journals):
        asked = state.question
        ends = [*map(series_number, asked.study.kernels)]
        same = (asked.study.scenarios[0], asked.phase) == (step.name, step.explanation.phase)
        if not (same and state.ended and asked.kind == "tree" and ends == wanted):
            continue
        places = {point.label: at for at, point in enumerate(state.points)}
        for one in (one for one in steps if one.run_id == state.run_id):
            old, new = (places.get(name) for name in (one.explanation.old, one.explanation.new))
            if old is not None and new == old + 1:
                point = state.points[new]
                return BisectedCommit(label=point.label, title=point.title, step=one)
    return None


def _step_context(found: Explanation, detail: StepDetail) -> dict[str, Any]:
    scale, difference = explain.Scale.of(found), detail.calls.difference if detail.calls else None
    tree = explain.branches(difference.root, difference.causes) if difference else []
    return {
        "sentences": sentences.difference_sentences(found, difference, detail.work)[1:],
        "kinds": [row for row in _kinds(detail) if scale.signed(row.delta).strip("+-0.,")],
        "scale": scale,
        "explain": explain,
        "causes": explain.told_causes(difference, scale),
        "branches_left_out": max(len(tree) - _BRANCHES, 0),
        "tree": [
            dict(zip(_OF_BRANCH, explain.branch_cells(row, scale), strict=True))
            for row in tree[:_BRANCHES]
        ],
        "pictures": explain.flame_graphs(difference, scale, narrowest=_NARROWEST),
    }


def _step_document(step: LabStep, detail: StepDetail, beside: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON.  Of functions, old and new are instructions per window; null: it did not run."""
    own = shortened(step.explanation, TOP)
    return {
        **picked(step, _OF_STEP, name=step.called),
        "alone": step.alone or None,
        **picked(own, _TOLD, audited=own.audited or None),
        "comparison": picked(own.comparison, _JUDGED),
        "strings": own.strings and picked(own.strings, ("old", "new")),
        "functions": [
            picked(row, ("function", "was", "old", "new", "calls_old", "calls_new"))
            for row in own.functions
        ],
        "others": own.rest and picked(own.rest, ("count", "old", "new")),
        "folded": own.folded,
        "sentences": beside["sentences"],
        "kinds": _kinds(detail),
        "causes": beside["causes"],
        "culprit": detail.culprit and [detail.culprit.label, detail.culprit.title],
    }


def _kinds(detail: StepDetail) -> list[KindDelta]:
    rows = (*detail.work.work, *(detail.work.memory or ())) if detail.work else ()
    return [row for row in rows if row.delta]
