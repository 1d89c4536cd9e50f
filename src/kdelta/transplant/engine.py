# SPDX-License-Identifier: GPL-2.0-or-later
"""From a release and a patch to a kernel to boot, of which only the patch's objects are compiled.

The objects are made as the package made them (its source, its configuration, its compiler) and
proven to be those of its image.  The patched ones are grafted and linked as a module, which lies
behind the image in one file: PID 1 loads it before anything else.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import utime
from pathlib import Path

import msgspec

from kdelta import arch, cache, data, elf, guest, process, toolchains
from kdelta.archive.apt import Progress
from kdelta.disassembly.image import Image, opened
from kdelta.kernels.image import Transplanted, bringing
from kdelta.kernels.kernel import Kernel
from kdelta.source import build, git, kconfig, make
from kdelta.source.make import Make, SourceError
from kdelta.source.tree import SourceTree
from kdelta.toolchains import Toolchain
from kdelta.transplant import objects, relocatable
from kdelta.transplant.difference import Normals, difference
from kdelta.transplant.graft import CannotError, Grafted, Patched, graft, shared
from kdelta.transplant.proof import Listing, Proven, prove

_FORMAT = "2"
_NAME = "kdelta_transplant"
_FILE = "transplant.ko"
_PREPARED = "kdelta-prepared"
_COMPILE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A release and what its package was made of."""

    kernel: Kernel
    tree: SourceTree
    compiler: Toolchain

    @property
    def line(self) -> SourceTree:
        """The tree, in a workspace where only objects are made."""
        return replace(self.tree, line=f"{self.tree.line}.objects")


def transplanted(
    ground: Ground,
    patched: SourceTree,
    *,
    reference: str = "",
    name: str = "",
    null: bool = False,
    confined: bool = False,
    progress: Progress | None = None,
) -> Kernel:
    """The release with the functions that a patched source changes.

    null: the same functions, as the release has them: it counts what the release does.
    Raises NotTransplantedError, SourceError when the patched source does not compile, InfraError.
    """
    kernel = ground.kernel
    key = cache.digest(
        _FORMAT, kernel.image_sha256, kernel.config_sha256, ground.tree.tree, patched.tree,
        build.identity(ground.compiler), str(null), *(_own_code()),
    )  # fmt: skip

    def fill(folder: Path) -> None:
        made = _Transplant(ground, patched, progress, null=null, confined=confined)
        (folder / "vmlinuz").write_bytes(made.content())

    place = cache.entry("transplants", key, fill) / "vmlinuz"
    return replace(
        kernel,
        reference=reference or kernel.reference,
        image=place,
        image_sha256=cache.recorded(place),
        name=name or f"{ground.tree.name}+{'+'.join(patched.variants)}",
        source=f"tree {patched.tree}, configuration of {kernel.version}, transplanted",
    )


def _own_code() -> Iterator[bytes]:
    for path in (*data.code(("transplant",)), *sorted(_sources())):
        yield path.read_bytes()


def _sources() -> tuple[Path, ...]:
    folder = data.directory("guest") / "transplant"
    return folder / "transplant.c", folder / "transplant.h"


def changed_files(old: SourceTree, new: SourceTree) -> tuple[str, ...]:
    """The files that differ between two trees."""
    words = ("diff-tree", "-r", "--name-only", "-z", old.tree, new.tree)
    borrowed = new.objects or old.objects
    return tuple(filter(None, git.run(*words, borrowed=borrowed).stdout.split("\0")))


class _Transplant:
    def __init__(
        self,
        ground: Ground,
        patched: SourceTree,
        progress: Progress | None,
        *,
        null: bool,
        confined: bool,
    ) -> None:
        self.ground, self.patched, self.null = ground, patched, null
        self.confined, self.progress = confined, progress
        self.files = changed_files(ground.tree, patched)
        objects.check(self.files)

    def content(self) -> bytes:
        """The image's file."""
        ground = self.ground
        if ground.kernel.config is None:
            raise objects.cannot(f"{ground.kernel.package} holds no configuration")
        config = kconfig.named([str(ground.kernel.config)])
        with build.prepared(
            ground.line, config, ground.compiler,
            targets=(), progress=self.progress, only_objects=True,
        ) as maker:  # fmt: skip
            image = opened(ground.kernel.image, ground.kernel.release)
            own = self._prepared(maker, image)
            with self._patched_source(maker):
                new = self._compiled(maker, list(own))
            found = [_patched(name, own[name], new[name], image) for name in own]
            parts = [part for part in found if part.difference.kept]
            if not parts:
                return ground.kernel.image.read_bytes()
            if self.null:
                parts = [_unchanged(part) for part in parts]
            try:
                grafted = _grafted(parts, image)
            except CannotError as error:
                raise objects.cannot(str(error)) from error
            module = _linked(maker, grafted, image, self.progress)
        archive = guest.archive_of(_FILE, module)
        told = msgspec.json.encode(_contents(ground.kernel, parts))
        return bringing(ground.kernel.image.read_bytes(), archive, told)

    def _prepared(self, maker: Make, image: Image) -> dict[str, Normals]:
        """The objects of the release that the patch touches, as far as its image has them."""
        mark = maker.output / _PREPARED
        if not mark.exists():
            maker.run(["modules_prepare"], progress=self.progress)
            mark.touch()
        touched = objects.touched(self.files, maker.source)
        missing = [name for name in touched if not _note(maker.output / name).exists()]
        if named := [name for name in missing if touched[name]]:
            maker.run(named, progress=self.progress)
        if others := [name for name in missing if not touched[name]]:
            # Some are of other configurations, and do not compile in this one.
            with contextlib.suppress(SourceError):
                maker.run(["--keep-going", *others], progress=self.progress)
        found = {}
        for name, is_own in touched.items():
            if not (maker.output / name).exists():
                continue
            one = Normals(Listing(relocatable.read(_read(maker.output / name))))
            if any(function in image for function in one.functions):
                found[name] = one
            elif is_own:
                why = "is no part of the image: it is a module, or configured out"
                raise objects.cannot(f"{name} {why}")
        return found

    @contextmanager
    def _patched_source(self, maker: Make) -> Iterator[None]:
        """The patched files in place of the release's, whose times stay as they were."""
        place = build.Workspace(folder=maker.source.parent, busy=maker.busy)
        files = [maker.source / name for name in self.files]
        times = {p: (s.st_atime_ns, s.st_mtime_ns) for p in files if p.exists() for s in [p.stat()]}
        try:
            place.check_out(self.patched)
            yield
        finally:
            place.check_out(self.ground.tree)
            for path, when in times.items():
                utime(path, ns=when)

    def _compiled(self, maker: Make, names: Sequence[str]) -> dict[str, bytes]:
        """The patched objects, by the commands that made the release's."""
        folder = maker.output / "kdelta-patched"
        with cache.writing(folder):
            folder.mkdir(exist_ok=True)

        def one(name: str) -> tuple[str, bytes]:
            target = folder / name.replace("/", "-")
            command = re.sub(r" -Wp,-MMD,\S+", "", build.saved_command(maker.output, name))
            words = f"-c -o {name} "
            if command.count(words) != 1 or "objtool" in command:
                raise objects.cannot(f"{name} is made in another way than by one compiler's call")
            command = command.replace(words, f"-c -o {target.relative_to(maker.output)} ")
            if not (maker.source / f"{name[:-2]}.c").exists():
                raise objects.cannot(f"{name[:-2]}.c is removed")
            argv = ["sh", "-c", command]
            if self.confined:
                argv = make.confined(argv, maker.source, maker.output)
            else:
                argv = make.isolated(argv)
            done = process.run(argv, timeout=_COMPILE_S, cwd=maker.output, check=False)
            if done.returncode:
                with cache.writing(maker.log):
                    maker.log.write_text(done.stderr)
                raise make.failure(self.patched.title, done.stderr, maker.log, maker.output)
            return name, _read(target)

        with ThreadPoolExecutor(make.jobs()) as pool:
            return dict(pool.map(one, names))


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.cmd")


def _read(path: Path) -> bytes:
    """An object or module without what debuggers read, which is most of it."""
    argv = [toolchains.binutils("objcopy", arch.of("amd64")), "--strip-debug"]
    with tempfile.TemporaryDirectory(prefix="kdelta-object-") as scratch:
        plain = Path(scratch, path.name)
        process.run([*argv, str(path), str(plain)], timeout=_COMPILE_S)
        return plain.read_bytes()


def _patched(name: str, before: Normals, new: bytes, image: Image) -> Patched:
    """An object beside the image and beside its patched self.  Raises NotTransplantedError."""
    after = Normals(Listing(relocatable.read(new)))
    try:
        found = difference(before, after)
    except elf.BadElf as error:
        raise objects.cannot(f"{name}: {error}") from error
    proven = prove(before.listing, image) if found.kept else Proven()
    if proven.differing:
        function, why = next(iter(proven.differing.items()))
        raise objects.cannot(f"{function}() of {name} is not the image's: {why}")
    if found.refused:
        raise objects.cannot(found.refused[0])
    return Patched(path=name, old=before, proven=proven, new=after, difference=found)


def _unchanged(part: Patched) -> Patched:
    """The object as it is, in which the functions that a patch changes are said to be others."""
    old, found = part.old, part.difference
    names = {part.new.own.symbols[index].name for index in found.kept}
    kept = frozenset(index for name, index in old.functions.items() if name in names)
    replaced = {part.new.own.symbols[index].name for index in found.replaced}
    everything = (*old.functions.values(), *old.data.values())
    own = replace(
        found,
        replaced=tuple(index for name, index in old.functions.items() if name in replaced),
        kept=kept,
        same={index: index for index in everything if index not in kept},
        gone=(),
    )
    return replace(part, new=old, difference=own)


def _grafted(parts: Sequence[Patched], image: Image) -> list[Grafted]:
    others: dict[str, int] = {}
    for part in parts:
        others |= shared(part, image)
    return [graft(part, image, number, others) for number, part in enumerate(parts)]


def _contents(kernel: Kernel, parts: Sequence[Patched]) -> Transplanted:
    def names(which: Sequence[tuple[Patched, int]]) -> tuple[str, ...]:
        return tuple(sorted({part.new.own.symbols[index].name for part, index in which}))

    replaced = [(part, index) for part in parts for index in part.difference.replaced]
    kept = [(part, index) for part in parts for index in part.difference.kept]
    added = [one for one in kept if one not in replaced]
    return Transplanted(
        base=kernel.image_sha256,
        objects=tuple(part.path for part in parts),
        replaced=names(replaced),
        added=names(added),
        gone=tuple(sorted(name for part in parts for name in part.difference.gone)),
        code={
            part.new.own.symbols[index].name: cache.digest(repr(part.new.normal(index)))
            for part, index in kept
        },
    )


def _linked(
    maker: Make, grafted: Sequence[Grafted], image: Image, progress: Progress | None
) -> bytes:
    """The module of grafted objects, as kbuild links it, its symbols resolved."""
    folder = maker.output / "kdelta-module"
    units = [f"part{number}" for number in range(len(grafted))]
    with cache.writing(folder):
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for source in _sources():
            (folder / source.name).write_bytes(source.read_bytes())
        (folder / "table.c").write_text(_table(grafted))
        for unit, one in zip(units, grafted, strict=True):
            (folder / f"{unit}.o").write_bytes(one.content)
            (folder / f".{unit}.o.cmd").write_text(f"savedcmd_{unit}.o := none\n")
        members = " ".join(f"{unit}.o" for unit in ("transplant", "table", *units))
        (folder / "Kbuild").write_text(f"obj-m := {_NAME}.o\n{_NAME}-y := {members}\n")
    maker.run([f"M={folder}", "KBUILD_MODPOST_WARN=1", "modules"], progress=progress)
    needed = {name: at for one in grafted for name, at in one.needed.items()}
    return _resolved(_read(folder / f"{_NAME}.ko"), needed, image)


def _table(grafted: Sequence[Grafted]) -> str:
    jumps = [jump for one in grafted for jump in one.jumps]
    constants = [constant for one in grafted for constant in one.constants]
    named = [*(jump.to for jump in jumps), *(constant.where for constant in constants)]
    lines = ["#include <linux/types.h>", '#include "transplant.h"']
    lines += [f"extern char {name}[];" for name in named]
    lines += ["const struct transplant_jump transplant_jumps[] = {"]
    lines += [f"\t{{ {j.nop:#x}UL, {j.start:#x}UL, {j.to} + {j.offset} }}," for j in jumps]
    lines += ["\t{ 0 } };", f"const unsigned int transplant_jump_count = {len(jumps)};"]
    lines += ["const struct transplant_constant transplant_constants[] = {"]
    lines += [f"\t{{ {c.where}, {c.value:#x}UL, {c.size} }}," for c in constants]
    lines += ["\t{ 0 } };", f"const unsigned int transplant_constant_count = {len(constants)};"]
    return "\n".join([*lines, ""])


def _resolved(module: bytes, needed: Mapping[str, int], image: Image) -> bytes:
    """The module with addresses for what it leaves undefined, and without the names of places."""
    own = relocatable.read(module)
    for at, symbol in enumerate(own.symbols):
        if symbol.name.startswith("kd_new_"):
            own.symbols[at] = replace(symbol, name="")
        elif symbol.section == relocatable.UNDEFINED and symbol.name:
            known = image.addresses(symbol.name, shared=True)
            address = needed.get(symbol.name) or (next(iter(known)) if len(known) == 1 else None)
            if address is None:
                raise objects.cannot(f"the image has no {symbol.name}")
            own.symbols[at] = replace(symbol, value=address, section=relocatable.ABSOLUTE)
    return relocatable.written(own)


def ground_of(kernel: Kernel, tree: SourceTree, *, progress: Progress | None = None) -> Ground:
    """A release with its source and its package's compiler.  Raises SpecError, InfraError."""
    options = kconfig.parse(kernel.config.read_text(errors="replace")) if kernel.config else {}
    number = options.get("GCC_VERSION", "0")
    if not number.isdecimal() or number == "0":
        raise objects.cannot("its package was not built by gcc")
    chain = toolchains.find(f"gcc-{int(number) // 10000}", progress=progress)
    return Ground(kernel=kernel, tree=tree, compiler=chain)
