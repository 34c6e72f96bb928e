"""Where blocks of samples live.

Given the atoms, samples are independent. A solver sees blocks only through `map_sum`: apply a
step to every block, keep the block that it returns (with its codes and multipliers) where it
is, and return the sum of what else it returns. That is all that running in memory, out of core
or on a cluster have to agree on.
"""

from ledl.blocks._cluster import Chunk, ClusterBlocks, share_out
from ledl.blocks._mapped import MappedBlocks
from ledl.blocks._memory import Block, BlockError, Blocks, InMemoryBlocks, add, cut, in_threads, spans_of
from ledl.blocks._streamed import StreamedBlocks

__all__ = [
    "Block",
    "BlockError",
    "Blocks",
    "Chunk",
    "ClusterBlocks",
    "InMemoryBlocks",
    "MappedBlocks",
    "StreamedBlocks",
    "add",
    "cut",
    "in_threads",
    "share_out",
    "spans_of",
]
