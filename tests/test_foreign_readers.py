# SPDX-License-Identifier: GPL-2.0-or-later
"""Readers of strangers' files: what they take, and the place they name when they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreign_records import EVIDENCE, imported
from kdelta.errors import SpecError
from kdelta.foreign import loading, mapping, paths, reader, tables
from kdelta.foreign.arms import version_key
from kdelta.foreign.record import Foreign, ImportFormat
from kdelta.foreign.series import Case, cases
from kdelta.metric import Assume, Better
from kdelta.verdict.series import ReplicateUnit

BUNDLE_HEAD = "exact_version,metric,value,status,run_id,failure_reason\n"


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def mapped(path: Path, toml: str) -> Foreign:
    found = mapping.parse(toml, "map.toml")
    sources, contents, kind = reader.read([path], loading.Wish(mappings=(found,)))
    return Foreign(name="t", created="", kind=kind, sources=sources, contents=contents)


def only(foreign: Foreign) -> Case:
    (case,) = cases(foreign.contents)
    return case


@pytest.mark.parametrize(
    ("text", "place", "cause"),
    [
        (b"", "line 1", "no head line"),
        (b"kernel,kernel\n", "line 1, column 2", 'two columns are called "kernel"'),
        (b"kernel,\n", "line 1, column 2", "no name"),
        (b"kernel,x_ns\n6.1,5\n6.2\n", "line 3, column x_ns", "1 cells where the head has 2"),
        (b"kernel,x_ns\n6.1,5,7\n", "line 2, column x_ns", "3 cells"),
        (b'kernel,x_ns\n"6.1,5\n', "line 2", "not a table"),
        (b"kernel,x_ns\n6.1,\xff\n", "line 2, byte 5", "not UTF-8"),
        (b"kernel,x_ns\n6.1,5\n6.2,\0\n", "line 3, character 5", "NUL"),
        (b"kernel,x_ns\n6.1,inf\n", "line 2, column x_ns", '"inf" is not a number'),
        (b"kernel,x_ns\n6.1,1e999\n", "line 2, column x_ns", "not a number"),
        (b"kernel,x_ns\n6.1,1_0\n", "line 2, column x_ns", "not a number"),
        ("kernel,x_ns\n6.1,٣\n".encode(), "line 2, column x_ns", "not a number"),
        (b"kernel,step,x_ns\n6.1,one,5\n", "line 2, column step", "not a whole number"),
        (b"kernel,mean_x_ns,n,values\n6.1,5,3,5 5\n", "line 2, column values", "list of 3 values"),
        (b"kernel,mean_x_ns,values\n6.1,5,5;five\n", "line 2, column values", "not a number"),
    ],
)
def test_wrong_table_names_line_and_column(
    tmp_path: Path, text: bytes, place: str, cause: str
) -> None:
    with pytest.raises(SpecError, match=cause) as caught:
        imported(write(tmp_path / "steps.csv", text))
    assert caught.value.place == f"steps.csv: {place}"


def test_very_long_cell_and_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.csv", "kernel,x_ns\n" + "6" * 70000 + ",5\n")
    with pytest.raises(SpecError, match="70000 characters, more than 65536"):
        imported(path)
    monkeypatch.setattr(tables, "MAX_BYTES", 1000)
    with pytest.raises(SpecError, match="larger than"):
        imported(path)


def test_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MAX_FILES", 3)
    for number in range(5):
        write(tmp_path / "set" / f"{number}.csv", "kernel,x_ns\n6.1,5\n")
    with pytest.raises(SpecError, match="more than 3 files"):
        imported(tmp_path / "set")


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    secret = write(tmp_path / "elsewhere.csv", "kernel,x_ns\nsecret,5\n")
    write(tmp_path / "set" / "a.csv", "kernel,x_ns\n6.1,5\n")
    (tmp_path / "set" / "b.csv").symlink_to(secret)
    assert [source.name for source in imported(tmp_path / "set").sources] == ["set/a.csv"]


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("execution_order.json", '{"steps": [{"suite_name": "a"}]}', "a step needs"),
        ("execution_order.json", '{"steps": 5}', "not what the framework writes"),
        ("pipeline_run_env.json", '{"profiles": [{"name": "a"}]}', "a profile needs"),
        ("pipeline_run_env.json", '{"a": NaN}', "NaN is not a number"),
        ("pipeline_run_env.json", '{"a": 1, "a": 2}', "twice"),
        ("pipeline_run_env.json", "[1]", "no JSON object"),
        ("pipeline_run_env.json", '{"a": }', "not JSON"),
        ("pipeline_run_env.json", "[" * 100_000, "not JSON"),
    ],
)
def test_wrong_bundle_file_is_named(tmp_path: Path, name: str, text: str, cause: str) -> None:
    write(tmp_path / "b" / "raw.csv", f"{BUNDLE_HEAD}6.1,x_ns,5,ok,r1,\n")
    write(tmp_path / "b" / name, text)
    with pytest.raises(SpecError, match=cause) as caught:
        imported(tmp_path / "b")
    assert name in caught.value.place


def test_bundle_run_that_is_ok_needs_a_value(tmp_path: Path) -> None:
    write(tmp_path / "b" / "raw.csv", f"{BUNDLE_HEAD}6.1,x_ns,5,ok,r0,\n6.1,x_ns,,ok,r1,\n")
    with pytest.raises(SpecError, match="nothing says that the run failed"):
        imported(tmp_path / "b")


def test_every_line_of_every_source_is_kept() -> None:
    folder = EVIDENCE / "mprotect-baremetal" / "exact-cac1"
    for source in imported(folder).sources:
        path = EVIDENCE / "mprotect-baremetal" / source.name
        lines = path.read_text().splitlines()
        assert ["\t".join(source.columns), *("\t".join(x.cells) for x in source.lines)] == lines


@pytest.mark.parametrize("folder", ["mprotect-qemu", "madvise-qemu", "mincore-qemu"])
def test_whole_trees_are_read(folder: str) -> None:
    assert cases(imported(EVIDENCE / folder).contents)


def test_versions_sort_as_versions() -> None:
    names = ["7.1.0", "6.9.1", "v6.12.3", "7.1.0-rc3-mm", "6.12.10"]
    assert sorted(names, key=version_key) == [
        "6.9.1",
        "v6.12.3",
        "6.12.10",
        "7.1.0-rc3-mm",
        "7.1.0",
    ]


# A mapping.

LONG = """
replicate = "boot"
planned = 3
[columns]
arm = "who"
metric = "what"
value = "figure"
boot = "boot"
position = "seq"
status = "end"
failure = "why"
unit = "unit"
better = "dir"
dimensions = ["cpus"]
state = ["thp"]
[facts]
clocksource = "tsc"
"""
LONG_CSV = """\
who,what,figure,boot,seq,end,why,unit,dir,cpus,thp
old,bw,10.5,b1,0,ok,,MB/s,higher,4,0
old,bw,10.7,b1,0,ok,,MB/s,higher,4,0
new,bw,12,b2,1,ok,,MB/s,higher,4,2048
old,bw,,b3,2,crash,oops,MB/s,higher,4,0
"""


def test_mapping_of_a_long_table(tmp_path: Path) -> None:
    case = only(mapped(write(tmp_path / "a.csv", LONG_CSV), LONG))
    assert case.group == (("cpus", "4"),)
    assert (case.metric.unit, case.metric.better) == ("MB/s", Better.HIGHER)
    old = case.arm("old")
    assert old is not None
    assert [boot.values for boot in old.boots] == [(10.5, 10.7), ()]  # two samples of one boot
    assert (old.planned, old.replicate, old.boots[1].failure) == (3, ReplicateUnit.BOOT, "oops")
    assert old.fact("clocksource") == "tsc"
    assert old.state == (("thp", "0"),)


def test_mapping_of_a_wide_table(tmp_path: Path) -> None:
    toml = """
delimiter = ";"
[columns]
arm = "k"
[metrics.latency]
value = "lat"
unit = "us"
better = "lower"
assume = "exact"
"""
    case = only(mapped(write(tmp_path / "a.csv", "k;lat\n6.1;5\n6.1;6\n"), toml))
    assert (case.metric.name, case.metric.assume) == ("latency", Assume.EXACT)
    assert case.series[0].values == (5.0, 6.0)
    assert case.series[0].replicate is ReplicateUnit.PROCESS_ROUND


@pytest.mark.parametrize(
    ("toml", "cause"),
    [
        ("[columns", "not TOML"),
        ("[columns]\n", "no column with figures"),
        ('[columns]\narm = "a"\n', "no column with figures"),
        ('[columns]\narm = "a"\ncolour = "b"\n', "colour"),
        (
            '[columns]\narm = "a"\nmetric = "m"\nvalue = "v"\n[metrics.x]\nvalue = "c"\n',
            "one place",
        ),
        ('delimiter = "xx"\n[columns]\narm = "a"\n', "delimiter"),
        ('replicate = "day"\n[columns]\narm = "a"\n', "replicate"),
    ],
)
def test_wrong_mapping_is_refused(toml: str, cause: str) -> None:
    with pytest.raises(SpecError, match=cause) as caught:
        mapping.parse(toml, "map.toml")
    assert caught.value.place.startswith("map.toml")


@pytest.mark.parametrize(
    ("old", "new", "cause", "place"),
    [
        ("figure,", "fig,", "no column", "a.csv: line 1"),
        ("higher,4,2048", "up,4,2048", "lower", "a.csv: line 4, column dir"),
        ("old,bw,10.7", ",bw,10.7", "name of an arm", "a.csv: line 3, column who"),
        ("10.7", "", "nothing says that the run failed", "a.csv: line 3, column figure"),
        ("12,b2,1,ok,,MB/s", "12,b2,1,ok,,GB/s", "unit and direction", "a.csv: line 4"),
        ("12,b2,1,ok,,MB/s", "12,b2,1,ok,,", "unit of", "a.csv: line 4"),
    ],
)
def test_table_that_does_not_fit_the_mapping(
    tmp_path: Path, old: str, new: str, cause: str, place: str
) -> None:
    path = write(tmp_path / "a.csv", LONG_CSV.replace(old, new, 1))
    with pytest.raises(SpecError, match=cause) as caught:
        mapped(path, LONG)
    assert caught.value.place.startswith(place)


# The Go benchmark format.

BENCHMARKS = """\
goos: linux
Unit req/s better=higher assume=nothing
Unit insns/op assume=exact better=lower
arm: old
BenchmarkScan/pages=16384-8   	 100	 512.5 ns/op	 80 req/s	 19 insns/op
BenchmarkScan/pages=16384-8   	 100	 514.0 ns/op	 81 req/s	 19 insns/op
arm: new
BenchmarkScan/pages=16384-8   	 120	 498.0 ns/op	 82 req/s	 18 insns/op	 7 odd/op
PASS
ok  	example.com/x	1.2s
"""


def test_benchmark_format_with_several_units_a_line(tmp_path: Path) -> None:
    foreign = imported(write(tmp_path / "bench.txt", BENCHMARKS))
    assert foreign.kind == ImportFormat.BENCHFMT
    found = {case.metric.name: case for case in cases(foreign.contents)}
    assert set(found) == {"ns/op", "req/s", "insns/op"}
    assert found["ns/op"].group == (("benchmark", "Scan/pages=16384-8"),)
    assert found["ns/op"].series[0].values == (512.5, 514.0)
    assert found["req/s"].metric.better is Better.HIGHER
    assert found["insns/op"].metric.assume is Assume.EXACT
    assert any("odd/op" in note for note in foreign.contents.notes)  # no direction: not judged


def test_file_names_the_arm_without_a_label(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{k}.txt", "BenchmarkX 1 5 ns/op\n") for k in ("old", "new")]
    assert [s.arm for s in only(imported(*paths)).series] == ["old", "new"]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("BenchmarkX 1 5", "pairs of value and unit"),
        ("BenchmarkX one 5 ns/op", "whole number"),
        ("BenchmarkX 1 five ns/op", "not a number"),
        ("Unit", "without a unit"),
        ("Unit ns/op better", "not key=value"),
        ("Unit ns/op better=less", 'better is "less"'),
        ("Unit req/s better=lower", "was higher before"),
    ],
)
def test_wrong_benchmark_line_names_its_line(tmp_path: Path, line: str, cause: str) -> None:
    path = write(tmp_path / "bench.txt", BENCHMARKS + line + "\n")
    with pytest.raises(SpecError, match=cause) as caught:
        imported(path)
    assert caught.value.place.startswith("bench.txt: line 11")


# kernbench.


def kernbench(user: str, system: str, elapsed: str) -> str:
    """What GNU time leaves behind a build."""
    return (
        f"{user}user {system}system {elapsed}elapsed 186%CPU"
        " (0avgtext+0avgdata 221844maxresident)k\n"
        "0inputs+1538240outputs (12major+16500123minor)pagefaults 0swaps\n"
    )


def test_kernbench_logs(tmp_path: Path) -> None:
    for arm, base in (("6.12", 241.17), ("6.13", 250.5)):
        for iteration in (1, 2, 3):
            minutes, seconds = divmod(base + iteration, 60)
            text = kernbench("412.33", "38.21", f"{minutes:.0f}:{seconds:05.2f}")
            name = f"log/{arm}/iter-0/kernbench/logs/kernbench-2-{iteration}.time"
            write(tmp_path / name, text)
    foreign = imported(tmp_path / "log")
    assert foreign.kind == ImportFormat.KERNBENCH
    found = {case.metric.name: case for case in cases(foreign.contents)}
    assert set(found) == {"user", "syst", "elsp"}
    elapsed = found["elsp"]
    assert elapsed.group == (("jobs", "2"),)
    assert [series.arm for series in elapsed.series] == ["6.12", "6.13"]
    assert elapsed.series[0].values == pytest.approx((242.17, 243.17, 244.17))
    assert elapsed.series[0].replicate is ReplicateUnit.PROCESS_ROUND
    assert found["syst"].series[1].values == (38.21,) * 3


def test_kernbench_hours_and_several_lines_a_file(tmp_path: Path) -> None:
    text = kernbench("9000.01", "1.5", "1:02:03") + kernbench("1", "2", "0:04.5")
    found = {c.metric.name: c for c in cases(imported(write(tmp_path / "time", text)).contents)}
    assert found["elsp"].series[0].values == (3723.0, 4.5)


@pytest.mark.parametrize(
    ("text", "cause"),
    [("", "no line such as"), (kernbench("1", "2", "0:03").replace("0:03", "soon"), "elapsed")],
)
def test_wrong_kernbench_log(tmp_path: Path, text: str, cause: str) -> None:
    path = write(tmp_path / "kernbench-2-1.time", text)
    with pytest.raises(SpecError, match=cause):
        imported(path, kind=ImportFormat.KERNBENCH)


# lkp.


def matrix(folder: Path, arm: str, **stats: object) -> None:
    runs = {"stats_source": [f"/result/x/{arm}/{n}/stats.json" for n in range(4)]}
    write(folder / "lkp" / arm / "matrix.json", json.dumps(runs | stats))


def test_lkp_matrices(tmp_path: Path) -> None:
    ops = "will-it-scale.per_process_ops"
    matrix(tmp_path, "aaaa", **{ops: [100, 101, 99, 100.5], "proc-vmstat.x": [1, 1, 1, 1]})
    incomplete = {"last_state.is_incomplete_run": [0, 0, 1, 0]}
    matrix(tmp_path, "bbbb", **{ops: [120, 121, 0]}, **incomplete)
    foreign = imported(tmp_path / "lkp")
    assert foreign.kind == ImportFormat.LKP
    case = only(foreign)
    assert (case.metric.name, case.metric.better) == (ops, Better.HIGHER)
    first, second = case.series
    assert first.values == (100.0, 101.0, 99.0, 100.5)
    assert [boot.failure for boot in second.boots] == [
        "",
        "",
        "lkp marked the run incomplete",
        "no value",
    ]
    assert second.planned == 4


@pytest.mark.parametrize(
    ("stats", "cause"),
    [
        ({"a.throughput": [1, 2, "x", 4]}, "not a number"),
        ({"a.throughput": [1, 2, True, 4]}, "not a number"),
        ({"a.throughput": 5}, "no list"),
        ({"a.throughput": [1] * 5}, "at most 4"),
        ({"stats_source": "x", "a.throughput": [1]}, "no list of runs"),
    ],
)
def test_wrong_lkp_matrix(tmp_path: Path, stats: dict[str, object], cause: str) -> None:
    matrix(tmp_path, "aaaa", **stats)
    with pytest.raises(SpecError, match=cause):
        imported(tmp_path / "lkp")


def test_direction_of_an_lkp_statistic_may_be_given(tmp_path: Path) -> None:
    matrix(tmp_path, "aaaa", **{"x.odd": [1, 2, 3, 4]})
    toml = '[metrics."x.odd"]\nunit = "s"\nbetter = "lower"\n'
    known = mapping.parse(toml, "map.toml")
    _, contents, _ = reader.read(
        [tmp_path / "lkp"], loading.Wish(kind=ImportFormat.LKP, mappings=(known,))
    )
    assert [metric.unit for metric in contents.metrics] == ["s"]


# What is what.


def test_formats_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "mix" / "a.txt", "BenchmarkX 1 5 ns/op\n")
    write(tmp_path / "mix" / "b.time", kernbench("1", "2", "0:03"))
    with pytest.raises(SpecError, match="several formats: benchfmt, kernbench"):
        imported(tmp_path / "mix")


@pytest.mark.parametrize("text", ["hello\n", "kernel,colour\n6.1,red\n"])
def test_nothing_to_judge(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / ("a.csv" if "," in text else "a.txt"), text)
    with pytest.raises(SpecError, match="nothing in it can be judged"):
        imported(path)


def test_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        imported(tmp_path / "gone.csv")
