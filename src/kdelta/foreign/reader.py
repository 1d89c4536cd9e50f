# SPDX-License-Identifier: GPL-2.0-or-later
"""From paths to contents: which files there are, what each is, and which belong together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kdelta.errors import SpecError
from kdelta.foreign import (
    benchfmt,
    bundle,
    dimensions,
    hyperfine,
    kernbench,
    lkp,
    perf_stat,
    proposal,
    sets,
    tables,
    tidy,
)
from kdelta.foreign.arms import is_version
from kdelta.foreign.guess import guess
from kdelta.foreign.mapping import Mapping, audit_only
from kdelta.foreign.record import ArmFacts, Contents, ImportFormat, SourceFile, merged
from kdelta.foreign.work import Guess
from kdelta.metric import Metric
from kdelta.printable import printable

MAX_FILES = 1000
MAX_TOTAL = 256 * 2**20
_MAX_DEPTH = 8
_TABULAR = (".csv", ".tsv", ".psv", ".tab", ".dat", ".txt", ".md")
_TEXTS = {
    ImportFormat.KERNBENCH: kernbench.looks_like,
    ImportFormat.BENCHFMT: benchfmt.looks_like,
    ImportFormat.PERF_STAT: perf_stat.looks_like,
}


class UndescribedError(SpecError):
    """A table whose columns could mean more than one thing.  proposal: the text of a mapping."""

    def __init__(self, cause: str, *, place: str, proposal: str) -> None:
        super().__init__(cause, place=place, action="describe it with --mapping FILE")
        self.proposal = proposal


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
class _File:
    """A loaded file: text is "" for a table, mapping and guess None for all else.

    label: what tells it from the others of the import; it names the arm of a table without one.
    """

    number: int
    label: str
    source: SourceFile
    kind: ImportFormat | None
    text: str = ""
    mapping: Mapping | None = None
    guess: Guess | None = None


def read(
    paths: Sequence[Path], wish: Wish | None = None
) -> tuple[tuple[SourceFile, ...], Contents, ImportFormat]:
    """Sources, contents and the format of what `paths` hold.

    Raises SpecError: nothing to read, a file that is not what it says, two formats at once; and
    UndescribedError for a table that may mean more than one thing.
    """
    wanted = wish or Wish()
    found = _found(paths)
    labels = _labels([name for _, name in found])
    files = [
        _loaded(number, path, name, labels[number], wanted)
        for number, (path, name) in enumerate(found)
    ]
    if sum(file.source.size for file in files) > MAX_TOTAL:
        raise SpecError(
            f"more than {MAX_TOTAL // 2**20} MiB", place=str(paths[0]), action="import a part of it"
        )
    chosen = wanted.kind or _kind(paths, files)
    contents = _contents(files, chosen, wanted)
    if not (contents.readings or contents.published or contents.audited):
        raise _unknown(paths, files)
    if not contents.order and len(paths) > 1 and all(path.is_file() for path in paths):
        given = tuple(dict.fromkeys(file.label for file in files))
        known = {item.arm for item in contents.readings} | {one.arm for one in contents.published}
        if known == set(given) and not all(map(is_version, given)):
            contents = replace(contents, order=given)
    return tuple(file.source for file in files), contents, chosen


def _kind(paths: Sequence[Path], files: Sequence[_File]) -> ImportFormat:
    kinds = {file.kind for file in files if file.kind}
    # Tables beside a raw.csv are read as far as they have something to say.
    first: tuple[ImportFormat, ...] = (ImportFormat.BUNDLE, *ImportFormat)
    chosen = next((one for one in first if one in kinds), None)
    measured = [file for file in files if file.guess and file.guess.measured]
    if chosen is ImportFormat.TABLE and not measured and len(kinds) > 1:
        chosen = next(one for one in first if one in kinds - {ImportFormat.TABLE})
    if chosen is None:
        raise _unknown(paths, files)
    others = kinds - {chosen, ImportFormat.TABLE, ImportFormat.BUNDLE}
    if others:
        names = ", ".join(sorted({chosen, *others}))
        raise SpecError(
            f"there are several formats: {names}",
            place=str(paths[0]),
            action="import them one by one, with --format",
        )
    return chosen


def _unknown(paths: Sequence[Path], files: Sequence[_File]) -> SpecError:
    names = ", ".join(printable(file.source.name, 60) for file in files[:5]) or "no file"
    return SpecError(
        f"nothing in it can be judged: {names}",
        place=str(paths[0]),
        action="say what it is with --format or --mapping (docs/foreign.md)",
    )


def _found(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """(file, name to call it) of all files, in the order of the names within each path.

    Files that were given one by one and have one name are called with the folders that differ.
    """
    found: list[tuple[Path, str]] = []
    alone = [path for path in paths if not path.is_dir()]
    for path in paths:
        label = path.name or path.resolve().name
        if path.is_dir():
            inside = sorted(_walk(path, 0))
            found += [(file, f"{label}/{file.relative_to(path).as_posix()}") for file in inside]
        else:
            found.append((path, _told_apart(path, alone)))
        if len(found) > MAX_FILES:
            raise SpecError(
                f"more than {MAX_FILES} files", place=str(path), action="import a part of them"
            )
    return found


def _told_apart(path: Path, others: Sequence[Path]) -> str:
    parts = path.absolute().parts
    alike = [other.absolute().parts for other in others if other.name == path.name]
    alike = [other for other in alike if other != parts]
    for count in range(1, len(parts)):
        if all(other[-count:] != parts[-count:] for other in alike):
            return "/".join(parts[-count:])
    return path.name


def _labels(names: Sequence[str]) -> list[str]:
    """What tells files apart: their stems, else the folders in which they differ."""
    stems = [name.rpartition("/")[2].partition(".")[0] for name in names]
    dotted = [name.rpartition("/")[2].rpartition(".")[0] for name in names]
    for each in (stems, dotted):
        if len(set(each)) == len(each):
            return each
    folders = [name.split("/")[:-1] for name in names]
    for at in range(max(map(len, folders), default=0)):
        parts = [folder[at] if at < len(folder) else "" for folder in folders]
        if len(set(parts)) == len(parts):
            return parts
    return list(names)


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Plain files below a folder; links are not followed."""
    if depth > _MAX_DEPTH:
        raise SpecError(
            f"more than {_MAX_DEPTH} folders deep", place=str(folder), action="import a part of it"
        )
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise SpecError(
            f"it cannot be read: {error.strerror}", place=str(folder), action="check the path"
        ) from error
    for entry in entries[: MAX_FILES + 1]:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), depth + 1)
        elif entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
            yield Path(entry.path)


def _loaded(number: int, path: Path, name: str, label: str, wish: Wish) -> _File:
    data, source = tables.load(path, name)
    mapped = wish.mapping_of(name)
    encoding = mapped.encoding if mapped and mapped.encoding != "utf-8" else wish.encoding
    text = tables.decoded(data, name, encoding)
    plain = replace(source, text=text)
    suffix = path.suffix.lower()
    kind = wish.kind
    if suffix == ".json":
        return _json(number, label, plain, path.name, wish.kind)
    if kind is None and not mapped and suffix not in (".csv", ".tsv"):
        kind = next((one for one, like in _TEXTS.items() if like(text)), None)
        if kind is None and suffix not in _TABULAR:
            return _File(number=number, label=label, source=plain, kind=None, text=text)
    if kind is None and suffix == ".csv" and perf_stat.looks_like(text):
        kind = ImportFormat.PERF_STAT
    if kind in _TEXTS:
        return _File(number=number, label=label, source=plain, kind=kind, text=text)
    return _table(number, label, source, text, suffix, mapped, encoding)


def _json(
    number: int, label: str, plain: SourceFile, base: str, kind: ImportFormat | None
) -> _File:
    found = tables.json_object(plain.text, plain.name)
    if base == lkp.FILE or kind is ImportFormat.LKP:
        kind = ImportFormat.LKP
    elif hyperfine.looks_like(found):
        kind = ImportFormat.HYPERFINE
    else:
        kind = None
    return _File(number=number, label=label, source=plain, kind=kind, text=plain.text)


def _table(
    number: int,
    label: str,
    source: SourceFile,
    text: str,
    suffix: str,
    mapped: Mapping | None,
    encoding: str,
) -> _File:
    delimiter = mapped.delimiter if mapped else None
    delimiter = delimiter or tables.delimiter_of(text, suffix)
    if suffix in (".txt", ".md", ".dat") and not mapped and delimiter == tables.BLANKS:
        first = next((line for line in text.splitlines() if line.strip()), "")
        if len(first.split()) < 2 or "," in first:
            return _File(number=number, label=label, source=replace(source, text=text), kind=None)
    names, lines = tables.table(text, source.name, delimiter)
    found = replace(source, columns=names, lines=lines)
    base = Mapping(delimiter=delimiter, encoding=encoding)
    if mapped:
        dimensions.check(found, mapped)
    made = None if mapped else guess(found, base)
    kind = ImportFormat.BUNDLE if bundle.is_bundle(found) else ImportFormat.TABLE
    return _File(
        number=number,
        label=label,
        source=found,
        kind=kind,
        mapping=mapped or (made.mapping if made else None),
        guess=made,
    )


def _contents(files: Sequence[_File], kind: ImportFormat, wish: Wish) -> Contents:
    mine = [file for file in files if file.kind is kind]
    sources = [(file.number, file.source) for file in mine]
    texts = [file.text for file in mine]
    left = tuple(
        f"{file.source.name}: kept as it is, not read as {kind}"
        for file in files
        if file.kind is None and not file.source.name.endswith(".json")
    )
    readers = {
        ImportFormat.BENCHFMT: benchfmt.read,
        ImportFormat.KERNBENCH: kernbench.read,
        ImportFormat.PERF_STAT: perf_stat.read,
        ImportFormat.HYPERFINE: hyperfine.read,
    }
    if kind in readers:
        labels = {file.number: file.label for file in mine}
        found = readers[kind](sources, texts, labels)
    elif kind is ImportFormat.LKP:
        found = lkp.read(sources, _given(wish.mappings))
    else:
        found = _tables(files)
    return merged((found, Contents(notes=left)))


def _given(mapped: Sequence[Mapping]) -> Dict[str, Metric]:
    return {
        name: Metric(name=name, unit=keys.unit or name, better=keys.better, assume=keys.assume)
        for one in mapped
        for name, keys in one.metrics.items()
        if keys.better
    }


def _tables(files: Sequence[_File]) -> Contents:
    """Bundles and tables, each set of files by itself; several sets are kept apart by name."""
    readable, notes = _readable(files)
    homes = _homes(readable)
    by_set: dict[str, list[_File]] = {}
    for file in files:
        home = homes.get(file.number, sets.set_of(file.source.name))
        by_set.setdefault(home, []).append(file)
    names = {file.number: file for file in readable}
    found = {
        home: _one_set(members, [names[file.number] for file in members if file.number in names])
        for home, members in by_set.items()
    }
    return merged((*sets.labelled(found), Contents(notes=notes)))


def _readable(files: Sequence[_File]) -> tuple[list[_File], tuple[str, ...]]:
    """The tables that are read, and a sentence on each that is not.  Raises UndescribedError."""
    made = [file for file in files if file.mapping]
    beside_raw = {
        sets.set_of(file.source.name) for file in made if file.kind is ImportFormat.BUNDLE
    }
    made = [
        file
        for file in made
        # Beside a raw.csv, summaries say again what it says.
        if file.kind is ImportFormat.BUNDLE or sets.set_of(file.source.name) not in beside_raw
    ]
    by_file = _arms_by_file(made)
    read, notes = [], []
    for file in made:
        why = _left_out(file, by_file=by_file, alone=len(made) == 1)
        if why:
            notes.append(f"{file.source.name}: kept as it is, {why}")
        if not why:
            read.append(file)
        elif file.guess and not file.guess.armless and file.mapping:
            read.append(replace(file, mapping=audit_only(file.mapping)))
    return read, tuple(notes)


def _arms_by_file(made: Sequence[_File]) -> bool:
    """True when every table is one arm: none has a column of arms, and all have one head line."""
    armless = [file for file in made if (file.guess and file.guess.armless) or _user_armless(file)]
    heads = {frozenset(file.source.columns) for file in made}
    return len(made) > 1 and len(armless) == len(made) and len(heads) == 1


def _user_armless(file: _File) -> bool:
    mapping = file.mapping
    return file.guess is None and mapping is not None and not (mapping.columns.arm or mapping.arms)


def _left_out(file: _File, *, by_file: bool, alone: bool) -> str:
    """Why a table is not read; "" for one that is.  Raises UndescribedError."""
    made = file.guess
    if made is None:
        return ""
    if made.profile:
        return "it is a profile of functions and no time"
    if not made.measured and not (made.mapping.columns.state or made.mapping.read_back):
        return "no column names a measured time"
    if not made.measured and made.armless:
        return "no column names an arm"
    if made.measured and made.armless and not by_file:
        if not alone:
            return "no column names an arm"
        base = Mapping(delimiter=made.mapping.delimiter, encoding=made.mapping.encoding)
        made = guess(file.source, base, arms_wanted=True)
        made = replace(made, doubts=made.doubts or ("no column says what is compared",))
    if made.measured and not made.united and not alone and not by_file:
        return "its figures have no unit"
    if made.measured and made.doubts:
        more = f" (and {len(made.doubts) - 1} more)" if len(made.doubts) > 1 else ""
        raise UndescribedError(
            f"its columns may mean more than one thing: {printable(made.doubts[0], 200)}{more}",
            place=file.source.name,
            proposal=proposal.text(file.source, made),
        )
    return ""


def _homes(readable: Sequence[_File]) -> dict[int, str]:
    """The set of each table that is read."""
    heads: dict[frozenset[str], list[_File]] = {}
    for file in readable:
        heads.setdefault(frozenset(file.source.columns), []).append(file)
    found: dict[int, str] = {}
    for members in heads.values():
        numbers = {file.source.name: file.number for file in members}
        arms = {file.source.name: _arms_of(file) for file in members}
        for name, home in sets.apart(list(numbers), arms).items():
            found[numbers[name]] = home
    return found


def _arms_of(file: _File) -> frozenset[str]:
    mapping = file.mapping
    if mapping and mapping.columns.arm in file.source.columns:
        at = file.source.columns.index(str(mapping.columns.arm))
        return frozenset(line.cells[at] for line in file.source.lines)
    if mapping and mapping.arms:
        return frozenset(mapping.arms)
    return frozenset([file.label])


def _one_set(members: Sequence[_File], readable: Sequence[_File]) -> Contents:
    parts = []
    raws = [file for file in readable if file.kind is ImportFormat.BUNDLE]
    if raws:
        sources = [(file.number, file.source) for file in members]
        triples = [(file.number, file.source, file.mapping) for file in raws if file.mapping]
        parts.append(bundle.read(sources, triples))
    parts += [
        tidy.read(file.number, file.source, file.mapping, file.label)
        for file in readable
        if file.mapping and file.kind is not ImportFormat.BUNDLE
    ]
    parts += [Contents(how=tuple(_how(readable)))]
    for file in members:
        if file.text and file.source.name.endswith(".json"):
            parts.append(Contents(arms=tuple(_read_backs(file.source))))
    return sets.each_once(merged(tuple(parts)))


def _how(readable: Sequence[_File]) -> Iterator[str]:
    for file in readable:
        if file.guess:
            yield f"{file.source.name}: {proposal.sentence(file.guess)}"


def _read_backs(source: SourceFile) -> Iterator[ArmFacts]:
    """What a JSON file says was read back from the guests' logs."""
    found = tables.json_object(source.text, source.name)
    checks = found.get("runs")
    for check in checks.values() if isinstance(checks, dict) else ():
        if isinstance(check, dict) and isinstance(check.get("expected_guest_cpus"), int):
            cpus = str(check["expected_guest_cpus"])
            yield ArmFacts(
                arm="",
                group=(("cpu", cpus),),
                facts=tuple(_checked(check, cpus)),
                details=tuple(_logs(check)),
            )
    if "all_cpu_match" in found:
        seen = "as requested" if found["all_cpu_match"] is True else "not as requested"
        smp = "no" if found.get("any_noapic") is True else "yes"
        yield ArmFacts(arm="", group=(), facts=(("seen_cpus", seen), ("smp", smp)))


def _checked(check: Dict[str, Any], cpus: str) -> Iterator[tuple[str, str]]:
    counts = [check.get(name) for name in ("cpu_mismatches", "missing_serial_logs")]
    yield "seen_cpus", cpus if counts == [0, 0] else "not as requested"
    if isinstance(check.get("noapic_logs"), int):
        yield "smp", "no" if check["noapic_logs"] else "yes"


def _logs(check: Dict[str, Any]) -> Iterator[tuple[str, str]]:
    logs = check.get("checked_serial_logs")
    if isinstance(logs, int) and not isinstance(logs, bool):
        yield "runs_checked", str(logs)
