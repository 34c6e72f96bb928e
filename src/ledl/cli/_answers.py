"""Answers as they are written, one after the other: for people, as CSV, as JSON."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ledl.cli._console import say, stdout

if TYPE_CHECKING:
    from ledl._images import Prediction

WIDEST_PATH = 60


class Format(StrEnum):
    """How answers are written."""

    table = "table"
    csv = "csv"
    json = "json"


class Answer(NamedTuple):
    """What is said of an image, and what is true, if that is known."""

    said: Prediction
    label: str
    truth: str | None

    @property
    def is_mistake(self) -> bool:
        return self.truth is not None and self.truth != self.label


class Layout(NamedTuple):
    """What is written of each answer, and how wide."""

    top: int  # classes
    has_truth: bool
    has_p_value: bool
    path_width: int
    label_width: int


Write: TypeAlias = Callable[[Answer], None]


@contextmanager
def writer(form: Format, layout: Layout) -> Iterator[Write]:
    """A function that writes an answer to stdout at once."""
    if form is Format.csv:
        yield csv_writer(layout)
    elif form is Format.json:
        before = "["

        def write(answer: Answer) -> None:
            nonlocal before
            text = json.dumps(as_json(answer, layout), ensure_ascii=False, allow_nan=False)
            sys.stdout.write(f"{before}\n{text}")
            sys.stdout.flush()
            before = ","

        yield write
        sys.stdout.write("[]\n" if before == "[" else "\n]\n")
    else:
        people = stdout()
        yield lambda answer: None if answer.said.error else say(people, as_line(answer, layout))


def csv_writer(layout: Layout) -> Write:
    """Rows, after a head; images that cannot be read have none."""
    lines = csv.writer(sys.stdout, lineterminator="\n")
    classes = [f"{what}_{i}" for i in range(1, layout.top + 1) for what in ("class", "score")]
    lines.writerow(
        ["path", "label", *["truth"] * layout.has_truth, *["p_value"] * layout.has_p_value, *classes]
    )

    def write(answer: Answer) -> None:
        said = answer.said
        if said.error:
            return
        p_value = "" if said.p_value is None else f"{said.p_value:.4g}"
        pairs = [x for label, score in said.ranking[: layout.top] for x in (label, f"{score:.6g}")]
        extra = [answer.truth] * layout.has_truth + [p_value] * layout.has_p_value
        lines.writerow([said.path, answer.label, *extra, *pairs])
        sys.stdout.flush()

    return write


def as_json(answer: Answer, layout: Layout) -> dict[str, Any]:
    """An answer for machines."""
    said = answer.said
    if said.error:
        return {"path": said.path, "error": said.error}
    ranking = [{"label": label, "score": score} for label, score in said.ranking[: layout.top]]
    truth = {"truth": answer.truth} if layout.has_truth else {}
    p_value = {} if said.p_value is None else {"p_value": said.p_value}
    return {"path": said.path, "label": answer.label, **truth, "ranking": ranking, **p_value}


def as_line(answer: Answer, layout: Layout) -> str:
    """An answer for people: path, label, mistake if it is one, scores."""
    ranking = ", ".join(f"{name} {score:.3f}" for name, score in answer.said.ranking[: layout.top])
    mistake = f"  not {answer.truth}!" if answer.is_mistake else ""
    width = min(layout.path_width, WIDEST_PATH)
    return f"{answer.said.path:{width}s}  {answer.label:{layout.label_width}s}  {ranking}{mistake}"
