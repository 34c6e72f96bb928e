"""Run ``ledl reproduce``: the paper's tables and figures."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from ledl.cli._console import PipedConsole, errors_reported, say
from ledl.experiments import DATASET_TITLES, METHODS, PAPER_DATASETS, SEMI_SUPERVISED, SUPERVISED
from ledl.methods import title_of

if TYPE_CHECKING:
    from ledl.experiments import Outcome, Progress

LINE_EVERY = 30.0  # seconds between lines of progress if there is no terminal for a bar

# How to find the settings of a method.
Select = StrEnum("Select", ["cv", "wide", "defaults"])

EXAMPLES = """
[b]Examples[/b]

ledl reproduce  [dim]# digits, a minute or two[/dim]

ledl reproduce yaleb pie --select defaults  [dim]# both face sets[/dim]

ledl reproduce paper --out results  [dim]# the paper's table 1, an hour or more on two cores[/dim]

ledl reproduce semi --out semi  [dim]# the same datasets, most samples without labels: hours[/dim]

ledl reproduce usps --methods ledl lda mymethod:MyClassifier  [dim]# with your own method[/dim]

ledl reproduce --data my.npz --methods ledl,lda  [dim]# on your own samples[/dim]

ledl reproduce paper --out results --dask tcp://192.168.0.1:8786  [dim]# the same on a cluster[/dim]
"""


def reproduce(
    datasets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATASET",
            help=f"[b]paper[/b] for the rows of the paper's table 1, or any of {', '.join(DATASET_TITLES)}. "
            "Default: digits, which come with scikit-learn. [b]semi[/b] compares methods that learn from "
            "samples without labels, too, on the datasets beside it, or on the paper's.",
            show_default=False,
            autocompletion=lambda: ["paper", "semi", *DATASET_TITLES],
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help=f"[b]all[/b] (with semi: {', '.join(SEMI_SUPERVISED)}), or any of {', '.join(METHODS)}, or "
            "[b]module:Class[/b] of your own: a classifier with scikit-learn's interface, or a GridSearchCV "
            "with its grid, in a file of this folder or installed. Names may also be separated by spaces. "
            "Default: all.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.npz",
            help="Your own dataset: a file that numpy.savez(path, X=samples, y=labels) wrote. It may be given "
            "several times.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    select: Annotated[
        Select,
        typer.Option(
            help="How to find settings. [b]cv[/b]: by cross-validation in the training samples, with at most "
            "12 candidates per method, each with three powers of the features (ledl-cv: 60 in all). "
            "[b]wide[/b]: the same, with many more candidates for LEDL, SRC and CRC, best on a GPU. "
            "[b]defaults[/b]: the defaults of the estimators."
        ),
    ] = Select.cv,
    n_per_class: Annotated[int, typer.Option(min=1, help="Number of training samples of each class.")] = 5,
    splits: Annotated[int, typer.Option(min=1, max=1000, help="Number of random splits.")] = 8,
    jobs: Annotated[
        int,
        typer.Option(min=0, help="Number of processes; 0: one per core. The results do not depend on it."),
    ] = 0,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run on a Dask cluster, not with --jobs (extra dask). Give the address of its scheduler, "
            "tcp://HOST:PORT, or its scheduler file. Workers need the same ledl and datasets. The results do "
            "not depend on it.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Device for LEDL, SRC and CRC: [b]cuda[/b] for a GPU (extra gpu), with --dask those of the "
            "workers. Default: the CPU."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for tables, figures and report.")] = Path(
        "ledl-results"
    ),
    figures: Annotated[
        bool, typer.Option(help="Draw figures, and compute the cells that only they need.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON instead of tables.")
    ] = False,
) -> None:
    """Compare LEDL with other methods: the paper's table and figures, and a report.

    Finished cells are kept in the folder. After Ctrl-C or a crash, run the same command again to continue.
    """
    from ledl import experiments

    console = PipedConsole(stderr=True)
    is_semi = "semi" in (datasets or [])
    # After --methods NAME, more names may follow: what is no dataset may be a method.
    more = [name for name in datasets or [] if name in METHODS or ":" in name]
    chosen = [name for name in datasets or [] if name not in (*more, "semi")]
    files = [str(path) for path in data or []]
    for path in files:
        if not path.endswith(".npz"):
            raise typer.BadParameter(
                f"{path} is no .npz file. Write one with numpy.savez(path, X=samples, y=labels).",
                param_hint="--data",
            )
    chosen = chosen or ([] if files else ["paper"] if is_semi else ["digits"])
    named = methods.replace(",", " ").split() if methods is not None else [] if more else ["all"]
    if any(":" in name for name in (*more, *named)):
        sys.path.insert(0, os.getcwd())  # for modules in this folder
    results = stream_for_results()
    try:
        plan = experiments.Plan(
            (*_expand(chosen, "paper", PAPER_DATASETS), *files),
            _expand([*named, *more], "all", SEMI_SUPERVISED if is_semi else SUPERVISED),
            select.value,
            n_per_class,
            splits,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--methods") from error
    if is_semi and not any(METHODS[name].unlabelled for name in plan.methods if name in METHODS):
        raise typer.BadParameter(
            f"semi compares methods that learn from unlabelled samples, but {', '.join(plan.methods)} get the "
            "labelled ones alone, as all methods of your own. Leave semi out, or add one, such as ledl-semi.",
            param_hint="--methods",
        )
    if dask is not None and jobs:
        raise typer.BadParameter(
            f"--jobs {jobs} is for this machine, --dask {dask} for a cluster. Leave out one of the two.",
            param_hint="--jobs",
        )
    kept = f"Finished cells are kept in {out}."
    with errors_reported(console, f"Stopped. {kept} Run the same command again to continue."):
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
        except BrokenProcessPool:
            raise ChildProcessError(
                f"A process was killed, perhaps because memory ran out. {kept} Use fewer --jobs."
            ) from None
        with results as stream, redirect_stdout(stream):
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


def stream_for_results() -> AbstractContextManager[TextIO]:
    """Return stdout, and send what own methods print to stderr from now on: in Python, in C, or in processes.

    The results get a descriptor of their own, so that C code may also print its last lines at exit.
    """
    try:
        descriptor, of_errors = sys.stdout.fileno(), sys.stderr.fileno()
    except (AttributeError, OSError):  # closed, or no files
        return nullcontext(sys.stdout)
    sys.stdout.flush()
    results = open(os.dup(descriptor), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115
    os.dup2(of_errors, descriptor)
    return results


def _expand(given: list[str], several: str, those: tuple[str, ...]) -> tuple[str, ...]:
    """Return each name once, with the name `several` replaced by the names for which it stands."""
    names = [name.strip() for name in given if name.strip()]
    return tuple(dict.fromkeys(n for name in names for n in (those if name == several else [name])))


@contextmanager
def _progress(console: Console) -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    """Yield two functions that show the progress and a text: in a bar, or in a line every 30 seconds."""
    if not console.is_terminal:
        printed: float | None = None

        def print_now_and_then(progress: Progress) -> None:
            nonlocal printed
            if printed is None or time.monotonic() - printed > LINE_EVERY:
                hint = _for_figures(progress) if printed is None else ""  # in the first line
                printed = time.monotonic()
                text = f"{progress.n_done} of {progress.n_cells} cells. {_left(progress)}"
                say(console, f"{text} {hint}".rstrip())

        yield print_now_and_then, lambda text: None
        return
    columns = [
        TextColumn("{task.fields[left]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("[dim]{task.description}"),
    ]  # fmt: skip
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, left="")

        def watch(progress: Progress) -> None:
            running = ", ".join(f"{cell.method} on {title_of(cell.dataset)}" for cell in progress.running)
            running = f"{running}. {_for_figures(progress)}".rstrip(" .")
            bar.update(
                task,
                total=progress.n_cells,
                completed=progress.n_done,
                description=running,
                left=_left(progress),
            )

        yield watch, lambda text: bar.update(task, description=text, left="")


def _for_figures(progress: Progress) -> str:
    """Return how many of the cells only figures need, and how to leave them out."""
    n = progress.n_for_figures
    return f"{n} of them are for figures only: --no-figures leaves them out." if n else ""


def _left(progress: Progress) -> str:
    seconds = progress.seconds_left
    if not seconds:  # not known, or nothing is left
        return ""
    minutes = round(seconds / 60)
    return f"About {minutes} min left." if minutes >= 2 else f"About {max(round(seconds), 1)} s left."


def _show(outcome: Outcome, out: Path) -> None:
    console = PipedConsole()
    marks = {"best": ("* ", "bold green"), "within noise": ("~ ", ""), "": ("", "")}  # also seen without colour
    for table in outcome.tables:
        if table.prose:  # too long: only in the files
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
        say(console, f"Tables:  {out.resolve() / 'table.md'} (.csv, .tex; splits.csv has every split)")
    if outcome.pictures:
        say(console, f"Figures: {out.resolve() / 'figures'} (.png, .pdf, .svg)")
