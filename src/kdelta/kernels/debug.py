# SPDX-License-Identifier: GPL-2.0-or-later
"""Line tables of the archive's kernels, from linux-image-*-dbg, which is large, when asked.

Only the package's vmlinux is read, and only its line information is kept.  It is used when its code
equals that of the image to the byte.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from kdelta import arch, cache, elf, process, toolchains
from kdelta.archive import deb
from kdelta.archive.apt import Progress
from kdelta.archive.index import Package
from kdelta.archive.root import Archive
from kdelta.errors import InfraError, SpecError
from kdelta.kernels import payload
from kdelta.kernels.kernel import Kernel

_KIND = "debug"
_NAME = "lines.elf"
_SELECTION = r"linux-image-\d[^ ]*-dbg"
_OBJCOPY_S = 600.0
_CODE = 4  # SHF_EXECINSTR
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


def kept(image_sha256: str) -> Path | None:
    """The line tables of a package's image, when they were fetched; damaged ones are removed."""
    place = cache.found(_KIND, image_sha256)
    if place is None:
        return None
    if not cache.unchanged(place):
        cache.discard(place)
        return None
    return place / _NAME


def package_of(release: str, version: str, archive: Archive) -> Package | None:
    """The package with the line tables of a package's kernel; None when the archive has none."""
    name = f"linux-image-{release}-dbg"
    found = archive.packages("debug", _SELECTION)
    return next((row for row in found if (row.name, row.version) == (name, version)), None)


def fetch(
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
            check(whole, kernel)
            _reduce(whole, folder / _NAME, kernel.arch)

    return cache.entry(_KIND, kernel.image_sha256, make) / _NAME


def check(program: Path, kernel: Kernel) -> None:
    """Raise SpecError unless all code of an ELF file is what the image has at its address."""
    image = payload.unpacked(kernel.image)
    seen = 0
    try:
        with program.open("rb") as stream, elf.opened(stream) as file:
            for part in file.iter_sections():
                head = part.header
                if head["sh_flags"] & _CODE and head["sh_type"] == "SHT_PROGBITS":
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
