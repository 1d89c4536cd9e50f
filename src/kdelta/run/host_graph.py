# SPDX-License-Identifier: GPL-2.0-or-later
"""What is called below functions in one process of this host (function_graph).

Its tracer is tracefs's own: an instance has none before Linux 6.11, and what it is told of
functions belongs to all.  Nobody else uses it, which `host.tracing.instance` has seen to.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from kdelta.host import tracing
from kdelta.host.tracing import HostTracefs
from kdelta.study.tracing import Watch
from kdelta.tracing import formats, setting
from kdelta.tracing.seeing import SeenGraph
from kdelta.tracing.setting import Refused


class HostGraph:
    """A graph of one run of a program: of its first thread.

    seen: what was recorded; None where nothing could be.
    """

    def __init__(self, tracefs: HostTracefs, watched: Sequence[Watch]) -> None:
        self._tracefs = tracefs
        self._watched = tuple(watched)
        self._usable: list[Watch] = []
        self.seen: SeenGraph | None = None
        self.refused: list[Refused] = []

    def begin(self, pid: int) -> None:
        """Record from now on what a process does below the functions."""
        tracers = self._tracefs.read("available_tracers", whole=True)
        if tracers is not None and tracing.GRAPH not in tracers.split():
            reason = f"no {tracing.GRAPH} in this kernel (CONFIG_FUNCTION_GRAPH_TRACER)"
            self.refused += [Refused(watch=one, reason=reason) for one in self._watched]
            return
        for one in self._watched:
            # A name that no blank ends is looked up when the file is closed.
            if self._tracefs.set("set_graph_function", f"{one.name} "):
                reason = f"ftrace cannot trace {one.name}: inlined, notrace, or not there"
                self.refused.append(Refused(watch=one, reason=reason))
            else:
                self._usable.append(one)
        if not self._usable:  # without a name it would record all that the kernel does
            return
        for file, value in tracing.GRAPH_SETTINGS.items():
            self._tracefs.set(file, value)
        status = self._tracefs.set("set_ftrace_pid", str(pid))
        if status := status or self._tracefs.set("current_tracer", tracing.GRAPH):
            reason = setting.refusal(status, tracing.GRAPH)
            self.refused += [Refused(watch=one, reason=reason) for one in self._usable]
            self._usable.clear()

    def end(self) -> None:
        """Read what was recorded, and give the tracer back.  Raises GuestError."""
        self._tracefs.set("tracing_on", "0")
        text = self._tracefs.read("trace", whole=True)
        told = [
            self._tracefs.read(f"per_cpu/cpu{cpu}/stats", whole=True)
            for cpu in range(os.cpu_count() or 1)
        ]
        self._tracefs.reset()
        if text is None or None in told:
            reason = "what was recorded cannot be read"
            self.refused += [Refused(watch=one, reason=reason) for one in self._usable]
        elif self._usable:
            self.seen = SeenGraph(
                watched=tuple(self._usable),
                calls=formats.graph(text),
                lost=sum(formats.lost(one) for one in told if one is not None),
            )
