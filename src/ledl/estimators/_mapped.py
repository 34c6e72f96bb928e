"""Samples in a file, which training reads block by block and never holds all at once."""

from __future__ import annotations

import threading

import numpy as np
from sklearn.utils import gen_batches

from ledl.arrays import Array, row_squares
from ledl.blocks import MappedBlocks
from ledl.subspace import scaled, squared_norms

# Bytes of a block with all that a step makes of it; and samples that are scanned at a time.
MAPPED_BYTES, SCAN = 2**27, 2**13
# Arrays of the size of its codes that a step needs beside the samples.
WORK_ARRAYS = 8


class MappedRows:
    """Samples that stay in their file; parts that are asked for are scaled on the way.

    A part lasts until the same thread asks for the next: its memory is used again, which the system would
    otherwise clear anew for every block.
    """

    def __init__(self, data: Array, norms: Array, unit_norm: bool) -> None:
        self.data, self.norms, self.unit_norm = data, norms, unit_norm
        self._buffers = threading.local()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    @property
    def itemsize(self) -> int:
        return int(self.data.itemsize)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, rows: slice) -> Array:
        part = np.asarray(self.data[rows])
        if not self.unit_norm:
            return part
        norms = self.norms[rows]
        if norms.min(initial=1) < np.finfo(part.dtype).tiny:  # zero, or not to be divided by
            return scaled(part)
        return np.multiply(part, (1 / norms).astype(part.dtype)[:, None], out=self._buffer(len(part)))

    def _buffer(self, n: int) -> Array:
        found = getattr(self._buffers, "array", None)
        if found is None or len(found) < n:
            found = self._buffers.array = np.empty((n, self.data.shape[1]), dtype=self.data.dtype)
        return found[:n]


def map_rows(X: Array, unit_norm: bool) -> MappedRows:
    """Samples in a file, after one look at them; refuses numbers whose squares are of no use."""
    norms = np.empty(len(X))
    for chunk in gen_batches(len(X), SCAN):
        part = np.asarray(X[chunk])
        if not unit_norm:
            squared_norms(part, "X", chunk.start)
        largest = np.maximum(part.max(axis=1), -part.min(axis=1)).astype(np.float64)
        safe = np.where(largest > 0, largest, 1.0)
        norms[chunk] = largest * np.sqrt(row_squares(part / safe.astype(part.dtype)[:, None]))
    return MappedRows(X, norms, unit_norm)


def mapped_blocks(
    samples: MappedRows, labels: Array, n_atoms: int, batch_size: int | None, threads: int = 1
) -> MappedBlocks:
    """Blocks of a file's samples: of that size, or as many samples as keep a block small."""
    width = samples.data.shape[1] + WORK_ARRAYS * n_atoms
    size = batch_size or max(MAPPED_BYTES // (samples.data.itemsize * width), 1)
    return MappedBlocks(samples, labels, min(size, len(labels)), threads)
