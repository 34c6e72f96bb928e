"""Folders of images with their labels, tidy and messy."""

import os
import shutil
import struct
import zlib
from pathlib import Path, PurePath

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from ledl.datasets import load_image_folder
from ledl.features import ImageError
from ledl.images import _folders, equal_files, image_files, unused_lines


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
    "empty": "is empty: it has no bytes. Replace or remove",
    "truncated": "cannot be decoded",
    "large": "more than 67108864",
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
    with pytest.raises(ImageError, match=r"has 1 images, but no folders with images.*labels="):
        load_image_folder(tmp_path)
    (tmp_path / "empty").mkdir()
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
    bad = os.path.join(os.fsencode(tmp_path), b"bad\xff")
    os.mkdir(bad)
    shutil.copy(tmp_path / "good" / "a.png", os.path.join(bad, b"a.png"))
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


def test_images_lie_at_any_depth_below_their_class(folder):
    save(folder / "cat" / "2023" / "May" / "deep.png")
    found = load_image_folder(folder, decode=False)
    deep = [os.path.relpath(file, folder) for file in found.filenames if "deep" in file]
    assert deep == [os.path.join("cat", "2023", "May", "deep.png")]
    assert np.bincount(found.target).tolist() == [4, 3]


def test_whatever_is_not_used_is_named_with_the_reason(folder):
    before = load_image_folder(folder, decode=False)
    assert before.unused == []
    for name in (
        "beside.png",
        "cat/.DS_Store",
        "cat/._0.png",
        "cat/Thumbs.db",
        "__MACOSX/cat/._0.png",
        "__MACOSX/cat/0.png",
        ".git/x.png",
        "notes.txt",
        "unsure/1.png",
        "none of these/1.png",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((folder / "cat" / "0.png").read_bytes())
    (folder / "empty" / "deeper").mkdir(parents=True)
    (folder / "again").symlink_to(folder / "cat")
    (folder / "cat" / "circle").symlink_to(folder)
    found = load_image_folder(folder, decode=False)
    assert found.filenames[-3:] == before.filenames[-3:]
    assert found.target_names == ["again", "dog"]  # the first name in the alphabet of the same folder
    reasons = {os.path.relpath(path, folder): reason for path, reason in found.unused}
    hidden, answer = "hidden, or made by a system", "is an answer of ledl predict, not a class"
    assert reasons == {
        "beside.png": "beside the class folders",
        "again/.DS_Store": hidden,
        "again/._0.png": hidden,
        "again/Thumbs.db": hidden,
        "__MACOSX": hidden,
        ".git": hidden,
        "notes.txt": "no image, by the ending of the name",
        "unsure/1.png": f"'unsure' {answer}",
        "none of these/1.png": f"'none of these' {answer}",
        "empty": "a class folder without images",
        "cat": "a link to a folder that is searched anyway",
        "again/circle": "a link to a folder that is searched anyway",
    }
    lines = unused_lines(found.unused)
    assert sum(int(line.split("): ")[1].split(":")[0]) for line in lines) == len(reasons)
    assert all(any(name in line for line in lines) for name in reasons)


def test_many_unused_files_are_counted_and_some_are_named(tmp_path):
    for i in range(7):
        (tmp_path / f"{i}\n.txt").write_bytes(b"")
    (line,) = unused_lines(image_files([tmp_path])[1])
    assert line.startswith("Not used (no image, by the ending of the name): 7: ")
    assert line.endswith("4\\n.txt and 2 more")
    assert "\n" not in line


@pytest.mark.parametrize("between", ["", "unpacked/2024"])
def test_a_parent_of_the_right_folder_is_recognized(between, folder, tmp_path_factory):
    parent = tmp_path_factory.mktemp("parent")
    inner = parent / "photos" / between
    shutil.copytree(folder, inner)
    with pytest.raises(ImageError, match=rf"only one class, 'photos'. Did you mean {inner}\?"):
        load_image_folder(parent, decode=False)
    save(inner / "loose.png")  # folders of people are messy
    with pytest.raises(ImageError, match=rf"Did you mean {inner}\?"):
        load_image_folder(parent, decode=False)
    save(parent / "new" / "1.png")
    (note,) = load_image_folder(parent, decode=False).notes
    assert "the class 'photos'" in note
    assert f"did you mean {inner}?" in note
    assert load_image_folder(inner, decode=False).notes == []


def test_a_folder_that_may_not_be_read_is_named(folder, monkeypatch):
    # Root may read every folder, so the system's answer is imitated.
    scan = os.scandir

    def refuse(path):
        if os.fspath(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scan(path)

    save(folder / "cat" / "secret" / "1.png")
    monkeypatch.setattr(os, "scandir", refuse)
    found = load_image_folder(folder, decode=False)
    assert len(found.filenames) == 6
    assert found.unused == [(folder / "cat" / "secret", "you may not read this folder")]


def test_the_table_counts_and_not_the_folders(folder):
    (folder / "labels.csv").write_text(
        "path,label\ncat/0.png,dog\ncat/1.bmp,cat\ndog/0.png,\ndog/1.bmp,unsure\n"
    )
    found = load_image_folder(folder, labels="labels.csv", decode=False)
    assert [found.target_names[j] for j in found.target] == ["cat", "dog"]
    assert [os.path.relpath(file, folder) for file in found.filenames] == ["cat/1.bmp", "cat/0.png"]
    note, advice = found.notes
    assert advice.endswith("add --labels folder.")
    assert "not from folders: 1 of 2 images have a label that is not the name of their folder" in note
    assert [os.path.relpath(path, folder) for path in found.unlabelled] == ["dog/0.png"]
    reasons = {os.path.relpath(path, folder): reason for path, reason in found.unused}
    assert reasons == {
        "dog/1.bmp": "'unsure' is an answer of ledl predict, not a class",
        "cat/2.tif": "not in the table",
        "dog/2.tif": "not in the table",
    }
    (folder / "labels.csv").write_text("path,label\ncat/0.png,feline\ncat/1.bmp,feline\ndog/0.png,dog\n")
    note, _ = load_image_folder(folder, labels="labels.csv", decode=False).notes
    assert "2 of 3 images have a label that is not the name of their folder" in note


def test_images_without_labels(folder, tmp_path, monkeypatch):
    for name in ("cat", "dog"):
        shutil.move(folder / name, tmp_path / "photos" / name)
    monkeypatch.chdir(tmp_path)
    names = "photos/loose.png photos/unsorted/a.png more/cat/b.png more/cat/c.png more/.d.png"
    for k, name in enumerate(names.split()):
        save(tmp_path / name, np.full((6, 8, 3), k, np.uint8))
    (tmp_path / "link").symlink_to(tmp_path / "more")
    (tmp_path / "empty").mkdir()

    def listed(*paths, **options):
        found = load_image_folder("photos", unlabelled=paths, decode=False, **options)
        reasons = {os.fspath(path): reason for path, reason in found.unused}
        return found.target_names, found.unlabelled, reasons

    beside, hidden = "beside the class folders", "hidden, or made by a system"
    assert listed("more", "link") == (  # each file once; a name below is no label
        ["cat", "dog", "unsorted"],
        ["more/cat/b.png", "more/cat/c.png"],
        {"photos/loose.png": beside, "more/.d.png": hidden, "link/.d.png": hidden},
    )
    # A folder inside is no class, nor a class without images. The whole folder keeps its classes.
    assert listed("photos/unsorted") == (
        ["cat", "dog"],
        ["photos/unsorted/a.png"],
        {"photos/loose.png": beside},
    )
    names, unlabelled, reasons = listed("photos")
    assert (names, len(unlabelled), reasons) == (["cat", "dog", "unsorted"], 8, {})
    # A table may label them, or say that they are of no class.
    (tmp_path / "t.csv").write_text("path,label\nmore/cat/b.png,none of these\nunsorted/a.png,dog\ncat/0.png\n")
    names, unlabelled, reasons = listed("more", "photos/unsorted", labels=["folder", "t.csv"])
    assert names == ["cat", "dog"]
    assert sorted(unlabelled) == ["more/cat/c.png", "photos/cat/0.png", "photos/unsorted/a.png"]
    assert "is an answer of ledl predict, not a class" in reasons["more/cat/b.png"]
    found = load_image_folder(
        "photos", unlabelled=["photos/unsorted"], labels=["folder", "t.csv"], decode=False
    )
    assert "photos/unsorted/a.png" in found.filenames
    # A copy of an image of no class is of no class either, whichever of the two the table names.
    shutil.copy("photos/cat/0.png", "more/copy.png")
    for name in ("../more/copy.png", "cat/0.png"):
        (tmp_path / "t.csv").write_text(f"path,label\n{name},none of these\n")
        assert listed("more", labels=["folder", "t.csv"])[1] == ["more/cat/b.png", "more/cat/c.png"]
    shutil.copy("photos/cat/0.png", "photos/dog/copy.png")
    for name in ("../more/copy.png", "cat/0.png"):
        (tmp_path / "t.csv").write_text(f"path,label\n{name},none of these\ndog/copy.png,\n")
        assert "photos/dog/copy.png" not in listed(labels=["folder", "t.csv"])[1]
    with pytest.raises(ImageError, match="empty has no images"):
        listed("empty")
    with pytest.raises(FileNotFoundError, match="There is no file or folder gone"):
        listed("gone")


def test_tables_correct_folders_and_add_images(folder, tmp_path, monkeypatch):
    for name in ("cat", "dog"):
        shutil.move(folder / name, tmp_path / "labelled" / name)
    folder = tmp_path / "labelled"
    monkeypatch.chdir(tmp_path)
    for name in ("new/2023/a.png", "new/b.png", "new/c.png"):
        save(tmp_path / name)
    save(folder / "loose.png")
    (tmp_path / "one.csv").write_text(
        f"path,label\n./new/2023/a.png,dog\nnew/b.png,\nnew/c.png,cow\n{folder}/cat/0.png,dog\ncat/1.bmp,\n"
        "dog/0.png,dog\nloose.png,cat\n"
    )
    (folder / "two.csv").write_text("path,label\nnew/c.png,cat\n")
    found = load_image_folder(folder, labels=["one.csv", "folder", "two.csv"], decode=False)
    names = [os.path.relpath(file, folder) for file in found.filenames]
    assert dict(zip(names, [found.target_names[j] for j in found.target], strict=True)) == {
        "cat/0.png": "dog",  # corrected
        "cat/2.tif": "cat",  # the folder's, as it is in no table
        "dog/0.png": "dog",
        "dog/1.bmp": "dog",
        "dog/2.tif": "dog",
        "loose.png": "cat",
        os.path.relpath("new/2023/a.png", folder): "dog",
        os.path.relpath("new/c.png", folder): "cat",  # the last table counts
    }
    note, lost = found.notes
    assert "Labels are from folders and from one.csv and " in note
    assert note.endswith("1 labels of folders changed, 3 images added.")
    assert lost.startswith("1 images lose the label of their folder, because it is blank in one.csv and ")
    blank = [os.path.join("new", "b.png"), os.path.relpath(folder / "cat" / "1.bmp")]
    assert [os.path.relpath(path) for path in found.unlabelled] == blank
    assert not found.unused
    found = load_image_folder(folder, labels=["folder", "one.csv"], decode=False)
    assert found.notes[0].endswith("3 images added, with new classes: 'cow'.")
    (tmp_path / "all.csv").write_text(
        "path,label\n" + "".join(f"cat/{name},\n" for name in ("0.png", "1.bmp", "2.tif"))
    )
    found = load_image_folder(folder, labels=["folder", "all.csv"], decode=False)
    assert found.target_names == ["dog"]
    assert found.notes[1].startswith("3 images lose the label of their folder")
    lost = "No image has the label of these folders any more: 'cat'. They are no classes."
    assert found.notes[2] == lost
    found = load_image_folder(
        folder, labels=["folder", "all.csv"], unlabelled=[folder / "dog" / "0.png"], decode=False
    )
    assert found.notes[2] == lost  # images without labels are of no class
    (tmp_path / "one.csv").write_text("path,label\nnew/gone.png,dog\n")
    with pytest.raises(ImageError, match=r"line 2: there is no image 'new/gone.png'"):
        load_image_folder(folder, labels=["folder", "one.csv"], decode=False)


def test_files_of_unique_sizes_are_not_read_to_find_equal_ones(tmp_path, monkeypatch):
    """A folder of photos would be read to its end, to train on five of each class."""
    files = [tmp_path / name for name in "abcdef"]
    for file, content in zip(files, ["1", "22", "22", "21", "333", "4444"], strict=True):
        file.write_text(content)
    read = []
    monkeypatch.setattr(_folders, "content_if_readable", lambda file: read.append(file) or file.read_text())
    assert equal_files(files, files) == {files[1]: files[1:3], files[2]: files[1:3], files[3]: [files[3]]}
    assert sorted(read) == files[1:4]  # each once


def test_labels_of_copies_of_many_equal_images_are_found_once(monkeypatch):
    files, copies = ([Path(folder, f"{i}.png") for i in range(300)] for folder in ("photos", "sorted"))
    monkeypatch.setattr(_folders, "read_labels", lambda *args, **options: dict.fromkeys(copies, "a"))
    shared = dict(zip(copies, [files] * len(copies), strict=True))  # equal files share a list
    monkeypatch.setattr(_folders, "equal_files", lambda images, files: shared)
    n_hashed, hashed = 0, PurePath.__hash__

    def count(path):
        nonlocal n_hashed
        n_hashed += 1
        return hashed(path)

    monkeypatch.setattr(PurePath, "__hash__", count)
    found = _folders.labels_of_tables(Path("photos"), [Path("t.csv")], files, anywhere=True)
    assert n_hashed < 20 * len(files)
    assert found == dict.fromkeys(files, "a")


def test_a_later_table_ends_the_contradiction_of_an_earlier_one(monkeypatch):
    file, one, other = Path("photos/1.png"), Path("sorted/1.png"), Path("sorted/2.png")
    said = {"first": {one: "a", other: "b"}, "second": {one: "a", other: "a"}}
    monkeypatch.setattr(_folders, "read_labels", lambda root, table, **options: dict(said[table.name]))
    monkeypatch.setattr(_folders, "equal_files", lambda images, files: dict.fromkeys(images, (file,)))
    for names, expected in (
        (["first"], said["first"]),
        (["second"], {file: "a"}),
        (["first", "second"], {file: "a"}),
        (["second", "first"], {file: "a", **said["first"]}),
    ):
        tables = map(Path, names)
        assert _folders.labels_of_tables(Path("photos"), tables, [file], anywhere=True) == expected
