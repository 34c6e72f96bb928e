"""Read images, good and bad, of many kinds."""

import io
import os
import struct
import subprocess
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image, TiffImagePlugin, features

from ledl.features import ImageError
from ledl.images import _reading, median_short_side, read_image

# Yellow above red, and blue beside them: an image that shows rotations and swapped channels.
COLOURS = np.zeros((16, 24, 3), np.uint8)
COLOURS[:, :12, 0] = 255
COLOURS[:8, :12, 1] = 255
COLOURS[:, 12:, 2] = 255


def corners(pixels):
    return np.int64(pixels)[[2, -3]][:, [2, -3]]


def read_back(path):
    return np.asarray(read_image(path, "RGB"))


def deep_png(values):
    """Return a PNG file with 16 bits a channel, which Pillow cannot write."""
    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def tiff(values, *, zero_is_white, orientation=1):
    """Return a TIFF file of one channel with either meaning of zero, which Pillow cannot write."""
    height, width = values.shape
    kind = 3 if values.dtype.kind == "f" else 1
    tags = {256: width, 257: height, 258: values.itemsize * 8, 259: 1, 262: int(not zero_is_white)}
    tags |= {273: 146, 274: orientation, 277: 1, 278: height, 279: values.nbytes, 339: kind}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + values.tobytes()


@pytest.mark.parametrize("name", ["a.jpg", "a.tif"])
def test_colours_of_printers_become_those_of_screens(name, tmp_path):
    Image.fromarray(COLOURS).convert("CMYK").save(tmp_path / name)
    with Image.open(tmp_path / name) as image:
        assert image.mode == "CMYK"
    assert_allclose(corners(read_back(tmp_path / name)), corners(COLOURS), atol=40)


def test_16_bits_a_channel_become_8(tmp_path):
    (tmp_path / "a.png").write_bytes(deep_png(np.uint16(COLOURS) * 257))
    assert_array_equal(read_back(tmp_path / "a.png"), COLOURS)
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(4, axis=0)
    Image.fromarray(ramp).save(tmp_path / "b.png")
    assert_allclose(read_back(tmp_path / "b.png")[:, :, 0], ramp / 257, atol=0.51)


@pytest.mark.parametrize("top", [255, 1023, 4095, 16383, 65535])
@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_cameras_of_10_12_and_14_bits_are_not_black(top, dtype, tmp_path):
    """White is what nearly all pixels do not exceed. One pixel that shines changes no other."""
    ramp = np.linspace(0, top, 256)[None].repeat(64, axis=0).astype(dtype)
    Image.fromarray(ramp).save(tmp_path / "a.tif")
    usual = read_back(tmp_path / "a.tif")
    assert_allclose(usual[:, :, 0], ramp / (top / 255), atol=0.51)
    ramp[0, 0] = min(8 * top, 65535)
    Image.fromarray(ramp).save(tmp_path / "a.tif")
    assert_array_equal(read_back(tmp_path / "a.tif")[1:], usual[1:])


@pytest.mark.parametrize("top", [255, 4095, 65535, 1.0])
@pytest.mark.parametrize("orientation", [1, 3])
def test_negatives_are_not_shown_as_negatives(top, orientation, tmp_path):
    """TIFF files whose zero is white. Pillow inverts those of 8 bits itself."""
    ramp = np.linspace(0, top, 256)[None].repeat(64, axis=0)
    ramp = ramp.astype(np.float32 if top == 1 else np.uint16)
    for zero_is_white, name in ((False, "plain.tif"), (True, "negative.tif")):
        (tmp_path / name).write_bytes(tiff(ramp, zero_is_white=zero_is_white, orientation=orientation))
    (tmp_path / "bytes.tif").write_bytes(
        tiff(np.uint8(np.arange(256)[None].repeat(64, axis=0)), zero_is_white=True, orientation=orientation)
    )
    plain, negative, of_bytes = (
        np.int64(read_back(tmp_path / name)) for name in ("plain.tif", "negative.tif", "bytes.tif")
    )
    assert_array_equal(negative, 255 - plain)
    assert_allclose(negative, of_bytes, atol=1)


def test_floats_end_at_1_even_if_one_is_more(tmp_path):
    values = np.linspace(0, 1, 4096, dtype=np.float32).reshape(64, 64)
    Image.fromarray(values).save(tmp_path / "a.tif")
    usual = read_back(tmp_path / "a.tif")
    values[0, 0] = 1.02
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert_array_equal(read_back(tmp_path / "a.tif")[1:], usual[1:])
    assert usual.max() == 255


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_lab_is_read(mode, tmp_path):
    Image.new("LAB", (8, 8), (200, 128, 128)).save(tmp_path / "a.tif")
    assert np.all(np.asarray(read_image(tmp_path / "a.tif", mode)) > 100)


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp", "a.avif", "a.tif"])
def test_the_first_frame_of_an_animation_counts(name, tmp_path):
    if name == "a.avif" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    first, second = Image.fromarray(COLOURS), Image.fromarray(COLOURS[:, ::-1])
    options = {"lossless": True} if name == "a.webp" else {}
    first.save(tmp_path / name, save_all=True, append_images=[second], **options)
    with Image.open(tmp_path / name) as image:
        assert image.n_frames == 2
    assert_allclose(corners(read_back(tmp_path / name)), corners(COLOURS), atol=10)


def test_transparent_pixels_of_palettes_are_white(tmp_path):
    picture = Image.fromarray(COLOURS).quantize(3)
    index = picture.getpixel((0, 0))
    for name in ("a.gif", "a.png"):
        picture.save(tmp_path / name, transparency=index)
        expected = COLOURS.copy()
        expected[:8, :12] = 255
        assert_array_equal(read_back(tmp_path / name), expected)


def with_more_scans(n, **options):
    """Return a JPEG file that paints its last pixels again `n` times."""
    file = io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(file, "JPEG", progressive=True, **options)
    content = file.getvalue()
    last = content.rindex(b"\xff\xda")
    tables = content.rindex(b"\xff\xc4", 0, last)
    return content[:-2] + content[tables:-2] * n + content[-2:]


def test_jpeg_files_that_paint_their_pixels_again_and_again_are_refused(tmp_path):
    """A hundred bytes for each time: a small file could take hours."""
    path = tmp_path / "again.jpg"
    for before in (b"", b"\xff\xd8\xff\xd9"):  # a file of tables alone, which may come first
        path.write_bytes(before + with_more_scans(150))
        with pytest.raises(ImageError, match=r"again.jpg has more than 100 scans.*save it again"):
            read_image(path, "RGB")
        path.write_bytes(before + with_more_scans(80))
        assert read_image(path, "RGB").getpixel((0, 0))[0] > 250
    # What comes after the image, and pictures within its head, are no scans of it.
    exif = Image.Exif()
    exif[0x927C] = b"\xff\xda" * 200
    path.write_bytes(with_more_scans(0, exif=exif) + b"\0\2" + b"\xff\xda\0\2" * 200)
    assert read_image(path, "RGB").getpixel((0, 0))[0] > 250


# Parts that say nothing (a chunk of PNG, a comment of GIF, a marker of JPEG), and before what they go.
TINY = {
    "PNG": (b"\0\0\0\0abCd\x78\x06\xe9\xb3", (b"\0\0\0\0IEND", b"IDAT")),
    "GIF": (b"!\xfe\x01a\0", (b",\0\0\0\0",)),
    "JPEG": (b"\xff\xe0\0\2", (b"\xff\xe0", b"\xff\xd9")),
}


@pytest.mark.parametrize("form", TINY)
def test_files_of_very_many_tiny_parts_are_refused(form, tmp_path, monkeypatch):
    """Pillow, or the count of scans, looks at each of them with lines of Python."""
    monkeypatch.setattr(_reading, "MOST_READS", 1000)
    monkeypatch.setattr(_reading, "MOST_MARKERS", 500)
    file, (part, places) = io.BytesIO(), TINY[form]
    Image.new("RGB", (64, 48), "red").save(file, form)
    content, path = file.getvalue(), tmp_path / "parts.image"
    for place in places:
        at = content.index(place) - 4 * (place == b"IDAT")
        for n in (100, 2000):
            path.write_bytes(content[:at] + part * n + content[at:])
            if n == 100:
                assert read_image(path, "RGB").size == (64, 48)
                continue
            with pytest.raises(ImageError, match=r"has (millions of tiny parts|more than 500 markers)"):
                read_image(path, "RGB")


def n_scans(content, monkeypatch):
    """Return how many scans are counted in a JPEG file."""
    for n in range(200):
        monkeypatch.setattr(_reading, "MOST_SCANS", n)
        if _reading._why_much_work(io.BytesIO(content)) is None:
            return n
    raise AssertionError("more than 200")


# Restarts and markers without a length are among the pixels: what follows is no length.
@pytest.mark.parametrize("odd", [b"", b"\xff\x01\0\6\xff\xfe\0\6\xff\xd9\0\0", b"\xff\xd3\xff\xff"])
@pytest.mark.parametrize("block", [_reading.BLOCK, 7, 100])
def test_scans_of_jpeg_files_are_counted_as_decoders_count_them(odd, block, monkeypatch):
    monkeypatch.setattr(_reading, "BLOCK", block)
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (60, 70, 3), dtype=np.uint8))
    found = []
    for options in ({}, {"progressive": True}, {"quality": 100, "restart_marker_blocks": 1}):
        file = io.BytesIO()
        noise.save(file, "JPEG", **options)
        content = file.getvalue()
        found.append(n_scans(content, monkeypatch))
        content = content[:-2] + odd + content[content.rindex(b"\xff\xda") : -2] * 50 + content[-2:]
        assert n_scans(content, monkeypatch) == found[-1] + 50
        assert n_scans(content[:-2], monkeypatch) == found[-1] + 50  # cut off
    assert found == [1, 10, 1]


def test_what_a_part_of_a_jpeg_file_has_is_no_marker_with_what_comes_next(monkeypatch):
    monkeypatch.setattr(_reading, "BLOCK", 8)
    content = b"\xff\xd8\xff\xfe\0\6\0\0\0\xff\xd9" + b"\xff\xda\0\2" * 5  # no end of the image
    assert n_scans(content, monkeypatch) == 5


@pytest.mark.parametrize(
    ("magic", "largest", "mode"),
    [(b"P5", 100, "L"), (b"P5", 4095, "L"), (b"P6", 254, "RGB"), (b"P6", 300, "RGB"), (b"PyCMYK", 100, "RGB")],
)
def test_pixels_of_an_unusual_depth_are_scaled_as_pillow_scales_them(tmp_path, magic, largest, mode):
    """Pillow does it pixel by pixel in Python: 12 million of a camera of 12 bits took 8 seconds."""
    rng = np.random.default_rng(0)
    depth = {b"P5": 1, b"P6": 3}.get(magic, 4)
    values = rng.integers(0, largest + 1, (13, 17, depth)).astype(">u2" if largest > 255 else "u1")
    path = tmp_path / "camera.pgm"
    path.write_bytes(b"%s # a camera\n17 13 %d\n" % (magic, largest) + values.tobytes() + b"more")
    with Image.open(path) as plain:
        assert_array_equal(np.asarray(read_image(path, mode)), np.asarray(read_image(plain, mode)))
    with path.open("rb+") as file:
        file.truncate(200)
    with pytest.raises(ImageError, match=r"camera.pgm cannot be decoded: image file is truncated"):
        read_image(path, mode)


def test_files_whose_parts_share_their_bytes_are_refused(tmp_path, monkeypatch):
    """A stranger can make a small file of many large parts."""
    n, packed = 2**10, zlib.compress(bytes(256)) + bytes(9000)
    tags = [(256, 512), (257, 512), (258, 8), (259, 8), (262, 1), (277, 1), (322, 16), (323, 16)]
    at = 8 + 2 + 12 * (len(tags) + 2) + 4
    tags += [(324, at), (325, at + 4 * n)]
    entries = [struct.pack("<HHII", tag, 4, n if tag in (324, 325) else 1, value) for tag, value in tags]
    head = b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    for size, is_refused in ((64, False), (len(packed), True)):
        places = struct.pack(f"<{2 * n}I", *[at + 8 * n] * n, *[size] * n)
        (tmp_path / "a.tif").write_bytes(head + places + packed)
        if is_refused:
            with pytest.raises(ImageError, match=r"a.tif has tiles or strips that share their bytes.*save it"):
                read_image(tmp_path / "a.tif", "L")
        else:
            assert read_image(tmp_path / "a.tif", "L").size == (512, 512)


def test_pixels_in_runs_are_limited(tmp_path, monkeypatch):
    """Pillow decodes them in Python."""
    head = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 0, 0, 1078, 40, 200, 100, 1, 8, 1, 0, 0, 0, 256, 0)
    (tmp_path / "runs.bmp").write_bytes(head + bytes(1024) + b"\xc8\0\0\0" * 100 + b"\0\1")
    assert read_image(tmp_path / "runs.bmp", "L").size == (200, 100)
    with monkeypatch.context() as patched:
        patched.setattr(_reading, "MOST_READS", 20)  # runs are read one by one, and limited in another way
        assert read_image(tmp_path / "runs.bmp", "L").size == (200, 100)
        patched.setattr(_reading, "MOST_CODED_PIXELS", 19_999)
        with pytest.raises(ImageError, match=r"runs.bmp has 200 x 100 pixels in runs"):
            read_image(tmp_path / "runs.bmp", "L")
    monkeypatch.setattr(_reading, "LARGEST_TEXT", 100)
    (tmp_path / "text.pgm").write_bytes(b"P2 10 10 255 " + b"7 " * 100)
    with pytest.raises(ImageError, match=r"text.pgm has more than 0 MB of pixels as text"):
        read_image(tmp_path / "text.pgm", "L")


def test_exif_data_far_beyond_their_limit_are_refused(tmp_path):
    """Pillow joins their parts again and again."""
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG")
    part = b"\xff\xe1\xff\xffExif\0\0" + bytes(65533 - 6)
    for n in (10, 17):
        (tmp_path / "a.jpg").write_bytes(b"\xff\xd8" + part * n + file.getvalue()[2:])
        if n == 10:
            assert read_image(tmp_path / "a.jpg", "RGB").size == (8, 8)
            continue
        with pytest.raises(ImageError, match=r"a.jpg has more than 1 MB of EXIF data"):
            read_image(tmp_path / "a.jpg", "RGB")


@pytest.mark.parametrize("start", [b"II*\0", b"MM\0*", b"II+\0"])
def test_tags_of_millions_of_fractions_are_refused(start, tmp_path):
    """Pillow makes a Fraction of each: eight megabytes took five seconds."""
    Image.new("L", (8, 8)).save(tmp_path / "a.tif", dpi=(72, 72), big_tiff=start[2:3] == b"+")
    assert read_image(tmp_path / "a.tif", "L").size == (8, 8)  # with two fractions
    order, is_large = "<>"[start[:1] == b"M"], start[2:3] == b"+"
    n = 20_000
    form, offset = (f"{order}4sHHQQHHQQ", 44) if is_large else (f"{order}4sIHHHII", 26)
    head = (start, 8, 0, 16, 1, 274, 5, n, offset) if is_large else (start, 8, 1, 274, 5, n, offset)
    head = struct.pack(form, *head)
    (tmp_path / "a.tif").write_bytes(head + bytes(8) + b"\1\0\0\0" * 2 * n)
    with pytest.raises(ImageError, match=r"a.tif has a tag of more than 10000 fractions"):
        read_image(tmp_path / "a.tif", "L")


def test_directories_that_only_cameras_need_are_not_decoded(tmp_path, monkeypatch):
    """Pillow keeps all that they have: twenty megabytes of fractions took fifteen seconds."""
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[0x0112], tags[0x8769], tags[0x8825] = 6, {0x829A: 0.02}, {2: (52.0, 31.0, 12.0)}
    Image.new("L", (8, 4)).save(tmp_path / "a.tif", tiffinfo=tags)
    with Image.open(tmp_path / "a.tif") as image:
        image.load()
        assert image.getexif().get_ifd(0x8825)[2] == (52, 31, 12)  # they are there
    monkeypatch.setattr(Image.Exif, "get_ifd", lambda *_: pytest.fail("a directory is decoded"))
    assert read_image(tmp_path / "a.tif", "L").size == (4, 8)


@pytest.mark.skipif(not features.check("avif"), reason="needs a Pillow with AVIF")
@pytest.mark.parametrize("brand", [b"avif", b"mif1"])
def test_turned_avif_files_with_megabytes_of_exif_data_are_refused(brand, tmp_path):
    """Pillow wrote these anew, before anybody could look how many they are."""
    for n in (1000, 1_100_000):
        head = struct.pack("<4sIHHHIIHHIII", b"II*\0", 8, 2, 274, 3, 1, 6, 40000, 7, n, 38, 0)
        file = io.BytesIO()
        Image.new("RGB", (8, 4)).save(file, "AVIF", exif=b"Exif\0\0" + head + bytes(n))
        content = file.getvalue().replace(b"ftypavif", b"ftyp" + brand, 1)
        (tmp_path / "a.avif").write_bytes(content)
        if n == 1000:
            assert read_image(tmp_path / "a.avif", "RGB").size == (4, 8)
            continue
        with pytest.raises(ImageError, match=r"a.avif has more than 1 MB of EXIF data"):
            read_image(tmp_path / "a.avif", "RGB")


def boxed(kind, content, *, is_long=False):
    size = 8 + 8 * is_long + len(content)
    return (
        struct.pack(">I4sQ", 1, kind, size) + content if is_long else struct.pack(">I4s", size, kind) + content
    )


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize(("version", "wide"), [(0, 2), (1, 2), (2, 4)])
def test_items_of_avif_files_are_found_in_all_forms_of_their_table(version, wide, is_long):
    """By the standard ISO/IEC 14496-12: numbers of two or four bytes, and sizes of any width."""
    head = bytes([3 if wide == 4 else 2, 0, 0, 0])
    entry = boxed(b"infe", head + (7).to_bytes(wide) + b"\0\0Exif", is_long=is_long)
    for n_length in (4, 8):
        table = bytes([version, 0, 0, 0, 0x40 + n_length, 0x40]) + (2).to_bytes(wide)
        for item, sizes in ((3, [2**30]), (7, [600_000, 600_000])):
            table += item.to_bytes(wide) + bytes(2 * (version > 0)) + bytes(2 + 4) + len(sizes).to_bytes(2)
            table += b"".join(bytes(4) + size.to_bytes(n_length) for size in sizes)
        table = boxed(b"iloc", table, is_long=is_long)
        assert _reading._why_much_work_avif(entry + table) == "more than 1 MB of EXIF data"
        assert _reading._why_much_work_avif(entry + table.replace((600_000).to_bytes(4), bytes(4))) is None
        assert _reading._why_much_work_avif(table) is None


def test_tables_of_avif_files_are_read_for_a_limited_time():
    entry = boxed(b"infe", b"\2\0\0\0\0\7\0\0Exif")
    many = boxed(b"iloc", bytes(6) + (65535).to_bytes(2) + bytes(6) * 65535)
    assert _reading._why_much_work_avif(entry + many) is None
    for much in (entry + 2 * many, entry + 100_001 * b"iloc", 100_001 * entry + many):
        assert _reading._why_much_work_avif(much) == "more than 100000 parts"


@pytest.mark.skipif(not features.check("avif"), reason="needs a Pillow with AVIF")
@pytest.mark.parametrize("before", [b"", bytes(4), b"\0\0\0\x40", b"\xff\xff\xff\xff"])
def test_pixels_of_avif_files_may_have_the_letters_of_a_table(before, tmp_path):
    file = io.BytesIO()
    Image.new("RGB", (8, 4)).save(file, "AVIF", exif=b"Exif\0\0" + Image.Exif().tobytes())
    pixels = boxed(b"free", bytes(9) + before + b"iloc" + b"\xff" * 200_000)
    (tmp_path / "a.avif").write_bytes(file.getvalue() + pixels)
    assert read_image(tmp_path / "a.avif", "RGB").size == (8, 4)


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_exif_data_of_other_formats_have_the_same_limit(form, tmp_path):
    for n in (1000, 1_100_000):
        Image.new("RGB", (8, 8)).save(tmp_path / "a", form, exif=b"Exif\0\0II*\0" + bytes(n))
        if n == 1000:
            assert read_image(tmp_path / "a", "RGB").size == (8, 8)
            continue
        with pytest.raises(ImageError, match="it has more than 1 MB of EXIF data"):
            read_image(tmp_path / "a", "RGB")


@pytest.mark.parametrize("size", [(2**20 + 1, 1), (1, 2**20 + 1)])
def test_images_with_a_side_of_millions_are_refused(size, tmp_path):
    """Pillow's tables for shrinking took gigabytes, or more than it allows itself."""
    Image.new("L", size).save(tmp_path / "a.png")
    with pytest.raises(ImageError, match=r"a.png has \d+ x \d+ pixels, and no side may be longer than 1048576"):
        read_image(tmp_path / "a.png", "L")


def test_a_stereo_photo_may_not_paint_its_pixels_again_and_again(tmp_path):
    pair = [Image.new("RGB", (64, 48), color) for color in ("red", "blue")]
    pair[0].save(tmp_path / "pair.mpo", save_all=True, append_images=pair[1:])
    content = (tmp_path / "pair.mpo").read_bytes()
    assert read_image(tmp_path / "pair.mpo", "RGB").size == (64, 48)
    scan = content[content.index(b"\xff\xda") : content.index(b"\xff\xd9")]
    (tmp_path / "pair.mpo").write_bytes(content.replace(scan, scan * 120, 1))
    with pytest.raises(ImageError, match="more than 100 scans"):
        read_image(tmp_path / "pair.mpo", "RGB")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_upright(orientation, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    # What the camera stores, by the definition of the tag: where row 0 and column 0 of the file are.
    turned = {
        1: COLOURS,
        2: COLOURS[:, ::-1],
        3: COLOURS[::-1, ::-1],
        4: COLOURS[::-1],
        5: COLOURS.transpose(1, 0, 2),
        6: COLOURS.transpose(1, 0, 2)[::-1],
        7: COLOURS.transpose(1, 0, 2)[::-1, ::-1],
        8: COLOURS.transpose(1, 0, 2)[:, ::-1],
    }[orientation]
    Image.fromarray(turned).save(tmp_path / "a.jpg", exif=exif, quality=95, subsampling=0)
    assert_allclose(corners(read_back(tmp_path / "a.jpg")), corners(COLOURS), atol=10)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif_is_read_and_refused_by_name_where_pillow_cannot(tmp_path, monkeypatch):
    Image.fromarray(COLOURS).save(tmp_path / "a.avif", quality=95)
    assert_allclose(corners(read_back(tmp_path / "a.avif")), corners(COLOURS), atol=10)
    assert median_short_side([tmp_path / "a.avif"]) == min(COLOURS.shape[:2])
    monkeypatch.delitem(Image.OPEN, "AVIF")
    with pytest.raises(ImageError, match=r"a.avif cannot be read here. Reading AVIF needs a Pillow with AVIF"):
        read_image(tmp_path / "a.avif", "RGB")


# The beginning of a HEIC photo of a phone.
HEIC = struct.pack(">I", 24) + b"ftypheic" + bytes(4) + b"mif1heic"


def test_heic_without_its_extra_says_what_to_install(tmp_path):
    (tmp_path / "IMG_1.HEIC").write_bytes(HEIC)
    # In a process of its own, where pillow-heif cannot be imported.
    code = (
        "import sys; sys.modules['pillow_heif'] = None\n"
        "from ledl.images import read_image\n"
        f"read_image({str(tmp_path / 'IMG_1.HEIC')!r}, 'RGB')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "IMG_1.HEIC cannot be read here. It is a HEIC photo." in done.stderr
    assert "pip install 'ledl[heic]'" in done.stderr


def test_heic_is_read_with_its_extra(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    file = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(COLOURS.repeat(4, 0).repeat(4, 1))).save(file, quality=90)
    (tmp_path / "a.heic").write_bytes(file.getvalue())
    assert_allclose(corners(read_back(tmp_path / "a.heic")[::4, ::4]), corners(COLOURS), atol=20)
    with pytest.raises(ImageError, match="more than 100"):
        read_image(tmp_path / "a.heic", "RGB", max_pixels=100)
    (tmp_path / "b.heic").write_bytes(file.getvalue()[:200])
    with pytest.raises(ImageError, match=r"b\.heic"):
        read_image(tmp_path / "b.heic", "RGB")


def test_pixels_that_are_nan_are_reported(tmp_path):
    values = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    values[1, 2] = np.nan
    Image.fromarray(values).save(tmp_path / "nan.tif")
    with pytest.raises(ImageError, match=r"nan.tif cannot be decoded: some of its pixels are NaN or infinite"):
        read_image(tmp_path / "nan.tif", "L")
    Image.fromarray(np.full((3, 4), 3e38, dtype=np.float32)).save(tmp_path / "large.tif")
    assert_array_equal(np.asarray(read_image(tmp_path / "large.tif", "L")), 255)


def test_filters_of_warnings_are_restored(tmp_path):
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    Image.fromarray(COLOURS).save(good)
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
    with pytest.raises(ImageError, match="more than 1000"):
        read_image(large, "RGB", shrink_to=32, max_pixels=1000)


def test_the_shorter_side_of_images_is_read_from_their_headers(tmp_path, rng):
    files = []
    for i, size in enumerate([(40, 90), (90, 50), (300, 400)]):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(files[-1])
    files[1].write_bytes(files[1].read_bytes()[:200])  # it could not be decoded
    assert median_short_side(files) == 50
    assert median_short_side([*files[:2], tmp_path / "gone.png"]) == 45
    (tmp_path / "text.png").write_text("not an image")
    assert median_short_side([tmp_path / "text.png"]) is None
    assert median_short_side([]) is None
    assert median_short_side([files[0]] * 98 + [files[2]] * 102, n=5) == 300  # spread over the list
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
        assert median_short_side([tmp_path / "pipe.png"]) is None  # without waiting for a writer


def test_tiff_files_with_tiles_far_larger_than_the_image_are_refused(tmp_path, monkeypatch):
    """A tile is decoded as a whole, and many may share one block of bytes."""
    monkeypatch.setattr(_reading, "MAX_PIXELS", 2**14)
    for side, height in ((64, 8), (64, 300), (512, 8)):
        tiles, packed = -(-height // side), zlib.compress(bytes(side**2))
        tags = [(256, 4), (257, height), (258, 8), (259, 8), (262, 1), (277, 1), (322, side), (323, side)]
        at = 8 + 2 + 12 * (len(tags) + 2) + 4
        lists = [(324, tiles, at + 8 * tiles), (325, tiles, len(packed))]
        if tiles > 1:
            lists = [(324, tiles, at), (325, tiles, at + 4 * tiles)]
        entries = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags]
        entries += [struct.pack("<HHII", tag, 4, n, value) for tag, n, value in lists]
        places = struct.pack(f"<{2 * tiles}I", *[at + 8 * tiles] * tiles, *[len(packed)] * tiles)
        head = b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)
        (tmp_path / "tiles.tif").write_bytes(head + places + packed)
        if (side, height) == (64, 8):
            assert read_image(tmp_path / "tiles.tif", "L").size == (4, 8)
            continue
        if (side, height) == (64, 300):  # 64 x 320 pixels, less than twice the limit
            assert read_image(tmp_path / "tiles.tif", "L").size == (4, 300)
            continue
        with pytest.raises(ImageError, match=r"tiles.tif has 262,144 pixels in its tiles.*save it again"):
            read_image(tmp_path / "tiles.tif", "L", max_pixels=1000)


@pytest.mark.parametrize("n", [900, 1100])
def test_pixels_as_text_with_many_comments_are_refused(n, tmp_path):
    """Pillow copies a million bytes for each."""
    (tmp_path / "text.pbm").write_bytes(b"P1\n4 4\n1 0 1 0\n" + b"#\n" * n + b"1 0 1 0\n" * 3)
    if n < 1000:
        assert np.asarray(read_image(tmp_path / "text.pbm", "L")).tolist() == [[0, 255, 0, 255]] * 4
    else:
        with pytest.raises(ImageError, match=r"text.pbm has more than 1000 comments"):
            read_image(tmp_path / "text.pbm", "L")
