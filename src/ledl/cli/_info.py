"""``ledl info`` and ``ledl datasets``: what is in a model file, and which datasets are here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ledl.cli._console import errors_told, say

INFO_EXAMPLES = """
[b]Examples[/b]

ledl info model.ledl

ledl info model.ledl --json
"""
DATASETS_EXAMPLES = """
[b]Examples[/b]

ledl datasets

LEDL_DATA=/data ledl datasets  [dim]look for them in /data[/dim]
"""


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines, with the names of all files.")] = False,
) -> None:
    """Tell what is in a model file: method, features, classes, accuracy, what it was trained on."""
    with errors_told(Console(stderr=True)):
        from ledl.images import all_facts

        told = all_facts(model)
        if as_json:
            typer.echo(json.dumps(told, ensure_ascii=False))
            return
        for name, value in told.items():
            if isinstance(value, str):
                say(Console(), f"{name.capitalize() + ':':15s}{value}")


def datasets() -> None:
    """Tell which of the paper's datasets are here, which can be downloaded, and whom to ask for the others."""
    with errors_told(Console(stderr=True)):
        from rich.table import Table
        from rich.text import Text

        from ledl.datasets import available
        from ledl.datasets._load import data_folder

        shown = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("dataset", "", "from"):
            shown.add_column(name, overflow="fold")
        styles = {"here": "green", "download": "cyan", "ask": "yellow"}
        for found in available():
            shown.add_row(Text(found.name), Text(found.status, styles[found.status]), Text(found.detail))
        console = Console()
        console.print(shown)
        say(console, f"Looked for in {data_folder()} (environment variable LEDL_DATA).", style="dim")
