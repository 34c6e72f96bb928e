"""Class-specific dictionary learning, then classification by sparse representation (CSDL-SRC)."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils._param_validation import Interval

from ledl.arrays import Array, check_memory
from ledl.coding import Lasso, Settings
from ledl.dictionary import FittedDictionary, ResidualRule
from ledl.estimators._base import (
    DEVICE,
    N_JOBS,
    DictionaryClassifier,
    adopt,
    draw_generator,
    fit_context,
    fitted_attributes,
    kept_samples,
    outcome,
    rollback_on_error,
    share_out_atoms,
)
from ledl.kernels import KERNEL_CONSTRAINTS, Kernel
from ledl.parallel import map_in_threads, n_threads, one_blas_thread
from ledl.solvers.csdl import learn_atoms
from ledl.solvers.iteration import Iterations
from ledl.solvers.start import default_n_atoms, random_mixtures


class CSDLClassifier(DictionaryClassifier):
    r"""Class-specific dictionary learning with sparse representation based classification (CSDL-SRC).

    For each class j, with samples :math:`X_j`, atoms :math:`B_j` with rows of norm 1 are learnt by blockwise
    coordinate descent on

    .. math::

        \min \|X_j - S B_j\|^2 + 2 \alpha \|S\|_1

    Then, as in SRC, a new sample y gets sparse codes over the atoms of all classes, and the label of the class
    whose atoms, with their codes, come nearest.

    Parameters
    ----------
    n_components : int, default=None
        Number of atoms, shared out among the classes in proportion to their samples. None means twice the
        number of training samples, but at most max(2000, n_classes).

    alpha : float, default=2**-8 = 0.00390625
        Weight of the l1 norm, on the scale of scikit-learn's `SparseCoder`. The parameter to tune first,
        between 2**-10 and 2**-3.

    max_iter : int, default=30
        Largest number of iterations for each class. Few are best: samples of norm 1 minimise the objective
        above, so atoms that are learnt to the end become those of SRC.

    tol : float, default=0
        Tolerance. Training stops when the relative change of a class's objective was at most `tol` three times
        in a row. 0 means that all iterations are run.

    normalize : bool, default=True
        If True, samples are scaled to norm 1, in `fit` and after. With a kernel, k(x, y) is divided by
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
        Tolerance. The codes of a new sample y have a duality gap of at most `transform_tol` times
        :math:`|y|^2 / 2`.

    device : str, default=None
        Device that codes new samples. None means the processors, with NumPy. ``"cuda"`` means a GPU and
        ``"cpu"`` the processors, both with PyTorch (extra ``gpu``). Training is on the host: a class is small.
        PyTorch tensors stay on their device, whatever `device` says, and give tensors. Fitted attributes are
        NumPy arrays, so a model may predict on another device.

    n_jobs : int, default=None
        Number of threads that learn classes and code new samples. None means 1 unless in a
        `joblib.parallel_config` context. -1 means all processors.

    random_state : int, RandomState instance or None, default=None
        Source of random numbers, which draw the combinations of samples that atoms start from. An int gives the
        same model every time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.

    components_ : ndarray of shape (n_components, n_features)
        The atoms of all classes. With ``kernel="hellinger"`` they are made of square roots. Other kernels have
        `dual_components_` instead.

    dual_components_ : ndarray of shape (n_components, n_samples)
        The atoms as coefficients over the training samples. Only with kernels other than ``"linear"`` and
        ``"hellinger"``.

    atom_classes_ : ndarray of shape (n_components,)
        The label of each atom's class.

    n_iter_ : int
        Number of iterations of the class that took most.

    stopped_by_ : {"tol", "max_iter"}
        What ended the iterations. It is "max_iter" if that ended those of any class.

    history_ : dict of ndarrays of shape (`n_iter_`, n_classes)
        ``objective`` is the sum above for each class after each iteration, and NaN after a class has ended.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features. Only if X has names.

    See Also
    --------
    SRCClassifier : Takes the training samples as atoms.

    References
    ----------
    B.-D. Liu, B. Shen, L. Gui, Y.-X. Wang, X. Li, F. Yan and Y.-J. Wang, "Face recognition using class specific
    dictionary learning for sparse representation and collaborative representation", Neurocomputing 204, 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import CSDLClassifier
    >>> from ledl.datasets import few_shot_splits
    >>> X, y = load_digits(return_X_y=True)
    >>> train, test = next(few_shot_splits(y, n_per_class=5))
    >>> model = CSDLClassifier(random_state=0).fit(X[train], y[train])
    >>> bool(model.score(X[test], y[test]) > 0.7)
    True
    """

    # scikit-learn's checks have 100 two-dimensional samples in each class, so 200 atoms start in all
    # directions. The default number of iterations, which suits few samples, does not separate the classes
    # again.
    _poor_score = True

    components_: np.ndarray
    dual_components_: np.ndarray
    atom_classes_: np.ndarray
    _no_weights = ": its solver has no form with weights"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "normalize": ["boolean"],
        **KERNEL_CONSTRAINTS,
        "transform_alpha": [Interval(Real, 0, None, closed="neither"), None],
        "transform_tol": [Interval(Real, 0, None, closed="neither")],
        "device": DEVICE,
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        alpha: float = 2**-8,
        max_iter: int = 30,
        tol: float = 0.0,
        normalize: bool = True,
        kernel: Kernel = "linear",
        gamma: float | Literal["scale"] | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        transform_alpha: float | None = None,
        transform_tol: float = 1e-6,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.transform_alpha = transform_alpha
        self.transform_tol = transform_tol
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    @rollback_on_error
    def fit(self, X: Array, y: Array) -> Self:
        """Learn atoms for each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples. With ``kernel="precomputed"`` the kernel between all of them.
        y : array-like of shape (n_samples,)
            Labels of the samples.

        Returns
        -------
        self : CSDLClassifier
        """
        samples, labels, classes = self._training_data(X, y, on_host=True)
        n, c = len(labels), len(classes)
        atom_labels = share_out_atoms(labels, self.n_components, default_n_atoms(n, c))
        counts = np.bincount(atom_labels)
        check_memory(
            8 * counts.max() * (3 * counts.max() + 4 * np.bincount(labels).max()), "Codes", "Use fewer atoms."
        )
        space, coordinates = self._find_space(samples)
        by_class = [coordinates[labels == j].astype(np.float64) for j in range(c)]
        rng = draw_generator(self.random_state)
        tasks = [(own, random_mixtures(own, count, rng)) for own, count in zip(by_class, counts, strict=True)]
        learn = partial(learn_atoms, alpha=self.alpha, max_iter=self.max_iter, tol=self.tol)
        with one_blas_thread():
            runs = map_in_threads(lambda task: learn(*task), tasks, n_threads(self.n_jobs))
        atoms = np.concatenate([run.state for run in runs]).astype(coordinates.dtype, copy=False)
        coder, kept = Lasso(self.alpha), kept_samples(coordinates, labels)
        dictionary = FittedDictionary(
            space, atoms, self._features, coder, ResidualRule(), classes, atom_labels, **kept
        )
        # The iterations of all classes, as those of several problems.
        n_iter, statuses = (
            np.array([int(run.n_iter) for run in runs]),
            np.array([run.status[()] for run in runs]),
        )
        objective = np.full((n_iter.max(), c), np.nan)
        for j, run in enumerate(runs):
            objective[: n_iter[j], j] = run.history["objective"]
        together = Iterations(None, n_iter, {"objective": objective}, statuses)
        adopt(self, **outcome(self, together), **fitted_attributes(dictionary))
        return self

    def _coder_and_rule(self) -> tuple[Settings, Any]:
        alpha = self.alpha if self.transform_alpha is None else self.transform_alpha
        return Lasso(alpha, self.transform_tol), ResidualRule()
