"""Read images, good and bad, and folders of them."""

import os
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from ledl.datasets import load_image_folder
from ledl.features import ImageError
from ledl.images import median_short_side, read_image


def save(path, array=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.full((6, 8, 3), 100, np.uint8) if array is None else array
    Image.fromarray(array).save(path, **options)


@pytest.fixture
def folder(tmp_path, rng):
    for label in ("cat", "dog"):
        for i, suffix in enumerate(("png", "bmp", "tif")):
            save(tmp_path / label / f"{i}.{suffix}", rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return tmp_path


def test_class_folders(folder):
    (folder / "cat" / "notes.txt").write_text("not an image")
    (folder / ".hidden").mkdir()
    found = load_image_folder(folder)
    assert found.target_names == ["cat", "dog"]
    assert_array_equal(found.target, [0, 0, 0, 1, 1, 1])
    assert found.images.shape == (6, 6, 8, 3)
    assert found.data.shape == (6, 144)
    assert found.data.dtype == np.float32
    assert_array_equal(found.images[1], np.asarray(Image.open(found.filenames[1])))
    assert found.skipped == []
    gray = load_image_folder(folder, color="gray", size=(4, 5))
    assert gray.images.shape == (6, 4, 5)
    listing = load_image_folder(folder, decode=False)
    assert listing.filenames == found.filenames
    assert "images" not in listing


def test_modes_and_rotation(tmp_path):
    upright = np.zeros((6, 8, 3), np.uint8)
    upright[0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to see it upright
    turned = Image.fromarray(upright).transpose(Image.Transpose.ROTATE_90)
    (tmp_path / "a").mkdir()
    turned.save(tmp_path / "a" / "turned.png", exif=exif)
    Image.fromarray(upright[:, :, 0]).save(tmp_path / "a" / "x_gray.png")
    Image.fromarray(np.uint16(upright[:, :, 0]) * 257).save(tmp_path / "a" / "y_16bit.tif")
    Image.fromarray(upright).convert("P").save(tmp_path / "a" / "z_palette.png")
    see_through = np.dstack([upright, np.zeros((6, 8), np.uint8)])
    Image.fromarray(see_through).save(tmp_path / "a" / "zz_transparent.png")
    images = load_image_folder(tmp_path).images
    for image in images[:4]:
        assert_array_equal(image, upright)
    assert_array_equal(images[4], 255)


def test_a_table_of_labels(tmp_path):
    for name in ("b.png", "a.png", "sub/c.png"):
        save(tmp_path / name)
    table = tmp_path / "labels.csv"
    table.write_text("label,filename\ndog,b.png\ncat,a.png\ndog,sub/c.png\n", encoding="utf-8")
    found = load_image_folder(tmp_path, labels=table)
    assert [os.path.relpath(f, tmp_path) for f in found.filenames] == [
        "a.png",
        "b.png",
        os.path.join("sub", "c.png"),
    ]
    assert found.target_names == ["cat", "dog"]
    assert_array_equal(found.target, [0, 1, 1])
    table.write_text("b.png,dog\na.png,cat\n", encoding="utf-8")
    assert len(load_image_folder(tmp_path, labels="labels.csv").target) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("../secret.png,cat\n", "is not in"),
        ("a.png,cat\na.png,dog\n", "two labels, 'cat' and 'dog'"),
        ("a.png\n", "a file name and a label in every line"),
        ("a.png,\n", "is empty"),
        ("", "a file name and a label"),
        ("a.png,Cat\nb.png,cat\n", "Two classes have the same name: 'Cat' and 'cat'"),
        ("a.png,dog\ngone.png,cat\n", "line 2: there is no file 'gone.png'"),
    ],
)
def test_bad_tables_are_reported(text, message, tmp_path):
    save(tmp_path / "a.png")
    save(tmp_path / "b.png")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(ImageError, match=message):
        load_image_folder(tmp_path, labels=tmp_path / "labels.csv")
    (tmp_path / "labels.csv").write_bytes(b"a.png,\xff\xfe\n")
    with pytest.raises(ImageError, match="must be CSV in UTF-8"):
        load_image_folder(tmp_path, labels=tmp_path / "labels.csv")


SIZES = {"large": (9000, 9000), "bomb": (30000, 30000)}  # above our limit, and above Pillow's


def bad_image(kind, path):
    if kind == "text":
        path.write_text("this is not an image")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        save(path, np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8))
        path.write_bytes(path.read_bytes()[:3000])
    elif kind in SIZES:  # a small file whose header has many pixels
        save(path)
        content = bytearray(path.read_bytes())
        content[16:24] = struct.pack(">II", *SIZES[kind])
        content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
        path.write_bytes(content)
    elif kind == "lying":  # a format that is not read, under a name that is
        path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    elif kind == "pipe":
        os.mkfifo(path)


KINDS = {
    "text": "is not an image",
    "empty": "is not an image",
    "truncated": "cannot be decoded",
    "large": "more than max_pixels=67108864",
    "bomb": "too many pixels",
    "lying": "is not an image",
    "pipe": "is not a file",
}


@pytest.mark.parametrize("kind", KINDS)
def test_bad_images_are_named_or_skipped_and_counted(kind, folder):
    bad_image(kind, folder / "cat" / "bad.png")
    with pytest.raises(ImageError, match=rf"bad.png .*{KINDS[kind]}"):
        load_image_folder(folder)
    with pytest.warns(
        UserWarning, match=r"1 of 7 images could not be read and (were left out|have rows of NaN): .*bad.png"
    ):
        found = load_image_folder(folder, on_error="skip")
    assert len(found.images) == len(found.target) == len(found.filenames) == 6
    (number, name, reason) = found.skipped[0]
    assert number == 3
    assert name.endswith("bad.png")
    assert KINDS[kind] in reason


def test_folders_with_another_layout_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        load_image_folder(tmp_path / "gone")
    save(tmp_path / "a.png")
    with pytest.raises(ImageError, match=r"has no folders.*labels="):
        load_image_folder(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError, match="class 'empty' has no images"):
        load_image_folder(tmp_path)
    (tmp_path / "empty" / "x.png").write_text("not an image")
    save(tmp_path / "full" / "a.png")
    with pytest.raises(ImageError, match="No image of the class 'empty' can be read"):
        load_image_folder(tmp_path, on_error="skip")
    save(tmp_path / "empty" / "x.png")
    save(tmp_path / "Full" / "a.png")
    with pytest.raises(ImageError, match="Two classes have the same name: 'Full' and 'full'"):
        load_image_folder(tmp_path)
    with pytest.raises(ValueError, match="color='blue'"):
        load_image_folder(tmp_path, color="blue")


def test_different_sizes_ask_for_one(folder):
    save(folder / "cat" / "large.png", np.zeros((9, 9, 3), np.uint8))
    for on_error in ("raise", "skip"):
        with pytest.raises(ValueError, match=r"different sizes.*large.png \(9, 9, 3\).*Give size="):
            load_image_folder(folder, on_error=on_error)
    assert load_image_folder(folder, size=4).images.shape == (7, 4, 4, 3)


def test_names_that_are_not_utf8(tmp_path):
    save(tmp_path / "good" / "a.png")
    name = os.path.join(os.fsencode(tmp_path / "good"), b"\xff.png")
    with open(name, "wb") as file:
        file.write((tmp_path / "good" / "a.png").read_bytes())
    assert len(load_image_folder(tmp_path).images) == 2  # a file's name need not be printed
    os.mkdir(os.path.join(os.fsencode(tmp_path), b"bad\xff"))
    with pytest.raises(ImageError, match=r"not UTF-8: .*bad\\xff"):
        load_image_folder(tmp_path)


def test_broken_exif_data_are_left_alone(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = bytearray(exif.tobytes())
    content[10:14] = b"\xff\xff\xff\xff"
    save(tmp_path / "a" / "a.png")
    Image.new("RGB", (8, 6), (100, 100, 100)).save(tmp_path / "a" / "b.jpg", exif=bytes(content), quality=100)
    assert load_image_folder(tmp_path, size=6).images.shape == (2, 6, 6, 3)


@pytest.mark.parametrize("size", ["4", (4,), 0, 4.0, (0, 3)])
def test_bad_sizes_are_reported(size, folder):
    with pytest.raises(ValueError, match="must be a number of pixels"):
        load_image_folder(folder, size=size)


def test_pixels_that_are_nan_are_reported(tmp_path):
    values = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    values[1, 2] = np.nan
    Image.fromarray(values).save(tmp_path / "nan.tif")
    with pytest.raises(ImageError, match=r"nan.tif cannot be decoded: some of its pixels are NaN or infinite"):
        read_image(tmp_path / "nan.tif", "L")
    Image.fromarray(np.full((3, 4), 3e38, dtype=np.float32)).save(tmp_path / "large.tif")
    assert_array_equal(np.asarray(read_image(tmp_path / "large.tif", "L")), 255)


def test_filters_of_warnings_are_restored(folder, tmp_path):
    good, bad = folder / "cat" / "0.png", tmp_path / "bad.png"
    bad.write_text("not an image")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module=r"PIL\.")
        before = list(warnings.filters)
        read_image(good, "RGB")
        with pytest.raises(ImageError):
            read_image(bad, "RGB")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read_image, [good] * 100, ["L"] * 100))
        assert list(warnings.filters) == before


@pytest.fixture
def large(tmp_path, rng):
    """Write a JPEG file of 1600 x 1200 pixels, on its side, with coarse and fine structure. Return its path."""
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((1600, 1200))
    pixels = np.asarray(coarse, dtype=int) + rng.integers(-30, 30, (1200, 1600, 1))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.uint8(pixels.clip(0, 255))).save(tmp_path / "large.jpg", quality=90, exif=exif)
    return tmp_path / "large.jpg"


def test_a_large_jpeg_file_is_decoded_smaller_and_looks_the_same(large):
    full = read_image(large, "RGB")
    assert full.size == (1200, 1600)
    for side, expected in ((32, (150, 200)), (100, (300, 400)), (224, (600, 800)), (700, (1200, 1600))):
        image = read_image(large, "RGB", shrink_to=side)
        assert image.size == expected
        assert min(expected) >= 2 * side or expected == full.size
        small, reduced = (np.asarray(one.resize((side, side)), dtype=float) for one in (full, image))
        assert np.sqrt(np.mean((small - reduced) ** 2)) < 1  # grey level


def test_other_formats_and_small_images_are_decoded_in_full(large, tmp_path):
    read_image(large, "RGB").save(tmp_path / "large.png")
    assert read_image(tmp_path / "large.png", "RGB", shrink_to=32).size == (1200, 1600)
    small = read_image(large, "RGB").resize((63, 80))
    small.save(tmp_path / "small.jpg")
    assert_array_equal(
        read_image(tmp_path / "small.jpg", "RGB", shrink_to=32), read_image(tmp_path / "small.jpg", "RGB")
    )
    with pytest.raises(ImageError, match="max_pixels=1000"):
        read_image(large, "RGB", shrink_to=32, max_pixels=1000)


def test_the_shorter_side_of_images_is_read_from_their_headers(tmp_path, rng):
    files = []
    for i, size in enumerate([(40, 90), (90, 50), (300, 400)]):
        files.append(tmp_path / f"{i}.png")
        save(files[-1], rng.integers(0, 256, (*size, 3), dtype=np.uint8))
    files[1].write_bytes(files[1].read_bytes()[:200])  # it could not be decoded
    assert median_short_side(files) == 50
    assert median_short_side([*files[:2], tmp_path / "gone.png"]) == 45
    (tmp_path / "text.png").write_text("not an image")
    assert median_short_side([tmp_path / "text.png"]) is None
    assert median_short_side([]) is None
    assert median_short_side([files[0]] * 98 + [files[2]] * 102, n=5) == 300  # spread over the list
