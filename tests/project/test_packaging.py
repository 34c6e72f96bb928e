"""What is in the packages that are published; `make packages` installs them, with each extra alone."""

import email
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import ledl

ROOT = Path(__file__).parents[2]
DATA = {
    "ledl/py.typed",
    "ledl/datasets/registry.toml",
    "ledl/datasets/caltech101_classes.txt",
    "ledl/templates/base.html",
    "ledl/templates/report.js",
    "ledl/labelling/static/index.html",
}


def build(source, out):
    """Wheel and sdist, by the tool that pip would take for it."""
    pytest.importorskip("hatchling", reason="hatchling builds the packages; it is in the group test")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("not in a checkout or an sdist")
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def in_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def in_sdist(sdist):
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def in_repository(folder):
    """Modules and data beneath a folder; what Python and tools leave there is none."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder.parent).as_posix() for path in found if path.suffix != ".pyc"}


def test_the_wheel_has_the_package_its_data_and_nothing_else(packages):
    files = in_wheel(packages[0])
    package = {name for name in files if name.startswith("ledl/")}
    assert package == in_repository(ROOT / "src" / "ledl")
    assert package >= DATA
    info = f"ledl-{ledl.__version__}.dist-info"
    rest = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    assert files - package == {f"{info}/{name}" for name in rest}


def test_the_sdist_has_all_that_builds_and_tests_need(packages):
    files = in_sdist(packages[1])
    assert files >= {f"src/{name}" for name in in_repository(ROOT / "src" / "ledl")}
    assert files >= in_repository(ROOT / "tests")
    assert files >= {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile"}
    assert not [name for name in files if "__pycache__" in name or name.startswith((".venv", "dist"))]


def test_the_sdist_gives_the_same_wheel(packages, tmp_path):
    with tarfile.open(packages[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again, _ = build(source, tmp_path / "dist")
    first, second = (zipfile.ZipFile(path) for path in (packages[0], again))
    with first, second:
        assert {i.filename: i.CRC for i in first.infolist()} == {i.filename: i.CRC for i in second.infolist()}


def test_metadata(packages):
    with zipfile.ZipFile(packages[0]) as archive:
        info = f"ledl-{ledl.__version__}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        commands = archive.read(f"{info}/entry_points.txt").decode()
    assert metadata["Version"] == ledl.__version__
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert set(metadata.get_all("Provides-Extra")) == {
        "plots",
        "progress",
        "images",
        "heic",
        "download",
        "gpu",
        "dask",
        "cli",
        "photos",
        "label",
    }
    (gpl,) = [r for r in metadata.get_all("Requires-Dist") if "pillow-heif" in r]
    assert gpl.endswith("extra == 'heic'")
    plain = [r for r in metadata.get_all("Requires-Dist") if "extra ==" not in r]
    names = {r.partition(">")[0].strip() for r in plain}
    assert names == {"numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl", "numba", "safetensors"}
    assert "ledl = ledl.__main__:main" in commands


def test_one_version_everywhere():
    assert version("ledl") == ledl.__version__
    done = subprocess.run(
        [sys.executable, "-m", "ledl", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["ledl", ledl.__version__]
