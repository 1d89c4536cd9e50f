# SPDX-License-Identifier: GPL-2.0-or-later
"""The index of source packages, and what a release's files are."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import kernel_tree
from kdelta.archive import apt, index
from kdelta.archive.apt import GoneError, SourceArchive
from kdelta.archive.index import ListFile, Package, SourcePackage
from kdelta.errors import InfraError, SpecError
from kdelta.source import fetch

STANZA = """\
Package: linux
Binary: linux-doc, linux-source
Version: {version}
Checksums-Sha1:
 0000 10 linux_{upstream}.orig.tar.xz
Checksums-Sha256:
 {zero} 5 linux_{version}.dsc
 {digest} {size} linux_{upstream}.orig.tar.xz
 {zero} 6 linux_{version}.debian.tar.xz
Directory: pool/main/l/linux
"""


def package(version: str, base: str = "mirror:/") -> SourcePackage:
    upstream = version.rpartition("-")[0]
    text = STANZA.format(version=version, upstream=upstream, zero="0" * 64, digest="1" * 64, size=7)
    found = index._source(text.encode(), ListFile(suite="sid", base=base, path=Path()))
    assert found is not None
    return found


def test_a_stanza_names_files_with_signed_digests() -> None:
    orig = package("6.17.8-1~bpo13+1").file(".orig.tar.xz")
    assert orig is not None
    assert orig.uri == "mirror:/pool/main/l/linux/linux_6.17.8.orig.tar.xz"
    assert (orig.size, orig.sha256) == (7, "1" * 64)


@pytest.mark.parametrize(
    "text", ["Package: linux\n", "Package: linux\nVersion: 1\nChecksums-Sha256:\n x\n"]
)
def test_a_damaged_stanza_is_left_out(text: str) -> None:
    assert index._source(text.encode(), ListFile(suite="", base="", path=Path())) is None


def test_a_release_is_upstream_s_and_a_package_version_debian_s() -> None:
    offered = [package("6.12.107-1"), package("6.12.107-2"), package("7.3~rc7-1~exp1")]
    (upstream,) = fetch._choose("6.12.107", offered)
    assert [file.name for file in upstream] == ["linux_6.12.107.orig.tar.xz"]
    (debian,) = fetch._choose("6.12.107-1", offered)
    assert [file.name for file in debian] == [
        "linux_6.12.107.orig.tar.xz", "linux_6.12.107-1.debian.tar.xz",
    ]  # fmt: skip
    assert len(fetch._choose("7.3-rc7", offered)) == 1


def test_the_same_release_in_two_places_is_tried_in_both() -> None:
    offered = [package("6.12.107-1"), package("6.12.107-1~deb12u1", "security:/")]
    assert len(fetch._choose("6.12.107", offered)) == 2


def test_an_unknown_release_names_its_neighbours() -> None:
    with pytest.raises(SpecError, match=r"no source of kernel 6\.17\.9.*6\.17\.8"):
        fetch._choose("6.17.9", [package("6.17.8-1"), package("6.12.1-1")])


@pytest.mark.parametrize("text", ["", "6.17", "../etc", "6.17.8/x"])
def test_what_is_no_version_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_packages", lambda _: ())
    with pytest.raises(SpecError):
        fetch.of_release(text)


def test_only_source_lists_are_asked_for() -> None:
    mirrors = apt.Mirrors(archive=("mirror:/debian",), security=())
    text = apt.stanzas(mirrors, "Sources", "amd64", Path("/keyring.gpg"))
    assert text.count("Types: deb-src\n") == len(apt.RELEASE_SUITES)
    assert "Targets: Sources\n" in text
    assert "Types: deb\n" not in text


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Files by name that the archive has; others it lists and no longer has."""
    there: dict[str, Path] = {}

    @contextlib.contextmanager
    def all_fetched(
        _self: SourceArchive, files: Sequence[Package], _progress: object = None
    ) -> Iterator[tuple[Path, ...]]:
        if any(file.name not in there or "gone" in file.uri for file in files):
            raise GoneError("the archive lists it but no longer has it")
        yield tuple(there[file.name] for file in files)

    monkeypatch.setattr(SourceArchive, "all_fetched", all_fetched)
    root = kernel_tree.make(tmp_path / "linux-6.17.8")
    (root / "mm/kept.o").write_text("in the tarball, so in the source")
    orig = tmp_path / "linux_6.17.8.orig.tar.xz"
    with tarfile.open(orig, "w:xz") as tar:
        tar.add(root, arcname="linux-6.17.8")
    there[orig.name] = orig
    patches = tmp_path / "debian/patches"
    patches.mkdir(parents=True)
    (patches / "series").write_text("fix.patch\n")
    (patches / "fix.patch").write_text(
        "--- a/Kbuild\n+++ b/Kbuild\n@@ -1 +1,2 @@\n # nothing\n+# Debian\n"
    )
    debian = tmp_path / "linux_6.17.8-1.debian.tar.xz"
    with tarfile.open(debian, "w:xz") as tar:
        tar.add(tmp_path / "debian", arcname="debian")
    there[debian.name] = debian
    monkeypatch.setattr(fetch, "_packages", lambda _: (package("6.17.8-1"),))
    return there


@pytest.mark.usefixtures("mirror")
def test_a_tarball_becomes_a_tree_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = fetch.of_release("6.17.8")
    assert tree.read("mm/kept.o") == b"in the tarball, so in the source"
    assert (tree.name, tree.line) == ("6.17.8", "deb-6.17.8")
    monkeypatch.setattr(fetch, "_fetched", lambda *_: pytest.fail("fetched again"))
    assert fetch.of_release("6.17.8") == tree


@pytest.mark.usefixtures("mirror")
def test_debian_s_patches_are_applied_when_asked_for() -> None:
    assert fetch.of_release("6.17.8-1").read("Kbuild") == b"# nothing\n# Debian\n"
    assert fetch.of_release("6.17.8").read("Kbuild") == b"# nothing\n"


@pytest.mark.usefixtures("mirror")
def test_a_file_that_is_gone_is_looked_for_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = (package("6.17.8-1", "here:/"), package("6.17.8-2", "gone:/"))
    monkeypatch.setattr(fetch, "_packages", lambda _: offered)
    assert fetch.of_release("6.17.8").read("Kbuild")


def test_a_release_that_is_gone_everywhere_says_so(mirror: dict[str, Path]) -> None:
    mirror.clear()
    with pytest.raises(InfraError, match=r"the source of 6\.17\.8 but its mirror no longer"):
        fetch.of_release("6.17.8")


def test_a_damaged_tarball_is_this_machine_s_fault(mirror: dict[str, Path]) -> None:
    path = mirror["linux_6.17.8.orig.tar.xz"]
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InfraError, match="cannot be unpacked"):
        fetch.of_release("6.17.8")
