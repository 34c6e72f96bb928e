"""Digits as folders of images."""

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

NAMES = ["eins [1]", "null", "zwei"]  # brackets are no markup


def write_digits(root):
    """Write twelve images of each of three classes to root/known, and of a fourth class to root/others."""
    X, y = load_digits(return_X_y=True)
    for digit, name in ((1, NAMES[0]), (0, NAMES[1]), (2, NAMES[2]), (7, "sieben")):
        place = root / ("others" if name == "sieben" else "known") / name
        place.mkdir(parents=True)
        for i, x in enumerate(X[y == digit][:12]):
            Image.fromarray(np.uint8(x.reshape(8, 8) * 15)).save(place / f"{i:02d}.png")
    return root
