# SPDX-License-Identifier: GPL-2.0-or-later
"""Packages of the archive, unpacked without root and without installing them.

Programs are unpacked so that they run here whatever release they were built for: the libraries that
they depend on lie beside them, and the programs are patched to use these.  The C library and its
loader are included only when this machine's is older: with this machine's own, programs can load
what is compiled here.
"""

from __future__ import annotations

import contextlib
import lzma
import platform
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from debian.debian_support import Version

from kdelta import arch, elf, process
from kdelta.archive.apt import Archive, Progress
from kdelta.archive.index import Package
from kdelta.errors import InfraError

_LIMIT_BYTES = 1 << 30


def extract(package: Path, wanted: Mapping[str, Path]) -> None:
    """Copy files out of a package: path in it, without "./", to target.  Raises InfraError."""
    left = dict(wanted)
    for path, content in _files(package, left.__contains__, _LIMIT_BYTES):
        left.pop(path).write_bytes(content)
        if not left:
            return


def read_matching(package: Path, name: re.Pattern[str], *, limit: int) -> dict[str, bytes]:
    """Content of files of at most `limit` bytes, by path without "./".  Raises InfraError."""
    return dict(_files(package, lambda path: name.fullmatch(path) is not None, limit))


def _files(package: Path, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    with _content(package) as archive:
        for member in archive:
            path = member.name.removeprefix("./")
            if member.isfile() and wanted(path):
                stream = archive.extractfile(member)
                if stream is None or member.size > limit:
                    raise _damaged(package)
                yield path, stream.read()


def unpack(package: Path, target: Path) -> None:
    """Unpack a whole package below `target`.  Raises InfraError when it is damaged."""
    with _content(package) as archive:
        archive.extractall(target, filter="tar")


@contextlib.contextmanager
def _content(package: Path) -> Iterator[tarfile.TarFile]:
    from debian.arfile import ArError
    from debian.debfile import DebError, DebFile

    try:
        with DebFile(str(package)) as found:
            yield found.data.tgz()
    except (DebError, ArError, tarfile.TarError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise _damaged(package) from error
    except OSError as error:
        if error.errno is not None:  # without a number it is python-debian's, of a header
            raise
        raise _damaged(package) from error


def _damaged(package: Path) -> InfraError:
    return InfraError(
        "the package is damaged", place=str(package), action="delete the file and run again"
    )


_LIBRARY = re.compile(r"(?!.*-dev$)(?:lib[a-z0-9].*|zlib1g)$")
_LIBC = "libc6"
_MOST_PACKAGES = 200
_PATCH_S = 60.0
_FOLDERS = ("usr/bin", "usr/lib/gcc", "usr/libexec/gcc", "usr/lib/llvm-*/bin")


def family(suite: str) -> tuple[str, ...]:
    """Suites whose packages are built to work with those of `suite`."""
    base = suite.partition("-")[0]
    found = (base, f"{base}-security", f"{base}-updates")
    return found if suite in found else (*found, suite)


def newest(packages: Iterable[Package], suite: str) -> dict[str, Package]:
    """The newest package of each name in a suite's family."""
    near = [package for package in packages if set(package.suites) & set(family(suite))]
    return {p.name: p for p in sorted(near, key=lambda package: Version(package.version))}


def unpack_programs(
    packages: Sequence[Package],
    folder: Path,
    *,
    final: Path,
    archive: Archive,
    suite: str,
    linked: Sequence[Package],
    progress: Progress | None = None,
    edit: Callable[[], None] = lambda: None,
) -> None:
    """Unpack packages below `folder`, which will be `final`, so that their programs run there.

    linked: those whose Depends name the libraries that the programs need; they come from the family
    of `suite`.  edit: called when all files are there and still as in their packages.  Raises
    InfraError when a package is missing or damaged.
    """
    libraries = _libraries(archive, suite, linked)
    libc = libraries.get(_LIBC)
    own, number = platform.libc_ver()
    here = Version(number if own == "glibc" else "0")
    if libc is not None and here >= Version(Version(libc.version).upstream_version):
        del libraries[_LIBC]
    with archive.all_fetched((*packages, *libraries.values()), progress) as files:
        for file in files:
            unpack(file, folder)
    edit()
    _patch(folder, final, archive, own_loader=_LIBC in libraries)


def _libraries(archive: Archive, suite: str, roots: Iterable[Package]) -> dict[str, Package]:
    found: dict[str, Package] = {}
    wanted = _library_names(roots)
    while wanted:
        pattern = "|".join(re.escape(name) for name in sorted(wanted))
        near = newest(archive.packages("libraries", pattern), suite)
        found |= near
        if len(found) > _MOST_PACKAGES:
            raise InfraError(f"a program of {suite} depends on more than {_MOST_PACKAGES} packages")
        wanted = _library_names(near.values()) - set(found)
    return found


def _library_names(packages: Iterable[Package]) -> set[str]:
    """First alternatives of the Depends of packages, as far as they are shared libraries."""
    from debian.deb822 import PkgRelation

    stated = ", ".join(package.depends for package in packages if package.depends)
    relations = PkgRelation.parse_relations(stated) if stated else ()
    return {part[0]["name"] for part in relations if _LIBRARY.match(part[0]["name"])}


def _patch(folder: Path, final: Path, archive: Archive, *, own_loader: bool) -> None:
    """Make the programs in `folder`, which will be `final`, use the libraries there."""
    gnu = arch.native().gnu
    places = [place for place in (f"usr/lib/{gnu}", f"lib/{gnu}") if (folder / place).is_dir()]
    arguments = ["--force-rpath", "--set-rpath", ":".join(str(final / place) for place in places)]
    if own_loader:
        loaders = [loader for at in places for loader in (folder / at).glob("ld-linux*.so.*")]
        if not loaders:
            raise InfraError("the archive's C library has no loader", place=str(folder))
        arguments += ["--set-interpreter", str(final / loaders[0].relative_to(folder))]
    with _patchelf(archive) as patchelf:
        for program in _programs(folder):
            process.run([patchelf, *arguments, str(program)], timeout=_PATCH_S)


@contextlib.contextmanager
def _patchelf(archive: Archive) -> Iterator[str]:
    """patchelf: this system's, else the archive's for as long as the context lasts."""
    found = process.which("patchelf")
    if found is not None:
        yield str(found)
        return
    packages = archive.packages("patchelf", "patchelf")
    if not packages:
        raise InfraError("there is no patchelf", action="apt-get install patchelf")
    with tempfile.TemporaryDirectory(prefix="kdelta-patchelf-") as scratch:
        with archive.fetched(packages[0]) as file:
            unpack(file, Path(scratch))
        yield f"{scratch}/usr/bin/patchelf"


def _programs(folder: Path) -> Iterator[Path]:
    for pattern in _FOLDERS:
        for place in folder.glob(pattern):
            for path in sorted(place.rglob("*")):
                if path.is_file() and not path.is_symlink() and _has_loader(path):
                    yield path


def _has_loader(path: Path) -> bool:
    with path.open("rb") as stream, contextlib.suppress(elf.BadElf), elf.opened(stream) as file:
        return any(part["p_type"] == "PT_INTERP" for part in file.iter_segments())
    return False
