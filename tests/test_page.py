# SPDX-License-Identifier: GPL-2.0-or-later
"""Names in tables: short where that is enough, and never two of them alike."""

from __future__ import annotations

import shlex

import pytest

from kdelta.table.columns import (
    Column,
    Span,
    filled,
    first_that_fits,
    headline,
    paragraph,
    plain,
    shortened,
    tables_that_fit,
)

VARIANT = "6.17.8+mprotect-single-pte-fast-path,xenpv"


@pytest.mark.parametrize(
    "texts",
    [[], ["6.16.12", "6.17.13"], [VARIANT, VARIANT], [f"{VARIANT},gcc-12", f"{VARIANT},gcc-14"]],
)
def test_names_are_cut_and_differ_where_they_differed(texts: list[str]) -> None:
    cut = shortened(texts, 23)
    assert len(cut) == len(texts)
    assert len(set(cut)) == len(set(texts))
    assert all(len(text) <= 23 for text in cut)


def test_names_that_differ_in_the_middle_become_longer() -> None:
    texts = [f"6.17.8+a-long-{word}-name-of-a-variant,min" for word in ("first", "other")]
    assert shortened(texts, 20) == (
        "6.17.8+a-long-f..-a-variant,min",
        "6.17.8+a-long-o..-a-variant,min",
    )


def test_columns_that_do_not_fit_come_in_further_tables() -> None:
    names = Column("kernel", (Span("6.16"), Span("6.17")))
    wide = [Column(f"column {at} " + 40 * "x", (Span("1"), Span("2"))) for at in range(3)]
    text = plain(tables_that_fit([names], wide))
    assert [line.split()[0] for line in text.splitlines() if line] == ["kernel", "6.16", "6.17"] * 3
    assert plain(tables_that_fit([names], [])).split() == ["kernel", "6.16", "6.17"]


def test_a_page_is_laid_out_for_the_terminal_that_shows_it() -> None:
    names = Column("kernel", ("6.16", "6.17"))
    columns = [Column(f"phase-{at}", ("1", "2")) for at in range(8)]
    words = "instructions retired by the guest, user and kernel; path length, never a time " * 3
    page = [
        *paragraph(words),
        *first_that_fits([[names, *columns]], *tables_that_fit([names], columns)),
        *first_that_fits([[names, *columns], [names, *columns[:3]]]),
    ]
    for width, tables in ((100, 2), (70, 3), (50, 3)):
        text = plain(page, width)
        assert max(map(len, text.splitlines())) <= width
        assert " ".join(text.split()).startswith(words.strip())
        assert {f"phase-{at}" for at in range(8)} <= {*text.split()}
        assert text.count("kernel  ") == tables
    assert plain(page) == plain(page, 100)


def test_a_command_in_a_sentence_can_be_pasted() -> None:
    words = ["kdelta", "run", "mprotect:anon", "--kernels", "tree:a@1,tree:b@2", "--rounds", "3"]
    text = f"It is 5 % more, and may be chance; vary it: `{' '.join(words)}`."
    for width in (50, 70, 100):
        lines = filled(text, width, "", "  ")
        _, command, end = "\n".join(lines).split("`")
        assert (shlex.split(command.replace("\\\n", "")), end) == (words, ".")
        assert ("\\\n" in command) is (width < 70)
        assert max(map(len, lines)) <= width


def test_a_headline_ends_with_a_word() -> None:
    title = "mm/mprotect: batch the restoring of shared dirty page table entries"
    assert headline(title, 48) == "mm/mprotect: batch the restoring of shared ..."
    assert headline(title, 80) == title
