# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels that kdelta puts on another machine, by that machine's own tools, and takes off again.

What was put there is noted before it is begun, so that a killed kdelta leaves nothing unknown.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from kdelta.errors import InfraError, SpecError
from kdelta.files import decoded
from kdelta.host import reboot
from kdelta.host.ssh_host import NO_SUDO, Done, SshHost, Stage
from kdelta.printable import printable

NOTES = "/var/tmp/kdelta-kernels"  # noqa: S108  its owner is looked at before it is used
"""Folder on the machine: one file for each kernel that kdelta put there."""

_INSTALL_S = 1800  # an initial RAM disk is made on the way
_ENDED, _BUSY = "kdelta: ended with ", 75
# Nobody reads it any more when the line has broken: what it prints goes nowhere then, and dpkg must
# not die of that.
_AS_ROOT = """
{{
    $S flock -E 75 -w {wait} {notes} setsid -w sh -c {script} < /dev/null 2>&1
    echo "kdelta: ended with $?"
}} | {{ trap '' PIPE; while IFS= read -r line; do printf '%s\\n' "$line"; done; exit 0; }}
"""
_MOST_NOTES = 64 << 10
_OWN = f"[ -d {NOTES} ] && [ -O {NOTES} ] && [ ! -L {NOTES} ]"
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,200}")
# What says why, the surest first: programs tell what they begin, too, and what came of a failure.
_EXPLAINING = (
    r".*No space left on device",
    r"(?:dpkg: error|E:|depmod: (?:ERROR|FATAL))",
    r"(?:cp|tar|kernel-install|dpkg): ",
    r"(?:update-initramfs: failed|W:|run-parts: )",
)
_ROOT = "export PATH=$PATH:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive; "
# Nothing of a half-done dpkg may keep the next one from working.
_REMOVE_PACKAGES = (
    _ROOT
    # Of a package that was never unpacked whole, dpkg leaves its folder.
    + "dpkg --purge --force-depends {packages}; S=$?;"
    " rmdir /lib/modules/{release} 2> /dev/null; exit $S"
)
_ADD_OWN = (
    _ROOT
    + """set -e; R={release}; I=/boot/vmlinuz-$R
[ ! -e "$I" ] && [ ! -e "/lib/modules/$R" ] || {{ echo "$R is there already" >&2; exit 1; }}
tar -xf {archive} -C {unpacked} --no-same-owner
# A kernel may have none, and then depmod fails.
[ ! -d {unpacked}/modules ] || {{ cp -r {unpacked}/modules "/lib/modules/$R"; depmod "$R"; }}
[ ! -f {unpacked}/config ] || cp {unpacked}/config "/boot/config-$R"
cp {unpacked}/vmlinuz "$I"
if [ -d /etc/kernel/postinst.d ]; then
    export DEB_MAINT_PARAMS=configure
    run-parts --exit-on-error --arg="$R" --arg="$I" /etc/kernel/postinst.d
else kernel-install add "$R" "$I"; fi
"""
)
_REMOVE_OWN = (
    _ROOT
    + """R={release}; I=/boot/vmlinuz-$R
if [ -d /etc/kernel/postrm.d ]; then
    rm -f "$I"; rm -rf "/lib/modules/$R"
    DEB_MAINT_PARAMS=remove run-parts --arg="$R" --arg="$I" /etc/kernel/postrm.d
else kernel-install remove "$R"; rm -f "$I"; rm -rf "/lib/modules/$R"; fi
rm -f "/boot/initrd.img-$R" "/boot/initramfs-$R.img" "/boot/config-$R" "/boot/System.map-$R"
"""
)


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel that kdelta put on a machine.  packages: none for one of its user's build."""

    release: str
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A kernel to be installed.  packages: of Debian, verified, by name; else archive: a tar with
    `vmlinuz`, `modules` and, if configured, `config`.
    """

    release: str
    packages: tuple[tuple[str, Path], ...] = ()
    archive: Path | None = None
    configured: bool = False


def of_build(
    release: str, image: Path, modules: Path | None, config: Path | None, scratch: Path
) -> Offered:
    """A kernel of its user's build, packed into scratch.  modules: of `make modules_install`;
    config: hooks may want it for an initial RAM disk.  Raises SpecError without modules of it.
    """
    archive = scratch / "kernel.tar"
    places = (modules / "lib/modules" / release, modules / release, modules) if modules else ()
    found = next((each for each in places if (each / "modules.order").is_file()), None)
    if modules and (found is None or found.resolve().name != release):
        action = "fill it with: make INSTALL_MOD_PATH=DIR modules_install"
        raise SpecError(f"there are no modules of {release}", place=str(modules), action=action)
    with tarfile.open(archive, "w") as packed:
        packed.add(image.resolve(), "vmlinuz")
        if config:
            packed.add(config.resolve(), "config")
        if found:  # without the links to the tree that built it
            packed.add(found, "modules", filter=lambda m: m if m.isfile() or m.isdir() else None)
    return Offered(release=release, archive=archive, configured=config is not None)


def noted(ssh_host: SshHost) -> tuple[Note, ...]:
    """The kernels that kdelta put on the machine.  Raises InfraError for notes of somebody else."""
    done = ssh_host.remote.ask(
        f"[ ! -e {NOTES} ] && exit 0; {_OWN} || exit 3; cat {NOTES}/*.json 2> /dev/null |"
        f" head -c {_MOST_NOTES}; exit 0"
    )
    if done.status:
        cause = f"{NOTES} of {ssh_host.remote.name} is not yours"
        raise InfraError(cause, action="look at it there, and remove it")
    try:
        found = tuple(decoded(line, Note) for line in done.text.splitlines())
        return tuple(map(_sound, found))
    except (msgspec.MsgspecError, ValueError, SpecError) as error:
        cause = f"{NOTES} of {ssh_host.remote.name} holds no notes of kdelta's"
        action = "look at it there, remove those kernels by hand, and the folder"
        raise InfraError(cause, action=action) from error


def install(ssh_host: SshHost, offered: Offered) -> bool:
    """Put a kernel on the machine, which goes on booting what it boots by itself; False when it was
    there.  Raises SpecError, InfraError; what was begun is undone then.
    """
    name, running = ssh_host.remote.name, ssh_host.running().release
    packages = tuple(name for name, _ in offered.packages)
    note = _sound(Note(release=offered.release, packages=packages))
    with ssh_host.shown() as root:
        if offered.release in reboot.installed(root):
            return False
        by_loader = reboot.has_entry(running, root)
        mend = reboot.would_change(running, root)
        own = reboot.by_itself(root)
    if mend:
        cause = f"{name} would boot {offered.release} by itself from then on, even if it panics"
        raise InfraError(cause, action=f"there, first: {mend}")
    if own not in ("", running):
        cause = f"{name} runs {running} and boots {own} by itself, which may not come up"
        raise InfraError(cause, action=f"reboot it, and install when it has come up with {own}")
    ssh_host.at(Stage.OFFERING)
    with _sent(ssh_host, offered) as script:
        line = shlex.quote(msgspec.json.encode(note).decode())
        ssh_host.remote.get(
            f"mkdir -m 700 {NOTES} 2> /dev/null; {_OWN} &&"
            f" echo {line} > {NOTES}/{offered.release}.json"
        )
        ssh_host.at(Stage.INSTALLING)
        done = _as_root(ssh_host, script)
        why = f"cannot install {offered.release}: {_words(done)}" if done.status else ""
    if not why:
        with ssh_host.shown() as root:
            if offered.release not in reboot.installed(root):
                why = f"has no image of {offered.release} after it was installed"
            elif by_loader and not reboot.has_entry(offered.release, root):
                why = f"has no entry for {offered.release} in its boot loader's menu"
            elif mend := reboot.would_change(running, root):
                why = f"would boot {offered.release} by itself"
    if why:
        with contextlib.suppress(InfraError):
            _remove(ssh_host, note)
        mended = f"mend that there: {mend}" if mend else "mend that there"
        if not mend and offered.archive and not offered.configured:
            mended += ", or name the build's .config with --config"
        mended = NO_SUDO if "sudo:" in why else mended
        action = f"{mended}; what was begun is taken back: try again"
        raise InfraError(f"{name} {why}", action=action)
    return True


def remove(ssh_host: SshHost, note: Note) -> None:
    """Take a kernel off the machine again.  Raises InfraError when it runs, or stays."""
    name = ssh_host.remote.name
    ssh_host.at(Stage.REMOVING)
    if ssh_host.running().release == note.release:
        action = "boot it into its own kernel, then: kdelta host release"
        raise InfraError(f"{name} runs {note.release}, which cannot be removed now", action=action)
    done = _remove(ssh_host, note)
    with ssh_host.shown() as root:
        left = note.release in reboot.installed(root)
    if left:
        cause = f"{name} still has {note.release}: {_words(done)}"
        raise InfraError(cause, action="remove it there by hand")


def _remove(ssh_host: SshHost, note: Note) -> Done:
    packages = shlex.join(note.packages)
    release = shlex.quote(note.release)
    script = _REMOVE_PACKAGES if packages else _REMOVE_OWN
    done = _as_root(ssh_host, script.format(packages=packages, release=release))
    image = f"/boot/vmlinuz-{note.release}"
    ssh_host.remote.ask(
        f"[ -e {image} ] || rm -f {NOTES}/{note.release}.json; rmdir {NOTES} 2> /dev/null; true"
    )
    return done


@contextlib.contextmanager
def _sent(ssh_host: SshHost, offered: Offered) -> Iterator[str]:
    files = [offered.archive] if offered.archive else [file for _, file in offered.packages]
    there = [ssh_host.send(file) for file in files]
    try:
        if offered.archive is None:
            renamed = [f"{path}.deb" for path in there]  # dpkg takes no other name
            pairs = zip(there, renamed, strict=True)
            ssh_host.remote.get(" && ".join(f"mv {old} {new}" for old, new in pairs))
            there = renamed
            yield _ROOT + f"dpkg -i --force-confold {shlex.join(there)}"
        else:
            unpacked = f"{there[0]}.unpacked"
            ssh_host.remote.get(f"rm -rf {unpacked}; mkdir -m 700 {unpacked}")
            there.append(unpacked)
            yield _ADD_OWN.format(
                release=shlex.quote(offered.release), archive=there[0], unpacked=unpacked
            )
    finally:
        with contextlib.suppress(InfraError):
            ssh_host.remote.ask(f"$S rm -rf {shlex.join(there)}")


def _as_root(ssh_host: SshHost, script: str) -> Done:
    """A script of root's, which goes on when the line breaks; the next one waits for it."""
    asked = _AS_ROOT.format(notes=NOTES, wait=_INSTALL_S // 2, script=shlex.quote(script))
    done = ssh_host.remote.ask(asked, timeout=_INSTALL_S)
    text, _, status = done.text.rpartition(_ENDED)
    if status.strip() == str(_BUSY):
        cause = f"{ssh_host.remote.name} still installs or removes a kernel of kdelta's"
        raise InfraError(cause, action="wait for it, then: kdelta host release")
    return replace(done, text=text, status=int(status) if status.strip().isdecimal() else 1)


def _words(done: Done) -> str:
    said = f"{done.text}\n{done.errors}"
    found = (re.search(f"^{pattern}.*$", said, re.M) for pattern in _EXPLAINING)
    words = next((each[0] for each in found if each), done.last_words)
    return printable(words.strip(), 300)


def _sound(note: Note) -> Note:
    """A note whose words may stand in a script.  Raises SpecError."""
    if not (reboot.RELEASE.fullmatch(note.release) and all(map(_PACKAGE.fullmatch, note.packages))):
        raise SpecError(f"{printable(note.release, 80)!a} is no kernel that can be installed")
    return note
