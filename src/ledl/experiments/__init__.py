"""The paper's experiments: methods, protocol, a store of finished cells, tables, figures, report.

Names are resolved on first use: the command line's help needs the names of methods, not scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledl.experiments._reproduce import Outcome, reproduce
    from ledl.experiments._run import Plan, Progress
    from ledl.methods import DATASET_TITLES, METHODS, PAPER_DATASETS, PAPER_TABLE, Method

__all__ = [
    "DATASET_TITLES",
    "METHODS",
    "PAPER_DATASETS",
    "PAPER_TABLE",
    "Method",
    "Outcome",
    "Plan",
    "Progress",
    "reproduce",
]

_HOME = {
    **dict.fromkeys(["DATASET_TITLES", "METHODS", "PAPER_DATASETS", "PAPER_TABLE", "Method"], "ledl.methods"),
    **dict.fromkeys(["Outcome", "reproduce"], "ledl.experiments._reproduce"),
    **dict.fromkeys(["Plan", "Progress"], "ledl.experiments._run"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ledl.experiments' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
