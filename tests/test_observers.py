# SPDX-License-Identifier: GPL-2.0-or-later
"""perf and bpftrace beside a program of this host: what they print, and that they are ended.

Where a program is not here, or this kernel has no support for it, a fake one at the border speaks
as it does: perf 6.1 (stat, record, script) and bpftrace 0.17.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from kdelta import data, process
from kdelta.errors import GuestError, SpecError
from kdelta.host import native
from kdelta.run import observers, traced_host
from kdelta.run.observers import Observing
from kdelta.study import spec, tracing
from kdelta.study.tracing import PROGRAMS, WatchKind
from kdelta.tracing import observed, setting
from kdelta.tracing.observed import Unseen

NOW = threading.Event()
ATTACHED = '{"type": "attached_probes", "data": {"probes": 1}}'
PERF = """\
#!/bin/sh
# perf: waits for the order, says ack, and ends when the process does.
what=$1
while [ $# -gt 0 ]; do
    case $1 in
    -p) pid=$2 ;; -o) out=$2 ;; --control) control=${2#fifo:} ;; -e) event=$2 ;; -c) every=$2 ;;
    esac
    shift
done
if [ $what = script ]; then
    printf '         55d0 kd_touch\\n ffffffff81000000 clear page\\n         55d0 kd_touch\\n'
    exit 0
fi
[ "$event" = refused ] && { echo 'event syntax error: refused' >&2; exit 129; }
[ "$event" = silent ] && sleep 60
read -r order < "${control%,*}"
[ "$order" = enable ] && printf 'ack\\n' > "${control#*,}"
while kill -0 "$pid" 2>/dev/null && [ "$(cut -d' ' -f3 /proc/$pid/stat)" != Z ]; do sleep 0.01; done
printf '# started\\n\\n7,,%s,123,100.00,,\\n' "$event" > "$out"
"""
BPFTRACE = """\
#!/bin/sh
# bpftrace: says what it has, sets it, begins the command of -c, and tells its maps behind that.
[ "$6" = wrong ] && { printf 'stdin:1:1-6: ERROR: syntax error\nwrong\n~~~~~\n' >&2; exit 1; }
echo '{"type": "attached_probes", "data": {"probes": 1}}'
if [ "$6" = missing ]; then
    echo 'stdin:1:1-8: WARNING: f is not traceable; attaching to it will likely fail' >&2
    sleep 0.1
    echo 'cannot attach kprobe, probe entry may not exist' >&2
    echo "ERROR: Error attaching probe: 'kprobe:f'" >&2
    exit 255
fi
[ "$6" = warned ] && echo 'WARNING: could not attach probe kprobe:f, skipping.' >&2
[ "$6" = slow ] && { sleep 0.3; echo slow > "$0.set"; }
$4
cat "$0.maps"
"""


MAPS = """\
{"type": "map", "data": {"@": {"8": 3, "1": 2}}}
{"type": "lost_events", "data": {"events": 4}}
"""


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """perf and bpftrace that speak as the real ones do, before all others on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("perf", PERF), ("bpftrace", BPFTRACE), ("bpftrace.maps", MAPS)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(observers, "_READY_S", 1.0)
    return folder


def watched(place: Path, *texts: str, **programs: str) -> Observing:
    program = place / "program"
    program.write_text("#!/bin/sh\necho done\n")
    program.chmod(0o755)
    cpu = min(os.sched_getaffinity(0))
    raw: list[str] = []
    with Observing(programs, [*map(tracing.watch, texts)], raw) as found:
        run = native.run(program, [], [cpu], timeout=60, cancelled=NOW, begin=found.begin)
        assert run.text == "done\n"
        found.end()
    assert len(raw) == len(found.told) + len(found.refused) or found.refused
    return found


@pytest.mark.usefixtures("fakes")
def test_each_tells_what_it_saw(tmp_path: Path) -> None:
    words = ("perf(page-faults)", "record(page-faults=1)", "bpftrace(nr)")
    found = watched(tmp_path, *words, nr="kprobe:f { @[arg5] = count(); }")
    assert not found.refused
    assert {one.text: told for one, told in found.told.items()} == {
        "perf(page-faults)": ({("", ""): 7}, 0),
        "record(page-faults=1)": ({("", ""): 0, ("", "kd_touch"): 2, ("", "clear page"): 1}, 0),
        "bpftrace(nr)": ({("", "8"): 3, ("", "1"): 2}, 4),
    }


@pytest.mark.usefixtures("fakes")
def test_what_one_refuses_costs_only_itself(tmp_path: Path) -> None:
    begun = time.monotonic()
    found = watched(
        tmp_path, "perf(refused)", "bpftrace(bad)", "perf(silent)", "perf(faults)", bad="wrong"
    )
    assert {one.watch.text: one.reason for one in found.refused} == {
        "perf(refused)": "perf: event syntax error: refused",
        "bpftrace(bad)": "bpftrace: stdin:1:1-6: ERROR: syntax error",
        "perf(silent)": "perf did not begin within 1 s",
    }
    assert [one.text for one in found.told] == ["perf(faults)"]
    assert time.monotonic() - begun < 30  # nothing waits for the one that sleeps


@pytest.mark.usefixtures("fakes")
def test_a_probe_that_is_not_set_is_no_zero(tmp_path: Path) -> None:
    """bpftrace 0.17 says that it attached to one before it tries."""
    found = watched(tmp_path, "bpftrace(a)", "bpftrace(b)", a="missing", b="warned")
    assert not found.told
    assert [one.reason for one in found.refused] == [
        "bpftrace: ERROR: Error attaching probe: 'kprobe:f'",
        "bpftrace: WARNING: could not attach probe kprobe:f, skipping.",
    ]


def test_nothing_begins_before_all_is_set(fakes: Path) -> None:
    with Observing({"a": "slow"}, [tracing.watch("bpftrace(a)")], []) as found:
        found.begin(os.getpid())
        assert (fakes / "bpftrace.set").read_text() == "slow\n"
        found.end()
    assert [told for told, _ in found.told.values()] == [{("", "8"): 3, ("", "1"): 2}]


def test_who_has_neither_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakes: Path
) -> None:
    for name in ("perf", "bpftrace"):
        (fakes / name).unlink()
    monkeypatch.setattr(process, "which", lambda _: None)
    found = watched(tmp_path, "perf(faults)", "bpftrace(nr)", nr="x")
    assert [one.reason for one in found.refused] == [
        "perf is not installed (see: kdelta doctor)",
        "bpftrace is not installed (see: kdelta doctor)",
    ]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (one,) = watched(tmp_path, "bpftrace(nr)", nr="x").refused
    assert one.reason == "only root may run bpftrace"


def test_what_perf_prints() -> None:
    assert observed.stat("# started\n\n466,,page-faults,1,100.00,,\n", "page-faults") == {
        ("", ""): 466
    }
    with pytest.raises(Unseen, match="instructions is not supported here"):
        observed.stat("<not supported>,,instructions,0,100.00,,\n", "instructions")
    assert observed.stat("5,,faults:u,1,100.00,,\n", "faults") == {
        ("", ""): 5
    }  # of an ordinary user
    for garbage in ("", "1,,a\n2,,b\n", "7,,other,1\n", "1.5,msec,clock,1\n", "-1,,clock,1\n", "9"):
        with pytest.raises(GuestError):
            observed.stat(garbage, "clock")
    assert observed.samples("  ffff f+0x1\n\n 55 a b\x1b\n".replace("\x1b", "")) == {
        ("", ""): 0, ("", "f+0x1"): 1, ("", "a b"): 1,
    }  # fmt: skip
    for garbage in ("no address", "55 \x1b[2J"):
        with pytest.raises(GuestError):
            observed.samples(garbage)


def test_what_bpftrace_prints() -> None:
    hist = '[{"max": -1, "count": 1}, {"min": 1, "max": 1, "count": 3}, {"min": 2, "count": 4}]'
    text = (
        f'{ATTACHED}\n{{"type": "map", "data": {{"@n": 5}}}}\n'
        f'{{"type": "map", "data": {{"@c": {{"f": {{"a": 2}}}}}}}}\n'
        f'{{"type": "hist", "data": {{"@h": {hist}}}}}\n'
    )
    assert observed.maps(text) == (
        {("@n", ""): 5, ("@c", "f a"): 2, ("@h", "-1"): 1, ("@h", "1"): 3, ("@h", "2"): 4}, 0,
    )  # fmt: skip
    for name in ("n", "@a b", "@\\u001b[2J"):
        with pytest.raises(GuestError, match="tells of a map"):
            observed.maps(f'{{"type": "map", "data": {{"{name}": 1}}}}\n')
    for value in ("true", '"x"', "1.5", '{"a": null}', '[{"min": 1}]', "[3]"):
        with pytest.raises(GuestError):
            observed.maps(f'{{"type": "map", "data": {{"@": {value}}}}}\n')
    with pytest.raises(GuestError, match="no JSON"):
        observed.maps("Attaching 1 probe...\n")
    assert observed.maps("[]\n") == ({("", ""): 0}, 0)


@pytest.mark.parametrize(
    ("text", "kind", "name", "period"),
    [
        ("perf(page-faults)", WatchKind.PERF, "page-faults", 0),
        ("perf(sched:sched_switch)", WatchKind.PERF, "sched:sched_switch", 0),
        ("record(cycles:k=100000)", WatchKind.RECORD, "cycles:k", 100000),
        ("bpftrace(nr)", WatchKind.BPFTRACE, "nr", 0),
    ],
)
def test_the_words_of_a_study(text: str, kind: WatchKind, name: str, period: int) -> None:
    study = spec.from_arguments(
        ["mprotect:a"], ["host"], instrument="trace", watch=[text], programs={"nr": "BEGIN {}"}
    )
    (found,) = map(tracing.watch, study.trace.watch)
    assert (found.kind, found.name, found.period) == (kind, name, period)
    assert spec.from_text(spec.to_toml(study), "again") == study


@pytest.mark.parametrize(
    "text", ["perf(-e x)", "perf()", "perf(a,b)", "record(cycles)", "record(c=0)", "bpftrace(a b)"]
)
def test_no_option_of_perf_is_a_word(text: str) -> None:
    with pytest.raises(SpecError):
        spec.from_arguments(["mprotect:a"], ["host"], instrument="trace", watch=[text])


def test_a_program_has_to_be_in_the_study() -> None:
    with pytest.raises(SpecError, match="no bpftrace program nr"):
        spec.from_arguments(["mprotect:a"], ["host"], instrument="trace", watch=["bpftrace(nr)"])


@pytest.mark.parametrize("kept", ["max(arg1)", "avg (arg1)", "\nmin(1)", "stats(arg1)"])
def test_what_is_no_count_is_kept_by_no_program(kept: str) -> None:
    with pytest.raises(SpecError, match="holds no hits"):
        spec.from_arguments(
            ["mprotect:a"], ["host"], instrument="trace", watch=["bpftrace(nr)"],
            programs={"nr": f"kprobe:f {{ @n =\t{kept}; }}"},
        )  # fmt: skip
    spec.from_arguments(
        ["mprotect:a"], ["host"], instrument="trace", watch=["bpftrace(nr)"],
        programs={"nr": 'kprobe:f { @x = count(); /* @n = max(1) */ printf("= max(");}  // = min('},
    )  # fmt: skip


def test_a_guest_has_neither() -> None:
    words = [tracing.watch(text) for text in ("f", "perf(faults)", "bpftrace(nr)")]
    assert {one.kind for one in words[1:]} <= PROGRAMS
    assert [one.watch.name for one in setting.host_only(words)] == ["faults", "nr"]


def test_only_what_needs_tracefs_misses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    both = [tracing.watch(text) for text in ("f", "perf(faults)")]
    assert traced_host._without_tracefs(both, tmp_path) == "only root may trace this host"
    assert traced_host._without_tracefs(both[1:], tmp_path)
    with pytest.raises(SpecError, match="only root"):
        traced_host._without_tracefs(both[:1], tmp_path)


@pytest.mark.usefixtures("fakes")
def test_a_full_scan_of_khugepaged_has_time_and_progress(tmp_path: Path, fakes: Path) -> None:
    study = spec.load(data.directory("studies") / "khugepaged-traced-host.toml")
    names = set(study.trace.programs)
    asked = {one.name for one in map(tracing.watch, study.trace.watch)} & names
    assert asked == names == {"statuses", "full_scans"}
    (fakes / "bpftrace.maps").write_text(
        '{"type": "map", "data": {"@all_full_scans_ms": 419000}}\n'
        '{"type": "map", "data": {"@begun": {}}}\n'
        '{"type": "map", "data": {"@full_scans": 2}}\n'
        '{"type": "map", "data": {"@passes": 42}}\n'
        '{"type": "map", "data": {"@progress_pages": 172544}}\n'
        '{"type": "hist", "data": {"@full_scan_ms": '
        '[{"min": 131072, "max": 262143, "count": 2}]}}\n'
    )
    found = watched(tmp_path, "bpftrace(full_scans)", **study.trace.programs)
    ((hits, lost),) = found.told.values()
    assert lost == 0
    assert hits == {
        ("@all_full_scans_ms", ""): 419000,
        ("@full_scans", ""): 2,
        ("@passes", ""): 42,
        ("@progress_pages", ""): 172544,
        ("@full_scan_ms", "131072..262143"): 2,
    }
