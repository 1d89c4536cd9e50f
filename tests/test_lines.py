# SPDX-License-Identifier: GPL-2.0-or-later
"""Source lines of addresses, and when they are believed: real gcc, ld and binutils."""

from __future__ import annotations

import dataclasses
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec import structs

import kernel_tree
from kdelta import arch, cache, elf
from kdelta.analysis.explanation import explain
from kdelta.analysis.work import KindDelta, ValueDelta, WorkExplanation
from kdelta.archive import apt
from kdelta.archive.index import Package
from kdelta.cli import explain as code
from kdelta.cli import explain as explain_cli
from kdelta.codegen import recorded
from kdelta.codegen.source_lines import RanFunction, located, same_code
from kdelta.disassembly import objects
from kdelta.disassembly.addr2line import SourceLine, Unit, chains, parse, units
from kdelta.disassembly.objdump import ExecutedInsn
from kdelta.errors import InfraError, SpecError
from kdelta.files import sha256_of
from kdelta.journal import artifacts, results
from kdelta.journal.artifacts import Histogram
from kdelta.kernels import packages, reference
from kdelta.kernels.kernel import Kernel
from kdelta.rendering import explain as explain_view
from kdelta.rendering.explain import ExecutedCode
from kdelta.sample import KernelIdentity
from kdelta.source import make
from kdelta.table.columns import plain
from ladder_records import ladder
from test_explained_work import stored
from test_listing import listed

AMD64 = arch.of("amd64")
SOURCE = """\
int seen;
static inline __attribute__((always_inline)) void touch(int n)
{
\tseen += n;
}
static inline __attribute__((always_inline)) void twice(int n)
{
\ttouch(n * 3);
}
__attribute__((noinline)) int walk(int n)
{
\ttwice(n);
\treturn n;
}
"""
AT = 0xFFFFFFFF81000000


def linked(folder: Path, text: str = SOURCE, *flags: str, at: int = AT) -> Path:
    """A program of mm/walk.c with its code at an address, with DWARF unless told."""
    (folder / "mm").mkdir(parents=True, exist_ok=True)
    (folder / "mm/walk.c").write_text(text)
    told = ["gcc", "-g", "-O1", "-fno-pie", "-mcmodel=kernel", *flags]
    subprocess.run([*told, "-c", "-o", "walk.o", "mm/walk.c"], cwd=folder, check=True)
    program = folder / "vmlinux"
    words = ["ld", "-e", "0", f"-Ttext={at:#x}", "--noinhibit-exec", "-o", str(program), "walk.o"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return program


def places(program: Path) -> dict[str, tuple[int, int]]:
    return {name: (at, size) for at, size, name in elf.functions(program.read_bytes())}


def test_an_address_has_its_line_and_the_functions_inlined_there(tmp_path: Path) -> None:
    program = linked(tmp_path)
    at, size = places(program)["walk"]
    found = chains(program, [*range(at, at + size), 0x10], AMD64)
    assert 0x10 not in found
    assert found[at][-1].function == "walk"
    inlined = (
        SourceLine("mm/walk.c", 4, "touch"),
        SourceLine("mm/walk.c", 8, "twice"),
        SourceLine("mm/walk.c", 12, "walk"),
    )
    assert inlined in found.values()
    assert {chain[-1].file for chain in found.values()} == {"mm/walk.c"}
    assert chains(program, [], AMD64) == {}


def test_code_is_known_by_the_file_that_it_was_compiled_of(tmp_path: Path) -> None:
    program = linked(tmp_path)
    at, size = places(program)["walk"]
    assert units(program, AMD64) == [Unit(at, at + size, "mm/walk.c")]
    assert units(linked(tmp_path / "none", SOURCE, "-g0"), AMD64) == []
    damaged = tmp_path / "damaged"
    damaged.write_bytes(program.read_bytes()[:-700])
    with pytest.raises(InfraError):
        units(damaged, AMD64)


def test_only_functions_of_a_folder_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = linked(tmp_path)
    at, size = places(program)["walk"]
    kernel = KernelIdentity(
        reference=f"file:{program}", release="6.17", version="", arch="amd64", flavour="",
        image_sha256=sha256_of(program), )  # fmt: skip
    walk = RanFunction(name="walk", start=at, addresses=tuple(range(at, at + size)))
    whole = located(kernel, [walk])
    assert whole.chains
    assert located(kernel, [walk], under="mm") == whole
    assert located(kernel, [walk], under="m").chains == {}
    (kept,) = (tmp_path / "cache").rglob("units.json")
    kept.chmod(0o600)
    kept.write_bytes(b"[[")
    assert located(kernel, [walk], under="mm") == whole
    nowhere = RanFunction(name="entry", start=at + size, addresses=(at,))  # of no unit: looked at
    assert located(kernel, [nowhere], under="fs").chains.keys() == {at}


def test_what_addr2line_says_is_read_strictly() -> None:
    good = "0xffffffff81000000\nf\n/b/linux-6.1/mm/x.c:12 (discriminator 3)\n"
    assert parse(good, [AT]) == {AT: (SourceLine("mm/x.c", 12, "f"),)}
    assert parse("0xffffffff81000000\n??\n??:0\n", [AT]) == {}
    hidden = parse("0xffffffff81000000\nf\x1b[2J\n../mm/\u202ex.c:1\n", [AT])[AT][0]
    assert (hidden.file, hidden.function) == ("mm/?x.c", "f?[2J")
    deep = good.partition("\n")[0] + "\nf\nmm/x.c:1" * 65 + "\n"
    both = {AT: found, AT + 1: found} if (found := parse(good, [AT])[AT]) else {}
    assert parse(good + good.replace("000\n", "001\n"), [AT, AT + 1]) == both
    with pytest.raises(InfraError, match="not understood"):
        parse(good + good, [AT, AT + 1])
    for bad in ("", "f\nx.c:1\n", good + good, good[:30], deep, good.replace(":12", ":")):
        with pytest.raises(InfraError, match="not understood"):
            parse(bad, [AT])


def test_a_root_is_found_in_the_paths_of_any_builder() -> None:
    def file(path: str) -> str:
        return parse(f"0xffffffff81000000\nf\n{path}:7\n", [AT])[AT][0].file

    assert file("debian/build/build_amd64_none_cloud-amd64/mm/mincore.c") == "mm/mincore.c"
    assert file("/src/kdelta-1/../arch/x86/mm/fault.c") == "arch/x86/mm/fault.c"
    assert file("./include/generated/x.h") == "include/generated/x.h"
    assert file("own.c") == "own.c"


def test_code_is_the_same_but_for_what_linker_and_objtool_fill() -> None:
    call = bytes.fromhex("e800000000c3")
    assert same_code(call, call, set())
    assert same_code(bytes.fromhex("e811223344c3"), call, {1, 2, 3, 4})
    assert same_code(bytes.fromhex("0f1f440000c3"), call, {1, 2, 3, 4})
    assert same_code(bytes.fromhex("6690c3"), bytes.fromhex("eb10c3"), set())
    assert not same_code(bytes.fromhex("e811223344c3"), call, {1, 2, 3})
    assert not same_code(bytes.fromhex("0f1f440000c3"), bytes.fromhex("0f1f000000c3"), set())
    assert not same_code(bytes.fromhex("6690c3"), bytes.fromhex("7510c3"), set())
    assert not same_code(call[:-1], call, {1, 2, 3, 4})


def test_what_the_linker_fills_is_known(tmp_path: Path) -> None:
    program = linked(tmp_path)
    content, filled = objects.placed(tmp_path / "walk.o", "walk")
    assert len(content) == places(program)["walk"][1]
    assert filled
    assert objects.placed(tmp_path / "walk.o", "wal") == (b"", frozenset())


# -- packages and files ---------------------------------------------------------------------------


def identity(program: Path, **more: str) -> KernelIdentity:
    known = KernelIdentity(
        reference="6.12",
        release="6.12.1-cloud-amd64",
        version="6.12.1-1",
        arch="amd64",
        flavour="cloud",
        image_sha256=sha256_of(program),
    )
    return structs.replace(known, **more)


def kernel(image: Path) -> Kernel:
    return Kernel(
        **{name: getattr(identity(image), name) for name in ("reference", "release", "version")},
        arch="amd64", flavour="cloud", image=image, image_sha256=sha256_of(image), )  # fmt: skip


def image_of(folder: Path, text: str = SOURCE) -> Path:
    """The image that a package would hold of a program: its code without symbols and DWARF."""
    image = folder / "image"
    subprocess.run(["strip", "-o", str(image), str(linked(folder, text))], check=True)
    return image


class _Archive(apt.Archive):
    """An archive with one -dbg package, made of a file."""

    def __init__(self, place: Path, program: Path, name: str) -> None:
        super().__init__("amd64")
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w:xz") as data:
            data.add(program, name)
        parts = {"debian-binary": b"2.0\n", "control.tar.xz": plain.getvalue()}
        parts["data.tar.xz"] = plain.getvalue()
        content = b"!<arch>\n"
        for member, body in parts.items():
            head = f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(body):<10}`\n"
            content += head.encode() + body + b"\n" * (len(body) % 2)
        (self.root / "debs").mkdir(parents=True, exist_ok=True)
        self.package = Package(
            name="linux-image-6.12.1-cloud-amd64-dbg", version="6.12.1-1", arch="amd64",
            depends="", size=len(content), sha256="", uri="", suites=("trixie",),
        )  # fmt: skip
        place.write_bytes(content)
        self.package = dataclasses.replace(self.package, sha256=sha256_of(place))
        place.rename(self.root / "debs" / self.package.file_name)

    def packages(self, *_: str) -> tuple[Package, ...]:
        return (self.package,)


def test_a_package_s_lines_are_kept_and_are_the_image_s(tmp_path: Path) -> None:
    image = image_of(tmp_path / "a")
    program = tmp_path / "a/vmlinux"
    inside = "./usr/lib/debug/boot/vmlinux-6.12.1-cloud-amd64"
    archive = _Archive(tmp_path / "deb", program, inside)
    found = packages.debug_package("6.12.1-cloud-amd64", "6.12.1-1", archive)
    assert found is not None
    assert packages.debug_package("6.12.1-cloud-amd64", "6.12.1-2", archive) is None
    assert packages.cached_lines(sha256_of(image)) is None
    at, _ = places(program)["walk"]
    kept = packages.fetch_lines(found, kernel(image), archive)
    assert chains(kept, [at], AMD64) == chains(program, [at], AMD64) != {}
    assert [path.name for path in kept.parent.iterdir() if path.name[0] != "."] == ["lines.elf"]
    told = located(identity(image), [RanFunction(name="walk", start=at, addresses=(at,))])
    assert told.chains[at][0].file == "mm/walk.c"
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")  # one byte is damaged
    assert packages.cached_lines(sha256_of(image)) is None
    assert not kept.exists()  # so that it is fetched again


def test_another_kernel_s_lines_are_not_believed(tmp_path: Path) -> None:
    image = image_of(tmp_path / "a")
    other = linked(tmp_path / "b", SOURCE.replace("* 3", "* 5"))
    archive = _Archive(tmp_path / "deb", other, "./usr/lib/debug/vmlinux-6.12.1-cloud-amd64")
    with pytest.raises(SpecError, match=r"not that of 6\.12\.1-cloud-amd64's image"):
        packages.fetch_lines(archive.package, kernel(image), archive)
    assert not any((cache.root() / "debug").iterdir())
    empty = _Archive(tmp_path / "deb", other, "./usr/share/doc/nothing")
    with pytest.raises(SpecError, match="no vmlinux in it"):
        packages.fetch_lines(empty.package, kernel(image), empty)


def test_a_signature_of_an_arm64_image_is_no_code_of_it() -> None:
    """Offsets as in Debian's 7.3.4 for arm64: its PE header at 64, signed by sbsign."""
    head = bytearray(b"MZ" + bytes(0x3A) + (0x40).to_bytes(4, "little") + b"PE\0\0" + bytes(0xC0))
    signed = head[:]
    signed[0x98:0x9C] = b"\x6a\x36\x7e\x02"
    signed[0xE8:0xF0] = b"\x00\xba\x7d\x02\xc0\x05\x00\x00"
    assert packages._unsigned(bytes(signed)) == packages._unsigned(bytes(head)) != bytes(signed)
    for at in (0x97, 0x9C, 0xE7, 0xF0):
        other = signed[:]
        other[at] ^= 1
        assert packages._unsigned(bytes(other)) != packages._unsigned(bytes(head))
    assert packages._unsigned(b"\x0f" + signed[1:]) == b"\x0f" + signed[1:]
    cut = b"MZ" + bytes(0x3A) + b"\xff\xff\xff\x7f"
    assert packages._unsigned(cut) == cut


def test_why_there_are_no_lines_is_said(tmp_path: Path) -> None:
    image = image_of(tmp_path)
    ran = [RanFunction(name="walk", start=AT, addresses=(AT,))]

    def missing(**more: str) -> str:
        found = located(identity(image, **more), ran)
        assert not found.chains
        return " ".join(found.missing)

    assert "--fetch-debug gets linux-image-6.12.1-cloud-amd64-dbg" in missing()
    assert "neither a package nor built here" in missing(version="")
    other = tmp_path / "other"
    other.write_bytes(b"no image")
    assert "no longer the image that ran" in missing(reference=f"file:{other}")
    digest = sha256_of(other)
    assert "without line tables" in missing(reference=f"file:{other}", image_sha256=digest)
    assert "nowhere" in missing(reference="tree:nowhere")


def test_a_vmlinux_that_was_named_has_its_lines(tmp_path: Path) -> None:
    program = linked(tmp_path)
    at, _ = places(program)["walk"]
    asked = [RanFunction(name="walk", start=at, addresses=(at,))]
    found = located(identity(program, reference=f"file:{program}"), asked)
    assert found.chains[at][-1].function == "walk"


# -- own builds -----------------------------------------------------------------------------------


@pytest.mark.program
def test_an_own_build_s_object_is_compiled_again_with_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "_NEEDED", {"make": "make", "gcc": "gcc"})
    monkeypatch.setattr(make, "_HEADERS", {})
    make.check_tools.cache_clear()
    tree = kernel_tree.make(tmp_path / "linux")
    name = f"tree:{tree}"
    made = reference.resolve(name)
    kept = made.identity()
    asked = [RanFunction(name="present", start=AT, addresses=(AT, AT + 3))]
    found = located(kept, asked)
    assert not found.missing
    body = 1 + kernel_tree.MINCORE.splitlines().index("\treturn pte + FIRST;")
    assert found.chains[AT][0].file == "mm/mincore.c"
    assert found.chains[AT][0].line in (body - 1, body)
    assert found.chains[AT + 3][-1].function == "present"
    again = located(kept, asked)  # of what was kept
    assert again == found
    assert located(kept, asked, under="mm") == found
    assert located(kept, asked, under="lib").chains == {}
    unknown = located(kept, [RanFunction(name="nobody", start=AT, addresses=(AT,))])
    assert "no object of the build directory has it" in unknown.missing[0]
    moved = located(kept, [RanFunction(name="present", start=AT + 1, addresses=(AT + 1,))])
    assert "is other code" in moved.missing[0]
    (tree / "mm/mincore.c").write_text(kernel_tree.MINCORE.replace("FIRST", "2"))
    gone = located(kept, asked)
    assert "its source is another one now" in gone.missing[0]
    assert not gone.chains


# -- what is shown --------------------------------------------------------------------------------


def insn(at: int, text: str, *places: tuple[str, int, str]) -> ExecutedInsn:
    return ExecutedInsn(at, 1, 16384, text, tuple(SourceLine(*place) for place in places))


def test_rows_stand_below_their_source() -> None:
    get, walk = ("mm.h", 7, "get"), ("mm/w.c", 9, "walk")
    old = (insn(0, "push", walk), insn(1, "mov", get, walk), insn(2, "ret"))
    new = (
        insn(0, "push", ("mm/w.c", 11, "walk")),
        insn(1, "nop", ("mm/w.c", 11, "walk")),
        insn(2, "mov", get, ("mm/w.c", 12, "walk")),
        insn(3, "ret"),
    )
    found = ExecutedCode(explain(ladder(), "6.16", "6.17"), "walk", old, new, ("no lines of x: y",))
    text = [
        " ".join(line.split()) for line in plain(explain_view.show_code(found), 100).splitlines()
    ]
    begin = text.index("mm/w.c:9 -> 11 walk")
    shown = [line for line in text[begin : begin + 7] if line]
    assert shown[2].endswith("+0x1 nop")  # the same source as the row above: said once
    assert shown[3] == "mm.h:7 get < mm/w.c:9 -> 12 walk"
    assert shown[5] == "no line is known"
    assert text[-1] == "no lines of x: y."
    _, told = explain_view.code_document(found)
    assert [len(row["lines"]) for row in told["old_code"]] == [1, 2, 0]
    assert explain_view.code_table(found)[1][0][3] == "mm/w.c:9 walk"


def test_the_command_says_why_there_are_no_lines(tmp_path: Path) -> None:
    listed(tmp_path, "walk")
    run = next(tmp_path.iterdir()).name
    words = [run, "6.16", "6.17", "--code", "walk", "--runs", str(tmp_path)]
    done = CliRunner().invoke(explain_cli.explain, [*words, "--lines"])
    assert done.exit_code == 0, done.output
    assert "no source lines of 6.16" in done.output
    for wrong in (["--lines", "--yes"], ["--work", "--fetch-debug"]):
        bad = CliRunner().invoke(explain_cli.explain, [run, "6.16", "6.17", *wrong])
        assert bad.exit_code == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_fetched_that_was_not_agreed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = image_of(tmp_path / "a")
    archive = _Archive(
        tmp_path / "deb", tmp_path / "a/vmlinux", "./usr/lib/debug/vmlinux-6.12.1-cloud-amd64"
    )
    monkeypatch.setattr(reference, "opened", lambda _: archive)
    monkeypatch.setattr(reference, "resolve", lambda *_, **__: kernel(image))
    told: list[str] = []
    monkeypatch.setattr(click, "echo", lambda text, **_: told.append(text))
    monkeypatch.setattr(click, "confirm", lambda *_, **__: False)
    monkeypatch.setattr(sys, "stdin", _Terminal())
    piece = recorded.RanPiece(
        symbol="walk", start=AT, instructions=(ExecutedInsn(0, 1, 1, "push"),)
    )
    sides = (recorded.RanCode(kernel=identity(image), pieces=(piece,)),) * 2
    whole = explain(ladder(), "6.16", "6.17")
    refused = code.listing_of(
        whole, "walk", sides, code.LineMeans(wanted=True, fetch=True, yes=False)
    )
    assert "it was not fetched" in refused.missing[0]
    assert packages.cached_lines(sha256_of(image)) is None
    assert "0 MiB to fetch" in told[0]
    had = code.listing_of(whole, "walk", sides, code.LineMeans(wanted=True, fetch=True, yes=True))
    assert not had.missing
    assert had.old[0].lines[0].file == "mm/walk.c"


def test_a_kernel_without_lines_is_not_told_line_by_line() -> None:
    walk = ("mm/w.c", 9, "walk")
    sides = (insn(0, "push"), insn(1, "ret")), (insn(0, "push", walk), insn(1, "ret", walk))
    found = ExecutedCode(explain(ladder(), "6.16", "6.17"), "walk", *sides)
    text = plain(explain_view.show_code(found), 100)
    assert text.count("mm/w.c:9 walk") == 1
    assert "no line is known" not in text


def test_a_view_says_where_its_functions_begin(tmp_path: Path) -> None:
    image = image_of(tmp_path)
    program = tmp_path / "vmlinux"
    at, _ = places(program)["walk"]
    own = identity(program, reference=f"file:{program}")
    ran = RanFunction(name="walk.isra.0", start=at, addresses=(at,))
    walk = next(row.function for row in explain(ladder(), "6.16", "6.17").functions)
    sides = (
        recorded.Begins(kernel=own, functions={walk: ran}),
        recorded.Begins(kernel=identity(image), functions={walk: ran}),
    )
    whole = explain(ladder(), "6.16", "6.17")
    means = code.LineMeans(wanted=True, fetch=False, yes=False)
    placed = code.placed(whole, explain_view, explain_cli.differing(whole), sides, means)
    text = plain(explain_view.show_with_lines(placed), 100)
    assert re.search(rf"{re.escape(walk)} +mm/walk\.c:11 +-", text)
    assert "its line tables are not here" in text
    kind, told = explain_view.document_with_lines(placed)
    assert kind == "explain"
    assert told["lines"][walk]["old"].line == 11
    assert told["lines"][walk]["new"] is None
    head, rows = explain_view.table_with_lines(placed)
    row = next(row for row in rows if row[head.index("function")] == walk)
    assert row[-2:] == ("mm/walk.c:11", None)


def test_a_part_that_was_split_off_is_not_where_a_function_begins(tmp_path: Path) -> None:
    record = stored(tmp_path)
    index = record.trials[0].index
    folder = tmp_path / record.run_id
    place = results.trial_folder(folder, index)
    place.mkdir(parents=True, exist_ok=True)
    told: dict[str, tuple[tuple[int, int], ...]]
    told = {"walk.isra.0.cold": ((1, 5),), "walk.isra.0": ((AT, AT + 9),), "zap": ((64, 65),)}
    artifacts.keep(place, artifacts.DETAILS, artifacts.TrialDetails(functions=told))
    found = recorded.begins(folder, record, [(index, "x")])
    assert found.kernel == record.arms[record.trials[0].arm].kernel
    assert {name: one.start for name, one in found.functions.items()} == {"walk": AT, "zap": 64}


def test_work_and_values_say_where_the_functions_that_they_name_begin() -> None:
    whole = explain(ladder(), "6.16", "6.17")
    change = KindDelta(
        group="work", kind="load", old=1, new=9, where=(("walk", 7), ("touch", 1), ("same", 0))
    )
    read = ValueDelta(probe="walk(nr=arg6:u32)", old=Histogram(values={"1": 4}), new=None)
    found = WorkExplanation(explanation=whole, work=(change,), values=(read,))
    at = {"walk": (SourceLine("mm/walk.c", 11, "walk"), None), "touch": (None, None)}
    work_part, values = (
        explain_view.WorkPart(found, part) for part in (explain_view.WORK, explain_view.VALUES)
    )
    assert explain_view.work_functions(work_part) == ["walk", "touch"]
    assert explain_view.work_functions(values) == ["walk"]
    for part in (work_part, values):
        head, rows = explain_view.table_with_lines(
            explain_view.WithLines(explain_view.WORK_VIEW, part, at, ())
        )
        assert head[-2:] == ("old_source", "new_source")
        assert [row[-2:] for row in rows] == [("mm/walk.c:11", None)]
    text = plain(
        explain_view.show_with_lines(
            explain_view.WithLines(explain_view.WORK_VIEW, work_part, at, ())
        ),
        100,
    )
    assert re.search(r"walk +mm/walk\.c:11 +-", text)
