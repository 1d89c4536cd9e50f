# SPDX-License-Identifier: GPL-2.0-or-later
"""What published summaries give away about the runs behind them, where no values are shown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kdelta.foreign.record import Published
from kdelta.foreign.series import Case
from kdelta.stats import detectors
from kdelta.verdict.comparison import Caution, Trap
from kdelta.verdict.series import Series

_MIN_ROWS = 6  # whole sums are even by chance in 4^-6 of the cases
_ALIKE = 0.1
_DIGITS = 9  # of a printed CV, for its sum of squares to be known to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A condition that the arms were measured under at several settings.

    sound: whether every setting was read back as requested; sentence: why, or why not.
    where: the set of files, when there are several.
    """

    name: str
    settings: tuple[str, ...]
    sound: bool
    sentence: str
    where: str = ""


def cautions(case: Case, *, paired: bool) -> Iterator[Caution]:
    """Traps that the published figures of a case show.  paired: see `counted_in_pairs`."""
    limit = case.rules.max_cv if case.rules else None
    for one in case.published:
        series = case.arm(one.arm)
        if series is None or series.boots:
            continue  # its values say more
        n = one.ok or 0
        yield from detectors.wild(one.arm, n=n, cv=one.cv)
        if limit is not None:
            yield from detectors.near_limit(one.arm, n=n, cv=one.cv, limit=limit)
        if one.failed:
            text = f"{one.arm}: {n}/{n + one.failed} runs ended ok"
            reason = f": {one.failure}" if one.failure else ""
            yield Caution(trap=Trap.FAILED, sentence=text + reason)
        elif one.failure:
            text = f"{one.arm}: runs behind the summary failed: {one.failure}"
            yield Caution(trap=Trap.FAILED, sentence=text)
        if n and not one.failed and n < detectors.MIN_REPLICATES:
            text = f"{one.arm}: {n} runs, {detectors.MIN_REPLICATES} are the least"
            yield Caution(trap=Trap.FEW, sentence=text)
    counted = list(_more_than_logs(case))
    yield from counted
    silent = not any(series.boots for series in case.series)
    if paired and not counted and case.published and silent:
        text = (
            "every published sum, and sum of squares, is twice a whole number: each run was"
            " counted twice, so n is half of what is said and the CV is too small"
        )
        yield Caution(trap=Trap.DOUBLE_COUNT, sentence=text)
    yield from _replaced(case)


def _more_than_logs(case: Case) -> Iterator[Caution]:
    """More results than logs of runs: then lines were counted, not runs."""
    logs = next((case.detail(s.arm, "runs_checked") for s in case.series), "")
    claimed = sum(one.ok or 0 for one in case.published)
    if not logs.isdigit() or claimed <= int(logs):
        return
    for one in case.published:
        runs = (one.ok or 0) * int(logs) / claimed
        if one.ok and runs == int(runs):
            yield from detectors.counted_twice(one.arm, claimed=one.ok, planned=int(runs))


def _replaced(case: Case) -> Iterator[Caution]:
    for series in case.series:
        lost = case.detail(series.arm, "lost_run")
        one = next((one for one in case.published if one.arm == series.arm), None)
        if lost and one and one.ok and not one.failed:
            text = (
                f"{series.arm}: a run was lost ({lost}) and yet {one.ok} are counted: a later run"
                " took its place, which breaks the interleaving"
            )
            yield Caution(trap=Trap.REFILLED, sentence=text)


def counted_in_pairs(published: Iterable[Published]) -> bool:
    """True when sum and sum of squares of all rows are even: whole values counted twice each.

    Needs rows with an even count and a CV with many digits; chance passes a row in 1 of 4 cases.
    """
    rows = [
        one
        for one in published
        if one.ok
        and one.ok % 2 == 0
        and one.mean
        and one.cv
        and (one.cv_digits >= _DIGITS or one.sd is not None)
    ]
    return len(rows) >= _MIN_ROWS and all(_even(one) for one in rows)


def _even(one: Published) -> bool:
    n, mean, cv = one.ok or 0, one.mean or 0.0, one.cv or 0.0
    total = n * mean
    squares = (cv * mean) ** 2 * (n - 1) + n * mean**2
    return all(abs(part / 2 - round(part / 2)) < 1e-3 for part in (total, squares))


def cpus(cases: Sequence[Case]) -> tuple[Dimension, ...]:
    """Whether each set of files may be read as a matrix over CPUs; sets of one setting together.

    A number of CPUs that was requested is not one that the kernel used: without SMP, or with
    maxcpus=1, the guest runs on one whatever QEMU was told.
    """
    sets: dict[str, list[Case]] = {}
    for case in cases:
        sets.setdefault(dict(case.group).get("set", ""), []).append(case)
    wide = [members for members in sets.values() if len(_asked(members)) > 1]
    single = [case for members in sets.values() if members not in wide for case in members]
    return tuple(_matrix(members) for members in [*wide, single] if _counts(_asked(members)))


def _counts(settings: Collection[str]) -> bool:
    """True for several numbers of CPUs; where 0 is one, they say which CPU it was."""
    return len(settings) > 1 and "0" not in settings


def _asked(cases: Sequence[Case]) -> dict[str, list[Series]]:
    asked: dict[str, list[Series]] = {}
    for case in cases:
        for series in case.series:
            if setting := series.fact("requested_cpus"):
                asked.setdefault(setting, []).append(series)
    return asked


def _matrix(cases: Sequence[Case]) -> Dimension:
    asked = _asked(cases)
    settings = tuple(sorted(asked, key=lambda text: (len(text), text)))
    every = [series for many in asked.values() for series in many]
    listed = ", ".join(settings)
    where = ", ".join(dict.fromkeys(w for case in cases if (w := dict(case.group).get("set", ""))))
    if all(_confirmed(series) for series in every):
        text = f"the guests saw the CPUs that were requested: {listed}"
        return Dimension(name="cpu", settings=settings, sound=True, sentence=text, where=where)
    text = f"{listed} CPUs are what was requested; {_why(every)}{_alike(cases)}"
    return Dimension(name="cpu", settings=settings, sound=False, sentence=text, where=where)


def _confirmed(series: Series) -> bool:
    seen, smp = series.fact("seen_cpus"), series.fact("smp")
    return seen == series.fact("requested_cpus") and not re.fullmatch(r"n|no|0|off", smp or "")


def _why(every: Sequence[Series]) -> str:
    if any(series.fact("smp") in ("n", "no", "0", "off") for series in every):
        return "the kernels are without SMP, so they used one"
    seen = sorted({s.fact("seen_cpus") or "" for s in every if s.fact("seen_cpus")})
    if seen and not all(series.fact("seen_cpus") for series in every):
        return "for some of them nothing says what the guest saw"
    if seen:
        return f"the guests saw {', '.join(seen)}"
    return "nothing in the data says what the guests saw"


def _alike(cases: Sequence[Case]) -> str:
    """How little the arms change with the setting, where that looks like one CPU throughout."""
    found: dict[tuple[str, str], set[float]] = {}
    for case in cases:
        for series in case.series:
            middle = _middle(case, series)
            if middle and middle > 0 and series.fact("requested_cpus"):
                found.setdefault((case.metric.name, series.arm), set()).add(middle)
    spread = [max(values) / min(values) - 1 for values in found.values() if len(values) > 1]
    if not spread or max(spread) > _ALIKE:
        return ""
    return f", and no arm's median changes with them by more than {100 * max(spread):.1f} %"


def _middle(case: Case, series: Series) -> float | None:
    values = sorted(series.values)
    if values:
        return values[len(values) // 2]
    return next((one.median for one in case.published if one.arm == series.arm), None)
