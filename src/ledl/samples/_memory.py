"""What blocks of samples are to a solver, and those in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import reduce
from typing import NamedTuple, TypeVar

import numpy as np

from ledl.arrays import Array, as_array, namespace, to_host


class Block(NamedTuple):
    """Consecutive samples: data, labels, and the state of their codes.

    ``X`` is (..., n, r), ``labels`` (n,) or (..., n), ``Z`` and ``L`` are (..., n, K) once a
    solver has set them. ``first`` is the index of the block's first sample among all samples.
    """

    X: Array
    labels: Array
    first: int
    Z: Array = None
    L: Array = None


Task = TypeVar("Task")
Result = TypeVar("Result")
Sums = TypeVar("Sums", bound=tuple[Array, ...])
Step = Callable[[Block], tuple[Block, Sums]]
# Takes the place of a block's first sample, and its Z and L; gives Z and L of samples from a place to another.
KeepCodes = Callable[[int, Array, Array], None]
ReadCodes = Callable[[int, int], tuple[Array, Array]]


class BlockError(RuntimeError):
    """A block of samples could not be read or worked on; the message names it."""


def add(a: Sums, b: Sums) -> Sums:
    """Sum, field by field, of two tuples of arrays; those of the first are used up."""
    fields = list(a)
    for i, y in enumerate(b):
        fields[i] += y
    return a._make(fields) if hasattr(a, "_make") else type(a)(fields)


def spans_of(n: int, block_size: int) -> list[tuple[int, int]]:
    """Where blocks of that many samples, the last of fewer, begin and end."""
    return [(i, min(i + block_size, n)) for i in range(0, n, block_size)]


def cut(spans: Sequence[tuple[int, int]], block_size: int) -> list[tuple[int, int]]:
    """Those spans, the longer ones in pieces of at most that many samples."""
    return [(first + i, first + j) for first, stop in spans for i, j in spans_of(stop - first, block_size)]


class Blocks(ABC):
    """What solvers know of blocks; ``problems`` are the leading axes of the data."""

    problems: tuple[int, ...]

    def map_sum(self, step: Step[Sums]) -> Sums:
        """Apply `step` to every block; keep the blocks and return the sum of the rest."""
        return reduce(add, self._steps(step))

    @abstractmethod
    def _steps(self, step: Step[Sums]) -> Iterable[Sums]:
        """Block after block, what `step` returns beside it."""

    @abstractmethod
    def codes(self) -> Array:
        """Z of all samples, in their order."""

    def save_codes(self, keep: KeepCodes) -> None:
        """Hand Z and L of every block to `keep`, on the host."""

        def step(block: Block) -> tuple[Block, tuple[int]]:
            keep(block.first, to_host(block.Z), to_host(block.L))
            return block, (0,)

        self.map_sum(step)

    def restore_codes(self, read: ReadCodes) -> None:
        """Set Z and L of every block to what `read` gives."""

        def step(block: Block) -> tuple[Block, tuple[int]]:
            codes = read(block.first, block.first + block.X.shape[-2])
            Z, L = (as_array(np.array(part), block.X) for part in codes)
            return block._replace(Z=Z, L=L), (0,)

        self.map_sum(step)

    def saved_codes(self, read: ReadCodes) -> None:
        """Take note that `read` gives the codes of the moment, should they be lost."""
        return

    def close(self) -> None:
        """Let go of what blocks hold elsewhere."""
        return


def in_threads(work: Callable[[Task], Result], tasks: Sequence[Task], threads: int) -> Iterator[Result]:
    """Results in the order of the tasks, no more than a few of which wait to be taken."""
    if threads == 1 or len(tasks) == 1:
        yield from map(work, tasks)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque()
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class InMemoryBlocks(Blocks):
    """Blocks of an array in memory; one block unless `block_size` says otherwise. Threads take a block each."""

    def __init__(self, X: Array, labels: Array, block_size: int | None = None, threads: int = 1) -> None:
        n = X.shape[-2]
        self._threads = threads
        spans = spans_of(n, block_size or n)
        self._blocks = [Block(X[..., i:j, :], labels[..., i:j], i) for i, j in spans]
        self.problems = np.broadcast_shapes(tuple(X.shape[:-2]), tuple(labels.shape[:-1]))

    def _steps(self, step: Step[Sums]) -> Iterable[Sums]:
        def work(i: int) -> Sums:
            self._blocks[i], sums = step(self._blocks[i])
            return sums

        return in_threads(work, range(len(self._blocks)), self._threads)

    def codes(self) -> Array:
        codes = [block.Z for block in self._blocks]
        return codes[0] if len(codes) == 1 else namespace(codes[0]).concat(codes, axis=-2)
