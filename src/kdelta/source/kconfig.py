# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel configurations: our fragments or a user's file, and what of it was not granted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta import cache, data
from kdelta.errors import SpecError
from kdelta.files import given, path_of

DEFAULT = "deb"
# Every name stands on those before it: the base that boots, what distributions add.
_FRAGMENTS = {
    "min": ("kd-min",),
    "deb": ("kd-min", "kd-deb"),
    "xenpv": ("kd-min", "kd-deb", "kd-xenpv"),
    "ftrace": ("kd-min", "kd-deb", "kd-ftrace"),
}
# What a build of any of Debian's own configurations needs programs or headers for.
DEBIANS = frozenset({"DEBUG_INFO_BTF", "SYSTEM_TRUSTED_KEYRING"})
_EVERYWHERE = ("min", "deb", "ftrace")  # other architectures have these, too
_SET = re.compile(r"CONFIG_(\w{1,120})=(.{1,4000})")
_UNSET = re.compile(r"# CONFIG_(\w{1,120}) is not set")
_MOST_BYTES = 4 << 20
# What a configuration says of the tools it was made with: nobody asks for it.
_OF_TOOLS = re.compile(
    r"(?:CC|GCC|CLANG|AS|LD|LLD|RUSTC|RUST|BINDGEN|PAHOLE)_(?:\w+_)?(?:VERSION|HAS|IS|CAN)(?:_\w+)?"
)
# A whole configuration of a distribution names keys that only its builders have.
_KEYS = ("SYSTEM_TRUSTED_KEYS", "SYSTEM_REVOCATION_KEYS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is asked of a configuration: options on top of tinyconfig, or a whole one.

    options: value by name without CONFIG_; "n" stands for "is not set".  flags: more of the
    compiler, for objects alone.
    """

    name: str  # "deb", "xenpv+ftrace", "distro.config"
    options: Mapping[str, str]
    whole: bool
    flags: tuple[str, ...] = ()

    @property
    def enabled(self) -> frozenset[str]:
        """The options that are to be built in, without CONFIG_."""
        return frozenset(name for name, value in self.options.items() if value == "y")

    @property
    def digest(self) -> str:
        """Says all that is asked."""
        rows = (f"{key}={value}" for key, value in sorted(self.options.items()))
        return cache.digest("whole" if self.whole else "tiny", *rows, *self.flags)

    def text(self, base: str = "") -> str:
        """A .config: base's options and, after them, what is asked for.

        Of the options of a choice Kconfig takes the last one that is set.
        """
        kept = {key: value for key, value in parse(base).items() if key not in self.options}
        return "".join(f"{_line(*row)}\n" for row in (kept | dict(self.options)).items())

    def lost(self, result: str) -> tuple[str, ...]:
        """What was asked for and is not in a resulting .config, as lines of a configuration."""
        got = parse(result)
        return tuple(
            _line(key, value)
            for key, value in self.options.items()
            if got.get(key, "n") != value and not _OF_TOOLS.fullmatch(key)
        )


def _line(key: str, value: str) -> str:
    return f"# CONFIG_{key} is not set" if value == "n" else f"CONFIG_{key}={value}"


def named(
    names: Sequence[str] = (DEFAULT,), fragments: Sequence[Path] = (), *, target: str = "amd64"
) -> Config:
    """The configuration of these names (min, deb, xenpv, ftrace) or of one .config file.

    fragments: files whose options are added.  target: the architecture; of another than amd64
    its own fragment comes last of ours.  Raises SpecError for what is neither, and for names that
    mean nothing on that architecture.
    """
    if target != "amd64" and set(names) - set(_EVERYWHERE):
        raise SpecError(
            f"configuration {'+'.join(names)} is of amd64, not of {target}",
            action=f"choose from {', '.join(_EVERYWHERE)}",
        )
    own = [name for name in names if name in _FRAGMENTS]
    files = [name for name in names if name not in _FRAGMENTS]
    if (own and files) or len(files) > 1:
        raise SpecError(
            f"a whole configuration stands alone: {', '.join(names)}",
            action="add options to one with fragment=FILE",
        )
    options: dict[str, str] = {}
    for file in files:
        path = path_of(file)
        if "/" not in file and not path.is_file():
            raise SpecError(
                f"unknown configuration {file}",
                action=f"choose from {', '.join(_FRAGMENTS)}, or name a .config file",
            )
        own_options = parse(_read(path))
        options |= own_options | {key: '""' for key in _KEYS if key in own_options}
    wanted = dict.fromkeys(part for name in own for part in _FRAGMENTS[name])
    if target != "amd64":
        wanted[f"kd-{target}"] = None
    for part in wanted:
        options |= parse(_read(data.directory("kconfig") / f"{part}.config"))
    for path in fragments:
        options |= parse(_read(path))
    label = "+".join([*own, *(Path(file).name for file in files), *(p.name for p in fragments)])
    return Config(name=label, options=options, whole=bool(files))


def parse(text: str) -> dict[str, str]:
    """Options of a configuration or fragment; the last line of several wins."""
    options = {}
    for line in map(str.strip, text.splitlines()):
        if match := _SET.fullmatch(line):
            options[match[1]] = match[2]
        elif unset := _UNSET.fullmatch(line):
            options[unset[1]] = "n"
    return options


def _read(path: Path) -> str:
    action = "name a .config or a fragment"
    text = given(path, _MOST_BYTES, action, "the configuration").decode(errors="replace")
    if not parse(text):
        raise SpecError("the file sets no option", place=str(path), action=action)
    return text
