"""How codes become scores. A rule is a small class without state of its own: estimators inherit one, or let a
parameter choose among several (`ChosenScores`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ledl.arrays import Array, namespace, product
from ledl.coding import Coder, RidgeCoder, Samples
from ledl.joint import JointScorer
from ledl.objective import class_norms, class_residuals
from ledl.solvers.lasso import reachable

# Codes, coordinates and squared norms of samples to scores (n_samples, n_classes).
Rule: TypeAlias = Callable[[Array, Array, Array], Array]


class Scores:
    """What a rule is: `_rule`, and what its scores are made of, `_contributions`."""

    _rule_name: ClassVar[str] = "other"

    def _rule(self, codes: Array, X: Array, sq_norms: Array) -> Array:
        """Scores (n_samples, n_classes), the larger the better, of samples with these codes and coordinates."""
        raise NotImplementedError

    def _contributions(self, code: Array, x: Array, sq_norm: float) -> tuple[Array, Array]:
        """What the scores of one sample are made of: base values (c,), and what each atom adds, (K, c)."""
        raise NotImplementedError

    def _ready_rule(self) -> Rule:
        """`_rule` for many samples: what does not depend on them is done once, here."""
        return self._rule

    def _rule_coder(self, samples: Samples, threads: int) -> Coder:
        """Makes the codes that `_rule` takes: those of `transform`, unless a rule has its own."""
        model: Any = self
        coder: Coder = model._coder(samples, threads)
        return coder


class CodeScores(Scores):
    """Scores s W: code, then classify the code."""

    _rule_name = "classifier"
    label_components_: Array

    def _rule(self, codes: Array, X: Array, sq_norms: Array) -> Array:
        return product(codes, self.label_components_)

    def _contributions(self, code: Array, x: Array, sq_norm: float) -> tuple[Array, Array]:
        return np.zeros(self.label_components_.shape[1]), code[:, None] * self.label_components_


class ResidualScores(Scores):
    """Scores -|x - s_j D_j|^2: the class whose own atoms, with their codes, come nearest (the paper's (2))."""

    _rule_name = "residual"
    _atoms: Array
    _members: list[Array]

    def _rule(self, codes: Array, X: Array, sq_norms: Array) -> Array:
        return -class_residuals(codes, X, sq_norms, self._atoms, self._members)

    def _contributions(self, code: Array, x: Array, sq_norm: float) -> tuple[Array, Array]:
        """-|x - f_j|^2 = -|x|^2 + sum over the atoms d_k of class j of s_k <d_k, 2 x - f_j>, f_j = s_j D_j.

        What two atoms have in common in |f_j|^2 is halved between them: these are the Shapley values of the
        atoms, an atom that is left out having the code 0.
        """
        atoms, members = self._atoms.astype(np.float64, copy=False), self._members
        found = np.zeros((len(code), len(members)))
        for j, own in enumerate(members):
            fit = code[own] @ atoms[own]
            found[own, j] = code[own] * (atoms[own] @ (2 * x - fit))
        return np.full(len(members), -sq_norm), found


class RegularizedScores(ResidualScores):
    """Scores -|x - s_j D_j| / |s_j|: how near a class comes, and how much of the code is its own."""

    _rule_name = "regularized"

    def _rule(self, codes: Array, X: Array, sq_norms: Array) -> Array:
        scores = ResidualScores._rule(self, codes, X, sq_norms)
        xp, norms = namespace(codes), class_norms(codes, self._members)
        # A class that contributes nothing is as far as can be, not infinitely far; zero codes tell nothing.
        least = xp.finfo(norms.dtype).eps * xp.max(norms, axis=-1, keepdims=True)
        norms = xp.where(least > 0, xp.maximum(norms, least), xp.ones_like(norms))
        return -xp.sqrt(xp.clip(-scores, 0, None)) / norms

    def _contributions(self, code: Array, x: Array, sq_norm: float) -> tuple[Array, Array]:
        """-|r| / |s_j| = -|r|^2 / (|r| |s_j|): those of the residual, each divided by |r| |s_j|."""
        base, found = ResidualScores._contributions(self, code, x, sq_norm)
        scores = RegularizedScores._rule(self, code[None], x[None], np.array([sq_norm]))[0]
        squares = base + found.sum(axis=0)
        scale = np.divide(scores, squares, out=np.zeros_like(squares), where=squares < 0)
        return base * scale, found * scale


class RidgeScores(RegularizedScores):
    """The same with ridge codes over the atoms, for a model whose own codes are others."""

    ridge_alpha: float

    def _rule_coder(self, samples: Samples, threads: int) -> Coder:
        return RidgeCoder(samples.beside(self._atoms), self.ridge_alpha, "ridge_alpha")


class JointScores(Scores):
    """Scores -f_j, f_j being objective (1) of the sample with label j, minimised over codes: `ledl.joint`."""

    _rule_name = "joint"
    label_weight: float
    code_weight: float
    transform_tol: float
    label_components_: Array
    _alpha: float
    _atoms: Array
    _atom_labels: Array
    _code_atoms: Array

    def _rule(self, codes: Array, X: Array, sq_norms: Array) -> Array:
        return JointScores._ready_rule(self)(codes, X, sq_norms)

    def _ready_rule(self) -> Rule:
        scorer = joint_scorer(self)

        def rule(codes: Array, X: Array, sq_norms: Array) -> Array:
            scores, n_late = scorer(codes, X, sq_norms)
            if n_late:
                tol = reachable(self.transform_tol, codes)
                warnings.warn(
                    f"{n_late} of {scores.shape[0] * scores.shape[1]} scores did not reach the duality gap "
                    f"asked for (transform_tol={tol}, of half the squared norm of the label's targets). Raise "
                    "transform_tol or alpha.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            return scores

        return rule

    def _contributions(self, code: Array, x: Array, sq_norm: float) -> tuple[Array, Array]:
        """-f_j = -|t_j|^2 + sum_k (s_k <m_k, 2 t_j - s M> - 2 alpha |s_k|), s being the code with the label j.

        Shapley values of the atoms, an atom that is left out having the code 0.
        """
        found = list(joint_scorer(self).by_label(code[None], x[None], np.array([sq_norm])))
        return np.concatenate([one.base for one in found]), np.concatenate([one.gains for one in found]).T


def joint_scorer(model: Any) -> JointScorer:
    """What scores labels jointly with codes, at the weights that the model has now."""
    if not (model.label_weight or model.code_weight):
        raise ValueError(
            "rule='joint' compares labels by what they cost in the objective, but label_weight=0 and "
            "code_weight=0 make them cost nothing. Raise label_weight, or set another rule."
        )
    return JointScorer(
        model._atoms,
        model.label_components_,
        model._code_atoms,
        model._atom_labels,
        lam=model.label_weight,
        omega=model.code_weight,
        alpha=model._alpha,
        tol=model.transform_tol,
    )


class ChosenScores(Scores):
    """The rule that the parameter ``rule`` names, of those in the table ``_rules``."""

    _rules: ClassVar[dict[str, Any]]
    rule: str

    @property
    def _rule_name(self) -> str:  # type: ignore[override]
        return self.rule

    def _rule(self, codes: Array, X: Array, sq_norms: Array) -> Array:
        return self._rules[self.rule]._rule(self, codes, X, sq_norms)

    def _contributions(self, code: Array, x: Array, sq_norm: float) -> tuple[Array, Array]:
        found: tuple[Array, Array] = self._rules[self.rule]._contributions(self, code, x, sq_norm)
        return found

    def _ready_rule(self) -> Rule:
        rule: Rule = self._rules[self.rule]._ready_rule(self)
        return rule

    def _rule_coder(self, samples: Samples, threads: int) -> Coder:
        coder: Coder = self._rules[self.rule]._rule_coder(self, samples, threads)
        return coder
