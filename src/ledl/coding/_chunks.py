"""Many samples, coded chunk by chunk: in threads on the host, one after the other on a device.

`Settings` (`Lasso`, `Ridge`, `OMP`) name a way to code; `prepare` makes a `Coder` of them for given atoms and
samples. What does not depend on the samples is looked up in `kept`, a dictionary that belongs to the atoms, and
put there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from ledl.arrays import Array, as_array, free_memory, is_torch, namespace, place, to_host
from ledl.parallel import map_in_threads
from ledl.samples import upload_ahead
from ledl.subspace import Subspace, scaled

# Numbers in the codes, or the samples, of a chunk: 2 MB in float64, which a core's cache can nearly hold; but
# at least so many samples, or BLAS would spend its time on packing the atoms.
CHUNK, CHUNK_ROWS = 2**18, 256
# Chunks a thread, so that none waits long for another.
CHUNKS_A_THREAD = 4
# The same on a device: enough to fill it. Arrays of that size which the lasso needs there, in float64.
DEVICE_CHUNK, DEVICE_ARRAYS = 2**28, 16


class Coder(Protocol):
    """A dictionary made ready: samples in its coordinates, and their squared norms, to codes."""

    atoms: Array
    solver: str

    @property
    def tol(self) -> float | None: ...

    def __call__(self, X: Array, sq_norms: Array, start: Any = None) -> tuple[Array, Array, Array, Array]: ...


class CodingInfo(NamedTuple):
    """What `sparse_encode` did, sample by sample: a named tuple.

    Parameters
    ----------
    gap : ndarray of shape (n_samples,), or None
        Duality gaps, on the scale of the objective, of the codes before they are rounded to the type of the
        data; None for OMP, which minimises nothing that has one.
    n_iter : ndarray of shape (n_samples,)
        Iterations; for OMP atoms taken.
    n_nonzero : ndarray of shape (n_samples,)
        Non-zeros of the codes.
    converged : ndarray of shape (n_samples,)
        Whether the gap is at most `tol` times half the squared norm of the sample; for OMP always.
    tol : float, or None
        The tolerance that was used: in float32 at least 1e-5.
    solver : str
        The solver that was used.

    Examples
    --------
    >>> from ledl import sparse_encode
    >>> codes, info = sparse_encode([[3.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], alpha=1.0, return_info=True)
    >>> info
    CodingInfo(solver='active_set', tol=1e-06: 1 of 1 samples converged)
    >>> info.n_nonzero
    array([1])
    """

    gap: Array | None
    n_iter: Array
    n_nonzero: Array
    converged: Array
    tol: float | None
    solver: str

    def __repr__(self) -> str:
        done = f"{np.count_nonzero(self.converged)} of {len(self.converged)} samples converged"
        return f"CodingInfo(solver={self.solver!r}, tol={self.tol}: {done})"


@dataclass(frozen=True)
class Samples:
    """Samples as they came, which are worked on chunk by chunk: on the device asked for, scaled if so asked.

    Tensors stay where they lie.
    """

    data: Array
    device: str | None = None
    unit_norm: bool = False

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, rows: Any) -> Array:
        chunk = self.data[rows]
        if self.device is not None and not is_torch(chunk):
            chunk = place(chunk, self.device)
        return scaled(chunk) if self.unit_norm else chunk

    def stream(self, chunks: list[slice]) -> Iterator[Array]:
        """Yield the chunks in turn, the next one being on its way to the device meanwhile."""
        if is_torch(self.data) or len(chunks) == 1:
            yield from (self[chunk] for chunk in chunks)
            return
        for chunk in upload_ahead((self.data[chunk] for chunk in chunks), self.device):
            yield scaled(chunk) if self.unit_norm else chunk

    @property
    def where(self) -> str | None:
        """The device that they are worked on."""
        return str(self.data.device) if is_torch(self.data) else self.device

    def beside(self, array: Array) -> Array:
        """Return a host array where the samples are worked on."""
        return as_array(array, self.data) if is_torch(self.data) else place(to_host(array), self.device)


class Settings(Protocol):
    """What `ledl.dictionary` asks of a way to code."""

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any]
    ) -> Coder:
        """Return a coder over `atoms` (K, r), in the coordinates of `space`, for these samples."""


def code_in_chunks(
    coder: Coder,
    samples: Samples,
    space: Subspace,
    finish: Callable[[slice, Array, Array, Array], Any],
    threads: int,
    advice: str,
    init: Any = None,
) -> tuple[list[Any], CodingInfo]:
    """Return what `finish` makes of each chunk (its place, codes, coordinates, squared norms), and what was
    done.

    A chunk is worked on by one thread, products included; on a device one after the other. One warning, with
    `advice`, is for all samples that missed the gap.
    """
    n = len(samples.data)
    gap, squares = np.full(n, np.nan), np.empty(n)
    n_iter, converged = np.zeros(n, np.int64), np.zeros(n, bool)

    def work(chunk: slice, Y: Array) -> Any:
        sq_norms, X = space.squared_norms(Y, chunk.start), space.reduce(Y)
        start: Any = None if init is None else init[chunk]
        start = start.toarray() if scipy.sparse.issparse(start) else start
        codes, gap[chunk], n_iter[chunk], converged[chunk] = coder(X, sq_norms, start)
        squares[chunk] = to_host(sq_norms)
        return finish(chunk, namespace(codes).astype(codes, Y.dtype, copy=False), X, sq_norms)

    on_host = samples.where is None
    atoms = coder.atoms if on_host else samples.beside(coder.atoms)
    chunks = list(gen_batches(n, chunk_size(atoms, samples.data.shape[1], n, threads)))
    if not on_host:
        parts = [work(chunk, Y) for chunk, Y in zip(chunks, samples.stream(chunks), strict=True)]
    elif len(chunks) == 1:
        parts = [work(chunks[0], samples[:])]
    else:
        parts = map_in_threads(lambda chunk: work(chunk, samples[chunk]), chunks, threads)
    if not converged.all():
        late = ~converged
        worst = np.max(gap[late] / np.maximum(squares[late] / 2, np.finfo(np.float64).tiny))
        warnings.warn(
            f"{late.sum()} of {n} samples did not reach the duality gap asked for (tol={coder.tol}, "
            f"of half their squared norm; the worst has {worst:.1e}). {advice}",
            ConvergenceWarning,
            stacklevel=3,
        )
    return parts, CodingInfo(
        gap if coder.tol is not None else None, n_iter, None, converged, coder.tol, coder.solver
    )


def chunk_size(atoms: Array, n_features: int, n_samples: int, threads: int) -> int:
    """Return how many samples to code at once: what a core's cache, or a device's memory, holds of them."""
    widest: int = max(atoms.shape[-2], n_features)
    if not isinstance(atoms, np.ndarray):
        most = free_memory(atoms) // (2 * DEVICE_ARRAYS * 8)
        return max(min(DEVICE_CHUNK, most) // widest, CHUNK_ROWS)
    rows = max(CHUNK // widest, CHUNK_ROWS)
    # As many chunks as threads, or several times that, lest some wait for others.
    rounds = max(
        -(-n_samples // (rows * threads)), min(n_samples // (CHUNK_ROWS * threads), CHUNKS_A_THREAD), 1
    )
    return -(-n_samples // (rounds * threads))
