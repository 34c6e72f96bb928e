"""A dictionary made ready to code samples: Gram matrix, precision, and the solver that suits both."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ledl.arrays import (
    Array,
    add_to_diagonal,
    as_array,
    cholesky,
    cholesky_solve,
    free_memory,
    is_numpy,
    namespace,
    product,
    put_samples,
    take_samples,
    to_host,
)
from ledl.objective import duality_gap
from ledl.parallel import map_in_threads
from ledl.solvers import compiled
from ledl.solvers.batched import batched_lasso
from ledl.solvers.lasso import LassoInfo, lasso
from ledl.solvers.omp import omp
from ledl.solvers.proximal import find_penalty
from ledl.subspace import squared_norms

# From this tolerance on, products are made in float32: their rounding is small beside it.
SINGLE_PRECISION_TOL = 1e-4
# Squared norms that float32 can hold, with room for products of them.
SINGLE_PRECISION_RANGE = 1e-24, 1e24
# Samples that "auto" tries; the rounds, and the atoms for each further one, in which exact steps must end for
# it to take them: about as long as ADMM takes. Fewer samples than `FEW` would not pay for ADMM's inverse.
TRIED, ROUNDS, ATOMS_A_ROUND, FEW = 4, 64, 6, 32
# Codes are not dense where the largest alpha, at which they are zero, is less than so many times alpha.
DENSE = 64
# Iterations after which "auto" leaves samples that ADMM has not finished to exact steps.
ADMM_ROUNDS = 1000
# Fewer atoms than this have their Gram matrix sooner than threads are started.
GRAM_THREADS = 512
# Numbers in the codes, or the samples, of a chunk: 2 MB in float64, which a core's cache can nearly hold; but
# at least so many samples, or BLAS would spend its time on packing the atoms.
CHUNK, CHUNK_ROWS = 2**18, 256
# Chunks a thread, so that none waits long for another.
CHUNKS_A_THREAD = 4
# The same on a device: enough to fill it. Arrays of that size which the batched lasso needs, in float64.
DEVICE_CHUNK, DEVICE_ARRAYS = 2**28, 16


class LassoCoder:
    """Lasso codes over a dictionary.

    Parameters
    ----------
    atoms : (K, r)
    pilots : (m, r)
        A few of the samples that are to be coded: they choose the solver.
    sq_norms : (m,)
        Their squared norms.
    n_samples : int
        How many are to be coded.
    threads : int
        For the Gram matrix.
    """

    def __init__(
        self,
        atoms: Array,
        pilots: Array,
        sq_norms: Array,
        n_samples: int,
        *,
        alpha: float,
        tol: float,
        solver: str = "auto",
        max_iter: int = 10_000,
        positive: bool = False,
        threads: int = 1,
    ) -> None:
        self.atoms, self._threads = atoms, threads
        self.alpha, self.tol, self.max_iter, self.positive = alpha, tol, max_iter, positive
        self._systems: dict[Any, tuple[Array, Array]] = {}
        self._atom_squares = squared_norms(atoms, "The dictionary")
        self._auto = solver == "auto"
        self.solver = "active_set" if self._auto else solver
        if self._auto and n_samples >= FEW and len(atoms) > ROUNDS:
            self.solver = self._choose(pilots, sq_norms)
        self._options: dict[str, Any] = {}
        if self.solver == "admm":
            G, rhs = self._products(pilots, np.float64)
            self._options["penalty"] = find_penalty(G, rhs, alpha, positive)

    def __call__(
        self, X: Array, sq_norms: Array, start: Array | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """Codes, gaps, iterations, and whether the gaps are small enough."""
        # With "auto", ADMM in float32 does the first part of the work and exact steps finish it.
        in_parts = self._auto and self.solver == "admm"
        tol = max(self.tol, SINGLE_PRECISION_TOL) if in_parts else self.tol
        most = min(self.max_iter, ADMM_ROUNDS) if in_parts else self.max_iter
        dtype = self._precision(sq_norms, tol)
        codes, info = self._solve(X, sq_norms, dtype, tol, self.solver, most, start, **self._options)
        if dtype == np.float32:
            self._certify(codes, info.gap, X, sq_norms, tol)
        converged = info.gap <= self.tol * sq_norms / 2
        # What failed only by the rounding of float32 is done again in float64.
        late = ~converged & (in_parts | ((info.n_iter < most) & (dtype == np.float32)))
        left = self.max_iter - int(np.max(info.n_iter[late], initial=0))
        if not late.any() or left <= 0:
            return codes, info.gap, info.n_iter, converged
        solver = "active_set" if self._auto else self.solver
        again, last = self._solve(X[late], sq_norms[late], np.float64, self.tol, solver, left, codes[late])
        codes = codes.astype(X.dtype, copy=False)
        codes[late], info.gap[late], converged[late] = again, last.gap, last.converged
        info.n_iter[late] += last.n_iter
        return codes, info.gap, info.n_iter, converged

    def _certify(self, codes: Array, gap: Array, X: Array, sq_norms: Array, tol: float) -> None:
        """The gap itself, in float64, where the estimate of what float32 does to it is too large."""
        unsure = np.flatnonzero(gap > tol * sq_norms / 2)
        if unsure.size:
            S, (G, rhs) = codes[unsure].astype(np.float64), self._products(X[unsure], np.float64)
            gap[unsure] = duality_gap(S, S @ G, rhs, sq_norms[unsure], self.alpha, self.positive)

    def _choose(self, pilots: Array, sq_norms: Array) -> str:
        """Exact steps, unless they need many rounds.

        They do where codes have nearly as many non-zeros as there are independent atoms: every atom that enters
        then drives another out. That takes a small alpha, so there is not always a need to try.
        """
        few = slice(None, None, max(1, len(pilots) // TRIED))
        pilots, sq_norms = pilots[few], sq_norms[few]
        dtype = self._precision(sq_norms, self.tol)
        _, rhs = self._products(pilots, dtype)
        if self.alpha * DENSE > np.max(np.abs(rhs)):
            return "active_set"
        rounds = max(ROUNDS, len(self.atoms) // ATOMS_A_ROUND)
        _, info = self._solve(pilots, sq_norms, dtype, self.tol, "active_set", rounds, None)
        return "active_set" if np.median(info.n_iter) < rounds else "admm"

    def _precision(self, sq_norms: Array, tol: float) -> Any:
        """float32 if the tolerance allows it and its range holds all."""
        if tol < SINGLE_PRECISION_TOL:
            return np.float64
        low, high = SINGLE_PRECISION_RANGE
        squares = np.concatenate([sq_norms, self._atom_squares])
        return np.float32 if np.all((squares == 0) | ((squares > low) & (squares < high))) else np.float64

    def _solve(
        self,
        X: Array,
        sq_norms: Array,
        dtype: Any,
        tol: float,
        solver: str,
        max_iter: int,
        start: Array | None,
        **options: Any,
    ) -> tuple[Array, LassoInfo]:
        options |= {"solver": solver, "max_iter": max_iter, "positive": self.positive, "start": start}
        return lasso(*self._products(X, dtype), sq_norms, self.alpha, tol, **options)

    def _products(self, X: Array, dtype: Any) -> tuple[Array, Array]:
        """Gram matrix and correlations."""
        if dtype not in self._systems:
            atoms = self.atoms.astype(dtype, copy=False)
            self._systems[dtype] = atoms, gram(atoms, self._threads)
        atoms, G = self._systems[dtype]
        X = np.ascontiguousarray(X, dtype=dtype)
        return G, X @ atoms.T


class BatchedLassoCoder:
    """Lasso codes of all samples at once, by ADMM where the tensors lie; leading axes are problems.

    First in float32 as far as that goes, then in float64 from there; with "auto" what is left over is finished
    by exact steps on the host.

    Parameters
    ----------
    atoms : (..., K, r)
    alpha : float or (..., 1, 1)
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
    ) -> None:
        xp = namespace(atoms)
        self.atoms, self.alpha, self.tol = atoms, alpha, tol
        self.max_iter, self.positive, self.solver = max_iter, positive, "admm"
        self._exact = solver == "auto" and compiled.find("active_set", np.empty(0)) is not None
        D = xp.astype(atoms, xp.float64, copy=False)
        squared_norms(xp.reshape(D, (-1, D.shape[-1])), "The dictionary")  # refuses what is not finite
        self._G = D @ D.mT

    def __call__(self, X: Array, sq_norms: Array, start: Array | None = None) -> tuple[Array, ...]:
        """Codes, gaps, iterations, and whether the gaps are small enough; all but the codes on the host."""
        xp = namespace(X)
        X, D = (xp.astype(x, xp.float64, copy=False) for x in (X, self.atoms))
        return self.solve(X @ D.mT, sq_norms, start)

    def solve(self, rhs: Array, sq_norms: Array, start: Array | None = None) -> tuple[Array, ...]:
        """The same for samples with the correlations `rhs` (..., n, K), in float64."""
        xp = namespace(rhs)
        alpha = xp.broadcast_to(as_array(self.alpha, rhs, xp.float64), (*rhs.shape[:-2], 1, 1))
        codes = xp.zeros_like(rhs) if start is None else xp.astype(as_array(start, rhs), xp.float64) + 0
        gap = duality_gap(codes, codes @ self._G, rhs, sq_norms, alpha[..., 0], self.positive)
        n_iter = xp.zeros(gap.shape, dtype=xp.int64, device=gap.device)
        for dtype, tol in self._stages(sq_norms):
            late = _late_first(gap > tol * sq_norms / 2)
            left = self._rounds - int(xp.max(n_iter))
            if late.shape[-1] and left > 0:
                S, again, steps = self._solve(late, dtype, tol, codes, rhs, sq_norms, alpha, left)
                old, before = take_samples(codes, late), take_samples(gap, late)
                # Where alpha is too small for the arithmetic, steps give NaN.
                better = again < before
                S, again = xp.where(better[..., None], S, old), xp.where(better, again, before)
                for out, values in ((codes, S), (gap, again), (n_iter, steps + take_samples(n_iter, late))):
                    put_samples(out, late, values)
        if self._exact:
            self._finish(codes, gap, n_iter, rhs, sq_norms, alpha)
        gap, n_iter, squares = (to_host(x) for x in (gap, n_iter, sq_norms))
        return codes, gap, n_iter, gap <= self.tol * squares / 2

    @property
    def _rounds(self) -> int:
        """Steps of ADMM at most; some are left for exact ones."""
        return min(-(-self.max_iter // 2), ADMM_ROUNDS) if self._exact else self.max_iter

    def _solve(
        self,
        late: Array,
        dtype: Any,
        tol: float,
        codes: Array,
        rhs: Array,
        sq_norms: Array,
        alpha: Array,
        max_iter: int,
    ) -> tuple[Array, Array, Array]:
        """Codes, gaps and iterations of some of the samples, by steps in that type; the gaps are in float64."""
        xp = namespace(rhs)
        codes, rhs, sq_norms = (take_samples(x, late) for x in (codes, rhs, sq_norms))
        G, b, squares, weight, start = (xp.astype(x, dtype) for x in (self._G, rhs, sq_norms, alpha, codes))
        options: dict[str, Any] = {"start": start, "max_iter": max_iter, "positive": self.positive}
        S, _, steps = batched_lasso(G, b, squares, weight, tol, **options)
        S = xp.astype(S, xp.float64, copy=False)
        return S, duality_gap(S, S @ self._G, rhs, sq_norms, alpha[..., 0], self.positive), steps

    def _stages(self, sq_norms: Array) -> list[tuple[Any, float]]:
        """Types to work in, and the tolerance of each."""
        xp = namespace(sq_norms)
        low, high = SINGLE_PRECISION_RANGE
        squares = [sq_norms, xp.linalg.diagonal(self._G)]
        fits = all(bool(xp.all((x == 0) | ((x > low) & (x < high)))) for x in squares)
        first = [(xp.float32, max(self.tol, SINGLE_PRECISION_TOL))] if fits else []
        return [*first, (xp.float64, self.tol)]

    def _finish(
        self, codes: Array, gap: Array, n_iter: Array, rhs: Array, sq_norms: Array, alpha: Array
    ) -> None:
        """Exact steps on the host for samples that are not done; in place."""
        late = to_host(gap > self.tol * sq_norms / 2)
        for problem in sorted({tuple(index) for index in np.argwhere(late)[:, :-1].tolist()}):
            rows = as_array(np.flatnonzero(late[problem]), n_iter)
            S, b, squares = (to_host(x[problem][rows]) for x in (codes, rhs, sq_norms))
            left = self.max_iter - int(n_iter[problem].max())
            if left > 0:
                G, weight = to_host(self._G[problem]), float(alpha[problem][0, 0])
                options = {"max_iter": left, "positive": self.positive, "start": S}
                S, info = lasso(G, b, squares, weight, self.tol, **options)
                codes[problem][rows], gap[problem][rows] = as_array(S, codes), as_array(info.gap, gap)
                n_iter[problem][rows] += as_array(info.n_iter, n_iter)


def _late_first(late: Array) -> Array:
    """Indices of late samples, (..., m), as many in each problem as in the one that has most of them."""
    xp = namespace(late)
    most = int(xp.max(xp.sum(xp.astype(late, xp.int64), axis=-1)))
    return xp.argsort(xp.astype(~late, xp.int64), axis=-1, stable=True)[..., :most]


class RidgeCoder:
    """Codes of ridge regression, argmin |x - s D|^2 + alpha |s|^2, by one product a sample.

    With the atoms D as rows, s = x D' (D D' + alpha I)^-1 = x (D'D + alpha I)^-1 D': one factorisation, of the
    smaller of the two matrices. Messages call the weight `name`.
    """

    solver, tol = "ridge", None

    def __init__(self, atoms: Array, alpha: float, name: str = "alpha") -> None:
        self.atoms = to_host(atoms)  # it is kept, and must be of use where there is no such device
        K, r = atoms.shape
        xp, dtype = namespace(atoms), atoms.dtype
        atoms = xp.astype(atoms, xp.float64, copy=False)
        G = atoms.T @ atoms if r < K else atoms @ atoms.T
        rows = xp.asarray(atoms if r < K else atoms.T, copy=True)
        try:
            factor = cholesky(add_to_diagonal(G, as_array([[alpha]], G, G.dtype)))
            solved = to_host(cholesky_solve(factor, rows))
            if not np.isfinite(solved).all():  # which is how tensors tell
                raise np.linalg.LinAlgError("the matrix is not positive definite")
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"{name}={alpha} is so small that ridge codes over these atoms are not defined in float64 "
                f"({error}). Raise {name}."
            ) from error
        solved = np.ascontiguousarray(solved.T if r < K else solved)
        self._projection = solved.astype(to_host(xp.empty(0, dtype=dtype)).dtype, copy=False)

    def __call__(self, X: Array, sq_norms: Array, start: None = None) -> tuple[Array, Array, Array, Array]:
        """Codes, gaps of none, iterations of which there are none, and True."""
        n = len(X)
        return product(X, self._projection), np.zeros(n), np.zeros(n, np.int64), np.ones(n, dtype=bool)


class OMPCoder:
    """Codes of orthogonal matching pursuit, in float64 whatever the data, where the atoms lie."""

    solver, tol = "omp", None

    def __init__(self, atoms: Array, n_nonzero: Any, threads: int = 1) -> None:
        xp = namespace(atoms)
        squared_norms(atoms, "The dictionary")  # refuses what is not finite
        self.atoms = xp.astype(atoms, xp.float64, copy=False)
        self.n_nonzero = min(n_nonzero, *atoms.shape)
        self._G = gram(self.atoms, threads) if is_numpy(atoms) else self.atoms @ self.atoms.T

    def __call__(self, X: Array, sq_norms: Array, start: None = None) -> tuple[Array, Array, Array, Array]:
        """Codes, gaps that are not known, atoms taken, and True."""
        xp = namespace(X)
        codes, n_iter = omp(
            self._G, xp.astype(X, xp.float64, copy=False) @ self.atoms.T, sq_norms, self.n_nonzero
        )
        return codes, np.full(len(X), np.nan), to_host(n_iter), np.ones(len(X), dtype=bool)


class Coder(Protocol):
    """A dictionary made ready: samples in its coordinates, and their squared norms, to codes."""

    atoms: Array
    solver: str

    @property
    def tol(self) -> float | None: ...

    def __call__(self, X: Array, sq_norms: Array, start: Any = None) -> tuple[Array, Array, Array, Array]: ...


def chunk_size(atoms: Array, n_features: int, n_samples: int, threads: int) -> int:
    """Samples to be coded at once: what a core's cache, or a device's memory, holds of them and of codes."""
    widest: int = max(atoms.shape[-2], n_features)
    if not is_numpy(atoms):
        most = free_memory(atoms) // (2 * DEVICE_ARRAYS * 8)
        return max(min(DEVICE_CHUNK, most) // widest, CHUNK_ROWS)
    rows = max(CHUNK // widest, CHUNK_ROWS)
    # As many chunks as threads, or several times that, lest some wait for others.
    rounds = max(
        -(-n_samples // (rows * threads)), min(n_samples // (CHUNK_ROWS * threads), CHUNKS_A_THREAD), 1
    )
    return -(-n_samples // (rounds * threads))


def gram(atoms: Array, threads: int = 1) -> Array:
    """D D', the tiles of its lower triangle in threads; the same tiles, and so numbers, for any threads."""
    K = len(atoms)
    if K < GRAM_THREADS:
        return atoms @ atoms.T
    G = np.empty((K, K), dtype=atoms.dtype)
    tiles = [slice(i, i + -(-K // 4)) for i in range(0, K, -(-K // 4))]

    def fill(pair: tuple[slice, slice]) -> None:
        rows, columns = pair
        tile = atoms[rows] @ atoms[columns].T
        G[rows, columns], G[columns, rows] = tile, tile.T

    # Those off the diagonal first: BLAS needs half the time for a product with the transpose.
    pairs = [(rows, columns) for i, rows in enumerate(tiles) for columns in tiles[:i]]
    map_in_threads(fill, pairs + [(rows, rows) for rows in tiles], threads)
    return G
