# SPDX-License-Identifier: GPL-2.0-or-later
"""Which functions scenarios execute on a kernel: what another one is made for."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kdelta.disassembly.identity import functions_of
from kdelta.errors import SpecError
from kdelta.host import leases
from kdelta.kernels.kernel import Kernel
from kdelta.run import exact
from kdelta.run.guest_trial import Bench
from kdelta.sample import Outcome
from kdelta.study.spec import Study


def executed(study: Study, bench: Bench, kernel: Kernel, jobs: int | None) -> frozenset[str]:
    """The functions that the scenarios of a study execute on a kernel, several guests at once.

    Raises SpecError where one cannot be counted there, InfraError.
    """
    trials = exact.SingleTrials(study, bench, jobs)
    at_once = jobs or leases.at_once(exact.guests_of(study))
    with (
        tempfile.TemporaryDirectory(prefix="kdelta-executed-") as scratch,
        ThreadPoolExecutor(at_once) as pool,
    ):
        numbers, names = range(len(study.scenarios)), study.scenarios
        results = [
            *pool.map(lambda at, name: trials.of(kernel, at, name, Path(scratch)), numbers, names)
        ]
    for name, result in zip(names, results, strict=True):
        if result.outcome is not Outcome.OK:
            raise SpecError(f"{name} cannot be counted on {kernel.reference}: {result.reason}")
    ran = functions_of(row.function for result in results for row in result.exact.functions)
    return frozenset(ran)
