"""Run cells in parallel, store each as soon as it is done, then write tables, figures and report."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from ledl.arrays import place
from ledl.datasets import available, data_folder
from ledl.experiments._cells import (
    Cell,
    Done,
    Plan,
    Store,
    as_json,
    dataset_digest,
    load_dataset,
    try_cell,
)
from ledl.experiments._cluster import Workers, connected
from ledl.experiments._report import Picture, draw, find_remarks, write_page
from ledl.experiments._tables import (
    BEST,
    CAVEATS,
    Results,
    Row,
    Table,
    make_tables,
    splits_to_csv,
    summarise,
    to_csv,
    to_latex,
    to_markdown,
)
from ledl.experiments._workers import follow
from ledl.files import write_atomically
from ledl.methods import DATASET_TITLES, METHODS, PAPER_DATASETS, SUPERVISED, title_of


@dataclass(frozen=True, repr=False)
class Outcome:
    """Hold the results of `reproduce`. Printed, they are a few lines; `tables` has all numbers.

    Parameters
    ----------
    rows : list
        One row for each method on each dataset: mean accuracy, spread, rank, times.
    tables : list
        The tables of the report.
    pictures : list
        The figures.
    remarks : list of str
        Remarks on the results: warnings, duplicates, mixed versions.
    failures : list of str
        Cells that raised an error, and the errors.
    report : Path or None
        Path of the report, or None if all cells failed.

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

    def __repr__(self) -> str:
        best = [
            f"{title_of(row.dataset)}: {row.method} {row.accuracy_mean:.1f} %"
            for row in self.rows
            if row.mark == BEST
        ]
        shown: dict[str, Sequence[Any]] = {
            "row": self.rows,
            "table": self.tables,
            "picture": self.pictures,
            "failure": self.failures,
        }
        counted = [f"{len(those)} {name}{'s' * (len(those) != 1)}" for name, those in shown.items()]
        lines = [", ".join(counted), *(["best: " + "; ".join(best)] if best else []), *self.failures[:3]]
        lines += [f"report: {self.report}"] if self.report else []
        return "Outcome(" + "\n        ".join(lines) + ")"


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
    """Run a comparison, or continue one, and write its tables, figures and report. It needs the extra ``cli``.

    Parameters
    ----------
    plan : Plan
        Datasets, methods, how settings are found, samples and splits.
    out : path, default="ledl-results"
        Folder for all files. Finished cells in it are not computed again.
    n_jobs : int, default=1
        Number of processes, or -1 for one per core. Results do not depend on it.
    dask : str, default=None
        Address of the scheduler of a Dask cluster, or path of its scheduler file (extra ``dask``). Cells then
        run on its workers, one at a time on each, instead of in processes of this machine. Results do not
        depend on it. Workers need the same ledl and datasets; only this process writes to `out`.
    device : str, default=None
        Device for LEDL, SRC and CRC: ``"cuda"`` for a GPU (extra ``gpu``), of the workers if there are any.
        Figures do not use it.
    figures : bool, default=True
        Whether to draw figures, and compute the cells that only they need.
    watch : callable, default does nothing
        Function that is called with the progress: first with the kept cells, then after each cell that ends.
    tell : callable, default does nothing
        Function that is called with a line of text for each further step.

    Returns
    -------
    Outcome
        Rows, tables, pictures, remarks, failures, and the path of the report.

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
    folder, store, failures = Path(out), Store(out), []
    damaged: list[str] = []
    with ExitStack() as stack:  # errors of the options are raised before anything is written
        workers = None
        if dask is None:
            place(np.empty(0), device)  # raises an error if there is no such device
            n_jobs = effective_n_jobs(n_jobs)
        elif n_jobs != 1:
            raise ValueError(
                f"n_jobs={n_jobs} is for processes of this machine, but dask={dask!r} runs the cells on the "
                "cluster's workers. Leave out one of the two."
            )
        else:
            workers = stack.enter_context(connected(dask, plan.cells(), device))
            n_jobs = workers.n
        store.prepare()
        options = {**as_record(plan), "seeds": list(range(plan.n_splits)), "n_jobs": n_jobs, "figures": figures}
        again = command(plan, out, n_jobs, figures, device, dask)
        record = store.write_run_record(
            {**options, "device": device, "dask": dask, "command": again, "data": digests}
        )
        cells = plan.cells() + plan.new_sample_cells() + (plan.study_cells() if figures else [])
        cells = list(dict.fromkeys(cells))
        n_of_tables = len(plan.cells()) + len(plan.new_sample_cells())
        progress = Progress(cells, n_jobs, n_for_figures=len(cells) - n_of_tables)
        known = kept_results(cells, store, damaged.append)
        for cell, result in known.items():
            progress.update(Done(cell, result))
        watch(progress)
        missing = [cell for cell in cells if cell not in known]
        for done in run_cells(missing, store, n_jobs, device, workers):
            if done.result is not None:
                known[done.cell] = done.result
            if done.error:
                cell = done.cell
                failures.append(f"{title_of(cell.dataset)}, {cell.method}, split {cell.seed}: {done.error}")
            progress.update(done)
            progress.n_jobs = workers.n if workers else n_jobs
            watch(progress)
    for dataset in plan.datasets:
        if dataset_digest(dataset) != digests[dataset]:
            raise ValueError(
                f"{dataset} was changed during the run. Run the same again, on the file as it is now."
            )
    failures.sort()
    results = Results(plan, known)
    if not results.runs:
        return Outcome([], [], [], [], failures, None)
    rows = summarise(results)
    tell("making tables")
    tables = make_tables(results, rows)
    in_latex = [f"% These tables need the package booktabs. {CAVEATS}\n"]
    in_latex += [to_latex(table) for table in tables if not table.prose]
    write_atomically(folder / "table.md", "\n".join([*map(to_markdown, tables), f"{CAVEATS}\n"]).encode())
    write_atomically(folder / "table.tex", "\n".join(in_latex).encode())
    write_atomically(folder / "table.csv", to_csv(rows).encode())
    write_atomically(folder / "splits.csv", splits_to_csv(results).encode())
    pictures = []
    if figures:
        tell("drawing figures")
        for picture in draw(results, folder / "figures"):
            pictures.append(picture)
            tell(picture.title)
    remarks = damaged + find_remarks(results)
    n_records = len(list((folder / "runs").glob("*.json")))
    page = write_page(plan, tables, pictures, remarks, failures, record, n_records, again)
    write_atomically(folder / "report.html", page.encode())
    return Outcome(rows, tables, pictures, remarks, failures, folder / "report.html")


def as_record(plan: Plan) -> dict[str, Any]:
    """Return a plan as it is recorded: your own methods by what they are."""
    own = [
        {"name": one.name, "estimator": repr(one.estimator), "grid": as_json(one.grid), "source": one.source}
        for one in plan.own
    ]
    return {**{name: value for name, value in vars(plan).items() if name != "own"}, "own": own}


def check(plan: Plan, figures: bool = False) -> None:
    """Raise an error if the plan cannot be run."""
    own = [method.name for method in plan.own]
    files = [name for name in plan.datasets if name.endswith(".npz")]
    both = [
        ("method", plan.methods, [*METHODS, *own]),
        ("dataset", plan.datasets, [*DATASET_TITLES, *files]),
    ]
    for what, names, known in both:
        for name in names:
            if name not in known:
                yours = "module:Class of your own" if what == "method" else "your own file.npz"
                raise ValueError(f"There is no {what} {name!r}. Choose from {', '.join(known)}, or {yours}.")
        if not names or len(set(names)) < len(names):
            raise ValueError(f"The {what}s are {list(names)}. Give at least one, and each only once.")
    titles = [title_of(name) for name in plan.datasets]
    for title in titles:
        if titles.count(title) > 1:
            raise ValueError(
                f"Two datasets would have the name {title!r} in the tables. Rename one of the files."
            )
    if plan.select not in ("cv", "wide", "defaults"):
        raise ValueError(f"select={plan.select!r} is unknown. Use 'cv', 'wide' or 'defaults'.")
    if plan.n_splits < 1 or plan.n_per_class < 1:
        raise ValueError(
            f"n_splits={plan.n_splits} and n_per_class={plan.n_per_class}: both must be at least 1."
        )
    if plan.select != "defaults" and plan.n_per_class < 2:
        raise ValueError(
            "n_per_class=1 leaves no samples for cross-validation. Use at least 2, or select='defaults'."
        )
    if not plan.cells():
        raise ValueError(
            f"There is nothing to run: {', '.join(plan.methods)} has settings only for "
            f"{', '.join(PAPER_DATASETS)}, not for {', '.join(plan.datasets)}."
        )
    needed = ["pandas", "tabulate", "jinja2", *(["matplotlib"] if figures else [])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"Tables, report and figures need {', '.join(missing)}: pip install 'ledl[cli]'. Without figures "
            "(--no-figures), matplotlib is not needed."
        )
    entries = {entry.name: entry for entry in available()}
    absent = [name for name in plan.datasets if name in entries and entries[name].status == "ask"]
    if absent:
        here = [name for name in plan.datasets if name not in absent]
        details = "\n".join(f"  {dataset}: {entries[dataset].detail}" for dataset in absent)
        rest = f"\nThese are here: {' '.join(here)}." if here else ""
        raise FileNotFoundError(
            f"These datasets are not in the data folder {data_folder()} and cannot be downloaded. Get them "
            "(see docs/datasets.md), or set LEDL_DATA to the folder that has them:\n"
            f"{details}{rest}"
        )
    for dataset in plan.datasets:
        data = load_dataset(dataset)
        counts = np.bincount(data.target)
        if plan.n_per_class >= counts.min():
            name, n = data.target_names[int(counts.argmin())], int(counts.min())
            fewest = 1 if plan.select == "defaults" else 2
            smaller = "Use a smaller number, or remove" if n > fewest else "Remove"
            raise ValueError(
                f"n_per_class={plan.n_per_class} leaves no test samples of the class {name!r} of "
                f"{title_of(dataset)}, which has {n} in all. {smaller} the class."
            )


def command(
    plan: Plan,
    out: str | os.PathLike[str],
    n_jobs: int,
    figures: bool,
    device: str | None = None,
    dask: str | None = None,
) -> str:
    """Return the command that runs the same plan again."""
    unnamed = [method.name for method in plan.own if ":" not in method.name]
    if unnamed:
        return f"ledl.experiments.reproduce in Python, since the command line has no {', '.join(unnamed)}"
    files = [name for name in plan.datasets if name.endswith(".npz")]
    words = ["ledl", "reproduce", *(name for name in plan.datasets if name not in files)]
    words += [word for name in files for word in ("--data", name)] + ["--select", plan.select]
    if plan.methods != SUPERVISED:
        words += ["--methods", ",".join(plan.methods)]
    words += ["--n-per-class", str(plan.n_per_class), "--splits", str(plan.n_splits)]
    words += ["--dask", dask] if dask else ["--jobs", str(n_jobs)]
    words += ["--device", device] if device else []
    words += ["--out", os.fspath(out)] + ([] if figures else ["--no-figures"])
    return shlex.join(words)


def kept_results(cells: Sequence[Cell], store: Store, tell: Callable[[str], None]) -> dict[Cell, Any]:
    """Return the results of the cells that are stored. `tell` is called with a text about each damaged one."""
    known = {}
    for cell in cells:
        result = store.get_checked(cell)
        if result is not None:
            known[cell] = result
        elif store.has(cell.identity):
            where = f"{title_of(cell.dataset)}, {cell.method}, split {cell.seed}"
            tell(f"{where}: the stored result was damaged or altered. It was computed again.")
    return known


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    n_jobs: int = 1,
    device: str | None = None,
    workers: Workers | None = None,
) -> Iterator[Done]:
    """Yield every cell as it ends, in no particular order.

    Each process stores a cell before it takes the next one. Cells of `workers`, those of a cluster, are stored
    here. A cell that fails is yielded with its error and does not stop the others.
    """
    if workers is not None:
        yield from map(store.keep, workers.run(cells, store))
        return
    n_jobs = min(n_jobs, max(len(cells), 1))  # more processes would only start
    options: dict[str, Any] = {"return_as": "generator_unordered", "batch_size": 1, "pre_dispatch": "2*n_jobs"}
    if n_jobs > 1:
        code = dict.fromkeys(digest for cell in cells if cell.own for digest in cell.own.source.values())
        options |= {"initializer": follow, "initargs": (os.getpid(), *code)}
    yield from Parallel(n_jobs, **options)(delayed(_run_and_keep)(cell, store, device) for cell in cells)


def _run_and_keep(cell: Cell, store: Store, device: str | None) -> Done:
    known = store.get_checked(cell)  # another run on the same store may have been faster
    return store.keep(try_cell(cell, device)) if known is None else Done(cell, known)


class Progress:
    """Count cells, and estimate which are running and the time left.

    Parameters
    ----------
    cells : iterable of Cell
        All cells, in the order in which they start.
    n_jobs : int
        Number of cells that run at the same time.
    n_for_figures : int, default=0
        Number of cells that only figures need.

    Attributes
    ----------
    n_jobs : int
        Number of cells that run at the same time. It changes when workers come and go.
    n_cells, n_done, n_for_figures : int
        Number of all cells, of cells that have ended, and of cells that only figures need.

    Examples
    --------
    >>> from ledl.experiments import Plan, Progress
    >>> progress = Progress(Plan(n_splits=1, methods=("src", "crc")).cells(), n_jobs=1)
    >>> progress.n_done, progress.n_cells, [cell.method for cell in progress.running]
    (0, 2, ['src'])
    """

    def __init__(self, cells: Iterable[Cell], n_jobs: int, n_for_figures: int = 0) -> None:
        self._waiting = list(cells)
        self.n_for_figures = n_for_figures
        self.n_jobs = n_jobs
        self._seconds: dict[Any, float] = {}
        self.n_cells, self.n_done = len(self._waiting), 0

    def update(self, done: Done) -> None:
        """Count a cell that has ended.

        Parameters
        ----------
        done : Done
            The cell with its result or error.
        """
        self._waiting.remove(done.cell)
        self.n_done += 1
        if done.result is not None:
            self._seconds[_kind(done.cell)] = done.result["seconds"]

    @property
    def running(self) -> list[Cell]:
        """Cells that are probably running: they start in order, so the first that have not ended."""
        return self._waiting[: self.n_jobs]

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds left, or None. A cell lasts as long as the last one of its kind, or as the mean."""
        if not self._seconds:
            return None
        mean = sum(self._seconds.values()) / len(self._seconds)
        cost = sum(self._seconds.get(_kind(cell), mean) for cell in self._waiting)
        return cost / max(self.n_jobs, 1)


def _kind(cell: Cell) -> tuple[Any, ...]:
    """Return the properties that decide how long a cell lasts."""
    return cell.dataset, cell.method, cell.n_per_class, cell.known_settings is None
