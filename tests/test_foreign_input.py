# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad input: one sentence with file, line, column and mend, exit code 2, and nothing stored."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO

import pytest

from kdelta.cli import main as cli_main
from kdelta.foreign import folder, tables
from kdelta.foreign.plain_tables import Plain


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDELTA_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence of an import that was refused."""
    with pytest.raises(SystemExit) as ended:
        cli_main.main(["import", *arguments])
    assert ended.value.code == 2
    assert not Path("runs").exists()
    return capsys.readouterr().err


def table(content: bytes, name: str = "a.csv") -> str:
    Path(name).write_bytes(content)
    return name


def test_a_value_that_no_sum_of_squares_survives(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, table(b"kernel,ns\n6.16,1e308\n6.17,5\n"))
    assert 'a.csv: line 2, column ns: "1e308" is not a number up to 1e+30' in said


def test_a_pipe_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.csv")
    assert "pipe.csv: it is no plain file; copy what it holds" in refused(capsys, "pipe.csv")


def test_a_cell_of_ten_megabytes(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, table(b"kernel,ns\n6.16," + b"7" * 10**7 + b"\n"))
    assert "line 2, column ns: 10000000 characters, more than 65536; put a long list" in said
    assert len(said) < 400


def test_a_hundred_thousand_columns(capsys: pytest.CaptureFixture[str]) -> None:
    names = ",".join(f"c{at}" for at in range(100_000))
    said = refused(capsys, table(names.encode() + b"\n"))
    assert "line 1, column 501: 100000 columns, more than 500; put values below" in said


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"kernel,gr\xf6\xdfe,ns\n6.16,a,5\n", "latin-1"),
        (b"kernel,\x80,ns\n6.16,a,5\n", "cp1252"),
        ("kernel,ns\n6.16,5\n".encode("utf-16"), "utf-16"),
    ],
)
def test_another_encoding_is_named_and_then_read(
    content: bytes, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, table(content))
    assert f"not UTF-8; {encoding} would read it: give --encoding {encoding}" in said
    with pytest.raises(SystemExit) as ended:
        cli_main.main(["import", "a.csv", "--encoding", encoding])
    assert ended.value.code == 0


def test_an_encoding_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    path = table(b"kernel,ns\n6.16,5\n")
    said = refused(capsys, path, "--encoding", "klingon")
    assert 'no encoding of text is called "klingon"' in said


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"kernel;ns\n6.16;1.2345,6\n6.17;1.300,2\n", '"1.2345,6" is not a number'),
        (b'kernel,ns\n6.16,"1,23,4567"\n6.17,"1,300,200"\n', '"1,23,4567" is not a number'),
        (b"kernel,ns\n6.16,5\n\n\n6.17,six\n", 'line 5, column ns: "six" is not a number'),
        (b"kernel,ns\n6.16,1,5\n", "3 cells where the head has 2"),
        (b'kernel,ns\n"6.16,5\n', "not a table"),
        (bytes(range(256)) * 9, "not UTF-8"),
    ],
)
def test_what_is_no_table_of_numbers(
    content: bytes, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, table(content))
    assert cause in said
    assert "; " in said  # a mend


def test_a_doubt_is_proposed_in_a_file_that_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{k},{x},5\n" for k in ("6.1", "6.2") for x in (1, 2, 3))
    table(b"kernel,level,ns\n" + rows.encode(), "my table.csv")
    said = refused(capsys, "my table.csv")
    assert "kdelta import 'my table.csv' --mapping my-table.mapping.toml" in said
    refused(capsys, "my table.csv")
    assert Path("my-table-2.mapping.toml").read_text() == Path("my-table.mapping.toml").read_text()
    with pytest.raises(SystemExit) as ended:
        cli_main.main(["import", "my table.csv", "--mapping", "my-table.mapping.toml"])
    assert ended.value.code == 0


def test_names_from_a_table_cannot_drive_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    path = table("kernel,\x1b[31mx\u202e_ns\n6.16,five\n".encode())
    said = refused(capsys, path)
    assert "\x1b" not in said
    assert "\u202e" not in said


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.json", "[" * 100_000, "r.json: not JSON that can be used: maximum recursion depth"),
        ("r.json", '[{"kernel": "6.16", "ns": NaN}]', "NaN is not a number; write null for"),
        (
            "r.json",
            '[{"kernel": "6.16", "ns": 1e999}]',
            'line 1, column ns: "1E+999" is not a number',
        ),
        ("r.json", "[]", "nothing in it can be judged: r.json"),
        ("r.json", '{"kernel": "6.16", "kernel": "6.17"}', "a name stands twice in an object"),
        ("r.jsonl", '{"k": 1}\n{"k": }\n', "r.jsonl: line 2, column 7: not JSON"),
        ("a.log", "kernel: 6.16\nlat_us: five\n", "a.log: line 1, column lat_us: "),
        ("a.csv", "", "a.csv: line 1: there is no head line"),
        ("a.csv", "kernel,ns\n", "nothing in it can be judged: a.csv"),
        ("a.csv", "kernel,ns,ns\n6.16,1,2\n", 'line 1, column 3: two columns are called "ns"'),
        ("a.csv", "kernel,boot,ns\n6.16,1,5\n6.17", "line 3, column boot: 1 cells where the"),
        ("a.csv", "a,b\n0.5,3.25\n0.75,4\n", "what are a, b: which unit, and is lower better?"),
    ],
)
def test_other_bad_input_is_a_sentence_too(
    name: str, content: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, table(content.encode(), name))


def test_a_file_that_was_cut_within_a_character(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, table("kernel,ns,note\n6.16,5,größe".encode()[:-2]))
    assert "a.csv: line 2, byte 12: it ends within a character; copy the file again, whole" in said


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04\x14\0\0\0\x08\0\xff\xff", "a zip archive"),
        (b"\x1f\x8b\x08\0\xc3\x28", "packed by gzip"),
        (b"PERFILE2h\0\0\0\xff\xff", "perf's own data"),
    ],
)
def test_what_is_packed_is_called_so(
    content: bytes, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, table(content))
    assert f"it is {what}" in said
    assert "unpack it" in said


@pytest.mark.parametrize(
    ("name", "content", "what", "mend"),
    [
        ("r.xlsx", b"PK\x03\x04\x14\0[Content_Types].xml\xff xl/", "a spreadsheet", "as CSV"),
        (
            "r.ods",
            b"PK\x03\x04\nmimetypeapplication/vnd.oasis.opendocument.spread",
            "a spr",
            "as CSV",
        ),
        ("r.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "an old spreadsheet", "as CSV"),
        ("r.pdf", b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", "a PDF", "copy its table"),
        ("ascii.pdf", b"%PDF-1.4\n1 0 obj\n", "a PDF", "copy its table"),
        ("r.png", b"\x89PNG\r\n\x1a\n\0\0", "a picture", "figures that it was drawn from"),
        ("r.db", b"SQLite format 3\0\x10\0", "a database of SQLite", "export the table as CSV"),
        ("r.tar", b"r.csv".ljust(257, b"\0") + b"ustar\x0000", "a tar archive", "unpack it"),
        ("a.out", b"\x7fELF\x02\x01\x01\0", "a program", "run it"),
    ],
)
def test_what_is_no_text_is_called_what_it_is(
    name: str, content: bytes, what: str, mend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, table(content, name))
    assert f"{name}: it is {what}" in said
    assert mend in said
    assert "encoding" not in said


def test_utf_16_without_a_mark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, table("kernel,ns\n6.16,5\n6.17,6\n".encode("utf-16-be")))
    assert "it holds a NUL character; utf-16-be would read it: give --encoding utf-16-be" in said


def test_a_picture_beside_results_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r").mkdir()
    table(b"kernel,ns\n6.16,5\n6.17,6\n", "r/a.csv")
    table(b"\x89PNG\r\n\x1a\n\0\0", "r/plot.png")
    with pytest.raises(SystemExit) as ended:
        cli_main.main(["import", "r"])
    assert ended.value.code == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli_main.main(["judge", "latest"])
    said = capsys.readouterr().out
    assert "note: r/plot.png: left out, it is a picture" in said
    assert "incomplete" not in said


def test_packed_results_beside_others_are_not_passed_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("r").mkdir()
    table(b"kernel,ns\n6.16,5\n6.17,6\n", "r/a.csv")
    table(b"\x1f\x8b\x08\0\xc3\x28", "r/b.csv.gz")
    assert "r/b.csv.gz: it is packed by gzip, no text; unpack it" in refused(capsys, "r")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "", "there is no head line: the file is empty"),
        ("a.csv", "kernel,ns\n", "a.csv: a head line, and no row below it"),
        ("a.csv", 'kernel,ns\n6.16,5\n"6.17,5\n', "line 3: not a table: a quote is opened and"),
        ("a.csv", "kernel,ns\n6.16,1e-320\n6.17,1\n", 'line 2, column ns: "1e-320" is not zero'),
        ("a.json", "[" * 100_000, "write less deep: a list of objects"),
        ("a.yaml", "".join(f"{' ' * at}a:\n" for at in range(60)), "YAML that is read has no"),
    ],
)
def test_the_mend_is_that_of_the_fault(
    name: str, content: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, table(content.encode(), name))


def test_a_full_disk_leaves_nothing_and_speaks_of_the_import(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        path.write_bytes(data[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder, "write_aside", full)
    with pytest.raises(SystemExit) as ended:
        cli_main.main(["import", table(b"kernel,ns\n6.16,5\n6.17,6\n")])
    assert ended.value.code == 3
    said = capsys.readouterr().err
    assert "nothing was stored: No space left on device; free some space, then import it" in said
    assert "trial" not in said
    assert list(Path("runs").iterdir()) == []


def test_an_import_that_could_not_be_read_again_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_MAX_BYTES", 900)
    rows = "".join(f"{kernel},{at % 7}.5\n" for at in range(20) for kernel in ("6.16", "6.17"))
    said = refused(capsys, table(f"kernel,ns\n{rows}".encode()))
    assert "a.csv: it would be stored in" in said
    assert "import a part of it" in said


def test_a_file_that_grows_while_it_is_imported_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(b"kernel,ns\n6.16,5\n6.17,6\n")
    read = tables.table

    def slow(text: str, name: str, delimiter: str) -> Plain:
        with Path(path).open("a") as stream:
            stream.write("6.17,7\n")
        return read(text, name, delimiter)

    monkeypatch.setattr(tables, "table", slow)
    assert "a.csv: it changed while it was read; import it when" in refused(capsys, path)


def test_what_may_not_be_looked_at_is_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Path.stat

    def denied(path: Path, **options: bool) -> os.stat_result:
        if path.name == "a.csv":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return looked(path, **options)

    path = table(b"kernel,ns\n6.16,5\n6.17,6\n")
    monkeypatch.setattr(Path, "stat", denied)
    said = refused(capsys, path)
    assert "a.csv: it cannot be read: Permission denied; check the path" in said


def test_a_doubt_is_said_also_where_no_proposal_can_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(b"a,b\n0.5,3.25\n0.75,4\n")
    opened = Path.open

    def denied(path: Path, mode: str = "r", **options: str) -> IO[str] | IO[bytes]:
        if mode == "x":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, mode, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(SystemExit):
        cli_main.main(["import", path])
    said = capsys.readouterr().err
    assert "what are a, b: which unit, and is lower better?" in said
    assert "cannot be written to a.mapping.toml: Permission denied; go to a folder" in said
