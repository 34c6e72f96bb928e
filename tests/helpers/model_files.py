"""Models of every kind that files hold, and files that were tampered with."""

import hashlib
import json

import numpy as np
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
    RejectingClassifier,
    SRCClassifier,
)

QUICK = {"max_iter": 3, "tol": 0, "random_state": 0}
FEW = {"n_components": 6, "n_nonzero_coefs": 2, **QUICK}
# Of each kind, unfitted; all take few samples of few features.
MODELS = {
    "crc": CRCClassifier(),
    "crc-regularized": CRCClassifier(rule="regularized", normalize=False),
    "crc-rbf": CRCClassifier(kernel="rbf"),
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
    "pipeline": make_pipeline(StandardScaler(), PCA(4), "passthrough", Normalizer(), CRCClassifier()),
    "pipeline-nested": make_pipeline(make_pipeline(Normalizer(), MinMaxScaler()), SRCClassifier()),
    "pipeline-scaled": make_pipeline(MinMaxScaler(), SRCClassifier(kernel="hellinger")),
    "pipeline-ksvd": make_pipeline(KSVD(**FEW), RidgeClassifier()),
}


class Wrapper(BaseEstimator):
    """Holds an estimator as a parameter, and a fitted one as an attribute."""

    def __init__(self, estimator=None):
        self.estimator = estimator

    def fit(self, X, y):
        self.estimator_ = clone(self.estimator).fit(X, y)
        return self

    def predict(self, X):
        return self.estimator_.predict(X)


SCORES = ("decision_function", "predict", "transform")


def samples(kernel="linear", n_features=12):
    """Training samples, labels and new samples: the digits 0 to 2, a few of their middle pixels."""
    X, y = load_digits(n_class=3, return_X_y=True)
    X = X[:, 20 : 20 + n_features] + 1.0
    X, y, new = X[:9], y[:9], X[9:14]
    if kernel == "precomputed":
        X, new = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (X, new))
        return X @ X.T, y, new @ X.T
    return X, y, new


def fitted(name):
    """One of `MODELS`, with new samples."""
    model = clone(MODELS[name])
    X, y, new = samples(getattr(model, "kernel", "linear"))
    return model.fit(X, y), new


def outcomes(model, new):
    """All that a model gives of new samples."""
    found = {}
    for name in SCORES:
        if hasattr(model, name) and not (name == "transform" and getattr(model, "solver", None) == "lsqr"):
            found[name] = getattr(model, name)(new)
    return found


def header_of(content):
    """The header of a file, and where its arrays begin."""
    end = 16 + int.from_bytes(content[8:16], "little")
    return json.loads(content[16:end]), end


def sealed(header, arrays):
    """A file with that header, JSON or text, those bytes and a checksum that is right."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-(16 + len(text)) % 64)
    return resealed(b"\x89LEDL\r\n\x1a" + len(text).to_bytes(8, "little") + text + arrays + bytes(32))


def resealed(content):
    """A file with the checksum of what it has become."""
    return content[:-32] + hashlib.sha256(content[:-32]).digest()
