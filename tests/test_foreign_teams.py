# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables as distribution teams, database people and students publish them, by seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foreign_shapes as shapes
from kdelta.foreign import arms, reader


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


READ = (
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
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    assert how == "read"
    assert shapes.cells(found) == shapes.everything(shape)


def remarks_on_failures(shape: shapes.Shape) -> None:
    """A remark on a few rows says that they failed, though a figure stands there."""
    rows: list[tuple[object, ...]] = [(a, run, shape.value(a), "") for run, a in _runs(shape)]
    words = ("OOM-killed", "segfault in worker 3", "aborted by watchdog")
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


ASKED = (
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
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    assert how == "asked"
    assert shapes.cells(found) == shapes.everything(shape)


def test_rows_of_unknown_words_below_numbered_runs_are_asked(tmp_path: Path) -> None:
    shape = shapes.drawn(lambda shape: _wide(shape, ("Keskiarvo", "Hajonta")), 0)
    assert shapes.read(shape, tmp_path)[0] == "asked"
    with pytest.raises(reader.UndescribedError, match="rows called Keskiarvo, Hajonta runs"):
        reader.read(sorted(tmp_path.glob("*.csv")))


@pytest.mark.parametrize(
    ("names", "ordered", "how"),
    [
        (["base", "+p1", "+p1-2", "revert"], ["base", "+p1", "+p1-2", "revert"], ""),
        (["mine", "base", "+patch2"], ["base", "mine", "+patch2"], ""),
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
