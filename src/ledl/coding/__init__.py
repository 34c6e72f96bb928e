"""Sparse codes of samples over a dictionary: the lasso, ridge regression, orthogonal matching pursuit.

`Lasso`, `Ridge`, `Collaborative` and `OMP` are the settings of a method. `prepare` makes a coder of them for
given atoms. `code_in_chunks` codes many samples with a coder.
"""

from ledl.coding._api import float_tensor, sparse_encode
from ledl.coding._coders import (
    MAX_KEPT,
    OMP,
    Coder,
    CodingInfo,
    Collaborative,
    CollaborativeCoder,
    Lasso,
    LassoCoder,
    Ridge,
    RidgeCoder,
    Samples,
    Settings,
    chunk_size,
    code_in_chunks,
)

__all__ = [
    "MAX_KEPT",
    "OMP",
    "Coder",
    "CodingInfo",
    "Collaborative",
    "CollaborativeCoder",
    "Lasso",
    "LassoCoder",
    "Ridge",
    "RidgeCoder",
    "Samples",
    "Settings",
    "chunk_size",
    "code_in_chunks",
    "float_tensor",
    "sparse_encode",
]
