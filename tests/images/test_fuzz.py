"""Damaged image files give an image or an ImageError, and nothing else."""

import io
import resource
import struct
import subprocess
import sys
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from ledl.datasets import load_image_folder
from ledl.features import ImageError, PixelFeatures
from ledl.images import read_image

# Limit of pixels, so that a decoded image has a few megabytes at most.
MAX_PIXELS = 2**20
# Most memory beyond that of the undamaged images: pixels in several modes, and decoders.
MOST_MEGABYTES = 100
SECONDS_A_FILE = 5


def saved(image, form, **options):
    file = io.BytesIO()
    image.copy().save(file, form, **options)  # saving leaves its settings on the image
    return file.getvalue()


def make_seeds():
    """Return small files of every supported format, in the variants that decoders distinguish."""
    rng = np.random.default_rng(0)
    rgb = Image.fromarray(rng.integers(0, 256, (13, 17, 3), dtype=np.uint8))
    gray, rgba, palette = rgb.convert("L"), rgb.convert("RGBA"), rgb.quantize(16)
    deep = Image.fromarray(rng.integers(0, 65536, (13, 17), dtype=np.uint16))
    real = Image.fromarray(rng.random((13, 17), dtype=np.float32))
    frames = {"save_all": True, "append_images": [rgb.rotate(90), rgb.rotate(180)], "duration": 50}
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a description"
    seeds = {
        "jpeg": saved(rgb, "JPEG", exif=exif),
        "jpeg-progressive": saved(rgb, "JPEG", progressive=True, dpi=(72, 72)),
        "jpeg-gray": saved(gray, "JPEG", comment=b"text"),
        "jpeg-cmyk": saved(rgb.convert("CMYK"), "JPEG"),
        "png": saved(rgb, "PNG", exif=exif, icc_profile=b"profile", dpi=(72, 72)),
        "png-rgba": saved(rgba, "PNG"),
        "png-palette": saved(palette, "PNG", transparency=3),
        "png-bytes": saved(palette, "PNG", transparency=bytes(range(16))),
        "png-16": saved(deep, "PNG"),
        "png-1": saved(rgb.convert("1"), "PNG"),
        "apng": saved(rgb, "PNG", **frames, loop=0),
        "tiff": saved(rgb, "TIFF", exif=exif),
        **{f"tiff-{kind}": saved(rgb, "TIFF", compression=kind) for kind in ("tiff_lzw", "packbits", "jpeg")},
        "tiff-deflate": saved(deep, "TIFF", compression="tiff_deflate"),
        "tiff-float": saved(real, "TIFF"),
        "tiff-pages": saved(rgb, "TIFF", save_all=True, append_images=[gray]),
        "bmp": saved(rgb, "BMP"),
        "bmp-palette": saved(palette, "BMP"),
        "gif": saved(palette, "GIF", transparency=2),
        "gif-frames": saved(rgb, "GIF", **frames, disposal=2),
        "webp": saved(rgb, "WEBP", exif=exif),
        "webp-lossless": saved(rgba, "WEBP", lossless=True),
        "webp-frames": saved(rgb, "WEBP", **frames),
        "ppm": saved(rgb, "PPM"),
        "pgm": saved(gray, "PPM"),
        "ppm-text": b"P3 # comment\n4 3 255\n" + b" 12 0 255" * 12,
        "pgm-text": b"P2\n4 3\n15\n" + b" 7" * 12,
        "pbm": saved(rgb.convert("1"), "PPM"),
        "pfm": saved(real, "PPM"),
    }
    if features.check("avif"):
        seeds |= {"avif": saved(rgba, "AVIF", exif=exif), "avif-frames": saved(rgb, "AVIF", **frames)}
    return list(seeds.values())


SEEDS = make_seeds()
EXTREMES = [0, 1, 0x7F, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]


def flip_bits(data, rng):
    for _ in range(rng.integers(1, 9)):
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)


def truncate(data, rng):
    del data[rng.integers(len(data)) :]


def insert(data, rng):
    at = rng.integers(len(data))
    data[at:at] = rng.bytes(rng.integers(1, 40))


def delete(data, rng):
    at = rng.integers(len(data))
    del data[at : at + rng.integers(1, 40)]


def repeat(data, rng):
    at = rng.integers(len(data))
    data[at:at] = data[at : at + rng.integers(1, 60)] * int(rng.integers(1, 5))


def write_extreme(data, rng):
    """Write a number that may be a size, an offset or a count, mostly in the header."""
    width, order = int(rng.choice([1, 2, 4])), "<>"[rng.integers(2)]
    value = int(rng.choice(EXTREMES)) % 256**width
    at = rng.integers(len(data) if rng.random() < 0.3 else min(len(data), 64))
    data[at : at + width] = struct.pack(order + {1: "B", 2: "H", 4: "I"}[width], value)


def write_number_in_text(data, rng):
    """Change a number of PPM, where sizes are text."""
    at = rng.integers(min(len(data), 20))
    data[at : at + 1] = rng.choice([b"0", b"-1", b"99999", b"1e9", b"#", b"65536 65536", b"9" * 30])


def splice(data, rng):
    """Join the beginning of one file and the end of another, whatever their formats."""
    other = SEEDS[rng.integers(len(SEEDS))]
    del data[rng.integers(len(data)) :]
    data += other[rng.integers(len(other)) :]


def raise_png_size(data, rng):
    data[16:24] = struct.pack(">II", *(int(rng.choice([1, 1000, 5000, 40_000, 2**31 - 1])) for _ in range(2)))


DAMAGES = [
    flip_bits, truncate, insert, delete, repeat, write_extreme, write_extreme, write_number_in_text, splice,
    raise_png_size,
]  # fmt: skip


def with_checksums(data):
    """Return a PNG file with right checksums, because decoders notice wrong ones at once."""
    at = 8
    while at + 12 <= len(data):
        end = at + 8 + struct.unpack(">I", data[at : at + 4])[0]
        if end + 4 > len(data):
            break
        data[end : end + 4] = struct.pack(">I", zlib.crc32(bytes(data[at + 4 : end])))
        at = end + 4
    return data


def damaged(number):
    """Return the damaged file of that number, always the same."""
    rng = np.random.default_rng(number)
    data = bytearray(SEEDS[number % len(SEEDS)])
    for _ in range(rng.integers(1, 4)):
        if data:
            DAMAGES[rng.integers(len(DAMAGES))](data, rng)
    return bytes(with_checksums(data) if data.startswith(b"\x89PNG") and rng.random() < 0.8 else data)


def outcome(number, path):
    """Return "image" or "error" for a damaged file; fail for anything else."""
    path.write_bytes(damaged(number))
    mode, start = ("L", "RGB")[number % 2], time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")  # as an error it would look like one of the decoder
        image, error = None, None
        try:
            image = read_image(path, mode, max_pixels=MAX_PIXELS)
        except ImageError as raised:
            error = raised
    assert not caught, f"file {number} warns: {caught[0].message}"
    assert time.monotonic() - start < SECONDS_A_FILE, f"file {number} takes too long"
    if error is not None:
        assert not isinstance(error.__cause__, MemoryError), f"file {number} fills the memory"
        assert str(path) in str(error)
        return "error"
    assert image.mode == mode
    assert 0 < image.width * image.height <= MAX_PIXELS
    assert np.asarray(image).dtype == np.uint8
    return "image"


def hammer(first, last, path):
    """Return how many files give an image and an error, and by how many megabytes the process grew."""
    for seed in SEEDS:  # loads the decoders, which need memory
        path.write_bytes(seed)
        read_image(path, "RGB").close()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = [outcome(number, path) for number in range(first, last)]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return results.count("image"), results.count("error"), grown


@pytest.mark.parametrize("n", [1000, pytest.param(60_000, marks=pytest.mark.slow)])
def test_damaged_files_give_an_image_or_an_error_and_cost_little(n, tmp_path):
    """Run in a subprocess, whose peak memory is known and which a decoder may crash."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r}); from pathlib import Path\n"
        f"from images.test_fuzz import hammer; print(*hammer(0, {n}, Path({str(tmp_path / 'x')!r})))"
    )
    limit = 60 + n * 0.02
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, done.stderr[-2000:]
    images, errors, grown = map(float, done.stdout.split())
    assert images + errors == n
    assert min(images, errors) > 0.1 * n  # else all damages are too small or too large
    assert grown < MOST_MEGABYTES


def test_undamaged_files_are_read(tmp_path):
    for number, seed in enumerate(SEEDS):
        (tmp_path / str(number)).write_bytes(seed)
        assert read_image(tmp_path / str(number), "RGB").mode == "RGB"


@pytest.fixture(params=[150, pytest.param(3000, marks=pytest.mark.slow)])
def folder(request, tmp_path):
    for number in range(request.param):
        path = tmp_path / ("cat", "dog")[number % 2] / f"{number:05}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(SEEDS[0] if number < 2 else damaged(number))
    return tmp_path


def test_skipped_files_are_reported_once_and_the_others_are_read(folder):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = load_image_folder(folder, size=8, on_error="skip", max_pixels=MAX_PIXELS)
        pixels = PixelFeatures(size=8, on_error="skip", max_pixels=MAX_PIXELS)
        files = load_image_folder(folder, decode=False).filenames
        rows = pixels.transform(files)
    assert [type(warning.message) for warning in caught] == [UserWarning, UserWarning]
    assert len(found.images) + len(found.skipped) == len(files)
    assert 0 < len(found.skipped) < len(files)
    skipped = {number for number, _, _ in pixels.skipped_}
    assert skipped == {number for number, _, _ in found.skipped}
    assert skipped == set(np.flatnonzero(np.isnan(rows).any(axis=1)))
    assert found.filenames == [file for number, file in enumerate(files) if number not in skipped]
