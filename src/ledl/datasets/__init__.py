"""The paper's datasets, and few-shot splits of them."""

from ledl.datasets._prepared import load
from ledl.datasets._splits import few_shot_splits

__all__ = ["few_shot_splits", "load"]
