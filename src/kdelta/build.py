# SPDX-License-Identifier: GPL-2.0-or-later
"""C programs made on this machine when they are first needed, cached by what went into them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache as remember
from pathlib import Path

from kdelta import cache, process
from kdelta.errors import BuildError, InfraError

_TIMEOUT_S = 120.0


def compiled(
    name: str,
    sources: Sequence[Path],
    *,
    compiler: str,
    flags: Sequence[str],
    package: str,
) -> Path:
    """The program or library `name`, compiled from the C files among sources (others: headers).

    package: the Debian packages that bring the compiler, for the error sentence.
    Raises BuildError when there is no compiler or it fails.
    """
    texts = [path.read_bytes() for path in sources]
    version = _compiler_version(compiler, package)
    key = cache.digest(name, version, *flags, *texts)

    def make(folder: Path) -> None:
        units = [str(path) for path in sources if path.suffix == ".c"]
        argv = [compiler, *flags, *units, "-o", str(folder / name)]
        try:
            process.run(argv, timeout=_TIMEOUT_S)
        except InfraError as error:
            raise BuildError(
                f"{name} does not compile: {error.cause}",
                place=str(sources[0]),
                action=f"is its C library there? On Debian: apt-get install {package}",
            ) from error

    return cache.entry("build", key, make) / name


@remember
def _compiler_version(compiler: str, package: str) -> str:
    try:
        return process.run([compiler, "--version"], timeout=_TIMEOUT_S).stdout
    except InfraError as error:
        raise BuildError(
            f"no C compiler {compiler}: {error.cause}", action=f"apt-get install {package}"
        ) from error
