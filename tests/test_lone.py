# SPDX-License-Identifier: GPL-2.0-or-later
"""C files outside the tree: an ordinary main() with two marks, kd_start(), a TOML beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta import arch, cache, guest, process
from kdelta.cli.main import cli
from kdelta.cli.run import every_kernel
from kdelta.errors import GuestError, SpecError
from kdelta.export import exported
from kdelta.output import Reading, parse_output
from kdelta.source import make
from kdelta.workload import full_reference, is_reference, load, parse_reference, speaks

MARKED = """\
#include "kdelta.h"
int main(int argc, char **argv)
{
	for (int i = 0; i < 10; i++) {
		KD_BEGIN(0);
		getppid();
		KD_END(0);
	}
	for (int i = 0; i < 3; i++) {
		KD_BEGIN(2);
		getppid();
		KD_END(2);
	}
	printf("%s of %d\\n", argv[argc - 1], argc);
	return 0;
}
"""


def written(folder: Path, text: str, name: str = "loop.c") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def ran(file: Path, scenario: str = "name") -> tuple[process.Completed, Reading]:
    workload = load(str(file))
    chosen = workload.scenario(scenario)
    done = process.run(
        [str(guest.program(file, arch.native(), theirs=True)),
         *chosen.arguments(iterations=3, warmup=1)],
        timeout=60, check=False,
    )  # fmt: skip
    return done, parse_output(done.stdout, workload, chosen)


@pytest.mark.program
def test_a_plain_main_with_two_marks_is_a_workload(tmp_path: Path) -> None:
    """Its windows are all that it marked; what it prints itself is in nobody's way."""
    done, reading = ran(written(tmp_path, MARKED))
    assert done.returncode == 0
    assert [(w.name, w.id, w.operation, w.operations) for w in reading.phases] == [
        ("work0", 0, "window", 1),
        ("work2", 2, "window", 1),
    ]
    assert [s.phase for s in reading.samples].count("work0") == 10
    assert [s.phase for s in reading.samples].count("work2") == 3
    assert {field.want for field in reading.state} == {"free"}
    rss = [f for f in reading.state if (f.when, f.name) == ("before", "process_rss_kb")]
    assert int(rss[0].value) > 0


@pytest.mark.program
def test_a_plain_main_names_its_operations(tmp_path: Path) -> None:
    text = MARKED.replace("{\n\tfor", '{\n\tkd_phase(0, "ask", "call", 1);\n\tfor', 1)
    _, reading = ran(written(tmp_path, text))
    assert [(w.name, w.operation) for w in reading.phases] == [("ask", "call"), ("work2", "window")]


@pytest.mark.program
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('int main(void) { puts("why"); return 3; }', "ended with status 3: why"),
        ("int main(void) { return 0; }", "no window: write KD_BEGIN(0)"),
        ('int main(void) { kd_die("open"); }', "ended with status 1: open: "),
        ("int main(void) { KD_BEGIN(8); }", "status 2: phases are 0 to 7"),
        ("int main(void) { KD_END(0); }", "KD_END(0), and no window of phase 0 is open"),
        ("int main(void) { KD_END(9); }", "KD_END(9), and no window of phase 9 is open"),
        ("int main(void) { KD_BEGIN(0); KD_END(1); }", "no window of phase 1 is open"),
        ("int main(void) { KD_BEGIN(0); KD_BEGIN(1); }",
         "KD_BEGIN(1) in an open window: KD_END(0)"),
        ("int main(void) { KD_BEGIN(0); KD_END(0); KD_BEGIN(1); }",
         "a window was opened and not closed: KD_END(1) is missing"),
        ('int main(void) { KD_BEGIN(2); KD_END(2); kd_phase(2, "late", "page", 7); }',
         "kd_phase(2, ...) came behind the first window of its phase"),
    ],
)  # fmt: skip
def test_a_plain_main_that_fails_says_why(tmp_path: Path, text: str, reason: str) -> None:
    done, reading = ran(written(tmp_path, f'#include "kdelta.h"\n{text}\n'))
    assert (done.returncode, reading.exit_code, reading.samples) == (1, 1, ())
    assert reason in reading.notes[-1]


@pytest.mark.program
@pytest.mark.parametrize(
    ("before", "cause"),
    [
        ('__attribute__((constructor(101))) static void f(void) { asm(""); }', "it has code that"),
        ('__attribute__((section(".preinit_array"), used)) static void *f;', "it has code that"),
        ('static void *f(void) { return f; } void g(void) __attribute__((ifunc("f")));',
         "it defines g, a name of the C library"),
        ("char *getenv(const char *name) { return (char *)name; }", "it defines getenv"),
        ("__attribute__((constructor)) static void f(void) {}", ""),
    ],
)  # fmt: skip
def test_nothing_of_a_file_runs_before_kdelta_looks(
    tmp_path: Path, before: str, cause: str
) -> None:
    path = written(tmp_path, f"{before}\nint main(void) {{ KD_BEGIN(0); KD_END(0); }}\n")
    if not cause:
        assert ran(path)[0].returncode == 0
        return
    with pytest.raises(SpecError) as refused:
        ran(path)
    assert refused.value.cause.startswith(cause)


@pytest.mark.program
def test_a_file_that_calls_kd_start_needs_no_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phases and facts are what the program says; a fact that it wants itself is wanted."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["workload", "new", "mine"]).exit_code == 0
    Path("mine.toml").unlink()
    done, reading = ran(tmp_path / "mine.c", "base_4m")
    assert done.returncode == 0
    assert [(w.name, w.operations) for w in reading.phases] == [("work", 1024)]
    wanted = {f.name: f.want for f in reading.state if f.when == "before"}
    assert wanted["present_pages"] == "1024"


@pytest.mark.program
def test_the_new_pair_agrees_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["workload", "new", "mine"]).exit_code == 0
    Path("other.c").symlink_to("nothing")
    for name in ("mine", "other"):
        again = CliRunner().invoke(cli, ["workload", "new", name])
        assert isinstance(again.exception, SpecError)
        assert "is there already" in again.exception.sentence()
    assert not Path("nothing").exists()
    done, reading = ran(tmp_path / "mine.c", "base_4m")
    assert done.returncode == 0
    assert len(reading.samples) == 3


@pytest.mark.program
def test_warnings_are_shown_and_an_error_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, '#include "kdelta.h"\nint main(void)\n{\n\tint x;\n\treturn 0;\n}\n')
    assert f"{file}:4:13: warning: unused variable" in guest.warnings(file, arch.native())
    file.write_text('#pragma message "\x1b]0;x\x07"\nint main(void) { return 0; }\n')
    assert guest.warnings(file, arch.native()).replace("\n", "").isprintable()
    file.write_text("int main(void)\n{\n\treturn nothing;\n}\n")
    with pytest.raises(SpecError, match=r"loop\.c:3:16: does not compile: .nothing. undeclared"):
        guest.program(file, arch.native(), theirs=True)
    monkeypatch.chdir(tmp_path)
    file.rename("-ofile.c")  # it is no option of the compiler
    with pytest.raises(SpecError, match=r"-ofile\.c:3:16: does not compile: .nothing. undeclared"):
        guest.program(Path("-ofile.c"), arch.native(), theirs=True)
    text = "int main(int n, char **v) { (void)v; KD_BEGIN(n); KD_END(n); return 0; }"
    file.write_text(f'#include "kdelta.h"\n{text}\n')
    with pytest.raises(
        SpecError, match=r"the phase of KD_BEGIN\(\) .* number from 0 to 7, no varia"
    ):
        guest.program(file, arch.native(), theirs=True)
    os.mkfifo(pipe := tmp_path / "pipe")
    monkeypatch.setattr(process, "_REST_S", 1.5)
    for text in ('#include "/dev/zero"', '#include "pipe"', f'asm(".incbin \\"{pipe}\\"");'):
        file.write_text(f"{text}\n{MARKED}")
        with pytest.raises(SpecError, match=r"it includes /\S+(zero|pipe), no plain file"):
            guest.program(file, arch.native(), theirs=True)
    (caged := cache.folder("programs") / make.STRANGERS).mkdir()  # it sees no file of the user's
    with pytest.raises(SpecError, match=r"pipe: No such file or directory"):
        guest.program(written(caged, f'#include "{pipe}"\n'), arch.native(), theirs=True)
    assert guest.program(written(caged, MARKED), arch.native(), theirs=True).is_file()


@pytest.mark.program
def test_a_file_beside_it_that_changed_is_seen(tmp_path: Path) -> None:
    """A program is known by its text after the preprocessor, not by its own file alone."""
    (tmp_path / "size.h").write_text("#define TIMES 2\n")
    text = MARKED.replace("i < 10", "i < TIMES").replace("\n", '\n#include "size.h"\n', 1)
    _, before = ran(written(tmp_path, text))
    (tmp_path / "size.h").write_text("#define TIMES 4\n")
    _, after = ran(tmp_path / "loop.c")
    assert [[s.phase for s in each.samples].count("work0") for each in (before, after)] == [2, 4]


def test_names_of_files_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert full_reference("loop.c:name") == "./loop.c:name"
    assert full_reference("./loop.c") == "./loop.c:main"
    (tmp_path / "loop.toml").touch()
    assert full_reference(f"{tmp_path}/loop.c") == "./loop.c:*"
    assert full_reference("../loop.c:main") == "../loop.c:main"
    assert full_reference("mprotect:single") == "mprotect:single"


def test_a_path_of_the_machine_is_on_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths of files are in study, run, pages and bundles; where they lie concerns nobody."""
    for each in ("loop.c", "vmlinuz", "c++"):
        (tmp_path / each).write_text("int main(void) { return 0; }\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/nowhere")
    given = f"file:{tmp_path}/vmlinuz,tree:deb:6.17+{tmp_path}/c++,tree:~/linux@origin/x,deb:6.17"
    assert every_kernel(given.split(","), "amd64", "cloud") == [
        "file:./vmlinuz", f"tree:deb:6.17+{tmp_path}/c++", "tree:~/linux@origin/x", "deb:6.17",
    ]  # fmt: skip
    monkeypatch.setenv("HOME", str(tmp_path))
    assert every_kernel([f"file:{tmp_path}/vmlinuz"], "amd64", "cloud") == ["file:~/vmlinuz"]
    named = full_reference("./loop.c")
    assert named == "~/loop.c:main"
    found, scenario = parse_reference(named)
    assert found.program == tmp_path / "loop.c"
    assert scenario.reference == named
    assert str(tmp_path) not in exported(found, scenario)
    words = ["./loop.c", "loop.c:x", "mprotect:x", "study.toml", "mprotect-fixes", "a:b.toml"]
    assert [is_reference(word) for word in words] == [True, True, True, False, False, False]


def test_a_call_in_a_comment_is_no_call(tmp_path: Path) -> None:
    assert not speaks(written(tmp_path, "/* kd_start(\n) */ // kd_start()\nint main(void) {}\n"))
    assert speaks(written(tmp_path, "int main(void) { kd_start (0, 0, 0, 0, 0); }\n"))


@pytest.mark.parametrize(
    ("name", "sentence"), [("none.c", "no such C file"), ("a b.c", "a program's name is letters")]
)
def test_what_is_no_program_is_told(tmp_path: Path, name: str, sentence: str) -> None:
    written(tmp_path, "", "a b.c")
    with pytest.raises(SpecError, match=sentence):
        load(str(tmp_path / name))


@pytest.mark.parametrize(
    "line",
    [
        "phase 0 work window 0", "phase 0 work win\x1bdow 1", "phase 0 ../work window 1",
        "state before rss 1 a;b", "layouts 0",
    ],
)  # fmt: skip
def test_what_a_program_declares_is_read_strictly(tmp_path: Path, line: str) -> None:
    workload = load(str(written(tmp_path, MARKED)))
    scenario = workload.scenario("main")
    good = "kdelta-workload 1 loop main\nphase 1 x call 1\nsample x 0 5 1\nend 0\n"
    assert parse_output(good, workload, scenario).exit_code == 0
    with pytest.raises(GuestError):
        parse_output(good.replace("phase 1", f"{line}\nphase 1", 1), workload, scenario)
