# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of a machine as arms: one is measured per boot, and then the next one is booted.

GRUB and systemd-boot, as their menus lie below a root, boot a kernel once; else kexec.  What they
were told is read back before the machine goes down, so that it never reboots for nothing.
"""

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
from kdelta.files import decoded, write_aside
from kdelta.host.facts import text_of

PREFIX = "host"
UNIT = "kdelta-resume.service"
EXPECTED = "KDELTA_EXPECTED_RELEASE"
"""Environment variable of a resumed run: the release that was asked for before the reboot."""

_UNITS = Path("etc/systemd/system")
_WANTS = "multi-user.target.wants"
_IDLE_BOOTS = 3
RELEASE = re.compile(r"[0-9][A-Za-z0-9.+~_-]{0,127}")
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
    if kind != PREFIX or (release and not RELEASE.fullmatch(release)):
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
    releases = [name for name in found if RELEASE.fullmatch(name) and not name.endswith(_LEFTOVERS)]
    return tuple(sorted(releases, key=_by_number))


def _by_number(release: str) -> list[tuple[int, str]]:
    """A key that puts 6.9 before 6.18."""
    return [(int(word or 0), rest) for word, rest in re.findall(r"(\d*)(\D*)", release)]


def image_of(release: str, root: Path) -> Path | None:
    """Path of a kernel's image as seen from its own root."""
    if not RELEASE.fullmatch(release):
        return None
    for place in (f"boot/vmlinuz-{release}", f"lib/modules/{release}/vmlinuz"):
        if (root / place).exists():
            return Path("/", place)
    return None


# ---- going on by itself --------------------------------------------------------------------


def goes_on() -> bool:
    """True in a process that the unit started after a boot, not the user."""
    return EXPECTED in os.environ


class _IdleBoots(msgspec.Struct, frozen=True, kw_only=True):
    """How many boots in a row left the number of trials that have ended where it was."""

    ended: int
    idle: int


def check_progress(file: Path, ended: int) -> None:
    """Count this start of a run that goes on by itself; file: where the count is kept.

    ended: trials of the run that have.  Raises InfraError when too many boots in a row ended none:
    a machine that falls over in a trial would otherwise boot and fall for ever.
    """
    last = _IdleBoots(ended=-1, idle=0)
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        last = decoded(file.read_bytes(), _IdleBoots)
    idle = last.idle + 1 if goes_on() and ended <= last.ended else 0
    write_aside(file, msgspec.json.encode(_IdleBoots(ended=ended, idle=idle)))
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


LOADER_ENTRIES = ("boot/efi/loader", "efi/loader", "boot/loader")
"""Folders of systemd-boot's entries and settings, below the root; only root may look at some."""
EFI_VARIABLES = "sys/firmware/efi/efivars"
VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"  # of the Boot Loader Interface
GRUB_PLACE = "kdelta/grub"
"""What `findmnt` says of the file system that has GRUB's environment: type, device."""

_GRUB = (
    ("boot/grub/grub.cfg", "grub-reboot", "grub-editenv"),
    ("boot/grub2/grub.cfg", "grub2-reboot", "grub2-editenv"),
)
# GRUB does not write there, so it would boot the same entry again and again.
_NOT_WRITTEN = re.compile(r"(btrfs|zfs|zfs_member|f2fs|bcachefs)|/dev/(mapper/|md|dm-).*")
_OBEYS = 'set default="${saved_entry}"'
_INITRDS = ("initrd.img-{}", "initramfs-{}.img", "initrd-{}")
_COMMAND_S = 60.0
_COUNTED = re.compile(r"\+\d+(-\d+)?(?=\.conf$)")  # boots that systemd-boot still allows an entry
_ENTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~@-]{0,200}\.conf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a kernel is booted once; each a command of root's.

    choose: tells the loader; taken: prints what it then knows, `said` as a line of it; go: boots.
    """

    choose: tuple[str, ...]
    taken: tuple[str, ...]
    said: str
    go: tuple[str, ...]

    def choice(self, prefix: str) -> str:
        """To choose it, for sh(1), ends with 4 where the loader did not take it; prefix: sudo's."""
        read = f"{prefix}{shlex.join(self.taken)} | grep -Fxq -- {shlex.quote(self.said)}"
        wrong = "{ echo 'the boot loader did not take it' >&2; exit 4; }"
        return f"{prefix}{shlex.join(self.choose)} && {{ {read} || {wrong}; }}"


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


def ways(release: str, root: Path, cmdline: str) -> tuple[Way, ...]:
    """The ways to boot a kernel of the machine whose files lie below root, the surest first.

    cmdline: the option that gives kexec a command line.  Raises SpecError for a kernel that is not
    installed.
    """
    image = image_of(release, root)
    if image is None:
        listed = ", ".join(installed(root)) or "none"
        raise SpecError(f"no kernel {release} on this machine", action=f"bootable here: {listed}")
    initrd = next(
        (i for i in _initrds(image, release) if (root / i.relative_to("/")).exists()), None
    )
    load = ["kexec", "-l", str(image), cmdline, *([f"--initrd={initrd}"] if initrd else [])]
    kexec = Way(
        choose=tuple(load),
        taken=("cat", "/sys/kernel/kexec_loaded"),
        said="1",
        go=("systemctl", "kexec"),
    )
    return (*_of_loader(release, image, root), kexec)


def forget(root: Path) -> tuple[tuple[str, ...], ...]:
    """Commands of root's that take back what `ways` chose, as long as it was not booted."""
    if booted_by_systemd(root):
        return (("bootctl", "set-oneshot", ""),)
    grub = tuple(
        (editor, "-", "unset", "next_entry")
        for config, _, editor in _GRUB
        if (root / config).is_file()
    )
    unload = "[ $(cat /sys/kernel/kexec_loaded 2> /dev/null || echo 0) = 0 ] || kexec -u"
    return (*grub, ("sh", "-c", unload))


def boot_once(release: str) -> None:
    """Boot that kernel now, through the boot loader; returns while the machine goes down.

    Raises InfraError when this machine cannot be told to (no entry, not root).
    """
    if os.geteuid() != 0:
        raise InfraError(
            "root is needed to reboot this machine", action="give the command again through sudo"
        )
    image = image_of(release, Path("/"))
    for way in _of_loader(release, image, Path("/")) if image else ():
        process.run(way.choose, timeout=_COMMAND_S)
        process.run(["systemctl", "reboot"], timeout=_COMMAND_S)
        return
    raise InfraError(
        f"the boot loader has no entry for {release} that can be booted once",
        action="boot it by hand; the run goes on with: kdelta resume",
    )


def has_entry(release: str, root: Path) -> bool:
    """True when the machine's boot loader can boot a kernel once."""
    image = image_of(release, root)
    return image is not None and bool(_of_loader(release, image, root))


def would_change(running: str, root: Path) -> str:
    """What keeps the machine from booting a kernel by itself that is added; "" when nothing has to.

    running: the kernel that is to stay.  A new one that panics would else be booted for ever.
    """
    image = image_of(running, root)
    found = _of_loader(running, image, root) if image else ()
    if image is None or not found:
        return ""  # it boots by something else, which a package does not change
    program, *_, entry = found[0].choose
    if booted_by_systemd(root):
        own = _default_of_systemd(root)
        # "@saved" is what was booted last, and a pattern the newest that fits.
        kept = {one for one, _ in _entries(root)} & {own, f"{own}.conf"}
        return "" if kept else f"bootctl set-default {shlex.quote(entry)}"
    config = next(config for config, reboot, _ in _GRUB if reboot == program)
    lasting = tuple(_lasting(root / config))
    saved = _saved(root, config)
    if saved and any(_names(saved, blocks) for _, blocks in lasting):
        return ""
    obeys = _OBEYS in text_of(root / config)
    own = next((_path(blocks) for boots, blocks in lasting if boots == image.name), entry)
    put = f"{program.replace('-reboot', '-set-default')} {shlex.quote(own)}"
    return put if obeys else f"GRUB_DEFAULT=saved in /etc/default/grub, update-grub, and {put}"


def by_itself(root: Path) -> str:
    """The kernel that the machine boots by itself, "" where its loader does not name one."""
    if booted_by_systemd(root):
        own = _default_of_systemd(root)
        text = next((text for one, text in _entries(root) if one in (own, f"{own}.conf")), "")
        return next((each for each in installed(root) if _boots_it(text, each)), "")
    for config, _, _ in _GRUB:
        saved = _saved(root, config)
        for image, blocks in _lasting(root / config) if saved else ():
            if _names(saved, blocks):
                return image.partition("-")[2]
    return ""


def _saved(root: Path, config: str) -> str:
    """The entry that a menu of GRUB boots by itself as it was saved, "" where it obeys none."""
    if _OBEYS not in text_of(root / config):
        return ""
    saved = re.search(r"^saved_entry=(.+)$", text_of(root / config.replace(".cfg", "env")), re.M)
    return saved[1] if saved else ""


def _of_loader(release: str, image: Path, root: Path) -> tuple[Way, ...]:
    """By the boot loader that booted the machine, when it has an entry."""
    if booted_by_systemd(root):
        entry = next((one for one, text in _entries(root) if _boots_it(text, release)), "")
        once = f"/{EFI_VARIABLES}/LoaderEntryOneShot-{VENDOR}"
        # Through cat: tail seeks in a file, which efivarfs refuses.
        read = ("sh", "-c", f"cat {once} | tail -c +5 | tr -d '\\000'; echo")
        choose = ("bootctl", "set-oneshot", entry)
        own = Way(choose=choose, taken=read, said=entry, go=("reboot",))
        return (own,) if entry else ()
    if any(_NOT_WRITTEN.fullmatch(word) for word in text_of(root / GRUB_PLACE).split()):
        return ()
    return tuple(
        Way(
            choose=(program, entry),
            taken=(reader, "-", "list"),
            said=f"next_entry={entry}",
            go=("reboot",),
        )
        for config, program, reader in _GRUB
        if (entry := _entry(root / config, image.name))
    )


# ---- systemd-boot --------------------------------------------------------------------------


def booted_by_systemd(root: Path) -> bool:
    """True when systemd-boot has booted the machine; its menu, and no other, is then obeyed."""
    return _variable(root, "LoaderInfo").startswith("systemd-boot")


def _variable(root: Path, name: str) -> str:
    """A variable of the Boot Loader Interface: four bytes of attributes, then UTF-16."""
    try:
        content = (root / EFI_VARIABLES / f"{name}-{VENDOR}").read_bytes()[4:1028]
    except OSError:
        return ""
    return content.decode("utf-16-le", errors="replace").rstrip("\0")


def _boots_it(text: str, release: str) -> bool:
    """True for an entry of systemd-boot that boots a release."""
    rows = (line.split(None, 1) for line in text.splitlines())
    said = {row[0]: row[1].strip() for row in rows if len(row) == 2}
    path = said.get("linux", "").split("/")
    own = said.get("version") == release or release in path[:-1]
    named = path[-1] == f"vmlinuz-{release}"
    return (own or named) and not {"single", "recovery"} & {*said.get("options", "").split()}


def _entries(root: Path) -> Iterator[tuple[str, str]]:
    """The entries of systemd-boot's menu: what bootctl calls them, and their text."""
    for place in LOADER_ENTRIES:
        for path in sorted((root / place / "entries").glob("*.conf")):
            name = _COUNTED.sub("", path.name)
            if _ENTRY.fullmatch(name):
                yield name, text_of(path)


def _default_of_systemd(root: Path) -> str:
    """The entry that systemd-boot boots by itself; a pattern names none."""
    if chosen := _variable(root, "LoaderEntryDefault"):
        return chosen
    for place in LOADER_ENTRIES:
        found = re.search(r"^default\s+(\S+)\s*$", text_of(root / place / "loader.conf"), re.M)
        if found and _ENTRY.fullmatch(found[1]):
            return found[1]
    return ""


# ---- GRUB, and files beside a kernel ---------------------------------------------------------


def _initrds(image: Path, release: str) -> Iterator[Path]:
    for folder in dict.fromkeys((Path("/boot"), image.parent)):
        yield from (folder / name.format(release) for name in _INITRDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    kind: str  # first word: "menuentry", "submenu", "function", ...
    name: str  # its id, else its title, ">" doubled as GRUB wants it
    title: str


def _path(blocks: Sequence[_Block]) -> str:
    """An entry as grub-reboot and grub-set-default take it."""
    return ">".join(block.name for block in blocks)


def _names(saved: str, blocks: Sequence[_Block]) -> bool:
    """True when a default is that entry; by ids and titles, for a number moves with each kernel."""
    parts = re.split(r"(?<!>)>(?!>)", saved)
    return len(parts) == len(blocks) and all(
        part in (block.name, block.title) for part, block in zip(parts, blocks, strict=True)
    )


def _lasting(config: Path) -> Iterator[tuple[str, Sequence[_Block]]]:
    """The entries that go on booting the kernel that they boot when another one is installed, and
    its image: those that have its release in their names.
    """
    for image, blocks in _menu(config):
        release = image.partition("-")[2]
        if release and (release in blocks[-1].name or release in blocks[-1].title):
            yield image, blocks


def _entry(config: Path, image: str) -> str:
    """The menu entry that boots an image, as grub-reboot takes it; "" when there is none.

    Recovery entries are left out.  A configuration that never looks at next_entry does not obey
    grub-reboot, so it has none.
    """
    if "next_entry" not in text_of(config):
        return ""
    return next((_path(blocks) for boots, blocks in _menu(config) if boots == image), "")


def _menu(config: Path) -> Iterator[tuple[str, Sequence[_Block]]]:
    """The image that each entry of a menu boots, and the entry with the submenus around it."""
    open_blocks: list[_Block] = []
    for line in text_of(config).splitlines():
        words = _split(line)
        if words[-1:] == ["{"]:
            open_blocks.append(_block(words))
        elif words == ["}"] and open_blocks:
            open_blocks.pop()
        elif _boots(words) and [b.kind for b in open_blocks[-1:]] == ["menuentry"]:
            yield words[1].rpartition("/")[2], tuple(open_blocks)


def _boots(words: Sequence[str]) -> bool:
    """True for `linux /boot/vmlinuz-6.1 root=...`, not for a recovery entry's."""
    return (
        len(words) > 1
        and words[0] in ("linux", "linuxefi", "linux16")
        and not {"single", "recovery"} & set(words[2:])
    )


def _block(words: Sequence[str]) -> _Block:
    title = name = words[1] if len(words) > 1 else ""
    for option, value in itertools.pairwise(words):
        if option in ("--id", "$menuentry_id_option"):
            name = value
    return _Block(kind=words[0], name=name.replace(">", ">>"), title=title.replace(">", ">>"))


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return []
