# SPDX-License-Identifier: GPL-2.0-or-later
"""Bundles that were changed with a manifest to match: each is refused, and what is wrong named."""

from __future__ import annotations

import copy
import gzip
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

import ladder_records
from bundle_records import (
    BUILD_ID,
    COMPILER,
    IMAGE,
    call,
    contents,
    sealed,
    stored,
    symbols,
    written,
)
from kdelta.cli.bundle import make, verify
from kdelta.errors import InfraError, SpecError
from kdelta.kernels.image import Segment, UnpackedKernel
from kdelta.kernels.kernel import Kernel
from kdelta.run.dependencies import BUNDLE

Files = dict[str, bytes]
RESULT = "run/trials/{:04d}/result.json"
COUNTS = "run/trials/{:04d}/counts.bin.gz"
PLAN = "run/run.json"
OLD, NEW = 5, 8  # trials of 6.16.12 and 6.17.13
BEFORE, ARM = 2, 3  # their arms
COMMAND = "run/trials/0008/command.txt"
MPROTECT = "change_pte_range.isra.0", "prot_commit_flush_ptes"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Files:
    place = tmp_path_factory.mktemp("honest")
    stored(ladder_records.ladder(rounds=1), place / "run")
    done = call(make, place / "run", "-o", place / "run.tar")
    assert done.exit_code == 0, done.output
    return contents(place / "run.tar")


def package(reference: str) -> Kernel:
    version = reference.removeprefix("deb:")
    release = f"{version.partition('-')[0]}+deb13-cloud-amd64"
    return Kernel(
        reference=reference, release=release, arch="amd64", image=Path("/none"), image_sha256=IMAGE,
        version=version, flavour="cloud",
    )  # fmt: skip


SAYS = f"Linux version 6.17.13 (root@here) ({COMPILER}, GNU ld 2.44) #1".encode() + struct.pack(
    "<III4s20s", 4, 20, 3, b"GNU", bytes.fromhex(BUILD_ID)
)
UNPACKED = UnpackedKernel(
    arch="amd64", segments=(Segment(start=0, content=memoryview(SAYS), executable=False),)
)


@pytest.fixture(autouse=True)
def _archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive with the very packages, and the functions of their images."""
    monkeypatch.setattr("kdelta.run.recount.resolve", lambda name, *_, **__: package(name))
    monkeypatch.setattr("kdelta.run.recount.in_question", lambda _: frozenset())
    monkeypatch.setattr("kdelta.run.recount.unpacked_kernel", lambda _: UNPACKED)
    symbols(ladder_records.ladder(rounds=1))


@contextmanager
def parsed(files: Files, name: str) -> Iterator[Any]:
    content = json.loads(files[name])
    yield content
    files[name] = json.dumps(content).encode()


def result(change: Callable[[Any], object], at: int = NEW) -> Callable[[Files], None]:
    def forge(files: Files) -> None:
        with parsed(files, RESULT.format(at)) as kept:
            change(kept["result"])

    return forge


def plan(change: Callable[[Any], object]) -> Callable[[Files], None]:
    def forge(files: Files) -> None:
        with parsed(files, PLAN) as content:
            change(content)

    return forge


def raw(change: Callable[[bytes], bytes]) -> Callable[[Files], None]:
    def forge(files: Files) -> None:
        content = gzip.decompress(files[COUNTS.format(NEW)])
        files[COUNTS.format(NEW)] = gzip.compress(change(content), mtime=0)

    return forge


def text(name: str, old: str, new: str) -> Callable[[Files], None]:
    def forge(files: Files) -> None:
        assert old.encode() in files[name]
        files[name] = files[name].replace(old.encode(), new.encode(), 1)

    return forge


def text_of(name: str, content: bytes) -> Callable[[Files], None]:
    return lambda files: files.update({name: content})


def names_swapped(files: Files) -> None:
    one, two = (name.encode() for name in MPROTECT)
    for name in (name for name in files if name.endswith("result.json")):
        files[name] = files[name].replace(one, b"?").replace(two, one).replace(b"?", two)


def moved(data: Any) -> None:
    """The same sum, another function."""
    rows = data["data"]["functions"]
    rows[0]["insns"] += 5
    rows[1]["insns"] -= 5


def copied(files: Files) -> None:
    with parsed(files, RESULT.format(NEW)) as kept:
        kept["result"]["data"]["phases"][0]["kernel"][1] += 1
        kept["result"]["copied"] = {"sentence": "as 6.16.12", "trial": OLD}


def images_swapped(files: Files) -> None:
    with parsed(files, PLAN) as content:
        one, two = content["arms"][BEFORE]["kernel"], content["arms"][ARM]["kernel"]
        one["version"], two["version"] = two["version"], one["version"]


def twice(files: Files) -> None:
    name = RESULT.format(NEW)
    files[name] = files[name].replace(b'"insns":', b'"insns":7,"insns":', 1)


def answers_of_another(files: Files) -> None:
    own = next(name for name in files if name.startswith("run/explain-") and name.endswith(".txt"))
    files["run/explain-6.1-6.17.txt"] = files[own]


def nothing_wrong(files: Files) -> None:
    with parsed(files, RESULT.format(NEW)) as kept:
        kept["result"]["state"][0]["value"] = "16383"


def state_of_another(files: Files) -> None:
    with parsed(files, RESULT.format(NEW)) as kept:
        kept["result"]["state"][0].update(value="16383", want="16383")


def said(name: str, what: Any) -> Callable[[Files], None]:
    """What a result says, such as "facts.guest.cpu", is something else."""
    *parts, last = name.split(".")
    return result(lambda kept: reduce(getitem, parts, kept).update({last: what}))


# What a trial says that all of its run share, another value, and what is told.
SHARED = {
    "kernel.compiler": ("clang 99", "has another compiler or build id"),
    "kernel.build_id": ("0" * 40, "has another compiler or build id"),
    "kernel.release": ("6.17.9", "holds no result"),
    "kernel.flavour": ("rt", "kernel.flavour: another than 6.17.13"),
    "environment.accelerator": ("kvm", "environment.accelerator is"),
    "environment.cpu_model": ("host", "environment.cpu_model is"),
    "environment.memory_mib": (512, "environment.memory_mib is"),
    "environment.cmdline": ("quiet", "environment.cmdline is"),
    "environment.mitigations": ("none", "environment.mitigations is"),
    "environment.qemu_version": ("11.0.0", "qemu_version: it is 10.0.2"),
    "environment": (None, "do not say in which guest"),
    "facts.asked.memory_mib": (2048, "facts.asked.memory_mib is 2048, and is 1024"),
    "facts.guest.cpu": ("GenuineIntel", "facts.guest.cpu is not what"),
    "facts.guest.cmdline": ("x", "environment.cmdline is"),
    "fresh_boot": (True, "fresh_boot is true, and is false"),
    "tries": ([{"outcome": "infra-error"}], "attempts: fewer than its tries"),
}
STRAYS = (
    "kernels/configs/0123", "kernels/patches/6.17.patch", "reproducers/mprotect/x.c",
    "run/trials/9999/result.json",
)  # fmt: skip


FORGERIES: dict[str, tuple[Callable[[Files], object], str]] = {
    "two names swapped everywhere": (names_swapped, "data.functions[0].function is"),
    "a count beyond any": (
        result(lambda r: r["data"]["functions"][0].update(insns=2**62)), "result.json: holds no",
    ),
    "a count moved": (result(moved), "data.functions[0].insns is"),
    "calls": (
        result(lambda r: r["data"]["functions"][0].update(calls=1)), "data.functions[0].calls is 1",
    ),
    "a window": (
        result(lambda r: r["data"]["phases"][0]["kernel"].reverse()), "data.phases[0].kernel[",
    ),
    "a window of another task": (
        result(lambda r: r["data"]["phases"][0].update(switched=[True] * 8)),
        "data.phases[0].switched[0] is true",
    ),
    "operations of a window": (
        result(lambda r: r["data"]["phases"][0].update(operations=32768)),
        "data.phases[0].operations is 32768",
    ),
    "no operation in a window": (
        result(lambda r: r["data"]["phases"][0].update(operations=0)), "Expected `int` >= 1",
    ),
    "a phase left out": (
        result(lambda r: r["data"]["phases"].pop()), "data.phases is",
    ),
    "counts of another trial": (
        lambda files: files.update({COUNTS.format(NEW): files[COUNTS.format(OLD)]}),
        "data.phases[0].kernel[0] is",
    ),
    "a damaged last record": (raw(lambda c: c[:-8]), "are damaged: its last record"),
    "bytes behind the counts": (raw(lambda c: c + bytes(3)), "are damaged: its last record"),
    "a key twice": (twice, 'the key "insns" is there twice'),
    "a wrong type": (
        result(lambda r: r["data"]["functions"][0].update(insns="many")),
        "holds no result: the file is damaged: Expected `int`, got `str`",
    ),
    "a file elsewhere": (
        result(lambda r: r["artifacts"].update(console="../../etc/passwd")),
        'artifacts: "../../etc/passwd" is no file of this trial',
    ),
    "a file that is not there": (
        result(lambda r: r["artifacts"].update(counts="trials/0008/counts.bin.g0")),
        "counts.bin.g0\" is no file of this trial",
    ),
    "invalid for a reason": (
        result(lambda r: r.update(outcome="invalid", reasons=["somebody said so"])),
        'outcome is "invalid"',
    ),
    "a kernel of no study": (
        plan(lambda p: p["arms"][ARM]["kernel"].update(reference="6.10")), 'names no "6.10"',
    ),
    "another compiler in the plan": (
        plan(lambda p: p["arms"][ARM]["kernel"].update(compiler="clang 99")), "another compiler",
    ),
    "a state that holds": (nothing_wrong, "run/trials/0008/result.json: holds no result"),
    "a state of another": (state_of_another, "state[0].value is"),
    "a copy of what differs": (copied, "copied: no other trial has this result"),
    "a skipped trial": (
        result(lambda r: r.update(data=None, outcome="skip", skip={
            "kind": "unsupported", "sentence": "not there"})),
        'outcome is "skip", and is "ok"',
    ),
    "a year to come": (plan(lambda p: p.update(created="9999-11-20T10:15:00Z")), "no time"),
    "another day": (plan(lambda p: p.update(created="2026-11-19T10:15:00Z")), "was not made at"),
    "counted at no time": (result(lambda r: r.update(stored="yesterday")), "stored: "),
    "a trial left out": (
        plan(lambda p: p["trials"].pop()), "its title, rounds or trials are not",
    ),
    "more rounds": (plan(lambda p: p.update(rounds=100)), "its title, rounds or trials are"),
    "a bisection by its title": (
        plan(lambda p: p.update(title="bisection of x")), "its title, rounds or trials are",
    ),
    "another title": (plan(lambda p: p.update(title="x")), "its title, rounds or trials are"),
    "another name of a kernel": (
        plan(lambda p: p["arms"][ARM].update(label="6.17.9")), "or its arms have no names of",
    ),
    "a control that is none": (
        plan(lambda p: p["arms"][0].update(control=True)), "or its arms have no names of",
    ),
    "nothing at all": (
        plan(lambda p: p.update(arms=[], trials=[])), "or its arms have no names of",
    ),
    "two images swapped": (images_swapped, "is not that of its package"),
    "an image of nobody": (
        plan(lambda p: p["arms"][ARM]["kernel"].update(image_sha256="ab" * 32)),
        "the image of 6.17.13 is not that of its package",
    ),
    "an image that leads elsewhere": (
        plan(lambda p: p["arms"][ARM]["kernel"].update(image_sha256="../../x")), "has no SHA-256",
    ),
    "a verdict": (text("run/show.txt", "REGRESSION", "SAME"), "differs from what the results give"),
    "a figure": (text("run/show.json", "REGRESSION", "IMPROVEMENT"), "ladders[0].rungs[1]"),
    "another explanation": (answers_of_another, "is no answer of this run"),
    "what a README says": (text("README.txt", "mprotect()", "munmap()"), "README.txt: is another"),
    "whose bundle it is": (text(BUNDLE, "mprotect-shared", "munmap-shared"), "is another run's"),
    "another program": (
        text(f"reproducers/mprotect/{ladder_records.SCENARIO}.c", "main(", "main2("),
        "is not what the sources make",
    ),
    **{name: (said(name, what), told) for name, (what, told) in SHARED.items()},
    **{name: (text_of(name, b"x"), "is of no trial and no kernel") for name in STRAYS},
    "attempts": (
        text("run/attempts.json", '"8": 1', '"8": 5'), "attempts.json is not how often",
    ),
    "times that were stored": (
        result(lambda r: r.update(stored="2026-11-20T10:15:00+00:00", wall_s=3.0)), "wall_s: less",
    ),
    "another option of QEMU": (text(COMMAND, "-smp 1", "-smp 2"), 'is "2", and is "1" by its'),
    "another kernel of QEMU": (
        text(COMMAND, "-kernel '$CACHE/", "-kernel '/tmp/"), "command.txt[",
    ),
    "another order": (text(COMMAND, "--warmup 2", "--warmup 9"), "command.txt["),
    "no command": (text_of(COMMAND, b"rm -rf ~\n"), "command.txt is"),
    "another seed": (plan(lambda p: p.update(seed=8)), "in the order of its seed"),
    "a subject": (plan(lambda p: p.update(subjects={"mm": "x"})), "subjects: are of no commit"),
    "a source": (text_of("sources/plugin/insns.c", b"x"), "insns.c: is not what this kdelta has"),
    "no source": (lambda f: f.pop("sources/guest/init.c"), "sources/guest/init.c: is missing"),
    "a bundle that praises itself": (
        text(BUNDLE, '"absent": [', '"absent": ["ok: all is verified",'),
        "says that this is absent",
    ),
    "a silent bundle": (text(BUNDLE, "the plugin that", "the that"), "does not say that this is"),
    "no configuration": (
        plan(lambda p: p["arms"][ARM]["kernel"].update(config_sha256="ab" * 32)),
        "kernels/configs/abababababababab: is missing",
    ),
    "no console": (lambda f: f.pop("run/trials/0008/console.log"), "console.log is missing"),
    "a file of one's own": (text_of("run/notes.md", b""), "no file that a bundle has"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_named(honest: Files, tmp_path: Path, name: str) -> None:
    forge, told = FORGERIES[name]
    files = copy.deepcopy(honest)
    forge(files)
    assert files != honest
    done = call(verify, sealed(files, tmp_path / "x.tar"))
    flat = " ".join(done.output.split())
    assert done.exit_code == 1, flat
    assert told in flat


def test_nothing_is_left_unverified(honest: Files, tmp_path: Path) -> None:
    done = call(verify, written(honest, tmp_path / "x.tar"))
    assert done.exit_code == 0, done.output
    assert [done.output.count(word) for word in ("ok: ", "not verified", "DIFFERS")] == [5, 1, 0]
    assert done.output.endswith("x.tar`\n")


def test_what_has_no_image_is_told(
    honest: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the sums are verified, and no more."""

    def resolve(*_: object, **__: object) -> Kernel:
        raise InfraError("no network")

    def none(*_: object) -> None:
        raise SpecError("no image")

    monkeypatch.setattr("kdelta.run.recount.resolve", resolve)
    monkeypatch.setattr("kdelta.run.recount.load_symbols", none)
    flat = " ".join(call(verify, written(honest, tmp_path / "x.tar")).output.split())
    assert "not verified: which functions the counts of 6.19.10 are of, only their sums" in flat
    assert "DIFFERS" not in flat
    files = copy.deepcopy(honest)
    result(lambda r: r["data"]["functions"][0].update(insns=2**62))(files)
    assert "DIFFERS: results" in call(verify, sealed(files, tmp_path / "y.tar")).output
