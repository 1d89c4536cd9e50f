# SPDX-License-Identifier: GPL-2.0-or-later
"""A series however it comes: mailboxes, patch files, commits; what is wrong with one is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

import kernel_tree
from kdelta.check import series as check_series
from kdelta.cli.main import cli
from kdelta.errors import SpecError
from kdelta.source import patches
from kdelta.source.tree import SourceTree, of_commit, of_folder

HTML = """\
Content-Type: multipart/alternative; boundary="x"

--x
Content-Type: text/plain; charset=utf-8

A text.
---
%s
--x
Content-Type: text/html; charset=utf-8

<pre>A <b>text</b>.
---
%s</pre>
--x--
"""
KDELTA = str(Path(sys.executable).with_name("kdelta"))
ONLY = "Content-Type: text/html; charset=utf-8\n"
NOTHING = "---\ndiff --git a/Makefile b/Makefile\nrename from Makefile\nrename to Makefile\n"


def diff(old: str, new: str) -> str:
    return kernel_tree.diff(f"pte + {new}", f"pte + {old}")


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    return of_folder(kernel_tree.make(tmp_path / "linux"))


def of_files(files: list[Path], base: SourceTree) -> patches.PatchSeries:
    with patches.reading(files) as mails:
        return mails.on(base)


def mail(subject: str, body: str, head: str = "") -> str:
    start = "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
    return f"{start}From: A <a@b.c>\nSubject: {subject}\n{head}\n{body}\n-- \n2.39\n\n"


def box(folder: Path, *mails: str) -> Path:
    path = folder / "series.mbox"
    path.write_text("".join(mails))
    return path


def test_a_thread_is_its_cover_letter_and_its_patches_in_order(
    tree: SourceTree, tmp_path: Path
) -> None:
    path = box(
        tmp_path,
        mail("[PATCH v2 2/2] mm: second", f"Two.\n---\n{diff('2', '3')}"),
        mail("Re: [PATCH v2 2/2] mm: second", f"No.\n{diff('2', '9')}"),
        mail("[PATCH v2 0/2] mm: faster", "It is 12 % faster.\n\nbase-commit: " + "a" * 40),
        mail("[PATCH v2 1/2] mm: first", f"One.\n---\n{diff('FIRST', '2')}"),
    )
    found = of_files([path], tree)
    assert (found.title, found.own) == ("mm: faster", False)
    assert "It is 12 % faster." in found.cover
    assert [step.title for step in found.steps] == ["mm: first", "mm: second"]
    assert "return pte + 3" in content(found.steps[1].tree)
    assert "return pte + 2" in content(found.steps[0].tree)
    with patches.reading([path]) as mails:
        assert mails.base_commit == "a" * 40


def test_a_base_commit_that_a_repository_lacks_is_told_as_the_mails(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    cover = mail("[PATCH 0/1] mm: faster", "Why.\n\nbase-commit: " + "a" * 40)
    path = box(tmp_path, cover, mail("[PATCH 1/1] mm: first", f"One.\n---\n{diff('FIRST', '2')}"))
    ended = CliRunner().invoke(cli, ["check", str(path), "--base", str(root), "--trust"])
    assert isinstance(ended.exception, SpecError)
    said = ended.exception.sentence()
    assert "no commit aaaaaaaaaaaa, which the series names as its base-commit; fetch it" in said
    assert "--base PATH@COMMIT" in said


MAILS = Path(__file__).parent / "data" / "series"


@pytest.mark.parametrize("name", ["mmap-miss", "kmem-name"])
def test_a_patch_as_the_list_has_it_applies_to_what_it_shows(tmp_path: Path, name: str) -> None:
    mailed = MAILS / f"{name}.mbox"
    diff = mailed.read_text().partition("\ndiff --git ")[2].partition("\nbase-commit")[0]
    (place,) = re.findall(r"^--- a/(.+)$", diff, re.MULTILINE)
    lines: list[str] = []
    for hunk in re.split(r"^@@ -", diff, flags=re.MULTILINE)[1:]:
        head, *rest = hunk.strip("\n").split("\n")
        lines += [""] * (int(head.partition(",")[0]) - 1 - len(lines))
        lines += [line[1:] for line in rest if line[:1] in (" ", "-", "")]
    root = kernel_tree.make(tmp_path / "linux")
    kernel_tree.written(root, {place: "\n".join([*lines, ""])})
    (step,) = of_files([mailed], of_folder(root)).steps
    after = (step.tree.read(place) or b"").decode().splitlines()
    added = [line[1:] for line in diff.splitlines() if re.match(r"\+(?!\+\+)", line)]
    assert len(added) > 3
    assert set(added) <= set(after)


def test_a_thread_as_the_list_has_it_is_read_without_the_answer() -> None:
    with patches.reading([MAILS / "mincore.mbox"]) as mails:
        assert mails.title == "mm/mincore: minor clean up for swap cache checking"
        assert [letter.title for letter in mails.letters] == [
            "mm/mincore, swap: consolidate swap cache checking for mincore",
            "mm/mincore: use a helper for checking the swap cache",
        ]
        assert mails.base_commit == "e5f0a698b34ed76002dc5cff3804a61c80233a7a"
        assert not any("Why 0 now" in letter.text for letter in mails.letters)
        assert "About ~10% faster." in mails.letters[1].text


def content(tree: SourceTree) -> str:
    return (tree.read("mm/mincore.c") or b"").decode()


def test_html_parts_are_passed_over(tree: SourceTree, tmp_path: Path) -> None:
    one = diff("FIRST", "2")
    head, _, body = (HTML % (one, one)).partition("\n\n")
    found = of_files([box(tmp_path, mail("[PATCH] mm: one", body, head + "\n"))], tree)
    assert "return pte + 2" in content(found.steps[0].tree)


def test_tree_has_name_that_does_not_grow_with_series(tree: SourceTree, tmp_path: Path) -> None:
    numbers = ["FIRST", *map(str, range(2, 13))]
    mails = [
        mail(f"[PATCH {at}/11] mm: {at}", f"---\n{diff(old, new)}")
        for at, (old, new) in enumerate(pairwise(numbers), start=1)
    ]
    titles = [step.tree.title for step in of_files([box(tmp_path, *mails)], tree).steps]
    assert titles[0].endswith("+patch-1")
    assert titles[-1].endswith("+patches-1-to-11")
    assert titles[-1].count("+") == 1


@pytest.mark.usefixtures("tree")
def test_the_first_patch_that_does_not_apply_is_named_at_once(tmp_path: Path) -> None:
    path = box(
        tmp_path,
        mail("[PATCH 1/3] mm: first", f"---\n{diff('FIRST', '2')}"),
        mail("[PATCH 2/3] mm: second", f"---\n{diff('NOTHING', '3')}"),
        mail("[PATCH 3/3] mm: third", f"---\n{diff('3', '4')}"),
    )
    words = ["check", str(path), "--base", str(tmp_path / "linux"), "--runs", str(tmp_path / "r")]
    ended = CliRunner().invoke(cli, [*words, "--trust"])
    assert isinstance(ended.exception, SpecError)
    said = ended.exception.sentence()
    assert said.startswith("patch 2 of 3, mm: second: the patch does not apply: mm/mincore.c:5;")
    assert not [*(tmp_path / "r").iterdir()]  # nothing is left to be resumed


def test_patch_files_are_applied_as_they_are_named(tree: SourceTree, tmp_path: Path) -> None:
    """A plain diff is called by its file; what git format-patch writes by its subject."""
    (tmp_path / "one.patch").write_text(diff("FIRST", "2"))
    two = box(tmp_path, mail("[PATCH 2/2] mm: second", f"---\n{diff('2', '3')}"))
    found = of_files([tmp_path / "one.patch", two], tree)
    assert [step.title for step in found.steps] == ["one", "mm: second"]
    assert "return pte + 3" in content(found.steps[1].tree)


def saved(folder: Path, *subjects: str) -> list[Path]:
    """A file for each subject; the n-th change follows from the one before."""
    texts = ["FIRST", *map(str, range(2, 12))]
    files = []
    for at, subject in enumerate(subjects):
        number = int(subject.partition("/")[0][-1]) if "/" in subject else at + 1
        path = folder / f"{at}.eml"
        path.write_text(mail(subject, f"---\n{diff(texts[number - 1], texts[number])}"))
        files.append(path)
    return files


@pytest.mark.parametrize("numbers", ["321", "231", "312"])
def test_mails_saved_one_by_one_are_applied_by_their_numbers(
    tree: SourceTree, tmp_path: Path, numbers: str
) -> None:
    files = saved(tmp_path, *(f"[PATCH v2 {number}/3] mm: {number}" for number in numbers))
    found = of_files(files, tree)
    assert [step.title for step in found.steps] == ["mm: 1", "mm: 2", "mm: 3"]
    assert "order of their numbers" in found.order


def test_files_in_their_order_are_applied_in_it_and_nothing_is_told(tmp_path: Path) -> None:
    for subjects in (
        ("[PATCH 1/2] mm: 1", "[PATCH 2/2] mm: 2"),
        ("[PATCH 1/2] mm: 1", "[PATCH 2/2] mm: 2", "[PATCH 1/3] mm: 1"),
        ("[PATCH 1/2] mm: 1", "[PATCH 2/2] mm: 2", "[PATCH v2 1/2] mm: 1", "[PATCH 2/2] mm: 2"),
        ("[PATCH 2/4] mm: 2", "[PATCH] mm: fix", "[PATCH 4/4] mm: 4"),
    ):
        with patches.reading(saved(tmp_path, *subjects)) as mails:
            assert [each.title for each in mails.letters] == [
                subject.partition("] ")[2] for subject in subjects
            ]
            assert mails.order == ""


@pytest.mark.parametrize(
    "subjects",
    [
        ("[PATCH 2/2] mm: 2", "[PATCH] mm: fix", "[PATCH 1/2] mm: 1"),
        ("[PATCH 1/2] mm: 1", "[PATCH 2/3] mm: 2", "[PATCH 2/2] mm: 2"),
        ("[PATCH 1/3] mm: 1", "[PATCH 3/3] mm: 3", "[PATCH 2/3] mm: 2", "[PATCH 3/3] mm: 3"),
    ],
)
def test_an_order_that_could_be_meant_in_two_ways_is_asked_about(
    tree: SourceTree, tmp_path: Path, subjects: tuple[str, ...]
) -> None:
    with pytest.raises(SpecError, match="not given in the order that their subjects number") as why:
        of_files(saved(tmp_path, *subjects), tree)
    assert why.value.action


def test_commits_of_a_range_and_of_a_branch(tmp_path: Path) -> None:
    folder = kernel_tree.committed(tmp_path / "linux")
    start = kernel_tree.git(folder, "rev-parse", "HEAD").strip()
    for number in (2, 3):
        text = kernel_tree.MINCORE.replace("FIRST", f"FIRST + {number}")
        kernel_tree.commit(folder, text, f"mm: number {number}")
    kernel_tree.git(folder, "branch", "topic")
    found = patches.of_commits(folder, f"{start}..topic", None)
    assert [step.title for step in found.steps] == ["mm: number 2", "mm: number 3"]
    assert found.own
    assert found.base.commit == start
    again = patches.of_commits(folder, "topic", of_commit(folder, start))
    assert [step.tree for step in again.steps] == [step.tree for step in found.steps]
    with pytest.raises(SpecError, match="holds no patch"):
        patches.of_commits(folder, "topic..topic", None)


@pytest.mark.parametrize(
    ("mails", "sentence"),
    [
        ([mail("[PATCH 0/2] mm: nothing", "Empty.")], "no patch"),
        ([mail("[PATCH 1/2] mm: half", f"---\n{diff('FIRST', '2')}")], "patches 1 of 2"),
        ([mail("[PATCH] mm: x", NOTHING)], "changes nothing"),
        (
            [mail("[PATCH] mm: one", f"<pre>---\n{diff('FIRST', '2')}</pre>", ONLY)],
            "holds no patch in plain text",
        ),
        (
            [mail(f"[PATCH {n}/201] mm: {n}", f"---\n{diff('1', '2')}") for n in range(1, 202)],
            "more than 200 patches",
        ),
        (
            [
                mail("[PATCH 1/2] mm: first", f"One.\n---\n{diff('FIRST', '2')}"),
                mail("[PATCH 2/2] logo", "Two.\n---\nBinary files a/x.png and b/x.png differ\n"),
            ],
            "patch 2 of 2, logo: of a binary file",
        ),
    ],
)
def test_what_is_no_series_is_refused(
    tree: SourceTree, tmp_path: Path, mails: list[str], sentence: str
) -> None:
    with pytest.raises(SpecError, match=sentence):
        of_files([box(tmp_path, *mails)], tree)


def test_control_characters_of_a_mail_reach_nobody(tree: SourceTree, tmp_path: Path) -> None:
    path = box(
        tmp_path, mail("[PATCH] mm: \x1b[31mred", f"\x1b]0;x\x07\n---\n{diff('FIRST', '2')}")
    )
    step = of_files([path], tree).steps[0]
    assert "\x1b" not in step.title + step.text


def test_a_patch_that_was_saved_on_dos_applies(tree: SourceTree, tmp_path: Path) -> None:
    one = diff("FIRST", "2")
    file = tmp_path / "one.patch"
    for saved in (one.replace("\n", "\r\n"), mail("[PATCH] mm: x", one).replace("\n", "\r\n")):
        file.write_bytes(saved.encode())
        (step,) = of_files([file], tree).steps
        assert "return pte + 2;\n" in content(step.tree)
    file.write_bytes(one.replace("FIRST;\n", "FIRST;\r\n").encode())  # a source's own
    with pytest.raises(SpecError, match="does not apply"):
        of_files([file], tree)


def comment(tmp_path: Path, *words: str, kdelta: str = "") -> tuple[int, list[str]]:
    script = Path(__file__).parent.parent / "tools" / "comment"
    stub = kernel_tree.script(tmp_path / "kdelta", kdelta)
    env = {**os.environ, "KDELTA": str(stub)} if kdelta else {**os.environ, "KDELTA": KDELTA}
    done = subprocess.run([script, *words], capture_output=True, text=True, check=False, env=env)
    return done.returncode, done.stdout.splitlines()


def test_a_comment_for_ci_is_advisory_whatever_comes_of_it(tmp_path: Path) -> None:
    print_words = 'echo noise >&2; echo kdelta REJECT: "$@"; exit 1'
    said = comment(tmp_path, "series.mbox", "6.17", "--trust", kdelta=print_words)
    assert said == (
        0, ["kdelta REJECT: check series.mbox --base 6.17 --format comment --trust"],
    )  # fmt: skip
    status, lines = comment(tmp_path, str(tmp_path / "gone.mbox"), "6.17")
    assert status == 0
    assert max(map(len, lines)) <= 75
    assert lines[0].startswith("kdelta: no answer (advisory):")
    assert "it cannot be read: No such file" in " ".join(lines)
    assert comment(tmp_path)[0] == 2


def test_makefiles_and_code_of_the_boot_are_named_before_anything_is_built(
    tree: SourceTree, tmp_path: Path
) -> None:
    hostile = "--- a/Kbuild\n+++ b/Kbuild\n@@ -1 +1,2 @@\n # nothing\n+$(shell rm -rf ~)\n"
    boot = (
        "--- a/mm/boot.c\n+++ b/mm/boot.c\n@@ -2,4 +2,4 @@\n {\n"
        " \tint here;\n-\treturn 1;\n+\treturn 2;\n }\n"
    )
    start = "--- /dev/null\n+++ b/mm/boot.c\n@@ -0,0 +1,5 @@\n"
    start += "+static int __init boot_only(void)\n+{\n+\tint here;\n+\treturn 1;\n+}\n"
    mails = [
        mail("[PATCH 1/3] build", f"---\ndiff --git a/Kbuild b/Kbuild\n{hostile}"),
        mail("[PATCH 2/3] boot", f"---\ndiff --git a/mm/boot.c b/mm/boot.c\n"
             f"new file mode 100644\n{start}"),
        mail("[PATCH 3/3] boot", f"---\ndiff --git a/mm/boot.c b/mm/boot.c\n{boot}"),
    ]  # fmt: skip
    found = of_files([box(tmp_path, *mails)], tree)
    makefile, *boots = check_series.warnings(found, confined=True)
    assert makefile.endswith("(Kbuild): it runs in bubblewrap, without network or home.")
    assert boots == [
        f"patch {number} changes __init code (boot_only), which no scenario executes."
        for number in (2, 3)
    ]
    assert next(check_series.warnings(found, confined=False)).endswith("it runs as you.")


@pytest.mark.parametrize("word", ["check", "commit", "ask"])
def test_other_machines_are_not_ignored(tmp_path: Path, word: str) -> None:
    path = tmp_path / "one.patch"
    path.write_text("x")
    done = CliRunner().invoke(cli, [word, str(path), "--on", str(path)])
    assert (done.exit_code, "No such option '--on'" in done.output) == (2, True)
