# SPDX-License-Identifier: GPL-2.0-or-later
"""From paths to loaded files: which there are, what to call them, and what each one is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from kdelta.foreign import (
    benchfmt,
    bundle,
    dimensions,
    encoded,
    hyperfine,
    json_programs,
    json_text,
    kernbench,
    lkp,
    marked,
    markup,
    perf_stat,
    programs,
    prose,
    records,
    sentences,
    shapes,
    tables,
    unread,
)
from kdelta.foreign.arms import is_version, side
from kdelta.foreign.guess import guess
from kdelta.foreign.known import known
from kdelta.foreign.mapping import Mapping
from kdelta.foreign.plain_tables import Plain
from kdelta.foreign.record import ImportFormat, Line, SourceFile
from kdelta.foreign.stack import (
    Stack,
    StackedFile,
    crossed,
    of_boots,
    of_grid,
    of_paths,
    repeats,
    stacked,
    without_suffix,
)
from kdelta.foreign.work import Guess
from kdelta.metric import Better

_QUOTED = re.compile(r"(?:>(?:[ >]|\Z))+")
_PROSE = (".txt", ".eml", ".mbox", ".mail")
_MARKED = (".md", ".org", ".rst", ".adoc", *markup.PAGES)  # never a log
_TABULAR = (".csv", ".tsv", ".psv", ".tab", ".dat", *_PROSE, *_MARKED)
_TEXTS = {
    ImportFormat.KERNBENCH: kernbench.looks_like,
    ImportFormat.BENCHFMT: benchfmt.looks_like,
    ImportFormat.PERF_STAT: perf_stat.looks_like,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How files shall be read; None and empty: as they look."""

    kind: ImportFormat | None = None
    mappings: tuple[Mapping, ...] = ()
    encoding: str = "utf-8"

    def mapping_of(self, name: str) -> Mapping | None:
        """The mapping that takes the file of that name."""
        return next((one for one in self.mappings if one.takes(name)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """A loaded file: text is "" for a table, mapping and guess None for all else.

    label: what tells it from the others of the import; it names the arm of a table without one.
    stack: the files that it stands for, where it is several below each other.
    notes: sentences on what of it is not read.
    better: the direction that a line beside the table says is better.
    unread: what it is, where that is known and nothing in it can be judged.
    """

    number: int
    label: str
    source: SourceFile
    kind: ImportFormat | None
    text: str = ""
    mapping: Mapping | None = None
    guess: Guess | None = None
    stack: Stack | None = None
    notes: tuple[str, ...] = ()
    better: Better | None = None
    unread: unread.Unread | None = None


def loaded(number: int, path: Path, name: str, label: str, wish: Wish) -> LoadedFile:
    """One file, with its format as far as it shows.  Raises SpecError."""
    data, source = tables.load(path, name)
    if no_text := encoded.beside(data):
        return LoadedFile(number=number, label=label, source=source, kind=None, unread=no_text)
    return _as_text(number, path, data, source, label, wish)


def _as_text(
    number: int, path: Path, data: bytes, source: SourceFile, label: str, wish: Wish
) -> LoadedFile:
    name = source.name
    mapped = wish.mapping_of(name)
    encoding = mapped.encoding if mapped and mapped.encoding != "utf-8" else wish.encoding
    text = _unquoted(encoded.decoded(data, name, encoding))
    text = text if mapped and mapped.delimiter != "|" else markup.plain(text, path.suffix.lower())
    plain = replace(source, text=text)
    suffix = path.suffix.lower() if without_suffix(path.name) != path.name else ""
    kind = wish.kind
    why = None if kind or mapped else unread.unread(text, name)
    if suffix in markup.PAGES and not mapped and "|" not in text:
        why = unread.NO_TABLE
    if why:
        return LoadedFile(number=number, label=label, source=plain, kind=None, unread=why)
    if suffix == ".json":
        return _json(number, label, plain, path.name, wish.kind)
    if kind is None and not mapped and suffix not in (".csv", ".tsv"):
        kind = next((one for one, like in _TEXTS.items() if like(text)), None)
    if kind is None and suffix not in (".csv", ".tsv"):
        log = suffix not in _MARKED and (
            records.is_log(text) or bool(programs.records_of(text)) or sentences.is_stamped(text)
        )
        grid = shapes.is_grid(text) or shapes.is_column(text)
        if log or (suffix not in _TABULAR and not mapped and not grid):
            return LoadedFile(number=number, label=label, source=plain, kind=None, text=text)
    if kind is None and suffix == ".csv" and programs.records_of_csv(text):
        return LoadedFile(number=number, label=label, source=plain, kind=None, text=text)
    if kind is None and suffix == ".csv" and perf_stat.looks_like(text):
        kind = ImportFormat.PERF_STAT
    if kind in _TEXTS:
        return LoadedFile(number=number, label=label, source=plain, kind=kind, text=text)
    return _table(number, label, source, text, suffix, mapped, encoding)


def _unquoted(text: str) -> str:
    """A text without the marks of quoted mail, where several lines in a row have them."""
    lines = text.splitlines()
    quoted = [bool(_QUOTED.match(line)) for line in lines]
    rows = zip(quoted, quoted[1:], quoted[2:], strict=False)
    if not any(all(three) for three in rows):
        return text
    return "\n".join(_QUOTED.sub("", line) for line in lines) + "\n"


def _json(
    number: int, label: str, plain: SourceFile, base: str, kind: ImportFormat | None
) -> LoadedFile:
    plain = replace(plain, text=json_text.below_messages(plain.text))
    lines = records.is_lines(plain.text)
    found = None if lines else json_text.loaded(plain.text, plain.name)
    if base == lkp.FILE or kind is ImportFormat.LKP:
        kind = ImportFormat.LKP
    elif isinstance(found, dict) and hyperfine.looks_like(found):
        kind = ImportFormat.HYPERFINE
    else:
        kind = None
    return LoadedFile(number=number, label=label, source=plain, kind=kind, text=plain.text)


def _table(
    number: int,
    label: str,
    source: SourceFile,
    text: str,
    suffix: str,
    mapped: Mapping | None,
    encoding: str,
) -> LoadedFile:
    whole, text = text, shapes.of_gnuplot(markup.framed(text))
    if not mapped:
        markup.check_heads(text, source.name)
    text = prose.table_in(text) if suffix in _PROSE else text
    delimiter = mapped.delimiter if mapped else None
    if not mapped and (alone := shapes.of_one_column(text)):
        text, delimiter = alone, ","
    delimiter = delimiter or tables.delimiter_of(text, suffix)
    text = text if delimiter == tables.BLANKS else shapes.of_comments(text, delimiter)
    if suffix in (".txt", ".dat", *_MARKED) and not mapped and delimiter == tables.BLANKS:
        first = next((line for line in text.splitlines() if line.strip()), "")
        if len(first.split()) < 2 or ("," in first and not first.startswith("#")):
            return LoadedFile(
                number=number, label=label, source=replace(source, text=text), kind=None
            )
    shown = tables.table(text, source.name, delimiter)
    found = replace(source, columns=shown.columns, lines=shown.lines)
    base = Mapping(delimiter=delimiter, encoding=encoding)
    if mapped:
        dimensions.check(found, mapped)
    made = None if mapped else known(found.columns, base)
    better = None
    if not (mapped or made):
        better, asked = marked.direction(whole, delimiter)
        if asked and marked.directed(shown):
            asked = ()
        made = guess(found, base, asked=(*shown.doubts, *asked), better=better)
    kind = ImportFormat.BUNDLE if bundle.is_bundle(found) else ImportFormat.TABLE
    return LoadedFile(
        number=number,
        label=label,
        source=found,
        kind=kind,
        mapping=mapped or (made.mapping if made else None),
        guess=made,
        notes=tuple(f"{source.name}: {note}" for note in shown.notes),
        better=better,
    )


def recorded(files: Sequence[LoadedFile], wish: Wish) -> list[LoadedFile]:
    """The same files, those that hold records below each other as one.

    JSON, an object a line, YAML, and logs of "name: value".  Raises SpecError.
    """
    parts: list[StackedFile] = []
    for file in files:
        suffix = Path(file.source.name).suffix.lower()
        listed = [] if file.unread else _records_of(file, suffix)
        if listed:
            shown = records.table_of(listed, file.source.name)
            parts.append(StackedFile(file.number, file.source.name, shown))
    return _below_each_other(files, parts, wish, Mapping(delimiter=","))


def numbered(files: Sequence[LoadedFile], wish: Wish) -> list[LoadedFile]:
    """The same files, tables of one head line that are a run each below each other as one.

    Such tables name no arm, and paths like 6.16/boot1.csv, 6.16/boot2.csv, 6.17/boot1.csv do; so
    do 6.16/fork.csv, 6.16/mmap.csv, 6.17/fork.csv, 6.17/mmap.csv, and fork-6.16.csv, fork-6.17.csv,
    mmap-6.16.csv, mmap-6.17.csv.  boot1.csv, boot2.csv ... are
    boots of the arms that each of them names.
    """
    tables_ = [file for file in files if file.kind is ImportFormat.TABLE and not file.stack]
    heads = {file.source.columns for file in tables_}
    armless = all(file.mapping and _armless(file) for file in tables_)
    boots = len(tables_) > 2 and of_boots([file.source.name for file in tables_])
    boots = boots and len({_held(file) for file in tables_} - {None}) == 1
    if len(tables_) < 3 or len(heads) > 1 or not (armless or boots):
        return list(files)
    names = [file.source.name for file in tables_]
    if not (repeats(names) or crossed(names) or of_paths(names) or of_grid(names) or boots):
        return list(files)
    parts = [
        StackedFile(
            file.number,
            file.source.name,
            Plain(columns=file.source.columns, lines=file.source.lines),
        )
        for file in tables_
    ]
    first = tables_[0].mapping or Mapping()
    base = Mapping(delimiter=first.delimiter, encoding=first.encoding)
    return _below_each_other(files, parts, wish, base)


def beside(files: Sequence[LoadedFile], wish: Wish) -> list[LoadedFile]:
    """The same files; tables without an arm, each with one JSON object in its folder, as one.

    res/007/samples.csv beside res/007/config.json: what the object says is said of each row.
    """
    tables_ = [file for file in files if file.kind is ImportFormat.TABLE and not file.stack]
    said = {
        _folder(file): _facts(file)
        for file in files
        if file.source.name.endswith(".json") and file.kind is None
    }
    alone = len({_folder(file) for file in tables_}) == len(tables_) > 1
    heads = {file.source.columns for file in tables_}
    facts = [said.get(_folder(file), {}) for file in tables_]
    names = tuple(dict.fromkeys(name for each in facts for name in each))
    if not alone or len(heads) > 1 or not all(facts) or wish.kind or not names:
        return list(files)
    if not all(file.mapping and _armless(file) for file in tables_) and not wish.mappings:
        return list(files)
    own = {name: f"{name} beside" if name in tables_[0].source.columns else name for name in names}
    parts = [
        StackedFile(
            file.number,
            file.source.name,
            Plain(
                columns=(*(own[name] for name in names), *file.source.columns),
                lines=tuple(
                    Line(
                        number=line.number,
                        cells=(*(each.get(name, "") for name in names), *line.cells),
                    )
                    for line in file.source.lines
                ),
            ),
        )
        for file, each in zip(tables_, facts, strict=True)
    ]
    first = tables_[0].mapping or Mapping()
    base = Mapping(delimiter=first.delimiter, encoding=first.encoding)
    return _below_each_other(files, parts, wish, base)


def _folder(file: LoadedFile) -> str:
    return file.source.name.rpartition("/")[0]


def _facts(file: LoadedFile) -> dict[str, str]:
    """The plain facts of a JSON object, by their paths; nothing of any other file."""
    found = records.of_json(file.source.text, file.source.name)
    return dict(found[0][1]) if len(found) == 1 else {}


def of_arms(files: Sequence[LoadedFile]) -> list[LoadedFile]:
    """The same files; tables that are called after arms, and whose columns hardly name any, are so.

    6.16.csv and 6.17.csv, or base.csv and patched.csv, with a column of program versions that are
    all equal, of `variant` seq and rand, or of few words that nothing calls an arm.
    """
    tables_ = [file for file in files if file.kind is ImportFormat.TABLE and not file.stack]
    labels = {file.label for file in tables_}
    named = all(is_version(label) or side(label) for label in labels)
    heads = {file.source.columns for file in tables_}
    if len(tables_) < 2 or len(labels) < len(tables_) or not named or len(heads) > 1:
        return list(files)
    held = [_held(file) for file in tables_]
    if None in held or len(set(held)) > 1:
        return list(files)
    cells = held[0] or frozenset()
    if len(cells) > 1 and all(is_version(cell) or side(cell) for cell in cells):
        return list(files)
    return [_as_arm(file, asked=len(cells) > 1) if file in tables_ else file for file in files]


def _held(file: LoadedFile) -> frozenset[str] | None:
    """The cells of the column that a guess takes for the arm; None: there is none."""
    mapping = file.guess and file.guess.mapping
    if not mapping or mapping.arms or mapping.columns.arm not in file.source.columns:
        return None
    at = file.source.columns.index(str(mapping.columns.arm))
    return frozenset(line.cells[at] for line in file.source.lines)


def _as_arm(file: LoadedFile, *, asked: bool) -> LoadedFile:
    """A table that is an arm; asked: that is a doubt, where some column is called after one."""
    mapping = file.mapping or Mapping()
    base = Mapping(delimiter=mapping.delimiter, encoding=mapping.encoding)
    column = mapping.columns.arm
    doubts = (f"is each file an arm, or {column}, which is called so?",)
    unsure = asked and file.guess is not None and not file.guess.unnamed
    found = guess(
        file.source, base, by_file=True, asked=doubts if unsure else (), better=file.better
    )
    return replace(file, mapping=found.mapping, guess=found)


def _armless(file: LoadedFile) -> bool:
    """True for a table in which no column is surely the arm; one of a path is none of its own."""
    if file.guess:
        return file.guess.armless or file.guess.unnamed
    mapping = file.mapping or Mapping()
    return not mapping.arms and mapping.columns.arm not in file.source.columns


def _below_each_other(
    files: Sequence[LoadedFile], parts: Sequence[StackedFile], wish: Wish, base: Mapping
) -> list[LoadedFile]:
    if not parts:
        return list(files)
    made = stacked(parts)
    mapped = wish.mapping_of(made.source.name)
    if mapped:
        dimensions.check(made.source, mapped)
    found = None if mapped else _of_stack(made, parts, base)
    one = LoadedFile(
        number=parts[0].number,
        label=next(file.label for file in files if file.number == parts[0].number),
        source=made.source,
        kind=ImportFormat.TABLE,
        mapping=mapped or (found.mapping if found else None),
        guess=found,
        stack=made,
        notes=tuple(f"{part.name}: {note}" for part in parts for note in part.shown.notes),
    )
    held = {part.number for part in parts}
    return [*(file for file in files if file.number not in held), one]


def _of_stack(made: Stack, parts: Sequence[StackedFile], base: Mapping) -> Guess:
    """What a stack is: what its paths say is guessed, and the rest, where its program is known."""
    heads = {part.shown.columns for part in parts}
    program = known(heads.pop(), base) if len(heads) == 1 else None
    guessed = guess(made.source, base, asked=made.doubts)
    if program is None:
        return guessed
    told, own = guessed.mapping.columns, program.mapping.columns
    added = set(made.source.columns) - set(parts[0].shown.columns)
    keys = {
        key: column for key in ("arm", "boot", "round") if (column := getattr(told, key)) in added
    }
    settings = [name for name in told.dimensions if name in added and name not in keys.values()]
    columns = msgspec.structs.replace(own, dimensions=(*settings, *own.dimensions), **keys)
    return replace(
        program,
        mapping=msgspec.structs.replace(program.mapping, columns=columns),
        told=(*(one for one in guessed.told if one.column in added), *program.told),
        doubts=tuple(text for text in guessed.doubts if any(name in text for name in added)),
        armless="arm" not in keys,
    )


def _records_of(file: LoadedFile, suffix: str) -> list[tuple[int, dict[str, str]]]:
    text = file.source.text
    if suffix in (".json", ".jsonl", ".ndjson"):
        return records.of_json(text, file.source.name, json_programs.records_of)
    found = programs.records_of_csv(text) if suffix == ".csv" else programs.records_of(text)
    if not found and suffix in (".yaml", ".yml"):
        found = records.of_nested(text)
    return found or (records.of_log(text) if records.is_log(text) else [])
