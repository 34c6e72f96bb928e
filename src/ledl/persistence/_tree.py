"""Turn models into trees of plain values, which cannot run anything, and back.

None, truth values, integers, finite floats and strings stand for themselves. Other values are {kind: content}:

    {"list": [...]}, {"tuple": [...]}, {"dict": [[key, value], ...]}, {"float": "nan" | "inf" | "-inf"}
    {"array": number}, {"scalar": number}     arrays of the file; a NumPy scalar is an array without axes
    {"strings": [...]}                        an array of Python strings
    {"estimator": {"name": ..., "params": {...}, "state": {...}}}
    {"part": {"name": ..., "fields": {...}}}
    {"made": null | type of floats}           an attribute that follows from others of the estimator

Names of estimators and parts are in the tables of `ledl.persistence._checks`. A file has every array once, even
if several values refer to it, and it is one object again after loading.
"""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import numpy as np
import sklearn

import ledl
from ledl.arrays import Array
from ledl.coding import MAX_KEPT
from ledl.dictionary import FittedDictionary
from ledl.persistence._checks import (
    ESTIMATORS,
    LATER_FIELDS,
    MADE,
    PARTS,
    check_estimator,
    check_part,
    expect,
    make,
)
from ledl.persistence._format import MAX_STRING, ModelFileError, reason_against, require

# Parameters that belong to a machine and not to a model: where it works, how much it may use, and folders where
# it writes. A file from somebody else must not decide that.
OF_THE_MACHINE = {"batch_size", "cache", "checkpoint", "device", "max_pixels", "memory", "n_jobs", "progress"}
# Attributes that are not part of the model: observers of a fit, results of the last call, a loaded network.
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
# Installed packages that models depend on.
VERSIONS = {"ledl": ledl.__version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}
MAX_DEPTH = 32
MAX_INT = 2**63
# Limit for estimators and parts in a file, because each of them is tried.
MAX_OBJECTS = 1000
# Limit for bytes of attributes that loading makes from other attributes: this many, plus this many times the
# bytes of the arrays. A file holds the atoms as users see them only if that is not enough.
MAX_MADE, TIMES_MADE = 2**30, 8
LARGE = {"components_", "dual_components_"}


def may_be_state(cls: type, name: str) -> bool:
    """Return whether instances may have this attribute in addition to their parameters.

    Attributes of the class itself are excluded: a file must not replace methods, properties or constraints.
    """
    is_fitted = name.isidentifier() and (name.startswith("_") or name.endswith("_"))
    return is_fitted and not name.startswith("__") and name not in NOT_THE_MODEL and not hasattr(cls, name)


class WorkedOut(NamedTuple):
    """Hold what a model has worked out from its atoms, by their ids: trying it out does not do that again.

    What a trial works out is added, for the model's next predictions.
    """

    kept: dict[int, dict[Any, Any]]  # of its dictionaries
    components: dict[int, Array]  # the atoms as users see them


class Encoder:
    """Makes trees of values. The list `arrays` collects the arrays in them, each once."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.worked_out = WorkedOut({}, {})
        self._numbers: dict[int, int] = {}
        self._n_made = 0

    def encode(self, value: Any, where: str, depth: int = 0) -> Any:
        """Return the tree of a value. Errors call it `where`, and say why it cannot be stored."""
        kind = type(value)
        deep = "lies more than 32 levels deep, or contains itself"
        check_storable(depth <= MAX_DEPTH, where, deep, "Flatten it")
        is_small = kind is not int or -MAX_INT <= value < MAX_INT
        check_storable(is_small, where, "is an integer of more than 64 bits", "Give a smaller one")
        if value is None or kind in (bool, str, int) or (kind is float and math.isfinite(value)):
            return value
        if kind is float:
            return {"float": str(value)}
        if kind in (list, tuple):
            items = enumerate(value)
            return {kind.__name__: [self.encode(item, f"{where}[{i}]", depth + 1) for i, item in items]}
        if kind is dict:
            pairs = []
            for key, item in value.items():
                is_key = type(key) in (bool, int, float, str) or isinstance(key, np.generic)
                what = f"has a key of type {type(key).__name__}"
                check_storable(is_key, where, what, "Use strings or numbers as keys")
                name = self.encode(key, f"a key of {where}", depth + 1)
                pairs.append([name, self.encode(item, f"{where}[{key!r}]", depth + 1)])
            return {"dict": pairs}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), where)}
        if kind in (np.ndarray, np.memmap) and value.dtype.kind != "O":
            return {"array": self._array(value, where)}
        if kind is np.ndarray:
            strings = value.tolist()
            check_storable(
                value.ndim == 1 and all(isinstance(item, str) for item in strings),
                where,
                "is an array of Python objects that are not all strings",
                "Convert it to numbers or strings with astype",
            )
            return {"strings": [str.__str__(item) for item in strings]}  # of NumPy, too: as plain ones
        if kind in ESTIMATORS:
            return {"estimator": self._estimator(value, where, depth + 1)}
        if kind is FittedDictionary:
            self.worked_out.kept[id(value.atoms)] = value.kept
        if kind in PARTS:
            values = {name: getattr(value, name) for name in PARTS[kind]}
            fields = {name: self.encode(one, f"{where}.{name}", depth + 1) for name, one in values.items()}
            return {"part": {"name": kind.__name__, "fields": fields}}
        raise ModelFileError(f"{where} cannot be stored: it {why_not(value)}.")

    def _array(self, array: Array, where: str) -> int:
        is_text = array.dtype.kind == "U" and 0 < array.dtype.itemsize <= 4 * MAX_STRING
        reason = reason_against("uint32" if is_text else array.dtype.name, array.shape)
        check_storable(not reason, where, reason)
        if id(array) not in self._numbers:
            self._numbers[id(array)] = len(self.arrays)
            self.arrays.append(array)  # so that no other array gets its id
        return self._numbers[id(array)]

    def _estimator(self, model: Any, where: str, depth: int) -> dict[str, Any]:
        kind, params, state = type(model), {}, {}
        names = kind._get_param_names()
        for name in names:
            if name not in OF_THE_MACHINE:
                value = getattr(model, name)
                value = os.fspath(value) if isinstance(value, os.PathLike) else value
                params[name] = self.encode(value, f"{where}.{name}", depth)
        for name, value in vars(model).items():
            if name in names or name in NOT_THE_MODEL:
                continue
            check_storable(
                may_be_state(kind, name),
                f"{where}.{name}",
                "is not an attribute that fit sets",
                "Delete it, or give it to save as info",
            )
            if name in MADE.get(kind, set()) and self._is_made(name, value, vars(model)):
                state[name] = {"made": str(value.dtype) if name in LARGE else None}
                if name in LARGE:
                    self.worked_out.components[id(model._dictionary.atoms)] = value
            else:
                state[name] = self.encode(value, f"{where}.{name}", depth)
        return {"name": kind.__name__, "params": params, "state": state}

    def _is_made(self, name: str, value: Any, state: dict[str, Any]) -> bool:
        """Return whether loading can make an attribute from others within its limit of memory."""
        record = state.get("_dictionary")
        if not isinstance(record, FittedDictionary):
            return False
        if name not in LARGE:
            return name == "_dictionary" or (
                record.classes is not None and np.array_equal(value, make(name, state, math.inf))
            )
        self._n_made += value.nbytes
        n_stored = sum(array.nbytes for array in self.arrays)
        return bool(self._n_made <= MAX_MADE / 2 + (TIMES_MADE / 2 - 1) * n_stored)


def check_storable(fine: bool, where: str, reason: str, remedy: str = "") -> None:
    """Raise an error that says why a value cannot be stored, unless it is fine."""
    if not fine:
        raise ModelFileError(f"{where} cannot be stored: it {reason}.{f' {remedy}.' if remedy else ''}")


def why_not(value: Any) -> str:
    """Return reason and remedy for a value of a kind that files do not hold."""
    kind = type(value)
    base = next((base for base in kind.__mro__[1:] if base in ESTIMATORS or base in PARTS), None)
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return f"is a {kind.__name__}, a generator of random numbers. Use an int or None instead"
    if callable(value) and not hasattr(value, "get_params"):
        return "is code, and model files hold none. Use one of the kernels that have names, or precomputed"
    if base is not None:
        name = f"{kind.__module__}.{kind.__name__}"
        return f"is of type {name}, which adds code to {base.__name__}. Use {base.__name__} itself"
    if hasattr(value, "get_n_splits"):
        return f"is a {kind.__name__}, which only training needs. Set it to a number of folds, such as 5"
    if hasattr(value, "best_estimator_"):
        return f"is a search, {kind.__name__}, not a model. Save its best_estimator_"
    if hasattr(value, "get_params"):
        known = ", ".join(one.__name__ for one in ESTIMATORS)
        return f"is of type {kind.__name__}, an estimator that model files do not know. Known are {known}"
    return (
        f"is of type {kind.__module__}.{kind.__name__}, which model files do not know. Convert it to numbers, "
        "strings, lists, dicts or NumPy arrays"
    )


class Decoder:
    """Makes values from trees that anybody wrote. Every error is a ModelFileError that says where."""

    def __init__(
        self, arrays: list[Array], versions: dict[str, str], advice: str, worked_out: WorkedOut | None = None
    ) -> None:
        self.arrays, self.versions, self.advice = arrays, versions, advice
        self.worked_out = worked_out or WorkedOut({}, {})
        self.used: set[int] = set()
        self._n_objects = 0
        self._room = MAX_MADE + TIMES_MADE * sum(array.nbytes for array in arrays)
        self._to_keep = MAX_MADE  # bytes of what trials may leave behind to predict faster
        self._records: list[FittedDictionary] = []

    def decode(self, node: Any, where: str, depth: int = 0) -> Any:
        """Return the value of a tree. Errors call it `where`."""
        if depth > MAX_DEPTH:
            raise ModelFileError(f"has more than {MAX_DEPTH} levels at {where:.200}. Save the model again")
        if type(node) is int and not -MAX_INT <= node < MAX_INT:
            raise ModelFileError(f"has an integer of more than 64 bits at {where:.200}. Save the model again")
        if node is None or type(node) in (bool, int, float, str):
            return node
        depth += 1
        try:
            ((kind, content),) = node.items()
            match kind, content:
                case "float", str():
                    return NOT_FINITE[content]
                case "array" | "scalar", _:
                    expect(
                        type(content) is int and 0 <= content < len(self.arrays),
                        f"there is no array {content!r:.50}",
                    )
                    self.used.add(content)
                    array = self.arrays[content]
                    expect(kind == "array" or array.ndim == 0, "one number is needed")
                    return array if kind == "array" else array[()]
                case "strings", list():
                    expect(all(type(item) is str for item in content), "strings are needed")
                    return np.array(content, dtype=object)
                case "list" | "tuple", list():
                    items = [self.decode(item, f"{where}[{i}]", depth) for i, item in enumerate(content)]
                    return items if kind == "list" else tuple(items)
                case "dict", list():
                    found = {}
                    for name, item in content:
                        key = self.decode(name, f"a key of {where}", depth)
                        expect(
                            isinstance(key, bool | int | float | str | np.generic),
                            "keys are strings or numbers",
                        )
                        found[key] = self.decode(item, f"{where}[{key!r:.50}]", depth)
                    return found
                case "part", {"name": name, "fields": dict(nodes)}:
                    cls = self._known(name, PARTS)
                    missing = set(PARTS[cls]) - set(nodes)
                    expect(
                        set(nodes) <= set(PARTS[cls]) and missing <= LATER_FIELDS.get(cls, set()),
                        f"{name} is made of other fields",
                    )
                    values = self._values(nodes, where, depth)
                    if cls is FittedDictionary:
                        values["kept"] = self.worked_out.kept.get(id(values["atoms"]), {})
                    part = cls(**values)
                    check_part(part)
                    self._records += [part] * (cls is FittedDictionary)
                    return part
                case "estimator", {"name": name, "params": dict(params), "state": dict(state)}:
                    return self._estimator(name, params, state, where, depth)
            raise ValueError(f"there is no kind {kind!r:.50} with this content")
        except ModelFileError:
            raise
        except Exception as error:  # values from strangers can raise anything in constructors and checks
            reason = str(error).rstrip(".") or type(error).__name__
            raise ModelFileError(f"has an invalid {where:.200}: {reason:.500}. {self.advice}") from error

    def _known(self, name: Any, table: dict[type, Any]) -> Any:
        """Return the class with this name in a table."""
        found = next((kind for kind in table if kind.__name__ == name), None)
        self._check_known(found is not None, f"{name!r:.50}")
        self._n_objects += 1
        expect(self._n_objects <= MAX_OBJECTS, f"it has more than {MAX_OBJECTS} estimators and their parts")
        return found

    def _values(self, nodes: dict[str, Any], where: str, depth: int) -> dict[str, Any]:
        return {name: self.decode(node, f"{where}.{name:.50}", depth) for name, node in nodes.items()}

    def _estimator(
        self, name: Any, params: dict[str, Any], nodes: dict[str, Any], where: str, depth: int
    ) -> Any:
        cls, n_before = self._known(name, ESTIMATORS), len(self._records)
        made = {n: node["made"] for n, node in nodes.items() if type(node) is dict and set(node) == {"made"}}
        params = self._values(params, where, depth)
        state = self._values(nodes | dict.fromkeys(made), where, depth)
        for param in params:
            expect(param not in OF_THE_MACHINE, f"{param} belongs to a machine and is not taken from files")
            is_known = param in cls._get_param_names()
            self._check_known(is_known, f"{where:.200}: the parameter {param!r:.50} of {name}")
        for attribute in state:
            is_known = may_be_state(cls, attribute)
            self._check_known(is_known, f"{where:.200}: the attribute {attribute!r:.50} of {name}")
            follows = attribute in MADE.get(cls, set()) - LARGE - made.keys()
            expect(not follows, f"{attribute} follows from others and is not taken from files")
        for attribute, dtype in made.items():
            expect(dtype in (None, "float32", "float64"), f"there are no components of type {dtype!r:.50}")
            value = make(attribute, state, self._room, self.worked_out.components)
            self._room -= getattr(value, "nbytes", 0)
            state[attribute] = value if dtype is None else value.astype(dtype, copy=False)
        model = cls(**params)
        vars(model).update(state)
        check_estimator(model)
        if "_dictionary" in state:
            record = state["_dictionary"]
            self._room -= record.atoms.nbytes
            self._to_keep -= min(8 * len(record.atoms) ** 2, MAX_KEPT)  # of a Gram matrix
        if self._to_keep < 0:  # many models may share the arrays of a small file
            for record in self._records[n_before:]:  # in the parts of this one, too, which has tried them again
                record.kept.clear()
        return model

    def _check_known(self, fine: bool, what: str) -> None:
        require(
            fine,
            f"needs {what}, which ledl {VERSIONS['ledl']} with the installed scikit-learn does not know. It "
            f"was written by {versions_in_words(self.versions)}. Use these versions or newer ones",
        )


def versions_in_words(versions: dict[str, str]) -> str:
    """Return versions as text, such as "ledl 1.0 with numpy 2.4"."""
    others = " and ".join(f"{name} {version}" for name, version in versions.items() if name != "ledl")
    return f"ledl {versions.get('ledl', 'of unknown version')}" + (f" with {others}" if others else "")
