# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads a mail against the run that it is of, before a person sends it: pure, and sends nothing."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from enum import StrEnum
from typing import Any

import msgspec

from kdelta.analysis.claims import Claim, Tag
from kdelta.workload import Workload

COLUMNS = 72
_LISTED = 8
_HEADER = re.compile(r"(To|Cc|Subject|From|Date|Message-Id|In-Reply-To|References|Reply-To):", re.I)
_FIXES = re.compile(r'[0-9a-f]{12,40} \(".+"\)')
_INTRODUCED = re.compile(r"[0-9a-f]{12,40}|v\d+\.\d+\S*\.\.v\d+\.\d+\S*")
# A number that stands alone: not a part of a word, a path, a version with letters, or a digest.
_NUMBER = re.compile(r"(?<![\w.,:/+~-])x?(\d[\d,]*(?:\.\d+)*)(?![\w/+~]|[.,:-]\w)")
_SIGNED = re.compile(r"(?<![\w.)\]~+*/-])[+-]\d[\d.,]*(?: ?%)?")
_EXACTLY = 100_000  # beyond it a whole number is compared to the digit


class Checked(StrEnum):
    """What a check says.  Only WRONG keeps a mail from being sent."""

    OK = "ok"
    LOOK = "look"  # a person has to judge
    WRONG = "WRONG"
    UNASKED = "unasked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of a mail, and what it found in words."""

    name: str
    found: Checked
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was found out elsewhere for the checks; None: nobody asked.

    recipients: by the tree's get_maintainer.pl.  earlier: (date, subject) of mails that name the
    same functions.
    """

    recipients: tuple[str, ...] | None = None
    earlier: tuple[tuple[str, str], ...] | None = None


def checks(
    text: str, claim: Claim, workloads: Mapping[str, Workload], known: Known
) -> tuple[Check, ...]:
    """Every check of a whole mail, headers included, made by kdelta or edited since."""
    head, _, body = text.partition("\n\n")
    headers = _headers(head)
    return (
        _columns(text),
        _tag(headers.get("subject", ""), claim),
        _numbers(body, headers.get("subject", ""), claim, workloads),
        _signs(body),
        _trailers(body),
        _recipients(headers, known),
        _earlier(known),
    )


def _headers(head: str) -> dict[str, str]:
    unfolded = re.sub(r"\n[ \t]+", " ", head)
    pairs = (line.partition(":") for line in unfolded.splitlines() if _HEADER.match(line))
    return {name.lower(): value.strip() for name, _, value in pairs}


def _check(name: str, wrong: Sequence[str], good: str) -> Check:
    if not wrong:
        return Check(name=name, found=Checked.OK, told=good)
    more = f" and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
    return Check(name=name, found=Checked.WRONG, told="; ".join(wrong[:_LISTED]) + more)


def _columns(text: str) -> Check:
    """Quoted lines, links and addresses may be longer: they cannot be broken."""
    wide = [
        f"line {at} has {len(line)}"
        for at, line in enumerate(text.splitlines(), start=1)
        if len(line.removeprefix("Subject: ")) > COLUMNS
        and not re.match(r">|\s*\S+$|\s*(Link|Closes|Fixes|To|Cc):", line)
    ]
    strange = [
        f"line {at} has a control character"
        for at, line in enumerate(text.split("\n"), start=1)
        if not line.replace("\t", " ").isprintable()
    ]
    return _check("columns", [*wide, *strange], f"at most {COLUMNS}, plain text")


def _tag(subject: str, claim: Claim) -> Check:
    wrong = []
    if not subject:
        wrong.append("there is no Subject line")
    if Tag.REGRESSION in subject and claim.tag is not Tag.REGRESSION:
        why = "time was measured without a longer path" if claim.timed else "no time was measured"
        wrong.append(f"the subject says {Tag.REGRESSION}, and {why}")
    return _check("subject", wrong, "claims what is proven")


def _numbers(body: str, subject: str, claim: Claim, workloads: Mapping[str, Workload]) -> Check:
    values, words = _Values(), set[str]()
    for each in _sources(claim, workloads):
        _collect(each, values, words)
    values.sort()
    wrong = []
    for at, line in [(0, subject), *enumerate(body.splitlines(), start=1)]:
        if line.startswith((">", "Link:", "Closes:", "Fixes:", "#regzbot")):
            continue
        for match in _NUMBER.finditer(line):
            number = match[1].rstrip(",")
            if not values.have(number) and number not in words:
                wrong.append(f"{number} ({'the subject' if not at else f'line {at} of the text'})")
    return _check("numbers", list(dict.fromkeys(wrong)), "each is one of the run's")


class _Values:
    """All values of a run, to be found by how they are written: rounded."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def add(self, value: float) -> None:
        """A change is told in percent, and a difference without its sign."""
        self._values += [abs(value), abs(100 * value), abs(100 * (value - 1))]

    def sort(self) -> None:
        self._values.sort()

    def have(self, text: str) -> bool:
        """True when a value is written so: equal when rounded to as many places."""
        plain = text.replace(",", "")
        try:
            wanted = float(plain)
        except ValueError:
            return False  # of more than one point: a version, which is a word
        places = len(plain.partition(".")[2])
        half = 0.5000001 * 10**-places
        exactly = places == 0 and wanted >= _EXACTLY
        at = bisect.bisect_left(self._values, wanted - half)
        end = bisect.bisect_right(self._values, wanted + half)
        # A mean of windows or layouts is no whole number, and is told as one.
        return any(
            not exactly or value == wanted or not value.is_integer()
            for value in self._values[at:end]
        )


def _sources(claim: Claim, workloads: Mapping[str, Workload]) -> Iterator[Any]:
    """Whatever a sentence about the run may take a number from."""
    report = claim.report
    yield report
    yield [len(report.ladders), report.planned, report.done]
    for ladder in report.ladders:
        yield [len(ladder.rungs), len(ladder.failures), sum(rung.ok for rung in ladder.rungs)]
        yield from (step.new_value - step.old_value for step in ladder.steps)
        if ladder.workload in workloads:
            yield workloads[ladder.workload]
    for audit in claim.audits:
        bound = [fact for fact in audit.facts if fact.verdict != "told"]
        yield [len(bound), len([fact for fact in bound if fact.verdict != "ok"])]
        yield audit
    if claim.support:
        yield claim.support
    if claim.explanation:
        yield claim.explanation
        yield from _by_function(claim)
    for record in filter(None, (claim.record, claim.exact)):
        yield [record.run_id, record.created, record.kdelta_version, record.seed]
        yield [record.study, record.arms]


def _by_function(claim: Claim) -> Iterator[float]:
    """Per operation, as tables have it; the others are told as one."""
    explained = claim.explanation
    if explained is None:
        return
    rows = explained.functions
    for name in ("old", "new", "delta"):
        counts = [getattr(row, name) or 0 for row in rows]
        rest = sum(counts)
        for at, count in enumerate(counts):
            yield count / explained.operations
            rest -= count
            if at < _LISTED:
                yield rest / explained.operations
        yield sum(counts) / explained.operations
    yield from (row.delta / explained.operations for row in explained.renamed)
    yield from (len(rows) - shown for shown in range(_LISTED + 1) if shown <= len(rows))


def _collect(value: object, values: _Values, words: set[str]) -> None:
    """Every number of a value, and every one that stands in its texts."""
    if isinstance(value, str):
        _collect_words(value, values, words)
    elif isinstance(value, int | float):
        values.add(value)
    elif isinstance(value, Mapping):
        for each in (*value.keys(), *value.values()):
            _collect(each, values, words)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            _collect(inner, values, words)
    elif is_dataclass(value) and not isinstance(value, type):
        fields = asdict(value)
        _collect(fields, values, words)
        _per_operation(fields, values)
    elif isinstance(value, msgspec.Struct):
        _collect(msgspec.structs.asdict(value), values, words)


def _collect_words(text: str, values: _Values, words: set[str]) -> None:
    for match in re.finditer(r"\d[\d,]*(?:\.\d+)*", text):
        words.add(match[0])
        if match[0].count(".") < 2:
            values.add(float(match[0].replace(",", "")))


def _per_operation(found: Any, values: _Values) -> None:
    """Add the figure per operation wherever a window's value stands."""
    if isinstance(found, Mapping):
        operations = found.get("operations")
        if isinstance(operations, int) and operations:
            for name in ("value", "user", "kernel", "minimum", "maximum", "deviation"):
                if isinstance(found.get(name), int):
                    values.add(found[name] / operations)
        for inner in found.values():
            _per_operation(inner, values)
    elif isinstance(found, list | tuple):
        for inner in found:
            _per_operation(inner, values)


def _signs(body: str) -> Check:
    """A reader of a list does not know whether + is good: say more or less."""
    wrong = [
        f"{match[0]} (line {at} of the text)"
        for at, line in enumerate(body.splitlines(), start=1)
        if not line.startswith(">")
        for match in _SIGNED.finditer(re.sub(r"\s-O\d\b|deb:\S+", "", line))
    ]
    return _check("signs", wrong, 'no bare sign; "more" and "less" are said')


def _trailers(body: str) -> Check:
    wrong = []
    for line in body.splitlines():
        name, colon, value = line.partition(":")
        if colon and name == "Fixes" and not _FIXES.fullmatch(value.strip()):
            wrong.append('Fixes: wants 12 digits or more and the subject: 0123456789ab ("mm: ...")')
        if name == "#regzbot introduced" and not _INTRODUCED.match(value.strip()):
            wrong.append("#regzbot introduced: wants a commit, or a range such as v6.16..v6.17")
    return _check("trailers", wrong, "in the form that tools read")


def _recipients(headers: Mapping[str, str], known: Known) -> Check:
    if known.recipients is None:
        told = "give a kernel tree with --tree, and its get_maintainer.pl is asked"
        return Check(name="recipients", found=Checked.UNASKED, told=told)
    addressed = f"{headers.get('to', '')} {headers.get('cc', '')}".lower()
    missing = [each for each in known.recipients if _address(each) not in addressed]
    if not known.recipients:
        told = "get_maintainer.pl names nobody for the files of these functions"
        return Check(name="recipients", found=Checked.LOOK, told=told)
    wrong = [f"not addressed: {each}" for each in missing]
    return _check("recipients", wrong, f"all {len(known.recipients)} of get_maintainer.pl")


def _address(text: str) -> str:
    match = re.search(r"[\w.+=-]+@[\w.-]+", text)
    return match[0].lower() if match else text.lower()


def _earlier(known: Known) -> Check:
    if known.earlier is None:
        told = "give an mbox or a lore mirror with --lore to look for earlier mails"
        return Check(name="duplicates", found=Checked.UNASKED, told=told)
    if not known.earlier:
        return Check(name="duplicates", found=Checked.OK, told="no mail names the functions")
    told = "; ".join(f"{date} {subject}" for date, subject in known.earlier[:_LISTED])
    more = f" and {len(known.earlier) - _LISTED} more" if len(known.earlier) > _LISTED else ""
    return Check(name="duplicates", found=Checked.LOOK, told=f"read these first: {told}{more}")
