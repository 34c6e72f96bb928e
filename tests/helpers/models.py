"""The registry of models: one of every kind that behaves differently, quick to fit. Clone before use."""

from nearest_subspace import NearestSubspaceClassifier  # examples/: what the documentation builds
from sklearn.base import clone

from ledl import (
    KSVD,
    CRCClassifier,
    CSDLClassifier,
    DKSVDClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
    LEDLClassifierCV,
    ProCRCClassifier,
    SRCClassifier,
)

CLASSIFIERS = {
    "crc": CRCClassifier(),
    "crc-regularized": CRCClassifier(rule="regularized"),
    "crc-rbf": CRCClassifier(kernel="rbf"),
    "procrc": ProCRCClassifier(),
    "csdl": CSDLClassifier(max_iter=5),
    "csdl-rbf": CSDLClassifier(max_iter=5, kernel="rbf"),
    "dksvd": DKSVDClassifier(max_iter=5),
    "dksvd-all": DKSVDClassifier(max_iter=5, init="all"),
    "lcksvd": LCKSVDClassifier(max_iter=5),
    "lcksvd-1": LCKSVDClassifier(max_iter=5, variant=1),
    "ledl": LEDLClassifier(max_iter=5, tol=0),
    "ledl-rbf": LEDLClassifier(max_iter=5, tol=0, kernel="rbf"),
    "ledl-residual": LEDLClassifier(max_iter=5, tol=0, rule="residual"),
    "ledl-regularized": LEDLClassifier(max_iter=5, tol=0, rule="regularized"),
    "ledl-cv": LEDLClassifierCV(max_iter=5, tol=0, alpha=[2**-4, 2**-7], ridge_alpha=2**-3),
    "nearest-subspace": NearestSubspaceClassifier(),
    "src": SRCClassifier(),
    "src-hellinger": SRCClassifier(kernel="hellinger"),
    "src-poly": SRCClassifier(kernel="poly", degree=2),
}
# Everything with a `fit`.
ESTIMATORS = {**CLASSIFIERS, "ksvd": KSVD(n_components=20, max_iter=3)}


def make(name, **params):
    """Return an unfitted copy of a model; of `params` it takes those that it has."""
    model = clone(ESTIMATORS[name])
    return model.set_params(**{key: value for key, value in params.items() if key in model.get_params()})
