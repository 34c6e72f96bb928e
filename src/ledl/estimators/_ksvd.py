"""K-SVD as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from ledl.arrays import Array, check_memory, is_dask, is_torch, product, to_host
from ledl.coding import OMP, float_tensor
from ledl.dictionary import FittedDictionary
from ledl.estimators._base import (
    DEVICE,
    N_JOBS,
    CallbackSupportMixin,
    DocumentedMixin,
    adopt,
    check_not_zero,
    check_samples,
    device_of,
    draw_generator,
    fit_context,
    for_chunks,
    notify_callbacks,
    outcome,
    rollback_on_error,
    with_callbacks,
)
from ledl.parallel import one_blas_thread
from ledl.samples import floats_of, map_rows
from ledl.solvers import ksvd
from ledl.solvers.start import default_n_atoms, sample_start
from ledl.subspace import FeatureMap, Subspace, find_subspace, scaled, squared_norms


class KSVD(
    DocumentedMixin, CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Dictionary learning by K-SVD.

    Learns atoms D of norm 1 over which samples have codes with at most T non-zeros,

    .. math::

        \min \|X - S D\|^2 \quad \text{each row of } S \text{ with at most } T \text{ non-zeros}

    by orthogonal matching pursuit for the codes and the approximate update of atoms and their coefficients,
    one atom after the other. A sample keeps its old code if the new one is worse, so the error never rises. The
    exception: unused atoms, and copies of other atoms, are replaced by badly represented samples.

    Parameters
    ----------
    n_components : int, default=None
        Number of atoms. None means as many as training samples, but at most 2000. The samples themselves are
        then the solution, so set a lower number to learn something.

    n_nonzero_coefs : int, default=5
        Largest number T of non-zeros of a code, in `fit` and `transform`. If there are fewer atoms or features,
        that number is used.

    max_iter : int, default=30
        Largest number of iterations.

    tol : float, default=0
        Tolerance. Training stops when the relative change of the error was at most `tol` three times in a row.
        0 means that all iterations are run.

    normalize : bool, default=False
        If True, samples are scaled to norm 1, in `fit` and after. Codes are then those of the scaled samples.

    device : str, default=None
        Device that codes samples, in `fit` and after. None means the processors, with NumPy. ``"cuda"`` means a
        GPU and ``"cpu"`` the processors, both with PyTorch (extra ``gpu``). Atoms are updated on the host.
        PyTorch tensors stay on their device, whatever `device` says, and give tensors. Fitted attributes are
        NumPy arrays, so a model may predict on another device.

    n_jobs : int, default=None
        Number of threads that code new samples. None means 1 unless in a `joblib.parallel_config` context. -1
        means all processors.

    random_state : int, RandomState instance or None, default=None
        Source of random numbers, which draw the samples that atoms start from. An int gives the same dictionary
        every time.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The atoms.

    n_iter_ : int
        Number of iterations.

    stopped_by_ : {"tol", "max_iter", "callback"}
        What ended the iterations.

    history_ : dict of ndarrays of shape (`n_iter_`,)
        ``error`` is the squared error above after each iteration, and ``replaced`` the number of atoms that
        were replaced before it.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features. Only if X has names.

    References
    ----------
    M. Aharon, M. Elad and A. Bruckstein, "K-SVD: an algorithm for designing
    overcomplete dictionaries for sparse representation", IEEE Transactions on Signal Processing 54, 2006.

    R. Rubinstein, M. Zibulevsky and M. Elad, "Efficient implementation of the K-SVD algorithm using batch
    orthogonal matching pursuit", Technical Report CS-2008-08, Technion, 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import KSVD
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = KSVD(n_components=100, n_nonzero_coefs=5, random_state=0).fit(X)
    >>> rest = X - model.inverse_transform(model.transform(X))
    >>> bool((rest**2).sum() < 0.05 * (X**2).sum())
    True
    """

    _dictionary: FittedDictionary
    components_: np.ndarray
    _no_weights = ": its solver has no form with weights"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_nonzero_coefs": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "normalize": ["boolean"],
        "device": DEVICE,
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_components: int | None = None,
        n_nonzero_coefs: int = 5,
        max_iter: int = 30,
        tol: float = 0.0,
        normalize: bool = False,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_nonzero_coefs = n_nonzero_coefs
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    @rollback_on_error
    def fit(self, X: Array, y: Any = None) -> Self:
        """Learn atoms from samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : None
            Not used.

        Returns
        -------
        self : KSVD
        """
        samples = to_host(check_samples(self, X, reset=True))
        check_not_zero(samples)
        n, dtype = len(samples), samples.dtype
        K = default_n_atoms(n, 1, a_sample=1) if self.n_components is None else self.n_components
        check_memory(
            8 * K * (2 * K + 3 * n), f"Codes and Gram matrices of n_components={K} atoms", "Use fewer."
        )
        samples = scaled(samples) if self.normalize else samples.copy()
        squared_norms(samples, "X")  # raises if squares overflow or underflow
        space, coordinates = find_subspace(samples.astype(np.float64, copy=False))
        start = sample_start(coordinates, K, draw_generator(self.random_state))
        learnt = partial(self._learnt, space, dtype)
        with notify_callbacks(self, X, y, self.max_iter) as watch, one_blas_thread():
            run = ksvd.solve(
                coordinates,
                start,
                self.n_nonzero_coefs,
                max_iter=self.max_iter,
                tol=self.tol,
                device=device_of(X, self.device),
                callback=watch and (lambda iteration, record, state: watch(partial(learnt, state))),
            )
            adopt(self, **outcome(self, run), **learnt(run.state))
        return self

    def _learnt(self, space: Subspace, dtype: Any, state: ksvd.State) -> dict[str, Any]:
        """Return the fitted attributes for the current atoms, which are in the coordinates of a space."""
        features, coder = FeatureMap(unit_norm=self.normalize), OMP(self.n_nonzero_coefs)
        dictionary = FittedDictionary(space, state.M, features, coder)
        return {"_dictionary": dictionary, "components_": space.expand(state.M).astype(dtype, copy=False)}

    @property
    def dictionary_(self) -> FittedDictionary:
        """The fitted model as one record, with the coder for the current parameters."""
        check_is_fitted(self)
        self._validate_params()  # some may have been set since the fit
        return replace(self._dictionary, coder=OMP(self.n_nonzero_coefs))

    def transform(self, X: Array) -> Array:
        """Return the codes of samples over the atoms.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array with the same chunks of rows, and nothing is computed yet.

        Returns
        -------
        codes : ndarray, or tensor for a tensor, of shape (n_samples, n_atoms)
        """
        if is_dask(X):
            return map_rows(for_chunks(self, X).transform, X, floats_of(X), self._n_features_out)
        return self.dictionary_.codes(check_samples(self, X), self.device, self.n_jobs)

    @property
    def _n_features_out(self) -> int:
        return len(self._dictionary.atoms)

    def inverse_transform(self, X: Array) -> Array:
        """Return samples that are made of codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Codes.

        Returns
        -------
        samples : ndarray, or tensor for a tensor, of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        codes = float_tensor(X) if is_torch(X) else check_array(X, dtype=[np.float64, np.float32])
        if codes.shape[1] != len(self.components_):
            raise ValueError(
                f"Codes have {codes.shape[1]} columns, but there are {len(self.components_)} atoms. Give the "
                "codes that transform returned."
            )
        return product(codes, self.components_)
