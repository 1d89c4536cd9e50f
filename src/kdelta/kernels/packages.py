# SPDX-License-Identifier: GPL-2.0-or-later
"""Line tables and modules of the archive's kernels, out of their packages.

Of linux-image-*-dbg, which is large, only the vmlinux is read, and only its line information is
kept.  It is used when its code equals that of the image to the byte.
"""

from __future__ import annotations

import lzma
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kdelta import arch, cache, elf, process, toolchains
from kdelta.archive import deb
from kdelta.archive.apt import Archive, Progress
from kdelta.archive.index import Package
from kdelta.errors import InfraError, SpecError
from kdelta.kernels import reference
from kdelta.kernels.image import unpacked_kernel
from kdelta.kernels.kernel import Kernel

_DEBUG = "debug"
_LINES = "lines.elf"
_DEBUG_PACKAGES = r"linux-image-\d[^ ]*-dbg"
_OBJCOPY_S = 600.0
_OF_CODE = 4  # SHF_EXECINSTR
_PE_AT = 0x3C  # where a DOS header says that the PE header is
_SIGNED = ((0x58, 4), (0xA8, 8))  # of a PE header of 64 bits: CheckSum, Certificate Table
# Where variables are, and how to unwind: no line needs it.
_LEFT_OUT = (
    ".debug_loc*",
    ".debug_frame",
    ".debug_pub*",
    ".debug_gnu*",
    ".BTF*",
    ".orc*",
    ".rela*",
)


def cached_lines(image_sha256: str) -> Path | None:
    """The line tables of a package's image, when they were fetched; damaged ones are removed."""
    place = cache.found(_DEBUG, image_sha256)
    if place is None:
        return None
    if not cache.unchanged(place):
        cache.discard(place)
        return None
    return place / _LINES


def debug_package(release: str, version: str, archive: Archive) -> Package | None:
    """The package with the line tables of a package's kernel; None when the archive has none."""
    name = f"linux-image-{release}-dbg"
    found = archive.packages("debug", _DEBUG_PACKAGES)
    return next((row for row in found if (row.name, row.version) == (name, version)), None)


def fetch_lines(
    package: Package, kernel: Kernel, archive: Archive, progress: Progress | None = None
) -> Path:
    """The line tables of a package's image, from its debug package.

    Raises SpecError when they are another kernel's, InfraError when they cannot be had.
    """

    def make(folder: Path) -> None:
        with (
            archive.fetched(package, progress) as file,
            tempfile.TemporaryDirectory(prefix="debug-", dir=folder) as scratch,
        ):
            if progress:
                progress(f"unpacking {package.name}", 0.0)
            whole = Path(scratch, "vmlinux")
            release = kernel.release
            places = ("boot/vmlinux-{}", "lib/modules/{}/vmlinux", "vmlinux-{}")
            deb.extract(file, {f"usr/lib/debug/{name.format(release)}": whole for name in places})
            check_code(whole, kernel)
            _reduce(whole, folder / _LINES, kernel.arch)

    return cache.entry(_DEBUG, kernel.image_sha256, make) / _LINES


def check_code(program: Path, kernel: Kernel) -> None:
    """Raise SpecError unless all code of an ELF file is what the image has at its address."""
    image = unpacked_kernel(kernel.image)
    seen = 0
    try:
        with program.open("rb") as stream, elf.opened(stream) as file:
            for part in file.iter_sections():
                head = part.header
                if head["sh_flags"] & _OF_CODE and head["sh_type"] == "SHT_PROGBITS":
                    seen += head["sh_size"]
                    theirs = image.read(head["sh_addr"], head["sh_size"])
                    if _unsigned(theirs) != _unsigned(part.data()):
                        raise SpecError(
                            f"its code is not that of {kernel.release}'s image",
                            place=f"{program.name}: {part.name}",
                        )
    except FileNotFoundError as error:
        raise SpecError("there is no vmlinux in it", place=kernel.release) from error
    except elf.BadElf as error:
        raise InfraError(f"it is damaged: {error}", place=program.name) from error
    if not seen:
        raise SpecError("it has no code to compare", place=program.name)


def _unsigned(code: bytes) -> bytes:
    """Code without what a signature changes in it.

    arm64's Image begins with a PE header, and so does its code: signing it for secure boot writes
    the file's checksum and where the signature lies (PE Format, "Optional Header").
    """
    header = int.from_bytes(code[_PE_AT : _PE_AT + 4], "little")
    if not code.startswith(b"MZ") or code[header : header + 4] != b"PE\0\0":
        return code
    plain = bytearray(code)
    for at, size in _SIGNED:
        plain[header + at : header + at + size] = bytes(size)
    return bytes(plain)


def _reduce(whole: Path, target: Path, architecture: str) -> None:
    """Keep of an ELF file what tells lines."""
    left_out = [word for name in _LEFT_OUT for word in ("-R", name)]
    objcopy = toolchains.binutils("objcopy", arch.of(architecture))
    argv = [objcopy, "--only-keep-debug", "--wildcard", *left_out, str(whole), str(target)]
    process.run(argv, timeout=_OBJCOPY_S, env={"LC_ALL": "C"})


_FORMAT = "1"
_MODULE_PACKAGES = r"linux-(?:image|modules)-(?:unsigned-)?\d[^ ]*"
_MAX_BYTES = 32 << 20  # of one module, uncompressed
_MAX_DEPTH = 32
# Only where block devices and what they build on lie: all modules would be hundreds of megabytes.
_MEMBER = re.compile(
    r"(?:usr/)?lib/modules/[^/]+/kernel/(?:crypto|drivers/block|lib|mm)/(?:[\w.+-]+/)*"
    r"(?P<name>[\w-]+)\.ko(?P<packing>\.\w+)?"
)


class NoModules(Exception):  # noqa: N818  no error: what needs them is skipped
    """The modules of a kernel cannot be had; the text says why."""


def modules_in_order(kernel: Kernel, wanted: Sequence[str]) -> tuple[Path, ...]:
    """Uncompressed modules to load, one after the other, so that all wanted ones are loaded.

    A wanted one that the kernel does not have as a module is left out.  Fetched once, and kept in
    the cache by the package's digest.  Raises NoModules for a kernel of no package or whose
    package has gone, InfraError when it cannot be fetched.
    """
    package = _package_of_modules(kernel)
    key = cache.digest(_FORMAT, package.sha256, *wanted)

    def make(folder: Path) -> None:
        for number, (name, content) in enumerate(_fetched_modules(kernel, package, wanted).items()):
            place = folder / f"{number:02}"
            place.mkdir()
            (place / f"{name}.ko").write_bytes(content)

    return tuple(sorted(cache.entry("modules", key, make).glob("*/*.ko")))


def _package_of_modules(kernel: Kernel) -> Package:
    """The package with a kernel's modules: its image's until 6.18, then one of their own."""
    if not kernel.package:
        raise NoModules(f"{kernel.reference} did not come in a package, which would have modules")
    own = f"linux-modules-{kernel.release}"
    offered = reference.opened(kernel.arch).packages("modules", _MODULE_PACKAGES)
    found = {package.name: package for package in offered if package.version == kernel.version}
    if own in found:
        return found[own]
    if kernel.package.startswith("linux-image-") and kernel.package in found:
        return found[kernel.package]
    raise NoModules(f"the archive does not have {own} {kernel.version}")


def _fetched_modules(kernel: Kernel, package: Package, wanted: Sequence[str]) -> dict[str, bytes]:
    """Content of the needed modules by name, in loading order."""
    with reference.opened(kernel.arch).fetched(package) as path:
        packed = deb.read_matching(path, _MEMBER, limit=_MAX_BYTES)
    found: dict[str, bytes] = {}
    for member, content in packed.items():
        match = _MEMBER.fullmatch(member)
        if match is not None:
            found[_plain(match["name"])] = _unpacked_module(content, match["packing"] or "", member)
    order: dict[str, bytes] = {}
    for name in wanted:
        if name in found:
            _add_module(name, found, order, 0)
    return order


def _add_module(name: str, found: Mapping[str, bytes], order: dict[str, bytes], depth: int) -> None:
    """Put a module into the order, what it depends on before it."""
    if name in order:
        return
    if name not in found or depth > _MAX_DEPTH:
        raise InfraError(f"the kernel's package lacks the module {name} that another depends on")
    for other in module_depends(found[name]):
        _add_module(other, found, order, depth + 1)
    order[name] = found[name]


def module_depends(module: bytes) -> tuple[str, ...]:
    """Modules that a module's own .modinfo names.  Raises InfraError when it is not a module."""
    try:
        with elf.opened(module) as file:
            section = file.get_section_by_name(".modinfo")
            text = section.data().decode() if section is not None else ""
    except elf.BadElf as error:
        raise InfraError(f"a kernel module is damaged: {error}") from error
    for line in text.split("\0"):
        key, _, value = line.partition("=")
        if key == "depends":
            return tuple(_plain(name) for name in value.split(",") if name)
    return ()


def _plain(name: str) -> str:
    """The kernel knows no difference between - and _ in a module's name."""
    return name.replace("-", "_")


def _unpacked_module(content: bytes, packing: str, member: str) -> bytes:
    if not packing:
        return content
    if packing != ".xz":
        raise InfraError(f"a kernel module is packed as {packing}", place=member)
    unpacker = lzma.LZMADecompressor()
    try:
        whole = unpacker.decompress(content, _MAX_BYTES)
    except lzma.LZMAError as error:
        raise InfraError(f"a kernel module is damaged: {error}", place=member) from error
    if not unpacker.eof:
        raise InfraError("a kernel module is damaged or too large", place=member)
    return whole
