# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian archive through a private apt root in kdelta's cache, beside the system's apt."""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from kdelta import cache
from kdelta.arch import native
from kdelta.archive import apt, index, sources
from kdelta.archive.apt import Progress
from kdelta.archive.index import ListFile, Package, SourcePackage
from kdelta.errors import InfraError
from kdelta.files import decoded, sha256_of, write_aside

MAX_AGE_S = 12 * 3600.0
RETRY_S = 15 * 60.0
_UPDATE_S = 1800.0
_DOWNLOAD_S = 3 * 3600.0
_FORMAT = 1
_COLUMNS = 4

Entry = TypeVar("Entry", Package, SourcePackage)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite of the index.  stale: its Release file says it expired then (ISO date), or ""."""

    name: str
    stale: str = ""


class AptRoot:
    """A private apt root: the index of one kind of lists, and files that such indexes name.

    etc is where apt's sources are configured, by default what the environment variable
    KDELTA_APT_ETC says, else /etc/apt.  After `refresh`, `notes` holds sentences for the user: what
    is stale, what could not be reached.
    """

    lists = "Packages"
    instead = "name an image with file:PATH"

    def __init__(self, name: str, arch: str, etc: Path | None) -> None:
        self.arch = arch
        self.root = cache.root() / "apt" / name
        self.notes: list[str] = []
        self._name = name
        self._etc = etc or Path(os.environ.get("KDELTA_APT_ETC", "/etc/apt"))
        self._config = self.root / "apt.conf"

    def refresh(self, *, force: bool = False, progress: Progress | None = None) -> None:
        """Bring the index up to date when it is older than MAX_AGE_S, or at once with force.

        Without a mirror the index that is there is used, with a note; raises InfraError when
        there is none.
        """
        if not force and self._is_fresh():
            return
        with cache.writing(self.root), self._locked("lists"):
            if not force and self._is_fresh():
                return
            self._prepare()
            self._update(progress)

    def suites(self, *, now: float | None = None) -> tuple[Suite, ...]:
        """The suites of the index in order, with those whose Release file is past its date."""
        moment = time.time() if now is None else now
        names: dict[str, str] = {}
        for suite, _, path in self._state().lists:
            names.setdefault(suite, _expired(self.root / _release_of(path), moment))
        return tuple(Suite(name=name, stale=stale) for name, stale in names.items())

    def _selected(
        self,
        selection: str,
        name: str,
        read: Callable[[Sequence[ListFile], re.Pattern[bytes]], tuple[Entry, ...]],
        kind: type[_Selection[Entry]],
    ) -> tuple[Entry, ...]:
        """What `read` picks by name, kept on disk as `selection` until the lists change."""
        state = self._state()
        stamp = self._stamp(state)
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        kept = self.root / f"{selection}-{digest}.json"
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            known = decoded(kept.read_bytes(), kind)
            if known.stamp == stamp:
                return known.found
        lists = [
            ListFile(suite=suite, base=base, path=self.root / path)
            for suite, base, path in state.lists
        ]
        found = read(lists, re.compile(name.encode()))
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
        started again.  Two processes asking for one package take turns.
        """
        with cache.writing(self.root):
            self._prepare()
        targets = {self.root / "debs" / package.file_name: package for package in packages}
        with contextlib.ExitStack() as held:
            for target in sorted(targets):  # all in one order, so that no two wait for each other
                held.enter_context(self._locked(target.name))
                held.callback(target.unlink, missing_ok=True)
            with cache.writing(self.root):
                self._download(targets, progress)
            yield tuple(targets)

    # -- the lists ----------------------------------------------------------------------------

    def _is_fresh(self) -> bool:
        state = self._state()
        if not state.lists:
            return False
        now = time.time()
        # Offline, an old index is used for a while before the next attempt.
        return now - state.updated < MAX_AGE_S or now - state.tried < RETRY_S

    def _state(self) -> _State:
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            state = decoded((self.root / "state.json").read_bytes(), _State)
            if state.format == _FORMAT and all((self.root / p).exists() for _, _, p in state.lists):
                return state
        return _State()

    def _stamp(self, state: _State) -> tuple[tuple[str, int, int], ...]:
        stats = [(path, (self.root / path).stat()) for _, _, path in state.lists]
        return tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in stats)

    def _prepare(self) -> None:
        for name in ("state/lists/partial", "cache/archives/partial", "sources.d", "debs", "log"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "state/status").touch()
        write_aside(self._config, apt.configuration(self.root, self.arch, self._etc).encode())

    def _update(self, progress: Progress | None) -> None:
        before = self._state()
        mirrors = sources.configured(self._etc)
        text = sources.stanzas(mirrors, self.lists, self.arch, sources.keyring())
        write_aside(self.root / "sources.d" / "kdelta.sources", text.encode())
        done = apt.run(
            ["apt-get", "-q", "-c", str(self._config), "update"],
            timeout=_UPDATE_S,
            label=f"{self.lists} lists",
            progress=progress,
            sign_of_life=_REACHED,
        )
        reached = _REACHED.search(done.output.encode()) is not None
        complaint = next(iter(done.complaints()), f"apt-get exited with {done.returncode}")
        _raise_if_disk(complaint, self.root)
        lists = self._verified_lists() if reached else ()
        if not lists and not before.lists:
            raise InfraError(
                f"no package mirror could be reached and no index of {self.lists} is cached: "
                f"{complaint}",
                action=f"check the network and {self._etc}, or {self.instead}",
            )
        now = time.time()
        state = _State(
            updated=now if lists else before.updated, tried=now, lists=lists or before.lists
        )
        write_aside(self.root / "state.json", msgspec.json.encode(state))
        if not lists:
            self.notes.append(
                f"no package mirror could be reached ({complaint}); "
                f"using the index of {_date(before.updated)}"
            )
        self._note_suites(state.lists, mirrors)

    def _note_suites(
        self, lists: tuple[tuple[str, str, str], ...], mirrors: sources.Mirrors
    ) -> None:
        offered = {suite for suite, _, _ in lists}
        wanted = sources.RELEASE_SUITES + (sources.SECURITY_SUITES if mirrors.security else ())
        missing = [suite for suite in wanted if suite not in offered]
        if missing:
            self.notes.append(f"not on the mirror: {', '.join(missing)}")
        if not mirrors.security:
            self.notes.append("no security mirror is configured, so security suites are left out")
        stale = [f"{suite.name} ({suite.stale})" for suite in self.suites() if suite.stale]
        if stale:
            self.notes.append(f"past their date, signature valid: {', '.join(stale)}")

    def _verified_lists(self) -> tuple[tuple[str, str, str], ...]:
        done = apt.run(
            [
                "apt-get", "-c", str(self._config), "indextargets", "--format",
                "$(TRUSTED)|$(RELEASE)|$(REPO_URI)|$(FILENAME)", f"Created-By: {self.lists}",
            ],
            timeout=_UPDATE_S,
        )  # fmt: skip
        rows = [line.split("|") for line in done.output.splitlines() if line.startswith("yes|")]
        return tuple(
            (suite, base, path.removeprefix(f"{self.root}/"))  # a file: mirror's stays absolute
            for _, suite, base, path in (row for row in rows if len(row) == _COLUMNS)
        )

    # -- packages -----------------------------------------------------------------------------

    def _download(self, targets: Mapping[Path, Package], progress: Progress | None) -> None:
        for resume in (True, False):  # the partial file may not have been ours to resume
            left = [row for row in targets.items() if not _take(*row)]
            if not left:
                return
            if not resume:
                for target, _ in left:
                    _partial(target).unlink(missing_ok=True)
            self._fetch(left, progress)
        for target, package in targets.items():
            if not _take(target, package):
                raise InfraError(
                    f"{package.name} {package.version} arrives damaged: "
                    "its SHA-256 is not the index's",
                    action="try again later, or refresh the index: kdelta kernels list --refresh",
                )

    def _fetch(self, wanted: Sequence[tuple[Path, Package]], progress: Progress | None) -> None:
        """Ask apt for files; one of the wrong content is left for the caller to judge."""
        words = [
            (package.uri, str(_partial(target)), f"SHA256:{package.sha256}")
            for target, package in wanted
        ]
        done = apt.run(
            [apt.HELPER, "-c", str(self._config), "download-file", *itertools.chain(*words)],
            timeout=_DOWNLOAD_S,
            label=wanted[0][1].name + (f" and {len(wanted) - 1} more" if wanted[1:] else ""),
            progress=progress,
        )
        if done.returncode == 0 or "Hash Sum mismatch" in done.output:
            return
        complaint = next(iter(done.complaints()), f"apt-helper exited with {done.returncode}")
        _raise_if_disk(complaint, self.root)
        missing = next((package for row in wanted if not _take(*row) for package in row[1:]), None)
        name = f"{missing.name} {missing.version}" if isinstance(missing, Package) else "a package"
        if re.search(r"\b404\b|File not found", done.output):
            raise GoneError(
                f"the archive lists {name} but no longer has it",
                action="refresh the index with: kdelta kernels list --refresh",
            )
        raise InfraError(
            f"{name} could not be downloaded: {complaint}", action="check the network and run again"
        )

    def _locked(self, name: str) -> contextlib.AbstractContextManager[None]:
        return cache.locked(f"apt-{self._name}-{name}")


class Archive(AptRoot):
    """The Debian archive's packages for one architecture."""

    def __init__(self, arch: str, *, etc: Path | None = None) -> None:
        super().__init__(arch, arch, etc)

    def packages(self, selection: str, name: str) -> tuple[Package, ...]:
        """Packages of the index whose name matches the regular expression `name` fully.

        The answer is kept on disk as `selection` until the lists change.
        """
        return self._selected(selection, name, index.packages, _Selection[Package])


class SourceArchive(AptRoot):
    """The Debian archive's source packages: an index of its own, fetched when it is asked for."""

    lists = "Sources"
    instead = "name a source with tree:PATH"

    def __init__(self, *, etc: Path | None = None) -> None:
        super().__init__("source", native().debian, etc)

    def packages(self, selection: str, name: str) -> tuple[SourcePackage, ...]:
        """Source packages of the index whose name matches fully, kept as those of `Archive`."""
        return self._selected(selection, name, index.sources, _Selection[SourcePackage])


class GoneError(InfraError):
    """The index lists a file that its mirror no longer has."""


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
    try:
        return path.stat().st_size == package.size and sha256_of(path) == package.sha256
    except FileNotFoundError:
        return False


def _raise_if_disk(complaint: str, place: Path) -> None:
    """Raise an error when apt's complaint is about the disk."""
    if re.search("No space left|Disk quota exceeded", complaint):
        raise cache.disk_full(place)
    if re.search("Permission denied|Read-only file system", complaint):
        raise InfraError(
            f"the cache cannot be written: {complaint}",
            place=str(place),
            action="make it writable, or point XDG_CACHE_HOME elsewhere",
        )


def _release_of(packages: str) -> str:
    head, _, tail = packages.partition("_dists_")
    return f"{head}_dists_{tail.partition('_main_')[0]}_InRelease"


def _expired(release: Path, now: float) -> str:
    try:
        head = release.read_text(errors="replace")[:4000]
    except OSError:
        return ""
    match = re.search(r"^Valid-Until: (.+)$", head, re.MULTILINE)
    until = email.utils.parsedate_to_datetime(match[1]) if match else None
    return f"{until:%Y-%m-%d}" if until and until.timestamp() < now else ""


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
