# SPDX-License-Identifier: GPL-2.0-or-later
"""Results as people who measure kernels keep them, in layouts that no format of ours describes.

Each set is drawn from a seed and says what is true of it: sorted values, or a mean, by arm,
settings and direction (as foreign_twins.Truth).  `DOUBTED`: sets that are to be asked about, with a
proposal that is right as it stands or after one edit.  `REFUSED`: sets with nothing to judge.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from foreign_twins import Truth

ARMS = ("6.16.12", "6.17.3")
BOOTS = 9
_Draw = Callable[["Set"], None]
SETS: dict[str, _Draw] = {}
DOUBTED: dict[str, tuple[str, str]] = {}  # one edit of the proposal: what is replaced, by what
REFUSED: dict[str, str] = {}  # words of the sentence


@dataclass(slots=True)
class Set:
    """Files by name, and the truth."""

    jitter: random.Random
    files: dict[str, str] = field(default_factory=dict)
    truth: Truth = field(default_factory=dict)
    levels: dict[str, list[float]] = field(default_factory=dict)

    def runs(self) -> Iterator[tuple[str, int, float]]:
        """(arm, boot from 1, value) in the order of arms."""
        for arm, values in self.levels.items():
            for at, value in enumerate(values, start=1):
                yield arm, at, value

    def is_true(self, better: str = "lower", *settings: str, means: bool = False) -> None:
        """What was drawn is the truth, of one metric."""
        for arm, values in self.levels.items():
            shown = [sum(values) / len(values)] if means else values
            key = (arm, frozenset(settings), f"m {better}")
            self.truth[key] = tuple(sorted(round(value, 4) for value in shown))

    def table(self, name: str, head: str, row: Callable[[str, int, float], str]) -> None:
        """A file with a line for each run."""
        self.files[name] = "".join(f"{line}\n" for line in (head, *(row(*r) for r in self.runs())))


def drawn(name: str, seed: int) -> Set:
    """That set, of that seed."""
    jitter = random.Random(f"{name} {seed}")  # noqa: S311  tables, not secrets
    found = Set(jitter)
    level = jitter.uniform(20, 800)
    for at, arm in enumerate(ARMS):
        middle = level * (1 + 0.1 * at)
        found.levels[arm] = [round(jitter.gauss(middle, middle / 80), 3) for _ in range(BOOTS)]
    SETS[name](found)
    return found


def written(found: Set, folder: Path, encoding: str = "utf-8") -> Path:
    """The folder with the files of a set."""
    for name, text in found.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(encoding))
    return folder


def plain_set(draw: _Draw) -> _Draw:
    """A set that is read right without help."""
    SETS[draw.__name__.strip("_").replace("_", "-")] = draw
    return draw


def _doubted(replaced: str = "", by: str = "") -> Callable[[_Draw], _Draw]:
    def keep(draw: _Draw) -> _Draw:
        plain_set(draw)
        DOUBTED[draw.__name__.strip("_").replace("_", "-")] = (replaced, by)
        return draw

    return keep


def _refused(words: str) -> Callable[[_Draw], _Draw]:
    def keep(draw: _Draw) -> _Draw:
        plain_set(draw)
        REFUSED[draw.__name__.strip("_").replace("_", "-")] = words
        return draw

    return keep


def _records(found: Set, name: str = "ns_per_page") -> list[dict[str, object]]:
    return [{"kernel": arm, "boot": boot, name: value} for arm, boot, value in found.runs()]


# JSON.


@plain_set
def _json_list_of_objects(found: Set) -> None:
    found.files["r.json"] = json.dumps(_records(found))
    found.is_true()


@plain_set
def _json_lines(found: Set) -> None:
    found.files["r.jsonl"] = "".join(json.dumps(one) + "\n" for one in _records(found))
    found.is_true()


@plain_set
def _json_lines_called_json(found: Set) -> None:
    found.files["r.json"] = "".join(json.dumps(one) + "\n" for one in _records(found))
    found.is_true()


@plain_set
def _json_arrays(found: Set) -> None:
    records = _records(found)
    found.files["r.json"] = json.dumps({key: [one[key] for one in records] for key in records[0]})
    found.is_true()


@plain_set
def _json_results_with_a_head(found: Set) -> None:
    head = {"date": "2026-03-01", "machine": {"cpu": "Xeon", "ram_gb": 64}}
    found.files["r.json"] = json.dumps({"meta": head, "results": _records(found)})
    found.is_true()


@plain_set
def _json_nested(found: Set) -> None:
    found.files["r.json"] = json.dumps(
        [
            {"kernel": arm, "boot": boot, "result": {"latency_us": value, "ok": True}}
            for arm, boot, value in found.runs()
        ]
    )
    found.is_true()


@plain_set
def _json_by_arm(found: Set) -> None:
    found.files["r.json"] = json.dumps(
        {arm: {"latency_ns": values} for arm, values in found.levels.items()}
    )
    found.is_true()


@plain_set
def _json_samples_by_arm_below(found: Set) -> None:
    kernels = {arm: {"samples_us": values} for arm, values in found.levels.items()}
    found.files["r.json"] = json.dumps({"host": "box1", "kernels": kernels})
    found.is_true()


@plain_set
def _json_runs_in_runs(found: Set) -> None:
    found.files["r.json"] = json.dumps(
        [
            {"kernel": arm, "boots": [{"boot": at, "lat_ns": v} for at, v in enumerate(values)]}
            for arm, values in found.levels.items()
        ]
    )
    found.is_true()


@plain_set
def _fio(found: Set) -> None:
    for arm, boot, value in found.runs():
        side = {"min": 1, "max": 9000, "mean": value, "stddev": 12.5}
        job = {"jobname": "randread", "error": 0, "read": {"io_bytes": 4096, "lat_ns": side}}
        found.files[f"{arm}/fio-{boot}.json"] = json.dumps(
            {"fio version": "fio-3.33", "timestamp": 1_700_000_000 + boot, "jobs": [job]}
        )
    found.is_true()


# Tables for the eye.


def _latency(found: Set, name: str = "t.csv", cut: str = ",", end: str = "\n") -> str:
    lines = [cut.join(("kernel", "boot", "latency_us"))]
    lines += [cut.join((arm, str(boot), str(value))) for arm, boot, value in found.runs()]
    found.is_true()
    found.files[name] = end.join(lines) + end
    return found.files[name]


@plain_set
def _title_and_blank_lines(found: Set) -> None:
    text = _latency(found, "t.csv").replace("\n", ",\n")
    found.files["t.csv"] = f"mprotect on the old box,,,\n,,,\n{text},,,\n"


@plain_set
def _title_with_a_comma(found: Set) -> None:
    text = _latency(found, "t.csv", ";")
    found.files["t.csv"] = f"measured in May, in the lab\n\n{text}"


@plain_set
def _tabs_and_carriage_returns(found: Set) -> None:
    _latency(found, "t.tsv", "\t", "\r\n")


@plain_set
def _byte_order_mark(found: Set) -> None:
    found.files["t.csv"] = "\ufeff" + _latency(found)


@plain_set
def _numbered_by_a_data_tool(found: Set) -> None:
    head, *rows = _latency(found).splitlines()
    found.files["t.csv"] = "".join(
        f"{line}\n" for line in (f",{head}", *(f"{at},{row}" for at, row in enumerate(rows)))
    )


@plain_set
def _database_client(found: Set) -> None:
    head, *rows = _latency(found, "t.txt", " | ").splitlines()
    found.files["t.txt"] = "\n".join(
        (f" {head}", "---------+------+-----------", *(f" {row}" for row in rows), "(18 rows)", "")
    )


@plain_set
def _framed(found: Set) -> None:
    rule = "+---------+------+------------+"
    head, *rows = (f"| {line} |" for line in _latency(found, "t.txt", " | ").splitlines())
    found.files["t.txt"] = "\n".join((rule, head, rule, *rows, rule, ""))


@plain_set
def _markdown_in_a_text(found: Set) -> None:
    head, *rows = (f"| {line} |" for line in _latency(found, "t.md", " | ").splitlines())
    table = "\n".join((head, "|---|---:|---:|", *rows))
    found.files["t.md"] = f"# Results\n\nTwo kernels were measured.\n\n{table}\n\nIt is slower.\n"


@plain_set
def _ruled_columns(found: Set) -> None:
    lines = ["kernel     boot  latency_us", "---------  ----  ----------"]
    lines += [f"{arm:<10} {boot:<5} {value}" for arm, boot, value in found.runs()]
    found.files["t.txt"] = "\n".join(lines) + "\n"
    found.is_true()


@plain_set
def _mean_below_the_runs(found: Set) -> None:
    old, new = found.levels.values()
    lines = [f"boot,{ARMS[0]}_ns,{ARMS[1]}_ns"]
    lines += [f"{at},{a},{b}" for at, (a, b) in enumerate(zip(old, new, strict=True), start=1)]
    lines += [f"mean,{sum(old) / 9:.3f},{sum(new) / 9:.3f}", "stddev,1.2,1.3"]
    found.files["t.csv"] = "\n".join(lines) + "\n"
    found.is_true()


@plain_set
def _statistics_in_rows(found: Set) -> None:
    means = [sum(values) / BOOTS for values in found.levels.values()]
    lines = [f"stat,{ARMS[0]} (ns),{ARMS[1]} (ns)", f"mean,{means[0]},{means[1]}"]
    lines += ["stddev,1.2,1.3", "n,9,9", "min,1,1", "max,999,999"]
    found.files["t.csv"] = "\n".join(lines) + "\n"
    found.is_true(means=True)


@plain_set
def _statistics_in_long_rows(found: Set) -> None:
    rows = []
    for arm, values in found.levels.items():
        rows += [f"{arm},mean,{sum(values) / BOOTS:.4f}", f"{arm},stddev,2", f"{arm},n,9"]
    found.files["t.csv"] = "\n".join(("kernel,stat,value_ns", *rows)) + "\n"
    found.is_true(means=True)


@plain_set
def _two_head_lines(found: Set) -> None:
    """As spreadsheets merge cells."""
    rows = [f"Test,{ARMS[0]},,{ARMS[1]},", ",mean,sd,mean,sd", "mmap (us),1.2,.1,1.3,.1"]
    found.files["t.csv"] = "\n".join((*rows, "fork (us),95,1,99,2")) + "\n"
    for arm, (mmap, fork) in zip(ARMS, ((1.2, 95.0), (1.3, 99.0)), strict=True):
        found.truth[arm, frozenset(), "mmap lower"] = (mmap,)
        found.truth[arm, frozenset(), "fork lower"] = (fork,)


@plain_set
def _units_below_the_head(found: Set) -> None:
    head, *rows = _latency(found).replace("latency_us", "latency").splitlines()
    found.files["t.csv"] = "\n".join((head, ",,us", *rows)) + "\n"


@plain_set
def _units_in_cells(found: Set) -> None:
    found.table("t.csv", "kernel,boot,latency", lambda *run: f"{run[0]},{run[1]},{run[2]} us")
    found.is_true()


@plain_set
def _unlike_units_in_cells(found: Set) -> None:
    found.levels = {arm: [900.0, 1100.0 + at] for at, arm in enumerate(ARMS)}

    def row(arm: str, boot: int, value: float) -> str:
        return f"{arm},{boot},{f'{value / 1000} ms' if value > 1000 else f'{value} us'}"

    found.table("t.csv", "kernel,boot,latency", row)
    found.is_true()


@plain_set
def _thousands(found: Set) -> None:
    found.levels = {
        arm: [float(int(value * 100_000)) for value in values]
        for arm, values in found.levels.items()
    }
    found.table(
        "t.csv", "kernel,boot,latency_ns", lambda *run: f'{run[0]},{run[1]},"{int(run[2]):,}"'
    )
    found.is_true()


@plain_set
def _list_in_brackets(found: Set) -> None:
    lines = ["kernel,samples_us"]
    lines += [f'{arm},"[{", ".join(map(str, v))}]"' for arm, v in found.levels.items()]
    found.files["t.csv"] = "\n".join(lines) + "\n"
    found.is_true()


@plain_set
def _unit_of_each_row(found: Set) -> None:
    """As Phoronix exports it: a row for each test, with a unit of its own."""
    means = [round(sum(values) / BOOTS, 3) for values in found.levels.values()]
    found.files["t.csv"] = (
        f"Suite of today\n\nTest,Unit,{ARMS[0]},{ARMS[1]}\n"
        f"Kernel build,Seconds,{means[0]},{means[1]}\nOpenSSL,byte/s,1234567,1230000\n"
    )
    for arm, mean, rate in zip(ARMS, means, (1234567.0, 1230000.0), strict=True):
        found.truth[arm, frozenset(), "Kernel build lower"] = (mean,)
        found.truth[arm, frozenset(), "OpenSSL higher"] = (rate,)


def _scattered(found: Set, between: str, end: str = "") -> None:
    means = {arm: round(sum(values) / BOOTS, 2) for arm, values in found.levels.items()}
    rows = [f"{arm},{mean}{between}1.25{end},9" for arm, mean in means.items()]
    found.files["t.csv"] = "\n".join(("kernel,time (ms),n", *rows)) + "\n"
    for arm, mean in means.items():
        found.truth[arm, frozenset(), "time lower"] = (mean,)


@_doubted()
def _plus_minus(found: Set) -> None:
    _scattered(found, " \u00b1 ")


@_doubted()
def _plus_minus_in_ascii(found: Set) -> None:
    _scattered(found, " +/- ")


@_doubted()
def _scatter_in_brackets(found: Set) -> None:
    _scattered(found, " (", ")")


@_doubted()
def _scatter_in_percent(found: Set) -> None:
    _scattered(found, " \u00b1 ", "%")


@_doubted()
def _decimal_comma(found: Set) -> None:
    """With three decimals each may be thousands."""
    found.table(
        "t.csv",
        "kernel;boot;latency_us",
        lambda *run: f"{run[0]};{run[1]};{_comma(run[2])}",
    )
    found.is_true()


def _comma(value: float) -> str:
    return f"{value:.3f}".replace(".", ",")


@_doubted('better = "none"', 'better = "lower"')
def _numbers_of_no_unit(found: Set) -> None:
    found.table("t.csv", "kernel,boot,mmap", lambda *run: f"{run[0]},{run[1]},{run[2]}")
    found.is_true()


@_refused("there is no head line: are the figures behind each kernel its runs")
def _no_head(found: Set) -> None:
    found.files["t.csv"] = "".join(f"{arm},{value}\n" for arm, _, value in found.runs())


@_refused("XML of a program that is not known")
def _a_page_of_markup(found: Set) -> None:
    found.files["composite.xml"] = "<?xml version='1.0'?><Suite><Result/></Suite>\n"
