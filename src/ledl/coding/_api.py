"""Sparse codes of many samples over one dictionary: validation, choice of solver, chunks, threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, gen_batches

from ledl.arrays import (
    Array,
    as_array,
    float32_products,
    is_dask,
    is_numpy,
    is_torch,
    namespace,
    place,
    to_host,
)
from ledl.coding._coders import BatchedLassoCoder, Coder, LassoCoder, OMPCoder, chunk_size
from ledl.parallel import map_in_threads, n_threads, one_blas_thread
from ledl.samples import check_rows, floats_of, map_rows, upload_ahead
from ledl.solvers.lasso import SOLVERS, reachable
from ledl.solvers.proximal import PILOTS
from ledl.subspace import IdentitySubspace, KernelSpace, Subspace, scaled, squared_norms


class CodingInfo(NamedTuple):
    """What `sparse_encode` did, sample by sample: a named tuple.

    Parameters
    ----------
    gap : ndarray of shape (n_samples,), or None
        Duality gaps, on the scale of the objective, of the codes before they are rounded to the type of the
        data; None for OMP, which minimises nothing that has one.
    n_iter : ndarray of shape (n_samples,)
        Iterations; for OMP atoms taken.
    n_nonzero : ndarray of shape (n_samples,)
        Non-zeros of the codes.
    converged : ndarray of shape (n_samples,)
        Whether the gap is at most `tol` times half the squared norm of the sample; for OMP always.
    tol : float, or None
        The tolerance that was used: in float32 at least 1e-5.
    solver : str
        The solver that was used.

    Examples
    --------
    >>> from ledl import sparse_encode
    >>> codes, info = sparse_encode([[3.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], alpha=1.0, return_info=True)
    >>> info
    CodingInfo(solver='active_set', tol=1e-06: 1 of 1 samples converged)
    >>> info.n_nonzero
    array([1])
    """

    gap: Array | None
    n_iter: Array
    n_nonzero: Array
    converged: Array
    tol: float | None
    solver: str

    def __repr__(self) -> str:
        done = f"{np.count_nonzero(self.converged)} of {len(self.converged)} samples converged"
        return f"CodingInfo(solver={self.solver!r}, tol={self.tol}: {done})"


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
    r"""Sparse codes of samples over a dictionary.

    With `alpha`, each sample x has the code s of the lasso

    .. math::

        \min_s \tfrac12 \|x - s D\|^2 + \alpha \|s\|_1

    certified by its duality gap. With `n_nonzero_coefs`, it has the code of orthogonal matching pursuit.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Samples; float32 and float64 stay what they are, and so do codes, anything else becomes float64. A
        memory-mapped array is read chunk by chunk. PyTorch tensors are coded where they lie. A Dask array
        gives a Dask array of as many chunks of rows, and nothing is computed yet.

    dictionary : array-like of shape (n_components, n_features)
        The atoms D. They need not have norm 1, but for OMP that is what makes their correlations comparable.

    alpha : float, default=None
        Weight of the l1 norm, as in scikit-learn's `SparseCoder`. At :math:`\max |D x|` and above, codes are
        zero.

    n_nonzero_coefs : int, default=None
        Non-zeros of a code at most, for orthogonal matching pursuit. Fewer where the residual vanishes or no
        independent atom is left.

    solver : {"auto", "active_set", "cd", "admm", "fista"}, default="auto"
        For the lasso. ``"active_set"`` takes exact steps and fears no coherent atoms; ``"admm"`` is for dense
        codes, with nearly as many non-zeros as the dictionary has independent atoms; ``"cd"``, coordinate
        descent, and ``"fista"``, accelerated proximal gradient, for comparison. ``"auto"`` takes
        ``"active_set"``, unless that needs many rounds for a few pilot samples: then ``"admm"``, and exact
        steps for samples that it leaves over.

    tol : float, default=1e-6
        The gap of each sample x is at most this times :math:`\tfrac12 \|x\|^2`; for float32 at least 1e-5. At
        1e-4 and above, products are made in float32, which is faster. Lasso only.

    max_iter : int, default=10_000
        Iterations a sample at most: rounds of exact steps, passes of coordinate descent, or steps. Lasso only.

    positive : bool, default=False
        Non-negative codes. Lasso only.

    init : array-like or sparse matrix of shape (n_samples, n_components), default=None
        Codes to start from, such as those at another alpha. Lasso only; not for Dask arrays.

    sparse_output : bool, default=False
        Give a `scipy.sparse.csr_array`: much less memory where codes are sparse. Not for Dask arrays.

    device : str, default=None
        Where codes are computed: None on this machine's processors with NumPy; ``"cuda"`` on a GPU, or
        ``"cpu"``, with PyTorch (extra ``gpu``). There ``"admm"`` is the only solver, for ``"auto"`` with exact
        steps on the host for samples that it leaves over. Of no effect on tensors.

    n_jobs : int, default=None
        Threads. None means 1 unless in a `joblib.parallel_config` context, -1 as many as there are processors.

    return_info : bool, default=False
        Give a `CodingInfo` too. Not for Dask arrays.

    Returns
    -------
    codes : ndarray, csr_array, tensor or Dask array of shape (n_samples, n_components)
        A row for each sample: what it takes of each atom.
    info : CodingInfo
        Only if `return_info`.

    Warns
    -----
    ConvergenceWarning
        If samples did not reach the gap, with their number.

    See Also
    --------
    sklearn.decomposition.sparse_encode : Its ``lasso_lars``, ``lasso_cd`` and ``omp`` solve the same problems.

    Notes
    -----
    The first call on a machine compiles, for 5 to 10 seconds; later ones find the compiled code in numba's
    cache, beside the package or where NUMBA_CACHE_DIR says. Where atoms are dependent, codes are not unique:
    compare objectives.

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
    if is_dask(X):
        _check_for_chunks(init=init is not None, sparse_output=sparse_output, return_info=return_info)
        choice = {"alpha": alpha, "n_nonzero_coefs": n_nonzero_coefs, "solver": solver, "positive": positive}
        return _encode_chunks(X, dictionary, choice, tol=tol, max_iter=max_iter, device=device, n_jobs=n_jobs)
    X, D = _checked(X, "X"), _checked(dictionary, "dictionary")
    init = _checked_init(init, X, (len(X), len(D)))
    _check_choice(alpha, n_nonzero_coefs, solver, positive, init)
    _check_numbers(alpha=alpha, n_nonzero_coefs=n_nonzero_coefs, tol=tol, max_iter=max_iter, n_jobs=n_jobs)
    _check_features(X, D)
    _check_device(X, device, solver, sparse_output)
    threads, samples = n_threads(n_jobs), Samples(X, device)
    with one_blas_thread(), float32_products("full", samples.where):
        coder: Coder
        if alpha is not None:
            most = min(max_iter, 2**31)  # what compiled loops can count
            options = {"solver": solver, "max_iter": most, "positive": positive}
            coder = lasso_coder(D, samples, IdentitySubspace(), threads, alpha=alpha, tol=tol, **options)
        else:
            coder = OMPCoder(samples.beside(D), n_nonzero_coefs, threads)
        shape = (0 if sparse_output else len(X), len(D))
        codes: Any = namespace(X).empty(shape, dtype=X.dtype, device=X.device)

        def finish(chunk: slice, part: Array, *samples: Array) -> Any:
            part = part if is_torch(X) else to_host(part)
            return _compressed(part) if sparse_output else codes.__setitem__(chunk, part)

        advice = "Raise max_iter, tol or alpha, or take another solver."
        parts, info = code_in_chunks(coder, samples, IdentitySubspace(), finish, threads, advice, init)
    if sparse_output:
        codes = _assembled(parts, len(D), X.dtype)
    if not return_info:
        return codes
    n_nonzero = np.diff(codes.indptr) if sparse_output else to_host((codes != 0).sum(axis=1))
    return codes, info._replace(n_nonzero=n_nonzero)


def _check_for_chunks(**given: bool) -> None:
    remedies = {
        "init": "Leave it out: it saves time, and changes nothing else",
        "sparse_output": "Leave it out, and make codes.map_blocks(scipy.sparse.csr_array) of what you get",
        "return_info": "Leave it out, or encode chunks in memory, X.blocks[i].compute()",
    }
    for name in given:
        if given[name]:
            raise ValueError(
                f"{name} is for samples in memory, but X is a Dask array, of which nothing is computed yet. "
                f"{remedies[name]}."
            )


def _encode_chunks(X: Array, dictionary: Array, choice: dict[str, Any], **options: Any) -> Array:
    """Codes of a Dask array: each chunk's when they are asked for, but all checks of the rest now."""
    check_rows(X)
    D = np.array(to_host(_checked(dictionary, "dictionary")))  # theirs may have changed by then
    _check_choice(choice["alpha"], choice["n_nonzero_coefs"], choice["solver"], choice["positive"], None)
    numbers = {name: choice[name] for name in ("alpha", "n_nonzero_coefs")}
    _check_numbers(**numbers, **{name: options[name] for name in ("tol", "max_iter", "n_jobs")})
    _check_features(X, D)
    _check_device(X, options["device"], choice["solver"], sparse_output=False)
    squared_norms(D, "The dictionary")  # refuses what is not finite
    n_threads(options["n_jobs"])  # refuses none
    work = partial(sparse_encode, dictionary=D, **choice, **options)
    return map_rows(work, X, floats_of(X), len(D))


@dataclass(frozen=True)
class Samples:
    """Samples as they came, which are worked on chunk by chunk: on the device asked for, scaled if so asked.

    Tensors stay where they lie.
    """

    data: Array
    device: str | None = None
    unit_norm: bool = False

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, rows: Any) -> Array:
        return self._scaled(place(self.data[rows], None if is_torch(self.data) else self.device))

    def stream(self, chunks: list[slice]) -> Iterator[Array]:
        """Chunks in turn, the next one being on its way to the device meanwhile."""
        if is_torch(self.data) or len(chunks) == 1:
            return map(self.__getitem__, chunks)
        return map(self._scaled, upload_ahead((self.data[chunk] for chunk in chunks), self.device))

    def _scaled(self, chunk: Array) -> Array:
        return scaled(chunk) if self.unit_norm else chunk

    @property
    def where(self) -> str | None:
        """The device that they are worked on."""
        return str(self.data.device) if is_torch(self.data) else self.device

    def beside(self, array: Array) -> Array:
        """An array that is to meet the samples, where they will be."""
        return as_array(array, self.data) if is_torch(self.data) else place(to_host(array), self.device)


def _checked(array: Array, name: str) -> Array:
    """A matrix of floats; a plain one is left to `squared_norms`, which looks at numbers where they are used.

    scikit-learn's check takes longer than a small job, and reads a large array once more.
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
    """A dense tensor of float32 or float64, float64 unless it was a float; without a gradient."""
    xp = namespace(array)
    if str(array.layout) != "torch.strided":
        raise ValueError(f"{name} is a tensor of layout {array.layout}; give a dense one: {name}.to_dense().")
    if array.is_complex():
        raise ValueError(f"{name} is complex ({array.dtype}). Complex data not supported: give real numbers.")
    if array.dtype in (xp.float64, xp.float32):
        return array.detach()
    return xp.astype(array.detach(), xp.float32 if array.dtype.is_floating_point else xp.float64)


def _checked_init(init: Any, X: Array, shape: tuple[int, int]) -> Any:
    if init is None:
        return None
    if tuple(init.shape if is_torch(init) else np.shape(init)) != shape:
        raise ValueError(f"init has shape {tuple(np.shape(init))}, but codes have shape {shape}.")
    if is_torch(init):
        init = float_tensor(init, "init")
        if not bool(namespace(init).all(namespace(init).isfinite(init))):
            raise ValueError("init contains NaN or infinity. Give finite codes.")
        return init if is_torch(X) else to_host(init)
    return check_array(init, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="init")


def _check_choice(alpha: Any, n_nonzero: Any, solver: str, positive: bool, init: Any) -> None:
    if (alpha is None) == (n_nonzero is None):
        raise ValueError(
            "Give either alpha, for the lasso, or n_nonzero_coefs, for orthogonal matching pursuit; got "
            f"alpha={alpha} and n_nonzero_coefs={n_nonzero}."
        )
    if solver not in ("auto", *SOLVERS):
        raise ValueError(
            f"solver={solver!r} is unknown; choose one of {', '.join(['auto', *SOLVERS])} for the lasso, or "
            "give n_nonzero_coefs instead of alpha for orthogonal matching pursuit."
        )
    if not isinstance(positive, bool | np.bool_):
        raise ValueError(f"positive={positive!r} must be True or False.")
    given = {"solver": solver != "auto", "positive": bool(positive), "init": init is not None}
    for name in given:
        if n_nonzero is not None and given[name]:
            raise ValueError(
                f"Orthogonal matching pursuit (n_nonzero_coefs) knows no {name}; leave it out, or give alpha "
                "for the lasso."
            )


def _check_numbers(**numbers: Any) -> None:
    for name, value in numbers.items():
        if value is None and name in ("alpha", "n_nonzero_coefs", "n_jobs"):
            continue
        whole = name in ("n_nonzero_coefs", "max_iter", "n_jobs")
        if not isinstance(value, Integral if whole else Real) or isinstance(value, bool):
            raise ValueError(
                f"{name} must be {'an integer' if whole else 'a number'}, not a {type(value).__name__}."
            )
        number: Any = value
        if name != "n_jobs" and not 0 < number < np.inf:
            raise ValueError(f"{name}={value!r} must be greater than 0 and finite.")


def _check_features(X: Array, D: Array) -> None:
    if X.shape[1] != D.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} features and the dictionary {D.shape[1]}: both must have the same. Rows are "
            "samples, and atoms; transpose what has them as columns."
        )


def _check_device(X: Array, device: str | None, solver: str, sparse_output: bool) -> None:
    if is_torch(X) and sparse_output:
        raise ValueError("sparse_output gives a SciPy array, but X is a tensor. Convert X, or leave it out.")
    if device is not None and not isinstance(device, str):
        raise ValueError(f"device={device!r} must be a name such as 'cuda', or None.")
    if (is_torch(X) or device is not None) and solver not in ("auto", "admm"):
        raise ValueError(
            f"solver={solver!r} is for NumPy arrays with device=None. On tensors and devices use 'auto' or "
            "'admm'."
        )


def lasso_coder(
    atoms: Array, samples: Samples, space: Subspace, threads: int, *, alpha: float, tol: float, **options: Any
) -> LassoCoder | BatchedLassoCoder:
    """Lasso codes over atoms in the coordinates of `space`; `tol` is what float32 can hold at best."""
    pilots = samples[np.unique(np.linspace(0, len(samples) - 1, PILOTS).astype(int))]
    tol = reachable(tol, pilots)
    if is_torch(pilots):
        return BatchedLassoCoder(samples.beside(atoms), alpha=alpha, tol=tol, **options)
    sq_norms = space.squared_norms(pilots)
    options |= {"alpha": alpha, "tol": tol, "threads": threads}
    return LassoCoder(to_host(atoms), space.reduce(pilots), sq_norms, len(samples), **options)


def code_in_chunks(
    coder: Coder,
    samples: Samples,
    space: Subspace,
    finish: Callable[[slice, Array, Array, Array], Any],
    threads: int,
    advice: str,
    init: Any = None,
) -> tuple[list[Any], CodingInfo]:
    """What `finish` makes of each chunk: its place, codes, coordinates and squared norms; and what was done.

    A chunk is worked on by one thread, products included; on a device one after the other. One warning, with
    `advice`, for all samples that missed the gap.
    """
    n = len(samples)
    gap, squares = np.full(n, np.nan), np.empty(n)
    n_iter, converged = np.zeros(n, np.int64), np.zeros(n, bool)

    def work(chunk: slice, Y: Array) -> Any:
        sq_norms, X = space.squared_norms(Y, chunk.start), space.reduce(Y)
        start: Any = None if init is None else init[chunk]
        start = start.toarray() if scipy.sparse.issparse(start) else start
        codes, gap[chunk], n_iter[chunk], converged[chunk] = coder(X, sq_norms, start)
        squares[chunk] = to_host(sq_norms)
        return finish(chunk, namespace(codes).astype(codes, Y.dtype, copy=False), X, sq_norms)

    atoms = samples.beside(coder.atoms)
    chunks = list(gen_batches(n, chunk_size(atoms, samples.data.shape[1], n, threads)))
    if is_numpy(atoms):
        parts = map_in_threads(lambda chunk: work(chunk, samples[chunk]), chunks, threads)
    else:
        parts = [work(chunk, Y) for chunk, Y in zip(chunks, samples.stream(chunks), strict=True)]
    if not converged.all():
        late = ~converged
        worst = np.max(gap[late] / np.maximum(squares[late] / 2, np.finfo(np.float64).tiny))
        warnings.warn(
            f"{late.sum()} of {n} samples did not reach the duality gap asked for (tol={coder.tol}, "
            f"of half their squared norm; the worst has {worst:.1e}). {advice}",
            ConvergenceWarning,
            stacklevel=3,
        )
    gaps = gap if isinstance(coder, LassoCoder | BatchedLassoCoder) else None
    return parts, CodingInfo(gaps, n_iter, None, converged, coder.tol, coder.solver)


def encode(
    make_coder: Callable[[int], Coder],
    samples: Samples,
    space: Subspace,
    finish: Callable[[Array, Array, Array], Array],
    n_jobs: int | None,
) -> Array:
    """For estimators: what `finish` makes of codes, coordinates and squared norms of samples, chunk by chunk.

    `make_coder` takes the number of threads. Tensors for tensors, otherwise NumPy arrays.
    """
    threads = n_threads(n_jobs)

    def work(chunk: slice, codes: Array, X: Array, sq_norms: Array) -> tuple[Array, bool, bool]:
        result = finish(codes, X, sq_norms)
        result = result if is_torch(samples.data) else to_host(result)
        return result, bool((codes != 0).any()), bool((sq_norms > 0).any())

    with one_blas_thread(), float32_products("full", samples.where):
        coder = make_coder(threads)
        parts, _ = code_in_chunks(coder, samples, space, work, threads, "Raise the tolerance or alpha.")
    results, coded, present = zip(*parts, strict=True)
    if not any(coded) and any(present):
        reason = "they have nothing in common with the atoms"
        alpha = getattr(coder, "alpha", None)  # the lasso's
        if alpha is not None:
            reason = f"alpha={alpha} is too large for samples of this size"
        kernel = ", or lower the kernel's gamma" if isinstance(space, KernelSpace) else ""
        warnings.warn(
            f"The codes of all {len(samples)} samples are zero, so they tell nothing about classes: {reason}. "
            f"Lower alpha (or transform_alpha, if set), or scale the samples as in training{kernel}.",
            UserWarning,
            stacklevel=3,
        )
    return namespace(results[0]).concat(results)


def _compressed(codes: Array) -> tuple[Array, Array, Array]:
    """Non-zeros a row, columns and values."""
    flat = codes.reshape(-1)
    places = np.flatnonzero(flat)
    rows, columns = np.divmod(places, codes.shape[1])
    return np.bincount(rows, minlength=len(codes)), columns.astype(np.int32), flat[places]


def _assembled(parts: list[tuple[Array, Array, Array]], n_atoms: int, dtype: Any) -> scipy.sparse.csr_array:
    counts, columns, values = (np.concatenate(x) for x in zip(*parts, strict=True))
    ends = np.concatenate([[0], np.cumsum(counts)])
    if len(values) < np.iinfo(np.int32).max:  # what most of scikit-learn wants
        ends = ends.astype(np.int32)
    shape = len(counts), n_atoms
    return scipy.sparse.csr_array((values.astype(dtype, copy=False), columns, ends), shape=shape)
