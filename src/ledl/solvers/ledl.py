"""Label embedded dictionary learning: the paper's Algorithm 3 in its exact reduced form.

Samples and atoms are rows here and columns in the paper: every matrix is the transpose of the
paper's. LEDL minimises

    |X - S B|^2 + lam |H - S W|^2 + omega |Q - S A|^2 + 2 epsilon |S|_1                           (1)

over codes S and over B, W and A with rows of norm 1. `ledl.subspace` and `ledl.targets` say why X and A
need few columns. The weights go into the arrays: with

    T = [X, sqrt(lam) H, sqrt(omega) H diag(sqrt(m_j))]   and   M = [B, sqrt(lam) W, sqrt(omega) A]

(1) is |T - S M|^2 + 2 epsilon |S|_1 over atoms whose three parts have norms 1, sqrt(lam) and
sqrt(omega). One iteration is

    C = argmin |T - C M|^2 + 2 <L, C - Z> + rho |C - Z|^2                    `code_step`
    Z = soft(C + L / rho, epsilon / rho)
    L = L + theta (C - Z), and theta shrinks
    M = a Gauss-Seidel sweep over atoms, from C'C and C'(T - C M)            `statistics`, `atom_step`

Arrays are (..., n, r): leading axes are problems, and weights are (..., 1, 1).
"""

from __future__ import annotations

from collections.abc import Callable
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
    squared_norm,
    take_rows,
    to_host,
)
from ledl.objective import part_norms
from ledl.samples import Block, Blocks, Checkpoint
from ledl.solvers import compiled
from ledl.solvers.atoms import Equations, Factors, Sums, sweep
from ledl.solvers.iteration import Iterations, Record, iterate
from ledl.solvers.proximal import soft_threshold

# (1) at Z costs a product with the data, so it is recorded only so often.
OBJECTIVE_EVERY = 10


# What is recorded of an iteration: see `describe`.
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
    def bounds(self) -> tuple[int, int, int, int]:
        """Columns where B, W and A begin, and where A ends."""
        q, c = self.M.shape[-1], self.n_classes
        return 0, q - 2 * c, q - c, q

    @property
    def B(self) -> Array:
        return self.M[..., : -2 * self.n_classes]

    @property
    def W(self) -> Array:
        return self.M[..., -2 * self.n_classes : -self.n_classes]

    @property
    def A(self) -> Array:
        return self.M[..., -self.n_classes :]

    @property
    def labels(self) -> Array:
        """[W, A], the parts whose targets are labels."""
        return self.M[..., -2 * self.n_classes :]

    @property
    def outnumber_columns(self) -> bool:
        """Whether the space of the targets is the smaller one to code in."""
        K, q = self.M.shape[-2:]
        return bool(q < K)


class Problem(NamedTuple):
    """What does not change from iteration to iteration, apart from the samples."""

    epsilon: Array  # (..., 1, 1)
    rho: Array  # (..., 1, 1)
    roots: Array  # (..., 1, q): square roots of the weights of the columns of T
    label_targets: Array  # (..., c, 2c): for each class its row of T after X

    def weigh(self, atoms: Atoms) -> Atoms:
        """M from B, W and A with rows of norm 1."""
        return atoms._replace(M=atoms.M * self.roots)

    def unweigh(self, atoms: Atoms) -> Atoms:
        """B, W and A with rows of norm 1 from M."""
        return atoms._replace(M=atoms.M / self.roots)


class DualStep(NamedTuple):
    """theta: shrinks by `decay` every iteration, down to `minimum`."""

    first: float = 0.5
    decay: float = 0.99
    minimum: float = 1e-4

    def at(self, iteration: int) -> float:
        return max(self.first * self.decay**iteration, self.minimum)


class Coder(NamedTuple):
    """What the code step of one iteration shares among all blocks of samples."""

    problem: Problem
    atoms: Atoms
    theta: float
    factor: Cholesky  # of (..., q, q) or (..., K, K): see `make_coder`


class Codes(NamedTuple):
    """What a code step gives for a block; `scalars` as in `Statistics`."""

    C: Array
    Z: Array
    L: Array
    scalars: Array
    E: Array  # T - C M where it is a by-product, else None


class Statistics(NamedTuple):
    """What a block hands back: sums over its samples."""

    equations: Equations  # C'C, and C'(T - C M) or C'T (`target_sums`)
    fit: Array  # (..., 3): |T - C M|^2 by parts, or zero beside C'T
    scalars: Array  # (..., 5): |Z|_1, <L, C - Z>, |C - Z|^2, |Z - previous Z|^2, non-zeros of Z
    fit_at_Z: Array  # (..., 3): |T - Z M|^2 by parts, or zero where it was not asked for


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
    callback: Callable[[int, Record, Callable[[], Atoms]], bool] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Iterations:
    """Algorithm 3 from given atoms; the codes stay in `blocks`.

    Parameters
    ----------
    blocks : blocks of samples
        In the coordinates of the subspace, with labels 0, ..., c - 1.
    start : Atoms
        B, W and A with rows of norm 1.
    code_scale : (..., c)
        sqrt(m_j), the scale of the labels in the target of A.
    lam, omega, epsilon, rho : float or (..., 1, 1)
        The weights; with leading axes, each for a problem of its own.
    callback : callable (iteration, record, atoms) -> bool
        Called after every iteration, `atoms` being a function that makes the atoms so far. True stops.
    checkpoint : Checkpoint
        Where to go on from, if it has something, and what to keep the iterations in; for one problem.

    Returns
    -------
    Iterations
        Its ``state`` is the learnt `Atoms`, its ``history`` what `describe` records.
    """
    problem, start = make_problem(blocks.problems, start, code_scale, lam, omega, epsilon, rho)
    schedule = dual_step or DualStep()
    *problems, K, _ = start.M.shape
    n, squares = blocks.map_sum(partial(begin, problem, (*problems, K)))
    done = checkpoint.begin(blocks, start.M, n, RECORDED, max_iter) if checkpoint else None
    begun = start if done is None else start._replace(M=done.M)

    def step(atoms: Atoms, iteration: int, active: Array) -> tuple[Atoms, Record]:
        at_Z = (iteration + 1) % OBJECTIVE_EVERY == 0
        only = None if active.all() else Some(active, problem.roots)
        now, old, total = (
            (problem, atoms, squares)
            if only is None
            else (
                Problem(*map(only.pick, problem)),
                atoms._replace(M=only.pick(atoms.M)),
                only.pick(squares, 1),
            )
        )
        coder = make_coder(now, old, schedule.at(iteration))
        sums = blocks.map_sum(partial(block_step, coder=coder, only=only, at_Z=at_Z))
        if not old.outnumber_columns:
            sums = at_atoms(sums, old, total)
        new, fit = atom_step(sums, now, old, total**0.5)
        record = describe(sums, fit, now, n * K, at_Z)
        return new if only is None else atoms._replace(M=only.put(atoms.M, new.M)), record

    def after(iteration: int, record: Record, atoms: Atoms) -> bool:
        if checkpoint:
            checkpoint.after(blocks, atoms.M, record, schedule.at(iteration + 1))
        return callback is not None and callback(iteration, record, partial(problem.unweigh, atoms))

    run = iterate(
        step,
        begun,
        watch="augmented_objective",
        problems=tuple(problems),
        max_iter=max_iter,
        tol=tol,
        callback=after,
        past=[] if done is None else done.records,
    )
    fit, l1 = blocks.map_sum(partial(evaluate, problem, run.state))
    last = (run.n_iter - 1, *np.indices(run.n_iter.shape, sparse=True))
    run.history["objective"][last] = to_host(objective(fit, l1, problem))
    return run._replace(state=problem.unweigh(run.state))


def make_problem(
    problems: tuple[int, ...],
    start: Atoms,
    code_scale: Array,
    lam: Array,
    omega: Array,
    epsilon: Array,
    rho: Array,
) -> tuple[Problem, Atoms]:
    """The problem of given weights, and the start, weighed, with all leading axes: of data, start and weights.

    A zero weight becomes the smallest one whose root can be squared: too small for codes to see,
    while the part is still learnt, as a read-out.
    """
    xp, dtype = namespace(start.M), start.M.dtype
    invisible = float(xp.finfo(dtype).smallest_normal) ** 0.5

    def as_weight(value: Array) -> Array:
        value = as_array(value, start.M, dtype)
        return value if value.ndim else value[None, None]

    lam, omega, epsilon, rho = (as_weight(value) for value in (lam, omega, epsilon, rho))
    shapes = [start.M.shape[:-2], *(weight.shape[:-2] for weight in (lam, omega, epsilon, rho))]
    problems = np.broadcast_shapes(problems, *map(tuple, shapes))

    def root_of(weight: Array, width: int) -> Array:
        weight = xp.maximum(weight, as_array(invisible, start.M, dtype))
        return xp.broadcast_to(xp.sqrt(weight), (*problems, 1, width))

    c, q = start.n_classes, start.M.shape[-1]
    ones = xp.ones((1, 1), dtype=dtype, device=start.M.device)
    roots = xp.concat([root_of(ones, q - 2 * c), root_of(lam, c), root_of(omega, c)], axis=-1)
    identity, scale = xp.eye(c, dtype=dtype, device=start.M.device), as_array(code_scale, start.M, dtype)
    scaled = identity * scale[..., None, :]
    label_targets = xp.concat([xp.broadcast_to(identity, scaled.shape), scaled], axis=-1) * roots[..., -2 * c :]
    problem = Problem(epsilon, rho, roots, label_targets)
    return problem, problem.weigh(start)


def begin(problem: Problem, shape: tuple[int, ...], block: Block) -> tuple[Block, tuple[int, Array]]:
    """Zero codes for a block, `shape` being (..., K); its size and |X|^2, |H|^2, |Q|^2."""
    xp = namespace(block.X)
    *problems, K = shape
    zeros = xp.zeros((*problems, block.X.shape[-2], K), dtype=block.X.dtype, device=block.X.device)
    sums = (block.X.shape[-2], target_squares(block, problem))
    return block._replace(Z=zeros, L=xp.zeros_like(zeros)), sums


def make_coder(problem: Problem, atoms: Atoms, theta: float) -> Coder:
    """Factorise once for all samples, in the smaller of two spaces.

    C (M M' + rho I) = T M' + rho V is a K x K system; because
    M' (M M' + rho I)^-1 = (M'M + rho I)^-1 M', it is as well a q x q one.
    """
    M = atoms.M
    gram = M.mT @ M if atoms.outnumber_columns else M @ M.mT
    try:
        factor = cholesky(add_to_diagonal(gram, problem.rho))
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"rho={float(np.min(problem.rho)):g} is so small that the code step has no solution in {M.dtype}: "
            f"{error}. Raise rho, or use float64."
        ) from error
    return Coder(problem, atoms, theta, factor)


class Some:
    """Those of several problems that go on; the others are left out of an iteration."""

    def __init__(self, active: Array, like: Array) -> None:
        self._shape = active.shape
        self._where = tuple(as_array(index, like) for index in np.nonzero(active))

    def pick(self, array: Array, n_axes: int = 2) -> Array:
        """Theirs, one below the other, of an array with `n_axes` axes of its own, which may serve them all."""
        own = array.shape[len(array.shape) - n_axes :]
        return namespace(array).broadcast_to(array, (*self._shape, *own))[self._where]

    def put(self, array: Array, values: Array) -> Array:
        """The inverse of `pick`, in place."""
        array[self._where] = values
        return array

    def block(self, block: Block) -> Block:
        """Their part of a block."""
        labels = block.labels if block.labels.ndim == 1 else self.pick(block.labels, 1)
        return Block(self.pick(block.X), labels, block.first, self.pick(block.Z), self.pick(block.L))


def block_step(block: Block, coder: Coder, only: Some | None, at_Z: bool) -> tuple[Block, Statistics]:
    """Code step and statistics of one block; problems that have ended keep their codes."""
    part = block if only is None else only.block(block)
    codes = code_step(part, coder)
    sums = statistics(part, coder, codes, at_Z=at_Z)
    Z, L = (codes.Z, codes.L) if only is None else (only.put(block.Z, codes.Z), only.put(block.L, codes.L))
    return block._replace(Z=Z, L=L), sums


def code_step(block: Block, coder: Coder) -> Codes:
    """One ADMM step on the codes of a block."""
    epsilon, rho = coder.problem.epsilon, coder.problem.rho
    find_codes = codes_in_target_space if coder.atoms.outnumber_columns else codes_in_atom_space
    C, E = find_codes(block, coder)
    shrink = compiled.find("shrink", C) or shrink_plain
    Z, L, scalars = shrink(C, block.Z, block.L, epsilon, rho, coder.theta)
    return Codes(C, Z, L, scalars, E)


def codes_in_target_space(block: Block, coder: Coder) -> tuple[Array, Array]:
    """C = V + F M' with V = Z - L / rho and F = (T - V M) (M'M + rho I)^-1; then T - C M = rho F."""
    V = block.Z - block.L / coder.problem.rho
    T, M = targets(block, coder.problem, V.shape[:-2]), coder.atoms.M
    F = cholesky_solve(coder.factor, add_product(T, V, M, -1.0))
    return add_product(V, F, M.mT), coder.problem.rho * F


def codes_in_atom_space(block: Block, coder: Coder) -> tuple[Array, None]:
    """C = (T M' + rho Z - L) (M M' + rho I)^-1; the labels' share of T M' is one row for each class."""
    atoms, problem = coder.atoms, coder.problem
    products, label_rows = block.X @ atoms.B.mT, problem.label_targets @ atoms.labels.mT
    pull = compiled.find("pull", products) or pull_plain
    rhs = pull(products, block.Z, block.L, problem.rho, label_rows, block.labels)
    return cholesky_solve(coder.factor, rhs), None


def pull_plain(products: Array, Z: Array, L: Array, rho: Array, label_rows: Array, labels: Array) -> Array:
    """The products, rho Z - L, and for each sample the row of its class, added; the products are used up."""
    return products + rho * Z - L + take_rows(label_rows, labels)


def targets(block: Block, problem: Problem, problems: tuple[int, ...]) -> Array:
    """T of a block, with the leading axes `problems`."""
    xp = namespace(block.X)
    labels = take_rows(problem.label_targets, block.labels)
    parts = [xp.broadcast_to(part, (*problems, *part.shape[-2:])) for part in (block.X, labels)]
    return xp.concat(parts, axis=-1)


def shrink_plain(
    C: Array, old: Array, L: Array, epsilon: Array, rho: Array, theta: float
) -> tuple[Array, Array, Array]:
    """Z and L after C, and (..., 5) sums in float64: see `Statistics.scalars`."""
    xp = namespace(C)
    Z = soft_threshold(C + L / rho, epsilon / rho)
    gap = C - Z
    L = L + theta * gap
    l1 = xp.sum(xp.abs(Z), axis=(-2, -1), dtype=xp.float64)
    nonzeros = xp.astype(xp.count_nonzero(Z, axis=(-2, -1)), xp.float64)
    scalars = [l1, inner(L, gap), squared_norm(gap), squared_norm(Z - old), nonzeros]
    return Z, L, xp.stack(scalars, axis=-1)


def statistics(block: Block, coder: Coder, codes: Codes, *, at_Z: bool = False) -> Statistics:
    """The sums that atoms, objective and residuals are made of, for one block."""
    C, E = codes.C, codes.E
    equations: Equations
    if E is None:
        equations, fit = target_sums(block, coder, C)
    else:
        equations, fit = Factors(C, E), part_norms(E, coder.atoms.bounds)
    fit_at_Z = fit_of_codes(block, codes.Z, coder.problem, coder.atoms) if at_Z else 0 * fit
    if C.shape[-2] >= C.shape[-1]:
        equations = equations.sums()
    return Statistics(equations, fit, codes.scalars, fit_at_Z)


def target_sums(block: Block, coder: Coder, C: Array) -> tuple[Sums, Array]:
    """C'C and C'T, C'H being a sum over classes; what `at_atoms` makes of them is made once for all blocks."""
    xp = namespace(C)
    by_class = class_sums(C, block.labels, coder.atoms.n_classes)
    P = xp.concat([C.mT @ block.X, by_class.mT @ coder.problem.label_targets], axis=-1)
    return Sums(C.mT @ C, P), xp.zeros((*C.shape[:-2], 3), dtype=xp.float64, device=C.device)


def at_atoms(sums: Statistics, atoms: Atoms, squares: Array) -> Statistics:
    """C'(T - C M), and |T - C M|^2 = |T|^2 - <C'T, M> - <C'(T - C M), M> by parts, from C'T and C'C."""
    G, P = sums.equations.sums().G, sums.equations.sums().S
    S = P - G @ atoms.M
    both, parts = P + S, pairwise(atoms.bounds)
    products = [inner(both[..., i:j], atoms.M[..., i:j]) for i, j in parts]
    fit = squares - namespace(P).stack(products, axis=-1)
    return sums._replace(equations=Sums(G, S), fit=fit)


def target_squares(block: Block, problem: Problem) -> Array:
    """|T|^2 of a block by parts: (..., 3), in float64."""
    xp = namespace(block.X)
    labels = take_rows(problem.label_targets, block.labels)
    c = labels.shape[-1] // 2
    parts = (block.X, labels[..., :c], labels[..., c:])
    return xp.stack(xp.broadcast_arrays(*map(squared_norm, parts)), axis=-1)


def fit_of_codes(block: Block, Z: Array, problem: Problem, atoms: Atoms) -> Array:
    """|T - Z M|^2 of a block by parts: (..., 3), in float64."""
    T = targets(block, problem, Z.shape[:-2])
    return part_norms(add_product(T, Z, atoms.M, -1.0), atoms.bounds)


def atom_step(sums: Statistics, problem: Problem, atoms: Atoms, norms: Array) -> tuple[Atoms, Array]:
    """New atoms, and |T - C M|^2 by parts with them."""
    radii = namespace(atoms.M).stack([problem.roots[..., 0, i] for i in atoms.bounds[:-1]], axis=-1)
    M, decrease = sweep(sums.equations, atoms.M, atoms.bounds, radii, norms)
    return atoms._replace(M=M), sums.fit - decrease


def evaluate(problem: Problem, atoms: Atoms, block: Block) -> tuple[Block, tuple[Array, Array]]:
    """What (1) at Z is made of."""
    xp = namespace(block.Z)
    l1 = xp.sum(xp.abs(block.Z), axis=(-2, -1), dtype=xp.float64)
    return block, (fit_of_codes(block, block.Z, problem, atoms), l1)


def objective(fit: Array, l1: Array, problem: Problem) -> Array:
    """(1), from |T - S M|^2 by parts and |S|_1."""
    return fit[..., 0] + fit[..., 1] + fit[..., 2] + 2 * problem.epsilon[..., 0, 0] * l1


def describe(sums: Statistics, fit: Array, problem: Problem, n_codes: int, at_Z: bool) -> Record:
    """The record of one iteration: the augmented objective, its terms, and residuals."""
    epsilon, rho = problem.epsilon[..., 0, 0], problem.rho[..., 0, 0]
    l1, multiplier, gap, change, nonzeros = (sums.scalars[..., i] for i in range(5))
    fits = (fit[..., i] for i in range(3))
    terms = (*fits, 2 * epsilon * l1, 2 * multiplier, rho * gap)
    residuals = (gap**0.5, rho * change**0.5)
    value = objective(sums.fit_at_Z, l1, problem) if at_Z else l1 * np.nan
    return dict(zip(RECORDED, (sum(terms), *terms, *residuals, nonzeros / n_codes, value), strict=True))
