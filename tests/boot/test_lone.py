# SPDX-License-Identifier: GPL-2.0-or-later
"""A C file of one's own on real kernels: its count is that of the shipped scenario of the loop."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kdelta.cli.main import cli
from kdelta.journal.run import RUNS, RunJournal
from kdelta.sample import Source

LOOP = """\
#include "kdelta.h"
int main(void)
{
	for (int i = 0; i < 10; i++) {
		KD_BEGIN(0);
		for (int calls = 0; calls < 256; calls++)
			syscall(SYS_getppid);
		KD_END(0);
	}
	return 0;
}
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(text: str, kernels: str, *words: str) -> Result:
    """What `kdelta run` of a C file prints."""
    Path("loop.c").write_text(text)
    return CliRunner().invoke(cli, ["run", "./loop.c", "--kernels", kernels, *words])


@pytest.mark.boot
def test_a_loop_of_a_mail_is_counted_as_it_stands() -> None:
    """The kernel's part of a call is that of the shipped scenario; the loop around it is short."""
    loop = LOOP.replace('.h"\n', '.h"\n#include <sys/syscall.h>\n', 1)
    done = ran(loop, "6.17", "control:getppid")
    assert done.exit_code == 0, done.output
    shown = json.loads(CliRunner().invoke(cli, ["show", "latest", "--json"]).output)
    total = {each["workload"]: each["rungs"][0]["total"]["value"] for each in shown["ladders"]}
    own, shipped = total["./loop.c"], total["control"]
    assert abs(own - shipped * (256 if shipped < 1000 else 1)) < 256 * 20


CHANCE = """\
#include "kdelta.h"
#include <sys/random.h>
#include <sys/syscall.h>
static void call(unsigned int times)
{
	for (; times; times--)
		syscall(SYS_getppid);
}
int main(void)
{
	unsigned char drawn;
	char *mapped = mmap(NULL, KD_PAGE, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int stack = (uintptr_t)&drawn >> 4, heap = (uintptr_t)sbrk(0) >> 12;
	if (mapped == MAP_FAILED || getrandom(&drawn, 1, 0) != 1)
		return 1;
	for (int i = 0; i < 4; i++) {
		KD_BEGIN(0);
		call(100 + drawn);
		KD_END(0);
		KD_BEGIN(1);
		call(100 + ((uintptr_t)mapped >> 12) % 256);
		KD_END(1);
		KD_BEGIN(2);
		call(100 + stack % 64);
		KD_END(2);
		KD_BEGIN(3);
		call(100 + heap % 256);
		KD_END(3);
	}
	return 0;
}
"""


@pytest.mark.boot
def test_each_part_of_a_seed_moves_what_it_decides() -> None:
    """Random numbers differ by the seed; addresses, too, and they are the same on two kernels."""
    done = ran(CHANCE, "6.12,6.17", "--runs", "runs")
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert "UNDECIDED: the spread over windows and seeds" in shown
    assert re.search(r"moved by [^)]*.*random numbers \(up to", shown)
    record = RunJournal.open(RUNS.find(Path("runs"), "latest")).record()
    seen: dict[tuple[int, int, Source | None], list[int]] = {}
    for trial in record.trials:
        assert trial.result
        phases = trial.result.exact.phases
        seen[trial.arm, trial.round, trial.varies] = [each.user[-1] for each in phases]
    for arm in (0, 1):
        first = seen[arm, 0, None]
        for number in (1, 2):
            at = {source: seen[arm, number, source] for source in Source}
            assert at[Source.TICKS] == first
            assert at[Source.MEMORY][1:] == first[1:]  # tasks that start draw numbers, too
            assert at[Source.RANDOM][1:] == first[1:]
            assert at[Source.ADDRESSES][0] == first[0]
            assert all(a != b for a, b in zip(at[Source.ADDRESSES][1:], first[1:], strict=True))
        assert len({seen[arm, number, None][0] for number in range(3)}) > 1
    assert seen[0, 1, None][2:] == seen[1, 1, None][2:]  # stack and heap


MEMORY = """\
#include "kdelta.h"
#define SIZE (4UL << 20)
int main(void)
{
	static unsigned char there[SIZE / KD_PAGE];
	struct utsname host;
	if (uname(&host))
		return 1;
	for (int i = 0; i < 4; i++) {
		char *memory = mmap(NULL, SIZE, KD_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (!strncmp(host.release, "6.17", 4))
			madvise(memory, SIZE, MADV_NOHUGEPAGE);
		memset(memory, 1, SIZE);
		KD_BEGIN(0);
		mincore(memory, SIZE, there);
		KD_END(0);
		munmap(memory, SIZE);
	}
	return 0;
}
"""


# write() makes folios of 2 MiB since 6.18, and of 64 KiB before; nobody maps them.
SPARSE = """
#include "kdelta.h"
int main(void)
{
	static char words[1 << 16];
	int fd;
	if (mount("t", "/tmp", "tmpfs", 0, "huge=always"))
		return 1;
	fd = open("/tmp/file", O_RDWR | O_CREAT, 0600);
	for (int at = 0; at < 64; at++)
		if (write(fd, words, sizeof(words)) != sizeof(words))
			return 1;
	for (int i = 0; i < 4; i++) {
		KD_BEGIN(0);
		lseek(fd, 0, SEEK_HOLE);
		KD_END(0);
	}
	return 0;
}
"""


# Kernels since 6.17 merge the mappings of a process that lets KSM merge its pages.
SERVER = """
#include "kdelta.h"
#define FIXED (MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS)
int main(void)
{
	int to[2], from[2];
	char c = 'x', *area;
	kd_must(!pipe(to) && !pipe(from));
	if (!fork()) {
		prctl(67 /* PR_SET_MEMORY_MERGE */, 1, 0, 0, 0);
		area = kd_reserve(16 * KD_PAGE, KD_PAGE);
		for (int i = 0; i < 16; i++)
			mmap(area + i * KD_PAGE, KD_PAGE, KD_RW, FIXED, -1, 0);
		while (read(to[0], &c, 1) == 1 && write(from[1], &c, 1) == 1)
			madvise(area, 16 * KD_PAGE, MADV_COLD);
	}
	for (int i = 0; i < 4; i++) {
		KD_BEGIN(0);
		kd_must(write(to[1], &c, 1) == 1 && read(from[0], &c, 1) == 1);
		KD_END(0);
	}
	return 0;
}
"""

# net.core.rmem_max is 208 KiB, and 4 MiB since 6.18.
BUFFER = LOOP.replace(
    "\tfor",
    "\tint size = 1 << 20, in = socket(AF_UNIX, SOCK_DGRAM, 0);\n"
    "\tkd_must(!setsockopt(in, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));\n\tfor",
    1,
)


JAIL = LOOP.replace("\tfor", '\tkd_must(!chroot("/tmp"));\n\tfor', 1)


@pytest.mark.boot
@pytest.mark.parametrize(
    ("text", "kernels", "differ"),
    [
        (JAIL, "6.17,6.18", r"page state is unknown: /proc of the program cannot be read before"),
        (
            SERVER,
            "6.16,6.17",
            r"page states differ: children_own_mappings before \(\d+ against \d+\)",
        ),
        (
            BUFFER,
            "6.17,6.18",
            r"page states differ: process_receive_buffers before \(425984 against 2097152\)",
        ),
        (
            MEMORY,
            "6.12,6.17",
            r"page states differ: process_anon_huge_kb \w+ \([1-9]\d+ against 0\)",
        ),
        (
            SPARSE,
            "6.17,6.18",
            r"page states differ: .*memory_shmem_huge_kb \w+ \(0 against [1-9]\d+\)",
        ),
    ],
)
def test_state_that_only_one_kernel_has_forbids_a_verdict(
    text: str, kernels: str, differ: str
) -> None:
    done = ran(text, kernels, "--rounds", "1")
    assert re.search(f"INVALID: {differ}", " ".join(done.output.split()))
