"""Samples and where they live: in memory, in files, on a device, on the workers of a Dask cluster.

Given the atoms, samples are independent. A solver sees blocks of them only through `map_sum`: apply a step to
every block, keep the block that it returns (with its codes and multipliers) where it is, and return the sum of
what else it returns. That is all that running in memory, out of core or on a cluster have to agree on.
"""

from ledl.samples._checkpoint import Checkpoint, as_plain, check_place
from ledl.samples._cluster import Chunk, ClusterBlocks, share_out
from ledl.samples._lazy import check_lengths, check_rows, floats_of, in_memory, map_rows
from ledl.samples._mapped import MappedBlocks
from ledl.samples._memory import Block, BlockError, Blocks, InMemoryBlocks, add, cut, in_threads, spans_of
from ledl.samples._stored import StoredRows, beside_tasks, open_dask, open_file, with_known_rows
from ledl.samples._streamed import StreamedBlocks

__all__ = [
    "Block",
    "BlockError",
    "Blocks",
    "Checkpoint",
    "Chunk",
    "ClusterBlocks",
    "InMemoryBlocks",
    "MappedBlocks",
    "StoredRows",
    "StreamedBlocks",
    "add",
    "as_plain",
    "beside_tasks",
    "check_lengths",
    "check_place",
    "check_rows",
    "cut",
    "floats_of",
    "in_memory",
    "in_threads",
    "map_rows",
    "open_dask",
    "open_file",
    "share_out",
    "spans_of",
    "with_known_rows",
]
