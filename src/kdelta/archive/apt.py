# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs apt tools on a private root: same proxy and credentials as the system's, no other state."""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kdelta import process
from kdelta.errors import InfraError

HELPER = "/usr/lib/apt/apt-helper"

Progress = Callable[[str, float], None]
"""Called with what is going on ("linux-image-...") and percent done (0..100)."""

PATIENCE_S = 30.0
_POLL_S = 0.2
_CONFIG = """\
// Written by kdelta.  Read after the system's own configuration, whose proxies and
// credentials stay in force; its hooks must not run on behalf of a private root.
#clear APT::Update;
#clear DPkg;
Dir::State "{root}/state";
Dir::State::lists "lists/";
Dir::State::status "{root}/state/status";
Dir::Cache "{root}/cache";
Dir::Cache::archives "archives/";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{root}/sources.d";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::trusted "/dev/null";
Dir::Etc::trustedparts "/dev/null";
Dir::Etc::netrc "{etc}/auth.conf";
Dir::Etc::netrcparts "{etc}/auth.conf.d";
Dir::Log "{root}/log";
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
APT::Sandbox::User "";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowReleaseInfoChange "true";
// A frozen mirror's Release files expire; the signature is still verified and kdelta says so.
Acquire::Check-Valid-Until "false";
Acquire::Check-Date "false";
Acquire::GzipIndexes "true";
Acquire::PDiffs "false";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AptRun:
    """A finished apt command: exit status and everything it printed, C locale."""

    returncode: int
    output: str

    def complaints(self) -> tuple[str, ...]:
        """Its E: and W: messages, without the prefix, errors first."""
        lines = [line.strip() for line in self.output.splitlines()]
        errors = [line[3:] for line in lines if line.startswith("E: ")]
        warnings = [line[3:] for line in lines if line.startswith("W: ")]
        return tuple(errors + warnings)


def configuration(root: Path, arch: str, etc: Path) -> str:
    """Text of the apt.conf of a private root for one Debian architecture.

    etc is the system's /etc/apt, for the mirror's credentials.
    """
    return _CONFIG.format(root=root, arch=arch, etc=etc)


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    label: str = "",
    progress: Progress | None = None,
    sign_of_life: re.Pattern[bytes] | None = None,
) -> AptRun:
    """Run an apt command to its end, passing on its progress.

    With sign_of_life the command fails when nothing that it prints in its first half minute
    matches: apt alone would wait that long for each suite of a mirror that does not answer.
    Never raises for a failed command (see returncode); raises InfraError when it is missing or
    does not end within timeout seconds.
    """
    reader, writer = os.pipe()
    try:
        with tempfile.TemporaryFile() as output:
            try:
                child = process.start(
                    [*argv, "-o", f"APT::Status-Fd={writer}"],
                    stdout=output,
                    stderr=output,
                    env={"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
                    pass_fds=(writer,),
                )
            finally:
                os.close(writer)
            watch = _Watch(timeout=timeout, output=output, sign_of_life=sign_of_life)
            try:
                _follow(child, reader, watch, lambda line: _report(line, label, progress))
            finally:
                process.end(child)
            text = watch.printed().decode(errors="replace")
    finally:
        os.close(reader)
    if watch.gave_up:
        text += f"\nE: no answer within {PATIENCE_S:.0f} s\n"
    return AptRun(returncode=child.returncode, output=text)


class _Watch:
    """Decides when a running command has failed to answer."""

    def __init__(
        self, *, timeout: float, output: IO[bytes], sign_of_life: re.Pattern[bytes] | None
    ) -> None:
        self.gave_up = False
        self._output = output
        self._sign = sign_of_life
        self._timeout = timeout
        self._start = time.monotonic()

    def printed(self) -> bytes:
        """All output so far; the child's own position in the file stays."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0)

    def goes_on(self) -> bool:
        """False when there is no sign of life; raises InfraError when the time is up."""
        spent = time.monotonic() - self._start
        if spent > self._timeout:
            raise InfraError(
                f"apt did not end within {self._timeout:.0f} s",
                action="check the connection to the package mirror and try again",
            )
        if self._sign is not None and spent > PATIENCE_S:
            self.gave_up = self._sign.search(self.printed()) is None
            self._sign = None
        return not self.gave_up


def _follow(
    child: subprocess.Popen[bytes], reader: int, watch: _Watch, report: Callable[[str], None]
) -> None:
    pending = b""
    while child.poll() is None and watch.goes_on():
        if not select.select([reader], [], [], _POLL_S)[0]:
            continue
        chunk = os.read(reader, 4096)
        if not chunk:
            time.sleep(_POLL_S / 10)
            continue
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            report(line.decode(errors="replace"))


def _report(line: str, label: str, progress: Progress | None) -> None:
    # "dlstatus:1:42.7:Retrieving file 1 of 3", apt's README.progress-reporting
    parts = line.split(":", 3)
    if progress is None or len(parts) < 4 or parts[0] != "dlstatus":
        return
    try:
        percent = float(parts[2])
    except ValueError:
        return
    progress(label or parts[3], min(100.0, max(0.0, percent)))
