"""Samples and where they live: in memory, in files, on a device, on the workers of a Dask cluster.

Given the atoms, samples are independent. A solver uses blocks of them only through `map_sum`: apply a step to
every block, keep the block that the step returns (with its codes and multipliers) where it is, and return the
sum of the other results. Running in memory, out of core or on a cluster has only this in common.
"""

from ledl.samples._blocks import (
    IN_FLIGHT,
    Block,
    BlockError,
    Blocks,
    InMemoryBlocks,
    MappedBlocks,
    StreamedBlocks,
    spans_of,
    upload_ahead,
)
from ledl.samples._checkpoint import Checkpoint, as_plain, check_place, sketch_of_rows
from ledl.samples._cluster import ClusterBlocks, share_out
from ledl.samples._stored import (
    StoredRows,
    check_rows,
    floats_of,
    map_rows,
    open_dask,
    open_file,
    seceded,
    with_known_rows,
)

__all__ = [
    "IN_FLIGHT",
    "Block",
    "BlockError",
    "Blocks",
    "Checkpoint",
    "ClusterBlocks",
    "InMemoryBlocks",
    "MappedBlocks",
    "StoredRows",
    "StreamedBlocks",
    "as_plain",
    "check_place",
    "check_rows",
    "floats_of",
    "map_rows",
    "open_dask",
    "open_file",
    "seceded",
    "share_out",
    "sketch_of_rows",
    "spans_of",
    "upload_ahead",
    "with_known_rows",
]
