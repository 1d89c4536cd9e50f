# SPDX-License-Identifier: GPL-2.0-or-later
"""More sets of foreign_sets: logs, and what programs print or write, often a run in a file."""

from __future__ import annotations

from foreign_sets import ARMS, BOOTS, Set, plain_set

# Logs.


@plain_set
def _key_value_files(found: Set) -> None:
    for arm, boot, value in found.runs():
        found.files[f"{arm}/run-{boot}.log"] = (
            f"kernel: {arm}\nboot: {boot}\nmprotect_ns_per_page: {value}\nstatus: ok\n"
        )
    found.is_true()


@plain_set
def _equal_signs_and_arms_in_names(found: Set) -> None:
    for arm, boot, value in found.runs():
        found.files[f"{arm}-{boot}.txt"] = f"# walk\nlatency_us={value}\n"
    found.is_true()


@plain_set
def _pairs_in_lines(found: Set) -> None:
    found.files["all.log"] = "".join(
        f"kernel={arm} boot={boot} ns_per_page={value}\n" for arm, boot, value in found.runs()
    )
    found.is_true()


@plain_set
def _yaml_list(found: Set) -> None:
    found.files["r.yaml"] = "---\n" + "".join(
        f"- kernel: {arm}\n  boot: {boot}\n  lat_ns: {value}\n" for arm, boot, value in found.runs()
    )
    found.is_true()


@plain_set
def _stress_ng_yaml(found: Set) -> None:
    for arm, boot, value in found.runs():
        found.files[f"{arm}/run{boot}.yaml"] = (
            f"---\nsystem-info:\n      run-by: root\n      release: {arm}\n\nmetrics:\n"
            f"    - stressor: mmap\n      bogo-ops: {int(100 * value)}\n"
            f"      bogo-ops-per-second-real-time: {value}\n\n...\n"
        )
    found.is_true("higher")


@plain_set
def _sysbench(found: Set) -> None:
    for arm, boot, value in found.runs():
        found.files[f"{arm}-{boot}.log"] = (
            "sysbench 1.0.20 (using bundled LuaJIT 2.1)\n\nRunning the test with:\n"
            "Number of threads: 4\n\nGeneral statistics:\n    total number of events:    90000\n\n"
            f"Latency (ms):\n     min:     0.10\n     avg:     {value}\n     max:     9999.1\n"
            "     95th percentile:    0.13\n"
        )
    found.is_true()


@plain_set
def _perf_bench(found: Set) -> None:
    for arm, boot, value in found.runs():
        found.files[f"{arm}/pipe{boot}.txt"] = (
            "# Running 'sched/pipe' benchmark:\n# Executed 1000000 pipe operations\n\n"
            f"       {value} usecs/op\n"
        )
    found.is_true()


# What programs print.


@plain_set
def _perf_stat_for_the_eye(found: Set) -> None:
    for arm, values in found.levels.items():
        mean = round(sum(values) / BOOTS, 2)
        found.files[f"{arm}.txt"] = (
            "\n Performance counter stats for './walk' (9 runs):\n\n"
            f"   {mean * 1000:,.2f} msec task-clock   #  0.999 CPUs utilized  ( +-  0.52% )\n"
            "     3,000,000,000      branches        #  3.000 G/sec          ( +-  0.10% )\n\n"
        )
        found.truth[arm, frozenset(), "task-clock lower"] = (round(mean * 1000, 2),)


@plain_set
def _perf_stat_intervals(found: Set) -> None:
    """So many cycles in each second: told, and of no direction."""
    for arm, values in found.levels.items():
        found.files[f"{arm}.csv"] = "".join(
            f"     {at}.000123,{value},,cycles,1000,100.00,,\n"
            for at, value in enumerate(values, start=1)
        )
    found.is_true("none")


@plain_set
def _mmtests_compared(found: Set) -> None:
    old, new = (round(sum(values) / BOOTS, 2) for values in found.levels.values())
    found.files["kernbench.txt"] = (
        "                        6.16.12               6.17.3\n"
        "                        vanilla              patched\n"
        f"Min       elsp-2   1.00 (   0.00%)   1.10 ( -10.00%)\n"
        f"Amean     elsp-2   {old} (   0.00%)   {new} * -10.00%*\n"
        "Stddev    elsp-2   1.20 (   0.00%)   1.30 (  -8.33%)\n"
    )
    for arm, mean in (("6.16.12-vanilla", old), ("6.17.3-patched", new)):
        found.truth[arm, frozenset(), "elsp-2 lower"] = (mean,)


@plain_set
def _stress_ng_lines(found: Set) -> None:
    for arm, boot, value in found.runs():
        found.files[f"{arm}/run{boot}.txt"] = (
            "stress-ng: info:  [77] setting to a 10 secs run per stressor\n"
            "stress-ng: metrc: [77] stressor  bogo ops real time  usr time  sys time   bogo ops/s\n"
            f"stress-ng: metrc: [77] mmap  100000  10.00  1.20  8.80  {value}  {value}\n"
        )
    found.is_true("higher")
    doubled = [(key, values) for key, values in found.truth.items()]
    found.truth |= {(arm, rest, "n higher"): values for (arm, rest, _), values in doubled}


@plain_set
def _will_it_scale(found: Set) -> None:
    for arm, values in found.levels.items():
        rows = [f"{at},{value},50.1,{value + 1},51.0,1" for at, value in enumerate(values, start=1)]
        head = "tasks,processes,processes_idle,threads,threads_idle,linear"
        found.files[f"{arm}/mmap1.csv"] = "\n".join((head, *rows)) + "\n"
        for at, value in enumerate(values, start=1):
            found.truth[arm, frozenset({str(at)}), "processes higher"] = (round(value, 4),)
            found.truth[arm, frozenset({str(at)}), "threads higher"] = (round(value + 1, 4),)


@plain_set
def _lmbench_summary(found: Set) -> None:
    head = (
        "Processor, Processes - times in microseconds - smaller is better\n"
        + "-" * 60
        + "\nHost                 OS  Mhz null      fork\n"
        "                             call I/O  proc\n"
        "--------- ------------- ---- ---- ---- -----\n"
    )
    rows = []
    for at, arm in enumerate(ARMS):
        rows.append(f"box1      Linux {arm:<7} 3000 0.04 0.0{7 + at} {95 + at}.1\n")
        for name, value in (("null call", 0.04), ("I/O", (7 + at) / 100), ("fork proc", 95.1 + at)):
            key = (f"Linux {arm}", frozenset[str](), f"{name} lower")
            found.truth[key] = (round(value, 4),)
    found.files["summary.txt"] = f"\n   L M B E N C H  3 . 0\n\n{head}{''.join(rows)}"


@plain_set
def _samples_of_each_boot_in_a_file(found: Set) -> None:
    for arm, boot, value in found.runs():
        found.files[f"{arm}/boot{boot}.csv"] = f"ns\n{value}\n{value}\n"
        found.levels[arm][boot - 1] = value
    found.is_true()
    found.truth = {key: tuple(sorted((*v, *v))) for key, v in found.truth.items()}


@plain_set
def _arm_and_boot_in_the_name_of_the_file(found: Set) -> None:
    for arm, boot, value in found.runs():
        found.files[f"{arm}-boot{boot}.csv"] = f"latency_us\n{value}\n"
    found.is_true()
