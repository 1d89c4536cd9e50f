# SPDX-License-Identifier: GPL-2.0-or-later
"""Patches applied to git trees, in the index only: no file of a source is touched.

A patch is what `git apply` takes without fuzz.  A mailbox is a series as people send it: its
patches are applied in the order of their numbers; cover letters and answers are left out.
"""

from __future__ import annotations

import email
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.generator import BytesGenerator
from email.message import Message
from email.policy import compat32
from pathlib import Path

from kdelta.errors import SpecError
from kdelta.source import git

_MOST_BYTES = 64 << 20
_MOST_MAILS = 500
_HTML = "text/html"
_SUBJECT = re.compile(r"\[(?=[^\]]*PATCH)([^\]]*)\]", re.IGNORECASE)
_NUMBER = re.compile(r"\b(\d{1,4})/(\d{1,4})\b")
_REVISION = re.compile(r"\bv(\d{1,3})\b", re.IGNORECASE)
_FAILED = re.compile(r"^error: (?:patch failed: )?(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchMail:
    """One message of a mailbox, with the files that it was taken apart into.

    total 0: its subject has no [PATCH].  number 0: a cover letter.  patch: None where it has none.
    """

    subject: str
    number: int
    total: int
    revision: int
    text: Path
    patch: Path | None

    @property
    def title(self) -> str:
        """The subject without its tag."""
        return _SUBJECT.sub("", self.subject, count=1).strip() or self.subject


def applied(
    tree: str, files: Sequence[Path], *, borrowed: Path | None = None, name: str = ""
) -> str:
    """The tree id after applying patch files in order; borrowed: where its objects lie.

    Raises SpecError, naming file and line, when one does not apply.
    """
    with applying(tree, borrowed=borrowed) as apply:
        return apply(files, name)


@contextmanager
def applying(
    tree: str, *, borrowed: Path | None = None
) -> Iterator[Callable[[Sequence[Path], str], str]]:
    """What applies patch files to a tree and to what it made of it before, as applied() does.

    Reading a tree of a kernel takes as long as ten patches of it.
    """
    with git.scratch_index() as index:
        git.run("read-tree", tree, index=index, borrowed=borrowed)

        def apply(files: Sequence[Path], name: str) -> str:
            for file in files:
                check_size(file)
            done = git.run(
                "apply", "--cached", "--whitespace=nowarn",
                *(str(file.absolute()) for file in files),
                index=index, borrowed=borrowed, check=False,
            )  # fmt: skip
            if done.returncode:
                what = name or ", ".join(file.name for file in files[:3])
                raise SpecError(
                    f"the patch does not apply: {_reason(done.stderr)}",
                    place=what,
                    action="make it against this very source",
                )
            return git.run("write-tree", index=index, borrowed=borrowed).stdout.strip()

        yield apply


def reverted(tree: str, commit: str, *, borrowed: Path | None) -> str:
    """The tree id after taking back a commit's change.

    Raises SpecError when there is no such commit or its change cannot be taken back.
    """
    parents = git.run("rev-list", "--parents", "-n1", "--end-of-options", commit,
                      borrowed=borrowed, check=False)  # fmt: skip
    ids = parents.stdout.split()
    if parents.returncode or len(ids) != 2:
        raise SpecError(
            f"{commit} cannot be reverted: it is no commit with one parent of this repository",
            action="name a commit that is not a merge",
        )
    with git.scratch_index() as index:
        patch = index.with_name("revert.patch")
        git.run("diff-tree", "-p", "--binary", "--full-index", f"--output={patch}", ids[1], ids[0],
                borrowed=borrowed)  # fmt: skip
        git.run("read-tree", tree, index=index, borrowed=borrowed)
        done = git.run("apply", "--reverse", "--cached", "--3way", "--whitespace=nowarn",
                       str(patch), index=index, borrowed=borrowed, check=False)  # fmt: skip
        if done.returncode:
            raise SpecError(
                f"the change of {ids[0][:12]} cannot be taken back: {_reason(done.stderr)}",
                action="revert it by hand in a branch and name that commit",
            )
        return git.run("write-tree", index=index, borrowed=borrowed).stdout.strip()


def replaced(tree: str, path: str, content: Path, *, borrowed: Path | None) -> str:
    """The tree id after replacing one file of it by another file's content.

    Raises SpecError when the tree has no such file or the other cannot be read.
    """
    check_size(content)
    entry = git.run("ls-tree", tree, "--", path, borrowed=borrowed).stdout.split()
    if len(entry) != 4 or entry[1] != "blob":
        raise SpecError(
            f"the source has no file {path}", action="name a file of it, for example mm/mincore.c"
        )
    blob = git.run(
        "hash-object", "-w", "--no-filters", "--", str(content.absolute())
    ).stdout.strip()
    with git.scratch_index() as index:
        git.run("read-tree", tree, index=index, borrowed=borrowed)
        git.run("update-index", "--cacheinfo", f"{entry[0]},{blob},{path}",
                index=index, borrowed=borrowed)  # fmt: skip
        return git.run("write-tree", index=index, borrowed=borrowed).stdout.strip()


def quilt(folder: Path) -> tuple[Path, ...]:
    """The patch files that a quilt folder's series names, in order.  Raises SpecError."""
    found = []
    for line in (folder / "series").read_text(errors="replace").splitlines():
        name = line.partition("#")[0].split()
        if name:
            path = (folder / name[0]).resolve()
            if not path.is_relative_to(folder.resolve()) or not path.is_file():
                raise SpecError(f"the series names {name[0]}, which is not there")
            found.append(path)
    return tuple(found)


def messages(box: Path, folder: Path) -> tuple[Path, ...]:
    """The patches of a mailbox, written into `folder` one by one, in the order of the series.

    Raises SpecError when it holds none, several revisions, or not all of the series.
    """
    return tuple(mail.patch for mail in series(box, folder) if mail.patch)


def series(box: Path, folder: Path) -> tuple[PatchMail, ...]:
    """The same with subjects and texts."""
    return in_order(box, [mail for mail in map(mail_of, split(box, folder)) if mail and mail.patch])


def in_order(box: Path, mails: Sequence[PatchMail]) -> tuple[PatchMail, ...]:
    """The patches among mails in the order of their series; raises as `messages` does."""
    tagged: Sequence[PatchMail] = [mail for mail in mails if mail.total]
    if not tagged and len(mails) == 1:
        tagged = mails  # what git format-patch -k writes
    revisions = sorted({mail.revision for mail in tagged})
    total = max((mail.total for mail in tagged), default=0)
    numbers = sorted({mail.number for mail in tagged})
    wrong = ""
    if not tagged:
        wrong = "no patch in plain text"
    elif len(revisions) > 1:
        wrong = f"several revisions: v{', v'.join(map(str, revisions))}"
    elif total > 1 and numbers != list(range(1, total + 1)):
        wrong = f"patches {', '.join(map(str, numbers))} of {total}"
    if wrong:
        raise _bad(box, wrong)
    return tuple(sorted(tagged, key=lambda mail: mail.number))


def split(box: Path, folder: Path) -> list[Path]:
    """The messages of a mailbox, each in a file."""
    check_size(box)
    with box.open("rb") as stream:
        count = sum(line.startswith(b"From ") for line in stream)
    if count > _MOST_MAILS:
        raise _bad(box, f"{count} messages")
    done = git.run("mailsplit", f"-o{folder}", "--", str(box.absolute()), check=False)
    if done.returncode:
        raise _bad(box, f"what git does not understand ({done.last_words})")
    return sorted(each for each in folder.iterdir() if each.name.isdecimal())


def _bad(box: Path, what: str) -> SpecError:
    return SpecError(
        f"the mailbox holds {what}",
        place=str(box),
        action="save one whole series, for example with: b4 am",
    )


def mail_of(message: Path) -> PatchMail | None:
    """What one message is; None for an answer and for what is no mail."""
    patch, text = message.with_suffix(".patch"), message.with_suffix(".text")
    plain = _without_html(message)
    if plain is None:
        return None
    with plain.open("rb") as stream:
        done = git.run(
            "mailinfo", "-k", "-n", "--quoted-cr=strip", str(text), str(patch),
            stdin=stream, check=False,
        )  # fmt: skip
    if done.returncode:
        return None
    found = re.search(r"^Subject: (.*)$", done.stdout, re.MULTILINE)
    subject = " ".join(found[1].split()) if found else ""
    if subject.lower().startswith("re:"):
        return None
    tag = _SUBJECT.match(subject)
    number = _NUMBER.search(tag[1]) if tag else None
    revision = _REVISION.search(tag[1]) if tag else None
    return PatchMail(
        subject=subject,
        number=int(number[1]) if number else 1,
        total=(int(number[2]) if number else 1) if tag else 0,
        revision=int(revision[1]) if revision else 1,
        text=text,
        patch=patch if patch.stat().st_size else None,
    )


def _without_html(message: Path) -> Path | None:
    """The message, or one beside it without its parts of HTML; None for what cannot be taken apart.

    Such a part repeats the patch, and escapes it: git would take both for one text.
    """
    content = message.read_bytes()
    if b"text/html" not in content.lower():
        return message
    try:
        mail = email.message_from_bytes(content, policy=compat32)
        if mail.get_content_type() == _HTML:
            mail.set_payload("")
        for part in mail.walk():
            parts = part.get_payload()
            if part.is_multipart() and isinstance(parts, list):
                part.set_payload([one for one in parts if _type(one) != _HTML])
        plain = message.with_suffix(".plain")
        with plain.open("wb") as stream:
            BytesGenerator(stream, mangle_from_=False, policy=compat32).flatten(mail, unixfrom=True)
    except (RecursionError, ValueError, LookupError):
        return None
    return plain


def _type(part: object) -> str:
    return part.get_content_type() if isinstance(part, Message) else ""


def is_mailbox(path: Path) -> bool:
    """True for a file that starts as mailboxes do (also what git format-patch writes)."""
    with path.open("rb") as stream:
        return stream.read(5) == b"From "


def check_size(file: Path) -> None:
    """Raise SpecError for a file that cannot be a patch."""
    try:
        size = file.stat().st_size
    except OSError as error:
        raise SpecError(
            f"the file cannot be read: {error.strerror}", place=str(file), action="name one that is"
        ) from error
    if not file.is_file():
        raise SpecError("it is no plain file", place=str(file), action="name a patch")
    if not 0 < size <= _MOST_BYTES:
        what = f"{size} bytes are no patch" if size else "the file is empty"
        raise SpecError(what, place=str(file), action="name a patch or a mailbox")


def _reason(stderr: str) -> str:
    match = _FAILED.search(stderr)
    return (match[1] if match else stderr.strip().partition("\n")[0] or "git says nothing")[:200]
