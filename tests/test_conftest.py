# SPDX-License-Identifier: GPL-2.0-or-later
"""What conftest.py promises, seen from tests that break it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


PLANTED = """
import socket, pytest

@pytest.mark.boot
def test_boot_skips():
    pytest.skip("no QEMU here")

def test_unit_skips():
    pytest.skip("no gcc here")

def connect():
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())

def test_unit_connects():
    connect()

@pytest.mark.boot
def test_boot_connects():
    connect()
"""


def run_tests(folder: Path, **environment: str) -> str:
    """Run tests under our conftest.py, in a pytest of its own; what it printed."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = boot: boots\naddopts = -ra -v\n")
    (folder / "test_planted.py").write_text(PLANTED)
    clean = {key: value for key, value in os.environ.items() if key != "KDELTA_NO_BOOT"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)],
        capture_output=True, text=True, check=False, timeout=300, cwd=folder,
        env={**clean, **environment},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # of each run some fail
    return done.stdout


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_tests(tmp_path_factory.mktemp("planted"))


def outcome(said: str, name: str) -> str:
    found = re.search(rf"^test_planted\.py::{name} (\w+)", said, re.MULTILINE)
    assert found is not None, said
    return found[1]


@pytest.mark.parametrize(
    ("name", "ended", "words"),
    [
        ("boot_skips", "FAILED", "no QEMU here"),
        ("unit_skips", "SKIPPED", "no gcc here"),
        ("unit_connects", "FAILED", "a unit test connects to ('127.0.0.1'"),
        ("boot_connects", "PASSED", ""),
    ],
)
def test_who_may_skip_itself_and_connect(said: str, name: str, ended: str, words: str) -> None:
    assert outcome(said, f"test_{name}") == ended
    assert words in said


def test_declined_boots_are_skipped_in_sight(tmp_path: Path) -> None:
    said = run_tests(tmp_path, KDELTA_NO_BOOT="1")
    assert outcome(said, "test_boot_skips") == outcome(said, "test_boot_connects") == "SKIPPED"
    assert "KDELTA_NO_BOOT=1: boots were declined" in said


def test_unit_test_has_private_directories(tmp_path: Path) -> None:
    for name in ("CACHE", "CONFIG", "DATA", "STATE"):
        own = Path(os.environ[f"XDG_{name}_HOME"])
        assert own.is_relative_to(tmp_path.parent)
        assert not own.parent.exists()  # made by this test alone, if it makes it


@pytest.mark.boot
def test_boot_test_shares_the_users_cache(tmp_path: Path) -> None:
    assert not Path(os.environ.get("XDG_CACHE_HOME", "/")).is_relative_to(tmp_path)
