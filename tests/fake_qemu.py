# SPDX-License-Identifier: GPL-2.0-or-later
"""A program that takes QEMU's command line and behaves as one of several guests would."""

from __future__ import annotations

import sys
from pathlib import Path

from kdelta.guests.emulator import Qemu

IDENTITY = """\
port virtio
release 6.17.13+deb13-cloud-amd64
machine x86_64
build #1 SMP PREEMPT_DYNAMIC
version Linux version 6.17.13 (debian@example) (x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0, \
GNU ld (GNU Binutils for Debian) 2.44) #1
build-id 22f50dc3e6f275ea08d56d85d3d90d338b4c5a32
cmdline console=ttyS0 quiet nokaslr panic=-1
cpus 1
memory-mib 983
nodes 1
swap
thp always [madvise] never
thp-shmem always within_size advise [never] deny force
preempt none voluntary full (lazy)
clocksource tsc
cpu AuthenticAMD 663 f6f83203 78bfbfd 219c01a9 41020c 10 0 5 125 2d93fbfd 200
mitigation spectre_v2 Mitigation: Retpolines; STIBP: disabled
"""

_SCRIPT = """\
#!{python} -I
import os, re, signal, socket, sys, time

line = " ".join(sys.argv)

def channel(name):
    found = re.search(rf"socket,id={{name}},fd=(\\d+)", line)
    return socket.socket(fileno=int(found[1]))

port, console = channel("port"), channel("console")
behaviour = os.environ["FAKE_QEMU"]

def give_up(text, status):
    console.sendall(text)
    sys.exit(status)

def serve():
    stream = port.makefile("rb")
    while order := stream.readline():
        words = order.split()
        if not words:
            continue
        if words[0] == b"identity":
            port.sendall({identity!r} + b"kdelta-done 0\\n")
        elif words[0] == b"kallsyms":
            port.sendall(b"kdelta-done 2\\n")
        elif words[0] == b"run":
            taken = len(stream.read(int(words[1])))
            port.sendall(b"took %d, %s\\n\\nkdelta-done 5\\n" % (taken, b" ".join(words[2:])))

if behaviour == "refuses":
    print("qemu-system-x86_64: -plugin: invalid option", file=sys.stderr)
    sys.exit(1)
if behaviour == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if behaviour == "panics":
    give_up(b"[1.0] Kernel panic - not syncing: no init\\r\\n[1.1] ---\\r\\n", 0)
if behaviour == "resets":
    give_up(b"something else\\n", 0)
if behaviour == "garbles":
    console.sendall(bytes(range(256)) * 8192)
    give_up(b"\\nthe end\\n", 0)
if behaviour == "deaf":
    time.sleep(60)
if behaviour == "old":
    port.sendall(b"kdelta-ready 9 settled=1\\n")
    time.sleep(60)
port.sendall(b"kdelta-ready 1 settled=1\\n")
if behaviour == "floods":
    block = bytes(1 << 20)
    while True:
        port.sendall(block)
if behaviour == "shouts":
    block = b"x" * (1 << 20)
    while True:
        console.sendall(block)
serve()
"""


def install(folder: Path, behaviour: str, *, version: str = "7.2.22") -> Qemu:
    """Put it into a folder."""
    program = folder / "qemu-system-x86_64"
    program.write_text(_SCRIPT.format(python=sys.executable, identity=IDENTITY.encode()))
    program.chmod(0o755)
    return Qemu(
        program=program,
        banner=f"QEMU emulator version {version}",
        version=version,
        api=1,
        environment={"FAKE_QEMU": behaviour},
    )
