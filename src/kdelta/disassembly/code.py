# SPDX-License-Identifier: GPL-2.0-or-later
"""Machine code of one function as instructions whose references have names.

objdump sees the bytes alone; what branches, calls and memory operands refer to is
resolved here, from relocations (objects) or from addresses (images), so that both give one form.
objdump is asked for many pieces at once, and read strictly.
"""

from __future__ import annotations

import itertools
import re
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kdelta import process
from kdelta.arch import Arch
from kdelta.errors import InfraError, SpecError
from kdelta.printable import printable

# ---- objdump ----------------------------------------------------------------------------------

MAX_BYTES = 1 << 20  # of one piece
MOST_PIECES = 4096  # of one call
_MAX_LINE = 500
_OBJDUMP_S = 300.0
_MACHINE = {"amd64": 62, "arm64": 183, "riscv64": 243}
_ROW = re.compile(r"\s*([0-9a-f]+):\t(\S.*)")
_SECTION = re.compile(r"Disassembly of section \.f(\d{1,6}):")
_HEAD = re.compile(r"\s*|.*:\s+file format elf64-\S+|[0-9a-f]+ <\.f\d+>:")
# "call ffff8000 <.f3+0x10>": the sections' names mean nothing.
_PLACE = re.compile(r"(?<=[ ,])([0-9a-f]+) <[^<>]{1,100}>$")
_COMMENT = re.compile(r"\s+(?:#|//)\s+(?:(?:0x)?([0-9a-f]+)(?: <[^<>]{1,100}>)?$)?.*$")
_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_PROGBITS, _STRTAB = 1, 3
_EXECUTABLE = 6  # SHF_ALLOC, SHF_EXECINSTR
_PRINTED_ADDRESS = re.compile(r"\b(?:0x)?([0-9a-f]{12,16})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Code and the address at which it lies."""

    start: int
    code: bytes


class Row(Struct, frozen=True, kw_only=True):  # a dataclass would take longest to make
    """One instruction as objdump says it, one blank between words, comment apart.

    offset: from the piece's start; address: what the comment resolves to, if anything.
    """

    offset: int
    size: int
    text: str
    address: int | None


def rows(pieces: Sequence[Piece], architecture: Arch) -> tuple[tuple[Row, ...], ...]:
    """The instructions of each piece.  Raises InfraError; SpecError: it is empty or too large."""
    for piece in pieces:
        if not 0 < len(piece.code) <= MAX_BYTES:
            raise SpecError(f"{len(piece.code)} bytes of code are none, or too many to look at")
    found: list[tuple[Row, ...]] = []
    for first in range(0, len(pieces), MOST_PIECES):
        part = pieces[first : first + MOST_PIECES]
        found += parse(_run(part, architecture), part)
    return tuple(found)


def parse(text: str, pieces: Sequence[Piece]) -> list[tuple[Row, ...]]:
    """Read what objdump prints of pieces.  Raises InfraError at any other line."""
    lines: list[list[tuple[int, str, int | None]]] = [[] for _ in pieces]
    current: int | None = None
    for line in text.splitlines():
        head = _SECTION.fullmatch(line)
        if head is not None and int(head[1]) < len(pieces):
            current = int(head[1])
            continue
        row = _ROW.fullmatch(line[:_MAX_LINE])
        if row is None or current is None:
            if head is None and _HEAD.fullmatch(line[:_MAX_LINE]):
                continue
            raise InfraError(f"objdump says what is not understood: {line[:80]!r}")
        words = " ".join(row[2].split())
        address = None
        if comment := _COMMENT.search(words) if "#" in words or "//" in words else None:
            address = int(comment[1], 16) if comment[1] else None
            words = words[: comment.start()]
        if words.endswith(">"):
            words = _PLACE.sub(r"0x\1", words)
        lines[current].append((int(row[1], 16) - pieces[current].start, words, address))
    return [_whole(found, piece) for found, piece in zip(lines, pieces, strict=True)]


def _whole(found: list[tuple[int, str, int | None]], piece: Piece) -> tuple[Row, ...]:
    offsets = [row[0] for row in found]
    ascending = all(a < b for a, b in itertools.pairwise([*offsets, len(piece.code)]))
    if not found or offsets[0] != 0 or not ascending:
        raise InfraError("objdump does not list all instructions")
    ends = [*offsets[1:], len(piece.code)]
    return tuple(
        Row(offset=offset, size=end - offset, text=words, address=address)
        for (offset, words, address), end in zip(found, ends, strict=True)
    )


def _run(pieces: Sequence[Piece], architecture: Arch) -> str:
    from kdelta import toolchains  # needs the archive; what shows stored results does without

    if architecture.debian not in _MACHINE:
        raise SpecError(f"code of {architecture.debian} cannot be disassembled here")
    with tempfile.NamedTemporaryFile(prefix="kdelta-code-") as file:
        file.write(_elf(pieces, architecture))
        file.flush()
        program = toolchains.binutils("objdump", architecture)
        argv = [program, "-d", "-z", "-w", "--no-show-raw-insn", file.name]
        return process.run(argv, timeout=_OBJDUMP_S, env={"LC_ALL": "C"}).stdout


def _elf(pieces: Sequence[Piece], architecture: Arch) -> bytes:
    names = [b"", *(b".f%d" % number for number in range(len(pieces))), b".shstrtab"]
    table = b"\0".join(names) + b"\0"
    at = list(itertools.accumulate((len(name) + 1 for name in names), initial=0))
    body, headers = bytearray(), [_SECTION_HEADER.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    sections = [(_PROGBITS, _EXECUTABLE, piece.start, piece.code) for piece in pieces]
    for number, (kind, flags, start, code) in enumerate([*sections, (_STRTAB, 0, 0, table)], 1):
        place = kind, flags, start, _ELF_HEADER.size + len(body), len(code)
        headers.append(_SECTION_HEADER.pack(at[number], *place, 0, 0, 1, 0))
        body += code
    head = _ELF_HEADER.pack(
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0"), 2, _MACHINE[architecture.debian], 1, 0, 0,
        _ELF_HEADER.size + len(body), 0, _ELF_HEADER.size, 0, 0, _SECTION_HEADER.size,
        len(headers), len(headers) - 1,
    )  # fmt: skip
    return head + bytes(body) + b"".join(headers)


@dataclass(frozen=True, slots=True)
class ExecutedInsn:
    """An instruction that ran.  offset: from the function's begin; count: per window."""

    offset: int
    size: int
    count: int
    text: str


def executed_code(
    instructions: Iterable[tuple[int, bytes, int]],
    start: int,
    end: int,
    architecture: Arch,
    names: Mapping[int, str] = MappingProxyType({}),
) -> tuple[ExecutedInsn, ...]:
    """Those of a function, by address.

    instructions: (address, its bytes, how often) of all that ran.  Addresses within the function
    are counted from its begin, others by the name that `names` has for them.  Raises InfraError
    without an objdump for the architecture.
    """
    counts: Counter[int] = Counter()
    codes: dict[int, bytes] = {}
    for address, code, count in instructions:
        if start <= address < end and code:
            codes[address] = code
            counts[address] += count
    if not counts:
        return ()

    def near(seen: re.Match[str]) -> str:
        address = int(seen[1], 16)
        if start <= address < end:
            return f"+{address - start:#x}"
        return printable(names.get(address, f"{address:#x}"))

    pieces = [Piece(start=address, code=code) for address, code in sorted(codes.items())]
    found = []
    for piece, told in zip(pieces, rows(pieces, architecture), strict=True):
        offset, text = piece.start - start, _PRINTED_ADDRESS.sub(near, told[0].text)
        found.append(ExecutedInsn(offset, len(piece.code), counts[piece.start], text))
    return tuple(found)


_FIELD_BYTES = 4

# Where an instruction goes: the address is its whole operand, or (arm64) its last one.
_BRANCH = {
    "amd64": re.compile(
        r"((?:(?:cs|ds|es|bnd|notrack|data16|rex\S*|addr32) )*)"
        r"(call|jmp|j[a-z]{1,4}|loop\w*|xbegin) 0x([0-9a-f]+)"
    ),
    "arm64": re.compile(r"()(bl?|b\.[a-z]{2}|bc\.[a-z]{2}|cbn?z|tbn?z) (?:.*, ?)?0x([0-9a-f]+)"),
    "riscv64": re.compile(r"()(jal?|b(?:eq|ne|lt|ge|gt|le)[uz]?) (?:.*,)?0x([0-9a-f]+)"),
}
_CALLS = {"call", "bl", "jal"}
# riscv64 makes an address of two instructions; objdump tells it beside the second.
_UPPER = re.compile(r"auipc (\w+),0x[0-9a-f]+")
_BASE = re.compile(r"\((\w+)\)$|,(\w+)(?:,-?\d+)?$")
_LOWER = re.compile(r"-?\d+(?=\(\w+\)$|$)")
_PADDING = re.compile(
    r"nop[lw]?\b.*|int3|(?:data16 |cs )+nop[lw]?\b.*|xchg %ax,%ax|udf #0"
    r"|lea 0x0\(%[re]si.*\),%[re]si"
)
# Long enough for an address, or relative to the segment of per-CPU data.
_ADDRESS = re.compile(
    r"(?<![\w(])(\$?)(-?)0x([0-9a-f]{7,16})(?=[,(]|$)|(%gs:)()0x([0-9a-f]+)(?=[,(]|$)"
)

_PAGE = re.compile(r"adrp (x\d+), 0x([0-9a-f]+)")
_PAGE_ADD = re.compile(r"add x\d+, (x\d+), #(0x[0-9a-f]+|\d+)")
_PAGE_MEMORY = re.compile(r"\w+ .*\[(x\d+)(?:, #(0x[0-9a-f]+|\d+))?\]")
_REGISTER_WRITTEN = re.compile(
    r"(?!st|cmp|cmn|tst|cb|tb|prfm|b\b|b\.)\w+ ([wx])(\d+),(?: ([wx])(\d+), \[)?"
)
_PAGE_CALL = re.compile(r"bl(?:r)? ")
_LOST_IN_CALLS = {f"x{number}" for number in range(19)} | {"x30"}
FEATURE_SECTION = ".altinstr_aux"
FEATURE_BYTES = 18
_FEATURE_TEST = re.compile(rb"\xf6\x05(.{4})(.)\x0f\x85(.{4})\xe9(.{4})", re.DOTALL)
_FEATURE_FIELDS = ((2, 7), (9, 13), (14, 18))  # where an address stands, and what it is relative to


class Flow(StrEnum):
    """What an instruction does to the flow."""

    CALL = "call"
    JUMP = "jump"
    PLAIN = "plain"


class Instruction(Struct, frozen=True, kw_only=True):
    """One instruction.

    text: as objdump says it, one blank between words, references by name and branches inside the
    function as "@".  to: the index of the instruction that such a branch goes to.
    raw: as objdump says it.
    """

    offset: int  # bytes from the function's start
    size: int  # bytes
    text: str
    raw: str
    kind: Flow = Flow.PLAIN
    to: int | None = None
    references: tuple[str, ...] = ()  # names outside the function

    @property
    def shown(self) -> str:
        """The text with the number of the instruction that a branch goes to: "jne @12"."""
        return self.text if self.to is None else f"{self.text}{self.to}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The instructions of one function, without padding after the last."""

    name: str
    size: int  # bytes, as the symbol table has it; of an image, up to the padding
    instructions: tuple[Instruction, ...]

    @property
    def normal(self) -> tuple[str, ...]:
        """One line per instruction that does not depend on where the code lies."""
        return tuple(instruction.shown for instruction in self.instructions)

    @property
    def calls(self) -> tuple[str, ...]:
        """What is called or jumped to outside, in order, as often as it is."""
        going = (i for i in self.instructions if i.kind is not Flow.PLAIN)
        return tuple(name for i in going for name in i.references)

    @property
    def data(self) -> tuple[str, ...]:
        """What else is referred to, in order, as often as it is."""
        plain = (i for i in self.instructions if i.kind is Flow.PLAIN)
        return tuple(name for i in plain for name in i.references)


# Numbers in names of data that count what came before in the same file.
_COUNTED = re.compile(
    r"(__UNIQUE_ID_[A-Za-z_]+|__BTF_ID__\w+?__)\d+(?:\.\d+)?$|^(.+?)\.(?:\d+\.)*\d+$"
)


def stable(name: str) -> str:
    """The name of a piece of data without the numbers that compilers and macros count up."""
    return _COUNTED.sub(lambda match: match[1] or match[2], name)


# What lies at an address, seen from the instruction at another; "" when nothing is known of it.
Names = Callable[[int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """A field that the linker fills: its offset from the function's start, and what it names.

    inside: the offset in this function that it means, when it does.  before: of an address that is
    relative to the instruction's end, its name where so many bytes stand between the two.
    """

    offset: int
    name: str
    inside: int | None = None
    before: Callable[[int], str] | None = None

    def named(self, left: int) -> str:
        """Its name; left: bytes of the instruction behind it, which is an immediate."""
        return self.before(left) if left > 0 and self.before else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function to disassemble: its bytes, where they lie, and what is known of its references.

    names: for addresses outside.  relocations: by offset, for code that is not linked, of which
    only branches within a section go where they will.  size: as a symbol table has it.
    """

    name: str
    code: bytes
    start: int = 0
    names: Names = lambda _: ""
    relocations: Mapping[int, Relocation] | None = None
    size: int | None = None


def disassemble(function: Function, architecture: Arch) -> Code:
    """The instructions of a function.  Raises SpecError and InfraError, as rows does."""
    (found,) = rows([Piece(start=function.start, code=function.code)], architecture)
    return named(function, found, architecture)


def named(function: Function, rows: Sequence[Row], architecture: Arch) -> Code:
    """The instructions of a function, of which objdump said these rows.  Raises SpecError."""
    filled = function.relocations or {}
    at = {row.offset: index for index, row in enumerate(rows)}
    other = _completed if architecture.debian == "riscv64" else _addressed
    going, built = _BRANCH[architecture.debian], []
    for row in rows:
        fields = range(row.offset, row.offset + row.size) if filled else ()
        inner = [filled[at] for at in fields if at in filled]
        branch = going.fullmatch(row.text)
        if branch is not None:
            built.append(_branch(row, branch, inner, function, at))
        elif function.relocations is not None:
            # An instruction with fields that the linker fills; until then they are zero.
            text, names = row.text, list[str]()
            for relocation in inner:
                left = row.offset + row.size - relocation.offset - _FIELD_BYTES
                names.append(relocation.named(left))
                text = _with_name(text, names[-1], rip=row.address is not None, at_end=left <= 0)
            built.append(_made(row, text=text, references=tuple(names)))
        else:
            built.append(other(row, function.names))
    if architecture.debian == "arm64" and function.relocations is None:
        built = _paged(built, function.names)
    if architecture.debian == "riscv64" and function.relocations is None:
        built = _halved(built)
    while built and _PADDING.fullmatch(built[-1].text):
        built.pop()
    if not built:
        raise SpecError(f"{function.name} is padding only")
    end = built[-1].offset + built[-1].size
    size = end if function.size is None else function.size
    return Code(name=function.name, size=size, instructions=tuple(built))


def _branch(
    row: Row,
    branch: re.Match[str],
    relocations: list[Relocation],
    function: Function,
    at: Mapping[int, int],
) -> Instruction:
    """at: the index of the instruction at an offset."""
    kind = Flow.CALL if branch[2] in _CALLS else Flow.JUMP
    head = row.text[: branch.start(3) - 2]
    target: int | None = int(branch[3], 16) - function.start
    name = ""
    if relocations:
        target, name = relocations[0].inside, relocations[0].name
    if target is not None and target in at:
        return _made(row, text=f"{head}@", kind=kind, to=at[target])
    if target is not None and 0 <= target < len(function.code):
        return _made(row, text=f"{head}+{target:#x}", kind=kind)
    name = name or function.names(int(branch[3], 16)) or "[unknown]"
    return _made(row, text=head + name, kind=kind, references=(name,))


def _with_name(text: str, name: str, *, rip: bool, at_end: bool) -> str:
    """The text with the field that a relocation fills as its name; appended when none prints."""
    # x86 encodes an immediate after a displacement, so that only it can be at the end.
    immediate = re.sub(r"\$0x0(?=,|$)", lambda _: f"${name}", text, count=1)
    if at_end and immediate != text:
        return immediate
    pattern = r"-?0x[0-9a-f]+(?=\(%rip\))" if rip else r"(?<![\w$#])0x0(?=\(|,|$)"
    filled = re.sub(pattern, lambda _: name, text, count=1)
    return filled if filled != text else f"{text} {{{name}}}"


def _addressed(row: Row, names: Names) -> Instruction:
    """An instruction of linked code: its addresses get names where there are any."""
    text, found = row.text, list[str]()
    if row.address is not None and (name := names(row.address)):
        filled = f"{name}(%rip)"  # a string constant has backslashes
        text = re.sub(r"-?0x[0-9a-f]+\(%rip\)", lambda _: filled, text, count=1)
        found.append(name)

    def named(match: re.Match[str]) -> str:
        value = int(match[3] or match[6], 16)
        name = names((1 << 64) - value if match[2] else value)
        if not name:
            return match[0]
        found.append(name)
        return (match[1] or match[4] or "") + name

    text = _ADDRESS.sub(named, text) if "0x" in text else text
    return _made(row, text=text, references=tuple(found))


def _completed(row: Row, names: Names) -> Instruction:
    """riscv64: an address stands beside the instruction that completes it."""
    name = "" if row.address is None else names(row.address)
    text = _LOWER.sub(lambda _: name, row.text, count=1) if name else row.text
    return _made(row, text=text, references=(name,) if name else ())


def _halved(built: list[Instruction]) -> list[Instruction]:
    """riscv64: the upper half of an address goes without its number where the lower has a name."""
    result = list(built)
    halves: dict[str, int] = {}  # register -> index of its upper half
    for index, instruction in enumerate(built):
        upper = _UPPER.fullmatch(instruction.raw)
        if upper is not None:
            halves[upper[1]] = index
        elif instruction.references and (by := _BASE.search(instruction.raw)):
            found = halves.pop(by[1] or by[2], None)
            if found is not None:
                result[found] = replace(built[found], text=f"auipc {by[1] or by[2]}")
    return result


def _paged(built: list[Instruction], names: Names) -> list[Instruction]:
    """arm64: addresses that two instructions make together get names."""
    targets = {instruction.to for instruction in built if instruction.to is not None}
    found = completed_pages([instruction.raw for instruction in built], targets)
    result = list(built)
    for index, address in found.items():
        if name := names(address):
            text = with_page_name(built[index].raw, name)
            result[index] = replace(built[index], text=text, references=(name,))
    return result


def _made(row: Row, *, text: str, **more: Any) -> Instruction:
    """more: other fields of an instruction."""
    return Instruction(offset=row.offset, size=row.size, text=text, raw=row.text, **more)


def completed_pages(texts: Sequence[str], starts: Collection[int]) -> dict[int, int]:
    """Index of an arm64 instruction -> the address that it completes, or that its page is for.

    An address is made of two instructions there: a page (adrp), and later an offset in it.  Linked
    code shows both as numbers.  Only what is certain is said: within a stretch without branch
    targets, as long as the register has not been written again.  texts: as objdump says them;
    starts: indices that something branches to.
    """
    found: dict[int, int] = {}
    pages: dict[str, tuple[int, int]] = {}  # register -> its page, index of its adrp
    for index, text in enumerate(texts):
        if index in starts:
            pages.clear()
        use = _PAGE_ADD.fullmatch(text) or _PAGE_MEMORY.fullmatch(text)
        if use is not None and use[1] in pages:
            page, at = pages[use[1]]
            found[index] = page + int(use[2] or "0", 0)
            found.setdefault(at, found[index])
        written = _REGISTER_WRITTEN.match(text)
        gone = {f"x{number}" for number in (written[2], written[4])} if written else set()
        gone |= _LOST_IN_CALLS if _PAGE_CALL.match(text) else set()
        pages = {register: page for register, page in pages.items() if register not in gone}
        if (made := _PAGE.fullmatch(text)) is not None:
            pages[made[1]] = int(made[2], 16), index
    return found


def with_page_name(text: str, name: str) -> str:
    """An arm64 instruction with its page or its offset replaced by the name of both together."""
    if _PAGE.fullmatch(text) or _PAGE_ADD.fullmatch(text):
        return f"{text.rpartition(' ')[0]} {name}"
    return re.sub(r"\[(x\d+)(?:, #[^\]]*)?\]", lambda match: f"[{match[1]}, {name}]", text)


def feature_test(content: bytes, names: Callable[[int, int, int], str]) -> str:
    """The test of a CPU feature in so many bytes, or "".

    x86 kernels keep these out of the way (static_cpu_has(), .altinstr_aux): `testb $bit, place;
    jne yes; jmp no`.  Functions jump to one, and it has no symbol: so it is called by what it reads
    and where it goes, in an object as in an image.

    names: of a field at, relative to, of that value.
    """
    found = _FEATURE_TEST.fullmatch(content)
    if found is None:
        return ""
    values = (struct.unpack_from("<i", content, at)[0] for at, _ in _FEATURE_FIELDS)
    fields = zip(_FEATURE_FIELDS, values, strict=True)
    place, yes, no = (names(at, end, value) for (at, end), value in fields)
    return f"[{place} & {found[2][0]:#x} ? {yes} : {no}]"
