# SPDX-License-Identifier: GPL-2.0-or-later
"""Output of known programs that holds nothing which can be judged: what it is, and what to give.

Summaries that lost the values, samples of a machine's state over time, and profiles.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LOOKED_AT = 65536  # characters that tell
_LONGEST = 300  # characters of a line that grep printed
_SUITES = "a summary, whose values are lost"
_LOAD = "the state of the machine over time, and no time or rate of the work"
_WORK = "give what the work itself took, a line for each run: kernel,boot,seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What a file is, and what to give instead: two parts of a sentence.

    kept: what was done with it where it lies beside files that are read.
    """

    cause: str
    action: str
    kept: str = "kept as it is"


# A pattern that only that program prints -> what it is, what to give.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"(?m)^.*\u2502\s*(?:sec/op|B/s|[\w-]+/op)\s*\u2502|^name\s+old (?:time|speed|alloc)",
        f"benchstat's table is {_SUITES}",
        "give the benchmark files that benchstat was given (.txt of go test -bench)",
    ),
    (
        r"(?m)^ *N +Min +Max +Median +Avg +Stddev *$",
        f"ministat's report is {_SUITES}",
        "give the files that ministat was given, a number a line, each called after its kernel",
    ),
    (
        r"(?m)^Name \(time in [^)]+\)\s+Min\b",
        f"pytest-benchmark's table is {_SUITES}",
        "give the file of pytest --benchmark-json=FILE of each kernel",
    ),
    (
        r"(?m)^\|? *Change *\| *Before\b.*\| *After\b.*\| *Ratio\b|^ *before +after +ratio *$",
        f"the comparison of asv is {_SUITES}",
        "give the JSON of both commits, .asv/results/MACHINE/COMMIT-ENVIRONMENT.json",
    ),
    (
        r"(?m)^Benchmark\s.*\bMode\s+Cnt\s+Score\s+Error\s+Units\s*$",
        "JMH's table has half of a 99.9 % interval where a standard deviation would stand",
        "give the file of java -jar BENCHMARKS.jar -rf json of each kernel",
    ),
    (
        r"(?m)^[ \t]*(?:Welch )?(?:Two Sample|Paired|One Sample) t-test *$|Wilcoxon rank sum \w*",
        "the report of a test in R has no values",
        "give the data that it was given: write.csv(DATA, 'data.csv', row.names=FALSE)",
    ),
    (
        r"(?m)^ *Min\. +1st Qu\. +Median +Mean +3rd Qu\. +Max\. *$",
        "summary() of R does not say how many values there were, nor how they scatter",
        "give the values: write.csv(DATA, 'data.csv', row.names=FALSE)",
    ),
    (
        r"(?m)^Linux \S+ \(\S+\)\s+\S+\s+_\w+_\s+\(\d+ CPU\)",
        f"what sar, mpstat, pidstat and iostat print is {_LOAD}",
        _WORK,
    ),
    (
        r"(?m)^procs -+memory-+",
        f"what vmstat prints is {_LOAD}",
        _WORK,
    ),
    (
        r"\bAvg_MHz[ \t]+Busy%",
        f"what turbostat prints is {_LOAD}",
        f"{_WORK}; for energy a column joules",
    ),
    (
        r"(?m)^ *(?:read|write) *: IOPS=\S+, BW=",
        "what fio prints for people has three digits of its figures",
        "give what fio --output-format=json --output=FILE writes, a file for a run",
    ),
    (
        r"(?m)^testcase:.*$(?:\s+^warmup$)?\s+^min:\d+ max:\d+ total:\d+$",
        "what will-it-scale prints is a line for each second of a run",
        "give its CSV (runtest.py NAME > NAME.csv), a file for each kernel",
    ),
    (
        r"(?m)^# RTLA (?:timerlat|osnoise) histogram",
        "a histogram of rtla counts latencies and has no value of a run",
        "give its summary of each run as a table: kernel,boot,cpu,avg_us,max_us",
    ),
    (
        r"(?m)^# (?:Overhead |Samples: )|^# To display the perf.data header info",
        "a profile of functions is no time of a run",
        _WORK,
    ),
    (
        r"\\begin\{(?:tabular|table|longtable)",
        "a table in LaTeX was made of other data",
        "give the CSV that it was made of, or put its rows into one: kernel,test,mean_us,sd_us,n",
    ),
    (
        r"(?m)^Latencies\s+\[min, mean, 50, 90, 95, 99, max\]",
        "the report of vegeta has several figures in a line",
        "put what was measured into a table, a line for each run: kernel,run,requests_per_s,p99_ms",
    ),
    (
        r"(?m)^ *Value +Percentile +TotalCount +1/\(1-Percentile\) *$|^#\[Mean +=.*StdDeviation",
        "a distribution of HdrHistogram says neither what was measured nor its unit",
        "give its percentiles as a table, a line for each run: kernel,run,p50_us,p99_us",
    ),
    (
        r"(?m)^[ \t]*Iozone: Performance Test of File I/O|^ *kB +reclen +write +rewrite\b",
        "iozone's table leaves the places of tests empty that were not run",
        "put its figures into a table: kernel,run,test,file_kb,record_kb,kbytes_per_s",
    ),
    (
        r"(?m)^(?:Version +[\d.]+ +-+Sequential Output-+|1\.9\d,[\d.]+,[^,]*,\d+,\d+,)",
        "bonnie++ prints figures of several units in a line, and some only as +++",
        "put its figures into a table: kernel,run,test,kb_per_s (seeks_per_s in a column apart)",
    ),
    (
        r"(?s)\A(?!.*\btransactions:).*?(?:^|\n)\[ *\d+s *\] thds: ",
        "sysbench's reports of intervals are one run over time, and no value of a run",
        'give all that sysbench printed of each run, with what stands below "SQL statistics"',
    ),
    (
        r"(?m)^% time +seconds +usecs/call +calls +errors syscall *$",
        "strace -c counts the time of calls that strace itself stops",
        "give what the program took without strace, a line for each run: kernel,run,seconds",
    ),
    (
        r"\A\s*\[\s*\[(?!(?:\s*\"[^\"\n]*\"\s*,)*\s*\"[^\"\n]*\"\s*\])",
        "its lists have no names, so nothing says what a number in them is",
        'put the names into a list before the others: [["kernel", "boot", "ns"], ["6.16", 1, 150]]',
    ),
)
NO_TABLE = Unread(
    cause="a page that holds no table",
    action="save the page itself, or put its figures into a table: kernel,boot,ns",
)
_XML = ("<?xml", "<testsuite", "<benchmark", "<results")
_FIO_LOG = re.compile(r"_(?P<what>bw|iops|lat|clat|slat)(?:\.\d+)?\.log\Z")
_FIO_ROW = re.compile(r"\d+, *\d+, *[0-2], *\d+(?:, *[^,\s]+)* *")
_GREP = re.compile(
    r"(?P<path>[^\s:/]*/[^\s:]*|[^\s:.]*(?:\.[^\s:.]*)*\.[A-Za-z]\w{0,4}):(?:\d+:)?\s*\S.*"
)
_COMPILED = tuple((re.compile(pattern), cause, action) for pattern, cause, action in _KNOWN)


def unread(text: str, name: str) -> Unread | None:
    """What a file is that cannot be judged; None: it is no such file."""
    lines = [line for line in text[:_LOOKED_AT].splitlines() if line.strip()]
    logged = lines and all(map(_FIO_ROW.fullmatch, lines[:100]))
    if logged and (found := _FIO_LOG.search(name)):
        return Unread(
            cause=f"fio's log of {found['what']} is one run over time, and no value of a run",
            action="give what fio --output-format=json --output=FILE writes, a file for a run",
        )
    if text[:_LOOKED_AT].lstrip().startswith(_XML) and "<PhoronixTestSuite" not in text:
        return Unread(
            cause="XML of a program that is not known (the Phoronix Test Suite's is)",
            action="put what was measured into a table: kernel,boot,ns",
        )
    for pattern, cause, action in _COMPILED:
        if pattern.search(text[:_LOOKED_AT]):
            return Unread(cause=cause, action=action)
    return _of_grep(lines)


def _of_grep(lines: list[str]) -> Unread | None:
    """Lines that grep took out of several files: import those."""
    if any(len(line) > _LONGEST for line in lines):
        return None
    cut = [_GREP.fullmatch(line) for line in lines]
    paths = {one["path"] for one in cut if one and any(map(str.isalpha, one["path"]))}
    if len(lines) < 2 or not all(cut) or len(paths) < 2:
        return None
    return Unread(
        cause=f"lines of {len(paths)} files, as grep prints them",
        action="import the files themselves, so that their names tell kernel and run",
    )
