"""Sparse codes of samples over a dictionary."""

from ledl.coding._api import (
    CodingInfo,
    Samples,
    code_in_chunks,
    encode,
    float_tensor,
    lasso_coder,
    sparse_encode,
)
from ledl.coding._coders import BatchedLassoCoder, Coder, LassoCoder, OMPCoder, RidgeCoder, chunk_size, gram

__all__ = [
    "BatchedLassoCoder",
    "Coder",
    "CodingInfo",
    "LassoCoder",
    "OMPCoder",
    "RidgeCoder",
    "Samples",
    "chunk_size",
    "code_in_chunks",
    "encode",
    "float_tensor",
    "gram",
    "lasso_coder",
    "sparse_encode",
]
