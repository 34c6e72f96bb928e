"""A folder of images and a model of them, for all commands."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import ledl
from helpers.commands import run
from helpers.digits import write_digits
from ledl.features import PixelFeatures


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Return a folder with images, and with models that are not models of images."""
    root = write_digits(tmp_path_factory.mktemp("digits"))
    (root / "empty").mkdir()
    ledl.save(ledl.CRCClassifier().fit(np.eye(4), [0, 0, 1, 1]), root / "rows.ledl")
    ledl.save(make_pipeline(PixelFeatures(size=8), PCA(2)), root / "bare.ledl")
    return root


@pytest.fixture(scope="session")
def fitted(folder):
    """Return a model and what the command printed."""
    path = folder / "model.ledl"
    done = run("fit", folder / "known", "-o", path, "--size", "8", "--per-class", "6", "--seed", "3")
    assert done.returncode == 0, done.stderr
    return path, done


@pytest.fixture(scope="session")
def model(fitted):
    return fitted[0]
