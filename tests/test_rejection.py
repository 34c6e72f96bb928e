"""None of these: the measures by their definitions, the threshold by its rate, and what cannot be done."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, RepeatedStratifiedKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ledl import (
    CRCClassifier,
    DKSVDClassifier,
    LEDLClassifier,
    LEDLClassifierCV,
    RejectingClassifier,
    SemiSupervisedClassifier,
    SRCClassifier,
    explain,
)
from ledl.rejection import judge, judging_folds, least_share

OURS = [
    SRCClassifier(),
    CRCClassifier(),
    LEDLClassifier(random_state=0),
    LEDLClassifier(kernel="rbf", random_state=0),
    DKSVDClassifier(n_nonzero_coefs=5, random_state=0),
]


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


@pytest.fixture(scope="module")
def known(digits):
    X, y = digits
    return X[y < 5], y[y < 5]


@parametrize_with_checks([RejectingClassifier(SRCClassifier(), reject=0.0)])
def test_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("model", OURS, ids=str)
def test_evidence_is_what_it_says_of_models_that_have_not_seen_a_sample(model, known):
    X, y = known[0][:60], known[1][:60]
    fitted = RejectingClassifier(model, cv=4).fit(X, y)
    for train, test in StratifiedKFold(4).split(X, y):
        alone = clone(model).fit(X[train], y[train])
        codes, c = alone.transform(X[test]), len(alone.classes_)
        np.testing.assert_array_equal(fitted.cv_predictions_[test], alone.predict(X[test]))
        for code, found in zip(codes, fitted.evidence_[test], strict=True):
            sizes = [np.abs(code[alone.atom_classes_ == label]).sum() for label in alone.classes_]
            expected = (c * max(sizes) / sum(sizes) - 1) / (c - 1)
            np.testing.assert_allclose(found[0], expected, atol=1e-10)
    if model.get_params().get("kernel", "linear") == "linear":
        x = X[test][0] / np.linalg.norm(X[test][0])
        parts = [alone.atom_classes_ == label for label in alone.classes_]
        rests = [x - codes[0][own] @ alone.components_[own] for own in parts]
        nearest = min(rest @ rest for rest in rests)
        np.testing.assert_allclose(fitted.evidence_[test][0, 1], nearest, atol=1e-10)


@pytest.mark.parametrize("model", OURS, ids=str)
def test_other_classes_are_told_from_the_known_ones(model, digits, known):
    X, y = digits
    fitted = RejectingClassifier(model).fit(known[0][:100], known[1][:100])
    novelty = fitted.novelty(np.concatenate([known[0][100:], X[y >= 5]]))
    is_other = np.arange(len(novelty)) >= len(known[0]) - 100
    assert roc_auc_score(is_other, novelty) > 0.85


@pytest.mark.parametrize("reject", [0.02, 0.1, 0.3])
def test_about_as_many_known_samples_are_rejected_as_asked_for(known, reject):
    """Over random draws of the training samples, so that luck averages out."""
    X, y = known
    rates = []
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[:150], order[150:]
        fitted = RejectingClassifier(CRCClassifier(), reject=reject).fit(X[train], y[train])
        rates.append(np.mean(fitted.predict(X[test]) == -1))
    assert 0.4 * reject < np.mean(rates) < 1.6 * reject


def test_p_values_are_ranks_among_the_training_samples(known):
    X, y = known
    fitted = RejectingClassifier(SRCClassifier()).fit(X[:100], y[:100])
    mean, std = fitted.evidence_.mean(axis=0), fitted.evidence_.std(axis=0)
    usual = -(fitted.evidence_[:, 0] - mean[0]) / std[0] + (fitted.evidence_[:, 1] - mean[1]) / std[1]
    novelty = fitted.novelty(X[100:130])
    expected = [(1 + np.sum(usual >= one)) / 101 for one in novelty]
    np.testing.assert_allclose(fitted.p_values(X[100:130]), expected)
    for measure, sign, column in (("concentration", -1, 0), ("residual", 1, 1)):
        alone = clone(fitted).set_params(measure=measure).fit(X[:100], y[:100])
        order = np.argsort(alone.novelty(X[:100]))
        assert (np.diff(sign * fitted_evidence(alone, X[:100])[order, column]) >= -1e-12).all()


def test_training_samples_that_are_all_alike_give_p_values():
    """Two samples of each class, of one direction: evidence is all the same, with no spread to compare by."""
    X = np.repeat(np.eye(6)[:3], 2, axis=0) * np.tile([[1], [2]], (3, 1))
    fitted = RejectingClassifier(CRCClassifier(), cv=2).fit(X, np.repeat([0, 1, 2], 2))
    assert not np.ptp(fitted.evidence_, axis=0).any()
    with np.errstate(all="raise"):
        p_values = fitted.p_values(np.stack([X[0], X[0] + X[2]]))
    np.testing.assert_allclose(p_values, [1, 1 / 7])  # as usual as all others, and less usual than any


def fitted_evidence(fitted, X):
    return judge(fitted.estimator_, X)[1]


def test_labels_of_every_kind(known):
    X, y = known[0][:60], known[1][:60]
    strange = np.random.default_rng(0).standard_normal((4, 64))
    for labels, rejected in (
        (y, -1),
        (y.astype(np.uint8), -1),
        (y.astype(float), -1),
        (np.array(list("abcde"))[y], "none of these"),
        (y > 2, -1),
        (y - 3, -4),
    ):
        fitted = RejectingClassifier(SRCClassifier(), reject=0.5).fit(X, labels)
        said = set(fitted.predict(np.concatenate([X, strange])).tolist())
        assert rejected in said
        assert said <= {rejected, *labels.tolist()}
    fitted = RejectingClassifier(SRCClassifier(), reject=0.5, reject_label="?").fit(
        X, np.array(list("abcde"))[y]
    )
    assert "?" in fitted.predict(strange)
    assert (fitted.set_params(reject=0.0).predict(strange) != "?").all()


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
def test_nothing_is_rejected_at_zero_and_a_black_image_soon(known):
    X, y = known[0][:60], known[1][:60]
    fitted = RejectingClassifier(SRCClassifier(), reject=0.0).fit(X, y)
    np.testing.assert_array_equal(fitted.predict(X), fitted.estimator_.predict(X))
    assert fitted.set_params(reject=0.05).predict(np.zeros((1, 64)))[0] == -1


def test_with_pipelines_and_precomputed_kernels(known):
    X, y = known[0][:60], known[1][:60]
    inside = RejectingClassifier(make_pipeline(StandardScaler(), SRCClassifier())).fit(X, y)
    assert len(inside.p_values(X)) == 60
    gram = rbf_kernel(X, gamma=1e-3)
    given = RejectingClassifier(SRCClassifier(kernel="precomputed", normalize=False)).fit(gram, y)
    rbf = RejectingClassifier(SRCClassifier(kernel="rbf", gamma=1e-3, normalize=False)).fit(X, y)
    np.testing.assert_allclose(given.evidence_, rbf.evidence_, atol=1e-6)


def test_a_class_with_one_sample_is_learnt_from_and_not_judged(known):
    X, y = known[0][:60], known[1][:60]
    y = np.where(np.arange(60) == 7, 9, y)
    fitted = RejectingClassifier(SRCClassifier()).fit(X, y)
    np.testing.assert_array_equal(fitted.judged_, np.delete(np.arange(60), 7))
    assert len(fitted.evidence_) == len(fitted.cv_predictions_) == 59
    assert np.isfinite(fitted.evidence_).all()
    assert fitted.predict(X[7:8])[0] == 9
    assert 0 < fitted.p_values(X[7:8])[0] <= 1


@pytest.mark.parametrize("wrap", [make_pipeline, lambda model: model], ids=["pipeline", "alone"])
def test_a_search_runs_once_and_keeps_its_probabilities(known, wrap):
    X, y = known[0][:40], known[1][:40]
    search = LEDLClassifierCV(alpha=[2**-4, 2**-7], kernels="linear", max_iter=5, tol=0, random_state=0)
    fitted = RejectingClassifier(wrap(search), cv=4).fit(X, y)
    alone = search.fit(X, y)
    np.testing.assert_array_equal(fitted.predict_proba(X), alone.predict_proba(X))
    for train, test in StratifiedKFold(4).split(X, y):
        settled = clone(alone.best_estimator_).fit(X[train], y[train])
        np.testing.assert_array_equal(fitted.cv_predictions_[test], settled.predict(X[test]))
    assert not hasattr(RejectingClassifier(SRCClassifier()).fit(X, y), "predict_proba")


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_what_cannot_be_done_is_told(known):
    X, y = known[0][:60], known[1][:60]
    lonely = np.arange(60)
    cases = [
        (RejectingClassifier(LogisticRegression()), y, TypeError, "no atoms"),
        (RejectingClassifier(SRCClassifier()), lonely, ValueError, "Every class has one sample only"),
        (RejectingClassifier(SRCClassifier(), reject=1.5), y, ValueError, "reject"),
        (RejectingClassifier(SRCClassifier(), reject_label=3), y, ValueError, "label of a class"),
        (RejectingClassifier(SRCClassifier(), reject_label="none"), y, ValueError, "numbers"),
        (RejectingClassifier(SRCClassifier(), reject_label=np.nan), y, ValueError, "finite"),
        (RejectingClassifier(SRCClassifier()), y.astype("datetime64[D]"), ValueError, "astype"),
        (RejectingClassifier(SRCClassifier(), cv=HalfOfThem(3)), y, ValueError, "0 times"),
    ]
    for model, labels, error, message in cases:
        with pytest.raises(error, match=message):
            model.fit(X, labels)


def test_logarithms_are_there_if_the_classifier_has_them(known):
    X, y = known[0][:60], known[1][:60]
    partly = np.where(np.arange(60) < 30, y, -1)
    semi = RejectingClassifier(SemiSupervisedClassifier(LEDLClassifier(random_state=0), random_state=0))
    semi.fit(X, partly)
    assert hasattr(semi, "predict_proba")
    assert not hasattr(semi, "predict_log_proba")


def test_splitters_that_cannot_judge_are_refused(known):
    X, y = known[0][:60], np.sort(known[1][:60])
    with pytest.raises(ValueError, match="without training samples of the class"):
        RejectingClassifier(SRCClassifier(), cv=KFold(5)).fit(X, y)
    with pytest.raises(ValueError, match="2 times"):
        RejectingClassifier(SRCClassifier(), cv=RepeatedStratifiedKFold(n_splits=3, n_repeats=2)).fit(X, y)
    RejectingClassifier(SRCClassifier(), cv=StratifiedKFold(3, shuffle=True, random_state=0)).fit(X, y)


def test_a_share_that_so_few_samples_cannot_tell_is_warned_of(known):
    fitted = RejectingClassifier(SRCClassifier(), reject=0.05).fit(known[0][:15], np.arange(15) % 3)
    with pytest.warns(UserWarning, match=r"Set it to 0.0625 or more"):
        assert (fitted.predict(np.random.default_rng(0).standard_normal((5, 64))) != -1).all()


@pytest.mark.parametrize("n", [1, 9, 15, 18, 99, 105, 12_345, 10**6])
def test_the_share_that_is_advised_is_large_enough_as_it_is_printed(n):
    assert 1 / (n + 1) <= float(f"{least_share(n):g}") <= 1.01 / (n + 1)


def test_the_threshold_counts_ties_as_unlike(known):
    """A sample that is as unlike as the only training sample so far has a share of all that are."""
    X, y = known
    fitted = RejectingClassifier(SRCClassifier()).fit(X[:100], y[:100])
    most = fitted._unlikeness(fitted.evidence_).argmax()
    p = fitted.p_values_of(fitted.evidence_[most : most + 1])[0]
    np.testing.assert_allclose(p, 2 / 101)
    fitted.set_params(reject=float(fitted.p_values(X[100:101])[0]))  # just so many
    assert explain(fitted, X[100]).rejected
    assert fitted.predict(X[100:101])[0] == -1


def test_copies_are_judged_once_by_models_without_them(known):
    """Models that knew a copy of each judged sample found every new sample unlike all classes."""
    X, y = known[0][:60], known[1][:60]
    once = RejectingClassifier(SRCClassifier()).fit(X, y)
    twice = RejectingClassifier(SRCClassifier()).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    np.testing.assert_array_equal(twice.judged_, 2 * once.judged_)
    # SRC: each copy is an atom, so that codes are shared among them, and residuals are the same.
    np.testing.assert_allclose(twice.evidence_, once.evidence_, atol=1e-4)
    X_new = known[0][60:400]
    assert np.mean(twice.predict(X_new) == -1) == pytest.approx(np.mean(once.predict(X_new) == -1), abs=0.01)
    # A label that contradicts another makes no copy, and one copy may have the weight zero.
    weights = np.ones(122)
    weights[[0, 2]] = 0
    X, y = np.vstack([np.repeat(X, 2, axis=0), X[:2]]), np.append(np.repeat(y, 2), [4, 4])
    judged = RejectingClassifier(CRCClassifier()).fit(X, y, sample_weight=weights).judged_
    assert judged.tolist() == [1, 3, *range(4, 120, 2), 120, 121]


def test_copies_alone_cannot_be_judged(known):
    """Judged by models that knew a copy, they made every new sample unlike all classes."""
    _, first = np.unique(known[1], return_index=True)
    X, y = np.repeat(known[0][first], 3, axis=0), np.repeat(known[1][first], 3)
    with pytest.raises(ValueError, match="Every class has one sample only, apart from exact copies"):
        RejectingClassifier(SRCClassifier(), reject=0.1).fit(X, y)


def test_copies_are_found_in_lists_and_tables_too(known):
    X, y = known[0][:60], known[1][:60]
    X_twice, y_twice = np.repeat(X, 2, axis=0), np.repeat(y, 2)
    mixed = pd.DataFrame(X_twice).assign(bright=np.repeat(X.mean(axis=1) > X.mean(), 2))
    mixed.columns = mixed.columns.astype(str)
    signed = np.where(np.arange(120)[:, None] % 2 & (X_twice == 0), -0.0, X_twice)
    for samples in (X_twice.tolist(), mixed, mixed.to_numpy(), signed):
        judged = RejectingClassifier(CRCClassifier()).fit(samples, y_twice).judged_
        np.testing.assert_array_equal(judged, np.arange(0, 120, 2))


@pytest.mark.parametrize(
    "samples",
    [
        pd.DataFrame({"text": [f"{zero}{k}" for k in range(6) for zero in ("", "0")], "number": 1}),
        [["a", "b"], ["a"], ["b", "c", "c"], ["b"]] * 3,
        np.array([[1 + 1j], [1 + 2j], [2 + 1j], [2 + 2j]] * 3),
    ],
    ids=["text", "lists", "complex"],
)
def test_samples_that_are_no_numbers_have_no_copies(samples):
    folds = judging_folds(5, samples, np.arange(12) // 2 % 2)
    assert sorted(np.concatenate([test for _, test in folds])) == [*range(12)]


def test_samples_on_a_cluster_are_not_collected_to_find_copies():
    da, delayed = pytest.importorskip("dask.array"), pytest.importorskip("dask").delayed
    samples = da.from_delayed(delayed(pytest.fail)("collected"), (12, 3), dtype=float)
    assert len(judging_folds(5, samples, np.arange(12) % 2)) == 5


def test_atoms_without_classes_count_for_the_class_of_their_largest_weight(known):
    X, y = known[0][:60], known[1][:60]
    model = DKSVDClassifier(init="all", n_nonzero_coefs=5, random_state=0).fit(X, y)
    owners = model.dictionary_.atom_labels
    for k, weights in enumerate(model.label_components_):
        assert owners[k] == max(range(5), key=lambda j: weights[j])
    assert len(set(owners)) > 1


def test_parameters_that_are_set_later_are_checked(known):
    fitted = RejectingClassifier(SRCClassifier()).fit(known[0][:60], known[1][:60])
    with pytest.raises(ValueError, match="reject"):
        fitted.set_params(reject=2.0).predict(known[0][:5])


def test_through_pipelines_in_pipelines(known):
    X, y = known[0][:60], known[1][:60]
    plain = RejectingClassifier(make_pipeline(StandardScaler(), SRCClassifier())).fit(X, y)
    nested = make_pipeline(
        "passthrough", RejectingClassifier(make_pipeline(make_pipeline(StandardScaler()), SRCClassifier()))
    ).fit(X, y)
    np.testing.assert_array_equal(nested[-1].evidence_, plain.evidence_)
    np.testing.assert_allclose(explain(nested, X[0]).scores, explain(plain, X[0]).scores)
    tail = make_pipeline(StandardScaler(), make_pipeline(SRCClassifier())).fit(X, y)
    np.testing.assert_allclose(explain(tail, X[0]).scores, tail.decision_function(X[:1])[0], atol=1e-12)


class HalfOfThem(KFold):
    def split(self, X, y=None, groups=None):
        yield from list(super().split(X, y, groups))[:2]


@pytest.fixture(scope="module")
def partly(digits):
    """The first 400 digits. Five samples of each of the digits 0 to 4 have labels, the others have none."""
    X, y = digits[0][:400], digits[1][:400]
    known = np.concatenate([np.flatnonzero(y == label)[:5] for label in range(5)])
    return X, np.where(np.isin(np.arange(400), known), y, -1)


@pytest.mark.parametrize("steps", [(), (StandardScaler(),)], ids=["alone", "pipeline"])
def test_a_semi_supervised_classifier_rejects_by_its_reach(steps, digits, partly):
    (X, y), new = partly, digits[0][400:600]
    model = RejectingClassifier(
        make_pipeline(*steps, SemiSupervisedClassifier(SRCClassifier(), random_state=0))
    )
    model.fit(X, y)
    scaled = new
    for step in steps:  # which saw all samples
        scaled = clone(step).fit(X).transform(new)
    inner = model.estimator_[-1]
    np.testing.assert_array_equal(model.judged_, np.flatnonzero(y >= 0))
    usual = inner.hidden_evidence_
    atoms = inner.estimator_.dictionary_.judge(scaled, None, None)[1]
    evidence = np.concatenate([inner.reach_(scaled), atoms], axis=1)
    np.testing.assert_array_equal(evidence[:, 0], inner.reach(scaled))

    def novelty(evidence):
        unlike = (evidence - usual.mean(axis=0)) / usual.std(axis=0) * [-1, 1, -1, 1]
        return np.maximum(unlike[:, 0], unlike[:, 1]) + (unlike[:, 2] + unlike[:, 3]) / 2**0.5

    known = novelty(usual)
    wanted = [(np.sum(known >= one - 1e-9) + 1) / (len(usual) + 1) for one in novelty(evidence)]
    np.testing.assert_allclose(model.p_values(new), wanted)
    # The answers are those of the semi-supervised model.
    np.testing.assert_array_equal(model.cv_scores_, inner.hidden_scores_[np.argsort(inner.hidden_rows_)])
    np.testing.assert_array_equal(model.predict_proba(new), inner.predict_proba(scaled))
    labels, is_kept = model.predict(new), model.p_values(new) > 0.05
    np.testing.assert_array_equal(labels[is_kept], inner.predict(scaled)[is_kept])
    assert set(labels[~is_kept]) == {-1}


def test_labels_reach_samples_of_unknown_classes_less(digits, partly):
    """Better than the supervised classifier sees them: it does not know the samples without labels."""
    (X, y), (new, truth) = partly, (digits[0][400:800], digits[1][400:800])
    model = RejectingClassifier(SemiSupervisedClassifier(SRCClassifier(), random_state=0)).fit(X, y)
    alone = RejectingClassifier(SRCClassifier()).fit(X[y >= 0], y[y >= 0])
    found = roc_auc_score(truth >= 5, -model.estimator_.reach(new))
    assert found > roc_auc_score(truth >= 5, alone.novelty(new)) + 0.03
    # Samples that are like no digit at all: shuffled pixels, noise, a chessboard.
    rng = np.random.default_rng(0)
    aliens = [
        *rng.permuted(new[:20], axis=1),
        *rng.integers(17, size=(20, 64)),
        np.indices((8, 8)).sum(0).ravel() % 2,
    ]
    assert (model.p_values(np.array(aliens, dtype=float)) < 0.05).all()
    any_classifier = RejectingClassifier(SemiSupervisedClassifier(LogisticRegression(), random_state=0)).fit(
        X, y
    )
    assert roc_auc_score(truth >= 5, -any_classifier.estimator_.reach(new)) == pytest.approx(found, abs=0.02)


@pytest.mark.parametrize("steps", [[], [StandardScaler()]], ids=["classifier", "pipeline"])
def test_a_search_within_a_semi_supervised_classifier_rejects_by_its_choice(steps, partly):
    name = "crcclassifier__alpha" if steps else "alpha"
    inner = make_pipeline(*steps, CRCClassifier()) if steps else CRCClassifier()
    search = GridSearchCV(inner, {name: [0.1, 1.0]}, cv=2)
    model = RejectingClassifier(SemiSupervisedClassifier(search, random_state=0)).fit(*partly)
    assert model.evidence_.shape[1] == (2 if steps else 4)
    assert len(model.predict(partly[0][:3])) == len(model.p_values(partly[0][:3])) == 3


def test_labels_that_are_text_may_be_missing(digits, partly):
    (X, numbers), names = partly, np.array(["none", "one", "two", "three", "four", "five"], dtype=object)
    y = np.where(numbers >= 0, names[numbers], -1)
    model = RejectingClassifier(SemiSupervisedClassifier(CRCClassifier(), random_state=0), reject=0.2)
    found = set(model.fit(X, y).predict(digits[0][400:600]))
    assert "none of these" in found
    assert found <= {*names, "none of these"}
    assert clone(model).get_params().keys() == model.get_params().keys()


def test_one_label_of_each_class_judges_nothing(partly):
    X, y = partly
    firsts = [np.flatnonzero(y == label)[0] for label in range(5)]
    y = np.where(np.isin(np.arange(len(y)), firsts), y, -1)
    with (
        pytest.warns(UserWarning, match="more than one label"),
        pytest.raises(ValueError, match=r"could hide no label.*two labels of each class"),
    ):
        RejectingClassifier(SemiSupervisedClassifier(SRCClassifier())).fit(X, y)
