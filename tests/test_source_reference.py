# SPDX-License-Identifier: GPL-2.0-or-later
"""What a user writes for a kernel from source."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernel_tree
from kdelta.errors import SpecError
from kdelta.source import tree_reference
from kdelta.source.variant import VariantKind


def test_a_release_with_variants_configuration_and_compiler() -> None:
    found = tree_reference.parse(
        "tree:deb:6.17.8+mincore-present-first+config=xenpv+config=ftrace+cc=gcc-14"
    )
    assert found.release == "6.17.8"
    assert found.path is None
    assert [change.name for change in found.variants] == ["mincore-present-first"]
    assert found.configs == ("xenpv", "ftrace")
    assert found.compiler == "gcc-14"


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    root = kernel_tree.make(tmp_path / "linux-6.12+deb13@home")
    plain = tree_reference.parse(f"tree:{root}")
    assert (plain.path, plain.commit, plain.configs) == (root, "", ("deb",))
    commit = tree_reference.parse(f"tree:{root}@v6.17+revert=1234567890abcdef")
    assert (commit.path, commit.commit) == (root, "v6.17")
    assert commit.variants[0].kind is VariantKind.REVERT
    assert commit.variants[0].name == "revert-1234567890ab"


def test_files_are_named_by_path(tmp_path: Path) -> None:
    edited = tmp_path / "edited.c"
    edited.write_text("x")
    more = tmp_path / "more.config"
    found = tree_reference.parse(f"tree:{tmp_path}+mm/mincore.c={edited}+fragment={more}")
    assert found.variants[0].kind is VariantKind.FILE
    assert found.variants[0].target == "mm/mincore.c"
    assert found.fragments == (more,)


@pytest.mark.parametrize(
    "text",
    ["tree:", "deb:6.17", "tree:deb:6.17.8+", "tree:deb:6.17.8+cc=gcc-12+cc=gcc-14",
     "tree:deb:6.17.8+no-such-variant"],
)  # fmt: skip
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        tree_reference.parse(text)
