# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds of strangers' sources: their makefiles run what they like, so they run in a cage.

bubblewrap gives them a file system of this machine's programs, without a home, without network, in
which only the build's own folders can be written, and processes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kdelta import cache, process
from kdelta.errors import SpecError, as_root

STRANGERS = "strangers"  # what they wrote is no part of what a user's own builds take
_PROGRAM = "bwrap"
_PROBE_S = 30.0
_LINKED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# What programs of this system look up; nothing of it is secret.
_READ = ("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/openssl.cnf")


def check() -> None:
    """Raise SpecError when builds cannot be confined here, with what to do about it."""
    if process.which(_PROGRAM) is None:
        raise _open("bubblewrap is not installed")
    done = process.run(command(["true"], writable=()), timeout=_PROBE_S, check=False)
    if done.returncode:
        raise _open(f"bubblewrap does not work here ({done.last_words})")


def command(
    argv: Sequence[str], *, writable: Sequence[Path], folder: Path | None = None
) -> list[str]:
    """A command as it runs confined.

    writable: folders that it may write to; folder: where it runs.
    """
    cage = [_PROGRAM, "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
    cage += ["--tmpfs", "/tmp", "--setenv", "HOME", "/tmp", "--unsetenv", "TMPDIR"]  # noqa: S108
    for name in _LINKED:
        place = Path("/", name)
        if place.is_symlink():
            cage += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            cage += ["--ro-bind", str(place), str(place)]
    tools = cache.root() / "toolchains"
    for place in (*map(Path, _READ), tools):
        cage += ["--ro-bind-try", str(place), str(place)]
    for place in writable:
        cage += ["--bind", str(place), str(place)]
    if folder is not None:
        cage += ["--chdir", str(folder)]
    return [*cage, "--", *argv]


def _open(why: str) -> SpecError:
    return SpecError(
        f"a stranger's source is built confined, and {why}",
        action=f"install it: {as_root('apt-get install bubblewrap')}; or, if you have read the"
        " patches and trust them as your own, add --trust",
    )
