# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta ask` with mails of many forms: what is read, and what is not claimed."""

from __future__ import annotations

import quopri
from pathlib import Path

import pytest
from click.testing import CliRunner

import robot_mails
from kdelta.check import matching, robot
from kdelta.cli.main import cli
from kdelta.errors import SpecError
from robot_mails import FORMS, NO_REPORTS, Form


def saved(folder: Path, text: str) -> Path:
    path = folder / "report.eml"
    path.write_text(text, encoding="iso-8859-1")
    return path


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_mail_is_read_as_what_it_says(form: Form, tmp_path: Path) -> None:
    found = robot.read(saved(tmp_path, form.mail))
    loop = matching.meant(found.words)
    assert found.commit == robot_mails.COMMIT
    assert (found.percent, found.is_time, found.directed, found.devices, found.beside) == (
        form.percent, form.is_time, form.directed, form.devices, form.beside
    )  # fmt: skip
    assert (loop.scenario if loop else "") == form.scenario


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_what_is_not_known_is_said_in_a_sentence_and_never_claimed(
    form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows this commit, so no mail of these can be answered without --kernels."""
    monkeypatch.setattr("kdelta.cli.calibrate.offered", lambda: [(6, 16), (6, 17)])
    ended = CliRunner().invoke(cli, ["ask", str(saved(tmp_path, form.mail))])
    assert ended.exit_code == 4
    assert "explains" not in ended.output
    told, said, last = " ".join(ended.output.split()).partition("Cannot be said: ")
    assert (bool(said), last.count(". ")) == (True, 0)
    if not form.directed:
        assert "whether more of blogbench.thing is better" in last
    elif form.scenario:
        assert f"the loop is here as {form.scenario}, but no release of its commit" in last
    else:
        assert "no scenario is known to repeat" in last
        assert "did you mean" not in last  # of these nothing is near
    assert (f"The test had {form.devices}" in told) is bool(form.devices)


def test_the_nearest_name_of_the_suite_is_told(tmp_path: Path) -> None:
    form = robot_mails.mail(
        "aim9", "a -1.0% regression of aim9.x.ops_per_sec", "test: signals_test"
    )
    ended = CliRunner().invoke(cli, ["ask", str(saved(tmp_path, form))])
    assert ended.exit_code == 4
    assert "did you mean aim9 signal_test, which is " in " ".join(ended.output.split())


@pytest.mark.parametrize("text", NO_REPORTS)
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no report of the kernel test robot"):
        robot.read(saved(tmp_path, text))


def test_a_report_within_parts_and_quoted_printable_is_read(tmp_path: Path) -> None:
    form = FORMS[0]
    head, _, body = form.mail.partition("\n\n")
    quoted = quopri.encodestring(body.encode("iso-8859-1")).decode()
    parts = (
        f"{head.splitlines()[0]}\nMIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="x"\n\n--x\n'
        'Content-Type: text/plain; charset="iso-8859-1"\n'
        f"Content-Transfer-Encoding: quoted-printable\n\n{quoted}\n--x\n"
        "Content-Type: application/x-xz\nContent-Transfer-Encoding: base64\n\nAAAA\n--x--\n"
    )
    found = robot.read(saved(tmp_path, parts))
    assert (found.percent, found.test) == (form.percent, "aim9")
