# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of a machine: which is which, and how one is booted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdelta.errors import SpecError
from kdelta.host import reboot

# What Debian's update-grub writes, shortened.
GRUB = r"""
set -e
if [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
fi
if [ x"${feature_menuentry_id}" = xy ]; then
  menuentry_id_option="--id"
else
  menuentry_id_option=""
fi
function gfxmode {
	set gfxpayload="${1}"
}
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-U' {
	load_video
	linux	/boot/vmlinuz-6.18.15-amd64 root=UUID=U ro  quiet
	initrd	/boot/initrd.img-6.18.15-amd64
}
submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-U' {
	menuentry 'with Linux 6.18.15-amd64' --class os $menuentry_id_option 'gnulinux-6.18.15-U' {
		linux	/boot/vmlinuz-6.18.15-amd64 root=UUID=U ro  quiet
	}
	menuentry 'with Linux 6.1.0-56-amd64 (recovery mode)' $menuentry_id_option 'recovery-U' {
		linux	/boot/vmlinuz-6.1.0-56-amd64 root=UUID=U ro single
	}
	menuentry 'with Linux 6.1.0-56-amd64' $menuentry_id_option 'gnulinux-6.1.0-56-U' {
		echo	'Loading Linux 6.1.0-56-amd64 ...'
		linux	/vmlinuz-6.1.0-56-amd64 root=UUID=U ro  quiet
	}
	menuentry 'it'\''s > mine' {
		linux	/boot/vmlinuz-6.1.0-5-amd64 root=/dev/sda1
	}
}
"""


LINE = "--command-line=quiet"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A machine with kernels and GRUB."""
    boot = tmp_path / "boot"
    (boot / "grub").mkdir(parents=True)
    (boot / "grub/grub.cfg").write_text(GRUB)
    for release in ("6.18.15-amd64", "6.1.0-56-amd64", "6.1.0-5-amd64"):
        (boot / f"vmlinuz-{release}").write_text("")
        (boot / f"initrd.img-{release}").write_text("")
    (boot / "vmlinuz-6.1.0-4-amd64.dpkg-bak").write_text("")
    (boot / "vmlinuz").write_text("")
    for release, image in (("6.12.9-tiny", True), ("6.5.0-gone", False)):
        modules = tmp_path / "lib/modules" / release
        modules.mkdir(parents=True)
        if image:
            (modules / "vmlinuz").write_text("")
    return tmp_path


def test_installed_kernels_are_those_with_an_image(host: Path) -> None:
    wanted = ("6.1.0-5-amd64", "6.1.0-56-amd64", "6.12.9-tiny", "6.18.15-amd64")
    assert reboot.installed(host) == wanted
    assert reboot.installed(host / "empty") == ()


@pytest.mark.parametrize(
    ("reference", "release", "same"),
    [
        ("host", "anything-1", True), ("host:6.18.44", "6.18.44", True),
        ("host:6.18.44", "6.18.44-fc-v657", True), ("host:6.18", "6.18.44+deb13", True),
        ("host:6.18.4", "6.18.44", False), ("host:6.1", "6.18.44", False),
        ("host:6.18.44-fc", "6.18.44", False), ("host:6.18", "6.18rc1", False),
    ],
)  # fmt: skip
def test_reference_matches_the_running_kernel(reference: str, release: str, *, same: bool) -> None:
    assert reboot.match(reference, release) is same


@pytest.mark.parametrize("reference", ["6.18", "host:../x", "host:6 1", "hosts:6.18", "host:-h"])
def test_what_is_no_kernel_of_this_host(reference: str) -> None:
    with pytest.raises(SpecError, match="is no kernel of this host; write host, or host:RELEASE"):
        reboot.match(reference, "6.18")


def test_reference_resolves_to_one_installed_kernel(host: Path) -> None:
    known = reboot.installed(host)
    assert reboot.resolve("host:6.18", known) == "6.18.15-amd64"
    assert reboot.resolve("host:6.1.0-5", known) == "6.1.0-5-amd64"
    with pytest.raises(SpecError, match=r"choose of: 6\.1\.0-5-amd64, 6\.1\.0-56-amd64"):
        reboot.resolve("host:6.1.0", known)
    with pytest.raises(SpecError, match=r"host:6\.9 is not installed here; bootable here: 6\.1"):
        reboot.resolve("host:6.9", known)
    assert reboot.resolve("host:6.1", ["6.1", "6.1.5"]) == "6.1"


def test_next_boot_goes_through_the_menu_first_and_kexec_second(host: Path) -> None:
    loader, kexec = reboot.ways("6.1.0-56-amd64", host, LINE)
    entry = "gnulinux-advanced-U>gnulinux-6.1.0-56-U"
    assert (loader.choose, loader.go) == (("grub-reboot", entry), ("reboot",))
    assert (loader.taken, loader.said) == (("grub-editenv", "-", "list"), f"next_entry={entry}")
    initrd = "--initrd=/boot/initrd.img-6.1.0-56-amd64"
    assert kexec.choose == ("kexec", "-l", "/boot/vmlinuz-6.1.0-56-amd64", LINE, initrd)
    assert kexec.go == ("systemctl", "kexec")


def test_entry_without_an_id_goes_by_its_title(host: Path) -> None:
    loader, _ = reboot.ways("6.1.0-5-amd64", host, LINE)
    assert loader.choose == ("grub-reboot", "gnulinux-advanced-U>it's >> mine")


def test_kernel_without_an_entry_is_left_to_kexec(host: Path) -> None:
    (way,) = reboot.ways("6.12.9-tiny", host, LINE)
    assert way.choose == ("kexec", "-l", "/lib/modules/6.12.9-tiny/vmlinuz", LINE)


def test_an_initramfs_by_dracuts_name(host: Path) -> None:
    (host / "boot/initrd.img-6.18.15-amd64").rename(host / "boot/initramfs-6.18.15-amd64.img")
    *_, kexec = reboot.ways("6.18.15-amd64", host, LINE)
    assert "--initrd=/boot/initramfs-6.18.15-amd64.img" in kexec.choose


BROKEN = [
    *("next_entry\n}}}\n'", "next_entry " + "x {\n" * 1000, "\xff"),
    GRUB.replace("next_entry", "other"),
]


@pytest.mark.parametrize("text", BROKEN)
def test_menu_that_is_broken_or_ignores_grub_reboot_is_not_used(host: Path, text: str) -> None:
    (host / "boot/grub/grub.cfg").write_text(text, encoding="latin-1")
    assert len(reboot.ways("6.18.15-amd64", host, LINE)) == 1


@pytest.mark.parametrize("release", ["6.5.0-gone", "9.9", "../../etc/passwd", ""])
def test_kernel_that_is_not_here_cannot_be_next(host: Path, release: str) -> None:
    with pytest.raises(SpecError, match=r"no kernel .* on this machine; bootable here: "):
        reboot.ways(release, host, LINE)
