# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as one HTML file: the verdict first, then all that it rests on; nothing in it runs."""

from __future__ import annotations

import base64
import io
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdelta.analysis.claims import Claim
from kdelta.analysis.explanation import Explanation
from kdelta.analysis.times import per_operation
from kdelta.errors import InfraError
from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import points
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.metric import number, plural
from kdelta.printable import printable
from kdelta.procfs import compiler_short
from kdelta.rendering import sentences, steps
from kdelta.rendering.explain import more, renamed
from kdelta.rendering.formats import asset, template
from kdelta.rendering.sentences import TRUST, effort
from kdelta.rendering.steps import StepDetail
from kdelta.rendering.times import level, scale
from kdelta.sample import TOTAL, UNKNOWN, Outcome, TrialResult
from kdelta.table.columns import short
from kdelta.table.ladders import failures_told
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 100.0  # width of the longest bar of the table of functions, of each side


def written(
    found: Claim, workloads: Mapping[str, Workload], detail: StepDetail | None = None
) -> str:
    """The whole file; its templates lie beside this module.

    detail: what the run kept beside the counts of the headline.
    """
    sections = tuple(_section(found, ladder) for ladder in _ordered(found))
    return template("page.html").render(
        style=asset("report.css"),
        found=found,
        sentence=_sentence(found, workloads),
        ends=sentences.releases(found) if found.headline and found.headline.worse else None,
        largest="" if found.timed or not found.headline else sentences.largest_function(found),
        verdict=_verdict(found),
        sections=sections,
        explained=found.explanation,
        functions=list(_functions(found.explanation)),
        renamed=_renamed(found.explanation),
        bar=_BAR,
        kernels=_kernels(found),
        uri=_uri,
        plural=plural,
        trust=TRUST,
        **_mechanism(found.explanation, detail or StepDetail()),
    )


def _mechanism(explained: Explanation | None, detail: StepDetail) -> dict[str, Any]:
    return {} if explained is None or explained.refused else steps.context(explained, detail)


def _uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _ordered(found: Claim) -> list[Ladder[Any]]:
    head = found.headline.ladder if found.headline else None
    rest = [ladder for ladder in found.report.ladders if ladder is not head]
    return [*([head] if head else []), *rest]


def _verdict(found: Claim) -> str:
    if found.headline:
        return found.headline.step.comparison.verdict
    return "SAME" if found.decided else "UNDECIDED"


def _sentence(found: Claim, workloads: Mapping[str, Workload]) -> str:
    if found.headline is not None:
        return sentences.first_sentence(found, found.headline, workloads)
    if not found.decided:
        return "No comparison of this run is decided."
    return (
        f"Nothing differs by more than {found.report.step_percent:g} % where a comparison was"
        " possible."
    )


def _section(found: Claim, ladder: Ladder[Any]) -> dict[str, Any]:
    """One scenario: its table, its plots, and what speaks against it."""
    divisor, unit = scale([ladder]) if found.timed else (1.0, "instructions")
    audits = (a for a in found.audits if (a.workload, a.scenario, a.point) == _names(ladder))
    return {
        "ladder": ladder,
        "unit": f"{unit} per {ladder.operation or 'operation'}",
        "beside": ladder.baseline or "the row above",
        "rows": [_row(found, ladder, rung, divisor) for rung in ladder.rungs],
        "plots": list(_plots(found, ladder)),
        "failures": list(failures_told(ladder.failures)),
        "builds": list(_builds(ladder)),
        "audit": next(audits, None),
    }


def _names(ladder: Ladder[Any]) -> tuple[str, str, str]:
    return ladder.workload, ladder.scenario, ladder.point


def _plots(found: Claim, ladder: Ladder[Any]) -> Iterator[tuple[str, Plot]]:
    if any(rung.total for rung in ladder.rungs):
        yield "Kernel by kernel", ladder_plot(ladder, timed=found.timed)
    if found.timed and (taken := readings(found.record, ladder)):
        yield "Every sample", samples_plot(ladder, taken)
        yield "In the order of measuring", order_plot(ladder, taken)


def _row(found: Claim, ladder: Ladder[Any], rung: Rung[Any], divisor: float) -> dict[str, Any]:
    """One kernel of a ladder's table, in words."""
    comparison = rung.comparison
    phases = {measure.phase: measure for measure in rung.phases}
    listed = ladder.phases if len(ladder.phases) > 1 else ()
    return {
        "arm": rung.arm,
        "value": _value(rung.total, divisor),
        "phases": [_value(phases.get(name), divisor) for name in listed],
        "against": _against(found, comparison) if comparison and rung.total else _alone(rung),
        "verdict": comparison.verdict if comparison else "",
        "n": f"{rung.ok} of {rung.planned}",
        "state": rung.state,
        "reasons": comparison.reasons if comparison and comparison.verdict != "SAME" else (),
    }


def _value(measure: Any, divisor: float) -> str:
    return number(measure.per_operation / divisor) if measure else "none"


def _alone(rung: Rung[Any]) -> str:
    if rung.skipped:
        return "not supported there"
    return "the same kernel again" if rung.control else "the first" if rung.total else "failed"


def _against(found: Claim, comparison: Comparison) -> str:
    words = effort(comparison, timed=found.timed)
    if comparison.ratio is None:
        return words
    text = f"x{comparison.ratio:.3f}, {words}"
    if comparison.interval:
        low, high = comparison.interval
        text += f" ({level(comparison.alpha)} interval {low:.3f} to {high:.3f})"
    return text + (f"; {comparison.crossing}" if comparison.crossing else "")


def _builds(ladder: Ladder[Any]) -> Iterator[str]:
    for rung in ladder.rungs:
        if rung.previous and rung.comparison and rung.comparison.differences:
            yield f"{rung.previous} to {rung.arm}: {', '.join(rung.comparison.differences)}"


def _renamed(explained: Explanation | None) -> str:
    rows = steps.shown_functions(explained) if explained else ()
    return renamed(explained, (row.function for row in rows)) if explained else ""


def _functions(explained: Explanation | None) -> Iterator[dict[str, Any]]:
    """Those that matter, then all others as one, so that the table adds up."""
    if explained is None or explained.refused:
        return
    longest = max((abs(row.delta) for row in explained.functions), default=0) or 1
    for row in steps.shown_functions(explained):
        calls = f"{_calls(row.calls_old, explained)} to {_calls(row.calls_new, explained)}"
        told = f"{calls} {row.status}".strip()
        yield _function(row.function, (row.old, row.new, row.delta), explained, told, 1 / longest)
    if rest := steps.other_functions(explained):
        name = plural(rest.count, "other")
        yield _function(name, (rest.old, rest.new, rest.delta), explained, "", 1 / longest)
    counts = explained.old_value, explained.new_value, explained.delta or 0
    yield _function("sum", counts, explained, "", 0)


def _function(
    name: str,
    counts: tuple[int | None, int | None, int],
    explained: Explanation,
    calls: str,
    by: float,
) -> dict[str, Any]:
    """A line of the table; by: what a bar is long for each instruction, of 1."""
    old, new, delta = counts
    per = explained.operations
    share = 100 * delta / explained.delta if explained.delta else 0.0
    return {
        "name": name,
        "old": "none" if old is None else number(old / per),
        "new": "none" if new is None else number(new / per),
        "change": more(delta / per),
        "share": f"{share:z.1f} %",
        "calls": calls,
        "bar": round(_BAR * abs(delta) * by, 2),
        "worse": delta > 0,
    }


def _calls(calls: int | None, explained: Explanation) -> str:
    if calls is None:
        return "none"
    each = calls / explained.operations
    return "<0.001" if 0 < each < 0.001 else f"{each:.3g}"


def _kernels(found: Claim) -> Sequence[tuple[str, ...]]:
    """Of each: name, release, package, compiler, build id, image."""
    told = {}
    identities = {arm.label: arm.kernel for arm in found.record.arms}
    for ladder in found.report.ladders:
        for rung in ladder.rungs:
            kernel = identities.get(rung.arm)
            told[rung.arm] = (
                rung.arm,
                rung.release or UNKNOWN,
                rung.version or "none",
                compiler_short(rung.compiler) or UNKNOWN,
                rung.build_id[:16] or UNKNOWN,
                (kernel.image_sha256[:16] if kernel else "") or UNKNOWN,
            )
    return tuple(told.values())


_LARGE = 1000  # from here on numbers have no decimals
MANY = 2000  # points from which they are one picture, not a shape each
_NAME = 18
_DPI = 130
_WIDE, _NARROW = 8.4, 3.9  # inches
_HUES = ("#3b82c4", "#c2722e", "#4f9d57", "#a35db5", "#c24f58", "#6f7fc9", "#8a8f2f", "#2f9a9a")


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """One trial's, per operation: ns of each sample, or instructions of each window."""

    arm: str
    trial: int
    values: tuple[float, ...]


def readings(record: RunRecord, ladder: Ladder[Any]) -> tuple[Readings, ...]:
    """Of the trials of a ladder that ended ok, by their order in the run."""
    part = dict(points(record))[ladder.point]
    labels = {arm.index: arm.label for arm in part.arms}
    found = [
        Readings(arm=labels[trial.arm], trial=trial.index, values=values)
        for trial in part.trials
        if (trial.workload, trial.scenario) == (ladder.workload, ladder.scenario)
        and trial.result
        and trial.result.outcome is Outcome.OK
        and (values := _readings_of(trial.result))
    ]
    return tuple(sorted(found, key=lambda each: each.trial))


def _readings_of(result: TrialResult) -> tuple[float, ...]:
    if result.timed.phases:
        return per_operation(result, TOTAL)[1]
    phases = result.exact.phases
    units = {(phase.operations, phase.operation) for phase in phases}
    operations = phases[0].operations if len(units) == 1 else 1
    windows: Sequence[list[int]] = [
        [user + kernel for user, kernel in zip(phase.user, phase.kernel, strict=False)]
        for phase in phases
    ]
    return tuple(sum(each) / operations for each in zip(*windows, strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ink:
    """The colours of one kind of page; every pair of text and ground has a contrast above 4.5."""

    text: str
    faint: str
    grid: str
    tones: dict[Verdict, str]


_LIGHT = Ink(
    text="#1d2129",
    faint="#5b6470",
    grid="#dfe3e8",
    tones={Verdict.REGRESSION: "#b3261e", Verdict.IMPROVEMENT: "#1b7a3d"},
)
_DARK = Ink(
    text="#e6e9ee",
    faint="#a3acb9",
    grid="#333a45",
    tones={Verdict.REGRESSION: "#ff8a80", Verdict.IMPROVEMENT: "#7fd69b"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One plot in its four forms, as SVG; told: what it shows, for who does not see it."""

    told: str
    light: bytes
    dark: bytes
    narrow_light: bytes
    narrow_dark: bytes


_Draw = Callable[["Axes", Ink, bool], None]


def ladder_plot(ladder: Ladder[Any], *, timed: bool) -> Plot:
    """Each kernel's value; the colour and a word say what its step is."""
    divisor, unit = scale([ladder]) if timed else (1.0, "instructions")
    rungs = [rung for rung in ladder.rungs if rung.total]
    values = [rung.total.per_operation / divisor for rung in rungs if rung.total]

    def draw(axes: Axes, ink: Ink, narrow: bool) -> None:  # noqa: FBT001
        places = range(len(rungs))
        colours = [_colour(rung, ink) for rung in rungs]
        axes.barh(places, values, color=colours, height=0.62)
        for at, (rung, value) in enumerate(zip(rungs, values, strict=True)):
            word = f" {rung.comparison.verdict}" if _stands_out(rung) and rung.comparison else ""
            text = f" {_axis_number(value)}{'' if narrow else word.lower()}"
            axes.text(value, at, text, va="center", color=ink.text, fontsize=9)
        axes.set_yticks(list(places), [_arm_label(rung.arm) for rung in rungs])
        axes.invert_yaxis()
        axes.set_xlim(0, max(values, default=1) * (1.25 if narrow else 1.22))
        if max(values, default=0) >= _LARGE:
            axes.locator_params(axis="x", nbins=3 if narrow else 6)
            axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set_xlabel(f"{unit} per {ladder.operation or 'operation'}")

    told = "; ".join(
        f"{rung.arm} {_axis_number(value)}"
        + (f" {rung.comparison.verdict}" if rung.comparison else "")
        for rung, value in zip(rungs, values, strict=True)
    )
    return _plot(draw, f"{unit} by kernel: {told}", height=0.9 + 0.32 * max(len(rungs), 1))


def _axis_number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= _LARGE else f"{value:.4g}"


def samples_plot(ladder: Ladder[Any], readings: Sequence[Readings]) -> Plot:
    """Every sample of every kernel, and the median of each trial."""
    divisor, unit = scale([ladder])
    arms = [rung.arm for rung in ladder.rungs]
    noise = random.Random(1)  # noqa: S311  where a point stands across its row means nothing
    rows = _by_arm(arms, readings, divisor)
    across = [[at + noise.uniform(-0.32, 0.32) for _ in row] for at, row in enumerate(rows)]
    medians = [(statistics.median(r.values) / divisor, arms.index(r.arm)) for r in readings]

    def draw(axes: Axes, ink: Ink, narrow: bool) -> None:  # noqa: FBT001, ARG001
        _scatter(axes, [[x for x, _ in row] for row in rows], across)
        xs, ys = [x for x, _ in medians], [y for _, y in medians]
        axes.scatter(xs, ys, s=110, marker="|", color=ink.text, linewidths=1.4, zorder=3)
        axes.set_yticks(list(range(len(arms))), [_arm_label(arm) for arm in arms])
        axes.set_ylim(len(arms) - 0.4, -0.6)
        axes.set_xlabel(f"{unit} per {ladder.operation or 'operation'}")

    told = (
        f"{sum(map(len, rows))} samples of {len(arms)} kernels, a point each; a bar is the median"
        f" of one of {len(medians)} trials"
    )
    return _plot(draw, told, height=1.0 + 0.55 * len(arms))


def order_plot(ladder: Ladder[Any], readings: Sequence[Readings]) -> Plot:
    """The same samples in the order in which they were taken: a drift of the machine is a slope."""
    divisor, unit = scale([ladder])
    arms = [rung.arm for rung in ladder.rungs]
    rows = _by_arm(arms, readings, divisor)

    def draw(axes: Axes, ink: Ink, narrow: bool) -> None:  # noqa: FBT001
        _scatter(
            axes, [[at for _, at in row] for row in rows], [[y for y, _ in row] for row in rows]
        )
        for at, arm in enumerate(arms):
            axes.scatter([], [], s=18, color=_hue(at), label=_arm_label(arm))
        axes.set_xlabel("samples in the order in which they were taken")
        axes.set_ylabel(f"{unit} per {ladder.operation or 'operation'}")
        columns = 2 if narrow else 4
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, frameon=False,
            labelcolor=ink.text, fontsize=8,
        )  # fmt: skip

    return _plot(draw, f"{sum(map(len, rows))} samples by the order of measuring", height=3.2)


def _by_arm(
    arms: Sequence[str], readings: Sequence[Readings], divisor: float
) -> list[list[tuple[float, int]]]:
    """Of each arm its samples, each with its place in the order of all."""
    rows: list[list[tuple[float, int]]] = [[] for _ in arms]
    place = 0
    for each in readings:
        own = rows[arms.index(each.arm)]
        for value in each.values:
            own.append((value / divisor, place))
            place += 1
    return rows


def _scatter(axes: Axes, xs: Sequence[Sequence[float]], ys: Sequence[Sequence[float]]) -> None:
    """The points of each arm in its hue."""
    many = sum(map(len, xs)) > MANY
    for at, (across, up) in enumerate(zip(xs, ys, strict=True)):
        axes.scatter(
            across,
            up,
            s=3 if many else 9,
            color=_hue(at),
            alpha=0.35 if many else 0.6,
            linewidths=0,
            rasterized=many,
        )


def _colour(rung: Rung[Any], ink: Ink) -> str:
    verdict = rung.comparison.verdict if rung.comparison else Verdict.SAME
    return ink.tones.get(verdict, "#7b8794")


def _stands_out(rung: Rung[Any]) -> bool:
    return bool(rung.comparison and rung.comparison.verdict is not Verdict.SAME)


def _hue(at: int) -> str:
    return _HUES[at % len(_HUES)]


def _arm_label(text: str) -> str:
    """A name as it is: "$" begins no formula."""
    return short(printable(text), _NAME).replace("$", r"\$")


def _plot(draw: _Draw, told: str, *, height: float) -> Plot:
    return Plot(
        told=told,
        light=_svg(draw, _LIGHT, _WIDE, height),
        dark=_svg(draw, _DARK, _WIDE, height),
        narrow_light=_svg(draw, _LIGHT, _NARROW, height),
        narrow_dark=_svg(draw, _DARK, _NARROW, height),
    )


def _svg(draw: _Draw, ink: Ink, width: float, height: float) -> bytes:
    """Text stays text, in the reader's own sans-serif face."""
    matplotlib = _library()
    from matplotlib.figure import Figure

    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "kdelta",
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": ink.text,
        "axes.labelcolor": ink.faint,
        "xtick.color": ink.faint,
        "ytick.color": ink.text,
        "axes.edgecolor": ink.grid,
        "text.parse_math": False,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(axis="x", color=ink.grid, linewidth=0.7)
        axes.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        draw(axes, ink, width == _NARROW)
        return _saved(figure)


def _saved(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(
        out, format="svg", transparent=True, dpi=_DPI, metadata={"Date": None, "Creator": None}
    )
    return out.getvalue()


def _library() -> Any:
    try:
        import matplotlib as found
    except ImportError as error:
        raise InfraError(
            "plots are drawn with matplotlib, which is not installed",
            action="pip install 'kdelta[page]'",
        ) from error
    return found
