"""Labels at hand over many starts, against a plain model of the rules: who says what, and what words mean."""

import os
import random
import shutil
from collections import Counter

import pytest
from PIL import Image

from helpers.labels import ids_of, labels_of
from ledl.images import ImageError, content_key
from ledl.labelling._export import learn_here
from ledl.labelling._export import table as text_of
from ledl.labelling._session import RefusedError

FOLDERS = ("cat", "dog", "bird", "2023-05", "unsorted")


class Plain:
    """The rules in plain Python: images are known by their grey value."""

    def __init__(self):
        self.names, self.merged = {}, {}  # of classes, by number: all names that they had, the newest last
        self.history = []  # numbers and names of classes, in the order in which they were given
        self.said, self.words = {}, {}  # what a person has said of an image; what a folder's name means

    def live(self, key):
        while key in self.merged:
            key = self.merged[key]
        return key

    def called(self, name):
        """Return the class that has this name, or had it last, or a new one."""
        for key in sorted(self.names, reverse=True):
            if self.names[key][-1] == name and key not in self.merged:
                return key
        had = [key for key, old in self.history if old == name]
        if had:
            return self.live(had[-1])
        key = len(self.names) + 1
        self.note(key, name)
        return key

    def note(self, key, name):
        self.names.setdefault(key, []).append(name)
        self.history.append((key, name))

    def start(self, images):
        """Return the label of each image, after a start: images have a number and the name of their folder."""
        tops = {top for _, top in images} - {"unsorted", "2023-05"}
        if not (len(tops) > 1 or tops & set(self.words)):
            tops = set()
        found = {}
        for number, top in images:  # in the order of their paths
            if number in self.said:
                found[number] = self.said[number]
            elif top in tops:
                if top not in self.words:
                    self.words[top] = self.called(top)
                found[number] = self.words[top]
        return {number: self.names[self.live(key)][-1] for number, key in found.items()}


@pytest.mark.parametrize("seed", range(25))
def test_random_days_of_a_person_with_folders(seed, tmp_path, open_folder):
    """Images move between folders, classes are renamed, merged and named anew, and a person answers."""
    rng, plain = random.Random(seed), Plain()
    folder, away = tmp_path / "photos", tmp_path / "away"
    away.mkdir()
    for number in range(16):
        place = folder / FOLDERS[number % len(FOLDERS)]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), number * 10).save(place / f"{number}.png")
    for _ in range(6):
        session = open_folder(folder, labels=None)
        numbers = [int(os.path.basename(image.path)[:-4]) for image in session.images]
        tops = [os.path.dirname(image.path) for image in session.images]
        wanted = plain.start(list(zip(numbers, tops, strict=True)))
        found = {}
        for i, number in enumerate(numbers):
            label = session.image(i)["label"]
            if label is not None:
                found[number] = session.classes[label].name
        assert found == wanted
        session.store.note_contents(
            [(image.id, content_key(folder / image.path, is_image=True)) for image in session.images]
        )
        for _ in range(rng.randrange(5)):
            live = [key for key in plain.names if key not in plain.merged]
            what = rng.choice(["answer", "answer", "rename", "merge"])
            if what == "answer":
                i = rng.randrange(session.n)
                name = rng.choice(["cat", "dog", "bird", "fox", "owl"])
                session.answer([session.images[i].id], new_class=name)
                own = [key for key in live if plain.names[key][-1] == name]
                key = own[0] if own else len(plain.names) + 1
                if not own:
                    plain.note(key, name)
                plain.said[numbers[i]] = key
            elif what == "rename" and live:
                key, name = rng.choice(live), rng.choice(["cat", "dog", "bird", "hen", "owl"])
                if any(plain.names[other][-1] == name for other in live if other != key):
                    with pytest.raises(RefusedError, match="already"):
                        session.rename_class(key, name)
                elif plain.names[key][-1] != name:
                    session.rename_class(key, name)
                    plain.note(key, name)
            elif what == "merge" and len(live) > 1:
                gone, into = rng.sample(live, 2)
                session.merge_class(gone, into)
                plain.merged[gone] = into
        session.store.close()
        for file in sorted(folder.rglob("*.png")):
            if ".ledl" in str(file):
                continue
            match rng.randrange(6):
                case 0:
                    place = folder / rng.choice(FOLDERS)
                    place.mkdir(exist_ok=True)
                    file.rename(place / file.name)
                case 1:
                    file.rename(away / file.name)
                case 2:
                    os.utime(file, (0, rng.randrange(10**9)))
        for file in sorted(away.iterdir()):
            if rng.random() < 0.5:
                place = folder / rng.choice(FOLDERS)
                place.mkdir(exist_ok=True)
                file.rename(place / file.name)


def test_names_of_folders_are_labels(folder, open_folder):
    shutil.copy(folder / "null/00.png", folder / "loose.png")
    for name in ("unsure", "unsorted"):
        (folder / name).mkdir()
        shutil.copy(folder / "null/00.png", folder / name / "x.png")
    session = open_folder(folder, labels=None)
    found = labels_of(session)
    assert Counter(found.values()) == {(n, "folder"): 12 for n in ("eins [1]", "null", "zwei")}
    assert "loose.png" not in found
    assert not {"unsure/x.png", "unsorted/x.png"} & set(found)
    assert any("36 images" in line and "--labels none" in line for line in session.lines)
    assert session.state()["can_undo"] is None  # nobody has asked for it


def test_numbered_classes_are_no_cameras(folder, open_folder):
    """Folders of cameras begin at 100."""
    for i, name in enumerate(("null", "zwei", "eins [1]")):
        (folder / name).rename(folder / f"00{i}_cats"[: 8 - i % 2])
    assert len(labels_of(open_folder(folder, labels=None))) == 36


@pytest.mark.parametrize("names", [["DCIM", "b"], ["2023-01", "2023-02"], ["100CANON", "101CANON"], ["only"]])
def test_names_of_cameras_and_dates_are_no_labels_unless_asked_for(folder, open_folder, names):
    for i, name in enumerate(names):
        (folder.parent / "camera" / name).mkdir(parents=True)
        shutil.copy(folder / f"null/0{i}.png", folder.parent / "camera" / name / "1.png")
    session = open_folder(folder.parent / "camera", labels=None)
    assert labels_of(session) == {}
    assert any("--labels folder" in line for line in session.lines)
    session = open_folder(folder.parent / "camera", labels=["folder"])
    assert {label for label, _ in labels_of(session).values()} == set(names)


def test_a_folder_of_a_camera_or_one_that_is_away_takes_no_labels_from_others(folder, open_folder, tmp_path):
    """Labels of all class folders were withdrawn, and the remedy made the date a class."""
    session = open_folder(folder, labels=None)
    learn_here(session)  # images are known by their contents
    assert len(labels_of(session)) == 36
    (folder / "2023-05").mkdir()
    shutil.copy(folder / "null/00.png", folder / "2023-05/new.png")
    session = open_folder(folder, labels=None)
    assert {label for label, _ in labels_of(session).values()} == {"eins [1]", "null", "zwei"}
    assert len(labels_of(session)) == 36
    assert any(
        "'2023-05' looks like a date or a camera, so its images have none" in text for text in session.lines
    )
    (folder / "archive/2019").mkdir(parents=True)
    shutil.copy(folder / "null/00.png", folder / "archive/2019/old.png")
    (folder / "2023-05").rename(tmp_path / "2023-05")
    session = open_folder(folder, labels=None)
    assert len(labels_of(session)) == 36
    assert any("'archive' has its images in folders of its own, so" in line for line in session.lines)
    for name in ("eins [1]", "zwei"):
        (folder / name).rename(tmp_path / name)
    session = open_folder(folder, labels=None)
    assert len(labels_of(session)) == 12
    assert any("Labelled images that are not there any more: 24." in line for line in session.lines)
    for path in [*(folder / "null").iterdir()]:  # the labels of folders follow the folders, and it is said
        path.rename(folder / path.name)
    session = open_folder(folder, labels=None)
    assert labels_of(session) == {}
    assert any(line.startswith("12 images lose the label") for line in session.lines)


def test_rows_of_a_table_that_are_no_images_here_are_counted(folder, open_folder, tmp_path):
    (folder / "null/notes").write_bytes((folder / "null/00.png").read_bytes())
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nnull/00.png,first\nnull/notes,second\n")
    session = open_folder(folder, labels=[str(table)])
    assert labels_of(session) == {"null/00.png": ("first", "table")}
    assert any("labels.csv for files that are not among" in line and ": 1." in line for line in session.lines)


def test_a_flat_folder_hears_nothing_of_folders_unless_it_asks(folder, open_folder):
    assert not [line for line in open_folder(folder / "null", labels=None).lines if "folders" in line]
    assert [line for line in open_folder(folder / "null", labels=["folder"]).lines if "0 images" in line]


def test_the_choice_is_kept_and_can_be_changed(folder, open_folder):
    session = open_folder(folder, labels=["folder"])
    session.answer(ids_of(session, "null/00.png"), new_class="mine")
    assert len(labels_of(open_folder(folder, labels=None))) == 36
    assert labels_of(open_folder(folder, labels=["none"])) == {"null/00.png": ("mine", "person")}
    assert len(labels_of(open_folder(folder, labels=["folder"]))) == 36
    with pytest.raises(RefusedError, match="Leave out"):
        open_folder(folder, labels=["none", "folder"])


def test_a_table_counts_more_than_folders_and_a_person_more_than_both(folder, open_folder, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nnull/00.png,first\nnull/01.png,first\nnull/02.png,\nnull/03.png,unsure\n")
    session = open_folder(folder, labels=["folder", str(table)])
    found = labels_of(session)
    assert found["null/00.png"] == ("first", "table")
    assert found["null/04.png"] == ("null", "folder")
    assert not {"null/02.png", "null/03.png"} & set(found)  # blank, and an answer that is no class
    session.answer(ids_of(session, "null/00.png"), new_class="mine")
    session.answer(ids_of(session, "null/04.png"))  # takes the label away

    table.write_text("path,label\nnull/00.png,second\nnull/01.png,second\nnull/04.png,second\n")
    found = labels_of(open_folder(folder, labels=["folder", str(table)]))
    assert found["null/00.png"] == ("mine", "person")
    assert found["null/01.png"] == ("second", "table")
    assert "null/04.png" not in found
    assert found["null/02.png"] == ("null", "folder")  # no longer in the table
    table.unlink()
    assert labels_of(open_folder(folder, labels=None)) == found  # the table was read, and is not needed again


def test_none_of_these_in_a_table_is_an_answer(folder, open_folder, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nnull/00.png,a\nnull/01.png,None of these\nzwei/02.png,none of these\n")
    session = open_folder(folder, labels=[str(table)])
    assert "2 images get no label. The table calls them 'unsure' or 'none of these'." in session.lines
    skipped = [session.names[i] for i in session.find(state="skipped")]
    assert skipped == ["null/01.png", "zwei/02.png"]
    assert labels_of(session) == {"null/00.png": ("a", "table")}
    assert not {*ids_of(session, *skipped)} & {image["id"] for image in session.questions(36)["items"]}
    session.answer(ids_of(session, "zwei/02.png"), new_class="b")  # counts more
    session = open_folder(folder, labels=[str(table)])
    assert labels_of(session)["zwei/02.png"] == ("b", "person")
    assert "1 images get no label. The table calls them 'unsure' or 'none of these'." in session.lines
    table.write_text(text_of(session, session.folder))  # its own export says the same
    session = open_folder(folder, labels=[str(table)])
    assert [session.names[i] for i in session.find(state="skipped")] == ["null/01.png"]
    table.write_text("path,label\nnull/00.png,a\n")
    session = open_folder(folder, labels=[str(table)])
    assert session.find(state="skipped") == []


def test_a_table_that_takes_labels_of_folders_away_is_remembered(folder, open_folder, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nnull/00.png,\nnull/01.png,unsure\nnull/02.png,other\nnull/03.png,a\x07b\n")
    first = labels_of(open_folder(folder, labels=["folder", str(table)]))
    assert not {"null/00.png", "null/01.png", "null/03.png"} & set(first)  # the last is no name
    table.unlink()
    again = open_folder(folder, labels=None)
    assert labels_of(again) == first
    assert again.store.db.execute("SELECT count(*) FROM batches").fetchone() == (1,)  # nothing new
    folders = {name: (name.split("/")[0], "folder") for name in again.names}
    session = open_folder(folder, labels=["folder"])  # not the table any more
    assert labels_of(session) == folders
    assert session.find(state="skipped") == []


def test_folders_do_not_undo_a_merge_or_a_new_name(folder, open_folder, tmp_path):
    session = open_folder(folder, labels=["folder"])
    one, null, two = session.classes
    session.rename_class(two, "second")
    session.merge_class(one, null)
    session.merge_class(null, two)
    shutil.copy(folder / "null/00.png", folder / "null/new.png")
    again = open_folder(folder, labels=None)
    assert Counter(labels_of(again).values()) == {("second", "folder"): 37}
    assert [c.name for c in again.classes.values() if not c.gone] == ["second"]
    (tmp_path / "known.csv").write_text("path,label\nnull/01.png,NULL\n")
    again = open_folder(folder, labels=[str(tmp_path / "known.csv")])
    assert labels_of(again) == {"null/01.png": ("second", "table")}
    assert labels_of(open_folder(folder, labels=None)) == {"null/01.png": ("second", "table")}


def test_a_merge_that_is_undone_after_a_restart_stays_undone(folder, open_folder):
    session = open_folder(folder, labels=["folder"])
    said = labels_of(session)
    one, null, _ = session.classes
    session.merge_class(one, null)
    session = open_folder(folder, labels=None)
    assert labels_of(session) != said
    session.undo()
    assert labels_of(session) == said
    assert labels_of(open_folder(folder, labels=None)) == said


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_names_that_are_used_again_change_no_label_at_hand(kind, folder, open_folder, tmp_path):
    """The folders have each other's names, which a person mends on the page."""
    source = "folder"
    if kind == "table":
        source = tmp_path / "known.csv"
        lines = [f"{path},{path.split('/')[0]}\n" for path in labels_of(open_folder(folder, labels=["folder"]))]
        source.write_text("".join(lines))
    session = open_folder(folder, labels=[str(source)])
    one, null, two = session.classes
    for key, name in ((null, "x"), (two, "null"), (null, "zwei")):
        session.rename_class(key, name)
    session.rename_class(one, "uno")
    session.add_class("eins [1]")
    said = labels_of(session)
    assert said["null/00.png"] == ("zwei", kind)
    for labels in (None, [str(source)]):
        assert labels_of(open_folder(folder, labels=labels)) == said
    open_folder(folder, labels=["none"])
    session = open_folder(folder, labels=[str(source)])
    assert labels_of(session) == said
    own = tmp_path / "own.csv"  # another table, with the names of now
    own.write_text(text_of(session, session.folder))
    assert labels_of(open_folder(folder, labels=[str(own)])) == {k: (v, "table") for k, (v, _) in said.items()}


def test_a_table_alone_means_no_folders(folder, open_folder, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("null/00.png,a\nzwei/00.png,b\n")
    assert len(labels_of(open_folder(folder, labels=["folder"]))) == 36
    assert labels_of(open_folder(folder, labels=[str(table)])) == {
        "null/00.png": ("a", "table"),
        "zwei/00.png": ("b", "table"),
    }
    table.write_text("missing.png,a\n")
    with pytest.raises(ImageError, match="line 1"):
        open_folder(folder, labels=[str(table)])
