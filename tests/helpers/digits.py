"""The digits of scikit-learn: a few to train on and some to predict, or folders of images."""

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from ledl.datasets import few_shot_splits

NAMES = ["eins [1]", "null", "zwei"]  # brackets are no markup


def few_digits(n_new, **options):
    """Return a few training samples with labels, and `n_new` new samples with labels."""
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y, **options))
    return X[train], y[train], X[test[:n_new]], y[test[:n_new]]


def write_digits(root):
    """Write twelve images of each of three classes to root/known, and of a fourth class to root/others."""
    X, y = load_digits(return_X_y=True)
    for digit, name in ((1, NAMES[0]), (0, NAMES[1]), (2, NAMES[2]), (7, "sieben")):
        place = root / ("others" if name == "sieben" else "known") / name
        place.mkdir(parents=True)
        for i, x in enumerate(X[y == digit][:12]):
            Image.fromarray(np.uint8(x.reshape(8, 8) * 15)).save(place / f"{i:02d}.png")
    return root
