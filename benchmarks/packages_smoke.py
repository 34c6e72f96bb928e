"""Run by `packages.py` in an environment with one extra: a model, and all that needs an extra.

    python -I benchmarks/packages_smoke.py EXTRA NETWORK.onnx

What an extra is for must work where it is installed, and elsewhere raise an error that names it.
"""

import hashlib
import http.server
import io
import os
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

warnings.simplefilter("error")

# The extras that bring what each is for: cli draws figures and shows progress, too.
GIVEN_BY = {
    "plots": {"plots", "cli", "photos", "label"},
    "progress": {"progress", "cli", "photos", "label"},
    "images": {"images", "photos"},
    "download": {"download"},
    "gpu": {"gpu"},
    "dask": {"dask"},
    "cli": {"cli", "photos", "label"},
    "photos": {"photos"},
    "label": {"label"},
}


def fit_a_model():
    import ledl

    assert version("ledl") == ledl.__version__, (version("ledl"), ledl.__version__)
    heavy = {"numpy", "sklearn", "torch", "matplotlib", "typer", "PIL", "onnxruntime", "pooch", "rich"}
    assert not heavy & set(sys.modules), f"import ledl loads {heavy & set(sys.modules)}"
    from sklearn.datasets import load_digits

    from ledl.datasets import few_shot_splits
    from ledl.datasets._load import registry

    assert len(registry()["caltech101"].target_names) > 100
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y))
    model = ledl.LEDLClassifier(random_state=0, max_iter=20, tol=0).fit(X[train], y[train])
    score = model.score(X[test], y[test])
    assert score > 0.75, score
    return model, X[train], y[train]


def plots(model, X, y, network):
    from ledl.plots import ConvergenceDisplay

    ConvergenceDisplay.from_estimator(model).figure_.savefig(io.BytesIO(), format="png")


def progress(model, X, y, network):
    from sklearn.base import clone
    from sklearn.callback import ProgressBar

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that callbacks are experimental
        clone(model).set_callbacks(ProgressBar()).fit(X, y)


def images(model, X, y, network):
    import numpy as np

    from ledl.features import IMAGENET, NetworkFeatures, PixelFeatures

    pictures = [np.full((20, 30, 3), value, np.uint8) for value in (10, 200)]
    assert PixelFeatures(size=8).fit_transform(pictures).shape == (2, 64)
    found = NetworkFeatures(network, preprocessing=IMAGENET).fit_transform(pictures)
    assert found.shape == (2, 4)
    assert np.isfinite(found).all()


def onnx_files(model, X, y, network):
    from ledl.features import IMAGENET, NetworkFeatures

    NetworkFeatures(network, preprocessing=IMAGENET).fit()


def download(model, X, y, network):
    """From this machine, an archive as small as can be in place of the real one."""
    from ledl.datasets import _load

    with tempfile.TemporaryDirectory() as folder:
        source, home = Path(folder) / "source", Path(folder) / "home"
        source.mkdir()
        with zipfile.ZipFile(source / "small.zip", "w") as archive:
            archive.writestr("images/cat/a.txt", "a")
        handler = partial(Quiet, directory=source)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            changed = {
                "url": f"http://127.0.0.1:{server.server_port}/small.zip",
                "archive": "small.zip",
                "archive_sha256": hashlib.sha256((source / "small.zip").read_bytes()).hexdigest(),
                "inner": "",
                "only": "images",
            }
            entry = _load.Bunch(**_load.registry()["caltech101"] | changed)
            try:
                _load._download(entry, home)
            finally:
                server.shutdown()
        assert (home / "images" / "cat" / "a.txt").read_text() == "a"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


def photos(model, X, y, network):
    """The network that pip installs, written to an empty cache."""
    import numpy as np

    from ledl.features import NetworkFeatures

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        found = NetworkFeatures("efficientnet_lite0").fit_transform([np.zeros((90, 80, 3), np.uint8)])
        assert found.shape == (1, 1280)


def gpu(model, X, y, network):
    """PyTorch on the processors: the same codes."""
    import numpy as np
    from sklearn.base import clone

    scores = model.decision_function(X)
    tensors = clone(model).set_params(device="cpu").fit(X, y).decision_function(X)
    assert np.allclose(scores, tensors, atol=1e-3)


def dask(model, X, y, network):
    """A fit on a cluster, and lazy labels."""
    from sklearn.datasets import load_digits

    from ledl.experiments import Plan, reproduce

    if find_spec("distributed") is None:
        with tempfile.TemporaryDirectory() as out:
            reproduce(Plan(), out, figures=False, dask="tcp://127.0.0.1:1")
    import dask.array as da
    from distributed import Client, LocalCluster
    from sklearn.base import clone

    X, y = (values[:200] for values in load_digits(return_X_y=True))
    one = clone(model).set_params(n_components=30).fit(X, y)
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options) as cluster, Client(cluster):
        chunks = da.from_array(X, chunks=(64, 64))
        same = clone(one).fit(chunks, y).predict(chunks).compute()
    assert (same == one.predict(X)).all()


def cli(model, X, y, network):
    for words in (["--help"], ["--version"], ["reproduce", "--help"]):
        done = subprocess.run([sys.executable, "-m", "ledl", *words], capture_output=True, text=True)
        if done.returncode:
            raise ImportError(done.stderr)
    assert f"ledl {version('ledl')}" in subprocess.run(
        [Path(sys.executable).with_name("ledl"), "--version"], check=True, capture_output=True, text=True
    ).stdout  # fmt: skip
    with tempfile.TemporaryDirectory() as out:
        words = ["reproduce", "--methods", "crc", "--splits", "1", "--select", "defaults", "--out", out]
        subprocess.run([sys.executable, "-m", "ledl", *words], check=True, capture_output=True)
        assert (Path(out) / "report.html").is_file()


def pages(model, X, y, network):
    from ledl import explain
    from ledl.explanations import page

    assert page(explain(model, X[0])).startswith("<!doctype html>")


def label(model, X, y, network):
    with tempfile.TemporaryDirectory() as top:
        for i in range(20):
            (Path(top) / f"{i}.pgm").write_bytes(b"P5 8 8 255\n" + (15 * X[i]).astype("uint8").tobytes())
        words = [sys.executable, "-m", "ledl", "label", top, "--export", "labels.csv"]
        done = subprocess.run(words, cwd=Path(top).parent, capture_output=True, text=True)
        if "pip install" in done.stderr:
            raise ImportError(done.stderr)
        assert not done.returncode, done.stderr


USES = {
    "plots": [plots],
    "progress": [progress],
    "images": [images, onnx_files],
    "download": [download],
    "gpu": [gpu],
    "dask": [dask],
    "cli": [cli, pages],
    "photos": [photos],
    "label": [label],
}


def main(installed, network):
    model, X, y = fit_a_model()
    worked = []
    for extra, uses in USES.items():
        for use in uses:
            error = None
            try:
                use(model, X, y, network)
            except ImportError as missing:
                error = missing
            given, name = installed in GIVEN_BY[extra], use.__name__
            if given and error:
                raise error
            if use is pages and not given and not error:
                continue  # Jinja2 came with another package
            assert given or error, f"{name} works without {extra}: is that needed?"
            # A bar is scikit-learn's. A comparison on a cluster, and labels, need the commands first.
            named = ["rich"] if use is progress else [f"ledl[{extra}]"]
            named += ["ledl[cli]"] * (use in (dask, label))
            assert given or any(word in str(error) for word in named), f"{name} without its extra says: {error}"
            worked += [name] * given
    print(f"{installed}: fits; works: {', '.join(worked) or '-'}; the others name their extras")


if __name__ == "__main__":
    main(*sys.argv[1:])
