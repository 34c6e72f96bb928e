"""Threads: BLAS's held to one, so that ours can each work on samples of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, TypeVar

import scipy.linalg  # noqa: F401  (its BLAS must be loaded before BLAS libraries are looked for)
from threadpoolctl import OpenBLASController, ThreadpoolController

Task = TypeVar("Task")
Result = TypeVar("Result")


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
