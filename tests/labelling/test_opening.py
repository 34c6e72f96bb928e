"""Opening a folder: which images there are, where labels are kept, which features."""

import shutil
import time

import pytest

from helpers.labels import ids_of
from ledl.files import ABANDONED_AFTER, unfinished
from ledl.labelling import Options, opened
from ledl.labelling._export import learn_here
from ledl.labelling._session import RefusedError, UnknownError


def test_folders_with_nothing_to_label(tmp_path, open_folder):
    with pytest.raises(RefusedError, match="does not exist"):
        open_folder(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RefusedError, match="no images"):
        open_folder(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match="is a file"):
        open_folder(tmp_path / "file")
    (tmp_path / "broken").mkdir()
    for k in range(3):
        (tmp_path / "broken" / f"{k}.png").write_bytes(b"not an image")
    session = open_folder(tmp_path / "broken")
    learn_here(session)
    state = session.state()
    assert [name for name, _ in state["unreadable"]] == ["0.png", "1.png", "2.png"]
    assert state["n_images"] == 0
    assert "No image can be read" in state["features"]["error"]
    assert session.questions()["items"] == []


def test_one_image_is_enough_to_label(folder, tmp_path, open_folder):
    (tmp_path / "one").mkdir()
    shutil.copy(folder / "null/00.png", tmp_path / "one" / "0.png")
    session = open_folder(tmp_path / "one")
    learn_here(session)
    session.answer(ids_of(session, "0.png"), new_class="a")
    assert session.state()["n_labelled"] == 1


def test_links_out_of_the_folder_are_listed_and_not_shown(folder, tmp_path, open_folder):
    secret = tmp_path / "secret.png"
    shutil.copy(folder / "null/00.png", secret)
    (folder / "link.png").symlink_to(secret)
    (folder / "inside.png").symlink_to(folder / "null/00.png")
    session = open_folder(folder)
    assert [name for name, _ in session.state()["unreadable"]] == ["link.png"]
    assert "inside.png" in session.names
    i = session.names.index("null/01.png")
    (folder / "null/01.png").unlink()
    (folder / "null/01.png").symlink_to(secret)  # while the server runs
    for look in (session.picture, session.large_picture):
        with pytest.raises(UnknownError, match="outside"):
            look(i)


def test_parts_of_pictures_of_killed_servers_are_removed_when_they_are_old(folder, open_folder, monkeypatch):
    session = open_folder(folder)
    session.picture(0)
    (made,) = (session.store.place / "thumbs").rglob("*.jpg")
    part = unfinished(made)
    part.write_bytes(b"a part")
    open_folder(folder)
    assert part.exists()
    later = time.time() + ABANDONED_AFTER
    monkeypatch.setattr(time, "time", lambda: later)
    open_folder(folder)
    assert {*made.parent.iterdir()} == {made}


def test_features_are_refused_before_anything_is_written(folder, open_folder):
    before = sorted(folder.rglob("*"))
    with pytest.raises(ValueError, match="efficientnet_lite0"):
        open_folder(folder, features="efficientnet_lite")
    assert sorted(folder.rglob("*")) == before


def test_options_that_are_left_out_are_as_they_were_the_last_time(folder, open_folder):
    usual = open_folder(folder).extractor.max_pixels
    assert open_folder(folder, max_pixels=50, size=8).extractor.max_pixels == 50
    again = open_folder(folder).extractor
    assert (again.max_pixels, again.size) == (50, 8)
    again = open_folder(folder, max_pixels=usual).extractor
    assert (again.max_pixels, again.size) == (usual, 8)


def test_features_that_cannot_be_made_are_not_kept(folder, open_folder, tmp_path):
    assert open_folder(folder, size=8).extractor.size == 8
    (tmp_path / "net.onnx").write_bytes(b"no network")
    with pytest.raises((ValueError, OSError, ImportError), match=r"net\.onnx"):
        open_folder(folder, features=str(tmp_path / "net.onnx"))
    assert open_folder(folder).extractor.size == 8
    store = open_folder(folder).store
    store.set(features=str(tmp_path / "gone.onnx"), size="")
    store.close()
    with pytest.raises(RefusedError, match=r"of the last time cannot be made: .*gone.onnx.*--features"):
        open_folder(folder)
    with pytest.raises(RefusedError, match="is a file"):
        open_folder(folder, store=tmp_path / "net.onnx")


def test_an_export_beside_an_open_page_says_which_images_it_does_not_know(folder, open_folder):
    session = open_folder(folder)
    session.answer([session.images[0].id], new_class="a")
    first = folder / session.images[0].path
    first.rename(first.with_name("renamed.png"))
    shutil.copy(folder.parent / "others/sieben/00.png", folder / "new.png")
    lines = []
    with opened(Options(folder), lines.append, is_reader=True) as reader:
        assert reader.n == session.n - 1
    assert any("since the page was opened: 2." in line for line in lines)
    assert any("Labelled images that are not there any more: 1." in line for line in lines)
