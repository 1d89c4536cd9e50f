# SPDX-License-Identifier: GPL-2.0-or-later
"""What enters a guest: programs made for it, and an initramfs that other tools can read."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from kdelta import arch, data, guest, process
from kdelta.errors import BuildError

AMD64 = arch.of("amd64")


def test_cpio_reads_the_archive(tmp_path: Path) -> None:
    if process.which("cpio") is None:
        pytest.skip("cpio is not installed")
    archive = tmp_path / "archive.cpio"
    archive.write_bytes(guest.archive(b"the program"))
    listing = subprocess.run(
        ["cpio", "-tv"], stdin=archive.open("rb"), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert [line.split()[-1] for line in listing] == ["dev", "dev/console", "init"]
    assert [line[:10] for line in listing] == ["drwxr-xr-x", "crw-------", "-rwxr-xr-x"]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 100_001])
def test_members_are_where_the_format_says(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    found = members(guest.archive(content[:size]))
    assert list(found) == ["dev", "dev/console", "init", "TRAILER!!!"]
    assert found["init"] == (stat.S_IFREG | 0o755, content[:size])
    assert found["dev/console"][0] == stat.S_IFCHR | 0o600


def members(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """newc as Documentation/driver-api/early-userspace/buffer-format.rst has it."""
    found, at = {}, 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        body = (at + 110 + name_size + 3) & ~3
        found[name] = (mode, archive[body : body + size])
        at = (body + size + 3) & ~3
    return found


@pytest.mark.program
def test_the_initramfs_holds_a_static_pid_1() -> None:
    path = guest.initramfs(AMD64)
    init = members(path.read_bytes())["init"][1]
    assert init.startswith(b"\x7fELF")
    (path.parent / "init").write_bytes(init)
    with (path.parent / "init").open("rb") as stream:
        kinds = [segment["p_type"] for segment in ELFFile(stream).iter_segments()]
    assert "PT_INTERP" not in kinds
    assert guest.initramfs(AMD64) == path


@pytest.mark.program
def test_pid_1_does_nothing_on_this_machine() -> None:
    init = members(guest.initramfs(AMD64).read_bytes())["init"][1]
    program = guest.initramfs(AMD64).parent / "init"
    program.write_bytes(init)
    program.chmod(0o755)
    done = process.run([str(program)], timeout=10, check=False)
    assert done.returncode == 2
    assert "does nothing here" in done.stderr


@pytest.mark.program
def test_a_program_is_made_anew_when_its_text_changes(tmp_path: Path) -> None:
    source = tmp_path / "small.c"
    source.write_text('#include "kdelta.h"\nint main(void) { return 7; }\n')
    first = guest.program(source, AMD64)
    assert guest.program(source, AMD64) == first
    assert process.run([str(first)], timeout=10, check=False).returncode == 7
    source.write_text('#include "kdelta.h"\nint main(void) { return 8; }\n')
    second = guest.program(source, AMD64)
    assert second != first
    assert process.run([str(second)], timeout=10, check=False).returncode == 8


@pytest.mark.program
def test_a_program_that_does_not_compile(tmp_path: Path) -> None:
    source = tmp_path / "bad.c"
    source.write_text("int main(void) { return nothing; }\n")
    with pytest.raises(BuildError, match="bad does not compile") as caught:
        guest.program(source, AMD64)
    assert caught.value.place == str(source)
    assert "apt-get install gcc libc6-dev" in caught.value.action


@pytest.mark.program
def test_marks_are_as_the_plugin_reads_them(tmp_path: Path) -> None:
    """The bytes of the marks in a compiled program, by the encoding of kdelta.h's comment."""
    source = tmp_path / "marks.c"
    source.write_text(
        '#include "kdelta.h"\n'
        "int main(void) { KD_ARM(); KD_BEGIN(0); KD_END(0); KD_BEGIN(7); return 0; }\n"
    )
    code = guest.program(source, AMD64).read_bytes()
    for mark in (0x6B640300, 0x6B640100, 0x6B640200, 0x6B640107):
        assert code.count(b"\x0f\x1f\x80" + mark.to_bytes(4, "little")) == 1


def test_the_sources_are_there() -> None:
    assert {path.name for path in data.directory("guest").iterdir()} >= {"init.c", "kdelta.h"}
