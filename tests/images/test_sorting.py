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
from ledl.images import REJECTED, UNSURE, ImageError, Sorter, _sorting


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

    (photos / "new.png").write_bytes(b"new")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", stop)
        patched.setattr(Path, "unlink", lambda path, **options: None)  # as after SIGKILL
        with pytest.raises(KeyboardInterrupt):
            Sorter(out, ["cat", "dog"]).put(photos / "new.png", "dog")
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
    files = [photos / name for name in ("1.png", "deep/1.png", "deep/x/y.png", "inbox/2.png")]
    files[-1].parent.mkdir()
    given = [photos, photos / "inbox"]
    # Into the folder of the images itself, where nothing was sorted before.
    assert Sorter(photos, ["cat", "dog"], given=given).leave_out(files) == ([False] * 4, [])
    (photos / "dog").mkdir()
    beside = f"in a folder of {photos} beside those of the classes, which is sorted only if you give it as a"
    for name, why in (("deep", f"sorted into {photos} already"), ("cat", f"{beside} path itself")):
        is_there, unused = Sorter(photos, [name, "dog"], given=given).leave_out(files)
        assert is_there == [False, True, True, False]
        assert unused == [(file, why) for file in files[1:3]]


def test_images_of_one_size_are_not_read_whole_to_find_one(tmp_path, monkeypatch):
    """So have all of some cameras: a folder of 3,000 took half a minute for one new image."""
    out, size, rng = tmp_path / "sorted", 100_000, np.random.default_rng(0)
    (out / "cat").mkdir(parents=True)
    for i in range(30):
        (out / "cat" / f"{i}.bmp").write_bytes(rng.bytes(size))
    (out / "island").mkdir()
    shutil.move(out / "cat" / "7.bmp", out / "island" / "renamed.bmp")
    read, key = [], _sorting.content_key
    monkeypatch.setattr(_sorting, "content_key", lambda path: read.append(path) or key(path))
    (tmp_path / "new.bmp").write_bytes(rng.bytes(size))
    alike = bytearray((out / "cat" / "3.bmp").read_bytes())
    alike[30_000] ^= 1
    (tmp_path / "alike.bmp").write_bytes(alike)
    shutil.copy(out / "island" / "renamed.bmp", tmp_path / "7.bmp")
    sorter = Sorter(out, ["cat", "dog"])
    for name in ("new.bmp", "alike.bmp", "7.bmp"):
        sorter.put(tmp_path / name, "dog")
    assert {path.name for path in (out / "dog").iterdir()} == {"new.bmp", "alike.bmp"}
    assert sorter.left == [out / "island" / "renamed.bmp"]
    assert len(read) == 4


def test_images_of_a_folder_there_that_is_given_are_sorted(photos, tmp_path):
    """The new ones lie beside the classes: ledl predict model.ledl photos/deep --sort-into photos."""
    shutil.copy(photos / "deep" / "1.png", photos / "deep" / "copy.png")
    shutil.copytree(photos / "deep", photos / "fox")
    (photos / "fox" / "1.png").write_bytes(b"no copy")
    (photos / "fox" / "copy.png").unlink()
    for given in ([photos / "deep"], [photos / "deep" / "1.png"]):
        sorter = Sorter(photos, ["cat", "dog"], given=given)
        files = [photos / "deep" / name for name in ("1.png", "copy.png", ".3.png")]
        assert sorter.leave_out([*files, photos / "fox" / "1.png"])[0] == [False, False, False, True]
        for file in files:
            sorter.put(file, "cat")
    assert {path.name for path in (photos / "cat").iterdir()} == {"1.png", "copy.png", ".3.png"}
    assert (sorter.n_there, sorter.left) == (3, [])


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_images_that_were_moved_by_hand_stay_where_they_are(how, photos, tmp_path):
    """Into another class, one that the model does not know, none of these; also if they got another name."""
    out, n = tmp_path / "sorted", 8
    for i in range(n):
        (photos / f"x{i}.png").write_bytes(b"%d" % i)
    (photos / "x8.png").write_bytes(b"copies")
    (photos / "x9.png").write_bytes(b"copies")
    files = sorted(photos.glob("x*.png"))
    before = {file: file.read_bytes() for file in files}

    def sort_all(answer):
        sorter = Sorter(out, ["cat", "dog"], how, [photos])
        for file, content in before.items():
            file.write_bytes(content)  # with "move", they come once more
            assert sorter.put(file, answer) == (out / answer / file.name if not file.exists() else file)
        return sorter

    assert sort_all("cat").summary().endswith(f"{out}: {len(files)} cat.")  # also exact copies
    places = {"dog/x0.png", "fox/x1.png", "none of these/x2.png", "unsure/x3.png", "fox/deep/x4.png"}
    for place in (*places, "cat/deep/x5.png"):
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        (out / "cat" / Path(place).name).rename(out / place)
    (out / "cat" / "x6.png").rename(out / "cat" / "mine.png")
    (out / "cat" / "x7.png").rename(out / "dog" / "mine.png")
    (photos / "more.png").write_bytes(b"more")
    (out / "fox" / "gone.png").symlink_to("nowhere")
    state = contents(out)
    sorter = sort_all("cat")
    assert contents(out) == state
    assert {str(path.relative_to(out)) for path in sorter.left} == {*places, "dog/mine.png"}
    assert (len(sorter.left), sorter.counts) == (6, {"cat": len(files) - 6})
    assert sorter.n_there == len(files) - 6
    done = {"copy": "copied", "link": "linked", "move": "moved"}[how]
    words = "6 images lie in another folder there, perhaps moved by hand. They stay there and were not"
    assert f"{words} {done} again: {out / 'dog' / 'x0.png'}, {out / 'fox' / 'x1.png'}, " in sorter.summary()
    sorter.put(photos / "more.png", "cat")  # what is new comes to the others
    assert (out / "cat" / "more.png").read_bytes() == b"more"
    sorter = sort_all("dog")  # a newer model
    assert contents(out) == {**state, "cat/more.png": b"more"}
    assert "If you want the new answers, move them by hand, or sort into an empty folder." in sorter.summary()


def test_files_whose_size_no_image_has_are_not_read(photos, tmp_path, monkeypatch):
    sort(photos, tmp_path / "sorted", "copy")
    (tmp_path / "sorted" / "fox").mkdir()
    (tmp_path / "sorted" / "fox" / "large.png").write_bytes(b"." * 10_000)
    (photos / "new.png").write_bytes(b"new")
    read, opened = [], Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode: read.append(path.name) or opened(path, mode))
    sorter = Sorter(tmp_path / "sorted", ["cat", "dog"])
    sorter.put(photos / "new.png", "cat")
    assert set(read) == {"new.png"}
    sorter.put(photos / "2.png", "cat")
    assert "2.png" in read
    assert "large.png" not in read


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
    sorter = Sorter(tmp_path / "sorted", ["cat", "dog"])
    for i in range(30):  # 30 copies of one image, all in another folder
        sorter.put(photos / f"holiday ({i}).png", "dog")
    assert len(compared) == 30
    assert len(sorter.left) == 30


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
    assert sorter.left == []
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
