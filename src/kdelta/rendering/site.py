# SPDX-License-Identifier: GPL-2.0-or-later
"""A lab as static files: a page, and JSON beside it, for each view; a feed of steps.

All pages share one style and one script, which lie at the top.

Names of files are made of digests and harmless letters, so nothing that a run names leads anywhere.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kdelta.analysis.explanation import FunctionDelta, Rest
from kdelta.analysis.history import FunctionHistory, Lab, LabStep, ScenarioHistory
from kdelta.analysis.triage import OPEN, Triage
from kdelta.metric import number, plural
from kdelta.printable import printable
from kdelta.rendering import lead, site_functions, site_history, site_pairs
from kdelta.rendering.explain import renamed
from kdelta.rendering.formats import packed, tabled, told
from kdelta.rendering.step import StepDetail
from kdelta.rendering.step import context as told_beside
from kdelta.rendering.step import document as step_document
from kdelta.rendering.step import others as other_functions
from kdelta.rendering.step import shown as shown_functions
from kdelta.rendering.templates import asset, template
from kdelta.rendering.wording import change, effort, more
from kdelta.verdict.comparison import Verdict
from kdelta.workload import Workload

if TYPE_CHECKING:
    from jinja2 import Template

_ODD = re.compile(r"[^A-Za-z0-9.]+")
_MOST_NAME = 60
_BAR = 120.0
_SAID = 3  # steps in a sentence, the newest
_FORMAT = 2  # of the JSON beside the pages
_STYLE, _SCRIPT = "site.css", "site.js"
_SCRIPTED = ("grid", "pairs", "steps", "functions")  # pages that are sorted or filtered
_ATOM = "http://www.w3.org/2005/Atom"


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
    triage: Triage,
    *,
    address: str,
    details: Callable[[LabStep], StepDetail] = lambda _: StepDetail(),
    workloads: Mapping[str, Workload] = {},
) -> dict[str, bytes]:
    """Every file by its name below the site.  address: where it will be, "" for no feed.

    details: what the run of a step kept beside its counts.  workloads: those known here, by name.
    """
    site = _Site(lab, triage, details, workloads)
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
            tabled(told(f"site-{page.kind}", {"page": page.data}, form=_FORMAT))
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
        triage: Triage,
        details: Callable[[LabStep], StepDetail],
        workloads: Mapping[str, Workload],
    ) -> None:
        self._lab, self._triage, self._details = lab, triage, details
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
        for own in site_history.stretches(history):
            point = own[0]
            step = self._steps.get((history.name, point.previous, point.kernel, "total"))
            if step:
                size = change(step.explanation.comparison.ratio, "instructions")
                steps.append(f"{size} from {point.previous} to {point.kernel}")
            rows.append(
                {
                    "point": point,
                    "names": site_history.names(own),
                    "value": _figure(point.value),
                    "bar": round(_BAR * (point.value or 0) / longest),
                    "href": f"../{_step(step)}" if step else "",
                    "why": site_history.why(own),
                }
            )
        over = f"{plural(len(steps), 'step')} over {plural(len(history.points), 'kernel')}"
        told_steps = f"{over}: {'; '.join(steps[-_SAID:])}." if steps else f"{over}."
        data = site_history.document(history)
        page = self._page(_scenario(history.name), "history", history.name, data)
        return _with(page, told_steps, history=history, rows=rows)

    def _all_pairs(self) -> _Page:
        kernels = self._lab.kernels
        data = site_pairs.table(kernels, self._lab.pairs, _scenario)
        begin = site_pairs.begin(kernels, self._lab.pairs)
        page = self._page("compare.html", "pairs", "Two kernels", data)
        return _with(
            page,
            "How many scenarios changed from one kernel to another.",
            data=packed(data).replace("<", "\\u003c"),
            overview=list(site_pairs.cells(kernels, self._lab.pairs)),
            anchor=site_pairs.anchor,
            begin=f"{kernels.index(begin.old)} {kernels.index(begin.new)}" if begin else "",
            left=site_pairs.left_out(kernels, self._lab.pairs),
        )

    def _all_steps(self) -> _Page:
        rows = [
            {
                "step": step,
                "href": _step(step),
                "functions": ", ".join(
                    row.function for row in step.explanation.rising or step.explanation.falling
                ),
                "state": self._triage.of(*_key(step))[0],
            }
            for step in self._lab.steps
        ]
        waiting = sum(row["state"] == OPEN for row in rows)
        listed = [self._listed(step) for step in self._lab.steps]
        page = self._page("steps.html", "steps", "Steps", listed)
        return _with(page, f"{plural(len(rows), 'step')}, {waiting} open.", rows=rows)

    def _listed(self, step: LabStep) -> dict[str, object]:
        """A step in the list of all: what it is, and its page, which has the rest."""
        own = step.explanation
        return {
            "scenario": step.name,
            "old": own.old,
            "new": own.new,
            "phase": own.phase,
            "ratio": own.comparison.ratio,
            "state": self._triage.of(*_key(step))[0],
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
        state, words = self._triage.of(*_key(step))
        text = lead.of_counts(own, step.point, self._workloads)
        title = f"{step.name}: {own.old} to {own.new}"
        detail = self._details(step)
        beside = told_beside(own, detail)
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
            state=state,
            words_of_state=words,
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
        table = site_functions.table(function, self._lab.kernels)
        data = site_functions.document(table)
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
    from dataclasses import replace

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
