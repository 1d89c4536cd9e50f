# SPDX-License-Identifier: GPL-2.0-or-later
"""The rules of CONTRIBUTING.md that a machine can check."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import check_commits
import rooms
from rooms import CORE, CORE_LINES, RUNG_OF, RUNGS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "kdelta"


# What a room that only reads a stored run may not know.
STARTERS = {
    "kdelta.process", "kdelta.kernels", "kdelta.host", "kdelta.guests", "kdelta.guest",
    "kdelta.doctor", "kdelta.run",
}  # fmt: skip

# What a room that only computes may not know.
OUTSIDE = {"os", "pathlib", "io", "time", "datetime", "subprocess", "socket", "kdelta.process"}

# Beyond the ladder: who may not know whom, or what of the outside world.
FORBIDDEN = {
    "analysis": STARTERS,
    "rendering": STARTERS,
    **dict.fromkeys(("ladder", "stats", "study.plan", "table", "verdict"), OUTSIDE),
}

MAX_FUNCTION = 60
# What the whole house may be, so that a stranger reads it in an afternoon.  They are to go down; up
# they went for patches put into released kernels, for lines that CPUs share and headers that
# thousands of objects include, and for readers that refuse what strangers name; the last time for
# what a C file does before main(), what verify makes again, and completion by type; then by thirty,
# for run folders, bisections and checks that are held against what they say they are, and for
# calls of a program that seeds move; then by 162, for call paths in the answer of why, a mail that
# keeps its step, and all that a table lacks in one refusal; then by 21, so that a survey computes
# less in each trial.
SOURCE_LINES = 56_416
SOURCE_MODULES = 181
TEST_LINES = 41_493
DOCUMENT_WORDS = 32_170
MOST_BRANCHES = 4  # on the instrument


# Hosts that our files may name: where documents live, and never a package mirror.
DOCUMENT_HOSTS = {
    "doi.org", "docs.kernel.org", "fsf.org", "git.kernel.org", "github.com", "gnu.org",
    "keepachangelog.com", "kernel.org", "lkml.org", "lore.kernel.org", "qemu.org", "semver.org",
    "www.fsf.org", "www.gnu.org", "www.kernel.org", "www.qemu.org", "www.w3.org",
}  # fmt: skip

# Only code that judges times imports these; they need the extra [time] to be imported at all.
TIME_MODULES = {"kdelta.stats.brunner_munzel"}

# What needs an extra says so where a person is told; all else does without.
WITH_EXTRAS = ("kdelta.stats.", "kdelta.workers.dask")

# An import name differs from the name on PyPI.
IMPORT_NAME = {
    "pyelftools": "elftools", "python-debian": "debian", "qemu.qmp": "qemu", "tomli-w": "tomli_w",
}  # fmt: skip


def tracked(*suffixes: str) -> list[Path]:
    """Files that are or would be committed, by suffix; all of them without one."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in names.split("\0") if name)
    return [path for path in paths if path.is_file() and (not suffixes or path.suffix in suffixes)]


def modules() -> dict[str, Path]:
    """Every module of the package: dotted name -> file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def parsed(text: str) -> ast.Module:
    """A file's tree; each is looked at by several tests."""
    return ast.parse(text)


@functools.cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """Every node of a file's tree."""
    return tuple(ast.walk(parsed(text)))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement of a tree, however deep; no expression, of which there are most."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(node, name, None)
            if isinstance(found, list):  # a lambda's body is an expression
                left += found


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names a module imports, anywhere in it; `from a import b` gives a.b."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ladder_faults(module: str, text: str) -> list[str]:
    """Imports of a module that the ladder or FORBIDDEN rules out."""
    room = module.split(".")[1]
    if room not in RUNG_OF:
        return [f"{module}: the room {room} has no rung"]
    faults = []
    for name in imports(parsed(text)):
        parts = name.split(".")
        outside = parts[0] == "kdelta" and len(parts) > 1 and parts[1] != room
        if outside and RUNG_OF.get(parts[1], len(RUNGS)) >= RUNG_OF[room]:
            faults.append(f"{module}: imports {name} from the same or a higher rung")
        for part, banned in FORBIDDEN.items():
            inside = f"{module}.".startswith(f"kdelta.{part}.")
            if inside and any(f"{name}.".startswith(f"{ban}.") for ban in banned):
                faults.append(f"{module}: imports {name}")
    return faults


def test_modules_keep_to_the_import_ladder() -> None:
    faults = [
        fault
        for module, path in modules().items()
        if module != "kdelta"
        for fault in ladder_faults(module, path.read_text())
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("kdelta.process", "from kdelta.cli.main import main"),
        ("kdelta.process", "from kdelta import metric"),
        ("kdelta.verdict.windows", "def f():\n    import kdelta.kernels.debian"),
        ("kdelta.verdict.windows", "from pathlib import Path"),
        ("kdelta.study.plan", "import time"),
        ("kdelta.analysis.ladder", "from kdelta import guests"),
        ("kdelta.newcomer", ""),
    ],
)
def test_ladder_sees_a_planted_fault(module: str, text: str) -> None:
    assert ladder_faults(module, text)


def test_the_documents_show_the_rooms_that_there_are() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert RUNG_OF.keys() == there - {"__init__", "__pycache__"}
    for path, text in rooms.written().items():
        assert path.read_text() == text, f"{path.name}: run .venv/bin/python tests/rooms.py"


def test_ladder_lets_lower_rungs_pass() -> None:
    text = "import os\nfrom kdelta import process\nfrom kdelta.kernels.debian import fetch"
    assert ladder_faults("kdelta.run.runner", text) == []


def within(module: str, text: str, known: Collection[str]) -> set[str]:
    """The modules of its own room that a module imports, wherever the statement stands."""
    room = ".".join(module.split(".")[:2])
    found = {
        next((one for one in (name, name.rpartition(".")[0]) if one in known), "")
        for name in imports(parsed(text))
    }
    return {name for name in found if name.startswith(f"{room}.")} - {module}


def circles(graph: Mapping[str, Collection[str]]) -> list[str]:
    """The modules that import themselves by way of others, and by which."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        left, seen = list(graph[start]), set[str]()
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                left += graph.get(name, ())
        reached[start] = seen
    return [
        f"{name} imports itself by way of {', '.join(ways)}"
        for name in sorted(graph)
        if (ways := [by for by in sorted(graph[name]) if name in reached.get(by, ())])
    ]


def test_no_room_has_a_circle_of_imports() -> None:
    """Imports within functions and under TYPE_CHECKING are imports, too."""
    known = modules()
    graph = {
        name: within(name, path.read_text(), known)
        for name, path in known.items()
        if name.count(".") > 1
    }
    assert not circles(graph), "\n".join(circles(graph))


@pytest.mark.parametrize(
    "text",
    [
        "from kdelta.run.two import f",
        "from kdelta.run import two",
        "def f():\n    import kdelta.run.two",
        "if TYPE_CHECKING:\n    from kdelta.run.two import A",
    ],
)
def test_a_planted_circle_is_seen(text: str) -> None:
    known = {"kdelta.run.one", "kdelta.run.two", "kdelta.run.three"}
    graph = {
        "kdelta.run.one": within("kdelta.run.one", text, known),
        "kdelta.run.two": within("kdelta.run.two", "from kdelta.run.three import x", known),
        "kdelta.run.three": within("kdelta.run.three", "import kdelta.run.one", known),
    }
    assert len(circles(graph)) == 3
    assert not circles(graph | {"kdelta.run.three": set()})


def core_faults(module: str, text: str) -> list[str]:
    """Imports of a module of the core that lead out of it."""
    found = (name.split(".") for name in imports(parsed(text)))
    return [
        f"{module}: imports {'.'.join(parts)}, which is not of the core"
        for parts in found
        if parts[0] == PACKAGE.name and parts[1] not in CORE
    ]


def test_the_core_imports_nothing_of_the_rest() -> None:
    core = {name: path for name, path in modules().items() if (*name.split("."), "")[1] in CORE}
    faults = [fault for name, path in core.items() for fault in core_faults(name, path.read_text())]
    assert not faults, "\n".join(faults)
    assert set(CORE) == {name.split(".")[1] for name in core}
    assert lines_of(core.values()) <= CORE_LINES
    assert core_faults("kdelta.ladder.counts", "def f():\n    from kdelta import cache")
    assert not core_faults("kdelta.ladder.counts", "import re\nfrom kdelta.verdict import windows")


def test_the_documents_read_the_core_through() -> None:
    """Every module of the core stands in its section of docs/architecture.md."""
    text = (ROOT / "docs/architecture.md").read_text()
    (section,) = re.findall(
        r"^## The core, in one sitting\n(.*?)^## ", text, re.DOTALL | re.MULTILINE
    )
    files = {
        str(path.relative_to(PACKAGE))
        for name, path in modules().items()
        if (*name.split("."), "")[1] in CORE and path.name != "__init__.py"
    }
    named = set(re.findall(r"`([\w/]+\.py)`", section))
    assert files == {name for name in named if not name.startswith("tests/")}


def branches_on_the_instrument(text: str) -> list[str]:
    """Lines that ask which instrument it is; its Traits and its Method are asked instead."""
    return re.findall(r"^.*instrument *(?:==|!=|is |in ).*$", text, re.MULTILINE)


def test_one_comparison_serves_every_instrument() -> None:
    found = [
        f"{name}: {line.strip()}"
        for name, path in modules().items()
        for line in branches_on_the_instrument(path.read_text())
    ]
    assert len(found) <= MOST_BRANCHES, "\n".join(found)
    assert branches_on_the_instrument("if a:\n    if study.instrument is Instrument.TIME:\n")


def lines_of(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def test_the_source_stays_within_its_budget() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert len([path for path in files if path.read_text().strip()]) <= SOURCE_MODULES
    assert lines_of(files) <= SOURCE_LINES


def test_the_tests_stay_within_their_budget() -> None:
    assert lines_of((ROOT / "tests").rglob("*.py")) <= TEST_LINES


def test_the_documents_stay_within_their_budget() -> None:
    names = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    paths = [*(ROOT / name for name in names), *(ROOT / "docs").glob("*.md")]
    assert sum(len(path.read_text().split()) for path in paths) <= DOCUMENT_WORDS


def spawns(text: str) -> list[str]:
    """Calls in a module that start another program other than through kdelta.process."""
    found = []
    for node in nodes(text):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if re.match(r"subprocess\.|os\.(system|popen|exec|spawn|posix_spawn|fork)", name):
                found.append(name)
            if "create_subprocess" in name:
                found.append(name)
        elif isinstance(node, ast.ImportFrom) and node.module == "subprocess":
            found.append("from subprocess import")
    return found


def test_only_process_starts_programs() -> None:
    found = {
        name: spawns(path.read_text())
        for name, path in modules().items()
        if name != "kdelta.process" and spawns(path.read_text())
    }
    assert not found
    assert spawns("import subprocess\nsubprocess.run(['true'])") == ["subprocess.run"]


def test_only_cli_talks_to_the_user_and_exits() -> None:
    faults = []
    for name, path in modules().items():
        if name.startswith("kdelta.cli"):
            continue
        text = path.read_text()
        found = imports(parsed(text))
        faults += [f"{name}: {module}" for module in found if module.startswith("click")]
        for node in nodes(text):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Raise):
                called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if not isinstance(called, ast.Name | ast.Attribute):
                continue
            words = ast.unparse(called)
            if words in ("print", "sys.exit", "exit", "os._exit", "SystemExit"):
                faults.append(f"{name}:{called.lineno}: {words}")
    assert not faults, "\n".join(faults)


def shared_names(texts: Iterable[str]) -> set[str]:
    """Names of public classes that stand more than once in these modules."""
    names = Counter(
        node.name
        for text in texts
        for node in parsed(text).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name for name, count in names.items() if count > 1}


def test_no_two_public_classes_have_one_name() -> None:
    assert not shared_names(path.read_text() for path in modules().values())
    assert shared_names(["class A: ...", "class B: ...\nclass A: ...", "class _B: ..."]) == {"A"}


def test_packages_have_empty_init_files() -> None:
    assert not [path for path in PACKAGE.rglob("__init__.py") if path.read_text().strip()]


def test_functions_are_short() -> None:
    faults = []
    for path in tracked(".py"):
        for node in statements(parsed(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or 0) - node.lineno + 1
                if size > MAX_FUNCTION:
                    faults.append(f"{path.name}:{node.lineno} {node.name}: {size} lines")
    assert not faults, "\n".join(faults)


IMPORT_ALL = """
import importlib, sys
extras = set(sys.argv[1].split(","))
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in extras:
            raise ModuleNotFoundError(f"{name} is an extra")
sys.meta_path.insert(0, Refuse())
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


def requirements() -> tuple[set[str], set[str]]:
    """Import names that pyproject.toml declares: needed at run time, and only by extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    names = []
    for lines in (project["dependencies"], extras):
        bare = (re.split(r"[<>=!~\[; ]", line)[0] for line in lines)
        names.append({IMPORT_NAME.get(name, name) for name in bare})
    return names[0], names[1] - names[0] - {PACKAGE.name}  # an extra may name another one


def test_every_module_imports_without_extras() -> None:
    _, extras = requirements()
    names = [name for name in modules() if name not in TIME_MODULES]
    argv = [sys.executable, "-c", IMPORT_ALL, ",".join(extras), *names]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_imports_are_declared_in_pyproject() -> None:
    runtime, extras = requirements()
    known = runtime | set(sys.stdlib_module_names) | {"kdelta"}
    faults = {
        f"{name}: {found}"
        for name, path in modules().items()
        for found in imports(parsed(path.read_text()))
        if found.split(".")[0] not in known | (extras if name.startswith(WITH_EXTRAS) else set())
    }
    assert not faults


def texts() -> Iterator[tuple[Path, str]]:
    for path in tracked():
        try:
            yield path, path.read_text()
        except UnicodeDecodeError:
            continue  # a binary fixture


def test_no_machine_paths_or_mirrors_in_files() -> None:
    homes = re.compile(r"(?<![\w.$}~])/(?:home|Users)/[a-z]\w*/")
    here = [f"{ROOT}/", f"{Path.home()}/"]
    faults = []
    for path, text in texts():
        for number, line in enumerate(text.splitlines(), start=1):
            hosts = re.findall(r"https?://(?:[^/@\s]*@)?([\w.-]+)", line)
            wrong = [host for host in hosts if not may_be_named(host.lower())]
            wrong += [place for place in here if place in line] + homes.findall(line)
            faults += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in wrong]
    assert not faults, "\n".join(faults)


# RFC 2606, and this machine itself: never a real mirror.
EXAMPLE_HOSTS = {"example.com", "example.org", "example.net", "localhost", "127.0.0.1"}
EXAMPLE_DOMAINS = (".example", ".invalid", ".test", ".example.com", ".example.org", ".example.net")


def may_be_named(host: str) -> bool:
    return host in DOCUMENT_HOSTS | EXAMPLE_HOSTS or f".{host}".endswith(EXAMPLE_DOMAINS)


def test_sources_name_their_licence() -> None:
    faults = []
    for path in tracked():
        if not path.stat().st_size or not is_source(path):
            continue
        head = path.read_text().splitlines()[:5]
        if not any("SPDX-License-Identifier: GPL-2.0-or-later" in line for line in head):
            faults.append(str(path.relative_to(ROOT)))
    assert not faults, "no SPDX line at the top of: " + " ".join(faults)


def is_source(path: Path) -> bool:
    if path.suffix in {".py", ".c", ".h"} or path.name == "Makefile":
        return True
    with path.open("rb") as stream:
        return stream.read(2) == b"#!"


@pytest.mark.parametrize(
    "message",
    [
        "process: kill the whole group\n\nA child that forked outlived its parent.\n",
        "guests/qemu: QEMU 10 needs no -nographic\n\nWhy it is so.\n",
        "check, tools: name every gate\n\nBecause.\n\nFixes: abc\n",
    ],
)
def test_commit_messages_that_pass(message: str) -> None:
    assert check_commits.problems(message) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Fix things\n\nBody.\n", "form"),
        ("process: Kill the group\n\nBody.\n", "capital"),
        ("process: kill the group.\n\nBody.\n", "full stop"),
        (f"process: {'x' * 70}\n\nBody.\n", "79 characters"),
        ("process: kill the group\n", "does not say why"),
        ("process: kill the group\n\nSigned-off-by: A B <a@example.org>\n", "does not say why"),
        ("process: kill the group\nno gap\n", "no empty line"),
    ],
)
def test_commit_messages_that_fail(message: str, problem: str) -> None:
    assert any(problem in found for found in check_commits.problems(message))


def test_history_is_read_commit_by_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    assert check_commits.history(tmp_path) == []
    for subject in ("one: first", "two: second"):
        git("commit", "-q", "--allow-empty", "-m", subject, "-m", "Why.\n\nMore.")
    messages = [message for _, message in check_commits.history(tmp_path)]
    assert messages == ["two: second\n\nWhy.\n\nMore.\n", "one: first\n\nWhy.\n\nMore.\n"]
