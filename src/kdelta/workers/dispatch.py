# SPDX-License-Identifier: GPL-2.0-or-later
"""Exact trials on many workers: sent where there is room, checked when they come back.

A worker is an executor of `concurrent.futures` with a number of places.  When one dies, hangs or
counts something else than the order says, another worker gets the trial.  Two results of one trial
must be equal, or the trial is INVALID.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from concurrent.futures import TimeoutError as LateError
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kdelta import build, workload
from kdelta.errors import Cancelled, InfraError, PoolError
from kdelta.files import digest_of
from kdelta.printable import printable
from kdelta.run.exact import ExactTrials
from kdelta.run.runner import AS_PLANNED, How, Trials
from kdelta.run.trial import bounded
from kdelta.sample import Outcome, TrialRecord, TrialResult
from kdelta.workers import messages, worker
from kdelta.workers.checkpoints import SharedCheckpoints
from kdelta.workers.messages import Reply, SentFile, TrialOrder

log = logging.getLogger(__name__)
_ELSEWHERE = 4  # workers that one attempt at a trial may cost
_PATIENCE_S = 30.0  # without any worker
_POLL_S = 0.2
_WORTH = 2  # trials that a worker must get for a checkpoint that is sent to it
_LOOK_S = 0.5  # until it is looked again whether a worker came or went
_BOUNDS = 4.0  # of a trial, as often as the study's timeout
_SENDING_S = 300.0


class Workers(Protocol):
    """Where trials can be sent."""

    def places(self) -> dict[str, int]:
        """How many trials each worker that is there takes at once.  Raises PoolError."""

    def executor(self, name: str) -> Executor:
        """What runs functions on that worker and no other."""

    def close(self) -> None:
        """Leave the workers alone."""


class _LostError(Exception):
    """A worker gave no result.  aside: it gets no further trial."""

    def __init__(self, why: str, *, aside: bool = True) -> None:
        super().__init__(why)
        self.aside = aside


class DispatchedTrials(Trials):
    """Measures exact trials on workers."""

    def __init__(
        self,
        own: ExactTrials,
        workers: Workers,
        *,
        checkpoints: SharedCheckpoints | None = None,
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
        self._taken: Counter[str] = Counter()
        self._aside: dict[str, str] = {}
        self._has: dict[str, set[str]] = {}
        self._first: dict[int, str] = {}
        self._freed = threading.Condition()
        self._kernels: dict[str, set[str]] = {}
        self._waiting: Counter[str] = Counter()

    def waits(self, trial: TrialRecord) -> bool:
        """See Trials."""
        return self._own.waits(trial)

    def known(self, trial: TrialRecord, finished: Sequence[TrialRecord]) -> TrialResult | None:
        """See Trials."""
        return self._own.known(trial, finished)

    @contextmanager
    def slot(self, trial: TrialRecord) -> Iterator[None]:
        """A place at a worker.  Raises Cancelled, and PoolError when there is none any more."""
        name = self._place(self._image(trial), ())
        self._first[trial.index] = name
        self._assigned(trial.index, name)
        try:
            yield
        finally:
            self._assigned(trial.index, "")
            left = self._first.pop(trial.index, "")
            if left:
                self._give_back(left)

    def measure(self, trial: TrialRecord, folder: Path, how: How = AS_PLANNED) -> TrialResult:
        """Have it counted; raises InfraError when so many workers gave no result."""
        order, files = self._order(trial, how)
        address = self._own.address(trial, how)
        identity = self._own.given(trial)[2].identity()
        who, found = self._asked(trial, order, files, address, ())
        result = messages.unpacked(found, folder, identity)
        if self._twice and trial.index % self._twice == 0 and how == AS_PLANNED:
            again = msgspec.structs.replace(order, again=True)
            other, second = self._asked(trial, again, files, address, (who,))
            result = _equal(result, second.result, who, other)
        return result

    def close(self) -> None:
        """Leave the workers."""
        self._workers.close()

    def _asked(
        self,
        trial: TrialRecord,
        order: TrialOrder,
        files: dict[str, Path],
        address: str,
        but: tuple[str, ...],
    ) -> tuple[str, Reply]:
        """Who counted it, and what came of it.  but: workers that are asked last."""
        lost: list[str] = []
        message = msgspec.json.encode(order)
        for _ in range(_ELSEWHERE):
            name = self._first.pop(trial.index, "") or self._place(self._image(trial), but)
            self._assigned(trial.index, name)
            try:
                self._bring(name, order.inputs, files)
                answer = self._call(name, self._limit(order), worker.counted, message)
                found = self._checked(answer, trial.index, address)
            except _LostError as error:
                why = f"{name}: {error}"
                lost.append(why)
                log.warning("trial %d is counted elsewhere: %s", trial.index, printable(why, 300))
                if error.aside:
                    self._set_aside(name, str(error))
                but = (*but, name)
            else:
                return name, found
            finally:
                self._give_back(name)
        raise InfraError(f"no worker could count it: {printable('; '.join(lost), 300)}")

    def _checked(self, answer: object, index: int, address: str) -> Reply:
        """A worker's answer, when it is one to this order."""
        if not isinstance(answer, bytes):
            raise _LostError("it answered with something else than a result")
        try:
            found = messages.reply_of(answer, index)
        except InfraError as error:
            raise _LostError(error.cause) from error
        if found.result is None:
            raise _LostError(found.fault or "it gave no reason", aside=False)
        if found.address != address:
            raise _LostError(
                f"it counted {found.address[:16] or 'nothing'}, not {address[:16]}: another kdelta,"
                " QEMU or compiler"
            )
        return found

    def _order(self, trial: TrialRecord, how: How) -> tuple[TrialOrder, dict[str, Path]]:
        """What is asked of a worker, and the files that go with it by their SHA-256."""
        bench, settings, kernel = self._own.given(trial)
        kernel.check()
        with build.noting() as used:
            self._own.address(trial, how)
        file, more = _file_of(trial.workload)
        order = TrialOrder(
            trial=msgspec.structs.replace(trial, attempts=0, result=None),
            kernel=messages.sent(kernel),
            settings=settings,
            qemu=bench.emulator.package or bench.emulator.version,
            bench_fresh_boot=bench.fresh_boot,
            timeout_s=bench.timeout_s,
            again=bench.again,
            probes=bench.probes,
            fresh_boot=how.fresh_boot,
            other_seed=how.other_seed,
            programs={key: digest_of(path) for key, path in used.items()},
            file=file,
        )
        paths = {digest_of(path): path for path in (*used.values(), *more)}
        paths[kernel.image_sha256] = kernel.image
        made = partial(self._checkpoint, order, paths)
        shared = self._checkpoints and self._checkpoints.of(
            trial, how, bench, settings, kernel, made
        )
        if not shared:
            return order, paths
        sent, packed = shared
        return msgspec.structs.replace(order, checkpoint=sent), {**paths, sent.packed: packed}

    def _checkpoint(self, order: TrialOrder, files: dict[str, Path], key: str) -> bytes:
        """The checkpoint for an order, packed, of the worker that has its trial.

        Raises InfraError where that gives none.
        """
        name = self._first.get(order.trial.index)
        if name is None:
            raise InfraError("the trial is at no worker")
        try:
            self._bring(name, order.inputs, files)
            message = msgspec.json.encode(order)
            packed = self._call(name, self._limit(order), worker.checkpoint, message, key)
        except _LostError as error:
            raise InfraError(bounded(f"{name}: {error}")) from error
        if not isinstance(packed, bytes) or len(packed) > messages.MOST_INPUT:
            raise InfraError(bounded(f"{name}: it answered with something else than a checkpoint"))
        return packed

    def _bring(self, name: str, inputs: set[str], files: dict[str, Path]) -> None:
        """Send a worker what it lacks of a trial's inputs."""
        known = self._has.setdefault(name, set())
        wanted = sorted(inputs - known)
        if not wanted:
            return
        missing = self._call(name, _SENDING_S, worker.lacking, wanted)
        if not isinstance(missing, list) or not set(missing) <= inputs:
            raise _LostError("it lacks what nobody has")
        for digest in missing:
            self._call(name, _SENDING_S, worker.take, digest, files[digest].read_bytes())
        known |= inputs

    def _call(self, name: str, limit_s: float, function: Callable[..., Any], *given: Any) -> object:
        """What a function gives on a worker.  Raises _LostError, Cancelled, PoolError."""
        try:
            future: Future[object] = self._workers.executor(name).submit(function, *given)
        except (RuntimeError, OSError) as error:
            raise _LostError(f"it takes no work: {error}") from error
        ends = time.monotonic() + limit_s
        while True:
            try:
                return future.result(timeout=_POLL_S)
            except LateError:
                if self.cancelled.is_set():
                    future.cancel()
                    raise Cancelled from None
                if name not in self._workers.places():
                    future.cancel()
                    raise _LostError("it died") from None
                if time.monotonic() > ends:
                    future.cancel()
                    raise _LostError(f"it hangs: no result after {limit_s:.0f} s") from None
            except CancelledError:
                self._workers.places()  # who says so when all are gone
                raise _LostError("it was ended", aside=False) from None
            except (PoolError, Cancelled):
                raise
            except Exception as error:
                raise _LostError(printable(f"{type(error).__name__}: {error}", 200)) from error

    def _image(self, trial: TrialRecord) -> str:
        with contextlib.suppress(InfraError):  # measuring the trial says so
            return self._own.given(trial)[2].image_sha256
        return ""

    def _limit(self, order: TrialOrder) -> float:
        return self._limit_s or _BOUNDS * order.timeout_s

    def _place(self, image: str, but: tuple[str, ...]) -> str:
        """Take a place at a worker, not at one of `but` where another is there; waits for it."""
        ends = time.monotonic() + self._patience_s
        with self._freed:
            self._waiting[image] += 1
        try:
            while not self.cancelled.is_set():
                there = self._workers.places()
                with self._freed:
                    able = {name: n for name, n in there.items() if name not in self._aside}
                    others = {name: n for name, n in able.items() if name not in but} or able
                    free = [name for name, n in others.items() if self._taken[name] < n]
                    has = {name: self._kernels.get(name, set()) for name in others}
                    chosen = choice(image, free, has, self._waiting, anyone=bool(but))
                    if chosen:
                        self._taken[chosen] += 1
                        self._kernels.setdefault(chosen, set()).add(image)
                        return chosen
                    if able:
                        ends = time.monotonic() + self._patience_s
                    elif time.monotonic() > ends:
                        raise self._none()
                    self._freed.wait(_LOOK_S)
        finally:
            with self._freed:
                self._waiting[image] -= 1
        raise Cancelled

    def _none(self) -> PoolError:
        why = "; ".join(f"{name} {why}" for name, why in self._aside.items())
        return PoolError(
            f"there is no worker left{f': {printable(why, 300)}' if why else ''}",
            action="start workers, then go on with: kdelta resume",
        )

    def _set_aside(self, name: str, why: str) -> None:
        with self._freed:
            self._aside[name] = why
            self._freed.notify_all()

    def _give_back(self, name: str) -> None:
        with self._freed:
            self._taken[name] -= 1
            self._freed.notify_all()


def choice(
    image: str,
    free: Sequence[str],
    kernels: Mapping[str, Collection[str]],
    waiting: Mapping[str, int],
    *,
    anyone: bool = False,
) -> str | None:
    """Which of the free workers takes a trial of a kernel; None: the trial waits for another one.

    A kernel's checkpoint has to come to a worker.  So a worker goes on with the kernels that it has
    while trials of these wait; then it takes the one with most of them for each of its workers,
    unless what is left of that is done before it has come.  One that no worker has comes first.
    kernels: that each worker has; waiting: trials by kernel.  anyone: it has waited enough.
    """
    ready = [name for name in free if image in kernels.get(name, ())]
    if ready:
        return ready[0]
    if anyone:
        return free[0] if free else None
    idle = [
        name
        for name in free
        if not any(waiting.get(own, 0) for own in kernels.get(name, ()) if own != image)
    ]
    held = Counter(own for each in kernels.values() for own in each)
    share = {own: n / (1 + held[own]) for own, n in waiting.items() if n}
    needy = max(share, key=lambda own: (not held[own], share[own]), default=image)
    if image != needy or (held[image] and share[image] < _WORTH):
        return None
    return min(idle, key=lambda name: len(kernels.get(name, ())), default=None)


def _equal(first: TrialResult, second: TrialResult | None, who: str, other: str) -> TrialResult:
    """A result that two workers have; INVALID with an alarm where they differ."""
    if second is not None and messages.essence(first) == messages.essence(second):
        return first
    alarm = f"counted twice, and differently: by {printable(who, 80)} and {printable(other, 80)}"
    log.warning("%s: one of the two workers is broken", alarm)
    reasons = (*first.reasons, alarm)
    return msgspec.structs.replace(first, outcome=Outcome.INVALID, reasons=reasons)


def _file_of(name: str) -> tuple[SentFile | None, list[Path]]:
    """A user's C file as it is sent."""
    if not workload.is_file(name):
        return None, []
    source = Path(name)
    toml = source.with_suffix(".toml")
    beside = [toml] if toml.is_file() else []
    sent = SentFile(
        name=source.name, source=digest_of(source), toml=digest_of(toml) if beside else ""
    )
    return sent, [source, *beside]
