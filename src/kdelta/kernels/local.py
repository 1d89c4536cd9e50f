# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels in files: a bzImage, an Image or a vmlinux that the user names."""

from __future__ import annotations

from pathlib import Path

from kdelta.errors import SpecError
from kdelta.files import sha256_of
from kdelta.kernels.image import BadImage, inspect
from kdelta.kernels.kernel import Kernel


def resolve(reference: str, arch: str) -> Kernel:
    """The kernel of file:PATH, used where it lies.

    Raises SpecError when the file is not a whole kernel image for `arch`.
    """
    path = Path(reference.removeprefix("file:")).expanduser().absolute()
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
    if facts.arch != arch:
        raise SpecError(
            f"the kernel image is for {facts.arch or 'an unknown machine'}, not for {arch}",
            place=str(path),
            action=f"choose the architecture with: --arch {facts.arch}" if facts.arch else "",
        )
    return Kernel(
        reference=reference,
        release=facts.release,
        version="",
        arch=facts.arch,
        flavour="",
        image=path,
        image_sha256=digest,
        config=None,
        config_sha256="",
        build_id=facts.build_id,
        suite="",
        package="",
        compiler=facts.compiler,
    )
