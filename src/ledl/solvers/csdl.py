"""Class-specific dictionary learning: for each class, atoms over which its own samples have sparse codes.

With X the samples of one class, blockwise coordinate descent on

    |X - S B|^2 + 2 alpha |S|_1        rows of B of norm 1                                         (1)

computes exact lasso codes S, then takes a Gauss-Seidel sweep over the atoms B. Both lower (1).

For samples of norm 1 and alpha <= 1 a dictionary that contains the samples minimises (1): by the triangle
inequality |x - s B| >= 1 - |s|_1, so that each sample costs at least 2 alpha - alpha^2, and it costs just
that with the code 1 - alpha on itself. A start there would therefore learn nothing; atoms start at random
combinations of the samples instead (`ledl.solvers.start.random_mixtures`). They are useful because they need
not end at single samples.
"""

from __future__ import annotations

import numpy as np

from ledl.arrays import Array
from ledl.solvers.atoms import Factors, sweep
from ledl.solvers.iteration import Iterations, Record, iterate
from ledl.solvers.lasso import lasso
from ledl.subspace import find_subspace

# Duality gap of a code, as a share of half the squared norm of its sample: far below any change that matters.
GAP = 1e-8


def learn_atoms(X: Array, start: Array, alpha: float, *, max_iter: int, tol: float) -> Iterations:
    """Learn atoms (K, r) of one class with samples X (n, r), from given ones in their span.

    The history of the result holds (1), ``objective``, after each iteration.
    """
    space, X = find_subspace(X.copy())
    sq_norms = np.einsum("ij,ij->i", X, X)
    norms, radii = np.sqrt(sq_norms.sum(keepdims=True)), np.ones(1)

    def step(B: Array, iteration: int, active: Array) -> tuple[Array, Record]:
        S, _ = lasso(B @ B.T, X @ B.T, sq_norms, alpha, GAP)
        E = X - S @ B
        fit = np.einsum("ij,ij->", E, E)
        B, decrease = sweep(Factors(S, E), B, (0, X.shape[1]), radii, norms)
        return B, {"objective": fit - decrease[0] + 2 * alpha * np.abs(S).sum()}

    run = iterate(step, space.reduce(start), watch="objective", max_iter=max_iter, tol=tol)
    return run._replace(state=space.expand(run.state))
