# SPDX-License-Identifier: GPL-2.0-or-later
"""How two kernels were built, where that is a part of their difference and no commit is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kdelta.procfs import compiler_family, compiler_short
from kdelta.sample import ArmRecord, KernelIdentity, TrialRecord
from kdelta.verdict.comparison import Comparison, Verdict


def read_back(arm: ArmRecord, trials: Sequence[TrialRecord]) -> KernelIdentity:
    """An arm's kernel as its booted guest told it, else as the run knew it before."""
    told = (trial.result.kernel for trial in trials if trial.result and trial.result.kernel)
    return next(told, arm.kernel)


def weighed(
    found: Comparison, old: KernelIdentity, new: KernelIdentity, *, scenario: str
) -> Comparison:
    """A comparison with what the builds of the two differ in.

    A step between kernels of different compilers is UNDECIDED, since part of it may be theirs;
    of one and the same source it is theirs alone, and stands.  So is one without a sign.
    """
    crossed = crossing(old, new)
    found = replace(found, crossing=crossed, differences=differences(old, new))
    told = found.verdict.is_step or found.signless
    if not crossed or not told or _one_source(old, new):
        return found
    reason = (
        f"{'; '.join(found.reasons)}; but the compilers differ ({crossed}), and part of that may be"
        f" theirs. {_mend(old, new, scenario)}"
    )
    return replace(found, verdict=Verdict.UNDECIDED, reasons=(reason,))


def crossing(old: KernelIdentity, new: KernelIdentity) -> str:
    """The compilers of the two as "gcc 14 -> gcc 16", "" when they are the same or not known.

    The same are those of one family and major version.
    """
    was, now = (compiler_family(kernel.compiler) for kernel in (old, new))
    return f"{was} -> {now}" if was and now and was != now else ""


def nearest(kernel: KernelIdentity, above: Sequence[KernelIdentity]) -> int:
    """Which of the kernels above one it is compared with: the last of the same compiler, since no
    other can tell what the commits between them did; else the last, -1.
    """
    alike = (at for at in reversed(range(len(above))) if not crossing(above[at], kernel))
    return next(alike, -1)


def differences(old: KernelIdentity, new: KernelIdentity) -> tuple[str, ...]:
    """What else differs in how the two were built, as far as it is known of both."""
    was, now = (compiler_short(kernel.compiler) for kernel in (old, new))
    found = [f"{was} -> {now}"] if was and now and was != now else []
    if old.options and new.options:
        before, after = (dict(o.split("=", 1) for o in k.options) for k in (old, new))
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        found += [_option(name, before.get(name, "n"), after.get(name, "n")) for name in names]
    return tuple(found)


def _option(name: str, old: str, new: str) -> str:
    words = {("n", "y"): f"+{name}", ("y", "n"): f"-{name}"}
    return words.get((old, new), f"{name} {old} -> {new}")


def _one_source(old: KernelIdentity, new: KernelIdentity) -> bool:
    return bool(old.source) and old.source == new.source


def _mend(old: KernelIdentity, new: KernelIdentity, scenario: str) -> str:
    """What to run instead."""
    references = [_series(kernel) for kernel in (old, new)]
    sources = [_source(kernel, compiler_family(new.compiler)) for kernel in (old, new)]
    ways = [
        f"{what}: kdelta run {scenario} --kernels {','.join(names)}"
        for what, names in (
            ("Packages of one compiler, where the archive has them", references),
            ("Both built by one", sources),
        )
        if all(names) and len(set(names)) > 1
    ]
    return "; ".join(ways) or "Build both with one compiler and compare those"


def _series(kernel: KernelIdentity) -> str:
    match = re.match(r"\d+\.\d+", kernel.version)
    if match is None:
        return ""
    return f"{match[0]}-rc" if "~rc" in kernel.version else match[0]


def _source(kernel: KernelIdentity, compiler: str) -> str:
    if kernel.arch != "amd64" or kernel.flavour == "rt":
        return ""  # is not built from source here
    word = compiler.replace(" ", "-")
    if kernel.reference.startswith("tree:"):
        return f"{re.sub(r'[+]cc=[^+]*', '', kernel.reference)}+cc={word}"
    upstream = re.match(r"\d+\.\d+(?:\.\d+)?(?=-)", kernel.version)
    return f"tree:deb:{upstream[0]}+cc={word}" if upstream else ""
