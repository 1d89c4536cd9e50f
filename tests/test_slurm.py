# SPDX-License-Identifier: GPL-2.0-or-later
"""Blocks of a timed run on Slurm: each state that a job can come to, by programs that play it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import fake_slurm
from kdelta.cli import execution
from kdelta.cli.block import block as block_command
from kdelta.errors import InfraError, KdeltaError, PoolError, SpecError, StoreError
from kdelta.journal import blocks
from kdelta.journal.blocks import BlockMachine, BlockOrder
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.run import arms, elsewhere, slurm
from kdelta.run.blocks import SlurmTrials
from kdelta.run.runner import Runner
from kdelta.run.slurm import Slurm
from kdelta.sample import Outcome
from kdelta.study import plan, pools, spec
from kdelta.study.slurm import SlurmPool

pytestmark = pytest.mark.program

ORDER = BlockOrder(kdelta=("kdelta 1", "sources"))
POOL = SlurmPool(partition="bench", minutes=7)


def study(text: str = "", *, rounds: int = 2, kernels: str = '"host"') -> spec.Study:
    head = 'name = "t"\ntitle = "t"\ninstrument = "time"\nscenarios = ["control:getppid"]\n'
    return spec.from_text(f"{head}kernels = [{kernels}]\n[plan]\nrounds = {rounds}\n{text}", "t")


def record(of: spec.Study) -> RunRecord:
    return RunRecord(
        run_id="t-1", name="t", title="t", seed=1, rounds=of.plan.rounds, created="2026-11-20",
        kdelta_version="1", study=of, arms=arms.records(of, None),
        trials=plan.make_plan(of, 1).trials,
    )  # fmt: skip


class Bench:
    """A run of one study, and the Slurm that a test has planned."""

    def __init__(self, folder: Path) -> None:
        self.slurm = folder / "slurm-fake"
        self.programs = fake_slurm.install(self.slurm)
        self.pool = replace(POOL, kdelta=fake_slurm.command(self.slurm))
        self.journal = RunJournal.create(folder / "t-1", record(study()))
        self.doing: list[tuple[int, str]] = []

    def planned(self, *lines: str) -> None:
        (self.slurm / "plan").write_text("\n".join(lines))

    def run(self) -> RunRecord:
        trials = SlurmTrials(
            Slurm("nodes", self.pool), self.pool, self.journal.study, ORDER, poll_s=0.02
        )
        with (
            self.journal.executing(),
            trials.placed(self.journal, lambda index, who: self.doing.append((index, who))),
        ):
            Runner(self.journal, trials, lambda _event: None).run_rounds(lambda: None)
        return self.journal.record()

    def calls(self, name: str) -> list[list[str]]:
        lines = (self.slurm / "calls").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [one for one in found if one[0] == name and "--test-only" not in one]

    def block(self, name: str = "r000-p000") -> Path:
        return self.journal.folder / "slurm" / name


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench(tmp_path)
    monkeypatch.setenv("PATH", f"{found.programs}:{os.environ['PATH']}")
    return found


def assert_whole(found: RunRecord) -> None:
    assert len(found.trials) == 4
    for trial in found.trials:
        assert trial.attempts == 1
        assert trial.result
        assert trial.result.outcome is Outcome.OK
        assert trial.result.timed.phases[0].nanoseconds == (1000 + trial.index,) * 3


def test_a_round_is_a_job_and_the_row_stays_on_its_node(bench: Bench) -> None:
    bench.planned("run n7", "run n7")
    assert_whole(bench.run())
    first, second = bench.calls("sbatch")
    wanted = {"--exclusive", "--nodes=1", "--requeue", "--dependency=singleton"}
    assert wanted | {"--time=7", "--partition=bench"} <= set(first)
    assert not [word for word in first if word.startswith("--nodelist")]
    assert "--nodelist=n7" in second
    texts = sorted(bench.journal.folder.glob("trials/*/workload.txt"))
    assert [text.read_text() for text in texts] == [f"trial {at}\n" for at in range(4)]
    assert {index for index, who in bench.doing if not who} == {0, 1, 2, 3}


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED"])
def test_what_came_to_nothing_is_given_again(bench: Bench, state: str) -> None:
    bench.planned(f"end {state}", "run n1", "run n1")
    assert_whole(bench.run())
    assert len(bench.calls("sbatch")) == 3
    shutil.rmtree(bench.journal.folder)
    bench.journal = RunJournal.create(bench.journal.folder, record(study()))
    bench.planned(*[f"end {state}"] * 9)
    with pytest.raises(PoolError, match=f"ended as {state}; choose .* lab.toml, then: kdelta"):
        bench.run()
    assert len(bench.calls("sbatch")) == 3 + 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("end TIMEOUT", "ended as TIMEOUT; give a block more minutes in lab.toml"),
        ("end OUT_OF_MEMORY", "ended as OUT_OF_MEMORY; choose nodes with more memory"),
        ("end CANCELLED", "ended as CANCELLED; somebody took it back"),
        ("end BOOT_FAIL", "ended as BOOT_FAIL; correct the pool"),
        ("end FAILED", "left nothing in the block's folder; name a folder that the nodes see"),
        ("end COMPLETED", "left nothing in the block's folder; name a folder that the nodes see"),
        ("wait PartitionTimeLimit", "would wait for ever: PartitionTimeLimit; correct the pool"),
        ("wait launch failed requeued held", "held; ask those who keep the cluster"),
        ("refuse sbatch: error: Batch job submission failed: Invalid qos", "Invalid qos; correct"),
        ("refuse sbatch: error: Unable to contact slurm controller", "Slurm does not answer"),
        ("refuse Submitted", "Slurm takes no such block: Submitted"),
    ],
)
def test_each_end_is_one_sentence_and_the_run_goes_on(bench: Bench, line: str, said: str) -> None:
    bench.planned(line)
    with pytest.raises(KdeltaError) as caught:
        bench.run()
    assert said in caught.value.sentence()
    assert len(caught.value.sentence()) < 400
    assert all(
        trial.result is None and trial.attempts == 0 for trial in bench.journal.record().trials
    )
    bench.planned("run n1", "run n1")
    assert_whole(bench.run())


def test_the_last_words_of_a_job_are_told(bench: Bench) -> None:
    bench.block().mkdir(parents=True)
    (bench.block() / "said.txt").write_bytes(b"kdelta: no \x1b[31mroom\nslurmstepd: error: exit\n")
    bench.planned("end FAILED")
    with pytest.raises(
        PoolError, match=r"ended as FAILED: kdelta: no \?\[31mroom; see .*said\.txt"
    ):
        bench.run()


def test_a_job_of_a_killed_controller_is_found_again(bench: Bench) -> None:
    bench.planned("wait Resources")
    made = SlurmTrials(Slurm("nodes", bench.pool), bench.pool, bench.journal.study, ORDER)
    with bench.journal.executing(), made.placed(bench.journal, lambda _index, _who: None):
        made._look([made._blocks[0, 0]])  # and is killed here
    fake_slurm.complete(bench.block(), "n1")
    jobs = bench.slurm / "jobs"
    jobs.write_text(jobs.read_text().replace("PENDING", "RUNNING"))
    bench.planned("run n1")
    assert_whole(bench.run())
    assert len(bench.calls("sbatch")) == 2


def test_an_interrupt_takes_the_job_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.planned("wait Resources")

    def interrupt(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SlurmTrials, "_follow", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert bench.calls("scancel") == [["scancel", "1"]]


def test_a_trial_that_failed_there_has_its_block_measured_anew(bench: Bench) -> None:
    bench.planned("run n1", "run n1", "run n1", "run n1")
    broken = bench.block().parent / "infra"
    broken.parent.mkdir(parents=True)
    broken.touch()
    found = bench.run()
    assert {t.result.outcome for t in found.trials if t.result} == {Outcome.INFRA_ERROR}
    broken.unlink()
    with bench.journal.executing():
        assert bench.journal.replan_failures() == 4
    assert_whole(bench.run())
    assert (bench.block("r000-p000.1") / "done").is_dir()
    assert len(bench.calls("sbatch")) == 4


def test_times_of_another_node_are_invalid(bench: Bench) -> None:
    bench.planned("run n1", "run n2")  # although n1 was asked for
    found = bench.run()
    outcomes = [trial.result.outcome for trial in found.trials if trial.result]
    assert outcomes == [Outcome.OK, Outcome.OK, Outcome.INVALID, Outcome.INVALID]
    assert found.trials[2].result
    assert "timed on n2, the others of its row on n1" in found.trials[2].result.reason


def test_a_damaged_block_is_no_result(bench: Bench) -> None:
    bench.planned("run n1", "run n1")
    fine = bench.block()
    with bench.journal.executing():
        made = SlurmTrials(Slurm("nodes", bench.pool), bench.pool, bench.journal.study, ORDER)
        with made.placed(bench.journal, lambda _index, _who: None):
            made._look([made._blocks[0, 0]])
    result = fine / "done/trials/0001/result.json"
    result.write_bytes(result.read_bytes()[:-20])
    with pytest.raises(StoreError, match=r"damaged.*remove that folder, then: kdelta resume"):
        bench.run()
    shutil.rmtree(fine)
    bench.planned("run n1", "run n1")
    assert_whole(bench.run())


def test_of_two_attempts_the_first_counts(bench: Bench) -> None:
    whole, folder = bench.journal.record(), bench.block()
    blocks.make(folder, whole, whole.trials[:2], ORDER)
    late = blocks.attempt(folder, "2-0")
    fake_slurm.complete(folder, "n1")
    assert not blocks.finish(folder, late, BlockMachine(job="2", restart="0", node="n2"))
    machine = blocks.machine_of(folder)
    assert machine
    assert machine.node == "n1"
    assert sorted(blocks.results(folder)) == [0, 1]


def test_slurm_may_be_silent_for_a_while(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Slurm("nodes", bench.pool)
    (bench.slurm / "silent").touch()
    with pytest.raises(InfraError, match="Unable to contact") as caught:
        own.jobs(["kdelta-a"])
    assert not isinstance(caught.value, PoolError)
    monkeypatch.setattr(slurm, "_LOST_S", -1.0)
    with pytest.raises(PoolError, match=r"does not answer.*when it is back: kdelta resume"):
        own.jobs(["kdelta-a"])


@pytest.mark.parametrize("line", ["!", "1|a!|RUN NING|n|", "x|kdelta-a!|RUNNING|n1|None"])
def test_listings_in_other_words_are_refused(bench: Bench, line: str) -> None:
    (bench.slurm / "jobs").write_text(f"{line}\n" if "|" in line else "!|x|\n")
    with pytest.raises(InfraError, match="in other words"):
        Slurm("nodes", bench.pool).jobs(["kdelta-a"])


def test_a_wrong_partition_is_told_before_there_is_a_run(bench: Bench) -> None:
    (bench.slurm / "refused").write_text("sbatch: error: invalid partition specified: nope")
    with pytest.raises(SpecError, match="no such block: invalid partition specified: nope; "):
        Slurm("nodes", replace(POOL, partition="nope"))


def test_without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InfraError, match="Slurm's sbatch is not installed here; give"):
        Slurm("nodes", POOL)


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize(
    ("text", "kernels", "said"),
    [
        ('[time]\nreplicate = "boot"\n', '"host"', "a job does not boot its node"),
        ("", '"host:6.1"', "host:6.1: a job does not boot its node into another"),
    ],
)
def test_what_a_job_cannot_do(text: str, kernels: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        SlurmTrials(Slurm("nodes", POOL), POOL, study(text, kernels=kernels), ORDER)


def test_a_run_is_gone_on_with_where_it_was_begun(bench: Bench) -> None:
    folder = bench.journal.folder
    elsewhere.note(folder, "nodes")
    elsewhere.note(folder, "nodes")
    for other in ("", "rack"):
        with pytest.raises(SpecError, match="its times are of the pool nodes; go on with the same"):
            elsewhere.note(folder, other)
    own = folder.parent / "own"
    (own / "trials/0000").mkdir(parents=True)
    elsewhere.note(own, "")
    (own / "trials/0000/result.json").touch()
    elsewhere.note(own, "")
    with pytest.raises(SpecError, match="its times are of this machine"):
        elsewhere.note(own, "nodes")


def test_the_command_of_a_job(bench: Bench, tmp_path: Path) -> None:
    whole, folder = bench.journal.record(), bench.block()
    blocks.make(folder, whole, whole.trials[:2], ORDER)
    ran = CliRunner().invoke(block_command, [str(folder)])
    assert isinstance(ran.exception, InfraError)
    assert "has another kdelta" in ran.exception.sentence()
    fake_slurm.complete(folder, "n1")
    assert CliRunner().invoke(block_command, [str(folder)]).exit_code == 0
    with pytest.raises(StoreError, match="not a block"):
        blocks.order_of(tmp_path)
    assert len(execution.identities()) == 3


@pytest.mark.parametrize(
    "line",
    [
        'partition = "a b"',
        'partition = "-p"',
        'constraint = "a\'; rm"',
        "minutes = 0",
        'shared = "relative"',
        'node = "n1\\nn2"',
        "wall = 1",
    ],
)
def test_pools_that_are_wrong(line: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(f'[pool.nodes]\nkind = "slurm"\n{line}\n')
    with pytest.raises(SpecError, match=r"lab\.toml"):
        pools.load(file)
    file.write_text('[pool.nodes]\nkind = "slurm"\nconstraint = "zen4&ib"\nnode = "n1"\n')
    assert pools.load(file).pool["nodes"] == SlurmPool(constraint="zen4&ib", node="n1")
