# SPDX-License-Identifier: GPL-2.0-or-later
"""Modules of a kernel: found in its package, in the order in which they load, or a reason."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kdelta import process
from kdelta.archive import deb
from kdelta.archive.index import Package
from kdelta.errors import InfraError
from kdelta.files import sha256_of
from kdelta.kernels import modules, reference
from kdelta.kernels.kernel import Kernel

RELEASE = "6.12.117+deb13-cloud-amd64"
VERSION = "6.12.117-1"
# Module, folder below kernel/, what it depends on; names with "-" load as with "_".
MODULES = (
    ("zram", "drivers/block/zram", "zsmalloc,lz4_compress,lz4hc-compress"), ("zsmalloc", "mm", ""),
    ("lz4", "crypto", "lz4_compress"), ("lz4-compress", "lib/lz4", ""),
    ("lz4hc_compress", "lib/lz4", "lz4_compress"), ("unwanted", "lib", "zsmalloc"),
    ("elsewhere", "drivers/net", ""),
)  # fmt: skip

pytestmark = pytest.mark.skipif(process.which("dpkg-deb") is None, reason="needs dpkg-deb")


class Shelf:
    """An archive whose packages are files here; counts how often one is fetched."""

    def __init__(self, *packages: tuple[Package, Path]) -> None:
        self._packages = packages
        self.fetches = 0

    def packages(self, _selection: str, _name: str) -> tuple[Package, ...]:
        return tuple(package for package, _ in self._packages)

    @contextmanager
    def fetched(self, package: Package) -> Iterator[Path]:
        self.fetches += 1
        yield next(path for known, path in self._packages if known == package)


def module(folder: Path, name: str, depends: str) -> bytes:
    """An object file with the section that modpost would give it."""
    source = folder / "module.c"
    source.write_text(
        '__attribute__((section(".modinfo"), used)) static const char info[] ='
        f' "license=GPL\\0depends={depends}\\0name={name}";\n'
    )
    process.run(["gcc", "-c", str(source), "-o", str(folder / "module.o")], timeout=60)
    return (folder / "module.o").read_bytes()


def built(folder: Path, suffix: str, *, without: str = "") -> Path:
    """A package with the modules, plain or packed by their suffix."""
    root = folder / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        f"Package: p\nVersion: {VERSION}\nArchitecture: all\nMaintainer: n <n@n>\nDescription: d\n"
    )
    for name, place, depends in MODULES:
        target = root / "usr/lib/modules" / RELEASE / "kernel" / place / f"{name}.ko{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        content = module(folder, name, depends)
        if name != without:
            target.write_bytes(lzma.compress(content) if suffix == ".xz" else content)
    package = folder / "package.deb"
    process.run(["dpkg-deb", "-Znone", "--build", str(root), str(package)], timeout=60)
    return package


def described(path: Path, name: str) -> Package:
    return Package(
        name=name, version=VERSION, arch="amd64", depends="", size=path.stat().st_size,
        sha256=sha256_of(path), uri="", suites=("trixie",),
    )  # fmt: skip


def kernel(package: str) -> Kernel:
    return Kernel(
        reference="6.12", release=RELEASE, version=VERSION, arch="amd64", flavour="cloud",
        image=Path("/nowhere/vmlinuz"), image_sha256="0" * 64, package=package,
    )  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of an image and its modules, packed."""
    return built(tmp_path_factory.mktemp("image"), ".xz")


@pytest.fixture
def shelf(image: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return opened(monkeypatch, (described(image, f"linux-image-{RELEASE}"), image))


def opened(monkeypatch: pytest.MonkeyPatch, *packages: tuple[Package, Path]) -> Shelf:
    shelf = Shelf(*packages)
    monkeypatch.setattr(reference, "opened", lambda _arch: shelf)
    return shelf


def names(paths: tuple[Path, ...]) -> list[str]:
    return [path.stem for path in paths]


def test_what_a_module_depends_on_comes_first(shelf: Shelf) -> None:
    found = modules.modules_in_order(kernel(f"linux-image-{RELEASE}"), ["lz4", "zram"])
    assert names(found) == ["lz4_compress", "lz4", "zsmalloc", "lz4hc_compress", "zram"]
    assert modules.modules_in_order(kernel(f"linux-image-{RELEASE}"), ["lz4", "zram"]) == found
    assert {path.read_bytes()[:4] for path in found} == {b"\x7fELF"}
    assert shelf.fetches == 1


def test_what_is_no_module_of_this_kernel_is_left_out(shelf: Shelf) -> None:
    assert modules.modules_in_order(kernel(f"linux-image-{RELEASE}"), ["elsewhere", "none"]) == ()
    assert shelf.fetches == 1


def test_plain_modules_in_a_package_of_their_own(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = built(tmp_path, "")
    opened(
        monkeypatch,
        (described(image, f"linux-image-{RELEASE}"), image),
        (described(own, f"linux-modules-{RELEASE}"), own),
    )
    found = modules.modules_in_order(kernel(f"linux-binary-{RELEASE}"), ["zsmalloc"])
    assert names(found) == ["zsmalloc"]


def test_a_kernel_without_a_package_says_so(shelf: Shelf) -> None:
    lone = replace(kernel(""), reference="file:bzImage")
    with pytest.raises(modules.NoModules, match="file:bzImage did not come in a package"):
        modules.modules_in_order(lone, ["zram"])
    assert shelf.fetches == 0


def test_a_package_that_has_gone_is_named(shelf: Shelf) -> None:
    told = rf"the archive does not have linux-modules-{RELEASE} {VERSION}".replace("+", r"\+")
    with pytest.raises(modules.NoModules, match=told):
        modules.modules_in_order(kernel(f"linux-binary-{RELEASE}"), ["zram"])
    with pytest.raises(modules.NoModules, match="does not have"):
        modules.modules_in_order(
            replace(kernel(f"linux-image-{RELEASE}"), version="6.12.1-1"), ["zram"]
        )
    assert shelf.fetches == 0


def test_a_missing_dependency_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = built(tmp_path, "", without="zsmalloc")
    opened(monkeypatch, (described(path, f"linux-image-{RELEASE}"), path))
    with pytest.raises(InfraError, match="lacks the module zsmalloc that another depends on"):
        modules.modules_in_order(kernel(f"linux-image-{RELEASE}"), ["zram"])


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"\x7fELF" + b"\xff" * 100])
def test_a_damaged_module_is_an_error(damage: bytes) -> None:
    with pytest.raises(InfraError, match="a kernel module is damaged"):
        modules.module_depends(damage)


def test_members_of_a_package_are_bounded(image: Path) -> None:
    pattern = modules._MEMBER
    found = deb.read_matching(image, pattern, limit=1 << 20)
    assert len(found) == len(MODULES) - 1  # what lies elsewhere is not read
    with pytest.raises(InfraError, match="damaged"):
        deb.read_matching(image, pattern, limit=100)
