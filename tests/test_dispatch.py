# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials on workers: when one dies, hangs or lies, another worker gets its trial."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

import run_records
from kdelta import build
from kdelta.cli import run as execution
from kdelta.cli.options import Means
from kdelta.errors import InfraError, PoolError, SpecError
from kdelta.guests.qemu import Qemu
from kdelta.journal.run import RunJournal
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.run.exact import ExactTrials
from kdelta.run.guest_trial import Bench
from kdelta.run.runner import AS_PLANNED, How, Runner
from kdelta.sample import Outcome, TrialRecord, TrialResult
from kdelta.study import pools, spec
from kdelta.workers import worker
from kdelta.workers.dask import DaskWorkers, checked, is_open
from kdelta.workers.dispatch import DispatchedTrials
from test_exact import kernel

Count = Callable[[TrialRecord, str], bytes]


@dataclass
class Own:
    """What knows kernels and addresses, of this test."""

    image: Path
    cancelled: threading.Event = field(default_factory=threading.Event)

    def waits(self, _trial: TrialRecord) -> bool:
        return False

    def completed(self, _trial: TrialRecord, result: TrialResult, _run: Path) -> TrialResult:
        return result

    def given(self, _trial: TrialRecord) -> tuple[Bench, MachineSettings, Kernel]:
        bench = Bench(
            emulator=Qemu(program=Path("qemu"), package="10.0"), settings=MachineSettings(),
            fresh_boot=False, timeout_s=60, cancelled=self.cancelled,
        )  # fmt: skip
        return bench, MachineSettings(), kernel(self.image)

    def address(self, trial: TrialRecord, _how: How = AS_PLANNED) -> str:
        return address(trial)


def address(trial: TrialRecord) -> str:
    return f"{trial.index:064x}"


def result(trial: TrialRecord, at: int = 0) -> TrialResult:
    artifacts = {"console": f"trials/{trial.index:04d}/console.log"}
    return replace(run_records.result_of(trial.index + at), artifacts=artifacts, address="")


def answer(trial: TrialRecord, who: str, *, at: int = 0, own: str = "") -> bytes:
    return msgspec.json.encode(
        worker.Reply(
            worker=who,
            address=own or address(trial),
            result=replace(result(trial, at), wall_s=len(who) / 10),
            files={"console.log": b"what it said"},
        )
    )


class FakeWorkers:
    """Workers in this process, that do what a test says instead of counting."""

    def __init__(self, counts: dict[str, Count]) -> None:
        self.counts = counts
        self.gone = False
        self.shares: list[str] = []
        self.counted: list[tuple[str, int]] = []
        self._holders: dict[int, str] = {}
        self._next = itertools.count()
        self._pools = {name: ThreadPoolExecutor(max_workers=1) for name in counts}

    def places(self) -> dict[str, int]:
        if self.gone:
            raise PoolError("the scheduler is gone")
        return dict.fromkeys(self.counts, 1)

    def shared(self, digest: str, file: Path) -> str:
        assert file.is_file()
        self.shares.append(digest)
        return digest

    def submit(self, function: Any, *given: Any, among: Sequence[str]) -> Future[bytes]:
        names = list(among or self.counts)
        name = names[next(self._next) % len(names)]
        future = self._pools[name].submit(self._counted, name, function, *given)
        self._holders[id(future)] = name
        return future

    def failed(self, future: Future[bytes]) -> bool:
        return future.exception() is not None

    def holder(self, future: Future[bytes]) -> str:
        return self._holders[id(future)]

    def _counted(
        self, name: str, function: Any, message: bytes, digests: list[str], *inputs: str
    ) -> bytes:
        assert function is worker.counted
        order = worker._read(message, worker.TrialOrder, "order")
        assert order.inputs == set(digests) == set(inputs)
        self.counted.append((name, order.trial.index))
        return self.counts[name](order.trial, name)


@pytest.fixture
def journal(tmp_path: Path) -> RunJournal:
    return RunJournal.create(tmp_path / "run", run_records.new_run(arms=2, rounds=2))


def own_of(place: Path) -> ExactTrials:
    (place / "bzImage").write_bytes(b"a kernel")
    return cast("ExactTrials", Own(place / "bzImage"))


@pytest.fixture
def own(tmp_path: Path) -> ExactTrials:
    return own_of(tmp_path)


def dispatch(own: ExactTrials, workers: FakeWorkers, journal: RunJournal, **more: Any) -> list[str]:
    there = cast("DaskWorkers", workers)
    trials = DispatchedTrials(own, there, **{"limit_s": 5.0, "patience_s": 0.3, **more})
    with journal.executing():
        Runner(journal, trials, lambda _event: None).run(8)
    found = journal.record().trials
    return [str(trial.result.outcome) if trial.result else "none" for trial in found]


def essences(journal: RunJournal) -> list[bytes]:
    return [worker.essence(t.result) for t in journal.record().trials if t.result]


ALL_OK = ["ok"] * 8


def test_results_are_the_journals(own: ExactTrials, journal: RunJournal) -> None:
    workers = FakeWorkers({"a": answer, "b": answer})
    told: list[tuple[int, str]] = []
    assert dispatch(own, workers, journal, assigned=lambda *one: told.append(one)) == ALL_OK
    assert sorted(index for _, index in workers.counted) == list(range(8))
    assert {who for _, who in told} == {name for name, _ in workers.counted} | {""}
    trial = journal.record().trials[3]
    assert trial.result is not None
    assert (journal.folder / "trials/0003/console.log").read_bytes() == b"what it said"
    assert trial.result.kernel is not None
    assert (trial.result.kernel.reference, trial.result.kernel.build_id) == ("6.17", "f0" * 20)
    assert essences(journal) == [worker.essence(result(t)) for t in journal.record().trials]


def test_a_worker_that_hangs_is_asked_no_more(
    own: ExactTrials, journal: RunJournal, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()

    def hangs(trial: TrialRecord, who: str) -> bytes:
        released.wait(10)
        return answer(trial, who)

    workers = FakeWorkers({"hanging": hangs, "sound": answer})
    assert dispatch(own, workers, journal, limit_s=0.3) == ALL_OK
    released.set()
    assert [name for name, _ in workers.counted].count("hanging") == 1
    assert "hangs: no result after 0 s" in caplog.text


@pytest.mark.parametrize(
    "lie",
    [
        lambda trial, who: answer(trial, who, own="f" * 64),
        lambda _trial, _who: b"\x80\x04pickle",
        lambda _trial, who: msgspec.json.encode({"format": 1, "worker": who, "evil": 1}),
        lambda trial, who: answer(trial, who).replace(b'"console.log"', b'"../../x"'),
        lambda trial, who: answer(trial, who).replace(b"trials/", b"/etc//"),
        lambda trial, who: answer(trial, who).replace(b'"console.log"', b'"result.json"'),
    ],
)
def test_a_worker_that_lies_is_set_aside(own: ExactTrials, journal: RunJournal, lie: Count) -> None:
    workers = FakeWorkers({"lying": lie, "sound": answer})
    assert dispatch(own, workers, journal) == ALL_OK
    # It may have been handed another trial before its first lie was read; in turns it had half.
    assert 1 <= [name for name, _ in workers.counted].count("lying") < 4
    assert not (journal.folder.parent / "x").exists()


def test_a_fault_over_there_is_tried_elsewhere_and_told_when_it_is_everywhere(
    own: ExactTrials, journal: RunJournal
) -> None:
    def full(_trial: TrialRecord, who: str) -> bytes:
        return msgspec.json.encode(worker.Reply(worker=who, fault="/var: the disk is full"))

    assert dispatch(own, FakeWorkers({"full": full, "sound": answer}), journal) == ALL_OK
    again = RunJournal.create(journal.folder.parent / "other", run_records.new_run(arms=1))
    outcomes = dispatch(own, FakeWorkers({"full": full, "full, too": full}), again)
    assert set(outcomes) == {"infra-error"}
    told = again.record().trials[0].result
    assert told is not None
    assert "no worker could count it" in told.reason
    assert "the disk is full" in told.reason


def test_the_only_worker_is_kept_when_its_result_is_not_brought_here(
    own: ExactTrials, journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought, falls = Future.result, iter([True])

    def result(future: Future[bytes], timeout: float | None = None) -> bytes:
        found = brought(future, timeout)
        if next(falls, False):
            raise UnboundLocalError("cannot access local variable 'response'")
        return found

    monkeypatch.setattr(Future, "result", result)
    assert dispatch(own, FakeWorkers({"sound": answer}), journal) == ALL_OK


def test_trials_counted_twice_are_equal_or_an_alarm(
    own: ExactTrials, journal: RunJournal, caplog: pytest.LogCaptureFixture
) -> None:
    workers = FakeWorkers({"a": answer, "b": answer})
    assert dispatch(own, workers, journal, twice=2) == ALL_OK
    assert len(workers.counted) == 12
    by_trial = [{name for name, index in workers.counted if index == at} for at in (0, 2, 4, 6)]
    assert by_trial == [{"a", "b"}] * 4
    other = RunJournal.create(journal.folder.parent / "other", run_records.new_run(arms=1))
    broken = FakeWorkers({"a": answer, "b": lambda trial, who: answer(trial, who, at=1)})
    assert set(dispatch(own, broken, other, twice=1)) == {"invalid"}
    told = other.record().trials[0].result
    assert told is not None
    assert "counted twice, and differently: by " in told.reason
    assert "one of the two workers is broken" in caplog.text


def test_without_workers_run_ends_and_goes_on_later(own: ExactTrials, journal: RunJournal) -> None:
    def last(trial: TrialRecord, who: str) -> bytes:
        if trial.index >= 4:
            workers.gone = True
            time.sleep(0.5)
        return answer(trial, who)

    workers = FakeWorkers({"a": last})
    with pytest.raises(PoolError, match="the scheduler is gone"):
        dispatch(own, workers, journal)
    ended = [trial for trial in journal.record().trials if trial.result]
    assert all(t.result and t.result.outcome is Outcome.OK for t in ended)
    assert 0 < len(ended) < 8
    own.cancelled.clear()  # another process goes on
    fresh = FakeWorkers({"b": answer})
    assert dispatch(own, fresh, journal) == ALL_OK
    assert len(fresh.counted) == 8 - len(ended), "what was done was done again"


def test_with_no_worker_at_all_it_is_said(own: ExactTrials, journal: RunJournal) -> None:
    with pytest.raises(PoolError, match="there is no worker left; start workers"):
        dispatch(own, FakeWorkers({}), journal)
    assert not [trial for trial in journal.record().trials if trial.result]


def test_an_input_is_what_its_digest_says() -> None:
    digest = hashlib.sha256(b"an image").hexdigest()
    with pytest.raises(InfraError, match="another content"):
        worker._keep(digest, b"another")
    with pytest.raises(InfraError, match="was not sent"):
        worker._input(digest)
    worker._keep(digest, b"an image")
    worker._keep(digest, b"another")  # what is there stays
    assert worker._input(digest).read_bytes() == b"an image"
    with pytest.raises(InfraError, match="no SHA-256"):
        worker._keep("../../etc", b"")


def test_a_worker_says_why_it_counts_nothing() -> None:
    for message in (b"", b"{}", b'{"format": 1}'):
        reply = worker.reply_of(worker.counted(message, []), 0)
        assert (reply.result, reply.fault[:24]) == (None, "a worker's order is none")


def test_programs_that_were_brought_are_not_compiled(tmp_path: Path) -> None:
    source = tmp_path / "one.c"
    source.write_text("int main(void) { return 0; }\n")

    def made() -> Path:
        return build.compiled("one", [source], compiler="gcc", flags=["-O2"], package="gcc")

    with build.noting() as used:
        own = made()
    assert list(used.values()) == [own]
    brought = tmp_path / "program"
    brought.write_bytes(b"of another compiler")
    with build.given(dict.fromkeys(used, brought)):
        assert made() == brought
    assert made() == own


@pytest.mark.parametrize(
    "bad", ["", "localhost:8786", "http://127.0.0.1:1", "tcp://h", "tcp://:1", "tls"]
)
def test_addresses_of_schedulers(bad: str) -> None:
    with pytest.raises(SpecError, match="no address of a scheduler"):
        checked(bad)
    assert not is_open("tcp://127.0.0.1:8786")
    assert not is_open("tls://head.example.org:8786")
    assert is_open("tcp://head.example.org:8786")


def test_tls_without_certificates_is_one_sentence() -> None:
    with pytest.raises(InfraError, match="dask has no certificates here; name them"):
        DaskWorkers("tls://127.0.0.1:1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing required field `pool`"), ("[pool]", "has no pool"),
        ('[pool.a]\nkind = "ssh"', "Invalid value"), ('[pool.a]\nkind = "dask"', "scheduler"),
        ('[pool.a]\nkind = "dask"\nscheduler = "x"\njobs = 2', "jobs"),
        ('[pool."A b"]\nkind = "dask"\nscheduler = "x"', "no pool can be called"),
        ("".join(f'[pool.{n}]\nkind = "dask"\nscheduler = "x"\n' for n in "ab"), "two pools count"),
        ("[pool", "is no list of pools"),
    ],
)  # fmt: skip
def test_lists_of_pools_that_are_wrong(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(text)
    with pytest.raises(SpecError, match=r"lab\.toml") as caught:
        pools.load(file)
    assert said in caught.value.sentence()


def test_a_list_of_pools(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(
        '[pool.rack]\nkind = "dask"\nscheduler = "tls://head.example.org:8786"\n'
        "[check]\ntwice = 20\n"
    )
    found = pools.load(file)
    assert found.pool["rack"] == pools.DaskPool(scheduler="tls://head.example.org:8786")
    assert found.check.twice == 20


def test_counts_are_of_the_pool_that_counts(tmp_path: Path) -> None:
    study = spec.from_arguments(["control:getppid"], ["6.12", "6.17"])
    file = tmp_path / "lab.toml"
    host = '[pool.box]\nkind = "host"\naddress = "ssh://box"\n'
    file.write_text(f'{host}[pool.rack]\nkind = "dask"\nscheduler = "tcp://127.0.0.1:8786"\n')
    execution.check_pools(study, Means(pools=file))
    for text, said in (
        (host, "no pool of the file counts; add one"),
        ('[pool.rack]\nkind = "dask"\nscheduler = "foo"\n', "no address of a scheduler"),
    ):
        file.write_text(text)
        with pytest.raises(SpecError, match=said):
            execution.check_pools(study, Means(pools=file))


def test_times_are_of_pools_that_time(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text('[pool.rack]\nkind = "dask"\nscheduler = "tcp://127.0.0.1:8786"\n')
    study = spec.from_arguments(["control:getppid"], ["host"], instrument="time")
    assert execution.host_pool(study, Means()) is None
    with pytest.raises(SpecError, match="no pool of the file measures times"):
        execution.host_pool(study, Means(pools=file))
    rows = "".join(f'[pool.{n}]\nkind = "host"\naddress = "ssh://{n}"\n' for n in ("a", "b"))
    file.write_text(rows)
    with pytest.raises(SpecError, match="several pools measure times: a, b; name one with --pool"):
        execution.host_pool(study, Means(pools=file))
    named = execution.host_pool(study, Means(pools=file, pool="b"))
    assert named
    assert named.pool == "b"
    with pytest.raises(SpecError, match="no pool for times is called c"):
        execution.host_pool(study, Means(pools=file, pool="c"))
    study = spec.from_arguments(["control:getppid"], ["6.12"], instrument="trace", watch=["f"])
    with pytest.raises(SpecError, match="leave out --on"):
        execution.check_pools(study, Means(pools=file))
