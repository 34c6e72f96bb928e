"""Parallel work: in threads of this process, or wherever joblib is configured to run it.

BLAS is limited to one thread, so that each of our threads can work on samples of its own.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import starmap
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

# joblib's backends that count processors of this machine; backends of a cluster count its workers.
OF_THIS_MACHINE = (LokyBackend, MultiprocessingBackend, SequentialBackend, ThreadingBackend)

# For each current user of `one_blas_thread`, the limits that the first one has set, and that can be restored.
_blas_limits: list[Any] = []
_blas_lock = Lock()
# Newer versions of threadpoolctl allow only the thread that first set OpenBLAS's threads to set them again.
_let_any_thread_set = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
# Finding the libraries takes milliseconds, and is done once; setting their threads takes microseconds.
_controller = cache(ThreadpoolController)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread.

    The setting belongs to the process. Calls that overlap in threads share it: the first one sets the limit,
    and the last one to end, which need not be the first, restores the previous number of threads.
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

    At most `n_threads` + 1 tasks have been started whose results have not been taken.
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
    finally:  # after an interrupt, too, do not run tasks that nobody needs
        pool.shutdown(cancel_futures=True)


def map_in_threads(work: Callable[[Task], Result], tasks: Sequence[Task], n_threads: int) -> list[Result]:
    """Return the results in the order of the tasks; the calling thread works, too.

    `work` should release the interpreter lock, as BLAS and compiled loops do.
    """
    n_helpers = min(n_threads, len(tasks)) - 1
    if n_helpers <= 0:
        return [work(task) for task in tasks]
    results: list[Any] = [None] * len(tasks)
    waiting = iter(range(len(tasks)))  # gives each number to one thread only

    def take_tasks() -> None:
        try:
            for number in waiting:
                results[number] = work(tasks[number])
        except BaseException:  # after an interrupt, too, do not run tasks that nobody needs
            deque(waiting, maxlen=0)  # use up the numbers
            raise

    with ThreadPoolExecutor(n_helpers) as pool:
        helpers = [pool.submit(take_tasks) for _ in range(n_helpers)]
        take_tasks()
        for helper in helpers:
            helper.result()
    return results


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads for `n_jobs`: as joblib counts, but a cluster's workers are no threads.

    In the context of a cluster's backend, and on its workers, None means 1. Workers are processes that may not
    have children, for which joblib allows one job; but threads are possible.
    """
    backend, _ = get_active_backend()
    if isinstance(backend, OF_THIS_MACHINE) and not ("distributed" in sys.modules and is_dask_task()):
        return int(effective_n_jobs(n_jobs))
    if n_jobs is None:
        return 1
    with parallel_config(backend="threading"):
        return int(effective_n_jobs(n_jobs))


def goes_elsewhere(n_jobs: int | None) -> bool:
    """Say whether a `joblib.parallel_config` requests processes or a cluster, and this is no worker of it.

    With `n_jobs=1` all work stays here.
    """
    backend, _ = get_active_backend(prefer="threads")  # threads, if nothing is configured
    return n_jobs != 1 and not getattr(backend, "supports_sharedmem", False) and not is_dask_task()


def is_dask_task() -> bool:
    """Say whether this is a task on a worker of a Dask cluster.

    joblib's other workers use a backend of threads; Dask workers use the backend of the cluster again.
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
) -> Iterator[Result]:
    """Yield ``work(*task)`` for each task, in their order, as they are done.

    Tasks run in `n_jobs` threads, or where a `joblib.parallel_config` requests if that is not threads. `work`
    must be a function of a module and must not change its arguments: it may run on another machine. Objects
    that several arguments of a task share are sent once.
    """
    if not goes_elsewhere(n_jobs):
        threads = n_threads(n_jobs)
        yield from starmap(work, tasks) if threads == 1 else in_threads(partial(_call, work), tasks, threads)
        return
    answers = Parallel(n_jobs, batch_size=1)(delayed(_with_float_errors)(work, task) for task in tasks)
    for kind in sorted({kind for _, kinds in answers for kind in kinds}):
        warnings.warn(f"{kind} encountered", RuntimeWarning, stacklevel=2)
    yield from (result for result, _ in answers)


def _call(work: Callable[..., Result], task: tuple[Any, ...]) -> Result:
    return work(*task)


def _with_float_errors(work: Callable[..., Result], task: tuple[Any, ...]) -> tuple[Result, set[str]]:
    """Return a result and the kinds of NumPy's floating-point errors, whose warnings only the worker's log has.

    `warnings.catch_warnings` would not do: threads of a worker would catch each other's warnings.
    """
    kinds: set[str] = set()
    with np.errstate(divide="call", over="call", invalid="call", call=lambda kind, _: kinds.add(kind)):
        return work(*task), kinds
