"""Define the commands ``ledl fit``, ``predict``, ``explain``, ``info`` and ``datasets``.

Commands import heavy modules only when they run, so that help is fast.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from ledl.cli._console import (
    SOME_UNREADABLE,
    PipedConsole,
    SteadyConsole,
    bar,
    close_stdout,
    errors_reported,
    say,
    shown_log,
    to_json,
    visible,
    warnings_as_notes,
)
from ledl.csv_cells import mark_for
from ledl.experiments import DATASET_TITLES
from ledl.files import place_for, write_atomically
from ledl.methods import SUPERVISED

# Printed at the end of the help of each command.
EXAMPLES = {
    "fit": """
[b]Examples[/b]

ledl fit photos -o model.ledl  [dim]# photos/cat/1.jpg, photos/dog/2.jpg, ...[/dim]

ledl fit photos --unlabelled more_photos -o model.ledl  [dim]# images without labels teach, too[/dim]

ledl fit photos -o model.ledl --features dinov2.onnx --preprocessing preprocessor_config.json

ledl fit faces -o faces.ledl --features pixels --method crc --select cv

ledl fit photos -o model.ledl --per-class 5 --seed 1  [dim]# train on five images per class[/dim]

ledl fit photos -o better.ledl --labels folder --labels corrected.csv  [dim]# and on corrected answers[/dim]
""",
    "predict": """
[b]Examples[/b]

ledl predict model.ledl 1.jpg 2.jpg

ledl predict model.ledl photos --format csv > labels.csv

ledl predict model.ledl photos --review 40 --format csv > review.csv  [dim]# the 40 least sure, to correct[/dim]

ledl predict model.ledl photos --page results.html  [dim]# pictures: examples of each class, the doubtful[/dim]

ledl predict model.ledl photos --sort-into sorted  [dim]# sorted/cat/1.jpg, sorted/dog/2.jpg, ...[/dim]

ledl predict model.ledl photos --labels folder  [dim]# accuracy on all images except the training images[/dim]

ledl predict model.ledl photos --labels folder --mistakes  [dim]# print only wrong predictions[/dim]

ledl predict model.ledl photos --reject 0.05  [dim]# "none of these" for images unlike every class[/dim]

[b]Exit status[/b]

0: success. 1: some images could not be read. 2: error, nothing was done but what was printed before.
""",
    "explain": """
[b]Examples[/b]

ledl explain model.ledl photos/3.jpg -o why.html

ledl explain model.ledl photos/3.jpg -o why.html --against forest  [dim]# why is it not a forest?[/dim]
""",
    "info": """
[b]Examples[/b]

ledl info model.ledl

ledl info model.ledl --json
""",
    "datasets": """
[b]Examples[/b]

ledl datasets

LEDL_DATA=/data ledl datasets  [dim]# search in /data[/dim]

ledl datasets digits -o images  [dim]# write images/0/00000.png, ..., to try ledl fit[/dim]
""",
}

MOST_DOUBTFUL = 10  # labels that look wrong, in the output of ledl fit
# Values of options.
Select = StrEnum("Select", ["defaults", "cv"])
Format = StrEnum("Format", ["table", "csv", "json"])
SortBy = StrEnum("SortBy", ["copy", "link", "move"])
MaxPixels = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=178_956_970,  # where Pillow stops
        metavar="N",
        help="Largest number of pixels of an image; larger ones are refused. Default: 67,108,864.",
    ),
]
# Models of the other supervised methods cannot be saved in a file.
NAMES = [name for name in SUPERVISED if name not in ("ledl-paper", "rbf-svm", "1-nn")]


def known_method(name: str) -> str:
    """Return the name of a method, or raise an error if there is none of that name."""
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(NAMES)}.")
    return name


def as_argument(path: Path) -> str:
    """Return a path as an argument of a command, which no one takes for an option."""
    return os.path.join(".", path) if str(path).startswith("-") else str(path)


def check_page(path: Path | None) -> None:
    """Raise an error if a page cannot be written to a path: now, not after the work."""
    if path is not None:
        place_for(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"The page {path} is for a browser. Give a name that ends in .html.")


def check_outputs(outputs: dict[str, Path | None], inputs: list[Path]) -> None:
    """Raise an error if a file for output is an image, a network or an input, which would be lost."""
    from ledl.images import SUFFIXES

    taken = set(map(os.path.realpath, inputs))
    for option, path in outputs.items():
        if path is not None:
            place, _ = place_for(path)  # raises if it cannot be written: now, not after the work
            if str(place) in taken:
                raise ValueError(
                    f"{option} {path} would replace the file of another option. Choose another name."
                )
            if place.suffix.lower() in {*SUFFIXES, ".onnx"}:
                raise ValueError(
                    f"{option} {path} has the name of an image or a network, which would be lost or taken for "
                    "one. Choose another name."
                )
            taken.add(str(place))


def fit(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder with one folder of images per class.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File for the model.")],
    features: Annotated[
        str,
        typer.Option(
            metavar="auto|pixels|color|FILE.onnx|NAME",
            help="Features of an image. [b]pixels[/b]: a small grey copy, for faces and digits. [b]color[/b]: "
            "colours and textures, for photos if there is no network. [b]FILE.onnx[/b]: the output of a "
            "network. [b]NAME[/b]: efficientnet_lite0, the network of the extra photos, or a network of "
            "torchvision, for example resnet50. [b]auto[/b]: pixels for images with a shorter side of at most "
            "64 pixels, otherwise efficientnet_lite0 if it is installed, or color.",
        ),
    ] = "auto",
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"The classifier: {', '.join(NAMES)}. [b]ledl-cv[/b] is LEDL with kernel, rule and weights "
            "chosen by cross-validation on the training images.",
            callback=known_method,
            autocompletion=lambda: NAMES,
        ),
    ] = "ledl-cv",
    per_class: Annotated[
        int | None,
        typer.Option(min=1, help="Number of random training images per class. Default: all.", metavar="N"),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=2**32 - 1,
            help="Seed of all that is random: the images that --per-class draws, the start of the method, and "
            "the folds in which settings are chosen.",
        ),
    ] = 0,
    select: Annotated[
        Select,
        typer.Option(
            help="Settings of the method. [b]defaults[/b]: the default settings. [b]cv[/b]: chosen by "
            "cross-validation on the training images. ledl-cv always does this."
        ),
    ] = Select.defaults,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="folder|FILE.csv",
            help="Labels of the images. [b]folder[/b], the default: the names of the class folders. "
            "[b]FILE.csv[/b]: a table of paths and labels, such as [b]ledl predict --format csv[/b] writes; "
            "images with a blank label are unlabelled. Give the option twice for both: the table corrects "
            "labels of folders, and adds images from elsewhere.",
        ),
    ] = None,
    unlabelled: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="Images without labels, at any depth, from which the model learns, too: what images look "
            "alike. The names of folders below FOLDER do not count. May be given several times.",
        ),
    ] = None,
    write_labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="File for the labels of the unlabelled images, with probabilities: a table that "
            "[b]--labels[/b] reads.",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Height and width for pixels. Default: 32.", metavar="N"),
    ] = None,
    preprocessing: Annotated[
        str | None,
        typer.Option(
            metavar="caffe|imagenet|FILE.json",
            help="How images become the input of the network: [b]caffe[/b], [b]imagenet[/b], or "
            "[b]FILE.json[/b], such as the preprocessor_config.json of Hugging Face. Default: the JSON file "
            "with the name of the network next to it, or the preprocessing that is known for the network.",
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder that keeps features of images for the next run."),
    ] = None,
    no_thumbnails: Annotated[
        bool,
        typer.Option(
            "--no-thumbnails",
            help="Do not store small pictures of the training images. Explanations then show none.",
        ),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="File for a page about the training images: how many of each class were recognised, and "
            "pictures of those whose labels look wrong.",
        ),
    ] = None,
    max_pixels: MaxPixels = None,
    skip_unreadable: Annotated[
        bool,
        typer.Option(
            "--skip-unreadable",
            help="Leave out images that cannot be read. Without it they are listed, and nothing is done.",
        ),
    ] = False,
) -> None:
    """Train a model on a folder of images.

    Images may lie at any depth below the folder of their class. Whatever is not used is listed.

    Prints the accuracy in cross-validation: each training image is tested with a model trained without it. With
    unlabelled images, the model knows the image, but not its label.
    """
    console = PipedConsole(stderr=True)
    with errors_reported(console):
        tables = [base / name for base in (Path(), folder) for name in labels or () if name != "folder"]
        described = [Path(preprocessing or ""), Path(f"{os.path.splitext(features)[0]}.json")]
        check_outputs({"--out": out, "--page": page, "--write-labels": write_labels}, [*tables, *described])
        check_page(page)
        from ledl.cli import _pages, _work
        from ledl.image_models import doubtful_labels, facts, fit_folder, training_notes
        from ledl.images import MAX_PIXELS
        from ledl.persistence import save

        with (
            warnings_as_notes(console),
            shown_log(console, "ledl.semi_supervised"),
            bar(console, "features") as watch,
        ):
            trained = fit_folder(
                folder,
                labels=labels,
                unlabelled=unlabelled or (),
                write_labels=write_labels is not None,
                features=features,
                preprocessing=preprocessing,
                size=size,
                method=method,
                select=select.value,
                per_class=per_class,
                seed=seed,
                thumbnails=page is not None or not no_thumbnails,
                cache=cache,
                max_pixels=max_pixels or MAX_PIXELS,
                skip_unreadable=skip_unreadable,
                watch=watch,
                report=partial(say, console),
            )
        record, people, notes = trained.record, SteadyConsole(), training_notes(trained)
        lines = [("", name.capitalize(), text) for name, text in facts(trained).items() if name != "classes"]
        lines += [("yellow", "Left out", f"{name}: {reason}") for name, reason in record.skipped]
        lines += [("yellow", "Note", text) for text in notes]
        for i in doubtful_labels(record)[:MOST_DOUBTFUL]:
            sure = "" if record.cv_probabilities is None else f" ({100 * record.cv_probabilities[i, 0]:.0f} %)"
            what = f"{record.files[i]} is labelled {record.labels[i]}, but looks like {record.cv_answers[i]}"
            lines.append(("yellow", "Look again", what + sure))
        save(trained.model, out, info=(replace(record, thumbnails=None) if no_thumbnails else record).to_info())
        lines.append(("", "Model", f"{out} ({out.stat().st_size / 1e6:.1f} MB)"))
        # All files come before the first line, which may go to a full disk. The lines come also if one of the
        # files cannot be written: the model is there.
        try:
            if write_labels is not None:
                labelled = sorted([*trained.answers, *trained.copies], key=attrgetter("path"))
                _work.write_labels(write_labels, labelled, [*map(str, trained.parts.classifier.classes_)])
                lines.append(("", "Labels", f"{write_labels} ({len(labelled)} images)"))
            if page is not None:
                write_atomically(page, _pages.training_page(trained, out, notes).encode(), through_links=True)
                lines.append(("", "Page", f"{page.resolve()}"))
        finally:
            for style, head, text in lines:
                say(people, f"{head + ':':12s}{visible(text)}", style=style)
        words = [word for name in labels or ["folder"] for word in ("--labels", name)]
        rest = [as_argument(folder), *words] if trained.n_left else ["NEW_IMAGES", "--page", "results.html"]
        say(people, f"{'Next:':12s}{shlex.join(['ledl', 'predict', as_argument(out), *rest])}", style="dim")


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file of ledl fit.")],
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Images, or folders with images at any depth.")
    ],
    form: Annotated[Format, typer.Option("--format", help="Format of the output.")] = Format.table,
    top: Annotated[int, typer.Option(min=1, help="Number of classes to print per image, best first.")] = 3,
    true_labels: Annotated[
        list[str] | None,
        typer.Option(
            "--labels",
            metavar="folder|FILE.csv",
            help="True labels. [b]folder[/b]: the name of the class folder of each image. [b]FILE.csv[/b]: a "
            "table of paths and labels, for one PATH that is a folder. Several as in [b]ledl fit[/b]. Skips "
            "the training images of the model. Prints accuracy and confusion matrix.",
        ),
    ] = None,
    reject: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help='Answer "none of these" for images unlike every class. The number is the share of images of '
            "the known classes that may be rejected by mistake: 0.05 is one in twenty.",
        ),
    ] = None,
    mistakes: Annotated[
        bool, typer.Option("--mistakes", help="With --labels: print only wrong predictions.")
    ] = False,
    confusion: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="File for the confusion matrix.")
    ] = None,
    review: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Print only the N images with the least sure answers, the least sure first. Correct the "
            "labels in the table of [b]--format csv[/b], and train again with it: [b]ledl fit --labels[/b].",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="File for a page about all results: how many images of each class, examples, the least sure "
            "answers (40, or --review) with a choice of labels to correct them, and how good the model is.",
        ),
    ] = None,
    features: Annotated[
        str | None, typer.Option(metavar="FILE.onnx", help="Path of the network, if it has moved.")
    ] = None,
    max_pixels: MaxPixels = None,
    sort_into: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Put the images into FOLDER, into one folder for each class. Nothing is overwritten, and the "
            "same command again changes nothing: what you moved there by hand stays.",
        ),
    ] = None,
    sort_by: Annotated[
        SortBy | None,
        typer.Option(help="With --sort-into: copy the images (default), link to them, or move them."),
    ] = None,
    unsure: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="P",
            help='With --sort-into: images with a probability below P go into the folder "unsure".',
        ),
    ] = None,
) -> None:
    """Predict the classes of images, and how sure that is.

    Models of ledl-cv, lda and logistic give probabilities, and so do all that were trained with --unlabelled.
    Others give scores: a larger score means that the image looks more like the class, and scores of different
    images cannot be compared.
    """
    console = PipedConsole(stderr=True)
    with errors_reported(console):
        labels = true_labels or []
        if not labels and (confusion is not None or mistakes):
            raise ValueError("--confusion and --mistakes need the true labels. Add --labels.")
        if review is not None and mistakes:
            raise ValueError("--review prints the least sure images, --mistakes the wrong ones. Give one.")
        if sort_into is None and (sort_by is not None or unsure is not None):
            raise ValueError("--sort-by and --unsure are about sorted images. Add --sort-into FOLDER.")
        tables = [base / name for base in (Path(), *paths) for name in labels if name != "folder"]
        check_outputs({"--confusion": confusion, "--page": page}, [model, *tables])
        check_page(page)
        from ledl.cli import _pages, _work
        from ledl.image_models import has_probabilities, open_image_model, predict_files, rejecter_for
        from ledl.images import REJECTED, Sorter

        found = open_image_model(model, network=features)
        if max_pixels is not None:
            found.extractor.set_params(max_pixels=max_pixels)
        if reject is not None:
            rejecter_for(found, reject)
        classes = [str(label) for label in found.parts.classifier.classes_]
        top = min(top, len(classes))
        sorter = None if sort_into is None else Sorter(sort_into, classes, sort_by or SortBy.copy, paths)
        homes = [sort_into] if sort_by is SortBy.move else []  # of the paths that are printed
        files, truths = _work.images_of(console, paths, labels, found, sorter)
        widths = max(len(str(file)) for file in files), max(len(visible(name)) for name in [*classes, REJECTED])
        shows = page is not None
        results = _work.Results(review or shows * _pages.N_REVIEW, shows * _pages.n_examples(classes))
        with warnings_as_notes(console), ExitStack() as stack:
            watch = stack.enter_context(bar(console, "images", prints=review is None))
            answers = predict_files(found, files, reject=reject, watch=watch)
            if sorter is not None:
                answers = _work.sort_answers(answers, sorter, unsure)
            with_truth = (said._replace(truth=truth) for said, truth in zip(answers, truths, strict=True))
            answers = results.collect(with_truth)
            if review is not None:
                deque(answers, maxlen=0)  # all of them, before the first is printed
                stack.close()  # the bar
                answers = iter(results.review)
            try:
                _work.write_answers(
                    answers,
                    form.value,
                    top=top,
                    widths=widths,
                    has_truth=bool(labels),
                    has_probability=has_probabilities(found),
                    has_p_value=reject is not None,
                    mistakes=mistakes,
                    mark=mark_for([*map(str, [*files, *homes]), *classes, *(truth or "" for truth in truths)]),
                )
            except BrokenPipeError:  # the reader of the output is gone
                if sorter is None and page is None and confusion is None:
                    raise
                close_stdout()
                deque(answers, maxlen=0)  # the files are still wanted
        try:
            if confusion is not None:
                _work.write_confusion(confusion, results.counts, classes)
            if page is not None:
                write_atomically(
                    page, _pages.results_page(found, results, model, classes).encode(), through_links=True
                )
        finally:
            for reason in results.unreadable:
                say(console, f"Unreadable: {visible(reason)}", style="red")
            if results.unreadable:
                say(console, f"Could not be read: {len(results.unreadable)} of {len(files)} images.")
            if labels:
                # stdout has only CSV or JSON if it is no table.
                people = SteadyConsole() if form is Format.table else console
                _work.show_judged(
                    people,
                    results.counts,
                    classes,
                    can_reject=reject is not None,
                    is_written=confusion is not None,
                )
            if sorter is not None:
                say(console, sorter.summary())
        if page is not None:
            say(console, f"Page: {page.resolve()}")
    if results.unreadable:
        raise typer.Exit(SOME_UNREADABLE)


def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file of ledl fit.")],
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="An image.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PAGE.html", help="File for the page.")],
    reject: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help='Answer "none of these" if the image is unlike every class, as ledl predict.'
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS",
            help="Why is it not this class? Compare the answer with it, not with the runner-up.",
        ),
    ] = None,
    features: Annotated[
        str | None, typer.Option(metavar="FILE.onnx", help="Path of the network, if it has moved.")
    ] = None,
    max_pixels: MaxPixels = None,
) -> None:
    """Explain a prediction: write a page with the answer, look-alike training images and the reasons."""
    console = PipedConsole(stderr=True)
    with errors_reported(console), warnings_as_notes(console):
        check_outputs({"--out": out}, [model, image])
        check_page(out)
        from ledl.image_models import explain_image, open_image_model

        opened = open_image_model(model, network=features)
        if max_pixels is not None:
            opened.extractor.set_params(max_pixels=max_pixels)
        found = explain_image(opened, image, out, reject=reject, against=against)
        say(PipedConsole(), f"{found.text(opened.record.names or None)}\n\nPage: {out.resolve()}")


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with the names of all training images.")
    ] = False,
) -> None:
    """Show what is in a model file: method, features, classes, accuracy, training images."""
    with errors_reported(PipedConsole(stderr=True)):
        from ledl.image_models import all_facts

        described = all_facts(model)
        if as_json:
            typer.echo(to_json(described))
            return
        for name, value in described.items():
            if isinstance(value, str):
                say(PipedConsole(), f"{name.capitalize() + ':':15s}{visible(value)}")


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Dataset to write as images.",
            show_default=False,
            autocompletion=lambda: list(DATASET_TITLES),
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the images.")
    ] = None,
) -> None:
    """List the paper's datasets: which are here, which can be downloaded, and whom to ask for the others.

    With NAME and --out: write the dataset as one folder of images per class, to try the other commands.
    """
    console = PipedConsole()
    with errors_reported(PipedConsole(stderr=True)):
        if (name is None) != (out is None):
            raise ValueError("Give both a dataset and a folder, for example: ledl datasets digits -o images.")
        if name is not None and out is not None:
            from ledl.cli import _work

            n, side = _work.write_images(name, out)
            options = ["-o", "model.ledl", "--per-class", "5", "--size", str(side)]
            then = shlex.join(["ledl", "fit", as_argument(out), *options])
            say(console, f"Wrote {n} images to {visible(str(out))}. Next: {visible(then)}")
            return
        from ledl.datasets import available, data_folder

        heads = [Column(head, overflow="fold") for head in ("dataset", "status", "where")]
        shown = Table(*heads, box=None, padding=(0, 2, 0, 0))
        styles = {"here": "green", "download": "cyan", "ask": "yellow"}
        for found in available():
            shown.add_row(Text(found.name), Text(found.status, styles[found.status]), Text(found.detail))
        console.print(shown)
        hint = "from LEDL_DATA" if os.environ.get("LEDL_DATA") else "set LEDL_DATA to use another"
        say(console, f"Data folder: {data_folder()} ({hint}).", style="dim")
