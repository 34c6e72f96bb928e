"""Where blocks of samples live.

Given the atoms, samples are independent. A solver sees blocks only through `map_sum`: apply a
step to every block, keep the block that it returns (with its codes and multipliers) where it
is, and return the sum of what else it returns. That is all that running in memory, out of core
or on a cluster have to agree on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple, TypeVar

import numpy as np

from ledl.arrays import Array, namespace


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


Sums = TypeVar("Sums", bound=tuple[Array, ...])
Step = Callable[[Block], tuple[Block, Sums]]


def add(a: Sums, b: Sums) -> Sums:
    """Sum, field by field, of two tuples of arrays."""
    fields = [x + y for x, y in zip(a, b, strict=True)]
    return a._make(fields) if hasattr(a, "_make") else type(a)(fields)


class InMemoryBlocks:
    """Blocks of an array in memory; one block unless `block_size` says otherwise.

    ``problems`` are the leading axes of the data.
    """

    def __init__(self, X: Array, labels: Array, block_size: int | None = None) -> None:
        n = X.shape[-2]
        starts = range(0, n, block_size or n)
        spans = [(i, min(i + starts.step, n)) for i in starts]
        self._blocks = [Block(X[..., i:j, :], labels[..., i:j], i) for i, j in spans]
        self.problems = np.broadcast_shapes(tuple(X.shape[:-2]), tuple(labels.shape[:-1]))

    def map_sum(self, step: Step[Sums]) -> Sums:
        """Apply `step` to every block; keep the blocks and return the sum of the rest."""
        return reduce(add, self._steps(step))

    def _steps(self, step: Step[Sums]) -> Iterable[Sums]:
        for i, block in enumerate(self._blocks):
            self._blocks[i], sums = step(block)
            yield sums

    def codes(self) -> Array:
        """Z of all samples, in their order."""
        codes = [block.Z for block in self._blocks]
        return codes[0] if len(codes) == 1 else namespace(codes[0]).concat(codes, axis=-2)
