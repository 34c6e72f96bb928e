"""scikit-learn's own checks, for every estimator.

One check fails, and contract/test_weights.py passes it where it can be passed: integer weights equal copies at
equal `n_components` and start. The default number of atoms counts rows, and codes of CRC have a column a row.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

from helpers.models import make
from ledl import BatchedSearchCV, LEDLClassifierCV, RejectingClassifier

# Every class once, and one with a kernel, where `fit` and `predict` take another path. Rules and variants make
# other scores of the same codes: contract/test_classifiers.py has them.
NAMES = ["crc", "csdl", "dksvd", "ksvd", "lcksvd", "ledl", "src", "src-poly"]
# The search: the alphas of the registry are too large for blobs.
SEARCH = make("ledl-cv", alpha=[2**-6, 2**-9], kernels="linear", cv=2)
# Wrappers. Scores of a rejected sample do not say that it was rejected, which a check asks for.
WRAPPERS = [
    BatchedSearchCV(make("ledl", random_state=0), {"alpha": [2**-6, 2**-9]}, cv=2),
    RejectingClassifier(make("crc"), cv=2, reject=0),
    RejectingClassifier(make("ledl", random_state=0), cv=2, reject=0),
]


def expected_failures(estimator):
    if not has_fit_parameter(estimator, "sample_weight"):
        return {}
    found = {"check_sample_weight_equivalence_on_dense_data": "the default number of atoms counts rows"}
    if isinstance(estimator, LEDLClassifierCV):
        found["check_class_weight_classifiers"] = "weights of classes act in training, not in the choice"
    return found


# Some checks give two-dimensional blobs and few iterations, or set n_components=1: neither is what they test.
@pytest.mark.filterwarnings("ignore:n_components=1 is fewer:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [SEARCH, *WRAPPERS, *[make(name) for name in NAMES]], expected_failed_checks=expected_failures
)
def test_contract(estimator, check):
    check(estimator)
