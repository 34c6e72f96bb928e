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


def write_transformer(path, n_extra=1):
    """A model (n, 3, 8, 8) -> tokens (n, n_extra + 16, 3): tokens of ones, then means of 2 x 2 pixels.

    There are class scores, too, as in networks of Hugging Face.
    """
    extra = numpy_helper.from_array(np.ones((1, n_extra, 3), np.float32), "extra")
    shape = numpy_helper.from_array(np.array([0, 3, 16], np.int64), "shape")
    nodes = [
        helper.make_node("AveragePool", ["pixel_values"], ["means"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["means", "shape"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["patches"], perm=[0, 2, 1]),
        # One row of extra tokens for each image: ones, times zero of the image, plus ones.
        helper.make_node("ReduceMean", ["patches"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["mean", "mean"], ["zeros"]),
        helper.make_node("Add", ["zeros", "extra"], ["ones"]),
        helper.make_node("Concat", ["ones", "patches"], ["last_hidden_state"], axis=1),
        helper.make_node("ReduceMean", ["patches"], ["logits"], axes=[1], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, ["n", 3, 8, 8])]
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "tokens", 3]),
    ]
    graph = helper.make_graph(nodes, "tokens", inputs, outputs, [extra, shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(path))


def write_endless(path):
    """A network (n, 3, h, w) -> (n, 3) that takes the sine of the means for ever."""

    def value(name, kind, shape=None):
        return helper.make_tensor_value_info(name, kind, shape)

    float_, int_, bool_ = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
    step = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go on"]), helper.make_node("Sin", ["value"], ["next"])],
        "step",
        [
            value("i", int_, []),
            value("go", bool_, []),
            value("value", float_),
        ],
        [value("go on", bool_, []), value("next", float_)],
    )
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["means"], axes=[2, 3], keepdims=0),
        helper.make_node("Loop", ["number", "yes", "means"], ["y"], body=step),
    ]
    inputs, outputs = [value("x", float_, ["n", 3, "h", "w"])], [value("y", float_, ["n", 3])]
    numbers = [
        numpy_helper.from_array(np.array(2**62), "number"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]
    save_graph(path, helper.make_graph(nodes, "endless", inputs, outputs, numbers))
