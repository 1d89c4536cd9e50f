# SPDX-License-Identifier: GPL-2.0-or-later
"""Run kdelta's command line in this process and leave its memory peaks in a file at exit.

    python bench/measured.py FILE ARGUMENTS...

FILE gets JSON: own_kib and own_cpu_s, the memory peak and the CPU seconds of this process;
child_kib, the peak of its largest child (QEMU, in a run).  A parent cannot tell the two peaks apart
from outside: the kernel adds children to their parent.
"""

from __future__ import annotations

import atexit
import json
import resource
import sys
from pathlib import Path


def _leave(path: Path) -> None:
    own = resource.getrusage(resource.RUSAGE_SELF)
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    taken = {"own_cpu_s": own.ru_utime + own.ru_stime}
    path.write_text(json.dumps({"own_kib": own.ru_maxrss, "child_kib": child} | taken))


if __name__ == "__main__":
    atexit.register(_leave, Path(sys.argv.pop(1)))
    from kdelta.cli.main import main

    main()
