"""Pages of many images: the results of ``ledl predict``, and the training images of ``ledl fit``.

Both are made from ``templates/images.html``. They show only some of the images, so that they stay small.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ledl.cli._console import visible
from ledl.cli._work import WIDEST_MATRIX, Results, accuracy, mistakes_in, sides
from ledl.csv_cells import to_cell
from ledl.explanations import Embedded, Picture, embed
from ledl.image_models import (
    ImageModel,
    Prediction,
    Record,
    doubtful_labels,
    facts,
    hits_of,
    n_nearly_equal,
    thumbnail,
    with_interval,
)
from ledl.images import REJECTED, ImageError, shown
from ledl.pages import render

N_REVIEW = 40  # images to look at, if the user gives no number
N_EXAMPLES, MOST_EXAMPLES = 4, 240  # of a class, and of all classes if they have more than one each
MOST_LINES = 50  # about images that cannot be read
SIDE = 192  # pixels


class Card(NamedTuple):
    """An image and what is said about it."""

    name: str
    picture: Embedded | None
    answer: str
    sure: str = ""
    note: str = ""  # what else it may be
    warning: str = ""
    path: str = ""  # as a cell of a table of corrected labels


class Group(NamedTuple):
    """Some of the `n` images that belong together."""

    name: str
    cards: list[Card]
    n: int = 0


class Bar(NamedTuple):
    """A class in the table of classes: how many images it has, and how many were right."""

    name: str
    n: int
    right: str


def n_examples(classes: list[str]) -> int:
    """Return how many images of each class a page shows, so that it stays small."""
    return max(1, min(N_EXAMPLES, MOST_EXAMPLES // len(classes)))


def tested(record: Record) -> str:
    """Return the accuracy in cross-validation as text, or "" if there is none."""
    return "" if record.cv_accuracy is None else with_interval(record.cv_accuracy, record.cv_interval)


def n_untested(record: Record) -> int:
    """Return the number of classes with one image, which cannot be tested."""
    return sum(n == 1 for n in Counter(record.labels).values())


def results_page(found: ImageModel, results: Results, model: Path, classes: list[str]) -> str:
    """Return a page about the images that a model has classified, for people who were not there."""
    counts, by_answer = results.counts, Counter[str]()
    for (_, said), n in counts.items():
        by_answer[said] += n
    names = sorted(classes, key=lambda name: -by_answer[name])
    if by_answer[REJECTED] and REJECTED not in names:
        names.append(REJECTED)
    hits = hits_of(found.record)
    rows, columns = sides(counts, classes)
    truth = accuracy(counts, classes)
    if truth:
        totals = {name: sum(counts[name, said] for said in columns) for name in rows}
        hits = {name: f"{counts[name, name]} of {totals[name]}" for name in rows}
    max_pixels = found.extractor.max_pixels
    groups = [(name, results.examples[name][::-1]) for name in names if name in results.examples]
    return render(
        "images.html",
        title=f"{counts.total()} image{'s' * (counts.total() != 1)}",
        kicker=f"Answers of {visible(model.name)}",
        n_classes=sum(by_answer[name] > 0 for name in classes),
        facts=facts(found),
        tested=tested(found.record),
        n_near=n_nearly_equal(found.record),
        n_untested=n_untested(found.record),
        truth=truth,
        bars=[Bar(name, by_answer[name], hits.get(name, "")) for name in names],
        top=max(by_answer.values(), default=1),
        right_head="right here" if truth else "right in tests",
        rejected=REJECTED,
        matrix=(rows, columns, counts) if truth and len(columns) <= WIDEST_MATRIX else None,
        mistakes=mistakes_in(counts, classes)[:5] if truth else [],
        review=[card(said, max_pixels) for said in results.review],
        labels=[(to_cell(name), visible(name)) for name in [*sorted(classes), REJECTED]],
        groups=[Group(name, [card(said, max_pixels) for said in best]) for name, best in groups],
        unreadable=[visible(reason) for reason in results.unreadable[:MOST_LINES]],
        n_unreadable=len(results.unreadable),
        notes=[],
        is_training=False,
    )


def training_page(trained: ImageModel, model: Path, notes: list[str]) -> str:
    """Return a page about the training images of a model: above all, labels that look wrong."""
    record = trained.record
    doubtful = doubtful_labels(record)
    answers = enumerate(zip(record.labels, record.cv_answers, strict=False))
    others = [i for i, (label, answer) in answers if answer not in ("", label) and i not in doubtful]
    hits, counts = hits_of(record), Counter(sorted(record.labels))
    groups = [("Labels that look wrong", doubtful), ("Other images that were not recognised", others)]
    return render(
        "images.html",
        title=f"{len(record.labels)} training images",
        kicker=f"What {visible(model.name)} has learnt from",
        n_classes=len(counts),
        facts=facts(trained),
        tested=tested(record),
        n_near=n_nearly_equal(record),
        n_untested=n_untested(record),
        truth="",
        bars=[Bar(name, n, hits.get(name, "")) for name, n in counts.items()],
        top=max(counts.values()),
        right_head="right in tests",
        matrix=None,
        mistakes=[],
        review=[],
        labels=[],
        groups=[
            Group(name, [training_card(record, i) for i in found[:N_REVIEW]], len(found))
            for name, found in groups
        ],
        unreadable=[visible(reason) for _, reason in record.skipped[:MOST_LINES]],
        n_unreadable=len(record.skipped),
        notes=notes,
        is_training=True,
    )


def card(said: Prediction, max_pixels: int) -> Card:
    """Return a prediction as a card. Its picture is missing if the image can no longer be read."""
    picture = None
    with suppress(ImageError, OSError):
        content = thumbnail(said.path, max_pixels).tobytes()
        picture = embed(Picture(content, shown(said.path)), SIDE)
    form = "{} {:.0%}" if said.probability is not None else "{} {:.2f}"
    first, second = (form.format(*pair) for pair in said.ranking[:2])
    is_known = said.label != REJECTED
    return Card(
        visible(shown(said.path)),
        picture,
        visible(said.label),
        first.rpartition(" ")[2] if is_known else "",
        visible(f"or {second}" if is_known else f"most like {first}"),
        visible(f"wrong: it is {said.truth}") if said.is_wrong else "",
        to_cell(os.path.join(".", said.path)),
    )


def training_card(record: Record, i: int) -> Card:
    """Return a training image as a card: its label, and what a model that has not seen it takes it for."""
    answer, pictures, sure = record.cv_answers[i], record.thumbnails, record.cv_probabilities
    return Card(
        visible(record.files[i]),
        embed(Picture(pictures[i].tobytes(), record.files[i]), SIDE) if pictures else None,
        visible(record.labels[i]),
        "" if sure is None else f"{sure[i, 1]:.0%}",
        visible(f"looks like {answer}" + ("" if sure is None else f" {sure[i, 0]:.0%}")),
    )
