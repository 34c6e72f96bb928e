"""Take in the labels that are at hand: the names of folders, and tables.

The rules, each with a test:

1. What a person has said on the page stays.
2. A table counts more than a folder, and a later table more than an earlier one. A blank label takes the label
   of a folder away; "unsure" and "none of these" are answers, so that nobody need be asked again.
3. ``--labels`` replaces all labels at hand. Without it, folders are looked at again if they counted the last
   time, and the labels of tables stay.
4. A word of a folder, or of the same table, means the class that it meant when it was first read, whatever
   classes are called now, and into whatever that class was merged. A new word means the class of this name, or
   that had it last, or a new class.
5. Without ``--labels``, names of folders count if at least two look like classes, or if one was a label before.
6. Labels that come or go without a person are counted in what the command prints.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ledl.images import (
    REJECTED,
    UNSURE,
    content_key,
    find_table,
    is_answer,
    read_labels,
    shown,
    simplified,
)
from ledl.labelling._session import RefusedError, Session, alike
from ledl.labelling._store import BY, Answer, Change, Class
from ledl.text import without_joiners

# Folders whose images have no label, beside the answers of ledl predict.
NO_LABEL = {"unlabelled", "unlabeled", "unsorted"}
# Folders of cameras and dates, which are no classes: DCIM, 100CANON, 2023, 2023-01, 20230131.
NO_CLASS = re.compile(r"dcim|[1-9]\d\d[a-z_]{5}|(19|20)\d\d([-_. ]?\d\d){0,2}", re.IGNORECASE)


class Word(NamedTuple):
    """What a folder or a table calls an image."""

    name: str  # "" if it has no label any more
    view: str  # who says so, for the store
    source: str  # "folder", or the digest of a table


def take_labels(session: Session, labels: Sequence[str] | None, report: Callable[[str], None]) -> None:
    """Take in the labels of folders and tables that `labels` names, or those of the last time."""
    given = list(labels or [])
    kept = given or [word for word in session.store.get("labels").split("\n") if word]
    if "none" in given and len(given) > 1:
        raise RefusedError(
            "--labels none says that there are none. Leave out either --labels none, or the others."
        )
    wanted = words_at_hand(session, given, kept, report)
    has_old_tables = not given and bool({*kept} - {"folder", "none"})  # tables are read when they are given
    old = {i for i in range(session.n) if session.view[i] in BY}
    change = Change("labels at hand", [], [])
    ids = {alike(name): live for name, own in session.store.names() if (live := session.followed(own))}
    ids |= {alike(c.name): c.id for c in session.classes.values() if not c.gone}
    meant, new_words = session.store.words(), dict[str, int]()
    refused, n_withdrawn = Counter[str](), 0
    for i in sorted({*wanted, *old}):
        if session.view[i] not in ("", "undo", *BY) or (has_old_tables and session.view[i] == "table"):
            continue  # a person has said something else, or the table of an earlier time
        word = wanted.get(i, Word("", "undo", ""))
        key, skip = f"{word.source} {alike(word.name)}", is_answer(without_joiners(word.name))
        number = 0
        if skip:
            refused[f"The table calls them {UNSURE!r} or {REJECTED!r}."] += 1
        elif word.name:
            number = session.followed(meant[key]) if key in meant else 0
            if not number:  # else it keeps its first meaning: a merge may be undone
                number = ids.get(alike(word.name), 0)
                if not number:
                    try:
                        new = len(session.classes) + len(change.classes) + 1
                        change.classes.append(Class(new, session.checked_name(word.name)))
                        number = ids[alike(word.name)] = new
                    except RefusedError as error:
                        refused[str(error)] += 1
                if number:
                    new_words[key] = number
        if (number, skip, word.view) != (session.label[i], session.is_skipped[i], session.view[i]):
            n_withdrawn += bool(session.label[i]) and i not in wanted
            change.answers.append(Answer(session.images[i].id, number or None, skip, word.view))
    for text, n in refused.items():
        report(f"{n} images get no label. {text}")
    if n_withdrawn:
        report(f"{n_withdrawn} images lose the label of a folder or a table, which gives it no more.")
    settings = {f"word {word}": str(number) for word, number in new_words.items()}
    settings |= {"labels": "\n".join(given)} if given else {}
    if change.answers or change.classes:
        session.do("import", change, settings=settings)
    else:
        session.store.set(**settings)


def words_at_hand(
    session: Session, given: Sequence[str], kept: Sequence[str], report: Callable[[str], None]
) -> dict[int, Word]:
    """Return what folders, and the tables that are given now, call the images."""
    found: dict[int, Word] = {}
    if not kept or "folder" in kept:
        named, why = names_of_folders(session, is_asked="folder" in kept)
        found |= {i: Word(name, "folder", "folder") for i, name in named.items()}
        if named or why or kept:
            report(f"Labels from folders: {len(named)} images. {why}".strip())
    places = {image.path: i for i, image in enumerate(session.images)}
    for table in given:
        if table in ("folder", "none"):
            continue
        file = find_table(session.folder, table)
        digest, n_others = content_key(file), 0
        for path, label in read_labels(session.folder, file).items():
            i = places.get(str(path.relative_to(session.folder)))
            if i is None:
                n_others += 1
            else:
                found[i] = Word(label, "table", digest)
        if n_others:
            report(
                f"Rows of {shown(table)} for files that are not among the images of this folder: {n_others}."
            )
    return found


def names_of_folders(session: Session, *, is_asked: bool) -> tuple[dict[int, str], str]:
    """Return the names of the topmost folders of images, if they are classes, and a remark."""
    parts = [Path(image.path).parts for image in session.images]
    tops = {part[0] for part in parts if len(part) > 1 and simplified(part[0]) not in NO_LABEL}
    tops = {top for top in tops if not is_answer(top)}
    remark = ""
    if not is_asked:
        said = session.store.words()
        known = {top for top in tops if f"folder {alike(shown(top))}" in said}
        odd = {top for top in tops - known if NO_CLASS.fullmatch(top)}
        depths = Counter((part[0], len(part) > 2) for part in parts)
        deep = {top for top in tops - known - odd if depths[top, True] > depths[top, False]} if known else set()
        tops -= odd | deep
        is_deep = 2 * sum(len(part) > 2 for part in parts if part[0] in tops) > len(parts)
        why = ""
        if odd:
            why = f"{shown(min(odd))!r} looks like a date or a camera"
        elif deep:
            why = f"{shown(min(deep))!r} has its images in folders of its own"
        elif len(tops) == 1:
            why = f"There is only one folder, {shown(min(tops))!r}"
        elif is_deep:
            why = "Most images lie in folders of folders"
        if not tops or not (known or (len(tops) > 1 and not is_deep)):
            advice = f"{why}, so the names of folders are no labels. If they are, add --labels folder."
            return {}, advice if why else ""
        if odd or deep:
            remark = f"{why}, so its images have none; if it is a class, add --labels folder. "
        remark += "If the names of folders are no labels, add --labels none."
    return {i: shown(part[0]) for i, part in enumerate(parts) if len(part) > 1 and part[0] in tops}, remark
