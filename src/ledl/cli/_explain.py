"""``ledl explain``: why an image was taken for a class, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledl.cli._console import check_out, errors_told, say, stderr, stdout

EXAMPLES = """
[b]Examples[/b]

ledl explain model.ledl photos/3.jpg -o why.html
"""


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
    console = stderr()
    with errors_told(console):
        check_out(out, "why.html")
        if out.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"{out} is to be a page for a browser. Give a name that ends in .html.")
        from ledl._images import explain_image, open_image_model

        opened = open_image_model(model, network=features)
        found = explain_image(opened, image, out, reject=reject)
        say(stdout(), found.text(opened.record.files))
        say(stdout(), f"\nPage: {out.resolve()}")
