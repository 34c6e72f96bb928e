"""Supervised dictionary learning for classifying images from a handful of labelled examples.

Public names are resolved on first use (PEP 562), so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledl import datasets, experiments, explanations, features, persistence, plots
    from ledl.coding import CodingInfo, sparse_encode
    from ledl.estimators import (
        KSVD,
        CRCClassifier,
        CSDLClassifier,
        DKSVDClassifier,
        LCKSVDClassifier,
        LEDLClassifier,
        ProCRCClassifier,
        SRCClassifier,
    )
    from ledl.explanations import Explanation, explain
    from ledl.model_selection import BatchedSearchCV, LEDLClassifierCV
    from ledl.persistence import ModelFileError, load, save
    from ledl.questions import next_questions
    from ledl.rejection import RejectingClassifier
    from ledl.semi_supervised import SemiSupervisedClassifier

__version__ = "0.1.0.dev0"

__all__ = [
    "KSVD",
    "BatchedSearchCV",
    "CRCClassifier",
    "CSDLClassifier",
    "CodingInfo",
    "DKSVDClassifier",
    "Explanation",
    "LCKSVDClassifier",
    "LEDLClassifier",
    "LEDLClassifierCV",
    "ModelFileError",
    "ProCRCClassifier",
    "RejectingClassifier",
    "SRCClassifier",
    "SemiSupervisedClassifier",
    "__version__",
    "datasets",
    "experiments",
    "explain",
    "explanations",
    "features",
    "load",
    "next_questions",
    "persistence",
    "plots",
    "save",
    "sparse_encode",
]

_HOME = {
    "BatchedSearchCV": "ledl.model_selection",
    **{name: "ledl.estimators" for name in __all__ if name.endswith("Classifier") or name == "KSVD"},
    "CodingInfo": "ledl.coding",
    "Explanation": "ledl.explanations",
    "LEDLClassifierCV": "ledl.model_selection",
    "RejectingClassifier": "ledl.rejection",
    "SemiSupervisedClassifier": "ledl.semi_supervised",
    "explain": "ledl.explanations",
    "next_questions": "ledl.questions",
    **dict.fromkeys(("ModelFileError", "load", "save"), "ledl.persistence"),
    "sparse_encode": "ledl.coding",
}


_MODULES = ("datasets", "experiments", "explanations", "features", "persistence", "plots")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        globals()[name] = found = getattr(import_module(_HOME[name]), name)
        return found
    if name in _MODULES:
        return import_module(f"ledl.{name}")
    raise AttributeError(f"module 'ledl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
