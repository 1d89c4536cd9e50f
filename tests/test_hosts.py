# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines that time, by ssh: held, sent into kernels, given back; and all that can go wrong."""

from __future__ import annotations

import base64
import io
import tarfile
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

import fake_host
from fake_host import BROKEN, DEFAULT, OTHER, FakeHost, on_path
from kdelta.cli.main import cli
from kdelta.errors import InfraError, KdeltaError, PoolError, SpecError
from kdelta.host.ssh_host import RefusedError, SshHost, Stage, connection, show
from kdelta.journal import results
from kdelta.journal.run import RUNS, RunJournal
from kdelta.run import timed
from kdelta.sample import TrialResult
from kdelta.study.pools import HostPool, ssh_words
from run_records import new_run

pytest_plugins = ("borrowed",)
pytestmark = pytest.mark.program


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    return on_path(tmp_path, monkeypatch)


def test_it_is_held_by_one_run_and_given_back_as_it_was(fake: FakeHost, ssh_host: SshHost) -> None:
    held = ssh_host.take("run-1", "today")
    assert held.release == DEFAULT
    assert ssh_host.take("run-1", "later") == held  # resumed: what it was is remembered
    with pytest.raises(InfraError, match="held by the run run-1 since today"):
        ssh_host.take("run-2", "today")
    assert ssh_host.boot(OTHER).release == OTHER
    ssh_host.give_back(held)
    assert fake.boots == [OTHER, DEFAULT]
    assert not fake.home.exists()
    assert ssh_host.holder() is None


def test_boots_are_bounded(fake: FakeHost, ssh_host: SshHost) -> None:
    for _ in range(4):
        ssh_host.boot(OTHER)
    with pytest.raises(PoolError, match="as often as its pool allows"):
        ssh_host.boot(OTHER)
    assert len(fake.boots) == 4


def test_a_machine_that_stays_down_ends_the_run(fake: FakeHost) -> None:
    with connection("box", "ssh://box", threading.Event()) as connected:
        ssh_host = SshHost(connected, HostPool(address="ssh://box", boot_s=0.2, most_boots=4))
        fake.goes_down()
        with pytest.raises(PoolError, match="did not come back within 0 s"):
            ssh_host.boot(OTHER)
        with pytest.raises(PoolError, match="box is not reached: gone"):
            ssh_host.reached()


@pytest.mark.parametrize(
    ("said", "cause", "mend"),
    [
        ("Host key verification failed.", "host key of box is not known", "compare it"),
        ("me@box: Permission denied (publickey).", "takes no key of yours", "ssh-add"),
    ],
)
def test_a_machine_that_is_not_accepted_is_not_waited_for(
    fake: FakeHost, ssh_host: SshHost, said: str, cause: str, mend: str
) -> None:
    (fake.folder / "down").write_text(said)
    with pytest.raises(RefusedError) as raised:
        ssh_host.reached()
    assert cause in raised.value.cause
    assert mend in (raised.value.action or "")


def test_the_command_to_try_is_the_one_that_is_given(fake: FakeHost, tmp_path: Path) -> None:
    (fake.folder / "down").write_text("Host key verification failed.")
    own = str(tmp_path / "config")
    Path(own).touch()
    with connection("box", "ssh://me@b:7", threading.Event(), own) as connected:
        with pytest.raises(RefusedError) as raised:
            connected.get("true")
        assert f"ssh -F {own} -p 7 -l me b" in (raised.value.action or "")


def test_no_right_to_boot_is_told(fake: FakeHost, ssh_host: SshHost) -> None:
    fake.program("bin/kexec", "#!/bin/sh\necho 'kexec: not permitted' >&2\nexit 1\n")
    with pytest.raises(PoolError, match="cannot be told to boot: kexec: not permitted"):
        ssh_host.boot(OTHER)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_machine_is_asked_for_root_once_and_shows_itself_without(
    fake: FakeHost, ssh_host: SshHost, *, allowed: bool
) -> None:
    fake.program("bin/id", "#!/bin/sh\necho 1000\n")
    does = 'shift; exec "$@"' if allowed else "exit 1"
    fake.program("bin/sudo", f"#!/bin/sh\necho >> {fake.folder}/sudo; {does}\n")
    assert ssh_host.facts().cpu_model == "A Real CPU"
    assert OTHER in ssh_host.releases()
    assert (fake.folder / "sudo").read_text().count("\n") == (4 if allowed else 2)


def test_no_sudo_is_told_with_the_line_that_gives_it(fake: FakeHost, ssh_host: SshHost) -> None:
    fake.program("bin/id", "#!/bin/sh\necho 1000\n")
    fake.program("bin/sudo", "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    held = ssh_host.take("run-1", "today")
    with pytest.raises(PoolError, match="cannot be told to boot: sudo: a password") as raised:
        ssh_host.boot(OTHER)
    assert "NOPASSWD: ALL; then: kdelta resume" in (raised.value.action or "")
    assert fake.boots == []
    ssh_host.give_back(held)  # nothing was chosen, so that nobody has to be root
    assert not fake.home.exists()


def test_a_kernel_that_is_not_there_is_named_with_those_that_are(ssh_host: SshHost) -> None:
    with pytest.raises(SpecError, match=r"no kernel 5\.4\.0 on this machine") as raised:
        ssh_host.boot("5.4.0")
    assert OTHER in (raised.value.action or "")


def test_a_program_is_sent_once_and_its_end_is_told(
    fake: FakeHost, ssh_host: SshHost, tmp_path: Path
) -> None:
    ssh_host.take("run", "now")
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho said $1; exit 7\n")
    there = ssh_host.send(program)
    assert ssh_host.send(program) == there
    assert ssh_host.ran([there, "this"], 10) == ("said this\n", 7)
    assert ssh_host.ran(["sleep", "5"], 0.5)[1] == 124  # 0.5 rounded to 0 would be no bound
    sent = [line for line in (fake.folder / "asked").read_text().splitlines() if "cat >" in line]
    assert len(sent) == 1


def test_a_program_that_does_not_start_is_the_machines_fault(ssh_host: SshHost) -> None:
    ssh_host.take("run", "now")
    with pytest.raises(InfraError, match=r"box does not start the program: .*no-such-program"):
        ssh_host.ran(["no-such-program"], 5)


def test_a_full_disk_there_is_the_machines_fault(
    fake: FakeHost, ssh_host: SshHost, tmp_path: Path
) -> None:
    ssh_host.take("run", "now")
    fake.program(
        "bin/cat", "#!/bin/sh\necho 'cat: write error: No space left on device' >&2\nexit 1\n"
    )
    program = tmp_path / "program"
    program.write_text("text")
    with pytest.raises(InfraError, match="No space left on device") as caught:
        ssh_host.send(program)
    assert caught.value.action == "make room there, see: df -h"


def test_a_folder_of_somebody_else_is_not_used(fake: FakeHost, ssh_host: SshHost) -> None:
    (fake.folder / "elsewhere").mkdir()
    fake.home.symlink_to(fake.folder / "elsewhere")
    with pytest.raises(InfraError, match="is not yours"):
        ssh_host.take("run", "now")


def _packed(*names: str, size: int = 3, kind: bytes = tarfile.REGTYPE) -> str:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size, entry.type, entry.linkname = size, kind, "/etc/passwd"
            archive.addfile(entry, io.BytesIO(b"\0" * size))
    return base64.b64encode(content.getvalue()).decode()


def _broken(packed: str) -> str:
    """With another byte in the middle of what is compressed."""
    content = bytearray(base64.b64decode(packed))
    content[len(content) // 2] ^= 0xFF
    return base64.b64encode(bytes(content)).decode()


@pytest.mark.parametrize(
    "printed",
    [
        _packed("../out"), _packed("/etc/out"), _packed("big", size=20 << 20),
        _packed("link", size=0, kind=tarfile.SYMTYPE), _broken(_packed("name")), "no base64!",
        base64.b64encode(b"no archive").decode(),
    ],
)  # fmt: skip
def test_what_a_machine_shows_of_itself_is_a_strangers(
    fake: FakeHost, ssh_host: SshHost, tmp_path: Path, printed: str
) -> None:
    (fake.folder / "shown").write_text(printed)
    fake.program("bin/base64", f"#!/bin/sh\nexec cat {fake.folder}/shown\n")
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(InfraError, match="box does not say what it is"):
        show(ssh_host.remote, target)
    assert not (tmp_path / "out").exists()
    assert not any(target.iterdir())


@pytest.mark.parametrize(
    "address",
    ["box", "ssh://", "ssh://-oProxyCommand=x", "ssh://a b", "ssh://box:99999", "ftp://b"],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(SpecError, match="no address of a host"):
        ssh_words(address)


STUDY = fake_host.STUDY.format(
    scenario="control:user_loop", old="6.1", new="6.12", broken=BROKEN, rounds=2, iterations=1,
    warmup=0,
)  # fmt: skip


def _kdelta(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, [*words])
    if isinstance(ended.exception, KdeltaError):
        return ended.exception.exit_code, ended.exception.sentence()
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output


@pytest.fixture
def lab(fake: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this process, with a lab.toml that has the machine."""
    assert fake
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kdelta.run.timed.SETTLE_S", 0.5)
    status, said = _kdelta("host", "add", "box", "ssh://me@box")
    assert (status, "lab.toml has box" in said) == (0, True)
    return tmp_path


def _ran(study: str) -> tuple[int, str]:
    Path("study.toml").write_text(study)
    return _kdelta("run", "study.toml", "--on", "lab.toml", "--runs", "runs")


def _resumed() -> tuple[int, str]:
    return _kdelta("resume", "latest", "--on", "lab.toml", "--runs", "runs")


def test_a_study_on_a_machine_boots_each_kernel_and_leaves_nothing(
    fake: FakeHost, lab: Path
) -> None:
    status, said = _kdelta("host", "doctor", "box")
    assert OTHER in said
    status, said = _ran(STUDY)
    assert status == 1
    assert f"sent into {BROKEN} and came back with {DEFAULT}" in " ".join(said.split())
    lost = [each.reasons for each in _results(lab) if "came back" in " ".join(each.reasons)]
    assert [reasons[-1] for reasons in lost] == ["it failed in 2 of 2 boots"]
    # Each kernel once a round; the broken one twice and not again; given back at the end.
    assert fake.boots.count(OTHER) == 2
    assert not fake.home.exists()
    assert fake.boots[-1] == DEFAULT


def test_a_file_that_is_a_folder_too_is_refused(
    fake: FakeHost, ssh_host: SshHost, tmp_path: Path
) -> None:
    (fake.folder / "shown").write_text(_packed("name", "name/below"))
    fake.program("bin/base64", f"#!/bin/sh\nexec cat {fake.folder}/shown\n")
    (tmp_path / "target").mkdir()
    with pytest.raises(InfraError, match="box does not say what it is"):
        show(ssh_host.remote, tmp_path / "target")


def _results(folder: Path) -> list[TrialResult]:
    record = RunJournal.open(RUNS.find(folder / "runs", "latest")).record()
    return [trial.result for trial in record.trials if trial.result]


def test_a_program_that_hangs_has_another_boot_for_each_try(fake: FakeHost, lab: Path) -> None:
    study = STUDY.replace(f', "host:{BROKEN}"', "").replace('"host:6.1"', '"host:6.12"', 1)
    study = study.replace('"host:6.12", "host:6.12"', '"host:6.12", "host:6.12.3"')
    fake.program("bin/timeout", "#!/bin/sh\nexit 124\n")
    status, said = _ran(study.replace("rounds = 2", "rounds = 1"))
    assert status == 3, said
    assert "did not end within" in said
    # Two tries of each of two trials, and the machine's own kernel at the end.
    assert fake.boots == [OTHER] * 4 + [DEFAULT]
    (result, _) = _results(lab)
    assert result.facts
    assert result.facts.boot_id


def test_a_kernel_that_did_not_come_up_is_not_booted_by_a_later_process(
    fake: FakeHost, lab: Path
) -> None:
    _ran(STUDY)
    failed = [at for at, each in enumerate(_results(lab)) if each.outcome == "boot-error"]
    assert len(failed) == 2
    (folder,) = lab.glob(f"runs/*/trials/{failed[1]:04d}")
    (folder / "result.json").unlink()  # as if killed before it
    before = len(fake.boots)
    status, said = _resumed()
    assert (status, len(fake.boots)) == (1, before), said


def test_a_run_stays_on_its_pool(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path / "run-1", new_run(run_id="run-1"))
    timed.note(journal.folder, "b")
    timed.note(journal.folder, "b")
    assert timed.pool_of(journal.folder) == "b"
    with pytest.raises(SpecError, match="its times are of the pool b"):
        timed.note(journal.folder, "a")


def _unbooted(ssh_host: SshHost, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """A boot that is chosen, and asked for by nobody: kdelta was killed in between."""

    def dies(_script: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(ssh_host, "_go", dies)
        with pytest.raises(KeyboardInterrupt):
            ssh_host.boot(release)


def test_what_was_chosen_and_never_booted_is_forgotten(
    fake: FakeHost, ssh_host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = ssh_host.take("run-1", "today")
    _unbooted(ssh_host, monkeypatch, OTHER)
    assert (fake.folder / "loaded").read_text() == OTHER
    ssh_host.give_back(held)
    assert not (fake.folder / "loaded").exists()
    assert fake.boots == []


def test_a_machine_that_kdelta_told_nothing_is_told_nothing(
    fake: FakeHost, ssh_host: SshHost
) -> None:
    held = ssh_host.take("run-1", "today")
    (fake.folder / "loaded").write_text("its owner's")
    ssh_host.give_back(held)
    assert (fake.folder / "loaded").exists()


def test_all_stages_of_a_boot_are_told_in_their_order(ssh_host: SshHost) -> None:
    told: list[Stage] = []
    ssh_host.told = told.append
    held = ssh_host.take("run-1", "today")
    ssh_host.boot(OTHER)
    ssh_host.give_back(held)
    boot = [Stage.CHOOSING, Stage.LEAVING, Stage.FALLING]
    back = [Stage.REACHING, Stage.RETURNING, Stage.FALLING, Stage.LETTING_GO]
    assert told == [Stage.REACHING, Stage.TAKING, *boot, *back]


def test_of_installation_that_was_killed_nothing_stays(fake: FakeHost, ssh_host: SshHost) -> None:
    """Some of it may be root's."""
    held = ssh_host.take("install", "today")
    (fake.home / "unpacked/modules").mkdir(parents=True)
    (fake.home / "unpacked/modules").chmod(0o555)
    fake.program("bin/rm", f'#!/bin/sh\n[ -e {fake.folder}/root ] && exec /bin/rm "$@"\nexit 1\n')
    fake.program("bin/sudo", f'#!/bin/sh\nshift\ntouch {fake.folder}/root\nexec "$@"\n')
    fake.program("bin/id", "#!/bin/sh\necho 1000\n")
    ssh_host.give_back(held)
    assert not fake.home.exists()


ONE_ROUND = STUDY.replace(f', "host:{BROKEN}"', "").replace("rounds = 2", "rounds = 1")


@pytest.mark.usefixtures("lab")
def test_killed_behind_its_last_trial_a_run_gives_the_machine_back(
    fake: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(SshHost, "give_back", lambda *_: None)
        _ran(ONE_ROUND)
    assert fake.home.exists()
    status, said = _resumed()
    assert not fake.home.exists(), (status, said)
    assert fake.boots[-1] == DEFAULT


def test_a_boot_whose_program_was_killed_is_not_fresh(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:

        def dies(*_: object) -> None:
            raise KeyboardInterrupt

        killed.setattr(SshHost, "ran", dies)
        _ran(ONE_ROUND)
    (cut,) = results.boots(next(lab.glob("runs/*/run.json")).parent)
    _resumed()
    boots = [one.facts.boot_id for one in _results(lab) if one.facts]
    assert len(boots) == 2
    assert cut not in boots
