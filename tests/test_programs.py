# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that are taken into a guest: what they load, and what cannot run there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from command_line import ended
from kdelta import arch, cache, elf, guest, process, programs, workload
from kdelta.errors import SpecError

_TRUE = Path(shutil.which("true") or "/bin/true").resolve()
_HERE = arch.native()


def taken(*argv: str, named: tuple[str, ...] = ()) -> tuple[str, str]:
    """The C file's text, and what it brings, by the listing of cpio's members."""
    file = Path(programs.taken(argv, named, _HERE).rpartition(":")[0])
    return file.read_text(), (file.parent / guest.FILES).read_bytes().decode("latin-1")


def patched(folder: Path, *changes: tuple[bytes, bytes]) -> str:
    """A copy of a dynamically linked program with other bytes."""
    content = _TRUE.read_bytes()
    for old, new in changes:
        assert old in content
        content = content.replace(old, new)
    file = folder / "program"
    file.write_bytes(content)
    file.chmod(0o755)
    return str(file)


def test_a_program_comes_with_its_loader_its_library_and_the_files_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "input").write_text("hello")
    text, packed = taken("true", "an argument", named=(str(tmp_path / "more"),))
    for name in (str(_TRUE), "libc.so.6", "ld-linux", f"{tmp_path}/more/input"):
        assert name in text
        assert name in packed
    assert "hello" in packed
    assert "hello" not in text
    digest = process.run(["sha256sum", str(_TRUE)], timeout=10).stdout.split()[0]
    assert f"//   {digest}  {_TRUE}\n" in text
    assert '#define KD_ARGUMENTS "true", "an argument"\n' in text
    folder = str(tmp_path / "more")
    for named, others in (((), 1), ((f"{folder}/input",), 0), ((str(tmp_path),), 0)):
        assert f"#define KD_OTHERS {others}\n" in taken("true", folder, "x" * 300, named=named)[0]
    said = f"{folder} in the guest is the guest's own; take files of yours with --file"
    assert caplog.messages == [said]


def test_a_program_does_not_tell_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless an argument does."""
    (tmp_path / "SECRETNAME").mkdir()
    patched(tmp_path / "SECRETNAME")
    (tmp_path / "SECRETNAME" / "input").write_text("hello")
    monkeypatch.chdir(tmp_path / "SECRETNAME")
    given = str(tmp_path / "SECRETNAME" / "input")
    text, packed = taken("./program", "input", given, named=("input",))
    assert "SECRETNAME" not in text + packed
    assert '#define KD_FOLDER "/start"\n#define KD_PROGRAM "/start/program"\n' in text
    assert '#define KD_ARGUMENTS "./program", "input", "/start/input"\n' in text
    text, packed = taken("./program", f"--in={given}", named=("input",))
    assert f'#define KD_FOLDER "{tmp_path}/SECRETNAME"\n' in text
    assert given in packed


def test_other_files_and_other_arguments_are_another_program(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("1")
    given = (str(tmp_path / "input"),)
    first = programs.taken(["true"], given, _HERE)
    shutil.rmtree(cache.root() / "programs")
    with pytest.raises(SpecError, match="the cache was cleared: give the run's command again"):
        workload.parse_reference(first)
    assert programs.taken(["true"], given, _HERE) == first
    (tmp_path / "input").write_text("2")
    assert programs.taken(["true"], given, _HERE) != first
    assert programs.taken(["true", "2"], given, _HERE) != programs.taken(["true"], given, _HERE)


def test_an_argument_is_no_code(tmp_path: Path) -> None:
    """Quotes, backslashes and new lines of arguments stay within their strings."""
    text, _ = taken("true", '"; *\\/ int x;\n#error no\n')
    (tmp_path / "t.c").write_text(
        "".join(line for line in text.splitlines(keepends=True) if "KD_ARG" in line)
        + "#include <stdio.h>\nint main(void){char *a[] = {KD_ARGUMENTS}; fputs(a[1], stdout);}\n"
    )
    process.run(["gcc", "t.c", "-o", "t"], timeout=60, cwd=tmp_path)
    assert process.run(["./t"], timeout=10, cwd=tmp_path).stdout == '"; *\\/ int x;\n#error no\n'


def test_what_cannot_run_is_refused_in_a_sentence_before_any_boot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(program: str, sentence: str) -> None:
        done = ended(capsys, "run", "--kernels", "6.17", "--", program)
        assert done.status == 2
        assert sentence in done.err
        assert len(done.err.splitlines()) == 1

    plain, script = (tmp_path / name for name in ("plain", "script"))
    plain.write_bytes(_TRUE.read_bytes())
    script.write_text("#!/usr/bin/perl -w\n")
    script.chmod(0o755)
    foreign = {b"\x02\x00\x3e\x00": b"\x02\x00\xb7\x00", b"\x03\x00\x3e\x00": b"\x03\x00\xb7\x00"}
    change = next((old, new) for old, new in foreign.items() if old in _TRUE.read_bytes()[:32])
    told = {
        str(tmp_path / "none"): "cannot be read: No such file or directory",
        str(tmp_path): "it is a folder",
        str(plain): "it is not executable; chmod +x",
        str(script): f"-- /usr/bin/perl -w {script}",
        patched(tmp_path, change): "it is a program for arm64, and the guest is amd64",
    }
    for program, sentence in told.items():
        refused(program, sentence)
    refused(patched(tmp_path, (b"libc.so.6", b"libx.so.6")), "its library libx.so.6 is not here")
    loader = str(elf.linked(_TRUE).interpreter).encode()
    (tmp_path / "x").write_text("#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    for name in ("/libno/ld", "x", "/dev/zero", "/etc/passwd", str(_TRUE.parent)):
        other = name.encode().ljust(len(loader), b"\0")
        refused(patched(tmp_path, (loader, other)), f"its interpreter {name} is no loader here")
    refused(patched(tmp_path, (_TRUE.read_bytes(), b"\x7fELF")), "it is no program")
    table = _TRUE.read_bytes()[32:48]  # where the headers lie
    refused(
        patched(tmp_path, (table, table[:8] + b"\xff" * 7 + b"\x7f")), "ELF structure is damaged"
    )
    refused(patched(tmp_path, (_TRUE.read_bytes()[52:58], b"@\0008\0\xff\xff")), "more segments")


def test_files_are_a_programs_alone_and_a_program_has_a_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["--file", "x", "control:getppid"], ["--"]):
        done = ended(capsys, "run", "--kernels", "6.17", *words)
        assert (done.status, "program" in done.err) == (2, True)


def test_a_file_of_this_machine_among_the_arguments_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own file").touch()
    words = ["true", "./own file", "/proc/version", "none"]
    with pytest.raises(SpecError, match=r"has not; add --file './own file'$"):
        programs.taken(words, [], _HERE)
    assert programs.taken(words, ["own file"], _HERE)


def test_too_many_files_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="the folder has no file"):
        programs.taken(["true"], [str(tmp_path)], _HERE)
    monkeypatch.setattr(programs, "_MOST_BYTES", 3 << 20)
    (tmp_path / "large").write_bytes(bytes(4 << 20))
    with pytest.raises(SpecError, match=f"true {tmp_path}: .* have [5-9] MiB, and a guest takes"):
        programs.taken(["true"], [str(tmp_path)], _HERE)


@pytest.mark.program
def test_libraries_are_found_as_the_loader_finds_them(tmp_path: Path) -> None:
    """By RUNPATH and RPATH with $ORIGIN, and for the library of a library; the loader agrees."""
    for name, needs, path in (("b", (), ""), ("a", ("-lb",), "-Wl,--disable-new-dtags")):
        (tmp_path / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
        words = ["-shared", "-fPIC", f"{name}.c", "-o", f"lib{name}.so", "-L.", *needs]
        process.run(
            ["gcc", "-Wl,--no-as-needed", *words, *filter(None, [path])], timeout=60, cwd=tmp_path
        )
    (tmp_path / "p.c").write_text("int a(void);\nint main(void) { return a(); }\n")
    (tmp_path / "lib").mkdir()
    for way in ("--enable-new-dtags", "--disable-new-dtags"):
        for name in ("liba.so", "libb.so"):
            shutil.copy(tmp_path / name, tmp_path / "lib")
        words = ["p.c", "-o", "p", "-L.", "-la", f"-Wl,{way},-rpath,$ORIGIN/lib,-rpath-link,."]
        process.run(["gcc", *words], timeout=60, cwd=tmp_path)
        listed = process.run(["ldd", str(tmp_path / "p")], timeout=60).stdout
        if "not found" in listed:  # RUNPATH is not for the libraries of a library
            with pytest.raises(SpecError, match=r"libb\.so is not here"):
                programs.taken([str(tmp_path / "p")], [], _HERE)
            assert way == "--enable-new-dtags"
            continue
        own = {line.split()[2] for line in listed.splitlines() if "=>" in line}
        text, _ = taken(str(tmp_path / "p"))
        assert {f"{tmp_path}/lib/liba.so", f"{tmp_path}/lib/libb.so"} <= own
        assert all(place in text for place in own)


@pytest.mark.program
def test_a_taken_program_compiles_with_the_marks_of_one_window() -> None:
    load = workload.parse_reference(programs.taken(["true"], [], _HERE))[0]
    guest.check_marks(load, _HERE)
    assert not guest.warnings(load.program, _HERE)
