# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs on the disk with raw counts, and bundles of them as a stranger may have made them."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from msgspec.structs import replace

from kdelta import process, workload
from kdelta.guests import qemu
from kdelta.journal import results
from kdelta.journal.bundle import MANIFEST, manifest
from kdelta.journal.run import RunRecord
from kdelta.machine import cpu
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import MachineSeen
from kdelta.run.guest_trial import load_symbols
from kdelta.sample import (
    Environment,
    FunctionCount,
    MachineFacts,
    PhaseCounts,
    StateField,
    TrialRecord,
    TrialResult,
)
from kdelta.study.plan import make_plan
from run_records import kept

MAGIC = 0x3230544C45444B00


BASE = 0xFFFFFFFF81000000
IDS = {"protect": 0, "restore": 1, "touch": 2}
IMAGE = "cd" * 32  # of ladder_records
BUILD_ID, COMPILER = "5e" * 20, "gcc-14 (Debian 14.2.0-19) 14.2.0"
GUEST = MachineSettings()
PRESET = cpu.preset(GUEST.cpu_model, GUEST.arch)
SEEN = MachineSeen(
    cpu=PRESET.seen if PRESET else "", cpus=1, memory_mib=966, nodes=1, cmdline=GUEST.full_cmdline,
    mitigations=("meltdown Mitigation: PTI",),
)  # fmt: skip
HAS: dict[str, Any] = {
    "accelerator": "tcg", "machine": GUEST.target.machine, "cpu_model": GUEST.cpu_model, "cpus": 1,
    "memory_mib": GUEST.memory_mib, "cmdline": SEEN.cmdline, "mitigations": SEEN.mitigations[0],
}  # fmt: skip


def symbols(record: RunRecord) -> None:
    """Put the functions of its kernels into the cache, as a guest told them."""
    lines = [f"{BASE + (at << 12):016x} T {name}" for name, at in named(record).items()]
    lines += [f"{BASE + (at << 12):016x} t pad_{at}" for at in range(len(lines), 1200)]
    load_symbols(IMAGE, lambda: "\n".join(lines))


def named(record: RunRecord) -> dict[str, int]:
    """The functions of a run, each with a number."""
    rows = [row.function for one in record.trials for row in one.exact.functions]
    return {name: at for at, name in enumerate(sorted({*rows} - {"[user]"}))}


def whole(result: TrialResult, trial: TrialRecord, own: dict[str, int]) -> TrialResult:
    """The result with all that its scenario's TOML wants, as kdelta makes it of `counts_of`."""
    scenario = workload.load(trial.workload).scenario(trial.scenario)
    data = result.exact
    middle = PhaseCounts(
        phase="restore", operations=data.phases[0].operations, operation="page",
        user=(3,) * 8, kernel=(7,) * 8,
    )  # fmt: skip
    phases = [replace(one, switched=(False,) * 8) for one in (data.phases[0], middle)]
    phases.append(replace(data.phases[1], switched=(False,) * 8))
    rows = [replace(row, calls=0) if row.function == "[user]" else row for row in data.functions]
    rows.append(FunctionCount(phase="restore", function="[user]", insns=3, calls=0))
    rows.append(FunctionCount(phase="restore", function=min(own), insns=7, calls=1))
    rows.sort(key=lambda row: (IDS[row.phase], -row.insns, row.function))
    told = result.environment or Environment(qemu_version="10.0.2", plugin_sha256="", **HAS)
    return replace(
        result,
        environment=replace(told, **HAS),
        fresh_boot=False,
        data=replace(data, phases=tuple(phases), functions=tuple(rows)),
        state=tuple(
            StateField(when=when, name=fact.name, value=fact.want, want=fact.want)
            for when in ("before", "after")
            for fact in scenario.contract
        ),
        facts=MachineFacts(asked=GUEST, guest=SEEN, workload_exit=0),
    )


def command(trial: TrialRecord) -> str:
    """How its guest was started, and its orders."""
    at, build = Path("$CACHE/checkpoints/ab"), Path("$CACHE/build/cd")
    launch = qemu.Launch(image=at, initramfs=at, program=build / trial.workload, restore=at)
    channels = qemu.Channels(port=5, serial=6, console=7, orders=8, qmp=9, state=10)
    emulator = qemu.Qemu(
        program=Path("$CACHE/emulators/10.0.2+ds-2_amd64_ab/usr/bin") / GUEST.target.qemu,
        arguments=("-L", "$CACHE/emulators/10.0.2+ds-2_amd64_ab/usr/share/qemu"),
    )
    words = qemu.command(emulator, GUEST, launch, channels)
    words += ["-plugin", f"{build}/insns.so,out=$TRIAL/counts.bin"]
    seed = f"{trial.round + 1} " * 3
    run = f"--protocol --iterations 8 --warmup 2 {trial.scenario}"
    return f"{process.quote(words)}\n# identity\n# seed {seed}0\n# run {run}\n"


def printed(result: TrialResult, trial: TrialRecord) -> str:
    """What its program printed."""
    phases = result.exact.phases
    lines = [f"kdelta-workload 1 {trial.workload} {trial.scenario}"]
    lines += [f"phase {IDS[p.phase]} {p.phase} {p.operation} {p.operations}" for p in phases]
    lines += [f"state {s.when} {s.name} {s.value} {s.want}" for s in result.state]
    lines += [
        f"sample {p.phase} {at} 5 {p.operations}" for p in phases for at in range(len(p.user))
    ]
    return "\n".join([*lines, "end 0"]) + "\n"


def counts_of(result: TrialResult, own: dict[str, int]) -> bytes:
    """The plugin's stream of these windows: each function has two addresses, the rest is in one."""
    words = [1, 4, MAGIC, 1, 1, 1, 4, 0, 7, 2, 0, 0x400000]
    for at in own.values():
        words += [7, 2, 2 * at + 1, BASE + (at << 12), 7, 2, 2 * at + 2, BASE + (at << 12) + 1]
    windows = 0
    for phase in result.exact.phases:
        rows = [row for row in result.exact.functions if row.phase == phase.phase]
        for user, kernel in zip(phase.user, phase.kernel, strict=True):
            counts = {0: user}
            for row in rows:
                if row.function != "[user]":
                    counts[2 * own[row.function] + 1] = row.calls
                    counts[2 * own[row.function] + 2] = row.insns - row.calls
            counts[max(counts)] += user + kernel - sum(counts.values())
            body = [
                0,
                IDS[phase.phase],
                user,
                kernel,
                0,
                0,
                *(w for row in counts.items() for w in row),
            ]
            words += [2, len(body), *body]
            windows += 1
    words += [5, 2, windows, 9]
    return struct.pack(f"<{len(words)}Q", *words)


def stored(record: RunRecord, folder: Path, *, raw: bool = True) -> Path:
    own = named(record)
    kernels = tuple(arm.kernel.reference for arm in record.arms)
    study = replace(
        record.study, kernels=kernels, plan=replace(record.study.plan, rounds=record.rounds)
    )
    results_of = {(one.round, one.arm, one.scenario): one.result for one in record.trials}
    trials = []
    for one in make_plan(study, record.seed):
        result = results_of[one.round, one.arm, one.scenario]
        if raw and result:
            read = {"build_id": BUILD_ID, "compiler": COMPILER}
            names = ("console.log", "workload.txt", "counts.bin.gz", "command.txt")
            result = replace(
                whole(result, one, own),
                kernel=replace(record.arms[one.arm].kernel, **read),
                artifacts={
                    name.partition(".")[0]: f"trials/{one.index:04d}/{name}" for name in names
                },
            )
        trials.append(replace(one, result=result))
    record = replace(
        record,
        trials=tuple(trials),
        study=study,
        run_id=f"{record.name}-20261120-101500{record.run_id[20:]}",
    )
    kept(record, folder)
    (folder / "attempts.json").write_text(json.dumps({one.index: 1 for one in record.trials}))
    for trial in record.trials:
        assert trial.result
        place = results.trial_folder(folder, trial.index)
        (place / "console.log").write_text("it booted\n")
        if raw:
            (place / "command.txt").write_text(command(trial))
            (place / "workload.txt").write_text(printed(trial.result, trial))
            packed = gzip.compress(counts_of(trial.result, own), mtime=0)
            (place / "counts.bin.gz").write_bytes(packed)
    return folder


def call(command: object, *words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])  # type: ignore[arg-type]


def sealed(files: dict[str, bytes], path: Path) -> Path:
    """Write a bundle whose manifest fits what was changed."""
    del files[MANIFEST]
    files[MANIFEST] = manifest(files)
    return written(files, path)


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]


def written(files: dict[str, bytes], path: Path) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path
