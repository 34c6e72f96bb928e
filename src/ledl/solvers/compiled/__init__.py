"""Compiled versions of hot loops, chosen in this module by the kind of array.

Each has a plain version in the module that calls it: its documentation, and the reference of its tests.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from ledl.arrays import Array, is_torch, on_tensors

# Loops for NumPy arrays, and for tensors in the host's memory.
NUMPY_LOOPS = (
    "active_set",
    "keep_better_codes",
    "nearest",
    "omp",
    "pull",
    "reflect",
    "shrink",
    "update_block",
    "update_used_atoms",
)
# Loops for tensors on a GPU.
TENSOR_LOOPS = ("reflect", "shrink", "update_block")


def find(name: str, array: Array) -> Any:
    """Return the compiled loop of that name for that kind of array, or None, for instance without numba."""
    if isinstance(array, np.ndarray):
        return numpy_loop(name)
    if not is_torch(array):
        return None
    if array.is_cuda:
        return getattr(import_module(f"{__name__}.triton"), name) if name in TENSOR_LOOPS else None
    loop = numpy_loop(name)
    return None if loop is None else on_tensors(loop)


@cache
def numpy_loop(name: str) -> Any:
    """Return the loop for NumPy arrays, or None; the module is imported on first use, since it loads numba."""
    if name not in NUMPY_LOOPS or find_spec("numba") is None:
        return None
    return getattr(import_module(f"{__name__}.numba"), name)
