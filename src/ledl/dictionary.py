"""A fitted dictionary: the one record that turns samples into codes, and codes into scores.

Every fitted classifier of this package holds a `FittedDictionary`. Code that needs more than labels (model
selection, rejection, explanations, Dask, model files) uses this record. Two small objects in it decide how
samples are coded and how codes become scores: settings of `ledl.coding`, and a rule of this module.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from ledl.arrays import (
    Array,
    as_array,
    class_sums,
    float32_products,
    is_torch,
    namespace,
    product,
    row_squares,
    to_host,
)
from ledl.coding import Lasso, Samples, Settings, code_in_chunks
from ledl.parallel import n_threads, one_blas_thread
from ledl.subspace import FeatureMap, KernelSpace, Subspace

# Products of the atoms of a class replace its fits if coordinates are at least so many times as many as atoms.
PRODUCTS = 4


class Rule(Protocol):
    """Turn codes into scores, the larger the better, and split scores into the parts of atoms."""

    name: str
    coder: Settings | None  # settings of the codes; None means those of the dictionary

    def scores(self, dictionary: FittedDictionary, codes: Array, X: Array, sq_norms: Array) -> Array:
        """Return scores (n, c) of samples with codes (n, K), coordinates (n, r) and squared norms (n,)."""

    def contributions(
        self, dictionary: FittedDictionary, code: Array, x: Array, sq_norm: float
    ) -> tuple[Array, Array]:
        """Return the parts of the scores of one sample: base values (c,), and the part of each atom, (K, c)."""


@dataclass(frozen=True, eq=False)
class ClassifierRule:
    """Score by s W: classify the code."""

    weights: Array  # W, (K, c)
    name: ClassVar[str] = "classifier"
    coder: ClassVar[None] = None

    def scores(self, dictionary: FittedDictionary, codes: Array, X: Array, sq_norms: Array) -> Array:
        return product(codes, self.weights)

    def contributions(
        self, dictionary: FittedDictionary, code: Array, x: Array, sq_norm: float
    ) -> tuple[Array, Array]:
        return np.zeros(self.weights.shape[1]), code[:, None] * self.weights


@dataclass(frozen=True, eq=False)
class RidgeRule(ClassifierRule):
    """Score by s W with ridge codes s, which are linear in the sample."""

    coder: Settings | None = None  # type: ignore[misc, assignment]
    name: ClassVar[str] = "ridge"


@dataclass(frozen=True)
class ResidualRule:
    """Score by -|x - s_j D_j|^2: the class whose atoms, with their codes, come nearest (the paper's (2))."""

    name: ClassVar[str] = "residual"
    coder: ClassVar[None] = None

    def scores(self, dictionary: FittedDictionary, codes: Array, X: Array, sq_norms: Array) -> Array:
        return -class_residuals(dictionary, codes, X, sq_norms)[0]

    def contributions(
        self, dictionary: FittedDictionary, code: Array, x: Array, sq_norm: float
    ) -> tuple[Array, Array]:
        """Return the parts of -|x - f_j|^2, with f_j = s_j D_j.

        It is -|x|^2 plus the sum of s_k <d_k, 2 x - f_j> over the atoms d_k of class j. Two atoms share equally
        their common part of |f_j|^2. So these are the Shapley values of the atoms, where an atom that is left
        out has the code 0.
        """
        atoms, members = dictionary.atoms.astype(np.float64, copy=False), dictionary.members
        found = np.zeros((len(code), len(members)))
        for j, own in enumerate(members):
            fit = code[own] @ atoms[own]
            found[own, j] = code[own] * (atoms[own] @ (2 * x - fit))
        return np.full(len(members), -sq_norm), found


@dataclass(frozen=True)
class AgreementRule:
    """Score by -|s D - s_j D_j|^2: the class whose atoms alone make most of what all of them make (ProCRC).

    It is the rule of residuals, with the fit s D in place of the sample.
    """

    name: ClassVar[str] = "agreement"
    coder: ClassVar[None] = None

    def scores(self, dictionary: FittedDictionary, codes: Array, X: Array, sq_norms: Array) -> Array:
        fit = product(codes, dictionary.atoms)
        return -class_residuals(dictionary, codes, fit, row_squares(fit))[0]

    def contributions(
        self, dictionary: FittedDictionary, code: Array, x: Array, sq_norm: float
    ) -> tuple[Array, Array]:
        """Return the parts of -|f - f_j|^2, with f = s D: those of -|x - f_j|^2 for x = f."""
        fit = code @ dictionary.atoms
        return ResidualRule().contributions(dictionary, code, fit, float(fit @ fit))


@dataclass(frozen=True)
class RegularizedRule:
    """Score by -|x - s_j D_j| / |s_j|: how near a class comes, and how much of the code is its own."""

    coder: Settings | None = None
    name: ClassVar[str] = "regularized"

    def scores(self, dictionary: FittedDictionary, codes: Array, X: Array, sq_norms: Array) -> Array:
        xp, (residuals, norms) = namespace(codes), class_residuals(dictionary, codes, X, sq_norms)
        # A class that contributes nothing is very far, but not infinitely far. Zero codes have no information.
        least = xp.finfo(norms.dtype).eps * xp.max(norms, axis=-1, keepdims=True)
        norms = xp.where(least > 0, xp.maximum(norms, least), xp.ones_like(norms))
        return -xp.sqrt(xp.clip(residuals, 0, None)) / norms

    def contributions(
        self, dictionary: FittedDictionary, code: Array, x: Array, sq_norm: float
    ) -> tuple[Array, Array]:
        """Return the parts of -|r| / |s_j| = -|r|^2 / (|r| |s_j|): those of -|r|^2, divided by |r| |s_j|."""
        base, found = ResidualRule().contributions(dictionary, code, x, sq_norm)
        scores = self.scores(dictionary, code[None], x[None], np.array([sq_norm]))[0]
        squares = base + found.sum(axis=0)
        scale = np.divide(scores, squares, out=np.zeros_like(squares), where=squares < 0)
        return base * scale, found * scale


def log_odds(rule: Any, scores: Array) -> Array:
    """Return scores (n, c) whose differences are log odds, up to a common factor.

    Scores of the rule "regularized" are negative ratios, and become logarithms: odds should depend on how many
    times larger the ratio of another class is. A ratio of zero, which is a perfect fit, counts as the smallest
    positive number. A sample of zeros has only scores of zero, and keeps them.
    """
    if not isinstance(rule, RegularizedRule):
        return scores
    xp = namespace(scores)
    ratios = xp.clip(-scores, float(xp.finfo(scores.dtype).tiny), None)
    has_scores = xp.any(scores != 0, axis=1, keepdims=True)
    return xp.where(has_scores, -xp.log(ratios), xp.zeros_like(scores))


class ClassGroup(NamedTuple):
    """Classes with the same number m of atoms, which are handled together: a few steps instead of c."""

    classes: Array  # (g,)
    n_atoms: int  # m
    atoms: Array | slice  # (g m,): the indices of their atoms, class after class
    products: Array | None  # (g, m, m): D_j D_j' of each class, where m is small


def class_groups(dictionary: FittedDictionary) -> list[ClassGroup]:
    """Return the classes of a dictionary in groups, with products that do not depend on samples."""
    members, D = dictionary.members, dictionary.atoms
    sizes, r = np.array([len(own) for own in members]), D.shape[1]
    groups = []
    for m in np.unique(sizes):
        classes = np.flatnonzero(sizes == m)
        index, products = np.concatenate([members[j] for j in classes]), None
        if PRODUCTS * m <= r:
            own = D[index].astype(np.float64).reshape(len(classes), m, r)
            products = own @ own.mT
        first = index[0] if m else 0
        span = slice(first, first + len(index))
        in_order = np.array_equal(index, np.arange(len(D))[span])  # then views do, instead of copies
        groups.append(ClassGroup(classes, m, span if in_order else index, products))
    return groups


def class_residuals(
    dictionary: FittedDictionary, codes: Array, X: Array, sq_norms: Array
) -> tuple[Array, Array]:
    """Return |x - s_j D_j|^2 and |s_j|, (n, c) each, with the codes s_j over the atoms D_j of class j.

    That is the paper's (2). Coordinates X may lack the part of x outside the span of the atoms, but
    ``sq_norms`` = |x|^2 must have it. Rounding may make a zero slightly negative. The time is that of coding:
    it grows with the number of atoms, however they are shared out. So does the memory.
    """
    xp, (n, K), r = namespace(codes), codes.shape, X.shape[1]
    # In float64, because small differences of large numbers decide.
    S, X, D = (as_array(array, codes, xp.float64) for array in (codes, X, dictionary.atoms))
    residuals, norms = [], []
    for classes, m, index, products in dictionary.groups:
        index = index if isinstance(index, slice) else as_array(index, codes)
        own, by_class = D[index], (n, len(classes), m)
        s = xp.moveaxis(xp.reshape(S[:, index], by_class), 1, 0)  # (g, n, m)
        # |x|^2 - |x - f|^2 = <f, 2 x - f> with the fit f = s_j D_j: by products of atoms, or by f itself.
        if products is not None:
            along = 2 * xp.moveaxis(xp.reshape(X @ own.mT, by_class), 1, 0) - s @ as_array(products, codes)
            fitted = xp.vecdot(s, along)
        else:
            own, at_once = xp.reshape(own, (len(classes), m, r)), max(1, K // r)  # no more numbers than codes
            fits = (s[i : i + at_once] @ own[i : i + at_once] for i in range(0, len(classes), at_once))
            fitted = xp.concat([xp.vecdot(f, 2 * X - f) for f in fits])
        residuals.append(sq_norms[:, None] - fitted.mT)
        norms.append(xp.astype(xp.linalg.vector_norm(s, axis=-1).mT, codes.dtype, copy=False))
    if len(residuals) == 1:
        return residuals[0], norms[0]
    back = as_array(np.argsort(np.concatenate([group.classes for group in dictionary.groups])), codes)
    return xp.concat(residuals, axis=1)[:, back], xp.concat(norms, axis=1)[:, back]


@dataclass(frozen=True, eq=False)
class FittedDictionary:
    """Atoms in the coordinates of a space, with everything that makes codes and scores.

    Arrays are NumPy arrays, whatever device the model was fitted on. Samples are coded on `device`. Tensors
    stay on their device. Without classes (K-SVD) there are codes only.
    """

    space: Subspace
    atoms: Array  # (K, r)
    features: FeatureMap  # what samples are mapped to first
    coder: Settings
    rule: Any = None  # a Rule, where there are classes
    classes: Array | None = None  # (c,)
    atom_labels: Array | None = None  # (K,): the number of each atom's class
    # (n, r): training samples, for explanations. For SRC and CRC the atoms themselves.
    samples: Array | None = None
    sample_labels: Array | None = None  # (n,)
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)  # computed on demand, such as D D'

    def __getstate__(self) -> dict[str, Any]:
        # Some ways to pickle would store the same array twice.
        own = {"samples": "atoms"} if self.samples is self.atoms else {}
        return {**vars(self), "kept": {}, **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = {"samples": state["atoms"]} if isinstance(state["samples"], str) else {}
        vars(self).update(state, **own)

    @property
    def members(self) -> list[Array]:
        """Indices of the atoms of each class."""
        if "members" not in self.kept:
            classes: Any = self.classes
            self.kept["members"] = [np.flatnonzero(self.atom_labels == j) for j in range(len(classes))]
        return self.kept["members"]  # type: ignore[no-any-return]

    @property
    def groups(self) -> list[ClassGroup]:
        """The classes in groups, for `class_residuals`; at most a quarter of the size of the atoms."""
        if "groups" not in self.kept:
            self.kept["groups"] = class_groups(self)
        return self.kept["groups"]  # type: ignore[no-any-return]

    def codes(self, X: Array, device: str | None = None, n_jobs: int | None = None) -> Array:
        """Return the codes (n, K) of samples."""
        return self._map(self.coder, None, X, device, n_jobs)

    def scores(self, X: Array, device: str | None = None, n_jobs: int | None = None) -> Array:
        """Return the scores (n, c) of samples, the larger the better, in the type that the rule computes in."""
        return self._map(self.rule.coder or self.coder, partial(self.rule.scores, self), X, device, n_jobs)

    def judge(self, X: Array, device: str | None = None, n_jobs: int | None = None) -> tuple[Array, Array]:
        """Return scores (n, c) of samples and their `evidence` (n, 2), on the host, from the same codes."""
        coder = self.rule.coder or self.coder
        found = to_host(self._map(coder, self._scores_and_evidence, X, device, n_jobs))
        return found[:, :-2], found[:, -2:]

    def code_one(self, x: Array) -> tuple[Array, Array, float]:
        """Return code (K,), coordinates (r,) and squared norm of one sample (1, d), in float64 on the host.

        The code is the one that the rule uses.
        """
        found = self._map(self.rule.coder or self.coder, _side_by_side, x, None, 1)[0].astype(np.float64)
        K = len(self.atoms)
        return found[:K], found[K:-1], float(found[-1])

    def contributions(self, code: Array, x: Array, sq_norm: float) -> tuple[Array, Array]:
        """Return the parts of the scores of a sample that `code_one` coded. See `Rule`."""
        return self.rule.contributions(self, code, x, sq_norm)  # type: ignore[no-any-return]

    def evidence(self, codes: Array, X: Array, sq_norms: Array) -> Array:
        """Return how much samples look like one of the classes, (n, 2).

        First the sparsity concentration index, (c max_j |s_j|_1 / |s|_1 - 1) / (c - 1); second the residual of
        the nearest class, min_j |x - s_j D_j|^2 / |x|^2.
        """
        xp, c = namespace(codes), len(self.members)
        sizes = class_sums(
            xp.abs(as_array(codes, codes, xp.float64)).mT, as_array(self.atom_labels, codes), c
        ).mT
        total, largest = xp.sum(sizes, axis=1), xp.max(sizes, axis=1)
        share = largest / xp.where(total > 0, total, xp.ones_like(total))
        concentration = xp.where(total > 0, (c * share - 1) / (c - 1), xp.zeros_like(share))
        nearest = xp.min(class_residuals(self, codes, X, sq_norms)[0], axis=1)
        # A sample of zeros has the largest residual.
        residual = xp.where(sq_norms > 0, nearest / xp.where(sq_norms > 0, sq_norms, 1.0), 1.0)
        return xp.stack([concentration, residual], axis=1)

    def _scores_and_evidence(self, codes: Array, X: Array, sq_norms: Array) -> Array:
        xp = namespace(codes)
        scores = as_array(self.rule.scores(self, codes, X, sq_norms), codes, xp.float64)
        return xp.concat([scores, self.evidence(codes, X, sq_norms)], axis=1)

    def _map(
        self,
        settings: Settings,
        finish: Callable[[Array, Array, Array], Array] | None,
        X: Array,
        device: str | None,
        n_jobs: int | None,
    ) -> Array:
        """Code checked samples chunk by chunk, and return the results of `finish`, or the codes if it is None.

        `finish` takes codes, coordinates and squared norms. Results are tensors for tensors, otherwise NumPy
        arrays. Warn if a sample is zero, or if all codes are.
        """
        samples, threads = Samples(X, device, self.features), n_threads(n_jobs)

        def work(chunk: slice, codes: Array, Z: Array, sq_norms: Array) -> tuple[Array, bool, int]:
            result = codes if finish is None else finish(codes, Z, sq_norms)
            return (
                result if is_torch(X) else to_host(result),
                bool((codes != 0).any()),
                int((sq_norms == 0).sum()),
            )

        with one_blas_thread(), float32_products("full", samples.where):
            coder = settings.prepare(self.atoms, samples, self.space, threads, self.kept)
            advice = "Raise the tolerance or alpha."
            parts, _ = code_in_chunks(coder, samples, self.space, work, threads, advice)
        results, coded, blank = zip(*parts, strict=True)
        warn_of_zero_samples(sum(blank), len(X), stacklevel=5)
        if not any(coded) and sum(blank) < len(X):
            reason = "they have nothing in common with the atoms"
            if isinstance(settings, Lasso):
                reason = f"alpha={settings.alpha} is too large for samples of this size"
            kernel = ", or lower the kernel's gamma" if isinstance(self.space, KernelSpace) else ""
            warnings.warn(
                f"The codes of all {len(X)} samples are zero, so they say nothing about the classes: {reason}. "
                f"Lower alpha (or transform_alpha, if set), or scale the samples as in "
                f"training{kernel}.",
                UserWarning,
                stacklevel=4,
            )
        return results[0] if len(results) == 1 else namespace(results[0]).concat(results)


def warn_of_zero_samples(n_zero: int, n_samples: int, stacklevel: int) -> None:
    """Warn if samples are zero."""
    if n_zero:
        warnings.warn(
            f"{n_zero} of {n_samples} samples are all zero, so there is nothing to compare, and their answers "
            "say nothing. Check how they were loaded, or leave them out.",
            UserWarning,
            stacklevel=stacklevel,
        )


def _side_by_side(codes: Array, X: Array, sq_norms: Array) -> Array:
    return np.concatenate([codes, X, sq_norms[:, None]], axis=1)
