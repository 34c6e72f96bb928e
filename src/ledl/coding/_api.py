"""Sparse codes of many samples over one dictionary, for users: `sparse_encode`."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import check_array

from ledl.arrays import Array, float32_products, is_dask, is_torch, namespace, to_host
from ledl.coding._coders import OMP, Lasso, Samples, code_in_chunks
from ledl.parallel import n_threads, one_blas_thread
from ledl.samples import check_rows, floats_of, map_rows
from ledl.solvers.lasso import SOLVERS
from ledl.subspace import IdentitySubspace, squared_norms

# Options that Dask arrays do not have, and what to do instead.
NOT_LAZY = {
    "init": "Leave it out: it saves time, and changes nothing else",
    "sparse_output": "Leave it out, and convert the codes with codes.map_blocks(scipy.sparse.csr_array)",
    "return_info": "Leave it out, or encode chunks in memory, X.blocks[i].compute()",
}


def sparse_encode(
    X: Array,
    dictionary: Array,
    *,
    alpha: float | None = None,
    n_nonzero_coefs: int | None = None,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 10_000,
    positive: bool = False,
    init: Array | None = None,
    sparse_output: bool = False,
    device: str | None = None,
    n_jobs: int | None = None,
    return_info: bool = False,
) -> Any:
    r"""Return sparse codes of samples over a dictionary.

    With `alpha`, each sample x has the code s of the lasso

    .. math::

        \min_s \tfrac12 \|x - s D\|^2 + \alpha \|s\|_1

    certified by its duality gap. With `n_nonzero_coefs`, it has the code of orthogonal matching pursuit.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Samples. float32 gives codes in float32, and all other types give float64. A memory-mapped array is read
        chunk by chunk. PyTorch tensors are coded on their device. A Dask array gives a Dask array with the same
        chunks of rows, and nothing is computed yet.

    dictionary : array-like of shape (n_components, n_features)
        The atoms D. They need not have norm 1, but OMP compares correlations, which is fair only for equal
        norms.

    alpha : float, default=None
        Weight of the l1 norm, as in scikit-learn's `SparseCoder`. If it is :math:`\max |D x|` or more, codes
        are zero.

    n_nonzero_coefs : int, default=None
        Largest number of non-zeros of a code, for orthogonal matching pursuit. A code has fewer if the residual
        vanishes or no independent atom is left.

    solver : {"auto", "active_set", "admm"}, default="auto"
        Solver of the lasso. ``"active_set"`` takes exact steps, and works well for coherent atoms. ``"admm"``
        is for dense codes, with nearly as many non-zeros as the dictionary has independent atoms. ``"auto"``
        takes ``"active_set"``, unless that needs many rounds for a few pilot samples. Then it takes ``"admm"``,
        and exact steps for samples that ADMM does not finish.

    tol : float, default=1e-6
        Tolerance. The gap of each sample x is at most `tol` times :math:`\tfrac12 \|x\|^2`. For float32 it is
        at least 1e-5. From 1e-4 on, products are made in float32, which is faster. Lasso only.

    max_iter : int, default=10_000
        Largest number of iterations of a sample: rounds of exact steps, or steps of ADMM. Lasso only.

    positive : bool, default=False
        If True, codes are not negative. Lasso only.

    init : array-like or sparse matrix of shape (n_samples, n_components), default=None
        Codes to start from, for example those at another alpha. Lasso only, and not for Dask arrays.

    sparse_output : bool, default=False
        If True, codes are a `scipy.sparse.csr_array`, which needs much less memory. Not for Dask arrays.

    device : str, default=None
        Device that computes codes. None means the processors, with NumPy. ``"cuda"`` means a GPU and ``"cpu"``
        the processors, both with PyTorch (extra ``gpu``). With PyTorch ``"admm"`` is the only solver. With
        ``"auto"``, exact steps on the host follow for samples that ADMM does not finish. Tensors stay on their
        device, whatever this says.

    n_jobs : int, default=None
        Number of threads. None means 1 unless in a `joblib.parallel_config` context. -1 means all processors.

    return_info : bool, default=False
        If True, a `CodingInfo` is returned, too. Not for Dask arrays.

    Returns
    -------
    codes : ndarray, csr_array, tensor or Dask array of shape (n_samples, n_components)
        Codes, a row for each sample with a coefficient for each atom.
    info : CodingInfo
        Description of the solution for each sample. Only if `return_info`.

    Warns
    -----
    ConvergenceWarning
        If samples did not reach the gap. The warning has their number.

    See Also
    --------
    sklearn.decomposition.sparse_encode : Its ``lasso_lars``, ``lasso_cd`` and ``omp`` solve the same problems.

    Notes
    -----
    The first call on a machine takes 5 to 10 seconds longer, because code is compiled. Later calls find it in
    numba's cache, which is next to the package or in NUMBA_CACHE_DIR. Where atoms are dependent, codes are not
    unique: compare objectives.

    Examples
    --------
    >>> import numpy as np
    >>> from ledl import sparse_encode
    >>> codes, info = sparse_encode([[3.0, 0.5]], np.eye(2), alpha=1.0, return_info=True)
    >>> codes
    array([[2., 0.]])
    >>> bool(info.converged.all())
    True
    >>> sparse_encode([[3.0, 0.5]], np.eye(2), n_nonzero_coefs=1)
    array([[3., 0.]])
    """
    numbers: dict[str, Any] = {
        "alpha": alpha,
        "n_nonzero_coefs": n_nonzero_coefs,
        "tol": tol,
        "max_iter": max_iter,
    }
    if is_dask(X):
        given = {"init": init is not None, "sparse_output": sparse_output, "return_info": return_info}
        for name in given:
            if given[name]:
                raise ValueError(
                    f"{name} is for samples in memory, but X is a Dask array, and nothing of it is computed "
                    f"yet. {NOT_LAZY[name]}."
                )
        check_rows(X)
        D = np.array(to_host(_checked(dictionary, "dictionary")))  # a copy: the user may change the array later
        _check_options(X, D, solver, positive, None, device, False, {**numbers, "n_jobs": n_jobs})
        squared_norms(D, "The dictionary")  # raises if it is not finite
        n_threads(n_jobs)  # raises for 0
        options: dict[str, Any] = {"solver": solver, "positive": positive, "device": device, "n_jobs": n_jobs}
        return map_rows(partial(sparse_encode, dictionary=D, **numbers, **options), X, floats_of(X), len(D))
    X, D = _checked(X, "X"), _checked(dictionary, "dictionary")
    if init is not None:
        init = _checked_init(init, X, (len(X), len(D)))
    _check_options(X, D, solver, positive, init, device, sparse_output, {**numbers, "n_jobs": n_jobs})
    threads, samples, space = n_threads(n_jobs), Samples(X, device), IdentitySubspace()
    with one_blas_thread(), float32_products("full", samples.where):
        settings: Any = OMP(n_nonzero_coefs or 0)
        if alpha is not None:  # compiled loops count to 2**31
            settings = Lasso(alpha, tol, solver, min(max_iter, 2**31), bool(positive))
        coder = settings.prepare(D, samples, space, threads, None)
        shape = (0 if sparse_output else len(X), len(D))
        codes: Any = namespace(X).empty(shape, dtype=X.dtype, device=X.device)

        def finish(chunk: slice, part: Array, *samples: Array) -> Any:
            part = part if is_torch(X) else to_host(part)
            if not sparse_output:
                codes[chunk] = part
                return None
            places = np.flatnonzero(part)  # faster than SciPy's conversion of a dense array
            rows, columns = np.divmod(places, len(D))
            return np.bincount(rows, minlength=len(part)), columns.astype(np.int32), part.reshape(-1)[places]

        advice = "Raise max_iter, tol or alpha, or use another solver."
        parts, info = code_in_chunks(coder, samples, space, finish, threads, advice, init)
    if sparse_output:
        counts, columns, values = (np.concatenate(found) for found in zip(*parts, strict=True))
        ends = np.concatenate([[0], np.cumsum(counts)])
        if len(values) < np.iinfo(np.int32).max:  # as most of scikit-learn needs
            ends = ends.astype(np.int32)
        codes = scipy.sparse.csr_array((values, columns, ends), shape=(len(X), len(D)))
    if not return_info:
        return codes
    n_nonzero = np.diff(codes.indptr) if sparse_output else to_host((codes != 0).sum(axis=1))
    return codes, info._replace(n_nonzero=n_nonzero)


def _checked(array: Array, name: str) -> Array:
    """Return a matrix of floats.

    The numbers of a plain array are checked later, by `squared_norms`: scikit-learn's check takes longer than a
    small job, and reads a large array once more.
    """
    if type(array) is np.ndarray and array.dtype in (np.float64, np.float32) and array.ndim == 2 and array.size:
        return array
    shape = tuple(array.shape) if is_torch(array) else np.shape(array)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"{name} has shape {shape}, but must be a matrix that is not empty, a row for each sample or atom. "
            "Reshape one sample x with x.reshape(1, -1), and images with X.reshape(len(X), -1)."
        )
    if is_torch(array):
        return float_tensor(array, name)
    return check_array(array, dtype=[np.float64, np.float32], input_name=name)


def float_tensor(array: Array, name: str = "X") -> Array:
    """Return a dense tensor of float32 or float64, without a gradient. Integers become float64."""
    xp = namespace(array)
    if str(array.layout) != "torch.strided":
        raise ValueError(f"{name} is a tensor of layout {array.layout}. Give a dense one: {name}.to_dense().")
    if array.is_complex():
        raise ValueError(f"{name} is complex ({array.dtype}). Complex data not supported. Give real numbers.")
    if array.dtype in (xp.float64, xp.float32):
        return array.detach()
    return xp.astype(array.detach(), xp.float32 if array.dtype.is_floating_point else xp.float64)


def _checked_init(init: Any, X: Array, shape: tuple[int, int]) -> Any:
    """Return codes to start from as floats, on the host unless X is a tensor. They may be sparse."""
    if tuple(init.shape if is_torch(init) else np.shape(init)) != shape:
        raise ValueError(f"init has shape {tuple(np.shape(init))}, but codes have shape {shape}.")
    if is_torch(init):
        init = float_tensor(init, "init")
        if not bool(namespace(init).all(namespace(init).isfinite(init))):
            raise ValueError("init contains NaN or infinity. Give finite codes.")
        return init if is_torch(X) else to_host(init)
    return check_array(init, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="init")


def _check_options(
    X: Array,
    D: Array,
    solver: str,
    positive: bool,
    init: Any,
    device: str | None,
    sparse_output: bool,
    numbers: dict[str, Any],
) -> None:
    """Raise if options are wrong, or do not fit each other or the arrays."""
    alpha, n_nonzero = numbers["alpha"], numbers["n_nonzero_coefs"]
    if (alpha is None) == (n_nonzero is None):
        raise ValueError(
            "Give either alpha, for the lasso, or n_nonzero_coefs, for orthogonal matching pursuit; got "
            f"alpha={alpha} and n_nonzero_coefs={n_nonzero}."
        )
    if solver not in ("auto", *SOLVERS):
        raise ValueError(
            f"solver={solver!r} is unknown. Choose one of {', '.join(['auto', *SOLVERS])} for the lasso, or "
            "give n_nonzero_coefs instead of alpha for orthogonal matching pursuit."
        )
    if not isinstance(positive, bool | np.bool_):
        raise ValueError(f"positive={positive!r} must be True or False.")
    given = {"solver": solver != "auto", "positive": bool(positive), "init": init is not None}
    for name in given:
        if n_nonzero is not None and given[name]:
            raise ValueError(
                f"Orthogonal matching pursuit (n_nonzero_coefs) has no {name}. Leave it out, or give alpha for "
                "the lasso."
            )
    for name, value in numbers.items():
        if value is None and name in ("alpha", "n_nonzero_coefs", "n_jobs"):
            continue
        whole = name in ("n_nonzero_coefs", "max_iter", "n_jobs")
        if not isinstance(value, Integral if whole else Real) or isinstance(value, bool):
            raise ValueError(
                f"{name} must be {'an integer' if whole else 'a number'}, not a {type(value).__name__}."
            )
        if name != "n_jobs" and not 0 < float(value) < np.inf:
            raise ValueError(f"{name}={value!r} must be greater than 0 and finite.")
    if X.shape[1] != D.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} features and the dictionary {D.shape[1]}, but both must have the same number. "
            "Samples and atoms are rows. Transpose arrays that have them as columns."
        )
    if is_torch(X) and sparse_output:
        raise ValueError("sparse_output gives a SciPy array, but X is a tensor. Convert X, or leave it out.")
    if device is not None and not isinstance(device, str):
        raise ValueError(f"device={device!r} must be a name such as 'cuda', or None.")
    if (is_torch(X) or device is not None) and solver not in ("auto", "admm"):
        raise ValueError(
            f"solver={solver!r} is for NumPy arrays with device=None. On tensors and devices use 'auto' or "
            "'admm'."
        )
