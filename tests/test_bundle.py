# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a bundle: the same bytes, every change found, and nothing hostile let out of it."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import Result
from msgspec.structs import replace

import ladder_records
import timed_records
from bundle_records import call, contents, sealed, stored, symbols, written
from kdelta import data, guest
from kdelta.analysis.merging import Merged, apart, merged
from kdelta.cli.bundle import make as bundle
from kdelta.cli.bundle import merge, qemu_for, reproduce, verify
from kdelta.errors import BuildError, InfraError, SpecError
from kdelta.files import sha256_of
from kdelta.guests import qemu
from kdelta.journal import bundle as packing
from kdelta.journal.bundle import MANIFEST, unpack
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.rendering.bundle import MERGED_VIEW
from kdelta.run.dependencies import BUNDLE, again
from kdelta.sample import ArmRecord, Environment, TimeData
from kdelta.table.columns import WIDTH, plain

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _known_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the ladder's kernels the symbols are here, and no package can be fetched."""

    def resolve(reference: str, *_: object, **__: object) -> Kernel:
        raise InfraError(f"no package of {reference}")

    monkeypatch.setattr("kdelta.run.recount.resolve", resolve)
    symbols(ladder_records.ladder(rounds=1))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundle")
    folder = stored(ladder_records.ladder(rounds=1), place / "run")
    done = call(bundle, folder, "-o", place / "run.tar")
    assert done.exit_code == 0, done.output
    return place / "run.tar"


def test_the_same_run_gives_the_same_bytes(packed: Path, tmp_path: Path) -> None:
    folder = packed.parent / "run"
    (folder / "notes-of-mine").write_text("private")
    done = call(bundle, folder, "-o", tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == packed.read_bytes()
    assert done.stdout.split()[0] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert not [name for name in contents(packed) if "notes" in name or name == "run/lock"]


def test_what_this_machine_lacks_is_no_fault_of_a_bundle(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(*_: object) -> None:
        raise BuildError("no C compiler")

    monkeypatch.setattr("kdelta.run.recount.judged", lacks)
    assert isinstance(call(verify, packed).exception, BuildError)


@pytest.mark.parametrize("kind", ["pipe", "folder", "run.json", "-", "no/x"])
def test_a_bundle_never_replaces_what_it_must_not(kind: str, packed: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").symlink_to(packed.parent)
    (tmp_path / "run.json").symlink_to(packed.parent / "run/run.json")
    before = (packed.parent / "run/run.json").read_bytes()
    done = call(bundle, packed.parent / "run", "-o", "-" if kind == "-" else tmp_path / kind)
    assert isinstance(done.exception, SpecError) or done.exit_code == 2
    assert (packed.parent / "run/run.json").read_bytes() == before
    assert (tmp_path / "pipe").is_fifo()


def test_a_bundle_goes_where_a_link_leads(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "link.tar").symlink_to("real.tar")
    assert call(bundle, packed.parent / "run", "-o", tmp_path / "link.tar").exit_code == 0
    assert (tmp_path / "link.tar").is_symlink()
    assert (tmp_path / "real.tar").read_bytes() == packed.read_bytes()


def test_a_bundle_can_be_checked_without_kdelta(packed: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "xf", packed], cwd=tmp_path, check=True)
    subprocess.run(["sha256sum", "--check", "--quiet", MANIFEST], cwd=tmp_path, check=True)
    assert "sha256sum --check" in (tmp_path / "README.txt").read_text()
    assert (tmp_path / "sources/workloads/mprotect.c").is_file()
    programs = list((tmp_path / "reproducers").glob("*/*.c"))
    assert programs
    for program in programs:  # built where it lies, as it says
        assert f"gcc -O2 -static {program.name} -o {program.stem}" in program.read_text()


@pytest.mark.parametrize(
    "name",
    ["run/run.json", "run/trials/0003/counts.bin.gz", "run/trials/0004/console.log", MANIFEST],
)
def test_one_changed_byte_is_named(packed: Path, tmp_path: Path, name: str) -> None:
    files = contents(packed)
    middle = len(files[name]) // 2
    changed = files[name][:middle] + bytes([files[name][middle] ^ 1]) + files[name][middle + 1 :]
    done = call(verify, written({**files, name: changed}, tmp_path / "x.tar"))
    assert done.exit_code == 1
    assert "DIFFERS: files" in done.output
    assert name in done.output or name == MANIFEST  # then it is the file of that line
    refused = call(reproduce, tmp_path / "x.tar").exception
    assert isinstance(refused, SpecError)
    assert "not what its manifest says" in refused.cause


def test_missing_and_unlisted_files_are_named(packed: Path, tmp_path: Path) -> None:
    files = contents(packed)
    del files["run/trials/0002/result.json"]
    files["run/extra"] = b"x"
    done = call(verify, written(files, tmp_path / "x.tar"))
    flat = " ".join(done.output.split())
    assert done.exit_code == 1
    assert "run/trials/0002/result.json: is missing" in flat
    assert "run/extra: is not in the manifest" in flat
    assert "holds no result" in flat


# ---- what a stranger may send --------------------------------------------------------------


def head(name: str = "run/run.json", kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, size, "/etc/passwd"
    return member.tobuf()


@pytest.mark.parametrize(
    "member",
    [
        *map(head, [
            "../out", "/etc/passwd", "run/../../out", "a/./b", "a//b", ".hidden", "a\\b", "a\nb",
            "x" * 300, "run/\x1b[31m", "a/b/../c", "~/x y",
        ]),
        *(head(kind=kind) for kind in (
            tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE,
            tarfile.GNUTYPE_SPARSE,
        )),
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_links_devices_and_holes_are_refused(
    tmp_path: Path, member: bytes
) -> None:
    archive = tmp_path / "x.tar"
    archive.write_bytes(member + bytes(1024))
    (tmp_path / "in").mkdir()
    with pytest.raises(SpecError, match="not a bundle") as caught:
        unpack(archive, tmp_path / "in")
    assert caught.value.sentence().isprintable()
    assert not list((tmp_path / "in").rglob("*"))
    assert {path.name for path in tmp_path.iterdir()} == {"x.tar", "in"}


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [("workload.txt", bytes((24 << 20) + 1), "workload.txt: .*it has more than 25165824 bytes"),
     ("counts.bin.gz", b"\x1f\x8b", "0001/counts.bin.gz: its raw counts cannot be read"),
     ("counts.bin.gz", gzip.compress(bytes(64), mtime=0), "0001/counts.bin.gz: its raw counts")],
)  # fmt: skip
def test_a_run_that_no_bundle_holds_is_not_packed(
    name: str, data: bytes, told: str, packed: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(packed.parent / "run", tmp_path / "run")
    (folder / "trials/0001" / name).write_bytes(data)
    assert re.search(told, str(call(bundle, folder, "-o", tmp_path / "x.tar").exception))
    assert not (tmp_path / "x.tar").exists()


def test_a_long_name_is_packed_and_unpacked(packed: Path, tmp_path: Path) -> None:
    name = f"reproducers/mprotect/{'a' * 150}.c"
    (tmp_path / "x.tar").write_bytes(packing.packed(packed.parent / "run", {name: b"text"}))
    unpack(tmp_path / "x.tar", tmp_path)
    assert (tmp_path / name).read_bytes() == b"text"


BEGIN = head(MANIFEST) + head()
NO_BUNDLES = {
    "empty": b"", "zeros": bytes(4096), "zip": b"PK\x03\x04" + b"x" * 4096, "cut": b"\x1f\x8b",
    "packed": gzip.compress(head() + bytes(4096), mtime=0),  # small, and becomes large
    "has more than 24 MiB": head(size=1 << 40) + b"0" * 2048,
    "names": head(kind=tarfile.GNUTYPE_LONGNAME) * 20_000 + bytes(1024),
    "headers": head(kind=tarfile.XHDTYPE) * 20_000 + bytes(1024),
    "bytes behind its last file": BEGIN + bytes(1 << 20),
    "there twice, or is a folder, too": BEGIN + head("run/run.json/x") + bytes(1024),
}  # fmt: skip


@pytest.mark.parametrize("why", NO_BUNDLES)
def test_what_is_no_archive_is_refused(tmp_path: Path, why: str) -> None:
    (tmp_path / "x.tar").write_bytes(NO_BUNDLES[why])
    assert call(verify, tmp_path / "x.tar").exit_code != 0
    (tmp_path / "in").mkdir()
    with pytest.raises(SpecError, match=f"not a bundle: .*{why if ' ' in why else ''}"):
        unpack(tmp_path / "x.tar", tmp_path / "in")


def forged(packed: Path, path: Path, **changed: bytes) -> Result:
    files = contents(packed)
    files.update({name.replace("__", "/"): content for name, content in changed.items()})
    return call(verify, sealed(files, path))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("run__trials__0000__counts.bin.gz", gzip.compress(b"\0" * (64 * MIB), mtime=0),
         "it unpacks to more than 8 MiB"),
        ("run__run.json", b'{"format": 99}', "the run has format 99"),
    ],
    ids=["counts", "plan"],
)  # fmt: skip
def test_what_unpacks_to_too_much_or_is_damaged_is_one_sentence(
    name: str, content: bytes, told: str, packed: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("kdelta.journal.artifacts._MOST_RAW", 8 * MIB)
    done = forged(packed, tmp_path / "x.tar", **{name: content})
    assert done.exit_code == 1
    assert told in " ".join(done.output.split())


def test_long_lines_and_escapes_reach_no_terminal(packed: Path, tmp_path: Path) -> None:
    evil = b'{"\x1b]0;x\x07": "' + b"y" * (11 * MIB) + b'"}'
    done = forged(packed, tmp_path / "x.tar", **{"run__show.json": evil, "run__show.txt": evil})
    assert done.exit_code == 1
    assert "\x1b" not in done.output
    assert "\x07" not in done.output
    assert max(map(len, done.output.splitlines())) <= 100


def test_a_newer_bundle_is_called_that(packed: Path, tmp_path: Path) -> None:
    """Whatever else it holds that this kdelta does not know."""
    newer = contents(packed)[BUNDLE].replace(b'"format": 1,', b'"format": 7, "colour": "red",')
    newer = newer.replace(b'"kdelta_version": "', b'"kdelta_version": "9.\\u001b[31m')
    done = forged(packed, tmp_path / "x.tar", **{BUNDLE: newer, "run__run.json": b"?"})
    for refused in (done.exception, call(reproduce, tmp_path / "x.tar").exception):
        assert isinstance(refused, SpecError)
        assert refused.cause == "this bundle is of a newer kdelta (format 7, here up to 1)"
        assert refused.sentence().isprintable()


def test_what_is_whole_and_not_understood_is_another_kdeltas(packed: Path, tmp_path: Path) -> None:
    plan = contents(packed)["run/run.json"]
    assert plan.startswith(b"{")
    done = forged(packed, tmp_path / "x.tar", **{"run__run.json": b'{"colour": 1, ' + plan[1:]})
    flat = " ".join(done.output.split())
    assert done.exit_code == 1
    assert "run/run.json: the file is damaged" in flat
    assert "it is damaged, or another state of kdelta 0.1.0 wrote it" in flat
    refused = call(reproduce, tmp_path / "x.tar").exception
    assert isinstance(refused, SpecError)
    assert refused.action.startswith("it is damaged, or another state of kdelta")
    result = contents(packed)["run/trials/0000/result.json"]
    done = forged(packed, tmp_path / "z.tar", **{"run__trials__0000__result.json": b"{" + result})
    lost = call(reproduce, tmp_path / "z.tar").exception
    assert isinstance(lost, SpecError)  # and nothing was measured to be compared with nothing
    assert lost.cause == "run/trials/0000/result.json: holds no result that can be read here"
    broken = call(verify, written({**contents(packed), "run/run.json": b"{}"}, tmp_path / "y.tar"))
    assert "it was written by" not in broken.output


# ---- again ---------------------------------------------------------------------------------


def test_a_study_is_repeated_on_the_very_kernels(tmp_path: Path) -> None:
    record = ladder_records.ladder(rounds=1)
    study = again(
        replace(record, arms=record.arms[2:4]),
        tmp_path,
        unless="kdelta bundle reproduce x.tar --build",
    )
    assert study.kernels == ("deb:6.16.12-1~bpo13+1", "deb:6.17.13-1~bpo13+1")
    assert study.plan.seed == record.seed


@pytest.mark.parametrize(
    ("reference", "unless", "why"),
    [
        ("file:vmlinuz", "", "is a file of the machine that measured"),
        ("tree:linux@v6.17", "", "is a file of the machine that measured"),
        ("tree:deb:6.17.8+a/x.patch", "x --build", "runs what its patches say.*: x --build"),
        ("tree:deb:6.17.8+a/x.patch", "", "not in the bundle"),
    ],
)
def test_what_only_the_other_machine_has(
    tmp_path: Path, reference: str, unless: str, why: str
) -> None:
    record = ladder_records.ladder(rounds=1)
    arms = (replace(record.arms[0], kernel=replace(record.arms[0].kernel, reference=reference)),)
    with pytest.raises(SpecError, match=why):
        again(replace(record, arms=arms), tmp_path, unless=unless)


@pytest.mark.parametrize("word", ["a/x.patch", "x.patch", "undo=x.patch"])
def test_a_patch_is_taken_from_the_bundle(word: str, tmp_path: Path) -> None:
    patch = tmp_path / "kernels/patches/x.patch"
    patch.parent.mkdir(parents=True)
    patch.write_text("")
    record = ladder_records.ladder(rounds=1)
    named = f"tree:deb:6.17.8+{word}"
    arm = replace(record.arms[2], kernel=replace(record.arms[2].kernel, reference=named))
    arms = (replace(record.arms[2], kernel=replace(arm.kernel, reference="6.16")), arm)
    study = replace(record.study, kernels=("6.16", named))
    found = again(replace(record, study=study, arms=arms), tmp_path, unless="")
    undone = "undo=" if word.startswith("undo=") else ""
    assert found.kernels[1] == f"tree:deb:6.17.8+{undone}{patch}"


def test_a_program_is_taken_from_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    record = ladder_records.part_of("6.16.12")
    record = replace(record, study=replace(record.study, scenarios=("~/away/loop.c:main",)))
    with pytest.raises(SpecError, match="not in the bundle"):
        again(record, tmp_path, unless="")
    there = tmp_path / "sources/workloads/loop.c"
    there.parent.mkdir(parents=True)
    there.write_text("int main(void) { return 0; }\n")
    with pytest.raises(SpecError, match=r"sources/workloads/loop\.c .* x\.tar --build"):
        again(record, tmp_path, unless="kdelta bundle reproduce x.tar --build")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("kdelta.source.make.check_confinement", lambda: None)
    (found,) = again(record, tmp_path, unless="").scenarios
    assert found.startswith("~/cache/kdelta/programs/")
    kept = tmp_path / found.removeprefix("~/").removesuffix(":main")
    assert (kept.read_bytes(), kept.parent.name) == (there.read_bytes(), "strangers")


@pytest.mark.parametrize(("here", "offered"), [(True, False), (False, True), (False, False)])
def test_its_qemu_is_fetched_where_it_can_be(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    here: bool,
    offered: bool,
) -> None:
    fetched: list[str] = []

    def fetch(wanted: str, *_: object, **__: object) -> qemu.Qemu:
        fetched.append(wanted)
        if not offered:
            raise SpecError(f"the archive has no QEMU {wanted}")
        return qemu.Qemu(program=Path("/qemu"), version=wanted)

    own = qemu.Qemu(program=Path("/qemu"), version="10.0.2" if here else "10.0.9")
    monkeypatch.setattr(qemu, "fetch_qemu", fetch)
    monkeypatch.setattr(qemu, "find", lambda _: iter([own]))
    wanted = qemu_for(ladder_records.ladder(rounds=1))
    assert wanted == ("10.0.2" if here or offered else "")
    assert fetched == ([] if here else ["10.0.2"])
    told = "counting with the usual one" in capsys.readouterr().err
    assert told == (not here and not offered)


@pytest.mark.parametrize("version", ["/bin/true", "../qemu", "10.0.2\n", "-x", ""])
def test_a_stranger_names_no_program_of_this_machine(version: str) -> None:
    record = ladder_records.ladder(rounds=1)
    environment = replace(ladder_records.ENVIRONMENT, qemu_version=version)
    other = ladder_records.with_results(record, lambda _: {"environment": environment})
    assert qemu_for(other) == ""


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ("ab" * 32, "ab" * 32, ()),
        ("ab" * 32, "cd" * 32, ("another program ran in 1 of 1 scenarios",)),
        ("", "cd" * 32, ("which program ran is not recorded of 1 of 1 scenarios",)),
    ],
)
def test_another_build_of_program_is_reason(was: str, now: str, told: tuple[str, ...]) -> None:
    """Compiler and C library decide where its buffers lie, and so what copying them takes."""
    theirs, ours = (_with_program(ladder_records.ladder(rounds=1), each) for each in (was, now))
    reasons = list(apart(theirs, ours))
    assert len(reasons) == len(told)
    assert all(map(str.startswith, reasons, told))


def _with_program(record: RunRecord, digest: str) -> RunRecord:
    environment = replace(ladder_records.ENVIRONMENT, program_sha256=digest)
    return ladder_records.with_results(record, lambda _: {"environment": environment})


# One finding of several machines' bundles: equal counts or the reason, times by machine


HERE = ladder_records.part_of("6.16.12", "6.17.13", "6.18.15")


def other(record: RunRecord, **changed: object) -> RunRecord:
    return replace(record, run_id=f"{record.run_id}-b", **changed)


def recounted(record: RunRecord, arm: int, per_page: float, **changed: object) -> RunRecord:
    """The same with another count of one arm."""
    again = ladder_records.result(ladder_records.Trial(per_page=per_page))
    trials = tuple(
        replace(one, result=replace(again, **changed)) if one.arm == arm else one
        for one in record.trials
    )
    return other(record, trials=trials)


def told(found: Merged) -> str:
    text = plain(MERGED_VIEW.show(found))
    assert max(map(len, text.splitlines())) <= WIDTH
    return " ".join(text.split())


# ---- counts --------------------------------------------------------------------------------


def test_equal_counts_are_one_finding() -> None:
    found = merged({"a.tar": HERE, "b.tar": other(HERE)})
    assert found.equal
    assert len(found.counts) == 3 * 2
    assert [pair.merged.verdict for pair in found.pairs] == ["REGRESSION", "REGRESSION"]
    assert told(found).startswith("6 of 6 counts are equal to the instruction on both machines. ")
    assert not found.reasons


def test_one_instruction_more_is_not_equal() -> None:
    more = recounted(HERE, 1, 769.8 + 1 / 16384)
    assert more.trials[1].exact.phases[0].kernel[0] == HERE.trials[1].exact.phases[0].kernel[0] + 1
    found = merged({"a.tar": HERE, "b.tar": more})
    assert not found.equal
    assert [(one.arm, one.phase) for one in found.counts if not one.equal] == [
        ("6.17.13", "protect")
    ]
    assert "nothing that was recorded explains it" in told(found)
    assert [pair.merged.verdict for pair in found.pairs] == ["REGRESSION", "REGRESSION"]


def test_the_reason_why_counts_differ_is_named() -> None:
    environment: Environment = replace(ladder_records.ENVIRONMENT, qemu_version="10.1.0")
    found = merged({"a.tar": HERE, "b.tar": recounted(HERE, 1, 500.0, environment=environment)})
    assert not found.equal
    assert found.reasons == ("b.tar: qemu_version was 10.0.2 and is 10.0.2 and 10.1.0",)
    assert "nothing that was recorded" not in told(found)


def test_a_kernel_without_a_count_on_one_machine_is_not_equal() -> None:
    trials = (replace(HERE.trials[0], result=None), *HERE.trials[1:])
    found = merged({"a.tar": HERE, "b.tar": other(HERE, trials=trials)})
    assert not found.equal
    assert found.pairs[0].merged.verdict == "UNDECIDED"
    assert found.counts[0].values[1] is None


# ---- what is no one study ------------------------------------------------------------------


def test_a_repeated_study_is_the_same_one() -> None:
    """`reproduce` names the very versions, and the seed that was drawn."""
    study = replace(
        HERE.study, kernels=("deb:6.16.12-1", "deb:6.17.13-1"),
        plan=replace(HERE.study.plan, seed=HERE.seed), title="the same, measured again",
    )  # fmt: skip
    assert merged({"a.tar": HERE, "b.tar": other(HERE, study=study)}).equal


def lying(record: RunRecord, file: str) -> RunRecord:
    """The same of a C file of the user's."""
    trials = tuple(replace(each, workload=file) for each in record.trials)
    study = replace(record.study, scenarios=(f"{file}:{trials[0].scenario}",))
    return replace(record, study=study, trials=trials)


def test_a_c_file_may_lie_elsewhere() -> None:
    here, away = lying(HERE, "./loop.c"), lying(HERE, "~/it/loop.c")
    assert merged({"a.tar": here, "b.tar": other(away)}).equal


def with_image(record: RunRecord, digest: str) -> tuple[ArmRecord, ...]:
    """Its arms, of which one has another kernel."""
    arm = replace(record.arms[1], kernel=replace(record.arms[1].kernel, image_sha256=digest))
    return (record.arms[0], arm, *record.arms[2:])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"study": replace(HERE.study, scenarios=("mincore:no_thp_pte_scan_4m",))},
         "different studies: scenarios differs"),
        ({"study": replace(HERE.study, name="x")}, "different studies: name differs"),
        ({"arms": with_image(HERE, "ef" * 32)},
         r"different kernels: 6\.17\.13 is not the other's 6\.17\.13"),
        ({"arms": HERE.arms[:2]}, "3 of them and 2"),
        ({"trials": (replace(HERE.trials[0], scenario="another"), *HERE.trials[1:])},
         "different plans"),
    ],
    ids=["scenarios", "name", "kernel", "kernels", "trials"],
)  # fmt: skip
def test_what_is_no_one_study_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(SpecError, match=why) as caught:
        merged({"a.tar": HERE, "b.tar": other(HERE, **change)})
    assert "a.tar and b.tar" in caught.value.sentence()


def test_one_run_counts_once() -> None:
    with pytest.raises(SpecError, match=r"a.tar and b.tar are one run"):
        merged({"a.tar": HERE, "b.tar": HERE})
    with pytest.raises(SpecError, match="no several machines"):
        merged({"a.tar": HERE})


# ---- times ---------------------------------------------------------------------------------


@functools.cache
def timed(change: float, machine: float = 1.0, seed: int = 0) -> RunRecord:
    """Boots of one machine: how much slower the new kernel is, and the whole machine.

    change 0: there is none, the machine is timed against itself.
    """
    record = timed_records.run([20.0, 20.0 * change, 20.0] if change else [20.0, 20.0], rounds=5)
    noise = random.Random(seed)  # noqa: S311  seeded noise
    trials = []
    for trial in record.trials:
        assert trial.result
        (phase,) = trial.result.timed.phases
        factor = machine * noise.gauss(1, 0.004)
        samples = tuple(round(one * factor) for one in phase.nanoseconds)
        data = TimeData(phases=(replace(phase, nanoseconds=samples),))
        trials.append(replace(trial, result=replace(trial.result, data=data)))
    return replace(record, run_id=f"t-{seed}", trials=tuple(trials))


@functools.cache
def two(change: float, other_change: float) -> Merged:
    return merged({"a.tar": timed(change), "b.tar": timed(other_change, 3.0, seed=1)})


def test_a_slower_kernel_is_one_on_machines_of_any_speed() -> None:
    found = two(1.15, 1.15)
    (pair,) = found.pairs
    assert found.equal
    assert (pair.merged.verdict, pair.merged.ratio) == ("REGRESSION", None)
    assert "REGRESSION: so says each machine: a.tar +1" in told(found)


def test_machines_against_themselves_have_a_row() -> None:
    found = two(0, 0)
    (pair,) = found.pairs
    assert (pair.old, pair.new) == ("host:6.0", "host:6.0 again")
    assert not pair.merged.verdict.is_step
    assert len(pair.each) == 2
    assert all(one and one.ratio for one in pair.each)
    assert "host:6.0 again" in told(found)


def test_machines_with_other_verdicts_disagree() -> None:
    found = two(1.6, 0.7)
    (pair,) = found.pairs
    assert not found.equal
    assert (pair.merged.verdict, pair.merged.ratio) == ("UNDECIDED", None)
    assert pair.merged.reasons == ("the machines disagree: a.tar REGRESSION, b.tar IMPROVEMENT",)


def test_a_machine_that_cannot_be_judged_is_named() -> None:
    few = timed(1.15, 3.0, seed=1)
    lost = tuple(t if t.round < 2 else replace(t, result=None) for t in few.trials)
    (pair,) = merged({"a.tar": timed(1.15), "b.tar": replace(few, trials=lost)}).pairs
    assert pair.merged.verdict == "UNDECIDED"
    assert pair.merged.reasons[0].endswith("a.tar REGRESSION, b.tar UNDECIDED")


# ---- a C file of the user's ------------------------------------------------------------------


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of ./mprotect.c, in the folder where it was begun."""
    for suffix in ("c", "toml"):
        shutil.copy(data.directory("workloads") / f"mprotect.{suffix}", tmp_path)
    for name in ("program", "initramfs"):
        (tmp_path / name).write_text(name)
        monkeypatch.setattr(guest, name, lambda *_, own=tmp_path / name, **__: own)
    monkeypatch.chdir(tmp_path)
    ran = {f"{name}_sha256": sha256_of(tmp_path / name) for name in ("program", "initramfs")}
    environment = replace(ladder_records.ENVIRONMENT, **ran)
    record = ladder_records.with_results(HERE, lambda _: {"environment": environment})
    return stored(lying(record, "./mprotect.c"), tmp_path / "run")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ((), ""),
        (("program",), "./mprotect.c: this is not the file that ran: .*; give it back as it was"),
        (("program", "initramfs"), "./mprotect.c: another compiler or kdelta makes another"),
        (("mprotect.c",), "./mprotect.c: its C file could not be read; pack the run in"),
    ],
)
def test_a_c_file_is_packed_where_it_is_proven_to_have_run(
    own_file: Path, changed: Sequence[str], told: str
) -> None:
    for name in changed:
        Path(name).unlink() if name.endswith(".c") else Path(name).write_text("x")
    done = call(bundle, own_file, "-o", "x.tar")
    assert re.search(told, " ".join(f"{done.stderr} {done.exception}".split()))
    refused = changed == ("program",)
    assert (done.exit_code != 0) == refused != Path("x.tar").exists()
    named = [] if refused else [n for n in contents(Path("x.tar")) if "mprotect" in n]
    assert len(named) == (0 if told else 3)  # source, TOML, reproducer


def test_results_without_a_source_are_not_verified(own_file: Path) -> None:
    assert call(bundle, own_file, "-o", "x.tar").exit_code == 0
    assert 'not verified: the TOML of "./mprotect.c"' in call(verify, "x.tar").output
    Path("mprotect.c").unlink()
    assert call(bundle, own_file, "-o", "x.tar").exit_code == 0
    done, files = call(verify, "x.tar"), contents(Path("x.tar"))
    assert done.stdout.startswith("4 of 5 parts hold; results are not verified: 3 of 3 trials")
    assert (done.exit_code, re.search("DIFFERS|kdelta explain", done.output)) == (4, None)
    lone = f"reproducers/mprotect/mprotect-{ladder_records.SCENARIO}.c"
    silent = re.sub(rb'"the workload [^"]*"', b"", files[BUNDLE])
    for name, content, why in ((lone, b"", "is of no trial"), (BUNDLE, silent, "made again: ")):
        done = call(verify, sealed({**files, name: content}, Path("y.tar")))
        assert (done.exit_code, why in " ".join(done.output.split())) == (1, True)


# ---- the command, and what a stranger may send ----------------------------------------------


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("merge")
    for name, record in (("a", HERE), ("b", other(HERE))):
        stored(record, place / name)
        done = call(bundle, place / name, "-o", place / f"{name}.tar")
        assert done.exit_code == 0, done.output
    return place / "a.tar", place / "b.tar"


def refused(*files: Path) -> SpecError:
    error = call(merge, *files).exception
    assert isinstance(error, SpecError)
    assert error.sentence().isprintable()
    return error


def test_bundles_are_merged(bundles: Sequence[Path]) -> None:
    done = call(merge, *bundles)
    assert done.exit_code == 0, done.output
    assert "9 of 9 counts are equal" in " ".join(done.output.split())
    content = json.loads(call(merge, *bundles, "--json").output)
    assert (content["kind"], content["equal"]) == ("merge", True)


def test_a_changed_bundle_is_not_merged(bundles: Sequence[Path], tmp_path: Path) -> None:
    files = contents(bundles[1])
    files["run/run.json"] = files["run/run.json"].replace(b"6.17", b"6.18", 1)
    error = refused(bundles[0], written(files, tmp_path / "x.tar"))
    assert error.cause == "the bundle is not what its manifest says"
    assert error.place.endswith("x.tar")


def test_one_bundle_named_twice_is_told(bundles: Sequence[Path]) -> None:
    assert "named twice" in refused(bundles[0], bundles[0]).cause
