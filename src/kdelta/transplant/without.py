# SPDX-License-Identifier: GPL-2.0-or-later
"""A release without an option, in the functions that ran: what the option costs them.

The objects of these functions are compiled as the package was, which must give the image's, and
again by the same source, compiler and configuration without the option.  The functions that differ
are put into the release.  An option that the text of an object names could change structures, so
such an object stays the release's.  What stays is named: then the difference is a lower bound.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from kdelta import cache, data, options
from kdelta.archive.apt import Progress
from kdelta.disassembly import option_code, relocatable
from kdelta.disassembly.image import Image, opened
from kdelta.elf import BadElf
from kdelta.errors import SpecError
from kdelta.kernels.image import transplanted
from kdelta.kernels.kernel import Kernel
from kdelta.options import OptionKind
from kdelta.printable import meant
from kdelta.source import build, kconfig
from kdelta.source.kconfig import Config
from kdelta.source.make import Make
from kdelta.transplant import engine, objects
from kdelta.transplant.difference import Normals
from kdelta.transplant.engine import Ground
from kdelta.transplant.graft import Patched
from kdelta.transplant.objects import NotTransplantedError
from kdelta.transplant.proof import Listing

_OWN = ("transplant", "disassembly", "options.py", "options.toml", "source/build.py")
_NAMED = re.compile(rb"include/config/(\w+)")
_SHOWN = 8  # functions that a sentence names


def left_out(ground: Ground, words: Sequence[str]) -> tuple[str, ...]:
    """The options that are off in a release without these.  A menu stands for the instruments below
    it.  Raises SpecError for one that the release is built without.
    """
    config = ground.kernel.config
    asked = kconfig.parse(config.read_text(errors="replace")) if config else {}
    on = [name for name, value in asked.items() if value == "y"]
    found = []
    for word in words:
        name = word.removeprefix("CONFIG_")
        row = options.option(name)
        below = [name]
        if row is not None and row.kind is OptionKind.NONE:
            rows = ((one, options.option(one)) for one in on if one.startswith(f"{name}_"))
            below = [one for one, own in rows if own and own.kind is OptionKind.INSTRUMENT]
        if name not in on or not below:
            cause = f"{ground.kernel.version or ground.tree.name} is built without {name}"
            raise SpecError(cause, action=f"{meant(name, on)}name an option of its configuration")
        found += below
    return tuple(dict.fromkeys(found))


def without(
    ground: Ground,
    words: Sequence[str],
    executed: Collection[str],
    *,
    reference: str = "",
    null: bool = False,
    progress: Progress | None = None,
) -> Kernel:
    """The release whose functions that ran are compiled without options.

    executed: names of functions.  null: the same functions as the release has them.  Raises
    SpecError for options, NotTransplantedError when nothing is left to replace, InfraError.
    """
    kernel, off = ground.kernel, left_out(ground, words)
    own = (path.read_bytes() for path in (*data.code(_OWN), *engine.sources()))
    key = cache.digest(
        kernel.image_sha256, kernel.config_sha256, ground.tree.tree,
        build.identity(ground.compiler), str(null), " ".join(off), " ".join(sorted(executed)), *own,
    )  # fmt: skip

    def fill(folder: Path) -> None:
        made = _Without(
            ground=ground, off=off, executed=frozenset(executed), null=null, progress=progress
        )
        (folder / "vmlinuz").write_bytes(made.content())

    place = cache.entry("transplants", key, fill) / "vmlinuz"
    return replace(
        kernel,
        reference=reference or kernel.reference,
        image=place,
        image_sha256=cache.recorded(place),
        name="+".join((ground.tree.name, *(f"without={word}" for word in words))),
        source=f"tree {ground.tree.tree}, configuration of {kernel.version}, transplanted",
    )


def said(kernel: Kernel, executed: Collection[str]) -> str:
    """What a kernel without an option still has of it, as a sentence; "" for nothing."""
    told = transplanted(kernel.image)
    if told is None or not told.kept:
        return ""
    more = f" and {len(told.kept) - _SHOWN} more" if len(told.kept) > _SHOWN else ""
    return (
        f"{len(told.kept)} of {len(executed)} functions that ran may keep it, so the difference is"
        f" a lower bound: {', '.join(told.kept[:_SHOWN])}{more}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Without:
    ground: Ground
    off: tuple[str, ...]
    executed: frozenset[str]
    null: bool
    progress: Progress | None
    why: dict[str, str] = field(default_factory=dict)  # of objects that stay the release's

    def content(self) -> bytes:
        """The image's file."""
        kernel = self.ground.kernel
        if kernel.config is None:
            raise objects.cannot(f"{kernel.package} holds no configuration")
        config = kconfig.named([str(kernel.config)])
        other = replace(config, options={**config.options, **dict.fromkeys(self.off, "n")})
        with self._prepared(other) as maker:
            new = self._compiled(maker)
            got = (maker.output / ".config").read_text(errors="replace")
        with self._prepared(config) as maker:
            now = (maker.output / ".config").read_text(errors="replace")
            apart = self._apart(kconfig.parse(now), kconfig.parse(got))
            engine.made(maker, dict.fromkeys(new, False), self.progress)
            image = opened(kernel.image, kernel.release)
            parts = list(self._parts(maker, image, new, apart))
            if not parts:
                raise self._nothing()
            told = engine.contents(kernel, parts)
            told = msgspec.structs.replace(told, kept=tuple(self._kept(image, parts)))
            return engine.joined(maker, kernel, image, parts, told, self.progress, null=self.null)

    def _prepared(self, config: Config) -> AbstractContextManager[Make]:
        tree, chain = self.ground.tree, self.ground.compiler
        return build.prepared(
            replace(tree, line=f"{tree.line}.objects"), config, chain,
            targets=(), progress=self.progress, only_objects=True,
        )  # fmt: skip

    def _compiled(self, maker: Make) -> dict[str, bytes]:
        """The objects that may have a function that ran, without the options."""
        wanted = objects.defining(self.executed, maker.source)
        engine.made(maker, dict.fromkeys(wanted, False), self.progress)
        found = {}
        for name in wanted:
            if not (maker.output / name).exists():
                continue
            if "objtool" in build.saved_command(maker.output, name):
                raise objects.cannot(f"{name} is made in another way without {self._options}")
            content = engine.read(maker.output / name)
            if any(symbol.name in self.executed for symbol in relocatable.read(content).symbols):
                found[name] = content
        return found

    def _apart(self, now: Mapping[str, str], got: Mapping[str, str]) -> frozenset[str]:
        """The options in which the two configurations differ."""
        for name in self.off:
            if got.get(name, "n") != "n":
                cause = f"{name} cannot be left out of {self.ground.tree.name}: others need it"
                raise SpecError(cause, action="name the options that need it, too")
        return frozenset(
            name for name in now.keys() | got.keys() if now.get(name, "n") != got.get(name, "n")
        )

    def _parts(
        self, maker: Make, image: Image, new: Mapping[str, bytes], apart: frozenset[str]
    ) -> Iterator[Patched]:
        """The objects in which a function that ran differs; of the others `why` says why not."""
        for name, content in new.items():
            path = maker.output / name
            note = path.with_name(f".{path.name}.cmd").read_bytes()
            if named := apart & {word.decode() for word in _NAMED.findall(note)}:
                self.why[name] = f"its text names {min(named)}"
                continue
            try:
                part = _part(name, engine.read(path), content, image)
            except (BadElf, NotTransplantedError) as error:
                self.why[name] = str(error)
                continue
            if self.executed & _settled(part):
                yield part

    def _kept(self, image: Image, parts: Sequence[Patched]) -> Iterator[str]:
        """The functions that ran, are not replaced, and may have the options' code."""
        rows = [options.option(name) for name in self.off]
        codes = {row.code for row in rows if row}
        patterns = option_code.known(codes - {""}, self.ground.kernel.arch)
        left = sorted(self.executed - set[str]().union(*map(_settled, parts)))
        if len(patterns) < len(codes):
            yield from left
            return
        found, unread = option_code.of_functions(image, left, patterns)
        yield from (name for name in left if found.get(name) or name in unread)

    @property
    def _options(self) -> str:
        return ", ".join(self.off)

    def _nothing(self) -> NotTransplantedError:
        reasons = dict.fromkeys(self.why.values())
        return objects.cannot(
            next(iter(reasons), f"no function that ran has code of {self._options}")
        )


def _part(name: str, now: bytes, other: bytes, image: Image) -> Patched:
    old, new = (Normals(Listing(relocatable.read(one))) for one in (now, other))
    return engine.patched(name, old, new, image, one_source=True)


def _settled(part: Patched) -> set[str]:
    """The functions of an object that no longer run as the image has them."""
    found = part.difference
    kept = {part.new.own.symbols[index].name for index in found.kept}
    return kept.union(found.gone)
