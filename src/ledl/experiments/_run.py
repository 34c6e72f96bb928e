"""From a plan to its cells, and through them: in parallel, each kept as soon as it is done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed

from ledl.experiments._cells import Cell, load_dataset, run_cell
from ledl.experiments._store import Store
from ledl.methods import METHODS

if TYPE_CHECKING:
    from ledl.experiments._cluster import Workers

# Figures over weights and over the number of samples: on those datasets whose convergence the paper shows,
# and on digits; fewer splits than the table has.
STUDIED = ("digits", "yaleb", "ucmerced", "caltech101_pyramid", "usps")
STUDY_SPLITS = 3
WEIGHT_VALUES = {
    "label_weight": [2.0**e for e in (-9, -6, -3, 0, 2, 4)],
    "code_weight": [2.0**e for e in (-17, -14, -11, -8, -5)],
    "alpha": [2.0**e for e in (-10, -8, -7, -6, -5, -4, -3)],
}
SAMPLES_PER_CLASS = (1, 2, 3, 5, 10)
SAMPLED = ("src", "crc", "lcksvd", "ledl", "logistic")


def samples_per_class(dataset: str) -> list[int]:
    """Those numbers of training samples that leave some of each class to test."""
    fewest = np.bincount(load_dataset(dataset).target).min()
    return [n for n in SAMPLES_PER_CLASS if n < fewest]


class Done(NamedTuple):
    """A cell that has ended: with a result, or with an error."""

    cell: Cell
    result: dict[str, Any] | None
    error: str = ""


@dataclass(frozen=True)
class Plan:
    """What is to be compared.

    Parameters
    ----------
    datasets : tuple of str, default=("digits",)
        Names that `ledl.datasets.load` knows.
    methods : tuple of str
        Names in `METHODS`; all of them unless said.
    select : {"cv", "wide", "defaults"}, default="cv"
        How settings are found: by cross-validation in the training samples, by the same among more of them,
        or not at all.
    n_per_class : int, default=5
        Training samples of each class.
    n_splits : int, default=8
        Random splits, with the seeds 0, 1, ...

    Examples
    --------
    >>> from ledl.experiments import Plan
    >>> len(Plan(methods=("src", "ledl"), n_splits=3).cells())
    6
    """

    datasets: tuple[str, ...] = ("digits",)
    methods: tuple[str, ...] = tuple(METHODS)
    select: str = "cv"
    n_per_class: int = 5
    n_splits: int = 8

    def cells(self) -> list[Cell]:
        """Split by split, so that after the first one knows what the others cost.

        Returns
        -------
        list of Cell
            A method on a split of a dataset each.
        """
        return [
            Cell(dataset, method, seed, self.select, self.n_per_class)
            for seed in range(self.n_splits)
            for dataset in self.datasets
            for method in self.methods
            if METHODS[method].covers(dataset)
        ]

    @property
    def studied(self) -> list[str]:
        """The datasets whose figures need more than the table's cells."""
        return [dataset for dataset in self.datasets if dataset in STUDIED]

    def weight_cells(self, dataset: str, weight: str) -> list[list[Cell]]:
        """LEDL over one of its weights, the others at their defaults.

        Parameters
        ----------
        dataset : str
            Its name.
        weight : {"label_weight", "code_weight", "alpha"}
            The weight.

        Returns
        -------
        list of lists of Cell
            For each value of the weight the splits.
        """
        return [
            [
                Cell(dataset, "ledl", seed, "defaults", self.n_per_class, ((weight, value),))
                for seed in range(min(self.n_splits, STUDY_SPLITS))
            ]
            for value in WEIGHT_VALUES[weight]
        ]

    def sample_cells(self, dataset: str, method: str) -> list[list[Cell]]:
        """A method at its defaults over the number of training samples.

        Parameters
        ----------
        dataset, method : str
            Their names.

        Returns
        -------
        list of lists of Cell
            For each number of samples the splits.
        """
        return [
            [Cell(dataset, method, seed, "defaults", n) for seed in range(min(self.n_splits, STUDY_SPLITS))]
            for n in samples_per_class(dataset)
        ]

    def study_cells(self) -> list[Cell]:
        """All cells that figures need beside the table's.

        Returns
        -------
        list of Cell
        """
        groups = [
            self.weight_cells(d, w) for d in self.studied for w in WEIGHT_VALUES if "ledl" in self.methods
        ]
        groups += [self.sample_cells(d, m) for d in self.studied for m in SAMPLED if m in self.methods]
        return list(dict.fromkeys(cell for group in groups for cells in group for cell in cells))


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    n_jobs: int = 1,
    device: str | None = None,
    workers: Workers | None = None,
) -> Iterator[Done]:
    """Every cell, those that the store knows first; the others as they end, in no order.

    A process writes a cell to the store before it takes the next one; those of `workers`, the cluster's, are
    written here. What fails is reported and does not stop the others.
    """
    missing = []
    for cell in cells:
        known = store.get(cell.identity)
        if known is None:
            missing.append(cell)
        else:
            yield Done(cell, known)
    if workers is not None:
        yield from workers.run(missing, store, device)
        return
    parent = os.getpid() if n_jobs > 1 else None
    work = (delayed(_run_and_keep)(cell, store, parent, device) for cell in missing)
    yield from Parallel(n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")(work)


def _run_and_keep(cell: Cell, store: Store, parent: int | None, device: str | None) -> Done:
    if parent == os.getppid():
        _follow(parent)
    known = store.get(cell.identity)  # another run on the same store may have been faster
    if known is not None:
        return Done(cell, known)
    done = run_one(cell, device)
    if done.result is not None:
        store.put(cell.identity, done.result)
    return done


def run_one(cell: Cell, device: str | None) -> Done:
    """A cell with its seconds, or with what went wrong."""
    started = time.perf_counter()
    try:
        result = run_cell(cell, device)
    except Exception as error:  # of one method on one dataset; the table can do without
        return Done(cell, None, error=f"{type(error).__name__}: {error}")
    result["seconds"] = time.perf_counter() - started
    return Done(cell, result)


@cache
def _follow(parent: int) -> None:
    """A worker leaves Ctrl-C to its parent, which ends it, and ends itself when the parent was killed.

    joblib's workers would go on, and whoever reads the parent's output would wait for them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


class Progress:
    """How far the cells are: counts, which are running, and an estimate of the time left.

    Parameters
    ----------
    cells : iterable of Cell
        Those that are to be done, in their order.
    n_jobs : int
        How many run at once.

    Attributes
    ----------
    n_jobs : int
        As given; to be set anew where workers come and go.
    n_cells, n_done : int
        All of them, and those that have ended.

    Examples
    --------
    >>> from ledl.experiments import Plan, Progress
    >>> progress = Progress(Plan(n_splits=1, methods=("src", "crc")).cells(), n_jobs=1)
    >>> progress.n_done, progress.n_cells, [cell.method for cell in progress.running]
    (0, 2, ['src'])
    """

    def __init__(self, cells: Iterable[Cell], n_jobs: int) -> None:
        self._waiting = list(cells)
        self.n_jobs = n_jobs
        self._seconds: dict[Any, float] = {}
        self.n_cells, self.n_done = len(self._waiting), 0

    def update(self, done: Done) -> None:
        """Take note of a cell that has ended.

        Parameters
        ----------
        done : Done
            The cell, with its result or its error.
        """
        self._waiting.remove(done.cell)
        self.n_done += 1
        if done.result is not None:
            self._seconds[_kind(done.cell)] = done.result["seconds"]

    @property
    def running(self) -> list[Cell]:
        """Cells are taken in order, so those that are running are the first that have not ended."""
        return self._waiting[: self.n_jobs]

    @property
    def seconds_left(self) -> float | None:
        """A cell is taken to last as long as another of its kind did, or else as the mean."""
        if not self._seconds:
            return None
        mean = sum(self._seconds.values()) / len(self._seconds)
        cost = sum(self._seconds.get(_kind(cell), mean) for cell in self._waiting)
        return cost / max(self.n_jobs, 1)


def _kind(cell: Cell) -> tuple[Any, ...]:
    """What decides how long a cell lasts."""
    return cell.dataset, cell.method, cell.n_per_class, cell.known_settings is None
