# SPDX-License-Identifier: GPL-2.0-or-later
"""What lab.toml says of a Slurm cluster."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

_Word = Annotated[str, Meta(pattern=r"\A(?:[A-Za-z0-9_.][A-Za-z0-9_.,:-]{0,99})?\Z")]
_Features = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_.,&|*()\[\]:-]{0,200}\Z")]
_Place = Annotated[str, Meta(pattern=r"\A(?:/[^\x00-\x1f\x7f]{0,1000})?\Z")]


class SlurmPool(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="slurm"):
    """Nodes that Slurm gives to one block of a timed study at a time, whole.

    partition, constraint, account, qos, reservation: as sbatch takes them, "" for the cluster's
    own.  node: the one to be timed; "": each row of the study's matrix stays on the node that its
    first block got.  minutes: time limit of a block.  shared: a folder that the nodes see, too;
    "": they see the run's.  kdelta: the command on the nodes; "": the one that runs here.
    """

    partition: _Word = ""
    constraint: _Features = ""
    account: _Word = ""
    qos: _Word = ""
    reservation: _Word = ""
    node: _Word = ""
    minutes: Annotated[int, Meta(ge=1, le=43200)] = 60
    shared: _Place = ""
    kdelta: Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]{0,1000}\Z")] = ""
