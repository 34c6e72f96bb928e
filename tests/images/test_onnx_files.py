"""Files of weights next to an ONNX file, and the output that describes an image."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from helpers.networks import write_model
from ledl.images._networks import OnnxNetwork
from ledl.images._onnx_files import choose_output, pool, weight_files


@pytest.fixture
def apart(tmp_path):
    """Write a network with its weights in another file. Return its path, and what it computes."""
    weights = write_model(tmp_path / "whole.onnx", n_features=64)
    model = onnx.load(tmp_path / "whole.onnx")
    (tmp_path / "apart").mkdir()
    path = tmp_path / "apart" / "network.onnx"
    onnx.save(model, path, save_as_external_data=True, location="network.onnx.data", size_threshold=0)
    return path, weights


def test_weights_in_another_file_are_read_from_its_folder(apart, rng, tmp_path, monkeypatch):
    path, weights = apart
    monkeypatch.chdir(tmp_path)
    batch = rng.random((2, 3, 5, 7), dtype=np.float32)
    assert_allclose(OnnxNetwork(path)(batch), batch.mean(axis=(2, 3)) @ weights.T, rtol=1e-4, atol=1e-6)


def test_a_missing_file_of_weights_is_reported(apart):
    path, _ = apart
    data = path.with_name("network.onnx.data")
    data.rename(path.with_name("renamed.data"))
    with pytest.raises(ValueError, match=r"weights of .*network.onnx are in another file, network.onnx.data"):
        OnnxNetwork(path)


def test_weights_are_not_taken_from_other_folders(apart):
    path, _ = apart
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = "../apart/network.onnx.data"
    onnx.save_model(model, path)
    with pytest.raises(ValueError, match=r"\.\./apart/network.onnx.data, which is not in the same folder"):
        OnnxNetwork(path)


@pytest.mark.parametrize("name", ["w", "weights of a network.data", "ä" * 90, "n" * 127])
def test_files_of_weights_are_found_anywhere_in_a_graph(name):
    def outside(values):
        tensor = numpy_helper.from_array(np.asarray(values, np.float32), "values")
        set_external_data(tensor, location=name, offset=0, length=4)
        tensor.ClearField("raw_data")
        return tensor

    constant = helper.make_node("Constant", [], ["inner"], value=outside([1.0]))
    output = helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1])
    branch = helper.make_graph([constant], "branch", [], [output])
    choice = helper.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=branch)
    inputs = [helper.make_tensor_value_info("condition", TensorProto.BOOL, [])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]
    plain = helper.make_graph([choice], "g", inputs, outputs)
    assert weight_files(helper.make_model(plain).SerializeToString()) == [name]
    plain.initializer.append(outside([2.0]))
    assert weight_files(helper.make_model(plain).SerializeToString()) == [name]


def test_a_name_in_the_graph_is_no_file():
    node = helper.make_node("Relu", ["location"], ["j"])
    described = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1]) for x in ("location", "j")]
    model = helper.make_model(helper.make_graph([node], "location", described[:1], described[1:]))
    helper.set_model_props(model, {"location": "here"})
    assert weight_files(model.SerializeToString()) == []


@pytest.mark.parametrize(
    ("outputs", "chosen"),
    [
        ({"logits": 2, "last_hidden_state": 3}, "last_hidden_state"),
        ({"last_hidden_state": 3, "pooler_output": 2}, "pooler_output"),
        ({"image_embeds": 2, "last_hidden_state": 3}, "image_embeds"),
        ({"hidden_states.0": 3, "last_hidden_state": 3}, "last_hidden_state"),
        ({"last_hidden_state": 4, "pooler_output": 4}, "last_hidden_state"),
        ({"map": 4, "pool5": 2}, "pool5"),
        ({"class_probabilities": 2, "features": 2}, "features"),
        ({"logits": 2}, "logits"),
    ],
)
def test_the_output_is_chosen_by_name_and_shape(outputs, chosen):
    nodes = [SimpleNamespace(name=name, shape=[None] * n_axes) for name, n_axes in outputs.items()]
    assert choose_output(nodes).name == chosen


def test_outputs_become_one_row_per_image(rng):
    rows = rng.random((2, 6), dtype=np.float32)
    assert_array_equal(pool(rows)[0], rows)
    maps = rng.random((2, 6, 4, 5), dtype=np.float32)
    assert_allclose(pool(maps)[0], [[[np.mean(m) for m in image] for image in maps]][0], rtol=1e-6)
    for n_tokens, has_class_token in (
        (196, False),
        (197, True),
        (201, True),
        (257, True),
        (49, False),
        (1, False),
    ):
        tokens = rng.random((2, n_tokens, 6), dtype=np.float32)
        expected = [image[0] if has_class_token else np.mean(image, axis=0) for image in tokens]
        found, how = pool(tokens)
        assert_allclose(found, expected, rtol=1e-6)
        assert how == ("class token of" if has_class_token else "mean over tokens of")
