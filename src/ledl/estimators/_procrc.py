"""Classification by probabilistic collaborative representation (ProCRC)."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils._param_validation import Interval

from ledl.arrays import Array, to_host
from ledl.coding import Collaborative, CollaborativeCoder
from ledl.dictionary import AgreementRule, FittedDictionary
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
from ledl.parallel import one_blas_thread


class ProCRCClassifier(DictionaryClassifier):
    r"""Probabilistic collaborative representation based classification (ProCRC).

    The training samples X themselves are the atoms. A new sample y has the codes

    .. math::

        \hat s = \arg\min_s \|y - s X\|^2 + \alpha \|s\|^2 + \frac{\gamma}{c} \sum_j \|s X - s_j X_j\|^2

    over the samples :math:`X_j` of c classes: what the samples of each class make should agree with what all of
    them make. Its label is that of the class which agrees most, with the smallest :math:`\|\hat s X - \hat s_j
    X_j\|`.

    Parameters
    ----------
    alpha : float, default=2**-5 = 0.03125
        Weight of the squared norm of the codes. It is that of the fit.

    agreement : float, default=2**-5 = 0.03125
        Weight :math:`\gamma` of the agreement of each class with all. 0 gives the codes of `CRCClassifier`. It
        is that of the fit.

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

    device : str, default=None
        Device on which new samples are coded. None means the processors, with NumPy.
        ``"cuda"`` means a GPU and ``"cpu"`` the processors, both with PyTorch (extra ``gpu``). PyTorch tensors
        stay on their device, whatever `device` says, and give tensors. Fitted attributes are NumPy arrays, so a
        model may predict on another device.

    n_jobs : int, default=None
        Number of threads that code new samples. None means 1 unless in a `joblib.parallel_config` context. -1
        means all processors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.

    components_ : ndarray of shape (n_samples, n_features)
        The atoms: the training samples, scaled, in their order. With ``kernel="hellinger"``, or a number, their
        powers. Other kernels have `dual_components_` instead.

    dual_components_ : ndarray of shape (n_samples, n_samples)
        The atoms as coefficients over the training samples. Only with kernels that are not linear in powers.

    atom_classes_ : ndarray of shape (n_samples,)
        The label of each atom.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features. Only if X has names.

    See Also
    --------
    CRCClassifier : Has ridge codes, without the agreement.

    Notes
    -----
    `decision_function` returns :math:`-\|\hat s X - \hat s_j X_j\|^2`. The codes are one product with a matrix.
    Its cost grows in proportion to the training samples, unless one class has many.

    References
    ----------
    S. Cai, L. Zhang, W. Zuo and X. Feng, "A probabilistic collaborative representation based approach for
    pattern classification", IEEE Conference on Computer Vision and Pattern Recognition, 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import ProCRCClassifier
    >>> from ledl.datasets import few_shot_splits
    >>> X, y = load_digits(return_X_y=True)
    >>> train, test = next(few_shot_splits(y, n_per_class=5))
    >>> model = ProCRCClassifier().fit(X[train], y[train])
    >>> bool(model.score(X[test], y[test]) > 0.75)
    True
    """

    components_: np.ndarray
    dual_components_: np.ndarray
    atom_classes_: np.ndarray
    _no_weights = ": copies of a sample would agree with themselves, and its method does not say how they count"

    # On scikit-learn's two-dimensional blobs no alpha reaches the accuracy that its checks ask for.
    _poor_score = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "agreement": [Interval(Real, 0, None, closed="left")],
        "normalize": ["boolean"],
        **KERNEL_CONSTRAINTS,
        "device": DEVICE,
        "n_jobs": N_JOBS,
    }

    def __init__(
        self,
        *,
        alpha: float = 2**-5,
        agreement: float = 2**-5,
        normalize: bool = True,
        kernel: Kernel = "linear",
        gamma: float | Literal["scale"] | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        device: str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.agreement = agreement
        self.normalize = normalize
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.device = device
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=True)
    @rollback_on_error
    def fit(self, X: Array, y: Array) -> Self:
        """Keep the training samples as atoms, and factorise once for all new samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples. With ``kernel="precomputed"`` the kernel between all of them.
        y : array-like of shape (n_samples,)
            Labels of the samples.

        Returns
        -------
        self : ProCRCClassifier
        """
        samples, labels, classes = self._training_data(X, y)
        space, coordinates = self._find_space(samples)
        atoms, coder = to_host(coordinates), Collaborative(self.alpha, self.agreement, labels)
        with one_blas_thread():
            kept = {"collaborative": CollaborativeCoder(atoms, coder)}
        dictionary = FittedDictionary(
            space, atoms, self._features, coder, AgreementRule(), classes, labels, atoms, labels, kept
        )
        adopt(self, **fitted_attributes(dictionary))
        return self
