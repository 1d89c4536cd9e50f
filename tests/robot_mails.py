# SPDX-License-Identifier: GPL-2.0-or-later
"""Mails in the forms that the kernel test robot's had over the years; commits and figures are ours.

`FORMS`: a name, the mail, and what reading it has to give.
"""

from __future__ import annotations

from dataclasses import dataclass

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """scenario: that the words of the mail mean; "": none may be taken for it."""

    name: str
    mail: str
    percent: float
    is_time: bool
    scenario: str
    directed: bool = True
    devices: str = ""
    beside: tuple[str, ...] = ()


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


FORMS = (
    Form(
        name="aim9",
        mail=mail(
            "aim9", "a -10.8% regression of aim9.page_test.ops_per_sec",
            "testtime: 5s; test: all; cpufreq_governor: performance",
            "    412345           -10.8%     367812        aim9.page_test.ops_per_sec",
        ),
        percent=-10.8, is_time=False, scenario="unmap:brk_touch_page",
    ),
    Form(
        name="unixbench of 2019",
        mail=mail(
            "unixbench", "a -49.0% regression of unixbench.score",
            "runtime: 300s; nr_task: 1; test: syscall; ucode: 0x7000017", old=True,
        ),
        percent=-49.0, is_time=False, scenario="control:getppid",
    ),
    Form(
        name="unixbench that executes itself, without a fork",
        mail=mail(
            "unixbench", "a 7.1% improvement of unixbench.throughput",
            "runtime: 300s; nr_task: 1; test: execl",
        ),
        percent=7.1, is_time=False, scenario="loops_process:exec_in_place",
    ),
    Form(
        name="unixbench that forks and executes",
        mail=mail(
            "unixbench", "a 7.1% improvement of unixbench.throughput",
            "runtime: 300s; nr_task: 1; test: sysexec",
        ),
        percent=7.1, is_time=False, scenario="process:fork_exec",
    ),
    Form(
        name="stress-ng with two headlines",
        mail=mail(
            "stress-ng",
            "a 5.1% regression of stress-ng.ring-pipe.ops_per_sec\n(but also a 7.3% improvement of"
            " stress-ng.ring-pipe.pipe_read+write_calls_per_sec\nin another part of the test)",
            "nr_threads: 100%; testtime: 60s; test: ring-pipe",
            "  1.97e+08            -5.1%   1.87e+08        stress-ng.ring-pipe.ops_per_sec",
        ),
        percent=-5.1, is_time=False, scenario="",
        beside=("stress-ng.ring-pipe.pipe_read+write_calls_per_sec: 7.3 % (improvement)",),
    ),
    Form(
        name="vm-scalability on a disk",
        mail=mail(
            "vm-scalability", "a -21.4% regression of vm-scalability.throughput",
            "runtime: 300s; test: lru-file-readtwice; disk: 1SSD; fs: xfs",
            "  73391285 \u00b1  2%     -21.4%   57685657        vm-scalability.throughput",
        ),
        percent=-21.4, is_time=False, scenario="", devices="disk 1SSD, fs xfs",
    ),
    Form(
        name="fxmark, with its own word for a file system",
        mail=mail(
            "fxmark", "a 28.8% regression of fxmark.ssd_xfs_MWCM_72_bufferedio.works/sec",
            "disk: 1SSD; media: ssd; test: MWCM; fstype: xfs; directio: bufferedio",
            "    215678 \u00b1  4%     -28.8%     153563        "
            "fxmark.ssd_xfs_MWCM_72_bufferedio.works/sec",
        ),
        percent=-28.8, is_time=False, scenario="", devices="disk 1SSD, fstype xfs",
    ),
    Form(
        name="a shared test of vm-scalability in hugetlb, of which only base pages are here",
        mail=mail(
            "vm-scalability", "a 8.8% regression of vm-scalability.throughput",
            "runtime: 300s; size: 512G; test: anon-w-rand-hugetlb",
            "  11871912            -8.8%   10827184        vm-scalability.throughput",
        ),
        percent=-8.8, is_time=False, scenario="",
    ),
    Form(
        name="fio without a sign",
        mail=mail(
            "fio-basic", "a 59.4% regression of fio.read_iops",
            "runtime: 300s; nr_task: 8t; disk: 1HDD; fs: btrfs; rw: randread; bs: 2M;"
            " ioengine: libaio; test_size: 192G",
        ),
        percent=-59.4, is_time=False, scenario="", devices="disk 1HDD, fs btrfs",
    ),
    Form(
        name="hackbench by processes and sockets",
        mail=mail(
            "hackbench", "a 6.2% regression of hackbench.throughput",
            "nr_threads: 100%; iterations: 4; mode: process; ipc: socket",
            "    546211            -6.2%     512345        hackbench.throughput",
        ),
        percent=-6.2, is_time=False, scenario="loops_ipc:unix_switch",
    ),
    Form(
        name="netperf of a patch",
        mail=mail(
            "netperf", "a -11.8% regression of netperf.Throughput_Mbps",
            "ip: ipv4; runtime: 300s; nr_threads: 200%; cluster: cs-localhost; test: UDP_STREAM",
            "      2417           -11.8%       2132        netperf.Throughput_Mbps",
            title="[PATCH v2 1/3] sched/fair: a change",
            origin="url: https://example.org/commits/x\nbase: https://example.org/tip.git 0f0f0f\n"
            "patch subject: [PATCH v2 1/3] sched/fair: a change",
        ),
        percent=-11.8, is_time=False, scenario="",
    ),
    Form(
        name="a latency without a sign",
        mail=mail(
            "lmbench3", "a 12.3% regression of lmbench3.PIPE.latency.us", "test: PIPE; mode: x"
        ),
        percent=12.3, is_time=True, scenario="control:pipe_switch",
    ),
    Form(
        name="a metric of which nobody knows what is better",
        mail=mail("blogbench", "a 9.5% regression of blogbench.thing", "test: thing"),
        percent=9.5, is_time=True, scenario="", directed=False,
    ),
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
