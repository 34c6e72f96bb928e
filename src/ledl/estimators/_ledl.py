"""Label embedded dictionary learning as a scikit-learn classifier."""

from __future__ import annotations

import math
import os
from contextlib import closing, nullcontext
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import joblib
import numpy as np
import scipy.linalg
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from ledl.arrays import (
    Array,
    as_array,
    float32_products,
    free_memory,
    is_dask,
    is_torch,
    namespace,
    place,
    to_host,
)
from ledl.estimators._base import (
    DEVICE,
    N_JOBS,
    SINGLE_THREAD_ATOMS,
    CodeScores,
    IterativeFit,
    ResidualScores,
    check_memory,
    check_not_zero,
    fit_context,
    kept_samples,
    unharmed,
    warn_of_zero_codes,
    with_callbacks,
    with_components,
)
from ledl.estimators._kernels import KERNEL_CONSTRAINTS, Kernel, KernelClassifier
from ledl.estimators._rules import JointScores, RidgeScores
from ledl.estimators._starts import SeveralStarts, check_starts, mean_over_starts, starts_of
from ledl.estimators._stream import StreamFit, check_precision
from ledl.parallel import n_threads, one_blas_thread
from ledl.samples import (
    IN_FLIGHT,
    Blocks,
    Checkpoint,
    InMemoryBlocks,
    StoredRows,
    StreamedBlocks,
    as_plain,
    check_place,
    check_rows,
    open_dask,
    open_file,
    seceded,
    with_known_rows,
)
from ledl.solvers.iteration import Iterations, Record, Status
from ledl.solvers.ledl import ADMM, RECORDED, Atoms, DualStep, code_scale, expand_code_transform, solve
from ledl.solvers.start import array_start, class_start, default_n_atoms, n_given_atoms, random_start
from ledl.subspace import IdentitySubspace, KernelSpace, Subspace

# Samples of a block on a device, and arrays of the size of their codes, or targets, that a step needs.
DEVICE_BLOCK, WORK_ARRAYS = 2**16, 8

# Parameters that do not change what is learnt until the last iteration.
NOT_THE_RESULT = {
    "batch_size",
    "checkpoint",
    "device",
    "keep_codes",
    "max_iter",
    "n_jobs",
    "ridge_alpha",
    "rule",
    "transform_alpha",
    "transform_tol",
}


class Training(NamedTuple):
    """What a fit starts from; coordinates and start are where it runs, the rest is on the host."""

    space: Subspace
    coordinates: Array | StoredRows  # (n, r); the latter are visited block by block
    labels: Array  # (n,)
    classes: Array
    atom_labels: Array  # (K,)
    start: Atoms  # (K, q), or (n_init, K, q) of several starts

    @property
    def shape(self) -> tuple[int, ...]:
        """Samples, their coordinates, starts, atoms and their columns: what is the same throughout a batch."""
        return (*self.coordinates.shape, *self.start.M.shape)

    @property
    def starts(self) -> list[Training]:
        """The same with one start each."""
        M = self.start.M
        return [self] if M.ndim == 2 else [self._replace(start=self.start._replace(M=one)) for one in M]

    @property
    def code_scale(self) -> Array:
        return code_scale(np.bincount(self.atom_labels))

    def blocks(self, device: str | None, batch_size: int | None, threads: int) -> tuple[Blocks, Atoms]:
        """The samples in blocks, and the start beside them; what a device cannot hold stays on the host."""
        X, labels = self.coordinates, self.labels
        if isinstance(X, StoredRows):
            return X.blocks(labels, len(self.atom_labels), batch_size, threads), self.start
        if device is None:
            return InMemoryBlocks(X, labels, batch_size, threads), self.start
        start = self.start._replace(M=place(self.start.M, device))
        (n, r), (*several, K, q) = X.shape, start.M.shape
        n_starts = math.prod(several)
        free = free_memory(start.M) // start.M.itemsize
        at_work, sizes = WORK_ARRAYS * (K + q), r + 2 * K
        block = min(n, batch_size or DEVICE_BLOCK)
        if is_torch(X) and n_starts * (n * 2 * K + block * at_work + 4 * K * (K + q)) < free:
            return InMemoryBlocks(X, place(labels, device), block), start
        if several:
            raise ValueError(
                f"n_init={n_starts} starts of {K} atoms, with the codes of {n} samples, need more memory "
                f"than device={device!r} has. Lower n_init or n_components, or set device=None."
            )
        size = min(block, max(1, (free // 2) // (IN_FLIGHT * sizes + at_work)))
        return StreamedBlocks(to_host(X), labels, size, device), start


class LEDLClassifier(IterativeFit, SeveralStarts, KernelClassifier, StreamFit):
    r"""Label embedded dictionary learning (LEDL).

    Learns a dictionary B, a classifier W and a label-consistency transform A together, by ADMM for the
    sparse codes S and blockwise coordinate descent for the rest:

    .. math::

        \min \|X - S B\|^2 + \lambda \|H - S W\|^2 + \omega \|Q - S A\|^2 + 2 \epsilon \|S\|_1

    with rows of B, W and A of norm 1, H the one-hot labels, and Q saying which atoms may serve which
    sample. A new sample x has the codes s of the lasso :math:`|x - s B|^2 + 2 \epsilon |s|_1` and the label
    :math:`\arg\max s W`, or that of another `rule`.

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

    rule : {"classifier", "residual", "regularized", "joint"}, default="classifier"
        How new samples get their labels; it acts at once, without another fit. :math:`B_j` are the atoms of
        class j and :math:`s_j` their codes.

        - ``"classifier"``: the paper's, the largest :math:`(s W)_j`;
        - ``"residual"``: the smallest :math:`|x - s_j B_j|^2`, as in SRC;
        - ``"regularized"``: the smallest :math:`|x - r_j B_j| / |r_j|`, as in CRC, with the ridge codes
          :math:`r = \arg\min |x - r B|^2 + \beta |r|^2`;
        - ``"joint"``: the label with which the objective above is least for x and label together. It takes a
          lasso for each class, with denser codes than those of x alone, so it is slower by more than the number
          of classes. The smaller `label_weight` is, the nearer it comes to ``"classifier"`` (with
          ``code_weight=0``). Both weights then act at once, too, and one of them must be positive.

        None is the best everywhere.

    ridge_alpha : float, default=2**-5 = 0.03125
        :math:`\beta`, weight of the squared norm of the ridge codes of ``rule="regularized"``: what `alpha` is
        to `CRCClassifier`. The `alpha` of the lasso is no measure for it: that is compared with correlations of
        atoms and sample, this with squared singular values of B.

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
        Where atoms start: near samples of their class, at uniform random numbers as in the paper (not with a
        kernel), or at given arrays of shapes (K, n_features), or (K, n_samples) with a kernel, (K, n_classes)
        and (K, K).

    n_init : int, default=1
        Number of starts, all learnt from side by side. Each codes new samples over its own K atoms, and scores
        of classes are the mean of theirs, which evens out their luck, at so many times the work (what it gains:
        docs/accuracy.md). Not for `init`
        with arrays, `checkpoint`, `partial_fit`, or samples that are not all in memory.

    normalize : bool, default=True
        Scale samples to norm 1, in `fit` and after. The default weights are for samples of norm 1: without it,
        scale samples yourself or choose other weights. With a kernel it is k(x, y) that is divided by
        :math:`\sqrt{k(x, x) k(y, y)}`.

    kernel : {"linear", "rbf", "poly", "hellinger", "precomputed"} or callable, default="linear"
        Inner products of samples. ``"hellinger"``, the sum of :math:`\sqrt{x_i y_i}`, is linear in the square
        roots of histograms, pixels or features (of negative values the roots of their absolute values, with
        their signs). A callable takes two samples and gives a number. For
        ``"precomputed"``, `fit` takes the kernel between all training samples in place of X, `predict` that
        between new and training samples, both normalised so that k(x, x) = 1; it needs ``normalize=False``.

    gamma : float, "scale" or None, default="scale"
        Of the kernels ``"rbf"`` and ``"poly"``. ``"scale"``: 1 / (n_features * X.var()); None: 1 / n_features.

    degree, coef0 : float, default=3, 1
        Of the kernel ``"poly"``.

    kernel_params : dict, default=None
        Further arguments of a callable kernel.

    transform_alpha : float, default=None
        Weight of the l1 norm for new samples. None: `alpha`.

    transform_tol : float, default=1e-6
        The codes of a new sample x have a duality gap of at most this times :math:`|x|^2 / 2`. The codes with
        a label, of ``rule="joint"``, have at most this times :math:`(\lambda + \omega m_j) / 2`, :math:`m_j`
        being the number of atoms of a class (the smallest): scores of classes differ by what labels cost, so
        that is what their errors, at most twice the gap, are to be small beside.

    keep_codes : bool, default=False
        Keep the codes of the training samples as `training_codes_`.

    batch_size : int, default=None
        Samples that training works on at a time: it bounds memory and changes nothing else. None: all that are
        in memory; of a memory-map, or a chunk of a Dask array, a block of 128 MiB with what is made of it.

    checkpoint : path, default=None
        A file that `fit` keeps its atoms and codes in while it runs, for about a tenth of its time at most.
        From it, `fit` with the same parameters on the same samples goes on where it was stopped, to the same
        model. It is deleted when the fit is done. Each fit needs a file of its own: not for searches.

    device : str, default=None
        Where training runs and new samples are coded: None on this machine's processors with NumPy; ``"cuda"``
        on a GPU, or ``"cpu"``, with PyTorch (extra ``gpu``). PyTorch tensors are worked on where they lie,
        whatever `device` says, and give tensors. Fitted attributes are NumPy arrays wherever the model was
        fitted: set `device` to predict elsewhere.

    precision : {"full", "tf32"}, default="full"
        Of products of float32 in training on a GPU. ``"tf32"`` is faster by far for many samples and keeps
        10 bits of each factor: atoms differ in the third digit, accuracy hardly (docs/performance.md has
        figures). Codes of new samples are computed in full. Without a GPU ``"tf32"`` is refused.

    n_jobs : int, default=None
        Threads that code new samples, in `predict`, `decision_function` and `transform`, and that train where
        there are blocks: with `batch_size`, on a memory-map, or on a Dask array where there is no cluster. None
        means 1 unless in a `joblib.parallel_config` context, -1 as many as there are processors.

    random_state : int, RandomState instance or None, default=None
        Draws the atoms to start from. An int gives the same model every time; the first of `n_init` starts is
        the one that ``n_init=1`` has.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.

    components_ : ndarray of shape (K, n_features)
        The dictionary B. Only without a kernel. This and all below that have K atoms have n_init * K with
        several starts: those of the first, those of the second, and so on.

    dual_components_ : ndarray of shape (K, n_samples)
        The dictionary as coefficients over the training samples (with `normalize` over the normalised ones).
        Only with a kernel.

    label_components_ : ndarray of shape (K, n_classes)
        The classifier W.

    code_components_ : ndarray of shape (K, K)
        The label-consistency transform A. It is kept as a K x n_classes matrix and expanded on demand; with
        several starts theirs are the blocks of its diagonal.

    atom_classes_ : ndarray of shape (K,)
        The label of each atom's class.

    n_iter_ : int
        Iterations done, of several starts by the one that took most; after `partial_fit`, batches seen.

    stopped_by_ : {"tol", "max_iter", "callback"}
        What ended them; ``"tol"`` only if it ended all starts. This and the next two are not there after
        `partial_fit`.

    history_ : dict of ndarrays of shape (`n_iter_`,)
        ``augmented_objective`` and its terms, weights included: ``data_fit``, ``label_fit``, ``code_fit``,
        ``penalty``, ``multiplier`` and ``coupling``; ``primal_residual``, ``dual_residual``, ``nonzero_share``;
        and ``objective``, the sum above at the sparse codes, every tenth iteration and at the end (else NaN).
        Of several starts the mean; one that has ended before the others counts with its last values.

    training_codes_ : ndarray of shape (n_samples, K)
        The sparse codes Z of the training samples, if `keep_codes`. `transform` of the same samples gives
        something else: it does not know their labels.

    stream_ : Stream
        After `partial_fit` only: sums of what it has seen, K x (K + n_features + 2 n_classes) numbers.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has names.

    Notes
    -----
    There is no ``predict_proba``: scores are not probabilities; `sklearn.calibration.CalibratedClassifierCV`
    makes them so. Progress bars come through scikit-learn's callbacks (version 1.9 and later):
    ``LEDLClassifier().set_callbacks(sklearn.callback.ProgressBar())``.

    `transform` gives the lasso codes of x for every rule. Scores are s W, negative squared residuals, negative
    residuals over norms, or negative objectives. A sample of zeros has the score zero in all classes.

    `partial_fit` learns from a stream of batches in one pass, in memory that does not grow.

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

    _rules: ClassVar[dict[str, Any]] = {
        "classifier": CodeScores,
        "residual": ResidualScores,
        "regularized": RidgeScores,
        "joint": JointScores,
    }

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "label_weight": [Interval(Real, 0, None, closed="left")],
        "code_weight": [Interval(Real, 0, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "rule": [StrOptions(set(_rules))],
        "ridge_alpha": [Interval(Real, 0, None, closed="neither")],
        "rho": [Interval(Real, 0, None, closed="neither")],
        "dual_step": [Interval(Real, 0, None, closed="left")],
        "dual_step_decay": [Interval(Real, 0, 1, closed="right")],
        "dual_step_min": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "init": [StrOptions({"class", "random"}), tuple, list],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "normalize": ["boolean"],
        **KERNEL_CONSTRAINTS,
        "transform_alpha": [Interval(Real, 0, None, closed="neither"), None],
        "transform_tol": [Interval(Real, 0, None, closed="neither")],
        "keep_codes": ["boolean"],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "checkpoint": [str, os.PathLike, None],
        "device": DEVICE,
        "precision": [StrOptions({"full", "tf32"})],
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        label_weight: float = 4.0,
        code_weight: float = 2**-11,
        alpha: float = 2**-6,
        rule: str = "classifier",
        ridge_alpha: float = 2**-5,
        rho: float = 1.0,
        dual_step: float = 0.5,
        dual_step_decay: float = 0.99,
        dual_step_min: float = 1e-4,
        max_iter: int = 100,
        tol: float = 1e-3,
        init: str | tuple[Array, Array, Array] = "class",
        n_init: int = 1,
        normalize: bool = True,
        kernel: Kernel = "linear",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        transform_alpha: float | None = None,
        transform_tol: float = 1e-6,
        keep_codes: bool = False,
        batch_size: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        device: str | None = None,
        precision: str = "full",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.label_weight = label_weight
        self.code_weight = code_weight
        self.alpha = alpha
        self.rule = rule
        self.ridge_alpha = ridge_alpha
        self.rho = rho
        self.dual_step = dual_step
        self.dual_step_decay = dual_step_decay
        self.dual_step_min = dual_step_min
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.n_init = n_init
        self.normalize = normalize
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.transform_alpha = transform_alpha
        self.transform_tol = transform_tol
        self.keep_codes = keep_codes
        self.batch_size = batch_size
        self.checkpoint = checkpoint
        self.device = device
        self.precision = precision
        self.n_jobs = n_jobs
        self.random_state = random_state

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    @unharmed
    def fit(self, X: Array, y: Array) -> LEDLClassifier:
        """Learn atoms, classifier and transform from labelled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples; with ``kernel="precomputed"`` the kernel between all of them.
        y : array-like of shape (n_samples,)
            Their labels.

        Returns
        -------
        self : LEDLClassifier
        """
        if self.checkpoint is not None:
            check_place(self.checkpoint)
        with seceded() if is_dask(X) else nullcontext():
            return self._fit(X, y)

    def _fit(self, X: Array, y: Array) -> LEDLClassifier:
        training = self._prepare(X, y)
        blocks, start = training.blocks(self._device_of(X), self.batch_size, n_threads(self.n_jobs))
        checkpoint = None if self.checkpoint is None else Checkpoint(self.checkpoint, self._identity(training))
        keep = partial(self._attributes, training)
        threads = one_blas_thread() if len(training.atom_labels) <= SINGLE_THREAD_ATOMS else nullcontext()
        products = float32_products(self.precision, self._device_of(X))
        with self._callbacks(X, y, self.max_iter) as watch, threads, products, closing(blocks):
            begin = (blocks, start.M, len(training.labels), RECORDED, self.max_iter)
            past = checkpoint.begin(*begin) if checkpoint else None

            def after(iteration: int, record: Record, solver: ADMM) -> bool:
                if checkpoint:
                    theta = self._schedule["dual_step"].at(iteration + 1)
                    checkpoint.after(blocks, solver.M, record, theta)
                return watch(lambda: keep(solver.atoms()))

            run = solve(
                blocks,
                start,
                code_scale=training.code_scale,
                lam=self.label_weight,
                omega=self.code_weight,
                epsilon=self.alpha,
                rho=self.rho,
                **self._schedule,
                callback=after,
                past=past,
            )
            if checkpoint and Status.NON_FINITE in set(np.ravel(run.status)):
                checkpoint.remove()  # there is no going on from there
            codes = {"training_codes_": side_by_side(to_host(blocks.codes()))} if self.keep_codes else {}
            X_kept = training.coordinates
            samples = {} if isinstance(X_kept, StoredRows) else kept_samples(X_kept, training.labels)
            self._keep(**self._outcome(run), **keep(run.state), **codes, **samples)
        if checkpoint:
            checkpoint.remove()
        return self

    @property
    def _schedule(self) -> dict[str, Any]:
        """How the solver is to iterate, whatever the weights."""
        dual_step = DualStep(self.dual_step, self.dual_step_decay, self.dual_step_min)
        return {"dual_step": dual_step, "max_iter": self.max_iter, "tol": self.tol}

    def _identity(self, training: Training) -> dict[str, Any]:
        """What decides the result of a fit beside the samples themselves."""
        params = {name: value for name, value in self.get_params().items() if name not in NOT_THE_RESULT}
        if not isinstance(self.random_state, Integral):
            del params["random_state"]  # says nothing about what was drawn
        samples = training.coordinates
        dtype = str(samples.dtype).removeprefix("torch.")
        known = {"n_samples": samples.shape[0], "n_columns": samples.shape[1], "type": dtype}
        labels = joblib.hash((training.classes, training.labels))
        return {**{name: as_plain(value) for name, value in params.items()}, **known, "labels": labels}

    def _prepare(self, X: Array, y: Array) -> Training:
        """All that training needs and the weights do not change."""
        device = self._device_of(X)
        check_precision(self.precision, device)
        if is_dask(X) and y is None:
            raise ValueError(f"This {type(self).__name__} requires y to be passed, but the target y is None.")
        y = np.asarray(y) if is_dask(y) else y
        X = self._known_rows(X) if is_dask(X) else X
        is_stored = device is None and self._trains_where_they_are(X)
        check_starts(self.n_init, self.init, self.checkpoint, is_stored)
        find = self._stored_samples if is_stored else self._training_data
        samples, labels, classes = find(X, y)
        n, c = len(labels), len(classes)
        default = default_n_atoms(n, c) if isinstance(self.init, str) else n_given_atoms(self.init)
        atom_labels = self._share_out_atoms(labels, default)
        K = len(atom_labels)
        n_bytes = samples.dtype.itemsize * self.n_init * K * (3 * K + (0 if is_stored else 6 * n))
        several = f", n_init={self.n_init} times," if self.n_init > 1 else ""
        check_memory(n_bytes, f"Codes and Gram matrices of n_components={K} atoms{several}", "Use fewer atoms.")
        space, coordinates = (IdentitySubspace(), samples) if is_stored else self._find_space(samples)
        start = self._starts(coordinates, labels, space, atom_labels)
        return Training(space, coordinates, labels, classes, atom_labels, start)

    def _trains_where_they_are(self, X: Array) -> bool:
        """Whether training visits samples where they are in every pass, and never holds all of them."""
        is_rows = is_dask(X) or (isinstance(X, np.memmap) and X.ndim == 2 and X.flags.c_contiguous)
        if not is_rows or X.dtype not in (np.float32, np.float64):
            return False
        return bool(self.kernel == "linear" and X.shape[0] >= X.shape[1])

    def _known_rows(self, X: Any) -> Any:
        """A Dask array as training visits it; or its samples in memory, where it cannot."""
        check_rows(X)
        if self.device is not None:
            raise ValueError(
                f"device={self.device!r} is for samples in memory, but X is a Dask array, on which its workers "
                "train with NumPy. Set device=None, or give X.compute()."
            )
        X = with_known_rows(X)
        if self._trains_where_they_are(X):
            return X
        n_bytes = X.nbytes
        check_memory(n_bytes, f"{X.shape[0]} samples, which this fit needs in memory,", "Use fewer samples.")
        return np.asarray(X)

    def _stored_samples(self, X: Array, y: Array) -> tuple[StoredRows, Array, Array]:
        """What `_training_data` gives, but for samples that stay where they are."""
        if not is_dask(X):
            X, labels, classes = self._checked_training(X, y)
            return open_file(X, self._unit_norm), labels, classes
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        self._take_features(X.shape[1])
        labels, classes = self._checked_labels(y)
        samples = open_dask(X, labels, self._unit_norm)
        check_not_zero(samples.usable)
        return samples, labels, classes

    @property
    def code_components_(self) -> Array:
        """The label-consistency transform A, (K, K)."""
        check_is_fitted(self)
        starts = [expand_code_transform(one._code_atoms, one._atom_labels) for one in starts_of(self)]
        return starts[0] if len(starts) == 1 else scipy.linalg.block_diag(*starts)

    @property
    def _alpha(self) -> float:
        return self.alpha if self.transform_alpha is None else self.transform_alpha

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Defaults are for few samples with many features; scikit-learn's checks have two-dimensional blobs.
        # The joint rule classifies them well enough.
        tags.classifier_tags.poor_score = self.rule != "joint"
        return tags

    def _starts(self, coordinates: Array, labels: Array, space: Subspace, atom_labels: Array) -> Atoms:
        """One start, or several below each other."""
        random_state = check_random_state(self.random_state)
        seeds = [random_state.randint(np.iinfo(np.int32).max) for _ in range(self.n_init)]
        starts = [self._start(coordinates, labels, space, atom_labels, seed) for seed in seeds]
        if self.n_init == 1:
            return starts[0]
        return starts[0]._replace(M=namespace(starts[0].M).stack([start.M for start in starts]))

    def _start(
        self, coordinates: Array, labels: Array, space: Subspace, atom_labels: Array, seed: int
    ) -> Atoms:
        rng = np.random.default_rng(seed)
        if not isinstance(self.init, str):
            width = len(space.basis) if isinstance(space, KernelSpace) else self.n_features_in_
            stored = isinstance(coordinates, StoredRows)
            dtype = coordinates.dtype if stored else to_host(coordinates[:0]).dtype
            start = array_start(self.init, space, width, atom_labels, dtype)
        elif self.init == "random" and isinstance(space, KernelSpace):
            raise ValueError(
                f"init='random' draws features of atoms, which kernel={self.kernel!r} does not have. Use "
                "init='class', or arrays (B, W, A) with coefficients over the training samples for B."
            )
        elif self.init == "random":
            start = random_start(space, self.n_features_in_, atom_labels, rng)
        else:
            candidates = samples_to_start_at(coordinates, labels)
            blocks = (
                coordinates.blocks(labels, len(atom_labels), self.batch_size, 1)
                if isinstance(coordinates, StoredRows)
                else InMemoryBlocks(coordinates, labels)
            )
            start = class_start(blocks, candidates, atom_labels, rng)
        like = np.empty(0, coordinates.dtype) if isinstance(coordinates, StoredRows) else coordinates
        return start._replace(M=as_array(start.M, like, like.dtype))

    def _attributes(self, training: Training, atoms: Atoms) -> dict[str, Any]:
        """What a fitted model keeps of atoms."""
        return with_components(self._state(training, atoms))

    def _state(self, training: Training, atoms: Atoms) -> dict[str, Any]:
        """All that `predict` and `transform` need of that."""
        n_starts = math.prod(atoms.M.shape[:-2])
        parts = (to_host(part) for part in (atoms.B, atoms.A, atoms.W))
        B, A, W = (np.ascontiguousarray(part.reshape(-1, part.shape[-1])) for part in parts)
        state = self._atom_state(training.space, B, np.tile(training.atom_labels, n_starts), training.classes)
        learnt = {"_code_atoms": A, "label_components_": W, "_n_starts": n_starts}
        return {**state, **learnt, "_n_samples": len(training.labels)}

    def _outcome(self, run: Iterations) -> dict[str, Any]:
        run = mean_over_starts(run)
        outcome = super()._outcome(run)
        if not run.history["nonzero_share"][-1]:
            warn_of_zero_codes(self.alpha, "are zero in the end", stacklevel=4)
        return outcome


def side_by_side(codes: Array) -> Array:
    """A copy of codes, of several starts those of a sample in one row: (..., n, K) -> (n, ... * K)."""
    n = codes.shape[-2]
    return np.array(np.moveaxis(codes, -2, 0).reshape(n, -1))


def samples_to_start_at(X: Array | StoredRows, labels: Array) -> list[Array]:
    """For each class the samples that its atoms may start at: those that are not zero.

    A class of zero samples alone borrows those of all classes.
    """
    usable = X.usable if isinstance(X, StoredRows) else to_host(namespace(X).any(X != 0, axis=1))
    by_class = [np.flatnonzero(usable & (labels == j)) for j in range(labels.max() + 1)]
    return [samples if samples.size else np.flatnonzero(usable) for samples in by_class]
