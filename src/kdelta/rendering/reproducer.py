# SPDX-License-Identifier: GPL-2.0-or-later
"""One scenario as one short C file that builds and runs alone, to put into a mail.

It is the workload's own program with the scenario's numbers put in, what other scenarios need left
out, and of kdelta.h what is still called; `reproducer.h` stands for the harness.
"""

from __future__ import annotations

import errno
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache as remember
from importlib import metadata
from pathlib import Path

from kdelta import cache, data
from kdelta.errors import SpecError
from kdelta.machine import folios
from kdelta.rendering import c_items
from kdelta.rendering.c_folding import specialised
from kdelta.rendering.c_items import Item
from kdelta.rendering.c_tree import Given
from kdelta.rendering.c_values import computed
from kdelta.rendering.exported import SPDX, exported_source, source
from kdelta.rendering.lead import is_set
from kdelta.workload import ITERATIONS, WARMUP, Scenario, Workload

MOST_LINES = 199
_EXPORT = "export.c"
_HARNESS = Path(__file__).with_name("reproducer.h")
SHORTER = Path(__file__).with_name("shorter")  # of programs whose preparation is long
# True once for every iteration, those of the warm-up first.
_NEXT = "#define kd_next()\t(++kd_round < ITERATIONS)\n"
_NEXT_LAYOUT = """\
#define kd_next() \\
	(kd_lay_out((kd_round + WARMUP + 1) % KD_LAYOUTS), ++kd_round < ITERATIONS)
"""
# Where a program reserves room itself there is one way to get memory, else a shorter one.
_MAP = """\
#define kd_map(bytes, prot, flags) \\
	kd_map_at(kd_reserve(bytes, KD_HUGE), bytes, prot, flags, -1)
"""
_FLAGS = {"KD_OVER_LAYOUTS": 1 << 31, "KD_OVER_BATCHES": 1 << 30}
# Quiet for counting: who takes times needs none of it.
_ASIDE = (
    *("kd_alone", "kd_audit_task", "kd_fixed_layout", "kd_drain_batches", "KD_BEGIN", "KD_END"),
)
_REPLACED = {
    ("kd_audit_anon", 6): "kd_look({1}, {2});",
    ("kd_audit_state", 5): "kd_look({1}, {2});",
    ("kd_state", 4): "kd_state({1}, {2}, {3});",
}
# What the file can tell of the contract: fact, words, how it is seen.
_SEEN = (
    ("present_pages", "present pages", "kd_present(start, bytes)"),
    ("anon_huge_kb", "kB in huge pages", 'kd_smaps(start, bytes, "AnonHugePages:")'),
)
# What is left out, step by step, until the file is short enough: what the windows themselves
# are asked, then what the audit looks at beside the memory, then that; then preparations are those
# of `shorter`.
_FACTS = frozenset({"kd_state", "kd_all"})
_STEPS = (frozenset[str](), _FACTS, _FACTS, _FACTS | {"audit", "kd_look"})
_AUDIT_ONLY = 2
_GAPS = re.compile(r"(?<=\{\n)\n|\n{3,}")  # what was between lines is left
# Headers that are wanted only where one of their words is: any of these,
_HEADERS = (
    ("dirent.h", r"DIR|opendir"),
    ("err.h", r"err|errx|warnx"),
    ("errno.h", "|".join(("errno", *errno.errorcode.values()))),
    ("fcntl.h", r"open\w*|O_[A-Z]+|fcntl|F_[A-Z]+|AT_\w+|\w*splice|tee|\w*fallocate|readahead"),
    ("inttypes.h", r"PRIu64"),
    ("linux/magic.h", r"[A-Z]+_MAGIC"),
    ("pthread.h", r"pthread_\w+|PTHREAD_\w+"),
    ("sched.h", r"sched_\w+|cpu_set_t|CPU_\w+|CLONE_\w+|unshare"),
    ("signal.h", r"signal|kill|SIG\w+|sig_atomic_t"),
    ("stdbool.h", r"bool|true|false"),
    ("stddef.h", r"offsetof"),
    ("stdint.h", r"u?int\d+_t|uintptr_t|UINT\w+"),
    ("stdio.h", r"\w*printf|FILE|fopen|\w*scanf|putchar|puts|fflush"),
    ("stdlib.h", r"malloc|free|qsort|strto\w+|exit|atexit|getenv|mkdtemp|realpath|\w*setenv"),
    ("string.h", r"str(?!uct\b)\w+|mem\w+"),
    ("sys/mman.h", r"mmap|munmap|mprotect|madvise|mincore|mremap|MAP_\w+|PROT_\w+|memfd_create"),
    ("sys/mount.h", r"u?mount2?"),
    ("sys/personality.h", r"personality"),
    ("sys/resource.h", r"rusage|getrusage|getpriority|setpriority|rlimit"),
    ("sys/stat.h", r"l?f?statx?|mkdir|mknod|mkfifo|f?chmod|umask|futimens|S_I[A-Z]+"),
    ("sys/utsname.h", r"utsname"),
    ("sys/vfs.h", r"f?statfs"),
    ("sys/wait.h", r"wait(?:id|pid|[34])?|W(?:EXIT|IF|STOP|TERM)[A-Z]+|WNOHANG|WUNTRACED|WNOWAIT"),
    ("time.h", r"clock_gettime|nanosleep|timespec"),
    ("unistd.h", r"\w*"),
)
# and of these what the program has.
_OWN_HEADERS = (
    ("arpa/inet.h", r"sockaddr_in\w*|in_addr|hton[ls]|ntoh[ls]|INADDR_\w+|IPPROTO_\w+"),
    ("ftw.h", r"nftw|FTW\w*"),
    ("limits.h", r"[A-Z]+_MAX"),
    ("linux/futex.h", r"FUTEX\w+|futex_\w+"),
    ("linux/mempolicy.h", r"MPOL_\w+"),
    ("linux/perf_event.h", r"perf_event\w*|PERF_\w+"),
    ("mqueue.h", r"mq_\w+|mqd_t"),
    ("net/if.h", r"ifreq|IFF_\w+"),
    ("poll.h", r"p?poll|pollfd|POLL\w+"),
    ("semaphore.h", r"sem_\w+"),
    ("stdatomic.h", r"atomic_\w+"),
    ("sys/epoll.h", r"epoll_\w+|EPOLL\w+"),
    ("sys/eventfd.h", r"eventfd|EFD_\w+"),
    ("sys/file.h", r"flock|LOCK_\w+"),
    ("sys/inotify.h", r"inotify_\w+|IN_[A-Z]+"),
    ("sys/ioctl.h", r"ioctl|SIOC\w+"),
    ("sys/ipc.h", r"IPC_\w+|ftok"),
    ("sys/msg.h", r"msg(?:get|ctl|snd|rcv)|msqid_ds"),
    ("sys/prctl.h", r"prctl|PR_\w+"),
    ("sys/random.h", r"getrandom|GRND_\w+"),
    ("sys/select.h", r"p?select|fd_set|FD_\w+"),
    ("sys/sem.h", r"sem(?:get|ctl|op|timedop|buf)|SEM_\w+"),
    ("sys/sendfile.h", r"sendfile"),
    ("sys/shm.h", r"shm(?:get|at|dt|ctl)|SHM_\w+"),
    ("sys/signalfd.h", r"signalfd\w*|SFD_\w+"),
    ("sys/socket.h", r"socket\w*|[AP]F_\w+|SOCK_\w+|sockaddr\w*|msghdr|send\w+|recv\w+"),
    ("sys/syscall.h", r"syscall|SYS_\w+"),
    ("sys/sysinfo.h", r"sysinfo"),
    ("sys/timerfd.h", r"timerfd_\w+|TFD_\w+"),
    ("sys/uio.h", r"iovec|\w*readv2?|\w*writev2?"),
    ("sys/xattr.h", r"\w*xattr"),
)
_PREFACE = """\
{name}.c - {summary}

{source}
{path}Build:  gcc -O2 -static {name}.c -o {name}
Run:    taskset -c 0 ./{name}
Made by: kdelta workload export {reference}
"""


def kept_reproducer(workload: Workload, scenario: Scenario) -> str:
    """The same as reproducer, which takes a second, from the cache when it was written before."""
    headers = (*workload.program.parent.glob("*.h"), *data.directory("guest").glob("*.h"))
    toml = workload.program.with_suffix(".toml")
    beside = [path for path in (toml, _shorter(workload)) if path.is_file()]
    read = (workload.program, *sorted(headers), _HARNESS, *beside)
    parts = [path.read_bytes() for path in read]
    key = cache.digest(workload.name, scenario.name, _own_code(), *parts)

    def make(folder: Path) -> None:
        (folder / _EXPORT).write_text(reproducer(workload, scenario))

    with cache.lent("exports", key, make) as folder:
        return (folder / _EXPORT).read_text()


@remember
def _own_code() -> str:
    """A digest of all code that may have a say in it."""
    versions = [metadata.version(name) for name in ("tree-sitter", "tree-sitter-c")]
    return cache.digest(*versions, *(path.read_bytes() for path in data.code()))


def reproducer(workload: Workload, scenario: Scenario) -> str:
    """The C file of one scenario; all of a program that is not written so that it can be cut.

    Raises InfraError when the installation is damaged.
    """
    try:
        program = source(workload.program)
        known = _known(workload, scenario, program)
    except SpecError:
        return exported_source(workload)
    text = ""
    for shorter in (False, True):
        text = _shortest(workload, scenario, program, known, shorter=shorter)
        if text.count("\n") <= MOST_LINES or not _shorter(workload).is_file():
            break
    return text


def _shortest(
    workload: Workload, scenario: Scenario, program: str, known: Given, *, shorter: bool
) -> str:
    """As much as fits, else as little as there can be."""
    found = _whole(workload, scenario, program, known, shorter=shorter)
    text = ""
    for step, aside in enumerate(_STEPS):
        known = replace(known, aside=known.aside | aside)
        if shorter and step < len(_STEPS) - 1:
            continue
        if step >= _AUDIT_ONLY:
            known = replace(known, replaced={**known.replaced, **_look_at_once(found)})
        found = _again(found, known)
        includes = _includes(program, found)
        for comments in (True, False):
            body = "".join(_joined(found, comments=comments)).lstrip("\n")
            text = f"{SPDX}{_preface(workload, scenario)}\n{includes}\n{_GAPS.sub(_gap, body)}"
            if text.count("\n") <= MOST_LINES:
                return text
    return text


def _shorter(workload: Workload) -> Path:
    return SHORTER / f"{workload.name}.h"


def _own(workload: Workload, program: str, *, shorter: bool) -> str:
    """The program, its short forms in place of what they stand for."""
    text = _main(program)
    if not shorter:
        return text
    forms = list(c_items.items(_main(source(_shorter(workload))).encode()))
    named = {name for item in forms for name in item.names}
    kept = [item for item in c_items.items(text.encode()) if not item.names & named]
    return "\n\n".join(_whole_text(item) for item in (*kept, *forms))


def _look_at_once(found: list[Item]) -> dict[tuple[str, int], str]:
    """The look at the memory in place of the audit, where that is given the memory."""
    for item in found:
        heading = re.match(r"static void audit\(([^)]*)\)", item.text)
        looked = re.search(r"kd_look\((\w+), ([^;]*)\);", item.text)
        if heading and looked:
            names = [re.findall(r"\w+", one)[-1] for one in heading[1].split(",")]
            if looked[1] in names and looked[2] == "BYTES":
                place = names.index(looked[1])
                return {("audit", len(names)): f"kd_look({{{place}}}, BYTES);"}
    return {}


def _gap(found: re.Match[str]) -> str:
    return "" if found[0] == "\n" else "\n\n"


def _whole(
    workload: Workload, scenario: Scenario, program: str, known: Given, *, shorter: bool
) -> list[Item]:
    """What the scenario needs of program, harness and header."""
    own = _items(_own(workload, program, shorter=shorter), known)
    stand_ins = _items(source(_HARNESS), replace(known, part=True))
    if folios.cell_of(scenario.name):  # the header's own brings folios in
        stand_ins = [item for item in stand_ins if "kd_no_thp" not in item.names]
    if any("kd_reserve" in item.needs for item in own):
        stand_ins = [item for item in stand_ins if "kd_map" not in item.names]
        stand_ins += c_items.items(_MAP.encode())
    harness = [*_prologue(workload, scenario, known), *stand_ins]
    named = {name for item in (*own, *harness) for name in item.names}
    header = source(data.directory("guest") / "kdelta.h").replace("kd_api", "static")
    header = re.sub(r"^#(?:ifndef|define|endif).*KDELTA_H.*\n", "", header, flags=re.MULTILINE)
    shared = [item for item in c_items.items(header.encode()) if not item.names & named]
    return _sliced([*harness, *shared, *own])


def _again(found: list[Item], known: Given) -> list[Item]:
    """As one: parameters that nobody needs show when their callers are there."""
    text = "\n\n".join(_whole_text(item) for item in found)
    whole = specialised(text.encode(), known)
    return _sliced([_without_arguments(item) for item in c_items.items(whole)])


def _known(workload: Workload, scenario: Scenario, program: str) -> Given:
    numbers = {**_FLAGS, **c_items.enumerators(program.encode())}
    _, flags, calls = c_items.row(program, scenario.base)
    value = computed(flags, numbers)
    cell = folios.cell_of(scenario.name)
    aside = [*_ASIDE, *workload.aside]
    if not _looks(scenario):
        aside += [name for name, _ in _REPLACED if name != "kd_state"]
    return Given(
        numbers=numbers,
        fields={
            "bytes": "BYTES",
            "flags": str(value),
            "calls": calls,
            "name": f'"{scenario.name}"',
        },
        calls={
            "kd_over_layouts": int(bool(value & _FLAGS["KD_OVER_LAYOUTS"])),
            "kd_folio": cell.kib << 10 if cell else 0,
            "kd_by_ptes": int(bool(cell and cell.by_ptes)),
        },
        aside=frozenset(aside),
        replaced=_REPLACED,
    )


def _looks(scenario: Scenario) -> str:
    """What the file asks of its memory: that which is there, and huge."""
    wanted = {fact.name: fact.want for fact in scenario.contract}
    return "".join(
        f'\tkd_check("{words}", {how}, {wanted[name]});\n'
        for name, words, how in _SEEN
        if wanted.get(name, "0").isdigit() and wanted.get(name, "0") != "0"
    )


def _prologue(workload: Workload, scenario: Scenario, known: Given) -> Iterator[Item]:
    """What stands for the command line and the table of scenarios."""
    phases = 1 + max(phase.id for phase in workload.phases)
    windows = scenario.layouts if scenario.layouts > 1 else ITERATIONS
    size, *_ = c_items.row(source(workload.program), scenario.base)
    if folios.cell_of(scenario.name):
        size = f"{scenario.pages} * KD_PAGE"
    text = (
        f"enum {{ ITERATIONS = {windows}, WARMUP = {WARMUP}, PHASES = {phases} }};\n\n"
        f"{_NEXT_LAYOUT if known.calls['kd_over_layouts'] else _NEXT}\n"
        f"#define BYTES\t({size})\n\n"
        "/* The state that the numbers are of. */\n"
        "static void kd_look(const char *start, size_t bytes)\n"
        f"{{\n{_looks(scenario)}}}\n"
    )
    return c_items.items(text.encode())


def _main(program: str) -> str:
    """The program without the command line."""
    text = re.sub(r"\tconst struct kd_scenario \*s(;| = kd_start\([^;]*\);)\n", "", program)
    text = re.sub(r"\ts = kd_start\([^;]*\);\n", "", text)
    text = text.replace("{ s, ", "{ ")  # an initialiser of what holds the scenario
    return re.sub(r"\tkd\.protocol = [^\n]*\n", "", text)


def _without_arguments(item: Item) -> Item:
    """main() takes none where it looks at none: a parameter that nobody uses is a warning."""
    if "main" not in item.names or "argv" in item.text.partition("{")[2]:
        return item
    return replace(item, text=item.text.replace("(int argc, char **argv)", "(void)"))


def _items(text: str, known: Given) -> list[Item]:
    return list(c_items.items(specialised(text.encode(), known)))


def _whole_text(item: Item) -> str:
    return f"{item.comment}\n{item.text}" if item.comment else item.text


def _sliced(every: list[Item]) -> list[Item]:
    """What main() needs, each after what it needs itself."""
    by_name: dict[str, list[Item]] = {}
    for item in every:
        for name in item.names:
            by_name.setdefault(name, []).append(item)
    done: dict[int, Item] = {}

    def add(item: Item) -> None:
        if id(item) in done or id(item) in under_way:
            return
        under_way.add(id(item))
        needed = {id(one): one for name in item.needs for one in by_name.get(name, ())}
        for one in sorted(needed.values(), key=order.__getitem__):
            add(one)
        done[id(item)] = item

    order = _Order(every)
    under_way: set[int] = set()
    for item in every:
        if "main" in item.names:
            add(item)
    return list(done.values())


class _Order:
    """The place of each item in the text it comes from."""

    def __init__(self, every: list[Item]) -> None:
        self._place = {id(item): at for at, item in enumerate(every)}

    def __getitem__(self, item: Item) -> int:
        return self._place[id(item)]


def _includes(program: str, found: Iterable[Item]) -> str:
    body = "\n".join(c_items.bare(item.text) for item in found)
    used = {
        name for name, words in (*_HEADERS, *_OWN_HEADERS) if re.search(rf"\b(?:{words})\b", body)
    }
    own = set(re.findall(r"#include <([^>]+)>", program))
    wanted = used - (dict(_OWN_HEADERS).keys() - own)
    wanted |= own - dict((*_HEADERS, *_OWN_HEADERS)).keys()
    lines = "".join(f"#include <{name}>\n" for name in sorted(wanted))
    return f"#define _GNU_SOURCE\n{lines}" + (
        "#define noinline __attribute__((noinline))\n" if "noinline" in body else ""
    )


def _joined(found: list[Item], *, comments: bool) -> Iterator[str]:
    """Functions with a line between them; macros and what is one line stay beside their like."""
    before = ""
    for item in found:
        text = item.text if comments else c_items.bare(item.text, strings=True)
        if comments and item.comment:
            text = f"{item.comment}\n{text}"
        gap = "\n" if _stands_alone(text) or _stands_alone(before) else ""
        yield f"{gap}{text}\n"
        before = text


def _stands_alone(text: str) -> bool:
    return "\n" in text and not text.startswith("#define")


def _said(workload: Workload, scenario: Scenario) -> str:
    """What a program is of; of a set what the scenario is of, and of no mail why it is there."""
    if is_set(workload) and scenario.robots:
        return f"Written after {', '.join(scenario.robots)}"
    said = workload.mail.removeprefix("none: ")
    return said if said == workload.mail else said[:1].upper() + said[1:]


def _filled(label: str, text: str) -> str:
    return textwrap.fill(label + text, 74, subsequent_indent=" " * len(label))


def _preface(workload: Workload, scenario: Scenario) -> str:
    text = _PREFACE.format(
        name=scenario.name,
        summary=scenario.summary,
        source=textwrap.fill(_said(workload, scenario), 72),
        path="" if is_set(workload) else f"{_filled('Path:   ', workload.path)}\n",
        reference=scenario.reference,
    )
    return "\n".join(["/*", *(f" * {line}".rstrip() for line in text.splitlines()), " */"])
