"""LEDL's rules against their formulas in plain NumPy."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import FitFailedWarning

from helpers import oracles
from helpers.problems import unit
from ledl import BatchedSearchCV, CRCClassifier, LEDLClassifier, RejectingClassifier, load, save
from ledl.coding import Ridge
from ledl.datasets import few_shot_splits
from ledl.dictionary import FittedDictionary, ResidualRule, class_residuals
from ledl.solvers import ledl as ledl_solver
from ledl.subspace import AS_THEY_ARE, IdentitySubspace

RULES = ["classifier", "residual", "regularized"]


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


# Classes of few atoms, of many, and of both, over 12 coordinates; the last has more classes than fits at once.
SIZES = {"few": [3, 2, 3], "many": [9, 20, 9], "both": [1, 30, 3, 4, 30], "lopsided": [300, 5, 5, 5, 5]}


@pytest.mark.parametrize("order", ["class by class", "mixed"])
@pytest.mark.parametrize("sizes", SIZES)
def test_residuals_are_those_of_each_class_however_many_atoms_it_has(sizes, order, rng):
    labels = np.repeat(np.arange(len(SIZES[sizes])), SIZES[sizes])
    labels = labels if order == "class by class" else rng.permutation(labels)
    D, codes, X = (rng.standard_normal(shape) for shape in ((len(labels), 12), (6, len(labels)), (6, 12)))
    classes = np.arange(len(SIZES[sizes]))
    dictionary = FittedDictionary(
        IdentitySubspace(), D, AS_THEY_ARE, Ridge(0.1), ResidualRule(), classes, labels
    )
    for _ in range(2):  # the second time with what is kept
        found, norms = class_residuals(dictionary, codes, X, np.sum(X**2, axis=1))
        assert_allclose(found, oracles.class_residuals(D, labels, X, codes), rtol=1e-12)
        assert_allclose(norms, [[np.linalg.norm(s[labels == j]) for j in classes] for s in codes])


@pytest.mark.parametrize("rule", ["residual", "regularized"])
def test_predictions_from_large_classes_take_little_memory(rule, rng):
    X, y = rng.random((6000, 16)), np.arange(6000) % 2
    model = CRCClassifier(rule=rule).fit(X, y)
    tracemalloc.start()
    try:
        model.predict(X[:1])
        assert tracemalloc.get_traced_memory()[1] < 4 * X.nbytes  # products of all pairs in a class: 187 times
    finally:
        tracemalloc.stop()


def test_products_of_the_atoms_of_small_classes_are_made_once(digits):
    X, y, new, _ = digits
    model = CRCClassifier().fit(X[y < 3], y[y < 3])  # 5 samples each, and 15 coordinates
    assert [group.products for group in model.dictionary_.groups] == [None]
    model.fit(X, y)
    model.predict(new)
    kept = model.dictionary_.groups
    assert {group.products.shape[1:] for group in kept} == {(m, m) for m in np.bincount(y)}
    model.predict(new)
    assert model.dictionary_.groups is kept


def test_parts_of_scores_add_up_for_classes_of_any_size(rng):
    X, y = rng.random((300, 40)), np.repeat([0, 1, 2, 3], [250, 40, 5, 5])
    for rule in ("residual", "regularized"):
        dictionary = CRCClassifier(rule=rule).fit(X, y).dictionary_
        for x in rng.random((5, 1, 40)):
            base, parts = dictionary.contributions(*dictionary.code_one(x))
            assert_allclose(base + parts.sum(axis=0), dictionary.scores(x)[0], rtol=1e-12, atol=1e-12)


def test_regularized_over_samples_is_crc(digits):
    """With the samples as atoms, by a start that training does not move away from them."""
    X, y, new, _ = digits
    crc = CRCClassifier(rule="regularized", alpha=0.1).fit(X, y)
    ledl = LEDLClassifier(n_components=len(X), max_iter=1, tol=0, rule="regularized", ridge_alpha=0.1).fit(X, y)
    order = np.argsort(y, kind="stable")  # LEDL's atoms are class by class
    ledl._dictionary = replace(ledl._dictionary, atoms=crc.dictionary_.atoms[order], kept={})
    assert_array_equal(ledl.atom_classes_, y[order])
    assert_allclose(ledl.decision_function(new), crc.decision_function(new), rtol=1e-9)


def test_a_weight_of_the_ridge_that_is_too_small_is_told(digits, fitted):
    model = at(fitted, rule="regularized", ridge_alpha=1e-300)
    atoms = np.repeat(fitted.dictionary_.atoms[:5], len(fitted.atom_classes_) // 5, axis=0)  # dependent ones
    labels = np.arange(len(atoms)) % len(model.classes_)
    model._dictionary = replace(fitted.dictionary_, atoms=atoms, atom_labels=labels, kept={})
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


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
@pytest.mark.parametrize("rule", RULES)
def test_classes_that_are_alike_tie_and_the_first_wins(digits, rule):
    """Two classes of the same samples, and atoms that are made alike."""
    X, _, new, _ = digits
    model = LEDLClassifier(n_components=20, rule=rule, random_state=0)
    model.fit(np.concatenate([X[:10], X[:10]]), np.repeat([3, 7], 10))
    B, W = model.dictionary_.atoms[:10], model.label_components_[:10]
    model.label_components_ = np.concatenate([W, W[:, ::-1]])
    model._dictionary = replace(model.dictionary_, atoms=np.concatenate([B, B]), kept={})
    scores = model.decision_function(new)
    if rule == "regularized":  # a lasso over twin atoms may take either
        assert_allclose(scores, 0, atol=1e-5)
    zero = np.zeros_like(new[:1])
    assert model.decision_function(zero)[0] == 0
    assert model.predict(zero)[0] == 3


@pytest.mark.torch
@pytest.mark.parametrize("rule", RULES)
def test_tensors_give_the_scores_of_arrays(digits, fitted, rule):
    import torch

    model = at(fitted, rule=rule, transform_tol=1e-10)
    scores = model.decision_function(torch.as_tensor(digits[2]))
    assert torch.is_tensor(scores)
    assert_allclose(scores.numpy(), model.decision_function(digits[2]), atol=2e-6)


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

    monkeypatch.setattr("ledl.model_selection._batched_search.solve", counted)
    grid = {"rule": RULES, "transform_alpha": [None, 0.1], "ridge_alpha": [0.1, 1.0]}
    model = LEDLClassifier(max_iter=3, tol=0, random_state=0)
    X, y = digits[0][:22], digits[1][:22]
    search = BatchedSearchCV(model, grid, cv=2, refit=False).fit(X, y)
    assert len(search.cv_results_["params"]) == 12
    assert sum(problems) == 2


def test_a_rule_that_cannot_score_fails_alone(digits):
    grid = [
        {"rule": ["classifier"]},
        {"rule": ["regularized"], "ridge_alpha": [0.1, 1e-300]},
    ]
    model = LEDLClassifier(label_weight=0.0, code_weight=0.0, max_iter=3, tol=0, random_state=0)
    X, y = np.tile(digits[0][:20], (3, 1)), np.tile(digits[1][:20], 3)  # copies, so dependent atoms
    with pytest.warns(FitFailedWarning, match=r"[12] of 6 fits failed.*Raise ridge_alpha"):
        search = BatchedSearchCV(model, grid, cv=2, refit=False).fit(X, y)
    assert_array_equal(np.isnan(search.cv_results_["mean_test_score"]), [False, False, True])


def test_settings_that_change_leave_nothing_behind(digits, fitted):
    model = at(fitted, rule="regularized")
    model.predict(digits[2][:2])
    n_kept = len(model.dictionary_.kept)
    for value in (0.1, 0.2, 0.3):
        model.set_params(ridge_alpha=value).predict(digits[2][:2])
    assert len(model.dictionary_.kept) == n_kept


def test_atoms_that_users_see_cannot_be_changed_behind_what_is_kept():
    X, y = load_digits(return_X_y=True)
    model = LEDLClassifier(n_components=20, max_iter=2, tol=0, random_state=0).fit(X[:80], y[:80])
    with pytest.raises(ValueError, match="read-only"):
        model.components_ *= 2


def test_large_numbers_are_no_reason_to_warn(fitted, digits):
    with np.errstate(all="raise"):
        large = (digits[2] * 1e37).astype(np.float32)
        assert_array_equal(fitted.predict(large), fitted.predict(digits[2].astype(np.float32)))


def test_evidence_of_many_classes_takes_little_memory(rng):
    """Sums over the atoms of each class need no matrix of atoms and classes."""
    X, y = rng.random((3000, 8)), np.arange(3000) % 1500
    dictionary = CRCClassifier().fit(X, y).dictionary_
    dictionary.judge(X[:2])
    tracemalloc.start()
    dictionary.judge(X[:2])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 3000 * 1500 / 4
