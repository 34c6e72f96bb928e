"""LEDL on a stream: `partial_fit` learns from one batch, and keeps sums over all batches."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from ledl.arrays import Array, as_array, check_memory, float32_products, namespace, place, to_host
from ledl.coding import Lasso
from ledl.dictionary import ClassifierRule, FittedDictionary
from ledl.estimators._base import (
    SINGLE_THREAD_ATOMS,
    check_labelled,
    check_not_zero,
    check_precision,
    check_weights,
    device_of,
    fitted_attributes,
    share_out_atoms,
    warn_of_zero_codes,
)
from ledl.parallel import n_threads, one_blas_thread
from ledl.samples import InMemoryBlocks
from ledl.solvers.iteration import Status
from ledl.solvers.ledl import Atoms, DualStep
from ledl.solvers.start import default_n_atoms
from ledl.solvers.stream import Stream, learn, new_stream, start_atoms
from ledl.subspace import IdentitySubspace, KernelSpace, squared_norms


def learn_batch(
    model: Any, X: Array, y: Array, classes: Array | None, sample_weight: Array | None
) -> dict[str, Any]:
    """Return the fitted attributes of an `LEDLClassifier` after one more batch of samples."""
    is_new = not hasattr(model, "_dictionary")
    check_streams(model, is_new)
    known = known_classes(model, classes, is_new)
    X, y = check_labelled(model, X, y, reset=is_new, min_samples=1)
    check_classification_targets(y)
    number, c = {label: i for i, label in enumerate(known.tolist())}, len(known)
    unknown = sorted(set(y.tolist()) - number.keys())
    if unknown:
        raise ValueError(
            f"y has the labels {unknown[:10]}, which are not among the classes {known.tolist()} of the first "
            "call. Leave such samples out, or start again with a clone of the model and all labels as classes."
        )
    labels = np.array([number[label] for label in y.tolist()])
    weights = check_weights(model, labels, known, sample_weight)
    features = model._features if is_new else model._dictionary.features
    if not features.unit_norm:
        squared_norms(features(X), "X")  # raises if squares overflow or underflow
    if is_new:
        check_not_zero(X)
        # All classes get the same number of atoms, because their frequencies are not known yet.
        n_counted = len(labels) if weights is None else int(np.count_nonzero(weights))
        default = max(default_n_atoms(n_counted, c), c)
        atom_labels = share_out_atoms(np.arange(c), model.n_components, default)
    else:
        atom_labels = model._dictionary.atom_labels
    device = device_of(X, model.device)
    check_precision(model.precision, device)
    K, q = len(atom_labels), X.shape[1] + 2 * c
    check_memory(8 * K * 4 * (K + q), f"Sums and products of n_components={K} atoms", "Use fewer atoms.")
    if is_new:  # zero, in the type of the first batch
        M = np.zeros((K, q), dtype=to_host(X[:0]).dtype)
    else:
        M = np.concatenate([model.components_, model.label_components_, model._code_atoms], axis=1)
    atoms, X = Atoms(place(M, device), c), place(X, device)
    if hasattr(model, "stream_"):
        stream = Stream(*model.stream_)
    else:
        seed = check_random_state(model.random_state).randint(np.iinfo(np.int32).max)
        n_before = 0 if is_new else model._n_samples
        stream = new_stream(K, q, c, int(seed), n_before)
    blas = one_blas_thread() if K <= SINGLE_THREAD_ATOMS else nullcontext()
    with blas, float32_products(model.precision, device):
        # Mapped first: tiny or huge numbers of one type may underflow or overflow in another.
        samples = namespace(atoms.M).astype(features(X), atoms.M.dtype, copy=False)
        usable = to_host(namespace(samples).any(samples != 0, axis=1))
        if weights is not None:
            usable, weights = usable & (weights > 0), as_array(weights, samples, samples.dtype)
        candidates = [np.flatnonzero(usable & (labels == j)) for j in range(c)]
        threads = n_threads(model.n_jobs)
        blocks = InMemoryBlocks(samples, as_array(labels, samples), model.batch_size, threads, weights)
        atoms = start_atoms(stream, atoms, blocks, candidates, atom_labels)
        stream, atoms, n_nonzero = learn(
            stream,
            atoms,
            blocks,
            atom_labels,
            lam=model.label_weight,
            omega=model.code_weight,
            epsilon=model.alpha,
            rho=model.rho,
            dual_step=DualStep(model.dual_step, model.dual_step_decay, model.dual_step_min),
        )
    # Where sums are not finite, a sweep leaves the atoms as they were.
    if not all(np.isfinite(to_host(values)).all() for values in (atoms.M, stream.G, stream.P)):
        raise ValueError(f"Training failed at batch {stream.n_batches}: {Status.NON_FINITE.advice()}.")
    if usable.any() and not n_nonzero:
        warn_of_zero_codes(model.alpha, "of this batch are zero", stacklevel=5)
    B, W, A = (np.ascontiguousarray(to_host(part)) for part in (atoms.B, atoms.W, atoms.A))
    coder, rule = Lasso(model.alpha), ClassifierRule(W)
    dictionary = FittedDictionary(IdentitySubspace(), B, features, coder, rule, known, atom_labels)
    learnt = {"label_components_": W, "_code_atoms": A, "_n_samples": stream.n_samples}
    return {**fitted_attributes(dictionary), **learnt, "n_iter_": stream.n_batches, "stream_": stream}


def check_streams(model: Any, is_new: bool) -> None:
    """Raise if a stream cannot be learnt with these parameters and atoms."""
    if not model._is_linear or (not is_new and isinstance(model._dictionary.space, KernelSpace)):
        raise ValueError(
            f"kernel={model.kernel!r}: partial_fit is for kernel='linear', 'hellinger' or a power, since atoms "
            "of other kernels are made of all training samples, which a stream does not keep. Use fit, or a "
            "clone of the model with kernel='linear' on features that approximate the kernel "
            "(sklearn.kernel_approximation)."
        )
    if model.class_weight == "balanced":
        raise ValueError(
            "class_weight='balanced' needs the number of samples of each class, which a stream does not know. "
            "Give weights by label, as class_weight={label: weight, ...}, or sample_weight."
        )
    if model.keep_codes:
        raise ValueError(
            "keep_codes=True, but partial_fit keeps nothing that grows with the stream. Set "
            "keep_codes=False, and call transform to get codes of samples."
        )
    if model.checkpoint is not None:
        raise ValueError(
            f"checkpoint={model.checkpoint!r} is for fit. partial_fit keeps everything in the model, and "
            "ledl.save writes it. Set checkpoint=None."
        )
    if is_new and not (isinstance(model.init, str) and model.init == "class"):
        raise ValueError(
            "init is not 'class', but atoms of a stream start at the first samples of their class. Set "
            "init='class', or call fit on some samples first: partial_fit goes on from its atoms."
        )
    if not is_new and model.n_components is not None:
        K, c = len(model._dictionary.atoms), len(model.classes_)
        if max(model.n_components, c) != K:
            raise ValueError(
                f"n_components={model.n_components}, but the model has {K} atoms, and their number stays as "
                f"it was in the first call. Set n_components={K}, or start again with a clone of the model."
            )


def known_classes(model: Any, classes: Array | None, is_new: bool) -> Array:
    """Return all classes of the stream, sorted."""
    if classes is None:
        if is_new:
            raise ValueError(
                "classes=None in the first call of partial_fit, but a batch need not have samples of all "
                "classes. Give all labels that may come, as classes=[...]."
            )
        return model.classes_
    if np.ndim(classes) != 1:
        raise ValueError(f"classes={classes!r:.60} must be a list of all labels that may come.")
    given = np.unique(np.asarray(classes))
    if is_new:
        check_classification_targets(given)
        if len(given) < 2:
            raise ValueError(
                f"classes={given.tolist()} has fewer than two labels, and {type(model).__name__} needs at "
                "least two classes. Give all labels that may come."
            )
        return given
    if given.tolist() != model.classes_.tolist():
        raise ValueError(
            f"classes={given.tolist()}, but the model knows {model.classes_.tolist()}, and classes stay as "
            "they were in the first call. Leave classes out, or start again with a clone of the model."
        )
    return model.classes_
