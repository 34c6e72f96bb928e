"""
Why this answer?
================

A dictionary classifier can show its work. It mixes a few *atoms* to come close to an
image. A score is a sum with one term for each atom. :func:`ledl.explain` returns the
terms, and :class:`ledl.plots.ExplanationDisplay` draws them.

Here a model learns the ten digits from five images of each.
"""

# %%
# A model from fifty images
# -------------------------

import matplotlib.pyplot as plt
import numpy as np

from ledl import LEDLClassifier, RejectingClassifier, SRCClassifier, explain
from ledl.datasets import few_shot_splits, load
from ledl.explanations import Pictures
from ledl.plots import ExplanationDisplay

digits = load("digits")
train, test = next(few_shot_splits(digits.target, n_per_class=5))
X, y = digits.data[train], digits.target[train]
model = LEDLClassifier(alpha=2**-4, random_state=0).fit(X, y)
accuracy = model.score(digits.data[test], digits.target[test])
print(f"accuracy on {len(test)} other images: {accuracy:.3f}")

# %%
# A right answer
# --------------
# The features are pixels, so atoms can be drawn: white adds brightness, orange takes it
# away. The bars under an atom show what it adds to the best class and to the second.

images = [np.uint8(np.round(255 / 16 * row.reshape(8, 8))) for row in X]
pictures = Pictures(shape=(8, 8), training=images)
predicted = model.predict(digits.data[test])
right = test[predicted == digits.target[test]]
display = ExplanationDisplay.from_estimator(
    model, digits.data[right[100]], pictures=pictures
)

# %%
# The terms add up to the score. That is arithmetic, not an approximation.

found = explain(model, digits.data[right[100]])
print(found)
sums = found.base + found.contributions.sum(axis=0)
print(f"largest difference: {np.abs(sums - found.scores).max():.1e}")

# %%
# A wrong answer
# --------------
# Which atoms misled the model? Their pictures often show it, and so do the nearest
# training samples.

wrong = test[predicted != digits.target[test]]
print(f"the image shows a {digits.target[wrong[0]]}")
display = ExplanationDisplay.from_estimator(
    model, digits.data[wrong[0]], pictures=pictures
)

# %%
# None of these
# -------------
# This model knows the digits from 0 to 4, and gets a 7. With
# :class:`ledl.RejectingClassifier` it can answer "none of these".

known = y < 5
pictures = Pictures(
    shape=(8, 8),
    training=[image for image, keep in zip(images, known, strict=True) if keep],
)
careful = RejectingClassifier(SRCClassifier(), reject=0.1).fit(X[known], y[known])
sevens = test[digits.target[test] == 7]
seven = sevens[careful.predict(digits.data[sevens]) == careful.reject_label_][0]
display = ExplanationDisplay.from_estimator(
    careful, digits.data[seven], pictures=pictures
)

# %%
# To share an explanation, write a page:
# ``explain(model, x).to_html("why.html", shape=(8, 8))``.

plt.show()
