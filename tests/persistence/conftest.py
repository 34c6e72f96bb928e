"""Fixtures for the tests of model files."""

import tracemalloc

import pytest

from helpers.model_files import fitted
from ledl import save


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ledl"


@pytest.fixture
def content(path):
    """Return the bytes of a small file."""
    save(fitted("crc")[0], path)
    return path.read_bytes()


@pytest.fixture
def traced():
    """Count memory."""
    tracemalloc.start()
    yield
    tracemalloc.stop()
