"""Define the datasets and methods of the comparison, and the results of the paper.

The methods are those of the paper, classics of scikit-learn, and those that learn from samples without labels,
too. A method is an estimator with a grid of at most twelve settings for cross-validation, and a wide grid if a
batched search makes many settings cheap. The grids come from the studies on training samples in
docs/defaults.md, those of the classics from common practice. No label of a test sample was used. Of equally
good settings the first is taken, so grids begin with the strongest regularisation.

This module imports no heavy package, because the help of the command line needs it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

Settings = Mapping[str, Any]

# The paper's table 1: classification rates in %.
PAPER_TABLE = {
    "yaleb": {"SRC": 79.1, "CRC": 79.2, "CSDL-SRC": 80.2, "LC-KSVD": 73.5, "LEDL": 81.3},
    "pie": {"SRC": 73.7, "CRC": 73.3, "CSDL-SRC": 77.4, "LC-KSVD": 67.1, "LEDL": 77.7},
    "ucmerced": {"SRC": 80.4, "CRC": 80.7, "CSDL-SRC": 80.5, "LC-KSVD": 79.4, "LEDL": 80.7},
    "aid": {"SRC": 71.6, "CRC": 72.6, "CSDL-SRC": 71.6, "LC-KSVD": 70.2, "LEDL": 72.9},
    "caltech101_pyramid": {"SRC": 89.4, "CRC": 89.4, "CSDL-SRC": 89.4, "LC-KSVD": 88.3, "LEDL": 90.1},
    "usps": {"SRC": 78.4, "CRC": 77.9, "CSDL-SRC": 78.8, "LC-KSVD": 71.1, "LEDL": 81.1},
}

# In the order of the paper's table. It has no row for Caltech101, pool5.
PAPER_DATASETS = ("yaleb", "pie", "ucmerced", "aid", "caltech101_pyramid", "caltech101", "usps")
DATASET_TITLES = {
    "digits": "digits",
    "yaleb": "Extended YaleB",
    "pie": "CMU PIE",
    "ucmerced": "UC Merced",
    "aid": "AID",
    "caltech101_pyramid": "Caltech101, pyramid",
    "caltech101": "Caltech101, pool5",
    "usps": "USPS",
}


@dataclass(frozen=True)
class Method:
    """Describe a method: an estimator and the settings to choose from.

    Parameters
    ----------
    name : str
        Name in commands and plans.
    title : str
        Name in tables.
    steps : sequence of tuples (str, dict)
        Import paths of the estimators, ``"module:name"``, with their parameters. Several make a pipeline.
    grid : dict
        Names of parameters with the values to choose from.
    wide : dict, default=None
        Grid for ``select="wide"``. None means `grid`.
    column : str, default=""
        Name of its column in the paper's table 1.
    fixed : dict of dicts, default=None
        Settings by dataset, which replace any selection. The method then covers only these datasets.
    isotropic : bool, default=True
        Whether it depends only on the inner products of the samples, at all settings of its grid.
    chooses_for : str, default=""
        Name of the method whose settings it chooses itself, in `fit`. It then has no grid.
    unlabelled : bool, default=False
        Whether it learns from samples without labels, too. Its grid is then searched with hidden labels.
    fewest : int, default=1
        Least number of labelled samples of a class.
    estimator : estimator, default=None
        The estimator itself, in place of `steps`. `own_method` makes such a method.
    source : dict of str, default={}
        Digests of the estimator's code by module: results of other code are not taken for its own.

    Examples
    --------
    >>> from ledl.experiments import METHODS
    >>> METHODS["src"].make({"alpha": 0.25})
    SRCClassifier(alpha=0.25)
    """

    name: str
    title: str
    steps: Sequence[tuple[str, Settings]] = ()
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    wide: Mapping[str, Sequence[Any]] | None = None
    column: str = ""
    fixed: Mapping[str, Settings] | None = None
    isotropic: bool = True
    chooses_for: str = ""
    unlabelled: bool = False
    fewest: int = 1
    estimator: Any = None
    source: Mapping[str, str] = field(default_factory=dict)

    def grid_for(self, select: str) -> Mapping[str, Sequence[Any]]:
        """Return the grid to choose from.

        Parameters
        ----------
        select : {"cv", "wide"}
            Way to find settings, as in `Plan`.

        Returns
        -------
        dict
            Names of parameters with the values to choose from.
        """
        return self.wide if select == "wide" and self.wide is not None else self.grid

    def covers(self, dataset: str) -> bool:
        """Return whether there are settings for a dataset.

        Parameters
        ----------
        dataset : str
            Name of the dataset.

        Returns
        -------
        bool
            False if the method has fixed settings, and none for this dataset.
        """
        return self.fixed is None or dataset in self.fixed

    def make(self, settings: Settings | None = None, seed: int = 0) -> Any:
        """Return the estimator, or a pipeline, with these settings and defaults otherwise.

        Parameters
        ----------
        settings : dict, default=None
            Parameters to set. ``power`` is for the features: the estimator gets powers of them, as its kernel
            where that is linear, and from a first step otherwise.
        seed : int, default=0
            Value of ``random_state``, if there is such a parameter.

        Returns
        -------
        estimator
            An estimator that is not fitted.
        """
        steps = [resolve_name(path)(**params) for path, params in self.steps]
        if self.estimator is not None:
            from sklearn.base import clone

            estimator = clone(self.estimator)
        elif len(steps) == 1:
            estimator = steps[0]
        else:
            from sklearn.pipeline import make_pipeline

            estimator = make_pipeline(*steps)
        params = dict(settings or {})
        power = params.pop("power", 1.0)
        if self.estimator is not None:  # values of a user's grid may be estimators, which stay as they are
            params = {name: clone(value, safe=False) for name, value in params.items()}
        seeded(estimator.set_params(**params), seed, params)
        if power == 1:
            return estimator
        if hasattr(type(estimator), "dictionary_") and estimator.get_params().get("kernel") == "linear":
            return estimator.set_params(kernel=power)
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import FunctionTransformer

        # A user's pipeline stays whole: it may have a cache, or a step of this name.
        is_ours = self.estimator is None and isinstance(estimator, Pipeline)
        last = estimator.steps if is_ours else [("estimator", estimator)]
        return Pipeline(
            [("power", FunctionTransformer(resolve_name("ledl.subspace:FeatureMap")(power))), *last]
        )


def _powers(*exponents: float) -> list[float]:
    return [2.0**exponent for exponent in exponents]


def _weights(label: int, code: int, alpha: int, **others: float) -> Settings:
    return {"label_weight": 2.0**label, "code_weight": 2.0**code, "alpha": 2.0**alpha, **others}


# Section 4 of the paper: lambda, omega and epsilon, adjusted there "to achieve the highest classification
# rates". At Caltech101's epsilon a code has about 500 non-zeros, and labels settle long before its last digits.
# So its gap is looser than the default, and every run measures how many labels agree with the default's.
PAPER_WEIGHTS = {
    "yaleb": _weights(-3, -11, -8),
    "pie": _weights(-3, -11, -8),
    "ucmerced": _weights(0, -9, -6),
    "aid": _weights(-6, -14, -12),
    "caltech101": _weights(-4, -13, -14, transform_tol=1e-4),
    "caltech101_pyramid": _weights(-4, -13, -14, transform_tol=1e-4),
    "usps": _weights(-4, -8, -5),
}


def _ours(path: str, **params: Any) -> list[tuple[str, Settings]]:
    return [(f"ledl.estimators:{path}", params)]


def _classic(path: str, *before: tuple[str, Settings], **params: Any) -> list[tuple[str, Settings]]:
    """Return steps of scikit-learn on samples of norm 1, as the other methods have them."""
    return [("sklearn.preprocessing:Normalizer", {}), *before, (f"sklearn.{path}", params)]


def _graph(path: str, **params: Any) -> list[tuple[str, Settings]]:
    """Return steps with labels that spread over scikit-learn's graph of neighbours."""
    return [(f"sklearn.semi_supervised:{path}", {"kernel": "knn", "n_neighbors": 10, **params})]


def _self_training(path: str, max_rounds: int = 10, **params: Any) -> list[tuple[str, Settings]]:
    """Return steps with a classifier of scikit-learn that learns from its own sure answers, too."""
    taken = {"path": f"sklearn.{path}", "max_rounds": max_rounds, **params}
    return [("ledl.experiments._rivals:self_training", taken)]


_KSVD_GRID: dict[str, list[Any]] = {"n_nonzero_coefs": [5, 10, 20, 40], "label_weight": _powers(-9, -6, -3)}


def _alphas(first: int, *, wide: bool = False) -> dict[str, list[float]]:
    """Return twelve powers of two from 2^first down, or, for a wide grid, 24 of the square root of two."""
    return {"alpha": _powers(*(first - i / (1 + wide) for i in range(12 * (1 + wide))))}


_ALL = [
    Method("src", "SRC", _ours("SRCClassifier"), _alphas(-1), _alphas(-1, wide=True), column="SRC"),
    Method("crc", "CRC", _ours("CRCClassifier"), _alphas(1), _alphas(1, wide=True), column="CRC"),
    Method(
        "crc-regularized",
        "CRC, regularised",
        _ours("CRCClassifier", rule="regularized"),
        _alphas(1),
        _alphas(1, wide=True),
    ),
    Method(
        "procrc",
        "ProCRC",
        _ours("ProCRCClassifier"),
        {"alpha": _powers(1, -3, -7, -11), "agreement": _powers(3, -2, -7)},
    ),
    Method("csdl", "CSDL-SRC", _ours("CSDLClassifier"), _alphas(-1), column="CSDL-SRC"),
    Method("dksvd", "D-KSVD", _ours("DKSVDClassifier"), _KSVD_GRID),
    Method("lcksvd", "LC-KSVD", _ours("LCKSVDClassifier"), _KSVD_GRID, column="LC-KSVD"),
    Method(
        "ledl",
        "LEDL",
        _ours("LEDLClassifier"),
        {"alpha": _powers(-4, -5, -6, -7, -8, -10), "label_weight": _powers(-3, 2)},
        {
            "alpha": _powers(*range(-3, -11, -1)),
            "label_weight": _powers(-6, -3, 0, 2),
            "code_weight": _powers(-14, -11, -8),
        },
        column="LEDL",
    ),
    Method(
        "ledl-cv",
        "LEDL (auto-tuned)",
        [("ledl.model_selection:LEDLClassifierCV", {})],
        isotropic=False,
        chooses_for="ledl",
    ),
    Method("ledl-paper", "LEDL, paper's weights", _ours("LEDLClassifier"), column="LEDL", fixed=PAPER_WEIGHTS),
    Method(
        "logistic",
        "logistic regression",
        _classic("linear_model:LogisticRegression", max_iter=1000),
        {"logisticregression__C": _powers(*range(-2, 22, 2))},
    ),
    Method("linear-svm", "linear SVM", _classic("svm:LinearSVC"), {"linearsvc__C": _powers(*range(-4, 8))}),
    Method(
        "rbf-svm",
        "RBF SVM",
        _classic("svm:SVC"),
        {"svc__C": _powers(0, 4, 8), "svc__gamma": _powers(-4, -2, 0, 2)},
    ),
    Method(
        "ridge",
        "ridge",
        _classic("linear_model:RidgeClassifier"),
        {"ridgeclassifier__alpha": _powers(*range(2, -10, -1))},
    ),
    # With fewer samples than features LDA needs shrinkage, and d^3 operations unless it gets the coordinates of
    # the samples in their own span. There shrinkage="auto", which scales each coordinate to variance 1 first,
    # makes no sense, so it is 0.5.
    Method(
        "lda",
        "LDA, shrinkage",
        _classic(
            "discriminant_analysis:LinearDiscriminantAnalysis",
            ("sklearn.decomposition:PCA", {"n_components": 0.999999, "svd_solver": "full"}),
            solver="lsqr",
            shrinkage=0.5,
        ),
        {"lineardiscriminantanalysis__shrinkage": [1.0, 0.75, *_powers(*range(-1, -11, -1))]},
        fewest=2,
    ),
    Method(
        "1-nn",
        "nearest neighbour",
        _classic("neighbors:KNeighborsClassifier", n_neighbors=1),
        {"kneighborsclassifier__metric": ["euclidean", "manhattan"]},
        isotropic=False,
    ),
    Method(
        "ledl-semi",
        "LEDL, semi-supervised",
        [("ledl.semi_supervised:SemiSupervisedClassifier", {})],
        isotropic=False,
        chooses_for="ledl",
        unlabelled=True,
    ),
    # scikit-learn's. Each gets the coordinates of the samples that ours has (`ledl.experiments._rivals`).
    Method(
        "label-spreading",
        "LabelSpreading",
        _graph("LabelSpreading", alpha=0.99, max_iter=100),
        {"alpha": [0.99, 0.8, 0.2], "n_neighbors": [10, 5, 20]},
        isotropic=False,
        unlabelled=True,
    ),
    Method(
        "label-propagation",
        "LabelPropagation",
        _graph("LabelPropagation", max_iter=200),
        {"n_neighbors": [10, 5, 20]},
        isotropic=False,
        unlabelled=True,
    ),
    Method(
        "self-training-lda",
        "self-training, LDA",
        _self_training("discriminant_analysis:LinearDiscriminantAnalysis", solver="lsqr", shrinkage=0.5),
        {"threshold": [0.75, 0.9, 0.99], "estimator__shrinkage": [0.5, 0.9, 0.1]},
        isotropic=False,
        unlabelled=True,
        fewest=2,
    ),
    # Few candidates and steps: a fit on 10,000 samples with guessed labels of 100 classes costs seconds.
    Method(
        "self-training-logistic",
        "self-training, logistic",
        _self_training("linear_model:LogisticRegression", 5, C=2.0**8, max_iter=30),
        {"threshold": [0.75, 0.9], "estimator__C": _powers(8, 4, 12)},
        isotropic=False,
        unlabelled=True,
    ),
]
METHODS = {method.name: method for method in _ALL}


def seeded(estimator: Any, seed: int, given: Container[str] = ()) -> Any:
    """Return an estimator after its `random_state`, and those of its parts, were set, but for those `given`."""
    drawn = [name for name in estimator.get_params() if name.split("__")[-1] == "random_state"]
    return estimator.set_params(**{name: seed for name in drawn if name not in given})


def own_method(given: Any) -> Method:
    """Return the method of a user: an estimator of any package, with the grid of a `GridSearchCV` around it.

    Parameters
    ----------
    given : str, estimator or tuple (str, estimator)
        ``"module:name"`` of a class, of an estimator, or of a function that returns one; or an estimator, with
        or without a name for tables. A `GridSearchCV` stands for its estimator and its grid: folds and measure
        are those of the comparison. Any other estimator has no grid, and is taken as it is.

    Returns
    -------
    Method
    """
    from sklearn.base import clone, is_regressor

    from ledl.code_digests import code_digests  # with NumPy, which help does without

    name, estimator = given if isinstance(given, tuple | list) and len(given) == 2 else ("", given)
    if not isinstance(name, str):
        raise ValueError(f"The method {given!r} has the name {name!r}. Give a text, as in ('mine', estimator).")
    is_named = isinstance(estimator, str)
    if is_named:
        name = estimator
        try:
            estimator = resolve_name(estimator)
        except Exception as error:  # anything that a module of a user raises
            raise ValueError(
                f"The method {name!r} cannot be imported: {type(error).__name__}: {error}. Give module:Class, "
                f"with the module in this folder or installed, or one of {', '.join(METHODS)}."
            ) from error
    what = name or getattr(estimator, "__name__", repr(estimator))
    is_maker = is_named and callable(estimator) and not hasattr(estimator, "get_params")
    if is_maker or isinstance(estimator, type):
        try:
            estimator = estimator()
        except TypeError as error:
            raise ValueError(
                f"The method {what!r} cannot be made without arguments: {error}. Give the estimator itself."
            ) from error
    missing = [one for one in ("fit", "predict", "get_params", "set_params") if not hasattr(estimator, one)]
    if missing or is_regressor(estimator):
        lacks = f"has no {' and no '.join(missing)}" if missing else "predicts numbers, not classes"
        raise ValueError(
            f"The method {what!r} is a {type(estimator).__name__}, which {lacks}. Give a scikit-learn "
            "classifier: a class with ClassifierMixin and BaseEstimator of sklearn.base among its bases."
        )
    grid: Any = {}
    if hasattr(estimator, "param_grid"):
        grid, estimator = estimator.param_grid, estimator.estimator
        known, tables = estimator.get_params(), [grid] if isinstance(grid, Mapping) else grid
        # A table that replaces a step may have parameters of the new one.
        keys = {key for table in tables for key in table if key.rpartition("__")[0] not in table}
        for unknown in sorted(keys - known.keys()):
            raise ValueError(
                f"The grid of {name or type(estimator).__name__} has {unknown!r}, which is no parameter of "
                f"{type(estimator).__name__}. Its parameters are {', '.join(known)}."
            )
        if any("power" in table for table in tables):
            raise ValueError(
                f"The grid of {name or type(estimator).__name__} has 'power', but that is the power of the "
                "features, which every method may choose. Put the estimator into a Pipeline, where its "
                "parameter is STEP__power."
            )
    try:
        clone(estimator)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"The method {what!r} cannot be copied by scikit-learn's clone: {error}.") from error
    kind, attribute = type(estimator).__name__, name.rpartition(":")[2]
    name = name or kind
    title = name if ":" not in name else kind if attribute == kind else f"{kind} ({attribute})"
    source = code_digests(estimator, grid)
    return Method(name, title, grid=grid, isotropic=False, estimator=estimator, source=source)


def title_of(dataset: str) -> str:
    """Return the name of a dataset, or of a file with one, in tables."""
    return DATASET_TITLES.get(dataset, Path(dataset).stem)


# What `ledl reproduce` compares, and what `ledl reproduce semi` does.
SUPERVISED = tuple(method.name for method in _ALL if not method.unlabelled)
SEMI_SUPERVISED = (*(method.name for method in _ALL if method.unlabelled), "ledl-cv", "lda")
