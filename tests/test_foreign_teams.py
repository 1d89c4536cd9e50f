# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables as distribution teams, database people and students publish them, by seed."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

import foreign_shapes as shapes
from foreign_records import judged
from kdelta.errors import SpecError
from kdelta.foreign import arms, reader, words
from kdelta.metric import Better


def _runs(shape: shapes.Shape) -> list[tuple[int, str]]:
    return [(run, arm) for run in range(1, shape.runs + 1) for arm in shape.arms]


def _wide(shape: shapes.Shape, below: tuple[str, ...], name: str = "a.csv") -> None:
    """Numbered rows, a column for each arm, and rows of other words below."""
    rows = [f"{run};" + ";".join(map(shape.value, shape.arms)) for run in range(1, shape.runs + 1)]
    head = "Messung;" + ";".join(f"{arm} (us)" for arm in shape.arms)
    shape.files[name] = "\n".join([head, *rows, *(f"{word};3.1;3.2" for word in below)]) + "\n"


def sums_in_german(shape: shapes.Shape) -> None:
    """One known word below numbered runs tells what the other rows of words are."""
    _wide(shape, ("Mittelwert", "Std.abw.", "Differenz"))


def units_behind_numbered_runs(shape: shapes.Shape) -> None:
    """iperf run 1, iperf run 2, iperf run 3 with units in the cells are runs of one metric."""
    rows = []
    for arm in shape.arms:
        for mtu in (1500, 9000):
            cells = [f"{shape.value(arm, mtu, mtu / 2)} Mbits/sec" for _ in range(3)]
            rows.append((arm, mtu, *cells))
    shape.table("kernel,MTU,iperf run 1,iperf run 2,iperf run 3", rows)


def directions_called_min_and_max(shape: shapes.Shape) -> None:
    cases = {"ctxsw": ("ns", "min"), "copy_bw": ("MB/s", "max"), "boot": ("s", "min")}
    rows = [(a, m, v, *cases[str(m)]) for a, m, _, v in shape.each(*cases)]
    shape.table("kernel,metric,value,unit,direction", rows)


def jobs_a_minute(shape: shapes.Shape) -> None:
    rows = [(n, *(shape.value(a, n, 9e4 * n) for a in shape.arms)) for n in (1, 4, 16)]
    shape.table("tasks," + ",".join(f"jobs/min {arm}" for arm in shape.arms), rows)


def energy(shape: shapes.Shape) -> None:
    """Joules are a cost; watts have no direction."""
    rows = [(a, run, shape.value(a, "", 800.0), shape.rng.gauss(14, 1)) for run, a in _runs(shape)]
    shape.table("kernel,run,pkg_J,power_W", rows)


def measurements_of_a_robot(shape: shapes.Shape) -> None:
    """Names with mean, a measurement and its units, a file for each arm."""
    for arm in shape.arms:
        rows = [
            {
                "name": name,
                "measurement": shape.value(arm, name, level),
                "units": unit,
                "result": "pass",
            }
            for name, level, unit in (("hackbench-mean", 0.3, "s"), ("iozone-read", 900.0, "MB/s"))
            for _ in range(shape.runs)
        ]
        shape.files[f"{arm}.json"] = json.dumps(rows)


def changes_without_a_head(shape: shapes.Shape) -> None:
    """In a mail that is answered, figures end in a change that the head line does not name."""
    shape.arms = ("base", "patched")
    rows = [
        f"> > {n:5d} "
        + " ".join(f"{shape.value(a, n, 900.0 * n):>12s}" for a in shape.arms)
        + " -4.3%"
        for n in (1, 8, 64)
    ]
    text = "> > Throughput in ops, higher is better:\n> >\n> > threads   base     patched\n"
    shape.files["m.txt"] = (
        f"On Tue, A wrote:\n{text}{chr(10).join(rows)}\n>\n> Nice numbers, all.\n"
    )


def table_of_a_commit(shape: shapes.Shape) -> None:
    """No sentence is longer than three words, and the first column has no name."""
    shape.arms = ("before", "after")
    text = "With this patch:\n\n                      before       after     delta\n"
    for case, level in (("page-fault", 500.0), ("munmap 4K", 80.0), ("munmap 2M", 9000.0)):
        cells = "  ".join(f"{shape.value(arm, case, level)} ns" for arm in shape.arms)
        text += f"    {case:16s}  {cells}  -7.5%\n"
    shape.files["m.txt"] = text + "\nSigned-off-by: A\n"


def counts_with_commas(shape: shapes.Shape) -> None:
    """Commas between thousands cut no columns where blanks do."""
    rows = []
    for event, level in (("cycles", 10**9), ("instructions", 10**9), ("misses", 10**6)):
        counts = [float(shape.rng.randint(level, 2 * level)) for _ in shape.arms]
        for arm, count in zip(shape.arms, counts, strict=True):
            shape.put(arm, event, count)
        rows.append(f"{event:20s}" + "".join(f" {count:>16,.0f}" for count in counts) + "   +1.69%")
    head = f"event     {'        '.join(shape.arms)}    change"
    shape.files["e.txt"] = "\n".join([head, *rows]) + "\n"


def scores_without_a_unit(shape: shapes.Shape) -> None:
    """A direction of its own is enough where the unit is empty."""
    cases = {"compile": ("s", False), "glx": ("", True)}
    shape.files["a.json"] = json.dumps(
        [
            {
                "kernel": arm,
                "test": case,
                "value": float(value),
                "unit": cases[str(case)][0],
                "higherIsBetter": cases[str(case)][1],
            }
            for arm, case, _, value in shape.each(*cases)
        ]
    )


def answers_of_ping(shape: shapes.Shape) -> None:
    for arm in shape.arms:
        for run in range(shape.runs):
            value = shape.value(arm, "round trip avg", 0.05)
            shape.files[f"{arm}/run{run}.txt"] = (
                "PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n\n--- 10.0.0.2 ping"
                " statistics ---\n"
                "9 packets transmitted, 9 received, 0% packet loss, time 8014ms\n"
                f"rtt min/avg/max/mdev = 0.020/{value}/0.101/0.011 ms, ipg/ewma 0.055/0.046 ms\n"
            )


def boots_of_systemd(shape: shapes.Shape) -> None:
    shape.files["boots.txt"] = "".join(
        f"{arm}: Startup finished in {shape.value(arm, 'startup kernel', 1.3)}s (kernel)"
        f" + {shape.value(arm, 'startup userspace', 3.3)}s (userspace) = 4.482s\n"
        for _, arm in _runs(shape)
    )


def hours_of_jobs(shape: shapes.Shape) -> None:
    rows = []
    for run, arm in _runs(shape):
        seconds = shape.rng.randint(3600, 7000)
        shape.put(arm, "", float(seconds))
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        rows.append((arm, f"job{run}", clock))
    shape.table("kernel,job,wallclock", rows)


def pages_of_a_magazine(shape: shapes.Shape) -> None:
    """Names of arms in three words; units behind what was measured."""
    shape.arms = ("Linux 6.12 LTS", "Linux 6.18")
    cases = {"Blender BMW (sec)": 40.0, "x265 4K (fps)": 60.0, "nginx (req/s)": 9e4}
    head = f"| Test | {' | '.join(shape.arms)} | diff |\n|---|---|---|---|\n"
    rows = "".join(
        f"| {case} | {' | '.join(shape.value(a, case, level) for a in shape.arms)} | +2.5% |\n"
        for case, level in cases.items()
    )
    shape.files["a.md"] = f"We tested both.\n\n{head}{rows}"


def counts_of_latencies(shape: shapes.Shape) -> None:
    """latency count says how many there were: no time that is better short."""
    shape.files["a.json"] = json.dumps(
        [
            {
                "kernel": arm,
                "run": run,
                "latency": {
                    "mean_us": float(shape.value(arm)),
                    "count": shape.rng.randint(10**5, 2 * 10**5),
                },
            }
            for run, arm in _runs(shape)
        ]
    )


def console_of_several_boots(shape: shapes.Shape) -> None:
    """The kernel and the boot of a figure stand in the first line of each boot."""
    text = ""
    for run, arm in _runs(shape):
        text += f"[    0.000000] Linux version {arm} (me@box) (gcc 14.2.0) #1 SMP\n"
        text += f"[    3.{run:06d}] bench: warm up done\n"
        text += f"[    9.{run:06d}] bench: fault latency {shape.value(arm, '', 800.0)} ns\n"
    shape.files["serial.log"] = text


def nights_of_a_week(shape: shapes.Shape) -> None:
    days = ("Mon", "Tue", "Wed", "Thu", "Fri")
    rows = [(days[n % 5], a, run, shape.value(a)) for n, (run, a) in enumerate(_runs(shape))]
    shape.table("weekday,kernel,run,build_s", rows)


def folders_of_arms_and_nodes(shape: shapes.Shape) -> None:
    """No part of the path alone tells the files apart: a level is the arm, another a setting."""
    shape.arms = ("vanilla", "numa-fix-v3")
    for arm in shape.arms:
        for node, level in (("node0", 100.0), ("node1", 150.0)):
            figures = [shape.value(arm, node, level) for _ in range(shape.runs)]
            shape.files[f"r/{arm}/{node}/lat.txt"] = "# ns\n" + "\n".join(figures) + "\n"


def a_remark_with_a_comma(shape: shapes.Shape) -> None:
    shape.arms = ("6.16", "6.17")
    rows = [
        f"{m} {t} " + " ".join(shape.value(a, (m, t), 20.0 * t) for a in shape.arms)
        for m in (1, 2)
        for t in (2, 8)
    ]
    head = "# wakeup latency, schbench -m M -t T\nM T 6.16 6.17\n"
    shape.files["sb.txt"] = head + "\n".join(rows) + "\n"


def short_words_of_rates(shape: shapes.Shape) -> None:
    name = shape.rng.choice(("thrpt", "tput", "Operationen pro Sekunde", "Kpps", "NOPM"))
    shape.table(f"kernel,run,{name}", [(a, run, shape.value(a)) for run, a in _runs(shape)])


def queries_in_columns(shape: shapes.Shape) -> None:
    """q1_s and q3_s beside q2_s and q4_s are no quartiles."""
    cases = ("q1_s", "q2_s", "q3_s", "q4_s")
    rows = [
        (a, *(shape.value(a, case, 10.0 + n) for n, case in enumerate(cases))) for a in shape.arms
    ]
    shape.table("kernel," + ",".join(cases), rows)


def lists_called_value(shape: shapes.Shape) -> None:
    """A value that is a list holds the runs."""
    units = {"latency": "ms", "qps": "1/s"}
    shape.files["a.json"] = json.dumps(
        [
            {
                "kernel": arm,
                "metrics": {
                    name: {
                        "value": [float(shape.value(arm, name)) for _ in range(shape.runs)],
                        "unit": unit,
                    }
                    for name, unit in units.items()
                },
            }
            for arm in shape.arms
        ]
    )


def seconds_of_a_kernel(shape: shapes.Shape) -> None:
    rows = [(a, run, shape.value(a, "", 50.0)) for run, a in _runs(shape)]
    shape.table("kernel,run,s_per_kernel", rows)


READ = (
    queries_in_columns,
    lists_called_value,
    seconds_of_a_kernel,
    counts_of_latencies,
    console_of_several_boots,
    nights_of_a_week,
    folders_of_arms_and_nodes,
    a_remark_with_a_comma,
    short_words_of_rates,
    changes_without_a_head,
    table_of_a_commit,
    counts_with_commas,
    scores_without_a_unit,
    answers_of_ping,
    boots_of_systemd,
    hours_of_jobs,
    pages_of_a_magazine,
    sums_in_german,
    units_behind_numbered_runs,
    directions_called_min_and_max,
    jobs_a_minute,
    energy,
    measurements_of_a_robot,
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", READ, ids=lambda maker: maker.__name__)
def test_they_are_read(maker: shapes.Maker, seed: int, tmp_path: Path) -> None:
    shapes.check(maker, seed, tmp_path, "read")


def remarks_on_failures(shape: shapes.Shape) -> None:
    """A remark on a few rows says that they failed, though a figure stands there."""
    rows: list[tuple[object, ...]] = [(a, run, shape.value(a), "") for run, a in _runs(shape)]
    words = (
        "noisy neighbour - discard",
        "OOM-killed",
        "segfault in worker 3",
        "aborted by watchdog",
    )
    rows += [(arm, shape.runs + 1, 4.5, shape.rng.choice(words)) for arm in shape.arms]
    shape.table("kernel,attempt,elapsed_s,comment", rows)


def errors_of_some_runs(shape: shapes.Shape) -> None:
    rows: list[dict[str, object]] = [
        {"kernel": arm, "iter": run, "fsync_ms": float(shape.value(arm)), "error": None}
        for run, arm in _runs(shape)
    ]
    rows.append({"kernel": shape.arms[0], "iter": 50, "fsync_ms": 1.2, "error": "EIO"})
    shape.files["a.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)


def flags_of_an_unknown_kind(shape: shapes.Shape) -> None:
    """A column called ok that says one word nobody knows in every row fails no run."""
    shape.table("kernel,run,lat_us,ok", [(a, run, shape.value(a), "1i") for run, a in _runs(shape)])


def numbers_behind_arms(shape: shapes.Shape) -> None:
    """6.16_1, 6.16_2 ... are runs of an arm, and no arms."""
    shape.table("label,usec", [(f"{arm}_{run}", shape.value(arm)) for run, arm in _runs(shape)])


def counters_over_time(shape: shapes.Shape) -> None:
    """t_s is when the counters were read: no time that anything took."""
    shape.arms = ("6.16", "6.17")
    rows = []
    for arm in shape.arms:
        count = 0
        for at in range(0, 60, 5):
            count += shape.rng.randint(900, 1100)
            rows.append(f"{arm},{at},{count}")
            shape.put(arm, "", float(count))
    shape.files["a.csv"] = "\n".join(["kernel,t_s,pgfault", *rows]) + "\n"


def groups_of_trees(shape: shapes.Shape) -> None:
    """Columns called after trees, and numbers of groups before them."""
    shape.arms = ("tip", "tip+fix")
    rows = [
        f"{n:<6d}" + "".join(f"{shape.value(a, n, 5.0):>10s}" for a in shape.arms)
        for n in (1, 4, 16, 64)
    ]
    text = "hackbench -l 10000 (time in seconds)\n\ngroups       tip   tip+fix\n"
    shape.files["h.txt"] = text + "\n".join(rows) + "\n"


def rows_set_apart(shape: shapes.Shape) -> None:
    """outlier yes, or used n, says that a row does not count: asked, since its author chose."""
    name, yes, no = shape.rng.choice((("outlier", "yes", "no"), ("used", "n", "y")))
    rows = [(a, run, shape.value(a), no) for run, a in _runs(shape)]
    rows += [(arm, shape.runs + 1, "431.5", yes) for arm in shape.arms]
    shape.table(f"kernel,iter,ns,{name}", rows)


ASKED = (
    rows_set_apart,
    groups_of_trees,
    remarks_on_failures,
    errors_of_some_runs,
    flags_of_an_unknown_kind,
    numbers_behind_arms,
    counters_over_time,
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", ASKED, ids=lambda maker: maker.__name__)
def test_they_are_asked_about_and_the_proposal_is_right(
    maker: shapes.Maker, seed: int, tmp_path: Path
) -> None:
    shapes.check(maker, seed, tmp_path, "asked")


def test_rows_of_unknown_words_below_numbered_runs_are_asked(tmp_path: Path) -> None:
    shape = shapes.drawn(lambda shape: _wide(shape, ("Keskiarvo", "Hajonta")), 0)
    assert shapes.read(shape, tmp_path)[0] == "asked"
    with pytest.raises(reader.UndescribedError, match="rows called Keskiarvo, Hajonta runs"):
        reader.read(sorted(tmp_path.glob("*.csv")))


def test_a_title_in_one_blank_cuts_no_cells_below_it(tmp_path: Path) -> None:
    rows = "open  18.07 +- 2%   18.82 +- 1%\nmmap  11.42 +- 2%   10.6 +- 1%\n"
    (tmp_path / "a.txt").write_text(f"usec per call\ncase  6.16          6.17\n{rows}")
    with pytest.raises(reader.UndescribedError, match="a coefficient of variation"):
        reader.read([tmp_path / "a.txt"])


@pytest.mark.parametrize("names", [("v1", "v2", "v3"), ("patch-a", "patch-b", "patch-c")])
def test_three_versions_of_a_series_are_no_sandwich(names: tuple[str, ...], tmp_path: Path) -> None:
    rows = "".join(f"{arm},{run},10{run}.{n}\n" for n, arm in enumerate(names) for run in range(5))
    (tmp_path / "a.csv").write_text(f"series,rep,ns\n{rows}")
    (found,) = judged(tmp_path / "a.csv").findings
    assert [(pair.old, pair.new) for pair in found.pairs] == [*pairwise(names)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("latency_us,count_6.16,count_6.17\n1,9000,8000\n2,400,500\n4,30,20\n", "no list of runs"),
        ("test,6.12 -> 6.17\na,-2.1%\nb,+1.3%\nc,+3.8%\n", "where are the values of each arm"),
        (
            "kernel,run,us\n6.1,1,5.5\n6.2,1,6.5\n6.1,2,5.4\n6.2,2,6.4\n6.1,2,5.4\n",
            "stand there twice",
        ),
    ],
)
def test_what_lost_its_runs_is_asked_for_them(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(reader.UndescribedError, match=said):
        reader.read([tmp_path / "a.csv"])


def test_so_much_in_a_second_of_a_cpu_is_better_high() -> None:
    found = words.said("mb_per_cpu_s")
    assert (found.unit, found.better) == ("mb/cpu-s", Better.HIGHER)
    assert words.said("time_per_cpu_s").better is Better.LOWER


def test_arms_that_call_a_column_otherwise_are_told_where(tmp_path: Path) -> None:
    for arm, unit in (("6.12", "ms"), ("6.17", "us")):
        (tmp_path / f"{arm}.csv").write_text(f"run,latency_{unit}\n1,1.5\n2,1.6\n3,1.4\n")
    with pytest.raises(SpecError, match="latency_us where it is latency_ms in") as caught:
        reader.read([tmp_path])
    assert "in one unit" in caught.value.action


def test_columns_of_arms_in_unlike_units_are_asked_about(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("test,6.12 (ms),6.17 (us)\nopen,4.6,4298.5\nclose,1.6,1470\n")
    with pytest.raises(reader.UndescribedError, match="are in unlike units: put all into one"):
        reader.read([tmp_path / "a.csv"])


def test_quartiles_beside_a_median_stay_statistics(tmp_path: Path) -> None:
    rows = "".join(f"{a},{n},10.{n},8.{n},12.{n}\n" for a in ("6.1", "6.2") for n in range(5))
    (tmp_path / "a.csv").write_text(f"kernel,boot,p50_us,p25_us,p75_us\n{rows}")
    found = reader.read([tmp_path / "a.csv"])[1]
    assert [metric.name for metric in found.metrics] == ["us"]


def test_intervals_of_sysbench_are_one_run_over_time(tmp_path: Path) -> None:
    line = "s ] thds: 16 tps: 903.1 qps: 18000.00 lat (ms,95%): 20.00 err/s: 0.00\n"
    for arm in ("6.16", "6.17"):
        (tmp_path / f"{arm}.log").write_text("".join(f"[ {n}0{line}" for n in range(1, 6)))
    with pytest.raises(SpecError, match="one run over time"):
        reader.read([tmp_path])


@pytest.mark.parametrize(
    ("names", "ordered", "how"),
    [
        (["base", "+patch1", "revert"], ["base", "+patch1", "revert"], "words"),
        (["base", "+patch2", "mine"], ["base", "+patch2", "mine"], ""),
        (
            ["base", "patch1", "patch1-2", "revert"],
            ["base", "patch1", "patch1-2", "revert"],
            "words",
        ),
        (["1", "0"], ["0", "1"], "words"),
        (["True", "False"], ["False", "True"], "words"),
        (["on", "off"], ["off", "on"], "words"),
    ],
)
def test_a_revert_and_a_switch_have_their_place(
    names: list[str], ordered: list[str], how: str
) -> None:
    assert arms.in_order(names) == (ordered, how)
