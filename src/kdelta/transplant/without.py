# SPDX-License-Identifier: GPL-2.0-or-later
"""A release without an option, in the functions that ran: what the option costs them.

docs/source.md says how, and what stays the release's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kdelta import options
from kdelta.archive.apt import Progress
from kdelta.disassembly import option_code
from kdelta.disassembly.image import Image, opened
from kdelta.disassembly.relocatable import FUNCTION
from kdelta.errors import SpecError
from kdelta.kernels.image import transplanted
from kdelta.kernels.kernel import Kernel
from kdelta.printable import few, meant
from kdelta.source import build, kconfig
from kdelta.source.make import Make
from kdelta.transplant import engine, objects, wide
from kdelta.transplant.difference import COLD
from kdelta.transplant.graft import Patched

_READ = re.compile(rb"include/config/(\w+)")
_WHOLE = "build it whole: tree:deb:RELEASE+fragment=FILE, with # CONFIG_NAME is not set in it"
_SHOWN = 8  # functions that a sentence names


def left_out(ground: engine.Ground, words: Sequence[str]) -> tuple[str, ...]:
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
        if row is not None and row.kind is options.OptionKind.NONE:
            rows = ((one, options.option(one)) for one in on if one.startswith(f"{name}_"))
            below = [one for one, own in rows if own and own.kind is options.OptionKind.INSTRUMENT]
        if name not in on or not below:
            cause = f"{ground.kernel.version or ground.tree.name} is built without {name}"
            raise SpecError(cause, action=f"{meant(name, on)}name an option of its configuration")
        found += below
    return tuple(dict.fromkeys(found))


def without(
    ground: engine.Ground,
    words: Sequence[str],
    executed: Collection[str],
    *,
    reference: str = "",
    null: bool = False,
    progress: Progress | None = None,
) -> Kernel:
    """The release whose functions that ran are compiled without options.

    executed: names of functions; those that may keep the options are named behind its source.
    null: the same functions as the release has them.  Raises SpecError for options,
    NotTransplantedError when nothing is left to replace, InfraError.
    """
    off = left_out(ground, words)
    made = _Without(
        ground=ground, off=off, executed=frozenset(executed), null=null, progress=progress
    )
    kernel = engine.kept(
        ground, ground.tree, [str(null), *off, "", *sorted(executed)], made.content,
        reference=reference, name="+".join((ground.tree.name, *(f"without={w}" for w in words))),
    )  # fmt: skip
    told = transplanted(kernel.image)
    if told is None or not told.kept:
        return kernel
    what = (
        f"{len(told.kept)} of {len(executed)} functions that ran may keep {', '.join(off)}, so its"
        f" cost is at least what is shown: {few(told.kept, _SHOWN)}"
    )
    return replace(kernel, source=f"{kernel.source}; {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Without:
    ground: engine.Ground
    off: tuple[str, ...]
    executed: frozenset[str]
    null: bool
    progress: Progress | None
    # Of objects that stay the release's: the reason, and what they define.
    why: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    # Functions that are the same with the options and without, and changed ones that stay.
    even: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    def content(self) -> bytes:
        """The image's file."""
        kernel = self.ground.kernel
        image = opened(kernel.image, kernel.release)
        with self.ground.opened(self.progress) as maker:
            ran = wide.having(maker, self.executed, image, self.progress)
            wanted = [name for name in ran if engine.is_c(maker, name)]
        with self.ground.opened(self.progress, self.off) as maker:
            new = self._compiled(maker, wanted)
            got = (maker.output / ".config").read_text(errors="replace")
        with self.ground.opened(self.progress) as maker:
            now = (maker.output / ".config").read_text(errors="replace")
            apart = self._apart(kconfig.parse(now), kconfig.parse(got))
            parts = list(self._parts(maker, image, new, apart))
            if not parts:
                why = next(
                    (why for why, _ in self.why.values()), "no function that ran has its code"
                )
                cause = (
                    f"{self.ground.tree.name} cannot be had without {', '.join(self.off)}: {why}"
                )
                raise objects.NotTransplantedError(cause, action=_WHOLE)
            told = engine.contents(kernel, parts, [*self._kept(image, parts)])
            return engine.joined(maker, kernel, image, parts, told, null=self.null)

    def _compiled(self, maker: Make, wanted: Sequence[str]) -> dict[str, bytes]:
        """Objects without the options, as far as they compile."""
        objects.made(maker, dict.fromkeys(wanted, False), self.progress)
        there = [name for name in wanted if (maker.output / name).exists()]
        for name in there:
            if "objtool" in build.saved_command(maker.output, name):
                raise objects.cannot(f"{name} is made in another way without {self.off[0]}")
        return {name: engine.read(maker.output / name) for name in there}

    def _apart(self, now: Mapping[str, str], got: Mapping[str, str]) -> frozenset[str]:
        """The options in which the two configurations differ."""
        for name in self.off:
            if not options.flag(name) and got.get(name, "n") != "n":
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
            now, other = (engine.normals(one) for one in (engine.read(path), content))
            if read := apart.intersection(map(bytes.decode, _READ.findall(note))):
                why = f"{name} reads {min(read)}, so its structures may be others"
                self.why[name] = why, frozenset(now.functions)
                continue
            try:
                part = engine.patched(name, now, other, image, one_source=True)
            except objects.NotTransplantedError as error:
                self.why[name] = error.cause, frozenset(now.functions)
                continue
            symbols, same = part.new.own.symbols, part.difference.same
            self.even.update(symbols[at].name for at in same if symbols[at].kind == FUNCTION)
            left = part.difference.left
            self.left.update(left, (f"{function}{COLD}" for function in left))
            if self.executed & _settled(part):
                yield part

    def _kept(self, image: Image, parts: Sequence[Patched]) -> Iterator[str]:
        """The functions that ran, are not replaced, and may have the options' code."""
        rows = [options.option(name) for name in self.off]
        codes = {row.code for row in rows if row}
        patterns = option_code.known(codes - {""}, self.ground.kernel.arch)
        unsure = frozenset[str]().union(*(defined for _, defined in self.why.values()))
        settled = self.even.union(*map(_settled, parts)) - unsure - self.left
        left = sorted(self.executed - settled)
        if len(patterns) < len(codes):
            yield from left
            return
        found = option_code.of_functions(image, left, patterns)
        yield from (name for name in left if found[name] != {})


def _settled(part: Patched) -> set[str]:
    """The functions of an object that no longer run as the image has them."""
    found = part.difference
    kept = {part.new.own.symbols[index].name for index in found.kept}
    return kept.union(found.gone)
