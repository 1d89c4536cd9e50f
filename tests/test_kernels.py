# SPDX-License-Identifier: GPL-2.0-or-later
"""References to kernels: what the archive offers, which one is meant, and its image on disk."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel_image
from command_line import ended
from kdelta import files
from kdelta.archive.index import Package
from kdelta.errors import InfraError, SpecError
from kdelta.kernels import debian, image
from kdelta.kernels.kernel import Flavour
from kdelta.kernels.reference import flavour_of, listing, resolve

if TYPE_CHECKING:
    from archive_mirror import Mirror

pytest_plugins = ("archive_mirror",)

START = "import sys; from kdelta.cli.main import main; main(sys.argv[1:])"


def deb(name: str, version: str, depends: str = "", suite: str = "trixie") -> Package:
    return Package(
        name=name, version=version, arch="amd64", depends=depends, size=1000, sha256="0" * 64,
        uri=f"http://mirror.example/{name}", suites=(suite,),
    )  # fmt: skip


# As the archive really names them.
ARCHIVED = (
    deb("linux-image-6.1.0-9-cloud-amd64", "6.1.27-1"),
    deb("linux-image-6.1.0-56-cloud-amd64", "6.1.192-2"),
    deb("linux-image-6.1.0-56-amd64", "6.1.192-2"),
    deb("linux-image-6.1.0-56-rt-amd64", "6.1.192-2"),
    deb("linux-image-6.1.0-56-cloud-amd64-unsigned", "6.1.192-2"),
    deb("linux-image-6.1.0-56-cloud-amd64-dbg", "6.1.192-2"),
    deb("linux-image-6.12-cloud-amd64", "6.12.117-1~deb12u1", "linux-image-6.12.117+deb12-cloud-a"),
    deb("linux-image-6.12.107+deb12-cloud-amd64", "6.12.107-1~deb12u1", "kmod, linux-base"),
    deb("linux-image-6.12.107+deb13-cloud-amd64", "6.12.107-1"),
    deb("linux-image-6.12.90+deb13.1-cloud-amd64", "6.12.90-2"),
    deb("linux-image-6.17.8+deb13-cloud-amd64", "6.17.8-1~bpo13+1"),
    deb("linux-image-6.17.13+deb13-cloud-amd64", "6.17.13-1~bpo13+1"),
    deb("linux-image-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1",
        "linux-binary-7.2.12+deb13-cloud-amd64 (= 7.2.12-1~bpo13+1)"),
    deb("linux-binary-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1", "linux-base-7.2.12+deb13"),
    deb("linux-binary-unsigned-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
    deb("linux-base-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
    deb("linux-binary-7.3-cloud-amd64", "7.3~rc7-1~exp1"),
    deb("linux-base-7.3-cloud-amd64", "7.3~rc7-1~exp1"),
    deb("linux-binary-unsigned-7.4.1+deb13-cloud-amd64", "7.4.1-1~bpo13+1"),
    deb("linux-image-6.17.8+deb13-cloud-arm64", "6.17.8-1~bpo13+1"),
)  # fmt: skip


def offered(flavour: Flavour = Flavour.CLOUD) -> tuple[debian.KernelOffer, ...]:
    return debian.assemble(ARCHIVED, "amd64", flavour)


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("6.17.8", "6.17.8-1~bpo13+1"), ("6.17.9", "6.17.8-1~bpo13+1"),
        ("6.17.12", "6.17.13-1~bpo13+1"), ("6.12.107", "6.12.107-1"),
        ("6.12.107-1~deb12u1", "6.12.107-1~deb12u1"), ("6.5.1", None),
    ],
)  # fmt: skip
def test_package_like_release_is_its_own_or_nearest(release: str, version: str | None) -> None:
    found = debian.like(release, release.partition("-")[0], offered())
    assert (found and found.version) == version


def test_offers_are_the_kernels_in_order() -> None:
    assert [offer.upstream for offer in offered()] == [
        "6.1.27", "6.1.192", "6.12.90", "6.12.107", "6.12.107", "6.17.8", "6.17.13", "7.2.12",
        "7.3-rc7", "7.4.1",
    ]  # fmt: skip
    assert [offer.release for offer in offered(Flavour.GENERIC)] == ["6.1.0-56-amd64"]
    assert [offer.release for offer in offered(Flavour.RT)] == ["6.1.0-56-rt-amd64"]


def test_a_signed_image_is_preferred_and_an_unsigned_one_better_than_none() -> None:
    names = {offer.upstream: offer.package.name for offer in offered()}
    assert names["6.1.192"] == "linux-image-6.1.0-56-cloud-amd64"
    assert names["7.2.12"] == "linux-binary-7.2.12+deb13-cloud-amd64"
    assert names["7.4.1"] == "linux-binary-unsigned-7.4.1+deb13-cloud-amd64"
    reverse = debian.assemble(ARCHIVED[::-1], "amd64", Flavour.CLOUD)
    assert {offer.upstream: offer.package.name for offer in reverse} == names


def test_the_configurations_package_is_found() -> None:
    found = {offer.upstream: offer.config_package for offer in offered()}
    assert found["6.17.8"] is None
    extra = found["7.3-rc7"]
    assert extra is not None
    assert extra.name == "linux-base-7.3-cloud-amd64"


@pytest.mark.parametrize(
    ("reference", "version"),
    [
        ("6.1", "6.1.192-2"),
        ("6.12", "6.12.107-1"),  # trixie's before bookworm's ~deb12u1
        ("6.12.107", "6.12.107-1"), ("6.12.90", "6.12.90-2"), ("6.17", "6.17.13-1~bpo13+1"),
        ("6.17.8", "6.17.8-1~bpo13+1"), ("7.3-rc", "7.3~rc7-1~exp1"), ("7.3-rc7", "7.3~rc7-1~exp1"),
        ("deb:6.17.8-1~bpo13+1", "6.17.8-1~bpo13+1"),
        ("deb:6.12.107-1~deb12u1", "6.12.107-1~deb12u1"), ("6.1.0-9", "6.1.27-1"),
        ("6.1.0-9-cloud-amd64", "6.1.27-1"), ("6.12.107+deb12-cloud-amd64", "6.12.107-1~deb12u1"),
    ],
)  # fmt: skip
def test_a_reference_means_one_kernel(reference: str, version: str) -> None:
    assert debian.choose(reference, offered(), "amd64", Flavour.CLOUD).version == version


@pytest.mark.parametrize(
    ("reference", "near"),
    [
        ("6.17.9", "6.17.8, 6.17.13"), ("6.15", "6.1, 6.12, 6.17"), ("6.99", "6.12, 6.17, 7.2"),
        ("6.0", "6.1, 6.12, 6.17"),
        ("7.3", "7.2, 7.3-rc, 7.4"),  # a candidate is never taken for a release
        ("9.1-rc", "7.2, 7.3-rc, 7.4"), ("deb:6.17.9-1", "6.17.8, 6.17.13"),
    ],
)  # fmt: skip
def test_an_unknown_kernel_names_its_neighbours(reference: str, near: str) -> None:
    with pytest.raises(SpecError, match="not in the archive") as caught:
        debian.choose(reference, offered(), "amd64", Flavour.CLOUD)
    assert f"the nearest are {near};" in caught.value.sentence()
    assert "kdelta kernels list" in caught.value.action


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        *((name, "is not a kernel reference")
          for name in ("", "6", "bogus", "6.17.8/../x", "v6.17", "6.17 ", "latest")),
        *((name, f"did you mean {meant}\\? ")
          for name, meant in (("v6.17", "6.17"), ("linux-6.17.8", "6.17.8"), ("/", "tree:/"))),
    ],
)  # fmt: skip
def test_what_is_no_reference_is_told_so_or_what_was_meant(reference: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        debian.choose(reference, offered(), "amd64", Flavour.CLOUD)


# -- with a mirror ------------------------------------------------------------------------------


def test_all_three_package_shapes_resolve(mirror: Mirror) -> None:
    assert [offer.upstream for offer in listing()] == ["6.17.8", "6.18.5", "6.19.6", "7.2.6"]
    found = {name: resolve(name) for name in ("6.17", "6.19.6", "deb:7.2.6-1~bpo13+1")}
    for reference, kernel in found.items():
        assert kernel.reference == reference
        assert files.sha256_of(kernel.image) == kernel.image_sha256
        assert kernel.release.encode() in kernel.image.read_bytes()
        assert kernel.identity().version == kernel.version
    assert found["6.17"].config is not None
    assert found["6.17"].suite == "trixie"
    assert found["6.19.6"].config is None
    assert found["6.19.6"].config_sha256 == ""
    config = found["deb:7.2.6-1~bpo13+1"].config  # out of linux-base-...
    assert config is not None
    assert config.read_text() == "CONFIG_SMP=y\n"
    assert len([path for path in mirror.requests if path.endswith(".deb")]) == 4


def test_a_cached_kernel_needs_no_network(mirror: Mirror) -> None:
    first = resolve("6.17")
    mirror.stop()
    assert resolve("6.17") == first
    assert [debian.is_cached(offer) for offer in listing()] == [True, False, False, False]


@pytest.mark.parametrize("damage", [b"", b"truncated", None])
def test_a_damaged_image_is_fetched_again(mirror: Mirror, damage: bytes | None) -> None:
    kernel = resolve("6.17")
    whole = kernel.image.read_bytes()
    kernel.image.write_bytes(whole[:5000] + b"X" + whole[5001:] if damage is None else damage)
    mirror.requests.clear()
    assert resolve("6.17").image.read_bytes() == whole
    assert len(mirror.requests) == 1


def test_a_damaged_image_offline_is_an_error_of_this_machine(mirror: Mirror) -> None:
    resolve("6.17").image.write_bytes(b"damaged")
    mirror.stop()
    with pytest.raises(InfraError, match="could not be downloaded"):
        resolve("6.17")


@pytest.mark.usefixtures("mirror")
def test_a_lost_record_is_fetched_again() -> None:
    kernel = resolve("6.17")
    (kernel.image.parent / ".files.json").write_text("[]")
    assert resolve("6.17") == kernel


@pytest.mark.usefixtures("mirror")
def test_an_image_is_hashed_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = resolve("6.17")
    monkeypatch.setattr(files, "sha256_of", lambda _: pytest.fail("hashed again"))
    assert resolve("6.17") == kernel


@pytest.mark.usefixtures("mirror")
def test_an_image_that_lies_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = image.inspect

    def other(path: Path) -> object:
        facts = real(path)
        return type(facts)(format="bzImage", arch="amd64", release="6.66", banner=facts.banner)

    monkeypatch.setattr(debian, "inspect", other)
    with pytest.raises(InfraError, match=r"not what the package says: it is 6\.66"):
        resolve("6.17")
    assert not debian.is_cached(listing()[0])


def test_two_processes_share_one_download(mirror: Mirror) -> None:
    listing()
    mirror.requests.clear()
    # Both start with the keyring of this test's mirror, so only the index's state is shared.
    argv = [sys.executable, "-c", START, "kernels", "fetch", "6.17", "7.2"]
    running = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    printed = [child.communicate(timeout=60) for child in running]
    assert [child.returncode for child in running] == [0, 0, 0], printed
    assert len({out for out, _ in printed}) == 1
    assert sorted(path.count("linux-image-6.17.8") for path in mirror.requests) == [0, 0, 1]


def test_cloud_means_generic_where_debian_has_no_cloud_kernels() -> None:
    assert flavour_of("cloud", "riscv64") is Flavour.GENERIC
    assert flavour_of("rt", "riscv64") is Flavour.RT
    assert flavour_of("cloud", "arm64") is Flavour.CLOUD


def test_unknown_architecture_and_flavour() -> None:
    with pytest.raises(SpecError, match="unknown architecture s390x"):
        resolve("6.17", "s390x")
    with pytest.raises(SpecError, match="unknown flavour kvm"):
        resolve("6.17", "amd64", "kvm")


# -- the command --------------------------------------------------------------------------------


@pytest.mark.usefixtures("mirror")
def test_list_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    resolve("6.17")
    table = ended(capsys, "kernels", "list")
    assert table.status == 0, table.err
    assert "6.17.8-1~bpo13+1" in table.out
    assert "\x1b" not in table.out
    assert max(len(line) for line in table.out.splitlines()) <= 100
    assert "Past their date, signature valid: trixie (2025-10-16)" in table.out
    rows = json.loads(ended(capsys, "kernels", "list", "--json").out)
    assert ("6.17.8", True, ["trixie"]) in [
        (row["upstream"], row["cached"], row["suites"]) for row in rows
    ]


@pytest.mark.usefixtures("mirror")
def test_show_says_what_an_image_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = resolve("6.17")
    shown = json.loads(ended(capsys, "kernels", "show", "6.17", "--json").out)
    assert shown["image_sha256"] == kernel.image_sha256
    assert shown["banner"].startswith("6.17.8+deb13-cloud-amd64 (kdelta@example.org) #1 SMP")
    assert shown["compiler"] == "gcc-14"
    assert shown["config_options"] == 2
    (tmp_path / "image").write_bytes(bzimage())
    text = ended(capsys, "kernels", "show", f"file:{tmp_path}/image").out
    assert "compiler       unknown" in text


@pytest.mark.usefixtures("mirror")
def test_mistakes_are_one_sentence_with_the_documented_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listing()
    for arguments, code, words in (
        (("fetch", "6.99"), 2, "kernel 6.99 (cloud, amd64) is not in the archive"),
        (("fetch", "file:/nonexistent/bzImage"), 2, "/nonexistent/bzImage"),
        (("fetch", "6.18"), 3, "but no longer has it"),
    ):
        done = ended(capsys, "kernels", *arguments)
        assert done.status == code
        assert words in done.err
    cache = Path(os.environ["XDG_CACHE_HOME"])
    shutil.rmtree(cache)
    cache.write_text("no directory")
    assert "the cache cannot be written" in ended(capsys, "kernels", "list").err


# Kernel images of every format, whole and damaged, and kernels named by file:


GCC = "aarch64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"
BANNER = (
    f"Linux version 6.17.8-arm64 (debian-kernel@lists.debian.org) ({GCC}, GNU ld (GNU Binutils "
    "for Debian) 2.44) # SMP Debian 6.17.8-1 (2025-11-20)\n"
)


def bzimage(release: str = "6.17.8-cloud-amd64") -> bytearray:
    """Set-up code of 4 sectors and 64 paragraphs... of payload, as boot.rst lays them out."""
    data = bytearray(5 * 512 + 4096)
    data[0x1F1] = 4
    struct.pack_into("<I", data, 0x1F4, 4096 // 16)
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20E, 0x300)
    text = f"{release} (me@host) #1 SMP Debian 6.17.8-1 (2025-11-20)".encode()
    data[0x500 : 0x500 + len(text)] = text
    packed = kernel_image.gzipped(kernel_image.elf(bytes(64)))
    struct.pack_into("<II", data, 0x248, 0, len(packed))
    data[5 * 512 : 5 * 512 + len(packed)] = packed
    return data


def flat(magic: bytes = b"ARM\x64", *, sections_end: int = 8192) -> bytearray:
    """An Image with a PE header of one section that ends at sections_end."""
    data = bytearray(8192)
    data[0:2] = b"MZ"
    data[0x38:0x3C] = magic
    struct.pack_into("<I", data, 0x3C, 0x40)
    data[0x40:0x44] = b"PE\0\0"
    struct.pack_into("<HH", data, 0x44, 0xAA64, 1)
    struct.pack_into("<H", data, 0x40 + 20, 0)
    struct.pack_into("<II", data, 0x40 + 24 + 16, sections_end - 4096, 4096)
    data[5000 : 5000 + len(BANNER)] = BANNER.encode()
    return data


def zboot(inner: bytes, kind: bytes = b"gzip") -> bytearray:
    packed = gzip.compress(inner) if kind == b"gzip" else inner
    data = bytearray(4096) + packed
    data[0:2] = b"MZ"
    data[4:8] = b"zimg"
    struct.pack_into("<II", data, 8, 4096, len(packed))
    data[0x18 : 0x18 + len(kind)] = kind
    struct.pack_into("<I", data, 0x3C, 0x80)
    data[0x80:0x84] = b"PE\0\0"
    struct.pack_into("<HH", data, 0x84, 0xAA64, 0)
    return data


def elf() -> bytes:
    """A vmlinux as far as its ELF header, one note segment and its banner go."""
    data = bytearray(8192)
    data[0:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<H", data, 18, 62)
    struct.pack_into("<Q", data, 32, 64)
    struct.pack_into("<HH", data, 54, 56, 1)
    struct.pack_into("<IIQQQQ", data, 64, 4, 4, 0x100, 0, 0, 36)
    struct.pack_into("<III4s", data, 0x100, 4, 20, 3, b"GNU")
    data[5000 : 5000 + len(BANNER)] = BANNER.encode()
    return bytes(data)


def facts(tmp_path: Path, content: bytes | bytearray) -> image.ImageFacts:
    path = tmp_path / "image"
    path.write_bytes(content)
    return image.inspect(path)


def test_bzimage(tmp_path: Path) -> None:
    found = facts(tmp_path, bzimage())
    assert (found.format, found.arch, found.release) == ("bzImage", "amd64", "6.17.8-cloud-amd64")
    assert found.banner.endswith("Debian 6.17.8-1 (2025-11-20)")
    assert facts(tmp_path, bzimage() + b"certificate").release == found.release


@pytest.mark.parametrize(
    ("magic", "arch"), [(b"ARM\x64", "arm64"), (b"RSC\x05", "riscv64")], ids=["arm64", "riscv64"]
)
def test_flat_images(tmp_path: Path, magic: bytes, arch: str) -> None:
    found = facts(tmp_path, flat(magic))
    assert (found.format, found.arch, found.release) == ("Image", arch, "6.17.8-arm64")
    assert found.compiler == GCC


def test_compressed_images(tmp_path: Path) -> None:
    # incompressible padding, so that the compressed file is of a kernel's least size
    inner = bytes(flat()) + os.urandom(8192)
    assert facts(tmp_path, zboot(inner)).release == "6.17.8-arm64"
    assert facts(tmp_path, gzip.compress(inner)).format == "gzip"
    other = facts(tmp_path, zboot(b"\x28\xb5\x2f\xfd" * 2000, b"zstd"))
    assert (other.format, other.arch, other.release) == ("zboot", "arm64", "")


def test_vmlinux_carries_its_build_id(tmp_path: Path) -> None:
    source = tmp_path / "vmlinux.c"
    text = BANNER.strip().replace("arm64", "amd64")
    source.write_text(
        f'__attribute__((used)) static const char banner[] = "{text}";\nvoid _start(void) {{ }}\n'
    )
    path = tmp_path / "vmlinux"
    build_id = "0123456789abcdef0123456789abcdef01234567"
    argv = ["cc", "-static", "-nostdlib", f"-Wl,--build-id=0x{build_id}"]
    subprocess.run([*argv, "-o", str(path), str(source)], check=True)
    found = image.inspect(path)
    assert (found.format, found.release, found.build_id) == ("vmlinux", "6.17.8-amd64", build_id)
    assert resolve(f"file:{path}", found.arch).identity().build_id == build_id
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(image.BadImage):
        image.inspect(path)


WHOLE: dict[str, bytes] = {
    "bzImage": bytes(bzimage()), "Image": bytes(flat()),
    "zboot": bytes(zboot(bytes(flat()) + os.urandom(8192))),
    "gzip": gzip.compress(bytes(flat()) + os.urandom(8192)), "vmlinux": elf(),
}  # fmt: skip

DAMAGED = {
    "empty": b"", "text": b"# a shell script\n" * 1000, "zeros": bytes(10000),
    "truncated bzImage": bytes(bzimage()[:5000]),
    "bzImage without release": bytes(bzimage(release="\xff\xfe")),
    "bzImage without room": bytes(bzimage()).replace(b"HdrS\0\0", b"HdrS\x0f\x02"),
    "truncated Image": bytes(flat(sections_end=9000)),
    "Image without banner": bytes(flat()).replace(b"Linux version", b"Unix version "),
    "gzip of text": gzip.compress(os.urandom(9000)),
    "truncated gzip": gzip.compress(bytes(flat()) + os.urandom(9000))[:6000],
    "zboot cut": bytes(zboot(bytes(flat()) + os.urandom(9000))[:8000]),
    "ELF magic only": b"\x7fELF" + bytes(8000),
    "ELF of garbage": b"\x7fELF\x02\x01\x01" + os.urandom(8000),
    "PE header out of the file": bytes(flat()[:0x3C]) + b"\xf0\xff\xff\xff" + bytes(8000),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_images_are_one_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "image"
    path.write_bytes(DAMAGED[name])
    for arch in ("amd64", "arm64"):
        with pytest.raises(SpecError) as caught:
            resolve(f"file:{path}", arch)
        assert "not a usable kernel image" in str(caught.value)
        assert caught.value.place == str(path)


@given(
    name=st.sampled_from(("bzImage", "Image", "zboot", "gzip", "vmlinux")),
    changes=st.lists(st.tuples(st.integers(0, 0x240), st.integers(0, 255)), max_size=8),
    length=st.integers(0, 16384),
)
def test_no_content_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[int, int]], length: int
) -> None:
    content = bytearray(WHOLE[name])
    for at, value in changes:
        content[at] = value
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_bytes(content[:length])
    try:
        found = image.inspect(path)
    except image.BadImage:
        return
    assert found.format


def test_file_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bzImage"
    path.write_bytes(bzimage())
    monkeypatch.chdir(tmp_path)
    kernel = resolve("file:bzImage")
    assert kernel.image == path
    assert (kernel.release, kernel.version, kernel.flavour) == ("6.17.8-cloud-amd64", "", "")
    assert kernel.config is None
    with pytest.raises(SpecError, match="is for amd64, not for arm64"):
        resolve("file:bzImage", "arm64")
    with pytest.raises(SpecError, match="No such file"):
        resolve("file:absent")
    with pytest.raises(SpecError, match="cannot be read: it is a folder"):
        resolve(f"file:{tmp_path}")
