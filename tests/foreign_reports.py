# SPDX-License-Identifier: GPL-2.0-or-later
"""More outputs of programs of others than foreign_outputs: stores, suites, mails of a robot."""

from __future__ import annotations

import json

from foreign_outputs import _of, _runs, _write
from foreign_shapes import Maker, Shape


def redis(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        lines = []
        for test, level in (("PING_INLINE", 1e5), ("LRANGE_100 (first 100 elements)", 5e4)):
            rate = shape.value(arm, f"{test} rate", level)
            median = shape.value(arm, f"{test} p50", 0.2)
            lines.append(f"{test}: {rate} requests per second, p50={median} msec")
        shape.files[name] = "\n".join(lines) + "\n"


def redis_in_full(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        lines = []
        for test in ("SET", "GET"):
            lines += [f"====== {test} ======", "  100000 requests completed in 1.02 seconds", ""]
            lines += ["Summary:", "  latency summary (msec):"]
            rate = shape.value(arm, f"{test} rate", 9e4)
            lines.insert(-1, f"  throughput summary: {rate} requests per second")
            lines.append("          avg       min       p50       p95       p99       max")
            mean = shape.value(arm, f"{test} mean", 0.3)
            lines.append(f"        {mean}     0.096     0.271     0.399     0.511     1.423")
        shape.files[name] = "\n".join(lines) + "\n"


def memtier(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        lines = ["4         Threads", "50        Connections per thread", "", "", "ALL STATS"]
        lines += ["=" * 60, "Type    Ops/sec   Hits/sec   Avg. Latency   p99 Latency   KB/sec"]
        lines.append("-" * 60)
        for kind, level in (("Sets", 7e3), ("Gets", 7e4)):
            cells = [shape.value(arm, f"{kind} rate", level), "---"]
            cells += [shape.value(arm, f"{kind} mean", 2.2), shape.value(arm, f"{kind} p99", 4.0)]
            lines.append("   ".join((f"{kind:8}", *cells, "560.74 ")))
        lines.append("Waits      0.00      ---      ---       ---     ---")
        lines += ["", "Type     <= msec         Percent", "SET       0.055000         0.00"]
        shape.files[name] = "\n".join(lines) + "\n"


def fio_terse(shape: Shape) -> None:
    for arm, name in _runs(shape, "terse"):
        read = ["480000", shape.value(arm, "bw", 8e5), shape.value(arm, "iops", 2e5), "30000"]
        read += ["1", "50", shape.value(arm, "slat", 1.5), "0.3"]
        read += ["3", "900", shape.value(arm, "clat", 40.0), "2.0"]
        read += ["50.000000%=9", *(["0%=0"] * 19)]
        read += ["4", "910", shape.value(arm, "lat", 42.0), "2.0", "1", "2", "100.0%", "1.5", "0.1"]
        idle = [*(["0"] * 12), *(["0%=0"] * 20), *(["0"] * 9)]
        cells = ["3", "fio-3.36", "randread", "0", "0", *read, *idle, "10.1%", "40.2%", "100", "0"]
        shape.files[name] = ";".join(cells) + "\n"


def lkp_mail(shape: Shape) -> None:
    arms = ("4a1b6c7d8e9f0a1b", "9f3b1c4ea0ab3bd6b4a1d4c2f5e")
    shape.arms = (f"parent {arms[0][:12]}", f"child {arms[1][:12]}")
    lines = ["kernel test robot noticed a -7.4% regression of x.per_process_ops on:", "", "=" * 80]
    lines += ["compiler/mode/test/testcase:", "  gcc-12/process/page_fault1/will-it-scale", ""]
    lines += ["commit: ", '  4a1b6c7d8e ("mm: a")', '  9f3b1c4ea0 ("mm: b")', "", " ".join(arms)]
    lines += ["-" * 16 + " " + "-" * 27, "         %stddev     %change         %stddev"]
    lines.append("             \\          |                \\  ")
    for name, level in (("will-it-scale.per_process_ops", 2e6), ("vm-scalability.throughput", 3e5)):
        old, new = (shape.value(arm, name, level) for arm in shape.arms)
        scatter = f" \u00b1 {shape.rng.randint(3, 9)}%" if shape.rng.random() < 0.5 else ""
        lines.append(f"   {old}{scatter}        -7.4%    {new}        {name}")
    lines += ["      3302 \u00b1  5%     +12.1%       3702 \u00b1  4%  vmstat.system.cs"]
    lines += ["     55.21            -1.3       53.91        perf-profile.self.clear_page"]
    mark = "> " if shape.rng.random() < 0.5 else ""
    shape.files["mail.txt"] = "".join(f"{mark}{line}\n" for line in lines)


def phoronix(shape: Shape) -> None:
    lines = ["6.16 and 6.17", "A test", ""]
    for test, unit, better in (
        ("PostgreSQL 17\nClients: 500", "TPS >", "Higher"),
        ("Timed Linux Kernel Compilation 6.15\nBuild: defconfig", "Seconds <", "Lower"),
    ):
        lines += [test, f"{unit} {better} Is Better"]
        for arm in shape.arms:
            lines.append(f"{arm} .... {shape.value(arm, test, 50.0)} |=======")
        lines.append("")
    shape.files["result.txt"] = "\n".join(lines)


def phoronix_csv(shape: Shape) -> None:
    head = ",".join(f'"{arm}"' for arm in shape.arms)
    lines = ['"6.16 and 6.17"', "", f'," ",{head}', "Kernel,,a,b", "", f'" ","HIB/LIB",{head}']
    for test, better in (("pgbench - Clients: 5 (TPS)", "HIB"), ("Build (sec)", "LIB")):
        values = ",".join(shape.value(arm, test, 50.0) for arm in shape.arms)
        lines.append(f'"{test}",{better},{values}')
    shape.files["result.csv"] = "\n".join(lines) + "\n"


def phoronix_xml(shape: Shape) -> None:
    results = []
    for test, scale, better in (("pgbench", "TPS", "HIB"), ("build", "Seconds", "LIB")):
        entries = []
        for arm in shape.arms:
            runs = ":".join(shape.value(arm, test, 50.0) for _ in range(3))
            entry = f"<Identifier>{arm}</Identifier><Value>50</Value><RawString>{runs}</RawString>"
            entries.append(f"<Entry>{entry}</Entry>")
        said = f"<Title>{test}</Title><Scale>{scale}</Scale><Proportion>{better}</Proportion>"
        results.append(f"<Result>{said}<Data>{''.join(entries)}</Data></Result>")
    text = f"<PhoronixTestSuite>{''.join(results)}</PhoronixTestSuite>\n"
    shape.files["composite.xml"] = f'<?xml version="1.0"?>\n{text}'


def rust_bench(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        lines = ["", "running 2 tests", "test other ... ignored"]
        for test, level in (("mmap_64k", 2000.0), ("fork", 60000.0)):
            value = round(level * shape.rng.lognormvariate(0, 0.02))
            shape.put(arm, test, value)
            lines.append(f"test {test:12} ... bench:  {value:>11,} ns/iter (+/- 1,211)")
        lines += ["", "test result: ok. 0 passed; 0 failed; 1 ignored; 2 measured; 0 filtered out"]
        shape.files[name] = "\n".join(lines) + "\n"


def criterion_text(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        lines = ["Benchmarking mmap/64k: Warming up for 3.0000 s"]
        for test in (
            "mmap/64k               ",
            "a benchmark of a long name\n                       ",
        ):
            micros = shape.rng.randint(900, 1100) / 100
            shape.put(arm, test, float(f"{micros * 1000:.5g}"))
            lines.append(f"{test} time:   [9.01 \u00b5s {micros:.2f} \u00b5s 12.20 \u00b5s]")
            lines.append("                        change: [-1.2% +0.1% +1.1%] (p = 0.71 > 0.05)")
        shape.files[name] = "\n".join(lines) + "\n"


def gnu_time(shape: Shape) -> None:
    for arm, name in _runs(shape, "log"):
        minutes, seconds = shape.rng.randint(1, 2), shape.rng.randint(1000, 5999) / 100
        shape.put(arm, "elapsed", round(60 * minutes + seconds, 2))
        shape.files[name] = (
            '\tCommand being timed: "make -j8 vmlinux"\n'
            f"\tUser time (seconds): {shape.value(arm, 'user', 400.0)}\n"
            f"\tSystem time (seconds): {shape.value(arm, 'system', 60.0)}\n"
            "\tPercent of CPU this job got: 712%\n"
            f"\tElapsed (wall clock) time (h:mm:ss or m:ss): {minutes}:{seconds:05.2f}\n"
            "\tMaximum resident set size (kbytes): 311232\n\tExit status: 0\n"
        )


def pytest_benchmark(shape: Shape) -> None:
    for arm, name in _runs(shape, "json"):
        tests = []
        for test, level in (("test_mmap", 0.001), ("test_fork[10]", 0.005)):
            data = [_of(shape, arm, test, level) for _ in range(3)]
            stats = {"min": data[0], "mean": level, "rounds": 3, "ops": 1 / level, "data": data}
            tests.append({"group": None, "name": test, "fullname": f"b.py::{test}", "stats": stats})
        _write(
            shape,
            name,
            {
                "machine_info": {"node": "h", "release": arm},
                "benchmarks": tests,
                "version": "4.0.0",
            },
        )


def jmh(shape: Shape) -> None:
    for arm in shape.arms:
        listed = []
        for test, mode, unit in (("put", "thrpt", "ops/s"), ("get", "avgt", "us/op")):
            forks = []
            for _ in range(3):
                value = _of(shape, arm, test, 1000.0)
                forks.append([value - 1, value + 1])
            score = {"score": 1000.0, "scoreError": 9.5, "scorePercentiles": {"50.0": 1000.0}}
            score |= {"scoreUnit": unit, "rawData": forks}
            said = {"jmhVersion": "1.37", "benchmark": test, "mode": mode, "threads": 1}
            listed.append({**said, "params": {"size": "8"}, "primaryMetric": score})
        shape.files[f"{arm}.json"] = json.dumps(listed)


def hyperfine_csv(shape: Shape) -> None:
    lines = ["command,mean,stddev,median,user,system,min,max,parameter_kernel"]
    for arm in shape.arms:
        mean = shape.value(arm, "", 0.25)
        lines.append(f"./mprot 64,{mean},0.001,0.25,0.02,0.2,0.24,0.27,{arm}")
    shape.files["bench.csv"] = "\n".join(lines) + "\n"


def iperf3_text(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        lines = ["Connecting to host 10.0.0.2, port 5201"]
        lines += ["[ ID] Interval           Transfer     Bitrate         Retr  Cwnd"]
        lines += ["[  5]   0.00-1.00   sec  4.90 GBytes  42.2 Gbits/sec    0   3.12 MBytes"]
        for end, retries in (("sender", "0"), ("receiver", "")):
            rate = shape.rng.randint(400, 440) / 10
            shape.put(arm, end, round(rate * 1e9))
            each = f"0.00-10.00  sec  49.0 GBytes  {rate} Gbits/sec  {retries:>3}    {end}"
            lines += [f"[  5]   {each.replace(str(rate), '1.5')}", f"[SUM]   {each}"]
        shape.files[name] = "\n".join([*lines, "", "iperf Done."]) + "\n"


OUTPUTS: tuple[Maker, ...] = (
    *(redis, redis_in_full, memtier, fio_terse, lkp_mail, phoronix, phoronix_csv, phoronix_xml),
    *(iperf3_text, rust_bench, criterion_text, gnu_time, pytest_benchmark, jmh, hyperfine_csv),
)
