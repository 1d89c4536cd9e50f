# SPDX-License-Identifier: GPL-2.0-or-later
"""From trees to images: kept by content, warm, reproducible, and safe against what goes wrong.

Real make and gcc on a tree that builds as a kernel's does (kernel_tree.py); real kernels are built
in boot/test_source.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import kernel_tree
from kdelta import cache
from kdelta.bisect.history import tree_builder
from kdelta.cli.main import cli
from kdelta.codegen.table import of_sources
from kdelta.errors import InfraError
from kdelta.kernels import reference
from kdelta.run import arms
from kdelta.source import build, kconfig, make, tree_reference
from kdelta.source.make import SourceError
from kdelta.source.tree import SourceTree, of_commit, of_folder

pytestmark = pytest.mark.program

CONFIG = kconfig.Config(name="test", options={"SMP": "y", "REFUSED": "y"}, whole=False)


@pytest.fixture(autouse=True)
def _few_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_NEEDED", {"make": "make", "gcc": "gcc"})
    monkeypatch.setattr(make, "_HEADERS", {})
    make.check_tools.cache_clear()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return kernel_tree.make(tmp_path / "linux")


def built(tree: SourceTree) -> build.Build:
    return build.build(tree, CONFIG)


def changed(tree: SourceTree, tmp_path: Path, text: str, name: str = "edited") -> SourceTree:
    """A variant of a tree with another mm/mincore.c."""
    file = tmp_path / f"{name}.c"
    file.write_text(text)
    return tree_reference.applied(tree, [tree_reference.of_word(f"mm/mincore.c={file}")])


def compiled(item: build.Build) -> list[str]:
    return re.findall(r"^  CC +(\S+)", (item.folder / "build.log").read_text(), re.MULTILINE)


def test_a_tree_is_built_once(root: Path) -> None:
    first = built(of_folder(root))
    assert not first.cached
    assert first.record.release == "6.17.8-kdelta"
    assert b"kdelta 2026-01-01" in first.image.read_bytes()
    assert first.record.compiler.startswith("gcc")
    again = built(of_folder(root))
    assert again.cached
    assert again.image == first.image
    assert again.record == first.record


def test_what_a_configuration_does_not_grant_is_named(root: Path) -> None:
    made = built(of_folder(root))
    assert made.record.lost == ("CONFIG_REFUSED=y",)
    assert kconfig.parse((made.folder / "config").read_text()) == {"TINY": "y", "SMP": "y"}


def test_a_variant_compiles_what_it_changes_and_the_way_back_gives_the_same_bytes(
    root: Path, tmp_path: Path
) -> None:
    tree = of_folder(root)
    first = built(tree)
    slow = built(changed(tree, tmp_path, kernel_tree.MINCORE.replace("pte +", "pte - 3 +")))
    assert slow.image_sha256 != first.image_sha256
    assert slow.tree.title == f"{tree.name}+edited"
    assert compiled(slow) == ["mm/mincore.o"]
    (first.image.parent / "build.json").unlink()
    again = built(tree)
    assert not again.cached
    assert again.image_sha256 == first.image_sha256
    assert compiled(again) == ["mm/mincore.o"]


def test_nothing_is_compiled_for_a_file_that_nothing_needs(root: Path) -> None:
    built(of_folder(root))
    (root / "mm/mprotect.c").write_text("int more;\n")
    assert compiled(built(of_folder(root))) == []


def test_the_same_code_is_the_same_image(root: Path, tmp_path: Path) -> None:
    tree = of_folder(root)
    first = built(tree)
    null = built(changed(tree, tmp_path, "/* More words. */\n" + kernel_tree.MINCORE))
    assert not null.cached
    assert null.tree.tree != first.tree.tree
    assert null.image_sha256 == first.image_sha256


def test_the_user_s_folder_stays_as_it_is(root: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    built(of_folder(root))
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_a_header_is_seen(root: Path) -> None:
    first = built(of_folder(root))
    (root / "include/linux/mm.h").write_text("#define FIRST 2\n")
    assert built(of_folder(root)).image_sha256 != first.image_sha256


def test_caller_s_environment_decides_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (root / "Makefile").read_text()
    (root / "Makefile").write_text(f"ifneq ($(CROSS_COMPILE)$(LLVM),)\n$(error x)\nendif\n{text}")
    first = built(of_folder(root))
    names = (
        "KCFLAGS", "CC", "MAKEFLAGS", "KBUILD_BUILD_USER", "ARCH", "O", "CROSS_COMPILE", "LLVM",
    )  # fmt: skip
    for name in names:
        monkeypatch.setenv(name, "-fnonsense")
    (first.image.parent / "build.json").unlink()
    assert built(of_folder(root)).image_sha256 == first.image_sha256


def test_a_source_that_does_not_build_is_blamed_and_leaves_no_entry(
    root: Path, tmp_path: Path
) -> None:
    tree = of_folder(root)
    bad = changed(tree, tmp_path, "int present(int pte) { return gone; }\n")
    with pytest.raises(SourceError, match=r"edited does not build: \.\./mm/mincore\.c:1: .*gone"):
        built(bad)
    with pytest.raises(SourceError) as error:
        built(bad)
    assert "undeclared" in error.value.log.read_text()
    assert not list((cache.root() / "builds").iterdir())
    assert built(tree).image.is_file()


def test_a_full_disk_is_not_the_source_s_fault(root: Path) -> None:
    full = (root / "Makefile").read_text() + (
        "ifdef inside\nall_full:\n\t@echo 'cc: error writing to a.o: No space left on device'\n"
        "\t@false\nmm/mincore.o: all_full\nendif\n"
    )
    (root / "Makefile").write_text(full)
    with pytest.raises(InfraError, match="the disk is full") as error:
        built(of_folder(root))
    assert not isinstance(error.value, SourceError)


def test_a_damaged_image_is_built_again(root: Path) -> None:
    first = built(of_folder(root))
    first.image.write_bytes(b"damaged")
    again = built(of_folder(root))
    assert not again.cached
    assert again.image_sha256 == first.image_sha256


def test_files_that_somebody_changed_in_the_cache_are_put_right(root: Path) -> None:
    tree = of_folder(root)
    first = built(tree)
    (cache.root() / "trees" / tree.line / "src" / "mm/mincore.c").write_text("int wrong;\n")
    (first.image.parent / "build.json").unlink()
    assert built(tree).image_sha256 == first.image_sha256


def test_commits_follow_each_other_in_one_warm_directory(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    second = kernel_tree.commit(root, kernel_tree.MINCORE.replace("FIRST", "9"), "nine")
    shas = [built(of_commit(root, name)).image_sha256 for name in ("HEAD~1", second, "HEAD~1")]
    assert shas[0] == shas[2] != shas[1]
    assert len(list((cache.root() / "trees").iterdir())) == 1
    assert kernel_tree.git(root, "status", "--porcelain") == ""


def test_the_commits_of_a_bisection_are_built(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    first = kernel_tree.git(root, "rev-parse", "HEAD")
    texts = {"words": "FIRST /* now */", "broken": "BROKEN", "nine": "9"}
    words, broken, nine = (
        kernel_tree.commit(root, kernel_tree.MINCORE.replace("FIRST", text), name)
        for name, text in texts.items()
    )
    builder = tree_builder(root, tree_reference.parse(f"tree:{root}"))
    one, other, last = (builder(commit).kernel.image_sha256 for commit in (first, words, nine))
    assert one == other != last
    assert builder(nine).seconds == 0, "it was built again"
    with pytest.raises(SourceError, match="BROKEN"):
        builder(broken)
    assert kernel_tree.git(root, "status", "--porcelain") == ""


def test_a_killed_build_is_not_believed(root: Path) -> None:
    """What make left cut off is newer than its sources; only its note tells."""
    tree = of_folder(root)
    first = built(tree)
    (output,) = (cache.root() / "trees" / tree.line / "src").glob("kdelta-*")
    os.utime(output / "mm/.mincore.o.cmd", (1, 1))  # of the build before the one that was killed
    (output / ".kdelta-building").touch()
    time.sleep(0.01)
    (output / "mm/mincore.o").write_bytes(b"cut off")
    (first.image.parent / "build.json").unlink()
    assert built(tree).image_sha256 == first.image_sha256


def test_a_note_that_is_cut_off_goes(tmp_path: Path) -> None:
    marker = tmp_path / ".kdelta-building"
    marker.touch()
    time.sleep(0.01)
    whole = tmp_path / ".a.o.cmd"
    whole.write_text("savedcmd_a.o := cc\n\nsource_a.o := a.c\n\ndeps_a.o := \\\n\n$(deps_a.o):\n")
    cut = tmp_path / ".b.o.cmd"
    cut.write_text("savedcmd_b.o := cc\n\nsource_b.o := b.c\n\ndeps_b.o := \\\n  x.h \\\n")
    plain = tmp_path / ".c.o.cmd"
    plain.write_text("savedcmd_c.o := ld\n")
    with build.building(tmp_path):
        assert whole.exists()
        assert plain.exists()
        assert not cut.exists()
    assert not marker.exists()


SLOW = kernel_tree.MAKEFILE.replace(
    '@echo "  CC      $@"', '@echo "  CC      $@"; touch ../started; sleep 1'
)


def test_compilers_that_a_killed_kdelta_left_are_ended(root: Path, tmp_path: Path) -> None:
    (root / "Makefile").write_text(SLOW.replace("sleep 1", "sleep 30"))
    program = (
        "from pathlib import Path\nimport sys\n"
        "from kdelta.source import build, make\nfrom kdelta.source.tree import of_folder\n"
        "from kdelta.source.kconfig import Config\nmake._NEEDED = make._HEADERS = {}\n"
        "build.build(of_folder(Path(sys.argv[1])), Config(name='test',"
        " options={'SMP': 'y', 'REFUSED': 'y'}, whole=False))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(root)])
    started = cache.root() / "trees" / of_folder(root).line / "src" / "started"
    deadline = time.monotonic() + 20
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    (root / "Makefile").write_text(kernel_tree.MAKEFILE)
    begun = time.monotonic()
    assert compiled(built(of_folder(root))) == ["mm/mincore.o"]
    assert time.monotonic() - begun < 20
    assert not (tmp_path / "linux" / "started").exists()


def test_two_builds_of_one_source_take_turns(root: Path) -> None:
    (root / "Makefile").write_text(SLOW)
    tree = of_folder(root)
    made: list[build.Build] = []
    threads = [threading.Thread(target=lambda: made.append(built(tree))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {item.image_sha256 for item in made} == {made[0].image_sha256}
    assert len(list((cache.root() / "builds").iterdir())) == 1
    assert compiled(made[0]) == ["mm/mincore.o"]


def test_a_thread_cannot_wait_for_itself(root: Path) -> None:
    tree = of_folder(root)
    with build.opened(tree.line), pytest.raises(RuntimeError, match="already has"):
        built(tree)
    assert built(tree).image.is_file()


def test_a_folder_that_make_refuses_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with space"))
    with pytest.raises(InfraError, match="space or colon"):
        built(of_folder(root))


def test_long_unused_workspaces_make_room(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDELTA_TREES_MIB", "0")
    built(of_folder(root))
    other = of_folder(kernel_tree.make(tmp_path / "other"))
    with build.opened(of_folder(root).line):
        build.build(other, kconfig.Config(name="x", options={"A": "y"}, whole=False))
        assert len(list((cache.root() / "trees").iterdir())) == 2  # one is in use
    third = kernel_tree.make(tmp_path / "third")
    (third / "include/linux/mm.h").write_text("#define FIRST 3\n")
    built(of_folder(third))
    assert [path.name for path in (cache.root() / "trees").iterdir()] == [
        of_folder(tmp_path / "third").line
    ]


def test_the_build_directory_can_be_borrowed(root: Path) -> None:
    with build.prepared(of_folder(root), CONFIG, targets=["mm/mincore.o"]) as place:
        command = build.saved_command(place.output, "mm/mincore.o")
        assert "-O1 -I../include -c -o mm/mincore.o ../mm/mincore.c" in command
        subprocess.run(["sh", "-c", command], cwd=place.output, check=True)
        assert (place.source / "mm/mincore.c").read_text() == kernel_tree.MINCORE
        with pytest.raises(InfraError, match="no command for mm/none"):
            build.saved_command(place.output, "mm/none.o")


def test_a_variants_code_is_compiled_in_the_sources_directory(root: Path, tmp_path: Path) -> None:
    tree = of_folder(root)
    variant = changed(tree, tmp_path, kernel_tree.MINCORE.replace("+ FIRST", "- 77"), "less")
    broken = changed(tree, tmp_path, "int present(int pte) { return nothing; }\n", "broken")
    chains = [build.compiler()]
    with build.prepared(tree, CONFIG, targets=["mm/mincore.o"]) as place:
        file = place.source / "mm/mincore.c"
        before = file.stat().st_mtime_ns
    found = of_sources(
        [tree, variant, broken], ["original", "less", "broken"], "mm/mincore.o", "present",
        config=CONFIG, chains=chains,
    )  # fmt: skip
    first, second, third = found.cells
    assert first.code is not None
    assert second.code is not None
    assert not any("0x4d" in line for line in first.code.normal)
    assert any("-0x4d" in line for line in second.code.normal)
    assert "mm/mincore.c:1:31: error" in third.problem
    # Neither the source nor what make thinks of it has changed.
    assert file.read_text() == kernel_tree.MINCORE
    assert file.stat().st_mtime_ns == before
    assert compiled(built(tree)) == []


def test_a_reference_becomes_a_kernel_that_says_what_it_is(root: Path) -> None:
    item = built(of_folder(root))
    identity = reference.of_build("tree:x", item).identity()
    assert identity.name == f"{item.tree.title},test"
    assert identity.source == f"tree {item.tree.tree}, configuration test"
    assert identity.compiler == item.record.compiler
    assert identity.image_sha256 == item.image_sha256
    assert identity.version == ""
    assert arms.label(identity) == identity.name


def test_the_command_says_what_is_the_same(root: Path, tmp_path: Path) -> None:
    same = tmp_path / "same.c"
    same.write_text("/* More words. */\n" + kernel_tree.MINCORE)
    words = f"tree:{root}", f"tree:{root}+mm/mincore.c={same}"
    shown = CliRunner().invoke(cli, ["kernels", "fetch", *words])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.endswith(f"  null variant: same image as {words[0]}\n")
    assert shown.stdout.count("null variant") == 1
    assert "  CC      mm/mincore.o" in (reference.built(words[0]).folder / "build.log").read_text()


def test_a_whole_reference_is_built(root: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.config"
    more.write_text("CONFIG_MORE=y\n")
    made = reference.built(f"tree:{root}+fragment={more}")
    assert made.config.name == "deb+more.config"
    assert "CONFIG_MORE=y" in (made.folder / "config").read_text()
    assert "CONFIG_VIRTIO_CONSOLE=y" in (made.folder / "config").read_text()
