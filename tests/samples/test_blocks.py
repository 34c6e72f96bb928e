import errno
import gc
import os
import shutil
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from helpers.problems import make_problem
from ledl.samples import InMemoryBlocks, MappedBlocks, StreamedBlocks, spans_of, upload_ahead
from ledl.solvers.ledl import solve
from ledl.solvers.start import class_start

WEIGHTS = {"lam": 2**-3, "omega": 2**-6, "epsilon": 2**-6}


@pytest.fixture
def streamed(device):
    """Blocks in host memory, for that device."""
    return lambda X, labels, block_size: StreamedBlocks(X, labels, block_size, device)


def on(device, array):
    import torch

    return torch.as_tensor(array, device=device)


def check_map_sum(blocks, X, labels, to_numpy=np.asarray):
    def step(block):
        rows = slice(block.first, block.first + len(block.X))
        assert_array_equal(to_numpy(block.X), X[rows])
        assert_array_equal(to_numpy(block.labels), labels[rows])
        Z = block.X if block.Z is None else block.Z + 1
        return block._replace(Z=Z), (len(block.X), block.X.sum(0))

    for i in range(3):
        n, total = blocks.map_sum(step)
        assert n == len(X)
        assert_array_equal(to_numpy(total), X.sum(axis=0))
        assert_array_equal(blocks.codes(), X + i)


@pytest.mark.parametrize(("block_size", "threads"), [(None, 1), (1, 3), (3, 1), (3, 3), (7, 1), (100, 3)])
def test_map_sum_sums_and_keeps_what_a_step_returns(block_size, threads):
    X, labels = np.arange(14.0).reshape(7, 2), np.arange(7)
    check_map_sum(InMemoryBlocks(X, labels, block_size, threads), X, labels)


@pytest.mark.parametrize(("block_size", "threads"), [(1, 3), (2, 1), (3, 3), (7, 1), (100, 3)])
def test_mapped_blocks_do_the_same(block_size, threads):
    X, labels = np.arange(30.0).reshape(15, 2), np.arange(15) % 4
    check_map_sum(MappedBlocks(X, labels, spans_of(len(X), block_size), threads), X, labels)


def test_scratch_files_have_no_name_and_last_as_long_as_the_codes(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocks = MappedBlocks(np.ones((6, 2)), np.zeros(6, int), spans_of(6, 2))
    blocks.map_sum(lambda block: (block._replace(Z=block.X, L=block.X), (1,)))
    assert not list(tmp_path.iterdir())
    codes = blocks.codes()
    assert isinstance(codes, np.memmap)
    del blocks
    gc.collect()
    assert_array_equal(codes, np.ones((6, 2)))


def test_too_little_scratch_space_is_reported(monkeypatch):
    blocks = MappedBlocks(np.ones((6, 2)), np.zeros(6, int), spans_of(6, 2))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(OSError, match="TMPDIR"):
        blocks.map_sum(lambda block: (block._replace(Z=block.X), (1,)))


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve space")
def test_space_that_others_took_meanwhile_is_reported(monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"need 0.0 MB of scratch space, but .* Set .* TMPDIR"):
        MappedBlocks(np.ones((6, 2)), np.zeros(6, int), [(0, 6)]).map_sum(lambda b: (b._replace(Z=b.X), (1,)))


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 7, 100])
def test_streamed_blocks_do_the_same(block_size, streamed):
    X, labels = np.arange(14.0).reshape(7, 2), np.arange(7)
    check_map_sum(streamed(X, labels, block_size), X, labels, lambda x: x.cpu().numpy())
    check_map_sum(streamed(np.asfortranarray(X), labels, block_size), X, labels, lambda x: x.cpu().numpy())


@pytest.mark.parametrize(
    ("n_atoms", "block_size"),
    [(60, 1), (60, 15), (18, 7), (18, 100)],  # in the targets' or the atoms' space
)
def test_a_fit_from_streamed_blocks_is_the_one_in_memory(n_atoms, block_size, streamed, device):
    problem = make_problem([5] * 6, 80, n_atoms)  # in the order of classes: no block has all of them
    start = problem.start._replace(M=on(device, problem.start.M))
    blocks = [make(problem.coordinates, problem.labels, block_size) for make in (InMemoryBlocks, streamed)]
    plain, found = (
        solve(b, s, code_scale=problem.code_scale, max_iter=12, **WEIGHTS)
        for b, s in zip(blocks, (problem.start, start), strict=True)
    )
    assert_allclose(found.state.M.cpu(), plain.state.M, atol=1e-11)
    assert_allclose(blocks[1].codes(), blocks[0].codes(), atol=1e-11)
    for name, values in plain.history.items():
        assert_allclose(found.history[name], values, rtol=1e-9, atol=1e-12)


def test_streamed_blocks_of_many_samples(streamed, device, rng):
    """On a GPU, copies are long enough for those of several blocks to overlap, if they were not in order."""
    n = 40_000 if device == "cuda" else 2_000
    X, labels = rng.standard_normal((n, 64)), rng.integers(9, size=n)
    M = make_problem([5] * 9, 64, 120).start
    start = M._replace(M=on(device, np.concatenate([X[:120] / 8, M.W, M.A], axis=1)))
    tensors = on(device, X), on(device, labels)
    for block_size in (n // 20, 3 * n // 8):
        blocks = InMemoryBlocks(*tensors, block_size), streamed(X, labels, block_size)
        runs = [solve(b, start, code_scale=np.ones(9), max_iter=6, **WEIGHTS) for b in blocks]
        assert_allclose(runs[1].state.M.cpu(), runs[0].state.M.cpu(), atol=1e-12)
        assert_allclose(blocks[1].codes(), blocks[0].codes().cpu(), atol=1e-12)


def test_streamed_blocks_of_a_memory_map_serve_one_fit_after_another(streamed, device, tmp_path):
    problem = make_problem([9, 4, 6], 40, 37, shuffled=True)
    np.save(tmp_path / "X.npy", problem.coordinates)
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    blocks = streamed(X, problem.labels, 4)
    members = [np.flatnonzero(problem.labels == j) for j in range(3)]
    for n_atoms in (37, 37, 20):
        atom_classes = np.resize(np.arange(3), n_atoms)
        atom_classes.sort()
        plain, start = (
            class_start(b, members, atom_classes, np.random.default_rng(0)) for b in (problem.blocks(4), blocks)
        )
        assert_allclose(start.M.cpu(), plain.M, atol=1e-14)
        options = {"code_scale": np.ones(3), "max_iter": 5, **WEIGHTS}
        expected = solve(problem.blocks(4), plain, **options).state.M
        assert_allclose(solve(blocks, start, **options).state.M.cpu(), expected, atol=1e-11)
        assert blocks.codes().shape == (19, n_atoms)


def test_streamed_blocks_survive_an_interrupted_pass(streamed):
    X, labels = np.arange(14.0).reshape(7, 2), np.arange(7)
    blocks = streamed(X, labels, 2)

    def interrupted(block):
        if block.first == 4:
            raise KeyboardInterrupt
        return block, ()

    with pytest.raises(KeyboardInterrupt):
        blocks.map_sum(interrupted)
    check_map_sum(blocks, X, labels, lambda x: x.cpu().numpy())


def test_only_changed_codes_are_copied_to_the_host(streamed, monkeypatch):
    X, labels = np.arange(14.0).reshape(7, 2), np.arange(7)
    blocks, copied = streamed(X, labels, 3), []
    fetch = blocks._copier.fetch
    monkeypatch.setattr(blocks._copier, "fetch", lambda t, out: copied.append(len(t)) or fetch(t, out))
    blocks.map_sum(lambda block: (block, (0,)))
    blocks.map_sum(lambda block: (block._replace(Z=block.X + 1, L=block.X + 2), (0,)))
    blocks.map_sum(lambda block: (block._replace(L=block.L + block.Z), (0,)))
    blocks.map_sum(lambda block: (block, (0,)))
    assert copied == [0] * 3 + [2] * 3 + [1] * 3 + [0] * 3
    (total,) = blocks.map_sum(lambda block: (block, (block.L.sum(0),)))
    assert_array_equal(total.cpu(), (2 * X + 3).sum(axis=0))


class LateFetch:
    """Copies to the host that are made when somebody waits for them, and no sooner: the slowest device."""

    def __init__(self):
        self.pending, self.most = [], 0

    def __call__(self, tensors, out):
        event = LateEvent(self)
        self.pending.append((event, [(t.clone(), place) for t, place in zip(tensors, out, strict=True)]))
        self.most = max(self.most, len(self.pending))
        return event


class LateEvent:
    def __init__(self, fetch):
        self.fetch = fetch

    def synchronize(self):
        while any(event is self for event, _ in self.fetch.pending):
            for tensor, place in self.fetch.pending.pop(0)[1]:
                place.copy_(tensor)


@pytest.mark.torch
@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 7])
def test_streamed_blocks_wait_for_what_they_need_however_slow_the_device(block_size, monkeypatch):
    X, labels = np.arange(14.0).reshape(7, 2), np.arange(7)
    blocks, fetch = StreamedBlocks(X, labels, block_size, "cpu"), LateFetch()
    monkeypatch.setattr(blocks._copier, "fetch", fetch)

    def step(block):
        return block._replace(Z=block.X if block.Z is None else block.Z + 1), (0,)

    for _ in range(5):
        blocks.map_sum(step)
    assert_array_equal(blocks.codes(), X + 4)
    assert fetch.most <= 3  # so many blocks' codes are on the device


def test_streamed_blocks_refuse_a_batch(streamed):
    with pytest.raises(ValueError, match="one problem"):
        streamed(np.zeros((2, 3, 4)), np.zeros(3, dtype=int), 2)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 17])
def test_chunks_are_uploaded_in_their_order(n, device, tmp_path):
    np.save(tmp_path / "X.npy", np.arange(5000.0 * max(n, 1)).reshape(-1, 50))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    chunks = [X[i : i + 100] for i in range(0, 100 * n, 100)]
    seen = []
    for chunk, tensor in zip(chunks, upload_ahead(chunks, device), strict=True):
        assert tensor.device.type == device
        seen.append((tensor * 2, chunk))
    for tensor, chunk in seen:
        assert_array_equal(tensor.cpu(), 2 * chunk)
