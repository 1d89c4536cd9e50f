# SPDX-License-Identifier: GPL-2.0-or-later
"""Do a transplanted and a fully built kernel agree?  Every function of every window, to the count.

    .venv/bin/python bench/transplant.py [SCENARIO...]

Upstream's 6.17.8 is built with a small configuration that has modules, tracer and IBT, once as it
is and once with the patches of tests/data/transplant; these are also put into the first build.
Two builds take half an hour on two quiet cores when nothing is in the cache.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.run import exact
from kdelta.source import build, kconfig, tree_reference
from kdelta.study import spec
from kdelta.transplant import engine
from kdelta.transplant.engine import Ground

RELEASE = "6.17.8"
PATCHES = Path(__file__).parent.parent / "tests" / "data" / "transplant"
KINDS = (
    "branch", "call", "inlined", "function", "removal", "key", "percpu", "tracepoint", "files",
    "header",
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


def kernels(folder: Path) -> dict[str, Kernel]:
    """The release, its null, the transplanted one and the built one."""
    fragment = folder / "modules.config"
    fragment.write_text("".join(f"CONFIG_{name}=y\n" for name in OPTIONS))
    config = kconfig.named(["ftrace"], [fragment])
    tree = tree_reference.of_release(RELEASE)
    words = [str(PATCHES / f"{name}.patch") for name in KINDS]
    patched = tree_reference.applied(tree, [tree_reference.of_word(word) for word in words])
    chain = build.compiler()
    base, own = (
        reference.of_build("file:", build.build(each, config, chain)) for each in (tree, patched)
    )
    ground = Ground(kernel=base, tree=tree, compiler=chain)
    return {
        "release": base,
        "null": engine.transplanted(ground, patched, name="null", null=True),
        "transplanted": engine.transplanted(ground, patched, name="transplanted"),
        "built": own,
    }


def main() -> int:
    """1 when any count differs."""
    scenarios = sys.argv[1:] or SCENARIOS
    study = spec.from_arguments(scenarios, ["one", "two"])
    with tempfile.TemporaryDirectory(prefix="kdelta-agreement-") as scratch:
        bench = exact.bench_of(study, "", threading.Event())
        trials, differing, number = exact.SingleTrials(study, bench), 0, 0
        known = kernels(Path(scratch))
        for scenario in scenarios:
            found: dict[str, Counts] = {}
            for name, kernel in known.items():
                number += 1
                result = trials.of(kernel, number, scenario, Path(scratch) / "trials")
                rows = result.exact.functions
                found[name] = {(row.phase, row.function): (row.insns, row.calls) for row in rows}
            for one, other in (("release", "null"), ("transplanted", "built")):
                mine, theirs = found[one], found[other]
                keys = [k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k)]
                differing += len(keys)
                print(f"{scenario}: {one}, {other}: {len(theirs)} functions, {len(keys)} differ")
                for key in sorted(keys):
                    print(f"    {key[1]} ({key[0]}): {mine.get(key)} {theirs.get(key)}")
            changed = sum(found["release"].get(k) != v for k, v in found["built"].items())
            print(f"{scenario}: the patches change {changed} functions")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
