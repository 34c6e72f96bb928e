"""Networks that give features: ONNX files by ONNX Runtime, or torchvision's by name."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol

import numpy as np

from ledl.arrays import Array
from ledl.features._preprocessing import CAFFE, Preprocessing

# sha256 of model files whose preprocessing is known: the ResNet-50 of the prepared datasets.
KNOWN = {"a37ddccadcf4d536110127c3093a86271fc391b5fcaedf86dae291c1283da89a": CAFFE}

HOW_TO_GET = (
    "Give the path of an ONNX file with ResNet-50 up to its last pooling (2,048 values), such as an export of "
    "torchvision's model without its last layer, and its preprocessing; or 'resnet50' where torchvision is "
    "installed (pip install torchvision)."
)


class Network(Protocol):
    """Features of a batch, and what identifies them."""

    identity: str
    preprocessing: Preprocessing | None  # None if not known

    def __call__(self, batch: Array) -> Array:
        """(n, 3, size, size) -> (n, n_features), float32."""


def find_network(model: str) -> Network:
    """The network of an ONNX file, or torchvision's of that name."""
    if model.endswith(".onnx"):
        return OnnxNetwork(Path(model))
    return TorchvisionNetwork(model)


class OnnxNetwork:
    """An ONNX file; on a GPU where ONNX Runtime has one."""

    def __init__(self, path: Path) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError("ONNX files need ONNX Runtime: pip install 'ledl[images]'.") from error
        if not path.is_file():
            raise FileNotFoundError(f"There is no model {path}. {HOW_TO_GET}")
        content = path.read_bytes()  # read once, so that what is hashed is what is loaded
        digest = hashlib.sha256(content).hexdigest()
        self.identity, self.preprocessing = f"sha256:{digest}", KNOWN.get(digest)
        wanted = [
            p
            for p in ("CUDAExecutionProvider", "CPUExecutionProvider")
            if p in onnxruntime.get_available_providers()
        ]
        try:
            self._session = onnxruntime.InferenceSession(content, providers=wanted)
        except Exception as error:  # ONNX Runtime's own, of several kinds
            raise ValueError(
                f"{path} is not a model that ONNX Runtime can load: {error} (Weights must be in the file.)"
            ) from error
        (self._input, *others) = [node.name for node in self._session.get_inputs()]
        outputs = [node for node in self._session.get_outputs() if len(node.shape) in (2, 4)]
        if others or not outputs:
            raise ValueError(
                f"{path} has {1 + len(others)} inputs and {len(outputs)} outputs of two or four axes; one "
                "input (n, 3, height, width) and an output (n, features) or (n, features, h, w) are needed."
            )
        # Pooled features where there are such, else the mean of a map.
        self._output = min(outputs, key=lambda node: len(node.shape)).name

    def __call__(self, batch: Array) -> Array:
        (features,) = self._session.run([self._output], {self._input: batch})
        return features.mean(axis=(2, 3)) if features.ndim == 4 else features


class TorchvisionNetwork:
    """torchvision's network of that name with its default weights, up to its last pooling."""

    def __init__(self, name: str) -> None:
        try:
            import torch
            import torchvision
        except (ImportError, RuntimeError) as error:  # the latter where it does not go with torch
            raise ImportError(
                f"model={name!r} needs torchvision, which cannot be imported here ({error}). {HOW_TO_GET}"
            ) from error
        try:
            weights = torchvision.models.get_model_weights(name).DEFAULT
            network = torchvision.models.get_model(name, weights=weights)
        except (ValueError, OSError) as error:
            raise ValueError(
                f"torchvision has no {name!r}, or its weights cannot be had: {error}. {HOW_TO_GET}"
            ) from error
        network.fc = torch.nn.Identity()
        self._torch = torch
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._network = network.eval().to(self._device)
        self.identity = f"torchvision:{weights}"
        made = weights.transforms()
        self.preprocessing: Preprocessing | None = Preprocessing(
            size=made.crop_size[0], resize=made.resize_size[0], mean=tuple(made.mean), std=tuple(made.std)
        )

    def __call__(self, batch: Array) -> Array:
        with self._torch.inference_mode():
            features = self._network(self._torch.from_numpy(batch).to(self._device))
        return np.asarray(features.cpu())
