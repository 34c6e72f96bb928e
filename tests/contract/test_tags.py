"""The tag `poor_score` frees from scikit-learn's check of accuracy: only where it is missed."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags, shuffle

from ledl import (
    CRCClassifier,
    CSDLClassifier,
    DKSVDClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
    LEDLClassifierCV,
    SRCClassifier,
)

WANTED = 0.83


def accuracy(model):
    """As in scikit-learn's check_classifiers_train: three blobs in the plane."""
    X, y = shuffle(*make_blobs(n_samples=300, random_state=0), random_state=7)
    X = StandardScaler().fit_transform(X)
    model = clone(model)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    return model.fit(X, y).score(X, y)


@pytest.mark.parametrize("rule", ["residual", "regularized"])
def test_no_alpha_gives_crc_the_accuracy(rule):
    scores = [accuracy(CRCClassifier(alpha=alpha, rule=rule)) for alpha in 2.0 ** np.arange(-12, 7, 2)]
    assert max(scores) <= WANTED


@pytest.mark.parametrize(
    "model",
    [
        CRCClassifier(),
        CSDLClassifier(),
        DKSVDClassifier(),
        LCKSVDClassifier(),
        LCKSVDClassifier(variant=1, n_nonzero_coefs=1),
        LEDLClassifier(),
        LEDLClassifier(rule="residual"),
        LEDLClassifier(rule="regularized"),
        LEDLClassifierCV(alpha=[2**-4, 2**-7], ridge_alpha=[2**-1, 2**-5]),
        SRCClassifier(),
        SRCClassifier(kernel="rbf"),
    ],
    ids=str,
)
def test_the_tag_is_set_where_the_accuracy_is_missed(model):
    assert get_tags(model).classifier_tags.poor_score == (accuracy(model) <= WANTED)
