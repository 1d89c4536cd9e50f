# SPDX-License-Identifier: GPL-2.0-or-later
"""Tracing on this host: who may, who is asked to wait, and that all is given back behind it.

Folders and files stand for tracefs here.  What no file can play, a kernel's histograms, is in
tests/boot, in guests, and in bench/host_tracing.py, on an emulated host.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.host import native, tracing
from kdelta.host.tracing import HostTracefs
from kdelta.run.host_graph import HostGraph
from kdelta.run.traced_host import _Watching
from kdelta.study.tracing import watch
from kdelta.tracing import setting
from test_tracing_formats import FORMAT

NOW = threading.Event()
OWN = f"kdelta_{os.getpid()}"
GONE = 4_194_305  # more than the kernel gives: /proc/sys/kernel/pid_max


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tracing, "_FIRST_NAMESPACE", Path("/proc/self/ns/pid").readlink())
    (tmp_path / "instances").mkdir()
    (tmp_path / "current_tracer").write_text("nop\n")
    (tmp_path / "set_event").write_text("")
    (tmp_path / "kprobe_events").write_text("")
    return tmp_path


def refusal(root: Path) -> KdeltaError:
    with pytest.raises(KdeltaError) as refused, tracing.instance(NOW, root):
        pass
    assert "guests" in refused.value.action
    return refused.value


def test_an_instance_is_there_for_a_while(root: Path) -> None:
    with tracing.instance(NOW, root) as found:
        assert found.place == root / "instances" / OWN
        assert found.place.is_dir()
        assert found.define(f"p:{OWN}/w0_0 f") == 0
        assert found.write("nothing/there", "1") == errno.ENOENT
        assert found.read("nothing") is None
        assert found.read("current_tracer", whole=True) == "nop\n"
    assert not list((root / "instances").iterdir())
    assert (root / "kprobe_events").read_text().splitlines()[-1] == f"-:{OWN}/w0_0"
    assert found.raw[0] == f"==> write kprobe_events p:{OWN}/w0_0 f\n0\n"


def test_all_is_given_back_when_something_fails(root: Path) -> None:
    with pytest.raises(ValueError, match="it"), tracing.instance(NOW, root):
        raise ValueError("it")
    assert not list((root / "instances").iterdir())


def test_what_a_killed_kdelta_left_is_given_back_and_nobody_elses(root: Path) -> None:
    (root / "instances" / f"kdelta_{GONE}").mkdir()
    (root / "kprobe_events").write_text(f"p:kdelta_{GONE}/w0_0 f\n")
    refusal(root)  # a file keeps what tracefs would have removed
    assert not list((root / "instances").iterdir())
    assert f"-:kdelta_{GONE}/w0_0" in (root / "kprobe_events").read_text()


@pytest.mark.parametrize(
    ("file", "content", "cause"),
    [
        ("current_tracer", "function_graph\n", "the tracer function_graph is on"),
        ("set_event", "sched:sched_switch\n", "events are traced"),
        ("kprobe_events", "p:mine/x f\n", "kprobes are set"),
    ],
)
def test_nobody_elses_trace_is_disturbed(root: Path, file: str, content: str, cause: str) -> None:
    (root / file).write_text(content)
    refused = refusal(root)
    assert isinstance(refused, InfraError)
    assert cause in refused.cause
    assert (root / file).read_text() == content


def test_an_instance_of_somebody_else_is_left_alone(root: Path) -> None:
    (root / "instances" / "theirs").mkdir()
    assert "an instance theirs" in refusal(root).cause
    assert (root / "instances" / "theirs").is_dir()


def test_who_may_trace(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "instances").rmdir()
    assert "not mounted" in refusal(root).cause
    monkeypatch.setattr(tracing, "_FIRST_NAMESPACE", Path("pid:[1]"))
    assert "container" in refusal(root).cause
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert isinstance(refusal(root), SpecError)


GRAPHED = """\
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
 0)               |  do_mprotect_pkey() {
 0)   0.100 us    |    down_write_killable();
 0)   1.200 us    |  }
"""
STATS = "entries: 3\noverrun: 0\ncommit overrun: 0\ndropped events: 2\nread events: 0\n"
EVERYBODYS = {
    "set_graph_function": "",
    "set_ftrace_pid": "",
    "options/overwrite": "1\n",
    "options/funcgraph-irqs": "1\n",
    "buffer_size_kb": "7 (expanded: 1408)\n",
    "tracing_on": "1\n",
    "trace": GRAPHED,
}


@pytest.fixture
def graphing(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file, content in EVERYBODYS.items():
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).write_text(content)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    (root / "per_cpu/cpu0").mkdir(parents=True)
    (root / "per_cpu/cpu0/stats").write_text(STATS)
    return root


def orders(found: HostTracefs) -> list[str]:
    return [text.splitlines()[0][4:] for text in found.raw if text.startswith("==> write")]


def test_a_graph_is_of_one_process_and_the_tracer_is_given_back(graphing: Path) -> None:
    with tracing.instance(NOW, graphing) as found:
        graph = HostGraph(found, [watch("graph(do_mprotect_pkey)")])
        graph.begin(77)
        last = orders(found)[-2:]
        assert last == ["write set_ftrace_pid 77", "write current_tracer function_graph"]
        graph.end()
    assert graph.seen is not None
    assert graph.seen.calls == {"do_mprotect_pkey": 1, "down_write_killable": 1}
    assert graph.seen.lost == 2
    last_lines = {
        file: (graphing / file).read_text().splitlines()[-1:]
        for file in (*EVERYBODYS, "current_tracer")
    }
    assert last_lines == {
        "set_graph_function": [], "set_ftrace_pid": [], "trace": [], "current_tracer": ["nop"],
        "options/overwrite": ["1"], "options/funcgraph-irqs": ["1"], "tracing_on": ["1"],
        "buffer_size_kb": ["1408"],
    }  # fmt: skip


def test_a_graph_that_fails_on_the_way_is_given_back(graphing: Path) -> None:
    def failing() -> None:
        with tracing.instance(NOW, graphing) as found:
            HostGraph(found, [watch("graph(f)")]).begin(77)
            raise ValueError("it")

    with pytest.raises(ValueError, match="it"):
        failing()
    assert (graphing / "current_tracer").read_text().splitlines()[-1] == "nop"
    assert (graphing / "set_graph_function").read_text() == ""


def test_a_graph_of_a_killed_kdelta_is_ended(graphing: Path) -> None:
    (graphing / "current_tracer").write_text("function_graph\n")
    (graphing / "set_graph_function").write_text("f\n")
    (graphing / "instances" / f"kdelta_{GONE}").mkdir()
    refusal(graphing)  # a file keeps its first line, which the kernel would not
    assert (graphing / "current_tracer").read_text().splitlines()[-1] == "nop"
    assert (graphing / "set_graph_function").read_text() == ""


def test_a_kernel_without_the_tracer_is_told_so(graphing: Path) -> None:
    for tracers, told in (
        ("blk function nop\n", "no function_graph in this kernel (CONFIG_FUNCTION_GRAPH_TRACER)"),
        ("function_graph function nop\n", ""),
    ):
        (graphing / "available_tracers").write_text(tracers)
        with tracing.instance(NOW, graphing) as found:
            graph = HostGraph(found, [watch("graph(f)")])
            graph.begin(77)
            graph.end()
        assert [one.reason for one in graph.refused] == ([told] if told else [])


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        ("set_graph_function", "ftrace cannot trace f: inlined, notrace, or not there"),
        ("set_ftrace_pid", "no function_graph: the kernel has no such file in tracefs"),
        ("per_cpu/cpu0/stats", "what was recorded cannot be read"),
    ],
)
def test_a_graph_that_cannot_be_had_has_a_reason(graphing: Path, gone: str, reason: str) -> None:
    (graphing / gone).unlink()
    with tracing.instance(NOW, graphing) as found:
        graph = HostGraph(found, [watch("graph(f)")])
        graph.begin(77)
        graph.end()
    assert graph.seen is None
    assert [one.reason for one in graph.refused] == [reason]


def test_a_program_waits_until_it_is_watched(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$$"\ncat /dev/stdin\ntest -e "$1" && echo watched\n')
    program.chmod(0o755)
    seen: list[int] = []

    def begin(pid: int) -> None:
        (tmp_path / "begun").touch()
        seen.append(pid)

    mark = str(tmp_path / "begun")
    cpu = min(os.sched_getaffinity(0))
    done = native.run(program, [mark], [cpu], timeout=60, cancelled=NOW, begin=begin)
    assert done.text == f"{seen[0]}\nwatched\n"


def test_a_program_that_cannot_be_watched_does_not_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)

    def begin(_pid: int) -> None:
        raise InfraError("no")

    cpu = min(os.sched_getaffinity(0))
    with pytest.raises(InfraError, match="no"):
        native.run(program, [], [cpu], timeout=60, cancelled=NOW, begin=begin)
    assert not (tmp_path / "ran").exists()


class FakeInstance(HostTracefs):
    """An instance whose histograms say that the process was the only one to do something."""

    def write(self, file: str, value: str) -> int:
        self.raw.append(f"{file} {value}")
        return errno.EINVAL if "refused" in file else 0

    def read(self, file: str, *, whole: bool = False) -> str | None:
        if file.endswith("/format"):
            return FORMAT
        if whole:
            return f" w0_0 5 {len(self.raw)}\n"
        return (
            "# event histogram\n#\n# trigger info: hist:keys=common_pid:size=4096 [active]\n#\n"
            "{ common_pid: 77 } hitcount: 5\n\nTotals:\n    Hits: 5\n    Entries: 1\n"
        )


def test_only_what_the_program_does_is_watched(tmp_path: Path) -> None:
    tracefs = FakeInstance(root=tmp_path, group="kdelta_1")
    probes, _ = setting.probes([watch("f"), watch("s:refused")], ["f"], tracefs.group)
    watching = _Watching(tracefs, probes)
    watching.begin(77)
    watching.end()
    trigger = "hist:keys=common_pid:size=4096 if common_pid == 77"
    assert tracefs.raw == [
        f"events/kdelta_1/w0_0/trigger {trigger}",
        f"events/s/refused/trigger {trigger}",
        f"events/kdelta_1/w0_0/trigger !{trigger}",
    ]
    assert [one.watch.text for one in watching.refused] == ["s:refused"]
    hits, doubts = watching.hits(probes[:1])
    assert hits == {("f", "", None): 5}
    assert doubts == ["f: 3 hits were missed"]


def test_a_task_of_the_kernel_is_watched_with_all_others(tmp_path: Path) -> None:
    tracefs = FakeInstance(root=tmp_path, group="kdelta_1")
    probes, _ = setting.probes([watch("f")], ["f"], tracefs.group)
    watching = _Watching(tracefs, probes, every_task=True)
    watching.begin(77)
    watching.end()
    trigger = "hist:keys=common_pid:size=4096"  # as in guests
    assert probes[0].trigger() == trigger
    assert tracefs.raw == [
        f"events/kdelta_1/w0_0/trigger {trigger}",
        f"events/kdelta_1/w0_0/trigger !{trigger}",
    ]
