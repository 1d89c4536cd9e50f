# SPDX-License-Identifier: GPL-2.0-or-later
"""Mails in the forms that the kernel test robot's had over the years; commits and figures are ours.

`FORMS`: a name, the mail, and what its table and fields have to give.
"""

from __future__ import annotations

from dataclasses import dataclass

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A mail with the row that is meant; scenario: that it is known by, "" for none."""

    name: str
    mail: str
    metric: str
    percent: float
    scenario: str
    better: str = "more"


def mail(
    suite: str,
    headline: str,
    parameters: str,
    row: str = "",
    *,
    old: bool = False,
    title: str = "mm: a change",
    origin: str = "https://git.example.org/linux.git master",
) -> str:
    """One; old: as they began until 2022, "FYI, we noticed".  row: of the table of figures."""
    hello, on, before = (
        ("Greeting,\n\nFYI, we noticed", "due to commit:", "in ")
        if old
        else ("Hello,\n\nkernel test robot noticed", "on:", "")
    )
    named = "".join(f"\t{each}\n" for each in parameters.split("; "))
    return (
        "From: kernel test robot <robot@example.org>\nSubject: [master] [mm] 0123456789: x\n"
        f'Content-Type: text/plain; charset="iso-8859-1"\n\n{hello} {headline} {on}\n\n\n'
        f'commit: {COMMIT} ("{title}")\n{origin}\n\n{before}testcase: {suite}\n'
        f"{'on ' if old else ''}test machine: 64 threads 2 sockets with 256G memory\n"
        f"{'with following ' if old else ''}parameters:\n\n{named}\n\n"
        f'commit: \n  fedcba9876 ("mm: before it")\n  0123456789 ("{title}")\n\n'
        "fedcba9876543210 0123456789abcdef0123456789a\n"
        "---------------- ---------------------------\n"
        "         %stddev     %change         %stddev\n"
        "             \\          |                \\\n"
        f"{row}\n      1.20 \u00b1  3%      +0.4        1.60        "
        "perf-profile.self.cycles-pp.do_brk_flags\n"
    )


def form(
    name: str, metric: str, headline: str, parameters: str, row: str, percent: float, scenario: str,
    *, old: bool = False, better: str = "more",
) -> Form:  # fmt: skip
    """Of a mail whose headline and table have a metric."""
    suite = metric.partition(".")[0]
    told = mail(suite, f"{headline} of {metric}", parameters, row.format(metric), old=old)
    return Form(
        name=name, mail=told, metric=metric, percent=percent, scenario=scenario, better=better
    )  # fmt: skip


FORMS = (
    form("aim9, whose test stands in the metric", "aim9.page_test.ops_per_sec",
         "a -10.8% regression", "testtime: 5s; test: all; cpufreq_governor: performance",
         "    412345           -10.8%     367812        {}", -10.8, "unmap:brk_touch_page"),
    form("unixbench of 2019, whose headline has another figure than its table", "unixbench.score",
         "a -49.0% regression", "runtime: 300s; nr_task: 1; test: syscall; ucode: 0x7000017",
         "      1020 \u00b1  2%     -11.0%        908        {}", -11.0, "control:getppid",
         old=True),
    form("unixbench that forks and executes", "unixbench.throughput",
         "a 7.1% improvement", "runtime: 300s; nr_task: 1; test: sysexec",
         "      1020            +7.1%       1092        {}", 7.1, "process:fork_exec"),
    form("will-it-scale by threads", "will-it-scale.per_thread_ops",
         "a -4.4% regression", "nr_task: 100%; mode: thread; test: page_fault1",
         "  12345678            -4.4%   11802468        will-it-scale.64.threads\n"
         "    192901            -4.4%     184413        {}\n"
         "  12345678            -4.4%   11802468        will-it-scale.workload",
         -4.4, "loops_mm:page_fault1_threads"),
    form("stress-ng, whose loop is not here", "stress-ng.ring-pipe.ops_per_sec",
         "a 5.1% regression", "nr_threads: 100%; testtime: 60s; test: ring-pipe",
         "  1.97e+08            -5.1%   1.87e+08        {}", -5.1, ""),
    form("a test in hugetlb, which base pages do not repeat", "vm-scalability.throughput",
         "a 8.8% regression", "runtime: 300s; size: 512G; test: anon-w-seq-hugetlb",
         "  11871912            -8.8%   10827184        {}", -8.8, ""),
    form("hackbench by processes and sockets", "hackbench.throughput",
         "a 6.2% regression", "nr_threads: 100%; iterations: 4; mode: process; ipc: socket",
         "    546211            -6.2%     512345        {}", -6.2, "loops_ipc:unix_switch"),
    form("a latency, whose direction the robot does not declare", "lmbench3.PIPE.latency.us",
         "a 12.3% regression", "test: PIPE; mode: x",
         "      5.20           +12.3%       5.84        {}", 12.3, "control:pipe_switch",
         better=""),
)  # fmt: skip
ANSWERED = "On Monday robot wrote:\n" + "".join(
    f"> {line}\n" for line in FORMS[0].mail.partition("\n\n")[2].splitlines()
)
BUILD = f"""\
Subject: [master] BUILD REGRESSION 0123456789

tree/branch: https://example.org x
branch HEAD: {COMMIT}  Add linux-next

Error/Warning: (recently discovered)
"""
WARNING = f"""\
Subject: [master] [mm] 0123456789: WARNING:at_mm/rmap.c

Hello,

kernel test robot noticed "WARNING:at_mm/rmap.c" on:

commit: {COMMIT} ("mm: x")

in testcase: boot
"""
NO_REPORTS = (BUILD, WARNING, f"From: a@b.c\nSubject: Re: x\n\n{ANSWERED}")
