"""The command line. What computes is imported by the commands that need it, so that help comes at once."""

from __future__ import annotations

from typing import Annotated

import typer

import ledl
from ledl.cli import _images, _reproduce

__all__ = ["app"]

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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of all commands."""


app.command(epilog=_images.FIT_EXAMPLES)(_images.fit)
app.command(epilog=_images.PREDICT_EXAMPLES)(_images.predict)
app.command(epilog=_images.EXPLAIN_EXAMPLES)(_images.explain)
app.command(epilog=_images.INFO_EXAMPLES)(_images.info)
app.command(epilog=_images.DATASETS_EXAMPLES)(_images.datasets)
app.command(epilog=_reproduce.EXAMPLES)(_reproduce.reproduce)
