"""Sparse codes of samples over a dictionary: the lasso, ridge regression, orthogonal matching pursuit.

`Lasso`, `Ridge` and `OMP` name a method and its settings; `prepare` makes a coder of one for given atoms;
`code_in_chunks` codes many samples with it.
"""

from ledl.coding._api import float_tensor, sparse_encode
from ledl.coding._chunks import Coder, CodingInfo, Samples, Settings, code_in_chunks
from ledl.coding._lasso import Lasso, LassoCoder
from ledl.coding._omp import OMP
from ledl.coding._ridge import Ridge, RidgeCoder

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
