"""Networks in ONNX files and of torchvision, and their preprocessing."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose
from onnx import TensorProto
from PIL import Image

from helpers.networks import write_endless, write_model, write_rows, write_transformer
from ledl.features import CAFFE, IMAGENET, NetworkError, NetworkFeatures, Preprocessing
from ledl.images._networks import OnnxNetwork


def test_preprocessing_is_a_value():
    assert Preprocessing(channels="BGR", scale=1.0, mean=(103.939, 116.779, 123.68)) == CAFFE
    assert '"channels": "BGR"' in CAFFE.to_json()
    image = Image.fromarray(np.tile(np.arange(300, dtype=np.uint8)[None, :, None], (200, 1, 3)))
    prepared = IMAGENET(image)
    assert prepared.shape == (3, 224, 224)
    assert_allclose(
        prepared[0].mean(), (np.asarray(image, float)[:, 100:200].mean() / 255 - 0.485) / 0.229, atol=0.5
    )
    for bad in ({"channels": "GRB"}, {"resample": "magic"}, {"size": 0}, {"size": 224, "resize": 100}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Preprocessing(**bad)


def test_a_long_thin_image_needs_no_more_memory_than_another():
    thin = Image.new("RGB", (60000, 1), (10, 20, 30))
    assert_allclose(IMAGENET(thin)[:, 0, 0], [(v / 255 - m) / s for v, m, s in zip(
        (10, 20, 30), IMAGENET.mean, IMAGENET.std, strict=True)], rtol=1e-4)  # fmt: skip


@pytest.mark.parametrize("allowed", [False, True])
def test_nothing_is_collected_for_the_makers_of_onnx_runtime(allowed, tmp_path):
    """Its version 1.31 keeps events and a number of the machine in the home folder, to send them."""
    write_model(tmp_path / "model.onnx")
    (tmp_path / "home").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    environment |= {"HOME": str(tmp_path / "home")} | ({"ORT_DISABLE_TELEMETRY": "0"} if allowed else {})
    code = (
        "import os, numpy as np; from PIL import Image; from ledl.features import IMAGENET, NetworkFeatures;"
        "NetworkFeatures('model.onnx', preprocessing=IMAGENET).fit_transform([Image.new('RGB', (99, 99))]);"
        "print(os.environ['ORT_DISABLE_TELEMETRY'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == ("0" if allowed else "1"), done.stderr
    if not allowed:  # whether it writes some, if it may, depends on its version and the system
        assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "map"])
def test_an_onnx_file_gives_pooled_features_or_the_mean_of_a_map(pooled, tmp_path, rng):
    weights = write_model(tmp_path / "model.onnx", pooled=pooled)
    batch = rng.random((2, 3, 5, 7), dtype=np.float32)
    assert_allclose(OnnxNetwork(tmp_path / "model.onnx")(batch), batch.mean(axis=(2, 3)) @ weights.T, rtol=1e-4)


def test_changed_weights_in_another_file_change_the_identity(tmp_path, monkeypatch):
    write_model(tmp_path / "whole.onnx", n_features=64)
    monkeypatch.chdir(tmp_path)
    model = onnx.load("whole.onnx")
    onnx.save(model, "apart.onnx", save_as_external_data=True, location="apart.onnx.data", size_threshold=0)
    network = OnnxNetwork(tmp_path / "apart.onnx")
    data = tmp_path / "apart.onnx.data"
    data.write_bytes(data.read_bytes()[::-1])
    assert OnnxNetwork(tmp_path / "apart.onnx").identity != network.identity
    assert network.identity != OnnxNetwork(tmp_path / "whole.onnx").identity


@pytest.mark.parametrize("n_extra", [0, 1, 5], ids=["no class token", "class token", "registers"])
def test_tokens_of_a_transformer_become_one_row(n_extra, tmp_path, rng):
    """Patches of 2 x 2 pixels of an image of 8 x 8 are 16 tokens; others come before them."""
    write_transformer(tmp_path / "model.onnx", n_extra)
    batch = rng.random((3, 3, 8, 8), dtype=np.float32)
    network = OnnxNetwork(tmp_path / "model.onnx")
    patches = batch.reshape(3, 3, 4, 2, 4, 2).mean(axis=(3, 5)).reshape(3, 3, 16).transpose(0, 2, 1)
    expected = np.ones((3, 3)) if n_extra else patches.mean(axis=1)
    assert_allclose(network(batch), expected, rtol=1e-5)
    assert network.output == f"{'class token' if n_extra else 'mean over tokens'} of last_hidden_state"


def test_missing_and_unknown_models_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model .*gone.onnx.*Give the path of an ONNX file"):
        NetworkFeatures(tmp_path / "gone.onnx").fit()
    (tmp_path / "bad.onnx").write_text("not a model")
    with pytest.raises(ValueError, match=r"bad.onnx is not a model"):
        NetworkFeatures(tmp_path / "bad.onnx").fit()
    write_model(tmp_path / "model.onnx")
    with pytest.raises(
        ValueError, match=r"preprocessing of model.onnx is not known. Give preprocessing= \(--preprocessing"
    ):
        NetworkFeatures(tmp_path / "model.onnx").fit()
    write_model(tmp_path / "fixed.onnx", size=9)
    with pytest.raises(
        NetworkError, match=r"fixed.onnx takes .* \(n, 3, 9, 9\), but .*makes \(n, 3, 8, 8\). Give"
    ):
        NetworkFeatures(tmp_path / "fixed.onnx", preprocessing=Preprocessing(size=8)).fit()


@pytest.mark.parametrize("shape", [(1, 3, "h", "w"), ("n", 3, 9, 8), ("n", 8, 8, 3), ("n", 192)])
def test_an_input_that_does_not_fit_is_refused_before_an_image_is_decoded(shape, tmp_path, monkeypatch):
    write_rows(tmp_path / "network.onnx", 192, shape=shape)
    monkeypatch.setattr("ledl.images._extractors.read_image", lambda *_, **__: pytest.fail("decoded"))
    extractor = NetworkFeatures(tmp_path / "network.onnx", preprocessing=Preprocessing(size=8))
    with pytest.raises(NetworkError, match=r"network.onnx takes .*makes \(n, 3, 8, 8\). Give"):
        extractor.transform([tmp_path / "1.png"])


def test_a_network_that_does_not_tell_its_input_is_taken(tmp_path):
    write_rows(tmp_path / "network.onnx", 192, shape=None)
    extractor = NetworkFeatures(tmp_path / "network.onnx", preprocessing=Preprocessing(size=8))
    assert extractor.fit_transform([np.zeros((9, 9), np.uint8)]).shape == (1, 192)


@pytest.mark.parametrize("n_columns", [96, 7], ids=["two rows an image", "not divisible"])
def test_errors_of_a_network_at_work_are_ours(n_columns, tmp_path):
    write_rows(tmp_path / "network.onnx", n_columns)
    extractor = NetworkFeatures(tmp_path / "network.onnx", preprocessing=Preprocessing(size=8))
    with pytest.raises(
        NetworkError, match=r"network.onnx failed on 1 images of 8 x 8 pixels: .*smaller batch_size"
    ):
        extractor.transform([np.zeros((9, 9), np.uint8)])
    with pytest.raises(NetworkError, match=r"failed on 2 images"):
        extractor.fit()


def test_ctrl_c_ends_a_network_that_does_not_end(tmp_path):
    write_endless(tmp_path / "endless.onnx")
    network = OnnxNetwork(tmp_path / "endless.onnx")
    main, before = threading.get_ident(), signal.signal(signal.SIGINT, signal.default_int_handler)
    press = threading.Timer(1, signal.pthread_kill, [main, signal.SIGINT])
    press.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            network(np.zeros((1, 3, 8, 8), np.float32))
    finally:
        press.cancel()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.UINT8])
def test_networks_that_take_other_numbers_are_refused(kind, tmp_path):
    write_rows(tmp_path / "network.onnx", 192, kind=kind)
    with pytest.raises(NetworkError, match=r"network.onnx has the inputs .*must have one input of the type"):
        OnnxNetwork(tmp_path / "network.onnx")


def test_a_preprocessing_cannot_ask_for_all_the_memory():
    for bad in (
        {"size": 4096},
        {"size": 2**40, "resize": 2**41},
        {"resize": 2**40},
        {"size": 8.5},
        {"size": "8"},
    ):
        with pytest.raises(ValueError, match="whole numbers: size from 1 to 1024, because"):
            Preprocessing(**bad)
    assert Preprocessing(size=1024, resize=4000).size == 1024


def test_a_missing_torchvision_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"model='resnet50' needs torchvision.*ONNX file"):
        NetworkFeatures("resnet50").fit()
