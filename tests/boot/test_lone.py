# SPDX-License-Identifier: GPL-2.0-or-later
"""A C file of one's own on real kernels: its count is that of the shipped scenario of the loop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta.cli.main import cli

LOOP = """\
#include "kdelta.h"
int main(void)
{
	for (int i = 0; i < 10; i++) {
		KD_BEGIN(0);
		for (int calls = 0; calls < 256; calls++)
			syscall(SYS_getppid);
		KD_END(0);
	}
	return 0;
}
"""


@pytest.mark.boot
def test_a_loop_of_a_mail_is_counted_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's part of a call is that of the shipped scenario; the loop around it is short."""
    (tmp_path / "loop.c").write_text(LOOP.replace('.h"\n', '.h"\n#include <sys/syscall.h>\n', 1))
    monkeypatch.chdir(tmp_path)
    words = ["run", "./loop.c", "control:getppid", "--kernels", "6.17"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    shown = json.loads(CliRunner().invoke(cli, ["show", "latest", "--json"]).output)
    total = {each["workload"]: each["rungs"][0]["total"]["value"] for each in shown["ladders"]}
    own, shipped = total[str(tmp_path / "loop.c")], total["control"]
    assert abs(own - shipped * (256 if shipped < 1000 else 1)) < 256 * 20
