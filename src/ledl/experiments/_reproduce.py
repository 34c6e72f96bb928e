"""The whole: cells, tables, figures, report."""

from __future__ import annotations

import importlib.util
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs

from ledl.arrays import place
from ledl.datasets import available
from ledl.experiments._cells import Cell, dataset_digest, load_dataset
from ledl.experiments._claims import claims_table
from ledl.experiments._figures import Picture, draw_all
from ledl.experiments._report import remarks, write_page
from ledl.experiments._run import Plan, Progress, run_cells
from ledl.experiments._store import Store
from ledl.experiments._tables import (
    Results,
    Row,
    Table,
    summarise,
    tables,
    to_csv,
    to_latex,
    to_markdown,
)
from ledl.files import write_atomically
from ledl.methods import DATASET_TITLES, METHODS, PAPER_DATASETS

if TYPE_CHECKING:
    from ledl.experiments._cluster import Workers


@dataclass(frozen=True)
class Outcome:
    """What `reproduce` has made.

    Parameters
    ----------
    rows : list
        A method on a dataset each: accuracies, their mean and spread, times, settings.
    tables : list
        As they stand in the report.
    pictures : list
        The figures.
    remarks : list of str
        What else is to be said of the results.
    failures : list of str
        Cells that raised an error, with it.
    report : Path or None
        The page; None where nothing could be computed.

    Examples
    --------
    >>> from ledl.experiments import Outcome
    >>> Outcome([], [], [], [], ["src on yaleb: no memory"], None).report is None
    True
    """

    rows: list[Row]
    tables: list[Table]
    pictures: list[Picture]
    remarks: list[str]
    failures: list[str]
    report: Path | None


def reproduce(
    plan: Plan = Plan(),  # noqa: B008  (it is frozen)
    out: str | os.PathLike[str] = "ledl-results",
    *,
    n_jobs: int = 1,
    dask: str | None = None,
    device: str | None = None,
    figures: bool = True,
    watch: Callable[[Progress], None] = lambda progress: None,
    tell: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run a comparison, or what is left of it, and write its tables, figures and report.

    Parameters
    ----------
    plan : Plan
        Datasets, methods, how settings are found, samples and splits.
    out : path, default="ledl-results"
        The folder for everything. Finished cells in it are not computed again.
    n_jobs : int, default=1
        Processes; -1: one for each core. Results do not depend on it.
    dask : str, default=None
        Address of the scheduler of a Dask cluster, or path of its scheduler file (extra ``dask``): cells run
        on its workers, one at a time on each, in place of processes here. Results do not depend on it. Workers
        have ledl and the datasets themselves; nothing but this process writes to `out`.
    device : str, default=None
        Where LEDL, SRC and CRC run: ``"cuda"`` for a GPU (extra ``gpu``), of the workers if there are any.
        Figures are made without.
    figures : bool, default=True
        Draw figures, and compute the cells that only they need.
    watch : callable, default does nothing
        Called with the progress after each cell.
    tell : callable, default does nothing
        Called with a line of text on what else is being done.

    Returns
    -------
    Outcome
        ``rows`` (a method on a dataset each), ``tables``, ``pictures``, ``remarks``, ``failures`` (cells that
        raised an error), and ``report``, the path of the page.

    Examples
    --------
    >>> import tempfile
    >>> from ledl.experiments import Plan, reproduce
    >>> plan = Plan(methods=("crc", "1-nn"), select="defaults", n_splits=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outcome = reproduce(plan, folder, figures=False)
    >>> len(outcome.rows), outcome.failures
    (2, [])
    """
    check(plan, figures)
    digests = {dataset: dataset_digest(dataset) for dataset in plan.datasets}
    with _places(n_jobs, dask, device, digests) as (n_jobs, workers):  # refused before anything is written
        folder = _usable(out)
        store = Store(folder)
        options = {**asdict(plan), "seeds": list(range(plan.n_splits)), "n_jobs": n_jobs, "figures": figures}
        again = command(plan, out, n_jobs, figures, device, dask)
        where = {"device": device, "dask": dask}
        record = store.write_run_record({**options, **where, "command": again, "data": digests})
        store.sweep()
        known, failures = _run(plan, store, n_jobs, workers, device, figures, watch)
    results = _complete(plan, known)
    if not results:
        return Outcome([], [], [], [], failures, None)
    rows = summarise(plan, results)
    made = tables(plan, rows, results)
    tell("comparing with the paper's claims")
    claims = claims_table(plan, results)
    made = sorted([*made, *([claims] if claims else [])], key=lambda table: table.name == "settings")
    _write(folder / "table.md", "\n".join(map(to_markdown, made)))
    _write(folder / "table.tex", "\n".join(to_latex(table) for table in made if not table.prose))
    _write(folder / "table.csv", to_csv(rows))
    pictures: list[Picture] = []
    if figures:
        tell("drawing figures")
        pictures = draw_all(plan, results, known, folder / "figures", tell)
    said = remarks(plan, results)
    n_starts = len(list((folder / "runs").glob("*.json")))
    _write(folder / "report.html", write_page(plan, made, pictures, said, failures, record, n_starts, again))
    return Outcome(rows, made, pictures, said, failures, folder / "report.html")


@contextmanager
def _places(
    n_jobs: int, dask: str | None, device: str | None, digests: Mapping[str, str]
) -> Iterator[tuple[int, Workers | None]]:
    """How many cells can run at once, and the workers of the cluster if one is given."""
    if dask is None:
        place(np.empty(0), device)  # refuses one that is not there
        yield effective_n_jobs(n_jobs), None
        return
    if n_jobs != 1:
        raise ValueError(
            f"n_jobs={n_jobs} is for processes of this machine, but dask={dask!r} gives the cells to the "
            "cluster's workers, one at a time to each. Leave out one of the two."
        )
    from ledl.experiments._cluster import Needs, connected

    with connected(dask, Needs(digests, device)) as workers:
        yield workers.n, workers


def _usable(out: str | os.PathLike[str]) -> Path:
    """A folder that can be written to, before any work is done for it."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise OSError(
            f"out={os.fspath(out)!r} cannot be written to: {error}. Choose another folder."
        ) from error


def check(plan: Plan, figures: bool = False) -> None:
    """Whether the plan can be carried out, before anything is."""
    _known("method", plan.methods, METHODS)
    _known("dataset", plan.datasets, DATASET_TITLES)
    if plan.select not in ("cv", "wide", "defaults"):
        raise ValueError(f"select={plan.select!r} is not known: it is 'cv', 'wide' or 'defaults'.")
    if plan.n_splits < 1 or plan.n_per_class < 1:
        raise ValueError(
            f"n_splits={plan.n_splits} and n_per_class={plan.n_per_class}: both must be at least 1."
        )
    if plan.select != "defaults" and plan.n_per_class < 2:
        raise ValueError(
            "n_per_class=1 leaves nothing for cross-validation in the training samples. Use at least 2, or "
            "select='defaults'."
        )
    if not plan.cells():
        raise ValueError(
            f"There is nothing to run: {', '.join(plan.methods)} has no settings for "
            f"{', '.join(plan.datasets)}, only for {', '.join(PAPER_DATASETS)}."
        )
    if figures and importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "Figures need matplotlib: pip install 'ledl[plots]'; or leave them out (--no-figures)."
        )
    _check_data(plan)


def _check_data(plan: Plan) -> None:
    status = {entry.name: entry for entry in available()}
    absent = [dataset for dataset in plan.datasets if status[dataset].status == "ask"]
    if absent:
        here = [dataset for dataset in plan.datasets if status[dataset].status == "here"]
        details = "\n".join(f"  {dataset}: {status[dataset].detail}" for dataset in absent)
        rest = f"\nThe others are here: {' '.join(here)}." if here else ""
        raise FileNotFoundError(
            "These datasets are not here and cannot be downloaded (docs/datasets.md, LEDL_DATA):\n"
            f"{details}{rest}"
        )
    for dataset in plan.datasets:
        fewest = int(np.unique(load_dataset(dataset).target, return_counts=True)[1].min())
        if plan.n_per_class >= fewest:
            raise ValueError(
                f"n_per_class={plan.n_per_class} leaves no test samples of some class of {dataset}, which has "
                f"{fewest}. Use fewer."
            )


def _known(what: str, names: Sequence[str], known: Mapping[str, Any]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"There is no {what} {name!r}; there are {', '.join(known)}.")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"The {what}s are {list(names)}, but there must be at least one, and each once.")


def _run(
    plan: Plan,
    store: Store,
    n_jobs: int,
    workers: Workers | None,
    device: str | None,
    figures: bool,
    watch: Callable[[Progress], None],
) -> tuple[dict[Cell, dict[str, Any]], list[str]]:
    """Results of all cells, and what went wrong."""
    cells = list(dict.fromkeys(plan.cells() + (plan.study_cells() if figures else [])))
    progress = Progress(cells, n_jobs)
    watch(progress)
    known, failures = {}, []
    for done in run_cells(cells, store, n_jobs, device, workers):
        if done.result is not None:
            known[done.cell] = done.result
        else:
            cell = done.cell
            failures.append(f"{cell.dataset}, {cell.method}, split {cell.seed}: {done.error}")
        progress.update(done)
        progress.n_jobs = workers.n if workers else n_jobs
        watch(progress)
    return known, sorted(failures)


def _complete(plan: Plan, known: Mapping[Cell, dict[str, Any]]) -> Results:
    """Of those cells that have all their splits."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in sorted(plan.cells(), key=lambda cell: cell.seed):
        if cell in known:
            found.setdefault((cell.dataset, cell.method), []).append(known[cell])
    return {key: runs for key, runs in found.items() if len(runs) == plan.n_splits}


def command(
    plan: Plan,
    out: str | os.PathLike[str],
    n_jobs: int,
    figures: bool,
    device: str | None = None,
    dask: str | None = None,
) -> str:
    """What to type for the same again."""
    words = ["ledl", "reproduce", *plan.datasets, "--select", plan.select]
    if plan.methods != tuple(METHODS):
        words += ["--methods", ",".join(plan.methods)]
    words += ["--n-per-class", str(plan.n_per_class), "--splits", str(plan.n_splits)]
    words += ["--dask", dask] if dask else ["--jobs", str(n_jobs)]
    words += ["--device", device] if device else []
    words += ["--out", os.fspath(out)] + ([] if figures else ["--no-figures"])
    return shlex.join(words)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode()))
