# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of the Debian archive: what is offered, which ones references mean, their images.

Order: of several packages that fit a reference the one of the highest package version wins, as
dpkg compares versions (so 6.12.107-1 of trixie before 6.12.107-1~deb12u1 of bookworm).  The
packages of one study are chosen together, so that one compiler built them.
"""

from __future__ import annotations

import bisect
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from debian.debian_support import Version

from kdelta import cache
from kdelta.archive import deb
from kdelta.archive.apt import Archive, Progress
from kdelta.archive.index import Package, upstream_of
from kdelta.errors import InfraError, SpecError
from kdelta.files import path_of
from kdelta.kernels.image import BadImage, inspect
from kdelta.kernels.kernel import Flavour, Kernel

log = logging.getLogger(__name__)

# 6.1.0-56, 6.17.13+deb13, 6.12.90+deb13.1, 7.3
_BASE = r"\d+\.\d+(?:\.\d+)?(?:-\d+)?(?:\+[a-z0-9.+]+)?"
_NAME = re.compile(
    rf"linux-(?P<kind>image|binary|base)-(?P<early>unsigned-)?(?P<base>{_BASE})"
    r"(?P<flavour>-cloud|-rt)?-(?P<arch>[a-z0-9]+)(?P<late>-unsigned)?"
)
_HEADERS = re.compile(rf"linux-headers-(?P<base>{_BASE})(?:-cloud|-rt)?-(?P<arch>[a-z0-9]+)")
_BUILT_BY = re.compile(r"\b(gcc|clang)-(\d+)\b")
_SELECTION = r"linux-(?:(?:image|binary|base)-(?:unsigned-)?|headers-)\d[^ ]*"
_META = re.compile(r"\blinux-(?:image|binary)-(?:unsigned-)?\d")
_SERIES = re.compile(r"\d+\.\d+")
_POINT = re.compile(r"\d+\.\d+\.\d+|\d+\.\d+-rc\d+")
_CANDIDATE = re.compile(r"(\d+\.\d+)-rc")
# Only small packages are fetched for the configuration of a release.
_CONFIG_PACKAGE_BYTES = 8 << 20
_LIST = "see what is offered with: kdelta kernels list"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOffer:
    """A kernel that the archive offers."""

    release: str  # uname -r: "6.17.13+deb13-cloud-amd64"
    upstream: str  # "6.17.13", "7.3-rc7"
    flavour: Flavour
    package: Package  # holds the image
    config_package: Package | None  # holds the configuration, when that is another package
    compiler: str = ""  # "gcc 14", as far as the index tells

    @property
    def version(self) -> str:
        """Debian package version."""
        return self.package.version

    @property
    def series(self) -> str:
        """ "6.17" of "6.17.13" and "7.3" of "7.3-rc7"."""
        match = _SERIES.match(self.upstream)
        return match[0] if match else self.upstream

    @property
    def is_candidate(self) -> bool:
        """True for an -rc."""
        return "-rc" in self.upstream


def offers(archive: Archive, flavour: Flavour) -> tuple[KernelOffer, ...]:
    """All kernels of one flavour in the archive's index, oldest version first."""
    return assemble(archive.packages("kernels", _SELECTION), archive.arch, flavour)


@lru_cache(maxsize=8)  # a study asks once for each of its kernels
def assemble(packages: tuple[Package, ...], arch: str, flavour: Flavour) -> tuple[KernelOffer, ...]:
    """Offers from package descriptions: meta-packages left out, a signed image preferred."""
    images: dict[tuple[str, str], tuple[bool, Package]] = {}
    bases: dict[tuple[str, str], Package] = {}
    for package in packages:
        match = _NAME.fullmatch(package.name)
        own = match and (match["arch"], (match["flavour"] or "-generic")[1:])
        if match is None or own != (arch, flavour):
            continue
        key = (match["base"] + flavour.suffix(arch), package.version)
        if match["kind"] == "base":
            bases[key] = package
        # linux-image-6.12-amd64 depends on the image it stands for, and from 6.19 on
        # linux-image-REL depends on linux-binary-REL, which holds the image.
        elif not _META.search(package.depends):
            signed = not (match["early"] or match["late"])
            if key not in images or signed > images[key][0]:
                images[key] = (signed, package)
    compiler_of = _compilers(packages, arch)
    found = [
        KernelOffer(
            release=release,
            upstream=upstream_of(package.version),
            flavour=flavour,
            package=package,
            config_package=bases.get((release, package.version)),
            compiler=compiler_of(release.removesuffix(flavour.suffix(arch)), package),
        )
        for (release, _), (_, package) in images.items()
    ]
    return tuple(sorted(found, key=lambda offer: Version(offer.version)))


def _compilers(packages: Iterable[Package], arch: str) -> Callable[[str, Package], str]:
    """Who built the package of a release's base: gives its compiler, "" when it is not known.

    The packages of headers depend on the compiler of their kernel.  An old kernel's headers may be
    gone while its image is not; then the compiler is that of all packages made for the same Debian
    release ("+deb13") or, without such a mark, series.
    """
    known: dict[tuple[str, str], str] = {}
    marked: dict[str, set[str]] = {}
    for package in packages:
        name, by = _HEADERS.fullmatch(package.name), _BUILT_BY.search(package.depends)
        if name and by and name["arch"] == arch:
            known[name["base"], package.version] = f"{by[1]} {by[2]}"
            marked.setdefault(_mark(name["base"]), set()).add(f"{by[1]} {by[2]}")

    def of_release(base: str, package: Package) -> str:
        alike = [*marked.get(_mark(base), ())]
        return known.get((base, package.version)) or (alike[0] if len(alike) == 1 else "")

    return of_release


def _mark(base: str) -> str:
    """ "+deb13" of "6.17.13+deb13", "6.1" of "6.1.0-56"."""
    match = re.search(r"\+deb\d+", base) or _SERIES.match(base)
    return match[0] if match else base


def fitting(reference: str, offered: Sequence[KernelOffer]) -> tuple[KernelOffer, ...]:
    """The offers that a reference may mean, the newest package last."""
    return tuple(offer for offer in offered if _fits(reference, offer))


def is_open(reference: str) -> bool:
    """True for a reference that means the newest of several: a series, its candidate."""
    return any(form.fullmatch(reference) for form in (_SERIES, _CANDIDATE))


def choose(
    reference: str, offered: Sequence[KernelOffer], arch: str, flavour: Flavour
) -> KernelOffer:
    """The offer that a reference means.  Raises SpecError, naming what is near."""
    if found := fitting(reference, offered):
        return found[-1]
    known = (_SERIES, _POINT, _CANDIDATE, re.compile(_BASE + f"(?:{flavour.suffix(arch)})?"))
    if not reference.startswith("deb:") and not any(form.fullmatch(reference) for form in known):
        action = "write 6.17.8, 6.17, 7.3-rc, deb:VERSION or file:PATH, and " + _LIST
        raise SpecError(
            f"'{reference}' is not a kernel reference", action=_meant(reference) + action
        )
    near = nearest(reference.removeprefix("deb:"), offered)
    hint = f"the nearest are {', '.join(near)}" if near else "no kernel is"
    raise SpecError(
        f"kernel {reference} ({flavour}, {arch}) is not in the archive; {hint}", action=_LIST
    )


def _meant(reference: str) -> str:
    """How an action begins for the tag of a release, a folder or a file."""
    path = path_of(reference)
    release = re.sub(r"^(?:linux-?|v)(?=\d)", "", reference)
    kind = "tree:" if path.is_dir() else "file:" if path.is_file() else ""
    near = f"{kind}{reference}" if kind else release
    return f"did you mean {near}? " if near != reference else ""


def nearest(wanted: str, offered: Sequence[KernelOffer]) -> tuple[str, ...]:
    """References of up to three neighbours, lowest first: of the series, else other series."""
    target = _numbers(wanted)
    finals = [offer for offer in offered if not offer.is_candidate]
    names = {offer.upstream for offer in finals if _numbers(offer.series)[:2] == target[:2]}
    if not names:
        names = {f"{o.series}-rc" if o.is_candidate else o.series for o in offered}
    ordered = sorted(names, key=_numbers)
    above = bisect.bisect([_numbers(name) for name in ordered], target)
    start = max(0, min(above - 2, len(ordered) - 3))
    return tuple(ordered[start : start + 3])


def like(release: str, upstream: str, offered: Sequence[KernelOffer]) -> KernelOffer | None:
    """The package of a source's release; else the nearest of its series, the later of two."""
    series = _SERIES.match(upstream)
    own = [offer for offer in offered if series and offer.series == series[0]]

    def nearness(offer: KernelOffer) -> tuple[bool, bool, int, Version]:
        apart = abs(_numbers(offer.upstream)[2] - _numbers(upstream)[2])
        same = offer.version == release, offer.upstream == upstream
        return *same, -apart, Version(offer.version)

    return max(own, key=nearness, default=None)


def fetch(
    offer: KernelOffer, reference: str, *, archive: Archive, progress: Progress | None = None
) -> Kernel:
    """The kernel of an offer, from the cache, else downloaded into it."""
    folder = cache.entry(
        "images", offer.package.sha256, lambda folder: _fill(folder, offer, archive, progress)
    )
    config = folder / "config"
    return Kernel(
        reference=reference,
        release=offer.release,
        version=offer.version,
        arch=archive.arch,
        flavour=offer.flavour,
        image=folder / "vmlinuz",
        image_sha256=cache.recorded(folder / "vmlinuz"),
        config=config if config.exists() else None,
        config_sha256=cache.recorded(config),
        suite=", ".join(offer.package.suites),
        package=offer.package.name,
    )


def installable(offer: KernelOffer, archive: Archive) -> tuple[Package, ...]:
    """The packages that a machine needs to boot an offer: its image, and from 6.19 on its parts."""
    names = rf"linux-(?:base|modules|binary|image)-{re.escape(offer.release)}"
    own = [each for each in archive.packages("host", names) if each.version == offer.version]
    return tuple({each.name: each for each in (*own, offer.package)}.values())


def is_cached(offer: KernelOffer) -> bool:
    """True when the image of an offer is on this disk."""
    return cache.has("images", offer.package.sha256)


def _fits(reference: str, offer: KernelOffer) -> bool:
    if reference.startswith("deb:"):
        return offer.version == reference.removeprefix("deb:")
    if candidate := _CANDIDATE.fullmatch(reference):
        return offer.is_candidate and offer.series == candidate[1]
    if _SERIES.fullmatch(reference):
        return offer.series == reference and not offer.is_candidate
    bare = offer.release.removesuffix(offer.flavour.suffix(offer.package.arch))
    return reference in (offer.upstream, offer.release, bare)


def _fill(folder: Path, offer: KernelOffer, archive: Archive, progress: Progress | None) -> None:
    release = offer.release
    image, config = folder / "vmlinuz", folder / "config"
    places = (f"boot/vmlinuz-{release}", f"usr/lib/modules/{release}/vmlinuz")
    images = {f"{place}{end}": image for end in ("", ".unsigned") for place in places}
    configs = {f"boot/config-{release}": config, f"usr/lib/modules/{release}/config": config}
    with archive.fetched(offer.package, progress) as package:
        deb.extract(package, images | configs)
        if not image.exists():
            raise InfraError(
                f"{offer.package.name} {offer.version} holds no kernel image",
                action="choose another version; " + _LIST,
            )
    extra = offer.config_package
    if not config.exists() and extra is not None and extra.size <= _CONFIG_PACKAGE_BYTES:
        with archive.fetched(extra, progress) as package:
            deb.extract(package, configs)
    try:
        facts = inspect(image)
        fits = facts.arch == archive.arch and facts.release in ("", release)
        wrong = "" if fits else f"it is {facts.release} for {facts.arch}"
    except BadImage as error:
        wrong = str(error)
    if wrong:
        name = f"{offer.package.name} {offer.version}"
        raise InfraError(
            f"the image in {name} is not what the package says: {wrong}",
            action="choose another version; " + _LIST,
        )


def _numbers(text: str) -> list[int]:
    found = [int(part) for part in re.findall(r"\d{1,6}", text)[:3]]
    return [*found, 0, 0, 0][:3]


_RANGE = re.compile(r"(\d+\.\d+[^.:/]*(?:\.\d[^.:/]*)?)\.\.(\d+\.\d+.*)")


def choose_together(
    references: Sequence[str],
    offered: Sequence[KernelOffer],
    arch: str,
    flavour: Flavour,
    *,
    others: Sequence[str] = (),
) -> tuple[KernelOffer, ...]:
    """The offer of each reference, all of one compiler as far as the archive has them.

    A series or a candidate means the newest package of the compiler that most arms can have; any
    other reference names its package, whoever built it; what is not obvious of that is said.
    others: compilers of further arms ("gcc 14"), which are not the archive's.  Raises SpecError
    for an unknown reference.
    """
    newest = [choose(name, offered, arch, flavour) for name in references]
    ways = [
        {each.compiler: each for each in fitting(name, offered)}
        if is_open(name)
        else {first.compiler: first}
        for name, first in zip(references, newest, strict=True)
    ]
    votes = Counter(filter(None, (*(name for way in ways for name in way), *others)))
    built = Counter(each.compiler for each in newest)
    wanted = max(votes, key=lambda name: (votes[name], built[name], name), default="")
    chosen = tuple(way.get(wanted, first) for first, way in zip(newest, ways, strict=True))
    for name, first, offer in zip(references, newest, chosen, strict=True):
        here = f"{name}: {offer.version} ({offer.compiler})"
        if offer is not first:
            instead = f"{first.version} is {first.compiler or 'of an unknown compiler'}"
            log.warning("%s, since the other arms are %s; %s", here, wanted, instead)
        elif offer.compiler not in ("", wanted):
            none = f"no {name} of the archive is {wanted}" if is_open(name) else "as named"
            log.warning("%s, the other arms are %s: %s", here, wanted, none)
    return chosen


def every_series(offered: Sequence[KernelOffer]) -> tuple[str, ...]:
    """References to the newest of each series and to each candidate, oldest first."""
    named = (f"{one.series}-rc" if one.is_candidate else one.series for one in offered)
    return tuple(dict.fromkeys(named))


def expanded(references: Sequence[str], offered: Sequence[KernelOffer]) -> tuple[str, ...]:
    """The references with A..B replaced by A, the series between, and B.  Raises SpecError."""
    series = list(dict.fromkeys(each.series for each in offered if not each.is_candidate))
    found: list[str] = []
    for reference in references:
        match = _RANGE.fullmatch(reference)
        found += _series_between(match[1], match[2], offered, series) if match else [reference]
    return tuple(dict.fromkeys(found) if len(found) > len(references) else found)


def _series_between(
    first: str, last: str, offered: Sequence[KernelOffer], series: Sequence[str]
) -> list[str]:
    ends = []
    for end in (first, last):
        found = fitting(end, offered)
        if not found:
            near = ", ".join(nearest(end, offered)) or "none"
            raise SpecError(
                f"the archive has no {end}, an end of {first}..{last}",
                action=f"the nearest are {near}; see: kdelta kernels list",
            )
        ends.append(_numbers(found[-1].series))
    low, high = ends
    if low > high:
        raise SpecError(
            f"{first}..{last} runs backwards", action=f"write the older end first: {last}..{first}"
        )
    inside = [name for name in series if low < _numbers(name) < high]
    return list(dict.fromkeys([first, *sorted(inside, key=_numbers), last]))
