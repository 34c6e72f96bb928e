"""Several starts in one model against models that are fitted one after another from the same seeds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import block_diag
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from ledl import BatchedSearchCV, LEDLClassifier, RejectingClassifier, explain, load, save
from ledl.datasets import few_shot_splits
from ledl.estimators import _ledl
from ledl.estimators._starts import SideBySide
from ledl.explanations import _page
from ledl.explanations._account import Account
from ledl.rejection import judge
from ledl.selection import Fit
from ledl.solvers import ledl as ledl_solver
from ledl.solvers.iteration import Status

RULES = ["classifier", "residual", "regularized", "joint"]
N_STARTS = 3
QUICK = {"label_weight": 0.5, "code_weight": 2**-4, "max_iter": 6, "tol": 0}


@pytest.fixture(scope="module")
def digits():
    """Unbalanced, so that classes have different numbers of atoms."""
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y))
    train = train[np.r_[0:22, 25:43, 45:50]]
    return X[train], y[train], X[test[::29]], y[test[::29]]


def both(X, y, **params):
    """A model of several starts, and models of one that draw their seeds from the same stream of numbers."""
    seeds = np.random.RandomState(7)
    params = {**QUICK, **params}
    alone = [LEDLClassifier(random_state=seeds, **params).fit(X, y) for _ in range(N_STARTS)]
    return LEDLClassifier(random_state=7, n_init=N_STARTS, **params).fit(X, y), alone


@pytest.fixture(scope="module")
def fitted(digits):
    return both(*digits[:2], keep_codes=True)


@pytest.mark.parametrize(
    "params",
    [{}, {"kernel": "rbf"}, {"init": "random"}, {"batch_size": 11}, {"device": "cpu"}, {"n_jobs": 2}],
    ids=str,
)
def test_scores_are_the_mean_of_those_of_models_of_one_start(digits, params):
    if "device" in params:
        pytest.importorskip("torch", reason="torch is not installed")
    X, y, new, _ = digits
    model, alone = both(X, y, **params)
    assert np.abs(alone[0]._atoms - alone[1]._atoms).max() > 0.1, "starts do not differ"
    for rule in RULES:
        expected = [one.set_params(rule=rule).decision_function(new) for one in alone]
        scores = model.set_params(rule=rule).decision_function(new)
        assert_allclose(scores, np.mean(expected, axis=0), atol=1e-9)
        best = np.mean(expected, axis=0).argmax(axis=1)
        assert_array_equal(model.predict(new), model.classes_[best])
        assert_allclose(model.transform(new), np.hstack([one.transform(new) for one in alone]), atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_in_float32_too(digits, rule):
    X, y, new, _ = (a.astype(np.float32) if a.ndim == 2 else a for a in digits)
    model, alone = both(X, y, rule=rule)
    scores = model.decision_function(new)
    assert (scores.dtype, model.transform(new).dtype, model.components_.dtype) == (np.float32,) * 3
    assert_allclose(scores, np.mean([one.decision_function(new) for one in alone], axis=0), atol=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_tensors_give_the_scores_of_arrays(digits, fitted, rule):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    model, new = clone(fitted[0]).set_params(rule=rule, transform_tol=1e-9), digits[2]
    expected = model.fit(*digits[:2]).decision_function(new)
    assert_allclose(model.decision_function(torch.as_tensor(new)).numpy(), expected, atol=1e-6)
    on_tensors = clone(model).fit(torch.as_tensor(digits[0]), digits[1])
    assert_allclose(on_tensors.decision_function(torch.as_tensor(new)).numpy(), expected, atol=1e-6)


def test_two_classes_have_one_score(digits):
    X, y, new, _ = digits
    model, alone = both(X[y < 2], y[y < 2])
    assert_allclose(
        model.decision_function(new), np.mean([one.decision_function(new) for one in alone], axis=0), atol=1e-9
    )


def test_attributes_are_those_of_the_starts_one_after_another(fitted):
    model, alone = fitted
    for name in ("components_", "label_components_", "atom_classes_"):
        expected = np.concatenate([getattr(one, name) for one in alone])
        assert_allclose(getattr(model, name), expected, atol=1e-9, err_msg=name)
    expected = np.hstack([one.training_codes_ for one in alone])
    assert_allclose(model.training_codes_, expected, atol=1e-9)
    expected = block_diag(*[one.code_components_ for one in alone])
    assert_allclose(model.code_components_, expected, atol=1e-9)
    assert len(model.get_feature_names_out()) == len(model.components_)


def test_coefficients_over_samples_are_stacked_too(digits):
    model, alone = both(*digits[:2], kernel="rbf")
    expected = np.concatenate([one.dual_components_ for one in alone])
    assert_allclose(model.dual_components_, expected, atol=1e-9)


def test_history_is_the_mean_and_a_start_that_has_ended_counts_with_its_last_values(digits):
    model, alone = both(*digits[:2], tol=1e-3, max_iter=100)
    n_iter = [one.n_iter_ for one in alone]
    assert len(set(n_iter)) > 1, "starts that end together test less"
    assert (model.n_iter_, model.stopped_by_) == (max(n_iter), "tol")
    for name, values in model.history_.items():
        each = [one.history_[name] for one in alone]
        filled = [np.append(one, np.full(max(n_iter) - len(one), one[-1])) for one in each]
        assert_allclose(values, np.mean(filled, axis=0), rtol=1e-9, err_msg=name)
    assert np.isfinite(model.history_["objective"][[9, -1]]).all()


def test_starts_that_do_not_converge_are_told_once(digits):
    model = LEDLClassifier(n_init=2, max_iter=4, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=4") as told:
        model.fit(*digits[:2])
    assert len(told) == 1
    assert model.stopped_by_ == "max_iter"


def test_all_starts_are_one_solve(digits, monkeypatch):
    shapes = []
    solve = _ledl.solve
    monkeypatch.setattr(
        _ledl, "solve", lambda blocks, start, **kw: shapes.append(start.M.shape) or solve(blocks, start, **kw)
    )
    LEDLClassifier(n_init=4, n_components=20, **QUICK).fit(*digits[:2])
    assert shapes == [(4, 20, 45 + 20)]


def test_one_start_is_the_default_and_the_first_of_several(digits, fitted):
    model = LEDLClassifier(random_state=7, **QUICK).fit(*digits[:2])
    assert model.n_init == 1
    assert_allclose(model.components_, fitted[0].components_[: len(model.components_)], atol=1e-9)


def test_the_seed_decides(digits, fitted):
    again = clone(fitted[0]).fit(*digits[:2])
    assert_array_equal(again.components_, fitted[0].components_)
    other = clone(fitted[0]).set_params(random_state=8).fit(*digits[:2])
    assert np.abs(other.components_ - again.components_).max() > 0.1


def test_setting_it_later_waits_for_the_next_fit(digits, fitted):
    X, y, new, _ = digits
    model = clone(fitted[0]).fit(X, y)
    expected = model.decision_function(new)
    for n_init in (1, 2, 50):
        assert_array_equal(model.set_params(n_init=n_init).decision_function(new), expected)
    model.set_params(n_init=1).fit(X, y)
    assert_array_equal(model.decision_function(new), fitted[1][0].decision_function(new))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_contributions_add_up(digits, rule, kernel):
    X, y, new, _ = digits
    model, alone = both(X, y, rule=rule, kernel=kernel)
    scores = model.decision_function(new[:3])
    for x, expected in zip(new[:3], scores, strict=True):
        found, parts = explain(model, x), [explain(one, x) for one in alone]
        assert_allclose(found.base + found.contributions.sum(axis=0), expected, atol=1e-9)
        assert_allclose(found.base, np.mean([one.base for one in parts], axis=0), atol=1e-9)
        each = np.concatenate([one.contributions for one in parts])
        assert_allclose(found.contributions, each / N_STARTS, atol=1e-9)
        assert_allclose(found.codes, np.concatenate([one.codes for one in parts]), atol=1e-9)
        assert found.n_starts == N_STARTS


def test_what_the_atoms_make_of_a_sample_is_the_mean(digits, fitted):
    """In explanations, and in the residual by which samples are rejected."""
    model, alone = fitted
    x = digits[2][0]
    expected = np.mean([explain(one, x).reconstruction for one in alone], axis=0)
    assert_allclose(explain(model, x).reconstruction, expected, atol=1e-9)
    unit = x / np.linalg.norm(x)
    codes = [one.transform(x[None])[0] for one in alone]
    residuals = []
    for label in model.classes_:
        own = [np.flatnonzero(one.atom_classes_ == label) for one in alone]
        made = [s[k] @ one.components_[k] for s, k, one in zip(codes, own, alone, strict=True)]
        residuals.append(np.sum((unit - np.mean(made, axis=0)) ** 2))
    sizes = [np.abs(np.concatenate(codes))[model.atom_classes_ == label].sum() for label in model.classes_]
    concentration = (10 * max(sizes) / sum(sizes) - 1) / 9
    assert_allclose(judge(model, x[None]).evidence[0], [concentration, min(residuals)], atol=1e-9)


def test_the_page_tells_of_the_mean(digits, fitted):
    told = [_page._how_to_read(Account(explain(one, digits[2][0]))) for one in (fitted[0], fitted[1][0])]
    assert f"what an atom adds is divided by {N_STARTS}" in told[0]
    assert "divided" not in told[1]


def test_it_may_reject(digits):
    X, y, new, _ = digits
    model = RejectingClassifier(LEDLClassifier(n_init=2, random_state=0, **QUICK), reject=0.0, cv=2)
    model.fit(X[:15], y[:15])
    assert_array_equal(model.predict(new), model.estimator_.predict(new))


@pytest.mark.parametrize("params", [{}, {"rule": "joint"}, {"kernel": "rbf"}], ids=str)
def test_files_keep_all_starts(digits, tmp_path, params):
    model, _ = both(*digits[:2], keep_codes=True, **params)
    save(model.set_params(n_init=5), tmp_path / "model.ledl")
    loaded = load(tmp_path / "model.ledl")
    assert loaded.n_init == 5
    for method in ("decision_function", "transform"):
        assert_array_equal(getattr(loaded, method)(digits[2]), getattr(model, method)(digits[2]))
    assert_array_equal(loaded.code_components_, model.code_components_)


@pytest.mark.parametrize(
    ("n_starts", "message"),
    [
        (0, "number of starts"),
        (True, "number of starts"),
        (1.0, "number of starts"),
        (7, "90 atoms are not those of 7 starts"),
        (2, "starts differ in their classes"),
    ],
)
def test_starts_that_are_none_are_no_model_for_files(digits, tmp_path, n_starts, message):
    model = LEDLClassifier(random_state=0, **QUICK).fit(*digits[:2])
    model._n_starts = n_starts
    with pytest.raises(ValueError, match=message):
        save(model, tmp_path / "model.ledl")


def searched(kind, X, y, **params):
    grid = [
        {"n_init": [1, 3], "alpha": [2**-5, 2**-7], "rule": ["classifier", "regularized"]},
        {"n_init": [2], "rule": ["joint"], "label_weight": [0.25]},
    ]
    model = LEDLClassifier(random_state=0, **{**QUICK, **params})
    return kind(model, grid, cv=2, scoring=sum_of_scores).fit(X, y)


def sum_of_scores(model, X, y):
    """Finer than the accuracy."""
    return float(np.tanh(model.decision_function(X)).sum())


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_batched_search_finds_what_a_grid_search_finds(digits, device):
    if device:
        pytest.importorskip("torch", reason="torch is not installed")
    X, y = digits[0][:22], digits[1][:22]
    params = {"device": device, "transform_tol": 1e-9}
    batched, plain = (searched(kind, X, y, **params) for kind in (BatchedSearchCV, GridSearchCV))
    assert batched.cv_results_["params"] == plain.cv_results_["params"]
    for fold in range(2):
        name = f"split{fold}_test_score"
        assert_allclose(batched.cv_results_[name], plain.cv_results_[name], atol=1e-5)
    assert len(np.unique(batched.cv_results_["mean_test_score"].round(6))) == 9
    assert batched.best_params_ == plain.best_params_
    assert_array_equal(batched.best_estimator_.components_, plain.best_estimator_.components_)


def test_a_batched_search_has_a_problem_for_each_start(digits, monkeypatch):
    problems = []
    solve = ledl_solver.solve

    def counted(blocks, start, **options):
        problems.append(len(start.M))
        return solve(blocks, start, **options)

    monkeypatch.setattr("ledl.selection.solve", counted)
    model = LEDLClassifier(n_init=3, random_state=0, **QUICK)
    BatchedSearchCV(model, {"alpha": [0.01, 0.1]}, cv=2, refit=False).fit(digits[0][:22], digits[1][:22])
    assert sum(problems) == 3 * 2 * 2


def test_arrays_to_start_at_are_one_start(digits, fitted):
    X, y, _, _ = digits
    one = fitted[1][0]
    init = (one.components_, one.label_components_, one.code_components_)
    with pytest.raises(ValueError, match=r"n_init=2 .* init has the arrays of one\. Set n_init=1, or"):
        LEDLClassifier(init=init, n_init=2).fit(X, y)


def test_checkpoints_are_of_one_start(digits, tmp_path):
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(ValueError, match=r"n_init=2 .*checkpoint=.*Set n_init=1, or checkpoint=None"):
        LEDLClassifier(n_init=2, checkpoint=path).fit(*digits[:2])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("params", [{"n_init": 2}, {"n_init": 1}])
def test_streams_have_one_start(digits, fitted, params):
    """Also where a model of several starts is to go on."""
    X, y, new, _ = digits
    with pytest.raises(ValueError, match=r"n_init=2.* 1 start\(s\), but partial_fit learns from one.* or fit"):
        LEDLClassifier(n_init=2).partial_fit(X, y, classes=range(10))
    model = clone(fitted[0]).fit(X, y).set_params(keep_codes=False, **params)
    expected = model.decision_function(new)
    with pytest.raises(ValueError, match=r"atoms of 3 start\(s\), but partial_fit learns from one"):
        model.partial_fit(X, y)
    assert_array_equal(model.decision_function(new), expected)


def test_samples_that_stay_where_they_are_have_one_start(digits, tmp_path):
    X, y = np.tile(digits[0], (2, 1)), np.tile(digits[1], 2)
    mapped = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    model = LEDLClassifier(n_init=2, random_state=0, **QUICK)
    message = r"n_init=2 .*samples in memory.*Set n_init=1; or.* np\.array\(X\)"
    with pytest.raises(ValueError, match=message):
        model.fit(mapped, y)
    assert_array_equal(model.fit(np.array(mapped), y).components_, clone(model).fit(X, y).components_)
    da = pytest.importorskip("dask.array", reason="needs the extra dask")
    with pytest.raises(ValueError, match=message):
        model.fit(da.from_array(X, chunks=(20, -1)), y)


def test_a_device_without_room_for_all_starts_is_told(digits, monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    room = 8 * 2 * (45 * 2 * 90 + 45 * 8 * (90 + 65) + 4 * 90 * (90 + 65))  # bytes of two starts
    monkeypatch.setattr(_ledl, "free_memory", lambda like: room)
    LEDLClassifier(n_init=1, device="cpu", **QUICK).fit(*digits[:2])
    with pytest.raises(ValueError, match=r"n_init=3 starts of 90 atoms.*device='cpu'.*Lower n_init"):
        LEDLClassifier(n_init=3, device="cpu", **QUICK).fit(*digits[:2])


@pytest.mark.parametrize("n_init", [0, -1, 1.5, "many", None])
def test_it_is_a_positive_number(digits, n_init):
    with pytest.raises(ValueError, match="'n_init' parameter"):
        LEDLClassifier(n_init=n_init).fit(*digits[:2])


def test_memory_for_all_starts_is_asked_for_first(digits):
    with pytest.raises(ValueError, match=r"n_components=90 atoms, n_init=1000000000 times, need about .* GB"):
        LEDLClassifier(n_init=10**9).fit(*digits[:2])


def test_zero_codes_are_told_as_with_one_start(digits, fitted):
    model = clone(fitted[0]).fit(*digits[:2]).set_params(transform_alpha=2.0)
    with pytest.warns(UserWarning, match=r"codes of all 2 samples are zero.*alpha=2\.0 is too large"):
        model.predict(digits[2][:2])


def test_samples_that_any_start_is_late_with_are_told(digits, fitted, monkeypatch):
    """One warning for all starts."""
    from ledl import coders

    lasso = coders.lasso
    monkeypatch.setattr(coders, "lasso", lambda *args, **kw: lasso(*args, **{**kw, "max_iter": 1}))
    with pytest.warns(ConvergenceWarning, match=r"of 4 samples did not reach the duality gap") as told:
        clone(fitted[0]).fit(*digits[:2]).transform(digits[2][:4])
    assert len(told) == 1


def test_one_start_that_misses_its_gap_is_told(digits):
    class Coder:
        solver, tol, alpha = "lasso", 1e-6, 0.1

        def __init__(self, converged):
            self.converged = converged

        def __call__(self, X, sq_norms):
            n = len(X)
            return np.zeros((n, 3)), np.full(n, 1.0 - self.converged), np.full(n, 2), np.full(n, self.converged)

    X = digits[0][:4]
    codes, gaps, n_iter, converged = SideBySide([Coder(True), Coder(False)], np.zeros((6, 64)))(X, np.ones(4))
    assert codes.shape == (4, 6)
    assert_array_equal(gaps, 1.0)
    assert_array_equal(n_iter, 4)
    assert not converged.any()


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        ((Status.CONVERGED, Status.NON_FINITE), Status.NON_FINITE),
        ((Status.MAX_ITER, Status.CONVERGED), Status.MAX_ITER),
        ((Status.CONVERGED, Status.CONVERGED), Status.CONVERGED),
    ],
)
def test_a_search_judges_a_fit_by_its_worst_start(statuses, worst):
    fit = Fit.of(np.zeros((2, 3, 4)), 2, np.array([5, 9]), np.array(statuses, dtype=object))
    assert (fit.status, fit.n_iter) == (worst, 9)
