# SPDX-License-Identifier: GPL-2.0-or-later
"""From paths to contents: each file is recognised by its structure, or read by a mapping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from kdelta.archive.apt import Progress
from kdelta.errors import SpecError
from kdelta.imports import formats, table
from kdelta.imports import mapping as mappings
from kdelta.imports.files import MAX_TOTAL, found_in, labels_of, load, parsed_json
from kdelta.imports.record import (
    SET,
    Contents,
    ImportReading,
    Published,
    SourceFile,
    at,
    in_order,
    merged,
)
from kdelta.metric import Metric
from kdelta.printable import printable, quoted

MAX_REPLICATES = 5_000
MAX_SERIES = 3_000


class ImportFormat(StrEnum):
    """What an import is read as."""

    TABLE = "table"
    BUNDLE = "bundle"
    KERNBENCH = "mmtests' kernbench logs"
    COMPARISON = "mmtests' comparison"
    MATRIX = "lkp's matrix.json"
    ROBOT = "the robot's table"
    BENCHFMT = "Go benchmark format"
    PERF_STAT = "perf stat"
    HYPERFINE = "hyperfine"
    GOOGLE_BENCHMARK = "Google Benchmark"
    FIO = "fio"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A loaded file; kind None: a file of a bundle beside its raw.csv."""

    number: int
    source: SourceFile
    kind: ImportFormat | None
    mapping: mappings.Mapping | None
    how: str = ""
    members: dict[str, SourceFile] = field(default_factory=dict)


def read(
    paths: Sequence[Path],
    given: Sequence[mappings.Mapping] = (),
    encoding: str = "utf-8",
    progress: Progress | None = None,
    repeated: str = "",
) -> tuple[tuple[SourceFile, ...], Contents, ImportFormat]:
    """Sources, contents and format of `paths`; given: mappings; repeated: what was.  SpecError."""
    found = found_in(paths)
    texts = [load(path, name, encoding) for path, name in found]
    if sum(source.size for source in texts) > MAX_TOTAL:
        cause = f"more than {MAX_TOTAL // 2**20} MiB"
        raise SpecError(cause, place=str(paths[0]), action="import a part of it")
    files = _recognised(texts, given, repeated, progress)
    kind = _kind(paths, files)
    labels = labels_of([file.source.name for file in files])
    contents = _contents(files, kind, labels)
    sources = tuple(file.source for file in files)
    if not (contents.readings or contents.published or contents.audited):
        action = " ".join(contents.notes) or "import what was measured"
        raise SpecError("nothing in it can be judged", place=str(paths[0]), action=action)
    _check_names(contents, str(paths[0]))
    # More cannot be judged in seconds: tests by ranks are quadratic.
    replicates = {(one.arm, one.metric, one.group, one.replicate) for one in contents.readings}
    series = Counter(key[:3] for key in replicates)
    for (arm, metric, _), count in series.items():
        if count > MAX_REPLICATES:
            cause = f"{count:,} replicates of {printable(metric, 60)} for {printable(arm, 60)}"
            cause += f" in one setting, more than {MAX_REPLICATES:,}"
            action = "name what tells settings or boots apart in [columns], or import a part"
            raise SpecError(cause, place=str(paths[0]), action=action)
    if len(series) > MAX_SERIES:
        cause = f"{len(series):,} series (an arm, a metric, a setting), more than {MAX_SERIES:,}"
        raise SpecError(cause, place=str(paths[0]), action="import a part of it")
    for (path, name), source in zip(found, texts, strict=True):
        if not path.is_file() or path.stat().st_size != source.size:
            action = "import it when it is written"
            raise SpecError("it changed while it was read", place=name, action=action)
    arms = tuple(dict.fromkeys(labels))
    return sources, _ordered(contents, arms if len(arms) == len(paths) else (), files, kind), kind


def _check_names(contents: Contents, place: str) -> None:
    """Raise SpecError for a name that is none, and for an arm that is old and new."""
    figures: list[ImportReading | Published] = [*contents.readings, *contents.published]
    every = {(one.arm, one.metric, one.group) for one in figures}
    names = {name for arm, metric, group in every for name in (arm, metric, *chain(*group))}
    for name in names:
        if not name or "\0" in name:
            cause = f"an arm, a metric or a setting is called {quoted(name)}"
            raise SpecError(cause, place=place, action="give it a name")
    if contents.roles and contents.roles.old in contents.roles.new:
        cause = f"{printable(contents.roles.old, 60)} is the old arm and a new one"
        raise SpecError(cause, place=place, action="give it one role")


def _recognised(
    sources: Sequence[SourceFile],
    given: Sequence[mappings.Mapping],
    repeated: str,
    progress: Progress | None,
) -> list[_File]:
    bundles = {_folder(source) for source in sources if formats.is_raw(source)}
    files = []
    for number, source in enumerate(sources):
        mapping = next((one for one in given if one.takes(source.name)), None)
        file = _File(number=number, source=source, kind=None, mapping=mapping)
        folder, base = _folder(source), source.name.rpartition("/")[2]
        if folder in bundles and base in formats.BUNDLE_FILES:
            if base == formats.RAW:
                own = {
                    one.name.rpartition("/")[2]: one for one in sources if _folder(one) == folder
                }
                raw = table.table(source)
                file = replace(file, source=raw, kind=ImportFormat.BUNDLE, members=own)
        elif mapping and mapping.of_table:
            file = _table(file, mapping, repeated, progress)
        elif (kind := _format(source)) is ImportFormat.TABLE:
            if mapping:
                cause = f"the mapping names no column of {printable(source.name, 60)} as the arm"
                raise SpecError(cause, place="--mapping", action=mappings.NO_ARM)
            file = _table(file, None, repeated, progress)
        else:
            file = replace(file, kind=kind)
        files.append(file)
    _check_mappings(given, files)
    return files


def _folder(source: SourceFile) -> str:
    return source.name.rpartition("/")[0]


def _table(
    file: _File, mapping: mappings.Mapping | None, repeated: str, progress: Progress | None
) -> _File:
    """A table with its mapping: the user's, or that of the fixed table of names."""
    source, shown, how = file.source, table.table(file.source, progress), ""
    if mapping is None:
        text, told, hints = mappings.of_known_names(shown, repeated), list[str](), list[str]()
        if unknown := [name for name in shown.columns if name not in mappings.NAMES]:
            named = ", ".join(printable(name, 60) for name in unknown[:20])
            told.append(f"no mapping says what {named} {'is' if len(unknown) == 1 else 'are'}")
        try:
            mapping = mappings.parse(text, source.name)
        except SpecError as error:
            told.append(error.cause)
            hints = [f"# {each}" for each in error.action.split("; ")]
        if told == [mappings.UNKNOWN_REPEATED]:
            action = "add --replicate boot (a row, or each boot, is one), round or none; --old ARM"
            action += " --new ARM judge it at once"
            raise SpecError(told[0], place=source.name, action=action)
        if told or mapping is None:
            action = 'correct this mapping (docs/imports.md), fill in each "" of it, and give it so'
            lines = [*hints, *text.splitlines()]
            raise SpecError("; ".join(told), place=source.name, action=action, lines=lines)
        how = f"{source.name}: read by the names of its columns, as this mapping:"
        how += f" {'; '.join(text.splitlines())}"
    return replace(file, source=shown, kind=ImportFormat.TABLE, mapping=mapping, how=how)


_OF_FORMATS = ("metrics", "order", "roles", "files")  # keys of a mapping
_Reader = Callable[[table.Sources, table.Labels, table.Collected], Contents]
# What tells a format, of its text or of the object that its JSON holds, and what reads it.
_TEXTS: dict[ImportFormat, tuple[Callable[[str], bool], _Reader]] = {
    ImportFormat.ROBOT: (formats.is_robot_table, formats.read_robot_table),
    ImportFormat.COMPARISON: (formats.is_comparison, formats.read_comparison),
    ImportFormat.KERNBENCH: (formats.is_log, formats.read_logs),
    ImportFormat.BENCHFMT: (formats.is_benchfmt, formats.read_benchfmt),
    ImportFormat.PERF_STAT: (formats.is_separated, formats.read_perf_stat),
}
_REPORTS: dict[ImportFormat, tuple[Callable[[dict[str, Any]], bool], _Reader]] = {
    ImportFormat.HYPERFINE: (formats.is_hyperfine, formats.read_hyperfine),
    ImportFormat.GOOGLE_BENCHMARK: (formats.is_google_benchmark, formats.read_google_benchmark),
    ImportFormat.FIO: (formats.is_fio, formats.read_fio),
}


def _format(source: SourceFile) -> ImportFormat:
    """The declared format of a file; TABLE for any other."""
    text = source.text
    if text.lstrip()[:1] not in ("{", "["):
        kinds = (kind for kind, (is_of, _) in _TEXTS.items() if is_of(text))
        return next(kinds, ImportFormat.TABLE)
    first = text.strip().partition("\n")[0]
    if first[:1] == "{" and first.endswith("}"):  # an object a line
        if formats.is_perf_json(parsed_json(first, source.name)):
            return ImportFormat.PERF_STAT
        if len(text.strip()) > len(first):
            return ImportFormat.TABLE
    return _report(source)


def _report(source: SourceFile) -> ImportFormat:
    """The declared format of one JSON value.  Raises SpecError for any other."""
    found = parsed_json(source.text, source.name)
    if isinstance(found, dict):
        if source.name.rpartition("/")[2] == formats.MATRIX:
            return ImportFormat.MATRIX
        for kind, (is_of, _) in _REPORTS.items():
            if is_of(found):
                return kind
    action = "write a table as JSON lines, an object a line, and describe it with --mapping"
    raise SpecError("it is JSON of no declared format", place=source.name, action=action)


def _check_mappings(given: Sequence[mappings.Mapping], files: Sequence[_File]) -> None:
    used = {id(file.mapping) for file in files}
    for mapping in given:
        if id(mapping) not in used:
            wanted = ", ".join(map(quoted, mapping.files)) or "every file"
            cause = f"a mapping is for {wanted}, and no file is left for it"
            names = (printable(file.source.name, 60) for file in files[:5])
            action = f"the files are {', '.join(names)}"
            raise SpecError(cause, place="--mapping", action=action)


def _kind(paths: Sequence[Path], files: Sequence[_File]) -> ImportFormat:
    kinds = sorted({file.kind for file in files if file.kind})
    if len(kinds) == 1:
        return kinds[0]
    several = f"there are several formats: {', '.join(kinds)}"
    action = "import what was measured one by one (links in a folder are not followed)"
    cause = several if kinds else "there is no plain file in it"
    raise SpecError(cause, place=str(paths[0]), action=action)


def _contents(files: Sequence[_File], kind: ImportFormat, names: Sequence[str]) -> Contents:
    mine = [file for file in files if file.kind is kind]
    if kind in (ImportFormat.TABLE, ImportFormat.BUNDLE):
        return _apart(mine)
    mapping = next((file.mapping for file in mine if file.mapping), None)
    for key in mapping.__struct_fields__ if mapping else ():
        if key in _OF_FORMATS or getattr(mapping, key) == getattr(mappings.Mapping(), key):
            continue
        name = mine[0].source.name
        cause = f"the mapping gives {key}, and {name} is of a declared format, {kind}"
        action = "leave it out: a mapping adds [metrics.NAME], order or [roles] to a format"
        raise SpecError(cause, place="--mapping", action=action)
    labels = dict(zip((file.number for file in files), names, strict=True))
    read = formats.read_matrices if kind is ImportFormat.MATRIX else (_TEXTS | _REPORTS)[kind][1]
    return read([(file.number, file.source) for file in mine], labels, table.Collected(mapping))


def _apart(files: Sequence[_File]) -> Contents:
    """Tables or bundles, each by itself: of several, the dimension `set` keeps them apart."""
    parts = []
    for file in files:
        if file.kind is ImportFormat.BUNDLE:
            part = formats.read_bundle(file.number, file.source, file.members)
            name = _folder(file.source)
        else:
            part = table.read(file.number, file.source, file.mapping or mappings.Mapping())
            name = file.source.name
        part = replace(part, how=(file.how,) if file.how else ())
        parts.append(at(part, ((SET, name),)) if len(files) > 1 else part)
    for mapping in {id(file.mapping): file.mapping for file in files}.values():
        if mapping and mapping.of_table:
            table.check_names(mapping, [one.source for one in files if one.mapping is mapping])
    for key in ("order", "roles"):
        said = {value for part in parts if (value := getattr(part, key))}
        if len(said) > 1:
            cause = f"the mappings of two tables give another {key}"
            action = "import the tables one by one"
            raise SpecError(cause, place=files[1].source.name, action=action)
    known: dict[str, Metric] = {}
    for metric in (metric for part in parts for metric in part.metrics):
        if known.setdefault(metric.name, metric) != metric:
            cause = f"{printable(metric.name, 60)} has one unit or direction here and another there"
            action = "import the tables one by one"
            raise SpecError(cause, place=files[1].source.name, action=action)
    return merged(parts)


def _ordered(
    contents: Contents, given: tuple[str, ...], files: Sequence[_File], kind: ImportFormat
) -> Contents:
    """With the order of arms: as declared, by their versions, else `given`, as paths name them."""
    mapping = next((file.mapping for file in files if file.mapping), None)
    if kind is ImportFormat.TABLE:
        return contents
    if mapping and (mapping.order or mapping.roles):
        return replace(contents, order=mapping.order, roles=mapping.declared_roles)
    figures: tuple[ImportReading | Published, ...] = (*contents.readings, *contents.published)
    arms = tuple(dict.fromkeys(item.arm for item in figures))
    if contents.order or kind is ImportFormat.BUNDLE or in_order(arms) or arms != given:
        return contents
    return replace(contents, order=arms)
