# SPDX-License-Identifier: GPL-2.0-or-later
"""From a table as people write it for the eye to plain rows: a head line, and a figure in a cell.

Spreadsheets have titles above the head and notes below, mails have rules and frames, summaries
have "10.2 +/- 0.3", "12 us" or a row called stddev below the runs.  What is done here depends on
the text alone, so a mapping names the columns as they come out of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kdelta.foreign import arms, spreads, wide, words, written
from kdelta.foreign.numerals import GROUPED, PLAIN
from kdelta.foreign.plain_tables import Plain, cells_of, each_column, with_column
from kdelta.foreign.record import Line
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part
from kdelta.printable import printable

Row = tuple[int, list[str]]  # the number of a line, and its cells

_PART = "part"
_RULE = set("-=+:|_ ")
_TITLES = 20  # lines above a head, at most
_LOOKED_AT = 200  # lines that tell how wide a table is
_MEASURED = re.compile(
    rf"{GROUPED}(?:\s*(?:[a-zA-Z\u00b5/%]*|[(\[\u00b1+].*))"
)  # 12, 12 us, 12 (3 %)
_SAID = re.compile(r"(?:notes?|remarks?|source|legend|key|nb|ps|todo)\b|[\w ]+:\s", re.IGNORECASE)
_FIGURE = re.compile(PLAIN, re.ASCII)
_MAY_BE_KERNEL = re.compile(r"[2-9]\.\d{1,2}", re.ASCII)
_STATISTICS = vocabulary(
    "mean avg average amean hmean gmean geomean median stddev stdev std sd sigma cv rsd var"
    " variance min max minimum maximum p50 p90 p95 p99 n count total sum sem stderr range iqr mad"
    " err se ci ci95 ci99 cv_percent"
    " 25_pct 50_pct 75_pct 1st_qu. 3rd_qu. mittelwert mittel durchschnitt summe moyenne somme"
    " ecart_type standardabweichung stdabw media promedio suma std_dev std_err standard_deviation"
    " standard_error grand_total arithmetic_mean geometric_mean"
)
_OF_ALL = vocabulary(  # what nobody calls a kernel
    "mean avg average median stddev stdev std_dev std standard_deviation geomean total sum count"
    " grand_total arithmetic_mean geometric_mean mittelwert durchschnitt summe moyenne somme"
    " ecart_type standardabweichung media promedio suma"
)
_SINGLE = vocabulary("raw sample run single value measurement data point measured")
_COMPARED = vocabulary(
    "ratio change delta diff difference speedup slowdown improvement gain pct_change change_pct"
    " delta_pct diff_pct pct_diff pct_delta percent_change p_value pvalue"
)
_WARM = vocabulary("warmup warm_up warming_up discard discarded")
_KEYS = (Part.ARM, Part.BOOT, Part.ROUND, Part.RUN, Part.POSITION, Part.DIMENSION, Part.STATUS)
_COUNTS = vocabulary("n count runs")
_NO_UNIT = vocabulary("- -- \N{EN DASH} n/a none")
_NUMBERED = re.compile(
    r"(?P<word>reboot|boot|run|rep|repetition|round|iteration|iter|trial|sample|pass)"
    r"[-_ #]*(?P<number>\d{1,6})",
    re.IGNORECASE,
)


def trimmed(rows: Sequence[Row]) -> list[Row]:
    """The rows from the head line to the last one, without titles, rules and notes beside them."""
    kept = [row for row in rows if any(cell.strip() for cell in row[1]) and not _is_rule(row[1])]
    width = _width(kept)
    if width < 2:
        return kept
    start = 0
    while start < min(len(kept) - 1, _TITLES) and _is_title(kept[start][1], width):
        start += 1
    kept = kept[start:]
    while len(kept) > 1 and _is_note(kept[-1][1], width):
        kept.pop()
    kept = _one_head(kept)
    return _named(_parts(kept))


def _parts(rows: list[Row]) -> list[Row]:
    """Without the head line where it stands again; its parts may differ: a column numbers them."""
    head, part = rows[0][1], 0
    if titled := _titled(rows):
        return titled
    made: list[Row] = []
    after_head = False
    for number, cells in rows:
        if cells == head:
            after_head = True
            continue
        part, after_head = part + after_head, False
        made.append((number, [*cells, f"{_PART} {part}"] if len(cells) == len(head) else cells))
    if part < 2 or _PART in head:
        return [rows[0], *(row for row in rows[1:] if row[1] != head)]
    return [(rows[0][0], [*head, _PART]), *made]


def _titled(rows: list[Row]) -> list[Row]:
    """Tables of one head line below titles of one cell: the titles are a column, section or rep.

    Nothing: the head line stands once, or some table has no title of its own.
    """
    head = rows[0][1]
    heads = [at for at, (_, cells) in enumerate(rows) if cells == head]
    titles = [_alone(rows[at - 1][1]) for at in heads[1:]]
    if not titles or not all(titles) or len(set(titles)) < len(titles):
        return []
    counted = [_NUMBERED.fullmatch(title) for title in titles]
    called = {one["word"].lower() for one in counted if one}
    name = called.pop() if all(counted) and len(called) == 1 else "section"
    if name in head:
        return []
    made: list[Row] = [(rows[0][0], [*head, name])]
    title = _before(titles)
    for at, (number, cells) in enumerate(rows[1:], start=1):
        if at in heads:
            title = _alone(rows[at - 1][1])
        elif at + 1 not in heads:
            made.append((number, [*cells, title] if len(cells) == len(head) else cells))
    return made


def _alone(cells: Sequence[str]) -> str:
    """The only cell of a row that has one, without marks of a title; else nothing."""
    text = next(filter(None, map(str.strip, cells)), "")
    return text.strip("#*=: ") if _filled(cells) == 1 else ""


def _before(titles: Sequence[str]) -> str:
    """The title of the first table, which was cut off above its head: rep 1 of rep 2, rep 3."""
    cut = _NUMBERED.fullmatch(titles[0])
    if cut and int(cut["number"]) > 0:
        return titles[0].replace(cut["number"], str(int(cut["number"]) - 1))
    return "first"


def _one_head(rows: list[Row]) -> list[Row]:
    """Two head lines as one, where the first names groups: 6.16,,6.17, over mean,sd,mean,sd."""
    if len(rows) < 3 or len(rows[0][1]) != len(rows[1][1]):
        return rows
    (number, upper), (_, lower) = rows[:2]
    pairs = list(zip(upper, lower, strict=True))
    grouped = any(not top.strip() and below.strip() for top, below in pairs)
    grouped = grouped or _crossed(pairs)
    figures = (cell.strip() for cell in lower if not arms.is_version(cell.strip()))
    if not grouped or any(map(_MEASURED.fullmatch, figures)):
        return rows
    names, group = [], ""
    for top, below in pairs:
        group = top.strip() or group
        names.append(f"{group} {below.strip()}".strip() if below.strip() else top)
    rest = rows[2:]
    first = rest[0][1]
    if _crossed(pairs) and first[0].strip() and not any(map(str.strip, first[1:])):
        names, rest = [first[0].strip(), *names[1:]], rest[1:]  # the name of the index, below both
    return [(number, names), *rest]


def _crossed(pairs: Sequence[tuple[str, str]]) -> bool:
    """True for two head lines that tell columns apart together only: 6.16, 6.16 over ns, faults."""
    cut = [(top.strip(), below.strip()) for top, below in pairs[1:]]
    if len(cut) < 3 or not all(top and below for top, below in cut) or len(set(cut)) < len(cut):
        return False
    tops, belows = ({pair[at] for pair in cut} for at in (0, 1))
    return len(tops) * len(belows) == len(cut) and min(len(tops), len(belows)) > 1


def plain(columns: tuple[str, ...], lines: tuple[Line, ...]) -> Plain:
    """The table with one figure a cell, and without rows that sum up others."""
    found = Plain(columns=columns, lines=lines)
    for step in (
        _units_below,
        _thousands,
        _figures,
        spreads.beside,
        spreads.intervals,
        spreads.below,
        _statistics,
        _arms_below,
    ):
        found = step(found)
    return found


def headless(columns: Sequence[str]) -> bool:
    """True when what should be a head line holds figures like those below it."""
    figures = [column for column in columns if _FIGURE.fullmatch(column)]
    plain = [column for column in figures if not _MAY_BE_KERNEL.fullmatch(column)]
    return bool(plain) and all(c in figures or arms.is_version(c) for c in columns)


def _is_rule(cells: Sequence[str]) -> bool:
    text = "".join(cells).strip()
    return bool(text) and set(text) <= _RULE and ("--" in text or "==" in text or "__" in text)


def _width(rows: Sequence[Row]) -> int:
    counts = Counter(len(cells) for _, cells in rows[:_LOOKED_AT])
    return max(counts, key=lambda width: (counts[width], width), default=0)


def _filled(cells: Sequence[str]) -> int:
    return sum(bool(cell.strip()) for cell in cells)


def _is_title(cells: Sequence[str], width: int) -> bool:
    return _filled(cells) == 1 or (len(cells) < 3 and width > 3)


def _is_note(cells: Sequence[str], width: int) -> bool:
    """Several words in a row of their own, as no cut-off row has."""
    text = next((cell.strip() for cell in cells if cell.strip()), "")
    said = len(text.split()) > 2 or text.startswith("(") or bool(_SAID.match(text))
    return _filled(cells) == 1 and said and width > 1


def _named(rows: list[Row]) -> list[Row]:
    """Without columns that have neither a name nor a cell, or only number the lines."""
    head = rows[0][1]
    if all(cell.strip() for cell in head):
        return rows
    rows = _labelled(rows)
    wide = [cells for _, cells in rows[1:] if len(cells) == len(head)]
    gone = {
        at
        for at, name in enumerate(head)
        if not name.strip()
        and wide
        and (not any(cells[at].strip() for cells in wide) or _index(at, wide))
    }
    return [
        (number, [cell for at, cell in enumerate(cells) if at not in gone])
        if len(cells) == len(head)
        else (number, cells)
        for number, cells in rows
    ]


def _labelled(rows: list[Row]) -> list[Row]:
    """A first column without a name whose cells are boot 1, boot 2 is called so; of words, row."""
    (number, head), *below = rows
    cells = [cells[0].strip() for _, cells in below if len(cells) == len(head)]
    if (
        head[0].strip()
        or not all(cells)
        or len(set(cells)) < 2
        or not all(map(str.strip, head[1:]))
    ):
        return rows
    counted = [_NUMBERED.fullmatch(cell) for cell in cells]
    called = {one["word"].lower() for one in counted if one}
    if len(called) == 1 and all(counted):
        name = called.pop()
    elif any(re.fullmatch(GROUPED, cell) for cell in cells):
        return rows
    else:
        name = "row"
    return rows if name in head else [(number, [name, *head[1:]]), *below]


def _index(at: int, rows: Sequence[Sequence[str]]) -> bool:
    """The number of the line, which data tools put before a table."""
    cells = [row[0].strip() for row in rows]
    return at == 0 and any(cells == [str(n + k) for n in range(len(rows))] for k in (0, 1))


def _units_below(found: Plain) -> Plain:
    """A second head line with the units: it goes into the first."""
    if len(found.lines) < 2:
        return found
    cells = [cell.strip("[]() ") for cell in found.lines[0].cells]
    cells = ["" if cell in _NO_UNIT else cell for cell in cells]
    named = cells[0].lower() in ("unit", "units")  # what the line itself is called
    cells = ["", *cells[1:]] if named else cells
    said = [words.said(cell) for cell in cells if cell]
    units = [one for one in said if one.part is Part.TIME and one.unit]
    bare = named and not any(re.fullmatch(GROUPED, cell) for cell in cells)
    if not units or (len(units) < len(said) and not bare):
        return found
    columns = tuple(
        f"{name} ({unit})" if unit else name
        for name, unit in zip(found.columns, cells, strict=True)
    )
    return replace(found, columns=columns, lines=found.lines[1:])


def _thousands(found: Plain) -> Plain:
    """990 and 1,002 where another column has 1,234,567: the comma is between thousands in all."""
    columns = [cells_of(found, at) for at in range(len(found.columns))]
    made = written.grouped_by_others(columns)
    for at, cells in made.items():
        found = with_column(found, at, [found.columns[at]], [[cell] for cell in cells])
    return found


def _figures(found: Plain) -> Plain:
    """One plain number in a cell, as far as all cells of a column are written in one way."""

    def change(found: Plain, at: int) -> Plain:
        for rewrite in written.WAYS:
            name, cells = found.columns[at], cells_of(found, at)
            made = rewrite(name, cells)
            if made is not None:
                found = with_column(found, at, [made.name], [[cell] for cell in made.cells])
                if made.doubt:
                    found = replace(found, doubts=(*found.doubts, made.doubt))
        return found

    return each_column(found, change)


def _statistic(text: str) -> str:
    word = "_".join(words.words(text))
    return word if word in (*_STATISTICS, *_COMPARED, *_WARM) else ""


def _statistics(found: Plain) -> Plain:
    """Rows called mean or stddev: of a table of such rows the columns, else no runs."""
    for at in range(len(found.columns)):
        cells = [cell for cell in cells_of(found, at) if cell]
        named = [cell for cell in cells if _statistic(cell)]
        said = words.said(found.columns[at]).part
        if (named and all(map(words.is_percentile, named))) or said in (Part.UNIT, Part.BETTER):
            continue  # not rows that sum up others: what they were taken at, minutes, or better max
        if len(set(named)) > 1 and len(named) == len(cells) == len(found.lines):
            return _turned(found, at)
        others = [cell for cell in cells if not _statistic(cell)]
        compared = said is Part.ARM
        counted = (compared and all(_statistic(cell) in _OF_ALL for cell in named)) or all(
            cell.isdecimal() or arms.is_version(cell) or cell.lower() in _SINGLE for cell in others
        )
        runs = [cell for cell in cells if cell.isdecimal()]
        if named and _number_runs(runs) and (rest := _words_below(cells, runs)):
            counted, named = True, rest  # Std.-Abw. beside mean, below 1, 2, 3
        elif not named and _number_runs(runs) and (rest := _words_below(cells, runs)):
            doubt = f"are the rows called {printable(', '.join(rest), 80)} runs? else cut them"
            return replace(found, doubts=(*found.doubts, doubt))
        if named and others and counted and len(named) < len(cells):
            kept = tuple(line for line in found.lines if line.cells[at] not in named)
            listed = ", ".join(dict.fromkeys(named))
            note = f"rows called {printable(listed, 80)} sum up others or warm up: no runs"
            return replace(found, lines=kept, notes=(*found.notes, note))
    return found


def _words_below(cells: Sequence[str], runs: Sequence[str]) -> list[str]:
    """What stands below the numbers of runs, where it is all words; else nothing."""
    rest = [*cells[len(runs) :]]
    below = [*cells[: len(runs)]] == [*runs]
    return rest if below and not any(map(_FIGURE.fullmatch, rest)) else []


def _number_runs(cells: Sequence[str]) -> bool:
    """True for 1, 2, 3 ..., or 0, 1, 2 ..., each as often as the others."""
    numbers = sorted({int(cell) for cell in cells if len(cell) < 7})
    whole = len(numbers) > 2 and numbers[0] in (0, 1) and numbers[-1] - numbers[0] < len(numbers)
    return whole and len(set(Counter(cells).values())) == 1


def _arms_below(found: Plain) -> Plain:
    """A row for each arm, where every arm has a column for each of several metrics."""
    arms_ = wide.metrics_of_arms(found.columns)
    places = [at for each in arms_.values() for at in each.values()]
    if not arms_ or not all(_numeric(cells_of(found, at), sure=True) for at in places):
        return found
    kept = [at for at in range(len(found.columns)) if at not in places]
    metrics = list(next(iter(arms_.values())))
    columns = (wide.KERNEL, *(found.columns[at] for at in kept), *metrics)
    if len(set(columns)) < len(columns):
        return found
    lines = tuple(
        Line(
            number=line.number,
            cells=(
                arm,
                *(line.cells[at] for at in kept),
                *(line.cells[each[metric]] for metric in metrics),
            ),
        )
        for line in found.lines
        for arm, each in arms_.items()
    )
    return replace(found, columns=columns, lines=lines)


def _turned(found: Plain, at: int) -> Plain:
    """A row for each statistic as a column for each; rows that are equal else become one."""
    rows = range(len(found.columns))
    numbers = [n for n in rows if n != at and _measured(found, n)]
    keys = [n for n in rows if n != at and n not in numbers]
    stats = list(dict.fromkeys(line.cells[at] for line in found.lines))
    names: dict[tuple[int, str], str] = {}
    for n in numbers:
        base = re.sub(r"(?i)\A(?:value|val)[ _]*", "", found.columns[n])
        for stat in stats:
            word = "n" if _statistic(stat) in _COUNTS else stat
            arm = base.partition(" (")[0] if len(numbers) > 1 else ""
            names[n, stat] = f"{arm if word == 'n' else base} {word}".strip()
    made: dict[tuple[str, ...], dict[str, str]] = {}
    first: dict[tuple[str, ...], int] = {}
    for line in found.lines:
        key = tuple(line.cells[n] for n in keys)
        first.setdefault(key, line.number)
        row = made.setdefault(key, {})
        for n in numbers:
            name = names[n, line.cells[at]]
            if name in row:
                return found  # two rows of one statistic: something else tells them apart
            row[name] = line.cells[n]
    columns = tuple(dict.fromkeys(names.values()))
    lines = tuple(
        Line(number=first[key], cells=(*key, *(row.get(name, "") for name in columns)))
        for key, row in made.items()
    )
    return replace(found, columns=(*(found.columns[n] for n in keys), *columns), lines=lines)


def _measured(found: Plain, at: int) -> bool:
    """True for a column of figures that no name calls a boot, a run or a setting."""
    part = words.said(found.columns[at]).part
    return part not in _KEYS and _numeric(cells_of(found, at), sure=part is Part.TIME)


def _numeric(cells: Sequence[str], *, sure: bool) -> bool:
    filled = [cell for cell in cells if cell]
    good = sum(bool(re.fullmatch(r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?%?", cell)) for cell in filled)
    versions = not sure and all(map(arms.is_version, filled))
    return bool(filled) and 2 * good > len(filled) and not versions
