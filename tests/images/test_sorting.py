"""Images in a folder for each class: nothing is overwritten, and sorting again changes nothing."""

import errno
import filecmp
import os
import shutil
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ledl.files import ABANDONED_AFTER
from ledl.images import REJECTED, UNSURE, ImageError, Sorter


@pytest.fixture
def photos(tmp_path):
    """Return a folder of images; two of them have one name and different contents."""
    for i, name in enumerate(["1.png", "2.png", "deep/1.png", "deep/.3.png"]):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), i, np.uint8)).save(path)
        os.utime(path, (1e9, 1e9 + i))
    return tmp_path / "photos"


def contents(folder):
    """Return the bytes of all files below a folder, by path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


ANSWERS = {"1.png": "cat", "2.png": "dog", "deep/1.png": "cat", "deep/.3.png": UNSURE}
PLACES = {
    "1.png": "cat/1.png",
    "2.png": "dog/2.png",
    "deep/1.png": "cat/1 (2).png",
    "deep/.3.png": "unsure/.3.png",
}


def sort(photos, out, how):
    sorter = Sorter(out, ["cat", "dog"], how)
    for name, answer in ANSWERS.items():
        if (photos / name).exists():
            sorter.put(photos / name, answer)
    return sorter


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_images_go_into_folders_and_a_second_time_changes_nothing(how, photos, tmp_path):
    before, out = contents(photos), tmp_path / "new" / "sorted"
    sorter = sort(photos, out, how)
    assert contents(out) == {PLACES[name]: before[name] for name in before}
    assert contents(photos) == ({} if how == "move" else before)
    assert (out / "cat" / "1.png").is_symlink() == (how == "link")
    assert (out / "dog" / "2.png").stat().st_mtime == 1e9 + 1
    assert sorter.summary().endswith(f" in {out}: 2 cat, 1 dog, 1 unsure.")
    state = {p: p.lstat().st_ino for p in out.rglob("*")}
    again = sort(photos, out, how)
    assert {p: p.lstat().st_ino for p in out.rglob("*")} == state
    n_again = 0 if how == "move" else 4
    assert (again.counts.total(), again.n_there) == (n_again, n_again)


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_nothing_is_overwritten(how, photos, tmp_path):
    out = tmp_path / "sorted"
    for name in ("cat/1.png", "cat/1 (2).png", "dog/2.png"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(f"somebody's {name}")
    (out / "dog" / "2 (2).png").symlink_to("nowhere")
    before = contents(out)
    sort(photos, out, how)
    after = contents(out)
    assert before.items() <= after.items()
    assert set(after) - set(before) == {"cat/1 (3).png", "cat/1 (4).png", "dog/2 (3).png", "unsure/.3.png"}
    assert os.readlink(out / "dog" / "2 (2).png") == "nowhere"


def test_files_move_between_file_systems(photos, tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)  # also what a file system without hard links answers
    before = contents(photos)
    sort(photos, tmp_path / "sorted", "move")
    assert contents(tmp_path / "sorted") == {PLACES[name]: before[name] for name in before}
    assert contents(photos) == {}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("..", "leads to another folder"),
        (".", "leads to another folder"),
        ("", "leads to another folder"),
        ("../../etc", "has a slash"),
        ("a\\b", "has a slash"),
        ("a\0b", "cannot be printed"),
        ("\x1b[31m", "cannot be printed"),
        (".hidden", "hidden"),
        ("__MACOSX", "kept for systems"),
        ("NUL", "Windows"),
        ("com1.x", "Windows"),
        ("cat.", "Windows"),
        (" cat", "Windows"),
        ("ä" * 128, "more than 255 bytes"),
        (UNSURE, "is kept for images that get no class"),
        (REJECTED, "is kept for images that get no class"),
    ],
)
def test_classes_that_are_no_folders_are_refused(name, reason, tmp_path):
    with pytest.raises(ValueError, match=rf"cannot be a folder: .*{reason}.*--format csv"):
        Sorter(tmp_path / "sorted", ["dog", name])
    assert list(tmp_path.iterdir()) == []
    Sorter(tmp_path / "sorted", ["dog", "Käse", "a b", "100 %", "console", "日本"])


def test_classes_that_some_systems_take_for_one_folder_are_refused(tmp_path):
    with pytest.raises(ImageError, match="'Cat' and 'cat'"):
        Sorter(tmp_path, ["Cat", "cat"])


def test_places_that_cannot_be_written_are_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="file is a file"):
        Sorter(tmp_path / "file", ["cat"])
    with pytest.raises(NotADirectoryError, match="file is a file"):
        Sorter(tmp_path / "file" / "deeper", ["cat"])
    with pytest.raises(NotADirectoryError, match="file is a file"):
        Sorter(tmp_path, ["cat", "file"])
    with pytest.raises(OSError, match="Cannot write to the folder /proc"):
        Sorter("/proc/sorted", ["cat"])


@pytest.mark.parametrize("how", ["copy", "move"])
def test_a_full_disk_leaves_no_part_of_a_file(how, photos, tmp_path, monkeypatch):
    out = tmp_path / "sorted"
    sorter = Sorter(out, ["cat", "dog"], how)
    sorter.put(photos / "1.png", "cat")

    def fill(source, target, **options):
        with open(target, "wb") as file:
            file.write(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    def refuse(*args, **options):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(shutil, "copyfile", fill)
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match=r"2.png cannot be put into .*dog: No space left on device. 1 images"):
        sorter.put(photos / "2.png", "dog")
    assert [str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()] == ["cat/1.png"]
    assert (photos / "2.png").exists()


def test_parts_of_killed_runs_are_removed_when_they_are_old(photos, tmp_path, monkeypatch):
    out = tmp_path / "sorted"
    sort(photos, out, "copy")

    def stop(source, part, **options):
        Path(part).write_bytes(b"a part")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", stop)
        patched.setattr(Path, "unlink", lambda path, **options: None)  # as after SIGKILL
        with pytest.raises(KeyboardInterrupt):
            Sorter(out, ["cat", "dog"]).put(photos / "1.png", "dog")
    (left,) = {*(out / "dog").iterdir()} - {out / "dog" / "2.png"}
    for name in ("0123456789abcdef.part", "notes.part", ".1.png.part"):
        (out / "dog" / name).write_text("somebody's")
    Sorter(out, ["cat", "dog"])
    assert left.exists()  # another process may be writing it
    later = time.time() + ABANDONED_AFTER
    monkeypatch.setattr(time, "time", lambda: later)
    before = {*out.rglob("*")}
    Sorter(out, ["cat", "dog"])
    assert before - {*out.rglob("*")} == {left}


def test_a_copy_of_an_old_image_is_not_taken_for_an_abandoned_part(photos, tmp_path, monkeypatch):
    """It has the time of the image before it has its name."""
    link = os.link

    def look(part, target, **options):
        Sorter(tmp_path / "sorted", ["cat", "dog"])  # another run begins
        link(part, target, **options)

    monkeypatch.setattr(os, "link", look)
    before = contents(photos)
    sort(photos, tmp_path / "sorted", "copy")
    assert contents(tmp_path / "sorted") == {PLACES[name]: before[name] for name in before}


def test_what_is_sorted_already_is_left_out(photos, tmp_path):
    sorter = Sorter(photos, ["deep", "cat"])  # into the folder of the images itself
    files = [photos / "1.png", photos / "deep" / "1.png", photos / "deep" / "x" / "y.png"]
    is_there, unused = sorter.leave_out(files)
    assert is_there == [False, True, True]
    assert unused == [(file, f"sorted into {photos} already") for file in files[1:]]


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_images_that_were_sorted_into_another_class_before_are_named(how, photos, tmp_path):
    out = tmp_path / "sorted"
    sort(photos, out, "copy")
    sorter = Sorter(out, ["cat", "dog"], how)
    sorter.put(photos / "deep" / "1.png", "dog")  # was cat, as 1 (2).png
    sorter.put(photos / "2.png", "dog")  # as before
    assert sorter.astray == [out / "cat" / "1 (2).png"]
    assert "1 of them also lie in the folder of another class" in sorter.summary()
    assert f"before: {out / 'cat' / '1 (2).png'}. Delete" in sorter.summary()


@pytest.mark.parametrize("how", ["copy", "move"])
def test_links_give_way_to_the_images(how, photos, tmp_path):
    before = contents(photos)
    sort(photos, tmp_path / "sorted", "link")
    sort(photos, tmp_path / "sorted", how)
    assert sorted(contents(tmp_path / "sorted").values()) == sorted(before.values())
    assert contents(photos) == ({} if how == "move" else before)
    assert not any(path.is_symlink() for path in (tmp_path / "sorted").rglob("*"))


def test_an_image_under_two_paths_is_not_deleted(photos, tmp_path):
    """The folder of a class is a link to the folder of the images: there is one file, and no second name."""
    (tmp_path / "sorted").mkdir()
    (tmp_path / "sorted" / "cat").symlink_to(photos)
    os.link(photos / "1.png", tmp_path / "elsewhere.png")
    Sorter(tmp_path / "sorted", ["cat"], "move").put(photos / "1.png", "cat")
    assert (photos / "1.png").is_file()


def test_numbered_names_are_compared_with_themselves_alone(photos, tmp_path, monkeypatch):
    """Windows calls images "holiday (1)", "holiday (2)" ...: sorting them again must not compare all pairs."""
    for i in range(30):
        shutil.copy(photos / "1.png", photos / f"holiday ({i}).png")
    compared = []
    compare = filecmp.cmp
    monkeypatch.setattr(filecmp, "cmp", lambda *args, **more: compared.append(args) or compare(*args, **more))
    for _ in range(2):
        sorter = Sorter(tmp_path / "sorted", ["cat", "dog"])
        for i in range(30):
            sorter.put(photos / f"holiday ({i}).png", "cat")
    assert len(compared) == 30
    Sorter(tmp_path / "sorted", ["cat", "dog"]).put(photos / "holiday (7).png", "dog")
    assert len(compared) == 31


@pytest.mark.parametrize("how", ["copy", "link", "move"])
@pytest.mark.parametrize("extra", [0, 1], ids=["one size", "different sizes"])
def test_images_of_one_name_are_not_looked_at_in_pairs(extra, how, tmp_path, monkeypatch):
    """Many name images by their folders: sample_0001/image.png, sample_0002/image.png."""
    n, out = 100, tmp_path / "sorted"
    files = [tmp_path / "in" / str(i) / "image.png" for i in range(n)]
    for i, file in enumerate(files):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"%03d" % i + b"." * i * extra)
    looks = []
    for module, name in ((os, "stat"), (os, "lstat"), (filecmp, "cmp")):
        look = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, look=look, **more: looks.append(args) or look(*args, **more)
        )
    for is_again in (False, True):
        if is_again and how == "move":  # the same images come once more
            for i, file in enumerate(files):
                file.write_bytes(b"%03d" % i + b"." * i * extra)
        sorter = Sorter(out, ["cat", "dog"], how)
        for i, file in enumerate(files):
            sorter.put(file, "cat" if i % 2 else "dog")
        assert sorter.n_there == n * is_again
        assert len(looks) < 60 * n * (1 + is_again)
    assert sorter.astray == []
    for home, first in ((out / "dog", 0), (out / "cat", 1)):
        names = ["image.png", *(f"image ({number}).png" for number in range(2, n // 2 + 1))]
        assert [(home / name).read_bytes()[:3] for name in names] == [b"%03d" % i for i in range(first, n, 2)]
        assert len([*home.iterdir()]) == n // 2


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_a_name_that_another_process_takes_meanwhile_is_left_to_it(how, photos, tmp_path, monkeypatch):
    taken, before = tmp_path / "sorted" / "cat" / "1.png", contents(photos)

    def take_first(make, *args, **more):
        if not taken.exists():
            taken.write_text("somebody's")
        make(*args, **more)

    for name in ("link", "symlink"):
        monkeypatch.setattr(os, name, partial(take_first, getattr(os, name)))
    sort(photos, tmp_path / "sorted", how)
    after = contents(tmp_path / "sorted")
    assert after.pop("cat/1.png") == b"somebody's"
    assert sorted(after.values()) == sorted(before.values())


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_an_image_that_another_run_sorts_meanwhile_is_there_once(how, photos, tmp_path, monkeypatch):
    taken, image = tmp_path / "sorted" / "cat" / "1.png", photos / "1.png"

    def come_second(make, *args, **more):
        if not taken.exists():
            taken.write_bytes(image.read_bytes())
        make(*args, **more)

    for name in ("link", "symlink"):
        monkeypatch.setattr(os, name, partial(come_second, getattr(os, name)))
    sorter = sort(photos, tmp_path / "sorted", how)
    assert sorted(contents(tmp_path / "sorted")) == sorted(PLACES.values())
    assert sorter.n_there == 1


def test_a_move_that_was_cut_off_is_finished(photos, tmp_path, monkeypatch):
    """A kill, or a folder that may not be changed, comes between the new name and the end of the old one."""
    image, sorted_to = photos / "1.png", tmp_path / "sorted" / "cat" / "1.png"
    unlink = Path.unlink

    def refuse(path, **options):
        if path == image:
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        with pytest.raises(OSError, match="Permission denied"):
            Sorter(tmp_path / "sorted", ["cat"], "move").put(image, "cat")
    assert not sorted_to.exists()
    os.link(image, sorted_to)  # killed before the old name was removed
    Sorter(tmp_path / "sorted", ["cat"], "move").put(image, "cat")
    assert not image.exists()
    assert sorted_to.exists()


def test_a_move_to_another_disk_that_is_cut_off_leaves_no_copy(photos, tmp_path, monkeypatch):
    image = photos / "1.png"
    unlink = Path.unlink

    def refuse(path, **options):
        if path == image:
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(path, **options)

    def other_disk(source, target, **options):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        with pytest.raises(OSError, match="Permission denied"):
            Sorter(tmp_path / "sorted", ["cat"], "move").put(image, "cat")
    assert list((tmp_path / "sorted" / "cat").iterdir()) == []
    Sorter(tmp_path / "sorted", ["cat"], "move").put(image, "cat")
    assert not image.exists()
    assert (tmp_path / "sorted" / "cat" / "1.png").exists()


def test_images_of_a_folder_that_cannot_be_changed_are_not_moved(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may change all folders
    files = [photos / "1.png"]
    with pytest.raises(PermissionError, match=r"cannot be taken away from .*Copy them instead"):
        Sorter(tmp_path / "sorted", ["cat"], "move").leave_out(files)
    assert Sorter(tmp_path / "sorted", ["cat"], "copy").leave_out(files)[0] == [False]


def test_an_image_that_is_given_twice_is_moved_once(photos, tmp_path):
    """The second time it would not be there any more."""
    folder = tmp_path / "given"
    folder.mkdir()
    image = shutil.copy(photos / "1.png", folder / "b.png")
    links = [folder / "a.png", folder / "c.png"]
    for link in links:
        link.symlink_to(image)
    elsewhere = folder / "d.png"
    elsewhere.symlink_to(photos / "2.png")
    files = [links[0], image, image, links[1], elsewhere]
    sorter = Sorter(tmp_path / "sorted", ["cat"], "move")
    is_out, unused = sorter.leave_out(files)
    assert is_out == [True, False, True, True, False]
    assert [file for file, _ in unused] == [links[0], image, links[1]]
    for file, out in zip(files, is_out, strict=True):
        if not out:
            sorter.put(file, "cat")
    assert {path.name for path in (tmp_path / "sorted" / "cat").iterdir()} == {"b.png", "d.png"}
    assert Sorter(tmp_path / "sorted", ["cat"], "copy").leave_out(files)[0] == [False] * 5
