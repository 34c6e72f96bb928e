"""Shapes that fitted attributes have, and plain questions about values."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

# What fitted attributes have for shapes: d features, c classes, K atoms, r coordinates, others as they come.
# An attribute that is not there, or None, is not checked here; "|" stands between shapes of which one will do.
OURS = {
    "_atoms": "K r",
    "_atom_labels": "K",
    "atom_classes_": "K",
    "classes_": "c",
    "components_": "K d",
    "dual_components_": "K n",
    "label_components_": "K c",
    "_code_atoms": "K c",
    "training_codes_": "s K",
    "_samples": "m r",
    "_sample_labels": "m",
    "feature_names_in_": "d",
}
LINEAR = {"classes_": "c", "coef_": "p d | d", "feature_names_in_": "d"}
SHAPES = {
    "StandardScaler": dict.fromkeys(("mean_", "var_", "scale_", "feature_names_in_"), "d"),
    "MinMaxScaler": dict.fromkeys(
        ("min_", "scale_", "data_min_", "data_max_", "data_range_", "feature_names_in_"), "d"
    ),
    "Normalizer": {"feature_names_in_": "d"},
    "PCA": {
        "components_": "k d",
        "mean_": "d",
        **dict.fromkeys(("explained_variance_", "explained_variance_ratio_", "singular_values_"), "k"),
        "feature_names_in_": "d",
    },
    "LogisticRegression": LINEAR,
    "RidgeClassifier": LINEAR,
    "LinearSVC": LINEAR,
    "LinearDiscriminantAnalysis": {
        **LINEAR,
        "priors_": "c",
        "means_": "c d",
        "xbar_": "d",
        "scalings_": "d m",
        "covariance_": "d d",
    },
    "LabelBinarizer": {"classes_": "c"},
}
# Without these an estimator is not fitted, and then it has no attributes at all.
NEEDED = {
    "StandardScaler": {"n_features_in_"},
    "MinMaxScaler": {"n_features_in_", "min_", "scale_"},
    "Normalizer": {"n_features_in_"},
    "PCA": {"n_features_in_", "components_", "mean_"},
    "LogisticRegression": {"n_features_in_", "classes_", "coef_", "intercept_"},
    "RidgeClassifier": {"n_features_in_", "coef_", "intercept_"},
    "LinearSVC": {"n_features_in_", "classes_", "coef_", "intercept_"},
    "LinearDiscriminantAnalysis": {"n_features_in_", "classes_", "coef_", "intercept_"},
    "LabelBinarizer": {"classes_"},
}


def shapes(holder: Any, wanted: dict[str, str], **sizes: Any) -> dict[str, int]:
    """The length that each letter stands for, the same wherever it stands."""
    for letter, size in sizes.items():
        expect(is_count(size), f"{letter} = {size!r:.50} is no number of features")
    for name, letters in wanted.items():
        value = getattr(holder, name, None)
        if value is None:
            continue
        choices = {len(choice.split()): choice.split() for choice in letters.split("|")}
        expect(type(value) is np.ndarray and value.ndim in choices, f"{name} has other axes")
        for letter, size in zip(choices[value.ndim], value.shape, strict=True):
            expect(size > 0, f"{name} is empty")
            wanted_size = sizes.setdefault(letter, size)
            expect(wanted_size == size, f"{name} has {size} where there should be {wanted_size}")
    if getattr(holder, "feature_names_in_", None) is not None:
        expect(holder.feature_names_in_.dtype.kind == "O", "names of features are strings")
    return sizes


def is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(0 < value < 2**48)


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_floats(value: Any) -> bool:
    return type(value) is np.ndarray and value.dtype in (np.float32, np.float64)


def check_floats(value: Any, name: str) -> None:
    """Whether these are finite floats."""
    expect(is_floats(value) and bool(np.isfinite(value).all()), f"{name} must be finite floats")


def expect(fine: bool, message: str) -> None:
    """Raise a ValueError with that message unless all is well."""
    if not fine:
        raise ValueError(message)
