"""Train on a few labelled images and many without labels: ledl fit --unlabelled."""

import csv
import io
import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from helpers.commands import FAST, run
from ledl.cli._console import shown_log
from ledl.cli._work import write_images
from ledl.image_models import facts, open_image_model
from ledl.persistence import read
from ledl.rejection import parts_of

QUICK = ["--size", "8", "--method", "lda"]  # any model of digits, fast


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """Write five labelled digits of each class to photos, 30 others to more, and return the folder of both."""
    root = tmp_path_factory.mktemp("unlabelled")
    write_images("digits", root / "all")
    for label in map(str, range(10)):
        for i, file in enumerate(sorted((root / "all" / label).iterdir())[:35]):
            place = root / "photos" / label / file.name if i < 5 else root / "more" / f"{label}_{file.name}"
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(file, place)
    shutil.rmtree(root / "all")
    return root


@pytest.fixture(scope="session")
def fitted(digits):
    """Train with and without the unlabelled images. Return the folder and what the first command printed."""
    words = ["fit", "photos", "--size", "8", "-o"]
    done = run(*words, "model.ledl", "--unlabelled", "more", "--write-labels", "labels.csv", cwd=digits)
    assert done.returncode == 0, done.stderr
    assert run(*words, "alone.ledl", cwd=digits).returncode == 0
    return digits, done


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def accuracy(rows):
    """Return the share of right labels. The name of an image begins with its digit."""
    return np.mean([Path(row["path"]).name.startswith(f"{row['label']}_") for row in rows])


def test_unlabelled_images_make_the_model_better(fitted):
    folder, done = fitted
    assert "Labelled 50, unlabelled 300: these teach, too." in done.stderr
    printed = " ".join(done.stdout.split())
    assert "Unlabelled: 300 images; labels spread" in printed
    assert "(chosen by hidden labels)" in printed
    assert "to expect, by tests in which labels were hidden, corrected for the choice of method" in printed
    opened = open_image_model(folder / "model.ledl")
    only = {name: values[:1] for name, values in opened.parts.classifier.hidden_results_.items()}
    opened.parts.classifier.hidden_results_ = only  # as if no other method had been possible
    assert "chosen" not in facts(opened)["unlabelled"]
    assert "Trained on: 50 images, 5 per class" in printed
    assert "Labels: labels.csv (300 images)" in printed
    alone = rows_of(run("predict", "alone.ledl", "more", "--format", "csv", cwd=folder).stdout)
    found = rows_of((folder / "labels.csv").read_text())
    new = rows_of(run("predict", "model.ledl", "more", "--format", "csv", cwd=folder).stdout)
    assert len(alone) == len(found) == len(new) == 300
    assert accuracy(found) > accuracy(alone) + 0.03
    assert accuracy(new) > accuracy(alone) + 0.03


def test_the_table_is_that_of_predict_with_the_probabilities_of_the_training(fitted):
    folder, _ = fitted
    found = rows_of((folder / "labels.csv").read_text())
    said = rows_of(run("predict", "model.ledl", "more", "--format", "csv", cwd=folder).stdout)
    assert list(found[0]) == list(said[0])
    assert [row["path"] for row in found] == [row["path"] for row in said]
    classifier = parts_of(read(folder / "model.ledl").model).classifier
    P = classifier.label_distributions_[50:]
    np.testing.assert_allclose([float(row["probability"]) for row in found], P.max(axis=1), rtol=1e-3)
    assert [row["label"] for row in found] == classifier.classes_[P.argmax(axis=1)].tolist()


def test_names_of_unlabelled_images_are_kept_without_pictures(fitted):
    folder, _ = fitted
    info = json.loads(run("info", "model.ledl", "--json", cwd=folder).stdout)
    assert len(info["files"]) == 50
    assert info["thumbnails"] == "50"
    assert info["unlabelled files"] == [f"more/{file.name}" for file in sorted((folder / "more").iterdir())]
    assert "300 images; labels spread" in run("info", "model.ledl", cwd=folder).stdout


def test_images_are_sorted_reviewed_and_shown(fitted, tmp_path):
    folder, _ = fitted
    words = [
        "--review",
        "7",
        "--format",
        "csv",
        "--page",
        tmp_path / "p.html",
        "--sort-into",
        tmp_path / "sorted",
    ]
    done = run("predict", "model.ledl", "more", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    rows = rows_of(done.stdout)
    sure = [float(row["probability"]) for row in rows]
    assert len(rows) == 7
    assert sure == sorted(sure)
    assert sum(len(files) for _, _, files in os.walk(tmp_path / "sorted")) == 300
    page = (tmp_path / "p.html").read_text("utf-8")
    assert "tested with models that did not know their labels" in page
    assert "--labels corrected.csv --unlabelled MORE" in page


def test_a_page_names_the_images_that_carried_an_answer(fitted, tmp_path):
    folder, _ = fitted
    image = sorted((folder / "more").iterdir())[0]
    done = run("explain", "model.ledl", image, "-o", tmp_path / "why.html", "--reject", "0.1", cwd=folder)
    assert done.returncode == 0, done.stderr
    near = done.stdout.split("nearest training samples:")[1]
    assert f"more/{image.name}" in near.splitlines()[1]  # the image itself
    assert any(f"{name} " in near for name in read(folder / "model.ledl").info["files"])
    assert "data:image/jpeg" in (tmp_path / "why.html").read_text("utf-8")  # labelled images have thumbnails


def test_images_of_no_class_are_rejected(digits, tmp_path):
    words = [digits / "photos", "--unlabelled", digits / "more", "-o", tmp_path / "m.ledl", "--size", "8"]
    shutil.copytree(digits / "more", tmp_path / "new")
    Image.fromarray(np.uint8(np.indices((8, 8)).sum(axis=0) % 2 * 255)).save(tmp_path / "new" / "squares.png")
    done = run("fit", *words, "--method", "crc")
    assert done.returncode == 0, done.stderr
    assert "with --reject" in run("info", tmp_path / "m.ledl").stdout
    done = run("predict", tmp_path / "m.ledl", tmp_path / "new", "--reject", "0.05", "--format", "csv")
    rejected = [Path(row["path"]).name for row in rows_of(done.stdout) if row["label"] == "none of these"]
    assert "squares.png" in rejected
    assert len(rejected) < 0.2 * 301


def test_copies_alone_teach_nothing(digits, tmp_path):
    with Image.open(digits / "photos" / "0" / "00000.png") as image:
        image.save(tmp_path / "same.bmp")  # the same pixels in another file
    words = [digits / "photos", "--unlabelled", tmp_path / "same.bmp", "-o", tmp_path / "m.ledl", *FAST]
    done = run("fit", *words, "--write-labels", tmp_path / "t.csv")
    assert done.returncode == 0, done.stderr
    assert "nothing else to learn from" in done.stderr
    assert "to expect, by tests in which labels were hidden" in done.stdout
    assert [row["label"] for row in rows_of((tmp_path / "t.csv").read_text())] == ["0"]


def test_labelled_copies_alone_hide_nothing(digits, tmp_path):
    for label in ("0", "1"):
        place = tmp_path / "photos" / label
        place.mkdir(parents=True)
        file = sorted((digits / "photos" / label).iterdir())[0]
        for name in ("a.png", "b.png"):
            shutil.copy(file, place / name)
    done = run("fit", tmp_path / "photos", "--unlabelled", digits / "more", "-o", tmp_path / "m.ledl", *FAST)
    assert done.returncode == 0, done.stderr
    assert "Accuracy:   not known" in done.stdout


def test_the_table_is_read_back_with_corrections_and_blanks(fitted, tmp_path):
    folder, _ = fitted
    rows = rows_of((folder / "labels.csv").read_text())
    for row in rows:
        row["label"] = Path(row["path"]).name[0]  # corrected
    for row in rows[::2]:
        row["label"] = ""
    rows[1]["label"] = "None of These"
    with (tmp_path / "corrected.csv").open("w") as file:
        table = csv.DictWriter(file, rows[0].keys())
        table.writeheader()
        table.writerows(rows)
    words = ["--labels", "folder", "--labels", tmp_path / "corrected.csv", *QUICK]
    again = [*words, "--write-labels", tmp_path / "again.csv", "--unlabelled", "more"]
    done = run("fit", "photos", "-o", tmp_path / "m.ledl", *again, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Labelled 199, unlabelled 150: these teach, too." in done.stderr  # not what is of no class
    assert "Unlabelled images that are among the labelled ones: 149." in done.stderr
    found = rows_of((tmp_path / "again.csv").read_text())
    assert [row["path"] for row in found] == sorted(row["path"] for row in rows if row is not rows[1])
    said = {row["path"]: row["label"] for row in found}
    assert all(said[row["path"]] == row["label"] for row in rows[3::2])  # known ones, too
    done = run("fit", "photos", "-o", tmp_path / "m.ledl", *words, cwd=folder)
    assert "Labelled 199, unlabelled 150: these teach, too." in done.stderr


def test_predict_has_no_truth_for_blank_labels(fitted, tmp_path):
    folder, _ = fitted
    first, second, *_ = sorted((folder / "more").iterdir())
    (tmp_path / "truth.csv").write_text(f"path,label\n{first},0\n{second},\n")
    done = run("predict", "model.ledl", "more", "--labels", tmp_path / "truth.csv", cwd=folder)
    assert "(1 of 1)" in done.stdout
    assert f"Not used (no label in the table): 1: more/{second.name}" in done.stderr


def test_labelled_images_count_once_with_their_labels(digits, tmp_path):
    shutil.copytree(digits / "more", tmp_path / "more")
    shutil.copy(digits / "photos" / "3" / "00003.png", tmp_path / "more" / "copy.png")
    (tmp_path / "more" / "link").symlink_to(digits / "photos" / "4")
    words = [
        "fit",
        digits / "photos",
        "-o",
        "m.ledl",
        *QUICK,
        "--write-labels",
        "t.csv",
        "--unlabelled",
        "more",
    ]
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Unlabelled images that are among the labelled ones: 6. They count once, as labelled." in done.stderr
    rows = {row["path"]: row for row in rows_of((tmp_path / "t.csv").read_text())}
    assert len(rows) == 306  # one for each, also for those whose labels are known
    assert (rows["./more/copy.png"]["label"], rows["./more/copy.png"]["probability"]) == ("3", "1")
    # Those that are not drawn are without labels, whatever their folder is called.
    done = run(*words, "--unlabelled", digits / "photos", "--per-class", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Labelled 30, unlabelled 3" in done.stderr
    files = set(read(tmp_path / "m.ledl").info["files"])
    rows = rows_of((tmp_path / "t.csv").read_text())
    known = [row for row in rows if "/".join(Path(row["path"]).parts[-2:]) in files]
    assert len(known) >= 27
    assert all(row["label"] == Path(row["path"]).parts[-2] for row in known)
    assert len(rows) == 351


def test_labels_that_are_written_make_no_class_of_the_folder_without_labels(digits, tmp_path):
    """Some images without labels were copied as examples."""
    photos = tmp_path / "photos"
    shutil.copytree(digits / "photos", photos)
    shutil.copytree(digits / "more", photos / "unsorted")
    for name in ("3", "4"):
        file = next((photos / name).iterdir())
        shutil.copy(file, photos / "unsorted" / f"{name} again.png")
    words = ["fit", "photos", "-o", "m.ledl", *QUICK]
    unsorted = ["--unlabelled", "photos/unsorted"]
    assert run(*words, *unsorted, "--write-labels", "labels.csv", cwd=tmp_path).returncode == 0
    both = [*words, "--labels", "folder", "--labels", "labels.csv"]
    for more in ([], unsorted):  # the second has nothing left to learn from
        done = run(*both, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert sorted(set(read(tmp_path / "m.ledl").info["labels"])) == [*"0123456789"]
    assert "No other is left, so the model learns from the labelled ones alone." in done.stderr


def test_errors_come_before_anything_is_written(digits, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.png").write_bytes(b"not an image")
    (tmp_path / "labels.csv").write_text("path,label\n")
    more = ["--unlabelled", digits / "more"]
    for words, message in (
        (["--unlabelled", "empty"], "empty has no images"),
        (["--unlabelled", "gone"], "There is no file or folder gone"),
        ([*more, "--unlabelled", "bad"], "1 of 351 images cannot be read"),
        (["--unlabelled", "bad", "--skip-unreadable"], "No unlabelled image can be used."),
        (["--write-labels", "t.csv"], "Give some with --unlabelled FOLDER, or leave their labels blank"),
        ([*more, "--write-labels", "gone/t.csv"], "There is no folder"),
        ([*more, "--write-labels", "m.ledl"], "would replace the file of another option"),
        (
            [*more, "--write-labels", "./labels.csv", "--labels", "labels.csv"],
            "would replace the file of another option",
        ),
        ([*more, "--write-labels", "p.html", "--page", "p.html"], "would replace the file of another option"),
        (["--labels", "folder", "--labels", "m.ledl"], "--out m.ledl would replace the file of another option"),
    ):
        done = run("fit", digits / "photos", "-o", "m.ledl", *FAST, *words, cwd=tmp_path)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())
        assert not (tmp_path / "m.ledl").exists()
        assert not (tmp_path / "t.csv").exists()
    done = run(
        "fit",
        digits / "photos",
        "-o",
        "m.ledl",
        *QUICK,
        *more,
        "--unlabelled",
        "bad",
        "--skip-unreadable",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "Left out:   bad/x.png" in done.stdout


def test_labels_of_two_classes_fill_their_columns(digits, tmp_path):
    for name in ("0", "1"):
        shutil.copytree(digits / "photos" / name, tmp_path / "photos" / name)
    words = ["--unlabelled", digits / "more", "--write-labels", "t.csv", *QUICK]
    done = run("fit", "photos", "-o", "m.ledl", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = csv.reader((tmp_path / "t.csv").read_text("utf-8-sig").splitlines())
    assert {len(row) for row in rows} == {3 + 2 * 2}


def test_equal_images_with_different_labels_are_refused_by_name(digits, tmp_path):
    shutil.copytree(digits / "photos", tmp_path / "photos")
    shutil.copy(tmp_path / "photos" / "0" / "00000.png", tmp_path / "photos" / "1" / "wrong.png")
    done = run("fit", "photos", "-o", "m.ledl", *QUICK, "--unlabelled", digits / "more", cwd=tmp_path)
    assert done.returncode == 2
    assert "photos/0/00000.png and photos/1/wrong.png are equal, but their labels are 0 and 1." in done.stderr


def test_one_label_of_each_class_is_enough(digits, tmp_path):
    words = ["--per-class", "1", "--unlabelled", digits / "more", "--size", "8"]
    done = run("fit", digits / "photos", "-o", "m.ledl", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Fewer than two classes have more than one label" in done.stderr
    assert "not known, because every class has only one image" in done.stdout
    assert "chosen by hidden labels" not in done.stdout
    assert run("predict", "m.ledl", digits / "more", cwd=tmp_path).returncode == 0


def test_progress_of_the_training_is_printed_in_a_terminal():
    logger = logging.getLogger("ledl.semi_supervised")
    before = logger.level, [*logger.handlers]
    for is_terminal in (True, False):
        text = io.StringIO()
        with shown_log(Console(file=text, force_terminal=is_terminal), "ledl.semi_supervised"):
            logger.info("Neighbours of %d samples", 350)
        assert ("Neighbours of 350 samples" in text.getvalue()) == is_terminal
    assert before == (logger.level, [*logger.handlers])
