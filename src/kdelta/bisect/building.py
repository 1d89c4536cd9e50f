# SPDX-License-Identifier: GPL-2.0-or-later
"""One commit, one kernel: the only place where bisection meets the building of sources."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kdelta.archive.apt import Progress
from kdelta.bisect.history import History
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.source import build, kconfig
from kdelta.source import tree as trees
from kdelta.source.build import SourceError
from kdelta.source.tree import SourceTree

__all__ = ["Builder", "Built", "SourceError", "TreeBuilder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A kernel of a commit; seconds: that its build took, 0: it was in the cache."""

    kernel: Kernel
    seconds: float


class Builder(Protocol):
    """Builds commits."""

    def __call__(self, commit_id: str) -> Built:
        """The kernel of a commit.

        Raises SourceError when it does not build, InfraError when this machine is at fault.
        """


class TreeBuilder:
    """Builds commits of one history in one warm build directory."""

    def __init__(
        self,
        history: History,
        source: Path,
        *,
        configs: Sequence[str] = (),
        fragments: Sequence[Path] = (),
        compiler: str = "",
        progress: Progress | None = None,
    ) -> None:
        """source: the user's repository.  Raises SpecError for what is no kernel's source."""
        self._history = history
        self._source = source
        self._config = kconfig.named(configs or (kconfig.DEFAULT,), fragments)
        self._chain = build.compiler(compiler, progress=progress)
        self._line = trees.of_commit(source, history.good).line
        self._progress = progress

    def __call__(self, commit_id: str) -> Built:
        """See Builder."""
        tree = SourceTree(
            name=commit_id[:12],
            tree=self._history.tree(commit_id),
            line=self._line,
            commit=commit_id,
            objects=self._history.objects,
        )
        begun = time.monotonic()
        made = build.build(tree, self._config, self._chain, progress=self._progress)
        kernel = reference.of_build(f"tree:{self._source}@{commit_id}", made)
        seconds = 0.0 if made.cached else round(time.monotonic() - begun, 1)
        return Built(kernel=kernel, seconds=seconds)
