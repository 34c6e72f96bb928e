"""Models as trees of plain values: what a header can say, and nothing that could run.

None, truth values, integers, finite floats and strings stand for themselves. All else is {kind: content}:

    {"list": [...]}, {"tuple": [...]}, {"dict": [[key, value], ...]}, {"float": "nan" | "inf" | "-inf"}
    {"array": number}, {"scalar": number}     of the file's arrays; a NumPy scalar is an array without axes
    {"strings": [...]}                        an array of Python's strings
    {"estimator": {"name": ..., "params": {...}, "state": {...}}}
    {"part": {"name": ..., "fields": {...}}}

Names of estimators and parts are those of the tables below.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import numpy as np
import sklearn

import ledl
from ledl.arrays import Array
from ledl.persistence._checks import check_estimator, check_part
from ledl.persistence._format import ModelFileError, check_array

ESTIMATORS = {
    **{
        name: f"ledl.estimators:{name}"
        for name in (
            "CRCClassifier",
            "CSDLClassifier",
            "DKSVDClassifier",
            "KSVD",
            "LCKSVDClassifier",
            "LEDLClassifier",
            "SRCClassifier",
        )
    },
    "LEDLClassifierCV": "ledl.model_selection:LEDLClassifierCV",
    "PixelFeatures": "ledl.features:PixelFeatures",
    "RejectingClassifier": "ledl.rejection:RejectingClassifier",
    "ResNetFeatures": "ledl.features:ResNetFeatures",
    "LabelBinarizer": "sklearn.preprocessing:LabelBinarizer",
    "LinearDiscriminantAnalysis": "sklearn.discriminant_analysis:LinearDiscriminantAnalysis",
    "LinearSVC": "sklearn.svm:LinearSVC",
    "LogisticRegression": "sklearn.linear_model:LogisticRegression",
    "MinMaxScaler": "sklearn.preprocessing:MinMaxScaler",
    "Normalizer": "sklearn.preprocessing:Normalizer",
    "PCA": "sklearn.decomposition:PCA",
    "Pipeline": "sklearn.pipeline:Pipeline",
    "RidgeClassifier": "sklearn.linear_model:RidgeClassifier",
    "StandardScaler": "sklearn.preprocessing:StandardScaler",
}
# With the names of what they are made of.
PARTS = {
    "IdentitySubspace": ("ledl.subspace:IdentitySubspace", ()),
    "KernelSpace": ("ledl.subspace:KernelSpace", ("kernel", "basis", "coordinates")),
    "PairwiseKernel": (
        "ledl.estimators._kernels:PairwiseKernel",
        ("kernel", "parameters", "normalize", "training", "inverse_norms"),
    ),
    "PrecomputedKernel": ("ledl.estimators._kernels:PrecomputedKernel", ()),
    "Preprocessing": (
        "ledl.features:Preprocessing",
        ("size", "resize", "resample", "channels", "scale", "mean", "std"),
    ),
    "RidgeCoder": ("ledl.coding:RidgeCoder", ("atoms", "_projection")),
    "RowSpace": ("ledl.subspace:RowSpace", ("basis",)),
    "Stream": (
        "ledl.solvers.stream:Stream",
        ("seed", "n_batches", "n_samples", "G", "P", "square", "class_weights"),
    ),
}
# Parameters that belong to a machine and not to a model: where it works, how much it may take, which folders it
# writes to. Somebody else's file must not decide that.
OF_THE_MACHINE = {"batch_size", "cache", "checkpoint", "device", "max_pixels", "memory", "n_jobs", "progress"}
# Attributes that are not the model: what watches a fit, what the last call met, a network that is loaded.
NOT_THE_MODEL = {
    "_callback_fit_ctx",
    "_loaded",
    "_metadata_request",
    "_parent_callback_ctx",
    "_skl_callbacks",
    "_skl_callbacks_to_teardown",
    "skipped_",
}
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
MAX_DEPTH = 32
MAX_INT = 2**63
# Estimators and parts of a file, each of which is tried.
MAX_OBJECTS = 1000


class Encoder:
    """Trees of values; the arrays in them, each once, are collected in `arrays`."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any, where: str, depth: int = 0) -> Any:
        """The tree of a value, or an error that says what `where` is and why it cannot be stored."""
        if depth > MAX_DEPTH:
            raise refusal(where, f"lies more than {MAX_DEPTH} levels deep, or within itself", "Flatten it")
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return self._integer(value, where)
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind in (list, tuple):
            items = [self.encode(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
            return {kind.__name__: items}
        if kind is dict:
            return {"dict": [self._item(key, value[key], where, depth) for key in value]}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), where)}
        if kind in (np.ndarray, np.memmap):
            return (
                self._strings(value, where) if value.dtype.kind == "O" else {"array": self._array(value, where)}
            )
        return self._object(value, where, depth)

    def _integer(self, value: int, where: str) -> int:
        if not -MAX_INT <= value < MAX_INT:
            raise refusal(where, "is an integer of more than 64 bits", "Give a smaller one")
        return value

    def _item(self, key: Any, value: Any, where: str, depth: int) -> list[Any]:
        if type(key) not in (bool, int, float, str) and not isinstance(key, np.generic):
            raise refusal(where, f"has a key of type {type(key).__name__}", "Use strings or numbers as keys")
        return [
            self.encode(key, f"a key of {where}", depth + 1),
            self.encode(value, f"{where}[{key!r}]", depth + 1),
        ]

    def _array(self, array: Array, where: str) -> int:
        try:
            check_array(array)
        except ModelFileError as error:
            raise refusal(where, str(error)) from None
        if id(array) not in self._numbers:
            self._numbers[id(array)] = len(self.arrays)
            self.arrays.append(array)  # which also keeps its id from being given to another
        return self._numbers[id(array)]

    def _strings(self, array: Array, where: str) -> Any:
        values = array.tolist()
        if array.ndim != 1 or not all(type(value) is str for value in values):
            raise refusal(
                where,
                "is an array of Python objects that are not all strings",
                "Convert it to numbers or strings with astype",
            )
        return {"strings": values}

    def _object(self, value: Any, where: str, depth: int) -> Any:
        name = type(value).__name__
        if name in ESTIMATORS and type(value) is resolve_name(ESTIMATORS[name]):
            return {"estimator": self._estimator(name, value, where, depth)}
        if name in PARTS and type(value) is resolve_name(PARTS[name][0]):
            fields = {
                field: self.encode(getattr(value, field), f"{where}.{field}", depth + 1)
                for field in PARTS[name][1]
            }
            return {"part": {"name": name, "fields": fields}}
        raise refusal(where, *why_not(value))

    def _estimator(self, name: str, model: Any, where: str, depth: int) -> dict[str, Any]:
        names = type(model)._get_param_names()
        params = {
            param: self.encode(_path_as_text(getattr(model, param)), f"{where}.{param}", depth + 1)
            for param in names
            if param not in OF_THE_MACHINE
        }
        state = {}
        for attribute, value in vars(model).items():
            if attribute in names or attribute in NOT_THE_MODEL:
                continue
            if not may_be_state(type(model), attribute):
                raise refusal(
                    f"{where}.{attribute}",
                    "is no attribute that fit sets",
                    "Delete it, or give it to save as info",
                )
            state[attribute] = self.encode(value, f"{where}.{attribute}", depth + 1)
        return {"name": name, "params": params, "state": state}


def _path_as_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def refusal(where: str, reason: str, remedy: str = "") -> ModelFileError:
    """Why a value cannot be stored."""
    return ModelFileError(f"{where} cannot be stored: it {reason}.{f' {remedy}.' if remedy else ''}")


def why_not(value: Any) -> tuple[str, str]:
    """Reason and remedy for a value of a kind that files do not hold."""
    kind = type(value)
    bases = [base for base in kind.__mro__[1:] if base.__name__ in {*ESTIMATORS, *PARTS}]
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return f"is a {kind.__name__}, a generator of random numbers", "Set an int or None in its place"
    if callable(value) and not hasattr(value, "get_params"):
        return "is code, and model files hold none", "Use one of the kernels that have names, or precomputed"
    if bases:
        return (
            f"is of type {kind.__module__}.{kind.__name__}, which adds code to {bases[0].__name__}",
            f"Use {bases[0].__name__} itself",
        )
    if hasattr(value, "best_estimator_"):
        return f"is a search, {kind.__name__}, not a model", "Save its best_estimator_"
    if hasattr(value, "get_params"):
        return (
            f"is of type {kind.__name__}, an estimator that model files do not know",
            f"Known are {', '.join(ESTIMATORS)}",
        )
    return (
        f"is of type {kind.__module__}.{kind.__name__}, which model files do not know",
        "Convert it to numbers, strings, lists, dicts or NumPy arrays",
    )


def may_be_state(cls: type, name: str) -> bool:
    """Whether instances may have such an attribute beside their parameters.

    Nothing that the class itself has: a file must not replace methods, properties or constraints.
    """
    if not name.isidentifier() or name.startswith("__") or not (name.startswith("_") or name.endswith("_")):
        return False
    return name not in NOT_THE_MODEL and not hasattr(cls, name)


class Decoder:
    """Values of trees, from anybody: every error is a ModelFileError that says where."""

    def __init__(self, arrays: list[Array], versions: dict[str, str], advice: str) -> None:
        self.arrays, self.versions, self.advice = arrays, versions, advice
        self.used: set[int] = set()
        self._n_objects = 0
        self._kinds: dict[str, Callable[[Any, str, int], Any]] = {
            "list": self._list,
            "tuple": lambda items, where, depth: tuple(self._list(items, where, depth)),
            "dict": self._dict,
            "float": lambda name, where, depth: NOT_FINITE[name],
            "array": lambda number, where, depth: self._array(number),
            "scalar": lambda number, where, depth: self._scalar(number),
            "strings": lambda items, where, depth: _string_array(items),
            "estimator": self._estimator,
            "part": self._part,
        }

    def decode(self, node: Any, where: str, depth: int = 0) -> Any:
        """The value of a tree; `where` names it in errors."""
        if depth > MAX_DEPTH:
            raise ModelFileError(f"has more than {MAX_DEPTH} levels at {where:.200}. Save the model again")
        if type(node) is int and not -MAX_INT <= node < MAX_INT:
            raise ModelFileError(f"has an integer of more than 64 bits at {where:.200}. Save the model again")
        if node is None or type(node) in (bool, int, float, str):
            return node
        try:
            ((kind, content),) = node.items()
            make = self._kinds[kind]
            return make(content, where, depth)
        except ModelFileError:
            raise
        except Exception as error:  # what a stranger's values do to constructors and checks cannot be listed
            raise ModelFileError(
                f"has a {where:.200} that is not right: {_in_words(error):.500}. {self.advice}"
            ) from error

    def _list(self, items: Any, where: str, depth: int) -> list[Any]:
        _expect(type(items) is list, "a list is needed")
        return [self.decode(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(items)]

    def _dict(self, items: Any, where: str, depth: int) -> dict[Any, Any]:
        found = {}
        for item in self._pairs(items):
            key = self.decode(item[0], f"a key of {where}", depth + 1)
            _expect(isinstance(key, bool | int | float | str | np.generic), "keys are strings or numbers")
            found[key] = self.decode(item[1], f"{where}[{key!r:.50}]", depth + 1)
        return found

    def _pairs(self, items: Any) -> list[Any]:
        _expect(type(items) is list, "a list is needed")
        _expect(all(type(item) is list and len(item) == 2 for item in items), "pairs are needed")
        return list(items)

    def _array(self, number: Any) -> Array:
        _expect(type(number) is int and 0 <= number < len(self.arrays), f"there is no array {number!r:.50}")
        self.used.add(number)
        return self.arrays[number]

    def _scalar(self, number: Any) -> Any:
        array = self._array(number)
        _expect(array.ndim == 0, "one number is needed")
        return array[()]

    def _part(self, content: Any, where: str, depth: int) -> Any:
        name, fields = self._named(content, "fields", where, depth)
        self._expect_known(name, PARTS)
        path, known = PARTS[name]
        _expect(set(fields) == set(known), f"{name} has {', '.join(known) or 'no parts'}")
        cls = resolve_name(path)
        if name == "RidgeCoder":  # which is not made of its parts, but makes them
            part = cls.__new__(cls)
            vars(part).update(fields)
        else:
            part = cls(**fields)
        check_part(part)
        return part

    def _named(self, content: Any, key: str, where: str, depth: int) -> tuple[str, dict[str, Any]]:
        name, values = content["name"], content[key]
        _expect(type(name) is str and type(values) is dict, "a name and values are needed")
        self._n_objects += 1
        _expect(self._n_objects <= MAX_OBJECTS, f"it has more than {MAX_OBJECTS} estimators and their parts")
        _expect(all(n.isidentifier() for n in values), "names of attributes are words")
        return name, {n: self.decode(value, f"{where}.{n:.50}", depth + 1) for n, value in values.items()}

    def _estimator(self, content: Any, where: str, depth: int) -> Any:
        _expect(set(content) == {"name", "params", "state"}, "a name, parameters and attributes are needed")
        self._expect_known(content["name"], ESTIMATORS)
        name, params = self._named(content, "params", where, depth)
        _, state = self._named(content, "state", where, depth)
        cls = resolve_name(ESTIMATORS[name])
        for param in params:
            _expect(param not in OF_THE_MACHINE, f"{param} belongs to a machine and is not taken from files")
            if param not in cls._get_param_names():
                self._tell_unknown(f"{where:.200}: the parameter {param!r:.50} of {name}")
        for attribute in state:
            if not may_be_state(cls, attribute):
                self._tell_unknown(f"{where:.200}: the attribute {attribute!r:.50} of {name}")
        model = cls(**params)
        vars(model).update(state)
        check_estimator(model)
        return model

    def _expect_known(self, name: Any, table: dict[str, Any]) -> None:
        if type(name) is not str or name not in table:
            self._tell_unknown(f"{name!r:.50}")

    def _tell_unknown(self, what: str) -> None:
        raise ModelFileError(
            f"needs {what}, which ledl {ledl.__version__} with the scikit-learn at hand does not know; it was "
            f"written by {versions_in_words(self.versions)}. Use those versions or newer ones"
        )


def current_versions() -> dict[str, str]:
    """Of the packages here that models depend on."""
    return {"ledl": ledl.__version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}


def versions_in_words(versions: dict[str, str]) -> str:
    """Such as "ledl 1.0 with numpy 2.4"."""
    others = " and ".join(f"{name} {version}" for name, version in versions.items() if name != "ledl")
    return f"ledl {versions.get('ledl', 'of unknown version')}" + (f" with {others}" if others else "")


def _string_array(items: Any) -> Array:
    _expect(type(items) is list and all(type(item) is str for item in items), "strings are needed")
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _expect(fine: bool, message: str) -> None:
    if not fine:
        raise ValueError(message)


def _in_words(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__
