"""Training on a folder, labels, accuracy, facts: as a person or a program meets them."""

import contextlib
import csv
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

import ledl
from ledl import image_models
from ledl.cli import app
from ledl.datasets import few_shot_splits
from ledl.features import PixelFeatures
from ledl.image_models import (
    Record,
    facts,
    fit_folder,
    image_model,
    open_image_model,
    predict_files,
    standard_error,
    trained_on,
)
from ledl.persistence import read

Image = pytest.importorskip("PIL.Image")

LEDL = [sys.executable, "-m", "ledl"]
NAMES = ["eins [1]", "null", "zwei"]  # brackets are no markup


ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1", "LEDL_DATA": "/nowhere"}


def run(*words, cwd=".", env=()):
    """A command in this process, which has paid for its imports."""
    with contextlib.chdir(cwd), warnings.catch_warnings():
        warnings.simplefilter("default")  # as users have them, not as pytest does
        done = CliRunner().invoke(app, [str(word) for word in words], env={**ENVIRONMENT, **dict(env)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr)


def run_apart(*words, **env):
    """A command in a process of its own, for what depends on it."""
    environment = {**os.environ, **ENVIRONMENT, **env}
    return subprocess.run(
        [*LEDL, *map(str, words)], capture_output=True, text=True, timeout=120, env=environment
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits as images: twelve of each of three classes, and a fourth class apart."""
    root = tmp_path_factory.mktemp("digits")
    X, y = load_digits(return_X_y=True)
    for digit, name in ((1, NAMES[0]), (0, NAMES[1]), (2, NAMES[2]), (7, "sieben")):
        place = root / ("others" if name == "sieben" else "known") / name
        place.mkdir(parents=True)
        for i, x in enumerate(X[y == digit][:12]):
            Image.fromarray(np.uint8(x.reshape(8, 8) * 15)).save(place / f"{i:02d}.png")
    return root


@pytest.fixture(scope="module")
def model(folder):
    path = folder / "model.ledl"
    done = run("fit", folder / "known", "-o", path, "--size", "8", "--per-class", "6", "--seed", "3")
    assert done.returncode == 0, done.stderr
    return path


def test_fit_says_what_it_did_and_records_it(folder, model):
    path = folder / "again.ledl"
    done = run("fit", folder / "known", "-o", path, "--size", "8", "--per-class", "6", "--seed", "3")
    told = " ".join(done.stdout.split())
    for words in ("LEDL", "8 x 8 pixels", "18 images, 6 of each class, drawn with seed 3", "5-fold", str(path)):
        assert words in told
    facts = json.loads(run("info", path, "--json").stdout)
    files = [f"{name}/{i:02d}.png" for name in NAMES for i in range(12)]
    drawn, _ = next(few_shot_splits(np.repeat(np.arange(3), 12), n_per_class=6, seeds=[3]))
    assert facts["files"] == [files[i] for i in drawn]
    assert facts["labels"] == dict.fromkeys(NAMES, 6)
    assert "18 images" in run("info", path).stdout


def test_the_accuracy_in_cross_validation_is_that_of_models_that_have_not_seen_an_image(folder, model):
    stored = read(model)
    truth, said = np.array(stored.info["labels"]), stored.model[-1].cv_predictions_
    assert stored.info["cv_accuracy"] == np.mean(truth == said)
    images = [str(folder / "known" / name) for name in stored.info["files"]]
    # The labels that the command line gives are those of the model in Python.
    labels = ledl.load(model).predict(images)
    done = run("predict", model, *images, "--format", "csv")
    assert [row["label"] for row in csv.DictReader(io.StringIO(done.stdout))] == labels.tolist()


def test_labels_of_a_folder_skip_what_was_trained_on(folder, model):
    done = run("predict", model, folder / "known", "--labels", "folder", "--format", "json")
    rows = json.loads(done.stdout)
    assert [row["truth"] for row in rows] == [row["path"].split("/")[-2] for row in rows]
    trained = set(json.loads(run("info", model, "--json").stdout)["files"])
    assert len(rows) == 18
    assert not {"/".join(row["path"].split("/")[-2:]) for row in rows} & trained
    right = sum(row["label"] == row["path"].split("/")[-2] for row in rows)
    assert f"({right} of 18)" in done.stderr
    assert "Skipped 18 images" in done.stderr
    wrong = json.loads(
        run("predict", model, folder / "known", "--labels", "folder", "--format", "json", "--mistakes").stdout
    )
    assert wrong == [row for row in rows if row["label"] != row["truth"]]
    # Moved elsewhere, they are still known; with another content under the same name they are not.
    moved = folder / "moved"
    shutil.copytree(folder / "known", moved)
    first = sorted(trained)[0]
    Image.new("L", (8, 8), 200).save(moved / first)
    done = run("predict", model, moved, "--labels", "folder", "--format", "json")
    assert "Skipped 17 images" in done.stderr
    shutil.copy(folder / "known" / sorted(trained)[1], moved / "null" / "copy.png")
    done = run("predict", model, moved, "--labels", "folder", "--format", "json")
    assert "Copies of training images among the others: 1." in done.stderr


def test_the_confusion_matrix_adds_up(folder, model, tmp_path):
    out = tmp_path / "confusion.csv"
    done = run("predict", model, folder / "known", "--labels", "folder", "--confusion", out)
    assert done.returncode == 0, done.stderr
    head, *rows = list(csv.reader(out.read_text("utf-8").splitlines()))
    assert head == ["truth", *NAMES]
    assert [sum(map(int, row[1:])) for row in rows] == [6, 6, 6]
    assert "Confusion matrix" in done.stdout
    assert "eins [1]" in done.stdout


def test_images_of_no_class_are_rejected(folder, model):
    words = [folder / "known", folder / "others", "--labels", "folder"]
    told = run("predict", model, *words, "--reject", "0.1").stdout
    assert "12 images are in folders that are no class of the model (sieben)" in told
    n_rejected = int(told.split("(sieben); ")[1].split()[0])
    assert n_rejected >= 6
    assert "they count for nothing" in run("predict", model, *words).stdout


def test_formats_agree(folder, model):
    paths = [folder / "known" / "null" / "00.png", folder / "others" / "sieben" / "01.png"]
    rows = json.loads(run("predict", model, *paths, "--format", "json", "--top", "2", "--reject", "0.2").stdout)
    table = list(csv.DictReader(io.StringIO(
        run("predict", model, *paths, "--format", "csv", "--top", "2", "--reject", "0.2").stdout
    )))  # fmt: skip
    for row, line in zip(rows, table, strict=True):
        assert row["label"] == line["label"]
        assert [entry["label"] for entry in row["ranking"]] == [line["class_1"], line["class_2"]]
        np.testing.assert_allclose(row["ranking"][0]["score"], float(line["score_1"]), rtol=1e-5)
        np.testing.assert_allclose(row["p_value"], float(line["p_value"]), rtol=1e-3)
    assert rows[0]["label"] in run("predict", model, *paths).stdout


def test_what_is_no_image_by_its_name_is_told(folder, model, tmp_path):
    mixed = tmp_path / "mixed"
    shutil.copytree(folder / "known", mixed)
    for name in ("a.HEIC", "b.heic", "notes.txt", ".hidden"):
        (mixed / "null" / name).write_bytes(b"")
    told = "Not looked at, for their endings: 2 .heic, 1 .txt."
    assert told in run("predict", model, mixed).stderr
    assert told in run("fit", mixed, "-o", tmp_path / "m.ledl", "--size", "8").stderr


def test_a_page_says_why(folder, model, tmp_path):
    out = tmp_path / "why.html"
    image = folder / "known" / "null" / "00.png"
    done = run("explain", model, image, "-o", out, "--reject", "0.1")
    assert done.returncode == 0, done.stderr
    assert "null" in done.stdout.splitlines()[0]
    assert "/0" in done.stdout.split("nearest training samples:")[1]  # names of files
    page = out.read_text("utf-8")
    assert page.count("data:image/jpeg") >= 5  # thumbnails
    assert "eins [1]" in page
    done = run("fit", folder / "known", "-o", tmp_path / "lda.ledl", "--size", "8", "--method", "lda")
    done = run("explain", tmp_path / "lda.ledl", image, "-o", tmp_path / "no.html")
    assert done.returncode == 2
    assert "LDA, shrinkage, has no atoms" in done.stderr
    assert not (tmp_path / "no.html").exists()


def test_unreadable_images_are_listed_and_the_exit_status_says_so(folder, model, tmp_path):
    bad = tmp_path / "bad [x].png"
    bad.write_bytes(b"no image")
    good = folder / "known" / "null" / "00.png"
    done = run("predict", model, bad, good, "--format", "json")
    assert done.returncode == 1
    assert "error" in json.loads(done.stdout)[0]
    assert "label" in json.loads(done.stdout)[1]
    assert str(bad) in done.stderr
    assert run("predict", model, good).returncode == 0
    assert run("predict", model, bad).returncode == 1
    damaged = tmp_path / "damaged"
    shutil.copytree(folder / "known", damaged)
    (damaged / "null" / "00.png").write_bytes(b"no image")
    done = run("fit", damaged, "-o", tmp_path / "m.ledl", "--size", "8")
    assert done.returncode == 0
    assert "Left out:" in done.stdout
    assert "null/00.png" in done.stdout


def test_a_network_and_its_identity_travel(folder, tmp_path):
    pytest.importorskip("onnxruntime")
    from helpers.networks import write_model

    network = tmp_path / "network.onnx"
    write_model(network, n_features=16)
    out = tmp_path / "m.ledl"
    done = run("fit", folder / "known", "-o", out, "--features", network)
    assert done.returncode == 2
    assert "--preprocessing" in done.stderr
    options = ["--features", "network.onnx", "--preprocessing", "imagenet", "--method", "crc"]
    done = run("fit", folder / "known", "-o", out, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    image = folder / "known" / "null" / "00.png"
    assert run("predict", out, image).returncode == 0
    moved = network.rename(tmp_path / "moved.onnx")
    done = run("predict", out, image)
    assert done.returncode == 2
    assert "--features" in done.stderr
    assert run("predict", out, image, "--features", moved).returncode == 0
    write_model(network, n_features=8)
    done = run("predict", out, image)
    assert done.returncode == 2
    assert "sha256" in done.stderr


def test_settings_by_cross_validation_and_methods_of_scikit_learn(folder, tmp_path):
    out = tmp_path / "m.ledl"
    done = run("fit", folder / "known", "-o", out, "--size", "8", "--select", "cv", "--method", "crc")
    assert done.returncode == 0, done.stderr
    assert "alpha=" in done.stdout
    assert "chosen on the same images" in done.stdout
    done = run("fit", folder / "known", "-o", out, "--size", "8", "--method", "lda", "--no-thumbnails")
    assert done.returncode == 0, done.stderr
    image = folder / "known" / "null" / "00.png"
    assert "null" in run("predict", out, image).stdout
    done = run("predict", out, image, "--reject", "0.1")
    assert done.returncode == 2
    assert "a method with atoms" in done.stderr
    assert "none" in run("info", out).stdout.split("Thumbnails:")[1].split()[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "nothing", "-o", "m.ledl"], "There is no folder"),
        (["fit", "known", "-o", "known"], "is a folder"),
        (["fit", "known", "-o", "no/m.ledl"], "Make it first"),
        (["fit", "known", "-o", "m.ledl", "--per-class", "13"], "--per-class 13 is more than the 12 images"),
        (["fit", "model.ledl", "-o", "m.ledl"], "is a file"),
        (["fit", "known", "-o", "m.ledl", "--method", "svm"], "crc-regularized"),
        (["fit", "known", "-o", "m.ledl", "--features", "no.onnx"], "There is no model"),
        (["fit", "known", "-o", "m.ledl", "--per-class", "1", "--select", "cv"], "two images"),
        (["fit", "others", "-o", "m.ledl"], "one class only"),
        (["fit", "known/null", "-o", "m.ledl"], "no folders"),
        (["predict", "known/null/00.png", "known"], "no model file"),
        (["predict", "no.ledl", "known"], "no.ledl is not there"),
        (["predict", "known", "model.ledl"], "The model comes first"),
        (["predict", "model.ledl", "known", "--mistakes"], "need --labels"),
        (["predict", "model.ledl", "known", "others", "--labels", "t.csv"], "for one folder"),
        (["predict", "model.ledl", "known", "--reject", "0.01"], "--reject 0.053 or more"),
        (["fit", "known", "-o", "m.ledl", "--size", "5000"], "4096"),
        (["fit", "known", "-o", "/proc/m.ledl"], "Nothing can be written"),
        (["fit", "known", "-o", "/dev/null"], "no plain file"),
        (["fit", "known", "-o", "m.ledl", "--features", "pixels", "--cache", "c"], "--cache c is for"),
        (["fit", "known", "-o", "m.ledl", "--features", "n.onnx", "--size", "8"], "--size 8 is for"),
        (
            ["fit", "known", "-o", "m.ledl", "--features", "n.onnx", "--preprocessing", "p.json"],
            "caffe or imagenet",
        ),
        (["explain", "model.ledl", "known/null/00.png", "-o", "m.pdf"], ".html"),
        (["explain", "model.ledl", "known/null/00.png", "-o", "known"], "known/why.html"),
        (["predict", "model.ledl", "no.png"], "There is no file or folder"),
        (["predict", "model.ledl", "empty"], "no images"),
        (["predict", "model.ledl", "known", "--confusion", "c.csv"], "need --labels"),
        (["predict", "model.ledl", "known", "--features", "n.onnx"], "no network"),
        (["explain", "model.ledl", "no.png", "-o", "m.html"], "no.png"),
        (["info", "known/null/00.png"], "no model file"),
        (["predict", "rows.ledl", "known"], "does not take images"),
        (["predict", "bare.ledl", "known"], "does not take images"),
    ],
)
def test_errors_say_what_to_do_and_write_nothing(folder, model, words, message):
    (folder / "empty").mkdir(exist_ok=True)
    rows = ledl.CRCClassifier().fit(np.eye(4), [0, 0, 1, 1])
    ledl.save(rows, folder / "rows.ledl")
    ledl.save(make_pipeline(PixelFeatures(size=8), PCA(2)), folder / "bare.ledl")
    assert run("info", folder / "bare.ledl").returncode == 0
    before = sorted(folder.rglob("*"))
    done = run(*words, cwd=folder)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split()).replace("│ ", "")
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before


def test_what_was_trained_on_is_known_by_its_content(tmp_path):
    files = {}
    for name, value in {"p/cat/0": 1, "q/cat/0": 2, "p/dog/0": 3, "p/dog/1": 3, "p/fox/0": 4}.items():
        file = tmp_path / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), value).save(file)
        files[name] = file
    digests = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    known = [
        ("cat/0.png", digests["p/cat/0"]),
        ("cat/0.png", digests["q/cat/0"]),
        ("dog/1.png", digests["p/dog/1"]),
    ]
    seen, n_copies = trained_on(known, list(files.values()))
    assert dict(zip(files, seen, strict=True)) == {
        "p/cat/0": True, "q/cat/0": True, "p/dog/0": False, "p/dog/1": True, "p/fox/0": False,
    }  # fmt: skip
    assert n_copies == 1
    renamed = files["p/fox/0"].rename(tmp_path / "other.png")
    assert trained_on([("fox/0.png", digests["p/fox/0"])], [renamed]) == ([True], 0)


def test_links_and_dots_change_nothing(folder, model, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in NAMES:
        (linked / name).symlink_to(folder / "known" / name)
    (linked / "circle").symlink_to(linked)
    plain = run("predict", model, folder / "known", "--labels", "folder").stdout
    accuracy = next(line for line in plain.splitlines() if line.startswith("Accuracy"))
    assert accuracy in run("predict", model, linked, "--labels", "folder").stdout
    deep = folder / "known" / "null" / "deep"
    deep.mkdir(exist_ok=True)
    done = run("predict", model, "..", "--labels", "folder", cwd=deep)
    assert "(6 of 6)" in done.stdout


def test_a_table_of_labels_serves_both(folder, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    lines = ["filename,label"]
    for name in NAMES:
        for file in (folder / "known" / name).glob("*.png"):
            shutil.copy(file, flat / f"{name}-{file.name}")
            lines.append(f"{name}-{file.name},{name}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    out = tmp_path / "m.ledl"
    done = run("fit", flat, "-o", out, "--labels", tmp_path / "labels.csv", "--size", "8", "--per-class", "6")
    assert f"--labels {tmp_path / 'labels.csv'}" in done.stdout
    flat = flat.rename(tmp_path / "renamed")
    done = run("predict", out, flat, "--labels", tmp_path / "labels.csv")
    assert "Skipped 18 images" in done.stderr
    assert " of 18)" in done.stdout
    done = run("fit", folder / "known", "-o", out, "--size", "8")
    assert (
        "trained on all of these images" in run("predict", out, folder / "known", "--labels", "folder").stderr
    )


def test_thumbnails_are_those_of_their_images(folder, model):
    info = read(model).info
    for name, picture in zip(info["files"], info["thumbnails"], strict=True):
        small = np.asarray(Image.open(io.BytesIO(picture.tobytes())).convert("L"), dtype=float)
        with Image.open(folder / "known" / name) as image:
            np.testing.assert_allclose(small, np.asarray(image, dtype=float), atol=40)


def test_many_images_are_told_of_a_faster_way(folder, monkeypatch):
    monkeypatch.setattr(image_models, "MANY_IMAGES", 3)
    for method, expected in (("ledl-cv", True), ("ledl", False)):
        told = []
        fit_folder(folder / "known", features="pixels", size=8, method=method, tell=told.append)
        assert any("--method ledl trains once" in text for text in told) == expected


def test_auto_takes_the_better_features_and_says_so(folder, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    from helpers.networks import write_model

    write_model(tmp_path / "resnet50_pool5.onnx", n_features=2, monkeypatch=monkeypatch)
    monkeypatch.setenv("LEDL_DATA", str(tmp_path))
    told = []
    trained = fit_folder(folder / "known", size=8, tell=told.append)
    assert isinstance(trained.model[0], PixelFeatures)  # the network's mean colours tell nothing of digits
    assert trained.record.chosen_features
    assert "too high, since settings and features were chosen" in facts(trained)["accuracy"]
    assert "resnet50_pool5.onnx" in told[-1]
    trained = fit_folder(folder / "known", size=8, per_class=1)
    assert not trained.record.chosen_features


def test_two_classes_and_steps_between(folder, tmp_path):
    two = tmp_path / "two"
    for name in NAMES[:2]:
        shutil.copytree(folder / "known" / name, two / name)
    files = sorted(two.rglob("*.png"))
    labels = [file.parent.name for file in files]
    for classifier in (ledl.CRCClassifier(), LogisticRegression(C=1e3), LinearSVC()):
        model = make_pipeline(PixelFeatures(size=8), StandardScaler(), classifier).fit(files, labels)
        found = list(predict_files(image_model(model, Record()), files))
        assert [one.label for one in found] == model.predict(files).tolist()
        assert [one.label for one in found] == labels
        score = model.decision_function(files)[0]
        first = dict(found[0].ranking)
        np.testing.assert_allclose(np.sign(first[model.classes_[1]] - first[model.classes_[0]]), np.sign(score))


def test_records_that_were_tampered_with_are_refused(folder, model, tmp_path):
    stored, image = read(model), folder / "known" / "null" / "00.png"
    changed = {"files": {f"f{i}": 1 for i in range(18)}}
    ledl.save(stored.model, tmp_path / "t.ledl", info={**stored.info, **changed})
    for command, *words in (["info"], ["predict", image], ["explain", image, "-o", "e.html"]):
        done = run(command, tmp_path / "t.ledl", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert "not what ledl fit writes" in done.stderr
    for changed in (
        {"labels": ["x"] * 17},
        {"thumbnails": [np.zeros(3)] * 18},
        {"skipped": [["a"]]},
        {"settings": [1]},
        {"cv_accuracy": 7.0},
        {"files": np.zeros(18)},
        {"made": 5},
    ):
        with pytest.raises(ledl.ModelFileError):
            Record.from_info({**stored.info, **changed})
    ledl.save(stored.model, tmp_path / "t.ledl", info=[1, 2])  # no record at all
    assert open_image_model(tmp_path / "t.ledl").record == Record()


def test_names_do_not_command_the_terminal(folder, tmp_path):
    odd = tmp_path / "odd"
    for name, new in zip(NAMES, ["\x1b[31mred", "b\xe9", "c"], strict=True):
        shutil.copytree(folder / "known" / name, odd / new)
    out = tmp_path / "m.ledl"
    assert run("fit", odd, "-o", out, "--size", "8", "--per-class", "6").returncode == 0
    for done in (run("info", out), run("predict", out, odd, "--labels", "folder")):
        assert done.returncode == 0
        assert "\x1b" not in done.stdout
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = run_apart("predict", out, odd, "--labels", "folder", **ascii_only)
    assert done.returncode == 0, done.stderr
    assert "Accuracy" in done.stdout


def test_the_standard_error_is_that_of_agresti_and_coull():
    np.testing.assert_allclose(standard_error(0.5, 96), np.sqrt(0.25 / 100))
    np.testing.assert_allclose(standard_error(1.0, 16), np.sqrt(0.9 * 0.1 / 20))


def test_one_image_of_a_class_is_enough_to_predict(folder, tmp_path):
    out = tmp_path / "m.ledl"
    done = run("fit", folder / "known", "-o", out, "--size", "8", "--per-class", "1")
    assert done.returncode == 0, done.stderr
    assert "not known" in done.stdout
    assert run("predict", out, folder / "known" / "null" / "00.png").returncode == 0


def test_the_shell_completes_commands_methods_and_datasets():
    for words, expected in (
        ("ledl pr", "predict"),
        ("ledl fit photos --method lck", "lcksvd"),
        ("ledl reproduce ya", "yaleb"),
        ("ledl datasets us", "usps"),
    ):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_LEDL_COMPLETE": "complete_bash"}
        assert expected in run_apart(**asked).stdout.split()


def test_datasets_are_listed(tmp_path):
    done = run("datasets", env={"LEDL_DATA": str(tmp_path)})
    assert done.returncode == 0
    for word in ("digits", "caltech101_pyramid", "ask", str(tmp_path)):
        assert word in done.stdout


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


def test_who_stops_reading_hears_no_complaint(folder, model):
    words = [*LEDL, "predict", str(model), *[str(folder / "known")] * 30, "--format", "csv"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode != 0


def test_ctrl_c_ends_cleanly(folder, model, tmp_path):
    process = subprocess.Popen(
        [*LEDL, "predict", str(model), *[str(folder / "known")] * 2000],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in told
