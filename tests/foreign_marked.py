# SPDX-License-Identifier: GPL-2.0-or-later
"""Shapes of tables that mark their own rows: warm-ups, units of each row, legs, moments, titles."""

from __future__ import annotations

from foreign_shapes import Maker, Shape


def percentiles_beside_a_rate(shape: Shape) -> None:
    """One may be better and the other worse."""
    rows = [
        (arm, boot, shape.value(arm, "rate", 900.0), shape.value(arm, "p99", 40.0))
        for arm in shape.arms
        for boot in range(shape.runs)
    ]
    shape.table("kernel,boot,throughput_rps,latency_p99_us", rows)


def percentiles_alone(shape: Shape) -> None:
    rows = [
        (arm, boot, *(shape.value(arm, level, level) for level in (50.0, 95.0, 99.0)))
        for arm in shape.arms
        for boot in range(shape.runs)
    ]
    shape.table("kernel,boot,p50_us,p95_us,p99_us", rows)


def sizes_called_n(shape: Shape) -> None:
    rows = [(arm, run, size, value) for arm, size, run, value in shape.each(1024, 4096)]
    shape.table("kernel,boot,n,us", rows)


def warm_ups_by_a_flag(shape: Shape) -> None:
    yes, no = shape.rng.choice((("yes", "no"), ("1", "0"), ("True", "False")))
    name = shape.rng.choice(("warmup", "is_warmup", "discarded"))
    rows: list[tuple[object, ...]] = []
    for arm in shape.arms:
        for boot in range(shape.runs):
            rows.append((arm, boot, 0, yes, 900))
            rows += [(arm, boot, turn, no, shape.value(arm)) for turn in (1, 2)]
    shape.table(f"kernel,boot,iter,{name},ns", rows)


def warm_ups_by_a_phase(shape: Shape) -> None:
    rows: list[tuple[object, ...]] = []
    for arm in shape.arms:
        for boot in range(shape.runs):
            rows += [(arm, boot, "warm-up", 900), (arm, boot, "measure", shape.value(arm))]
    shape.table("kernel,boot,phase,ns", rows)


def a_clock_on_the_wall(shape: Shape) -> None:
    lines = [
        f"{10 + boot}:{30 * at:02d}:05,{arm},{boot},{shape.value(arm)}"
        for boot in range(shape.runs)
        for at, arm in enumerate(shape.arms)
    ]
    shape.files["a.csv"] = "\n".join(("time,kernel,boot,latency_us", *lines)) + "\n"


def a_moment_beside(shape: Shape) -> None:
    rows = [
        (arm, boot, f"{1000 * boot + 7.5}", shape.value(arm))
        for arm in shape.arms
        for boot in range(shape.runs)
    ]
    shape.table("kernel,boot,start_s,ns", rows)


def a_unit_in_each_row(shape: Shape) -> None:
    rows: list[tuple[object, ...]] = []
    for at, arm in enumerate(shape.arms):
        for boot in range(shape.runs):
            number = shape.rng.randrange(15_000, 16_000)
            shape.put(arm, "", float(number))
            rows.append((arm, boot, *((number, "ns") if at else (f"{number / 1000:.3f}", "us"))))
    shape.table("kernel,boot,value,unit", rows)


def underscores_in_numbers(shape: Shape) -> None:
    rows: list[tuple[object, ...]] = []
    for arm in shape.arms:
        for boot in range(shape.runs):
            number = shape.rng.randrange(1_200_000, 1_300_000)
            shape.put(arm, "", float(number))
            rows.append((arm, boot, f"{number:_}"))
    shape.table("kernel,boot,cycles", rows)


def ratios_below(shape: Shape) -> None:
    old, new = shape.arms = ("base", "patched")
    lines = [f"{run},{shape.value(old)},{shape.value(new)}" for run in range(shape.runs)]
    name = shape.rng.choice(("ratio", "% change", "delta", "speedup"))
    lines.append(f"{name},,{shape.rng.choice((-10.0, 0.9))}")
    shape.files["a.csv"] = "\n".join(("run,base_us,patched_us", *lines)) + "\n"


def tables_of_each_repetition(shape: Shape) -> None:
    lines = []
    for rep in range(1, shape.runs + 1):
        lines += [f"rep {rep}", "threads\t" + "\t".join(f"{arm} (us)" for arm in shape.arms)]
        for threads, level in ((1, 10.0), (8, 90.0)):
            cells = "\t".join(shape.value(arm, threads, level) for arm in shape.arms)
            lines.append(f"{threads}\t{cells}")
        lines.append("")
    shape.files["a.txt"] = "\n".join(lines)


def two_head_lines_and_boots(shape: Shape) -> None:
    old, new = shape.arms
    lines = [",mmap (ns),,munmap (ns),", f",{old},{new},{old},{new}"]
    for boot in range(shape.runs):
        cells = [
            shape.value(arm, name, level)
            for name, level in (("mmap", 100.0), ("munmap", 900.0))
            for arm in shape.arms
        ]
        lines.append(",".join((f"boot {boot}", *cells)))
    shape.files["a.csv"] = "\n".join(lines) + "\n"


def boots_in_folders(shape: Shape) -> None:
    shape.arms = tuple(f"linux-{arm}" for arm in shape.arms)
    for arm in shape.arms:
        for boot in range(shape.runs):
            text = f"ops: 1000\ntime per op: {shape.value(arm)} ns\n"
            shape.files[f"{arm}/boot-{boot}/out.txt"] = text


def sections_with_directions(shape: Shape) -> None:
    lines = []
    for title, level in (("rate (higher is better)", 900.0), ("delay (lower is better)", 10.0)):
        lines += [f"## {title}", "", "| boot | base | patched |", "|---|---|---|"]
        for boot in range(shape.runs):
            cells = " | ".join(shape.value(arm, title, level) for arm in ("base", "patched"))
            lines.append(f"| {boot} | {cells} |")
        lines.append("")
    shape.files["a.md"] = "\n".join(lines)


def legs_in_a_phase(shape: Shape) -> None:
    rows = [
        (leg, boot, shape.value(leg, "", level))
        for leg, level in (("A1", 100.0), ("B", 112.0), ("A2", 100.0))
        for boot in range(shape.runs)
    ]
    shape.table("phase,boot,ns_per_op", rows)


def costs_in_whole_nanoseconds(shape: Shape) -> None:
    """Few numbers that go together, in both arms: measured all the same."""
    rows = []
    for arm in shape.arms:
        for run in range(18):
            number = shape.rng.choice((60, 61, 62))
            shape.put(arm, "loop", number)
            shape.put(arm, "lock", number // 2)
            rows.append((arm, run, number, number // 2))
    shape.table("kernel,boot,loop_ns_per_page,lock_ns", rows)


def legs_of_sides(shape: Shape) -> None:
    """What the arms are is told twice, and only once which of the old ones it was."""
    rows = [
        (leg, side, run, shape.value(leg, "", level))
        for leg, side, level in (
            *(("before-a", "base", 60.0), ("with-patch", "tip", 70.0), ("before-b", "base", 60.0)),
        )
        for run in range(shape.runs)
    ]
    name = shape.rng.choice(("side", "commit", "kernel"))
    shape.table(f"leg,{name},rep,ns_per_page", rows)


READ: tuple[Maker, ...] = (
    percentiles_beside_a_rate,
    percentiles_alone,
    sizes_called_n,
    warm_ups_by_a_flag,
    warm_ups_by_a_phase,
    a_clock_on_the_wall,
    a_moment_beside,
    a_unit_in_each_row,
    underscores_in_numbers,
    ratios_below,
    tables_of_each_repetition,
    two_head_lines_and_boots,
    boots_in_folders,
    sections_with_directions,
    legs_of_sides,
    costs_in_whole_nanoseconds,
)
ASKED: tuple[Maker, ...] = (legs_in_a_phase,)
