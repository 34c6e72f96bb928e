"""LEDL's rules against their formulas: plain NumPy, and scikit-learn's Lasso on stacked arrays."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.linear_model import Lasso

from ledl import BatchedSearchCV, CRCClassifier, LEDLClassifier, RejectingClassifier, load, save
from ledl import joint as joint_module
from ledl.datasets import few_shot_splits
from ledl.solvers import ledl as ledl_solver
from problems import unit

RULES = ["classifier", "residual", "regularized", "joint"]


@pytest.fixture(scope="module")
def digits():
    """Unbalanced, so that classes have different numbers of atoms."""
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y))
    train = train[np.r_[0:22, 25:43, 45:50]]
    return X[train], y[train], X[test[::29]], y[test[::29]]


@pytest.fixture(scope="module")
def fitted(digits):
    model = LEDLClassifier(label_weight=0.5, code_weight=2**-4, max_iter=20, tol=0, random_state=0)
    return model.fit(*digits[:2])


def at(model, **params):
    """The fitted model at other parameters of coding and scoring."""
    copy = clone(model).set_params(**params)
    vars(copy).update({name: value for name, value in vars(model).items() if name not in model.get_params()})
    return copy


def joint_objectives(model, X):
    """Minima of objective (1) for every sample and label, with the full K x K transform, by scikit-learn."""
    lam, omega, alpha = model.label_weight, model.code_weight, model.alpha
    parts = [model.components_, lam**0.5 * model.label_components_, omega**0.5 * model.code_components_]
    M, classes = np.hstack(parts), model.classes_
    found = np.empty((len(X), len(classes)))
    for j, label in enumerate(classes):
        h, q = lam**0.5 * (classes == label), omega**0.5 * (model.atom_classes_ == label)
        T = np.hstack([unit(X), np.tile(np.concatenate([h, q]), (len(X), 1))])
        lasso = Lasso(alpha=alpha / T.shape[1], fit_intercept=False, tol=1e-9, max_iter=100_000)
        S = np.stack([lasso.fit(M.T, t).coef_ for t in T])
        found[:, j] = np.sum((T - S @ M) ** 2, axis=1) + 2 * alpha * np.abs(S).sum(axis=1)
    return found


def test_the_default_is_the_papers_rule(digits, fitted):
    assert LEDLClassifier().rule == "classifier"
    codes = fitted.transform(digits[2])
    assert_allclose(fitted.decision_function(digits[2]), codes @ fitted.label_components_, atol=1e-12)


def test_residual_is_the_distance_to_what_the_atoms_of_a_class_make(digits, fitted):
    codes, x = fitted.transform(digits[2]), unit(digits[2])
    expected = [
        -np.sum((x - codes[:, own] @ fitted.components_[own]) ** 2, axis=1)
        for own in (fitted.atom_classes_ == j for j in fitted.classes_)
    ]
    assert_allclose(
        at(fitted, rule="residual").decision_function(digits[2]), np.transpose(expected), atol=1e-10
    )


@pytest.mark.parametrize("ridge_alpha", [2**-5, 1.0])
def test_regularized_is_that_of_ridge_codes_over_their_norm(digits, fitted, ridge_alpha):
    B, x = fitted.components_, unit(digits[2])
    codes = np.linalg.solve(B @ B.T + ridge_alpha * np.eye(len(B)), B @ x.T).T
    expected = [
        -np.linalg.norm(x - codes[:, own] @ B[own], axis=1) / np.linalg.norm(codes[:, own], axis=1)
        for own in (fitted.atom_classes_ == j for j in fitted.classes_)
    ]
    model = at(fitted, rule="regularized", ridge_alpha=ridge_alpha)
    assert_allclose(model.decision_function(digits[2]), np.transpose(expected), rtol=1e-9)


def test_regularized_over_samples_is_crc(digits):
    """With the samples as atoms, by a start that training does not move away from them."""
    X, y, new, _ = digits
    crc = CRCClassifier(rule="regularized", alpha=0.1).fit(X, y)
    ledl = LEDLClassifier(n_components=len(X), max_iter=1, tol=0, rule="regularized", ridge_alpha=0.1).fit(X, y)
    order = np.argsort(y, kind="stable")  # LEDL's atoms are class by class
    ledl._atoms = crc._atoms[order]
    assert_array_equal(ledl.atom_classes_, y[order])
    assert_allclose(ledl.decision_function(new), crc.decision_function(new), rtol=1e-9)


def test_joint_is_the_least_of_the_objective_over_codes(digits, fitted):
    model = at(fitted, rule="joint", transform_tol=1e-9)
    expected = joint_objectives(fitted, digits[2][:8])
    assert_allclose(model.decision_function(digits[2][:8]), -expected, atol=1e-7)
    assert_array_equal(model.predict(digits[2][:8]), fitted.classes_[expected.argmin(axis=1)])
    assert np.ptp(np.bincount(fitted._atom_labels)) > 0, "classes with as many atoms each test less"


def test_joint_scores_are_never_above_and_within_the_tolerance(digits, fitted):
    """They are those of codes, so they bound the minimum from above; the tolerance is of the label's part."""
    exact = at(fitted, rule="joint", transform_tol=1e-10).decision_function(digits[2])
    smallest = 0.5 + 2**-4 * np.bincount(fitted._atom_labels).min()
    for tol, least in ((1e-1, 1e-4), (1e-2, 1e-6), (1e-4, 0)):
        loose = at(fitted, rule="joint", transform_tol=tol).decision_function(digits[2])
        assert (loose <= exact + 1e-9).all()
        assert (loose >= exact - tol * smallest).all()
        assert (exact - loose).max() >= least, "all were solved exactly"


@pytest.mark.parametrize(("size", "error"), [(1e-4, 0.2), (1e-7, 2e-3)])
def test_joint_is_the_papers_rule_to_first_order(digits, fitted, size, error):
    """(f_y - f) / lam -> 1 - 2 (s W)_y + |s W|^2 as lam -> 0; also where lam is far below the tolerance."""
    new = digits[2]
    model = at(fitted, rule="joint", label_weight=size, code_weight=0.0, transform_tol=1e-6)
    codes = at(fitted, transform_tol=1e-12).transform(new)
    residual = unit(new) - codes @ fitted.components_
    alone = np.sum(residual**2, axis=1) + 2 * fitted.alpha * np.abs(codes).sum(axis=1)
    sW = codes @ fitted.label_components_
    slopes = (-model.decision_function(new) - alone[:, None]) / size
    expected = 1 - 2 * sW + np.sum(sW**2, axis=1, keepdims=True)
    assert_allclose(slopes, expected, atol=error)
    best = np.sort(sW, axis=1)
    clear = best[:, -1] - best[:, -2] > error  # slopes differ by twice that
    assert clear.mean() > (0.3 if error > 0.1 else 0.9)
    assert_array_equal(model.predict(new)[clear], fitted.predict(new)[clear])


def test_joint_without_the_label_term_sees_the_code_term(digits, fitted):
    model = at(fitted, rule="joint", label_weight=0.0, code_weight=0.25, transform_tol=1e-9)
    assert_allclose(model.decision_function(digits[2][:3]), -joint_objectives(model, digits[2][:3]), atol=1e-7)


def test_joint_needs_something_to_tell_labels_by(digits, fitted):
    model = at(fitted, rule="joint", label_weight=0.0, code_weight=0.0)
    with pytest.raises(ValueError, match=r"label_weight=0 and code_weight=0.*Raise label_weight"):
        model.predict(digits[2])
    assert len(model.transform(digits[2])) == len(digits[2])


def test_a_weight_of_the_ridge_that_is_too_small_is_told(digits, fitted):
    model = at(fitted, rule="regularized", ridge_alpha=1e-300)
    model._atoms = np.repeat(fitted._atoms[:5], len(fitted._atoms) // 5, axis=0)  # dependent ones
    model._atom_labels = np.arange(len(model._atoms)) % len(model.classes_)
    with pytest.raises(ValueError, match=r"ridge_alpha=1e-300 is so small.*Raise ridge_alpha"):
        model.predict(digits[2])


def test_unknown_rules_are_told_whenever_they_are_set(digits, fitted):
    with pytest.raises(ValueError, match="'rule' parameter"):
        LEDLClassifier(rule="nearest").fit(*digits[:2])
    for method in ("predict", "decision_function"):
        with pytest.raises(ValueError, match="'rule' parameter"):
            getattr(at(fitted, rule="nearest"), method)(digits[2])


@pytest.mark.parametrize("rule", RULES)
def test_transform_gives_the_lasso_codes_of_the_sample(digits, fitted, rule):
    assert_array_equal(at(fitted, rule=rule).transform(digits[2]), fitted.transform(digits[2]))


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_changes_nothing_that_is_learnt(digits, fitted, rule):
    again = clone(fitted).set_params(rule=rule).fit(*digits[:2])
    assert_array_equal(again.components_, fitted.components_)
    assert_array_equal(again.decision_function(digits[2]), at(fitted, rule=rule).decision_function(digits[2]))


@pytest.mark.parametrize("rule", RULES)
def test_classes_that_are_alike_tie_and_the_first_wins(digits, rule):
    """Two classes of the same samples, and atoms that are made alike."""
    X, _, new, _ = digits
    model = LEDLClassifier(n_components=20, rule=rule, random_state=0)
    model.fit(np.concatenate([X[:10], X[:10]]), np.repeat([3, 7], 10))
    B, W, A = model._atoms[:10], model.label_components_[:10], model._code_atoms[:10]
    model._atoms, model.label_components_ = np.concatenate([B, B]), np.concatenate([W, W[:, ::-1]])
    model._code_atoms = np.concatenate([A, A[:, ::-1]])
    scores = model.decision_function(new)
    if rule in ("regularized", "joint"):  # a lasso over twin atoms may take either
        assert_allclose(scores, 0, atol=1e-5)
    zero = np.zeros_like(new[:1])
    assert model.decision_function(zero)[0] == 0
    assert model.predict(zero)[0] == 3


def test_labels_at_once_change_nothing(digits, fitted, monkeypatch):
    expected = at(fitted, rule="joint").decision_function(digits[2])
    for rows in (1, 150, 10_000):
        monkeypatch.setattr(joint_module, "chunk_size", lambda *args, rows=rows: rows)
        assert_allclose(at(fitted, rule="joint").decision_function(digits[2]), expected, atol=1e-12)


def test_large_samples_have_meaningful_differences(digits):
    """Not normalised, samples of norm 1e3 beside labels of norm 0.1: gaps are relative to the latter."""
    X, y, new, _ = digits
    X, new = 1e3 * unit(X), 1e3 * unit(new[:5])
    model = LEDLClassifier(
        rule="joint", normalize=False, alpha=15.0, label_weight=0.01, code_weight=0.0, max_iter=5, tol=0
    ).fit(X, y)
    exact = at(model, transform_tol=1e-9).decision_function(new)
    assert_allclose(model.decision_function(new), exact, atol=2e-8 + 1e-6 * 0.01)


def test_gaps_that_are_missed_are_told(digits, fitted, monkeypatch):
    def tired(*args, start, **options):
        codes, info = joint_lasso(*args, start=start, max_iter=1, **options)
        return codes, info

    joint_lasso = joint_module.lasso
    monkeypatch.setattr(joint_module, "lasso", tired)
    with pytest.warns(ConvergenceWarning, match=r"of \d+ scores did not reach the duality gap.*transform_tol"):
        at(fitted, rule="joint").predict(digits[2])


@pytest.mark.torch
@pytest.mark.parametrize("rule", RULES)
def test_tensors_give_the_scores_of_arrays(digits, fitted, rule):
    import torch

    model = at(fitted, rule=rule, transform_tol=1e-6 if rule == "joint" else 1e-10)
    scores = model.decision_function(torch.as_tensor(digits[2]))
    assert torch.is_tensor(scores)
    assert_allclose(scores.numpy(), model.decision_function(digits[2]), atol=2e-6)


def test_float32_is_near_float64(digits, fitted):
    model = at(fitted, rule="joint")
    single = model.decision_function(digits[2].astype(np.float32))
    assert single.dtype == np.float32
    assert_allclose(single, model.decision_function(digits[2]), atol=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_files_keep_the_rule(digits, fitted, rule, tmp_path):
    model = at(fitted, rule=rule, ridge_alpha=0.2)
    save(model, tmp_path / "model.ledl")
    loaded = load(tmp_path / "model.ledl")
    assert (loaded.rule, loaded.ridge_alpha) == (rule, 0.2)
    assert_array_equal(loaded.decision_function(digits[2]), model.decision_function(digits[2]))


@pytest.mark.parametrize("rule", RULES)
def test_rejection_scores_by_the_rule(digits, rule):
    X, y, new, _ = digits
    model = LEDLClassifier(rule=rule, max_iter=5, tol=0, random_state=0)
    rejecting = RejectingClassifier(model, reject=0.0, cv=2).fit(X[:15], y[:15])
    assert_array_equal(rejecting.predict(new), rejecting.estimator_.predict(new))


def test_a_search_over_rules_trains_once(digits, monkeypatch):
    problems = []
    solve = ledl_solver.solve

    def counted(blocks, start, **options):
        problems.append(len(start.M))
        return solve(blocks, start, **options)

    monkeypatch.setattr("ledl.model_selection.solve", counted)
    grid = {"rule": RULES, "transform_alpha": [None, 0.1], "ridge_alpha": [0.1, 1.0]}
    model = LEDLClassifier(max_iter=3, tol=0, random_state=0)
    X, y = digits[0][:22], digits[1][:22]
    search = BatchedSearchCV(model, grid, cv=2, refit=False).fit(X, y)
    assert len(search.cv_results_["params"]) == 16
    assert sum(problems) == 2


def test_a_rule_that_cannot_score_fails_alone(digits):
    grid = [
        {"rule": ["classifier", "joint"]},
        {"rule": ["regularized"], "ridge_alpha": [0.1, 1e-300]},
    ]
    model = LEDLClassifier(label_weight=0.0, code_weight=0.0, max_iter=3, tol=0, random_state=0)
    X, y = np.tile(digits[0][:20], (3, 1)), np.tile(digits[1][:20], 3)  # copies, so dependent atoms
    with pytest.warns(FitFailedWarning, match=r"4 of 8 fits failed.*label_weight=0.*Raise ridge_alpha"):
        search = BatchedSearchCV(model, grid, cv=2, refit=False).fit(X, y)
    assert_array_equal(np.isnan(search.cv_results_["mean_test_score"]), [False, True, False, True])


def test_the_scorer_has_one_gram_matrix_for_all_labels(digits, fitted, monkeypatch):
    made = []
    gram = joint_module.gram
    monkeypatch.setattr(joint_module, "gram", lambda *args: made.append(1) or gram(*args))
    monkeypatch.setattr("ledl.coding.chunk_size", lambda *args: 7)
    at(fitted, rule="joint").decision_function(digits[2])
    assert len(made) == 1
