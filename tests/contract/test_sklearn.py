"""scikit-learn's own checks, for every estimator, with no expected failure."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ledl import (
    KSVD,
    CRCClassifier,
    CSDLClassifier,
    DKSVDClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
    LEDLClassifierCV,
    SRCClassifier,
)

ESTIMATORS = [
    CRCClassifier(),
    CRCClassifier(rule="regularized"),
    CSDLClassifier(),
    DKSVDClassifier(),
    KSVD(),
    LCKSVDClassifier(),
    LCKSVDClassifier(variant=1, n_nonzero_coefs=1),
    LEDLClassifier(),
    LEDLClassifier(rule="residual"),
    LEDLClassifier(rule="regularized"),
    LEDLClassifierCV(alpha=[2**-4, 2**-7], ridge_alpha=[2**-1, 2**-5]),
    SRCClassifier(),
    SRCClassifier(kernel="rbf"),
]


# Some checks give two-dimensional blobs and few iterations, or set n_components=1: neither is what they test.
@pytest.mark.filterwarnings("ignore:n_components=1 is fewer:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_contract(estimator, check):
    check(estimator)
