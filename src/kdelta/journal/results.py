# SPDX-License-Identifier: GPL-2.0-or-later
"""What each trial yielded: FOLDER/trials/0007/result.json, beside its console and other artifacts.

The file is the one source of a result.  A file that cannot be read, contradicts itself or is
another trial's is left out with a warning: its trial then has no result, and is measured again.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from kdelta.errors import StoreError
from kdelta.journal import files
from kdelta.ladder.counts import CountMethod, chosen_windows
from kdelta.printable import quoted
from kdelta.sample import KernelIdentity, Operations, Outcome, TrialResult

log = logging.getLogger(__name__)
_BOOT = "boot.json"


class KeptResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a result.json, which says whose it is."""

    run: str
    index: int
    attempts: Operations  # at least one
    result: TrialResult


def trial_folder(folder: Path, index: int) -> Path:
    """Where a trial's result and artifacts lie."""
    return folder / "trials" / f"{index:04d}"


def keep(folder: Path, kept: KeptResult) -> None:
    """Put a trial's result on the disk.  Raises StoreError."""
    files.write(trial_folder(folder, kept.index) / "result.json", kept)


_KERNEL = ("release", "version", "arch", "image_sha256")  # not read from a guest


def kept(
    folder: Path, run: str, index: int, kernel: KernelIdentity | None = None
) -> KeptResult | None:
    """The result of a trial of the run `run`, None when there is none that can be read.

    kernel: of its arm, where it has one.
    """
    path = trial_folder(folder, index) / "result.json"
    try:
        found = files.read(path, KeptResult)
        if found and (why := contradiction(found.result, found.index)):
            raise files.damaged(path, why)
    except StoreError as error:
        log.warning("%s; the trial is left out", error.sentence())
        return None
    if found and (found.run, found.index) != (run, index):
        log.warning("%s: left out, it is of trial %d of %s", path, found.index, found.run)
        return None
    own = found.result.kernel if found and found.result.exact.phases else None
    if (
        own
        and kernel
        and any("" != getattr(kernel, name) != getattr(own, name) != "" for name in _KERNEL)
    ):
        versions = quoted(own.version), quoted(kernel.version)
        log.warning("%s: left out, it is of kernel %s and its arm of %s", path, *versions)
        return None
    return found


def contradiction(result: TrialResult, index: int) -> str:
    """How the result of a trial of that index cannot be; "" of one that can.

    Of each phase the functions are those of the window that stands for it, where there are any:
    windows that are not whole are the reader's to refuse, and some trials have no functions.
    """
    data = result.exact
    if result.outcome is Outcome.OK and (result.reasons or result.skip):
        return f"it is ok, and says why it is not: {quoted(result.reason, 80)}"
    if result.outcome is Outcome.OK and (bad := [f for f in result.state if not f.holds]):
        return f"it is ok, and its page state does not hold: {quoted(bad[0].name, 80)}"
    if result.copied and not 0 <= result.copied.trial != index:
        return "it is a copy of itself, or of no trial"
    if result.outcome is Outcome.OK and result.facts and result.facts.workload_exit:
        return f"it is ok, and its program ended with status {result.facts.workload_exit}"
    for one in data.phases if data.functions and not CountMethod().usable(result) else ():
        total = sum(row.insns for row in data.functions if row.phase == one.phase)
        if total != (counted := chosen_windows(one).location.value):
            told = f"the functions stored for {one.phase} sum to {total} instructions"
            return f"{told}, and {counted} were counted"
    return ""


def facts(folder: Path, index: int) -> tuple[int, int, int, int] | None:
    """What changes when a trial's result does; None when there is none."""
    try:
        seen = (trial_folder(folder, index) / "result.json").stat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_ctime_ns


def forget(folder: Path, index: int) -> None:
    """Remove a trial's result, so that the trial can be planned again.  Raises StoreError."""
    with files.disk_errors(folder):
        (trial_folder(folder, index) / "result.json").unlink(missing_ok=True)


class _Boot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """FOLDER/trials/0007/boot.json: in which boot a timed trial's program was begun.

    A program that a kill cut short has no result to say it, and its boot is no longer fresh.
    """

    boot_id: str


def note_boot(place: Path, boot_id: str) -> None:
    """Keep it in a trial's folder, before the program begins.  Raises StoreError."""
    files.write(place / _BOOT, _Boot(boot_id))


def boots(folder: Path) -> frozenset[str]:
    """Boots in which programs of a run were begun.  Raises StoreError."""
    action, paths = "remove it, and reboot before you go on", folder.glob(f"trials/*/{_BOOT}")
    found = (files.read(path, _Boot, action=action) for path in paths)
    return frozenset(one.boot_id for one in found if one)
