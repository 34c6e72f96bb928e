"""Whether what a file says is a model: parameters, shapes that go together, finite numbers, predictions.

All raise ValueError, or whatever estimators raise; a decoder says where and what to do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from ledl.arrays import Array
from ledl.coding import RidgeCoder
from ledl.estimators._base import Dictionary, DictionaryClassifier, ResidualScores
from ledl.estimators._crc import CRCClassifier
from ledl.estimators._kernels import PairwiseKernel, PrecomputedKernel
from ledl.estimators._lcksvd import DKSVDClassifier
from ledl.estimators._ledl import LEDLClassifier
from ledl.estimators._starts import n_starts_of
from ledl.features import PixelFeatures, Preprocessing, ResNetFeatures
from ledl.model_selection import LEDLClassifierCV
from ledl.persistence._shapes import (
    NEEDED,
    OURS,
    SHAPES,
    check_floats,
    expect,
    is_count,
    is_floats,
    is_number,
    shapes,
)
from ledl.persistence._trials import check_pipeline, try_dictionary, try_others
from ledl.rejection import RejectingClassifier, checked_label, our_parts
from ledl.solvers.stream import Stream
from ledl.subspace import IdentitySubspace, KernelSpace, RowSpace

# A side of what images are brought to: a file must not ask for terabytes of pixels.
MAX_SIDE = 4096
# Kernels, with the names of their parameters.
KERNELS = {"rbf": {"gamma"}, "poly": {"gamma", "degree", "coef0"}, "hellinger": set()}
OUTPUTS = ("default", "pandas", "polars")


def check_part(part: Any) -> None:
    """Whether a subspace, kernel, coder or preprocessing is one."""
    if isinstance(part, RowSpace):
        sizes = shapes(part, {"basis": "r d"})
        expect(sizes["r"] <= sizes["d"], "the basis has more rows than columns")
    elif isinstance(part, KernelSpace):
        shapes(part, {"basis": "n r", "coordinates": "n r"})
        expect(isinstance(part.kernel, PairwiseKernel | PrecomputedKernel), "its kernel is none")
    elif isinstance(part, PairwiseKernel):
        _check_kernel(part)
    elif isinstance(part, RidgeCoder):
        shapes(part, {"atoms": "K r", "_projection": "r K"})
    elif isinstance(part, Preprocessing):
        _check_preprocessing(part)
    elif isinstance(part, Stream):
        _check_stream(part)
    for name in ("basis", "coordinates", "training", "inverse_norms", "atoms", "_projection"):
        if getattr(part, name, None) is not None:
            check_floats(getattr(part, name), name)


def _check_kernel(kernel: PairwiseKernel) -> None:
    name, parameters = kernel.kernel, kernel.parameters
    expect(type(name) is str and name in KERNELS, f"there is no kernel {name!r:.50}")
    expect(type(parameters) is dict, "parameters of kernels are a dict")
    expect(set(parameters) == KERNELS[str(name)], f"these are not the parameters of kernel={name!r}")
    for parameter, value in parameters.items():
        expect(
            is_number(value) or (parameter == "gamma" and value is None), f"{parameter} must be a finite number"
        )
    expect(type(kernel.normalize) is bool, "normalize is true or false")
    shapes(kernel, {"training": "n d", "inverse_norms": "n"})
    expect(kernel.training is not None and kernel.inverse_norms is not None, "its samples are missing")
    expect(kernel.training.dtype == np.float64, "samples of kernels are of type float64")


def _check_stream(stream: Stream) -> None:
    """Whether these are sums; whether they go with the atoms is asked where both are known."""
    for name in ("n_batches", "n_samples"):
        expect(is_count(getattr(stream, name)), f"{name} is a number that is not zero")
    expect(type(stream.seed) is int and 0 <= stream.seed < 2**31, "the seed is an integer of 31 bits")
    expect(type(stream.square) is float and 0 <= stream.square < np.inf, "square is a sum of squares")
    for name in ("G", "P", "class_weights"):
        check_floats(getattr(stream, name), name)
        expect(getattr(stream, name).dtype == np.float64, f"{name} is of type float64")
    expect(bool((stream.class_weights >= 0).all()), "weights of classes are not negative")


def _check_preprocessing(part: Preprocessing) -> None:
    for side in (part.size, part.resize):
        expect(side is None or is_count(side), "sizes of images are integers")
        expect((side or 0) <= MAX_SIDE, f"images of {side} pixels a side are more than {MAX_SIDE}")
    for values in (part.mean, part.std):
        expect(isinstance(values, list | tuple) and len(values) == 3, "means and deviations are three numbers")
    expect(all(map(is_number, (part.scale, *part.mean, *part.std))), "scales are numbers")


def check_estimator(model: Any) -> None:
    """Whether an estimator has parameters that it takes, and attributes that go together and predict."""
    if hasattr(model, "_parameter_constraints"):
        model._validate_params()
    state = {name: value for name, value in vars(model).items() if name not in model.get_params(deep=False)}
    config = state.pop("_sklearn_output_config", {})
    expect(
        type(config) is dict and all(k == "transform" and v in OUTPUTS for k, v in config.items()),
        "its output is of a kind that there is not",
    )
    with quietly():
        if isinstance(model, Pipeline):
            check_pipeline(model)
        elif isinstance(model, PixelFeatures | ResNetFeatures):
            _check_features(model, state)
        elif state and isinstance(model, Dictionary):
            _check_dictionary(model)
            try_dictionary(model)
        elif state and isinstance(model, RejectingClassifier):
            _check_rejecting(model)
        elif state and isinstance(model, LEDLClassifierCV):
            _check_tuned(model)
        elif state and type(model).__name__ in SHAPES:
            _check_others(model)
            try_others(model)


@contextmanager
def quietly() -> Iterator[None]:
    """Without warnings: what they tell of is checked."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _check_features(model: Any, state: dict[str, Any]) -> None:
    if isinstance(model, PixelFeatures):
        expect(not state, "there are no attributes of pixels")
        sides = model.size if isinstance(model.size, tuple) else (model.size, model.size)
        expect(len(sides) == 2, "a size is a number, or a height and a width")
        for side in sides:
            expect(is_count(side) and side <= MAX_SIDE, f"sizes are 1 to {MAX_SIDE} pixels")
        return
    fitted = {"identity_", "preprocessing_", "_n_features_out"}
    expect(set(state) in (set(), fitted), "it is fitted by halves")
    if state:
        expect(type(model.identity_) is str, "the network's identity is a string")
        expect(isinstance(model.preprocessing_, Preprocessing), "it has no preprocessing")
        expect(is_count(model._n_features_out), "it has no number of features")


def _check_dictionary(model: Any) -> None:
    needed = {"_space", "_scales", "_atoms", "n_features_in_"}
    if isinstance(model, DictionaryClassifier):
        needed |= {"classes_", "_atom_labels"}
        # What tells the class of an atom, which predictions do without, but explanations and rejection do not.
        by_residuals = isinstance(model, ResidualScores | CRCClassifier)
        needed.add("atom_classes_" if by_residuals else "label_components_")
    if isinstance(model, CRCClassifier):
        needed.add("_ridge")
    if isinstance(model, LEDLClassifier) and (model.rule == "joint" or n_starts_of(model) != 1):
        needed.add("_code_atoms")
    _check_there(model, needed)
    space: Any = model._space
    kernel: Any = getattr(space, "kernel", None)
    needed = {"dual_components_" if isinstance(space, KernelSpace) else "components_"}
    _check_there(model, needed)
    expect(type(model._scales) is bool, "_scales is true or false")
    sizes = shapes(model, OURS, d=model.n_features_in_)
    for name in ("_atoms", "components_", "dual_components_", "label_components_", "_code_atoms"):
        if hasattr(model, name):
            check_floats(getattr(model, name), name)
    if isinstance(space, IdentitySubspace):
        expect(sizes["r"] == sizes["d"], "atoms and features differ in number")
    elif isinstance(space, RowSpace):
        expect(space.basis.shape == (sizes["r"], sizes["d"]), "the basis is of another shape than the atoms")
    else:
        expect(isinstance(space, KernelSpace), "there is no subspace")
        n = sizes["d"] if isinstance(kernel, PrecomputedKernel) else len(kernel.training)
        expect(space.basis.shape == (n, sizes["r"]) and sizes["n"] == n, "samples and atoms do not go together")
        width = n if isinstance(kernel, PrecomputedKernel) else kernel.training.shape[1]
        expect(width == sizes["d"], "the kernel's samples have other features")
    if isinstance(model, CRCClassifier):
        expect(isinstance(model._ridge, RidgeCoder), "it has no ridge codes")
        expect(model._ridge.atoms.shape == model._atoms.shape, "its ridge codes are over other atoms")
    if isinstance(model, DictionaryClassifier):
        _check_labels(model, sizes["c"])
    if hasattr(model, "stream_"):
        _check_goes_on(model, sizes)
    _check_outcome(model)


def _check_goes_on(model: Any, sizes: dict[str, int]) -> None:
    """Whether the sums of a stream are of the model's atoms and classes."""
    K, d, c = (sizes[letter] for letter in "Kdc")
    stream = model.stream_
    expect(isinstance(model, LEDLClassifier) and isinstance(stream, Stream), "there is no stream to go on with")
    expect(isinstance(model._space, IdentitySubspace), "a stream has no subspace")
    expect(hasattr(model, "_code_atoms"), "it has no _code_atoms")
    expect(n_starts_of(model) == 1, "a stream has one start")
    expect(stream.G.shape == (K, K) and stream.P.shape == (K, d + 2 * c), "the stream is of other atoms")
    expect(stream.class_weights.shape == (c,), "the stream is of other classes")


def _check_labels(model: Any, c: int) -> None:
    check_classes(model.classes_)
    labels = model._atom_labels
    expect(c >= 2, "there are fewer than two classes")
    _check_indices(labels, c, "atoms are of no class")
    _check_starts(model)
    if not isinstance(model, DKSVDClassifier):  # which may start at all samples
        expect(len(np.unique(labels)) == c, "some classes have no atoms")
    if hasattr(model, "_samples") or hasattr(model, "_sample_labels"):
        _check_there(model, {"_samples", "_sample_labels"})
        _check_indices(model._sample_labels, c, "samples are of no class")
        check_floats(model._samples, "_samples")
    if hasattr(model, "atom_classes_"):
        # Of the same type, so that the comparison needs no more memory than the file had.
        expect(model.atom_classes_.dtype == model.classes_.dtype, "classes of atoms are of another type")
        expect(np.array_equal(model.atom_classes_, model.classes_[labels]), "classes of atoms differ")


def _check_starts(model: Any) -> None:
    """Whether atoms can be shared out among starts, each with the same classes in the same order."""
    n, labels = n_starts_of(model), model._atom_labels
    expect(type(n) is int and n > 0, "_n_starts is a number of starts")
    expect(n == 1 or isinstance(model, LEDLClassifier), "only LEDL has several starts")
    expect(len(labels) % n == 0, f"{len(labels)} atoms are not those of {n} starts")
    expect(bool((labels.reshape(n, -1) == labels[: len(labels) // n]).all()), "starts differ in their classes")


def _check_indices(labels: Array, c: int, message: str) -> None:
    expect(labels.dtype.kind == "i" and labels.min() >= 0 and labels.max() < c, message)


def _check_rejecting(model: RejectingClassifier) -> None:
    """Whether it wraps a fitted classifier of ours, and knows what is usual."""
    _check_there(model, {"estimator_", "classes_", "reject_label_", "evidence_", "cv_predictions_"})
    inner = our_parts(model.estimator_).classifier
    expect(hasattr(inner, "_atoms"), "its classifier is not fitted")
    expect(type(model.classes_) is np.ndarray, "it has no classes")
    expect(model.classes_.dtype == inner.classes_.dtype, "its classes are of another type")
    expect(np.array_equal(model.classes_, inner.classes_), "its classes are not its classifier's")
    checked_label(model.reject_label_, model.classes_)
    shapes(model, {"evidence_": "n e", "cv_predictions_": "n"})
    check_floats(model.evidence_, "evidence_")
    expect(model.evidence_.shape[1] == 2, "there are two measures of evidence")
    expect(model.cv_predictions_.dtype.kind in "biufUO", "predictions are labels")


def _check_tuned(model: LEDLClassifierCV) -> None:
    """Whether it wraps a fitted model, which has been tried by itself, and a temperature that it can take."""
    _check_there(model, {"best_estimator_", "best_params_", "classes_", "n_features_in_", "temperature_"})
    best = model.best_estimator_
    expect(isinstance(best, LEDLClassifier) and hasattr(best, "_atoms"), "its model is not fitted")
    expect(model.n_features_in_ == best.n_features_in_, "its model has other features")
    expect(type(model.classes_) is np.ndarray, "it has no classes")
    expect(model.classes_.dtype == best.classes_.dtype, "its classes are of another type")
    expect(np.array_equal(model.classes_, best.classes_), "its classes are not its model's")
    expect(is_number(model.temperature_) and model.temperature_ > 0, "temperature_ is a positive number")
    expect(is_count(model.n_features_in_), "n_features_in_ is a number of features")
    shapes(model, {"feature_names_in_": "d"}, d=model.n_features_in_)
    expect(type(model.best_params_) is dict, "best_params_ are settings")
    expect(type(getattr(model, "cv_results_", {})) is dict, "cv_results_ are a dict")
    expect(isinstance(getattr(model, "best_index_", 0), int), "best_index_ is a place")


def _check_outcome(model: Any) -> None:
    expect(is_count(getattr(model, "n_iter_", 1)), "n_iter_ is a number of iterations")
    expect(is_count(getattr(model, "_n_samples", 1)), "_n_samples is a number of samples")
    expect(type(getattr(model, "stopped_by_", "")) is str, "stopped_by_ is a word")
    history = getattr(model, "history_", {})
    expect(
        type(history) is dict and all(is_floats(values) for values in history.values()),
        "history_ holds numbers of each iteration",
    )


def check_classes(classes: Array) -> None:
    """Whether these are labels: numbers or strings, each once."""
    expect(classes.dtype.kind in "biufUO" and classes.ndim == 1, "classes are labels")
    if classes.dtype.kind == "f":
        expect(bool(np.isfinite(classes).all()), "classes are finite")
    expect(len(np.unique(classes)) == len(classes), "classes are there twice")


def _check_others(model: Any) -> None:
    """Of scikit-learn's estimators: shapes, and numbers that predictions need."""
    name = type(model).__name__
    _check_there(model, NEEDED[name] | _needed_by_parameters(model))
    n_features = getattr(model, "n_features_in_", 1)
    sizes = shapes(model, SHAPES[name], d=n_features)
    if hasattr(model, "classes_") and name != "RidgeClassifier":  # its binarizer has them
        check_classes(np.asarray(model.classes_))
    for attribute in ("coef_", "components_"):
        if hasattr(model, attribute):
            check_floats(getattr(model, attribute), attribute)
    if hasattr(model, "intercept_"):
        # A number where no intercept was fitted.
        intercept = np.asarray(model.intercept_)
        expect(
            is_floats(intercept) and intercept.shape in ((), (sizes.get("p", 1),)),
            "intercept_ has another shape",
        )
    if "p" in sizes and "c" in sizes:
        rows = (1, 2) if sizes["c"] == 2 else (sizes["c"],)
        expect(sizes["p"] in rows, "coef_ has not a row for each class")
    if name == "RidgeClassifier":
        binarizer = getattr(model, "_label_binarizer", None)
        expect(type(binarizer).__name__ == "LabelBinarizer", "it has no binarizer of labels")
    if hasattr(model, "n_components_"):
        expect(model.n_components_ == sizes["k"], "n_components_ is another number")
    for attribute in ("_max_components", "_n_features_out"):
        expect(is_count(getattr(model, attribute, 1)), f"{attribute} is a number")


def _needed_by_parameters(model: Any) -> set[str]:
    """What transforms need that depends on parameters: where there are no arrays, there is no trial."""
    if isinstance(model, StandardScaler):
        return ({"mean_"} if model.with_mean else set()) | ({"scale_"} if model.with_std else set())
    if isinstance(model, LinearDiscriminantAnalysis):
        return {"svd": {"scalings_", "xbar_"}, "eigen": {"scalings_"}, "lsqr": set()}[model.solver]
    return set()


def _check_there(model: Any, needed: set[str]) -> None:
    missing = sorted(name for name in needed if getattr(model, name, None) is None)
    expect(not missing, f"it has no {', '.join(missing)}")
