# SPDX-License-Identifier: GPL-2.0-or-later
"""Files as people in the field hand them over, which a reader took wrongly or refused for nothing.

Rows of several units, rows below a table that sum it up, scores of several units, one log a run,
names and figures in quotes, figures below a remark.  The truth is known by construction.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

from foreign_shapes import Maker, Shape


def _runs(shape: Shape) -> list[tuple[str, int]]:
    return [(arm, run) for run in range(shape.runs) for arm in shape.arms]


def _scaled(units: tuple[tuple[str, float], ...], name: str) -> Maker:
    """A quantity by name, whose rows are in units of one kind; the first is the smallest."""

    def made(shape: Shape) -> None:
        rows = []
        for at, (arm, run) in enumerate(_runs(shape)):
            unit, factor = units[at % len(units)]
            plain = round(shape.rng.lognormvariate(0, 0.01), 4)
            shape.put(arm, "", plain * units[-1][1])
            rows.append((arm, 2 * run, plain * units[-1][1] / factor, unit))
        shape.table(f"kernel,boot,{name},unit", rows)

    made.__name__ = f"{name}_in_{'_'.join(unit.replace('/', '_') for unit, _ in units)}"
    return made


_SUMS: dict[str, Callable[[list[float]], float]] = {
    "Average": statistics.fmean,
    "Std Dev": statistics.stdev,
    "Total": sum,
    "Mittelwert": statistics.fmean,
    "Standard deviation": statistics.stdev,
}


def sums_below(shape: Shape) -> None:
    """Rows with a name of a sum where the kernel stands, and no boot."""
    if shape.rng.random() < 0.5:
        shape.arms = ("base", "patched")
    rows = [f"{arm},{run},{shape.value(arm)}" for arm, run in _runs(shape)]
    every = [float(row.rpartition(",")[2]) for row in rows]
    below = shape.rng.sample(sorted(_SUMS), 2)
    rows += [f"{name},,{_SUMS[name](every):.3f}" for name in below]
    shape.files["a.csv"] = "\n".join(["kernel,boot,elapsed_s", *rows]) + "\n"


def baseline_beside_patched(shape: Shape) -> None:
    """One figure of each arm and the change between them, which is none."""
    shape.arms = ("baseline", "patched")
    rows = []
    for at, test in enumerate(("open", "fork", "mmap"), start=1):
        old, new = (shape.value(arm, test, 10.0 * at) for arm in shape.arms)
        rows.append((test, old, new, f"{100 * (float(new) / float(old) - 1):+.1f}%"))
    shape.table("benchmark,baseline,patched,change", rows)


def hackbench(shape: Shape) -> None:
    """A log a run, which says its unit nowhere."""
    for arm, run in _runs(shape):
        shape.files[f"{arm}/run{run}.txt"] = (
            "Running in process mode with 10 groups using 40 file descriptors each (== 400 tasks)\n"
            "Each sender will pass 100 messages of 100 bytes\n"
            f"Time: {shape.value(arm, '', 1.2)}\n"
        )


def rt_app(shape: Shape) -> None:
    head = "#idx    perf     run  period      start        end    rel_st     slack c_duration"
    for arm in shape.arms:
        rows = [
            f"   0  90012  10007  100000  {5000 + at}  {6000 + at}  {at}  89012  10000  100000"
            f"  {shape.value(arm, '', 60.0)}"
            for at in range(shape.runs)
        ]
        text = "\n".join([f"{head}  c_period  wu_lat", *rows]) + "\n"
        shape.files[f"{arm}/thread0-0.log"] = text


def phoronix_without_a_head(shape: Shape) -> None:
    """The systems stand behind two empty cells, and HIB or LIB only in the rows."""
    rows = [
        f'"{test} ({unit})",{way},' + ",".join(shape.value(arm, test, level) for arm in shape.arms)
        for test, unit, way, level in (
            ("Timed Linux Kernel Compilation - Build: defconfig", "sec", "LIB", 41.0),
            ("Redis - Test: GET", "Reqs/sec", "HIB", 2e6),
        )
    ]
    names = ",".join(f'"{arm}"' for arm in shape.arms)
    about = f" ,,{names}\nProcessor,,EPYC,EPYC\nKernel,,{','.join(shape.arms)}\n"
    shape.files["result.csv"] = f"Comparison\n\n{about}\n ,,{names}\n" + "\n".join(rows) + "\n"


def row_names_in_quotes(shape: Shape) -> None:
    """R's write.table: names in quotes, the head line one cell shorter."""
    rows = [f'"{arm}" {run} {shape.value(arm)}' for arm, run in _runs(shape)]
    lines = ['"kernel" "boot" "time_us"', *(f'"{at}" {row}' for at, row in enumerate(rows, 1))]
    shape.files["data.txt"] = "\n".join(lines) + "\n"


def figures_below_a_remark(shape: Shape) -> None:
    remark = shape.rng.choice(("# seconds per op", "# time (s)", "% latency_us"))
    for arm in shape.arms:
        rows = [f"{float(shape.value(arm, '', 3e-5)):.18e}" for _ in range(shape.runs)]
        shape.files[f"{arm}/times.txt"] = "\n".join([remark, *rows]) + "\n"


def locust(shape: Shape) -> None:
    """The median and the mean of a run are no arms; the number of the run stands first."""
    head = "Type,Name,Request Count,Median Response Time,Average Response Time,Requests/s,50%,99%"
    for arm, run in _runs(shape):
        mean, rate = shape.value(arm, "time", 41.0), shape.value(arm, "rate", 500.0)
        row = (
            f"GET,/,{shape.rng.randint(20000, 40000)},{0.97 * float(mean):.1f},{mean},{rate},40,90"
        )
        shape.files[f"{arm}/run{run}_stats.csv"] = f"{head}\n{row}\n"


def matrix_without_sources(shape: Shape) -> None:
    for arm in shape.arms:
        values = [float(shape.value(arm, "", 5e6)) for _ in range(shape.runs)]
        shape.files[f"{arm}/matrix.json"] = json.dumps({"vm-scalability.throughput": values})


def mmtests_of_two_means(shape: Shape) -> None:
    """Rates have harmonic means and times arithmetic ones, in one table."""
    rows = []
    for mean, test, level in (("Hmean", "send-64", 230.0), ("Amean", "elapsd-1", 101.0)):
        cells = [f"{shape.value(arm, test, level):>8} (   0.00%)" for arm in shape.arms]
        rows.append(f"{mean:8}  {test:10} " + "  ".join(cells))
        rows.append(f"{'Stddev':8}  {test:10}     2.11 (   0.00%)      2.92 ( -38.39%)")
    names = "      ".join(shape.arms)
    shape.files["compare.txt"] = f"netperf-udp\n      {names}\n" + "\n".join(rows) + "\n"


def commas_before_exponents(shape: Shape) -> None:
    rows = []
    for arm, run in _runs(shape):
        text = f"{shape.rng.lognormvariate(0, 0.01) * 1.23e-5:.4E}"
        shape.put(arm, "", float(text))
        rows.append(f"{arm};b{run};{text.replace('.', ',')}")
    shape.files["a.csv"] = "\n".join(["Kernel;Boot;Latenz [s]", *rows]) + "\n"


def pgbench(shape: Shape) -> None:
    """The time until it is connected is not that of the transactions."""
    for arm, run in _runs(shape):
        done = shape.rng.randint(300000, 330000)
        shape.files[f"{arm}/boot{run}.log"] = (
            f"query mode: simple\nnumber of clients: 8\nduration: 60 s\n"
            f"number of transactions actually processed: {done}\n"
            f"latency average = {shape.value(arm, 'latency', 1.5)} ms\n"
            f"initial connection time = {shape.value(arm, 'connect', 9.0)} ms\n"
            f"tps = {shape.value(arm, 'rate', 5300.0)} (without initial connection time)\n"
        )


def paths_of_pandas(shape: Shape) -> None:
    """What lay within each other in JSON has names with points between their parts."""
    rows = [
        (arm, run, "randread", shape.value(arm, "iops", 9e4), shape.value(arm, "clat", 7e5), 9.5)
        for arm, run in _runs(shape)
    ]
    shape.table("kernel,boot,jobname,read.iops,read.clat_ns.mean,usr_cpu", rows)


def means_behind_kernels(shape: Shape) -> None:
    shape.files["m.txt"] = "".join(
        f"{arm}: mean={shape.value(arm)}us sd=1.1us n=10\n" for arm in shape.arms
    )


def lists_with_commas(shape: Shape) -> None:
    """A comma before decimals, and something else between the values of a list."""
    mark = shape.rng.choice(("; ", " ", ";"))
    rows = []
    for arm in shape.arms:
        texts = [f"{float(shape.value(arm, '', 44.0)):.5g}" for _ in range(shape.runs)]
        rows.append(f"{arm}\t{mark.join(texts).replace('.', ',')}")
    shape.files["a.tsv"] = "\n".join(["Kernel\tWerte (ms)", *rows]) + "\n"


def usemem(shape: Shape) -> None:
    """Tasks of a boot, below each other, whose bytes and times are no names."""
    for arm, run in _runs(shape):
        rates = [f"{float(shape.value(arm, '', 2.1e6)):.0f}" for _ in range(3)]
        shape.files[f"{arm}/boot{run}.log"] = "".join(
            f"8589934592 bytes / {shape.rng.randint(3900000, 4100000)} usecs = {rate} KB/s\n"
            for rate in rates
        )


def units_below_with_dashes(shape: Shape) -> None:
    rows = [
        f"{arm},{run},{shape.value(arm, 'p99', 52.0)},{shape.value(arm, 'rate', 830.0)}"
        for arm, run in _runs(shape)
    ]
    lines = ["kernel,boot,p99,throughput", "[-],[-],[ms],[MB/s]", *rows]
    shape.files["a.csv"] = "\n".join(lines) + "\n"


def minutes(shape: Shape) -> None:
    name = shape.rng.choice(("build_minutes", "boot (hours)"))
    rows = [(arm, run, shape.value(arm, "", 12.5)) for arm, run in _runs(shape)]
    shape.table(f"kernel,boot,{name}", rows)


READ: tuple[Maker, ...] = (
    _scaled((("us", 1.0), ("ms", 1e3)), "latency"),
    _scaled((("ns", 1.0), ("us", 1e3), ("ms", 1e6)), "value"),
    _scaled((("MiB/s", 1.0), ("GiB/s", 1024.0)), "bandwidth"),
    _scaled((("MB/s", 1.0), ("GB/s", 1000.0)), "throughput"),
    commas_before_exponents,
    pgbench,
    paths_of_pandas,
    means_behind_kernels,
    lists_with_commas,
    usemem,
    units_below_with_dashes,
    minutes,
    sums_below,
    baseline_beside_patched,
    hackbench,
    rt_app,
    phoronix_without_a_head,
    row_names_in_quotes,
    figures_below_a_remark,
    locust,
    matrix_without_sources,
    mmtests_of_two_means,
)
