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
from kdelta.doctor.capabilities import Capability, Usability, install
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


def python() -> Capability:
    """The Python that runs this."""
    return Capability(
        name="Python",
        state=Usability.OK,  # an older one could not have come this far
        detail=f"{platform.python_version()} at {sys.executable}",
        purpose="kdelta itself",
    )


def compiler(target: Arch) -> Capability:
    """Whether static programs for a guest can be made, by making one."""
    name = arch.compiler(target)
    problem, state = _try_compiler(name)
    native = platform.machine() == target.uname
    return Capability(
        name=f"C compiler ({target.debian})",
        state=state,
        detail=problem or f"{name} {_version(name, '-dumpfullversion')} makes static ELF",
        purpose=f"guests, {target.debian}" + ("; QEMU plugin" if native else ""),
        remedy=install(arch.compiler_package(target)) if problem else "",
    )


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


def tool(name: str, purpose: str, package: str, flag: str = "--version") -> Capability:
    """A program on PATH and its version."""
    if process.which(name) is None:
        return Capability(
            name=name,
            state=Usability.MISSING,
            detail=f"no {name}",
            purpose=purpose,
            remedy=install(package),
        )
    detail = _version(name, flag)
    state = Usability.OK if detail else Usability.UNUSABLE
    return Capability(name=name, state=state, detail=detail or "does not start", purpose=purpose)


def _version(name: str, flag: str) -> str:
    """First number that looks like a version; empty when the program does not say one."""
    try:
        done = process.run([name, flag], timeout=_TIMEOUT_S)
    except InfraError:
        return ""
    match = _VERSION.search(done.stdout + done.stderr)
    return match[0] if match else ""


def debian_sources(*, online: bool) -> Capability:
    """Whether apt knows a Debian mirror; with online, whether the mirror answers."""
    name, purpose = "Debian sources", "kernels by release"
    if process.which("apt-get") is None:
        detail = "no apt here: only file:PATH kernels"
        return Capability(name=name, state=Usability.ABSENT, detail=detail, purpose=purpose)
    sources = _configured_suites()
    if not sources:
        return Capability(
            name=name,
            state=Usability.MISSING,
            detail="apt is configured for no Debian suite",
            purpose=purpose,
            remedy="name a Debian mirror in /etc/apt/sources.list (see: man sources.list)",
        )
    suites = f"configured: {', '.join(suite for suite, _ in sources)}"
    if not online:
        return Capability(
            name=name, state=Usability.OK, detail=f"{suites} (not contacted)", purpose=purpose
        )
    problem = _contact(*sources[0])
    return Capability(
        name=name,
        state=Usability.UNUSABLE if problem else Usability.OK,
        detail=f"{suites}; {problem or 'the mirror answers'}",
        purpose=purpose,
        remedy="check the network and apt's proxy with: apt-get update" if problem else "",
    )


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
