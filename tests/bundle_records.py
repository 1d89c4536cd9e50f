# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs on the disk with raw counts, and bundles of them as a stranger may have made them."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from pathlib import Path

from click.testing import CliRunner, Result

from kdelta.journal import results
from kdelta.journal.run import RunRecord
from kdelta.sample import TrialResult
from run_records import kept

MAGIC = 0x3230544C45444B00


def counts_of(result: TrialResult, ids: dict[str, int]) -> bytes:
    """The plugin's stream of these windows: all of a half in one address of its own."""
    words = [1, 4, MAGIC, 1, 1, 1, 4, 0]
    for phase in result.exact.phases:
        for user, kernel in zip(phase.user, phase.kernel, strict=True):
            words += window(ids[phase.phase], user, kernel, first=len(words) == 8)
    return struct.pack(f"<{len(words)}Q", *words)


def window(phase: int, user: int, kernel: int, *, first: bool) -> list[int]:
    code = [7, 2, 0, 0x400000, 7, 2, 1, 0xFFFFFFFF81000000] if first else []
    return [*code, 2, 10, 0, phase, user, kernel, 0, 0, 0, user, 1, kernel]


def stored(record: RunRecord, folder: Path, *, raw: bool = True) -> Path:
    kept(record, folder)
    for trial in record.trials:
        assert trial.result
        place = results.trial_folder(folder, trial.index)
        (place / "console.log").write_text("it booted\n")
        if raw:
            packed = gzip.compress(counts_of(trial.result, {"protect": 0, "touch": 2}), mtime=0)
            (place / "counts.bin.gz").write_bytes(packed)
    return folder


def call(command: object, *words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])  # type: ignore[arg-type]


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]


def written(files: dict[str, bytes], path: Path) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path
