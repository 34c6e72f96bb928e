import numpy as np
import pytest
from numpy.testing import assert_allclose

from ledl.subspace import IdentitySubspace, find_subspace


@pytest.mark.parametrize("shape", [(5, 20), (20, 5), (6, 6)])
def test_coordinates_keep_inner_products(shape, rng):
    X = rng.standard_normal(shape)
    subspace, R = find_subspace(X.copy())
    assert R.shape == (shape[0], min(shape))
    assert_allclose(R @ R.T, X @ X.T, atol=1e-12)
    assert_allclose(subspace.reduce(X), R, atol=1e-12)
    assert_allclose(subspace.expand(R), X, atol=1e-12)
    assert isinstance(subspace, IdentitySubspace) == (shape[0] >= shape[1])


def test_what_lies_outside_the_span_is_lost(rng):
    X, y = rng.standard_normal((5, 20)), rng.standard_normal((1, 20))
    subspace, _ = find_subspace(X.copy())
    back = subspace.expand(subspace.reduce(y))
    assert_allclose((y - back) @ X.T, 0, atol=1e-12)


def test_dependent_samples(rng):
    X = np.repeat(rng.standard_normal((3, 20)), 2, axis=0)
    X[1] = 0
    subspace, R = find_subspace(X.copy())
    assert_allclose(subspace.expand(R), X, atol=1e-12)
