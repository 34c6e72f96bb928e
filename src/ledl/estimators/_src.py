"""Classification by sparse representation (SRC)."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils._param_validation import Interval

from ledl.arrays import Array, to_host
from ledl.coding import Lasso, Settings
from ledl.dictionary import FittedDictionary, ResidualRule
from ledl.estimators._base import (
    DEVICE,
    N_JOBS,
    DictionaryClassifier,
    adopt,
    fit_context,
    fitted_attributes,
    rollback_on_error,
)
from ledl.kernels import KERNEL_CONSTRAINTS, Kernel


class SRCClassifier(DictionaryClassifier):
    r"""Sparse representation based classification (SRC).

    The training samples X themselves are the atoms. A new sample y has the codes

    .. math::

        \hat s = \arg\min_s \|y - s X\|^2 + 2 \alpha \|s\|_1

    and the label of the class j whose samples, with their codes, come nearest:
    :math:`\arg\min_j \|y - \hat s_j X_j\|^2`.

    Parameters
    ----------
    alpha : float, default=2**-9 = 0.001953125
        Weight of the l1 norm, on the scale of scikit-learn's `SparseCoder`. The larger it is, the fewer
        training samples make up a new one. Tune it first, between 2**-12 and 2**-3.

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

    transform_tol : float, default=1e-6
        Tolerance. The codes of a new sample y have a duality gap of at most `transform_tol` times
        :math:`|y|^2 / 2`.

    device : str, default=None
        Device that codes new samples. None means the processors, with NumPy. ``"cuda"`` means a GPU and
        ``"cpu"`` the processors, both with PyTorch (extra ``gpu``). PyTorch tensors stay on their device,
        whatever `device` says, and give tensors. Fitted attributes are NumPy arrays, so a model may predict on
        another device.

    n_jobs : int, default=None
        Number of threads that code new samples. None means 1 unless in a `joblib.parallel_config` context. -1
        means all processors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.

    components_ : ndarray of shape (n_samples, n_features)
        The atoms: the training samples, scaled, in their order. With ``kernel="hellinger"`` their square
        roots. Other kernels have `dual_components_` instead.

    dual_components_ : ndarray of shape (n_samples, n_samples)
        The atoms as coefficients over the training samples. Only with kernels other than ``"linear"`` and
        ``"hellinger"``.

    atom_classes_ : ndarray of shape (n_samples,)
        The label of each atom.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features. Only if X has names.

    See Also
    --------
    CRCClassifier : Has ridge codes instead: faster, and often as good.
    CSDLClassifier : Learns the atoms of each class.

    Notes
    -----
    `decision_function` returns negative squared residuals.

    References
    ----------
    J. Wright, A. Y. Yang, A. Ganesh, S. S. Sastry and Y. Ma, "Robust face recognition
    via sparse representation", IEEE Transactions on Pattern Analysis and Machine Intelligence 31, 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import SRCClassifier
    >>> from ledl.datasets import few_shot_splits
    >>> X, y = load_digits(return_X_y=True)
    >>> train, test = next(few_shot_splits(y, n_per_class=5))
    >>> model = SRCClassifier().fit(X[train], y[train])
    >>> bool(model.score(X[test], y[test]) > 0.7)
    True
    """

    components_: np.ndarray
    dual_components_: np.ndarray
    atom_classes_: np.ndarray
    _no_weights = ": sparse codes over samples stay the same if a sample is repeated, so weights cannot act"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "normalize": ["boolean"],
        **KERNEL_CONSTRAINTS,
        "transform_tol": [Interval(Real, 0, None, closed="neither")],
        "device": DEVICE,
        "n_jobs": N_JOBS,
    }

    def __init__(
        self,
        *,
        alpha: float = 2**-9,
        normalize: bool = True,
        kernel: Kernel = "linear",
        gamma: float | Literal["scale"] | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        transform_tol: float = 1e-6,
        device: str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.normalize = normalize
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.transform_tol = transform_tol
        self.device = device
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=True)
    @rollback_on_error
    def fit(self, X: Array, y: Array) -> Self:
        """Keep the training samples as atoms.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples. With ``kernel="precomputed"`` the kernel between all of them.
        y : array-like of shape (n_samples,)
            Labels of the samples.

        Returns
        -------
        self : SRCClassifier
        """
        samples, labels, classes = self._training_data(X, y)
        space, coordinates = self._find_space(samples)
        atoms, coder = to_host(coordinates), Lasso(self.alpha, self.transform_tol)
        dictionary = FittedDictionary(
            space, atoms, self._features, coder, ResidualRule(), classes, labels, atoms, labels
        )
        adopt(self, **fitted_attributes(dictionary))
        return self

    def _coder_and_rule(self) -> tuple[Settings, Any]:
        return Lasso(self.alpha, self.transform_tol), ResidualRule()
