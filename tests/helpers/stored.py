"""Helpers for tests of training on samples that are not in memory."""

import numpy as np
from numpy.testing import assert_allclose

OPTIONS = {"n_components": 30, "max_iter": 12, "tol": 0, "random_state": 0}
LEARNT = ("components_", "label_components_", "code_components_")


def in_file(X, path):
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def assert_same(model, expected, tol):
    for name in LEARNT:
        assert_allclose(getattr(model, name), getattr(expected, name), atol=tol)
    for name, values in expected.history_.items():
        assert_allclose(model.history_[name], values, rtol=100 * tol)
