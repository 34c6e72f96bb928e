"""
Kernels
=======

SRC, CRC, CSDL-SRC and LEDL see nothing of samples but their inner products, so that a
kernel may take their place. This page shows two cases where that helps: classes that
no straight line tells apart, and square roots of pixels.
"""

# %%
# Where lines fail
# ----------------
# Samples are scaled to norm 1, so that in the plane a linear method sees the
# *direction* of a point only, and rings are all directions at once. With
# ``kernel="rbf"`` a sample is made of its neighbours.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles

from ledl import CRCClassifier, SRCClassifier
from ledl.datasets import FewShotSplit, load

X, y = make_circles(120, factor=0.5, noise=0.08, random_state=0)
X_test, y_test = make_circles(1000, factor=0.5, noise=0.08, random_state=1)
side = np.linspace(-1.4, 1.4, 120)
plane = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

fig, axes = plt.subplots(1, 2, figsize=(7.2, 3.6), layout="constrained", sharey=True)
for ax, kernel in zip(axes, ["linear", "rbf"], strict=True):
    model = SRCClassifier(kernel=kernel, alpha=2**-5).fit(X, y)
    scores = model.decision_function(plane).reshape(len(side), -1)
    ax.contourf(
        side, side, scores > 0, levels=[-0.5, 0.5, 1.5], colors=["#dbeafe", "#ffedd5"]
    )
    for label, color in [(0, "#1d4ed8"), (1, "#c2410c")]:
        ax.scatter(*X[y == label].T, s=14, color=color)
    accuracy = 100 * model.score(X_test, y_test)
    ax.set(title=f'kernel="{kernel}": {accuracy:.0f} % of new points', aspect="equal")

# %%
# Atoms are then no points of the plane but functions; as coefficients over the training
# samples they are ``dual_components_``, in place of ``components_``.

print(model.dual_components_.shape)

# %%
# Square roots of pixels
# ----------------------
# The Hellinger kernel, the sum of :math:`\sqrt{x_i y_i}`, is a linear one between
# square roots. It is meant for histograms, and does good to pixels, too: dark parts
# count for more. It has no parameter.

from sklearn.model_selection import cross_val_score

try:
    data = load("yaleb", download=False)
    name = "Extended YaleB"
except FileNotFoundError:
    data = load("digits")
    name = "digits (Extended YaleB is not here)"

alphas = [2.0**e for e in range(-11, 0, 2)]
cv = FewShotSplit(n_per_class=5, seeds=range(2))
accuracies = {
    kernel: np.array(
        [
            cross_val_score(
                CRCClassifier(rule="regularized", alpha=alpha, kernel=kernel),
                data.data,
                data.target,
                cv=cv,
            )
            for alpha in alphas
        ]
    )
    for kernel in ("linear", "hellinger")
}

from ledl.plots import AccuracyDisplay

curves = {f'kernel="{kernel}"': 100 * values for kernel, values in accuracies.items()}
display = AccuracyDisplay(alphas, curves, xlabel="alpha").plot()
display.ax_.set_title(f"CRC, regularised, on {name}")

# %%
# A kernel of your own is a function of two samples, or, with ``kernel="precomputed"``,
# a matrix; :doc:`/methods` has the rules.
