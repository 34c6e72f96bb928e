"""Sparse codes of samples over a dictionary: the lasso, ridge regression, orthogonal matching pursuit.

`Lasso`, `Ridge` and `OMP` name a method and its settings; `prepare` makes a coder of one for given atoms;
`code_in_chunks` codes many samples with it.
"""

from ledl.coding._api import float_tensor, sparse_encode
from ledl.coding._coders import (
    OMP,
    Coder,
    CodingInfo,
    Lasso,
    LassoCoder,
    Ridge,
    RidgeCoder,
    Samples,
    Settings,
    code_in_chunks,
)

__all__ = [
    "OMP",
    "Coder",
    "CodingInfo",
    "Lasso",
    "LassoCoder",
    "Ridge",
    "RidgeCoder",
    "Samples",
    "Settings",
    "code_in_chunks",
    "float_tensor",
    "sparse_encode",
]
