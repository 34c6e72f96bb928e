"""The preprocessing that networks of Hugging Face ask for."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image

from ledl.features import Preprocessing

HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.25, 0.5]}
# As in the files of these networks.
DINOV2 = {
    "crop_size": {"height": 24, "width": 24},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_processor_type": "BitImageProcessor",
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
    "size": {"shortest_edge": 32},
    **HALF,
}
OLD_CLIP = {
    "crop_size": 24,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "resample": 3,
    "size": 24,
    **HALF,
}
VIT = {"do_resize": True, "size": {"height": 24, "width": 24}, "resample": 2, "do_center_crop": None, **HALF}
OLD_VIT = {**VIT, "size": 24}
RESNET = {"crop_pct": 0.875, "size": {"shortest_edge": 28}, "resample": 3, "do_resize": True, **HALF}
LARGE_CONVNEXT = {**RESNET, "size": 384, "resample": 1}
MOBILEVIT = {
    "do_flip_channel_order": True,
    "do_normalize": False,
    "size": {"shortest_edge": 32},
    "crop_size": {"height": 24, "width": 24},
    "do_center_crop": True,
    "resample": 2,
}
RAW = {**VIT, "do_rescale": False, "image_mean": 127, "image_std": 128, "resample": 0}


def prepared(
    image, shorter=None, crop=None, warped=None, resample=None, flip=False, factor=1 / 255, mean=0, std=1
):
    """Prepare an image step by step, as the processors of transformers do."""
    if warped is not None:
        image = image.resize((warped, warped), resample)
    else:
        width, height = image.size
        short, long = sorted((width, height))
        sizes = (shorter, int(shorter * long / short))
        image = image.resize(sizes if width <= height else sizes[::-1], resample)
        left, top = (image.width - crop) // 2, (image.height - crop) // 2
        image = image.crop((left, top, left + crop, top + crop))
    pixels = np.asarray(image, dtype=np.float64) * factor
    pixels = (pixels - np.asarray(mean)) / np.asarray(std)
    return np.transpose(pixels[..., ::-1] if flip else pixels, (2, 0, 1))


NORMAL = {"mean": HALF["image_mean"], "std": HALF["image_std"]}


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        (DINOV2, {"shorter": 32, "crop": 24, "resample": 3, **NORMAL}),
        (OLD_CLIP, {"shorter": 24, "crop": 24, "resample": 3, **NORMAL}),
        (VIT, {"warped": 24, "resample": 2, **NORMAL}),
        (OLD_VIT, {"warped": 24, "resample": 2, **NORMAL}),
        (RESNET, {"shorter": 32, "crop": 28, "resample": 3, **NORMAL}),
        (LARGE_CONVNEXT, {"warped": 384, "resample": 1, **NORMAL}),
        (MOBILEVIT, {"shorter": 32, "crop": 24, "resample": 2, "flip": True}),
        (RAW, {"warped": 24, "resample": 0, "factor": 1, "mean": 127, "std": 128}),
    ],
    ids=["DINOv2", "old CLIP", "ViT", "old ViT", "ResNet", "large ConvNeXt", "MobileViT", "no rescaling"],
)
@pytest.mark.parametrize("size", [(48, 64), (64, 48)])
def test_images_are_prepared_as_by_their_processors(config, steps, size, rng):
    image = Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8))
    found = Preprocessing.from_json(json.dumps(config))
    # One grey level: the crop and the resizing are one step here.
    level = 1.01 * steps.get("factor", 1 / 255) / np.min(steps.get("std", 1))
    assert_allclose(found(image), prepared(image, **steps), atol=level)
    assert Preprocessing.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"do_pad": True}, "'do_pad' .True."),
        ({"rescale_offset": True}, "'rescale_offset'"),
        ({"size_divisor": 32}, "'size_divisor' .32."),
        ({"do_resize": False}, "'do_resize' is false"),
        ({"resample": 5}, "'resample' .5."),
        ({"resample": None}, "'resample' is missing"),
        ({"image_std": None}, "'image_std' is missing"),
        ({"size": {"height": 24, "width": 32}, "do_center_crop": False}, "'size' .*not a square"),
        ({"size": {"longest_edge": 24}, "do_center_crop": False}, "'size' .*not a square"),
        ({"size": "large", "do_center_crop": False}, "'size' .*not a square"),
        ({"crop_size": {"height": 24, "width": 20}}, "'crop_size' .*not a square"),
        ({"do_center_crop": False}, "'size' has the shorter side, but 'do_center_crop'"),
        ({"size": {"height": 32, "width": 32}}, "'crop_size' follows a 'size'"),
        ({"size": 32, "feature_extractor_type": "DeiTFeatureExtractor"}, "'crop_size' follows a 'size'"),
        ({"crop_size": {"height": 40, "width": 40}}, "resize from size to 4096"),
        ({"image_mean": [0.5]}, "three finite numbers"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_fields_that_cannot_be_followed_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing.from_json(json.dumps({**DINOV2, **changed}))


def test_fields_without_effect_are_ignored():
    more = {"do_pad": False, "processor_class": "CLIPProcessor", "device": None, "input_data_format": None}
    assert Preprocessing.from_json(json.dumps({**DINOV2, **more})) == Preprocessing.from_json(
        json.dumps(DINOV2)
    )
