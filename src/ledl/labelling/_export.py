"""Take out what was labelled: a table, sorted folders, a model file, a page. Each says who gave a label."""

from __future__ import annotations

import csv
import io
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ledl.csv_cells import mark_for, to_cell
from ledl.explanations import Embedded, Picture, embed
from ledl.files import place_for, write_atomically
from ledl.image_models import MANY_IMAGES, complete, contents_of, fit_features
from ledl.images import UNSURE, ImageError, Sorter, shown, unused_lines, why_no_folder
from ledl.labelling._session import RefusedError, Session
from ledl.labelling._worker import prepare
from ledl.pages import render
from ledl.persistence import save

N_CARDS, N_EXAMPLES, MOST_EXAMPLES, MOST_LINES = 40, 4, 240, 50
SIDE = 192  # pixels


class Said(NamedTuple):
    """Say what an image is called, by whom, and how sure that is."""

    i: int
    label: str  # "" if there is none
    by: str  # person, folder, table, model, skipped, or "" for nobody
    probability: float | None
    second: str


class Card(NamedTuple):
    """Hold an image on the page, and what is said about it."""

    name: str
    picture: Embedded | None
    label: str
    sure: str
    note: str = ""


class Group(NamedTuple):
    """Hold some of the `n` images that belong together."""

    name: str
    note: str
    cards: list[Card]
    n: int = 0


class Bar(NamedTuple):
    """Hold a class, the number of its images, and how many of them a person, folder or table has given."""

    name: str
    n: int
    given: int


def kind_of(path: Path) -> str:
    """Return what an export to a path is: csv, html, ledl, or folder."""
    suffix = path.suffix.lower().lstrip(".")
    if suffix in ("csv", "html", "ledl"):
        return suffix
    if suffix and not path.is_dir():
        raise RefusedError(
            f"--export {shown(path)} may end in .csv (a table), .html (a page), .ledl (a model), or be a "
            "folder for sorted images."
        )
    return "folder"


def check(paths: Sequence[Path], session: Session) -> None:
    """Raise an error if something cannot be exported: now, before the work and before anything is written."""
    names = [c.name for c in session.classes.values() if not c.gone]
    top = Path(os.path.realpath(session.folder))
    own = Path(os.path.realpath(session.store.place))
    for path in paths:
        if Path(os.path.realpath(path)).is_relative_to(own):
            raise RefusedError(f"{shown(path)} is among the labels themselves. Choose a place elsewhere.")
        if kind_of(path) != "folder":
            place_for(path)
            continue
        if Path(os.path.realpath(path)).is_relative_to(top):
            raise RefusedError(
                f"{shown(path)} is in {shown(session.folder)}, so that the sorted images would be labelled "
                "next time. Choose a folder elsewhere."
            )
        for name in names:
            reason = why_no_folder(name)
            if reason:
                raise RefusedError(
                    f"The class {name!r} cannot be a folder: {reason}. Rename it on the page, or export a "
                    "table."
                )
    n_used = len(np.unique(session.label[(session.label > 0) & session.is_readable]))
    if n_used < 2 and any(kind_of(path) == "ledl" for path in paths):
        bad = np.flatnonzero((session.label > 0) & ~session.is_readable)
        why = f" {session.names[bad[0]]} does not count, because it cannot be read." if bad.size else ""
        raise RefusedError(
            f"A model needs labels of two classes, but {n_used} have some. Label images first.{why}"
        )


def write(
    session: Session,
    paths: Sequence[Path],
    *,
    sort_by: str = "copy",
    unsure: float = 0.0,
    say: Callable[[str], Any],
    report: Callable[[str], Any],
) -> None:
    """Write all that is asked for. Learns first, from the labels that are there, without a page.

    `sort_by` is "copy" or "link". Images are not moved: those that teach, and their labels, stay together.
    `say` gets what is finished, `report` what takes long.
    """
    check(paths, session)
    X = learn_here(session)
    check(paths, session)  # images may have turned out to be unreadable
    for path in paths:
        kind = kind_of(path)
        if kind == "csv":
            write_atomically(path, table(session, session.folder).encode(), through_links=True)
            say(f"Labels: {shown(path)} ({int(session.is_readable.sum())} images)")
        elif kind == "html":
            write_atomically(path, summary_page(session).encode(), through_links=True)
            say(f"Page: {shown(path)}")
        elif kind == "folder":
            sort_images(session, path, sort_by, unsure, say)
        else:
            n = int((session.label[session.rows] > 0).sum())
            if n > MANY_IMAGES:
                report(
                    f"Choosing settings of the model for {n} images can take minutes. Faster: export a table, "
                    "and train with ledl fit --method ledl --labels TABLE.csv."
                )
            write_model(session, X, path)
            say(f"Model: {shown(path)}. Next: ledl predict {shown(path)} NEW_IMAGES")
    for name, reason in session.unreadable[:MOST_LINES]:
        say(f"Left out: {name}: {reason}")
    if len(session.unreadable) > MOST_LINES:
        say(f"Left out: {len(session.unreadable) - MOST_LINES} more images.")


def learn_here(session: Session) -> Any:
    """Make the features that are missing and learn, in this process. Return the features."""
    from ledl.lessons import Learner

    X = prepare(session.task(), lambda message: session.report(*message))
    if len(X) > 1:
        learner, start, job = Learner(X, n_jobs=-1), time.perf_counter(), session.next_job()
        lesson = learner.learn(job.y)
        estimate = learner.estimate(job.y, job.checks)
        if estimate is not None:  # suggestions are as sure as it says, as those on the page
            lesson = learner.learn(job.y)
        session.report("lesson", job.number, lesson, time.perf_counter() - start)
        session.report("estimate", job.number, estimate)
    return X


def said(session: Session) -> list[Said]:
    """Return what each image is called now: its label, or what the model suggests.

    Images that cannot be read are left out, whatever their label is: they are listed elsewhere.
    """
    with session.lock:
        names = {c.id: c.name for c in session.classes.values()}
        found = []
        for i in np.flatnonzero(session.is_readable).tolist():
            image = session.image(i)
            if image["label"] is not None:
                found.append(Said(i, names[image["label"]], image["by"], 1.0, ""))
            elif image["skipped"]:
                found.append(Said(i, "", "skipped", None, ""))
            elif image["suggestion"] is not None:
                second = names.get(image["second"], "")
                found.append(Said(i, names[image["suggestion"]], "model", image["probability"], second))
            else:
                found.append(Said(i, "", "", None, ""))
        return found


def table(session: Session, folder: Path) -> str:
    """Return the labels as a table that `ledl fit --labels` and spreadsheets read.

    Paths begin with `folder`, where the images are: other folders may have images of these names. Images that
    nobody can tell are "unsure", as in sorted folders.
    """
    rows = [row._replace(label=UNSURE) if row.by == "skipped" else row for row in said(session)]
    paths = [os.path.join(".", folder, session.images[row.i].path) for row in rows]
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["path", "label", "by", "probability", "second"])
    for path, row in zip(paths, rows, strict=True):
        sure = "" if row.probability is None else f"{row.probability:.4g}"
        lines.writerow([to_cell(path), to_cell(row.label), row.by, sure, to_cell(row.second)])
    return mark_for([*paths, *(name for row in rows for name in (row.label, row.second))]) + text.getvalue()


def sort_images(session: Session, folder: Path, how: str, unsure: float, say: Callable[[str], Any]) -> None:
    """Put all images into the folders of their classes.

    Suggestions below the probability `unsure`, and images that nobody can tell, go into the folder "unsure".
    """
    rows = said(session)
    sorter = Sorter(folder, sorted({row.label for row in rows if row.label}), how, [session.folder])
    files = [session.folder / session.images[row.i].path for row in rows]
    is_left_out, unused = sorter.leave_out(files)
    for row, file, is_left in zip(rows, files, is_left_out, strict=True):
        if not is_left:
            is_sure = row.label and (row.by != "model" or (row.probability or 0.0) >= unsure)
            sorter.put(file, row.label if is_sure else UNSURE)
    for line in [sorter.summary(), *unused_lines(unused)]:
        say(line)


def write_model(session: Session, X: Any, path: Path) -> None:
    """Write a model file for `ledl predict`, trained on all images: those with labels, and the others."""
    labels = session.label[session.rows]
    order = np.argsort(labels == 0, kind="stable")  # those with labels first
    names = np.array([session.classes[k].name for k in labels[labels > 0].tolist()])
    files = [str(session.folder / session.images[i].path) for i in session.rows[order].tolist()]
    contents = contents_of(files[: len(names)], session.extractor.max_pixels)
    trained = complete(fit_features(session.extractor, X[order], files, names), session.folder, contents)
    save(trained.model, path, info=trained.record.to_info())


def summary_page(session: Session) -> str:
    """Return a page about what was labelled, for people who were not there. It is one file with pictures."""
    with session.lock:
        rows = said(session)
        by = Counter(row.by for row in rows)
        counts = Counter(row.label for row in rows if row.label)
        given = Counter(row.label for row in rows if row.label and row.by != "model")
        guesses = sorted((row for row in rows if row.by == "model"), key=lambda row: row.probability or 0.0)
        doubts = {i: session.classes[session.doubt[i]].name for i in session.find("doubtful")}
        estimate, unreadable = session.estimate, list(session.unreadable)
    n_each = max(1, min(N_EXAMPLES, MOST_EXAMPLES // max(len(counts), 1)))
    best: dict[str, list[Said]] = {}
    for row in [*(row for row in rows if row.by not in ("model", "skipped", "")), *reversed(guesses)]:
        best.setdefault(row.label, []).append(row)
    doubtful = [row for row in rows if row.i in doubts]
    whole = {
        "person": "by a person",
        "folder": "from folders",
        "table": "from a table",
        "model": "by the model",
    }
    whole |= {"skipped": "that nobody could tell", "": "without a label"}
    return render(
        "labels.html",
        title=f"{len(rows):,} images",
        folder=shown(session.folder.absolute().name),
        who=", ".join(f"{by[key]:,} {words}" for key, words in whole.items() if by[key]) + ".",
        good=_how_good(estimate),
        bars=[Bar(name, n, given[name]) for name, n in counts.most_common()],
        top=max(counts.values(), default=1),
        groups=[
            Group(
                "Labels that the model contradicts",
                "The given label, and what the image looks like to a model that does not know it.",
                [_card(session, row, f"looks like {doubts[row.i]}") for row in doubtful[:N_CARDS]],
                len(doubtful),
            ),
            Group(
                "The least sure suggestions",
                "The least sure is first. The second line is the runner-up.",
                [_card(session, row, f"or {row.second}" if row.second else "") for row in guesses[:N_CARDS]],
                len(guesses),
            ),
        ],
        examples=[
            Group(name, "", [_card(session, row) for row in best[name][:n_each]])
            for name, _ in counts.most_common()
        ],
        unreadable=unreadable[:MOST_LINES],
        n_unreadable=len(unreadable),
    )


def _how_good(estimate: Sequence[Any] | None) -> str:
    if estimate is None:
        return "It is not known how good the suggestions are: there are too few random checks."
    labels, accuracy, low, high, n = estimate
    return (
        f"About {accuracy:.0%} of the suggestions are right (90 % interval: {low:.0%} to {high:.0%}). This is "
        f"from {n} images that were drawn at random, when there were {labels} labels."
    )


def _card(session: Session, row: Said, note: str = "") -> Card:
    """Return an image as a card. Its picture is missing if the image can no longer be read."""
    picture, name = None, session.names[row.i]
    with suppress(ImageError, OSError, RefusedError):
        picture = embed(Picture(session.picture(row.i), name), SIDE)
    sure = f"{row.probability:.0%}" if row.by == "model" and row.probability is not None else row.by
    return Card(name, picture, row.label, sure, note)
