# SPDX-License-Identifier: GPL-2.0-or-later
"""Orders to PID 1 and its answers, also cut off and garbled: a guest may send anything."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_qemu import IDENTITY
from kdelta.errors import GuestError
from kdelta.guests import orders
from kdelta.machine.axes import Lacking, MachineSettings

RAN = b"printed\nkdelta-answer 0 5\nmore\n"  # a program may print what looks like an answer
TOLD = (orders.Order("identity"), orders.Order("seed 1"), orders.run(["--x", "1"]))
SAID = (
    b"kdelta-answer 0 %d\n" % len(IDENTITY)
    + IDENTITY.encode()
    + b"kdelta-answer 0 0\nkdelta-answer 3 %d\n" % len(RAN)
    + RAN
)
GREETING = b"kdelta-ready 2 1 %d\n" % len(IDENTITY) + IDENTITY.encode()


@pytest.mark.parametrize("before", [b"", GREETING])
def test_answers_follow_their_orders(before: bytes) -> None:
    found = orders.answers(TOLD, before + SAID)
    assert found.text("seed 1") == ""
    assert found.ran() == (RAN.decode(), 3)
    assert found.identity(MachineSettings()).seen.cpus == 1
    with pytest.raises(GuestError, match="did not answer 'kallsyms'"):
        found.text("kallsyms")


def test_settings_are_written_read_back_and_may_be_refused() -> None:
    settings = MachineSettings(thp="never")
    write, read, identity = orders.of_settings(settings)
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    assert (write.line, read.line) == (f"write {path} never", f"read {path}")
    with pytest.raises(Lacking, match=f"does not take 'never' in {path}: No such file"):
        orders.answers((write, read, identity), b"kdelta-answer %d 0\n" % errno.ENOENT)
    read_back = b"always madvise [never]\n"
    head = b"kdelta-answer 0 0\nkdelta-answer 0 %d\n" % len(read_back)
    said = head + read_back + b"kdelta-answer 0 %d\n" % len(IDENTITY) + IDENTITY.encode()
    found = orders.answers((write, read, identity), said).identity(settings)
    assert found.files == {path: "always madvise [never]"}


@given(st.integers(min_value=0, max_value=len(SAID) - 1))
def test_an_answer_that_is_cut_off_is_none(length: int) -> None:
    assert len(orders.answers(TOLD, SAID[:length]).answered) < len(TOLD)


@given(st.binary(max_size=300))
def test_garbage_is_no_answer(garbage: bytes) -> None:
    assert orders.answers(TOLD, b"x" + garbage).answered == ()
    assert orders.greeting(b"x" + garbage) is None


@given(st.integers(min_value=0, max_value=len(GREETING) - 1))
def test_a_greeting_that_is_not_whole_is_waited_for(length: int) -> None:
    assert orders.greeting(GREETING[:length]) is None
    assert orders.greeting(GREETING)


def test_an_order_that_no_kernel_fails_is_the_guests_fault() -> None:
    with pytest.raises(GuestError, match="cannot do 'identity': No such file"):
        orders.answers(TOLD, b"kdelta-answer 2 0\n")
