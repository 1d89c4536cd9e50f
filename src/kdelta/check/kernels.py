# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernels of a series: the released base with patches put into it, or base and patches built.

One way for the whole series: kernels that were made in two ways differ in more than the patch.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from kdelta import cache
from kdelta.archive.apt import Progress
from kdelta.check.compare import changed_code
from kdelta.disassembly.image import opened
from kdelta.errors import SpecError
from kdelta.files import sha256_of
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel, kernel_of_file
from kdelta.source import build, own_build, tree_reference
from kdelta.source.kconfig import Config
from kdelta.source.make import SourceError, jobs
from kdelta.source.patches import PatchSeries
from kdelta.source.tree import SourceTree
from kdelta.source.tree_reference import TreeReference
from kdelta.toolchains import Toolchain
from kdelta.transplant import engine, objects
from kdelta.transplant.releases import Executed
from kdelta.transplant.wide import ExecutedObjects


@dataclass(frozen=True, slots=True)
class Transplants:
    """A release, into which the functions that patches change are put.  last: the whole series."""

    last: engine.Transplant

    @property
    def ground(self) -> engine.Ground:
        """The release."""
        return self.last.ground

    @property
    def compiler(self) -> str:
        """The package's, under its name in the archive, or that of the user's build."""
        own = self.ground.compiler
        return own.banner if self.ground.own else f"{own.name}, as the package"

    def of(self, tree: SourceTree) -> Kernel:
        """Raises NotTransplantedError, SourceError, InfraError."""
        at_base = tree.tree == self.ground.tree.tree
        return self.ground.kernel if at_base else self._with(tree).kernel(name=tree.title)

    def null(self, tree: SourceTree) -> Kernel:
        """The release with its own code put in, of the functions that the series changes."""
        return self._with(tree).kernel(name=f"{tree.title} (null)", null=True)

    def reached(self, executed: frozenset[str]) -> Transplants | None:
        """The same for functions that are executed on a patched kernel alone, if there are any in
        objects that were left as they are.
        """
        kernel = self.ground.kernel
        ran = self.last.ran.reached(executed, opened(kernel.image, kernel.release))
        return replace(self, last=replace(self.last, ran=ran)) if ran else None

    def _with(self, tree: SourceTree) -> engine.Transplant:
        is_last = tree.tree == self.last.patched.tree
        return self.last if is_last else replace(self.last, patched=tree)

    def proof(self) -> str:
        """What the null showed, when the series is counted."""
        return (
            "Null: the base with its own code of the changed functions, put in the same way,"
            " counts what the base does, on every path that is compared."
        )


@dataclass(slots=True, kw_only=True)
class Builds:
    """Kernels that are built whole."""

    config: Config
    chain: Toolchain
    confined: bool
    progress: Progress
    built: list[build.Build] = field(default_factory=list)

    @property
    def compiler(self) -> str:
        """Its first line of --version."""
        return self.built[0].record.compiler

    def of(self, tree: SourceTree) -> Kernel:
        """Raises SourceError, InfraError."""
        make = partial(build.build, progress=self.progress, confined=self.confined)
        self.built.append(make(tree, self.config, self.chain))
        return reference.of_build(f"tree {tree.title}", self.built[-1])

    def null(self, tree: SourceTree) -> None:
        """Nothing to count: two images of the base are compared."""

    def proof(self) -> str:
        """Raises SpecError when the base built twice gives two images."""
        if all(one.cached for one in self.built):
            return "Null: every image was in the cache, none was built now."
        base = self.built[0]
        again = partial(build.made_again, progress=self.progress, confined=self.confined)
        if again(base) != base.image_sha256:
            cause = "the base built twice gives two images, so no difference would mean anything"
            action = "look for what its build takes from the time or the machine"
            raise SpecError(cause, place=base.tree.title, action=action)
        return "Null: the base built twice differs by 0, the same image to the byte."


@dataclass(slots=True, kw_only=True)
class OwnBuilds:
    """A user's build, and what make gives of it for patches."""

    own: own_build.OwnBuild
    base: SourceTree
    confined: bool
    progress: Progress

    @property
    def compiler(self) -> str:
        """Its first line of --version."""
        return self.own.compiler.banner

    def of(self, tree: SourceTree, *, again: bool = False) -> Kernel:
        """again: the base is made once more.  Raises SourceError, InfraError."""
        known = own_kernel(self.own, tree)
        if tree.tree == self.base.tree and not again:
            return known
        image, release = own_build.made(
            self.own, self.base, tree, confined=self.confined, progress=self.progress
        )
        return replace(known, image=image, image_sha256=cache.recorded(image), release=release)

    def null(self, tree: SourceTree) -> None:
        """Nothing to count: code is compared."""

    def proof(self) -> str:
        """Raises SpecError when the build, made once more without a patch, has other code."""
        names, _ = changed_code(self.of(self.base), self.of(self.base, again=True))
        if names:
            cause = f"without a patch make changes the build, too: {min(names)}()"
            action = "make bzImage again there"
            raise SpecError(cause, place=str(self.own.folder), action=action)
        return "Null: the build, made once more without a patch, has the same code."


Kernels = Transplants | Builds | OwnBuilds


def own_kernel(own: own_build.OwnBuild, tree: SourceTree) -> Kernel:
    """The kernel of a user's build, where it lies.  Raises SpecError."""
    return replace(
        kernel_of_file(f"file:{own.image}", build.BUILT_FOR),
        config=own.config,
        config_sha256=sha256_of(own.config),
        name=tree.title,
        source=f"tree {tree.tree}, configuration of a build",
        compiler=own.compiler.banner,
    )


def transplants(
    series: PatchSeries,
    base: TreeReference | engine.Ground,
    own: own_build.OwnBuild | None = None,
    executed: Executed | None = None,
    *,
    confined: bool,
    progress: Progress,
) -> Transplants:
    """For a series on a release, or a user's build of its base.

    executed: names the functions that scenarios execute there; without it a header that too many
    objects include is refused.  Raises KdeltaError where its kernels have to be built.
    """
    for step in series.steps:
        objects.check_source(series.base, step.tree)
    if isinstance(base, engine.Ground):
        ground = base
    else:
        named = partial(reference.resolve, base.release, progress=progress)
        kernel = own_kernel(own, series.base) if own else named()
        ground = engine.ground_of(kernel, series.base, own, progress=progress)
    trees = [step.tree for step in series.steps]
    ran = ExecutedObjects(partial(executed, ground.kernel) if executed else None)
    last = engine.Transplant(
        ground=ground, patched=trees[-1], confined=confined, progress=progress, ran=ran
    )
    found = Transplants(last)

    def made(tree: SourceTree) -> None:
        with suppress(SourceError):  # that a patch does not compile is an answer
            found.of(tree)

    with ThreadPoolExecutor(jobs()) as pool:
        made_of = [pool.submit(made, tree) for tree in trees]
        for at, each in enumerate(made_of):
            progress(f"patches into {ground.kernel.reference}", 100 * at / len(made_of))
            each.result()
    progress(f"patches into {ground.kernel.reference}", 100)
    return found


def configured(base: TreeReference, arch: str, progress: Progress | None = None) -> Config:
    """The configuration that a base is built with."""
    packaged = partial(reference.packaged_config, progress=progress)
    return tree_reference.configured(base, packaged, target=arch)


def builds(base: TreeReference, arch: str, *, confined: bool, progress: Progress) -> Builds:
    """By the configuration and the compiler that the base names.  Raises InfraError."""
    chain = build.compiler(base.compiler, target=arch, progress=progress)
    config = configured(base, arch, progress)
    return Builds(config=config, chain=chain, confined=confined, progress=progress)
