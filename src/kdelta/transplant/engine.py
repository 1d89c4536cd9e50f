# SPDX-License-Identifier: GPL-2.0-or-later
"""From a release and a patch to a kernel to boot, of which only the patch's objects are compiled.

The module of the patched objects lies behind the image in one file: PID 1 loads it before all else.
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from kdelta import arch, cache, data, elf, guest, options, process, toolchains
from kdelta.archive.apt import Progress
from kdelta.disassembly import relocatable
from kdelta.disassembly.image import Image, opened
from kdelta.kernels.image import Transplanted, bringing
from kdelta.kernels.kernel import Kernel
from kdelta.source import build, kconfig, make, own_build
from kdelta.source.tree import SourceTree
from kdelta.transplant import objects, wide
from kdelta.transplant.difference import Normals, changed, difference
from kdelta.transplant.graft import Graft, Grafted, Patched, shared
from kdelta.transplant.proof import Listing, Proven, functions_of, prove
from kdelta.transplant.wide import ExecutedObjects

# The code that a transplant depends on.
_OWN = ("transplant", "disassembly", "options.py", "options.toml", "source/build.py")
_NAME = "kdelta_transplant"
_FILE = "transplant.ko"
_COMPILE_S = 600.0
# A module without the image's CRCs is taken, and functions begin with room for a jump.
_NEEDED = ("MODULES", "MODULE_FORCE_LOAD", "DYNAMIC_FTRACE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A release and what its package was made of, or a user's own build."""

    kernel: Kernel
    tree: SourceTree
    compiler: toolchains.Toolchain
    own: own_build.OwnBuild | None = None

    @contextlib.contextmanager
    def opened(self, progress: Progress | None, off: Sequence[str] = ()) -> Iterator[make.Make]:
        """Where objects are made as those of the kernel were; off: without these options."""
        kernel = self.kernel
        if self.own:
            with own_build.opened(self.own) as maker:
                yield maker
        else:
            config = kconfig.named([str(kernel.config)])
            flags = {name: options.flag(name) for name in off}
            unset = {name: "n" for name, flag in flags.items() if not flag}
            config = replace(
                config,
                options={**config.options, **unset},
                flags=tuple(filter(None, flags.values())),
            )
            yield build.for_objects(
                self.tree, config, self.compiler, kernel.release, progress=progress
            )

    def changed_to(
        self, tree: SourceTree, maker: make.Make, names: Sequence[str]
    ) -> contextlib.AbstractContextManager[build.Beside]:
        """The same place with the files of another tree; names: of the objects to compile."""
        if self.own:
            return own_build.changed_to(tree, self.tree, maker)
        return build.beside(maker, self.tree, tree, names)


def kept(
    ground: Ground,
    tree: SourceTree,
    words: Sequence[str],
    content: Callable[[], bytes],
    *,
    reference: str,
    name: str,
) -> Kernel:
    """The release with another image, which is kept.  words: what decides it, beside the tree."""
    kernel = ground.kernel
    own = (path.read_bytes() for path in (*data.code(_OWN), *_sources()))
    key = cache.digest(
        kernel.image_sha256, kernel.config_sha256, ground.tree.tree, tree.tree,
        build.identity(ground.compiler), *words, *own,
    )  # fmt: skip

    def fill(folder: Path) -> None:
        (folder / "vmlinuz").write_bytes(content())

    place = cache.entry("transplants", key, fill) / "vmlinuz"
    return replace(
        kernel,
        reference=reference or kernel.reference,
        image=place,
        image_sha256=cache.recorded(place),
        name=name,
        source=f"tree {tree.tree}, configuration of {kernel.version}, transplanted",
    )


def _sources() -> tuple[Path, ...]:
    folder = data.directory("guest") / "transplant"
    return folder / "transplant.c", folder / "transplant.h"


@dataclass(slots=True, kw_only=True)
class Transplant:
    """A patched source of a release.  Its two kernels are made of what was compiled once.

    ran: of a header that too many objects include, what decides which of them are compiled.
    """

    ground: Ground
    patched: SourceTree
    confined: bool = False
    progress: Progress | None = None
    ran: ExecutedObjects = field(default_factory=ExecutedObjects)
    _found: tuple[Image, list[Patched], set[str]] | None = field(default=None, init=False)

    def kernel(self, *, reference: str = "", name: str = "", null: bool = False) -> Kernel:
        """The release with the functions that the patched source changes.

        null: the same functions, as the release has them: it counts what the release does.
        Raises NotTransplantedError, SourceError when the patched source does not compile,
        InfraError.
        """
        name = name or f"{self.ground.tree.name}+{'+'.join(self.patched.variants)}"
        content, words = partial(self._content, null=null), [str(null)]
        if self.ran.functions and any(name.endswith(".h") for name in self._files()):
            with self.ground.opened(self.progress) as maker:
                words += sorted(self.ran.names) if self._touched(maker)[1] else ()
        return kept(self.ground, self.patched, words, content, reference=reference, name=name)

    def _files(self) -> tuple[str, ...]:
        return objects.check_source(self.ground.tree, self.patched)

    def _touched(self, maker: make.Make) -> tuple[dict[str, bool], bool]:
        image = opened(self.ground.kernel.image, self.ground.kernel.release)
        return self.ran.touched(self._files(), maker, image, self.progress)

    def _content(self, *, null: bool) -> bytes:
        """The image's file."""
        kernel = self.ground.kernel
        with self.ground.opened(self.progress) as maker:
            self._found = self._found or self._compared(maker)
            image, parts, stay = self._found
            if not parts:
                if unknown := self.ran.names & stay:
                    raise objects.cannot(f"{min(unknown)}() cannot be replaced")
                return kernel.image.read_bytes()
            content = joined(maker, kernel, image, parts, contents(kernel, parts, stay), null=null)
        maker.log.unlink(missing_ok=True)
        return content

    def _compared(self, maker: make.Make) -> tuple[Image, list[Patched], set[str]]:
        """The release's image, the objects in which the patch changes functions, and the functions
        that may have the code of before, though the patch may change it.
        """
        image = opened(self.ground.kernel.image, self.ground.kernel.release)
        touched, some = self._touched(maker)
        old = self._prepared(maker, image, touched)
        readers = [*self._readers(maker, old)] if some else []
        plain = build.Beside(maker=maker, source=maker.source)
        was = [self._text(plain, name) for name in readers]
        with self.ground.changed_to(self.patched, maker, [*old]) as place:
            now = [self._text(place, name) for name in readers]
            words = set[str]().union(*map(wide.shared, was, now))
            known = {*self._files(), *(f"{name[:-2]}.c" for name in old)}
            objects.check_named(words, known, maker.source)
            new = self._compiled(place, [*old])
        ran, parts = self.ran, list[Patched]()
        stay = wide.lost(ran.names, ran.objects, image) if some else set[str]()
        # Of a header most objects stay as they are, to the byte: nothing is read of these.
        for name in (name for name, own in old.items() if own != new[name]):
            if not is_c(maker, name):
                raise objects.cannot(f"{name} is of an assembler's file")
            before, after = normals(old[name]), normals(new[name])
            one_source = some and not touched[name]
            try:
                part = patched(name, before, after, image, one_source=one_source)
            except objects.NotTransplantedError:
                if not one_source:
                    raise
                stay |= changed(before, after)
                continue
            stay |= part.difference.left
            if part.difference.kept:
                parts.append(part)
        return image, parts, stay

    def _readers(self, maker: make.Make, names: Iterable[str]) -> Iterator[str]:
        """Objects that together read all headers that the patch changes."""
        left = {name for name in self._files() if name.endswith(".h")}
        for name in names:
            read = left & build.sources(maker, name)
            if read and is_c(maker, name):
                left -= read
                yield name

    def _text(self, place: build.Beside, name: str) -> str:
        """What the preprocessor makes of the source of an object, with all macros."""
        path = self._made(place, name, "-E", "-dD")
        text = path.read_text(errors="replace")
        for each in (path, path.with_suffix(".d")):
            each.unlink()
        return text

    def _prepared(
        self, maker: make.Make, image: Image, touched: Mapping[str, bool]
    ) -> dict[str, bytes]:
        """The objects of the release that the patch touches, as far as its image has them."""
        missing = [name for name in touched if not build.is_noted(maker.output, name)]
        if self.ground.own:
            # The objects of a user's build, compiled beside it: there they may be linked or gone.
            if named := [name for name in missing if touched[name]]:
                raise objects.cannot(f"{named[0]} is not in the build")
            plain = build.Beside(maker=maker, source=maker.source)
            found = self._compiled(plain, [name for name in touched if name not in missing])
        else:
            objects.made(maker, touched, self.progress)
            paths = {name: maker.output / name for name in touched}
            found = {name: read(path) for name, path in paths.items() if path.exists()}
        for name, is_own in touched.items():
            own = relocatable.read(found[name]) if name in found else None
            if own and any(own.symbols[index].name in image for index in functions_of(own)):
                continue
            if is_own:
                why = "is no part of the image: it is a module, or configured out"
                raise objects.cannot(f"{name} {why}")
            found.pop(name, None)
        return found

    def _compiled(self, place: build.Beside, names: Sequence[str]) -> dict[str, bytes]:
        """The patched objects, by the commands that made the release's."""
        with ThreadPoolExecutor(make.jobs()) as pool:
            made = pool.map(lambda name: read(self._made(place, name)), names)
            return dict(zip(names, made, strict=True))

    def _made(self, place: build.Beside, name: str, *more: str) -> Path:
        """What the compiler makes of the source of an object; more: options."""
        maker = place.maker
        target = maker.desk / f"{uuid.uuid4()}-{name.replace('/', '-')}"
        command = build.saved_command(maker.output, name)
        if command.count(f"-c -o {name} ") != 1 or "objtool" in command:
            raise objects.cannot(f"{name} is made in another way than by one compiler's call")
        done = place.compiled(name, target, *more, confined=self.confined)
        if done.returncode:
            with cache.writing(maker.log):
                maker.log.write_text(done.stderr)
            title = f"{name} of {self.patched.title}"
            raise make.failure(title, done.stderr, maker.log, maker.output)
        return target


def is_c(maker: make.Make, name: str) -> bool:
    """True for an object of a C file, not of an assembler's."""
    return (maker.source / name).with_suffix(".c").exists()


def normals(content: bytes) -> Normals:
    """An object's file, read."""
    return Normals(Listing(relocatable.read(content)))


def read(path: Path) -> bytes:
    """The file of an object or module without what debuggers read, which is most of it."""
    argv = [toolchains.binutils("objcopy", arch.of("amd64")), "--strip-debug"]
    with tempfile.TemporaryDirectory(prefix="kdelta-object-") as scratch:
        plain = Path(scratch, path.name)
        process.run([*argv, str(path), str(plain)], timeout=_COMPILE_S)
        return plain.read_bytes()


def patched(
    name: str, before: Normals, after: Normals, image: Image, *, one_source: bool = False
) -> Patched:
    """An object in two forms beside the image; one_source: see `difference`.

    Raises NotTransplantedError.
    """
    proven = prove(before.listing, image) if one_source else Proven()
    try:
        found = difference(before, after, one_source=one_source, stay=proven.differing)
    except elf.BadElf as error:
        raise objects.cannot(f"{name}: {error}") from error
    if found.kept and not one_source:
        proven = prove(before.listing, image)
    if proven.differing and not one_source:
        function, why = next(iter(proven.differing.items()))
        raise objects.cannot(f"{function}() of {name} is not the image's: {why}")
    if found.refused:
        raise objects.cannot(found.refused[0])
    return Patched(path=name, old=before, proven=proven, new=after, difference=found)


def _unchanged(part: Patched) -> Patched:
    """The object as it is, in which the functions that a patch changes are said to be others."""
    old, found = part.old, part.difference

    def own(which: Collection[int]) -> list[int]:
        names = {part.new.own.symbols[index].name for index in which}
        return [index for name, index in old.functions.items() if name in names]

    kept = frozenset(own(found.kept))
    everything = (*old.functions.values(), *old.data.values())
    unchanged = replace(
        found,
        replaced=tuple(own(found.replaced)),
        kept=kept,
        same={index: index for index in everything if index not in kept},
        gone=(),
    )
    return replace(part, new=old, difference=unchanged)


def contents(kernel: Kernel, parts: Sequence[Patched], stay: Collection[str] = ()) -> Transplanted:
    """What a release with these parts says of itself; stay: functions that may be as before."""
    replaced, added, code = set[str](), set[str](), dict[str, str]()
    for part in parts:
        for index in part.difference.kept:
            name = part.new.own.symbols[index].name
            (replaced if index in part.difference.replaced else added).add(name)
            code[name] = cache.digest(repr(part.new.normal(index)))
    return Transplanted(
        base=kernel.image_sha256,
        objects=tuple(part.path for part in parts),
        replaced=tuple(sorted(replaced)),
        added=tuple(sorted(added)),
        gone=tuple(sorted(name for part in parts for name in part.difference.gone)),
        code=code,
        kept=tuple(sorted(stay)),
    )


def joined(
    maker: make.Make,
    kernel: Kernel,
    image: Image,
    parts: Sequence[Patched],
    told: Transplanted,
    *,
    null: bool,
) -> bytes:
    """A release's file with the functions that its parts change, or with its own in their place."""
    if null:
        parts = [_unchanged(part) for part in parts]
    others = {name: at for part in parts for name, at in shared(part, image).items()}
    grafted = [Graft(part, image, at, others).made() for at, part in enumerate(parts)]
    with cache.passing("trees") as place:
        module = _linked(maker, place, grafted, image)
    archive = guest.newc([(_FILE, 0o644, module)])
    return bringing(kernel.image.read_bytes(), archive, msgspec.json.encode(told))


def _linked(maker: make.Make, place: Path, grafted: Sequence[Grafted], image: Image) -> bytes:
    """The module of grafted objects, as kbuild links it in a folder, its symbols resolved."""
    folder = place / "kdelta-module"
    units = [f"part{number}" for number in range(len(grafted))]
    with cache.writing(folder):
        folder.mkdir()
        for source in _sources():
            (folder / source.name).write_bytes(source.read_bytes())
        (folder / "table.c").write_text(_table(grafted))
        for unit, one in zip(units, grafted, strict=True):
            (folder / f"{unit}.o").write_bytes(one.content)
            (folder / f".{unit}.o.cmd").write_text(f"savedcmd_{unit}.o := none\n")
        members = " ".join(f"{unit}.o" for unit in ("transplant", "table", *units))
        (folder / "Kbuild").write_text(f"obj-m := {_NAME}.o\n{_NAME}-y := {members}\n")
    if not (maker.output / "scripts/module.lds").exists():  # a user made bzImage alone
        maker.run(["modules_prepare"])
    maker.run([f"M={folder}", "KBUILD_MODPOST_WARN=1", "modules"])
    needed = {name: at for one in grafted for name, at in one.needed.items()}
    return _resolved(read(folder / f"{_NAME}.ko"), needed, image)


def _table(grafted: Sequence[Grafted]) -> str:
    jumps = [jump for one in grafted for jump in one.jumps]
    constants = [constant for one in grafted for constant in one.constants]
    named = [*(jump.to for jump in jumps), *(constant.where for constant in constants)]
    lines = ["#include <linux/types.h>", '#include "transplant.h"']
    lines += [f"extern char {name}[];" for name in named]
    lines += ["struct transplant_jump transplant_jumps[] = {"]
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


def ground_of(
    kernel: Kernel,
    tree: SourceTree,
    own: own_build.OwnBuild | None = None,
    *,
    progress: Progress | None = None,
) -> Ground:
    """A release with its source and its package's compiler, or own's, a user's build.

    Raises SpecError, InfraError.
    """
    chain = own.compiler if own else compiler_of(kernel, progress=progress)
    if own:
        check_options(kernel)
    return Ground(kernel=kernel, tree=tree, compiler=chain, own=own)


def check_options(kernel: Kernel) -> dict[str, str]:
    """The options of a kernel.  Raises NotTransplantedError where it cannot take a transplant."""
    if kernel.config is None:
        raise objects.cannot(f"{kernel.package} holds no configuration")
    asked = kconfig.parse(kernel.config.read_text(errors="replace"))
    number = asked.get("GCC_VERSION", "0")
    if not number.isdecimal() or number == "0":
        raise objects.cannot("it was not built by gcc")
    if lacks := [f"CONFIG_{name}" for name in _NEEDED if asked.get(name) != "y"]:
        raise objects.cannot(f"its configuration lacks {' and '.join(lacks)}")
    return asked


def compiler_of(kernel: Kernel, *, progress: Progress | None = None) -> toolchains.Toolchain:
    """The compiler of a release's package.  Raises NotTransplantedError, SpecError, InfraError."""
    number = check_options(kernel)["GCC_VERSION"]
    return toolchains.find(f"gcc-{int(number) // 10000}", progress=progress)
