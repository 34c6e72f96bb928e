"""``ledl info`` and ``ledl datasets``: what is in a model file, and which datasets are here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ledl.cli._console import errors_told, say, stderr, stdout
from ledl.experiments import DATASET_TITLES

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


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines, with the names of all files.")] = False,
) -> None:
    """Tell what is in a model file: method, features, classes, accuracy, what it was trained on."""
    with errors_told(stderr()):
        from ledl._images import all_facts

        told = all_facts(model)
        if as_json:
            typer.echo(json.dumps(told, ensure_ascii=False))
            return
        for name, value in told.items():
            if isinstance(value, str):
                say(stdout(), f"{name.capitalize() + ':':15s}{value}")


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
    with errors_told(stderr()):
        if (name is None) != (out is None):
            raise ValueError(
                "A dataset is written with both, a name and a folder: ledl datasets digits -o images."
            )
        if name is None or out is None:
            list_datasets(stdout())
            return
        from ledl._images import write_dataset

        n = write_dataset(name, out)
        say(stdout(), f"{n} images are in {out}. Next: ledl fit {out} -o model.ledl --per-class 5")


def list_datasets(console: Console) -> None:
    """A line for each, and where they are looked for."""
    from rich.table import Table
    from rich.text import Text

    from ledl.datasets import available
    from ledl.datasets._load import data_folder

    shown = Table(box=None, padding=(0, 2, 0, 0))
    for head in ("dataset", "status", "where"):
        shown.add_column(head, overflow="fold")
    styles = {"here": "green", "download": "cyan", "ask": "yellow"}
    for found in available():
        shown.add_row(Text(found.name), Text(found.status, styles[found.status]), Text(found.detail))
    console.print(shown)
    by = (
        "which LEDL_DATA names"
        if os.environ.get("LEDL_DATA")
        else "unless the variable LEDL_DATA names another"
    )
    say(console, f"Looked for in the folder {data_folder()}, {by}.", style="dim")
