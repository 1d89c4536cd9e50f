# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs kbuild: reproducibly, bounded in processes and time; finds the first error in its log.

Makefiles of strangers run what they like, so they run in a cage: bubblewrap gives them a file
system of this machine's programs, without a home, without network, in which only the build's own
folders can be written, and processes of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as remember
from pathlib import Path

from kdelta import arch, cache, process
from kdelta.archive.apt import Progress
from kdelta.errors import InfraError, SpecError, as_root
from kdelta.toolchains import Toolchain

TIMEOUT_S = 3 * 3600.0
_POLL_S = 0.1
_SILENT_S = 900.0  # of what a stranger wrote: no compiler or linker takes so long
_QUICK_S = 60.0
_MIB_PER_JOB = 700
_MOST_LOG_BYTES = 256 << 20
_STEPS_WARM = 45

# Each of these is in the image otherwise, or decides what is.
PINNED = {
    "LC_ALL": "C",
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01",
    "KBUILD_BUILD_VERSION": "1",
    "KBUILD_BUILD_USER": "kdelta",
    "KBUILD_BUILD_HOST": "kdelta",
    "SOURCE_DATE_EPOCH": "1767225600",
}
_NEEDED = {
    "make": "make", "gcc": "gcc", "ld": "binutils", "flex": "flex", "bison": "bison", "bc": "bc",
    "lz4": "lz4", "git": "git", "tar": "tar", "xz": "xz-utils",
}  # fmt: skip
_HEADERS = {"gelf.h": "libelf-dev"}
# What only kernels of these options are built with.
_NEEDED_FOR = {"DEBUG_INFO_BTF": ("pahole", "dwarves")}
_HEADERS_FOR = {"SYSTEM_TRUSTED_KEYRING": ("openssl/bio.h", "libssl-dev")}
OF_PACKAGES = frozenset((*_NEEDED_FOR, *_HEADERS_FOR))  # Debian's configurations have these set
_STEP = re.compile(rb"^  [A-Z][A-Z0-9_.-]*\s", re.MULTILINE)

# What a log of a failed make is searched for, the best explanation first.
_OUR_FAULT = (
    (re.compile(r"No space left on device|Disk quota exceeded"), "disk"),
    (re.compile(r"Killed signal terminated program|Cannot allocate memory|ld: out of memory"),
     "memory"),
    (re.compile(r"virtual memory exhausted|\w: out of memory"), "endless"),
    (re.compile(r"fatal error: (?:gelf|libelf|elf)\.h: No such file"), "libelf-dev"),
    (re.compile(r"fatal error: openssl/\S+: No such file"), "libssl-dev"),
    (re.compile(r"(?:^|\s)(\w[\w.+-]*): (?:command )?not found", re.MULTILINE), "tool"),
)  # fmt: skip
_THEIR_FAULT = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^(?P<at>[^\s:][^:\n]*:\d+)(?::\d+)?: (?:fatal )?[Ee]rror: (?P<what>.+)$",
        r"^(?P<at>[^\s:][^:\n]*:\d+)(?::\d+)?: (?P<what>internal compiler error.*)$",
        r"^(?:\S*ld: )?(?P<at>[^\s:]+):(?:\([^)\n]*\):)? (?P<what>undefined reference.*)$",
        r"^(?:\S*ld: )?(?P<at>[^\s:]+):(?:\([^)\n]*\):)? (?P<what>multiple definition.*)$",
        r"^(?P<at>)ld\.lld: error: (?P<what>.+)$",
        r"^\S*ld: (?P<at>[^\s:]+): (?P<what>(?!in function|warning).+)$",
        r"^(?P<at>\S+): (?:fatal )?error: (?P<what>.+)$",
        r"^ERROR: (?P<at>\w+): (?P<what>.+)$",
        r"^(?P<at>\S+:\d+): \*\*\* (?P<what>.+?)(?:\.  Stop\.)?$",
        r"^make(?:\[\d+\])?: \*\*\* (?:\[(?P<at>[^\]]+)\] )?(?P<what>.+?)(?:\.  Stop\.)?$",
    )
)
# Of each process: no linker takes so much, and a source may include what never ends.
_BOUNDED = ("prlimit", f"--as={8 << 30}", "--cpu=3600", f"--fsize={8 << 30}", "--")
# What makes objects alone has no linker: no compiler of one takes so much.
OF_OBJECTS = ("prlimit", f"--as={7 << 27}", "--")
STRANGERS = "strangers"  # what they wrote is no part of what a user's own builds take
# Of a user's folders an overlay is what is seen: OPTIONS PLACE ... -- COMMAND, in a folder.
_OVERLAID = (
    'folder=$1; shift; while [ "$1" != -- ]; do mount -t overlay kdelta -o "$1" "$2" || exit;'
    ' shift 2; done; shift; cd "$folder" && exec "$@"'
)
_PROGRAM = "bwrap"
_PROBE_S = 30.0
_LINKED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# What programs of this system look up; nothing of it is secret.
_READ = ("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/openssl.cnf")


class SourceError(SpecError):
    """The source does not build.  log: what make printed; first: the first error in it."""

    def __init__(self, title: str, *, first: str, log: Path) -> None:
        super().__init__(f"{title} does not build: {first}", action=f"the whole log is {log}")
        self.first = first
        self.log = log


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A user's folders as commands see them, in name spaces of their own; nothing is written there.

    places: a source, and where it is built when that is elsewhere.  desk: a folder of ours; what is
    written over the place of number N goes to desk/N.upper, and desk/shown is seen over the source.
    """

    desk: Path
    places: tuple[Path, ...]

    def command(self, argv: Sequence[str], folder: Path, *, writable: bool) -> list[str]:
        """A command as it is run in a folder.  writable: what it writes there is kept."""
        words = ["unshare", *(["--user", "--map-root-user"] if os.geteuid() else []), "--mount"]
        words += ["--", "sh", "-c", _OVERLAID, "sh", str(folder)]
        for at, place in enumerate(self.places):
            option = f"userxattr,lowerdir={self.desk}/{'empty' if at else 'shown'}:{place}"
            if writable:
                option += f",upperdir={self.desk}/{at}.upper,workdir={self.desk}/{at}.work"
            words += [option, str(place)]
        return [*words, "--", *argv]

    def found(self, path: Path) -> Path:
        """Where a file below the last place is: what was written, else the user's."""
        upper = self.desk / f"{len(self.places) - 1}.upper"
        written = upper / path.relative_to(self.places[-1])
        return written if written.exists() else path


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """How make is called, always the same: another CC would make everything anew."""

    source: Path
    output: Path
    chain: Toolchain
    title: str  # of what is built, for messages and progress
    log: Path  # gets what make prints
    busy: int = -1  # inherited by all programs: see workspace
    outdated: int = 0  # objects that are compiled again, about
    confined: bool = False
    settings: tuple[str, ...] = ()  # further variables of make
    over: Overlay | None = None  # source and output are a user's

    @property
    def desk(self) -> Path:
        """Where files that make does not know of may be added."""
        return self.over.desk if self.over else self.output

    def isolated(
        self, argv: Sequence[str], folder: Path, *, writable: bool, readable: Path | None = None
    ) -> list[str]:
        """A command in all that make and its programs see: a user's shell must not decide an image.

        What is confined runs in a cage, where it may write source and output, and read `readable`.
        writable: what it writes over a user's folders is kept.
        """
        objects = cache.folder("ccache")
        if self.confined:
            objects /= STRANGERS
            objects.mkdir(exist_ok=True)
        kept = {key: os.environ[key] for key in ("PATH", "TMPDIR") if key in os.environ}
        kept["HOME"] = str(objects)  # where a shim of rustc would write its settings
        ccache = {"CCACHE_DIR": str(objects), "CCACHE_MAXSIZE": "4G", "CCACHE_NOHASHDIR": "1"}
        settings = kept | ccache | PINNED
        told = (f"{key}={value}" for key, value in settings.items())
        argv = [*_BOUNDED, "env", "-i", *told, *argv]
        if self.confined:
            seen, own = (readable,) if readable else (), (self.source,)
            cage = (*((*self.over.places, self.desk) if self.over else own), objects)
            argv = confined_command(argv, writable=cage, folder=folder, readable=seen)
        return self.over.command(argv, folder, writable=writable) if self.over else argv

    def run(
        self, targets: Sequence[str], *, steps: int = 0, progress: Progress | None = None
    ) -> None:
        """Make targets.

        steps: how many there will be about; 0: those of a folder where the rest is made.
        Raises SourceError when the source is at fault, InfraError when this machine is.
        """
        alone = all(name.endswith((".o", "--keep-going")) for name in targets)
        made = [*OF_OBJECTS * alone, "make", f"-j{jobs()}", f"O={self.output}"]
        made += [*arguments(self.chain), *self.settings, *targets]
        argv = self.isolated(made, self.source, writable=True)
        start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as stream:
            stream.write(f"$ {process.quote(argv)}\n".encode())
            stream.flush()
            child = process.start(
                argv, stdout=stream, stderr=stream, cwd=self.source,
                pass_fds=() if self.busy < 0 else (self.busy,), die_with_caller=True,
            )  # fmt: skip
            try:
                # A header makes many objects outdated.
                self._follow(child, start, steps or _STEPS_WARM + self.outdated, progress)
            finally:
                process.end(child)
        if child.returncode:
            with self.log.open("rb") as stream:
                stream.seek(start)
                text = stream.read(_MOST_LOG_BYTES).decode(errors="replace")
            raise failure(self.title, text, self.log, self.output)

    def _follow(
        self, child: subprocess.Popen[bytes], start: int, steps: int, progress: Progress | None
    ) -> None:
        deadline, done, at = time.monotonic() + TIMEOUT_S, 0, start
        silent = time.monotonic() + _SILENT_S
        while True:
            ended = child.poll() is not None
            with self.log.open("rb") as stream:
                stream.seek(at)
                chunk = stream.read(1 << 20)
            whole = chunk if ended else chunk[: chunk.rfind(b"\n") + 1]
            at += len(whole)
            done += len(_STEP.findall(whole))
            if progress:
                percent = 100.0 if ended else min(99.0, 100.0 * done / steps)
                progress(f"building {self.title}", percent)
            if ended and not whole:
                return
            if at - start > _MOST_LOG_BYTES:
                raise SourceError(self.title, first="make prints without end", log=self.log)
            silent = time.monotonic() + _SILENT_S if whole else silent
            if time.monotonic() > silent and self.confined:
                first = f"make printed nothing for {_SILENT_S / 60:.0f} minutes"
                raise SourceError(self.title, first=first, log=self.log)
            if time.monotonic() > deadline:
                raise InfraError(f"make did not end within {TIMEOUT_S:.0f} s", place=str(self.log))
            if not ended and not whole:
                time.sleep(_POLL_S)


def arguments(chain: Toolchain) -> tuple[str, ...]:
    """What make is always given for a compiler, with ccache when that is installed."""
    given = list(chain.make_arguments)
    if process.which("ccache"):
        given = [word for word in given if not word.startswith("CC=")]
        given.append(f"CC=ccache {chain.cc}")
    return (f"ARCH={arch.of(chain.target).kbuild}", "LOCALVERSION=", *given)


def jobs() -> int:
    """How many compilers run at once: what CPUs and memory allow."""
    cpus = len(os.sched_getaffinity(0))
    match = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return max(1, min(cpus, int(match[1]) // 1024 // _MIB_PER_JOB if match else cpus))


def missing(options: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The packages, by Debian's names, that this machine lacks to build kernels; sorted.

    options: those of the configuration that are set, without CONFIG_.
    """
    tools = _NEEDED | dict(_NEEDED_FOR[name] for name in options & _NEEDED_FOR.keys())
    headers = _HEADERS | dict(_HEADERS_FOR[name] for name in options & _HEADERS_FOR.keys())
    found = {package for tool, package in tools.items() if process.which(tool) is None}
    if "gcc" not in found:
        for header, package in headers.items():
            argv = ["gcc", "-E", "-include", header, "-x", "c", "/dev/null"]
            if process.run(argv, timeout=_QUICK_S, check=False).returncode:
                found.add(package)
    return tuple(sorted(found))


@remember
def check_tools(options: frozenset[str] = frozenset()) -> None:
    """Raise InfraError that names what `missing` finds."""
    if packages := missing(options):
        raise InfraError(
            f"building kernels needs {', '.join(packages)}",
            action=f"on Debian: apt-get install {' '.join(packages)}",
        )


def failure(title: str, text: str, log: Path, place: Path) -> SourceError | InfraError:
    """The error that a failed make's output means, with the first error of a compiler in it."""
    for pattern, kind in _OUR_FAULT:
        if (match := pattern.search(text)) is None:
            continue
        if kind == "disk":
            return cache.disk_full(place)
        if kind == "endless":
            first = (
                "its compiler takes more than 1.5 GiB of memory: does it include what never ends?"
            )
            return SourceError(title, first=first, log=log)
        package = _NEEDED.get(match[1], match[1]) if kind == "tool" else kind
        why, action = match[0].strip(), f"on Debian: apt-get install {package}"
        if kind == "memory":
            why = "memory ran out"
            action = "free some memory, or allow fewer CPUs with taskset, and run again"
        return InfraError(f"{title} could not be built: {why}", place=str(log), action=action)
    for pattern in _THEIR_FAULT:
        if match := pattern.search(text):
            where = f"{match['at']}: " if match["at"] else ""
            return SourceError(title, first=(where + match["what"])[:300], log=log)
    return InfraError(f"{title} could not be built: make failed without saying why", place=str(log))


def check_confinement() -> None:
    """Raise InfraError when builds cannot be confined here, with what to do about it."""
    why = "bubblewrap is not installed"
    if process.which(_PROGRAM) is not None:
        done = process.run(confined_command(["true"], writable=()), timeout=_PROBE_S, check=False)
        if not done.returncode:
            return
        why = f"bubblewrap does not work here ({done.last_words})"
    action = f"install it: {as_root('apt-get install bubblewrap')}; or, if you have read the"
    action += " patches and trust them as your own, add --trust"
    raise InfraError(f"a stranger's source is built confined, and {why}", action=action)


def confined_command(
    argv: Sequence[str],
    *,
    writable: Sequence[Path],
    folder: Path | None = None,
    readable: Sequence[Path] = (),
) -> list[str]:
    """A command as it runs confined, in a folder; writable: folders that it may write to."""
    cage = [_PROGRAM, "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
    cage += ["--tmpfs", "/tmp", "--setenv", "HOME", "/tmp", "--unsetenv", "TMPDIR"]  # noqa: S108
    for name in _LINKED:
        place = Path("/", name)
        if place.is_symlink():
            cage += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            cage += ["--ro-bind", str(place), str(place)]
    for place in (*map(Path, _READ), cache.root() / "toolchains", *readable):
        cage += ["--ro-bind-try", str(place), str(place)]
    for place in writable:
        cage += ["--bind", str(place), str(place)]
    if folder is not None:
        cage += ["--chdir", str(folder)]
    return [*cage, "--", *argv]
