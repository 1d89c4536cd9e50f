# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the study is that a command line names."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from kdelta import data, toolchains, workload
from kdelta.cli.progress import reporting
from kdelta.errors import SpecError
from kdelta.kernels import alike, reference
from kdelta.printable import meant
from kdelta.source import tree_reference
from kdelta.study import spec
from kdelta.study.spec import Study


def study_file(name: str) -> Path:
    """The file itself, else the study of that name that kdelta ships.  Raises SpecError."""
    path = Path(name)
    if path.exists() or "/" in name:
        return path
    shipped = data.directory("studies") / f"{name.removesuffix('.toml')}.toml"
    if shipped.is_file():
        return shipped
    known = sorted(file.stem for file in shipped.parent.glob("*.toml"))
    action = f"{meant(name, known)}give a TOML file, or one of: {', '.join(known)}"
    raise SpecError("no such study", place=name, action=action)


def loaded(name: str) -> Study:
    """The study of a file or name; a C file that it names lies beside it.  Raises SpecError."""
    path = study_file(name)
    study = spec.load(path)
    there = [workload.absolute(word, path.absolute().parent) for word in study.scenarios]
    return study if there == list(study.scenarios) else spec.with_settings(study, scenarios=there)


def expanded(study: Study) -> Study:
    """The study with every range of kernels and every pattern of scenarios written out.

    Raises SpecError for one that stands for nothing.
    """
    machine = study.machine
    names = kernels(study.kernels, machine.arch, machine.flavour)
    found = scenarios(study.scenarios)
    if (names, found) == (list(study.kernels), list(study.scenarios)):
        return study
    return spec.with_settings(study, kernels=names, scenarios=found)


def kernels(references: Sequence[str], arch: str, flavour: str) -> list[str]:
    """The references with 6.12..7.2 as every series of the archive between the two."""
    if not any(map(spec.is_range, references)):
        return list(references)
    with reporting() as progress:
        offered = reference.listing(arch, flavour, progress=progress)
    return list(alike.expanded(references, offered))


def scenarios(named: Sequence[str]) -> list[str]:
    """The scenarios with mprotect:* as every one that fits."""
    found: dict[str, None] = {}
    for name in named:
        fitting = [name]
        if spec.is_pattern(name):
            place, _, _ = name.rpartition(":")
            loads = [place] if workload.is_file(place) else workload.names()
            every = (one for load in loads for one in workload.load(load).scenarios)
            fitting = [one.reference for one in every if fnmatchcase(one.reference, name)]
        if not fitting:
            raise SpecError(f"no scenario fits {name}", action=spec.LIST_SCENARIOS)
        found.update(dict.fromkeys(fitting))
    return list(found)


def built_by(study: Study, compilers: Sequence[str]) -> Study:
    """The study with each of its trees built by each of the compilers.

    Of one source the difference is what the compiler alone does.  Raises SpecError for a kernel
    that is not built here, or that names its compiler itself.
    """
    for name in compilers:
        toolchains.parse(name)
    for kernel in study.kernels:
        if not kernel.startswith(tree_reference.PREFIX) or "+cc=" in kernel:
            raise SpecError(
                f"{kernel} is not a source that --compilers could build",
                place="--compilers",
                action="name kernels as tree:PATH or tree:deb:6.17.8, without +cc=",
            )
    named = [f"{kernel}+cc={name}" for kernel in study.kernels for name in compilers]
    return spec.with_settings(study, kernels=named)
