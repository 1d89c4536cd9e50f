# SPDX-License-Identifier: GPL-2.0-or-later
"""Shapes of several files: what tells arms, boots and settings apart is in their names."""

from __future__ import annotations

from foreign_shapes import Maker, Shape


def percentiles_in_files(shape: Shape) -> None:
    for arm in shape.arms:
        rows = [
            (run, level, shape.value(arm, level, 50.0 * at))
            for run in range(shape.runs)
            for at, level in enumerate(("50.0", "99.0", "99.9"), start=1)
        ]
        shape.table("run,pct,us", rows, f"{arm}.csv")


def folders_of_arms(shape: Shape) -> None:
    for arm in shape.arms:
        for test, level in (("mmap", 100.0), ("fork", 900.0)):
            rows = [(run, shape.value(arm, test, level)) for run in range(shape.runs)]
            shape.table("boot,ns", rows, f"{arm}/{test}.csv")


def files_of_arms_with_functions(shape: Shape) -> None:
    """A column called kernel, or variant, that holds what was called in each kernel."""
    name = shape.rng.choice(("kernel", "variant"))
    for arm in shape.arms:
        rows = [
            (test, run, shape.value(arm, test, level))
            for test, level in (("memcpy", 100.0), ("memset", 40.0))
            for run in range(shape.runs)
        ]
        shape.table(f"{name},run,ns", rows, f"{arm}.csv")


def files_of_arms_with_words(shape: Shape) -> None:
    for arm in shape.arms:
        rows = [
            ("fio-3.36", job, run, shape.value(arm, job, level))
            for job, level in (("random", 100.0), ("linear", 300.0))
            for run in range(shape.runs)
        ]
        shape.table("fio_version,jobname,run,lat_us", rows, f"{arm}.csv")


def files_of_arms_with_one_version(shape: Shape) -> None:
    for arm in shape.arms:
        rows = [("3.36", run, shape.value(arm, "", 100.0)) for run in range(shape.runs)]
        shape.table("version,run,ns", rows, f"{arm}.csv")


def files_of_boots(shape: Shape) -> None:
    for boot in range(1, 6):
        rows = [(arm, run, shape.value(arm, "", 100.0)) for arm in shape.arms for run in range(4)]
        shape.table("kernel,iter,ns", rows, f"boot{boot}.csv")


def candidates_in_files(shape: Shape) -> None:
    shape.arms = ("6.16-rc1", "6.16-rc2", "6.16-rc3")
    for arm in shape.arms:
        rows = [(run, shape.value(arm, "", 100.0)) for run in range(shape.runs)]
        shape.table("boot,ns", rows, f"{arm}.csv")


def numbers_in_folders(shape: Shape) -> None:
    for arm in shape.arms:
        for threads in (1, 2, 3, 4):
            rows = [(run, shape.value(arm, threads, 100.0 * threads)) for run in range(shape.runs)]
            shape.table("boot,ns", rows, f"{arm}/t-{threads}.csv")


def names_of_arms_and_settings(shape: Shape) -> None:
    if shape.rng.random() < 0.5:
        shape.arms = ("old", "new")
    form = shape.rng.choice(("{arm}-{setting}.csv", "{setting}_{arm}.csv"))
    for arm in shape.arms:
        for setting, level in (("4threads", 100.0), ("16threads", 900.0), ("mmap", 30.0)):
            rows = [(run, shape.value(arm, setting, level)) for run in range(shape.runs)]
            shape.table("boot,ns", rows, form.format(arm=arm, setting=setting))


READ: tuple[Maker, ...] = (
    percentiles_in_files,
    folders_of_arms,
    files_of_arms_with_words,
    files_of_arms_with_one_version,
    files_of_boots,
    candidates_in_files,
    names_of_arms_and_settings,
)
ASKED: tuple[Maker, ...] = (
    files_of_arms_with_functions,
    numbers_in_folders,
)
