import numpy as np
import pytest

from ledl.datasets import load
from ledl.datasets._prepared import PREPARED

# Samples, features and classes, as the files' manifest gives them.
SHAPES = {
    "usps": (9298, 256, 10),
    "yaleb": (2414, 1024, 38),
    "pie": (11554, 1024, 68),
    "ucmerced": (2100, 2048, 21),
    "aid": (10000, 2048, 30),
    "caltech101": (9144, 2048, 102),
    "caltech101_pyramid": (2040, 12288, 102),
}


@pytest.mark.parametrize("name", SHAPES)
def test_prepared_files(name, require_dataset):
    require_dataset(name)
    dataset = load(name)
    n, d, c = SHAPES[name]
    assert dataset.data.shape == (n, d)
    assert dataset.data.dtype == np.float32
    assert dataset.target.shape == (n,)
    assert len(np.unique(dataset.target)) == c
    assert ("images" in dataset) == (name in ("usps", "yaleb", "pie"))


def test_digits_need_no_file():
    assert load("digits").data.dtype == np.float32


def test_what_is_missing_is_told(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"no dataset 'mnist'; the known ones are digits, usps"):
        load("mnist")
    monkeypatch.delenv("LEDL_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="Set the environment variable LEDL_DATA"):
        load("usps")
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        load("usps", data_home=tmp_path)


@pytest.mark.parametrize("kind", ["text", "truncated", "objects", "keys", "lengths"])
def test_files_that_are_not_what_they_should_be_are_told(kind, tmp_path):
    path = tmp_path / PREPARED["usps"][0]
    features, target = np.zeros((4, 256)), np.arange(4)
    if kind == "text":
        path.write_text("not an archive")
    elif kind == "objects":  # a pickle inside must never be loaded
        np.savez(path, features=np.array([print, None]), target=target)
    elif kind == "keys":
        np.savez(path, target=target)
    elif kind == "lengths":
        np.savez(path, features=features, target=target[:3])
    else:
        np.savez(path, features=features, target=target)
        path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=f"{path.name} (is not a prepared dataset|has 4 samples but 3 labels)"):
        load("usps", data_home=tmp_path)
