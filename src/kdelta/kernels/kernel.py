# SPDX-License-Identifier: GPL-2.0-or-later
"""A kernel to boot: one image whose bytes are known, and where it comes from."""

from __future__ import annotations

import contextlib
import functools
import zlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kdelta import options
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.files import digest_of, path_of, sha256_of
from kdelta.kernels.image import BadImage, configuration, inspect, unpacked_kernel
from kdelta.sample import KernelIdentity


class Flavour(StrEnum):
    """Debian's configurations of one release."""

    CLOUD = "cloud"
    GENERIC = "generic"
    RT = "rt"

    def suffix(self, arch: str) -> str:
        """What it adds to the release string: "-cloud-amd64", "-amd64", "-rt-amd64"."""
        return f"-{arch}" if self is Flavour.GENERIC else f"-{self}-{arch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One resolved kernel.  Empty strings and None: not known, never guessed."""

    reference: str  # what the user wrote
    release: str  # uname -r
    arch: str  # Debian's name
    image: Path
    image_sha256: str
    version: str = ""  # Debian package version
    flavour: str = ""
    config: Path | None = None
    config_sha256: str = ""
    build_id: str = ""  # of a vmlinux; a compressed image does not carry it readably
    suite: str = ""  # suites that offer the package, ", " between them
    package: str = ""  # name of the package that holds the image
    name: str = ""  # of a kernel built from source: "6.17.8+mincore-present-first"
    source: str = ""  # of such a kernel: git tree id and configuration
    compiler: str = ""  # of such a kernel: first line of `cc --version`; of a file: as it tells

    def check(self) -> None:
        """Raise InfraError when the image is no longer, to the byte, the one that was resolved."""
        try:
            same = digest_of(self.image) == self.image_sha256
        except OSError as error:
            why = f"the kernel image cannot be read: {error.strerror}"
            raise InfraError(why, place=str(self.image)) from error
        if not same:
            raise InfraError(
                "the kernel image is another one than when this began",
                place=str(self.image),
                action="leave it as it is while it is measured, and run again",
            )

    def identity(self) -> KernelIdentity:
        """The identity stored with results; build id and compiler are read back in the guest."""
        own = self._options()
        form = options.FORMAT if own else 1
        shared = set(KernelIdentity.__struct_fields__) - {"options", "options_format"}
        fields = {name: getattr(self, name) for name in shared}
        return KernelIdentity(options=own, options_format=form, **fields)

    def _options(self) -> tuple[str, ...]:
        if self.config:
            return _recorded(self.config)
        return _embedded(self.image, self.image_sha256) if self.reference[:5] == "file:" else ()


@functools.cache
def _embedded(image: Path, _digest: str) -> tuple[str, ...]:
    """What an image that comes without a configuration says itself."""
    try:
        return options.recorded(configuration(image))
    except (KdeltaError, zlib.error):
        return ()


@functools.cache
def _recorded(config: Path) -> tuple[str, ...]:
    return options.recorded(config.read_text(errors="replace"))


def kernel_of_file(reference: str, arch: str | None = None) -> Kernel:
    """The kernel of file:PATH, used where it lies; arch: what it has to be.  Raises SpecError."""
    path = path_of(reference.removeprefix("file:")).absolute()
    try:
        facts = inspect(path)
        digest = sha256_of(path)
    except BadImage as error:
        raise SpecError(f"not a usable kernel image: {error}", place=str(path)) from error
    except OSError as error:
        raise SpecError(
            f"the kernel image cannot be read: {error.strerror}",
            place=str(path),
            action="name an existing bzImage, Image or vmlinux after file:",
        ) from error
    if arch is not None and facts.arch != arch:
        raise SpecError(
            f"the kernel image is for {facts.arch or 'an unknown machine'}, not for {arch}",
            place=str(path),
            action=f"choose the architecture with: --arch {facts.arch}" if facts.arch else "",
        )
    with contextlib.suppress(InfraError):  # without the program that unpacks it QEMU will tell
        unpacked_kernel(path)
    return Kernel(
        reference=reference,
        release=facts.release,
        arch=facts.arch,
        image=path,
        image_sha256=digest,
        build_id=facts.build_id,
        compiler=facts.compiler,
    )
