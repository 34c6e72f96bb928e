"""``ledl predict``: labels of images."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ledl.cli._console import SOME_UNREADABLE, bar, errors_told, say
from ledl.cli._fit import check_out
from ledl.cli._tally import REJECTED, Tally, show_accuracy, show_confusions, write_confusions

if TYPE_CHECKING:
    from ledl.images import ImageModel, Prediction

EXAMPLES = """
[b]Examples[/b]

ledl predict model.ledl 1.jpg 2.jpg

ledl predict model.ledl photos --format csv > labels.csv

ledl predict model.ledl photos --labels folder  [dim]accuracy on all images but those trained on[/dim]

ledl predict model.ledl photos --reject 0.05  [dim]"none of these" for what is unlike every class[/dim]

[b]Exit status[/b]

0: all images have labels. 1: some could not be read. 2: nothing was done.
"""


class Format(StrEnum):
    """How labels are written."""

    table = "table"
    csv = "csv"
    json = "json"


class Labels(StrEnum):
    """Where the truth is."""

    folder = "folder"


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that ledl fit wrote.")],
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Images, or folders with images at any depth.")
    ],
    form: Annotated[Format, typer.Option("--format", help="How labels are written.")] = Format.table,
    top: Annotated[int, typer.Option(min=1, help="Classes to give for each image, best first.")] = 3,
    labels: Annotated[
        Labels | None,
        typer.Option(
            help="[b]folder[/b]: the truth is the name of the folder that an image is in. Skips the images "
            "that the model was trained on; prints accuracy and a confusion matrix."
        ),
    ] = None,
    reject: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help='Say "none of these" for images unlike every class; as many images of the known classes, '
            "0.05 for one in twenty, are refused by mistake.",
        ),
    ] = None,
    confusion: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write the confusion matrix there.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(metavar="FILE.onnx", help="Where the network lies, if it has moved.")
    ] = None,
) -> None:
    """Label images: any number of them, a few at a time.

    A score is larger the more an image looks like a class; scores of different images do not compare.
    """
    console = Console(stderr=True)
    with errors_told(console):
        if confusion is not None:
            check_out(confusion)
            if labels is None:
                raise ValueError("--confusion needs --labels folder: without the truth nothing is confused.")
        from ledl.images import check_can_reject, image_files, open_image_model, predict_files

        found = open_image_model(model, network=features)
        if reject is not None:
            check_can_reject(found)
        files = image_files(paths)
        if labels is not None:
            files = without_known(console, files, found)
        if not files:
            raise ValueError("There are no images to label. Give image files, or folders that hold some.")
        tally = Tally([str(label) for label in found.model.classes_], can_reject=reject is not None)
        unreadable = []
        widths = max(len(str(file)) for file in files), max(map(len, tally.classes))
        with bar(console, "images") as watch, writer(form, top, reject, widths) as write:
            for file, prediction in zip(files, predict_files(found.model, files, watch), strict=True):
                write(prediction)
                if prediction.error:
                    unreadable.append(prediction)
                else:
                    tally.add(file.absolute().parent.name, answer(prediction, reject))
        tell_unreadable(console, unreadable, len(files))
        if labels is not None:
            people = Console() if form is Format.table else console  # stdout is a machine's otherwise
            show_accuracy(people, tally)
            show_confusions(people, tally)
        if confusion is not None:
            write_confusions(tally, confusion)
    if unreadable:
        raise typer.Exit(SOME_UNREADABLE)


def without_known(console: Console, files: list[Path], found: ImageModel) -> list[Path]:
    """The images that the model was not trained on."""
    from ledl.images import trained_on

    known = dict(zip(found.record.files, found.record.sha256, strict=True))
    if not known:
        say(console, "The model does not say what it was trained on: accuracy may be too high.", style="yellow")
    seen, n_copies = trained_on(known, files)
    if any(seen):
        say(console, f"Skipped {sum(seen)} images that the model was trained on.")
    if n_copies:
        say(console, f"Of the others, {n_copies} with the content of a training image under another name.")
    return [file for file, is_seen in zip(files, seen, strict=True) if not is_seen]


def tell_unreadable(console: Console, unreadable: list[Prediction], n: int) -> None:
    """Who has no label, and why."""
    for prediction in unreadable:
        say(console, f"Unreadable: {prediction.error}", style="red")
    if unreadable:
        say(console, f"{len(unreadable)} of {n} images could not be read.")


def answer(prediction: Prediction, reject: float | None) -> str:
    """The label, or none."""
    return REJECTED if reject is not None and prediction.is_rejected(reject) else prediction.label


@contextmanager
def writer(
    form: Format, top: int, reject: float | None, widths: tuple[int, int]
) -> Iterator[Callable[[Prediction], None]]:
    """A function that writes a prediction to stdout at once; `widths` of the longest path and label."""
    if form is Format.csv:
        lines = csv.writer(sys.stdout, lineterminator="\n")
        extra = ["p_value"] if reject is not None else []
        lines.writerow(
            ["path", "label", *extra, *(f"{w}_{i}" for i in range(1, top + 1) for w in ("class", "score"))]
        )

        def write_row(prediction: Prediction) -> None:
            if not prediction.error:
                p = [f"{prediction.p_value:.4g}"] if reject is not None else []
                pairs = [x for label, score in prediction.ranking[:top] for x in (label, f"{score:.6g}")]
                lines.writerow([prediction.path, answer(prediction, reject), *p, *pairs])
                sys.stdout.flush()

        yield write_row
    elif form is Format.json:
        before = "["

        def write_object(prediction: Prediction) -> None:
            nonlocal before
            text = json.dumps(as_json(prediction, top, reject), ensure_ascii=False, allow_nan=False)
            sys.stdout.write(f"{before}\n{text}")
            sys.stdout.flush()
            before = ","

        yield write_object
        sys.stdout.write("[]\n" if before == "[" else "\n]\n")
    else:
        people = Console()
        yield lambda said: None if said.error else say(people, line(said, top, reject, widths))


def as_json(prediction: Prediction, top: int, reject: float | None) -> dict[str, Any]:
    """A prediction for machines."""
    if prediction.error:
        return {"path": prediction.path, "error": prediction.error}
    ranking = [{"label": label, "score": score} for label, score in prediction.ranking[:top]]
    told = {"path": prediction.path, "label": answer(prediction, reject), "ranking": ranking}
    return told if prediction.p_value is None else {**told, "p_value": prediction.p_value}


def line(prediction: Prediction, top: int, reject: float | None, widths: tuple[int, int]) -> str:
    """A prediction for people."""
    label = answer(prediction, reject)
    ranking = ", ".join(f"{name} {score:.3f}" for name, score in prediction.ranking[:top])
    path_width, label_width = min(widths[0], 70), max(widths[1], len(REJECTED) if reject is not None else 0)
    return f"{prediction.path:{path_width}s}  {label:{label_width}s}  {ranking}"
