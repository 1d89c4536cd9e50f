# SPDX-License-Identifier: GPL-2.0-or-later
"""The first lines of the `kdelta` command: Ctrl-C ends it in silence while modules are read."""

from __future__ import annotations

import gc
import signal


def main() -> None:
    """Run `kdelta` with the arguments of this process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(50_000)  # what imports and results leave is no garbage, and is looked at less
    from kdelta.cli.main import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
