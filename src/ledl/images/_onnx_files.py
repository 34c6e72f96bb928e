"""Find out what an ONNX file holds: the files with its weights, and the output that describes an image."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ledl.arrays import Array, check_memory

# A tensor whose numbers are in another file has entries (field 13). The key of one is "location" (onnx.proto).
LOCATION = re.compile(rb"j.{1,2}\n\x08location\x12([\x80-\xff]?[\x00-\x7f])", re.DOTALL)
# Outputs of networks of Hugging Face that describe the full image, and parts of names of class scores.
PREFERRED = ("pooler_output", "image_embeds", "last_hidden_state")
SCORES = ("logit", "prob", "score")


def onnx_runtime() -> Any:
    """Return the package onnxruntime, which sends nothing to its makers.

    Else it would send usage data, with the path of Python in them. ORT_DISABLE_TELEMETRY=0 allows that.
    """
    # It looks at the variable when it is loaded. If it was loaded before, the call stops nearly all.
    is_off = os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1") != "0"
    import onnxruntime

    if is_off:
        onnxruntime.disable_telemetry_events()
    return onnxruntime


class OnnxFile(NamedTuple):
    """Hold the content of an ONNX file and of the files with its weights, and the checksum of all of them."""

    content: bytes
    weights: dict[str, bytes]
    sha256: str

    def session(self, providers: list[str]) -> Any:
        """Return a session of ONNX Runtime. It reads no file again."""
        onnxruntime = onnx_runtime()
        options = onnxruntime.SessionOptions()
        if self.weights:
            if not hasattr(options, "add_external_initializers_from_files_in_memory"):
                raise ValueError(
                    f"Its weights are in other files ({', '.join(self.weights)}), for which ONNX Runtime "
                    f"{onnxruntime.__version__} is too old: pip install --upgrade onnxruntime."
                )
            contents = list(self.weights.values())
            sizes = [len(content) for content in contents]
            options.add_external_initializers_from_files_in_memory(list(self.weights), contents, sizes)
        return onnxruntime.InferenceSession(self.content, options, providers=providers)


def read_onnx(path: Path, content: bytes | None = None) -> OnnxFile:
    """Return an ONNX file with all files that its weights are in. Each is read once.

    `content` is that of the file, if it is known. Raises ValueError if a file of weights is not next to it.
    """
    content = _read(path) if content is None else content
    digest, weights = hashlib.sha256(content), dict[str, bytes]()
    for name in weight_files(content):
        file = path.parent / name
        if Path(name).name != name or not file.is_file():
            raise ValueError(
                f"The weights of {path} are in another file, {name}, which is not in the same folder. Put both "
                "into one folder, under the names that they had."
            )
        weights[name] = _read(file)
        digest.update(name.encode() + hashlib.sha256(weights[name]).digest())
    return OnnxFile(content, weights, digest.hexdigest())


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    check_memory(size, f"The {size / 1e9:,.0f} GB of {path}", "Give a smaller network.")
    return path.read_bytes()


def weight_files(content: bytes) -> list[str]:
    """Return the names of the files in which an ONNX file has weights, sorted.

    They are searched in the bytes, because tensors can be anywhere in the graph, also in subgraphs.
    """
    names = set()
    for found in LOCATION.finditer(content):
        low, high = (*found[1], 0)[:2]  # a length of one or two bytes, seven bits in each
        names.add(content[found.end() :][: (low & 127) + 128 * high].decode("utf-8", "replace"))
    return sorted(names)


def choose_output(outputs: Sequence[Any]) -> Any:
    """Return the output of a network that describes an image best, of those with two, three or four axes.

    Pooled outputs come first, then maps and tokens; known names before others; class scores only if there is
    nothing else.
    """
    return min(
        outputs,
        key=lambda node: (
            any(word in node.name.lower() for word in SCORES),
            len(node.shape) > 2,
            node.name not in PREFERRED,
        ),
    )


def pool(values: Array) -> tuple[Array, str]:
    """Return one row per image, and how it was made.

    Values are (n, features), a map (n, features, h, w), or tokens (n, tokens, features). Tokens of the parts of
    a square image are a square number. If there are others, the first is the class token.
    """
    if values.ndim == 4:
        return values.mean(axis=(2, 3)), "mean over space of"
    if values.ndim == 2:
        return values, "output"
    if math.isqrt(values.shape[1]) ** 2 == values.shape[1]:
        return values.mean(axis=1), "mean over tokens of"
    return values[:, 0], "class token of"
