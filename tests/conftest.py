"""Fixtures shared by all tests."""

import os
from pathlib import Path

import numpy as np
import pytest

from ledl.datasets._registry import registry


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def require_dataset():
    """Skip, saying why, where a prepared dataset is not at hand."""

    def require(name):
        home = os.environ.get("LEDL_DATA")
        file = registry()[name].files[0].names[0]
        if not home or not (Path(home) / file).is_file():
            pytest.skip(f"the dataset {name!r} is not here: set LEDL_DATA to the folder with {file}")

    return require
