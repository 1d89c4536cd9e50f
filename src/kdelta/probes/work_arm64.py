# SPDX-License-Identifier: GPL-2.0-or-later
"""What kind of work an instruction of arm64 is, by its word (Arm's manual, C4: encodings)."""

from __future__ import annotations

from kdelta.probes.work_kinds import Kind

_LOAD, _STORE = frozenset({Kind.LOAD}), frozenset({Kind.STORE})
_BOTH, _NONE = _LOAD | _STORE, frozenset[Kind]()
_ATOMIC = _BOTH | {Kind.ATOMIC}
_IS_LOAD = 1 << 22
# (mask, value, kinds), the first that fits.
_ROWS = (
    (0x3FA07C00, 0x08A07C00, _ATOMIC),  # cas
    (0xBFA07C00, 0x08207C00, _ATOMIC),  # casp
    (0x3FE00000, 0x08000000, _STORE | {Kind.ATOMIC}),  # stxr, stlxr
    (0x3FE00000, 0x08200000, _STORE | {Kind.ATOMIC}),  # stxp, stlxp
    (0x3F400000, 0x08400000, _LOAD),  # ldxr, ldar and their like
    (0x3F400000, 0x08000000, _STORE),  # stlr
    (0x3FFFFC00, 0x38BFC000, _LOAD),  # ldapr
    (0x3B200C00, 0x38200000, _ATOMIC),  # ldadd, swp ...
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
    (0xFFFFF0FF, 0xD503309F, frozenset({Kind.FENCE})),  # dsb
    (0xFFFFF0FF, 0xD50330BF, frozenset({Kind.FENCE})),  # dmb
    (0xFFFFF0FF, 0xD50330DF, frozenset({Kind.SERIALISING})),  # isb
    (0xFFFFF0FF, 0xD50330FF, frozenset({Kind.FENCE})),  # sb
    (0xFFF8F000, 0xD5088000, frozenset({Kind.TLB})),  # tlbi
    (0xFFFFFFE0, 0xD50B7420, _STORE),  # dc zva
    (0xFFF00000, 0xD5100000, frozenset({Kind.CONTROL})),  # msr
    (0xFFFFFFFF, 0xD69F03E0, frozenset({Kind.SERIALISING})),  # eret
    (0xFEDFF000, 0xD61F0000, frozenset({Kind.INDIRECT})),  # br, blr, also authenticated
    (0xFE000000, 0xE4000000, _STORE),  # SVE
    (0x9E000000, 0x84000000, _LOAD),
    (0x7FE0F800, 0x1AC00800, frozenset({Kind.DIVISION})),  # udiv, sdiv
)


def kinds(code: bytes) -> frozenset[Kind]:
    """The kinds of work of one instruction; none for one that is not known."""
    word = int.from_bytes(code, "little")
    return next((found for mask, value, found in _ROWS if word & mask == value), _NONE)
