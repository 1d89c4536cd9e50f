# SPDX-License-Identifier: GPL-2.0-or-later
"""Columns and rows that seem to be arms, times or tests, and are none; and runs of arms."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from foreign_twins import said_by
from kdelta.errors import SpecError
from kdelta.foreign import loading, mapping, reader, unread

K = ("6.16", "6.17")
Values = tuple[float, ...]


def read(folder: Path, text: str, name: str = "a.csv") -> dict[tuple[str, str, str], Values]:
    """(arm, settings, direction) -> values."""
    (folder / name).write_text(text)
    found = said_by(reader.read([folder / name])[1])
    return {
        (arm, " ".join(sorted(settings)), metric.split()[-1]): values
        for (arm, settings, metric), values in found.items()
    }


@pytest.mark.parametrize(
    "head",
    [
        "base_1,base_2,base_3,fix_1,fix_2,fix_3",
        "base run1,base run2,base run3,fix run1,fix run2,fix run3",
        "base.0,base.1,base.2,fix.0,fix.1,fix.2",
        "base #1,base #2,base #3,fix #1,fix #2,fix #3",
    ],
)
def test_columns_of_arms_that_are_numbered_are_their_runs(head: str, tmp_path: Path) -> None:
    found = read(tmp_path, f"test,{head}\nopen (ns),1.1,1.2,1.3,2.1,2.2,2.3\n")
    assert found == {("base", "", "lower"): (1.1, 1.2, 1.3), ("fix", "", "lower"): (2.1, 2.2, 2.3)}


def test_so_are_those_of_versions(tmp_path: Path) -> None:
    head = "6.16_1,6.16_2,6.16_3,6.17_1,6.17_2,6.17_3"
    found = read(tmp_path, f"test,{head}\nopen (ns),1.1,1.2,1.3,2.1,2.2,2.3\n")
    assert found == {("6.16", "", "lower"): (1.1, 1.2, 1.3), ("6.17", "", "lower"): (2.1, 2.2, 2.3)}


def test_stable_releases_and_a_sandwich_are_no_runs(tmp_path: Path) -> None:
    found = read(tmp_path, "test,6.16.1,6.16.2,6.17.1,6.17.2\nopen (ns),1.1,1.2,2.1,2.2\n")
    assert {arm for arm, _, _ in found} == {"6.16.1", "6.16.2", "6.17.1", "6.17.2"}
    found = read(tmp_path, "boot,base_1_ns,fix_ns,base_2_ns\n1,1.1,1.2,1.3\n2,1.2,1.3,1.4\n")
    assert len({arm for arm, _, _ in found}) == 3


def test_a_figure_of_the_arms_is_no_arm(tmp_path: Path) -> None:
    found = read(tmp_path, "metric,base,fix,ci95\nfork_us,80,81,1.4\niops,50000,51000,600\n")
    assert {arm for arm, _, _ in found} == {"base", "fix"}


def test_a_number_that_is_unlike_the_arms_is_asked_about(tmp_path: Path) -> None:
    text = "metric,base,fix,weight\nfork_us,80,81,3\niops,50000,51000,1\n"
    with pytest.raises(reader.UndescribedError, match="is weight an arm"):
        read(tmp_path, text)


@pytest.mark.parametrize("mark", ["sd", "stddev", "\N{GREEK SMALL LETTER SIGMA}", "+/-", "min"])
def test_rows_below_others_that_name_a_statistic_are_theirs(mark: str, tmp_path: Path) -> None:
    text = f"test,6.16,6.17\nfork us,80,81\n{mark},3,2\nexec us,500,510\n{mark},12,21\n"
    (tmp_path / "a.csv").write_text(text)
    found = said_by(reader.read([tmp_path / "a.csv"])[1])
    assert {(arm, metric): values for (arm, _, metric), values in found.items()} == {
        ("6.16", "fork us lower"): (80.0,),
        ("6.17", "fork us lower"): (81.0,),
        ("6.16", "exec us lower"): (500.0,),
        ("6.17", "exec us lower"): (510.0,),
    }


def test_a_test_that_is_called_min_stays_one(tmp_path: Path) -> None:
    found = read(tmp_path, "test,6.16 us,6.17 us\nsort,80,81\nmin,3,2\nmax,3,4\n")
    assert {settings for _, settings, _ in found} == {"sort", "min", "max"}


def test_rows_of_statistics_that_stand_below_some_only_are_asked_about(tmp_path: Path) -> None:
    text = "test,6.16 us,6.17 us\nfork,80,81\nsd,3,2\nexec,500,510\nopen,5,6\nsd,1,2\n"
    with pytest.raises(reader.UndescribedError, match="of what are the rows called sd"):
        read(tmp_path, text)


def test_the_name_of_a_file_is_no_unit_for_its_letter(tmp_path: Path) -> None:
    found = read(tmp_path, "row,6.16,6.17\nopen,5,6\nclose,7,8\n", "s.csv")
    assert {better for _, _, better in found} == {"none"}
    found = read(tmp_path, "row,6.16,6.17\nopen,5,6\nclose,7,8\n", "us.csv")
    assert {better for _, _, better in found} == {"lower"}


def test_columns_of_both_sides_beside_commits_are_asked_about(tmp_path: Path) -> None:
    text = "commit,base_us,patched_us\naaaaaaa1,10.1,9.7\nbbbbbbb2,10.3,10.2\n"
    with pytest.raises(
        reader.UndescribedError, match="are base_us and patched_us what is"
    ) as asked:
        read(tmp_path, text)
    wish = loading.Wish(mappings=(mapping.parse(asked.value.proposal, "p"),))
    found = said_by(reader.read([tmp_path / "a.csv"], wish)[1])
    assert {(arm, *settings): values for (arm, settings, _), values in found.items()} == {
        ("base", "aaaaaaa1"): (10.1,),
        ("patched", "aaaaaaa1"): (9.7,),
        ("base", "bbbbbbb2"): (10.3,),
        ("patched", "bbbbbbb2"): (10.2,),
    }


@pytest.mark.parametrize("mark", ["\N{DITTO MARK}", '""""', "do.", "ditto"])
def test_marks_that_say_as_above_are_no_arms(mark: str, tmp_path: Path) -> None:
    rows = f"6.16,0,1.1\n{mark},1,1.2\n6.17,0,2.1\n{mark},1,2.2\n"
    found = read(tmp_path, f"kernel,boot,us\n{rows}")
    assert found == {("6.16", "", "lower"): (1.1, 1.2), ("6.17", "", "lower"): (2.1, 2.2)}


def test_a_point_that_may_be_between_thousands_is_asked_about(tmp_path: Path) -> None:
    text = "kernel;boot;ns\n6.16;0;987\n6.16;1;1.012\n6.17;0;1.002\n6.17;1;998\n"
    with pytest.raises(reader.UndescribedError, match=r"is the point of 1\.012 in ns between"):
        read(tmp_path, text)
    plain = read(tmp_path, text.replace("987", "0.987").replace("998", "0.998"))
    assert plain["6.16", "", "lower"] == (0.987, 1.012)


def test_running_totals_are_asked_about(tmp_path: Path) -> None:
    rows = "".join(f"{arm},{n},{10 * n + n % 2}.5\n" for arm in K for n in range(1, 7))
    with pytest.raises(reader.UndescribedError, match="does total_ns count on from run to run"):
        read(tmp_path, f"kernel,run,total_ns\n{rows}")


def test_times_of_work_that_differs_are_asked_about(tmp_path: Path) -> None:
    done = {"6.16": (9100, 8800, 9340, 9010, 8950), "6.17": (9220, 8870, 9150, 9080, 8760)}
    rows = "".join(
        f"{arm},{run},{count},{30 + run % 3}.5\n"
        for arm, counts in done.items()
        for run, count in enumerate(counts)
    )
    with pytest.raises(reader.UndescribedError, match="is duration_s the time of the requests"):
        read(tmp_path, f"kernel,run,requests,duration_s\n{rows}")


def test_text_that_looks_like_lists_is_looked_at_in_no_time() -> None:
    begun = time.process_time()
    for text in ("[[" + '"a" ' * 15000, "\n" * 65536):
        unread.unread(text, "a.json")
    assert time.process_time() - begun < 5


def test_buckets_of_a_histogram_are_settings(tmp_path: Path) -> None:
    found = read(tmp_path, "bucket_us,6.16,6.17\n1,10,20\n2,50,30\n4,20,31\n8,4,3\n")
    assert found["6.16", "2", "none"] == (50.0,)


REFUSED = {
    "HdrHistogram": "  Value  Percentile  TotalCount  1/(1-Percentile)\n\n   0.1 0.0 1 1.00\n",
    "iozone's table": "\tIozone: Performance Test of File I/O\n   kB reclen write rewrite\n",
    "bonnie": "1.98,1.98,lab,1,1700000000,16G,,8192,5,512,99,100,21,+++++,+++\n",
    "strace -c": "% time     seconds  usecs/call     calls    errors syscall\n 61 0.1 12 10 open\n",
}


@pytest.mark.parametrize("program", REFUSED)
def test_what_a_program_prints_is_refused_with_what_to_give(program: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=program) as caught:
        read(tmp_path, REFUSED[program], "6.16.txt")
    assert "kernel,run," in caught.value.action


def test_lists_of_lists_need_names(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="its lists have no names") as caught:
        read(tmp_path, '[["6.16", 1.5], ["6.17", 1.7]]', "a.json")
    assert '["kernel", "boot", "ns"]' in caught.value.action
    text = '[["kernel", "boot", "ns"], ["6.16", 1, 150.5], ["6.17", 1, 160.5]]'
    found = read(tmp_path, text, "a.json")
    assert found == {("6.16", "", "lower"): (150.5,), ("6.17", "", "lower"): (160.5,)}


def test_of_a_table_of_indices_the_results_are_read(tmp_path: Path) -> None:
    text = (
        "System Benchmarks Index Values               BASELINE       RESULT    INDEX\n"
        "Dhrystone 2 using register variables         116700.0   40000000.0   3427.6\n"
        "System Call Overhead                          15000.0    3000000.0   2000.0\n"
        "                                                                   ========\n"
        "System Benchmarks Index Score                                        2618.2\n"
    )
    (tmp_path / "a.txt").write_text(f"OS: GNU/Linux -- 6.16.1 -- x\n{text}")
    found = said_by(reader.read([tmp_path / "a.txt"])[1])
    assert {(arm, metric): values for (arm, _, metric), values in found.items()} == {
        ("6.16.1", "Dhrystone 2 using register variables higher"): (40000000.0,),
        ("6.16.1", "System Call Overhead higher"): (3000000.0,),
    }


def test_latencies_and_requests_of_mutilate(tmp_path: Path) -> None:
    text = (
        "#type       avg     std     min     5th    10th    90th    95th    99th\n"
        "read      100.5    12.1    40.3    60.1    66.0   130.2   150.1   220.9\n"
        "update      0.0     0.0     0.0     0.0     0.0     0.0     0.0     0.0\n"
        "op_q        1.0     0.0     1.0     1.0     1.0     1.1     1.1     1.1\n\n"
        "Total QPS = 100000.5 (300123 / 30.0s)\n"
    )
    for arm in ("6.16", "6.17"):
        (tmp_path / arm).mkdir()
        (tmp_path / arm / "m.txt").write_text(text)
    found = said_by(reader.read([tmp_path])[1])
    one = {values: key[2] for key, values in found.items() if key[0] == "6.16"}
    assert one[100.5,] == "mean latency lower"
    assert one[220.9,] == "latency at percentile lower"
    assert one[100000.5,] == "requests higher"
    assert len(one) == 7
