# SPDX-License-Identifier: GPL-2.0-or-later
"""Kinds of work by the bytes of instructions, of each class and architecture."""

from __future__ import annotations

from pathlib import Path

import pytest

import counts_stream as stream
from kdelta import arch
from kdelta.attribution import insns
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.probes.work import Kind, WorkRow, arm64_kinds, riscv64_kinds, work, x86_kinds

L, S, A = Kind.LOAD, Kind.STORE, Kind.ATOMIC

# What objdump calls them; checked against it for all of a kernel (1.5 million) and of libc.
X86 = [
    ("48 8b 07", "mov (%rdi),%rax", {L}), ("48 89 c7", "mov %rax,%rdi", set()),
    ("65 48 8b 04 25 00 00 00 00", "mov %gs:0x0,%rax", {L}),
    ("48 89 44 24 08", "mov %rax,0x8(%rsp)", {S}), ("48 83 47 10 01", "addq $1,0x10(%rdi)", {L, S}),
    ("48 83 7f 10 01", "cmpq $1,0x10(%rdi)", {L}), ("48 39 07", "cmp %rax,(%rdi)", {L}),
    ("48 03 07", "add (%rdi),%rax", {L}), ("48 8d 47 40", "lea 0x40(%rdi),%rax", set()),
    ("f0 48 0f c1 07", "lock xadd %rax,(%rdi)", {L, S, A}),
    ("3e 48 0f c1 07", "the same in a kernel on one CPU", {L, S, A}),
    ("3e ff e0", "notrack jmp *%rax", {Kind.INDIRECT}),
    ("f0 0f ba 2f 00", "lock btsl $0,(%rdi)", {L, S, A}), ("0f ba 27 00", "btl $0,(%rdi)", {L}),
    ("48 87 07", "xchg %rax,(%rdi)", {L, S, A}), ("48 87 c7", "xchg %rax,%rdi", set()),
    ("f0 48 0f c7 0f", "lock cmpxchg16b (%rdi)", {L, S, A}), ("0f ae f0", "mfence", {Kind.FENCE}),
    ("0f ae e8", "lfence", {Kind.FENCE}), ("0f ae f8", "sfence", {Kind.FENCE}),
    ("0f ae 2f", "xrstor (%rdi)", {L}), ("0f ae 3f", "clflush (%rdi)", set()),
    ("0f a2", "cpuid", {Kind.SERIALISING}), ("48 cf", "iretq", {L, Kind.SERIALISING}),
    ("0f 01 38", "invlpg (%rax)", {Kind.TLB}),
    ("66 0f 38 82 0a", "invpcid (%rdx),%rcx", {L, Kind.TLB}),
    ("0f 22 d8", "mov %rax,%cr3", {Kind.TLB, Kind.CONTROL}),
    ("0f 22 e0", "mov %rax,%cr4", {Kind.CONTROL}), ("0f 20 d8", "mov %cr3,%rax", set()),
    ("0f 30", "wrmsr", {Kind.CONTROL}), ("0f 23 f8", "mov %rax,%db7", {Kind.CONTROL}),
    ("0f 06", "clts", {Kind.CONTROL}), ("0f 01 17", "lgdt (%rdi)", {L, Kind.CONTROL}),
    ("ff d0", "call *%rax", {S, Kind.INDIRECT}),
    ("ff 57 08", "call *0x8(%rdi)", {L, S, Kind.INDIRECT}),
    ("41 ff e3", "jmp *%r11", {Kind.INDIRECT}), ("e8 00 00 00 00", "call", {S}), ("c3", "ret", {L}),
    ("41 54", "push %r12", {S}), ("5d", "pop %rbp", {L}), ("f7 f1", "div %ecx", {Kind.DIVISION}),
    ("48 f7 7f 08", "idivq 0x8(%rdi)", {L, Kind.DIVISION}), ("48 f7 e2", "mul %rdx", set()),
    ("f3 48 ab", "rep stos", {Kind.STRING}), ("f3 a4", "rep movsb", {Kind.STRING}),
    ("48 ab", "stos", {S}), ("f3 90", "pause", set()),
    ("0f 1f 44 00 00", "nopl 0x0(%rax,%rax,1)", set()), ("66 0f 6f 06", "movdqa (%rsi),%xmm0", {L}),
    ("0f 11 07", "movups %xmm0,(%rdi)", {S}), ("c5 fe 6f 06", "vmovdqu (%rsi),%ymm0", {L}),
    ("c5 fe 7f 07", "vmovdqu %ymm0,(%rdi)", {S}), ("c5 f8 77", "vzeroupper", set()),
    ("48 0f c3 07", "movnti %rax,(%rdi)", {S}), ("0f 0b", "ud2", set()),
]  # fmt: skip
ARM64 = [
    (0xF9400020, "ldr x0, [x1]", {L}), (0xF9000020, "str x0, [x1]", {S}),
    (0xA9BF7BFD, "stp x29, x30, [sp, #-16]!", {S}), (0xA8C17BFD, "ldp x29, x30, [sp], #16", {L}),
    (0xB8A00020, "ldadda w0, w0, [x1]", {L, S, A}), (0xF8E08041, "swpal x0, x1, [x2]", {L, S, A}),
    (0xC8E0FC41, "casal x0, x1, [x2]", {L, S, A}), (0xC85F7C20, "ldxr x0, [x1]", {L}),
    (0xC8027C20, "stxr w2, x0, [x1]", {S, A}), (0xC8DFFC20, "ldar x0, [x1]", {L}),
    (0xC89FFC20, "stlr x0, [x1]", {S}), (0xD5033BBF, "dmb ish", {Kind.FENCE}),
    (0xD5033B9F, "dsb ish", {Kind.FENCE}), (0xD5033FDF, "isb", {Kind.SERIALISING}),
    (0xD508831F, "tlbi vmalle1is", {Kind.TLB}), (0xD5182000, "msr ttbr0_el1, x0", {Kind.CONTROL}),
    (0xD53C4100, "mrs", set()), (0xD61F0200, "br x16", {Kind.INDIRECT}),
    (0xD63F0020, "blr x1", {Kind.INDIRECT}), (0xD65F03C0, "ret", set()),
    (0x9AC10800, "udiv x0, x0, x1", {Kind.DIVISION}), (0xD50B7420, "dc zva, x0", {S}),
    (0x1D010440, "cpyfp [x0]!, [x1]!, x2!", {Kind.STRING}),
    (0xF9800000, "prfm pldl1keep, [x0]", set()), (0xD69F03E0, "eret", {Kind.SERIALISING}),
    (0xD503201F, "nop", set()),
]  # fmt: skip

# As the assembler of Debian's cross compiler has them.
RISCV64 = [
    ("0085b503", "ld a0,8(a1)", {L}), ("0005c503", "lbu a0,0(a1)", {L}),
    ("00a5b423", "sd a0,8(a1)", {S}), ("06b6352f", "amoadd.d.aqrl a0,a1,(a2)", {L, S, A}),
    ("1005b52f", "lr.d a0,(a1)", {L}), ("18b6352f", "sc.d a0,a1,(a2)", {S, A}),
    ("0330000f", "fence rw,rw", {Kind.FENCE}), ("0000100f", "fence.i", {Kind.SERIALISING}),
    ("0100000f", "pause", set()), ("0045200f", "cbo.zero (a0)", {S}),
    ("12b50073", "sfence.vma a0,a1", {Kind.TLB}), ("10051073", "csrw sstatus,a0", {Kind.CONTROL}),
    ("10452073", "csrs sie,a0", {Kind.CONTROL}), ("14202573", "csrr a0,scause", set()),
    ("10016573", "csrrsi a0,sstatus,2", {Kind.CONTROL}), ("c0102573", "rdtime a0", set()),
    ("000780e7", "jalr a5", {Kind.INDIRECT}), ("00078067", "jr a5", {Kind.INDIRECT}),
    ("00008067", "ret", set()), ("00028067", "jr t0, a return of millicode", set()),
    ("010080e7", "jalr 16(ra), behind auipc: a call", set()),
    ("01030067", "jr 16(t1), behind auipc: a tail call", set()), ("0c40006f", "j", set()),
    ("02c5c533", "div a0,a1,a2", {Kind.DIVISION}), ("02c5f53b", "remuw a0,a1,a2", {Kind.DIVISION}),
    ("02c58533", "mul a0,a1,a2", set()), ("00053507", "fld fa0,(a0)", {L}),
    ("00a53027", "fsd fa0,(a0)", {S}), ("10200073", "sret", {Kind.SERIALISING}),
    ("00000073", "ecall", set()), ("10500073", "wfi", set()), ("6b123037", "a mark", set()),
    ("4188", "c.lw", {L}), ("6522", "c.ldsp", {L}), ("e42a", "c.sdsp", {S}), ("c188", "c.sw", {S}),
    ("2108", "c.fld", {L}), ("8108", "c.lbu", {L}), ("8908", "c.sb", {S}),
    ("9782", "c.jalr a5", {Kind.INDIRECT}), ("8782", "c.jr a5", {Kind.INDIRECT}),
    ("8082", "c.ret", set()), ("852e", "c.mv a0,a1", set()), ("952e", "c.add a0,a1", set()),
    ("1141", "c.addi sp,-16", set()), ("9002", "c.ebreak", set()),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text", "kinds"), X86, ids=[text for _, text, _ in X86])
def test_x86(code: str, text: str, kinds: set[Kind]) -> None:
    assert x86_kinds(bytes.fromhex(code)) == kinds, text


@pytest.mark.parametrize(("word", "text", "kinds"), ARM64, ids=[text for _, text, _ in ARM64])
def test_arm64(word: int, text: str, kinds: set[Kind]) -> None:
    assert arm64_kinds(word.to_bytes(4, "little")) == kinds, text


@pytest.mark.parametrize(("word", "text", "kinds"), RISCV64, ids=[row[1] for row in RISCV64])
def test_riscv64(word: str, text: str, kinds: set[Kind]) -> None:
    assert riscv64_kinds(bytes.fromhex(word)[::-1]) == kinds, text


def test_every_kind_is_tested_on_each() -> None:
    for rows, none in ((X86, set()), (ARM64, set()), (RISCV64, {Kind.STRING})):
        assert set(Kind) - none == {kind for _, _, kinds in rows for kind in kinds}


def test_a_window_s_work_is_by_function_and_a_thunk_is_an_indirect_branch(tmp_path: Path) -> None:
    at = stream.KERNEL
    table = Symbols((at, at + 0x40, at + 0x80), ("walk", "__x86_indirect_thunk_rax", UNKNOWN))
    call = bytes.fromhex("e8") + (0x40 - 5).to_bytes(4, "little")
    records = [
        stream.HEADER, stream.ARMED, stream.code(1, at, at + 0x10),
        stream.encodings(1, call, bytes.fromhex("488b07")), stream.code(2, at + 0x40),
        stream.encodings(2, bytes.fromhex("ffe0")), stream.code(3, 0x1000),
        stream.encodings(3, bytes.fromhex("f0480fc107")),
        stream.bare([(1, 5), (2, 5), (3, 7)], 7, 15),
    ]  # fmt: skip
    (window,) = insns.read(stream.write(tmp_path / "counts", *records)).windows
    assert work(window, table, arch.of("amd64")) == (
        WorkRow("[user]", A, 7), WorkRow("[user]", L, 7), WorkRow("[user]", S, 7),
        WorkRow("walk", Kind.INDIRECT, 5), WorkRow("walk", L, 5), WorkRow("walk", S, 5),
    )  # fmt: skip
