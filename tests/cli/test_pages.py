"""Pages of many images: what they show, that they stay small, and that names cannot become HTML."""

import base64
import csv
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.commands import FAST, run
from helpers.digits import NAMES
from ledl.cli import _pages
from ledl.cli._work import Results
from ledl.image_models import Prediction, open_image_model
from ledl.images import REJECTED
from ledl.persistence import read

EVIL = [
    "<script>alert(1)<",  # a slash would be a folder
    "\" onerror='alert(2)' x=\"",
    "{{ 7 * 7 }}<img src=x>",
]


class Page(HTMLParser):
    """List the elements of a page with their attributes, and its text."""

    def __init__(self, file):
        super().__init__()
        self.elements, self.words = [], []
        self.html = Path(file).read_text("utf-8")
        self.feed(self.html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag, **attrs):
        return [has for name, has in self.elements if name == tag and attrs.items() <= has.items()]

    def pictures(self):
        uris = [has["src"] for has in self.all("img")]
        return [Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))) for uri in uris]


def rows_of(done):
    return list(csv.DictReader(io.StringIO(done.stdout)))


def test_the_least_sure_images_come_first(folder, model, tmp_path):
    words = ["predict", model, folder / "known", folder / "others", "--format"]
    rows = rows_of(run(*words, "csv"))
    expected = sorted(rows, key=lambda row: float(row["probability_1"]))
    assert len(expected) > 40
    done = run(*words, "csv", "--review", "7")
    assert rows_of(done) == expected[:7]
    assert rows_of(run(*words, "csv", "--review", "1000")) == expected
    in_json = json.loads(run(*words, "json", "--review", "7").stdout)
    assert [row["probability"] for row in in_json] == sorted(row["probability"] for row in in_json)
    assert len(run(*words, "table", "--review", "7").stdout.splitlines()) == 7
    # Without probabilities, by the lead of the best score.
    assert run("fit", folder / "known", "-o", tmp_path / "m.ledl", "--per-class", "4", *FAST).returncode == 0
    words = ["predict", tmp_path / "m.ledl", folder / "known", "--format", "csv"]
    leads = [float(row["score_1"]) - float(row["score_2"]) for row in rows_of(run(*words, "--review", "9"))]
    every = [float(row["score_1"]) - float(row["score_2"]) for row in rows_of(run(*words))]
    np.testing.assert_allclose(leads, sorted(every)[:9], atol=1e-5)


def test_a_page_shows_all_results(folder, model, tmp_path):
    shutil.copytree(folder, tmp_path / "images", ignore=shutil.ignore_patterns("*.ledl"))
    (tmp_path / "images" / "known" / "broken.png").write_bytes(b"no image")
    words = ["predict", model, "images", "--reject", "0.1", "--review", "5", "--page", "p.html"]
    done = run(*words, "--format", "csv", cwd=tmp_path)
    assert done.returncode == 1  # one could not be read
    assert f"Page: {tmp_path / 'p.html'}\n" in done.stderr
    page, everything = Page(tmp_path / "p.html"), rows_of(run(*words[:5], "--format", "csv", cwd=tmp_path))
    assert "48 images in 3 classes" in page.text
    assert "95 % interval" in page.text
    assert "Could not be read: 1" in page.text
    assert "images/known/broken.png is not an image" in page.text
    for name in [*NAMES, REJECTED]:
        n = sum(row["label"] == name for row in everything)
        assert re.search(rf"{re.escape(name)} {n}( \d of 6)?\b", page.text), name
    # The list that was printed is the list of the page, and its paths are those of the table.
    rows = rows_of(done)
    choices = page.all("select")
    assert [has["data-path"] for has in choices] == [row["path"] for row in rows]
    assert [has["data-label"] for has in choices] == [row["label"] for row in rows]
    assert 5 + 4 + 3 < len(page.pictures()) <= 5 + 4 * 4
    assert {picture.size for picture in page.pictures()} == {(8, 8)}
    assert "answers and true labels" not in page.text.lower()
    # Nothing is loaded from elsewhere.
    assert not page.all("link")
    assert all(has["src"].startswith("data:image/jpeg;base64,") for has in page.all("img"))
    assert not re.search(r"https?://", page.html)


def test_a_page_compares_with_true_labels(folder, model, tmp_path):
    out, matrix = tmp_path / "p.html", tmp_path / "c.csv"
    words = ["--labels", "folder", "--page", out, "--confusion", matrix]
    done = run("predict", model, folder / "known", *words)
    page = Page(out)
    accuracy = next(line for line in done.stdout.splitlines() if line.startswith("Accuracy"))
    assert accuracy.removeprefix("Accuracy: ").rstrip(".") in page.text
    for row in list(csv.reader(matrix.read_text().splitlines()))[1:]:
        assert " ".join(cell for cell in row if cell != "0") in page.text
    wrong = done.stdout.count("wrong, should be")
    assert page.text.split("Examples")[0].count("wrong: it is") == wrong


def test_an_image_of_an_unknown_class_is_rejected_rightly(folder, model, tmp_path):
    out = tmp_path / "p.html"
    words = ["--labels", "folder", "--format", "json"]
    both = [folder / "known", folder / "others"]
    rows = json.loads(run("predict", model, *both, *words, "--reject", "0.5", "--page", out).stdout)
    rejected = [row for row in rows if row["truth"] == "sieben" and row["label"] == "none of these"]
    wrong = json.loads(run("predict", model, *both, *words, "--reject", "0.5", "--mistakes").stdout)
    assert rejected
    assert wrong == [row for row in rows if row["label"] != row["truth"] and row not in rejected]
    assert any(row["truth"] == "sieben" for row in wrong) == (len(rejected) < 12)
    said = run("predict", model, *both, "--labels", "folder", "--reject", "0.5").stdout
    assert said.count("wrong, should be") == len(wrong)
    page = Page(out)
    assert page.text.split("Examples")[0].count("wrong: it is sieben") == 12 - len(rejected)
    assert f'<td class="right">{len(rejected)}</td>' in page.html


def test_a_page_of_many_images_is_small(folder, model):
    found = open_image_model(model)
    classes = [f"class {i}" for i in range(100)]
    results = Results(_pages.N_REVIEW, _pages.n_examples(classes))
    path = str(folder / "known" / "null" / "00.png")
    rng = np.random.default_rng(0)

    def answers():
        for i, sure in enumerate(rng.random(20_000)):
            label = classes[i % 100]
            yield Prediction(path, label, ((label, sure), ("x", 0.0)), probability=sure)

    for _ in results.collect(answers()):
        pass
    assert results.counts.total() == 20_000
    sures = [said.probability for said in results.review]
    assert sures == sorted(sures)
    assert sures[-1] < 0.01
    assert min(said.probability for best in results.examples.values() for said in best) > 0.9
    html = _pages.results_page(found, results, model, classes)
    assert html.count("<img") == 40 + 2 * 100
    assert len(html) < 1e6


def test_labels_that_look_wrong_are_on_a_page(folder, tmp_path):
    shutil.copytree(folder / "known", tmp_path / "known")
    (tmp_path / "known" / NAMES[0] / "00.png").rename(tmp_path / "known" / NAMES[1] / "planted.png")
    words = ["fit", "known", "-o", "m.ledl", "--size", "8", "--no-thumbnails", "--page", "p.html"]
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = Page(tmp_path / "p.html")
    planted = f"{NAMES[1]}/planted.png"
    assert f"Look again: {planted} is labelled {NAMES[1]}, but looks like {NAMES[0]}" in done.stdout
    first = page.text.split("Labels that look wrong")[1].split(".png")[0]
    assert re.search(rf"{NAMES[1]} \d% looks like {re.escape(NAMES[0])} \d+% {NAMES[1]}/planted$", first)
    assert "36 training images in 3 classes" in page.text
    assert page.pictures()  # though the model has none
    assert "none" in run("info", tmp_path / "m.ledl").stdout.split("Thumbnails:")[1].split()[0]


def test_nearly_equal_training_images_promise_nothing(folder, tmp_path):
    """Frames of a film know each other, also if one of them is there twice: pages and `ledl info` say so."""
    for file in (folder / "known").glob("*/0[0-3].png"):
        (tmp_path / "frames" / file.parent.name).mkdir(parents=True, exist_ok=True)
        pixels = np.asarray(Image.open(file))
        for k in range(3):
            frame = np.where(np.arange(pixels.size).reshape(pixels.shape) == k, 9, pixels)
            Image.fromarray(frame.astype(np.uint8)).save(
                tmp_path / "frames" / file.parent.name / f"{k}{file.name}"
            )
    shutil.copy(tmp_path / "frames" / NAMES[0] / "000.png", tmp_path / "frames" / NAMES[0] / "copy.png")
    done = run("fit", "frames", "-o", "m.ledl", *FAST, "--page", "fit.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Copies of other images with the same label: 1, which are left out" in done.stderr
    assert "36 training images are nearly equal to others" in done.stdout
    run("predict", "m.ledl", folder / "known", "--page", "predict.html", cwd=tmp_path)
    for page in ("fit.html", "predict.html"):
        text = Page(tmp_path / page).text
        assert "Expect less for new images that differ more: 36 of the training images are nearly equal" in text
        assert "differ from the counts" not in text  # nothing was chosen
    assert "36 of these are nearly equal" in run("info", tmp_path / "m.ledl").stdout.replace("\n", " ")


@pytest.mark.parametrize("method", ["crc", "ledl-cv"])
def test_a_page_says_that_a_class_with_one_image_was_not_tested(folder, tmp_path, method):
    shutil.copytree(folder / "known", tmp_path / "known")
    (tmp_path / "known" / "lonely").mkdir()
    shutil.copy(folder / "others" / "sieben" / "00.png", tmp_path / "known" / "lonely")
    words = ["--size", "8", "--method", method, "--page", "p.html"]
    done = run("fit", "known", "-o", "m.ledl", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = Page(tmp_path / "p.html").text
    assert "1 class has one image, and could not be tested: expect less for this one." in text
    assert ("allows for luck in the choice of settings" in text) == (method == "ledl-cv")


def test_names_cannot_become_html(folder, tmp_path):
    for name, evil in zip(NAMES, EVIL, strict=True):
        place = tmp_path / "images" / evil
        place.mkdir(parents=True)
        for i, file in enumerate(sorted((folder / "known" / name).iterdir())[:9]):
            shutil.copy(file, place / f"{i}{EVIL[i % 3]}.png")
        (place / f"{evil}.jpg").write_bytes(b"unreadable")
    fit = ["fit", "images", "-o", "m.ledl", "--per-class", "5", "--skip-unreadable", "--page", "fit.html"]
    done = run(*fit, *FAST, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ([], ["--labels", "folder"], ["--reject", "0.2"]):
        done = run("predict", "m.ledl", "images", "--page", "p.html", *words, cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        for file in ("p.html", "fit.html"):
            page = Page(tmp_path / file)
            assert len(page.all("script")) == (file == "p.html")  # our own
            assert page.html.count("<script") == page.html.count("</script") == (file == "p.html")
            assert not any(name.startswith("on") for _, has in page.elements for name in has)
            assert all(has["src"].startswith("data:") for has in page.all("img"))
            assert "49" not in {has.get("alt") for has in page.all("img")}
            for evil in EVIL:
                assert " ".join(evil.split()) in page.text


@pytest.mark.parametrize("how", ["move", "copy"])
def test_sorted_images_are_on_the_page_and_in_the_table(folder, model, tmp_path, how):
    shutil.copytree(folder / "known" / "null", tmp_path / "new")
    words = ["--sort-into", "sorted", "--sort-by", how, "--page", "p.html", "--format", "csv"]
    done = run("predict", model, "new", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    paths = [row["path"] for row in rows_of(done)]
    assert all(path.startswith("./sorted/" if how == "move" else "./new/") for path in paths)
    assert all((tmp_path / path).is_file() for path in paths)
    page = Page(tmp_path / "p.html")
    assert len(page.pictures()) == len(page.all("div", **{"class": "picture"})) > 12


def test_pictures_are_upright_and_may_be_missing(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    Image.new("RGB", (400, 200), "red").save(tmp_path / "a.jpg", exif=exif)
    ranking = (("cat", 0.7), ("dog", 0.2))
    card = _pages.card(Prediction(str(tmp_path / "a.jpg"), "cat", ranking, probability=0.7), 10**6)
    content = base64.b64decode(card.picture.uri.split(",")[1])
    assert Image.open(io.BytesIO(content)).size == (96, 192)
    assert (card.answer, card.sure, card.note, card.warning) == ("cat", "70%", "or dog 20%", "")
    gone = _pages.card(Prediction("gone.jpg", REJECTED, ranking, truth="dog"), 10**6)
    assert (gone.picture, gone.sure, gone.note, gone.warning) == (
        None,
        "",
        "most like cat 0.70",
        "wrong: it is dog",
    )


def test_answers_are_corrected_and_train_a_better_model(folder, tmp_path):
    digits = tmp_path / "digits"
    assert run("datasets", "digits", "-o", digits).returncode == 0
    old, new = tmp_path / "old", tmp_path / "new"
    for name in "0123456789":
        for i, file in enumerate(sorted((digits / name).iterdir())[:40]):
            place = (
                old / name if i < 3 else new / f"batch {i % 4}"
            )  # the new ones are in folders that mean nothing
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place / f"{name} {file.name}")
    fit = ["fit", "old", "--size", "8", "-o"]
    assert run(*fit, "first.ledl", cwd=tmp_path).returncode == 0
    done = run("predict", "first.ledl", "new", "--review", "60", "--format", "csv", cwd=tmp_path)
    rows = rows_of(done)
    for row in rows:
        row["label"] = Path(row["path"]).name[0]  # corrected by hand
    with (tmp_path / "corrected.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0], delimiter=";")
        table.writeheader()
        table.writerows(rows)
    done = run(*fit, "second.ledl", "--labels", "corrected.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "together: --labels folder --labels corrected.csv" in done.stderr
    done = run(*fit, "second.ledl", "--labels", "folder", "--labels", "corrected.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "0 labels of folders changed, 60 images added." in done.stderr
    assert "90 images" in done.stdout
    note = "Note:       The accuracy counts the images that the table adds, too."
    assert note in done.stdout
    Path(tmp_path / "same.csv").write_text(f"path,label\n{next((old / '3').iterdir())},4\n")
    done = run(*fit, "third.ledl", "--labels", "folder", "--labels", "same.csv", cwd=tmp_path)
    assert "1 labels of folders changed, 0 images added." in done.stderr
    assert note not in done.stdout
    right = []
    for model in (tmp_path / "first.ledl", tmp_path / "second.ledl"):  # on digits that neither has seen
        unseen = sorted(digits.glob("*/01[0-7]*"))
        answers = rows_of(run("predict", model, *unseen, "--labels", "folder", "--format", "csv"))
        right.append(np.mean([row["label"] == row["truth"] for row in answers]))
    assert len(answers) > 700
    assert right[1] > right[0] + 0.03
    # Of images elsewhere only the name and its folder are recorded: the model goes to other people.
    assert all(name.count("/") == 1 for name in read(tmp_path / "second.ledl").info["files"])
