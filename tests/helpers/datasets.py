"""USPS in small."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal


def usps_values(rng, n):
    """Return values as in the original files, and digits."""
    return np.round(rng.uniform(-1, 1, (n, 256)), 3), np.arange(n) % 10


def assert_is_usps(dataset, values, digits):
    """Check that a dataset has these values, scaled to 0 to 1."""
    assert_allclose(dataset.data, (values + 1) / 2, atol=1e-6)
    assert_array_equal(dataset.target, digits)
    assert dataset.images.shape == (len(digits), 16, 16)
    assert dataset.target_names == [str(j) for j in range(10)]
