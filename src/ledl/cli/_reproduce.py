"""``ledl reproduce``: the paper's tables and figures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from ledl.cli._console import INTERRUPTED, say
from ledl.experiments import DATASET_TITLES, METHODS, PAPER_DATASETS

if TYPE_CHECKING:
    from ledl.experiments import Outcome, Progress

LINE_EVERY = 30.0  # seconds, where there is no terminal for a bar


# How the settings of a method are found.
Select = StrEnum("Select", ["cv", "wide", "defaults"])

EXAMPLES = """
[b]Examples[/b]

ledl reproduce  [dim]# digits, a minute or two[/dim]

ledl reproduce yaleb pie --select defaults  [dim]# both face sets[/dim]

ledl reproduce paper --out results  [dim]# the paper's table 1, an hour or more on two cores[/dim]

ledl reproduce paper --out results --dask tcp://192.168.0.1:8786  [dim]# the same on a cluster[/dim]
"""


def reproduce(
    datasets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATASET",
            help=f"[b]paper[/b] for the rows of the paper's table 1, or any of {', '.join(DATASET_TITLES)}. "
            "Without: digits, which come with scikit-learn.",
            show_default=False,
            autocompletion=lambda: ["paper", *DATASET_TITLES],
        ),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...", help=f"[b]all[/b], or any of {', '.join(METHODS)}.", show_default=True
        ),
    ] = "all",
    select: Annotated[
        Select,
        typer.Option(
            help="[b]cv[/b]: every method's settings are chosen by cross-validation in the training samples, "
            "the same budget for all but ledl-cv, which has more candidates. [b]wide[/b]: the same, with many "
            "more settings for LEDL, SRC and CRC, "
            "which a GPU makes cheap. [b]defaults[/b]: the defaults of the estimators."
        ),
    ] = Select.cv,
    n_per_class: Annotated[int, typer.Option(min=1, help="Training samples of each class.")] = 5,
    splits: Annotated[int, typer.Option(min=1, max=1000, help="Random splits, seeds 0, 1, ...")] = 8,
    jobs: Annotated[
        int, typer.Option(min=0, help="Processes; 0: one for each core. The results do not depend on it.")
    ] = 0,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run on the workers of the Dask cluster whose scheduler is there, tcp://HOST:PORT, or whose "
            "scheduler file that is, in place of --jobs (extra dask). Each worker runs one at a time, with its "
            "own ledl and datasets; what they find is written here. The results do not depend on it.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Where LEDL, SRC and CRC run: [b]cuda[/b] for a GPU (extra gpu), with --dask those of the "
            "workers. Without: the processors."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for results, figures and report.")] = Path(
        "ledl-results"
    ),
    figures: Annotated[bool, typer.Option(help="Draw figures, and compute what only they need.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON, for machines, in place of tables.")
    ] = False,
) -> None:
    """Compare LEDL with its rivals: the paper's table and figures, and a report.

    Finished cells are kept in the folder: after Ctrl-C, or a kill, the same command goes on where it was.
    """
    from ledl import experiments

    console = Console(stderr=True)
    plan = experiments.Plan(
        _expand(datasets or ["digits"], "paper", PAPER_DATASETS),
        _expand(methods.split(","), "all", tuple(METHODS)),
        select.value,
        n_per_class,
        splits,
    )
    if dask is not None and jobs:
        raise typer.BadParameter(
            f"{jobs} processes of this machine, or the workers of --dask {dask}, one cell at a time on each: "
            "leave out one of the two.",
            param_hint="--jobs",
        )
    try:
        with _progress(console) as (watch, tell):
            outcome = experiments.reproduce(
                plan,
                out,
                n_jobs=1 if dask is not None else jobs or os.cpu_count() or 1,
                dask=dask,
                device=device,
                figures=figures,
                watch=watch,
                tell=tell,
            )
    except KeyboardInterrupt:
        say(console, f"Stopped. What was finished is kept in {out}; the same command goes on from there.")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenProcessPool:
        say(console, f"A process was killed, maybe for memory. Finished cells are in {out}; try fewer --jobs.")
        raise typer.Exit(1) from None
    except (ValueError, OSError, ImportError) as error:
        say(console, f"Error: {error}", style="red")
        raise typer.Exit(2) from None
    if as_json:
        found = {
            "rows": [row._asdict() for row in outcome.rows],
            "remarks": outcome.remarks,
            "failures": outcome.failures,
            "report": str(outcome.report.resolve()) if outcome.report else None,
            "figures": [str(picture.path.resolve()) for picture in outcome.pictures],
        }
        typer.echo(json.dumps(found, allow_nan=False))
    else:
        _show(outcome, out)
    if outcome.failures:
        raise typer.Exit(1)


def _expand(given: list[str], several: str, those: tuple[str, ...]) -> tuple[str, ...]:
    """Return names, each once; one of them may stand for several."""
    names = [name.strip() for name in given if name.strip()]
    return tuple(dict.fromkeys(n for name in names for n in (those if name == several else [name])))


@contextmanager
def _progress(console: Console) -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    """Yield two functions that show how far it is: in a bar, or in a line now and then."""
    if not console.is_terminal:
        told = time.monotonic()

        def tell_now_and_then(progress: Progress) -> None:
            nonlocal told
            if time.monotonic() - told > LINE_EVERY:
                told = time.monotonic()
                say(console, f"{progress.n_done} of {progress.n_cells} cells; {_left(progress)}")

        yield tell_now_and_then, lambda text: None
        return
    columns = [
        TextColumn("{task.fields[left]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("[dim]{task.description}"),
    ]  # fmt: skip
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, left="")

        def watch(progress: Progress) -> None:
            running = ", ".join(f"{cell.method} on {cell.dataset}" for cell in progress.running)
            bar.update(
                task,
                total=progress.n_cells,
                completed=progress.n_done,
                description=running,
                left=_left(progress),
            )

        yield watch, lambda text: bar.update(task, description=text, left="")


def _left(progress: Progress) -> str:
    seconds = progress.seconds_left
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes >= 2 else f"about {max(round(seconds), 1)} s left"


def _show(outcome: Outcome, out: Path) -> None:
    console = Console()
    marks = {"best": ("* ", "bold green"), "within noise": ("~ ", ""), "": ("", "")}  # told without colour
    for table in outcome.tables:
        if table.prose:  # in the files
            continue
        shown = Table(title=table.title, title_justify="left")
        for i, name in enumerate(table.header):
            shown.add_column(name, justify="left" if i == 0 else "right", overflow="fold")
        for row in table.rows:
            shown.add_row(*(Text(marks[entry.mark][0] + entry.text, marks[entry.mark][1]) for entry in row))
        console.print(shown)
        say(console, table.full_note("*", "~"), style="dim")
    for text in outcome.remarks:
        say(console, f"Remark: {text}")
    for text in outcome.failures:
        say(console, f"Failed: {text}", style="red")
    if outcome.report:
        say(console, f"\nReport:  {outcome.report.resolve()}")
        say(console, f"Tables:  {out.resolve() / 'table.md'} (.csv, .tex)")
    if outcome.pictures:
        say(console, f"Figures: {out.resolve() / 'figures'}")
