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

    It is known by names and contents of its sources and by flags, which therefore hold no path:
    where headers are searched follows from where they lie, and wherever that is, the same sources
    are the same program.  package: the Debian packages that bring the compiler, for the error
    sentence.  Raises BuildError when there is no compiler or it fails.
    """
    texts = [part for path in sources for part in (path.name, path.read_bytes())]
    version = _compiler_version(compiler, package)
    key = cache.digest(name, version, *flags, *texts)

    def make(folder: Path) -> None:
        units = [str(path) for path in sources if path.suffix == ".c"]
        headers = dict.fromkeys(path.parent for path in sources if path.suffix == ".h")
        searched = [f"-I{path}" for path in headers]
        argv = [compiler, *flags, *searched, *units, "-o", str(folder / name)]
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
