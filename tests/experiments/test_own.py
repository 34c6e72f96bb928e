"""Methods and data of one's own in the table, as a user's script and command have them."""

import csv
import importlib
import json
import os
import re
import subprocess
import sys
import tracemalloc
import zipfile
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from own_method import NearestSubspace, tuned
from scipy.stats import uniform
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.svm import SVC
from typer.testing import CliRunner

from ledl import CRCClassifier, LEDLClassifierCV
from ledl.cli import app
from ledl.datasets import few_shot_splits
from ledl.experiments import METHODS, SUPERVISED, Plan, _cells, _report, _reproduce, reproduce
from ledl.experiments._cells import as_json
from ledl.experiments._cluster import find_trouble
from ledl.methods import own_method
from ledl.plots import OWN

QUICK = {"n_per_class": 3, "n_splits": 2}


@pytest.fixture
def samples(tmp_path):
    """A file of one's own, with labels as text."""
    X, y = load_iris(return_X_y=True)
    path = tmp_path / "my flowers.npz"
    np.savez(path, X=X, y=np.array(["setosa", "versicolor", "virginica"])[y])
    return path


class NotCloned(ClassifierMixin, BaseEstimator):
    """Break scikit-learn's rule that a constructor only stores its arguments."""

    def __init__(self, a=1):
        self.a = [a]

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))


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
        searches = {
            power: GridSearchCV(clone(svm), grid, cv=folds).fit(X[train] ** power, y[train])
            for power in (1.0, 0.5, 0.25)
        }
        power, search = max(searches.items(), key=lambda item: item[1].best_score_)  # the first of equal ones
        own = found["digits", "svm", str(seed)]
        assert json.loads(own["settings"]) == {**search.best_params_, "power": power}
        assert float(own["accuracy"]) == pytest.approx(search.score(X[test] ** power, y[test]))
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


class Powered(SVC):
    def __init__(self, power=1):
        super().__init__()
        self.power = power


@pytest.mark.parametrize(
    "estimator",
    [
        CRCClassifier(),
        CRCClassifier(kernel="rbf"),
        CRCClassifier(kernel="hellinger"),
        CRCClassifier(kernel=0.25, normalize=False),
        Pipeline([("power", StandardScaler()), ("svm", SVC())]),
    ],
)
def test_what_was_judged_on_powers_is_what_is_made(estimator):
    X, y = load_digits(return_X_y=True)
    X, X_test, y = X[:100] - 4, X[100:200] - 4, y[:100]
    roots, roots_test = (np.sign(Z) * np.sqrt(np.abs(Z)) for Z in (X, X_test))
    expected = clone(estimator).fit(roots, y).decision_function(roots_test)
    made = own_method(estimator).make({"power": 0.5}).fit(X, y)
    np.testing.assert_allclose(made.decision_function(X_test), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (["nowhere:Mine"], r"'nowhere:Mine' cannot be imported.*Give module:Class"),
        (["sklearn.model_selection:GridSearchCV"], "cannot be made without arguments"),
        ([LinearRegression()], "predicts numbers, not classes"),
        ([NotCloned()], "cannot be copied by scikit-learn's clone"),
        ([(5, SVC())], "has the name 5"),
        (["sklearn.svm:Nothing"], "cannot be imported"),
        ([("mine", 5)], "is a int, which has no fit and no predict"),
        ([GridSearchCV(SVC(), {"D": [1]})], "has 'D', which is no parameter of SVC"),
        ([GridSearchCV(Powered(), {"power": [2]})], "has 'power', but that is the power of the features"),
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
        ({"X": [[1.0], [2.0]], "y": [0]}, r"y of shape \(1,\)"),
        ({"X": np.empty((0, 3)), "y": np.empty(0)}, r"X of shape \(0, 3\)"),
        ({"X": [[1.0], [2.0]], "y": [0, np.nan]}, "NaN or infinite values in y"),
        ({"X": [[1.0], [2.0]], "y": np.array(["a", "b"], object)}, r"y.astype\(str\)"),
        ({"X": [[1.0], [np.nan]], "y": [0, 1]}, "NaN or infinite values"),
        ({"X": [[1.0], [2.0]], "y": [1, 1]}, "one class only"),
    ],
)
def test_wrong_samples(arrays, message, tmp_path):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        reproduce(Plan([str(tmp_path / "bad.npz")], ["crc"], **QUICK), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"\x93NUMPY", None])
def test_files_that_are_none(content, tmp_path):
    path = tmp_path / "bad.npz"
    path.write_bytes(content or b"")
    if content is None:
        np.save(tmp_path / "X.npy", np.eye(3))
        (tmp_path / "X.npy").rename(path)
    with pytest.raises(ValueError, match=r"bad.npz cannot be read as a .npz file"):
        reproduce(Plan(path, ["crc"], **QUICK), tmp_path / "out")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"(600, 2)", b"(600, 2("),  # TokenError
        (b"\x2d\x03\x2d", b"\x2d\x03\xff"),  # NotImplementedError: a zip of another version
        (b"\x2d\x03\x2d\0\0", b"\x2d\x03\x2d\0\1"),  # RuntimeError: a password is needed
    ],
)
def test_files_that_are_damaged(old, new, tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, X=np.ones((600, 2)), y=np.arange(600) % 2)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(ValueError, match=r"bad.npz cannot be read as a .npz file .* Write it with numpy.savez"):
        reproduce(Plan(path, ["crc"], **QUICK), tmp_path / "out")


def test_parts_of_a_file_that_are_no_arrays_do_not_count(tmp_path):
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as file:
        file.writestr("X.npy", b"hello")
    with pytest.raises(ValueError, match=r"bad.npz has the arrays none, but samples X"):
        reproduce(Plan(tmp_path / "bad.npz", ["crc"], **QUICK), tmp_path / "out")


def test_only_samples_and_labels_are_unpacked(tmp_path, monkeypatch):
    """Other arrays may unpack to far more than the file, in each process."""
    path, X, y = tmp_path / "my.npz", np.random.default_rng(0).random((20, 3)), np.arange(20) % 2
    np.savez_compressed(path, other=np.zeros(2**23), X=X, y=y, **{f"a{i}": 0 for i in range(30)})
    tracemalloc.start()
    np.testing.assert_array_equal(_cells.read_samples(path).data, X)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    with monkeypatch.context() as changed:
        changed.setattr(_cells, "LARGEST_ARRAY", 500)
        with pytest.raises(MemoryError, match=r"memory: X unpacks to 608 bytes, more than 500\. Give fewer"):
            _cells.read_samples(path)
    np.savez_compressed(path, **{f"a{i}": 0 for i in range(30)})
    with pytest.raises(ValueError, match=r"has the arrays a0, .*, a19, but samples X and labels y are needed"):
        _cells.read_samples(path)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("X.npy", b"hello")
        file.writestr("y.npy", b"hello")
    np.savez(tmp_path / "new.npz", data=X, target=y)
    with zipfile.ZipFile(tmp_path / "new.npz") as new, zipfile.ZipFile(path, "a") as file:
        for name in new.namelist():
            file.writestr(name, new.read(name))
    np.testing.assert_array_equal(_cells.read_samples(path).data, X)


def test_two_files_of_one_name_would_be_one_column(samples, tmp_path):
    (tmp_path / "b").mkdir()
    other = (tmp_path / "b" / samples.name).resolve()
    other.write_bytes(samples.read_bytes())
    with pytest.raises(ValueError, match="Two datasets would have the name 'my flowers'"):
        reproduce(Plan([samples, other], ["crc"], **QUICK), tmp_path / "out")


def test_the_guides_command_on_a_file_draws_its_figures(samples, tmp_path):
    """With LEDL there are codes to draw, under the name of the file; names may have what mathematics has."""
    samples = samples.rename(samples.with_name("my $\\frac$ flowers.npz"))
    outcome = reproduce(Plan([samples], ["ledl", ("a $\\frac", SVC())], **QUICK), tmp_path / "out")
    assert outcome.report.is_file()
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert names == {
        f"{name}.{kind}" for name in ("accuracy", f"codes_{samples.stem}") for kind in ("png", "pdf", "svg")
    }


def test_the_chart_has_no_accuracies_that_there_are_not(samples, tmp_path, monkeypatch):
    """Student's intervals of two splits may be longer than a hundred points. The best point is on top."""
    figures = []
    save = _report._save
    monkeypatch.setattr(_report, "_save", lambda figure, *rest: figures.append(figure) or save(figure, *rest))
    reproduce(Plan([samples], ["crc", SVC()], **QUICK), tmp_path)
    (ax,) = figures[0].axes
    low, high = ax.get_xlim()
    assert low >= -1
    assert high <= 101
    *others, best = sorted(ax.lines, key=lambda line: line.zorder)
    assert best.zorder > max(line.zorder for line in others)
    assert best.get_color() == OWN


class Odd(KNeighborsClassifier):
    """Predict something that is not a label for each sample."""

    def __init__(self, change=None):
        super().__init__()
        self.change = change

    def predict(self, X):
        return self.change(super().predict(X))


def as_column(labels):
    return labels[:, None]


def first(labels):
    return labels[:1]


def between(labels):
    return labels + 0.5


def nothing(labels):
    return labels * np.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (as_column, r"shape \(141, 1\) for 141 samples"),
        (first, r"shape \(1,\) for 141 samples"),
        (between, r"predict returned [012].5, but labels"),
        (nothing, "predict returned nan"),
    ],
)
def test_predictions_that_are_no_labels_have_no_accuracy(change, message, samples, tmp_path):
    outcome = reproduce(Plan([samples], ["crc", ("odd", Odd(change))], **QUICK), tmp_path, figures=False)
    assert [row.method for row in outcome.rows] == ["crc"]
    assert re.search(message, outcome.failures[0])


@pytest.mark.parametrize(
    "method",
    [
        GridSearchCV(LogisticRegression(), {"C": [1.0, np.inf]}),  # JSON has no such numbers
        make_pipeline(SimpleImputer(missing_values=np.nan), KNeighborsClassifier(1)),
        RandomizedSearchCV(SVC(), {"C": [1.0, 10.0]}, n_iter=2, cv=2, random_state=0),
        GridSearchCV(KNeighborsClassifier(), {"n_neighbors": np.arange(1, 3)}),
        LEDLClassifierCV(alpha=[0.1], rules="classifier", kernels="linear", max_iter=5, tol=0),
        make_pipeline(FunctionTransformer(np.abs), KNeighborsClassifier(1)),
        make_pipeline(FunctionTransformer(lambda X: X), KNeighborsClassifier(1)),
        KNeighborsClassifier,
    ],
)
def test_cells_of_any_method_are_kept(method, samples, tmp_path, monkeypatch):
    plan = Plan([samples], [("mine", method)], **QUICK)
    once = reproduce(plan, tmp_path, figures=False)
    assert not once.failures + once.remarks
    monkeypatch.setattr(_reproduce, "try_cell", None)  # nothing is computed again
    again = reproduce(plan, tmp_path, figures=False)
    assert again.rows == once.rows
    assert not again.failures + again.remarks


def test_a_search_in_a_method_is_a_part_of_its_time(samples, tmp_path):
    search = RandomizedSearchCV(SVC(), {"C": [1.0, 10.0]}, n_iter=2, cv=2, random_state=0)
    row = reproduce(Plan([samples], [("mine", search)], **QUICK), tmp_path, figures=False).rows[0]
    assert row.select_seconds > row.fit_seconds > 0
    assert json.loads(read(tmp_path / "splits.csv")[0]["settings"]).keys() == {"C"}


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_file_that_is_written_again_is_read_again(n_jobs, samples, tmp_path):
    def accuracy():
        return (
            reproduce(Plan([samples], ["crc"], **QUICK), tmp_path, n_jobs=n_jobs, figures=False)
            .rows[0]
            .accuracy_mean
        )

    assert accuracy() > 60
    X, y = load_iris(return_X_y=True)
    np.savez(samples, X=np.random.default_rng(0).standard_normal(X.shape), y=y)
    assert accuracy() < 50


def test_a_file_that_changes_during_the_run(samples, tmp_path):
    def change(progress):
        if progress.n_done:
            np.savez(samples, X=np.random.default_rng(0).standard_normal((30, 2)), y=np.arange(30) % 2)

    with pytest.raises(ValueError, match="was changed during the run"):
        reproduce(Plan([samples], ["crc"], n_per_class=3, n_splits=1), tmp_path, figures=False, watch=change)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_results_are_of_the_code_that_the_file_has(n_jobs, samples, tmp_path, monkeypatch):
    """Who edits the file in a notebook gets an error, or after a reload the new results: in workers, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"edited_{n_jobs}"
    text = (
        "from sklearn.neighbors import KNeighborsClassifier\n"
        "def changed(labels):\n    return labels * {}\n"
        "class Mine(KNeighborsClassifier):\n"
        "    def predict(self, X):\n        return changed(super().predict(X))\n"
    )

    def accuracy():
        plan = Plan([samples], [f"{name}:Mine"], **QUICK)
        return reproduce(plan, "out", n_jobs=n_jobs, figures=False).rows[0].accuracy_mean

    path = tmp_path / f"{name}.py"
    path.write_text(text.format(1))
    assert accuracy() > 60
    path.write_text(text.format(0))
    with pytest.raises(ValueError, match=f"{name}.py has changed since it was imported"):
        accuracy()
    importlib.reload(sys.modules[name])
    assert accuracy() == pytest.approx(100 / 3)


def test_results_are_of_the_values_that_parameters_hold(samples, tmp_path):
    """What `repr` shows of a distribution, or of a long array, is the same for others."""

    def accuracy(low, high):
        search = RandomizedSearchCV(SVC(kernel="rbf", gamma=1), {"C": uniform(low, high - low)}, n_iter=1, cv=2)
        plan = Plan([samples], [("mine", search)], select="defaults", **QUICK)
        return reproduce(plan, tmp_path / "out", figures=False).rows[0].accuracy_mean

    def shown(labels):
        known = FunctionTransformer(partial(np.take, np.asarray(labels)), check_inverse=False)
        plan = Plan([samples], [("mine", make_pipeline(known, SVC()))], **QUICK)
        return [cell.identity for cell in plan.cells()]

    first = accuracy(1e-9, 2e-9)
    n_cells = len(list(tmp_path.glob("out/cells/*/*")))
    np.random.rand()  # noqa: NPY002 - a distribution holds NumPy's own generator
    assert accuracy(1e-9, 2e-9) == first
    assert len(list(tmp_path.glob("out/cells/*/*"))) == n_cells
    assert first < accuracy(99, 100)
    zeros = np.zeros(5000)
    other = zeros.copy()
    other[2500] = 1
    assert shown(zeros) == shown(np.zeros(5000)) != shown(other)


def test_estimators_in_a_grid_stay_as_they_are_and_are_seeded(samples, tmp_path):
    forests = [RandomForestClassifier(n, max_features=1) for n in (1, 2)]
    steps = Pipeline([("scale", PCA(2)), ("of", SVC())])
    scales = [StandardScaler(), Normalizer(), "passthrough"]
    grid = GridSearchCV(steps, [{"scale": scales, "of": forests}, {"of": forests, "of__max_depth": [1, 2]}])
    first, other = (
        reproduce(Plan([samples], [("mine", grid)], **QUICK), tmp_path / name, figures=False) for name in "ab"
    )
    assert not first.failures
    assert [row.accuracy_mean for row in first.rows] == [row.accuracy_mean for row in other.rows]
    assert all(forest.random_state is None and not hasattr(forest, "estimators_") for forest in forests)
    progress = []
    plan = Plan([samples], [("mine", grid)], **QUICK)
    reproduce(plan, tmp_path / "a", figures=False, watch=lambda now: progress.append(now.n_done))
    assert progress == [2]  # all are found again


def test_a_worker_with_another_version_of_the_code_is_not_used(samples):
    plan = Plan([samples], [tuned], **QUICK)
    (cell, *_), (method,) = plan.cells(), plan.own
    assert not find_trouble([(cell, as_json(cell.identity))], None)
    older = replace(cell, own=replace(method, source={**method.source, "own_method": "older"}))
    found = find_trouble([(older, as_json(older.identity))], None)
    assert "with a difference in source" in found
    assert "methods of your own" in found


def test_all_and_one_more(samples, tmp_path, monkeypatch):
    plans = []
    monkeypatch.setattr(_reproduce, "check", lambda plan, figures: plans.append(plan) or sys.exit())
    for words in (["--methods", "all", "sklearn.svm:SVC"], ["sklearn.svm:SVC"], []):
        CliRunner().invoke(app, ["reproduce", *words, "--data", str(samples), "--out", str(tmp_path / "out")])
    assert [plan.methods for plan in plans] == [
        (*SUPERVISED, "sklearn.svm:SVC"),
        ("sklearn.svm:SVC",),
        SUPERVISED,
    ]


@pytest.mark.parametrize("text", ["class X(:\n", "x = unknown\n"])
def test_a_module_with_a_mistake(text, samples, tmp_path):
    (tmp_path / "mistake.py").write_text(text)
    words = ["reproduce", "--methods", "mistake:x", "--data", samples.name, "--out", "out"]
    run = [sys.executable, "-m", "ledl", *words]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "cannot be imported" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failure_of_ones_own_is_reported_and_the_others_go_on(tmp_path):
    plan = Plan(methods=["crc", ("mine", SVC(C=-1.0))], **QUICK)
    outcome = reproduce(plan, tmp_path, figures=False)
    assert [row.method for row in outcome.rows] == ["crc"]
    assert "mine, split 0: InvalidParameterError" in outcome.failures[0]


def test_names_of_the_table_are_unchanged():
    assert Plan().methods == tuple(name for name, method in METHODS.items() if not method.unlabelled)
