# SPDX-License-Identifier: GPL-2.0-or-later
"""Files as strangers have them, after published formats and habits: truth by construction.

Programs that print their own aggregates, totals of many iterations, sentences in a log, facts in a
file beside the data, units that change amid a file, two head lines, merged cells.
"""

from __future__ import annotations

import json
import math

from foreign_shapes import Maker, Shape

_SEP = "-" * 60


def google_csv(shape: Shape) -> None:
    """Aggregates below their repetitions, and machine lines above the head."""
    for arm in shape.arms:
        lines = ["2026-05-01T10:00:00+00:00", "Running ./bm", "Run on (8 X 2400 MHz CPU s)"]
        lines.append("name,iterations,real_time,cpu_time,time_unit,label")
        values = [shape.value(arm, "BM_Clone") for _ in range(shape.runs)]
        lines += [f'"BM_Clone",{1000 + at},{value},,ns,' for at, value in enumerate(values)]
        mean = sum(map(float, values)) / len(values)
        for word, number in (("mean", mean), ("median", mean), ("stddev", 1.2), ("cv", 0.012)):
            lines.append(f'"BM_Clone_{word}",{len(values)},{number},,ns,')
        shape.files[f"{arm}.csv"] = "\n".join(lines) + "\n"


def google_csv_of_aggregates(shape: Shape) -> None:
    """Of each boot nothing but aggregates: the mean stands for the boot."""
    for arm in shape.arms:
        for boot in range(shape.runs):
            rows = [f"BM_Fork_mean,{shape.value(arm, 'BM_Fork')},us"]
            rows += ["BM_Fork_median,99.1,us", "BM_Fork_stddev,1.1,us", "BM_Fork_cv,0.01,us"]
            text = "\n".join(("name,real_time,time_unit", *rows)) + "\n"
            shape.files[f"{arm}/boot{boot}.csv"] = text


def criterion_samples(shape: Shape) -> None:
    """Each sample is the time of more iterations than the one before."""
    head = "group,function,value,throughput_num,throughput_type,sample_measured_value,unit,"
    for arm in shape.arms:
        rows = []
        for at in range(1, shape.runs + 1):
            value = float(shape.value(arm, "touch"))
            rows.append(f"mmap,touch,4096,,,{value * at * 1000:.3f},ns,{at * 1000}")
        shape.files[f"{arm}/raw.csv"] = "\n".join((f"{head}iteration_count", *rows)) + "\n"


def merged_cells(shape: Shape) -> None:
    """A kernel and a size stand once above empty cells, as spreadsheets merge them."""
    rows = ["kernel,size,boot,ns_per_op"]
    for arm in shape.arms:
        for size in (4, 64):
            for boot in range(shape.runs):
                first = (arm if size == 4 else "", size) if boot == 0 else ("", "")
                value = shape.value(arm, size, 25.0 * size)
                rows.append(f"{first[0]},{first[1]},{boot},{value}")
    shape.files["a.csv"] = "\n".join(rows) + "\n"


def units_that_change(shape: Shape) -> None:
    """Milliseconds with a comma, then microseconds; the head is in another language."""
    value, unit = shape.rng.choice((("Wert", "Einheit"), ("valeur", "mesure en")))
    rows = [f"kernel;boot;{value};{unit}"]
    for boot in range(shape.runs):
        for arm in shape.arms:
            number = float(shape.value(arm, "", 1500.0))
            if boot < 3:
                rows.append(
                    f"{arm};{boot};{number / 1000:.5f};ms".replace(".", ",").replace(
                        arm.replace(".", ","), arm
                    )
                )
            else:
                rows.append(
                    f"{arm};{boot};{number:.2f};us".replace(".", ",").replace(
                        arm.replace(".", ","), arm
                    )
                )
    shape.files["a.csv"] = "\n".join(rows) + "\n"


def two_head_lines(shape: Shape) -> None:
    """Kernels above, quantities below, and the name of the index below both."""
    both = [(arm, name) for arm in shape.arms for name in ("fork_us", "mmap_us")]
    rows = ["kernel," + ",".join(arm for arm, _ in both)]
    rows.append("metric," + ",".join(name for _, name in both))
    rows.append("boot" + "," * len(both))
    for boot in range(shape.runs):
        level = {"fork_us": 100.0, "mmap_us": 7.0}
        rows.append(f"{boot}," + ",".join(shape.value(arm, n, level[n]) for arm, n in both))
    shape.files["a.csv"] = "\n".join(rows) + "\n"


def facts_beside(shape: Shape) -> None:
    """res/007/samples.csv beside res/007/config.json, which names the kernel and the boot."""
    number = 0
    for arm in shape.arms:
        for boot in range(shape.runs):
            facts = {"kernel": arm, "boot": boot, "host": "lab3"}
            rows = [shape.value(arm) for _ in range(3)]
            name = shape.rng.choice(("config.json", "meta.json"))
            shape.files[f"res/{number:03}/{name}"] = json.dumps(facts)
            shape.files[f"res/{number:03}/samples.csv"] = "us\n" + "\n".join(rows) + "\n"
            number += 1


def stamped_pairs(shape: Shape) -> None:
    """key=value behind a moment and a program."""
    lines = [
        f"2026-05-01T10:{run:02}:{at:02}Z bench kernel={arm} boot={run}"
        f" lat_us={shape.value(arm)} errors=0"
        for run in range(shape.runs)
        for at, arm in enumerate(shape.arms)
    ]
    shape.files["log.txt"] = "\n".join(lines) + "\n"


def sentences(shape: Shape) -> None:
    """A moment of the kernel's log, the number of an iteration, and a time."""
    verb = shape.rng.choice(("took", "finished in", "done:"))
    for arm in shape.arms:
        lines = [
            f"[{12.5 * run:12.6f}] bench: iteration {run} {verb} {shape.value(arm)} ms"
            for run in range(1, shape.runs + 1)
        ]
        shape.files[f"{arm}.log"] = "\n".join(lines) + "\n"


def titles_of_a_loop(shape: Shape) -> None:
    """A shell that says which kernel and run follows, above what the program prints."""
    mark = shape.rng.choice(("===", "-----", "####"))
    lines = []
    for arm in shape.arms:
        for run in range(shape.runs):
            lines += [f"{mark} {arm} run {run} {mark}", "Running in process mode"]
            lines.append(f"Time: {shape.value(arm)} s")
    shape.files["loop.log"] = "\n".join(lines) + "\n"


def will_it_scale_runs(shape: Shape) -> None:
    """page_fault1.0.csv, page_fault1.1.csv ... in a folder for each arm."""
    head = "tasks,processes,processes_idle,threads,threads_idle,linear"
    for arm in shape.arms:
        for run in range(shape.runs):
            rows = [
                f"{n},{shape.value(arm, f'p{n}', 9e4 * n)},90,{shape.value(arm, f't{n}', 6e4 * n)},"
                f"90,{n * 100000}"
                for n in (1, 2, 4)
            ]
            shape.files[f"{arm}/page_fault1.{run}.csv"] = "\n".join((head, *rows)) + "\n"


def operations_with_units(shape: Shape) -> None:
    """db_bench: an operation, what one takes, how many a second."""
    for arm in shape.arms:
        for run in range(shape.runs):
            lines = ["Keys:       16 bytes each", _SEP]
            for name in ("readrandom", "overwrite"):
                micros = shape.value(arm, f"{name} us", 4.5)
                rate = shape.value(arm, f"{name} rate", 220000.0)
                lines.append(f"{name:13}:  {micros} micros/op {rate} ops/sec 60.0 seconds;")
            lines = [" ".join(line.split()) if " : " in line else line for line in lines]
            shape.files[f"{arm}/{run}.log"] = "\n".join(lines) + "\n"


def suite_as_it_runs(shape: Shape) -> None:
    """What the Phoronix Test Suite prints: runs below a setting, then average and unit."""
    for arm in shape.arms:
        lines = ["Timed Linux Kernel Compilation 6.8:", "    pts/build-linux-kernel-1.16.0"]
        lines += ["    Test 1 of 1", "", "    Build: defconfig:"]
        lines += [f"        {shape.value(arm)}" for _ in range(shape.runs)]
        lines += ["", "    Average: 100.2 Seconds", "    Deviation: 0.47%"]
        shape.files[f"{arm}.txt"] = "\n".join(lines) + "\n"


def missing_as_not_a_number(shape: Shape) -> None:
    """nan is no figure, and no error either: that run has no value."""
    word = shape.rng.choice(("nan", "NaN", "NAN"))
    rows = [
        f"{arm},{boot},{shape.value(arm) if boot != 2 else word}"
        for boot in range(shape.runs)
        for arm in shape.arms
    ]
    shape.files["a.csv"] = "\n".join(("kernel,boot,us", *rows)) + "\n"


def mean_and_tail(shape: Shape) -> None:
    """A mean and a p99 of each boot: the tail is a metric of its own, and a maximum is none."""
    rows = [
        f"{arm},{boot},{shape.value(arm, 'mean')},{shape.value(arm, 'p99', 300.0)},999"
        for boot in range(shape.runs)
        for arm in shape.arms
    ]
    shape.files["a.csv"] = "\n".join(("kernel,boot,mean_us,p99_us,max_us", *rows)) + "\n"


def a_note_below(shape: Shape) -> None:
    """A title, an empty row and a remark around the table, as a spreadsheet saves them."""
    rows = ["Nightly run 2026-05-01,,", ",,", "Kernel,Boot,Latency", ",,[us]"]
    rows += [f"{arm},{boot},{shape.value(arm)}" for boot in range(shape.runs) for arm in shape.arms]
    shape.files["a.csv"] = "\n".join((*rows, ",,", "note: governor=performance,,")) + "\n"


def figures_alone(shape: Shape) -> None:
    """A file for each kernel, a figure a line, no head: in which unit only its author knows."""
    for arm in shape.arms:
        lines = [shape.value(arm) for _ in range(shape.runs)]
        shape.files[f"{arm}.txt"] = "\n".join(lines) + "\n"


def totals_of_iterations(shape: Shape) -> None:
    """The time of as many calls as stand beside it: as it stands it is no figure of one thing."""
    rows = []
    for arm in shape.arms:
        for boot in range(shape.runs):
            count = shape.rng.randint(100, 9000)
            total = shape.put(arm, "", round(count * 0.25 * math.exp(shape.rng.gauss(0, 0.01)), 2))
            rows.append(f"{arm},{boot},{total},{count}")
    shape.files["a.csv"] = "\n".join(("kernel,boot,elapsed_us,calls_made", *rows)) + "\n"


def columns_that_may_be_runs(shape: Shape) -> None:
    """t1 to t6 of each bench: the benches are never put together."""
    rows = [
        f"{arm},{bench}," + ",".join(shape.value(arm, bench, level) for _ in range(6)) + ",ms"
        for arm in shape.arms
        for bench, level in (("fork", 10.0), ("mmap", 70.0))
    ]
    shape.files["a.csv"] = "\n".join(("kernel,bench,t1,t2,t3,t4,t5,t6,unit", *rows)) + "\n"


def figures_of_no_name(shape: Shape) -> None:
    """What nobody named is asked about, and its settings stay settings."""
    rows = [
        f"{arm},{test},{boot},{shape.value(arm, test, level)}"
        for arm in shape.arms
        for test, level in (("fork", 10.0), ("mmap", 70.0))
        for boot in range(shape.runs)
    ]
    shape.files["a.csv"] = "\n".join(("kernel,workload,boot,badness", *rows)) + "\n"


READ: tuple[Maker, ...] = (
    *(google_csv, google_csv_of_aggregates, criterion_samples, units_that_change, two_head_lines),
    *(facts_beside, stamped_pairs, sentences, titles_of_a_loop, will_it_scale_runs),
    *(operations_with_units, suite_as_it_runs, missing_as_not_a_number, mean_and_tail),
    a_note_below,
)
ASKED: tuple[Maker, ...] = (
    *(merged_cells, figures_alone, totals_of_iterations),
    *(columns_that_may_be_runs, figures_of_no_name),
)
