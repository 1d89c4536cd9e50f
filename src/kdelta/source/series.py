# SPDX-License-Identifier: GPL-2.0-or-later
"""A patch series, however it comes: a mailbox, patch files, or commits of a repository.

Its text is a stranger's: it is read within bounds, printed only after `printable`, and never run.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from kdelta import cache
from kdelta.errors import SpecError
from kdelta.printable import printable
from kdelta.source import git, patches, tree
from kdelta.source.patches import PatchMail
from kdelta.source.tree import SourceTree

MOST = 200
_MOST_TEXT = 256 << 10
_BASE = re.compile(r"^base-commit:\s*([0-9a-f]{12,64})\s*$", re.MULTILINE | re.IGNORECASE)
_LONGEST = 200
_NAMED = 6
_DOS = re.compile(rb"(?:[^\n]*\r\n)+")  # every line ends as they do on DOS
_BY_NUMBER = (
    "The patches are applied in the order of their numbers (1/2 before 2/2), not in that of their"
    " files."
)
_LEFT_OUT = re.compile(rb"^Binary files .+ differ\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesStep:
    """One patch: its title, what its author wrote, and the source with it and all before it.

    tree: None where it does not apply, and `wrong` says why.
    """

    title: str
    text: str
    tree: SourceTree | None
    wrong: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSeries:
    """cover: the cover letter's text; own: it is commits of the user's own repository.

    order: a sentence where its patches are not in the order in which they were given.
    """

    title: str
    cover: str
    base: SourceTree
    steps: tuple[SeriesStep, ...]
    own: bool
    order: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Letter:
    """A patch.  number, total: as its subject says; 0 where that says nothing."""

    title: str
    text: str
    patch: bytes
    number: int = 0
    total: int = 0


def base_commit(files: Sequence[Path]) -> str:
    """The base-commit that a cover letter or patch names, or ""."""
    for file in files:
        if found := _BASE.search(_content(file).decode(errors="replace")):
            return found[1]
    return ""


def of_files(files: Sequence[Path], base: SourceTree) -> PatchSeries:
    """The series in mailboxes and patch files, on a base.

    Raises SpecError for one that is empty or not whole; a patch that does not apply is a step that
    says so, and so are those after it.
    """
    home = git.repository()
    with cache.writing(home), tempfile.TemporaryDirectory(dir=home, prefix="scratch-") as name:
        cover, given = _letters(files, Path(name))
        letters = in_order(given) if len(files) > 1 else given
        steps: list[SeriesStep] = []
        now: SourceTree | None = base
        with patches.applying(base.tree, borrowed=base.objects) as apply:
            for at, letter in enumerate(letters, start=1):
                own = _step(letter, now, Path(name) / f"{at}.applied", f"patch {at}", apply)
                step = replace(own, tree=own.tree and _called(own.tree, base, at))
                steps.append(step)
                now = step.tree
    title = cover.partition("\n")[0] if cover else letters[0].title
    return PatchSeries(
        title=title[:_LONGEST],
        cover=cover,
        base=base,
        steps=tuple(steps),
        own=False,
        order="" if letters == given else _BY_NUMBER,
    )


def of_commits(repository: Path, words: str, base: SourceTree | None) -> PatchSeries:
    """The commits of a range (A..B), or of a branch since it left `base`, oldest first.

    Raises SpecError for a name that the repository does not have, and for no commits.
    """
    old, dots, new = words.partition("..")
    new = new.strip(".") or "HEAD" if dots else words
    tip = tree.of_commit(repository, new)
    root = tip.objects
    start = tree.of_commit(repository, old) if dots else base
    if start is None or not start.commit:
        raise SpecError(
            f"{words} is a branch, and its base is no commit",
            action="name a range, A..B, or a base as TREE@COMMIT",
        )
    merge = git.run("merge-base", start.commit, tip.commit, borrowed=root, check=False)
    begin = merge.stdout.strip() or start.commit
    listed = git.run(
        "rev-list", "--reverse", "--no-merges", f"--max-count={MOST + 1}",
        f"{begin}..{tip.commit}", borrowed=root, check=False,
    )  # fmt: skip
    ids = listed.stdout.split()
    _check_count(len(ids), words)
    steps = []
    for commit in ids:
        said = git.run("show", "-s", "--format=%s%n%n%b", commit, borrowed=root).stdout
        title, _, text = said.partition("\n")
        found = tree.of_commit(repository, commit)
        steps.append(SeriesStep(title=_line(title), text=_text(text), tree=found))
    first = tree.of_commit(repository, begin)
    title = steps[0].title if len(steps) == 1 else f"{len(steps)} commits, {words}"
    return PatchSeries(title=title[:_LONGEST], cover="", base=first, steps=tuple(steps), own=True)


def _letters(files: Sequence[Path], folder: Path) -> tuple[str, list[_Letter]]:
    """The cover letter's title and text, and the patches in order."""
    cover, found = "", []
    for at, file in enumerate(files):
        place = folder / str(at)
        place.mkdir()
        if not _is_mail(file):
            found.append(_Letter(title=_line(file.stem), text="", patch=_of_file(file)))
            continue
        box = place / "box"
        box.write_bytes(_as_mailbox(_content(file)))
        mails = [mail for mail in map(patches.mail_of, patches.split(box, place)) if mail]
        letter = next((mail for mail in mails if mail.total and not mail.number), None)
        if letter and not cover:
            cover = f"{_line(letter.title)}\n{_words(letter)}"
        own = [mail for mail in mails if mail.patch and (mail.number or not mail.total)]
        if len(files) == 1 or len(own) > 1:
            own = list(patches.in_order(file, own))
        found += [
            _Letter(
                title=_line(mail.title or file.stem),
                text=_words(mail),
                patch=mail.patch.read_bytes(),
                number=mail.number if mail.total > 1 else 0,
                total=mail.total if mail.total > 1 else 0,
            )
            for mail in own
            if mail.patch
        ]
    _check_count(len(found), ", ".join(file.name for file in files[:3]))
    return cover, found


def in_order(given: Sequence[_Letter]) -> list[_Letter]:
    """Patches of several files by the numbers of their subjects, where these are of one series.

    Raises SpecError where numbers contradict the given order and could be meant in two ways.
    """
    numbered = [each for each in given if each.total]
    numbers = [(each.total, each.number) for each in numbered]
    if len({total for total, _ in numbers}) == 1 and len(set(numbers)) == len(numbers):
        if numbers == sorted(numbers):
            return list(given)
        if len(numbered) == len(given):
            return sorted(given, key=lambda each: each.number)
    elif all(_follows(*pair) for pair in pairwise(numbers)):
        return list(given)
    said = ", ".join(f"{each.number}/{each.total}" for each in numbered[:_NAMED])
    more = ", ..." if len(numbered) > _NAMED else ""
    raise SpecError(
        f"the patches are not given in the order that their subjects number: {said}{more}",
        action="name the files of one series, or all in the order in which they apply",
    )


def _follows(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """True where a patch, as (total, number), is a later one of the series before or begins one."""
    (total, number), (its_total, its_number) = one, other
    if total == its_total and number < total:
        return its_number > number
    return its_number == 1


def _step(
    letter: _Letter,
    now: SourceTree | None,
    file: Path,
    name: str,
    apply: Callable[[Sequence[Path], str], str],
) -> SeriesStep:
    step = SeriesStep(
        title=letter.title, text=letter.text, tree=None, wrong="the one before it does not"
    )
    if now is None:
        return step
    if _LEFT_OUT.search(letter.patch):
        return replace(step, wrong="of a binary file it says that it differs, and not how")
    file.write_bytes(letter.patch)
    try:
        changed = apply([file], name)
    except SpecError as error:
        return replace(step, wrong=error.cause)
    return replace(step, tree=replace(now, tree=changed), wrong="")


def _called(changed: SourceTree, base: SourceTree, at: int) -> SourceTree:
    """The tree with a name that does not grow with the series."""
    name = f"patches-1-to-{at}" if at > 1 else "patch-1"
    return replace(changed, commit="", variants=(*base.variants, name))


def _as_mailbox(content: bytes) -> bytes:
    """A mailbox of what may be one message as a mail program saves it."""
    return (
        content if content.startswith(b"From ") else b"From - Thu Jan 1 00:00:00 1970\n" + content
    )


def _words(mail: PatchMail) -> str:
    return _text(mail.text.read_text(encoding="utf-8", errors="replace")[:_MOST_TEXT])


def _text(text: str) -> str:
    return "\n".join(printable(line, 1000) for line in text.splitlines()[:4000])


def _line(text: str) -> str:
    return printable(" ".join(text.split()), _LONGEST) or "no subject"


def _is_mail(file: Path) -> bool:
    head = _content(file)[:4096]
    return head.startswith(b"From ") or re.match(rb"(?:[A-Za-z-]+: .*\r?\n)+", head) is not None


def _of_file(file: Path) -> bytes:
    """A patch that is no mail; one whose every line ends as on DOS was only saved so."""
    content = _content(file)
    return content.replace(b"\r\n", b"\n") if _DOS.fullmatch(content) else content


def _content(file: Path) -> bytes:
    patches.check_size(file)
    return file.read_bytes()


def _check_count(count: int, place: str) -> None:
    if not count:
        raise SpecError("it holds no patch", place=place, action="name a series that has some")
    if count > MOST:
        raise SpecError(f"it holds more than {MOST} patches", place=place, action="name a part")
