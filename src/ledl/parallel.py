"""Parallel work: in threads of this process, or wherever joblib has been told to run it.

BLAS's own threads are held to one, so that ours can each work on samples of their own.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import scipy.linalg  # noqa: F401  (its BLAS must be loaded before BLAS libraries are looked for)
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from joblib.parallel import (
    LokyBackend,
    MultiprocessingBackend,
    SequentialBackend,
    ThreadingBackend,
    get_active_backend,
)
from threadpoolctl import OpenBLASController, ThreadpoolController

Task = TypeVar("Task")
Result = TypeVar("Result")

# joblib's backends that count processors of this machine; those of a cluster count its workers.
OF_THIS_MACHINE = (LokyBackend, MultiprocessingBackend, SequentialBackend, ThreadingBackend)


@cache
def _controller() -> ThreadpoolController:
    """Looking for the libraries takes milliseconds, setting their threads microseconds."""
    return ThreadpoolController()


def _let_any_thread_set() -> None:
    """Newer versions of threadpoolctl let only the thread that first set OpenBLAS's threads set them again."""
    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


class _BlasThreads:
    """BLAS's threads, held at one while anybody asks for it.

    The setting belongs to the process: those who overlap in threads must share one holder, or the last to end
    would restore what another had set. The last to end need not be the first to have asked.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders = 0
        self._limits: Any = None

    @contextmanager
    def one(self) -> Iterator[None]:
        with self._lock:
            if self._holders == 0:
                _let_any_thread_set()
                self._limits = _controller().limit(limits=1, user_api="blas")
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    _let_any_thread_set()
                    self._limits.restore_original_limits()
                    _let_any_thread_set()


one_blas_thread = _BlasThreads().one


def map_in_threads(work: Callable[[Task], Result], tasks: Sequence[Task], n_threads: int) -> list[Result]:
    """Results in the order of the tasks, the calling thread taking its share.

    `work` should let go of the interpreter, as BLAS and compiled loops do.
    """
    n_helpers = min(n_threads, len(tasks)) - 1
    if n_helpers <= 0:
        return [work(task) for task in tasks]
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in range(len(tasks)):
        waiting.put(number)
    results: list[Any] = [None] * len(tasks)

    def take_tasks() -> None:
        while (number := _next(waiting)) is not None:
            try:
                results[number] = work(tasks[number])
            except BaseException:  # an interrupt, too, must not wait for what nobody wants any more
                while _next(waiting) is not None:
                    pass
                raise

    with ThreadPoolExecutor(n_helpers) as pool:
        helpers = [pool.submit(take_tasks) for _ in range(n_helpers)]
        take_tasks()
        for helper in helpers:
            helper.result()
    return results


def _next(waiting: SimpleQueue[int]) -> int | None:
    try:
        return waiting.get_nowait()
    except Empty:
        return None


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
