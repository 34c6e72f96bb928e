"""Scores of labels by objective (1) itself: for each label the lasso of sample and label together.

A sample x with the label y has the target t_y = [x, sqrt(lam) h_y, sqrt(omega m_y) h_y], h_y being one-hot and
m_y the number of atoms of the class; atoms are the rows of M = [B, sqrt(lam) W, sqrt(omega) A]. Objective (1)
of this one sample, minimised over its code,

    f_y = min_s |t_y - s M|^2 + 2 alpha |s|_1,

says how well the atoms explain sample and label together. Only M t_y' and |t_y|^2 depend on the label: one Gram
matrix serves all labels, and the code of x alone is where the code with each of them starts.

To first order in the weights, the label with the least f_y is the paper's, that with the largest (s W)_y: with
lam = tau lam' and omega = tau omega', the minimiser at tau = 0 is the code s of x alone, and there, by the
envelope theorem,

    d f_y / d tau = lam' |h_y - s W|^2 + omega' |sqrt(m_y) h_y - s A|^2
                  = lam' (1 - 2 (s W)_y + |s W|^2) + omega' (m_y - 2 sqrt(m_y) (s A)_y + |s A|^2).

For omega' = 0 the term (s W)_y is all that depends on y. Larger weights let the code move towards a label
before the label is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from ledl.arrays import Array, as_array, is_numpy, namespace, to_host
from ledl.coding import BatchedLassoCoder, chunk_size, gram
from ledl.solvers.lasso import lasso, reachable
from ledl.solvers.ledl import code_scale

# Relative gaps below this are lost in the rounding of float64.
SMALLEST_TOL = 1e-13

# Correlations (n, K) and squared norms (n,) of targets, and codes to start from, to codes and which are done.
Solver: TypeAlias = Callable[[Array, Array, Array], tuple[Array, Array]]


class WithLabel(NamedTuple):
    """Samples with one and the same label: -f_y is ``base`` and what each atom adds to it."""

    base: Array  # (n,): -|t_y|^2
    gains: Array  # (n, K): s_k <m_k, 2 t_y - s M> - 2 alpha |s_k|
    converged: Array  # (n,), on the host

    @property
    def scores(self) -> Array:
        return self.base + namespace(self.gains).sum(self.gains, axis=-1)


class JointScorer:
    """Atoms made ready to score labels.

    Parameters
    ----------
    B : (K, r)
    W, A : (K, c)
        A as `ledl.solvers.ledl` reduces it.
    atom_labels : (K,)
        The class of each atom, 0, ..., c - 1.
    lam, omega, alpha : float
        The weights of (1), the last one that of the l1 norm. The first two are not both zero: there would be
        nothing to tell labels apart by.
    tol : float
        Of the gaps, relative to the half of lam + omega m_y, the squared norm of a label's part of the target
        (the smallest). Scores of labels differ by what that part costs, however large the sample is, so it is
        what their error must be small beside: a score is below -f_y by at most twice the gap, and never above.
    threads : int
        For the Gram matrix.
    """

    def __init__(
        self,
        B: Array,
        W: Array,
        A: Array,
        atom_labels: Array,
        *,
        lam: float,
        omega: float,
        alpha: float,
        tol: float,
        threads: int = 1,
    ) -> None:
        scale = code_scale(np.bincount(atom_labels, minlength=W.shape[1]))
        parts = [np.asarray(part, dtype=np.float64) for part in (B, W, A)]
        self._B, (W, A) = parts[0], parts[1:]
        self._M = np.concatenate([self._B, lam**0.5 * W, omega**0.5 * A], axis=1)
        self._G = gram(self._M, threads)
        # What the label adds to correlations, (c, K), and to squared norms, (c,).
        self._label_rhs = (lam * W + omega * scale * A).T
        self._label_squares = lam + omega * scale**2
        self._alpha, self._tol = alpha, tol

    def __call__(self, codes: Array, X: Array, sq_norms: Array) -> tuple[Array, int]:
        """Scores (n, c) of samples with these codes, coordinates and squared norms; how many missed their gap.

        A sample of zeros, which tells nothing about labels, has zero scores.
        """
        found = [(label.scores, label.converged) for label in self.by_label(codes, X, sq_norms)]
        scores, converged = zip(*found, strict=True)
        return namespace(codes).stack(scores, axis=-1), int(np.count_nonzero(~np.stack(converged)))

    def by_label(self, codes: Array, X: Array, sq_norms: Array) -> Iterator[WithLabel]:
        """The samples with each label in turn; as many labels are worked on at once as memory is for."""
        xp = namespace(codes)
        start, X = (xp.astype(x, xp.float64, copy=False) for x in (codes, X))
        B, G, label_rhs = (as_array(x, X, xp.float64) for x in (self._B, self._G, self._label_rhs))
        (n, _), c = X.shape, len(self._label_squares)
        rhs, present = X @ B.T, xp.astype(sq_norms > 0, xp.float64)
        largest = float(xp.max(sq_norms)) + self._label_squares.max()
        tol = max(reachable(self._tol, codes) * self._label_squares.min() / largest, SMALLEST_TOL)
        solve = self._solver(X, tol)
        at_once = max(1, chunk_size(G, self._M.shape[1], n * c, 1) // n)
        for first in range(0, c, at_once):
            labels = range(first, min(first + at_once, c))
            b = xp.concat([rhs + label_rhs[label] for label in labels])
            squares = xp.concat([sq_norms + self._label_squares[label] for label in labels])
            S, converged = solve(b, squares, xp.concat([start] * len(labels)))
            gains = S * (2 * b - S @ G) - 2 * self._alpha * xp.abs(S)
            for i in range(len(labels)):
                rows = slice(i * n, (i + 1) * n)
                yield WithLabel(-squares[rows] * present, gains[rows] * present[:, None], converged[rows])

    def _solver(self, like: Array, tol: float) -> Solver:
        """Exact steps on the host, ADMM where tensors lie."""
        if is_numpy(like):

            def solve(rhs: Array, squares: Array, start: Array) -> tuple[Array, Array]:
                codes, info = lasso(self._G, rhs, squares, self._alpha, tol, start=start)
                return codes, info.converged

            return solve
        coder = BatchedLassoCoder(as_array(self._M, like), alpha=self._alpha, tol=tol)

        def solve_batch(rhs: Array, squares: Array, start: Array) -> tuple[Array, Array]:
            codes, _, _, converged = coder.solve(rhs, squares, start)
            return codes, to_host(converged)

        return solve_batch
