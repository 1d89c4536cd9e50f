# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of this machine, taken as they are: with their libraries, as one C file in the cache.

What a program needs is read from its ELF headers; nothing of it is executed here.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from string import ascii_letters, digits

from kdelta import arch, cache, elf, process
from kdelta.arch import Arch
from kdelta.errors import SpecError
from kdelta.files import given
from kdelta.guest import FILES, newc
from kdelta.printable import few, printable

log = logging.getLogger(__name__)

_MOST_BYTES = 64 << 20  # of all files; a guest holds them twice
_MOST_FILES = 10_000  # below a folder
_LDCONFIG, _CACHE = "/sbin/ldconfig", "/etc/ld.so.cache"
_LISTED = re.compile(r"\s(\S+) \(([^)]*)\) => (/\S+)")  # a library, by ldconfig -p
_ASKED = "// kdelta run -- "
_TOP = ("", "/usr")
_START = "/start"  # what a guest calls the folder in which kdelta was started
_ORIGIN = re.compile(r"\$ORIGIN|\$\{ORIGIN\}")


def taken(argv: Sequence[str], named: Sequence[str], architecture: Arch) -> str:
    """The scenario that runs a program: a C file in the cache, see guest/program.h.

    named: files and folders that the guest has, too.  Raises SpecError for what cannot run there.
    """
    if not argv:
        raise SpecError("no program is named", place="--", action="write: -- ./program arguments")
    program = Path(os.path.realpath(shutil.which(argv[0]) or argv[0]))  # so is $ORIGIN
    loaded = dict(_with_libraries(program, architecture))
    files = dict(loaded)
    for place in map(_absolute, named):
        below = (Path(top, each) for top, _, own in os.walk(place) for each in own)
        within = list(islice(below, _MOST_FILES)) if place.is_dir() else [place]
        if len(within) == _MOST_FILES:
            cause = f"it holds {_MOST_FILES} files or more"
            raise SpecError(cause, place=str(place), action="name fewer files")
        if not within:
            raise SpecError("the folder has no file", place=str(place), action="put one into it")
        files |= {str(each): each for each in sorted(within) if each == place or each.is_file()}
    size = sum(each.stat().st_size for each in files.values() if each.is_file())
    if size > _MOST_BYTES:
        cause = f"the program and its files have {size >> 20} MiB, and a guest takes 64 MiB"
        raise SpecError(cause, place=" ".join([str(program), *named]), action="name fewer files")
    folders = [_absolute(word) for word in argv[1:] if os.path.isdir(word)]  # noqa: PTH112
    others = [
        one
        for one in folders
        if not any(
            own.is_relative_to(one) or one.is_relative_to(own) for own in map(_absolute, named)
        )
    ]
    if others:
        told = "%s in the guest is the guest's own; take files of yours with --file"
        log.warning(told, few([str(one) for one in others]))
    apart = [word for word in argv[1:] if _is_of_here(word) and str(_absolute(word)) not in files]
    if apart:
        cause = f"{few(apart)} is a file of this machine, which the guest has not"
        action = f"add {' '.join(f'--file {shlex.quote(word)}' for word in apart)}"
        raise SpecError(cause, action=action)
    start = _start([word for word in argv if word not in files], program, loaded)
    argv = [_in_guest(word, start) if word in files else word for word in argv]
    files = {_in_guest(name, start): file for name, file in files.items()}
    held = {name: given(file, _MOST_BYTES) for name, file in sorted(files.items())}
    packed = newc((name, files[name].stat().st_mode, content) for name, content in held.items())
    inside = _in_guest(str(program), start)
    text = _text(argv, start, inside, held, cache.digest(packed))
    text += f'#define KD_OTHERS {len(others)}\n#include "program.h"\n'
    name = re.sub(r"[^A-Za-z0-9_-]", "_", program.name)[:64]

    def make(folder: Path) -> None:
        (folder / FILES).write_bytes(packed)
        (folder / f"{name}.c").write_text(text)

    return f"{cache.entry('programs', cache.digest(text)[:16], make) / name}.c:{name}"


def asked(file: Path) -> str:
    """The program and its arguments that a C file of the cache runs; "" for another file."""
    lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
    return lines[1].removeprefix(_ASKED) if lines[1:] and lines[1].startswith(_ASKED) else ""


def _is_of_here(word: str) -> bool:
    """True for a plain file, but of /proc and /sys, which a guest has of its own."""
    place = _absolute(word)
    return os.path.isfile(place) and place.parts[1] not in ("proc", "sys")  # noqa: PTH113


def _start(argv: Sequence[str], program: Path, loaded: Mapping[str, Path]) -> str:
    """The folder in which a program runs: _START, so that no page names one of this machine; the
    real one where an argument has it, or where it is looked for.
    """
    here = str(Path.cwd())
    linked = [elf.linked(file) for name, file in loaded.items() if name != _CACHE]
    said = any(here in word for word in chain(argv, *(each.searched for each in linked)))
    apart = (name for name in loaded if not Path(name).is_relative_to(program.parent))
    return here if said or any(Path(name).is_relative_to(here) for name in apart) else _START


def _in_guest(name: str, start: str) -> str:
    """The path of a file in the guest, by its path here."""
    here = Path.cwd()
    return (
        str(Path(start, Path(name).relative_to(here))) if Path(name).is_relative_to(here) else name
    )


def _text(
    argv: Sequence[str], start: str, program: str, held: Mapping[str, bytes], digest: str
) -> str:
    """How the C file begins: what runs, the SHA-256 of each file.  digest: of all together."""
    listed = "".join(
        f"//   {hashlib.sha256(content).hexdigest()}  {printable(name, 300)}\n"
        for name, content in held.items()
    )
    return (
        "// SPDX-License-Identifier: GPL-2.0-or-later\n"
        f"{_ASKED}{printable(shlex.join(argv), 300)}\n"
        "// These files have licences of their own, and are not in here.  Their SHA-256:\n"
        f"{listed}"
        f"#define KD_FILES {_quoted(digest)}\n"
        f"#define KD_FOLDER {_quoted(start)}\n"
        f"#define KD_PROGRAM {_quoted(program)}\n"
        f"#define KD_ARGUMENTS {', '.join(map(_quoted, argv))}\n"
    )


def _quoted(text: str) -> str:
    """A string of C, whatever bytes it has."""
    plain = f"/._-+,:= {ascii_letters}{digits}".encode()
    told = (chr(each) if each in plain else f"\\{each:03o}" for each in os.fsencode(text))
    return f'"{"".join(told)}"'


def _absolute(path: str | Path) -> Path:
    """Links stay: the guest has a file where it is looked for."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _checked(program: Path, architecture: Arch) -> elf.Linked:
    """What a program is linked with.  Raises SpecError for one that the guest cannot execute."""
    place, begin = str(program), given(program, _MOST_BYTES, "name a program")[:200]
    if not os.access(program, os.X_OK):
        raise SpecError("it is not executable", place=place, action=f"chmod +x {place}")
    if begin.startswith(b"#!"):
        interpreter = printable(begin[2:].partition(b"\n")[0].decode(errors="replace").strip(), 100)
        action = f"name what executes it, and it as a file: --file {place} -- {interpreter} {place}"
        raise SpecError("it is a script", place=place, action=action)
    try:
        linked = elf.linked(program)
    except elf.BadElf as error:
        raise SpecError(f"it is no program: {error}", place=place, action="name one") from error
    if linked.machine != architecture.elf:
        other = arch.of_elf(linked.machine)
        named = other.debian if other else linked.machine
        cause = f"it is a program for {named}, and the guest is {architecture.debian}"
        raise SpecError(cause, place=place, action="name another one, or another --arch")
    return linked


def _with_libraries(program: Path, architecture: Arch) -> Iterator[tuple[str, Path]]:
    """The program, its loader and its libraries, each by the path at which it is looked for."""
    own = _checked(program, architecture)
    yield str(program), program
    if not own.interpreter:
        return
    action = "install it, or name another program"
    loader = [own.interpreter] if Path(own.interpreter).is_absolute() else []
    if not _library(loader, architecture):
        cause = f"its interpreter {printable(own.interpreter, 300)} is no loader here"
        raise SpecError(cause, place=str(program), action=action)
    yield from ((name, Path(name)) for name in (own.interpreter, _CACHE) if Path(name).is_file())
    known, listed = {Path(own.interpreter).name}, _listed()
    last = [f"{top}/{each}" for each in (f"lib/{architecture.gnu}", "lib64", "lib") for top in _TOP]
    above: tuple[str, ...] = ()
    left = [(program, own, above)]
    while left:
        path, linked, above = left.pop(0)
        folders = tuple(_ORIGIN.sub(str(path.parent), each) for each in linked.searched)
        above = (*folders, *above) if linked.below else above
        for name in (each for each in linked.needed if each not in known):
            known.add(name)
            first = above if linked.below else folders
            places = (
                [f"{each}/{name}" for each in first],
                listed[name],
                [f"{i}/{name}" for i in last],
            )
            found = _library([name] if "/" in name else chain(*places), architecture)
            if found is None:
                raise SpecError(f"its library {name} is not here", place=str(path), action=action)
            yield str(found[0]), found[0]
            left.append((*found, above))


def _library(places: Iterable[str], architecture: Arch) -> tuple[Path, elf.Linked] | None:
    """The first of these places that has a library for the guest, as the loader opens it."""
    for place in places:
        with contextlib.suppress(OSError, elf.BadElf):
            linked = elf.linked(Path(place)) if Path(place).is_file() else None
            if linked and linked.machine == architecture.elf:
                return _absolute(place), linked
    return None


def _listed() -> defaultdict[str, list[str]]:
    """The libraries of the loader's cache by name, without those for some CPUs only."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    if Path(_LDCONFIG).is_file():
        said = process.run([_LDCONFIG, "-p"], timeout=20.0).stdout
        for name, kind, place in _LISTED.findall(said):
            found[name] += [] if "hwcap" in kind else [place]
    return found
