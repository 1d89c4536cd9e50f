# SPDX-License-Identifier: GPL-2.0-or-later
"""Compilers by name ("gcc-14", "clang-19"): this system's, or unpacked privately from the archive.

<cache>/toolchains/<name>_<version>/ holds the compiler's packages and, beside them, the C library
and the other libraries it was built for.  Its programs are patched to use those, so that nothing
of this system changes and a compiler of a newer release runs on an older one.  The assembler and
the linker of gcc are this system's.
"""

from __future__ import annotations

import platform
import re
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from debian.debian_support import Version

from kdelta import arch, cache, process
from kdelta.archive import deb
from kdelta.archive.apt import Archive, Progress
from kdelta.archive.index import Package
from kdelta.errors import InfraError, SpecError

_NAME = re.compile(r"(gcc|clang)-([1-9]\d?)")
_OLDEST = {"gcc": 8, "clang": 11}
_COMMAND_S = 60.0
_RECORD = "kdelta-toolchain.version"


class Family(StrEnum):
    """Whose compiler it is."""

    GCC = "gcc"
    CLANG = "clang"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A compiler that runs here."""

    name: str  # "gcc-14"
    family: Family
    cc: Path  # the compiler
    tools: Path | None  # LLVM's programs (ld.lld, llvm-nm ...), named without version
    banner: str  # first line of `cc --version`
    target: str = "amd64"  # Debian's name of what it compiles for

    @property
    def make_arguments(self) -> tuple[str, ...]:
        """What kbuild's make is given, always the same: programs of the host stay gcc's."""
        if self.tools is None:
            crossing = f"{self.cc.parent}/{arch.of(self.target).gnu}-"
            words = (f"CROSS_COMPILE={crossing}",) if self.target != arch.native().debian else ()
            return (f"CC={self.cc}", *words)
        return (
            f"LLVM={self.tools}/", "HOSTCC=gcc", "HOSTCXX=g++", "HOSTLD=ld", "HOSTAR=ar",
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOffer:
    """A compiler that can be had.  suites: of the archive; empty for this system's."""

    name: str
    version: str
    suites: tuple[str, ...]
    fetched: bool


def parse(name: str) -> tuple[Family, int]:
    """Family and major version of a compiler's name.  Raises SpecError."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[2]) < _OLDEST[match[1]]:
        action = "name one as gcc-14 or clang-19; see: kdelta tools compiler list"
        raise SpecError(f"{name[:40]!r} is not a compiler that kdelta knows", action=action)
    return Family(match[1]), int(match[2])


def find(name: str, *, progress: Progress | None = None) -> Toolchain:
    """The compiler of that name: this system's, else the cache's, else fetched.  Raises SpecError
    when nobody has it, InfraError when it cannot be fetched or does not run.
    """
    return _system(name, *parse(name)) or _cached(name) or fetch(name, progress=progress)


def crossing(architecture: arch.Arch, name: str = "") -> Toolchain:
    """Debian's gcc ("": its choice) for another architecture.  Raises SpecError, InfraError."""
    if name and parse(name)[0] is not Family.GCC:
        action = f"name a gcc, or leave it out: Debian's for {architecture.debian} is taken"
        raise SpecError(f"{name} builds kernels of {arch.native().debian} only", action=action)
    wanted = f"{architecture.gnu}-{name or 'gcc'}"
    program = process.which(wanted)
    if program is None:
        packages = arch.compiler_package(architecture)
        cause = f"there is no {wanted}, which builds kernels of {architecture.debian}"
        raise InfraError(cause, action=f"on Debian: apt-get install {packages}")
    return Toolchain(
        name=name or wanted,
        family=Family.GCC,
        cc=program,
        tools=None,
        banner=_banner(program),
        target=architecture.debian,
    )


def fetch(name: str, *, progress: Progress | None = None) -> Toolchain:
    """That compiler from the first suite that has it, unpacked in the cache and seen to compile."""
    family, major = parse(name)
    archive = Archive(arch.native().debian)
    archive.refresh(progress=progress)
    main, suite = _choose(name, archive)
    key = _key(name, main.version)

    def fill(folder: Path) -> None:
        if family is Family.CLANG:
            wanted = [f"{part}-{major}" for part in ("lld", "llvm")]
            wanted.append(f"libclang-common-{major}-dev")
            linked = [main.name, *wanted[:2]]
        else:
            wanted = [main.name.replace("gcc", "cpp", 1), f"libgcc-{major}-dev"]
            linked = [wanted[0]]
        near = deb.newest(_compilers(archive), suite)
        missing = [package for package in wanted if package not in near]
        if missing:
            raise InfraError(f"the archive's {suite} has {name} but not {', '.join(missing)}")
        own = {package: near[package] for package in wanted} | {main.name: main}
        deb.unpack_programs(
            list(own.values()),
            folder,
            final=cache.folder("toolchains") / key,
            archive=archive,
            suite=suite,
            linked=[own[package] for package in linked],
            progress=progress,
        )
        (folder / _RECORD).write_text(main.version)

    folder = cache.entry("toolchains", key, fill, check=lambda folder: _checked(name, folder))
    return _checked(name, folder)


def offers(*, progress: Progress | None = None) -> tuple[CompilerOffer, ...]:
    """Every compiler that `find` can give, by name; what it would give of each."""
    archive = Archive(arch.native().debian)
    archive.refresh(progress=progress)
    names = {_name_of(package.name) for package in _compilers(archive)} - {""}
    return tuple(_offer(name, archive) for name in sorted(names, key=parse))


def _offer(name: str, archive: Archive) -> CompilerOffer:
    here = _system(name, *parse(name))
    if here is not None:
        return CompilerOffer(name=name, version=here.banner, suites=(), fetched=True)
    main, _ = _choose(name, archive)
    fetched = cache.has("toolchains", _key(name, main.version))
    return CompilerOffer(name=name, version=main.version, suites=main.suites, fetched=fetched)


# -- this system's ------------------------------------------------------------------------------


def _system(name: str, family: Family, major: int) -> Toolchain | None:
    program = process.which(name)
    if program is None:
        return None
    tools = Path(f"/usr/lib/llvm-{major}/bin") if family is Family.CLANG else None
    needed = ("ld.lld", "llvm-nm", "llvm-objcopy") if tools else ()
    if tools and not all((tools / tool).exists() for tool in needed):
        return None
    return Toolchain(name=name, family=family, cc=program, tools=tools, banner=_banner(program))


def _banner(program: Path) -> str:
    done = process.run([str(program), "--version"], timeout=_COMMAND_S, quick=True)
    return done.told(".+").partition("\n")[0][:200]


# -- the archive's ------------------------------------------------------------------------------


def _key(name: str, package_version: str) -> str:
    number = package_version.rpartition(":")[2]  # a colon would end a path in a search list
    return re.sub(r"[^\w.+-]", "_", f"{name}_{number}")


def _cached(name: str) -> Toolchain | None:
    folders = sorted(
        cache.entries("toolchains", f"{name}_"), key=lambda folder: Version(_version(folder))
    )
    while folders:
        newest = folders.pop()
        if cache.unchanged(newest) and cache.keep(newest):
            cache.mark_used(newest)
            return _checked(name, newest)
        cache.discard(newest)  # it would only be found again
    return None


def _version(prefix: Path) -> str:
    return (prefix / _RECORD).read_text()


def _checked(name: str, prefix: Path) -> Toolchain:
    """The toolchain that lies there, after it compiled something.  Raises InfraError."""
    family, major = parse(name)
    gnu = arch.native().gnu
    tools = prefix / "usr/lib" / f"llvm-{major}" / "bin" if family is Family.CLANG else None
    own = prefix / "usr/bin" / f"{gnu}-gcc-{major}"
    gcc = own if own.exists() else own.with_name(f"gcc-{major}")
    program = tools / "clang" if tools else gcc
    with tempfile.TemporaryDirectory(prefix="kdelta-toolchain-") as scratch:
        source = Path(scratch, "one.c")
        source.write_text("int one(int x) { return x + 1; }\n")
        argv = [str(program), "-O2", "-c", "-o", str(Path(scratch, "one.o")), str(source)]
        done = process.run(argv, timeout=_COMMAND_S, check=False)
    if done.returncode:
        action = "gcc's assembler comes from this system: is binutils installed?"
        raise InfraError(
            f"{name} {_version(prefix)} does not run here: {done.last_words}", action=action
        )
    return Toolchain(name=name, family=family, cc=program, tools=tools, banner=_banner(program))


def _gnu() -> str:
    return arch.native().gnu.replace("_", "-")


def _compilers(archive: Archive) -> tuple[Package, ...]:
    # gcc-13 and later: the compiler is in gcc-13-x86-64-linux-gnu, gcc-13 only names it.
    pattern = rf"(?:gcc|cpp)-\d+(?:-{_gnu()})?|libgcc-\d+-dev|(?:clang|llvm|lld)-\d+"
    pattern += r"|libclang-common-\d+-dev"
    return archive.packages("compilers", pattern)


def _name_of(package: str) -> str:
    match = re.fullmatch(rf"(gcc|clang)-(\d+)(?:-{_gnu()})?", package)
    known = match is not None and int(match[2]) >= _OLDEST[match[1]]
    return f"{match[1]}-{match[2]}" if match and known else ""


def _choose(name: str, archive: Archive) -> tuple[Package, str]:
    named = [package for package in _compilers(archive) if _name_of(package.name) == name]
    for suite in archive.suites():
        family = deb.family(suite)
        near = [package for package in named if set(package.suites) & set(family)]
        if near:
            long = [package for package in near if package.name != name]
            return max(long or near, key=lambda package: Version(package.version)), suite
    cause = f"neither this system nor the archive has {name}"
    raise SpecError(cause, action="see what can be had with: kdelta tools compiler list")


def binutils(name: str, architecture: arch.Arch) -> str:
    """A program of GNU binutils for an architecture.  Raises InfraError that says how to get it."""
    native = process.which(name) if platform.machine() == architecture.uname else None
    if found := process.which(f"{architecture.gnu}-{name}") or native:
        return str(found)
    package = f"binutils-{architecture.gnu.replace('_', '-')}"
    cause = f"there is no {name} for {architecture.debian}"
    raise InfraError(cause, action=f"apt-get install {package}")
