# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run depended on, for who does not have its machine: sources, patches, configurations."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec import structs

from kdelta import arch, cache, data, guest, workload
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.export import exported, file_name
from kdelta.files import called, digest_of, sha256_of
from kdelta.guests import qemu
from kdelta.journal import files
from kdelta.journal.bundle import Difference
from kdelta.journal.run import RunRecord
from kdelta.printable import quoted
from kdelta.sample import Instrument, KernelIdentity
from kdelta.source import make, tree_reference
from kdelta.study.spec import Study
from kdelta.transplant import releases

FORMAT = 1
BUNDLE = "bundle.json"
_MISSED = re.compile(r"the (?:workload|program|plugin|image|source|changes|configuration) ")
_PATCHES, _CONFIGS, _SOURCES = "kernels/patches", "kernels/configs", "sources"


class BundleNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of bundle.json.  absent: what the run depended on and is not here, and why."""

    format: int
    run_id: str
    kdelta_version: str
    instrument: Instrument
    absent: tuple[str, ...]


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """What of bundle.json tells whether the rest can be read."""

    format: int = FORMAT


def check_format(folder: Path, file: Path) -> None:
    """Raise SpecError for the unpacked bundle of a file that says that a newer kdelta wrote it."""
    head = None
    with contextlib.suppress(StoreError):
        head = files.read(folder / BUNDLE, _Head)
    if head and head.format > FORMAT:
        cause = f"this bundle is of a newer kdelta (format {head.format}, here up to {FORMAT})"
        raise SpecError(cause, place=str(file), action="use the kdelta that made it")


def note(folder: Path) -> BundleNote | None:
    """What an unpacked bundle says of itself; None where that cannot be read."""
    with contextlib.suppress(StoreError):
        return files.read(folder / BUNDLE, BundleNote)
    return None


def _absent(folder: Path) -> tuple[str, ...]:
    return told.absent if (told := note(folder)) else ()


def dependencies(record: RunRecord) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Files by their names in a bundle, and what it lacks.  Raises SpecError for a user's C file
    that is not the one that ran.
    """
    absent: list[str] = []
    wanted = {(trial.workload, trial.scenario) for trial in record.trials}
    own = _loaded(record, {name for name, _ in wanted}, absent)
    found = {
        **dict(_programs(record, own, absent)),
        **dict(_patches(record, absent)),
        **dict(_configs(record, absent)),
    }
    for name, scenario in wanted:
        if load := own.get(name):
            text = exported(load, load.scenario(scenario))
            found[f"reproducers/{load.name}/{file_name(name, scenario)}"] = text.encode()
    told = BundleNote(
        format=FORMAT,
        run_id=record.run_id,
        kdelta_version=record.kdelta_version,
        instrument=record.instrument,
        absent=tuple(sorted(set(absent))),
    )
    found[BUNDLE] = msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"
    return found, told.absent


_Loaded = dict[str, workload.Workload]


def _loaded(record: RunRecord, names: set[str], absent: list[str]) -> _Loaded:
    """The workloads of these names that are here; C files of a user that are proven to have run."""
    found = workload.loadable(names)
    for name in names:
        why = "" if name in found else "this kdelta does not have it"
        if workload.is_file(name):
            why = (
                why
                and "its C file could not be read; pack the run in the folder where it was begun"
            )
            why = why or _unproven(record, name, found[name])
        if why:
            absent.append(f"the workload {name}: {why}")
            found.pop(name, None)
    return found


def _unproven(record: RunRecord, name: str, load: workload.Workload) -> str:
    """Why nothing tells whether a C file is the one that ran, "" for that one.  Raises SpecError
    for another.
    """
    ran = {
        (own.program_sha256, own.initramfs_sha256, record.arms[trial.arm].kernel.arch)
        for trial in record.trials
        if trial.workload == name and trial.result and (own := trial.result.environment)
    }
    if not ran or not all(program for program, _, _ in ran):
        return "the run does not say which program ran"
    for program, initramfs, architecture in ran:
        target, now = arch.of(architecture), ""
        with contextlib.suppress(SpecError):  # of what does not compile
            now = digest_of(guest.program(load.program, target, theirs=True))
        if now == program:
            continue
        if digest_of(guest.initramfs(target)) != initramfs:  # which the same compiler makes
            return "another compiler or kdelta makes another program of it than the one that ran"
        cause = "this is not the file that ran: it makes another program"
        action = "give it back as it was, where the run was begun, or run it again"
        raise SpecError(cause, place=name, action=action)
    return ""


def _programs(record: RunRecord, own: _Loaded, absent: list[str]) -> Iterator[tuple[str, bytes]]:
    for folder in ("guest", "plugin"):
        for path in sorted(data.directory(folder).glob("*.[ch]")):
            yield f"{_SOURCES}/{folder}/{path.name}", path.read_bytes()
    for program in (each.program for each in own.values()):
        if (program.parent / guest.FILES).is_file():
            why = "they have licences of their own; their SHA-256 are in it"
            absent.append(f"the program and the files that {program.name} names: {why}")
        for path in (program, program.with_suffix(".toml")):
            if path.is_file():
                yield f"{_SOURCES}/workloads/{path.name}", path.read_bytes()
    digests = {
        trial.result.environment.plugin_sha256
        for trial in record.trials
        if trial.result and trial.result.environment and trial.result.exact.phases
    }
    if digests - {qemu.plugin_digest()}:
        absent.append("the plugin that counted: what lies in sources/plugin is of another kdelta")


def _patches(record: RunRecord, absent: list[str]) -> Iterator[tuple[str, bytes]]:
    for arm in record.arms:
        if arm.kernel.reference.startswith("file:"):
            absent.append(f"the image of {arm.label}: it is a file of whoever measured")
        fragments: tuple[Path, ...] = ()
        try:
            words = releases.parse(arm.kernel.reference)[1]
            variants = [tree_reference.of_word(w) for w in words if not releases.is_option(w)]
            if arm.kernel.reference.startswith(tree_reference.PREFIX):
                reference = tree_reference.parse(arm.kernel.reference)
                variants, fragments = [*reference.variants], reference.fragments
                if reference.path:
                    absent.append(f"the source of {arm.label}: it is a tree of whoever measured")
            for each in filter(attrgetter("path"), variants):
                with each.opened() as path:
                    yield f"{_PATCHES}/{_safe(each.file)}", path.read_bytes()
        except KdeltaError as error:
            absent.append(f"the changes of {arm.label}: {error.cause}")
            continue
        for path in fragments:
            yield f"{_PATCHES}/{_safe(path.name)}", path.read_bytes()


def _configs(record: RunRecord, absent: list[str]) -> Iterator[tuple[str, bytes]]:
    wanted = {arm.kernel.config_sha256: arm.label for arm in record.arms}
    known = {
        digest_of(path): path
        for kind in ("images", "builds")
        for pattern in ("*/config", "*/.config")
        for path in sorted((cache.root() / kind).glob(pattern))
        if path.is_file()
    }
    for digest, label in wanted.items():
        if path := known.get(digest):
            yield f"{_CONFIGS}/{digest[:16]}", path.read_bytes()
        elif digest:
            absent.append(f"the configuration of {label}: it is no longer in the cache")


def _safe(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._+-" else "_" for char in name).lstrip(".")


def again(record: RunRecord, folder: Path, *, unless: str, trust: bool = False) -> Study:
    """The study of a run on its very kernels, by version, in its order.  folder: the unpacked
    bundle; unless: the command that also builds kernels of its patches and its C files, "" where
    that was given; trust: as the user's own.  Raises SpecError for what only its machine had.
    """
    named = {arm.kernel.reference: _exactly(arm.kernel, folder, unless) for arm in record.arms}
    study = record.study
    gap = tuple(named.get(each, each) for each in study.gap) if study.gap else study.gap
    return structs.replace(
        study,
        scenarios=tuple(_program(each, folder, unless, trust) for each in study.scenarios),
        kernels=tuple(named.get(each, each) for each in study.kernels),
        gap=gap,
        plan=structs.replace(study.plan, seed=record.seed),
    )


def _program(name: str, folder: Path, unless: str, trust: bool) -> str:  # noqa: FBT001
    """A scenario whose C file is the bundle's, kept in the cache, so that its run can resume."""
    place, _, scenario = name.rpartition(":")
    if not workload.is_file(place):
        return name
    theirs = folder / _SOURCES / "workloads" / Path(place).name
    if not theirs.is_file() or b"KD_FILES" in theirs.read_bytes():  # of a program that was taken
        raise _elsewhere(place)
    if unless:
        cause = f"its run executes a C file of whoever measured it, {quoted(place)}"
        action = f"read {theirs.relative_to(folder)} in it, then compile it, too: {unless}"
        raise SpecError(cause, action=action)
    parts = [part for part in (theirs, theirs.with_suffix(".toml")) if part.is_file()]
    if not trust:
        make.check_confinement()
    place = "own" if trust else make.STRANGERS  # which decides how it is compiled

    def copy(kept: Path) -> None:
        (kept / place).mkdir()
        for part in parts:
            shutil.copyfile(part, kept / place / part.name)

    key = cache.digest(place, *(digest_of(part) for part in parts))[:16]
    return f"{called(cache.entry('programs', key, copy) / place / theirs.name)}:{scenario}"


def _exactly(kernel: KernelIdentity, folder: Path, unless: str) -> str:
    reference = kernel.reference
    _, patches = releases.parse(reference)
    if not patches and not reference.startswith(("file:", tree_reference.PREFIX)):
        return f"deb:{kernel.version}" if kernel.version else reference
    if not patches and not reference.startswith(f"{tree_reference.PREFIX}deb:"):
        raise _elsewhere(reference)
    if unless:
        cause = f"{quoted(reference)} is built from source, which runs what its patches say"
        action = f"read kernels/patches in it, and if you trust them: {unless}"
        raise SpecError(cause, action=action)
    base, *words = (f"deb:{kernel.version}", *patches) if patches else reference.split("+")
    return "+".join([base, *(_here(word, folder) for word in words)])


def _here(word: str, folder: Path) -> str:
    """A patch of the bundle in place of a file of the machine that measured."""
    key, equals, value = word.rpartition("=")
    there = folder / _PATCHES / _safe(Path(value).name)
    if there.is_file():
        return f"{key}{equals}{there}"
    if "/" in value:
        raise _elsewhere(value)
    return word


def _elsewhere(what: str) -> SpecError:
    cause = f"{quoted(what)} is a file of the machine that measured, and not in the bundle"
    action = "ask whoever sent it for a run on packages, patches of a release, or C files"
    return SpecError(cause, action=action)


def unlike_sources(record: RunRecord, folder: Path) -> Iterator[Difference]:
    """Sources of a bundle that are not this kdelta's own."""
    absent: list[str] = []
    names = {trial.workload for trial in record.trials}
    outside = {name for name in names if workload.is_file(name)}
    theirs = {f"{_SOURCES}/workloads/{Path(name).stem}" for name in outside}
    own = dict(_programs(record, _loaded(record, names - outside, absent), absent))
    paths = filter(Path.is_file, sorted(folder.glob(f"{_SOURCES}/*/*")))
    there = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    for name in sorted({*own, *there}):
        if own.get(name) != there.get(name) and name.rpartition(".")[0] not in theirs:
            what = "is not what this kdelta has" if name in there else "is missing"
            yield Difference(file=name, what=what)
    for sentence in sorted({*absent} - {*_absent(folder)}):
        yield Difference(file=BUNDLE, what=f"does not say that this is absent: {sentence}")


def without_source(record: RunRecord, folder: Path) -> frozenset[str]:
    """The workloads that an unpacked bundle lacks, as it says itself."""
    return frozenset(
        name
        for name in {trial.workload for trial in record.trials}
        if any(one.startswith(f"the workload {name}: ") for one in _absent(folder))
        and not (folder / _SOURCES / "workloads" / f"{Path(name).stem}.c").is_file()
    )


def unlike_run(record: RunRecord, folder: Path) -> Iterator[Difference]:
    """Files of a bundle that are of no trial and no kernel of the run; lost configurations."""
    for sentence in (one for one in _absent(folder) if not _MISSED.match(one)):
        what = f"says that this is absent, which no bundle has: {quoted(sentence, 80)}"
        yield Difference(file=BUNDLE, what=what)
    own, said = {f"trials/{trial.index:04d}" for trial in record.trials}, " ".join(_absent(folder))
    known = {trial.workload for trial in record.trials} - without_source(record, folder)
    programs = {(each.workload, each.scenario) for each in record.trials if each.workload in known}
    own |= {f"{Path(name[0]).stem}/{Path(file_name(*name)).stem}" for name in programs}
    for digest, label in {arm.kernel.config_sha256: arm.label for arm in record.arms}.items():
        name = f"{_CONFIGS}/{digest[:16]}"
        own.add(f"configs/{digest[:16]}")
        there = (folder / name).is_file()
        if digest and not there and f"the configuration of {label}: " not in said:
            yield Difference(file=name, what="is missing")
        elif there and sha256_of(folder / name) != digest:
            yield Difference(file=name, what=f"is not the configuration of {label}")
    built = [_safe(arm.kernel.reference) for arm in record.arms if "+" in arm.kernel.reference]
    trials = {path.parent for path in folder.glob("run/trials/*/*")}
    for path in sorted({*trials, *folder.glob("kernels/*/*"), *folder.glob("reproducers/*/*")}):
        is_patch = path.parent.name == "patches" and any(path.stem in one for one in built)
        if not is_patch and f"{path.parent.name}/{path.stem}" not in own:
            name = path.relative_to(folder).as_posix()
            yield Difference(file=name, what="is of no trial and no kernel of the run")
