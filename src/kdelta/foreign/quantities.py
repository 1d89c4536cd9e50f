# SPDX-License-Identifier: GPL-2.0-or-later
"""Unit and direction as the words of a quantity tell them: ns per page, mb s, requests per s."""

from __future__ import annotations

from collections.abc import Sequence

from kdelta.foreign.wordlists import vocabulary
from kdelta.metric import Better

TIME_UNITS = {
    word: unit
    for unit, words in {
        "ns": "ns nsec nsecs nanosecond nanoseconds nanos",
        "us": "us usec usecs microsecond microseconds micros",
        "ms": "ms msec msecs millisecond milliseconds millis",
        "s": "s sec secs second seconds sekunde sekunden seconde secondes segundo segundos",
        "min": "minute minutes mins",
        "h": "hour hours hrs",
    }.items()
    for word in words.split()
}
TIME_UNITS |= {"\N{MICRO SIGN}s": "us", "\N{GREEK SMALL LETTER MU}s": "us"}
_COSTS = dict.fromkeys(("joule", "joules"), "J") | {
    "cycles": "cycles",
    "instructions": "instructions",
    "insns": "instructions",
}
_JOULES = {"j": "J", "mj": "mJ", "uj": "uJ", "kj": "kJ"}  # pkg_j; j alone is an index
_FAST = vocabulary(
    "iops tps qps rps mbps gbps mibps gibps kbps throughput bandwidth bw score tpmc nopm fps mips"
    " pps kpps mpps thrpt thruput tput xput"
    " mflops gflops"
)
_SLOW = vocabulary(
    "latency lat dur elapsed duration runtime walltime wall cost wallclock delay overhead time"
)
_MORE = vocabulary("higher more bigger larger greater")
_LESS = vocabulary("lower less smaller fewer shorter")
_PERIODS = vocabulary("time cycle cycles")
_LONG = {"min": "min", "minute": "min", "minutes": "min", "h": "h", "hour": "h", "hours": "h"}
# So many a second are not better for being many.
_UNWANTED = vocabulary(
    "error errors err fault faults pagefaults miss misses drop drops dropped lost loss retransmit"
    " retransmits retransmissions retry retries timeout timeouts stall stalls interrupt interrupts"
    " irq irqs switch switches migration migrations fail fails failure failures failed kill kills"
    " killed overrun overruns collision collisions swapin swapins swapout swapouts refault refaults"
    " majfault majfaults minfault minfaults reclaim reclaims reclaimed conflict conflicts abort"
    " aborts bounce bounces shootdowns violations"
)
# Of these a longer time is no worse, or was set.
_WANTED = vocabulary(
    "saved uptime think sleep mtbf remaining left failure timeout interval period lifetime battery"
)
_EACH = vocabulary("cpu core thread node socket worker client vcpu")
_AMOUNTS = ("mb", "gb", "kb", "mib", "gib", "ops", "op", "requests", "req")


def stated(found: Sequence[str]) -> Better | None:
    """Which direction a name says is better: score (lower is better)."""
    if "better" not in found:
        return None
    ends = {Better.HIGHER: _MORE, Better.LOWER: _LESS}
    said = [end for end, listed in ends.items() if set(found) & {*listed}]
    return said[0] if len(said) == 1 else None


def contradicts(rest: Sequence[str], unit: str, better: Better | None) -> bool:
    """True where words of a quantity tell against the direction that others of them tell.

    Errors a second, time that was saved, throughput in ns, a score of latency: the reader is asked.
    """
    told = {*rest}
    if better is Better.HIGHER:
        slow = "/" not in unit and told & {*_SLOW, *TIME_UNITS}
        return bool(told & {*_UNWANTED} or slow)
    if better is Better.LOWER:
        idle = "idle" in told and told <= {"idle", "cpu", *_SLOW, *TIME_UNITS}
        return bool(told & {*_WANTED, *_FAST}) or idle or ("per" in told and rest[-1] in _PERIODS)
    return False


def unit_of(rest: Sequence[str]) -> tuple[str, Better | None]:
    """Unit and direction of a quantity; ("", None) when its words tell neither."""
    for find in (_quotient, _with_time):
        if found := find(rest):
            return found
    if len(rest) > 1 and rest[-1] in _JOULES:
        return _JOULES[rest[-1]], Better.LOWER
    for word in rest:
        if word in _FAST:
            return word if word not in ("throughput", "bandwidth", "bw") else "", Better.HIGHER
        if word in _COSTS:
            return _COSTS[word], Better.LOWER
    return "", Better.LOWER if any(word in _SLOW for word in rest) else None


def _quotient(rest: Sequence[str]) -> tuple[str, Better] | None:
    """ns per page, MB per s."""
    if len(rest) > 2 and rest[-2] == "pro" and rest[-1] in TIME_UNITS:
        rest = (*rest[:-2], "per", rest[-1])  # Operationen pro Sekunde
    if "per" not in rest[1:-1]:
        return None
    at = len(rest) - 1 - list(reversed(rest)).index("per")
    left, right = rest[:at], rest[at + 1 :]
    of_each = len(right) > 1 and right[0] in _EACH and right[-1] in TIME_UNITS
    if of_each and not {*left} & {*_SLOW, *TIME_UNITS, *_COSTS}:
        return f"{left[-1]}/{right[0]}-{TIME_UNITS[right[-1]]}", Better.HIGHER  # mb per cpu s
    period = _LONG.get(right[0]) or TIME_UNITS.get(right[0])
    if period and not (period != "s" and left[-1] in TIME_UNITS):
        return f"{left[-1]}/{period}", Better.HIGHER
    alone = [word for word in left if word != "s"] or left  # s per kernel; but: requests per page
    units = [TIME_UNITS.get(word) or _COSTS.get(word) for word in reversed(alone)]
    unit = next((unit for unit in units if unit), None)
    return (f"{unit}/{'-'.join(right)}", Better.LOWER) if unit else None


def _with_time(rest: Sequence[str]) -> tuple[str, Better] | None:
    """latency us, mb s."""
    for at in reversed(range(len(rest))):
        word, before = rest[at], rest[at - 1] if at else ""
        if word not in TIME_UNITS or (word == "s" and at < len(rest) - 1):
            continue
        if word in ("s", "sec") and before in _AMOUNTS:
            return f"{before}/s", Better.HIGHER
        return TIME_UNITS[word], Better.LOWER
    return None
