# SPDX-License-Identifier: GPL-2.0-or-later
"""What a trial's machine was asked to be and was, as its result keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kdelta.host import preflight
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import GuestIdentity
from kdelta.sample import HostFacts, MachineFacts, MachineSeen


def of_guest(
    settings: MachineSettings,
    identity: GuestIdentity,
    *,
    status: int,
    host: HostFacts | None = None,
    steal: float | None = None,
    leased: Sequence[int] = (),
    doubts: Sequence[str] = (),
) -> MachineFacts:
    """Of a trial in a guest; host and what follows: of a timed one.

    status: of the workload's program.
    """
    return MachineFacts(
        asked=settings,
        guest=MachineSeen(
            cpus=identity.cpus,
            memory_mib=identity.memory_mib,
            nodes=identity.nodes,
            cmdline=identity.cmdline,
            thp=identity.thp or None,
            preempt=identity.preempt or None,
            swap=identity.swap,
            clocksource=identity.clocksource or None,
            mitigations=identity.mitigations,
        ),
        host=host,
        steal_share=steal,
        leased=tuple(leased),
        doubts=tuple(doubts),
        workload_exit=status,
    )


def of_host(read: Mapping[str, str]) -> HostFacts:
    """What preflight read of this machine."""
    known = {name: value for name, value in read.items() if value != preflight.UNKNOWN}
    seen = {name: known[name] for name in MachineSeen.__struct_fields__ if name in known}
    seen.pop("mitigations", None)
    own = {name: known[name] for name in HostFacts.__struct_fields__ if name in known}
    found = {**own, "seen": {**seen, "mitigations": preflight.mitigations()}}
    return msgspec.convert(found, HostFacts, strict=False)
