# SPDX-License-Identifier: GPL-2.0-or-later
"""Rebuilds the small signed Debian archive of tests/data/archive (needs dpkg-deb, gpg).

    .venv/bin/python bench/archive.py

trixie     signed, past its Valid-Until: kernels of three package shapes, and one package that is
           listed although its file is gone
sid        signed by the same key, then changed: apt must refuse it
The key is made for this archive, has no other use and is thrown away.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "tests" / "data" / "archive"
EPOCH = "1760000000"


def bzimage(release: str, package_version: str) -> bytes:
    """A kernel image as far as its headers go: 4 sectors of set-up, 4 KiB of payload."""
    banner = f"{release} (kdelta@example.org) #1 SMP Debian {package_version} (2025-10-09)"
    data = bytearray(5 * 512 + 4096)
    data[0x1F1] = 4
    struct.pack_into("<I", data, 0x1F4, 4096 // 16)
    data[0x1FE:0x200] = b"\x55\xaa"
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20E, 0x200)  # of the text, counted from 0x200
    data[0x400 : 0x400 + len(banner)] = banner.encode()
    return bytes(data)


def package(
    name: str, version: str, files: dict[str, bytes], depends: str = "", *, gone: bool = False
) -> str:
    """Build a .deb under pool/ and return its index stanza."""
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        (root / "DEBIAN").mkdir(parents=True)
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n"
            "Maintainer: kdelta <kdelta@example.org>\nDescription: test\n"
        )
        control += f"Depends: {depends}\n" if depends else ""
        (root / "DEBIAN" / "control").write_text(control)
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        target = HERE / "pool" / f"{name}_{version}_amd64.deb"
        target.parent.mkdir(exist_ok=True)
        subprocess.run(
            ["dpkg-deb", "-Zxz", "--root-owner-group", "--build", str(root), str(target)],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        )
    content = target.read_bytes()
    if gone:
        target.unlink()
    digest = hashlib.sha256(content).hexdigest()
    relative = target.relative_to(HERE)
    return f"{control}Filename: {relative}\nSize: {len(content)}\nSHA256: {digest}\n"


def stanzas() -> str:
    """All packages of the archive."""
    cloud = "-cloud-amd64"
    old, mid, new, gone = "6.17.8+deb13", "6.19.6+deb13", "7.2.6+deb13", "6.18.5+deb13"
    rows = [
        package(
            f"linux-image-{old}{cloud}",
            "6.17.8-1~bpo13+1",
            {
                f"boot/vmlinuz-{old}{cloud}": bzimage(old + cloud, "6.17.8-1~bpo13+1"),
                f"boot/config-{old}{cloud}": b'CONFIG_CC_VERSION_TEXT="gcc-14"\nCONFIG_SMP=y\n',
            },
        ),
        package(
            f"linux-binary-{mid}{cloud}",
            "6.19.6-2~bpo13+1",
            {f"boot/vmlinuz-{mid}{cloud}": bzimage(mid + cloud, "6.19.6-2~bpo13+1")},
        ),
        package(
            f"linux-image-{mid}{cloud}",
            "6.19.6-2~bpo13+1",
            {},
            f"linux-binary-{mid}{cloud} (= 6.19.6-2~bpo13+1)",
        ),
        package(
            f"linux-binary-{new}{cloud}",
            "7.2.6-1~bpo13+1",
            {f"usr/lib/modules/{new}{cloud}/vmlinuz": bzimage(new + cloud, "7.2.6-1~bpo13+1")},
        ),
        package(
            f"linux-base-{new}{cloud}",
            "7.2.6-1~bpo13+1",
            {f"usr/lib/modules/{new}{cloud}/config": b"CONFIG_SMP=y\n"},
        ),
        package(f"linux-image-{gone}{cloud}", "6.18.5-1~bpo13+1", {}, gone=True),
    ]
    return "\n".join(rows)


def release(suite: str, codename: str, packages: str) -> str:
    """Write Packages and return the text of the suite's Release file."""
    folder = HERE / "dists" / codename
    index = folder / "main" / "binary-amd64" / "Packages"
    index.parent.mkdir(parents=True)
    index.write_text(packages)
    digest = hashlib.sha256(packages.encode()).hexdigest()
    return (
        f"Origin: Debian\nLabel: Debian\nSuite: {suite}\nCodename: {codename}\n"
        "Date: Thu, 09 Oct 2025 08:53:20 UTC\nValid-Until: Thu, 16 Oct 2025 08:53:20 UTC\n"
        "Architectures: amd64\nComponents: main\nDescription: kdelta's test archive\n"
        f"SHA256:\n {digest} {len(packages)} main/binary-amd64/Packages\n"
    )


def main() -> None:
    """Build everything anew."""
    for name in ("dists", "pool"):
        shutil.rmtree(HERE / name, ignore_errors=True)
    with tempfile.TemporaryDirectory() as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback"]
        user = "kdelta test archive <kdelta@example.org>"
        options = ["--passphrase", "", "--quick-generate-key", user, "ed25519", "sign", "never"]
        subprocess.run([*gpg, *options], check=True)
        exported = subprocess.run([*gpg, "--export"], check=True, capture_output=True)
        (HERE / "keyring.gpg").write_bytes(exported.stdout)
        text = stanzas()
        for suite, codename in (("stable", "trixie"), ("unstable", "sid")):
            signed = subprocess.run(
                [*gpg, "--digest-algo", "SHA512", "--clearsign"],
                input=release(suite, codename, text).encode(),
                check=True,
                capture_output=True,
            ).stdout
            if codename == "sid":
                signed = signed.replace(b"test archive", b"best archive")
            (HERE / "dists" / codename / "InRelease").write_bytes(signed)
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)


if __name__ == "__main__":
    main()
