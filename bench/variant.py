# SPDX-License-Identifier: GPL-2.0-or-later
"""Print how long a variant of one file takes, from its reference to a bootable image.

    .venv/bin/python bench/variant.py [--repetitions N] [--base REFERENCE]

The original is built first, in minutes when nothing of it is in the cache.  Each repetition edits
mm/mincore.c in a way that no build has seen.  Exits 1 when the median is above the limit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from kdelta.kernels.reference import built

_FILE = "mm/mincore.c"
_OLD = "return -ENOMEM;"
_LIMIT_S = 10.0


def variant_s(base: str, text: str, folder: Path) -> float:
    """Wall time of one variant, whose error number no earlier one had."""
    path = folder / f"edited-{time.time_ns()}.c"
    path.write_text(text.replace(_OLD, f"return -{time.time_ns() % 1_000_000 + 10};"))
    begun = time.monotonic()
    made = built(f"{base}+{_FILE}={path}")
    if made.cached:
        sys.exit("this variant was built before: run it again")
    return time.monotonic() - begun


def main() -> None:
    """Build and print."""
    parser = argparse.ArgumentParser(description="Time one-file variants on a warm build.")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--base", default="tree:deb:6.17.8+config=min")
    chosen = parser.parse_args()
    text = (built(chosen.base).tree.read(_FILE) or b"").decode()
    if _OLD not in text:
        sys.exit(f"{_FILE} of {chosen.base} has no {_OLD!r} to edit")
    with tempfile.TemporaryDirectory(prefix="kdelta-bench-") as scratch:
        taken = [
            variant_s(chosen.base, text, Path(scratch)) for _ in range(max(1, chosen.repetitions))
        ]
    middle = median(taken)
    each = ", ".join(f"{seconds:.1f}" for seconds in taken)
    verdict = "met" if middle <= _LIMIT_S else "MISSED"
    print(f"{each} s; median {middle:.1f} s, {verdict} (<= {_LIMIT_S:g} s)")
    sys.exit(middle > _LIMIT_S)


if __name__ == "__main__":
    main()
