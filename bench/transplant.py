# SPDX-License-Identifier: GPL-2.0-or-later
"""Do a transplanted and a fully built kernel agree?  Every function of every window, to the count.

    .venv/bin/python bench/transplant.py [--release RELEASE]... [--each] [SCENARIO...]

Upstream's 6.17.8 and 6.12.107 are built with a small configuration that has modules, tracer and
IBT, once as they are and once with the patches of tests/data/transplant (a folder there has those
that a release needs in another form); these are also put into the first build.  --each: the
patches one by one, too.  Two builds of a release take half an hour on two quiet cores when nothing
is in the cache, and each further patch a minute or two.

A window in which the guest's clock goes on writes a file's time once more, and a counter of a CPU
overflows after as many pages as were left.  So kernels agree where the windows that stand for a
phase are equal in all functions, or where other windows of both are: of up to four seeds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from commands import symbols_of
from kdelta.attribution import insns
from kdelta.journal import artifacts, results
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.run import exact
from kdelta.source import build, kconfig, tree_reference
from kdelta.study import spec
from kdelta.transplant.engine import Ground, Transplant

RELEASES = ("6.17.8", "6.12.107")
PATCHES = Path(__file__).parent.parent / "tests" / "data" / "transplant"
KINDS = (
    "branch", "call", "inlined", "function", "removal", "key", "percpu", "tracepoint", "event",
    "files", "header",
)  # fmt: skip
OPTIONS = [
    "MODULES", "MODULE_UNLOAD", "MODULE_FORCE_LOAD", "X86_KERNEL_IBT", "UBSAN", "UBSAN_BOUNDS",
    "UBSAN_SHIFT",
]  # fmt: skip
SCENARIOS = (
    "mincore:no_thp_pte_scan_4m", "mincore:thp_pmd_shortcut_4m",
    "mprotect:shared_dirty_full_toggle_16m", "tmpfs:write_new", "tmpfs:read",
)  # fmt: skip
Counts = dict[tuple[str, str], tuple[int, int]]
Window = tuple[int, frozenset[tuple[str, int, int]]]  # phase; functions
SEEDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a kernel executes.  typical: of each phase; windows: how often a window was counted."""

    typical: Counts
    windows: Counter[Window]


class Release:
    """A release that is built here, and its patches."""

    def __init__(self, name: str, folder: Path) -> None:
        fragment = folder / "modules.config"
        fragment.write_text("".join(f"CONFIG_{name}=y\n" for name in OPTIONS))
        self._config = kconfig.named(["ftrace"], [fragment])
        self._tree, self._chain = tree_reference.of_release(name), build.compiler()
        base = reference.of_build("file:", build.build(self._tree, self._config, self._chain))
        self._name, self.ground = name, Ground(kernel=base, tree=self._tree, compiler=self._chain)

    def kernels(self, kinds: Sequence[str]) -> dict[str, Kernel]:
        """The release, its null of some patches, the transplanted one and the built one."""
        own = (PATCHES / self._name / f"{kind}.patch" for kind in kinds)
        files = (path if path.exists() else PATCHES / path.name for path in own)
        words = [tree_reference.of_word(str(path)) for path in files]
        patched = tree_reference.applied(self._tree, words)
        made = build.build(patched, self._config, self._chain)
        one = Transplant(ground=self.ground, patched=patched)
        return {
            "release": self.ground.kernel,
            "null": one.kernel(name="null", null=True),
            "transplanted": one.kernel(name="transplanted"),
            "built": reference.of_build("file:", made),
        }


class Trials:
    """Trials of kernels, each made once."""

    def __init__(self, scenarios: Sequence[str], folder: Path) -> None:
        study = spec.from_arguments(scenarios, ["one", "two"])
        bench = exact.bench_of(study, "", threading.Event())
        self._trials, self._folder = exact.SingleTrials(study, bench), folder
        self._known: dict[tuple[str, str, int], Counted] = {}

    def of(self, kernel: Kernel, scenario: str, seeds: int = 1) -> Counted:
        """What a kernel executes in a scenario: the first seed's phases, all seeds' windows."""
        found = []
        for seed in range(seeds):
            key = (kernel.image_sha256, scenario, seed)
            if key not in self._known:
                self._known[key] = self._counted(kernel, len(self._known) + 1, scenario, seed)
            found.append(self._known[key])
        windows = sum((each.windows for each in found), Counter[Window]())
        return Counted(typical=found[0].typical, windows=windows)

    def _counted(self, kernel: Kernel, number: int, scenario: str, seed: int) -> Counted:
        result = self._trials.of(scenario, kernel, number, self._folder, seed=seed)
        typical = {(r.phase, r.function): (r.insns, r.calls) for r in result.exact.functions}
        table = symbols_of(self._folder, number)
        kept = results.trial_folder(self._folder, number) / "counts.bin.gz"
        windows = Counter[Window]()
        for window in artifacts.read_counts(kept, paths=False).windows:
            rows = insns.by_function(window, table, "")
            told = frozenset((row.function, row.insns, row.calls) for row in rows)
            windows[window.phase, told] += 1
        return Counted(typical=typical, windows=windows)


def compared(one: Counted, other: Counted) -> tuple[bool, list[str]]:
    """Whether two kernels agree, and how."""
    mine, theirs = one.typical, other.typical
    keys = [key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)]
    both = one.windows.keys() & other.windows.keys()
    phases = {phase for phase, _ in one.windows.keys() | other.windows.keys()}
    agree = not keys or {phase for phase, _ in both} == phases
    equal, every = (
        [sum(each.windows[key] for key in which) for each in (one, other)]
        for which in (both, one.windows.keys() | other.windows.keys())
    )
    said = (
        f"{len(theirs)} functions, {len(keys)} differ; of {every[0]} and {every[1]} windows"
        f" {equal[0]} and {equal[1]} have an equal one{'' if agree else ': NO AGREEMENT'}"
    )
    lines = [
        said,
        *(f"    {key[1]} ({key[0]}): {mine.get(key)} {theirs.get(key)}" for key in sorted(keys)),
    ]
    return agree, lines


class Tally:
    """What was compared so far."""

    def __init__(self, trials: Trials) -> None:
        self._trials, self.pairs, self.failed, self.changed = trials, 0, 0, set[str]()

    def add(self, title: str, kernels: Mapping[str, Kernel], scenario: str) -> None:
        """Compare the kernels of one scenario, and print how they agree."""
        found = {name: self._trials.of(kernel, scenario) for name, kernel in kernels.items()}
        for one, other in (("release", "null"), ("transplanted", "built")):
            seeds, (agree, lines) = 1, compared(found[one], found[other])
            while not agree and seeds < SEEDS:
                seeds += 1
                pair = (self._trials.of(kernels[name], scenario, seeds) for name in (one, other))
                agree, lines = compared(*pair)
            self.pairs, self.failed = self.pairs + 1, self.failed + (not agree)
            print(f"{title}: {one}, {other}: ", "\n".join(lines), sep="", flush=True)
        base, own = found["release"].typical, found["built"].typical
        differing = {key[1] for key, counts in own.items() if base.get(key) != counts}
        self.changed |= differing
        print(f"{title}: the patches change {len(differing)} functions", flush=True)


def main() -> int:
    """1 when two kernels do not agree, or no patch changes what is executed."""
    parser = argparse.ArgumentParser(description="Compare transplanted with built kernels.")
    parser.add_argument("--release", action="append", choices=RELEASES)
    parser.add_argument("--each", action="store_true", help="the patches one by one, too")
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS)
    chosen = parser.parse_args()
    sets = [KINDS, *((kind,) for kind in KINDS if chosen.each)]
    with tempfile.TemporaryDirectory(prefix="kdelta-agreement-") as scratch:
        tally = Tally(Trials(chosen.scenarios, Path(scratch) / "trials"))
        for name in chosen.release or RELEASES:
            release = Release(name, Path(scratch))
            for kinds in sets:
                known = release.kernels(kinds)
                what = kinds[0] if len(kinds) == 1 else "all"
                for scenario in chosen.scenarios:
                    tally.add(f"{name}+{what}, {scenario}", known, scenario)
    print(
        f"{tally.pairs} pairs of kernels were compared, {tally.failed} do not agree;"
        f" {len(tally.changed)} functions that were executed are changed"
    )
    return int(tally.failed > 0 or not tally.changed)


if __name__ == "__main__":
    sys.exit(main())
