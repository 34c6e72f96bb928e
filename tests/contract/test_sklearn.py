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
    LEDLClassifier(rule="joint"),
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


# With several starts LEDL refuses partial_fit, and memory-maps that it would otherwise visit where they are.
CALL_PARTIAL_FIT = (
    "check_estimators_partial_fit_n_features",
    "check_fit_score_takes_y",
    "check_n_features_in_after_fitting",
)


@pytest.mark.filterwarnings("ignore:n_components=1 is fewer:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([LEDLClassifier(n_init=2)])
def test_contract_of_several_starts(estimator, check):
    name = check.func.__name__
    # One check means the model's own arrays by that.
    with_file = check.keywords.get("readonly_memmap", False) and name != "check_estimators_pickle"
    if name in CALL_PARTIAL_FIT:
        with pytest.raises(ValueError, match=r"n_init=2.*partial_fit learns from one"):
            check(estimator)
    elif with_file or name == "check_readonly_memmap_input":
        with pytest.raises(ValueError, match=r"n_init=2.*samples in memory"):
            check(estimator)
    else:
        check(estimator)
