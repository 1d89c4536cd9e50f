# SPDX-License-Identifier: GPL-2.0-or-later
"""What a trial's machine was, as its result keeps it: typed, with None for what is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kdelta.host import preflight
from kdelta.machine.identity import GuestIdentity
from kdelta.sample import HostFacts, MachineFacts, MachineSeen


def of_guest(identity: GuestIdentity) -> MachineSeen:
    """What a guest says of its machine."""
    return MachineSeen(
        cpus=identity.cpus,
        memory_mib=identity.memory_mib,
        nodes=identity.nodes,
        cmdline=identity.cmdline,
        thp=identity.thp or None,
        preempt=identity.preempt or None,
        swap=identity.swap,
        clocksource=identity.clocksource or None,
        mitigations=identity.mitigations,
    )


def of_host(read: Mapping[str, str]) -> HostFacts:
    """What preflight read of this machine."""
    known = {name: value for name, value in read.items() if value != preflight.UNKNOWN}
    seen = {name: known[name] for name in MachineSeen.__struct_fields__ if name in known}
    own = {name: known[name] for name in HostFacts.__struct_fields__ if name in known}
    found = {**own, "seen": {**seen, "mitigations": preflight.mitigations()}}
    return msgspec.convert(found, HostFacts, strict=False)


def since(before: Mapping[str, str], leased: Sequence[int]) -> MachineFacts:
    """Of a timed trial that has just ended: this machine before it, and what was taken since.

    before: what preflight read of it; leased: the CPUs that were the trial's.
    """
    steal = preflight.steal_between(before, preflight.facts(cpus=leased))
    return MachineFacts(
        host=of_host(before),
        steal_share=steal,
        leased=tuple(leased),
        doubts=preflight.objections(before, steal=steal),
    )
