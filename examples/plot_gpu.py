"""
On a GPU
========

``device="cuda"`` moves training and coding to a GPU. NumPy arrays go in and come out.
This page also shows what a GPU is good for here: many fits at once, not one.

The script runs without a GPU, too: it then uses NumPy, and says so. If this page shows
no figures, it was built without a GPU.
"""

# %%
# Which device
# ------------
# The extra ``gpu`` installs PyTorch. ``device=None`` is NumPy. On processors NumPy is
# faster than PyTorch.

import time

import numpy as np

try:
    import torch

    device = "cuda" if torch.cuda.is_available() else None
except ImportError:
    device = None
print(
    "on a GPU:" if device else "There is no GPU, or no PyTorch; with NumPy:",
    f"device={device!r}",
)

# %%
# A fit, and where it lives
# -------------------------
# A fitted model holds NumPy arrays. So a model that was fitted on a GPU can be pickled,
# moved, and used without one. Set ``device`` to choose where it predicts.

from ledl import BatchedSearchCV, LEDLClassifier
from ledl.datasets import few_shot_splits, load

digits = load("digits")
train, test = next(few_shot_splits(digits.target, n_per_class=5))
X, y = digits.data[train], digits.target[train]

model = LEDLClassifier(device=device, random_state=0).fit(X, y)
print(
    type(model.components_).__name__,
    f"{model.score(digits.data[test], digits.target[test]):.3f}",
)
model.set_params(device=None).predict(digits.data[test[:5]])

# %%
# Tensors
# -------
# PyTorch tensors are processed on their own device, and the results are tensors there.
# The samples need not leave the GPU.

if device:
    tensor = torch.as_tensor(digits.data[test], device=device)
    print(model.decision_function(tensor).device)
else:
    print("skipped: there is no GPU to hold a tensor")

# %%
# What a GPU is for
# -----------------
# One fit of fifty samples is a chain of small steps. No GPU shortens it. A search is
# hundreds of such fits, and :class:`~ledl.BatchedSearchCV` takes their steps together.
# The picture shows the time of *one* fit when 5, 20, ... of them are solved together.
# The time includes the scores of the samples that were left out.

import matplotlib.pyplot as plt

sizes = [1, 4, 16, 32]
seconds = []
estimator = LEDLClassifier(device=device, max_iter=30, tol=0, random_state=0)
for n_candidates in sizes:
    grid = {"alpha": np.geomspace(2**-8, 2**-3, n_candidates)}
    search = BatchedSearchCV(estimator, grid, cv=5, refit=False)
    times = []
    for _ in range(3):  # the first time some kernels are compiled
        started = time.perf_counter()
        search.fit(X, y)
        times.append(time.perf_counter() - started)
    seconds.append(min(times))

n_fits = 5 * np.array(sizes)
for n, total in zip(n_fits, seconds, strict=True):
    print(f"{n:4d} fits: {total:.2f} s, {1000 * total / n:.1f} ms a fit")

fig, ax = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
ax.plot(n_fits, 1000 * np.array(seconds) / n_fits, marker="o", color="#c2410c")
ax.set_xscale("log", base=2)
ax.set_xticks(n_fits, n_fits)
ax.set(xlabel="fits solved together", ylabel="milliseconds a fit")
ax.set_ylim(0, 1100 * max(np.array(seconds) / n_fits))
ax.set_title("a GPU" if device else "NumPy on this machine's processors")
ax.grid(alpha=0.25)

# %%
# :doc:`/performance` has figures of an NVIDIA H200: 600 fits of the size of Extended
# YaleB, and the 1.3 million codes that judge them, in 3.8 s.
