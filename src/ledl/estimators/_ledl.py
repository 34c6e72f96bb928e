"""Label embedded dictionary learning as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ledl.arrays import Array
from ledl.blocks import InMemoryBlocks
from ledl.coding import encode
from ledl.estimators._base import (
    DictionaryClassifier,
    check_memory,
    fit_context,
    with_callbacks,
)
from ledl.solvers.iteration import Iterations, Status
from ledl.solvers.ledl import Atoms, DualStep, solve
from ledl.solvers.start import array_start, class_start, n_given_atoms, random_start
from ledl.subspace import Subspace, find_subspace
from ledl.targets import atom_counts, code_scale, default_n_atoms, expand_code_transform
from ledl.threads import one_blas_thread

# Up to this many atoms BLAS's threads, those of NumPy and those of SciPy, cost more than they gain
# (benchmarks/threads.py, on two cores).
SINGLE_THREAD_ATOMS = 4096

STOPPED_BY = {
    Status.CONVERGED: "tol",
    Status.MAX_ITER: "max_iter",
    Status.INTERRUPTED: "callback",
}


class LEDLClassifier(DictionaryClassifier):
    r"""Label embedded dictionary learning (LEDL).

    Learns a dictionary B, a classifier W and a label-consistency transform A together, by ADMM for the
    sparse codes S and blockwise coordinate descent for the rest:

    .. math::

        \min \|X - S B\|^2 + \lambda \|H - S W\|^2 + \omega \|Q - S A\|^2 + 2 \epsilon \|S\|_1

    with rows of B, W and A of norm 1, H the one-hot labels, and Q saying which atoms may serve which
    sample. A new sample x has the codes s of the lasso :math:`|x - s B|^2 + 2 \epsilon |s|_1` and the label
    :math:`\arg\max s W`.

    Parameters
    ----------
    n_components : int, default=None
        Number K of atoms, shared out among the classes in proportion to their samples. None: twice the
        number of training samples, but at most max(2000, n_classes); or as many as `init` has.

    label_weight : float, default=4.0
        :math:`\lambda`, weight of the label term: the larger, the more codes are shaped by labels. Zero: W is
        learnt, but codes do not see it.

    code_weight : float, default=2**-11 = 0.00048828125
        :math:`\omega`, weight of the label-consistency term: the larger, the more a sample is made of atoms of
        its own class. Zero: A is learnt, but codes do not see it.

    alpha : float, default=2**-6 = 0.015625
        :math:`\epsilon`, weight of the l1 norm, on the scale of scikit-learn's `SparseCoder`: the larger, the
        fewer atoms make up a sample. The parameter to tune first, between 2**-10 and 2**-3.

    rho : float, default=1.0
        ADMM's penalty: how fast the two copies of the codes are pulled together. The paper's value is 1; much
        smaller ones diverge.

    dual_step, dual_step_decay, dual_step_min : float, default=0.5, 0.99, 1e-4
        The step of the multipliers: the first, its decay at every iteration, and where it stops shrinking.

    max_iter : int, default=100
        Iterations at most.

    tol : float, default=1e-3
        Stop when the relative change of the augmented objective was at most `tol` three times in a row.
        0: run all iterations.

    init : {"class", "random"} or tuple (B, W, A), default="class"
        Where atoms start: near samples of their class, at uniform random numbers as in the paper, or at given
        arrays of shapes (K, n_features), (K, n_classes) and (K, K).

    normalize : bool, default=True
        Scale samples to norm 1, in `fit` and after. The default weights are for samples of norm 1: without it,
        scale samples yourself or choose other weights.

    transform_alpha : float, default=None
        Weight of the l1 norm for new samples. None: `alpha`.

    transform_tol : float, default=1e-6
        The codes of a new sample x have a duality gap of at most this times :math:`|x|^2 / 2`.

    keep_codes : bool, default=False
        Keep the codes of the training samples as `training_codes_`.

    n_jobs : int, default=None
        Threads that code new samples, in `predict`, `decision_function` and `transform`. None means 1 unless in
        a `joblib.parallel_config` context, -1 as many as there are processors.

    random_state : int, RandomState instance or None, default=None
        Draws the atoms to start from. An int gives the same model every time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.

    components_ : ndarray of shape (K, n_features)
        The dictionary B.

    label_components_ : ndarray of shape (K, n_classes)
        The classifier W.

    code_components_ : ndarray of shape (K, K)
        The label-consistency transform A. It is kept as a K x n_classes matrix and expanded on demand.

    atom_classes_ : ndarray of shape (K,)
        The label of each atom's class.

    n_iter_ : int
        Iterations done.

    stopped_by_ : {"tol", "max_iter", "callback"}
        What ended them.

    history_ : dict of ndarrays of shape (n_iter_,)
        ``augmented_objective`` and its terms, weights included: ``data_fit``, ``label_fit``, ``code_fit``,
        ``penalty``, ``multiplier`` and ``coupling``; ``primal_residual``, ``dual_residual``, ``nonzero_share``;
        and ``objective``, the sum above at the sparse codes, every tenth iteration and at the end (else NaN).

    training_codes_ : ndarray of shape (n_samples, K)
        The sparse codes Z of the training samples, if `keep_codes`. `transform` of the same samples gives
        something else: it does not know their labels.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X has names.

    Notes
    -----
    There is no ``predict_proba``: scores are not probabilities; `sklearn.calibration.CalibratedClassifierCV`
    makes them so. Progress bars come through scikit-learn's callbacks (version 1.9 and later):
    ``LEDLClassifier().set_callbacks(sklearn.callback.ProgressBar())``.

    References
    ----------
    S. Shao, Y.-J. Wang, B.-D. Liu, W. Liu and R. Xu, "Label embedded dictionary learning for image
    classification", Neurocomputing, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import LEDLClassifier
    >>> from ledl.datasets import few_shot_splits
    >>> X, y = load_digits(return_X_y=True)
    >>> train, test = next(few_shot_splits(y, n_per_class=5))
    >>> model = LEDLClassifier(random_state=0).fit(X[train], y[train])
    >>> bool(model.score(X[test], y[test]) > 0.75)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "label_weight": [Interval(Real, 0, None, closed="left")],
        "code_weight": [Interval(Real, 0, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "rho": [Interval(Real, 0, None, closed="neither")],
        "dual_step": [Interval(Real, 0, None, closed="left")],
        "dual_step_decay": [Interval(Real, 0, 1, closed="right")],
        "dual_step_min": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "init": [StrOptions({"class", "random"}), tuple, list],
        "normalize": ["boolean"],
        "transform_alpha": [Interval(Real, 0, None, closed="neither"), None],
        "transform_tol": [Interval(Real, 0, None, closed="neither")],
        "keep_codes": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        label_weight: float = 4.0,
        code_weight: float = 2**-11,
        alpha: float = 2**-6,
        rho: float = 1.0,
        dual_step: float = 0.5,
        dual_step_decay: float = 0.99,
        dual_step_min: float = 1e-4,
        max_iter: int = 100,
        tol: float = 1e-3,
        init: str | tuple[Array, Array, Array] = "class",
        normalize: bool = True,
        transform_alpha: float | None = None,
        transform_tol: float = 1e-6,
        keep_codes: bool = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.label_weight = label_weight
        self.code_weight = code_weight
        self.alpha = alpha
        self.rho = rho
        self.dual_step = dual_step
        self.dual_step_decay = dual_step_decay
        self.dual_step_min = dual_step_min
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.normalize = normalize
        self.transform_alpha = transform_alpha
        self.transform_tol = transform_tol
        self.keep_codes = keep_codes
        self.n_jobs = n_jobs
        self.random_state = random_state

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Array, y: Array) -> LEDLClassifier:
        """Learn atoms, classifier and transform from labelled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Their labels.

        Returns
        -------
        self : LEDLClassifier
        """
        samples, labels, classes = self._training_data(X, y)
        atom_classes = self._share_out_atoms(labels, samples.itemsize)
        candidates = samples_to_start_at(samples, labels)
        subspace, coordinates = find_subspace(samples)
        del samples  # overwritten
        blocks = InMemoryBlocks(coordinates, labels)
        start = self._start(blocks, subspace, candidates, atom_classes, coordinates.dtype)
        keep = partial(self._attributes, subspace=subspace, classes=classes, atom_classes=atom_classes)
        few = len(atom_classes) <= SINGLE_THREAD_ATOMS
        with self._callbacks(X, y, self.max_iter) as watch, one_blas_thread() if few else nullcontext():
            run = solve(
                blocks,
                start,
                code_scale=code_scale(np.bincount(atom_classes)),
                lam=self.label_weight,
                omega=self.code_weight,
                epsilon=self.alpha,
                rho=self.rho,
                dual_step=DualStep(self.dual_step, self.dual_step_decay, self.dual_step_min),
                max_iter=self.max_iter,
                tol=self.tol,
                callback=lambda iteration, record, atoms: watch(lambda: keep(atoms())),
            )
            if hasattr(self, "training_codes_"):
                del self.training_codes_
            codes = {"training_codes_": blocks.codes()} if self.keep_codes else {}
            for name, value in {**self._conclusions(run), **keep(run.state), **codes}.items():
                setattr(self, name, value)
        return self

    def transform(self, X: Array) -> Array:
        """Sparse codes of samples over the learnt dictionary.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        codes : ndarray of shape (n_samples, K)
        """
        return self._from_codes(X, lambda codes: codes)

    def _scores(self, X: Array) -> Array:
        return self._from_codes(X, lambda codes: codes @ self.label_components_)

    @property
    def code_components_(self) -> Array:
        """The label-consistency transform A, (K, K)."""
        check_is_fitted(self)
        return expand_code_transform(self._code_atoms, self._atom_labels)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Defaults are for few samples with many features; scikit-learn's checks have two-dimensional blobs.
        tags.classifier_tags.poor_score = True
        return tags

    def _from_codes(self, X: Array, finish: Callable[[Array], Array]) -> Array:
        """What `finish` makes of the codes of new samples."""
        X = self._new_samples(X)
        return encode(
            self._atoms,
            X,
            self._subspace.reduce,
            finish,
            alpha=self.alpha if self.transform_alpha is None else self.transform_alpha,
            tol=self.transform_tol,
            n_jobs=self.n_jobs,
        )

    def _share_out_atoms(self, labels: Array, itemsize: int) -> Array:
        """The class of each atom, 0, ..., c - 1."""
        counts = np.bincount(labels)
        n, c = len(labels), len(counts)
        K = self.n_components
        if K is None:
            K = default_n_atoms(n, c) if isinstance(self.init, str) else n_given_atoms(self.init)
        if c > K:
            warnings.warn(
                f"n_components={K} is fewer than the {c} classes, and every class needs an atom of its own: "
                f"{c} atoms are used. Set n_components >= {c}, or None for twice the number of samples.",
                UserWarning,
                stacklevel=3,
            )
            K = c
        n_bytes = itemsize * K * (3 * K + 6 * n)
        check_memory(n_bytes, f"Codes and Gram matrices of n_components={K} atoms", "Use fewer atoms.")
        return np.repeat(np.arange(c), atom_counts(counts, K))

    def _start(
        self,
        blocks: InMemoryBlocks,
        subspace: Subspace,
        candidates: list[Array],
        atom_classes: Array,
        dtype: Any,
    ) -> Atoms:
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        if not isinstance(self.init, str):
            start = array_start(self.init, subspace, self.n_features_in_, atom_classes, dtype)
        elif self.init == "random":
            start = random_start(subspace, self.n_features_in_, atom_classes, rng)
        else:
            start = class_start(blocks, candidates, atom_classes, rng)
        return start._replace(M=start.M.astype(dtype, copy=False))

    def _attributes(
        self, atoms: Atoms, subspace: Subspace, classes: Array, atom_classes: Array
    ) -> dict[str, Any]:
        """What a fitted model keeps of atoms: all that `predict` and `transform` need."""
        B = np.ascontiguousarray(atoms.B)
        return {
            "_subspace": subspace,
            "_atoms": B,
            "_code_atoms": np.ascontiguousarray(atoms.A),
            "_atom_labels": atom_classes,
            "components_": subspace.expand(B),
            "label_components_": np.ascontiguousarray(atoms.W),
            "classes_": classes,
            "atom_classes_": classes[atom_classes],
        }

    def _conclusions(self, run: Iterations) -> dict[str, Any]:
        """What the iterations did, as attributes; warns or raises where they did not go well."""
        status = run.status[()]
        if status is Status.NON_FINITE:
            raise ValueError(f"Training failed after {run.n_iter} iterations: {status.advice()}.")
        if not run.history["nonzero_share"][-1]:
            warnings.warn(
                f"All codes of the training samples are zero in the end: alpha={self.alpha} is too large for "
                "samples of this size. Lower alpha, or scale the samples (normalize=True does).",
                UserWarning,
                stacklevel=3,
            )
        if status is Status.MAX_ITER and self.tol > 0:
            advice = status.advice(tol=self.tol, max_iter=self.max_iter)
            warnings.warn(f"LEDL did not converge: {advice}.", ConvergenceWarning, stacklevel=3)
        return {"n_iter_": int(run.n_iter), "stopped_by_": STOPPED_BY[status], "history_": run.history}


def samples_to_start_at(X: Array, labels: Array) -> list[Array]:
    """For each class the samples that its atoms may start at: those that are not zero.

    A class of zero samples alone borrows those of all classes.
    """
    usable = X.any(axis=1)
    by_class = [np.flatnonzero(usable & (labels == j)) for j in range(labels.max() + 1)]
    return [samples if samples.size else np.flatnonzero(usable) for samples in by_class]
