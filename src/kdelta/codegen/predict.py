# SPDX-License-Identifier: GPL-2.0-or-later
"""What llvm-mca predicts for a hot loop on CPUs that are not here.  A direction, no measurement."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdelta import process
from kdelta.arch import Arch
from kdelta.disassembly.code import Code, Flow
from kdelta.errors import InfraError
from kdelta.files import decoded

CPUS = {
    "amd64": ("znver4", "icelake-server", "sapphirerapids"),
    "arm64": ("neoverse-n1", "neoverse-v2"),
}
LIMITS = (
    "Predicted by llvm-mca's model of each CPU for the hot loop alone, repeated: no caches or TLB, "
    "no branch prediction or limit on taken branches, no front end, calls as they stand in the "
    "listing. A direction, not a time."
)
ALIKE = (
    "the same in each of these: their models limit this loop alike, and tell no CPU from another."
)
_ITERATIONS = 1000
_MCA_S = 60.0
_PREFIX = re.compile(r"^(?:(?:cs|ds|notrack|bnd|data16) )+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Cycles that one pass of the hot loop takes on a CPU; instructions that it has."""

    cpu: str
    cycles: float
    instructions: int
    tool: str  # "LLVM version 19.1.7"


class _Summary(msgspec.Struct, kw_only=True):
    instructions: int = msgspec.field(name="Instructions")
    iterations: int = msgspec.field(name="Iterations")
    cycles: int = msgspec.field(name="TotalCycles")


class _Region(msgspec.Struct, kw_only=True):
    summary: _Summary = msgspec.field(name="SummaryView")


class _Output(msgspec.Struct, kw_only=True):
    regions: list[_Region] = msgspec.field(name="CodeRegions")


def predict(
    program: Path, code: Code, trace: Sequence[int], architecture: Arch, cpus: Sequence[str]
) -> tuple[Prediction, ...]:
    """Cycles of one pass over the instructions of a trace, for CPUs by LLVM's names.

    program: llvm-mca.  Raises InfraError when it does not know a CPU or an instruction.
    """
    if not trace:
        return ()
    done = process.run([str(program), "--version"], timeout=_MCA_S).stdout
    match = re.search(r"LLVM version [\w.]+", done)
    tool = match[0] if match else "llvm-mca"
    with tempfile.NamedTemporaryFile("w", prefix="kdelta-mca-", suffix=".s") as file:
        file.write(assembly(code, trace))
        file.flush()
        return tuple(_one(program, Path(file.name), architecture, cpu, tool) for cpu in cpus)


def alike(cells: Sequence[Sequence[Prediction]]) -> tuple[tuple[str, ...], ...]:
    """CPUs whose models give the same cycles for every one of several codes, as groups.

    That says that the models limit these loops alike, not that the CPUs are as fast.
    """
    cycles: dict[str, list[float]] = {}
    for cell in cells:
        for one in cell:
            cycles.setdefault(one.cpu, []).append(one.cycles)
    groups: dict[tuple[float, ...], list[str]] = {}
    for cpu, values in cycles.items():
        groups.setdefault(tuple(values), []).append(cpu)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def assembly(code: Code, trace: Sequence[int]) -> str:
    """The trace as an assembler takes it: every branch and call goes to one local label."""
    lines = [".Lelsewhere:"]
    for index in trace:
        instruction = code.instructions[index]
        words = _PREFIX.sub("", instruction.raw)
        if instruction.kind is not Flow.PLAIN:
            words = re.sub(r"0x[0-9a-f]+$", ".Lelsewhere", words)
        lines.append(f"\t{words}")
    return "\n".join(lines) + "\n"


def _one(program: Path, file: Path, architecture: Arch, cpu: str, tool: str) -> Prediction:
    argv = [
        str(program), f"-mtriple={architecture.gnu}", f"-mcpu={cpu}",
        f"-iterations={_ITERATIONS}", "-json", str(file),
    ]  # fmt: skip
    done = process.run(argv, timeout=_MCA_S, check=False)
    if done.returncode:
        error = next((line for line in done.stderr.splitlines() if "error" in line), "")
        raise InfraError(f"llvm-mca cannot predict for {cpu}: {error[:200] or done.last_words}")
    try:
        summary = decoded(done.stdout, _Output).regions[0].summary
        cycles = summary.cycles / summary.iterations
    except (msgspec.MsgspecError, IndexError, ZeroDivisionError) as error:
        raise InfraError(f"llvm-mca says what is not understood: {error}") from error
    return Prediction(cpu=cpu, cycles=cycles, instructions=summary.instructions, tool=tool)
