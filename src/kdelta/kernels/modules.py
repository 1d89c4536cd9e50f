# SPDX-License-Identifier: GPL-2.0-or-later
"""Modules of the archive's kernels, out of their packages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kdelta import cache, elf
from kdelta.archive import deb
from kdelta.archive.index import Package
from kdelta.errors import InfraError
from kdelta.kernels import reference
from kdelta.kernels.image import BadImage, decompressed
from kdelta.kernels.kernel import Kernel

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
    for name in (own, kernel.package):
        if name in found and name.startswith(("linux-image-", own)):
            return found[name]
    raise NoModules(f"the archive does not have {own} {kernel.version}")


def _fetched_modules(kernel: Kernel, package: Package, wanted: Sequence[str]) -> dict[str, bytes]:
    with reference.opened(kernel.arch).fetched(package) as path:
        packed = deb.read_matching(path, _MEMBER, limit=_MAX_BYTES)
    found: dict[str, bytes] = {}
    for member, content in packed.items():
        if match := _MEMBER.fullmatch(member):
            try:
                plain = decompressed(content, _MAX_BYTES) if match["packing"] else content
            except BadImage as error:
                raise InfraError(f"a kernel module is damaged: {error}", place=member) from error
            found[_plain(match["name"])] = plain
    order: dict[str, bytes] = {}
    for name in filter(found.__contains__, wanted):
        _add_module(name, found, order, 0)
    return order


def _add_module(name: str, found: Mapping[str, bytes], order: dict[str, bytes], depth: int) -> None:
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
        text = elf.section(module, ".modinfo").decode()
    except elf.BadElf as error:
        raise InfraError(f"a kernel module is damaged: {error}") from error
    named = next((line[8:] for line in text.split("\0") if line.startswith("depends=")), "")
    return tuple(_plain(name) for name in named.split(",") if name)


def _plain(name: str) -> str:
    """The kernel knows no difference between - and _ in a module's name."""
    return name.replace("-", "_")
