"""Compiled versions of hot loops, chosen here, in one place, by the kind of array.

Each has a plain version in the module that calls it, which is its documentation and its test.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ledl.arrays import Array, is_numpy, is_on_gpu, is_torch, on_tensors

# The module of each loop for NumPy arrays; importing it loads numba, so it waits for the first use.
NUMPY_LOOPS = {
    "active_set": "codes",
    "keep_better_codes": "ksvd",
    "omp": "codes",
    "pull": "numba",
    "reflect": "numba",
    "shrink": "numba",
    "update_block": "numba",
    "update_used_atoms": "ksvd",
}


# Those that there are for tensors on a GPU.
TENSOR_LOOPS = ("reflect_batch", "shrink", "update_block")


def find(name: str, array: Array) -> Callable[..., Any] | None:
    """The compiled loop of that name for that kind of array, or None: none is for NumPy without numba."""
    if is_on_gpu(array):
        return getattr(import_module(f"{__name__}.triton"), name) if name in TENSOR_LOOPS else None
    if name not in NUMPY_LOOPS or not (is_numpy(array) or is_torch(array)) or not _has_numba():
        return None
    loop = getattr(import_module(f"{__name__}.{NUMPY_LOOPS[name]}"), name)
    return loop if is_numpy(array) else on_tensors(loop)


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None
