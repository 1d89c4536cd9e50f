# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a mail to a kernel list: plain text of at most 72 columns, for a person to send."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.claims import Claim, Headline, Tag
from kdelta.analysis.findings import Ladder, Rung
from kdelta.errors import SpecError
from kdelta.machine.axes import MachineSettings
from kdelta.metric import number, plural
from kdelta.printable import printable
from kdelta.rendering import lead
from kdelta.rendering.columns import ABSENT, Column, short, shortened
from kdelta.rendering.mail_parts import (
    COLUMNS,
    OTHERS,
    failures,
    identities,
    indented,
    mechanism,
    not_claimed,
    size,
    state,
    told_ladders,
    wrapped,
)
from kdelta.rendering.times import counted, level, scale
from kdelta.rendering.wording import TRUST, change, effort
from kdelta.stats.verdict import Comparison, Verdict
from kdelta.workload import Workload

_CHANGES = 6  # told beside the first, the largest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What a mail is made of beside the claim.

    workloads: by name, those that are known here.  introduced: the commit, where it is known, as
    `Fixes:` writes it.  file: of the kernel's source, that the first function is in.  to, cc:
    addresses.
    """

    workloads: Mapping[str, Workload]
    introduced: str = ""
    file: str = ""
    to: tuple[str, ...] = ()
    cc: tuple[str, ...] = ()


def written(found: Claim, letter: Letter) -> str:
    """The whole mail: the headers that a person checks, an empty line, the text.

    Raises SpecError when nothing is decided.
    """
    if not found.decided:
        raise SpecError(
            "no comparison of this run is decided, so there is nothing to write of",
            place=f"run {found.record.run_id}",
            action=f"see why with: kdelta show {found.record.run_id}",
        )
    sections = (
        _first(found, letter),
        _window(found, letter),
        *_tables(found),
        failures(found),
        state(found),
        mechanism(found),
        not_claimed(found),
        _reproducer(found, letter),
        _regzbot(found, letter),
        identities(found),
    )
    parts = (list(map(printable, part)) for part in sections)
    body = "\n\n".join("\n".join(lines) for lines in parts if lines)
    return "".join(f"{line}\n" for line in _headers(found, letter)) + f"\n{body}\n"


def _headers(found: Claim, letter: Letter) -> Iterator[str]:
    for name, people in (("To", letter.to), ("Cc", letter.cc)):
        if people:
            yield f"{name}: " + ",\n    ".join(printable(each) for each in people)
    yield f"Subject: {subject(found, letter)}"


def subject(found: Claim, letter: Letter) -> str:
    """The tag by what is proven, the place, and the size in words; one line of 72 columns."""
    tag = f"{found.tag} " if found.tag else ""
    if found.headline is None:
        names = dict.fromkeys(ladder.workload for ladder in found.report.ladders)
        return _line(f"{tag}{', '.join(names)}: {_unchanged(found)}")
    old, new = (lead.series(rung) for rung in found.headline.rungs)
    what = change(found.headline.step.comparison.ratio, lead.noun(found))
    place = re.sub(r"\.[chS]$", "", letter.file) or _place(found.headline.ladder, letter)
    return _line(f"{tag}{place}: {what} from {old} to {new}")


def _place(ladder: Ladder[Any], letter: Letter) -> str:
    workload = letter.workloads.get(ladder.workload)
    return ladder.scenario if workload and lead.is_set(workload) else ladder.workload


def _unchanged(found: Claim) -> str:
    kernels = max(len(ladder.rungs) for ladder in found.report.ladders)
    what = "time" if found.timed else "path length"
    return f"no change of {what} over {plural(kernels, 'kernel')}"


# ---- what is proven ------------------------------------------------------------------------


def _first(found: Claim, letter: Letter) -> Iterator[str]:
    yield from wrapped("Hi,")
    yield ""
    head = found.headline
    if head is None:
        yield from wrapped(
            f"{_unchanged(found).capitalize()}: nothing differs by more than"
            f" {found.report.step_percent:g} % where a comparison was possible"
            f" ({TRUST[found.report.ladders[0].grade]})."
        )
        return
    most = "" if found.timed else lead.largest(found)
    yield from wrapped(f"{lead.sentence(found, head, letter.workloads)} {most}".rstrip())
    if found.timed:
        yield from wrapped(_interval(head.step.comparison))
        yield from wrapped(_supported(found))
    if head.worse:
        yield ""
        yield from wrapped(_asked(found, letter))
    if others := _others(found, head):
        yield ""
        yield from wrapped(others)


def _asked(found: Claim, letter: Letter) -> str:
    """What a maintainer is to do with it."""
    if letter.introduced:
        return f"It came with {letter.introduced}. Is it expected?"
    if lead.releases(found):
        return (
            "Is it expected? Which commit it came with was not looked for; the commands under"
            " Reproducer count it again and look for that."
        )
    return "Is it expected? The commands under Reproducer measure it again."


def _value(value: float, found: Claim) -> str:
    return f"{value:.3f}" if found.timed and value < 100 else number(value)


def _interval(found: Comparison) -> str:
    if found.interval is None or found.ratio is None:
        return ""
    low, high = found.interval
    return (
        f"The ratio new/old is {found.ratio:.3f}, {level(found.alpha)} interval {low:.3f} to"
        f" {high:.3f}, over {counted(found)} of each kernel."
    )


def _supported(found: Claim) -> str:
    if found.support is None:
        why = found.missing or "no instructions were counted beside it"
        return f"There is no support from path length: {why}."
    step = found.support.step
    direction = (
        "supports"
        if found.support.worse == (found.headline and found.headline.worse)
        else ("contradicts")
    )
    return (
        f"Path length {direction} it: {number(step.new_value)} instructions instead of"
        f" {number(step.old_value)}, {TRUST[step.comparison.grade].partition(';')[0]}."
    )


def _others(found: Claim, head: Headline) -> str:
    steps = [
        (ladder, step)
        for ladder in sorted(found.report.ladders, key=size, reverse=True)
        for step in ladder.steps
        if step is not head.step
    ]
    if not steps:
        return ""
    told = [
        f"{step.old} to {step.new}: {change(step.comparison.ratio, lead.noun(found))}"
        + (f" in {ladder.workload}:{ladder.scenario}" if ladder is not head.ladder else "")
        for ladder, step in steps[:_CHANGES]
    ]
    left = len(steps) - len(told)
    more_of = f"; {left} more: kdelta show {found.report.run_id}" if left else ""
    return f"Other changes above {found.report.step_percent:g} %: {'; '.join(told)}{more_of}."


# ---- what was measured ---------------------------------------------------------------------


def _window(found: Claim, letter: Letter) -> Iterator[str]:
    yield "What is inside the window"
    # Once for all points of a matrix.
    told = {f"{each.workload}:{each.scenario}": each for each in told_ladders(found)}
    for name, ladder in told.items():
        workload = letter.workloads.get(ladder.workload)
        scenario = lead.scenario_of(ladder, letter.workloads)
        if workload is None or scenario is None:
            yield from wrapped(f"{name}: phases {', '.join(ladder.phases)}.", "  ")
            continue
        what = {phase.name: phase.what for phase in workload.phases}
        path = "" if lead.is_set(workload) else f"; {workload.path}"
        yield from wrapped(f"{name}: {scenario.summary}{path}", "  ")
        for window in scenario.windows:
            times = f"{window.operations:,} x {window.operation}"
            yield from wrapped(f"{window.name}: {what[window.name]} ({times})", "    ")
    yield from wrapped(
        "Set-up, audit of the pages, warm-up and output are outside."
        + ("" if found.timed else " Interrupts are left out."),
        "  ",
    )


def _tables(found: Claim) -> Iterator[Iterable[str]]:
    told = told_ladders(found)
    for ladder in told:
        yield _table(found, ladder)
    beside = [each for each in found.report.ladders if each not in told]
    quiet = [each for each in beside if not each.steps]
    left = [ladder for ladder in quiet if any(map(_is_open, ladder.rungs))]
    for what, ladders in (
        (f"No change above {found.report.step_percent:g} %", [o for o in quiet if o not in left]),
        ("No change that is decided, and not every pair of kernels is,", left),
    ):
        if ladders:
            yield wrapped(f"{what} in {_listed(ladders)}.")
    if moved := [each for each in beside if each.steps]:
        yield wrapped(
            f"Of {plural(len(moved), 'scenario')} that changed, too, there is nothing here: kdelta"
            f" report {found.report.run_id} --mail --scenario NAME writes of one."
        )


def _listed(ladders: Sequence[Ladder[Any]]) -> str:
    names = [f"{ladder.workload}:{ladder.scenario}" for ladder in ladders]
    many = len(names) > 2 * OTHERS
    return plural(len(names), "scenario") if many else ", ".join(names)


def _is_open(rung: Rung[Any]) -> bool:
    found = rung.comparison
    return bool(found and found.verdict in (Verdict.UNDECIDED, Verdict.INVALID))


def _table(found: Claim, ladder: Ladder[Any]) -> Iterator[str]:
    divisor, unit = scale([ladder]) if found.timed else (1.0, "instructions")
    point = f", {ladder.point}" if ladder.point else ""
    per = f"{unit} per {ladder.operation or 'operation'}"
    better = "less is better" if found.timed else "fewer is better"
    yield from wrapped(f"{ladder.workload}:{ladder.scenario}{point}, {per}; {better}")
    yield ""
    beside = f"against {ladder.baseline}" if ladder.baseline else "against the one above"
    kernels = shortened([rung.arm for rung in ladder.rungs], 22)
    values = [
        _value(rung.total.per_operation / divisor, found) if rung.total else ABSENT
        for rung in ladder.rungs
    ]
    columns = [
        Column("kernel", kernels),
        Column(unit if found.timed else "count", values, right=True),
        Column(short(beside, 30), (_against(found, rung) for rung in ladder.rungs)),
        Column("n", (f"{rung.ok}/{rung.planned}" for rung in ladder.rungs)),
    ]
    yield from indented(columns)
    yield ""
    for rung, label in zip(ladder.rungs, kernels, strict=True):
        if called := found.report.subjects.get(rung.arm):
            yield from wrapped(f'{label}: "{called}"', "  ")
    yield from wrapped(_spread(found, ladder), "  ")
    for rung, label in zip(ladder.rungs, kernels, strict=True):
        judged = rung.comparison
        if judged and judged.signless and not judged.crossing:
            yield from wrapped(f"{label}: {'; '.join(judged.reasons)}.", "  ")


def _against(found: Claim, rung: Rung[Any]) -> str:
    if rung.skipped:
        return "not supported there"
    if rung.total is None and not rung.ok:
        return "failed, see below"
    if rung.comparison is None:
        return "the same kernel again" if rung.control else ABSENT
    words = effort(rung.comparison, timed=found.timed)
    ratio = rung.comparison.ratio
    if ratio is None:
        return words
    mark = " (*)" if rung.comparison.crossing else ""
    return f"x{ratio:.3f}, {words}{mark}"


def _spread(found: Claim, ladder: Ladder[Any]) -> str:
    totals = [rung.total for rung in ladder.rungs if rung.total]
    known = [rung for rung in ladder.rungs if rung.comparison]
    if not totals:
        return "Nothing was measured."
    text = f"n: trials that ended ok, of those planned ({ladder.replicates})."
    if found.timed:
        cvs = [total.summary.cv for total in totals if total.summary.cv is not None]
        if cvs:
            text += f" Scatter (CV) between them: at most {100 * max(cvs):.1f} %."
    else:
        share = min(total.share for total in totals)
        text += f" {'All' if share == 1 else f'At least {100 * share:.0f} %'} of the windows of a"
        text += " phase have exactly the count shown."
    if crossed := {r.comparison.crossing for r in known if r.comparison and r.comparison.crossing}:
        text += (
            f" (*): the two kernels were built by different compilers ({', '.join(sorted(crossed))}"
            "), and part of that may be theirs."
        )
    return text


# ---- how to check it -----------------------------------------------------------------------


def _reproducer(found: Claim, letter: Letter) -> Iterator[str]:
    ladder = found.headline.ladder if found.headline else found.report.ladders[0]
    yield "Reproducer (one C file, no kdelta needed to run it)"
    name, scenario = shlex.quote(ladder.workload), shlex.quote(ladder.scenario)
    if ladder.workload in letter.workloads:
        yield from _command(f"kdelta workload export {name}:{scenario}", f"-o {scenario}.c")
    yield from _command(f"gcc -O2 -static {scenario}.c", f"-o {scenario}")
    yield f"  ./{scenario}"
    if found.headline and not found.timed:
        references = shlex.quote(",".join(map(_reference, found.headline.rungs)))
        yield "The counts again:"
        own, usual = found.record.study.machine, MachineSettings()
        axes = [
            f"--{key.replace('_', '-')} {shlex.quote(str(getattr(own, key)))}"
            for key in own.__struct_fields__
            if getattr(own, key) != getattr(usual, key)
        ]
        yield from _command(f"kdelta run {name}:{scenario}", f"--kernels {references}", *axes)
        if found.headline.worse and not letter.introduced and (tags := lead.releases(found)):
            ends = f"--tree ~/linux --good {tags[0]} --bad {tags[1]}"
            yield "The commit:"
            yield from _command(f"kdelta bisect commits {name}:{scenario}", ends, *axes)


def _command(*parts: str) -> Iterator[str]:
    """A command that may be too long for a line, continued as a shell wants it."""
    whole = "  " + " ".join(parts)
    if len(whole) <= COLUMNS:
        yield whole
        return
    head, *rest = parts
    yield f"  {head} \\"
    yield from (f"      {part}" for part in rest)


def _reference(rung: Rung[Any]) -> str:
    return f"deb:{rung.version}" if rung.version else rung.reference


def _regzbot(found: Claim, letter: Letter) -> Iterator[str]:
    if found.tag is not Tag.REGRESSION or found.headline is None:
        if found.tag is Tag.RFC:
            yield from wrapped(
                "regzbot is not asked to track this: "
                + ("no time was measured." if not found.timed else "no count supports it.")
            )
        return
    old, new = (lead.series(rung) for rung in found.headline.rungs)
    commit = letter.introduced.partition(" ")[0]
    yield f"#regzbot introduced: {commit or f'{old}..{new}'}"
    yield f"#regzbot title: {subject(found, letter).removeprefix(f'{found.tag} ')}"
    if letter.introduced:
        yield ""
        yield f"Fixes: {letter.introduced}"
    else:
        yield from wrapped(
            "(The kernels are what was measured; that the change came between the first releases of"
            " their series is likely and was not shown.)"
        )


def _line(text: str) -> str:
    return short(printable(text), COLUMNS)
