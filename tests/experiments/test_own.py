"""Methods and data of one's own in the table, as a user's script and command have them."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from own_method import NearestSubspace, tuned
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from ledl.datasets import few_shot_splits
from ledl.experiments import METHODS, Plan, reproduce
from ledl.methods import own_method

QUICK = {"n_per_class": 3, "n_splits": 2}


@pytest.fixture
def samples(tmp_path):
    """A file of one's own, with labels as text."""
    X, y = load_iris(return_X_y=True)
    path = tmp_path / "my flowers.npz"
    np.savez(path, X=X, y=np.array(["setosa", "versicolor", "virginica"])[y])
    return path


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_any_estimator_with_its_grid_and_any_samples(samples, tmp_path):
    grid = {"svc__C": [0.1, 10.0], "svc__gamma": ["scale", 0.1]}
    svm = make_pipeline(StandardScaler(), SVC())
    methods = ["crc", ("plain", NearestSubspace(1)), tuned, ("svm", GridSearchCV(svm, grid))]
    plan = Plan(["digits", str(samples)], methods, **QUICK)
    assert plan.methods == ("crc", "plain", "NearestSubspace", "svm")
    outcome = reproduce(plan, tmp_path / "out")
    assert not outcome.failures
    assert [(row.dataset == "digits", row.method) for row in outcome.rows[:5]] == [
        (True, "crc"), (True, "plain"), (True, "NearestSubspace"), (True, "svm"), (False, "crc"),
    ]  # fmt: skip
    # What scikit-learn gives on the same splits and folds.
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    found = {
        (row["dataset"], row["method"], row["split"]): row for row in read(tmp_path / "out" / "splits.csv")
    }
    for seed, (train, test) in enumerate(few_shot_splits(y, n_per_class=3, seeds=[0, 1])):
        expected = NearestSubspace(1).fit(X[train], y[train]).score(X[test], y[test])
        assert float(found["digits", "plain", str(seed)]["accuracy"]) == pytest.approx(expected)
        folds = StratifiedKFold(3, shuffle=True, random_state=seed)
        search = GridSearchCV(clone(svm), grid, cv=folds).fit(X[train], y[train])
        own = found["digits", "svm", str(seed)]
        assert json.loads(own["settings"]) == search.best_params_
        assert float(own["accuracy"]) == pytest.approx(search.score(X[test], y[test]))
    assert len(found) == 2 * 2 * 4
    assert {dataset for dataset, *_ in found} == {"digits", "my flowers"}
    report = outcome.report.read_text()
    assert "my flowers" in report
    assert "given as they are to plain, NearestSubspace, svm" in " ".join(report.split())
    for picture in outcome.pictures:
        kinds = [picture.path.with_suffix(suffix).read_bytes()[:5] for suffix in (".png", ".pdf", ".svg")]
        assert kinds == [b"\x89PNG\r", b"%PDF-", b"<?xml"]
    assert outcome.pictures[0].path.name == "accuracy.png"


def test_processes_and_stored_cells(samples, tmp_path):
    plan = Plan([str(samples)], ["crc", tuned], **QUICK)
    alone = reproduce(plan, tmp_path / "a", figures=False)
    together = reproduce(plan, tmp_path / "b", n_jobs=2, figures=False)
    assert not alone.failures + together.failures
    assert [row.accuracy_mean for row in alone.rows] == [row.accuracy_mean for row in together.rows]
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "b").glob("cells/*/*.json")}
    reproduce(plan, tmp_path / "b", figures=False)
    assert cells == {path: path.stat().st_mtime_ns for path in (tmp_path / "b").glob("cells/*/*.json")}
    assert len(cells) == 4


def test_a_cluster(cluster, samples, tmp_path):
    cluster_knows = GridSearchCV(SVC(), {"C": [1.0, 100.0]})  # a class that its workers can import
    plan = Plan([str(samples)], ["crc", ("svm", cluster_knows)], **QUICK)
    outcome = reproduce(plan, tmp_path / "out", dask=cluster.scheduler_address, figures=False)
    assert not outcome.failures
    alone = reproduce(plan, tmp_path / "alone", figures=False)
    assert [row.accuracy_mean for row in outcome.rows] == [row.accuracy_mean for row in alone.rows]


def test_changed_code_is_another_method(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    base = "from sklearn.neighbors import KNeighborsClassifier\nclass Mine(KNeighborsClassifier):\n    pass\n"
    digests = []
    for i, text in enumerate((base, base + "# another\n", base)):
        (tmp_path / f"mine_{i}.py").write_text(text)
        digests.append(own_method(f"mine_{i}:Mine").source)
    assert digests[0] != digests[1]
    assert own_method("mine_0:Mine").source == digests[0]


def test_the_command(samples, tmp_path):
    """`--methods` with spaces, as people type it; a module in this folder; a file of samples; two processes."""
    (tmp_path / "mymethod.py").write_text(
        "from sklearn.neighbors import KNeighborsClassifier\n"
        "from sklearn.model_selection import GridSearchCV\n"
        "class Mine(KNeighborsClassifier):\n    pass\n"
        "search = GridSearchCV(Mine(), {'n_neighbors': [1, 2]})\n"
    )
    words = ["reproduce", "--methods", "crc", "mymethod:Mine", "mymethod:search", "--data", samples.name]
    words += ["--n-per-class", "3", "--splits", "2", "--no-figures", "--out", "out", "--jobs", "2"]
    run = [sys.executable, "-m", "ledl", *words]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert "my flowers" in done.stdout
    latex = (tmp_path / "out" / "table.tex").read_text()
    assert "Mine (search) &" in latex
    assert r"\toprule" in latex
    rows = read(tmp_path / "out" / "splits.csv")
    assert [row["method"] for row in rows[::2]] == ["crc", "mymethod:Mine", "mymethod:search"]
    report = (tmp_path / "out" / "report.html").read_text()
    assert "--data" in report
    assert "crc,mymethod:Mine,mymethod:search" in report


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (["nowhere:Mine"], r"'nowhere:Mine' cannot be imported.*Give module:Class"),
        (["sklearn.svm:Nothing"], "cannot be imported"),
        ([("mine", 5)], "is a int, which has no fit and no predict"),
        ([GridSearchCV(SVC(), {"D": [1]})], "has 'D', which is no parameter of SVC"),
        ([("ledl", SVC())], "another method with the name 'ledl'"),
        ([SVC(), SVC()], "another method with the name 'SVC'"),
    ],
)
def test_wrong_methods(methods, message):
    with pytest.raises(ValueError, match=message):
        Plan(methods=methods)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": [1, 2]}, "has the arrays a, but samples X and labels y are needed"),
        ({"X": [[1.0], [2.0]], "y": [0]}, r"labels.*|shape \(1,\)"),
        ({"X": [[1.0], [np.nan]], "y": [0, 1]}, "NaN or infinite values"),
        ({"X": [[1.0], [2.0]], "y": [1, 1]}, "one class only"),
        ({"X": [[1.0], [2.0]], "y": [1, np.nan]}, "NaN or infinite values in y"),
    ],
)
def test_wrong_samples(arrays, message, tmp_path):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        reproduce(Plan([str(tmp_path / "bad.npz")], ["crc"], **QUICK), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["empty", "one array", "cut off"])
def test_files_that_are_no_samples(kind, tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, X=np.eye(4), y=[0, 1, 0, 1])
    content = {"empty": b"", "cut off": path.read_bytes()[:100]}
    if kind == "one array":
        with path.open("wb") as file:
            np.save(file, np.eye(4))
    else:
        path.write_bytes(content[kind])
    with pytest.raises(ValueError, match=r"bad.npz cannot be read .* numpy.savez"):
        reproduce(Plan([str(path)], ["crc"], **QUICK), tmp_path / "out")


def test_datasets_of_one_name_are_refused(tmp_path):
    paths = [tmp_path / name / "mine.npz" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        np.savez(path, X=np.eye(4), y=[0, 1, 0, 1])
    with pytest.raises(ValueError, match="Two datasets have the name 'mine'"):
        reproduce(Plan([*map(str, paths)], ["crc"], **QUICK), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failure_of_ones_own_is_reported_and_the_others_go_on(tmp_path):
    plan = Plan(methods=["crc", ("mine", SVC(C=-1.0))], **QUICK)
    outcome = reproduce(plan, tmp_path, figures=False)
    assert [row.method for row in outcome.rows] == ["crc"]
    assert "mine, split 0: InvalidParameterError" in outcome.failures[0]


def test_names_of_the_table_are_unchanged():
    assert Plan().methods == tuple(name for name, method in METHODS.items() if not method.unlabelled)
