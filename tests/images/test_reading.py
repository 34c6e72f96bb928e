"""Folders of images, good and bad, and archives from strangers."""

import gzip
import os
import tarfile
import zipfile

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from ledl.datasets import ArchiveError, _archives, extract, load_image_folder
from ledl.features import ImageError


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
    (folder / "cat" / "notes.txt").write_text("no image")
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
        ("a.png,Cat\nb.png,cat\n", "Two classes have one name: 'Cat' and 'cat'"),
        ("a.png,dog\ngone.png,cat\n", "line 2: there is no file 'gone.png'"),
    ],
)
def test_bad_tables_are_told(text, message, tmp_path):
    save(tmp_path / "a.png")
    save(tmp_path / "b.png")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(ImageError, match=message):
        load_image_folder(tmp_path, labels=tmp_path / "labels.csv")
    (tmp_path / "labels.csv").write_bytes(b"a.png,\xff\xfe\n")
    with pytest.raises(ImageError, match="must be CSV in UTF-8"):
        load_image_folder(tmp_path, labels=tmp_path / "labels.csv")


def bad_image(kind, path):
    if kind == "text":
        path.write_text("this is no image")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        save(path, np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8))
        path.write_bytes(path.read_bytes()[:3000])
    elif kind == "bomb":  # a small file that claims 900 million pixels
        Image.new("1", (30000, 30000)).save(path)
    elif kind == "lying":  # a format that is not read, under a name that is
        path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    elif kind == "pipe":
        os.mkfifo(path)


KINDS = {
    "text": "is not an image",
    "empty": "is not an image",
    "truncated": "cannot be decoded",
    "bomb": "pixels",
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


def test_folders_that_are_not_laid_out_so_are_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        load_image_folder(tmp_path / "gone")
    save(tmp_path / "a.png")
    with pytest.raises(ImageError, match=r"has no folders.*labels="):
        load_image_folder(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError, match="class 'empty' has no images"):
        load_image_folder(tmp_path)
    (tmp_path / "empty" / "x.png").write_text("no image")
    save(tmp_path / "full" / "a.png")
    with pytest.raises(ImageError, match="Of the class 'empty' no image could be read"):
        load_image_folder(tmp_path, on_error="skip")
    save(tmp_path / "empty" / "x.png")
    save(tmp_path / "Full" / "a.png")
    with pytest.raises(ImageError, match="Two classes have one name: 'Full' and 'full'"):
        load_image_folder(tmp_path)
    with pytest.raises(ValueError, match="color='blue'"):
        load_image_folder(tmp_path, color="blue")


def test_different_sizes_ask_for_one(folder):
    save(folder / "cat" / "large.png", np.zeros((9, 9, 3), np.uint8))
    for on_error in ("raise", "skip"):
        with pytest.raises(ValueError, match=r"different sizes.*large.png \(9, 9, 3\).*Give size="):
            load_image_folder(folder, on_error=on_error)
    assert load_image_folder(folder, size=4).images.shape == (7, 4, 4, 3)


def test_names_that_are_no_text(tmp_path):
    save(tmp_path / "good" / "a.png")
    name = os.path.join(os.fsencode(tmp_path / "good"), b"\xff.png")
    with open(name, "wb") as file:
        file.write((tmp_path / "good" / "a.png").read_bytes())
    assert len(load_image_folder(tmp_path).images) == 2  # a file's name need not be printed
    os.mkdir(os.path.join(os.fsencode(tmp_path), b"bad\xff"))
    with pytest.raises(ImageError, match=r"not UTF-8: .*bad\\xff"):
        load_image_folder(tmp_path)


def make_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)


def test_archives_are_unpacked_whole(tmp_path):
    make_zip(tmp_path / "good.zip", [("top/a.txt", "a"), ("top/sub/b.txt", "b")])
    made = extract(tmp_path / "good.zip", tmp_path / "out")
    assert made == [tmp_path / "out" / "top"]
    assert (tmp_path / "out" / "top" / "sub" / "b.txt").read_text() == "b"
    with tarfile.open(tmp_path / "good.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "out" / "top", "again")
    extract(tmp_path / "good.tar.gz", tmp_path / "out")
    assert (tmp_path / "out" / "again" / "a.txt").read_text() == "a"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["again", "top"]


def link(kind):
    info = tarfile.TarInfo("top/link")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    "kind", ["..", "absolute", "zip link", "symlink", "hard link", "device", "bomb", "text", "cut"]
)
def test_archives_that_would_do_harm_leave_nothing(kind, tmp_path):
    path, out = tmp_path / "bad.archive", tmp_path / "out"
    if kind in ("..", "absolute"):
        make_zip(path, [("top/a.txt", "a"), ("../evil.txt" if kind == ".." else "/tmp/evil.txt", "x")])
    elif kind == "zip link":
        info = zipfile.ZipInfo("top/link")
        info.external_attr = 0o120777 << 16
        make_zip(path, [("top/a.txt", "a"), (info, "/etc/passwd")])
    elif kind in ("symlink", "hard link", "device"):
        types = {"symlink": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}
        with tarfile.open(path, "w:gz") as tar:
            tar.addfile(link(types[kind]))
    elif kind == "bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("zeros", bytes(3 * 10**6))
    elif kind == "text":
        path.write_text("no archive")
    else:
        with tarfile.open(path, "w:gz") as tar:
            tar.add(__file__, "top/a.py")
        path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(ArchiveError, match=r"bad.archive"):
        extract(path, out, max_bytes=10**6)
    assert not list(out.iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.archive", "out"]


@pytest.mark.parametrize("name", ["C:/evil.txt", "C:evil", "..\\evil", "\\\\host\\share\\evil", "a/../../evil"])
def test_names_that_lead_elsewhere_on_any_system(name, tmp_path):
    make_zip(tmp_path / "bad.zip", [(name, "x")])
    with pytest.raises(ArchiveError, match="outside of its folder"):
        extract(tmp_path / "bad.zip", tmp_path / "out")


def test_headers_and_numbers_of_files_count_too(tmp_path, monkeypatch):
    with tarfile.open(tmp_path / "header.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a")
        info.pax_headers = {"comment": "x" * (2 * 10**7)}
        tar.addfile(info)
    with pytest.raises(ArchiveError, match="bytes at once"):
        extract(tmp_path / "header.tar.gz", tmp_path / "out", max_bytes=1000)
    monkeypatch.setattr(_archives, "MAX_FILES", 3)
    make_zip(tmp_path / "many.zip", [(f"{i}.txt", "x") for i in range(5)])
    with pytest.raises(ArchiveError, match="more than 3 files"):
        extract(tmp_path / "many.zip", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_the_checksum_at_the_end_is_looked_at(tmp_path):
    with tarfile.open(tmp_path / "good.tar", "w") as tar:
        tar.add(__file__, "top/a.py")
    packed = bytearray(gzip.compress((tmp_path / "good.tar").read_bytes()))
    packed[-8] ^= 1  # of the checksum itself
    (tmp_path / "bad.tar.gz").write_bytes(packed)
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        extract(tmp_path / "bad.tar.gz", tmp_path / "out")


def test_only_what_is_wanted_is_unpacked(tmp_path):
    make_zip(tmp_path / "a.zip", [("wanted/a.txt", "a"), ("resnet50_pool5.onnx", "planted")])
    assert extract(str(tmp_path / "a.zip"), str(tmp_path / "out"), only="wanted") == [
        tmp_path / "out" / "wanted"
    ]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["wanted"]
    with pytest.raises(ArchiveError, match="has no other"):
        extract(tmp_path / "a.zip", tmp_path / "out", only="other")


def test_broken_exif_data_are_left_alone(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = bytearray(exif.tobytes())
    content[10:14] = b"\xff\xff\xff\xff"
    save(tmp_path / "a" / "a.png")
    Image.new("RGB", (8, 6), (100, 100, 100)).save(tmp_path / "a" / "b.jpg", exif=bytes(content), quality=100)
    assert load_image_folder(tmp_path, size=6).images.shape == (2, 6, 6, 3)


@pytest.mark.parametrize("size", ["4", (4,), 0, 4.0, (0, 3)])
def test_sizes_that_are_none_are_told(size, folder):
    with pytest.raises(ValueError, match="must be a number of pixels"):
        load_image_folder(folder, size=size)
