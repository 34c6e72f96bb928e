"""
Choosing the weights: BatchedSearchCV
=====================================

LEDL has three weights, and fits in a fraction of a second. A grid over them is
hundreds of tiny fits. :class:`~ledl.BatchedSearchCV` stacks candidates and folds and
solves them side by side. The scores are those of scikit-learn's ``GridSearchCV``. On a
GPU dozens of small fits take the time of one (:doc:`/performance`).
"""

# %%
# The search
# ----------
# Use it as ``GridSearchCV``. It has the same ``cv_results_``.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from ledl import BatchedSearchCV, LEDLClassifier
from ledl.datasets import few_shot_splits, load

digits = load("digits")
train, test = next(few_shot_splits(digits.target, n_per_class=5))
X, y = digits.data[train].astype(np.float64), digits.target[train]

grid = {
    "alpha": [2.0**e for e in range(-10, -2)],
    "label_weight": [2.0**e for e in (-6, -3, 0, 2, 4)],
}
folds = StratifiedKFold(5, shuffle=True, random_state=0)
model = LEDLClassifier(max_iter=30, tol=0, random_state=0)

started = time.perf_counter()
search = BatchedSearchCV(model, grid, cv=folds).fit(X, y)
batched_seconds = time.perf_counter() - started
n_candidates = len(search.cv_results_["params"])
print(f"{n_candidates} candidates, {search.n_splits_} folds: {batched_seconds:.1f} s")
print(f"best: {search.best_params_}, {100 * search.best_score_:.1f} % in the folds")

# %%
# The same scores as scikit-learn's
# ---------------------------------

started = time.perf_counter()
one_by_one = GridSearchCV(model, grid, cv=folds).fit(X, y)
print(f"GridSearchCV: {time.perf_counter() - started:.1f} s")

difference = (
    search.cv_results_["mean_test_score"] - one_by_one.cv_results_["mean_test_score"]
)
print(f"largest difference of a score: {np.abs(difference).max()}")

# %%
# What it found
# -------------
# Accuracy changes most along a row, with ``alpha``. Along a column, with the weight of
# the labels, it hardly changes, except for the largest alpha. The best alpha differs
# between datasets (:doc:`/defaults`).

scores = np.asarray(search.cv_results_["mean_test_score"]).reshape(
    len(grid["alpha"]), -1
)

fig, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
image = ax.imshow(100 * scores.T, cmap="viridis", aspect="auto", origin="lower")
ax.set_xticks(
    range(len(grid["alpha"])), [f"$2^{{{np.log2(a):.0f}}}$" for a in grid["alpha"]]
)
ax.set_yticks(
    range(len(grid["label_weight"])),
    [f"$2^{{{np.log2(w):.0f}}}$" for w in grid["label_weight"]],
)
row, column = np.unravel_index(search.best_index_, scores.shape)
ax.scatter(row, column, s=220, facecolors="none", edgecolors="#dc2626", linewidths=2)
ax.set(
    xlabel="alpha",
    ylabel="label_weight",
    title="accuracy in cross-validation, %; the choice is circled",
)
fig.colorbar(image)

# %%
# The choice on test images
# -------------------------
# The search predicts with the best candidate, fitted on all training images. With fifty
# images the choice is noisy: neighbouring cells of the map differ by one or two images.

default = LEDLClassifier(random_state=0).fit(X, y)
X_test, y_test = digits.data[test].astype(np.float64), digits.target[test]
print(f"chosen:   {100 * search.score(X_test, y_test):.1f} %")
print(f"defaults: {100 * default.score(X_test, y_test):.1f} %")
