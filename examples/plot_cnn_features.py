"""
A few labels and a frozen network
=================================

The usual way to classify photos from a few labels is to take the last layer of a
pretrained network as features, and to train something simple on them. This page does
that with ResNet-50 features of UC Merced's aerial images (21 classes). It asks what
dictionary learning adds. The honest answer is: little.

The example needs the features of that dataset (:doc:`/datasets`). If this page shows
no figures, it was built without them.
"""

# %%
# Features
# --------
# The features were computed once, by :class:`~ledl.features.NetworkFeatures`.
# :doc:`/datasets` shows how to do that for a folder of your own images.

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from ledl import CRCClassifier, LEDLClassifier, SRCClassifier
from ledl.datasets import few_shot_splits, load
from ledl.plots import AccuracyDisplay

scenes = load("ucmerced", download=False)
print(f"UC Merced: {len(scenes.data)} images, {scenes.data.shape[1]} features")

# %%
# How many labels?
# ----------------
# Three splits for each number of labelled images, all methods at their defaults.
# Our classifiers scale samples to norm 1. For scikit-learn's a pipeline does it.


def ridge():
    return make_pipeline(Normalizer(), RidgeClassifier())


makers = {
    "LEDL": lambda: LEDLClassifier(random_state=0),
    "SRC": SRCClassifier,
    "CRC": CRCClassifier,
    "ridge": ridge,
}
shots = [2, 3, 5, 8, 12]
accuracies = {name: np.empty((len(shots), 3)) for name in makers}
for i, n_per_class in enumerate(shots):
    splits = few_shot_splits(scenes.target, n_per_class=n_per_class, seeds=range(3))
    for j, (train, test) in enumerate(splits):
        for name, make in makers.items():
            model = make().fit(scenes.data[train], scenes.target[train])
            accuracies[name][i, j] = 100 * model.score(
                scenes.data[test], scenes.target[test]
            )

for name, values in accuracies.items():
    print(f"{name:6s}", "  ".join(f"{value:5.1f}" for value in values.mean(axis=1)))

# %%
# Mean and spread over the splits:

display = AccuracyDisplay(
    shots, accuracies, xlabel="labelled images of each class", base=0
).plot()
display.ax_.set_title("UC Merced: labels matter, the method hardly")

# %%
# The curves lie on each other: the features decide. Take the cheapest method (ridge or
# CRC), and spend the time on the network or on more labels. :doc:`/user_guide` says
# where dictionary learning does pay.
