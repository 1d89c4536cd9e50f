# SPDX-License-Identifier: GPL-2.0-or-later
"""From a source tree to a bootable image, kept by what went into it.

`build` is all that most need.  `prepared` lends the warm build directory itself, with files made
of a tree, for looking at compilers' work.

Each line of trees has one private checkout, which is brought from tree to tree:

    <cache>/trees/LINE/src            the files of one tree at a time
    <cache>/trees/LINE/src/kdelta-KEY what make made of it for one configuration and compiler

git changes only the files that differ and gives them the time of now, so make compiles again what
depends on them and nothing else: a variant, and the way back, cost the files they change.  The
output lies inside the source because kbuild then writes relative paths: what it makes does not
depend on where the cache is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache as remember
from pathlib import Path, PurePosixPath

import msgspec

from kdelta import arch, cache, files, process, toolchains
from kdelta.archive.apt import Progress
from kdelta.errors import InfraError
from kdelta.source import git, kconfig, make
from kdelta.source import tree as trees
from kdelta.toolchains import Family, Toolchain

# ---- warm build directories -------------------------------------------------------------------

_ORPHANS_S = 60.0
_MOST_NOTE = 4 << 20
_MARKER = ".kdelta-building"
_RELEASED = ".release"
_MADE = "kdelta-made"  # for_objects: of which tree and release all was made
_PLAIN = "KCFLAGS=-g0"  # what debuggers read takes a fifth of the time, and is not compared
_READY = ".kdelta-ready"  # says for which state a build directory is configured
_OURS = threading.local()  # lines that a thread has: waiting for itself would take for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The checkout of one line, ours alone while its context lasts."""

    folder: Path
    busy: int  # a locked file descriptor; programs that inherit it keep the workspace locked

    @property
    def source(self) -> Path:
        """The checked-out files."""
        return self.folder / "src"

    def check_out(self, tree: trees.SourceTree) -> frozenset[str]:
        """Make the files those of a tree, whatever state they are in; the names of those that were
        others before, as far as that is known.  Raises InfraError.
        """
        index = self.folder / "index"
        index.with_name("index.lock").unlink(missing_ok=True)  # a killed git's: we hold the lock
        others = frozenset[str]()
        if index.exists():
            found = git.run(
                "diff-index", "--cached", "--name-only", "-z", tree.tree,
                index=index, borrowed=tree.objects, timeout=git.LONG_S, check=False,
            )  # fmt: skip
            others = frozenset(filter(None, found.stdout.split("\0")))
        unclean = self.folder / "unclean"
        with cache.writing(self.folder):
            self.source.mkdir(parents=True, exist_ok=True)
            if unclean.exists():
                git.run("clean", "-d", "--force", "--force", "-x", "--quiet", "--exclude=/kdelta-*",
                        index=index, work_tree=self.source, timeout=git.LONG_S)  # fmt: skip
            unclean.touch()
        git.run(
            "read-tree", "--reset", "-u", tree.tree,
            index=index, work_tree=self.source, borrowed=tree.objects, timeout=git.LONG_S,
        )  # fmt: skip
        unclean.unlink()
        return others

    def output(self, name: str) -> Path:
        """The build directory of a configuration and compiler; empty when it is new."""
        folder = self.source / name
        if not folder.is_dir():
            cache.make_room("trees", keep=self.folder)
        with cache.writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder


@contextlib.contextmanager
def opened(line: str) -> Iterator[Workspace]:
    """The workspace of a line; others wait.  Compilers that a killed kdelta left are ended."""
    if re.search(r"[\s:]", str(cache.root())):
        cause = "kernels cannot be built in a folder with a space or colon in its path"
        action = "point XDG_CACHE_HOME elsewhere"
        raise InfraError(cause, place=str(cache.root()), action=action)
    mine: set[str] = _OURS.__dict__.setdefault("lines", set())
    if line in mine:
        raise RuntimeError(f"this thread already has the workspace of {line}")
    with cache.workplace("trees", line) as folder:
        with cache.writing(folder):
            busy = (folder / "busy").open("ab")
        with busy:
            _flock(busy.fileno(), folder)
            mine.add(line)
            try:
                yield Workspace(folder=folder, busy=busy.fileno())
            finally:
                mine.discard(line)


@contextlib.contextmanager
def building(output: Path) -> Iterator[None]:
    """Around a make in a build directory: what it leaves half-made is removed before the next."""
    marker = output / _MARKER
    with cache.writing(output):
        if marker.exists():
            _drop_unfinished(output, marker.stat().st_mtime_ns)
        marker.touch()
    yield
    with cache.writing(output):
        marker.unlink(missing_ok=True)


def outdated(output: Path, changed: Collection[str]) -> int:
    """How many objects of a build directory were made of files that changed, by kbuild's notes."""
    if not changed:
        return 0
    names = {f"../{name}".encode() for name in changed}
    found = 0
    for note in output.rglob(".*.o.cmd"):
        with contextlib.suppress(OSError), note.open("rb") as stream:
            found += not names.isdisjoint(stream.read(_MOST_NOTE).split())
    return found


def _drop_unfinished(output: Path, since_ns: int) -> None:
    """Remove what an interrupted make may have left cut off.

    kbuild notes the command of a file (.FILE.cmd) when the file is done, and believes a file that
    is newer than its sources.  So a file that is newer than its note goes, and so does a note
    that does not end as fixdep ends it.
    """
    for parent, _, names in os.walk(output):
        for name in names:
            note = Path(parent) / f".{name}.cmd"
            path = Path(parent) / name
            with contextlib.suppress(FileNotFoundError):
                when = path.lstat().st_mtime_ns
                if when < since_ns:
                    continue
                if name.endswith(".cmd") and name.startswith("."):
                    text = path.read_text(errors="replace")
                    if "\nsource_" in text and "\n$(deps_" not in text:
                        path.unlink()
                elif note.exists() and note.stat().st_mtime_ns < when:
                    path.unlink()


def _flock(descriptor: int, folder: Path) -> None:
    """Lock the file that programs of a build inherit; end those that a killed kdelta left."""
    deadline = time.monotonic() + _ORPHANS_S
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        busy = folder / "busy"
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended, or is another user's
                links = {str(link.readlink()) for link in (entry / "fd").iterdir()}
                if str(busy) in links and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), signal.SIGKILL)
        time.sleep(0.1)
    cause = "programs of an earlier build still run in its folder"
    action = "end them, and run again"
    raise InfraError(cause, place=str(folder), action=action)


# ---- builds -----------------------------------------------------------------------------------

BUILT_FOR = "amd64"  # where nothing else is said
_FORMAT = 2
_COMPILE_S = 600.0
_STEPS_COLD = 1780
_BTF = "DEBUG_INFO_BTF"
# What decides the result of a configuration, besides the compiler and what is asked for.
_KCONFIG = re.compile(
    r"(?:^|/)Kconfig[^/]*$|^scripts/(?:kconfig/|Kconfig|[^/]*\.sh$)|^kernel/configs/"
    r"|^arch/(?:x86|arm64|riscv)/(?:configs/|Makefile)|^Makefile$"
)


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """build.json: what is known of an image beside what led to it.

    compiler: first line of `cc --version`.  release: uname -r.  lost: lines asked of the
    configuration that are not in it.
    """

    compiler: str
    release: str
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One kernel built from source, in the cache.  Equal image_sha256: the same code.

    config: what was asked for.  folder: of the image, its configuration and the log.  cached: it
    was there already.
    """

    tree: trees.SourceTree
    config: kconfig.Config
    chain: Toolchain
    folder: Path
    image_sha256: str
    record: BuildRecord
    cached: bool

    @property
    def image(self) -> Path:
        """The bootable image."""
        return self.folder / "vmlinuz"

    @property
    def label(self) -> str:
        """The title and, where they are not the default, configuration and compiler."""
        words = [self.tree.title]  # "6.17.8+mincore-present-first"
        if self.config.name != kconfig.DEFAULT:
            words.append(self.config.name)
        if self.chain.name != _default_compiler() and self.chain.target == BUILT_FOR:
            words.append(self.chain.name)
        return ",".join(words)


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
    tree: trees.SourceTree,
    config: kconfig.Config,
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
    pinned = (f"{key}={value}" for key, value in make.PINNED.items())
    parts = (tree.tree, config.digest, identity(chain), chain.target, *pinned)
    key = cache.digest(str(_FORMAT), *parts, *([make.STRANGERS] if confined else []))
    if confined:  # what one stranger's makefiles left is no part of another's or the user's images
        tree = replace(tree, line=f"{tree.line}.{make.STRANGERS}")
    cached = True

    def made(folder: Path) -> None:
        nonlocal cached
        cached, log = False, _log(key)
        with _ready(tree, config, chain, log, progress, confined=confined) as maker:
            cold = not (maker.output / "vmlinux").exists()
            maker.run([_target(chain)], steps=_STEPS_COLD if cold else 0, progress=progress)
            with cache.writing(folder):
                shutil.copyfile(_image(maker), folder / "vmlinuz")
                shutil.copyfile(maker.output / ".config", folder / "config")
                release = (maker.output / "include/config/kernel.release").read_text().strip()
        record = BuildRecord(
            compiler=chain.banner,
            release=release,
            lost=config.lost((folder / "config").read_text(errors="replace")),
        )
        with cache.writing(folder):
            shutil.move(log, folder / "build.log")
            (folder / "build.json").write_bytes(msgspec.json.encode(record))

    folder = cache.entry("builds", key, made)
    return Build(
        tree=tree,
        config=config,
        chain=chain,
        folder=folder,
        image_sha256=cache.recorded(folder / "vmlinuz"),
        record=files.decoded((folder / "build.json").read_bytes(), BuildRecord),
        cached=cached,
    )


def made_again(built: Build, *, progress: Progress | None = None, confined: bool = False) -> str:
    """SHA-256 of the image of a build when it is made once more, now.  Raises as `build` does."""
    log, chain = _log(cache.digest("again", built.image_sha256)), built.chain
    with _ready(built.tree, built.config, chain, log, progress, confined=confined) as maker:
        maker.run([_target(chain)], progress=progress)
        found = files.digest_of(_image(maker))
    log.unlink(missing_ok=True)
    return found


@contextlib.contextmanager
def prepared(
    tree: trees.SourceTree,
    config: kconfig.Config,
    chain: Toolchain | None = None,
    *,
    targets: Sequence[str],
    progress: Progress | None = None,
    confined: bool = False,
) -> Iterator[make.Make]:
    """The warm build directory with `targets` ("mm/mincore.o"), or nothing yet, made of a tree.

    It is locked while the context lasts.  Add files to it freely outside what make makes;
    leave the source alone.  confined: as `build` is.  Raises as `build` does.
    """
    chain = chain or compiler(progress=progress)
    if confined:
        tree = replace(tree, line=f"{tree.line}.{make.STRANGERS}")
    log = _log(cache.digest("prepared", tree.tree, config.digest, identity(chain), *targets))
    with _ready(tree, config, chain, log, progress, confined=confined) as maker:
        if targets:
            maker.run(targets, progress=progress)
        yield maker
        log.unlink(missing_ok=True)  # nothing was made


def for_objects(
    tree: trees.SourceTree, config: kconfig.Config, chain: Toolchain, release: str,
    *, progress: Progress | None = None,
) -> make.Make:  # fmt: skip
    """The directory for objects of a release, where all is made but these; no image will be linked.

    Its source stays as it is, so many use it at once; `making` is for what make makes there.
    release: its name, which objects say.  Raises as `build` does.
    """
    line, flags = f"{tree.line}{_RELEASED}", [f"KCFLAGS={' '.join(config.flags)}"]
    folder = cache.folder("trees") / line
    output = folder / "src" / _output_name(config, chain)
    note, state = output / _MADE, cache.digest(tree.tree, release, _PLAIN)
    known = cache.keep(folder) and note.exists() and note.read_text() == state
    log = _log(cache.digest("objects", str(output), str(uuid.uuid4())))
    maker = make.Make(
        source=folder / "src", output=output, chain=chain, title=tree.title, log=log,
        settings=(
            *_told_pahole(output, config), f"KERNELRELEASE={release}", _PLAIN,
            *(flags if config.flags else ()),
        ),
    )  # fmt: skip
    if not known:
        own = replace(tree, line=line)
        with _ready(own, config, chain, log, progress, settings=maker.settings) as first:
            first.run(["modules_prepare"], progress=progress)
            cache.keep(folder)
            with cache.writing(note):
                note.write_text(state)
    return maker


def adopt(line: str, source: Path, index: Path) -> None:
    """Make an extracted source the one `for_objects` of its line.  index: git's, of it."""
    with opened(f"{line}{_RELEASED}") as place:
        if not place.source.exists():
            with cache.writing(place.folder):
                source.rename(place.source)
                shutil.copyfile(index, place.folder / "index")


@contextlib.contextmanager
def making(maker: make.Make) -> Iterator[make.Make]:
    """A directory `for_objects`, ours alone."""
    with opened(maker.source.parent.name) as place, building(maker.output):
        yield replace(maker, busy=place.busy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A directory with some files of another tree, in which objects can be compiled.

    changed: the files of the source in whose places others are.
    """

    maker: make.Make
    source: Path
    changed: frozenset[Path] = frozenset()

    def compiled(
        self, name: str, target: Path, *more: str, confined: bool = False
    ) -> process.Completed:
        """Compile an object into another file, as kbuild did; more: options, as -E.

        What kbuild does to the object afterwards (objtool) is left out.  Raises InfraError.
        """
        maker, note = self.maker, target.with_suffix(".d")
        words = shlex.split(saved_command(maker.output, name).partition(" ; ")[0])
        if len(words) < 4 or words[-3:-1] != ["-o", name] or "-c" not in words:
            raise InfraError(f"kbuild's saved command for {name} is not understood")
        argv = [*make.OF_OBJECTS, *(word for word in words[:-3] if not word.startswith("-Wp,-M"))]
        argv += [f"-Wp,-MMD,{note}", *more, "-o", str(target), words[-1]]
        argv = replace(maker, confined=confined).isolated(
            argv, maker.output, writable=False, readable=self.source
        )
        done = process.run(argv, timeout=_COMPILE_S, cwd=maker.output, check=False)
        read = note.read_text().replace("\\\n", " ").split()[1:] if not done.returncode else []
        for each in read:
            if (maker.output / each).resolve() in self.changed:
                raise InfraError(f"{name} reads {each} by a way that is not understood")
        return done


@contextlib.contextmanager
def beside(
    maker: make.Make, base: trees.SourceTree, tree: trees.SourceTree, names: Sequence[str]
) -> Iterator[Beside]:
    """Links to a directory made of `base`, and in between the files that another tree changes.

    names: of the objects to compile.  A folder is a link where nothing in it differs, and what is
    not found there by a path with ".." is the source's: `compiled` looks at what was read.
    """
    status = trees.changes(base, tree)
    folders = {above for name in (*status, *names) for above in PurePosixPath(name).parents}
    with cache.passing("trees") as place:
        with cache.writing(place):
            for folder in sorted(folders):
                (place / folder).mkdir(parents=True, exist_ok=True)
                own = maker.source / folder
                for path in own.iterdir() if own.is_dir() else ():
                    inner = folder / path.name
                    ours = path.name.startswith("kdelta-")
                    if inner not in folders and str(inner) not in status and not ours:
                        (place / inner).symlink_to(path)
            output = place / maker.output.name
            output.mkdir()
            for path in maker.output.iterdir():
                (output / path.name).symlink_to(path)
        new = [name for name, kind in status.items() if kind != "D"]
        git.write_files(tree.tree, new, place, borrowed=tree.objects or base.objects)
        yield Beside(
            maker=replace(maker, source=place, output=output),
            source=maker.source,
            changed=frozenset((maker.source / name).resolve() for name in status),
        )


def is_noted(output: Path, target: str) -> bool:
    """True where kbuild noted how it made a target, or tried to."""
    path = output / target
    return path.with_name(f".{path.name}.cmd").exists()


def note_tried(output: Path, target: str) -> None:
    """Have `is_noted` hold for a target that cannot be made, as of others' configurations."""
    path = output / target
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f".{path.name}.cmd").touch()


def sources(maker: make.Make, target: str) -> frozenset[str]:
    """The files of the source of which a target is made, as kbuild noted it; none for no target."""
    path = maker.output / target
    with contextlib.suppress(OSError):
        note = files.content(path.with_name(f".{path.name}.cmd"), _MOST_NOTE)
        words = note.decode(errors="replace").split()
        places = (os.path.normpath(maker.output / word) for word in words)
        return frozenset(place.removeprefix(f"{maker.source}/") for place in places)
    return frozenset()


def saved_command(output: Path, target: str) -> str:
    """The shell command of kbuild for a target ("mm/mincore.o") in `output`.  Raises InfraError."""
    path = output / target
    note = path.with_name(f".{path.name}.cmd")
    with contextlib.suppress(OSError):
        first = files.content(note, _MOST_NOTE).decode(errors="replace").partition("\n")[0].strip()
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


def _image(maker: make.Make) -> Path:
    return maker.output / "arch" / arch.of(maker.chain.target).image


@contextlib.contextmanager
def _ready(
    tree: trees.SourceTree,
    config: kconfig.Config,
    chain: Toolchain,
    log: Path,
    progress: Progress | None,
    *,
    confined: bool = False,
    settings: tuple[str, ...] = (),
) -> Iterator[make.Make]:
    """A workspace with the tree checked out and configured, between two makes.

    settings: further variables of make, where no image is linked.
    """
    make.check_tools(config.enabled - ({_BTF} if settings else set()))
    with opened(tree.line) as place:
        if progress and not place.source.exists():
            progress(f"checking out {tree.title}", 0.0)
        changed = place.check_out(tree)
        output = place.output(_output_name(config, chain))
        maker = make.Make(
            source=place.source,
            output=output,
            chain=chain,
            title=tree.title,
            log=log,
            busy=place.busy,
            outdated=outdated(output, changed),
            confined=confined,
            settings=settings,
        )
        with building(output):
            _configure(maker, tree, config)
            yield maker


def _output_name(config: kconfig.Config, chain: Toolchain) -> str:
    return f"kdelta-{cache.digest(config.digest, identity(chain))[:16]}"


def _told_pahole(output: Path, config: kconfig.Config) -> tuple[str, ...]:
    """Kconfig asks pahole for its version, by which structures differ; nothing else runs it."""
    version = config.options.get("PAHOLE_VERSION", "0")
    if not version.isdecimal() or version == "0":
        return ()
    program = output / "kdelta-pahole"
    with cache.writing(program):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho v{int(version) // 100}.{int(version) % 100:02}\n")
        program.chmod(0o755)
    return (f"PAHOLE={program}",)


def _configure(maker: make.Make, tree: trees.SourceTree, config: kconfig.Config) -> None:
    # .config is always the same for the same tree, so never made from an earlier one.
    rows = git.run("ls-tree", "-r", tree.tree, borrowed=tree.objects).stdout.splitlines()
    deciding = [row for row in rows if _KCONFIG.search(row.partition("\t")[2])]
    state = cache.digest(config.digest, *maker.settings, *deciding)
    ready, target = maker.output / _READY, maker.output / ".config"
    if ready.exists() and ready.read_text() == state:
        return
    base = ""
    if not config.whole:
        maker.run(["tinyconfig"])
        base = target.read_text(errors="replace")
    with cache.writing(target):
        target.write_text(config.text(base))
    maker.run(["olddefconfig"])
    with cache.writing(ready):
        ready.write_text(state)


def _log(key: str) -> Path:
    """Where make's words go: behind those of another build, which may be writing there now."""
    return cache.folder("build-logs") / f"{key[:16]}.log"


@remember
def _default_compiler() -> str:
    version = process.run(["gcc", "-dumpversion"], timeout=60, quick=True).told("[0-9.]+")
    return f"gcc-{version.partition('.')[0]}"


@remember
def _binutils(target: str) -> str:
    linker = "ld" if target == BUILT_FOR else toolchains.binutils("ld", arch.of(target))
    done = process.run([linker, "--version"], timeout=60, quick=True)
    return done.told(".+").partition("\n")[0]
