# SPDX-License-Identifier: GPL-2.0-or-later
"""A report of the kernel test robot: its table and its declared fields, and nothing else of it.

Read are the line `commit: ID ("TITLE")`, the rows below `parameters:`, the field `testcase:`, and
of the first table of that test the block `commit:` with both commits and the rows of `old  %change
new  metric`, with the share of cycles in functions that wait for a lock.  The Subject says which
row is meant.  No sentence is read.  The mail is a stranger's text: nothing in it is run or fetched.
"""

from __future__ import annotations

import contextlib
import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from pathlib import Path

from kdelta import files, workload
from kdelta.check.page import Direction
from kdelta.errors import SpecError
from kdelta.imports.formats import ROBOT_HEAD, ROBOT_ROW
from kdelta.printable import known, printable, quoted
from kdelta.source import git
from kdelta.source.tree_reference import PREFIX, parse
from kdelta.study import plan

_MOST_BYTES = 4 << 20
_WHOLE_MAIL = "save the whole report as it came, no answer to it"
_SIDES = ("old", "change", "new")
_MOST_PARAMETERS = 40
_MOST_ROWS = 2000
_LONGEST = 200
_COMMIT = re.compile(r'^commit: ([0-9a-f]{12,40}) \("(.*)"\)\s*$', re.MULTILINE)
_OF_SUBJECT = re.compile(r"\] ([0-9a-f]{7,40}):")
_MAILS = re.compile(rb"^From \S+ .*\d\d:\d\d.*$", re.MULTILINE)  # in one mailbox
# Two commits and no third; the first may be a release: "v6.12".
_BLOCK = re.compile(
    r"^commit:[ \t]*\n[ \t]+(v\d[\w.-]{1,38}|[0-9a-f]{7,12})[0-9a-f]*(?: \(.*\))?[ \t]*\n"
    r'[ \t]+([0-9a-f]{7,40})(?: \("?(.*?)"?\))?[ \t]*\n(?![ \t]+\S)',
    re.MULTILINE,
)
_RULE = re.compile(r"^(?:={15,}|\*{15,})[ \t]*\n", re.MULTILINE)  # above settings, and a machine
_SETTINGS = re.compile(r"(\S+/\S+):[ \t]*\n[ \t]+(\S.*/.*\S)[ \t]*\n")
_SUITE = re.compile(r"^(?:in )?testcase: (\S{1,80})\s*$", re.MULTILINE)
_PARAMETERS = re.compile(r"parameters:\s*\n((?:[ \t]+\w+: .*\n)+)")
_PARAMETER = re.compile(r"^[ \t]+(\w{1,32}): (\S.{0,79}?)[ \t]*$", re.MULTILINE)
_PROFILE = re.compile(r"perf-profile\.(self|children|calltrace)\.cycles-pp\.(.+)")
# Where a task waits for a lock: kernel/locking of Linux.
_WAITING = re.compile(
    "(?:native_queued_spin_lock_slowpath|queued_(?:read|write)_lock_slowpath|rwsem_spin_on_owner"
    r"|mutex_spin_on_owner|osq_lock|rwsem_down_(?:read|write)_slowpath)(?:\.|\Z)"
)
_CALLER = re.compile(r"\.(?!(?:isra|part|constprop|cold)\b)(?=[A-Za-z_])")  # in a call trace
_WAITS_POINTS = 1.0  # of all cycles: from which a function of a profile is named
_OTHER_TEST = 100  # contradictions, from which a table is of another test
_MOST_COUNTED = 2.0**64
_FAULTS = 0.5  # an operation: from which a test takes page faults
_OTHER_LOOP = 2.0  # times as many, from which a loop is another one
_ROUNDED = 0.02  # logarithm: what two figures of one thing may differ by
_RELEASE = re.compile(r"(?:deb:|tree:)?(\d{1,6})\.(\d{1,6})(?:\.([1-9]\d{0,5}))?(?![\d.])")
_PERCENT = re.compile(r"([-+]?)([0-9]{1,15}(?:\.[0-9]{1,15})?)%")
_TEST_PARAMETERS = ("test", "mode", "ipc", "option_a")  # these say which loop it is
# Tests by suite that execute no path of the kernel, and where they run.
_VDSO, _USER = "the vDSO, in user space", "user space alone"
_OUTSIDE = {
    "stress-ng": {"vdso": _VDSO, **dict.fromkeys(("cpu", "matrix", "nop", "vecmath"), _USER)},
    "unixbench": dict.fromkeys(("dhry2reg", "whetstone-double"), _USER),
}
# What is better of the robot's own metrics, from etc/index-perf-all.yaml of lkp-tests.
_MORE = (
    *("*.throughput", "aim7.jobs-per-min", "aim9.*.ops_per_sec", "filebench.sum_operations/s"),
    *("fio.*_bw_MBps", "fio.*_iops", "fsmark.files_per_sec", "fxmark.*.works/sec"),
    *("lmbench3.*.MB/sec", "netperf.Throughput_Mbps", "pgbench.tps", "reaim.jobs_per_min"),
    *("netperf.Throughput_tps", "perf-bench-futex.ops/s", "perf-bench-sched-pipe.ops_per_sec"),
    *("stress-ng.*_per_sec", "unixbench.score", "vm-scalability.median", "will-it-scale.*_ops"),
)
_LESS = ("kernbench.elapsed_time", "lmbench3.Pagefaults.ms", "tlbflush.*_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotRow:
    """One row of the table.  percent: the change from old to new, with the sign that is printed.

    spreads: of both, the standard deviation in percent of the value, 0 where none is printed.
    """

    metric: str
    old: float
    new: float
    percent: float
    spreads: tuple[float, float] = (0, 0)

    @property
    def within(self) -> bool:
        """True where the two differ by no more than both deviate."""
        old, new = self.spreads
        return 100 * abs(self.new - self.old) <= self.old * old + self.new * new

    @property
    def ratio(self) -> float:
        """new / old, by the printed percent: it has more digits than an old of 0.06."""
        return 1 + self.percent / 100

    @property
    def better(self) -> Direction | None:
        """Whether more or less of the metric is better; None where the robot declares nothing."""
        for names, better in ((_MORE, Direction.MORE), (_LESS, Direction.LESS)):
            if any(fnmatchcase(self.metric, name) for name in names):
                return better
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotReport:
    """A report.  commit: the one that is reported; parent: the one before it.

    parent may be a release.  suite: as "will-it-scale".  rows: of its table.  profile: kind of row,
    function or call trace, and by how many percent of all cycles it surely changed, else 0.
    subject: of the mail, "" of a text.  place: the file, for errors.
    """

    commit: str
    parent: str
    title: str
    suite: str
    parameters: tuple[tuple[str, str], ...]
    rows: tuple[RobotRow, ...]
    profile: tuple[tuple[str, str, float], ...]
    subject: str
    place: str

    @property
    def own(self) -> list[RobotRow]:
        """The rows of the suite itself; fio-basic has those of fio."""
        suite = f"{self.suite}-"
        return [r for r in self.rows if suite.startswith(f"{r.metric.partition('.')[0]}-")]


def other_faults(report: RobotReport, counted: float) -> str:
    """Why a scenario that takes so many page faults per operation is not the test, a sentence.

    "" where the mail does not say how many its test takes, or where both take none or as many.
    """
    old = {one.metric: one.old for one in report.rows}
    suite, stat = report.suite, "perf-stat.ps"
    own = [old.get(f"{suite}.time.minor_page_faults"), old.get(f"{suite}.workload")]
    if None in own:
        length, done = old.get("perf-stat.overall.path-length"), old.get(f"{stat}.instructions")
        own = [old.get(f"{stat}.page-faults"), done / length if done and length else None]
    faults, operations = own
    told = faults / operations if faults is not None and operations else counted
    fewer, most = sorted((told, counted))
    if most < _FAULTS or most <= _OTHER_LOOP * fewer:
        return ""
    what = f"your test takes {told:.3g} page faults an operation, and the scenario {counted:.3g}"
    return f"{what}: it is another loop"


def read(path: Path) -> RobotReport:
    """The report in a mail or a text.  Raises SpecError where one of its fields is missing."""
    content = files.given(path, _MOST_BYTES, _WHOLE_MAIL)
    subject, body = _parts(content)
    text = "\n".join(printable(line, 2000) for line in body.splitlines())
    _check_one(content, text, str(path))
    suite, listed = _SUITE.search(text), _PARAMETERS.search(text)
    parameters = _PARAMETER.findall(listed[1])[:_MOST_PARAMETERS] if listed else []
    fields = {"testcase": suite[1] if suite else "", **dict(parameters)}
    ranked = sorted(_RULE.split(text), key=lambda part: _contradicted(part, fields))
    fitting = takewhile(lambda part: _contradicted(part, fields) < _OTHER_TEST, ranked)
    parts = ((_BLOCK.search(part), _rows(part), _settings(part)) for part in fitting)
    tables = [each for each in parts if each[0] and any(row["percent"] for row in each[1])]
    block, _, settings = tables[0] if tables else (None, [], [])
    rows = [row for _, own, of in tables if of == settings for row in own]
    if not (block and suite):
        lacks = "its table of old, %change, new and metric, below a block commit: with two commits"
        lacks = lacks if suite else "its field testcase:"
        cause = f"this is no report of the kernel test robot: it lacks {lacks}"
        raise SpecError(cause, place=str(path), action=_WHOLE_MAIL)
    parent, short, title = block.groups()
    seen: dict[str, re.Match[str]] = {}
    for row in rows:
        first = f"{row['name'].partition('.')[0]}-"
        if row["percent"] and (f"{suite[1]}-".startswith(first) or first == "perf-stat-"):
            _check_row(row, str(path))
            _check_subject(subject, row, str(path))
            if _row(seen.setdefault(row["name"], row)) != _row(row):
                cause = f"its table has two rows {printable(row['name'], 80)} that differ"
                raise SpecError(cause, place=str(path), action=_WHOLE_MAIL)
    whole = next(_COMMIT.finditer(text), None)
    for of, where in (("its Subject", _OF_SUBJECT.search(subject)), ("its field commit:", whole)):
        if where and not (short.startswith(where[1]) or where[1].startswith(short)):
            cause = f"{of} is of {where[1][:12]}, and its table of {short}"
            raise SpecError(cause, place=str(path), action=_WHOLE_MAIL)
    return RobotReport(
        commit=whole[1] if whole else short,
        parent=parent,
        title=(title or (whole[2] if whole else ""))[:_LONGEST],
        suite=suite[1],
        parameters=tuple(parameters),
        rows=tuple(_row(each) for each in rows if each["percent"]),
        profile=tuple(
            (name[1], name[2], 0.0 if _row(each).within else float(each["change"]))
            for each in rows
            if (name := _PROFILE.fullmatch(each["name"]))
        ),
        subject=subject,
        place=str(path),
    )


def _check_one(content: bytes, text: str, place: str) -> None:
    """Raises SpecError for several reports in one file."""
    said = {
        "mails": {*_MAILS.findall(content)},
        "fields commit: of different commits": {one[1][:12] for one in _COMMIT.finditer(text)},
        "fields testcase: of different tests": {*_SUITE.findall(text)},
    }
    for what, found in said.items():
        if len(found) > 1:
            raise SpecError(f"it has {len(found)} {what}", place=place, action=_WHOLE_MAIL)


def _check_row(row: re.Match[str], place: str) -> None:
    """Raises SpecError where its change is none of its two values, as far as digits tell."""
    old, told, new = (float(row[side]) for side in _SIDES)
    old_unit, told_unit, new_unit = (_unit(row[side]) for side in _SIDES)
    whole = old + old_unit > 0
    least = 100 * (new - new_unit) / (old + old_unit) - 100 if whole else -math.inf
    most = 100 * (new + new_unit) / (old - old_unit) - 100 if old > old_unit else math.inf
    if min(old, new) < 0 or max(old, new) > _MOST_COUNTED:
        wrong = f"has values that nothing counts: {old:g} and {new:g}"
    elif told + told_unit < least or told - told_unit > most:
        wrong = f"contradicts itself: {old:g} to {new:g} is no change of {told:+g} %"
    else:
        return
    raise SpecError(f"the row {row['name']} {wrong}", place=place, action=_WHOLE_MAIL)


def _check_subject(subject: str, row: re.Match[str], place: str) -> None:
    """Raises SpecError where the Subject says another change of this row."""
    said = _PERCENT.findall(subject) if row["name"] in subject.split() else []
    for sign, size in said if len(said) == 1 else ():
        told, change = float(sign + size), float(row["change"])
        near = _unit(size) + _unit(row["change"])
        if abs(told - (change if sign else abs(change))) > near:
            cause = f"its Subject says {sign}{size} % of {row['name']}, its table {change:+g} %"
            raise SpecError(cause, place=place, action=_WHOLE_MAIL)


def _unit(number: str) -> float:
    """What the last printed digit of a number is worth."""
    digits, _, power = number.lower().partition("e")
    return float(f"1e{int(power or 0) - len(digits.partition('.')[2])}")


def _contradicted(part: str, fields: Mapping[str, str]) -> int:
    """How many fields of the mail the settings above a table contradict; 0 without settings."""
    names, values = _settings(part) or ([], [])
    if len(names) != len(values):  # one has a slash of its own
        names, values = ["testcase"], [fields["testcase"] if fields["testcase"] in values else ""]
    return sum(
        _OTHER_TEST if name in ("testcase", *_TEST_PARAMETERS) else 1
        for name, value in zip(names, values, strict=True)
        if fields.get(name, value) != value
    )


def _settings(part: str) -> list[list[str]]:
    """Names and values of the settings above a table; [] without any."""
    found = _SETTINGS.match(part)
    return [line.split("/") for line in found.groups()] if found else []


def _rows(part: str) -> list[re.Match[str]]:
    """The rows of a table, those of a difference, too."""
    lines = iter(part.splitlines())
    next(filter(ROBOT_HEAD.match, lines), None)
    return [row for line in islice(lines, _MOST_ROWS) if (row := ROBOT_ROW.match(line))]


def _row(found: re.Match[str]) -> RobotRow:
    return RobotRow(
        metric=found["name"],
        old=float(found["old"]),
        new=float(found["new"]),
        percent=float(found["change"]),
        spreads=(float(found["old_sd"] or 0), float(found["new_sd"] or 0)),
    )


def chosen(report: RobotReport, metric: str) -> RobotRow:
    """The row of `metric`, else that of the Subject, else the only one with a declared direction.

    Raises SpecError.
    """
    named = {row.metric: row for row in report.rows}
    if metric in named:
        return named[metric]
    if metric:
        raise SpecError(
            f"the table has no row {metric}", place=report.place, action=known(metric, named)
        )
    own, subject = report.own, [word.rstrip(",;:") for word in report.subject.split()]
    absent = [word for word in subject if word.startswith(f"{report.suite}.") and word not in named]
    if absent:
        cause = f"its Subject names {quoted(absent[0], 80)}, of which the table has no row"
        action = f"name the row with --metric NAME, or {_WHOLE_MAIL}"
        raise SpecError(cause, place=report.place, action=action)
    found = [r for r in own if r.metric in subject] or [row for row in own if row.better]
    if len(found) != 1:
        names = ", ".join(row.metric for row in (found or own)[:8]) or "none of the suite"
        cause = f"the table has {len(found) or 'no'} rows of {report.suite} with a known direction"
        action = f"name the row with --metric NAME: {names}"
        raise SpecError(cause, place=report.place, action=action)
    return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSplit:
    """A change of a rate as a product: rate = cycles a second / (path * cycles an instruction), or
    instructions a second / path where the table has no cycles.

    ratios: new/old of "path", instructions per operation, of "cycles" per instruction, and of the
    "rest", cycles per second, which are fewer where tasks wait; or of path and "speed".  shares: of
    each in the change.  most: which it is most of, or "".  deviates: percent by which that one
    deviates where it changed by no more, else 0.  lock: the function that waits for one and changed
    most, then its callers, and by how many percent of all cycles; own: of all functions by
    themselves; () where none.  profiled: whether the mail has any.
    """

    ratios: Mapping[str, float]
    shares: Mapping[str, float]
    most: str
    deviates: float
    lock: tuple[tuple[str, ...], float]
    own: tuple[tuple[str, ...], float]
    profiled: bool


def split(report: RobotReport, row: RobotRow, better: Direction) -> tuple[RateSplit | None, str]:
    """The change of a rate by the perf rows beside it; None of a time, and without such rows.

    None, too, where another rate of the suite or what is done in a second contradict: the perf rows
    are then of other work, and a sentence names those that contradict.
    """
    rows = {one.metric: one for one in report.rows if one.old and one.new and one.ratio > 0}
    wanted = row.metric in rows and row in report.own and ".time." not in row.metric
    path = _path(rows, row)
    if not (wanted and row.percent and better is Direction.MORE and path):
        return None, ""
    total = math.log(row.ratio)
    ratios, errors = {"path": path[0]}, {"path": path[1]}
    cycles = rows.get("perf-stat.overall.cpi") or rows.get("perf-stat.overall.ipc")
    if cycles:
        by_ipc = "perf-stat.overall.cpi" not in rows
        ratios["cycles"] = 1 / cycles.ratio if by_ipc else cycles.ratio
        errors["cycles"] = sum(cycles.spreads)
    last, done = ("rest", "cpu-cycles") if cycles else ("speed", "instructions")
    second = rows.get(f"perf-stat.ps.{done}")
    errors[last] = sum(second.spreads) if second else sum((*errors.values(), *row.spreads))
    ratios[last] = row.ratio * math.prod(ratios.values())
    wanting = {one: row.ratio for one in report.own if one.better is better and one.ratio > 0}
    wanting |= {second: ratios[last]} if second else {}
    if executed := rows.get("perf-stat.ps.instructions"):
        wanting[executed] = row.ratio * path[0]
    for one, ratio in wanting.items():
        if abs(math.log(one.ratio / ratio)) > max(abs(total) / 4, _ROUNDED):
            told = (
                f"{one.metric} {one.percent:+g} % contradicts the {100 * ratio - 100:+.1f} % that"
            )
            return None, f"{told} {row.metric} and other perf-stat rows give: none of these is used"
    shares = {name: math.log(one) / -total for name, one in ratios.items()}
    shares[last] *= -1
    most = max(shares, key=lambda name: shares[name])
    deviates = errors[most] if 100 * shares[most] * abs(total) <= errors[most] else 0.0
    if shares[most] <= 1 / 2:
        most, deviates = "", 0.0
    moved = [each for each in report.profile if -total * each[2] > 0]
    return RateSplit(
        ratios=ratios,
        shares=shares,
        most=most,
        deviates=deviates,
        lock=_largest([each for each in moved if _WAITING.match(each[1])]),
        own=_largest([each for each in moved if each[0] == "self"]),
        profiled=bool(report.profile),
    ), ""


def _largest(profile: Sequence[tuple[str, str, float]]) -> tuple[tuple[str, ...], float]:
    """The function whose share changed most, then who called it most, and by how many percent."""
    told = [((*_CALLER.split(name),), points) for _, name, points in profile]
    (first, *_), points = max(told, key=lambda each: abs(each[1]), default=(("",), 0.0))
    if abs(points) < _WAITS_POINTS:
        return (), 0.0
    traces = [each for each in told if each[0][0] == first]
    return max(traces, key=lambda each: (len(each[0]) > 1, abs(each[1])))[0], points


def _path(rows: Mapping[str, RobotRow], row: RobotRow) -> tuple[float, float] | None:
    """new/old of instructions per operation (lkp's path-length); percent that both deviate."""
    if one := rows.get("perf-stat.overall.path-length"):
        return one.ratio, sum(one.spreads)
    workload = f"{row.metric.partition('.')[0]}.workload"
    for name, of in (("total", workload), ("ps", row.metric)):
        done, by = rows.get(f"perf-stat.{name}.instructions"), rows.get(of)
        if done and by:
            return done.ratio / by.ratio, sum((*done.spreads, *by.spreads))
    return None


def direction(report: RobotReport, row: RobotRow, better: str) -> Direction:
    """Whether more or less of a row is better.  Raises SpecError where nothing declares it."""
    if found := Direction(better) if better else row.better:
        return found
    cause = f"whether more of {row.metric} is better is not declared"
    action = "say it with --better more or --better less"
    raise SpecError(cause, place=report.place, action=action)


def _test_words(report: RobotReport, row: RobotRow) -> set[str]:
    """What names the test: values of its parameters, parts of the metric between suite and unit."""
    values = {value.lower() for name, value in report.parameters if name in _TEST_PARAMETERS}
    return values | set(row.metric.lower().split(".")[1:-1])


def outside(report: RobotReport, row: RobotRow) -> str:
    """Where a test runs that is known to execute no path of the kernel, "" of all others."""
    every = _OUTSIDE.get(report.suite.lower(), {})
    return next((every[word] for word in sorted(_test_words(report, row)) if word in every), "")


def scenario_of(report: RobotReport, row: RobotRow) -> str:
    """The scenario that lists the suite and the test among its `robots`.

    A name fits where its first word is the suite and every other word names the test.  The longest
    name counts.  Raises SpecError where none fits, or several scenarios do.
    """
    values = _test_words(report, row)
    found: dict[str, int] = {}
    suite: list[str] = []
    for reference in plan.surveyed(field=True):
        for name in workload.parse_reference(reference)[1].robots:
            first, *words = name.lower().split()
            if words and first == report.suite.lower():
                suite.append(name)
                if values.issuperset(words):
                    found[reference] = max(len(words), found.get(reference, 0))
    best = [name for name, count in found.items() if count == max(found.values())]
    if len(best) == 1:
        return best[0]
    asked = " ".join([report.suite, *sorted(values)])
    cause = f"{len(best) or 'no'} scenarios are known to repeat {printable(asked, 80)}"
    action = f"name one with --scenario; {known(asked, best or suite)}"
    raise SpecError(cause, place=report.place, action=action)


def in_turns(report: RobotReport, found: RateSplit | None) -> list[str]:
    """The scenarios in which tasks take turns at the test, by its name, each with what they share.

    None for one task, for a test that is not there, and where most of a split is path length.
    """
    own = dict(report.parameters)
    if own.get("nr_task", own.get("nr_threads", "1")) == "1" or (found and found.most == "path"):
        return []
    names = [one.name for one in workload.load(plan.TURNS).scenarios]
    test = own.get("test", "")
    alike = [name for name in names if name == test or name.startswith(f"{test}_")]
    by_mode = [n for n in alike if n.endswith("_processes") == (own.get("mode") == "process")]
    return [f"{plan.TURNS}:{name}" for name in by_mode or alike]


def apart(report: RobotReport, old: str, new: str) -> str:
    """Why a difference of these kernels is not this commit's alone, a sentence; "" where it is.

    It is where one is the other with the commit, or without, and where both are commits of a tree
    with this one between them.  Raises SpecError where `old` has it and `new` lacks it, and where
    `old` is the later release.
    """
    commit = report.commit[:12]
    commits = _with_it_alone(commit, old, new) or _commits_between(commit, old, new)
    first, last = printable(old, 80), printable(new, 80)
    if commits < 0 or _is_newer(old, new):
        has = f"{first} has {commit}, and {last} lacks it"
        cause = has if commits < 0 else f"{first} is newer than {last}"
        raise SpecError(cause, place="--kernels", action="name them in the other order")
    if commits == 1:
        return ""
    names = f"{first} and {last}"
    if commits:
        return f"{commit} is one of {commits} commits between {names}, and this is of all of them."
    return f"Nothing proves that {commit} lies between {names}: this is of all that differs there."


def diff(report: RobotReport, *kernels: str) -> str:
    """The lines that its commit changes, where one of the kernels names its tree; else ""."""
    places = (re.search(r"(?:^tree:|[+=])([^+=]+)@", each) for each in kernels)
    root = next((files.path_of(found[1]) for found in places if found), None)
    words = ("show", "-U0", "--format=", "--no-ext-diff", "--no-textconv", report.commit)
    return git.ask(root, *words).stdout if root else ""


def _is_newer(old: str, new: str) -> bool:
    """True where both are releases and the first is the later one, as far as both have numbers."""
    was, now = (_RELEASE.match(each) for each in (old, new))
    pairs = zip(was.groups(), now.groups(), strict=True) if was and now else ()
    return next((int(a) > int(b) for a, b in pairs if a and b and a != b), False)


def _with_it_alone(commit: str, old: str, new: str) -> int:
    """1: new is old with the commit, -1: without it; 0: neither is said by their names."""
    (base, *was), (other, *now) = old.split("+"), new.split("+")
    words = [*(set(was) ^ set(now))]
    if base != other or len(words) != 1:
        return 0
    named = re.search(r"@([0-9a-f]{12,40})$", words[0])
    if not named or not named[1].startswith(commit):
        return 0
    return 1 if (words[0] in now) != words[0].startswith("undo=") else -1


def _commits_between(commit: str, old: str, new: str) -> int:
    """How many commits of a tree lead from old to new, with this one; -1: back; 0: not known."""
    if not (old.startswith(PREFIX) and new.startswith(PREFIX)):
        return 0
    was, now = parse(old), parse(new)
    if not (was.commit and now.commit and was.path and was.path == now.path):
        return 0
    if was.variants or now.variants:
        return 0

    def leads(first: str, last: str) -> bool:
        return git.ask(root, "merge-base", "--is-ancestor", first, last).returncode == 0

    root = was.path
    before, after = (leads(commit, each.commit) for each in (was, now))
    if before != after and before:
        return -1
    if before == after or not leads(was.commit, now.commit):
        return 0
    counted = git.ask(root, "rev-list", "--count", f"{was.commit}..{now.commit}")
    return int(counted.told("[0-9]+"))


def _parts(content: bytes) -> tuple[str, str]:
    """The Subject, and the text; of a page of an archive that is what it shows."""
    text = content.decode(errors="replace")
    if not re.match(rb"(?:From |[A-Za-z-]+:)", content):
        return "", html.unescape(text) if text.lstrip().startswith("<") else text
    with contextlib.suppress(LookupError, ValueError):
        mail, texts = files.mail_of(content), list[str]()
        for part in mail.walk():
            payload = part.get_payload(decode=True)
            named = part.get_content_type(), part.get_content_disposition()
            if named in (("text/plain", None), ("text/plain", "inline")) and isinstance(
                payload, bytes
            ):
                charset = part.get_content_charset("utf-8")
                texts.append(payload.decode(charset, errors="replace"))
        if texts:  # of several that one with a table, and two of these contradict themselves
            tables = [one for one in texts if _BLOCK.search(one)]
            return str(mail["subject"]), "\n".join(dict.fromkeys(tables)) or texts[0]
    return "", html.unescape(text)
