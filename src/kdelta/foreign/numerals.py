# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers as patterns: as programs print them, as tables have them, and as people group them."""

from __future__ import annotations

PRINTED = r"\d+(?:\.\d+)?"  # 12, 12.5
POWERED = rf"{PRINTED}(?:[eE][-+]?\d{{1,4}})?"  # 1.2e+06 as well
PLAIN = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?"  # -3, .5, 5., 1e9
GROUPED = r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?"  # 1,234.5 as well
