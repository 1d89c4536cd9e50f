# SPDX-License-Identifier: GPL-2.0-or-later
"""The kinds of work that instructions are told apart by."""

from __future__ import annotations

from enum import StrEnum


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
