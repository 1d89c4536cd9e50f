# SPDX-License-Identifier: GPL-2.0-or-later
"""The one door to HTML: templates that lie beside this module, in which all text is escaped."""

from __future__ import annotations

import base64
import functools
import hashlib
from typing import TYPE_CHECKING

from kdelta.printable import printable

if TYPE_CHECKING:
    from jinja2 import Environment, Template


class Asset(str):
    """A page's own style or script, which goes in as it is: nothing of a run is in it.

    digest: its SHA-256 as a Content-Security-Policy names it (W3C CSP Level 3, 2.3.1).
    """

    __slots__ = ()

    @property
    def digest(self) -> str:
        """In base64."""
        return base64.b64encode(hashlib.sha256(self.encode()).digest()).decode()

    def __html__(self) -> str:
        return str(self)


def template(name: str) -> Template:
    """A template by its file's name."""
    return _environment().get_template(name)


def asset(name: str) -> Asset:
    """A style or script by its file's name."""
    return Asset(template(name).render())


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("kdelta.rendering", ""),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _printable(value: object) -> object:
    """Text that came from elsewhere; what a template's own macros made stays as it is."""
    return printable(value) if type(value) is str else value
