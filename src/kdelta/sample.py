# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows that flow: what one trial yields and what a whole run holds.

Counts are of guest instructions retired by the vCPU that executed the marks (QEMU TCG).  The types
are those of the files of a run: read strictly, an unknown key is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Protocol, Self

from msgspec import Meta, Struct, field

from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import MachineSeen
from kdelta.metric import Better

TOTAL = "total"  # the name under which the sum over the phases is shown
# Of PhaseCounts.outside, and of scalars: pages of its own that a program touches itself, digests
# of the order of its calls, and of these pages.  PLACE: four digests, by places of bytes or calls.
INSTRUCTIONS, TOUCHED, ORDER = "instructions", "pages touched", "order of calls"
REORDERED, PLACE = f"{TOUCHED} in another order", ", place "
OF_VDSO = "a look at the vDSO"  # which is of the kernel, and differs between releases
EMULATED = "an emulated instruction"  # whose result is the kernel's
OLD_CALL = "int 0x80"  # a call that is made as 32-bit programs do
OF_LOADER = " of the loader"  # behind a clock that a program's start reads, once for each
OUTSIDE = " outside the windows"  # behind a clock that a program reads there
OF_FILE = "contents of a file of the kernel"  # where nobody looks
OF_POINTER = "a pointer within an argument"  # to what nobody looks at


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is known of an instrument without any data: code asks for these, not for its name.

    does: what it does to a program ("counted").  judged: verdicts are made of its values.  repeats:
    a trial gives the same value each time, whichever machine measures, and functions explain it.
    interleaved: its trials run one after the other, in rounds, because a machine drifts.  needs:
    modules that judge its values, of the extra "time".
    """

    does: str
    judged: bool = True
    repeats: bool = False
    interleaved: bool = False
    needs: tuple[str, ...] = ()


class Instrument(StrEnum):
    """What measures.  Counts of one instrument are never mixed with another's."""

    EXACT = "exact"
    TIME = "time"
    TRACE = "trace"

    @property
    def traits(self) -> Traits:
        """What sets it apart from the others."""
        return _TRAITS[self]


_TRAITS = {
    Instrument.EXACT: Traits(does="counted", repeats=True),
    Instrument.TIME: Traits(does="timed", interleaved=True, needs=("numpy", "scipy")),
    Instrument.TRACE: Traits(does="traced", judged=False),
}


USUAL_TIMEOUT_S = 120  # of an attempt, unless the user gives another


class Outcome(StrEnum):
    """How a trial ended.  Only OK carries data; the others carry a reason."""

    OK = "ok"
    INVALID = "invalid"  # ran, but its state contract or read-back did not hold
    SKIP = "skip"  # not supported on this kernel or machine (exit 77)
    BOOT_ERROR = "boot-error"
    GUEST_ERROR = "guest-error"
    PROGRAM_ERROR = "program-error"  # the program ended with a status of its own
    TIME_OUT = "time-out"  # not done within a time that the user gave
    INFRA_ERROR = "infra-error"

    @property
    def blames(self) -> bool:
        """True when it is the fault of the kernel under test, or of what ran on it."""
        return self in (Outcome.BOOT_ERROR, Outcome.GUEST_ERROR)


class SkipKind(StrEnum):
    """Why a trial was not measured, for who decides by it."""

    NOT_NEEDED = "not-needed"  # there are as many valid trials as were wanted
    UNSUPPORTED = "unsupported"  # by this kernel, or this machine
    NOT_PERMITTED = "not-permitted"  # only root may read what the scenario has to know
    NOT_FOR_INSTRUMENT = "not-for-instrument"  # the scenario is only counted, or only timed


class Skip(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a trial was not measured; the sentence is for people."""

    kind: SkipKind
    sentence: str


class Copied(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a trial has another arm's result; the sentence is for people.

    trial: whose result it is, by its index.
    """

    sentence: str
    trial: int


Option = Annotated[str, Meta(pattern="^[^=]+=")]


class KernelIdentity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    options: tuple[Option, ...] = ()  # of its configuration, those that kdelta.options names
    options_format: int = 1  # of that record


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything beside the kernel that decides an exact count.

    Results whose environments differ (`identity`) must not be compared.
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
    self_test: str = ""  # that QEMU passed with this CPU: program and known numbers; "": none
    program_sha256: str = ""  # of the program as it ran: compiler and C library decide a count, too
    initramfs_sha256: str = ""  # of PID 1: what memory it takes before a program decides a little

    @property
    def identity(self) -> dict[str, object]:
        """What must be equal in trials that are compared, by name: not mitigations, which kernels
        word otherwise, nor the version of a QEMU that passed the self-test, which is compared.
        """
        free = {"mitigations", "qemu_version"} if self.self_test else {"mitigations"}
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in free}


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Operations = Annotated[int, Meta(gt=0, le=2**63 - 1)]
Counts = Annotated[tuple[Count, ...], Meta(min_length=1)]


class PhaseCounts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Windows of one phase in one trial: totals per window, in execution order.

    layouts: of the kernel's trees and lists, that the windows go through in turn.  syscalls: how
    often the windows that stand for the phase made each system call ("madvise"); errors: how often
    one returned an error ("madvise EINVAL"); clock: how often any of its windows read a clock, by
    what reads it.  syscalls and clock are None where they were not recorded.  by_design: errors and
    clocks that the scenario declares.  wakes: of tasks that are not the workload's, in the same
    windows as syscalls.  scalars: of all windows, by "poll argument 2", "read result", the least
    and the most of these numbers, their sum and a digest, 0 where all are one; of "openat string
    2", "poll data 1", "madvise address 1" and "read contents" only a digest; of "pages touched" the
    least and the most of a window.  behind: instructions of the kernel that tasks of the workload's
    own executed outside the windows, per window, in the mean.  outside: how often, until the last
    window, the program made each call outside and each error was returned, as scalars of one value,
    its "instructions" in user space, and scalars.  These are None where they were not recorded.
    spent: instructions of the kernel for each call, in the same windows as syscalls; "": for none.
    places: of a program that is watched outside, too, the same by their places in a window, up to
    2,520, the median over windows.  rarer: the same of other lengths, by the first window of each.
    """

    phase: str
    operations: Operations  # (pages, calls) in one window
    operation: str  # "page"
    user: Counts  # instructions in user space, one per window
    kernel: Counts  # instructions in the kernel, one per window
    switched: tuple[bool, ...] = ()  # another task ran in the window; empty: not recorded
    layouts: Operations = 1
    syscalls: dict[str, Count] | None = None
    errors: dict[str, Count] = {}
    clock: dict[str, Count] | None = None
    by_design: tuple[str, ...] = ()
    wakes: Count = 0
    scalars: dict[str, tuple[int, int, int, int]] | None = None
    behind: Count | None = None
    outside: dict[str, tuple[int, int, int, int]] | None = None
    spent: dict[str, Count] = {}
    places: dict[str, tuple[Count, ...]] = {}
    rarer: dict[int, dict[str, tuple[Count, ...]]] = {}


class FunctionCount(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One function in the modal window of one phase: exact integers."""

    phase: str
    function: str  # "[user]" for all user-space code
    insns: Count
    calls: Count  # executions of its first instruction; of "rep ... in F", runs to the end
    bytes: Count = 0  # of "rep ... in F": what it copied, set or compared


class PhaseTimes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Samples of one phase in one trial of the time instrument, in execution order."""

    phase: str
    operations: Operations  # (pages, calls) in one sample
    operation: str  # "page"
    nanoseconds: tuple[Count, ...]  # raw, one per sample
    adds: bool = True  # to the total over the phases


class OptionCount(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instructions of one function, in the modal window of one phase, that are surely an option's.

    code: the pattern that they are known by (kdelta.options).
    """

    phase: str
    function: str
    code: str
    insns: Count


class OptionPlaces(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that ran and has the code of options, in so many places, run or not."""

    function: str
    code: str
    places: Count


class OptionCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the functions of the kernel that ran have of the code of options.

    looked_for: its patterns (kdelta.options).  unread: functions whose code could not be read.
    """

    looked_for: tuple[str, ...]
    unread: tuple[str, ...] = ()
    places: tuple[OptionPlaces, ...] = ()
    counts: tuple[OptionCount, ...] = ()

    @property
    def absent(self) -> frozenset[str]:
        """Patterns that no function that ran has."""
        found = {one.code for one in self.places}
        return frozenset() if self.unread else frozenset(self.looked_for) - found


class CodeRan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function of the kernel that ran in the windows that stand for the phases.

    code: a digest of its instructions, but for where fields lie in structures.  calls: how often it
    called or jumped to others that ran, by name; "": through pointers.  rounds: how often its
    instruction ran that ran most, which its longest loop makes.
    """

    function: str
    code: str
    calls: dict[str, int] = {}
    rounds: int = 0


class ExactData(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="exact"):
    """What a trial of the exact instrument counted."""

    phases: tuple[PhaseCounts, ...] = ()
    functions: tuple[FunctionCount, ...] = ()


class TimeData(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="time"):
    """What a trial of the time instrument timed."""

    phases: tuple[PhaseTimes, ...] = ()


class TracePhase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one iteration of a traced program does in one phase."""

    phase: str
    operations: Operations
    operation: str


class TraceRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often something that is watched happened, each time that it was counted.

    watch: as the study words it.  key: the value, or the function called, that these are of; "" for
    all.  number: of a value that has a name.  whole: over a whole run of the program, once.
    """

    watch: str
    key: str = ""
    number: int | None = None
    hits: tuple[Count, ...]
    whole: bool = False


class TraceSkip(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that could not be watched here, and why, in a sentence."""

    watch: str
    reason: str


class TraceData(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="trace"):
    """What a trial of the trace instrument saw; it disturbs, and is never compared with counts.

    turns: iterations that each of a row's hits are of; 1 where they are of a run.  doubts: what was
    not seen, one sentence each.
    """

    phases: tuple[TracePhase, ...] = ()
    per: str = "iteration"
    turns: tuple[int, ...] = ()
    rows: tuple[TraceRow, ...] = ()
    skipped: tuple[TraceSkip, ...] = ()
    doubts: tuple[str, ...] = ()


_NO_COUNTS, _NO_TIMES = ExactData(), TimeData()
UNKNOWN = "unknown"
UNDONE = "undone_"  # begins facts of what was dropped, refused or put off (guest/kdelta.h)


_PAGES = (
    *("anon_pages", "anon_huge_kb", "shmem_pmd_kb", "zero_pages", "swapped_pages"),
    *("compound_heads", "compound_tails", "compound_pages", "absent_pages", "present_pages"),
)
# Buffers are those of sockets that the program set, and of pipes (guest/lone.h).
_OF_PROCESSES = ("own_mappings", "send_buffers", "receive_buffers", "pipe_buffers")
# Facts of memory that kernels word alike.  Not among them: KPF_KSM, which some set for all
# anonymous pages; all mappings, of which the kernel adds its own (vvar) to a process.
TELLING = frozenset((
    *_PAGES, "node0_pages", "node1_pages", "shared_vmas",
    *(f"{whose}_{name}" for whose in ("process", "children") for name in (*_PAGES, *_OF_PROCESSES)),
    *("memory_anon_huge_kb", "memory_file_huge_kb", "memory_shmem_huge_kb"),
    *(f"shmem_folios_{16 << order}kb" for order in range(8)),
))  # fmt: skip


# Where a program's own memory cannot be read, nothing says that arms have the same.
_NEVER_UNKNOWN = frozenset(("process_own_mappings", "children_own_mappings"))


class StateField(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
            return self.value != UNKNOWN or self.name not in _NEVER_UNKNOWN
        return self.value not in (UNKNOWN, "mixed") and self.want in (self.value, "same")

    @property
    def binding(self) -> bool:
        """True when it is wanted."""
        return self.want != "free"

    @property
    def compared(self) -> bool:
        """True when arms that differ in it must not be compared: what decides a path does, wanted
        or not.
        """
        return self.binding or (self.value != UNKNOWN and self.name in TELLING)


class MetricValue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure that the workload itself told, beside the time of its phases.

    value: in `unit`; None: absent here, for the reason in `absent`, and never zero.
    """

    name: str
    unit: str
    better: Better
    value: float | None
    absent: str = ""


class HostFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine that kdelta itself ran on.  None: it could not be read; "none": it is empty."""

    seen: MachineSeen = MachineSeen()
    release: str | None = None
    build: str | None = None
    version: str | None = None
    compiler: str | None = None
    build_id: str | None = None
    boot_id: str | None = None
    machine: str | None = None
    installed_mib: int | None = None  # of memory, as the firmware tells
    cpu_model: str | None = None
    microcode: str | None = None
    governor: str | None = None
    epp: str | None = None
    turbo: str | None = None
    smt: str | None = None
    clock_resolution_ns: int | None = None
    clock_step_ns: int | None = None
    numa_balancing: str | None = None
    ksm: str | None = None
    swap_used_kib: int | None = None
    load: float | None = None
    steal_ticks: int | None = None
    total_ticks: int | None = None
    virtualisation: str | None = None
    failed_units: str | None = None


class MachineFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a trial's machine was asked to be, and was.

    asked, guest: of a trial in a guest; host: of a timed trial.  doubts: what speaks against times
    of this machine, one sentence each.
    """

    asked: MachineSettings | None = None
    guest: MachineSeen | None = None
    host: HostFacts | None = None
    doubts: tuple[str, ...] = ()
    workload_exit: int | None = None

    @property
    def seen(self) -> MachineSeen:
        """What the kernel under test says of its machine."""
        return self.guest or (self.host.seen if self.host else MachineSeen())

    @property
    def boot_id(self) -> str:
        """The boot of this machine that a trial on it ran in, "" in a guest or when unknown."""
        return (self.host.boot_id or "") if self.host and not self.guest else ""


class Try(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An attempt at a trial before the one that gave its result; it is never data.

    fresh_boot, other_seed: how it differed from what was planned.  console: what the guest's
    console showed, as a path relative to the run's folder; "" for none.
    """

    outcome: Outcome
    reason: str = ""
    fresh_boot: bool = False
    other_seed: bool = False
    console: str = ""


class TrialResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that one trial produced.  There is data only when outcome is OK or INVALID.

    reasons: why it is not OK, one sentence each; of a SKIP `skip` says it.  copied: why it was not
    measured but is another arm's result.  tries: the attempts before this one, in their order.
    stored: when it was counted, ISO 8601 in UTC, of a result from the store; "" of one that is new.
    address: of all that a count depends on (run.store), "" of what was not counted as planned.
    options: None where no two kernels of the run differ in an option that code is known of.
    code: of a C file of the user's own; () where it could not be read.
    artifacts: name -> path relative to the run's folder.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    skip: Skip | None = None
    kernel: KernelIdentity | None = None  # with what was read back from the guest
    environment: Environment | None = None
    data: ExactData | TimeData | TraceData | None = None
    options: OptionCode | None = None
    code: tuple[CodeRan, ...] = ()
    state: tuple[StateField, ...] = ()
    metrics: tuple[MetricValue, ...] = ()
    facts: MachineFacts | None = None
    fresh_boot: bool = False
    copied: Copied | None = None
    tries: tuple[Try, ...] = ()
    stored: str = ""
    address: str = ""
    wall_s: float = 0.0
    artifacts: dict[str, str] = field(default_factory=dict)

    @property
    def exact(self) -> ExactData:
        """Its counts; none of a trial without."""
        return self.data if isinstance(self.data, ExactData) else _NO_COUNTS

    @property
    def timed(self) -> TimeData:
        """Its times; none of a trial without."""
        return self.data if isinstance(self.data, TimeData) else _NO_TIMES

    @property
    def traced(self) -> TraceData | None:
        """What a traced trial saw; None for any other."""
        return self.data if isinstance(self.data, TraceData) else None

    @property
    def reason(self) -> str:
        """Why it is not OK, as it is said; "" for OK."""
        return self.skip.sentence if self.skip else "; ".join(self.reasons)

    @property
    def flaky(self) -> Try | None:
        """The attempt at which the guest died, when it did so once and not again."""
        died = [one for one in self.tries if one.outcome.blames]
        return died[0] if died and self.data is not None else None


class Source(StrEnum):
    """What a seed decides (guest/seed.h), as a person reads it."""

    TICKS = "timer ticks"
    MEMORY = "kernel memory"
    RANDOM = "random numbers"
    ADDRESSES = "addresses"
    BOOT = "the boot"


class TrialRecord(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One planned trial and, once it ended, its result.

    varies: the one source in which it differs from the first round, None: all differ.
    """

    index: int
    round: int
    arm: int
    workload: str
    scenario: str
    varies: Source | None = None
    attempts: int = 0  # times it was started; above 1, the round's order was broken by a retry
    result: TrialResult | None = None  # None: not run yet

    @property
    def outside(self) -> bool:
        """True of a C file of the user's own."""
        return self.workload.endswith(".c")

    @property
    def exact(self) -> ExactData:
        """Its counts; none of a trial without."""
        return self.result.exact if self.result else _NO_COUNTS


class ArmRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class Run(Protocol):
    """A whole run as verdicts and tables read it; kdelta.journal.run.RunRecord is one.

    scenarios ("mprotect:toggle", in order), gap (references of a good and a regressed kernel, or
    nothing): as its study has them.
    """

    @property
    def run_id(self) -> str: ...  # noqa: D102
    @property
    def instrument(self) -> Instrument: ...  # noqa: D102
    @property
    def scenarios(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def gap(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def arms(self) -> tuple[ArmRecord, ...]: ...  # noqa: D102
    @property
    def trials(self) -> tuple[TrialRecord, ...]: ...  # noqa: D102

    def part(self, arms: Sequence[ArmRecord]) -> Self:
        """The run with these arms alone, and with their trials."""
