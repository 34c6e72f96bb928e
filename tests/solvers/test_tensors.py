"""Tensors: on the host here, on a GPU where there is one; kernels against the plain versions they stand for.

Triton's interpreter stands in for a GPU. On a machine with one: ``pytest -m gpu``.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ledl.solvers import compiled
from ledl.solvers.atoms import update_block_plain
from ledl.solvers.lasso import duality_gap, lasso, reflect_plain
from ledl.solvers.ledl import shrink_plain

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytestmark = pytest.mark.torch

from helpers.plain_codes import omp_plain  # noqa: E402
from helpers.problems import unit  # noqa: E402
from ledl.arrays import (  # noqa: E402
    add_rows,
    as_array,
    class_sums,
    place,
    positive_inverse,
    put_samples,
    take_samples,
    to_host,
)
from ledl.solvers import ksvd, lcksvd  # noqa: E402
from ledl.solvers.omp import batched_omp, omp  # noqa: E402
from ledl.solvers.start import sample_start  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return request.param


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def dtype(request):
    return request.param


def lassos(rng, n_problems=3, n_atoms=40, n_samples=50, n_features=25):
    D, X = (rng.standard_normal((n_problems, n, n_features)) for n in (n_atoms, n_samples))
    D /= np.linalg.norm(D, axis=-1, keepdims=True)
    alpha = np.array([0.3, 0.05, 0.01])[:n_problems, None, None]
    return D @ D.swapaxes(1, 2), X @ D.swapaxes(1, 2), (X * X).sum(axis=-1), alpha


def test_sums_over_classes_and_samples_by_index(rng, device):
    values, labels = rng.random((2, 9, 4)), rng.integers(3, size=(2, 9))
    labels[labels == 1] = 2  # a class without samples
    tensors = [torch.as_tensor(x, device=device) for x in (values, labels)]
    np.testing.assert_allclose(to_host(class_sums(*tensors, 3)), class_sums(values, labels, 3), atol=1e-14)
    index = torch.as_tensor(np.array([[3, 0], [8, 8]]), device=device)
    taken = take_samples(tensors[0], index)
    np.testing.assert_array_equal(to_host(taken), values[np.arange(2)[:, None], to_host(index)])
    out = torch.zeros_like(tensors[0])
    put_samples(out, index, taken)
    np.testing.assert_array_equal(to_host(out)[0, 3], values[0, 3])
    on_host = np.zeros_like(values)
    put_samples(on_host, to_host(index), to_host(taken))
    np.testing.assert_array_equal(on_host, to_host(out))
    assert as_array([1.0], taken).device == taken.device


@pytest.mark.parametrize("k", [1, 3])
def test_weighted_sums_of_rows(rng, device, k):
    table, index, weights = rng.random((5, 4)), rng.integers(5, size=(7, k)), rng.random((7, k))
    sums = (weights[..., None] * table[index]).sum(axis=1)
    np.testing.assert_allclose(add_rows(table, index, weights), sums)
    tensors = (torch.as_tensor(x, device=device) for x in (table, index, weights))
    np.testing.assert_allclose(to_host(add_rows(*tensors)), sums)


def test_inverse_of_what_is_not_positive_definite_is_nan(device):
    matrices = torch.stack([torch.eye(3), -torch.eye(3)]).double().to(device)
    inverse = to_host(positive_inverse(matrices))
    np.testing.assert_allclose(inverse[0], np.eye(3))
    assert np.isnan(inverse[1]).any()


def test_batched_lasso_reaches_its_gap_and_the_objective_of_exact_codes(rng, device, dtype):
    arrays = lassos(rng)
    tensors = [torch.as_tensor(x, device=device) for x in arrays]
    tol = 1e-4
    codes, info = lasso(*tensors, tol, solver="admm", dtype=getattr(torch, dtype.__name__))
    codes, gaps = to_host(codes), to_host(info.gap)
    G, rhs, sq_norms, alpha = arrays
    S = codes.astype(np.float64)
    exact = duality_gap(S, S @ G, rhs, sq_norms, alpha[..., 0], False)
    assert (exact <= tol * sq_norms / 2).all()
    np.testing.assert_allclose(gaps, exact, atol=1e-9)
    for p in range(3):
        best, _ = lasso(G[p], rhs[p], sq_norms[p], alpha[p].item(), 1e-10)
        values = [
            (s @ G[p] * s).sum(axis=1) / 2 - (s * rhs[p]).sum(axis=1) + alpha[p] * np.abs(s).sum(axis=1)
            for s in (S[p], best)
        ]
        assert np.all(values[0] - values[1] <= tol * sq_norms[p] / 2)


def test_gaps_of_float32_data_are_bounds(rng, device):
    G, rhs, sq_norms, alpha = lassos(rng)
    tensors = [torch.as_tensor(x.astype(np.float32), device=device) for x in (G, rhs, sq_norms, alpha)]
    codes, info = lasso(*tensors, 1e-4, solver="admm")
    assert codes.dtype == torch.float32
    S = to_host(codes).astype(np.float64)
    exact = duality_gap(S, S @ G, rhs, sq_norms, alpha[..., 0], False)
    assert (exact <= 1e-4 * sq_norms / 2).all()
    assert (exact <= to_host(info.gap) + 1e-6).all()


def test_batched_lasso_gives_up_at_max_iter(rng):
    tensors = [torch.as_tensor(x) for x in lassos(rng)]
    _, info = lasso(*tensors, 1e-12, max_iter=7, solver="admm")
    assert int(info.n_iter.max()) == int(info.n_iter.min()) == 7
    assert float(info.gap.max()) > 1e-12


def pursuits(rng):
    """Samples of all kinds over atoms with zeros and, at the end, copies among them."""
    D, X = unit(rng.standard_normal((50, 30))), rng.standard_normal((40, 30))
    D[[0, 7]] = 0
    X[[0, 5]] = 0
    for i in range(6, 26):  # these end early
        X[i] = (1 + rng.random(i % 5)) @ D[rng.choice(np.arange(8, 50), i % 5, replace=False)]
    return np.concatenate([D, -D[20:30]]), X


@pytest.mark.parametrize("n_nonzero", [0, 1, 4, 12, 30])
def test_batched_pursuit_is_that_of_the_loop(rng, device, n_nonzero):
    D, X = pursuits(rng)
    arrays = D @ D.T, X @ D.T, (X * X).sum(axis=1)
    S, taken = omp(*arrays, n_nonzero)
    assert len(set(taken)) >= min(n_nonzero, 5)
    found, n_iter = (to_host(x) for x in batched_omp(*(place(x, device) for x in arrays), n_nonzero))
    np.testing.assert_array_equal(n_iter, taken)
    np.testing.assert_array_equal(np.count_nonzero(found, axis=1), taken)
    np.testing.assert_allclose(found @ D, S @ D, atol=1e-9)  # copies stand for each other


@pytest.fixture(params=["loop", "batch"])
def pursuit(request, monkeypatch):
    """With and without a compiled loop; on a GPU there is none."""
    find = compiled.find
    if request.param == "batch":
        monkeypatch.setattr(compiled, "find", lambda name, a: None if name == "omp" else find(name, a))


def test_pursuit_of_tensors_gives_tensors(rng, device, dtype, pursuit):
    D, X = unit(rng.standard_normal((40, 30))), rng.standard_normal((20, 30))
    tensors = [place(x.astype(dtype), device) for x in (D @ D.T, X @ D.T, (X * X).sum(axis=1))]
    before = tensors[1].clone()
    codes, taken = omp(*tensors, 5)
    assert codes.device == taken.device == tensors[0].device
    assert codes.dtype == torch.float64
    assert torch.equal(tensors[1], before)
    plain = [omp_plain(D, x, 5) for x in X]
    np.testing.assert_allclose(to_host(codes), plain, atol=1e-10 if dtype == np.float64 else 1e-4)
    np.testing.assert_array_equal(to_host(taken), 5)
    codes, taken = omp(tensors[0], tensors[1][:0], tensors[2][:0], 5)
    assert codes.shape == (0, 40)
    assert taken.shape == (0,)


def test_all_pursuits_are_on_the_device(rng, device, monkeypatch):
    places = []

    def watched(G, rhs, *rest):
        places.append(rhs.device.type if isinstance(rhs, torch.Tensor) else None)
        return omp(G, rhs, *rest)

    monkeypatch.setattr(ksvd, "omp", watched)
    X, labels = unit(rng.standard_normal((20, 8))), np.arange(20) % 2
    start = lcksvd.class_start(X, labels, [3, 3], 2, max_iter=4, rng=rng, device=device)
    lcksvd.solve(X, labels, start, np.ones(2), 2, max_iter=5, tol=0, device=device)
    assert places == [device] * (2 * 4 + 1 + 5)


def check_runs(there, here):
    for a, b in zip(there.state, here.state, strict=True):
        assert isinstance(a, np.ndarray)
        np.testing.assert_allclose(a, b, atol=1e-9)
    np.testing.assert_array_equal(there.history["replaced"], here.history["replaced"])
    np.testing.assert_allclose(there.history["error"], here.history["error"], rtol=1e-10)


def test_ksvd_with_codes_from_a_device_is_that_of_numpy(rng, device, pursuit):
    T = unit(rng.standard_normal((80, 12)))
    start = np.concatenate([sample_start(T, 18, rng), T[:2], -T[:2]])  # copies are replaced
    T.setflags(write=False)
    here, there = (ksvd.solve(T, start, 3, max_iter=8, tol=0, device=name) for name in (None, device))
    assert here.history["replaced"].any()
    check_runs(there, here)


def test_lcksvd_with_codes_from_a_device_is_that_of_numpy(rng, device, pursuit):
    labels = np.arange(60) % 3
    X = unit(rng.standard_normal((3, 15))[labels] + rng.standard_normal((60, 15)))
    for array in (X, labels):
        array.setflags(write=False)
    starts = [
        lcksvd.class_start(X, labels, [6, 6, 6], 3, max_iter=4, rng=np.random.default_rng(1), device=name)
        for name in (None, device)
    ]
    np.testing.assert_allclose(*starts, atol=1e-10)
    starts[0].setflags(write=False)
    scale = np.array([1.0, 2.0, 3.0])
    here, there = (
        lcksvd.solve(X, labels, starts[0], scale, 3, max_iter=8, tol=0, device=name) for name in (None, device)
    )
    check_runs(there, here)


def test_a_device_that_is_not_there_is_named():
    assert place(np.zeros(2), "cpu").dtype == torch.float64
    with pytest.raises(ValueError, match="device='nonesuch' cannot be used here"):
        ksvd.solve(np.eye(3), np.eye(3), 1, max_iter=1, tol=0, device="nonesuch")


def check_kernels(device):
    """What `test_kernels...` run, here or in a process of its own: each kernel against its plain version."""
    from ledl.solvers.compiled import triton

    rng = np.random.default_rng(0)
    for dtype, tol in [(torch.float64, 1e-11), (torch.float32, 2e-4)]:

        def draw(*shape, dtype=dtype):
            return torch.as_tensor(rng.standard_normal(shape), dtype=dtype, device=device)

        for q in (30, 700):  # in registers, and in strips
            G, S, M, D = draw(3, 7, 7), draw(3, 7, q), draw(3, 20, q), draw(3, 20, q) * 0
            G, bounds = G @ G.mT, (0, q - 12, q - 6, q)
            radii, floors = draw(3, 3).abs() + 0.5, draw(3, 3).double().abs() * 1e-12
            floors[1, 1] = 1e9  # an atom that nobody uses stays
            parts = [[M.clone(), D.clone()] for _ in range(2)]
            found = triton.update_block(G, S, *parts[0], 5, bounds, radii, floors)
            plain = update_block_plain(G, S, *parts[1], 5, bounds, radii, floors)
            torch.testing.assert_close(found, plain, rtol=tol, atol=tol)
            torch.testing.assert_close(parts[0], parts[1], rtol=tol, atol=tol)
        C, Z, L = (draw(3, 50, 110) for _ in range(3))
        epsilon, rho = draw(3, 1, 1).abs(), draw(1, 1).abs() + 0.5
        for found, plain in zip(
            triton.shrink(C, Z, L, epsilon, rho, 0.4), shrink_plain(C, Z, L, epsilon, rho, 0.4), strict=True
        ):
            torch.testing.assert_close(found, plain, rtol=tol, atol=tol)
        for positive in (False, True):
            plain = reflect_plain(C, Z, L, 1.8, epsilon, positive)
            found = triton.reflect(C.clone(), Z.clone(), L, 1.8, epsilon, positive)
            torch.testing.assert_close(found, plain, rtol=tol, atol=tol)


def test_kernels_in_the_interpreter_agree_with_the_plain_versions():
    pytest.importorskip("triton", reason="triton is not installed")
    code = "import test_tensors; test_tensors.check_kernels('cpu')"
    paths = [str(Path(__file__).parent), *sys.path]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_kernels_on_the_gpu_agree_with_the_plain_versions():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    check_kernels("cuda")


def test_loops_for_tensors_on_the_host_are_those_for_numpy():
    assert compiled.find("update_block", torch.zeros(1)) is not None
    assert compiled.find("nonesuch", torch.zeros(1)) is None
