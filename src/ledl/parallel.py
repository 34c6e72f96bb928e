"""Parallel work: in threads of this process, or wherever joblib has been told to run it.

BLAS's own threads are held to one, so that ours can each work on samples of their own.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
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

# For each who holds BLAS's threads at one, what the first has set, and can restore.
_blas_limits: list[Any] = []
_blas_lock = Lock()
# Newer versions of threadpoolctl let only the thread that first set OpenBLAS's threads set them again.
_let_any_thread_set = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
# Finding the libraries takes milliseconds, and is done once; setting their threads takes microseconds.
_controller = cache(ThreadpoolController)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS's threads at one while anybody asks for it.

    The setting belongs to the process: those who overlap in threads must share one holder, or the last to end
    would restore what another had set. The last to end need not be the first to have asked.
    """
    with _blas_lock:
        if _blas_limits:
            _blas_limits.append(_blas_limits[0])
        else:
            _let_any_thread_set(force=True)
            _blas_limits.append(_controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _blas_lock:
            limits = _blas_limits.pop()
            if not _blas_limits:
                _let_any_thread_set(force=True)
                limits.restore_original_limits()
                _let_any_thread_set(force=True)


def in_threads(work: Callable[[Task], Result], tasks: Iterable[Task], n_threads: int) -> Iterator[Result]:
    """Yield the results of tasks in their order, made by `n_threads` threads.

    No more than one task more than there are threads is begun before its result is taken.
    """
    begun: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(n_threads)
    try:
        for task in tasks:
            begun.append(pool.submit(work, task))
            if len(begun) > n_threads:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:  # an interrupt, too, must not wait for what nobody wants any more
        pool.shutdown(cancel_futures=True)


def map_in_threads(work: Callable[[Task], Result], tasks: Sequence[Task], n_threads: int) -> list[Result]:
    """Return the results in the order of the tasks, the calling thread taking its share.

    `work` should let go of the interpreter, as BLAS and compiled loops do.
    """
    n_helpers = min(n_threads, len(tasks)) - 1
    if n_helpers <= 0:
        return [work(task) for task in tasks]
    results: list[Any] = [None] * len(tasks)
    waiting = iter(range(len(tasks)))  # whose next number goes to one thread alone

    def take_tasks() -> None:
        try:
            for number in waiting:
                results[number] = work(tasks[number])
        except BaseException:  # an interrupt, too, must not wait for what nobody wants any more
            deque(waiting, maxlen=0)  # leaves none
            raise

    with ThreadPoolExecutor(n_helpers) as pool:
        helpers = [pool.submit(take_tasks) for _ in range(n_helpers)]
        take_tasks()
        for helper in helpers:
            helper.result()
    return results


def n_threads(n_jobs: int | None) -> int:
    """Return the threads that `n_jobs` means: as joblib says, but a cluster's workers are no threads here.

    In the context of a cluster's backend None means 1, on its workers too. Those are processes that may have no
    children, in which joblib gives one job; but ours are threads.
    """
    backend, _ = get_active_backend()
    if isinstance(backend, OF_THIS_MACHINE) and not ("distributed" in sys.modules and is_dask_task()):
        return int(effective_n_jobs(n_jobs))
    if n_jobs is None:
        return 1
    with parallel_config(backend="threading"):
        return int(effective_n_jobs(n_jobs))


def goes_elsewhere(n_jobs: int | None) -> bool:
    """Say whether a `joblib.parallel_config` asks for processes or a cluster, and this is none of its workers.

    With `n_jobs` of 1 all work stays here.
    """
    backend, _ = get_active_backend(prefer="threads")  # what nobody has asked for is then threads
    return n_jobs != 1 and not getattr(backend, "supports_sharedmem", False) and not is_dask_task()


def is_dask_task() -> bool:
    """Say whether this is a task on a worker of a Dask cluster.

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
    """Return how many tasks `run_tasks` runs at the same time."""
    return int(effective_n_jobs(n_jobs)) if goes_elsewhere(n_jobs) else n_threads(n_jobs)


def run_tasks(
    work: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], n_jobs: int | None = None
) -> list[Result]:
    """Return ``work(*task)`` for each task, in their order.

    They run in `n_jobs` threads, or where the `joblib.parallel_config` around says if that is not threads.
    `work` must be a function of a module and change nothing: it may run on another machine. What several
    arguments of a task share travels once with it.
    """
    if not goes_elsewhere(n_jobs):
        threads = n_threads(n_jobs)
        if threads == 1:
            return [work(*task) for task in tasks]
        return map_in_threads(lambda task: work(*task), tasks, threads)
    answers = Parallel(n_jobs, batch_size=1)(delayed(_with_troubles)(work, task) for task in tasks)
    for trouble in sorted({trouble for _, troubles in answers for trouble in troubles}):
        warnings.warn(f"{trouble} encountered", RuntimeWarning, stacklevel=2)
    return [result for result, _ in answers]


def _with_troubles(work: Callable[..., Result], task: tuple[Any, ...]) -> tuple[Result, set[str]]:
    """Return a result, and NumPy's troubles on the way, which its warnings would tell a worker's log alone.

    Not by `warnings.catch_warnings`: a worker may have several threads, which would catch each other's.
    """
    troubles: set[str] = set()

    def note(kind: str, _: int) -> None:
        troubles.add(kind)

    with np.errstate(divide="call", over="call", invalid="call", call=note):
        return work(*task), troubles
