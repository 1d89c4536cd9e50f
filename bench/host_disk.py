# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk with Debian 12 that boots as people's machines do: GRUB by SeaBIOS, systemd-boot by OVMF.

As root, with mmdebstrap, fdisk, dosfstools, e2fsprogs, ovmf and openssh-client (apt-get install),
from the mirror that apt has.  The machine sets up both boot loaders itself, by its own tools, in a
first boot whose kernel QEMU is given.  Its second kernel is the first without an initial RAM disk,
so it panics.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kdelta.guests import qemu
from kdelta.machine.axes import MachineSettings

OLD, PANIC = "6.1.0-50-cloud-amd64", "6.99.0-panic"
PORT = 22022
_FIRMWARE = Path("/usr/share/OVMF")
_PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "openssh-server", "sudo", "kexec-tools", "kmod", "zstd"),
    *("initramfs-tools", "iproute2", "dosfstools", "grub-pc-bin", "grub2-common", "systemd-boot"),
    f"linux-image-{OLD}",
)
_LINE = "root=/dev/vda3 rw console=ttyS0 quiet panic=5"
# Sectors of 512 bytes: GRUB's own, the EFI system partition, the root.
_PARTS = ((2048, 2048), (4096, 524288), (528384, 7858176))
_TYPES = (
    "21686148-6449-6E6F-744E-656564454649",
    "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
    "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
)
_SET_UP = f"""
set -e; WHO=user
echo box > "$1/etc/hostname"; echo "127.0.0.1 localhost box" > "$1/etc/hosts"
chroot "$1" useradd -m -s /bin/bash user
echo "user ALL=(ALL) NOPASSWD:ALL" > "$1/etc/sudoers.d/user"
mkdir -m 700 "$1/home/$WHO/.ssh"; cp "$KEY.pub" "$1/home/$WHO/.ssh/authorized_keys"
chroot "$1" chown -R "$WHO:$WHO" "/home/$WHO"
printf '[Match]\\nName=en* eth*\\n[Network]\\nDHCP=yes\\n' > "$1/etc/systemd/network/all.network"
chroot "$1" systemctl enable systemd-networkd ssh
chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer
echo LOAD_KEXEC=false > "$1/etc/default/kexec"
echo "/dev/vda3 / ext4 defaults 0 1" > "$1/etc/fstab"
echo "/dev/vda2 /boot/efi vfat umask=0077 0 2" >> "$1/etc/fstab"
mkdir -p "$1/boot/efi" "$1/boot/grub" "$1/etc/default"
echo 'GRUB_DEFAULT=saved
GRUB_TIMEOUT=1
GRUB_TERMINAL=console
GRUB_DISABLE_LINUX_UUID=true
GRUB_CMDLINE_LINUX="console=ttyS0 panic=5"' > "$1/etc/default/grub"
echo "{_LINE}" > "$1/etc/kernel/cmdline"
echo layout=bls > "$1/etc/kernel/install.conf"
cp "$1/boot/vmlinuz-{OLD}" "$1/boot/vmlinuz-{PANIC}"
"""
# On the machine itself, booted with its firmware's partition mounted.
_LOADERS = f"""
set -e; export PATH=$PATH:/sbin:/usr/sbin
grub-install --target=i386-pc /dev/vda; update-grub
ENTRY=$(grep -o "gnulinux-{OLD}-advanced-[^' ]*" /boot/grub/grub.cfg | head -n 1)
SUB=$(grep -o "gnulinux-advanced-[^' ]*" /boot/grub/grub.cfg | head -n 1)
grub-set-default "$SUB>$ENTRY"
bootctl --esp-path=/boot/efi --no-variables --make-entry-directory=yes install
kernel-install add {OLD} /boot/vmlinuz-{OLD} /boot/initrd.img-{OLD}
kernel-install add {PANIC} /boot/vmlinuz-{PANIC}
cd /boot/efi/loader
printf 'timeout 1\\ndefault %s-{OLD}.conf\\n' "$(cat /etc/machine-id)" > loader.conf
sync
"""
_SSH = """
Host box
  HostName 127.0.0.1
  Port {port}
  User user
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
"""


def made(folder: Path) -> None:
    """Make the machine's disk and a key for it, once."""
    if (folder / "made").exists():
        return
    if not (folder / "files").exists():
        _files(folder)
    with machine(folder, "kernel"):
        print(on_it(folder, f"sudo sh -c '{_LOADERS.replace(chr(39), _QUOTE)}'"))
        with contextlib.suppress(subprocess.CalledProcessError):
            on_it(folder, "sudo poweroff")
        time.sleep(20)
    (folder / "made").touch()


_QUOTE = "'\"'\"'"


def _files(folder: Path) -> None:
    """The disk as its first boot finds it."""
    for name in ("key", "key.pub"):
        (folder / name).unlink(missing_ok=True)
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    (folder / "setup").write_text(_SET_UP)
    shutil.rmtree(folder / "root", ignore_errors=True)
    call(
        *("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(_PACKAGES)}"),
        *(f'--customize-hook=sh {folder}/setup "$1"', "bookworm", "root", *_sources()),
        cwd=folder,
        KEY=str(folder / "key"),
    )
    disk = folder / "disk"
    with disk.open("wb") as empty:
        empty.truncate(4 << 30)
    table = "label: gpt\n" + "".join(
        f"start={start}, size={size}, type={kind}\n"
        for (start, size), kind in zip(_PARTS, _TYPES, strict=True)
    )
    subprocess.run(["sfdisk", "-q", str(disk)], input=table, text=True, check=True)
    start, size = _PARTS[2]
    own = ("-E", f"offset={start * 512}", "-d", "root", "disk", f"{size // 2}k")
    call("mke2fs", "-q", "-F", "-t", "ext4", *own, cwd=folder)
    start, size = _PARTS[1]
    esp = folder / "esp"
    with esp.open("wb") as empty:
        empty.truncate(size * 512)
    call("mkfs.vfat", "-F", "32", str(esp))
    where = ("bs=512", f"seek={start}", "conv=notrunc", "status=none")
    call("dd", f"if={esp}", f"of={disk}", *where)
    for kind in ("vmlinuz", "initrd.img"):
        shutil.copy(folder / "root/boot" / f"{kind}-{OLD}", folder / kind)
    shutil.copy(_FIRMWARE / "OVMF_VARS_4M.fd", folder / "variables")
    (folder / "files").touch()


def _sources() -> list[str]:
    """apt's own lists of Debian 12."""
    every = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources")]
    return [str(path) for path in every if path.exists() and "bookworm main" in _flat(path)]


def _flat(path: Path) -> str:
    """A list's suites before its components, whatever its form."""
    text = path.read_text()
    suites = re.search(r"^Suites: (\S+)", text, re.M)
    parts = re.search(r"^Components: (\S+)", text, re.M)
    return f"{suites[1]} {parts[1]}" if suites and parts else text


def call(*words: str, cwd: Path | None = None, **environment: str) -> str:
    """A program's output."""
    return subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def _firmware(folder: Path, loader: str) -> tuple[str, ...]:
    """Options that decide what boots the machine."""
    if loader == "systemd-boot":
        code = f"if=pflash,format=raw,unit=0,readonly=on,file={_FIRMWARE / 'OVMF_CODE_4M.fd'}"
        own = f"if=pflash,format=raw,unit=1,file={folder / 'variables'}"
        return ("-drive", code, "-drive", own)
    if loader == "grub":
        return ()
    given = ("-kernel", str(folder / "vmlinuz"), "-initrd", str(folder / "initrd.img"))
    return (*given, "-append", _LINE)


@contextlib.contextmanager
def machine(folder: Path, loader: str) -> Iterator[None]:
    """The machine, on; its ssh on a port of this one, and no way out of it.

    loader: grub, systemd-boot, or kernel: then its firmware boots OLD without either.
    """
    emulator = qemu.for_counting(MachineSettings().target)
    (folder / "monitor").unlink(missing_ok=True)
    command = [
        str(emulator.program),
        *emulator.arguments,
        *("-nodefaults", "-display", "none", "-accel", "tcg", "-M", "q35", "-cpu", "max"),
        *("-smp", "2", "-m", "1024", *_firmware(folder, loader)),
        *("-drive", f"file={folder / 'disk'},if=virtio,format=raw"),
        *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{PORT}-:22"),
        *("-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"),
        *("-monitor", f"unix:{folder / 'monitor'},server,nowait"),
        *("-serial", f"file:{folder / 'console'}"),
    ]
    started = subprocess.Popen(command, env={**os.environ, **emulator.environment})
    try:
        known = ""
        while not known:
            if started.poll() is not None:
                sys.exit("the machine did not start")
            time.sleep(2)
            scan = ["ssh-keyscan", "-T", "5", "-p", str(PORT), "127.0.0.1"]
            known = subprocess.run(scan, capture_output=True, text=True, check=False).stdout
        (folder / "known").write_text(known)
        (folder / "ssh_config").write_text(_SSH.format(port=PORT, folder=folder))
        yield
    finally:
        started.kill()
        started.wait()


def on_it(folder: Path, script: str) -> str:
    """What the machine says."""
    return call("ssh", "-F", str(folder / "ssh_config"), "box", script)
