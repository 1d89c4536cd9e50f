# SPDX-License-Identifier: GPL-2.0-or-later
"""The source lines of what a kernel executed, or why they are not known.

Packages: by the line tables that were fetched for them.  Kernels built here: the objects of the
functions are compiled again with DWARF, by the same compiler and configuration, and linked where
they lie alone.  Lines are believed where the code is the image's.
"""

from __future__ import annotations

import contextlib
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

import msgspec

from kdelta import arch, cache, elf, process
from kdelta.archive.apt import Progress
from kdelta.codegen.compile import BuildFolder, compile_object
from kdelta.disassembly import addr2line, objects
from kdelta.disassembly.addr2line import Chain, Unit
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.files import decoded, digest_of
from kdelta.kernels import packages, reference
from kdelta.kernels.image import UnpackedKernel, unpacked_kernel
from kdelta.sample import KernelIdentity
from kdelta.source import build, tree_reference
from kdelta.source.build import Build
from kdelta.source.make import Make
from kdelta.toolchains import Toolchain

_KIND = "debug"
_LINKED, _OBJECT, _UNITS = "lines.elf", "object.o", "units.json"
_LINK_S = 120.0
_MOST_OBJECT = 64 << 20
_FEW = 32  # names that are looked for in bytes, before symbols are read
_NO_OBJECTS = frozenset(("scripts", "tools", "vdso", "purgatory", "compressed"))
# What objtool writes over a call or a jump that is not taken: __fentry__, static branches.
_NOPS = ((b"\x0f\x1f\x44\x00\x00", b"\xe8\xe9"), (b"\x66\x90", b"\xeb"))

Fetch = Callable[[KernelIdentity], Path]
"""Gets the line tables of a package's kernel, or raises why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanFunction:
    """A function of a kernel that ran: its symbol, where it lies, and addresses in it."""

    name: str
    start: int
    addresses: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Lines of addresses; missing: sentences that say why others have none."""

    chains: dict[int, Chain]
    missing: tuple[str, ...] = ()


def located(
    kernel: KernelIdentity,
    functions: Sequence[RanFunction],
    *,
    fetch: Fetch | None = None,
    under: str = "",
    progress: Progress | None = None,
) -> Located:
    """The lines of functions that a kernel executed.

    fetch: for packages that lack tables here.  under: only of functions that were compiled of
    files below a folder ("mm").
    """
    try:
        if kernel.reference.startswith(tree_reference.PREFIX):
            return _of_build(kernel, functions, under, progress)
        path = _tables(kernel, fetch)
        own = _below(under, functions, _units(path, kernel, progress)) if under else functions
        wanted = [address for each in own for address in each.addresses]
        return Located(chains=addr2line.chains(path, wanted, arch.of(kernel.arch)))
    except KdeltaError as error:
        return Located(chains={}, missing=(f"no source lines of {_label(kernel)}: {error}",))


def _label(kernel: KernelIdentity) -> str:
    return kernel.name or kernel.reference


def _tables(kernel: KernelIdentity, fetch: Fetch | None) -> Path:
    """The file with the lines of a kernel that was not built here."""
    if kernel.reference.startswith("file:"):
        return _own_file(kernel)
    if found := packages.cached_lines(kernel.image_sha256):
        return found
    if not kernel.version:
        raise SpecError("it is neither a package nor built here")
    if fetch is None:
        raise SpecError(
            "its line tables are not here",
            action=f"--fetch-debug gets linux-image-{kernel.release}-dbg where the archive has it",
        )
    return fetch(kernel)


def _units(path: Path, kernel: KernelIdentity, progress: Progress | None) -> Sequence[Unit]:
    """What was compiled of which file, told once for all tables of a kernel: seconds."""

    def make(folder: Path) -> None:
        if progress:
            progress(f"which code of {_label(kernel)} is of which file, once", 0.0)
        found = addr2line.units(path, arch.of(kernel.arch))
        (folder / _UNITS).write_bytes(msgspec.json.encode(found))

    key = cache.digest("units", kernel.image_sha256)
    place = cache.entry(_KIND, key, make)
    if not cache.unchanged(place):
        cache.discard(place)
        place = cache.entry(_KIND, key, make)
    return decoded((place / _UNITS).read_bytes(), list[Unit])


def _below(
    under: str, functions: Sequence[RanFunction], units: Sequence[Unit]
) -> list[RanFunction]:
    """Those that were compiled of a file below a folder, or of one that is not known."""
    folder = f"{under.rstrip('/')}/"
    found = []
    for each in functions:
        at = bisect_right(units, each.start, key=itemgetter(0)) - 1
        known = at >= 0 and each.start < units[at].high
        if not known or units[at].file.startswith(folder):
            found.append(each)
    return found


def _own_file(kernel: KernelIdentity) -> Path:
    """A vmlinux that was named as a file."""
    path = Path(kernel.reference.removeprefix("file:")).expanduser()
    if not path.is_file() or digest_of(path) != kernel.image_sha256:
        raise SpecError("the file is no longer the image that ran", place=str(path))
    with path.open("rb") as stream:
        if stream.read(len(elf.MAGIC)) != elf.MAGIC:
            raise SpecError(
                "an image without line tables", place=str(path), action="name its vmlinux: file:..."
            )
    return path


def _of_build(
    kernel: KernelIdentity,
    functions: Sequence[RanFunction],
    under: str,
    progress: Progress | None,
) -> Located:
    """The lines of a kernel that kdelta built."""
    parsed = tree_reference.parse(kernel.reference)
    packaged = partial(reference.packaged_config, progress=progress)
    config = tree_reference.configured(parsed, packaged)
    tree = tree_reference.source(parsed, progress=progress)
    chain = build.compiler(parsed.compiler, progress=progress)
    made = build.kept(tree, config, chain)
    if made is None or made.image_sha256 != kernel.image_sha256:
        raise SpecError(
            "its image is no longer in the cache, or its source is another one now",
            action=f"build it again: kdelta kernels build {kernel.reference}",
        )
    image = unpacked_kernel(made.image)
    found: dict[int, Chain] = {}
    missing = []
    with build.prepared(tree, config, chain, targets=(), progress=progress) as ready:
        objects_of = _objects(ready.output, {each.name for each in functions}, under)
        for function in functions:
            names = objects_of.get(function.name, ())
            if under and not names:
                continue  # of another folder
            try:
                found |= _lines(made, config.digest, chain, ready, image, function, names, progress)
            except KdeltaError as error:
                missing.append(f"no source lines of {function.name} in {made.label}: {error}")
    return Located(chains=found, missing=tuple(missing))


def _lines(
    made: Build,
    config: str,
    chain: Toolchain,
    ready: Make,
    image: UnpackedKernel,
    function: RanFunction,
    names: Sequence[str],
    progress: Progress | None,
) -> dict[int, Chain]:
    """The lines of one function: of the object whose code of it is the image's."""
    seen = []
    folder = BuildFolder(source=ready.source, out=ready.output, toolchain=chain)
    for name in names:
        key = cache.digest("lines", made.tree.tree, config, build.identity(chain), name)
        place = cache.found(_KIND, key)
        if place is None:
            if progress:
                progress(f"{name} with line tables", 0.0)
            ready.run([name])
            make = partial(_compiled, build_folder=folder, name=name)
            place = cache.entry(_KIND, key, make)
        code, filled = objects.placed(place / _OBJECT, function.name)
        if code and same_code(image.read(function.start, len(code)), code, filled):
            moved = _linked_at(place / _LINKED, function.name) - function.start
            wanted = [address + moved for address in function.addresses]
            told = addr2line.chains(place / _LINKED, wanted, arch.of(image.arch))
            return {address - moved: row for address, row in told.items()}
        seen.append(name)
    if seen:
        raise SpecError(f"compiled with line tables {' and '.join(seen)} is other code")
    raise SpecError(
        "no object of the build directory has it",
        place=str(ready.output),
        action="what an assembler file or the linker makes has no lines here",
    )


def _objects(output: Path, wanted: set[str], under: str) -> dict[str, list[str]]:
    """The objects of a build directory, below a folder of it, by functions that they define."""
    found: dict[str, list[str]] = {}
    for path in sorted((output / under).rglob("*.o")):
        inside = path.relative_to(output)
        if _NO_OBJECTS & set(inside.parts) or len(inside.parts) < 2 or not path.is_file():
            continue
        if path.stat().st_size > _MOST_OBJECT or not path.with_name(f".{path.name}.cmd").exists():
            continue
        content = path.read_bytes()
        if not content.startswith(elf.MAGIC):
            continue
        # Whether an object may hold one its names say at once.
        few = len(wanted) <= _FEW
        if few and not any(b"\0" + name.encode() + b"\0" in content for name in wanted):
            continue
        with contextlib.suppress(elf.BadElf):
            for name in wanted & {name for _, _, name in elf.functions(content)}:
                found.setdefault(name, []).append(inside.as_posix())
    return found


def _compiled(folder: Path, *, build_folder: BuildFolder, name: str) -> None:
    """Compile an object with line tables, and link it, so that each address in it is one place."""
    with tempfile.TemporaryDirectory(prefix="lines-", dir=folder) as scratch:
        made = compile_object(build_folder, name, Path(scratch), {}, lines=True)
        made.rename(folder / _OBJECT)
    argv = ["ld", "--noinhibit-exec", "--unresolved-symbols=ignore-all", "-e", "0"]
    argv += ["-o", str(folder / _LINKED), str(folder / _OBJECT)]
    done = process.run(argv, timeout=_LINK_S, env={"LC_ALL": "C"}, check=False)
    if not (folder / _LINKED).exists():
        raise InfraError(f"{name} with line tables does not link: {done.last_words}")


def _linked_at(program: Path, function: str) -> int:
    places = [at for at, _, name in elf.functions(program.read_bytes()) if name == function]
    if len(places) != 1:
        raise InfraError(f"{function} is not in it once", place=str(program))
    return places[0]


def same_code(image_code: bytes, code: bytes, filled: Collection[int]) -> bool:
    """True when an image's code of a function is an object's.

    filled: offsets of bytes that the linker fills.  Else only what objtool makes no-ops may differ.
    """
    if len(image_code) != len(code):
        return False
    at = 0
    while at < len(code):
        if at not in filled and image_code[at] != code[at]:
            patched = next(
                (nop for nop, over in _NOPS if image_code.startswith(nop, at) and code[at] in over),
                None,
            )
            if patched is None:
                return False
            at += len(patched)
            continue
        at += 1
    return True
