# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian archive through a private apt root in kdelta's cache, beside the system's apt.

The root has the proxy, credentials and mirrors that the system's apt is configured for, and no
other state in common with it.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Generic, TypeVar

import msgspec

from kdelta import cache, process
from kdelta.arch import native
from kdelta.archive import index
from kdelta.archive.index import ListFile, Package, SourcePackage
from kdelta.errors import InfraError
from kdelta.files import content, decoded, sha256_of, write_aside
from kdelta.printable import few

Progress = Callable[[str, float], None]
"""Called with what is going on ("linux-image-...") and percent done (0..100), or ENDED."""
ENDED = -1.0  # whatever came of it

PATIENCE_S = 30.0
_POLL_S = 0.2
_CONFIG = """\
// Written by kdelta.  Read after the system's own configuration, whose proxies and
// credentials stay in force; its hooks must not run on behalf of a private root.
#clear APT::Update;
#clear DPkg;
Dir::State "{root}/state";
Dir::State::lists "lists/";
Dir::State::status "{root}/state/status";
Dir::Cache "{root}/cache";
Dir::Cache::archives "archives/";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{root}/sources.d";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::trusted "/dev/null";
Dir::Etc::trustedparts "/dev/null";
Dir::Etc::netrc "{etc}/auth.conf";
Dir::Etc::netrcparts "{etc}/auth.conf.d";
Dir::Log "{root}/log";
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
APT::Sandbox::User "";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowReleaseInfoChange "true";
// A frozen mirror's Release files expire; the signature is still verified and kdelta says so.
Acquire::Check-Valid-Until "false";
Acquire::Check-Date "false";
Acquire::GzipIndexes "true";
Acquire::PDiffs "false";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AptRun:
    """A finished apt command: exit status and everything it printed, C locale."""

    returncode: int
    output: str

    def complaint(self, program: str) -> str:
        """Its first E: message, else W: message, without the prefix, else its exit status."""
        lines = [line.strip() for line in self.output.splitlines()]
        said = (line[3:] for mark in ("E: ", "W: ") for line in lines if line.startswith(mark))
        return next(said, f"{program} exited with {self.returncode}")


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    label: str = "",
    progress: Progress | None = None,
    sign_of_life: re.Pattern[bytes] | None = None,
) -> AptRun:
    """Run an apt command to its end, passing on its progress.

    With sign_of_life the command fails when nothing that it prints in its first half minute
    matches: apt alone would wait that long for each suite of a mirror that does not answer.
    Never raises for a failed command (see returncode); raises InfraError when it is missing or
    does not end within timeout seconds.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), tempfile.TemporaryFile() as output:
        try:
            env = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
            argv = [*argv, "-o", f"APT::Status-Fd={writer}"]
            child = process.start(argv, stdout=output, stderr=output, env=env, pass_fds=(writer,))
        finally:
            os.close(writer)

        def answered() -> bool:
            return sign_of_life is None or bool(sign_of_life.search(_printed(output)))

        try:
            gave_up = not _follow(
                child, reader, timeout, output, answered, partial(_report, label, progress)
            )
        finally:
            process.end(child)
            if progress and label:
                progress(label, ENDED)
        text = _printed(output).decode(errors="replace")
    if gave_up:
        text += f"\nE: no answer within {PATIENCE_S:.0f} s\n"
    return AptRun(returncode=child.returncode, output=text)


def _follow(
    child: subprocess.Popen[bytes],
    reader: int,
    timeout: float,
    output: IO[bytes],
    answered: Callable[[], bool],
    report: Callable[[str], None],
) -> bool:
    """Report what a command says until it ends; False when it had no answer in half a minute."""
    begun, asked, pending = time.monotonic(), False, b""
    while child.poll() is None:
        spent = time.monotonic() - begun
        if spent > timeout:
            action = "check the connection to the package mirror and try again"
            raise InfraError(f"apt did not end within {timeout:.0f} s", action=action)
        if os.fstat(output.fileno()).st_size > _MOST_PRINTED:
            cause = f"apt printed more than {_MOST_PRINTED >> 20} MiB"
            raise InfraError(cause, action=process.action("apt-get"))
        if spent > PATIENCE_S and not asked:
            asked = True
            if not answered():
                return False
        if not select.select([reader], [], [], _POLL_S)[0]:
            continue
        chunk = os.read(reader, 4096)
        if not chunk:
            time.sleep(_POLL_S / 10)
            continue
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            report(line.decode(errors="replace"))
    return True


def _printed(output: IO[bytes]) -> bytes:
    """All output so far; the child's own position in the file stays."""
    return os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0)


def _report(label: str, progress: Progress | None, line: str) -> None:
    # "dlstatus:1:42.7:Retrieving file 1 of 3", apt's README.progress-reporting
    parts = line.split(":", 3)
    if progress is None or len(parts) < 4 or parts[0] != "dlstatus":
        return
    with contextlib.suppress(ValueError):
        progress(label or parts[3], min(100.0, max(0.0, float(parts[2]))))


RELEASE_SUITES = (
    *("bookworm", "bookworm-updates", "bookworm-backports"),
    *("trixie", "trixie-updates", "trixie-backports"),
    *("forky", "sid", "experimental"),
)
SECURITY_SUITES = ("bookworm-security", "trixie-security")

# "stable" and its like are aliases; third-party archives use the same names, so the signature of
# the Release file has the last word on whose archive it is.
_DEBIAN_SUITE = re.compile(
    r"(?:old){0,2}stable|testing|unstable|sid|experimental|rc-buggy"
    r"|buster|bullseye|bookworm|trixie|forky|duke"
)
_SUFFIX = re.compile(r"(?:-(?:updates|backports|proposed-updates|backports-sloppy))?/?$")
_SECURITY_SUFFIX = re.compile(r"(?:-security|/updates)/?$")
_ONE_LINE = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<rest>.*)"
)
KEYRINGS = tuple(
    Path(f"/usr/share/keyrings/debian-archive-keyring.{kind}") for kind in ("gpg", "pgp")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrors:
    """URIs, best first, of the Debian archive and of its security archive ("" suites of each)."""

    archive: tuple[str, ...]
    security: tuple[str, ...]


def configured() -> Path:
    """The folder where apt's sources are named: KDELTA_APT_ETC, else /etc/apt."""
    return Path(os.environ.get("KDELTA_APT_ETC", "/etc/apt"))


def configured_mirrors(etc: Path) -> Mirrors:
    """Mirrors of the Debian suites that apt is configured for.  Raises InfraError without one."""
    archive: dict[str, None] = {}
    security: dict[str, None] = {}
    for entry in filter(_may_be_debian, _entries(etc)):
        uris = [uri for uri in entry.get("URIs", "").split() if re.match(r"(?!cdrom:).*:/", uri)]
        for suite in entry.get("Suites", "").split():
            name = _DEBIAN_SUITE.match(suite)
            if name and _SECURITY_SUFFIX.match(suite, name.end()):
                security |= dict.fromkeys(uris)
            elif name and _SUFFIX.match(suite, name.end()):
                archive |= dict.fromkeys(uris)
    if not archive:
        source = "add an apt source with a Debian suite and component main"
        action = f"{source}, or name an image yourself with file:PATH"
        raise InfraError("no Debian mirror is configured", place=str(etc), action=action)
    return Mirrors(archive=tuple(archive), security=tuple(security))


def keyring() -> Path:
    """The machine's Debian archive keyring.  Raises InfraError when it is not installed."""
    if found := next(filter(Path.is_file, KEYRINGS), None):
        return found
    cause = "Debian's archive keyring is not installed, so nothing can be verified"
    raise InfraError(cause, action="install the package debian-archive-keyring")


def stanzas(mirrors: Mirrors, lists: str, arch: str, signed_by: Path) -> str:
    """A deb822 source list of every suite on these mirrors, for one architecture.

    lists: "Packages" or "Sources", the only target.  apt skips suites that a mirror lacks.
    """
    kind = "deb" if lists == "Packages" else "deb-src"
    return "\n".join(
        f"Types: {kind}\n"
        f"URIs: {uri}\n"
        f"Suites: {suite}\n"
        "Components: main\n"
        f"Architectures: {arch}\n"
        f"Targets: {lists}\n"
        f"Signed-By: {signed_by}\n"
        for uris, suites in ((mirrors.archive, RELEASE_SUITES), (mirrors.security, SECURITY_SUITES))
        for uri in uris
        for suite in suites
    )


def _may_be_debian(entry: Mapping[str, str]) -> bool:
    # An entry that names another owner's key is another owner's archive.
    key = entry.get("Signed-By", "")
    foreign = key.startswith("/") and "debian" not in Path(key).name
    enabled = entry.get("Enabled", "yes").lower() != "no"
    kinds, parts = (entry.get(name, "").split() for name in ("Types", "Components"))
    return enabled and not foreign and "deb" in kinds and "main" in parts


def _entries(etc: Path) -> Iterator[Mapping[str, str]]:
    """The entries of apt's lists with the fields of deb822."""
    from debian.deb822 import Deb822

    folder = etc / "sources.list.d"
    for path in (etc / "sources.list", *sorted(folder.glob("*.list"))):
        for line in _text_of(path).splitlines():
            if match := _ONE_LINE.fullmatch(line.partition("#")[0].strip()):
                words = (word.partition("=") for word in (match["options"] or "").split())
                key = next((value for name, _, value in words if name == "signed-by"), "")
                own = {"URIs": match["uri"], "Suites": match["suite"], "Components": match["rest"]}
                yield own | {"Types": "deb", "Signed-By": key}
    for path in sorted(folder.glob("*.sources")):
        yield from Deb822.iter_paragraphs(_text_of(path), use_apt_pkg=False)


_MOST_LIST = 1 << 20
_MOST_PRINTED = 64 << 20


def _text_of(path: Path) -> str:
    with contextlib.suppress(OSError):  # absent or unreadable: apt would not use it either
        return content(path, _MOST_LIST).decode(errors="replace")
    return ""


MAX_AGE_S = 12 * 3600.0
RETRY_S = 15 * 60.0
_UPDATE_S = 1800.0
_LEAST_FREE = 16 << 20  # apt-get waits for ever on a disk that is full as it begins
_DOWNLOAD_S = 3 * 3600.0
_FORMAT = 1

Entry = TypeVar("Entry", bound=Package | SourcePackage)


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """What the last update left, kept beside the lists."""

    format: int = _FORMAT
    updated: float = 0.0  # time() of the last update that reached a mirror
    tried: float = 0.0  # time() of the last attempt
    lists: tuple[tuple[str, str, str], ...] = ()  # suite, base, path relative to the root


class _Selection(msgspec.Struct, Generic[Entry], frozen=True, kw_only=True):
    """The packages selected from one state of the lists."""

    stamp: tuple[tuple[str, int, int], ...]
    found: tuple[Entry, ...]


class AptRoot(Generic[Entry]):
    """A private apt root: the index of one kind of lists, and files that such indexes name.

    etc: by default as `configured` says.  After `refresh`, `notes` holds sentences for the user:
    what is stale, what could not be reached.
    """

    lists = "Packages"
    instead = "name an image with file:PATH"

    def __init__(
        self,
        name: str,
        arch: str,
        etc: Path | None,
        read: Callable[[Sequence[ListFile], re.Pattern[bytes]], tuple[Entry, ...]],
        kind: type[_Selection[Entry]],
    ) -> None:
        self._read = read
        self._kind = kind
        self.arch = arch
        self.root = cache.root() / "apt" / name
        self.notes: list[str] = []
        self._name = name
        self._etc = etc or configured()
        self._config = self.root / "apt.conf"

    def refresh(self, *, force: bool = False, progress: Progress | None = None) -> None:
        """Bring the index up to date when it is older than MAX_AGE_S, or at once with force.

        Without a mirror, or where it cannot be written, the index that is there is used, with a
        note; raises InfraError when there is none.
        """
        state = self._state()
        if not force and self._is_fresh():
            return
        if not force and state.lists and not os.access(self.root, os.W_OK):
            self.notes.append(f"the cache cannot be written; using the index of {_day(state)}")
            return
        with cache.writing(self.root), self._locked("lists"):
            if force or not self._is_fresh():
                self._prepare()
                self._update(progress)

    def suites(self) -> dict[str, str]:
        """The suites of the index in order, each with the day its Release file expired, or ""."""
        names: dict[str, str] = {}
        for suite, _, path in self._state().lists:
            names.setdefault(suite, _expired(self.root / path, time.time()))
        return names

    def packages(self, selection: str, name: str) -> tuple[Entry, ...]:
        """What the index has whose name matches the regular expression `name` fully.

        The answer is kept on disk as `selection` until the lists change.
        """
        state = self._state()
        stats = [(path, (self.root / path).stat()) for _, _, path in state.lists]
        stamp = tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in stats)
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        kept = self.root / f"{selection}-{digest}.json"
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            known = decoded(kept.read_bytes(), self._kind)
            if known.stamp == stamp:
                return known.found
        rows = state.lists
        lists = [
            ListFile(suite=suite, base=base, path=self.root / path) for suite, base, path in rows
        ]
        found = self._read(lists, re.compile(name.encode()))
        with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
            write_aside(kept, msgspec.json.encode(_Selection(stamp=stamp, found=found)))
        return found

    @contextlib.contextmanager
    def fetched(self, package: Package, progress: Progress | None = None) -> Iterator[Path]:
        """The file of a package, as `all_fetched` has it."""
        with self.all_fetched((package,), progress) as (path,):
            yield path

    @contextlib.contextmanager
    def all_fetched(
        self, packages: Sequence[Package], progress: Progress | None = None
    ) -> Iterator[tuple[Path, ...]]:
        """The files of packages, verified against the signed index, while the context lasts.

        A partial download is resumed where the mirror dates its files (Last-Modified), else
        started again.  Two processes asking for one package take turns.  Where the context ends by
        an error the files stay, for the next who asks.
        """
        with cache.writing(self.root):
            self._prepare()
        targets = {self.root / "debs" / package.file_name: package for package in packages}
        with contextlib.ExitStack() as held:
            for target in sorted(targets):  # all in one order, so that no two wait for each other
                held.enter_context(self._locked(target.name))
            with cache.writing(self.root):
                self._download(targets, progress)
            yield tuple(targets)
            for target in targets:
                target.unlink(missing_ok=True)

    def has(self, packages: Sequence[Package]) -> bool:
        """True when the mirror still has the files: their download can be begun.

        Raises InfraError without a mirror.
        """
        parts = [_partial(self.root / "debs" / package.file_name) for package in packages]
        new = [part for part in parts if not part.exists()]

        def begun(_label: str, percent: float) -> None:
            if percent > 0:
                raise _BegunError

        with contextlib.suppress(_BegunError):
            try:
                with self.all_fetched(packages, begun):
                    pass
            except GoneError:
                return False
        for part in new:
            part.unlink(missing_ok=True)
        return True

    def _is_fresh(self) -> bool:
        state, now = self._state(), time.time()
        # Offline, an old index is used for a while before the next attempt.
        is_recent = abs(now - state.updated) < MAX_AGE_S or abs(now - state.tried) < RETRY_S
        return bool(state.lists) and is_recent

    def _state(self) -> _State:
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            state = decoded((self.root / "state.json").read_bytes(), _State)
            if state.format == _FORMAT and all((self.root / p).exists() for _, _, p in state.lists):
                return state
        return _State()

    def _prepare(self) -> None:
        for name in ("state/lists/partial", "cache/archives/partial", "sources.d", "debs", "log"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "state/status").touch()
        text = _CONFIG.format(root=self.root, arch=self.arch, etc=self._etc)
        write_aside(self._config, text.encode())

    def _update(self, progress: Progress | None) -> None:
        before = self._state()
        mirrors = configured_mirrors(self._etc)
        text = stanzas(mirrors, self.lists, self.arch, keyring())
        write_aside(self.root / "sources.d" / "kdelta.sources", text.encode())
        if shutil.disk_usage(self.root).free < _LEAST_FREE:
            raise cache.disk_full(self.root)
        argv, label = ["apt-get", "-q", "-c", str(self._config), "update"], f"{self.lists} lists"
        done = run(argv, timeout=_UPDATE_S, label=label, progress=progress, sign_of_life=_REACHED)
        reached = _REACHED.search(done.output.encode()) is not None
        complaint = done.complaint("apt-get")
        _raise_if_disk(complaint, self.root)
        lists = self._verified_lists() if reached else ()
        if not lists and not before.lists:
            cause = f"no package mirror could be reached and no index of {self.lists} is cached"
            action = f"check the network and {self._etc}, or {self.instead}"
            raise InfraError(f"{cause}: {complaint}", action=action)
        updated = time.time() if lists else before.updated
        state = _State(updated=updated, tried=time.time(), lists=lists or before.lists)
        write_aside(self.root / "state.json", msgspec.json.encode(state))
        if not lists:
            told = f"no package mirror could be reached ({complaint})"
            self.notes.append(f"{told}; using the index of {_day(before)}")
        offered = {suite for suite, _, _ in state.lists}
        wanted = RELEASE_SUITES + (SECURITY_SUITES if mirrors.security else ())
        if missing := [suite for suite in wanted if suite not in offered]:
            self.notes.append(f"not on the mirror: {', '.join(missing)}")
        if not mirrors.security:
            self.notes.append("no security mirror is configured, so security suites are left out")
        if stale := [f"{name} ({day})" for name, day in self.suites().items() if day]:
            self.notes.append(f"past their date, signature valid: {', '.join(stale)}")

    def _verified_lists(self) -> tuple[tuple[str, str, str], ...]:
        form = "$(TRUSTED)|$(RELEASE)|$(REPO_URI)|$(FILENAME)"
        argv = ["apt-get", "-c", str(self._config), "indextargets", "--format", form]
        done = run([*argv, f"Created-By: {self.lists}"], timeout=_UPDATE_S)
        rows = re.findall(r"^yes\|([^|]*)\|([^|]*)\|([^|\n]*)$", done.output, re.MULTILINE)
        # The path of a file: mirror's stays absolute.
        own = f"{self.root}/"
        return tuple((suite, base, path.removeprefix(own)) for suite, base, path in rows)

    def _download(self, targets: Mapping[Path, Package], progress: Progress | None) -> None:
        for resume in (True, False, None):
            left = [row for row in targets.items() if not _take(*row)]
            if not left:
                return
            if resume is None:
                package = left[0][1]
                cause = f"{package.name} {package.version} arrives damaged"
                action = "try again later, or refresh the index: kdelta kernels list --refresh"
                raise InfraError(f"{cause}: its SHA-256 is not the index's", action=action)
            if not resume:  # the partial file may not have been ours to resume
                for target, _ in left:
                    _partial(target).unlink(missing_ok=True)
            self._fetch(left, progress)

    def _fetch(self, wanted: Sequence[tuple[Path, Package]], progress: Progress | None) -> None:
        """Ask apt for files; one of the wrong content is left for the caller to judge."""
        argv = [index.HELPER, "-c", str(self._config), "download-file"]
        for target, package in wanted:
            argv += [package.uri, str(_partial(target)), f"SHA256:{package.sha256}"]
        label = few([package.name for _, package in wanted], 1)
        done = run(argv, timeout=_DOWNLOAD_S, label=label, progress=progress)
        if done.returncode == 0 or "Hash Sum mismatch" in done.output:
            return
        complaint = done.complaint("apt-helper")
        _raise_if_disk(complaint, self.root)
        missing = (package for target, package in wanted if not _take(target, package))
        name = next((f"{one.name} {one.version}" for one in missing), "a package")
        if re.search(r"\b404\b|File not found", done.output):
            action = "refresh the index with: kdelta kernels list --refresh"
            raise GoneError(f"the archive lists {name} but no longer has it", action=action)
        raise InfraError(
            f"{name} could not be downloaded: {complaint}", action="check the network and run again"
        )

    def _locked(self, name: str) -> contextlib.AbstractContextManager[None]:
        return cache.locked(f"apt-{self._name}-{name}")


class Archive(AptRoot[Package]):
    """The Debian archive's packages for one architecture."""

    def __init__(self, arch: str, *, etc: Path | None = None) -> None:
        super().__init__(arch, arch, etc, index.packages, _Selection[Package])


class SourceArchive(AptRoot[SourcePackage]):
    """The Debian archive's source packages: an index of its own, fetched when it is asked for."""

    lists = "Sources"
    instead = "name a source with tree:PATH"

    def __init__(self, *, etc: Path | None = None) -> None:
        super().__init__("source", native().debian, etc, index.sources, _Selection[SourcePackage])


class GoneError(InfraError):
    """The index lists a file that its mirror no longer has."""


class _BegunError(Exception):
    """A download that was begun to see whether it can be."""


def _day(state: _State) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(state.updated))


_REACHED = re.compile(rb"^(?:Hit|Get):\d+ ", re.MULTILINE)


def _partial(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial")


def _take(target: Path, package: Package) -> bool:
    """True when `target` is the package, if need be after moving a complete download there."""
    if _is_package(_partial(target), package):
        _partial(target).replace(target)
        return True
    return _is_package(target, package)


def _is_package(path: Path, package: Package) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size == package.size and sha256_of(path) == package.sha256
    return False


def _raise_if_disk(complaint: str, place: Path) -> None:
    if re.search("No space left|Disk quota exceeded", complaint):
        raise cache.disk_full(place)
    if re.search("Permission denied|Read-only file system", complaint):
        cause = f"the cache cannot be written: {complaint}"
        action = "make it writable, or point XDG_CACHE_HOME elsewhere"
        raise InfraError(cause, place=str(place), action=action)


def _expired(packages: Path, now: float) -> str:
    """The day on which the Release file of a list expired, or ""."""
    head, _, tail = packages.name.partition("_dists_")
    release = packages.with_name(f"{head}_dists_{tail.partition('_main_')[0]}_InRelease")
    with contextlib.suppress(OSError):
        text = release.read_text(errors="replace")[:4000]
        match = re.search(r"^Valid-Until: (.+)$", text, re.MULTILINE)
        until = email.utils.parsedate_to_datetime(match[1]) if match else None
        return f"{until:%Y-%m-%d}" if until and until.timestamp() < now else ""
    return ""
