"""Check that values in files are models: tables of parts and estimators, and the checks of both.

A part is a record of plain values and arrays. A new kind is an entry of `PARTS`, with the fields that files
hold, and a case of `check_part` if these depend on each other. A new kind of estimator is an entry of
`ESTIMATORS`, with its fitted attributes, and a case of `check_other`. With a `FittedDictionary` it is an entry
of `KINDS` instead. Estimators check their parameters themselves. A fitted model must predict before a user gets
it, in an amount of memory that its arrays justify.

Checks raise a ValueError that says what is wrong, or any error that values from strangers cause in other code.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from copy import copy
from itertools import dropwhile
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelBinarizer, MinMaxScaler, Normalizer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions, validate_parameter_constraints

from ledl.arrays import Array, check_memory
from ledl.coding import OMP, Collaborative, Lasso, Ridge
from ledl.dictionary import (
    AgreementRule,
    ClassifierRule,
    FittedDictionary,
    RegularizedRule,
    ResidualRule,
    RidgeRule,
)
from ledl.estimators import (
    KSVD,
    CRCClassifier,
    CSDLClassifier,
    DictionaryClassifier,
    DKSVDClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
    ProCRCClassifier,
    SRCClassifier,
)
from ledl.features import ColorFeatures, NetworkFeatures, PixelFeatures, Preprocessing
from ledl.kernels import POWER, PairwiseKernel, PrecomputedKernel
from ledl.model_selection import LEDLClassifierCV
from ledl.parallel import one_blas_thread
from ledl.rejection import RejectingClassifier, checked_label, our_parts, parts_of
from ledl.semi_supervised import METHODS, LabelGraph, ReachMap, SemiSupervisedClassifier
from ledl.solvers.lasso import SOLVERS
from ledl.solvers.stream import Stream
from ledl.subspace import AS_THEY_ARE, FeatureMap, IdentitySubspace, KernelSpace, RowSpace

# Loading tries a model only if the Gram matrix of its atoms has at most this many bytes.
MAX_TRIAL = 2**30
# Largest side, in pixels, to which images are resized: a file must not ask for terabytes.
MAX_SIDE = 4096

COUNT = Interval(Integral, 1, 2**48, closed="left")
SIDE = Interval(Integral, 1, MAX_SIDE, closed="both")
POSITIVE = Interval(Real, 0, None, closed="neither")
NUMBER = Interval(Real, None, None, closed="neither")
SHARE = Interval(Real, 0, 1, closed="both")
# Types of values in arrays, by NumPy's letters. Floats must also be finite.
ANY = "?bhilqBHILQfdUO"
TYPES = {"floats": "fd", "float64": "d", "integers": "bhilq", "strings": "O", "labels": ANY, "values": ANY}

# Fields of each part. A list has constraints as scikit-learn has them for parameters. A string describes an
# array: the kind of its values, and a letter for each axis. A letter is the same length everywhere in a part
# and in the parts within it. "|" separates alternative shapes. "?" at the end allows None.
CODERS = [Lasso, Ridge, Collaborative, OMP]
KERNELS = {
    "rbf": {"gamma": [NUMBER, None]},
    "poly": {"gamma": [NUMBER, None], "degree": [NUMBER], "coef0": [NUMBER]},
}
PARTS: dict[type, dict[str, Any]] = {
    FittedDictionary: {
        "space": [IdentitySubspace, RowSpace, KernelSpace],
        "atoms": "floats K r",
        "features": [FeatureMap],
        "coder": CODERS,
        "rule": [ClassifierRule, ResidualRule, RegularizedRule, RidgeRule, AgreementRule, None],
        "classes": "labels c ?",
        "atom_labels": "integers K ?",
        "samples": "floats m r ?",
        "sample_labels": "integers m ?",
    },
    FeatureMap: {"power": [POWER], "unit_norm": ["boolean"]},
    IdentitySubspace: {},
    RowSpace: {"basis": "floats r d"},
    KernelSpace: {
        "kernel": [PairwiseKernel, PrecomputedKernel],
        "basis": "floats n r",
        "coordinates": "floats n r",
    },
    PairwiseKernel: {
        "kernel": [StrOptions(set(KERNELS))],
        "parameters": [dict],
        "normalize": ["boolean"],
        "training": "float64 n d",
        "inverse_norms": "floats n",
    },
    PrecomputedKernel: {},
    Lasso: {
        "alpha": [POSITIVE],
        "tol": [POSITIVE],
        "solver": [StrOptions({"auto", *SOLVERS})],
        "max_iter": [Interval(Integral, 1, Lasso(1.0).max_iter, closed="both")],  # more might be for ever
        "positive": ["boolean"],
    },
    Ridge: {"alpha": [POSITIVE], "name": [StrOptions({"alpha", "ridge_alpha"})]},
    Collaborative: {
        "alpha": [POSITIVE],
        "agreement": [Interval(Real, 0, None, closed="left")],
        "labels": "integers K",
    },
    OMP: {"n_nonzero": [COUNT]},
    ClassifierRule: {"weights": "floats K c"},
    LabelGraph: {
        "features": [FeatureMap],
        "mean": "floats d",
        "axes": "floats d q",
        "points": "floats n q",
        "neighbours": "integers n k",
        "weights": "floats n k",
        "scales": "floats n",
        "sums": "floats n",
        "F": "floats n c",
        "labelled": "integers l",
        "labels": "integers l",
        "rows": "integers n",
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "balance": [SHARE],
    },
    ReachMap: {
        "features": [FeatureMap],
        "mean": "floats d",
        "axes": "floats d r",
        "points": "floats n r",
        "scales": "floats n",
        "distances": "floats n",
        "values": "floats n",
        "n_neighbors": [COUNT],
    },
    ResidualRule: {},
    AgreementRule: {},
    RegularizedRule: {"coder": [*CODERS, None]},
    RidgeRule: {"weights": "floats K c", "coder": [Ridge]},
    Stream: {
        "seed": [Interval(Integral, 0, 2**31, closed="left")],
        "n_batches": [COUNT],
        "n_samples": [POSITIVE],
        "G": "float64 K K",
        "P": "float64 K q",
        "square": [Interval(Real, 0, None, closed="left")],
        "class_weights": "float64 c",
    },
    Preprocessing: {
        "size": [SIDE],
        "resize": [SIDE, None],
        "resample": [str],
        "channels": [str],
        "scale": [NUMBER],
        "mean": [list, tuple],
        "std": [list, tuple],
    },
}
# Fields that files of earlier versions lack. They get their defaults.
LATER_FIELDS: dict[type, set[str]] = {LabelGraph: {"balance"}}

# Attributes of each fitted estimator, described in the same way. It may have more. d is the number of features.
# K and c are the numbers of atoms and classes of the dictionary.
FEATURES = {"n_features_in_": [COUNT], "feature_names_in_": "strings d ?"}
WITH_ATOMS = {
    **FEATURES,
    "n_iter_": [COUNT, None],
    "stopped_by_": [str, None],
    "history_": [dict, None],
}
WITH_LABELS = {**WITH_ATOMS, "label_components_": "floats K c", "_code_atoms": "floats K c"}
LINEAR = {**FEATURES, "classes_": "labels c", "coef_": "floats p d | d"}
ESTIMATORS: dict[type, dict[str, Any]] = {
    CRCClassifier: WITH_ATOMS,
    CSDLClassifier: WITH_ATOMS,
    ColorFeatures: {},
    DKSVDClassifier: WITH_LABELS,
    KSVD: WITH_ATOMS,
    LCKSVDClassifier: WITH_LABELS,
    LEDLClassifier: {
        **WITH_LABELS,
        "training_codes_": "floats s K ?",
        "_n_samples": [POSITIVE],
        "stream_": [Stream, None],
    },
    LEDLClassifierCV: {
        **FEATURES,
        "_dictionary": [FittedDictionary],
        "classes_": "labels c",
        "best_estimator_": [LEDLClassifier],
        "_others": [list, None],
        "_weights": "float64 e ?",
        "best_params_": [dict],
        "best_index_": [Integral, None],
        "cv_results_": [dict, None],
        "expected_accuracy_": [SHARE, None],
        "expected_accuracy_interval_": [tuple, None],
        "temperature_": [POSITIVE],
        "_best_temperature": [POSITIVE, None],
    },
    PixelFeatures: {},
    RejectingClassifier: {
        "classes_": "labels c",
        "reject_label_": [str, Real],
        "evidence_": "floats n e",
        "cv_predictions_": "labels n",
        "cv_scores_": "floats n c",
        "judged_": "integers n",
    },
    NetworkFeatures: {
        "identity_": [str],
        "output_": [str, None],
        "preprocessing_": [Preprocessing],
        "_n_features_out": [COUNT],
    },
    ProCRCClassifier: WITH_ATOMS,
    SRCClassifier: WITH_ATOMS,
    SemiSupervisedClassifier: {
        **FEATURES,
        "classes_": "labels c",
        "estimator_": [HasMethods("predict")],
        "expected_accuracy_": [SHARE, None],
        "expected_accuracy_interval_": [tuple],
        "graph_": [LabelGraph, None],
        "hidden_results_": [dict],
        "label_distributions_": "floats N c",
        "labelled_rows_": "integers l",
        "method_": [StrOptions(set(METHODS))],
        "reach_": [ReachMap],
        "temperature_": [POSITIVE],
        "transduction_": "labels N",
    },
    LabelBinarizer: {"classes_": "labels c"},
    LinearDiscriminantAnalysis: {
        **LINEAR,
        "priors_": "values c ?",
        "means_": "values c d ?",
        "scalings_": "values d m ?",
        "xbar_": "values d ?",
        "covariance_": "values d d ?",
        "_max_components": [COUNT, None],
    },
    LinearSVC: LINEAR,
    LogisticRegression: LINEAR,
    MinMaxScaler: {
        **FEATURES,
        **dict.fromkeys(("min_", "scale_"), "values d"),
        **dict.fromkeys(("data_min_", "data_max_", "data_range_"), "values d ?"),
    },
    Normalizer: FEATURES,
    PCA: {
        **FEATURES,
        "components_": "floats k d",
        "mean_": "values d",
        **dict.fromkeys(("explained_variance_", "explained_variance_ratio_", "singular_values_"), "values k ?"),
    },
    Pipeline: {},
    RidgeClassifier: {**LINEAR, "_label_binarizer": [LabelBinarizer]},
    StandardScaler: {**FEATURES, **dict.fromkeys(("mean_", "var_", "scale_"), "values d ?")},
}
# Coders and rules in the dictionary of each model.
KINDS = {
    CRCClassifier: {"coder": [Ridge], "rule": [ResidualRule]},
    CSDLClassifier: {"coder": [Lasso], "rule": [ResidualRule]},
    DKSVDClassifier: {"coder": [OMP], "rule": [ClassifierRule]},
    KSVD: {"coder": [OMP], "rule": [None]},
    LCKSVDClassifier: {"coder": [OMP], "rule": [ClassifierRule]},
    LEDLClassifier: {"coder": [Lasso], "rule": [ClassifierRule, ResidualRule, RegularizedRule, RidgeRule]},
    ProCRCClassifier: {"coder": [Collaborative], "rule": [AgreementRule]},
    SRCClassifier: {"coder": [Lasso], "rule": [ResidualRule]},
}
# Attributes that follow from others: loading makes them, and files do not hold them.
MADE: dict[type, set[str]] = {
    **{kind: {"classes_", "atom_classes_", "components_", "dual_components_"} for kind in KINDS},
    LEDLClassifierCV: {"_dictionary", "classes_"},
}
# Attributes that a value of a parameter requires.
REQUIRED: list[tuple[type, str, Any, dict[str, str]]] = [
    (StandardScaler, "with_mean", True, {"mean_": "values d"}),
    (StandardScaler, "with_std", True, {"scale_": "values d"}),
    (LinearDiscriminantAnalysis, "solver", "svd", {"scalings_": "values d m", "xbar_": "values d"}),
    (LinearDiscriminantAnalysis, "solver", "eigen", {"scalings_": "values d m"}),
]
OUTPUTS = ("default", "pandas", "polars")
KEEPS_WIDTH = Normalizer | StandardScaler | MinMaxScaler
HAS_WIDTH = ColorFeatures | PixelFeatures | NetworkFeatures | DictionaryClassifier | KSVD


def expect(fine: bool, message: str) -> None:
    """Raise a ValueError with this message unless everything is fine."""
    if not fine:
        raise ValueError(message)


def check_fields(
    holder: Any, wanted: dict[str, Any], sizes: dict[str, Any] | None = None, *, finite: bool = True
) -> dict[str, Any]:
    """Raise an error unless attributes match a table. Return the lengths of all letters, also from `sizes`."""
    sizes = dict(sizes or {})
    settings = {name: kind for name, kind in wanted.items() if isinstance(kind, list)}
    found: dict[str, Any] = {name: getattr(holder, name, None) for name in wanted}
    validate_parameter_constraints(settings, {name: found[name] for name in settings}, type(holder).__name__)
    for name, constraints in settings.items():  # NumPy refuses True as a length
        is_number = isinstance(constraints[0], Interval)
        expect(not is_number or type(found[name]) is not bool, f"{name} must be a number, not {found[name]}")
    for name in [name for name in wanted if name not in settings]:
        value, kind = found[name], wanted[name]
        if value is None and kind.endswith("?"):
            continue
        expect(value is not None, f"it has no {name}")
        values, _, axes = kind.rstrip(" ?").partition(" ")
        expect(type(value) is np.ndarray and value.dtype.char in TYPES[values], f"{name} must be {values}")
        choices = {len(choice.split()): choice.split() for choice in axes.split("|")}
        expect(value.ndim in choices, f"{name} has other axes")
        for letter, size in zip(choices[value.ndim], value.shape, strict=True):
            known = sizes.setdefault(letter, size)
            expect(size > 0 and known == size, f"{name} has {size} where there should be {known}")
        if finite and values in ("floats", "float64"):
            expect(bool(np.isfinite(value).all()), f"{name} must be finite floats")
    return sizes


def check_part(part: Any) -> None:
    """Raise an error unless a part is valid. Parts within it have been checked before."""
    check_fields(part, PARTS[type(part)])
    match part:
        case FittedDictionary():
            check_dictionary(part)
        case PairwiseKernel():
            wanted, found = KERNELS[str(part.kernel)], part.parameters
            expect(found.keys() == wanted.keys(), f"these are not the parameters of kernel={part.kernel!r}")
            validate_parameter_constraints(wanted, found, "kernel")
        case LabelGraph():
            check_graph(part)
        case Stream():
            expect(bool((part.class_weights >= 0).all()), "weights of classes are not negative")
        case Preprocessing():
            fine = all(len(values) == 3 for values in (part.mean, part.std))
            numbers = all(isinstance(value, Real) for value in (*part.mean, *part.std))
            expect(fine and numbers, "means and deviations must be three numbers each")


def check_dictionary(record: FittedDictionary) -> dict[str, Any]:
    """Raise an error unless the dictionary can code samples, and classify them if it has classes.

    Return the lengths of the axes: d features, K atoms, r coordinates, c classes, n samples of a kernel.
    """
    space, classes, labels = record.space, record.classes, record.atom_labels
    sizes = check_fields(record, PARTS[FittedDictionary], finite=False)
    for part in (space, getattr(space, "kernel", None), record.coder, record.rule):
        if part is not None:
            sizes = check_fields(part, PARTS[type(part)], sizes, finite=False)
    # Without a basis, coordinates are the features, or k(x, .) of a precomputed kernel.
    sizes.setdefault("d", sizes.get("n", sizes["r"]))
    expect(sizes["r"] <= sizes.get("n", sizes["d"]), "the basis has more vectors than the space has directions")
    expect(
        "n" not in sizes or record.features == AS_THEY_ARE, "a kernel takes samples as they are, not features"
    )
    if classes is None:
        rest = (record.rule, labels, record.samples, record.sample_labels)
        expect(all(one is None for one in rest), "it has no classes")
        return sizes
    expect(len(classes) > 1, "there are fewer than two classes")
    check_classes(classes)
    expect(record.rule is not None and labels is not None, "it has no rule, or no classes of atoms")
    expect((record.samples is None) == (record.sample_labels is None), "samples and their labels go together")
    if isinstance(record.coder, Collaborative):
        expect(bool((record.coder.labels == labels).all()), "its codes are for atoms of other classes")
    for name, numbers in (("atoms", labels), ("samples", record.sample_labels)):
        expect(
            numbers is None or (numbers.min() >= 0 and numbers.max() < len(classes)),
            f"{name} belong to no class",
        )
    return sizes


def check_graph(graph: LabelGraph) -> None:
    """Raise an error unless the numbers of a graph are rows and classes, and its amounts can be amounts."""
    (n, c), k = graph.F.shape, graph.neighbours.shape[1]
    expect(k < n, "a sample has more neighbours than there are others")
    for name, numbers, end in (
        ("neighbours", graph.neighbours, n),
        ("labelled samples", graph.labelled, n),
        ("labels", graph.labels, c),
        ("rows", graph.rows, np.inf),
    ):
        expect(bool(numbers.min() >= 0 and numbers.max() < end), f"its {name} are not in range")
    expect(bool(graph.sums.min() > 0), "sums of weights are positive")
    # The spread of n labels is at most sqrt(n) large, and weights are at most 1.
    for name, values, top in (
        ("F", graph.F, n),
        ("weights", graph.weights, 1),
        ("scales", graph.scales, np.inf),
    ):
        expect(bool(values.min() >= 0 and values.max() <= top), f"its {name} are not in range")


def check_classes(classes: Array) -> None:
    """Raise an error unless labels are finite and all different."""
    expect(classes.dtype.kind != "f" or bool(np.isfinite(classes).all()), "classes must be finite")
    expect(len(np.unique(classes)) == len(classes), "a class occurs twice")


def make(
    name: str, state: dict[str, Any], room: float, known: Mapping[int, Array] = MappingProxyType({})
) -> Any:
    """Return one of the attributes in `MADE`. Raise an error if it needs more than `room` bytes.

    `ledl.estimators.fitted_attributes` makes all of them. Here they are made one by one, because a file may
    hold the large ones. `known` has atoms as users see them, by the ids of those in coordinates.
    """
    if name == "_dictionary":
        return state["best_estimator_"]._dictionary  # with the rule of the fit, whatever was set since
    record = state["_dictionary"]
    classes, space, K = record.classes, record.space, len(record.atoms)
    if name.endswith("classes_"):
        expect(classes is not None, "it has no classes")
        n_bytes = K * classes.itemsize if name == "atom_classes_" else 0
    else:
        wanted = "dual_components_" if isinstance(space, KernelSpace) else "components_"
        expect(name == wanted, f"{name} does not follow from a dictionary")
        n_bytes = 0 if isinstance(space, IdentitySubspace) else 8 * K * max(space.basis.shape)
    expect(n_bytes <= room, f"{name} would need {n_bytes:,} bytes, many times the size of the file")
    if name.endswith("classes_"):
        return classes if name == "classes_" else classes[record.atom_labels]
    if id(record.atoms) in known:
        return known[id(record.atoms)]
    # With as many threads as in `fit`, for the same rounding: K-SVD and LEDL work with one.
    is_alone = isinstance(record.coder, OMP) or "_code_atoms" in state
    with one_blas_thread() if is_alone else nullcontext():
        return space.expand(record.atoms)


def check_estimator(model: Any) -> None:
    """Raise an error unless an estimator has valid parameters, and attributes that fit together and predict."""
    if hasattr(model, "_parameter_constraints"):
        model._validate_params()
    config, names = vars(model).get("_sklearn_output_config", {}), fitted_names(model)
    expect(
        type(config) is dict and all(k == "transform" and v in OUTPUTS for k, v in config.items()),
        "its output has an unknown kind",
    )
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # the checks find the same problems
        warnings.simplefilter("ignore")
        if isinstance(model, Pipeline):
            check_pipeline(model)
        elif isinstance(model, ColorFeatures):
            expect(not names, "colours have no attributes")
        elif isinstance(model, PixelFeatures):
            expect(not names, "pixels have no attributes")
            sides = model.size if isinstance(model.size, tuple) else (model.size, model.size)
            expect(len(sides) == 2, "a size is a number, or a height and a width")
            expect(
                all(isinstance(side, Integral) and 0 < side <= MAX_SIDE for side in sides),
                f"sizes are 1 to {MAX_SIDE} pixels",
            )
        elif names and type(model) in KINDS:
            check_with_dictionary(model)
        elif names:
            check_other(model, names)


def fitted_names(model: Any) -> set[str]:
    """Return the names of attributes, without parameters and without the kind of output."""
    return set(vars(model)) - set(model.get_params(deep=False)) - {"_sklearn_output_config"}


def check_with_dictionary(model: Any) -> None:
    """Raise an error unless the dictionary of a model, which has been checked alone, fits the rest, and codes.

    It must code one of its own samples or atoms, and zeros.
    """
    wanted, record = dict(ESTIMATORS[type(model)]), vars(model)["_dictionary"]
    expect(isinstance(record, FittedDictionary), "its dictionary is of another type")
    check_fields(record, KINDS[type(model)])
    sizes, d = check_dictionary(record), model.n_features_in_
    expect(sizes["d"] == d, f"its atoms have {sizes['d']} features where there should be {d!r:.50}")
    wanted |= {"dual_components_": "floats K n"} if "n" in sizes else {"components_": "floats K d"}
    if record.classes is not None:
        wanted["classes_"] = "labels c"
        if hasattr(model, "atom_classes_") or not isinstance(model, DKSVDClassifier):  # which may have none
            wanted["atom_classes_"] = "labels K"
            expect(len(np.unique(record.atom_labels)) == sizes["c"], "some classes have no atoms")
    check_fields(model, wanted, sizes)
    if getattr(model, "stream_", None) is not None:
        expect(isinstance(record.space, IdentitySubspace), "a stream has no subspace")
        check_fields(model.stream_, PARTS[Stream], {**sizes, "q": d + 2 * sizes["c"]}, finite=False)
    for values in (getattr(model, "history_", None) or {}).values():
        expect(
            type(values) is np.ndarray and values.dtype.kind == "f",
            "history_ holds numbers of each iteration",
        )
    n_bytes = gram_bytes(model)
    if n_bytes > MAX_TRIAL:  # refused only if this machine can never hold it
        check_memory(n_bytes, "Its predictions", "Use a machine with more memory")
        return
    space: Any = record.space
    kernel = getattr(space, "kernel", None)
    if isinstance(kernel, PairwiseKernel):
        X = kernel.training[:1]
    elif isinstance(kernel, PrecomputedKernel):
        X = space.coordinates[:1] @ space.coordinates.T
    else:
        X = space.expand(record.atoms[:1])
    if getattr(kernel, "kernel", None) != "poly":  # its kernel may be negative at zero
        X = np.concatenate([X, np.zeros_like(X)])
    expect(bool(np.isfinite(try_out(model, X)).all()), "its codes are not finite")


def check_other(model: Any, names: set[str]) -> None:
    """Raise an error unless a fitted model of another kind has attributes that fit together, and predicts."""
    sizes = {"d": model.n_features_in_} if "n_features_in_" in names else {}
    sizes = check_fields(model, ESTIMATORS[type(model)], sizes)
    match model:
        case LEDLClassifierCV():
            models = model.estimators_
            expect(
                all(type(one) is LEDLClassifier and hasattr(one, "_dictionary") for one in models),
                "its models are not fitted LEDLClassifiers",
            )
            expect(len(models) == sizes.get("e", 1), "it must have a weight for each model")
            expect(bool((model.weights_ > 0).all()), "its weights are not positive")
            for one in models:
                expect(model.n_features_in_ == one.n_features_in_, "its model has other features")
                expect(
                    one.classes_.dtype == model.classes_.dtype and np.array_equal(one.classes_, model.classes_),
                    "its models have other classes",
                )
        case RejectingClassifier():
            inner, classes = our_parts(model.estimator_).classifier, model.classes_
            expect(bool(fitted_names(inner)), "its classifier is not fitted")
            expect(
                classes.dtype == inner.classes_.dtype and np.array_equal(classes, inner.classes_),
                "its classes are not the classes of its classifier",
            )
            checked_label(model.reject_label_, classes)
            is_semi = isinstance(parts_of(model).classifier, SemiSupervisedClassifier)
            expect(sizes["e"] in ((2, 4) if is_semi else (2,)), "there must be two measures of evidence")
            expect(bool(np.isin(model.cv_predictions_, classes).all()), "its predictions are no classes")
            places = model.judged_
            expect(places[0] >= 0 and bool((np.diff(places) > 0).all()), "its judged samples are not in order")
        case SemiSupervisedClassifier():
            check_semi_supervised(model, sizes)
        case NetworkFeatures():
            known = set(ESTIMATORS[NetworkFeatures])
            expect(names | {"output_"} == known, "it has attributes that no extractor has")
        case _:
            for kind, parameter, value, fields in REQUIRED:
                if isinstance(model, kind) and getattr(model, parameter) == value:
                    check_fields(model, fields, sizes)
            if hasattr(model, "classes_"):
                check_classes(model.classes_)
            if hasattr(model, "coef_"):
                # The intercept is a number if none was fitted.
                intercept, p, c = np.asarray(model.intercept_), sizes.get("p", 1), sizes["c"]
                fine = intercept.dtype.kind == "f" and intercept.shape in ((), (p,))
                expect(fine, "intercept_ has another shape")
                rows = (1, 2) if c == 2 else (c,)
                expect("p" not in sizes or p in rows, "coef_ must have one row for each class")
            expect(getattr(model, "n_components_", 0) in (0, sizes.get("k")), "n_components_ is another number")
            if holds_width(model):
                X = np.zeros((1, model.n_features_in_))
                try_out(model, X)
                if hasattr(model, "scalings_"):  # it also transforms
                    try_out(model, X, classify=False)


def check_semi_supervised(model: Any, sizes: dict[str, Any]) -> None:
    """Raise an error unless the graph and the supervised classifier fit the rest, and labels reach zeros."""
    graph, classes, inner = model.graph_, model.classes_, model.estimator_
    check_classes(classes)
    known: Any = getattr(inner, "classes_", None)
    expect(known is not None, "its classifier is not fitted")
    expect(
        classes.dtype == known.dtype and np.array_equal(classes, known),
        "its classes are not the classes of its classifier",
    )
    expect(getattr(inner, "n_features_in_", sizes["d"]) == sizes["d"], "its classifier has other features")
    expect((graph is None) == (model.method_ == "supervised"), "its method needs a graph, and no other does")
    n_rows = len(model.label_distributions_)
    # They have no samples if no label could be hidden.
    for name in ("hidden_rows_", "hidden_scores_", "hidden_evidence_"):
        expect(hasattr(model, name), f"it has no {name}")
    if len(model.hidden_rows_):
        hidden = {
            "hidden_rows_": "integers h",
            "hidden_scores_": "floats h c",
            "hidden_evidence_": "floats h e",
        }
        check_fields(model, hidden, sizes)
    for rows in (model.labelled_rows_, model.hidden_rows_):
        expect(bool((rows >= 0).all() and (rows < n_rows).all()), "there are no such rows")
    near, X = model.reach_, np.zeros((1, sizes["d"]))
    expect(near.axes.shape[0] == sizes["d"], "its reach has other features")
    expect(near.n_neighbors <= len(near.points), "its reach has fewer samples than neighbours")
    expect(bool(np.isfinite(near(X)).all()), "its reach is not finite")
    if graph is not None:
        check_fields(graph, PARTS[LabelGraph], sizes, finite=False)
        expect(bool(graph.rows.max() < n_rows), "its rows are not in range")
        expect(
            np.array_equal(graph.rows[graph.labelled], model.labelled_rows_),
            "its graph has labels of other rows",
        )
        expect(bool(np.isfinite(graph.spread_to(X)).all()), "its scores are not finite")


def check_pipeline(model: Any) -> None:
    """Raise an error unless steps fit each other, and zeros pass through them."""
    expect(
        isinstance(model.steps, list | tuple)
        and all(isinstance(step, list | tuple) and len(step) == 2 for step in model.steps),
        "steps are a list of names and estimators",
    )
    expect(all(type(name) is str for name, _ in model.steps), "names of steps are strings")
    model._validate_steps()
    parts, width = parts_of(model), None
    steps = [step for step in (*parts.transformers, parts.classifier) if step is not None]
    unfitted = [not fitted_names(step) for step in steps if get_tags(step).requires_fit]
    expect(unfitted == sorted(unfitted), "a step is not fitted, but one after it is")
    for step in steps:
        taken = getattr(step, "n_features_in_", None)
        expect(
            None in (taken, width) or taken == width, f"a step gives {width} values and the next takes {taken}"
        )
        if isinstance(step, KEEPS_WIDTH):
            width = getattr(step, "n_features_in_", width)
        else:
            width = getattr(step, "_n_features_out", None) if isinstance(step, HAS_WIDTH) else None
    for step in steps[:-1]:  # alone they may return NaN, but no step accepts it
        check_fields(step, dict.fromkeys(("mean_", "min_", "scale_"), "floats d ?"))
    # Begin at the first step with arrays that prove its number of features. Other steps can claim any number.
    steps = list(dropwhile(lambda step: not holds_width(step), steps))
    X = np.zeros((1, steps[0].n_features_in_ if steps else 0))
    for step in steps:
        # This kernel may not accept what zeros have become. It was tried with samples of its own.
        if not fitted_names(step) or gram_bytes(step) > MAX_TRIAL or getattr(step, "kernel", None) == "poly":
            return
        X = try_out(step, X, classify=step is steps[-1])


def holds_width(model: Any) -> bool:
    """Return whether arrays of a fitted model prove its number of features, so that zeros can be made."""
    wide = [name for name, kind in ESTIMATORS[type(model)].items() if " d" in kind]
    return hasattr(model, "_dictionary") or any(getattr(model, name, None) is not None for name in wide)


def gram_bytes(model: Any) -> int:
    """Return the bytes of the Gram matrix that a model needs to code samples."""
    record = getattr(model, "_dictionary", None)
    if record is None:
        return 0
    # Ridge codes need the smaller one of D D' and D'D, and those of ProCRC no more.
    has_no_pairs = isinstance(record.coder, Ridge | Collaborative)
    side = min(record.atoms.shape) if has_no_pairs else len(record.atoms)
    return int(8 * side**2)


def try_out(model: Any, X: Array, *, classify: bool = True) -> Array:
    """Return transformed samples. If the model classifies, check its scores and predictions instead."""
    model = copy(model)
    vars(model).pop("_sklearn_output_config", None)  # always arrays, because pandas may not be installed
    if classify and hasattr(model, "predict"):
        if hasattr(model, "decision_function"):
            expect(bool(np.isfinite(model.decision_function(X)).all()), "its scores are not finite")
        expect(len(model.predict(X)) == len(X), "it does not predict")
        return X
    return np.asarray(model.transform(X)) if hasattr(model, "transform") else X
