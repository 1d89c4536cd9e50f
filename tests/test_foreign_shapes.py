# SPDX-License-Identifier: GPL-2.0-or-later
"""Shapes of tables whose settings, percentiles or arms are easily lost: none is read wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_shapes as shapes

_EVERY = [*shapes.READ, *shapes.EITHER, *shapes.ASKED]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", _EVERY, ids=lambda maker: maker.__name__)
def test_a_shape_is_read_as_it_was_made(maker: shapes.Maker, seed: int, tmp_path: Path) -> None:
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    if maker in shapes.READ:
        assert how == "read"
    if maker in shapes.ASKED:
        assert how == "asked"
    assert shapes.cells(found) <= shapes.everything(shape)
    assert shapes.cells(found) >= shapes.wanted(shape)
