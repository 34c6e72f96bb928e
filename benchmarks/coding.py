"""Codes per second: ledl.sparse_encode against SPAMS, scikit-learn, celer and dictlearn.

    python benchmarks/coding.py [random|real|caltech|omp|warm|auto ...] [--repeats 5] [--threads 2] [--fast]

All in one process with the same number of threads, turn about, median of the turns. A turn is a while of runs
that do not count, so that nobody pays for the idle threads, still spinning, and the cold caches of the one
before, and then a while of runs that do. Times are of the whole call, products and Gram matrix included, from
arrays in the order that each library likes to codes in the form that it gives (sparse for SPAMS and ledl).
scikit-learn and celer code a few samples in one thread, and are credited with perfect scaling. The duality gap
of everybody's codes is measured here, in float64, from samples and dictionary; a library whose worst sample
misses the tolerance is marked with its gap and cannot be the best.

The datasets (LEDL_DATA) are needed for `real` and `caltech`; peers: pip install --group bench.
"""

import argparse
import functools
import os
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import celer
import dictlearn
import numpy as np
import sklearn.decomposition
import spams

from ledl import LEDLClassifier, sparse_encode
from ledl.datasets import few_shot_splits, load

FEW = 10  # samples for the slow ones
WARM_UP, TIMED = 0.06, 0.1  # seconds a turn
LONG = 0.5  # a job of so many seconds needs no warming up after its first turn


def relative_gaps(X, D, codes, alpha):
    """Duality gap over half the squared norm, from the residual scaled into the dual's box."""
    X, D, codes = (np.asarray(a, dtype=np.float64) for a in (X, D, codes))
    R = X - codes @ D
    steepest = np.abs(R @ D.T).max(axis=1)
    square, along = (R * R).sum(axis=1), (R * X).sum(axis=1)
    t = np.minimum(along / square, alpha / np.maximum(steepest, 1e-300))
    primal = square / 2 + alpha * np.abs(codes).sum(axis=1)
    return (primal - t * along + t * t * square / 2) / ((X * X).sum(axis=1) / 2)


def lasso_contestants(X, D, alpha, tol, threads):
    """Name -> (function of no arguments that gives codes, number of samples it codes, credit for threads)."""
    columns, atoms = np.asfortranarray(X.T), np.asfortranarray(D.T)
    few = X[:FEW]

    def ours():
        return sparse_encode(X, D, alpha=alpha, tol=tol, n_jobs=threads, sparse_output=True).toarray

    def lars(cholesky):
        options = {"lambda1": alpha, "mode": 2, "numThreads": threads, "cholesky": cholesky}
        return lambda: spams.lasso(columns, D=atoms, **options).T.toarray

    def scikit(algorithm):
        def run():
            codes = sklearn.decomposition.sparse_encode(
                few, D, algorithm=algorithm, alpha=alpha, max_iter=10_000
            )
            return lambda: codes

        return run

    def celer_codes():
        model = celer.Lasso(alpha / X.shape[1], fit_intercept=False, tol=tol * 0.5)
        codes = np.stack([model.fit(atoms, x).coef_ for x in few])
        return lambda: codes

    return {
        "ledl": (ours, len(X), 1),
        "SPAMS": (lars(False), len(X), 1),
        "SPAMS, Cholesky": (lars(True), len(X), 1),
        "scikit-learn LARS": (scikit("lasso_lars"), len(few), threads),
        "scikit-learn CD": (scikit("lasso_cd"), len(few), threads),
        "celer": (celer_codes, len(few), threads),
    }


def run_for(seconds, function):
    """Runs it until the time is over, at least once; the seconds a run, and what the last gave."""
    start, runs = time.perf_counter(), 0
    while runs == 0 or time.perf_counter() - start < seconds:
        result, runs = function(), runs + 1
    return (time.perf_counter() - start) / runs, result


def timed(contestants, repeats):
    """Name -> median seconds a sample, codes; turn about, the slow ones twice."""
    times, seconds, results = {name: [] for name in contestants}, {}, {}
    for turn in range(repeats):
        for name, (function, n, credit) in contestants.items():
            if n <= FEW and turn > 1:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if turn == 0 or seconds[name] < LONG:
                    run_for(WARM_UP, function)
                seconds[name], result = run_for(TIMED, function)
            times[name].append(seconds[name] / n / credit)
            if turn == 0:
                results[name] = np.asarray(result())
    return {name: np.median(t) for name, t in times.items()}, results


SLOW = ("scikit-learn LARS", "scikit-learn CD", "celer")


def compare_lasso(name, X, D, alpha, tol, options):
    X, D = (np.ascontiguousarray(a, dtype=options.dtype) for a in (X, D))
    contestants = lasso_contestants(X, D, alpha, tol, options.threads)
    if options.fast:
        contestants = {key: value for key, value in contestants.items() if key not in SLOW}
    seconds, codes = timed(contestants, options.repeats)
    worst = {key: relative_gaps(X[: len(c)], D, c, alpha).max() for key, c in codes.items()}
    reached = {key: s for key, s in seconds.items() if worst[key] <= tol and key != "ledl"}
    best = min(reached, key=reached.get)
    ratio = reached[best] / seconds["ledl"]
    missed = ", ".join(f"{key} ({gap:.0e})" for key, gap in worst.items() if gap > tol) or "-"
    nonzeros = np.count_nonzero(codes["ledl"]) / len(X)
    print(
        f"| {name} | {tol:.0e} | {nonzeros:.0f} | {1e6 * seconds['ledl']:.1f} | {1e6 * reached[best]:.1f} "
        f"| {best} | {ratio:.2f} | {worst['ledl']:.0e} | {missed} | {1e3 * seconds['ledl'] * len(X):.0f} |",
        flush=True,
    )
    return ratio, seconds["ledl"] * len(X)


HEADER = (
    "| cell | tol | non-zeros | ledl, µs | best peer, µs | which | ratio | ledl's worst gap | missed the gap "
    "| job, ms |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def random_problem(d, K, n=2000, seed=0):
    """Gaussian atoms, samples of 10 atoms with Gaussian weights and 5 % noise; unit norms."""
    rng = np.random.default_rng(seed)
    unit = lambda a: a / np.linalg.norm(a, axis=1, keepdims=True)  # noqa: E731
    D = unit(rng.standard_normal((K, d)))
    chosen = np.argsort(rng.random((n, K)), axis=1)[:, :10]
    weights = rng.standard_normal((n, 10))
    clean = unit(np.einsum("nk,nkd->nd", weights, D[chosen]))
    return unit(clean + 0.05 * unit(rng.standard_normal((n, d)))), D


RANDOM_SIZES = [(256, 500), (512, 1000), (1024, 2000)]


def run_random(options):
    print(HEADER)
    for tol in (1e-4, 1e-6):
        for d, K in RANDOM_SIZES:
            compare_lasso(f"random {d} x {K}", *random_problem(d, K), 0.1, tol, options)


def real_problem(name, n=2000, **weights):
    """Test samples, training samples and LEDL's dictionary, of the first split."""
    dataset = load(name)
    X, y = dataset.data.astype(np.float64), dataset.target
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    train, test = next(few_shot_splits(y, seeds=[0]))
    test = np.random.default_rng(0).permutation(test)[:n]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LEDLClassifier(random_state=0, **weights).fit(X[train], y[train])
    return X[test], X[train], model.components_


def alpha_for(n_nonzero, X, D):
    """The alpha, by bisection, at which codes of a hundred samples have so many non-zeros in the mean."""
    low, high = -18.0, 0.0
    for _ in range(12):
        middle = (low + high) / 2
        codes = sparse_encode(X[:100], D, alpha=2**middle, sparse_output=True)
        low, high = (middle, high) if codes.nnz / 100 > n_nonzero else (low, middle)
    return 2**middle


def run_real(options):
    print(HEADER)
    ratios = {1e-4: [], 1e-6: []}
    for name in ("usps", "yaleb", "pie", "ucmerced"):
        X, training, learnt = real_problem(name)
        for kind, D in (("samples", training), ("LEDL", learnt)):
            rank = np.linalg.matrix_rank(D)
            for wanted in (5, 20, 50, 100):
                if wanted > 0.8 * rank:
                    continue
                alpha = alpha_for(wanted, X, D)
                for tol, list_ in ratios.items():
                    cell = f"{name}, {kind} ({len(D)}), 2^{np.log2(alpha):.1f}"
                    list_.append(compare_lasso(cell, X, D, alpha, tol, options)[0])
    for tol, list_ in ratios.items():
        print(
            f"\ntol {tol:.0e}: median ratio {np.median(list_):.2f}, least {min(list_):.2f}; {len(list_)} cells"
        )


def run_caltech(options):
    """The paper's weights for Caltech101; codes nearly as dense as the dictionary allows."""
    X, _, D = real_problem("caltech101", n=400, label_weight=2**-4, code_weight=2**-13, alpha=2**-14)
    print(HEADER)
    options = argparse.Namespace(**{**vars(options), "fast": True})  # the slow ones would take minutes
    for tol in (1e-4, 1e-6):
        compare_lasso(f"caltech101, LEDL ({len(D)}), 2^-14", X, D, 2**-14, tol, options)


def omp_contestants(X, D, n_nonzero, threads):
    columns, atoms, few = np.asfortranarray(X.T), np.asfortranarray(D.T), X[:FEW]

    def ours():
        return sparse_encode(X, D, n_nonzero_coefs=n_nonzero, n_jobs=threads, sparse_output=True).toarray

    def spams_codes():
        return spams.omp(columns, D=atoms, L=n_nonzero, numThreads=threads).T.toarray

    def dictlearn_codes():
        codes = dictlearn.sparse_encode(X, D, n_nonzero_coefs=n_nonzero)
        return lambda: codes

    def scikit():
        codes = sklearn.decomposition.sparse_encode(few, D, algorithm="omp", n_nonzero_coefs=n_nonzero)
        return lambda: codes

    return {
        "ledl": (ours, len(X), 1),
        "SPAMS": (spams_codes, len(X), 1),
        "dictlearn": (dictlearn_codes, len(X), 1),
        "scikit-learn": (scikit, len(few), threads),
    }


def run_omp(options, n_nonzero=10):
    print("| cell | ledl, µs | SPAMS | dictlearn | scikit-learn | ratio to best | residual, ledl | theirs |")
    print("|---|---|---|---|---|---|---|---|")
    for d, K in RANDOM_SIZES:
        X, D = (np.ascontiguousarray(a, dtype=options.dtype) for a in random_problem(d, K))
        seconds, codes = timed(omp_contestants(X, D, n_nonzero, options.threads), options.repeats)
        best = min((key for key in seconds if key != "ledl"), key=seconds.get)
        left = {key: np.linalg.norm(X[: len(c)] - c @ D, axis=1).mean() for key, c in codes.items()}
        times = " | ".join(f"{1e6 * value:.1f}" for value in seconds.values())
        ratio = seconds[best] / seconds["ledl"]
        print(
            f"| random {d} x {K} | {times} | {ratio:.2f} | {left['ledl']:.5f} | {left[best]:.5f} |", flush=True
        )


def run_warm(options):
    """Codes at seven alphas, each from the last, against each from nothing."""
    print("| cell | cold, ms | warm, ms | ratio |\n|---|---|---|---|")
    for name in ("yaleb", "ucmerced"):
        X, _, D = real_problem(name)
        for solver in ("active_set", "admm"):
            times = []
            for warm in (False, True) * 2:
                codes, start = None, time.perf_counter()
                for power in range(-3, -8, -1):
                    init = codes if warm else None
                    codes = sparse_encode(
                        X[:200], D, alpha=2.0**power, solver=solver, tol=1e-4, init=init, n_jobs=options.threads
                    )
                times.append(time.perf_counter() - start)
            cold, warm = times[2:]
            print(f"| {name} ({len(D)}), {solver} | {1e3 * cold:.0f} | {1e3 * warm:.0f} | {cold / warm:.1f} |")


def solver_times(X, D, **settings):
    """Microseconds a sample of exact steps, ADMM and "auto", marked where a gap was missed; the last info."""
    times = []
    for solver in ("active_set", "admm", "auto"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = functools.partial(sparse_encode, X, D, solver=solver, return_info=True, **settings)
            seconds, (_, info) = run_for(0.05, run)
        times.append(f"{1e6 * seconds / len(X):.0f}" + ("" if info.converged.all() else " (missed)"))
    return " | ".join(times), info


def run_auto(options):
    """What "auto" takes where its constants were not chosen, and what it could have had."""
    print("| cell | tol | non-zeros | exact steps, µs | ADMM, µs | auto, µs | auto took |")
    print("|---|---|---|---|---|---|---|")
    for name in ("digits", "aid", "caltech101"):
        X, training, learnt = real_problem(name, n=200)
        for kind, D in (("samples", training), ("LEDL", learnt)):
            for power, tol in ((-5, 1e-4), (-9, 1e-4), (-9, 1e-6), (-13, 1e-4)):
                few = X[: 100 if len(D) > 500 and power < -5 else 200]
                times, info = solver_times(few, D, alpha=2.0**power, tol=tol, n_jobs=options.threads)
                cell = f"{name}, {kind} ({len(D)}), 2^{power}"
                print(f"| {cell} | {tol:.0e} | {info.n_nonzero.mean():.0f} | {times} | {info.solver} |")


RUNS = {
    "random": run_random,
    "real": run_real,
    "caltech": run_caltech,
    "omp": run_omp,
    "warm": run_warm,
    "auto": run_auto,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(RUNS), choices=list(RUNS), metavar="PART")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fast", action="store_true", help="leave out the slow peers")
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    options = parser.parse_args()
    for part in options.parts:
        print(f"\n### {part}, {options.dtype}, {options.threads} threads\n")
        RUNS[part](options)


if __name__ == "__main__":
    main()
