# SPDX-License-Identifier: GPL-2.0-or-later
"""Variants: what is changed in a source before it is built, and by which name it is known.

Nothing is changed in place: a variant of a tree is another tree of the same line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from kdelta import cache, data
from kdelta.errors import SpecError
from kdelta.printable import meant
from kdelta.source import git, patches
from kdelta.source.tree import SourceTree

FOLDER = "variants"


class VariantKind(StrEnum):
    """How a variant changes a source."""

    PATCH = "patch"  # a patch file or a mailbox with a series
    REVERT = "revert"  # a commit's change is taken back
    FILE = "file"  # one file has another content


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One change to a source."""

    kind: VariantKind
    name: str  # for people and tables: "mincore-present-first"
    path: Path | None = None  # of the patch, the mailbox, the other content
    target: str = ""  # FILE: the path in the source; REVERT: the commit


def of_word(word: str) -> Variant:
    """A variant as it is written after "+" in a reference.

    mincore-present-first (one that kdelta brings), PATH of a patch or mailbox, revert=COMMIT,
    mm/mincore.c=PATH.  Raises SpecError for what is none.
    """
    key, equals, value = word.partition("=")
    if equals and key == "revert":
        return Variant(kind=VariantKind.REVERT, name=f"revert-{value[:12]}", target=value)
    if equals and "/" in key:
        path = Path(value).expanduser().absolute()
        return Variant(kind=VariantKind.FILE, name=path.stem, path=path, target=key)
    path = Path(word).expanduser().absolute()
    if not path.is_file():
        brought = data.directory(FOLDER) / f"{word.removesuffix('.patch')}.patch"
        if "/" in word or not brought.is_file():
            known = brought_along()
            raise SpecError(
                f"there is no variant {word}",
                action=f"{meant(word, known)}name a patch file, or one of: {', '.join(known)}",
            )
        path = brought
    return Variant(kind=VariantKind.PATCH, name=path.stem, path=path)


def brought_along() -> tuple[str, ...]:
    """Names of the variants that kdelta brings."""
    return tuple(sorted(path.stem for path in data.directory(FOLDER).glob("*.patch")))


def applied(tree: SourceTree, variants: Sequence[Variant]) -> SourceTree:
    """The tree with these changes, in order.  Raises SpecError when one does not fit."""
    for variant in variants:
        changed = replace(
            tree, tree=_changed(tree, variant), commit="", variants=(*tree.variants, variant.name)
        )
        if changed.tree == tree.tree:
            raise SpecError(
                f"the variant {variant.name} changes nothing in {tree.title}",
                action="leave it out",
            )
        tree = changed
    return tree


def _changed(tree: SourceTree, variant: Variant) -> str:
    if variant.kind is VariantKind.REVERT:
        return patches.reverted(tree.tree, variant.target, borrowed=tree.objects)
    if variant.path is None:
        raise ValueError(variant)
    if variant.kind is VariantKind.FILE:
        return patches.replaced(tree.tree, variant.target, variant.path, borrowed=tree.objects)
    place = f"{variant.name} on {tree.title}"
    if not patches.is_mailbox(variant.path):
        return patches.applied(tree.tree, [variant.path], borrowed=tree.objects, name=place)
    home = git.repository()
    with cache.writing(home), tempfile.TemporaryDirectory(dir=home, prefix="scratch-") as name:
        series = patches.messages(variant.path, Path(name))
        return patches.applied(tree.tree, series, borrowed=tree.objects, name=place)
