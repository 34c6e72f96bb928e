"""
Sparse codes with a certificate
===============================

:func:`~ledl.sparse_encode` writes samples as combinations of few atoms, for any
dictionary. Every code comes with its *duality gap*: a bound on how far its objective
is above the minimum, whatever the solver did. This page removes noise from a photo with
it, and then checks the certificate.
"""

# %%
# A dictionary of patches
# -----------------------
# :class:`~ledl.KSVD` learns atoms from patches of a photo that comes with scikit-learn.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.feature_extraction.image import (
    extract_patches_2d,
    reconstruct_from_patches_2d,
)

from ledl import KSVD, sparse_encode

photograph = load_sample_image("china.jpg").mean(axis=2)[140:268, 220:380] / 255
rng = np.random.default_rng(0)
noisy = photograph + 0.1 * rng.standard_normal(photograph.shape)

patches = extract_patches_2d(noisy, (8, 8)).reshape(-1, 64)
means = patches.mean(axis=1, keepdims=True)
patches = patches - means
chosen = patches[rng.choice(len(patches), 4000, replace=False)]
dictionary = (
    KSVD(n_components=128, n_nonzero_coefs=4, max_iter=15, random_state=0)
    .fit(chosen)
    .components_
)
print(f"{len(patches)} patches of {patches.shape[1]} pixels, {len(dictionary)} atoms")

fig, axes = plt.subplots(4, 16, figsize=(6.4, 1.7), layout="constrained")
for ax, atom in zip(axes.flat, dictionary, strict=False):
    ax.imshow(atom.reshape(8, 8), cmap="gray")
    ax.set_axis_off()

# %%
# Code every patch
# ----------------
# ``return_info=True`` returns gap, iterations and non-zeros of every sample, too.
# ``sparse_output=True`` returns a SciPy matrix.

alpha = 0.2
codes, info = sparse_encode(
    patches, dictionary, alpha=alpha, sparse_output=True, return_info=True
)
print(info)
print(
    f"{info.n_nonzero.mean():.1f} non-zeros a code; largest gap: {info.gap.max():.1e}"
)

denoised = reconstruct_from_patches_2d(
    (codes @ dictionary + means).reshape(-1, 8, 8), photograph.shape
)

# sphinx_gallery_thumbnail_number = 2
fig, axes = plt.subplots(1, 3, figsize=(7.2, 2.15), layout="constrained")
pictures = {"original": photograph, "noisy": noisy, "from sparse codes": denoised}
for ax, (title, picture) in zip(axes, pictures.items(), strict=True):
    error = np.sqrt(np.mean((picture - photograph) ** 2))
    ax.imshow(picture, cmap="gray", vmin=0, vmax=1)
    ax.set_title(f"{title}, error {error:.3f}" if error else title, fontsize=10)
    ax.set_axis_off()

# %%
# Is the certificate true?
# ------------------------
# The gap bounds the distance from the minimum. To check that, we stop early at several
# tolerances and compare with codes that are nearly exact. Every point lies below the
# diagonal: the true error is never larger than the gap.


def objective(X, S):
    return 0.5 * ((X - S @ dictionary) ** 2).sum(axis=1) + alpha * np.abs(S).sum(axis=1)


few = chosen[:300]
best = objective(few, sparse_encode(few, dictionary, alpha=alpha, tol=1e-12))

fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
for tol, color in [(1e-1, "#fdba74"), (1e-2, "#ea580c"), (1e-3, "#7c2d12")]:
    S, early = sparse_encode(
        few, dictionary, alpha=alpha, solver="admm", tol=tol, return_info=True
    )
    excess = objective(few, S) - best
    print(
        f"tol={tol:.0e}: at most {excess.max():.1e} too high; gap {early.gap.max():.1e}"
    )
    assert (excess <= early.gap + 1e-12).all()
    ax.loglog(
        early.gap,
        np.maximum(excess, 1e-9),
        ".",
        color=color,
        markersize=4,
        label=f"tol={tol:.0e}",
    )
line = np.array([1e-9, 1])
ax.loglog(line, line, color="black", linewidth=0.8, label="error = gap")
ax.set(xlabel="duality gap", ylabel="objective above the minimum")
ax.legend()

# %%
# Classifiers code their samples the same way: ``transform_tol`` is the tolerance of
# that gap, relative to half the squared norm of a sample (:doc:`/sparse_coding`).
