# SPDX-License-Identifier: GPL-2.0-or-later
"""Swap of a guest: what it needs from outside, QEMU's part of it, and that it is read back."""

from __future__ import annotations

import contextlib
import errno
import itertools
import threading
from pathlib import Path
from typing import Literal

import pytest
from msgspec import structs

from fake_qemu import IDENTITY
from kdelta import guest, workload
from kdelta.attribution.symbols import Symbols
from kdelta.errors import GuestError, InfraError
from kdelta.guests import checkpoint, qemu
from kdelta.guests.orders import SWAP_BYTES, SwapBacking, swap_backing, swap_orders
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, mismatches
from kdelta.machine.identity import parse_identity
from kdelta.run import counting
from kdelta.run.guest_trial import Bench

SETTINGS = MachineSettings()
RELEASE = "6.17.13+deb13-cloud-amd64"


def kernel(config: Path | None = None) -> Kernel:
    return Kernel(
        reference="file:bzImage", release=RELEASE, arch="amd64", image=Path("bzImage"),
        image_sha256="0" * 64, config=config,
    )  # fmt: skip


def test_nothing_is_asked_nothing_is_given(tmp_path: Path) -> None:
    with swap_backing(SETTINGS, kernel(), tmp_path) as given:
        assert given == SwapBacking()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_is_sparse_and_goes_with_its_guest(tmp_path: Path) -> None:
    settings = structs.replace(SETTINGS, swap="disk")
    (tmp_path / "swap.img").write_bytes(b"left by a killed process")
    with contextlib.suppress(RuntimeError), swap_backing(settings, kernel(), tmp_path) as given:
        assert given.disk is not None
        assert given.disk.stat().st_size == SWAP_BYTES
        assert given.disk.stat().st_blocks * 512 < 1 << 20
        assert given.modules == ()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_be_made_is_this_machines_fault(tmp_path: Path) -> None:
    settings = structs.replace(SETTINGS, swap="disk")
    with (
        pytest.raises(InfraError, match="cannot be written"),
        swap_backing(settings, kernel(), tmp_path / "none"),
    ):
        pytest.fail("a disk where there is no folder")


def test_zram_without_a_package_is_tried_as_built_in(tmp_path: Path) -> None:
    settings = structs.replace(SETTINGS, swap="zram")
    with swap_backing(settings, kernel(), tmp_path) as given:
        assert given.modules == ()
        assert given.without == "file:bzImage did not come in a package, which would have modules"
    config = tmp_path / "config"
    config.write_text("CONFIG_ZRAM_BACKEND_LZ4=y\nCONFIG_ZRAM=y\n")
    with swap_backing(settings, kernel(config), tmp_path) as given:
        assert given == SwapBacking()
    config.write_text("CONFIG_ZRAM=m\n")
    with swap_backing(settings, kernel(config), tmp_path) as given:
        assert given.without


@pytest.mark.parametrize(("wanted", "different"), [("zram", 2), ("disk", 1), ("", 1)])
def test_counts_depend_on_a_configuration_that_was_read(
    wanted: Literal["", "disk", "zram"],
    different: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "key", lambda *_: "checkpoint")
    for where, name in ((qemu, "plugin"), (guest, "program")):
        monkeypatch.setattr(where, name, lambda *_, **__: Path(__file__))
    load, scenario = workload.parse_reference("mincore:no_thp_pte_scan_4m")
    bench = Bench(
        emulator=EMULATOR, settings=structs.replace(SETTINGS, swap=wanted), fresh_boot=False,
        timeout_s=1, cancelled=threading.Event(),
    )  # fmt: skip
    config = tmp_path / "config"
    found = set()
    for text in ("CONFIG_ZRAM=y\n", "CONFIG_ZRAM=m\n", "CONFIG_ZRAM=y\n"):
        config.write_text(text)
        found.add(counting.depends_on(bench, kernel(config), scenario, load.program))
    assert len(found) == different


CHANNELS = qemu.Channels(port=3, serial=4, console=5, orders=6)
EMULATOR = qemu.Qemu(program=Path("/qemu"), banner="QEMU", version="10.0.2")


def test_qemu_offers_modules_and_disk() -> None:
    launch = qemu.Launch(
        image=Path("/bzImage"), initramfs=Path("/initramfs"), program=Path("/program"),
        modules=(Path("/0/zsmalloc.ko"), Path("/1/zram.ko")), disk=Path("/a,b/swap.img"),
    )  # fmt: skip
    pairs = list(itertools.pairwise(qemu.command(EMULATOR, SETTINGS, launch, CHANNELS)))
    assert [value for option, value in pairs if option == "-fw_cfg"] == [
        "name=opt/org.kdelta/orders,file=/proc/self/fd/6",
        "name=opt/org.kdelta/program,file=/program",
        "name=opt/org.kdelta/zsmalloc,file=/0/zsmalloc.ko",
        "name=opt/org.kdelta/zram,file=/1/zram.ko",
    ]
    assert dict(pairs)["-drive"].endswith("format=raw,cache=unsafe,file=/a,,b/swap.img")
    assert ("-device", "nvme,drive=disk,serial=kdelta") in pairs


def test_what_a_guest_is_told_and_what_it_lacks_when_that_fails() -> None:
    assert swap_orders(SETTINGS, SwapBacking()) == ()
    (disk,) = swap_orders(structs.replace(SETTINGS, swap="disk"), SwapBacking())
    assert disk.line == "swapon /dev/nvme0n1"
    assert disk.lacks
    assert "CONFIG_BLK_DEV_NVME=y" in disk.lacks(errno.ENOENT)
    zram = structs.replace(SETTINGS, swap="zram")
    told = swap_orders(zram, SwapBacking(modules=(Path("/0/zram.ko"),)))
    assert [order.line for order in told] == [
        "module zram", "write /sys/block/zram0/comp_algorithm lz4",
        f"write /sys/block/zram0/disksize {SWAP_BYTES}", "swapon /dev/zram0", "modules",
    ]  # fmt: skip
    assert [order.lacks(errno.EINVAL) for order in told if order.lacks] == [
        "swap: loading zram: Invalid argument",
        "swap: zram does not take comp_algorithm lz4: Invalid argument",
        f"swap: zram does not take disksize {SWAP_BYTES}: Invalid argument",
        "swap: swapon /dev/zram0: Invalid argument",
    ]
    without = swap_orders(zram, SwapBacking(without="no package"))[0]
    assert without.lacks
    assert without.lacks(errno.ENOENT) == (
        "swap: the kernel has no zram built in, and no package; swap on a disk needs none"
    )


@pytest.mark.parametrize(
    ("asked", "told", "phrase"),
    [
        ("", "", ""), ("zram", "/dev/zram0 262140", ""), ("disk", "/dev/nvme0n1 262140", ""),
        ("", "/dev/sda2 1000", "swap is /dev/sda2 1000, asked for none"),
        ("zram", "", "swap is none, asked for zram"),
        ("disk", "/dev/zram0 262140", "swap is zram, asked for disk"),
    ],
)  # fmt: skip
def test_swap_is_read_back(asked: Literal["", "disk", "zram"], told: str, phrase: str) -> None:
    identity = parse_identity(IDENTITY.replace("\nswap\n", f"\nswap {told}\n").splitlines())
    assert identity.seen.swap == told
    found = mismatches(structs.replace(SETTINGS, swap=asked), RELEASE, identity)
    assert found == ((phrase,) if phrase else ())


def test_functions_of_modules_join_those_of_the_kernel() -> None:
    kernels = Symbols((0x1000, 0x5000), ("low", "high"))
    lines = "0000000000003000 t zram_write\t[zram]\n0000000000003040 d data\t[zram]\n"
    table = kernels.with_modules(lines + "0000000000006000 T lz4_pack\t[lz4]\n")
    assert [table.find(at)[0] for at in (0x1004, 0x3030, 0x3050, 0x5004, 0x6004)] == [
        *("low", "zram_write", "[unknown]", "high", "lz4_pack")
    ]
    assert kernels.find(0x3050)[0] == "low"
    with pytest.raises(GuestError, match="garbage"):
        kernels.with_modules("what is this\n")
