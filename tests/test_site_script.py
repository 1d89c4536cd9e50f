# SPDX-License-Identifier: GPL-2.0-or-later
"""The script of the site runs: V8 executes it on the data of a page, with a stand-in for the page.

The stand-in has what the script uses of a document, and fails for anything else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from py_mini_racer import MiniRacer

import ladder_records
from kdelta.analysis.lab import lab as lab_of
from kdelta.analysis.lab import named
from kdelta.rendering import site
from kdelta.rendering.formats import asset
from test_site import Page

PAGE = """
class Node {
  constructor(tag, text) {
    Object.assign(this, {tag, own: text || "", children: [], attributes: {}, heard: {}});
    this.hidden = false;
  }
  append(...nodes) { for (const some of nodes) {
    const one = typeof some === "string" ? new Node("", some) : some;
    one.parentElement = this;
    this.children = this.children.filter(o => o !== one).concat(one); } }
  replaceChildren(...nodes) { this.children = []; this.own = ""; this.append(...nodes); }
  get textContent() { return this.own + this.children.map(o => o.textContent).join(""); }
  set textContent(text) { this.children = []; this.own = String(text); }
  get cells() { return this.children; }
  get rows() { return this.children; }
  getAttribute(name) { return this.attributes[name] ?? null; }
  setAttribute(name, value) { this.attributes[name] = value; }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(name, what) { this.heard[name] = what; }
  scrollIntoView() { this.seen = true; }
}
class Option extends Node {
  constructor(text, value) { super("option", text); this.value = value; }
}
const ids = {}, heard = {}, location = {hash: HASH}, history = {};
for (const id of ["old", "new", "said", "choose", "filter"]) ids[id] = new Node(id);
ids.pairs = new Node("script", BLOCK);
ids.pairs.dataset = {begin: BEGIN};
ids.filter.value = "";
ids.choose.hidden = true;
new Node("p").append(ids.filter);
const table = new Node("table"), body = new Node("tbody");
table.tBodies = [body];
const line = new Node("tr");
for (const text of ["scenario", "old", "new", "ratio", "change", "note"])
  line.append(new Node("th", text));
table.tHead = {rows: [line]};
history.replaceState = (state, title, address) => { location.hash = address; };
const document = {
  querySelector: () => table,
  getElementById: id => ids[id] ?? null,
  createElement: tag => new Node(tag),
};
const addEventListener = (name, what) => { heard[name] = what; };
"""
SEEN = """JSON.stringify({
  said: ids.said.textContent, hash: location.hash, chosen: [ids.old.value, ids.new.value],
  hidden: body.children.map(o => o.hidden), shown: !ids.choose.hidden,
  kernels: ids.old.children.map(o => o.textContent),
  rows: body.children.map(row => row.children.map(cell => cell.textContent)),
  classes: body.children.map(row => row.children.map(cell => cell.className ?? "")),
  links: body.children.map(row => row.children[0].children[0].href),
})"""
OLD, NEW = "6.16.12", "6.17.13"
HOSTILE = "6.17.13</script><script>alert(1)</script>"


class Running:
    """A page of pairs whose script has run."""

    def __init__(
        self, address: str = "", newest: str = NEW, values: Sequence[float] = (300, 300, 400)
    ) -> None:
        record = ladder_records.counting(dict(zip(("6.12.107", OLD, newest), values, strict=True)))
        lab = lab_of(named([record]), most_pairs=130)
        page = Page(site.written(lab, address="")["compare.html"])
        self._engine = MiniRacer()
        page_of = PAGE.replace("HASH", json.dumps(address)).replace("BLOCK", json.dumps(page.block))
        page_of = page_of.replace("BEGIN", json.dumps(page.begin))
        self._engine.eval(f"{page_of}\n{asset('site.js')}")

    def after(self, what: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(str(self._engine.eval(f"{what};{SEEN}")))
        return found


def test_it_begins_with_the_two_of_the_largest_step() -> None:
    for values, chosen in (((300, 400, 400), [0, 1]), ((300, 300, 300), [1, 2])):
        assert Running(values=values).after()["chosen"] == chosen
    seen = Running().after()
    assert seen["shown"]
    assert seen["kernels"] == ["6.12.107", OLD, NEW]
    assert seen["chosen"] == [1, 2]
    assert seen["said"] == f"{NEW} does more work than {OLD} in 1 of 1 scenario, and less in 0."
    ((name, old, new, ratio, change, note),) = seen["rows"]
    assert name == "mprotect:shared_dirty_full_toggle_64m"
    assert (old, new, ratio, change, note) == ("300.0", "400.0", "1.333", "33 % more", "")
    assert seen["classes"][0][4] == "REGRESSION"
    assert seen["links"][0].startswith("scenario/mprotect-shared")


def test_a_part_that_changed_alone_is_counted() -> None:
    seen = Running(f"#{OLD}..{NEW}", values=(300.0, 110.0, 110.5)).after()
    assert seen["said"].endswith("and less in 0; in 1 a part changed and the sum did not.")
    assert seen["rows"][0][4:] == ["a part alone", "protect x1.050"]


def test_the_address_chooses_and_a_choice_is_the_address() -> None:
    running = Running(f"#6.12.107..{OLD}")
    seen = running.after()
    assert seen["chosen"] == [0, 1]
    assert seen["rows"][0][4] == "the same work"
    seen = running.after("ids.new.value = 2; ids.new.heard.change()")
    assert seen["hash"] == f"#6.12.107..{NEW}"
    assert seen["rows"][0][4] == "33 % more"
    seen = running.after(f"location.hash = '#{OLD}..{NEW}'; heard.hashchange()")
    assert seen["chosen"] == [1, 2]


def test_what_is_not_compared_is_said() -> None:
    seen = Running().after("ids.old.value = 2; ids.new.value = 0; ids.old.heard.change()")
    assert seen["rows"] == []
    assert seen["said"].startswith(f"No page compares {NEW} with 6.12.107: ")


@pytest.mark.parametrize("address", ["#%", "#a..b", "#..", f"#{NEW}..{OLD}", "#__proto__..0"])
def test_an_address_that_means_nothing_is_passed_over(address: str) -> None:
    assert Running(address).after()["chosen"] == [1, 2]


@pytest.mark.parametrize(("typed", "hidden"), [("MINC", True), ("DIRTY", False), ("", False)])
def test_rows_are_filtered(typed: str, hidden: bool) -> None:  # noqa: FBT001
    seen = Running().after(f"ids.filter.value = '{typed}'; ids.filter.heard.input()")
    assert seen["hidden"] == [hidden]


ROW = """
const more = new Node("tr");
for (const text of ["a", "9", "10", "1", "2 % less", ""]) more.append(new Node("td", text));
more.children[0].append(new Node("a"));
body.append(more);
"""


def test_columns_sort_both_ways() -> None:
    running = Running()
    press = "line.children[4].children[0].heard.click()"
    running.after(ROW)
    assert [row[4] for row in running.after(press)["rows"]] == ["2 % less", "33 % more"]
    assert [row[4] for row in running.after(press)["rows"]] == ["33 % more", "2 % less"]


def test_a_hostile_name_is_text() -> None:
    seen = Running(newest=HOSTILE).after()
    assert HOSTILE in seen["kernels"]
    assert seen["said"].startswith(HOSTILE)
