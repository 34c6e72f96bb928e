"""Small ONNX models in place of a ResNet."""

import hashlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ledl.features import CAFFE
from ledl.images import _networks


def write_model(path, n_features=4, *, pooled=True, size=None, monkeypatch=None):
    """A model (n, 3, h, w) -> (n, n_features), or a map: a 1 x 1 convolution and a mean.

    With `monkeypatch` its preprocessing is known, as is that of the real one.
    """
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((n_features, 3, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "weights"], ["map"])]
    outputs = [helper.make_tensor_value_info("map", TensorProto.FLOAT, ["n", n_features, "h", "w"])]
    if pooled:
        nodes += [
            helper.make_node("GlobalAveragePool", ["map"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["pool5"]),
        ]
        outputs.append(helper.make_tensor_value_info("pool5", TensorProto.FLOAT, ["n", n_features]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, size or "h", size or "w"])]
    graph = helper.make_graph(nodes, "small", inputs, outputs, [numpy_helper.from_array(weights, "weights")])
    save_graph(path, graph)
    if monkeypatch is not None:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.setitem(_networks.KNOWN, digest, CAFFE)
    return weights[:, :, 0, 0]


def write_rows(path, n_columns, *, shape=("n", 3, "h", "w"), kind=TensorProto.FLOAT):
    """A network whose output has all values of its input in rows of `n_columns`, for any number of images."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["rows"])]
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    outputs = [helper.make_tensor_value_info("rows", kind, ["m", n_columns])]
    wanted = numpy_helper.from_array(np.array([-1, n_columns]), "shape")
    save_graph(path, helper.make_graph(nodes, "rows", inputs, outputs, [wanted]))


def save_graph(path, graph):
    """Write a graph as an ONNX file."""
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
