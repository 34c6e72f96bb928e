"""
Five labels, and the rest of the folder teaches
===============================================

Labels are expensive, images are not. :class:`~ledl.SemiSupervisedClassifier` learns
from a few labelled images and from all others without labels.
"""

# %%
# Five labels of each digit
# -------------------------
# The label -1 means that there is none, as everywhere in scikit-learn.

import matplotlib.pyplot as plt
import numpy as np

import ledl
from ledl.datasets import few_shot_splits, load

digits = load("digits")
X, truth = digits.data, digits.target
known, unknown = next(few_shot_splits(truth, n_per_class=5))
y = np.full(len(truth), -1)
y[known] = truth[known]

model = ledl.SemiSupervisedClassifier(random_state=0).fit(X, y)

alone = model.estimator_.score(X[unknown], truth[unknown])
together = np.mean(model.transduction_[unknown] == truth[unknown])
print(f"{len(known)} labels alone: {100 * alone:.1f} % of the other digits are right.")
print(f"With {len(unknown)} digits without labels: {100 * together:.1f} %.")

# %%
# Hidden labels choose the way
# ----------------------------
# Some of the 50 labels were hidden in turn. The way that found most of them was taken.

for method, found in zip(
    model.hidden_results_["method"], model.hidden_results_["accuracy"], strict=True
):
    mark = "  <- chosen" if method == model.method_ else ""
    print(f"{method:14s} found {100 * found:.0f} % of the hidden labels{mark}")

# %%
# Who carried an answer?
# ----------------------
# An answer is a sum over the labelled images: labels spread from image to image over
# near ones. Here is the least sure answer, with the labelled images that it came from.

sure = model.label_distributions_.max(axis=1)
doubtful = unknown[np.argmin(sure[unknown])]
explanation = ledl.explain(model, X[doubtful])
print(explanation)

# %%
# Images that are no digit
# ------------------------
# Labels reach images far away from all labelled ones less. So
# :class:`~ledl.RejectingClassifier` finds images that are of no known class. Here the
# digits 7, 8 and 9 have no label, but their images are in the folder.

few = np.where(y < 7, y, -1)
rejecting = ledl.RejectingClassifier(
    ledl.SemiSupervisedClassifier(random_state=0), reject=0.1
).fit(X, few)
answers = rejecting.predict(X[unknown])
for name, own in (("0 to 6", truth[unknown] < 7), ("7 to 9", truth[unknown] >= 7)):
    print(f"{name}: {100 * np.mean(answers[own] == -1):.0f} % are rejected")

reach = rejecting.estimator_.reach(X[unknown])
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
bins = np.linspace(0, np.quantile(reach, 0.99), 40).tolist()
ax.hist(reach[truth[unknown] < 7], bins, alpha=0.6, label="0 to 6, with labels")
ax.hist(reach[truth[unknown] >= 7], bins, alpha=0.6, label="7 to 9, without labels")
ax.set(xlabel="how much of the labels reaches an image", ylabel="images")
ax.legend()
