# SPDX-License-Identifier: GPL-2.0-or-later
"""The workers of a Dask scheduler; the only user of `distributed`.

docs/lab.md says who is trusted.  kdelta gives Dask its own functions, texts and bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kdelta.errors import InfraError, PoolError, SpecError
from kdelta.printable import printable, quoted

_CONNECT_S = 5.0
_FRESH_S = 0.5  # how old the lists of workers and their work may be
_LOST_S = 10.0  # without the scheduler


class DaskWorkers:
    """The workers of a Dask scheduler."""

    def __init__(self, address: str) -> None:
        """Raises SpecError for what is no address, InfraError without Dask or the scheduler."""
        self._address = checked(address)
        if find_spec("distributed") is None:
            cause = "a scheduler's workers are asked by dask, which is not installed"
            raise InfraError(cause, action="pip install 'kdelta[cluster]'")
        import distributed

        if address.startswith("tls:") and not _has_tls():
            action = "name them in its settings: distributed.comm.tls in ~/.config/dask/tls.yaml"
            raise InfraError("dask has no certificates here", place=address, action=action)
        warnings.filterwarnings("ignore", message="Sending large graph")
        try:
            _check_answers(address)
            client: Any = distributed.Client
            self._client: Any = client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            cause = f"there is no scheduler: {printable(str(error), 150)}"
            action = "start one with: dask scheduler, and workers with: dask worker ADDRESS"
            raise InfraError(cause, place=address, action=action) from error
        self._mutex, self._shared = threading.Lock(), dict[str, Any]()
        self._places, self._holders = dict[str, int](), dict[str, str]()
        self._asked, self._heard = 0.0, time.monotonic()

    def places(self) -> dict[str, int]:
        """The workers that are there, with their threads.  Raises PoolError."""
        with self._mutex:
            self._look()
            return dict(self._places)

    def submit(self, function: Callable[..., bytes], *given: Any, among: Sequence[str]) -> Any:
        """Have a function run by one of these workers (by any where none is named): its Future."""
        only = {"workers": list(among), "allow_other_workers": False} if among else {}
        return self._client.submit(function, *given, pure=False, **only)

    def shared(self, digest: str, file: Path) -> Any:
        """An input as `submit` takes it: Dask brings it once to each worker that needs it."""
        with self._mutex:
            known = self._shared.get(digest)
            if known is None or known.status in ("cancelled", "error", "lost"):
                known = self._client.submit(bytes, file.read_bytes(), key=f"kdelta-{digest}")
                self._shared[digest] = known
            return known

    def failed(self, future: Any) -> bool:
        """True where the worker raised; else the bringing of its result failed, here."""
        return bool(future.status == "error")

    def holder(self, future: Any) -> str:
        """The worker that has what was submitted, or its result; "" while there is none."""
        try:
            if future.done():
                found = self._client.who_has([future])
                return next((str(name) for names in found.values() for name in names), "")
        except (OSError, TimeoutError):
            return ""
        with self._mutex:
            self._look()
            return self._holders.get(str(future.key), "")

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._asked <= _FRESH_S:
            return
        self._asked = now
        client, scheduler = self._client, self._client.scheduler
        try:
            threads = client.sync(scheduler.ncores, callback_timeout=5)
            work = client.sync(scheduler.processing, workers=None, callback_timeout=5)
        except (OSError, TimeoutError, AttributeError) as error:
            if now - self._heard > _LOST_S:
                cause = f"the scheduler is gone: {printable(str(error), 100)}"
                action = "start it and its workers, then go on with: kdelta resume"
                raise PoolError(cause, place=self._address, action=action) from error
        else:
            self._heard = now
            self._places = {str(name): int(n) for name, n in threads.items() if n}
            self._holders = {str(key): str(name) for name, keys in work.items() for key in keys}

    def close(self) -> None:
        """Leave the scheduler; what was asked of it is forgotten there."""
        with contextlib.suppress(OSError, TimeoutError):
            self._client.close(timeout=5)


def _secured() -> dict[str, Any]:
    """What dask's settings give a connection."""
    from distributed.security import Security

    security: Any = Security
    return dict(security().get_connection_args("client"))


def _has_tls() -> bool:
    with contextlib.suppress(OSError, ValueError):  # they name what is no certificate
        return _secured().get("ssl_context") is not None
    return False


def _check_answers(address: str) -> None:
    """Raise OSError unless a scheduler is there: a Client waits for ever for what says nothing, and
    takes what else is said for lengths of memory.
    """
    from distributed.comm import core

    connect: Any = core.connect

    async def greet() -> None:
        comm: Any = await asyncio.wait_for(connect(address, **_secured()), _CONNECT_S)
        comm.abort()

    try:
        asyncio.run(greet())
    except Exception as error:  # whatever its bytes are taken for
        raise OSError("nothing at that address greets as one does") from error


def checked(address: str) -> str:
    """An address of a scheduler.  Raises SpecError for another one."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(address)
        if parts.scheme in ("tcp", "tls") and parts.hostname and parts.port:
            return address
    action = "give tcp://127.0.0.1:8786, or tls://HOST:PORT of another machine"
    raise SpecError(f"is no address of a scheduler: {quoted(address)}", action=action)


def is_open(address: str) -> bool:
    """True where others may listen, or speak, to the scheduler: neither TLS nor this machine."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    return parts.scheme != "tls" and not (host.startswith("127.") or host in ("localhost", "::1"))
