# SPDX-License-Identifier: GPL-2.0-or-later
"""What conftest.py promises, seen from tests that break it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


def run_tests(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a test file under our conftest.py, in a pytest of its own."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = boot: boots\naddopts = -ra\n")
    (folder / "test_planted.py").write_text(text)
    clean = {key: value for key, value in os.environ.items() if key != "KDELTA_NO_BOOT"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=folder,
        env={**clean, **environment},
    )


SKIPS = """
import pytest
@pytest.mark.boot
def test_boot():
    pytest.skip("no QEMU here")
"""


def test_boot_test_that_skips_itself_fails(tmp_path: Path) -> None:
    done = run_tests(tmp_path, SKIPS)
    assert "1 failed" in done.stdout
    assert "no QEMU here" in done.stdout


def test_declined_boots_are_skipped_in_sight(tmp_path: Path) -> None:
    done = run_tests(tmp_path, SKIPS, KDELTA_NO_BOOT="1")
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert "KDELTA_NO_BOOT=1: boots were declined" in done.stdout


def test_unit_test_may_skip_itself(tmp_path: Path) -> None:
    done = run_tests(tmp_path, SKIPS.replace("@pytest.mark.boot\n", ""))
    assert done.returncode == 0
    assert "1 skipped" in done.stdout


CONNECTS = """
import socket, pytest
MARK
def test_connect():
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
"""


def test_unit_test_cannot_connect(tmp_path: Path) -> None:
    done = run_tests(tmp_path, CONNECTS.replace("MARK", ""))
    assert "1 failed" in done.stdout
    assert "a unit test connects to ('127.0.0.1'" in done.stdout


def test_boot_test_may_connect(tmp_path: Path) -> None:
    assert run_tests(tmp_path, CONNECTS.replace("MARK", "@pytest.mark.boot")).returncode == 0


def test_unit_test_has_private_directories(tmp_path: Path) -> None:
    for name in ("CACHE", "CONFIG", "DATA", "STATE"):
        assert Path(os.environ[f"XDG_{name}_HOME"]).is_relative_to(tmp_path)


@pytest.mark.boot
def test_boot_test_shares_the_users_cache(tmp_path: Path) -> None:
    assert not Path(os.environ.get("XDG_CACHE_HOME", "/")).is_relative_to(tmp_path)
