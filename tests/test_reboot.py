# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of this host: which is which, its next boot, and a run that goes on by itself."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kdelta.cli.main import main
from kdelta.errors import InfraError, SpecError
from kdelta.host import facts, reboot
from kdelta.journal.run import RunJournal
from kdelta.run.timed import HostTrials
from kdelta.sample import HostFacts, Outcome, TrialRecord, TrialResult

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


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with three kernels, GRUB and systemd, on which we are root."""
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
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def test_installed_kernels_are_those_with_an_image(host: Path) -> None:
    wanted = ("6.1.0-5-amd64", "6.1.0-56-amd64", "6.12.9-tiny", "6.18.15-amd64")
    assert reboot.installed(host) == wanted
    assert reboot.installed(host / "empty") == ()


@pytest.mark.parametrize(
    ("reference", "release", "same"),
    [
        ("host", "anything-1", True),
        ("host:6.18.44", "6.18.44", True),
        ("host:6.18.44", "6.18.44-fc-v657", True),
        ("host:6.18", "6.18.44+deb13", True),
        ("host:6.18.4", "6.18.44", False),
        ("host:6.1", "6.18.44", False),
        ("host:6.18.44-fc", "6.18.44", False),
        ("host:6.18", "6.18rc1", False),
    ],
)
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
    loader, kexec = reboot.next_boot_commands("6.1.0-56-amd64", host)
    entry = "gnulinux-advanced-U>gnulinux-6.1.0-56-U"
    assert loader == f"grub-reboot '{entry}' && reboot"
    assert kexec == (
        "kexec -l /boot/vmlinuz-6.1.0-56-amd64 --reuse-cmdline "
        "--initrd=/boot/initrd.img-6.1.0-56-amd64 && systemctl kexec"
    )


def test_commands_of_an_ordinary_user_go_through_sudo(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for line in reboot.next_boot_commands("6.18.15-amd64", host):
        assert all(part.startswith("sudo ") for part in line.split(" && "))


def test_entry_without_an_id_goes_by_its_title(host: Path) -> None:
    loader, _ = reboot.next_boot_commands("6.1.0-5-amd64", host)
    command = loader.partition(" && ")[0]
    assert shlex.split(command) == ["grub-reboot", "gnulinux-advanced-U>it's >> mine"]


def test_kernel_without_an_entry_is_left_to_kexec(host: Path) -> None:
    (line,) = reboot.next_boot_commands("6.12.9-tiny", host)
    wanted = "kexec -l /lib/modules/6.12.9-tiny/vmlinuz --reuse-cmdline && systemctl kexec"
    assert line == wanted


def test_menu_that_ignores_grub_reboot_is_not_used(host: Path) -> None:
    (host / "boot/grub/grub.cfg").write_text(GRUB.replace("next_entry", "other"))
    assert len(reboot.next_boot_commands("6.18.15-amd64", host)) == 1


def test_fedoras_names(host: Path) -> None:
    (host / "boot/grub").rename(host / "boot/grub2")
    (host / "boot/initrd.img-6.18.15-amd64").rename(host / "boot/initramfs-6.18.15-amd64.img")
    loader, kexec = reboot.next_boot_commands("6.18.15-amd64", host)
    assert loader.startswith("grub2-reboot gnulinux-simple-U && ")
    assert "--initrd=/boot/initramfs-6.18.15-amd64.img" in kexec


@pytest.mark.parametrize("text", ["next_entry\n}}}\n'", "next_entry " + "x {\n" * 1000, "\xff"])
def test_broken_menu_has_no_entry(host: Path, text: str) -> None:
    (host / "boot/grub/grub.cfg").write_text(text, encoding="latin-1")
    assert len(reboot.next_boot_commands("6.18.15-amd64", host)) == 1


@pytest.mark.parametrize("release", ["6.5.0-gone", "9.9", "../../etc/passwd", ""])
def test_kernel_that_is_not_here_cannot_be_next(host: Path, release: str) -> None:
    with pytest.raises(SpecError, match=r"no kernel .* on this machine; bootable here: "):
        reboot.next_boot_commands(release, host)


def test_rebooting_without_a_menu_entry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InfraError, match=r"the boot loader has no entry for 0\.0\.0-none"):
        reboot.boot_once("0.0.0-none")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InfraError, match="root is needed to reboot this machine"):
        reboot.boot_once("0.0.0-none")


def test_arriving_elsewhere_ends_the_chain_of_reboots(monkeypatch: pytest.MonkeyPatch) -> None:
    reboot.check_arrived("6.18.15-amd64")
    monkeypatch.setenv(reboot.EXPECTED, "6.18.15-amd64")
    reboot.check_arrived("6.18.15-amd64")
    with pytest.raises(InfraError, match=r"was to boot 6\.18\.15-amd64 and came up with 6\.1\.0"):
        reboot.check_arrived("6.1.0-56-amd64")


COMMAND = ["/bin/true", "resume", "my run", "100%", "$HOME", 'say "x"', "back\\slash"]


def test_unit_goes_on_after_the_boot(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/50% mine")
    unit = reboot.install_resume(COMMAND, host, expected="6.18.15-amd64")
    assert unit == host / "etc/systemd/system/kdelta-resume.service"
    lines = unit.read_text().splitlines()
    assert lines[lines.index("[Service]") + 2] == (
        'ExecStart="/bin/true" "resume" "my run" "100%%" "$$HOME" "say \\"x\\"" "back\\\\slash"'
    )
    assert "Type=simple" in lines
    assert "After=multi-user.target" in lines
    assert f"WorkingDirectory={Path.cwd()}" in lines
    assert 'Environment="XDG_CACHE_HOME=/var/cache/50%% mine"' in lines
    assert 'Environment="KDELTA_EXPECTED_RELEASE=6.18.15-amd64"' in lines
    link = unit.parent / "multi-user.target.wants" / unit.name
    assert link.resolve() == unit


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_takes_the_unit_as_it_is_meant(host: Path) -> None:
    unit = reboot.install_resume(COMMAND, host)
    argv = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert "kdelta-resume" not in done.stderr
    assert done.returncode == 0, done.stderr
    unit.write_text(unit.read_text().replace("ExecStart=", "ExecStrat="))
    broken = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert "kdelta-resume" in broken.stderr  # it does look


def test_unit_is_written_anew_for_each_boot_and_taken_away(host: Path) -> None:
    for release in ("6.18.15-amd64", "6.1.0-56-amd64"):
        unit = reboot.install_resume(COMMAND, host, expected=release)
        assert f"EXPECTED_RELEASE={release}" in unit.read_text()
    assert reboot.remove_resume(host)
    assert not [path for path in (host / "etc").rglob("*") if path.is_file() or path.is_symlink()]
    assert not reboot.remove_resume(host)


def test_half_a_unit_is_taken_away_too(host: Path) -> None:
    unit = reboot.install_resume(COMMAND, host)
    unit.unlink()
    assert reboot.remove_resume(host)
    assert not os.path.lexists(unit.parent / "multi-user.target.wants" / unit.name)


def test_unit_needs_root(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InfraError, match="root is needed to install a unit") as caught:
        reboot.install_resume(COMMAND, host)
    assert "sudo" in caught.value.action
    assert not (host / "etc").exists()


def test_unit_needs_systemd(host: Path) -> None:
    (host / "run/systemd/system").rmdir()
    with pytest.raises(InfraError, match="this machine is not run by systemd"):
        reboot.install_resume(COMMAND, host)


@pytest.mark.parametrize("command", [[], ["kdelta", "resume"], ["./kdelta"]])
def test_unit_needs_a_whole_path(host: Path, command: list[str]) -> None:
    with pytest.raises(InfraError, match="not an absolute path of a program"):
        reboot.install_resume(command, host)


def test_unit_cannot_be_smuggled_lines(host: Path) -> None:
    with pytest.raises(InfraError, match="a unit file cannot hold"):
        reboot.install_resume(["/bin/true", "x\nExecStart=/bin/sh"], host)
    assert not (host / "etc/systemd/system/kdelta-resume.service").exists()


def test_unwritable_machine(host: Path) -> None:
    (host / "etc").write_text("")
    with pytest.raises(InfraError, match="the unit cannot be written: Not a directory"):
        reboot.install_resume(COMMAND, host)


STUDY = """\
name = "two-kernels"
title = "Two kernels of this host"
instrument = "time"
scenarios = ["mincore:no_thp_pte_scan_4m"]
kernels = ["host:6.1", "host:6.12"]
[plan]
seed = 2
[time]
replicate = "boot"
sandwich = false
"""
MANY = 20


@dataclass
class Machine:
    """A host of two kernels; what it is told is done at once."""

    release: str = "6.1"
    unit: str = ""  # the release that the installed unit expects
    boots: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)

    def facts(self, **_: object) -> HostFacts:
        return HostFacts(release=self.release, boot_id=f"boot-{len(self.boots)}")

    def install(self, _command: Sequence[str], *, expected: str) -> None:
        self.unit = expected

    def remove(self) -> None:
        self.unit = ""

    def boot(self, release: str) -> None:
        self.release = release
        self.boots.append(release)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine()
    monkeypatch.delenv(reboot.EXPECTED, raising=False)
    monkeypatch.setattr(facts, "read", one.facts)
    monkeypatch.setattr(reboot, "installed", lambda: ("6.1", "6.12"))
    monkeypatch.setattr(reboot, "next_boot_commands", lambda _: ("reboot",))
    monkeypatch.setattr(reboot, "install_resume", one.install)
    monkeypatch.setattr(reboot, "remove_resume", one.remove)
    monkeypatch.setattr(reboot, "boot_once", one.boot)
    return one


def kdelta(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def left_alone(machine: Machine, runs: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Begin and let the machine's unit go on; the last exit status."""
    study = runs.parent / "study.toml"
    study.write_text(STUDY)
    kdelta("run", study, "--runs", runs)
    status = kdelta("resume", "--install-resume", "--runs", runs)
    while machine.unit and len(machine.boots) < MANY:
        monkeypatch.setenv(reboot.EXPECTED, machine.unit)
        status = kdelta("resume", "--install-resume", "--runs", runs)
    return status


def test_two_kernels_that_fail_do_not_boot_each_other_for_ever(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_trials: HostTrials, _trial: TrialRecord, *_: object) -> TrialResult:
        machine.tried.append(machine.release)
        raise InfraError("the fan is broken")

    monkeypatch.setattr(HostTrials, "measure", measure)
    assert left_alone(machine, tmp_path / "runs", monkeypatch) == 1
    assert len(machine.boots) <= 2, machine.boots
    assert set(machine.tried) == {"6.1", "6.12"}, "each had its turn"
    (folder,) = (path.parent for path in (tmp_path / "runs").glob("*/run.json"))
    results = [trial.result for trial in RunJournal.open(folder).record().trials]
    assert [one.outcome for one in results if one] == [Outcome.INFRA_ERROR] * 2
    assert machine.unit == ""


def test_a_machine_that_falls_over_in_a_trial_is_left_alone_in_the_end(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCutError(BaseException):
        """Ends a process without any of its clean-up."""

    def measure(_trials: HostTrials, _trial: TrialRecord, *_: object) -> TrialResult:
        raise PowerCutError

    monkeypatch.setattr(HostTrials, "measure", measure)
    runs = tmp_path / "runs"
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(PowerCutError):
        main(["run", str(tmp_path / "study.toml"), "--runs", str(runs)])
    monkeypatch.setenv(reboot.EXPECTED, "6.1")
    again = ["resume", "--install-resume", "--runs", str(runs)]
    falls = 0
    while falls < MANY:
        try:
            main(again)
        except PowerCutError:
            machine.boot("6.1")
            falls += 1
        except SystemExit as ended:
            assert ended.code == 3  # noqa: PT017
            break
    assert falls == 3
    monkeypatch.delenv(reboot.EXPECTED)
    with pytest.raises(PowerCutError):  # the user may try again
        main(again)


def test_progress_begins_the_count_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reboot.EXPECTED, "6.1")
    file = tmp_path / "boots.json"
    for ended in (0, 0, 0, 1, 1, 1, 2):
        reboot.check_progress(file, ended)
    reboot.check_progress(file, 2)
    reboot.check_progress(file, 2)
    with pytest.raises(InfraError, match="3 boots in a row of this machine have ended no trial"):
        reboot.check_progress(file, 2)
