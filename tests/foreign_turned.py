# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables without a head line, turned, in blocks or within each other, and rows made of others."""

from __future__ import annotations

import math

from foreign_shapes import Maker, Shape


def runs_beside_kernels(shape: Shape) -> None:
    """The name of a kernel stands above each of its runs."""
    columns = [(arm, shape.value(arm, "", 100.0)) for _ in range(shape.runs) for arm in shape.arms]
    head = shape.rng.choice(("kernel", "version", ""))
    shape.files["a.csv"] = "".join(
        ",".join(row) + "\n"
        for row in (
            [head, *(arm for arm, _ in columns)],
            ["lat_us", *(text for _, text in columns)],
        )
    )


def runs_of_metrics(shape: Shape) -> None:
    runs = range(1, shape.runs + 1)
    word = shape.rng.choice(("r", "run", "run_", ""))
    first = word and shape.rng.random() < 0.5
    names = [
        f"{word.strip('_')}{run}_{metric}" if first else f"{metric}_{word}{run}"
        for metric in ("mmap_ns", "fork_us")
        for run in runs
    ]
    rows = [
        (
            arm,
            *(
                shape.value(arm, metric, level)
                for metric, level in (("a", 9.0), ("b", 70))
                for _ in runs
            ),
        )
        for arm in shape.arms
    ]
    shape.table(",".join(("kernel", *names)), rows)


def blocks_of_gnuplot(shape: Shape) -> None:
    quoted = shape.rng.random() < 0.5
    blocks = []
    for arm in shape.arms:
        head = [f'"{arm}"'] if quoted else [f"# kernel {arm}", "# threads lat_us"]
        if quoted:
            head.append("# threads lat_us")
        rows = [f"{n} {shape.value(arm, n, 10.0 * n)}" for n in (1, 2, 4, 8)]
        blocks.append("\n".join((*head, *rows)))
    shape.files["a.dat"] = "\n\n\n".join(blocks) + "\n"


def kernels_in_yaml(shape: Shape) -> None:
    lines = ["machine: lab3", "results:"]
    flow = shape.rng.random() < 0.5
    for arm in shape.arms:
        lines.append(f"  {arm}:")
        for metric, level in (("mmap_ns", 100.0), ("fork_us", 40.0)):
            values = [shape.value(arm, metric, level) for _ in range(shape.runs)]
            if flow:
                lines.append(f"    {metric}: [{', '.join(values)}]  # of one boot each")
            else:
                lines += [f"    {metric}:", *(f"      - {value}" for value in values)]
    shape.files["a.yaml"] = "\n".join(lines) + "\n"


def benchmarks_in_yaml(shape: Shape) -> None:
    lines = []
    for arm in shape.arms:
        lines.append(f"- kernel: '{arm}'")
        lines.append("  benchmarks:")
        for test, level in (("mmap", 100.0), ("fork", 900.0)):
            for _ in range(shape.runs):
                lines += [f"    - name: {test}", f"      lat_us: {shape.value(arm, test, level)}"]
    shape.files["a.yml"] = "\n".join(lines) + "\n"


def geometric_means_below(shape: Shape) -> None:
    """In columns of arms, or with a column for the kernel."""
    word = shape.rng.choice(("Geomean", "geo mean", "GeoMean", "Geometric mean"))
    tests = (("mmap", 100.0), ("fork", 900.0), ("exec", 300.0))
    cells = {
        (arm, test): shape.value(arm, test, level) for arm in shape.arms for test, level in tests
    }
    means = {
        arm: f"{math.exp(sum(math.log(float(cells[arm, test])) for test, _ in tests) / 3):.2f}"
        for arm in shape.arms
    }
    if shape.rng.random() < 0.5:
        rows = [f"{test},{','.join(cells[arm, test] for arm in shape.arms)}" for test, _ in tests]
        rows.append(f"{word},{','.join(means[arm] for arm in shape.arms)}")
        head = "benchmark," + ",".join(f"{arm}_ns" for arm in shape.arms)
    else:
        head = "benchmark,kernel,ns"
        rows = [f"{test},{arm},{cells[arm, test]}" for arm in shape.arms for test, _ in tests]
        rows += [f"{word},{arm},{means[arm]}" for arm in shape.arms]
    shape.files["a.csv"] = "\n".join((head, *rows)) + "\n"


def totals_below(shape: Shape) -> None:
    """A row called total is one only where it is; a metric that is called mean stays."""
    tests = (("mmap", 100.0), ("fork", 900.0))
    cells = {
        (arm, test): shape.value(arm, test, level) for arm in shape.arms for test, level in tests
    }
    rows = [f"{test},{arm},{cells[arm, test]}" for arm in shape.arms for test, _ in tests]
    for arm in shape.arms:
        total = sum(float(cells[arm, test]) for test, _ in tests)
        rows.append(f"total,{arm},{total:.6g}")
    shape.files["a.csv"] = "\n".join(("test,kernel,lat_us", *rows)) + "\n"


def totals_of_their_own(shape: Shape) -> None:
    rows = [
        f"{step},{arm},{shape.value(arm, step, level)}"
        for arm in shape.arms
        for step, level in (("setup", 100.0), ("teardown", 900.0), ("total", 5000.0))
    ]
    shape.files["a.csv"] = "\n".join(("step_name,kernel,lat_us", *rows)) + "\n"


def buckets_of_a_histogram(shape: Shape) -> None:
    """A column of spans that is called after a unit tells rows apart, and is no figure."""
    spans = shape.rng.choice((("0-100", "100-200", "200-400"), ("[1]", "[2, 4)", "[4, 8)")))
    rows = [
        f'"{span}",' + ",".join(shape.value(arm, span, 10.0**at) for arm in shape.arms)
        for at, span in enumerate(spans)
    ]
    shape.files["a.csv"] = "\n".join((f"bucket_ns,{','.join(shape.arms)}", *rows)) + "\n"


def instructions_per_cycle_beside(shape: Shape) -> None:
    rows = [
        (
            arm,
            run,
            shape.value(arm, "ns"),
            shape.value(arm, "cycles", 300.0),
            f"{shape.rng.gauss(2, 0.02):.3f}",
        )
        for arm in shape.arms
        for run in range(6)
    ]
    shape.table("kernel,run,ns,cycles,ipc", rows)


def names_in_bold(shape: Shape) -> None:
    head = "| test | " + " | ".join(f"**{arm}**" for arm in shape.arms) + " |"
    rows = [
        f"| {test} (ns) | " + " | ".join(f"`{shape.value(arm, test)}`" for arm in shape.arms) + " |"
        for test in ("mmap", "fork")
    ]
    shape.files["a.md"] = "\n".join((head, "|---|---:|---:|", *rows)) + "\n"


def names_of_merged_cells(shape: Shape) -> None:
    """A spreadsheet writes what spans several rows into the first of them."""
    rows = []
    for test in ("mmap", "fork"):
        for arm in shape.arms:
            first = test if arm == shape.arms[0] else ""
            rows.append(f"{first},{arm},{shape.value(arm, test)}")
    shape.files["a.csv"] = "\n".join(("benchmark,kernel,ns", *rows)) + "\n"


def units_behind_the_spread(shape: Shape) -> None:
    rows = [f"| {arm} | {shape.value(arm)} \u00b1 0.4 us |" for arm in shape.arms]
    shape.files["a.md"] = "\n".join(("| kernel | lat |", "|---|---|", *rows)) + "\n"


def no_head_line(shape: Shape) -> None:
    rows = [(arm, *(shape.value(arm) for _ in range(shape.runs))) for arm in shape.arms]
    shape.files["a.csv"] = "".join(",".join(row) + "\n" for row in rows)


def no_head_line_and_numbers_of_runs(shape: Shape) -> None:
    rows = [(arm, str(run), shape.value(arm)) for arm in shape.arms for run in range(shape.runs)]
    shape.files["a.csv"] = "".join(",".join(row) + "\n" for row in rows)


READ: tuple[Maker, ...] = (
    runs_beside_kernels,
    runs_of_metrics,
    blocks_of_gnuplot,
    kernels_in_yaml,
    benchmarks_in_yaml,
    geometric_means_below,
    totals_below,
    totals_of_their_own,
    buckets_of_a_histogram,
    instructions_per_cycle_beside,
    names_in_bold,
)
ASKED: tuple[Maker, ...] = (
    no_head_line,
    no_head_line_and_numbers_of_runs,
    names_of_merged_cells,
    units_behind_the_spread,
)
