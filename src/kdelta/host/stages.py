# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run, or who installs a kernel, does with another machine: all of it, in its order.

`kdelta runs status` shows it, `kdelta --verbose` prints it; bench/hosts.py kills kdelta in each.
"""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """A stage, as it is told.

    Behind LEAVING the machine is told to go down: until it is gone that is FALLING, and BOOTING
    until a boot answers.  What it does meanwhile (a panic, its own kernel) nobody here can see.
    """

    OFFERING = "sends a kernel's files"
    INSTALLING = "installs a kernel"
    REACHING = "waits until it answers"
    TAKING = "takes hold of it"
    CHOOSING = "chooses its next boot"
    LEAVING = "tells it to boot"
    FALLING = "waits until it is down"
    BOOTING = "waits until it is up"
    LOOKING = "looks at what it is"
    SENDING = "sends the program"
    SETTLING = "waits until it is quiet"
    RUNNING = "runs the program"
    READING = "looks at what it was"
    KEEPING = "keeps the result"
    RETURNING = "gives it back"
    LETTING_GO = "lets it go"
    REMOVING = "takes a kernel off it"
