# SPDX-License-Identifier: GPL-2.0-or-later
"""A mistyped name is answered with the one that was meant, wherever one can be given."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import ladder_records
from kdelta import workload
from kdelta.analysis.explanation import explain
from kdelta.cli.main import cli
from kdelta.cli.run import study_file
from kdelta.errors import SpecError
from kdelta.journal.run import RUNS, RunJournal
from kdelta.printable import known, meant
from kdelta.source import tree_reference


def test_what_is_near_comes_first_and_what_is_not_is_not_guessed() -> None:
    assert meant("mprotct", ["mincore", "mprotect"]) == "did you mean mprotect? "
    assert meant("xyzzy", ["mincore", "mprotect"]) == ""
    assert known("mprotct", iter(("mincore", "mprotect"))) == (
        "did you mean mprotect? known: mincore, mprotect"
    )
    assert known("x", []) == "known: none"


def test_names_in_commands() -> None:
    for text, name in (
        ("mprotct:anon_toggle_4m", "mprotect"),
        ("mprotect:anon_togle_4m", "anon_toggle_4m"),
    ):
        with pytest.raises(SpecError) as caught:
            workload.parse_reference(text)
        assert caught.value.action.startswith(f"did you mean {name}? known: ")
    with pytest.raises(SpecError) as caught:
        study_file("mprotect-shared-dirt")
    assert caught.value.action.startswith("did you mean mprotect-shared-dirty? give a TOML file")
    with pytest.raises(SpecError) as caught:
        tree_reference.of_word("mincore-no-batchng")
    assert caught.value.action.startswith("did you mean mincore-no-batch? name a patch")
    done = CliRunner().invoke(cli, ["shwo", "latest"])
    assert done.exit_code == 2
    assert "No such command 'shwo'; did you mean show?\n" in done.output


def test_names_in_a_run(tmp_path: Path) -> None:
    record = ladder_records.ladder(rounds=1)
    RunJournal.create(tmp_path / "mprotect-ladder", record)
    with pytest.raises(SpecError) as caught:
        RUNS.find(tmp_path, "mprotct-ladder")
    assert caught.value.action.startswith("did you mean mprotect-ladder? there are ")
    for words, name in (
        (("6.16.21", "6.17.13"), "6.16.12"),
        (("6.16", "6.17", "shared_dirty_full_togle_64m"), ladder_records.SCENARIO),
    ):
        with pytest.raises(SpecError) as caught:
            explain(record, *words[:2], scenario=words[2] if len(words) > 2 else None)
        assert caught.value.action.startswith(f"did you mean {name}? name one ")
