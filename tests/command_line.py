# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line in this process, as a test sees it end."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kdelta.cli.main import main


@dataclass(frozen=True)
class Ended:
    """The exit status, and what was printed."""

    status: int
    out: str
    err: str


def ended(capsys: pytest.CaptureFixture[str], *words: object) -> Ended:
    """What `kdelta WORDS` does; never a traceback."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as raised:
        main([str(word) for word in words])
    shown = capsys.readouterr()
    assert isinstance(raised.value.code, int)
    assert "Traceback" not in shown.err
    return Ended(raised.value.code, shown.out, shown.err)
