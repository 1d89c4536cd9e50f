# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs run under several settings in one log, which a line above each run says.

The truth is known by construction: runs of unlike settings that are pooled show, and so does a
number of each run that is taken for a setting.
"""

from __future__ import annotations

from collections.abc import Sequence

from foreign_shapes import Maker, Shape


def _runs(shape: Shape, settings: Sequence[object]) -> list[tuple[str, object]]:
    return [(arm, one) for arm in shape.arms for one in settings for _ in range(shape.runs)]


def _log(shape: Shape, arm: str, text: str) -> None:
    name = f"bench-{arm}.log"
    shape.files[name] = shape.files.get(name, "") + text


def ab_of_documents(shape: Shape) -> None:
    for at, (arm, page) in enumerate(_runs(shape, ("/small", "/large"))):
        level = 9000.0 if page == "/small" else 900.0
        _log(
            shape,
            arm,
            f"Document Path:          {page}\nConcurrency Level:      10\n"
            f"Time taken for tests:   1.0{at} seconds\nComplete requests:      10000\n"
            f"Failed requests:        0\nTotal transferred:      84{at}137 bytes\n"
            f"Requests per second:    {shape.value(arm, (page, 'r'), level)} [#/sec] (mean)\n"
            f"Time per request:       {shape.value(arm, (page, 't'), 1.0)} [ms] (mean)\n",
        )


def netperf_of_messages(shape: Shape) -> None:
    """The size of a message stands in the line of its rate."""
    for arm, size in _runs(shape, (64, 16384)):
        _log(
            shape,
            arm,
            "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET : demo\n"
            "bytes  bytes   bytes    secs.    10^6bits/sec  \n\n"
            f"131072  16384  {size}    10.00    {shape.value(arm, size, float(str(size)))}\n",
        )


def netperf_with_costs(shape: Shape) -> None:
    """With -c -C a share of the CPU and a cost stand behind the rate."""
    for arm, size in _runs(shape, (1,)):
        _log(
            shape,
            arm,
            "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET\n"
            "bytes  bytes  bytes   bytes  secs.   per sec  % S    % S    us/Tr   us/Tr\n\n"
            f"16384  131072 1       1      10.00   {shape.value(arm, size, 4e4)}  12.10  11.20"
            "  1.050   1.100\n",
        )


def dd_of_blocks(shape: Shape) -> None:
    for arm, block in _runs(shape, ("4k", "1M")):
        seconds = shape.value(arm, block, 1.2 if block == "1M" else 3.0)
        text = f"1048576000 bytes (1.0 GB, 1000 MiB) copied, {seconds} s, 873 MB/s\n"
        _log(shape, arm, f"dd bs={block}\n{text}")


def times_of_titles(shape: Shape) -> None:
    for arm, test in _runs(shape, ("fork", "mmap")):
        cells = [
            f"{name}\t0m{shape.value(arm, (test, name), 3.0 if test == 'fork' else 9.0)}s"
            for name in ("real", "user", "sys")
        ]
        _log(shape, arm, "\n".join((f"## {test}", "", *cells)) + "\n")


def cyclictest_of_loads(shape: Shape) -> None:
    for arm, load in _runs(shape, ("idle", "loaded")):
        pair = [float(shape.rng.randint(20, 90)), float(shape.rng.randint(200, 900))]
        for name, value in zip(("avg", "max"), pair, strict=True):
            shape.put(arm, (load, name), value)
        _log(
            shape,
            arm,
            f"# load: {load}\nT: 0 ( 1234) P:80 I:1000 C:  60000 Min:      1 Act:    2"
            f" Avg:    {pair[0]:.0f} Max:      {pair[1]:.0f}\n",
        )


def iperf_of_streams(shape: Shape) -> None:
    """Of several streams the sum counts, of one it is alone."""
    head = "[ ID] Interval           Transfer     Bitrate         Retr\n"
    for arm, streams in _runs(shape, (1, 8)):
        rate = float(f"{int(str(streams)) * shape.rng.uniform(9, 10):.3g}")
        shape.put(arm, (streams, "s"), rate * 1e9)
        name = "  5" if streams == 1 else "SUM"
        others = "" if streams == 1 else _stream("  5", 1.25)
        _log(shape, arm, f"# iperf3 -c host -P {streams}\n{head}{others}{_stream(name, rate)}\n")


def _stream(name: str, rate: float) -> str:
    return f"[{name}]   0.00-10.00  sec  11.5 GBytes  {rate} Gbits/sec    0             sender\n"


def titles_of_kernels_and_tests(shape: Shape) -> None:
    text = ""
    for arm in shape.arms:
        text += f"==== {arm} ====\n"
        for test, level in (("fork", 10.0), ("mmap", 99.0)):
            text += f"-- {test} --\n"
            for _ in range(shape.runs):
                text += f"time: {shape.value(arm, test, level)} us\n"
    shape.files["all.log"] = text


def numbers_of_processes(shape: Shape) -> None:
    """stress-ng names its own process in every line: no setting."""
    for at, (arm, _) in enumerate(_runs(shape, ("",))):
        rates = [shape.value(arm, name, 4e4) for name in ("real", "used")]
        _log(
            shape,
            arm,
            f"stress-ng: info:  [{4096 + at}] dispatching hogs: 4 mmap\n"
            f"stress-ng: metrc: [{4096 + at}] mmap     812345     10.00      2.21     35.10"
            f"     {rates[0]}        {rates[1]}\n",
        )


def switches_of_lmbench(shape: Shape) -> None:
    for arm, _ in _runs(shape, ("",)):
        rows = "".join(f"{n} {shape.value(arm, n, float(n))}\n" for n in (2, 8, 16))
        _log(shape, arm, f'\n"size=64k ovr=1.23\n{rows}')


def samples_of_prometheus(shape: Shape) -> None:
    text = "# TYPE bench_latency_seconds gauge\n"
    for arm, _, run, value in shape.each(""):
        text += f'bench_latency_seconds{{kernel="{arm}",boot="{run}"}} {value}\n'
    shape.files["m.prom"] = text


def summaries_below_raw_rows(shape: Shape) -> None:
    text = "kernel,type,boot,us\n"
    for arm in shape.arms:
        text += "".join(f"{arm},raw,{boot},{shape.value(arm)}\n" for boot in range(shape.runs))
        text += f"{arm},mean,,100.1\n{arm},stddev,,2.1\n"
    shape.files["a.csv"] = text


def single_quotes(shape: Shape) -> None:
    text = "'kernel','boot','us'\n"
    for arm, _, run, value in shape.each(""):
        text += f"'{arm}','{run}','{value}'\n"
    shape.files["a.csv"] = text


def commands_above_times(shape: Shape) -> None:
    """What a shell echoes stands once above several times."""
    prompt = shape.rng.choice(("$ ", "+ ", "[root@lab ~]# "))
    for arm in shape.arms:
        for mode, level in (("--pipe", 0.5), ("--socket", 0.9)):
            times = "".join(f"Time: {shape.value(arm, mode, level)}\n" for _ in range(shape.runs))
            _log(shape, arm, f"{prompt}hackbench {mode} -l 1000\n{times}")


def rates_in_brackets(shape: Shape) -> None:
    for arm, threads in _runs(shape, (1, 8)):
        rate = shape.value(arm, threads, 400.0 * int(str(threads)))
        _log(
            shape,
            arm,
            f"Number of threads: {threads}\n\nSQL statistics:\n"
            f"    transactions:                        12345  ({rate} per sec.)\n\n",
        )


def dates_of_spreadsheets(shape: Shape) -> None:
    dates = shape.rng.choice(("{:02}.05.2026 10:30", "5/{}/2026"))
    text = "date;kernel;us\n"
    for at in range(shape.runs):
        for arm in shape.arms:
            text += f"{dates.format(at + 11)};{arm};{shape.value(arm)}\n"
    shape.files["a.csv"] = text


def ab_that_counts(shape: Shape) -> None:
    """What differs from run to run by itself is no setting."""
    draw = shape.rng.randint
    for arm, _ in _runs(shape, ("",)):
        _log(
            shape,
            arm,
            "Document Path:          /index.html\nConcurrency Level:      10\n"
            f"Time taken for tests:   1.{draw(100, 999)} seconds\nFailed requests:        0\n"
            f"Keep-Alive requests:    {draw(9900, 9999)}\n"
            f"Total transferred:      {draw(8490000, 8499999)} bytes\n"
            f"Requests per second:    {shape.value(arm, 'r', 9000.0)} [#/sec] (mean)\n"
            f"Time per request:       {shape.value(arm, 't', 1.1)} [ms] (mean)\n"
            f"Connect:        0    0   0.1      0       {draw(1, 4)}\n"
            f" 100%      {draw(5, 9)} (longest request)\n",
        )


def perf_stat_that_counts(shape: Shape) -> None:
    draw = shape.rng.randint
    for arm, _ in _runs(shape, ("",)):
        switches = float(draw(2, 9))
        shape.put(arm, "switches", switches)
        _log(
            shape,
            arm,
            "\n Performance counter stats for './fork':\n\n"
            f"       {switches:.0f}      context-switches       #    {draw(2, 9)}.1 /sec\n\n"
            f"       {shape.value(arm, '', 1.2)} seconds time elapsed\n\n"
            f"       1.{draw(100, 999)} seconds user\n\n",
        )


def times_of_numbered_runs(shape: Shape) -> None:
    draw = shape.rng.randint
    for at, (arm, _) in enumerate(_runs(shape, ("",))):
        cells = [f"{name} 0m{shape.value(arm, name, 9.0)}s" for name in ("real", "user", "sys")]
        said = f"iteration {at % shape.runs + 1}\nmade {draw(1000, 2000)} forks"
        _log(shape, arm, "\n".join((said, *cells)) + "\n")


def latencies_on_any_cpu(shape: Shape) -> None:
    draw = shape.rng.randint
    for arm, _ in _runs(shape, ("",)):
        said = f"[pid {draw(1000, 30000)}] cpu {draw(0, 7)} of 0x{draw(10**9, 2 * 10**9):x}"
        _log(shape, arm, f"{said}\nresult: {shape.value(arm)} ns/op\n")


READ: tuple[Maker, ...] = (
    *(ab_of_documents, netperf_of_messages, netperf_with_costs, dd_of_blocks, times_of_titles),
    *(cyclictest_of_loads, iperf_of_streams, titles_of_kernels_and_tests, numbers_of_processes),
    *(switches_of_lmbench, samples_of_prometheus, summaries_below_raw_rows, single_quotes),
    *(ab_that_counts, perf_stat_that_counts, times_of_numbered_runs, latencies_on_any_cpu),
    *(commands_above_times, rates_in_brackets, dates_of_spreadsheets),
)
