# SPDX-License-Identifier: GPL-2.0-or-later
"""Which scenarios execute which functions, and those that a patch changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from git_history import Repository
from kdelta.analysis.coverage import changes, coverage, relevance
from kdelta.cli.explain import coverage as coverage_command
from kdelta.errors import SpecError
from ladder_records import ladder
from test_explained_work import stored

PATCH = """\
From 0123456789abcdef Mon Sep 17 00:00:00 2001
Subject: [PATCH] mm: an example

--- a/mm/mprotect.c
+++ b/mm/mprotect.c
@@ -99,8 +99,9 @@ static void not_this_one(void)
~static long change_pte_range(struct mmu_gather *tlb,
~>pte_t *pte, oldpte;
->int a;
+>int a = 1;
~>long pages = 0;
@@ -200,12 +201,14 @@ static void before(void)
~>return;
~}
~
~/* a comment */
-static inline int added_here(struct vm_area_struct *vma,
+static inline int added_now(struct vm_area_struct *vma,
~>>>     unsigned long addr)
~{
+>if (addr)
+>>return other(vma);
~>return 0;
~}
~
+#define LIMIT 3
~int never_run(void);
@@ -299,5 +302,6 @@ static void nor_this(void)
~SYSCALL_DEFINE3(mprotect, unsigned long, start, size_t, len,
~>return 0;
+>/* a line */
diff --git a/Documentation/x.rst b/Documentation/x.rst
--- a/Documentation/x.rst
+++ b/Documentation/x.rst
@@ -1,2 +1,3 @@ change_pte_range(
+text
--~
2.47
""".replace("~", " ").replace(">", "\t")


def test_changed_lines_belong_to_the_function_that_they_are_in() -> None:
    assert [*dict.fromkeys(changes(PATCH.splitlines()))] == [
        ("mm/mprotect.c", "change_pte_range"), ("mm/mprotect.c", "added_here"),
        ("mm/mprotect.c", "added_now"), ("mm/mprotect.c", ""), ("mm/mprotect.c", "mprotect"),
    ]  # fmt: skip


def test_a_hunk_that_shows_no_definition_is_refused() -> None:
    hunk = ["+++ b/mm/x.c", "@@ -9,2 +9,3 @@ int named(void)", " \tint a;", "+\ta = 1;", " }"]
    with pytest.raises(SpecError, match="which function its part at line 9 changes") as refused:
        list(changes(hunk))
    assert (refused.value.place, "--patch OLD..NEW" in refused.value.action) == ("mm/x.c", True)
    hunk[1] = "@@ -1,2 +1,3 @@ int named(void)"
    assert list(changes(hunk)) == [("mm/x.c", "")]


def test_what_ran_is_told_by_function_and_scenario() -> None:
    found = coverage(ladder())
    assert found.scenarios[0][0] == "mprotect:shared_dirty_full_toggle_64m"
    assert found.scenarios[0][1] == found.scenarios[0][2] == len(found.functions)
    names = [row.function for row in found.functions]
    assert "change_pte_range" in names
    assert not any(name.startswith("[") or ".isra" in name for name in names)


def test_a_function_that_nothing_executes_is_told_and_not_left_out() -> None:
    found = relevance(PATCH, coverage(ladder()))
    executed = {row.function: bool(row.executed) for row in found.changed}
    assert executed == {
        "change_pte_range": True, "added_here": False, "added_now": False, "mprotect": False,
    }  # fmt: skip
    assert found.elsewhere == ("mm/mprotect.c",)


def test_the_commands_print_it(tmp_path: Path) -> None:
    record = stored(tmp_path)
    place = ["--runs", str(tmp_path)]
    done = CliRunner().invoke(coverage_command, [record.run_id, *place])
    assert done.exit_code == 0, done.output
    assert "mprotect:shared_dirty_full_toggle_64m" in done.output
    done = CliRunner().invoke(
        coverage_command, [record.run_id, "--patch", "-", *place], input=PATCH
    )
    assert done.exit_code == 0, done.output
    assert "4 changed functions, executed by its scenarios: 1" in " ".join(done.output.split())
    assert "Not seen in any of them: added_here" in done.output
    done = CliRunner().invoke(coverage_command, [record.run_id, "--csv", *place])
    assert "change_pte_range,mprotect:shared_dirty_full_toggle_64m," in done.output


def test_two_commits_are_a_patch(tmp_path: Path) -> None:
    record = stored(tmp_path / "runs")
    tree = Repository(tmp_path / "tree")
    lines = "\tstep();\n" * 9
    code = f"static int change_pte_range(void)\n{{{{\n{lines}\treturn {{}};\n}}}}\n"
    old = tree.commit("one", {"mm/mprotect.c": code.format(1), "fs/x.c": "int x;\n"})
    new = tree.commit("two", {"mm/mprotect.c": code.format(2), "fs/x.c": "int y;\n"})
    tree.git("config", "diff.external", "touch started")
    place = [record.run_id, "--runs", str(tmp_path / "runs"), "--tree"]

    def asked(patch: str, folder: Path) -> Result:
        return CliRunner().invoke(coverage_command, ["--patch", patch, *place, str(folder)])

    done = asked(f"{old}..{new}", tree.folder)
    assert done.exit_code == 0, done.output
    assert "1 changed function, executed by its scenarios: 1" in " ".join(done.output.split())
    assert "fs/x.c" in done.output
    assert "fs/x.c" not in asked(f"{old}..{new}", tree.folder / "mm").output
    assert not (tree.folder / "started").exists()
    for wrong in ("no..where", "nothing.patch", f"{old}..--output=x"):
        assert isinstance(asked(wrong, tree.folder).exception, SpecError), wrong


def test_a_text_that_is_no_patch_is_refused(tmp_path: Path) -> None:
    record = stored(tmp_path)
    done = CliRunner().invoke(
        coverage_command, [record.run_id, "--patch", "-", "--runs", str(tmp_path)], input="no\n"
    )
    assert isinstance(done.exception, SpecError)
    with pytest.raises(SpecError, match="no change of C code"):
        raise done.exception
