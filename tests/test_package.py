"""What importing the package costs, and what it names."""

import subprocess
import sys

import pytest

import ledl


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
