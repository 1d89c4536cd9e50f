# SPDX-License-Identifier: GPL-2.0-or-later
"""The script of the site runs: V8 executes it with a stand-in for the page.

The stand-in has what the script uses of a document, and fails for anything else.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from py_mini_racer import MiniRacer

from kdelta.rendering.formats import asset

PAGE = """
class Node {
  constructor(tag, text) {
    Object.assign(this, {tag, own: text || "", children: [], attributes: {}, heard: {}});
    this.hidden = false;
  }
  append(...nodes) { for (const one of nodes) { one.parentElement = this; this.children =
    this.children.filter(o => o !== one).concat(one); } }
  replaceChildren(...nodes) { this.children = []; this.own = ""; this.append(...nodes); }
  get textContent() { return this.own + this.children.map(o => o.textContent).join(""); }
  set textContent(text) { this.children = []; this.own = String(text); }
  get cells() { return this.children; }
  get rows() { return this.children; }
  getAttribute(name) { return this.attributes[name] ?? null; }
  setAttribute(name, value) { this.attributes[name] = value; }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(name, what) { this.heard[name] = what; }
}
const box = new Node("input"), table = new Node("table"), body = new Node("tbody");
box.value = "";
new Node("p").append(box);
table.tBodies = [body];
const line = new Node("tr");
for (const text of ["scenario", "change"]) line.append(new Node("th", text));
table.tHead = {rows: [line]};
for (const texts of [["mprotect:dirty", "33 % more"], ["mincore:scan", "2 % less"]]) {
  const row = new Node("tr");
  for (const text of texts) row.append(new Node("td", text));
  body.append(row);
}
const document = {
  querySelector: () => table,
  getElementById: id => ({filter: box})[id] ?? null,
  createElement: tag => new Node(tag),
};
"""
SEEN = """JSON.stringify({
  hidden: body.children.map(o => o.hidden), filtered: !box.parentElement.hidden,
  sorted: line.children.map(o => o.getAttribute("aria-sort")),
  cells: body.children.map(row => row.children[1].textContent),
})"""


class Running:
    """A page with a table whose script has run."""

    def __init__(self) -> None:
        self._engine = MiniRacer()
        self._engine.eval(f"{PAGE}\n{asset('site.js')}")

    def after(self, what: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(str(self._engine.eval(f"{what};{SEEN}")))
        return found


@pytest.mark.parametrize(
    ("typed", "hidden"),
    [("MINC", [True, False]), ("DIRTY", [False, True]), ("", [False, False])],
)
def test_rows_are_filtered(typed: str, hidden: list[bool]) -> None:
    seen = Running().after(f"box.value = '{typed}'; box.heard.input()")
    assert seen["filtered"]
    assert seen["hidden"] == hidden


def test_columns_sort_both_ways() -> None:
    running = Running()
    press = "line.children[1].children[0].heard.click()"
    seen = running.after(press)
    assert (seen["cells"], seen["sorted"]) == (["2 % less", "33 % more"], [None, "ascending"])
    seen = running.after(press)
    assert (seen["cells"], seen["sorted"]) == (["33 % more", "2 % less"], [None, "descending"])
