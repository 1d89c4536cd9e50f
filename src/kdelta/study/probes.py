# SPDX-License-Identifier: GPL-2.0-or-later
"""What a trial of the exact instrument can record beside its counts, as a study words it."""

from __future__ import annotations

import re
from dataclasses import dataclass

CALLS, MEMORY = "calls", "memory"
# A value of a function, as a pattern.
VALUE = r"[A-Za-z_]\w{0,127}\([A-Za-z_]\w{0,31}=(?:arg[1-6]|ret)(?::[iu](?:8|16|32|64))?\)"
PATTERN = rf"\A(?:calls|memory|{VALUE})\Z"
DESCRIPTION = "calls, memory, or a value of a function: FUNCTION(NAME=arg1), or arg2 ... arg6, ret"
_ARGUMENT = re.compile(
    r"(?P<function>\w+)\((?P<name>\w+)=(?P<which>arg[1-6]|ret)(?::(?P<form>[iu]\d+))?\)"
)
_WHOLE = "u64"


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a function is given or gives back.

    text: as the study has it.  argument: its number from 1, 0 for what it returns.  form: how its
    register is read, "i32": signed, 32 bits.
    """

    text: str
    function: str
    name: str
    argument: int
    form: str

    def read(self, register: int) -> int:
        """The value in a register of 64 bits."""
        bits = int(self.form[1:])
        value = register & ((1 << bits) - 1)
        return value - (1 << bits) if self.form[0] == "i" and value >> (bits - 1) else value


def value(probe: str) -> Value | None:
    """The value that a probe asks for; None for another probe."""
    found = _ARGUMENT.fullmatch(probe)
    if not found:
        return None
    which = found["which"]
    number = 0 if which == "ret" else int(which[-1])
    return Value(probe, found["function"], found["name"], number, found["form"] or _WHOLE)
