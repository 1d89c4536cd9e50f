# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables that stand otherwise than with a head line above rows of one kind, put so.

Rows that begin with a kernel and have no head; a column for each run under the kernel's name; a
column for each run of each of several metrics; blocks of gnuplot.  What is done depends on the text
alone, so a mapping names the columns as they come out of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kdelta.foreign import arms, wide, words
from kdelta.foreign.numerals import PLAIN
from kdelta.foreign.record import Line
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part
from kdelta.printable import printable

Row = tuple[int, list[str]]  # the number of a line, and its cells

NO_HEAD = (
    "there is no head line: are the figures behind each kernel its runs, in which unit are they,"
    " and is lower better?"
)
BARE = (
    "there is no head line: which of these figures are runs of what, in which unit, and is lower"
    " better?"
)
_FIGURE = re.compile(rf"{PLAIN}\Z", re.ASCII)
_SETTINGS = (Part.ARM, Part.ROLE, Part.DIMENSION, Part.UNKNOWN, Part.METRIC, Part.BOOT)
_RUN = vocabulary("r run rep round iter iteration trial sample boot b")
_OF_RUN = re.compile(
    r"(?P<metric>.*[A-Za-z].*?)[\s_.-]+(?P<word>[A-Za-z]*)[\s_.-]?(?P<n>\d{1,3})\Z"
)
_RUN_FIRST = re.compile(
    r"(?P<word>[A-Za-z]+)[\s_.-]?(?P<n>\d{1,3})[\s_.-]+(?P<metric>[A-Za-z].*)\Z"
)
_OF_ARM = re.compile(
    r"(?P<metric>\S.*?)(?:[\s_#.-]+(?P<word>[A-Za-z]+)[\s_.#-]?|\s*[_#]|(?<=[A-Za-z])[.-])"
    r"(?P<n>\d{1,3})\Z"
)
_AS_ABOVE = ("\N{DITTO MARK}", "\N{DOUBLE PRIME}", '"', "''", "ditto", "do.", '-"-', '- " -')
_GRID = 3  # lines and columns of figures, at least
_RUNS_OF_ARMS = 3  # at least, where no word says that a number is that of a run: base_1, base_2
_TITLE = re.compile(r"\s*(?:#+\s*(?P<said>\S.*?)|\"(?P<quoted>[^\"]+)\")\s*\Z")
_COMMENTED = re.compile(r"([A-Za-z_]\w*)\s*[=:]\s*([^\s,;]+)")
_KERNEL = re.compile(
    r"(?:(?:kernel|linux|version|arm)\s*[:=]?\s*)?(?P<kernel>\S+)\Z", re.IGNORECASE
)


def indexed(rows: list[Row]) -> list[Row]:
    """Rows that all have one cell more than the head line: the first is the index, without name."""
    widths = {len(cells) for _, cells in rows[1:]}
    if len(rows) < 3 or len(widths) > 1 or widths != {len(rows[0][1]) + 1}:
        return rows
    return [(rows[0][0], ["", *rows[0][1]]), *rows[1:]]


def headed(rows: list[Row]) -> tuple[list[Row], tuple[str, ...]]:
    """The rows with a head line, and what is doubtful about it."""
    rows = _repeated(rows)
    if turned := _turned(rows):
        return turned, ()
    if made := _without_head(rows):
        return made, (NO_HEAD,)
    if filled := _filled(rows):
        rows, names = _inner_filled(filled)
        listed = ", ".join(printable(name, 60) for name in names)
        return rows, (f"are the empty cells of {listed} those of the name above them?",)
    return rows, ()


def _repeated(rows: list[Row]) -> list[Row]:
    """A mark that says "as above" with what stands above it."""
    made: list[Row] = []
    for number, cells in rows:
        above = made[-1][1] if len(made) > 1 and len(made[-1][1]) == len(cells) else cells
        shown = [
            over if cell.strip().lower() in _AS_ABOVE else cell
            for cell, over in zip(cells, above, strict=True)
        ]
        made.append((number, shown))
    return made


def bare(rows: list[Row]) -> list[Row]:
    """Figures without a head line, with one: value, or column 1, column 2."""
    width = len(rows[0][1])
    names = ["value"] if width == 1 else [f"column {at}" for at in range(1, width + 1)]
    return [(rows[0][0], names), *rows]


def _filled(rows: list[Row]) -> list[Row]:
    """A first column in which a name stands once, above empty cells, with it in each of them."""
    if len(rows) < 2:
        return []
    head, *body = rows
    first = [cells[0].strip() for _, cells in body if cells]
    names = [cell for cell in first if cell]
    if len({len(cells) for _, cells in rows}) > 1 or len(head[1]) < 2 or not head[1][0].strip():
        return []
    if len(names) < 2 or len(names) == len(first) or not first[0]:
        return []
    whole = all(cells[-1].strip() for _, cells in body)
    if len(set(names)) < len(names) or any(map(_FIGURE.match, set(names) - set(_arms(names)))):
        return []
    if not whole:
        return []
    made, name = [head], ""
    for number, cells in body:
        name = cells[0].strip() or name
        made.append((number, [name, *cells[1:]]))
    return made


def _inner_filled(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """The same for settings behind the first column, which begin anew with each of its names."""
    head = rows[0][1]
    body = [list(cells) for _, cells in rows[1:]]
    names, outer = [head[0].strip()], [0]
    for at in range(1, len(head) - 1):
        cells = [row[at].strip() for row in body]
        part = words.said(head[at].strip()).part
        keys = [[row[n] for n in outer] for row in body]
        begins = [not n or keys[n] != keys[n - 1] for n in range(len(body))]
        whole = all(cell for cell, first in zip(cells, begins, strict=True) if first)
        if (
            part not in _SETTINGS
            or all(cells)
            or not whole
            or 2 * sum(map(bool, cells)) > len(cells)
        ):
            continue
        name = ""
        for row, cell in zip(body, cells, strict=True):
            name = cell or name
            row[at] = name
        names.append(head[at].strip())
        outer.append(at)
    made = [(number, row) for (number, _), row in zip(rows[1:], body, strict=True)]
    return [rows[0], *made], names


def _arms(cells: Sequence[str]) -> list[str]:
    return [cell for cell in cells if _is_arm(cell)]


def _is_arm(cell: str) -> bool:
    return arms.is_version(cell.strip()) or bool(arms.side(cell))


def _turned(rows: list[Row]) -> list[Row]:
    """kernel,6.16,6.16,6.17,6.17 above ns,10,11,12,13: each column behind the first is a row."""
    if len(rows) < 2 or len({len(cells) for _, cells in rows}) > 1:
        return []
    first, *names = (cell.strip() for cell in rows[0][1])
    heads = [cells[0].strip() for _, cells in rows[1:]]
    if len(set(names)) == len(names) or not all(map(_is_arm, names)) or (first and _is_arm(first)):
        return []
    if not all(heads) or any(map(_FIGURE.match, heads)) or len(set(heads)) < len(heads):
        return []
    columns = list(zip(*(cells[1:] for _, cells in rows), strict=True))
    head = [first or "kernel", *heads]
    return [(rows[0][0], head), *((rows[0][0], list(cells)) for cells in columns)]


def _without_head(rows: list[Row]) -> list[Row]:
    """Rows that all begin with a kernel, then figures, one of which may number the runs."""
    cells = [[cell.strip() for cell in row] for _, row in rows]
    widths = {len(row) for row in cells}
    if len(rows) < 2 or len(widths) > 1 or min(widths) < 2:
        return []
    if not all(_is_arm(row[0]) and all(map(_FIGURE.match, row[1:])) for row in cells):
        return []
    if all(arms.is_version(cell) for cell in cells[0]) and not _alike(cells):
        return []  # 6.12,6.16,6.17 is a head line of arms
    count = len(cells[0]) - 1
    names = ["value"] if count == 1 else [f"r{at}" for at in range(1, count + 1)]
    if count == 2 and _counts(cells):
        names = ["run", "value"]
    return [(rows[0][0], ["kernel", *names]), *rows]


def _alike(cells: Sequence[Sequence[str]]) -> bool:
    """True when what stands below the first line's first cell are versions, too."""
    return all(arms.is_version(row[0]) for row in cells[1:])


def _counts(cells: Sequence[Sequence[str]]) -> bool:
    """True when the second column numbers the rows of each kernel from 0 or 1 on."""
    seen: dict[str, list[str]] = {}
    for row in cells:
        seen.setdefault(row[0], []).append(row[1])
    return all(
        numbers == [str(at + start) for at in range(len(numbers))]
        for numbers in seen.values()
        for start in (int(numbers[0] == "1"),)
    ) and any(len(numbers) > 1 for numbers in seen.values())


def runs_below(
    columns: tuple[str, ...], lines: tuple[Line, ...]
) -> tuple[tuple[str, ...], tuple[Line, ...]]:
    """mmap_r1, mmap_r2, fork_r1, fork_r2: a row for each metric, and a column for each run.

    So base_1, base_2, base_3, fix_1, fix_2, fix_3: a row for each arm.
    """
    found: dict[str, dict[int, int]] = {}
    word = ""
    for at, name in enumerate(columns):
        if cut := _of_run(name):
            metric, word, number = cut
            found.setdefault(metric, {})[number] = at
    runs = [sorted(each) for each in found.values()]
    if len(found) < 2 or any(each != runs[0] for each in runs) or not _from_start(runs[0]):
        return columns, lines
    held = {at for each in found.values() for at in each.values()}
    kept = [at for at in range(len(columns)) if at not in held]
    timed = all(words.said(metric).unit for metric in found)
    armed = all(map(_is_bare_arm, found))
    if any(map(_is_bare_arm, found)) and not (armed and (word or len(runs[0]) >= _RUNS_OF_ARMS)):
        return columns, lines
    named = wide.KERNEL if armed else "metric" if timed else "benchmark"
    made = (*(columns[at] for at in kept), named, *(f"{word or 'r'}{n}" for n in runs[0]))
    if len(set(made)) < len(made):
        return columns, lines
    below = tuple(
        Line(
            number=line.number,
            cells=(
                *(line.cells[at] for at in kept),
                metric,
                *(line.cells[each[n]] for n in runs[0]),
            ),
        )
        for line in lines
        for metric, each in found.items()
    )
    return made, below


def _of_run(name: str) -> tuple[str, str, int] | None:
    """(metric or arm, word of the run, its number) of mmap_r1, run2_fork_ns, lat_us_3, base_2."""
    cut = _OF_ARM.match(name)
    if cut and _is_bare_arm(cut["metric"]) and (cut["word"] or "r").lower() in _RUN:
        return cut["metric"], (cut["word"] or "").lower(), int(cut["n"])
    for pattern in (_OF_RUN, _RUN_FIRST):
        cut = pattern.match(name)
        if cut is None:
            continue
        metric, word = cut["metric"].strip(), cut["word"].lower()
        timed = words.said(metric).part is Part.TIME and bool(words.said(metric).unit)
        if _is_arm(metric.split("_")[0]) or not (word in _RUN or (not word and timed)):
            continue
        return metric, word, int(cut["n"])
    return None


def _is_bare_arm(name: str) -> bool:
    """True for 6.16 and base, and not for base_ns."""
    return _is_arm(name) and wide.arm_and_rest(name) == (name, ())


def _from_start(numbers: Sequence[int]) -> bool:
    start = numbers[0]
    return (
        len(numbers) > 1 and start in (0, 1) and numbers == list(range(start, start + len(numbers)))
    )


def is_grid(text: str) -> bool:
    """True for lines of as many figures as the first, which may follow a #, has names."""
    rows = [line.lstrip("# \t").split() for line in text.splitlines() if line.strip()]
    widths = {len(cells) for cells in rows}
    if len(rows) < _GRID or len(widths) > 1 or widths.pop() < _GRID:
        return False
    return not any(map(_FIGURE.match, rows[0])) and all(
        _FIGURE.match(cell) for cells in rows[1:] for cell in cells
    )


def is_column(text: str) -> bool:
    """True for a figure in each line, and nothing else."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return len(lines) >= _GRID and all(map(_FIGURE.match, lines))


def of_one_column(text: str) -> str:
    """A figure in each line, below a remark that says the unit (# seconds per op), with it as head.

    "": it is not such.  A remark that says no unit is none.
    """
    lines = [line.strip() for line in text.splitlines()]
    said = [line.lstrip("#% ") for line in lines if line[:1] in ("#", "%")]
    figures = [line for line in lines if line and line[0] not in "#%"]
    named = [one for one in said if words.said(one).unit]
    if len(figures) < _GRID or len(named) != 1 or not all(map(_FIGURE.match, figures)):
        return ""
    head = '"' + named[0].replace('"', "") + '"'
    kept = (head if line.lstrip("#% ") == named[0] else line for line in lines)
    return "\n".join("" if line[:1] in ("#", "%") else line for line in kept) + "\n"


def of_gnuplot(text: str) -> str:
    """Blocks of figures, each below a title, as one table whose cells tabs separate.

    The title is # or quotes around a kernel or another name; below it # may name the columns.
    Lines keep their numbers.  Any other text is left as it is.
    """
    blocks = _blocks(text)
    widths = {len(row) for _, rows, _ in blocks for _, row in rows}
    titles = [said[0] if said else "" for said, _, _ in blocks]
    if len(blocks) < 2 or len(widths) != 1 or len(set(titles)) < len(titles) or not all(titles):
        return text
    width = widths.pop()
    heads = {tuple(said[-1].split()) if len(said) > 1 else () for said, _, _ in blocks}
    head = heads.pop() if len(heads) == 1 else ()
    if len(head) != width:
        head = ("x", "value") if width == 2 else ("x", *(f"value {n}" for n in range(1, width)))
    kernels = [cut["kernel"] if (cut := _KERNEL.match(title)) else "" for title in titles]
    armed = all(map(_is_arm, kernels))
    lines = [""] * len(text.splitlines())
    lines[blocks[0][2]] = "\t".join(("kernel" if armed else "section", *head))
    for title, kernel, (_, rows, _) in zip(titles, kernels, blocks, strict=True):
        for at, row in rows:
            lines[at] = "\t".join((kernel if armed else title, *row))
    return "\n".join(lines)


def of_comments(text: str, delimiter: str) -> str:
    """Tables of one head line, each below a comment of pairs (# kernel=6.16 boot=1), as one table.

    What the comments say become columns.  Lines keep their numbers; any other text is left.
    """
    lines = text.splitlines()
    said: list[dict[str, str]] = []
    heads: set[str] = set()
    made = [""] * len(lines)
    pending: dict[str, str] = {}
    names: dict[str, None] = {}
    for at, line in enumerate(lines):
        bare = line.strip()
        if bare.startswith("#"):
            pending |= dict(_COMMENTED.findall(bare))
        elif bare and (pending or not said):
            if not pending:
                return text
            said.append(pending)
            names |= dict.fromkeys(pending)
            heads.add(bare)
            made[at], pending = (delimiter.join((*names, bare)) if len(said) == 1 else ""), {}
        elif bare:
            made[at] = delimiter.join((*said[-1].values(), bare))
    first = list(said[0]) if said else []
    if len(said) < 2 or len(heads) > 1 or any(list(each) != first for each in said):
        return text
    return "\n".join(made) + "\n"


def _blocks(text: str) -> list[tuple[list[str], list[tuple[int, list[str]]], int]]:
    """(titles, rows with the place of their line, place of the first title) of each block.

    Nothing where a line is neither, or a block has no title of its own.
    """
    found: list[tuple[list[str], list[tuple[int, list[str]]], int]] = []
    for at, line in enumerate(text.splitlines()):
        cells = line.split()
        if not cells:
            continue
        if title := _TITLE.match(line):
            if not found or found[-1][1]:
                found.append(([], [], at))
            found[-1][0].append(title["said"] or title["quoted"])
        elif found and all(map(_FIGURE.match, cells)):
            found[-1][1].append((at, cells))
        else:
            return []
    return found if all(rows for _, rows, _ in found) else []
