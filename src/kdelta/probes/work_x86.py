# SPDX-License-Identifier: GPL-2.0-or-later
"""What kind of work an instruction of x86-64 is, by its bytes (Intel's manual, volume 2, A and B).

Told is what an instruction asks of memory and of the CPU, not what it computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kdelta.probes.work_kinds import Kind

_LOAD, _STORE = frozenset({Kind.LOAD}), frozenset({Kind.STORE})
_BOTH, _NONE = _LOAD | _STORE, frozenset[Kind]()
_LEGACY = frozenset((0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3))
_LOCK, _REPNE, _REP, _OPERAND = 0xF0, 0xF2, 0xF3, 0x66
# A kernel on one CPU writes this over the LOCK of its instructions (alternatives_smp_unlock).
_WAS_LOCK = 0x3E
_REGISTER = 3  # mod of an operand that is a register
_CR3 = 3


@dataclass(frozen=True, slots=True)
class _Insn:
    prefixes: frozenset[int]
    map: int  # 1: one byte; 2: 0F; 3: 0F 38; 4: 0F 3A
    op: int
    modrm: int

    @property
    def reg(self) -> int:
        """The middle field of its operand's byte, which is often part of the opcode."""
        return self.modrm >> 3 & 7

    @property
    def in_memory(self) -> bool:
        """True where its operand is no register."""
        return self.modrm >> 6 != _REGISTER


def kinds(code: bytes) -> frozenset[Kind]:
    """The kinds of work of one instruction; none for one that is not known."""
    insn = _read(code)
    match insn.map:
        case 1:
            found = _one_byte(insn)
        case 2:
            found = _two_bytes(insn)
        case _:
            found = _three_bytes(insn)
    if found >= _BOTH and (
        insn.prefixes & {_LOCK, _WAS_LOCK} or (insn.map == 1 and insn.op in (0x86, 0x87))
    ):
        return found | {Kind.ATOMIC}
    return found


def target(code: bytes, address: int) -> int | None:
    """Where a direct call or jump goes, None for any other instruction."""
    near = 5
    if len(code) == near and code[0] in (0xE8, 0xE9):
        return (address + near + int.from_bytes(code[1:], "little", signed=True)) % (1 << 64)
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


def _table(*rows: tuple[Iterable[int], frozenset[Kind]]) -> dict[int, frozenset[Kind]]:
    return {op: found for ops, found in rows for op in ops}


# What an operand in memory is to an instruction.
_ONE = _table(
    ((op for op in range(0x38) if op & 7 in (0, 1)), _BOTH),
    ((op for op in range(0x38) if op & 7 in (2, 3)), _LOAD),
    ((0x38, 0x39, 0x3A, 0x3B, 0x63, 0x69, 0x6B, 0x84, 0x85, 0x8A, 0x8B, 0x8E), _LOAD),
    ((0x88, 0x89, 0x8C, 0xC6, 0xC7), _STORE),
    ((0x86, 0x87, 0x8F, 0xC0, 0xC1, 0xD0, 0xD1, 0xD2, 0xD3), _BOTH),
    ((0xD8, 0xDA, 0xDC, 0xDE), _LOAD),
)
# What it does besides, in memory that its operand does not say: the stack, strings.
_ALWAYS = _table(
    (range(0x50, 0x58), _STORE),
    (range(0x58, 0x60), _LOAD),
    ((0x68, 0x6A, 0x9C, 0xAA, 0xAB, 0xC8, 0xE8, 0xA2, 0xA3), _STORE),
    ((0x9D, 0xC2, 0xC3, 0xC9, 0xCA, 0xCB, 0xA0, 0xA1, 0xA6, 0xA7, 0xAC, 0xAD, 0xAE, 0xAF), _LOAD),
    ((0xA4, 0xA5), _BOTH),
    ((0xCF,), _LOAD | {Kind.SERIALISING}),
)
_STRINGS = frozenset((*range(0x6C, 0x70), *range(0xA4, 0xA8), *range(0xAA, 0xB0)))
_FLOAT_STORES = {
    0xD9: {2, 3, 6, 7},
    0xDB: {1, 2, 3, 7},
    0xDD: {1, 2, 3, 6, 7},
    0xDF: {1, 2, 3, 6, 7},
}


def _one_byte(insn: _Insn) -> frozenset[Kind]:
    op = insn.op
    if op in _STRINGS and insn.prefixes & {_REP, _REPNE}:
        return frozenset({Kind.STRING})
    if op in _ALWAYS:
        return _ALWAYS[op]
    if op in (0xF6, 0xF7, 0xFE, 0xFF):
        return _group(insn)
    if not insn.in_memory:
        return _NONE
    if op in (0x80, 0x81, 0x83):
        return _LOAD if insn.reg == 7 else _BOTH
    if op in _FLOAT_STORES:
        return _STORE if insn.reg in _FLOAT_STORES[op] else _LOAD
    return _ONE.get(op, _NONE)


def _group(insn: _Insn) -> frozenset[Kind]:
    """Opcodes whose operand's byte says which instruction it is."""
    memory = _LOAD if insn.in_memory else _NONE
    if insn.op in (0xF6, 0xF7):
        if insn.reg in (6, 7):
            return memory | {Kind.DIVISION}
        return _BOTH if insn.reg in (2, 3) and insn.in_memory else memory  # not, neg
    if insn.reg in (0, 1):
        return _BOTH if insn.in_memory else _NONE
    if insn.op == 0xFE:
        return _NONE
    return {
        2: memory | {Kind.STORE, Kind.INDIRECT},
        3: memory | {Kind.STORE, Kind.INDIRECT},
        4: memory | {Kind.INDIRECT},
        5: memory | {Kind.INDIRECT},
        6: memory | {Kind.STORE},
    }.get(insn.reg, _NONE)


_TWO = _table(
    # Vectors: of what is in no other row, an operand in memory is read.
    (
        (
            *range(0x10, 0x18),
            *range(0x28, 0x30),
            *range(0x50, 0x77),
            *range(0x78, 0x80),
            *range(0xD0, 0x100),
        ),
        _LOAD,
    ),
    ((0x11, 0x13, 0x17, 0x29, 0x2B, 0x7F, 0xC3, 0xD6, 0xE7), _STORE),
    ((*range(0x40, 0x50), 0xA3, 0xAF, 0xB2, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xBC, 0xBD), _LOAD),
    ((0xBE, 0xBF, 0xC2, 0xC4, 0xC6), _LOAD),
    (range(0x90, 0xA0), _STORE),
    ((0xA4, 0xA5, 0xAB, 0xAC, 0xAD, 0xB0, 0xB1, 0xB3, 0xBB, 0xC0, 0xC1), _BOTH),
)
_TWO_ALWAYS = _table(
    ((0x06, 0x21 + 2, 0x30), frozenset({Kind.CONTROL})),  # clts, mov to a debug register, wrmsr
    ((0x08, 0x09, 0xA2, 0x07, 0x35), frozenset({Kind.SERIALISING})),
    ((0xA0, 0xA8, 0xF7), _STORE),
    ((0xA1, 0xA9), _LOAD),
)


def _two_bytes(insn: _Insn) -> frozenset[Kind]:
    op = insn.op
    if op == 0x22:  # mov to a control register
        return frozenset({Kind.TLB, Kind.CONTROL} if insn.reg == _CR3 else {Kind.CONTROL})
    if op in _TWO_ALWAYS:
        return _TWO_ALWAYS[op]
    if op in (0x00, 0x01):
        return _system(insn)
    if op == 0xAE:
        return _states(insn)
    if not insn.in_memory:
        return _NONE
    if op == 0xBA:
        return _LOAD if insn.reg == 4 else _BOTH
    if op == 0xC7:
        return {1: _BOTH, 3: _LOAD, 4: _STORE, 5: _STORE, 6: _LOAD, 7: _STORE}.get(insn.reg, _NONE)
    if op == 0x7E:
        return _LOAD if _REP in insn.prefixes else _STORE
    return _TWO.get(op, _NONE)


def _system(insn: _Insn) -> frozenset[Kind]:
    if insn.op == 0x01 and insn.in_memory:
        # sgdt, sidt; lgdt, lidt; smsw; lmsw; invlpg
        return {
            0: _STORE,
            1: _STORE,
            2: _LOAD | {Kind.CONTROL},
            3: _LOAD | {Kind.CONTROL},
            4: _STORE,
            6: _LOAD | {Kind.CONTROL},
            7: frozenset({Kind.TLB}),
        }.get(insn.reg, _NONE)
    if insn.op == 0x01:
        serialising = insn.modrm == 0xE8 and not insn.prefixes
        return frozenset({Kind.SERIALISING}) if serialising else _NONE
    if insn.reg in (2, 3):  # lldt, ltr
        return (_LOAD if insn.in_memory else _NONE) | {Kind.CONTROL}
    return (_STORE if insn.reg in (0, 1) else _LOAD) if insn.in_memory else _NONE


def _states(insn: _Insn) -> frozenset[Kind]:
    """0F AE: states of the FPU, fences, lines of the cache."""
    if not insn.in_memory:
        fence = insn.reg in (5, 6, 7) and _REP not in insn.prefixes
        return frozenset({Kind.FENCE}) if fence else _NONE
    if insn.reg in (1, 2, 5):
        return _LOAD
    if insn.reg == 6:
        return _NONE if _OPERAND in insn.prefixes else _STORE
    return _STORE if insn.reg in (0, 3, 4) else _NONE


_STORED_38 = frozenset((0x2E, 0x2F, 0x8E, 0xA0, 0xA1, 0xA2, 0xA3, 0xF9))
_STORED_3A = frozenset((0x14, 0x15, 0x16, 0x17, 0x19, 0x1B, 0x1D, 0x39, 0x3B))


def _three_bytes(insn: _Insn) -> frozenset[Kind]:
    if insn.map == 3:
        if insn.op in (0x80, 0x81, 0x82) and _OPERAND in insn.prefixes:  # invept, invvpid, invpcid
            return _LOAD | {Kind.TLB}
        if insn.op == 0xF1 and _REPNE not in insn.prefixes:  # movbe
            return _STORE if insn.in_memory else _NONE
    stored = _STORED_38 if insn.map == 3 else _STORED_3A
    if not insn.in_memory:
        return _NONE
    return _STORE if insn.op in stored else _LOAD
