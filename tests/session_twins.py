# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions like those that people publish, with one thing planted in each and a known answer.

Names, levels, units, order and layout are drawn from a seed; the rule says what is planted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

BOOTS = 9
NAMES = (
    ("6.16", "6.17"),
    ("v6.12.77", "v6.19.9"),
    ("base", "patched"),
    ("7.0.9", "7.1-rc3"),
    ("vanilla", "vanilla-fix"),
)
TIMES = ("ns_per_page", "lat_us", "Elapsed (ms)", "iteration_ns_per_page", "time_s")
RATES = ("MB/s", "ops_per_sec", "throughput_gb_s")
ARM_COLUMNS = ("kernel", "version", "exact_version", "build", "variant")


@dataclass(slots=True)
class Twin:
    """Files by name, and what must be found: the verdicts, and words that the page has.

    absent: words that it must not have.
    """

    rule: str
    verdicts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    files: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """The folder with all files."""
        root = folder / self.rule
        for name, rows in self.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [list(rows[0]), *(list(row.values()) for row in rows)]
            path.write_text("".join(",".join(line) + "\n" for line in lines))
        return root


@dataclass(slots=True)
class Draw:
    """What the seed chose."""

    jitter: random.Random
    arms: tuple[str, str]
    column: str
    metric: str
    level: float

    def rows(
        self, ratio: float, *, boots: int = BOOTS, seen: bool = True, **more: str
    ) -> list[dict[str, str]]:
        """A row for each boot, arms in turn; the new arm at `ratio` of the old one."""
        found: list[dict[str, str]] = []
        for boot in range(boots):
            for arm, level in zip(self.arms, (self.level, self.level * ratio), strict=True):
                row = {
                    "order": str(len(found)),
                    self.column: arm,
                    "boot": f"{arm}/{boot}",
                    self.metric: f"{self.jitter.gauss(level, level / 400):.5f}",
                    **({"unexpected_results": "0"} if seen else {}),
                    **more,
                }
                found.append(row)
        return found


def twin(rule: str, seed: int) -> Twin:
    """A twin of that rule."""
    jitter = random.Random(f"{rule} {seed}")  # noqa: S311  numbers to measure, not secrets
    metric = jitter.choice(RATES if rule.startswith("rate") else TIMES)
    draw = Draw(
        jitter=jitter,
        arms=jitter.choice(NAMES),
        column=jitter.choice(ARM_COLUMNS),
        metric=metric,
        level=jitter.uniform(20, 2000),
    )
    return RULES[rule](draw)


def _slower(draw: Draw) -> Twin:
    files = {"steps.csv": draw.rows(draw.jitter.uniform(1.2, 3))}
    return Twin("slower", ("REGRESSION",), ("holds: ",), files=files)


def _faster(draw: Draw) -> Twin:
    files = {"steps.csv": draw.rows(draw.jitter.uniform(0.4, 0.8))}
    return Twin("faster", ("IMPROVEMENT",), ("holds: ",), files=files)


def _rate_lower(draw: Draw) -> Twin:
    files = {"steps.csv": draw.rows(draw.jitter.uniform(0.4, 0.8))}
    return Twin("rate-lower", ("REGRESSION",), files=files)


def _same(draw: Draw) -> Twin:
    return Twin("same", ("SAME",), files={"steps.csv": draw.rows(1.0)})


def _backwards(draw: Draw) -> Twin:
    """The new arm comes first in the file; names tell which is older."""
    rows = draw.rows(draw.jitter.uniform(1.2, 3))
    rows.sort(key=lambda row: row[draw.column] == draw.arms[0])
    return Twin(
        "backwards", ("REGRESSION",), (f"{draw.arms[0]} -> {draw.arms[1]}",), files={"a.csv": rows}
    )


def _few(draw: Draw) -> Twin:
    files = {"steps.csv": draw.rows(2.0, boots=draw.jitter.choice((1, 2, 3)))}
    return Twin("few", ("UNDECIDED",), ("not decided: ",), files=files)


def _state(draw: Draw) -> Twin:
    rows = draw.rows(1.5)
    field_name = draw.jitter.choice(
        ("anon_huge_kb", "thp_eligible", "kernel_page_kb", "final_vmas")
    )
    for row in rows:
        row[field_name] = "0" if row[draw.column] == draw.arms[0] else "16384"
    return Twin("state", ("INVALID",), ("not comparable: ", field_name), files={"a.csv": rows})


def _gates(draw: Draw) -> Twin:
    """Every run of both arms had a wrong result: there is no time of a good run."""
    rows = draw.rows(1.5, seen=False)
    gate, text = draw.jitter.choice((("failed_pages", "3"), ("semantic_ok", "false")))
    for row in rows:
        row[gate] = text
    return Twin("gates", ("UNDECIDED",), (f"{gate} {text}",), files={"a.csv": rows})


def _one_gate(draw: Draw) -> Twin:
    """One run failed and reads ten times the others: it is left out and counted."""
    rows = draw.rows(1.5)
    rows[1]["unexpected_results"] = "7"
    rows[1][draw.metric] = f"{draw.level * 15:.3f}"
    words = (f"{draw.arms[1]} {BOOTS - 1}/{BOOTS}",)
    return Twin("one-gate", ("REGRESSION",), words, files={"a.csv": rows})


def _crash(draw: Draw) -> Twin:
    rows = draw.rows(1.5, status="ok")
    rows[2] |= {draw.metric: "", "status": "crashed"}
    words = (f"{draw.arms[0]} {BOOTS - 1}/{BOOTS}", "incomplete: ")
    return Twin("crash", ("REGRESSION",), words, files={"a.csv": rows})


def _statistics(draw: Draw) -> Twin:
    """Columns that would say the opposite, were they taken for times."""
    rows = draw.rows(1.5)
    for row in rows:
        old = row[draw.column] == draw.arms[0]
        for name in ("stdev_ns", "min_ns", "max_ns", "delta_pct"):
            row[name] = f"{draw.jitter.gauss(90 if old else 9, 1):.3f}"
    absent = ("IMPROVEMENT",)
    return Twin("statistics", ("REGRESSION",), absent=absent, files={"a.csv": rows})


def _paths(draw: Draw) -> Twin:
    """Two paths in one column that nobody listed: pooled they would be one wide arm."""
    column = draw.jitter.choice(("path", "what_was_done", "Verfahren", "kind_of_call"))
    slow = [{**row, column: "slow"} for row in draw.rows(1.5)]
    draw.level *= 20
    fast = [{**row, column: "fast"} for row in draw.rows(0.5)]
    for at, row in enumerate([*slow, *fast]):
        row["order"] = str(at)
    words = ("slow", "fast")
    return Twin("paths", ("REGRESSION", "IMPROVEMENT"), words, files={"a.csv": [*slow, *fast]})


def _summaries(draw: Draw) -> Twin:
    """Means alone, and a column that separates rows: no row stands for another."""
    rows = [
        {draw.column: arm, "layout": layout, f"mean_{draw.metric}": f"{level:.3f}"}
        for layout, ratio in (("shared", 1.4), ("distinct", 0.7))
        for arm, level in zip(draw.arms, (draw.level, draw.level * ratio), strict=True)
    ]
    words = ("+40.0", "-30.0")
    return Twin("summaries", ("UNDECIDED", "UNDECIDED"), words, files={"a.csv": rows})


def _cpus(draw: Draw) -> Twin:
    rows = [row for cpu in ("1", "8") for row in draw.rows(1.5, cpu=cpu)]
    for at, row in enumerate(rows):
        row["order"] = str(at)
    words = ("dimension cpu: 1, 8 CPUs are what was requested",)
    return Twin("cpus", ("REGRESSION", "REGRESSION"), words, files={"a.csv": rows})


def _one_cpu(draw: Draw) -> Twin:
    rows = draw.rows(1.5, requested_cpu="8", seen_cpu="1")
    return Twin("one-cpu", ("INVALID",), files={"a.csv": rows})


def _traced(draw: Draw) -> Twin:
    rows = draw.rows(1.5, function_profile_enabled="true")
    return Twin("traced", ("INVALID",), files={"a.csv": rows})


def _levels(draw: Draw) -> Twin:
    may = draw.rows(1.5)
    draw.level *= 2
    files = {"may/r.csv": may, "june/r.csv": draw.rows(1.5)}
    return Twin("levels", ("REGRESSION", "REGRESSION"), ("not reproduced: ", "apart"), files=files)


def _state_elsewhere(draw: Draw) -> Twin:
    audit = [
        {draw.column: arm, "anon_huge_kb": text}
        for arm, text in zip(draw.arms, ("0", "2048"), strict=True)
    ]
    files = {"timing/r.csv": draw.rows(1.5, seen=False), "audit/state.csv": audit}
    words = ("anon_huge_kb 0 against 2048",)
    return Twin("state-elsewhere", ("UNDECIDED",), words, files=files)


def _gate_worse(draw: Draw) -> Twin:
    draw.arms = ("base", "fix")
    good = draw.rows(0.7, scenario="target_scan")
    bad = draw.rows(1.3, scenario=draw.jitter.choice(("reverse_thp", "guard_file", "gate_8t")))
    for at, row in enumerate([*good, *bad]):
        row["order"] = str(at)
    verdicts = ("IMPROVEMENT", "REGRESSION")
    return Twin("gate-worse", verdicts, ("base -> fix: REJECT: ",), files={"a.csv": [*good, *bad]})


def _gate_kept(draw: Draw) -> Twin:
    draw.arms = ("base", "fix")
    good = draw.rows(0.7, scenario="target_scan")
    kept = draw.rows(1.0, scenario="reverse_thp")
    for at, row in enumerate([*good, *kept]):
        row["order"] = str(at)
    verdicts = ("IMPROVEMENT", "SAME")
    return Twin("gate-kept", verdicts, ("base -> fix: ACCEPT: ",), files={"a.csv": [*good, *kept]})


def _contradicted(draw: Draw) -> Twin:
    """A published mean that its own values do not make."""
    rows = []
    for arm, level in zip(draw.arms, (draw.level, draw.level * 1.5), strict=True):
        values = [draw.jitter.gauss(level, level / 400) for _ in range(BOOTS)]
        mean = sum(values) / BOOTS * (1.1 if arm == draw.arms[1] else 1)
        listed = " ".join(f"{value:.4f}" for value in values)
        rows.append(
            {
                draw.column: arm,
                "n": str(BOOTS),
                f"mean_{draw.metric}": f"{mean:.4f}",
                "values": listed,
            }
        )
    words = ("published, and not what the values make", draw.arms[1])
    return Twin("contradicted", ("UNDECIDED",), words, files={"a.csv": rows})


def _unordered(draw: Draw) -> Twin:
    draw.arms = ("zeta", "alpha")
    draw.column = "kernel"
    words = ("nothing says which arm is the old one", "zeta -> alpha")
    return Twin("unordered", ("REGRESSION",), words, files={"a.csv": draw.rows(1.5)})


def _no_unit(draw: Draw) -> Twin:
    draw.metric = draw.jitter.choice(("value", "reading", "result_value"))
    words = ("nothing says which direction is better",)
    return Twin("no-unit", ("UNDECIDED",), words, files={"a.csv": draw.rows(1.5)})


def _tail(draw: Draw) -> Twin:
    """A mean that stands still beside a tail that few calls pay."""
    draw.metric = "mean_lat_us"
    rows = draw.rows(1.0)
    for row in rows:
        level = 300.0 if row[draw.column] == draw.arms[0] else 390.0
        row["p99_lat_us"] = f"{draw.jitter.gauss(level, 1):.3f}"
    words = ("p99_lat_us", "+30")
    return Twin("tail", ("SAME", "REGRESSION"), words, files={"a.csv": rows})


def _blocks(draw: Draw, last: float, new: float) -> list[dict[str, str]]:
    """The old arm, the new one, and the old one again: sessions one after the other."""
    rows = []
    for session, (arm, level) in enumerate(
        ((draw.arms[0], 1.0), (draw.arms[1], new), (draw.arms[0], last)), start=1
    ):
        for boot in range(BOOTS):
            value = draw.jitter.gauss(draw.level * level, draw.level / 400)
            rows.append(
                {
                    "session": str(session),
                    draw.column: arm,
                    "boot": f"{session}/{boot}",
                    "ns_per_page": f"{value:.5f}",
                    "unexpected_results": "0",
                }
            )
    return rows


def _control_moved(draw: Draw) -> Twin:
    """What the new arm seems to be worth the old one moved by, too, when it came again."""
    rows = _blocks(draw, last=1.07, new=1.04)
    if draw.jitter.random() < 0.5:
        rows = [{"order": str(at), **row} for at, row in enumerate(rows)]
        for row in rows:
            del row["session"]
    words = ("against the midpoint of the old arms", "again")
    return Twin("control-moved", ("UNDECIDED",), words, files={"a.csv": rows})


def _control_stood(draw: Draw) -> Twin:
    """The same with an old arm that stands where it stood."""
    words = ("against the midpoint of the old arms, drift",)
    rows = _blocks(draw, last=1.0, new=1.2)
    return Twin("control-stood", ("REGRESSION",), words, files={"a.csv": rows})


def _one_drifts(draw: Draw) -> Twin:
    """The new arm gets slower from boot to boot, the old one stands still."""
    draw.metric = "ns_per_page"
    rows = draw.rows(1.05, boots=BOOTS + 3)
    for at, row in enumerate(rows):
        old, boot = row[draw.column] == draw.arms[0], at // 2
        level = 1 + (boot * 5 % 12 - 6) / 1000 if old else 1.05 + 0.03 * boot
        row[draw.metric] = f"{draw.level * level:.5f}"
    words = (f"{draw.arms[1]} drifts and {draw.arms[0]} does not",)
    absent = ("opposite directions",)
    return Twin("one-drifts", ("UNDECIDED",), words, absent, files={"a.csv": rows})


def _unit_lost(draw: Draw) -> Twin:
    """From one boot on, figures of both arms are a thousand times those before."""
    draw.metric = "time_us"
    rows = draw.rows(1.08)
    for row in rows[8:]:
        row[draw.metric] = f"{1000 * float(row[draw.metric]):.3f}"
    words = ("times its others: are the units the same?",)
    return Twin("unit-lost", ("UNDECIDED",), words, files={"a.csv": rows})


def _two_patches(draw: Draw) -> Twin:
    """Two patches that end in A and B are no arm and that arm again."""
    draw.arms, draw.metric = ("vanilla", "patchA"), "ns_per_page"
    rows = draw.rows(0.8)
    draw.arms = ("vanilla", "patchB")
    rows += [row for row in draw.rows(0.6) if row[draw.column] == "patchB"]
    for row in rows:
        del row["order"]
    words = ("vanilla -> patchA", "patchA -> patchB")
    return Twin("two-patches", ("IMPROVEMENT", "IMPROVEMENT"), words, files={"a.csv": rows})


RULES: dict[str, Callable[[Draw], Twin]] = {
    "slower": _slower,
    "faster": _faster,
    "rate-lower": _rate_lower,
    "same": _same,
    "backwards": _backwards,
    "few": _few,
    "state": _state,
    "gates": _gates,
    "one-gate": _one_gate,
    "crash": _crash,
    "statistics": _statistics,
    "paths": _paths,
    "summaries": _summaries,
    "cpus": _cpus,
    "one-cpu": _one_cpu,
    "traced": _traced,
    "levels": _levels,
    "state-elsewhere": _state_elsewhere,
    "gate-worse": _gate_worse,
    "gate-kept": _gate_kept,
    "contradicted": _contradicted,
    "unordered": _unordered,
    "no-unit": _no_unit,
    "tail": _tail,
    "control-moved": _control_moved,
    "control-stood": _control_stood,
    "one-drifts": _one_drifts,
    "unit-lost": _unit_lost,
    "two-patches": _two_patches,
}
