"""Three ways to code samples over atoms: the lasso, ridge regression, orthogonal matching pursuit.

Many samples are coded chunk by chunk: in threads on the host, one after the other on a device.

`Lasso`, `Ridge`, `Collaborative` and `OMP` are `Settings`. Their `prepare` makes a `Coder` for given atoms and
samples. Results that do not depend on the samples are kept in `kept`, a dictionary that belongs to the atoms.
For the lasso and OMP it may be None: there is no next call, and a few samples need no Gram matrix.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from ledl.arrays import (
    Array,
    add_to_diagonal,
    as_array,
    check_memory,
    cholesky,
    cholesky_solve,
    free_memory,
    is_torch,
    namespace,
    place,
    product,
    put_samples,
    take_samples,
    to_host,
)
from ledl.parallel import map_in_threads
from ledl.samples import upload_ahead
from ledl.solvers import compiled
from ledl.solvers.lasso import PILOTS, Penalty, duality_gap, find_penalty, lasso, lasso_of_few, reachable
from ledl.solvers.omp import omp, omp_of_few
from ledl.subspace import AS_THEY_ARE, FeatureMap, Subspace, squared_norms

# Largest number of numbers in the codes, or the samples, of a chunk: 2 MB in float64, which nearly fit into the
# cache of a core. But a chunk has at least so many samples: with fewer, BLAS spends its time on packing the
# atoms.
CHUNK, CHUNK_ROWS = 2**18, 256
# Number of chunks for each thread, so that no thread waits long for another.
CHUNKS_A_THREAD = 4
# The size of a chunk on a device, enough to fill it, and the number of such arrays of float64 in the lasso.
DEVICE_CHUNK, DEVICE_ARRAYS = 2**28, 16


class Coder(Protocol):
    """Code samples, given in the coordinates of a dictionary with their squared norms."""

    atoms: Array
    solver: str

    @property
    def tol(self) -> float | None: ...

    def __call__(self, X: Array, sq_norms: Array, start: Any = None) -> tuple[Array, Array, Array, Array]: ...


class CodingInfo(NamedTuple):
    """Describe the codes of `sparse_encode` for each sample, as a named tuple.

    Parameters
    ----------
    gap : ndarray of shape (n_samples,), or None
        Duality gaps, on the scale of the objective. They are measured before codes are rounded to the type of
        the data. None for OMP, which has no duality gap.
    n_iter : ndarray of shape (n_samples,)
        Numbers of iterations. For OMP the numbers of atoms taken.
    n_nonzero : ndarray of shape (n_samples,)
        Numbers of non-zeros of the codes.
    converged : ndarray of shape (n_samples,)
        True if the gap is at most `tol` times half the squared norm of the sample. For OMP always True.
    tol : float, or None
        Tolerance that was used. In float32 it is at least 1e-5.
    solver : str
        Solver that was used.

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
    """Samples, of which chunks are mapped to features on `device`. Tensors stay on their device."""

    data: Array
    device: str | None = None
    features: FeatureMap = AS_THEY_ARE

    def __getitem__(self, rows: Any) -> Array:
        chunk = self.data[rows]
        if self.device is not None and not is_torch(chunk):
            chunk = place(chunk, self.device)
        return self.features(chunk)

    def stream(self, chunks: list[slice]) -> Iterator[Array]:
        """Yield the chunks one after the other, while the next one is sent to the device."""
        if is_torch(self.data) or len(chunks) == 1:
            yield from (self[chunk] for chunk in chunks)
            return
        for chunk in upload_ahead((self.data[chunk] for chunk in chunks), self.device):
            yield self.features(chunk)

    @property
    def where(self) -> str | None:
        """The device that they are coded on."""
        return str(self.data.device) if is_torch(self.data) else self.device

    def to_device(self, array: Array) -> Array:
        """Move a host array to the device of the samples."""
        return as_array(array, self.data) if is_torch(self.data) else place(to_host(array), self.device)


class Settings(Protocol):
    """Settings of a method that codes samples."""

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
    """Code samples chunk by chunk. Return the results of `finish`, and a description of the codes.

    `finish` takes the slice, codes, coordinates and squared norms of a chunk. On the host one thread works on a
    chunk, including its products. On a device chunks follow one after the other. One warning, with `advice`, is
    for all samples that missed the gap.
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
    atoms = coder.atoms if on_host else samples.to_device(coder.atoms)
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
            f"{late.sum()} of {n} samples did not reach the requested duality gap. Relative to half their "
            f"squared norm, tol={coder.tol} was requested, and the largest gap is {worst:.1e}. {advice}",
            ConvergenceWarning,
            stacklevel=3,
        )
    return parts, CodingInfo(
        gap if coder.tol is not None else None, n_iter, None, converged, coder.tol, coder.solver
    )


def chunk_size(atoms: Array, n_features: int, n_samples: int, threads: int) -> int:
    """Return how many samples to code at once: as many as fit into a core's cache, or a device's memory."""
    widest: int = max(atoms.shape[-2], n_features)
    if not isinstance(atoms, np.ndarray):
        most = free_memory(atoms) // (2 * DEVICE_ARRAYS * 8)
        return max(min(DEVICE_CHUNK, most) // widest, CHUNK_ROWS)
    rows = max(CHUNK // widest, CHUNK_ROWS)
    # As many chunks as threads, or several times as many, so that threads do not wait for each other.
    rounds = max(
        -(-n_samples // (rows * threads)), min(n_samples // (CHUNK_ROWS * threads), CHUNKS_A_THREAD), 1
    )
    return -(-n_samples // (rounds * threads))


# From this tolerance on, products are made in float32: their rounding errors are small compared with it.
SINGLE_PRECISION_TOL = 1e-4
# Squared norms that float32 can hold, with room for products of them.
SINGLE_PRECISION_RANGE = 1e-24, 1e24
# "auto" tries exact steps on so many samples. It takes them if they end within so many rounds, plus one round
# for every so many atoms, which is about the time of ADMM. For fewer than `FEW` samples ADMM's inverse is too
# expensive.
TRIED, ROUNDS, ATOMS_A_ROUND, FEW = 4, 64, 6, 32
# Codes are not dense if the smallest alpha with zero codes is less than so many times alpha, and may be sparse
# (which two samples then tell) if it is less than so many times.
DENSE, PERHAPS_SPARSE = 64, 16
# Iterations after which "auto" leaves samples that ADMM has not finished to exact steps.
ADMM_ROUNDS = 1000
# With fewer atoms the Gram matrix takes less time than starting threads.
GRAM_THREADS = 512
# A fitted dictionary makes and keeps its Gram matrix for any samples up to the first size in bytes. Up to the
# second it keeps what many samples needed, since they may come in batches.
MAX_KEPT, MOST_KEPT = 2**26, 2**29
# Without it, a few samples are coded by the products that they need, so many at a time. There may be K / r
# samples in all, whose products are fewer than those of the matrix, or K / `FEW_ATOMS` if codes have few
# non-zeros, but no more than `MOST_FEW`. So many at a time are few if the matrix is too large to be kept.
# For OMP the products with all atoms may be this share of the matrix.
FEW_SAMPLES, FEW_ATOMS, MOST_FEW, FEW_PRODUCTS = 8, 128, 1024, 1 / 2
# A matrix with fewer numbers than these for each of the few samples, and for each product of OMP, takes less
# time than their steps.
NUMBERS_A_SAMPLE, NUMBERS_A_PRODUCT = 2**17, 2**13


class Lasso(NamedTuple):
    """Lasso codes, argmin |x - s D|^2 + 2 alpha |s|_1, with a duality gap of at most tol |x|^2 / 2."""

    alpha: float
    tol: float = 1e-6
    solver: str = "auto"
    max_iter: int = 10_000
    positive: bool = False

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any] | None
    ) -> Coder:
        pilots, n, (K, r) = None, len(samples.data), atoms.shape
        is_kept = kept is not None and 8 * K**2 <= MAX_KEPT
        few = min(K // min(r, FEW_ATOMS), K**2 // NUMBERS_A_SAMPLE, MOST_FEW)
        if samples.where is None and n <= few and not is_kept and self.solver != "admm":
            coder = FewLassoCoder(atoms, self._replace(tol=reachable(self.tol, samples.data)))
            if n <= max(K // r, 1 if 8 * K**2 <= MAX_KEPT else FEW_SAMPLES):
                return coder
            Y = samples[:]
            some = Y[np.argsort(space.squared_norms(Y))[[n // 2, -1]]]  # not those that are blank, if few are
            X = space.reduce(some)
            if np.abs(X @ atoms.T).max() < PERHAPS_SPARSE * self.alpha:
                n_products = np.count_nonzero(coder(X, space.squared_norms(some))[0]) / 2  # for each sample
                if n * n_products <= K / 2:
                    return coder
        if samples.where is not None:
            atoms = samples.to_device(atoms)
        elif n >= FEW:
            some = samples[np.unique(np.linspace(0, n - 1, PILOTS).astype(int))]
            pilots = space.reduce(some), space.squared_norms(some)
        return LassoCoder(
            atoms,
            alpha=self.alpha,
            tol=reachable(self.tol, samples.data),
            solver=self.solver,
            max_iter=self.max_iter,
            positive=self.positive,
            pilots=pilots,
            kept=kept if 8 * K**2 <= MOST_KEPT else None,
            threads=threads,
        )


class FewLassoCoder:
    """Code a few samples by the lasso over so many atoms that their Gram matrix would take most of the time."""

    solver = "active_set"

    def __init__(self, atoms: Array, settings: Lasso) -> None:
        squared_norms(atoms, "The dictionary")  # raises if not finite
        self.atoms, self.tol, self._settings = atoms.astype(np.float64, copy=False), settings.tol, settings

    def __call__(self, X: Array, sq_norms: Array, start: Array | None = None) -> tuple[Array, ...]:
        """Return codes, gaps, iterations, and True where gaps are small enough."""
        alpha, tol, _, max_iter, positive = self._settings
        parts = []
        for i in range(0, len(X), FEW_SAMPLES):
            few = slice(i, i + FEW_SAMPLES)
            codes, info = lasso_of_few(
                self.atoms,
                X[few],
                sq_norms[few],
                alpha,
                tol,
                max_iter=max_iter,
                positive=positive,
                start=None if start is None else start[few],
            )
            parts.append((codes, info.gap, info.n_iter, info.converged))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


class LassoCoder:
    """Code samples by the lasso, over a dictionary or over several at once: leading axes are problems.

    "active_set" takes exact steps on the host, in float32 where the tolerance allows it, and again in float64
    where that is not enough. "admm" runs on the device of the arrays. It takes steps in float32 as far as
    possible, then in float64. "auto" takes the first for NumPy arrays, unless it needs many rounds for a few of
    the samples, and the second for tensors. Exact steps on the host finish what ADMM does not.

    Parameters
    ----------
    atoms : (..., K, r)
    alpha : float or (..., 1, 1)
    tol : float
        Tolerance of the duality gap, as in `ledl.solvers.lasso.lasso`, within the precision of the samples.
    pilots : tuple of (m, r) and (m,), optional
        A few of many samples, and their squared norms. They choose the solver and ADMM's penalty, for one
        dictionary of NumPy arrays.
    kept : dict, optional
        Store of atoms and Gram matrices of each type, which other coders over the same atoms share.
    threads : int
        Number of threads for the Gram matrix.
    """

    def __init__(
        self,
        atoms: Array,
        *,
        alpha: Any,
        tol: float,
        solver: str = "auto",
        max_iter: int = 10_000,
        positive: bool = False,
        pilots: tuple[Array, Array] | None = None,
        kept: dict[Any, Any] | None = None,
        threads: int = 1,
    ) -> None:
        self.atoms, self.alpha, self.tol, self.max_iter, self.positive = atoms, alpha, tol, max_iter, positive
        self._kept: dict[Any, Any] = {} if kept is None else kept
        self._threads, self._lock, on_host = threads, Lock(), isinstance(atoms, np.ndarray)
        if "fits float32" not in self._kept:
            rows = atoms if atoms.ndim == 2 else namespace(atoms).reshape(atoms, (-1, atoms.shape[-1]))
            squares = squared_norms(rows, "The dictionary")  # raises if not finite
            self._kept["fits float32"] = _fit_float32(squares)
        self.solver = solver if solver != "auto" else "active_set" if on_host else "admm"
        self._penalty: Penalty | None = None
        if pilots is not None and on_host:
            if solver == "auto" and len(atoms) > ROUNDS and self._takes_many_rounds(*pilots):
                self.solver = "admm"
            if self.solver == "admm":
                D, G = self._system(np.float64)
                self._penalty = find_penalty(G, pilots[0].astype(np.float64, copy=False) @ D.T, alpha, positive)
        # With "auto", exact steps on the host finish what ADMM does not, if there is numba.
        self._finishes = solver == "auto" and compiled.numpy_loop("active_set") is not None

    def __call__(self, X: Array, sq_norms: Array, start: Array | None = None) -> tuple[Array, ...]:
        """Return codes, gaps, iterations, and True where gaps are small enough. Only codes stay on a device."""
        if self.solver == "admm":
            codes, gap, n_iter = self._split(X, sq_norms, start)
            again, sq_norms = self._finishes, to_host(sq_norms)
        else:
            again = self.tol >= SINGLE_PRECISION_TOL and self._kept["fits float32"] and _fit_float32(sq_norms)
            D, G = self._system(np.float32 if again else np.float64)
            rhs = np.ascontiguousarray(X, dtype=D.dtype) @ D.mT
            codes, (gap, n_iter, *_) = lasso(
                G,
                rhs,
                sq_norms,
                self.alpha,
                self.tol,
                max_iter=self.max_iter,
                positive=self.positive,
                start=start,
            )
        converged = gap <= self.tol * sq_norms / 2
        if again and not converged.all():
            codes = self._finish(codes, gap, n_iter, X, sq_norms)
            converged = gap <= self.tol * sq_norms / 2
        return codes, gap, n_iter, converged

    def _system(self, dtype: Any) -> tuple[Array, Array]:
        """Return atoms and their Gram matrix in the type `dtype`."""
        with self._lock:  # the threads of one call need one matrix, not each its own
            return system(self.atoms, dtype, self._kept, self._threads)

    def _takes_many_rounds(self, pilots: Array, sq_norms: Array) -> bool:
        """Try exact steps, and return True if they take so many rounds that ADMM is faster.

        That happens where codes have nearly as many non-zeros as there are independent atoms: every atom that
        enters drives another out. It takes a small alpha, so the trial is not always needed.
        """
        few = slice(None, None, max(1, len(pilots) // TRIED))
        single = self.tol >= SINGLE_PRECISION_TOL and self._kept["fits float32"] and _fit_float32(sq_norms[few])
        D, G = self._system(np.float32 if single else np.float64)
        rhs, rounds = pilots[few].astype(D.dtype, copy=False) @ D.T, max(ROUNDS, len(D) // ATOMS_A_ROUND)
        if self.alpha * DENSE > np.max(np.abs(rhs)):
            return False
        _, info = lasso(G, rhs, sq_norms[few], self.alpha, self.tol, max_iter=rounds, positive=self.positive)
        return bool(np.median(info.n_iter) >= rounds)

    def _split(self, X: Array, sq_norms: Array, start: Array | None) -> tuple[Array, ...]:
        """Return codes by ADMM, gaps in float64 and numbers of steps. All but the codes are on the host."""
        xp = namespace(X)
        D, G = self._system(xp.float64)
        rhs = xp.astype(X, xp.float64, copy=False) @ D.mT
        alpha = xp.broadcast_to(as_array(self.alpha, rhs, xp.float64), (*rhs.shape[:-2], 1, 1))
        codes, gap = xp.zeros_like(rhs), xp.full_like(sq_norms, xp.inf)
        n_iter = xp.zeros(gap.shape, dtype=xp.int64, device=gap.device)
        if start is not None:  # it stays where it is good enough
            codes += as_array(start, rhs)
            codes = xp.clip(codes, 0, None) if self.positive else codes
            gap = duality_gap(codes, codes @ G, rhs, sq_norms, alpha[..., 0], self.positive)
        single, on_host = self._kept["fits float32"] and _fit_float32(sq_norms), isinstance(X, np.ndarray)
        stages = [(xp.float32, max(self.tol, SINGLE_PRECISION_TOL)), (xp.float64, self.tol)]
        if on_host and single and self._finishes:
            stages = stages[:1]  # exact steps are faster than steps of ADMM in float64
        elif not single or (on_host and self.tol < SINGLE_PRECISION_TOL):
            stages = stages[1:]
        # Some iterations are left for exact steps.
        rounds = min(-(-self.max_iter // 2), ADMM_ROUNDS) if self._finishes else self.max_iter
        for dtype, tol in stages:
            late, left = gap > tol * sq_norms / 2, rounds - int(xp.max(n_iter))
            most = int(xp.max(xp.sum(xp.astype(late, xp.int64), axis=-1)))
            if most == 0 or left <= 0:
                continue
            # Take as many samples of each problem as are late in the problem with the most.
            late = xp.argsort(xp.astype(~late, xp.int64), axis=-1, stable=True)[..., :most]
            S, b, squares, before = (take_samples(x, late) for x in (codes, rhs, sq_norms, gap))
            left = min(left, ADMM_ROUNDS) if dtype == xp.float32 else left
            new, info = lasso(
                G,
                b,
                squares,
                alpha,
                tol,
                solver="admm",
                max_iter=left,
                positive=self.positive,
                start=S,
                dtype=dtype,
                penalty=self._penalty,
            )
            better = info.gap < before
            put_samples(codes, late, xp.where(better[..., None], new, S))
            put_samples(gap, late, xp.where(better, info.gap, before))
            put_samples(n_iter, late, take_samples(n_iter, late) + info.n_iter)
        return codes, to_host(gap), to_host(n_iter)

    def _finish(self, codes: Array, gap: Array, n_iter: Array, X: Array, sq_norms: Array) -> Array:
        """Take exact steps in float64, on the host, for samples that missed their gap. Return the codes.

        Gaps and iterations are changed in place. Gaps are measured again before: they may contain a bound on
        the rounding errors of float32.
        """
        xp = namespace(X)
        codes = xp.astype(codes, X.dtype, copy=False)
        D, G = self._system(xp.float64)
        alpha = np.broadcast_to(to_host(self.alpha), (*X.shape[:-2], 1, 1))
        for p in np.ndindex(*X.shape[:-2]):
            enough = self.tol * sq_norms[p] / 2
            rows = np.flatnonzero(~(gap[p] <= enough))
            if rows.size == 0:
                continue
            index, own, weight = as_array(rows, codes), to_host(G[p]), float(alpha[p][0, 0])
            b = to_host(xp.astype(X[p][index], xp.float64, copy=False) @ D[p].T)
            S, squares = to_host(codes[p][index]).astype(np.float64, copy=False), sq_norms[p][rows]
            gap[p][rows] = duality_gap(S, S @ own, b, squares, weight, self.positive)
            late = ~(gap[p] <= enough)[rows] & (n_iter[p][rows] < self.max_iter)
            if late.any():
                rows, index = rows[late], as_array(rows[late], codes)
                left = self.max_iter - int(np.max(n_iter[p][rows]))
                S, info = lasso(
                    own,
                    b[late],
                    squares[late],
                    weight,
                    self.tol,
                    max_iter=left,
                    positive=self.positive,
                    start=S[late],
                )
                codes[p][index], gap[p][rows] = as_array(S, codes, codes.dtype), info.gap
                n_iter[p][rows] += info.n_iter
        return codes


def _fit_float32(squares: Array) -> bool:
    """Return True if float32 can hold vectors with these squared norms, and products of them."""
    low, high = SINGLE_PRECISION_RANGE
    return bool(((squares == 0) | ((squares > low) & (squares < high))).all())


def system(atoms: Array, dtype: Any, kept: dict[Any, Any], threads: int) -> tuple[Array, Array]:
    """Return atoms and their Gram matrix in the type `dtype`, which `kept` may have already."""
    key = dtype, atoms.device
    if key not in kept:
        D = namespace(atoms).astype(atoms, dtype, copy=False)
        kept[key] = D, gram(D, threads)
    return kept[key]  # type: ignore[no-any-return]


def gram(atoms: Array, threads: int = 1) -> Array:
    """Return D D'. Threads fill tiles of its lower triangle, which do not depend on the number of threads.

    Raise, before it is allocated, if this machine cannot hold it.
    """
    K = atoms.shape[-2]
    if str(atoms.device) == "cpu":
        check_memory(
            atoms.itemsize * math.prod(atoms.shape[:-1]) * K,
            f"Inner products of all pairs of {K} atoms, which sparse codes are computed from,",
            "Use fewer atoms, for SRC fewer training samples. CRCClassifier does without them.",
        )
    if K < GRAM_THREADS or atoms.ndim > 2 or not isinstance(atoms, np.ndarray):
        return atoms @ atoms.mT
    G = np.empty((K, K), dtype=atoms.dtype)
    tiles = [slice(i, i + -(-K // 4)) for i in range(0, K, -(-K // 4))]

    def fill(pair: tuple[slice, slice]) -> None:
        rows, columns = pair
        tile = atoms[rows] @ atoms[columns].T
        G[rows, columns], G[columns, rows] = tile, tile.T

    # Tiles off the diagonal come first: BLAS needs half the time for a product with the transpose.
    pairs = [(rows, columns) for i, rows in enumerate(tiles) for columns in tiles[:i]]
    map_in_threads(fill, pairs + [(rows, rows) for rows in tiles], threads)
    return G


class Ridge(NamedTuple):
    """Ridge codes, argmin |x - s D|^2 + alpha |s|^2. `name` is the name of the weight in messages."""

    alpha: float
    name: str = "alpha"

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any]
    ) -> Coder:
        known: tuple[Any, Any] = kept.get("ridge", (None, None))  # for the last settings only
        if known[0] != self:
            atoms = atoms if samples.where is None else samples.to_device(atoms)
            known = kept["ridge"] = self, RidgeCoder(atoms, self.alpha, self.name)
        return known[1]  # type: ignore[no-any-return]


class RidgeCoder:
    """Code samples by ridge regression, argmin |x - s D|^2 + alpha |s|^2, with one product.

    With the atoms D as rows, s = x D' (D D' + alpha I)^-1 = x (D'D + alpha I)^-1 D'. The smaller of the two
    matrices is factorised once. `name` is the name of the weight in messages.
    """

    solver, tol = "ridge", None

    def __init__(self, atoms: Array, alpha: float, name: str = "alpha") -> None:
        self.atoms = to_host(atoms)  # on the host: it is kept, and may be used without the device
        (K, r), xp = atoms.shape, namespace(atoms)
        D = xp.astype(atoms, xp.float64, copy=False)
        rows = D if r < K else D.T
        solved = solve_shifted(rows, rows.T @ rows, alpha, name)
        self._projection = np.ascontiguousarray(solved.T if r < K else solved, dtype=self.atoms.dtype)

    def __call__(self, X: Array, sq_norms: Array, start: None = None) -> tuple[Array, Array, Array, Array]:
        """Return codes, and zeros for gaps and iterations, and True."""
        n = len(X)
        return product(X, self._projection), np.zeros(n), np.zeros(n, np.int64), np.ones(n, dtype=bool)


def solve_shifted(rows: Array, matrix: Array, alpha: float, name: str) -> Array:
    """Return rows (matrix + alpha I)^-1, on the host; `matrix` is overwritten. Messages name alpha `name`."""
    try:
        factor = cholesky(add_to_diagonal(matrix, as_array([[alpha]], rows, rows.dtype)))
        solved = to_host(cholesky_solve(factor, namespace(rows).asarray(rows, copy=True)))
        if not np.isfinite(solved).all():  # tensors raise no error
            raise np.linalg.LinAlgError("the matrix is not positive definite")
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"{name}={alpha} is so small that ridge codes over these atoms are not defined in float64 "
            f"({error}). Raise {name}."
        ) from error
    return solved


@dataclass(frozen=True, eq=False)
class Collaborative:
    """Codes of ProCRC, argmin |x - s D|^2 + alpha |s|^2 + agreement / c sum_j |s D - s_j D_j|^2.

    `labels` has the class of each atom, 0, ..., c - 1.
    """

    alpha: float
    agreement: float
    labels: Array  # (K,)

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any]
    ) -> Coder:
        if "collaborative" not in kept:
            kept["collaborative"] = CollaborativeCoder(atoms, self)
        return kept["collaborative"]  # type: ignore[no-any-return]


class CollaborativeCoder(RidgeCoder):
    """Code samples by ProCRC, with one product.

    With G = D D' and its blocks of the classes alone, sum_j |s D - s_j D_j|^2 = s ((c - 2) G + blocks) s'. So
    s = x D' (a G + b blocks + alpha I)^-1, a = 1 + agreement (c - 2) / c, b = agreement / c. With the classes'
    own E_j = alpha (b D_j D_j' + alpha I)^-1 D_j, this is s = x (a D' E + alpha I)^-1 E' (Woodbury): there is
    no matrix of all pairs of atoms.
    """

    solver = "collaborative"

    def __init__(self, atoms: Array, settings: Collaborative) -> None:
        self.atoms, alpha, labels = atoms, settings.alpha, settings.labels
        D, c = atoms.astype(np.float64, copy=False), labels.max() + 1
        a, b = 1 + settings.agreement * (c - 2) / c, settings.agreement / c
        E = np.empty_like(D)
        for own in np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1]):
            atoms_j = D[own]
            if len(own) <= D.shape[1]:
                E[own] = alpha * solve_shifted(atoms_j.T, b * (atoms_j @ atoms_j.T), alpha, "alpha").T
            else:
                E[own] = alpha * solve_shifted(atoms_j, b * (atoms_j.T @ atoms_j), alpha, "alpha")
        solved = solve_shifted(E, a * (D.T @ E), alpha, "alpha").T
        self._projection = np.ascontiguousarray(solved, dtype=atoms.dtype)


class OMP(NamedTuple):
    """Codes of orthogonal matching pursuit with at most `n_nonzero` non-zeros."""

    n_nonzero: int

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any] | None
    ) -> Coder:
        K, on_host = len(atoms), samples.where is None
        store = kept if kept is not None and 8 * K**2 <= MAX_KEPT else None
        n_products = min(self.n_nonzero, *atoms.shape) * len(samples.data)
        few = on_host and store is None and n_products <= min(FEW_PRODUCTS * K, K**2 / NUMBERS_A_PRODUCT)
        atoms = atoms if on_host else samples.to_device(atoms)
        return OMPCoder(atoms, self.n_nonzero, {} if store is None else store, threads, few=few)


class OMPCoder:
    """Code samples by orthogonal matching pursuit, in float64, on the device of the atoms.

    `kept` is as for `LassoCoder`. A `few` samples need no Gram matrix.
    """

    solver, tol = "omp", None

    def __init__(
        self, atoms: Array, n_nonzero: Any, kept: dict[Any, Any], threads: int = 1, *, few: bool = False
    ) -> None:
        xp = namespace(atoms)
        squared_norms(atoms, "The dictionary")  # raises if not finite
        self.n_nonzero, self._G = min(n_nonzero, *atoms.shape), None
        if few:
            self.atoms = atoms.astype(np.float64, copy=False)
        else:
            self.atoms, self._G = system(atoms, xp.float64, kept, threads)

    def __call__(self, X: Array, sq_norms: Array, start: None = None) -> tuple[Array, Array, Array, Array]:
        """Return codes, NaN for gaps, numbers of atoms taken, and True."""
        xp, n = namespace(X), len(X)
        if self._G is None:
            codes, n_iter = omp_of_few(self.atoms, X, sq_norms, self.n_nonzero)
        else:
            rhs = xp.astype(X, xp.float64, copy=False) @ self.atoms.T
            codes, n_iter = omp(self._G, rhs, sq_norms, self.n_nonzero)
        return codes, np.full(n, np.nan), to_host(n_iter), np.ones(n, dtype=bool)
