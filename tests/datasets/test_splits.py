"""Few-shot splits and identical samples."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from ledl import CRCClassifier
from ledl.datasets import FewShotSplit, few_shot_splits, n_shared_samples


def test_splits_follow_the_protocol_exactly(rng):
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


def test_bad_requests_are_reported_at_once():
    with pytest.raises(ValueError, match=r"n_per_class=5 .* class 1 has 2"):
        few_shot_splits([0] * 9 + [1] * 2)
    for n_per_class in (0, 1.5):
        with pytest.raises(ValueError, match=f"n_per_class={n_per_class} is not a number"):
            few_shot_splits([0, 1], n_per_class=n_per_class)
    with pytest.raises(TypeError, match=r"seeds=3 is one number. Give a list, \[3\]"):
        few_shot_splits([0, 1], seeds=3)
    for y in ([], [[0], [1]]):
        with pytest.raises(ValueError, match=r"but it must be a vector"):
            few_shot_splits(y)


def test_as_a_cv_of_scikit_learn():
    X, y = load_digits(return_X_y=True)
    cv = FewShotSplit(n_per_class=5, seeds=range(3))
    assert cv.get_n_splits() == 3
    for (train, test), (expected_train, expected_test) in zip(
        cv.split(X, y), few_shot_splits(y, seeds=range(3)), strict=True
    ):
        assert_array_equal(train, expected_train)
        assert_array_equal(test, expected_test)
    search = GridSearchCV(CRCClassifier(), {"alpha": [0.01, 0.1]}, cv=cv).fit(X, y)
    assert len(search.cv_results_["split2_test_score"]) == 2
    assert "n_per_class=5" in repr(cv)


def test_samples_on_both_sides_are_counted_and_reported(rng, tmp_path):
    X, y = rng.random((20, 3)), np.repeat([0, 1], 10)
    X[1] = X[0]
    X[12:15] = X[11]
    splits = list(few_shot_splits(y, seeds=range(8)))
    counts = [n_shared_samples(X, train, test) for train, test in splits]
    brute = [sum(any((X[i] == X[j]).all() for j in train) for i in test) for train, test in splits]
    assert counts == brute
    assert max(counts) > 0
    names = [f"{i % 7}.png" for i in range(20)]
    frame = pd.DataFrame({"a": names, "b": 1.0})
    for kind in (names, [Path(name) for name in names], pd.Series(names), frame, np.array(names, dtype=object)):
        expected = [sum(names[i] in {names[j] for j in train} for i in test) for train, test in splits]
        assert [n_shared_samples(kind, train, test) for train, test in splits] == expected
    for i in range(20):  # files of different names and the same content
        (tmp_path / f"{i}.bin").write_bytes(bytes([i % 7]))
    paths = [tmp_path / f"{i}.bin" for i in range(20)]
    assert [n_shared_samples(paths, train, test) for train, test in splits] == expected
    assert [n_shared_samples(scipy.sparse.csr_array(X), train, test) for train, test in splits] == brute
    with pytest.warns(UserWarning, match=r"Split \d: \d of 10 test samples are identical"):
        list(FewShotSplit(n_per_class=5).split(X, y))
