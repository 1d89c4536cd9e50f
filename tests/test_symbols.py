# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel symbols: from the guest's text to functions, and through the cache."""

from __future__ import annotations

import shutil
import time

import pytest

from kdelta import cache
from kdelta.attribution import symbols
from kdelta.errors import GuestError
from kdelta.run import guest_trial

IMAGE = "2ac533a36b0c5107527166716414a4d04b00f7108e419df2084ca5aec268d1ff"
MANY = 1500


def kallsyms(*more: str) -> str:
    lines = [f"{0xFFFFFFFF81000000 + 64 * at:x} t function_{at}" for at in range(MANY)]
    return "\n".join([*lines, *more]) + "\n"


def test_find_gives_function_and_offset() -> None:
    table = symbols.parse(kallsyms())
    assert table.find(0xFFFFFFFF81000000) == ("function_0", 0)
    assert table.find(0xFFFFFFFF8100007F) == ("function_1", 63)
    assert table.find(0xFFFFFFFF80FFFFFF)[0] == "[unknown]"


def test_what_lies_behind_the_last_function_is_in_none() -> None:
    """A BPF program, or a module that was loaded since, is not credited to the kernel's last."""
    end = 0xFFFFFFFF81000000 + 64 * MANY
    bpf = 0xFFFFFFFFC0200000
    last = f"function_{MANY - 1}"
    bounded = symbols.parse(kallsyms(f"{end + 8:x} R __start_rodata", f"{end + 16:x} D jiffies"))
    assert bounded.find(end + 7) == (last, 71)
    assert {bounded.find(at)[0] for at in (end + 8, end + 16, bpf)} == {"[unknown]"}
    endless = symbols.parse(kallsyms())
    assert endless.find(end + 100) == (last, 164)
    assert endless.find(bpf)[0] == "[unknown]"


def test_code_behind_data_is_known_again() -> None:
    at = 0xFFFFFFFF83000000
    lines = [f"{at:x} D __init_begin", f"{at:x} T _sinittext", f"{at + 64:x} d initcall"]
    table = symbols.parse(kallsyms(f"{at - 64:x} B counter", *lines, f"{at + 96:x} t late"))
    shown = [table.find(at + offset) for offset in (-1, 0, 63, 64, 96)]
    unknown = "[unknown]"
    assert [name for name, _ in shown] == [unknown, "_sinittext", "_sinittext", unknown, "late"]
    assert table.with_modules("").find(at + 64) == shown[3]


def test_data_that_may_be_executed_are_data() -> None:
    """Linux 6.17 has T for what lies in .data."""
    at = 0xFFFFFFFF83000000
    lines = (f"{at:x} T _sdata", f"{at:x} T vm_zone_stat", f"{at + 64:x} T _edata")
    table = symbols.parse(kallsyms(f"{at - 64:x} D __start_rodata", *lines, f"{at + 99:x} t init"))
    assert {table.find(at + offset)[0] for offset in (0, 63, 64, 98)} == {"[unknown]"}
    assert table.find(at + 99)[0] == "init"


def test_a_module_ends_too() -> None:
    at = 0xFFFFFFFFC0000000
    table = symbols.parse(kallsyms(f"{at - 64:x} R __start_rodata"))
    more = table.with_modules(f"{at:x} t zram_open [zram]\n{at + 64:x} d __this_module [zram]\n")
    assert table.find(at)[0] == "[unknown]"
    assert more.find(at + 63) == ("zram_open", 63)
    assert more.find(at + 64)[0] == "[unknown]"


def test_data_modules_and_compiler_padding() -> None:
    at = 0xFFFFFFFFA0000000
    table = symbols.parse(
        kallsyms(
            f"{at:x} D some_data", f"{at + 16:x} T __pfx_wanted", f"{at + 32:x} T wanted",
            f"{at + 64:x} t of_a_module [virtio_console]", f"{at + 96:x} W weak_one",
        )
    )  # fmt: skip
    assert table.find(at + 33) == ("wanted", 1)
    assert table.find(at + 64) == ("of_a_module", 0)
    assert table.find(at + 97) == ("weak_one", 1)
    assert "some_data" not in table.names
    assert "__pfx_wanted" not in table.names


@pytest.mark.parametrize(
    ("names", "winner"),
    [
        (("t local", "T global"), "global"),
        (("T __x64_sys_mincore", "T sys_mincore"), "sys_mincore"),
        (("t longer_name", "t short"), "short"),
        (("T __softirqentry_text_end", "T __x86_indirect_thunk_rax"), "__x86_indirect_thunk_rax"),
        (("t bb", "t aa"), "aa"),
    ],
)
def test_one_name_an_address(names: tuple[str, ...], winner: str) -> None:
    lines = [f"ffffffffa0000000 {name}" for name in names]
    for order in (lines, lines[::-1]):
        assert symbols.parse(kallsyms(*order)).find(0xFFFFFFFFA0000000) == (winner, 0)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "hold 0 usable functions"),
        (kallsyms("what is this"), f"line {MANY + 1} of the guest's symbols is garbage"),
        (kallsyms("ffffffff81 T a\x1b[2J b"), "is garbage"),
        (kallsyms("0000000000000000 T hidden"), "usable functions"),
        ("\n".join(kallsyms().splitlines()[:500]), "hold 500 usable functions"),
    ],
)
def test_what_is_no_symbol_table_is_refused(text: str, cause: str) -> None:
    with pytest.raises(GuestError, match=cause):
        symbols.parse(text)


def test_a_function_at_the_end_of_all_addresses() -> None:
    table = symbols.parse(kallsyms(f"{(1 << 64) - 8:x} T last"))
    assert table.find((1 << 64) - 8) == ("last", 0)


def test_the_cache_asks_once() -> None:
    asked = []

    def fetch() -> str:
        asked.append(1)
        return kallsyms()

    first = guest_trial.load_symbols(IMAGE, fetch)
    assert guest_trial.load_symbols(IMAGE, fetch) == first == symbols.parse(kallsyms())
    assert len(asked) == 1


@pytest.mark.parametrize("name", ["starts", "names"])
@pytest.mark.parametrize("damage", ["cut", "garbage", "gone"])
def test_a_damaged_table_is_asked_for_again(damage: str, name: str) -> None:
    whole = guest_trial.load_symbols(IMAGE, kallsyms)
    (kept,) = cache.entries("symbols")
    path = kept / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-24])
    elif damage == "garbage":
        path.write_bytes(b"\x00\xff" * 100)
    else:
        shutil.rmtree(path.parent)
    assert guest_trial.load_symbols(IMAGE, kallsyms) == whole


def test_two_images_have_their_own_symbols_whatever_their_guests_say() -> None:
    first = guest_trial.load_symbols(IMAGE, kallsyms)
    other = guest_trial.load_symbols("0" * 64, lambda: kallsyms("ffffffffa0000000 T another"))
    assert guest_trial.load_symbols(IMAGE, kallsyms) == first
    assert "another" in other.names
    assert "another" not in first.names


def test_a_large_table_is_read_in_a_moment() -> None:
    """160,000 lines of kallsyms, which take 0.25 s to parse, are not parsed again."""
    lines = [
        f"{0xFFFFFFFF82000000 + 16 * at:x} t a_name_of_some_length_{at}" for at in range(160_000)
    ]
    text = kallsyms(*lines)
    whole = guest_trial.load_symbols(IMAGE, lambda: text)
    took = []
    for _ in range(5):
        began = time.process_time()
        again = guest_trial.load_symbols(IMAGE, kallsyms)
        assert again.find(whole.starts[-1] + 4) == (whole.names[-1], 4)
        took.append(time.process_time() - began)
    assert again == whole
    assert min(took) < 0.02
