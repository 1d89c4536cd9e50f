# SPDX-License-Identifier: GPL-2.0-or-later
"""A program that takes QEMU's command line and behaves as one of several guests would."""

from __future__ import annotations

import sys
from pathlib import Path

from kdelta.guests.qemu import Qemu

IDENTITY = """\
port virtio
release 6.17.13+deb13-cloud-amd64
machine x86_64
build #1 SMP PREEMPT_DYNAMIC
version Linux version 6.17.13 (debian@example) (x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0, \
GNU ld (GNU Binutils for Debian) 2.44) #1
build-id 22f50dc3e6f275ea08d56d85d3d90d338b4c5a32
cmdline console=ttyS0 quiet nokaslr panic=-1 \
cryptomgr.notests=1 initcall_blacklist=jent_mod_init
cpus 1
memory-mib 983
nodes 1
swap
thp always [madvise] never
thp-shmem always within_size advise [never] deny force
preempt none voluntary full (lazy)
clocksource tsc
cpu AuthenticAMD 60fb1 f6f83203 78bfbfd 219c03a9 41020c 10 0 5 125 2d93fbfd 200
mitigation spectre_v2 Mitigation: Retpolines; STIBP: disabled
"""

_SCRIPT = """\
#!{python} -I
import json, os, re, signal, socket, sys, threading, time

line = " ".join(sys.argv)

def channel(name):
    return open(re.search(rf"file,id={{name}},path=(\\S+)", line)[1], "wb", buffering=0)

def offered(name):
    with open(re.search(rf"name=opt/org.kdelta/{{name}},file=(\\S+)", line)[1], "rb") as file:
        return file.read()

port, console = channel("port"), channel("console")
behaviour = os.environ["FAKE_QEMU"]
identity = {identity!r}

def give_up(text, status):
    console.write(text)
    sys.exit(status)

def answer(text, status=0):
    port.write(b"kdelta-answer %d %d\\n" % (status, len(text)) + text)
    if status:
        sys.exit()

def obey():
    for order in offered("orders").splitlines():
        words = order.split()
        if words[0] == b"identity":
            answer(identity)
        elif words[0] == b"kallsyms":
            answer(b"", 2)
        elif words[0] == b"write":
            answer(b"", 22 if b"refused" in words else 0)
        elif words[0] == b"run":
            arguments = b" ".join(words[1:])
            answer(b"took %d, %s\\n" % (len(offered("program")), arguments), 5)
        else:
            answer(b"")

def control(threads):
    # QMP over a socket, as far as a guest is pinned: its orders need not end with a newline
    qmp = socket.socket(fileno=int(re.search(r"socket,id=qmp,fd=(\\d+)", line)[1]))

    def tell(message):
        qmp.sendall(json.dumps(message).encode() + b"\\r\\n")

    version = {{"qemu": {{"major": 10, "minor": 0, "micro": 2}}, "package": ""}}
    tell({{"QMP": {{"version": version, "capabilities": []}}}})
    heard = ""
    while more := qmp.recv(4096).decode():
        heard = (heard + more).lstrip()
        try:
            order, end = json.JSONDecoder().raw_decode(heard)
        except ValueError:
            continue
        heard, rows = heard[end:], {{}}
        if order["execute"] == "query-cpus-fast":
            pairs = list(enumerate(threads))[::-1]
            rows = [{{"cpu-index": i, "thread-id": t.native_id}} for i, t in pairs]
            rows = rows[1:] if behaviour == "hides a thread" else rows
            if behaviour == "names no thread":
                rows = [{{"cpu-index": 0, "thread-id": "all"}}]
        tell({{"return": rows, "id": order.get("id")}})

if behaviour == "refuses":
    print("qemu-system-x86_64: -plugin: invalid option", file=sys.stderr)
    sys.exit(1)
if behaviour == "does not take it":
    print("qemu-system-x86_64: Unknown savevm section or instance", file=sys.stderr)
    print("qemu-system-x86_64: load of migration failed: Invalid argument", file=sys.stderr)
    sys.exit(1)
if behaviour == "cannot write":
    print("kdelta plugin: cannot write the counts: is the disk full?", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGABRT)
if behaviour == "has no register":
    print("kdelta plugin: a register cannot be read", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGABRT)
if behaviour == "out of its file":
    os.kill(os.getpid(), signal.SIGBUS)
if behaviour == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if behaviour == "terminated":
    sys.exit(print("qemu: terminating on signal 15 from pid 1 (init)", file=sys.stderr))
if behaviour == "panics":
    give_up(b"[1.0] Kernel panic - not syncing: no init\\r\\n[1.1] ---\\r\\n", 0)
if behaviour == "resets":
    give_up(b"something else\\n", 0)
if behaviour == "garbles":
    console.write(bytes(range(256)) * 8192)
    give_up(b"\\nthe end\\n", 0)
if behaviour == "deaf":
    time.sleep(60)
if behaviour == "old":
    port.write(b"kdelta-ready 9 1 0\\n")
    time.sleep(60)
if "-accel kvm" in line:
    wait = threading.Event().wait
    count = int(re.search(r"-smp (\\d+)", line)[1])
    threads = [threading.Thread(target=wait, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    threading.Thread(target=control, args=(threads,), daemon=True).start()
if behaviour == "breaks KVM":
    time.sleep(0.2)
    print("KVM internal error. Suberror: 1", file=sys.stderr, flush=True)
    time.sleep(60)  # QEMU stays, its guest stopped
if "-incoming" not in sys.argv:
    port.write(b"kdelta-ready 2 1 %d\\n" % len(identity) + identity)
block = bytes(1 << 20)
while behaviour == "floods":
    port.write(block)
while behaviour == "shouts":
    console.write(b"x" * (1 << 20))
if behaviour == "stops":
    os.kill(os.getpid(), signal.SIGSTOP)
if behaviour == "hangs":
    time.sleep(60)
if behaviour == "truncates":
    port.write(b"kdelta-answer 0 4000\\nport virtio\\n")
    sys.exit()
if behaviour == "lies":
    port.write(b"kdelta-answer zero bytes\\n" * 10)
    sys.exit()
obey()
if behaviour == "stays" or behaviour.endswith("thread"):
    time.sleep(60)
"""


def install(folder: Path, behaviour: str, *, version: str = "10.0.2") -> Qemu:
    """Put it into a folder."""
    program = folder / "qemu-system-x86_64"
    program.write_text(_SCRIPT.format(python=sys.executable, identity=IDENTITY.encode()))
    program.chmod(0o755)
    return Qemu(
        program=program, banner=f"QEMU emulator version {version}", version=version, plugins=True,
        environment={"FAKE_QEMU": behaviour},
    )  # fmt: skip
