# SPDX-License-Identifier: GPL-2.0-or-later
"""What kind of work a window did: exact counts of instructions, told apart by their bytes.

A table or a decoder for each architecture: x86-64 by opcode (Intel's manual, volume 2), arm64 and
riscv64 by the word (Arm's manual, C4; the RISC-V unprivileged and privileged manuals).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from kdelta.arch import Arch
from kdelta.attribution.insns import CountedWindow
from kdelta.attribution.symbols import Symbols
from kdelta.sample import Count


class Kind(StrEnum):
    """A kind of work; an instruction is of any number of them."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"  # locked, or LSE; also a load and a store
    FENCE = "fence"
    SERIALISING = "serialising"
    TLB = "tlb"  # drops translations
    CONTROL = "control"  # writes a control, system or model-specific register
    INDIRECT = "indirect"  # calls or jumps to where a register or memory says
    DIVISION = "division"
    STRING = "string"  # copies or fills with one instruction, however long


_LOAD, _STORE = frozenset({Kind.LOAD}), frozenset({Kind.STORE})
_BOTH, _NONE = _LOAD | _STORE, frozenset[Kind]()
_LEGACY = frozenset((0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3))
_LOCK, _REPNE, _REP, _OPERAND = 0xF0, 0xF2, 0xF3, 0x66
# A kernel on one CPU writes this over the LOCK of its instructions (alternatives_smp_unlock).
_WAS_LOCK = 0x3E
_ATOMIC, _FENCE = frozenset({Kind.ATOMIC}), frozenset({Kind.FENCE})
_SERIALISING, _DIVISION = frozenset({Kind.SERIALISING}), frozenset({Kind.DIVISION})
_CONTROL, _INDIRECT = frozenset({Kind.CONTROL}), frozenset({Kind.INDIRECT})
_TLB = frozenset({Kind.TLB})
# (mask, value, kinds), the first that fits.
_ARM64_ROWS = (
    (0x3FA07C00, 0x08A07C00, _BOTH | _ATOMIC),  # cas
    (0xBFA07C00, 0x08207C00, _BOTH | _ATOMIC),  # casp
    (0x3FE00000, 0x08000000, _STORE | _ATOMIC),  # stxr, stlxr
    (0x3FE00000, 0x08200000, _STORE | _ATOMIC),  # stxp, stlxp
    (0x3F400000, 0x08400000, _LOAD),  # ldxr, ldar and their like
    (0x3F400000, 0x08000000, _STORE),  # stlr
    (0x3FFFFC00, 0x38BFC000, _LOAD),  # ldapr
    (0x3B200C00, 0x38200000, _BOTH | _ATOMIC),  # ldadd, swp ...
    (0x3B200400, 0x38200400, _LOAD),  # ldraa
    (0x3B200C00, 0x19000400, frozenset({Kind.STRING})),  # cpy, set (MOPS)
    (0x3FE00C00, 0x19000000, _STORE),  # stlur
    (0x3F200C00, 0x19000000, _LOAD),  # ldapur
    (0xFFE00C00, 0xD9600000, _LOAD),  # ldg
    (0xFF200000, 0xD9200000, _STORE),  # stg and its like
    (0xFF000000, 0xD8000000, _NONE),  # prfm of a literal
    (0x3B000000, 0x18000000, _LOAD),  # ldr of a literal
    (0x3A400000, 0x28400000, _LOAD),  # ldp
    (0x3A400000, 0x28000000, _STORE),  # stp
    (0xBE400000, 0x0C400000, _LOAD),  # ld1 ... ld4
    (0xBE400000, 0x0C000000, _STORE),  # st1 ... st4
    (0xFFC00000, 0xF9800000, _NONE),  # prfm
    (0xFFE00400, 0xF8800000, _NONE),  # prfum
    (0xFFE00C00, 0xF8A00800, _NONE),  # prfm by a register
    (0x3EC00000, 0x3C800000, _STORE),  # str of a vector of 128 bits
    (0x3AC00000, 0x38000000, _STORE),  # str
    (0x3A000000, 0x38000000, _LOAD),  # ldr, also with a sign
    (0xFFFFF0FF, 0xD503309F, _FENCE),  # dsb
    (0xFFFFF0FF, 0xD50330BF, _FENCE),  # dmb
    (0xFFFFF0FF, 0xD50330DF, _SERIALISING),  # isb
    (0xFFFFF0FF, 0xD50330FF, _FENCE),  # sb
    (0xFFF8F000, 0xD5088000, _TLB),  # tlbi
    (0xFFFFFFE0, 0xD50B7420, _STORE),  # dc zva
    (0xFFF00000, 0xD5100000, _CONTROL),  # msr
    (0xFFFFFFFF, 0xD69F03E0, _SERIALISING),  # eret
    (0xFEDFF000, 0xD61F0000, _INDIRECT),  # br, blr, also authenticated
    (0xFE000000, 0xE4000000, _STORE),  # SVE
    (0x9E000000, 0x84000000, _LOAD),
    (0x7FE0F800, 0x1AC00800, _DIVISION),  # udiv, sdiv
)
_RA, _T0 = 1, 5  # registers that have return addresses: a jump by one is a return
_READ_ONLY = 0xC  # the upper bits of a CSR that nothing can be written to
# Of 32 bits: (mask, value, kinds), the first that fits.
_RISCV64_ROWS = (
    (0xFFF0707F, 0x0040200F, _STORE),  # cbo.zero
    (0x0000707F, 0x0000100F, _SERIALISING),  # fence.i
    (0xFFFFFFFF, 0x0100000F, _NONE),  # pause
    (0x0000707F, 0x0000000F, _FENCE),
    (0xF800007F, 0x1000002F, _LOAD),  # lr
    (0xF800007F, 0x1800002F, _STORE | _ATOMIC),  # sc
    (0x0000007F, 0x0000002F, _BOTH | _ATOMIC),  # amo
    (0x0000007F, 0x00000003, _LOAD),
    (0x0000007F, 0x00000023, _STORE),
    (0xFE00407F, 0x02004033, _DIVISION),
    (0xFE00407F, 0x0200403B, _DIVISION),  # of words
    (0xFE007FFF, 0x12000073, _TLB),  # sfence.vma
    (0xFE007FFF, 0x16000073, _TLB),  # sinval.vma
    (0xFFFFFFFF, 0x18000073, _FENCE),  # sfence.w.inval
    (0xFFFFFFFF, 0x18100073, _FENCE),  # sfence.inval.ir
    (0xFFFFFFFF, 0x10200073, _SERIALISING),  # sret
    (0xFE007FFF, 0x22000073, _TLB),  # hfence.vvma
    (0xFE007FFF, 0x62000073, _TLB),  # hfence.gvma
)
# Short ones by quadrant and function: loads and stores of words and doubles.
_SHORT = {
    **dict.fromkeys(((0, 1), (0, 2), (0, 3), (2, 1), (2, 2), (2, 3)), _LOAD),
    **dict.fromkeys(((0, 5), (0, 6), (0, 7), (2, 5), (2, 6), (2, 7)), _STORE),
}
_FLOATING = {0x07: _LOAD, 0x27: _STORE}  # and vectors
_SYSTEM, _JALR = 0x73, 0x67
_KERNEL_HALF = 1 << 63
_USER = "[user]"
_CS = b"\x2e"  # before calls of thunks for r8 to r15
_INDIRECT_THUNK = "__x86_indirect_"  # where a kernel with retpolines goes instead


class _Insn(NamedTuple):
    prefixes: frozenset[int]
    map: int  # 1: one byte; 2: 0F; 3: 0F 38; 4: 0F 3A
    op: int
    modrm: int

    @property
    def reg(self) -> int:  # the middle field of its operand's byte, often part of the opcode
        return self.modrm >> 3 & 7

    @property
    def in_memory(self) -> bool:
        return self.modrm >> 6 != 3


def x86_kinds(code: bytes) -> frozenset[Kind]:
    """The kinds of work of one instruction; none for one that is not known."""
    insn = _read(code)
    found = _by_prefixes(insn)
    if found is None:
        place = min(insn.map, 4), insn.op, insn.reg
        in_memory, in_register = _X86.get(place, (_NONE, _NONE))
        found = in_memory if insn.in_memory else in_register
    locked = insn.prefixes & {_LOCK, _WAS_LOCK} or (insn.map == 1 and insn.op in (0x86, 0x87))
    return found | _ATOMIC if found >= _BOTH and locked else found


def _by_prefixes(insn: _Insn) -> frozenset[Kind] | None:
    """The kinds of an instruction that its prefixes make another one; None: they do not."""
    prefixes, place = insn.prefixes, (insn.map, insn.op)
    if insn.map == 1 and insn.op in _STRINGS and prefixes & {_REP, _REPNE}:
        return frozenset({Kind.STRING})
    if place == (2, 0x01) and insn.modrm == 0xE8 and not prefixes:
        return _SERIALISING
    if place == (2, 0x7E) and insn.in_memory and _REP in prefixes:
        return _LOAD
    if place == (2, 0xAE) and (_REP in prefixes if not insn.in_memory else _OPERAND in prefixes):
        return None if insn.in_memory and insn.reg != 6 else _NONE
    if insn.map == 3 and insn.op in (0x80, 0x81, 0x82) and _OPERAND in prefixes:
        return _LOAD | _TLB  # invept, invvpid, invpcid
    if place == (3, 0xF1) and _REPNE in prefixes:  # crc32, else movbe
        return _LOAD if insn.in_memory else _NONE
    return None


def target(code: bytes, address: int, architecture: Arch) -> int | None:
    """Where a direct call or jump goes, None for any other instruction.  Not of riscv64, whose far
    calls are two instructions.
    """
    x86 = architecture.debian == "amd64"
    if x86 and code[-5:-4] in (b"\xe8", b"\xe9") and code[:-5] in (b"", _CS):
        return (address + len(code) + int.from_bytes(code[-4:], "little", signed=True)) % (1 << 64)
    word = int.from_bytes(code, "little")
    if architecture.debian == "arm64" and word & 0x7C000000 == 0x14000000:
        return address + 4 * ((word & 0x3FFFFFF) - (word >> 25 & 1) * (1 << 26))
    return None


def _read(code: bytes) -> _Insn:
    at = 0
    while at < len(code) and code[at] in _LEGACY:
        at += 1
    prefixes = frozenset(code[:at])
    if at < len(code) and code[at] >> 4 == 4:
        at += 1
    rest = code[at:] + bytes(6)
    if rest[0] == 0xC5:  # VEX of two bytes
        return _Insn(prefixes | _prefix_of(rest[1]), 2, rest[2], rest[3])
    if rest[0] == 0xC4:  # VEX of three
        return _Insn(prefixes | _prefix_of(rest[2]), 1 + (rest[1] & 0x1F), rest[3], rest[4])
    if rest[0] == 0x62:  # EVEX
        return _Insn(prefixes | _prefix_of(rest[2]), 1 + (rest[1] & 7), rest[4], rest[5])
    if rest[0] != 0x0F:
        return _Insn(prefixes, 1, rest[0], rest[1])
    if rest[1] in (0x38, 0x3A):
        return _Insn(prefixes, 3 if rest[1] == 0x38 else 4, rest[2], rest[3])
    return _Insn(prefixes, 2, rest[1], rest[2])


def _prefix_of(byte: int) -> frozenset[int]:
    return frozenset(((), (_OPERAND,), (_REP,), (_REPNE,))[byte & 3])


_STRINGS = frozenset((*range(0x6C, 0x70), *range(0xA4, 0xA8), *range(0xAA, 0xB0)))
_ANY = range(8)
_FLOATS = {0xD9: (2, 3, 6, 7), 0xDB: (1, 2, 3, 7), 0xDD: (1, 2, 3, 6, 7), 0xDF: (1, 2, 3, 6, 7)}
# Map and opcodes; the middle field of the operand's byte, which is often part of the opcode; the
# kinds with an operand in memory, and with one in a register or none.  The first that fits.
_X86_ROWS: tuple[
    tuple[int, Iterable[int], Iterable[int], frozenset[Kind], frozenset[Kind]], ...
] = (
    # What is done in memory that no operand says: the stack, strings.
    (1, (*range(0x50, 0x58), 0x68, 0x6A, 0x9C, 0xAA, 0xAB), _ANY, _STORE, _STORE),
    (1, (0xC8, 0xE8, 0xA2, 0xA3), _ANY, _STORE, _STORE),
    (1, (*range(0x58, 0x60), 0x9D, 0xC2, 0xC3, 0xC9, 0xCA, 0xCB), _ANY, _LOAD, _LOAD),
    (1, (0xA0, 0xA1, 0xA6, 0xA7, 0xAC, 0xAD, 0xAE, 0xAF), _ANY, _LOAD, _LOAD),
    (1, (0xA4, 0xA5), _ANY, _BOTH, _BOTH),
    (1, (0xCF,), _ANY, _LOAD | _SERIALISING, _LOAD | _SERIALISING),
    (1, (0xF6, 0xF7), (6, 7), _LOAD | _DIVISION, _DIVISION),
    (1, (0xF6, 0xF7), (2, 3), _BOTH, _NONE),  # not, neg
    (1, (0xF6, 0xF7), _ANY, _LOAD, _NONE),
    (1, (0xFE, 0xFF), (0, 1), _BOTH, _NONE),
    (1, (0xFF,), (2, 3), _BOTH | _INDIRECT, _STORE | _INDIRECT),  # call
    (1, (0xFF,), (4, 5), _LOAD | _INDIRECT, _INDIRECT),  # jmp
    (1, (0xFF,), (6,), _BOTH, _STORE),  # push
    (1, (0x80, 0x81, 0x83), (7,), _LOAD, _NONE),
    (1, (0x80, 0x81, 0x83), _ANY, _BOTH, _NONE),
    *((1, (op,), stores, _STORE, _NONE) for op, stores in _FLOATS.items()),
    (1, range(0xD8, 0xE0), _ANY, _LOAD, _NONE),
    (1, (op for op in range(0x38) if op & 7 in (0, 1)), _ANY, _BOTH, _NONE),
    (1, (op for op in range(0x38) if op & 7 in (2, 3)), _ANY, _LOAD, _NONE),
    (1, (*range(0x38, 0x3C), 0x63, 0x69, 0x6B, 0x84, 0x85, 0x8A, 0x8B, 0x8E), _ANY, _LOAD, _NONE),
    (1, (0x88, 0x89, 0x8C, 0xC6, 0xC7), _ANY, _STORE, _NONE),
    (1, (0x86, 0x87, 0x8F, 0xC0, 0xC1, 0xD0, 0xD1, 0xD2, 0xD3), _ANY, _BOTH, _NONE),
    (2, (0x00,), (0, 1), _STORE, _NONE),
    (2, (0x00,), (2, 3), _LOAD | _CONTROL, _CONTROL),  # lldt, ltr
    (2, (0x00,), _ANY, _LOAD, _NONE),
    (2, (0x01,), (0, 1, 4), _STORE, _NONE),  # sgdt, sidt, smsw
    (2, (0x01,), (2, 3, 6), _LOAD | _CONTROL, _NONE),  # lgdt, lidt, lmsw
    (2, (0x01,), (7,), _TLB, _NONE),  # invlpg
    (2, (0x22,), (3,), _TLB | _CONTROL, _TLB | _CONTROL),  # mov to CR3
    # mov to a control register, clts, mov to a debug register, wrmsr
    (2, (0x22, 0x06, 0x23, 0x30), _ANY, _CONTROL, _CONTROL),
    (2, (0x08, 0x09, 0xA2, 0x07, 0x35), _ANY, _SERIALISING, _SERIALISING),
    (2, (0xA0, 0xA8, 0xF7), _ANY, _STORE, _STORE),
    (2, (0xA1, 0xA9), _ANY, _LOAD, _LOAD),
    # States of the FPU, fences, lines of the cache.
    (2, (0xAE,), (0, 3, 4), _STORE, _NONE),
    (2, (0xAE,), (1, 2), _LOAD, _NONE),
    (2, (0xAE,), (5,), _LOAD, _FENCE),
    (2, (0xAE,), (6,), _STORE, _FENCE),
    (2, (0xAE,), (7,), _NONE, _FENCE),
    (2, (0xBA,), (4,), _LOAD, _NONE),
    (2, (0xC7,), (3, 6), _LOAD, _NONE),
    (2, (0xC7,), (4, 5, 7), _STORE, _NONE),
    (2, (0xC7,), (0, 2), _NONE, _NONE),
    (2, (0xA4, 0xA5, 0xAB, 0xAC, 0xAD, 0xB0, 0xB1, 0xB3, 0xBA, 0xBB), _ANY, _BOTH, _NONE),
    (2, (0xC0, 0xC1, 0xC7), _ANY, _BOTH, _NONE),
    (2, (*range(0x90, 0xA0), 0x11, 0x13, 0x17, 0x29, 0x2B, 0x7E, 0x7F), _ANY, _STORE, _NONE),
    (2, (0xC3, 0xD6, 0xE7), _ANY, _STORE, _NONE),
    (2, (*range(0x40, 0x50), 0xA3, 0xAF, 0xB2, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8), _ANY, _LOAD, _NONE),
    (2, (0xBC, 0xBD, 0xBE, 0xBF, 0xC2, 0xC4, 0xC6), _ANY, _LOAD, _NONE),
    # Vectors: of what is in no other row, an operand in memory is read.
    (2, (*range(0x10, 0x18), *range(0x28, 0x30), *range(0x50, 0x77)), _ANY, _LOAD, _NONE),
    (2, (*range(0x78, 0x80), *range(0xD0, 0x100)), _ANY, _LOAD, _NONE),
    (3, (0x2E, 0x2F, 0x8E, 0xA0, 0xA1, 0xA2, 0xA3, 0xF1, 0xF9), _ANY, _STORE, _NONE),
    (4, (0x14, 0x15, 0x16, 0x17, 0x19, 0x1B, 0x1D, 0x39, 0x3B), _ANY, _STORE, _NONE),
    *((number, range(256), _ANY, _LOAD, _NONE) for number in (3, 4)),
)
_X86 = {
    (number, op, field): (in_memory, in_register)
    for number, ops, fields, in_memory, in_register in reversed(_X86_ROWS)
    for op in ops
    for field in fields
}


def arm64_kinds(code: bytes) -> frozenset[Kind]:
    """The kinds of work of one instruction; none for one that is not known."""
    word = int.from_bytes(code, "little")
    return next((found for mask, value, found in _ARM64_ROWS if word & mask == value), _NONE)


def riscv64_kinds(code: bytes) -> frozenset[Kind]:
    """The kinds of work of one instruction; none for one that is not known."""
    word = int.from_bytes(code, "little")
    if len(code) == 2:
        quadrant, function = word & 3, word >> 13
        if quadrant == 2 and function == 4 and not word >> 2 & 31 and word >> 7 & 31:
            return _jump(word >> 7 & 31, _RA if word >> 12 & 1 else 0)  # c.jalr, c.jr
        if quadrant == 0 and function == 4:  # of bytes and halves (Zcb)
            return _STORE if word >> 11 & 1 else _LOAD
        return _SHORT.get((quadrant, function), _NONE)
    opcode = word & 0x7F
    if opcode in _FLOATING:
        return _FLOATING[opcode]
    if opcode == _JALR:
        far = bool(word >> 20)
        return _jump(word >> 15 & 31, word >> 7 & 31, far=far)
    if opcode == _SYSTEM and word >> 12 & 3:
        # Access to a control and status register; one that sets or clears no bits only reads.
        reads = word >> 13 & 1 and not word >> 15 & 31
        return _NONE if reads or word >> 28 >= _READ_ONLY else _CONTROL
    return next((found for mask, value, found in _RISCV64_ROWS if word & mask == value), _NONE)


def _jump(by: int, link: int, *, far: bool = False) -> frozenset[Kind]:
    """A call of a register or a jump by one; not a return, nor the second half of a direct call.

    Such halves, behind auipc, jump by the register that gets the return address or, where there is
    none to get, by an offset; what is in a register from elsewhere is jumped to as it is.
    """
    returns = by in (_RA, _T0) and link not in (_RA, _T0)
    return _NONE if returns or far or (by == link and by == _RA) else _INDIRECT


class WorkRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How often instructions of a kind retired in a function; "[user]" is all of user space."""

    function: str
    kind: Kind
    count: Count


_READERS = {
    "amd64": lru_cache(1 << 16)(x86_kinds),
    "arm64": lru_cache(1 << 16)(arm64_kinds),
    "riscv64": lru_cache(1 << 16)(riscv64_kinds),
}


def work(window: CountedWindow, symbols: Symbols, architecture: Arch) -> tuple[WorkRow, ...]:
    """The kinds of work of a window by function, most first; none where they are not known.

    A string instruction is one, however often it goes round, and no load nor store.  A call of a
    thunk that a kernel has for its indirect branches is one such branch; the thunk's own is not.
    """
    of_code = _READERS.get(architecture.debian)
    if of_code is None:
        return ()
    found: Counter[tuple[str, Kind]] = Counter()
    known: dict[bytes, tuple[frozenset[Kind], bool]] = {}  # and whether it goes to a target
    for address, code, count in window.instructions():
        if code not in known:
            known[code] = of_code(code), target(code, 0, architecture) is not None
        kinds, goes = known[code]
        to = target(code, address, architecture) if goes else None
        if to and to >= _KERNEL_HALF and symbols.find(to)[0].startswith(_INDIRECT_THUNK):
            kinds |= _INDIRECT
        if not kinds:
            continue
        name = symbols.find(address)[0] if address >= _KERNEL_HALF else _USER
        if name.startswith(_INDIRECT_THUNK):
            kinds -= {Kind.INDIRECT}
        for kind in kinds:
            found[name, kind] += count
    rows = sorted(found.items(), key=lambda row: (-row[1], row[0]))
    return tuple(WorkRow(name, kind, count) for (name, kind), count in rows)
