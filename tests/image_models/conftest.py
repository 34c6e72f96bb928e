"""Images of digits and photos in folders, and a model of them."""

import numpy as np
import pytest

from ledl.image_models import fit_folder

Image = pytest.importorskip("PIL.Image")
from helpers.digits import write_digits  # noqa: E402


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Write photos of 80 x 100 pixels of three colours, six of each. Return their folder."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for j, name in enumerate(("red", "green", "blue")):
        (root / name).mkdir()
        for i in range(6):
            pixels = rng.integers(0, 100, (80, 100, 3))
            pixels[:, :, j] += 150
            Image.fromarray(np.uint8(pixels)).save(root / name / f"{i}.jpg")
    return root


@pytest.fixture(scope="session")
def trained(folder):
    return fit_folder(folder / "known", features="pixels", size=8, per_class=6, seed=3, method="crc")
