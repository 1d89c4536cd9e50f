# SPDX-License-Identifier: GPL-2.0-or-later
"""What kind of work an instruction of riscv64 is, by its bits (RISC-V's manual: instruction
listings; privileged instructions in volume II).
"""

from __future__ import annotations

from kdelta.probes.work_kinds import Kind

_LOAD, _STORE = frozenset({Kind.LOAD}), frozenset({Kind.STORE})
_BOTH, _NONE = _LOAD | _STORE, frozenset[Kind]()
_ATOMIC, _FENCE = frozenset({Kind.ATOMIC}), frozenset({Kind.FENCE})
_CONTROL, _INDIRECT = frozenset({Kind.CONTROL}), frozenset({Kind.INDIRECT})
_TLB = frozenset({Kind.TLB})
_RA, _T0 = 1, 5  # registers that have return addresses: a jump by one is a return
_READ_ONLY = 0xC  # the upper bits of a CSR that nothing can be written to
# Of 32 bits: (mask, value, kinds), the first that fits.
_ROWS = (
    (0xFFF0707F, 0x0040200F, _STORE),  # cbo.zero
    (0x0000707F, 0x0000100F, frozenset({Kind.SERIALISING})),  # fence.i
    (0xFFFFFFFF, 0x0100000F, _NONE),  # pause
    (0x0000707F, 0x0000000F, _FENCE),
    (0xF800007F, 0x1000002F, _LOAD),  # lr
    (0xF800007F, 0x1800002F, _STORE | _ATOMIC),  # sc
    (0x0000007F, 0x0000002F, _BOTH | _ATOMIC),  # amo
    (0x0000007F, 0x00000003, _LOAD),
    (0x0000007F, 0x00000023, _STORE),
    (0xFE00407F, 0x02004033, frozenset({Kind.DIVISION})),
    (0xFE00407F, 0x0200403B, frozenset({Kind.DIVISION})),  # of words
    (0xFE007FFF, 0x12000073, _TLB),  # sfence.vma
    (0xFE007FFF, 0x16000073, _TLB),  # sinval.vma
    (0xFFFFFFFF, 0x18000073, _FENCE),  # sfence.w.inval
    (0xFFFFFFFF, 0x18100073, _FENCE),  # sfence.inval.ir
    (0xFFFFFFFF, 0x10200073, frozenset({Kind.SERIALISING})),  # sret
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


def kinds(code: bytes) -> frozenset[Kind]:
    """The kinds of work of one instruction; none for one that is not known."""
    word = int.from_bytes(code, "little")
    if len(code) == 2:
        return _short(word)
    opcode = word & 0x7F
    if opcode in _FLOATING:
        return _FLOATING[opcode]
    if opcode == _JALR:
        far = bool(word >> 20)
        return _jump(word >> 15 & 31, word >> 7 & 31, far=far)
    if opcode == _SYSTEM and word >> 12 & 3:
        return _register(word)
    return next((found for mask, value, found in _ROWS if word & mask == value), _NONE)


def _short(word: int) -> frozenset[Kind]:
    quadrant, function = word & 3, word >> 13
    if quadrant == 2 and function == 4 and not word >> 2 & 31 and word >> 7 & 31:
        return _jump(word >> 7 & 31, _RA if word >> 12 & 1 else 0)  # c.jalr, c.jr
    if quadrant == 0 and function == 4:  # of bytes and halves (Zcb)
        return _STORE if word >> 11 & 1 else _LOAD
    return _SHORT.get((quadrant, function), _NONE)


def _jump(by: int, link: int, *, far: bool = False) -> frozenset[Kind]:
    """A call of a register or a jump by one; not a return, nor the second half of a direct call.

    Such halves, behind auipc, jump by the register that gets the return address or, where there is
    none to get, by an offset; what is in a register from elsewhere is jumped to as it is.
    """
    returns = by in (_RA, _T0) and link not in (_RA, _T0)
    return _NONE if returns or far or (by == link and by == _RA) else _INDIRECT


def _register(word: int) -> frozenset[Kind]:
    """Access to a control and status register; one that sets or clears no bits only reads."""
    reads = word >> 13 & 1 and not word >> 15 & 31
    return _NONE if reads or word >> 28 >= _READ_ONLY else _CONTROL
