"""
All methods side by side
========================

This page runs the classifiers of the library and two of scikit-learn's on digits. All
get the same splits. Settings are chosen by cross-validation on the training images
alone. The test images are used once, at the end.
"""

# %%
# Methods and grids
# -----------------
# A method is an estimator and a small grid. ``alpha`` (or the number of non-zeros)
# matters most, and no value is good on all data.

import pandas as pd
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from ledl import (
    CRCClassifier,
    CSDLClassifier,
    DKSVDClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
    SRCClassifier,
)
from ledl.datasets import few_shot_splits, load
from ledl.plots import AccuracyDisplay

alphas = [2**-3, 2**-4, 2**-6]
methods = {
    "SRC": (SRCClassifier(), {"alpha": alphas}),
    "CRC": (CRCClassifier(), {"alpha": [1.0, *alphas]}),
    "CRC, regularised": (CRCClassifier(rule="regularized"), {"alpha": [1.0, *alphas]}),
    "CSDL-SRC": (CSDLClassifier(random_state=0), {"alpha": alphas}),
    "D-KSVD": (DKSVDClassifier(random_state=0), {"n_nonzero_coefs": [2, 5, 10]}),
    "LC-KSVD": (LCKSVDClassifier(random_state=0), {"n_nonzero_coefs": [2, 5, 10]}),
    "LEDL": (LEDLClassifier(max_iter=30, tol=0, random_state=0), {"alpha": alphas}),
    "RBF SVM": (SVC(), {"C": [1, 16], "gamma": [2**-2, 1]}),
    "nearest neighbour": (
        KNeighborsClassifier(1),
        {"metric": ["euclidean", "manhattan"]},
    ),
}

# %%
# The comparison
# --------------
# Images are scaled to norm 1 for scikit-learn's methods; ours would do it themselves.
# There are three splits each with 5, 8 and 12 labelled images of each digit.

from sklearn.preprocessing import normalize

digits = load("digits")
X, y = normalize(digits.data), digits.target
rows = []
for n_per_class in (5, 8, 12):
    for split, (train, test) in enumerate(
        few_shot_splits(y, n_per_class=n_per_class, seeds=range(3))
    ):
        for name, (estimator, grid) in methods.items():
            search = GridSearchCV(estimator, grid, cv=3).fit(X[train], y[train])
            rows.append(
                (n_per_class, split, name, 100 * search.score(X[test], y[test]))
            )

results = pd.DataFrame(rows, columns=["images a class", "split", "method", "accuracy"])
print(f"{len(results)} accuracies")
table = (
    results.groupby(["method", "images a class"])
    .accuracy.agg(["mean", "std"])
    .unstack()
)
table.round(1).sort_values(("mean", 5), ascending=False)

# %%
# The picture shows some of the methods. Bars are standard deviations over splits. The
# standard deviation of a *difference* between two methods is smaller, because both are
# tested on the same splits. :doc:`/reproduce` has paired tests.

shown = ["LEDL", "SRC", "CRC", "LC-KSVD", "nearest neighbour"]
by_split = results.pivot(
    index=["method", "images a class"], columns="split", values="accuracy"
)
curves = {name: by_split.loc[name].to_numpy() for name in shown}
display = AccuracyDisplay(
    [5, 8, 12], curves, xlabel="labelled images of each digit", base=0
).plot()
display.ax_.set_title("digits, settings by cross-validation")

# %%
# Three splits are too few to rank nine methods. ``ledl reproduce digits``, which
# ``make demo`` runs, takes all of them, eight splits and larger grids, and writes a
# report.
