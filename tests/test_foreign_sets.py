# SPDX-License-Identifier: GPL-2.0-or-later
"""Layouts of other people: read right, or asked about with a proposal that is right."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_programs  # noqa: F401  its sets are among those of foreign_sets
import foreign_sets
from foreign_twins import alike, said_by
from kdelta.errors import SpecError
from kdelta.foreign import loading, mapping, reader

SEED = 20260
PLAIN = sorted(foreign_sets.SETS.keys() - foreign_sets.DOUBTED.keys() - foreign_sets.REFUSED.keys())


def test_there_are_sets_enough() -> None:
    assert len(foreign_sets.SETS) >= 50


@pytest.mark.parametrize("name", PLAIN)
def test_a_set_is_read_right(name: str, tmp_path: Path) -> None:
    found = foreign_sets.drawn(name, SEED)
    folder = foreign_sets.written(found, tmp_path / name)
    sources, contents, _ = reader.read([folder])
    assert alike(said_by(contents), found.truth), (said_by(contents), found.truth)
    assert len(sources) == len(found.files)
    assert all(item.source < len(sources) and item.line > 0 for item in contents.readings)


@pytest.mark.parametrize("name", sorted(foreign_sets.DOUBTED))
def test_a_doubt_has_a_proposal_that_is_right_after_at_most_one_edit(
    name: str, tmp_path: Path
) -> None:
    found = foreign_sets.drawn(name, SEED)
    folder = foreign_sets.written(found, tmp_path / name)
    with pytest.raises(reader.UndescribedError) as caught:
        reader.read([folder])
    replaced, by = foreign_sets.DOUBTED[name]
    assert replaced in caught.value.proposal
    text = caught.value.proposal.replace(replaced, by) if replaced else caught.value.proposal
    wish = loading.Wish(mappings=(mapping.parse(text, "proposal"),))
    contents = reader.read([folder], wish)[1]
    assert alike(said_by(contents), found.truth), (said_by(contents), found.truth)


@pytest.mark.parametrize("name", sorted(foreign_sets.REFUSED))
def test_what_holds_nothing_is_refused(name: str, tmp_path: Path) -> None:
    folder = foreign_sets.written(foreign_sets.drawn(name, SEED), tmp_path / name)
    with pytest.raises(SpecError, match=foreign_sets.REFUSED[name]):
        reader.read([folder])


def test_an_error_in_one_of_many_files_names_that_file(tmp_path: Path) -> None:
    found = foreign_sets.drawn("key-value-files", SEED)
    name = "6.17.3/run-4.log"
    found.files[name] = found.files[name].replace("page: ", "page: about ")
    folder = foreign_sets.written(found, tmp_path / "kv")
    with pytest.raises(SpecError, match=r'"about .* is not a number') as caught:
        reader.read([folder])
    assert caught.value.place.startswith("kv/6.17.3/run-4.log: line 1, column mprotect_ns")
