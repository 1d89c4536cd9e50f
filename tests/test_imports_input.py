# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta import` of hostile or damaged input: one sentence, exit code 2, and nothing stored."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from command_line import ended
from kdelta.imports import files, reader, record
from kdelta.imports import table as table_of

GOOD = b"kernel,boot,ns\n6.16,1,5\n6.17,1,6\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDELTA_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence of an import that was refused."""
    done = ended(capsys, "import", *arguments)
    assert done.status == 2
    assert not Path("runs").exists()
    return done.err


def table(content: bytes, name: str = "a.csv") -> str:
    Path(name).write_bytes(content)
    return name


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "a.csv: line 1: there is no head line"),
        ("a.csv", b"kernel,boot,ns\n", "a.csv: there is no row below the head line"),
        ("a.csv", b"kernel,kernel\n1,2\n", 'line 1, column 2: two columns are called "kernel"'),
        ("a.csv", b"kernel,\n1,2\n", "line 1, column 2: a column has no name"),
        ("a.csv", GOOD * 2, "a.csv: line 4: the head line again; put one table into a file"),
        ("a.csv", b"a" * (5 << 20), "a.csv: line 1: more than 500000 lines, or than 4 MiB in one"),
        ("a.csv", b"kernel,boot,ns\n6.1,5\n", "line 2, column ns: 2 cells where the head has 3"),
        ("a.csv", b"kernel,boot,ns\n6.1,5,7,8\n", "line 2, column ns: 4 cells"),
        ("a.csv", b'kernel,boot,ns\n6.1,5,1\n"6.1,5\n', "line 3: not a table: a quote is opened"),
        ("a.csv", b"kernel,boot,ns\n6.1,\xff,5\n", "line 2, byte 5: not text in UTF-8"),
        ("a.csv", b"kernel,boot,ns\n6.1,1,5\n6.2,1,\0\n", "line 3: it holds a NUL"),
        ("a.csv", b"kernel,boot,ns\n6.1,1,inf\n", 'line 2, column ns: "inf" is not a number'),
        ("a.csv", b"kernel,boot,ns\n6.1,1,1e999\n", '"1e999" is not a number'),
        ("a.csv", b"kernel,boot,ns\n6.1,1,1e308\n", '"1e308" is not a number up to 1e+30'),
        ("a.csv", b"kernel,boot,ns\n6.1,1,1e-320\n", '"1e-320" is not zero or a number from'),
        ("a.csv", b"kernel,boot,ns\n6.1,1,1_0\n", '"1_0" is not a number'),
        ("a.csv", "kernel,boot,ns\n6.1,1,٣\n".encode(), "is not a number"),
        ("a.csv", b"kernel,order,boot,ns\n6.1,one,1,5\n", '"one" is not a number'),
        ("a.csv", b"kernel;boot;ns\n6.1;1;5,2\n", 'one column, "kernel;boot;ns"; name the columns'),
        ("a.txt", b"kernel boot ns\n6.1 1 5\n", "separate the cells by commas or tabs"),
        ("a.csv", b"6.16,1,5\n6.17,1,6\n", "no mapping says what 6.16, 1, 5 are"),
        ("r.jsonl", b'{"kernel": "6.16", "ns": NaN}\n{}\n', "NaN is not a number"),
        ("r.jsonl", b'{"kernel": 1}\n{"kernel": }\n', "r.jsonl: line 2, column 12: not JSON"),
        ("r.jsonl", b'{"kernel": 1, "kernel": 2}\n{}\n', "a name stands twice in an object"),
        ("r.jsonl", b'{"kernel": 1}\n{"boot": 2}\n', "other names than the first object"),
        ("r.jsonl", b'{"kernel": [1]}\n{"kernel": 2}\n', "a value holds other values"),
        ("r.jsonl", b'{"kernel": 1}\n5\n', "line 2: it is no JSON object"),
        ("r.json", b'{"a": ' + b"[" * 100_000, "nested too deep"),
        ("r.json", b"[1, 2]", "it is JSON of no declared format; write a table as JSON"),
        ("r.json", b'{"a": {"b": 2}}', "it is JSON of no declared format"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence_with_the_place(
    name: str, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, table(content, name))


@pytest.mark.parametrize(
    "text", ["kernel,x,note\nA,1,a\nB,2,b\n", "tree,x\nA,1\nB,2\n", "A,B\n1,2\n"]
)
def test_a_refused_table_gets_a_command_that_lacks_what_nobody_can_know(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, table(text.encode(), "a b.csv"), "--encoding", "latin-1")
    assert re.search(r"no mapping says what .*; nothing says .* the unit of .*; nothing", said)
    Path("a b.mapping.toml").touch()  # another's, which stays
    said = refused(capsys, "a b.csv", "--encoding", "latin-1")
    write, _, again = said.partition("\n")[2].partition("kdelta ")
    known = {"replicate": "boot", "unit": "s", "better": "less", "arm": "tree"}
    for key, value in known.items():
        write = write.replace(f'{key} = ""', f'{key} = "{value}"')
    subprocess.run(["sh", "-c", write], check=True)
    assert ended(capsys, *shlex.split(again)).status == 0
    assert Path("a b.mapping.toml").read_text() == ""


def test_cells_columns_and_files_are_bounded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(capsys, table(b"kernel,boot,ns\n6.16,1," + b"7" * 10**6 + b"\n"))
    assert "line 2, column ns: 1000000 characters, more than 65536" in said
    assert len(said) < 400
    said = refused(capsys, table(",".join(f"c{at}" for at in range(100_000)).encode() + b"\n"))
    assert "line 1, column 501: 100000 columns, more than 500" in said
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    assert "it has more than 1000 bytes" in refused(capsys, table(b"7" * 2000))
    monkeypatch.setattr(reader, "MAX_TOTAL", 40)
    Path("two").mkdir()
    table(GOOD, "two/a.csv")
    table(GOOD, "two/b.csv")
    assert "more than 0 MiB" in refused(capsys, "two")
    monkeypatch.setattr(files, "MAX_FILES", 1)
    assert "more than 1 files" in refused(capsys, "two")


def test_links_in_a_folder_are_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    table(GOOD, "secret.csv")
    Path("set").mkdir()
    Path("set/b.csv").symlink_to("../secret.csv")
    assert "there is no plain file in it" in refused(capsys, "set")


def test_what_is_missing_or_may_not_be_looked_at(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "gone.csv: it cannot be read: No such file" in refused(capsys, "gone.csv")
    looked = Path.stat

    def denied(path: Path, **options: bool) -> os.stat_result:
        if path.name == "a.csv":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return looked(path, **options)

    path = table(GOOD)
    monkeypatch.setattr(Path, "stat", denied)
    assert "a.csv: it cannot be read: Permission denied" in refused(capsys, path)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8"])
def test_another_encoding_is_read_where_it_is_given(
    encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table("kernel,benchmark,boot,ns\n6.16,größe,1,5\n".encode(encoding))
    if encoding != "utf-8":
        assert "give the encoding with --encoding" in refused(capsys, path)
    assert ended(capsys, "import", path, "--encoding", encoding).status == 0


def test_an_encoding_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, table(GOOD), "--encoding", "klingon")
    assert 'no encoding of text is called "klingon"' in said


def test_names_from_a_table_cannot_drive_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, table("kernel,\x1b[31mx\u202e_ns\n6.16,five\n".encode()))
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_a_full_disk_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        path.write_bytes(data[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(record, "write_aside", full)
    done = ended(capsys, "import", table(GOOD))
    assert done.status == 3
    said = done.err
    assert "nothing was stored: No space left on device; free some space, then import it" in said
    assert list(Path("runs").iterdir()) == []


def test_an_import_that_could_not_be_read_again_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_MAX_BYTES", 900)
    rows = "".join(f"{kernel},1,{at % 7}.5\n" for at in range(20) for kernel in ("6.16", "6.17"))
    said = refused(capsys, table(f"kernel,boot,ns\n{rows}".encode()))
    assert "a.csv: it would be stored in" in said


def test_a_file_that_grows_while_it_is_imported_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(GOOD)
    read = table_of.table

    def slow(source: record.SourceFile, _progress: object) -> record.SourceFile:
        with Path(path).open("a") as stream:
            stream.write("6.17,2,7\n")
        return read(source)

    monkeypatch.setattr(table_of, "table", slow)
    assert "a.csv: it changed while it was read; import it when" in refused(capsys, path)
