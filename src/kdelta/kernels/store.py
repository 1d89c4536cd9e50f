# SPDX-License-Identifier: GPL-2.0-or-later
"""Content-addressed images in kdelta's cache: images/<sha256>/{vmlinuz,config,kernel.json}."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kdelta.archive.index import Package
from kdelta.cache import locked, writing
from kdelta.files import sha256_of, write_aside
from kdelta.kernels.kernel import Kernel

log = logging.getLogger(__name__)

_FORMAT = 1
_verified: set[tuple[Path, int, int]] = set()  # files hashed by this process: path, mtime, size


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """kernel.json: what is known of an image, without the reference that led to it."""

    format: int = _FORMAT
    release: str
    version: str
    arch: str
    flavour: str
    image_sha256: str
    config_sha256: str
    suite: str
    package: str
    package_sha256: str


class ImageStore:
    """Kernel images under a cache root, found by the package they came from."""

    def __init__(self, cache: Path) -> None:
        self._images = cache / "images"
        self._packages = cache / "packages"
        self._locks = cache / "locks"

    def has(self, package: Package) -> bool:
        """True when the image of a package is there; its content is not looked at."""
        digest = self._digest_of(package)
        return bool(digest) and (self._images / digest / "vmlinuz").exists()

    def find(self, package: Package, reference: str) -> Kernel | None:
        """The kernel of a package, its content verified, or None when it must be fetched.

        A damaged image is removed.
        """
        digest = self._digest_of(package)
        if not digest:
            return None
        folder = self._images / digest
        record = _read(folder)
        if record is None or record.package_sha256 != package.sha256:
            return None
        config = folder / "config" if record.config_sha256 else None
        whole = _holds(folder / "vmlinuz", digest)
        if not whole or (config is not None and not _holds(config, record.config_sha256)):
            log.warning("%s: the cached image is damaged; it will be fetched again", folder)
            with writing(self._images):
                shutil.rmtree(folder, ignore_errors=True)
            return None
        return _kernel(record, folder, reference)

    @contextlib.contextmanager
    def adding(self, package: Package) -> Iterator[Path]:
        """A new folder to put vmlinuz (and config) in, under the package's lock.

        `commit` moves it into place; the folder is gone after the context.
        """
        with locked(self._locks / f"{package.file_name}.lock"), writing(self._images):
            self._images.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._images, prefix=".new-") as name:
                folder = Path(name) / "image"
                folder.mkdir()
                yield folder

    def commit(self, folder: Path, package: Package, record: Record) -> None:
        """Move a filled folder to its address and remember which package it came from."""
        write_aside(folder / "kernel.json", msgspec.json.encode(record))
        address = self._images / record.image_sha256
        with locked(self._locks / f"{record.image_sha256}.lock"):
            if address.exists():  # the same bytes from another package, or a damaged folder
                shutil.rmtree(address)
            folder.replace(address)
        self._packages.mkdir(parents=True, exist_ok=True)
        write_aside(
            self._packages / f"{package.file_name}.json",
            msgspec.json.encode({"image_sha256": record.image_sha256}),
        )

    def _digest_of(self, package: Package) -> str:
        with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
            content = (self._packages / f"{package.file_name}.json").read_bytes()
            return msgspec.json.decode(content, type=dict[str, str]).get("image_sha256", "")
        return ""


def _read(folder: Path) -> Record | None:
    with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        record = msgspec.json.decode((folder / "kernel.json").read_bytes(), type=Record)
        return record if record.format == _FORMAT else None
    return None


def _holds(path: Path, digest: str) -> bool:
    try:
        stat = path.stat()
    except OSError:
        return False
    key = (path, stat.st_mtime_ns, stat.st_size)
    if key not in _verified:
        if sha256_of(path) != digest:
            return False
        _verified.add(key)
    return True


def _kernel(record: Record, folder: Path, reference: str) -> Kernel:
    return Kernel(
        reference=reference,
        release=record.release,
        version=record.version,
        arch=record.arch,
        flavour=record.flavour,
        image=folder / "vmlinuz",
        image_sha256=record.image_sha256,
        config=folder / "config" if record.config_sha256 else None,
        config_sha256=record.config_sha256,
        build_id="",
        suite=record.suite,
        package=record.package,
    )
