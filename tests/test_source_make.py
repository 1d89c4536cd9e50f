# SPDX-License-Identifier: GPL-2.0-or-later
"""What a failed make's output means: whose fault, and the first error."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kdelta import arch as arches
from kdelta import data, workload
from kdelta.errors import InfraError, SpecError
from kdelta.kernels import reference
from kdelta.source import kconfig, make, tree_reference
from kdelta.toolchains import Family, Toolchain
from kdelta.transplant import releases

HERE = Path("/somewhere")


def failure(text: str) -> make.SourceError | InfraError:
    return make.failure("6.17.8", text, HERE / "log", HERE)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (
            ("  CC      mm/mincore.o\n../mm/mincore.c: In function 'x':\n"
            "../mm/mincore.c:12:5: warning: unused\n"
            "../mm/mincore.c:130:3: error: 'vec' undeclared (first use in this function)\n"
            "../mm/mincore.c:131:3: error: another\n"
            "make[4]: *** [../scripts/Makefile.build:287: mm/mincore.o] Error 1\n"),
            "../mm/mincore.c:130: 'vec' undeclared (first use in this function)",
        ),
        ("../mm/a.c:1:10: fatal error: linux/none.h: No such file or directory\n",
         "../mm/a.c:1: linux/none.h: No such file or directory"),
        (
            ("ld: vmlinux.o: in function `do_mincore':\n"
            "mincore.c:(.text+0x1f): undefined reference to `gone'\nmake: *** Error\n"),
            "mincore.c: undefined reference to `gone'",
        ),
        ("ld: mm/a.o: file not recognized: file truncated\n",
         "mm/a.o: file not recognized: file truncated"),
        ("ld.lld: error: undefined symbol: gone\n", "undefined symbol: gone"),
        ("gcc: error: unrecognized command-line option '-fnone'\n",
         "gcc: unrecognized command-line option '-fnone'"),
        ("../mm/Makefile:7: *** missing separator.  Stop.\n",
         "../mm/Makefile:7: missing separator"),
        ("make[2]: *** No rule to make target 'mm/none.o', needed by 'mm/'.  Stop.\n",
         "No rule to make target 'mm/none.o', needed by 'mm/'"),
        ("/tmp/a.s: Assembler messages:\n/tmp/a.s:7: Error: file not found: /etc/passwd\n",
         "/tmp/a.s:7: file not found: /etc/passwd"),
        ("\ncc1: out of memory allocating 65536 bytes after a total of 6471680 bytes\n",
         "its compiler takes more than 1.5 GiB of memory: does it include what never ends?"),
        ("../mm/a.c:9:1: internal compiler error: Segmentation fault\n",
         "../mm/a.c:9: internal compiler error: Segmentation fault"),
    ],
)  # fmt: skip
def test_the_source_is_blamed_with_its_first_error(text: str, first: str) -> None:
    error = failure(text)
    assert isinstance(error, make.SourceError)
    assert error.first == first
    assert error.sentence() == (f"6.17.8 does not build: {first}; the whole log is {HERE / 'log'}")
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/tmp/cc.s: No space left on device\n../mm/a.c:1:1: error: x\n", "disk is full"),
        ("gcc: fatal error: Killed signal terminated program cc1\n", "memory ran out"),
        ("/bin/sh: 1: flex: not found\n", "apt-get install flex"),
        ("/bin/sh: line 1: bc: command not found\n", "apt-get install bc"),
        ("elf.c:16:10: fatal error: gelf.h: No such file or directory\n", "libelf-dev"),
        ("", "without saying why"),
    ],
)
def test_the_machine_is_blamed_for_what_it_lacks(text: str, words: str) -> None:
    error = failure(text)
    assert not isinstance(error, make.SourceError)
    assert words in error.sentence()
    assert error.exit_code == 3


def test_missing_tools_are_named_as_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "make").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    make.check_tools.cache_clear()
    with pytest.raises(InfraError, match=r"apt-get install bc binutils bison flex gcc git lz4"):
        make.check_tools()
    make.check_tools.cache_clear()


def test_options_that_need_a_tool_more_name_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "dwarves" not in make.missing()
    assert "dwarves" in make.missing(frozenset({"DEBUG_INFO_BTF", "MM"}))


def test_jobs_are_bounded_by_processors() -> None:
    import os

    assert 1 <= make.jobs() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("target", "arch"), [("arm64", "arm64"), ("riscv64", "riscv")])
def test_a_cross_compiler_is_for_its_own_architecture(target: str, arch: str) -> None:
    gnu = arches.of(target).gnu
    chain = Toolchain(
        name=f"{gnu}-gcc", family=Family.GCC, cc=Path(f"/usr/bin/{gnu}-gcc"),
        tools=None, banner="", target=target,
    )  # fmt: skip
    words = make.arguments(chain)
    assert f"ARCH={arch}" in words
    assert f"CROSS_COMPILE=/usr/bin/{gnu}-" in words
    assert [word.partition("/")[2] for word in words if word.startswith("CC=")] == [
        f"usr/bin/{gnu}-gcc"
    ]


def test_a_compiler_of_this_machine_crosses_nothing() -> None:
    chain = Toolchain(name="gcc-12", family=Family.GCC, cc=Path("/usr/bin/gcc-12"),
                      tools=None, banner="")  # fmt: skip
    words = make.arguments(chain)
    assert words[0] == "ARCH=x86_64"
    assert not [word for word in words if word.startswith("CROSS")]


# Kernel configurations: what is asked for, and what of it was not granted


def test_last_line_of_an_option_wins() -> None:
    text = "CONFIG_A=y\n# CONFIG_A is not set\nCONFIG_B=8\nCONFIG_B=64\nnonsense\n"
    assert kconfig.parse(text) == {"A": "n", "B": "64"}


def test_default_is_the_base_and_what_distributions_add() -> None:
    config = kconfig.named()
    assert config.name == "deb"
    assert config.options["VIRTIO_CONSOLE"] == "y"
    assert config.options["MEMCG"] == "y"
    assert config.options["NR_CPUS"] == "64"  # kd-deb's, not kd-min's 8
    assert kconfig.named(["min"]).options["NR_CPUS"] == "8"


def test_names_add_up_and_each_stands_on_the_base() -> None:
    config = kconfig.named(["xenpv", "ftrace"])
    assert config.name == "xenpv+ftrace"
    assert {"XEN_PV", "FUNCTION_TRACER", "MEMCG", "DEVTMPFS"} <= set(config.options)
    assert len({kconfig.named([name]).digest for name in ("min", "deb", "xenpv", "ftrace")}) == 4


def test_every_fragment_that_is_brought_along_has_a_name() -> None:
    used = {part for parts in kconfig._FRAGMENTS.values() for part in parts}
    used |= {f"kd-{name}" for name in arches.ARCHES if name != "amd64"}
    assert {path.stem for path in data.directory("kconfig").glob("*.config")} == used


def test_a_text_replaces_the_base_and_is_read_back() -> None:
    config = kconfig.Config(name="x", options={"SMP": "y", "GONE": "n", "S": '"a"'}, whole=False)
    text = config.text("CONFIG_TINY=y\n# CONFIG_SMP is not set\n")
    assert kconfig.parse(text) == {"TINY": "y", "SMP": "y", "GONE": "n", "S": '"a"'}
    assert config.lost(text) == ()


def test_what_is_asked_for_comes_after_the_base() -> None:
    # Kconfig takes the last of a choice that is set.
    config = kconfig.Config(name="x", options={"SPEED": "y"}, whole=False)
    lines = config.text("# CONFIG_SPEED is not set\nCONFIG_SIZE=y\n").splitlines()
    assert lines == ["CONFIG_SIZE=y", "CONFIG_SPEED=y"]


@pytest.mark.parametrize(
    ("result", "lost"),
    [
        ("CONFIG_SMP=y\n", ()),  # an option that is nowhere is not set
        ("", ("CONFIG_SMP=y",)),
        ("CONFIG_SMP=m\n", ("CONFIG_SMP=y",)),
        ("CONFIG_SMP=y\nCONFIG_DEBUG=y\n", ("# CONFIG_DEBUG is not set",)),
    ],
)
def test_what_was_not_granted_is_named(result: str, lost: tuple[str, ...]) -> None:
    config = kconfig.Config(name="x", options={"SMP": "y", "DEBUG": "n"}, whole=False)
    assert config.lost(result) == lost


def test_a_whole_configuration_stands_alone(tmp_path: Path) -> None:
    file = tmp_path / "distro.config"
    file.write_text('CONFIG_SMP=y\nCONFIG_SYSTEM_TRUSTED_KEYS="certs/builder.pem"\n')
    config = kconfig.named([str(file)])
    assert config.whole
    assert config.options == {"SMP": "y", "SYSTEM_TRUSTED_KEYS": '""'}
    with pytest.raises(SpecError, match="stands alone"):
        kconfig.named([str(file), "deb"])


def test_what_a_configuration_says_of_its_tools_is_not_asked_for() -> None:
    tools = {"GCC_VERSION": "140200", "CC_HAS_ASM_GOTO_OUTPUT": "y", "CC_VERSION_TEXT": '"gcc"'}
    config = kconfig.Config(name="x", options={**tools, "SCHED_CLASS_EXT": "y"}, whole=True)
    assert config.lost("") == ("CONFIG_SCHED_CLASS_EXT=y",)
    assert kconfig.Config(name="x", options={"CC_OPTIMIZE_FOR_SIZE": "y"}, whole=True).lost("")


def test_a_fragment_is_added_and_changes_the_digest(tmp_path: Path) -> None:
    file = tmp_path / "more.config"
    file.write_text("CONFIG_KASAN=y\n")
    config = kconfig.named(fragments=[file])
    assert config.options["KASAN"] == "y"
    assert config.name == "deb+more.config"
    assert config.digest != kconfig.named().digest


@pytest.mark.parametrize("name", ["debian", "nowhere/x.config"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match=name):
        kconfig.named([name])


def test_a_file_that_sets_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prose.config"
    file.write_text("please be fast\n")
    with pytest.raises(SpecError, match="sets no option"):
        kconfig.named(fragments=[file])


@pytest.mark.parametrize("target", ["arm64", "riscv64"])
def test_another_architecture_has_its_own_in_place_of_what_only_x86_has(target: str) -> None:
    options = kconfig.named(target=target).options
    x86 = {name for name in options if name.startswith(("X86_", "MITIGATION_"))}
    assert {options[name] for name in x86} == {"n"}
    assert (options["PCI_HOST_GENERIC"], options["DEVMEM"], options["MEMCG"]) == ("y", "y", "y")
    assert kconfig.named(target=target).digest != kconfig.named().digest


def test_what_only_x86_has_is_refused_elsewhere() -> None:
    with pytest.raises(SpecError, match=r"xenpv is of amd64, not of arm64; choose from min, deb"):
        kconfig.named(["xenpv"], target="arm64")


def test_a_file_is_a_strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch, wherever it lies, and a fragment; not a variant that kdelta brings, or a commit."""
    patch = tmp_path / "x.patch"
    patch.write_text("")
    own = [
        tree_reference.of_word(word) for word in ("mincore-present-first", f"{tmp_path}@abcdef1")
    ]
    theirs = [tree_reference.of_word(f"{how}{patch}") for how in ("", "undo=", "mm/mincore.c=")]
    monkeypatch.setattr("kdelta.process.which", lambda _: None)
    assert not tree_reference.caged(own, trust=False)
    for one in theirs:
        assert not tree_reference.caged([one], trust=True)
        with pytest.raises(InfraError, match="built confined, and bubblewrap is not") as caught:
            tree_reference.caged([*own, one], trust=False)
        assert "--trust" in caught.value.action
    for name in (f"tree:deb:6.17.8+{patch}", f"tree:deb:6.17.8+fragment={patch}"):
        with pytest.raises(InfraError, match="built confined"):  # before a source is looked for
            reference.resolve(name)
    with pytest.raises(InfraError, match="built confined"):
        releases.of_words(object(), [str(patch)], "6.17+x", None, trust=False)  # type: ignore[arg-type]


def test_a_build_is_bounded_and_a_strangers_in_a_cage(tmp_path: Path) -> None:
    chain = Toolchain(name="gcc", family=Family.GCC, cc=tmp_path, tools=None, banner="")
    maker = make.Make(
        source=tmp_path, output=tmp_path, chain=chain, title="x", log=tmp_path / "log"
    )
    own, theirs = (
        replace(maker, confined=confined).isolated(["cc1", "x.c"], tmp_path, writable=False)
        for confined in (False, True)
    )
    assert own[0] == "prlimit"
    assert theirs[0] == "bwrap"
    assert own[: own.index("--")] == theirs[theirs.index("prlimit") :][: own.index("--")]
    assert {word.partition("=")[0] for word in own[1 : own.index("--")]} == {
        "--as", "--cpu", "--fsize",
    }  # fmt: skip
    assert "--unshare-all" in theirs
    assert theirs[-2:] == own[-2:] == ["cc1", "x.c"]


# What a kernel answers with ENOSYS, or has no family, file system or file of, without an option.
CALLS = {
    r"(?<!_)socket(?:pair)?\(": "NET", r"AF_UNIX": "UNIX", r"AF_INET": "INET",
    r"(?:msg|sem|shm)get\(": "SYSVIPC", r"mq_open\(": "POSIX_MQUEUE", r"signalfd\(": "SIGNALFD",
    r"timerfd_create\(": "TIMERFD", r"eventfd\(": "EVENTFD", r"epoll_create1?\(": "EPOLL",
    r"inotify_init1?\(": "INOTIFY_USER", r"(?:flock\(|F_(?:OFD_)?SETLKW?)": "FILE_LOCKING",
    r"f?setxattr\(": "TMPFS_XATTR", r"memfd_create\(|kd_memfd\(": "MEMFD_CREATE",
    r"madvise\(": "ADVISE_SYSCALLS", r"timer_create\(|setitimer\(": "POSIX_TIMERS",
    r"process_vm_(?:readv|writev)\(": "CROSS_MEMORY_ATTACH", r"PR_SET_SECCOMP": "SECCOMP_FILTER",
    r"SYS_add_key": "KEYS", r"SYS_kcmp": "KCMP", r"SYS_membarrier": "MEMBARRIER",
    r"SYS_io_setup": "AIO", r"SYS_io_uring_setup": "IO_URING", r"SYS_futex": "FUTEX",
    r"SYS_userfaultfd": "USERFAULTFD", r"SYS_move_pages": "MIGRATION", r"SYS_mbind": "NUMA",
    r"SYS_capget|getuid\(": "MULTIUSER", r"SYS_ioprio_get": "BLOCK", r'"cgroup2"': "MEMCG",
    r'"tmpfs"|kd_enter_tmpfs\(': "TMPFS", r"MAP_HUGETLB": "HUGETLBFS",
}  # fmt: skip


def texts() -> dict[str, str]:
    """The C files of workloads that are counted, without comments."""
    every = [workload.load(name) for name in workload.names()]
    counted = [one for one in every if any("exact" in s.instruments for s in one.scenarios)]
    return {
        one.name: re.sub(r"/\*.*?\*/|//[^\n]*", "", one.program.read_text(), flags=re.DOTALL)
        for one in counted
    }


@pytest.mark.parametrize("name", sorted(texts()))
def test_a_built_kernel_has_what_each_workload_calls(name: str) -> None:
    text = texts()[name]
    wanted = {option for call, option in CALLS.items() if re.search(rf"(?<![\w]){call}", text)}
    assert wanted <= {key for key, value in kconfig.named().options.items() if value == "y"}


def test_each_call_that_an_option_is_known_for_is_made_somewhere() -> None:
    every = "".join(texts().values())
    assert [call for call in CALLS if not re.search(rf"(?<![\w]){call}", every)] == []
