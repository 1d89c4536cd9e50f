# SPDX-License-Identifier: GPL-2.0-or-later
"""What every test shares: private directories, no network, and boots that may not vanish."""

from __future__ import annotations

import difflib
import gc
import itertools
import os
import re
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

NO_BOOT = "KDELTA_NO_BOOT"
_NUMBERS = itertools.count()

# How long an example takes says how busy this machine is.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")

# Of matrices as small as ours two threads take twice the CPU of one, and as long.  Read by numpy
# when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Boots are read on pages as wide as documents show them, whatever terminal starts the tests.
os.environ["COLUMNS"] = "100"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="Rewrite golden files to what is printed now."
    )


def pytest_collection_finish() -> None:
    """Every look for garbage is spared the thousands of tests and modules, which are none."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(NO_BOOT) == "1":
        skip = pytest.mark.skip(reason=f"{NO_BOOT}=1: boots were declined")
        for item in items:
            if item.get_closest_marker("boot"):
                item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a boot test that skips itself into a failure: only NO_BOOT may decline boots."""
    report = yield
    declined = os.environ.get(NO_BOOT) == "1"
    if report.skipped and item.get_closest_marker("boot") and not declined:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} cannot run here: {report.longrepr}; or set {NO_BOOT}=1"
    return report


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with a file of tests/golden; --update-golden rewrites the file instead."""

    def check(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8", newline="")
        wanted = path.read_bytes().decode()
        diff = difflib.unified_diff(wanted.splitlines(), text.splitlines(), name, "now")
        assert text == wanted, "\n".join(diff)

    return check


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own.  pytest's looks through those of all tests for a free number."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    made = tmp_path_factory.getbasetemp() / f"{name}{next(_NUMBERS)}"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture(autouse=True)
def _private_directories(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unit tests see none of this user's caches, nor a width; boots share the cache of kernels."""
    if request.node.get_closest_marker("boot"):
        return
    monkeypatch.delenv("COLUMNS")
    own = tmp_path_factory.getbasetemp() / f"xdg{next(_NUMBERS)}"  # made by who needs it
    for name in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(own / f"xdg-{name.lower()}"))


@pytest.fixture(autouse=True)
def _no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit tests cannot leave this machine, nor talk to another program on it over TCP."""
    if request.node.get_closest_marker("boot"):
        return
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, _only_unix(getattr(socket.socket, name)))


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No unit test turns the power off: what it writes need not wait until the disk has it."""
    if not request.node.get_closest_marker("boot"):
        monkeypatch.setattr(os, "fsync", os.fstat)


def _only_unix(real: Any) -> Any:
    def connect(self: socket.socket, address: Any) -> Any:
        if self.family != socket.AF_UNIX:
            pytest.fail(f"a unit test connects to {address!r}")
        return real(self, address)

    return connect
