"""``ledl fit``: a model from a folder of images."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ledl.cli._console import bar, check_out, errors_told, say, stderr, stdout, tell_ignored, warnings_told
from ledl.methods import METHODS

if TYPE_CHECKING:
    from ledl._images import Trained

EXAMPLES = """
[b]Examples[/b]

ledl fit photos -o model.ledl  [dim]# photos/cat/1.jpg, photos/dog/2.jpg, ...[/dim]

ledl fit photos -o model.ledl --features resnet50_pool5.onnx  [dim]# features of a network[/dim]

ledl fit faces -o faces.ledl --features pixels --method crc --select cv

ledl fit photos -o model.ledl --per-class 5 --seed 1  [dim]# five of each class[/dim]
"""

# Those whose models can be kept in a file.
NAMES = [name for name in METHODS if name not in ("ledl-paper", "rbf-svm", "1-nn")]


def known_method(name: str) -> str:
    """A method's name, as it is."""
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(NAMES)}.")
    return name


class Select(StrEnum):
    """How the settings of a method are found."""

    defaults = "defaults"
    cv = "cv"


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
    console = stderr()
    with errors_told(console):
        check_out(out, "model.ledl")
        from ledl._images import fit_folder, image_files
        from ledl.persistence import save

        with warnings_told(console), bar(console, "features") as watch:
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
        save(trained.model, out, info=trained.record.as_info())
        tell_ignored(console, image_files([folder])[1])
        show(stdout(), trained, features, labels, folder, out)


def show(
    console: Console, trained: Trained, features: str, labels: Path | None, folder: Path, out: Path
) -> None:
    """What was done, and how good it is."""
    from ledl._images import facts, image_model
    from ledl.features import PixelFeatures

    record = trained.record
    found = image_model(*trained)
    assert found is not None
    told = facts(found)
    del told["classes"]
    for name, text in told.items():
        say(console, f"{name.capitalize() + ':':12s}{text}")
    for name, reason in record.skipped:
        say(console, f"{'Left out:':12s}{name}: {reason}", style="yellow")
    say(console, f"{'Model:':12s}{out} ({out.stat().st_size / 1e6:.1f} MB)")
    n_same = len(record.sha256) - len(set(record.sha256))
    if n_same:
        say(console, f"{'Note:':12s}{n_same} images have the content of another, so the accuracy is too high.")
    if features == "auto" and isinstance(found.extractor, PixelFeatures):
        say(console, f"{'Note:':12s}pixels suit faces and digits; photos want a network (--features).")
    rest = f"{shlex.quote(str(folder))} --labels {shlex.quote(str(labels or 'folder'))}"
    what = rest if record.per_class else "IMAGE..."
    say(console, f"{'Next:':12s}ledl predict {shlex.quote(str(out))} {what}", style="dim")
