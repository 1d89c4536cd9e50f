# SPDX-License-Identifier: GPL-2.0-or-later
"""Which instructions an exact run executed, and whose code it is."""

from __future__ import annotations

import gzip
from array import array
from pathlib import Path

import pytest
from msgspec.structs import replace

import counts_stream
import run_records
from kdelta import arch, sample
from kdelta.attribution.insns import CountedWindow
from kdelta.codegen import table
from kdelta.codegen.table import Cell, CodeTable, Executed, Hot, marked
from kdelta.disassembly.code import Code, Function, disassemble
from kdelta.errors import SpecError, StoreError
from kdelta.journal.run import RunRecord
from ladder_records import recounted

START = counts_stream.KERNEL + 0x40
X86 = arch.of("amd64")
# xor %eax,%eax; L: add $1,%rax; test $8,%al; je M; inc %ecx; M: cmp %rdi,%rax; jne L; ret
BYTES = bytes.fromhex("31c0 4883c001 a808 7402 ffc1 4839f8 75f1 c3".replace(" ", ""))
OFFSETS = (0, 2, 6, 8, 10, 12, 15, 17)
PAGES = 1000


@pytest.fixture
def code() -> Code:
    found = disassemble(Function(name="f", code=BYTES, start=START), X86)
    assert [instruction.offset for instruction in found.instructions] == list(OFFSETS)
    return found


def phase(*counts: int, name: str = "scan") -> sample.PhaseCounts:
    return sample.PhaseCounts(
        phase=name, operations=PAGES, operation="page", user=tuple(0 for _ in counts), kernel=counts
    )


def addresses(inc: int = 3) -> dict[int, int]:
    once, often = 1, PAGES
    values = (once, often, often, often, inc, often, often, once)
    return {START + at: count for at, count in zip(OFFSETS, values, strict=True)}


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, RunRecord]:
    """A run folder whose trial 0 kept two windows of phase 5, and what its result says."""
    record = run_records.new_run()
    trial = tmp_path / "trials" / "0000"
    trial.mkdir(parents=True)
    raw = counts_stream.write(
        tmp_path / "counts.bin", counts_stream.HEADER, counts_stream.ARMED,
        counts_stream.window({START: 5}, phase=1), counts_stream.window(addresses(), phase=5),
        counts_stream.window(addresses() | {START + 0x200: 40}, phase=5),
        counts_stream.window(addresses(), phase=5), counts_stream.END,
    )  # fmt: skip
    (trial / "counts.bin.gz").write_bytes(gzip.compress(raw.read_bytes()))
    total = sum(addresses().values())
    phases = (phase(5, name="open"), phase(total, total + 40, total))
    result = replace(recounted(run_records.result_of(0), phases=phases), artifacts={})
    trials = (replace(record.trials[0], result=result), *record.trials[1:])
    return tmp_path, replace(record, trials=trials)


def read(run: tuple[Path, RunRecord], code: Code, name: str = "scan") -> Hot:
    result = run[1].trials[0].result
    assert result is not None
    return table.hottest(run[0], 0, result, name, START, code, "run")


def test_counts_per_instruction_are_those_of_the_modal_window(
    run: tuple[Path, RunRecord], code: Code
) -> None:
    found = read(run, code)
    assert found.counts == (1, PAGES, PAGES, PAGES, 3, PAGES, PAGES, 1)
    assert found.elsewhere == 0
    assert found.per_operation == pytest.approx(5.005)
    assert found.path == (1, 2, 3, 5, 6)
    assert found.rate(4) == pytest.approx(0.003)


def test_a_phase_is_known_by_its_totals(run: tuple[Path, RunRecord], code: Code) -> None:
    assert read(run, code, "open").counts == (5, 0, 0, 0, 0, 0, 0, 0)
    with pytest.raises(SpecError, match="no phase 'other'") as caught:
        read(run, code, "other")
    assert "open, scan" in caught.value.action
    folder, record = run
    result = record.trials[0].result
    assert result is not None
    wrong = recounted(result, phases=(phase(7, 7, 7),))
    changed = replace(record, trials=(replace(record.trials[0], result=wrong),))
    with pytest.raises(StoreError, match="another trial's"):
        read((folder, changed), code)


def test_counts_between_instructions_are_kept_apart(code: Code) -> None:
    counts = table.of_window(_window(addresses() | {START + 3: 9}), START, code, phase(1), "")
    assert counts.elsewhere == 9
    assert sum(counts.counts) == sum(addresses().values())


def _window(counts: dict[int, int]) -> CountedWindow:
    rows = array("Q", [word for row in enumerate(counts.values()) for word in row])
    return CountedWindow(
        vcpu=0, phase=0, user=0, kernel=sum(counts.values()), interrupts=0, switched=False,
        rows=rows, code={slot: array("Q", [at]) for slot, at in enumerate(counts)},
    )  # fmt: skip


def test_damaged_or_missing_counts_are_errors(run: tuple[Path, RunRecord], code: Code) -> None:
    kept = run[0] / "trials" / "0000" / "counts.bin.gz"
    kept.write_bytes(kept.read_bytes()[:-20])
    with pytest.raises(StoreError, match="cannot be read"):
        read(run, code)
    kept.unlink()
    with pytest.raises(SpecError, match="kept no raw counts"):
        read(run, code)


def counted(code: Code, inc: int = 3) -> Hot:
    return table.of_window(_window(addresses(inc)), START, code, phase(1), "run")


def matrix_of(*cells: Cell) -> CodeTable:
    return CodeTable(
        function="f", place="mm/f.o", title="",
        rows=tuple(dict.fromkeys(cell.row for cell in cells)),
        columns=tuple(dict.fromkeys(cell.column for cell in cells)), banners={}, cells=cells,
    )  # fmt: skip


def test_only_cells_with_the_code_that_ran_are_marked(code: Code) -> None:
    elsewhere = disassemble(Function(name="f", code=BYTES, start=START + 0x1230), X86)
    other = disassemble(
        Function(name="f", code=BYTES[:2] + BYTES[6:12] + b"\xc3", start=START), X86
    )
    matrix = matrix_of(
        Cell(row="original", column="gcc-12", code=elsewhere),
        Cell(row="variant", column="gcc-12", code=other),
        Cell(row="broken", column="gcc-12", problem="it does not compile"),
    )
    found = marked(matrix, [Executed(code=code, hot=counted(code))])
    assert [cell.hot is not None for cell in found.cells] == [True, False, False]


def test_what_ran_and_is_the_code_of_no_cell_is_told(code: Code) -> None:
    """Where a kernel links or patches a function otherwise, nothing is marked: it said nothing."""
    other = disassemble(
        Function(name="f", code=BYTES[:2] + BYTES[6:12] + b"\xc3", start=START), X86
    )
    executed = [Executed(code=code, hot=counted(code))]
    matrix = matrix_of(Cell(row="original", column="gcc-12", code=other))
    (note,) = marked(matrix, executed).notes
    assert note.startswith(f"counts of {executed[0].hot.source} stand in no cell: f is other code")
    fitting = matrix_of(Cell(row="original", column="gcc-12", code=code))
    assert not marked(fitting, executed).notes
