"""Arrays of any library: the only module that names array libraries.

Solvers get a namespace once, ``xp = namespace(X)``, and use only functions of the array API standard.
This module adds functions that the standard lacks (Cholesky systems, sums over classes, ...). Leading axes
are always independent problems: an operation on ``(..., n, r)`` works on each ``(n, r)``.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse

# An array of any library; the standard has no type for it.
Array: TypeAlias = Any


def namespace(array: Array) -> ModuleType:
    """Return the array API namespace of an array."""
    if is_torch(array):
        try:
            return import_module("array_api_compat.torch")
        except ImportError as error:
            raise ImportError("Tensors need array-api-compat: pip install 'ledl[gpu]'.") from error
    return array.__array_namespace__()  # type: ignore[no-any-return]


def is_torch(array: Array) -> bool:
    """Say whether this is a PyTorch tensor, without importing PyTorch."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)  # None also while another thread imports it
    return kind is not None and isinstance(array, kind)


def is_dask(array: Array) -> bool:
    """Say whether this is a Dask array, without importing Dask."""
    kind = getattr(sys.modules.get("dask.array"), "Array", None)
    return kind is not None and isinstance(array, kind)


def as_array(values: Any, like: Array, dtype: Any = None) -> Array:
    """Return an array of the same library, and on the same device, as `like`."""
    values = _for_tensors(values) if is_torch(like) else values
    return namespace(like).asarray(values, dtype=dtype, device=like.device)


def place(array: Array, device: str | None) -> Array:
    """Return a tensor on that PyTorch device, or the NumPy array itself if `device` is None."""
    if device is None:
        return array
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"device={device!r} needs PyTorch: pip install 'ledl[gpu]'; or use device=None."
        ) from error
    try:
        return torch.as_tensor(_for_tensors(array), device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device={device!r} cannot be used here: {reason.rstrip('.')}. Use 'cuda' where there is a GPU, "
            "'cpu', or None."
        ) from error


def _for_tensors(values: Any) -> Any:
    """Return a copy of arrays that cannot become tensors, read-only or reversed ones; others as they are."""
    if isinstance(values, np.ndarray) and (not values.flags.writeable or min(values.strides, default=0) < 0):
        return values.copy()
    return values


def to_host(array: Array) -> Array:
    """Return a NumPy array: a copy if the array is on a device."""
    if not is_torch(array):
        return np.asarray(array)
    array = array.detach().cpu()
    return (array.float() if str(array.dtype) == "torch.bfloat16" else array).numpy()  # NumPy has no bfloat16


# The precisions of float32 products that are requested at the moment, and the setting before them.
_precisions: list[str] = []
_precision_before = ""
_precision_lock = Lock()


@contextmanager
def float32_products(precision: str, device: str | None) -> Iterator[None]:
    """Multiply float32 in "full", or with the 10 bits of "tf32" and sums in float32; no effect without a GPU.

    PyTorch has one setting for the process. Calls that overlap in threads share it: it is full if one of them
    requests that. The last one to end restores the setting.
    """
    global _precision_before
    if device is None or not device.startswith("cuda") or "torch" not in sys.modules:
        yield
        return
    setting = sys.modules["torch"].backends.cuda.matmul
    with _precision_lock:
        if not _precisions:
            _precision_before = setting.fp32_precision
        _precisions.append(precision)
        setting.fp32_precision = "ieee" if "full" in _precisions else "tf32"
    try:
        yield
    finally:
        with _precision_lock:
            _precisions.remove(precision)
            shared = "ieee" if "full" in _precisions else "tf32"
            setting.fp32_precision = shared if _precisions else _precision_before


def free_memory(like: Array) -> int:
    """Return the number of free bytes on the device of an array."""
    if is_torch(like) and like.is_cuda:
        import torch

        free, _ = torch.cuda.mem_get_info(like.device)
        # Memory that PyTorch holds but does not use is free, too.
        held = torch.cuda.memory_reserved(like.device) - torch.cuda.memory_allocated(like.device)
        return int(free + held)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every platform
        return 2**30


def check_memory(n_bytes: int, what: str, remedy: str) -> None:
    """Raise, before anything is allocated, if so many bytes exceed this machine's memory."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every platform
        return
    if n_bytes > total:
        raise ValueError(
            f"{what} need about {n_bytes / 1e9:,.0f} GB, more than this machine's {total / 1e9:,.0f} GB. "
            f"{remedy}"
        )


def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy arrays as a function of tensors in the host's memory, which are not copied."""
    import torch

    def wrapped(*arguments: Any) -> Any:
        results = function(*(to_host(x) if is_torch(x) else x for x in arguments))
        if isinstance(results, tuple):
            return tuple(map(torch.from_numpy, results))
        return None if results is None else torch.from_numpy(results)

    return wrapped


def inner(a: Array, b: Array) -> Array:
    """Return <a, b> over the two last axes, accumulated in float64: (..., n, r) -> (...)."""
    xp = namespace(a)
    flat = (*a.shape[:-2], -1)
    a64 = xp.astype(xp.reshape(a, flat), xp.float64, copy=False)
    b64 = a64 if b is a else xp.astype(xp.reshape(b, flat), xp.float64, copy=False)
    return xp.vecdot(a64, b64)


def row_squares(a: Array) -> Array:
    """Return |a_i|^2 of each row, in float64, without a copy of the rows: (n, r) -> (n,)."""
    if is_torch(a):
        import torch

        return torch.linalg.vector_norm(a, dim=-1, dtype=torch.float64) ** 2
    return np.einsum("ij,ij->i", a, a, dtype=np.float64)


def product(a: Array, b: Array) -> Array:
    """Return ``a b`` on the device of `a`, in the wider type of both; `b` is a NumPy array."""
    if isinstance(a, np.ndarray):
        return a @ b
    xp, b = namespace(a), as_array(b, a)
    dtype = xp.result_type(a, b)
    return xp.astype(a, dtype, copy=False) @ xp.astype(b, dtype, copy=False)


def unit_rows(a: Array) -> Array:
    """Return rows scaled to norm 1; a zero row stays zero."""
    xp = namespace(a)
    norms = xp.linalg.vector_norm(a, axis=-1, keepdims=True)
    return a / xp.where(norms > 0, norms, xp.ones_like(norms))


def add_to_diagonal(matrix: Array, value: Array) -> Array:
    """Return ``matrix + value I``, in place if possible; `value` broadcasts as (..., 1, 1)."""
    if isinstance(matrix, np.ndarray):
        index = np.arange(matrix.shape[-1])
        matrix[..., index, index] += np.asarray(value)[..., 0]
        return matrix
    if is_torch(matrix):
        matrix.diagonal(dim1=-2, dim2=-1).add_(value[..., 0])
        return matrix
    return matrix + value * namespace(matrix).eye(matrix.shape[-1], dtype=matrix.dtype)


@cache
def _routines(dtype: str) -> tuple[Any, Any, Any]:
    """Return BLAS's gemm, LAPACK's potrf and trtri for a type; a lookup costs as much as a small product."""
    (gemm,) = scipy.linalg.get_blas_funcs(("gemm",), dtype=np.dtype(dtype))
    potrf, trtri = scipy.linalg.get_lapack_funcs(("potrf", "trtri"), dtype=np.dtype(dtype))
    return gemm, potrf, trtri


def add_product(out: Array, a: Array, b: Array, sign: float = 1.0) -> Array:
    """Return ``out + sign a b``; `out`, of NumPy (C-ordered) or PyTorch, is overwritten: no array for a b."""
    if is_torch(out) and out.ndim == 2:
        return out.addmm_(a, b, alpha=sign)
    if is_torch(out):
        flat = [x.expand(*out.shape[:-2], -1, -1).reshape(-1, *x.shape[-2:]) for x in (a, b)]
        out.view(-1, *out.shape[-2:]).baddbmm_(*flat, alpha=sign)
        return out
    if not isinstance(out, np.ndarray):
        return out + sign * (a @ b)
    gemm, _, _ = _routines(out.dtype.char)
    for index in np.ndindex(out.shape[:-2]):
        # BLAS needs Fortran order: out' + sign b'a', and the transpose of a C-ordered array has it.
        left, right = b[index].T, a[index].T
        turned = not left.flags.f_contiguous
        left = left.T if turned else left
        gemm(sign, left, right, beta=1.0, c=out[index].T, trans_a=turned, overwrite_c=True)
    return out


class Cholesky(NamedTuple):
    """The upper factor U of gram = U'U; with NumPy also the inverses of its diagonal blocks; with PyTorch only
    the inverse of gram, because one product is faster there than two triangular systems.
    """

    upper: Array
    diagonal_inverses: list[Array]


# Wide enough for products to run at full speed, narrow enough for the inverses to cost little.
TRIANGLE_BLOCK = 64


def cholesky(gram: Array) -> Cholesky:
    """Factorise a positive definite (..., K, K), for `cholesky_solve`; a NumPy `gram` is overwritten.

    With PyTorch a matrix that is not positive definite gives NaN: an error would have to wait for the device.
    """
    if is_torch(gram):
        return Cholesky(None, [positive_inverse(gram)])
    if not isinstance(gram, np.ndarray):
        return Cholesky(namespace(gram).linalg.cholesky(gram, upper=True), [])
    _, factorise, invert = _routines(gram.dtype.char)
    K = gram.shape[-1]
    blocks = [slice(i, min(i + TRIANGLE_BLOCK, K)) for i in range(0, K, TRIANGLE_BLOCK)]
    inverses = [np.empty_like(gram[..., block, block]) for block in blocks]
    for index in np.ndindex(gram.shape[:-2]):
        # The transpose of a symmetric C-ordered matrix is itself, in LAPACK's order: no copy.
        _, failed = factorise(gram[index].T, lower=1, clean=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError(f"the leading {failed} x {failed} matrix is not positive definite")
        for block, inverse in zip(blocks, inverses, strict=True):
            inverse[index] = invert(gram[index][block, block], lower=0)[0]
    return Cholesky(gram, inverses)


def cholesky_solve(factor: Cholesky, rhs: Array) -> Array:
    """Return the rows s with s U'U = rhs; a NumPy `rhs` is overwritten.

    It works block by block, so that nearly all work is matrix products, which are faster than LAPACK's
    triangular solver at our sizes.
    """
    U, inverses = factor
    if U is None:
        return rhs @ inverses[0]
    if not inverses:
        xp = namespace(rhs)
        return xp.linalg.solve(U, xp.linalg.solve(U.mT, rhs.mT)).mT
    K = rhs.shape[-1]
    blocks = [(i, min(i + TRIANGLE_BLOCK, K)) for i in range(0, K, TRIANGLE_BLOCK)]
    for (i, j), inverse in zip(blocks, inverses, strict=True):
        if i > 0:
            rhs[..., i:j] -= rhs[..., :i] @ U[..., :i, i:j]
        rhs[..., i:j] = rhs[..., i:j] @ inverse
    for (i, j), inverse in zip(reversed(blocks), reversed(inverses), strict=True):
        if j < K:
            rhs[..., i:j] -= rhs[..., j:] @ U[..., i:j, j:].mT
        rhs[..., i:j] = rhs[..., i:j] @ inverse.mT
    return rhs


def positive_inverse(matrix: Array) -> Array:
    """Return the inverse of a positive definite (..., K, K); a NumPy `matrix` is overwritten."""
    if is_torch(matrix):
        import torch

        lower, failed = torch.linalg.cholesky_ex(matrix)
        lower = torch.where((failed == 0)[..., None, None], lower, torch.nan)
        half = torch.linalg.solve_triangular(
            lower, torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device), upper=False
        )
        return half.mT @ half
    if not isinstance(matrix, np.ndarray):
        return namespace(matrix).linalg.inv(matrix)
    potrf, potri = scipy.linalg.get_lapack_funcs(("potrf", "potri"), (matrix,))
    for index in np.ndindex(matrix.shape[:-2]):
        factor, failed = potrf(matrix[index].T, lower=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError(f"the leading {failed} x {failed} matrix is not positive definite")
        inverse, _ = potri(factor, lower=1, overwrite_c=1)
        # LAPACK fills one triangle.
        matrix[index] = np.tril(inverse) + np.tril(inverse, -1).T
    return matrix


def solve_lower(L: Array, rhs: Array, transposed: bool = False) -> Array:
    """Return L^-1 rhs, or L'^-1 rhs, for a lower triangular L: (r, r) and (r, m) -> (r, m)."""
    if is_torch(L):
        import torch

        return torch.linalg.solve_triangular(L.mT if transposed else L, rhs, upper=transposed)
    return scipy.linalg.solve_triangular(L, rhs, lower=True, trans=int(transposed), check_finite=False)


def sparse_matrix(rows: Array, columns: Array, values: Array, n: int) -> Any:
    """Return an (n, n) sparse matrix, for products ``matrix @ array``. Values at equal places add up."""
    if is_torch(values):
        import torch

        places = torch.stack([rows, columns])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
            # PyTorch 2.11 says so although it is told not to check.
            warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")
            found = torch.sparse_coo_tensor(places, values, (n, n), check_invariants=False)
            return found.coalesce().to_sparse_csr()
    return scipy.sparse.coo_array((values, (rows, columns)), shape=(n, n)).tocsr()


def row_factorization(X: Array) -> tuple[Array, Array]:
    """Return R and O with X = R O, O O' = I: (n, d) -> (n, n), (n, d), for n <= d; X may be overwritten."""
    if not isinstance(X, np.ndarray):
        basis, triangle = namespace(X).linalg.qr(X.mT)
        return triangle.mT, basis.mT
    basis, triangle = scipy.linalg.qr(X.T, mode="economic", overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(triangle.T), basis.T


def take_rows(table: Array, index: Array) -> Array:
    """Return rows of tables: (..., c, K) and indices (n,), or (c, K) or (..., c, K) and (..., n)."""
    xp = namespace(table)
    if index.ndim == 1:
        return xp.take(table, index, axis=-2)
    tables = xp.broadcast_to(table, (*index.shape[:-1], *table.shape[-2:]))
    return xp.take_along_axis(tables, index[..., None], axis=-2)


def take_samples(values: Array, index: Array) -> Array:
    """Return samples of each problem: (..., n) or (..., n, K), indices (..., m) -> (..., m) or (..., m, K)."""
    if values.ndim == index.ndim:
        return namespace(values).take_along_axis(values, index, axis=-1)
    return take_rows(values, index)


def put_samples(out: Array, index: Array, values: Array) -> None:
    """Set ``out[..., index] = values`` in NumPy or PyTorch: the inverse of `take_samples`."""
    axis = index.ndim - 1
    if isinstance(out, np.ndarray):
        np.put_along_axis(out, index if out.ndim == index.ndim else index[..., None], values, axis)
        return
    if out.ndim > index.ndim:
        index = index[..., None].expand(*index.shape, out.shape[-1])
    out.scatter_(axis, index, values)


def add_rows(table: Array, index: Array, weights: Array) -> Array:
    """Return weighted sums of rows, without copies of them: (c, K), indices and weights (n, k) -> (n, K)."""
    if is_torch(table):
        import torch

        return torch.nn.functional.embedding_bag(index, table, mode="sum", per_sample_weights=weights)
    n, k = index.shape
    rows = (np.ravel(weights), np.ravel(index), k * np.arange(n + 1))
    return scipy.sparse.csr_array(rows, shape=(n, len(table))) @ table


def class_sums(values: Array, labels: Array, n_classes: int) -> Array:
    """Return sums of the rows of each class: (..., n, K) and labels (n,) or (..., n) -> (..., c, K)."""
    xp, (*problems, n, K) = namespace(values), values.shape
    n_problems, device = math.prod(problems), values.device
    # Problems side by side: class j of problem p is segment p c + j.
    each = xp.reshape(xp.broadcast_to(labels, (*problems, n)), (n_problems, n))
    segments = xp.reshape(each + n_classes * xp.arange(n_problems, device=device)[:, None], (-1,))
    flat = xp.reshape(values, (n_problems * n, K))
    if is_torch(values):
        import torch

        # In the order of the classes, so that the sums do not depend on the order of threads.
        ordered, order = torch.sort(segments, stable=True)
        # torch.bincount would wait for the device: it needs the greatest label.
        ends = torch.searchsorted(ordered, torch.arange(n_problems * n_classes + 1, device=device))
        sums = torch.segment_reduce(flat[order], "sum", lengths=ends.diff(), axis=0, unsafe=True)
    elif isinstance(values, np.ndarray):
        entries = np.ones(len(flat), dtype=values.dtype), segments, np.arange(len(flat) + 1)
        sums = scipy.sparse.csc_array(entries, shape=(n_problems * n_classes, len(flat))) @ flat
    else:
        belongs = segments == xp.arange(n_problems * n_classes, device=device)[:, None]
        sums = xp.astype(belongs, values.dtype) @ flat
    return xp.reshape(sums, (*problems, n_classes, K))
