"""Samples that are never in memory all at once: in files, or in chunks of a Dask array, perhaps on a cluster.

The first part is for predictions of Dask arrays: checks, and lazy work on chunks of rows. The second part is
for training, which visits samples block by block. Dask is imported where it is used: whoever has a Dask array
has Dask.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ledl.arrays import Array, is_dask, row_squares
from ledl.parallel import is_dask_task
from ledl.samples._blocks import Block, BlockError, Blocks, MappedBlocks, spans_of
from ledl.samples._cluster import Chunk, ClusterBlocks, chunks_of
from ledl.subspace import AS_THEY_ARE, FeatureMap, squared_norms

# Bytes of a block with all that a step computes from it; and samples of a file that are scanned at a time.
BLOCK_BYTES, SCAN = 2**27, 2**13
# Arrays of the size of its codes that a step needs in addition to the samples.
WORK_ARRAYS = 8


def check_rows(X: Array) -> None:
    """Raise if a Dask array cannot hold samples, as far as this is known without computing it."""
    shape = tuple(X.shape)
    if X.ndim != 2:
        raise ValueError(
            f"X has shape {shape}, but each sample must be a row of features. Turn one sample into a row with "
            "x.reshape(1, -1), and images into rows with X.reshape(len(X), -1)."
        )
    if np.isnan(shape[1]):
        raise ValueError(
            f"X has shape {shape}: its number of features is not known. Call X.compute_chunk_sizes() first."
        )
    if not isinstance(X._meta, np.ndarray):
        raise TypeError(
            f"X has chunks of {type(X._meta).__name__}, but NumPy arrays are needed. Convert them with "
            "X.map_blocks, to dense arrays in this machine's memory."
        )
    if X.dtype.kind == "c":
        raise ValueError(f"X is complex ({X.dtype}). Complex data not supported: give real numbers.")


def floats_of(X: Array) -> Any:
    """Return the type of results computed from samples: float32 stays, all other types become float64."""
    return np.dtype(np.float32 if X.dtype == np.float32 else np.float64)


def map_rows(work: Callable[[Array], Array], X: Array, dtype: Any, n_columns: int | None = None) -> Array:
    """Return a Dask array of the results of `work` on each chunk of rows; a vector unless it has columns.

    `work` takes rows in memory, and returns as many. It is a separate value of the graph, which tasks refer to:
    its data, such as atoms, are sent to a worker once and not with every chunk. Its name is a digest of its
    content, so that a model that has changed does not get the results of before.
    """
    import dask.array as da
    from dask.base import tokenize
    from dask.delayed import delayed

    sizes = np.array(X.chunks[0], dtype=np.float64)
    first = np.cumsum(sizes) - sizes
    # The number of each chunk of rows, and its first row: -1 if that is not known.
    places = np.stack([np.arange(len(sizes)), np.where(np.isnan(first), -1, first)], axis=1).astype(np.int64)
    function: Any = work.func if isinstance(work, partial) else work
    name = function.__name__.strip("_")
    columns = () if n_columns is None else (n_columns,)
    return da.blockwise(
        _work_on_chunk,
        "ik"[: 1 + len(columns)],
        X,
        "ij",
        da.from_array(places, chunks=(1, 2)),
        "il",
        new_axes=dict(zip("k", columns, strict=False)),
        work=delayed(work, name=f"ledl-{name}-{tokenize(work)}", traverse=False),
        empty=np.empty((0, *columns), dtype=dtype),
        token=f"ledl-{name}",
        concatenate=True,  # joins columns that are in several chunks
        align_arrays=False,
        meta=np.empty((0,) * (1 + len(columns)), dtype=dtype),
    )


def _work_on_chunk(chunk: Array, place: Array, *, work: Callable[[Array], Array], empty: Array) -> Array:
    """Return the result of `work` on a chunk; an error names the chunk, and the row if that is the reason."""
    if not len(chunk):  # filters leave empty chunks
        return empty
    try:
        return work(chunk)
    except ValueError as error:
        number, first = place[0].tolist()
        bad = ~np.isfinite(chunk).all(axis=1) if chunk.dtype.kind == "f" else np.zeros(1, dtype=bool)
        row = int(bad.argmax())
        if bad.any():
            of_all = f", row {first + row} of all" if first >= 0 else ""
            raise ValueError(
                f"X contains NaN or infinity in row {row} of its chunk {number}{of_all}. Remove or replace it."
            ) from error
        error.add_note(f"In chunk {number} of X" + (f", whose first row is {first}." if first >= 0 else "."))
        raise


def with_known_rows(X: Any) -> Any:
    """Return a Dask array of floats whose chunks are complete rows, and whose number of rows is known."""
    import dask.array as da

    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    if np.isnan(X.shape[0]):
        X = da.Array(X.dask, X.name, X.chunks, meta=X._meta)  # the caller's array stays as it is
        X.compute_chunk_sizes()
    return X


@contextmanager
def seceded() -> Iterator[None]:
    """Release the thread of a Dask task to the tasks that it will wait for."""
    if not is_dask_task():
        yield
        return
    from distributed import rejoin, secede

    secede()
    try:
        yield
    finally:
        rejoin()


class StoredRows:
    """Samples that stay where they are, and that training visits block by block.

    They are in a file, or are the chunks of a Dask array. A slice is read when it is needed, and mapped
    to features. It is valid until the same thread reads the next one, in the same memory: the system would
    otherwise clear new memory for every block. With a `cluster`, a client and its chunks, blocks are on the
    workers instead.
    """

    def __init__(
        self,
        data: Array,
        norms: Array,
        features: FeatureMap,
        spans: list[tuple[int, int]],
        cluster: tuple[Any, list[Chunk]] | None = None,
    ) -> None:
        self.data, self.norms, self.features = data, norms, features
        self._spans, self._cluster = spans, cluster
        self.shape, self.dtype, self.usable = tuple(data.shape), data.dtype, norms > 0
        self._buffers = threading.local()

    def blocks(
        self,
        labels: Array,
        n_atoms: int,
        batch_size: int | None,
        threads: int,
        weights: Array | None = None,
    ) -> Blocks:
        """Return blocks of them with their labels and weights.

        A block has `batch_size` samples, or as many as keep it small.
        """
        width = self.shape[1] + WORK_ARRAYS * n_atoms
        size = batch_size or max(BLOCK_BYTES // (self.dtype.itemsize * width), 1)
        if self._cluster is not None:
            return ClusterBlocks(
                *self._cluster, self._spans, labels, self.norms, self.features, self.shape[1], size, weights
            )
        spans = [(first + i, first + j) for first, stop in self._spans for i, j in spans_of(stop - first, size)]
        return MappedBlocks(self, labels, spans, threads, weights)

    def __getitem__(self, rows: slice) -> Array:
        mine = self._buffers
        if is_dask(self.data):  # a chunk is computed once for all blocks that are cut from it in turn
            span = next(span for span in self._spans if span[0] <= rows.start < span[1])
            if getattr(mine, "span", None) != span:
                mine.span, mine.chunk = None, None  # make room first
                mine.chunk = read_rows(self.data, slice(*span))
                mine.span = span
            part: Array = mine.chunk[rows.start - span[0] : rows.stop - span[0]]
        else:
            part = read_rows(self.data, rows)
        if self.features == AS_THEY_ARE:
            return part
        if not hasattr(mine, "array") or len(mine.array) < len(part):
            mine.array = np.empty(part.shape, dtype=self.dtype)
        return self.features.by_norms(part, self.norms[rows], mine.array[: len(part)])

    def read(self) -> Array:
        """Return all samples of a file, mapped to features, in memory of their own."""
        found = np.empty(self.shape, dtype=self.dtype)
        for first, stop in spans_of(len(found), SCAN):
            found[first:stop] = self[first:stop]
        return found


def open_file(X: Array, features: FeatureMap, spans: list[tuple[int, int]] | None = None) -> StoredRows:
    """Return samples in a file, or in chunks of a Dask array, after reading them once.

    Raise if a sample is not finite or, unless features have norm 1, if its square overflows or underflows.
    """
    norms = np.empty(X.shape[0])
    for first, stop in spans or spans_of(len(X), SCAN):
        part = read_rows(X, slice(first, stop))
        norms[first:stop] = row_norms(part, features)
        for bad in np.flatnonzero(np.isnan(norms[first:stop]))[:1]:
            squared_norms(part[bad : bad + 1], "X", first + bad)
    return StoredRows(X, norms, features, spans or [(0, len(X))])


def open_dask(X: Any, labels: Array, features: FeatureMap) -> StoredRows:
    """Return chunks of a Dask array, on the cluster that this process is a client of, or for threads here."""
    bounds = np.cumsum([0, *X.chunks[0]])
    spans = [(int(i), int(j)) for i, j in pairwise(bounds) if j > i]
    distributed, client = sys.modules.get("distributed"), None
    if distributed is not None:
        with suppress(ValueError):  # this process has no client
            client = distributed.get_client() if is_dask_task() else distributed.default_client()
    if client is None:
        return open_file(X, features, spans)
    if client.asynchronous:
        raise ValueError(
            "The Dask client is asynchronous, but fit waits for results. Use Client(...) without asynchronous."
        )
    cluster = client, chunks_of(X, client)
    raw = StoredRows(X, np.zeros(len(labels)), AS_THEY_ARE, spans, cluster)
    (found,) = raw.blocks(labels, 1, None, 1).map_sum(partial(block_norms, features))
    norms = np.frombuffer(found)
    for bad in np.flatnonzero(np.isnan(norms))[:1]:
        squared_norms(np.asarray(X[bad : bad + 1]), "X", bad)
    return StoredRows(X, norms, features, spans, cluster)


def read_rows(data: Array, rows: slice) -> Array:
    """Return samples in memory."""
    try:
        part = np.asarray(data[rows])
    except Exception as error:
        raise BlockError(
            f"Samples {rows.start} to {rows.stop - 1} could not be read: {type(error).__name__}: {error}"
        ) from error
    expected = rows.stop - rows.start, data.shape[1]
    if part.shape != expected:
        raise BlockError(
            f"Samples {rows.start} to {rows.stop - 1} have shape {part.shape}, but X says {expected}."
        )
    return part


def row_norms(part: Array, features: FeatureMap) -> Array:
    """Return the norms of samples after powers; NaN for those that `squared_norms` refuses.

    If features have norm 1, finite samples of any size have a norm: their squares are not needed.
    """
    part = features.powers(part)
    largest = np.maximum(part.max(axis=1), -part.min(axis=1)).astype(np.float64)
    safe = np.where(largest > 0, largest, 1.0)
    with np.errstate(invalid="ignore"):  # infinity / infinity is NaN
        norms = np.asarray(largest * np.sqrt(row_squares(part / safe.astype(part.dtype)[:, None])))
    if not features.unit_norm:
        squares = row_squares(part)
        refused = ~np.isfinite(squares) | (squares < np.finfo(np.float64).tiny)
        norms[refused & (largest != 0)] = np.nan
    return norms


def block_norms(features: FeatureMap, block: Block) -> tuple[Block, tuple[bytes]]:
    """Return the norms of a block's samples as bytes: their sum is the concatenation over all blocks."""
    return block, (row_norms(block.X, features).tobytes(),)
