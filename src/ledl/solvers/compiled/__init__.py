"""Compiled versions of hot loops, chosen here, in one place, by the kind of array.

Each has a plain version in the module that calls it, which is its documentation and its test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledl.arrays import Array, is_numpy


def find(name: str, array: Array) -> Callable[..., Any] | None:
    """The compiled loop of that name for that kind of array, or None."""
    if is_numpy(array):
        from ledl.solvers.compiled import numba

        return getattr(numba, name)  # type: ignore[no-any-return]
    return None
