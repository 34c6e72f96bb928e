"""scikit-learn's own checks, for every estimator, all passing but where a stream needs n_components."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ledl import (
    KSVD,
    CRCClassifier,
    CSDLClassifier,
    DKSVDClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
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
    LEDLClassifier(n_components=30),
    SRCClassifier(),
    SRCClassifier(kernel="rbf"),
]


def expected_failures(estimator):
    """Checks that call partial_fit of a new model: by default n_components is twice the number of samples."""
    if not hasattr(estimator, "partial_fit") or estimator.n_components is not None:
        return {}
    names = ("check_estimators_partial_fit_n_features", "check_n_features_in_after_fitting")
    return dict.fromkeys(names, "a stream does not know its number of samples: partial_fit needs n_components")


# Some checks give two-dimensional blobs and few iterations, or set n_components=1: neither is what they test.
@pytest.mark.filterwarnings("ignore:n_components=1 is fewer:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_contract(estimator, check):
    check(estimator)
