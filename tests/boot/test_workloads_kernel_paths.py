# SPDX-License-Identifier: GPL-2.0-or-later
"""flistxattr, inotify_churn, migrate_pages, mseal in guests: they hold, fail and are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from boot import lab
from boot.lab import Machine, betrayed, facts, run_scenario
from kdelta.sample import Outcome
from kdelta.workload import load, parse_reference

pytestmark = pytest.mark.boot

FOUR_CPUS = 4
MIGRATE = "migrate_pages:migrate_pages_4m_2nodes"


@pytest.fixture(scope="module")
def four_cpus() -> Machine:
    """Four CPUs."""
    return lab.machine("6.17", cpus=FOUR_CPUS)


@pytest.mark.parametrize(
    ("reference", "least"),
    [
        # What one operation cannot do without: a system call, or two, and its own loop.
        ("flistxattr:tmpfs_64_names", 64 * 50), ("mseal:already_sealed_64_vmas", 64 * 50),
        ("inotify_churn:distinct_1", 1000), ("inotify_churn:shared_1", 1000),
    ],
)  # fmt: skip
def test_a_workload_runs_and_its_contract_holds(
    reference: str, least: int, machine: Machine, tmp_path: Path
) -> None:
    result = run_scenario(machine, reference, tmp_path / "trial")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    (phase,) = result.exact.phases
    assert min(phase.kernel) > least * phase.operations


def test_pages_move_between_two_nodes_and_back(machine: Machine, tmp_path: Path) -> None:
    result = run_scenario(machine, MIGRATE, tmp_path / "trial", nodes=2)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert [phase.phase for phase in result.exact.phases] == ["move", "back"]
    before, during, after = (facts(result, when) for when in ("before", "during", "after"))
    assert before["node0_pages"] == after["node0_pages"] == "1024"
    # Ten iterations, two calls each; the program's own pages come along.
    assert int(during["pgmigrate_success"]) > 20 * 1024
    (metric,) = result.metrics
    assert metric.value == int(during["pgmigrate_success"]) / 20


def test_workers_are_pinned_each_to_its_own_cpu(four_cpus: Machine) -> None:
    """Scenarios of several workers are only timed; here is that they do what they say."""
    _, scenario = parse_reference("inotify_churn:distinct_4")
    program = load("inotify_churn").program
    counted = four_cpus.count(program, *scenario.arguments(iterations=2, warmup=1))
    assert counted.status == 0, counted.printed
    lines = counted.printed.splitlines()
    for when in ("before", "after"):
        cpus = {
            line.split()[3]
            for line in lines
            if line.startswith(f"state {when} worker") and line.split()[2].endswith("_cpu")
        }
        assert cpus == {str(cpu) for cpu in range(FOUR_CPUS)}
        assert f"state {when} inodes_watched 16 16" in lines
        assert f"state {when} workers_fifo 4 same" in lines


@pytest.mark.parametrize(
    ("scenario", "honest", "broken", "fact"),
    [
        ("flistxattr:tmpfs_4_names", "name_of(name, i);\n\t\tif (!fsetxattr",
         "name_of(name, i + 1);\n\t\tif (!fsetxattr", "names_listed before is 3, not 4"),
        ("mseal:already_sealed_64_vmas", "if (syscall(__NR_mseal, start, s->bytes, 0)) {",
         "if (syscall(__NR_mseal, start, s->bytes - PIECE, 0)) {",
         "sealed_vmas before is 63, not 64"),
        ("inotify_churn:distinct_1",
         "for (unsigned int i = 0; i < GROUPS; i++)\n\t\tif (inotify_rm_watch",
         "for (unsigned int i = 0; i < GROUPS - 1; i++)\n\t\tif (inotify_rm_watch",
         "watches_left before is 1, not 0"),
        ("inotify_churn:shared_1", "if (setup.shared && inotify_add_watch(setup.keeper",
         "if (!setup.shared && inotify_add_watch(setup.keeper", "watches_kept before is 0, not 1"),
        (MIGRATE, "KD_WINDOW(BACK, migrate(1, 0));",  # left behind
         "KD_WINDOW(BACK, migrate(0, 1));", "node0_pages after is 0, not 1024"),
        (MIGRATE, "kd_fault_in(start, s->bytes, false);", "kd_fault_in(start, s->bytes, true);",
         "thp_pages before is 1024, not 0"),
    ],
)  # fmt: skip
def test_a_broken_contract_is_invalid(
    scenario: str, honest: str, broken: str, fact: str, machine: Machine, tmp_path: Path
) -> None:
    nodes = 2 if scenario == MIGRATE else 1
    betrayed(machine, scenario, honest, broken, fact, folder=tmp_path, nodes=nodes)


@pytest.mark.parametrize(
    ("release", "reference", "lacks"),
    [
        ("6.17", MIGRATE, "one NUMA node only"),
        ("6.17", "inotify_churn:shared_4", "4 workers need as many CPUs, there are 1"),
        ("6.1", "mseal:already_sealed_noop", "no mseal(): it came with Linux 6.10"),
        ("6.1", "flistxattr:tmpfs_1_name", "no user.* attributes: they need Linux 6.6"),
    ],
)
def test_a_machine_or_a_kernel_without_what_it_takes_is_a_skip(
    release: str, reference: str, lacks: str, tmp_path: Path
) -> None:
    result = run_scenario(lab.machine(release), reference, tmp_path)
    assert result.outcome is Outcome.SKIP
    assert lacks in result.reason
