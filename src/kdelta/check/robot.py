# SPDX-License-Identifier: GPL-2.0-or-later
"""A report of the kernel test robot: its table and its declared fields, and nothing else of it.

Read are the line `commit: ID ("TITLE")`, the block `commit:` with both commits, the rows below
`parameters:`, the field `testcase:`, and the first table of `old  %change  new  metric`, with the
share of cycles in functions that wait for a lock.  No sentence is read.  The mail is a stranger's
text: nothing in it is run or fetched.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kdelta import files, workload
from kdelta.check.page import Direction
from kdelta.errors import SpecError
from kdelta.imports.formats import ROBOT_HEAD, ROBOT_ROW
from kdelta.printable import known, printable
from kdelta.source import git
from kdelta.source.tree_reference import PREFIX, parse
from kdelta.study import plan

_MOST_BYTES = 4 << 20
_MOST_PARAMETERS = 40
_MOST_ROWS = 2000
_LONGEST = 200
_COMMIT = re.compile(r'^commit: ([0-9a-f]{12,40}) \("(.*)"\)\s*$', re.MULTILINE)
_BLOCK = re.compile(
    r'^commit:[ \t]*\n[ \t]+([0-9a-f]{7,40}) \(.*\)[ \t]*\n[ \t]+([0-9a-f]{7,40}) \("?(.*?)"?\)'
    r"(?!.*\))",
    re.MULTILINE,
)
_SUITE = re.compile(r"^(?:in )?testcase: (\S{1,80})\s*$", re.MULTILINE)
_PARAMETER = re.compile(r"^[ \t]+([a-z_]{1,32}): (\S{1,80})\s*$", re.MULTILINE)
_WAITING = re.compile(r"perf-profile\.self\.cycles-pp\.(\w{1,80})")
# Where a task waits for a lock: kernel/locking of Linux.
_WAITS = frozenset(
    ("native_queued_spin_lock_slowpath", "queued_read_lock_slowpath", "queued_write_lock_slowpath",
     "rwsem_spin_on_owner", "mutex_spin_on_owner", "osq_lock", "rwsem_down_read_slowpath",
     "rwsem_down_write_slowpath")
)  # fmt: skip
_WAITS_POINTS = 1.0  # of all cycles: from which a lock is named
_TEST_PARAMETERS = ("test", "mode", "ipc", "option_a")  # these say which loop it is
_DEVICE_PARAMETERS = ("disk", "fs", "fstype", "nr_ssd", "nr_pmem")  # what no scenario has
# What is better of the robot's own metrics, from etc/index-perf-all.yaml of lkp-tests.
_MORE = (
    *("*.throughput", "aim9.*.ops_per_sec", "fio.*_bw_MBps", "fio.*_iops", "fsmark.files_per_sec"),
    *("fxmark.*.works/sec", "lmbench3.*.MB/sec", "netperf.Throughput_Mbps"),
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
        old, new = (
            value * of / 100 for value, of in zip((self.old, self.new), self.spreads, strict=True)
        )
        return abs(self.new - self.old) <= old + new

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

    suite: as "will-it-scale".  rows: of the first table.  waits: functions that wait for a lock,
    and by how many percent of all cycles their share changed.  place: the file, for errors.
    """

    commit: str
    parent: str
    title: str
    suite: str
    parameters: tuple[tuple[str, str], ...]
    rows: tuple[RobotRow, ...]
    waits: tuple[tuple[str, float], ...]
    place: str

    @property
    def devices(self) -> str:
        """The parameters that name a device or a file system: "disk 1HDD, fs xfs", or ""."""
        return ", ".join(
            f"{name} {value}" for name, value in self.parameters if name in _DEVICE_PARAMETERS
        )


def read(path: Path) -> RobotReport:
    """The report in a mail or a text.  Raises SpecError where one of its fields is missing."""
    try:
        content = files.content(path, _MOST_BYTES)
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", place=str(path)) from error
    text = "\n".join(printable(line, 2000) for line in _body(content).splitlines())
    table = [*_table(text)]
    block, suite = _BLOCK.search(text), _SUITE.search(text)
    rows = tuple(_row(each) for each in table if each["percent"])
    points = [(_WAITING.fullmatch(each["name"]), each) for each in table if not each["percent"]]
    if not (block and suite and rows):
        lacks = "its field testcase:" if block else "its block commit: with two commits"
        raise SpecError(
            "this is no report of the kernel test robot: it lacks "
            + ("its table of old, %change, new and metric" if block and suite else lacks),
            place=str(path),
            action="save the whole mail as it came",
        )
    parent, short, title = block.groups()
    whole = next((one for one in _COMMIT.finditer(text) if one[1].startswith(short)), None)
    return RobotReport(
        commit=whole[1] if whole else short,
        parent=parent,
        title=title[:_LONGEST],
        suite=suite[1],
        parameters=tuple(_PARAMETER.findall(text)[:_MOST_PARAMETERS]),
        rows=rows,
        waits=tuple(
            (name[1], float(each["change"])) for name, each in points if name and name[1] in _WAITS
        ),
        place=str(path),
    )


def _table(text: str) -> Iterator[re.Match[str]]:
    """The rows of the first table, those of a difference, too."""
    lines = iter(text.splitlines())
    next(filter(ROBOT_HEAD.match, lines), None)
    for _, line in zip(range(_MOST_ROWS), lines, strict=False):
        if line.startswith(("====", "****")) or ROBOT_HEAD.match(line):
            return
        if found := ROBOT_ROW.match(line):
            yield found


def _row(found: re.Match[str]) -> RobotRow:
    return RobotRow(
        metric=found["name"],
        old=float(found["old"]),
        new=float(found["new"]),
        percent=float(found["change"]),
        spreads=(float(found["old_sd"] or 0), float(found["new_sd"] or 0)),
    )


def chosen(report: RobotReport, metric: str) -> RobotRow:
    """The row of `metric`, else the only one whose direction is declared.  Raises SpecError."""
    named = {row.metric: row for row in report.rows}
    if metric in named:
        return named[metric]
    if metric:
        raise SpecError(
            f"the table has no row {metric}", place=report.place, action=known(metric, named)
        )
    own = [row for row in report.rows if row.metric.startswith(f"{report.suite}.")]
    found = [row for row in own if row.better]
    if len(found) != 1:
        names = ", ".join(row.metric for row in (found or own)[:8]) or "none of the suite"
        raise SpecError(
            f"the table has {len(found) or 'no'} rows of {report.suite} with a known direction",
            place=report.place,
            action=f"name the row with --metric NAME: {names}",
        )
    return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSplit:
    """A change of a rate as a product: rate = cycles a second / (path * cycles an instruction).

    path, cycles, rest: new/old of instructions per operation, of cycles per instruction, and of
    cycles per second, which are fewer where tasks wait.  most: which of them it is most of.
    lock: the function where the waiting changed most, and by how many percent of all cycles; ""
    where a lock explains nothing.
    """

    path: float
    cycles: float
    rest: float
    most: str
    lock: tuple[str, float]


def split(report: RobotReport, row: RobotRow, better: Direction) -> RateSplit | None:
    """The change of a rate by the perf rows beside it; None of a time, and without such rows.

    lkp-tests gives `path-length` as instructions over the workload's operations.
    """
    ratios = {one.metric: one.new / one.old for one in report.rows if one.old and one.new}
    if row.metric not in ratios or better is not Direction.MORE:
        return None
    path = ratios.get("perf-stat.overall.path-length")
    total, done = (
        ratios.get(name) for name in ("perf-stat.total.instructions", f"{report.suite}.workload")
    )
    if path is None and total and done:
        path = total / done
    cycles = ratios.get("perf-stat.overall.cpi")
    if cycles is None and (of_cycle := ratios.get("perf-stat.overall.ipc")):
        cycles = 1 / of_cycle
    if path is None or cycles is None:
        return None
    rate = ratios[row.metric]
    rest = rate * path * cycles
    way = 1 if rate > 1 else -1
    own = {"path": 1 / path, "cycles": 1 / cycles, "rest": rest}
    most = max(own, key=lambda part: way * math.log(own[part]))
    lock = max(report.waits, key=lambda each: -way * each[1], default=("", 0.0))
    if most == "path" or -way * lock[1] < _WAITS_POINTS:
        lock = ("", 0.0)
    return RateSplit(path=path, cycles=cycles, rest=rest, most=most, lock=lock)


def direction(report: RobotReport, row: RobotRow, better: str) -> Direction:
    """Whether more or less of a row is better.  Raises SpecError where nothing declares it."""
    if found := Direction(better) if better else row.better:
        return found
    raise SpecError(
        f"whether more of {row.metric} is better is not declared",
        place=report.place,
        action="say it with --better more or --better less",
    )


def scenario_of(report: RobotReport, row: RobotRow) -> str:
    """The scenario that lists the suite and the test among its `robots`.

    A name fits where its first word is the suite and every other word is a value of a parameter
    that names the test, or a part of the metric between suite and unit.  The longest name counts.
    Raises SpecError where none fits, or several scenarios do.
    """
    values = {value.lower() for name, value in report.parameters if name in _TEST_PARAMETERS}
    values |= set(row.metric.lower().split(".")[1:-1])
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
    raise SpecError(
        f"{len(best) or 'no'} scenarios are known to repeat {printable(asked, 80)}",
        place=report.place,
        action=f"name one with --scenario; {known(asked, best or suite)}",
    )


def apart(report: RobotReport, old: str, new: str) -> str:
    """Why a difference of these kernels is not this commit's alone, a sentence; "" where it is.

    It is where one is the other with the commit, or without, and where both are commits of a tree
    with this one between them.  Raises SpecError where `old` has it and `new` lacks it.
    """
    commit = report.commit[:12]
    commits = _with_it_alone(commit, old, new) or _commits_between(commit, old, new)
    if commits < 0:
        cause = f"{printable(old, 80)} has {commit}, and {printable(new, 80)} lacks it"
        raise SpecError(cause, place="--kernels", action="name them in the other order")
    if commits == 1:
        return ""
    names = f"{printable(old, 80)} and {printable(new, 80)}"
    if commits:
        return f"{commit} is one of {commits} commits between {names}, and this is of all of them."
    return f"Nothing proves that {commit} lies between {names}: this is of all that differs there."


def _with_it_alone(commit: str, old: str, new: str) -> int:
    """1: new is old with the commit, -1: without it; 0: neither is said by their names."""
    (base, *was), (other, *now) = old.split("+"), new.split("+")
    words = [*(set(was) ^ set(now))]
    if base != other or len(words) != 1:
        return 0
    named = re.search(r"(?:@|revert=)([0-9a-f]{12,40})$", words[0])
    if not named or not named[1].startswith(commit):
        return 0
    back = words[0].startswith(("undo=", "revert="))
    return 1 if (words[0] in now) != back else -1


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
    counted = git.ask(root, "rev-list", "--count", f"{was.commit}..{now.commit}").stdout
    return int(counted or 0)


def _body(content: bytes) -> str:
    if not re.match(rb"(?:From |[A-Za-z-]+:)", content):
        return content.decode(errors="replace")
    with contextlib.suppress(LookupError, ValueError):
        for part in files.mail_of(content).walk():
            text = part.get_payload(decode=True)
            named = part.get_content_type(), part.get_content_disposition()
            if named in (("text/plain", None), ("text/plain", "inline")) and isinstance(
                text, bytes
            ):
                return text.decode(part.get_content_charset("utf-8"), errors="replace")
    return content.decode(errors="replace")
