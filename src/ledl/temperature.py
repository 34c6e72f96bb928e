"""Scores as probabilities: p_j proportional to exp(t f_j), with one temperature t for all samples.

(The temperature is 1/t where the term comes from; here it is the factor itself that is kept.)
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from ledl.arrays import Array, namespace

# Factors that are tried, as powers of e, of scores whose differences are of the order of 1.
LOG_FACTORS = (-5.0, 8.0)


def log_scores(scores: Array, rule: str) -> Array:
    """Scores (n, c) as exponents, whose differences are log odds but for a factor.

    Those of the rule "regularized" are negative ratios of a residual and a norm, of which the logarithm is
    taken: odds are to depend on how many times larger the ratio of another class is. A ratio of zero, a perfect
    fit, counts as the smallest positive number.
    """
    if rule != "regularized":
        return scores
    xp = namespace(scores)
    return -xp.log(xp.clip(-scores, float(xp.finfo(scores.dtype).tiny), None))


def log_losses(F: Array, labels: Array, factor: float) -> Array:
    """-log p of the true labels 0, ..., c - 1 of samples with the exponents F, (n, c)."""
    scaled = factor * np.asarray(F, dtype=np.float64)
    losses: Array = logsumexp(scaled, axis=1) - np.take_along_axis(scaled, labels[:, None], axis=1)[:, 0]
    return losses


def best_factor(F: Array, labels: Array) -> float:
    """The t with the smallest mean loss, which is convex in t; at most e^8 over the spread of the scores.

    There is no smallest where all labels have the largest scores.
    """
    spread = float(np.sqrt(np.mean((F - F.mean(axis=1, keepdims=True)) ** 2)))
    if not spread > 0:
        return 1.0
    found = minimize_scalar(
        lambda log_factor: log_losses(F, labels, np.exp(log_factor) / spread).mean(),
        bounds=LOG_FACTORS,
        method="bounded",
    )
    return float(np.exp(found.x)) / spread
