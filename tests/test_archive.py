# SPDX-License-Identifier: GPL-2.0-or-later
"""The private apt root against a small signed mirror; source lists, package members."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdelta import cache
from kdelta.archive import apt, deb, index
from kdelta.archive.apt import Archive
from kdelta.archive.index import Package
from kdelta.cache import writing
from kdelta.errors import InfraError
from kdelta.files import write_aside

if TYPE_CHECKING:
    from archive_mirror import Mirror

pytest_plugins = ("archive_mirror",)

DATA = Path(__file__).resolve().parent / "data" / "archive"

IMAGE = "linux-image-6.17.8+deb13-cloud-amd64"
KERNELS = r"linux-.*"


def opened(mirror: Mirror) -> Archive:
    archive = Archive("amd64", etc=mirror.etc)
    archive.refresh()
    return archive


@pytest.fixture
def archive(mirror: Mirror) -> Archive:
    return opened(mirror)


def package(archive: Archive, name: str) -> Package:
    (found,) = [p for p in archive.packages("kernels", KERNELS) if p.name == name]
    return found


# -- source lists -------------------------------------------------------------------------------


def test_mirrors_from_both_formats(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://commented.example/debian trixie main\n"
        "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        "http://one.example/debian bookworm main contrib # note\n"
        "deb-src http://src.example/debian bookworm main\n"
        "deb cdrom:[Debian]/ bookworm main\n"
    )
    (parts / "security.list").write_text("deb http://sec.example/s bookworm-security main\n")
    (parts / "d.sources").write_text(
        "Types: deb deb-src\nURIs: http://two.example/debian\n http://three.example/debian\n"
        "# a comment\nSuites: trixie trixie-updates\nComponents: main\n\n"
        "Types: deb\nURIs: http://off.example/debian\nSuites: sid\nComponents: main\nEnabled: no\n"
    )
    found = apt.configured_mirrors(tmp_path)
    assert found.archive == (
        "http://one.example/debian", "http://two.example/debian", "http://three.example/debian",
    )  # fmt: skip
    assert found.security == ("http://sec.example/s",)


@pytest.mark.parametrize(
    "line",
    [
        "deb https://vendor.example/apt llvm-toolchain-bookworm main",
        "deb https://vendor.example/apt bookworm-pgdg main",
        "deb https://vendor.example/apt bookworm stable",
        "deb [signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.example/apt stable main",
        "deb http://archive.example/ubuntu noble main",
        "",
    ],
)
def test_other_owners_archives_are_not_debians(tmp_path: Path, line: str) -> None:
    (tmp_path / "sources.list").write_text(f"{line}\n")
    with pytest.raises(InfraError, match="no Debian mirror is configured"):
        apt.configured_mirrors(tmp_path)


def test_source_list_verifies_every_suite() -> None:
    mirrors = apt.Mirrors(archive=("http://a.example/debian",), security=("http://s.example",))
    text = apt.stanzas(mirrors, "Packages", "arm64", Path("/keys/debian.gpg"))
    stanzas = text.strip().split("\n\n")
    assert len(stanzas) == len(apt.RELEASE_SUITES) + len(apt.SECURITY_SUITES)
    assert all("Signed-By: /keys/debian.gpg" in stanza for stanza in stanzas)
    assert all("Architectures: arm64" in stanza for stanza in stanzas)
    assert "trusted" not in text.lower()
    assert "URIs: http://s.example\nSuites: trixie-security" in text


def test_a_missing_keyring_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(apt, "KEYRINGS", (tmp_path / "none.gpg",))
    with pytest.raises(InfraError, match="debian-archive-keyring"):
        apt.keyring()


# -- the index ----------------------------------------------------------------------------------


def test_refresh_takes_what_is_there_and_names_the_rest(archive: Archive) -> None:
    assert archive.suites() == {"trixie": "2025-10-16"}
    notes = "\n".join(archive.notes)
    assert "past their date, signature valid: trixie (2025-10-16)" in notes
    assert "not on the mirror: bookworm" in notes
    assert "no security mirror" in notes
    found = package(archive, IMAGE)
    assert found.suites == ("trixie",)
    assert found.version == "6.17.8-1~bpo13+1"


def test_a_changed_release_file_is_refused(mirror: Mirror, archive: Archive) -> None:
    assert any(path.startswith("/debian/dists/sid/") for path in mirror.requests)
    assert all("sid" not in p.suites for p in archive.packages("kernels", KERNELS))


def test_a_fresh_index_needs_no_network(mirror: Mirror) -> None:
    opened(mirror)
    mirror.requests.clear()
    assert package(opened(mirror), IMAGE).size
    assert mirror.requests == []


@pytest.mark.parametrize("writable", [True, False])
def test_an_old_index_is_refreshed_where_it_can_be_written(
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
    writable: bool,  # noqa: FBT001
) -> None:
    opened(mirror)
    mirror.requests.clear()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + apt.MAX_AGE_S + 1)
    monkeypatch.setattr(os, "access", lambda *_: writable)
    archive = opened(mirror)
    assert ("/debian/dists/trixie/InRelease" in mirror.requests) is writable
    assert writable or "cannot be written; using the index of 20" in archive.notes[0]


def test_offline_the_cached_index_serves(mirror: Mirror) -> None:
    opened(mirror)
    mirror.stop()
    archive = Archive("amd64")
    archive.refresh(force=True)
    assert "no package mirror could be reached" in archive.notes[0]
    assert "using the index of" in archive.notes[0]
    assert package(archive, IMAGE)


def test_offline_without_an_index_is_an_error(mirror: Mirror) -> None:
    mirror.stop()
    with pytest.raises(InfraError, match="no index of Packages is cached") as caught:
        opened(mirror)
    assert str(mirror.etc) in caught.value.action


def test_a_mirror_that_never_answers_is_given_up(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(mirror)
    monkeypatch.setattr(apt, "PATIENCE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}/debian"
        (mirror.etc / "sources.list").write_text(f"deb {uri} trixie main\n")
        archive = Archive("amd64")
        archive.refresh(force=True)
    assert "no answer within" in archive.notes[0]
    assert package(archive, IMAGE)


def test_the_index_is_parsed_once(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(mirror).packages("kernels", KERNELS)
    monkeypatch.setattr(index, "packages", lambda *_: pytest.fail("parsed again"))
    assert opened(mirror).packages("kernels", KERNELS) == first


def test_a_damaged_state_is_fetched_anew(mirror: Mirror) -> None:
    archive = opened(mirror)
    (archive.root / "state.json").write_text("{")
    for kept in archive.root.glob("kernels-*.json"):
        kept.write_bytes(b"\0garbage")
    assert package(opened(mirror), IMAGE)


def test_the_systems_apt_is_left_alone(archive: Archive) -> None:
    shown = subprocess.run(
        ["apt-config", "-c", str(archive.root / "apt.conf"), "dump"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    values = dict(line.rstrip(";").split(" ", 1) for line in shown.splitlines() if " " in line)
    for key in ("Dir::State", "Dir::State::status", "Dir::Cache", "Dir::Etc::sourceparts"):
        assert values[key].strip('"').startswith(str(archive.root))
    assert not [key for key in values if "Invoke" in key]
    assert values["Acquire::http::Proxy::127.0.0.1"] == '"DIRECT"'  # the machine's own stays


# -- packages -----------------------------------------------------------------------------------


def test_fetch_verifies_and_extracts(archive: Archive, tmp_path: Path) -> None:
    wanted = {
        "boot/vmlinuz-6.17.8+deb13-cloud-amd64": tmp_path / "image",
        "boot/absent": tmp_path / "absent",
    }
    with archive.fetched(package(archive, IMAGE)) as path:
        assert path.read_bytes() == (DATA / "pool" / path.name).read_bytes()
        deb.extract(path, wanted)
    assert not path.exists()
    assert (tmp_path / "image").read_bytes()[0x202:0x206] == b"HdrS"
    assert not (tmp_path / "absent").exists()


def test_a_download_whose_use_is_interrupted_is_kept_for_the_next(
    mirror: Mirror, archive: Archive
) -> None:
    wanted = package(archive, IMAGE)
    with pytest.raises(KeyboardInterrupt), archive.fetched(wanted) as path:
        raise KeyboardInterrupt
    asked = len(mirror.requests)
    with archive.fetched(wanted) as path:
        assert path.stat().st_size == wanted.size
    assert len(mirror.requests) == asked
    assert not path.exists()


def test_a_mirror_is_asked_whether_it_still_has_a_file(mirror: Mirror, archive: Archive) -> None:
    wanted = package(archive, IMAGE)
    assert archive.has([wanted])
    assert not [*(archive.root / "debs").iterdir()]
    assert not archive.has([replace(wanted, uri=f"{wanted.uri}.gone", name="gone")])
    mirror.stop()
    with pytest.raises(InfraError, match="could not be downloaded"):
        archive.has([replace(wanted, name="other")])


@pytest.mark.parametrize("of_it", [True, False])
def test_a_partial_download_resumes_or_heals(
    mirror: Mirror, archive: Archive, *, of_it: bool
) -> None:
    wanted = package(archive, IMAGE)
    partial = archive.root / "debs" / f"{wanted.file_name}.partial"
    whole = (DATA / "pool" / f"{IMAGE}_{wanted.version}_amd64.deb").read_bytes()
    partial.write_bytes(whole[:400] if of_it else b"x" * 400)
    os.utime(partial, (1760000000, 1760000000))  # as apt leaves it: the mirror's Last-Modified
    with archive.fetched(wanted) as path:
        assert path.stat().st_size == wanted.size
    assert not of_it or mirror.ranges == ["bytes=400-"]


def test_a_broken_transfer_is_an_error_and_then_heals(mirror: Mirror, archive: Archive) -> None:
    wanted = package(archive, IMAGE)
    mirror.cut = 300
    with pytest.raises(InfraError, match="could not be downloaded"), archive.fetched(wanted):
        pytest.fail("a truncated package was handed out")
    mirror.cut = None
    with archive.fetched(wanted) as path:
        assert path.stat().st_size == wanted.size


def test_a_package_gone_from_the_mirror_is_named(archive: Archive) -> None:
    gone = package(archive, "linux-image-6.18.5+deb13-cloud-amd64")
    told = r"lists linux-image-6\.18\.5.*but no longer has it"
    with pytest.raises(InfraError, match=told), archive.fetched(gone):
        pytest.fail("a missing package was handed out")


def test_progress_is_reported(archive: Archive) -> None:
    seen: list[tuple[str, float]] = []
    with archive.fetched(package(archive, IMAGE), lambda label, part: seen.append((label, part))):
        pass
    assert seen
    assert {label for label, _ in seen} == {IMAGE}
    assert seen[-1][1] <= 100


def test_a_damaged_package_is_told(tmp_path: Path) -> None:
    bad = tmp_path / "bad.deb"
    content = (DATA / "pool" / f"{IMAGE}_6.17.8-1~bpo13+1_amd64.deb").read_bytes()
    for damage in (content[:500], b"not a package"):
        bad.write_bytes(damage)
        with pytest.raises(InfraError, match="damaged"):
            deb.extract(bad, {"boot/none": tmp_path / "none"})


# -- disk ---------------------------------------------------------------------------------------


def test_write_aside_keeps_the_old_file_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    write_aside(target, b"old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(InfraError, match="disk is full"), writing(tmp_path):
        write_aside(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_unwritable_cache_is_named(tmp_path: Path) -> None:
    cache.root().mkdir(parents=True)
    (cache.root() / "apt").write_text("a file where a directory is needed")
    with pytest.raises(InfraError, match="the cache cannot be written"):
        Archive("amd64", etc=tmp_path).refresh()
