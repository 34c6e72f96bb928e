"""The commands fit, predict, explain, info and datasets."""

import csv
import io
import json
import os
import shlex
import shutil
import warnings

import numpy as np
import pytest
from PIL import Image
from sklearn.pipeline import Pipeline, make_pipeline

import ledl
from helpers.commands import FAST, run
from helpers.digits import NAMES
from ledl import CRCClassifier, image_models
from ledl.datasets import few_shot_splits
from ledl.features import NetworkFeatures, PixelFeatures, Preprocessing
from ledl.persistence import read, save


def test_fit_prints_what_it_did_and_records_it(fitted):
    path, done = fitted
    assert "The first run on a machine takes about 20 s longer" in done.stderr
    printed = " ".join(done.stdout.split())
    for words in ("LEDL", "8 x 8 pixels", "18 images, 6 per class, drawn with seed 3", "5-fold", str(path)):
        assert words in printed
    facts = json.loads(run("info", path, "--json").stdout)
    files = [f"{name}/{i:02d}.png" for name in NAMES for i in range(12)]
    drawn, _ = next(few_shot_splits(np.repeat(np.arange(3), 12), n_per_class=6, seeds=[3]))
    assert facts["files"] == [files[i] for i in drawn]
    assert facts["labels"] == dict.fromkeys(NAMES, 6)
    assert "18 images" in run("info", path).stdout


def test_labels_are_those_of_the_model_in_python(folder, model):
    images = [str(folder / "known" / name) for name in read(model).info["files"]]
    done = run("predict", model, *images, "--format", "csv")
    labels = [row["label"] for row in csv.DictReader(io.StringIO(done.stdout))]
    assert labels == ledl.load(model).predict(images).tolist()


def test_images_of_no_class_are_rejected(folder, model):
    words = [folder / "known", folder / "others", "--labels", "folder"]
    printed = run("predict", model, *words, "--reject", "0.2").stdout
    assert "12 images have labels that the model does not know (sieben)" in printed
    n_rejected = int(printed.split("(sieben): ")[1].split()[0])
    assert n_rejected >= 6
    assert "they do not count" in run("predict", model, *words).stdout


def test_a_page_explains_a_prediction(folder, model, tmp_path):
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


def test_a_page_says_why_it_is_not_another_class(folder, model, tmp_path):
    image = folder / "known" / "null" / "00.png"
    for other in ("eins [1]", "zwei"):  # one of them is not the runner-up
        done = run("explain", model, image, "-o", tmp_path / "why.html", "--against", other)
        assert done.returncode == 0, done.stderr
        assert f"ahead of {other}" in done.stdout.splitlines()[0]
        near = done.stdout.split(f"nearest training samples of {other}:")[1].split("how the scores")[0]
        assert near.count(f"{other}/") == 5
        assert f"Why null and not {other}?" in (tmp_path / "why.html").read_text("utf-8")


def test_a_model_that_was_saved_in_python_is_explained_without_names_of_images(folder, tmp_path):
    images = [str(folder / "known" / name / f"{i:02d}.png") for name in NAMES for i in range(4)]
    trained = make_pipeline(PixelFeatures(size=8), CRCClassifier()).fit(images, np.repeat(NAMES, 4))
    save(trained, tmp_path / "m.ledl")
    done = run("explain", tmp_path / "m.ledl", images[0], "-o", tmp_path / "why.html")
    assert done.returncode == 0, done.stderr
    assert f"row 0 (class {NAMES[0]}" in done.stdout


def test_unreadable_images_are_listed_and_the_exit_status_says_so(folder, model, tmp_path):
    bad = tmp_path / "bad [x].png"
    bad.write_bytes(b"not an image")
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
    (damaged / "null" / "00.png").write_bytes(b"not an image")
    (damaged / "null" / "IMG_1.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    done = run("fit", damaged, "-o", tmp_path / "m.ledl", *FAST)
    assert done.returncode == 2
    assert "2 of 37 images cannot be read." in done.stderr
    assert "--skip-unreadable" in done.stderr
    assert f"{damaged / 'null' / '00.png'} is not an image" in done.stderr
    assert f"{damaged / 'null' / 'IMG_1.HEIC'} cannot be" in done.stderr
    assert not (tmp_path / "m.ledl").exists()
    done = run("fit", damaged, "-o", tmp_path / "m.ledl", "--skip-unreadable", *FAST)
    assert done.returncode == 0
    assert done.stdout.count("Left out:") == 2
    assert "null/00.png" in done.stdout


def test_a_black_image_gets_a_note_without_code(model, tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "black.png")
    for words in (
        ["predict", model, tmp_path],
        ["explain", model, tmp_path / "black.png", "-o", tmp_path / "w.html"],
    ):
        done = run(*words)
        assert done.returncode == 0, done.stderr
        assert "Note: 1 of 1 samples are all zero" in " ".join(done.stderr.split())
        assert "Warning" not in done.stderr


def test_images_with_the_same_content_are_named(folder, tmp_path):
    photos = tmp_path / "photos"
    shutil.copytree(folder / "known", photos)
    shutil.copy(photos / "null" / "00.png", photos / "null" / "copy.png")
    shutil.copy(photos / "null" / "01.png", photos / "zwei" / "wrong.png")
    shutil.copy(photos / "null" / "00.png", photos / "null" / "more.png")
    done = run("fit", photos, "-o", tmp_path / "m.ledl", *FAST)
    printed = done.stdout
    assert "different labels (null, zwei), so one is wrong: null/01.png, zwei/wrong.png\n" in printed
    copies = "same label: 2, which are left out (null/copy.png of null/00.png, null/more.png of null/00.png)."
    assert copies in " ".join(done.stderr.split())
    assert "Trained on: 37 images, 12 to 13 per class" in printed
    assert (
        run("predict", tmp_path / "m.ledl", photos, "--labels", "folder").returncode == 2
    )  # it knows them all
    for name in ("copy", "more"):
        (photos / "null" / f"{name}.png").unlink()
    done = run("fit", photos, "-o", tmp_path / "m.ledl", *FAST)
    assert "different labels (null, zwei)" in done.stdout
    assert "Copies of" not in done.stderr  # they contradict each other
    for k in range(30):
        shutil.copy(photos / "null" / "02.png", photos / "null" / f"copy{k}.png")
    done = run("fit", photos, "-o", tmp_path / "m.ledl", *FAST, "--per-class", "12")
    assert "Trained on: 36 images, 12 per class" in done.stdout  # copies are left out before images are drawn
    assert "null/copy0.png of null/02.png, null/copy1.png of null/02.png, " in " ".join(done.stderr.split())
    assert f"Next:       ledl predict {tmp_path / 'm.ledl'} {photos} --labels folder\n" in done.stdout
    (photos / "zwei" / "wrong.png").unlink()  # now all are drawn but the copies, so none is left to test with
    done = run("fit", photos, "-o", tmp_path / "m.ledl", *FAST, "--per-class", "12")
    assert f"Next:       ledl predict {tmp_path / 'm.ledl'} NEW_IMAGES" in done.stdout


def test_large_images_are_refused_unless_allowed(folder, model, tmp_path):
    photos = tmp_path / "photos"
    shutil.copytree(folder / "known", photos)
    shutil.copy(photos / "null" / "00.png", photos / "null" / "large.png")
    Image.new("L", (100, 90)).save(photos / "null" / "large.png")
    out = tmp_path / "m.ledl"
    done = run("fit", photos, "-o", out, "--max-pixels", "8999", *FAST)
    assert done.returncode == 2
    assert "large.png has 100 x 90 pixels, more than 8999." in done.stderr
    assert "--max-pixels on the command line" in done.stderr
    assert run("fit", photos, "-o", out, "--max-pixels", "9000", *FAST).returncode == 0
    large = photos / "null" / "large.png"
    assert run("predict", out, large).returncode == 0
    done = run("predict", out, large, "--max-pixels", "8999")
    assert done.returncode == 1
    assert "more than 8999" in done.stderr
    words = ["explain", out, large, "-o", tmp_path / "why.html", "--max-pixels"]
    done = run(*words, "8999")
    assert done.returncode == 2
    assert "more than 8999" in done.stderr
    assert run(*words, "9000").returncode == 0


def test_pages_show_images_over_the_default_limit_if_that_is_allowed(model, tmp_path):
    Image.new("L", (2**14, 2**12 + 1)).save(tmp_path / "large.png")
    words = ["explain", model, tmp_path / "large.png", "-o", tmp_path / "why.html"]
    done = run(*words)
    assert done.returncode == 2
    assert "large.png has 16384 x 4097 pixels, more than 67108864" in done.stderr
    done = run(*words, "--max-pixels", 2**27)
    assert done.returncode == 0, done.stderr
    assert "large.png" in (tmp_path / "why.html").read_text()


def test_more_classes_than_there_are_leave_a_table_a_table(folder, model):
    done = run("predict", model, folder / "known" / "null", "--format", "csv", "--top", "50")
    rows = list(csv.reader(done.stdout.splitlines()))
    assert {len(row) for row in rows} == {2 + 1 + 2 * len(NAMES)}


def test_one_class_is_refused_before_any_image_is_read(folder, tmp_path):
    photos = tmp_path / "photos"
    shutil.copytree(folder / "known" / "null", photos / "null")
    shutil.copytree(folder / "known" / "null", photos / "None of These")
    for image in photos.glob("*/*"):
        image.write_bytes(b"unreadable")
    done = run("fit", photos, "-o", tmp_path / "m.ledl", "--features", "pixels")
    assert done.returncode == 2
    assert "'None of These' is an answer of ledl predict, not a class" in done.stderr
    assert "Error: There is only one class, null." in done.stderr


def test_messages_name_options(folder, model, tmp_path):
    image = folder / "known" / "null" / "00.png"
    done = run("explain", model, image, "-o", tmp_path / "why.html", "--against", "nobody")
    assert "Error: --against nobody is not a class of this model." in done.stderr
    done = run("reproduce", "digits", "--n-per-class", "1", "--out", tmp_path / "out")
    assert "--n-per-class 1 leaves no samples" in done.stderr
    assert "or --select defaults." in done.stderr
    done = run("fit", folder / "known", "-o", tmp_path / "m.ledl", "--features", "resnet50")
    assert done.returncode == 2
    assert "model=" not in done.stderr


def test_files_larger_than_any_image_are_not_read(folder, model, tmp_path):
    for name in ("null", "zwei"):
        shutil.copytree(folder / "known" / name, tmp_path / "photos" / name)
    large = tmp_path / "photos" / "null" / "large.png"
    shutil.copy(folder / "known" / "null" / "00.png", large)
    os.truncate(large, 2**42)  # a hole behind an image
    for words in (["predict", model, large], ["predict", model, tmp_path / "photos", "--labels", "folder"]):
        done = run(*words)
        assert done.returncode == 1
        assert "large.png has 4,398 GB, more than an image. Remove the file." in done.stderr
    done = run("fit", tmp_path / "photos", "-o", tmp_path / "m.ledl", *FAST)
    assert done.returncode == 2
    assert "large.png has 4,398 GB" in done.stderr
    os.truncate(large, 2**42)
    large.rename(tmp_path / "network.onnx")
    done = run("fit", folder / "known", "-o", tmp_path / "m.ledl", "--features", tmp_path / "network.onnx")
    assert done.returncode == 2
    assert "The 4,398 GB of" in done.stderr


def test_seeds_that_no_generator_takes_are_refused_at_once(folder, tmp_path):
    done = run("fit", folder / "known", "-o", tmp_path / "m.ledl", "--seed", 2**32)
    assert done.returncode == 2
    assert "'--seed'" in done.stderr


def test_hints_are_words_of_a_shell(tmp_path):
    done = run("datasets", "digits", "-o", tmp_path / "my images")
    words = shlex.split(done.stdout.split("Next: ")[1])
    assert words[:3] == ["ledl", "fit", str(tmp_path / "my images")]


def test_invisible_characters_are_seen(folder, tmp_path):
    photos, name = tmp_path / "photos", "cat\u202egnp.\u200b"
    for new, old in ((name, "null"), ("dog", "zwei")):
        shutil.copytree(folder / "known" / old, photos / new)
    out = tmp_path / "m.ledl"
    assert run("fit", photos, "-o", out, *FAST).returncode == 0
    done = run("info", out, "--json")
    assert "cat\\u202egnp.\\u200b" in done.stdout
    assert json.loads(done.stdout)["labels"].keys() == {name, "dog"}
    image = next((photos / name).iterdir())
    done = run("predict", out, image, "--format", "json")
    assert "\u202e" not in done.stdout
    assert json.loads(done.stdout)[0]["path"] == str(image)
    assert run("explain", out, image, "-o", tmp_path / "why.html").returncode == 0
    page = (tmp_path / "why.html").read_text()
    assert "cat\\u202egnp.\\u200b" in page
    assert not {"\u202e", "\u200b"} & set(page)


def test_class_folders_are_found_at_any_depth_and_flat_folders_refused(folder, model, tmp_path):
    photos = tmp_path / "photos"
    for name in NAMES:
        shutil.copytree(folder / "known" / name, photos / name / "2023" / "May")
    out = tmp_path / "m.ledl"
    done = run("fit", photos, "-o", out, "--per-class", "6", *FAST)
    assert done.returncode == 0, done.stderr
    drawn = json.loads(run("info", out, "--json").stdout)["files"]
    assert {name.rpartition("/")[0] for name in drawn} == {f"{name}/2023/May" for name in NAMES}
    assert "did you mean" in run("fit", tmp_path, "-o", out, *FAST).stderr.lower()
    for words in ([photos], [photos / name for name in NAMES]):  # a parent, or photos/* of a shell
        done = run("predict", out, *words, "--labels", "folder", "--format", "json")
        assert len(json.loads(done.stdout)) == 18
        assert {row["truth"] for row in json.loads(done.stdout)} == set(NAMES)
    flat = tmp_path / "flat"
    shutil.copytree(folder / "known" / "null", flat)
    done = run("predict", out, flat, "--labels", "folder")
    assert done.returncode == 2
    assert f"all 12 images lie directly in {flat}" in " ".join(done.stderr.split())
    shutil.copytree(folder / "known" / "zwei", flat / "zwei")
    done = run("predict", model, flat, "--labels", "folder", "--format", "json")
    assert {row["truth"] for row in json.loads(done.stdout)} == {"zwei"}
    assert "Not used (in no class folder, and 'flat' is no class of the model): 12" in done.stderr


def test_a_model_knows_its_network(folder, tmp_path):
    pytest.importorskip("onnxruntime")
    from helpers.networks import write_model

    network = tmp_path / "network.onnx"
    write_model(network, n_features=16)
    out = tmp_path / "m.ledl"
    done = run("fit", folder / "known", "-o", out, "--features", network)
    assert done.returncode == 2
    assert "--preprocessing" in done.stderr
    assert "Training" not in done.stderr  # it has not begun
    options = ["--features", "network.onnx", "--preprocessing", "imagenet", "--method", "crc"]
    options += ["--per-class", "4"]
    done = run("fit", folder / "known", "-o", out, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    image = folder / "known" / "null" / "00.png"
    assert run("predict", out, image).returncode == 0
    moved = network.rename(tmp_path / "moved.onnx")
    done = run("predict", out, image, "--format", "csv")
    assert done.returncode == 2
    assert "--features" in done.stderr
    assert not done.stdout
    for word in ("color", "auto", "efficientnet_lite0"):
        assert "Leave --features out, or give the path" in run("predict", out, image, "--features", word).stderr
    assert run("predict", out, image, "--features", moved).returncode == 0
    write_model(network, n_features=8)
    done = run("predict", out, image)
    assert done.returncode == 2
    assert "sha256" in done.stderr


def test_a_model_file_cannot_make_a_network_take_larger_images(folder, tmp_path):
    pytest.importorskip("onnxruntime")
    from helpers.networks import write_model

    write_model(tmp_path / "network.onnx", n_features=16, size=8)
    extractor = NetworkFeatures(tmp_path / "network.onnx", preprocessing=Preprocessing(size=8)).fit()
    images = sorted((folder / "known").rglob("*.png"))
    classifier = CRCClassifier().fit(extractor.transform(images), [path.parent.name for path in images])
    hostile = Preprocessing(size=1024)
    extractor.preprocessing = extractor.preprocessing_ = hostile
    save(Pipeline([("features", extractor), ("classifier", classifier)]), tmp_path / "hostile.ledl")
    done = run("predict", tmp_path / "hostile.ledl", folder / "known")
    assert done.returncode == 2
    assert "(n, 3, 8, 8), but the preprocessing makes (n, 3, 1024, 1024)" in " ".join(done.stderr.split())
    assert not done.stdout


def test_the_features_are_printed_with_the_reason_and_recorded(folder, tmp_path):
    out = tmp_path / "m.ledl"
    done = run("fit", folder / "known", "-o", out, "--method", "crc")
    assert "Features: pixels, because the images are small" in done.stderr
    done = run("fit", folder / "known", "-o", out, "--method", "crc", "--features", "color")
    assert done.returncode == 0, done.stderr
    assert "because" not in done.stderr.split("Training with")[0]
    assert "colours and textures" in done.stdout
    assert "colours and textures" in run("info", out).stdout
    image = folder / "known" / "null" / "00.png"
    assert run("predict", out, image).returncode == 0
    done = run("explain", out, image, "-o", tmp_path / "why.html")
    assert done.returncode == 0, done.stderr
    assert "colours and textures" in (tmp_path / "why.html").read_text("utf-8")


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
        (["fit", "known", "-o", "no/m.ledl"], "Create it first"),
        (
            ["fit", "known", "-o", "m.ledl", "--per-class", "13"],
            "--per-class 13 is too large: the class eins [1] has only 12 images",
        ),
        (["fit", "model.ledl", "-o", "m.ledl"], "is a file"),
        (["fit", "known", "-o", "m.ledl", "--method", "svm"], "crc-regularized"),
        (["fit", "known", "-o", "m.ledl", "--features", "no.onnx"], "There is no model"),
        (["fit", "known", "-o", "m.ledl", "--per-class", "1", "--select", "cv"], "two images"),
        (["fit", "others", "-o", "m.ledl"], "only one class"),
        (["fit", "known/null", "-o", "m.ledl"], "no folders with images"),
        (["fit", "empty", "-o", "m.ledl"], "has no images"),
        (["predict", "known/null/00.png", "known"], "not a model file"),
        (["predict", "no.ledl", "known"], "no.ledl does not exist"),
        (["predict", "known", "model.ledl"], "must be a model file"),
        (["predict", "model.ledl", "known", "--mistakes"], "Add --labels"),
        (["predict", "model.ledl", "known", "--labels", "folder", "--mistakes", "--review", "3"], "Give one."),
        (["predict", "model.ledl", "known", "--page", "p.pdf"], "ends in .html"),
        (["fit", "known", "-o", "m.ledl", "--page", "no/p.html"], "Create it first"),
        (["predict", "model.ledl", "known", "others", "--labels", "t.csv"], "for one folder"),
        (["predict", "model.ledl", "known", "--reject", "0.01"], "--reject 0.0527 or more"),
        (["fit", "known", "-o", "m.ledl", "--size", "5000"], "4096"),
        (["fit", "known", "-o", "/proc/m.ledl"], "Cannot write to the folder"),
        (["fit", "known", "-o", "/dev/null"], "not a regular file"),
        (["fit", "known", "-o", "m.ledl", "--features", "pixels", "--cache", "c"], "--cache c needs a network"),
        (
            ["fit", "known", "-o", "m.ledl", "--features", "n.onnx", "--size", "8"],
            "--size 8 needs --features pixels",
        ),
        (
            ["fit", "known", "-o", "m.ledl", "--features", "n.onnx", "--preprocessing", "p.json"],
            "caffe or imagenet",
        ),
        (["explain", "model.ledl", "known/null/00.png", "-o", "m.pdf"], ".html"),
        (
            ["explain", "model.ledl", "known/null/00.png", "-o", "known"],
            "known is a folder. Give the name of a file",
        ),
        (["predict", "model.ledl", "no.png"], "There is no file or folder"),
        (["predict", "model.ledl", "known", "--unsure", "0.5"], "Add --sort-into"),
        (["predict", "model.ledl", "known", "--sort-by", "move"], "Add --sort-into"),
        (["predict", "model.ledl", "known", "--sort-into", "model.ledl"], "model.ledl is a file, not a folder"),
        (["predict", "model.ledl", "known", "--sort-into", "/proc/sorted"], "Cannot write to the folder /proc"),
        (["predict", "model.ledl", "empty"], "no images"),
        (["predict", "model.ledl", "known", "--confusion", "c.csv"], "Add --labels"),
        (
            ["predict", "model.ledl", "known", "--labels", "t.csv", "--confusion", "./t.csv"],
            "--confusion t.csv would replace the file of another option",
        ),
        (
            ["fit", "known", "-o", "known/null/00.png"],
            "--out known/null/00.png has the name of an image or a network, which would be lost",
        ),
        (["fit", "known", "-o", "n.onnx", "--features", "n.onnx"], "--out n.onnx has the name of an image or"),
        (
            ["fit", "known", "-o", "p.json", "--features", "n.onnx", "--preprocessing", "p.json"],
            "--out p.json would replace the file of another option",
        ),
        (
            ["fit", "known", "-o", "n.json", "--features", "n.onnx"],
            "--out n.json would replace the file of another option",
        ),
        (
            ["explain", "model.html", "known/null/00.png", "-o", "./model.html"],
            "--out model.html would replace the file of another option",
        ),
        (["fit", "known", "-o", "m.ledl", "--features", ""], "Error: "),
        (
            ["fit", "known", "-o", "m.ledl", "--features", "colour"],
            "Did you mean color? There are auto, pixels",
        ),
        (["fit", "known", "-o", "m.ledl", "--features", "pixel"], "Did you mean pixels?"),
        (["fit", "known", "-o", "m.ledl", "--features", "color.onnx"], "There is no model"),
        (["fit", "known", "-o", "m.ledl", "--features", "efficientnet"], "Did you mean efficientnet_lite0?"),
        (["info", "nowhere.ledl"], "nowhere.ledl does not exist. The first argument must be a model file"),
        (
            ["fit", "known", "-o", "m.ledl", "--method", "lda", "--size", "8", "--per-class", "2"],
            "--method lda needs more images than classes",
        ),
        (["predict", "model.ledl", "known", "--features", "n.onnx"], "uses 8 x 8 pixels, gray, no network"),
        (
            ["fit", "known", "-o", "m.ledl", "--cache", "c"],
            "--cache c needs a network, but the features are pixels",
        ),
        (["fit", "known", "-o", "m.ledl", "--features", "color", "--size", "8"], "the features are color"),
        (["explain", "model.ledl", "no.png", "-o", "m.html"], "no.png"),
        (
            ["explain", "model.ledl", "known/null/00.png", "-o", "m.html", "--against", "nul"],
            "classes are null, ",
        ),
        (
            ["explain", "model.ledl", "known/null/00.png", "-o", "m.html", "--against", "null"],
            "the answer itself",
        ),
        (["info", "known/null/00.png"], "not a model file"),
        (["predict", "rows.ledl", "known"], "does not take images"),
        (["predict", "bare.ledl", "known"], "does not take images"),
    ],
)
def test_errors_say_what_to_do_and_write_nothing(folder, model, words, message):
    before = sorted(folder.rglob("*"))
    done = run(*words, cwd=folder)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split()).replace("│ ", "")
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before


def test_info_describes_any_model_file(folder):
    done = run("info", folder / "bare.ledl")
    assert done.returncode == 0
    assert "PCA" in done.stdout


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


def test_fit_and_predict_take_a_table_of_labels(folder, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    lines = ["filename,label"]
    for name in NAMES:
        for file in (folder / "known" / name).glob("*.png"):
            shutil.copy(file, flat / f"{name}-{file.name}")
            lines.append(f"{name}-{file.name},{name}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    out = tmp_path / "m.ledl"
    done = run("fit", flat, "-o", out, "--labels", tmp_path / "labels.csv", "--per-class", "6", *FAST)
    assert f"--labels {tmp_path / 'labels.csv'}" in done.stdout
    flat = flat.rename(tmp_path / "renamed")
    done = run("predict", out, flat, "--labels", tmp_path / "labels.csv")
    assert "Skipped 18 training images" in done.stderr
    assert " of 18)" in done.stdout
    run("fit", folder / "known", "-o", out, *FAST)
    done = run("predict", out, folder / "known", "--labels", "folder")
    assert "trained on all of these images" in done.stderr


def test_changed_records_are_reported(folder, model, tmp_path):
    stored, image = read(model), folder / "known" / "null" / "00.png"
    ledl.save(stored.model, tmp_path / "t.ledl", info={**stored.info, "labels": ["x"] * 17})
    for command, *words in (["info"], ["predict", image], ["explain", image, "-o", "e.html"]):
        done = run(command, tmp_path / "t.ledl", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert "was not written by ledl fit" in done.stderr


def test_records_of_other_models_and_endless_names_are_reported(folder, model, tmp_path):
    stored, image = read(model), folder / "known" / "null" / "00.png"
    info, n = stored.info, len(stored.info["labels"])
    for change in (
        {"labels": ["x"] * n},
        {"labels": info["labels"][::-1]},
        {"cv_answers": ["x"] * n},
        {"near_copies": [["a", "b"]]},
    ):
        ledl.save(stored.model, tmp_path / "t.ledl", info={**info, **change})
        for command, *words in (["info"], ["predict", image], ["explain", image, "-o", "e.html"]):
            done = run(command, tmp_path / "t.ledl", *words, cwd=tmp_path)
            assert done.returncode == 2
            assert "is of another model" in done.stderr
    X, y = np.random.default_rng(0).random((4, 64)), ["a" * 1000, "b"] * 2
    ledl.save(make_pipeline(PixelFeatures(size=8), ledl.CRCClassifier().fit(X, y)), tmp_path / "t.ledl")
    done = run("predict", tmp_path / "t.ledl", image)
    assert "has a name of 1,000 characters, but 255 is the limit" in done.stderr


def test_one_image_of_a_class_is_enough_to_predict(folder, tmp_path):
    out = tmp_path / "m.ledl"
    done = run("fit", folder / "known", "-o", out, "--size", "8", "--per-class", "1")
    assert done.returncode == 0, done.stderr
    assert "Accuracy:   not known" in done.stdout
    assert run("predict", out, folder / "known" / "null" / "00.png").returncode == 0


def test_datasets_are_listed(tmp_path):
    done = run("datasets", env={"LEDL_DATA": str(tmp_path)})
    assert done.returncode == 0
    for word in ("digits", "caltech101_pyramid", "ask", str(tmp_path)):
        assert word in done.stdout


def test_a_failed_fit_prints_the_warnings_that_give_the_reasons(folder, tmp_path, monkeypatch):
    def fail(*args, **options):
        warnings.warn("alpha was too large.", stacklevel=2)
        raise ValueError("Every candidate failed. The warnings give the reasons.")

    monkeypatch.setattr(image_models, "fit_folder", fail)
    done = run("fit", folder / "known", "-o", tmp_path / "m.ledl")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        "Note: alpha was too large.",
        "Error: Every candidate failed. The warnings give the reasons.",
    ]
