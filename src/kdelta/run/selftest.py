# SPDX-License-Identifier: GPL-2.0-or-later
"""Does this QEMU count right?  Asked once of each QEMU, CPU and plugin, before it counts anything.

A program of known numbers (guest/selftest.c) is counted in a guest: loops, string instructions
where there are any, faults in the middle and at the end of blocks, system calls.  Of a QEMU whose
CPUs take turns: which CPU counted, and that the line of a word goes from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kdelta import cache, data, guest
from kdelta.attribution import insns, symbols
from kdelta.errors import GuestFault, InfraError
from kdelta.files import read_once
from kdelta.guests import orders, qemu
from kdelta.guests.checkpoint import Checkpoint
from kdelta.guests.session import Guest, RestoreError
from kdelta.probes import calls, memory, sharing
from kdelta.run.guest_trial import Bench

_TIMEOUT_S = 120.0
_FORMAT = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWindow:
    """A window: strings are (name, executions, bytes), calls (function, how often entered), made
    the system calls, (number, errno, how often).  lines: what an atomic instruction of this CPU
    fetched and took from another one, None: not asked.
    """

    what: str
    user: int
    strings: tuple[tuple[str, int, int], ...] = ()
    calls: tuple[str, int] | None = None
    made: tuple[int, ...] = ()
    cpu: int = 0
    lines: int | None = None


# By phase; the numbers of rounds are those of the C file.
def _entering(fault: str, call: str, number: int) -> tuple[KnownWindow, ...]:
    at_end = "faults at the end of a block"
    return (
        KnownWindow(what="faults", user=2 + 6 * 64, calls=(fault, 64)),
        KnownWindow(what=at_end, user=3 + 4 * 64, calls=(fault, 64)),
        KnownWindow(
            what="system calls", user=1 + 4 * 1000, calls=(call, 1000), made=(number, 0, 1000)
        ),
    )


_LOOP = KnownWindow(what="a loop", user=1 + 2 * 10_000)
_MOVED = (("rep movsb", 100, 500_000), ("rep stosb", 100, 500_000))
_BROKEN = (("rep stosq", 1, 8 * 4096),)
KNOWN = {
    "amd64": (
        _LOOP,
        KnownWindow(what="string instructions", user=1 + 9 * 100, strings=_MOVED),
        *_entering("asm_exc_page_fault", "entry_SYSCALL_64", 110),
        KnownWindow(what="an interrupted string instruction", user=1, strings=_BROKEN),
    ),
    "riscv64": (_LOOP, *_entering("handle_exception", "handle_exception", 173)),
}
# Nobody has touched the word before the first turn.
_TURNS = tuple(
    KnownWindow(what=f"turn {turn}", user=1, cpu=turn % 2, lines=int(turn > 0)) for turn in range(4)
)


def name(arch: str) -> str:
    """The test of an architecture by its program, the known numbers and the plugin; "" where there
    is none.  Its windows are assembly, so what compiled them is no part of it.
    """
    if arch not in KNOWN:
        return ""
    texts = map(read_once, guest.sources(_program()))
    return cache.digest(_FORMAT, qemu.plugin_digest(), repr((KNOWN[arch], _TURNS)), *texts)[:16]


def _program() -> Path:
    return data.directory("guest") / "selftest.c"


def passed(
    bench: Bench, point: Checkpoint, image: Path, table: symbols.Symbols, whole: Callable[[], bool]
) -> str:
    """The name of the test that this QEMU passed with this CPU, now or before.

    table: the functions of the image's kernel.  whole: says whether the guest is what was saved;
    asked when it is to be used.  "" where there is no test: on arm64, on several CPUs that take no
    turns, and on a kernel on which the program does not run to its end, which is for its trial to
    say.  Raises InfraError for a QEMU that counts something else than is known.
    """
    emulator, settings = bench.emulator, bench.settings
    if settings.arch not in KNOWN or not (settings.cpus == 1 or emulator.turns):
        return ""
    wanted = _TURNS if emulator.turns else KNOWN[settings.arch]
    program = guest.program(_program(), settings.target)
    build = emulator.program.stat()
    # Another compiler's program is tested once more, and is the same test.
    compiled = program.parent.name
    tested = name(settings.arch)
    about = (compiled, emulator.banner, f"{build.st_size} {build.st_mtime_ns}", settings.cpu_model)

    def make(folder: Path) -> None:
        if not whole():
            raise RestoreError("the saved guest is damaged")
        counted = _counted(bench, point, image, table, program)
        if fault := difference(counted, table, wanted):
            cause = f"QEMU {emulator.version} fails its self-test: {fault}"
            action = f"get another with: kdelta tools qemu fetch {qemu.PINNED}"
            raise InfraError(cause, place=str(emulator.program), action=action)
        (folder / "passed").write_text(f"{emulator.banner}, {settings.cpu_model}\n")

    try:
        cache.entry("selftests", cache.digest(tested, *about), make)
    except GuestFault:
        return ""
    return tested


def _counted(
    bench: Bench, point: Checkpoint, image: Path, table: symbols.Symbols, program: Path
) -> insns.Counts:
    target = bench.settings.target
    with cache.passing("selftests") as folder:
        files = qemu.CountingFiles(output=folder / "counts", events=folder / "events")
        files.events.write_text(insns.events(table, target))
        if bench.emulator.turns and (places := memory.of(target.debian, "")):
            listed = folder / "functions"
            calls.functions(table, program.read_bytes()).write(listed)
            files = replace(files, functions=listed, memory=places.option, sharing=True)
        launch = qemu.Launch(
            image=image,
            initramfs=guest.initramfs(target, image),
            orders=(orders.run(["turns"] * bench.emulator.turns),),
            program=program,
            counting=files,
            restore=point.folder,
        )
        with Guest(bench.emulator, bench.settings, launch, cancelled=bench.cancelled) as machine:
            machine.finish(_TIMEOUT_S).ran()
        return insns.read(files.output)


def difference(counts: insns.Counts, table: symbols.Symbols, wanted: Sequence[KnownWindow]) -> str:
    """What was counted otherwise than is known, "" for nothing."""
    if counts.errors:
        return counts.errors[0]
    if [window.phase for window in counts.windows] != list(range(len(wanted))):
        return f"it has {len(counts.windows)} windows, not {len(wanted)}"
    for known, window in zip(wanted, counts.windows, strict=True):
        if window.vcpu != known.cpu:
            return f"{known.what} was counted on CPU {window.vcpu}, not {known.cpu}"
        if known.lines not in (None, moved := sharing.by_atomics(window.touched)):
            return f"{known.what} moved {moved} lines, not {known.lines}"
        if window.user != known.user:
            return f"{known.what} took {window.user} instructions, not {known.user}"
        own = (row for row in window.strings if row.address < 1 << 63)
        strings = tuple(sorted((row.name, row.ends, row.bytes) for row in own))
        if strings != known.strings:
            return f"{known.what}: {_listed(strings)}, not {_listed(known.strings)}"
        name, times = known.calls or ("", 0)
        rows = insns.by_function(window, table, "") if name else ()
        if (entered := sum(row.calls for row in rows if row.function == name)) != times:
            return f"{known.what} entered {name} {entered} times, not {times}"
        if known.made != (made := tuple(window.syscalls or ())):
            return f"{known.what} made the system calls {made}, not {known.made}"
    return ""


def _listed(strings: tuple[tuple[str, int, int], ...]) -> str:
    named = (f"{ends} {name} of {size} bytes" for name, ends, size in strings)
    return ", ".join(named) or "no string instructions"
