"""Fixtures shared by all tests."""

import logging
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ledl.datasets._load import registry

os.environ.pop("PYTHONUNBUFFERED", None)  # commands are tested as users run them


def pytest_collection_modifyitems(items):
    """Run modules that use the cluster last: its scheduler would disturb tests that count memory or fork."""
    users = {item.path for item in items if {"backend", "cluster"} & {*getattr(item, "fixturenames", ())}}
    items.sort(key=lambda item: item.path in users)


def pytest_runtest_setup(item):
    if item.get_closest_marker("torch"):
        if not (find_spec("torch") and find_spec("array_api_compat")):
            pytest.skip("needs PyTorch: the extra gpu")
        import torch

        torch.set_num_threads(1)  # threads wait for each other where cores are shared, and problems are small


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def require_dataset():
    """Return a function that skips a test if a prepared dataset is missing."""

    def require(name):
        home = os.environ.get("LEDL_DATA")
        file = registry()[name].files[0].names[0]
        if not home or not (Path(home) / file).is_file():
            pytest.skip(f"the dataset {name!r} is not here: set LEDL_DATA to the folder with {file}")

    return require


@pytest.fixture(scope="session")
def cluster():
    """Two worker processes of one thread."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    dask = pytest.importorskip("dask")
    # No dashboard, and any free port: dashboard_address=None takes a fixed port, and warns if another cluster
    # has it. Workers keep their files away from the tests. On a busy machine they are not paused or ended.
    steady = {"distributed.worker.memory.pause": False, "distributed.worker.memory.terminate": False}
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set(steady),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            local_directory=folder,
            silence_logs=logging.ERROR,
        ) as started,
    ):
        yield started


@pytest.fixture
def client(cluster):
    """A client of the cluster; it is Dask's default scheduler while a test runs."""
    from distributed import Client

    with Client(cluster) as connected:
        yield connected


@pytest.fixture(params=["dask", "loky"])
def backend(request):
    """The name of a backend of joblib whose workers are processes. The cluster runs if it is Dask's."""
    if request.param == "dask":
        request.getfixturevalue("client")
    return request.param


@pytest.fixture(
    params=[
        pytest.param("cpu", marks=pytest.mark.torch),
        pytest.param("cuda", marks=[pytest.mark.torch, pytest.mark.gpu]),
    ]
)
def device(request):
    """The name of a PyTorch device: the host, and a GPU if there is one."""
    import torch

    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return request.param
