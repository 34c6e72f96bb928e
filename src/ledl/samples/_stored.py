"""Samples in files or on a cluster, which training visits block by block and never holds all at once."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ledl.arrays import Array, is_dask, row_squares
from ledl.samples._blocks import Block, BlockError, Blocks, MappedBlocks, spans_of
from ledl.samples._cluster import ClusterBlocks, Prepare, chunks_of
from ledl.samples._dask import cluster_client
from ledl.subspace import scaled, squared_norms

# Bytes of a block with all that a step makes of it; and samples of a file that are scanned at a time.
BLOCK_BYTES, SCAN = 2**27, 2**13
# Arrays of the size of its codes that a step needs beside the samples.
WORK_ARRAYS = 8


class StoredRows:
    """Samples where they are; what training asks of them."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    usable: Array  # (n,): which samples are not zero

    def blocks(self, labels: Array, n_atoms: int, batch_size: int | None, threads: int) -> Blocks:
        """Return blocks of them, with their labels: of so many samples, or as many as keep a block small."""
        width = self.shape[1] + WORK_ARRAYS * n_atoms
        size = batch_size or max(BLOCK_BYTES // (self.dtype.itemsize * width), 1)
        return self._blocks_of(labels, size, threads)

    def _blocks_of(self, labels: Array, block_size: int, threads: int) -> Blocks:
        raise NotImplementedError


class MappedRows(StoredRows):
    """Samples that are read when they are asked for, and scaled on the way: of a file, or a Dask array.

    A part lasts until the same thread asks for the next: its memory is used again, which the system would
    otherwise clear anew for every block.
    """

    def __init__(self, data: Array, norms: Array, unit_norm: bool, spans: list[tuple[int, int]]) -> None:
        self.data, self.norms, self.unit_norm, self._spans = data, norms, unit_norm, spans
        self.shape, self.dtype, self.usable = tuple(data.shape), data.dtype, norms > 0
        self._buffers = threading.local()

    def _blocks_of(self, labels: Array, block_size: int, threads: int) -> Blocks:
        spans = [
            (first + i, first + j) for first, stop in self._spans for i, j in spans_of(stop - first, block_size)
        ]
        return MappedBlocks(self, labels, spans, threads)

    def __getitem__(self, rows: slice) -> Array:
        part = self._cut(rows) if is_dask(self.data) else read_rows(self.data, rows)
        if not self.unit_norm:
            return part
        buffer = getattr(self._buffers, "array", None)
        if buffer is None or len(buffer) < len(part):
            buffer = self._buffers.array = np.empty(part.shape, dtype=self.dtype)
        return scaled_by(part, self.norms[rows], buffer[: len(part)])

    def _cut(self, rows: slice) -> Array:
        """Return rows of a chunk of Dask, which is made once for all blocks that are cut from it in turn."""
        span = next(span for span in self._spans if span[0] <= rows.start < span[1])
        if getattr(self._buffers, "span", None) != span:
            self._buffers.span, self._buffers.chunk = None, None  # make room first
            self._buffers.chunk = read_rows(self.data, slice(*span))
            self._buffers.span = span
        chunk: Array = self._buffers.chunk
        return chunk[rows.start - span[0] : rows.stop - span[0]]


class ClusterRows(StoredRows):
    """Chunks of a Dask array, which the workers of a cluster work on."""

    _prepare: Prepare

    def __init__(
        self, client: Any, X: Any, spans: list[tuple[int, int]], labels: Array, unit_norm: bool
    ) -> None:
        self.shape, self.dtype = tuple(X.shape), X.dtype
        self._client, self._spans, self._chunks = client, spans, chunks_of(X, client)
        self._norms, self._prepare = np.full(len(labels), np.nan), as_they_are
        (norms,) = self.blocks(labels, 1, None, 1).map_sum(partial(block_norms, unit_norm))
        self._norms = np.frombuffer(norms)
        self._prepare = scaled_by if unit_norm else as_they_are
        self.usable = self._norms > 0
        bad = np.flatnonzero(np.isnan(self._norms))
        if bad.size:  # those checks say what is wrong with it
            checked_norms(np.asarray(X[bad[0] : bad[0] + 1]), int(bad[0]), unit_norm)

    def _blocks_of(self, labels: Array, block_size: int, threads: int) -> Blocks:
        known = self._spans, labels, self._norms, self._prepare, self.shape[1]
        return ClusterBlocks(self._client, self._chunks, *known, block_size)


def open_file(X: Array, unit_norm: bool, spans: list[tuple[int, int]] | None = None) -> MappedRows:
    """Return samples in a file, or chunks of a Dask array, after one look at them.

    Raises where numbers are such that their squares are of no use.
    """
    norms = np.empty(X.shape[0])
    for first, stop in spans or spans_of(len(X), SCAN):
        norms[first:stop] = checked_norms(read_rows(X, slice(first, stop)), first, unit_norm)
    return MappedRows(X, norms, unit_norm, spans or [(0, len(X))])


def open_dask(X: Any, labels: Array, unit_norm: bool) -> StoredRows:
    """Return chunks of a Dask array, for the cluster that this process is a client of, or for threads here."""
    bounds = np.cumsum([0, *X.chunks[0]])
    spans = [(int(i), int(j)) for i, j in pairwise(bounds) if j > i]
    client = cluster_client()
    if client is None:
        return open_file(X, unit_norm, spans)
    return ClusterRows(client, X, spans, labels, unit_norm)


def read_rows(data: Array, rows: slice) -> Array:
    """Return those samples, in memory."""
    try:
        part = np.asarray(data[rows])
    except Exception as error:
        raise BlockError(
            f"Samples {rows.start} to {rows.stop - 1} could not be read: {type(error).__name__}: {error}"
        ) from error
    if part.shape != (rows.stop - rows.start, data.shape[1]):
        raise BlockError(
            f"Samples {rows.start} to {rows.stop - 1} have the shape {part.shape}, but X says "
            f"{(rows.stop - rows.start, data.shape[1])}."
        )
    return part


def scaled_by(part: Array, norms: Array, out: Array | None = None) -> Array:
    """Return samples of norm 1, in memory of their own; a zero sample stays zero."""
    if norms.min(initial=1) < np.finfo(part.dtype).tiny:  # zero, or not to be divided by
        return scaled(part)
    return np.multiply(part, (1 / norms).astype(part.dtype)[:, None], out=out)


def as_they_are(rows: Array, norms: Array) -> Array:
    """Return the rows."""
    return rows


def checked_norms(part: Array, first: int, unit_norm: bool) -> Array:
    """Return the norms of samples, the first having that number for messages; raise if one is of no use."""
    finite = np.isfinite(part).all(axis=1)
    if not finite.all():
        raise ValueError(f"X contains NaN or infinity in row {first + finite.argmin()}. Remove or replace it.")
    if not unit_norm:
        squared_norms(part, "X", first)
    largest = np.maximum(part.max(axis=1), -part.min(axis=1)).astype(np.float64)
    safe = np.where(largest > 0, largest, 1.0)
    return np.asarray(largest * np.sqrt(row_squares(part / safe.astype(part.dtype)[:, None])))


def block_norms(unit_norm: bool, block: Block) -> tuple[Block, tuple[bytes]]:
    """Return the norms of a block's samples, as bytes, which add up to those of all; NaN for one of no use."""
    try:
        return block, (checked_norms(block.X, 0, unit_norm).tobytes(),)
    except ValueError:
        norms = np.full(len(block.X), np.nan)
        for i in range(len(norms)):
            with suppress(ValueError):
                norms[i : i + 1] = checked_norms(block.X[i : i + 1], 0, unit_norm)
        return block, (norms.tobytes(),)
