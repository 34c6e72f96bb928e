"""The linear algebra that the array standard lacks, on NumPy and on arrays that keep to the standard."""

import sys
import types

import array_api_strict
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ledl import arrays


@pytest.fixture(params=["numpy", "strict"])
def xp(request):
    return np if request.param == "numpy" else array_api_strict


@pytest.fixture(params=[(), (3,), (2, 3)], ids=str)
def problems(request):
    return request.param


@pytest.mark.parametrize("size", [1, 5, 64, 150])
def test_cholesky_solve(xp, problems, size, rng):
    A = rng.standard_normal((*problems, size, size + 3))
    gram = A @ A.mT + np.eye(size)
    rhs = rng.standard_normal((*problems, 4, size))
    factor = arrays.cholesky(xp.asarray(gram.copy()))
    solution = np.asarray(arrays.cholesky_solve(factor, xp.asarray(rhs.copy())))
    assert_allclose(solution @ gram, rhs, atol=1e-9)


def test_class_sums_and_take_rows(xp, problems, rng):
    values = rng.standard_normal((*problems, 9, 4))
    table = rng.standard_normal((*problems, 5, 4))
    for labels in (rng.integers(5, size=9), rng.integers(5, size=(*problems, 9))):
        one_hot = (labels[..., None] == np.arange(5)).astype(float)
        sums = arrays.class_sums(xp.asarray(values), xp.asarray(labels), 5)
        assert_allclose(np.asarray(sums), one_hot.mT @ values)
        rows = arrays.take_rows(xp.asarray(table), xp.asarray(labels))
        assert_allclose(np.asarray(rows), one_hot @ table)


def test_a_table_for_all_problems(xp, rng):
    table, labels = rng.standard_normal((5, 4)), rng.integers(5, size=(3, 9))
    assert_array_equal(np.asarray(arrays.take_rows(xp.asarray(table), xp.asarray(labels))), table[labels])


def test_add_to_diagonal(xp, problems, rng):
    matrix, value = rng.standard_normal((*problems, 4, 4)), rng.standard_normal((*problems, 1, 1))
    result = arrays.add_to_diagonal(xp.asarray(matrix.copy()), xp.asarray(value))
    assert_allclose(np.asarray(result), matrix + value * np.eye(4))


def test_inner_is_accumulated_in_float64(xp):
    ones = xp.ones((1000, 1000), dtype=xp.float32)
    tiny = ones * 1e-4
    assert float(arrays.inner(ones, tiny)) == pytest.approx(100.0, rel=1e-6)
    assert arrays.inner(ones, ones).dtype == xp.float64


def test_unit_rows_leave_zero_rows(xp):
    rows = arrays.unit_rows(xp.asarray([[3.0, 4.0], [0.0, 0.0]]))
    assert_array_equal(np.asarray(rows), [[0.6, 0.8], [0.0, 0.0]])


def test_row_factorization(xp, rng):
    X = rng.standard_normal((4, 9))
    R, basis = arrays.row_factorization(xp.asarray(X.copy()))
    assert_allclose(np.asarray(R) @ np.asarray(basis), X, atol=1e-12)
    assert_allclose(np.asarray(basis) @ np.asarray(basis).T, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_add_product(xp, problems, order, sign, rng):
    out, a = rng.standard_normal((*problems, 4, 5)), rng.standard_normal((*problems, 4, 12))
    b = rng.standard_normal((*problems, 6, 5))
    b_turned = np.ascontiguousarray(b.mT)
    left, right = xp.asarray(a)[..., 3:9], xp.asarray(b) if order == "C" else xp.asarray(b_turned).mT
    result = arrays.add_product(xp.asarray(out.copy()), left, right, sign)
    assert_allclose(np.asarray(result), out + sign * a[..., 3:9] @ b, atol=1e-13)


def test_add_product_overwrites_a_numpy_array(rng):
    out, a, b = rng.standard_normal((4, 5)), rng.standard_normal((4, 6)), rng.standard_normal((6, 5))
    expected = out + a @ b
    assert arrays.add_product(out, a, b) is out
    assert_allclose(out, expected)


def test_a_matrix_that_is_not_positive_definite(xp):
    with pytest.raises(np.linalg.LinAlgError):
        arrays.cholesky(xp.asarray(-np.eye(3)))


@pytest.mark.parametrize("size", [1, 5, 64])
def test_positive_inverse(xp, size, rng):
    A = rng.standard_normal((size, size + 3))
    gram = A @ A.T + np.eye(size)
    inverse = np.asarray(arrays.positive_inverse(xp.asarray(gram.copy())))
    assert_allclose(inverse @ gram, np.eye(size), atol=1e-10)


def test_positive_inverse_of_what_is_not_positive():
    with pytest.raises(np.linalg.LinAlgError, match="leading 2 x 2"):
        arrays.positive_inverse(np.diag([1.0, -1.0, 1.0]))


def test_sums_over_classes_and_samples_by_index(rng, device):
    import torch

    values, labels = rng.random((2, 9, 4)), rng.integers(3, size=(2, 9))
    labels[labels == 1] = 2  # a class without samples
    tensors = [torch.as_tensor(x, device=device) for x in (values, labels)]
    assert_allclose(
        arrays.to_host(arrays.class_sums(*tensors, 3)), arrays.class_sums(values, labels, 3), atol=1e-14
    )
    index = torch.as_tensor(np.array([[3, 0], [8, 8]]), device=device)
    taken = arrays.take_samples(tensors[0], index)
    assert_array_equal(arrays.to_host(taken), values[np.arange(2)[:, None], arrays.to_host(index)])
    out = torch.zeros_like(tensors[0])
    arrays.put_samples(out, index, taken)
    assert_array_equal(arrays.to_host(out)[0, 3], values[0, 3])
    on_host = np.zeros_like(values)
    arrays.put_samples(on_host, arrays.to_host(index), arrays.to_host(taken))
    assert_array_equal(on_host, arrays.to_host(out))
    assert arrays.as_array([1.0], taken).device == taken.device


@pytest.mark.parametrize("k", [1, 3])
def test_weighted_sums_of_rows(rng, device, k):
    import torch

    table, index, weights = rng.random((5, 4)), rng.integers(5, size=(7, k)), rng.random((7, k))
    sums = (weights[..., None] * table[index]).sum(axis=1)
    assert_allclose(arrays.add_rows(table, index, weights), sums)
    tensors = (torch.as_tensor(x, device=device) for x in (table, index, weights))
    assert_allclose(arrays.to_host(arrays.add_rows(*tensors)), sums)


def test_inverse_of_a_tensor_that_is_not_positive_definite_is_nan(device):
    import torch

    matrices = torch.stack([torch.eye(3), -torch.eye(3)]).double().to(device)
    inverse = arrays.to_host(arrays.positive_inverse(matrices))
    assert_allclose(inverse[0], np.eye(3))
    assert np.isnan(inverse[1]).any()


@pytest.mark.torch
def test_precisions_of_products_that_overlap():
    import torch

    setting = torch.backends.cuda.matmul
    before = setting.fp32_precision
    fast, full = arrays.float32_products("tf32", "cuda"), arrays.float32_products("full", "cuda")
    with arrays.float32_products("tf32", "cpu"):
        assert setting.fp32_precision == before
    fast.__enter__()
    assert setting.fp32_precision == "tf32"
    full.__enter__()
    assert setting.fp32_precision == "ieee"
    fast.__exit__(None, None, None)
    assert setting.fp32_precision == "ieee"
    full.__exit__(None, None, None)
    assert setting.fp32_precision == before


def test_arrays_are_no_tensors_while_torch_is_being_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert not arrays.is_torch(np.zeros(3))


@pytest.mark.torch
def test_a_missing_device_is_named():
    assert str(arrays.place(np.zeros(2), "cpu").dtype) == "torch.float64"
    with pytest.raises(ValueError, match="device='nonesuch' cannot be used here"):
        arrays.place(np.zeros(2), "nonesuch")
