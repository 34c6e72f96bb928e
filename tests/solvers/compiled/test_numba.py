"""Compiled loops for NumPy arrays against the plain versions, and the choice among loops.

The sweep, and the code step of LEDL, are compared in test_atoms.py and test_ledl.py.
"""

import errno
import os

import array_api_strict
import numba
import numpy as np
import pytest

from helpers.plain_codes import active_set_plain
from helpers.problems import unit
from ledl.solvers import compiled, ksvd
from ledl.solvers.compiled import numba as loops
from ledl.solvers.lasso import lasso, reflect_plain
from ledl.solvers.omp import DEPENDENT
from ledl.solvers.start import sample_start


def test_there_are_loops_for_numpy_and_not_for_any_library():
    assert compiled.find("update_block", np.zeros(1)) is not None
    assert compiled.find("update_block", array_api_strict.zeros(1)) is None
    assert compiled.find("nonesuch", np.zeros(1)) is None


def twice(x):
    return 2 * x


def test_damaged_code_on_disk_is_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert loops.compiled()(twice)(1.5) == 3
    for pattern in ("*.nbi", "*.nbc"):
        for file in (files := list(tmp_path.rglob(pattern))):
            file.write_bytes(b"")
        assert files
        again = loops.compiled()(twice)
        assert again(1.5) == 3
        assert not again.stats.cache_hits
        whole = loops.compiled()(twice)
        assert whole(1.5) == 3
        assert whole.stats.cache_hits


def test_a_full_disk_costs_only_time(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    assert loops.compiled()(twice)(1.5) == 3


def test_loops_need_no_folder_that_can_be_written_to(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CompileResultCacheImpl._locator_classes", [])
    assert loops.compiled()(twice)(1.5) == 3


@pytest.mark.torch
def test_loops_for_tensors_on_the_host_are_those_for_numpy():
    import torch

    assert compiled.find("update_block", torch.zeros(1)) is not None
    assert compiled.find("nonesuch", torch.zeros(1)) is None


@pytest.mark.parametrize(
    ("problems", "positive", "dtype"),
    [((), False, np.float64), ((2, 3), True, np.float64), ((2, 3), False, np.float32)],
)
def test_compiled_reflection_is_the_plain_one(problems, positive, dtype, rng):
    arrays = [rng.standard_normal((*problems, 7, 11)).astype(dtype) for _ in range(3)]
    threshold = rng.random((*problems, 1, 1)).astype(dtype)
    plain = reflect_plain(*arrays, 1.7, threshold, positive)
    found = compiled.find("reflect", arrays[0])(*arrays, 1.7, threshold, positive)
    for ours, expected in zip(found, plain, strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, expected, atol=1e-6 if dtype == np.float32 else 1e-14)


@pytest.fixture(params=["faces", "random"])
def atoms_and_samples(request, rng):
    if request.param == "faces":  # positive atoms with cosines near 1
        D = unit(1 + 0.1 * rng.standard_normal((60, 100)))
    else:
        D = unit(rng.standard_normal((40, 20)))
    mixed = rng.standard_normal((12, len(D))) * (rng.random((12, len(D))) < 0.2)
    return D, unit(mixed @ D + 0.1 * rng.standard_normal((12, D.shape[1])))


@pytest.mark.parametrize("positive", [False, True])
def test_active_set_is_the_plain_one(atoms_and_samples, positive):
    D, X = atoms_and_samples
    G = D @ D.T
    S, _ = lasso(G, X @ D.T, np.sum(X**2, axis=1), 0.005, 1e-12, positive=positive)
    for s, x in zip(S, X, strict=True):
        plain, gap = active_set_plain(G, x @ D.T, x @ x, 0.005, 1e-12, 1000, positive)
        np.testing.assert_allclose(s, plain, atol=1e-9)
        assert gap <= 1e-12


def test_active_set_takes_as_many_rounds_as_the_plain_one(atoms_and_samples):
    D, X = atoms_and_samples
    G = D @ D.T
    _, info = lasso(G, X @ D.T, np.sum(X**2, axis=1), 0.005, 1e-12)
    for rounds, x in zip(info.n_iter, X, strict=True):
        b, square = x @ D.T, x @ x
        assert active_set_plain(G, b, square, 0.005, 1e-12, rounds, False)[1] <= 1e-12 * square / 2
        assert active_set_plain(G, b, square, 0.005, 1e-12, rounds - 1, False)[1] > 1e-12 * square / 2


@pytest.mark.parametrize("name", ["keep_better_codes", "update_used_atoms"])
def test_loops_of_ksvd_are_the_plain_ones(name, rng, monkeypatch):
    T = rng.standard_normal((60, 12)) @ rng.standard_normal((12, 12))
    start = sample_start(T, 20, rng)
    run = ksvd.solve(T, start, 3, max_iter=5, tol=0)
    find = compiled.find
    monkeypatch.setattr(compiled, "find", lambda other, a: None if other == name else find(other, a))
    plain = ksvd.solve(T, start, 3, max_iter=5, tol=0)
    for a, b in zip(run.state, plain.state, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10 * np.abs(T).max())


def test_omp_ends_at_the_same_residual_as_the_batched_version():
    assert DEPENDENT == loops.DEPENDENT
