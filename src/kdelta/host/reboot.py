# SPDX-License-Identifier: GPL-2.0-or-later
"""Arms that are kernels of this host: one is measured per boot, then the next one is booted."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kdelta.errors import InfraError, SpecError
from kdelta.files import decoded, write_aside

PREFIX = "host"
UNIT = "kdelta-resume.service"
EXPECTED = "KDELTA_EXPECTED_RELEASE"
"""Environment variable of a resumed run: the release that was asked for before the reboot."""

_UNITS = Path("etc/systemd/system")
_WANTS = "multi-user.target.wants"
_IDLE_BOOTS = 3
_RELEASE = re.compile(r"[0-9][A-Za-z0-9.+~_-]{0,127}")
_LEFTOVERS = (".old", ".bak", ".dpkg-new", ".dpkg-tmp", ".dpkg-bak")
_KEPT = ("HOME", "PATH", "KDELTA_QEMU", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


# ---- which kernel is which arm -------------------------------------------------------------


def match(reference: str, running: str) -> bool:
    """True when a reference means the running release.

    "host": whichever runs; "host:RELEASE": that uname -r, or the beginning of it up to a
    boundary, so that host:6.18.4 is 6.18.4-amd64 and not 6.18.44-amd64.
    """
    wanted = _wanted(reference)
    return not wanted or _begins(running, wanted)


def resolve(reference: str, known: Sequence[str]) -> str:
    """The one release that host:RELEASE means among the known ones.

    Raises SpecError when there is none, or several and none of exactly that name.
    """
    wanted = _wanted(reference)
    if wanted in known:
        return wanted
    found = [release for release in known if wanted and _begins(release, wanted)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(found or known) or "none"
    if found:
        raise SpecError(f"{reference} is more than one kernel here", action=f"choose of: {listed}")
    raise SpecError(f"{reference} is not installed here", action=f"bootable here: {listed}")


def _wanted(reference: str) -> str:
    kind, _, release = reference.partition(":")
    if kind != PREFIX or (release and not _RELEASE.fullmatch(release)):
        raise SpecError(
            f"{reference!a} is no kernel of this host", action="write host, or host:RELEASE"
        )
    return release


def _begins(release: str, wanted: str) -> bool:
    rest = release.removeprefix(wanted)
    return release.startswith(wanted) and (not rest or not rest[0].isalnum())


def installed(root: Path = Path("/")) -> tuple[str, ...]:
    """Releases that this machine has an image of, in /boot or beside their modules, oldest first.

    A directory of modules alone cannot be booted.
    """
    found = {path.name.removeprefix("vmlinuz-") for path in root.glob("boot/vmlinuz-*")}
    found |= {path.parent.name for path in root.glob("lib/modules/*/vmlinuz")}
    releases = [
        name for name in found if _RELEASE.fullmatch(name) and not name.endswith(_LEFTOVERS)
    ]
    return tuple(sorted(releases, key=_by_number))


def _by_number(release: str) -> list[tuple[int, str]]:
    """A key that puts 6.9 before 6.18."""
    return [(int(word or 0), rest) for word, rest in re.findall(r"(\d*)(\D*)", release)]


def image_of(release: str, root: Path) -> Path | None:
    """Path of a kernel's image as seen from its own root."""
    if not _RELEASE.fullmatch(release):
        return None
    for place in (f"boot/vmlinuz-{release}", f"lib/modules/{release}/vmlinuz"):
        if (root / place).exists():
            return Path("/", place)
    return None


# ---- going on by itself --------------------------------------------------------------------


def goes_on() -> bool:
    """True in a process that the unit started after a boot, not the user."""
    return EXPECTED in os.environ


class _Boots(msgspec.Struct, frozen=True, kw_only=True):
    """How many boots in a row left the number of trials that have ended where it was."""

    ended: int
    idle: int


def check_progress(file: Path, ended: int) -> None:
    """Count this start of a run that goes on by itself; file: where the count is kept.

    ended: trials of the run that have.  Raises InfraError when too many boots in a row ended none:
    a machine that falls over in a trial would otherwise boot and fall for ever.
    """
    last = _Boots(ended=-1, idle=0)
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        last = decoded(file.read_bytes(), _Boots)
    idle = last.idle + 1 if goes_on() and ended <= last.ended else 0
    write_aside(file, msgspec.json.encode(_Boots(ended=ended, idle=idle)))
    if idle >= _IDLE_BOOTS:
        raise InfraError(
            f"{idle} boots in a row of this machine have ended no trial",
            place=str(file.parent),
            action="find out why it falls over, then: kdelta resume --install-resume",
        )


def check_arrived(running: str) -> None:
    """Raise InfraError when the machine came up with another kernel than it was sent to.

    Without this a boot loader that falls back would reboot forever.
    """
    wanted = os.environ.get(EXPECTED, "")
    if wanted and running != wanted:
        raise InfraError(
            f"the machine was to boot {wanted} and came up with {running}",
            action="boot it by hand, then: kdelta resume",
        )


def install_resume(command: Sequence[str], root: Path = Path("/"), *, expected: str = "") -> Path:
    """Make the machine run a command after every boot, until remove_resume: the unit's path.

    command: absolute program and arguments.  expected: the release that the next boot is meant to
    reach (check_arrived).  Raises InfraError without root, systemd, or such a program.
    """
    _need_root("to install a unit that goes on after a reboot")
    if not (root / "run/systemd/system").is_dir():
        raise InfraError(
            "this machine is not run by systemd", action="after each reboot give: kdelta resume"
        )
    if not command or not Path(command[0]).is_absolute():
        raise InfraError(f"not an absolute path of a program: {command[0] if command else ''!a}")
    folder = root / _UNITS
    unit, link = folder / UNIT, folder / _WANTS / UNIT
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        write_aside(unit, _unit(command, expected).encode())
        link.unlink(missing_ok=True)
        link.symlink_to(f"../{UNIT}")
    except OSError as error:
        raise _unwritable(error, unit) from error
    return unit


def remove_resume(root: Path = Path("/")) -> bool:
    """Take the unit away again; False when there was none.  Raises InfraError."""
    folder = root / _UNITS
    there = [path for path in (folder / _WANTS / UNIT, folder / UNIT) if os.path.lexists(path)]
    try:
        for path in there:
            path.unlink()
    except OSError as error:
        raise _unwritable(error, folder / UNIT) from error
    return bool(there)


def _unit(command: Sequence[str], expected: str) -> str:
    """Text of the unit.  It starts behind the whole boot; kdelta then waits until it is quiet."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if expected:
        kept[EXPECTED] = expected
    lines = [
        "[Unit]",
        "Description=kdelta: go on with a run after a reboot",
        "After=multi-user.target",
        "",
        "[Service]",
        # simple: an activating unit would keep the boot from ever being finished.
        "Type=simple",
        "ExecStart=" + " ".join(_quoted(word) for word in command).replace("$", "$$"),
        f"WorkingDirectory={str(Path.cwd()).replace('%', '%%')}",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in kept.items()),
        "StandardOutput=journal",
        "StandardError=journal",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """A word as unit files quote it: systemd.syntax(7), and % for specifiers."""
    if not word.isprintable():
        raise InfraError(f"a unit file cannot hold {word!a}")
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _need_root(purpose: str) -> None:
    if os.geteuid() != 0:
        raise InfraError(f"root is needed {purpose}", action="give the command again through sudo")


def _unwritable(error: OSError, unit: Path) -> InfraError:
    return InfraError(
        f"the unit cannot be written: {error.strerror or error}",
        place=str(error.filename or unit),
        action="after each reboot give: kdelta resume",
    )
