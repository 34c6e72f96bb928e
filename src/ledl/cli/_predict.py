"""``ledl predict``: labels of images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

from ledl.cli._answers import Answer, Format, Layout, writer
from ledl.cli._console import (
    SOME_UNREADABLE,
    Watch,
    bar,
    check_out,
    errors_told,
    say,
    stderr,
    stdout,
    tell_ignored,
)
from ledl.cli._tally import REJECTED, Tally, show_accuracy, show_confusions, write_confusions

if TYPE_CHECKING:
    from ledl._images import ImageModel, Prediction

Labelled: TypeAlias = tuple[Path, str | None]  # an image, and the truth if it is known

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


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that ledl fit wrote.")],
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Images, or folders with images at any depth.")
    ],
    form: Annotated[Format, typer.Option("--format", help="How labels are written.")] = Format.table,
    top: Annotated[int, typer.Option(min=1, help="Classes to give for each image, best first.")] = 3,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="folder|FILE.csv",
            help="Where the truth is: [b]folder[/b], in the name of the folder that an image is in; "
            "[b]FILE.csv[/b], in a table of file names and labels for one PATH, a folder. Skips the images "
            "that the model was trained on; prints accuracy and a confusion matrix.",
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
    console = stderr()
    with errors_told(console):
        if labels is None and (confusion is not None or mistakes):
            raise ValueError("--confusion and --mistakes need --labels: without the truth there are none.")
        if confusion is not None:
            check_out(confusion, "confusion.csv")
        from ledl._images import open_image_model, rejecter_for

        found = open_image_model(model, network=features)
        if reject is not None:
            rejecter_for(found, reject)
        images = images_of(console, paths, labels, found)
        tally = Tally([str(label) for label in found.parts.classifier.classes_], can_reject=reject is not None)
        widths = max(len(str(file)) for file, _ in images), max(map(len, [*tally.classes, REJECTED]))
        layout = Layout(top, labels is not None, reject is not None, *widths)
        unreadable = []
        with bar(console, "images") as watch, writer(form, layout) as write:
            for answer in answers(found, images, reject, watch):
                if answer.said.error:
                    unreadable.append(answer.said)
                else:
                    tally.add(answer.truth or "", answer.label)
                if answer.said.error or answer.is_mistake or not mistakes:
                    write(answer)
        tell_unreadable(console, unreadable, len(images))
        if labels is not None:
            people = stdout() if form is Format.table else console  # stdout is a machine's otherwise
            show_accuracy(people, tally)
            show_confusions(people, tally)
        if confusion is not None:
            write_confusions(tally, confusion)
    if unreadable:
        raise typer.Exit(SOME_UNREADABLE)


def answers(found: ImageModel, images: list[Labelled], reject: float | None, watch: Watch) -> Iterator[Answer]:
    """What the model says of each image, in their order."""
    from ledl._images import predict_files

    said = predict_files(found, [file for file, _ in images], watch)
    for (_, truth), one in zip(images, said, strict=True):
        refused = reject is not None and one.is_rejected(reject)
        yield Answer(one, REJECTED if refused else one.label, truth)


def images_of(console: Console, paths: list[Path], labels: str | None, found: ImageModel) -> list[Labelled]:
    """The images to label, with the truth if it is known; then without those that the model was trained on."""
    from ledl._images import absolute, image_files
    from ledl.datasets import load_image_folder
    from ledl.features._images import shown

    images: list[Labelled]
    if labels is None or labels == "folder":
        files, others = image_files(paths)
        tell_ignored(console, others)
        images = [(file, shown(absolute(file).parent.name) if labels else None) for file in files]
    elif len(paths) == 1:
        table = load_image_folder(paths[0], labels=labels, decode=False)
        names = [table.target_names[j] for j in table.target]
        images = list(zip(map(Path, table.filenames), names, strict=True))
    else:
        raise ValueError(f"--labels {labels} is a table for one folder, but {len(paths)} paths are given.")
    if not images:
        raise ValueError("There are no images to label. Give image files, or folders that hold some.")
    return images if labels is None else without_known(console, images, found)


def without_known(console: Console, images: list[Labelled], found: ImageModel) -> list[Labelled]:
    """The images that the model was not trained on."""
    from ledl._images import trained_on

    known = list(zip(found.record.files, found.record.sha256, strict=True))
    if not known:
        say(console, "The model does not say what it was trained on: accuracy may be too high.", style="yellow")
    seen, n_copies = trained_on(known, [file for file, _ in images])
    if all(seen):
        raise ValueError("The model was trained on all of these images. Give others to judge it by.")
    if any(seen):
        say(console, f"Skipped {sum(seen)} images that the model was trained on.")
    if n_copies:
        say(console, f"Copies of training images among the others: {n_copies}. They count in the accuracy.")
    return [image for image, is_seen in zip(images, seen, strict=True) if not is_seen]


def tell_unreadable(console: Console, unreadable: list[Prediction], n: int) -> None:
    """Who has no label, and why."""
    for prediction in unreadable:
        say(console, f"Unreadable: {prediction.error}", style="red")
    if unreadable:
        say(console, f"{len(unreadable)} of {n} images could not be read.")
