# SPDX-License-Identifier: GPL-2.0-or-later
"""Which programs of others are installed: compilers that really compile, tools, Debian sources."""

from __future__ import annotations

import platform
import re
import sys
import tempfile
from pathlib import Path

from kdelta import arch, process
from kdelta.arch import Arch
from kdelta.doctor.capabilities import Tried, Usability, install
from kdelta.errors import InfraError

_TIMEOUT_S = 20.0
_ONLINE_S = 30.0
_PROGRAM = "int main(void) { return 0; }\n"
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_APT_HELPER = "/usr/lib/apt/apt-helper"
_DEBIAN = re.compile(
    r"(?:(?:old)?stable|testing|unstable|sid|experimental|bullseye|bookworm|trixie|forky|duke)"
    r"(?:-(?:updates|security|backports))?/?"
)


def python() -> Tried:
    """The Python that runs this: an older one could not have come this far."""
    return Tried(Usability.OK, f"{platform.python_version()} at {sys.executable}")


def compiler(target: Arch) -> Tried:
    """Whether static programs for a guest can be made, by making one."""
    name = arch.compiler(target)
    problem, state = _try_compiler(name)
    if problem:
        return Tried(state, problem, install(arch.compiler_package(target)))
    return Tried(state, f"{name} {_version(name, '-dumpfullversion')} makes static ELF")


def _try_compiler(name: str) -> tuple[str, Usability]:
    if process.which(name) is None:
        return f"no {name}", Usability.MISSING
    with tempfile.TemporaryDirectory(prefix="kdelta-doctor-") as scratch:
        source = Path(scratch, "one.c")
        source.write_text(_PROGRAM)
        argv = [name, "-static", "-o", str(Path(scratch, "one")), str(source)]
        try:
            done = process.run(argv, timeout=_TIMEOUT_S, check=False)
        except InfraError as error:
            return error.cause, Usability.UNUSABLE
    if done.returncode:
        return f"{name} makes no static program: {done.last_words}", Usability.UNUSABLE
    return "", Usability.OK


def tool(name: str, package: str, flag: str = "--version") -> Tried:
    """A program on PATH and its version, which it says when given that flag."""
    if process.which(name) is None:
        return Tried(Usability.MISSING, f"no {name}", install(package))
    version = _version(name, flag)
    return Tried(Usability.OK if version else Usability.UNUSABLE, version or "does not start")


def _version(name: str, flag: str) -> str:
    """First number that looks like a version; empty when the program does not say one."""
    try:
        done = process.run([name, flag], timeout=_TIMEOUT_S)
    except InfraError:
        return ""
    match = _VERSION.search(done.stdout + done.stderr)
    return match[0] if match else ""


def debian_sources(*, online: bool) -> Tried:
    """Whether apt knows a Debian mirror; with online, whether the mirror answers."""
    if process.which("apt-get") is None:
        return Tried(Usability.ABSENT, "no apt here: only file:PATH kernels")
    sources = _configured_suites()
    if not sources:
        remedy = "name a Debian mirror in /etc/apt/sources.list (see: man sources.list)"
        return Tried(Usability.MISSING, "apt is configured for no Debian suite", remedy)
    suites = f"configured: {', '.join(suite for suite, _ in sources)}"
    if not online:
        return Tried(Usability.OK, f"{suites} (not contacted)")
    if problem := _contact(*sources[0]):
        remedy = "check the network and apt's proxy with: apt-get update"
        return Tried(Usability.UNUSABLE, f"{suites}; {problem}", remedy)
    return Tried(Usability.OK, f"{suites}; the mirror answers")


def _configured_suites() -> tuple[tuple[str, str], ...]:
    """(suite, base URI) of each Debian source, as apt itself reads its configuration."""
    wanted = ["Created-By: Packages", "Component: main"]
    argv = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", *wanted]
    lines = process.run(argv, timeout=_TIMEOUT_S).stdout.splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if " " in line)
    return tuple(dict.fromkeys((suite, uri) for suite, uri in pairs if _DEBIAN.fullmatch(suite)))


def _contact(suite: str, uri: str) -> str:
    """Fetch one Release file the way apt would (its proxy, its credentials); why it failed."""
    with tempfile.TemporaryDirectory(prefix="kdelta-doctor-") as scratch:
        options = ["-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=0"]
        url = f"{uri.rstrip('/')}/dists/{suite.rstrip('/')}/InRelease"
        argv = [_APT_HELPER, *options, "download-file", url, str(Path(scratch, "InRelease"))]
        try:
            done = process.run(argv, timeout=_ONLINE_S, check=False)
        except InfraError as error:
            return error.cause
    return f"no answer: {done.last_words}" if done.returncode else ""
