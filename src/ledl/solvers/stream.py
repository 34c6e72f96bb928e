"""Label embedded dictionary learning from a stream: a pass over batches of samples, which are not kept.

Given its codes, a sample enters the equations of the atoms only by sums (`ledl.solvers.atoms`), so a stream
keeps only these sums. With the letters of `ledl.solvers.ledl`, a batch of n samples after N others computes

    C = CODE_STEPS of ADMM's steps from zero codes, at the atoms so far           `batch_sums`
    G = beta G + C'C,   P = beta P + C'[X, H, H diag(sqrt(m_j))]                  `learn`
    M = a Gauss-Seidel sweep over atoms, from G and P - G M

where beta = (N / (N + n))^FORGETTING: a batch that ends at sample i weighs (i / N)^FORGETTING in the end. Codes
of early samples were found with poor atoms, and fade. For batches of one size it is the rule of J. Mairal,
F. Bach, J. Ponce and G. Sapiro, "Online learning for matrix factorization and sparse coding", JMLR 11, 2010.

An atom starts at a sample of its class when one comes that no other atom has started at. Before, it is zero,
and so are its codes, its sums and its change in a sweep: it is as if it were not there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array, as_array, class_sums, namespace, take_rows, to_host
from ledl.samples import Block, Blocks
from ledl.solvers.atoms import Sums, sweep
from ledl.solvers.ledl import Atoms, CodeStep, DualStep, begin, factorise, make_problem
from ledl.solvers.start import class_start, in_turns

# Steps of ADMM on a batch, and the exponent of forgetting: chosen on training samples of USPS and on digits,
# where 5 to 20 steps and exponents of 1 and 2 hardly differ (benchmarks/stream.py).
CODE_STEPS, FORGETTING = 10, 1.0


class Stream(NamedTuple):
    """Sums over the samples so far, without the weights of (1), which may change from batch to batch.

    On the host and in float64, because the sums never end; the size does not depend on the number of samples.
    """

    seed: int  # together with the number of batches, of the random numbers for the next batch
    n_batches: int
    n_samples: float  # the sum of their weights
    G: Array  # (K, K): C'C
    P: Array  # (K, q): C'[X, H, H diag(sqrt(m_j))]
    square: float  # |X|^2
    class_weights: Array  # (c,): samples of each class, or the sum of their weights


def new_stream(n_atoms: int, n_columns: int, n_classes: int, seed: int, n_samples: float = 0) -> Stream:
    """Return a stream without batches; `n_samples` is the number that atoms were learnt from before it."""
    G, P, weights = (np.zeros(shape) for shape in ((n_atoms, n_atoms), (n_atoms, n_columns), n_classes))
    return Stream(seed, 0, n_samples, G, P, 0.0, weights)


def start_atoms(
    stream: Stream, atoms: Atoms, blocks: Blocks, candidates: list[Array], atom_classes: Array
) -> Atoms:
    """Return atoms; those that were zero start at samples of the batch, as in `class_start`.

    Parameters
    ----------
    candidates : list of (n_j,) arrays
        For each class, the indices of the samples at which its atoms may start: one atom at each.
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
    """Return the stream and its atoms after one more batch, and the number of non-zeros of the batch's codes Z.

    Parameters
    ----------
    atoms : Atoms
        B, W and A with rows of norm 1, or of zeros for an atom that has not started.
    blocks : blocks of samples
        The batch, with labels 0, ..., c - 1.
    """
    scale = np.sqrt(np.bincount(atom_classes))
    problem = make_problem((), atoms, scale, lam, omega, epsilon, rho)
    M, schedule, xp = atoms.M * problem.roots, dual_step or DualStep(), namespace(atoms.M)
    code_step = CodeStep(problem, M, factorise(M, problem.rho), schedule.first)
    n, G, P, squares, class_counts, nonzeros = blocks.map_sum(partial(batch_sums, code_step, schedule))
    n = whole(n)
    new_G, new_P, square = to_host(G), to_host(P), float(squares[0])
    if stream.n_samples and not stream.n_batches:
        # The samples before the stream are unknown. In place of their sums, G = g I and P = g M hold the atoms
        # where they are, about as firmly as these samples would: g is the sum of squares of the codes of an
        # average atom in the first batch, scaled to their number, which is `share` times the batch's.
        share, K = stream.n_samples / n, M.shape[-2]
        g = share * float(np.trace(new_G)) / K
        held = g * np.eye(K), g * to_host(atoms.M).astype(np.float64), share * square, share * class_counts
        stream = Stream(*stream[:3], *held)
    beta = (stream.n_samples / (stream.n_samples + n)) ** FORGETTING
    stream = Stream(
        stream.seed,
        stream.n_batches + 1,
        stream.n_samples + n,
        beta * stream.G + new_G,
        beta * stream.P + new_P,
        beta * stream.square + square,
        beta * stream.class_weights + class_counts,
    )
    G, P = as_array(stream.G, M, M.dtype), as_array(stream.P, M, M.dtype) * problem.roots
    radii = xp.stack([problem.roots[..., 0, i] for i in problem.bounds[:-1]], axis=-1)
    c, by_class = atoms.n_classes, to_host(problem.label_targets).astype(np.float64) ** 2
    labels = [stream.class_weights @ part.sum(axis=-1) for part in (by_class[:, :c], by_class[:, c:])]
    norms = as_array(np.sqrt([stream.square, *labels]), M, M.dtype)
    turns = as_array(in_turns(atom_classes), M)
    sums = Sums(G[turns[:, None], turns], take_rows(P - G @ M, turns))
    swept, _ = sweep(sums, take_rows(M, turns), problem.bounds, radii, norms)
    M[turns] = swept
    return stream, Atoms(M / problem.roots, c), int(nonzeros)


def batch_sums(code_step: CodeStep, schedule: DualStep, block: Block) -> tuple[Block, tuple[Any, ...]]:
    """Return a block as it is, and sums over its samples and codes, which start from zero and are not kept.

    The sums are the number of samples, G and P as in `Stream`, |T|^2 by parts, (3,), the number of samples of
    each class, and the number of non-zeros of Z. A sample counts with its weight.
    """
    problem, K = code_step.problem, code_step.M.shape[-2]
    coded, (_, total, squares) = begin(problem, (K,), block)
    for step in range(CODE_STEPS):
        coded, C, _, scalars = replace(code_step, theta=schedule.at(step)).codes(coded)
    xp, c = namespace(C), problem.label_targets.shape[-2]
    C = block.weigh(C)
    full = block.weigh(C)
    label_sums = problem.label_sums(class_sums(full, block.labels, c)) / problem.roots[..., -2 * c :]
    P = xp.concat([full.mT @ block.X, label_sums], axis=-1)
    weights = None if block.weights is None else to_host(block.weights)
    counts = np.bincount(to_host(block.labels), weights, minlength=c)
    return block, (total, C.mT @ C, P, squares, counts, scalars[..., 4])


def whole(total: Any) -> float:
    """Return a sum of weights; as an integer if it is one, as it is without weights."""
    value = float(total)
    return int(value) if value.is_integer() else value
