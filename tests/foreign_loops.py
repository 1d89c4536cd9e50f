# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs run in loops, pages and prints of data tools: truth by construction.

Loops over settings whose only sign is a line between the figures, titles above what a program
prints, tables of web pages, of R and of pandas, lists behind names, cells that say FAILED.
"""

from __future__ import annotations

import json

from foreign_shapes import Maker, Shape


def _log(shape: Shape, name: str, text: str) -> None:
    shape.files[name] = shape.files.get(name, "") + text


def hackbench_of_groups(shape: Shape) -> None:
    """Groups stand in a sentence above each time."""
    for arm in shape.arms:
        for groups in (1, 4, 16):
            for _ in range(shape.runs):
                _log(
                    shape,
                    f"hackbench-{arm}.log",
                    f"Running in process mode with {groups} groups using 40 file descriptors each"
                    f" (== {groups * 40} tasks)\nEach sender will pass 1000 messages of 100 bytes\n"
                    f"Time: {shape.value(arm, groups, 0.5 * groups)}\n",
                )


def perf_bench_of_groups(shape: Shape) -> None:
    """perf bench names the benchmark and its groups in comments."""
    for arm in shape.arms:
        for groups in (1, 10):
            for _ in range(shape.runs):
                _log(
                    shape,
                    f"{arm}.txt",
                    "# Running 'sched/messaging' benchmark:\n"
                    "# 20 sender and receiver processes per group\n"
                    f"# {groups} groups == {40 * groups} processes run\n\n"
                    f"     Total time: {shape.value(arm, groups, 0.3 * groups)} [sec]\n\n",
                )


def sentences_of_tests(shape: Shape) -> None:
    """Lines of several wordings, which a word alone tells apart."""
    for arm in shape.arms:
        for run in range(shape.runs):
            for at, test in enumerate(("fix_size_alloc_test", "full_fit_alloc_test")):
                value = shape.value(arm, test, 5000.0 * (1 + 4 * at))
                _log(
                    shape,
                    f"vmalloc-{arm}.log",
                    f"[  {90 + run}.1{at}] Summary: {test} passed: 1 failed: 0"
                    f" loops: 1000 avg: {value} usec\n",
                )


def netperf_without_heads(shape: Shape) -> None:
    """Only the first of the runs has a head line."""
    for arm in shape.arms:
        text = (
            "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET\n"
            "bytes  Bytes  bytes    bytes   secs.    per sec   \n\n"
        )
        for _ in range(shape.runs):
            text += f"16384  131072 1        1       10.00    {shape.value(arm, '', 4e4)}\n"
            text += "16384  131072\n"
        shape.files[f"rr-{arm}.txt"] = text


def schbench_with_rates(shape: Shape) -> None:
    """Percentiles of requests a second below those of latencies are no latencies."""
    for arm in shape.arms:
        for run in range(shape.runs):
            text = ""
            for title, unit, level in (
                ("Wakeup Latencies", "usec", 20),
                ("Request Latencies", "usec", 4000),
                ("RPS", "requests", 900),
            ):
                text += f"{title} percentiles ({unit}) runtime 30 (s) (43210 total samples)\n"
                for percentile in (50, 99):
                    value = float(shape.rng.randint(level, level + level // 10))
                    shape.put(arm, (title, percentile), value)
                    text += f"\t* {percentile}.0th: {value:.0f}       (1234 samples)\n"
            shape.files[f"{arm}/schbench.{run}.log"] = text


def perf_stat_below_titles(shape: Shape) -> None:
    for arm in shape.arms:
        cycles = float(shape.rng.randint(10**9, 2 * 10**9))
        shape.put(arm, "cycles", cycles)
        _log(
            shape,
            "p.txt",
            f"\n===== kernel {arm} =====\n\n Performance counter stats for './bench' (10 runs):\n\n"
            f"     {cycles:,.0f}      cycles          ( +-  0.52% )\n\n"
            f"     {shape.value(arm, 'time', 1.2)} +- 0.0112 seconds time elapsed  ( +-  0.91% )\n",
        )


def times_below_titles(shape: Shape) -> None:
    for arm in shape.arms:
        for run in range(shape.runs):
            _log(
                shape,
                "t.txt",
                f"[{arm} #{run + 1}]\n\nreal\t0m{shape.value(arm, 'r', 30.0)}s\n"
                f"user\t0m{shape.value(arm, 'u', 20.0)}s\nsys\t0m{shape.value(arm, 's', 9.0)}s\n",
            )


def page_of_two_tables(shape: Shape) -> None:
    """A page with a table below the heading of each kernel."""
    body = ""
    for arm in shape.arms:
        rows = "".join(f"<tr><td>{boot}<td>{shape.value(arm)}</tr>\n" for boot in range(shape.runs))
        body += f"<h2>{arm}</h2><table><tr><th>boot</th><th>ns per op</th></tr>{rows}</table>\n"
    shape.files["p.html"] = f"<!DOCTYPE html><html><style>td</style><body>{body}</body></html>"


def page_with_spans(shape: Shape) -> None:
    """A kernel's cell spans the rows of its boots."""
    rows = ""
    for arm in shape.arms:
        for boot in range(shape.runs):
            first = f"<td rowspan={shape.runs}>{arm}</td>" if boot == 0 else ""
            rows += f"<tr>{first}<td>{boot}</td><td>{shape.value(arm)}</td></tr>\n"
    head = "<tr><th>kernel<th>boot<th>latency (us)</tr>"
    shape.files["p.html"] = f"<html><table>{head}{rows}</table></html>"


def table_of_jira(shape: Shape) -> None:
    text = "h2. Results\n||kernel||boot||us||\n"
    for arm, _, run, value in shape.each(""):
        text += f"|{arm}|{run}|{value}|\n"
    shape.files["a.txt"] = text


def simple_table_of_text(shape: Shape) -> None:
    rule = "=======  ====  =======\n"
    text = f"Results\n-------\n\n{rule}kernel   boot  us\n{rule}"
    for arm, _, run, value in shape.each(""):
        text += f"{arm:<9}{run:<6}{value}\n"
    shape.files["a.rst"] = text + rule


def frame_of_r(shape: Shape) -> None:
    text = "    kernel boot       ns\n"
    for at, (arm, _, run, value) in enumerate(shape.each(""), start=1):
        text += f"{at:<3} {arm:>7} {run:>4} {value:>8}\n"
    shape.files["r.txt"] = text


def lists_behind_names(shape: Shape) -> None:
    begin, end, colon = shape.rng.choice((("", "", ":"), ("[", "]", " ="), ("c(", ")", " <-")))
    for arm in shape.arms:
        listed = ", ".join(shape.value(arm) for _ in range(shape.runs))
        _log(shape, "a.txt", f"{arm}{colon} {begin}{listed}{end}\n")


def lists_of_r(shape: Shape) -> None:
    for arm in shape.arms:
        values = [shape.value(arm) for _ in range(6)]
        text = f"$`{arm}`\n [1] {' '.join(values[:4])}\n [5] {' '.join(values[4:])}\n\n"
        _log(shape, "r.txt", text)


def comments_above_tables(shape: Shape) -> None:
    for boot in range(shape.runs):
        for arm in shape.arms:
            values = "".join(f"{shape.value(arm)}\n" for _ in range(3))
            _log(shape, "a.csv", f"# kernel={arm} boot={boot}\nns\n{values}")


def failures_in_words(shape: Shape) -> None:
    rows = ["kernel,boot,fork_us"]
    for boot in range(shape.runs + 1):
        for arm in shape.arms:
            word = shape.rng.choice(("FAILED", "timeout", "?"))
            rows.append(f"{arm},{boot},{word if boot == 2 else shape.value(arm)}")
    shape.files["a.csv"] = "\n".join(rows) + "\n"


def thousands_shown_by_others(shape: Shape) -> None:
    rows = ['"kernel","boot","ops_per_sec","lat_ns"']
    for boot in range(shape.runs):
        for arm in shape.arms:
            ops, lat = shape.rng.randint(10**6, 2 * 10**6), shape.rng.randint(900, 1100)
            shape.put(arm, "ops", float(ops))
            shape.put(arm, "lat", float(lat))
            rows.append(f'"{arm}","{boot}","{ops:,}","{lat:,}"')
    rows.append(f'"{shape.arms[0]}","{shape.runs}","1,234,567","1,002"')
    shape.put(shape.arms[0], "ops", 1234567.0)
    shape.put(shape.arms[0], "lat", 1002.0)
    shape.files["a.csv"] = "\n".join(rows) + "\n"


def means_in_german(shape: Shape) -> None:
    rows = ["Kernel;Lauf;Zeit (s)"]
    for arm in shape.arms:
        rows += [f"{arm};{run + 1};{shape.value(arm)}" for run in range(shape.runs)]
        rows += [f"{arm};Mittelwert;100.1", f"{arm};Summe;900.5"]
    shape.files["a.csv"] = "\n".join(rows) + "\n"


def intervals_in_brackets(shape: Shape) -> None:
    rows = [f"| test | {' | '.join(shape.arms)} |", "|---|---|---|"]
    for test, level in (("fork (us)", 100.0), ("mmap (us)", 7.0)):
        cells = [float(shape.value(arm, test, level)) for arm in shape.arms]
        texts = [f"{one} [{one * 0.98:.3f}, {one * 1.02:.3f}]" for one in cells]
        rows.append(f"| {test} | {' | '.join(texts)} |")
    shape.files["a.md"] = "Mean of 10 runs.\n\n" + "\n".join(rows) + "\n"


def phoronix_export(shape: Shape) -> None:
    results = {}
    for at, (title, scale, way) in enumerate(
        (("Stream", "MB/s", "HIB"), ("Build", "Seconds", "LIB"))
    ):
        by_system = {
            arm: {"value": 0, "raw_values": [float(shape.value(arm, title, 10.0 * (1 + 9 * at)))]}
            for arm in shape.arms
        }
        results[title] = {"title": title, "scale": scale, "proportion": way, "results": by_system}
    systems = {arm: {"software": {"Kernel": arm}} for arm in shape.arms}
    shape.files["r.json"] = json.dumps({"title": "x", "results": results, "systems": systems})


def json_below_warnings(shape: Shape) -> None:
    for arm in shape.arms:
        rows = [{"boot": boot, "us": float(shape.value(arm))} for boot in range(shape.runs)]
        text = json.dumps({"kernel": arm, "runs": rows}, indent=1)
        shape.files[f"{arm}.json"] = f"bench: warning: clock is coarse\n{text}\n"


def selftests(shape: Shape) -> None:
    for arm in shape.arms:
        for boot in range(shape.runs):
            text = "TAP version 13\n1..2\n"
            for at, test in enumerate(("mmap_test", "fork_test"), start=1):
                value = shape.value(arm, test, 10.0 * at * at)
                text += f"ok {at} selftests: mm: {test} # time {value} ms\n"
            shape.files[f"{arm}-boot{boot}.tap"] = text + "# Totals: pass:2 fail:0\n"


def openssl_speed(shape: Shape) -> None:
    for arm in shape.arms:
        text = "The 'numbers' are in 1000s of bytes per second processed.\n"
        text += "type             16 bytes     64 bytes\n"
        for name, level in (("aes-128-cbc", 9e5), ("sha256", 2e5)):
            cells = "   ".join(f"{shape.value(arm, (name, n), level * n)}k" for n in (1, 2))
            text += f"{name:<12}   {cells}\n"
        shape.files[f"{arm}.txt"] = text


def seven_zip(shape: Shape) -> None:
    for arm in shape.arms:
        text = "       Compressing  |                  Decompressing\n"
        text += "Dict     Speed Usage    R/U Rating  |      Speed Usage    R/U Rating\n"
        for size in (22, 23):
            packed, unpacked = shape.rng.randint(4000, 5000), shape.rng.randint(50000, 60000)
            shape.put(arm, ("c", size), float(packed))
            shape.put(arm, ("d", size), float(unpacked))
            text += f"{size}:       {packed}   312   1345   4203  |      "
            text += f"{unpacked}   398   1098   4371\n"
        shape.files[f"{arm}.txt"] = text + "Avr:  312   1345   4203  |    398   1098   4371\n"


def futexes(shape: Shape) -> None:
    for arm in shape.arms:
        for _ in range(shape.runs):
            rate = shape.rng.randint(10**6, 2 * 10**6)
            shape.put(arm, "", float(rate))
            _log(
                shape,
                f"{arm}.txt",
                "# Running 'futex/hash' benchmark:\nRun summary [PID 4242]: 4 threads, each"
                " operating on 1024 [private] futexes for 10 secs.\n\n"
                f"Averaged {rate} operations/sec (+- 0.53%), total secs = 10\n",
            )


def times_that_count_on(shape: Shape) -> None:
    """elapsed is what has passed since the boot began."""
    rows = ["kernel,boot,iteration,elapsed_s"]
    for arm in shape.arms:
        for boot in range(shape.runs):
            passed = 0.0
            for at in range(4):
                passed = round(passed + shape.rng.uniform(1.0, 1.1), 4)
                rows.append(f"{arm},{boot},{at + 1},{shape.put(arm, '', passed)}")
    shape.files["a.csv"] = "\n".join(rows) + "\n"


READ: tuple[Maker, ...] = (
    *(hackbench_of_groups, perf_bench_of_groups, sentences_of_tests, netperf_without_heads),
    *(schbench_with_rates, perf_stat_below_titles, times_below_titles),
    *(page_of_two_tables, page_with_spans, table_of_jira, simple_table_of_text),
    *(frame_of_r, lists_behind_names, lists_of_r, comments_above_tables, failures_in_words),
    *(thousands_shown_by_others, means_in_german, intervals_in_brackets, phoronix_export),
    *(json_below_warnings, selftests, openssl_speed, seven_zip, futexes),
)
ASKED: tuple[Maker, ...] = (times_that_count_on,)
# What holds nothing that can be judged -> what is to be given instead.
REFUSED = {
    "benchstat": (
        (
            "        \u2502   old.txt   \u2502              new.txt               \u2502\n"
            "        \u2502   sec/op    \u2502   sec/op     vs base               \u2502\n"
            "Fork-8    100.2n \u00b1 1%   120.1n \u00b1 2%  +19.86% (p=0.002 n=6)\n"
        ),
        "give the benchmark files that benchstat was given",
    ),
    "ministat": (
        (
            "x old.txt\n+ new.txt\n    N           Min           Max        Median           Avg"
            "        Stddev\nx   5            98           102           100           100  1.58\n"
        ),
        "give the files that ministat was given",
    ),
    "pytest": (
        "Name (time in us)    Min       Max      Mean\ntest_a   1.0 (1.0)  2.0 (1.0)  1.5 (1.0)\n",
        "--benchmark-json=FILE",
    ),
    "jmh": (
        (
            "Benchmark    (size)   Mode  Cnt   Score    Error   Units\n"
            "B.touch           4  thrpt   25  800.12 \u00b1 2.123  ops/ms\n"
        ),
        "-rf json",
    ),
    "r-test": ("\n\tWelch Two Sample t-test\n\ndata:  ns by kernel\n", "write.csv"),
    "r-summary": (
        "   Min. 1st Qu.  Median    Mean 3rd Qu.    Max. \n  1.0   1.1   1.2   1.3   1.4   1.5 \n",
        "write.csv",
    ),
    "sar": (
        (
            "Linux 6.16.0 (lab) \t05/01/2026 \t_x86_64_\t(8 CPU)\n\n10:00:01  CPU  %user  %system\n"
            "10:00:02  all   1.00   2.00\n"
        ),
        "give what the work itself took",
    ),
    "vmstat": (
        "procs -----------memory---------- ---swap--\n r  b   swpd   free\n 1  0      0  1234\n",
        "give what the work itself took",
    ),
    "latex": ("\\begin{tabular}{lr}\nkernel & us \\\\\n6.16 & 3 \\\\\n\\end{tabular}\n", "CSV"),
    "grep": ("6.16/a.log:latency: 3 us\n6.17/a.log:latency: 4 us\n", "import the files themselves"),
}
