# SPDX-License-Identifier: GPL-2.0-or-later
"""Run kdelta's command line in this process and leave its memory peaks in a file at exit.

    python bench/measured.py FILE ARGUMENTS...

FILE gets JSON: own_kib, the peak of this process; child_kib, that of its largest child (QEMU, in
a run).  A parent cannot tell the two apart from outside: the kernel adds children to their parent.
"""

from __future__ import annotations

import atexit
import json
import resource
import sys
from pathlib import Path


def _leave(path: Path) -> None:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    path.write_text(json.dumps({"own_kib": own, "child_kib": child}))


if __name__ == "__main__":
    atexit.register(_leave, Path(sys.argv.pop(1)))
    from kdelta.cli.main import main

    main()
