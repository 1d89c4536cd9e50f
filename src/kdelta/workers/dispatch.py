# SPDX-License-Identifier: GPL-2.0-or-later
"""Exact trials on the workers of a Dask scheduler: sent, and checked when they come back.

Dask finds each trial a worker, and another one when that dies.  When a worker hangs or counts
something else than the order says, another worker gets the trial.  Two results of one trial must be
equal, or the trial is INVALID.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kdelta import build, workload
from kdelta.errors import Cancelled, InfraError, PoolError
from kdelta.files import digest_of
from kdelta.printable import printable
from kdelta.run.exact import ExactTrials
from kdelta.run.runner import AS_PLANNED, How, Trials
from kdelta.sample import Outcome, TrialRecord, TrialResult
from kdelta.workers import worker
from kdelta.workers.dask import DaskWorkers

log = logging.getLogger(__name__)
_ELSEWHERE = 4  # workers that one attempt at a trial may cost
_PATIENCE_S = 30.0  # without any worker
_POLL_S = 0.2
_LOOK_S = 0.5  # until it is looked again whether a worker came or went
_BOUNDS = 4.0  # of a trial, as often as the study's timeout


class _LostError(Exception):
    """A worker, "" for an unknown one, gave no result.  aside: it gets no further trial."""

    def __init__(self, name: str, why: str, *, aside: bool = True) -> None:
        super().__init__(why)
        self.name, self.aside = name, aside


class DispatchedTrials(Trials):
    """Measures exact trials on workers."""

    def __init__(
        self,
        own: ExactTrials,
        workers: DaskWorkers,
        *,
        checkpoints: worker.SharedCheckpoints | None = None,
        twice: int = 0,
        assigned: Callable[[int, str], None] = lambda _index, _name: None,
        limit_s: float = 0.0,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """own: knows kernels, machines and addresses, and measures nothing.

        checkpoints: what the workers restore; without, each worker boots its own.  twice: two
        workers count each trial whose number it divides, 0: none.  assigned: gets which worker has
        a trial, "" when none has.  limit_s: after which a worker hangs, 0: by the study's timeout.
        """
        self.cancelled = own.cancelled
        self._own, self._workers, self._twice = own, workers, twice
        self._checkpoints = checkpoints
        self._assigned, self._limit_s, self._patience_s = assigned, limit_s, patience_s
        self._taken = 0
        self._aside: dict[str, str] = {}
        self._freed = threading.Condition()

    def waits(self, trial: TrialRecord) -> bool:
        """See Trials."""
        return self._own.waits(trial)

    def known(self, trial: TrialRecord, finished: Sequence[TrialRecord]) -> TrialResult | None:
        """See Trials."""
        return self._own.known(trial, finished)

    def completed(self, trial: TrialRecord, result: TrialResult, run: Path) -> TrialResult:
        """See Trials."""
        return self._own.completed(trial, result, run)

    @contextmanager
    def slot(self, trial: TrialRecord) -> Iterator[None]:
        """One of the workers' places.  Raises Cancelled, and PoolError when there is none left."""
        while True:
            places = sum(self._able().values())
            with self._freed:
                if self._taken < places:
                    self._taken += 1
                    break
                self._freed.wait(_LOOK_S)
        try:
            yield
        finally:
            with self._freed:
                self._taken -= 1
                self._freed.notify_all()
            self._assigned(trial.index, "")

    def measure(self, trial: TrialRecord, folder: Path, how: How = AS_PLANNED) -> TrialResult:
        """Have it counted; raises InfraError when so many workers gave no result."""
        order, files = self._order(trial, how)
        address = self._own.address(trial, how)
        identity = self._own.given(trial)[2].identity()
        who, found = self._asked(trial, order, files, address, ())
        result = worker.unpacked(found, folder, identity)
        if self._twice and trial.index % self._twice == 0 and how == AS_PLANNED:
            again = msgspec.structs.replace(order, again=True)
            other, second = self._asked(trial, again, files, address, (who,))
            result = _equal(result, second.result, who, other)
        return result

    def _asked(
        self,
        trial: TrialRecord,
        order: worker.TrialOrder,
        files: dict[str, Path],
        address: str,
        but: tuple[str, ...],
    ) -> tuple[str, worker.Reply]:
        """Who counted it, and what came of it.  but: workers that are asked last."""
        lost: list[str] = []
        digests, message = sorted(order.inputs), msgspec.json.encode(order)
        limit_s = self._limit_s or _BOUNDS * order.timeout_s
        for _ in range(_ELSEWHERE):
            able = self._able()
            others = [name for name in able if name not in but] or [*able]
            among = others if self._aside or but else []  # none: any
            inputs = [self._workers.shared(digest, files[digest]) for digest in digests]
            future = self._workers.submit(worker.counted, message, digests, *inputs, among=among)
            try:
                name, answer = self._answer(future, trial.index, limit_s)
                return name, _checked(name, answer, trial.index, address)
            except _LostError as error:
                why = f"{error.name or 'no worker'}: {error}"
                lost.append(why)
                log.warning("trial %d is counted elsewhere: %s", trial.index, printable(why, 300))
                if error.aside and error.name:
                    self._aside[error.name] = str(error)
                but = (*but, error.name)
        raise InfraError(f"no worker could count it: {printable('; '.join(lost), 300)}")

    def _answer(self, future: Any, index: int, limit_s: float) -> tuple[str, object]:
        """Who had it, and what came back.  Raises _LostError, Cancelled, PoolError."""
        name, ends = "", time.monotonic() + limit_s
        while True:
            now = self._workers.holder(future)
            if now and now != name:
                self._assigned(index, now)
            name = now or name
            try:
                answer = future.result(timeout=_POLL_S)
                return self._workers.holder(future) or name, answer
            except TimeoutError:
                if self.cancelled.is_set():
                    future.cancel()
                    raise Cancelled from None
                if time.monotonic() > ends:
                    future.cancel()
                    why = f"it hangs: no result after {limit_s:.0f} s"
                    raise _LostError(name, why) from None
            except CancelledError:
                self._workers.places()  # who says so when all are gone
                raise _LostError(name, "it was ended", aside=False) from None
            except PoolError:
                raise
            except Exception as error:
                why = printable(f"{type(error).__name__}: {error}", 200)
                raise _LostError(name, why, aside=self._workers.failed(future)) from error

    def _order(self, trial: TrialRecord, how: How) -> tuple[worker.TrialOrder, dict[str, Path]]:
        bench, settings, kernel = self._own.given(trial)
        kernel.check()
        with build.noting() as used:
            self._own.address(trial, how)
        file = workload.file_of(trial.workload)
        both = (file, file.with_suffix(".toml"))
        theirs = both if workload.is_file(trial.workload) else ()  # a user's own C file
        own = {path.name: path for path in theirs if path.is_file()}
        fields = ((each.name, getattr(kernel, each.name)) for each in dataclasses.fields(kernel))
        order = worker.TrialOrder(
            trial=msgspec.structs.replace(trial, attempts=0, result=None),
            kernel={name: value for name, value in fields if isinstance(value, str)},
            settings=settings,
            qemu=bench.emulator.package or bench.emulator.version,
            bench_fresh_boot=bench.fresh_boot,
            timeout_s=bench.timeout_s,
            again=bench.again,
            probes=bench.probes,
            how=how,
            programs={key: digest_of(path) for key, path in used.items()},
            files={name: digest_of(path) for name, path in own.items()},
        )
        paths = {digest_of(path): path for path in (*used.values(), *own.values())}
        paths[kernel.image_sha256] = kernel.image
        shared = self._checkpoints and self._checkpoints.of(trial, how, bench, settings, kernel)
        if not shared:
            return order, paths
        sent, packed = shared
        return msgspec.structs.replace(order, checkpoint=sent), {**paths, sent.packed: packed}

    def _able(self) -> dict[str, int]:
        """Workers that may get a trial, with their places; waits.  Raises Cancelled, PoolError."""
        ends = time.monotonic() + self._patience_s
        while not self.cancelled.is_set():
            there = self._workers.places()
            if able := {name: n for name, n in there.items() if name not in self._aside}:
                return able
            if time.monotonic() > ends:
                why = "; ".join(f"{name} {why}" for name, why in self._aside.items())
                cause = f"there is no worker left{f': {printable(why, 300)}' if why else ''}"
                raise PoolError(cause, action="start workers, then go on with: kdelta resume")
            self.cancelled.wait(_LOOK_S)
        raise Cancelled


def _checked(name: str, answer: object, index: int, address: str) -> worker.Reply:
    if not isinstance(answer, bytes):
        raise _LostError(name, "it answered with something else than a result")
    try:
        found = worker.reply_of(answer, index)
    except InfraError as error:
        raise _LostError(name, error.cause) from error
    if found.result is None:
        raise _LostError(name, found.fault or "it gave no reason", aside=False)
    if found.address != address:
        counted = f"it counted {found.address[:16] or 'nothing'}, not {address[:16]}"
        raise _LostError(name, f"{counted}: another kdelta, QEMU or compiler")
    return found


def _equal(first: TrialResult, second: TrialResult | None, who: str, other: str) -> TrialResult:
    if second is not None and worker.essence(first) == worker.essence(second):
        return first
    alarm = f"counted twice, and differently: by {printable(who, 80)} and {printable(other, 80)}"
    log.warning("%s: one of the two workers is broken", alarm)
    reasons = (*first.reasons, alarm)
    return msgspec.structs.replace(first, outcome=Outcome.INVALID, reasons=reasons)
