# SPDX-License-Identifier: GPL-2.0-or-later
"""What a user writes for a kernel from source."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernel_tree
from kdelta.errors import SpecError
from kdelta.source import tree_reference
from kdelta.source.tree_reference import VariantKind


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


def unpackaged(release: str) -> Path:
    raise AssertionError(f"nobody needs the package of {release}")


def test_a_release_is_configured_as_its_package_is(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text('CONFIG_MM=y\nCONFIG_SYSTEM_TRUSTED_KEYS="debian/certs/some.pem"\n')
    more = tmp_path / "more.config"
    more.write_text("CONFIG_MORE=y\n")
    reference = tree_reference.parse(f"tree:deb:6.17.8+fragment={more}")
    found = tree_reference.configured(reference, {"6.17.8": config}.__getitem__)
    assert (found.name, found.whole) == ("package+more.config", True)
    assert found.options == {"MM": "y", "SYSTEM_TRUSTED_KEYS": '""', "MORE": "y"}


def test_a_named_configuration_and_a_folder_need_no_package(tmp_path: Path) -> None:
    root = kernel_tree.make(tmp_path / "linux")
    for text in ("tree:deb:6.17.8+config=deb", f"tree:{root}"):
        assert tree_reference.configured(tree_reference.parse(text), unpackaged).name == "deb"


@pytest.mark.parametrize(
    "text", ["tree:.+config=package", "tree:deb:6.17+config=package+config=min"]
)
def test_a_package_s_configuration_stands_alone(text: str) -> None:
    with pytest.raises(SpecError, match="of a release of the archive"):
        tree_reference.configured(tree_reference.parse(text), unpackaged)


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
