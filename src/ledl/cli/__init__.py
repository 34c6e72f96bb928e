"""Define the command line. Commands import heavy modules only when they run, so that help is fast."""

from __future__ import annotations

from typing import Annotated

import typer

import ledl
from ledl.cli import _images, _label, _reproduce
from ledl.cli._console import NO_ROOM

__all__ = ["NO_ROOM", "app"]

app = typer.Typer(
    help="Classify images from a handful of labelled examples, with supervised dictionary learning.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="[b]A first model[/b]\n\nledl fit photos -o model.ledl  [dim]# photos/cat/1.jpg, photos/dog/2.jpg, "
    "...[/dim]\n\nledl predict model.ledl new_photos\n\nledl explain model.ledl new_photos/3.jpg -o why.html",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ledl {ledl.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Define the options of all commands."""


for command in (_images.fit, _images.predict, _images.explain, _images.info, _images.datasets):
    app.command(epilog=_images.EXAMPLES[command.__name__])(command)
app.command(epilog=_label.EXAMPLES)(_label.label)
app.command(epilog=_reproduce.EXAMPLES)(_reproduce.reproduce)
