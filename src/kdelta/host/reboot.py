# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of a machine that ssh reaches: which is which, and how one of them is booted once.

GRUB and systemd-boot, as their menus lie below a root, boot a kernel once; else kexec.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta.errors import SpecError
from kdelta.host.facts import text_of

RELEASE = re.compile(r"[0-9][A-Za-z0-9.+~_-]{0,127}")
_LEFTOVERS = (".old", ".bak", ".dpkg-new", ".dpkg-tmp", ".dpkg-bak")


# ---- which kernel is which arm -------------------------------------------------------------


def match(reference: str, running: str) -> bool:
    """True for "host", and for host:RELEASE or its beginning: 6.18.4 is not 6.18.44."""
    wanted = _wanted(reference)
    return not wanted or _begins(running, wanted)


def resolve(reference: str, known: Sequence[str]) -> str:
    """The known release that host:RELEASE means.  Raises SpecError for none, and for several."""
    wanted = _wanted(reference)
    if wanted in known:
        return wanted
    found = [release for release in known if wanted and _begins(release, wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        action = f"choose of: {', '.join(found)}"
        raise SpecError(f"{reference} is more than one kernel here", action=action)
    action = f"bootable here: {', '.join(known) or 'none'}"
    raise SpecError(f"{reference} is not installed here", action=action)


def _wanted(reference: str) -> str:
    kind, _, release = reference.partition(":")
    if kind != "host" or (release and not RELEASE.fullmatch(release)):
        cause = f"{reference!a} is no kernel of this host"
        raise SpecError(cause, action="write host, or host:RELEASE")
    return release


def _begins(release: str, wanted: str) -> bool:
    rest = release.removeprefix(wanted)
    return release.startswith(wanted) and (not rest or not rest[0].isalnum())


def installed(root: Path) -> tuple[str, ...]:
    """Releases whose image is in /boot or beside their modules, oldest first."""
    found = {path.name.removeprefix("vmlinuz-") for path in root.glob("boot/vmlinuz-*")}
    found |= {path.parent.name for path in root.glob("lib/modules/*/vmlinuz")}
    releases = [name for name in found if RELEASE.fullmatch(name) and not name.endswith(_LEFTOVERS)]
    # 6.9 comes before 6.18.
    parts = {name: re.findall(r"(\d*)(\D*)", name) for name in releases}
    return tuple(sorted(parts, key=lambda name: [(int(n or 0), rest) for n, rest in parts[name]]))


def image_of(release: str, root: Path) -> Path | None:
    """Path of a kernel's image as seen from its own root."""
    places = (f"boot/vmlinuz-{release}", f"lib/modules/{release}/vmlinuz")
    found = [Path("/", place) for place in places if (root / place).exists()]
    return found[0] if found and RELEASE.fullmatch(release) else None


# ---- its next boot ------------------------------------------------------------------------


LOADER_ENTRIES = ("boot/efi/loader", "efi/loader", "boot/loader")
"""Folders of systemd-boot's entries and settings, below the root; only root may look at some."""
EFI_VARIABLES = "sys/firmware/efi/efivars"
VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"  # of the Boot Loader Interface
GRUB_PLACE = "kdelta/grub"
"""What `findmnt` says of the file system that has GRUB's environment: type, device."""

_MENU, _SAVED = "boot/grub/grub.cfg", "boot/grub/grubenv"
# GRUB does not write there, so it would boot the same entry again and again.
_NOT_WRITTEN = re.compile(r"(btrfs|zfs|zfs_member|f2fs|bcachefs)|/dev/(mapper/|md|dm-).*")
_OBEYS = 'set default="${saved_entry}"'
_INITRDS = ("initrd.img-{}", "initramfs-{}.img", "initrd-{}")
_COUNTED = re.compile(r"\+\d+(-\d+)?(?=\.conf$)")  # boots that systemd-boot still allows an entry
_ENTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~@-]{0,200}\.conf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a kernel is booted once, by commands of root's: `choose` tells the loader, `taken` prints
    what it knows, with `said` as a line, and `go` boots.
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


def ways(release: str, root: Path, cmdline: str) -> tuple[Way, ...]:
    """The ways to boot a kernel below root once, the surest first.  cmdline: kexec's option with a
    command line.  Raises SpecError for a kernel that is not installed.
    """
    image = image_of(release, root)
    if image is None:
        listed = ", ".join(installed(root)) or "none"
        raise SpecError(f"no kernel {release} on this machine", action=f"bootable here: {listed}")
    folders = dict.fromkeys((Path("/boot"), image.parent))
    names = [folder / name.format(release) for folder in folders for name in _INITRDS]
    there = [f"--initrd={name}" for name in names if (root / name.relative_to("/")).exists()]
    load, loaded = ("kexec", "-l", str(image), cmdline, *there[:1]), "/sys/kernel/kexec_loaded"
    kexec = Way(choose=load, taken=("cat", loaded), said="1", go=("systemctl", "kexec"))
    return (*_of_loader(release, image, root), kexec)


def forget(root: Path) -> tuple[tuple[str, ...], ...]:
    """Commands of root's that take back what `ways` chose, as long as it was not booted."""
    if booted_by_systemd(root):
        return (("bootctl", "set-oneshot", ""),)
    unload = "[ $(cat /sys/kernel/kexec_loaded 2> /dev/null || echo 0) = 0 ] || kexec -u"
    unset = [("grub-editenv", "-", "unset", "next_entry")] * (root / _MENU).is_file()
    return (*unset, ("sh", "-c", unload))


def has_entry(release: str, root: Path) -> bool:
    """True when the machine's boot loader can boot a kernel once."""
    image = image_of(release, root)
    return image is not None and bool(_of_loader(release, image, root))


def would_change(running: str, root: Path) -> str:
    """The command that keeps a kernel from being booted by itself once it is added; "" for none."""
    image = image_of(running, root)
    found = _of_loader(running, image, root) if image else ()
    if image is None or not found:
        return ""  # it boots by something else, which a package does not change
    entry = found[0].choose[-1]
    if booted_by_systemd(root):
        own = _default_of_systemd(root)
        # "@saved" is what was booted last, and a pattern the newest that fits.
        kept = {one for one, _ in _entries(root)} & {own, f"{own}.conf"}
        return "" if kept else f"bootctl set-default {shlex.quote(entry)}"
    lasting = tuple(_lasting(root))
    saved = _saved(root)
    if saved and any(_names(saved, blocks) for _, blocks in lasting):
        return ""
    own = next((_path(blocks) for boots, blocks in lasting if boots == image.name), entry)
    put = f"grub-set-default {shlex.quote(own)}"
    if _OBEYS in text_of(root / _MENU):
        return put
    return f"GRUB_DEFAULT=saved in /etc/default/grub, update-grub, and {put}"


def by_itself(root: Path) -> str:
    """The kernel that the machine boots by itself, "" where its loader does not name one."""
    if booted_by_systemd(root):
        own = _default_of_systemd(root)
        text = next((text for one, text in _entries(root) if one in (own, f"{own}.conf")), "")
        return next((each for each in installed(root) if _boots_it(text, each)), "")
    saved = _saved(root)
    named = (image for image, blocks in _lasting(root) if saved and _names(saved, blocks))
    return next(named, "").partition("-")[2]


def _saved(root: Path) -> str:
    """The entry that the menu of GRUB boots by itself as it was saved, "" where it obeys none."""
    if _OBEYS not in text_of(root / _MENU):
        return ""
    saved = re.search(r"^saved_entry=(.+)$", text_of(root / _SAVED), re.M)
    return saved[1] if saved else ""


def _of_loader(release: str, image: Path, root: Path) -> tuple[Way, ...]:
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
    if not (entry := _entry(root, image.name)):
        return ()
    environment, said = ("grub-editenv", "-", "list"), f"next_entry={entry}"
    return (Way(choose=("grub-reboot", entry), taken=environment, said=said, go=("reboot",)),)


# ---- systemd-boot --------------------------------------------------------------------------


def booted_by_systemd(root: Path) -> bool:
    """True when systemd-boot has booted the machine; its menu, and no other, is then obeyed."""
    return _variable(root, "LoaderInfo").startswith("systemd-boot")


def _variable(root: Path, name: str) -> str:
    try:
        content = (root / EFI_VARIABLES / f"{name}-{VENDOR}").read_bytes()[4:1028]
    except OSError:
        return ""
    return content.decode("utf-16-le", errors="replace").rstrip("\0")


def _boots_it(text: str, release: str) -> bool:
    rows = (line.split(None, 1) for line in text.splitlines())
    said = {row[0]: row[1].strip() for row in rows if len(row) == 2}
    path = said.get("linux", "").split("/")
    own = said.get("version") == release or release in path[:-1]
    named = path[-1] == f"vmlinuz-{release}"
    return (own or named) and not {"single", "recovery"} & {*said.get("options", "").split()}


def _entries(root: Path) -> Iterator[tuple[str, str]]:
    for place in LOADER_ENTRIES:
        for path in sorted((root / place / "entries").glob("*.conf")):
            name = _COUNTED.sub("", path.name)
            if _ENTRY.fullmatch(name):
                yield name, text_of(path)


def _default_of_systemd(root: Path) -> str:
    """The entry that systemd-boot boots by itself; a pattern names none."""
    if chosen := _variable(root, "LoaderEntryDefault"):
        return chosen
    files = (text_of(root / place / "loader.conf") for place in LOADER_ENTRIES)
    named = (re.search(r"^default\s+(\S+)\s*$", text, re.M) for text in files)
    return next((one[1] for one in named if one and _ENTRY.fullmatch(one[1])), "")


# ---- GRUB, and files beside a kernel ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    kind: str  # first word: "menuentry", "submenu", "function", ...
    name: str  # its id, else its title, ">" doubled as GRUB wants it
    title: str


def _path(blocks: Sequence[_Block]) -> str:
    return ">".join(block.name for block in blocks)


def _names(saved: str, blocks: Sequence[_Block]) -> bool:
    """True when a default is that entry; by ids and titles, for a number moves with each kernel."""
    parts = re.split(r"(?<!>)>(?!>)", saved)
    return len(parts) == len(blocks) and all(
        part in (block.name, block.title) for part, block in zip(parts, blocks, strict=True)
    )


def _lasting(root: Path) -> Iterator[tuple[str, Sequence[_Block]]]:
    """Entries, and their images, that name a release: another kernel does not change them."""
    for image, blocks in _menu(root):
        release = image.partition("-")[2]
        if release and (release in blocks[-1].name or release in blocks[-1].title):
            yield image, blocks


def _entry(root: Path, image: str) -> str:
    """The entry for grub-reboot that boots an image; "" for none, or where that is not obeyed."""
    if "next_entry" not in text_of(root / _MENU):
        return ""
    return next((_path(blocks) for boots, blocks in _menu(root) if boots == image), "")


def _menu(root: Path) -> Iterator[tuple[str, Sequence[_Block]]]:
    open_blocks: list[_Block] = []
    for line in text_of(root / _MENU).splitlines():
        words = _split(line)
        if words[-1:] == ["{"]:
            open_blocks.append(_block(words))
        elif words == ["}"] and open_blocks:
            open_blocks.pop()
        elif _boots(words) and [b.kind for b in open_blocks[-1:]] == ["menuentry"]:
            yield words[1].rpartition("/")[2], tuple(open_blocks)


def _boots(words: Sequence[str]) -> bool:
    return len(words) > 1 and words[0] == "linux" and not {"single", "recovery"} & set(words[2:])


def _block(words: Sequence[str]) -> _Block:
    title = words[1] if len(words) > 1 else ""
    ids = ("--id", "$menuentry_id_option")
    name = [title, *(value for option, value in itertools.pairwise(words) if option in ids)][-1]
    return _Block(kind=words[0], name=name.replace(">", ">>"), title=title.replace(">", ">>"))


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return []
