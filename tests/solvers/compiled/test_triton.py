"""GPU kernels against the plain versions, in Triton's interpreter; with a GPU: ``pytest -m gpu``."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ledl.solvers.atoms import update_block_plain
from ledl.solvers.lasso import reflect_plain
from ledl.solvers.ledl import shrink_plain


def check_kernels(device):
    """Compare each kernel with its plain version, here or in a separate process."""
    import torch

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


@pytest.mark.torch
def test_kernels_in_the_interpreter_agree_with_the_plain_versions():
    pytest.importorskip("triton", reason="triton is not installed")
    code = "import test_triton; test_triton.check_kernels('cpu')"
    paths = [str(Path(__file__).parent), *sys.path]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.torch
@pytest.mark.gpu
def test_kernels_on_the_gpu_agree_with_the_plain_versions():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    check_kernels("cuda")
