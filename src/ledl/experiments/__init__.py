"""Reproduce the paper's experiments: methods, protocol, a store of finished cells, tables, figures, report.

Modules that need scikit-learn are imported on first use, because the help of the command line needs only names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ledl.methods import (
    DATASET_TITLES,
    METHODS,
    PAPER_DATASETS,
    PAPER_TABLE,
    SEMI_SUPERVISED,
    SUPERVISED,
    Method,
)

if TYPE_CHECKING:
    from ledl.experiments._cells import Plan
    from ledl.experiments._reproduce import Outcome, Progress, reproduce

__all__ = [
    "DATASET_TITLES",
    "METHODS",
    "PAPER_DATASETS",
    "PAPER_TABLE",
    "SEMI_SUPERVISED",
    "SUPERVISED",
    "Method",
    "Outcome",
    "Plan",
    "Progress",
    "reproduce",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ledl.experiments' has no attribute {name!r}")
    return getattr(import_module("ledl.experiments._reproduce"), name)


def __dir__() -> list[str]:
    return __all__
