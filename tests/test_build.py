# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiling on demand: cached by content, one sentence when it cannot be done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kdelta import build, cache, process
from kdelta.errors import BuildError
from kernel_tree import script

pytestmark = pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")


def make(source: Path, *flags: str, compiler: str = "gcc") -> Path:
    return build.compiled("it", [source], compiler=compiler, flags=flags, package="gcc")


def status(program: Path) -> int:
    return process.run([str(program)], timeout=10, check=False).returncode


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "it.c"
    path.write_text("#ifndef N\n#define N 3\n#endif\nint main(void) { return N; }\n")
    return path


def test_made_once(source: Path) -> None:
    first = make(source)
    made = first.stat().st_mtime_ns
    assert status(first) == 3
    assert make(source) == first
    assert first.stat().st_mtime_ns == made


def test_text_and_flags_are_part_of_the_key(source: Path) -> None:
    first = make(source)
    other = make(source, "-DN=4")
    assert other != first
    assert status(other) == 4
    source.write_text(source.read_text().replace("3", "5"))
    assert status(make(source)) == 5


def test_a_header_is_part_of_the_key_and_not_compiled(tmp_path: Path) -> None:
    header = tmp_path / "n.h"
    source = tmp_path / "it.c"
    source.write_text('#include "n.h"\nint main(void) { return N; }\n')
    for number in (6, 7):
        header.write_text(f"#define N {number}\n")
        made = build.compiled("it", [source, header], compiler="gcc", flags=[], package="gcc")
        assert status(made) == number


def test_many_at_once_make_one(source: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(make, [source] * 4))) == 1


def test_no_compiler(source: Path) -> None:
    with pytest.raises(BuildError, match="no C compiler nothing-gcc") as caught:
        make(source, compiler="nothing-gcc")
    assert caught.value.action == "apt-get install gcc"
    assert caught.value.exit_code == 3


def test_an_error_quotes_the_compiler(source: Path) -> None:
    source.write_text("int main(void) { return }\n")
    with pytest.raises(BuildError, match="it does not compile: gcc failed with exit status 1"):
        make(source)


@pytest.mark.parametrize(
    ("answers", "why"),
    [("exec sleep 60", "did not end within 2 s"), ("", "gave no answer that can be read: nothing"),
     ("yes", "printed more than 1 MiB"), ("[ $1 != --version ] || echo 1", "wrote no it"),
     ("[ $1 = --version ] && exec echo 2; exec sleep 60", "did not end within 2 s")],
)  # fmt: skip
def test_what_is_no_compiler_is_told_soon(
    answers: str, why: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_REST_S", 1.5)
    monkeypatch.setattr(process.printed, "__defaults__", (1 << 20,))
    compiler = script(tmp_path / "cc", answers)
    with pytest.raises(BuildError, match=why) as caught:
        make(source, compiler=str(compiler))
    assert f"type -a {compiler}" in caught.value.sentence()


def test_what_compiler_leaves_when_it_is_killed_lies_in_cache(source: Path, tmp_path: Path) -> None:
    """Beside what it makes, which goes with it; it lay in /tmp."""
    text = '[ "$1" = --version ] && exec echo cc 1\nwhile [ "$1" != -o ]; do shift; done\n'
    compiler = script(tmp_path / "cc", text + 'echo "$TMPDIR" > "$2"')
    made = build.compiled("prog", [source], compiler=str(compiler), flags=[], package="cc")
    assert made.read_text().startswith(f"{cache.root() / 'build'}/.making-")
