"""Label embedded dictionary learning: the paper's Algorithm 3 in its exact reduced form.

Samples and atoms are rows here and columns in the paper: every matrix is the transpose of the
paper's. LEDL minimises

    |X - S B|^2 + lam |H - S W|^2 + omega |Q - S A|^2 + 2 epsilon |S|_1                           (1)

over codes S and over B, W and A with rows of norm 1. `ledl.subspace` says why X needs few columns, and A
needs c: with U the (c, K) atom-ownership matrix, Q = H U, and U = diag(sqrt(m_j)) P with P P' = I, where m_j
is the number of atoms of class j. A is therefore kept as the (K, c) matrix A P' with target
H diag(sqrt(m_j)) (`reduce_code_transform`); the K x K matrix is formed on demand (`expand_code_transform`).
The weights go into the arrays: with

    T = [X, sqrt(lam) H, sqrt(omega) H diag(sqrt(m_j))]   and   M = [B, sqrt(lam) W, sqrt(omega) A]

(1) is |T - S M|^2 + 2 epsilon |S|_1 over atoms whose three parts have norms 1, sqrt(lam) and
sqrt(omega). One iteration, `ADMM.step`, is

    C = argmin |T - C M|^2 + 2 <L, C - Z> + rho |C - Z|^2                    `CodeStep.codes`
    Z = soft(C + L / rho, epsilon / rho)
    L = L + theta (C - Z), and theta shrinks                                 `DualStep`
    M = a Gauss-Seidel sweep over atoms, from C'C and C'(T - C M)            `CodeStep`, `ledl.solvers.atoms`

Arrays are (..., n, r): leading axes are problems, and weights are (..., 1, 1).

A sample may have a weight of its own, which multiplies its terms in (1) and in the augmented objective: it
counts as so many copies. Copies have the same codes, since the codes of a sample depend on no other sample, so
the first three lines stay as they are. Sums over samples are weighted: C'C, C'(T - C M), and all terms that are
recorded (`Block.weigh`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ledl.arrays import (
    Array,
    Cholesky,
    add_product,
    add_to_diagonal,
    as_array,
    cholesky,
    cholesky_solve,
    class_sums,
    inner,
    namespace,
    take_rows,
    to_host,
)
from ledl.samples import Block, Blocks
from ledl.solvers import compiled
from ledl.solvers.atoms import Equations, Factors, Sums, factors_are_cheaper, sweep
from ledl.solvers.iteration import Iterations, Record, iterate
from ledl.solvers.lasso import soft_threshold

# (1) at Z costs a product with the data, so it is recorded only every so many iterations.
OBJECTIVE_EVERY = 10

# Numbers recorded of an iteration: the augmented objective, its terms, residuals, and (1) at Z or NaN.
RECORDED = (
    "augmented_objective",
    "data_fit",
    "label_fit",
    "code_fit",
    "penalty",
    "multiplier",
    "coupling",
    "primal_residual",
    "dual_residual",
    "nonzero_share",
    "objective",
)


class Atoms(NamedTuple):
    """The rows [b_k, w_k, a_k], side by side because one sweep updates them."""

    M: Array
    n_classes: int

    @property
    def B(self) -> Array:
        return self.M[..., : -2 * self.n_classes]

    @property
    def W(self) -> Array:
        return self.M[..., -2 * self.n_classes : -self.n_classes]

    @property
    def A(self) -> Array:
        return self.M[..., -self.n_classes :]


class DualStep(NamedTuple):
    """The step size theta, which shrinks by `decay` every iteration, down to `minimum`."""

    first: float = 0.5
    decay: float = 0.99
    minimum: float = 1e-4

    def at(self, iteration: int) -> float:
        return max(self.first * self.decay**iteration, self.minimum)


class Problem(NamedTuple):
    """The constants of all iterations, apart from the samples."""

    bounds: tuple[int, int, int, int]  # first columns of the parts of T and M, and q
    epsilon: Array  # (..., 1, 1)
    rho: Array  # (..., 1, 1)
    roots: Array  # (..., 1, q): square roots of the weights of the columns of T
    label_targets: Array  # (..., c, 2c): for each class its row of T after X

    def targets(self, block: Block, problems: tuple[int, ...]) -> Array:
        """Return T of a block, with the leading axes `problems`."""
        xp = namespace(block.X)
        labels = take_rows(self.label_targets, block.labels)
        parts = [xp.broadcast_to(part, (*problems, *part.shape[-2:])) for part in (block.X, labels)]
        return xp.concat(parts, axis=-1)

    def label_sums(self, by_class: Array) -> Array:
        """Return C'T after X, (..., K, 2c), given sums of codes by class, (..., c, K).

        It is a product with `label_targets`, two diagonal matrices side by side: the zeros are left out.
        """
        xp, c = namespace(by_class), by_class.shape[-2]
        diagonals = (xp.linalg.diagonal(self.label_targets, offset=j)[..., None, :] for j in (0, c))
        return xp.concat([by_class.mT * diagonal for diagonal in diagonals], axis=-1)

    def label_rows(self, WA: Array) -> Array:
        """Return the part of T M' that the labels make, a row for each class, (..., c, K), given M after B."""
        xp, c = namespace(WA), self.label_targets.shape[-2]
        first, second = (xp.linalg.diagonal(self.label_targets, offset=j)[..., None] for j in (0, c))
        return first * WA[..., :c].mT + second * WA[..., c:].mT


def solve(
    blocks: Blocks,
    start: Atoms,
    *,
    code_scale: Array,
    lam: Array,
    omega: Array,
    epsilon: Array,
    rho: Array = 1.0,
    dual_step: DualStep | None = None,
    max_iter: int = 100,
    tol: float = 0.0,
    callback: Callable[[int, Record, ADMM], bool] | None = None,
    past: tuple[Array, Sequence[Record]] | None = None,
) -> Iterations:
    """Run Algorithm 3 from given atoms; the codes stay in `blocks`.

    Parameters
    ----------
    blocks : blocks of samples
        In the coordinates of the subspace, with labels 0, ..., c - 1.
    start : Atoms
        B, W and A with rows of norm 1.
    code_scale : (..., c)
        sqrt(m_j), the scale of the labels in the target of A.
    lam, omega, epsilon, rho : float or (..., 1, 1)
        The weights; leading axes are problems.
    callback : callable (iteration, record, solver) -> bool
        Called after every iteration with the `ADMM`, whose state is ``M`` and whose ``atoms()`` returns the
        current atoms. True stops.
    past : (M, records)
        State and records of earlier iterations, to continue from. The blocks must have the codes that belong
        to them.

    Returns
    -------
    Iterations
        Its ``state`` is the learnt `Atoms`; its ``history`` has an array for each name of `RECORDED`.
    """
    problem = make_problem(blocks.problems, start, code_scale, lam, omega, epsilon, rho)
    M, records = (start.M * problem.roots, []) if past is None else past
    codes = tuple(M.shape[:-1]) if past is None else None
    n, total, squares = blocks.map_sum(partial(begin, problem, codes))
    solver = ADMM(blocks, problem, n, total, squares, dual_step or DualStep(), M)
    run = iterate(
        ADMM.step,
        solver,
        watch="augmented_objective",
        problems=tuple(M.shape[:-2]),
        max_iter=max_iter,
        tol=tol,
        callback=callback,
        past=records,
    )
    fit, l1 = blocks.map_sum(partial(fit_of_codes, problem, solver.M))
    last = (run.n_iter - 1, *np.indices(run.n_iter.shape, sparse=True))
    run.history["objective"][last] = to_host(
        fit[..., 0] + fit[..., 1] + fit[..., 2] + 2 * problem.epsilon[..., 0, 0] * l1
    )
    return run._replace(state=solver.atoms())


@dataclass
class ADMM:
    """Algorithm 3 while it runs: its state is ``M``, and the codes in the blocks; `step` changes both."""

    blocks: Blocks
    problem: Problem
    n: int  # samples
    total: Array  # (...): sum of their weights
    squares: Array  # (..., 3): |T|^2 by parts
    dual_step: DualStep
    M: Array  # (..., K, q): the weighted atoms

    def atoms(self) -> Atoms:
        """Return B, W and A with rows of norm 1."""
        return Atoms(self.M / self.problem.roots, self.problem.label_targets.shape[-2])

    def step(self, iteration: int, active: Array) -> tuple[ADMM, Record]:
        """Take one iteration for the `active` problems; return this object, and their record."""
        problem, M, squares, total, some = self.problem, self.M, self.squares, self.total, None
        if not active.all():
            some = ActiveProblems(active, M)
            problem = Problem(problem.bounds, *map(some.pick, problem[1:]))
            M, squares, total = some.pick(M), some.pick(squares, 1), some.pick(total, 0)
        at_Z = (iteration + 1) % OBJECTIVE_EVERY == 0
        theta = self.dual_step.at(iteration)
        code_step = CodeStep(problem, M, factorise(M, problem.rho), theta, some, at_Z, self.n)
        equations, fit, scalars, fit_at_Z = self.blocks.map_sum(code_step)
        xp, (K, q), bounds = namespace(M), M.shape[-2:], problem.bounds
        if q >= K:
            # C'(T - C M), and |T - C M|^2 = |T|^2 - <C'T, M> - <C'(T - C M), M> by parts, from C'T and C'C.
            sums = equations.sums()
            S = sums.S - sums.G @ M
            both = sums.S + S
            products = [inner(both[..., i:j], M[..., i:j]) for i, j in pairwise(bounds)]
            equations, fit = Sums(sums.G, S), squares - xp.stack(products, axis=-1)
        radii = xp.stack([problem.roots[..., 0, i] for i in bounds[:-1]], axis=-1)
        M, decrease = sweep(equations, M, bounds, radii, squares**0.5)
        self.M = M if some is None else some.put(self.M, M)
        fit = fit - decrease
        epsilon, rho = problem.epsilon[..., 0, 0], problem.rho[..., 0, 0]
        l1, multiplier, gap, change, nonzeros = (scalars[..., i] for i in range(5))
        penalty = 2 * epsilon * l1
        terms = (fit[..., 0], fit[..., 1], fit[..., 2], penalty, 2 * multiplier, rho * gap)
        residuals = (gap**0.5, rho * change**0.5)
        objective = fit_at_Z[..., 0] + fit_at_Z[..., 1] + fit_at_Z[..., 2] + penalty if at_Z else l1 * np.nan
        values = (sum(terms), *terms, *residuals, nonzeros / (total * K), objective)
        return self, dict(zip(RECORDED, values, strict=True))


@dataclass(frozen=True)
class CodeStep:
    """The part of one iteration that runs on blocks of samples, wherever they are."""

    problem: Problem
    M: Array
    factor: Cholesky  # see `factorise`
    theta: float
    active: ActiveProblems | None = None  # problems that have ended keep their codes
    at_Z: bool = False
    n_samples: int | None = None  # of all blocks

    def __call__(self, block: Block) -> tuple[Block, tuple[Equations, Array, Array, Array]]:
        """Take the code step; return the block with its new codes, and sums for the rest of the iteration.

        The sums are: C'C with C'(T - C M), or with C'T if there are no more atoms than columns; |T - C M|^2 by
        parts, (..., 3), or zero with C'T; the sums of `shrink_plain`; and |T - Z M|^2 by parts, or zero. All of
        them are weighted.
        """
        part = block
        if self.active is not None:
            pick = self.active.pick
            labels = block.labels if block.labels.ndim == 1 else pick(block.labels, 1)
            weights = block.weights
            weights = weights if weights is None or weights.ndim == 1 else pick(weights, 1)
            part = Block(pick(block.X), labels, block.first, pick(block.Z), pick(block.L), weights)
        coded, C, E, scalars = self.codes(part)
        C = part.weigh(C)
        xp, problem = namespace(C), self.problem
        equations: Equations
        if E is None:  # C'H is a sum over classes; `ADMM.step` computes the rest once for all blocks
            full = part.weigh(C)
            by_class = class_sums(full, part.labels, problem.label_targets.shape[-2])
            equations = Sums(C.mT @ C, xp.concat([full.mT @ part.X, problem.label_sums(by_class)], axis=-1))
            fit = xp.zeros((*C.shape[:-2], 3), dtype=xp.float64, device=C.device)
        else:
            E = part.weigh(E)
            equations, fit = Factors(C, E), part_norms(E, problem.bounds)
            (n, K), q = C.shape[-2:], E.shape[-1]
            # Factors of one block of many would grow beyond their sums when those of the others are added.
            if not (factors_are_cheaper(n, K, q) if n == self.n_samples else n < K):
                equations = equations.sums()
        fit_at_Z = 0 * fit
        if self.at_Z:
            rest = add_product(problem.targets(part, C.shape[:-2]), coded.Z, self.M, -1.0)
            fit_at_Z = part_norms(part.weigh(rest), problem.bounds)
        if self.active is not None:
            put = self.active.put
            coded = block._replace(Z=put(block.Z, coded.Z), L=put(block.L, coded.L))
        return coded, (equations, fit, scalars, fit_at_Z)

    def codes(self, block: Block) -> tuple[Block, Array, Array, Array]:
        """Take one ADMM step on the codes of a block.

        Return the block with Z and L; C; T - C M if it is a by-product, else None; and the sums of
        `shrink_plain`.
        """
        problem, M, rho = self.problem, self.M, self.problem.rho
        K, q = M.shape[-2:]
        if q < K:
            # C = V + F M' with V = Z - L / rho and F = (T - V M) (M'M + rho I)^-1; then T - C M = rho F.
            V = block.L / -rho
            V += block.Z
            F = cholesky_solve(self.factor, add_product(problem.targets(block, V.shape[:-2]), V, M, -1.0))
            C, E = add_product(V, F, M.mT), F
            E *= rho  # in place, and without a name for arrays that are no longer used: a device may be full
        else:
            # C = (T M' + rho Z - L) (M M' + rho I)^-1; the labels' part of T M' is one row for each class.
            B, WA = M[..., : problem.bounds[1]], M[..., problem.bounds[1] :]
            pull = compiled.find("pull", M) or pull_plain
            rhs = pull(block.X @ B.mT, block.Z, block.L, rho, problem.label_rows(WA), block.labels)
            C, E = cholesky_solve(self.factor, rhs), None
            del rhs
        shrink = compiled.find("shrink", C) or shrink_plain
        if block.weights is not None:
            shrink = partial(shrink_weighted, shrink, block.weights)
        Z, L, scalars = shrink(C, block.Z, block.L, problem.epsilon, rho, self.theta)
        return block._replace(Z=Z, L=L), C, E, scalars


class ActiveProblems:
    """The problems of a batch that continue; an iteration leaves the others out."""

    def __init__(self, active: Array, like: Array) -> None:
        self._shape = active.shape
        self._where = tuple(as_array(index, like) for index in np.nonzero(active))

    def pick(self, array: Array, n_axes: int = 2) -> Array:
        """Return their part of an array with `n_axes` axes for one problem; its leading axes may broadcast."""
        own = array.shape[len(array.shape) - n_axes :]
        return namespace(array).broadcast_to(array, (*self._shape, *own))[self._where]

    def put(self, array: Array, values: Array) -> Array:
        """Write their part to an array, in place, and return it: the inverse of `pick`."""
        array[self._where] = values
        return array


def make_problem(
    problems: tuple[int, ...],
    start: Atoms,
    code_scale: Array,
    lam: Array,
    omega: Array,
    epsilon: Array,
    rho: Array,
) -> Problem:
    """Return the problem of given weights, with the leading axes of data, start and weights.

    A zero weight becomes the smallest one whose root can be squared: too small to change codes,
    while the part is still learnt, as a read-out. Raise an error if the type of the atoms cannot hold a weight.
    """
    (M, c), xp = start, namespace(start.M)
    dtype, device, q = M.dtype, M.device, M.shape[-1]
    limits, remedy = xp.finfo(dtype), "" if dtype == xp.float64 else ", or use float64"
    for name, value in (("label_weight", lam), ("code_weight", omega), ("alpha", epsilon), ("rho", rho)):
        if (largest := to_host(value).max()) > float(limits.max):
            raise ValueError(f"{name}={largest!s:.20} is infinite in {dtype}. Lower it{remedy}.")
    if (least := to_host(rho).min()) < limits.smallest_normal:
        raise ValueError(f"rho={least!s:.20} is so small that {dtype} cannot divide by it. Raise it{remedy}.")
    weights = [as_array(value, M, dtype) for value in (1.0, lam, omega, epsilon, rho)]
    one, lam, omega, epsilon, rho = (value if value.ndim else value[None, None] for value in weights)
    shapes = [tuple(array.shape[:-2]) for array in (M, lam, omega, epsilon, rho)]
    problems = np.broadcast_shapes(problems, *shapes)
    invisible = as_array(float(xp.finfo(dtype).smallest_normal) ** 0.5, M, dtype)
    roots = [
        xp.broadcast_to(xp.sqrt(xp.maximum(weight, invisible)), (*problems, 1, width))
        for weight, width in ((one, q - 2 * c), (lam, c), (omega, c))
    ]
    one_hot = xp.eye(c, dtype=dtype, device=device)
    scaled = one_hot * as_array(code_scale, M, dtype)[..., None, :]
    label_targets = xp.concat([xp.broadcast_to(one_hot, scaled.shape), scaled], axis=-1)
    label_targets = label_targets * xp.concat(roots[1:], axis=-1)
    return Problem((0, q - 2 * c, q - c, q), epsilon, rho, xp.concat(roots, axis=-1), label_targets)


def begin(
    problem: Problem, codes: tuple[int, ...] | None, block: Block
) -> tuple[Block, tuple[int, Array, Array]]:
    """Return a block with zero codes, (..., K), or with the codes it has.

    The sums are its number of samples, the sum of their weights, and |T|^2 by parts.
    """
    xp, (*_, n, _) = namespace(block.X), block.X.shape
    if codes is not None:
        *problems, K = codes
        zeros = xp.zeros((*problems, n, K), dtype=block.X.dtype, device=block.X.device)
        block = block._replace(Z=zeros, L=xp.zeros_like(zeros))
    labels, c = take_rows(problem.label_targets, block.labels), problem.label_targets.shape[-2]
    parts = map(block.weigh, (block.X, labels[..., :c], labels[..., c:]))
    squares = xp.broadcast_arrays(*(inner(part, part) for part in parts))
    total = n + 0 * squares[0]
    if block.weights is not None:
        total = 0 * squares[0] + xp.sum(xp.astype(block.weights, xp.float64), axis=-1)
    return block, (n, total, xp.stack(squares, axis=-1))


def factorise(M: Array, rho: Array) -> Cholesky:
    """Return the Cholesky factor of the code step, for all samples, in the smaller of two spaces.

    C (M M' + rho I) = T M' + rho V is a K x K system. Because
    M' (M M' + rho I)^-1 = (M'M + rho I)^-1 M', a q x q system has the same solution.
    """
    K, q = M.shape[-2:]
    gram = M.mT @ M if q < K else M @ M.mT
    try:
        return cholesky(add_to_diagonal(gram, rho))
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"rho={float(np.min(rho)):g} is so small beside the weights that the code step has no solution in "
            f"{M.dtype}: {error}. Raise rho, lower label_weight or code_weight, or use float64."
        ) from error


def pull_plain(products: Array, Z: Array, L: Array, rho: Array, label_rows: Array, labels: Array) -> Array:
    """Return products + rho Z - L + the row of each sample's class; `products` may be overwritten."""
    return products + rho * Z - L + take_rows(label_rows, labels)


def shrink_plain(
    C: Array, old: Array, L: Array, epsilon: Array, rho: Array, theta: float
) -> tuple[Array, Array, Array]:
    """Return the new Z and L, given C, and sums in float64, (..., 5); the old Z and L may be overwritten.

    The sums are |Z|_1, <L, C - Z>, |C - Z|^2, |Z - old Z|^2, and the number of non-zeros of Z.
    """
    xp = namespace(C)
    Z = soft_threshold(C + L / rho, epsilon / rho)
    gap, change = C - Z, Z - old
    L = L + theta * gap
    l1 = xp.sum(xp.abs(Z), axis=(-2, -1), dtype=xp.float64)
    nonzeros = xp.astype(xp.count_nonzero(Z, axis=(-2, -1)), xp.float64)
    return Z, L, xp.stack([l1, inner(L, gap), inner(gap, gap), inner(change, change), nonzeros], axis=-1)


def shrink_weighted(
    shrink: Callable[..., tuple[Array, Array, Array]],
    weights: Array,
    C: Array,
    old: Array,
    L: Array,
    epsilon: Array,
    rho: Array,
    theta: float,
) -> tuple[Array, Array, Array]:
    """Return the result of `shrink`, with weighted sums: every sample is a problem, and has its own sums."""
    alone = (x[..., None, :] for x in (C, old, L))
    Z, L, scalars = shrink(*alone, epsilon[..., None], rho[..., None], theta)
    sums = namespace(C).astype(weights, scalars.dtype)[..., None, :] @ scalars
    return Z[..., 0, :], L[..., 0, :], sums[..., 0, :]


def fit_of_codes(problem: Problem, M: Array, block: Block) -> tuple[Block, tuple[Array, Array]]:
    """Return the terms of (1) at Z for a block: |T - Z M|^2 by parts, (..., 3), and |Z|_1, in float64."""
    Z, xp = block.Z, namespace(block.Z)
    E = block.weigh(add_product(problem.targets(block, Z.shape[:-2]), Z, M, -1.0))
    l1 = xp.sum(xp.abs(block.weigh(block.weigh(Z))), axis=(-2, -1), dtype=xp.float64)
    return block, (part_norms(E, problem.bounds), l1)


def part_norms(E: Array, bounds: tuple[int, ...]) -> Array:
    """Return squared norms, in float64, of groups of columns: (..., n, q) -> (..., n_parts)."""
    xp = namespace(E)
    E = xp.astype(E, xp.float64, copy=False)
    # A product with ones is the fastest way to sum columns.
    by_column = xp.ones(E.shape[-2], dtype=xp.float64, device=E.device) @ (E * E)
    return xp.stack([xp.sum(by_column[..., i:j], axis=-1) for i, j in pairwise(bounds)], axis=-1)


def reduce_code_transform(A: Array, atom_classes: Array) -> Array:
    """Return A P', (K, c): the part of a K x K transform that has an effect."""
    ownership = np.diag(1 / np.sqrt(np.bincount(atom_classes)))[atom_classes]
    return A @ ownership.astype(A.dtype, copy=False)


def expand_code_transform(A: Array, atom_classes: Array) -> Array:
    """Return (A P') P: the K x K transform of a reduced one."""
    return (A / np.sqrt(np.bincount(atom_classes)).astype(A.dtype))[:, atom_classes]
