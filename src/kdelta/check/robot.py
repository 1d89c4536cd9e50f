# SPDX-License-Identifier: GPL-2.0-or-later
"""A report of the kernel test robot, read as what it is: a stranger's text.

Taken are the commit, its title and its parent, the change of the headline, the test with its
parameters, what else the report names, and the functions of its profile that changed.  Nothing in
it is run or fetched.
"""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

from kdelta import files
from kdelta.errors import SpecError
from kdelta.printable import printable

_MOST_BYTES = 4 << 20
_MOST_FUNCTIONS = 20
_MOST_BESIDE = 8
_ROUNDED = 0.11  # percent
_COMMIT = re.compile(r"^\s*commit:\s*([0-9a-f]{12,40})\b(?:\s*\(\"?(.*?)\"?\)\s*$)?", re.MULTILINE)
_HEADLINE = re.compile(
    r"noticed an?\s+([-+]?\d+(?:\.\d+)?)\s*%\s+(regression|improvement)\s+of\s+(\S+)"
)
_TEST = re.compile(r"^\s*(?:in )?testcase:\s*(\S+)", re.MULTILINE)
_RATE = re.compile(
    r"_ops\b|ops_per_|ops/s|/sec\b|throughput|per_sec|bps\b|tps\b|score|iops\b|_bw\b|median",
    re.IGNORECASE,
)
_LATENCY = re.compile(r"latency|_time\b|[._](?:ns|us|ms|usec|nsec|msec|seconds)\b", re.IGNORECASE)
_ROW = r"([-+]\d+(?:\.\d+)?)%\s+[\d.e+]+(?:\s+\S\s*\d+%)?\s+{metric}\s*$"
_ALSO = re.compile(
    r"but also an?\s+([-+]?\d+(?:\.\d+)?)\s*%\s+(regression|improvement)\s+of\s+(\S+)"
)
_BESIDE = re.compile(
    r"^\|\s*testcase: change\s*\|\s*[\w.-]+:\s*(\S+)\s+([-+]?\d+(?:\.\d+)?)\s*%\s+"
    r"(regression|improvement)\s*\|",
    re.MULTILINE,
)
_PARAMETER = re.compile(r"^\s+([a-z_]{1,32}):\s*(\S{1,80})\s*$", re.MULTILINE)
_PARENT = re.compile(
    r"^commit:\s*\n\s*([0-9a-f]{7,40}) \(.*\)\s*\n\s*[0-9a-f]{7,40} \(", re.MULTILINE
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")  # CreateProcesses is create_processes elsewhere
_NAMES = ("test", "testcase", "mode", "ipc", "option_a")  # of parameters that say which loop it is
# Parameters that name what no scenario has.
_DEVICES = ("disk", "fs", "fstype", "nr_ssd", "nr_pmem")
_PROFILE = re.compile(r"perf-profile\.(?:self|children)\.cycles-pp\.([A-Za-z_]\w{2,63})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotReport:
    """percent: the change of `metric` as it was published; worse: it is a regression.

    directed: its sign is known: headlines leave it out.  beside: what else the report names, a
    clause each.
    """

    commit: str
    title: str
    parent: str
    test: str
    parameters: tuple[tuple[str, str], ...]
    metric: str
    percent: float
    worse: bool
    functions: tuple[str, ...]
    beside: tuple[str, ...] = ()
    directed: bool = True

    @property
    def tests(self) -> tuple[str, ...]:
        """What names the test within its suite."""
        own = [value for name, value in self.parameters if name in _NAMES]
        return tuple(dict.fromkeys(value for value in own if value != self.test))

    @property
    def called(self) -> str:
        """The test by its suite and its own name: "vm-scalability lru-file-readtwice"."""
        return printable(" ".join([self.test, *self.tests]), 80)

    @property
    def devices(self) -> str:
        """What of its parameters is a device or a file system: "disk 1HDD, fs xfs"; or ""."""
        return ", ".join(f"{name} {value}" for name, value in self.parameters if name in _DEVICES)

    @property
    def is_time(self) -> bool:
        """True where more of the metric is worse, as of a latency."""
        return self.worse == (self.percent > 0)

    @property
    def words(self) -> str:
        """What says which loop it is: the title of the commit says what was changed."""
        chosen = [value for name, value in self.parameters if name in _NAMES]
        metric = self.metric.replace(".", " ")
        return " ".join([*chosen, metric, _HUMP.sub("_", metric), self.test])


def read(path: Path) -> RobotReport:
    """The report in a mail or a text.  Raises SpecError for what is none."""
    try:
        content = files.content(path, _MOST_BYTES)
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", place=str(path)) from error
    body = _body(content)
    text = "\n".join(printable(line, 2000) for line in body.splitlines())
    commit, headline = _COMMIT.search(text), _HEADLINE.search(" ".join(text.split()))
    if commit is None or headline is None:
        lacks = "a commit" if commit is None else "its sentence: noticed a ... % regression of ..."
        raise SpecError(
            f"this is no report of the kernel test robot: it lacks {lacks}",
            place=str(path),
            action="save the whole mail as it came",
        )
    test, parent = _TEST.search(text), _PARENT.search(text)
    worse, metric = headline[2] == "regression", headline[3].rstrip(".,")
    percent = _signed(text, metric, headline[1], worse=worse)
    return RobotReport(
        commit=commit[1],
        title=(commit[2] or "")[:200],
        parent=parent[1] if parent else "",
        test=test[1] if test else headline[3].partition(".")[0],
        parameters=tuple(_PARAMETER.findall(text)[:40]),
        metric=metric,
        percent=float(headline[1]) if percent is None else percent,
        worse=worse,
        functions=tuple(dict.fromkeys(_PROFILE.findall(text)))[:_MOST_FUNCTIONS],
        beside=tuple(_beside(text)),
        directed=percent is not None,
    )


def _beside(text: str) -> Iterator[str]:
    found = [(metric, much, what) for much, what, metric in _ALSO.findall(" ".join(text.split()))]
    for metric, much, what in [*found, *_BESIDE.findall(text)][:_MOST_BESIDE]:
        yield f"{metric.rstrip(').,')}: {much} % ({what})"


def _signed(text: str, metric: str, much: str, *, worse: bool) -> float | None:
    """The change with its sign: the table's, else what the headline or the metric's name says.

    None where nothing does: "a 5.0 % regression" of what may be a rate or a time.
    """
    size = abs(float(much))
    row = re.search(_ROW.format(metric=re.escape(metric)), text, re.MULTILINE)
    if row and abs(abs(float(row[1])) - size) <= _ROUNDED:
        return float(row[1])
    if _RATE.search(metric):  # more of it is better, whatever sign somebody wrote
        return -size if worse else size
    if _LATENCY.search(metric):
        return size if worse else -size
    return float(much) if much.startswith(("-", "+")) else None


def _body(content: bytes) -> str:
    """The plain text of a mail; of what is none, all of it."""
    if not re.match(rb"(?:From |[A-Za-z-]+:)", content):
        return content.decode(errors="replace")
    message = email.message_from_bytes(content, policy=email.policy.default)
    part = message.get_body(("plain",)) if isinstance(message, EmailMessage) else None
    try:
        found = part.get_content() if part is not None else ""
    except (LookupError, UnicodeError, ValueError):
        found = ""
    return found or content.decode(errors="replace")
