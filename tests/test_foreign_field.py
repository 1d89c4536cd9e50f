# SPDX-License-Identifier: GPL-2.0-or-later
"""What people in the field hand over is read as it was measured, or asked about with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_field as field
import foreign_shapes as shapes
from foreign_records import imported, noise
from kdelta.analysis import judgement
from kdelta.analysis.judgement import JudgementChoice
from kdelta.errors import SpecError
from kdelta.foreign import reader
from kdelta.metric import Better
from kdelta.rendering import judge as page
from kdelta.table.columns import plain

BOOTS = 9


def rounded(cells: set[tuple[str, shapes.Values]]) -> set[tuple[str, shapes.Values]]:
    return {(arm, tuple(float(f"{value:.6g}") for value in values)) for arm, values in cells}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", field.READ, ids=lambda maker: maker.__name__)
def test_files_of_the_field_are_read(maker: shapes.Maker, seed: int, tmp_path: Path) -> None:
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    assert how == "read"
    assert rounded(shapes.cells(found)) == rounded(shapes.everything(shape))


def written(folder: Path, text: str, name: str = "a.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def shown(path: Path) -> str:
    return plain(page.show(judgement.judge("test", imported(path), JudgementChoice())))


def test_a_score_of_several_units_has_the_direction_of_each(tmp_path: Path) -> None:
    rows = "".join(
        f'{arm},"{test}","{mode}",25,{value},{value / 100},"{unit}"\n'
        for arm in ("6.16", "6.17")
        for test, mode, value, unit in (
            ("a.Bench.read", "thrpt", 12000.5, "ops/s"),
            ("a.Bench.lookup", "avgt", 10.5, "us/op"),
        )
    )
    head = '"kernel","Benchmark","Mode","Samples","Score","Score Error (99.9%)","Unit"\n'
    metrics = reader.read([written(tmp_path, head + rows)])[1].metrics
    assert {one.name: (one.unit, one.better) for one in metrics} == {
        "a.Bench.read": ("ops/s", Better.HIGHER),
        "a.Bench.lookup": ("us/op", Better.LOWER),
    }


def test_units_are_not_said_to_be_one_where_nothing_was_changed(tmp_path: Path) -> None:
    rows = "".join(f"{a},{b},9{b}.5,{'us' if b % 2 else 'ms'}\n" for b in range(6) for a in ARMS)
    found = reader.read([written(tmp_path, f"kernel,boot,lat_us,unit\n{rows}")])[1]
    assert not any("were put into" in note for note in found.notes)


ARMS = ("6.16", "6.17")


def test_differences_alone_are_no_figures(tmp_path: Path) -> None:
    rows = "".join(f"{test},{run},4.{run}\n" for test in ("open", "fork") for run in range(6))
    with pytest.raises(reader.UndescribedError, match="where are the values of each arm"):
        reader.read([written(tmp_path, f"benchmark,run,delta_percent\n{rows}")])


def test_the_most_memory_of_a_run_is_no_state(tmp_path: Path) -> None:
    rows = "".join(
        f"{arm},{boot},{9 + level}{boot}.5,{4000 + 7 * boot + level}\n"
        for boot in range(8)
        for level, arm in enumerate(ARMS)
    )
    found = reader.read([written(tmp_path, f"kernel,boot,real_s,max_rss_kb\n{rows}")])[1]
    assert not found.audited
    assert [metric.name for metric in found.metrics] == ["real_s"]


def test_arms_that_are_spelled_in_two_ways_are_asked_about(tmp_path: Path) -> None:
    rows = "".join(
        f"{arm},{boot},9{boot}.5\n" for boot in range(6) for arm in ("base", "Base", "patched")
    )
    with pytest.raises(reader.UndescribedError, match="'base' and 'Base' one arm"):
        reader.read([written(tmp_path, f"variant,boot,us\n{rows}")])


def test_figures_and_nothing_else_are_asked_about(tmp_path: Path) -> None:
    for name in ("before", "after"):
        written(tmp_path, "44.5\n44.7\n44.6\n44.4\n44.9\n", name)
    with pytest.raises(reader.UndescribedError, match="there is no head line"):
        reader.read([tmp_path / "before", tmp_path / "after"])


def test_buckets_are_no_runs(tmp_path: Path) -> None:
    rows = "".join(
        f"{arm},{end},{1000 - 7 * at - end}\n"
        for at, arm in enumerate(ARMS)
        for end in range(60, 200, 10)
    )
    with pytest.raises(reader.UndescribedError, match="A histogram is no list of runs"):
        reader.read([written(tmp_path, f"kernel,latency_us,count\n{rows}")])


def test_what_scatters_in_percent_is_asked_about(tmp_path: Path) -> None:
    rows = "".join(f"{arm};10;1{at}1.2us +- 1.1%\n" for at, arm in enumerate(ARMS))
    with pytest.raises(reader.UndescribedError, match="a coefficient of variation") as caught:
        reader.read([written(tmp_path, f"kernel;n;latency\n{rows}")])
    assert "cv_percent" in caught.value.proposal


def test_a_number_of_a_cpu_is_no_count(tmp_path: Path) -> None:
    rows = "".join(
        f"{arm},{arm}-{boot},{cpu},9{boot}.{cpu}\n"
        for arm in ARMS
        for boot in range(6)
        for cpu in range(3)
    )
    text = shown(written(tmp_path, f"kernel,boot,cpu,us\n{rows}"))
    assert "CPUs are what was requested" not in text


def test_a_log_of_the_kernel_is_no_table(tmp_path: Path) -> None:
    rows = "".join(
        f"[{100 + boot}.12345{boot}] Booting Linux {arm}\n"
        f"[{101 + boot}.2] selftest: mremap 1000 iterations took {4500 + 9 * boot + len(arm)} us\n"
        for boot in range(6)
        for arm in ("6.17.8", "6.18.2-rc1")
    )
    with pytest.raises(SpecError, match="nothing in it can be judged"):
        reader.read([written(tmp_path, rows, "dmesg.txt")])


def test_a_boot_in_other_languages(tmp_path: Path) -> None:
    for word in ("Démarrage", "Neustart", "Arranque"):
        rows = "".join(f"{arm},{boot},9{boot}.5\n" for boot in range(6) for arm in ARMS)
        path = written(tmp_path, f"kernel,{word},us\n{rows}")
        assert reader.read([path])[1].how[0].count(f"boot {word}") == 1


def turns(levels: dict[str, float], *, blocks: bool = False) -> str:
    jitter = noise(3)
    cells = [
        (arm, f"{jitter.gauss(level, level / 300):.6g}")
        for arm, level in levels.items()
        for _ in range(BOOTS)
    ]
    cells = cells if blocks else cells[::BOOTS] + [c for n, c in enumerate(cells) if n % BOOTS]
    rows = "".join(f"{at},{arm},{at},{value}\n" for at, (arm, value) in enumerate(cells))
    return f"order,kernel,boot,s\n{rows}"


def test_an_order_that_is_known_is_not_missing(tmp_path: Path) -> None:
    text = shown(written(tmp_path, turns({"6.16": 25.0, "6.17": 25.0}, blocks=True)))
    assert "measured one after the other" in text
    assert "a column order" not in text
    assert "runs of the arms in turn" in " ".join(text.split())


def test_small_figures_are_shown(tmp_path: Path) -> None:
    text = shown(written(tmp_path, turns({"6.16": 3.25e-5, "6.17": 3.25e-5})))
    own = text.partition("What other tools")[0]
    assert "e-05" in own
    assert " 0.000 " not in own


def test_ditto_marks_are_no_quotes(tmp_path: Path) -> None:
    text = (
        'kernel  test  us\n6.16  fork  9.5\n"  "  9.7\n"  mmap  3.2\n6.17  fork  9.9\n"  "  9.6\n'
    )
    found = reader.read([written(tmp_path, text + '"  mmap  3.4\n', "a.txt")])[1]
    read = [(one.arm, one.group, one.value) for one in found.readings]
    assert read[1] == ("6.16", (("test", "fork"),), 9.7)
    assert read[-1] == ("6.17", (("test", "mmap"),), 3.4)


def test_a_second_mode_is_no_wild_run(tmp_path: Path) -> None:
    jitter = noise(5)
    rows = "".join(
        f"{arm},{boot},{(130 if boot < 14 else 100) + jitter.gauss(0, 0.5):.2f}\n"
        for arm in ARMS
        for boot in range(20)
    )
    text = " ".join(shown(written(tmp_path, f"kernel,boot,ms\n{rows}")).split())
    assert "6.16: 6 of 20 lie far from the others, as a second mode does" in text


def test_a_rate_of_zero_is_no_short_sample(tmp_path: Path) -> None:
    rows = "".join(f"{arm},{boot},0\n" for boot in range(6) for arm in ARMS)
    rows += "6.17,7,1\n"
    text = " ".join(shown(written(tmp_path, f"kernel,boot,ops_per_s\n{rows}")).split())
    assert "values of zero: in such a run nothing was done" in text
