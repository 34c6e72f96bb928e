"""
Kernels
=======

SRC, CRC, CSDL-SRC and LEDL use only inner products of samples. A kernel can replace
these. This page shows two cases: classes that no straight line separates, and square
roots of pixels.
"""

# %%
# Where lines fail
# ----------------
# Samples are scaled to norm 1. So in the plane a linear method sees only the
# *direction* of a point, and a ring has all directions. With ``kernel="rbf"`` a sample
# is a mix of its neighbours.

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
# With a kernel atoms are functions, not points of the plane. The model has
# ``dual_components_`` in place of ``components_``: their coefficients over the training
# samples.

print(model.dual_components_.shape)

# %%
# Square roots of pixels
# ----------------------
# The Hellinger kernel is the sum of :math:`\sqrt{x_i y_i}`: the linear kernel of square
# roots. It is meant for histograms, but works for pixels, too: dark parts count for
# more. It has no parameter.
#
# On digits it helps where ``alpha`` is too small, and the best accuracies are about the
# same. On the faces of Extended YaleB it adds 8 to 14 points (:doc:`/accuracy`).

from sklearn.model_selection import cross_val_score

digits = load("digits")
alphas = [2.0**e for e in range(-11, 2, 2)]
cv = FewShotSplit(n_per_class=5, seeds=range(2))
accuracies = {
    kernel: np.array(
        [
            cross_val_score(
                CRCClassifier(rule="regularized", alpha=alpha, kernel=kernel),
                digits.data,
                digits.target,
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
display.ax_.set_title("CRC, regularised, on digits")

# %%
# A kernel of your own is a function of two samples or, with ``kernel="precomputed"``, a
# matrix. :doc:`/methods` has the rules.
