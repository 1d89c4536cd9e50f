# SPDX-License-Identifier: GPL-2.0-or-later
"""Mappings that say what cannot be: the line, the key and what may stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdelta.errors import SpecError
from kdelta.foreign import loading, mapping, reader
from kdelta.foreign.series import cases

PLAIN = '[columns]\narm = "kernel"\nboot = "boot"\n[metrics.ns]\nvalue = "ns"\n'
TABLE = "kernel,boot,ns\n6.16,1,100\n6.17,1,110\n6.16,2,101\n6.17,2,112\n"
SPLIT = "kernel,config,ns\n" + "".join(
    f"{kernel},{config},{figure + at}\n"
    for at in range(3)
    for config, figure in (("8CPU/16GiB", 100), ("4CPU/8GiB", 300))
    for kernel in ("6.16", "6.17")
)
SPLIT_KEYS = """
[split.config]
into = ["cpu", "memory"]
at = "/"
[columns]
arm = "kernel"
[metrics.ns]
value = "ns"
unit = "ns"
better = "lower"
"""


def refused(toml: str) -> str:
    with pytest.raises(SpecError) as caught:
        mapping.parse(toml, "m.toml")
    return caught.value.sentence()


def mapped(folder: Path, table: str, toml: str) -> tuple[tuple[str, ...], ...]:
    """The groups of an import by a mapping."""
    path = folder / "a.csv"
    path.write_text(table)
    wish = loading.Wish(mappings=(mapping.parse(toml, "m.toml"),))
    groups = [case.group for case in cases(reader.read([path], wish)[1])]
    return tuple(tuple(text for _, text in group) for group in groups)


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("columns = 3\n", "m.toml: line 1: columns must be a table of keys, and is a whole"),
        ("\n[columns]\narm = 3\n", "line 3: columns.arm must be text in quotes, and is a whole"),
        ('[colums]\narm = "a"\n', 'line 1: a mapping has no key "colums"; write columns'),
        ('[columns]\nvale = "a"\n', 'line 2: [columns] has no key "vale"; write value'),
        ('[columns]\nxyzzy = "a"\n', "there are value, values, mean"),
        ('[arms."6.16"]\nvalu = "x"\n', 'line 2: [arms.NAME] has no key "valu"; write value'),
        (PLAIN + 'better = "low"\n', 'line 6: metrics.NAME.better = "low" says nothing that is'),
        (PLAIN + 'better = "low"\n', 'write "lower", "higher" or "none"'),
        ('replicate = "boots"\n' + PLAIN, 'write "boot" or "process round"'),
        ('decimal = "x"\n' + PLAIN, 'line 1: decimal is none of what it may be; write "." or ","'),
        ("planned = -3\n" + PLAIN, "line 1: planned must be a whole number >= 1"),
        ('order = "6.16"\n' + PLAIN, "order must be a list, as"),
        ('[columns]\narm = "k"\n[metrics.ns]\nunit = "ns"\n', "metrics.ns: it names no column"),
    ],
)
def test_a_wrong_key_is_said_in_words_with_its_line(toml: str, said: str) -> None:
    sentence = refused(toml)
    assert said in sentence
    assert "$" not in sentence


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (PLAIN.replace('"boot"', '"ns"'), 'column "ns" has figures, and is columns.boot, too'),
        (PLAIN.replace('"ns"', '"kernel"'), 'column "kernel" has figures, and is columns.arm, too'),
        ('ignore = ["boot"]\n' + PLAIN, 'column "boot" is ignored, and is columns.boot, too'),
    ],
)
def test_a_column_is_one_thing(toml: str, said: str) -> None:
    assert said in refused(toml)


def test_what_is_split_is_a_dimension(tmp_path: Path) -> None:
    assert set(mapped(tmp_path, SPLIT, SPLIT_KEYS)) == {("8", "16GiB"), ("4", "8GiB")}


def test_a_split_that_cuts_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match='no cell has "x"'):
        mapped(tmp_path, SPLIT, SPLIT_KEYS.replace('at = "/"', 'at = "x"'))


def test_an_order_names_every_arm(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r'names no "6\.16"; name every arm'):
        mapped(tmp_path, TABLE, 'order = ["6.17", "6.18"]\n' + PLAIN)
    assert mapped(tmp_path, TABLE, 'order = ["6.17", "6.16", "6.18"]\n' + PLAIN)


def test_a_mapping_for_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"is for files = b\.csv, and no file is left for it"):
        mapped(tmp_path, TABLE, 'files = ["b.csv"]\n' + PLAIN)


def proposed(folder: Path, table: str) -> tuple[str, str]:
    """The sentence and the proposal of a table that is asked about."""
    path = folder / "a.csv"
    path.write_text(table)
    with pytest.raises(reader.UndescribedError) as caught:
        reader.read([path])
    return caught.value.sentence(), caught.value.proposal


def test_a_proposal_says_of_a_column_one_thing_and_what_it_may_be_else(tmp_path: Path) -> None:
    rows = "".join(f"m{at % 2},t{at % 3},{100 + at / 7:.3f}\n" for at in range(12))
    _, text = proposed(tmp_path, f"machine,tester,ns\n{rows}")
    found = mapping.parse(text, "m.toml")
    assert (found.columns.arm, found.columns.dimensions) == ("machine", ("tester",))
    legend = text.partition("\n# What a column may be")[2]
    for key in ("arm", "role", "boot", "round", "run", "position", "status", "dimensions"):
        assert key in legend
        assert key in mapping.ColumnKeys.__struct_fields__
    assert max(map(len, legend.splitlines())) <= 100


def test_spreads_and_extremes_alone_are_no_times(tmp_path: Path) -> None:
    said, text = proposed(tmp_path, "kernel,stdev_ns,min_ns,cv\n6.16,1,2,3\n6.17,2,3,4\n")
    assert "min_ns, stdev_ns, cv are made of what was measured: where are the values" in said
    assert "a number that nothing names" not in text


def test_spreads_beside_a_number_that_nothing_names_are_not_asked_about(tmp_path: Path) -> None:
    _, text = proposed(tmp_path, "kernel,stuff,stdev\n6.16,101,2\n6.17,112,3\n")
    assert set(mapping.parse(text, "m.toml").metrics) == {"stuff"}


def test_a_comma_that_may_be_two_things_is_asked_with_both_mends(tmp_path: Path) -> None:
    said, _ = proposed(tmp_path, "kernel;ns\n6.16;100,074\n6.17;110,512\n")
    assert 'or 100.074, which decimal = "," reads; for the other write it without' in said
