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


def test_any_labels_are_classes():
    y = np.array([np.nan, 1.0, np.nan, 1.0])
    train, test = next(few_shot_splits(y, n_per_class=1))
    assert len(train) == len(test) == 2


def test_bad_requests_are_told_at_once():
    with pytest.raises(ValueError, match=r"n_per_class=5 .* class 1 has 2"):
        few_shot_splits([0] * 9 + [1] * 2)
    for n_per_class in (0, 1.5):
        with pytest.raises(ValueError, match=f"n_per_class={n_per_class} is not a number"):
            few_shot_splits([0, 1], n_per_class=n_per_class)
    with pytest.raises(TypeError, match=r"seeds=3 is one number; give a list, \[3\]"):
        few_shot_splits([0, 1], seeds=3)
    for y in ([], [[0], [1]]):
        with pytest.raises(ValueError, match=r"but a vector is needed"):
            few_shot_splits(y)
