"""Checks of codes and residuals from their definitions, with nothing of the package."""

import numpy as np

from helpers import reference


def relative_gaps(X, D, S, alpha, positive=False):
    """Return duality gaps over half squared norms, from the residual, scaled into the dual's box."""
    X, D, S = (np.asarray(a, dtype=np.float64) for a in (X, D, S))
    residual = X - S @ D
    correlation = residual @ D.T
    steepest = np.max(correlation if positive else np.abs(correlation), axis=1, initial=0.0)
    primal = np.sum(residual**2, axis=1) / 2 + alpha * np.abs(S).sum(axis=1)
    u = residual * np.minimum(1, alpha / np.maximum(steepest, alpha))[:, None]
    dual = np.sum(X * u, axis=1) - np.sum(u**2, axis=1) / 2
    half = np.sum(X**2, axis=1) / 2
    return (primal - dual) / np.where(half > 0, half, 1)


def class_residuals(atoms, labels, samples, codes):
    """Return the squared residual of each sample and class."""
    return np.array(
        [reference.src_residuals(atoms.T, labels, x, s) for x, s in zip(samples, codes, strict=True)]
    )
