# SPDX-License-Identifier: GPL-2.0-or-later
"""What enters a guest: our PID 1 in an initramfs, and workload programs, all static."""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from kdelta import arch, build, cache, data, elf, workload
from kdelta.errors import BuildError, SpecError
from kdelta.files import digest_of
from kdelta.kernels.image import brought
from kdelta.printable import printable
from kdelta.source.make import STRANGERS, confined_command

_THEIR_FLAGS = ("-O2", "-static", "-Wall", "-Wextra", "-pthread")
# System calls from 451 on, which have one number everywhere, and which older headers lack.
_NEWER = (
    "cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount"
    " lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat"
    " removexattrat open_tree_attr file_getattr file_setattr listns"
)
# By architecture mark 0 as a number, its bytes, and the shift of another's number in it.
_MARKS = {
    "amd64": (0x6B640000_801F0F, 7, 24),
    "arm64": (0xD29A001F, 4, 5),
    "riscv64": (0x6B000037, 4, 12),
}
_PHASES = 8  # KD_MAX_PHASES of kdelta.h
# What runs before kd_move() of kdelta.h, whose entry is the first constructor.
_FIRST = (".init_array.00101", 8)
_BEFORE = re.compile(r"\.(?:preinit_array|init_array\.|ctors|init$)")
_IFUNC = "STT_LOOS"  # as pyelftools calls it
FILES = "files.cpio"  # beside the C file of a program: all that the guest has for it
CFLAGS = ("-std=gnu11", "-O2", "-static", "-Wall", "-Wextra")


def program(source: Path, architecture: arch.Arch, *, theirs: bool = False) -> Path:
    """The static guest program made from one C file that may include kdelta.h.

    theirs: it is no file of kdelta's.  Raises BuildError when it cannot be compiled here,
    SpecError when it is the user's file that does not compile.
    """
    if theirs:
        return _theirs(source, architecture) / "program"
    return _built(source.stem, sources(source), architecture, CFLAGS)


def _built(name: str, files: Sequence[Path], architecture: arch.Arch, flags: Sequence[str]) -> Path:
    compiler, package = arch.compiler(architecture), arch.compiler_package(architecture)
    return build.compiled(name, files, compiler=compiler, flags=flags, package=package)


def warnings(source: Path, architecture: arch.Arch) -> str:
    """What the compiler said of a user's file that it compiled."""
    said = (_theirs(source, architecture) / "warnings.txt").read_text(errors="replace")
    return "".join(f"{printable(line)}\n" for line in said.splitlines())


def check_marks(load: workload.Workload, architecture: arch.Arch) -> None:
    """Raise SpecError for a user's file whose windows cannot be those that are asked for, which its
    compiled code shows: marks are instructions that nothing else executes.
    """
    code = (_theirs(load.program, architecture) / "program").read_bytes()
    opened, closed = (
        [n for n in range(_PHASES) if _mark(architecture, op << 8 | n) in code] for op in (1, 2)
    )
    place = str(load.program)
    if not opened or opened != closed:
        told = f"windows of phases {opened or 'none'} begin, and of {closed or 'none'} end"
        action = "write KD_BEGIN(0) and KD_END(0) around the work"
        raise SpecError(told if opened or closed else "it has no marks", place=place, action=action)
    for phase in load.phases:
        if phase.id not in opened or f"{phase.name}\0".encode() not in code:
            raise SpecError(
                f"its TOML has phase {phase.name} with id {phase.id}, and the program has not",
                place=place,
                action=f'declare kd_phase({phase.id}, "{phase.name}", ...) and mark its windows',
            )


def _mark(architecture: arch.Arch, code: int) -> bytes:
    word, size, shift = _MARKS[architecture.debian]
    return (word | code << shift).to_bytes(size, "little")


def _theirs(source: Path, architecture: arch.Arch) -> Path:
    """A file outside this tree; one that does not call kd_start() is made to speak (lone.h)."""
    taken = (source.parent / FILES).is_file()  # a program: guest/program.h
    headers = ["-isystem", str(data.directory("guest"))]
    headers.append(f"-Wa,-I{source.parent}" if taken else "-DKD_THEIRS")
    lone = [f'-DKD_LONE="{source.stem}"', "-include", "lone.h"]
    return build.theirs(
        source,
        compiler=arch.compiler(architecture),
        flags=("-DKD_WATCHED", *_THEIR_FLAGS, *headers, *([] if workload.speaks(source) else lone)),
        package=arch.compiler_package(architecture),
        caged=partial(_caged, source.parent),
        check=partial(_check_object, str(source)),
    )


def _check_object(place: str, made: bytes) -> None:
    """Raise SpecError for what would act before kdelta.h looks, or instead of what that calls."""
    try:
        sizes, defined = elf.parts(made)
    except elf.BadElf as error:
        raise BuildError(f"the compiler made no object file of it: {error}", place=place) from error
    early = [one for one in sizes.items() if _BEFORE.match(one[0])]
    if early != [_FIRST]:
        cause = "it has code that runs before kdelta.h's own"
        raise SpecError(cause, place=place, action="give its constructors no priority")
    for name, kind in defined.items():
        if kind == _IFUNC or name.startswith("_") or name in _called():
            cause = f"it defines {printable(name, 60)}, a name of the C library or of its loader"
            raise SpecError(cause, place=place, action="give it another name")


@functools.cache
def _called() -> frozenset[str]:
    """What the guest's headers call."""
    text = "".join((data.directory("guest") / h).read_text() for h in ("kdelta.h", "lone.h"))
    return frozenset(re.findall(r"\b(\w+)\(", text)) - {"main"}


def _caged(home: Path, argv: Sequence[str], folder: Path) -> Sequence[str]:
    """A command over C files of a stranger's bundle sees nothing else; over others, what it is."""
    seen = (home, data.directory("guest"))
    strange = home.name == STRANGERS and home.is_relative_to(cache.root())
    return confined_command(argv, writable=(folder,), readable=seen) if strange else argv


def sources(program: Path) -> tuple[Path, ...]:
    """The files that a program's text is in: its C file and the header that it may include."""
    return program, data.directory("guest") / "kdelta.h"


def syscalls(architecture: arch.Arch) -> Path:
    """The macros of a program that includes <sys/syscall.h>: what system calls are called."""
    files = sources(data.directory("guest") / "selftest.c")
    return _built("syscalls.h", files, architecture, ("-std=gnu11", "-E", "-dM"))


def syscall_names(architecture: arch.Arch) -> dict[int, str]:
    """The names of an architecture's system calls by their numbers."""
    text = syscalls(architecture).read_text()
    found = re.findall(r"^#define __NR(\w+) (?:__NR)?(\w+)$", text, re.MULTILINE)
    macros: dict[str, str] = dict(found)
    numbers = {name: macros.get(word, word) for name, word in macros.items() if name[0] == "_"}
    known = {int(word): name[1:] for name, word in numbers.items() if word.isdecimal()}
    return {**dict(enumerate(_NEWER.split(), 451)), **known}


def initramfs(architecture: arch.Arch, image: Path | None = None) -> Path:
    """An initramfs that holds PID 1 and a console node, nothing but what an image brings."""
    folder = data.directory("guest")
    init = _built("init", [folder / "init.c", *sorted(folder.glob("*.h"))], architecture, CFLAGS)
    own = brought(image)[0] if image else b""

    def make(folder: Path) -> None:
        (folder / "initramfs.cpio").write_bytes(archive(init.read_bytes()) + own)

    key = cache.digest(digest_of(init), own) if own else digest_of(init)
    return cache.entry("initramfs", key, make) / "initramfs.cpio"


def archive(init: bytes) -> bytes:
    """A cpio archive in the kernel's newc format with /dev/console and an executable /init.

    Format: Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    members = (
        _member("dev", stat.S_IFDIR | 0o755, inode=1),
        _member("dev/console", stat.S_IFCHR | 0o600, inode=2, device=(5, 1)),
        _member("init", stat.S_IFREG | 0o755, init, inode=3),
        _member("TRAILER!!!", 0, inode=0),
    )
    return b"".join(members)


def newc(files: Iterable[tuple[str, int, bytes]]) -> bytes:
    """The same with these files: name, permissions, content."""
    members = (
        _member(name, stat.S_IFREG | stat.S_IMODE(mode), content, inode=inode)
        for inode, (name, mode, content) in enumerate(files, start=1)
    )
    return b"".join([*members, _member("TRAILER!!!", 0, inode=0)])


def _member(
    name: str, mode: int, content: bytes = b"", *, inode: int, device: tuple[int, int] = (0, 0)
) -> bytes:
    path = os.fsencode(name) + b"\0"
    # inode, mode, uid, gid, links, mtime, size, device, special device, name length, checksum
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    return _padded(header) + _padded(content)


def _padded(block: bytes) -> bytes:
    return block + b"\0" * (-len(block) % 4)
