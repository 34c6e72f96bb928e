"""Colours and textures of images."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from ledl.features import ColorFeatures, ImageError
from ledl.images._color import PATTERNS


@pytest.fixture
def image(rng):
    """Return an image of 128 x 128 pixels with smooth and rough parts, in many colours."""
    smooth = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((128, 128))
    pixels = np.array(smooth, dtype=int)
    pixels[:64] += rng.integers(-40, 40, (64, 128, 3))
    return np.uint8(pixels.clip(0, 255))


def count(pixels, key):
    """Return how often each key occurs among pixels, as shares of all."""
    found = [key(y, x) for y, x in pixels]
    return {name: found.count(name) / len(found) for name in set(found)}


def test_values_are_square_roots_of_shares_counted_one_by_one(image):
    (row,) = ColorFeatures().fit_transform([image])
    colors, patterns, gradients = row[:256], row[256:433].reshape(3, 59), row[433:].reshape(3, 32)
    picture = Image.fromarray(image)
    hsv, gray = np.asarray(picture.convert("HSV")), np.asarray(picture.convert("L"), dtype=int)
    everywhere = [(y, x) for y in range(128) for x in range(128)]
    expected = count(everywhere, lambda y, x: (hsv[y, x, 0] // 32, hsv[y, x, 1] // 64, hsv[y, x, 2] // 32))
    for (h, s, v), share in expected.items():
        assert_allclose(colors.reshape(8, 4, 8)[h, s, v], math.sqrt(share / 3), rtol=1e-5)
    assert_allclose((colors**2).sum(), 1 / 3, rtol=1e-5)

    ring = [(-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)]
    for k, d in enumerate((1, 2, 4)):
        inner = [(y, x) for y in range(d, 128 - d) for x in range(d, 128 - d)]
        found = count(
            inner,
            lambda y, x, d=d: sum(
                (gray[y + d * i, x + d * j] >= gray[y, x]) << n for n, (i, j) in enumerate(ring)
            ),
        )
        by_pattern = np.zeros(59)
        for code, share in found.items():
            by_pattern[PATTERNS[code]] += share
        assert_allclose(patterns[k], np.sqrt(by_pattern / 9), rtol=1e-5)

    for k, scale in enumerate((1, 2, 4)):
        side = 128 // scale
        means = [
            [gray[scale * y : scale * (y + 1), scale * x : scale * (x + 1)].mean() for x in range(side)]
            for y in range(side)
        ]

        def slope(y, x, dy, dx, means=means, side=side):
            ahead = means[min(y + dy, side - 1)][min(x + dx, side - 1)]
            behind = means[max(y - dy, 0)][max(x - dx, 0)]
            steps = min(y * dy + x * dx + 1, side - 1) - max(y * dy + x * dx - 1, 0)
            return (ahead - behind) / steps

        def cell(y, x):
            down, right = slope(y, x, 1, 0), slope(y, x, 0, 1)
            angle = math.degrees(math.atan2(down, right)) % 180
            return int(angle // 45) % 4, min(int(math.log2(1 + math.hypot(down, right))), 7)

        found = count([(y, x) for y in range(side) for x in range(side)], cell)
        expected = np.zeros((4, 8))
        for place, share in found.items():
            expected[place] = math.sqrt(share / 9)
        assert_allclose(gradients[k].reshape(4, 8), expected, atol=2e-2)  # angles of exactly 45 degrees
        assert abs(gradients[k].reshape(4, 8) - expected).mean() < 2e-3


def test_the_patterns_are_the_58_uniform_ones_and_all_others():
    def circles(code):
        bits = [code >> i & 1 for i in range(8)]
        return sum(bits[i] != bits[i - 1] for i in range(8))

    uniform = [code for code in range(256) if circles(code) <= 2]
    assert len(uniform) == 58
    assert sorted(PATTERNS[uniform]) == list(range(58))
    assert set(PATTERNS) - set(PATTERNS[uniform]) == {58}


def test_rows_have_norm_one_for_images_of_any_size_and_mode(rng):
    images = [np.zeros((1, 1), np.uint8), rng.integers(0, 256, (70, 300, 3), dtype=np.uint8)]
    images += [np.full((90, 80, 3), 255, np.uint8), np.uint8(255 * (np.indices((128, 128)).sum(axis=0) % 2))]
    features = ColorFeatures().fit_transform(images)
    assert features.shape == (4, 529)
    assert features.dtype == np.float32
    assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)


def test_bad_images_are_named_or_listed(image, tmp_path):
    (tmp_path / "bad.png").write_text("not an image")
    with pytest.raises(ImageError, match=r"bad.png is not an image"):
        ColorFeatures().transform([image, tmp_path / "bad.png"])
    extractor = ColorFeatures(on_error="skip")
    with pytest.warns(UserWarning, match="1 of 2 images could not be read and have rows of NaN"):
        features = extractor.transform([image, tmp_path / "bad.png"])
    assert_array_equal(np.isnan(features).all(axis=1), [False, True])
    assert [number for number, _, _ in extractor.skipped_] == [1]
    Image.fromarray(image).save(tmp_path / "good.png")
    with pytest.raises(ImageError, match="more than 5"):
        ColorFeatures(max_pixels=5).transform([tmp_path / "good.png"])
    with pytest.raises(ValueError, match="'on_error' parameter"):
        ColorFeatures(on_error="stop").fit()


def test_features_have_names(image):
    frame = ColorFeatures().set_output(transform="pandas").fit_transform([image])
    assert frame.columns[528] == "colorfeatures528"
