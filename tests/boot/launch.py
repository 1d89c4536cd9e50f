# SPDX-License-Identifier: GPL-2.0-or-later
"""The `kdelta` command, with the workload `faulty` beside the shipped ones."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from kdelta import data
from kdelta.cli.main import main

shipped = data.directory


def directory(name: str) -> Path:
    return Path(os.environ["KDELTA_TEST_WORKLOADS"]) if name == "workloads" else shipped(name)


data.directory = directory
# A shell's job in the background ignores Ctrl-C, and with it all that a test starts there.
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
