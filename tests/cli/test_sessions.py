"""Random sessions of commands with one to four labels a class: nothing breaks, and what is printed is true."""

import csv
import io
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from helpers.commands import run
from ledl.cli._images import NAMES

DIGITS = load_digits(return_X_y=True)
seeds = pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 200))]
)


def write_photos(root, rng):
    """Write images to photos/<digit> (1 to 4 each, now and then with copies) and to new.

    Return the digits, and the number of new images.
    """
    X, y = DIGITS
    digits = rng.choice(10, rng.integers(2, 5), replace=False)
    (root / "new").mkdir(parents=True)
    n_new = 0
    for digit in digits:
        own = rng.permutation(np.flatnonzero(y == digit))
        n_labelled, n_more = rng.integers(1, 5), rng.integers(0, 6)
        place = root / "photos" / str(digit)
        place.mkdir(parents=True)
        for i in own[: n_labelled + n_more]:
            image = Image.fromarray(np.uint8(X[i].reshape(8, 8) * 15))
            file = place / f"{i}.png"
            if i not in own[:n_labelled]:
                file = root / "new" / f"{digit}_{i}.png"
                n_new += 1
            image.save(file)
            if rng.random() < 0.15:
                shutil.copy(file, file.with_name(f"copy of {file.name}"))
                n_new += file.parent.name == "new"
    return digits, n_new


def everything(root):
    """Return the bytes of each file below a folder."""
    return {file: file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@seeds
def test_a_session_with_few_labels(tmp_path, seed):
    """Train, predict, correct and train again with random options, as in the README.

    `run` fails at any exception, and pytest at any warning that is not printed for the user.
    """
    rng = np.random.default_rng(seed)
    digits, n_new = write_photos(tmp_path, rng)
    given = everything(tmp_path)
    method = "ledl-cv" if rng.random() < 0.5 else str(rng.choice(NAMES))
    words = ["fit", "photos", "-o", "model.ledl", "--method", method, "--seed", seed]
    words += ["--size", "8"] if rng.random() < 0.5 else []
    words += ["--per-class", "1"] if rng.random() < 0.2 else []
    words += ["--select", "cv"] if rng.random() < 0.1 else []
    words += ["--page", "fit.html"] if rng.random() < 0.3 else []
    unlabelled = n_new and rng.random() < 0.6
    words += ["--unlabelled", "new", "--write-labels", "labels.csv"] if unlabelled else []

    done = run(*words, cwd=tmp_path)
    assert done.returncode in (0, 2), done.stderr
    if done.returncode == 2:  # one image of a class is too few for these, and they say so
        assert method == "lda" or "--select" in words, done.stderr
        assert (
            "Give three images of each class" in done.stderr or "at least two images per class" in done.stderr
        )
        assert not (tmp_path / "model.ledl").exists()
        assert everything(tmp_path / "photos").items() <= given.items()
        return
    assert everything(tmp_path / "photos").items() <= given.items()
    info = json.loads(run("info", "model.ledl", "--json", cwd=tmp_path).stdout)
    assert info["classes"] == ", ".join(sorted(map(str, digits)))
    if unlabelled:
        assert len(rows_of((tmp_path / "labels.csv").read_text())) == n_new

    said = run("predict", "model.ledl", "photos", *["new"] * bool(n_new), "--format", "csv", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    rows = rows_of(said.stdout)
    assert len(rows) == len(given)
    assert {row["label"] for row in rows} <= set(map(str, digits))
    if n_new:
        check_new_images(tmp_path, n_new, rng)
    assert {file: bytes_ for file, bytes_ in everything(tmp_path).items() if file in given} == given


def check_new_images(root, n_new, rng):
    """Judge, sort and explain new images, correct their labels, and train again."""
    names = sorted(os.listdir(root / "new"))
    truths = [(f"new/{name}", name.removeprefix("copy of ")[0]) for name in names]
    with (root / "truth.csv").open("w") as file:
        csv.writer(file).writerows([("path", "label"), *truths])
    judged = run("predict", "model.ledl", "new", "--labels", "truth.csv", "--format", "csv", cwd=root)
    assert judged.returncode in (0, 2), judged.stderr
    if judged.returncode == 0:
        rows = rows_of(judged.stdout)
        n_right = sum(row["label"] == row["truth"] for row in rows)
        assert f"({n_right} of {len(rows)})" in " ".join(judged.stderr.split())

    unsure = ["--unsure", "0.6"] if rng.random() < 0.5 else []
    for _ in range(2):  # the second time changes nothing
        done = run(
            "predict", "model.ledl", "new", "--sort-into", "sorted", "--page", "p.html", *unsure, cwd=root
        )
        assert done.returncode in (0, 2 * bool(unsure)), done.stderr
        if done.returncode == 0:
            assert sum(len(files) for _, _, files in os.walk(root / "sorted")) == n_new
    explained = run("explain", "model.ledl", root / "new" / names[0], "-o", "why.html", cwd=root)
    assert explained.returncode in (0, 2), explained.stderr

    given = ["--labels", "folder", "--labels", "truth.csv", "--size", "8"]
    done = run("fit", "photos", "-o", "better.ledl", *given, cwd=root)
    assert done.returncode == 0, done.stderr
    said = run("predict", "better.ledl", "new", "--labels", "truth.csv", cwd=root)
    assert "was trained on all of these images" in said.stderr
