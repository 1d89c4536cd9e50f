# SPDX-License-Identifier: GPL-2.0-or-later
"""Lists of words, as one text."""

from __future__ import annotations


def vocabulary(text: str) -> tuple[str, ...]:
    """The words of a list that stands as one text."""
    return tuple(text.split())
