# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk with Debian 12 that boots as people's machines do: GRUB by SeaBIOS, systemd-boot by OVMF.

As root, with mmdebstrap, fdisk, dosfstools, e2fsprogs, ovmf, losetup and openssh-client (apt-get
install), from the mirror that apt has.  Kernels, initial RAM disks, both boot loaders, dpkg, sshd
and sudo are Debian's, set up by Debian's tools; PID 1 is a short script, since systemd takes
minutes of an emulated CPU for each boot.  The machine's second kernel is the first without an
initial RAM disk, so it panics.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kdelta.guests import qemu
from kdelta.machine.axes import MachineSettings
from ports import free_port

OLD, PANIC = "6.1.0-50-cloud-amd64", "6.99.0-panic"
_FIRMWARE = Path("/usr/share/OVMF")
_PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "openssh-server", "sudo", "kexec-tools", "kmod", "zstd"),
    *("initramfs-tools", "iproute2", "dosfstools", "grub-pc-bin", "grub2-common", "systemd-boot"),
    f"linux-image-{OLD}",
)
_LINE = "console=ttyS0 quiet panic=5 no_timer_check init=/sbin/box-init"
# Sectors of 512 bytes: GRUB's own, the EFI system partition, the root.
_PARTS = ((2048, 2048), (4096, 524288), (528384, 7858176))
_TYPES = (
    "21686148-6449-6E6F-744E-656564454649",
    "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
    "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
)
_INIT = """#!/bin/sh
# PID 1 of the machine: its disks, its network, sshd; and it takes in what others leave behind.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -o remount,rw /
mkdir -p /dev/pts /run/sshd /run/lock
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /tmp
mount /dev/vda2 /boot/efi
[ ! -d /sys/firmware/efi ] || mount -t efivarfs efivarfs /sys/firmware/efi/efivars
hostname box; uname -r >> /var/log/boots
# No udev loads it, and a kernel's own initial RAM disk has the root's drivers alone.
modprobe virtio_net 2> /dev/null
ip link set lo up
for each in /sys/class/net/e*; do
    ip link set "${each##*/}" up; ip addr add 10.0.2.15/24 dev "${each##*/}"
done
/usr/sbin/sshd
while :; do sleep 3600 & wait; done
"""
_REBOOT = """#!/bin/sh
# What systemd does at last: all on the disk, nothing writes to it any more, and off.
(sleep 1; sync; echo s > /proc/sysrq-trigger; echo u > /proc/sysrq-trigger; sleep 1
echo b > /proc/sysrq-trigger) > /dev/null 2>&1 < /dev/null &
"""
# Of mmdebstrap, in the folder that becomes the root.
_SET_UP = """
set -e; WHO=user
echo box > "$1/etc/hostname"; echo "127.0.0.1 localhost box" > "$1/etc/hosts"
chroot "$1" useradd -m -s /bin/bash user
echo "user ALL=(ALL) NOPASSWD:ALL" > "$1/etc/sudoers.d/user"
mkdir -m 700 "$1/home/$WHO/.ssh"; cp "$KEY.pub" "$1/home/$WHO/.ssh/authorized_keys"
chroot "$1" chown -R "$WHO:$WHO" "/home/$WHO"
"""
# Of the disk whose root is mounted at $1.
_LOADERS = f"""
set -e
for each in dev proc sys; do mount --rbind "/$each" "$1/$each"; mount --make-rslave "$1/$each"; done
mkdir -p "$1/boot/efi"
install -m 755 init "$1/sbin/box-init"; install -m 755 reboot "$1/usr/local/sbin/reboot"
cat > "$1/etc/default/grub" <<EOF
GRUB_DEFAULT=saved
GRUB_TIMEOUT=1
GRUB_TERMINAL=console
GRUB_CMDLINE_LINUX="{_LINE}"
EOF
echo "root=/dev/vda3 rw {_LINE}" > "$1/etc/kernel/cmdline"
echo layout=bls > "$1/etc/kernel/install.conf"
cp "$1/boot/vmlinuz-{OLD}" "$1/boot/vmlinuz-{PANIC}"
chroot "$1" systemd-machine-id-setup
mkdir -p "$1/boot/grub/i386-pc"; cp "$1"/usr/lib/grub/i386-pc/*.[lm]* "$1/boot/grub/i386-pc"
chroot "$1" grub-mkimage -O i386-pc -p "(hd0,gpt3)/boot/grub" -o /boot/grub/core.img \\
    biosdisk part_gpt ext2
# 10_linux has no entries for a root on a loop device, which only this machine takes it for.
chroot "$1" update-grub
chroot "$1" sh -ec 'set -a; . /etc/default/grub; GRUB_DEVICE=/dev/vda3 GRUB_FS=ext2
    GRUB_DEVICE_UUID=$(grub-probe --target=fs_uuid /)
    GRUB_DEVICE_BOOT=$(grub-probe --target=device /)
    GRUB_DEVICE_BOOT_UUID=$GRUB_DEVICE_UUID pkgdatadir=/usr/share/grub
    /etc/grub.d/10_linux > /boot/grub/entries 2> /dev/null
    sed -i "/BEGIN .etc.grub.d.10_linux/r /boot/grub/entries" /boot/grub/grub.cfg'
SUB=$(grep -o "gnulinux-advanced-[^' ]*" "$1/boot/grub/grub.cfg" | head -n 1)
ENTRY=$(grep -o "gnulinux-{OLD}-advanced-[^' ]*" "$1/boot/grub/grub.cfg" | head -n 1)
chroot "$1" grub-set-default "$SUB>$ENTRY"
# Initial RAM disks that are made there hold what that machine needs, which takes it less time.
echo MODULES=dep > "$1/etc/initramfs-tools/conf.d/box"
"""
# On the machine itself, which GRUB booted.
_SYSTEMD_BOOT = f"""
set -e; export SYSTEMD_RELAX_ESP_CHECKS=1 PATH=$PATH:/sbin:/usr/sbin
bootctl --esp-path=/boot/efi --no-variables --make-entry-directory=yes install
kernel-install add {OLD} /boot/vmlinuz-{OLD} /boot/initrd.img-{OLD}
kernel-install add {PANIC} /boot/vmlinuz-{PANIC}
printf "timeout 1\\ndefault %s-{OLD}.conf\\n" $(cat /etc/machine-id) > /boot/efi/loader/loader.conf
ls -l /boot/efi/loader/entries; sync
"""
# On the machine itself, whose menu names its root otherwise than the one made on a loop device.
_GRUB_THERE = f"""
set -e; export PATH=$PATH:/sbin:/usr/sbin
sudo update-grub
SUB=$(sudo grep -o "gnulinux-advanced-[^' ]*" /boot/grub/grub.cfg | head -n 1)
ENTRY=$(sudo grep -o "gnulinux-{OLD}-advanced-[^' ]*" /boot/grub/grub.cfg | head -n 1)
sudo grub-set-default "$SUB>$ENTRY"; sudo grub-editenv - list
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


def made(folder: Path, *more: str) -> None:
    """Make the machine's disk and a key for it, once.  more: packages beyond those it needs."""
    if (folder / "made").exists():
        return
    _files(folder, (*_PACKAGES, *more))
    (folder / "init").write_text(_INIT)
    (folder / "reboot").write_text(_REBOOT)
    (folder / "loaders").write_text(_LOADERS)
    place = folder / "mounted"
    place.mkdir(exist_ok=True)
    with _device(folder, 2) as root:
        call("mount", root, str(place))
        try:
            call("sh", "loaders", str(place), cwd=folder)
            core = (place / "boot/grub/core.img").read_bytes()
            boot = (place / "usr/lib/grub/i386-pc/boot.img").read_bytes()
        finally:
            subprocess.run(["umount", "-R", str(place)], check=True)
    with (folder / "disk").open("r+b") as disk:
        _embed(disk, boot, core)
    (folder / "made").touch()


def settled_by_grub(folder: Path) -> None:
    """The running machine's own menu, and the kernel that it boots by itself, once.

    Each kernel that is installed makes the menu anew; a default that it lacks is its first entry.
    """
    if not (folder / "settled").exists():
        print(on_it(folder, _GRUB_THERE), flush=True)
        (folder / "settled").touch()


def with_systemd_boot(folder: Path) -> None:
    """Set systemd-boot up on the machine, by its own tools, once."""
    if (folder / "with-systemd-boot").exists():
        return
    with machine(folder, "grub"):
        print(on_it(folder, f"sudo sh -c '{_SYSTEMD_BOOT}'; sudo umount /boot/efi; sudo sync"))
    (folder / "with-systemd-boot").touch()


@contextlib.contextmanager
def _device(folder: Path, part: int) -> Iterator[str]:
    """A partition as a device of its own; this machine's kernel may know no partitions."""
    start, size = (str(512 * each) for each in _PARTS[part])
    words = ("--offset", start, "--sizelimit", size, str(folder / "disk"))
    device = call("losetup", "--find", "--show", *words).strip()
    try:
        yield device
    finally:
        call("losetup", "--detach", device)


def _embed(disk: BinaryIO, boot: bytes, core: bytes) -> None:
    """Put GRUB where a BIOS finds it, as grub-bios-setup does.

    The first sector loads the one of which it is told, at 0x5c; that one loads the rest, which its
    last twelve bytes tell.
    """
    start = _PARTS[0][0]
    disk.write(boot[:0x5C] + start.to_bytes(8, "little") + boot[0x64:440])
    disk.seek(512 * start)
    disk.write(core[:500] + (start + 1).to_bytes(8, "little") + core[508:])


def _files(folder: Path, packages: Sequence[str]) -> None:
    """A disk with its partitions and Debian on it, without a boot loader."""
    for name in ("key", "key.pub"):
        (folder / name).unlink(missing_ok=True)
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    (folder / "setup").write_text(_SET_UP)
    shutil.rmtree(folder / "root", ignore_errors=True)
    call(
        *("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(packages)}"),
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
    shutil.copy(_FIRMWARE / "OVMF_VARS_4M.fd", folder / "variables")


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
    if loader == "grub":
        return ()
    code = f"if=pflash,format=raw,unit=0,readonly=on,file={_FIRMWARE / 'OVMF_CODE_4M.fd'}"
    own = f"if=pflash,format=raw,unit=1,file={folder / 'variables'}"
    return ("-drive", code, "-drive", own)


@contextlib.contextmanager
def machine(folder: Path, loader: str) -> Iterator[None]:
    """The machine, on; its ssh on a port of this one, and no way out of it.

    loader: grub or systemd-boot.
    """
    emulator = qemu.for_counting(MachineSettings().target)
    port = free_port()
    (folder / "monitor").unlink(missing_ok=True)
    command = [
        str(emulator.program),
        *emulator.arguments,
        *("-nodefaults", "-display", "none", "-accel", "tcg", "-M", "q35", "-cpu", "max"),
        *("-smp", "1", "-m", "1024", *_firmware(folder, loader)),
        *("-drive", f"file={folder / 'disk'},if=virtio,format=raw"),
        *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"),
        *("-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"),
        *("-monitor", f"unix:{folder / 'monitor'},server,nowait"),
        *("-serial", f"file:{folder / 'console'}"),
    ]
    started = subprocess.Popen(command, env={**os.environ, **emulator.environment})
    try:
        known = ""
        while not known:
            time.sleep(2)
            scan = ["ssh-keyscan", "-T", "60", "-p", str(port), "127.0.0.1"]
            known = subprocess.run(scan, capture_output=True, text=True, check=False).stdout
            if started.poll() is not None:  # and whoever answered is another machine
                sys.exit("the machine did not start")
        (folder / "known").write_text(known)
        (folder / "ssh_config").write_text(_SSH.format(port=port, folder=folder))
        yield
    finally:
        started.kill()
        started.wait()


def on_it(folder: Path, script: str) -> str:
    """What the machine says."""
    return call("ssh", "-F", str(folder / "ssh_config"), "box", script)
