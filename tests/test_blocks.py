import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ledl.blocks import InMemoryBlocks


@pytest.mark.parametrize("block_size", [None, 1, 3, 7, 100])
def test_map_sum_sums_and_keeps_what_a_step_returns(block_size):
    X, labels = np.arange(14.0).reshape(7, 2), np.arange(7)
    blocks = InMemoryBlocks(X, labels, block_size)

    def step(block):
        assert_array_equal(block.X, X[block.first : block.first + len(block.X)])
        assert_array_equal(block.labels, labels[block.first : block.first + len(block.X)])
        Z = block.X if block.Z is None else block.Z + 1
        return block._replace(Z=Z), (len(block.X), block.X.sum(axis=0))

    n, total = blocks.map_sum(step)
    assert n == 7
    assert_array_equal(total, X.sum(axis=0))
    assert_array_equal(blocks.codes(), X)
    blocks.map_sum(step)
    assert_array_equal(blocks.codes(), X + 1)
