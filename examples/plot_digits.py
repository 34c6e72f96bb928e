"""
First steps: digits from five images of each
============================================

Fifty labelled images, ten classes, no pretrained network. This page fits
:class:`~ledl.LEDLClassifier` to scikit-learn's digits and looks at everything that a
fitted model holds: its accuracy, how training went, what the atoms look like, and
which atoms a new image is made of.
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
# The interface is scikit-learn's. ``alpha`` is the parameter to tune first: the larger
# it is, the fewer atoms make up an image. Digits like a large one;
# :ref:`sphx_glr_gallery_plot_model_selection.py` shows how to choose it without looking
# at test images.

model = LEDLClassifier(alpha=2**-4, random_state=0).fit(X, y)
accuracy = model.score(digits.data[test], digits.target[test])
print(f"accuracy on the test images: {100 * accuracy:.1f} %")
print(f"{len(model.components_)} atoms, {model.n_iter_} iterations")

# %%
# How training went
# -----------------
# The thick line is what the algorithm lowers, the dashed ones are its parts: how well
# atoms and codes reproduce the pixels, the labels, and which atom belongs to which
# class.

ConvergenceDisplay.from_estimator(model)

# %%
# What was learnt
# ---------------
# There are ten atoms for each digit, a row for each class. They start at training
# images and are changed so that together they reproduce images *and* labels. Red is
# negative: an atom may take something away from a picture.

# sphinx_gallery_thumbnail_number = 3
AtomsDisplay.from_estimator(model, image_shape=(8, 8))

# %%
# What an image is made of
# ------------------------
# ``transform`` gives the codes of new images: a row with a number for each atom, most
# of them zero. The atoms of the image's own class are orange; the classifier
# ``model.label_components_`` adds up what all of them say.

few = test[::350]
CodesDisplay.from_estimator(model, digits.data[few], digits.target[few])
