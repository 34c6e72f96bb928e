"""Define the command ``ledl label``: a page on which a person labels a folder of images."""

from __future__ import annotations

import shlex
import webbrowser
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ledl.cli._console import PipedConsole, SteadyConsole, errors_reported, say, visible, warnings_as_notes
from ledl.cli._images import MaxPixels, as_argument, check_outputs

# Printed at the end of the help.
EXAMPLES = """
[b]Examples[/b]

ledl label photos  [dim]# opens the page; Ctrl-C ends it, and the same command goes on[/dim]

ledl label photos --labels known.csv  [dim]# begins with the labels of a table[/dim]

ledl label photos --export labels.csv --export model.ledl  [dim]# without a page[/dim]

ssh -L 8765:127.0.0.1:8765 you@there ledl label photos --port 8765 --no-browser  [dim]# from far away[/dim]
"""


class SortBy(StrEnum):
    """Ways to sort images. Moving is none: labels belong to images where they are."""

    copy = "copy"
    link = "link"


def label(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder with images, at any depth.")],
    labels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="folder|none|FILE.csv",
            help="Labels at hand. [b]folder[/b]: the names of the topmost folders in FOLDER. [b]FILE.csv[/b]: "
            "a table of paths and labels, as in [b]ledl fit[/b]. [b]none[/b]: no labels. May be given several "
            "times. Default: the names of folders if they look like classes. What you say on the page counts "
            "more.",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="auto|pixels|color|FILE.onnx|NAME",
            help="Features of an image, as in [b]ledl fit[/b]. Default: as the last time, or auto.",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Height and width for pixels, as in ledl fit.", metavar="N"),
    ] = None,
    preprocessing: Annotated[
        str | None,
        typer.Option(metavar="caffe|imagenet|FILE.json", help="How images become the input, as in ledl fit."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, metavar="N", help="Port of the page. Default: that of the last time."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and do not open a browser.")
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the labels. Default: FOLDER/.ledl-labels, or among your data if FOLDER is "
            "read-only.",
        ),
    ] = None,
    max_pixels: MaxPixels = None,
    export: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.csv|DIR|FILE.ledl|FILE.html",
            help="Write what was labelled, without a page: a table of labels, with probabilities and who gave "
            "them; a folder with one folder of images for each class; a model for [b]ledl predict[/b]; a page "
            "with pictures. May be given several times, and while the page is open.",
        ),
    ] = None,
    sort_by: Annotated[
        SortBy | None,
        typer.Option(help="With --export DIR: copy the images (default), or link to them."),
    ] = None,
    unsure: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="P",
            help='With --export DIR: suggestions with a probability below P go into the folder "unsure".',
        ),
    ] = None,
) -> None:
    """Label a folder of images on a page, with a few clicks.

    The page shows the images that teach most, suggests a label for each, learns after every answer, and says
    how good it is. It is served on this machine alone, and works offline. Every answer is stored at once.
    Images are never changed or moved.
    """
    console = PipedConsole(stderr=True)
    with errors_reported(console):
        try:
            from ledl.labelling import Options, opened, serve, write
        except ModuleNotFoundError as error:
            if error.name not in ("starlette", "uvicorn", "PIL"):
                raise
            raise ImportError(f"The page needs {error.name}: pip install 'ledl[label]'.") from None
        if not export and (sort_by is not None or unsure is not None):
            raise ValueError("--sort-by and --unsure are about sorted images. Add --export DIR.")

        options = Options(folder, labels, features, preprocessing, size, max_pixels, store)
        report = partial(say, console, style="dim")
        if export:
            inputs = [base / name for base in (Path(), folder) for name in labels or ()]
            files = [path for path in export if path.suffix and not path.is_dir()]
            for i, path in enumerate(files):
                check_outputs({"--export": path}, [*inputs, *files[:i]])
            if files == export and (sort_by is not None or unsure is not None):
                raise ValueError("--sort-by and --unsure are about sorted images. Add --export DIR.")
            how = sort_by or SortBy.copy
            failed: list[OSError] = []

            def tell(line: str) -> None:
                """Print a line. What cannot be printed ends no export: it is an error after all of them."""
                try:
                    say(SteadyConsole(), line)
                except OSError as error:
                    failed.append(error)

            with warnings_as_notes(console), opened(options, report, is_reader=True) as session:
                write(session, export, sort_by=how, unsure=unsure or 0.0, say=tell, report=report)
            if failed:
                raise failed[0]
            return
        with opened(options, report) as session, suppress(KeyboardInterrupt):
            place = visible(str(session.store.place))
            announce = partial(show_address, place=place, opens_browser=not no_browser)
            serve(session, port=port, announce=announce)
        if not session.store.file.exists():
            raise FileNotFoundError(
                f"Ended. The labels are not in {place} any more: the folder was moved or deleted while the "
                "page was open. Give its new place to go on."
            )
        again = visible(
            shlex.join(["ledl", "label", as_argument(folder), *(["--store", str(store)] if store else [])])
        )
        say(PipedConsole(), f"Ended. All answers are in {place}\nGo on:   {again}")
        say(PipedConsole(), f"Use it:  {again} --export labels.csv (or sorted/, model.ledl, summary.html)")


def show_address(address: str, place: str, opens_browser: bool) -> None:
    """Print where the page and the labels are, and open the page."""
    say(PipedConsole(), f"Labels:  {place}\nPage:    {address}")
    say(PipedConsole(), "Every answer is stored at once. Ctrl-C ends it.", style="dim")
    if opens_browser:
        webbrowser.open(address)
