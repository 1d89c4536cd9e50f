# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a mail to a kernel list: plain text of at most 72 columns, for a person to send.

A claim, its tables, and below them: failures, page state, mechanism, limits, identities.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.audit import FactCheck, ScenarioAudit
from kdelta.analysis.claims import Claim, Headline, Tag
from kdelta.analysis.explanation import Presence
from kdelta.errors import SpecError
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.machine.axes import MachineSettings
from kdelta.metric import number, plural
from kdelta.printable import printable
from kdelta.procfs import compiler_short
from kdelta.rendering import sentences
from kdelta.rendering.explain import more, option_sentences, renamed
from kdelta.rendering.sentences import TRUST, change, effort
from kdelta.rendering.times import counted, level, scale
from kdelta.sample import KernelIdentity
from kdelta.table.columns import (
    ABSENT,
    Column,
    crossed_by,
    filled,
    plain,
    short,
    shortened,
    table_lines,
)
from kdelta.table.ladders import failures_told
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.workload import Workload

COLUMNS = 72
_FUNCTIONS = 8  # of the mechanism
_SMALL = 0.005  # share of the difference below which a function is one of the others
_NAME = 32
OTHERS = 5  # scenarios beside that of the headline: a mail is of one finding
_PRESENCE = {Presence.NEW: " (new)", Presence.VANISHED: " (gone)", Presence.BOTH: ""}
_CHANGES = 6  # told beside the first, the largest first


def mailed_ladders(found: Claim) -> list[Ladder[Any]]:
    """The headline's scenario first; of many others the few that changed most."""
    head = found.headline
    rest = [ladder for ladder in found.report.ladders if not head or ladder is not head.ladder]
    if len(rest) > OTHERS:
        moved = sorted((ladder for ladder in rest if ladder.steps), key=size, reverse=True)
        rest = moved[:OTHERS]
    return [*([head.ladder] if head else []), *rest]


def size(ladder: Ladder[Any]) -> float:
    """How much the largest step of a scenario changes, whichever way."""
    return max((abs(math.log(s.comparison.ratio or 1)) for s in ladder.steps), default=0)


def failures(found: Claim) -> Iterator[str]:
    """Every trial without data, by its reason."""
    told = [text for each in found.report.ladders for text in failures_told(each.failures)]
    report = found.report
    planned = sum(ladder.planned for ladder in report.ladders)
    failed = sum(len(ladder.failures) for ladder in report.ladders)
    yield "Failures"
    if not told:
        yield from wrapped(f"None: all of {plural(planned, 'trial')} ended ok.", "  ")
        return
    yield from wrapped(
        f"{failed} of {plural(planned, 'trial')} carry no data; none was replaced or left out"
        " of n:",
        "  ",
    )
    for text in dict.fromkeys(told):
        yield from wrapped(text, "    ")


def state(found: Claim) -> Iterator[str]:
    """What the audit of the pages says: the facts that bind, and their values."""
    yield "State of the pages"
    for audit in _first_audits(found):
        bound = [fact for fact in audit.facts if fact.verdict != "told"]
        wrong = [fact for fact in bound if fact.verdict != "ok"]
        if not audit.facts:
            yield from wrapped(f"{audit.reference}: it was not audited.", "  ")
        elif wrong:
            yield from wrapped(
                f"{audit.reference}: {len(wrong)} of {plural(len(bound), 'wanted fact')} do not"
                f" hold: {_facts(wrong)}.",
                "  ",
            )
        else:
            yield from wrapped(
                f"{audit.reference}: {plural(len(bound), 'wanted fact')}; each holds, and is the"
                " same on every kernel that ran, before the windows and after them:"
                f" {_facts(bound)}.",
                "  ",
            )


def _first_audits(found: Claim) -> list[ScenarioAudit]:
    names = {(ladder.workload, ladder.scenario, ladder.point) for ladder in mailed_ladders(found)}
    return [a for a in found.audits if (a.workload, a.scenario, a.point) in names]


def _facts(facts: Sequence[FactCheck]) -> str:
    values: dict[str, dict[str, None]] = {}
    for fact in facts:
        for value, _ in fact.values:
            values.setdefault(fact.name, {})[value] = None
    return ", ".join(f"{name} {' or '.join(each)}" for name, each in values.items())


def mechanism(found: Claim) -> Iterator[str]:
    """Apart from the claim: it names functions, and is no proof that they cost time."""
    explained = found.explanation
    if explained is None:
        return
    yield "Mechanism (the same counts by function; they add up to the difference)"
    if explained.refused or not explained.functions:
        reasons = "; ".join(explained.comparison.reasons)
        yield from wrapped(f"No function can be named: {reasons}.", "  ")
        return
    scale_by = explained.operations
    least = _SMALL * abs(explained.delta or 0)
    shown = [row for row in explained.functions if abs(row.delta) > least][:_FUNCTIONS]
    rest = explained.functions[len(shown) :]
    rows = [(short(r.function, _NAME), r.old, r.new, r.delta, _PRESENCE[r.status]) for r in shown]
    if rest:
        old, new = (sum(getattr(r, side) or 0 for r in rest) for side in ("old", "new"))
        rows.append((f"{len(rest)} others", old, new, new - old, ""))
    rows.append(("sum", explained.old_value, explained.new_value, explained.delta or 0, ""))
    yield ""
    yield from indented(
        [
            Column("function", (row[0] for row in rows)),
            *(
                Column(short(name, 12), (_count(count, scale_by) for count in counts), right=True)
                for name, counts in (
                    (explained.old, [row[1] for row in rows]),
                    (explained.new, [row[2] for row in rows]),
                )
            ),
            Column(f"per {explained.operation}", (more(r[3] / scale_by) + r[4] for r in rows)),
        ]
    )
    for told in option_sentences(explained):
        yield ""
        yield from wrapped(told, "  ")
    if same := renamed(explained, (row.function for row in shown)):
        yield ""
        yield from wrapped(same, "  ")
    if found.headline and found.headline.step.comparison.differences:
        yield ""
        yield from wrapped(
            "The two builds also differ in what is no commit: "
            + ", ".join(found.headline.step.comparison.differences)
            + ".",
            "  ",
        )


def _count(count: int | None, operations: int) -> str:
    return ABSENT if count is None else number(count / operations)


def not_claimed(found: Claim) -> Iterator[str]:
    """The limits of the run, and of any made program."""
    yield "What is not claimed"
    own = "That an application regressed: the program is made for this path alone."
    for text in (own, *found.report.limits):
        yield from wrapped(f"- {text}", "  ", "    ")


def identities(found: Claim) -> Iterator[str]:
    """What measured what: runs, machine, and a row for each kernel."""
    yield "Tool and identities"
    runs = {found.record.run_id: found.record}
    if found.exact is not None:
        runs[found.exact.run_id] = found.exact
    for record in runs.values():
        yield from wrapped(
            f"kdelta {record.kdelta_version}, run {record.run_id}, {record.created}, seed"
            f" {record.seed}",
            "  ",
        )
    ladder = found.headline.ladder if found.headline else found.report.ladders[0]
    for machine in ladder.machines:
        yield from wrapped(machine.told, "  ")
    yield ""
    arms = {arm.label: arm.kernel for arm in found.record.arms}
    rungs = [rung for rung in ladder.rungs if not rung.control]
    columns = [
        Column("kernel", shortened([rung.arm for rung in rungs], 14)),
        Column("package or release", (short(r.version or r.release or ABSENT, 22) for r in rungs)),
        Column("compiler", (short(compiler_short(rung.compiler) or ABSENT, 12) for rung in rungs)),
        Column("image sha256", (_digest(arms.get(rung.arm)) for rung in rungs)),
    ]
    yield from indented(columns)


def _digest(kernel: KernelIdentity | None) -> str:
    return kernel.image_sha256[:12] if kernel and kernel.image_sha256 else ABSENT


def wrapped(text: str, indent: str = "", later: str | None = None) -> Iterator[str]:
    """Text in lines of at most COLUMNS; later: the indent of all lines but the first."""
    own = indent if later is None else later
    yield from filled(printable(text, 20_000), COLUMNS, indent, own)


def indented(columns: Sequence[Column]) -> Iterator[str]:
    """A table, cut to COLUMNS."""
    for line in plain(table_lines(columns)).splitlines():
        yield f"  {line}"[:COLUMNS].rstrip()


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
            "no comparison of this run is decided, so there is nothing to write of"
            + _left_open(found),
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
    old, new = (sentences.series(rung) for rung in found.headline.rungs)
    what = change(found.headline.step.comparison.ratio, sentences.noun(found))
    place = re.sub(r"\.[chS]$", "", letter.file) or _place(found.headline.ladder, letter)
    return _line(f"{tag}{place}: {what} from {old} to {new}")


def _place(ladder: Ladder[Any], letter: Letter) -> str:
    workload = letter.workloads.get(ladder.workload)
    return ladder.scenario if workload and sentences.is_set(workload) else ladder.workload


def _unchanged(found: Claim) -> str:
    kernels = max(len(ladder.rungs) for ladder in found.report.ladders)
    what = "time" if found.timed else "path length"
    return f"no change of {what} over {plural(kernels, 'kernel')}"


# ---- what is proven ------------------------------------------------------------------------


def _first(found: Claim, letter: Letter) -> Iterator[str]:
    yield from wrapped("Hi,")
    yield ""
    for warned in found.report.debugging:
        yield from (*wrapped(f"{warned}."), "")
    head = found.headline
    if head is None:
        yield from wrapped(
            f"{_unchanged(found).capitalize()}: nothing differs by more than"
            f" {found.report.step_percent:g} % where a comparison was possible"
            f" ({TRUST[found.report.ladders[0].grade]}){_left_open(found)}."
        )
        return
    most = "" if found.timed else sentences.largest_function(found)
    yield from wrapped(f"{sentences.first_sentence(found, head, letter.workloads)} {most}".rstrip())
    if found.timed:
        yield from wrapped(_interval(head.step.comparison))
        yield from wrapped(_supported(found))
    if head.worse:
        yield ""
        yield from wrapped(_asked(found, letter))
    if others := _others(found, head):
        yield ""
        yield from wrapped(others)


def _left_open(found: Claim) -> str:
    """Pairs of kernels that options forbid to judge, so that a mail does not hide them."""
    pairs = {
        f"{rung.previous} to {rung.arm} is left open, since they differ in"
        f" {', '.join(rung.comparison.options)}": None
        for ladder in found.report.ladders
        for rung in ladder.rungs
        if rung.comparison and rung.comparison.options and _is_open(rung)
    }
    return "".join(f"; {told}" for told in pairs)


def _asked(found: Claim, letter: Letter) -> str:
    """What a maintainer is to do with it."""
    if letter.introduced:
        return f"It came with {letter.introduced}. Is it expected?"
    if sentences.releases(found):
        return (
            "Is it expected? Which commit it came with was not looked for; the commands under"
            " Reproducer count it again and look for that."
        )
    return "Is it expected? The commands under Reproducer measure it again."


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
        f"{step.old} to {step.new}: {change(step.comparison.ratio, sentences.noun(found))}"
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
    told = {f"{each.workload}:{each.scenario}": each for each in mailed_ladders(found)}
    for name, ladder in told.items():
        workload = letter.workloads.get(ladder.workload)
        scenario = sentences.scenario_of(ladder, letter.workloads)
        if workload is None or scenario is None:
            yield from wrapped(f"{name}: phases {', '.join(ladder.phases)}.", "  ")
            continue
        what = {phase.name: phase.what for phase in workload.phases}
        path = "" if sentences.is_set(workload) else f"; {workload.path}"
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
    told = mailed_ladders(found)
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
        sentences.claimed_value(rung.total.per_operation / divisor, found) if rung.total else ABSENT
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
            f" (*): the two kernels were built {crossed_by(r.comparison for r in known)}"
            f" ({', '.join(sorted(crossed))}), and part of that may be theirs."
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
        if found.headline.worse and not letter.introduced and (tags := sentences.releases(found)):
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
    old, new = (sentences.series(rung) for rung in found.headline.rungs)
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
