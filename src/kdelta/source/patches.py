# SPDX-License-Identifier: GPL-2.0-or-later
"""Patches applied to git trees, in the index only: no file of a source is touched.

A patch is what `git apply` takes without fuzz; a mailbox, a series in the order of its numbers.
Its text is a stranger's: it is read within bounds, printed only after `printable`, and never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.generator import BytesGenerator
from email.message import Message
from email.policy import compat32
from functools import partial
from itertools import pairwise
from pathlib import Path

from kdelta import process
from kdelta.errors import SpecError
from kdelta.files import given, mail_of
from kdelta.printable import printable
from kdelta.source import git, tree
from kdelta.source.tree import SourceTree

MOST = 200
_MOST_BYTES = 64 << 20
_MOST_MAILS = 500
_NAME_ONE = "name a patch or a mailbox"
_MOST_TEXT = 256 << 10
_LONGEST = 200
_NAMED = 6
_HTML = "text/html"
_MAIL = re.compile(rb"From |[A-Za-z-]+: .*\n")
_SUBJECT = re.compile(r"\[(?=[^\]]*PATCH)([^\]]*)\]", re.IGNORECASE)
_NUMBER = re.compile(r"\b(\d+)/(\d+)\b")
_REVISION = re.compile(r"\bv(\d{1,3})\b", re.IGNORECASE)
_FAILED = re.compile(r"^error: (?:patch failed: )?(.+)$", re.MULTILINE)
_BASE = re.compile(r"^base-commit:\s*([0-9a-f]{12,64})\s*$", re.MULTILINE | re.IGNORECASE)
_CHANGES = re.compile(
    rb"^(?:@@ -|(?:rename|copy) to |(?:old|new file|deleted file) mode |GIT binary patch)", re.M
)
# What no patch of a kernel has: its compilers and git would take it for what it says.
_NEVER = {
    rb"^Binary files .+ differ\r?$": "of a binary file it says that it differs, and not how",
    rb"^\*\*\* \d+(?:,\d+)? \*\*\*\*\r?$": "a part of it is a context diff, which git leaves out",
    rb"^@@ [^@\n]*\d{10}": "a hunk has a number that no file has lines for",
    rb"^(?:old|new|(?:new|deleted) file) mode (?!(?:100644|100755|120000)\r?$)\d"
    rb"|^index \w+\.\.\w+ (?!100644|100755|120000)": "a file has a mode that no kernel has",
    rb"^(?:diff --git|---|\+\+\+|(?:rename|copy) (?:from|to)) (?:.*[\0-\x08\v\f\x0e-\x1f\x7f]"
    rb'|.*"[^"\n]*\\(?:[abtnvfr]|0[0-3]|177))': "a file's name has a control character",
    rb'^\+(?:\s*#\s*include\s*["<]|.*\.incbin\s*\\?")/': "it includes a file outside the source",
}
_BY_NUMBER = (
    "The patches are applied in the order of their numbers (1/2 before 2/2), not in that of their"
    " files."
)
Apply = Callable[[Sequence[Path]], str]
"""Applies patch files to what it made before; the tree id.  Raises SpecError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchMail:
    """A patch or a letter: one message of a mailbox, or a file.  text: what its author wrote.

    total 0: its subject has no [PATCH].  number 0: a cover letter.  patch: empty where it has none.
    """

    title: str
    text: str
    patch: Path
    number: int = 1
    total: int = 0
    revision: int = 1


def applied(
    tree: str,
    files: Sequence[Path],
    *,
    borrowed: Path | None = None,
    name: str = "",
    undone: bool = False,
) -> str:
    """The tree id after applying patch files in order; undone: after taking them back.

    What the tree's own repository has is taken back below later changes.  Raises SpecError, naming
    file and line.
    """
    with applying(tree, borrowed=borrowed, name=name, undone=undone) as apply:
        return apply(files)


@contextmanager
def _edited(tree: str, borrowed: Path | None) -> Iterator[Callable[..., process.Completed]]:
    """git with an index of its own that holds a tree."""
    with git.scratch_index() as index:
        run = partial(git.run, index=index, borrowed=borrowed)
        run("read-tree", tree)
        yield run


@contextmanager
def applying(
    tree: str, *, borrowed: Path | None = None, name: str = "", undone: bool = False
) -> Iterator[Apply]:
    """What applies patches to a tree, whose reading takes as long as ten patches of a kernel."""
    with _edited(tree, borrowed) as run:

        def apply(files: Sequence[Path]) -> str:
            paths = [str(file.absolute()) for file in files]
            back = ["--reverse", *["--3way"] * bool(borrowed)] if undone else []
            way = ("--cached", *back, "--whitespace=nowarn")
            done = run("apply", *way, *paths, check=False)
            if done.returncode or _FAILED.search(done.stderr):  # 0 for a part that is corrupt
                what = "cannot be undone" if undone else "does not apply"
                cause = f"the patch {what}: {_reason(done.stderr)}"
                place = name or ", ".join(file.name for file in files[:3])
                raise SpecError(cause, place=place, action="make it against this very source")
            return run("write-tree").told(git.ID)

        yield apply


@contextmanager
def of_commit(commit: str, objects: Path | None) -> Iterator[Path]:
    """What a commit changes, as a patch file.  Raises SpecError for a merge.

    objects: of its repository, which is only read.
    """
    parents = git.run("rev-list", "--parents", "-n1", "--end-of-options", commit,
                      borrowed=objects, check=False)  # fmt: skip
    ids = parents.stdout.split()
    if parents.returncode or len(ids) != 2:
        raise SpecError(
            f"{commit} is no patch: it is no commit with one parent of this repository",
            action="name a commit that is not a merge",
        )
    with git.scratch_folder() as folder:
        patch = folder / f"{ids[0][:12]}.patch"
        how = ("-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv")
        git.run("diff-tree", *how, f"--output={patch}", ids[1], ids[0], borrowed=objects)
        yield patch


def replaced(tree: str, path: str, file: Path, *, borrowed: Path | None) -> str:
    """The tree id after replacing one file of it by another's content.  Raises SpecError."""
    _content(file)
    entry = git.run("ls-tree", tree, "--", path, borrowed=borrowed).stdout.split()
    if len(entry) != 4 or entry[1] != "blob":
        raise SpecError(
            f"the source has no file {path}", action="name a file of it, for example mm/mincore.c"
        )
    made = git.run("hash-object", "-w", "--no-filters", "--", str(file.absolute()))
    with _edited(tree, borrowed) as run:
        run("update-index", "--cacheinfo", f"{entry[0]},{made.told(git.ID)},{path}")
        return run("write-tree").told(git.ID)


def quilt(folder: Path) -> tuple[Path, ...]:
    """The patch files that a quilt folder's series names, in order.  Raises SpecError."""
    found = []
    for line in _content(folder / "series").decode(errors="replace").splitlines():
        for name in line.partition("#")[0].split()[:1]:
            path = (folder / name).resolve()
            if not path.is_relative_to(folder.resolve()) or not path.is_file():
                raise SpecError(f"the series names {name}, which is not there")
            found.append(path)
    return tuple(found)


def _in_order(box: Path, mails: Sequence[PatchMail]) -> list[PatchMail]:
    tagged = [mail for mail in mails if mail.total]
    if not tagged and len(mails) == 1:
        return [*mails]  # what git format-patch -k writes
    revisions = sorted({mail.revision for mail in tagged})
    total = max((mail.total for mail in tagged), default=0)
    numbers = sorted({mail.number for mail in tagged})
    if not tagged:
        raise _bad(box, "no patch in plain text")
    if len(revisions) > 1:
        raise _bad(box, f"several revisions: v{', v'.join(map(str, revisions))}")
    if total > 1 and numbers != list(range(1, total + 1)):
        raise _bad(box, f"patches {', '.join(map(str, numbers))} of {total}")
    return sorted(tagged, key=lambda mail: mail.number)


def _split(box: Path, folder: Path, file: Path) -> list[PatchMail]:
    """The mails of a mailbox, a copy of file, without answers.  One without a subject has the title
    of the file.
    """
    with box.open("rb") as stream:
        count = sum(line.startswith(b"From ") for line in stream)
    if count > _MOST_MAILS:
        raise _bad(file, f"{count} messages")
    done = git.run("mailsplit", f"-o{folder}", "--", str(box.absolute()), check=False)
    if done.returncode:
        said = done.last_words.replace(str(box.absolute()), file.name)
        raise _bad(file, f"what git does not understand ({said})")
    parts = sorted(each for each in folder.iterdir() if each.name.isdecimal())
    return [mail for each in parts if (mail := _mail(each, file))]


def _bad(box: Path, what: str) -> SpecError:
    return SpecError(
        f"the mailbox holds {what}",
        place=str(box),
        action="save one whole series, for example with: b4 am",
    )


def _numbered(tag: str, box: Path) -> tuple[int, int]:
    """(number, total) of a subject's tag.  Raises SpecError for what no series has."""
    if (found := _NUMBER.search(tag)) is None:
        return 1, 1
    number, total = int(found[1][:9]), int(found[2][:9])
    if not number <= total < 10_000 or not total:
        raise _bad(box, f"a patch {printable(found[0], 40)}, which no series has")
    return number, total


def _mail(message: Path, file: Path) -> PatchMail | None:
    """What one message is; None for an answer and for what is no mail."""
    patch, text = message.with_suffix(".patch"), message.with_suffix(".text")
    plain = _without_html(message)
    if plain is None:
        return None
    with plain.open("rb") as stream:
        done = git.run("mailinfo", "-k", "-n", "--quoted-cr=strip", str(text), str(patch),
                       stdin=stream, check=False)  # fmt: skip
    if done.returncode:
        return None
    found = re.search(r"^Subject: (.*)$", done.stdout, re.MULTILINE)
    subject = " ".join(found[1].split()) if found else ""
    if subject.lower().startswith("re:"):
        return None
    tag = _SUBJECT.match(subject)
    number, total = _numbered(tag[1], file) if tag else (1, 0)
    revision = _REVISION.search(tag[1]) if tag else None
    return PatchMail(
        title=_line(_SUBJECT.sub("", subject, count=1).strip() or subject or file.stem),
        text=_text(text.read_text(encoding="utf-8", errors="replace")[:_MOST_TEXT]),
        patch=patch,
        number=number,
        total=total,
        revision=int(revision[1]) if revision else 1,
    )


def _without_html(message: Path) -> Path | None:
    """The message, or one beside it without its parts of HTML; None for what cannot be taken apart.

    Such a part repeats the patch, and escapes it: git would take both for one text.
    """
    text = message.read_bytes()
    if b"text/html" not in text.lower():
        return message
    try:
        mail = mail_of(text)
        if mail.get_content_type() == _HTML:
            mail.set_payload("")
        for part in mail.walk():
            parts = part.get_payload()
            if part.is_multipart() and isinstance(parts, list):
                mails = [one for one in parts if isinstance(one, Message)]
                part.set_payload([one for one in mails if one.get_content_type() != _HTML])
        plain = message.with_suffix(".plain")
        with plain.open("wb") as stream:
            BytesGenerator(stream, mangle_from_=False, policy=compat32).flatten(mail, unixfrom=True)
    except (ValueError, LookupError):
        return None
    return plain


def _reason(stderr: str) -> str:
    match = _FAILED.search(stderr)
    return (match[1] if match else stderr.strip().partition("\n")[0] or "git says nothing")[:200]


@dataclass(frozen=True, slots=True)
class SeriesStep:
    """A patch, and the source with it and those before."""

    title: str
    text: str
    tree: SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSeries:
    """cover: the cover letter's text; own: it is commits of the user's own repository.

    order: a sentence where its patches are not in the order in which they were given.
    """

    title: str
    base: SourceTree
    steps: tuple[SeriesStep, ...]
    cover: str = ""
    own: bool = False
    order: str = ""

    def changes(self) -> Iterator[str]:
        """Of each patch the lines that it changes, as a diff without context."""
        for old, new in pairwise([self.base, *(step.tree for step in self.steps)]):
            words = ("diff-tree", "-r", "-U0", "--no-ext-diff", "--no-textconv", "--no-renames")
            yield git.run(*words, old.tree, new.tree, borrowed=new.objects).stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesMails:
    """A series as it was sent, before anything is known of its base."""

    title: str
    cover: str
    letters: tuple[PatchMail, ...]
    order: str
    base_commit: str  # that the cover letter or a patch names, or ""

    def on(self, base: SourceTree) -> PatchSeries:
        """The series on a base.  Raises SpecError for the first patch that does not apply."""
        steps: list[SeriesStep] = []
        with applying(base.tree, borrowed=base.objects) as apply:
            for letter, place in _placed(self.letters):
                at, before = len(steps) + 1, steps[-1].tree if steps else base
                try:
                    changed = apply([letter.patch])
                except SpecError as error:
                    action = f"make it against {base.title}, or name its own source: --base"
                    if "corrupt patch" in error.cause:  # git's words, whatever the base
                        action = "make it anew with git format-patch"
                    raise SpecError(error.cause, place=place, action=action) from error
                if changed == before.tree:
                    raise SpecError("it changes nothing", place=place, action="leave it out")
                # A name that does not grow with the series.
                names = *base.variants, f"patches-1-to-{at}" if at > 1 else "patch-1"
                now = replace(base, tree=changed, commit="", variants=names)
                steps.append(SeriesStep(letter.title, letter.text, now))
        return PatchSeries(
            title=self.title, cover=self.cover, base=base, steps=tuple(steps), order=self.order
        )


@contextmanager
def reading(files: Sequence[Path]) -> Iterator[SeriesMails]:
    """The series in mailboxes and patch files, while the context lasts.

    Raises SpecError for one that is empty or not whole.
    """
    with git.scratch_folder() as folder:
        cover, given = _letters(files, folder)
        letters = _by_number(given) if len(files) > 1 else given
        for letter, place in _placed(letters):
            _check(letter.patch.read_bytes(), place)
        bases = (_BASE.search(_content(file).decode(errors="replace")) for file in files)
        yield SeriesMails(
            title=(cover.partition("\n")[0] if cover else letters[0].title)[:_LONGEST],
            cover=cover,
            letters=tuple(letters),
            order="" if letters == given else _BY_NUMBER,
            base_commit=next((found[1] for found in bases if found), ""),
        )


def _placed(letters: Sequence[PatchMail]) -> Iterator[tuple[PatchMail, str]]:
    for at, letter in enumerate(letters, start=1):
        yield letter, f"patch {at} of {len(letters)}, {letter.title}"


def _check(text: bytes, place: str) -> None:
    """Raise SpecError for what changes nothing, or changes what no patch of a kernel does."""
    for pattern, cause in _NEVER.items():
        if found := re.search(pattern, text, re.MULTILINE):
            line = _line(text[found.start() :].partition(b"\n")[0].decode(errors="replace"))
            action = "take that out, or make it anew with: git format-patch --binary"
            raise SpecError(f"{cause}: {line}", place=place, action=action)
    if not _CHANGES.search(text):
        raise SpecError("it holds no patch", place=place, action=_NAME_ONE)


def of_commits(repository: Path, words: str, base: SourceTree | None) -> PatchSeries:
    """The commits of a range (A..B), or of a branch since `base`, in order.  Raises SpecError."""
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
        steps.append(SeriesStep(_line(title), _text(text), found))
    first = tree.of_commit(repository, begin)
    title = steps[0].title if len(steps) == 1 else f"{len(steps)} commits, {words}"
    return PatchSeries(title=title[:_LONGEST], base=first, steps=tuple(steps), own=True)


def _letters(files: Sequence[Path], folder: Path) -> tuple[str, list[PatchMail]]:
    """The cover letter's title and text, and the patches in order."""
    cover, found = "", []
    for at, file in enumerate(files):
        place = folder / str(at)
        place.mkdir()
        box, text = place / "box", _content(file)
        if not _MAIL.match(text, 0, 4096):
            # One whose every line ends as on DOS was only saved so.
            dos = text.endswith(b"\r\n") and text.count(b"\n") == text.count(b"\r\n")
            box.write_bytes(text.replace(b"\r\n", b"\n") if dos else text)
            found.append(PatchMail(title=_line(file.stem), text="", patch=box))
            continue
        # One message as a mail program saves it is a mailbox without its first line.
        start = b"" if text.startswith(b"From ") else b"From - Thu Jan 1 00:00:00 1970\n"
        box.write_bytes(start + text)
        mails = _split(box, place, file)
        letter = next((mail for mail in mails if mail.total and not mail.number), None)
        if letter and not cover:
            cover = f"{letter.title}\n{letter.text}"
        full = [mail for mail in mails if mail.patch.stat().st_size]
        own = [mail for mail in full if mail.number or not mail.total]
        found += _in_order(file, own) if len(files) == 1 or len(own) > 1 else own
    _check_count(len(found), ", ".join(file.name for file in files[:3]))
    return cover, found


def _by_number(given: list[PatchMail]) -> list[PatchMail]:
    """Patches of several files by the numbers of their subjects, where these are of one series.

    Raises SpecError where numbers contradict the given order and could be meant in two ways.
    """
    numbered = [each for each in given if each.total > 1]
    numbers = [(each.total, each.number) for each in numbered]
    if len({total for total, _ in numbers}) == 1 and len(set(numbers)) == len(numbers):
        if numbers == sorted(numbers):
            return given
        if len(numbered) == len(given):
            return sorted(given, key=lambda each: each.number)
    elif all(_follows(*pair) for pair in pairwise(numbers)):
        return given
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


def _text(text: str) -> str:
    return "\n".join(printable(line, 1000) for line in text.splitlines()[:4000])


def _line(text: str) -> str:
    return printable(" ".join(text.split()), _LONGEST) or "no subject"


def _content(file: Path) -> bytes:
    """Raises SpecError for a file that cannot be a patch."""
    if found := given(file, _MOST_BYTES, _NAME_ONE, "the file"):
        return found
    raise SpecError("the file is empty", place=str(file), action=_NAME_ONE)


def _check_count(count: int, place: str) -> None:
    if not count:
        raise SpecError("it holds no patch", place=place, action="name a series that has some")
    if count > MOST:
        raise SpecError(f"it holds more than {MOST} patches", place=place, action="name a part")
