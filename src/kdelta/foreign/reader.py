# SPDX-License-Identifier: GPL-2.0-or-later
"""From paths to contents: which files there are, what each is, and which belong together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from kdelta.errors import SpecError
from kdelta.foreign import benchfmt, bundle, kernbench, lkp, mapping, points, tables
from kdelta.foreign.record import ArmFacts, Contents, ImportFormat, Pairs, SourceFile, merged
from kdelta.metric import Metric

MAX_FILES = 1000
MAX_TOTAL = 256 * 2**20
_MAX_DEPTH = 8
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_MAIN = "main"
SET = "set"


@dataclass(frozen=True, slots=True)
class _File:
    """A loaded file; text is None for a table."""

    source: SourceFile
    kind: ImportFormat | None
    text: str | None = None


def read(
    paths: Sequence[Path], kind: ImportFormat | None, mapped: mapping.Mapping | None
) -> tuple[tuple[SourceFile, ...], Contents, ImportFormat]:
    """Sources, contents and the format of what `paths` hold; None: the format is found out.

    Raises SpecError: nothing to read, a file that is not what it says, two formats at once.
    """
    if kind is ImportFormat.CSV and mapped is None:
        raise SpecError(
            "a CSV of any kind needs a mapping", place="--format csv", action="give --mapping FILE"
        )
    files = [_loaded(path, name, kind, mapped) for path, name in _found(paths)]
    if sum(file.source.size for file in files) > MAX_TOTAL:
        raise SpecError(f"more than {MAX_TOTAL // 2**20} MiB", place=str(paths[0]))
    kinds = {file.kind for file in files if file.kind}
    # Tables beside a raw.csv are read as far as they have something to say.
    chosen = kind or next(
        (one for one in (ImportFormat.BUNDLE, *ImportFormat) if one in kinds), None
    )
    if chosen is None:
        raise _unknown(paths, files)
    others = kinds - {chosen, ImportFormat.POINTS, ImportFormat.BUNDLE}
    if others:
        names = ", ".join(sorted({chosen, *others}))
        raise SpecError(
            f"there are several formats: {names}",
            place=str(paths[0]),
            action="import them one by one, with --format",
        )
    contents = _contents(files, chosen, mapped)
    if not (contents.readings or contents.published or contents.audited):
        raise _unknown(paths, files)
    return tuple(file.source for file in files), contents, chosen


def _unknown(paths: Sequence[Path], files: Sequence[_File]) -> SpecError:
    names = ", ".join(file.source.name for file in files[:5]) or "no file"
    return SpecError(
        f"nothing in it can be judged: {names}",
        place=str(paths[0]),
        action="say what it is with --format or --mapping (docs/foreign.md)",
    )


def _found(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """(file, name to call it) of all files, in the order of the names within each path."""
    found: list[tuple[Path, str]] = []
    for path in paths:
        label = path.name or path.resolve().name
        if path.is_dir():
            inside = sorted(_walk(path, 0))
            found += [(file, f"{label}/{file.relative_to(path).as_posix()}") for file in inside]
        else:
            found.append((path, label))
        if len(found) > MAX_FILES:
            raise SpecError(f"more than {MAX_FILES} files", place=str(path))
    return found


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Plain files below a folder; links are not followed."""
    if depth > _MAX_DEPTH:
        raise SpecError(f"more than {_MAX_DEPTH} folders deep", place=str(folder))
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise SpecError(f"it cannot be read: {error.strerror}", place=str(folder)) from error
    for entry in entries[: MAX_FILES + 1]:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), depth + 1)
        elif entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
            yield Path(entry.path)


def _loaded(
    path: Path, name: str, kind: ImportFormat | None, mapped: mapping.Mapping | None
) -> _File:
    data, source = tables.load(path, name)
    suffix = path.suffix.lower()
    if kind is ImportFormat.CSV or (mapped is not None and kind is None):
        delimiter = mapped.delimiter if mapped else ","
        return _File(_tabled(source, data, delimiter), ImportFormat.CSV)
    tabular = suffix in _DELIMITERS or (
        kind in (ImportFormat.POINTS, ImportFormat.BUNDLE) and suffix != ".json"
    )
    if kind not in (ImportFormat.BENCHFMT, ImportFormat.KERNBENCH) and tabular:
        head = data.partition(b"\n")[0]
        found = _tabled(source, data, _DELIMITERS.get(suffix, "\t" if b"\t" in head else ","))
        return _File(found, ImportFormat.BUNDLE if bundle.is_bundle(found) else ImportFormat.POINTS)
    text = tables.decoded(data, name)
    if kind in (ImportFormat.BENCHFMT, ImportFormat.KERNBENCH):
        return _File(_lined(source, text), kind, text)
    if suffix == ".json":
        tables.json_object(text, name)
        found = replace(source, text=text)
        return _File(
            found,
            ImportFormat.LKP if path.name == lkp.FILE or kind is ImportFormat.LKP else None,
            text,
        )
    looks = (
        (ImportFormat.KERNBENCH, kernbench.looks_like),
        (ImportFormat.BENCHFMT, benchfmt.looks_like),
    )
    guess = next((one for one, like in looks if like(text)), None)
    return _File(_lined(source, text), guess, text)


def _tabled(source: SourceFile, data: bytes, delimiter: str) -> SourceFile:
    names, lines = tables.table(data, source.name, delimiter)
    return replace(source, columns=names, lines=lines)


def _lined(source: SourceFile, text: str) -> SourceFile:
    return replace(source, text=text)


def _contents(
    files: Sequence[_File], kind: ImportFormat, mapped: mapping.Mapping | None
) -> Contents:
    numbered = list(enumerate(files))
    mine = [(number, file.source) for number, file in numbered if file.kind is kind]
    texts = [file.text or "" for file in files if file.kind is kind]
    left = tuple(
        f"{file.source.name}: kept as it is, not read as {kind}"
        for file in files
        if file.kind is None and not file.source.name.endswith(".json")
    )
    if kind is ImportFormat.CSV and mapped is not None:
        found = mapping.read(mine, mapped)
    elif kind is ImportFormat.BENCHFMT:
        found = benchfmt.read(mine, texts)
    elif kind is ImportFormat.KERNBENCH:
        found = kernbench.read(mine, texts)
    elif kind is ImportFormat.LKP:
        found = lkp.read(mine, _given(mapped))
    else:
        found = _folders([(number, file.source) for number, file in numbered])
    return merged((found, Contents(notes=left)))


def _given(mapped: mapping.Mapping | None) -> Mapping[str, Metric]:
    return {
        name: Metric(name=name, unit=keys.unit or name, better=keys.better, assume=keys.assume)
        for name, keys in (mapped.metrics.items() if mapped else ())
        if keys.better
    }


def _folders(sources: Sequence[tuple[int, SourceFile]]) -> Contents:
    """Bundles and tables, each set of files by itself; several sets are kept apart by name."""
    sets: dict[str, list[tuple[int, SourceFile]]] = {}
    for number, source in sources:
        sets.setdefault(_set_of(source.name), []).append((number, source))
    found = {name: _one_set(members) for name, members in sets.items()}
    speaking = [
        name for name, part in found.items() if part.readings or part.published or part.audited
    ]
    if len(speaking) < 2:
        return merged(tuple(found.values()))
    return merged(tuple(_labelled(part, name or _MAIN) for name, part in found.items()))


def _set_of(name: str) -> str:
    """Folder, and STEM of a file STEM.KIND.csv: files of one set describe one session."""
    folder, _, base = name.rpartition("/")
    stem = base.rpartition(".")[0].rpartition(".")[0]
    return "/".join(part for part in (folder, stem) if part)


def _one_set(members: Sequence[tuple[int, SourceFile]]) -> Contents:
    raw = any(bundle.is_bundle(source) for _, source in members)
    parts = [bundle.read(members)] if raw else []
    # Beside a raw.csv, summaries say again what it says.
    readable = [] if raw else [(n, source) for n, source in members if source.columns]
    parts.append(points.read(readable))
    for _, source in members:
        if source.text and source.name.endswith(".json"):
            parts.append(Contents(arms=tuple(_read_backs(source))))
    return merged(tuple(parts))


def _labelled(part: Contents, name: str) -> Contents:
    def at(group: Pairs) -> Pairs:
        return ((SET, name), *group)

    return replace(
        part,
        readings=tuple(
            msgspec.structs.replace(item, group=at(item.group)) for item in part.readings
        ),
        published=tuple(replace(item, group=at(item.group)) for item in part.published),
        audited=tuple(replace(item, group=at(item.group)) for item in part.audited),
        arms=tuple(replace(item, group=at(item.group)) for item in part.arms),
        rules=tuple(replace(item, group=at(item.group)) for item in part.rules),
    )


def _read_backs(source: SourceFile) -> Iterator[ArmFacts]:
    """What a JSON file says was read back from the guests' logs."""
    found = tables.json_object(source.text, source.name)
    checks = found.get("runs")
    for check in checks.values() if isinstance(checks, dict) else ():
        if isinstance(check, dict) and isinstance(check.get("expected_guest_cpus"), int):
            cpus = str(check["expected_guest_cpus"])
            yield ArmFacts(arm="", group=(("cpu", cpus),), facts=tuple(_checked(check, cpus)))
    if "all_cpu_match" in found:
        seen = "as requested" if found["all_cpu_match"] is True else "not as requested"
        smp = "no" if found.get("any_noapic") is True else "yes"
        yield ArmFacts(arm="", group=(), facts=(("seen_cpus", seen), ("smp", smp)))


def _checked(check: Mapping[str, Any], cpus: str) -> Iterator[tuple[str, str]]:
    counts = [check.get(name) for name in ("cpu_mismatches", "missing_serial_logs")]
    yield "seen_cpus", cpus if counts == [0, 0] else "not as requested"
    if isinstance(check.get("noapic_logs"), int):
        yield "smp", "no" if check["noapic_logs"] else "yes"
    logs = check.get("checked_serial_logs")
    if isinstance(logs, int) and not isinstance(logs, bool):
        yield "runs_checked", str(logs)
