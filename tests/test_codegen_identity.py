# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the executed code of two images is the same."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import kernel_image
from kdelta.disassembly import identity, image
from kdelta.disassembly.identity import Sameness


def call(place: int, to: int) -> bytes:
    return b"\xe8" + struct.pack("<i", to - (place + 5)) + b"\xc3"


def made(tmp_path: Path, name: str, *, constant: int = 1, extra: bytes = b"", callee: str = "leaf",
         leaf: bytes = b"\xc3") -> image.Image:  # fmt: skip
    """`hot` loads a constant and calls a function that comes after it."""
    load = b"\xb8" + struct.pack("<I", constant)
    before = b"\xff\xc0" * 16 + extra
    at_hot = kernel_image.BASE + len(before) + (-len(before) % 16)
    at_leaf = at_hot + 16
    path = tmp_path / name
    path.write_bytes(
        kernel_image.kernel(
            [
                ("t", "before", before),
                ("T", "hot", load + call(at_hot + 5, at_leaf)),
                ("t", callee, leaf),
            ]
        )
    )
    return image.opened(path, name)


def test_the_same_code_at_other_addresses_is_identical(tmp_path: Path) -> None:
    one, other = made(tmp_path, "one"), made(tmp_path, "other", extra=b"\x90" * 160)
    found = identity.compare(one, other, ["hot", "[user]"])
    assert found.sameness is Sameness.IDENTICAL
    assert found.identical == ("hot", "leaf")
    prints = [identity.fingerprint(i, identity.watched(i, ["hot"])) for i in (one, other)]
    assert prints[0] == prints[1]
    assert prints[0].digests


@pytest.mark.parametrize(
    ("change", "different", "only"),
    [
        ({"constant": 2}, ("hot",), ()),  # an offset into a structure is such a constant
        ({"leaf": b"\x90\xc3"}, ("leaf",), ()),  # not executed itself, but called
        ({"callee": "other_leaf"}, ("hot",), ("leaf", "other_leaf")),
    ],
)
def test_other_code_is_different(
    tmp_path: Path, change: dict[str, object], different: tuple[str, ...], only: tuple[str, ...]
) -> None:
    one = made(tmp_path, "one")
    other = made(tmp_path, "other", **change)  # type: ignore[arg-type]
    found = identity.compare(one, other, ["hot"])
    assert found.sameness is Sameness.DIFFERENT
    assert (found.different, found.only) == (different, only)


def test_code_that_was_not_executed_does_not_matter(tmp_path: Path) -> None:
    one, other = made(tmp_path, "one"), made(tmp_path, "other", extra=b"\xc3")
    assert identity.compare(one, other, ["hot"]).sameness is Sameness.IDENTICAL
    assert identity.compare(one, other, ["hot", "before"]).sameness is Sameness.DIFFERENT


def test_what_neither_image_has_is_unknown(tmp_path: Path) -> None:
    one, other = made(tmp_path, "one"), made(tmp_path, "other")
    found = identity.compare(one, other, ["hot", "module_function"])
    assert found.sameness is Sameness.UNKNOWN
    assert list(found.unknown) == ["module_function"]
    assert identity.fingerprint(one, ["module_function"]).digests == {}


def test_string_instructions_belong_to_their_function(tmp_path: Path) -> None:
    one, other = made(tmp_path, "one"), made(tmp_path, "other")
    found = identity.compare(one, other, ["rep movsb in hot", "[user]"])
    assert found.sameness is Sameness.IDENTICAL
    assert found.identical == ("hot", "leaf")


def test_of_a_dispatcher_only_what_ran_counts(tmp_path: Path) -> None:
    """Two kernels with the same table of calls, of which one function differs."""
    images = []
    for name, last in (("one", b"\xc3"), ("other", b"\x90\xc3")):
        count = identity.DISPATCHED + 1
        first = kernel_image.BASE + 16 * (5 * count // 16 + 2)
        calls = b"".join(
            call(kernel_image.BASE + 5 * at, first + 16 * at)[:5] for at in range(count)
        )
        parts = [("T", "table", calls.ljust(first - kernel_image.BASE, b"\x90"))]
        parts += [("t", f"entry_{at}", b"\xc3") for at in range(count - 1)]
        path = tmp_path / name
        path.write_bytes(kernel_image.kernel([*parts, ("t", "entry_last", last)]))
        images.append(image.opened(path, name))
    one, other = images
    assert len(set(one.function("table").calls)) == identity.DISPATCHED + 1
    assert identity.compare(one, other, ["table"]).sameness is Sameness.IDENTICAL
    ran = identity.compare(one, other, ["table", "entry_last"])
    assert (ran.sameness, ran.different) == (Sameness.DIFFERENT, ("entry_last",))


def test_nothing_executed_is_not_identity(tmp_path: Path) -> None:
    one, other = made(tmp_path, "one"), made(tmp_path, "other")
    assert identity.compare(one, other, ["[user]"]).sameness is Sameness.UNKNOWN
