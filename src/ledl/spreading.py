"""Work that is spread: over threads of this process, or wherever joblib has been told to run it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from joblib.parallel import (
    LokyBackend,
    MultiprocessingBackend,
    SequentialBackend,
    ThreadingBackend,
    get_active_backend,
)

from ledl.threads import map_in_threads

Result = TypeVar("Result")

# joblib's backends that count processors of this machine; those of a cluster count its workers.
OF_THIS_MACHINE = (LokyBackend, MultiprocessingBackend, SequentialBackend, ThreadingBackend)


def n_threads(n_jobs: int | None) -> int:
    """Threads that `n_jobs` means: as joblib says, but that the workers of a cluster are no threads here.

    In the context of a cluster's backend None means 1, on its workers too. Those are processes that may have no
    children, in which joblib gives one job; but ours are threads.
    """
    backend, _ = get_active_backend()
    if isinstance(backend, OF_THIS_MACHINE) and not is_dask_task():
        return int(effective_n_jobs(n_jobs))
    if n_jobs is None:
        return 1
    with parallel_config(backend="threading"):
        return int(effective_n_jobs(n_jobs))


def goes_elsewhere(n_jobs: int | None) -> bool:
    """Whether a `joblib.parallel_config` asks for processes or a cluster, and this is not one of its workers.

    `n_jobs` of 1 stays here: nothing is to be spread.
    """
    backend, _ = get_active_backend(prefer="threads")  # what nobody has asked for is then threads
    return n_jobs != 1 and not getattr(backend, "supports_sharedmem", False) and not is_dask_task()


def is_dask_task() -> bool:
    """Whether this is a task on a worker of a Dask cluster.

    joblib's other workers have a backend of threads there; those of Dask have that of the cluster again.
    """
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


def n_places(n_jobs: int | None) -> int:
    """How many tasks `spread` runs at the same time."""
    return int(effective_n_jobs(n_jobs)) if goes_elsewhere(n_jobs) else n_threads(n_jobs)


def spread(
    work: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], n_jobs: int | None = None
) -> list[Result]:
    """``work(*task)`` for each task, in their order.

    In `n_jobs` threads, or where the `joblib.parallel_config` around says if that is not threads. `work` must
    be a function of a module and change nothing: it may run on another machine. What several arguments of a
    task share travels once with it.
    """
    if not goes_elsewhere(n_jobs):
        return map_in_threads(lambda task: work(*task), tasks, n_threads(n_jobs))
    answers = Parallel(n_jobs, batch_size=1)(delayed(_with_troubles)(work, task) for task in tasks)
    for trouble in sorted({trouble for _, troubles in answers for trouble in troubles}):
        warnings.warn(f"{trouble} encountered", RuntimeWarning, stacklevel=2)
    return [result for result, _ in answers]


def _with_troubles(work: Callable[..., Result], task: tuple[Any, ...]) -> tuple[Result, set[str]]:
    """A result, and NumPy's troubles on the way, of which it would warn a worker's log and not the caller.

    Not by `warnings.catch_warnings`: a worker may have several threads, which would catch each other's.
    """
    troubles: set[str] = set()

    def note(kind: str, _: int) -> None:
        troubles.add(kind)

    with np.errstate(divide="call", over="call", invalid="call", call=note):
        return work(*task), troubles
