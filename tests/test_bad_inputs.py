# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad inputs, made from a seed, wherever a command takes a file: each ends in a sentence, soon."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kernel_image
import kernel_tree
import ladder_records
import robot_mails
from boot.command import cpu_ticks
from bundle_records import call, stored
from kdelta.cli import bundle, main
from test_imports_formats import fio

pytestmark = pytest.mark.program
SEED = os.environ.get("KDELTA_BAD_SEED", "34")
EACH = 7  # bad contents of a kind
MOST_S, MOST_BYTES = 10.0, 1 << 30
SHIPPED = Path(__file__).parent.parent / "workloads"
TABLE = "kernel,boot,ns\n6.16,1,5\n6.17,1,6\n6.16,2,5.5\n6.17,2,6.5\n"
MAPPING = (
    'order = ["6.16", "6.17"]\nreplicate = "boot"\nbetter = "less"\nunit = "ns"\nplanned = 2\n'
    '[columns]\narm = "kernel"\nboot = "boot"\nvalue = "ns"\n[metrics.mprotect]\n'
)
SERIES = (
    "From 0 Mon Sep 17 00:00:00 2001\nFrom: A <a@b.c>\nSubject: [PATCH 1/1] mm: one\n"
    'Content-Type: multipart/alternative; boundary="x"\n\n--x\nContent-Type: text/plain\n\n'
    "Kdelta-claim: unmap:munmap less 12\nbase-commit: 0123456789abcdef\n---\n"
    + kernel_tree.diff("pte + 2")
    + "--x\nContent-Type: text/html\n\n<p>\n--x--\n"
)
LAB = '[pool.rack]\nkind = "dask"\nscheduler = "tcp://127.0.0.1:8786"\n[check]\ntwice = 5\n'
PAGE = '{"format": 1, "title": "a", "patches": [{"number": 1, "title": "b", "paths": []}]}'
FLAT = SERIES.partition("--x")[0] + "--x\nContent-Type: text/html\n\n" * 200_000
NESTED = "".join(f'Content-Type: multipart/mixed; boundary="b{n}"\n\n--b{n}\n' for n in range(3000))
DEEP, ARMS = ".".join(["a"] * 30_000) + " = 1\n", "".join(f"6.{n},1,5\n" for n in range(5000))
# What a command reads: the file, a good content, the command, and contents that are bad for sure.
# ../run, ../linux: made once; of a file in them the good content is there.
Taken = tuple[str, str | None, str, tuple[str, ...]]
TAKEN: dict[str, Taken] = {
    "study": ("a.toml", ladder_records.STUDY, "run ./a.toml", (DEEP, f"a = {'[' * 100_000}")),
    "C file": ("programs/control.c", None, "run programs/control.c --kernels 6.17",
               ('#include "/dev/zero"\n', '#include "control.c"\n' * 2, "/* " * 300_000)),
    "program": ("a", "hello", "run --kernels 6.17 -- ./a", ()),
    "file": ("a", "hello", "run --kernels 6.17 --file ./a -- env", ()),
    "workload": ("programs/control.toml", None, "workload show programs/control.c:getppid", ()),
    "table": ("a.csv", TABLE, "import a.csv",
              (TABLE + ARMS, TABLE + "6.17,1,1\n" * 300_000, TABLE + "6.17,9,1e308\n")),
    "JSON lines": ("a.jsonl", '{"kernel": "6.1", "boot": 1, "ns": 5}\n' * 3, "import a.jsonl", ()),
    "report": ("a.json", fio(3.0), "import a.json", ("[" * 10**6, f"[{'[],' * 5_000_000}[]]")),
    "mapping": ("a.toml", MAPPING, "import good.csv --mapping a.toml", (DEEP, "[[b]]\n" * 10**6)),
    "pools": ("a.toml", LAB, "host doctor box --on a.toml", (DEEP,)),
    "robot": ("a.eml", robot_mails.FORMS[0].mail, "ask a.eml --kernels 6.16,6.17",
              (FLAT[: 4 << 20], NESTED, "To: a\nContent-Type: text/plain; " + "a=b; " * 300_000)),
    "series": ("a.mbox", SERIES, "check a.mbox --base ../linux", (FLAT, SERIES[:50] + NESTED)),
    "patch": ("a.patch", SERIES.partition("---\n")[2], "kernels fetch tree:../linux+./a.patch",
              ("\r\n" * 10**7,)),
    "configuration": ("a", "CONFIG_A=y\n", "kernels fetch tree:../linux+config=./a", ()),
    "content": ("a.c", kernel_tree.MINCORE, "kernels fetch tree:../linux+mm/mincore.c=./a.c", ()),
    "page": ("a.json", PAGE, "check good.mbox --base ../linux --against a.json", ("[" * 10**6,)),
    "repository": ("linux/.git/config", None, "kernels fetch tree:./linux+config=min", ()),
    "image": ("run/image", None, "kernels show file:./run/image", ()),
    "plan": ("run/run.json", None, "show ./run", ()),
    "study of a run": ("run/study.toml", None, "resume ./run", ()),
    "attempts": ("run/attempts.json", "[]", "resume ./run", ()),
    "result": ("run/trials/0003/result.json", None, "explain ./run 6.16 6.17", ("[" * 10**6,)),
    "counts": ("run/trials/0003/counts.bin.gz", None, "explain ./run 6.16 6.17 --code walk", ()),
    "bundle": ("run.tar", None, "bundle verify run.tar", ()),
}  # fmt: skip
NUMBERS = ("inf", "-inf", "nan", "1e308", "1e-320", "0", "-1", "18446744073709551616", "9" * 5000)
WORDS = ("", "\x1b[31m", "\u202e", "../outside/x", "a" * 10**5, '"', "\\", "\0", "/dev/zero", "%n")
OPENED = ("[", "{", "(", '{"a":', "a.", "/* ", "--x\n", "<", "\t", "\r\n", "{a=", '"a"."a".')
PLANTS: tuple[Callable[[Path], object], ...] = (
    os.mkfifo,
    Path.mkdir,
    lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("../outside/x"),
    lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
    lambda path: socket.socket(socket.AF_UNIX).bind(os.path.relpath(path)),
    Path.touch,
    lambda _: None,
    lambda path: path.symlink_to("/proc/kmsg"),  # a plain file that has nothing yet
)


def bad(good: bytes, rng: random.Random) -> bytes:
    """A content that somebody spoilt."""
    places = [match.span() for match in re.finditer(rb"\d+|[A-Za-z_]+", good[:10_000])]
    start, end = rng.choice(places or [(0, 1)])
    word = rng.choice(NUMBERS if good[start:end].isdigit() else WORDS).encode()
    at, lines = rng.randrange(len(good)), good.splitlines(keepends=True)
    line, opened = rng.choice(lines), rng.choice(OPENED).encode()
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: good[:start] + word + good[end:],
        lambda: good[:start] + word + good[end:],
        lambda: good[:at],
        lambda: good[:at] + rng.randbytes(9) + good[at + 9 :],
        lambda: good.replace(line, line * (1 + 1_000_000 // len(line)), 1),
        lambda: good.replace(line, opened * (1 + 300_000 // len(opened)) + line, 1),
        lambda: b"".join(rng.sample(lines, len(lines))),
        lambda: good.decode(errors="replace").encode("utf-16"),
        lambda: rng.randbytes(10_000),
    )
    return rng.choice(ways)()


def ended(words: list[str], place: Path, *, exact: bool) -> tuple[int, str, float, int]:
    """Exit status, what was said, seconds of CPU and bytes that `kdelta WORDS` took; exact: as a
    program of its own, else forked.  One that waits for something, and so uses no CPU, is killed.
    """
    before = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    since, worked = time.monotonic(), 0
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            os.chdir(place)
            for number in (1, 2):
                os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
            if exact:
                os.execv(Path(sys.executable).with_name("kdelta"), ["kdelta", *words])  # noqa: S606
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            main.main(words)
        except SystemExit as done:
            sys.stdout.flush()
            os._exit(done.code if isinstance(done.code, int) else 99)
        finally:
            os._exit(98)
    while not (found := os.wait4(child, os.WNOHANG))[0]:
        time.sleep(0.01)
        if time.monotonic() - since > MOST_S:
            if (ticks := cpu_ticks(child)) == worked:
                os.killpg(child, signal.SIGKILL)
            since, worked = time.monotonic(), ticks
    used = found[2]
    said = (place / "said").read_text(errors="replace")
    peak = (used.ru_maxrss << 10) - (0 if exact else before)
    return os.waitstatus_to_exitcode(found[1]), said, used.ru_utime + used.ru_stime, peak


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its bundle, a source, C files, and the programs that commands start."""
    place = tmp_path_factory.mktemp("made")
    stored(ladder_records.ladder(rounds=1), place / "run")
    assert call(bundle.make, place / "run", "-o", place / "run.tar").exit_code == 0
    (place / "run/image").write_bytes(kernel_image.bzimage(kernel_image.gzipped(b"x" * 9000)))
    kernel_tree.committed(place / "linux")
    for folder in ("bin", "programs"):
        (place / folder).mkdir()
    for name in ("control.c", "control.toml"):
        shutil.copy(SHIPPED / name, place / "programs")
    for name in ("env", "find", "gcc", "git", "prlimit", "sh"):
        (place / "bin" / name).symlink_to(str(shutil.which(name)))
    for name in main.COMMANDS:
        main._load(name)
    return place


@pytest.mark.parametrize("kind", TAKEN)
def test_a_bad_input_ends_with_a_sentence_soon(
    kind: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(made / "bin"))
    rng = random.Random(f"{SEED} {kind}")  # noqa: S311
    name, text, command, sure = TAKEN[kind]
    good = (made / name).read_bytes() if text is None else text.encode()
    for folder in ("linux", "outside"):
        shutil.copytree(made / "linux", tmp_path / folder)
    outside = state(tmp_path / "outside")
    for number in range(len(PLANTS) + EACH + len(sure)):
        place = tmp_path / f"{number}"
        for folder in ("run", "linux", "programs"):
            shutil.copytree(made / folder, place / folder)
        (place / "good.csv").write_text(TABLE)
        (place / "good.mbox").write_text(SERIES)
        (place / name).unlink(missing_ok=True)
        monkeypatch.chdir(place)
        at, found = number - len(PLANTS), b""
        if at < 0:
            PLANTS[number](place / name)
        else:
            found = bad(good, rng) if at < EACH else sure[at - EACH].encode()
            (place / name).write_bytes(found)
        status, said, seconds, peak = ended(command.split(), place, exact=not at)
        told = f"{number}, {found[:300]!r}: {status}, {seconds:.1f} s, {peak} bytes: {said[-500:]}"
        assert status in range(5), told
        assert said.strip(), told
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]|Traceback", said), told
        assert seconds < MOST_S, told
        assert peak < MOST_BYTES, told
        assert state(tmp_path / "outside") == outside, told
        shutil.rmtree(place)
    assert {path.name for path in tmp_path.iterdir()} == {"linux", "outside"}


def state(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
