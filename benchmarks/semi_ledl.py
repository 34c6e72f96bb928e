"""LEDL with unknown labels inside its objective, against the loop of `SemiSupervisedClassifier`.

    python benchmarks/semi_ledl.py [digits usps ucmerced yaleb] [--splits 3] [--jobs 1]
    python benchmarks/semi_ledl.py --check

All samples enter objective (1). Rows of H are one-hot where labels are known. The other rows are unknown: on
the simplex, and near those of their neighbours in a graph G. With m atoms a class and Q = sqrt(m) H,

    |X - S B|^2 + lam |H - S W|^2 + omega |Q - S A|^2 + 2 epsilon |S|_1 + mu tr H'(I - G)H

is minimised in turn: Algorithm 3 for S, B, W and A (`learn`), then `renew_labels` for H. Codes that have seen
labels confirm them. So labels may also be renewed from codes that have not seen them (`plain_codes`).

X are square roots of norm 1, in 256 directions and that of the mean. Five labels a class, all other samples are
unknown and tested. The library's choice by hidden labels decides all: mu, the first guesses, the way to answer.
lam and omega are the library's defaults, epsilon is the one that `LEDLClassifierCV` finds best for the labels.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from ledl import LEDLClassifier, SemiSupervisedClassifier
from ledl.arrays import unit_rows
from ledl.datasets import few_shot_splits, load
from ledl.model_selection import default_folds
from ledl.semi_supervised import judge, supervised_scores, without_fold
from ledl.solvers.atoms import Sums, sweep
from ledl.solvers.graph import Gaussians, Graph, log_shares, one_hot, sharpen, spread
from ledl.solvers.lasso import lasso, soft_threshold
from ledl.solvers.ledl import DualStep, reduce_code_transform

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers import reference

LAM, OMEGA, RHO = 4.0, 2.0**-11, 1.0
K_NEAR, SPREADING, SHRINKAGE = 10, 0.99, 0.1  # as in `SemiSupervisedClassifier`
MUS = (4, 32)  # in units of lam + omega m: the weight of neighbours relative to that of S W
STEP = "loop, LEDL for Gaussians"
ROUNDS, STEPS = 4, 12  # times that labels are renewed, and iterations of Algorithm 3 before each


class LEDL(NamedTuple):
    """The state of Algorithm 3 on all samples."""

    M: np.ndarray  # weighted atoms [B, sqrt(lam) W, sqrt(omega) A]
    Z: np.ndarray  # codes
    L: np.ndarray  # multipliers
    n_iter: int  # so far
    m: float  # atoms a class
    epsilon: float


def supervised_start(X, y, epsilon):
    """Learn LEDL from the samples with labels (y >= 0)."""
    known = np.flatnonzero(y >= 0)
    model = LEDLClassifier(alpha=epsilon, normalize=False, random_state=0).fit(X[known], y[known])
    A = reduce_code_transform(model.code_components_, model.atom_classes_)
    W = model.label_components_
    M = np.concatenate([model.components_, LAM**0.5 * W, OMEGA**0.5 * A], axis=1).astype(X.dtype)
    zeros = np.zeros((len(X), len(M)), dtype=X.dtype)
    return LEDL(M, zeros, zeros, 0, len(M) / W.shape[1], epsilon)


def targets(X, H, m):
    """Return T = [X, sqrt(lam) H, sqrt(omega) Q]."""
    return np.concatenate([X, LAM**0.5 * H, (OMEGA * m) ** 0.5 * H], axis=1)


def learn(X, H, model, n_iter):
    """Take iterations of Algorithm 3 with soft labels H, from the state of a model."""
    T, (M, Z, L, first, m, epsilon) = targets(X, H, model.m), model
    c, q = H.shape[1], T.shape[1]
    bounds, radii = (0, q - 2 * c, q - c, q), np.array([1, LAM**0.5, OMEGA**0.5], dtype=M.dtype)
    norms = np.array([np.linalg.norm(part) for part in np.split(T, bounds[1:3], axis=1)])
    for iteration in range(first, first + n_iter):
        gram = cho_factor(M @ M.T + RHO * np.eye(len(M), dtype=M.dtype))
        C = cho_solve(gram, (T @ M.T + RHO * Z - L).T).T
        Z = soft_threshold(C + L / RHO, epsilon / RHO)
        L = L + M.dtype.type(DualStep().at(iteration)) * (C - Z)
        products = C.T @ C
        M, _ = sweep(Sums(products, C.T @ T - products @ M), M, bounds, radii, norms)
    return LEDL(M, Z, L, first + n_iter, m, epsilon)


def plain_codes(X, model, c, start=None):
    """Return codes that have seen no label: argmin |x - s B|^2 + 2 epsilon |s|_1."""
    B = model.M[:, : -2 * c]
    squares = np.sum(X * X, axis=1, dtype=np.float64)
    return lasso(B @ B.T, X @ B.T, squares, model.epsilon, 1e-3, start=start)[0]


def read_labels(S, model, c):
    """Return the H that the codes ask for: the mean of S W and S A / sqrt(m) by lam and omega m."""
    W, A = model.M[:, -2 * c : -c] / LAM**0.5, model.M[:, -c:] / OMEGA**0.5
    return (LAM * (S @ W) + OMEGA * model.m**0.5 * (S @ A)) / (LAM + OMEGA * model.m)


def onto_simplex(V):
    """Return the nearest rows that are not negative and sum to 1."""
    U = -np.sort(-V, axis=1)
    excess = (U.cumsum(axis=1) - 1) / np.arange(1, V.shape[1] + 1)
    shift = excess[np.arange(len(V)), np.sum(excess < U, axis=1) - 1]
    return np.maximum(V - shift[:, None], 0).astype(V.dtype)


def renew_labels(H, asked, G, mu, free, n_steps=100):
    """Return H with free rows that minimise |H - asked|^2 + mu tr H'(I - G)H on the simplex, by Jacobi steps.

    A step gives each free row its minimiser, the others being fixed. That is a projected gradient step of half
    the inverse of 1 + mu, while the gradient has the Lipschitz constant 2 (1 + 2 mu) at most. So no step raises
    the sum.
    """
    H = H.copy()
    for _ in range(n_steps):
        new = onto_simplex((asked[free] + mu * (G @ H)[free]) / (1 + mu))
        change = np.abs(new - H[free]).max()
        H[free] = new
        if change < 1e-4:
            break
    return H


class Task(NamedTuple):
    """Samples in both spaces, and what all answers share."""

    Z: np.ndarray  # centred, in 256 directions
    X: np.ndarray  # with the mean, and of norm 1
    products: np.ndarray
    graph: Graph
    c: int
    epsilon: float


def learnt_graph(task, R):
    """Return the graph in the space that guesses R teach."""
    return Graph.of(task.Z @ Gaussians.of(task.Z, task.products, R, SHRINKAGE).directions(), K_NEAR)


def known_labels(task, y):
    """Return the rows with labels, and their one-hot labels."""
    known = np.flatnonzero(y >= 0)
    return known, np.eye(task.c, dtype=task.Z.dtype)[y[known]]


def supervised(task, y, guesses):
    """(a) LEDL from the labels alone."""
    model = supervised_start(task.X, y, task.epsilon)
    return plain_codes(task.X, model, task.c) @ model.M[:, -2 * task.c : -task.c]


def inside(task, y, guesses, *, mu, space, plain=True):
    """(b) Labels inside the objective. `plain`: they are renewed from codes that have not seen them."""
    X, c = task.X, task.c
    model = supervised_start(X, y, task.epsilon)
    known, labels = known_labels(task, y)
    free, S = np.flatnonzero(y < 0), plain_codes(X, model, c)
    asked = read_labels(S, model, c)
    H = onto_simplex(asked)
    H[known] = labels
    G = task.graph.matrix() if space == "raw" else None
    for step in range(ROUNDS + 1):
        if space == "learnt":
            G = learnt_graph(task, sharpen(asked, known, labels)).matrix()
        H = renew_labels(H, asked, G, mu, free)
        if step < ROUNDS:
            model = learn(X, H, model, STEPS)
            S = plain_codes(X, model, c, S) if plain else model.Z
            asked = read_labels(S, model, c)
    return log_shares(H)


def loop_with_ledl(task, y, guesses, *, first):
    """(c) The loop of the library, with guesses of LEDL on soft labels of all samples in place of Gaussians."""
    X, c = task.X, task.c
    known, labels = known_labels(task, y)
    H = one_hot(task.Z, known, labels)
    model, S = supervised_start(X, y, task.epsilon), None
    if first == "spread":
        guesses = log_shares(spread(task.graph.matrix(), H, SPREADING))
    R = sharpen(guesses, known, labels)
    for step in range(4):
        F = spread(learnt_graph(task, R).matrix(), H, SPREADING)
        if step < 3:
            model = learn(X, sharpen(log_shares(F), known, labels), model, STEPS)
            S = plain_codes(X, model, c, S)
            R = sharpen(read_labels(S, model, c), known, labels)
    return log_shares(F)


def library(task, y, guesses, *, method, space):
    """(e) An answer of `SemiSupervisedClassifier`."""
    found = SemiSupervisedClassifier()._answer(space, method, guesses, y)
    return guesses if found is None else log_shares(found.F)


def refitted(task, y, scores):
    """(d) LEDL with as many atoms, learnt from the loop's labels of all samples as if they were true."""
    labels = np.where(y >= 0, y, scores.argmax(axis=1))
    model = LEDLClassifier(
        n_components=2 * int(np.sum(y >= 0)),
        alpha=task.epsilon,
        max_iter=50,
        normalize=False,
        transform_tol=1e-4,
        random_state=0,
    )
    return model.fit(task.X, labels).decision_function(task.X)


def candidates(space):
    """Return all ways to answer, by rows of the table."""
    loop = {name: (library, {"method": name, "space": space}) for name in ("learnt", "spread-learnt", "spread")}
    loop["supervised"] = library, {"method": "supervised", "space": space}
    rows = {
        "supervised LEDL": {"": (supervised, {})},
    }
    for name in ("raw", "learnt"):
        rows[f"inside, {name} graph"] = {str(mu): (inside, {"mu": mu, "space": name}) for mu in MUS}
    rows[STEP] = {first: (loop_with_ledl, {"first": first}) for first in ("guesses", "spread")}
    return {**rows, "loop": loop}


def run(dataset, seed):
    """Return hidden hits, log loss, processor seconds and accuracy of each way to answer."""
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        data = load(dataset)
        X, truth = data.data.astype(np.float32), np.unique(data.target, return_inverse=True)[1]
        known, unknown = next(few_shot_splits(truth, n_per_class=5, seeds=[seed]))
        y = np.full(len(truth), -1)
        y[known] = truth[known]
        known = np.flatnonzero(y >= 0)
        fold_seed, start_seed, _ = check_random_state(seed).randint(np.iinfo(np.int32).max, size=3)
        folds = default_folds(y[known], fold_seed)
        loop = SemiSupervisedClassifier()
        unfitted = loop._supervised(int(start_seed), folds)
        fitted = loop._supervised(int(start_seed), folds).fit(X[known], y[known])
        task, space = make_task(X, fitted, truth.max() + 1)
        guesses = [supervised_scores(fitted, X)]
        labels = [y]
        for number, (train, test) in enumerate(folds):
            model = without_fold(unfitted, fitted, number, folds)
            guesses.append(supervised_scores(model.fit(X[known[train]], y[known[train]]), X))
            partly = y.copy()
            partly[known[test]] = -1
            labels.append(partly)
        hidden = np.concatenate([known[test] for _, test in folds])
        records = []
        for row, ways in candidates(space).items():
            for way, (answer, settings) in ways.items():
                begin = time.process_time()
                scores = [answer(task, *one, **settings) for one in zip(labels, guesses, strict=True)]
                seconds = (time.process_time() - begin) / len(scores)
                found = [part[known[test]] for part, (_, test) in zip(scores[1:], folds, strict=True)]
                verdict = judge(np.concatenate(found), y[hidden])
                hits = np.mean(scores[0].argmax(axis=1)[unknown] == truth[unknown])
                records.append((row, way, verdict.hits.mean(), verdict.losses.mean(), seconds, hits, scores[0]))
        found = pd.DataFrame(records, columns=["row", "way", "hidden", "loss", "seconds", "accuracy", "scores"])
        best = chosen(found[found.row == "inside, raw graph"])
        scores = inside(task, y, None, mu=int(best.way), space="raw", plain=False)
        hits = np.mean(scores.argmax(axis=1)[unknown] == truth[unknown])
        found.loc[len(found)] = ["inside, raw graph, codes see labels", best.way, *[np.nan] * 3, hits, None]
        best = chosen(found[found.row == "loop"])
        scores = refitted(task, y, best.scores)
        hits = np.mean(scores.argmax(axis=1)[unknown] == truth[unknown])
        found.loc[len(found)] = ["loop, then LEDL refitted", best.way, *[np.nan] * 3, hits, None]
        return found.drop(columns="scores").assign(dataset=dataset, seed=seed, epsilon=task.epsilon)


def make_task(X, fitted, c):
    """Return the samples in their spaces, and the library's own space."""
    space = SemiSupervisedClassifier()._space(X, ["spread"])
    inside, rest = space.mean @ space.axes, np.sum(space.mean**2)
    rest = max(rest - np.sum(inside**2), 0) ** 0.5
    full = np.column_stack([space.Z + inside, np.full(len(X), rest)]).astype(np.float32)
    results = fitted.cv_results_
    losses = {
        params["alpha"]: loss
        for params, loss in zip(results["params"], results["mean_test_neg_log_loss"], strict=True)
        if params["kernel"] == "hellinger" and params["rule"] == "classifier"
    }
    epsilon = max(losses, key=losses.get)
    return Task(space.Z, unit_rows(full), space.products, space.graph, c, epsilon), space


def chosen(ways):
    """Return the way that finds most hidden labels; of equal ones the one of the smallest loss."""
    return ways.sort_values(["hidden", "loss"], ascending=[False, True], kind="stable").iloc[0]


def families(part):
    """Return the rows of the table: for each the ways among which hidden labels choose."""
    rows = dict(tuple(part.groupby("row", sort=False)))
    rest = rows["loop"][rows["loop"].way.isin(["spread", "supervised"])]
    rows[STEP] = pd.concat([rows[STEP], rest])
    inside = [rows["inside, raw graph"], rows["inside, learnt graph"]]
    return {
        **rows,
        "loop, and inside as more ways": pd.concat([rows["loop"], *inside]),
        "loop, and LEDL for Gaussians as more ways": pd.concat([rows["loop"], rows[STEP]]),
    }


def check():
    """Compare the updates with plain transcriptions, and see that no block raises the objective."""
    rng = np.random.default_rng(0)
    n, d, c, m, epsilon, mu = 40, 12, 4, 3, 0.05, 2.0
    X, atom_classes = unit_rows(rng.standard_normal((n, d))), np.repeat(np.arange(c), m)
    B, W, A = (unit_rows(rng.standard_normal((c * m, width))) for width in (d, c, c))
    H, G = onto_simplex(rng.standard_normal((n, c))), Graph.of(X, 5).matrix()
    M = np.concatenate([B, LAM**0.5 * W, OMEGA**0.5 * A], axis=1)
    model = LEDL(M, np.zeros((n, c * m)), np.zeros((n, c * m)), 0, m, epsilon)
    # Algorithm 3 with soft labels, and the full Q = H U and A = A P of m columns a class
    ownership = np.eye(c)[atom_classes]
    plain = [X.T, H.T, ownership @ H.T, B.T.copy(), W.T.copy(), ownership @ A.T / m**0.5]
    Z = L = np.zeros((c * m, n))
    weights = {"lam": LAM, "omega": OMEGA, "epsilon": epsilon, "rho": RHO}
    for iteration in range(10):
        C, Z, L = reference.code_update(*plain, Z, L, **weights, theta=DualStep().at(iteration))
        reference.atom_update(*plain, C)
    learnt = learn(X, H, model, 10)
    worst = max(np.abs(learnt.Z - Z.T).max(), np.abs(learnt.M[:, :d] - plain[3].T).max())
    worst = max(worst, np.abs(learnt.M[:, d : d + c] / LAM**0.5 - plain[4].T).max())
    assert worst < 1e-10, worst
    print(f"Algorithm 3 with soft labels: {worst:.1e} from the transcription")

    # one row: a general solver on the simplex
    asked, worst = rng.standard_normal((n, c)), 0
    for i in range(5):
        row = renew_labels(H, asked, G, mu, np.array([i]), 1)[i]
        near = (G @ H)[i]  # a sample is not its own neighbour
        general = minimize(
            lambda h, i=i, near=near: np.sum((h - asked[i]) ** 2) + mu * (h @ h - 2 * h @ near),
            np.full(c, 1 / c),
            bounds=[(0, 1)] * c,
            constraints={"type": "eq", "fun": lambda h: h.sum() - 1},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        worst = max(worst, np.abs(row - general.x).max())
    assert worst < 1e-5, worst
    print(f"A row of labels: {worst:.1e} from SLSQP")

    def objective(model, H):
        fit = np.sum((targets(X, H, m) - model.Z @ model.M) ** 2) + 2 * epsilon * np.abs(model.Z).sum()
        return fit + mu * (LAM + OMEGA * m) * np.sum(H * (H - G @ H))

    free, values = np.arange(10, n), []
    for _ in range(30):
        T = targets(X, H, m)
        gram, squares = model.M @ model.M.T, np.sum(T * T, axis=1)
        model = model._replace(Z=lasso(gram, T @ model.M.T, squares, epsilon, 1e-12)[0])
        values.append(objective(model, H))
        products, bounds = model.Z.T @ model.Z, (0, d, d + c, d + 2 * c)
        rest = model.Z.T @ T - products @ model.M
        radii = np.array([1, LAM**0.5, OMEGA**0.5])
        model = model._replace(M=sweep(Sums(products, rest), model.M, bounds, radii, np.ones(3))[0])
        values.append(objective(model, H))
        for _ in range(5):
            H = renew_labels(H, read_labels(model.Z, model, c), G, mu, free, 1)
            values.append(objective(model, H))
    assert np.diff(values).max() < 1e-9, np.diff(values).max()
    print(f"The objective falls in every block: {values[0]:.4f} to {values[-1]:.4f}")


def print_table(table, datasets):
    """Print means ± standard deviations over splits; differences from the loop ± standard errors over all."""
    rows, everything = {}, {}
    for (row, dataset), found in table.items():
        rows.setdefault(row, {})[dataset] = f"{np.mean(found):.1f} ± {np.std(found, ddof=1):.1f}"
        everything.setdefault(row, []).extend(found)
    for row, found in everything.items():
        less = np.subtract(found, everything["loop"])
        rows[row]["mean"] = f"{np.mean(found):.1f}"
        rows[row]["minus the loop"] = f"{less.mean():+.1f} ± {less.std(ddof=1) / len(less) ** 0.5:.1f}"
    print(pd.DataFrame(rows).T[[*datasets, "mean", "minus the loop"]].to_markdown(disable_numparse=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["digits", "usps", "ucmerced", "yaleb"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--save", help="CSV file for all ways, not only the chosen ones")
    options = parser.parse_args()
    if options.check:
        return check()
    jobs = [(dataset, seed) for seed in range(options.splits) for dataset in options.datasets]
    parts, table = [], {}
    for part in Parallel(options.jobs, return_as="generator")(delayed(run)(*job) for job in jobs):
        parts.append(part)
        dataset, seed = part.dataset[0], part.seed[0]
        print(f"{dataset}, split {seed}, epsilon {part.epsilon[0]:.4g}", file=sys.stderr)
        print(
            part[["row", "way", "hidden", "seconds", "accuracy"]].round(3).to_string(),
            file=sys.stderr,
            flush=True,
        )
        for row, ways in families(part).items():
            table.setdefault((row, dataset), []).append(100 * chosen(ways).accuracy)
        if options.save:
            pd.concat(parts).to_csv(options.save, index=False)
    print_table(table, options.datasets)
    return None


if __name__ == "__main__":
    main()
