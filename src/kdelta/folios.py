# SPDX-License-Identifier: GPL-2.0-or-later
"""The folios that private anonymous memory can be in, other than base pages: a table.

A cell is a scenario in such folios.  Its name stands behind the scenario's, after a dot, and the
program knows it by that name (struct kd_cell of guest/kdelta.h): what is wanted of the pages is
written here and there, and the two must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FolioName = Literal["64K", "2M", "2M-ptes"]
_KIB = 4  # of a base page
_PMD_KIB = 2048
_TOLD = ("thp_pages", "thp_eligible", "dirty_kb")  # kernels differ in what they say there


@dataclass(frozen=True, slots=True)
class FolioCell:
    """kib: of a folio; by_ptes: mapped so; said, pages: for readers; needs: of the machine."""

    name: FolioName
    kib: int
    by_ptes: bool = False
    said: str = field(kw_only=True)
    pages: str = field(kw_only=True)
    needs: Mapping[str, str] = field(kw_only=True)

    @property
    def huge(self) -> bool:
        """True for what could be mapped as a whole."""
        return self.kib == _PMD_KIB

    def whole(self, pages: int) -> int:
        """So many base pages, rounded up to whole folios."""
        each = self.kib // _KIB
        return -(-pages // each) * each

    def wanted(self, wants: Mapping[str, str], pages: int) -> dict[str, str]:
        """A contract of base pages, changed for as many pages in folios."""
        folios = pages * _KIB // self.kib
        mapped = pages * _KIB if self.huge and not self.by_ptes else 0
        found = {name: want for name, want in wants.items() if name not in _TOLD}
        return found | {
            "compound_heads": str(folios),
            "compound_tails": str(pages - folios),
            "anon_huge_kb": str(mapped),
        }


def resized(want: str, old: int, new: int) -> str:
    """What is wanted of a fact when `old` base pages became `new`: these and KiB scale."""
    return {str(old * each): str(new * each) for each in (1, _KIB)}.get(want, want)


_SMALL, _HUGE = {"thp": "never", "mthp": "64kB=always"}, {"thp": "madvise"}
_PTES = "in huge pages that are mapped by PTEs"
_CELLS = (
    FolioCell("64K", 64, said="in folios of 64 KiB", pages="64K", needs=_SMALL),
    FolioCell("2M", _PMD_KIB, said="in huge pages", pages="2M", needs=_HUGE),
    FolioCell("2M-ptes", _PMD_KIB, by_ptes=True, said=_PTES, pages="PTE-mapped 2M", needs=_HUGE),
)
CELLS: dict[str, FolioCell] = {cell.name: cell for cell in _CELLS}
