"""What commands on images find, print and write."""

import csv
import errno
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from helpers.commands import ENVIRONMENT, FAST, LEDL, run
from helpers.digits import NAMES
from ledl.cli._work import _labels_of_folders, sort_answers
from ledl.csv_cells import MARK, from_cell
from ledl.datasets import load_image_folder
from ledl.image_models import Prediction
from ledl.images import REJECTED, Sorter, shown
from ledl.persistence import read


def test_labels_of_a_folder_skip_the_training_images(folder, model, tmp_path):
    done = run("predict", model, folder / "known", "--labels", "folder", "--format", "json")
    rows = json.loads(done.stdout)
    assert [row["truth"] for row in rows] == [row["path"].split("/")[-2] for row in rows]
    trained = set(json.loads(run("info", model, "--json").stdout)["files"])
    assert len(rows) == 18
    assert not {"/".join(row["path"].split("/")[-2:]) for row in rows} & trained
    right = sum(row["label"] == row["path"].split("/")[-2] for row in rows)
    assert f"({right} of 18)" in done.stderr
    assert "Skipped 18 training images" in done.stderr
    wrong = json.loads(
        run("predict", model, folder / "known", "--labels", "folder", "--format", "json", "--mistakes").stdout
    )
    assert wrong == [row for row in rows if row["label"] != row["truth"]]
    # Training images are recognized in another folder, but not if their content has changed.
    moved = tmp_path / "moved"
    shutil.copytree(folder / "known", moved)
    first = sorted(trained)[0]
    Image.new("L", (8, 8), 200).save(moved / first)
    done = run("predict", model, moved, "--labels", "folder", "--format", "json")
    assert "Skipped 17 training images" in done.stderr
    shutil.copy(folder / "known" / sorted(trained)[1], moved / "null" / "copy.png")
    done = run("predict", model, moved, "--labels", "folder", "--format", "json")
    assert "Skipped 18 training images" in done.stderr  # copies of them tell nothing either


def test_the_exact_name_of_a_class_counts_more_than_one_in_other_letters(tmp_path):
    (tmp_path / "Birds" / "cat").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "Birds" / "cat" / "1.png")
    for classes, truth in ((["cat", "birds"], "cat"), (["dog", "birds"], "birds"), (["dog"], "Birds")):
        assert _labels_of_folders([tmp_path], classes)[1] == [truth]


@pytest.mark.parametrize("labels", ["folder", "table"])
def test_class_names_in_other_letters_are_those_of_the_model(folder, labels, tmp_path):
    """In archives of some systems ü is two letters; other systems do not tell capitals apart."""
    for form, names in (("NFC", ("Küste", "wald")), ("NFD", ("Küste", "Wald"))):
        for name, known in zip(names, sorted((folder / "known").iterdir())[:2], strict=True):
            shutil.copytree(known, tmp_path / form / unicodedata.normalize(form, name))
    done = run("fit", tmp_path / "NFC", "-o", tmp_path / "m.ledl", "--per-class", "3", *FAST)
    assert done.returncode == 0, done.stderr
    images = tmp_path / "NFD"
    if labels == "table":
        labels = tmp_path / "labels.csv"
        lines = [
            f"{unicodedata.normalize('NFC', str(p.relative_to(images)))},{p.parent.name}"
            for p in images.rglob("*.png")
        ]
        labels.write_text("\n".join(["path,label", *lines]), "utf-8")
    rows = json.loads(
        run("predict", tmp_path / "m.ledl", images, "--labels", labels, "--format", "json").stdout
    )
    assert {row["truth"] for row in rows} == {"Küste", "wald"}
    image = next(Path(row["path"]) for row in rows if row["label"] == "wald")
    words = ["explain", tmp_path / "m.ledl", image, "-o", tmp_path / "why.html", "--against"]
    assert run(*words, unicodedata.normalize("NFD", "Küste")).returncode == 0


def test_the_confusion_matrix_adds_up(folder, model, tmp_path):
    out = tmp_path / "confusion.csv"
    done = run("predict", model, folder / "known", "--labels", "folder", "--confusion", out)
    assert done.returncode == 0, done.stderr
    head, *rows = list(csv.reader(out.read_text("utf-8").splitlines()))
    assert head == ["truth", *NAMES]
    assert [sum(map(int, row[1:])) for row in rows] == [6, 6, 6]
    assert "Confusion matrix" in done.stdout
    assert "eins [1]" in done.stdout


def test_formats_agree(folder, model):
    paths = [folder / "known" / "null" / "00.png", folder / "others" / "sieben" / "01.png"]
    rows = json.loads(run("predict", model, *paths, "--format", "json", "--top", "2", "--reject", "0.2").stdout)
    table = list(csv.DictReader(io.StringIO(
        run("predict", model, *paths, "--format", "csv", "--top", "2", "--reject", "0.2").stdout
    )))  # fmt: skip
    for row, line in zip(rows, table, strict=True):
        assert row["label"] == line["label"]
        assert [entry["label"] for entry in row["ranking"]] == [line["class_1"], line["class_2"]]
        np.testing.assert_allclose(row["ranking"][0]["probability"], float(line["probability_1"]), rtol=1e-5)
        np.testing.assert_allclose(row["probability"], float(line["probability"]), rtol=1e-3)
        np.testing.assert_allclose(row["p_value"], float(line["p_value"]), rtol=1e-3)
    assert rows[0]["label"] in run("predict", model, *paths).stdout
    for form in ("csv", "json"):
        assert "p_value" not in run("predict", model, *paths, "--format", form).stdout


BAD_CLASSES = ["=cmd|' calc'!A0", "\x1b[31m\nAccuracy: 100 %", '@"x";=1+2']
BAD_FILES = [
    "=1+2.png",
    "-b.png",
    "c;=1.png",
    "'d.png",
    "\x1b]0;e\x07.png",
    "\tf.png",
    os.fsdecode(b"\xff.png"),
]


@pytest.fixture(scope="module")
def hostile(folder, tmp_path_factory):
    """Return a folder whose classes and files have names that attack, and a model of it."""
    root = tmp_path_factory.mktemp("hostile")
    for name, new in zip(NAMES, BAD_CLASSES, strict=True):
        (root / "images" / new).mkdir(parents=True)
        for file, other in zip(sorted((folder / "known" / name).iterdir())[:7], BAD_FILES, strict=True):
            shutil.copy(file, root / "images" / new / other)
    assert run("fit", root / "images", "-o", root / "m.ledl", "--per-class", "4", *FAST).returncode == 0
    return root


def test_names_are_no_formulas_and_control_no_terminal(hostile):
    words = ["predict", hostile / "m.ledl", "images", "--labels", "folder"]
    done = run(*words, "--format", "csv", "--confusion", "c.csv", cwd=hostile)
    table = run(*words, cwd=hostile)
    matrix = (hostile / "c.csv").read_text("utf-8")
    for printed in (done.stdout, done.stderr, table.stdout, matrix):
        assert all(line.isprintable() for line in printed.split("\n"))
    assert sum(line.startswith("Accuracy:") for line in table.stdout.split("\n")) == 1
    for text in (done.stdout, matrix):
        for separator in ",;":
            cells = [cell for row in csv.reader(io.StringIO(text), delimiter=separator) for cell in row]
            starts = {cell[0] for cell in cells if cell and not re.fullmatch(r"-?[\d.e-]+", cell)}
            assert len(cells) > 3
            assert not starts & set("=+-@'\t\r")
    assert {from_cell(cell) for cell in next(csv.reader(io.StringIO(matrix)))[1:]} == set(BAD_CLASSES)


def test_what_predict_writes_is_what_fit_reads(hostile):
    images = hostile / "images"
    done = run("predict", "../m.ledl", ".", "--format", "csv", cwd=images)
    assert done.stdout.startswith("path,label,class_1")
    (hostile / "labels.csv").write_text(done.stdout, "utf-8")
    in_json = json.loads(run("predict", "../m.ledl", ".", "--format", "json", cwd=images).stdout)
    expected = {row["path"]: row["label"] for row in in_json}  # JSON has names as they are
    assert len(expected) == 21
    found = load_image_folder(images, labels=hostile / "labels.csv", decode=False)
    labels = [found.target_names[j] for j in found.target]
    read = {
        shown(Path(file).relative_to(images)): label
        for file, label in zip(found.filenames, labels, strict=True)
    }
    assert read == expected
    done = run("fit", ".", "-o", "../again.ledl", "--labels", "../labels.csv", *FAST, cwd=images)
    assert done.returncode == 0, done.stderr
    assert json.loads(run("info", hostile / "again.ledl", "--json").stdout)["labels"] == Counter(
        expected.values()
    )


def test_a_table_goes_to_a_spreadsheet_and_back(folder, tmp_path):
    photos = tmp_path / "Fotos"
    for name, new in zip(NAMES, ["Käse", "größer", "ёлка"], strict=True):
        shutil.copytree(folder / "known" / name, photos / new)
    assert run("fit", photos, "-o", tmp_path / "m.ledl", "--per-class", "6", *FAST).returncode == 0
    # A process of its own, whose terminal has another encoding.
    words = [*LEDL, "predict", "m.ledl", "Fotos", "--format", "csv"]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, env=environment, timeout=120)
    assert done.stdout.startswith("\ufeffpath,label".encode())  # so that Excel takes it for UTF-8
    table = pd.read_csv(io.BytesIO(done.stdout))
    assert table.columns[0] == "path"
    assert table.path[0] == "./Fotos/Käse/00.png"
    assert len(table) == 36
    # Edited: one label corrected, one deleted, a column added; saved as a spreadsheet does in Europe.
    table["note"] = "a; b"
    table.loc[0, "label"], table.loc[1, "label"] = "ёлка", None
    table.to_csv(tmp_path / "edited.csv", sep=";", index=False, encoding="utf-16", decimal=",")
    done = run("fit", "Fotos", "-o", "again.ledl", "--labels", "edited.csv", *FAST, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Labelled 35, unlabelled 1: these teach, too." in done.stderr
    assert "Labels are from edited.csv, not from folders: " in done.stderr
    record = read(tmp_path / "again.ledl").info
    assert Counter(record["labels"]) == Counter(table.label.dropna())
    assert dict(zip(record["files"], record["labels"], strict=True))["Käse/00.png"] == "ёлка"


def test_images_are_sorted_into_folders(folder, model, tmp_path):
    photos = tmp_path / "photos"
    shutil.copytree(folder / "known", photos / "a")
    shutil.copytree(folder / "others", photos / "b")
    (photos / "bad.png").write_bytes(b"not an image")
    words = ["predict", model, photos, "--reject", "0.1", "--format", "json", "--sort-into", photos / "sorted"]
    done = run(*words)
    assert done.returncode == 1  # because of bad.png
    answers = json.loads(done.stdout)
    labels = Counter(row["label"] for row in answers if "label" in row)
    assert labels["none of these"] > 0
    sorted_files = [path for path in (photos / "sorted").rglob("*") if path.is_file()]
    assert Counter(path.parent.name for path in sorted_files) == labels
    assert len(list(photos.rglob("*.png"))) == 2 * 48 + 1
    ends = done.stderr.splitlines()[-1]
    assert ends.startswith("Copied into folders in ")
    assert all(f"{n} {label}" in ends for label, n in labels.items())
    before = sorted(photos.rglob("*"))
    done = run(*words)
    assert json.loads(done.stdout) == answers  # what is in photos/sorted is not predicted again
    assert sorted(photos.rglob("*")) == before
    assert "48 of them were there already" in done.stderr
    assert "already): 48: " in done.stderr
    # The sorted folder, corrected by hand, is a folder to train on. The next run does not undo that.
    (photos / "sorted" / "new class").mkdir()
    wrong = [path for path in sorted_files if path.parent.name == "null"][:2]
    for image in wrong:
        image.rename(photos / "sorted" / "new class" / image.name)
    before = sorted(photos.rglob("*"))
    done = run(*words)
    assert json.loads(done.stdout) == answers
    assert sorted(photos.rglob("*")) == before
    assert "2 images lie in another folder there, perhaps moved by hand. They stay" in done.stderr
    assert f"again: {photos / 'sorted' / 'new class'}" in done.stderr
    done = run("fit", photos / "sorted", "-o", tmp_path / "m.ledl", *FAST)
    assert done.returncode == 0, done.stderr
    assert f"not a class): {labels['none of these']}: " in done.stderr


def test_an_image_in_two_given_folders_counts_once(folder, model):
    words = ["--labels", "folder", "--format", "csv"]
    once = run("predict", model, folder / "known", *words)
    twice = run("predict", model, folder / "known", folder / "known" / "null", *words)
    assert twice.stdout == once.stdout
    assert "Not used (given twice): 12: " in twice.stderr
    assert once.stderr.splitlines()[-1] in twice.stderr  # the accuracy


def test_a_sorted_folder_as_true_labels(folder, model, tmp_path):
    """Images of no class that are rejected are no hits among the others, and "unsure" is no label."""
    shutil.copytree(folder / "known", tmp_path / "sorted")
    shutil.copytree(folder / "others" / "sieben", tmp_path / "sorted" / "none of these")
    shutil.copytree(folder / "others" / "sieben", tmp_path / "sorted" / "Unsure")
    done = run("predict", model, tmp_path / "sorted", "--labels", "folder", "--reject", "0.2")
    assert done.returncode == 0, done.stderr
    right = float(re.search(r"([\d.]+) % of the other answers are right", done.stdout)[1])
    assert 0 < right <= 100
    assert "12 images have labels that the model does not know (none of these)" in done.stdout
    assert "'Unsure' is an answer of ledl predict, not a true label): 12" in done.stderr


def test_true_labels_of_folders_and_a_table_that_corrects_them(folder, tmp_path):
    """The command that `ledl fit` prints in the end tests against the labels that it was given."""
    photos = tmp_path / "-photos"
    for name in ("null", "eins [1]", "zwei"):
        shutil.copytree(folder / "known" / name, photos / name)
    swapped = sorted((photos / "null").iterdir())[:6]
    for image in swapped:
        image.rename(photos / "zwei" / f"moved {image.name}")
    rows = "".join(f"zwei/moved {image.name},null\n" for image in swapped)
    (tmp_path / "t.csv").write_text("path,label\n" + rows)
    words = ["--labels", "folder", "--labels", "t.csv", "--per-class", "6", *FAST]
    done = run("fit", "./-photos", "-o", "./-m.ledl", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    command = shlex.split(done.stdout.split("Next: ")[1])
    done = run(*command[1:], "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    truths = {Path(row["path"]).name: row["truth"] for row in json.loads(done.stdout)}
    assert {truth for name, truth in truths.items() if name.startswith("moved")} == {"null"}
    (tmp_path / "deep").mkdir()
    photos.rename(tmp_path / "deep" / "-photos")  # class folders count at any depth, as without a table
    table = (tmp_path / "t.csv").read_text().replace("zwei/", "-photos/zwei/")
    (tmp_path / "t.csv").write_text(f"{table}./m.png,null\n-photos/eins [1]/00.png,\n-photos/loose.png,zwei\n")
    for place in ("m.png", "deep/-photos/loose.png"):
        shutil.copy(folder / "known" / "null" / "00.png", tmp_path / place)
        Image.open(tmp_path / place).rotate(90).save(tmp_path / place)
    words = ["--labels", "folder", "--labels", "t.csv", "--sort-into", "sorted", "--sort-by", "move"]
    done = run("predict", "./-m.ledl", "deep", *words, "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {Path(row["path"]).name: row["truth"] for row in json.loads(done.stdout)}
    assert {truth for name, truth in found.items() if name.startswith("moved")} == {"null"}
    assert "zwei" in {truth for name, truth in found.items() if name.startswith("loose")}
    assert (tmp_path / "m.png").exists()  # a table cannot move what is elsewhere
    assert "in a table, but not in deep): 1: m.png" in done.stderr
    assert "no label in the table): 1:" in done.stderr
    flat = tmp_path / "flat"  # without class folders the table says it all
    flat.mkdir()
    shutil.copy(tmp_path / "m.png", flat)
    (flat / "t2.csv").write_text("./flat/m.png,null\n")
    done = run("predict", "./-m.ledl", "flat", "--labels", "folder", "--labels", "t2.csv", cwd=tmp_path)
    assert " (1 of 1)" in done.stdout or " (0 of 1)" in done.stdout
    (tmp_path / "sorted").rename(tmp_path / "-photos")
    done = run("predict", "./-m.ledl", *[str(photos)] * 2, "--labels", "t.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "is a table for one folder, but there are 2 paths" in done.stderr


def test_all_images_may_be_rejected(model, tmp_path):
    (tmp_path / "noise").mkdir()
    rng = np.random.default_rng(0)
    for i in range(5):
        Image.fromarray(rng.integers(0, 255, (8, 8), np.uint8)).save(tmp_path / "noise" / f"{i}.png")
    words = ["--labels", "folder", "--reject", "0.9", "--page", tmp_path / "page.html"]
    done = run("predict", model, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "5 of them were rejected" in done.stdout
    assert (tmp_path / "page.html").exists()


def test_images_that_are_sorted_need_another_folder(folder, model, tmp_path):
    shutil.copytree(folder / "known" / "null", tmp_path / "sorted" / "null")
    done = run("predict", model, "sorted", "--sort-into", "sorted", cwd=tmp_path)
    assert done.returncode == 2
    assert "All 12 images are in folders of sorted already. To sort them again, give another" in done.stderr
    shutil.copytree(folder / "known" / "zwei", tmp_path / "sorted" / "inbox")
    done = run("predict", model, "sorted", "--sort-into", "sorted", cwd=tmp_path)
    assert "To sort a folder there that is none of a class, give it as a path itself." in done.stderr
    done = run("predict", model, "sorted/inbox", "--sort-into", "sorted", "--sort-by", "move", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "sorted" / "inbox").iterdir()) == []


def test_images_that_an_earlier_run_has_moved_are_said_to_be_moved(folder, model, tmp_path):
    shutil.copytree(folder / "known" / "null", tmp_path / "new")
    files = sorted(f"new/{path.name}" for path in (tmp_path / "new").iterdir())
    words = ["--sort-into", "sorted", "--sort-by"]
    assert run("predict", model, "new", *words, "move", cwd=tmp_path).returncode == 0
    before = sorted(tmp_path.rglob("*"))
    for paths, how, reason in (
        (["new"], "move", "There are no images. An earlier run may have moved them: there are some in folders"),
        (files[:2], "move", f"2 of 2 paths are not there, such as {files[0]}. An earlier run may have moved"),
        (["new", files[0]], "move", f"1 of 2 paths are not there, such as {files[0]}. An earlier run"),
        (["new/other.png"], "move", "There is no file or folder new/other.png."),
        (["new"], "copy", "There are no images. Give image files"),
    ):
        done = run("predict", model, *paths, *words, how, cwd=tmp_path)
        assert done.returncode == 2
        assert reason in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("how", ["copy", "move"])
def test_a_table_has_the_mark_for_the_paths_that_it_prints(how, folder, model, tmp_path):
    shutil.copytree(folder / "known" / "null", tmp_path / "new")
    words = ["--sort-into", "sört", "--sort-by", how, "--format", "csv"]
    done = run("predict", model, "new", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ("sört" in done.stdout) == done.stdout.startswith(MARK) == (how == "move")


def test_images_below_a_probability_are_unsure(folder, tmp_path):
    files = sorted(map(str, (folder / "known" / "null").glob("*.png")))[:4]
    said = [
        Prediction(files[0], "null", probability=0.9),
        Prediction(files[1], "null", probability=0.59),
        Prediction(files[2], REJECTED, probability=0.1),
        Prediction(files[3], error="cannot be read"),
    ]
    sorter = Sorter(tmp_path / "out", ["null"])
    assert list(sort_answers(said, sorter, 0.6)) == said
    assert sorter.counts == {"null": 1, "unsure": 1, "none of these": 1}
    assert (tmp_path / "out" / "unsure" / "01.png").is_file()
    with pytest.raises(ValueError, match="no probabilities, which --unsure needs"):
        list(sort_answers([Prediction(files[0], "null")], sorter, 0.6))


def test_a_dataset_becomes_a_folder_of_images(tmp_path):
    out = tmp_path / "images"
    assert run("datasets", "digits", "-o", out).returncode == 0
    files = sorted(out.rglob("*.png"))
    digits = load_digits()
    assert len(files) == 1797
    for file in files[::300]:
        i = int(file.stem)
        assert file.parent.name == str(digits.target[i])
        np.testing.assert_allclose(np.asarray(Image.open(file)) * (16 / 255), digits.images[i], atol=0.04)
    for words, message in (
        (["digits", "-o", out], "not an empty folder"),
        (["digits"], "both"),
        (["faces", "-o", tmp_path / "f"], "no dataset"),
    ):
        done = run("datasets", *words)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())


def test_a_dataset_that_cannot_be_written_leaves_no_part(tmp_path, monkeypatch):
    real, n_saved = Image.Image.save, []

    def save(image, path):
        n_saved.append(path)
        if len(n_saved) == 500:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(image, path)

    monkeypatch.setattr(Image.Image, "save", save)
    done = run("datasets", "digits", "-o", tmp_path / "images")
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert list((tmp_path / "images").iterdir()) == []
    assert run("datasets", "digits", "-o", tmp_path / "images").returncode == 0


def test_one_labelled_image_has_an_accuracy(folder, model):
    trained = set(json.loads(run("info", model, "--json").stdout)["files"])
    files = sorted((folder / "known").rglob("*.png"))
    other = next(file for file in files if "/".join(file.parts[-2:]) not in trained)
    done = run("predict", model, other, "--labels", "folder")
    assert "Accuracy:" in done.stdout
    assert "of 1)" in done.stdout
