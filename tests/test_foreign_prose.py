# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables in the text of mails, and numbers and moments as people write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kdelta.foreign import loading, mapping, prose, reader
from kdelta.foreign.record import Contents

MAIL = """Hi all,

with the series applied I get on this box (8 runs each):

\tkernel\t\tmean (s)\tstdev
\tv6.16\t\t12.31\t\t0.05
\tv6.17\t\t10.22\t\t0.04

so about 17 % better.
"""
QUOTED = """On Mon, 3 Nov 2025 10:11:12 +0100, Somebody wrote:
> I ran it on both kernels, 5 boots each (us, lower is better):
>
>              base           patched        delta
> fork       101.2 +- 0.9   121.4 +- 1.1    +20.0%
> exec       331.0 +- 2.1   332.1 +- 2.2     +0.3%
>
> Thanks
"""


def read(path: Path, text: str) -> Contents:
    path.write_text(text)
    return reader.read([path])[1]


def test_a_table_in_the_text_of_a_mail_is_read(tmp_path: Path) -> None:
    found = read(tmp_path / "mail.txt", MAIL)
    assert {(one.arm, one.mean, one.sd) for one in found.published} == {
        ("v6.16", 12.31, 0.05),
        ("v6.17", 10.22, 0.04),
    }
    assert [one.line for one in found.published] == [6, 7]


def test_a_quoted_table_is_asked_about_and_the_proposal_is_right(tmp_path: Path) -> None:
    path = tmp_path / "re.txt"
    with pytest.raises(reader.UndescribedError) as asked:
        read(path, QUOTED)
    wish = loading.Wish(mappings=(mapping.parse(asked.value.proposal, "proposal"),))
    found = reader.read([path], wish)[1]
    assert {(one.arm, one.mean, one.sd) for one in found.published} == {
        ("base", 101.2, 0.9), ("patched", 121.4, 1.1), ("base", 331.0, 2.1),
        ("patched", 332.1, 2.2),
    }  # fmt: skip


def test_what_kdelta_wrote_into_the_folder_is_none_of_the_data(tmp_path: Path) -> None:
    for arm in ("base", "patched"):
        (tmp_path / arm).mkdir()
        for run in range(3):
            (tmp_path / arm / f"{run}.log").write_text(f"kernel: {arm}\nlat_us: {run + 5}.5\n")
    (tmp_path / "a.mapping.toml").write_text('delimiter = ","\n[columns]\narm = "kernel"\n')
    (tmp_path / "kdelta-runs" / "a").mkdir(parents=True)
    (tmp_path / "kdelta-runs" / "a" / "foreign.json").write_text('{"kernel": "x", "lat_us": 9}')
    sources, found, _ = reader.read([tmp_path])
    assert len(sources) == 6
    assert {item.arm for item in found.readings} == {"base", "patched"}


@pytest.mark.parametrize(
    "text",
    [
        "a  b\n1  2\n3  4\n",  # nothing around it
        MAIL + "\n" + MAIL,  # two
        "With this I get much better figures.\n\none  two\nthree  four\nfive  six\n",
        "With this I get much better figures.\n\nb  c\n1  2\n3  4  5\n",
        "",
    ],
)
def test_a_text_without_exactly_one_table_is_left_alone(text: str) -> None:
    assert prose.table_in(text) == text


def test_points_between_thousands_and_a_decimal_comma(tmp_path: Path) -> None:
    rows = [f"{arm};{boot};1.23{boot},5" for boot in range(5) for arm in ("v6.16", "v6.17")]
    found = read(tmp_path / "r.csv", "\n".join(["kernel;boot;t_us", *rows, "v6.16;5;987,5\n"]))
    assert {item.value for item in found.readings} == {987.5, *(1230.5 + n for n in range(5))}


def test_seconds_since_1970_are_the_order_and_no_setting(tmp_path: Path) -> None:
    rows = [
        json.dumps({"t": 1731000000 + n, "kernel": arm, "lat_us": level + n / 7})
        for n in range(6)
        for arm, level in (("6.16", 10.0), ("6.17", 12.0))
    ]
    found = read(tmp_path / "r.jsonl", "\n".join(rows) + "\n")
    assert {item.group for item in found.readings} == {()}
    assert all(item.position is not None for item in found.readings)
