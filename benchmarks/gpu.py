"""On a GPU: many small fits at once, their codes, one large fit, codes over one dictionary.

    python benchmarks/gpu.py fits|codes|search|large|streamed|estimator|throughput|precision [--block-size N]

`fits` and `codes`: Extended YaleB (LEDL_DATA), five samples a class, 75 settings x 8 splits, 380 atoms, 30
iterations, epsilon from 2^-10 to 2^-6; then the codes of all test samples of each fit, to a gap of 1e-3.
`large`: iterations at n = 1,000,000, d = 2048, c = 1000, K = 2000. `streamed`: the same with samples and codes
in host memory (36 GB of it), which pass through the card in blocks. These call the solvers; `search` has the
work of `fits` and `codes` done by BatchedSearchCV, `estimator` that of `large` by LEDLClassifier. `throughput`:
codes to a gap of 1e-4 over a random dictionary of 2000 atoms in 1024 dimensions, beside the host's processors
and SPAMS on them. `precision`: training with TF32 products (yaleb, ucmerced, usps and `large`). All in float32
unless said; the first run of each compiles.
"""

import argparse
import os
import time

import numpy as np
import torch

from ledl import BatchedSearchCV, LEDLClassifier, sparse_encode
from ledl.arrays import float32_products, to_host
from ledl.datasets import few_shot_splits, load
from ledl.samples import InMemoryBlocks, StreamedBlocks
from ledl.solvers.lasso import duality_gap, lasso
from ledl.solvers.ledl import Atoms, solve
from ledl.solvers.start import class_start
from ledl.subspace import find_subspace

N_SETTINGS, N_SPLITS, N_CLASSES, ATOMS_A_CLASS = 75, 8, 38, 10
SCALE = np.sqrt([ATOMS_A_CLASS] * N_CLASSES)


def seconds_of(work):
    """What it gives, and how long it takes until the device has done it."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return result, time.perf_counter() - started


def peak_memory():
    return torch.cuda.max_memory_allocated() / 2**30


def splits_of(dtype, n_splits=N_SPLITS):
    """Coordinates and starts of the splits, the labels, and the test samples in these coordinates."""
    data = load("yaleb")
    X = data.data.astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    coordinates, starts, tests, truths = [], [], [], []
    atom_classes = np.repeat(np.arange(N_CLASSES), ATOMS_A_CLASS)
    for seed, (train, test) in enumerate(few_shot_splits(data.target, seeds=range(n_splits))):
        space, R = find_subspace(X[train].copy())
        labels = data.target[train]
        members = [np.flatnonzero(labels == j) for j in range(N_CLASSES)]
        start = class_start(InMemoryBlocks(R, labels), members, atom_classes, np.random.default_rng(seed))
        coordinates.append(R)
        starts.append(start.M)
        tests.append(space.reduce(X[test]))
        truths.append(data.target[test])
    arrays = [np.stack(x).astype(dtype) for x in (coordinates, starts, tests)]
    return *arrays, labels, np.stack(truths)


def weights(n_settings=N_SETTINGS):
    rng = np.random.default_rng(0)
    lam = 2.0 ** rng.uniform(-6, 2, n_settings)
    omega = 2.0 ** rng.uniform(-14, -8, n_settings)
    epsilon = 2.0 ** np.linspace(-10, -6, n_settings)
    return [w[:, None, None, None] for w in (lam, omega, epsilon)]


def fit(X, start, labels, lam, omega, epsilon, as_array):
    X, start, labels = (as_array(x) for x in (X, start, labels))
    blocks, start = InMemoryBlocks(X, labels), Atoms(start, N_CLASSES)
    return solve(blocks, start, code_scale=SCALE, lam=lam, omega=omega, epsilon=epsilon, max_iter=30).state


def to_gpu(array):
    return torch.as_tensor(array, device="cuda")


def measure_fits():
    X, start, _, labels, _ = splits_of(np.float64, 2)
    plain, found = (fit(X, start, labels, *weights(3), place).M for place in (np.asarray, to_gpu))
    print(f"float64: atoms differ from NumPy's by {np.abs(to_host(found) - plain).max():.1e}")
    X, start, _, labels, _ = splits_of(np.float32)
    for _ in range(3):
        _, seconds = seconds_of(lambda: fit(X, start, labels, *weights(), to_gpu))
        print(f"{N_SETTINGS * N_SPLITS} fits: {seconds:.2f} s", flush=True)


def measure_codes():
    X, start, Y, labels, truth = splits_of(np.float32)
    lam, omega, epsilon = weights()
    atoms = fit(X, start, labels, lam, omega, epsilon, to_gpu)
    Y, truth = to_gpu(Y), to_gpu(truth)
    alpha = to_gpu(epsilon).float().expand(-1, N_SPLITS, 1, 1)

    def work():
        G, rhs = atoms.B @ atoms.B.mT, Y @ atoms.B.mT
        sq_norms = torch.ones(rhs.shape[:-1], device="cuda")
        codes, info = lasso(G, rhs, sq_norms, alpha, 1e-3, solver="admm", max_iter=2000)
        return codes, info.n_iter, (codes @ atoms.W).argmax(-1)

    for _ in range(3):
        (codes, n_iter, found), seconds = seconds_of(work)
        steps = f"iterations {n_iter.median().item()} in the median, {n_iter.max().item()} at most"
        print(f"{n_iter.numel():,} codes: {seconds:.2f} s; {steps}", flush=True)
    accuracy = (found == truth).float().mean(-1).mean(-1)
    print(f"accuracy of the settings: {accuracy.min().item():.3f} to {accuracy.max().item():.3f}")
    worst = 0.0
    for i in range(N_SETTINGS):  # in float64, a setting at a time
        S, D = codes[i].double(), atoms.B[i].double()
        ones = torch.ones(S.shape[:-1], device="cuda", dtype=torch.float64)
        gap = duality_gap(S, S @ (D @ D.mT), Y.double() @ D.mT, ones, alpha[i, ..., 0].double(), False)
        worst = max(worst, 2 * gap.max().item())
    print(f"worst gap, in float64: {worst:.2e}; peak memory {peak_memory():.0f} GiB")


def matrix_rate(n=16384):
    """Flop/s of float32 products on this card."""
    a = torch.randn(n, n, device="cuda")
    return max(2 * n**3 / seconds_of(lambda: a @ a)[1] for _ in range(5))


def large_problem(n, d, c, K):
    """Random samples near a random centre of their class, and atoms at samples."""
    generator = torch.Generator("cuda").manual_seed(0)
    labels = torch.randint(c, (n,), device="cuda", generator=generator)
    centres = torch.randn(c, d, device="cuda", generator=generator)
    X = torch.empty(n, d, device="cuda")
    for i in range(0, n, 2**16):
        rows = centres[labels[i : i + 2**16]]
        noise = torch.randn(rows.shape, device="cuda", generator=generator)
        X[i : i + 2**16] = torch.nn.functional.normalize(rows + noise)
    atom_classes = torch.arange(K, device="cuda") % c
    ordered, order = torch.sort(labels, stable=True)
    own = torch.eye(c, device="cuda")[atom_classes]
    start = torch.cat([X[order[torch.searchsorted(ordered, atom_classes)]], own, own], dim=1)
    return X, labels, Atoms(start, c)


def time_iterations(blocks, start, max_iter):
    """Seconds of every iteration, and what `solve` gives."""
    torch.cuda.reset_peak_memory_stats()
    times = [time.perf_counter()]

    def watch(iteration, record, atoms):
        torch.cuda.synchronize()
        times.append(time.perf_counter())
        return False

    K, c = len(start.M), start.n_classes
    weights = {"lam": 1.0, "omega": 2.0**-11, "epsilon": 2.0**-4}
    scale = np.sqrt([K // c] * c)
    run = solve(blocks, start, code_scale=scale, max_iter=max_iter, callback=watch, **weights)
    return np.diff(times), run


def measure_large(n=1_000_000, d=2048, c=1000, K=2000, max_iter=30, block_size=2**16):
    rate = matrix_rate()
    X, labels, start = large_problem(n, d, c, K)
    seconds, _ = time_iterations(InMemoryBlocks(X, labels, block_size), start, max_iter)
    flops, ordinary = 2.0 * n * K * (2 * K + 2 * d), np.median(seconds)
    print(f"float32 products: {rate / 1e12:.1f} TFlop/s; an iteration: {ordinary:.2f} s in the median, "
          f"{flops / ordinary / rate:.0%} of that; {max_iter} iterations: {seconds.sum():.1f} s; peak memory "
          f"{peak_memory():.0f} GiB")  # fmt: skip


def copy_rates(size=2**31):
    """Bytes a second from page-locked memory to the card, back, and both at once (each way)."""
    host = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    card = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2)]
    other = torch.cuda.Stream()

    def up():
        card[0].copy_(host[0], non_blocking=True)

    def down():
        with torch.cuda.stream(other):
            host[1].copy_(card[1], non_blocking=True)

    def both():
        up()
        down()

    return [size / min(seconds_of(work)[1] for _ in range(3)) for work in (up, down, both)]


def measure_streamed(n=1_000_000, d=2048, c=1000, K=2000, max_iter=9, block_size=2**16):
    up, down, both = copy_rates()
    print(
        f"page-locked copies: {up / 1e9:.1f} GB/s up, {down / 1e9:.1f} down, {both / 1e9:.1f} each way at once"
    )
    X, labels, start = large_problem(n, d, c, K)
    seconds, expected = time_iterations(InMemoryBlocks(X, labels, block_size), start, max_iter)
    print(f"in memory: {np.median(seconds):.3f} s an iteration; {peak_memory():.1f} GiB", flush=True)
    host = torch.empty(X.shape, pin_memory=True).copy_(X)
    labels = to_host(labels)
    del X  # the blocks are gone already
    torch.cuda.empty_cache()
    sent, fetched = 4.0 * n * (d + 2 * K) + 8.0 * n, 4.0 * n * 2 * K
    print(f"an iteration sends {sent / 1e9:.1f} GB and fetches {fetched / 1e9:.1f} GB: at least "
          f"{max(sent / up, fetched / down, (sent + fetched) / (2 * both)):.3f} s of copies")  # fmt: skip
    for name, samples in {"page-locked": host.numpy(), "ordinary": host.numpy().copy()}.items():
        blocks = StreamedBlocks(samples, labels, block_size, "cuda")
        seconds, found = time_iterations(blocks, start, max_iter)
        ordinary = np.median(seconds)
        difference = np.abs(to_host(found.state.M - expected.state.M)).max()
        print(f"streamed, X in {name} memory, blocks of {block_size}: {ordinary:.3f} s an iteration (the first "
              f"{seconds[0]:.1f} s), {sent / ordinary / 1e9:.1f} GB/s up, {fetched / ordinary / 1e9:.1f} down; "
              f"{peak_memory():.1f} GiB; atoms differ from those in memory by {difference:.1e}",
              flush=True)  # fmt: skip
        del blocks


def measure_throughput(n=200_000, d=1024, K=2000, n_host=20_000, n_spams=2_000):
    """On the card, on the host's processors, and by SPAMS there: codes to a gap of 1e-4, float32 data."""
    rng = np.random.default_rng(0)
    D, X = (rng.standard_normal((m, d), dtype=np.float32) for m in (K, n))
    D, X = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (D, X))
    placed = to_gpu(D), to_gpu(X)
    sparse_encode(*reversed(placed), alpha=0.1, tol=1e-4)
    sparse_encode(X[:512], D, alpha=0.1, tol=1e-4, n_jobs=-1)
    for alpha in (0.1, 0.08, 0.07, 0.06):
        (codes, info), seconds = seconds_of(
            lambda alpha=alpha: sparse_encode(*reversed(placed), alpha=alpha, tol=1e-4, return_info=True)
        )
        n_nonzero, worst = info.n_nonzero.mean(), 2 * info.gap.max()
        _, streamed = seconds_of(lambda alpha=alpha: sparse_encode(X, D, alpha=alpha, tol=1e-4, device="cuda"))
        _, host = seconds_of(lambda alpha=alpha: sparse_encode(X[:n_host], D, alpha=alpha, tol=1e-4, n_jobs=-1))
        print(f"alpha {alpha}: {n_nonzero:.1f} non-zeros; {n / seconds:,.0f} codes a second of tensors (worst "
              f"gap {worst:.1e}), {n / streamed:,.0f} of NumPy arrays, there and back; {os.cpu_count()} cores "
              f"of the host {n_host / host:,.0f}; SPAMS {spams_rate(X[:n_spams], D, alpha)}",
              flush=True)  # fmt: skip
        del codes


def spams_rate(X, D, alpha):
    """Its codes are exact; all cores, float64, a Gram matrix."""
    try:
        import spams
    except ImportError:
        return "is not here"
    columns = [np.asfortranarray(x.T, dtype=np.float64) for x in (X, D)]
    options = {"lambda1": alpha, "mode": 2, "numThreads": os.cpu_count()}
    spams.lasso(*columns, **options)
    _, seconds = seconds_of(lambda: spams.lasso(*columns, **options))
    return f"{len(X) / seconds:,.0f}"


def measure_search():
    """The 600 fits and all codes of `fits` and `codes` through the estimators: the search that users call."""
    grid = {
        "alpha": list(2.0 ** -np.arange(6.0, 11)),
        "label_weight": list(2.0 ** np.arange(-6.0, 4, 2)),
        "code_weight": list(2.0 ** np.arange(-14.0, -8, 2)),
    }
    data = load("yaleb")
    splits = list(few_shot_splits(data.target, n_per_class=5, seeds=range(N_SPLITS)))
    n_codes = sum(len(test) for _, test in splits)
    for dtype in (np.float32, np.float64):
        X = data.data.astype(dtype)
        model = LEDLClassifier(random_state=0, tol=0, max_iter=30, transform_tol=1e-3, device="cuda")
        search = BatchedSearchCV(model, grid, cv=splits, refit=False)
        for _ in range(3):
            torch.cuda.reset_peak_memory_stats()
            _, seconds = seconds_of(lambda X=X, search=search: search.fit(X, data.target))
            n = len(search.cv_results_["params"])
            print(f"BatchedSearchCV, {np.dtype(dtype)}: {N_SPLITS * n} fits and {n_codes * n:,} codes in "
                  f"{seconds:.2f} s; {peak_memory():.0f} GiB", flush=True)  # fmt: skip


def measure_precision(n_splits=8):
    """Accuracy and time of training with TF32 products beside full ones."""
    for name in ("yaleb", "ucmerced", "usps"):
        data = load(name)
        X, y = data.data.astype(np.float32), data.target
        found = {"full": [], "tf32": []}
        for train, test in few_shot_splits(y, n_per_class=5, seeds=range(n_splits)):
            for precision, scores in found.items():
                model = LEDLClassifier(random_state=0, device="cuda", precision=precision).fit(
                    X[train], y[train]
                )
                scores.append(model.predict(X[test]) == y[test])
        rates = {key: np.array([100 * np.mean(part) for part in parts]) for key, parts in found.items()}
        said = ", ".join(f"{key} {rate.mean():.2f} ± {rate.std(ddof=1):.2f}" for key, rate in rates.items())
        paired = rates["tf32"] - rates["full"]
        print(
            f"{name}: accuracy {said}; difference {paired.mean():+.2f} ± {paired.std(ddof=1):.2f}", flush=True
        )
    X, labels, start = large_problem(1_000_000, 2048, 1000, 2000)
    for precision in ("full", "tf32"):
        with float32_products(precision, "cuda"):
            seconds, _ = time_iterations(InMemoryBlocks(X, labels, 2**16), start, 9)
        print(f"an iteration at n = 1,000,000, {precision}: {np.median(seconds):.3f} s", flush=True)


def measure_estimator(n=1_000_000, d=2048, c=1000, K=2000):
    """LEDLClassifier.fit itself on tensors: checks, scaling, start, 30 iterations and what is kept."""
    X, labels, _ = large_problem(n, d, c, K)
    torch.cuda.reset_peak_memory_stats()
    model = LEDLClassifier(n_components=K, alpha=2.0**-4, label_weight=1.0, max_iter=30, tol=0, random_state=0)
    for _ in range(2):
        _, seconds = seconds_of(lambda: model.fit(X, labels))
        print(f"LEDLClassifier.fit: {seconds:.1f} s; peak memory {peak_memory():.0f} GiB", flush=True)
    (found, seconds) = seconds_of(lambda: model.predict(X[:100_000]))
    share = (found == labels[:100_000]).double().mean().item()
    print(f"predict: {100_000 / seconds:,.0f} samples a second, {share:.3f} of the training labels")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = {
        "fits": measure_fits,
        "codes": measure_codes,
        "large": measure_large,
        "streamed": measure_streamed,
        "search": measure_search,
        "estimator": measure_estimator,
        "throughput": measure_throughput,
        "precision": measure_precision,
    }
    parser.add_argument("what", choices=what, nargs="+")
    parser.add_argument("--block-size", type=int, default=2**16, help="samples of a block: large, streamed")
    chosen = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for name in chosen.what:
        options = {"block_size": chosen.block_size} if name in ("large", "streamed") else {}
        what[name](**options)


if __name__ == "__main__":
    main()
