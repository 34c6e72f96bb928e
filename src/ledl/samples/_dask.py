"""Dask arrays: checks, work on chunks of rows when its result is asked for, the cluster of this process.

Dask is imported where it is used: who has a Dask array has it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np

from ledl.arrays import Array, is_dask
from ledl.parallel import is_dask_task


def check_rows(X: Array) -> None:
    """Raise if no chunk of a Dask array could be samples, by what is known without computing it."""
    shape = tuple(X.shape)
    if X.ndim != 2:
        raise ValueError(
            f"X has shape {shape}, but a row of features for each sample is needed. Make one sample a row with "
            "x.reshape(1, -1), and images rows with X.reshape(len(X), -1)."
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


def check_lengths(X: Array, y: Array) -> None:
    """Raise if the numbers of samples and labels are known and differ, before anything is computed."""
    n_samples, n_labels = (a.shape[0] if getattr(a, "shape", ()) else len(a) for a in (X, y))
    known = isinstance(n_samples, Integral) and isinstance(n_labels, Integral)
    if known and n_samples != n_labels:
        raise ValueError(f"X has {n_samples} samples and y {n_labels} labels. Give a label for each sample.")


def floats_of(X: Array) -> Any:
    """Return the type of what is computed from samples: float32 stays, all else becomes float64."""
    return np.dtype(np.float32 if X.dtype == np.float32 else np.float64)


def map_rows(work: Callable[[Array], Array], X: Array, dtype: Any, n_columns: int | None = None) -> Array:
    """Return a Dask array of what `work` makes of each chunk of rows; a vector unless it has columns.

    `work` takes rows in memory, and gives as many. It is a value of the graph by itself, which tasks refer to:
    what it holds, such as atoms, is sent to a worker once and not with every chunk. It is named by its content,
    so that what has changed is not taken for what it was.
    """
    import dask.array as da
    from dask.base import tokenize
    from dask.delayed import delayed

    sizes = np.array(X.chunks[0], dtype=np.float64)
    first = np.cumsum(sizes) - sizes
    # For each chunk of rows its number, and its first row; -1 where that is not known.
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
        concatenate=True,  # of columns in several chunks
        align_arrays=False,
        meta=np.empty((0,) * (1 + len(columns)), dtype=dtype),
    )


def in_memory(*arrays: Any) -> tuple[Any, ...]:
    """Return arrays, those of Dask computed, all in one go; others as they are."""
    if not any(is_dask(array) for array in arrays):
        return arrays
    import dask

    return tuple(dask.compute(*arrays))


def _work_on_chunk(chunk: Array, place: Array, *, work: Callable[[Array], Array], empty: Array) -> Array:
    """Return what `work` makes of a chunk; an error of its names the chunk, and the row if that is why."""
    if not len(chunk):  # as filters leave them
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
    """Return a Dask array of floats whose chunks are whole rows, and which knows how many."""
    import dask.array as da

    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    if np.isnan(X.shape[0]):
        X = da.Array(X.dask, X.name, X.chunks, meta=X._meta)  # the caller's stays as it is
        X.compute_chunk_sizes()
    return X


@contextmanager
def seceded() -> Iterator[None]:
    """Leave, in a task of Dask, its thread to the tasks that it will wait for."""
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
    """Return the client of this process, or None if it has none."""
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
