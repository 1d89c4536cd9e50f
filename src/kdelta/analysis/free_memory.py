# SPDX-License-Identifier: GPL-2.0-or-later
"""Which paths depend on the memory that was free when they ran, and by how much."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kdelta.sample import FunctionCount

# It moved counts by up to 1 % between seeds, and has a part in both arms (docs/determinism.md).
UNSEEN_PERCENT = 2.0
# The page allocator, slabs that get or give back pages or objects by batches.
_OF_MEMORY = re.compile(
    r"get_page_from_freelist|_*rmqueue|_*free_unref_|_*free_frozen_page|free_pcppages"
    r"|_*free_one_page|__free_pages_ok|_*alloc_pages_bulk|___slab_alloc|allocate_slab|new_slab"
    r"|__slab_free|_*kmem_cache_free_bulk|_*get_partial_node|put_cpu_partial|_*unfreeze_partials"
    r"|__put_partials|__pcs_replace_|_*refill_(?:objects|sheaf)|barn_"
)
_OF_RANDOM = re.compile("chacha")  # numbers, by batches, unless each call makes its own


def takes_memory(functions: Iterable[FunctionCount], operations: int) -> bool:
    """True for a path that takes or gives back memory, or random numbers, by batches.

    functions: of the windows that stand for it; operations: of all these windows.
    """
    return any(
        _OF_MEMORY.match(row.function)
        or (_OF_RANDOM.match(row.function) and row.calls < operations)
        for row in functions
    )
