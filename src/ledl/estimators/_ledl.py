"""Label embedded dictionary learning as a scikit-learn classifier."""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import joblib
import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from ledl.arrays import (
    Array,
    as_array,
    check_memory,
    float32_products,
    free_memory,
    is_dask,
    is_torch,
    namespace,
    place,
    take_rows,
    to_host,
)
from ledl.coding import Lasso, Ridge, Settings
from ledl.dictionary import ClassifierRule, FittedDictionary, RegularizedRule, ResidualRule, RidgeRule
from ledl.estimators._base import (
    CLASS_WEIGHT,
    DEVICE,
    N_JOBS,
    SINGLE_THREAD_ATOMS,
    CallbackSupportMixin,
    DictionaryClassifier,
    adopt,
    check_class_totals,
    check_labelled,
    check_not_zero,
    check_precision,
    check_weights,
    device_of,
    draw_generator,
    fit_context,
    fitted_attributes,
    kept_samples,
    notify_callbacks,
    number_labels,
    outcome,
    rollback_on_error,
    share_out_atoms,
    warn_of_zero_codes,
    with_callbacks,
)
from ledl.estimators._online import learn_batch
from ledl.kernels import KERNEL_CONSTRAINTS, Kernel
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
    sketch_of_rows,
    with_known_rows,
)
from ledl.solvers.iteration import Record, Status
from ledl.solvers.ledl import ADMM, RECORDED, Atoms, DualStep, expand_code_transform, solve
from ledl.solvers.start import (
    array_start,
    class_start,
    default_n_atoms,
    in_turns,
    n_given_atoms,
    random_start,
)
from ledl.solvers.stream import whole
from ledl.subspace import IdentitySubspace, KernelSpace, Subspace

# Number of samples of a block on a device, and number of arrays as large as their codes or targets in a step.
DEVICE_BLOCK, WORK_ARRAYS = 2**16, 8

# Parameters that do not change the learnt atoms.
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


class LEDLClassifier(CallbackSupportMixin, DictionaryClassifier):
    r"""Label embedded dictionary learning (LEDL).

    It learns a dictionary B, a classifier W and a label-consistency transform A together, by ADMM for the
    sparse codes S and blockwise coordinate descent for the rest:

    .. math::

        \min \|X - S B\|^2 + \lambda \|H - S W\|^2 + \omega \|Q - S A\|^2 + 2 \epsilon \|S\|_1

    Rows of B, W and A have norm 1. H are the one-hot labels, and Q says which atoms may represent which sample.
    A new sample x has the codes s of the lasso :math:`|x - s B|^2 + 2 \epsilon |s|_1` and the label
    :math:`\arg\max s W`, or that of another `rule`.

    Parameters
    ----------
    n_components : int, default=None
        Number K of atoms, shared out among the classes in proportion to their samples, or to the weights of
        these. None means twice the number of training samples (those of weight zero do not count), but at
        most max(2000, n_classes), or as many as `init` has.

    label_weight : float, default=4.0
        Weight :math:`\lambda` of the label term. The larger it is, the more labels shape the codes. With zero,
        W is learnt, but does not act on the codes.

    code_weight : float, default=2**-11 = 0.00048828125
        Weight :math:`\omega` of the label-consistency term. The larger it is, the more a sample is made of
        atoms of its own class. With zero, A is learnt, but does not act on the codes.

    alpha : float, default=2**-6 = 0.015625
        Weight :math:`\epsilon` of the l1 norm, on the scale of scikit-learn's `SparseCoder`. The larger it is,
        the fewer atoms make up a sample. Tune it first, between 2**-10 and 2**-3.

    rule : {"classifier", "residual", "regularized", "ridge"}, default="classifier"
        Rule that gives new samples their labels. It acts at once, without another fit. :math:`B_j` are the
        atoms of class j and :math:`s_j` their codes.

        - ``"classifier"`` takes the largest :math:`(s W)_j`, as in the paper.
        - ``"residual"`` takes the smallest :math:`|x - s_j B_j|^2`, as in SRC.
        - ``"regularized"`` takes the smallest :math:`|x - r_j B_j| / |r_j|`, as in CRC, with the ridge codes
          :math:`r = \arg\min |x - r B|^2 + \beta |r|^2`.
        - ``"ridge"`` takes the largest :math:`(r W)_j` with these ridge codes. It is linear in x.

        No rule is the best on all data.

    ridge_alpha : float, default=2**-5 = 0.03125
        Weight :math:`\beta` of the squared norm of the ridge codes of the rules ``"regularized"`` and
        ``"ridge"``, like `alpha` of `CRCClassifier`. Its scale is not that of the `alpha` of the lasso: that is
        compared with correlations of atoms and sample, this with squared singular values of B.

    rho : float, default=1.0
        Penalty of ADMM, which pulls the two copies of the codes together. The paper's value is 1. Training
        diverges with much smaller values.

    dual_step, dual_step_decay, dual_step_min : float, default=0.5, 0.99, 1e-4
        First step of the multipliers, factor of the step in every iteration, and smallest step.

    max_iter : int, default=100
        Largest number of iterations.

    tol : float, default=1e-3
        Tolerance. Training stops when the relative change of the augmented objective was at most `tol` three
        times in a row. 0 means that all iterations are run.

    init : {"class", "random"} or tuple (B, W, A), default="class"
        Start of the atoms. ``"class"`` means near samples of their class. ``"random"`` means uniform random
        numbers, as in the paper. Arrays have the shapes (K, n_features), (K, n_classes) and (K, K). If there
        are fewer samples than features, rows of B are projected onto the span of the samples. With a kernel
        other than ``"linear"`` and ``"hellinger"`` there is no ``"random"``, and the first array has the shape
        (K, n_samples).

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply those of their samples. A dict has numbers for labels, and 1 is
        for labels that it lacks. ``"balanced"`` makes all classes weigh the same, however many samples they
        have.

    normalize : bool, default=True
        If True, samples are scaled to norm 1, in `fit` and after. The default weights are for samples of norm
        1. If False, scale samples yourself or choose other weights. With a kernel, k(x, y) is divided by
        :math:`\sqrt{k(x, x) k(y, y)}` instead.

    kernel : {"linear", "rbf", "poly", "hellinger", "precomputed"}, float or callable, default="linear"
        Kernel, which computes inner products of samples. ``"hellinger"``, the sum of :math:`\sqrt{x_i y_i}`,
        takes the square roots of histograms, pixels or features, and is as fast as ``"linear"``. A number p
        takes the powers :math:`\mathrm{sign}(x) |x|^p`: ``"linear"`` is 1, ``"hellinger"`` 0.5, and small p
        tame bright spots. The others need the kernel between all pairs of training samples. A callable takes
        two samples and returns a number. With ``"precomputed"``, `fit` takes the kernel between all training
        samples instead of X, and `predict` the kernel between new and training samples. Both must be normalised
        so that k(x, x) = 1, and ``normalize`` must be False.

    gamma : float, "scale" or None, default="scale"
        Parameter of the kernels ``"rbf"`` and ``"poly"``. ``"scale"`` means 1 / (n_features * X.var()). None
        means 1 / n_features.

    degree, coef0 : float, default=3, 1
        Parameters of the kernel ``"poly"``.

    kernel_params : dict, default=None
        More arguments of a callable kernel.

    transform_alpha : float, default=None
        Weight of the l1 norm for new samples. None means `alpha`.

    transform_tol : float, default=1e-6
        Tolerance. The codes of a new sample x have a duality gap of at most `transform_tol` times
        :math:`|x|^2 / 2`.

    keep_codes : bool, default=False
        If True, the codes of the training samples are kept as `training_codes_`.

    batch_size : int, default=None
        Number of samples that training works on at a time. It bounds memory and changes nothing else. None
        means all samples that are in memory. For a memory map, or a chunk of a Dask array, it means blocks of
        128 MiB, including the arrays made of them.

    checkpoint : path, default=None
        File that `fit` writes its atoms and codes to while it runs. Writing takes at most about a tenth of its
        time. If `fit` was stopped, another `fit` with the same parameters on the same samples goes on from the
        file, to the same model. The file is deleted when the fit is done. Each fit needs its own file, so it is
        not for searches, nor for others that fit a model several times.

    device : str, default=None
        Device that trains and codes new samples. None means the processors, with NumPy. ``"cuda"`` means a GPU
        and ``"cpu"`` the processors, both with PyTorch (extra ``gpu``). PyTorch tensors stay on their device,
        whatever `device` says, and give tensors. Fitted attributes are NumPy arrays, so a model may
        predict on another device.

    precision : {"full", "tf32"}, default="full"
        Precision of products of float32 in training on a GPU. ``"tf32"`` is much faster for many samples and
        keeps 10 bits of each factor. Atoms differ in the third digit, and accuracy hardly differs
        (docs/performance.md has figures). Codes of new samples are computed in full precision. Without a GPU
        ``"tf32"`` raises an error.

    n_jobs : int, default=None
        Number of threads that code new samples, in `predict`, `decision_function` and `transform`. They also
        train where there are blocks: with `batch_size`, on a memory map, or on a Dask array without a cluster.
        None means 1 unless in a `joblib.parallel_config` context. -1 means all processors.

    random_state : int, RandomState instance or None, default=None
        Source of random numbers, which draw the atoms to start from. An int gives the same model every time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.

    components_ : ndarray of shape (K, n_features)
        The dictionary B. With ``kernel="hellinger"``, or a number, its atoms are made of powers of features.
        Other kernels have `dual_components_` instead.

    dual_components_ : ndarray of shape (K, n_samples)
        The dictionary as coefficients over the training samples, which are normalised if `normalize`. Only with
        kernels other than ``"linear"`` and ``"hellinger"``.

    label_components_ : ndarray of shape (K, n_classes)
        The classifier W.

    code_components_ : ndarray of shape (K, K)
        The label-consistency transform A. It is computed on demand from a K x n_classes matrix.

    atom_classes_ : ndarray of shape (K,)
        The label of each atom's class.

    n_iter_ : int
        Number of iterations. After `partial_fit` the number of batches.

    stopped_by_ : {"tol", "max_iter", "callback"}
        What ended the iterations. After `partial_fit` this and the next two attributes do not exist.

    history_ : dict of ndarrays of shape (`n_iter_`,)
        Values of each iteration: ``augmented_objective`` and its terms, weights included (``data_fit``,
        ``label_fit``, ``code_fit``, ``penalty``, ``multiplier`` and ``coupling``); ``primal_residual``,
        ``dual_residual``, ``nonzero_share``; and ``objective``, the sum above at the sparse codes, which is
        computed every tenth iteration and at the end, and is NaN otherwise.

    training_codes_ : ndarray of shape (n_samples, K)
        The sparse codes Z of the training samples. Only if `keep_codes`. `transform` of the same samples gives
        other codes, because it does not know their labels.

    stream_ : Stream
        Sums over all batches, K x (K + n_features + 2 n_classes) numbers. Only after `partial_fit`.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features. Only if X has names.

    Notes
    -----
    There is no ``predict_proba``, because scores are not probabilities.
    `sklearn.calibration.CalibratedClassifierCV` makes probabilities of them. Progress bars are callbacks of
    scikit-learn (version 1.9 and later):
    ``LEDLClassifier().set_callbacks(sklearn.callback.ProgressBar())``.

    `transform` returns the lasso codes of x, whatever the rule is. Scores are s W or r W, negative squared
    residuals, or negative residuals divided by norms. A sample of zeros has the score zero in all classes.

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

    components_: np.ndarray
    dual_components_: np.ndarray
    label_components_: np.ndarray
    atom_classes_: np.ndarray
    n_iter_: int
    stopped_by_: str
    history_: dict[str, np.ndarray]
    training_codes_: np.ndarray

    # Defaults are for few samples with many features. scikit-learn's checks have two-dimensional blobs.
    _poor_score = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "label_weight": [Interval(Real, 0, None, closed="left")],
        "code_weight": [Interval(Real, 0, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "rule": [StrOptions({"classifier", "residual", "regularized", "ridge"})],
        "ridge_alpha": [Interval(Real, 0, None, closed="neither")],
        "rho": [Interval(Real, 0, None, closed="neither")],
        "dual_step": [Interval(Real, 0, None, closed="left")],
        "dual_step_decay": [Interval(Real, 0, 1, closed="right")],
        "dual_step_min": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "init": [StrOptions({"class", "random"}), tuple, list],
        "class_weight": CLASS_WEIGHT,
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
        rule: Literal["classifier", "residual", "regularized", "ridge"] = "classifier",
        ridge_alpha: float = 2**-5,
        rho: float = 1.0,
        dual_step: float = 0.5,
        dual_step_decay: float = 0.99,
        dual_step_min: float = 1e-4,
        max_iter: int = 100,
        tol: float = 1e-3,
        init: Literal["class", "random"] | tuple[Array, Array, Array] = "class",
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        normalize: bool = True,
        kernel: Kernel = "linear",
        gamma: float | Literal["scale"] | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        transform_alpha: float | None = None,
        transform_tol: float = 1e-6,
        keep_codes: bool = False,
        batch_size: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        device: str | None = None,
        precision: Literal["full", "tf32"] = "full",
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
        self.class_weight = class_weight
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
    @rollback_on_error
    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Self:
        """Learn atoms, classifier and transform from labelled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples. With ``kernel="precomputed"`` the kernel between all of them.
        y : array-like of shape (n_samples,)
            Labels of the samples.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; only their ratios matter. An integer weight is the same as so many copies of
            the sample, if `n_components` and the start are the same. (The default number of atoms counts rows
            of a weight that is not zero, and ``init="class"`` starts at any of them.) None means that all
            weigh 1.

        Returns
        -------
        self : LEDLClassifier
        """
        if self.checkpoint is not None:
            check_place(self.checkpoint)
        device = device_of(X, self.device)
        with seceded() if is_dask(X) else nullcontext():
            training = prepare_training(self, X, y, sample_weight)
            blocks, start = training.blocks(device, self.batch_size, n_threads(self.n_jobs))
            checkpoint = (
                None if self.checkpoint is None else Checkpoint(self.checkpoint, self._identity(training))
            )
            threads = one_blas_thread() if len(training.atom_labels) <= SINGLE_THREAD_ATOMS else nullcontext()
            products = float32_products(self.precision, device)
            dual_step = DualStep(self.dual_step, self.dual_step_decay, self.dual_step_min)
            with notify_callbacks(self, X, y, self.max_iter) as watch, threads, products, closing(blocks):
                past = None
                if checkpoint is not None:
                    is_spanned = not isinstance(training.space, IdentitySubspace)
                    past = checkpoint.begin(
                        blocks,
                        start.M,
                        len(training.labels),
                        RECORDED,
                        self.max_iter,
                        sketch=training.sketch,
                        coordinates=training.coordinates if is_spanned else None,
                    )

                def after(iteration: int, record: Record, solver: ADMM) -> bool:
                    if checkpoint:
                        checkpoint.after(blocks, solver.M, record)
                    return watch is not None and watch(lambda: self._learnt(training, solver.atoms()))

                run = solve(
                    blocks,
                    start,
                    code_scale=np.sqrt(np.bincount(training.atom_labels)),
                    lam=self.label_weight,
                    omega=self.code_weight,
                    epsilon=self.alpha,
                    rho=self.rho,
                    dual_step=dual_step,
                    max_iter=self.max_iter,
                    tol=self.tol,
                    callback=after if checkpoint or watch else None,
                    past=past,
                )
                if checkpoint and Status.NON_FINITE in set(np.ravel(run.status)):
                    checkpoint.remove()  # a fit cannot go on from there
                attributes = outcome(self, run)
                if not run.history["nonzero_share"][-1]:
                    warn_of_zero_codes(self.alpha, "are zero in the end", stacklevel=5)
                dictionary, learnt = read_atoms(self, training, run.state)
                dictionary = replace(dictionary, **kept_samples(training.coordinates, training.labels))
                if self.keep_codes:
                    codes = np.array(to_host(blocks.codes()))
                    learnt["training_codes_"] = (
                        codes if training.turns is None else codes[:, np.argsort(training.turns)]
                    )
                adopt(self, **attributes, **fitted_attributes(dictionary), **learnt)
            if checkpoint:
                checkpoint.remove()
        return self

    def _learnt(self, training: Training, atoms: Atoms) -> dict[str, Any]:
        """Return the fitted attributes that atoms make."""
        dictionary, learnt = read_atoms(self, training, atoms)
        return {**fitted_attributes(dictionary), **learnt}

    @fit_context(prefer_skip_nested_validation=True)
    @rollback_on_error
    def partial_fit(
        self, X: Array, y: Array, classes: Array | None = None, sample_weight: Array | None = None
    ) -> Self:
        """Learn from one more batch of a stream. No sample is kept.

        Each batch takes ten code steps and one sweep over the atoms, whatever `max_iter` and `tol` say. Sums
        over its codes are added to those of earlier batches, which fade [1]_. Memory does not grow with the
        stream.

        All classes have the same share of the ``n_components`` atoms. None means as many as `fit` on the first
        batch would take, and at least one for each class. An atom is zero until it starts at a sample of its
        class that no other atom has started at.

        After `fit`, and on a loaded model, learning goes on from the current atoms. `fit` starts again. Weights
        may be changed between calls, and act from then on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples of the batch, one or more.
        y : array-like of shape (n_samples,)
            Labels of the samples.
        classes : array-like of shape (n_classes,), default=None
            All labels that may come. They are needed in the first call, and may be left out later.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, as in `fit`. ``class_weight="balanced"`` is for `fit` only.

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
        self._validate_params()  # scikit-learn checks them in the first call only
        adopt(self, **learn_batch(self, X, y, classes, sample_weight))
        return self

    def _coder_and_rule(self) -> tuple[Settings, Any]:
        return coder_and_rule(self, self.label_components_)

    @property
    def code_components_(self) -> np.ndarray:
        """The label-consistency transform A, (K, K)."""
        check_is_fitted(self)
        return expand_code_transform(self._code_atoms, self._dictionary.atom_labels)

    def _identity(self, training: Training) -> dict[str, Any]:
        """Return everything that decides the result of a fit, except the samples themselves."""
        params = {name: value for name, value in self.get_params().items() if name not in NOT_THE_RESULT}
        if not isinstance(self.random_state, Integral):
            del params["random_state"]  # it does not say what was drawn
        samples = training.coordinates
        return {
            **{name: as_plain(value) for name, value in params.items()},
            "n_samples": samples.shape[0],
            "n_columns": self.n_features_in_,
            "type": str(samples.dtype).removeprefix("torch."),
            "labels": joblib.hash((training.classes, training.labels)),
            "weights of samples": joblib.hash(training.weights),
            "order of atoms": "as given" if training.turns is None else "classes take turns by lot",
        }


class Training(NamedTuple):
    """The start of a fit. Coordinates and start are on the device of the fit, the rest is on the host."""

    space: Subspace
    coordinates: Array | StoredRows  # (n, r); stored rows are visited block by block
    labels: Array  # (n,)
    classes: Array
    atom_labels: Array  # (K,)
    start: Atoms
    weights: Array | None = None  # (n,)
    turns: Array | None = None  # (K,): the atoms in the order in which they are updated; None: as they are
    sketch: Array | None = None  # of the features of samples in memory, for a checkpoint

    def blocks(self, device: str | None, batch_size: int | None, threads: int) -> tuple[Blocks, Atoms]:
        """Return the samples in blocks, and the start on the same device.

        Samples that the device cannot hold stay on the host, and are streamed.
        """
        X, labels, weights = self.coordinates, self.labels, self.weights
        if isinstance(X, StoredRows):
            return X.blocks(labels, len(self.atom_labels), batch_size, threads, weights), self.start
        if device is None:
            return InMemoryBlocks(X, labels, batch_size, threads, weights), self.start
        start = self.start._replace(M=place(self.start.M, device))
        (n, r), (K, q) = X.shape, start.M.shape
        free = free_memory(start.M) // start.M.itemsize
        at_work, sizes = WORK_ARRAYS * (K + q), r + 2 * K
        block = min(n, batch_size or DEVICE_BLOCK)
        if is_torch(X) and n * 2 * K + block * at_work + 4 * K * (K + q) < free:
            weights = None if weights is None else place(weights, device)
            return InMemoryBlocks(X, place(labels, device), block, weights=weights), start
        size = min(block, max(1, (free // 2) // (IN_FLIGHT * sizes + at_work)))
        return StreamedBlocks(to_host(X), labels, size, device, weights), start


def prepare_training(model: LEDLClassifier, X: Array, y: Array, sample_weight: Array | None = None) -> Training:
    """Return what training needs whatever the weights are: checked samples, their space, and a start."""
    device = device_of(X, model.device)
    check_precision(model.precision, device)
    if is_dask(X):
        check_rows(X)
        if model.device is not None:
            raise ValueError(
                f"device={model.device!r} is for samples in memory, but X is a Dask array, and Dask's workers "
                "train with NumPy. Set device=None, or give X.compute()."
            )
        validate_data(model, X, y, skip_check_array=True)  # needs y, and records the features
        X = with_known_rows(X)
    y = np.asarray(y) if is_dask(y) else y
    # Training visits such samples where they are, block by block, and never holds all of them.
    is_stored = (
        (is_dask(X) or (isinstance(X, np.memmap) and X.ndim == 2 and X.flags.c_contiguous))
        and X.dtype in (np.float32, np.float64)
        and X.shape[0] >= X.shape[1]
        and model._is_linear
        and device is None
    )
    if is_dask(X) and not is_stored:
        check_memory(X.nbytes, f"{X.shape[0]} samples, which this fit needs in memory,", "Use fewer samples.")
        X = np.asarray(X)
    if is_stored and is_dask(X):
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        labels, classes = number_labels(model, y)
        samples = open_dask(X, labels, model._features)
        check_not_zero(samples.usable)
    elif is_stored:
        X, y = check_labelled(model, X, y)
        labels, classes = number_labels(model, y)
        check_not_zero(X)
        samples = open_file(X, model._features)
    else:
        samples, labels, classes = model._training_data(X, y)
    n, c = len(labels), len(classes)
    sample_weight = np.asarray(sample_weight) if is_dask(sample_weight) else sample_weight
    weights = check_weights(model, labels, classes, sample_weight)
    check_class_totals(labels, classes, weights)
    n_counted = n if weights is None else int(np.count_nonzero(weights))
    default = default_n_atoms(n_counted, c) if isinstance(model.init, str) else n_given_atoms(model.init)
    atom_labels = share_out_atoms(labels, model.n_components, default, weights)
    K = len(atom_labels)
    n_bytes = samples.dtype.itemsize * K * (3 * K + (0 if is_stored else 6 * n))
    check_memory(n_bytes, f"Codes and Gram matrices of n_components={K} atoms", "Use fewer atoms.")
    needs_sketch = model.checkpoint is not None and not is_stored
    sketch = sketch_of_rows(samples) if needs_sketch else None  # now: samples may be overwritten
    space, coordinates = (IdentitySubspace(), samples) if is_stored else model._find_space(samples, weights)
    start = first_atoms(model, coordinates, labels, space, atom_labels, weights)
    turns = in_turns(atom_labels) if isinstance(model.init, str) else None  # given arrays have their own order
    if turns is not None:
        start = start._replace(M=take_rows(start.M, as_array(turns, start.M)))
    if weights is not None:
        weights = weights.astype(coordinates.dtype if is_stored else to_host(coordinates[:0]).dtype)
    return Training(space, coordinates, labels, classes, atom_labels, start, weights, turns, sketch)


def first_atoms(
    model: LEDLClassifier,
    X: Array | StoredRows,
    labels: Array,
    space: Subspace,
    atom_labels: Array,
    weights: Array | None,
) -> Atoms:
    """Return the atoms to start from, in the coordinates of `space` and on the device of X."""
    rng = draw_generator(model.random_state)
    like = np.empty(0, X.dtype) if isinstance(X, StoredRows) else X
    if not isinstance(model.init, str):
        width = len(space.basis) if isinstance(space, KernelSpace) else model.n_features_in_
        start = array_start(model.init, space, width, atom_labels, to_host(like[:0]).dtype)
    elif model.init == "random" and isinstance(space, KernelSpace):
        raise ValueError(
            f"init='random' draws features of atoms, which kernel={model.kernel!r} does not have. Use "
            "init='class', or arrays (B, W, A) with coefficients over the training samples for B."
        )
    elif model.init == "random":
        start = random_start(space, model.n_features_in_, atom_labels, rng)
    else:
        # Atoms start at samples of their class that are not zero. A class of zero samples takes any class.
        usable = X.usable if isinstance(X, StoredRows) else to_host(namespace(X).any(X != 0, axis=1))
        usable = usable if weights is None else usable & (weights > 0)
        by_class = [np.flatnonzero(usable & (labels == j)) for j in range(labels.max() + 1)]
        candidates = [own if own.size else np.flatnonzero(usable) for own in by_class]
        stored = isinstance(X, StoredRows)
        blocks = (
            X.blocks(labels, len(atom_labels), model.batch_size, 1) if stored else InMemoryBlocks(X, labels)
        )
        start = class_start(blocks, candidates, atom_labels, rng)
    return start._replace(M=as_array(start.M, like, like.dtype))


def read_atoms(
    model: LEDLClassifier, training: Training, atoms: Atoms
) -> tuple[FittedDictionary, dict[str, Any]]:
    """Return the dictionary of these atoms, and the other fitted attributes made of them, on the host."""
    c, M = atoms.n_classes, to_host(atoms.M)
    M = M if training.turns is None else M[np.argsort(training.turns)]
    B, W, A = (np.ascontiguousarray(part) for part in np.split(M, [-2 * c, -c], axis=1))
    coder, rule = coder_and_rule(model, W)
    dictionary = FittedDictionary(
        training.space, B, model._features, coder, rule, training.classes, training.atom_labels
    )
    n = len(training.labels) if training.weights is None else whole(training.weights.sum())
    learnt = {"label_components_": W, "_code_atoms": A, "_n_samples": n}
    return dictionary, learnt


def coder_and_rule(model: LEDLClassifier, W: Array) -> tuple[Settings, Any]:
    """Return how LEDL codes and scores samples at the parameters of `model`, with the classifier W."""
    alpha = model.alpha if model.transform_alpha is None else model.transform_alpha
    rules: dict[str, Any] = {
        "classifier": ClassifierRule(W),
        "residual": ResidualRule(),
        "regularized": RegularizedRule(Ridge(model.ridge_alpha, "ridge_alpha")),
        "ridge": RidgeRule(W, Ridge(model.ridge_alpha, "ridge_alpha")),
    }
    return Lasso(alpha, model.transform_tol), rules[model.rule]
