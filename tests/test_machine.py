# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest says of itself, and whether that is what was asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import pytest
from msgspec import Meta, structs

from fake_qemu import IDENTITY
from kdelta import arch, data
from kdelta.cli.run import run
from kdelta.errors import GuestError, SpecError
from kdelta.machine import axes, cpu
from kdelta.machine.identity import parse_identity

SETTINGS = axes.MachineSettings()
RELEASE = "6.17.13+deb13-cloud-amd64"
POOL = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"


def test_an_answer_is_read() -> None:
    identity = parse_identity(IDENTITY.splitlines())
    assert identity.release == RELEASE
    assert identity.seen.thp == "madvise"
    assert identity.seen.preempt == "lazy"
    assert (identity.seen.cpus, identity.seen.memory_mib, identity.seen.nodes) == (1, 983, 1)
    assert identity.seen.mitigations == ("spectre_v2 Mitigation: Retpolines; STIBP: disabled",)
    assert identity.compiler == "x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"


def test_what_was_got_as_asked_is_no_mismatch() -> None:
    assert axes.mismatches(SETTINGS, RELEASE, parse_identity(IDENTITY.splitlines())) == ()
    assert axes.mismatches(SETTINGS, "", parse_identity(IDENTITY.splitlines())) == ()


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"release": "6.16"}, f"kernel release is 6.16, the image says {RELEASE}"),
        ({"machine": "aarch64"}, "machine is aarch64, asked for x86_64"),
        ({"cpus": 2}, "cpus is 2, asked for 1"),
        ({"cpu": "AuthenticAMD 663"}, "cpu_model is AuthenticAMD 663, asked for everyday"),
        ({"memory_mib": 700}, "memory_mib is 700, asked for 1024"),
        ({"memory_mib": 1025}, "memory_mib is 1025, asked for 1024"),
        ({"cmdline": "quiet"}, "command line is 'quiet'"),
    ],
)
def test_each_mismatch_is_named(change: dict[str, str | int], phrase: str) -> None:
    identity = parse_identity(IDENTITY.splitlines())
    said = {name: value for name, value in change.items() if name not in ("release", "machine")}
    own = {name: value for name, value in change.items() if name not in said}
    seen = structs.replace(identity.seen, **said)
    identity = replace(identity, seen=seen, **own)  # type: ignore[arg-type]
    (found,) = axes.mismatches(SETTINGS, RELEASE, identity)
    assert phrase in found


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ("cpus 1", "cpus one", "does not say its cpus"),
        ("release ", "rlease ", "something unknown of itself: 'rlease"),
        ("port virtio\n", "", "does not say its port"),
        ("\nswap\n", "\n", "does not say its swap"),
        ("nodes 1", "nodes 1\x1b[2J", "garbage of itself"),
        ("nodes 1", "nodes " + "1" * 5000, "garbage of itself"),
        ("memory-mib 983", "memory-mib -1", "does not say its memory-mib"),
    ],
)
def test_garbage_is_refused(before: str, after: str, cause: str) -> None:
    assert before in IDENTITY
    with pytest.raises(GuestError, match=cause.replace("[", r"\[")):
        parse_identity(IDENTITY.replace(before, after).splitlines())


def test_a_preset_is_every_feature_of_it_and_refuses_what_qemu_lacks() -> None:
    _, words = structs.replace(SETTINGS, cpu_model="icelake").qemu_options[4:6]
    model, *features = words.split(",")
    assert (model, features[0]) == ("Icelake-Server-v1", "enforce=on")
    assert "spec-ctrl=off" in features
    assert structs.replace(SETTINGS, cpu_model="max").qemu_options[4:6] == ["-cpu", "max"]


def test_a_model_of_qemu_s_own_is_whatever_qemu_makes_of_it() -> None:
    identity = parse_identity(IDENTITY.splitlines())
    asked = structs.replace(SETTINGS, cpu_model="max")
    assert axes.mismatches(asked, RELEASE, identity) == ()


def test_a_cpu_whose_guests_are_not_restored_is_refused_before_one_boots() -> None:
    settings = structs.replace(SETTINGS, arch="riscv64", cpu_model="max,v=off")
    with pytest.raises(SpecError, match="does not restore saved guests of riscv64"):
        settings.qemu_options  # noqa: B018
    assert structs.replace(settings, cpu_model="rva22s64,zacas=on").qemu_options
    assert structs.replace(settings, arch="arm64", cpu_model="max").qemu_options


def test_every_architecture_has_the_default_preset() -> None:
    for target in arch.ARCHES:
        assert cpu.preset(SETTINGS.cpu_model, target), target
    assert cpu.preset("zen3", "arm64") is None
    told = [cpu.told("everyday", target) for target in ("amd64", "arm64")]
    assert told == ["everyday (QEMU's qemu64-v1, 41 features set)", "everyday (QEMU's neoverse-n1)"]
    assert cpu.told("qemu64,+avx2", "amd64") == "qemu64,+avx2"


def test_endless_mitigations_are_refused() -> None:
    lines = [*IDENTITY.splitlines(), *["mitigation x y"] * 300]
    with pytest.raises(GuestError, match="unknown of itself"):
        parse_identity(lines)


def test_command_line_of_the_kernel() -> None:
    before = "console=ttyS0 quiet nokaslr panic=-1"
    assert SETTINGS.full_cmdline.startswith(f"{before} cryptomgr.notests=1 initcall_blacklist=")
    other = structs.replace(SETTINGS, cmdline="mem=1G")
    assert other.full_cmdline.endswith("=jent_mod_init mem=1G")


def test_what_is_set_at_run_time_and_what_at_boot() -> None:
    settings = structs.replace(
        SETTINGS, preempt="full", mitigations="off", thp="never", mthp="64kB=always,32kB=never",
        hugepages_2m=8,
    )  # fmt: skip
    assert "preempt=full mitigations=off" in settings.full_cmdline
    thp = "/sys/kernel/mm/transparent_hugepage"
    assert settings.files == (
        (f"{thp}/enabled", "never"),
        (f"{thp}/hugepages-64kB/enabled", "always"),
        (f"{thp}/hugepages-32kB/enabled", "never"),
        ("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8"),
    )


def test_the_reference_has_every_key_as_the_table_has_it() -> None:
    text = (data.directory("studies").parent / "docs" / "study.md").read_text()
    for name, kind, what in axes.described():
        default = getattr(SETTINGS, name)
        own = axes.AXES[name].own if default == "" else f"`{json.dumps(default)}`"
        row = f"| `{name}` | {values(name, kind)} | {own} | {what} |"
        assert row in text, f"docs/study.md lacks this line:\n{row}"


def values(name: str, kind: Any) -> str:
    """What a key takes, as the reference words it."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{json.dumps(word)}`" for word in get_args(kind) if word)
    fields = {field.name: field.type for field in structs.fields(axes.MachineSettings)}
    meta = next(note for note in fields[name].__metadata__ if isinstance(note, Meta))
    return meta.description or f"{meta.ge} to {meta.le}"


def test_a_new_axis_is_an_entry_and_nothing_else() -> None:
    """What every table, option and check makes of the entries, for each of them."""
    assert set(axes.Matrix.__struct_fields__) == set(axes.Needs.__struct_fields__) == set(axes.AXES)
    options = {option for param in run.params for option in param.opts}
    for name in axes.AXES:
        assert f"--{name.replace('_', '-')}" in options


@pytest.mark.parametrize(
    ("asked", "seen", "words"),
    [
        ({"preempt": "lazy"}, {"preempt_models": ("none", "full")}, "offers only none, full"),
        ({"preempt": "full"}, {"preempt_models": ()}, "does not choose its preemption"),
        ({"hugepages_1g": 2}, {"files": {POOL: "1"}}, "hugepages_1g: the kernel gave 1 of 2"),
        ({"hugepages_1g": 2}, {"files": {POOL: "2"}}, ""),
        ({"preempt": "full"}, {"preempt_models": ("none", "full")}, ""),
        ({}, {}, ""),
    ],
)
def test_what_a_kernel_lacks(asked: dict[str, Any], seen: dict[str, Any], words: str) -> None:
    identity = replace(parse_identity(IDENTITY.splitlines()), **seen)
    found = axes.lacking(structs.replace(SETTINGS, **asked), identity)
    assert words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize(
    ("asked", "phrase"),
    [
        ({"nodes": 2}, "nodes is 1, asked for 2"),
        ({"thp": "never"}, "thp is madvise, asked for never"),
        ({"preempt": "none"}, "preempt is lazy, asked for none"),
        ({"mthp": "64kB=always"}, "hugepages-64kB/enabled is madvise, asked for always"),
    ],
)
def test_an_axis_that_was_not_got_is_a_mismatch(asked: dict[str, Any], phrase: str) -> None:
    identity = parse_identity(IDENTITY.splitlines())
    settings = structs.replace(SETTINGS, **asked)
    files = {path: "always [madvise] never" for path, _ in settings.files}
    seen = structs.replace(identity.seen, cmdline=settings.full_cmdline)
    identity = replace(identity, seen=seen, files=files)
    assert phrase in "; ".join(axes.mismatches(settings, RELEASE, identity))
