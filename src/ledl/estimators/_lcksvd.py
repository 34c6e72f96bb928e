"""Discriminative K-SVD (D-KSVD) and label consistent K-SVD (LC-KSVD) as scikit-learn classifiers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from ledl.arrays import Array, check_memory
from ledl.coding import OMP, Settings
from ledl.dictionary import ClassifierRule, FittedDictionary
from ledl.estimators._base import (
    DEVICE,
    N_JOBS,
    CallbackSupportMixin,
    DictionaryClassifier,
    adopt,
    device_of,
    draw_generator,
    fit_context,
    fitted_attributes,
    kept_samples,
    notify_callbacks,
    outcome,
    rollback_on_error,
    share_out_atoms,
    with_callbacks,
)
from ledl.parallel import one_blas_thread
from ledl.solvers import ksvd, lcksvd
from ledl.solvers.ledl import expand_code_transform
from ledl.solvers.start import default_n_atoms, sample_start

CONSTRAINTS: dict[str, list[Any]] = {
    "n_components": [Interval(Integral, 1, None, closed="left"), None],
    "n_nonzero_coefs": [Interval(Integral, 1, None, closed="left")],
    "init_iter": [Interval(Integral, 1, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "normalize": ["boolean"],
    "device": DEVICE,
    "n_jobs": N_JOBS,
    "random_state": ["random_state"],
}


class LabelKSVD(CallbackSupportMixin, DictionaryClassifier):
    """Learn by the paper's Algorithm 2, with the label scales that a subclass gives: D-KSVD and LC-KSVD."""

    n_components: int | None
    n_nonzero_coefs: int
    init: str = "class"
    init_iter: int
    max_iter: int
    tol: float
    random_state: int | np.random.RandomState | None
    components_: np.ndarray
    label_components_: np.ndarray
    atom_classes_: np.ndarray
    _no_weights = ": its solver has no form with weights"

    def _label_scale(self, atom_labels: Array, n_classes: int) -> Array:
        """Return the weight of each class's column of the labels, (c,): see `ledl.solvers.lcksvd`."""
        raise NotImplementedError

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    @rollback_on_error
    def fit(self, X: Array, y: Array) -> Self:
        """Learn atoms and classifier from labelled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Labels of the samples.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        samples, labels, classes = self._training_data(X, y, on_host=True)
        n, c, dtype, by_class = len(labels), len(classes), samples.dtype, self.init == "class"
        default = default_n_atoms(n, c, a_sample=1)
        if by_class:
            atom_labels = share_out_atoms(labels, self.n_components, default)
        else:
            atom_labels = np.zeros(default if self.n_components is None else self.n_components, dtype=np.int64)
        K, T, device = len(atom_labels), self.n_nonzero_coefs, device_of(X, self.device)
        check_memory(
            8 * K * (2 * K + 3 * n), f"Codes and Gram matrices of {K} atoms", "Use fewer n_components."
        )
        label_scale = self._label_scale(atom_labels, c)
        space, coordinates = self._find_space(samples.astype(np.float64, copy=False))
        rng = draw_generator(self.random_state)
        learnt = partial(self._learnt, space, atom_labels, labels, classes, dtype)
        options: dict[str, Any] = {"max_iter": self.init_iter, "device": device}
        with notify_callbacks(self, X, y, self.max_iter) as watch, one_blas_thread():
            # The dictionary before labels are seen: K-SVD on the samples of each class, or on all.
            if by_class:
                start = lcksvd.class_start(coordinates, labels, np.bincount(atom_labels), T, rng=rng, **options)
            else:
                start = ksvd.solve(
                    coordinates, sample_start(coordinates, K, rng), T, tol=0.0, **options
                ).state.M
            run = lcksvd.solve(
                coordinates,
                labels,
                start,
                label_scale,
                T,
                max_iter=self.max_iter,
                tol=self.tol,
                device=device,
                callback=watch and (lambda iteration, record, now: watch(lambda: learnt(now()))),
            )
            adopt(self, **outcome(self, run), **learnt(run.state))
        self._dictionary = replace(self._dictionary, **kept_samples(coordinates, labels))
        return self

    def _learnt(
        self, space: Any, atom_labels: Array, labels: Array, classes: Array, dtype: Any, now: lcksvd.Learnt
    ) -> dict[str, Any]:
        """Return the fitted attributes for the current atoms."""
        W = self._classifier(now.W, now.S, labels).astype(dtype, copy=False)
        owners = atom_labels if self.init == "class" else W.argmax(axis=1)
        coder, rule = OMP(self.n_nonzero_coefs), ClassifierRule(W)
        dictionary = FittedDictionary(space, now.B, self._features, coder, rule, classes, owners)
        attributes = fitted_attributes(dictionary)
        attributes["components_"] = attributes["components_"].astype(dtype, copy=False)
        if self.init != "class":
            del attributes["atom_classes_"]  # the atoms started at no class
        return {**attributes, "label_components_": W, "_code_atoms": now.W}

    def _classifier(self, W: Array, S: Array, labels: Array) -> Array:
        """Return the classifier. W was learnt with the atoms, S are the codes of the samples."""
        return W

    def _coder_and_rule(self) -> tuple[Settings, Any]:
        return OMP(self.n_nonzero_coefs), self._dictionary.rule


class DKSVDClassifier(LabelKSVD):
    r"""Discriminative K-SVD (D-KSVD).

    Learns a dictionary B and a classifier W together by K-SVD on samples and one-hot labels H side by side,

    .. math::

        \min \|X - S B\|^2 + \lambda \|H - S W\|^2
        \quad \text{each row of } S \text{ with at most } T \text{ non-zeros}

    A new sample has the codes s of orthogonal matching pursuit over B and the label :math:`\arg\max s W`.

    Parameters
    ----------
    n_components : int, default=None
        Number of atoms. None means as many as training samples, but at most max(2000, n_classes). Atoms then
        stay near the samples, and mostly W is learnt.

    n_nonzero_coefs : int, default=20
        Largest number T of non-zeros of a code, in training and after. Tune it first: about 5 for
        digits, 20 to 40 for faces. If there are fewer atoms or features, that number is used.

    label_weight : float, default=2**-6 = 0.015625
        Weight :math:`\lambda` of the label term.

    init : {"class", "all"}, default="class"
        Start of the atoms. ``"class"`` means a dictionary that K-SVD learns for each class, with a share of the
        atoms in proportion to its samples. ``"all"`` means one that K-SVD learns for all samples, as in the
        reference.

    init_iter : int, default=20
        Number of iterations of K-SVD before labels are used. With as many atoms as samples K-SVD starts at the
        samples, and the iterations change nothing.

    max_iter : int, default=30
        Largest number of iterations.

    tol : float, default=0
        Tolerance. Training stops when the relative change of the objective was at most `tol` three times in a
        row. 0 means that all iterations are run.

    normalize : bool, default=True
        If True, samples are scaled to norm 1, in `fit` and after.

    device : str, default=None
        Device that codes samples, in `fit` and after. None means the processors, with NumPy. ``"cuda"`` means a
        GPU and ``"cpu"`` the processors, both with PyTorch (extra ``gpu``). Atoms are updated on the host.
        PyTorch tensors stay on their device, whatever `device` says, and give tensors. Fitted attributes are
        NumPy arrays, so a model may predict on another device.

    n_jobs : int, default=None
        Number of threads that code new samples. None means 1 unless in a `joblib.parallel_config` context. -1
        means all processors.

    random_state : int, RandomState instance or None, default=None
        Source of random numbers, which draw the samples that atoms start from. An int gives the same model
        every time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.

    components_ : ndarray of shape (n_components, n_features)
        The dictionary B, rows of norm 1.

    label_components_ : ndarray of shape (n_components, n_classes)
        The classifier W.

    atom_classes_ : ndarray of shape (n_components,)
        The label of the class whose samples each atom started at. Only with ``init="class"``.

    n_iter_ : int
        Number of iterations.

    stopped_by_ : {"tol", "max_iter", "callback"}
        What ended the iterations.

    history_ : dict of ndarrays of shape (`n_iter_`,)
        ``error`` is the objective above after each iteration, and ``replaced`` the number of atoms that were
        replaced before it.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features. Only if X has names.

    See Also
    --------
    LCKSVDClassifier : Has a label-consistency term, too. With classes of equal size it is the same as a larger
        `label_weight`.

    References
    ----------
    Q. Zhang and B. Li, "Discriminative K-SVD for dictionary learning in face
    recognition", Conference on Computer Vision and Pattern Recognition, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import DKSVDClassifier
    >>> from ledl.datasets import few_shot_splits
    >>> X, y = load_digits(return_X_y=True)
    >>> train, test = next(few_shot_splits(y, n_per_class=5))
    >>> model = DKSVDClassifier(n_nonzero_coefs=5, random_state=0).fit(X[train], y[train])
    >>> bool(model.score(X[test], y[test]) > 0.7)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CONSTRAINTS,
        "label_weight": [Interval(Real, 0, None, closed="neither")],
        "init": [StrOptions({"class", "all"})],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        n_nonzero_coefs: int = 20,
        label_weight: float = 2**-6,
        init: str = "class",
        init_iter: int = 20,
        max_iter: int = 30,
        tol: float = 0.0,
        normalize: bool = True,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_nonzero_coefs = n_nonzero_coefs
        self.label_weight = label_weight
        self.init = init
        self.init_iter = init_iter
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _label_scale(self, atom_labels: Array, n_classes: int) -> Array:
        return np.full(n_classes, self.label_weight**0.5)


class LCKSVDClassifier(LabelKSVD):
    r"""Label consistent K-SVD (LC-KSVD).

    Learns a dictionary B, a classifier W and a label-consistency transform A together by K-SVD on the stacked
    targets of

    .. math::

        \min \|X - S B\|^2 + \lambda \|H - S W\|^2 + \omega \|Q - S A\|^2
        \quad \text{each row of } S \text{ with at most } T \text{ non-zeros}

    where H are the one-hot labels, and Q says which atoms may represent which sample. A new sample has the
    codes s of orthogonal matching pursuit over B and the label :math:`\arg\max s W`.

    Parameters
    ----------
    variant : {1, 2}, default=2
        Variant of the method. 2 is as above. 1 has no label term, and its classifier is a ridge regression on
        the codes.

    n_components : int, default=None
        Number K of atoms, shared out among the classes in proportion to their samples. None means as many
        as training samples, but at most max(2000, n_classes). Atoms then stay near the samples, and mostly W is
        learnt.

    n_nonzero_coefs : int, default=20
        Largest number T of non-zeros of a code, in training and after. Tune it first: about 5 for
        digits, 20 to 40 for faces. If there are fewer atoms or features, that number is used.

    label_weight : float, default=2**-7 = 0.0078125
        Weight :math:`\lambda` of the label term. Ignored with ``variant=1``.

    code_weight : float, default=2**-9 = 0.001953125
        Weight :math:`\omega` of the label-consistency term.

    init_iter : int, default=20
        Number of iterations of K-SVD on each class before labels are used. With as many atoms as samples K-SVD
        starts at the samples, and the iterations change nothing.

    max_iter : int, default=30
        Largest number of iterations.

    tol : float, default=0
        Tolerance. Training stops when the relative change of the objective was at most `tol` three times in a
        row. 0 means that all iterations are run.

    normalize : bool, default=True
        If True, samples are scaled to norm 1, in `fit` and after.

    device : str, default=None
        Device that codes samples, in `fit` and after. None means the processors, with NumPy. ``"cuda"`` means a
        GPU and ``"cpu"`` the processors, both with PyTorch (extra ``gpu``). Atoms are updated on the host.
        PyTorch tensors stay on their device, whatever `device` says, and give tensors. Fitted attributes are
        NumPy arrays, so a model may predict on another device.

    n_jobs : int, default=None
        Number of threads that code new samples. None means 1 unless in a `joblib.parallel_config` context. -1
        means all processors.

    random_state : int, RandomState instance or None, default=None
        Source of random numbers, which draw the samples that atoms start from. An int gives the same model
        every time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.

    components_ : ndarray of shape (K, n_features)
        The dictionary B, rows of norm 1.

    label_components_ : ndarray of shape (K, n_classes)
        The classifier W.

    code_components_ : ndarray of shape (K, K)
        The label-consistency transform A. It is computed on demand.

    atom_classes_ : ndarray of shape (K,)
        The label of each atom's class.

    n_iter_ : int
        Number of iterations.

    stopped_by_ : {"tol", "max_iter", "callback"}
        What ended the iterations.

    history_ : dict of ndarrays of shape (`n_iter_`,)
        ``error`` is the objective above after each iteration, and ``replaced`` the number of atoms that were
        replaced before it.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features. Only if X has names.

    See Also
    --------
    DKSVDClassifier : Has no label-consistency term.

    Notes
    -----
    With the starts of the reference, W and A stay proportional. So variant 2 is K-SVD on samples and on labels
    that are scaled by :math:`\sqrt{\lambda + \omega m_j}`, where :math:`m_j` is the number of atoms of class
    j. With equal numbers it is D-KSVD with the weight :math:`\lambda + \omega m_j`. This does not hold for
    `LEDLClassifier`, where the parts of an atom are normalised separately.

    References
    ----------
    Z. Jiang, Z. Lin and L. S. Davis, "Label consistent K-SVD: learning a discriminative
    dictionary for recognition", IEEE Transactions on Pattern Analysis and Machine Intelligence 35, 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import LCKSVDClassifier
    >>> from ledl.datasets import few_shot_splits
    >>> X, y = load_digits(return_X_y=True)
    >>> train, test = next(few_shot_splits(y, n_per_class=5))
    >>> model = LCKSVDClassifier(n_nonzero_coefs=5, random_state=0).fit(X[train], y[train])
    >>> bool(model.score(X[test], y[test]) > 0.7)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CONSTRAINTS,
        "variant": [Options(Integral, {1, 2})],
        "label_weight": [Interval(Real, 0, None, closed="left")],
        "code_weight": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        variant: int = 2,
        n_components: int | None = None,
        n_nonzero_coefs: int = 20,
        label_weight: float = 2**-7,
        code_weight: float = 2**-9,
        init_iter: int = 20,
        max_iter: int = 30,
        tol: float = 0.0,
        normalize: bool = True,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.variant = variant
        self.n_components = n_components
        self.n_nonzero_coefs = n_nonzero_coefs
        self.label_weight = label_weight
        self.code_weight = code_weight
        self.init_iter = init_iter
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    @property
    def code_components_(self) -> Array:
        """The label-consistency transform A, (K, K)."""
        check_is_fitted(self)
        labels: Any = self._dictionary.atom_labels
        A = self._code_atoms * np.sqrt(np.bincount(labels))
        return expand_code_transform(A, labels).astype(self.components_.dtype, copy=False)

    def _label_scale(self, atom_labels: Array, n_classes: int) -> Array:
        label_weight = self.label_weight if self.variant == 2 else 0.0
        if not label_weight and not self.code_weight:
            raise ValueError(
                f"code_weight={self.code_weight} leaves variant={self.variant} no term that uses the labels. "
                "Set code_weight > 0" + (", or label_weight > 0." if self.variant == 2 else ".")
            )
        return np.sqrt(label_weight + self.code_weight * np.bincount(atom_labels))

    def _classifier(self, W: Array, S: Array, labels: Array) -> Array:
        return W if self.variant == 2 else lcksvd.ridge_classifier(S, labels, W.shape[1])
