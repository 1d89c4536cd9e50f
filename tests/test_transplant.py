# SPDX-License-Identifier: GPL-2.0-or-later
"""Objects laid beside an image, compared, and made part of it, with a real compiler."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kdelta.disassembly import relocatable
from kdelta.disassembly.image import Image
from kdelta.disassembly.kallsyms import Table
from kdelta.errors import SpecError
from kdelta.kernels import image as images
from kdelta.kernels.kernel import Kernel
from kdelta.source import build
from kdelta.source import tree as trees
from kdelta.source.kconfig import Config
from kdelta.source.make import Make
from kdelta.source.tree import SourceTree
from kdelta.toolchains import Family, Toolchain
from kdelta.transplant import objects, releases, wide, without
from kdelta.transplant.difference import Changes, Normals, difference
from kdelta.transplant.engine import Ground
from kdelta.transplant.graft import Graft, Grafted, Patched
from kdelta.transplant.proof import Listing, prove
from kernel_tree import written
from test_own_build import code

FLAGS = (
    "-O2", "-fno-pie", "-mcmodel=kernel", "-fcf-protection=branch", "-pg", "-mfentry",
    "-mrecord-mcount", "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-ffreestanding",
)  # fmt: skip
CC = Toolchain(name="gcc-14", family=Family.GCC, cc=Path("gcc"), tools=None, banner="gcc")
START = 0xFFFFFFFF81000000
QUIET = "__attribute__((noinline, no_instrument_function)) int quiet(int x) { return x"
FIFTH = "int fifth(int x) { static int last; return x - last++;"
MORE = "static __attribute__((noinline)) int more(int x) { return table[x] + 9; }"
TEXT = f"""
extern int outside(int);
extern int table[];
static int counter;
static __attribute__((noinline)) int step(int x) {{ return outside(x) + ++counter; }}
static {QUIET} * table[x]; }}
int first(int x) {{ return step(x) > 3 ? table[x] : 7; }}
int second(int x) {{ return quiet(x) + step(x + 1); }}
int third(int x) {{ static int last; return x ^ last++; }}
int fourth(int x) {{ static int last; return x * last++; }}
__attribute__((no_instrument_function)) int marked(int x) {{ return x ^ 7; }}
const char *said(void) {{ return "a string"; }}
long fixed(void) {{ long x; asm ("movabs $0x123456789abcdef, %0; 1:\\n.pushsection"
    " runtime_ptr_gone, \\"a\\"; .long 1b - 8 - .; .popsection" : "=r" (x)); return x; }}
__attribute__((section(".init.text"))) int begin(int x) {{ return outside(x) + 1; }}
"""
REST = """
void __fentry__(void) {}
int table[8] = { 1 };
static __attribute__((used, noinline)) int step(int x) { return x - 1; }
int outside(int x) { return x ^ 5; }
int begins(void) { return step(2); }
"""


def compiled(folder: Path, name: str, text: str) -> Path:
    source, target = folder / f"{name}.c", folder / f"{name}.o"
    source.write_text(text)
    subprocess.run(["gcc", *FLAGS, "-c", "-o", target, source], check=True)
    return target


def link(target: Path, start: int, *words: str | Path) -> None:
    argv = ["ld", f"-Ttext={start:#x}", "-o", target, *words]
    subprocess.run(argv, check=True, capture_output=True)


def normals(path: Path) -> Normals:
    return Normals(Listing(relocatable.read(path.read_bytes())))


@pytest.fixture
def linked(tmp_path: Path) -> tuple[Path, Image]:
    """An object, and an image that holds it behind another with a function of the same name."""
    one, rest = compiled(tmp_path, "one", TEXT), compiled(tmp_path, "rest", REST)
    whole = tmp_path / "vmlinux"
    link(whole, START, "-static", "-e", "outside", rest, one)
    told = subprocess.run(["nm", "-n", whole], check=True, capture_output=True, text=True).stdout
    rows = [(int(at, 16), kind, name) for at, kind, name in map(str.split, told.splitlines())]
    high = sorted(row for row in rows if row[0] >= START)
    starts, kinds, names = zip(*high, strict=True)
    return one, Image(images.unpacked_kernel(whole), Table(starts, kinds, names), "test")


def compared(folder: Path, text: str) -> tuple[Changes, Normals]:
    new = normals(compiled(folder, "new", text))
    return difference(normals(compiled(folder, "old", TEXT)), new), new


@pytest.mark.parametrize("addresses", ["1b - .", "1b - ., said - ."])
def test_of_warnings_the_line_is_no_change_with_and_without_a_format(
    addresses: str, tmp_path: Path
) -> None:
    def warning(line: int, flags: int) -> Normals:
        row = f'__bug_table, \\"aw\\"; .long {addresses}, said - .; .word {line}, {flags}'
        text = f'void warn(void) {{ asm volatile ("1: ud2; .pushsection {row}; .popsection"); }}'
        return normals(compiled(tmp_path, "warning", TEXT + text))

    old = warning(10, 1)
    assert not difference(old, warning(20, 1)).replaced
    changed = warning(10, 2)
    assert called(changed, difference(old, changed).replaced) == {"warn"}


def called(new: Normals, indices: tuple[int, ...] | frozenset[int]) -> set[str]:
    return {new.own.symbols[index].name for index in indices}


def test_an_object_that_was_written_again_is_the_same(tmp_path: Path) -> None:
    one = compiled(tmp_path, "one", TEXT)
    again = tmp_path / "again.o"
    again.write_bytes(relocatable.written(relocatable.read(one.read_bytes())))
    shown = [
        subprocess.run(["objdump", "-drt", path], check=True, capture_output=True, text=True)
        .stdout.split("\n", 3)[3]
        for path in (one, again)
    ]  # fmt: skip
    assert shown[0] == shown[1]


def test_an_object_is_proven_and_tells_where_its_static_data_lies(
    linked: tuple[Path, Image],
) -> None:
    path, image = linked
    one = normals(path)
    found = prove(one.listing, image)
    assert not found.differing
    # Two functions are called step: which one is this object's, its callers tell.
    step = found.functions[one.functions["step"]]
    assert len(image.starts("step")) == 2
    assert step == max(image.starts("step"))
    told = {one.own.symbols[index].name: at for index, at in found.data.items()}
    assert told["counter"] in image.addresses("counter")
    assert told["table"] in image.addresses("table")


def test_a_function_of_another_source_is_named(linked: tuple[Path, Image], tmp_path: Path) -> None:
    other = normals(compiled(tmp_path, "other", TEXT.replace("> 3", "> 4")))
    assert set(prove(other.listing, linked[1]).differing) == {"first"}
    moved = normals(compiled(tmp_path, "moved", TEXT.replace("outside(x) + ++", "begin(x) + ++")))
    assert "step" in prove(moved.listing, linked[1]).differing


def test_lines_and_comments_change_nothing(tmp_path: Path) -> None:
    found, _ = compared(tmp_path, f"/* a comment */\n\n{TEXT}")
    assert not found.kept
    assert not found.refused


@pytest.mark.parametrize(
    ("old", "new", "replaced", "kept"),
    [
        ("> 3", "> 4", {"first"}, {"first"}),
        ("a string", "another", {"said"}, {"said"}),
        # Nothing can lead from a function that is not traced to its successor: its callers do.
        ("x * table", "x - table", {"second"}, {"second", "quiet"}),
        (
            "int first(int x) {",
            f"{MORE} int first(int x) {{ x += more(x);",
            {"first"},
            {"first", "more"},
        ),
    ],
)
def test_what_changes_is_named(
    tmp_path: Path, old: str, new: str, replaced: set[str], kept: set[str]
) -> None:
    found, after = compared(tmp_path, TEXT.replace(old, new))
    assert called(after, found.replaced) == replaced
    assert called(after, found.kept) == kept
    assert not found.refused


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("outside(x) + 1;", "outside(x) + 2;", "begin() runs while the kernel boots"),
        ("static int counter;", "static int counter = 9;", "the data counter is another one"),
        (f"static {QUIET} *", f"{QUIET} +", "quiet() is not traced"),
        ("return x ^ last++;", f"return x ^ last++; }} {FIFTH}", "variable last is which"),
        ("return x ^ last++; }", f"return x; }} {FIFTH} }}", "variable last is which"),
        ("return x ^ last++;", "return x;", "variable last"),
    ],
)
def test_what_cannot_be_transplanted_is_refused_by_name(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    assert old in TEXT
    found, _ = compared(tmp_path, TEXT.replace(old, new))
    assert any(why in sentence for sentence in found.refused), found.refused


BARE = (
    "__attribute__((no_instrument_function, nocf_check)) int bare(int x) { return x - quiet(x); }"
)


def test_of_one_source_what_cannot_be_replaced_stays_the_images(tmp_path: Path) -> None:
    """Nothing can lead from bare() or, out of it, from quiet(); boot functions have run."""
    text = TEXT + BARE
    other = text.replace("x * table", "x - table").replace("outside(x) + 1;", "outside(x) + 2;")
    old, new = (normals(compiled(tmp_path, *each)) for each in (("old", text), ("new", other)))
    found = difference(old, new, one_source=True)
    assert not found.refused
    assert found.left == {"bare", "quiet"}
    assert called(new, found.replaced) == {"second"}
    assert any("bare() is not traced" in sentence for sentence in difference(old, new).refused)


def test_a_function_without_nop_is_left_at_its_mark(
    linked: tuple[Path, Image], tmp_path: Path
) -> None:
    made = grafted(linked, tmp_path, "return x ^ 7;", "return x ^ 8;")
    (jump,) = made.jumps
    assert (jump.nop, jump.start, jump.offset) == (0, min(linked[1].starts("marked")), 4)


def grafted(linked: tuple[Path, Image], folder: Path, old: str, new: str) -> Grafted:
    path, image = linked
    before, after = normals(path), normals(compiled(folder, "new", TEXT.replace(old, new)))
    found, proven = difference(before, after), prove(before.listing, image)
    one = Patched(path="one.o", old=before, proven=proven, new=after, difference=found)
    return Graft(one, image, 0, {}).made()


def test_what_did_not_change_is_the_images(linked: tuple[Path, Image], tmp_path: Path) -> None:
    made = grafted(linked, tmp_path, "++counter", "(counter += 2)")
    image = linked[1]
    own = relocatable.read(made.content)
    values = {each.value for each in own.symbols if each.section == relocatable.ABSOLUTE}
    assert image.addresses("counter") <= values
    (counter,) = (at for at, each in enumerate(own.symbols) if each.name == "counter")
    assert all(each.symbol != counter for rows in own.relocations.values() for each in rows)
    assert made.needed["outside"] in image.addresses("outside")
    (jump,) = made.jumps
    start = max(image.starts("step"))
    assert jump.nop - start == jump.offset - 5  # behind the NOP that the new one has there
    assert jump.start == jump.nop
    (fixed,) = made.constants  # of a variable that nobody reads: where the boot writes it
    assert image.bytes_at(fixed.value, fixed.size) == bytes.fromhex("efcdab8967452301")


def test_a_graft_links_and_its_data_is_the_kernels(
    linked: tuple[Path, Image], tmp_path: Path
) -> None:
    """The linker fills the fields of the changed function with addresses of the image."""
    made = grafted(linked, tmp_path, "++counter", "(counter += 2)")
    part, whole = tmp_path / "part.o", tmp_path / "whole"
    part.write_bytes(made.content)
    defined = [f"--defsym={name}={at:#x}" for name, at in made.needed.items()]
    link(whole, START + 0x10000000, *defined, "-e", "first", part)
    shown = code(whole)
    (address,) = linked[1].addresses("counter")
    assert f"{address:x}" in shown


def test_patches_of_other_files_are_refused() -> None:
    objects.check(["mm/mincore.c", "Documentation/mm/x.rst", "include/linux/mm.h"])
    for name, why in (
        ("mm/Makefile", "no C file"),
        ("scripts/sorttable.c", "programs that the build runs"),
        ("arch/x86/entry/entry_64.S", "no C file"),
        ("arch/arm64/mm/fault.c", "another architecture"),
    ):
        with pytest.raises(SpecError, match=why):
            objects.check(["mm/mincore.c", name])
    with pytest.raises(SpecError, match="no C file"):
        objects.check(["MAINTAINERS"])


VERSION = "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 0\n"
OF_BOOT = """
/* begins */
static int __init begin(int x,
			int y)
{
	if (x)
		return y;

	return 1;
}

int stays(void)
{
	return 2;
}
"""


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        ("mm/boot.c", OF_BOOT.replace("return y", "return -y"), r"begin\(\) runs while the kernel"),
        (
            "mm/boot.c",
            OF_BOOT.replace("\n\n\treturn 1", "\n\n\tx++;\n\treturn 1"),
            r"begin\(\) runs",
        ),
        ("mm/boot.c", OF_BOOT.replace("\t\treturn y", "\t\t/* y */\n\t\treturn y"), ""),
        ("mm/boot.c", OF_BOOT.replace("return 2", "return 3"), ""),
        ("mm/boot.c", None, r"mm/boot\.c is removed"),
        ("mm/new.c", "int new;\n", r"mm/new\.c is a new file"),
        ("mm/Makefile", "$(shell rm -rf ~)\n", r"mm/Makefile is no C file"),
        ("lib/copy.S", "nop\n", r"lib/copy\.S is no C file"),
    ],
)
def test_what_the_text_of_a_patch_shows_is_refused_before_a_compiler_runs(
    path: str, text: str | None, why: str, tmp_path: Path
) -> None:
    folder, other = tmp_path / "source", tmp_path / "patched"
    shutil.copytree(
        written(folder, {"Makefile": VERSION, "Kbuild": "", "mm/boot.c": OF_BOOT}), other
    )
    (other / path).unlink(missing_ok=True)
    if text is not None:
        written(other, {path: text})
    base, patched = trees.of_folder(folder), trees.of_folder(other)
    if not why:
        assert objects.check_source(base, patched) == (path,)
        return
    with pytest.raises(SpecError, match=why):
        objects.check_source(base, patched)


def test_objects_that_include_a_header_also_by_others(tmp_path: Path) -> None:
    files = {
        "mm/own.h": "",
        "mm/other.h": '#include "own.h"\n',
        "mm/a.c": ' #  include "other.h"\n',
        "mm/b.c": "#include <linux/own.h>\n",
        "lib/own.h": "",
        "lib/c.c": '#include "own.h"\n',
        "lib/e.c": "",
        "arch/arm64/d.c": '#include "../../mm/own.h"\n',
        "mm/part.c": "",
        "mm/whole.c": '#include "part.c"\n',
        "mm/alone.c": "",
        "mm/Makefile": "obj-y := alone.o a-part.o\n",
        "lib/user.c": '#include "../mm/alone.c"\n',
    }
    written(tmp_path, files)
    assert objects.touched(["mm/own.h", "lib/e.c"], tmp_path) == {"mm/a.o": False, "lib/e.o": True}
    assert objects.touched(["mm/part.c"], tmp_path) == {"mm/whole.o": True}
    assert objects.touched(["mm/alone.c"], tmp_path) == {"mm/alone.o": True, "lib/user.o": False}
    (tmp_path / "mm/f.S").write_text('#include "own.h"\n')
    with pytest.raises(SpecError, match=r"included by mm/f\.S"):
        objects.touched(["mm/own.h"], tmp_path)


def test_files_that_may_define_what_ran(tmp_path: Path) -> None:
    files = {
        "mm/a.c": "static void zap(int x)\n{\n\treturn walk(x);\n}\n",
        "mm/b.c": "SYSCALL_DEFINE2(munmap, unsigned long, a, size_t, b)\nEXPORT_SYMBOL(zap);\n",
        "lib/c.c": "int __must_check\nwalk(int x)\n",
        "lib/d.c": "extern int walk(int x);\n#define walk(x) 3\n",
        "fs/e.h": "static inline int in_header(int x)\n",
        "drivers/f.c": "int probe(int x)\nvoid zap(int x)\n",
    }
    written(tmp_path, files)
    names = ["zap.isra.0", "__x64_sys_munmap", "walk", "in_header"]
    assert objects.defining(names, tmp_path) == ["lib/c.o", "mm/a.o", "mm/b.o"]
    assert objects.defining(["probe", "walk"], tmp_path) == ["drivers/f.o", "lib/c.o"]


HEADER = """# 1 "../include/one.h"
#define MOST 3
#define twice(x) (2 * (x))
struct pair { int a; int b[3]; } __attribute__((aligned(8)));
enum { FIRST, SECOND };
extern int many; typedef unsigned word;
__attribute__((__section__("x"))) int plain(struct pair *of);
static inline int inner(int x) { struct pair of = { x }; return of.a; }
# 1 "../mm/one.c"
int plain(struct pair *of) { return 1; }
"""


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("return of.a", "return of.b[0]", ""),
        ("static inline int inner(int x)", "static inline int inner(long x)", ""),
        ("(2 * (x))", "((x) + (x))", ""),
        ("{ return 1; }", "{ return 2; }", ""),  # of the C file
        ("int plain(struct pair *of);", "static inline int plain(void) { return 0; }", ""),
        ("int plain(struct pair *of);", "_Bool plain(struct pair *of);", "plain"),
        ("MOST 3", "MOST 4", "MOST"),
        ("#define MOST 3", "#define MANY 3", "MANY MOST"),
        ("int b[3]", "int b[4]", "struct pair is another one"),
        ("FIRST,", "FIRST, MORE,", "enum is another one"),
        ("extern int many", "extern long many", "extern int many is another one"),
        ("unsigned word", "int word", "typedef unsigned word is another one"),
    ],
)  # fmt: skip
def test_what_a_header_says_to_all_objects_is_found(old: str, new: str, names: str) -> None:
    assert HEADER.count(old) == 1
    if "another" not in names:
        assert wide.shared(HEADER, HEADER.replace(old, new)) == {*names.split()}
        return
    with pytest.raises(SpecError, match=names):
        wide.shared(HEADER, HEADER.replace(old, new))


def test_a_file_that_stays_and_names_what_changed_is_told(tmp_path: Path) -> None:
    written(tmp_path, {"mm/a.c": "x = MOST;\n", "fs/b.c": "y = MOST;\n", "fs/c.c": "MOSTLY\n"})
    objects.check_named({"MOST"}, {"mm/a.c", "fs/b.c"}, tmp_path)
    with pytest.raises(SpecError, match=r"fs/b\.c, of which nothing ran"):
        objects.check_named({"MOST"}, {"mm/a.c"}, tmp_path)


def test_of_a_header_of_many_objects_those_that_ran_are_compiled(
    linked: tuple[Path, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what no C file seems to define; and a later function is in them, or outside."""
    one, image = linked
    source, output = tmp_path / "src", tmp_path / "src/out"
    head = '#include "wide.h"\n'
    files = {"one.c": TEXT, "rest.c": "int begins(void)\n", "never.c": ""}
    written(source, {f"mm/{name}": head + text for name, text in files.items()} | {"mm/wide.h": ""})
    monkeypatch.setattr(objects, "MOST", 1)
    for name in ("one", "rest"):
        note = {f"mm/.{name}.o.cmd": f"savedcmd_mm/{name}.o := cc\n ../mm/wide.h \\\n"}
        written(output, note)
        shutil.copyfile(one.with_name(f"{name}.o"), output / f"mm/{name}.o")
    maker = Make(source=source, output=output, chain=CC, title="", log=tmp_path / "log")

    def some(*names: str) -> tuple[dict[str, bool], wide.ExecutedObjects]:
        found = wide.ExecutedObjects(lambda: frozenset(names))
        chosen, is_some = found.touched(("mm/wide.h",), maker, image, None)
        assert is_some
        return chosen, found

    chosen, ran = some("first")
    assert chosen == {"mm/one.o": False}
    assert not wide.lost({"first"}, ran.objects, image)
    assert ran.reached({"second"}, image) is None
    more = ran.reached({"second", "outside"}, image)
    assert more is not None
    assert more.touched(("mm/wide.h",), maker, image, None)[0] == {
        "mm/one.o": False, "mm/rest.o": False,
    }  # fmt: skip
    assert some("outside")[0] == {"mm/rest.o": False}  # begins() lies beside it
    assert some("step")[0] == {"mm/one.o": False, "mm/rest.o": False}  # two of one name
    shutil.copyfile(compiled(tmp_path, "new", TEXT.replace("> 3", "> 4")), output / "mm/one.o")
    stale = some("first", "third")[1].objects
    assert wide.lost({"first", "third"}, stale, image) == {"first"}  # of another source


def configured(config: Path, *lines: str) -> Ground:
    config.write_text("".join(f"CONFIG_{line}\n" for line in lines))
    kernel = Kernel(
        reference="6.17", release="6.17.8", arch="amd64", image=config, image_sha256="",
        version="6.17.8-1", config=config,
    )  # fmt: skip
    tree = SourceTree(name="6.17.8", tree="ab", line="l")
    return Ground(kernel=kernel, tree=tree, compiler=CC)


def test_a_menu_stands_for_its_instruments(tmp_path: Path) -> None:
    lines = ("UBSAN=y", "UBSAN_BOUNDS=y", "UBSAN_SHIFT=y", "KFENCE=y", "FUSE_FS=m")
    ground = configured(tmp_path / "config", *lines)
    assert without.left_out(ground, ["UBSAN"]) == ("UBSAN_BOUNDS", "UBSAN_SHIFT")
    assert without.left_out(ground, ["KFENCE", "UBSAN_SHIFT"]) == ("KFENCE", "UBSAN_SHIFT")
    for name, why in (("KASAN", "built without KASAN"), ("UBSAN_SHFT", "did you mean UBSAN_SHIFT")):
        with pytest.raises(SpecError, match=why):
            without.left_out(ground, [name])
    with pytest.raises(SpecError, match="functions that scenarios execute"):
        releases.of_words(ground, ["without=UBSAN"], "6.17+without=UBSAN", None, trust=False)
    with pytest.raises(SpecError, match="a patch and an option"):
        releases.of_words(ground, ["without=UBSAN", "a.patch"], "6.17", None, trust=False)


def test_some_options_are_left_out_by_a_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration says what the package's does then, so that no structure is another one."""
    lines = ("STACKPROTECTOR=y", "FORTIFY_SOURCE=y", "KFENCE=y")
    ground = configured(tmp_path / "config", *lines)
    asked = list[Config]()
    monkeypatch.setattr(build, "for_objects", lambda _tree, own, *_, **_progress: asked.append(own))
    for off in ((), ("STACKPROTECTOR", "FORTIFY_SOURCE", "KFENCE")):
        with ground.opened(None, off):
            pass
    plain, own = asked
    assert own.options == {**plain.options, "KFENCE": "n"}
    assert own.flags == ("-fno-stack-protector", "-D__NO_FORTIFY")
    assert replace(plain, flags=own.flags).digest != plain.digest


@pytest.mark.parametrize(
    ("text", "base", "patches"),
    [
        ("6.17+fix.patch", "6.17", ("fix.patch",)),
        ("deb:6.17.8-1~bpo13+1+a.patch+b.mbox", "deb:6.17.8-1~bpo13+1", ("a.patch", "b.mbox")),
        ("6.17.13+deb13-cloud-amd64", "6.17.13+deb13-cloud-amd64", ()),
        ("6.17+mincore-present-first", "6.17", ("mincore-present-first",)),
        ("6.17+without=UBSAN+without=KFENCE", "6.17", ("without=UBSAN", "without=KFENCE")),
        ("tree:deb:6.17.8+fix.patch", "tree:deb:6.17.8+fix.patch", ()),
        ("file:/boot/a+b.patch", "file:/boot/a+b.patch", ()),
    ],
)
def test_a_release_and_its_patches(text: str, base: str, patches: tuple[str, ...]) -> None:
    assert releases.parse(text) == (base, patches)


def test_an_image_says_what_it_brings(tmp_path: Path) -> None:
    path = tmp_path / "vmlinuz"
    path.write_bytes(b"an image")
    assert images.brought(path) == (b"", b"")
    told = (
        b'{"base":"ab","objects":["mm/a.o"],"replaced":["f"],"added":[],"gone":[],"code":{"f":"1"}}'
    )
    path.write_bytes(images.bringing(b"an image", b"archive", told))
    assert images.brought(path) == (b"archive", told)
    assert images.replaced_in(path) == {"f"}
    assert images.transplanted(path) == images.Transplanted(
        base="ab", objects=("mm/a.o",), replaced=("f",), added=(), gone=(), code={"f": "1"}
    )
