# SPDX-License-Identifier: GPL-2.0-or-later
"""Arms that are kernels of this host: one is measured per boot, then the next one is booted."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdelta import process
from kdelta.errors import InfraError, SpecError, as_root
from kdelta.files import write_aside

PREFIX = "host"
UNIT = "kdelta-resume.service"
EXPECTED = "KDELTA_EXPECTED_RELEASE"
"""Environment variable of a resumed run: the release that was asked for before the reboot."""

_UNITS = Path("etc/systemd/system")
_WANTS = "multi-user.target.wants"
_GRUB = (("boot/grub/grub.cfg", "grub-reboot"), ("boot/grub2/grub.cfg", "grub2-reboot"))
_INITRDS = ("initrd.img-{}", "initramfs-{}.img", "initrd-{}")
_MAX_GRUB = 4 << 20
_COMMAND_S = 60.0
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


# ---- how to get there ----------------------------------------------------------------------


def next_boot_commands(release: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Shell lines that each boot that kernel once, the surest first.

    The boot loader's way (its menu entry, then a reboot through the firmware) comes before kexec,
    which leaves the hardware as the running kernel set it up.  Raises SpecError for a kernel that
    is not installed.
    """
    return tuple(
        f"{as_root(shlex.join(way.choose))} && {as_root(shlex.join(way.go))}"
        for way in ways(release, root, "--reuse-cmdline")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a kernel is booted once: what chooses it, then what boots; each a command of root's."""

    choose: tuple[str, ...]
    go: tuple[str, ...]


def ways(release: str, root: Path, cmdline: str) -> tuple[Way, ...]:
    """The ways to boot a kernel of the machine whose files lie below root, the surest first.

    cmdline: the option that gives kexec a command line.  Raises SpecError for a kernel that is not
    installed.
    """
    image = _image(release, root)
    if image is None:
        listed = ", ".join(installed(root)) or "none"
        raise SpecError(f"no kernel {release} on this machine", action=f"bootable here: {listed}")
    found = []
    for config, program in _GRUB:
        entry = _entry(root / config, image.name)
        if entry:
            found.append(Way(choose=(program, entry), go=("reboot",)))
    initrd = next(
        (i for i in _initrds(image, release) if (root / i.relative_to("/")).exists()), None
    )
    load = ["kexec", "-l", str(image), cmdline, *([f"--initrd={initrd}"] if initrd else [])]
    return (*found, Way(choose=tuple(load), go=("systemctl", "kexec")))


def boot_once(release: str) -> None:
    """Boot that kernel now, through the boot loader; returns while the machine goes down.

    Raises InfraError when this machine cannot be told to (no GRUB entry, not root).
    """
    _need_root("to reboot this machine")
    image = _image(release, Path("/"))
    for config, program in _GRUB:
        entry = _entry(Path("/", config), image.name) if image else ""
        if entry:
            process.run([program, entry], timeout=_COMMAND_S)
            process.run(["systemctl", "reboot"], timeout=_COMMAND_S)
            return
    raise InfraError(
        f"GRUB has no entry for {release} that can be booted once",
        action="boot it by hand; the run goes on with: kdelta resume",
    )


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
    with contextlib.suppress(OSError, msgspec.DecodeError):
        last = msgspec.json.decode(file.read_bytes(), type=_Boots)
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


def _image(release: str, root: Path) -> Path | None:
    """Path of a kernel's image as seen from its own root."""
    if not _RELEASE.fullmatch(release):
        return None
    for place in (f"boot/vmlinuz-{release}", f"lib/modules/{release}/vmlinuz"):
        if (root / place).exists():
            return Path("/", place)
    return None


def _initrds(image: Path, release: str) -> Iterator[Path]:
    for folder in dict.fromkeys((Path("/boot"), image.parent)):
        yield from (folder / name.format(release) for name in _INITRDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    kind: str  # first word: "menuentry", "submenu", "function", ...
    name: str  # its id, else its title, ">" doubled as GRUB wants it


def _entry(config: Path, image: str) -> str:
    """The menu entry that boots an image, as grub-reboot takes it; "" when there is none.

    Recovery entries are left out.  A configuration that never looks at next_entry does not obey
    grub-reboot, so it has none.
    """
    try:
        with config.open(errors="replace") as stream:
            text = stream.read(_MAX_GRUB)
    except OSError:
        return ""
    if "next_entry" not in text:
        return ""
    open_blocks: list[_Block] = []
    for line in text.splitlines():
        words = _split(line)
        if words[-1:] == ["{"]:
            open_blocks.append(_block(words))
        elif words == ["}"] and open_blocks:
            open_blocks.pop()
        elif _boots(words, image) and [b.kind for b in open_blocks[-1:]] == ["menuentry"]:
            return ">".join(block.name for block in open_blocks)
    return ""


def _boots(words: Sequence[str], image: str) -> bool:
    """True for `linux /boot/vmlinuz-6.1 root=...`, not for a recovery entry's."""
    return (
        len(words) > 1
        and words[0] in ("linux", "linuxefi", "linux16")
        and words[1].rpartition("/")[2] == image
        and not {"single", "recovery"} & set(words[2:])
    )


def _block(words: Sequence[str]) -> _Block:
    name = words[1] if len(words) > 1 else ""
    for option, value in itertools.pairwise(words):
        if option in ("--id", "$menuentry_id_option"):
            name = value
    return _Block(kind=words[0], name=name.replace(">", ">>"))


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return []


# ---- going on by itself --------------------------------------------------------------------


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
