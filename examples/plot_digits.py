"""
First steps: digits from five images of each
============================================

Fifty labelled images, ten classes, no pretrained network. This page fits
:class:`~ledl.LEDLClassifier` to scikit-learn's digits. Then it looks at the fitted
model: its accuracy, its training, its atoms, and the atoms that rebuild a new image.
"""

# %%
# A few-shot split
# ----------------
# :func:`~ledl.datasets.few_shot_splits` draws five training images of each class; all
# others are test images. The same seed always gives the same split.

from ledl import LEDLClassifier
from ledl.datasets import few_shot_splits, load
from ledl.plots import AtomsDisplay, CodesDisplay, ConvergenceDisplay, ExamplesDisplay

digits = load("digits")
train, test = next(few_shot_splits(digits.target, n_per_class=5))
X, y = digits.data[train], digits.target[train]
print(f"{len(train)} training images, {len(test)} test images")

ExamplesDisplay.from_dataset(digits)

# %%
# Fit and predict
# ---------------
# The interface is scikit-learn's. Tune ``alpha`` first: the larger it is, the fewer
# atoms rebuild an image. A large value suits digits.
# :ref:`sphx_glr_gallery_plot_model_selection.py` shows how to choose it without looking
# at test images.

model = LEDLClassifier(alpha=2**-4, random_state=0).fit(X, y)
accuracy = model.score(digits.data[test], digits.target[test])
print(f"accuracy on the test images: {100 * accuracy:.1f} %")
print(f"{len(model.components_)} atoms, {model.n_iter_} iterations")

# %%
# How training went
# -----------------
# The thick line is the objective. The dashed lines are its parts: how well atoms and
# codes reproduce the pixels, the labels, and the classes of the atoms.

ConvergenceDisplay.from_estimator(model)

# %%
# What was learnt
# ---------------
# Each row shows the ten atoms of one digit. They start as training images. Training
# changes them so that they reproduce images *and* labels. Red is negative: an atom can
# take something away from a picture.

# sphinx_gallery_thumbnail_number = 3
AtomsDisplay.from_estimator(model, image_shape=(8, 8))

# %%
# What an image is made of
# ------------------------
# ``transform`` returns the codes of new images: one number for each atom, most of them
# zero. The atoms of the image's own class are orange. The classifier
# ``model.label_components_`` turns the codes into scores.

few = test[::350]
CodesDisplay.from_estimator(model, digits.data[few], digits.target[few])
