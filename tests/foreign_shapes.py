# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of shapes that a reader takes wrongly without a word: the truth is known by construction.

Each shape is drawn from a seed: which kernels, how many runs, which figures.  What is read is right
when every arm, setting and metric has exactly the values that were put there, and nothing else; so
a setting that is dropped, two tables that are pooled, or a version that lost a digit shows.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kdelta.foreign import loading, mapping, reader
from kdelta.foreign.record import Contents

_PAIRS = (("6.12", "6.18"), ("v6.1.9", "v6.10.2"), ("5.15", "6.6"), ("6.16-rc1", "6.16-rc2"))
Values = tuple[float, ...]


@dataclass(slots=True)
class Shape:
    """Files that are being made, and what they say: (arm, setting) -> values.

    dropped: what the files also say and a reader may leave out, as long as it says so.
    """

    rng: random.Random
    arms: tuple[str, ...] = ()
    runs: int = 0
    files: dict[str, str] = field(default_factory=dict)
    truth: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    dropped: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Draw the kernels and the number of runs."""
        self.arms = self.rng.choice(_PAIRS)
        self.runs = self.rng.randint(5, 9)

    def value(self, arm: str, setting: object = "", level: float = 100.0) -> str:
        """A figure about a level, which is put down as what was measured of arm and setting."""
        number = float(f"{level * self.rng.lognormvariate(0, 0.02):.5g}")
        return self.put(arm, setting, number)

    def put(self, arm: str, setting: object, number: float) -> str:
        """A given figure as what was measured."""
        self.truth[arm, str(setting)].append(number)
        return repr(number)

    def table(self, head: str, rows: Iterable[Sequence[object]], name: str = "a.csv") -> None:
        """A file of a head line and rows, in any order."""
        lines = [",".join(map(str, row)) for row in rows]
        self.rng.shuffle(lines)
        self.files[name] = "\n".join([head, *lines]) + "\n"

    def each(self, *settings: object) -> list[tuple[str, object, int, str]]:
        """(arm, setting, run, figure) of a whole design; figures differ tenfold by setting."""
        return [
            (arm, setting, run, self.value(arm, setting, 100.0 * (1 + 9 * at)))
            for arm in self.arms
            for at, setting in enumerate(settings)
            for run in range(self.runs)
        ]


Maker = Callable[[Shape], None]


def percentile_words(shape: Shape) -> None:
    shape.table("kernel,boot,percentile,lat_us", _moved(shape.each("p50", "p90", "p99")))


def percentile_names_of_other_words(shape: Shape) -> None:
    shape.table("kernel,boot,level,lat_us", _moved(shape.each("50.0th", "99.0th", "99.9th")))


def percentile_numbers(shape: Shape) -> None:
    name = shape.rng.choice(("percentile", "pct", "quantile"))
    shape.table(f"kernel,run,{name},usec", _moved(shape.each("50", "99", "99.9")))


def percentiles_by_arm(shape: Shape) -> None:
    rows = [
        (level, *(shape.value(arm, level, 10.0 * at) for arm in shape.arms))
        for at, level in enumerate(("50.0", "90.0", "99.0", "99.9"), start=1)
    ]
    shape.files["a.csv"] = _text(["percentile", *(f"lat_us_{a}" for a in shape.arms)], rows)


def statistics_below_each_other(shape: Shape) -> None:
    shape.table("kernel,boot,stat,lat_us", _moved(shape.each("avg", "p99", "max")))
    shape.dropped = {"p99", "max"}


def fractions(shape: Shape) -> None:
    shape.table("kernel,theta,ns_per_op", _unnumbered(shape.each("0.5", "1.5", "2.5")))


def uneven_setting(shape: Shape) -> None:
    cells = _unnumbered(shape.each("1", "2", "16"))
    last: tuple[str, str] = (shape.arms[-1], "16")
    gone = next(row for row in cells if row[:2] == last)
    shape.truth[last].remove(float(str(gone[2])))
    shape.table("kernel,qd,ns_per_op", [row for row in cells if row is not gone])


def many_settings(shape: Shape) -> None:
    rows = [
        (arm, length, shape.value(arm, length, 10.0 * length))
        for arm in shape.arms
        for length in range(10, 310, 10)
        for _ in range(3)
    ]
    shape.table("kernel,qlen,time_ns", rows)


def two_switches(shape: Shape) -> None:
    rows = [
        (arm, huge, pin, run, shape.value(arm, (huge, pin), 100.0 * (1 + huge + 3 * pin)))
        for arm in shape.arms
        for huge in (0, 1)
        for pin in (0, 1)
        for run in range(shape.runs)
    ]
    shape.table("kernel,thp,pin,rep,latency_ns", rows)


def version_of_a_program(shape: Shape) -> None:
    shape.arms = ("base", "patched")
    shape.table("build,fio_version,run,avg_ms", _moved(shape.each("3.36", "3.38"), 1))


def versions_as_settings(shape: Shape) -> None:
    shape.arms = ("base", "patched")
    shape.table("series,on_top_of,rep,ns", _moved(shape.each("6.1", "6.10"), 1))


def version_with_a_zero(shape: Shape) -> None:
    shape.arms = ("6.1", "6.10")
    ways = {
        "a.csv": ("kernel,boot,ns\n", "{0},{1},{2}\n", ""),
        "a.yaml": ("", "- kernel: {0}\n  boot: {1}\n  ns: {2}\n", ""),
        "a.json": ("[", '{{"kernel": {0}, "boot": {1}, "ns": {2}}}', "]"),
    }
    name = shape.rng.choice(tuple(ways))
    head, line, foot = ways[name]
    lines = [line.format(arm, run, figure) for arm, _, run, figure in shape.each("")]
    shape.files[name] = head + ("," if foot else "").join(lines) + foot


def version_that_lost_its_zero(shape: Shape) -> None:
    shape.arms = ("6.9", "6.1", "6.11")
    shape.table("kernel,boot,ns", _unset(shape.each("")))


def several_metrics_of_arms(shape: Shape) -> None:
    metrics = (("mmap_ns", 100.0), ("fork_us", 5000.0))
    last = shape.rng.random() < 0.5
    rows = [
        (run, *(shape.value(arm, m, level) for arm in shape.arms for m, level in metrics))
        for run in range(shape.runs)
    ]
    names = [f"{m}_{arm}" if last else f"{arm}_{m}" for arm in shape.arms for m, _ in metrics]
    shape.table(",".join(["boot", *names]), rows)


def metrics_of_arms_without_units(shape: Shape) -> None:
    metrics = (("mmap", 100.0), ("fork", 5000.0))
    rows = [
        (run, *(shape.value(arm, m, level) for m, level in metrics for arm in shape.arms))
        for run in range(shape.runs)
    ]
    names = [f"{m}-{arm}" for m, _ in metrics for arm in shape.arms]
    shape.table(",".join(["run", *names]), rows)


def benchmarks_in_rows(shape: Shape) -> None:
    rows = [
        (test, *(shape.value(arm, test, level) for arm in shape.arms))
        for test, level in (("mmap", 100.0), ("fork", 5000.0), ("exec", 900.0))
    ]
    shape.table(",".join(["benchmark (us)", *shape.arms]), rows)


def arms_of_any_name(shape: Shape) -> None:
    shape.arms = shape.rng.choice((("mainline", "mm-unstable"), ("A", "B"), ("zap", "zop")))
    rows = [
        (run, *(shape.value(arm, "", 100.0) for arm in shape.arms)) for run in range(shape.runs)
    ]
    shape.table(",".join(["run", *shape.arms]), rows)


def tables_below_titles(shape: Shape) -> None:
    parts = ["# Results\n"]
    for test, level in (("mmap", 100.0), ("fork", 900.0)):
        rows = [
            f"| {arm} | {run} | {shape.value(arm, test, level)} |"
            for arm in shape.arms
            for run in range(shape.runs)
        ]
        parts += [f"## {test}\n", "| kernel | boot | ns/op |", "|---|---:|---:|", *rows, ""]
    shape.files["a.md"] = "\n".join(parts) + "\n"


def head_line_again(shape: Shape) -> None:
    lines: list[str] = []
    for part in range(2):
        lines.append("kernel,ns")
        lines += [
            f"{arm},{shape.value(arm, part, 100.0 + 400 * part)}"
            for arm in shape.arms
            for _ in range(shape.runs)
        ]
    shape.files["a.csv"] = "\n".join(lines) + "\n"


def org_table(shape: Shape) -> None:
    rows = [f"| {arm} | {run} | {figure} |" for arm, _, run, figure in shape.each("")]
    head = ["* Results", "| kernel | boot | ns |", "|--------+------+----|"]
    shape.files["a.org"] = "\n".join([*head, *rows]) + "\n"


def thousands_in_letters(shape: Shape) -> None:
    rows = []
    for arm in shape.arms:
        for run in range(shape.runs):
            hundredths = shape.rng.randint(50, 300)
            shape.put(arm, "", hundredths * 10_000.0)
            small = f"{hundredths * 10}k", f"{hundredths / 100}M"
            rows.append((arm, run, small[run % 2]))
    shape.table("kernel,boot,iops", rows)


def rates_of_two_units(shape: Shape) -> None:
    rows = []
    for arm in shape.arms:
        for run in range(shape.runs):
            eighths = shape.rng.randint(5, 40)
            shape.put(arm, "", eighths * 128.0)
            rows.append((arm, run, (f"{eighths / 8} GiB/s", f"{eighths * 128} MiB/s")[run % 2]))
    shape.table("kernel,boot,bw", rows)


def warming_up(shape: Shape) -> None:
    word = shape.rng.choice(("warmup", "warm-up"))
    rows = [(arm, run, figure) for arm, _, run, figure in shape.each("")]
    shape.table("kernel,iteration,ns", [*rows, *((arm, word, 400.0) for arm in shape.arms)])


def what_was_set(shape: Shape) -> None:
    rows = [(arm, run, 30, figure) for arm, _, run, figure in shape.each("")]
    shape.table("kernel,run,duration_s,latency_us", rows)


def times_that_were_set(shape: Shape) -> None:
    name = shape.rng.choice(("interval_us", "timeout_ms", "HZ", "duration_s"))
    shape.table(f"kernel,{name},lat_ns", _unnumbered(shape.each("100", "250", "1000")))


def threads_as_columns(shape: Shape) -> None:
    rows = [
        (arm, *(shape.value(arm, threads, 100.0 * threads) for threads in (1, 2, 3, 4)))
        for arm in shape.arms
        for _ in range(shape.runs)
    ]
    shape.table("kernel,1,2,3,4", rows)


def groups_beside_arms(shape: Shape) -> None:
    often = shape.rng.choice((1, shape.runs))
    rows = [
        (groups, *(shape.value(arm, groups, 10.0 * groups) for arm in shape.arms))
        for groups in (1, 2, 4, 8)
        for _ in range(often)
    ]
    shape.table(",".join(["groups", *shape.arms]), rows)


def thousands_with_blanks(shape: Shape) -> None:
    mark = shape.rng.choice((" ", "'", "\u202f"))
    rows = []
    for arm in shape.arms:
        for run in range(shape.runs):
            number = 1_000_000 + shape.rng.randint(0, 9) * 10_000 + shape.rng.randint(0, 99)
            shape.put(arm, "", number)
            rows.append((arm, run, f"{number:,}".replace(",", mark)))
    shape.table("kernel,boot,ns", rows)


def minutes_and_seconds(shape: Shape) -> None:
    name, form = shape.rng.choice((("real", "{}m{:06.3f}s"), ("elapsed", "{}:{:05.2f}")))
    rows = []
    for arm in shape.arms:
        for run in range(shape.runs):
            hundredths = shape.rng.randint(100, 5900)
            shape.put(arm, "", round(120 + hundredths / 100, 2))
            rows.append((arm, run, form.format(2, hundredths / 100)))
    shape.table(f"kernel,run,{name}", rows)


def two_kernels(shape: Shape) -> None:
    rows = [
        (host, arm, run, shape.value(arm, host, level))
        for host, level in (("6.1.0", 100.0), ("6.6.0", 300.0))
        for arm in shape.arms
        for run in range(shape.runs)
    ]
    shape.table("guest_kernel,host_kernel,run,ns", [(b, a, *rest) for a, b, *rest in rows])


def a_switch_as_the_arm(shape: Shape) -> None:
    shape.arms = ("0", "1")
    name = shape.rng.choice(("bpf_jit", "patches_applied", "with_patch"))
    shape.table(f"{name},run,ns", _unset(shape.each("")))


def before_and_after(shape: Shape) -> None:
    shape.arms = ("before", "after")
    shape.table("when,run,ns", _unset(shape.each("")))


def ratios_that_were_set(shape: Shape) -> None:
    shape.table("kernel,ratio,ns", _unnumbered(shape.each("0.5", "auto", "2")))


def runs_of_a_time(shape: Shape) -> None:
    rows = [(arm, *(shape.value(arm, "", 100.0) for _ in range(4))) for arm in shape.arms]
    shape.table("kernel,lat_us_1,lat_us_2,lat_us_3,lat_us_4", rows)


def _moved(rows: Sequence[tuple[str, object, int, str]], at: int = 2) -> list[tuple[object, ...]]:
    """Arm, run, setting and figure; or, at 1, arm, setting, run and figure."""
    return [row if at == 1 else (row[0], row[2], row[1], row[3]) for row in rows]


def _unnumbered(rows: Sequence[tuple[str, object, int, str]]) -> list[tuple[object, ...]]:
    return [(arm, setting, figure) for arm, setting, _, figure in rows]


def _unset(rows: Sequence[tuple[str, object, int, str]]) -> list[tuple[object, ...]]:
    return [(arm, run, figure) for arm, _, run, figure in rows]


def _text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in (head, *rows))


# How each shape is read: at once, or asked about with a proposal that is right as it stands.
READ: tuple[Maker, ...] = (
    percentile_words,
    percentile_names_of_other_words,
    percentile_numbers,
    percentiles_by_arm,
    fractions,
    uneven_setting,
    many_settings,
    two_switches,
    version_with_a_zero,
    several_metrics_of_arms,
    benchmarks_in_rows,
    tables_below_titles,
    org_table,
    thousands_in_letters,
    rates_of_two_units,
    warming_up,
    what_was_set,
    times_that_were_set,
    minutes_and_seconds,
    before_and_after,
    ratios_that_were_set,
    runs_of_a_time,
)
EITHER: tuple[Maker, ...] = (
    statistics_below_each_other,
    version_of_a_program,
    versions_as_settings,
    head_line_again,
    metrics_of_arms_without_units,
    groups_beside_arms,
    thousands_with_blanks,
)
ASKED: tuple[Maker, ...] = (
    version_that_lost_its_zero,
    arms_of_any_name,
    threads_as_columns,
    two_kernels,
    a_switch_as_the_arm,
)


def drawn(maker: Maker, seed: int) -> Shape:
    """The files of a shape from a seed."""
    rng = random.Random(f"{maker.__name__} {seed}")  # noqa: S311
    shape = Shape(rng)
    maker(shape)
    return shape


def read(shape: Shape, folder: Path) -> tuple[str, Contents]:
    """("read" or "asked", what a file says); asked: the proposal was taken as it stands."""
    for name, text in shape.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    paths = [folder] if len(shape.files) > 1 else [folder / next(iter(shape.files))]
    try:
        return "read", reader.read(paths)[1]
    except reader.UndescribedError as error:
        proposed = mapping.parse(error.proposal, "proposal")
        return "asked", reader.read(paths, loading.Wish(mappings=(proposed,)))[1]


def check(maker: Maker, seed: int, folder: Path, how: str) -> None:
    """Assert that what a maker makes is read as it was made: at once, or by its own proposal."""
    shape = drawn(maker, seed)
    took, found = read(shape, folder)
    assert took == how
    assert cells(found) == everything(shape)


def cells(contents: Contents) -> set[tuple[str, Values]]:
    """(arm, its values) of each arm, setting and metric that was read."""
    found: dict[object, list[float]] = defaultdict(list)
    for item in contents.readings:
        if item.value is not None:
            found[item.arm, item.group, item.metric].append(item.value)
    for one in contents.published:
        if one.mean is not None and (one.arm, one.group, one.metric) not in found:
            found[one.arm, one.group, one.metric] = [one.mean]
    return {
        (key[0], tuple(sorted(values)))  # type: ignore[index]
        for key, values in found.items()
    }


def wanted(shape: Shape) -> set[tuple[str, Values]]:
    """The same of what was put there, without what may be left out."""
    return {
        (arm, tuple(sorted(values)))
        for (arm, setting), values in shape.truth.items()
        if setting not in shape.dropped
    }


def everything(shape: Shape) -> set[tuple[str, Values]]:
    """The same with what may be left out."""
    return {(arm, tuple(sorted(values))) for (arm, _), values in shape.truth.items()}
