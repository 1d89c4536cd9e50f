# SPDX-License-Identifier: GPL-2.0-or-later
"""From a series to its page: build each patch, find what changed, count only what executes it.

At the end the decision, what is not known, and what the counts say of the series' claims.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from msgspec.structs import asdict, replace

from kdelta import workload
from kdelta.check.compare import Counted, Counter, Report, changed_code, path_row
from kdelta.check.kernels import Kernels, Transplants
from kdelta.check.page import (
    HOME,
    LEAST_PERCENT,
    TOLERANCE,
    WORDS,
    CheckPage,
    ClaimVerdict,
    DeclaredClaim,
    Direction,
    Effect,
    Elsewhere,
    JudgedClaim,
    PatchPart,
    PatchRow,
    PathRow,
    Ruling,
    Side,
    Since,
    sized,
)
from kdelta.disassembly import image
from kdelta.disassembly.identity import functions_of
from kdelta.errors import SpecError
from kdelta.kernels.image import transplanted
from kdelta.kernels.kernel import Kernel
from kdelta.metric import Grade, plural
from kdelta.printable import few, known, quoted
from kdelta.sample import Outcome
from kdelta.source.build import BUILT_FOR
from kdelta.source.make import SourceError
from kdelta.source.patches import PatchMail, PatchSeries, SeriesStep

# ---- claims -------------------------------------------------------------------------------------

MOST_CLAIMS = 100
MOST_SENTENCES = 50
_LONGEST_SENTENCE = 1000  # characters of a sentence
_OPTION = "--claim"
_TRAILER = re.compile(r"^Kdelta-claim:(.*)$", re.MULTILINE | re.IGNORECASE)
_PERCENT = re.compile(r"\d{1,5}(?:\.\d{1,6})?", re.ASCII)
_FORM = "write SCENARIO less|more|same [PERCENT], for example: unmap:munmap less 12"
_MOST_LESS = 100.0  # percent: a path cannot get shorter by more
# Lines that tools write below a message, and no sentences.
_METADATA = re.compile(
    r"^(?:[a-z-]+-by|cc|link|closes|fixes|message-id|kdelta-claim|base-commit|change-id):.*$",
    re.MULTILINE | re.IGNORECASE,
)
_SIGNATURE = re.compile(r"^-- ?$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
# Digits that are no figure: of commits, shortlogs, versions, names, numbers of patches.
_NO_FIGURE = re.compile(
    r"\b(?=\d*[a-f])[0-9a-f]{7,40}\b|\(\d+\):|\b(?:[Ll]inux |v)\d+\.\d[\w.-]*"
    r"|\b[Pp]atch(?:es)? \d+(?:(?:,|-| and| to) ?\d+)*|\b[A-Za-z_]\w*\d\w*"
)
_ROUNDING = 1e-9


def declared(
    cover: str, patches: Iterable[SeriesStep | PatchMail], options: Sequence[str]
) -> tuple[DeclaredClaim, ...]:
    """The claims of options and mails, each once.  Raises SpecError, also for too many."""
    texts = [("the cover letter", cover)]
    texts += [(f"patch {at}", each.text) for at, each in enumerate(patches, start=1)]
    found = [(words, _OPTION) for words in options]
    found += [(words, place) for place, text in texts for words in _TRAILER.findall(text)]
    if len(found) > MOST_CLAIMS:
        cause = f"the series declares {len(found)} claims, more than {MOST_CLAIMS}"
        action = "keep the claims that matter"
        raise SpecError(cause, place=found[-1][1], action=action)
    once: dict[tuple[str, Direction, float | None], DeclaredClaim] = {}
    for words, place in found:
        claim = parse(words, place)
        once.setdefault((claim.scenario, claim.direction, claim.percent), claim)
    return tuple(once.values())


def parse(text: str, place: str = _OPTION) -> DeclaredClaim:
    """One claim.  Raises SpecError for what is not in the form, and for an unknown scenario."""
    words = text.split()
    if len(words) not in (2, 3):
        raise SpecError(f"{quoted(text.strip())} is no claim", place=place, action=_FORM)
    name, direction, *percent = words
    if direction not in [*Direction]:
        cause = f"{quoted(direction)} is no direction of a claim"
        action = known(direction, Direction)
        raise SpecError(cause, place=place, action=action)
    return DeclaredClaim(
        scenario=_scenario(name, place),
        direction=Direction(direction),
        percent=_percent(percent[0], Direction(direction), place) if percent else None,
        place=place,
    )


def _scenario(name: str, place: str) -> str:
    """The scenario as it can be counted.  A mail, which a stranger wrote, names no file."""
    if place == _OPTION:
        name = workload.full_reference(name)
    elif workload.is_file(name.rpartition(":")[0]):
        cause = f"{quoted(name)} is a file, and a mail can name a shipped scenario only"
        action = f"declare it with {_OPTION}"
        raise SpecError(cause, place=place, action=action)
    try:
        workload.parse_reference(name)
    except SpecError as error:
        raise SpecError(error.cause, place=place, action=error.action) from error
    return name


def _percent(text: str, direction: Direction, place: str) -> float:
    if not _PERCENT.fullmatch(text):
        action = "write a number alone, without a sign: 12 or 0.5"
        raise SpecError(f"{quoted(text)} is no percent of a claim", place=place, action=action)
    value, is_same, is_more = float(text), direction is Direction.SAME, direction is Direction.MORE
    if (not value and not is_same) or (value > _MOST_LESS and not is_more):
        least, most = "0" if is_same else "above 0", "99999" if is_more else f"{_MOST_LESS:g}"
        cause = f"{text} percent is out of range for {quoted(direction)}"
        action = f"write a number from {least} to {most}"
        raise SpecError(cause, place=place, action=action)
    return value


def sentences(series: PatchSeries) -> tuple[str, ...]:
    """Each sentence of the mails that has a figure, as it stands there but for line breaks.

    The title of the cover letter and the lines that tools write are left out.
    """
    texts = [series.cover.partition("\n")[2], *(step.text for step in series.steps)]
    found: dict[str, None] = {}
    for text in texts:
        for part in _SENTENCE_END.split(_METADATA.sub("", _SIGNATURE.split(text)[0])):
            if re.search(r"\d", _NO_FIGURE.sub("", part)) and len(found) < MOST_SENTENCES:
                found[" ".join(part.split())[:_LONGEST_SENTENCE]] = None
    return tuple(found)


def judged(
    claims: Iterable[DeclaredClaim],
    arch: str,
    paths: Sequence[PathRow],
    identical: Collection[str],
    missing: Sequence[int],
    unmeasured: Mapping[str, str],
) -> tuple[JudgedClaim, ...]:
    """What the counts of one architecture say of each claim.

    identical: the counted scenarios that execute no changed code.  missing: numbers of the patches
    that have no kernel.  unmeasured: scenarios without a count on the base, with the reason.
    """
    rows = {row.scenario: row for row in paths if row.arch == arch}
    found = []
    for claim in claims:
        name = scenario_name(claim.scenario)
        row = rows.get(name)
        if missing:
            numbers = ", ".join(map(str, missing))
            verdict, why = ClaimVerdict.UNDECIDED, f"there is no kernel of patch {numbers}"
        elif row is not None:
            verdict, why = _of_row(claim, row)
        elif name in identical:
            verdict, why = _of_change(claim, 0.0), "it executes no changed code"
        else:
            reason = unmeasured.get(claim.scenario, "it is not on the page")
            verdict, why = ClaimVerdict.UNDECIDED, f"it was not counted: {reason}"
        found.append(
            JudgedClaim(
                **(asdict(claim) | {"scenario": name}),
                verdict=verdict,
                why=why,
                before=row.before if row else None,
                after=row.after if row else None,
                arch=arch,
            )
        )
    return tuple(found)


def _of_row(claim: DeclaredClaim, row: PathRow) -> tuple[ClaimVerdict, str]:
    if row.change in (Effect.OPEN, Effect.SPREAD) or row.before is None or row.after is None:
        return ClaimVerdict.UNDECIDED, f"{row.change}: {row.reason}"
    figures = f"{row.before:.2f} -> {row.after:.2f} a {row.operation} ({sized(row.percent)})"
    return _of_change(claim, row.percent), figures


def _of_change(claim: DeclaredClaim, percent: float) -> ClaimVerdict:
    """percent: the change that was counted."""
    bound = LEAST_PERCENT if claim.percent is None else claim.percent
    if claim.direction is Direction.SAME:
        holds = abs(percent) <= bound + _ROUNDING
    elif claim.direction is Direction.LESS:
        holds = percent <= -bound + _ROUNDING
    else:
        holds = percent >= bound - _ROUNDING
    return ClaimVerdict.SUPPORTED if holds else ClaimVerdict.CONTRADICTED


def scenario_name(scenario: str) -> str:
    """A scenario as the page calls it: that of a C file without its folder."""
    return scenario.rpartition("/")[2].replace(".c:", ":")


# ---- the series ---------------------------------------------------------------------------------

_LONGEST = 200
_NAMED = 3
# What a build runs, or asks what to run.
_RUN = re.compile(
    r"(?:^|/)(?:Makefile|Kbuild|Kconfig)[^/]*$|^(?:scripts|tools)/|\.(?:mk|sh|pl|py)$"
)
_FILE = re.compile(r"^(?:---|\+\+\+) [ab]/(.+)$", re.MULTILINE)
_BOOT = re.compile(r"^(?:@@.*@@|[-+]).*\b__init(?:data)?\b.*?(\w+)\s*[(\[=;]", re.MULTILINE)


@dataclass(slots=True)
class ScenarioCounts:
    """The counts of one scenario along the series, each with the number of its patch; 0: the base.

    Between two of them the code that it executes is the same, and so is its count.
    """

    scenario: str
    counted: list[tuple[int, Counted]]

    @property
    def last(self) -> Counted:
        """With the whole series."""
        return self.counted[-1][1]


@dataclass(slots=True)
class CheckedSeries:
    """What was found along a series, on the architecture of its base.

    counts: of each scenario that could be counted on the base; unmeasured: the others, with the
    reason.  changed: names of functions; aliases: every name of those that have several, as counts
    have one of them.  apart: scenarios that the null counts otherwise, and how.  by_memory: those
    where that is by the memory that it takes, in percent: their base has as much taken.  unproven:
    those that execute functions which may have the code of before, and which.
    data_only: a patch changed the image and no function.  tolerance: percent by which a path may
    get longer.  compiler, null: what the page says of them.  grade: of all counts.
    """

    base: Kernel
    last: Kernel
    tolerance: float = TOLERANCE
    grade: Grade = Grade.EXACT_PATH
    patches: list[PatchRow] = field(default_factory=list)
    counts: list[ScenarioCounts] = field(default_factory=list)
    unmeasured: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    aliases: dict[str, frozenset[str]] = field(default_factory=dict)
    apart: dict[str, str] = field(default_factory=dict)
    unproven: dict[str, str] = field(default_factory=dict)
    by_memory: dict[str, float] = field(default_factory=dict)
    data_only: bool = False
    compiler: str = ""
    null: str = ""

    @property
    def executing(self) -> list[ScenarioCounts]:
        """Those that execute changed code."""
        return [each for each in self.counts if len(each.counted) > 1]

    @property
    def identical(self) -> list[ScenarioCounts]:
        """Those that execute no changed code; none where the last patch has no kernel."""
        known = not (self.patches and self.patches[-1].wrong)
        return [each for each in self.counts if known and len(each.counted) == 1]

    @property
    def died(self) -> list[Counted]:
        """The last counts of scenarios under which the kernel of a patch died."""
        return [each.last for each in self.executing if each.last.result.outcome.blames]

    @property
    def executed(self) -> frozenset[str]:
        """All functions that a scenario executed, on the base or later."""
        every = [one.functions for each in self.counts for _, one in each.counted]
        executed = functions_of({name for names in every for name in names})
        return frozenset(executed.union(*(self.aliases.get(name, ()) for name in executed)))


def warnings(series: PatchSeries, *, confined: bool) -> Iterator[str]:
    """A sentence for each patch that changes what a build runs, or code that runs at boot only."""
    where = "in bubblewrap, without network or home" if confined else "as you"
    yield from filter(None, [series.order])
    for number, diff in enumerate(series.changes(), start=1):
        if ran := dict.fromkeys(filter(_RUN.search, _FILE.findall(diff))):
            yield f"patch {number} changes what the build runs ({few(ran)}): it runs {where}."
        if boot := dict.fromkeys(_BOOT.findall(diff)):
            yield f"patch {number} changes __init code ({few(boot)}), which no scenario executes."


@dataclass(frozen=True, slots=True)
class _Stage:
    """A kernel of a patch.  names: the functions that it changed; none: it changed data.

    stay: functions that may have the code of before, though a patch may change it.  first: what
    showed that it boots; an oops is not kept, and a guest that dies takes a minute.
    """

    number: int
    kernel: Kernel
    names: frozenset[str]
    stay: frozenset[str]
    first: Counted | None = None

    def counted(self, scenario: str, counter: Counter) -> Counted:
        """One scenario on it."""
        own = self.first if self.first and self.first.scenario == scenario else None
        return own or counter.one(self.kernel, scenario)


def checked(
    series: PatchSeries,
    scenarios: Sequence[str],
    kernels: Kernels,
    counter: Counter,
    report: Report,
    tolerance: float = TOLERANCE,
    each_row: Callable[[CheckedSeries, int], None] = lambda _found, _at: None,
) -> CheckedSeries:
    """Make the kernels of a series and count them.  Scenarios whose workload names a changed
    function are counted first.  each_row: gets what is known after each scenario, and its number.

    Raises SourceError, SpecError where the base cannot be counted, or the null differs from it.
    """
    base = kernels.of(series.base)
    found = CheckedSeries(base=base, last=base, tolerance=tolerance, grade=counter.grade)
    if (first := counter.one(base, scenarios[0])).result.outcome is Outcome.BOOT_ERROR:
        raise _uncounted(first)
    stages: list[_Stage] = []
    for number, step in enumerate(series.steps, start=1):
        row, stage = _built(found, PatchRow(number=number, title=step.title), step, kernels)
        if stage:
            first = counter.one(stage.kernel, _by_chance(scenarios, stage.names)[0][1])
            stage = dataclasses.replace(stage, first=first)
            if first.result.outcome is Outcome.BOOT_ERROR:
                row, stage = _wrong(row, f"does not boot: {first.result.reason}"), None
        found.patches.append(row)
        if stage:
            stages.append(stage)
            found.last = stage.kernel
            found.changed |= stage.names
            found.data_only |= not stage.names
            report(f"patch {number}{_on(base)}: functions changed: {len(stage.names)}")
        elif row.wrong:
            report(f"patch {number}{_on(base)} {row.wrong}")
    if not stages and found.patches and found.patches[-1].wrong:
        return found
    _count(found, stages, scenarios, counter, report, each_row)
    report(f"{len(found.identical)} of {len(scenarios)} are known to execute no changed code")
    more = kernels.reached(found.executed) if isinstance(kernels, Transplants) else None
    if more:
        report("the patches lead to functions of other objects: these are compiled, too")
        return checked(series, scenarios, more, counter, report, tolerance, each_row)
    found.unproven = dict(_unproven(found, stages))
    last = series.steps[stages[-1].number - 1].tree if found.executing else None
    if last and (null := kernels.null(last)):
        _hold_null(found, null, counter, report)
    found.patches[:] = _with_paths(found, path_rows(found))
    return found


def _count(
    found: CheckedSeries,
    stages: Sequence[_Stage],
    scenarios: Sequence[str],
    counter: Counter,
    report: Report,
    each_row: Callable[[CheckedSeries, int], None],
) -> None:
    """Count each scenario on the base and on every kernel that changed what it executes."""
    order = _by_chance(scenarios, found.changed)
    likely = {name for chance, name in order if chance < _NO_CHANCE}
    begin = f", first {len(likely)} that name what changed" if likely else ""
    report(f"counting {len(scenarios)} scenarios{_on(found.base)}{begin}")

    def along(scenario: str) -> ScenarioCounts:
        counted = [(0, counter.one(found.base, scenario))]
        if counted[0][1].result.outcome is Outcome.OK:
            for each in stages:
                ran = functions_of(counted[-1][1].functions)
                if not each.names or ran & (each.names | each.stay):
                    counted.append((each.number, each.counted(scenario, counter)))
        return ScenarioCounts(scenario=scenario, counted=counted)

    with closing(counter.each(along, [name for _, name in order])) as ended:
        for at, each in enumerate(ended, start=1):
            first = each.counted[0][1].result
            if first.outcome is Outcome.OK:
                found.counts.append(each)
                if len(each.counted) > 1:
                    row = path_row(each.counted[0][1], each.last, found.tolerance)
                    why = f", {row.reason}" * bool(row.reason)
                    report(f"[{at}/{len(scenarios)}] {_cell(row)}: {row.change}{why}")
            else:
                found.unmeasured[each.scenario] = first.reason or str(first.outcome)
                name = scenario_name(each.scenario)
                report(f"[{at}/{len(scenarios)}] {name}: {found.unmeasured[each.scenario]}")
            if likely and not (likely := likely - {each.scenario}) and at < len(scenarios):
                report(so_far([found], scenarios))
            each_row(found, at)
    if not found.counts:
        raise _uncounted(each.counted[0][1])
    found.counts.sort(key=lambda each: scenarios.index(each.scenario))


def _unproven(found: CheckedSeries, stages: Sequence[_Stage]) -> Iterator[tuple[str, str]]:
    stay = {stage.number: stage.stay for stage in stages}
    for each in found.executing:
        ran = {
            name for at, one in each.counted[1:] for name in functions_of(one.functions) & stay[at]
        }
        if ran:
            why = f"{few(sorted(ran))} may have the code of before the patches"
            yield each.scenario, why


def _with_paths(found: CheckedSeries, paths: Sequence[PathRow]) -> Iterator[PatchRow]:
    """The patches with how many paths each made longer and shorter, and the worst: of a patch that
    made none longer the best."""
    parts = [(part, path.scenario) for path in paths for part in path.parts if part.change.moved]
    for row in found.patches:
        moved = [one for one in parts if one[0].patch == row.number]
        pick = max if any(part.change is Effect.MORE for part, _ in moved) else min
        worst, name = pick(moved, key=lambda one: one[0].percent, default=(None, ""))
        yield replace(
            row,
            longer=sum(part.change is Effect.MORE for part, _ in moved),
            shorter=sum(part.change is Effect.LESS for part, _ in moved),
            worst=name,
            worst_percent=worst.percent if worst else 0.0,
        )


def _hold_null(found: CheckedSeries, null: Kernel, counter: Counter, report: Report) -> None:
    """Leave out the paths on which a kernel with the base's own code counts otherwise: there the
    way in which code is put into the base is wrong.  But where only the memory that it takes makes
    the difference, the changed code is compared with the base's in one saved guest.

    Raises SpecError when no path that executes changed code is left.
    """
    base = {each.scenario: each.counted for each in found.executing}
    report(f"counting {plural(len(base), 'scenario')} on the null")
    with closing(counter.each(lambda name: counter.one(null, name), [*base])) as ended:
        pairs = [
            (own.scenario, path_row(base[own.scenario][0][1], own, found.tolerance))
            for own in ended
        ]
    rows = {name: row for name, row in pairs if row.change.moved or row.change is Effect.OPEN}

    def again(name: str) -> tuple[str, list[Counted]]:
        return name, _in_one_guest(null, base[name][-1][1], counter)

    alike = dict(counter.each(again, [name for name, row in rows.items() if row.change.moved]))
    for name, row in rows.items():
        if alike.get(name):
            found.by_memory[name] = row.percent
            base[name][0], base[name][-1] = zip((0, base[name][-1][0]), alike[name], strict=True)
            continue
        parts = [f"{part.function} {part.delta:+.1f}" for part in row.functions]
        why = row.reason or ", ".join(parts[:_NAMED])
        differs = f"{_cell(row)}{f': {why}' if why else ''}"
        found.apart[name] = f"the null differs from the base by {sized(row.percent)}: {why}"
        report(f"the null differs from the base: {differs}")
    if found.apart and len(found.apart) == len(base):
        cause = f"the null differs from the base: {differs}"
        action = "have whole kernels built: check --config deb, commit --full"
        raise SpecError(cause, place=null.name, action=action)


def _in_one_guest(null: Kernel, last: Counted, counter: Counter) -> list[Counted]:
    """A path without and with the changed functions; none where the null's make a difference."""
    own, other = (
        [counter.one(kernel, last.scenario, used=used) for used in (False, True)]
        for kernel in (null, last.kernel)
    )
    same = own[0].result.exact.functions == own[1].result.exact.functions != ()
    return other if same and all(one.result.outcome is Outcome.OK for one in other) else []


def so_far(sides: Sequence[CheckedSeries], scenarios: Sequence[str]) -> str:
    """The decision by what is counted, on the last side perhaps a part of these scenarios."""
    if not sides or not sides[-1].counts:
        return "so far: no decision, since no scenario is counted with the patches"
    last = sides[-1]
    rows = [row for found in sides for row in path_rows(found)]
    done = {each.scenario for each in last.counts} | last.unmeasured.keys()
    left = [scenario_name(name) for name in scenarios if name not in done]
    wait = [f"{len(left)} more ({few(left)})"] * bool(left) + ["the null"] * (not last.null)
    ends = f"; not yet: {', '.join(wait)}" if wait else ""
    decision = ": ".join(_decided(sides, rows, last.tolerance))
    counted = f"{len(done)} of {plural(len(scenarios), 'scenario')}{_on(last.base)}"
    return f"so far: {decision}; counted: {counted}{ends}"


_NO_CHANCE = 2


def _by_chance(scenarios: Sequence[str], names: Collection[str]) -> list[tuple[int, str]]:
    """The scenarios in the order in which they probably execute functions, each with its class."""
    plain = {name.partition(".")[0] for name in names}

    def chance(name: str) -> int:
        load = workload.parse_reference(name)[0]
        if plain & {*re.findall(r"\w+", load.path)}:
            return 0
        return 1 if any(load.name in each for each in plain) else _NO_CHANCE

    return sorted(((chance(name), name) for name in scenarios), key=lambda row: row[0])


def _uncounted(counted: Counted) -> SpecError:
    why = counted.result.reason or str(counted.result.outcome)
    cause = f"no scenario can be counted on the base{_on(counted.kernel)}: {why}"
    return SpecError(cause, place=counted.kernel.name)


def _on(kernel: Kernel) -> str:
    return "" if kernel.arch == BUILT_FOR else f" on {kernel.arch}"


def _built(
    found: CheckedSeries, row: PatchRow, step: SeriesStep, kernels: Kernels
) -> tuple[PatchRow, _Stage | None]:
    try:
        kernel = kernels.of(step.tree)
        if kernel.image_sha256 == found.last.image_sha256:
            return replace(row, same_image=True), None
        names, lines = changed_code(found.last, kernel)
        found.aliases |= _aliases(kernel, names)
    except SourceError as error:
        return _wrong(row, f"does not build: {error.first.removeprefix('../')}"), None
    except SpecError as error:
        return _wrong(row, f"has no kernel: {error.cause}"), None
    if lines:
        return replace(row, same_image=True), None
    named = replace(row, functions=tuple(sorted(names)))
    told = transplanted(kernel.image) if isinstance(kernels, Transplants) else None
    return named, _Stage(row.number, kernel, names, frozenset(told.kept if told else ()))


def _wrong(row: PatchRow, why: str) -> PatchRow:
    return replace(row, wrong=why[:_LONGEST])


def _aliases(kernel: Kernel, names: frozenset[str]) -> dict[str, frozenset[str]]:
    """Each of these functions with all its names in the kernel: a system call has two."""
    extents = image.opened(kernel.image, kernel.name or "the patched").extents()
    by_place: dict[object, set[str]] = {}
    for name in names & extents.keys():
        by_place.setdefault(extents[name], set()).add(name)
    return {name: frozenset(own) for own in by_place.values() for name in own if len(own) > 1}


def path_rows(found: CheckedSeries) -> tuple[PathRow, ...]:
    """The row of each scenario that executes changed code, with the patch of the largest part."""
    rows = []
    for each in found.executing:
        row = path_row(each.counted[0][1], each.last, found.tolerance)
        if why := found.apart.get(each.scenario) or found.unproven.get(each.scenario):
            row = replace(row, change=Effect.OPEN, reason=why, functions=())
            rows.append(replace(row, arch=found.base.arch))
            continue
        steps = [
            (number, path_row(old, new, found.tolerance))
            for (_, old), (number, new) in pairwise(each.counted)
        ]
        parts = tuple(PatchPart(patch=n, percent=s.percent, change=s.change) for n, s in steps)
        moved = [(abs(part.percent), part.patch) for part in parts if part.change.moved]
        patch = max(moved)[1] if moved else 0
        rows.append(replace(row, arch=found.base.arch, patch=patch, parts=parts))
    return tuple(rows)


def page(
    series: PatchSeries,
    sides: Sequence[CheckedSeries],
    before: CheckPage | None,
    against: str,
    declared: Sequence[DeclaredClaim] = (),
    *,
    confined: bool,
    **told: Any,
) -> CheckPage:
    """The page of a series checked on amd64 and then others.

    before: the page of the version before, from the file `against`.  declared: claims to judge.
    told: config, qemu, kdelta and command, as the page has them.
    """
    found, *others = sides
    home = _side(found)
    elsewhere = [Elsewhere(arch=one.base.arch, **asdict(_side(one))) for one in others]
    everywhere = (*home.paths, *(row for each in elsewhere for row in each.paths))
    decision, why = _decided(sides, everywhere, found.tolerance)
    limits = (*filter(None, [series.order]), *_limits(found, elsewhere, confined=confined))
    claims: list[JudgedClaim] = []
    for one in sides:
        missing = [row.number for row in one.patches if row.wrong]
        names = [scenario_name(each.scenario) for each in one.identical]
        claims += judged(declared, one.base.arch, everywhere, names, missing, one.unmeasured)
    made = CheckPage(
        title=series.title,
        base=series.base.title,
        decision=decision,
        why=why,
        tolerance=found.tolerance,
        **(asdict(home) | {"limits": limits}),
        claims=tuple(claims),
        sentences=sentences(series),
        since=(),
        against=against,
        program=_program(found, home.paths),
        elsewhere=tuple(elsewhere),
        grade=found.grade,
        **told,
    )
    return compared_with(made, before) if before else made


def _null(found: CheckedSeries) -> str:
    own = found.by_memory
    most = f"{max(own.values(), key=abs, default=0.0):+.2f} %"
    said = (
        f" But the memory that it takes moves {plural(len(own), 'path')} by up to {most}"
        f" ({few([*map(scenario_name, own)])}): there one saved guest executes both the old and"
        " the changed functions; with those of the null all its counts are the same."
    )
    return f"{found.null}{said if own else ''}"


def _side(found: CheckedSeries) -> Side:
    # A trial whose facts do not hold has no count.
    paths = path_rows(found)
    results = [one.result for each in found.counts for _, one in each.counted]
    facts = sum(fact.binding for result in results for fact in result.state)
    held = sum(fact.holds and fact.binding for result in results for fact in result.state)
    state = f"{held} of {facts} facts of page state are as wanted, in {len(results)} trials"
    return Side(
        compiler=found.compiler,
        null=_null(found),
        patches=tuple(_with_paths(found, paths)),
        paths=paths,
        identical=tuple(scenario_name(each.scenario) for each in found.identical),
        unseen=tuple(sorted(found.changed - found.executed)),
        state=(state,) if results else (),
        limits=tuple(_unmeasured(found)),
    )


def _decided(
    every: Sequence[CheckedSeries], paths: Sequence[PathRow], tolerance: float
) -> tuple[Ruling, str]:
    """every: the series on all architectures, amd64 first; paths: of all of them."""
    words = WORDS[every[0].grade]
    moved = [row for row in paths if row.change.moved]
    worst = max(moved, key=lambda row: row.percent, default=None)
    best = min(moved, key=lambda row: row.percent, default=None)
    wrong = {
        row.number: f"patch {row.number}{_on(found.base)} {row.wrong}"
        for found in reversed(every)
        for row in found.patches
        if row.wrong
    }
    left = [row for row in paths if row.change is Effect.OPEN]
    if worst and worst.percent > tolerance:
        signs = f"; another got {words.less}, {_cell(best)}" if best and best.percent < 0 else ""
        return Ruling.REJECT, f"{_cell(worst)}{signs}"
    if wrong:
        return Ruling.UNDECIDED, few([wrong[number] for number in sorted(wrong)], 1)
    if apart := sum(len(found.apart) for found in every):
        where = f"the null differs from the base on {plural(apart, 'path')}"
        return Ruling.UNDECIDED, f"{where}; build whole kernels, --config deb, for an answer"
    if died := [one for found in every for one in found.died]:
        why = f"the patched kernel died on {plural(len(died), 'path')}: {died[0].result.reason}"
        return Ruling.UNDECIDED, why
    if left:
        return Ruling.UNDECIDED, f"{plural(len(left), 'path')} could not be compared, see below"
    if any(found.changed for found in every) and not paths:
        return Ruling.UNDECIDED, "no scenario executes what changed"
    if not moved:
        same = all(row.same_image for found in every for row in found.patches)
        slight = any(row.change is Effect.SLIGHT for row in paths)
        least = f" by {LEAST_PERCENT:g} % or more" if slight else ""
        said = "nothing in the image changed but line numbers" if same else "no path changed"
        return Ruling.ACCEPT, said + least
    if worst and worst.percent > 0:
        signs = f"; best {_cell(best)}" if best and best.percent < 0 else ""
        said = f"worst {_cell(worst)}, within the tolerance of {tolerance:g} %{signs}"
        return Ruling.ACCEPT, said
    return Ruling.ACCEPT, f"no path {words.worse}; best {_cell(best)}" if best else ""


def _cell(row: PathRow) -> str:
    where = f", {row.arch}" if row.arch != HOME else ""
    percent = "" if row.change is Effect.OPEN else f" {sized(row.percent)}"
    return f"{row.scenario} ({row.pages} pages{where}){percent}"


def _limits(found: CheckedSeries, sides: Sequence[Elsewhere], *, confined: bool) -> tuple[str, ...]:
    said = []
    if same := len(found.identical):
        said.append(
            f"{same} of {len(found.counts)} scenarios execute no changed function: identical by"
            " proof, for code. What a patch changes in data or in what is patched at boot is not"
            " seen there."
        )
    if found.data_only:
        said.append("A patch changed the image and no function: every scenario was counted again.")
    said += _unmeasured(found)
    had = ", ".join(["x86-64", *(side.arch for side in sides)])
    said.append(f"Not measured: time, caches, contention of CPUs, other architectures than {had}.")
    how = "confined (bubblewrap: no network, no home)" if confined else "as this user"
    said.append(f"The sources were built {how}.")
    return tuple(said)


def _unmeasured(found: CheckedSeries) -> list[str]:
    names = [scenario_name(each) for each in found.unmeasured]
    return [f"Not counted on the base: {few(names)}."] if names else []


def compared_with(made: CheckPage, before: CheckPage) -> CheckPage:
    """The page with the answers that differ from those of an earlier page, where both have one."""
    was, now = before.answers, made.answers
    since = tuple(
        Since(scenario=name, was=was[arch, name], now=now[arch, name], arch=arch)
        for arch, name in sorted(was.keys() & now.keys())
        if abs(was[arch, name] - now[arch, name]) >= LEAST_PERCENT
    )
    return replace(made, since=since, apart=len(was.keys() ^ now.keys()))


def _program(found: CheckedSeries, paths: Sequence[PathRow]) -> str:
    if not paths:
        return ""
    most = max(paths, key=lambda row: abs(row.percent)).scenario
    name = next(each.scenario for each in found.executing if scenario_name(each.scenario) == most)
    place, _, scenario = name.rpartition(":")
    if workload.is_file(place):
        return f"{place} is its C file"
    build = f"gcc -O2 -static {place}.c -o {place}"
    return f"kdelta workload export {place} -o {place}.c && {build} && ./{place} {scenario}"
