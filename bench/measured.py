# SPDX-License-Identifier: GPL-2.0-or-later
"""Run kdelta's command line in this process and leave its memory peaks in a file at exit.

    python bench/measured.py FILE ARGUMENTS...

FILE gets JSON: own_kib and own_cpu_s, the memory peak and the CPU seconds of this process;
qemu_kib, the peak of its largest QEMU, looked at ten times a second.  `ru_maxrss` cannot tell the
two apart: a child has from its start the peak of the process that started it.
"""

from __future__ import annotations

import atexit
import json
import re
import resource
import sys
import threading
import time
from pathlib import Path

_PEAK = re.compile(r"^Name:\t(.*)$.*^VmHWM:\s+(\d+) kB$", re.MULTILINE | re.DOTALL)
_LOOK_S = 0.1
_qemu_kib = [0]


def _peak(process: str) -> tuple[str, int]:
    """Name and memory peak (KiB) of a process; 0 of one that has ended."""
    found = _PEAK.search(_text(Path("/proc", process, "status")))
    return (found[1], int(found[2])) if found else ("", 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _look() -> None:
    while True:
        for children in Path("/proc/self/task").glob("*/children"):
            for name, peak in map(_peak, _text(children).split()):
                if name.startswith("qemu"):
                    _qemu_kib[0] = max(peak, _qemu_kib[0])
        time.sleep(_LOOK_S)


def _leave(path: Path) -> None:
    own = resource.getrusage(resource.RUSAGE_SELF)
    peaks = {"own_kib": _peak("self")[1], "qemu_kib": _qemu_kib[0]}
    path.write_text(json.dumps(peaks | {"own_cpu_s": own.ru_utime + own.ru_stime}))


if __name__ == "__main__":
    atexit.register(_leave, Path(sys.argv.pop(1)))
    threading.Thread(target=_look, daemon=True).start()
    from kdelta.cli.main import main

    main()
