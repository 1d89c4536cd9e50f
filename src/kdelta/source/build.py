# SPDX-License-Identifier: GPL-2.0-or-later
"""From a source tree to a bootable image, kept by what went into it.

`build` is all that most need.  `prepared` lends the warm build directory itself, with files made
of a tree, for looking at compilers' work.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache as remember
from pathlib import Path

import msgspec

from kdelta import arch, cache, files, process, toolchains
from kdelta.archive.apt import Progress
from kdelta.errors import InfraError
from kdelta.files import decoded
from kdelta.source import git, kconfig, make, workspace
from kdelta.source.kconfig import Config
from kdelta.source.make import STRANGERS, Make
from kdelta.source.tree import SourceTree
from kdelta.toolchains import Family, Toolchain

BUILT_FOR = "amd64"  # where nothing else is said
_FORMAT = 2
_MAX_COMMAND = 64 << 10
_STEPS_COLD = 1780
# What decides the result of a configuration, besides the compiler and what is asked for.
_KCONFIG = re.compile(
    r"(?:^|/)Kconfig[^/]*$|^scripts/(?:kconfig/|Kconfig|[^/]*\.sh$)|^kernel/configs/"
    r"|^arch/(?:x86|arm64|riscv)/(?:configs/|Makefile)|^Makefile$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One kernel built from source, in the cache.  Equal image_sha256: the same code."""

    title: str  # "6.17.8+mincore-present-first"
    tree: SourceTree
    config_name: str
    arch: str  # Debian's name
    compiler: str  # first line of `cc --version`
    compiler_name: str  # "gcc-14"
    release: str  # uname -r
    image: Path
    image_sha256: str
    config: Path
    config_sha256: str
    log: Path
    lost: tuple[str, ...]  # lines asked of the configuration that are not in it
    seconds: float  # that the build took
    cached: bool  # it was there already

    @property
    def label(self) -> str:
        """The title and, where they are not the default, configuration and compiler."""
        words = [self.title]
        if self.config_name != kconfig.DEFAULT:
            words.append(self.config_name)
        if self.compiler_name != _default_compiler() and self.arch == BUILT_FOR:
            words.append(self.compiler_name)
        return ",".join(words)


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """build.json: what is known of an image beside what led to it."""

    compiler: str
    release: str
    lost: tuple[str, ...]
    seconds: float


def compiler(
    name: str = "", *, target: str = BUILT_FOR, progress: Progress | None = None
) -> Toolchain:
    """The compiler of that name ("gcc-14", "clang-19"); "" is this system's gcc.

    target: the architecture of its kernels; of another than this machine's, Debian's cross
    compiler.  Raises SpecError for an unknown one, InfraError when it cannot be had.
    """
    if target != BUILT_FOR:
        return toolchains.crossing(arch.of(target), name)
    return toolchains.find(name or _default_compiler(), progress=progress)


def build(
    tree: SourceTree,
    config: Config,
    chain: Toolchain | None = None,
    *,
    progress: Progress | None = None,
    confined: bool = False,
) -> Build:
    """The kernel of a source tree; built when the cache does not have it.

    chain: by default this system's gcc.
    A tree near the last one of its line takes seconds, another one minutes.
    confined: its makefiles are a stranger's (source.make).
    Raises SourceError when the source does not build (its fault), InfraError when this machine
    is at fault: a missing tool, the disk, memory.
    """
    chain = chain or compiler(progress=progress)
    key = _key(tree, config, chain, *([STRANGERS] if confined else []))
    if confined:  # what one stranger's makefiles left is no part of another's or the user's images
        tree = replace(tree, line=f"{tree.line}.{STRANGERS}")
    cached = True

    def make(folder: Path) -> None:
        nonlocal cached
        cached, log, begun = False, _log(key), time.monotonic()
        with _ready(tree, config, chain, log, progress, confined=confined) as maker:
            cold = not (maker.output / "vmlinux").exists()
            maker.run([_target(chain)], steps=_STEPS_COLD if cold else 0, progress=progress)
            with cache.writing(folder):
                shutil.copyfile(_image(maker), folder / "vmlinuz")
                shutil.copyfile(maker.output / ".config", folder / "config")
                release = (maker.output / "include/config/kernel.release").read_text().strip()
        record = _Record(
            compiler=chain.banner,
            release=release,
            lost=config.lost((folder / "config").read_text(errors="replace")),
            seconds=round(time.monotonic() - begun, 1),
        )
        with cache.writing(folder):
            shutil.move(log, folder / "build.log")
            (folder / "build.json").write_bytes(msgspec.json.encode(record))

    return _read(cache.entry("builds", key, make), tree, config, chain, cached=cached)


def _key(tree: SourceTree, config: Config, chain: Toolchain, *more: str) -> str:
    pinned = (f"{key}={value}" for key, value in make.PINNED.items())
    parts = (tree.tree, config.digest, identity(chain), chain.target, *pinned)
    return cache.digest(str(_FORMAT), *parts, *more)


def made_again(
    built: Build,
    config: Config,
    chain: Toolchain,
    *,
    progress: Progress | None = None,
    confined: bool = False,
) -> str:
    """SHA-256 of the image of a build when it is made once more, now.  Raises as `build` does."""
    log = _log(cache.digest("again", built.image_sha256))
    with _ready(built.tree, config, chain, log, progress, confined=confined) as maker:
        maker.run([_target(chain)], progress=progress)
        found = files.digest_of(_image(maker))
    log.unlink()
    return found


@contextlib.contextmanager
def prepared(
    tree: SourceTree,
    config: Config,
    chain: Toolchain | None = None,
    *,
    targets: Sequence[str],
    progress: Progress | None = None,
) -> Iterator[Make]:
    """The warm build directory with `targets` ("mm/mincore.o"), or nothing yet, made of a tree.

    It is locked while the context lasts.  Add files to it freely outside what make makes;
    leave the source alone.  Raises as `build` does.
    """
    chain = chain or compiler(progress=progress)
    log = _log(cache.digest("prepared", tree.tree, config.digest, identity(chain), *targets))
    with _ready(tree, config, chain, log, progress) as maker:
        if targets:
            maker.run(targets, progress=progress)
        yield maker
        log.unlink(missing_ok=True)  # nothing was made


def saved_command(output: Path, target: str) -> str:
    """The shell command of kbuild for a target ("mm/mincore.o") in `output`.  Raises InfraError."""
    path = output / target
    note = path.with_name(f".{path.name}.cmd")
    with contextlib.suppress(OSError):
        with note.open(errors="replace") as stream:
            first = stream.readline(_MAX_COMMAND).strip()
        name, assigned, command = first.partition(" := ")
        if assigned and name.removeprefix("saved") == f"cmd_{target}":
            return command.replace("$(pound)", "#").replace("$$", "$")
    raise InfraError(f"kbuild noted no command for {target}", place=str(note))


def identity(chain: Toolchain) -> str:
    """All that is known of a compiler and, for gcc, of the assembler and linker it works with."""
    banner = chain.banner
    return f"{banner}\n{_binutils(chain.target)}" if chain.family is Family.GCC else banner


def _target(chain: Toolchain) -> str:
    return Path(arch.of(chain.target).image).name


def _image(maker: Make) -> Path:
    return maker.output / "arch" / arch.of(maker.chain.target).image


@contextlib.contextmanager
def _ready(
    tree: SourceTree,
    config: Config,
    chain: Toolchain,
    log: Path,
    progress: Progress | None,
    *,
    confined: bool = False,
) -> Iterator[Make]:
    """A workspace with the tree checked out and configured, between two makes."""
    make.check_tools(frozenset(name for name, value in config.options.items() if value == "y"))
    with workspace.opened(tree.line) as place:
        if progress and not place.source.exists():
            progress(f"checking out {tree.title}", 0.0)
        changed = place.check_out(tree)
        output = place.output(cache.digest(config.digest, identity(chain)))
        maker = Make(
            source=place.source,
            output=output,
            chain=chain,
            title=tree.title,
            log=log,
            busy=place.busy,
            outdated=workspace.outdated(output, changed),
            confined=confined,
        )
        with workspace.building(output):
            _configure(maker, tree, config)
            yield maker


def _configure(maker: Make, tree: SourceTree, config: Config) -> None:
    # .config is always the same for the same tree, so never made from an earlier one.
    rows = git.run("ls-tree", "-r", tree.tree, borrowed=tree.objects).stdout.splitlines()
    deciding = [row for row in rows if _KCONFIG.search(row.partition("\t")[2])]
    state = cache.digest(config.digest, *deciding)
    if workspace.ready(maker.output) == state:
        return
    target = maker.output / ".config"
    base = ""
    if not config.whole:
        maker.run(["tinyconfig"])
        base = target.read_text(errors="replace")
    with cache.writing(target):
        target.write_text(config.text(base))
    maker.run(["olddefconfig"])
    workspace.set_ready(maker.output, state)


def _read(
    folder: Path, tree: SourceTree, config: Config, chain: Toolchain, *, cached: bool
) -> Build:
    record = decoded((folder / "build.json").read_bytes(), _Record)
    return Build(
        title=tree.title,
        tree=tree,
        config_name=config.name,
        arch=chain.target,
        compiler=record.compiler,
        compiler_name=chain.name,
        release=record.release,
        image=folder / "vmlinuz",
        image_sha256=cache.recorded(folder / "vmlinuz"),
        config=folder / "config",
        config_sha256=cache.recorded(folder / "config"),
        log=folder / "build.log",
        lost=record.lost,
        seconds=record.seconds,
        cached=cached,
    )


def _log(key: str) -> Path:
    folder = cache.folder("build-logs")
    with cache.writing(folder):
        path = folder / f"{key[:16]}.log"
        path.unlink(missing_ok=True)
    return path


@remember
def _default_compiler() -> str:
    try:
        done = process.run(["gcc", "-dumpversion"], timeout=60)
    except InfraError as error:
        raise InfraError(
            f"there is no C compiler: {error.cause}", action="on Debian: apt-get install gcc"
        ) from error
    return f"gcc-{done.stdout.strip().partition('.')[0]}"


@remember
def _binutils(target: str) -> str:
    linker = "ld" if target == BUILT_FOR else toolchains.binutils("ld", arch.of(target))
    return process.run([linker, "--version"], timeout=60).stdout.partition("\n")[0]
