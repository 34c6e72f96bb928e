"""Samples in files or on a cluster, which training visits block by block and never holds all at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ledl.arrays import Array, is_dask, row_squares
from ledl.parallel import is_dask_task
from ledl.samples._cluster import Chunk, ClusterBlocks
from ledl.samples._mapped import MappedBlocks
from ledl.samples._memory import Block, BlockError, Blocks, cut, spans_of
from ledl.subspace import scaled, squared_norms

# Bytes of a block with all that a step makes of it; and samples of a file that are scanned at a time.
BLOCK_BYTES, SCAN = 2**27, 2**13
# Arrays of the size of its codes that a step needs beside the samples.
WORK_ARRAYS = 8
# How often a task of a Dask graph may be needed, in the mean, before chunks are made once and for all.
SHARED = 2


class StoredRows:
    """Samples where they are; what training asks of them."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    usable: Array  # (n,): which samples are not zero

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self, labels: Array, n_atoms: int, batch_size: int | None, threads: int) -> Blocks:
        """Blocks of them, with their labels."""
        raise NotImplementedError

    def block_size(self, n_atoms: int, batch_size: int | None) -> int:
        """As asked for, or as many samples as keep a block small."""
        width = self.shape[1] + WORK_ARRAYS * n_atoms
        return batch_size or max(BLOCK_BYTES // (self.dtype.itemsize * width), 1)


class MappedRows(StoredRows):
    """Samples that are read when they are asked for, and scaled on the way: of a file, or a Dask array.

    A part lasts until the same thread asks for the next: its memory is used again, which the system would
    otherwise clear anew for every block.
    """

    def __init__(self, data: Array, norms: Array, unit_norm: bool, spans: list[tuple[int, int]]) -> None:
        self.data, self.norms, self.unit_norm, self._spans = data, norms, unit_norm, spans
        self.shape, self.dtype, self.usable = tuple(data.shape), data.dtype, norms > 0
        self._buffers = threading.local()

    def blocks(self, labels: Array, n_atoms: int, batch_size: int | None, threads: int) -> Blocks:
        spans = cut(self._spans, self.block_size(n_atoms, batch_size))
        return MappedBlocks(self, labels, spans, threads)

    def __getitem__(self, rows: slice) -> Array:
        part = self._cut(rows) if is_dask(self.data) else read_rows(self.data, rows)
        if not self.unit_norm:
            return part
        return scaled_by(part, self.norms[rows], self._buffer(len(part)))

    def _cut(self, rows: slice) -> Array:
        """Rows of a chunk of Dask, which is made once for all blocks that are cut from it one after another."""
        span = next(span for span in self._spans if span[0] <= rows.start < span[1])
        if getattr(self._buffers, "span", None) != span:
            self._buffers.span, self._buffers.chunk = None, None  # make room first
            self._buffers.chunk = read_rows(self.data, slice(*span))
            self._buffers.span = span
        chunk: Array = self._buffers.chunk
        return chunk[rows.start - span[0] : rows.stop - span[0]]

    def _buffer(self, n: int) -> Array:
        found = getattr(self._buffers, "array", None)
        if found is None or len(found) < n:
            found = self._buffers.array = np.empty((n, self.shape[1]), dtype=self.dtype)
        return found[:n]


def scaled_by(part: Array, norms: Array, out: Array | None = None) -> Array:
    """Samples of norm 1, in memory of their own; a zero sample stays zero."""
    if norms.min(initial=1) < np.finfo(part.dtype).tiny:  # zero, or not to be divided by
        return scaled(part)
    return np.multiply(part, (1 / norms).astype(part.dtype)[:, None], out=out)


def read_rows(data: Array, rows: slice) -> Array:
    """Those samples in memory."""
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


def open_file(X: Array, unit_norm: bool, spans: list[tuple[int, int]] | None = None) -> MappedRows:
    """Samples in a file, or chunks of a Dask array, after one look at them.

    Refuses numbers whose squares are of no use.
    """
    norms = np.empty(X.shape[0])
    for first, stop in spans or spans_of(len(X), SCAN):
        norms[first:stop] = checked_norms(read_rows(X, slice(first, stop)), first, unit_norm)
    return MappedRows(X, norms, unit_norm, spans or [(0, len(X))])


def checked_norms(part: Array, first: int, unit_norm: bool) -> Array:
    """Norms of samples, the first of which has that number for messages."""
    finite = np.isfinite(part).all(axis=1)
    if not finite.all():
        raise ValueError(f"X contains NaN or infinity in row {first + finite.argmin()}. Remove or replace it.")
    if not unit_norm:
        squared_norms(part, "X", first)
    largest = np.maximum(part.max(axis=1), -part.min(axis=1)).astype(np.float64)
    safe = np.where(largest > 0, largest, 1.0)
    return np.asarray(largest * np.sqrt(row_squares(part / safe.astype(part.dtype)[:, None])))


class ClusterRows(StoredRows):
    """Chunks of a Dask array, which the workers of a cluster work on."""

    def __init__(
        self, client: Any, X: Any, spans: list[tuple[int, int]], labels: Array, unit_norm: bool
    ) -> None:
        self.shape, self.dtype = tuple(X.shape), X.dtype
        self._client, self._spans, self._unit_norm = client, spans, unit_norm
        self._chunks = chunks_of(X, client)
        self._norms = np.full(len(labels), np.nan)
        blocks = self.blocks(labels, 1, None, 1, prepare=as_they_are)
        (norms,) = blocks.map_sum(partial(look, unit_norm))
        self._norms = np.frombuffer(norms)
        self.usable = self._norms > 0
        bad = np.flatnonzero(np.isnan(self._norms))
        if bad.size:  # those checks say what is wrong with it
            checked_norms(np.asarray(X[bad[0] : bad[0] + 1]), int(bad[0]), unit_norm)

    def blocks(
        self,
        labels: Array,
        n_atoms: int,
        batch_size: int | None,
        threads: int,
        prepare: Callable[[Array, Array], Array] | None = None,
    ) -> Blocks:
        size = self.block_size(n_atoms, batch_size)
        prepare = prepare or (scaled_by if self._unit_norm else as_they_are)
        return ClusterBlocks(
            self._client, self._chunks, self._spans, labels, self._norms, prepare, self.shape[1], size
        )


def look(unit_norm: bool, block: Block) -> tuple[Block, tuple[bytes]]:
    """The norms of a block's samples, as bytes, which add up to those of all; NaN for a sample of no use."""
    try:
        return block, (checked_norms(block.X, 0, unit_norm).tobytes(),)
    except ValueError:
        rows = [block.X[i : i + 1] for i in range(len(block.X))]
        return block, (np.array([_norm_or_nan(row, unit_norm) for row in rows]).tobytes(),)


def _norm_or_nan(row: Array, unit_norm: bool) -> float:
    try:
        return float(checked_norms(row, 0, unit_norm)[0])
    except ValueError:
        return float("nan")


def as_they_are(rows: Array, norms: Array) -> Array:
    """The rows."""
    return rows


def chunks_of(X: Any, client: Any) -> list[Chunk]:
    """The chunks that are not empty, each with no more of the graph than it needs.

    Where many chunks need the same, such as the mean of all, it would be made for each in every pass: then all
    are made once, and stay on the cluster.
    """
    from dask.optimization import cull

    row = X.shape[1] * X.dtype.itemsize
    sizes = {(X.name, i, 0): row * size for i, size in enumerate(X.chunks[0]) if size}
    graph = dict(X.dask)
    graphs = {key: cull(graph, [key])[0] for key in sizes}
    if sum(map(len, graphs.values())) > SHARED * len(graph):
        graph = dict(client.persist(X).dask)
        graphs = {key: {key: graph[key]} for key in sizes}
    return [Chunk.of(graphs[key], key, n_bytes, client) for key, n_bytes in sizes.items()]


def open_dask(X: Any, labels: Array, unit_norm: bool) -> StoredRows:
    """Chunks of a Dask array: a cluster works on them if this process is its client, else threads here do."""
    bounds = np.cumsum([0, *X.chunks[0]])
    spans = [(int(i), int(j)) for i, j in pairwise(bounds) if j > i]
    client = cluster_client()
    if client is None:
        return open_file(X, unit_norm, spans)
    return ClusterRows(client, X, spans, labels, unit_norm)


@contextmanager
def beside_tasks() -> Iterator[None]:
    """In a task of Dask: leave its thread to the tasks that it will wait for."""
    if not is_dask_task():
        yield
        return
    from distributed import rejoin, secede

    secede()
    try:
        yield
    finally:
        rejoin()


def cluster_client() -> Any:
    """The client of this process, if it has one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.get_client() if is_dask_task() else distributed.default_client()
    except ValueError:
        return None
    if client.asynchronous:
        raise ValueError(
            "The Dask client is asynchronous, but fit waits for results. Use Client(...) without it."
        )
    return client


def with_known_rows(X: Any) -> Any:
    """A Dask array of floats whose chunks are whole rows, and which knows how many."""
    import dask.array as da

    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    if np.isnan(X.shape[0]):
        X = da.Array(X.dask, X.name, X.chunks, meta=X._meta)  # the caller's stays as it is
        X.compute_chunk_sizes()
    return X
