# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels on machines by ssh: put there, booted once by the machine's loader, taken off again."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fake_host import DEFAULT, OTHER, FakeHost, on_path
from kdelta.cli.main import cli
from kdelta.doctor import capabilities
from kdelta.errors import BootError, InfraError, PoolError, SpecError
from kdelta.host import installing, reboot
from kdelta.host.installing import Note, Offered
from kdelta.host.ssh_host import SshHost, connection
from kdelta.study.pools import HostPool
from kernel_tree import script

pytest_plugins = ("borrowed",)
pytestmark = pytest.mark.program

NEW = "6.17.0-test"
GRUB = """
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   save_env next_entry
else
   set default={default}
fi
{entries}
"""
MENU = (
    "menuentry 'Debian {0}' --id 'gnulinux-{0}' {{\n\tlinux /boot/vmlinuz-{0} root=/dev/vda\n}}\n"
)
# Makes of each package named linux-image-REL its image, and the menu of all images there are.
DPKG = """\
#!/bin/sh
echo "$*" >> {machine}/dpkg
[ -e {machine}/full ] && echo "dpkg: error: cannot copy: No space left on device" >&2 && exit 1
case $1 in
-i) touch {machine}/files/boot/vmlinuz-{new} ;;
--purge) rm -f {machine}/files/boot/vmlinuz-{new} ;;
esac
[ -e {machine}/forgets ] || {machine}/bin/update-grub
"""
UPDATE = """\
#!/bin/sh
cd {machine}/files/boot || exit 1
head -n 7 grub/grub.cfg > grub/new
for each in vmlinuz-*; do
    own=${{each#vmlinuz-}}
    printf "menuentry 'Debian %s' --id 'gnulinux-%s' {{\\\\n" "$own" "$own"
    printf "\\\\tlinux /boot/%s root=/dev/vda\\\\n}}\\\\n" "$each"
done >> grub/new
mv grub/new grub/grub.cfg
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    made = on_path(tmp_path, monkeypatch)
    words = {"machine": made.folder, "new": NEW}
    made.program("bin/dpkg", DPKG.format(**words))
    made.program("bin/update-grub", UPDATE.format(**words))
    made.program("bin/depmod", "#!/bin/sh\n")
    made.program("bin/findmnt", "#!/bin/sh\necho ext4 /dev/vda3\n")
    return made


def with_grub(
    fake: FakeHost, default: str = '"${saved_entry}"', saved: str = f"gnulinux-{DEFAULT}"
) -> None:
    entries = "".join(map(MENU.format, (DEFAULT, OTHER)))
    fake.file("files/boot/grub/grub.cfg", GRUB.format(default=default, entries=entries))
    fake.file("files/boot/grub/grubenv", f"saved_entry={saved}\n" if saved else "# empty\n")
    fake.program("bin/grub-reboot", f'#!/bin/sh\nprintf %s "$1" > {fake.folder}/once\n')
    fake.program(
        "bin/grub-editenv",
        f'#!/bin/sh\n[ "$2 $3" = "unset next_entry" ] && exec rm -f {fake.folder}/once\n'
        f"echo next_entry=$(cat {fake.folder}/once)\n",
    )


@pytest.fixture
def grub(fake: FakeHost) -> FakeHost:
    with_grub(fake)
    return fake


def with_systemd_boot(fake: FakeHost, default: str = f"gnulinux-{DEFAULT}.conf") -> None:
    for release in (DEFAULT, OTHER):
        text = f"title Debian\nversion {release}\nlinux /id/{release}/linux\noptions root=x\n"
        fake.file(f"files/boot/efi/loader/entries/gnulinux-{release}.conf", text)
    fake.file("files/boot/efi/loader/loader.conf", f"timeout 1\ndefault {default}\n")
    variables = fake.folder / "files" / reboot.EFI_VARIABLES
    variables.mkdir(parents=True)
    said = b"\6\0\0\0" + "systemd-boot 252\0".encode("utf-16-le")
    (variables / f"LoaderInfo-{reboot.VENDOR}").write_bytes(said)
    once = variables / f"LoaderEntryOneShot-{reboot.VENDOR}"
    # A variable cannot be sought in: what is given to tail has to come through a pipe.
    fake.program("bin/tail", f'#!/bin/sh\n[ $# = 2 ] && exec {shutil.which("tail")} "$@"\nexit 1\n')
    fake.program(
        "bin/bootctl",
        f'#!/bin/sh\n[ "$1" = set-oneshot ] || exit 1\nprintf %s "$2" > {fake.folder}/once\n'
        f'printf "\\6\\0\\0\\0%s" "$2" | sed "s/./&/g" > {once}\n',
    )


def offered(tmp_path: Path) -> Offered:
    package = tmp_path / "package.deb"
    package.write_text("a package")
    return Offered(release=NEW, packages=((f"linux-image-{NEW}", package),))


def refused(ssh_host: SshHost, kernel: Offered, cause: str) -> pytest.ExceptionInfo[InfraError]:
    """Why it cannot be installed on the machine, which is held meanwhile."""
    with pytest.raises(InfraError, match=cause) as raised, ssh_host.holding("install", "now"):
        installing.install(ssh_host, kernel)
    return raised


@pytest.mark.parametrize("loader", [with_grub, with_systemd_boot])
def test_a_kernel_is_booted_once_by_the_loader_of_the_machine(
    fake: FakeHost, ssh_host: SshHost, loader: object
) -> None:
    assert callable(loader)
    loader(fake)
    assert ssh_host.boot(OTHER).release == OTHER
    assert ssh_host.boot(DEFAULT).release == DEFAULT
    assert "kexec -l" not in (fake.folder / "asked").read_text()
    assert fake.boots == [OTHER, DEFAULT]


def test_a_loader_that_did_not_take_it_boots_nothing(grub: FakeHost, ssh_host: SshHost) -> None:
    grub.program("bin/grub-editenv", "#!/bin/sh\necho next_entry=\n")
    with pytest.raises(PoolError, match="cannot be told to boot: the boot loader did not take it"):
        ssh_host.boot(OTHER)
    assert grub.boots == []


@pytest.mark.parametrize("kind", ["btrfs /dev/vda3[/@boot]", "ext4 /dev/mapper/vg-boot", "zfs r/b"])
def test_grub_that_cannot_forget_is_not_asked(grub: FakeHost, ssh_host: SshHost, kind: str) -> None:
    grub.program("bin/findmnt", f"#!/bin/sh\necho '{kind}'\n")
    assert ssh_host.boot(OTHER).release == OTHER
    assert "kexec -l" in (grub.folder / "asked").read_text()
    assert not (grub.folder / "once").exists()


def test_menus_of_systemd_boot_are_strangers(fake: FakeHost) -> None:
    with_systemd_boot(fake)
    root = fake.folder / "files"
    entries = root / "boot/efi/loader/entries"
    (entries / f"gnulinux-{OTHER}.conf").rename(entries / "later+2-1.conf")
    (entries / "-x;reboot.conf").write_text(f"version {OTHER}\n")
    (entries / "alone.conf").write_text(f"version {OTHER}\noptions root=x single\n")
    (entries / "binary.conf").write_bytes(b"\xff\x00version")
    way = reboot.ways(OTHER, root, "--reuse-cmdline")[0]
    assert way.choose == ("bootctl", "set-oneshot", "later.conf")
    assert not reboot.has_entry("6.13.0-test", root)


def test_kernel_is_installed_and_removed(grub: FakeHost, ssh_host: SshHost, tmp_path: Path) -> None:
    with ssh_host.holding("install", "now"):
        assert installing.install(ssh_host, offered(tmp_path))
        assert not installing.install(ssh_host, offered(tmp_path))  # it is there
    note = Note(release=NEW, packages=(f"linux-image-{NEW}",))
    assert installing.noted(ssh_host) == (note,)
    assert ssh_host.boot(NEW).release == NEW
    with pytest.raises(InfraError, match=f"box runs {NEW}, which cannot be removed"):
        installing.remove(ssh_host, note)
    ssh_host.boot(DEFAULT)
    installing.remove(ssh_host, note)
    assert installing.noted(ssh_host) == ()
    assert NEW not in ssh_host.releases()
    assert not grub.home.exists()
    assert not (grub.folder / "kernels").exists()


@pytest.mark.parametrize(
    ("loader", "told", "mend"),
    [
        (with_grub, ('"0"', "x"), "GRUB_DEFAULT=saved in /etc/default/grub"),
        # A number is another kernel's when one is added; GRUB takes the first for a name it lacks.
        *((with_grub, ('"${saved_entry}"', saved), f"grub-set-default gnulinux-{DEFAULT}")
          for saved in ("", "0", "1>2", "gnulinux-simple", "gnulinux-9.9.9")),
        *((with_systemd_boot, (default,), "bootctl set-default") for default in ("debian-*", "")),
    ],
)  # fmt: skip
def test_a_machine_that_would_boot_the_new_kernel_by_itself_gets_none(
    fake: FakeHost, ssh_host: SshHost, tmp_path: Path,
    loader: Callable[..., None], told: tuple[str, ...], mend: str,
) -> None:  # fmt: skip
    loader(fake, *told)
    with pytest.raises(InfraError, match=f"would boot {NEW} by itself") as raised:
        installing.install(ssh_host, offered(tmp_path))
    assert mend in (raised.value.action or "")
    assert not (fake.folder / "dpkg").exists()


def test_a_default_whose_name_the_new_menu_lacks_is_told_and_taken_back(
    fake: FakeHost, ssh_host: SshHost, tmp_path: Path
) -> None:
    with_grub(fake, saved=f"old-{DEFAULT}")
    menu = fake.folder / "files/boot/grub/grub.cfg"
    menu.write_text(menu.read_text().replace(f"'gnulinux-{DEFAULT}'", f"'old-{DEFAULT}'"))
    raised = refused(ssh_host, offered(tmp_path), f"would boot {NEW} by itself")
    assert f"grub-set-default gnulinux-{DEFAULT}" in (raised.value.action or "")
    assert "--purge" in (fake.folder / "dpkg").read_text()


@pytest.mark.parametrize(
    ("loader", "default"),
    [(with_grub, f"gnulinux-{OTHER}"), (with_systemd_boot, f"gnulinux-{OTHER}.conf")],
)
def test_a_machine_whose_own_kernel_may_not_come_up_gets_no_other_one(
    fake: FakeHost, ssh_host: SshHost, tmp_path: Path, loader: Callable[..., None], default: str
) -> None:
    loader(fake, **{"saved" if loader is with_grub else "default": default})
    with pytest.raises(
        InfraError, match=rf"runs {DEFAULT} and boots {OTHER} by itself, which may not come up"
    ) as raised:
        installing.install(ssh_host, offered(tmp_path))
    assert f"has come up with {OTHER}" in (raised.value.action or "")
    row = next(each for each in capabilities.rows(ssh_host) if each.name == "by itself")
    assert row.state is capabilities.Usability.UNUSABLE
    assert f"it boots {OTHER}" in row.detail
    assert not (fake.folder / "dpkg").exists()


@pytest.mark.usefixtures("grub")
def test_a_machine_that_boots_what_it_runs_is_well(ssh_host: SshHost) -> None:
    row = next(each for each in capabilities.rows(ssh_host) if each.name == "by itself")
    assert (row.state, row.detail) == (capabilities.Usability.OK, f"it boots {DEFAULT}")


def test_a_default_may_be_a_title(fake: FakeHost, ssh_host: SshHost, tmp_path: Path) -> None:
    with_grub(fake, saved=f"Debian {DEFAULT}")
    with ssh_host.holding("install", "now"):
        assert installing.install(ssh_host, offered(tmp_path))


@pytest.mark.parametrize(
    ("told", "stays"),
    [(f"gnulinux-{DEFAULT}.conf", True), (f"gnulinux-{DEFAULT}", True), ("@saved", False),
     ("gnulinux-*", False)],
)  # fmt: skip
def test_a_default_of_the_firmware_has_to_be_one_entry(
    fake: FakeHost, ssh_host: SshHost, told: str, *, stays: bool
) -> None:
    with_systemd_boot(fake, "")
    variable = f"LoaderEntryDefault-{reboot.VENDOR}"
    content = b"\7\0\0\0" + f"{told}\0".encode("utf-16-le")
    (fake.folder / "files" / reboot.EFI_VARIABLES / variable).write_bytes(content)
    with ssh_host.shown() as root:
        assert (reboot.would_change(DEFAULT, root) == "") is stays


def test_a_build_that_hooks_refuse_is_told_by_what_failed_with_the_mend(
    grub: FakeHost, ssh_host: SshHost, tmp_path: Path
) -> None:
    """As mkinitramfs says it, behind what it begins."""
    hook = (
        "#!/bin/sh\necho 'update-initramfs: Generating /boot/initrd.img' >&2\n"
        "echo 'W: zstd compression not supported, using gzip' >&2\n"
        "echo 'E: gzip compression (CONFIG_RD_GZIP) not supported by kernel' >&2\nexit 1\n"
    )
    grub.program("files/etc/kernel/postinst.d/initramfs-tools", hook)
    (grub.folder / "files/etc/kernel/postrm.d").mkdir()
    image = tmp_path / "bzImage"
    image.write_text("image")
    own = installing.of_build(NEW, image, None, None, tmp_path)
    raised = refused(ssh_host, own, r"cannot install .*: E: gzip compression")
    assert "name the build's .config with --config" in (raised.value.action or "")
    assert installing.noted(ssh_host) == ()
    assert NEW not in ssh_host.releases()


def test_no_sudo_is_told_before_anything_is_installed(
    grub: FakeHost, ssh_host: SshHost, tmp_path: Path
) -> None:
    grub.program("bin/id", "#!/bin/sh\necho 1000\n")
    grub.program("bin/sudo", "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    raised = refused(ssh_host, offered(tmp_path), r"cannot install .*: sudo: a password")
    assert "NOPASSWD: ALL" in (raised.value.action or "")
    assert installing.noted(ssh_host) == ()
    assert not (grub.folder / "dpkg").exists()


def test_a_full_disk_is_told_and_what_was_begun_is_taken_back(
    grub: FakeHost, ssh_host: SshHost, tmp_path: Path
) -> None:
    (grub.folder / "full").touch()
    (grub.folder / f"files/lib/modules/{NEW}").mkdir(parents=True)  # dpkg leaves it
    refused(ssh_host, offered(tmp_path), f"cannot install {NEW}: .*No space left on device")
    assert "--purge" in (grub.folder / "dpkg").read_text()
    assert not (grub.folder / f"files/lib/modules/{NEW}").exists()
    assert installing.noted(ssh_host) == ()
    assert ssh_host.holder() is None


def test_a_kernel_without_an_entry_is_taken_off(
    grub: FakeHost, ssh_host: SshHost, tmp_path: Path
) -> None:
    (grub.folder / "forgets").touch()
    refused(ssh_host, offered(tmp_path), f"no entry for {NEW} in its boot loader's menu")
    assert NEW not in ssh_host.releases()


def test_a_build_comes_with_its_modules(grub: FakeHost, ssh_host: SshHost, tmp_path: Path) -> None:
    hook = f"#!/bin/sh\necho $2 >> {grub.folder}/hooks\nexec {grub.folder}/bin/update-grub\n"
    for when in ("postinst.d", "postrm.d"):
        grub.program(f"files/etc/kernel/{when}/zz-grub", hook)
    modules = tmp_path / "out/lib/modules" / NEW
    (modules / "kernel").mkdir(parents=True)
    (modules / "modules.order").write_text("kernel/a.ko\n")
    (modules / "kernel/a.ko").write_text("module")
    (modules / "build").symlink_to("/secret")
    image = tmp_path / "bzImage"
    image.write_text("image")
    config = tmp_path / ".config"
    config.write_text("CONFIG_RD_ZSTD=y")
    own = installing.of_build(NEW, image, tmp_path / "out", config, tmp_path)
    (grub.folder / "files/lib/modules").mkdir(parents=True)
    with ssh_host.holding("install", "now"):
        assert installing.install(ssh_host, own)
    there = grub.folder / "files/lib/modules" / NEW
    assert (there / "kernel/a.ko").read_text() == "module"
    assert not (there / "build").is_symlink()
    assert (grub.folder / f"files/boot/vmlinuz-{NEW}").read_text() == "image"
    kept = grub.folder / f"files/boot/config-{NEW}"
    assert kept.read_text() == "CONFIG_RD_ZSTD=y"
    installing.remove(ssh_host, Note(release=NEW))
    assert not there.exists()
    assert not kept.exists()
    assert NEW not in ssh_host.releases()
    assert len((grub.folder / "hooks").read_text().splitlines()) == 2


def test_a_build_without_its_modules_is_refused(tmp_path: Path) -> None:
    (tmp_path / "6.1").mkdir()
    (tmp_path / "6.1/modules.order").touch()
    with pytest.raises(SpecError, match=f"no modules of {NEW}"):
        installing.of_build(NEW, tmp_path, tmp_path / "6.1", None, tmp_path)


@pytest.mark.parametrize(
    "text", ['{"release":"6.1; reboot"}', '{"release":"6.1","packages":["x -y"]}', "nonsense", "[]"]
)
def test_notes_of_others_are_not_obeyed(fake: FakeHost, ssh_host: SshHost, text: str) -> None:
    fake.file("kernels/6.1.json", f"{text}\n")
    with pytest.raises(InfraError, match="holds no notes of kdelta's"):
        installing.noted(ssh_host)


def test_a_machine_that_hangs_is_reset_once_for_a_boot(fake: FakeHost, tmp_path: Path) -> None:
    fake.goes_down()
    does = f"echo reset >> {tmp_path}/resets; rm -f {fake.folder}/down"
    reset = script(tmp_path / "reset", f"{does}\nexec {fake.folder}/bin/reboot")
    with connection("box", "ssh://box", threading.Event()) as connected:
        pool = HostPool(address="ssh://box", boot_s=0.3, most_boots=4, reset=(str(reset),))
        own = SshHost(connected, pool)
        with pytest.raises(BootError, match=f"came back with {DEFAULT}"):
            own.boot(OTHER)
        assert (tmp_path / "resets").read_text().split() == ["reset"]
        reset.write_text("#!/bin/sh\nexit 3\n")
        with pytest.raises(PoolError, match="is down and is not reset"):
            own.boot(OTHER)


@pytest.mark.usefixtures("grub")
def test_release_takes_off_what_was_installed(
    ssh_host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lab.toml").write_text('[pool.box]\nkind = "host"\naddress = "ssh://me@box"\n')
    with ssh_host.holding("install", "now"):
        installing.install(ssh_host, offered(tmp_path))
    done = CliRunner().invoke(cli, ["host", "release", "box"])
    assert (done.exit_code, done.output) == (0, f"box no longer has {NEW}\n")
    done = CliRunner().invoke(cli, ["host", "release", "box"])
    assert "nobody holds box" in done.output


def test_an_installation_goes_on_when_nobody_reads_it_and_the_next_one_waits(
    grub: FakeHost, ssh_host: SshHost, tmp_path: Path
) -> None:
    """Killed, kdelta leaves dpkg with a pipe that nobody reads; who releases it waits for it."""
    slow = DPKG.format(machine=grub.folder, new=NEW).replace(
        "-i) ",
        f"-i) touch {grub.folder}/begun; sleep 2\n"
        "    for each in $(seq 3000); do echo unpacking >&2 || exit 1; done\n"
        f"    echo installed >> {grub.folder}/dpkg; ",
    )
    grub.program("bin/dpkg", slow)
    child = os.fork()
    if child == 0:
        try:
            with connection("box", "ssh://me@box", threading.Event()) as own:
                theirs = SshHost(own, HostPool(address="ssh://box", boot_s=5, most_boots=4))
                theirs.take("kdelta host install", "now")
                installing.install(theirs, offered(tmp_path))
        finally:
            os._exit(0)
    while not (grub.folder / "begun").exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (note,) = installing.noted(ssh_host)
    installing.remove(ssh_host, note)
    done = [line.split()[0] for line in (grub.folder / "dpkg").read_text().splitlines()]
    assert done == ["-i", "installed", "--purge"]
    assert NEW not in ssh_host.releases()
    assert installing.noted(ssh_host) == ()
