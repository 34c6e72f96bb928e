"""The commands on images and models of them: ``ledl fit``, ``predict``, ``explain``, ``info`` and ``datasets``.

What computes is imported by a command that runs, so that help comes at once.
"""

from __future__ import annotations

import json
import os
import shlex
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from ledl.cli._console import (
    SOME_UNREADABLE,
    PipedConsole,
    bar,
    check_out,
    errors_told,
    say,
    tell_ignored,
)
from ledl.experiments import DATASET_TITLES
from ledl.methods import METHODS

FIT_EXAMPLES = """
[b]Examples[/b]

ledl fit photos -o model.ledl  [dim]# photos/cat/1.jpg, photos/dog/2.jpg, ...[/dim]

ledl fit photos -o model.ledl --features resnet50_pool5.onnx  [dim]# features of a network[/dim]

ledl fit faces -o faces.ledl --features pixels --method crc --select cv

ledl fit photos -o model.ledl --per-class 5 --seed 1  [dim]# five of each class[/dim]
"""
PREDICT_EXAMPLES = """
[b]Examples[/b]

ledl predict model.ledl 1.jpg 2.jpg

ledl predict model.ledl photos --format csv > labels.csv

ledl predict model.ledl photos --labels folder  [dim]# accuracy on all images but those trained on[/dim]

ledl predict model.ledl photos --labels folder --mistakes  [dim]# which ones to look at[/dim]

ledl predict model.ledl photos --reject 0.05  [dim]# "none of these" for what is unlike every class[/dim]

[b]Exit status[/b]

0: all images have labels. 1: some could not be read. 2: nothing was done.
"""
EXPLAIN_EXAMPLES = """
[b]Examples[/b]

ledl explain model.ledl photos/3.jpg -o why.html
"""
INFO_EXAMPLES = """
[b]Examples[/b]

ledl info model.ledl

ledl info model.ledl --json
"""

DATASETS_EXAMPLES = """
[b]Examples[/b]

ledl datasets

LEDL_DATA=/data ledl datasets  [dim]# look for them in /data[/dim]

ledl datasets digits -o images  [dim]# images/0/00000.png, ...: something to try ledl fit on[/dim]
"""

# How the settings of a method are found, and how answers are written.
Select = StrEnum("Select", ["defaults", "cv"])
Format = StrEnum("Format", ["table", "csv", "json"])

# Those whose models can be kept in a file.
NAMES = [name for name in METHODS if name not in ("ledl-paper", "rbf-svm", "1-nn")]


def known_method(name: str) -> str:
    """Return a method's name, as it is, or refuse it."""
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(NAMES)}.")
    return name


def fit(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder with a folder of images for each class.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the model goes.")],
    features: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What is seen of an image. [b]pixels[/b]: those of a small grey copy, for faces and digits. "
            "[b]FILE.onnx[/b]: the output of a network, for photos. [b]resnet50[/b], or another name: that of "
            "a network of torchvision. [b]auto[/b]: pixels, or resnet50_pool5.onnx in the folder LEDL_DATA "
            "if it is there and does better in cross-validation.",
        ),
    ] = "auto",
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"What classifies: {', '.join(NAMES)}. [b]ledl-cv[/b] is LEDL with kernel, rule and weights "
            "chosen by cross-validation in the training images.",
            callback=known_method,
            autocompletion=lambda: NAMES,
        ),
    ] = "ledl-cv",
    per_class: Annotated[
        int | None,
        typer.Option(min=1, help="Train on so many random images of each class. Without: on all.", metavar="N"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another number draws other images.")] = 0,
    select: Annotated[
        Select,
        typer.Option(
            help="[b]defaults[/b]: the settings of the estimators. [b]cv[/b]: settings are chosen by "
            "cross-validation in the training images, as ledl-cv always does."
        ),
    ] = Select.defaults,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="For a folder without folders: a table of file names and labels."
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Height and width for pixels; 32 without.", metavar="N"),
    ] = None,
    preprocessing: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="What is done to an image before a network sees it: [b]caffe[/b], [b]imagenet[/b] or "
            "[b]FILE.json[/b]. Without: what is known to belong to the network, or lies beside it as "
            "FILE.json.",
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep features of images, by content, for the next time."),
    ] = None,
    no_thumbnails: Annotated[
        bool,
        typer.Option(
            "--no-thumbnails",
            help="Keep no small pictures of the training images in the model; explanations have none then.",
        ),
    ] = False,
) -> None:
    """Train on a folder of images.

    Prints the accuracy in cross-validation: each training image is judged by a model that has not seen it.
    """
    console = PipedConsole(stderr=True)
    with errors_told(console):
        check_out(out, "model.ledl")
        from ledl.image_models import facts, fit_folder
        from ledl.images import PixelFeatures, image_files
        from ledl.persistence import save

        with warnings.catch_warnings(record=True) as caught, bar(console, "features") as watch:
            warnings.simplefilter("always")
            trained = fit_folder(
                folder,
                labels=labels,
                features=features,
                preprocessing=preprocessing,
                size=size,
                method=method,
                select=select.value,
                per_class=per_class,
                seed=seed,
                thumbnails=not no_thumbnails,
                cache=cache,
                watch=watch,
                tell=lambda text: say(console, text),
            )
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            say(console, f"Note: {text}", style="yellow")
        save(trained.model, out, info=trained.record.as_info())
        tell_ignored(console, image_files([folder])[1])
        record, people = trained.record, PipedConsole()
        for name, text in facts(trained).items():
            if name != "classes":
                say(people, f"{name.capitalize() + ':':12s}{text}")
        for name, reason in record.skipped:
            say(people, f"{'Left out:':12s}{name}: {reason}", style="yellow")
        say(people, f"{'Model:':12s}{out} ({out.stat().st_size / 1e6:.1f} MB)")
        n_same = len(record.sha256) - len(set(record.sha256))
        if n_same:
            say(
                people,
                f"{'Note:':12s}{n_same} images have the content of another, so the accuracy is too high.",
            )
        if features == "auto" and isinstance(trained.extractor, PixelFeatures):
            say(people, f"{'Note:':12s}pixels suit faces and digits; photos want a network (--features).")
        rest = f"{shlex.quote(str(folder))} --labels {shlex.quote(str(labels or 'folder'))}"
        what = rest if per_class else "IMAGE..."
        say(people, f"{'Next:':12s}ledl predict {shlex.quote(str(out))} {what}", style="dim")


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
    console = PipedConsole(stderr=True)
    with errors_told(console):
        if labels is None and (confusion is not None or mistakes):
            raise ValueError("--confusion and --mistakes need --labels: without the truth there are none.")
        if confusion is not None:
            check_out(confusion, "confusion.csv")
        from ledl.cli import _work
        from ledl.image_models import REJECTED, open_image_model, predict_files, rejecter_for

        found = open_image_model(model, network=features)
        if reject is not None:
            rejecter_for(found, reject)
        files, truths = _work.images_of(console, paths, labels, found)
        classes = [str(label) for label in found.parts.classifier.classes_]
        widths = max(len(str(file)) for file in files), max(map(len, [*classes, REJECTED]))
        with bar(console, "images") as watch:
            counts, unreadable = _work.write_answers(
                zip(predict_files(found, files, reject=reject, watch=watch), truths, strict=True),
                form.value,
                top=top,
                widths=widths,
                has_truth=labels is not None,
                has_p_value=reject is not None,
                mistakes=mistakes,
            )
        for reason in unreadable:
            say(console, f"Unreadable: {reason}", style="red")
        if unreadable:
            say(console, f"{len(unreadable)} of {len(files)} images could not be read.")
        if labels is not None:
            people = PipedConsole() if form is Format.table else console  # stdout is a machine's otherwise
            _work.show_judged(people, counts, classes, confusion, can_reject=reject is not None)
    if unreadable:
        raise typer.Exit(SOME_UNREADABLE)


def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that ledl fit wrote.")],
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="An image.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PAGE.html", help="Where the page goes.")],
    reject: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help='Say "none of these" if the image is unlike every class.'),
    ] = None,
    features: Annotated[
        str | None, typer.Option(metavar="FILE.onnx", help="Where the network lies, if it has moved.")
    ] = None,
) -> None:
    """Say why an image is taken for a class: a page with the atoms, and the training images, behind it."""
    with errors_told(PipedConsole(stderr=True)):
        check_out(out, "why.html")
        if out.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"{out} is to be a page for a browser. Give a name that ends in .html.")
        from ledl.image_models import explain_image, open_image_model

        opened = open_image_model(model, network=features)
        found = explain_image(opened, image, out, reject=reject)
        say(PipedConsole(), f"{found.text(opened.record.files)}\n\nPage: {out.resolve()}")


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines, with the names of all files.")] = False,
) -> None:
    """Tell what is in a model file: method, features, classes, accuracy, what it was trained on."""
    with errors_told(PipedConsole(stderr=True)):
        from ledl.image_models import all_facts

        told = all_facts(model)
        if as_json:
            typer.echo(json.dumps(told, ensure_ascii=False))
            return
        for name, value in told.items():
            if isinstance(value, str):
                say(PipedConsole(), f"{name.capitalize() + ':':15s}{value}")


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A dataset to write as images.",
            show_default=False,
            autocompletion=lambda: list(DATASET_TITLES),
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where its images go.")
    ] = None,
) -> None:
    """Tell which of the paper's datasets are here, which can be downloaded, and whom to ask for the others.

    With a name and a folder: write one that has pictures as a folder of images for each class, to try the other
    commands on.
    """
    console = PipedConsole()
    with errors_told(PipedConsole(stderr=True)):
        if (name is None) != (out is None):
            raise ValueError(
                "A dataset is written with both, a name and a folder: ledl datasets digits -o images."
            )
        if name is not None and out is not None:
            from ledl.cli import _work

            n = _work.write_images(name, out)
            say(console, f"{n} images are in {out}. Next: ledl fit {out} -o model.ledl --per-class 5")
            return
        from ledl.datasets import available, data_folder

        heads = [Column(head, overflow="fold") for head in ("dataset", "status", "where")]
        shown = Table(*heads, box=None, padding=(0, 2, 0, 0))
        styles = {"here": "green", "download": "cyan", "ask": "yellow"}
        for found in available():
            shown.add_row(Text(found.name), Text(found.status, styles[found.status]), Text(found.detail))
        console.print(shown)
        named = os.environ.get("LEDL_DATA")
        by = "which LEDL_DATA names" if named else "unless the variable LEDL_DATA names another"
        say(console, f"Looked for in the folder {data_folder()}, {by}.", style="dim")
