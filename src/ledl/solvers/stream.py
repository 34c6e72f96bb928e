"""Label embedded dictionary learning from a stream: a pass over batches of samples, none of which is kept.

Given its codes a sample enters the atoms' equations by sums alone (`ledl.solvers.atoms`), so a stream needs no
more than those: with the letters of `ledl.solvers.ledl`, a batch of n samples after N others makes

    C = CODE_STEPS of ADMM's steps from zero codes, at the atoms so far           `batch_sums`
    G = beta G + C'C,   P = beta P + C'[X, H, H diag(sqrt(m_j))]                  `remember`
    M = a Gauss-Seidel sweep over atoms, from G and P - G M                       `update_atoms`

where beta = (N / (N + n))^FORGETTING: a batch that ends at sample i weighs (i / N)^FORGETTING in the end. Codes
of early samples were found with poor atoms, and fade. For batches of one size it is the rule of J. Mairal,
F. Bach, J. Ponce and G. Sapiro, "Online learning for matrix factorization and sparse coding", JMLR 11, 2010.

An atom starts at a sample of its class when one comes that no other atom has started at. Before, it is zero,
and so are its codes, its sums and its change in a sweep: it is as if it were not there.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from ledl.arrays import Array, as_array, class_sums, namespace, to_host
from ledl.samples import Block, Blocks
from ledl.solvers.atoms import Sums, sweep
from ledl.solvers.ledl import (
    Atoms,
    Coder,
    DualStep,
    Problem,
    begin,
    code_step,
    make_coder,
    make_problem,
)
from ledl.solvers.start import class_start
from ledl.targets import code_scale

# Steps of ADMM on a batch, and the exponent of forgetting: chosen on training samples of USPS and on digits,
# where 5 to 20 steps and exponents of 1 and 2 can hardly be told apart (benchmarks/stream.py).
CODE_STEPS, FORGETTING = 10, 1.0


class Stream(NamedTuple):
    """What is kept of the samples so far, without the weights of (1), which may change from batch to batch.

    On the host and in float64, as sums without end should be; the size does not depend on the samples.
    """

    seed: int  # with the number of batches, of what is drawn for the next one
    n_batches: int
    n_samples: int
    G: Array  # (K, K): C'C
    P: Array  # (K, q): C'[X, H, H diag(sqrt(m_j))]
    square: float  # |X|^2
    class_weights: Array  # (c,): samples of each class


class BatchSums(NamedTuple):
    """What a block of a batch hands back, as in `Stream`."""

    n: int
    G: Array
    P: Array
    squares: Array  # (3,): |T|^2 by parts
    class_counts: Array  # (c,)
    nonzeros: Array  # of Z


def new_stream(n_atoms: int, n_columns: int, n_classes: int, seed: int, n_samples: int = 0) -> Stream:
    """A stream without batches; `n_samples` is of those that atoms were learnt from before it, if any."""
    G, P, weights = (np.zeros(shape) for shape in ((n_atoms, n_atoms), (n_atoms, n_columns), n_classes))
    return Stream(seed, 0, n_samples, G, P, 0.0, weights)


def start_atoms(
    stream: Stream, atoms: Atoms, blocks: Blocks, candidates: list[Array], atom_classes: Array
) -> Atoms:
    """Atoms that are still zero, those of a class in turn, at samples of the batch, as `class_start` does.

    Parameters
    ----------
    candidates : list of (n_j,) arrays
        For each class the indices of the samples that its atoms may start at: one atom at each.
    """
    waiting = ~np.any(to_host(atoms.B) != 0, axis=-1)
    coming = [np.flatnonzero(waiting & (atom_classes == j))[: len(own)] for j, own in enumerate(candidates)]
    rows = np.concatenate(coming)
    if not rows.size:
        return atoms
    rng = np.random.default_rng([stream.seed, stream.n_batches])
    new = class_start(blocks, candidates, atom_classes[rows], rng)
    M = namespace(atoms.M).asarray(atoms.M, copy=True)
    M[as_array(rows, M)] = as_array(new.M, M, M.dtype)
    return atoms._replace(M=M)


def learn(
    stream: Stream,
    atoms: Atoms,
    blocks: Blocks,
    atom_classes: Array,
    *,
    lam: float,
    omega: float,
    epsilon: float,
    rho: float = 1.0,
    dual_step: DualStep | None = None,
) -> tuple[Stream, Atoms, int]:
    """The stream and its atoms after one more batch, and the non-zeros of the batch's codes Z.

    Parameters
    ----------
    atoms : Atoms
        B, W and A with rows of norm 1, or zero where an atom has not started.
    blocks : blocks of samples
        The batch, with labels 0, ..., c - 1.
    """
    scale = code_scale(np.bincount(atom_classes))
    problem, weighed = make_problem((), atoms, scale, lam, omega, epsilon, rho)
    schedule = dual_step or DualStep()
    coder = make_coder(problem, weighed, schedule.first)
    sums = blocks.map_sum(partial(batch_sums, coder, schedule))
    if stream.n_samples and not stream.n_batches:
        stream = hold(stream, sums, atoms)
    stream = remember(stream, sums)
    return stream, problem.unweigh(update_atoms(stream, problem, weighed)), int(sums.nonzeros)


def batch_sums(coder: Coder, schedule: DualStep, block: Block) -> tuple[Block, BatchSums]:
    """Codes of a block, from zero, and their sums; the codes are not kept."""
    problem, K = coder.problem, coder.atoms.M.shape[-2]
    coded, (n, squares) = begin(problem, (K,), block)
    for step in range(CODE_STEPS):
        codes = code_step(coded, coder._replace(theta=schedule.at(step)))
        coded = coded._replace(Z=codes.Z, L=codes.L)
    xp, c = namespace(codes.C), coder.atoms.n_classes
    by_class = class_sums(codes.C, block.labels, c)
    label_targets = problem.label_targets / problem.roots[..., -2 * c :]
    P = xp.concat([codes.C.mT @ block.X, by_class.mT @ label_targets], axis=-1)
    counts = np.bincount(to_host(block.labels), minlength=c)
    return block, BatchSums(n, codes.C.mT @ codes.C, P, squares, counts, codes.scalars[..., 4])


def hold(stream: Stream, sums: BatchSums, atoms: Atoms) -> Stream:
    """In place of the sums of the samples before the stream, which nobody has: G = g I and P = g M.

    They hold the atoms where they are, about as firmly as those samples would: g is the sum of squares of the
    codes of an average atom in the first batch, scaled to their number.
    """
    share = stream.n_samples / sums.n
    g = share * float(np.trace(to_host(sums.G))) / len(stream.G)
    G, P = g * np.eye(len(stream.G)), g * to_host(atoms.M).astype(np.float64)
    return stream._replace(
        G=G, P=P, square=share * float(sums.squares[0]), class_weights=share * sums.class_counts
    )


def remember(stream: Stream, sums: BatchSums) -> Stream:
    """The stream with the sums of one more batch, what came before having faded."""
    beta = (stream.n_samples / (stream.n_samples + sums.n)) ** FORGETTING
    return Stream(
        stream.seed,
        stream.n_batches + 1,
        stream.n_samples + sums.n,
        beta * stream.G + to_host(sums.G),
        beta * stream.P + to_host(sums.P),
        beta * stream.square + float(sums.squares[0]),
        beta * stream.class_weights + sums.class_counts,
    )


def update_atoms(stream: Stream, problem: Problem, atoms: Atoms) -> Atoms:
    """The weighed atoms after a sweep over the stream's sums."""
    M, xp = atoms.M, namespace(atoms.M)
    G, P = as_array(stream.G, M, M.dtype), as_array(stream.P, M, M.dtype) * problem.roots
    radii = xp.stack([problem.roots[..., 0, i] for i in atoms.bounds[:-1]], axis=-1)
    c = atoms.n_classes
    by_class = to_host(problem.label_targets).astype(np.float64) ** 2
    labels = [stream.class_weights @ part.sum(axis=-1) for part in (by_class[:, :c], by_class[:, c:])]
    norms = as_array(np.sqrt([stream.square, *labels]), M, M.dtype)
    new, _ = sweep(Sums(G, P - G @ M), M, atoms.bounds, radii, norms)
    return atoms._replace(M=new)
