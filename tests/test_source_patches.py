# SPDX-License-Identifier: GPL-2.0-or-later
"""Patches, series, what is undone, and replaced files on git trees."""

from __future__ import annotations

import base64
import contextlib
import quopri
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

import kernel_tree
from kdelta import data
from kdelta.archive import apt, index
from kdelta.cli.main import cli
from kdelta.errors import InfraError, SpecError
from kdelta.source import patches, tree_reference
from kdelta.source.tree import SourceTree, of_commit, of_folder
from kdelta.transplant import releases

PATCH = f"A patch of ours.\n\n{kernel_tree.diff('pte + {}')}"
TWO = PATCH.replace("{}", "2").encode()


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    return of_folder(kernel_tree.make(tmp_path / "linux"))


def patch(tmp_path: Path, name: str, content: str = "2") -> Path:
    path = tmp_path / name
    path.write_text(PATCH.replace("{}", content))
    return path


def mincore(tree: SourceTree, tree_id: str) -> str:
    found = SourceTree(name="", tree=tree_id, line="", objects=tree.objects).read("mm/mincore.c")
    assert found is not None
    return found.decode()


def applied(tree: SourceTree, word: Path | str) -> SourceTree:
    return tree_reference.applied(tree, [tree_reference.of_word(str(word))])


def mail(
    subject: str, body: bytes, encoding: str = "8bit", kind: str = "text/plain; charset=utf-8"
) -> bytes:
    head = (
        f"From mboxrd@z Thu Jan  1 00:00:00 1970\nFrom: A <a@example.org>\nSubject: {subject}\n"
        f"Content-Type: {kind}\nContent-Transfer-Encoding: {encoding}\n\n"
    )
    return head.encode() + body + b"\n"


def test_a_patch_is_applied_to_the_index_alone(tree: SourceTree, tmp_path: Path) -> None:
    assert "pte + 2" in mincore(tree, patches.applied(tree.tree, [patch(tmp_path, "a.patch")]))
    assert "pte + FIRST" in (tmp_path / "linux/mm/mincore.c").read_text()


def test_a_patch_that_does_not_fit_says_where(tree: SourceTree, tmp_path: Path) -> None:
    once = patches.applied(tree.tree, [patch(tmp_path, "a.patch")])
    with pytest.raises(SpecError, match=r"does not apply: mm/mincore\.c:5"):
        patches.applied(once, [patch(tmp_path, "a.patch")])


def test_a_patch_cannot_leave_the_tree(tree: SourceTree, tmp_path: Path) -> None:
    bad = tmp_path / "bad.patch"
    bad.write_text("--- /dev/null\n+++ b/../escaped\n@@ -0,0 +1 @@\n+x\n")
    with pytest.raises(SpecError, match="does not apply"):
        patches.applied(tree.tree, [bad])
    assert not list(tmp_path.rglob("escaped"))


NEW = "diff --git a/mm/x b/mm/x\nnew file mode {}\n--- /dev/null\n+++ b/mm/x\n@@ -0,0 +1 @@\n+{}\n"
CHANGE = NEW.format("100644", "x")


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "is empty"), ("hello\n", "no patch"), (CHANGE[:28], "no patch"),
     (CHANGE.replace("0,0", "9" * 400), "number"), (CHANGE.replace("x b", "x\033 b"), "control"),
     (CHANGE.replace("b/mm/x", '"b/mm/\\n"'), "control"),
     (CHANGE.replace("+x", '+#include "/dev/zero"'), '"/dev/zero"'),
     *((NEW.format(mode, ""), f"file mode {mode}") for mode in ("060644", "104755", "160000"))],
)  # fmt: skip
def test_what_no_patch_of_a_kernel_has_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "no.patch").write_text(content)
    with pytest.raises(SpecError, match=words), patches.reading([tmp_path / "no.patch"]):
        pass


def series(tmp_path: Path, *mails: bytes) -> Path:
    box = tmp_path / "series.mbox"
    box.write_bytes(b"".join(mails))
    return box


def test_a_mailbox_is_applied_in_the_order_of_its_numbers(tree: SourceTree, tmp_path: Path) -> None:
    second = PATCH.replace("FIRST", "2").replace("{}", "3").encode()
    box = series(
        tmp_path,
        mail("Re: [PATCH v2 1/2] mm: two", b"> quoted\n" + second),
        mail("[PATCH v2 2/2] mm: three", base64.encodebytes(second), "base64"),
        mail("[PATCH v2 0/2] mm: a series", b"Why.\n"),
        mail("[PATCH v2 1/2] mm: two", quopri.encodestring(TWO), "quoted-printable"),
    )
    made = applied(tree, box)
    assert "pte + 3" in mincore(tree, made.tree)
    assert made.variants == ("series",)


def attached(body: bytes) -> bytes:
    parts = (b"Content-Type: text/plain\n\nSee below.\n", b"Content-Type: text/x-patch\n\n" + body)
    return b"".join(b"--x\n" + part for part in parts) + b"--x--\n"


WITH_CR = TWO.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    "mails",
    [
        [mail("mm: two", TWO), mail("Re: mm: two", b"> " + TWO)],  # a single one needs no tag
        [mail("[PATCH] =?utf-8?q?mm=3A_two?=", TWO)],
        [mail("[PATCH] =?none?q?x?=", TWO)],
        [mail("[PATCH] =?utf-8?b?!!!?=", TWO)],
        [mail("[PATCH] mm: two", attached(TWO), kind="multipart/mixed; boundary=x")],
        [mail("[PATCH] mm: two", base64.encodebytes(WITH_CR), "base64", kind="text/plain")],
        [mail("[PATCH] mm: two", WITH_CR, kind="text/plain")],
    ],
)
def test_a_patch_is_read_however_it_is_mailed(
    tree: SourceTree, tmp_path: Path, mails: list[bytes]
) -> None:
    assert "pte + 2" in mincore(tree, applied(tree, series(tmp_path, *mails)).tree)


@pytest.mark.parametrize(
    "content", [b"From " + b"x" * 100, b"From a Thu Jan  1 00:00:00 1970\n" * 501, b"From \0\n"]
)
def test_what_is_no_mailbox_is_refused(tree: SourceTree, tmp_path: Path, content: bytes) -> None:
    box = series(tmp_path, content)
    with pytest.raises(SpecError, match="the mailbox holds"):
        applied(tree, box)


@pytest.mark.parametrize(
    ("subjects", "words"),
    [
        (("[PATCH 2/3] mm: two",), "patches 2 of 3"),
        (("[PATCH 1/0] mm: a",), "a patch 1/0, which no series has"),
        ((f"[PATCH 1/{'9' * 400}] mm: a",), "a patch 1/999"),
        (("[PATCH] mm: a", "[PATCH v2] mm: a"), "v1, v2"),
        ((), "no patch"),
    ],
)
def test_what_is_no_whole_series_is_refused(
    tree: SourceTree, tmp_path: Path, subjects: tuple[str, ...], words: str
) -> None:
    mails = [mail(subject, TWO) for subject in subjects]
    box = series(tmp_path, *(mails or [mail("hello", b"how are you\n")]))
    with pytest.raises(SpecError, match=words):
        applied(tree, box)


def test_a_commit_is_undone_below_later_ones(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    bad = kernel_tree.commit(root, kernel_tree.MINCORE.replace("FIRST", "FIRST + 7"), "slow")
    later = kernel_tree.MINCORE.replace("Counts what", "Counts all that")  # of its context
    kernel_tree.commit(root, later.replace("FIRST", "FIRST + 7"), "later")
    tree = of_commit(root, "HEAD")
    made = applied(tree, f"undo={root}@{bad}")
    assert made.read("mm/mincore.c") == later.encode()
    assert made.line == tree.line


def test_a_commit_of_another_repository_is_applied_and_undone(tmp_path: Path) -> None:
    """Programs that its configuration names are never started."""
    root = kernel_tree.committed(tmp_path / "linux")
    ran = tmp_path / "ran"
    program = kernel_tree.script(tmp_path / "program", f"touch {ran}")
    slow = kernel_tree.commit(root, kernel_tree.MINCORE.replace("FIRST", "FIRST + 7"), "slow")
    for name in ("core.fsmonitor", "diff.external", "diff.x.textconv", "diff.x.command"):
        kernel_tree.git(root, "config", name, str(program))
    (root / ".git/info/attributes").write_text("* diff=x\n")
    release = of_folder(kernel_tree.make(tmp_path / "release"))
    with_it = applied(release, f"{root}@HEAD")
    assert b"FIRST + 7" in (with_it.read("mm/mincore.c") or b"")
    without = applied(with_it, f"undo={root}@{slow[:10]}")
    assert without.tree == release.tree
    assert without.variants == ("HEAD", f"undo-{slow[:10]}")
    with pytest.raises(SpecError, match="cannot be undone: mm/mincore"):
        applied(release, f"undo={root}@HEAD")
    with pytest.raises(SpecError, match="is no commit with one parent"):
        applied(release, f"undo={root}@HEAD~1")
    assert releases.parse(f"6.17+undo={root}@HEAD") == ("6.17", (f"undo={root}@HEAD",))
    (variant,) = tree_reference.parse(f"tree:6.17+undo={root}@HEAD").variants
    assert (variant.file, variant.undone) == ("linux@HEAD", True)
    with variant.opened() as patch:
        assert "+\treturn pte + FIRST + 7;" in patch.read_text()
    assert not ran.exists()


def test_one_file_is_replaced(tree: SourceTree, tmp_path: Path) -> None:
    other = tmp_path / "edited.c"
    other.write_text("int edited;\n")
    assert mincore(tree, applied(tree, f"mm/mincore.c={other}").tree) == "int edited;\n"
    with pytest.raises(SpecError, match="no file mm/none"):
        applied(tree, f"mm/none.c={other}")


def test_a_variant_without_effect_is_refused(tree: SourceTree, tmp_path: Path) -> None:
    same = tmp_path / "same.c"
    same.write_text(kernel_tree.MINCORE)
    with pytest.raises(SpecError, match="changes nothing"):
        applied(tree, f"mm/mincore.c={same}")


def test_an_unknown_variant_names_those_that_are_there() -> None:
    with pytest.raises(SpecError, match="mincore-present-first"):
        tree_reference.of_word("faster")
    with pytest.raises(SpecError, match=r"mm/\.\./\.\./x is no file of a source"):
        tree_reference.of_word("mm/../../x=/etc/passwd")


def test_quilt_series_are_read_in_order(tmp_path: Path) -> None:
    listed = "# all\nbugfix/b.patch\n\na.patch -p1\n"
    kernel_tree.written(tmp_path, {"bugfix/b.patch": "x", "a.patch": "x", "series": listed})
    assert [path.name for path in patches.quilt(tmp_path)] == ["b.patch", "a.patch"]
    (tmp_path / "series").write_text("../../etc/passwd\n")
    with pytest.raises(SpecError, match="not there"):
        patches.quilt(tmp_path)


def test_the_variants_that_are_brought_along_are_small_patches() -> None:
    names = tree_reference.brought_along()
    assert len(names) >= 5
    bench = Path(__file__).parents[1] / "bench" / "variants"
    files = [data.directory("variants") / f"{name}.patch" for name in names]
    for file in [*files, *bench.glob("*.patch")]:
        text = file.read_text()
        assert text.startswith("SPDX-License-Identifier: GPL-2.0-or-later\n")
        assert text.count("diff --git a/") <= 3  # what vmsplice() calls lies in three files
        assert text.count("\n") <= 450


# The index of source packages, and what a release's files are


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


def package(version: str, base: str = "mirror:/") -> index.SourcePackage:
    upstream = version.rpartition("-")[0]
    text = STANZA.format(version=version, upstream=upstream, zero="0" * 64, digest="1" * 64, size=7)
    found = index._source(text.encode(), index.ListFile(suite="sid", base=base, path=Path()))
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
    assert index._source(text.encode(), index.ListFile(suite="", base="", path=Path())) is None


def test_a_release_is_upstream_s_and_a_package_version_debian_s() -> None:
    offered = [package("6.12.107-1"), package("6.12.107-2"), package("7.3~rc7-1~exp1")]
    (upstream,) = tree_reference._listed("6.12.107", offered)
    assert [file.name for file in upstream] == ["linux_6.12.107.orig.tar.xz"]
    (debian,) = tree_reference._listed("6.12.107-1", offered)
    assert [file.name for file in debian] == [
        "linux_6.12.107.orig.tar.xz", "linux_6.12.107-1.debian.tar.xz",
    ]  # fmt: skip
    assert len(tree_reference._listed("7.3-rc7", offered)) == 1


def test_the_same_release_in_two_places_is_tried_in_both() -> None:
    offered = [package("6.12.107-1"), package("6.12.107-1~deb12u1", "security:/")]
    assert len(tree_reference._listed("6.12.107", offered)) == 2


def located(text: str) -> str:
    return tree_reference.located(tree_reference.parse(text)).release


def test_a_series_is_its_newest_whose_source_is_there(
    mirror: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = [package(f"{name}-1") for name in ("6.17.8", "6.17.13", "6.17.9", "6.12.1")]
    monkeypatch.setattr(tree_reference, "_packages", lambda _: offered)
    assert located("tree:deb:6.17") == located("tree:6.17") == "6.17.8"
    for gone in ("6.17.13", "6.17.10"):  # listed, and not even that
        with pytest.raises(SpecError, match=rf"no source of kernel {gone}; .* deb:6\.17\.8"):
            located(f"tree:deb:{gone}")
    with pytest.raises(SpecError, match=r"no source of kernel 6\.12; name a source"):
        located("tree:6.12")
    mirror["linux_6.17.9.orig.tar.xz"] = mirror["linux_6.17.8.orig.tar.xz"]
    assert located("tree:6.17") == "6.17.9"


def test_without_a_mirror_a_series_is_the_newest_in_the_cache(
    mirror: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreached(_progress: object) -> tuple[index.SourcePackage, ...]:
        raise InfraError("no package mirror could be reached")

    tree_reference.of_release("6.17.8")
    mirror.clear()
    monkeypatch.setattr(tree_reference, "_packages", unreached)
    assert located("tree:6.17") == "6.17.8"


@pytest.mark.usefixtures("mirror")
def test_a_source_is_written_where_it_can_be_edited(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    for status in (0, 2):  # never into a folder that is there
        ended = CliRunner().invoke(cli, ["kernels", "source", "6.17.8", "-o", str(folder)])
        assert (2 if isinstance(ended.exception, SpecError) else ended.exit_code) == status
    assert kernel_tree.git(folder, "log", "--format=%s").strip() == "Linux 6.17.8"
    assert not kernel_tree.git(folder, "status", "--porcelain")
    assert (folder / "mm/kept.o").is_file()
    assert (folder / "Kbuild").read_text() == "# nothing\n"


@pytest.mark.parametrize("text", ["", "6.17", "../etc", "6.17.8/x"])
def test_what_is_no_version_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_reference, "_packages", lambda _: ())
    with pytest.raises(SpecError):
        tree_reference.of_release(text)


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
        _self: apt.SourceArchive, files: Sequence[index.Package], _progress: object = None
    ) -> Iterator[tuple[Path, ...]]:
        if any(file.name not in there or "gone" in file.uri for file in files):
            raise apt.GoneError("the archive lists it but no longer has it")
        yield tuple(there[file.name] for file in files)

    monkeypatch.setattr(apt.SourceArchive, "all_fetched", all_fetched)
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
    monkeypatch.setattr(tree_reference, "_packages", lambda _: (package("6.17.8-1"),))
    return there


@pytest.mark.usefixtures("mirror")
def test_a_tarball_becomes_a_tree_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, float]] = []
    tree = tree_reference.of_release("6.17.8", progress=lambda *each: shown.append(each))
    assert ("unpacking linux_6.17.8.orig.tar.xz", 100.0) in shown
    assert tree.read("mm/kept.o") == b"in the tarball, so in the source"
    assert (tree.name, tree.line) == ("6.17.8", "deb-6.17.8")
    monkeypatch.setattr(tree_reference, "_fetched", lambda *_: pytest.fail("fetched again"))
    assert tree_reference.of_release("6.17.8") == tree


@pytest.mark.usefixtures("mirror")
def test_debian_s_patches_are_applied_when_asked_for() -> None:
    assert tree_reference.of_release("6.17.8-1").read("Kbuild") == b"# nothing\n# Debian\n"
    assert tree_reference.of_release("6.17.8").read("Kbuild") == b"# nothing\n"


@pytest.mark.usefixtures("mirror")
def test_a_file_that_is_gone_is_looked_for_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = (package("6.17.8-1", "here:/"), package("6.17.8-2", "gone:/"))
    monkeypatch.setattr(tree_reference, "_packages", lambda _: offered)
    assert tree_reference.of_release("6.17.8").read("Kbuild")


def test_a_release_that_is_gone_everywhere_says_so(mirror: dict[str, Path]) -> None:
    mirror.clear()
    with pytest.raises(SpecError, match=r"the archive has no source of kernel 6\.17\.8"):
        tree_reference.of_release("6.17.8")


def test_a_damaged_tarball_is_this_machine_s_fault(mirror: dict[str, Path]) -> None:
    path = mirror["linux_6.17.8.orig.tar.xz"]
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InfraError, match="cannot be unpacked"):
        tree_reference.of_release("6.17.8")
