# SPDX-License-Identifier: GPL-2.0-or-later
"""Which files describe one session, and how several sessions are kept apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from kdelta.foreign.record import ArmFacts, Contents, ForeignReading, Pairs

SET = "set"
_MAIN = "main"


def set_of(name: str) -> str:
    """Folder, and STEM of a file STEM.KIND.csv: files of one set describe one session."""
    folder, _, base = name.rpartition("/")
    stem = base.rpartition(".")[0].rpartition(".")[0]
    return "/".join(part for part in (folder, stem) if part)


def apart(names: Sequence[str], arms: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Which set each table belongs to.

    names: of tables with one head line.  Of those in one folder, the ones with an arm in common
    are different sessions, each a set of its own.  Tables that only hold one arm each, all
    different, are the arms of one session, wherever they lie.
    """
    every = [arm for name in names for arm in arms[name]]
    if len(names) > 1 and len(every) == len(set(every)) == len(names):
        return dict.fromkeys(names, "")
    return {
        name: name.rpartition(".")[0]
        if any(
            arms[name] & arms[other]
            for other in names
            if other != name and set_of(other) == set_of(name)
        )
        else set_of(name)
        for name in names
    }


def labelled(found: Mapping[str, Contents]) -> tuple[Contents, ...]:
    """The contents of each set; when several of them speak, their groups say which is which."""
    speaking = [
        name for name, part in found.items() if part.readings or part.published or part.audited
    ]
    if len(speaking) < 2:
        return tuple(found.values())
    return tuple(_at(part, name or _MAIN) for name, part in found.items())


def _at(part: Contents, name: str) -> Contents:
    def at(group: Pairs) -> Pairs:
        return ((SET, name), *group)

    return replace(
        part,
        readings=tuple(
            msgspec.structs.replace(item, group=at(item.group)) for item in part.readings
        ),
        published=tuple(replace(item, group=at(item.group)) for item in part.published),
        audited=tuple(replace(item, group=at(item.group)) for item in part.audited),
        arms=tuple(replace(item, group=at(item.group)) for item in part.arms),
        rules=tuple(replace(item, group=at(item.group)) for item in part.rules),
    )


def each_once(contents: Contents) -> Contents:
    """Where two tables of a set list the values of an arm, keep those that tell more."""
    chosen: list[ForeignReading] = []
    notes: list[str] = []
    alike: dict[tuple[str, Pairs, str], dict[int, list[ForeignReading]]] = {}
    for item in contents.readings:
        key = (item.arm, item.group, item.metric)
        alike.setdefault(key, {}).setdefault(item.source, []).append(item)
    for by_source in alike.values():
        best, *others = sorted(by_source.values(), key=_detail)
        chosen += best
        values = sorted(item.value for item in best if item.value is not None)
        notes += [
            f"{best[0].arm}: two tables list different values of {best[0].metric}; those with"
            " more detail are used"
            for items in others
            if sorted(item.value for item in items if item.value is not None) != values
        ]
    return replace(
        contents,
        readings=tuple(chosen),
        arms=tuple(_used(contents.arms)),
        notes=(*contents.notes, *notes),
    )


def _used(arms: Sequence[ArmFacts]) -> Iterator[ArmFacts]:
    """What was repeated as the tables say that know: one that does not say does not count."""
    known = {(item.arm, item.group) for item in arms if item.replicate}
    for item in arms:
        bare = not (item.facts or item.details or item.role or item.replicate or item.planned)
        if not (bare and (item.arm, item.group) in known):
            yield item


def _detail(items: Sequence[ForeignReading]) -> tuple[bool, int, int]:
    """Sorts first what tells most: a known order, a line for each value, many values."""
    return (
        any(item.position is None for item in items),
        -len({item.line for item in items}),
        -len(items),
    )


def told_apart(homes: Sequence[str]) -> dict[str, str]:
    """Each set by what tells it from the others: its last folder, else what paths do not share."""
    names = list(dict.fromkeys(homes))
    last = [name.rpartition("/")[2] for name in names]
    if len(set(last)) == len(last):
        return dict(zip(names, last, strict=True))
    parts = [name.split("/") for name in names]
    shortest = min(map(len, parts))
    start = next((at for at in range(shortest) if len({one[at] for one in parts}) > 1), shortest)
    rest = [one[start:] for one in parts]
    while all(len(one) > 1 for one in rest) and len({one[-1] for one in rest}) == 1:
        rest = [one[:-1] for one in rest]
    cut = ["/".join(one) for one in rest]
    return dict(zip(names, cut if all(cut) and len(set(cut)) == len(cut) else names, strict=True))
