# SPDX-License-Identifier: GPL-2.0-or-later
"""CPUs that a study asks for and a QEMU does not have: refused before anything is measured."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kdelta.errors import SpecError
from kdelta.guests import cpu_models
from kdelta.guests.emulator import Qemu
from kdelta.machine.axes import MachineSettings

LACKING = """\
q: warning: TCG doesn't support requested feature: CPUID.01H:ECX.pcid [bit 17]
q: warning: TCG doesn't support requested feature: CPUID.07H:EBX.avx512f [bit 16]
q: TCG doesn't support requested features
"""


def saying(folder: Path, words: str, status: int) -> Qemu:
    """A QEMU that ends so; its command line is kept beside it."""
    program = folder / "qemu"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/told; cat > {folder}/heard\n'
        f"printf %s {shlex.quote(words)} >&2; exit {status}\n"
    )
    program.chmod(0o755)
    return Qemu(program=program, version="10.0.2")


def asked(name: str, arch: str = "amd64") -> MachineSettings:
    return MachineSettings(cpu_model=name, arch=arch)


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("foo", "q: unable to find CPU model 'foo'\n", "has no CPU foo: unable to find CPU model"),
        ("qemu64,+foo", "q: Property 'x.foo' not found\n", "Property 'x.foo' not found; take a"),
        ("foo", "", "has no CPU foo; take a preset: everyday, icelake, zen3; or max"),
        ("Sky", LACKING, "write what it gives: Sky,pcid=off,avx512f=off; or"),
        ("qemu64,+pcid,+avx2,avx512f=on", LACKING, "write what it gives: qemu64,+avx2; or"),
        (
            "Sky,+avx512f",
            LACKING,
            "cannot give all of the CPU Sky,+avx512f; write what it",
        ),
    ],
)
def test_what_qemu_does_not_give_is_wrong_input(
    name: str, said: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        cpu_models.check(saying(tmp_path, said, 1), asked(name))
    assert told in caught.value.sentence()


def test_a_cpu_is_made_whole_and_its_machine_ends(tmp_path: Path) -> None:
    cpu_models.check(saying(tmp_path, "", 0), asked("qemu64,+avx2"))
    words = (tmp_path / "told").read_text().splitlines()
    assert words[words.index("-cpu") + 1] == "qemu64,+avx2,enforce=on"
    assert (tmp_path / "heard").read_text() == "quit\n"
    cpu_models.check(saying(tmp_path, "", 0), asked("cortex-a57", "arm64"))
    assert "cortex-a57" in (tmp_path / "told").read_text().splitlines()


def test_presets_start_nothing(tmp_path: Path) -> None:
    cpu_models.check(saying(tmp_path, "no", 1), asked("everyday"))
    assert not (tmp_path / "told").exists()
