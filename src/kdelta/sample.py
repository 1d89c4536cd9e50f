# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows that flow: what one trial yields and what a whole run holds.

Counts are of guest instructions retired by the vCPU that executed the marks (QEMU TCG).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from kdelta.metric import Better

TOTAL = "total"  # the name under which the sum over the phases is shown


class Outcome(StrEnum):
    """How a trial ended.  Only OK carries data; the others carry a reason."""

    OK = "ok"
    INVALID = "invalid"  # ran, but its state contract or read-back did not hold
    SKIP = "skip"  # not supported on this kernel or machine (exit 77)
    BOOT_ERROR = "boot-error"
    GUEST_ERROR = "guest-error"
    INFRA_ERROR = "infra-error"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelIdentity:
    """Which kernel an arm is.  Empty string: not known (never guessed)."""

    reference: str  # what the user wrote: "6.17"
    release: str  # uname -r: "6.17.13+deb13-cloud-amd64"
    version: str  # package version: "6.17.13-1~bpo13+1"
    arch: str  # Debian's name: "amd64"
    flavour: str  # "cloud"
    image_sha256: str
    build_id: str = ""  # GNU build id, read back from the booted guest
    compiler: str = ""  # from /proc/version of the booted guest
    config_sha256: str = ""  # of the config shipped with the image
    name: str = ""  # of a kernel built from source, for tables: "6.17.8+mincore-present-first"
    source: str = ""  # of such a kernel: git tree id and configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Everything beside the kernel that decides an exact count.

    Results whose environments differ (`differences`) must not be compared.
    """

    accelerator: str  # "tcg"
    qemu_version: str  # "7.2.22"
    plugin_sha256: str  # of the plugin's source
    machine: str  # "q35"
    cpu_model: str  # "max"
    cpus: int
    memory_mib: int
    cmdline: str
    mitigations: str  # digest line of /sys/devices/system/cpu/vulnerabilities, as the guest saw it

    def differences(self, other: Environment) -> tuple[str, ...]:
        """Names of the identity fields in which two environments differ.

        Mitigations are the kernel's answer to the machine, so kernels of different age
        legitimately report other texts; they are recorded, and not part of the comparison.
        """
        names = (
            "accelerator",
            "qemu_version",
            "plugin_sha256",
            "machine",
            "cpu_model",
            "cpus",
            "memory_mib",
            "cmdline",
        )
        return tuple(name for name in names if getattr(self, name) != getattr(other, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCounts:
    """Windows of one phase in one trial: totals per window, in execution order."""

    phase: str
    operations: int  # operations (pages, calls) in one window
    operation: str  # "page"
    user: tuple[int, ...]  # instructions in user space, one per window
    kernel: tuple[int, ...]  # instructions in the kernel, one per window
    switched: tuple[bool, ...] = ()  # another task ran in the window; empty: not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """Samples of one phase in one trial of the time instrument, in execution order."""

    phase: str
    operations: int  # operations (pages, calls) in one sample
    operation: str  # "page"
    nanoseconds: tuple[int, ...]  # raw, one per sample
    adds: bool = True  # to the total over the phases

    def counts_for(self, phase: str) -> bool:
        """True for a phase's own samples, and for what makes up TOTAL."""
        return phase == self.phase or (phase == TOTAL and self.adds)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCount:
    """One function in the modal window of one phase: exact integers."""

    phase: str
    function: str  # "[user]" for all user-space code
    insns: int
    calls: int  # executions of its first instruction; of "rep ... in F", runs to the end


UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateField:
    """One audited fact about the pages, read in the guest outside the window.

    value and want are decimal or words as the guest printed them; value "unknown" means that it
    could not be read, "mixed" that it differs within the memory: neither is ever as wanted.  want
    "same": known, and equal in all arms that are compared; "free": the fact is only told.
    """

    when: str  # "before" | "after" all windows | "during": counted over all of them
    name: str
    value: str
    want: str

    @property
    def holds(self) -> bool:
        """True when the fact is as the contract wants it; what is wanted must be known."""
        if self.want == "free":
            return True
        return self.value not in (UNKNOWN, "mixed") and self.want in (self.value, "same")

    @property
    def binding(self) -> bool:
        """True when arms that differ in it must not be compared."""
        return self.want != "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """A figure that the workload itself told, beside the time of its phases.

    value: in `unit`; None: absent here, for the reason in `absent`, and never zero.
    """

    name: str
    unit: str
    better: Better
    value: float | None
    absent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """All that one trial produced.  Lists are empty unless outcome is OK or INVALID.

    phases and functions are the exact instrument's, times and facts the time instrument's; no
    trial has both.  facts: what the machine was, name -> value, "unknown" where it cannot tell.
    """

    outcome: Outcome
    reason: str = ""  # one sentence, empty for OK
    kernel: KernelIdentity | None = None  # with what was read back from the guest
    environment: Environment | None = None
    phases: tuple[PhaseCounts, ...] = ()
    functions: tuple[FunctionCount, ...] = ()
    state: tuple[StateField, ...] = ()
    times: tuple[PhaseTimes, ...] = ()
    metrics: tuple[MetricValue, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    fresh_boot: bool = False
    copied: str = ""  # why it was not measured but is another arm's result; "" for a measured one
    wall_s: float = 0.0
    artifacts: dict[str, str] = field(
        default_factory=dict
    )  # name -> path relative to the run folder


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One planned trial and, once it ended, its result."""

    index: int
    round: int
    arm: int
    workload: str
    scenario: str
    attempts: int = 0  # times it was started; above 1, the round's order was broken by a retry
    result: TrialResult | None = None  # None: not run yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRecord:
    """One arm of a run, in the study's order."""

    index: int
    label: str  # shown in tables: "6.17.13"
    kernel: KernelIdentity
    control: bool = False  # repeats the first arm at the end of each round: its drift is the noise
    axes: dict[str, str] = field(default_factory=dict)  # its point in the study's matrix

    @property
    def point(self) -> str:
        """Its point of the matrix as tables call it: "cpus=2 preempt=full"; "" without one."""
        return " ".join(f"{name}={value or 'own'}" for name, value in self.axes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A whole run as stored: all that the analysis may look at."""

    run_id: str
    name: str  # the study's name
    title: str
    seed: int
    rounds: int
    created: str  # ISO 8601, UTC
    kdelta_version: str
    study_toml: str
    instrument: str = "exact"  # or "time"
    study_digest: str = ""  # study.spec.digest of it, by which an unfinished run is found again
    arms: tuple[ArmRecord, ...]
    trials: tuple[TrialRecord, ...]
