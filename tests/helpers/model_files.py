"""Models of every kind that files hold, and files that were tampered with."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import safetensors.numpy
from numpy.testing import assert_array_equal
from safetensors import SafetensorError
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.svm import LinearSVC

from ledl import (
    KSVD,
    CRCClassifier,
    CSDLClassifier,
    DKSVDClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
    LEDLClassifierCV,
    ProCRCClassifier,
    RejectingClassifier,
    SemiSupervisedClassifier,
    SRCClassifier,
    load,
    save,
)

QUICK = {"max_iter": 3, "tol": 0, "random_state": 0}
FEW = {"n_components": 6, "n_nonzero_coefs": 2, **QUICK}
# Models of each kind, not fitted. All take few samples with few features.
MODELS = {
    "crc": CRCClassifier(),
    "crc-regularized": CRCClassifier(rule="regularized", normalize=False),
    "crc-rbf": CRCClassifier(kernel="rbf"),
    "procrc": ProCRCClassifier(kernel=0.25),
    "crc-precomputed": CRCClassifier(kernel="precomputed", normalize=False),
    "csdl": CSDLClassifier(**QUICK),
    "csdl-poly": CSDLClassifier(kernel="poly", degree=2, coef0=0.5, **QUICK),
    "dksvd": DKSVDClassifier(**FEW),
    "dksvd-all": DKSVDClassifier(init="all", **FEW),
    "ksvd": KSVD(**FEW),
    "lcksvd": LCKSVDClassifier(**FEW),
    "lcksvd-1": LCKSVDClassifier(variant=1, **FEW),
    "ledl": LEDLClassifier(n_components=6, **QUICK),
    "ledl-codes": LEDLClassifier(n_components=6, keep_codes=True, **QUICK),
    "ledl-regularized": LEDLClassifier(rule="regularized", ridge_alpha=0.1, n_components=6, **QUICK),
    "ledl-rbf": LEDLClassifier(kernel="rbf", n_components=6, **QUICK),
    "ledl-precomputed": LEDLClassifier(kernel="precomputed", normalize=False, n_components=6, **QUICK),
    "ledl-cv": LEDLClassifierCV(alpha=[0.1, 0.01], ridge_alpha=0.1, n_components=6, cv=2, **QUICK),
    "src": SRCClassifier(),
    "src-hellinger": SRCClassifier(kernel="hellinger"),
    "src-precomputed": SRCClassifier(kernel="precomputed", normalize=False),
    "lda": LinearDiscriminantAnalysis(),
    "lda-eigen": LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
    "lda-lsqr": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "logistic": LogisticRegression(C=np.inf, class_weight={0: 1.0, 1: 2.0, 2: 0.5}),
    "minmax": MinMaxScaler(),
    "normalizer": Normalizer(),
    "pca": PCA(3, whiten=True),
    "ridge": RidgeClassifier(),
    "ridge-plain": RidgeClassifier(fit_intercept=False),
    "standard": StandardScaler(),
    "standard-none": StandardScaler(with_mean=False, with_std=False),
    "svc": LinearSVC(random_state=0),
    "rejecting": RejectingClassifier(SRCClassifier(), reject=0.3, cv=3),
    "rejecting-pipeline": make_pipeline(
        Normalizer(),
        RejectingClassifier(
            make_pipeline(StandardScaler(), LEDLClassifier(n_components=6, **QUICK)), reject=0.3, cv=2
        ),
    ),
    "semi": SemiSupervisedClassifier(
        SRCClassifier(), methods=("learnt", "spread"), n_neighbors=3, random_state=0
    ),
    "semi-cv": SemiSupervisedClassifier(
        LEDLClassifierCV(alpha=[0.1, 0.01], ridge_alpha=0.1, n_components=6, **QUICK),
        methods=["spread"],
        n_neighbors=3,
        random_state=0,
    ),
    "semi-supervised": SemiSupervisedClassifier(LogisticRegression(), methods=("supervised",), random_state=0),
    "pipeline-semi": make_pipeline(
        StandardScaler(), SemiSupervisedClassifier(CRCClassifier(), n_neighbors=3, random_state=0)
    ),
    "rejecting-semi": RejectingClassifier(
        SemiSupervisedClassifier(SRCClassifier(), n_neighbors=3, random_state=0), reject=0.3
    ),
    "pipeline": make_pipeline(StandardScaler(), PCA(4), "passthrough", Normalizer(), CRCClassifier()),
    "pipeline-nested": make_pipeline(make_pipeline(Normalizer(), MinMaxScaler()), SRCClassifier()),
    "pipeline-scaled": make_pipeline(MinMaxScaler(), SRCClassifier(kernel="hellinger")),
    "pipeline-ksvd": make_pipeline(KSVD(**FEW), RidgeClassifier()),
}


class Wrapper(BaseEstimator):
    """Has an estimator as a parameter, and a fitted one as an attribute."""

    def __init__(self, estimator=None):
        self.estimator = estimator

    def fit(self, X, y):
        self.estimator_ = clone(self.estimator).fit(X, y)
        return self

    def predict(self, X):
        return self.estimator_.predict(X)


SCORES = ("decision_function", "predict", "predict_proba", "transform")


def samples(kernel="linear", n_features=12):
    """Return training samples, labels and new samples: the digits 0 to 2, a few of their middle pixels."""
    X, y = load_digits(n_class=3, return_X_y=True)
    X = X[:, 20 : 20 + n_features] + 1.0
    X, y, new = X[:9], y[:9], X[9:14]
    if kernel == "precomputed":
        X, new = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (X, new))
        return X @ X.T, y, new @ X.T
    return X, y, new


def fitted(name):
    """Return one of `MODELS`, fitted, and new samples."""
    model = clone(MODELS[name])
    X, y, new = samples(getattr(model, "kernel", "linear"))
    if "semi" in name:
        y = np.where(np.arange(len(y)) < 6, y, -1)  # two labels of each class, and three samples without
    return model.fit(X, y), new


def outcomes(model, new):
    """Return everything that a model computes from new samples."""
    found = {}
    for name in SCORES:
        if hasattr(model, name) and not (name == "transform" and getattr(model, "solver", None) == "lsqr"):
            found[name] = getattr(model, name)(new)
    return found


def round_trip(model, path):
    """Save a model, and load it again."""
    save(model, path)
    return load(path)


def assert_same(found, expected):
    """Check that values have the same types, shapes and bits."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.flags.writeable or not expected.flags.writeable
        assert found.flags.aligned
        assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    elif hasattr(expected, "__dict__") and not callable(getattr(type(expected), "__float__", None)):
        left_out = {"skipped_", "kept"}  # results of the last call, and values kept for speed
        found, expected = (
            {name: value for name, value in vars(one).items() if name not in left_out}
            for one in (found, expected)
        )
        assert_same(found, expected)
    else:
        assert found == expected or (found != found and expected != expected)


def unpacked(content):
    """Return the header of a file, as Python has it, and its tensors by name."""
    table, _ = table_of(content)
    return json.loads(table["__metadata__"]["ledl"][65:]), in_order(safetensors.numpy.load(content))


def packed(header, tensors):
    """Return a file with this header, JSON or text, with these tensors, and with a valid checksum."""
    text = header if isinstance(header, str) else json.dumps(header)
    return safetensors.numpy.save(tensors, {"ledl": f"{checksum(text, tensors)} {text}"})


def table_of(content):
    """Return what safetensors says of the tensors and the metadata, and the bytes of all tensors."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def with_table(table, data):
    """Return a safetensors file with this table, JSON or bytes, whatever it says."""
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


def resealed(content):
    """Return a file with a valid checksum, if safetensors can still read it. Otherwise return it as it is."""
    try:
        tensors, (table, data) = in_order(safetensors.numpy.load(content)), table_of(content)
        text = table["__metadata__"]["ledl"][65:]
        table["__metadata__"]["ledl"] = f"{checksum(text, tensors)} {text}"
    except (SafetensorError, LookupError, ValueError, TypeError):
        return content
    return with_table(table, data)


def in_order(tensors):
    return dict(sorted(tensors.items(), key=lambda item: int(item[0].split(".")[0])))


def checksum(text, tensors):
    """Return the checksum as docs/model_files.md defines it."""
    parts = [text.encode()]
    for name, tensor in tensors.items():
        parts += [f" {name} {tensor.dtype} {tensor.shape} ".encode(), tensor.tobytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def with_record(**changes):
    """Return a fitted CRC model whose dictionary has other fields."""
    model, _ = fitted("crc")
    model._dictionary = replace(model._dictionary, **changes)
    return model


def part(kind, **fields):
    """Return a part as a header has it."""
    return {"part": {"name": kind, "fields": fields}}


def tampered(content, *keys, value):
    """Return a file with another value in its header, at keys of it, of the estimator or of its dictionary."""
    header, tensors = unpacked(content)
    node = header if keys[0] in header else header["model"]["estimator"]
    if keys[0] == "dictionary":
        node, keys = node["state"]["_dictionary"]["part"]["fields"], keys[1:]
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    return packed(header, tensors)
