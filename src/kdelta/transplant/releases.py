# SPDX-License-Identifier: GPL-2.0-or-later
"""RELEASE+PATCH: references to released kernels with patches, among all others.

A release of the archive as the others write it, and what `tree:` references take after a "+" of
patches; or `without=OPTION` (docs/source.md).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kdelta.archive.apt import Progress
from kdelta.disassembly.image import opened
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.files import path_of
from kdelta.kernels import debian, reference
from kdelta.kernels.image import transplanted
from kdelta.kernels.kernel import Kernel
from kdelta.source import tree_reference
from kdelta.source.tree import SourceTree
from kdelta.transplant import objects

if TYPE_CHECKING:
    from kdelta.transplant.engine import Ground, Transplant

log = logging.getLogger(__name__)

_OTHERS = ("tree:", "file:", "host")
_PATCHES = (".patch", ".diff", ".mbox")
_WITHOUT = "without="
Executed = Callable[[Kernel], frozenset[str]]
"""From a release to the functions that the scenarios in question execute there."""


def parse(text: str) -> tuple[str, tuple[str, ...]]:
    """The release of a reference and its patches or options, none for a kernel as it is."""
    base, words = text, list[str]()
    while not text.startswith(_OTHERS) and "+" in base:
        start, _, word = base.rpartition("+")
        plain = word.removeprefix("undo=")
        is_patch = "/" in plain or plain.endswith(_PATCHES) or path_of(plain).is_file()
        is_patch = is_patch or tree_reference.is_commit(plain)
        if not (is_patch or is_option(word)) and plain not in tree_reference.brought_along():
            break
        base, words = start, [word, *words]
    return base, tuple(words)


def is_option(word: str) -> bool:
    """True for a word that leaves an option out."""
    return word.startswith(_WITHOUT)


def resolve(
    text: str,
    arch: str = "amd64",
    flavour: str = "cloud",
    *,
    trust: bool = False,
    progress: Progress | None = None,
) -> Kernel:
    """As kernels.reference.resolve; of RELEASE+PATCH the transplanted release."""
    base, words = parse(text)
    if not words:
        return reference.resolve(text, arch, flavour, trust=trust, progress=progress)
    ground = ground_of(base, arch, flavour, progress=progress)
    return of_words(ground, words, text, progress, trust=trust)


def resolve_all(
    texts: Sequence[str],
    arch: str = "amd64",
    flavour: str = "cloud",
    *,
    trust: bool = False,
    executed: Executed | None = None,
    progress: Progress | None = None,
) -> list[Kernel | InfraError]:
    """As kernels.reference.resolve_all.  Where a patch is put into a series, the series is the
    newest release of it whose source can be had, without the patch, too.  executed: is asked where
    options are left out, or a patch changes a header that many objects include.
    """
    parsed = {text: parse(text) for text in texts}
    for _, words in parsed.values():  # before a source is fetched
        patches = [word for word in words if not is_option(word)]
        tree_reference.caged([*map(tree_reference.of_word, patches)], trust=trust)
    grounds = {
        base: ground_of(base, arch, flavour, progress=progress)
        for base in dict.fromkeys(base for base, words in parsed.values() if words)
    }
    exact = [
        f"deb:{grounds[base].kernel.version}" if base in grounds else text
        for text, (base, _) in parsed.items()
    ]
    plain = reference.resolve_all(exact, arch, flavour, trust=trust, progress=progress)
    known = dict(zip(parsed, plain, strict=True))
    found: list[Kernel | InfraError] = []
    for text in texts:
        (base, words), kernel = parsed[text], known[text]
        if words:
            kernel = of_words(grounds[base], words, text, progress, executed, trust=trust)
        found.append(replace(kernel, reference=text) if isinstance(kernel, Kernel) else kernel)
    return found


def of_words(
    ground: Ground,
    words: Sequence[str],
    text: str,
    progress: Progress | None,
    executed: Executed | None = None,
    *,
    trust: bool,
) -> Kernel:
    """A release with patches, or without options, as they are written.  Raises as
    engine.transplanted and without.without do.
    """
    from kdelta.transplant import engine, wide, without

    if off := [word.removeprefix(_WITHOUT) for word in filter(is_option, words)]:
        if len(off) < len(words):
            why = f"'{text}' names a patch and an option"
            raise SpecError(why, action="name one of them, or build: tree:deb:RELEASE+PATCH")
        if executed is None:
            why = f"{text} is made for the functions that scenarios execute"
            raise SpecError(why, action="give it to: kdelta run WORKLOAD:SCENARIO --kernels")
        ran = executed(ground.kernel)
        return without.without(ground, off, ran, reference=text, progress=progress)
    variants = [tree_reference.of_word(word) for word in words]
    confined = tree_reference.caged(variants, trust=trust)
    patched = tree_reference.applied(ground.tree, variants)
    called = ("undo=" * v.undone + (v.file or v.name) for v in variants)
    name = "+".join((ground.tree.name, *called))
    known = wide.ExecutedObjects(partial(executed, ground.kernel) if executed else None)
    made = engine.Transplant(
        ground=ground, patched=patched, confined=confined, progress=progress, ran=known
    )
    return _settled(made, executed, text, name)


def _settled(made: Transplant, executed: Executed | None, text: str, name: str) -> Kernel:
    """Its kernel, made again while other objects have what is executed there.

    Raises NotTransplantedError where an executed function may be as before the patch.
    """
    kernel, base = made.kernel(reference=text, name=name), made.ground.kernel
    told = transplanted(kernel.image) if made.ran.objects else None
    if executed is None or told is None:
        return kernel
    ran = executed(kernel)
    if more := made.ran.reached(ran, opened(base.image, base.release)):
        return _settled(replace(made, ran=more), executed, text, name)
    if left := ran & {*told.kept}:
        why = f"{min(left)}() is executed and may have the code of before"
        raise objects.cannot(why, "let kdelta check leave out the paths that execute it; or ")
    return kernel


def ground_of(
    text: str, arch: str = "amd64", flavour: str = "cloud", *, progress: Progress | None = None
) -> Ground:
    """The newest package that a reference means and whose source can be had.

    Raises SpecError for an unknown release, InfraError when no source can be had.
    """
    from kdelta.transplant import engine

    if arch != "amd64":
        raise objects.cannot(f"that is done for amd64 only, not for {arch}")
    offered = reference.listing(arch, flavour, progress=progress)
    kind = reference.flavour_of(flavour, arch)
    newest = debian.choose(text, offered, arch, kind)
    gone: KdeltaError | None = None
    for offer in reversed(debian.fitting(text, offered)):
        try:
            tree = _source(offer.version, offer.upstream, progress)
        except (InfraError, SpecError) as error:
            gone = gone or error
            continue
        if offer is not newest:
            log.warning(
                "note: %s is %s here: the archive no longer has the source of %s",
                text, offer.version, newest.version,
            )  # fmt: skip
        kernel = debian.fetch(offer, text, archive=reference.opened(arch), progress=progress)
        return engine.ground_of(kernel, tree, progress=progress)
    raise gone or InfraError(f"the archive has no source of {text}")


def _source(version: str, upstream: str, progress: Progress | None) -> SourceTree:
    """The source of a package, or upstream's, of which the proof says whether it is the same."""
    if tree_reference.is_here(version) or not tree_reference.is_here(upstream):
        with contextlib.suppress(InfraError, SpecError):
            return tree_reference.of_release(version, progress=progress)
    return tree_reference.of_release(upstream, progress=progress)
