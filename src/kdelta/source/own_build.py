# SPDX-License-Identifier: GPL-2.0-or-later
"""A user's own build of a kernel: an O= folder, or a source that was built in place.

It is only read.  Compilers and make see it under an overlay (make.Overlay), at its own paths and
with the times of its files: kbuild makes what a patch touches, as the user's next make would.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from kdelta import cache, process
from kdelta.archive.apt import Progress
from kdelta.errors import InfraError, SpecError
from kdelta.files import content, path_of
from kdelta.source import build, git, make
from kdelta.source import tree as trees
from kdelta.source.tree import SourceTree
from kdelta.toolchains import Family, Toolchain

_IMAGE = "arch/x86/boot/bzImage"
_RELEASE = "include/config/kernel.release"
_COMPILE_H = "include/generated/compile.h"
_FIRST = "init/main.o"  # every kernel has it
_WHOLE = (".config", "Makefile", "init/.main.o.cmd", _COMPILE_H, _RELEASE, _IMAGE)
_COMPILER = re.compile(r'^#define LINUX_COMPILER\s+"(.+?)(?:, (?:GNU ld|LLD)[^"]*)?"', re.MULTILINE)
_INCLUDED = re.compile(r"^include (/.+)/Makefile$", re.MULTILINE)
_IN_OPTIONS = re.compile(r"[\s:,\\\"']")  # of mount and of make
_QUICK_S = 60.0
_MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBuild:
    """compiler: the one that made it.  cc: how make was given it, "ccache gcc-14"."""

    folder: Path
    source: Path
    image: Path
    config: Path
    compiler: Toolchain
    cc: str


def read(path: Path) -> OwnBuild:
    """The build in a folder.  Raises SpecError for what is none, or one that is not whole."""
    try:
        folder = Path(os.path.realpath(path_of(path), strict=True))
        _, makefile, _, compile_h, *_ = (content(folder / name, _MOST_BYTES) for name in _WHOLE)
    except OSError as error:
        cause = f"this is no whole build of a kernel: {error.filename}: {error.strerror}"
        action = "name an O= folder, or a source built in place, where make bzImage has ended"
        raise SpecError(cause, place=str(path), action=action) from error
    included = _INCLUDED.search(makefile.decode(errors="replace"))
    source = Path(os.path.realpath(included[1])) if included else folder
    inside = source != folder and source.is_relative_to(folder)
    odd = [each for each in (folder, source) if _IN_OPTIONS.search(str(each)) or inside]
    if odd or not (source / "Kbuild").is_file():
        why = f"{odd[0]} cannot be overlaid" if odd else f"its source is not at {source}"
        action = "build it where its source is, in folders of plain names beside each other"
        raise SpecError(why, place=str(path), action=action)
    command = build.saved_command(folder, _FIRST).partition(" -")[0]
    told = _COMPILER.search(compile_h.decode(errors="replace"))
    return OwnBuild(
        folder=folder,
        source=source,
        image=folder / _IMAGE,
        config=folder / ".config",
        compiler=_compiler(folder, told[1] if told else "", command),
        cc=command,
    )


def _compiler(folder: Path, made_by: str, command: str) -> Toolchain:
    """The compiler of the build, when this machine's of that name is the same."""
    words = shlex.split(command)
    program = process.which(words[-1]) if words else None
    have = ""
    if program:
        done = process.run([*words, "--version"], timeout=_QUICK_S, check=False, quick=True)
        have = done.stdout.partition("\n")[0]
    if program is None or have != made_by or "gcc" not in have:
        cause = (
            f"it was made by {made_by or 'an unknown compiler'}, and {command} is {have or 'none'}"
        )
        action = "build it by a gcc that is here, or leave out --build"
        raise SpecError(cause, place=str(folder), action=action)
    name = Path(words[-1]).name
    return Toolchain(name=name, family=Family.GCC, cc=program, tools=None, banner=have)


def check_source(own: OwnBuild, base: SourceTree) -> None:
    """Raise SpecError unless the source of a build has the base's files; others may lie there."""
    found = trees.of_folder(own.source)
    differing = [str(own.source)] if found.tree != base.tree else []
    if not (base.objects and found.objects) or base.objects == found.objects:
        differing = [name for name, how in trees.changes(base, found).items() if how != "A"]
    if differing:
        cause = f"the source of the build is not the base {base.title}: {differing[0]} differs"
        action = f"name what it was made of, --base {own.source}, and make it there"
        raise SpecError(cause, place=str(own.folder), action=action)


@contextlib.contextmanager
def opened(own: OwnBuild, *, confined: bool = False) -> Iterator[make.Make]:
    """The build as a place to compile and make in; all that is made there is gone afterwards.

    Raises InfraError where an overlay cannot be mounted.
    """
    places = [own.source, own.folder][: 1 if own.folder.is_relative_to(own.source) else 2]
    with cache.passing("trees") as desk, (desk / "busy").open("wb") as busy:
        names = [f"{at}.{kind}" for at in range(len(places)) for kind in ("upper", "work")]
        for name in ("shown", "empty", *names):
            (desk / name).mkdir()
        log = cache.folder("build-logs") / f"{cache.digest(str(own.folder))[:16]}.log"
        log.unlink(missing_ok=True)
        maker = make.Make(
            source=own.source, output=own.folder, chain=own.compiler, title=own.folder.name,
            log=log, busy=busy.fileno(), confined=confined, settings=(f"CC={own.cc}",),
            over=make.Overlay(desk=desk, places=tuple(places)),
        )  # fmt: skip
        tried = maker.isolated(["true"], own.source, writable=True)
        done = process.run(tried, timeout=_QUICK_S, check=False)
        if done.returncode:
            cause = f"no overlay can be laid over the build: {done.last_words}"
            action = "leave out --build, or allow user name spaces and overlays here"
            raise InfraError(cause, place=str(own.folder), action=action)
        try:
            yield maker
        finally:
            for place in desk.glob("*.work/work"):  # the kernel lets nobody read it
                place.chmod(0o700)


@contextlib.contextmanager
def changed_to(tree: SourceTree, base: SourceTree, maker: make.Make) -> Iterator[build.Beside]:
    """The files of another tree, seen over the source of a build that is open; times stay."""
    names = trees.changes(base, tree)
    shown = cast(make.Overlay, maker.over).desk / "shown"
    kept = [name for name, how in names.items() if how != "D"]
    git.write_files(tree.tree, kept, shown, borrowed=tree.objects)
    try:
        yield build.Beside(maker=maker, source=maker.source)
    finally:
        shutil.rmtree(shown)
        shown.mkdir()


def made(
    own: OwnBuild,
    base: SourceTree,
    tree: SourceTree,
    *,
    confined: bool,
    progress: Progress | None = None,
) -> tuple[Path, str]:
    """The image that make gives of the build with another source, and its release.

    Raises SourceError, InfraError.
    """
    key = cache.digest(
        build.identity(own.compiler), str(own.folder), base.tree, tree.tree,
        make.STRANGERS * confined,
        *(cache.digest(path.read_bytes()) for path in (own.image, own.config)),
    )  # fmt: skip

    def fill(folder: Path) -> None:
        with opened(own, confined=confined) as maker, changed_to(tree, base, maker):
            replace(maker, title=tree.title).run(["bzImage"], progress=progress)
            for name, kept in ((_IMAGE, "vmlinuz"), (_RELEASE, "release")):
                overlay = cast(make.Overlay, maker.over)
                shutil.copyfile(overlay.found(own.folder / name), folder / kept)

    place = cache.entry("builds", key, fill)
    return place / "vmlinuz", (place / "release").read_text().strip()
