# SPDX-License-Identifier: GPL-2.0-or-later
"""From paths to contents: which files there are, what each is, and which belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import replace
from pathlib import Path
from typing import Any

from kdelta.errors import SpecError
from kdelta.foreign import (
    benchfmt,
    bundle,
    hyperfine,
    json_text,
    kernbench,
    lkp,
    perf_stat,
    proposal,
    repeats,
    sets,
    tables,
    tidy,
)
from kdelta.foreign.arms import is_version
from kdelta.foreign.guess import guess
from kdelta.foreign.loading import (
    LoadedFile,
    Wish,
    beside,
    loaded,
    numbered,
    of_arms,
    recorded,
)
from kdelta.foreign.mapping import Mapping, audit_only
from kdelta.foreign.paths import found_in, labels_of
from kdelta.foreign.record import ArmFacts, Contents, ImportFormat, Line, SourceFile, merged
from kdelta.foreign.records import is_lines
from kdelta.metric import Metric
from kdelta.printable import printable

MAX_TOTAL = 256 * 2**20
_KEPT = "kept as it is"


class UndescribedError(SpecError):
    """A table whose columns could mean more than one thing.  proposal: the text of a mapping."""

    def __init__(self, cause: str, *, place: str, proposal: str) -> None:
        super().__init__(cause, place=place, action="describe it with --mapping FILE")
        self.proposal = proposal


def read(
    paths: Sequence[Path], wish: Wish | None = None
) -> tuple[tuple[SourceFile, ...], Contents, ImportFormat]:
    """Sources, contents and the format of what `paths` hold.

    Raises SpecError: nothing to read, a file that is not what it says, two formats at once; and
    UndescribedError for a table that may mean more than one thing.
    """
    wanted = wish or Wish()
    found = found_in(paths)
    labels = labels_of([name for _, name in found])
    files = [
        loaded(number, path, name, labels[number], wanted)
        for number, (path, name) in enumerate(found)
    ]
    if sum(file.source.size for file in files) > MAX_TOTAL:
        raise SpecError(
            f"more than {MAX_TOTAL // 2**20} MiB", place=str(paths[0]), action="import a part of it"
        )
    sources = tuple(file.source for file in files)
    if wanted.kind is None and not any(file.kind for file in files):
        files = recorded(files, wanted)
    if wanted.kind in (None, ImportFormat.TABLE):
        files = of_arms(numbered(beside(files, wanted), wanted))
    _check_mappings(wanted, [*(source.name for source in sources), *(f.source.name for f in files)])
    chosen = wanted.kind or _kind(paths, files)
    contents = _contents(files, chosen, wanted)
    if not (contents.readings or contents.published or contents.audited):
        raise _unknown(paths, files)
    if not contents.order and len(paths) > 1 and all(path.is_file() for path in paths):
        given = tuple(dict.fromkeys(file.label for file in files))
        known = {item.arm for item in contents.readings} | {one.arm for one in contents.published}
        if known == set(given) and not all(map(is_version, given)):
            contents = replace(contents, order=given)
    for (path, name), source in zip(found, sources, strict=True):
        if not path.is_file() or path.stat().st_size != source.size:
            raise tables.changed(name)
    return sources, merged((contents, Contents(notes=repeats.files(sources)))), chosen


def _check_mappings(wish: Wish, names: Sequence[str]) -> None:
    """Raise SpecError for a mapping that is for none of the files."""
    used = {id(wish.mapping_of(name)) for name in names}
    for mapping in wish.mappings:
        if id(mapping) not in used and wish.kind is not ImportFormat.LKP:
            listed = ", ".join(printable(name, 60) for name in dict.fromkeys(names[:5]))
            wanted = f"files = {', '.join(mapping.files)}" if mapping.files else "every table"
            raise SpecError(
                f"a mapping is for {printable(wanted, 200)}, and no file is left for it",
                place="--mapping",
                action=f"the files are {listed}",
            )


def _kind(paths: Sequence[Path], files: Sequence[LoadedFile]) -> ImportFormat:
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


def _unknown(paths: Sequence[Path], files: Sequence[LoadedFile]) -> SpecError:
    for file in files:
        if file.unread:
            return SpecError(file.unread.cause, place=file.source.name, action=file.unread.action)
    if unlike := _unlike_heads(files):
        return unlike
    for file in files:
        if file.guess and file.source.lines and not file.guess.profile:
            known = file.guess.mapping
            base = Mapping(delimiter=known.delimiter, encoding=known.encoding)
            made = guess(file.source, base, arms_wanted=True, all_asked=True, better=file.better)
            if made.measured:
                return UndescribedError(
                    "nothing in it is known to be a measured time: "
                    + printable("; ".join(made.doubts) or "which unit is it in?", 200),
                    place=file.source.name,
                    proposal=proposal.text(file.source, made),
                )
    names = ", ".join(printable(file.source.name, 60) + _why_nothing(file) for file in files[:5])
    none = "no plain file (links and pipes in a folder are not followed)"
    return SpecError(
        f"nothing in it can be judged: {names or none}",
        place=str(paths[0]),
        action="put what was measured into a table, a line for each run (kernel,boot,ns), or say"
        " what it is with --format or --mapping (docs/foreign.md)",
    )


def _why_nothing(file: LoadedFile) -> str:
    """What keeps a file from being read, where that is plain; else ""."""
    if file.source.columns and not file.source.lines:
        return ": a head line, and no row below it"
    if file.source.name.lower().endswith((".yaml", ".yml")) and file.kind is None:
        return ": YAML that is read has no anchors, no blocks of text, and is at most 20 deep"
    return ""


def _unlike_heads(files: Sequence[LoadedFile]) -> SpecError | None:
    """Files that may be arms, and call what they measured otherwise: latency_ms, latency_us."""
    found = [file for file in files if file.guess and file.guess.measured and file.guess.armless]
    heads = {file.source.columns: file for file in found}
    if len(heads) < 2 or len({len(head) for head in heads}) > 1:
        return None
    (one, first), (other, second) = list(heads.items())[:2]
    pairs = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
    listed = " where it is ".join(printable(name, 60) for name in reversed(pairs[0]))
    return SpecError(
        f"a column is called {listed} in {printable(first.source.name, 60)}",
        place=second.source.name,
        action="call it alike in all files, in one unit, if each file is an arm",
    )


def _contents(files: Sequence[LoadedFile], kind: ImportFormat, wish: Wish) -> Contents:
    mine = [file for file in files if file.kind is kind]
    sources = [(file.number, file.source) for file in mine]
    texts = [file.text for file in mine]
    left = tuple(
        f"{file.source.name}: {file.unread.kept if file.unread else _KEPT}, "
        + (file.unread.cause if file.unread else f"not read as {kind}")
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


def _tables(files: Sequence[LoadedFile]) -> Contents:
    """Bundles and tables, each set of files by itself; several sets are kept apart by name."""
    readable, notes = _readable(files)
    homes = _homes(readable)
    by_set: dict[str, list[LoadedFile]] = {}
    for file in files:
        home = homes.get(file.number, sets.set_of(file.source.name))
        by_set.setdefault(home, []).append(file)
    names = {file.number: file for file in readable}
    found = {
        home: _one_set(members, [names[file.number] for file in members if file.number in names])
        for home, members in by_set.items()
    }
    whole = merged((*sets.labelled(found), Contents(notes=notes)))
    return merged((whole, Contents(notes=repeats.notes(whole, readable))))


def _readable(files: Sequence[LoadedFile]) -> tuple[list[LoadedFile], tuple[str, ...]]:
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
        alike = [each for each in made if each.source.columns == file.source.columns]
        names = [each.source.name.rpartition("/")[2] for each in alike]
        why = _left_out(file, names, by_file=by_file, alone=len(made) == 1)
        if why:
            notes.append(f"{file.source.name}: kept as it is, {why}")
        if not why:
            read.append(file)
        elif file.guess and not file.guess.armless and file.mapping:
            read.append(replace(file, mapping=audit_only(file.mapping)))
    return read, tuple(notes)


def _arms_by_file(made: Sequence[LoadedFile]) -> bool:
    """True when every table is one arm: none has a column of arms, and all have one head line."""
    armless = [file for file in made if (file.guess and file.guess.armless) or _user_armless(file)]
    heads = {frozenset(file.source.columns) for file in made}
    return len(made) > 1 and len(armless) == len(made) and len(heads) == 1


def _user_armless(file: LoadedFile) -> bool:
    mapping = file.mapping
    return file.guess is None and mapping is not None and not (mapping.columns.arm or mapping.arms)


def _left_out(file: LoadedFile, names: Sequence[str], *, by_file: bool, alone: bool) -> str:
    """Why a table is not read; "" for one that is.  Raises UndescribedError.

    names: of the files that a proposal is for, which have one head line.
    """
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
        made = guess(file.source, base, arms_wanted=True, better=file.better)
        made = replace(made, doubts=made.doubts or ("no column says what is compared",))
    if alone and made.measured and not made.doubts and _one_arm(file):
        base = Mapping(delimiter=made.mapping.delimiter, encoding=made.mapping.encoding)
        other = guess(_without_arm(file), base, arms_wanted=True, better=file.better)
        made = other if other.doubts and not other.armless else made
    if made.measured and not made.united and not alone and not by_file:
        return "its figures have no unit"
    if made.measured and made.doubts:
        _proposable(file, made.mapping)
        more = f" (and {len(made.doubts) - 1} more)" if len(made.doubts) > 1 else ""
        raise UndescribedError(
            f"its columns may mean more than one thing: {printable(made.doubts[0], 200)}{more}",
            place=file.source.name,
            proposal=proposal.text(file.source, made, names),
        )
    return ""


def _proposable(file: LoadedFile, mapping: Mapping) -> None:
    """Raise SpecError for a file that no mapping reads, since the cells of its figures are text."""
    columns = [column for _, column in mapping.named() if column in file.source.columns]
    if file.stack or not columns:
        return
    try:
        tidy.read(file.number, file.source, mapping, file.label)
    except SpecError as error:
        if not error.cause.endswith("is not a number"):
            return
        action = (
            "correct the cell; if it is no table, put what was measured into one: kernel,boot,ns"
        )
        raise SpecError(error.cause, place=error.place, action=action) from error


def _one_arm(file: LoadedFile) -> bool:
    """True for a table of one kernel whose settings may be what is compared instead."""
    columns = file.mapping.columns if file.mapping else None
    if columns is None or columns.arm not in file.source.columns or not columns.dimensions:
        return False
    at = file.source.columns.index(str(columns.arm))
    return len({line.cells[at] for line in file.source.lines}) == 1


def _without_arm(file: LoadedFile) -> SourceFile:
    source = file.source
    gone = file.mapping.columns.arm if file.mapping else None
    kept = [at for at, name in enumerate(source.columns) if name != gone]
    lines = tuple(
        Line(number=line.number, cells=tuple(line.cells[at] for at in kept))
        for line in source.lines
    )
    return replace(source, columns=tuple(source.columns[at] for at in kept), lines=lines)


def _homes(readable: Sequence[LoadedFile]) -> dict[int, str]:
    """The set of each table that is read."""
    heads: dict[frozenset[str], list[LoadedFile]] = {}
    for file in readable:
        heads.setdefault(frozenset(file.source.columns), []).append(file)
    found: dict[int, str] = {}
    for members in heads.values():
        numbers = {file.source.name: file.number for file in members}
        arms = {file.source.name: _arms_of(file) for file in members}
        for name, home in sets.apart(list(numbers), arms).items():
            found[numbers[name]] = home
    return found


def _arms_of(file: LoadedFile) -> frozenset[str]:
    mapping = file.mapping
    if mapping and mapping.columns.arm in file.source.columns:
        at = file.source.columns.index(str(mapping.columns.arm))
        return frozenset(line.cells[at] for line in file.source.lines)
    if mapping and mapping.arms:
        return frozenset(mapping.arms)
    return frozenset([file.label])


def _one_set(members: Sequence[LoadedFile], readable: Sequence[LoadedFile]) -> Contents:
    parts = []
    raws = [file for file in readable if file.kind is ImportFormat.BUNDLE]
    if raws:
        sources = [(file.number, file.source) for file in members]
        triples = [(file.number, file.source, file.mapping) for file in raws if file.mapping]
        parts.append(bundle.read(sources, triples))
    parts += [
        _tidied(file, file.mapping)
        for file in readable
        if file.mapping and file.kind is not ImportFormat.BUNDLE
    ]
    parts += [Contents(notes=file.notes) for file in readable]
    parts += [Contents(how=tuple(_how(readable)))]
    for file in members:
        if file.text and file.source.name.endswith(".json") and not is_lines(file.text):
            parts.append(Contents(arms=tuple(_read_backs(file.source))))
    found = sets.each_once(merged(tuple(parts)))
    return next((file.stack.placed(found) for file in readable if file.stack), found)


def _tidied(file: LoadedFile, mapping: Mapping) -> Contents:
    if file.stack is None:
        return tidy.read(file.number, file.source, mapping, file.label)
    try:
        return tidy.read(file.number, file.source, mapping, file.label)
    except SpecError as error:
        file.stack.blamed(error)


def _how(readable: Sequence[LoadedFile]) -> Iterator[str]:
    for file in readable:
        if file.guess:
            yield f"{file.source.name}: {proposal.sentence(file.guess)}"


def _read_backs(source: SourceFile) -> Iterator[ArmFacts]:
    """What a JSON file says was read back from the guests' logs."""
    found = json_text.loaded(source.text, source.name)
    if not isinstance(found, dict):
        return
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
