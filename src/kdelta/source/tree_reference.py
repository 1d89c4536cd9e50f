# SPDX-License-Identifier: GPL-2.0-or-later
"""What a user writes for a kernel from source, and the source tree, configuration, compiler it is.

`kdelta kernels fetch --help` and docs/source.md have its forms.
The archive's index of sources is fetched when a source is first asked for.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
from debian.debian_support import Version

from kdelta import cache, data, process
from kdelta.archive.apt import GoneError, Progress, SourceArchive
from kdelta.archive.index import Package, SourcePackage
from kdelta.errors import InfraError, SpecError
from kdelta.files import decoded, given, path_of, write_aside
from kdelta.printable import meant
from kdelta.source import build, git, kconfig, make, tree
from kdelta.source.tree import SourceTree, added, of_commit

PREFIX = "tree:"
PACKAGE = "package"
Packaged = Callable[[str], Path]
"""From a release ("6.17.8", "6.12.107-1") to the configuration of its package."""
_SETTINGS = ("config", "fragment", "cc")
_FOLDER = "variants"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReference:
    """A reference, taken apart; nothing is looked up yet but variants and whether paths exist."""

    text: str
    release: str = ""  # tree:deb:
    path: Path | None = None
    commit: str = ""
    variants: tuple[Variant, ...] = ()
    configs: tuple[str, ...] = ()
    fragments: tuple[Path, ...] = ()
    compiler: str = ""  # "": this system's gcc


def parse(text: str) -> TreeReference:
    """Take a reference apart.  Raises SpecError, naming the part that is wrong."""
    if not text.startswith(PREFIX) or len(text) == len(PREFIX):
        raise SpecError(
            f"'{text}' names no source",
            action="write tree:PATH, tree:PATH@COMMIT or tree:deb:6.17.8",
        )
    base, *words = _split(text.removeprefix(PREFIX))
    settings: dict[str, list[str]] = {key: [] for key in _SETTINGS}
    variants = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in _SETTINGS and value:
            settings[key].append(value)
        elif word:
            variants.append(of_word(word))
        else:
            raise SpecError(f"'{text}' has nothing after a +", action="name a variant there")
    if len(settings["cc"]) > 1:
        raise SpecError(f"'{text}' names two compilers", action="name one")
    release, path, commit = _base(base)
    if path is None and not (_POINT.fullmatch(release) or _PACKAGE.fullmatch(release)):
        raise SpecError(
            f"'{release}' is not the version of a kernel's source",
            action="write tree:deb:6.17.8, or tree:deb:6.12.107-1 with Debian's patches",
        )
    return TreeReference(
        text=text,
        release=release,
        path=path,
        commit=commit,
        variants=tuple(variants),
        configs=tuple(settings["config"]) or (PACKAGE if release else kconfig.DEFAULT,),
        fragments=tuple(path_of(name) for name in settings["fragment"]),
        compiler="".join(settings["cc"]),
    )


def source(reference: TreeReference, *, progress: Progress | None = None) -> SourceTree:
    """The source tree with its variants; a release is fetched when first asked for."""
    if reference.path is None:
        found = of_release(reference.release, progress=progress)
    elif reference.commit:
        found = of_commit(reference.path, reference.commit)
    else:
        found = tree.of_folder(reference.path, progress=progress)
    return applied(found, reference.variants)


def subject(text: str) -> str:
    """The subject of the commit of a reference, of a folder the checked-out one; "" without one."""
    reference = parse(text)
    if reference.path is None:
        return ""
    words = ("log", "-1", "--no-show-signature", "--format=%s", "--end-of-options")
    done = git.ask(reference.path, *words, reference.commit or "HEAD")
    return "" if done.returncode else done.stdout.strip()


def configured(
    reference: TreeReference, packaged: Packaged, *, target: str = build.BUILT_FOR
) -> kconfig.Config:
    """The configuration of a reference for an architecture.  Raises SpecError for what is none."""
    own = (name for name in reference.configs if name == PACKAGE or _POINT.fullmatch(name))
    if not (of := next(own, "")):
        return kconfig.named(reference.configs, reference.fragments, target=target)
    if target != build.BUILT_FOR:
        cause = f"config={of} is built for {build.BUILT_FOR} only, not for {target}"
        action = f"add +config={kconfig.DEFAULT}, which is built for {target}, too"
        raise SpecError(cause, place=reference.text, action=action)
    release = reference.release if of == PACKAGE else of
    if not release or len(reference.configs) > 1:
        cause = f"config={of} is the whole configuration of a release of the archive"
        action = "write tree:deb:RELEASE, or name another configuration"
        raise SpecError(cause, place=reference.text, action=action)
    whole = kconfig.named([str(packaged(release))], reference.fragments)
    return replace(whole, name="+".join([of, *(path.name for path in reference.fragments)]))


def _split(text: str) -> list[str]:
    """The base and what is added to it; a folder may have "+" in its name."""
    words = text.split("+")
    if text.startswith("deb:"):
        count = next(
            n for n, word in enumerate([*words[1:], ""], 1) if not _OF_VERSION.fullmatch(word)
        )
        return ["+".join(words[:count]), *words[count:]]
    joined = [("+".join(words[:count]), count) for count in range(1, len(words) + 1)]
    plain = [row for row in reversed(joined) if path_of(row[0]).is_dir()]
    with_commit = [row for row in joined if (folder := _base(row[0])[1]) and folder.is_dir()]
    for whole, count in (*plain, *with_commit):
        return [whole, *words[count:]]
    return words


def _base(text: str) -> tuple[str, Path | None, str]:
    path = path_of(text)
    if text.startswith("deb:") or (_POINT.fullmatch(text) and not path.is_dir()):
        return text.removeprefix("deb:"), None, ""
    if path.is_dir() or "@" not in text:
        return "", path, ""
    folder, _, commit = text.rpartition("@")
    return "", path_of(folder), commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One change to a source.

    path: a patch or mailbox, the other content of the file `target` of the source, or a repository,
    whose commit `target` is meant.  undone: the patch is taken back.
    """

    name: str  # for people and tables: "mincore-present-first"
    path: Path
    target: str = ""
    undone: bool = False

    @property
    def file(self) -> str:
        """The name of the file that it is, "linux@v6.17" of a commit."""
        return f"{self.path.name}{f'@{self.target}' * self.path.is_dir()}"

    @contextlib.contextmanager
    def opened(self) -> Iterator[Path]:
        """Its file, of a commit the patch.  Raises SpecError."""
        if not self.path.is_dir():
            yield self.path
            return
        from kdelta.source import patches

        found = of_commit(self.path, self.target)
        with patches.of_commit(found.commit, found.objects) as file:
            yield file


def of_word(word: str) -> Variant:
    """A variant as it is written after "+" in a reference.

    mincore-present-first (one that kdelta brings), PATH of a patch or mailbox, PATH@COMMIT of a
    repository, undo= of one of these, mm/mincore.c=PATH.  Raises SpecError for what is none.
    """
    key, equals, value = word.partition("=")
    if equals and key == "undo":
        own = of_word(value)
        return replace(own, name=f"undo-{own.name}", undone=True)
    if equals and "/" in key:
        if key.startswith("/") or ".." in key.split("/"):
            action = "name a file of it, for example mm/mincore.c=PATH"
            raise SpecError(f"{key} is no file of a source", action=action)
        path = path_of(value).absolute()
        return Variant(name=path.stem, path=path, target=key)
    path = path_of(word).absolute()
    if is_commit(word):
        folder, _, commit = word.rpartition("@")
        return Variant(name=commit, path=path_of(folder).absolute(), target=commit)
    if not path.is_file():
        brought = data.directory(_FOLDER) / f"{word.removesuffix('.patch')}.patch"
        if "/" in word or not brought.is_file():
            if path.exists():
                given(path, 0, "name a patch file")  # says what it is
            known = brought_along()
            raise SpecError(
                f"there is no variant {word}",
                action=f"{meant(word, known)}name a patch file, or one of: {', '.join(known)}",
            )
        path = brought
    return Variant(name=path.stem, path=path)


def is_commit(word: str) -> bool:
    """True for PATH@COMMIT, a commit of the repository at PATH."""
    folder, at, commit = word.rpartition("@")
    return bool(at and folder and commit) and path_of(folder).is_dir()


def brought_along() -> tuple[str, ...]:
    """Names of the variants that kdelta brings."""
    return tuple(sorted(path.stem for path in data.directory(_FOLDER).glob("*.patch")))


def caged(variants: Sequence[Variant], fragments: Sequence[Path] = (), *, trust: bool) -> bool:
    """True when a build runs what somebody's files say, and so is confined.  Files are anybody's,
    but for variants that kdelta brings.  Raises SpecError where builds cannot be confined.
    """
    own = data.directory(_FOLDER)
    theirs = bool(fragments) or any(
        one.path.is_file() and one.path.parent != own for one in variants
    )
    if theirs and not trust:
        make.check_confinement()
    return theirs and not trust


def applied(tree: SourceTree, variants: Sequence[Variant]) -> SourceTree:
    """The tree with these changes, in order.  Raises SpecError when one does not fit."""
    for variant in variants:
        changed = _changed(tree, variant)
        if changed == tree.tree:
            why = f"the variant {variant.name} changes nothing in {tree.title}"
            raise SpecError(why, action="leave it out")
        names = (*tree.variants, variant.name)
        tree = replace(tree, tree=changed, commit="", variants=names)
    return tree


def _changed(tree: SourceTree, variant: Variant) -> str:
    from kdelta.source import patches

    if variant.target and not variant.path.is_dir():
        return patches.replaced(tree.tree, variant.target, variant.path, borrowed=tree.objects)
    place = f"{variant.name} on {tree.title}"
    with variant.opened() as path, patches.reading([path]) as mails:
        files = [letter.patch for letter in mails.letters][:: -1 if variant.undone else 1]
        return patches.applied(
            tree.tree, files, borrowed=tree.objects, name=place, undone=variant.undone
        )


# ---- sources of Debian's archive --------------------------------------------------------------

_EXTRACT_S = 1800.0
_POLL_S = 0.2
_SERIES = re.compile(r"\d+\.\d+")
_OF_VERSION = re.compile(r"\d+|b\d+|deb\d+u\d+")  # behind a + in Debian's versions: ~bpo13+1
_POINT = re.compile(r"\d+\.\d+(?:\.\d+)?(?:-rc\d+)?")
_PACKAGE = re.compile(r"[\w.+~:]+-[\w.+~]+")


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """Which tree a release's files gave."""

    tree: str


def is_here(release: str) -> bool:
    """True when the source of a release of the archive is in the cache."""
    return _known(release) is not None


def located(reference: TreeReference, *, progress: Progress | None = None) -> TreeReference:
    """The reference with the release that a series of the archive means: the newest whose source
    is there.  Raises SpecError for a release whose source is not, InfraError without a mirror.
    """
    release = reference.release
    series = _SERIES.match(release)
    if not series or is_here(release):
        return reference
    offered: tuple[SourcePackage, ...] = ()
    here = {path.stem.removeprefix("deb-") for path in _record("*").parent.glob("deb-*.json")}
    with contextlib.suppress(*([InfraError] if here else [])):
        offered = _packages(progress)

    def there(name: str) -> bool:
        files = _listed(name, offered)
        return is_here(name) or any(map(SourceArchive().has, files))

    if not _SERIES.fullmatch(release) and there(release):
        return reference
    listed = {package.upstream for package in offered} | here
    own = (name for name in listed if _POINT.fullmatch(name) and "-rc" not in name)
    near = [name for name in own if name.startswith(f"{series[0]}.")]
    newest = next(filter(there, sorted(near, key=Version, reverse=True)), "")
    if newest and _SERIES.fullmatch(release):
        return replace(reference, release=newest)
    raise _lacking(release, newest)


def of_release(reference: str, *, progress: Progress | None = None) -> SourceTree:
    """The source of a release: "6.17.8" upstream's, "6.12.107-1" with Debian's patches applied.

    Fetched when first asked for, then in the cache.  Raises SpecError for an unknown one,
    InfraError when it cannot be fetched.
    """
    if (known := _known(reference)) is None:
        with cache.locked(f"sources-deb-{reference}"):
            known = _known(reference) or _fetched(reference, progress)
    return SourceTree(name=reference, tree=known.tree, line=f"deb-{reference}")


def _known(reference: str) -> _Known | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        known = decoded(_record(reference).read_bytes(), _Known)
        if not git.run("cat-file", "-e", f"{known.tree}^{{tree}}", check=False).returncode:
            return known
    return None


def _record(reference: str) -> Path:
    return cache.folder("sources") / f"deb-{reference}.json"


def _fetched(reference: str, progress: Progress | None) -> _Known:
    """Fetch a release; a file that one package's folder lacks may lie in another's."""
    for files in _listed(reference, _packages(progress)):
        try:
            tree = _imported(reference, files, progress)
        except GoneError:
            continue
        known = _Known(tree=tree)
        with cache.writing(_record(reference)):
            write_aside(_record(reference), msgspec.json.encode(known))
        return known
    raise _lacking(reference, "")


def _lacking(release: str, newest: str) -> SpecError:
    near = f"the newest of its series that it has is deb:{newest}" if newest else ""
    action = near or "name a source of your own with tree:PATH"
    return SpecError(f"the archive has no source of kernel {release}", action=action)


def _imported(reference: str, files: tuple[Package, ...], progress: Progress | None) -> str:
    """The tree of an upstream tarball, with the patches of a Debian tarball when there is one."""
    scratch = cache.folder("sources") / f".making-deb-{reference}"
    report = progress or (lambda _label, _percent: None)
    label = f"source of {reference}"
    with cache.writing(scratch):
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            with SourceArchive().all_fetched(files, progress) as paths:
                for path, name in zip(paths, ("linux", "debian"), strict=False):
                    _extract(path, scratch / name, partial(report, f"unpacking {path.name}"))
                report(label, 0.0)
                with git.scratch_index() as index:
                    tree = added(scratch / "linux", everything=True, index=index)
                    if len(files) == 1:
                        build.adopt(f"deb-{reference}", scratch / "linux", index)
            if len(files) > 1:
                from kdelta.source import patches

                tree = patches.applied(tree, patches.quilt(scratch / "debian" / "patches"))
            report(label, 100.0)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return tree


def _extract(tarball: Path, folder: Path, report: Callable[[float], None]) -> None:
    folder.mkdir(parents=True)
    argv = [
        "tar", "--extract", "--xz", "--file", "-", "--directory", str(folder),
        "--strip-components=1", "--no-same-owner", "--delay-directory-restore",
    ]  # fmt: skip
    size, deadline = tarball.stat().st_size, time.monotonic() + _EXTRACT_S
    with tarball.open("rb") as stream, tempfile.TemporaryFile() as output:
        child = process.start(
            argv, stdin=stream, stderr=output, env={"LC_ALL": "C"}, die_with_caller=True
        )
        try:
            while child.poll() is None and time.monotonic() < deadline:
                at = os.lseek(stream.fileno(), 0, os.SEEK_CUR)  # tar reads where we stand, too
                report(min(99.0, 100.0 * at / size))
                time.sleep(_POLL_S)
        finally:
            process.end(child)
        output.seek(0)
        said = output.read().decode(errors="replace")
    if "No space left" in said:
        raise cache.disk_full(folder)
    if child.returncode:
        raise InfraError(
            f"the source cannot be unpacked: {said.strip().rpartition(chr(10))[2] or 'no output'}",
            action="are tar and xz here? On Debian: apt-get install tar xz-utils",
        )
    report(100.0)


def _listed(reference: str, packages: Iterable[SourcePackage]) -> tuple[tuple[Package, ...], ...]:
    """The files that make up a release: one tuple for each place that has them."""
    found: dict[str, tuple[Package, ...]] = {}
    for package in sorted(packages, key=lambda each: Version(each.version), reverse=True):
        orig, debian = package.file(".orig.tar.xz"), package.file(".debian.tar.xz")
        if orig and debian and package.version == reference:
            found[orig.uri] = (orig, debian)
        elif orig and package.upstream == reference:
            found[orig.uri] = (orig,)
    return tuple(found.values())


def _packages(progress: Progress | None) -> tuple[SourcePackage, ...]:
    archive = SourceArchive()
    archive.refresh(progress=progress)
    return archive.packages("linux", "linux")
