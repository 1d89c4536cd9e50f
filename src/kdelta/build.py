# SPDX-License-Identifier: GPL-2.0-or-later
"""C programs made on this machine when they are first needed, cached by what went into them."""

from __future__ import annotations

import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache as remember
from pathlib import Path

from kdelta import cache, process
from kdelta.errors import BuildError, InfraError, SpecError
from kdelta.files import read_once, sha256_of
from kdelta.printable import printable

_TIMEOUT_S = 120.0
# A stranger's text may include what never ends, or ask a compiler for all memory.
_BOUNDED = ("prlimit", f"--as={3 << 28}", f"--fsize={1 << 28}", "--cpu=7", "--")
_INCLUDED = re.compile(r"""(?:include|import|embed|incbin)\w*[^"<\n]*["<]([^"<>\\\n]+)""")
Caged = Callable[[Sequence[str], Path], Sequence[str]]
_NONE: Mapping[str, Path] = {}
_given: ContextVar[Mapping[str, Path]] = ContextVar("given", default=_NONE)
_used: ContextVar[dict[str, Path] | None] = ContextVar("used", default=None)


@contextmanager
def noting() -> Iterator[dict[str, Path]]:
    """Programs that this thread makes or finds meanwhile, by their sources; for `given`."""
    used: dict[str, Path] = {}
    token = _used.set(used)
    try:
        yield used
    finally:
        _used.reset(token)


@contextmanager
def given(programs: Mapping[str, Path]) -> Iterator[None]:
    """Take these programs, keyed as by `noting`, instead of compiling them, in this thread."""
    token = _given.set(programs)
    try:
        yield
    finally:
        _given.reset(token)


def _note(key: str, path: Path) -> Path:
    if (used := _used.get()) is not None:
        used[key] = path
    return path


_digest = remember(cache.digest)  # of parts that are the same objects each time


def source_digest(sources: Sequence[Path]) -> str:
    """SHA-256 of names and contents."""
    return _digest(*(part for path in sources for part in (path.name, read_once(path))))


def compiled(
    name: str, sources: Sequence[Path], *, compiler: str, flags: Sequence[str], package: str
) -> Path:
    """The program `name` of these C files and headers, known by their names and contents and by
    flags, which hold no path.  package: Debian's, with the compiler, for the error.  Raises
    BuildError when there is none or it fails.
    """
    text = source_digest(sources)
    own = cache.digest(name, compiler, *flags, text)
    if brought := _given.get().get(own):
        return brought
    version = _compiler_version(compiler, package)
    key = cache.digest(name, version, *flags, text)

    def make(folder: Path) -> None:
        units = [str(path) for path in sources if path.suffix == ".c"]
        headers = dict.fromkeys(path.parent for path in sources if path.suffix == ".h")
        searched = [f"-I{path}" for path in headers]
        argv = [compiler, *flags, *searched, *units, "-o", str(folder / name)]
        done = _ran(argv, folder / name, compiler)
        if done.returncode:
            why = f"{compiler} failed with exit status {done.returncode}: {done.last_words}"
            action = f"is its C library there? On Debian: apt-get install {package}"
            cause = f"{name} does not compile: {why}"
            raise BuildError(cause, place=str(sources[0]), action=action)

    return _note(own, cache.entry("build", key, make) / name)


def theirs(
    source: Path,
    *,
    compiler: str,
    flags: Sequence[str],
    package: str,
    caged: Caged,
    check: Callable[[bytes], None],
) -> Path:
    """A folder with `program` and the compiler's `warnings.txt` of somebody's C file, known by its
    text after the preprocessor.  caged: a command that may write to a folder alone.  check: of the
    object file.  Raises SpecError with its first error, BuildError without a compiler.
    """
    own = cache.digest("theirs", compiler, sha256_of(source)) if source.is_file() else ""
    if brought := _given.get().get(own):
        return brought.parent
    version = _compiler_version(compiler, package)
    named = f"./{source}" if str(source).startswith("-") else str(source)  # no option
    argv = [compiler, *flags, "-fmax-errors=20", named]
    with tempfile.TemporaryDirectory(prefix="kdelta-c-") as place:
        text = Path(place, "text.i")
        words = caged([*argv, "-w", "-E", "-P", "-o", str(text)], Path(place))
        _compiled(source, words, text, compiler)
        key = cache.digest("theirs", version, compiler, *flags, sha256_of(text))

    def make(folder: Path) -> None:
        program, part = folder / "program", folder / "program.o"
        words = caged([*argv, "-c", "-o", str(part)], folder)
        made = _compiled(source, words, part, compiler)
        (folder / "warnings.txt").write_text(made.stderr)
        check(part.read_bytes())
        words = caged([compiler, *flags, str(part), "-o", str(program)], folder)
        _compiled(source, words, program, compiler)
        part.unlink()

    return _note(own, cache.entry("build", key, make) / "program").parent


def _ran(argv: Sequence[str], made: Path, compiler: str) -> process.Completed:
    """Raises BuildError where the compiler does not end, or makes nothing and does not say why."""
    action, env = process.action(compiler), {"TMPDIR": str(made.parent)}
    try:
        done = process.run(
            argv, timeout=_TIMEOUT_S, env=env, check=False, quick=True, name=compiler
        )
    except process.SlowError as error:
        raise BuildError(error.cause, action=action) from error
    if not (done.returncode or made.is_file()):
        raise BuildError(f"{compiler} ended well and wrote no {made.name}", action=action)
    return done


def _compiled(source: Path, argv: Sequence[str], made: Path, compiler: str) -> process.Completed:
    """What a compiler said of a user's file.  Raises SpecError where it fails, BuildError."""
    try:
        done = _ran([*_BOUNDED, *argv], made, compiler)
    except BuildError:
        _check_included(source)
        raise
    if done.returncode:
        raise _not_c(source, done.stderr)
    return done


def _check_included(source: Path) -> None:
    """Raise SpecError for a file that includes what may have no end."""
    for name in _INCLUDED.findall(read_once(source).decode(errors="ignore")):
        path = source.parent / name
        with suppress(OSError, ValueError):
            if not stat.S_ISREG(path.stat().st_mode):
                cause = f"does not compile: it includes {printable(str(path))}, no plain file"
                raise SpecError(cause, place=str(source), action="include plain files")


def _not_c(source: Path, said: str) -> SpecError:
    lines = [line.strip() for line in said.splitlines()]
    found = [line for line in lines if re.search(r"\b(?:[Ee]rror|undefined reference)\b", line)]
    first = printable((found or [line for line in lines if line] or ["no reason given"])[0], 300)
    where, _, cause = re.sub(r"^\S+\.s:\d+: E", " e", first).partition(" error: ")  # as's own
    if not re.search(r":\d", where):
        if re.search(r"Killed signal|out of memory|virtual memory exhausted", first):
            _check_included(source)
            cause = "does not compile: it takes more than 768 MiB of memory or 7 s"
            return SpecError(cause, place=str(source), action="make it smaller")
        return SpecError(f"does not compile: {cause or first}", place=str(source))
    if "impossible constraint" in cause:
        cause += "; the phase of KD_BEGIN() and of KD_END() is a number from 0 to 7, no variable"
    return SpecError(f"does not compile: {cause}", place=where.rstrip(": ").removesuffix(" fatal"))


@remember
def _compiler_version(compiler: str, package: str) -> str:
    try:
        return process.run([compiler, "--version"], timeout=_TIMEOUT_S, quick=True).told(".+")
    except InfraError as error:
        cause, action = error.cause, process.action(compiler)
        if process.which(compiler) is None:
            cause, action = f"no C compiler {compiler}: {cause}", f"apt-get install {package}"
        raise BuildError(cause, action=action) from error
