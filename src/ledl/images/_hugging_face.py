"""Read ``preprocessor_config.json``, the file in which networks of Hugging Face say how to prepare images."""

from __future__ import annotations

from typing import Any

# Pillow's filters by their numbers.
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box")
READ = {
    "crop_pct",
    "crop_size",
    "default_to_square",
    "do_center_crop",
    "do_flip_channel_order",
    "do_normalize",
    "do_rescale",
    "do_resize",
    "image_mean",
    "image_std",
    "resample",
    "rescale_factor",
    "size",
}
# Fields that do not change the pixels of an RGB image.
WITHOUT_EFFECT = {
    "_valid_processor_keys",
    "auto_map",
    "data_format",
    "device",
    "disable_grouping",
    "do_convert_rgb",
    "feature_extractor_type",
    "image_processor_type",
    "input_data_format",
    "processor_class",
    "return_tensors",
}
WARPED = 384  # ConvNeXt crops smaller images, and resizes others to a square


def preprocessing_fields(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Preprocessing` from those of a ``preprocessor_config.json``.

    Raises ValueError, with the name of the field, for whatever a `Preprocessing` cannot do.
    """
    config = {name: value for name, value in config.items() if value is not None}
    for name, value in config.items():
        if name not in READ | WITHOUT_EFFECT and value is not False:
            raise ValueError(f"the field {name!r} ({value!r}) may change the pixels and is not known")
    if not config.get("do_resize", True):
        raise ValueError("the field 'do_resize' is false, but a network needs images of one size")
    wanted = ["size", "resample", *["image_mean", "image_std"] * config.get("do_normalize", True)]
    for name in wanted:
        if name not in config:
            raise ValueError(f"the field {name!r} is missing")
    number = config["resample"]
    if number not in range(len(FILTERS)):
        raise ValueError(f"the field 'resample' ({number!r}) is not a number from 0 to {len(FILTERS) - 1}")
    size, resize = input_size(config)
    mean, std = (config[name] for name in wanted[2:]) if wanted[2:] else (0.0, 1.0)
    return {
        "size": size,
        "resize": resize,
        "resample": FILTERS[number],
        "channels": "BGR" if config.get("do_flip_channel_order") else "RGB",
        "scale": config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0,
        "mean": mean if isinstance(mean, list) else [mean] * 3,
        "std": std if isinstance(std, list) else [std] * 3,
    }


def input_size(config: dict[str, Any]) -> tuple[int, int | None]:
    """Return the side of the network's input, and the shorter side before the crop, or None without a crop."""
    size, crop, share = config["size"], config.get("crop_size"), config.get("crop_pct")
    crops = config.get("do_center_crop", crop is not None)
    if isinstance(size, int):
        # Of old files. Only processors that crop keep the aspect ratio, but DeiT's does not.
        old = config.get("feature_extractor_type", config.get("image_processor_type", ""))
        is_square = config.get("default_to_square", not (crops or share) or old.startswith("DeiT"))
        size = {"height": size, "width": size} if is_square else {"shortest_edge": size}
    if set(size) == {"shortest_edge"}:
        shorter = size["shortest_edge"]
        if crops:
            return side_of("crop_size", crop), shorter
        if share:
            return shorter, None if shorter >= WARPED else int(shorter / share)
        raise ValueError("the field 'size' has the shorter side, but 'do_center_crop' is not true")
    if crops:
        raise ValueError(f"the field 'crop_size' follows a 'size' ({size!r}) that is not the shorter side")
    return side_of("size", size), None


def side_of(name: str, size: Any) -> int:
    """Return the side of a square from a field that is a number, or has height and width."""
    sides = {size} if isinstance(size, int) else set(size.values()) if isinstance(size, dict) else set()
    if len(sides) != 1 or (isinstance(size, dict) and size.keys() != {"height", "width"}):
        raise ValueError(f"the field {name!r} ({size!r}) is not a square of one height and width")
    return int(sides.pop())
