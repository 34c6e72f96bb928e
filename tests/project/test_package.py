"""What importing the package loads, and its public names."""

import json
import os
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
    "jinja2": (),
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
# A process that has loaded the large packages is forked for each package, and imports all modules without
# it.
IMPORT_ALL = """
import importlib, json, os, pkgutil, sys
optional = {optional!r}
for name in ("sklearn.model_selection", "numba", "torch", "triton", "typer"):  # what takes time
    try:
        importlib.import_module(name)
    except ImportError:
        pass
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == blocked:
            raise ImportError(name)
for blocked in optional:
    if os.fork():
        os.wait()
        continue
    for name in [name for name in sys.modules if name.partition(".")[0] == blocked]:
        del sys.modules[name]
    sys.meta_path.insert(0, Blocker())
    import ledl
    failed = {{}}
    for module in pkgutil.walk_packages(ledl.__path__, "ledl.", onerror=lambda name: None):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            failed[module.name] = str(error)
    print(json.dumps([blocked, failed]), flush=True)
    os._exit(0)
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"numpy", "scipy", "sklearn", "numba", "torch", "matplotlib", "typer", "pandas", "jinja2"}
    loaded = run("import sys, ledl; print(*{name.split('.')[0] for name in sys.modules})")
    assert not heavy & set(loaded.split())


def test_importing_classifiers_loads_no_compiler_and_no_dask():
    names = "LEDLClassifier, RejectingClassifier, sparse_encode"
    loaded = run(f"import sys; from ledl import {names}; print({{'numba', 'dask.array'}} & set(sys.modules))")
    assert loaded.strip() == "set()"


def test_public_names():
    for name in ledl.__all__:
        assert getattr(ledl, name) is not None
    assert set(dir(ledl)) == set(ledl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ledl.nonsense


@pytest.fixture(scope="module")
def failed_imports():
    """Modules that cannot be imported without each optional package."""
    return dict(map(json.loads, run(IMPORT_ALL.format(optional=list(OPTIONAL))).splitlines()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("blocked", OPTIONAL)
def test_every_module_can_be_imported_without(blocked, failed_imports):
    failed = failed_imports[blocked]
    # Triton's module needs two packages, which may both be missing.
    triton = {name for name in failed if name.endswith(".triton")}
    assert {name for name in failed if not name.startswith(OPTIONAL[blocked])} <= triton
    for name in OPTIONAL[blocked]:  # the table says no more than is true
        assert any(module.startswith(name) for module in failed)
