"""LEDL on a stream: `partial_fit` takes batch after batch, and keeps sums of what it has seen."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from ledl.arrays import Array, as_array, float32_products, namespace, place, to_host
from ledl.estimators._base import (
    SINGLE_THREAD_ATOMS,
    DictionaryClassifier,
    check_memory,
    check_not_zero,
    fit_context,
    unharmed,
    warn_of_zero_codes,
)
from ledl.estimators._starts import n_starts_of
from ledl.parallel import n_threads, one_blas_thread
from ledl.samples import InMemoryBlocks
from ledl.solvers.iteration import Status
from ledl.solvers.ledl import Atoms, DualStep
from ledl.solvers.start import default_n_atoms
from ledl.solvers.stream import Stream, learn, new_stream, start_atoms
from ledl.subspace import IdentitySubspace, KernelSpace, scaled, squared_norms


class StreamFit(DictionaryClassifier):
    """`partial_fit` for a classifier with LEDL's parameters."""

    label_weight: float
    code_weight: float
    alpha: float
    rho: float
    dual_step: float
    dual_step_decay: float
    dual_step_min: float
    init: Any
    n_init: int
    kernel: Any
    keep_codes: bool
    checkpoint: Any
    batch_size: int | None
    precision: str
    random_state: Any
    components_: Array
    label_components_: Array
    _code_atoms: Array

    @fit_context(prefer_skip_nested_validation=True)
    @unharmed
    def partial_fit(self, X: Array, y: Array, classes: Array | None = None) -> StreamFit:
        """Learn from one more batch of a stream; no sample is kept.

        The codes of the batch are found, their sums are added to those of the batches before, which fade
        [1]_, and the atoms are updated: ten code steps and one sweep for each batch, whatever `max_iter` and
        `tol` say. Memory does not grow with the stream.

        All classes have the same share of the ``n_components`` atoms; None takes as many as `fit` on the first
        batch would, at least one for each class. An atom starts at a sample of its class when one comes that no
        other has started at, and is zero before.

        After `fit`, and on a loaded model, learning goes on from the atoms that are there; `fit` starts anew.
        Weights may be changed between calls and hold from then on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples of the batch, one or more.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that may ever come. Needed in the first call, and may be left out later.

        Returns
        -------
        self : LEDLClassifier

        References
        ----------
        .. [1] J. Mairal, F. Bach, J. Ponce and G. Sapiro, "Online learning for matrix factorization and sparse
           coding", Journal of Machine Learning Research 11, 2010.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from ledl import LEDLClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> model = LEDLClassifier(n_components=50, random_state=0)
        >>> for first in range(0, 1000, 100):
        ...     batch = slice(first, first + 100)
        ...     model = model.partial_fit(X[batch], y[batch], classes=range(10))
        >>> bool(model.score(X[1000:], y[1000:]) > 0.85)
        True
        """
        self._validate_params()  # scikit-learn leaves that to the first call
        is_new = not hasattr(self, "_atoms")
        self._check_streams(is_new)
        known = self._known_classes(classes, is_new)
        X, y = self._checked_pairs(X, y, reset=is_new, min_samples=1)
        labels = label_numbers(y, known)
        scales = self._unit_norm if is_new else self._scales
        if not scales:
            squared_norms(X, "X")  # refuses numbers whose squares are of no use
        if is_new:
            check_not_zero(X)
        atom_labels = self._equal_shares(len(labels), len(known)) if is_new else self._atom_labels
        device = self._device_of(X)
        check_precision(self.precision, device)
        atoms = self._atoms_so_far(X, known, atom_labels, is_new)
        X = place(X, device)
        stream = self._stream_so_far(atoms)
        threads = one_blas_thread() if len(atom_labels) <= SINGLE_THREAD_ATOMS else nullcontext()
        with threads, float32_products(self.precision, device):
            # Scaled first: what is tiny or huge in one type may be nothing in another.
            samples = namespace(atoms.M).astype(scaled(X) if scales else X, atoms.M.dtype, copy=False)
            stream, atoms = self._learn(stream, atoms, samples, labels, atom_labels)
        B, W, A = (np.ascontiguousarray(to_host(part)) for part in (atoms.B, atoms.W, atoms.A))
        state = self._atom_attributes(IdentitySubspace(), B, atom_labels, known)
        learnt = {**state, "_scales": scales, "_code_atoms": A, "label_components_": W}
        self._keep(**learnt, n_iter_=stream.n_batches, stream_=stream)
        return self

    def _learn(
        self, stream: Stream, atoms: Atoms, X: Array, labels: Array, atom_labels: Array
    ) -> tuple[Stream, Atoms]:
        """Stream and atoms after these samples."""
        usable = to_host(namespace(X).any(X != 0, axis=1))
        candidates = [np.flatnonzero(usable & (labels == j)) for j in range(atoms.n_classes)]
        placed = as_array(labels, X)
        blocks = InMemoryBlocks(X, placed, self.batch_size, n_threads(self.n_jobs))
        atoms = start_atoms(stream, atoms, blocks, candidates, atom_labels)
        stream, atoms, n_nonzero = learn(
            stream,
            atoms,
            blocks,
            atom_labels,
            lam=self.label_weight,
            omega=self.code_weight,
            epsilon=self.alpha,
            rho=self.rho,
            dual_step=DualStep(self.dual_step, self.dual_step_decay, self.dual_step_min),
        )
        # Where sums are not finite, a sweep leaves the atoms as they were.
        if not all(np.isfinite(to_host(values)).all() for values in (atoms.M, stream.G, stream.P)):
            raise ValueError(f"Training failed at batch {stream.n_batches}: {Status.NON_FINITE.advice()}.")
        if usable.any() and not n_nonzero:
            warn_of_zero_codes(self.alpha, "of this batch are zero", stacklevel=5)
        return stream, atoms

    def _check_streams(self, is_new: bool) -> None:
        """Whether parameters, and the atoms that are there, are such that a stream can be learnt from."""
        if self.kernel != "linear" or (not is_new and isinstance(self._space, KernelSpace)):
            raise ValueError(
                f"kernel={self.kernel!r}: partial_fit is for kernel='linear', since atoms of other kernels are "
                "made of all training samples, which a stream does not keep. Use fit, or a clone of the model "
                "with kernel='linear' on features that approximate the kernel (sklearn.kernel_approximation)."
            )
        if self.keep_codes:
            raise ValueError(
                "keep_codes=True, but partial_fit keeps nothing that grows with the stream. Set "
                "keep_codes=False, and call transform on the samples whose codes you want."
            )
        if self.checkpoint is not None:
            raise ValueError(
                f"checkpoint={self.checkpoint!r} is for fit; what partial_fit has learnt is in the model, and "
                "ledl.save keeps it. Set checkpoint=None."
            )
        if max(self.n_init, n_starts_of(self)) > 1:
            raise ValueError(
                f"n_init={self.n_init}, and the model has the atoms of {n_starts_of(self)} start(s), but "
                "partial_fit learns from one. Use a clone of the model with n_init=1, or fit."
            )
        if is_new and not (isinstance(self.init, str) and self.init == "class"):
            raise ValueError(
                "init is not 'class', but atoms of a stream start at the first samples of their class. Set "
                "init='class'; or call fit on some samples first: partial_fit goes on from its atoms."
            )
        if not is_new and self.n_components is not None:
            K, c = len(self._atoms), len(self.classes_)
            if max(self.n_components, c) != K:
                raise ValueError(
                    f"n_components={self.n_components}, but the model has {K} atoms, and their number stays as "
                    f"it was in the first call. Set n_components={K}, or start anew with a clone of the model."
                )

    def _known_classes(self, classes: Array | None, is_new: bool) -> Array:
        """All classes of the stream, sorted."""
        if classes is None:
            if is_new:
                raise ValueError(
                    "classes=None in the first call of partial_fit, but a batch need not have samples of all "
                    "classes. Give all labels that may come, as classes=[...]."
                )
            return self.classes_
        if np.ndim(classes) != 1:
            raise ValueError(f"classes={classes!r:.60} must be a list of all labels that may come.")
        given = np.unique(np.asarray(classes))
        if is_new:
            check_classification_targets(given)
            if len(given) < 2:
                raise ValueError(
                    f"classes={given.tolist()} has fewer than two labels, and {type(self).__name__} needs at "
                    "least two classes. Give all labels that may come."
                )
            return given
        if given.tolist() != self.classes_.tolist():
            raise ValueError(
                f"classes={given.tolist()}, but the model knows {self.classes_.tolist()}, and classes stay as "
                "they were in the first call. Leave classes out, or start anew with a clone of the model."
            )
        return self.classes_

    def _equal_shares(self, n_samples: int, n_classes: int) -> Array:
        """The class of each atom: the same number for all, as how frequent they are is not known yet."""
        default = max(default_n_atoms(n_samples, n_classes), n_classes)
        return self._share_out_atoms(np.arange(n_classes), default)

    def _atoms_so_far(self, X: Array, classes: Array, atom_labels: Array, is_new: bool) -> Atoms:
        """B, W and A where training runs, of the first batch's type; zero if there are none yet."""
        K, c = len(atom_labels), len(classes)
        q = X.shape[1] + 2 * c
        check_memory(8 * K * 4 * (K + q), f"Sums and products of n_components={K} atoms", "Use fewer atoms.")
        if is_new:
            M = np.zeros((K, q), dtype=to_host(X[:0]).dtype)
        else:
            M = np.concatenate([self.components_, self.label_components_, self._code_atoms], axis=1)
        return Atoms(place(M, self._device_of(X)), c)

    def _stream_so_far(self, atoms: Atoms) -> Stream:
        """What is kept of earlier batches; if there were none, of how many samples `fit` has seen."""
        if hasattr(self, "stream_"):
            return Stream(*self.stream_)
        K, q = atoms.M.shape
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        # Models of older files do not say how many samples they have seen.
        n_before = getattr(self, "_n_samples", K) if hasattr(self, "_atoms") else 0
        return new_stream(K, q, atoms.n_classes, int(seed), n_before)


def check_precision(precision: str, device: str | None) -> None:
    """Refuse a precision that training on that device does not have."""
    if precision == "tf32" and not (device or "").startswith("cuda"):
        raise ValueError(
            f"precision='tf32' is for products on a GPU, but training is on device={device!r}. Set "
            "device='cuda', or precision='full'."
        )


def label_numbers(y: Array, classes: Array) -> Array:
    """Labels 0, ..., c - 1 of samples whose labels must be among `classes`."""
    check_classification_targets(y)
    number = {label: i for i, label in enumerate(classes.tolist())}
    found, inverse = np.unique(y, return_inverse=True)
    unknown = [label for label in found.tolist() if label not in number]
    if unknown:
        raise ValueError(
            f"y has the labels {unknown[:10]}, which are not among the classes {classes.tolist()} of the first "
            "call. Leave such samples out, or start anew with a clone of the model and all labels as classes."
        )
    return np.array([number[label] for label in found.tolist()])[inverse]
