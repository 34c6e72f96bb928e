"""Check the examples, the README and the links between pages, and the classifier of the tutorial."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from nearest_subspace import NearestSubspaceClassifier
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from sklearn.utils.estimator_checks import parametrize_with_checks

from ledl.datasets import available, few_shot_splits, load
from ledl.features import IMAGENET, NetworkFeatures

FOLDER = Path(__file__).parents[2] / "examples"
README = FOLDER.parent / "README.md"
PAGES = (FOLDER.parent / "docs").glob("*.md")
EXAMPLES = sorted(FOLDER.glob("plot_*.py"))
DATASETS = {"plot_faces": "yaleb", "plot_cnn_features": "ucmerced"}


def run(example, folder, **environment):
    """Run an example in a process and a folder of its own, so that it cannot disturb other tests."""
    settings = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-W", "error", str(example)]
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)


def test_there_are_examples():
    assert len(EXAMPLES) >= 8
    for example in EXAMPLES:
        head = example.read_text("utf-8").split('"""')[1]
        assert head.strip().splitlines()[1].startswith("==="), f"{example.name} has no title"


def test_the_first_example_runs(tmp_path):
    done = run(FOLDER / "plot_digits.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "accuracy on the test images" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example, tmp_path):
    needed = DATASETS.get(example.stem, "digits")
    if needed not in {found.name for found in available() if found.status == "here"}:
        pytest.skip(f"{needed} is not here")
    done = run(example, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dataset"), DATASETS.items())
def test_examples_use_no_other_data_if_their_dataset_is_missing(name, dataset, tmp_path):
    done = run(FOLDER / f"{name}.py", tmp_path, LEDL_DATA=str(tmp_path))
    assert done.returncode == 1
    assert not done.stdout
    assert "FileNotFoundError" in done.stderr
    assert dataset in done.stderr


def test_examples_name_every_dataset_that_they_need():
    for example in EXAMPLES:
        loaded = re.findall(r'load\("(\w+)"', example.read_text("utf-8"))
        assert set(loaded) <= {"digits", DATASETS.get(example.stem, "digits")}, example.name


# In place of torchvision: a small network of the same kind, with weights that do not depend on a download.
TORCHVISION = """
import types
import torch
from torch import nn

class SmallResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.maxpool, self.relu = nn.MaxPool2d(3, 2, 1), nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(8, 5)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.relu(x + self.bn2(self.conv2(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))

def resnet50(weights):
    assert weights == "DEFAULT"
    torch.manual_seed(0)
    return SmallResNet()

models = types.SimpleNamespace(resnet50=resnet50)
"""


@pytest.mark.torch
def test_the_export_of_a_network_in_the_documentation_runs(tmp_path, monkeypatch, rng):
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"needs {package}")
    page = (FOLDER.parent / "docs" / "datasets.md").read_text("utf-8")
    (recipe,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "onnx.export" in code]
    (tmp_path / "torchvision.py").write_text(TORCHVISION)
    (tmp_path / "recipe.py").write_text(recipe)
    done = subprocess.run(
        [sys.executable, "recipe.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names = {path.name for path in tmp_path.iterdir() if path.name != "__pycache__"}
    assert names == {"torchvision.py", "recipe.py", "resnet50.onnx"}  # no other file with weights
    import torch

    namespace = {}
    exec(TORCHVISION, namespace)
    network = namespace["resnet50"]("DEFAULT")
    network.fc = torch.nn.Identity()
    images = [rng.integers(0, 256, (40, 50 + i, 3), dtype=np.uint8) for i in range(3)]
    batch = np.stack([IMAGENET(Image.fromarray(image)) for image in images])
    with torch.inference_mode():
        expected = network.eval()(torch.from_numpy(batch)).numpy()
    extractor = NetworkFeatures(tmp_path / "resnet50.onnx", preprocessing=IMAGENET)
    assert_allclose(extractor.fit().transform(images), expected, atol=1e-5)
    assert extractor.output_ == "output features"


def test_the_python_code_of_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    names = {}
    exec(code, names)
    promised = float(re.search(r"model.score\(.*\)  # (0\.\d+)", code)[1])
    assert names["model"].score(names["X"][names["test"]], names["y"][names["test"]]) == pytest.approx(
        promised, abs=0.01
    )
    assert capsys.readouterr().out.strip()


def test_doors_of_the_readme_are_short():
    sections = re.split(r"\n(?=## )", README.read_text("utf-8"))
    doors = [section.splitlines() for section in sections if section.startswith("## I ")]
    assert len(doors) == 3
    for lines in doors:
        assert len(lines) < 25, lines[0]
        assert max(map(len, lines)) <= 150, lines[0]


@pytest.mark.parametrize(
    "page", [README, README.with_name("CONTRIBUTING.md"), *sorted(PAGES)], ids=lambda page: page.name
)
def test_links_between_pages_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        built_by_sphinx = link.startswith("gallery/")
        if "://" not in link and not built_by_sphinx:
            assert (page.parent / link).exists(), link


@parametrize_with_checks([NearestSubspaceClassifier()])
def test_the_classifier_of_the_tutorial_passes_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("n_dimensions", [1, 3, 5])
def test_its_scores_are_those_of_scikit_learns_svd(n_dimensions):
    digits = load("digits")
    train, test = next(few_shot_splits(digits.target, n_per_class=8))
    X, y, new = digits.data[train].astype(float), digits.target[train], digits.data[test[:200]].astype(float)
    model = NearestSubspaceClassifier(n_dimensions=n_dimensions).fit(X, y)
    unit = normalize(new)
    residuals = []
    for label in model.classes_:
        svd = TruncatedSVD(n_dimensions, algorithm="arpack", random_state=0).fit(normalize(X[y == label]))
        rest = unit - svd.inverse_transform(svd.transform(unit))
        residuals.append((rest**2).sum(axis=1))
    assert_allclose(model.decision_function(new), -np.array(residuals).T, atol=1e-10)
    assert_array_equal(model.predict(new), np.argmin(residuals, axis=0))
    assert model.score(digits.data[test], digits.target[test]) > 0.8


@pytest.mark.torch
def test_it_takes_tensors_and_devices():
    import torch

    digits = load("digits")
    train, test = next(few_shot_splits(digits.target))
    X, y, new = digits.data[train].astype(float), digits.target[train], digits.data[test[:50]].astype(float)
    model = NearestSubspaceClassifier().fit(X, y)
    scores = model.decision_function(new)
    found = model.decision_function(torch.asarray(new))
    assert isinstance(found, torch.Tensor)
    assert_allclose(found.numpy(), scores, atol=1e-12)
    assert_allclose(model.set_params(device="cpu").decision_function(new), scores, atol=1e-12)
    fitted = NearestSubspaceClassifier().fit(torch.asarray(X), torch.asarray(y))
    assert_allclose(fitted.decision_function(new), scores, atol=1e-12)
