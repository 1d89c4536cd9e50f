# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs of others write, one file a run, drawn from seeds with the truth beside it."""

from __future__ import annotations

import json
from typing import Any

from foreign_shapes import Maker, Shape


def _runs(shape: Shape, ending: str) -> list[tuple[str, str]]:
    """(arm, name of a file) of every run."""
    return [(arm, f"{arm}/run{n}.{ending}") for arm in shape.arms for n in range(1, shape.runs + 1)]


def _write(shape: Shape, name: str, found: Any) -> None:
    shape.files[name] = json.dumps(found, indent=shape.rng.choice((None, 1)))


def _of(shape: Shape, arm: str, setting: object, level: float) -> float:
    return float(shape.value(arm, setting, level))


def fio(shape: Shape) -> None:
    idle = {"io_bytes": 0, "total_ios": 0, "bw": 0, "iops": 0.0, "lat_ns": {"mean": 0.0, "N": 0}}
    for arm, name in _runs(shape, "json"):
        jobs = []
        for job, level in (("random", 1.0), ("linear", 20.0)):
            tail = {"1.000000": 5, "50.000000": _of(shape, arm, f"{job} p50", 200 * level)}
            read = {
                "io_bytes": 4096,
                "total_ios": 1,
                "bw": _of(shape, arm, f"{job} bw", 1e5 * level),
                "iops": _of(shape, arm, f"{job} iops", 2e4 * level),
                "clat_ns": {
                    "min": 1,
                    "mean": _of(shape, arm, f"{job} clat", 300 * level),
                    "percentile": tail,
                },
                "lat_ns": {"mean": _of(shape, arm, f"{job} lat", 320 * level), "stddev": 1.0},
            }
            options = {"bs": "4k", "iodepth": "32"}
            jobs.append(
                {"jobname": job, "error": 0, "job options": options, "read": read, "write": idle}
            )
        _write(shape, name, {"fio version": "fio-3.36", "jobs": jobs, "disk_util": [{"a": 1}]})


def cyclictest(shape: Shape) -> None:
    for arm, name in _runs(shape, "json"):
        threads = {
            str(cpu): {
                "histogram": {"2": 100},
                "cycles": 10000,
                "min": 1,
                "max": _of(shape, arm, f"max {cpu}", 60.0 + 30 * cpu),
                "avg": _of(shape, arm, f"avg {cpu}", 4.0 + cpu),
                "cpu": cpu,
            }
            for cpu in range(2)
        }
        system = {"sysname": "Linux", "release": arm}
        about = {"rt_test_version": "2.4", "return_code": 0, "num_threads": 2, "sysinfo": system}
        _write(shape, name, {"file_version": 1, **about, "thread": threads})


def cyclictest_for_people(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        lines = [
            "# /dev/cpu_dma_latency set to 0us",
            "policy: fifo: loadavg: 0.00 0.01 1/127 12",
            "",
        ]
        for cpu in range(2):
            mean, worst = shape.rng.randint(3, 9), shape.rng.randint(30, 90)
            shape.put(arm, f"avg {cpu}", mean)
            shape.put(arm, f"max {cpu}", worst)
            lines.append(
                f"T: {cpu} ( 123{cpu}) P:80 I:1000 C:  10000 Min:      1 Act:    3"
                f" Avg:{mean:5} Max:{worst:8}"
            )
        shape.files[name] = "\n".join(lines) + "\n"


def iperf(shape: Shape) -> None:
    for arm, name in _runs(shape, "json"):
        sent, received = (_of(shape, arm, key, 9e9) for key in ("sent", "received"))
        intervals = [{"sum": {"start": at, "bits_per_second": sent + at}} for at in range(3)]
        start = {"system_info": f"Linux host {arm} #1 SMP", "test_start": {"protocol": "TCP"}}
        sums = {
            "sum_sent": {"seconds": 3.0, "bits_per_second": sent},
            "sum_received": {"seconds": 3.0, "bits_per_second": received},
        }
        _write(shape, name, {"start": start, "intervals": intervals, "end": sums})


def perf_stat(shape: Shape) -> None:
    for arm, name in _runs(shape, "json"):
        events = (("cycles", 5e6), ("instructions", 9e6))
        lines = [
            {
                "counter-value": f"{_of(shape, arm, event, level):.6f}",
                "unit": "",
                "event": event,
                "event-runtime": 1000,
                "pcnt-running": 100.0,
                "metric-value": 1.2,
                "metric-unit": "insn per cycle",
            }
            for event, level in events
        ]
        lines.append({"counter-value": "<not counted>", "unit": "", "event": "branch-misses"})
        shape.files[name] = "\n".join(map(json.dumps, lines)) + "\n"


def google_benchmark(shape: Shape) -> None:
    for arm in shape.arms:
        runs: list[dict[str, Any]] = []
        for name, level in (("BM_mmap", 1000.0), ("BM_fork", 90000.0)):
            runs += [
                {
                    "name": name,
                    "run_name": name,
                    "run_type": "iteration",
                    "repetition_index": at,
                    "threads": 1,
                    "iterations": 1000 + at,
                    "real_time": _of(shape, arm, f"{name} real", level),
                    "cpu_time": _of(shape, arm, f"{name} cpu", level / 2),
                    "time_unit": "ns",
                }
                for at in range(shape.runs)
            ]
            runs.append({**runs[-1], "run_type": "aggregate", "aggregate_name": "mean"})
        _write(shape, f"{arm}.json", {"context": {"num_cpus": 8}, "benchmarks": runs})


def criterion(shape: Shape) -> None:
    for arm in shape.arms:
        for name, level in (("mmap", 1000.0), ("fork", 50000.0)):
            mean = _of(shape, arm, name, level)
            found = {
                key: {"point_estimate": value, "standard_error": 1.0}
                for key, value in (("mean", mean), ("median", mean - 1), ("std_dev", 10.0))
            }
            _write(shape, f"{arm}/{name}/estimates.json", found)


def schbench(shape: Shape) -> None:
    for arm, name in _runs(shape, "log"):
        lines: list[str] = []
        for runtime in (10, 30):
            for what, unit, level in (("Wakeup", "usec", 10.0), ("Request", "usec", 5000.0)):
                head = f"{what} Latencies percentiles ({unit}) runtime {runtime} (s) (2344 samples)"
                lines.append(head)
                for at, times in (("50.0", 1), ("* 99.0", 9), ("99.9", 30)):
                    value = shape.rng.randint(int(level * times), int(level * times * 1.2))
                    if runtime == 30:
                        shape.put(arm, f"{what} {at}", value)
                    lines.append(f"\t{at:>6}th: {value:<10} (5000 samples)")
                lines.append("\t  min=1, max=50000")
        lines.append(f"average rps: {shape.value(arm, 'rps', 780.0)}")
        shape.files[name] = "\n".join(lines) + "\n"


def ab(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        shape.files[name] = (
            "Concurrency Level:      10\nTime taken for tests:   1.1 seconds\n"
            "Complete requests:      10000\nFailed requests:        0\n"
            f"Requests per second:    {shape.value(arm, 'rate', 9000.0)} [#/sec] (mean)\n"
            f"Time per request:       {shape.value(arm, 'time', 1.1)} [ms] (mean)\n"
            "Time per request:       0.11 [ms] (mean, across all concurrent requests)\n"
            "Percentage of the requests served within a certain time (ms)\n  50%      1\n  99%  3\n"
        )


def wrk(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        micros = shape.rng.randint(800, 1200)
        shape.put(arm, "time", micros)
        printed = f"{micros}.00us" if micros < 1000 else f"{micros / 1000:.3f}ms"
        shape.files[name] = (
            "Running 30s test @ http://127.0.0.1:80\n  2 threads and 100 connections\n"
            "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n"
            f"    Latency   {printed}    0.50ms  20.00ms   90.00%\n"
            "    Req/Sec    45.10k     1.20k   50.00k    70.00%\n"
            "  2700000 requests in 30.00s, 2.00GB read\n"
            f"Requests/sec:  {shape.value(arm, 'rate', 90000.0)}\nTransfer/sec:     70.1MB\n"
        )


def netperf(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        shape.files[name] = (
            "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 127.0.0.1 ()\n"
            "Recv   Send    Send\nSocket Socket  Message  Elapsed\n"
            "Size   Size    Size     Time     Throughput\nbytes  bytes   bytes    secs.    "
            "10^6bits/sec\n\n"
            f"131072  16384  16384    10.00    {shape.value(arm, 'rate', 35000.0)}\n"
        )


def unixbench(shape: Shape) -> None:
    shape.arms = tuple(arm.removeprefix("v") for arm in shape.arms)
    for arm, name in _runs(shape, "txt"):
        lines = ["   BYTE UNIX Benchmarks (Version 5.1.3)", f"   OS: GNU/Linux -- {arm} -- #1 SMP"]
        lines.append("8 CPUs in system; running 1 parallel copy of tests")
        for test, level in (("Pipe Throughput", 1.5e6), ("Process Creation", 9000.0)):
            lines.append(f"{test:40} {shape.value(arm, test, level)} lps   (10.0 s, 7 samples)")
        lines.append("System Benchmarks Index Values      BASELINE       RESULT    INDEX")
        lines.append("Pipe Throughput                      12440.0    1500000.0   1205.8")
        shape.files[name] = "\n".join(lines) + "\n"


def stream(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        rows = []
        for function, level in (("Copy", 12000.0), ("Scale", 9000.0), ("Add", 1e4), ("Triad", 1e4)):
            rate = shape.value(arm, f"{function} rate", level)
            mean = shape.value(arm, f"{function} time", 0.014)
            rows.append(f"{function}:{rate:>16}  {mean:>11}     0.013000     0.019000")
        shape.files[name] = "\n".join(
            (
                "-" * 61,
                "STREAM version $Revision: 5.10 $",
                "Array size = 10000000 (elements), Offset = 0 (elements)",
                "Each kernel will be executed 10 times.",
                " The *best* time for each kernel (excluding the first iteration)",
                "Function    Best Rate MB/s  Avg time     Min time     Max time",
                *rows,
                "-" * 61,
                "Solution Validates: avg error less than 1.000000e-13 on all three arrays",
            )
        )


def dd(shape: Shape) -> None:
    old = shape.rng.random() < 0.5
    for arm, name in _runs(shape, "log"):
        lines = []
        for count, level in ((1048576, 0.002), (1073741824, 0.7)):
            blocks = count // 1048576
            size = "(1.1 GB)" if old else "(1.1 GB, 1.0 GiB)"
            seconds = shape.value(arm, count, level)
            lines += [f"{blocks}+0 records in", f"{blocks}+0 records out"]
            lines.append(f"{count} bytes {size} copied, {seconds} s, 1.5 GB/s")
        shape.files[name] = "\n".join(lines) + "\n"


def dbench(shape: Shape) -> None:
    for arm, name in _runs(shape, "log"):
        lines = ["dbench version 4.00 - Copyright Andrew Tridgell 1999-2004", ""]
        for clients in (1, 8):
            lines += ["   8     20394  1613.85 MB/sec  execute   1 sec  latency 5.5 ms", ""]
            lines += [" Operation      Count    AvgLat    MaxLat", " " + "-" * 40]
            for operation, level in (("NTCreateX", 0.017), ("Flush", 1.2)):
                mean = shape.value(arm, f"{clients} {operation}", level)
                lines.append(f" {operation:<12} 3121849  {mean:>8}    13.352")
            rate = shape.value(arm, f"{clients} rate", 1600.0)
            lines += ["", f"Throughput {rate} MB/sec  {clients} clients  {clients} procs"]
            lines[-1] += "  max_latency=13.359 ms"
        shape.files[name] = "\n".join(lines) + "\n"


def ycsb(shape: Shape) -> None:
    for arm, name in _runs(shape, "txt"):
        lines = ["[OVERALL], RunTime(ms), 10110"]
        lines.append(f"[OVERALL], Throughput(ops/sec), {shape.value(arm, 'rate', 9000.0)}")
        lines.append("[TOTAL_GCs], Count, 5")
        for operation, level in (("READ", 400.0), ("UPDATE", 900.0), ("CLEANUP", 0.0)):
            figures = {"AverageLatency": 1.0, "95thPercentileLatency": 2.0}
            lines.append(f"[{operation}], Operations, 491")
            for what, times in figures.items():
                value = shape.value(arm, f"{operation} {what}", level * times) if level else "9.0"
                lines.append(f"[{operation}], {what}(us), {value}")
            lines += [f"[{operation}], MinLatency(us), 1", f"[{operation}], Return=OK, 491"]
        shape.files[name] = "\n".join(lines) + "\n"


def kernbench(shape: Shape) -> None:
    shape.arms = tuple(arm.removeprefix("v") for arm in shape.arms)
    for arm in shape.arms:
        lines = ["8 cpus found", "Making defconfig...", f"Kernel {arm}", "Performing 5 runs of"]
        for load in ("Half load -j 4", "Optimal load -j 32", "Maximal load -j"):
            lines.append(f"Average {load} Run (std deviation):")
            for what, level in (("Elapsed", 100.0), ("User", 300.0), ("System", 50.0)):
                mean = shape.value(arm, f"{load} {what}", level)
                lines.append(f"{what} Time {mean} (1.5)")
            lines += ["Percent CPU 351.2 (2.1)", "Context Switches 12345.6 (78.9)", ""]
        shape.files[f"{arm}/kernbench.log"] = "\n".join(lines)


OUTPUTS: tuple[Maker, ...] = (
    *(fio, cyclictest, cyclictest_for_people, iperf, perf_stat, google_benchmark, criterion),
    *(schbench, ab, wrk, netperf, unixbench),
    *(stream, dd, dbench, ycsb, kernbench),
)
