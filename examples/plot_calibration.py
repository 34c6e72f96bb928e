"""
Probabilities that can be trusted
=================================

Scores of dictionary classifiers are residuals, or products of codes. The largest score
wins, but scores are not probabilities. scikit-learn's ``CalibratedClassifierCV`` turns
them into probabilities, for any of our classifiers.
:class:`~ledl.LEDLClassifierCV` does not need it: its ``predict_proba`` is calibrated.
"""

# %%
# Scores to probabilities
# -----------------------
# For each fold a model is fitted on the other training images. The fold itself then
# fits a map from scores to probabilities. Temperature scaling learns a single number
# for all classes, which suits few samples.

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss

from ledl import CRCClassifier
from ledl.datasets import few_shot_splits, load

digits = load("digits")
train, test = next(few_shot_splits(digits.target, n_per_class=20))
images = digits.data.astype(np.float64)
X, y, X_test, y_test = (
    images[train],
    digits.target[train],
    images[test],
    digits.target[test],
)

plain = CRCClassifier().fit(X, y)
calibrated = CalibratedClassifierCV(CRCClassifier(), method="temperature", cv=5).fit(
    X, y
)

probabilities = {
    "softmax of the scores": softmax(plain.decision_function(X_test), axis=1),
    "calibrated": calibrated.predict_proba(X_test),
}
for name, p in probabilities.items():
    accuracy = np.mean(plain.classes_[p.argmax(axis=1)] == y_test)
    loss = log_loss(y_test, p)
    print(f"{name:22s} accuracy {100 * accuracy:.1f} %, log loss {loss:.2f}")

# %%
# The reliability curve
# ---------------------
# Of the answers with a probability of 80 %, 80 % should be right. Plain scores differ
# so little that their softmax is always unsure: its answers are far better than their
# probabilities. After calibration the two agree better, and what is left is on the
# cautious side.


def reliability(p, n_bins=8):
    """Return mean confidence and share of right answers, in bins of equal size."""
    sure, right = p.max(axis=1), plain.classes_[p.argmax(axis=1)] == y_test
    bins = np.array_split(np.argsort(sure), n_bins)
    return np.array([(sure[b].mean(), right[b].mean()) for b in bins]).T


# sphinx_gallery_thumbnail_number = 1
fig, (ax, below) = plt.subplots(
    2, 1, figsize=(5.4, 5.6), layout="constrained", height_ratios=[3, 1], sharex=True
)
ax.plot([0, 1], [0, 1], color="black", linewidth=0.8, label="ideal")
for (name, p), color, marker in zip(
    probabilities.items(), ["#64748b", "#c2410c"], "so", strict=True
):
    ax.plot(*reliability(p), marker=marker, color=color, label=name)
    below.hist(p.max(axis=1), bins=np.linspace(0, 1, 41), color=color, alpha=0.8)
ax.set(ylabel="share of right answers", ylim=(-0.03, 1.03), xlim=(0, 1.02))
ax.legend(loc="lower right")
ax.grid(alpha=0.25)
below.set(xlabel="confidence: probability of the answer given", ylabel="images")

# %%
# What to do with them
# --------------------
# A model that knows its doubts can leave the doubtful images to somebody else.

p = probabilities["calibrated"]
right = plain.classes_[p.argmax(axis=1)] == y_test
for least in (0.0, 0.5, 0.8, 0.95):
    kept = p.max(axis=1) >= least
    share, accuracy = kept.mean(), right[kept].mean()
    print(
        f"confidence {least:4.0%} and more: {share:4.0%} of all, {accuracy:.1%} right"
    )
