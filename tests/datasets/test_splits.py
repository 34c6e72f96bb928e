import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ledl.datasets import few_shot_splits


def test_protocol_to_the_letter(rng):
    y = rng.integers(4, size=100)
    splits = list(few_shot_splits(y))
    assert len(splits) == 8
    for seed, (train, test) in enumerate(splits):
        generator = np.random.default_rng(seed)
        shuffled = [generator.permutation(np.flatnonzero(y == c)) for c in range(4)]
        assert_array_equal(train, np.concatenate([indices[:5] for indices in shuffled]))
        assert_array_equal(test, np.concatenate([indices[5:] for indices in shuffled]))
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(100))
        assert_array_equal(np.bincount(y[train]), [5] * 4)


def test_string_labels_and_other_sizes():
    y = ["b", "a", "a", "b", "a"]
    train, test = next(few_shot_splits(y, n_per_class=1, seeds=[9]))
    assert [y[i] for i in train] == ["a", "b"]
    assert len(test) == 3


def test_bad_requests_are_told_at_once():
    with pytest.raises(ValueError, match=r"n_per_class=5 .* class 1 has 2"):
        few_shot_splits([0] * 9 + [1] * 2)
    with pytest.raises(ValueError, match="n_per_class=0"):
        few_shot_splits([0, 1], n_per_class=0)
    with pytest.raises(ValueError, match="y is empty"):
        few_shot_splits([])
    with pytest.raises(ValueError, match=r"shape \(2, 1\)"):
        few_shot_splits([[0], [1]])
