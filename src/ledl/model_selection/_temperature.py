"""Scores as probabilities: p_j proportional to exp(t f_j), with one temperature t for all samples.

(The temperature is 1/t where the term comes from; here it is the factor itself that is kept.)

Few samples are often told apart without a mistake, and then no t is large enough: probabilities would be 0 and
1. So labels are smoothed as in Platt's scaling: of n samples each counts as one of its own class with the
weight (n + 1) / (n + 2), and as one of any class with the rest,

    loss = -(1 - e) log p_y - e mean_j log p_j,    e = 1 / (n + 2).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from ledl.arrays import Array

# Factors that are tried, as powers of e, of scores whose differences are of the order of 1.
LOG_FACTORS = (-5.0, 8.0)


def log_losses(F: Array, labels: Array, factor: float) -> Array:
    """Return the losses of samples with the exponents F, (n, c), and the labels 0, ..., c - 1, which are
    smoothed.
    """
    scaled = factor * np.asarray(F, dtype=np.float64)
    rest = 1 / (len(F) + 2)
    own = np.take_along_axis(scaled, labels[:, None], axis=1)[:, 0]
    losses: Array = logsumexp(scaled, axis=1) - (1 - rest) * own - rest * scaled.mean(axis=1)
    return losses


def best_factor(F: Array, labels: Array) -> float:
    """Return the t with the smallest mean loss, which is convex in t."""
    spread = float(np.sqrt(np.mean((F - F.mean(axis=1, keepdims=True)) ** 2)))
    if not spread > 0:
        return 1.0
    found = minimize_scalar(
        lambda log_factor: log_losses(F, labels, np.exp(log_factor) / spread).mean(),
        bounds=LOG_FACTORS,
        method="bounded",
    )
    return float(np.exp(found.x)) / spread
