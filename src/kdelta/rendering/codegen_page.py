# SPDX-License-Identifier: GPL-2.0-or-later
"""A matrix as one HTML file: the tables, and every listing beside the first row's.

Nothing is loaded from elsewhere and nothing in it runs; all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kdelta.codegen.compare import Change, compare
from kdelta.codegen.hot import HOT
from kdelta.codegen.predict import LIMITS
from kdelta.codegen.references import told
from kdelta.codegen.table import DUMPS, Cell, CodeTable
from kdelta.disassembly.code import Code
from kdelta.printable import printable

_STYLE = """
:root { color-scheme: light dark; --fg: #1d2129; --bg: #fff; --dim: #6b7280; --line: #d8dce3;
  --head: #f3f5f8; --hot: 217 119 6; --del: #fdecec; --add: #e8f6ec; --chg: #fff6db;
  --tgt: #eceafd; --accent: #1d4ed8; }
@media (prefers-color-scheme: dark) { :root { --fg: #e4e7ec; --bg: #14171c; --dim: #98a1b0;
  --line: #2f3540; --head: #1c2027; --hot: 245 158 11; --del: #3a1d20; --add: #17301f;
  --chg: #37301a; --tgt: #262445; --accent: #8ab4ff; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  margin: 0 auto; max-width: 1400px; padding: 24px; }
h1 { font-size: 24px; margin: 0; } h1 code { font-size: inherit; }
h2 { font-size: 17px; margin: 32px 0 8px; }
code, pre, td.n, .code { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace; }
code, .code { font-size: 12.5px; }
p { margin: 4px 0; max-width: 90ch; } .dim { color: var(--dim); }
.warn { border-left: 4px solid rgb(var(--hot)); background: var(--head); padding: 8px 12px;
  margin: 12px 0; max-width: 100ch; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
table.m { margin: 8px 0; font-size: 14px; }
table.m th, table.m td { border: 1px solid var(--line); padding: 5px 12px; text-align: left; }
table.m thead th { background: var(--head); }
table.m td.n { text-align: right; white-space: nowrap; font-size: 13px; }
.tag { display: inline-block; min-width: 1.6em; text-align: center; border-radius: 4px;
  padding: 0 5px; margin-left: 8px; color: #fff; background: #64748b; font-weight: 600; }
.tag.A { background: #2563eb; } .tag.B { background: #c2410c; } .tag.C { background: #15803d; }
.tag.D { background: #7e22ce; } .tag.E { background: #0f766e; }
details { border: 1px solid var(--line); border-radius: 6px; margin: 10px 0; }
summary { cursor: pointer; padding: 8px 12px; background: var(--head); border-radius: 6px; }
details[open] summary { border-bottom: 1px solid var(--line); border-radius: 6px 6px 0 0; }
table.c { width: 100%; table-layout: fixed; font-size: 12.5px; line-height: 1.45; }
table.c th { text-align: left; padding: 4px 8px; background: var(--head);
  border-bottom: 1px solid var(--line); font: 600 13px system-ui, sans-serif; }
table.c td { padding: 0 8px; vertical-align: top; white-space: pre-wrap; word-break: break-word; }
table.c col.i { width: 46px; } table.c col.x { width: 66px; }
table.c td.i { color: var(--dim); text-align: right; user-select: none; }
table.c td.x { text-align: right; }
table.c td.mid { border-left: 1px solid var(--line); }
tr.changed td { background: var(--chg); } tr.target td { background: var(--tgt); }
tr.left td.l { background: var(--del); } tr.right td.r { background: var(--add); }
tr.equal td.t { color: var(--dim); } tr td.t.hot { color: var(--fg); font-weight: 600; }
tr.gap td { color: var(--dim); text-align: center; background: var(--head); }
.key span { padding: 1px 8px; border-radius: 3px; margin-right: 8px; }
"""


def show_html(matrix: CodeTable) -> str:
    """The whole file."""
    title = f"{matrix.function} - generated code"
    body = "\n".join(_body(matrix))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n"
        "</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _body(matrix: CodeTable) -> Iterator[str]:
    yield f"<h1><code>{_text(matrix.function)}</code></h1>"
    yield f'<p class="dim">{_text(matrix.place)}{" of " if matrix.title else ""}'
    yield f"{_text(matrix.title)}</p>"
    yield "<h2>Size and equal code</h2>"
    yield '<p class="dim">Bytes / instructions. In a column, the same letter is the same code: '
    yield "branches by instruction, addresses by name, constants kept.</p>"
    yield from _table(matrix, {(c.row, c.column): _size(matrix, c) for c in matrix.cells})
    yield from _hot_table(matrix)
    if any(cell.dumps for cell in matrix.cells):
        yield "<h2>GCC's dumps of the function</h2>"
        yield '<p class="dim">Lines, optimized / RTL expand.</p>'
        shown = {
            (c.row, c.column): " / ".join(str(c.dumps.get(kind, "-")) for kind in DUMPS)
            for c in matrix.cells
            if c.dumps
        }
        yield from _table(matrix, shown)
    yield from _references(matrix)
    yield from _predictions(matrix)
    for cell in matrix.cells:
        if cell.problem:
            yield f'<p class="warn">{_text(f"{cell.row} {cell.column}: {cell.problem}")}</p>'
    for note in matrix.notes:
        yield f'<p class="dim">{_text(note)}</p>'
    yield from _listings(matrix)


def _table(matrix: CodeTable, cells: dict[tuple[str, str], str]) -> Iterator[str]:
    """cells: HTML by row and column."""
    yield '<div class="wide"><table class="m"><thead><tr><th></th>'
    for column in matrix.columns:
        banner = _text(matrix.banners.get(column, ""))
        yield f'<th title="{banner}">{_text(column)}</th>'
    yield "</tr></thead><tbody>"
    for row in matrix.rows:
        yield f"<tr><th>{_text(row)}</th>"
        for column in matrix.columns:
            yield f'<td class="n">{cells.get((row, column), "-")}</td>'
        yield "</tr>"
    yield "</tbody></table></div>"


def _size(matrix: CodeTable, cell: Cell) -> str:
    if cell.code is None:
        return "-"
    letter = matrix.groups(cell.column)[cell.row]
    cold = f"+{cell.cold.size}" if cell.cold else ""
    tag = f'<span class="tag {letter[:1]}">{letter}</span>'
    return f"{cell.code.size}{cold} / {len(cell.code.instructions)}{tag}"


def _hot_table(matrix: CodeTable) -> Iterator[str]:
    known = [cell.hot for cell in matrix.cells if cell.hot]
    if not known:
        return
    yield f"<h2>Executed per {_text(known[0].operation)}</h2>"
    yield '<p class="dim">Instructions of the function in an exact run; in parentheses those '
    yield f"executed at least {HOT:g} times. A dash: no run executed this code.</p>"
    yield from _table(
        matrix,
        {
            (c.row, c.column): f"<b>{c.hot.per_operation:.2f}</b> ({len(c.hot.path)})"
            for c in matrix.cells
            if c.hot
        },
    )
    for source in dict.fromkeys(hot.source for hot in known):
        yield f'<p class="dim">{_text(source)}</p>'


def _references(matrix: CodeTable) -> Iterator[str]:
    yield "<h2>Calls, data and inlining</h2>"
    for same in told(matrix):
        names = ", ".join(same.calls) or "nothing"
        yield f"<p><b>{_text(', '.join(same.columns))}</b>: {_text(same.first)} calls "
        yield f"<code>{_text(names)}</code></p><ul>"
        for row, words in same.others:
            yield f"<li>{_text(row)}: {_text(words)}</li>"
        yield "</ul>"


def _predictions(matrix: CodeTable) -> Iterator[str]:
    cpus = dict.fromkeys(p.cpu for cell in matrix.cells for p in cell.predictions)
    if not cpus:
        return
    tool = next(p.tool for cell in matrix.cells for p in cell.predictions)
    yield "<h2>Predicted cycles per pass of the hot loop</h2>"
    yield '<p class="warn"><b>A prediction, not a measurement.</b> '
    yield f"{_text(f'{tool}. {LIMITS}')}</p>"
    yield '<div class="wide"><table class="m"><thead><tr><th></th>'
    yield "".join(f"<th>{_text(cpu)}</th>" for cpu in cpus)
    yield "</tr></thead><tbody>"
    for cell in matrix.cells:
        if cell.predictions:
            cycles = {p.cpu: f"{p.cycles:.2f}" for p in cell.predictions}
            yield f"<tr><th>{_text(f'{cell.row} {cell.column}')}</th>"
            yield "".join(f'<td class="n">{cycles.get(cpu, "-")}</td>' for cpu in cpus)
            yield "</tr>"
    yield "</tbody></table></div>"


def _listings(matrix: CodeTable) -> Iterator[str]:
    yield "<h2>Side by side</h2>"
    yield '<p class="key"><span style="background:var(--chg)">changed</span>'
    yield '<span style="background:var(--tgt)">same branch, other target</span>'
    yield '<span style="background:var(--del)">only left</span>'
    yield '<span style="background:var(--add)">only right</span>'
    yield "<b>bold</b>: on the hot path; per op: executions per operation</p>"
    opened = True
    for column in matrix.columns:
        first = matrix.cell(matrix.rows[0], column)
        letters = matrix.groups(column)
        shown: set[str] = set()
        for row in matrix.rows[1:]:
            cell = matrix.cell(row, column)
            if first.code is None or cell.code is None:
                continue
            if letters[row] == letters[first.row] or letters[row] in shown:
                continue
            shown.add(letters[row])
            yield from _pair(first, cell, opened=opened)
            opened = False
        if first.code is not None and not shown:
            yield from _pair(first, first, opened=opened)
            opened = False


def _pair(left: Cell, right: Cell, *, opened: bool) -> Iterator[str]:
    if left.code is None or right.code is None:
        return
    alone = left is right
    names = [f"{cell.row} {cell.column}".strip() for cell in (left, right)]
    head = names[0] if alone else " | ".join(names)
    yield f"<details{' open' if opened else ''}><summary>{_text(head)}</summary>"
    yield '<div class="wide"><table class="c code"><colgroup><col class="x"><col class="i"><col>'
    yield "" if alone else '<col class="x"><col class="i"><col>'
    yield "</colgroup><thead><tr>"
    for name in names[: 1 if alone else 2]:
        yield f"<th>per op</th><th>#</th><th>{_text(name)}</th>"
    yield "</tr></thead><tbody>"
    for row in compare(left.code, right.code).rows:
        sides = _side(left.code, left, row.left, "l")
        if not alone:
            sides += _side(right.code, right, row.right, "r")
        kind = Change.EQUAL if alone else row.change
        yield f'<tr class="{kind}">{sides}</tr>'
    yield "</tbody></table></div></details>"


def _side(code: Code, cell: Cell, index: int | None, side: str) -> str:
    edge = " mid" if side == "r" else ""
    if index is None:
        return (
            f'<td class="x {side}{edge}"></td><td class="i {side}"></td><td class="t {side}"></td>'
        )
    hot = cell.hot
    rate, heat, mark = "", "", ""
    if hot is not None and hot.counts[index]:
        value = hot.rate(index)
        rate = f"{value:.2f}" if value >= 0.005 else '<span class="dim">&lt;0.01</span>'
        if value >= 0.05:
            heat = f' style="background:rgb(var(--hot) / {min(1.0, value) * 0.45:.2f})"'
        mark = " hot" if value >= HOT else ""
    shown = _text(code.instructions[index].shown)
    return (
        f'<td class="x {side}{edge}"{heat}>{rate}</td><td class="i {side}">{index}</td>'
        f'<td class="t {side}{mark}">{shown}</td>'
    )
