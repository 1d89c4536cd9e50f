# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a mail to a kernel list: plain text of at most 72 columns, for a person to send.

A claim, its tables, and below them: failures, page state, mechanism, limits, identities.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.audit import FactCheck
from kdelta.analysis.calls import CallExplanation
from kdelta.analysis.claims import Claim, Tag
from kdelta.analysis.explanation import shortened as shortened_to
from kdelta.errors import SpecError
from kdelta.export import file_name
from kdelta.ladder.counts import LOW_SHARE
from kdelta.ladder.evidence import ITERATION
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.machine.axes import MachineSettings
from kdelta.metric import number, plural
from kdelta.printable import printable
from kdelta.procfs import compiler_short
from kdelta.rendering import sentences
from kdelta.rendering.explain import function_cells, option_sentences, renamed
from kdelta.rendering.sentences import TRUST, change, effort
from kdelta.rendering.times import counted, level, scale
from kdelta.table import counts
from kdelta.table.columns import (
    ABSENT,
    Column,
    builds_apart,
    crossed_by,
    filled,
    plain,
    shell_lines,
    short,
    shortened,
    table_lines,
)
from kdelta.table.counts import times
from kdelta.table.ladders import caveats, failures_told
from kdelta.verdict.comparison import Verdict
from kdelta.workload import Workload, is_file

COLUMNS = 72
_KERNELS = 54  # characters of references that a command has in one line
_OPEN = (Verdict.UNDECIDED, Verdict.INVALID)
_FUNCTIONS = 8  # of the mechanism
_SMALL = 0.005  # share of the difference below which a function is one of the others
_NAME = 32
OTHERS = 5  # scenarios beside that of the headline: a mail is of one finding
_PERF = "perf stat -e instructions:k,instructions:u"


def _mailed_ladders(found: Claim) -> list[Ladder[Any]]:
    """The headline's scenario first; of many others the few that changed most."""
    head = [found.headline.ladder] if found.headline else []
    rest = [ladder for ladder in found.report.ladders if not head or ladder is not head[0]]
    if len(rest) > OTHERS:
        changed = [ladder for ladder in rest if ladder.steps]  # the largest step is the first
        rest = sorted(changed, key=lambda each: each.steps[0].size, reverse=True)[:OTHERS]
    return [*head, *rest]


def _failures(found: Claim) -> Iterator[str]:
    ladders = found.report.ladders
    told = [text for each in ladders for text in failures_told(each.failures)]
    planned = plural(sum(ladder.planned for ladder in ladders), "trial")
    failed = sum(len(ladder.failures) for ladder in ladders)
    yield "Failures"
    if not told:
        yield from wrapped(f"None: all of {planned} ended ok.", "  ")
        return
    said = f"{failed} of {planned} carry no data; none was replaced or left out of n:"
    yield from wrapped(said, "  ")
    for text in dict.fromkeys(told):
        yield from wrapped(text, "    ")


def _state(found: Claim) -> Iterator[str]:
    yield "State of the pages"
    names = {(ladder.workload, ladder.scenario, ladder.point) for ladder in _mailed_ladders(found)}
    for audit in found.audits:
        if (audit.workload, audit.scenario, audit.point) not in names:
            continue
        bound = [fact for fact in audit.facts if fact.verdict != "told"]
        wrong = [fact for fact in bound if fact.verdict != "ok"]
        wanted = plural(len(_values(bound)), "wanted fact")
        if not audit.facts:
            said = "it was not audited"
        elif not bound:
            said = "it wants no state of its pages; kernels whose states differ are not compared"
        elif wrong:
            said = f"{len(_values(wrong))} of {wanted} do not hold: {_facts(wrong)}"
        else:
            said = (
                f"{wanted}; each holds, and is the same on every kernel that ran, before the"
                f" windows and after them: {_facts(bound)}"
            )
        yield from wrapped(f"{audit.reference}: {said}.", "  ")


def _values(facts: Sequence[FactCheck]) -> dict[str, list[str]]:
    """The values of each fact, before the windows and after them, the least first."""
    values: dict[str, set[str]] = {}
    for fact in facts:
        values.setdefault(fact.name, set()).update(value for value, _ in fact.values)
    return {name: sorted(each, key=lambda one: (len(one), one)) for name, each in values.items()}


def _facts(facts: Sequence[FactCheck]) -> str:
    return ", ".join(f"{name} {' or '.join(each)}" for name, each in _values(facts).items())


def _mechanism(found: Claim) -> Iterator[str]:
    """Apart from the claim: it names functions, and is no proof that they cost time."""
    explained = found.explanation
    if explained is None:
        return
    yield "Mechanism (the same counts by function; they add up to the difference)"
    if explained.refused or not explained.functions:
        reasons = "; ".join(explained.comparison.reasons)
        yield from wrapped(f"No function can be named: {reasons}.", "  ")
        return
    least = _SMALL * abs(explained.delta or 0)
    telling = sum(abs(row.delta) > least for row in explained.functions)
    shown = shortened_to(explained, min(telling, _FUNCTIONS))
    rows = [
        (short(name, _NAME), *cells[:3], status or "")
        for name, status, _, cells in function_cells(shown)
    ]
    heads = ("function", *(short(own, 12) for own in (explained.old, explained.new)))
    heads += (f"per {explained.operation}", "")
    columns = zip(heads, zip(*rows, strict=True), strict=True)
    yield ""
    yield from indented([Column(h, own, right=h in heads[1:4]) for h, own in columns])
    for text in filter(None, (*option_sentences(explained), renamed(shown.functions))):
        yield from ("", *wrapped(text, "  "))


def _not_claimed(found: Claim) -> Iterator[str]:
    yield "What is not claimed"
    own = "That an application regressed: the program is made for this path alone."
    for text in (own, *found.report.limits):
        yield from wrapped(f"- {text}", "  ", "    ")


def _identities(found: Claim) -> Iterator[str]:
    yield "Tool and identities"
    for record in {
        each.run_id: each for each in (found.report.record, found.exact) if each
    }.values():
        yield from wrapped(
            f"kdelta {record.kdelta_version}, run {record.run_id}, {record.created}, seed"
            f" {record.seed}",
            "  ",
        )
    ladder = found.ladder
    for machine in ladder.machines:
        yield from wrapped(machine.told, "  ")
    yield ""
    digests = {arm.label: arm.kernel.image_sha256[:12] for arm in found.report.record.arms}
    rungs = [rung for rung in ladder.rungs if not rung.arm.control]
    columns = [
        Column("kernel", shortened([rung.label for rung in rungs], 14)),
        Column(
            "package or release",
            (short(r.kernel.version or r.kernel.release or ABSENT, 22) for r in rungs),
        ),
        Column(
            "compiler",
            (short(compiler_short(rung.kernel.compiler) or ABSENT, 12) for rung in rungs),
        ),
        Column("image sha256", (digests.get(rung.label) or ABSENT for rung in rungs)),
    ]
    yield from indented(columns)
    for rung in rungs:
        if rung.comparison and rung.comparison.differences:
            text = builds_apart(rung.previous or ABSENT, rung.label, rung.comparison)
            yield from ("", *wrapped(f"What is no commit: {text}.", "  "))


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
    addresses.  newest: a series that the archive has and nobody counted.  program: what
    `kdelta run --` counted, with its arguments.  paths: the change by call paths, if known.
    """

    workloads: Mapping[str, Workload]
    introduced: str = ""
    file: str = ""
    to: Sequence[str] = ()
    cc: Sequence[str] = ()
    newest: str = ""
    program: str = ""
    paths: CallExplanation | None = None


def written(found: Claim, letter: Letter) -> str:
    """The whole mail: the headers that a person checks, an empty line, the text.

    Raises SpecError when nothing is decided.
    """
    if not found.decided:
        left, run_id = "; ".join(_left_open(found)), found.report.record.run_id
        none = f"{left}; nothing else" if left else "no comparison"
        cause = f"{none} of this run is decided, so there is nothing to write of"
        action = f"see why with: kdelta show {run_id}"
        raise SpecError(cause, place=f"run {run_id}", action=action)
    sections = (
        _first(found, letter),
        _window(found, letter),
        *_tables(found),
        _failures(found),
        _state(found),
        _mechanism(found),
        _not_claimed(found),
        _reproducer(found, letter),
        _regzbot(found, letter),
        _identities(found),
    )
    parts = (list(map(printable, part)) for part in sections)
    body = "\n\n".join("\n".join(lines) for lines in parts if lines)
    headers = [
        f"{name}: " + ",\n    ".join(map(printable, people)) + "\n"
        for name, people in (("To", letter.to), ("Cc", letter.cc))
        if people
    ]
    return f"{''.join(headers)}Subject: {_subject(found, letter)}\n\n{body}\n"


def _subject(found: Claim, letter: Letter) -> str:
    """The tag by what is proven, the place, and the size in words; one line of 72 columns."""
    if found.headline is None:
        place = ", ".join(dict.fromkeys(ladder.workload for ladder in found.report.ladders))
        said = _unchanged(found)
    else:
        old, new = sentences.ends(found.headline)
        what = change(found.headline.step.comparison.ratio, sentences.noun(found))
        ladder = found.headline.ladder
        workload = letter.workloads.get(ladder.workload)
        own = ladder.scenario if workload and sentences.is_set(workload) else ladder.workload
        call = re.match(r"(\w+)\(", sentences.subject(ladder, "", letter.workloads))
        folder = letter.file.rpartition("/")[0] or (workload.subsystem if workload else "")
        place = f"{folder}{folder and ('/' if call else ': ')}{call[1] if call else own}"
        said = f"{what} from {old} to {new}"
    tag = f"{found.tag} " if found.tag else ""
    return short(printable(f"{tag}{place}: {said}"), COLUMNS)


def _unchanged(found: Claim) -> str:
    kernels = max(len(ladder.rungs) for ladder in found.report.ladders)
    what = "time" if found.timed else "path length"
    return f"no change of {what} over {plural(kernels, 'kernel')}"


def _first(found: Claim, letter: Letter) -> Iterator[str]:
    yield from wrapped("Hi,")
    yield ""
    for warned in found.report.debugging:
        yield from (*wrapped(f"{warned}."), "")
    head, ladder = found.headline, found.ladder
    if ladder.failing:
        yield from wrapped(f"Note first that {ladder.failing}.")
        yield ""
    if head is None:
        yield from wrapped(
            f"{_unchanged(found).capitalize()}: nothing differs by more than"
            f" {found.report.step_percent:g} % where a comparison was possible"
            f" {'; '.join((f'({sentences.trust(ladder)})', *_left_open(found)))}."
        )
        return
    by_path = sentences.by_path(letter.paths) if letter.paths else ""
    most = "" if found.timed else by_path or sentences.by_function(found.explanation)
    first = sentences.first_sentence(found, head, letter.workloads)
    now = "" if found.timed else f"{sentences.newest(head)}{sentences.in_all(head)}"
    later = f"{letter.newest} exists and was not counted." * bool(letter.newest)
    yield from wrapped(" ".join(filter(None, (first, most, now, later))))
    if found.timed:
        judged = head.step.comparison
        if judged.interval is not None and judged.ratio is not None:
            low, high = judged.interval
            yield from wrapped(
                f"The ratio new/old is {judged.ratio:.3f}, {level(judged.alpha)} interval"
                f" {low:.3f} to {high:.3f}, over {counted(judged)} of each kernel."
            )
        yield from wrapped(_supported(found))
    if head.worse:
        asked = "Is it expected?"
        if letter.introduced:
            asked = f"It came with {letter.introduced}. {asked}"
        elif sentences.releases(found):
            asked += " Which commit it came with was not looked for; the last command below does."
        yield from ("", *wrapped(asked))


def _left_open(found: Claim) -> Sequence[str]:
    """Pairs of kernels that options forbid to judge, so that a mail does not hide them."""
    pairs = {
        f"{rung.previous} to {rung.label} is undecided, since they differ in"
        f" {', '.join(judged.options)}": None
        for ladder in found.report.ladders
        for rung in ladder.rungs
        if (judged := rung.comparison) and judged.options and judged.verdict in _OPEN
    }
    return tuple(pairs)


def _supported(found: Claim) -> str:
    if found.support is None:
        why = found.missing or "no instructions were counted beside it"
        return f"There is no support from path length: {why}."
    step = found.support.step
    alike = found.support.worse == (found.headline and found.headline.worse)
    return (
        f"Path length {'supports' if alike else 'contradicts'} it: {number(step.new_value)}"
        f" instructions instead of {number(step.old_value)},"
        f" {TRUST[step.comparison.grade].partition(';')[0]}."
    )


def _window(found: Claim, letter: Letter) -> Iterator[str]:
    yield "What is inside the window"
    # Once for all points of a matrix.
    told = {f"{each.workload}:{each.scenario}": each for each in _mailed_ladders(found)}
    for name, ladder in told.items():
        workload = letter.workloads.get(ladder.workload)
        scenario = sentences.scenario_of(ladder, letter.workloads)
        if workload is None or scenario is None:
            phases = f"phase{'s' * (len(ladder.phases) > 1)} {' and '.join(ladder.phases)}"
            yield from wrapped(f"{name}: what runs between its marks, {phases}.", "  ")
            continue
        what = {phase.name: phase.what for phase in workload.phases}
        yield from wrapped(f"{name}: {scenario.summary}", "  ")
        for window in scenario.windows:
            times = f"{window.operations:,} x {window.operation}"
            yield from wrapped(f"{window.name}: {what[window.name]} ({times})", "    ")
    yield from wrapped(
        "Set-up, audit of the pages, warm-up and output are outside."
        + ("" if found.timed else " Interrupts are left out."),
        "  ",
    )


def _tables(found: Claim) -> Iterator[Iterable[str]]:
    told = _mailed_ladders(found)
    for ladder in told:
        yield _table(found, ladder)
    beside = [each for each in found.report.ladders if each not in told]
    quiet = [each for each in beside if not each.steps]
    left = [
        ladder
        for ladder in quiet
        if any(r.comparison and r.comparison.verdict in _OPEN for r in ladder.rungs)
    ]
    for what, ladders in (
        (f"No change above {found.report.step_percent:g} %", [o for o in quiet if o not in left]),
        ("No change that is decided, and not every pair of kernels is,", left),
    ):
        if ladders:
            names = ", ".join(f"{ladder.workload}:{ladder.scenario}" for ladder in ladders)
            many = plural(len(ladders), "scenario") if len(ladders) > 2 * OTHERS else names
            yield wrapped(f"{what} in {many}.")
    if moved := [each for each in beside if each.steps]:
        yield wrapped(
            f"Of {plural(len(moved), 'scenario')} that changed, too, there is nothing here: `kdelta"
            f" report {found.report.run_id} --scenario NAME` writes of one."
        )


def _table(found: Claim, ladder: Ladder[Any]) -> Iterator[str]:
    divisor, unit = scale([ladder]) if found.timed else (1.0, "user + kernel instructions")
    point = f", {ladder.point}" if ladder.point else ""
    per = f"{unit} per {ladder.operation or 'operation'}"
    better = "less is better" if found.timed else "fewer is better"
    yield from wrapped(f"{ladder.workload}:{ladder.scenario}{point}, {per}; {better}")
    yield ""
    beside = f"against {ladder.baseline}" if ladder.baseline else "against the one above"
    kernels = shortened([rung.label for rung in ladder.rungs], 22)
    values = [sentences.claimed_value(rung.total, divisor, found) for rung in ladder.rungs]
    yield from indented(
        [
            Column("kernel", kernels),
            Column(unit if found.timed else "count", values, right=True),
            Column(short(beside, 30), (_against(found, rung) for rung in ladder.rungs)),
            Column("n", (f"{rung.ok}/{len(rung.trials)}" for rung in ladder.rungs)),
        ]
    )
    yield ""
    labelled = [*zip(ladder.rungs, kernels, strict=True)]
    for rung, label in labelled:
        if called := found.report.record.subjects.get(rung.label):
            yield from wrapped(f'{label}: "{called}"', "  ")
    yield from wrapped(_spread(found, ladder), "  ")
    if not found.timed and (huge := counts.huge_pages(ladder)):  # behind the colon: to its author
        yield from wrapped(f"{huge.removesuffix('.').partition(':')[0]}.", "  ")
    for caveat in caveats(ladder, facts=ladder.workload.endswith(".c")):  # ours has audits
        yield from wrapped(f"{caveat}.", "  ")
    for rung, label in labelled:
        judged = rung.comparison
        if judged and judged.signless and not judged.crossing:
            yield from wrapped(f"{label}: {'; '.join(judged.reasons)}.", "  ")


def _against(found: Claim, rung: Rung[Any]) -> str:
    if rung.skipped:
        return "not supported there"
    if rung.total is None and not rung.ok:
        return "failed, see below"
    if rung.comparison is None:
        return "the same kernel again" if rung.arm.control else ABSENT
    words = effort(rung.comparison.verdict, timed=found.timed)
    ratio = rung.comparison.ratio
    if ratio is None:
        return words
    mark = " (*)" if rung.comparison.crossing else ""
    return f"{times(ratio, found.report.step_percent)}, {words}{mark}"


def _spread(found: Claim, ladder: Ladder[Any]) -> str:
    totals = [rung.total for rung in ladder.rungs if rung.total]
    if not totals:
        return "Nothing was measured."
    text = f"n: trials that ended ok, of those planned ({ladder.replicates})."
    if found.timed:
        cvs = [total.summary.cv for total in totals if total.summary.cv is not None]
        if cvs:
            text += f" Scatter (CV) between them: at most {100 * max(cvs):.1f} %."
    else:
        share = min(total.share for total in totals)
        part = f"{'At least' if share >= LOW_SHARE else 'Only'} {100 * share:.0f} %"
        known = [(rung.label, rung.total) for rung in ladder.rungs if rung.total]
        if all(total.layouts for _, total in known):
            told = ", ".join(f"{label} {counts.layout_range(total)}" for label, total in known)
            text += f" A count is the mean over layouts of the kernel's trees and lists: {told}."
        else:
            text += f" {'All' if share == 1 else part} of the windows of a"
            text += " phase have exactly the count shown."
    judged = [rung.comparison for rung in ladder.rungs if rung.comparison]
    if crossed := {one.crossing for one in judged} - {""}:
        text += (
            f" (*): the two kernels were built {crossed_by(judged)}"
            f" ({', '.join(sorted(crossed))}), and part of that may be theirs."
        )
    return text


def _reproducer(found: Claim, letter: Letter) -> Iterator[str]:
    head, ladder = found.headline, found.ladder
    if letter.program:
        yield "Reproducer"
        yield from shell_lines(COLUMNS, f"{_PERF} {letter.program}")
    else:
        yield from _one_file(found, letter, ladder)
    if head and not found.timed:
        whole = len(_counted(found)) == len({rung.label for rung in ladder.rungs})
        yield "The counts again:" if whole else "The counts of the two kernels again:"
        yield from shell_lines(COLUMNS, *again(found, letter))
        if head.worse and not letter.introduced and (tags := sentences.releases(found)):
            ends = f"--tree ~/linux --good {shlex.quote(tags[0])} --bad {shlex.quote(tags[1])}"
            scenario = shlex.quote(ladder.reference)
            yield "The commit:"
            yield from shell_lines(
                COLUMNS, f"kdelta bisect commits {scenario}", ends, *_axes(found)
            )


def again(found: Claim, letter: Letter, *more: str, rounds: int = 0) -> list[str]:
    """The words of the command that counts what the mail shows; more: kernels beside.  rounds: at
    least so many.
    """
    kernels = ",".join(dict.fromkeys((*_counted(found, more), *more)))
    rounds = max(rounds, found.report.record.rounds)
    words = [f"--kernels {shlex.quote(kernels)}", *_axes(found)]
    words += [f"--rounds {rounds}"] * (rounds > 1)
    words += [f"--probe {shlex.quote(one)}" for one in found.report.record.study.plan.probes]
    if letter.program:
        return ["kdelta run", *words, f"-- {letter.program}"]
    return [f"kdelta run {shlex.quote(found.ladder.reference)}", *words]


def _counted(found: Claim, more: Sequence[str] = ()) -> list[str]:
    """The kernels of the ladder, or of its change where no line takes all of them."""
    every = [rung for rung in found.ladder.rungs if not rung.arm.control]
    named = list(dict.fromkeys(map(_reference, every)))
    if found.headline and len(",".join((*named, *more))) >= _KERNELS:
        return [*map(_reference, found.headline.rungs)]
    return named


def _reference(rung: Rung[Any]) -> str:
    """What names a kernel again: its upstream version, where the package is of that alone."""
    version = rung.kernel.version
    if version.startswith(f"{rung.label}-"):
        return rung.label
    return f"deb:{version}" if version else rung.kernel.reference


def _axes(found: Claim) -> list[str]:
    own, usual = found.report.record.study.machine, MachineSettings()
    return [
        f"--{key.replace('_', '-')} {shlex.quote(str(getattr(own, key)))}"
        for key in own.__struct_fields__
        if getattr(own, key) != getattr(usual, key)
    ]


def exporting(ladder: Ladder[Any]) -> list[str]:
    """The words of the command that writes the C file of a mail, which is its last."""
    file = shlex.quote(file_name(ladder.workload, ladder.scenario))
    return [f"kdelta workload export {shlex.quote(ladder.reference)}", f"-o {file}"]


def _one_file(found: Claim, letter: Letter, ladder: Ladder[Any]) -> Iterator[str]:
    known, export = letter.workloads.get(ladder.workload), exporting(ladder)
    file = export[-1].removeprefix("-o ")
    program = f"./{file.removesuffix('.c')}"
    yield "Reproducer (one C file, which needs no kdelta)"
    yield f"  (attached: {file})"
    if known or is_file(ladder.workload):
        yield from shell_lines(COLUMNS, *export)
    yield from shell_lines(COLUMNS, f"gcc -O2 -static {file}", f"-o {file.removesuffix('.c')}")
    scenario = sentences.scenario_of(ladder, letter.workloads)
    if found.timed:
        yield f"  {program}"
        return
    if scenario is None:  # a file without a contract takes no number of iterations
        yield from shell_lines(COLUMNS, _PERF, f"{program} {shlex.quote(ladder.scenario)}")
        yield from wrapped("This is the whole program; the counts are of its windows alone.", "  ")
        return
    for count in (100, 200):
        yield from shell_lines(COLUMNS, _PERF, f"{program} --iterations {count}")
    each = f" and by {scenario.windows[0].operations:,}" * (ladder.operation != ITERATION)
    per = f"the count per {sentences.per(ladder.operation or 'operation')}, with interrupts"
    yield from wrapped(f"What both rows grow by, divided by 100{each}, is {per}.", "  ")


def _regzbot(found: Claim, letter: Letter) -> Iterator[str]:
    if found.tag is Tag.RFC:
        why = "no count supports it." if found.timed else "no time was measured."
        yield from wrapped(f"regzbot is not asked to track this: {why}")
    if found.tag is not Tag.REGRESSION or found.headline is None:
        return
    old, new = sentences.ends(found.headline)
    commit = letter.introduced.partition(" ")[0]
    yield f"#regzbot introduced: {commit or f'{old}..{new}'}"
    yield f"#regzbot title: {_subject(found, letter).removeprefix(f'{found.tag} ')}"
    if letter.introduced:
        yield ""
        yield f"Fixes: {letter.introduced}"
    else:
        yield from wrapped(
            "(The kernels are what was measured; that the change came between the first releases of"
            " their series is likely and was not shown.)"
        )
