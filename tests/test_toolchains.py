# SPDX-License-Identifier: GPL-2.0-or-later
"""Compilers from the archive: which is meant, what belongs to it, and that it runs from the cache.

The compiler here is a script in a package made on the spot; packages, dpkg-deb and the cache are
real.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kdelta import arch, cache, process, toolchains
from kdelta.archive.index import Package
from kdelta.errors import InfraError, SpecError
from kernel_tree import script

GNU = arch.native().gnu
DEBIAN_GNU = GNU.replace("_", "-")
LOADER = {"x86_64-linux-gnu": "ld-linux-x86-64.so.2", "aarch64-linux-gnu": "ld-linux-aarch64.so.1"}


@dataclass
class FakeArchive:
    """What kdelta.archive.root.Archive offers, over packages made by `add`."""

    folder: Path
    offered: list[Package] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def add(
        self,
        name: str,
        version: str,
        suite: str,
        depends: str = "",
        files: dict[str, str] | None = None,
    ) -> None:
        """A package with files: path -> content; an executable one begins with #!."""
        tree = self.folder / f"{name}_{version.replace(':', '_')}_{suite}"
        control = tree / "DEBIAN" / "control"
        control.parent.mkdir(parents=True)
        control.write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@y>\n"
            "Description: x\n"
        )
        for path, content in (files or {}).items():
            file = tree / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            file.chmod(0o755 if content.startswith("#!") else 0o644)
        deb = tree.parent / f"{tree.name}.deb"
        subprocess.run(
            ["dpkg-deb", "--build", str(tree), str(deb)], check=True, stdout=subprocess.DEVNULL
        )
        self.offered.append(
            Package(
                name=name, version=version, arch="all", depends=depends, size=deb.stat().st_size,
                sha256="0" * 64, uri=str(deb), suites=(suite,),
            )
        )  # fmt: skip

    def refresh(self, **_: object) -> None:
        """Nothing to do."""

    def suites(self) -> dict[str, str]:
        """Oldest first, as the real one has them."""
        return dict.fromkeys(("bookworm", "bookworm-security", "trixie", "sid"), "")

    def packages(self, _: str, name: str) -> tuple[Package, ...]:
        """Those whose name matches."""
        return tuple(p for p in self.offered if re.fullmatch(name, p.name))

    @contextlib.contextmanager
    def all_fetched(
        self, packages: Sequence[Package], _: object = None
    ) -> Iterator[tuple[Path, ...]]:
        """The packages' files."""
        self.taken += [f"{package.name} {package.version}" for package in packages]
        yield tuple(Path(package.uri) for package in packages)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeArchive:
    """The archive that toolchains uses, with a patchelf that writes down what it is asked."""
    fake = FakeArchive(tmp_path / "debs")
    monkeypatch.setattr(toolchains, "Archive", lambda *_: fake)
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    bin_folder = script(tmp_path / "bin/patchelf", f'echo "$@" >> {tmp_path}/patched').parent
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    return fake


def compiler(body: str = 'exec gcc "$@"') -> dict[str, str]:
    return {f"usr/bin/{GNU}-gcc-98": f"#!/bin/sh\n{body}\n"}


def gcc98(archive: FakeArchive, version: str, suite: str, body: str = 'exec gcc "$@"') -> None:
    """The packages of a gcc-98: its driver, its compiler proper, and their C library."""
    archive.add(f"gcc-98-{DEBIAN_GNU}", version, suite, "binutils", compiler(body))
    archive.add(
        f"cpp-98-{DEBIAN_GNU}", version, suite,
        "gcc-98-base (= 1), libc6 (>= 2.38), libmpc3 | libmpc4, zlib1g:any (>= 1)",
    )  # fmt: skip
    archive.add("libgcc-98-dev", version, suite, "libasan8, libgomp1")
    archive.add(
        "libc6", "2.41", suite, "libgcc-s1, libc6-dev", {f"usr/lib/{GNU}/{LOADER[GNU]}": ""}
    )
    archive.add("libmpc3", "1.3", suite, "libc6 (>= 2.38)")
    archive.add("zlib1g", "1.3", suite, "libc6")
    archive.add("libgcc-s1", "14", suite, "gcc-14-base, libc6")


def gcc98_with_cc1(archive: FakeArchive) -> None:
    """With a program beside the driver."""
    gcc98(archive, "98.1-2", "trixie")
    driver = archive.folder / f"gcc-98-{DEBIAN_GNU}_98.1-2_trixie"
    (driver / "usr/libexec/gcc").mkdir(parents=True)
    shutil.copy("/bin/true", driver / "usr/libexec/gcc/cc1")
    subprocess.run(["dpkg-deb", "--build", str(driver), archive.offered[0].uri], check=True)


@pytest.mark.parametrize(
    "name", ["gcc", "gcc-7", "gcc-123", "icc-12", "clang-9", "gcc-14;rm", "../gcc-14"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(SpecError, match="not a compiler that kdelta knows"):
        toolchains.parse(name)


def test_names() -> None:
    assert toolchains.parse("gcc-14") == (toolchains.Family.GCC, 14)
    assert toolchains.parse("clang-19") == (toolchains.Family.CLANG, 19)


def test_a_compiler_is_fetched_with_its_libraries_and_runs(
    archive: FakeArchive, tmp_path: Path
) -> None:
    gcc98_with_cc1(archive)
    chain = toolchains.find("gcc-98")
    assert chain.cc.is_relative_to(cache.root() / "toolchains" / "gcc-98_98.1-2")
    assert chain.make_arguments == (f"CC={chain.cc}",)
    assert "gcc" in chain.banner
    # Libraries of the compiler proper and theirs; none of what only its programs would use.
    assert {name.split()[0] for name in archive.taken} == {
        f"gcc-98-{DEBIAN_GNU}", f"cpp-98-{DEBIAN_GNU}", "libgcc-98-dev",
        "libc6", "libmpc3", "zlib1g", "libgcc-s1",
    }  # fmt: skip
    (patched,) = (tmp_path / "patched").read_text().splitlines()
    prefix = cache.root() / "toolchains" / "gcc-98_98.1-2"
    assert f"--set-interpreter {prefix}/usr/lib/{GNU}/{LOADER[GNU]} " in patched
    assert "cc1" in patched

    archive.taken.clear()
    assert toolchains.find("gcc-98") == chain
    assert archive.taken == []


def test_this_machine_s_c_library_serves_where_it_is_as_new(
    archive: FakeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program with an older C library could not load what is compiled here."""
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.41"))
    gcc98_with_cc1(archive)
    toolchains.find("gcc-98")
    assert "libc6 2.41" not in archive.taken
    assert "libmpc3 1.3" in archive.taken
    assert "--set-interpreter" not in (tmp_path / "patched").read_text()


def test_the_oldest_release_that_has_it_and_of_that_the_newest(archive: FakeArchive) -> None:
    gcc98(archive, "98.3-1", "sid")
    gcc98(archive, "98.1-1", "trixie")
    gcc98(archive, "98.1-2", "bookworm")
    archive.add(f"gcc-98-{DEBIAN_GNU}", "98.1-2+deb1", "bookworm-security", "", compiler())
    archive.add(f"cpp-98-{DEBIAN_GNU}", "98.1-2+deb1", "bookworm-security", "libc6")
    (offer,) = toolchains.offers()
    assert (offer.name, offer.version, offer.fetched) == ("gcc-98", "98.1-2+deb1", False)
    assert "gcc-98_98.1-2+deb1" in toolchains.find("gcc-98").cc.parts
    assert toolchains.offers()[0].fetched
    assert "libc6 2.41" in archive.taken


def test_a_compiler_that_does_not_run_is_not_kept(archive: FakeArchive) -> None:
    gcc98(archive, "98.1-1", "sid", body="echo GLIBC_2.99 not found >&2; exit 1")
    with pytest.raises(InfraError, match=r"gcc-98 98\.1-1 does not run here: GLIBC_2\.99"):
        toolchains.find("gcc-98")
    assert not list((cache.root() / "toolchains").glob("gcc-98*"))


def test_a_compiler_whose_files_changed_is_fetched_again(archive: FakeArchive) -> None:
    gcc98(archive, "98.1-1", "sid")
    program = toolchains.find("gcc-98").cc
    program.write_text(program.read_text().replace("gcc", "gcd"))
    archive.taken.clear()
    assert toolchains.find("gcc-98").cc.read_text() == '#!/bin/sh\nexec gcc "$@"\n'
    assert archive.taken


def test_a_package_that_is_missing_is_named(archive: FakeArchive) -> None:
    archive.add(f"gcc-98-{DEBIAN_GNU}", "98.1-1", "sid", "", compiler())
    with pytest.raises(
        InfraError, match=f"sid has gcc-98 but not cpp-98-{DEBIAN_GNU}, libgcc-98-dev"
    ):
        toolchains.find("gcc-98")


@pytest.mark.usefixtures("archive")
def test_none_has_it() -> None:
    with pytest.raises(SpecError, match="neither this system nor the archive has gcc-98"):
        toolchains.find("gcc-98")


def test_this_systems_compiler_comes_first(archive: FakeArchive, tmp_path: Path) -> None:
    gcc98(archive, "98.1-1", "sid")
    own = script(tmp_path / "bin" / "gcc-98", 'exec gcc "$@"')
    chain = toolchains.find("gcc-98")
    assert chain.cc == own
    assert archive.taken == []


def test_clang_brings_its_own_tools_and_leaves_the_hosts_to_gcc() -> None:
    chain = toolchains.Toolchain(
        name="clang-19", family=toolchains.Family.CLANG, cc=Path("/p/bin/clang"),
        tools=Path("/p/bin"), banner="",
    )  # fmt: skip
    assert chain.make_arguments[0] == "LLVM=/p/bin/"
    assert "HOSTCC=gcc" in chain.make_arguments


def test_a_missing_cross_compiler_is_named_with_its_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "which", lambda _name: None)
    with pytest.raises(
        InfraError, match=r"no riscv64-linux-gnu-gcc.*apt-get install gcc-riscv64-linux-gnu libc6"
    ):
        toolchains.crossing(arch.of("riscv64"))
    with pytest.raises(SpecError, match="clang-19 builds kernels of amd64 only"):
        toolchains.crossing(arch.of("arm64"), "clang-19")
