"""``ledl predict``: labels of images."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ledl.cli._answers import Answer, Format, Layout, writer
from ledl.cli._console import SOME_UNREADABLE, Watch, bar, check_out, errors_told, say, tell_ignored
from ledl.cli._tally import REJECTED, Tally, show_accuracy, show_confusions, write_confusions

if TYPE_CHECKING:
    from ledl.images import ImageModel, Prediction

EXAMPLES = """
[b]Examples[/b]

ledl predict model.ledl 1.jpg 2.jpg

ledl predict model.ledl photos --format csv > labels.csv

ledl predict model.ledl photos --labels folder  [dim]# accuracy on all images but those trained on[/dim]

ledl predict model.ledl photos --labels folder --mistakes  [dim]# which ones to look at[/dim]

ledl predict model.ledl photos --reject 0.05  [dim]# "none of these" for what is unlike every class[/dim]

[b]Exit status[/b]

0: all images have labels. 1: some could not be read. 2: nothing was done.
"""


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
            help='Say "none of these" for images unlike every class. The number is the share of images of the '
            "known classes that may be refused by mistake: 0.05 is one in twenty.",
        ),
    ] = None,
    mistakes: Annotated[
        bool, typer.Option("--mistakes", help="With --labels: write only what was answered wrongly.")
    ] = False,
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
        if labels is None and (confusion is not None or mistakes):
            raise ValueError(
                "--confusion and --mistakes need --labels folder: without the truth there are none."
            )
        if confusion is not None:
            check_out(confusion, "confusion.csv")
        from ledl.images import check_can_reject, open_image_model

        found = open_image_model(model, network=features)
        if reject is not None:
            check_can_reject(found)
        files = images_of(console, paths, found if labels is not None else None)
        tally = Tally([str(label) for label in found.model.classes_], can_reject=reject is not None)
        widths = max(len(str(file)) for file in files), max(map(len, [*tally.classes, REJECTED]))
        layout = Layout(top, labels is not None, reject is not None, *widths)
        unreadable = []
        with bar(console, "images") as watch, writer(form, layout) as write:
            for answer in answers(found, files, reject, labels is not None, watch):
                if answer.said.error:
                    unreadable.append(answer.said)
                else:
                    tally.add(answer.truth or "", answer.label)
                if answer.said.error or answer.is_mistake or not mistakes:
                    write(answer)
        tell_unreadable(console, unreadable, len(files))
        if labels is not None:
            people = Console() if form is Format.table else console  # stdout is a machine's otherwise
            show_accuracy(people, tally)
            show_confusions(people, tally)
        if confusion is not None:
            write_confusions(tally, confusion)
    if unreadable:
        raise typer.Exit(SOME_UNREADABLE)


def answers(
    found: ImageModel, files: list[Path], reject: float | None, has_truth: bool, watch: Watch
) -> Iterator[Answer]:
    """What the model says of each image, in their order."""
    from ledl.images import predict_files

    for file, said in zip(files, predict_files(found.model, files, watch), strict=True):
        refused = reject is not None and said.is_rejected(reject)
        truth = file.absolute().parent.name if has_truth else None
        yield Answer(said, REJECTED if refused else said.label, truth)


def images_of(console: Console, paths: list[Path], trained: ImageModel | None) -> list[Path]:
    """The images to label; without those that a model was trained on, if it is given."""
    from ledl.images import image_files

    files, others = image_files(paths)
    tell_ignored(console, others)
    if trained is not None:
        files = without_known(console, files, trained)
    if not files:
        raise ValueError("There are no images to label. Give image files, or folders that hold some.")
    return files


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
        say(console, f"Other names, same content as a training image: {n_copies}. They count in the accuracy.")
    return [file for file, is_seen in zip(files, seen, strict=True) if not is_seen]


def tell_unreadable(console: Console, unreadable: list[Prediction], n: int) -> None:
    """Who has no label, and why."""
    for prediction in unreadable:
        say(console, f"Unreadable: {prediction.error}", style="red")
    if unreadable:
        say(console, f"{len(unreadable)} of {n} images could not be read.")
