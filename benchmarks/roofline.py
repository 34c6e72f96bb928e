"""One outer iteration of LEDL on a GPU, against what the card's speed and memory allow.

    python benchmarks/roofline.py measure JSON      (a GPU and torch; about a minute)
    python benchmarks/roofline.py figure JSON PNG   (matplotlib alone)

Four sweeps in float32: over samples n, features d, atoms K, and over problems of Extended YaleB's size solved
at once. For each shape `work` counts the floating-point operations and the bytes of an iteration as the code
makes it; flops / bytes is its arithmetic intensity, and no iteration takes less than

    max(flops / flop rate, bytes / byte rate)

with the rates that a large product and a large copy reach on the same card. What is missing from the bound: the
start of kernels, and the sweep over the atoms of a block, which is sequential.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

# As in `ledl.solvers.atoms`, which cannot be asked without the package.
ATOM_BLOCK = 48
SAMPLE_BLOCK = 2**16
FLOAT = 4

N_ITER, N_WARM = 8, 2  # fewer than ten iterations: the tenth has one product more
SECONDS_A_SHAPE, SECONDS_IN_ALL = 5.0, 80.0


class Shape(NamedTuple):
    n: int
    d: int
    c: int
    K: int
    batch: int = 1

    @property
    def q(self):
        """Columns of the targets T = [X, H, Q]."""
        return self.d + 2 * self.c


LARGE, MEDIUM = Shape(1_000_000, 2048, 1000, 2000), Shape(100_000, 2048, 100, 2000)
YALEB = Shape(190, 190, 38, 380)

# For each sweep: what varies, its values, the shape of the rest, and how the figure calls them.
SWEEPS = {
    "n": ([10**3, 3 * 10**3, 10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6], LARGE, "samples n"),
    "d": ([128, 256, 512, 1024, 2048, 4096, 8192], MEDIUM, "features d"),
    "K": ([250, 500, 1000, 2000, 4000, 8000], MEDIUM, "atoms K"),
    "batch": ([1, 4, 16, 64, 256, 600, 1200], YALEB, "problems at once"),
}


def work(shape):
    """Flops and bytes of one outer iteration: the code step and its statistics, and the sweep over atoms."""
    blocks = math.ceil(shape.n / SAMPLE_BLOCK)
    in_target_space = shape.q < shape.K
    parts = [factorisation(shape), target_space(shape) if in_target_space else atom_space(shape, blocks)]
    factors = in_target_space and (factors_are_cheaper(shape) if blocks == 1 else shape.n < shape.K)
    parts.append(sweep_with_factors(shape) if factors else sweep_with_sums(shape, blocks))
    flops, numbers = (float(sum(part)) for part in zip(*parts, strict=True))
    return shape.batch * flops, shape.batch * numbers * FLOAT


def factors_are_cheaper(shape):
    """Return the choice of `ledl.solvers.atoms`."""
    n, K, q = shape.n, shape.K, shape.q
    return 5 * n * (4 * q + ATOM_BLOCK) < 4 * (n * (K + 2 * q) + K * q)


def factorisation(shape):
    """The Gram matrix in the smaller space, its Cholesky factor, the inverse of that, and of the matrix."""
    small, large = sorted((shape.K, shape.q))
    return 2 * small**2 * large + (1 / 3 + 1 + 2) * small**3, small * large + 8 * small**2


def atom_space(shape, blocks):
    """K <= q: C = (X B' + labels + rho V) G^-1, then C'C, C'X and sums over classes.

    Passes over n x K: 5 for V = Z - L / rho; 10 for the right side (a product, rows of a table, two sums and
    rho V); 2 for the product with G^-1; 5 for `shrink`; 3 for sums over classes; one each for C'C and C'X.
    Over n x d: one each for X B' and C'X, and 5 for |X|^2 in float64; over n x 2c: 8 for the labels' norms.
    Each block of samples makes S = P - G M and its norms, 23 passes over K x q, and 5 over K x K.
    """
    n, d, c, K, q = *shape[:4], shape.q
    flops = 4 * n * K * d + 4 * n * K**2 + blocks * (2 * K**2 * q + 4 * K * c**2)
    return flops, n * (27 * K + 7 * d + 8 * 2 * c) + blocks * (23 * K * q + 5 * K**2)


def target_space(shape):
    """q < K: F = (T - V M) G^-1 and C = V + F M'.

    Passes over n x K: 5 for V, 1 and 2 for the two products, 5 for `shrink`. Over n x q: 3 for T, 2 and 2 for
    the right side and the product with G^-1, 1 for F M', 2 for rho F, 9 for its norms in float64.
    """
    n, K, q = shape.n, shape.K, shape.q
    return 4 * n * K * q + 2 * n * q**2, n * (13 * K + 19 * q)


def sweep_with_sums(shape, blocks):
    """Sums G = C'C and S = C'E of all blocks of samples; products G D between blocks of atoms.

    In the space of the atoms `atom_space` has counted C'C and C'E already. Passes over K x q: 3 for each block
    of samples to add up, 15 for S, M and D in the sweep, and D once more, half of it in the mean, for each
    block of atoms.
    """
    n, K, q = shape.n, shape.K, shape.q
    flops, numbers = K**2 * q + K * ATOM_BLOCK * q, K * q * (3 * blocks + 15 + K / ATOM_BLOCK / 2) + K**2 / 2
    if q < K:
        flops, numbers = flops + 2 * n * K * (K + q), numbers + n * (2 * K + q) + 4 * blocks * K**2
    return flops, numbers


def sweep_with_factors(shape):
    """Few samples or columns: for each block of atoms its C'E and C'C, and E = T - C M kept up to date.

    Passes over n x K: one for each of three products; over n x q: 3 for each block of atoms; over K x q: 15.
    """
    n, K, q = shape.n, shape.K, shape.q
    flops = 4 * n * K * q + 2 * n * K * ATOM_BLOCK + K * ATOM_BLOCK * q
    return flops, 3 * n * K + 3 * n * q * math.ceil(K / ATOM_BLOCK) + 15 * K * q


def bound(shape, rates):
    flops, moved = work(shape)
    return max(flops / rates["flop_rate"], moved / rates["byte_rate"])


# Measuring: from here on torch is needed, up to the figure.


def seconds_of(work):
    import torch

    torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def peak_rates(n=12288, size=2**32):
    """Flop/s of float32 products (without TF32), and bytes a second read and written by a copy."""
    import torch

    a = torch.randn(n, n, device="cuda")
    source, target = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    flop_rate = 2 * n**3 / min(seconds_of(lambda: a @ a) for _ in range(5))
    byte_rate = 2 * size / min(seconds_of(lambda: target.copy_(source)) for _ in range(5))
    return {"flop_rate": flop_rate, "byte_rate": byte_rate}


def fits_in_memory(shape):
    """Samples, codes and multipliers; what a block needs beside them, some of it in float64; atoms."""
    import torch

    n, d, _, K, batch = shape
    held, block = n * (d + 2 * K), min(n, SAMPLE_BLOCK) * (8 * K + 6 * shape.q)
    needed = FLOAT * batch * (held + block + 12 * K * (K + shape.q))
    return needed < 0.9 * torch.cuda.mem_get_info()[0]


def random_problem(shape):
    import torch

    from ledl.solvers.ledl import Atoms

    generator = torch.Generator("cuda").manual_seed(0)

    def rows(count, width):
        problems = (shape.batch,) if shape.batch > 1 else ()
        drawn = torch.empty((*problems, count, width), device="cuda").normal_(generator=generator)
        return drawn.div_(torch.linalg.vector_norm(drawn, dim=-1, keepdim=True))

    labels = torch.randint(shape.c, (shape.n,), device="cuda", generator=generator)
    atoms = torch.cat([rows(shape.K, width) for width in (shape.d, shape.c, shape.c)], dim=-1)
    return rows(shape.n, shape.d), labels, Atoms(atoms, shape.c)


def measure_shape(shape):
    """Median seconds of an iteration, those that compile left out."""
    import torch

    from ledl.samples import InMemoryBlocks
    from ledl.solvers.ledl import solve

    X, labels, start = random_problem(shape)
    torch.cuda.synchronize()
    times = [time.perf_counter()]

    def watch(iteration, record, atoms):
        torch.cuda.synchronize()
        times.append(time.perf_counter())
        return iteration > N_WARM and times[-1] - times[0] > SECONDS_A_SHAPE

    blocks = InMemoryBlocks(X, labels, SAMPLE_BLOCK)
    weights = {"lam": 1.0, "omega": 2.0**-11, "epsilon": 2.0**-4, "code_scale": np.ones(shape.c)}
    solve(blocks, start, max_iter=N_ITER, callback=watch, **weights)
    return float(np.median(np.diff(times)[N_WARM:]))


def measure(path):
    import torch

    deadline = time.perf_counter() + SECONDS_IN_ALL
    rates = peak_rates()
    print(f"{torch.cuda.get_device_name()}: {rates['flop_rate'] / 1e12:.1f} TFlop/s in products, "
          f"{rates['byte_rate'] / 1e12:.2f} TB/s in copies", flush=True)  # fmt: skip
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, **rates, "sweeps": {}}
    for name, (values, rest, _) in SWEEPS.items():
        points = found["sweeps"][name] = []
        for value in values:
            shape = rest._replace(**{name: value})
            torch.cuda.empty_cache()
            if not fits_in_memory(shape) or time.perf_counter() > deadline:
                print(f"{name} = {value}: left out, for want of memory or time", flush=True)
                continue
            points.append(point := describe(shape, measure_shape(shape)))
            share = bound(shape, rates) / point["seconds"]
            print(f"{name} = {value}: {1e3 * point['seconds']:.2f} ms, the bound being {share:.0%} of it; "
                  f"{point['flop_per_s'] / 1e12:.2f} TFlop/s at {point['intensity']:.1f} flop a byte",
                  flush=True)  # fmt: skip
        Path(path).write_text(json.dumps(found, indent=1))


def describe(shape, seconds):
    flops, moved = work(shape)
    rates = {"intensity": flops / moved, "flop_per_s": flops / seconds, "byte_per_s": moved / seconds}
    return {**shape._asdict(), "seconds": seconds, "flops": flops, "bytes": moved, **rates}


# The figure.


def draw(source, target):
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = json.loads(Path(source).read_text())
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.5), layout="constrained")
    for ax, name in zip(axes.flat, SWEEPS, strict=True):
        draw_sweep(ax, name, found["sweeps"].get(name, []), found)
    axes[0, 0].legend(frameon=False, loc="upper left")
    title = (
        f"One outer iteration, float32, {found['device']}: {found['flop_rate'] / 1e12:.1f} TFlop/s "
        f"in products, {found['byte_rate'] / 1e12:.2f} TB/s in copies"
    )
    figure.suptitle(title, fontsize=10)
    figure.savefig(target, dpi=150)


def draw_sweep(ax, name, points, rates):
    _, rest, label = SWEEPS[name]
    if points:
        values = [point[name] for point in points]
        grid = np.unique(np.geomspace(min(values), max(values), 200).astype(int))
        limits = [bound(rest._replace(**{name: int(value)}), rates) for value in grid]
        ax.plot(grid, limits, color="0.4", label="roofline bound")
        ax.plot(values, [point["seconds"] for point in points], "o", color="C0", label="measured")
        ax.set_xscale("log")
        ax.set_xticks(values, [f"{value:,}" for value in values], fontsize=8)
        ax.set_xticks([], minor=True)
    fixed = {"n": rest.n, "d": rest.d, "c": rest.c, "K": rest.K}
    ax.set_title(", ".join(f"{key} = {value:,}" for key, value in fixed.items() if key != name), fontsize=9)
    ax.set(yscale="log", xlabel=label, ylabel="seconds")
    ax.grid(which="major", color="0.9")
    ax.spines[["top", "right"]].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("measure").add_argument("json")
    figure = commands.add_parser("figure")
    figure.add_argument("json")
    figure.add_argument("png")
    chosen = parser.parse_args()
    if chosen.command == "measure":
        measure(chosen.json)
    else:
        draw(chosen.json, chosen.png)


if __name__ == "__main__":
    main()
