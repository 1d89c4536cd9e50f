# SPDX-License-Identifier: GPL-2.0-or-later
"""What the name of a column says: the words that people who measure kernels give their columns.

A name is cut into words ("CPU/mem", "meanLatency_us", "ns per page"), and the words are looked up.
Nothing here looks at values: that is `guess`, which knows the whole table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from kdelta.foreign import quantities
from kdelta.foreign.wordlists import vocabulary
from kdelta.metric import Assume, Better, Metric

_NAMES = 4096  # of columns and metrics, which are asked for once a row


class Part(StrEnum):
    """What a column can be of a row; the values are the words of a proposal."""

    ARM = "arm"
    ROLE = "role"
    DIMENSION = "dimension"
    POSITION = "position"
    ROUND = "round"
    BOOT = "boot"
    RUN = "run"
    STATUS = "status"
    FAILURE = "failure"
    METRIC = "metric"
    VALUE = "value"
    VALUES = "values"
    UNIT = "unit"
    BETTER = "better"
    COUNT = "n"
    FAILED = "failed"
    TIME = "time"
    STATISTIC = "statistic"
    DERIVED = "derived"
    STATE = "state"
    GATE = "gate"
    READ_BACK = "read back"
    NOTE = "note"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a name says.

    statistic: of a TIME or STATISTIC: "mean", "median", "sd", "cv", "cv_percent", "values", or
               another word ("min", "p99"); "" for the quantity itself.
    metric:    the name without the words of the statistic.
    unit, better: as far as the words tell; "" and None when they do not.
    fact:      of a READ_BACK: which.
    """

    part: Part
    statistic: str = ""
    metric: str = ""
    unit: str = ""
    better: Better | None = None
    fact: str = ""


# Best first: of two columns that could name the arm, the earlier does.
ARM = vocabulary(
    "arm point exact_version kernel_version kernel kernel_name kver version linux"
    " linux_version release kernel_release uname variant build tree branch tag"
    " point_label label image side series patchset treatment subject commit sha"
    " candidate flavour flavor git_ref revision rev"
)
_PLAIN: dict[Part, tuple[str, ...]] = {
    Part.ROLE: vocabulary("role leg"),
    Part.POSITION: vocabulary(
        "order step sequence seq index position slot place execution_order exec_order"
        " run_order timestamp time_stamp started started_at start_time when date datetime"
        " at_utc timestamp_utc started_at_utc time_of_day clock_time"
    ),
    Part.ROUND: vocabulary(
        "round repeat rep repetition iteration iter trial sample attempt pass try round_no"
        " rep_no replicate iter_no sample_no sample_id loop idx i run_no repeat_no run_index"
        " run_number turn nth trial_no observation obs lauf durchlauf wiederholung essai corrida"
    ),
    Part.BOOT: vocabulary(
        "boot boot_id bootid boot_index boot_no boot_nr boot_number reboot boot_idx"
        " power_cycle boot_label boot_seq vm_boot guest_boot bootvorgang neustart arranque avvio"
        " d\u00e9marrage demarrage red\u00e9marrage redemarrage reinicio"
    ),
    Part.RUN: vocabulary(
        "run run_id runid id uuid job_id job run_name run_uuid log logfile file filename"
    ),
    Part.STATUS: vocabulary("status outcome result verdict_status exit_status run_status state"),
    Part.FAILURE: vocabulary(
        "failure_reason failure_reasons reason error err why fail_reason error_message"
        " failure message"
    ),
    Part.METRIC: vocabulary(
        "metric name_of_metric measure measurement metric_name quantity counter indicator"
        " stat statistic field"
    ),
    Part.VALUE: vocabulary(
        "value val figure reading measured number result_value mean_value avg_value wert"
        " messwert valeur valor"
    ),
    Part.VALUES: vocabulary(
        "values samples raw raw_values data all_values points readings runs_list list times"
        " sample_values observations measurements"
    ),
    Part.UNIT: vocabulary("unit units uom"),
    Part.BETTER: vocabulary("better direction dir good goodness polarity better_is"),
    Part.COUNT: vocabulary(
        "n runs ok_runs run_count count nsamples n_samples num_samples sample_count reps"
        " repetitions repeats boots n_boots num_boots nruns n_runs num_runs valid_runs"
        " good_runs cnt boot_count rounds_ok trials ok_count"
    ),
    Part.FAILED: vocabulary(
        "failed_runs failed nfailed n_failed num_failed failures failed_count lost"
    ),
    Part.NOTE: vocabulary(
        "note notes comment comments remark remarks description desc classification"
        " decision verdict conclusion interpretation run_status_note stable robust_stable"
        " semantic_warning reliable semantic_warning_reasons comparison_reliable"
        " comparison_robust_reliable experiment_note annotation todo author classify"
        " significant confidence reliability star weekday day_of_week dow wochentag"
    ),
}
_LAST = (Part.BOOT, Part.ROUND, Part.RUN, Part.STATUS, Part.METRIC, Part.VALUE, Part.UNIT)
_DIMENSIONS = vocabulary(
    "environment env cpu cpus ncpu ncpus nr_cpu nr_cpus vcpu vcpus guest_cpus guest_cpu smp core"
    " cores thread threads nthreads nr_threads num_threads worker workers nr_workers jobs"
    " njobs nr_jobs tasks nr_tasks procs nprocs processes nr_processes clients memory"
    " memory_mib memory_gib mem mem_mib mem_gib mem_mb mem_gb guest_memory_mib ram thp"
    " thp_mode hugepages hugepage huge scenario case subcase test testcase test_case"
    " benchmark bench workload suite op operation syscall path phase stage mode"
    " page_size pagesize page_kb size size_kb size_mb size_mib bytes length block_size"
    " bs chunk mapping_size region_size depth iodepth batch batch_size node numa nodes"
    " nr_nodes fs filesystem device disk host hostname machine platform cpu_model arch"
    " config configuration preempt preempt_model governor page_type folio_order folio"
    " pages nr_pages npages backend cluster site group set access pattern topology"
    " distance policy flag flags variant_of setting settings hypervisor compiler shared"
    " cmdline kernel_cmdline boot_args bootargs command_line microcode turbo smt"
    " distinct watchers mitigations cpu_mem smp_mem lab old_node new_node bucket"
)
_BUCKETS = {"bucket", "buckets", "bin", "bins"}  # of a histogram: bucket_us is no time that passed
_READ_BACK = {
    "requested_cpu": "requested_cpus",
    "requested_cpus": "requested_cpus",
    "requested_vcpus": "requested_cpus",
    "seen_cpu": "seen_cpus",
    "seen_cpus": "seen_cpus",
    "online_cpus": "seen_cpus",
    "observed_cpus": "seen_cpus",
    "clocksource": "clocksource",
    "clock_source": "clocksource",
    "current_clocksource": "clocksource",
    "function_profile_enabled": "coverage",
    "coverage": "coverage",
    "coverage_enabled": "coverage",
    "tracing": "coverage",
    "tracing_on": "coverage",
    "gcov": "coverage",
    "smp_enabled": "smp",
    "returncode": "returncode",
    "return_code": "returncode",
    "exit_code": "returncode",
    "exitcode": "returncode",
    "rc": "returncode",
    "retcode": "returncode",
    "exit": "returncode",
}
_PERCENTILES = vocabulary("percentile percentiles quantile quantiles pctl pctile ptile")
_PERCENTILE = re.compile(
    r"[pq]_?\d{1,3}(?:\.\d{1,4})?|\d{1,3}(?:\.\d{1,4})?(?:(?:th|st|nd|rd)(?: percentile)?|\s?%)",
    re.IGNORECASE | re.ASCII,
)
_CENTRES = {"mean": "mean", "avg": "mean", "average": "mean", "amean": "mean", "median": "median"}
_CENTRES |= {"med": "median", "p50": "median", "values": "values", "samples": "values"}
_CENTRES |= {"middle": "median", "mu": "mean"}
_SPREADS = {"sd": "sd", "stdev": "sd", "stddev": "sd", "std": "sd", "sigma": "sd", "cv": "cv"}
_SPREADS |= {"\N{GREEK SMALL LETTER SIGMA}": "sd"}
_SPREADS |= {"cov": "cv", "rsd": "cv", "coeffvar": "cv"}
_OTHER = vocabulary(
    "min max minimum maximum mad var variance iqr ci se sem err stderr q1 q3 p1 p5 p10 p25 p75 p90"
    " p95 p99 p999 best worst trimmed geomean hmean skew kurtosis ci95 ci99 quantile percentile"
)
# Only as the last word: first_touch_ns and walk_page_range_us are quantities.
_OTHER_LAST = vocabulary("low high lower upper lo hi first last range spread mode sum")
_DERIVED = vocabulary(
    "delta diff pct percent ratio speedup slowdown vs versus drift pvalue p_value normalized"
    " normalised log10 log2 ln"
)
# Only without a unit: change_pte_range_us is a quantity.
_DERIVED_BARE = vocabulary(
    "difference change changed baseline gap improvement relative rel gain recovery closed faster"
    " slower share points p fold against increase decrease loss regression ipc cpi mpki"
)
_STATE = re.compile(
    r"anon_?huge|page_kb\Z|page_kb_|thp_?eligible|expected_match|unexpected_results|semantic|vmas(?:_avg)?\Z"
    r"|pagemap|kpf_|compound_|soft_dirty|(?:^|_)present\Z|(?:target|other|failed|queried)_pages"
    r"|node_required|noapic|(?:huge|thp|swap|rss|pss|dirty|mapped|shmem|file_pmd)\w*_kb\Z"
)
_MOST_USED = re.compile(r"(?:max|peak|maximum|highest)_?(?:rss|pss|swap|resident)(?:_|\Z)|vmhwm")
_FINE_GATE = re.compile(
    r"(?:.+_)?(?:ok|match|matched|matches|as_expected|verified|correct|sane"
    r"|success|succeeded|passed|valid|completed|finished)\Z"
)
_COUNT_GATE = re.compile(
    r"(?:.+_)?(?:unexpected(?:_\w+)?|failed_pages|mismatch(?:es)?|(?:semantic|check|state|audit)_"
    r"(?:failures|errors|violations)|failed_(?:units|checks|ops|calls)|errors|violations|bad_steps"
    r"|corruptions?|checks_failed)(?:_sum|_mean)?\Z"
)
# start_s, end_time_ms: when a run was, on some clock, and not how long.
_MOMENTS = vocabulary("start begin began started end ended stop stopped finish finished")
_OF_MOMENTS = {*_MOMENTS, "time", "at", "t", "clock", *quantities.TIME_UNITS}
_GOOD = vocabulary("yes true y ok pass passed good done success succeeded complete completed valid")
_SCATTER = re.compile(r"\N{PLUS-MINUS SIGN}|\+/?-")
_COUNTED = vocabulary("count cnt nr num nobs")
_PATH = re.compile(r"(?<=[a-z_])\.(?=[\w])")
_SPLIT = re.compile(r"[^\w%.]+|_")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")


@lru_cache(maxsize=_NAMES)
def words(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case; "/" between two is "per", "%" is "pct"."""
    text = _CAMEL.sub("_", name.strip())
    # "CPU/mem" is two things, "ns/page" a quotient: the first word of a quotient is a unit.
    text = re.sub(r"(?<=\w)/(?=\w)", " per ", text).replace("%", " pct ").lower()
    text = re.sub(r"(?<![a-z])(ns|us|ms|cycles)(?=per)", r"\1 ", text)
    return tuple(word for word in _SPLIT.split(text) if word.strip("."))


def is_percentile(text: str) -> bool:
    """True for a cell such as p99, 99.9th or 50 %."""
    return bool(_PERCENTILE.fullmatch(text))


def names_percentiles(name: str) -> int:
    """2 for a column called percentile or the like, 1 for one that may be (pct), else 0."""
    joined = "_".join(word for word in words(name) if word not in ("latency", "lat"))
    return 2 if joined in _PERCENTILES else int(joined in ("pct", "percent", "q", "perc"))


def is_state(name: str) -> bool:
    """True for a field of an audit: page state, results of the calls, integrity."""
    joined = "_".join(words(name))
    used = _MOST_USED.match(joined)  # of memory, in a run: another in each
    return bool(_STATE.search(joined)) and not joined.endswith(("_mean", "_sum")) and not used


def is_gate(name: str) -> bool:
    """True for a result of a run that must be zero, or true, for its times to count."""
    joined = "_".join(words(name))
    return _fine(joined) or bool(_COUNT_GATE.match(joined))


def _fine(joined: str) -> bool:
    return joined not in _PLAIN[Part.STATUS] and bool(_FINE_GATE.match(joined))


def _positive(word: str) -> bool:
    try:
        return float(word) > 0
    except ValueError:
        return False


def fails(name: str, text: str) -> bool:
    """True when what a gate says of a run means that the run failed."""
    word = text.strip().lower()
    if not word:
        return False
    if _fine("_".join(words(name))):
        return word not in _GOOD and not _positive(word)
    try:
        return float(word) != 0
    except ValueError:
        return word in ("yes", "true", "y", "fail", "failed", "bad")


def never_good(name: str, texts: Sequence[str]) -> bool:
    """True for a column called ok of which no cell, of words, says that a run was good."""
    fine = _fine("_".join(words(name)))
    return fine and bool(texts) and all(fails(name, t) and t[:1] not in "-0" for t in texts)


@lru_cache(maxsize=_NAMES)
def said(name: str) -> Said:
    """What the name of a column says."""
    found = words(name)
    if _SCATTER.search(name):
        return Said(part=Part.STATISTIC, statistic="err")
    joined = "_".join(found)
    if not found:
        return Said(part=Part.UNKNOWN)
    if joined in _READ_BACK:
        return Said(part=Part.READ_BACK, fact=_READ_BACK[joined])
    for part, names in _PLAIN.items():
        if joined in names:
            return Said(part=part)
    if joined in ARM:
        return Said(part=Part.ARM)
    if joined in _DIMENSIONS or _BUCKETS & {*found} or (len(found) == 3 and _two_dimensions(name)):
        return Said(part=Part.DIMENSION)
    if is_gate(name):
        return Said(part=Part.GATE)
    if found[-1] in ("unit", "units"):
        return Said(part=Part.UNIT)
    return Said(part=Part.STATE) if is_state(name) else _measured(name, found)


def _measured(name: str, found: tuple[str, ...]) -> Said:
    """A quantity; of a path that is none (run boot, result unit) what its last word says."""
    measured = _quantity(found)
    if measured.part is Part.UNKNOWN and _PATH.search(name) and name == name.lower():
        # read.clat_ns.mean, as pandas calls what lay within each other; classes have capitals.
        return _quantity(words(_PATH.sub(" ", name)))
    if measured.part is not Part.UNKNOWN or " " not in name.strip():
        return measured
    last = said(name.rsplit(maxsplit=1)[-1])
    return last if last.part in _LAST else measured


def _two_dimensions(name: str) -> bool:
    """ "CPU/mem": two dimensions in one column."""
    parts = [part.strip().lower() for part in re.split(r"[/x,+]", name)]
    return len(parts) == 2 and all(part in _DIMENSIONS for part in parts)


def dimensions_in(name: str) -> tuple[str, ...]:
    """The names of the dimensions that a column such as "CPU/mem" holds; else itself."""
    parts = [part.strip().lower() for part in re.split(r"[/x,+]", name)]
    if len(parts) == 2 and all(part in _DIMENSIONS for part in parts):
        return tuple("memory" if part == "mem" else part.removesuffix("s") for part in parts)
    joined = "_".join(words(name))
    return ("cpu", "memory") if joined in ("cpu_mem", "smp_mem") else (name,)


def _quantity(found: tuple[str, ...]) -> Said:
    """A quantity, or a statistic of one: mean_x_ns, x_ns_p99, "cv (%)", delta_pct."""
    rest, statistic = _stripped(found)
    unit, better = quantities.unit_of(rest)
    if (
        unit in quantities.TIME_UNITS.values()
        and set(rest) <= _OF_MOMENTS
        and {*rest} & {*_MOMENTS}
    ):
        return Said(part=Part.POSITION if rest[0] in _MOMENTS[:4] else Part.NOTE)
    if len(found) > 1 and found[-1] in _COUNTED and not unit:
        return Said(part=Part.UNKNOWN)  # latency count: how many, and not how long
    better = quantities.stated(found) or (
        None if quantities.contradicts(rest, unit, better) else better
    )
    metric = "_".join(rest)
    if statistic in ("", "mean", "median", "values"):
        bare = () if unit else _DERIVED_BARE
        if any(word in (*_DERIVED, *bare) for word in rest):
            return Said(part=Part.DERIVED)
        if better is not None:
            return Said(
                part=Part.TIME, statistic=statistic, metric=metric, unit=unit, better=better
            )
        if statistic:
            return Said(part=Part.STATISTIC, statistic=statistic, metric=metric)
        return Said(part=Part.UNKNOWN)
    return Said(part=Part.STATISTIC, statistic=statistic, metric=metric, unit=unit, better=better)


def unstatistical(name: str) -> Said:
    """What a name says of which no word is that of a statistic: q1_s is of a query."""
    unit, better = quantities.unit_of(words(name))
    part = Part.TIME if better else Part.UNKNOWN
    return Said(part=part, metric="_".join(words(name)), unit=unit, better=better)


def _stripped(found: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """The words without those of a statistic, and which it is."""
    rest = [word for word in found if word not in _SPREADS]
    if len(rest) < len(found):
        which = next(_SPREADS[word] for word in found if word in _SPREADS)
        percent = any(word in ("pct", "percent") for word in rest)
        rest = [word for word in rest if word not in ("pct", "percent", "mean", "value", "rel")]
        return tuple(rest), "cv_percent" if which == "cv" and percent else which
    other = next(
        (
            word
            for at, word in enumerate(found)
            if word in _OTHER and not (word == "min" and at and found[at - 1] == "per")
        ),
        "",
    )
    other = other or (found[-1] if found[-1] in _OTHER_LAST else "")
    if other:
        return tuple(word for word in found if word != other), other
    for at in (0, -1):
        if found[at] in _CENTRES and len(found) > 1:
            return (found[1:] if at == 0 else found[:-1]), _CENTRES[found[at]]
    if len(found) == 1 and found[0] in _CENTRES:
        return (), _CENTRES[found[0]]
    if len(found) > 1 and found[-1] == "value" and found[0] not in _DERIVED:
        return found[:-1], "mean"
    return found, ""


def metric_of(name: str) -> Metric | None:
    """The metric of that name where the name itself tells unit and direction; else None.

    Statistics (stdev_x_ns, x_p99_us) and figures made of two arms (x_vs_y_pct) are none; a name
    that ends in "avg" or "mean" is what the program printed of one run, and is one.
    """
    found = said(name)
    if found.part is not Part.TIME or found.better is None or is_state(name):
        return None
    return Metric(name=name, unit=found.unit, better=found.better, assume=Assume.NOTHING)


def arm_rank(name: str) -> int:
    """How well a name says that its column names the arm; the lowest says it best."""
    return ARM.index("_".join(words(name)))


def names_a_setting(name: str) -> bool:
    """True when a word of a name is one that dimensions are called by."""
    return any(word in _DIMENSIONS for word in words(name))
