"""Fixtures shared by all tests."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from ledl.datasets._registry import registry


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(autouse=True, scope="session")
def one_thread_for_tensors():
    """PyTorch's threads wait for each other where cores are shared, and problems here are small."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def require_dataset():
    """Skip, saying why, where a prepared dataset is not at hand."""

    def require(name):
        home = os.environ.get("LEDL_DATA")
        file = registry()[name].files[0].names[0]
        if not home or not (Path(home) / file).is_file():
            pytest.skip(f"the dataset {name!r} is not here: set LEDL_DATA to the folder with {file}")

    return require
