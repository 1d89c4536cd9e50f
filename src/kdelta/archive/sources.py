# SPDX-License-Identifier: GPL-2.0-or-later
"""Which Debian mirrors this machine's apt is configured for, and our own source list from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kdelta.errors import InfraError

RELEASE_SUITES = (
    "bookworm",
    "bookworm-updates",
    "bookworm-backports",
    "trixie",
    "trixie-updates",
    "trixie-backports",
    "forky",
    "sid",
    "experimental",
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
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrors:
    """URIs, best first, of the Debian archive and of its security archive ("" suites of each)."""

    archive: tuple[str, ...]
    security: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str


def configured(etc: Path) -> Mirrors:
    """Mirrors named by sources.list, sources.list.d/*.list and *.sources under `etc`.

    Raises InfraError when no entry offers a Debian suite's component main.
    """
    entries = [entry for entry in _entries(etc) if _may_be_debian(entry)]
    archive: dict[str, None] = {}
    security: dict[str, None] = {}
    for entry in entries:
        for suite in entry.suites:
            target = _which(suite, archive=archive, security=security)
            if target is not None:
                target.update(dict.fromkeys(entry.uris))
    if not archive:
        raise InfraError(
            "no Debian mirror is configured",
            place=str(etc),
            action="add an apt source with a Debian suite and component main, "
            "or name an image yourself with file:PATH",
        )
    return Mirrors(archive=tuple(archive), security=tuple(security))


def keyring() -> Path:
    """The machine's Debian archive keyring.  Raises InfraError when it is not installed."""
    for candidate in KEYRINGS:
        if candidate.is_file():
            return candidate
    raise InfraError(
        "Debian's archive keyring is not installed, so nothing can be verified",
        action="install the package debian-archive-keyring",
    )


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
        for uris, suites in (
            (mirrors.archive, RELEASE_SUITES),
            (mirrors.security, SECURITY_SUITES),
        )
        for uri in uris
        for suite in suites
    )


def _which(
    suite: str, *, archive: dict[str, None], security: dict[str, None]
) -> dict[str, None] | None:
    name = _DEBIAN_SUITE.match(suite)
    if name is None:
        return None
    rest = suite[name.end() :]
    if _SECURITY_SUFFIX.match(rest):
        return security
    return archive if _SUFFIX.match(rest) else None


def _may_be_debian(entry: _Entry) -> bool:
    # An entry that names another owner's key is another owner's archive.
    foreign = entry.signed_by.startswith("/") and "debian" not in Path(entry.signed_by).name
    return "main" in entry.components and not foreign


def _entries(etc: Path) -> Iterator[_Entry]:
    for path in (etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))):
        for line in _text(path).splitlines():
            yield from _one_line(line.partition("#")[0].strip())
    for path in sorted((etc / "sources.list.d").glob("*.sources")):
        yield from _deb822(_text(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # absent or unreadable: apt would not use it either


def _one_line(line: str) -> Iterator[_Entry]:
    match = _ONE_LINE.fullmatch(line)
    if match is None or not _fetchable(match["uri"]):
        return
    options = dict(part.split("=", 1) for part in (match["options"] or "").split() if "=" in part)
    yield _Entry(
        uris=(match["uri"],),
        suites=(match["suite"],),
        components=tuple(match["rest"].split()),
        signed_by=options.get("signed-by", ""),
    )


def _deb822(text: str) -> Iterator[_Entry]:
    from debian.deb822 import Deb822

    for fields in Deb822.iter_paragraphs(text, use_apt_pkg=False):
        enabled = fields.get("Enabled", "yes").lower() != "no"
        uris = tuple(uri for uri in fields.get("URIs", "").split() if _fetchable(uri))
        if uris and enabled and "deb" in fields.get("Types", "").split():
            yield _Entry(
                uris=uris,
                suites=tuple(fields.get("Suites", "").split()),
                components=tuple(fields.get("Components", "").split()),
                signed_by=fields.get("Signed-By", ""),
            )


def _fetchable(uri: str) -> bool:
    return ":/" in uri and not uri.startswith("cdrom:")
