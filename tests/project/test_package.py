"""What importing the package costs, and what it names."""

import json
import subprocess
import sys

import pytest

import ledl

# Packages that ours works without, and the modules that are made for them, by the beginning of their names.
OPTIONAL = {
    "PIL": (),
    "array_api_compat": (),
    "dask": (),
    "distributed": (),
    "matplotlib": (),
    "numba": ("ledl.solvers.compiled.",),
    "onnxruntime": (),
    "pandas": (),
    "pooch": (),
    "rich": ("ledl.cli",),
    "torch": ("ledl.solvers.compiled.triton",),
    "torchvision": (),
    "triton": ("ledl.solvers.compiled.triton",),
    "typer": ("ledl.cli",),
}
IMPORT_ALL = """
import importlib, json, pkgutil, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {blocked!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Blocker())
import ledl
failed = {{}}
for module in pkgutil.walk_packages(ledl.__path__, "ledl.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        failed[module.name] = str(error)
print(json.dumps(failed))
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"numpy", "scipy", "sklearn", "numba", "torch", "matplotlib", "typer", "pandas"}
    loaded = run("import sys, ledl; print(*{name.split('.')[0] for name in sys.modules})")
    assert not heavy & set(loaded.split())


def test_importing_the_classifier_loads_no_compiler():
    loaded = run("import sys; from ledl import LEDLClassifier, sparse_encode; print('numba' in sys.modules)")
    assert loaded.strip() == "False"


def test_public_names():
    for name in ledl.__all__:
        assert getattr(ledl, name) is not None
    assert set(dir(ledl)) == set(ledl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ledl.nonsense


@pytest.mark.parametrize("blocked", OPTIONAL)
def test_every_module_can_be_imported_without(blocked):
    failed = json.loads(run(IMPORT_ALL.format(blocked=blocked)))
    triton = {
        name for name in failed if name.endswith(".triton")
    }  # needs two packages, which may both be missing
    assert {name for name in failed if not name.startswith(OPTIONAL[blocked])} <= triton
    for name in OPTIONAL[blocked]:  # the table says no more than is true
        assert any(module.startswith(name) for module in failed)
